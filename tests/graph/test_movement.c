/* The movement rules: an example of each, and random tensor graphs whose elements, computed by the tensor interpreter,
 * must not change. */
#include "graph/rules.h"
#include "tensor.h"

static struct uop *simple(struct uop *u) { return graph_rewrite(g, u, rules_tensors, NULL); }

static void becomes(struct uop *from, struct uop *to) {
  assert_true(shape_equal(from->shape, to->shape));
  struct uop *got = simple(from);
  if (got == to) return;
  struct uop *both[] = {got, to};
  uop_print(stderr, both, 2);
  fail_msg("the first is not the second");
}

static void test_each(void **state) {
  struct uop *x = TENSOR(4, 6), *y = TENSOR(4, 1), *three = num(3), *flat = x->src[0];
  /* nothing moves */
  becomes(RESHAPE(x, 4, 6), x);
  becomes(EXPAND(x, 4, 6), x);
  becomes(permute(x, 0x10), x);
  becomes(flip(x, 0), x);
  becomes(PAD(x, 0, 0, 0, 0), x);
  becomes(SHRINK(x, 0, 4, 0, 6), x);
  becomes(shear(x, 0, 1, 0, 6), x);
  becomes(shear(y, 1, 0, 3, 4), y);
  becomes(contiguous(contiguous(x)), contiguous(x));
  /* two of a kind */
  becomes(RESHAPE(RESHAPE(x, 24), 2, 12), RESHAPE(flat, 2, 12));
  becomes(RESHAPE(RESHAPE(x, 2, 12), 24), flat);
  becomes(EXPAND(EXPAND(RESHAPE(y, 4, 1, 1), 4, 1, 7), 4, 5, 7), EXPAND(RESHAPE(y->src[0], 4, 1, 1), 4, 5, 7));
  struct uop *z = TENSOR(2, 3, 4); /* axes 1 2 0 applied twice are 2 0 1 */
  becomes(permute(permute(z, 0x021), 0x021), permute(z, 0x102));
  becomes(permute(permute(x, 0x01), 0x01), x);
  becomes(flip(flip(x, 1), 3), flip(x, 2));
  becomes(flip(flip(x, 1), 1), x);
  becomes(PAD(PAD(x, 1, 0, 0, 2), 1, 1, 3, 0), PAD(x, 2, 1, 3, 2));
  becomes(SHRINK(SHRINK(x, 1, 4, 0, 5), 1, 3, 2, 3), SHRINK(x, 2, 4, 2, 3));
  /* slices of padding and of repeated elements */
  becomes(SHRINK(PAD(x, 2, 2, 0, 0), 2, 6, 0, 6), x);
  becomes(SHRINK(PAD(x, 2, 2, 3, 0), 1, 5, 4, 9), PAD(SHRINK(x, 0, 3, 1, 6), 1, 0, 0, 0));
  becomes(SHRINK(PAD(x, 2, 2, 0, 0), 0, 2, 0, 6), EXPAND(RESHAPE(num(0), 1, 1), 2, 6));
  becomes(SHRINK(EXPAND(y, 4, 9), 1, 3, 2, 7), EXPAND(SHRINK(y, 1, 3, 0, 1), 2, 5));
  becomes(SHRINK(permute(x, 0x01), 1, 5, 0, 2), permute(SHRINK(x, 0, 2, 1, 5), 0x01));
  /* a slice of concatenated tensors that is inside one of them */
  struct uop *place = EXPAND(RESHAPE(iota(DT_I32, 6), 1, 6), 4, 6), *last = uop_unary(g, OP_NEG, x), *chosen = last;
  for (int end = 4; end; end -= 2)
    chosen = uop_where(g, uop_binary(g, OP_CMPLT, place, uop_const_int(g, DT_I32, end)), end == 4 ? x : num(3), chosen);
  becomes(SHRINK(chosen, 0, 4, 2, 4), SHRINK(x, 0, 4, 2, 4));
  becomes(SHRINK(chosen, 1, 2, 4, 6), SHRINK(last, 1, 2, 4, 6));
  becomes(SHRINK(chosen, 1, 2, 0, 2), EXPAND(RESHAPE(num(3), 1, 1), 1, 2));
  becomes(SHRINK(chosen, 0, 4, 1, 4), SHRINK(chosen, 0, 4, 1, 4));
  /* axes of size 1 */
  becomes(permute(y, 0x01), RESHAPE(y->src[0], 1, 4));
  becomes(flip(y, 3), flip(y, 1));
  becomes(reduce(OP_ADD, y, 2), y);
  becomes(reduce(OP_ADD, y, 3), reduce(OP_ADD, y, 1));
  /* numbers */
  struct uop *threes = EXPAND(RESHAPE(three, 1, 1), 4, 6);
  becomes(mul(x, threes), mul(x, three));
  becomes(mul(threes, x), mul(x, three));
  becomes(mul(x, EXPAND(RESHAPE(num(1), 1, 1), 4, 6)), x);
  becomes(mul(threes, threes), EXPAND(RESHAPE(num(9), 1, 1), 4, 6));
  becomes(permute(flip(threes, 3), 0x01), EXPAND(RESHAPE(three, 1, 1), 6, 4));
  becomes(RESHAPE(threes, 2, 12), EXPAND(RESHAPE(three, 1, 1), 2, 12));
  becomes(PAD(sub(threes, threes), 1, 1, 0, 0), EXPAND(RESHAPE(num(0), 1, 1), 6, 6));
  assert_int_equal(simple(PAD(threes, 1, 1, 0, 0))->op, OP_PAD);
  becomes(reduce(OP_MAX, threes, 3), RESHAPE(three, 1, 1));
  becomes(reduce(OP_ADD, EXPAND(RESHAPE(uop_const_int(g, DT_I32, 5), 1, 1), 4, 6), 2),
          EXPAND(RESHAPE(uop_const_int(g, DT_I32, 30), 1, 1), 4, 1));
  assert_int_equal(simple(reduce(OP_ADD, threes, 3))->op, OP_REDUCE_AXIS); /* a float sum rounds at each step */
  /* a folded tensor keeps its shape */
  struct uop *whole = tensor(DT_I32, 2, (int64_t[]){2, 3});
  becomes(mul(whole, uop_const_int(g, DT_I32, 0)), EXPAND(RESHAPE(uop_const_int(g, DT_I32, 0), 1, 1), 2, 3));
}

