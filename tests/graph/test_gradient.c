/* Gradients on the tensor graph: every op compared with central differences in f64, computed by the tensor interpreter;
 * conventions; number of kernels and nodes. */
#include "graph/gradient/gradient.h"
#include "tensor.h"
#include <errno.h>

static struct uop *f64(double v) { return uop_const_float(g, DT_F64, v); }
#define DOUBLES(...) tensor(DT_F64, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__})

static struct uop *base(struct uop *x) {
  while (x->op != OP_BUFFER) x = x->src[0];
  return x;
}
static union value *data_of(struct uop *x) { return memory[base(x)->arg.i].data; }

/* Distinct values that are not near a kink. */
static struct uop *spread(struct uop *x, double lo, double hi) {
  int64_t n = memory[base(x)->arg.i].size;
  for (int64_t i = 0; i < n; i++) data_of(x)[i].f = lo + (hi - lo) * (double)((i * 7 + 3) % n + 0.37) / (double)n;
  return x;
}
static struct uop *fill(struct uop *x, const double *v) {
  for (int64_t i = 0; i < memory[base(x)->arg.i].size; i++) data_of(x)[i].f = v[i];
  return x;
}
#define FILL(x, ...) fill(x, (const double[]){__VA_ARGS__})

static struct uop *sum_all(struct uop *x) {
  int64_t all = ((int64_t)1 << x->shape->rank) - 1;
  return RESHAPE(all ? reduce(OP_ADD, x, all) : x, 1);
}
static void value_of(struct uop *u, double *out) {
  struct uop_map done = {0};
  interpret(&u, 1, &done);
  const union value *v = uop_map_get(&done, u);
  for (int64_t i = 0; i < shape_numel(u->shape); i++) out[i] = v[i].f;
  interpret_free(&done);
}
static struct uop *gradient(struct uop *root, struct uop *target) {
  struct uop *out;
  char err[300];
  if (graph_gradient(g, root, NULL, &target, 1, NULL, 0, &out, err, sizeof err)) fail_msg("%s", err);
  if (out && uop_verify(&out, 1, STAGE_TENSOR, err, sizeof err)) fail_msg("%s", err);
  if (out && !shape_equal(out->shape, target->shape)) fail_msg("a gradient of another shape");
  if (out) assert_int_equal(out->dtype, target->dtype);
  return out;
}

static struct uop *smooth_max(struct uop *x) { /* softmax over the last axis */
  int64_t last = (int64_t)1 << (x->shape->rank - 1);
  struct uop *e = uop_unary(g, OP_EXP2, sub(x, expand_like(reduce(OP_MAX, x, last), x)));
  return mul(e, expand_like(uop_unary(g, OP_RECIP, reduce(OP_ADD, e, last)), x));
}

/* Compares the derivative of sum(y * weights) with respect to x with central differences, element by element. */
static void numeric(struct uop *y, struct uop *x) {
  double got[256], lo, hi;
  const double h = 1e-5;
  struct uop *w = EXPAND(RESHAPE(f64(0.75), 1), 1);
  if (y->shape->rank) {
    w = DOUBLES(shape_numel(y->shape));
    spread(w, 0.5, 2);
    int64_t dim[MAX_RANK];
    for (unsigned i = 0; i < y->shape->rank; i++) dim[i] = y->shape->dim[i]->arg.i;
    w = movement(OP_RESHAPE, w, y->shape->rank, dim);
  }
  struct uop *loss = sum_all(mul(y, w)), *dx = gradient(loss, x);
  assert_non_null(dx);
  value_of(dx, got);
  for (int64_t i = 0; i < shape_numel(x->shape); i++) {
    double at = data_of(x)[i].f;
    data_of(x)[i].f = at + h;
    value_of(loss, &hi);
    data_of(x)[i].f = at - h;
    value_of(loss, &lo);
    data_of(x)[i].f = at;
    double want = (hi - lo) / (2 * h);
    if (fabs(got[i] - want) > 1e-6 * (1 + fabs(want))) {
      uop_print(stderr, &y, 1);
      uop_print(stderr, &dx, 1);
      fail_msg("element %lld: %.9g, by differences %.9g", (long long)i, got[i], want);
    }
  }
}

