/* Keys of graphs without the varying parts: equal structures have equal keys, different ones do not, and a graph can be
 * rebuilt from its key. */
#include "tensor.h"
#include "graph/exchange.h"
#include "graph/bind.h"
#include <errno.h>

static struct binder *binder;

static struct binding bound(struct uop *const *roots, unsigned n, size_t alignment) {
  struct binding b;
  char err[200];
  assert_true(binder_begin(binder, g));
  if (binder_bind(binder, roots, n, alignment, &b, err, sizeof err)) fail_msg("%s", err);
  return b;
}

static bool same_key(const struct binding *a, const struct binding *b) {
  bool same = a->nkey == b->nkey && !memcmp(a->key, b->key, a->nkey * sizeof *a->key);
  if (same) assert_true(a->hash == b->hash);
  return same;
}

/* Whether the roots have the same key. */
static bool alike(struct uop *x, struct uop *y) {
  struct binding a = bound(&x, 1, 16), b = bound(&y, 1, 16);
  bool same = same_key(&a, &b);
  binding_free(&a);
  binding_free(&b);
  return same;
}

static struct uop *rows(struct uop *x, int64_t begin, int64_t end) { return SHRINK(x, begin, end, 0, dim_of(x, 1)); }

static void varying_values_are_left_out(void **state) {
  start();
  struct uop *a = TENSOR(4, 8), *b = TENSOR(4, 8), *c = TENSOR(8, 4);
  assert_true(alike(add(a, b), add(b, a)));
  assert_false(alike(add(a, b), add(a, a)));
  assert_false(alike(add(a, num(1)), add(a, num(2))));
  assert_false(alike(a, c));
  assert_false(alike(RESHAPE(buffer_on(0, DT_F32, 32), 4, 8), RESHAPE(buffer_on(1, DT_F32, 32), 4, 8)));
  assert_false(alike(RESHAPE(buffer(DT_F32, 32), 4, 8), RESHAPE(buffer(DT_I32, 32), 4, 8)));
  assert_true(alike(matmul(a, c), matmul(b, c)));
  assert_false(alike(reduce(OP_ADD, a, 1), reduce(OP_ADD, a, 2)));
  assert_false(alike(reduce(OP_ADD, a, 1), reduce(OP_MAX, a, 1)));
  struct uop *first = uop_exchange(g, EXCHANGE_SUM, 0, a, a->shape),
             *second = uop_exchange(g, EXCHANGE_SUM, 0, b, b->shape);
  assert_true(alike(first, second));
  assert_true(alike(add(first, second), add(second, first)));
  assert_false(alike(add(first, second), add(first, first)));
  assert_false(alike(first, uop_exchange(g, EXCHANGE_MAX, 0, a, a->shape)));
  assert_false(alike(first, uop_exchange(g, EXCHANGE_SUM, 1, a, a->shape)));
  struct uop *two[2] = {a, b}, *twice[2] = {a, a};
  struct binding x = bound(two, 2, 16), y = bound(twice, 2, 16);
  assert_false(same_key(&x, &y));
  assert_int_equal(x.nbuffers, 2);
  assert_int_equal(x.buffers[1].id, b->src[0]->arg.i);
  binding_free(&x);
  binding_free(&y);
}

static void slices_become_memory(void **state) {
  start();
  struct uop *x = TENSOR(16, 8), *y = TENSOR(16, 8);
  assert_true(alike(rows(x, 0, 4), rows(y, 8, 12)));
  assert_true(alike(add(rows(x, 0, 4), rows(x, 4, 8)), add(rows(y, 12, 16), rows(x, 0, 4))));
  assert_false(alike(rows(x, 0, 4), rows(x, 0, 5)));
  assert_false(alike(SHRINK(x, 0, 16, 0, 4), SHRINK(x, 0, 16, 4, 8))); /* with gaps: not a buffer of its own */
  assert_true(alike(SHRINK(x, 3, 4, 0, 4), SHRINK(x, 5, 6, 4, 8)));
  assert_false(alike(SHRINK(x, 3, 4, 0, 4), SHRINK(x, 3, 4, 1, 5))); /* not aligned */
  struct uop *slice = rows(x, 3, 5), *deep = SHRINK(RESHAPE(rows(x, 2, 10), 4, 16), 1, 2, 4, 12);
  struct binding b = bound(&slice, 1, 32);
  assert_int_equal(b.nbuffers, 1);
  assert_int_equal(b.buffers[0].offset, 3 * 8 * 4);
  assert_int_equal(b.buffers[0].bytes, 2 * 8 * 4);
  binding_free(&b);
  b = bound(&deep, 1, 4);
  assert_int_equal(b.buffers[0].offset, (2 * 8 + 16 + 4) * 4);
  assert_int_equal(b.buffers[0].bytes, 8 * 4);
  binding_free(&b);
  char err[200];
  assert_true(binder_begin(binder, g));
  assert_true(binder_mark_written(binder, x->src[0]));
  assert_int_equal(binder_bind(binder, &slice, 1, 32, &b, err, sizeof err), 0);
  assert_int_equal(b.buffers[0].bytes, 16 * 8 * 4);
  assert_int_equal(b.buffers[0].offset, 0);
  binding_free(&b);
}

