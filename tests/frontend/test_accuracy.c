/* The errors of unary functions on the CPU: for f32 every STRIDE-th number, for f64 random ones, compared with the C
 * library's next wider type. ACCURACY in the environment prints the errors of the function that it names, or of all. */
#include "support.h"

#ifndef STRIDE
#define STRIDE 4093
#define COUNT  200000 /* numbers of f64 */
#endif
enum { CHUNK = 1 << 20 };

typedef db_tensor *call_type(db_tensor *x);
typedef double reference_type(double x);
typedef long double wide_type(long double x);

static db_tensor *call_softplus(db_tensor *x) { return db_softplus(x, 1); }
#define CALL(name)                                                                                                     \
  static db_tensor *call_##name(db_tensor *x) { return db_##name(x); }
CALL(exp2)
CALL(exp)
CALL(log2)
CALL(log)
CALL(sin)
CALL(cos)
CALL(expm1)
CALL(log1p)
CALL(sigmoid)
CALL(tanh)
CALL(erf)
CALL(silu)
CALL(gelu)
CALL(gelu_tanh)
CALL(mish)

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double silu(double x) { return x * sigmoid(x); }
static double gelu(double x) { return x / 2 * erfc(-x * M_SQRT1_2); }
static double gelu_tanh(double x) { return x * sigmoid(2 * M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x)); }
static double softplus(double x) { return fmax(x, 0) + log1p(exp(-fabs(x))); }
static double mish(double x) { return x * tanh(softplus(x)); }

/* ulps: allowed error of the result; within: additional absolute error, where a difference cancels. */
static const struct row {
  const char *name;
  call_type *call;
  reference_type *single;
  wide_type *twice;
  double most, ulps, within, ulps_twice; /* most: the largest |x| tested */
} rows[] = {
#define ROW(name, wide, ...) {#name, call_##name, name, wide, __VA_ARGS__}
    ROW(exp2, exp2l, INFINITY, 0.9, 0, 0.9),      ROW(exp, expl, INFINITY, 1.1, 0, 1.1),
    ROW(log2, log2l, INFINITY, 1.8, 0, 1.8),      ROW(log, logl, INFINITY, 2.8, 0, 2.8),
    ROW(sin, sinl, 0x1p40, 2.2, 0, 2.2),          ROW(cos, cosl, 0x1p40, 3, 4e-7, 3),
    ROW(expm1, expm1l, INFINITY, 2.5, 0, 2.5),    ROW(log1p, log1pl, INFINITY, 4.5, 0, 4.5),
    ROW(tanh, tanhl, INFINITY, 5.5, 0, 3),        ROW(erf, erfl, INFINITY, 6.5, 0, 3),
    ROW(sigmoid, NULL, INFINITY, 3, 0x1p-126, 0), ROW(silu, NULL, INFINITY, 4, 0x1p-119, 0),
    ROW(gelu, NULL, INFINITY, 8, 1.2e-6, 0),      ROW(gelu_tanh, NULL, INFINITY, 8, 5e-7, 0),
    ROW(softplus, NULL, INFINITY, 3, 0, 0),       ROW(mish, NULL, INFINITY, 8, 1e-7, 0),
};

static bool is_chosen(const struct row *row) {
  const char *name = getenv("ACCURACY");
  return !name || !*name || !strcmp(name, row->name) || !strcmp(name, "all");
}

static double error_of(double got, double want, double float_want, int digits, int least, double within) {
  if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : INFINITY;
  if (got == float_want) return 0;
  int e;
  frexp(want, &e);
  double ulp = ldexp(1, (e - 1 < least ? least : e - 1) - digits);
  return fmax(fabs(got - want) - within, 0) / ulp;
}

