/* Gradients of tensors: every differentiable operation compared with central differences in f64 on the CPU, conventions
 * with PyTorch's values, and the gradients that db_backward collects. */
#include "support.h"
#include <pthread.h>

enum { MOST = 64 };

static db_device *cpu;
static int setup(void **state) { return (cpu = open_device("CPU")) ? 0 : -1; }
static int teardown(void **state) {
  db_close(cpu);
  if (db_shutdown()) fail_msg("%s", db_error());
  return 0;
}

static db_tensor *f64(const double *v, db_list shape) { return db_from_at(DB_HERE, v, DB_F64, cpu, shape); }
static void read64(db_tensor *t, double *out) { must_read(db_cast(t, DB_F64), out, (size_t)db_numel(t) * 8); }
static void must(const db_tensor *t) {
  if (db_poison(t)) fail_msg("%s", db_poison(t));
}
#define SCALAR(v) db_from(((float[]){v}), DB_F32, cpu, 1)

/* ---- each operation by differences ---- */

struct unary_case {
  const char *name;
  db_tensor *(*f)(db_tensor *x);
};
#define UNARY(name, expression)                                                                                        \
  static db_tensor *f_##name(db_tensor *x) { return expression; }
#define UNARY_CASES(X)                                                                                                 \
  X(neg, db_neg(x))                                                                                                    \
  X(abs, db_abs(db_sub(x, 1.0)))                                                                                       \
  X(square, db_square(x))                                                                                              \
  X(relu, db_relu(db_sub(x, 1.0)))                                                                                     \
  X(reciprocal, db_reciprocal(x))                                                                                      \
  X(sqrt, db_sqrt(x))                                                                                                  \
  X(rsqrt, db_rsqrt(x))                                                                                                \
  X(exp2, db_exp2(x))                                                                                                  \
  X(exp, db_exp(x))                                                                                                    \
  X(log2, db_log2(x))                                                                                                  \
  X(log, db_log(x))                                                                                                    \
  X(sin, db_sin(x))                                                                                                    \
  X(cos, db_cos(x))                                                                                                    \
  X(sigmoid, db_sigmoid(x))                                                                                            \
  X(tanh, db_tanh(db_sub(x, 0.8)))                                                                                     \
  X(floor, db_mul(db_floor(x), x))                                                                                     \
  X(sign, db_mul(db_sign(db_sub(x, 1.0)), x))                                                                          \
  X(add, db_add(x, db_mul(x, 2.0)))                                                                                    \
  X(sub, db_sub(3.0, x))                                                                                               \
  X(mul, db_mul(db_sin(x), x))                                                                                         \
  X(div, db_div(db_sin(x), x))                                                                                         \
  X(number_div, db_div(2.0, x))                                                                                        \
  X(mod, db_mul(db_mod(x, 0.7), x))                                                                                    \
  X(pow_tensor, db_pow(x, db_sub(x, 0.5)))                                                                             \
  X(pow_number, db_pow(x, 2.5))                                                                                        \
  X(pow_base, db_pow(1.7, x))                                                                                          \
  X(pow_negative, db_pow(db_neg(x), 3.0))                                                                              \
  X(pow_cube, db_pow(x, 3))                                                                                            \
  X(maximum, db_maximum(x, db_sin(x)))                                                                                 \
  X(minimum, db_minimum(x, db_mul(db_square(x), 0.8)))                                                                 \
  X(where, db_where(db_lt(x, 1.0), db_square(x), db_sin(x)))                                                           \
  X(cast, db_cast(db_cast(x, DB_F64), DB_F64))                                                                         \
  X(reshape, db_reshape(db_square(x), 3, -1))                                                                          \
  X(permute, db_permute(db_square(x), 1, 0))                                                                           \
  X(transpose, db_transpose(db_square(x), 0, 1))                                                                       \
  X(expand, db_expand(db_reshape(db_square(x), 1, 2, 3), 4, 2, 3))                                                     \
  X(pad, db_pad(db_square(x), 1, 0, 0, 2))                                                                             \
  X(pad_with, db_pad_with(db_square(x), 3.0, 1, 0, 0, 2))                                                              \
  X(shrink, db_shrink(db_square(x), 0, 1, 1, 3))                                                                       \
  X(flip, db_flip(db_square(x), 0, 1))                                                                                 \
  X(contiguous, db_square(db_contiguous(db_square(x))))                                                                \
  X(sum, db_sum(db_square(x)))                                                                                         \
  X(sum_axis, db_sum(db_square(x), 1))                                                                                 \
  X(prod, db_prod(x, 0))                                                                                               \
  X(max, db_max(x, 1))                                                                                                 \
  X(min, db_min(x, 0))                                                                                                 \
  X(mean, db_mean(db_square(x), 1))                                                                                    \
  X(var, db_var(x, 1))                                                                                                 \
  X(std, db_std(x))                                                                                                    \
  X(softmax, db_softmax(x, 1))                                                                                         \
  X(log_softmax, db_log_softmax(x, 0))                                                                                 \
  X(matmul, db_matmul(x, db_transpose(x, 0, 1)))                                                                       \
  X(matmul_vector, db_matmul(db_sum(x, 0), db_sin(db_transpose(x, 0, 1))))                                             \
  X(broadcast, db_mul(x, db_sum_keep(x, 0)))
