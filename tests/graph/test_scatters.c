/* Scheduling of reductions at indices, such as sums of gradients into rows of a table: the number of kernels, sorted
 * indices, atomic operations, and results. */
#include "tensor.h"

/* The reduction over axis `walked` of values whose index equals the position along axis `places`; both are [.., count,
 * ..] without axis `places`. */
static struct uop *scattered(enum op op, struct uop *index, struct uop *value, struct uop *none, unsigned places,
                             unsigned walked, int64_t n) {
  int64_t dims[MAX_RANK], ones[MAX_RANK];
  unsigned rank = index->shape->rank + 1;
  for (unsigned i = 0; i < rank; i++) {
    dims[i] = i == places ? 1 : dim_of(index, i - (i > places));
    ones[i] = i == places ? n : 1;
  }
  index = movement(OP_RESHAPE, index, rank, dims), value = value ? movement(OP_RESHAPE, value, rank, dims) : NULL;
  struct uop *place = movement(OP_RESHAPE, iota(index->dtype, n), rank, ones);
  dims[places] = n;
  index = movement(OP_EXPAND, index, rank, dims), place = movement(OP_EXPAND, place, rank, dims);
  struct uop *hit = uop_binary(g, OP_CMPEQ, index, place);
  if (value) hit = uop_where(g, hit, movement(OP_EXPAND, value, rank, dims), none);
  return reduce(op, value || !none ? hit : uop_cast(g, hit, none->dtype), 1 << walked);
}

/* A machine whose work-items wait long for memory, and which compares slowly. */
static const struct schedule_machine *distant_machine(unsigned device) {
  static const struct schedule_machine m = {.groups = 12,
                                            .side = 2,
                                            .launch_ns = 0,
                                            .access_ns = 1e6,
                                            .bytes_per_ns = 100,
                                            .flops_per_ns = 10,
                                            .compares_per_ns = 1,
                                            .stream_per_ns = 10};
  return &m;
}
static const struct schedule_machine *atomic_machine(unsigned device) {
  static struct schedule_machine m;
  m = *distant_machine(device), m.atomics = ATOMICS_ANY;
  return &m;
}
static const struct schedule_machine *exact_machine(unsigned device) {
  static struct schedule_machine m;
  m = *distant_machine(device), m.atomics = ATOMICS_EXACT;
  return &m;
}

/* The number of kernels of a root, how many of their stores are atomic, and how many of their reductions are over
 * ranges whose size is loaded. None may be ORDERED. */
static size_t count_scatter(struct uop *root, unsigned *atomic, unsigned *ragged) {
  struct schedule s;
  char err[500];
  assert_int_equal(graph_schedule_on(machine_of, &root, 1, &next_buffer, &s, err, sizeof err), 0);
  *atomic = *ragged = 0;
  for (size_t i = 0; i < s.nitems; i++) {
    size_t n;
    struct uop **order = uop_toposort(&s.items[i].ast, 1, &n);
    for (size_t k = 0; k < n; k++) {
      *atomic += order[k]->op == OP_STORE && order[k]->aux;
      *ragged += order[k]->op == OP_RANGE && !uop_is_const(order[k]->src[0]);
      assert_false(order[k]->op == OP_RANGE && order[k]->aux == AXIS_ORDERED);
    }
    free(order);
  }
  size_t kernels = s.nitems;
  schedule_free(&s);
  return kernels;
}

/* Where no work-item can walk along the index, the index is sorted, and each position combines adjacent elements of the
 * order; integers are combined by atomic operations, floats only if the machine's model allows any order. */
