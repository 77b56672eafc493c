/* Scheduling of sums and products: which are kernels of their own, which are split, and whose operands are copied. */
#include "tensor.h"

static const struct schedule_machine *the_machine;
static const struct schedule_machine *given_machine(unsigned device) { return the_machine; }

/* fast_machine with matrix instructions for bf16. */
static const struct schedule_machine *matrix_machine(unsigned device) {
  static const struct schedule_machine m = {.groups = 264,
                                            .side = 32,
                                            .launch_ns = 3000,
                                            .bytes_per_ns = 3000,
                                            .flops_per_ns = 70000,
                                            .compares_per_ns = 17500,
                                            .stream_per_ns = 20,
                                            .tile = 64,
                                            .tile_types = 1u << DT_BF16,
                                            .tile_flops_per_ns = 990000};
  return &m;
}

static struct uop *buffer_of(enum dtype t, int64_t n) {
  return uop_new(g, OP_BUFFER, t, 1, (union uop_arg){.i = next_buffer++}, 0, (struct uop *[]){uop_index(g, n)}, 1);
}
static struct uop *buffer_without_memory(int64_t n) { return buffer_of(DT_F32, n); }

/* Returns the number of kernels. Stores in *width the number of results of the first one. If there are several, its
 * reason must be why. */
static size_t kernels_of(struct uop *root, enum schedule_reason why, int64_t *width) {
  struct schedule s;
  char err[500];
  assert_int_equal(graph_schedule_on(machine_of, &root, 1, &next_buffer, &s, err, sizeof err), 0);
  size_t n = s.nitems;
  assert_int_equal(s.items[0].why[0], n > 1 ? why : SCHEDULE_ROOT);
  if (width) *width = s.items[0].bufs[0]->src[0]->arg.i;
  schedule_free(&s);
  return n;
}

/* A large product of matrices is the only sum of its kernel, and a sum is not repeated for each of many results. */
static void test_large_sums(void **state) {
  struct uop *small = add(matmul(TENSOR(8, 16), TENSOR(16, 8)), matmul(TENSOR(8, 12), TENSOR(12, 8)));
  assert_int_equal(check(small), 1);
  struct uop *large = add(matmul(TENSOR(128, 256), TENSOR(256, 64)), matmul(TENSOR(128, 128), TENSOR(128, 64)));
  assert_int_equal(kernels_of(uop_binary(g, OP_MAX, large, num(0)), SCHEDULE_CROWDED, NULL), 2);
  struct uop *x = TENSOR(512, 49), *mean = RESHAPE(reduce(OP_ADD, x, 2), 1, 512);
  assert_int_equal(kernels_of(matmul(mean, TENSOR(512, 1000)), SCHEDULE_NESTED, NULL),
                   2); /* a pool of 7x7, and a layer on it */
  assert_int_equal(kernels_of(matmul(mean, TENSOR(512, 2)), SCHEDULE_NESTED, NULL), 1);
}

