/* Every rule of the algebraic sets, one by one: nodes are made at random from the rule's own pattern, and where the rule applies both sides are
 * evaluated over corner and random values. A rule that never applies fails too, and wrong rules are seen to fail. */
#include "eval.h"
#include "graph/rules.h"

#ifndef INSTANCES /* of each rule */
#define INSTANCES   400
#define EXPRESSIONS 30000
#endif

enum { F = 1, I = 2, B = 4 };
static const uint8_t takes[OP_COUNT] = {
    [OP_NEG] = F | I,
    [OP_RECIP] = F,
    [OP_SQRT] = F,
    [OP_EXP2] = F,
    [OP_LOG2] = F,
    [OP_SIN] = F,
    [OP_TRUNC] = F,
    [OP_ADD] = F | I,
    [OP_SUB] = F | I,
    [OP_MUL] = F | I,
    [OP_FDIV] = F,
    [OP_IDIV] = I,
    [OP_MOD] = I,
    [OP_MAX] = F | I,
    [OP_CMPLT] = F | I | B,
    [OP_CMPEQ] = F | I | B,
    [OP_CMPNE] = F | I | B,
    [OP_AND] = I | B,
    [OP_OR] = I | B,
    [OP_XOR] = I | B,
    [OP_SHL] = I,
    [OP_SHR] = I,
    [OP_MULACC] = F | I,
    [OP_CAST] = F | I | B,
    [OP_BITCAST] = F | I | B,
    [OP_WHERE] = F | I | B,
};
static unsigned class_of(enum dtype t) { return t == DT_BOOL ? B : dtype_is_float(t) ? F : I; }
static bool compares(enum op op) { return op == OP_CMPLT || op == OP_CMPEQ || op == OP_CMPNE; }

static struct graph *g;

static enum dtype random_type(unsigned classes) {
  enum dtype t;
  do t = (enum dtype)pick(DT_BOOL, DT_INDEX);
  while (!(class_of(t) & classes));
  return (classes & I) && !pick(0, 2) ? DT_INDEX : t;
}

