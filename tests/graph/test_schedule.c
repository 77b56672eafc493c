/* Scheduling: the number of kernels of known programs and their results, and random graphs compared with the tensor
 * interpreter. */
#include "tensor.h"
#include "graph/exchange.h"
#include <time.h>

#ifndef RANDOM_GRAPHS
#define RANDOM_GRAPHS 3000
#define RANDOM_OPS    16
#endif

static void test_counts(void **state) {
  assert_int_equal(check(reduce(OP_ADD, mul(TENSOR(2), TENSOR(2)), 1)), 1); /* dot */
  assert_int_equal(check(matmul(TENSOR(4, 5), TENSOR(5, 3))), 1);
  struct uop *bias = EXPAND(RESHAPE(TENSOR(3), 1, 3), 4, 3);
  assert_int_equal(check(uop_binary(g, OP_MAX, add(matmul(TENSOR(4, 5), TENSOR(5, 3)), bias), num(0))),
                   1); /* relu(x @ w + b) */
  struct uop *x = TENSOR(10);
  for (int i = 0; i < 50; i++)
    x = i % 3 == 0 ? add(x, TENSOR(10)) : i % 3 == 1 ? uop_unary(g, OP_NEG, x) : uop_binary(g, OP_MAX, x, num(i - 20));
  assert_int_equal(check(x), 1);

  x = TENSOR(4);
  struct uop *mean = mul(reduce(OP_ADD, x, 1), num(0.25)), *d = sub(x, expand_like(mean, x));
  assert_int_equal(check(mul(reduce(OP_ADD, mul(d, d), 1), num(1 / 3.0))), 1); /* variance */

  assert_int_equal(check(softmax(TENSOR(6, 5))), 1);
  assert_int_equal(check(softmax(TENSOR(1, 7))), 1);
  assert_int_equal(check(softmax(TENSOR(9))), 1);
  assert_int_equal(check(softmax(TENSOR(2, 3, 4))), 1);
  assert_int_equal(check(permute(softmax(TENSOR(3, 4)), 0x01)), 1);
  assert_int_equal(check(matmul(softmax(TENSOR(6, 5)), TENSOR(5, 4))),
                   1); /* narrow: computed by the work-item of the row */
  assert_int_equal(check(matmul(softmax(TENSOR(6, 5)), TENSOR(5, 1))), 1);
  assert_int_equal(check(matmul(softmax(TENSOR(6, 5)), TENSOR(5, 40))), 2);
  struct uop *scores = mul(matmul(TENSOR(6, 4), permute(TENSOR(6, 4), 0x01)), num(0.5));
  assert_int_equal(check(matmul(softmax(scores), TENSOR(6, 4))), 2); /* attention: scores, and the rest */
  struct uop *y = TENSOR(6, 5), *off = sub(y, expand_like(mul(reduce(OP_ADD, y, 2), num(0.2)), y));
  struct uop *scale = uop_unary(g, OP_RECIP, uop_unary(g, OP_SQRT, add(reduce(OP_ADD, mul(off, off), 2), num(1))));
  assert_int_equal(check(mul(off, expand_like(scale, y))), 1); /* layer norm */
  /* two layers: each matmul with its bias and relu is a kernel */
  struct uop *h = uop_binary(g, OP_MAX, matmul(TENSOR(4, 5), TENSOR(5, 6)), num(0));
  assert_int_equal(check(matmul(h, TENSOR(6, 3))), 2);
}

/* A row is reduced twice and then walked again inside a work-item. */
static void test_softmax_form(void **state) {
  struct schedule s;
  char err[200], text[1000];
  struct uop *root = softmax(TENSOR(6, 5));
  assert_int_equal(graph_schedule(&root, 1, &next_buffer, &s, err, sizeof err), 0);
  assert_int_equal(s.nitems, 1);
  assert_non_null(strstr(uop_expr(s.items[0].ast, text, sizeof text), "STORE(p0[((i0*5)+s1)]"));
  assert_int_equal(s.items[0].nbufs, 2);
  assert_int_equal(s.items[0].why[0], SCHEDULE_ROOT);
  assert_int_equal(s.ntemporaries, 0);
  schedule_free(&s);
}

/* The maximum number of operations on one path of an ast. */
static unsigned length_of(struct uop *ast) {
  size_t n;
  struct uop **order = uop_toposort(&ast, 1, &n);
  unsigned *length = calloc(graph_node_count(uop_graph(ast)), sizeof *length), most = 0;
  for (size_t i = 0; i < n; i++) {
    for (unsigned k = 0; k < order[i]->nsrc; k++) {
      unsigned below = length[order[i]->src[k]->id] + 1;
      if (length[order[i]->id] < below) length[order[i]->id] = below;
    }
    if (most < length[order[i]->id]) most = length[order[i]->id];
  }
  free(order);
  free(length);
  return most;
}

static void test_sharing(void **state) {
  struct uop *x = TENSOR(4, 5), *dear = uop_unary(g, OP_SIN, uop_unary(g, OP_EXP2, uop_unary(g, OP_SIN, x)));
  for (int i = 0; i < 8; i++) dear = uop_unary(g, OP_SQRT, mul(dear, dear));
  struct uop *roots[] = {add(dear, num(1)), mul(dear, num(2)), reduce(OP_ADD, dear, 3)};
  assert_int_equal(check_roots(roots, 3), 2); /* the expensive value is written once, and its users are joined */
  struct uop *cheap = add(x, num(1)), *two[] = {mul(cheap, num(2)), mul(cheap, num(3))};
  assert_int_equal(check_roots(two, 2), 1); /* both in one kernel */
  struct uop *sum = reduce(OP_ADD, x, 2), *sums[] = {add(sum, num(1)), mul(sum, num(2))};
  assert_int_equal(check_roots(sums, 2), 1); /* a reduce is computed once */
  struct uop *again[] = {sum, add(sum, num(1)), permute(sum, 0x01), sum};
  assert_int_equal(check_roots(again, 4), 1);

  /* what is computed from positions is not written, however many kernels use it */
  enum { USERS = 40 };
  struct uop *place = mul(add(mul(iota(DT_I32, 20), uop_const_int(g, DT_I32, 3)), uop_const_int(g, DT_I32, 1)),
                          uop_const_int(g, DT_I32, 5)),
             *users[USERS];
  for (int i = 0; i < USERS; i++) users[i] = reduce(OP_ADD, add(tensor(DT_I32, 1, (int64_t[]){20}), place), 1);
  assert_int_equal(check_roots(users, USERS), USERS);

  /* a diamond 200 deep, which has 2^200 paths, and a chain 100000 long */
  struct uop *y = TENSOR(3);
  for (int i = 0; i < 200; i++) y = uop_binary(g, OP_MAX, add(y, num(1)), y);
  struct schedule s;
  char err[200];
  assert_int_equal(graph_schedule(&y, 1, &next_buffer, &s, err, sizeof err), 0);
  assert_int_equal(s.nitems, 1);
  schedule_free(&s);
  for (int i = 0; i < 100000; i++) y = uop_unary(g, i & 1 ? OP_SIN : OP_TRUNC, y);
  assert_int_equal(graph_schedule(&y, 1, &next_buffer, &s, err, sizeof err), 0);
  assert_in_range(s.nitems, 100000 / 512, 100000 / 512 + 2); /* cut to the depth that the compiler can recurse over */
  for (size_t i = 0; i < s.nitems; i++) assert_in_range(length_of(s.items[i].ast), 1, 530);
  schedule_free(&s);
}

/* Kernels stay below the limits of machines and of the compiler: buffers, operations on a path, axes. */
static void test_limits(void **state) {
  struct schedule s;
  char err[200];
  struct uop *sum = TENSOR(3), *stack = NULL, *tree[256];
  for (int i = 0; i < 500; i++) sum = add(sum, TENSOR(3));
  assert_in_range(check(sum), 4, 6);
  for (int i = 0; i < 300; i++) {
    struct uop *row = PAD(RESHAPE(TENSOR(3), 1, 3), i, 299 - i, 0, 0);
    stack = stack ? add(stack, row) : row;
  }
  assert_int_equal(check(stack), 10); /* each row is written to its position, 32 rows per launch */
  for (int i = 0; i < 256; i++) tree[i] = TENSOR(3);
  for (int n = 128; n; n /= 2)
    for (int i = 0; i < n; i++) tree[i] = mul(tree[2 * i], tree[2 * i + 1]);
  assert_in_range(check(tree[0]), 3, 8);
  struct uop *many = sum; /* a buffer that is used repeatedly counts once */
  for (int i = 0; i < 200; i++) many = mul(add(many, sum), tree[1]);
  struct uop *x = TENSOR(3), *y = TENSOR(3), *z = x;
  for (int i = 0; i < 200; i++) z = i & 1 ? sub(z, x) : mul(z, y);
  assert_int_equal(check(z), 1);
  assert_int_equal(graph_schedule((struct uop *[]){sum, stack, tree[0], many}, 4, &next_buffer, &s, err, sizeof err),
                   0);
  for (size_t i = 0; i < s.nitems; i++) assert_in_range(s.items[i].nbufs, 2, 192);
  schedule_free(&s);

  /* 16 axes, normalized over every other one, so that no two adjacent axes can merge */
  int64_t dims[MAX_RANK], axes = 0x5555;
  for (int i = 0; i < MAX_RANK; i++) dims[i] = 2;
  struct uop *t = tensor(DT_F32, MAX_RANK, dims), *flipped = permute(t, INT64_C(0x0123456789abcdef));
  struct uop *mean = reduce(OP_ADD, flipped, axes), *off = sub(flipped, expand_like(mean, flipped));
  struct uop *norm = mul(off, expand_like(reduce(OP_ADD, mul(off, off), axes), off));
  norm = add(norm, expand_like(reduce(OP_MAX, norm, axes ^ 0xffff), norm));
  assert_int_equal(graph_schedule(&norm, 1, &next_buffer, &s, err, sizeof err), 0);
  for (size_t i = 0; i < s.nitems; i++) {
    size_t n, ranges = 0;
    struct uop **order = uop_toposort(&s.items[i].ast, 1, &n);
    for (size_t k = 0; k < n; k++) ranges += order[k]->op == OP_RANGE;
    free(order);
    assert_in_range(ranges, 0, 48);
  }
  schedule_free(&s);
}

