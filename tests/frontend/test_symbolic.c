/* Symbolic sizes: results for every value of a variable compared with loops on the host, and one schedule for all of
 * them. */
#include "support.h"

enum { MOST = 16, D = 8 };
static float data[MOST][D], other[MOST][D];

static int fill(void **state) {
  for (int i = 0; i < MOST; i++)
    for (int k = 0; k < D; k++) data[i][k] = (float)sin(i * 8 + k), other[i][k] = (float)cos(i * 3 + k * 2);
  return 0;
}

static void near(db_tensor *t, int64_t n, const double *want) {
  float *got = malloc((size_t)n * sizeof *got);
  assert_int_equal(db_numel(t), n);
  must_read(t, got, (size_t)n * sizeof *got);
  for (int64_t i = 0; i < n; i++)
    if (!(fabs(got[i] - want[i]) <= 2e-5 * (fabs(want[i]) + 1)))
      fail_msg("element %lld is %g, not %g", (long long)i, (double)got[i], want[i]);
  free(got);
}

static db_tensor *rows(db_tensor *x, int64_t begin, int64_t end) { return db_shrink(x, begin, end, 0, D); }

/* Operations on the first n rows. */
static void operations(db_device *dev, int v) {
  db_tensor *x = db_from(data, DB_F32, dev, MOST, D), *y = db_from(other, DB_F32, dev, MOST, D);
  int64_t n = db_bind("n", 1, MOST, v);
  db_tensor *a = rows(x, 0, n), *b = rows(y, 0, n);
  double want[MOST * MOST + MOST * D], sum = 0, squares = 0;
  for (int i = 0; i < v; i++)
    for (int k = 0; k < D; k++) want[i * D + k] = data[i][k] * 2 + other[i][k];
  near(db_add(db_mul(a, 2), b), v * D, want);
  for (int i = 0; i < v; i++)
    for (int k = 0; k < D; k++) sum += data[i][k];
  near(db_sum(a), 1, &sum);
  sum /= v * D;
  near(db_mean(a), 1, &sum);
  for (int i = 0; i < v; i++)
    for (int k = 0; k < D; k++) squares += (data[i][k] - sum) * (data[i][k] - sum);
  squares /= v * D - 1;
  near(db_var(a), 1, &squares);
  for (int k = 0; k < D; k++) {
    want[k] = -INFINITY;
    for (int i = 0; i < v; i++) want[k] = fmax(want[k], data[i][k]);
  }
  near(db_max(a, 0), D, want);
  for (int i = 0; i < v; i++)
    for (int j = 0; j < v; j++) {
      want[i * v + j] = 0;
      for (int k = 0; k < D; k++) want[i * v + j] += (double)data[i][k] * other[j][k];
    }
  near(db_matmul(a, db_transpose(b, 0, 1)), v * v, want); /* two symbolic axes */
  for (int k = 0; k < D; k++) {
    double all = 0;
    for (int i = 0; i < v; i++) all += exp(data[i][k]);
    for (int i = 0; i < v; i++) want[i * D + k] = exp(data[i][k]) / all;
  }
  near(db_softmax(a, 0), v * D, want);
  /* movement */
  db_tensor *split = db_reshape(a, n, 2, 4);
  for (int i = 0; i < v; i++)
    for (int k = 0; k < D; k++) want[(k / 4 * v + i) * 4 + k % 4] = data[i][k] + 1;
  near(db_add(db_permute(split, 1, 0, 2), 1), v * D, want);
  near(db_contiguous(db_add(db_permute(db_reshape(a, -1, 2, 4), 1, 0, 2), 1)), v * D, want);
  for (int i = 0; i < MOST; i++)
    for (int k = 0; k < D; k++) want[i * D + k] = i < v ? data[i][k] : 0;
  db_tensor *padded = db_pad(a, 0, db_size_sub(MOST, n), 0, 0);
  assert_string_equal(db_dim_text(padded, 0), "16"); /* the variable cancels */
  near(db_add(padded, 0), MOST * D, want);
  for (int i = 0; i < v; i++)
    for (int k = 0; k < D; k++) want[i * D + k] = data[v - 1 - i][k];
  near(db_flip(a, 0), v * D, want);
  for (int i = 0; i < v; i++) want[2 * i] = 3, want[2 * i + 1] = 4;
  near(db_expand(db_from(((float[]){3, 4}), DB_F32, dev, 1, 2), n, 2), 2 * v, want);
  /* the size as a number, and a slice at a variable position */
  want[0] = v + 1;
  near(db_cast(db_size_tensor(db_size_add(n, 1), dev), DB_F32), 1, want);
  for (int k = 0; k < D; k++) want[k] = data[v - 1][k] * 3;
  near(db_mul(rows(x, db_size_sub(n, 1), n), 3), D, want);
  near(db_mul(rows(a, db_size_sub(n, 1), n), 3), D, want);
}

