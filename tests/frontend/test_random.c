/* Random numbers: the cipher compared with its published answers, tensors with the cipher, and their distributions;
 * equal on every device. */
#include "support.h"

/* ---- the cipher, one element at a time ---- */

static void threefry(const uint32_t key[2], uint32_t x[2]) {
  static const int rotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
  uint32_t k[3] = {key[0], key[1], 0x1bd11bda ^ key[0] ^ key[1]};
  x[0] += k[0];
  x[1] += k[1];
  for (int i = 0; i < 20; i++) {
    int r = rotations[i % 8];
    x[0] += x[1];
    x[1] = (x[1] << r | x[1] >> (32 - r)) ^ x[0];
    if (i % 4 != 3) continue;
    uint32_t n = (uint32_t)i / 4 + 1;
    x[0] += k[n % 3];
    x[1] += k[(n + 1) % 3] + n;
  }
}

/* The answers that Random123 1.09 publishes (kat_vectors: threefry2x32 20). */
static void published_answers(void **state) {
  static const struct {
    uint32_t key[2], counter[2], want[2];
  } known[] = {{{0, 0}, {0, 0}, {0x6b200159, 0x99ba4efe}},
               {{UINT32_MAX, UINT32_MAX}, {UINT32_MAX, UINT32_MAX}, {0x1cb996fc, 0xbb002be7}},
               {{0x13198a2e, 0x03707344}, {0x243f6a88, 0x85a308d3}, {0xc4923a9c, 0x483df7a0}}};
  for (unsigned i = 0; i < 3; i++) {
    uint32_t x[2] = {known[i].counter[0], known[i].counter[1]};
    threefry(known[i].key, x);
    assert_memory_equal(x, known[i].want, sizeof x);
  }
}

/* ---- tensors ---- */

enum { N = 100 };
static const uint32_t key[2] = {0x89abcdef, 0x01234567};

static void tensors_are_the_cipher(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      uint32_t word[N];
      int64_t wide[N];
      float single[N], normal[N];
      double twice[N];
      db_manual_seed(0x0123456789abcdef);
      must_read(db_randint(0, INT64_C(1) << 32, DB_U32, dev, N), word, sizeof word);
      must_read(db_randint(-5, INT64_C(1) << 40, DB_I64, dev, 4, N / 4), wide, sizeof wide);
      must_read(db_rand(DB_F32, dev, N), single, sizeof single);
      must_read(db_rand(DB_F64, dev, N), twice, sizeof twice);
      must_read(db_normal(3, 2, DB_F32, dev, N), normal, sizeof normal);
      for (uint32_t i = 0; i < N; i++) {
        uint32_t x[5][2];
        for (uint32_t call = 0; call < 5; call++) {
          x[call][0] = i, x[call][1] = call;
          threefry(key, x[call]);
        }
        assert_int_equal(word[i], x[0][0]);
        uint64_t both = (uint64_t)x[1][0] << 32 | x[1][1];
        assert_int_equal(wide[i], (int64_t)(both % ((UINT64_C(1) << 40) + 5)) - 5);
        assert_true(single[i] == (float)(x[2][0] >> 8) * 0x1p-24f);
        assert_true(twice[i] == ((double)(x[3][0] >> 5) * 0x1p26 + (double)(x[3][1] >> 6)) * 0x1p-53);
        double u = ((x[4][0] >> 8) + 1) * 0x1p-24, v = (x[4][1] >> 8) * 0x1p-24;
        double want = 3 + 2 * sqrt(-2 * log(u)) * cos(2 * M_PI * v);
        assert_true(fabs(normal[i] - want) < 4e-6);
      }
    }
    db_close(dev);
  }
}

static void every_device_has_the_same_numbers(void **state) {
  static float first[3][1000], here[3][1000];
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_manual_seed(42);
      must_read(db_randn(DB_F32, dev, 1000), here[0], sizeof *here);
      must_read(db_uniform(-1, 3, DB_F32, dev, 1000), here[1], sizeof *here);
      must_read(db_kaiming_normal(0, DB_F32, dev, 10, 100), here[2], sizeof *here);
    }
    if (!d_) memcpy(first, here, sizeof first);
    assert_memory_equal(first, here, sizeof first);
    db_close(dev);
  }
}

static void calls_differ_and_seeds_repeat(void **state) {
  {
    DB_SCOPED;
    float a[8], b[8], c[8], again[8];
    db_manual_seed(9);
    db_tensor *x = db_rand(DB_F32, NULL, 8), *y = db_rand(DB_F32, NULL, 8);
    must_read(db_add(y, 0), b, sizeof b); /* in another order: a number depends on when its tensor was made */
    must_read(db_add(x, 0), a, sizeof a);
    must_read(db_mul(x, 1), again, sizeof again); /* and is the same when computed again */
    assert_memory_equal(a, again, sizeof a);
    assert_memory_not_equal(a, b, sizeof a);
    db_manual_seed(9);
    must_read(db_rand(DB_F32, NULL, 8), c, sizeof c);
    assert_memory_equal(a, c, sizeof a);
    db_manual_seed(10);
    must_read(db_rand(DB_F32, NULL, 8), c, sizeof c);
    assert_memory_not_equal(a, c, sizeof a);
  }
}

static char names[4][128];
static unsigned ran;
static void note(void *ctx, const struct db_command *command) {
  if (!command->is_copy && ran < 4) snprintf(names[ran++], sizeof *names, "%s", command->name);
}

static void calls_share_one_kernel(void **state) {
  {
    DB_SCOPED;
    ran = 0;
    db_watch(note, NULL);
    assert_int_equal(db_realize(db_randn(DB_F32, NULL, 33)), 0);
    db_manual_seed(77);
    assert_int_equal(db_realize(db_randn(DB_F32, NULL, 33)), 0);
    db_watch(NULL, NULL);
    assert_int_equal(ran, 2);
    assert_string_equal(names[0], names[1]);
  }
}