/* Repeats p = p[p]: list ranking by pointer doubling. */
static void test_gather_of_itself(void **state) {
  struct uop *p = buffer(DT_I32, 8);
  for (int i = 0; i < 8; i++) memory[p->arg.i].data[i].i = i < 7 ? i + 1 : 7;
  struct uop *q = p, *r = p;
  for (int i = 0; i < 3; i++) { /* the interpreter evaluates a kernel's index at every occurrence */
    q = gather(q, q, 0);
    check(q);
  }
  q = gather(contiguous(q), contiguous(q), 0);
  check(q);
  struct uop *deep[] = {p, p};
  for (int i = 0; i < 60; i++) {
    struct uop *next = gather(q, r, 0);
    r = gather(r, q, 0);
    q = next;
    deep[0] = gather(deep[0], deep[0], 0);
  }
  deep[1] = q;
  for (int i = 0; i < 2; i++) { /* 2^60 nodes if every index were evaluated at each use */
    struct schedule s;
    char err[200];
    assert_int_equal(graph_schedule(&deep[i], 1, &next_buffer, &s, err, sizeof err), 0);
    assert_in_range(graph_node_count(s.graph), 1, 20000);
    assert_in_range(s.nitems, 12, 130);
    schedule_free(&s);
  }
}

static void test_views(void **state) {
  struct uop *b = buffer(DT_F32, 12), *views[] = {b, RESHAPE(b, 3, 4), permute(RESHAPE(b, 3, 4), 0x01), contiguous(b),
                                                  contiguous(RESHAPE(b, 4, 3))};
  for (int i = 0; i < 5; i++) assert_int_equal(check(views[i]), 0);
  assert_int_equal(check(contiguous(views[2])), 1);
  assert_int_equal(check(add(contiguous(permute(RESHAPE(b, 3, 4), 0x01)), num(1))), 1);
  assert_int_equal(check(contiguous(contiguous(add(b, num(1))))), 1);
  assert_int_equal(check(RESHAPE(add(b, num(1)), 2, 6)), 1);
}

static void test_pad(void **state) {
  struct uop *x = TENSOR(3, 4);
  assert_int_equal(check(PAD(x, 1, 2, 0, 3)), 0);
  assert_int_equal(check(contiguous(PAD(x, 1, 2, 0, 3))), 1);
  assert_int_equal(check(PAD(uop_unary(g, OP_EXP2, x), 1, 0, 2, 1)), 1);          /* exp2(0) is 1, padding stays 0 */
  assert_int_equal(check(reduce(OP_MAX, PAD(sub(x, num(9)), 1, 1, 1, 1), 3)), 1); /* all below 0, so the padding wins */
  assert_int_equal(check(add(PAD(x, 1, 0, 0, 0), PAD(x, 0, 1, 0, 0))), 1);
  assert_int_equal(check(PAD(PAD(add(x, num(1)), 1, 1, 1, 1), 1, 1, 1, 1)), 1);
  assert_int_equal(check(flip(SHRINK(PAD(add(x, num(1)), 2, 2, 2, 2), 1, 6, 1, 7), 3)), 1);
  check(PAD(reduce(OP_ADD, x, 2), 1, 1, 1, 1));
  check(RESHAPE(PAD(permute(x, 0x01), 0, 1, 1, 0), 20));
  check(reduce(OP_MUL, PAD(reduce(OP_ADD, x, 1), 1, 0, 0, 2), 3));
}

/* A matrix product is not computed at positions that are mostly padding. */
static void test_padded_products(void **state) {
  struct uop *x = matmul(TENSOR(128, 64), TENSOR(64, 128));
  struct uop *strided = RESHAPE(PAD(RESHAPE(x, 128, 1, 128, 1), 0, 0, 0, 1, 0, 0, 0, 1), 256, 256);
  struct uop *roots[] = {add(strided, num(1)), add(PAD(x, 1, 1, 1, 1), num(1))};
  for (unsigned i = 0; i < 2; i++) {
    struct schedule s;
    char err[500];
    assert_int_equal(graph_schedule(&roots[i], 1, &next_buffer, &s, err, sizeof err), 0);
    assert_int_equal(s.nitems, i ? 1 : 2);
    assert_int_equal(s.items[0].why[0], i ? SCHEDULE_ROOT : SCHEDULE_PADDED);
    schedule_free(&s);
  }
}

/* Whether a schedule of root needs no division: every index is a sum of multiples. */
static bool affine(struct uop *root) {
  struct schedule s;
  char err[500];
  bool good = true;
  assert_int_equal(graph_schedule(&root, 1, &next_buffer, &s, err, sizeof err), 0);
  for (size_t i = 0; i < s.nitems; i++) {
    size_t n;
    struct uop **order = uop_toposort(&s.items[i].ast, 1, &n);
    for (size_t k = 0; k < n; k++) good &= order[k]->op != OP_IDIV && order[k]->op != OP_MOD;
    free(order);
  }
  schedule_free(&s);
  return good;
}

/* Products of groups of matrices, 2^20 in total: [groups, rows, columns]. */
static struct uop *products_of_groups(int64_t groups, int64_t rows, int64_t columns) {
  int64_t sum = (INT64_C(1) << 20) / groups / rows / columns;
  struct uop *x = EXPAND(TENSOR(groups, rows, 1, sum), groups, rows, columns, sum);
  return RESHAPE(reduce(OP_ADD, mul(x, EXPAND(TENSOR(groups, 1, columns, sum), groups, rows, columns, sum)), 8), groups,
                 rows, columns);
}

/* A kernel has loops over the axes of a large sum of products, also if a RESHAPE merges them before other operations,
 * or between two sums. */
static void test_loops_of_merged_axes(void **state) {
  struct uop *x = add(RESHAPE(products_of_groups(4, 8, 16), 32, 16), EXPAND(TENSOR(32, 1), 32, 16));
  x = uop_binary(g, OP_MAX, x, num(0));
  assert_true(affine(x));
  assert_true(affine(mul(RESHAPE(products_of_groups(8, 8, 16), 1024), TENSOR(1024)))); /* three axes */
  assert_true(affine(mul(RESHAPE(permute(products_of_groups(8, 16, 16), 0x021), 16, 128), TENSOR(16, 128))));
  assert_true(affine(SHRINK(RESHAPE(products_of_groups(4, 8, 16), 32, 16), 0, 32, 3, 15)));
  x = shear(RESHAPE(products_of_groups(4, 8, 64), 32, 4, 16), 1, 2, -1, 19);
  assert_true(affine(reduce(OP_ADD, x, 2))); /* sums of rows, like the gradient of a convolution's input */
}

/* A convolution's windows are a shear of its input repeated; the gradient's are sheared back. */
static void test_shear(void **state) {
  struct uop *x = TENSOR(2, 4);
  assert_int_equal(check(shear(x, 0, 1, 1, 3)), 0);
  assert_int_equal(check(contiguous(shear(x, 0, 1, 1, 3))), 1);
  assert_int_equal(check(contiguous(shear(add(x, num(1)), 0, 1, -3, 6))), 1);
  assert_int_equal(check(contiguous(shear(x, 1, 0, 2, 5))), 1);
  assert_int_equal(check(contiguous(shear(TENSOR(3, 0), 0, 1, 1, 3))), 1);
  struct uop *windows = shear(EXPAND(RESHAPE(TENSOR(13), 1, 13), 3, 13), 0, 1, 2, 9),
             *weight = RESHAPE(TENSOR(3), 3, 1);
  struct uop *conv = reduce(OP_ADD, mul(windows, EXPAND(weight, 3, 9)), 1);
  assert_int_equal(check(conv), 1);
  assert_true(affine(conv));
  struct uop *strided =
      SHRINK(RESHAPE(shear(EXPAND(RESHAPE(TENSOR(13), 1, 13), 3, 13), 0, 1, 2, 10), 3, 5, 2), 0, 3, 0, 5, 0, 1);
  strided = reduce(OP_ADD, mul(strided, EXPAND(RESHAPE(weight, 3, 1, 1), 3, 5, 1)), 1);
  assert_int_equal(check(strided), 1);
  assert_true(affine(strided));
  struct uop *back = reduce(OP_ADD, shear(mul(EXPAND(TENSOR(1, 9), 3, 9), EXPAND(weight, 3, 9)), 0, 1, -2, 13), 1);
  assert_int_equal(check(back), 1);
  assert_true(affine(back));
}