UNARY_CASES(UNARY)
#define ENTRY(name, expression) {#name, f_##name},
static const struct unary_case unary_cases[] = {UNARY_CASES(ENTRY)};

static const double spread_values[6] = {0.31, 1.72, 0.53, 2.41, 1.13, 0.87};

/* y with weights, so that its elements contribute differently. */
static db_tensor *weighted(db_tensor *y) {
  double w[MOST];
  int64_t n = db_numel(y);
  must(y);
  assert_in_range(n, 1, MOST);
  for (int64_t i = 0; i < n; i++) w[i] = 0.5 + 0.37 * (double)((i * 5) % 7);
  return db_sum(db_mul(db_reshape(y, n), f64(w, DB_LIST(n))));
}

static void by_differences(const struct unary_case *c, double tolerance) {
  double x[6], got[6], hi, lo;
  const double h = 1e-5;
  {
    DB_SCOPED;
    db_tensor *t = f64(spread_values, DB_LIST(2, 3)), *loss = weighted(c->f(t)), *d = db_grad(loss, t);
    must(d);
    assert_int_equal(db_dtype_of(d), DB_F64);
    assert_true(db_rank(d) == 2 && db_dim(d, 0) == 2 && db_dim(d, 1) == 3);
    must_read(d, got, sizeof got);
  }
  for (int i = 0; i < 6; i++) {
    memcpy(x, spread_values, sizeof x);
    {
      DB_SCOPED;
      x[i] = spread_values[i] + h;
      hi = must_item(weighted(c->f(f64(x, DB_LIST(2, 3)))));
      x[i] = spread_values[i] - h;
      lo = must_item(weighted(c->f(f64(x, DB_LIST(2, 3)))));
    }
    double want = (hi - lo) / (2 * h);
    if (!(fabs(got[i] - want) <= tolerance * (1 + fabs(want))))
      fail_msg("%s: element %d: %.9g, by differences %.9g", c->name, i, got[i], want);
  }
}

static void test_differences(void **state) {
  for (size_t i = 0; i < sizeof unary_cases / sizeof *unary_cases; i++) by_differences(&unary_cases[i], 2e-4);
}

/* ---- compared with PyTorch ---- */

static void expect(db_tensor *d, const double *want, unsigned n, double tolerance) {
  double got[MOST];
  must(d);
  assert_int_equal(db_numel(d), n);
  {
    DB_SCOPED;
    read64(d, got);
  }
  for (unsigned i = 0; i < n; i++)
    if (!(fabs(got[i] - want[i]) <= tolerance * (1 + fabs(want[i]))) && !(isnan(got[i]) && isnan(want[i])) &&
        got[i] != want[i])
      fail_msg("element %u: %.9g, expected %.9g", i, got[i], want[i]);
}
#define EXPECT(d, tolerance, ...)                                                                                      \
  expect(d, (double[]){__VA_ARGS__}, sizeof((double[]){__VA_ARGS__}) / sizeof(double), tolerance)