/* Long reductions with few results use the whole machine, for any length. */
static void test_splits(void **state) {
  struct uop *large = buffer_without_memory(16777216), *prime = buffer_without_memory(16777259);
  int64_t width;
  for (unsigned fast = 0; fast < 2; fast++) {
    int64_t groups = fast ? 264 : 2;
    machine_of = fast ? fast_machine : NULL;
    struct uop *sums[] = {large, prime, uop_unary(g, OP_EXP2, prime)};
    for (int i = 0; i < 3; i++) {
      assert_int_equal(kernels_of(reduce(i == 1 ? OP_MAX : OP_ADD, sums[i], 1), SCHEDULE_PARTIAL, &width), 2);
      assert_in_range(width, groups, 4 * groups);
    }
    /* an expensive value is computed in both steps, not written */
    struct uop *dear = uop_unary(g, OP_SIN, uop_unary(g, OP_EXP2, uop_unary(g, OP_SIN, prime)));
    for (int i = 0; i < 8; i++) dear = uop_unary(g, OP_SQRT, mul(dear, dear));
    assert_int_equal(kernels_of(reduce(OP_ADD, dear, 1), SCHEDULE_PARTIAL, &width), 2);
    struct uop *channels = RESHAPE(buffer_without_memory(64 * 64 * 3136), 64, 64, 3136);
    assert_int_equal(kernels_of(reduce(OP_ADD, channels, 5), SCHEDULE_PARTIAL, &width), fast ? 2 : 1);
    assert_in_range(width, fast ? 264 : 64, fast ? 4096 : 64);
    struct uop *bias = RESHAPE(buffer_without_memory(65536 * 768), 65536, 768);
    assert_int_equal(kernels_of(reduce(OP_ADD, bias, 1), SCHEDULE_PARTIAL, &width), 2);
    assert_in_range(width / 768, fast ? 11 : 2, fast ? 44 : 8);
    assert_int_equal(kernels_of(reduce(OP_ADD, buffer_without_memory(5000), 1), SCHEDULE_PARTIAL, &width), 1);
    assert_int_equal(kernels_of(reduce(OP_ADD, RESHAPE(large, 4096, 4096), 2), SCHEDULE_PARTIAL, &width), 1);
    assert_int_equal(
        kernels_of(matmul(RESHAPE(large, 4096, 4096), RESHAPE(large, 4096, 4096)), SCHEDULE_PARTIAL, &width), 1);
  }
  machine_of = eager_machine;
  for (int round = 0; round < 150; round++) {
    start();
    static const enum op ops[] = {OP_ADD, OP_MAX, OP_MUL};
    enum op op = ops[pick(0, 2)];
    enum dtype t = op == OP_MUL || pick(0, 1) ? DT_I32 : DT_F32;
    int64_t dims[4] = {1, 1, 1, 1}, rank = pick(1, 4);
    for (int i = 0; i < rank; i++) dims[i] = pick(1, rank == 1 ? 8000 : rank == 2 ? 150 : 12);
    dims[pick(0, rank - 1)] = pick(1, rank == 1 ? 8000 : 700);
    if (dims[0] * dims[1] * dims[2] * dims[3] > 30000) continue;
    struct uop *x = tensor(t, (unsigned)rank, dims);
    if (pick(0, 1)) x = uop_unary(g, OP_NEG, x);
    if (pick(0, 1)) x = flip(x, pick(0, (1 << rank) - 1));
    struct uop *r = reduce(op, x, pick(1, (1 << rank) - 1));
    check(pick(0, 1) ? r : uop_unary(g, OP_NEG, r));
  }
  machine_of = NULL;
}

/* The number of elements of the largest reduction that a kernel computes for each of its results. */
static int64_t longest_sum(struct uop *ast) {
  size_t n;
  int64_t longest = 1;
  struct uop **order = uop_toposort(&ast, 1, &n);
  for (size_t i = 0; i < n; i++) {
    int64_t all = 1;
    if (order[i]->op != OP_REDUCE) continue;
    for (unsigned k = 1; k < order[i]->nsrc; k++) all *= order[i]->src[k]->src[0]->arg.i;
    if (all > longest) longest = all;
  }
  free(order);
  return longest;
}

/* No kernel of a sum over a whole matrix, or of a variance, leaves a large part of the work to a few results, whatever
 * the divisors of its sizes are. */
static void test_few_results(void **state) {
  static const int64_t sizes[][2] = {{512, 1024},   {1024, 512},   {1, 1000003}, {1000003, 1},
                                     {1023, 10007}, {10007, 1023}, {2, 500009},  {16384, 64}};
  machine_of = fast_machine;
  for (unsigned i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
    int64_t m = sizes[i / 2][0], n = sizes[i / 2][1];
    struct uop *x = RESHAPE(buffer_without_memory(m * n), m, n), *root = reduce(OP_ADD, x, 3);
    struct schedule s;
    char err[500];
    if (i & 1) {
      struct uop *d = sub(x, EXPAND(root, m, n));
      root = reduce(OP_ADD, mul(d, d), 3);
    }
    assert_int_equal(graph_schedule_on(machine_of, &root, 1, &next_buffer, &s, err, sizeof err), 0);
    assert_int_equal(s.nitems, i & 1 ? 4 : 2);
    for (size_t k = 0; k < s.nitems; k++) {
      int64_t results = s.items[k].bufs[0]->src[0]->arg.i;
      assert_in_range(longest_sum(s.items[k].ast), 1, results > 1 ? m * n / 132 : 4096);
    }
    schedule_free(&s);
  }
  machine_of = NULL;
}