/* Schedules root, which must become one kernel that writes a given number of elements. */
static struct schedule only_kernel(struct uop *root, int64_t writes) {
  struct schedule s;
  char err[500];
  assert_int_equal(graph_schedule(&root, 1, &next_buffer, &s, err, sizeof err), 0);
  assert_int_equal(s.nitems, 1);
  assert_int_equal(s.items[0].noutputs, 1);
  assert_int_equal(s.items[0].bufs[0]->src[0]->arg.i, writes);
  return s;
}

/* A convolution's gradient with respect to its input: [out, in, kernel, outputs] summed over out, sheared back to the
 * positions of the input, summed over the kernel. */
static struct uop *conv_back(struct uop *dy, struct uop *weight, int64_t stride, int64_t dilation, int64_t places) {
  int64_t out = dim_of(weight, 0), in = dim_of(weight, 1), kernel = dim_of(weight, 2), n = dim_of(dy, 1);
  struct uop *x = mul(EXPAND(RESHAPE(dy, out, 1, 1, n), out, in, kernel, n),
                      EXPAND(RESHAPE(weight, out, in, kernel, 1), out, in, kernel, n));
  x = reduce(OP_ADD, x, 1);
  if (stride > 1)
    x = RESHAPE(PAD(RESHAPE(x, 1, in, kernel, n, 1), 0, 0, 0, 0, 0, 0, 0, 0, 0, stride - 1), 1, in, kernel, n * stride);
  return reduce(OP_ADD, shear(x, 2, 3, -dilation, places), 4);
}

/* The common host, once with and once without skipping products that are 0. */
static const struct schedule_machine *host(bool skips) {
  static struct schedule_machine m = {.groups = 64,
                                      .side = 8,
                                      .columns = 1024,
                                      .access_ns = 5,
                                      .launch_ns = 2000,
                                      .bytes_per_ns = 20,
                                      .flops_per_ns = 200};
  m.skips = skips;
  return &m;
}
static const struct schedule_machine *skipping_host(unsigned device) { return host(true); }
static const struct schedule_machine *other_host(unsigned device) { return host(false); }

/* The gradient of 3 x 3 windows at 8 x 8 positions has 1.8 times as many products, including padding, as the forward
 * pass. A machine that skips rows of zero products computes it as one sum. */
static void test_sums_with_much_padding(void **state) {
  enum { B = 64, C = 64, K = 3, N = 6 };
  struct uop *x = mul(EXPAND(RESHAPE(TENSOR(B, C, N, N), B, C, 1, 1, 1, N, N), B, C, C, K, K, N, N),
                      EXPAND(RESHAPE(TENSOR(C, C, K, K), 1, C, C, K, K, 1, 1), B, C, C, K, K, N, N));
  x = reduce(OP_ADD, shear(shear(reduce(OP_ADD, x, 2), 3, 5, -1, N + K - 1), 4, 6, -1, N + K - 1), 24);
  for (unsigned skips = 0; skips < 2; skips++) {
    struct schedule s;
    char err[500];
    assert_int_equal(graph_schedule_on(skips ? skipping_host : other_host, &x, 1, &next_buffer, &s, err, sizeof err),
                     0);
    assert_int_equal(s.nitems, skips ? 1 : 2);
    schedule_free(&s);
  }
}

/* A host reads a large matrix row by row for each of several reductions along its columns. In other cases one kernel
 * reads it. */
static void test_reductions_of_columns(void **state) {
  static const struct {
    int64_t rows, columns;
    uint32_t axis;    /* mask of the reduced one */
    unsigned kernels; /* of a maximum and a sum; those of a softmax have one more for the results */
  } cases[] = {{64, 1 << 16, 1, 2}, {1 << 16, 64, 2, 1}, {16, 1 << 15, 1, 1}};
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t m = cases[i].rows, n = cases[i].columns;
    struct uop *x = TENSOR(m, n), *top = EXPAND(reduce(OP_MAX, x, cases[i].axis), m, n);
    struct uop *power = uop_unary(g, OP_EXP2, sub(x, top)), *sum = reduce(OP_ADD, power, cases[i].axis);
    struct uop *roots[] = {sum, mul(power, uop_unary(g, OP_RECIP, EXPAND(sum, m, n)))};
    for (unsigned r = 0; r < 2; r++) {
      struct schedule s;
      char err[500];
      assert_int_equal(graph_schedule_on(other_host, &roots[r], 1, &next_buffer, &s, err, sizeof err), 0);
      assert_int_equal(s.nitems, cases[i].kernels + (r && cases[i].kernels > 1));
      schedule_free(&s);
    }
  }
}

/* A sum over movement of a sum becomes one sum. Only one factor has the padding's condition: the weights are read
 * everywhere. */
static void test_sum_of_moved_sum(void **state) {
  struct uop *back = conv_back(TENSOR(4, 6), TENSOR(4, 3, 3), 1, 1, 8);
  assert_int_equal(check(back), 1);
  assert_true(affine(back));
  assert_int_equal(check(conv_back(TENSOR(4, 6), TENSOR(4, 3, 5), 1, 1, 10)), 1);
  assert_int_equal(check(conv_back(TENSOR(4, 6), TENSOR(4, 3, 3), 1, 2, 10)), 1);
  assert_int_equal(check(conv_back(TENSOR(4, 6), TENSOR(4, 3, 3), 2, 1, 13)), 1);
  assert_int_equal(check(SHRINK(conv_back(TENSOR(4, 6), TENSOR(4, 3, 3), 1, 1, 8), 0, 1, 0, 3, 0, 1, 1, 7)), 1);
  /* inside a third sum, as in the gradient of the previous layer, the two sums become a separate kernel */
  assert_int_equal(check(reduce(OP_ADD, mul(back, TENSOR(1, 3, 1, 8)), 8)), 2);
  struct schedule s = only_kernel(back, 3 * 8);
  size_t n, reduces = 0, masked = 0, loads = 0;
  struct uop **order = uop_toposort(&s.items[0].ast, 1, &n);
  for (size_t i = 0; i < n; i++) {
    reduces += order[i]->op == OP_REDUCE;
    loads += order[i]->op == OP_LOAD;
    masked += order[i]->op == OP_LOAD && order[i]->src[0]->nsrc == 3;
    assert_int_not_equal(order[i]->op, OP_WHERE);
  }
  assert_true(reduces == 1 && loads == 2 && masked == 1);
  free(order);
  schedule_free(&s);
  /* any value may be summed, with any movement between the two sums; the same for integers */
  struct uop *x = TENSOR(3, 4, 5), *e = uop_binary(g, OP_MAX, sub(x, num(2)), num(-3));
  assert_int_equal(check(reduce(OP_ADD, PAD(permute(reduce(OP_ADD, e, 1), 0x021), 1, 0, 0, 2, 1, 1), 2)), 1);
  assert_int_equal(check(reduce(OP_ADD, flip(PAD(reduce(OP_ADD, reduce(OP_ADD, x, 1), 2), 0, 0, 1, 0, 2, 2), 4), 6)),
                   1);
  struct uop *whole = tensor(DT_I32, 3, (int64_t[]){3, 4, 5});
  assert_int_equal(check(reduce(OP_ADD, PAD(reduce(OP_ADD, mul(whole, whole), 1), 0, 0, 0, 2, 1, 1), 2)), 1);
  /* only for sums, and not if the inner one has another user */
  check(reduce(OP_MAX, PAD(reduce(OP_ADD, mul(x, x), 1), 0, 0, 0, 2, 1, 1), 2));
  check(reduce(OP_ADD, PAD(reduce(OP_MAX, mul(x, x), 1), 0, 0, 0, 2, 1, 1), 2));
  struct uop *inner = reduce(OP_ADD, mul(x, x), 1), *both[] = {reduce(OP_ADD, shear(inner, 1, 2, 1, 5), 2), inner};
  assert_int_equal(check_roots(both, 2), 2);
  /* if all elements of a matrix product are added up, no factor is reused */
  struct uop *all = reduce(OP_ADD, matmul(TENSOR(256, 256), TENSOR(256, 256)), 3);
  char err[500];
  assert_int_equal(graph_schedule(&all, 1, &next_buffer, &s, err, sizeof err), 0);
  assert_true(s.nitems > 1);
  schedule_free(&s);
  /* if merging means four times the work (stride 2 by 2), the inner sum is written, unless the machine computes fast
   * relative to its memory */
  struct uop *dy = TENSOR(128, 16, 16), *w = TENSOR(128, 128, 3, 3), *strided;
  strided = mul(EXPAND(RESHAPE(dy, 128, 1, 1, 1, 16, 16), 128, 128, 3, 3, 16, 16),
                EXPAND(RESHAPE(w, 128, 128, 3, 3, 1, 1), 128, 128, 3, 3, 16, 16));
  strided = PAD(RESHAPE(reduce(OP_ADD, strided, 1), 128, 3, 3, 16, 1, 16, 1), 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1);
  strided = shear(shear(RESHAPE(strided, 128, 3, 3, 32, 32), 1, 3, -1, 34), 2, 4, -1, 34);
  strided = reduce(OP_ADD, strided, 6);
  assert_int_equal(graph_schedule(&strided, 1, &next_buffer, &s, err, sizeof err), 0);
  assert_int_equal(s.nitems, 2);
  assert_int_equal(s.items[0].why[0], SCHEDULE_NESTED);
  schedule_free(&s);
  assert_int_equal(graph_schedule_on(fast_machine, &strided, 1, &next_buffer, &s, err, sizeof err), 0);
  assert_int_equal(s.nitems, 1);
  schedule_free(&s);
}