/* The derivatives of the sum of each, compared with PyTorch 1.13. */
static void test_conventions(void **state) {
  {
    DB_SCOPED;
    db_tensor *x = db_from(((float[]){-1, 0, 1, 2, 100, -100}), DB_F32, cpu, 6);
    db_tensor *y = db_from(((float[]){-1, 1, 1, 0, 100, 0}), DB_F32, cpu, 6);
    EXPECT(db_grad(db_sum(db_relu(x)), x), 0, 0, 0, 1, 1, 1, 0);
    EXPECT(db_grad(db_sum(db_abs(x)), x), 0, -1, 0, 1, 1, 1, -1);
    EXPECT(db_grad(db_sum(db_maximum(x, y)), x), 0, 0.5, 0, 0.5, 1, 0.5, 0);
    EXPECT(db_grad(db_sum(db_maximum(x, y)), y), 0, 0.5, 1, 0.5, 0, 0.5, 1);
    EXPECT(db_grad(db_sum(db_minimum(x, y)), x), 0, 0.5, 1, 0.5, 0, 0.5, 1);
    EXPECT(db_grad(db_sum(db_elu(x, 1.5)), x), 1e-6, 0.55181916, 1.5, 1, 1, 1, 0);
    EXPECT(db_grad(db_sum(db_celu(x, 1.5)), x), 1e-6, 0.51341712, 1, 1, 1, 1, 0);
    EXPECT(db_grad(db_sum(db_selu(x)), x), 1e-6, 0.64676863, 1.75809932, 1.05070099, 1.05070099, 1.05070099, 0);
    db_tensor *zero = db_zeros_like(x), *right = db_from(((float[]){1, 2, 4, -1, -2, -4}), DB_F32, cpu, 6);
    EXPECT(db_grad(db_sum(db_atan2(zero, right)), zero), 1e-6, 1, 0.5, 0.25, -1, -0.5, -0.25);
    EXPECT(db_grad(db_sum(db_sigmoid(x)), x), 1e-6, 0.19661193, 0.25, 0.19661193, 0.10499358, 0, 0);
    EXPECT(db_grad(db_sum(db_tanh(x)), x), 1e-6, 0.41997433, 1, 0.41997433, 0.07065082, 0, 0);
    EXPECT(db_grad(db_sum(db_pow(x, 2.0)), x), 1e-6, -2, 0, 2, 4, 200, -200);
    EXPECT(db_grad(db_sum(db_pow(x, 3.0)), x), 1e-5, 3, 0, 3, 12, 30000, 30000);
    EXPECT(db_grad(db_sum(db_pow(x, db_from(((float[]){1, 1, 1, 0, 0, 2}), DB_F32, cpu, 6))), x), 1e-5, 1, 1, 1, 0, 0,
           -200);
    EXPECT(db_grad(db_sum(db_sqrt(db_abs(x))), x), 1e-6, -0.5, 0 /* PyTorch gives NaN */, 0.5, 0.35355338, 0.05, -0.05);
    EXPECT(db_grad(db_sum(db_where(db_gt(x, 0.0), db_log(x), 0.0)), x), 1e-6, 0, NAN, 1, 0.5, 0.01, 0);
    db_tensor *m = db_from(((float[]){3, 1, 3, 2, 2, 2}), DB_F32, cpu, 2, 3);
    EXPECT(db_grad(db_sum(db_max(m, 1)), m), 1e-7, 0.5, 0, 0.5, 1 / 3.0, 1 / 3.0, 1 / 3.0);
    EXPECT(db_grad(db_max(m), m), 1e-7, 0.5, 0, 0.5, 0, 0, 0);
    db_tensor *z = db_from(((float[]){2, 0, 3, 0, 0, 2}), DB_F32, cpu, 2, 3);
    EXPECT(db_grad(db_sum(db_prod(z, 1)), z), 0, 0, 6, 0, 0, 0, 0);
  }
}

