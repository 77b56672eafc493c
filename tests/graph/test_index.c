/* Index algebra compared with brute force: thousands of random expressions over small ranges, each evaluated at every
 * point before and after simplification, and the forms that the scheduler relies on. */
#include "eval.h"
#include "graph/index.h"
#include "graph/rules.h"

#ifndef EXPRESSIONS
#define EXPRESSIONS 12000
#endif

static struct graph *g;
static struct uop *range[4];
static int64_t size[4];
static unsigned nranges;

static struct uop *two(enum op op, struct uop *a, struct uop *b) { return uop_binary(g, op, a, b); }
static struct uop *num(int64_t v) { return uop_index(g, v); }
static struct uop *random_index(int depth) {
  if (depth == 0 || !pick(0, 5)) return pick(0, 4) ? range[pick(0, nranges - 1)] : num(pick(-3, 12));
  struct uop *a = random_index(depth - 1);
  switch (pick(0, 8)) {
  case 0:
  case 1: return two(OP_ADD, a, random_index(depth - 1));
  case 2: return two(OP_SUB, a, random_index(depth - 1));
  case 3:
  case 4: return two(OP_MUL, a, num(pick(0, 3) ? pick(1, 12) : pick(-4, 4)));
  case 5: return two(OP_IDIV, a, num(pick(1, 12)));
  case 6: return two(OP_MOD, a, num(pick(1, 12)));
  case 7: return pick(0, 1) ? two(OP_MAX, a, random_index(depth - 1)) : two(OP_ADD, a, num(pick(-6, 6)));
  default: return uop_where(g, two(OP_CMPLT, a, num(pick(-2, 20))), a, random_index(depth - 1));
  }
}
static struct uop *random_condition(void) {
  struct uop *c = two(OP_CMPLT, random_index(2), num(pick(-2, 30)));
  for (int64_t n = pick(0, 2); n > 0; n--)
    c = two(OP_AND, c,
            pick(0, 1) ? two(OP_CMPLT, num(pick(-2, 12)), random_index(2))
                       : two(OP_CMPLT, random_index(2), num(pick(-2, 12))));
  if (!pick(0, 3)) c = two(OP_XOR, c, uop_const_int(g, DT_BOOL, 1));
  return c;
}

static void compare_everywhere(struct uop *u, struct uop *v, struct uop *when) {
  char a[2000], b[2000], c[500] = "";
  struct env e = {.n = nranges};
  for (unsigned i = 0; i < nranges; i++) e.leaf[i] = range[i];
  int64_t points = 1;
  for (unsigned i = 0; i < nranges; i++) points *= size[i];
  for (int64_t p = 0; p < points; p++) {
    int64_t rest = p;
    for (unsigned i = 0; i < nranges; i++) e.value[i].i = rest % size[i], rest /= size[i];
    if (when && !eval(&e, when).i) continue;
    int64_t x = eval(&e, u).i, y = eval(&e, v).i;
    assert_false(e.undefined || e.overflow);
    if (x < uop_min(u) || x > uop_max(u))
      fail_msg("%s = %lld, bounds %lld..%lld", uop_expr(u, a, sizeof a), (long long)x, (long long)uop_min(u),
               (long long)uop_max(u));
    if (x != y)
      fail_msg("at %lld %lld %lld %lld %s\n%s = %lld\n%s = %lld", (long long)e.value[0].i, (long long)e.value[1].i,
               (long long)e.value[2].i, (long long)e.value[3].i, when ? uop_expr(when, c, sizeof c) : "",
               uop_expr(u, a, sizeof a), (long long)x, uop_expr(v, b, sizeof b), (long long)y);
  }
}

static void fresh(unsigned n) {
  graph_free(g);
  g = graph_new();
  nranges = n;
  for (unsigned i = 0; i < n; i++) size[i] = pick(1, 7), range[i] = uop_range(g, num(size[i]), i, AXIS_LOOP);
}

static void test_brute_force(void **state) {
  for (int n = 0; n < EXPRESSIONS; n++) {
    if (n % 8 == 0) fresh((unsigned)pick(1, 3));
    struct uop *u = n & 1 ? random_index((int)pick(2, 5)) : random_condition();
    struct uop *v = graph_rewrite(g, u, rules_simplify, NULL);
    assert_null(graph_error(g));
    compare_everywhere(u, v, NULL);
    assert_ptr_equal(v, graph_rewrite(g, v, rules_simplify, NULL)); /* a fixed point */
  }
}

static void test_under_condition(void **state) {
  int narrowed = 0;
  for (int n = 0; n < EXPRESSIONS / 2; n++) {
    if (n % 8 == 0) fresh((unsigned)pick(1, 3));
    struct simplifier *s = simplifier_new(g);
    struct uop *when = simplify(s, random_condition()), *u = simplify(s, random_index((int)pick(2, 4)));
    struct uop *v = simplify_under(s, u, when);
    compare_everywhere(u, v, when);
    narrowed += u != v;
    simplifier_free(s);
  }
  assert_true(narrowed > 50);
}

