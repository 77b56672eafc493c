/* Scheduling of kernels of phases: attention, its gradient, and other results that are computed by rows. */
#include "tensor.h"

static const struct schedule_machine *no_scratch(unsigned device) {
  static const struct schedule_machine m = {
      .groups = 64, .side = 8, .access_ns = 5, .launch_ns = 2000, .bytes_per_ns = 20, .flops_per_ns = 200};
  return &m;
}
/* LOCAL memory holds so many rows, which are 64 elements apart. */
static int64_t scratch_rows = 24;
static const struct schedule_machine *little_scratch(unsigned device) {
  static struct schedule_machine m;
  m = *no_scratch(device), m.scratch = scratch_rows * 2 * 64 * 4;
  return &m;
}

/* Scores that are too expensive to be computed again for each sum of them. */
static struct uop *scores_of(struct uop *q, struct uop *k) {
  struct uop *x = mul(matmul(q, permute(k, 0x01)), num(0.25));
  for (unsigned i = 0; i < 2; i++) x = uop_unary(g, OP_RECIP, add(mul(x, x), num(1)));
  return x;
}

/* The share of each element in the sum of its row. */
static struct uop *shares(struct uop *x) {
  return mul(x, expand_like(uop_unary(g, OP_RECIP, reduce(OP_ADD, x, 2)), x));
}

/* True where the column is after the row. */
static struct uop *is_later(const struct uop *x) {
  int64_t rows = x->shape->dim[0]->arg.i, columns = x->shape->dim[1]->arg.i;
  struct uop *row = EXPAND(RESHAPE(iota(DT_I32, rows), rows, 1), rows, columns);
  return uop_binary(g, OP_CMPLT, row, EXPAND(RESHAPE(iota(DT_I32, columns), 1, columns), rows, columns));
}

static struct uop *attention(struct uop *q, struct uop *k, struct uop *v, bool causal) {
  struct uop *scores = scores_of(q, k);
  if (causal) scores = uop_where(g, is_later(scores), full_like(scores, 0), scores);
  return matmul(shares(scores), v);
}

/* The number of kernels of the roots' schedule that are phases. */
static unsigned phased(struct uop *const *roots, unsigned n) {
  struct schedule s;
  char err[500];
  unsigned found = 0;
  if (graph_schedule_on(machine_of, roots, n, &next_buffer, &s, err, sizeof err)) fail_msg("schedule: %s", err);
  for (size_t i = 0; i < s.nitems; i++) found += s.items[i].ast && uop_is_phased(s.items[i].ast);
  schedule_free(&s);
  return found;
}

/* Checks that one kernel of phases without temporaries computes the root. Returns it; the caller frees the schedule. */
static const struct uop *only_kernel_of(struct uop *root, struct schedule *s) {
  char err[500];
  assert_int_equal(check(root), 1);
  assert_int_equal(graph_schedule_on(machine_of, &root, 1, &next_buffer, s, err, sizeof err), 0);
  assert_int_equal(s->ntemporaries, 0);
  assert_true(uop_is_phased(s->items[0].ast));
  return s->items[0].ast;
}

/* Values passed on by rows never exist as a whole: one kernel, and no temporary. */
static void test_phases(void **state) {
  static const struct {
    int64_t rows, keys, width;
    bool causal;
    int64_t scratch_rows; /* in LOCAL memory; 0: more than there are */
    unsigned places;      /* of the loop around */
  } cases[] = {{40, 41, 2, true, 0, 1}, {40, 42, 2, false, 8, 5}, {43, 40, 2, true, 8, 6}, {40, 42, 2, false, 24, 2}};
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t rows = cases[i].rows, keys = cases[i].keys, width = cases[i].width;
    scratch_rows = cases[i].scratch_rows;
    machine_of = scratch_rows ? little_scratch : NULL;
    struct uop *q = TENSOR(rows, width), *k = TENSOR(keys, width), *v = TENSOR(keys, 17);
    struct uop *root = attention(q, k, v, cases[i].causal);
    struct schedule s;
    const struct uop *ast = only_kernel_of(root, &s), *last = ast->src[ast->nsrc - 1];
    assert_int_equal(last->op == OP_RANGE ? last->src[0]->arg.i : 1, cases[i].places);
    schedule_free(&s);
  }
  machine_of = NULL;

  struct uop *q = TENSOR(44, 2), *k = TENSOR(46, 2), *v = TENSOR(46, 17), *p, *root;
  /* a chain of products without a softmax between them; with more done to the result */
  assert_int_equal(check(matmul(scores_of(TENSOR(80, 2), TENSOR(84, 2)), TENSOR(84, 17))), 1);
  assert_int_equal(check(mul(attention(q, k, v, false), num(3))), 1);
  /* the probabilities are a result; few rows; little is handed on; the kernel overwrites its input although two blocks
   * may compute the same row; the machine has no such memory */
  p = shares(scores_of(q, k));
  assert_int_equal(phased((struct uop *[]){p, matmul(p, v)}, 2), 0);
  assert_int_equal(phased((struct uop *[]){attention(TENSOR(12, 2), k, v, false)}, 1), 0);
  assert_int_equal(phased((struct uop *[]){attention(TENSOR(17, 30), TENSOR(17, 30), TENSOR(17, 20), false)}, 1), 0);
  struct uop *place = TENSOR(27, 17);
  root = add(place, attention(TENSOR(27, 2), TENSOR(60, 2), TENSOR(60, 17), false));
  machine_of = little_scratch;
  assert_int_equal(phased(&root, 1), 1);
  root = assign(place->src[0], place, root);
  assert_int_equal(phased(&root, 1), 0);
  machine_of = no_scratch;
  assert_int_equal(phased((struct uop *[]){attention(q, k, v, false)}, 1), 0);
  machine_of = NULL;
}