static void test_types(void **state) {
  static const db_dtype types[] = {DB_F16, DB_BF16, DB_F32, DB_F64};
  for (unsigned i = 0; i < 4; i++) {
    DB_SCOPED;
    db_tensor *x = db_cast(db_from(((float[]){1, 2, 3, 0.5f}), DB_F32, cpu, 2, 2), types[i]);
    db_tensor *d = db_grad(db_sum(db_mul(db_matmul(x, x), db_exp(x))), x);
    assert_int_equal(db_dtype_of(d), types[i]);
    EXPECT(d, i < 2 ? 0.02 : 1e-5, 99.4993, 46.3518, 129.2472, 86.9879);
    /* many contributions to one element are summed in f32 */
    db_tensor *one = db_cast(db_from(((float[]){1}), DB_F32, cpu, 1, 1), types[i]);
    EXPECT(db_grad(db_sum(db_mul(db_expand(one, 64, 64), db_expand(one, 64, 64))), one), 0, 8192);
    /* through another type and back */
    EXPECT(db_grad(db_cast(db_sum(db_cast(db_square(x), DB_F32)), types[i]), x), 1e-3, 2, 4, 6, 1);
  }
}

/* ---- higher order ---- */

static void test_higher_order(void **state) {
  {
    DB_SCOPED;
    const double v[] = {0.5, -1.25, 2};
    db_tensor *x = f64(v, DB_LIST(3));
    db_tensor *f = db_sum(db_mul(db_pow(x, 3), db_expand(db_sum_keep(db_sin(x)), 3))), *d = db_grad(f, x);
    double h[9], s = 0, c = 0;
    for (int i = 0; i < 3; i++) s += sin(v[i]), c += v[i] * v[i] * v[i];
    for (int i = 0; i < 3; i++)
      for (int k = 0; k < 3; k++)
        h[3 * i + k] =
            3 * v[i] * v[i] * cos(v[k]) + 3 * v[k] * v[k] * cos(v[i]) + (i == k) * (6 * v[i] * s - c * sin(v[i]));
    for (int i = 0; i < 3; i++) expect(db_grad(db_shrink(d, i, i + 1), x), h + 3L * i, 3, 1e-5);
    must_read(d, h, 24); /* a realized derivative has no history of x, which was not marked */
    assert_contains(db_poison(db_grad(db_sum(d), x)), "does not depend");
    db_tensor *y = db_requires_grad(f64(v, DB_LIST(3)));
    db_tensor *g = db_grad(db_sum(db_pow(y, 3)), y);
    if (db_realize(g)) fail_msg("%s", db_error());
    EXPECT(db_grad(db_sum(g), y), 1e-9, 3, -7.5, 12);
  }
}

/* ---- realized values ---- */

static void test_realized(void **state) {
  {
    DB_SCOPED;
    db_tensor *x = db_requires_grad(db_from(((float[]){1, 2, 3}), DB_F32, cpu, 3)), *w = SCALAR(2);
    db_tensor *h = db_mul(x, x), *early = db_mul(h, w);
    if (db_realize(h)) fail_msg("%s", db_error());
    db_tensor *loss = db_sum(db_add(db_mul(h, h), early)); /* x^4 + 2 x^2 */
    assert_true(must_item(loss) == 98 + 28);
    assert_int_equal(db_backward(loss), 0);
    EXPECT(db_grad_of(x), 1e-6, 8, 40, 120);
    EXPECT(db_grad(loss, h), 1e-6, 4, 10, 20);
    EXPECT(db_grad(loss, x), 1e-6, 8, 40, 120);
    /* h is in memory: the gradient's kernels read it instead of computing it again */
    assert_int_equal(db_backward(loss), 0);
    EXPECT(db_grad_of(x), 1e-6, 16, 80, 240);
    db_zero_grad(x);
    assert_contains(db_poison(db_grad_of(x)), "no gradient was collected");
    assert_contains(db_poison(db_grad_of(w)), "not marked");

    db_tensor *a = db_from(((float[]){1, 2, 3}), DB_F32, cpu, 3), *b = db_mul(a, a), *l = db_sum(db_mul(b, b));
    if (db_realize(b)) fail_msg("%s", db_error());
    EXPECT(db_grad(l, b), 1e-6, 2, 8, 18);
    assert_contains(db_poison(db_grad(l, a)), "the result does not depend on the tensor [3]");
    assert_int_equal(db_backward(l), -EINVAL);
    assert_contains(db_error(), "marked with db_requires_grad");
  }
}

