/* Every rule of the fold and symbolic sets, one by one: nodes are made at random from the rule's own pattern, and where the rule applies both
 * sides are evaluated over corner and random values. A rule that never applies fails too. */
#include "eval.h"
#include <ctype.h>
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

/* ---- instances of a pattern, read from the rule's text ---------------------------------------------------------------------------- */
static struct {
  char name[16];
  struct uop *u;
} bound[32];
static unsigned nbound;
static bool impossible; /* a choice made on the way rules the pattern out; try again */

static bool word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }
static void word(const char **p, char *to) {
  unsigned n = 0;
  while (word_char(**p) || **p == '|' || **p == '-' || **p == '.') {
    if (n < 15) to[n++] = **p;
    ++*p;
  }
  to[n] = 0;
}

/* A type that the alternatives after ':' allow, out of the classes. */
static int choose_type(const char *names, unsigned classes) {
  for (int tries = 0; tries < 200; tries++) {
    enum dtype t = random_type(classes);
    char copy[16], *save = NULL;
    snprintf(copy, sizeof copy, "%s", names);
    for (char *n = strtok_r(copy, "|", &save); n; n = strtok_r(NULL, "|", &save))
      if (!strcmp(n, dtype_info[t].name) || (!strcmp(n, "int") && dtype_is_int(t)) ||
          (!strcmp(n, "float") && dtype_is_float(t)) || (!strcmp(n, "sint") && dtype_info[t].cls == 'i') ||
          (!strcmp(n, "uint") && dtype_info[t].cls == 'u'))
        return t;
  }
  return -1;
}

/* The type named right behind a term that starts at p, or "". */
static void type_ahead(const char *p, char *type) {
  *type = 0;
  if (*p == '#') p++;
  if (*p == '(') {
    p++;
    if (*p == '{')
      p = strchr(p, '}') + 1;
    else
      while (word_char(*p)) p++;
  } else
    while (word_char(*p) || *p == '-' || *p == '.' || *p == '@') p++;
  if (*p == ':') p++, word(&p, type);
}

static const char *skip_term(const char *p) {
  int depth = 0;
  for (; *p; p++) {
    if (*p == '(' || *p == '{') depth++;
    if ((*p == ')' || *p == '}') && depth-- <= 1) return *p && depth < 0 ? p : p + 1;
    if (*p == ' ' && depth == 0) return p;
  }
  return p;
}

