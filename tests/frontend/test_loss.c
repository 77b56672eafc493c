/* Losses against PyTorch; what is refused. */
#include "cases.h"

static enum db_reduction reduction_of(const struct nn_case *c) {
  static const char *const names[] = {"mean", "sum", "batchmean", "none"};
  enum db_reduction r = DB_LOSS_MEAN;
  while (strcmp(names[r], case_key(c, "reduction"))) r++;
  return r;
}

static db_tensor *apply(struct nn_case *c, db_tensor *const *in) {
  static const char *const kinds[] = {"mse", "l1", "huber", "smooth_l1", "bce", "bce_logits", "kl"};
  const char *has = case_key(c, "has");
  unsigned next = 2;
  db_tensor *weight = has && strchr(has, 'w') ? in[next++] : NULL;
  if (case_is(c, "cross_entropy") || case_is(c, "nll")) {
    struct db_cross_entropy o = {.reduction = reduction_of(c),
                                 .weight = weight,
                                 .ignore = case_list(c, "ignore"),
                                 .label_smoothing = case_number(c, "smooth", 0)};
    return db_cross_entropy_at(DB_HERE, !case_is(c, "nll"), in[0], in[1], o);
  }
  struct db_loss o = {.reduction = reduction_of(c),
                      .weight = weight,
                      .positive = has && strchr(has, 'p') ? in[next] : NULL,
                      .delta = case_number(c, "delta", 0),
                      .log_target = case_key(c, "log_target") != NULL};
  enum db_loss_kind kind = DB_MSE;
  while (strcmp(kinds[kind], c->op)) kind++;
  return db_loss_at(DB_HERE, kind, in[0], in[1], o);
}
CASE_TESTS(loss, "loss.txt", 130, apply)

static void no_class(void **state) {
  DB_SCOPE {
    float out[4];
    db_tensor *x = db_zeros(DB_F32, NULL, 4, 3), *t = db_from(((int32_t[]){0, 3, -1, -100}), DB_I32, NULL, 4);
    must_read(db_cross_entropy(x, t, .reduction = DB_LOSS_NONE), out, sizeof out);
    assert_true(fabsf(out[0] - 1.0986123f) < 1e-6f && isnan(out[1]) && isnan(out[2]) && out[3] == 0);
  }
}

static void refused(void **state) {
  DB_SCOPE {
    db_tensor *x = db_zeros(DB_F32, NULL, 4, 3), *t = db_zeros(DB_I32, NULL, 4), *i = db_zeros(DB_I32, NULL, 4, 3);
    assert_contains(db_poison(db_mse_loss(x, t)), "mse_loss at");
    assert_contains(db_poison(db_mse_loss(x, t)), "of [4, 3] and a target of [4]");
    assert_contains(db_poison(db_l1_loss(i, x)), "of i32; cast to a float");
    assert_contains(db_poison(db_huber_loss(x, x, .delta = -1)), "a delta of -1");
    assert_contains(db_poison(db_mse_loss(x, x, .weight = t)), "a weight of [4] for [4, 3]");
    assert_contains(db_poison(db_mse_loss(x, x, .reduction = (enum db_reduction)9)), "there is no reduction 9");
    assert_contains(db_poison(db_cross_entropy(x, i)), "of [4, 3] and a target of [4, 3]; classes are axis 1");
    assert_contains(db_poison(db_cross_entropy(x, t, .weight = x)), "a weight of [4, 3] for 3 classes");
    assert_contains(db_poison(db_cross_entropy(x, t, .label_smoothing = 2)), "label smoothing of 2");
    assert_contains(db_poison(db_nll_loss(x, x)), "a target of f32; indices of classes are needed");
    assert_contains(db_poison(db_cross_entropy(x, x, .ignore = DB_LIST(0))), "probabilities are not ignored");
    assert_contains(db_poison(db_cross_entropy(db_zeros(DB_F32, NULL), t)), "an axis of classes is needed");
  }
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {CASE_UNIT_TESTS(loss), cmocka_unit_test(no_class), cmocka_unit_test(refused)};
  has_ptxas(); /* chooses the cache before anything is compiled */
  return cmocka_run_group_tests_name("loss", tests, NULL, finish);
}