/* Assignments before the loss is read, to targets in memory or not: gradients reach the value and the rest of the
 * target. */
static void test_assigned(void **state) {
  for (int early = 0; early < 3; early++) {
    DB_SCOPED;
    db_tensor *x = db_requires_grad(db_from(((float[]){1, 2, 3}), DB_F32, cpu, 3)), *v = db_requires_grad(SCALAR(5));
    db_tensor *y = db_mul(x, 2.0);
    if (early == 2) assert_int_equal(db_realize(y), 0);
    y = db_setitem(y, db_square(v), DB_SLICE(1, 2, 1));
    if (early) assert_int_equal(db_realize(y), 0);
    db_tensor *loss = db_sum(db_square(y)); /* 4 x0^2 + v^4 + 4 x2^2 */
    assert_true(must_item(loss) == 4 + 625 + 36);
    assert_int_equal(db_backward(loss), 0);
    EXPECT(db_grad_of(x), 1e-6, 8, 0, 24);
    EXPECT(db_grad_of(v), 1e-6, 500);
    db_tensor *w = db_mul(x, 2.0); /* written in place when it is in memory */
    if (early) assert_int_equal(db_realize(w), 0);
    db_assign(w, db_add(w, v));
    loss = db_sum(db_square(w));
    assert_true(must_item(loss) == 49 + 81 + 121);
    EXPECT(db_grad(loss, x), 1e-6, 28, 36, 44);
    EXPECT(db_grad(loss, v), 1e-6, 54);
    db_assign(x, db_mul(x, 3.0)); /* a leaf remains a leaf, without a history */
    EXPECT(db_grad(db_sum(db_square(x)), x), 1e-6, 6, 12, 18);
    db_zero_grad(x);
    assert_int_equal(db_backward(db_sum(db_square(x))), 0);
    EXPECT(db_grad_of(x), 1e-6, 6, 12, 18);
  }
}

/* A gradient outlives the tensors that it was computed from. */
static void test_lifetimes(void **state) {
  db_tensor *d = NULL;
  {
    DB_SCOPED;
    db_tensor *x = db_from(((float[]){1, 2, 3}), DB_F32, cpu, 3);
    {
      DB_SCOPED;
      db_tensor *h = db_exp(db_log(db_mul(x, db_from(((float[]){4, 5, 6}), DB_F32, cpu, 3))));
      db_tensor *loss = db_sum(db_square(h));
      d = db_keep(db_grad(loss, x));
      must_item(loss);
    }
    EXPECT(d, 1e-5, 32, 100, 216);
  }
  for (int step = 0; step < 50; step++) {
    DB_SCOPED; /* marked tensors and their collected gradients do not form a reference cycle */
    db_tensor *w = db_requires_grad(db_full(0.5, DB_F32, cpu, 4));
    assert_int_equal(db_backward(db_sum(db_square(w))), 0);
    if (step & 1) EXPECT(db_grad_of(w), 0, 1, 1, 1, 1);
  }
}