static void test_elementwise(void **state) {
  struct uop *x = spread(DOUBLES(2, 3), 0.3, 2.9), *y = spread(DOUBLES(2, 3), -1.5, 1.7);
  static const enum op unary[] = {OP_NEG, OP_RECIP, OP_SQRT, OP_EXP2, OP_LOG2, OP_SIN},
                       binary[] = {OP_ADD, OP_SUB, OP_MUL, OP_FDIV, OP_MAX};
  for (unsigned i = 0; i < sizeof unary / sizeof *unary; i++) numeric(uop_unary(g, unary[i], x), x);
  for (unsigned i = 0; i < sizeof binary / sizeof *binary; i++) {
    numeric(uop_binary(g, binary[i], y, x), x);
    numeric(uop_binary(g, binary[i], y, x), y);
    numeric(uop_binary(g, binary[i], x, x), x);
    numeric(uop_binary(g, binary[i], x, f64(1.25)), x);
    numeric(uop_binary(g, binary[i], f64(1.25), x), x);
  }
  struct uop *src[] = {x, y, mul(x, y)};
  struct uop *fused = uop_new(g, OP_MULACC, DT_F64, 1, (union uop_arg){0}, 0, src, 3);
  numeric(fused, x);
  numeric(fused, y);
  struct uop *less = uop_binary(g, OP_CMPLT, x, y), *chosen = uop_where(g, less, mul(x, x), uop_unary(g, OP_SIN, y));
  numeric(chosen, x);
  numeric(chosen, y);
  numeric(add(x, uop_unary(g, OP_TRUNC, x)), x); /* TRUNC and BITCAST contribute nothing */
  numeric(add(x, uop_cast(g, uop_cast(g, x, DT_I32), DT_F64)), x);
  assert_null(gradient(sum_all(uop_unary(g, OP_TRUNC, x)), base(spread(DOUBLES(1), 0, 1))));
  double v[6];
  value_of(gradient(sum_all(mul(x, gradient_cut(g, x))), x), v);
  for (int i = 0; i < 6; i++) assert_true(v[i] == data_of(x)[i].f);
}

static struct uop *function(enum function f, struct uop *value, struct uop *x) {
  return uop_new(g, OP_FUNCTION, DT_F64, 1, (union uop_arg){0}, f, (struct uop *[]){value, x}, 2);
}

/* A FUNCTION's derivative comes from the table, not from the expression that computes its value. */
static void test_functions(void **state) {
  struct uop *x = spread(DOUBLES(2, 3), -0.7, 1.7), *scale = f64(M_LOG2E), *one = f64(1);
  struct uop *e = uop_unary(g, OP_EXP2, mul(x, scale)), *square = mul(e, e), *ln2 = f64(M_LN2);
  struct uop *tanh_x = uop_binary(g, OP_FDIV, uop_binary(g, OP_SUB, square, one), add(square, one));
  numeric(function(FUNCTION_TANH, tanh_x, x), x);
  numeric(function(FUNCTION_EXPM1, uop_binary(g, OP_SUB, e, one), x), x);
  numeric(function(FUNCTION_LOG1P, mul(uop_unary(g, OP_LOG2, add(x, one)), ln2), x), x);
  numeric(function(FUNCTION_SOFTPLUS, mul(uop_unary(g, OP_LOG2, add(e, one)), ln2), x), x);
  double v[6];
  value_of(gradient(sum_all(function(FUNCTION_ERF, uop_unary(g, OP_TRUNC, x), x)), x), v);
  for (int i = 0; i < 6; i++) assert_true(fabs(v[i] - M_2_SQRTPI * exp(-data_of(x)[i].f * data_of(x)[i].f)) < 1e-14);
}

/* Derivatives of patterns, at points where they are finite and the derivatives of their parts are not. A target inside
 * a pattern is not skipped. */