static void test_iota(void **state) {
  assert_int_equal(check(iota(DT_I32, 7)), 1);
  assert_int_equal(check(add(uop_cast(g, RESHAPE(iota(DT_I64, 6), 2, 3), DT_F32), TENSOR(2, 3))), 1);
  assert_int_equal(check(contiguous(PAD(flip(iota(DT_U8, 5), 1), 2, 1))), 1);
  struct uop *row = EXPAND(RESHAPE(iota(DT_I32, 4), 1, 4), 4, 4),
             *column = EXPAND(RESHAPE(iota(DT_I32, 4), 4, 1), 4, 4);
  struct uop *triangle = uop_where(g, uop_binary(g, OP_CMPLT, column, row), num(0), TENSOR(4, 4));
  assert_int_equal(check(reduce(OP_ADD, triangle, 2)), 1);
  assert_int_equal(check(iota(DT_I32, 0)), 0);
}

static void test_gather(void **state) {
  static const enum dtype types[] = {DT_I8, DT_U8, DT_I16, DT_I32, DT_U32, DT_I64, DT_U64};
  for (int i = 0; i < 7; i++) {
    enum dtype t = types[i];
    assert_int_equal(check(gather(TENSOR(4, 3), PLACES(t, 4, 6, 3), 0)), 1);
    assert_int_equal(check(gather(TENSOR(4, 3), PLACES(t, 3, 4, 5), 1)), 1);
  }
  struct uop *table = TENSOR(7, 4), *rows = EXPAND(RESHAPE(PLACES(DT_I32, 7, 5), 5, 1), 5, 4);
  assert_int_equal(check(gather(table, rows, 0)), 1); /* an embedding */
  assert_int_equal(check(gather(uop_unary(g, OP_EXP2, add(table, num(1))), rows, 0)), 1);
  assert_int_equal(
      check(reduce(OP_ADD, gather(PAD(table, 1, 0, 2, 0), EXPAND(RESHAPE(PLACES(DT_I64, 8, 5), 5, 1), 5, 6), 0), 2)),
      1);
  /* arithmetic on the index is done in the same kernel: indices counted from the end */
  struct uop *p = PLACES(DT_I32, 7, 5), *zero = uop_const_int(g, DT_I32, 0), *seven = uop_const_int(g, DT_I32, 7);
  struct uop *wrapped = uop_where(g, uop_binary(g, OP_CMPLT, p, zero), add(p, seven), p);
  assert_int_equal(check(gather(table, EXPAND(RESHAPE(wrapped, 5, 1), 5, 4), 0)), 1);
  /* a constant index is as good as a view */
  struct uop *every_other = mul(iota(DT_I32, 3), uop_const_int(g, DT_I32, 2));
  assert_int_equal(check(gather(table, EXPAND(RESHAPE(every_other, 3, 1), 3, 4), 0)), 1);
  struct schedule s;
  char err[200], text[1000];
  struct uop *root = contiguous(
      gather(TENSOR(8), add(mul(iota(DT_I32, 3), uop_const_int(g, DT_I32, 2)), uop_const_int(g, DT_I32, 1)), 0));
  assert_int_equal(graph_schedule(&root, 1, &next_buffer, &s, err, sizeof err), 0);
  assert_string_equal(uop_expr(s.items[0].ast, text, sizeof text), "SINK(STORE(p0[i0], LOAD(p1[((i0*2)+1)])))");
  schedule_free(&s);
  /* a reduced or expensive index is realized first */
  struct uop *sum = reduce(OP_MAX, PLACES(DT_I32, 7, 5, 3), 2);
  assert_int_equal(check(gather(table, EXPAND(sum, 5, 4), 0)), 2);
  for (int i = 0; i < 40; i++) wrapped = uop_binary(g, i & 1 ? OP_XOR : OP_ADD, wrapped, p);
  assert_int_equal(check(gather(table, EXPAND(RESHAPE(wrapped, 5, 1), 5, 4), 0)), 2);
  /* an index that must be in memory is written, although the GATHER is visited before the CONTIGUOUS */
  root = contiguous(gather(table, EXPAND(RESHAPE(contiguous(uop_binary(g, OP_XOR, p, seven)), 5, 1), 5, 4), 0));
  assert_int_equal(graph_schedule(&root, 1, &next_buffer, &s, err, sizeof err), 0);
  assert_int_equal(s.nitems, 2);
  assert_null(strchr(uop_expr(s.items[1].ast, text, sizeof text), '^'));
  schedule_free(&s);
  /* gather of a gather, a gathered index, gathered reductions, padding around and below */
  struct uop *twice = gather(gather(table, rows, 0), EXPAND(RESHAPE(PLACES(DT_I32, 4, 6), 1, 6), 5, 6), 1);
  assert_int_equal(check(twice), 1);
  struct uop *through = gather(PLACES(DT_I32, 7, 5), PLACES(DT_I32, 5, 6), 0);
  assert_int_equal(check(gather(TENSOR(7), through, 0)), 1);
  check(gather(softmax(table), rows, 0));
  check(gather(PAD(table, 1, 2, 0, 0), EXPAND(PLACES(DT_I32, 10, 8, 1), 8, 4), 0));
  check(PAD(gather(PAD(table, 1, 2, 0, 0), EXPAND(PLACES(DT_I32, 10, 8, 1), 8, 4), 0), 1, 1, 2, 2));
  struct uop *again = RESHAPE(EXPAND(RESHAPE(PLACES(DT_I32, 9, 5), 1, 5), 2, 5), 10);
  check(gather(PAD(TENSOR(3, 10), 3, 3, 0, 0), EXPAND(RESHAPE(again, 1, 10), 1, 10), 0));
  check(gather(SHRINK(PAD(TENSOR(10, 3), 0, 2, 0, 0), 0, 12, 0, 3), PLACES(DT_I32, 3, 12, 1), 1));
  check(gather(TENSOR(0, 3), PLACES(DT_I32, 2, 2, 3), 0));
  assert_int_equal(check(gather(TENSOR(2, 3), PLACES(DT_I32, 2, 0, 3), 0)), 0);
  check(gather(copy_to(TENSOR(7), 1), copy_to(PLACES(DT_I32, 7, 4), 1), 0));
}

static void test_assign(void **state) {
  struct uop *b = buffer(DT_F32, 12), *x = RESHAPE(b, 3, 4);
  assert_int_equal(check(assign(b, b, add(buffer(DT_F32, 12), num(1)))), 1);
  assert_int_equal(check(assign(x, x, full_like(x, 2))), 1);
  assert_int_equal(check(assign(b, x, TENSOR(3, 4))), 1);
  assert_int_equal(check(assign(x, x, add(x, num(1)))), 1);                   /* in place */
  assert_int_equal(check(assign(x, x, uop_unary(g, OP_NEG, flip(x, 1)))), 2); /* other elements: a temporary */
  assert_int_equal(check(assign(x, SHRINK(x, 1, 3, 0, 2), matmul(TENSOR(2, 5), TENSOR(5, 2)))), 1);
  assert_int_equal(check(assign(x, SHRINK(x, 1, 3, 0, 2), add(SHRINK(x, 1, 3, 0, 2), num(1)))), 1);
  assert_int_equal(check(assign(x, SHRINK(x, 1, 3, 0, 4), SHRINK(x, 0, 2, 0, 4))), 2); /* shifted rows overlap */
  assert_int_equal(check(assign(x, permute(x, 0x01), TENSOR(4, 3))), 1);
  assert_int_equal(check(assign(x, PAD(x, 1, 1, 0, 0), TENSOR(5, 4))), 1); /* values assigned to padding are dropped */
  assert_int_equal(check(assign(x, SHRINK(x, 1, 1, 0, 4), TENSOR(0, 4))), 0);
  /* adjacent pieces, as cat writes them */
  struct uop *c = RESHAPE(buffer(DT_F32, 20), 5, 4);
  struct uop *both = assign(c, SHRINK(c, 0, 2, 0, 4), add(TENSOR(2, 4), num(1)));
  both = assign(both, SHRINK(both, 2, 5, 0, 4), x);
  assert_int_equal(check(both), 2);
  both = assign(c, SHRINK(c, 0, 2, 0, 4), add(TENSOR(2, 4), num(1)));
  both =
      assign(both, SHRINK(both, 1, 4, 0, 4), add(SHRINK(both, 0, 3, 0, 4), num(1))); /* reads what was just written */
  check(both);
  check(add(both, num(3)));
  /* the old contents are read first, for any order of the roots */
  struct uop *roots[] = {assign(b, b, add(b, num(1))), reduce(OP_ADD, x, 3), permute(add(x, num(2)), 0x01)};
  check_roots(roots, 3);
  struct uop *swapped[] = {reduce(OP_ADD, x, 3), assign(b, b, add(b, num(1)))};
  assert_int_equal(check_roots(swapped, 2), 2);
  /* uses old and new contents: the old ones are copied first */
  struct uop *now = assign(b, b, uop_unary(g, OP_EXP2, b)), *difference = sub(flip(now, 1), b);
  check(difference);
  struct uop *twice = assign(now, now, add(now, num(1)));
  struct uop *three[] = {twice, add(flip(now, 1), flip(b, 1)), reduce(OP_ADD, twice, 1)};
  check_roots(three, 3);
  /* an optimizer: moments and parameter in one kernel */
  struct uop *m = buffer(DT_F32, 12), *v = buffer(DT_F32, 12), *grad = reduce(OP_ADD, TENSOR(3, 12), 1);
  grad = RESHAPE(grad, 12);
  struct uop *m1 = assign(m, m, add(mul(m, num(0.5)), grad)), *v1 = assign(v, v, add(v, mul(grad, grad)));
  struct uop *step[] = {assign(b, b, sub(b, mul(m1, v1))), m1, v1};
  assert_int_equal(check_roots(step, 3), 1);
  struct uop *by_value = add(mul(m, num(0.5)), grad);
  struct uop *plain[] = {assign(b, b, sub(b, by_value)), assign(m, m, by_value)};
  assert_int_equal(check_roots(plain, 2), 1);
  struct schedule s;
  char err[300];
  struct uop *two[] = {assign(b, b, full_like(b, 1)), assign(b, b, full_like(b, 2))};
  assert_true(graph_schedule(two, 2, &next_buffer, &s, err, sizeof err) < 0);
  assert_non_null(strstr(err, "two ASSIGNs"));
  struct uop *lost[] = {assign(b, b, full_like(b, 1)), x, permute(x, 0x01)}; /* roots are copied first */
  check_roots(lost, 3);
  struct uop *repeats = assign(m, EXPAND(RESHAPE(m, 1, 12), 2, 12), TENSOR(2, 12));
  assert_true(graph_schedule(&repeats, 1, &next_buffer, &s, err, sizeof err) < 0);
  /* copying back the whole memory may be done by swapping */
  struct uop *turned = assign(b, b, flip(b, 1));
  assert_int_equal(graph_schedule(&turned, 1, &next_buffer, &s, err, sizeof err), 0);
  assert_int_equal(s.nitems, 2);
  assert_true(s.items[1].swaps && !s.items[0].swaps);
  assert_int_equal(s.items[0].why[0], SCHEDULE_OVERWRITTEN);
  assert_int_equal(s.items[1].why[0], SCHEDULE_ASSIGNED);
  schedule_free(&s);
}