static void all_values_one_schedule(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    db_tensor *hold = db_ones(DB_F32, dev, 1);
    struct db_cache_counters c0, c1;
    for (int v = 2; v <= MOST; v += 7) {
      DB_SCOPED;
      db_cache_counters(&c0);
      operations(dev, v);
      db_cache_counters(&c1);
      if (v == 2)
        assert_true(c1.made > c0.made);
      else { /* except for the row at v - 1, whose address may be aligned or not */
        assert_true(c1.made - c0.made <= 1);
        assert_true(c1.kernels - c0.kernels <= 1);
      }
    }
    db_release(hold);
    db_close(dev);
  }
}

/* Attention to the keys so far, in a cache that is written in place. */
static void attention_with_a_growing_cache(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_tensor *keys = db_zeros(DB_F32, dev, MOST, D), *values = db_zeros(DB_F32, dev, MOST, D);
      db_tensor *x = db_from(data, DB_F32, dev, MOST, D), *y = db_from(other, DB_F32, dev, MOST, D);
      struct db_cache_counters c0, c1;
      struct db_device_counters d0, d1;
      assert_int_equal(db_realize(keys, values), 0);
      for (int t = 0; t < MOST; t++) {
        DB_SCOPED;
        int64_t at = db_bind("at", 0, MOST - 1, t), n = db_size_add(at, 1);
        db_tensor *q = rows(x, at, n);
        db_assign_slice(keys, rows(y, at, n), at, n, 0, D);
        db_assign_slice(values, db_mul(q, 2), at, n, 0, D);
        db_tensor *k = rows(keys, 0, n), *v = rows(values, 0, n);
        db_tensor *weight = db_softmax(db_mul(db_matmul(q, db_transpose(k, 0, 1)), 0.5), -1);
        db_tensor *out = db_matmul(weight, v);
        assert_int_equal(db_realize(keys, values, out), 0);
        double e[MOST], sum = 0, want[D] = {0};
        for (int j = 0; j <= t; j++) {
          double dot = 0;
          for (int i = 0; i < D; i++) dot += (double)data[t][i] * other[j][i];
          sum += e[j] = exp(dot * 0.5);
        }
        for (int j = 0; j <= t; j++)
          for (int i = 0; i < D; i++) want[i] += e[j] / sum * data[j][i] * 2;
        near(out, D, want);
        db_cache_counters(&c1);
        db_device_counters(dev, &d1);
        if (t == 1) c0 = c1, d0 = d1;
      }
      assert_int_equal(c1.made, c0.made);
      assert_int_equal(c1.kernels, c0.kernels);
      assert_int_equal(d1.bytes_allocated, d0.bytes_allocated);
    }
    db_close(dev);
  }
}

/* A realized tensor keeps its size; its memory is that of the largest size. */
static void realized_values_keep_their_size(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_tensor *x = db_from(data, DB_F32, dev, MOST, D), *kept[2];
      for (int i = 0; i < 2; i++) {
        kept[i] = db_add(rows(x, 0, db_bind("n", 1, MOST, 3 + 4 * i)), 1);
        assert_int_equal(db_realize(kept[i]), 0);
      }
      for (int i = 0; i < 2; i++) {
        int n = 3 + 4 * i;
        double want[MOST * D];
        for (int k = 0; k < n * D; k++) want[k] = data[k / D][k % D] + 1;
        near(kept[i], n * D, want);
        for (int k = 0; k < n * D; k++) want[k] = (data[k / D][k % D] + 1) * 2;
        near(db_mul(kept[i], 2), n * D, want);
        assert_int_equal(db_dim(kept[i], 0), n);
      }
      db_assign(kept[0], db_mul(kept[0], 2));
      double want[MOST * D];
      for (int k = 0; k < 3 * D; k++) want[k] = (data[k / D][k % D] + 1) * 2;
      near(kept[0], 3 * D, want);
    }
    db_close(dev);
  }
}