static const struct schedule_machine *multiplies_bf16(unsigned device) {
  static struct schedule_machine m;
  m = *no_scratch(device), m.scratch = 1 << 20, m.passed_types = 1u << DT_BF16;
  return &m;
}
static const struct schedule_machine *multiplies_f32(unsigned device) {
  static struct schedule_machine m;
  m = *multiplies_bf16(device), m.passed_types = 0;
  return &m;
}

/* Probabilities that are rounded to bf16 are passed on in bf16 if the machine multiplies that faster. */
static void test_passed_types(void **state) {
  for (unsigned narrow = 0; narrow < 2; narrow++) {
    machine_of = narrow ? multiplies_bf16 : multiplies_f32;
    struct uop *p = shares(scores_of(TENSOR(40, 2), TENSOR(41, 2)));
    p = uop_cast(g, uop_cast(g, p, DT_BF16), DT_F32);
    struct schedule s;
    struct uop *ast = (struct uop *)only_kernel_of(matmul(p, TENSOR(41, 17)), &s);
    size_t count;
    struct uop **order = uop_toposort(&ast, 1, &count);
    unsigned found = 0;
    for (size_t i = 0; i < count; i++) found += order[i]->op == OP_LOCAL && order[i]->dtype == DT_BF16;
    assert_int_equal(found, narrow);
    free(order);
    schedule_free(&s);
  }
  machine_of = NULL;
}

/* Probabilities, which are 0 for keys after the query if `causal` is set. */
static struct uop *probabilities(struct uop *q, struct uop *k, bool causal) {
  struct uop *x = mul(matmul(q, permute(k, 0x01)), num(0.25)), *e;
  if (!causal) return softmax(x);
  struct uop *later = is_later(x);
  x = uop_where(g, later, full_like(x, -INFINITY), x);
  e = uop_unary(g, OP_EXP2, mul(sub(x, expand_like(reduce(OP_MAX, x, 2), x)), num(1.5)));
  e = uop_where(g, later, full_like(e, 0), e);
  return mul(e, expand_like(uop_unary(g, OP_RECIP, reduce(OP_ADD, e, 2)), x));
}

/* A machine whose work-items share the memory of phases. */
static const struct schedule_machine *shared_scratch(unsigned device) {
  static struct schedule_machine m;
  m = *no_scratch(device), m.scratch = 48 << 10, m.phase_items = 128;
  return &m;
}

static struct uop *matmul3(struct uop *p, struct uop *v, struct uop *more) { return add(matmul(p, v), more); }

