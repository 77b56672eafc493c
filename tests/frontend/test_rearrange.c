/* Named axes, compared with the equivalent reshapes and permutations. */
#include "support.h"

static db_tensor *x; /* 0 .. 119 as [2, 12, 5] */

static void same(db_tensor *a, db_tensor *b) {
  float got[120], want[120];
  if (db_poison(a)) fail_msg("%s", db_poison(a));
  assert_int_equal(db_rank(a), db_rank(b));
  for (unsigned i = 0; i < db_rank(b); i++) assert_int_equal(db_dim(a, (int)i), db_dim(b, (int)i));
  must_read(a, got, sizeof got);
  must_read(b, want, sizeof want);
  assert_memory_equal(got, want, sizeof got);
}

static void axes_move_split_and_join(void **state) {
  {
    DB_SCOPED;
    x = db_reshape(db_arange(0, 120, 1, DB_F32, NULL), 2, 12, 5);
    same(db_rearrange(x, "b s d -> b s d", NULL), x);
    same(db_rearrange(x, "b s d->d b s", ""), db_permute(x, 2, 0, 1));
    same(db_rearrange(x, "b (h w) d -> b h w d", "h=3"), db_reshape(x, 2, 3, 4, 5));
    same(db_rearrange(x, "b (h w) d -> b w h d", "w=4 h=3"), db_permute(db_reshape(x, 2, 3, 4, 5), 0, 2, 1, 3));
    same(db_rearrange(x, "b s d -> (b s) d", NULL), db_reshape(x, 24, 5));
    same(db_rearrange(x, "b s d -> (d b) s", NULL), db_reshape(db_permute(x, 2, 0, 1), 10, 12));
    same(db_rearrange(x, "b (h w) d -> (b h) 1 (w d)", "h=6"), db_reshape(x, 12, 1, 10));
    same(db_rearrange(db_unsqueeze(x, 1), "b 1 s_0 d -> s_0 b d", NULL), db_permute(x, 1, 0, 2));
    same(db_rearrange(x, "b s d -> (b s d)", NULL), db_reshape(x, 120));
  }
}

static void refused(db_tensor *t, const char *part) {
  assert_contains(db_poison(t), "rearrange at ");
  assert_contains(db_poison(t), part);
}

static void invalid_texts_are_refused(void **state) {
  {
    DB_SCOPED;
    x = db_zeros(DB_F32, NULL, 2, 12, 5);
    refused(db_rearrange(x, "b s -> s b", NULL), "the input is [2, 12, 5], but \"b s \" has 2 axes");
    refused(db_rearrange(x, "b s d", NULL), "is not \"AXES -> AXES\"");
    refused(db_rearrange(x, NULL, NULL), "is not \"AXES -> AXES\"");
    refused(db_rearrange(x, "b s d -> b s", NULL), "\"d\" is not named once");
    refused(db_rearrange(x, "b s d -> b s d e", NULL), "\"e\" is not named once");
    refused(db_rearrange(x, "b s d -> b s d s", NULL), "\"s\" is not named once");
    refused(db_rearrange(x, "b b d -> b d", NULL), "\"b\" is not named once");
    refused(db_rearrange(x, "b (h w) d -> b h w d", NULL), "axis 1 are ambiguous");
    refused(db_rearrange(x, "b (h w) d -> b h w d", "h=5"), "their product is not 12");
    refused(db_rearrange(x, "b s d -> b d s", "s=5"), "their product is not 12");
    refused(db_rearrange(x, "b s d -> b d s", "q=5"), "\"q\" is not NAME=SIZE");
    refused(db_rearrange(x, "b s d -> b d s", "s"), "\"s\" is not NAME=SIZE");
    refused(db_rearrange(x, "b (s d -> b d s", NULL), "parenthesis");
    refused(db_rearrange(x, "b s ? -> b s", NULL), "'?' names no axis");
    refused(db_rearrange(x, "b s d -> b 1 s d 2", NULL), "'2' names no axis");
  }
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(axes_move_split_and_join),
                                     cmocka_unit_test(invalid_texts_are_refused)};
  return cmocka_run_group_tests_name("rearrange", tests, NULL, finish);
}