static void bad(const char *part, db_tensor *t) {
  if (!db_poison(t)) fail_msg("accepted; \"%s\" was expected", part);
  assert_contains(db_poison(t), part);
}

static void errors(void **state) {
  {
    DB_SCOPED;
    db_tensor *x = db_from(data, DB_F32, NULL, MOST, D);
    int64_t n = db_bind("n", 0, MOST, 3), m = db_bind("m", 1, MOST, 5), more = db_bind("n", 0, MOST, 4);
    db_tensor *a = rows(x, 0, n), *b = rows(x, 0, m);
    assert_true(n == db_bind("n", 0, MOST, 3));
    assert_int_equal(db_size_value(db_size_mul(db_size_add(n, m), 2)), 16);
    assert_int_equal(db_size_sub(db_size_add(n, 4), n), 4);
    assert_true(db_size_mul(n, m) == db_size_mul(m, n));
    assert_int_equal(db_dim(a, 0), 3);
    assert_int_equal(db_numel(a), 3 * D);
    assert_string_equal(db_dim_text(a, 0), "n=3");
    assert_string_equal(db_dim_text(rows(x, 0, db_size_sub(m, 1)), 0), "m-1=4");
    assert_string_equal(db_dim_text(a, 7), "");
    bad("[n=3, 8] and [m=5, 8] do not broadcast", db_add(a, b));
    bad("do not broadcast", db_add(a, rows(x, 0, 3)));
    bad("[0, n+1=4) is not within [0, n=3)", rows(a, 0, db_size_add(n, 1)));
    bad("[n=3, 2) is not within", rows(x, n, 2));
    bad("[0, n*2=6) is not within", rows(x, 0, db_size_mul(2, n)));
    bad("n*8=24 elements, which [5, -1] cannot hold", db_reshape(a, 5, -1));
    bad("only an axis of size 1 can grow", db_expand(a, m, D));
    bad("the first has 8 columns, but the second has n=3 rows", db_matmul(x, a));
    bad("it has no max", db_max(a)); /* n may be 0 */
    bad("not supported: symbolic numbers in subscripts of [16, 8]", db_index(x, DB_SLICE(0, n, 1)));
    bad("not supported: argument 1 is [n=3, 8], which has a symbolic size", db_index(a, DB_PICK(0)));
    bad("not supported: the symbolic size in [n=3]", db_zeros(DB_F32, NULL, n));
    assert_float_equal(must_item(db_sum(rows(x, 0, db_bind("n", 0, MOST, 0)))), 0, 0);
    assert_true(isnan(must_item(db_mean(rows(x, 0, db_bind("n", 0, MOST, 0))))));
    assert_int_equal(db_realize(db_add(db_sum(a), db_sum(rows(x, 0, more)))), -EINVAL);
    assert_contains(db_error(), "variable n is bound to both 3 and 4");
    assert_true(db_bind("1n", 0, 3, 1) < 0);
    assert_true(db_bind("", 0, 3, 1) < 0);
    assert_true(db_bind(NULL, 0, 3, 1) < 0);
    assert_true(db_bind("n", 0, 3, 4) < 0);
    assert_contains(db_error(), "n must be from 0 to 3, not 4");
    assert_true(db_bind("n", 3, 0, 1) < 0);
    bad("[0, -22) is not within", rows(x, 0, db_bind("n", 3, 0, 1)));
    float out[4];
    assert_int_equal(db_read(a, out, sizeof out), -EINVAL);
    assert_contains(db_error(), "the tensor [n=3, 8] of f32 has 96");
  }
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_values_one_schedule),
      cmocka_unit_test(attention_with_a_growing_cache),
      cmocka_unit_test(realized_values_keep_their_size),
      cmocka_unit_test(errors),
  };
  fill(NULL);
  return cmocka_run_group_tests_name("symbolic", tests, NULL, finish);
}