/* ---- distributions: bounds five standard deviations wide ---- */

enum { MANY = 40000 };
static float many[MANY];

static void moments(db_tensor *x, double mean, double deviation) {
  double sum = 0, squares = 0;
  must_read(x, many, sizeof many);
  for (int i = 0; i < MANY; i++) sum += many[i], squares += (many[i] - mean) * (many[i] - mean);
  assert_true(fabs(sum / MANY - mean) < 5 * deviation / sqrt(MANY));
  assert_true(fabs(sqrt(squares / MANY) / deviation - 1) < 5 / sqrt(MANY));
}

static void distributions(void **state) {
  {
    DB_SCOPED;
    db_manual_seed(1);
    moments(db_uniform(-2, 5, DB_F32, NULL, MANY), 1.5, 7 / sqrt(12));
    for (int i = 0; i < MANY; i++) assert_true(many[i] >= -2 && many[i] < 5);
    moments(db_normal(2, 3, DB_F32, NULL, 200, MANY / 200), 2, 3);
    moments(db_cast(db_randn(DB_F16, NULL, MANY), DB_F32), 0, 1);
    moments(db_cast(db_rand(DB_BF16, NULL, MANY), DB_F32), 0.5 - 1.0 / 512, sqrt(1.0 / 12));
    for (int i = 0; i < MANY; i++) assert_true(many[i] < 1);
    moments(db_bernoulli(db_full(0.3, DB_F32, NULL, MANY)), 0.3, sqrt(0.21));
    for (int i = 0; i < MANY; i++) assert_true(many[i] == 0 || many[i] == 1);
    moments(db_cast(db_randint(-3, 4, DB_I8, NULL, MANY), DB_F32), 0, 2);
    moments(db_scaled_uniform(DB_F32, NULL, MANY), 0, 1 / sqrt(3.0 * MANY));
    moments(db_glorot_uniform(DB_F32, NULL, 100, 400), 0, sqrt(2.0 / 500));
    moments(db_kaiming_uniform(1, DB_F32, NULL, 100, 4, 10, 10), 0, sqrt(1.0 / 400));
    moments(db_kaiming_normal(0, DB_F32, NULL, 100, 400), 0, sqrt(2.0 / 400));
  }
}

static void permutations(void **state) {
  {
    DB_SCOPED;
    static int64_t order[1500];
    bool seen[1500] = {0};
    must_read(db_randperm(1500, NULL), order, sizeof order);
    unsigned fixed = 0;
    for (int64_t i = 0; i < 1500; i++) {
      assert_in_range(order[i], 0, 1499);
      assert_false(seen[order[i]]);
      seen[order[i]] = true;
      fixed += order[i] == i;
    }
    assert_true(fixed < 12);
  }
}

static void weighted_choices(void **state) {
  {
    DB_SCOPED;
    static int64_t drawn[2][10000], pair[2];
    const float weight[2][4] = {{1, 2, 0, 5}, {0, 0, 3, 3}};
    db_tensor *w = db_from(weight, DB_F32, NULL, 2, 4);
    must_read(db_multinomial(w, 10000, true), drawn, sizeof drawn);
    for (int r = 0; r < 2; r++) {
      unsigned count[4] = {0};
      double total = r ? 6 : 8;
      for (int i = 0; i < 10000; i++) assert_in_range(drawn[r][i], 0, 3), count[drawn[r][i]]++;
      for (int k = 0; k < 4; k++) {
        double p = (double)weight[r][k] / total;
        assert_true(fabs(count[k] - 10000 * p) <= 5 * sqrt(10000 * p * (1 - p)));
      }
    }
    for (int i = 0; i < 20; i++) {
      must_read(db_multinomial(db_index(w, DB_PICK(0)), 2, false), pair, sizeof pair);
      assert_true(pair[0] != pair[1] && pair[0] != 2 && pair[1] != 2);
    }
  }
}

static void refused(void **state) {
  {
    DB_SCOPED;
    assert_contains(db_poison(db_rand(DB_I32, NULL, 2)), "uniform at ");
    assert_contains(db_poison(db_randn(DB_F32, NULL, -1)), "axis 0 of [-1]");
    assert_contains(db_poison(db_uniform(0, NAN, DB_F32, NULL, 1)), "both must be finite numbers");
    assert_contains(db_poison(db_randint(5, 5, DB_I32, NULL, 1)), "from 5 to 5 (exclusive)");
    assert_contains(db_poison(db_randint(0, 300, DB_U8, NULL, 1)), "the type is u8");
    assert_contains(db_poison(db_bernoulli(db_zeros(DB_I32, NULL, 2))), "probabilities must be floats");
    assert_contains(db_poison(db_multinomial(db_ones(DB_F32, NULL, 3), 4, false)), "4 samples from the 3");
    assert_contains(db_poison(db_rand(DB_F32, NULL, 1 << 20, 1 << 20)), "more than 2^32");
  }
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(published_answers),
                                     cmocka_unit_test(tensors_are_the_cipher),
                                     cmocka_unit_test(every_device_has_the_same_numbers),
                                     cmocka_unit_test(calls_differ_and_seeds_repeat),
                                     cmocka_unit_test(calls_share_one_kernel),
                                     cmocka_unit_test(distributions),
                                     cmocka_unit_test(permutations),
                                     cmocka_unit_test(weighted_choices),
                                     cmocka_unit_test(refused)};
  has_ptxas();
  return cmocka_run_group_tests_name("random", tests, NULL, finish);
}