static struct uop *bind(const char *name, int64_t value) {
  struct uop *src[2] = {uop_var(g, name, 1, 16), uop_index(g, value)};
  return uop_new(g, OP_BIND, DT_INDEX, 1, (union uop_arg){0}, 0, src, 2);
}

static struct uop *first_rows(struct uop *x, struct uop *n) {
  struct uop *src[5] = {x, uop_index(g, 0), n, uop_index(g, 0), x->shape->dim[1]};
  return uop_new(g, OP_SHRINK, x->dtype, 1, (union uop_arg){0}, 0, src, 5);
}

static void variables(void **state) {
  start();
  struct uop *x = TENSOR(16, 8);
  assert_true(alike(first_rows(x, bind("n", 3)), first_rows(x, bind("n", 7))));
  assert_false(alike(first_rows(x, bind("n", 3)), first_rows(x, bind("m", 3))));
  assert_false(alike(first_rows(x, bind("n", 3)), first_rows(x, bind("longer name", 3))));
  struct uop *both[2] = {first_rows(x, bind("n", 3)), first_rows(x, bind("m", 5))};
  struct binding b = bound(both, 2, 16);
  assert_int_equal(b.nvars, 2);
  assert_string_equal(b.vars[1].name, "m");
  assert_int_equal(b.vars[1].value, 5);
  binding_free(&b);
  char err[200];
  struct uop *clash[2] = {first_rows(x, bind("n", 3)), first_rows(x, bind("n", 5))},
             *out = first_rows(x, bind("n", 17));
  assert_true(binder_begin(binder, g));
  assert_int_equal(binder_bind(binder, clash, 2, 16, &b, err, sizeof err), -EINVAL);
  assert_string_equal(err, "variable n is bound to both 3 and 5");
  assert_true(binder_begin(binder, g));
  assert_int_equal(binder_bind(binder, &out, 1, 16, &b, err, sizeof err), -EINVAL);
  assert_string_equal(err, "variable n is bound to 17, which is out of its bounds");
}

static void memory_replaces_realized_values(void **state) {
  start();
  struct uop *a = TENSOR(4, 4), *b = TENSOR(4, 4), *m = matmul(a, b), *y = add(m, num(1)), *z = add(a, num(1));
  struct binding got, want = bound(&z, 1, 16);
  char err[200];
  assert_true(binder_begin(binder, g));
  assert_true(binder_replace(binder, m, b));
  assert_int_equal(binder_bind(binder, &y, 1, 16, &got, err, sizeof err), 0);
  assert_true(same_key(&got, &want));
  assert_int_equal(got.buffers[0].id, b->src[0]->arg.i);
  binding_free(&got);
  binding_free(&want);
}

/* A graph rebuilt from a key has the same key and computes the same values. */
static void keys_give_graphs_back(void **state) {
  start();
  struct uop *a = TENSOR(4, 8), *b = TENSOR(8, 4);
  struct uop *roots[3] = {softmax(matmul(a, b)), PAD(flip(permute(a, 1), 1), 1, 2, 0, 1),
                          uop_cast(g, first_rows(a, bind("n", 2)), DT_I32)};
  struct binding x = bound(roots, 3, 16), y;
  struct graph *other = graph_new();
  struct uop *back[3];
  char err[300];
  assert_true(bound_graph(x.key, x.nkey, other, back, 3));
  for (int i = 0; i < 2; i++) assert_int_equal(uop_verify(&back[i], 1, STAGE_TENSOR, err, sizeof err), 0);
  assert_true(binder_begin(binder, other));
  assert_int_equal(binder_bind(binder, back, 3, 16, &y, err, sizeof err), 0);
  assert_true(same_key(&x, &y));
  assert_int_equal(y.nbuffers, 2);
  assert_int_equal(y.buffers[1].id, 1);
  assert_int_equal(y.nvars, 0);
  graph_free(other);
  binding_free(&x);
  binding_free(&y);
}

/* Repeatedly adding a node to itself gives 2^n paths. */
static void shared_sums_are_not_walked_as_trees(void **state) {
  start();
  struct uop *n = bind("n", 2), *sum = n;
  int64_t v;
  for (int i = 0; i < 40; i++) sum = uop_binary(g, i & 1 ? OP_MAX : OP_ADD, sum, sum);
  assert_true(uop_bound_value(sum, &v));
  assert_int_equal(v, INT64_C(2) << 20);
  for (int i = 0; i < 60; i++) sum = uop_binary(g, OP_MAX, uop_binary(g, OP_ADD, sum, n), sum);
  assert_false(uop_bound_value(sum, &v)); /* the search stops early */
}

static int begin(void **state) { return (binder = binder_new()) == NULL; }
static int end(void **state) {
  binder_free(binder);
  forget();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(varying_values_are_left_out),
      cmocka_unit_test(slices_become_memory),
      cmocka_unit_test(variables),
      cmocka_unit_test(memory_replaces_realized_values),
      cmocka_unit_test(keys_give_graphs_back),
      cmocka_unit_test(shared_sums_are_not_walked_as_trees),
  };
  return cmocka_run_group_tests_name("bind", tests, begin, end);
}