static void test_sorted_and_atomic_scatters(void **state) {
  const struct schedule_machine *(*const machines[])(unsigned) = {distant_machine, exact_machine, atomic_machine};
  for (unsigned i = 0; i < 3; i++) {
    unsigned atomic, ragged;
    machine_of = machines[i];
    start();
    struct uop *ids = EXPAND(PLACES(DT_I32, 2000, 1, 300), 3, 300), *rows = TENSOR(3, 300), *zero = num(0);
    struct uop *sum = scattered(OP_ADD, ids, rows, zero, 1, 2, 2000), *none = uop_const_int(g, DT_I64, 0);
    assert_in_range(count_scatter(sum, &atomic, &ragged), 2, i == 2 ? 2 : 7);
    assert_int_equal(atomic, i == 2);
    assert_int_equal(ragged, i == 2 ? 0 : 4); /* elements of a block; head, blocks and tail of a position */
    check(sum);
    struct uop *counts = scattered(OP_ADD, ids, NULL, none, 1, 2, 2000);
    count_scatter(counts, &atomic, &ragged);
    assert_int_equal(atomic, i > 0);
    check(counts);
    check(scattered(OP_MAX, ids, rows, num(-INFINITY), 0, 2, 2000));
    check(scattered(OP_MAX, ids, NULL, NULL, 1, 2, 2000));
    struct uop *few = EXPAND(PLACES(DT_I32, 3, 1, 300), 3, 300); /* many equal elements: whole blocks */
    check(scattered(OP_ADD, few, rows, zero, 1, 2, 2000));
    check(scattered(OP_ADD, EXPAND(PLACES(DT_U8, 250, 1, 40), 3, 40), TENSOR(3, 40), zero, 1, 2, 250));
    check(scattered(OP_ADD, EXPAND(PLACES(DT_U8, 250, 1, 40), 3, 40), TENSOR(3, 40), zero, 1, 2, 2000));
    struct uop *shifted = uop_binary(g, OP_SUB, PLACES(DT_I64, 900, 1, 300), uop_const_int(g, DT_I64, 100));
    check(scattered(OP_ADD, EXPAND(shifted, 3, 300), rows, zero, 1, 2, 700)); /* elements outside on both sides */
    /* a sort by one digit and by two, and an index of equal pairs */
    if (!i) check(scattered(OP_ADD, PLACES(DT_I32, 16, 2100), TENSOR(2100), zero, 0, 1, 16));
    if (!i) check(scattered(OP_ADD, PLACES(DT_I32, 257, 2049), TENSOR(2049), zero, 0, 1, 257));
    struct uop *pairs = RESHAPE(EXPAND(PLACES(DT_I32, 50, 60, 1), 60, 2), 120);
    check(scattered(OP_ADD, pairs, NULL, none, 0, 1, 50));
    for (int round = 0; round < 20; round++) { /* also an index per row */
      start();
      int64_t dims[3] = {pick(1, 3), pick(1, 3), pick(1, 3)}, n = pick(1, 200);
      unsigned walked = (unsigned)pick(0, 2), along = (unsigned)pick(0, 3);
      dims[walked] = pick(3, 100);
      struct uop *at = places(pick(0, 1) ? DT_I32 : DT_I64, pick(1, n), 3, dims), *value = tensor(DT_F32, 3, dims);
      check(scattered(OP_ADD, at, value, num(0), along, walked + (walked >= along), n));
    }
  }
  machine_of = NULL;
}

/* The cost of sums at indices is proportional to the number of values: memory is cleared, and the index is walked along
 * once. */