/* An index stays far from the ends of 64 bits: its arithmetic is taken not to overflow, whichever way a sum is written. */
static struct uop *random_const(enum dtype t) {
  static const double floats[] = {0, -0.0, 1, -1, 2, 0.5, 3, 0.25, INFINITY, -INFINITY, NAN, 1e-7, 65504, 1e30, 0.1};
  static const int64_t ints[] = {0,   1,   -1,  2,   3,     4,         5,         6,         7,
                                 8,   12,  16,  24,  64,    -2,        -3,        -4,        -8,
                                 100, 127, 128, 255, 32767, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
  if (dtype_is_float(t)) return uop_const_float(g, t, floats[pick(0, 14)]);
  if (t == DT_INDEX && pick(0, 9)) return uop_const_int(g, t, ints[pick(0, 17)]);
  return uop_const_int(g, t, ints[pick(0, pick(0, 3) ? 9 : t == DT_INDEX ? 24 : 26)]);
}

/* A leaf is a VAR; integers get bounds, often small ones. */
static struct uop *random_leaf(enum dtype t) {
  char name[8];
  int64_t k = pick(0, 2), lo = 0, hi = 1;
  snprintf(name, sizeof name, "%s%d", dtype_info[t].name, (int)k);
  if (t == DT_INDEX && pick(0, 3)) return uop_range(g, uop_index(g, pick(1, 12)), k, AXIS_LOOP);
  if (dtype_is_float(t))
    return uop_new(g, OP_VAR, t, 1, (union uop_arg){.s = name}, 0,
                   (struct uop *[]){uop_const_float(g, t, -INFINITY), uop_const_float(g, t, INFINITY)}, 2);
  if (t != DT_BOOL) {
    lo = pick(0, 2) && t != DT_INDEX              ? INT64_MIN
         : dtype_info[t].cls == 'u' || pick(0, 1) ? 0
                                                  : -7,
    hi = lo == INT64_MIN ? INT64_MAX : pick(1, 20);
    bool narrow = lo == INT64_MIN && dtype_info[t].size < 8;
    if (narrow)
      lo = dtype_info[t].cls == 'u' ? 0 : -((int64_t)1 << (dtype_info[t].size * 8 - 1)),
      hi = dtype_info[t].cls == 'u' ? ((int64_t)1 << dtype_info[t].size * 8) - 1 : ~lo;
    if (t == DT_U64 && lo == INT64_MIN) lo = 0, hi = -1;
  }
  return uop_new(g, OP_VAR, t, 1, (union uop_arg){.s = name}, 0,
                 (struct uop *[]){uop_const_int(g, t, lo), uop_const_int(g, t, hi)}, 2);
}

static struct uop *random_expr(enum dtype t, int depth) {
  int64_t what = pick(0, 9);
  if (depth <= 0 || what < 4) return pick(0, 4) ? random_leaf(t) : random_const(t);
  enum op op;
  do op = (enum op)pick(OP_CAST, OP_MULACC);
  while (compares(op)
             ? t != DT_BOOL
             : !(takes[op] & class_of(t)) || op == OP_BITCAST || (t == DT_INDEX && (op == OP_CAST || op >= OP_AND)));
  enum dtype s = op == OP_CAST ? random_type(F | I | B) : compares(op) ? random_type(F | I | B) : t;
  struct uop *src[3];
  for (int i = 0; i < op_info[op].arity; i++) src[i] = random_expr(op == OP_WHERE && i == 0 ? DT_BOOL : s, depth - 1);
  return uop_new(g, op, t, 1, (union uop_arg){0}, 0, src, (unsigned)op_info[op].arity);
}

/* ---- instances of a pattern, from the rule's own table ---------------------------------------------------------------------------- */
static struct uop *bound[256]; /* by name */
static bool impossible;        /* a choice made on the way rules the pattern out; try again */

/* A type out of the mask and of the classes. */
static int choose_type(uint32_t mask, unsigned classes) {
  for (int tries = 0; tries < 200; tries++) {
    enum dtype t = random_type(classes);
    if (mask >> t & 1) return t;
  }
  return -1;
}

static const struct rule_term *skip_term(const struct rule_term *t) {
  unsigned n = t->nsrc;
  for (t++; n; n--) t = skip_term(t);
  return t;
}

static bool restricts(const struct rule_term *t) { return t->types != ~0u >> (32 - DT_COUNT); }

static enum op choose_op(const struct rule_term *t) {
  enum op choice[OP_COUNT];
  int n = 0;
  for (enum op o = 0; o < OP_COUNT; o++)
    if ((t->ops[o / 64] >> (o % 64) & 1) && takes[o] && (t->rest || op_info[o].arity == t->nsrc)) choice[n++] = o;
  return n ? choice[pick(0, n - 1)] : OP_COUNT;
}

static struct uop *give_up(void) { return impossible = true, uop_index(g, 0); }

static struct uop *instance(const struct rule_term **at, int want) {
  const struct rule_term *t = (*at)++;
  if (t->name && bound[t->name]) {
    impossible |= want >= 0 && bound[t->name]->dtype != want;
    return bound[t->name];
  }
  if (t->kind != RULE_NODE) {
    int type = want >= 0 ? want : choose_type(t->types, F | I | B);
    if (type < 0 || !(t->types >> type & 1)) return give_up();
    struct uop *u = t->kind == RULE_ANY     ? random_expr((enum dtype)type, (int)pick(0, 2))
                    : t->kind == RULE_CONST ? random_const((enum dtype)type)
                                            : rule_const(g, (enum dtype)type, (int64_t)t->value, t->value);
    return bound[t->name] = u;
  }
  enum op op = choose_op(t);
  if (op == OP_COUNT) return give_up();
  int type = want >= 0 ? want : compares(op) ? DT_BOOL : choose_type(t->types, takes[op]);
  if (type < 0 || !(t->types >> type & 1) ||
      (compares(op) ? type != DT_BOOL : !(takes[op] & class_of((enum dtype)type))))
    return give_up();
  int from = type; /* the sources' type */
  if (compares(op) || op == OP_CAST || op == OP_BITCAST) {
    from = -1;
    const struct rule_term *s = *at;
    for (unsigned i = 0; i < t->nsrc && from < 0; i++, s = skip_term(s))
      if (restricts(s)) from = choose_type(s->types, F | I | B);
    if (from < 0) from = random_type(F | I | B);
  }
  struct uop *src[3] = {0};
  unsigned n = 0;
  bool constants = pick(0, 1);
  for (; (int)n < op_info[op].arity; n++) {
    enum dtype s = op == OP_WHERE && n == 0 ? DT_BOOL : (enum dtype)from;
    src[n] = n < t->nsrc ? instance(at, s) : constants ? random_const(s) : random_expr(s, 1);
    if (impossible) return src[n];
  }
  if (op == OP_BITCAST && dtype_info[src[0]->dtype].size != dtype_info[type].size) return give_up();
  if (n == 2 && op_info[op].commutative && pick(0, 1)) {
    struct uop *first = src[0];
    src[0] = src[1], src[1] = first;
  }
  struct uop *u = uop_new(g, op, (enum dtype)type, 1, (union uop_arg){0}, 0, src, n);
  if (t->name) bound[t->name] = u;
  return u;
}

/* ---- both sides ------------------------------------------------------------------------------------------------------------------- */
static union value random_value(struct uop *leaf) {
  static const double floats[] = {0,   -0.0,  1,     -1,   INFINITY, -INFINITY, NAN,
                                  2.5, -3.75, 1e-30, 1e-7, 70000,    0x1p-24,   0.333};
  enum dtype t = leaf->dtype;
  if (dtype_is_float(t)) return (union value){.f = eval_round(t, floats[pick(0, 13)])};
  int64_t lo = uop_min(leaf), hi = uop_max(leaf);
  if (lo == INT64_MIN && hi == INT64_MAX) return (union value){.i = pick(0, 1) ? (int64_t)(rng() * 7919) : pick(-3, 3)};
  switch (pick(0, 3)) {
  case 0: return (union value){.i = lo};
  case 1: return (union value){.i = hi};
  default: return (union value){.i = lo + (int64_t)(rng() % ((uint64_t)hi - (uint64_t)lo + 1))};
  }
}

/* False, and why, where the sides differ. */
static bool same_sides(const struct ruleset *set, unsigned rule, struct uop *left, struct uop *right, char *why,
                       size_t cap) {
  char a[1000], b[1000];
  struct uop *both[] = {left, right};
  size_t n;
  struct uop **order = uop_toposort(both, 2, &n);
  struct env e = {0};
  for (size_t i = 0; i < n; i++)
    if (order[i]->op == OP_VAR || order[i]->op == OP_RANGE) {
      assert_true(e.n < 64);
      e.leaf[e.n++] = order[i];
    }
  free(order);
  for (int k = 0; k < 12; k++) {
    for (unsigned i = 0; i < e.n; i++) e.value[i] = random_value(e.leaf[i]);
    e.undefined = e.overflow = false;
    union value x = eval(&e, left), y = {0};
    if (e.undefined || e.overflow) continue;
    if (!dtype_is_float(left->dtype) && left->dtype != DT_U64)
      assert_true(x.i >= uop_min(left) && x.i <= uop_max(left));
    if (left->dtype == right->dtype) {
      y = eval(&e, right);
      if (e.overflow) continue; /* numbers at the ends of 64 bits may overflow on the other way to the same sum */
      if (!e.undefined && eval_same(left->dtype, x, y)) continue;
    }
    snprintf(why, cap, "%s:%u %s\n  %s %s = %lld (%g)\n  %s %s = %lld (%g)", set->file, set->rule[rule].line,
             set->rule[rule].text, dtype_info[left->dtype].name, uop_expr(left, a, sizeof a), (long long)x.i, x.f,
             dtype_info[right->dtype].name, uop_expr(right, b, sizeof b), (long long)y.i, y.f);
    return false;
  }
  return true;
}

/* How often the rule applied out of instances of its pattern; -1, and why, once the sides differ. */
static int check_rule(const struct ruleset *set, unsigned r, char *why, size_t cap) {
  int applied = 0;
  for (int tries = 0; tries < 100000 && applied < INSTANCES; tries++) {
    if (tries % 500 == 0) {
      graph_free(g);
      g = graph_new();
    }
    const struct rule_term *t = set->rule[r].pattern;
    memset(bound, 0, sizeof bound);
    impossible = false;
    struct uop *u = instance(&t, -1), *v = impossible ? NULL : set->rule[r].apply(g, NULL, u);
    if (!v) continue;
    applied++;
    if (!same_sides(set, r, u, v, why, cap)) return -1;
  }
  return applied;
}

/* Rules over other ops than elementwise ones have no value here. */
static bool has_value(const struct rule_term *t) {
  if (t->kind == RULE_NODE && choose_op(t) == OP_COUNT) return false;
  unsigned n = t->nsrc;
  for (t++; n; n--, t = skip_term(t))
    if (!has_value(t)) return false;
  return true;
}

static void check_set(const struct ruleset *set) {
  char why[3000];
  unsigned checked = 0;
  for (unsigned r = 0; r < set->nrules; r++) {
    if (!has_value(set->rule[r].pattern)) continue;
    int n = check_rule(set, r, why, sizeof why);
    if (n < 0) fail_msg("%s", why);
    if (!n) fail_msg("%s:%u never applied: %s", set->file, set->rule[r].line, set->rule[r].text);
    checked++;
  }
  assert_true(checked > 0);
  graph_free(g);
  g = NULL;
}

static void test_fold(void **state) { check_set(&rules_fold); }
static void test_algebra(void **state) { check_set(&rules_algebra); }
static void test_symbolic(void **state) { check_set(&rules_symbolic); }

/* ---- wrong rules are caught -------------------------------------------------------------------------------------------------------- */
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

/* x + 0 loses -0; x * 0 is not 0 for NaN and infinity, nor is x - x; max the wrong way round; (x * c) / c overflows; another type. */
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