/* Kernels that differ only in the slice of memory that they access are the same kernel: a kernel gets the window that
 * it accesses, which starts at a multiple of 256 bytes. */
static void test_windows(void **state) {
  struct uop *x = TENSOR(40, 64), *w = TENSOR(64, 64), *h = TENSOR(1, 64);
  struct schedule s;
  char err[500];
  for (int i = 0; i < 40; i++) {
    h = contiguous(add(SHRINK(x, i, i + 1, 0, 64), matmul(h, w)));
  }
  assert_int_equal(graph_schedule(&h, 1, &next_buffer, &s, err, sizeof err), 0);
  assert_int_equal(s.nitems, 40);
  for (size_t i = 2; i < 40; i++) {
    const struct schedule_item *item = &s.items[i];
    assert_true(item->ast->hash == s.items[1].ast->hash);
    int64_t offset = 0;
    for (unsigned k = 0; k < item->nbufs; k++) offset += item->offset[k];
    assert_int_equal(offset, 64 * i);
  }
  schedule_free(&s);
  check(mul(SHRINK(TENSOR(9, 100), 7, 8, 3, 50), SHRINK(TENSOR(9, 100), 1, 2, 53, 100)));
  check(PAD(SHRINK(TENSOR(9, 100), 7, 9, 3, 50), 1, 1, 2, 2));
  check(flip(SHRINK(TENSOR(900), 500, 600), 1));
  check(gather(SHRINK(TENSOR(900), 500, 600), SHRINK(PLACES(DT_I32, 100, 700), 600, 640), 0));
  struct uop *b = buffer(DT_F32, 900);
  check(assign(b, SHRINK(b, 300, 400), add(SHRINK(b, 300, 400), num(1))));
  struct uop *slice = add(SHRINK(TENSOR(900), 700, 750), num(1));
  s = only_kernel(slice, 50);
  assert_int_equal(s.items[0].offset[1], 640);
  schedule_free(&s);
}

/* n tensors concatenated along an axis: as a sum (the form of gradients of slices), or as choices by index, a chain or
 * a balanced tree (cat). */
enum form { SUM, CHAIN, TREE, FORMS };
static struct uop *beside(struct uop **x, unsigned n, unsigned axis, enum form form, int64_t begin, int64_t total) {
  int64_t pads[2 * MAX_RANK] = {0}, dims[MAX_RANK], middle = begin;
  unsigned rank = x[0]->shape->rank, half = form == TREE ? n / 2 : 1;
  if (n == 1) {
    pads[2 * axis] = begin, pads[2 * axis + 1] = total - begin - dim_of(x[0], axis);
    return movement(OP_PAD, x[0], 2 * rank, pads);
  }
  for (unsigned i = 0; i < half; i++) middle += dim_of(x[i], axis);
  struct uop *left = beside(x, half, axis, form, begin, total);
  struct uop *right = beside(x + half, n - half, axis, form, middle, total);
  if (form == SUM) return add(right, left);
  for (unsigned k = 0; k < rank; k++) dims[k] = k == axis ? total : 1;
  struct uop *place = expand_like(movement(OP_RESHAPE, iota(DT_I32, total), rank, dims), left);
  return uop_where(g, uop_binary(g, OP_CMPLT, place, uop_const_int(g, DT_I32, middle)), left, right);
}
static struct uop *side_by_side(struct uop **x, unsigned n, unsigned axis, enum form form) {
  int64_t total = 0;
  for (unsigned i = 0; i < n; i++) total += dim_of(x[i], axis);
  return beside(x, n, axis, form, 0, total);
}

/* The number of different asts of a recurrence of n steps whose state is computed from slices of its inputs. */
static size_t recurrence(unsigned n) {
  struct schedule s;
  char err[500];
  size_t asts = 0;
  struct uop *x = TENSOR(n, 256), *w = TENSOR(256, 256), *h = TENSOR(1, 256), *steps[32];
  for (unsigned i = 0; i < n; i++) {
    struct uop *z = uop_unary(g, OP_EXP2, add(matmul(h, w), SHRINK(x, i, i + 1, 0, 256)));
    for (unsigned k = 0; k < 4; k++) steps[k] = SHRINK(z, 0, 1, 64 * k, 64 * k + 64);
    h = side_by_side(steps, 4, 1, i & 1 ? TREE : SUM);
  }
  assert_int_equal(graph_schedule_on(machine_of, &h, 1, &next_buffer, &s, err, sizeof err), 0);
  assert_true(s.nitems >= n);
  for (size_t i = 0; i < s.nitems; i++) {
    const struct schedule_item *first = &s.items[s.items[i].first];
    assert_ptr_equal(s.items[i].ast, first->ast);
    assert_int_equal(s.items[i].nbufs, first->nbufs);
    asts += s.items[i].first == i;
  }
  schedule_free(&s);
  return asts;
}

/* More steps need no more kernels, whether or not results are written over operands. */
static void test_recurrences(void **state) {
  for (unsigned m = 0; m < 2; m++) {
    machine_of = m ? eager_machine : NULL;
    assert_int_equal(recurrence(600), recurrence(60));
  }
  machine_of = NULL;
}

/* More tensors than a node has sources can be concatenated. */
static void test_very_many_joined(void **state) {
  enum { MANY = 70000 };
  struct uop **x = calloc(MANY, sizeof(struct uop *)), *all = TENSOR(MANY), *w = NULL;
  struct schedule s;
  char err[500];
  assert_non_null(x);
  for (unsigned i = 0; i < MANY; i++) x[i] = uop_unary(g, OP_NEG, SHRINK(all, MANY - 1 - i, MANY - i));
  w = side_by_side(x, MANY, 0, TREE);
  if (graph_schedule(&w, 1, &next_buffer, &s, err, sizeof err)) fail_msg("%s", err);
  assert_in_range(s.nitems, MANY, MANY + 2);
  assert_int_equal(s.noutputs, 1);
  schedule_free(&s);
  free(x);
}