/* Columns are computed in rounds. The maximum and the sum of a row are known after the last one only. */
static void test_rounds(void **state) {
  static const struct {
    int64_t rows, keys, width, columns;
    bool causal;
    int64_t rounds; /* at most */
  } cases[] = {
      {70, 130, 2, 17, false, 3}, {64, 64, 2, 17, true, 1}, {67, 200, 2, 17, true, 2}, {48, 160, 2, 17, false, 3}};
  machine_of = shared_scratch, tolerance = 1e-6; /* 2^x is rounded */
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t rows = cases[i].rows, keys = cases[i].keys, width = cases[i].width;
    struct uop *q = TENSOR(rows, width), *k = TENSOR(keys, width), *v = TENSOR(keys, cases[i].columns);
    struct uop *root = matmul3(probabilities(q, k, cases[i].causal), v, TENSOR(rows, cases[i].columns));
    struct schedule s;
    const struct uop *ast = only_kernel_of(root, &s), *last = ast->src[ast->nsrc - 1];
    assert_true(last->op == OP_RANGE && last->aux == AXIS_ORDERED);
    assert_int_equal(uop_max(last->src[0]), cases[i].rounds);
    schedule_free(&s);
  }
  /* a sum that is not a factor of the summed values has a kernel of its own; sums only */
  struct uop *q = TENSOR(70, 2), *k = TENSOR(90, 2), *v = TENSOR(90, 17), *x = scores_of(q, k);
  struct uop *less = sub(x, expand_like(reduce(OP_ADD, x, 2), x));
  assert_int_equal(phased((struct uop *[]){matmul(less, v)}, 1), 2);
  assert_int_equal(check(attention(q, k, v, false)), 1);
  tolerance = 1e-5; /* large sums */
  /* not 0 for columns that do not exist */
  struct uop *inverse = uop_unary(g, OP_RECIP, matmul(q, permute(k, 0x01)));
  assert_int_equal(check(matmul(inverse, v)), 1);
  assert_int_equal(check(matmul(less, v)), 2);
  machine_of = NULL, tolerance = 0;
}

/* The same, and it loads 16 bytes at once. */
static const struct schedule_machine *aligning(unsigned device) {
  static struct schedule_machine m;
  m = *shared_scratch(device), m.channel_align = m.align = 16;
  return &m;
}

/* Operands of many products are loaded from copies with aligned rows, whose elements are columns of the result, too.
 * One launch makes all copies. */
static void test_padded_rows(void **state) {
  static const struct {
    int64_t rows, keys, width;
    unsigned kernels;
  } cases[] = {{1024, 1023, 17, 2}, {1024, 1023, 20, 1}, {100, 1023, 17, 1}};
  machine_of = aligning;
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t width = cases[i].width;
    struct uop *v = TENSOR(cases[i].keys, width), *k = TENSOR(cases[i].keys, width);
    struct uop *root = matmul(probabilities(TENSOR(cases[i].rows, width), k, true), v);
    struct schedule s;
    char err[500];
    assert_int_equal(graph_schedule_on(machine_of, &root, 1, &next_buffer, &s, err, sizeof err), 0);
    assert_int_equal(s.nitems, cases[i].kernels);
    schedule_free(&s);
  }
  machine_of = NULL;
}

/* Heads and rows of the probabilities are exchanged in the result, and their sums contain another value for each. */
static void test_rounds_of_exchanged_rows(void **state) {
  enum { HEADS = 16, KEYS = 90, COLUMNS = 17 };
  machine_of = shared_scratch, tolerance = 1e-6;
  struct uop *x =
      RESHAPE(mul(matmul(TENSOR(HEADS * HEADS, 2), permute(TENSOR(KEYS, 2), 0x01)), num(0.25)), HEADS, HEADS, KEYS);
  struct uop *e = uop_unary(g, OP_EXP2, sub(x, expand_like(reduce(OP_MAX, x, 4), x)));
  struct uop *sum = add(reduce(OP_ADD, e, 4), TENSOR(HEADS, HEADS, 1));
  struct uop *p = mul(e, expand_like(uop_unary(g, OP_RECIP, sum), x));
  p = EXPAND(RESHAPE(permute(p, 0x201), HEADS, HEADS, KEYS, 1), HEADS, HEADS, KEYS, COLUMNS);
  struct uop *v = EXPAND(RESHAPE(TENSOR(KEYS, COLUMNS), 1, 1, KEYS, COLUMNS), HEADS, HEADS, KEYS, COLUMNS);
  struct uop *root = reduce(OP_ADD, mul(p, v), 4);
  assert_int_equal(check(root), 1);
  assert_int_equal(phased(&root, 1), 1);
  machine_of = NULL, tolerance = 0;
}

/* The results of an attention and of its gradient for dy, or for 2 times the result if dy is NULL. */
static void attention_gradients(struct uop *q, struct uop *k, struct uop *v, struct uop *dy, bool causal,
                                struct uop **out) {
  struct uop *p = probabilities(q, k, causal);
  out[0] = matmul(p, v);
  if (!dy) dy = mul(out[0], num(2));
  struct uop *dp = matmul(dy, permute(v, 0x01)), *mean = reduce(OP_ADD, mul(p, dp), 2);
  struct uop *ds = mul(p, sub(dp, expand_like(mean, dp)));
  out[1] = matmul(ds, k), out[2] = matmul(permute(ds, 0x01), q), out[3] = matmul(permute(p, 0x01), dy);
}