static struct uop *instance(const char **p, int want) {
  char name[16], type[16];
  if (**p == '#' && (isdigit((unsigned char)(*p)[1]) || (*p)[1] == '-')) {
    ++*p;
    word(p, name);
    if (want < 0) want = random_type(F | I | B);
    return dtype_is_float((enum dtype)want) ? uop_const_float(g, (enum dtype)want, strtod(name, NULL))
                                            : uop_const_int(g, (enum dtype)want, strtoll(name, NULL, 10));
  }
  bool constant = **p == '#';
  *p += constant;
  if (**p != '(') {
    word(p, name);
    *type = 0;
    if (**p == ':') ++*p, word(p, type);
    if (**p == '@') { /* a named node */
      ++*p;
      struct uop *u = instance(p, want);
      snprintf(bound[nbound].name, sizeof bound->name, "%s", name), bound[nbound++].u = u;
      return u;
    }
    for (unsigned i = 0; i < nbound; i++)
      if (!strcmp(bound[i].name, name)) {
        impossible |= want >= 0 && bound[i].u->dtype != want;
        return bound[i].u;
      }
    int t = want >= 0 ? want : *type ? choose_type(type, F | I | B) : (int)random_type(F | I | B);
    if (t < 0) return impossible = true, uop_index(g, 0);
    struct uop *u = constant ? random_const((enum dtype)t) : random_expr((enum dtype)t, (int)pick(0, 2));
    if (strcmp(name, "_")) snprintf(bound[nbound].name, sizeof bound->name, "%s", name), bound[nbound++].u = u;
    return u;
  }
  ++*p;
  enum op op = OP_COUNT;
  if (**p == '{') {
    enum op choice[8];
    int n = 0;
    for (++*p; **p != '}';) {
      word(p, name);
      for (enum op o = 0; o < OP_COUNT; o++)
        if (!strcmp(op_info[o].name, name)) choice[n++] = o;
      while (**p == ' ') ++*p;
    }
    ++*p;
    op = choice[pick(0, n - 1)];
  } else {
    word(p, name);
    static const enum op commutative[] = {OP_ADD, OP_MUL, OP_MAX, OP_CMPEQ, OP_CMPNE, OP_AND, OP_OR, OP_XOR};
    if (!strcmp(name, "ALU"))
      op = (enum op)pick(OP_CAST, OP_MULACC);
    else if (!strcmp(name, "COMMUTATIVE"))
      op = commutative[pick(0, 7)];
    else
      for (enum op o = 0; o < OP_COUNT; o++)
        if (!strcmp(op_info[o].name, name)) op = o;
  }
  assert_true(op < OP_COUNT);
  if (!takes[op]) return impossible = true, uop_index(g, 0);
  *type = 0;
  if (**p == ':') ++*p, word(p, type);
  int t = want;
  if (t < 0) t = compares(op) ? DT_BOOL : *type ? choose_type(type, takes[op]) : (int)random_type(takes[op]);
  if (t < 0 || (compares(op) ? t != DT_BOOL : !(takes[op] & class_of((enum dtype)t)))) impossible = true, t = DT_INDEX;
  while (**p == ' ') ++*p;
  struct uop *src[3];
  unsigned n = 0;
  if (!strncmp(*p, "...", 3)) {
    *p += 3;
    enum dtype s = compares(op) || op == OP_CAST || op == OP_BITCAST ? random_type(F | I | B) : (enum dtype)t;
    bool constants = pick(0, 1), first = pick(0, 1);
    for (; (int)n < op_info[op].arity; n++)
      src[n] = constants || (first && !n) ? random_const(op == OP_WHERE && !n ? DT_BOOL : s)
                                          : random_expr(op == OP_WHERE && !n ? DT_BOOL : s, 1);
  } else {
    int s = t; /* the sources' type */
    if (compares(op) || op == OP_CAST || op == OP_BITCAST) {
      s = -1;
      for (const char *q = *p; *q != ')' && s < 0;) {
        char ahead[16];
        type_ahead(q, ahead);
        if (*ahead) s = choose_type(ahead, F | I | B);
        q = skip_term(q);
        while (*q == ' ') q++;
      }
      if (s < 0) s = random_type(F | I | B);
    }
    while (**p != ')') {
      assert_true(n < 3);
      src[n] = instance(p, op == OP_WHERE && n == 0 ? DT_BOOL : s);
      n++;
      while (**p == ' ') ++*p;
    }
  }
  ++*p;
  if ((int)n != op_info[op].arity) impossible = true;
  if (op == OP_BITCAST && n && dtype_info[src[0]->dtype].size != dtype_info[t].size) impossible = true;
  if (impossible) return uop_index(g, 0);
  if (n == 2 && op_info[op].commutative && pick(0, 1)) {
    struct uop *first = src[0];
    src[0] = src[1], src[1] = first;
  }
  return uop_new(g, op, (enum dtype)t, 1, (union uop_arg){0}, 0, src, n);
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

static void check_sides(const struct ruleset *set, unsigned rule, struct uop *left, struct uop *right) {
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
  assert_int_equal(left->dtype, right->dtype);
  for (int k = 0; k < 12; k++) {
    for (unsigned i = 0; i < e.n; i++) e.value[i] = random_value(e.leaf[i]);
    e.undefined = e.overflow = false;
    union value x = eval(&e, left);
    if (e.undefined || e.overflow) continue;
    if (!dtype_is_float(left->dtype) && left->dtype != DT_U64)
      assert_true(x.i >= uop_min(left) && x.i <= uop_max(left));
    union value y = eval(&e, right);
    if (e.overflow) continue; /* numbers at the ends of 64 bits may overflow on the other way to the same sum */
    if (!e.undefined && eval_same(left->dtype, x, y)) continue;
    fail_msg("%s:%u %s\n  %s = %lld\n  %s = %lld", set->file, set->rule[rule].line, set->rule[rule].text,
             uop_expr(left, a, sizeof a), (long long)x.i, uop_expr(right, b, sizeof b), (long long)y.i);
  }
}

static void check_set(const struct ruleset *set) {
  unsigned never = 0;
  for (unsigned r = 0; r < set->nrules; r++) {
    unsigned applied = 0;
    for (int tries = 0; tries < 100000 && applied < INSTANCES; tries++) {
      if (tries % 500 == 0) {
        graph_free(g);
        g = graph_new();
      }
      const char *p = set->rule[r].text;
      nbound = 0, impossible = false;
      struct uop *u = instance(&p, -1);
      if (impossible) continue;
      bool tried = false;
      for (const uint16_t *i = set->by_op[u->op]; i && *i != UINT16_MAX; i++) tried |= *i == r;
      struct uop *v = tried ? set->rule[r].apply(g, NULL, u) : NULL;
      if (!v) continue;
      applied++;
      check_sides(set, r, u, v);
    }
    if (!applied) {
      print_message("%s:%u never applied: %s\n", set->file, set->rule[r].line, set->rule[r].text);
      never++;
    }
  }
  /* rules over KERNEL ops have no value here */
  unsigned allowed = 0;
  for (unsigned r = 0; r < set->nrules; r++) allowed += strstr(set->rule[r].text, "GEP") != NULL;
  assert_int_equal(never, allowed);
  graph_free(g);
  g = NULL;
}

static void test_fold(void **state) { check_set(&rules_fold); }
static void test_symbolic(void **state) { check_set(&rules_symbolic); }

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
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_fold), cmocka_unit_test(test_symbolic),
                                     cmocka_unit_test(test_simplify)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