/* Means of columns are the sums of parts. They are not computed in the kernel of a variance's parts, where a work-item
 * would compute all parts of a column. */
static void test_variances_of_columns(void **state) {
  static const int64_t sizes[][2] = {{65536, 1024}, {16384, 2048}, {16384, 256}};
  machine_of = fast_machine;
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    int64_t m = sizes[i][0], n = sizes[i][1];
    struct uop *x = RESHAPE(buffer_without_memory(m * n), m, n);
    struct uop *d = sub(x, EXPAND(reduce(OP_ADD, x, 1), m, n));
    assert_int_equal(kernels_of(reduce(OP_ADD, mul(d, d), 1), SCHEDULE_PARTIAL, NULL), 4);
  }
  machine_of = NULL;
}

/* A product with too few blocks of results for a machine's matrix instructions is summed in parts, which as many
 * workgroups compute as there are processors. */
static void test_product_splits(void **state) {
  static const struct {
    int64_t m, n, k, parts;
    enum dtype t;
  } cases[] = {{256, 256, 16384, 8, DT_BF16},   {256, 256, 1024, 1, DT_BF16},   {64, 128, 65536, 64, DT_BF16},
               {4096, 4096, 16384, 1, DT_BF16}, {200, 1000, 30000, 2, DT_BF16}, {256, 256, 16384, 1, DT_F32}};
  machine_of = matrix_machine;
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t m = cases[i].m, n = cases[i].n, k = cases[i].k, width;
    struct uop *x = RESHAPE(uop_cast(g, RESHAPE(buffer_of(cases[i].t, m * k), m, k), DT_F32), m, 1, k);
    struct uop *w = RESHAPE(uop_cast(g, RESHAPE(buffer_of(cases[i].t, n * k), n, k), DT_F32), 1, n, k);
    struct uop *sum = reduce(OP_ADD, mul(EXPAND(x, m, n, k), EXPAND(w, m, n, k)), 1 << 2);
    assert_int_equal(kernels_of(sum, SCHEDULE_PARTIAL, &width), cases[i].parts > 1 ? 2 : 1);
    assert_int_equal(width, m * n * cases[i].parts);
  }
  machine_of = NULL;
}

/* The number of values that the schedule of the root writes to memory for this reason, by one kernel, which has a part
 * for each. */
static unsigned copies_of(struct uop *root, enum schedule_reason why) {
  struct schedule s;
  char err[500];
  unsigned copies = 0, kernels = 0;
  assert_int_equal(graph_schedule_on(machine_of, &root, 1, &next_buffer, &s, err, sizeof err), 0);
  for (size_t i = 0; i < s.nitems; i++) {
    unsigned n = 0;
    for (unsigned k = 0; k < s.items[i].noutputs; k++) n += s.items[i].why[k] == why;
    copies += n, kernels += n > 0;
    assert_int_equal(s.items[i].ast->src[0]->op == OP_SINK ? s.items[i].ast->nsrc : 1, s.items[i].noutputs);
  }
  assert_in_range(kernels, 0, 1);
  schedule_free(&s);
  return copies;
}

/* Rows of operands of products that begin at any address are first copied to memory where they are aligned, if each
 * element is used often. */