static void single(void **state) {
  db_device *dev = open_device("CPU");
  float *x = malloc(CHUNK * sizeof *x), *y = malloc(CHUNK * sizeof *y);
  for (unsigned f = 0; f < sizeof rows / sizeof *rows; f++) {
    const struct row *row = &rows[f];
    if (!is_chosen(row)) continue;
    double worst = 0;
    float at = 0;
    for (uint64_t bits = 0; bits >> 32 == 0;) {
      unsigned n = 0;
      for (; n < CHUNK && bits >> 32 == 0; bits += STRIDE) {
        uint32_t b = (uint32_t)bits;
        memcpy(&x[n], &b, 4);
        n += !(fabsf(x[n]) > (float)row->most);
      }
      if (!n) continue;
      DB_SCOPED;
      must_read(row->call(db_from(x, DB_F32, dev, n)), y, n * sizeof *y);
      for (unsigned i = 0; i < n; i++) {
        double want = row->single((double)x[i]),
               e = error_of((double)y[i], want, (double)(float)want, 23, -126, row->within);
        if (!(e <= worst)) worst = e, at = x[i];
      }
    }
    if (getenv("ACCURACY")) print_message("%-10s f32 %.3f ulp at %a\n", row->name, worst, (double)at);
    if (!(worst <= row->ulps)) {
      must_read(row->call(db_from(&at, DB_F32, dev, 1)), y, 4);
      fail_msg("%s(%a) is %.9g, not %.9g: %g ulp, %g allowed", row->name, (double)at, (double)y[0],
               row->single((double)at), worst, row->ulps);
    }
  }
  free(x), free(y);
  db_close(dev);
}

static uint64_t random_bits(void) {
  static uint64_t s = 88172645463325252;
  s ^= s << 13, s ^= s >> 7, s ^= s << 17;
  return s;
}

static void twice(void **state) {
  db_device *dev = open_device("CPU");
  double *x = malloc(COUNT * sizeof *x), *y = malloc(COUNT * sizeof *y);
  for (unsigned f = 0; f < sizeof rows / sizeof *rows; f++) {
    const struct row *row = &rows[f];
    if (!row->twice || !is_chosen(row)) continue;
    double worst = 0, at = 0;
    DB_SCOPED;
    for (unsigned i = 0; i < COUNT; i++) { /* three of four in an interesting span */
      double unit = (double)(random_bits() >> 11) * 0x1p-53;
      uint64_t bits = random_bits();
      if (i % 4)
        x[i] = (unit - 0.5) * (i % 4 == 1 ? 2 : i % 4 == 2 ? 20 : 1500);
      else
        memcpy(&x[i], &bits, 8);
      if (fabs(x[i]) > row->most) x[i] = unit;
    }
    must_read(row->call(db_from(x, DB_F64, dev, COUNT)), y, COUNT * sizeof *y);
    for (unsigned i = 0; i < COUNT; i++) {
      long double want = row->twice((long double)x[i]);
      double near = (double)want, e = 0;
      if (isnan(near) || isnan(y[i]))
        e = isnan(near) && isnan(y[i]) ? 0 : INFINITY;
      else if (y[i] != near) {
        int exponent;
        frexp(near, &exponent);
        e = (double)fabsl(((long double)y[i] - want) / ldexpl(1, (exponent < -1021 ? -1021 : exponent) - 53));
        if (row->within && (double)fabsl((long double)y[i] - want) < row->within * 0x1p-29) e = 0;
      }
      if (!(e <= worst)) worst = e, at = x[i];
    }
    if (getenv("ACCURACY")) print_message("%-10s f64 %.3f ulp at %a\n", row->name, worst, at);
    if (!(worst <= row->ulps_twice)) fail_msg("%s(%a): %g ulp, %g allowed", row->name, at, worst, row->ulps_twice);
  }
  free(x), free(y);
  db_close(dev);
}