static void test_patterns(void **state) {
  struct uop *x = FILL(DOUBLES(4), -0.7, 0.2, 1.3, 2.4), *b = FILL(DOUBLES(4), 0.5, 2, 3, -1);
  struct uop *e = uop_unary(g, OP_EXP2, x), *sigmoid = uop_unary(g, OP_RECIP, add(f64(1), e));
  numeric(sigmoid, x);
  double v[8];
  FILL(x, -3000, 3000, 0, 1);
  value_of(gradient(sum_all(sigmoid), x), v);
  assert_true(v[0] == 0 && v[1] == 0 && fabs(v[2] + M_LN2 / 4) < 1e-15);
  FILL(x, -0.7, 0.2, 1.3, 2.4);
  value_of(gradient(sum_all(sigmoid), e), v);
  for (int i = 0; i < 4; i++) assert_true(fabs(v[i] + pow(1 + exp2(data_of(x)[i].f), -2)) < 1e-14);

  struct uop *positive = mul(x, x), *power = uop_unary(g, OP_EXP2, mul(uop_unary(g, OP_LOG2, positive), b));
  numeric(power, x);
  numeric(power, b);
  power = uop_unary(g, OP_EXP2, mul(b, uop_unary(g, OP_LOG2, x)));
  FILL(x, 0, 0, 0, 0), FILL(b, 1, 2, 3, 1.5);
  value_of(gradient(sum_all(power), x), v);
  assert_true(v[0] == 1 && v[1] == 0 && v[2] == 0 && v[3] == 0);
  value_of(gradient(sum_all(gradient(sum_all(power), x)), x), v);
  assert_true(v[0] == 0 && v[1] == 2 && v[2] == 0 && isinf(v[3]));
  value_of(gradient(sum_all(power), b), v);
  for (int i = 0; i < 4; i++) assert_true(v[i] == 0);

  struct uop *absolute = uop_binary(g, OP_MAX, x, uop_unary(g, OP_NEG, x));
  FILL(x, -2, 3, 0, -0.0);
  value_of(gradient(sum_all(absolute), x), v);
  assert_true(v[0] == -1 && v[1] == 1 && v[2] == 0 && v[3] == 0);

  struct uop *y = FILL(DOUBLES(4), 1, 2, 3, 4), *most = uop_binary(g, OP_MAX, x, y);
  FILL(x, 1, 5, 3, 0);
  value_of(gradient(sum_all(most), x), v);
  value_of(gradient(sum_all(most), y), v + 4);
  static const double want[] = {0.5, 1, 0.5, 0, 0.5, 0, 0.5, 1};
  assert_memory_equal(v, want, sizeof want);
  FILL(x, -1, 0, 1, 2);
  value_of(gradient(sum_all(uop_binary(g, OP_MAX, x, f64(0))), x), v);
  assert_true(v[0] == 0 && v[1] == 0 && v[2] == 1 && v[3] == 1);
}

static void test_movement(void **state) {
  struct uop *x = spread(DOUBLES(2, 3, 4), -1, 2), *y = spread(DOUBLES(3, 1), -1, 2), *sq = mul(x, x);
  numeric(RESHAPE(sq, 4, 6), x);
  numeric(permute(sq, 0x102), x);
  numeric(permute(sq, 0x021), x);
  numeric(flip(sq, 5), x);
  numeric(PAD(sq, 1, 0, 2, 1, 0, 0), x);
  numeric(SHRINK(sq, 1, 2, 0, 2, 1, 4), x);
  numeric(SHRINK(PAD(sq, 1, 1, 1, 1, 1, 1), 0, 3, 2, 4, 3, 6), x);
  numeric(EXPAND(mul(y, y), 3, 5), y);
  numeric(EXPAND(RESHAPE(x, 2, 1, 3, 4), 2, 3, 3, 4), x);
  numeric(shear(sq, 0, 2, 1, 5), x);
  numeric(shear(sq, 1, 2, -2, 9), x);
  numeric(shear(shear(sq, 2, 0, 1, 3), 0, 1, -1, 4), x);
  numeric(contiguous(sq), x);
  numeric(mul(x, EXPAND(RESHAPE(y, 1, 3, 1), 2, 3, 4)), y);
  numeric(matmul(RESHAPE(x, 6, 4), RESHAPE(x, 4, 6)), x);
  struct uop *scalar = spread(DOUBLES(1), 0.4, 0.6), *s = movement(OP_RESHAPE, scalar, 0, NULL);
  numeric(mul(mul(x, s), s), scalar); /* rank 0 broadcasts to any shape */
  numeric(uop_where(g, uop_binary(g, OP_CMPLT, x, f64(0.5)), s, x), scalar);

  struct uop *there = copy_to(mul(x, x), 1), *dx = gradient(sum_all(there), x);
  while (dx->op != OP_COPY) dx = dx->src[0] == x ? dx->src[1] : dx->src[0];
  assert_int_equal(dx->aux, 0);
  numeric(there, x);
}

