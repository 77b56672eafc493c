/* Values that a kernel stores although their readers can compute them from its other results: they are stored only if
 * that takes less time. */
#include "tensor.h"

static const struct schedule_machine *slow_machine(unsigned device) {
  static const struct schedule_machine m = {
      .groups = 64, .side = 8, .launch_ns = 2000, .bytes_per_ns = 20, .flops_per_ns = 0.2};
  return &m;
}

enum { ROWS = 9, COLUMNS = 10 };

/* Returns the number of values that the schedule of the roots stores besides the roots. Checks the values. */
static size_t stored(struct uop **roots, unsigned n) {
  struct schedule s;
  char err[500];
  size_t count;
  check_roots(roots, n);
  if (graph_schedule_on(machine_of, roots, n, &next_buffer, &s, err, sizeof err)) fail_msg("%s", err);
  count = s.ntemporaries;
  schedule_free(&s);
  return count;
}

/* The largest element of each column of x, in the opposite order, so that no kernel can compute it for itself. */
static struct uop *largest(struct uop *x) { return EXPAND(flip(reduce(OP_MAX, x, 1), 2), ROWS, COLUMNS); }

/* Two kernels use f(x), where x is a sum, only after another one has read x + 1. */
static size_t stored_of(struct uop *x, struct uop *f) {
  struct uop *first = mul(f, largest(add(x, num(1)))), *roots[] = {first, sub(mul(f, largest(first)), x)};
  return stored(roots, 2);
}

static void readers_compute_cheap_values(void **state) {
  struct uop *x = RESHAPE(reduce(OP_ADD, TENSOR(ROWS, COLUMNS, 6), 4), ROWS, COLUMNS), *square = mul(x, x);
  assert_int_equal(stored_of(x, square), 3); /* x and both maxima */
  struct uop *dear = square;
  for (int i = 0; i < 4; i++) dear = uop_unary(g, OP_SQRT, add(dear, num(1)));
  assert_int_equal(stored_of(x, dear), 3); /* 2 times 21 additions take less time than transferring 8 bytes */
  for (int i = 0; i < 8; i++) dear = uop_unary(g, OP_SQRT, add(dear, num(1)));
  assert_int_equal(stored_of(x, dear), 4);
  machine_of = slow_machine;
  assert_int_equal(stored_of(x, square), 4);
  machine_of = NULL;
}

/* The memory of a value that is assigned, and first written to a temporary because the kernel reads other elements of
 * the assigned memory, is exchanged with that memory. Nothing else may read it later. */
static void exchanged_memory_is_not_read(void **state) {
  struct uop *to = TENSOR(ROWS, COLUMNS), *x = TENSOR(ROWS, COLUMNS), *value = add(flip(to, 3), x), *f = value;
  for (int i = 0; i < 7; i++) f = uop_unary(g, OP_SQRT, add(f, num(9)));
  struct uop *now = assign(to, to, value), *first = mul(f, largest(now)), *again = mul(f, largest(first));
  struct uop *roots[] = {now, first, again}, *exchanged = NULL;
  struct schedule s;
  char err[500];
  check_roots(roots, 3);
  if (graph_schedule_on(fast_machine, roots, 3, &next_buffer, &s, err, sizeof err)) fail_msg("%s", err);
  for (size_t i = 0; i < s.nitems; i++) {
    for (unsigned k = 0; k < s.items[i].nbufs; k++) assert_ptr_not_equal(s.items[i].bufs[k], exchanged);
    if (s.items[i].swaps) exchanged = s.items[i].bufs[1];
  }
  assert_non_null(exchanged);
  schedule_free(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(readers_compute_cheap_values, setup, teardown),
      cmocka_unit_test_setup_teardown(exchanged_memory_is_not_read, setup, teardown),
  };
  return cmocka_run_group_tests_name("graph/recompute", tests, NULL, NULL);
}