/* Each of many concatenated tensors is computed into its part of the result; a few remain an expression. */
static void test_joins(void **state) {
  struct uop *x[40], *w = TENSOR(3, 3);
  struct schedule s;
  char err[500];
  for (enum form form = SUM; form < FORMS; form++) {
    for (unsigned i = 0; i < 40; i++) x[i] = i % 3 ? TENSOR(1 + i % 2, 3) : uop_unary(g, OP_NEG, TENSOR(2, 3));
    assert_int_equal(check(side_by_side(x, 40, 0, form)), 2);
    assert_int_equal(check(side_by_side(x, 3, 0, form)), 1);
    struct uop *all = side_by_side(x, 40, 0, form);
    assert_int_equal(check(add(all, num(1))), 3); /* and its user */
    check(SHRINK(all, 5, 20, 1, 3));
    check(reduce(OP_ADD, all, 1));
    x[7] = matmul(TENSOR(4, 3), w);
    assert_int_equal(check(side_by_side(x, 40, 0, form)), 3);
    for (unsigned i = 0; i < 40; i++) x[i] = permute(TENSOR(1 + i % 2, 3), 0x01);
    assert_int_equal(check(side_by_side(x, 40, 1, form)), 40);
    for (unsigned i = 0; i < 12; i++) x[i] = TENSOR(i < 11 ? 1 : 500, 70);
    struct uop *last = side_by_side(x, 12, 0, form);
    assert_int_equal(graph_schedule(&last, 1, &next_buffer, &s, err, sizeof err), 0);
    assert_int_equal(s.nitems, 1);
    assert_int_equal(s.items[0].why[0], SCHEDULE_JOINED);
    assert_int_equal(s.items[0].ast->nsrc, 12);
    assert_int_equal(s.items[0].noutputs, 1);
    schedule_free(&s);
  }
  /* Tensors that have to be written anyway are written to the result, unless something else reads one of them, their
   * rows begin at other addresses than those of vectors, or one of them need not be written. */
  struct uop *square = TENSOR(8, 8), *odd = TENSOR(7, 7);
  for (enum form form = SUM; form < FORMS; form++)
    for (unsigned axis = 0; axis < 2; axis++) {
      for (unsigned i = 0; i < 3; i++) x[i] = contiguous(matmul(TENSOR(8, 8), square));
      struct uop *both[] = {side_by_side(x, 3, axis, form), add(x[1], num(1))};
      assert_int_equal(check(both[0]), 3);
      assert_int_equal(check_roots(both, 2), 4);
      both[1] = x[2];
      assert_int_equal(check_roots(both, 2), 4);
      x[0] = TENSOR(8, 8);
      assert_int_equal(check(side_by_side(x, 3, axis, form)), 3);
      for (unsigned i = 0; i < 3; i++) x[i] = contiguous(matmul(TENSOR(7, 7), odd));
      assert_int_equal(check(side_by_side(x, 3, axis, form)), 4);
    }
  /* a scalar, a gap, integers, overwritten memory, several users, and the sign of zero */
  for (unsigned i = 0; i < 40; i++) x[i] = full_like(TENSOR(2), i);
  check(side_by_side(x, 40, 0, CHAIN));
  struct uop *sum = NULL, *b = buffer(DT_F32, 120);
  for (unsigned i = 0; i < 40; i++) {
    struct uop *part = i == 11 ? full_like(TENSOR(2), -0.0) : TENSOR(2);
    if (i != 5) sum = sum ? add(PAD(part, 3 * i, 118 - 3 * i), sum) : PAD(part, 3 * i, 118 - 3 * i);
  }
  check(sum);
  check(assign(b, b, add(sum, b)));
  struct uop *roots[] = {sum, mul(sum, sum), reduce(OP_MAX, sum, 1), flip(sum, 1)};
  check_roots(roots, 4);
  check(add(TENSOR(120), sum)); /* the rest of a longer sum */
  check(add(PAD(TENSOR(3), 4, 113), sum));
  for (unsigned i = 0; i < 40; i++) x[i] = tensor(DT_I32, 1, (int64_t[]){1 + i % 3});
  check(side_by_side(x, 40, 0, SUM));
}

/* The number of REDUCEs in the kernels of a schedule. */
static unsigned reductions(struct uop *root) {
  struct schedule s;
  char err[500];
  unsigned found = 0;
  assert_int_equal(graph_schedule_on(machine_of, &root, 1, &next_buffer, &s, err, sizeof err), 0);
  for (size_t i = 0; i < s.nitems; i++) {
    size_t n;
    struct uop **order = uop_toposort(&s.items[i].ast, 1, &n);
    for (size_t k = 0; k < n; k++) found += order[k]->op == OP_REDUCE;
    free(order);
  }
  schedule_free(&s);
  check(root);
  return found;
}

/* A reduction of values that are its identity element at all positions but one is no loop. */
static void test_selections(void **state) {
  struct uop *labels = EXPAND(RESHAPE(PLACES(DT_I32, 9, 1, 5), 5, 1), 5, 9),
             *hit = uop_binary(g, OP_CMPEQ, labels, EXPAND(RESHAPE(iota(DT_I32, 9), 1, 9), 5, 9)),
             *row = EXPAND(TENSOR(5, 1), 5, 9), *x = uop_where(g, hit, row, num(0));
  assert_int_equal(reductions(reduce(OP_ADD, x, 2)), 0);
  assert_int_equal(reductions(reduce(OP_ADD, uop_unary(g, OP_NEG, x), 2)), 0);
  assert_int_equal(reductions(reduce(OP_ADD, mul(x, num(3)), 2)), 0);
  assert_int_equal(reductions(reduce(OP_ADD, uop_cast(g, hit, DT_I64), 2)), 0);
  assert_int_equal(reductions(reduce(OP_MAX, uop_where(g, hit, row, num(-INFINITY)), 2)), 0);
  assert_int_equal(reductions(reduce(OP_ADD, x, 3)), 1);                     /* over the rows */
  assert_int_equal(reductions(reduce(OP_ADD, add(x, num(1)), 2)), 1);        /* 1 at the other positions */
  assert_int_equal(reductions(reduce(OP_ADD, mul(x, num(INFINITY)), 2)), 1); /* NaN at the other positions */
  assert_int_equal(reductions(reduce(OP_MAX, x, 2)), 1);                     /* 0 is not the identity of max */
  assert_int_equal(reductions(reduce(OP_ADD, uop_where(g, hit, TENSOR(5, 9), num(0)), 2)), 1);
  /* positions of a type that holds them all, and of one in which two positions are equal */
  for (int i = 0; i < 2; i++) {
    enum { COLUMNS = 140 };
    enum dtype t = i ? DT_I8 : DT_I16;
    struct uop *at = EXPAND(RESHAPE(iota(t, COLUMNS), 1, COLUMNS), 5, COLUMNS),
               *label = EXPAND(RESHAPE(PLACES(t, 9, 1, 5), 5, 1), 5, COLUMNS);
    row = EXPAND(TENSOR(5, 1), 5, COLUMNS);
    x = uop_where(g, uop_binary(g, OP_CMPEQ, label, at), row, num(0));
    assert_int_equal(reductions(reduce(OP_ADD, x, 2)), i);
  }
}

/* Kernels that only walk along memory become parts of one kernel, for any sizes. */
static void test_parts(void **state) {
  struct uop *rate = RESHAPE(buffer(DT_F32, 1), 1, 1), *roots[30];
  for (int i = 0; i < 30; i++) {
    int64_t rows = 1 + i % 5, columns = 2 + i;
    struct uop *p = TENSOR(rows, columns), *d = TENSOR(rows, columns);
    roots[i] = sub(p, mul(d, expand_like(rate, p)));
  }
  assert_int_equal(check_roots(roots, 30), 1);
  /* in place, like parameter updates */
  for (int i = 0; i < 8; i++) {
    struct uop *p = TENSOR(3 + i);
    roots[i] = assign(p, p, add(p, TENSOR(3 + i)));
  }
  assert_int_equal(check_roots(roots, 8), 1);
  /* but not a kernel that reads what another one writes, or that does more than walk along memory */
  struct uop *x = TENSOR(4, 3), *y = add(x, num(1)), *b = buffer(DT_F32, 5);
  struct uop *apart[] = {y, permute(contiguous(permute(mul(y, num(2)), 0x01)), 0x01), add(b, num(1)),
                         assign(b, b, mul(b, num(3)))};
  check_roots(apart, 4);
  struct uop *mixed[] = {add(x, num(1)), contiguous(permute(TENSOR(3, 4), 0x01)), uop_cast(g, iota(DT_I32, 7), DT_F32),
                         add(TENSOR(9), num(1))};
  assert_int_equal(check_roots(mixed, 4), 3);
}

/* Sizes that contain a variable: one schedule is correct for every value. */
static void test_symbolic(void **state) {
  for (variable = 1; variable <= 6; variable += 1 + (variable == 3)) {
    struct uop *n = uop_var(g, "n", 1, 6), *zero = uop_index(g, 0), *four = uop_index(g, 4);
    struct uop *src[5] = {TENSOR(6, 4), zero, n, zero, four};
    struct uop *x = uop_new(g, OP_SHRINK, DT_F32, 1, (union uop_arg){0}, 0, src, 5);
    assert_int_equal(check(contiguous(x)), 1);
    assert_int_equal(check(add(x, num(1))), 1);
    assert_int_equal(check(reduce(OP_ADD, x, 1)), 1);
    assert_int_equal(check(reduce(OP_MAX, uop_unary(g, OP_EXP2, x), 2)), 1);
    assert_int_equal(check(permute(add(x, num(1)), 0x01)), 1);
    struct uop *wide[] = {reduce(OP_ADD, x, 2), n, four};
    struct uop *mean = uop_new(g, OP_EXPAND, DT_F32, 1, (union uop_arg){0}, 0, wide, 3);
    check(sub(x, mean));
    struct uop *weights = TENSOR(4, 3), *a[] = {x, n, four, uop_index(g, 1)};
    struct uop *left = uop_new(g, OP_RESHAPE, DT_F32, 1, (union uop_arg){0}, 0, a, 4);
    struct uop *b[] = {left, n, four, uop_index(g, 3)}, *c[] = {RESHAPE(weights, 1, 4, 3), n, four, uop_index(g, 3)};
    left = uop_new(g, OP_EXPAND, DT_F32, 1, (union uop_arg){0}, 0, b, 4);
    struct uop *right = uop_new(g, OP_EXPAND, DT_F32, 1, (union uop_arg){0}, 0, c, 4);
    assert_int_equal(check(reduce(OP_ADD, mul(left, right), 2)), 1);
    /* a row is written at a variable position of a larger buffer, as in a cache of keys that grows */
    struct uop *cache = RESHAPE(buffer(DT_F32, 32), 8, 4);
    struct uop *row[] = {cache, n, uop_binary(g, OP_ADD, n, uop_index(g, 1)), zero, four};
    struct uop *view = uop_new(g, OP_SHRINK, DT_F32, 1, (union uop_arg){0}, 0, row, 5);
    struct schedule s;
    char err[300];
    assert_int_equal(check(assign(cache, view, full_like(view, 7))), 1);
    assert_int_equal(graph_schedule(&x, 1, &next_buffer, &s, err, sizeof err), 0);
    assert_int_equal(s.nitems, 0);
    schedule_free(&s);
    struct uop *copy = contiguous(x);
    assert_int_equal(graph_schedule(&copy, 1, &next_buffer, &s, err, sizeof err), 0);
    assert_int_equal(s.items[0].nvars, 1);
    assert_string_equal(s.items[0].vars[0]->arg.s, "n");
    assert_int_equal(s.items[0].bufs[0]->src[0]->arg.i, 24); /* as large as it may become */
    schedule_free(&s);
  }
}