static void test_reductions(void **state) {
  struct uop *x = spread(DOUBLES(2, 3, 4), -1, 2);
  for (int axes = 1; axes < 8; axes++) {
    numeric(reduce(OP_ADD, x, axes), x);
    numeric(reduce(OP_MAX, x, axes), x);
    numeric(reduce(OP_MUL, x, axes), x);
  }
  numeric(smooth_max(x), x);
}

static void test_product(void **state) {
  /* zeros, and rows longer than a group */
  struct uop *x = FILL(DOUBLES(3, 3), 2, 0, 3, 0, 5, 0, 2, 3, 4);
  double v[100];
  struct uop *dx = gradient(sum_all(reduce(OP_MUL, x, 2)), x);
  value_of(dx, v);
  static const double want[] = {0, 6, 0, 0, 0, 0, 12, 8, 6};
  for (int i = 0; i < 9; i++) assert_true(v[i] == want[i]);
  /* the second derivative of abc with respect to a and b is c, also where b is 0 */
  value_of(gradient(sum_all(SHRINK(dx, 0, 1, 0, 1)), x), v);
  static const double second[] = {0, 3, 0, 0, 0, 0, 0, 0, 0};
  for (int i = 0; i < 9; i++) assert_true(v[i] == second[i]);
  struct uop *row = spread(DOUBLES(2, 37), 0.8, 1.3);
  numeric(reduce(OP_MUL, row, 2), row);
  data_of(row)[5].f = 0;
  numeric(reduce(OP_MUL, row, 2), row);
  struct uop *long_row = spread(DOUBLES(1100), 0.99, 1.01);
  struct uop *dl = gradient(sum_all(reduce(OP_MUL, long_row, 1)), long_row);
  double big[1100], product = 1;
  value_of(dl, big);
  for (int i = 0; i < 1100; i++) product *= data_of(long_row)[i].f;
  for (int i = 0; i < 1100; i++) assert_true(fabs(big[i] * data_of(long_row)[i].f / product - 1) < 1e-12);
  /* equal maxima share the gradient */
  struct uop *m = FILL(DOUBLES(2, 3), 1, 4, 4, 2, 2, 2);
  value_of(gradient(sum_all(reduce(OP_MAX, m, 2)), m), v);
  assert_true(v[0] == 0 && v[1] == 0.5 && v[2] == 0.5 && v[3] == 1 / 3.0);
}

static void test_indexing(void **state) {
  struct uop *x = spread(DOUBLES(3, 4), -1, 2), *i = tensor(DT_I32, 2, (int64_t[]){5, 4}),
             *j = tensor(DT_I64, 2, (int64_t[]){3, 2});
  for (int k = 0; k < 20; k++) data_of(i)[k].i = (k * 7) % 5 - 1; /* -1 and 3 are outside */
  for (int k = 0; k < 6; k++) data_of(j)[k].i = (k * 5) % 4;
  numeric(gather(mul(x, x), i, 0), x);
  numeric(gather(mul(x, x), j, 1), x);
  /* y: x with a row replaced by v */
  struct uop *b = base(spread(DOUBLES(12), -1, 2)), *view = SHRINK(RESHAPE(b, 3, 4), 1, 2, 0, 4);
  struct uop *v = spread(DOUBLES(1, 4), 1, 2), *y = assign(b, view, mul(v, v));
  struct uop *loss = sum_all(mul(RESHAPE(y, 3, 4), x)), *dv = gradient(loss, v), *db = gradient(loss, b);
  double got[12];
  assert_non_null(dv);
  const union value *w = data_of(x);
  struct uop_map done = {0};
  struct uop *roots[] = {dv, db};
  interpret(roots, 2, &done);
  for (int k = 0; k < 4; k++) got[k] = ((union value *)uop_map_get(&done, dv))[k].f;
  for (int k = 0; k < 4; k++) assert_true(got[k] == w[4 + k].f * (data_of(v)[k].f + data_of(v)[k].f));
  for (int k = 0; k < 12; k++) got[k] = ((union value *)uop_map_get(&done, db))[k].f;
  for (int k = 0; k < 12; k++) assert_true(got[k] == (k / 4 == 1 ? 0 : w[k].f));
  interpret_free(&done);
}