static void test_aligned_rows(void **state) {
  struct schedule_machine aligning = *matrix_machine(0);
  aligning.tile_types = 1u << DT_F32, aligning.align = 16;
  the_machine = &aligning;
  machine_of = given_machine;
  assert_int_equal(check(matmul(TENSOR(130, 70), TENSOR(70, 132))), 2);
  assert_int_equal(check(matmul(TENSOR(130, 72), TENSOR(72, 131))), 2);
  assert_int_equal(check(matmul(TENSOR(130, 70), TENSOR(70, 131))), 2);
  assert_int_equal(check(matmul(TENSOR(130, 70), permute(TENSOR(131, 70), 0x01))), 2);
  assert_int_equal(check(matmul(TENSOR(130, 72), TENSOR(72, 132))), 1);
  assert_int_equal(check(matmul(TENSOR(130, 70), TENSOR(70, 40))), 1); /* 40 uses of an element */
  assert_int_equal(copies_of(matmul(TENSOR(66, 70), TENSOR(70, 67)), SCHEDULE_ALIGNED), 2);
  struct uop *large = RESHAPE(buffer_without_memory(1025 * 1025), 1025, 1025);
  assert_int_equal(copies_of(matmul(TENSOR(20, 1025), large), SCHEDULE_ALIGNED), 2);
  struct uop *x = TENSOR(129, 129);
  assert_int_equal(check(matmul(x, x)), 2);
  /* rows that do not lie along the sum, of which each element has 4 uses in at least 2^22 products */
  aligning.straight_types = 1u << DT_F32;
  assert_int_equal(check(matmul(TENSOR(1024, 70), TENSOR(70, 64))), 2);
  assert_int_equal(check(matmul(permute(TENSOR(70, 64), 0x01), TENSOR(70, 1024))), 2);
  assert_int_equal(copies_of(matmul(TENSOR(1024, 64), TENSOR(64, 64)), SCHEDULE_ALIGNED), 1);
  assert_int_equal(copies_of(matmul(TENSOR(1000, 64), TENSOR(64, 64)), SCHEDULE_ALIGNED), 0);
  assert_int_equal(copies_of(matmul(TENSOR(4, 1024), TENSOR(1024, 1024)), SCHEDULE_ALIGNED), 1);
  assert_int_equal(copies_of(matmul(TENSOR(3, 1024), TENSOR(1024, 2048)), SCHEDULE_ALIGNED), 0);
  assert_int_equal(copies_of(matmul(TENSOR(1024, 64), permute(TENSOR(64, 64), 0x01)), SCHEDULE_ALIGNED), 0);
  machine_of = NULL;
}

/* A convolution of 1 x 1 with the given stride. x: [batch, channels, height, width]; w: [results, channels]. */
static struct uop *pointwise(struct uop *x, int64_t results, int64_t stride) {
  int64_t b = x->shape->dim[0]->arg.i, c = x->shape->dim[1]->arg.i, m = x->shape->dim[2]->arg.i / stride;
  int64_t n = x->shape->dim[3]->arg.i / stride;
  struct uop *y = x;
  if (stride > 1) y = SHRINK(RESHAPE(x, b, c, m, stride, n, stride), 0, b, 0, c, 0, m, 0, 1, 0, n, 0, 1);
  struct uop *w = EXPAND(RESHAPE(TENSOR(results, c), 1, results, c, 1, 1), b, results, c, m, n);
  return reduce(OP_ADD, mul(EXPAND(RESHAPE(y, b, 1, c, m, n), b, results, c, m, n), w), 1 << 2);
}

/* Matrices that are copied as fast with rows at any address are not copied first, unless there are several of them or
 * the sum is divided. If only the rows of the second one lie along the sum, or there are many results, that one is
 * copied, if its rows are not aligned. */