static void test_symbolic_sizes(void **state) {
  struct uop *n = uop_var(g, "n", 1, 6), *x = TENSOR(6, 4), *zero = uop_index(g, 0), *four = uop_index(g, 4);
  struct uop *cut[] = {x, zero, n, zero, four};
  struct uop *s = uop_new(g, OP_SHRINK, DT_F32, 1, (union uop_arg){0}, 0, cut, 5);
  struct uop *padded = PAD(s, 0, 0, 2, 1);
  struct uop *middle[] = {padded, zero, n, uop_index(g, 2), uop_index(g, 6)};
  becomes(uop_new(g, OP_SHRINK, DT_F32, 1, (union uop_arg){0}, 0, middle, 5), s);
  struct uop *dims[] = {s, n, uop_index(g, 2), uop_index(g, 2)};
  struct uop *split = uop_new(g, OP_RESHAPE, DT_F32, 1, (union uop_arg){0}, 0, dims, 4);
  struct uop *back[] = {split, n, four};
  becomes(uop_new(g, OP_RESHAPE, DT_F32, 1, (union uop_arg){0}, 0, back, 3), s);
}

/* ---- random graphs ---- */
static struct uop *random_movement(struct uop *x) {
  unsigned rank = x->shape->rank;
  int64_t v[2 * MAX_RANK], n = shape_numel(x->shape);
  switch (pick(0, 6)) {
  case 0: {
    unsigned r = 0;
    for (int64_t rest = n; rest > 1 || !r; r++) {
      do v[r] = pick(1, 6);
      while (rest % v[r]);
      if (r == 4) v[r] = rest;
      rest /= v[r];
    }
    return movement(OP_RESHAPE, x, r, v);
  }
  case 1: {
    int64_t order = 0;
    unsigned left[MAX_RANK];
    for (unsigned i = 0; i < rank; i++) left[i] = i;
    for (unsigned i = 0; i < rank; i++) {
      unsigned k = (unsigned)pick(i, rank - 1), t = left[i];
      left[i] = left[k], left[k] = t;
      order |= (int64_t)left[i] << (4 * i);
    }
    return permute(x, order);
  }
  case 2:
    for (unsigned i = 0; i < rank; i++) v[i] = dim_of(x, i) == 1 && n < 100 ? pick(1, 4) : dim_of(x, i);
    return movement(OP_EXPAND, x, rank, v);
  case 3:
    for (unsigned i = 0; i < 2 * rank; i++) v[i] = n < 200 && !pick(0, 2) ? pick(0, 2) : 0;
    return movement(OP_PAD, x, 2 * rank, v);
  case 4:
    for (unsigned i = 0; i < rank; i++) {
      v[2 * i] = pick(0, dim_of(x, i) - 1);
      v[2 * i + 1] = pick(v[2 * i] + 1, dim_of(x, i));
      if (pick(0, 1)) v[2 * i] = 0, v[2 * i + 1] = dim_of(x, i);
    }
    return movement(OP_SHRINK, x, 2 * rank, v);
  case 5: return flip(x, pick(0, (1 << rank) - 1));
  default: {
    unsigned a = (unsigned)pick(0, rank - 1), b = (unsigned)pick(0, rank - 1);
    return a == b ? x : shear(x, a, b, pick(-1, 1), pick(0, 1) ? dim_of(x, b) : pick(1, 5));
  }
  }
}