/* ---- derivatives ---- */
static double d_tanh(double x) { return pow(cosh(x), -2); }
static double d_erf(double x) { return M_2_SQRTPI * exp(-x * x); }
static double d_expm1(double x) { return exp(x); }
static double d_log1p(double x) { return 1 / (1 + x); }
static double d_sigmoid(double x) { return sigmoid(x) * sigmoid(-x); }
static double d_silu(double x) { return sigmoid(x) * (1 + x * sigmoid(-x)); }
static double d_gelu(double x) { return erfc(-x * M_SQRT1_2) / 2 + x * exp(-x * x / 2) * M_2_SQRTPI * M_SQRT1_2 / 2; }
static double d_gelu_tanh(double x) {
  double slope = 2 * M_2_SQRTPI * M_SQRT1_2, u = slope * (x + 0.044715 * x * x * x);
  return sigmoid(u) + x * d_sigmoid(u) * slope * (1 + 3 * 0.044715 * x * x);
}
static double d_mish(double x) { return tanh(softplus(x)) + x * d_tanh(softplus(x)) * sigmoid(x); }

static void derivatives(void **state) {
  static const struct {
    const char *name;
    call_type *call;
    reference_type *exact;
    double low, high, within; /* within: relative to the larger of 1 and the derivative */
  } rows_[] = {
#define D(name, exact, low, high) {#name, call_##name, exact, low, high, 4e-6}
      D(tanh, d_tanh, -100, 100),    D(erf, d_erf, -100, 100),         D(expm1, d_expm1, -100, 80),
      D(log1p, d_log1p, -0.99, 1e6), D(sigmoid, d_sigmoid, -200, 200), D(softplus, sigmoid, -200, 200),
      D(silu, d_silu, -200, 200),    D(gelu, d_gelu, -100, 100),       D(gelu_tanh, d_gelu_tanh, -100, 100),
      D(mish, d_mish, -80, 200),
  };
  enum { N = 20001 };
  static float x[N], y[N];
  db_device *dev = open_device("CPU");
  for (unsigned f = 0; f < sizeof rows_ / sizeof *rows_; f++) {
    DB_SCOPED;
    double low = rows_[f].low, high = rows_[f].high;
    for (int i = 0; i < N; i++) { /* the middle of the span is 0; three of four numbers are near it */
      double v = i % 4 ? (i - N / 2) * (12.0 / N) : low + (high - low) * i / N;
      x[i] = (float)(v < low ? low : v > high ? high : v);
    }
    db_tensor *in = db_from(x, DB_F32, dev, N);
    must_read(db_grad(db_sum(rows_[f].call(in)), in), y, sizeof y);
    for (int i = 0; i < N; i++) {
      double want = rows_[f].exact((double)x[i]), e = fabs((double)y[i] - want);
      if (!(e <= rows_[f].within * fmax(1, fabs(want))))
        fail_msg("the derivative of %s at %.9g is %.9g, not %.9g", rows_[f].name, (double)x[i], (double)y[i], want);
    }
  }
  db_close(dev);
}

/* A variance is a sum of partial results, each a reduction that uses the mean: its lanes must be partial sums too, or
 * single additions to a large sum round away what they add. */
static void variance_of_many(void **state) {
  enum { N = 1 << 20 };
  static float x[N];
  DB_SCOPED;
  db_device *dev = open_device("CPU");
  double sum = 0, squares = 0, got;
  uint32_t random = 1;
  for (int i = 0; i < N; i++) {
    random = random * 1664525 + 1013904223;
    x[i] = (float)(random >> 8) * 0x1p-24F, sum += (double)x[i];
  }
  for (int i = 0; i < N; i++) squares += ((double)x[i] - sum / N) * ((double)x[i] - sum / N);
  assert_int_equal(db_item(db_var(db_from(x, DB_F32, dev, N)), &got), 0);
  if (!(fabs(got / (squares / (N - 1)) - 1) < 2e-6)) fail_msg("%.9g, not %.9g", got, squares / (N - 1));
  db_close(dev);
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(single), cmocka_unit_test(twice), cmocka_unit_test(derivatives),
                                     cmocka_unit_test(variance_of_many)};
  return cmocka_run_group_tests_name("accuracy", tests, NULL, finish);
}