static void test_scatters(void **state) {
  struct schedule s;
  char err[500], text[500];
  struct uop *ids = PLACES(DT_I32, 7, 1, 40), *rows = TENSOR(3, 40), *zero = num(0),
             *none = uop_const_int(g, DT_I64, 0);
  ids = EXPAND(ids, 3, 40);
  struct uop *sum = scattered(OP_ADD, ids, rows, zero, 1, 2, 7);
  assert_int_equal(check(sum), 1); /* small: every position compares every element */
  machine_of = eager_machine;
  assert_int_equal(check(sum), 2);
  assert_int_equal(graph_schedule_on(machine_of, &sum, 1, &next_buffer, &s, err, sizeof err), 0);
  assert_int_equal(s.nitems, 2);
  assert_non_null(strstr(uop_expr(s.items[1].ast, text, sizeof text), "o1"));
  assert_ptr_equal(s.items[0].bufs[0], s.items[1].bufs[0]);
  schedule_free(&s);
  check(scattered(OP_ADD, ids, uop_unary(g, OP_NEG, rows), zero, 0, 2, 7));
  check(scattered(OP_ADD, permute(ids, 0x01), permute(rows, 0x01), zero, 1, 0, 7));
  check(add(expand_like(reduce(OP_ADD, sum, 3), sum), sum));
  check(scattered(OP_ADD, ids, matmul(TENSOR(3, 2), TENSOR(2, 40)), zero, 1, 2, 7));
  /* counts, whether there is any, the maximum index per position, products */
  assert_int_equal(check(scattered(OP_ADD, ids, NULL, none, 1, 2, 7)), 2);
  assert_int_equal(check(scattered(OP_MAX, ids, NULL, NULL, 1, 2, 7)), 2);
  struct uop *wide = EXPAND(RESHAPE(ids, 3, 1, 40), 3, 7, 40),
             *hit = uop_binary(g, OP_CMPEQ, wide, EXPAND(RESHAPE(iota(DT_I32, 7), 1, 7, 1), 3, 7, 40));
  assert_int_equal(check(reduce(OP_MAX, uop_where(g, hit, hit, uop_const_int(g, DT_BOOL, 0)), 4)), 2);
  struct uop *order = add(EXPAND(RESHAPE(iota(DT_I32, 40), 1, 40), 3, 40), uop_const_int(g, DT_I32, 1));
  assert_int_equal(check(scattered(OP_MAX, ids, order, uop_const_int(g, DT_I32, 0), 1, 2, 7)), 2);
  assert_int_equal(check(scattered(OP_MAX, ids, rows, num(-INFINITY), 1, 2, 7)), 2);
  assert_int_equal(check(scattered(OP_MAX, ids, rows, zero, 1, 2, 7)), 1); /* 0 is not the identity of max */
  struct uop *whole = tensor(DT_I32, 2, (int64_t[]){3, 40});
  assert_int_equal(check(scattered(OP_MUL, ids, whole, uop_const_int(g, DT_I32, 1), 1, 2, 7)), 2);
  /* a computed index, an index per element, a scalar value, several users, and overwritten memory */
  struct uop *own = PLACES(DT_I64, 9, 3, 40), *shifted = add(own, uop_const_int(g, DT_I64, 1));
  check(scattered(OP_ADD, shifted, rows, zero, 1, 2, 9));
  check(scattered(OP_ADD, gather(own, PLACES(DT_I32, 40, 3, 40), 1), full_like(rows, 3), zero, 1, 2, 9));
  struct uop *b = buffer(DT_F32, 21), *roots[] = {sum, mul(sum, sum), assign(b, b, add(b, RESHAPE(sum, 21)))};
  check_roots(roots, 3);
  check(scattered(OP_ADD, PLACES(DT_I32, 3, 2, 0), TENSOR(2, 0), zero, 1, 2, 4));
  check(scattered(OP_ADD, PLACES(DT_I32, 3, 2, 1), TENSOR(2, 1), zero, 1, 2, 4));
  for (int round = 0; round < 100; round++) {
    start();
    int64_t dims[3] = {pick(1, 4), pick(1, 4), pick(1, 4)}, n = pick(1, 6);
    unsigned walked = (unsigned)pick(0, 2), along = (unsigned)pick(0, 3);
    dims[walked] = pick(3, 30);
    struct uop *at = places(DT_I32, n, 3, dims), *value = tensor(DT_F32, 3, dims);
    check(scattered(OP_ADD, at, value, num(0), along, walked + (walked >= along), n));
  }
  machine_of = NULL;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_scatters, setup, teardown),
      cmocka_unit_test_setup_teardown(test_sorted_and_atomic_scatters, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