/* The Hessian of f = sum(x^3 y), row by row. */
static void test_hessian(void **state) {
  struct uop *x = FILL(DOUBLES(3), 1, -2, 3), *y = FILL(DOUBLES(3), 0.5, 4, -1);
  struct uop *f = sum_all(mul(mul(mul(x, x), x), mul(y, x))), *dx = gradient(f, x);
  for (int i = 0; i < 3; i++) {
    double v[3], a = data_of(x)[i].f;
    value_of(gradient(SHRINK(dx, i, i + 1), x), v);
    for (int k = 0; k < 3; k++) assert_true(fabs(v[k] - (k == i ? 12 * a * a * data_of(y)[i].f : 0)) < 1e-12);
    value_of(gradient(SHRINK(dx, i, i + 1), y), v);
    for (int k = 0; k < 3; k++) assert_true(fabs(v[k] - (k == i ? 4 * a * a * a : 0)) < 1e-12);
  }
  numeric(gradient(sum_all(uop_unary(g, OP_SIN, mul(x, y))), x), x);
  struct uop *soft = smooth_max(RESHAPE(x, 1, 3)), *ds = gradient(sum_all(mul(soft, soft)), x);
  numeric(ds, x);
  numeric(gradient(sum_all(mul(ds, ds)), x), x);
}

/* Gradients of halves are summed in f32 and rounded once: 1 + 2^-11 is not an f16 but 1 + 2^-11 + 2^-11 is. */
static void test_narrow(void **state) {
  struct uop *x = tensor(DT_F16, 1, (int64_t[]){1}), *tiny = uop_const_float(g, DT_F16, 0x1p-11);
  struct uop *y = add(add(x, mul(x, tiny)), mul(x, tiny)), *dx = gradient(y, x);
  double v;
  value_of(dx, &v);
  assert_true(v == 1 + 0x1p-10);
  struct uop *many = EXPAND(x, 4096), *w = uop_cast(g, EXPAND(RESHAPE(f64(1), 1), 4096), DT_F16);
  value_of(gradient(uop_cast(g, RESHAPE(reduce(OP_ADD, uop_cast(g, mul(many, w), DT_F32), 1), 1), DT_F16), x), &v);
  assert_true(v == 4096); /* in f16, 2048 + 1 is 2048 */
}

static void test_refusals(void **state) {
  struct uop *x = TENSOR(3), *out;
  char err[200];
  struct uop *bad = uop_new(g, OP_AFTER, DT_F32, 1, (union uop_arg){0}, 0, &x, 1);
  assert_int_equal(graph_gradient(g, bad, NULL, &x, 1, NULL, 0, &out, err, sizeof err), -EINVAL);
  assert_string_equal(err, "not supported: the gradient of AFTER");
  assert_null(out);
}

/* A gradient that reaches linked memory continues at the expression that the memory was computed from. */
static void test_links(void **state) {
  struct uop *x = spread(DOUBLES(3), 0.5, 2), *h = mul(x, x), *m = DOUBLES(3), *y = mul(m, m), *m2 = DOUBLES(3);
  for (int i = 0; i < 3; i++) data_of(m)[i].f = data_of(x)[i].f * data_of(x)[i].f;
  for (int i = 0; i < 3; i++) data_of(m2)[i].f = data_of(m)[i].f * data_of(m)[i].f;
  struct gradient_link links[] = {{m, h}, {m2, y}};
  struct uop *dx, *root = sum_all(add(m2, m));
  char err[200];
  assert_int_equal(graph_gradient(g, root, NULL, &x, 1, links, 2, &dx, err, sizeof err), 0);
  double v[3];
  value_of(dx, v); /* x^4 + x^2 */
  for (int i = 0; i < 3; i++) {
    double a = data_of(x)[i].f;
    assert_true(fabs(v[i] - (4 * a * a * a + 2 * a)) < 1e-12);
  }
}