static void test_empty_and_scalar(void **state) {
  assert_int_equal(check(num(3)), 1);
  assert_int_equal(check(EXPAND(RESHAPE(num(3), 1, 1), 2, 3)), 1);
  struct uop *none = TENSOR(3, 0);
  assert_int_equal(check(reduce(OP_ADD, none, 2)), 1);
  assert_int_equal(check(reduce(OP_MAX, none, 2)), 1);
  assert_int_equal(check(reduce(OP_MUL, none, 3)), 1);
  assert_int_equal(check(add(none, num(1))), 0);
  assert_int_equal(check(contiguous(PAD(none, 0, 0, 1, 1))), 1);
  assert_int_equal(check(reduce(OP_ADD, PAD(add(none, num(1)), 0, 0, 1, 1), 3)), 1);
  assert_int_equal(check(RESHAPE(reduce(OP_ADD, TENSOR(1, 1), 3), 1)), 0); /* of one element: a view */
  struct uop *scalar = movement(OP_RESHAPE, buffer(DT_I32, 1), 0, NULL);
  assert_int_equal(check(add(scalar, scalar)), 1);
  assert_int_equal(check(SHRINK(TENSOR(4), 2, 2)), 0);
}

static void test_devices(void **state) {
  struct uop *a = buffer_on(0, DT_F32, 6), *b = buffer_on(1, DT_F32, 6);
  assert_int_equal(check(add(copy_to(a, 1), b)), 1);
  assert_int_equal(check(add(copy_to(add(a, num(1)), 1), b)), 2);
  assert_int_equal(check(copy_to(copy_to(a, 1), 0)), 0);
  assert_int_equal(check(copy_to(permute(RESHAPE(a, 2, 3), 0x01), 1)), 1);
  assert_int_equal(check(copy_to(num(2), 1)), 1); /* a constant is stored on the device that needs it */
  assert_int_equal(check(copy_to(a, 0)), 0);
  struct schedule s;
  char err[300];
  struct uop *mixed = add(a, b);
  assert_true(graph_schedule(&mixed, 1, &next_buffer, &s, err, sizeof err) < 0);
  assert_non_null(strstr(err, "mixes device slots 0 and 1"));
  assert_null(s.items);
}

static struct uop *exchanged(struct uop *x) { return uop_exchange(g, EXCHANGE_SUM, 0, x, x->shape); }

/* A backward pass through three layers whose gradients are exchanged and then subtracted from the weights, those of the
 * first layer first. Gradients are sent from the last layer on, each as soon as it is complete, and none is awaited
 * before all are sent. */
static void test_exchanges(void **state) {
  enum { LAYERS = 3 };
  struct uop *dy = TENSOR(4, 4), *root[LAYERS], *sent[LAYERS];
  for (int i = LAYERS - 1; i >= 0; i--) {
    sent[i] = exchanged(matmul(TENSOR(4, 4), dy));
    root[i] = sub(TENSOR(4, 4), sent[i]);
    dy = matmul(dy, TENSOR(4, 4));
  }
  struct schedule s;
  char err[200], order[32];
  if (graph_schedule(root, LAYERS, &next_buffer, &s, err, sizeof err)) fail_msg("%s", err);
  size_t n = 0;
  int next = LAYERS;
  for (; n < s.nitems && n < sizeof order - 1; n++) {
    const struct schedule_item *item = &s.items[n];
    order[n] = "KCSR"[item->kind];
    if (item->kind == SCHEDULE_SEND) assert_int_equal(exchange_number(item->exchange), exchange_number(sent[--next]));
  }
  order[n] = 0;
  assert_string_equal(order, "KSKKSKKSRRRK"); /* one kernel for all weights */
  for (int i = 0; i < LAYERS; i++) {
    bool read = false;
    assert_int_equal(s.items[8 + i].noutputs, 1);
    for (unsigned k = 0; k < s.items[11].nbufs; k++) read |= s.items[11].bufs[k] == s.items[8 + i].bufs[0];
    assert_true(read);
  }
  assert_ptr_equal(s.items[1].bufs[0], s.items[0].bufs[0]);
  schedule_free(&s);
  /* An empty tensor is not sent. */
  struct uop *none = exchanged(TENSOR(0, 3)), *twice = add(exchanged(root[0]), exchanged(root[0]));
  assert_int_equal(graph_schedule(&none, 1, &next_buffer, &s, err, sizeof err), 0);
  assert_int_equal(s.nitems, 0);
  schedule_free(&s);
  assert_int_equal(graph_schedule(&twice, 1, &next_buffer, &s, err, sizeof err), 0);
  unsigned sends = 0;
  for (n = 0; n < s.nitems; n++) sends += s.items[n].kind == SCHEDULE_SEND;
  assert_int_equal(sends, LAYERS - 2 + 2); /* equal exchanges are not one */
  schedule_free(&s);
}

static void test_errors(void **state) {
  struct schedule s;
  char err[300];
  struct uop *wrong = add(TENSOR(3), TENSOR(4));
  assert_true(graph_schedule(&wrong, 1, &next_buffer, &s, err, sizeof err) < 0);
  assert_non_null(strstr(err, "shapes (3) and (4) differ"));
  wrong = uop_range(g, uop_index(g, 3), 0, AXIS_LOOP);
  assert_true(graph_schedule(&wrong, 1, &next_buffer, &s, err, sizeof err) < 0);
  assert_non_null(strstr(err, "RANGE index: does not belong in a tensor graph"));
  wrong = with_arg(OP_REDUCE_AXIS, TENSOR(3), 1, OP_SUB);
  assert_true(graph_schedule(&wrong, 1, &next_buffer, &s, err, sizeof err) < 0);
  assert_true(graph_schedule(&wrong, 1, &next_buffer, &s, err, 0) < 0);
}

/* ---- random graphs --------------------------------------------------------------------------- */
static struct uop *random_movement(struct uop *x) {
  int64_t n[2 * MAX_RANK], dims[MAX_RANK];
  unsigned rank = x->shape->rank;
  for (unsigned i = 0; i < rank; i++) dims[i] = dim_of(x, i);
  switch (pick(0, 8)) {
  case 0: { /* split a dimension */
    unsigned m = 0;
    for (unsigned i = 0; i < rank; i++) {
      int64_t f = pick(1, 4);
      if (dims[i] % f == 0 && rank < 5)
        n[m++] = f, n[m++] = dims[i] / f;
      else
        n[m++] = dims[i];
    }
    return movement(OP_RESHAPE, x, m, n);
  }
  case 1: { /* join dimensions */
    unsigned m = 0;
    for (unsigned i = 0; i < rank; i++)
      if (m && pick(0, 1))
        n[m - 1] *= dims[i];
      else
        n[m++] = dims[i];
    return movement(OP_RESHAPE, x, m, n);
  }
  case 2: {
    uint64_t order = 0;
    unsigned axes[MAX_RANK];
    for (unsigned i = 0; i < rank; i++) axes[i] = i;
    for (unsigned i = rank; i > 1; i--) {
      unsigned j = (unsigned)pick(0, i - 1), t = axes[j];
      axes[j] = axes[i - 1], axes[i - 1] = t;
    }
    for (unsigned i = 0; i < rank; i++) order |= (uint64_t)axes[i] << (4 * i);
    return permute(x, (int64_t)order);
  }
  case 3:
    for (unsigned i = 0; i < rank; i++) n[2 * i] = pick(0, 1), n[2 * i + 1] = pick(0, 2) ? 0 : pick(0, 2);
    return movement(OP_PAD, x, 2 * rank, n);
  case 4:
    for (unsigned i = 0; i < rank; i++) n[2 * i] = dims[i] ? pick(0, 1) : 0, n[2 * i + 1] = pick(n[2 * i], dims[i]);
    return pick(0, 1) ? movement(OP_SHRINK, x, 2 * rank, n) : x;
  case 6: {
    unsigned a = (unsigned)pick(0, rank - 1), b = (unsigned)pick(0, rank - 1);
    return a == b ? x : shear(x, a, b, pick(-2, 2), pick(1, 4));
  }
  case 5: return flip(x, pick(0, (1 << rank) - 1));
  default:
    for (unsigned i = 0; i < rank; i++) n[i] = dims[i] == 1 && pick(0, 1) ? pick(1, 4) : dims[i];
    return movement(OP_EXPAND, x, rank, n);
  }
}