/* Training by hand: the values follow the recurrence w -= 0.1 * dw, and the history does not grow. */
static void test_steps(void **state) {
  {
    DB_SCOPED;
    db_tensor *data = db_from(((float[]){1, 2, 3, 4}), DB_F32, cpu, 4);
    double w = 0.25;
    db_tensor *t = db_from(((float[]){0.25f}), DB_F32, cpu, 1);
    for (int step = 0; step < 20; step++) {
      DB_SCOPED;
      db_tensor *p = db_requires_grad(db_detach(t)), *r = db_sub(db_mul(data, p), 1.0);
      assert_int_equal(db_backward(db_mean(db_square(r))), 0);
      t = db_keep(db_sub(p, db_mul(db_grad_of(p), 0.05)));
      w -= 0.05 * 2 * (30 * w - 10) / 4;
      if (fabs(must_item(t) - w) > 1e-5) fail_msg("step %d: %g, expected %g", step, must_item(t), w);
    }
  }
}

static void test_equal_values(void **state) {
  {
    DB_SCOPED;
    db_tensor *x = db_ones(DB_F32, cpu, 3), *w = db_ones(DB_F32, cpu, 3);
    assert_contains(db_poison(db_grad(db_sum(db_mul(x, w)), x)), "made of numbers only");
    x = db_requires_grad(db_ones(DB_F32, cpu, 3)), w = db_requires_grad(db_ones(DB_F32, cpu, 3));
    db_tensor *loss = db_sum(db_mul(db_mul(x, w), w)), *d[2];
    db_grad_all(loss, NULL, ((db_tensor *[]){x, w}), 2, d);
    EXPECT(d[0], 0, 1, 1, 1);
    EXPECT(d[1], 0, 2, 2, 2);
    EXPECT(db_grad(db_sum(db_mul(x, db_detach(x))), x), 0, 1, 1, 1);
  }
}

static void test_many(void **state) {
  {
    DB_SCOPED;
    db_tensor *x[3], *d[3];
    for (int i = 0; i < 3; i++) x[i] = db_from(((float[]){(float)i + 1, 2}), DB_F32, cpu, 2);
    db_tensor *y = db_mul(db_add(x[0], x[1]), x[0]); /* x[2] is not in it */
    db_grad_all(y, db_from(((float[]){1, 10}), DB_F32, cpu, 2), x, 3, d);
    EXPECT(d[0], 0, 4, 60);
    EXPECT(d[1], 0, 1, 20);
    assert_contains(db_poison(d[2]), "does not depend");
    db_grad_all(y, NULL, x, 3, d);
    for (int i = 0; i < 3; i++) assert_contains(db_poison(d[i]), "db_grad_from");
  }
}

static void test_bad_calls(void **state) {
  {
    DB_SCOPED;
    db_tensor *x = db_from(((float[]){1, 2}), DB_F32, cpu, 2), *i = db_from(((int[]){1, 2}), DB_I32, cpu, 2);
    db_tensor *bad = db_reshape(x, 3), *loss = db_sum(x);
    assert_contains(db_poison(db_grad(x, x)), "grad at " __FILE__);
    assert_contains(db_poison(db_grad(x, x)), "[2], not one element");
    assert_contains(db_poison(db_grad(db_sum(i), i)), "of i64; only floats");
    assert_contains(db_poison(db_grad(loss, i)), "of i32; only floats");
    assert_contains(db_poison(db_grad(bad, x)), "reshape at");
    assert_contains(db_poison(db_grad(loss, bad)), "reshape at");
    assert_contains(db_poison(db_grad(NULL, x)), "NULL");
    assert_contains(db_poison(db_grad(loss, NULL)), "NULL");
    assert_contains(db_poison(db_grad_from(x, db_from(((float[]){1}), DB_F32, cpu, 1), x)),
                    "the gradient of the result is [1], but the result is [2]");
    assert_contains(db_poison(db_requires_grad(i)), "only floats");
    assert_contains(db_poison(db_requires_grad(bad)), "reshape at");
    assert_contains(db_poison(db_detach(bad)), "reshape at");
    assert_contains(db_poison(db_grad_of(bad)), "reshape at");
    assert_int_equal(db_backward(bad), -EINVAL);
    assert_contains(db_error(), "reshape at");
    assert_int_equal(db_backward(NULL), -EINVAL);
    assert_int_equal(db_backward(x), -EINVAL);
    assert_contains(db_error(), "not one element");
    db_zero_grad(NULL);
    db_zero_grad(bad);
  }
}

