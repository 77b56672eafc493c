/* Attention: what is refused. Its values are among tests/data/cases. */
#include "support.h"

static void refused(void **state) {
  DB_SCOPE {
    db_tensor *q = db_zeros(DB_F32, NULL, 2, 4, 5, 8), *k = db_zeros(DB_F32, NULL, 2, 3, 6, 8);
    db_tensor *h = db_zeros(DB_F16, NULL, 2, 4, 5, 8), *m = db_zeros(DB_BOOL, NULL, 5, 4),
              *i = db_zeros(DB_I32, NULL, 5, 5);
    assert_contains(db_poison(db_attention(q, k, k)), "queries [2, 4, 5, 8], keys [2, 3, 6, 8]");
    assert_contains(db_poison(db_attention(q, h, h)), "queries of f32, keys of f16");
    assert_contains(db_poison(db_attention(q, q, q, .mask = m)), "a mask of [5, 4] for scores of [2, 4, 5, 5]");
    assert_contains(db_poison(db_attention(q, q, q, .mask = i)), "a mask of i32");
    assert_contains(db_poison(db_attention(q, q, q, .scale = NAN)), "a scale of nan");
    assert_contains(db_poison(db_attention(q, q, NULL)), "argument 3 is NULL");
  }
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(refused)};
  has_ptxas(); /* chooses the cache before anything is compiled */
  return cmocka_run_group_tests_name("attention", tests, NULL, finish);
}