/* The number of stores to LOCAL memory that have a condition. */
static unsigned conditions_of(struct uop *const *roots, unsigned n) {
  struct schedule s;
  char err[500];
  unsigned found = 0;
  if (graph_schedule_on(machine_of, roots, n, &next_buffer, &s, err, sizeof err)) fail_msg("schedule: %s", err);
  for (size_t i = 0; i < s.nitems; i++) {
    size_t count;
    struct uop **order = uop_toposort(&s.items[i].ast, 1, &count);
    for (size_t k = 0; k < count; k++)
      found += order[k]->op == OP_STORE && order[k]->src[0]->src[0]->op == OP_LOCAL && order[k]->src[0]->nsrc > 2;
    free(order);
  }
  schedule_free(&s);
  return found;
}

/* The number of kernels of the roots' schedule, and the elements of its largest temporary. */
static unsigned scheduled(struct uop *const *roots, unsigned n, int64_t *largest) {
  struct schedule s;
  char err[500];
  *largest = 0;
  if (graph_schedule_on(machine_of, roots, n, &next_buffer, &s, err, sizeof err)) fail_msg("schedule: %s", err);
  for (size_t i = 0; i < s.ntemporaries; i++)
    if (s.temporaries[i]->src[0]->arg.i > *largest) *largest = s.temporaries[i]->src[0]->arg.i;
  unsigned kernels = (unsigned)s.nitems;
  schedule_free(&s);
  return kernels;
}

/* Kernels of a gradient compute values of the forward pass again, by rows or by columns. */
static void test_recomputed(void **state) {
  static const struct {
    int64_t rows, keys;
    bool after;       /* the gradient depends on the result */
    unsigned kernels; /* of the result and the queries' gradient, together or apart; of the other gradients; of dy */
    bool blocks;
    unsigned limited; /* tiles of which the columns above the diagonal are left out */
  } cases[] = {{56, 60, true, 4, false, 0}, {56, 60, false, 2, false, 0}, {59, 52, true, 4, true, 0},
               {51, 70, false, 2, true, 0}, {64, 64, true, 4, true, 7},   {64, 96, false, 2, true, 6},
               {67, 67, false, 2, true, 6}, {67, 83, false, 2, true, 6},  {67, 67, true, 4, true, 7},
               {83, 67, false, 2, true, 2}};
  struct uop *root[5];
  int64_t largest;
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t rows = cases[i].rows, keys = cases[i].keys;
    machine_of = cases[i].blocks ? little_scratch : NULL;
    attention_gradients(TENSOR(rows, 2), TENSOR(keys, 2), TENSOR(keys, 17), cases[i].after ? NULL : TENSOR(rows, 17),
                        cases[i].limited > 0, root);
    assert_int_equal(check_roots(root, 4), cases[i].kernels);
    scheduled(root, 4, &largest);
    assert_in_range(largest, 0, 17 * rows);
    assert_int_equal(conditions_of(root, 4), cases[i].limited);
    assert_int_equal(check_roots(root + 2, 2), 2 + cases[i].after); /* a kernel computes the values of rows only */
    assert_int_equal(check_roots(root + 3, 1), 2);
  }
  machine_of = NULL;
  /* too few rows: the reductions stay in the kernels in which they are without phases */
  attention_gradients(TENSOR(12, 2), TENSOR(60, 2), TENSOR(60, 17), NULL, false, root);
  unsigned kernels = scheduled(root, 4, &largest);
  assert_int_equal(check_roots(root, 4), kernels);
  machine_of = no_scratch;
  assert_int_equal(scheduled(root, 4, &largest), kernels);
  machine_of = NULL;
  struct uop *q = TENSOR(56, 2), *k = TENSOR(60, 2), *v = TENSOR(60, 17);
  attention_gradients(q, k, v, TENSOR(56, 17), false, root);
  root[4] = probabilities(q, k, false); /* a result, which the phases read */
  assert_int_equal(phased(root, 5), 2);
  check_roots(root, 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_phases, setup, teardown),
      cmocka_unit_test_setup_teardown(test_passed_types, setup, teardown),
      cmocka_unit_test_setup_teardown(test_rounds, setup, teardown),
      cmocka_unit_test_setup_teardown(test_padded_rows, setup, teardown),
      cmocka_unit_test_setup_teardown(test_rounds_of_exchanged_rows, setup, teardown),
      cmocka_unit_test_setup_teardown(test_recomputed, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