static void test_unaligned_rows(void **state) {
  struct schedule_machine m = *matrix_machine(0);
  m.tile_types = m.unaligned_types = 1u << DT_F32, m.align = 16;
  the_machine = &m;
  machine_of = given_machine;
  assert_int_equal(check(matmul(TENSOR(130, 70), TENSOR(70, 131))), 1);
  assert_int_equal(check(matmul(permute(TENSOR(70, 130), 0x01), TENSOR(70, 131))), 1);
  assert_int_equal(check(matmul(TENSOR(130, 70), permute(TENSOR(131, 70), 0x01))), 1);
  assert_int_equal(copies_of(matmul(TENSOR(2048, 70), permute(TENSOR(2047, 70), 0x01)), SCHEDULE_ALIGNED), 1);
  assert_int_equal(check(matmul(permute(TENSOR(70, 130), 0x01), permute(TENSOR(131, 70), 0x01))), 2);
  assert_int_equal(check(matmul(TENSOR(130, 72), permute(TENSOR(131, 72), 0x01))), 1);
  struct uop *x = RESHAPE(TENSOR(2, 130, 70), 2, 130, 70, 1), *w = RESHAPE(TENSOR(2, 70, 131), 2, 1, 70, 131);
  x = mul(EXPAND(x, 2, 130, 70, 131), EXPAND(w, 2, 130, 70, 131));
  assert_int_equal(check(reduce(OP_ADD, x, 1 << 2)), 2);
  assert_int_equal(copies_of(matmul(TENSOR(129, 131), TENSOR(131, 129)), SCHEDULE_ALIGNED), 0);
  /* the pixels of one image are one axis of columns, those of two images are not; nor are channels after pixels */
  assert_int_equal(check(pointwise(TENSOR(1, 67, 13, 11), 131, 1)), 1);
  assert_int_equal(check(pointwise(TENSOR(2, 67, 13, 11), 131, 1)), 2);
  assert_int_equal(check(pointwise(permute(TENSOR(1, 13, 11, 67), 0x2130), 131, 1)), 2);
  assert_true(kernels_of(matmul(TENSOR(129, 65535), TENSOR(65535, 129)), SCHEDULE_ALIGNED, NULL) > 2);
  assert_int_equal(copies_of(matmul(TENSOR(65, 65535), TENSOR(65535, 129)), SCHEDULE_ALIGNED), 2);
  machine_of = NULL;
}

/* A convolution of 3 x 3: windows of x, summed over channels and the filter. x: [batch, channels, height, width]; w:
 * [results, channels, 3, 3]. */
static struct uop *convolution(struct uop *x, int64_t results) {
  int64_t b = x->shape->dim[0]->arg.i, c = x->shape->dim[1]->arg.i, n = x->shape->dim[2]->arg.i, m = n - 2;
  struct uop *y = RESHAPE(EXPAND(RESHAPE(x, b, c, 1, n, 1, n), b, c, 4, n, 4, n), b, c, 4 * n, 4 * n);
  y = SHRINK(y, 0, b, 0, c, 0, 3 * (n + 1), 0, 3 * (n + 1));
  y = SHRINK(RESHAPE(y, b, c, 3, n + 1, 3, n + 1), 0, b, 0, c, 0, 3, 0, m, 0, 3, 0, m);
  struct uop *w = RESHAPE(TENSOR(results, c, 3, 3), 1, results, c, 3, 1, 3, 1);
  y = EXPAND(RESHAPE(y, b, 1, c, 3, m, 3, m), b, results, c, 3, m, 3, m);
  return reduce(OP_ADD, mul(y, EXPAND(w, b, results, c, 3, m, 3, m)), 1 << 2 | 1 << 3 | 1 << 5);
}

/* Without a window, only an operand whose elements are apart in memory is copied. */
static void test_channels_of_points(void **state) {
  struct schedule_machine aligning = *matrix_machine(0);
  aligning.tile_types = 1u << DT_F32, aligning.channel_align = 16, aligning.align = 0;
  the_machine = &aligning;
  machine_of = given_machine;
  assert_int_equal(copies_of(pointwise(TENSOR(2, 32, 16, 16), 64, 1), SCHEDULE_CHANNELS), 0);
  assert_int_equal(copies_of(pointwise(TENSOR(2, 32, 16, 16), 64, 2), SCHEDULE_CHANNELS), 1);
  machine_of = NULL;
}