/* The gradient of a chain of matrix products takes two kernels per product, as if written by hand; the forward pass
 * takes one. */
static void test_kernels(void **state) {
  struct uop *x = TENSOR(4, 5), *w[3] = {TENSOR(5, 6), TENSOR(6, 7), TENSOR(7, 3)}, *h = x, *out[3], *by_hand[3];
  struct uop *act[4] = {x};
  for (int i = 0; i < 3; i++) act[i + 1] = h = matmul(h, w[i]);
  char err[200];
  struct uop *seed = TENSOR(4, 3);
  assert_int_equal(graph_gradient(g, h, seed, w, 3, NULL, 0, out, err, sizeof err), 0);
  struct uop *d = seed;
  for (int i = 3; i-- > 0; d = matmul(d, permute(w[i], 0x01))) by_hand[i] = matmul(permute(act[i], 0x01), d);
  size_t kernels = check_roots(by_hand, 3);
  assert_int_equal(kernels, 7);
  assert_int_equal(check_roots(out, 3), kernels);
  /* with activations in between: at most one more kernel for each */
  h = x;
  for (int i = 0; i < 3; i++) h = uop_binary(g, OP_MAX, matmul(h, w[i]), num(0));
  assert_int_equal(graph_gradient(g, h, seed, w, 3, NULL, 0, out, err, sizeof err), 0);
  assert_in_range(check_roots(out, 3), 7, 10);
}

/* The number of nodes per layer does not depend on the number of layers; a deep chain needs no stack. */
static void test_linear(void **state) {
  size_t made[2];
  for (int k = 0; k < 2; k++) {
    int layers = k ? 1000 : 100;
    struct uop **w = calloc((size_t)layers, sizeof *w), **out = calloc((size_t)layers, sizeof *out), *h = TENSOR(2, 2);
    char err[200];
    for (int i = 0; i < layers; i++) {
      w[i] = movement(OP_RESHAPE,
                      uop_new(g, OP_BUFFER, DT_F32, 1, (union uop_arg){.i = 100000 + 2000 * k + i}, 0,
                              (struct uop *[]){uop_index(g, 4)}, 1),
                      2, (int64_t[]){2, 2});
      h = uop_binary(g, OP_MAX, matmul(h, w[i]), num(0));
    }
    size_t before = graph_node_count(g);
    assert_int_equal(graph_gradient(g, sum_all(h), NULL, w, (unsigned)layers, NULL, 0, out, err, sizeof err), 0);
    made[k] = graph_node_count(g) - before;
    for (int i = 0; i < layers; i++) assert_non_null(out[i]);
    free(w);
    free(out);
  }
  assert_in_range(made[1], 9 * made[0], 10 * made[0]);
  struct uop *x = TENSOR(3), *y = x;
  for (int i = 0; i < 200000; i++) y = i & 1 ? uop_unary(g, OP_SIN, y) : add(y, x);
  assert_non_null(gradient(y, x));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_elementwise, setup, teardown),
      cmocka_unit_test_setup_teardown(test_patterns, setup, teardown),
      cmocka_unit_test_setup_teardown(test_functions, setup, teardown),
      cmocka_unit_test_setup_teardown(test_movement, setup, teardown),
      cmocka_unit_test_setup_teardown(test_reductions, setup, teardown),
      cmocka_unit_test_setup_teardown(test_product, setup, teardown),
      cmocka_unit_test_setup_teardown(test_indexing, setup, teardown),
      cmocka_unit_test_setup_teardown(test_hessian, setup, teardown),
      cmocka_unit_test_setup_teardown(test_narrow, setup, teardown),
      cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
      cmocka_unit_test_setup_teardown(test_links, setup, teardown),
      cmocka_unit_test_setup_teardown(test_kernels, setup, teardown),
      cmocka_unit_test_setup_teardown(test_linear, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