/* The gradient of a copied value is on x's device. */
static void test_devices(void **state) {
  FOR_EMULATED_GPU {
    DB_SCOPED;
    db_device *gpu = open_device(DEVICE_NAME);
    db_tensor *x = db_requires_grad(db_from(((float[]){1, 2, 3}), DB_F32, cpu, 3));
    db_tensor *loss = db_sum(db_mul(db_to(x, gpu), db_to(db_square(x), gpu))), *d = db_grad(loss, x);
    must(d);
    assert_ptr_equal(db_device_of(d), cpu);
    EXPECT(d, 1e-6, 3, 12, 27);
    db_close(gpu);
  }
}

/* A symbolic size: the gradients' kernels are compiled once for all sizes. */
static void test_symbolic(void **state) {
  for (int64_t n = 3; n < 7; n++) {
    DB_SCOPED;
    int64_t size = db_bind("n", 1, 8, n);
    db_tensor *x = db_from(((float[]){1, 2, 3, 4, 5, 6, 7, 8}), DB_F32, cpu, 8), *b = SCALAR(0.5);
    db_tensor *part = db_shrink(x, 0, size), *y = db_mul(part, db_expand(b, size)), *d[2];
    db_grad_all(db_sum(db_square(y)), NULL, ((db_tensor *[]){x, b}), 2, d);
    double want[8], sum = 0;
    for (int i = 0; i < 8; i++) want[i] = i < n ? 0.5 * (i + 1) : 0, sum += i < n ? (i + 1) * (i + 1) : 0;
    expect(d[0], want, 8, 1e-6);
    expect(d[1], &sum, 1, 1e-6);
    db_tensor *square = db_matmul(db_reshape(part, 1, size), db_reshape(part, size, 1));
    for (int i = 0; i < n; i++) want[i] = 2 * (i + 1);
    expect(db_pad(db_grad(db_mean(square), part), 0, db_size_sub(8, size)), want, 8, 1e-6);
  }
}

static unsigned kernels;
static void count(void *ctx, const struct db_command *command) { kernels += !command->is_copy; }

/* The loss and its gradients together: the forward pass is computed once. */
static void test_kernel_counts(void **state) {
  db_watch(count, NULL);
  {
    DB_SCOPED;
    float v[64];
    for (int i = 0; i < 64; i++) v[i] = (float)i / 64 - 0.5f;
    db_tensor *x = db_from(v, DB_F32, cpu, 4, 8), *w[3], *h = x, *all[4];
    for (int i = 0; i < 3; i++) {
      w[i] = db_requires_grad(db_from(v, DB_F32, cpu, 8, 8));
      h = db_relu(db_matmul(h, w[i]));
    }
    all[3] = db_sum(db_square(h));
    assert_int_equal(db_backward(all[3]), 0);
    for (int i = 0; i < 3; i++) all[i] = db_grad_of(w[i]);
    kernels = 0;
    if (db_realize_all(all, 4)) fail_msg("%s", db_error());
    assert_in_range(kernels, 9, 11); /* 3 forward, the loss, 3 weights, 2 inputs; 2 masks may be kernels of their own */
  }
  db_watch(NULL, NULL);
}

