/* Attention: what is refused. Its values are among tests/data/cases. */
#include "support.h"

/* A query against the first n of kept keys: one schedule serves every n. */
static void growing_keys(void **state) {
  enum { MOST = 8, HEADS = 4, WIDTH = 4 };
  float q[HEADS * WIDTH], kv[2 * MOST * WIDTH], got[HEADS * WIDTH], want[HEADS * WIDTH];
  for (int i = 0; i < HEADS * WIDTH; i++) q[i] = (float)(i * 5 % 7) / 3;
  for (int i = 0; i < 2 * MOST * WIDTH; i++) kv[i] = (float)(i * 11 % 17) / 9 - 1;
  struct db_cache_counters before, after;
  {
    DB_SCOPED;
    db_tensor *x = db_from(q, DB_F32, NULL, 1, HEADS, 1, WIDTH), *keys = db_from(kv, DB_F32, NULL, 1, 2, MOST, WIDTH);
    for (int64_t n = 1; n <= MOST; n++) {
      db_tensor *fixed = db_shrink(keys, 0, 1, 0, 2, 0, n, 0, WIDTH);
      must_read(db_attention(x, fixed, fixed), want, sizeof want);
      if (n == 2) db_cache_counters(&before);
      db_tensor *bound = db_shrink(keys, 0, 1, 0, 2, 0, db_bind("keys", 1, MOST, n), 0, WIDTH);
      must_read(db_attention(x, bound, bound), got, sizeof got);
      if (n == 2) db_cache_counters(&after);
      for (int i = 0; i < HEADS * WIDTH; i++) assert_true(fabsf(got[i] - want[i]) < 1e-5f);
    }
    assert_int_equal(after.schedules, before.schedules);
    db_tensor *rows = db_shrink(db_reshape(keys, 2 * MOST, WIDTH), 0, db_bind("rows", 1, 2 * MOST, 3), 0, WIDTH);
    must_read(db_contiguous(db_shrink(db_layer_norm(rows, 1, NULL, NULL, 1e-5), 0, 1, 0, WIDTH)), got,
              WIDTH * sizeof *got);
    must_read(db_shrink(db_layer_norm(db_reshape(keys, 2 * MOST, WIDTH), 1, NULL, NULL, 1e-5), 0, 1, 0, WIDTH), want,
              WIDTH * sizeof *want);
    for (int i = 0; i < WIDTH; i++) assert_true(fabsf(got[i] - want[i]) < 1e-5f);
    assert_contains(db_poison(db_layer_norm(rows, 2, NULL, NULL, 1e-5)), "of symbolic size");
    assert_contains(db_poison(db_batch_norm(rows, NULL, NULL, NULL, NULL, 1e-5)), "of symbolic size");
  }
}

static void refused(void **state) {
  {
    DB_SCOPED;
    db_tensor *q = db_zeros(DB_F32, NULL, 2, 4, 5, 8), *k = db_zeros(DB_F32, NULL, 2, 3, 6, 8);
    db_tensor *h = db_zeros(DB_F16, NULL, 2, 4, 5, 8), *m = db_zeros(DB_BOOL, NULL, 5, 4),
              *i = db_zeros(DB_I32, NULL, 5, 5);
    assert_contains(db_poison(db_attention(q, k, k)), "queries [2, 4, 5, 8], keys [2, 3, 6, 8]");
    assert_contains(db_poison(db_attention(q, h, h)), "queries of f32, keys of f16");
    assert_contains(db_poison(db_attention(q, q, q, .mask = m)), "a mask of [5, 4] for scores of [2, 4, 5, 5]");
    assert_contains(db_poison(db_attention(q, q, q, .mask = i)), "a mask of i32");
    assert_contains(db_poison(db_attention(q, q, q, .scale = NAN)), "a scale of nan");
    assert_contains(db_poison(db_attention(q, q, NULL)), "argument 3 is NULL");
    q = db_zeros(DB_F32, NULL, 2, 0, 5, 8);
    assert_contains(db_poison(db_attention(q, k, k)), "queries [2, 0, 5, 8], keys [2, 3, 6, 8]");
  }
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(growing_keys), cmocka_unit_test(refused)};
  has_ptxas(); /* chooses the cache before anything is compiled */
  return cmocka_run_group_tests_name("attention", tests, NULL, finish);
}