static struct uop *random_graph(void) {
  enum dtype t = pick(0, 1) ? DT_F32 : DT_I32;
  struct uop *pool[12];
  unsigned n = 0;
  pool[n++] = tensor(t, 2, (int64_t[]){pick(1, 4), pick(1, 4)});
  pool[n++] = EXPAND(RESHAPE(uop_const_int(g, t, pick(-1, 2)), 1, 1), pick(1, 4), pick(1, 4));
  while (n < 12) {
    struct uop *x = pool[pick(0, n - 1)], *y;
    switch (pick(0, 5)) {
    case 0:
      y = uop_const_int(g, t, pick(-1, 2));
      for (unsigned i = 0; i < n; i++)
        if (pick(0, 1) && pool[i]->shape == x->shape) y = pool[i];
      pool[n++] = uop_binary(g, (enum op[]){OP_ADD, OP_SUB, OP_MUL, OP_MAX}[pick(0, 3)], x, y);
      break;
    case 1: pool[n++] = reduce((enum op[]){OP_ADD, OP_MAX}[pick(0, 1)], x, pick(0, (1 << x->shape->rank) - 1)); break;
    case 2: pool[n++] = pick(0, 3) ? contiguous(x) : uop_unary(g, OP_NEG, x); break;
    default: pool[n++] = random_movement(x);
    }
  }
  return pool[n - 1];
}

static void test_random(void **state) {
  for (int round = 0; round < 3000; round++) {
    if (round % 50 == 0) start();
    struct uop *u = random_graph(), *v = u;
    v = graph_rewrite(g, v, rules_tensors, NULL);
    assert_true(shape_equal(u->shape, v->shape) && u->dtype == v->dtype);
    char err[300];
    if (uop_verify(&v, 1, STAGE_TENSOR, err, sizeof err)) fail_msg("%s", err);
    assert_ptr_equal(simple(v), v);
    struct uop *both[] = {u, v};
    struct uop_map values = {0};
    interpret(both, 2, &values);
    const union value *a = uop_map_get(&values, u), *b = uop_map_get(&values, v);
    for (int64_t i = 0; i < shape_numel(u->shape); i++)
      if (!eval_same(u->dtype, a[i], b[i])) {
        uop_print(stderr, both, 2);
        fail_msg("element %lld differs", (long long)i);
      }
    interpret_free(&values);
  }
}

static void test_every_rule_applies(void **state) {
  memset(rules_movement.stats, 0, rules_movement.nrules * sizeof *rules_movement.stats);
  graph_match_stats(1);
  test_each(state);
  graph_match_stats(0);
  for (unsigned r = 0; r < rules_movement.nrules; r++)
    if (!rules_movement.stats[r].matches)
      fail_msg("%s:%u never applied: %s", rules_movement.file, rules_movement.rule[r].line,
               rules_movement.rule[r].text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_each, setup, teardown),
      cmocka_unit_test_setup_teardown(test_symbolic_sizes, setup, teardown),
      cmocka_unit_test_setup_teardown(test_random, setup, teardown),
      cmocka_unit_test_setup_teardown(test_every_rule_applies, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