/* y in the shape of x, if that is possible. */
static struct uop *fit_shape(struct uop *y, struct uop *x) {
  if (shape_equal(x->shape, y->shape) || !y->shape->rank) return y;
  int64_t dims[MAX_RANK];
  unsigned rank = x->shape->rank;
  if (shape_numel(y->shape) == shape_numel(x->shape) || shape_numel(y->shape) == 1) {
    for (unsigned i = 0; i < rank; i++) dims[i] = shape_numel(y->shape) == 1 ? 1 : dim_of(x, i);
    y = movement(OP_RESHAPE, y, rank, dims);
  }
  if (y->shape->rank != rank) return NULL;
  for (unsigned i = 0; i < rank; i++)
    if (dim_of(y, i) != dim_of(x, i) && dim_of(y, i) != 1) return NULL;
  return expand_like(y, x);
}

static struct uop *base_memory(struct uop *u) {
  while ((u->op >= OP_RESHAPE && u->op <= OP_FLIP) || u->op == OP_CONTIGUOUS) u = u->src[0];
  return u;
}

static void test_random(void **state) {
  static const enum op binary[] = {OP_ADD, OP_SUB, OP_MUL, OP_MAX};
  for (int n = 0; n < RANDOM_GRAPHS; n++) {
    start();
    machine_of = pick(0, 1) ? eager_machine : pick(0, 1) ? fast_machine : NULL;
    struct uop *pool[40], *lost[40];
    unsigned count = 0, nlost = 0;
    enum dtype t = pick(0, 3) ? DT_F32 : DT_I32;
    int64_t d0 = pick(1, 4), d1 = pick(1, 4);
    pool[count++] = tensor(t, 2, (int64_t[]){d0, d1});
    pool[count++] = tensor(t, 2, (int64_t[]){d0, d1});
    pool[count++] = tensor(t, 1, (int64_t[]){pick(0, 9) ? d1 : 0});
    pool[count++] = uop_const_int(g, t, pick(-2, 2));
    int64_t ops = pick(2, RANDOM_OPS);
    for (int64_t k = 0; k < ops; k++) {
      struct uop *x = pool[pick(0, count - 1)], *y = pool[pick(count > 6 ? count - 6 : 0, count - 1)], *r = NULL;
      switch (pick(0, 11)) {
      case 10: /* a gather */
        if (x->shape->rank && x->op != OP_CONST) {
          int64_t dims[MAX_RANK], axis = pick(0, x->shape->rank - 1);
          for (unsigned i = 0; i < x->shape->rank; i++) dims[i] = i == axis ? pick(1, 4) : dim_of(x, i);
          r = gather(x, places(pick(0, 1) ? DT_I32 : DT_I64, dim_of(x, (unsigned)axis), x->shape->rank, dims), axis);
        }
        break;
      case 11: /* an assignment, or a slice of an assigned buffer */
        if (x->shape->rank && numel_of(x) && nlost < 40) {
          bool again = x->op == OP_ASSIGN;
          for (unsigned i = 0; i < nlost; i++) again &= lost[i] != x;
          int64_t dims[MAX_RANK];
          for (unsigned i = 0; i < x->shape->rank; i++) dims[i] = dim_of(x, i);
          struct uop *to = again ? x : tensor(t, x->shape->rank, dims);
          struct uop *value = pick(0, 2) ? uop_unary(g, OP_NEG, x) : flip(add(to, x), pick(0, 1));
          lost[nlost++] = base_memory(to);
          r = assign(to, pick(0, 1) ? to : flip(to, 1), value);
        }
        break;
      case 0: r = uop_unary(g, OP_NEG, x); break;
      case 1:
      case 2:
        y = fit_shape(y, x);
        if (y) r = uop_binary(g, binary[pick(0, 3)], x, y);
        break;
      case 3:
        y = fit_shape(y, x);
        if (y) r = uop_where(g, uop_binary(g, OP_CMPLT, x, y), x, y);
        break;
      case 4:
      case 5:
        if (x->shape->rank) r = reduce(pick(0, 1) ? OP_ADD : OP_MAX, x, pick(1, (1 << x->shape->rank) - 1));
        break;
      case 6: r = pick(0, 2) ? NULL : contiguous(x); break;
      default: r = x->shape->rank ? random_movement(x) : RESHAPE(x, 1);
      }
      if (r && r->shape && shape_numel(r->shape) <= 100 && count < 40) pool[count++] = r;
    }
    struct uop *roots[3];
    unsigned nroots = (unsigned)pick(1, 3);
    for (unsigned i = 0; i < nroots; i++) {
      roots[i] = pool[count - 1 - (unsigned)pick(0, count > 5 ? 4 : count - 1)];
      for (unsigned k = 0; k < nlost; k++) /* the overwritten contents are not a root themselves */
        if (base_memory(roots[i]) == lost[k]) {
          roots[i] = uop_unary(g, OP_NEG, roots[i]);
          break;
        }
    }
    char err[500];
    assert_int_equal(uop_verify(roots, nroots, STAGE_TENSOR, err, sizeof err), 0);
    check_roots(roots, nroots);
  }
  machine_of = NULL;
}

static void test_deterministic(void **state) {
  struct uop *roots[] = {matmul(softmax(TENSOR(6, 5)), TENSOR(5, 40)), softmax(TENSOR(4, 4))};
  struct schedule a, b;
  char err[200];
  int64_t from = 100, again = 100;
  assert_int_equal(graph_schedule(roots, 2, &from, &a, err, sizeof err), 0);
  assert_int_equal(graph_schedule(roots, 2, &again, &b, err, sizeof err), 0);
  assert_int_equal(a.nitems, b.nitems);
  assert_int_equal(from, again);
  for (size_t i = 0; i < a.nitems; i++) {
    assert_true(a.items[i].ast->hash == b.items[i].ast->hash);
    assert_int_equal(a.items[i].nbufs, b.items[i].nbufs);
    for (unsigned k = 0; k < a.items[i].nbufs; k++)
      assert_int_equal(a.items[i].bufs[k]->arg.i, b.items[i].bufs[k]->arg.i);
  }
  /* the same computation on other buffers gives the same kernel */
  struct uop *other = softmax(TENSOR(6, 5));
  struct schedule c;
  assert_int_equal(graph_schedule(&other, 1, &from, &c, err, sizeof err), 0);
  bool same = false;
  for (size_t i = 0; i < a.nitems; i++) same |= c.items[0].ast->hash == a.items[i].ast->hash;
  assert_true(same);
  schedule_free(&a);
  schedule_free(&b);
  schedule_free(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_counts, setup, teardown),
      cmocka_unit_test_setup_teardown(test_softmax_form, setup, teardown),
      cmocka_unit_test_setup_teardown(test_sharing, setup, teardown),
      cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
      cmocka_unit_test_setup_teardown(test_gather_of_itself, setup, teardown),
      cmocka_unit_test_setup_teardown(test_views, setup, teardown),
      cmocka_unit_test_setup_teardown(test_pad, setup, teardown),
      cmocka_unit_test_setup_teardown(test_padded_products, setup, teardown),
      cmocka_unit_test_setup_teardown(test_loops_of_merged_axes, setup, teardown),
      cmocka_unit_test_setup_teardown(test_shear, setup, teardown),
      cmocka_unit_test_setup_teardown(test_sum_of_moved_sum, setup, teardown),
      cmocka_unit_test_setup_teardown(test_sums_with_much_padding, setup, teardown),
      cmocka_unit_test_setup_teardown(test_reductions_of_columns, setup, teardown),
      cmocka_unit_test_setup_teardown(test_iota, setup, teardown),
      cmocka_unit_test_setup_teardown(test_gather, setup, teardown),
      cmocka_unit_test_setup_teardown(test_assign, setup, teardown),
      cmocka_unit_test_setup_teardown(test_windows, setup, teardown),
      cmocka_unit_test_setup_teardown(test_recurrences, setup, teardown),
      cmocka_unit_test_setup_teardown(test_joins, setup, teardown),
      cmocka_unit_test_setup_teardown(test_very_many_joined, setup, teardown),
      cmocka_unit_test_setup_teardown(test_selections, setup, teardown),
      cmocka_unit_test_setup_teardown(test_parts, setup, teardown),
      cmocka_unit_test_setup_teardown(test_symbolic, setup, teardown),
      cmocka_unit_test_setup_teardown(test_empty_and_scalar, setup, teardown),
      cmocka_unit_test_setup_teardown(test_devices, setup, teardown),
      cmocka_unit_test_setup_teardown(test_exchanges, setup, teardown),
      cmocka_unit_test_setup_teardown(test_errors, setup, teardown),
      cmocka_unit_test_setup_teardown(test_random, setup, teardown),
      cmocka_unit_test_setup_teardown(test_deterministic, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
