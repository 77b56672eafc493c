/* Every rule of the algebraic sets; wrong rules, which must be detected; and whole sets at their fixed point. */
#include "soundness.h"

static void test_fold(void **state) { check_set(&rules_fold); }
static void test_algebra(void **state) { check_set(&rules_algebra); }
static void test_symbolic(void **state) { check_set(&rules_symbolic); }

/* ---- wrong rules are caught ------------------------------------------------------------------ */
#define ALL  (~0u >> (32 - DT_COUNT))
#define FLTS (1u << DT_F16 | 1u << DT_BF16 | 1u << DT_F32 | 1u << DT_F64 | 1u << DT_F8E4M3 | 1u << DT_F8E5M2)
#define INTS (ALL & ~FLTS & ~(1u << DT_VOID) & ~(1u << DT_BOOL))
#define NODE(op, types, n)                                                                                             \
  {                                                                                                                    \
      RULE_NODE, 0,     n,                                                                                             \
      0,         types, {(op) < 64 ? UINT64_C(1) << ((op) & 63) : 0, (op) < 64 ? 0 : UINT64_C(1) << ((op) & 63)},      \
      0}
#define ANY(name)      {RULE_ANY, name, 0, 0, ALL, {0}, 0}
#define CONSTANT(name) {RULE_CONST, name, 0, 0, ALL, {0}, 0}
#define LITERAL(v)     {RULE_LITERAL, 0, 0, 0, ALL, {0}, v}

static bool is_zero(const struct uop *u) { return u->op == OP_CONST && u->arg.i == 0; }
static struct uop *wrong_add(struct graph *h, void *ctx, struct uop *u) {
  return is_zero(u->src[1]) ? u->src[0] : NULL;
}
static struct uop *wrong_mul(struct graph *h, void *ctx, struct uop *u) {
  return is_zero(u->src[1]) ? u->src[1] : NULL;
}
static struct uop *wrong_sub(struct graph *h, void *ctx, struct uop *u) {
  return u->src[0] == u->src[1] ? uop_const_float(h, u->dtype, 0) : NULL;
}
static struct uop *wrong_max(struct graph *h, void *ctx, struct uop *u) {
  return uop_where(h, uop_binary(h, OP_CMPLT, u->src[0], u->src[1]), u->src[0], u->src[1]);
}
static struct uop *wrong_div(struct graph *h, void *ctx, struct uop *u) {
  return uop_const_int(h, u->dtype, 0)->arg.i == u->src[1]->arg.i || u->src[0]->op != OP_MUL ? NULL : u->src[0]->src[0];
}
static struct uop *wrong_type(struct graph *h, void *ctx, struct uop *u) { return uop_cast(h, u, DT_F64); }

/* Mistakes: x + 0 loses -0; x * 0 and x - x are not 0 for NaN and infinity; a maximum with the wrong operand; (x * c) /
 * c overflows; another type. */
static const struct rule wrong_rules[] = {
    {"(ADD:float x #0) => x", 11, wrong_add, (struct rule_term[]){NODE(OP_ADD, FLTS, 2), ANY(1), LITERAL(0)}},
    {"(MUL:float x #0) => #0", 12, wrong_mul, (struct rule_term[]){NODE(OP_MUL, FLTS, 2), ANY(1), LITERAL(0)}},
    {"(SUB:float x x) => #0", 13, wrong_sub, (struct rule_term[]){NODE(OP_SUB, FLTS, 2), ANY(1), ANY(1)}},
    {"(MAX:int x y) => (WHERE (CMPLT x y) x y)", 14, wrong_max,
     (struct rule_term[]){NODE(OP_MAX, INTS, 2), ANY(1), ANY(2)}},
    {"(IDIV:i32 (MUL x #c) c) => x", 15, wrong_div,
     (struct rule_term[]){NODE(OP_IDIV, 1u << DT_I32, 2), NODE(OP_MUL, ALL, 2), ANY(1), CONSTANT(2), CONSTANT(2)}},
    {"(SQRT:f32 x) => (CAST:f64 (SQRT x))", 16, wrong_type,
     (struct rule_term[]){NODE(OP_SQRT, 1u << DT_F32, 1), ANY(1)}},
};

static void test_wrong_rules(void **state) {
  static const struct ruleset wrong = {.name = "wrong", .file = "wrong.rules", .rule = wrong_rules, .nrules = 6};
  for (unsigned r = 0; r < wrong.nrules; r++) {
    char why[3000] = "", place[40];
    snprintf(place, sizeof place, "wrong.rules:%u ", wrong_rules[r].line);
    if (check_rule(&wrong, r, why, sizeof why) >= 0) fail_msg("%s was not caught", wrong_rules[r].text);
    assert_non_null(strstr(why, place));
    assert_non_null(strstr(why, wrong_rules[r].text));
  }
  graph_free(g);
  g = NULL;
}

/* Whole sets at their fixed point, over expressions of every type. */
static void test_simplify(void **state) {
  char a[2000], b[2000];
  for (int n = 0; n < EXPRESSIONS; n++) {
    if (n % 100 == 0) {
      graph_free(g);
      g = graph_new();
    }
    struct uop *u = random_expr(random_type(F | I | B), 5);
    struct uop *v = graph_rewrite(g, u, rules_simplify, NULL);
    assert_null(graph_error(g));
    assert_int_equal(u->dtype, v->dtype);
    size_t count;
    struct uop **order = uop_toposort(&u, 1, &count);
    struct env e = {0};
    for (size_t i = 0; i < count; i++)
      if ((order[i]->op == OP_VAR || order[i]->op == OP_RANGE) && e.n < 60) e.leaf[e.n++] = order[i];
    free(order);
    for (int k = 0; k < 5; k++) {
      for (unsigned i = 0; i < e.n; i++) e.value[i] = random_value(e.leaf[i]);
      e.undefined = e.overflow = false;
      union value x = eval(&e, u);
      if (e.undefined || e.overflow) continue;
      union value y = eval(&e, v);
      if (e.undefined || !eval_same(u->dtype, x, y))
        fail_msg("%s = %lld\n%s = %lld", uop_expr(u, a, sizeof a), (long long)x.i, uop_expr(v, b, sizeof b),
                 (long long)y.i);
    }
  }
  graph_free(g);
  g = NULL;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_fold), cmocka_unit_test(test_algebra),
                                     cmocka_unit_test(test_symbolic), cmocka_unit_test(test_wrong_rules),
                                     cmocka_unit_test(test_simplify)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
