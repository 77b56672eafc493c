/* Losses: targets that are not a class, and errors. Their values are tested in tests/data/cases. */
#include "support.h"

static void no_class(void **state) {
  {
    DB_SCOPED;
    float out[4];
    db_tensor *x = db_zeros(DB_F32, NULL, 4, 3), *t = db_from(((int32_t[]){0, 3, -1, -100}), DB_I32, NULL, 4);
    must_read(db_cross_entropy(x, t, .reduction = DB_REDUCTION_NONE), out, sizeof out);
    assert_true(fabsf(out[0] - 1.0986123f) < 1e-6f && isnan(out[1]) && isnan(out[2]) && out[3] == 0);
  }
}

/* The number of classes need not fit the type of the targets. */
static void narrow_targets(void **state) {
  {
    DB_SCOPED;
    float loss = 0;
    db_tensor *x = db_zeros(DB_F32, NULL, 2, 300), *t = db_from(((uint8_t[]){0, 255}), DB_U8, NULL, 2);
    must_read(db_cross_entropy(x, t), &loss, sizeof loss);
    assert_true(fabsf(loss - logf(300)) < 1e-5f);
  }
}

/* The gradient of |x - y| is 0 where they are equal. */
static void equal_elements(void **state) {
  {
    DB_SCOPED;
    float dx[3];
    db_tensor *x = db_from(((float[]){1, 2, 3}), DB_F32, NULL, 3), *y = db_from(((float[]){0, 2, 5}), DB_F32, NULL, 3);
    db_tensor *loss = db_l1_loss(x, y, .reduction = DB_REDUCTION_SUM);
    must_read(db_grad(loss, x), dx, sizeof dx);
    assert_true(dx[0] == 1 && dx[1] == 0 && dx[2] == -1);
  }
}

static void refused(void **state) {
  {
    DB_SCOPED;
    db_tensor *x = db_zeros(DB_F32, NULL, 4, 3), *t = db_zeros(DB_I32, NULL, 4), *i = db_zeros(DB_I32, NULL, 4, 3);
    assert_contains(db_poison(db_mse_loss(x, t)), "mse_loss at");
    assert_contains(db_poison(db_mse_loss(x, t)), "the input is [4, 3], but the target is [4]");
    assert_contains(db_poison(db_l1_loss(i, x)), "the input is i32; cast it to a float");
    assert_contains(db_poison(db_huber_loss(x, x, .delta = -1)), "a delta of -1");
    assert_contains(db_poison(db_mse_loss(x, x, .weight = t)),
                    "the weight is [4]; it must have the last axes of [4, 3]");
    assert_contains(db_poison(db_mse_loss(x, x, .reduction = (enum db_reduction)9)), "unknown reduction 9");
    assert_contains(db_poison(db_cross_entropy(x, i)),
                    "the input is [4, 3] and the target [4, 3], but the classes are axis 1");
    assert_contains(db_poison(db_cross_entropy(x, t, .weight = x)), "the weight is [4, 3] for 3 classes");
    assert_contains(db_poison(db_cross_entropy(x, t, .label_smoothing = 2)), "the label smoothing is 2");
    assert_contains(db_poison(db_nll_loss(x, x)), "the target is f32; indices of classes are needed");
    assert_contains(db_poison(db_cross_entropy(x, x, .ignore = DB_LIST(0))),
                    "an index to ignore does not apply to probabilities");
    assert_contains(db_poison(db_cross_entropy(db_zeros(DB_F32, NULL), t)), "it must have an axis of classes");
  }
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(no_class), cmocka_unit_test(narrow_targets),
                                     cmocka_unit_test(equal_elements), cmocka_unit_test(refused)};
  has_ptxas(); /* sets the cache folder before anything is compiled */
  return cmocka_run_group_tests_name("loss", tests, NULL, finish);
}
