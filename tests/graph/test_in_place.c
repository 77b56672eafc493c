/* Kernels that write their result over an operand: when they may, and that the results are right. Random graphs are
 * scheduled for such a machine in test_schedule.c. */
#include "tensor.h"

static const struct schedule_machine *overwriting(unsigned device) {
  static struct schedule_machine m;
  m = *fast_machine(device), m.overwrites = true;
  return &m;
}

/* Schedules the roots, runs them, and returns the number of temporaries. */
static size_t temporaries(struct uop *const *roots, unsigned n) {
  struct schedule s;
  char err[300];
  machine_of = overwriting;
  check_roots(roots, n);
  if (graph_schedule_on(machine_of, roots, n, &next_buffer, &s, err, sizeof err)) fail_msg("schedule: %s", err);
  size_t count = s.ntemporaries;
  for (size_t i = 0; i < s.nitems; i++)
    for (unsigned k = 0; k < s.items[i].nbufs; k++)
      for (unsigned j = 0; j < k; j++) assert_ptr_not_equal(s.items[i].bufs[j], s.items[i].bufs[k]);
  schedule_free(&s);
  machine_of = NULL;
  return count;
}

static struct uop *product(struct uop *x) { return contiguous(matmul(x, TENSOR(8, 8))); }

/* y added to a function of x that needs one temporary. */
static struct uop *residual(struct uop *x, struct uop *y) {
  return contiguous(add(matmul(product(x), TENSOR(8, 8)), y));
}

/* The sums of a residual network are all in one buffer. */
static void a_chain_of_residuals(void **state) {
  struct uop *x = product(TENSOR(8, 8));
  for (int i = 0; i < 4; i++) x = residual(x, x);
  struct uop *root = product(x);
  assert_int_equal(temporaries(&root, 1), 1 + 4);
}

static void an_operand_that_is_used_again_stays(void **state) {
  struct uop *x = product(TENSOR(8, 8)), *sum = residual(x, x);
  struct uop *once = product(sum), *again = contiguous(add(product(sum), x));
  assert_int_equal(temporaries(&once, 1), 2);
  assert_int_equal(temporaries(&again, 1), 4); /* x, the two products and the sum */
}

static void results_and_arguments_stay(void **state) {
  struct uop *argument = TENSOR(8, 8), *sum = contiguous(add(product(TENSOR(8, 8)), argument));
  struct uop *roots[] = {product(TENSOR(8, 8)), NULL};
  roots[1] = product(contiguous(add(matmul(TENSOR(8, 8), TENSOR(8, 8)), roots[0])));
  assert_int_equal(temporaries(roots, 2), 1); /* the first root is asked for; the sum has memory of its own */
  assert_int_equal(temporaries(&sum, 1), 1);
}

/* Elements that are read elsewhere than they are written, or as another type, prevent it. */
static void operands_at_other_places_stay(void **state) {
  struct uop *x = product(TENSOR(8, 8)), *turned = permute(x, 0x01);
  struct uop *same = product(residual(x, x)), *transposed = product(residual(x, turned));
  struct uop *both = product(residual(x, add(x, turned)));
  struct uop *cast = product(contiguous(uop_cast(g, contiguous(uop_cast(g, x, DT_I32)), DT_F32)));
  assert_int_equal(temporaries(&same, 1), 2);
  assert_int_equal(temporaries(&transposed, 1), 3);
  assert_int_equal(temporaries(&both, 1), 3);
  assert_int_equal(temporaries(&cast, 1), 3);
}

/* Kernels that compute the pieces of a result one after the other do not begin it anew. */
static void pieces_of_a_result_stay_together(void **state) {
  enum { N = 8, ROWS = 2 };
  struct uop *x = product(TENSOR(N, N)), *all = NULL;
  for (int64_t i = 0; i < N / ROWS; i++) {
    int64_t from = i * ROWS, to = from + ROWS;
    struct uop *piece = contiguous(add(matmul(TENSOR(ROWS, N), TENSOR(N, N)), SHRINK(x, from, to, 0, N)));
    struct uop *padded = PAD(piece, from, N - to, 0, 0);
    all = all ? add(all, padded) : padded;
  }
  struct uop *root = product(contiguous(all));
  assert_int_equal(temporaries(&root, 1), 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_chain_of_residuals, setup, teardown),
      cmocka_unit_test_setup_teardown(an_operand_that_is_used_again_stays, setup, teardown),
      cmocka_unit_test_setup_teardown(results_and_arguments_stay, setup, teardown),
      cmocka_unit_test_setup_teardown(operands_at_other_places_stay, setup, teardown),
      cmocka_unit_test_setup_teardown(pieces_of_a_result_stay_together, setup, teardown),
  };
  return cmocka_run_group_tests_name("in_place", tests, NULL, NULL);
}