/* The sum of the squares of the last state of an LSTM by hand of n steps, f64. */
enum { HIDDEN = 3 };
static db_tensor *lstm_loss(db_tensor *x, db_tensor *w) {
  int64_t n = db_dim(x, 0), gates = 4 * (int64_t)HIDDEN;
  db_tensor *h = db_zeros(DB_F64, cpu, 1, HIDDEN), *c = h, *gate[4];
  for (int64_t t = 0; t < n; t++) {
    db_tensor *z = db_add(db_matmul(h, w), db_shrink(x, t, t + 1, 0, gates));
    for (int64_t k = 0; k < 4; k++) gate[k] = db_shrink(z, 0, 1, k * HIDDEN, (k + 1) * HIDDEN);
    c = db_add(db_mul(db_sigmoid(gate[0]), c), db_mul(db_sigmoid(gate[1]), db_tanh(gate[2])));
    h = db_mul(db_sigmoid(gate[3]), db_tanh(c));
  }
  return db_sum(db_square(h));
}

/* The gradient of the loss of n steps, computed by a thread. */
struct lstm_run {
  unsigned n;
  const double *x, *w;
  double dw[HIDDEN * 4 * HIDDEN];
  uint64_t kernels; /* that were compiled for it */
  int err;
};
static void *lstm_gradient(void *arg) {
  struct lstm_run *r = arg;
  struct db_cache_counters before, after;
  DB_SCOPED;
  db_tensor *x = f64(r->x, DB_LIST(r->n, 4 * HIDDEN)), *w = f64(r->w, DB_LIST(HIDDEN, 4 * HIDDEN)), *d[2];
  db_grad_all(lstm_loss(x, w), NULL, ((db_tensor *[]){w, x}), 2, d);
  db_cache_counters(&before);
  r->err = db_realize_all(d, 2);
  db_cache_counters(&after);
  r->kernels = after.kernels - before.kernels;
  if (!r->err) r->err = db_read(d[0], r->dw, sizeof r->dw);
  return NULL;
}

/* The gradient of a recurrence: more steps compile hardly any more kernels, its value is right, and thousands of steps
 * need no deep stack. */
static void test_recurrence(void **state) {
  enum { STEPS = 6000 };
  double *x = calloc(STEPS, 4 * HIDDEN * sizeof *x), w[HIDDEN * 4 * HIDDEN], loss[2];
  assert_non_null(x);
  for (int i = 0; i < STEPS * 4 * HIDDEN; i++) x[i] = sin(i);
  for (int i = 0; i < HIDDEN * 4 * HIDDEN; i++) w[i] = cos(i);
  struct lstm_run runs[] = {{60, x, w}, {600, x, w}, {STEPS, x, w}};
  pthread_attr_t small;
  pthread_attr_init(&small);
  assert_int_equal(pthread_attr_setstacksize(&small, 1 << 20), 0);
  for (int i = 0; i < 3; i++) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, &small, lstm_gradient, &runs[i]), 0);
    pthread_join(thread, NULL);
    assert_int_equal(runs[i].err, 0);
    assert_in_range(runs[i].kernels, 0, i ? 12 : 40);
  }
  pthread_attr_destroy(&small);
  for (int side = 0; side < 2; side++) {
    DB_SCOPED;
    w[5] = cos(5) + (side ? 1e-6 : -1e-6);
    read64(lstm_loss(f64(x, DB_LIST(60, 4 * HIDDEN)), f64(w, DB_LIST(HIDDEN, 4 * HIDDEN))), &loss[side]);
  }
  assert_true(fabs((loss[1] - loss[0]) / 2e-6 - runs[0].dw[5]) < 1e-6);
  free(x);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_differences),  cmocka_unit_test(test_conventions),   cmocka_unit_test(test_types),
      cmocka_unit_test(test_higher_order), cmocka_unit_test(test_realized),      cmocka_unit_test(test_assigned),
      cmocka_unit_test(test_lifetimes),    cmocka_unit_test(test_steps),         cmocka_unit_test(test_equal_values),
      cmocka_unit_test(test_many),         cmocka_unit_test(test_bad_calls),     cmocka_unit_test(test_devices),
      cmocka_unit_test(test_symbolic),     cmocka_unit_test(test_kernel_counts), cmocka_unit_test(test_recurrence),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
