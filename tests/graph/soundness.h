/* Checks rules one by one: makes random nodes from a rule's own pattern and, where the rule applies, evaluates both
 * sides over corner and random values. A rule that never applies fails, too. */
#ifndef TESTS_GRAPH_SOUNDNESS_H
#define TESTS_GRAPH_SOUNDNESS_H
#include "eval.h"
#include "graph/rules.h"

#ifndef INSTANCES /* instances of each rule */
#define INSTANCES   400
#define EXPRESSIONS 30000
#endif

enum { F = 1, I = 2, B = 4 };
static const uint8_t takes[OP_COUNT] = {
    [OP_NEG] = F | I | B,
    [OP_RECIP] = F,
    [OP_SQRT] = F,
    [OP_EXP2] = F,
    [OP_LOG2] = F,
    [OP_SIN] = F,
    [OP_TRUNC] = F,
    [OP_ADD] = F | I | B,
    [OP_SUB] = F | I | B,
    [OP_MUL] = F | I | B,
    [OP_FDIV] = F,
    [OP_IDIV] = I,
    [OP_MOD] = I,
    [OP_MAX] = F | I | B,
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
/* ctx of the rules, and the ctx to try, if it is not NULL, where a rule does not apply with the first one. */
static void *rule_ctx, *rule_ctx_else;

static enum dtype random_type(unsigned classes) {
  enum dtype t;
  do t = (enum dtype)pick(DT_BOOL, DT_INDEX);
  while (!(class_of(t) & classes));
  return (classes & I) && !pick(0, 2) ? DT_INDEX : t;
}

/* Indices stay far from the limits of 64 bits, because index arithmetic is assumed not to overflow in any order of a
 * sum. */
static struct uop *random_const(enum dtype t) {
  static const double floats[] = {0,        -0.0,      1,   -1,   2,     0.5,  3,   0.25,
                                  INFINITY, -INFINITY, NAN, 1e-7, 65504, 1e30, 0.1, M_LOG2E};
  static const int64_t ints[] = {0,   1,   -1,  2,   3,     4,         5,         6,         7,
                                 8,   12,  16,  24,  64,    -2,        -3,        -4,        -8,
                                 100, 127, 128, 255, 32767, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
  if (dtype_is_float(t)) return uop_const_float(g, t, floats[pick(0, 15)]);
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

/* ---- instances of a pattern, from the rule's own table --------------------------------------- */
static struct uop *bound[256]; /* by name */
static bool impossible;        /* an earlier choice cannot satisfy the pattern; try again */

/* Chooses a type in the mask and in the classes. */
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
  int from = type; /* type of the sources */
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

/* ---- both sides ------------------------------------------------------------------------------ */
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

/* The allowed difference of approximate results in units in the last place; 0 for exact ones. */
static double allowed(struct env *e, struct uop *u, bool *skip) {
  if (u->op != OP_EXP2 && u->op != OP_LOG2 && u->op != OP_SIN) return 0;
  if (u->op == OP_SIN && fabs(eval(e, u->src[0]).f) > 0x1p40) *skip = true; /* reduction is exact up to here */
  /* a product may be rounded or not: one ulp of x changes 2^x by x ln 2 ulps */
  bool product = u->op == OP_EXP2 && u->src[0]->op == OP_MUL;
  return 4 + (product ? fabs(eval(e, u->src[0]).f) : 0);
}
static bool close_enough(enum dtype t, double a, double b, double ulps) {
  static const struct {
    int digits, least;
  } f[DT_COUNT] = {[DT_F16] = {10, -14},   [DT_BF16] = {7, -126}, [DT_F32] = {23, -126},
                   [DT_F64] = {52, -1022}, [DT_F8E4M3] = {3, -6}, [DT_F8E5M2] = {2, -14}};
  int exponent;
  frexp(a, &exponent);
  return fabs(a - b) <= ulps * ldexp(1, (exponent - 1 < f[t].least ? f[t].least : exponent - 1) - f[t].digits);
}

/* Returns false, with a message in why, if the sides differ. */
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
      e.lowered = rule_ctx; /* for rules for a target: undefined results must not be visible */
      y = eval(&e, right);
      e.lowered = false;
      if (e.overflow) continue; /* near the limits of 64 bits another order of the same sum may overflow */
      if (!e.undefined && eval_same(left->dtype, x, y)) continue;
      bool skip = false;
      double ulps = allowed(&e, left, &skip);
      if (skip || (ulps > 0 && close_enough(left->dtype, x.f, y.f, ulps))) continue;
      if (left->op == OP_MAX && dtype_is_float(left->dtype) && x.f == 0 && y.f == 0)
        continue; /* either 0 may be the maximum */
    }
    snprintf(why, cap, "%s:%u %s\n  %s %s = %lld (%g)\n  %s %s = %lld (%g)", set->file, set->rule[rule].line,
             set->rule[rule].text, dtype_info[left->dtype].name, uop_expr(left, a, sizeof a), (long long)x.i, x.f,
             dtype_info[right->dtype].name, uop_expr(right, b, sizeof b), (long long)y.i, y.f);
    return false;
  }
  return true;
}

/* Returns how many instances of its pattern the rule applied to, or -1, with a message in why, if the sides differ. */
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
    struct uop *u = instance(&t, -1), *v = impossible ? NULL : set->rule[r].apply(g, rule_ctx, u);
    if (!v && rule_ctx_else && !impossible) v = set->rule[r].apply(g, rule_ctx_else, u);
    if (!v) continue;
    applied++;
    if (!same_sides(set, r, u, v, why, cap)) return -1;
  }
  return applied;
}

/* Whether a pattern can be evaluated: it has only elementwise ops. */
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
#endif