/* Where a number is a multiple of a divisor, or has another known remainder, multiples of its quotient are exact. */
static void test_known_remainder(void **state) {
  char text[200];
  graph_free(g);
  g = graph_new();
  struct simplifier *s = simplifier_new(g);
  struct uop *i = uop_range(g, num(50), 0, AXIS_LOOP), *x = two(OP_ADD, i, num(3));
  struct uop *whole = two(OP_CMPLT, two(OP_MOD, x, num(4)), num(1));
  struct uop *last = two(OP_CMPLT, num(2), two(OP_MOD, x, num(4)));
  struct uop *u = simplify(s, two(OP_SUB, two(OP_MUL, two(OP_IDIV, x, num(4)), num(8)), i));
  nranges = 1, range[0] = i, size[0] = 50;
  struct uop *v = simplify_under(s, u, simplify(s, whole)), *w = simplify_under(s, u, simplify(s, last));
  compare_everywhere(u, v, whole);
  compare_everywhere(u, w, last);
  assert_string_equal(uop_expr(v, text, sizeof text), "(i0+6)");
  assert_string_equal(uop_expr(w, text, sizeof text), "i0");
  simplifier_free(s);
}

static void expect(struct uop *u, const char *text) {
  char buf[500];
  assert_string_equal(uop_expr(graph_rewrite(g, u, rules_simplify, NULL), buf, sizeof buf), text);
}

static void test_forms(void **state) {
  graph_free(g);
  g = graph_new();
  struct uop *i = uop_range(g, num(4), 0, AXIS_LOOP), *j = uop_range(g, num(8), 1, AXIS_LOOP),
             *k = uop_range(g, num(100), 2, AXIS_LOOP);
  struct uop *flat = two(OP_ADD, two(OP_MUL, i, num(8)), j);
  expect(two(OP_IDIV, flat, num(8)), "i0");
  expect(two(OP_MOD, flat, num(8)), "i1");
  expect(two(OP_IDIV, flat, num(4)), "((i1//4)+(i0*2))");
  expect(two(OP_MOD, flat, num(4)), "(i1%4)");
  expect(two(OP_MOD, flat, num(16)), "(((i0%2)*8)+i1)");
  expect(two(OP_IDIV, flat, num(16)), "(i0//2)");
  expect(two(OP_IDIV, two(OP_IDIV, k, num(3)), num(5)), "(i2//15)");
  expect(two(OP_MOD, two(OP_MOD, k, num(30)), num(5)), "(i2%5)");
  expect(two(OP_ADD, two(OP_MUL, two(OP_IDIV, k, num(7)), num(7)), two(OP_MOD, k, num(7))), "i2");
  expect(two(OP_ADD, two(OP_MUL, two(OP_MOD, two(OP_IDIV, k, num(5)), num(4)), num(5)), two(OP_MOD, k, num(5))),
         "(i2%20)");
  /* part i0 of a matrix of rows of 7, by its elements: the remainder does not need all of 100 * i0 */
  struct uop *part = two(OP_ADD, two(OP_MUL, i, num(100)), k);
  expect(two(OP_MOD, part, num(7)), "(((i0*2)+i2)%7)");
  expect(two(OP_ADD, two(OP_MUL, two(OP_IDIV, part, num(7)), num(7)), two(OP_MOD, part, num(7))), "((i0*100)+i2)");
  expect(two(OP_SUB, two(OP_ADD, i, j), j), "i0");
  expect(two(OP_CMPLT, flat, num(32)), "true");
  expect(two(OP_CMPLT, flat, num(16)), "(i0<2)");
  expect(two(OP_CMPLT, num(15), flat), "(1<i0)");
  expect(two(OP_CMPLT, two(OP_MUL, i, num(3)), num(7)), "(i0<3)");
  expect(two(OP_CMPLT, two(OP_SUB, num(3), i), num(2)), "(1<i0)");
  expect(two(OP_AND, two(OP_CMPLT, k, num(9)), two(OP_CMPLT, k, num(5))), "(i2<5)");
  expect(two(OP_AND, two(OP_CMPLT, k, num(5)), two(OP_CMPLT, num(4), k)), "false");
  expect(two(OP_MAX, i, two(OP_ADD, j, num(3))), "(i1+3)");
  expect(two(OP_MOD, two(OP_ADD, k, num(5)), num(1000)), "(i2+5)");
  /* nothing may overflow: these remain unchanged or get wider constants, never wrong ones */
  struct uop *huge = two(OP_MUL, k, num(INT64_MAX / 50));
  assert_true(uop_max(huge) == INT64_MAX);
  expect(two(OP_MUL, two(OP_MUL, k, num(INT64_MAX / 2)), num(4)), "((i2*4611686018427387903)*4)");
  graph_free(g);
  g = NULL;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_brute_force),
                                     cmocka_unit_test(test_under_condition), cmocka_unit_test(test_known_remainder)};
  int r = cmocka_run_group_tests(tests, NULL, NULL);
  graph_free(g);
  return r;
}