/* The operands of a convolution are first copied to memory in which channels are adjacent, if there are enough. */
static void test_channels(void **state) {
  struct schedule_machine aligning = *matrix_machine(0);
  aligning.tile_types = 1u << DT_F32, aligning.channel_align = 16;
  the_machine = &aligning;
  machine_of = given_machine;
  assert_int_equal(check(convolution(TENSOR(2, 32, 10, 10), 32)), 2);
  static const struct {
    int64_t channels, results;
    unsigned copies;
  } cases[] = {{32, 32, 2}, {33, 32, 2}, {32, 8, 2}, {16, 32, 0}, {32, 4, 0}}; /* few channels; 25 uses of an element */
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct uop *y = convolution(TENSOR(2, cases[i].channels, 12, 12), cases[i].results);
    unsigned n = copies_of(y, SCHEDULE_CHANNELS);
    if (n != cases[i].copies) fail_msg("case %u: %u copies", i, n);
  }
  assert_int_equal(copies_of(convolution(TENSOR(64, 16, 58, 58), 16), SCHEDULE_CHANNELS), 2); /* many products */
  struct uop *last = permute(TENSOR(2, 12, 12, 32), 0x2130);
  assert_int_equal(copies_of(convolution(last, 32), SCHEDULE_CHANNELS), 1);
  machine_of = NULL;
}

/* The number of products that the last kernel sums for each result. */
static int64_t summed_products(struct uop *root) {
  struct schedule s;
  char err[500];
  assert_int_equal(graph_schedule_on(machine_of, &root, 1, &next_buffer, &s, err, sizeof err), 0);
  int64_t n = longest_sum(s.items[s.nitems - 1].ast);
  schedule_free(&s);
  return n;
}

/* Products are summed over the padding of their factors' copies, so that kernels do not check each element. If only one
 * factor is copied, the other one is padded. */
static void test_padded_sums(void **state) {
  struct schedule_machine aligning = *matrix_machine(0);
  aligning.tile_types = 1u << DT_F32, aligning.channel_align = 16, aligning.align = 16;
  the_machine = &aligning;
  machine_of = given_machine;
  struct uop *y = convolution(TENSOR(2, 33, 12, 12), 32);
  assert_int_equal(summed_products(y), 40 * 9);
  assert_int_equal(check(convolution(TENSOR(2, 33, 10, 10), 35)), 2);
  y = matmul(TENSOR(130, 70), TENSOR(70, 131)); /* rows of the second factor do not lie along the sum */
  assert_int_equal(summed_products(y), 72);
  assert_int_equal(check(y), 2);
  y = matmul(TENSOR(130, 70), TENSOR(70, 132));
  assert_int_equal(summed_products(y), 72);
  assert_int_equal(check(y), 2);
  y = matmul(permute(TENSOR(70, 130), 0x01), TENSOR(70, 131));
  assert_int_equal(summed_products(y), 70); /* the padding is not along the sum */
  /* the gradient of a convolution's input: channels are summed before the window */
  struct uop *dy = EXPAND(RESHAPE(TENSOR(33, 40), 33, 1, 40, 1), 33, 64, 40, 3);
  struct uop *w = EXPAND(RESHAPE(TENSOR(33, 64, 3), 33, 64, 1, 3), 33, 64, 40, 3);
  y = RESHAPE(reduce(OP_ADD, mul(dy, w), 1 << 0), 64, 40, 3);
  y = reduce(OP_ADD, shear(y, 2, 1, -1, 42), 1 << 2);
  assert_int_equal(summed_products(y), 40 * 3);
  assert_int_equal(check(y), 2);
  machine_of = NULL;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_channels, setup, teardown),
      cmocka_unit_test_setup_teardown(test_channels_of_points, setup, teardown),
      cmocka_unit_test_setup_teardown(test_large_sums, setup, teardown),
      cmocka_unit_test_setup_teardown(test_splits, setup, teardown),
      cmocka_unit_test_setup_teardown(test_few_results, setup, teardown),
      cmocka_unit_test_setup_teardown(test_variances_of_columns, setup, teardown),
      cmocka_unit_test_setup_teardown(test_product_splits, setup, teardown),
      cmocka_unit_test_setup_teardown(test_aligned_rows, setup, teardown),
      cmocka_unit_test_setup_teardown(test_unaligned_rows, setup, teardown),
      cmocka_unit_test_setup_teardown(test_padded_sums, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
