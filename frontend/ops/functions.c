/* Functions as arithmetic: exponentials and trigonometry from EXP2, LOG2 and SIN, inverses from power series on a
 * reduced range. Where a difference would lose digits, a series is used instead. The number of its terms depends on the
 * type. */
#include "functions.h"
#include <math.h>

static struct expr divide(struct expr a, struct expr b) { return expr_binary(OP_FDIV, a, b); }
static struct expr both(struct expr a, struct expr b) { return expr_binary(OP_AND, a, b); }
static struct expr either(struct expr a, struct expr b) { return expr_binary(OP_OR, a, b); }
static struct expr equal(struct expr x, double v) { return binary_num(OP_CMPEQ, x, v); }
static struct expr one_minus(struct expr x) { return sub(expr_num(x, 1), x); }
static struct expr negative(struct expr x) { return less_num(x, 0); }
static bool is_signed(struct expr x) { return dtype_info[x.dtype].cls == 'i'; }
static bool is_float(struct expr x) { return dtype_is_float(x.dtype); }
static struct expr clamp(struct expr x, double most) {
  return math_max(math_min(x, expr_num(x, most)), expr_num(x, -most));
}
/* The number of terms that a series needs for the type. */
static unsigned terms(struct expr x, unsigned single, unsigned twice) { return x.dtype == DT_F64 ? twice : single; }

/* x where the series is used, else 0. Without this, the derivative of the branch not taken could be infinity * 0, which
 * is NaN. */
static struct expr zero_unless(struct expr where, struct expr x) { return expr_where(where, x, expr_num(x, 0)); }

/* c[0] + c[1] z + ... with n coefficients. */
static struct expr polynomial(struct expr z, const double *c, unsigned n) {
  struct expr p = expr_num(z, c[n - 1]);
  for (unsigned i = n - 1; i-- > 0;) p = expr_mulacc(p, z, expr_num(z, c[i]));
  return p;
}

/* ---- any numeric type ---- */

struct expr math_neg(struct expr x) { return expr_unary(OP_NEG, x); }
/* For floats the maximum of x and -x, plus 0 to turn -0 into 0. */
struct expr math_abs(struct expr x) {
  if (is_float(x)) return add_num(expr_binary(OP_MAX, x, math_neg(x)), 0);
  return is_signed(x) ? expr_where(negative(x), math_neg(x), x) : x;
}
struct expr math_sign(struct expr x) {
  struct expr positive = expr_where(less(expr_num(x, 0), x), expr_num(x, 1), x); /* 0 and NaN are unchanged */
  return expr_where(negative(x), expr_num(x, -1), positive);
}
struct expr math_trunc(struct expr x) { return is_float(x) ? expr_unary(OP_TRUNC, x) : x; }
struct expr math_floor(struct expr x) {
  if (!is_float(x)) return x;
  struct expr t = math_trunc(x);
  return expr_where(less(x, t), binary_num(OP_SUB, t, 1), t);
}
struct expr math_ceil(struct expr x) {
  if (!is_float(x)) return x;
  struct expr t = math_trunc(x);
  return expr_where(less(t, x), add_num(t, 1), t);
}
struct expr math_round(struct expr x) {
  if (!is_float(x)) return x;
  struct expr t = math_trunc(x), rest = math_abs(sub(x, t)), half = mul_num(t, 0.5);
  struct expr odd = expr_binary(OP_CMPNE, half, math_trunc(half));
  struct expr away = either(less(expr_num(x, 0.5), rest), both(equal(rest, 0.5), odd));
  return expr_where(away, add(t, expr_where(negative(x), expr_num(x, -1), expr_num(x, 1))), t);
}
struct expr math_frac(struct expr x) { return is_float(x) ? sub(x, math_trunc(x)) : expr_binary(OP_XOR, x, x); }
struct expr math_square(struct expr x) { return mul(x, x); }
struct expr math_max(struct expr a, struct expr b) { return expr_binary(OP_MAX, a, b); }
/* Uses MAX, which propagates NaN: -max(-a, -b). For integers ~max(~a, ~b), which cannot overflow. */
struct expr math_min(struct expr a, struct expr b) {
  if (is_float(a)) return math_neg(math_max(math_neg(a), math_neg(b)));
  return expr_not(math_max(expr_not(a), expr_not(b)));
}

static struct expr everywhere_false(struct expr x) { return expr_full(expr_const(DT_BOOL, 0, 0), x.rank, x.dim); }
struct expr math_isnan(struct expr x) { return is_float(x) ? expr_binary(OP_CMPNE, x, x) : everywhere_false(x); }
struct expr math_isinf(struct expr x) { return is_float(x) ? equal(math_abs(x), INFINITY) : everywhere_false(x); }
struct expr math_isfinite(struct expr x) {
  if (x.dtype == DT_F8E4M3) return expr_binary(OP_CMPEQ, x, x); /* E4M3 has no infinity */
  return is_float(x) ? less_num(math_abs(x), INFINITY) : expr_not(everywhere_false(x));
}

/* ---- division ---- */

/* Integer division that does not trap on any machine: x / 0 is 0, and the smallest integer divided by -1 wraps
 * around. */
static struct expr safe_quotient(struct expr a, struct expr b) {
  struct expr zero = is_zero(b), bad = zero, minus = zero;
  if (is_signed(a)) {
    minus = equal(b, -1);
    bad = either(zero, minus);
  }
  struct expr q = expr_binary(OP_IDIV, a, expr_where(bad, expr_num(b, 1), b));
  if (is_signed(a)) q = expr_where(minus, math_neg(a), q);
  return expr_where(zero, expr_num(q, 0), q);
}

/* The remainder a - trunc(a / b) * b, rounded once and corrected if a / b was rounded across an integer. Exact while
 * the quotient is exact: below 2^24, in f64 below 2^53. */
static struct expr float_fmod(struct expr a, struct expr b) {
  struct expr q = math_trunc(divide(a, b)), size = math_abs(b);
  struct expr r = expr_mulacc(math_neg(q), b, a);
  struct expr down = negative(a), over = expr_where(down, less(expr_num(r, 0), r), negative(r));
  struct expr step = expr_where(down, math_neg(size), size);
  r = expr_where(over, add(r, step), r);
  r = expr_where(less(math_abs(r), size), r, sub(r, step));
  r = expr_where(equal(size, INFINITY), expr_where(math_isinf(a), expr_num(a, NAN), a), r);
  return expr_where(is_zero(r), mul_num(a, 0), r); /* a 0 has the sign of a, too */
}
struct expr math_fmod(struct expr a, struct expr b) {
  if (is_float(a)) return float_fmod(a, b);
  return expr_where(is_zero(b), expr_num(a, 0), sub(a, mul(safe_quotient(a, b), b)));
}
struct expr math_mod(struct expr a, struct expr b) {
  struct expr r = math_fmod(a, b);
  if (!is_signed(a) && !is_float(a)) return r;
  struct expr nonzero = expr_binary(OP_CMPNE, r, expr_num(r, 0));
  struct expr apart = expr_binary(OP_XOR, negative(r), negative(b));
  return expr_where(both(nonzero, apart), add(r, b), r);
}
struct expr math_idiv_trunc(struct expr a, struct expr b) {
  return is_float(a) ? math_trunc(divide(a, b)) : safe_quotient(a, b);
}
struct expr math_idiv(struct expr a, struct expr b) {
  if (is_float(a)) { /* subtract the remainder first, because a / b may have been rounded up to an integer */
    struct expr r = math_mod(a, b), whole = math_floor(add_num(divide(sub(a, r), b), 0.5));
    struct expr far =
        expr_where(both(expr_binary(OP_CMPNE, a, expr_num(a, 0)), expr_binary(OP_XOR, negative(a), negative(b))),
                   expr_num(a, -1), expr_num(a, 0));
    struct expr q = expr_where(both(math_isinf(b), math_isfinite(a)), far, whole);
    return expr_where(is_zero(b), divide(a, b), q);
  }
  struct expr q = safe_quotient(a, b);
  if (!is_signed(a)) return q;
  struct expr r = sub(a, mul(q, b)), inexact = expr_binary(OP_CMPNE, r, expr_num(r, 0));
  struct expr down = both(both(inexact, negative(expr_binary(OP_XOR, a, b))), expr_not(is_zero(b)));
  return sub(q, expr_cast(down, q.dtype));
}

/* ---- powers ---- */

static struct expr sign_bit(struct expr x) {
  struct expr bits = x;
  bits.dtype = x.dtype == DT_F64 ? DT_I64 : DT_I32;
  bits.u = uop_new(rt.graph, OP_BITCAST, bits.dtype, 1, (union uop_arg){0}, 0, &x.u, 1);
  return negative(bits);
}

struct expr math_power(struct expr a, int64_t n) {
  struct expr r = expr_num(a, 1);
  if (!n) return expr_broadcast(r, a.rank, a.dim);
  for (bool first = true; n; n >>= 1, a = n ? math_square(a) : a)
    if (n & 1) r = first ? a : mul(r, a), first = false;
  return r;
}

/* Exponentiation by squaring over every bit of the exponent. For a negative exponent, 1 / a^-b truncated to an
 * integer. */
static struct expr integer_pow(struct expr a, struct expr b) {
  unsigned bits = 8u * dtype_info[a.dtype].size;
  struct expr r = expr_num(a, 1), square = a, left = b;
  for (unsigned i = 0; i < bits - is_signed(a); i++) {
    struct expr bit = binary_num(OP_AND, left, 1);
    r = expr_where(is_zero(bit), r, mul(r, square));
    square = math_square(square);
    left = binary_num(OP_SHR, left, 1);
  }
  if (!is_signed(a)) return r;
  struct expr odd = binary_num(OP_AND, b, 1);
  struct expr minus = expr_where(is_zero(odd), expr_num(a, 1), expr_num(a, -1));
  struct expr inverse = expr_where(equal(a, 1), a, expr_where(equal(a, -1), minus, expr_num(a, 0)));
  return expr_where(negative(b), inverse, r);
}

/* |a|^b through logarithms. The power of a negative a has the sign of a if b is an odd integer and no sign if b is an
 * even one; for other b it is NaN, except for infinities. For the derivative's sake, 0 is kept out of the logarithm,
 * and a constant replaces a power of 1 only where that is NaN. */
struct expr math_pow(struct expr a, struct expr b) {
  if (!is_float(a)) return integer_pow(a, b);
  struct expr one = expr_num(a, 1), size = expr_where(negative(a), math_neg(a), a), none = is_zero(a);
  struct expr power = expr_unary(OP_EXP2, mul(expr_unary(OP_LOG2, expr_where(none, one, size)), b));
  power = expr_where(both(equal(size, 1), math_isnan(power)), one, power);
  struct expr of_zero = expr_where(negative(b), expr_num(b, INFINITY), expr_where(math_isnan(b), b, expr_num(b, 0)));
  of_zero = expr_where(equal(b, 1), add_num(size, 0),
                       of_zero); /* b = 1 is the only power with a derivative at 0 that is neither 0 nor infinite */
  power = expr_where(none, of_zero, power);
  struct expr whole = expr_binary(OP_CMPEQ, b, math_trunc(b)), half = mul_num(b, 0.5);
  struct expr odd = both(whole, expr_binary(OP_CMPNE, half, math_trunc(half)));
  whole = either(whole, either(none, equal(size, INFINITY)));
  struct expr of_negative = expr_where(whole, expr_where(odd, math_neg(power), power), expr_num(a, NAN));
  struct expr r = expr_where(sign_bit(a), of_negative, power);
  r = expr_where(both(equal(a, 1), math_isnan(r)), one, r);
  return expr_where(both(is_zero(b), either(none, math_isnan(r))), one, r);
}

struct expr math_reciprocal(struct expr x) { return expr_unary(OP_RECIP, x); }
struct expr math_sqrt(struct expr x) { return expr_unary(OP_SQRT, x); }
struct expr math_rsqrt(struct expr x) { return expr_unary(OP_RECIP, expr_unary(OP_SQRT, x)); }

/* ---- exponentials and logarithms ---- */

struct expr math_exp2(struct expr x) { return expr_unary(OP_EXP2, x); }
struct expr math_exp(struct expr x) { return expr_unary(OP_EXP2, mul_num(x, M_LOG2E)); }
struct expr math_exp10(struct expr x) { return expr_unary(OP_EXP2, mul_num(x, 0x1.a934f0979a371p+1)); }
struct expr math_log2(struct expr x) { return expr_unary(OP_LOG2, x); }
struct expr math_log(struct expr x) { return mul_num(expr_unary(OP_LOG2, x), M_LN2); }
struct expr math_log10(struct expr x) { return mul_num(expr_unary(OP_LOG2, x), 0x1.34413509f79ffp-2); }

/* Below 1/2 the series x + x^2/2! + x^3/3! + ... */
struct expr math_expm1(struct expr x) {
  double c[15];
  unsigned n = terms(x, 8, 15);
  c[0] = 1;
  for (unsigned i = 1; i < n; i++) c[i] = c[i - 1] / (i + 1);
  struct expr near = less_num(math_abs(x), 0.5), r = mul(x, polynomial(x, c, n));
  return expr_function(FUNCTION_EXPM1, expr_where(near, r, add_num(math_exp(x), -1)), x);
}
/* Near 0 the series of 2 artanh(x / (2 + x)). */
struct expr math_log1p(struct expr x) {
  double c[11];
  unsigned n = terms(x, 5, 11);
  for (unsigned i = 0; i < n; i++) c[i] = 2.0 / (2 * i + 1);
  struct expr near = less_num(math_abs(x), 0.3), s = divide(x, add_num(x, 2));
  struct expr r = expr_where(near, mul(s, polynomial(math_square(s), c, n)), math_log(add_num(x, 1)));
  return expr_function(FUNCTION_LOG1P, r, x);
}
/* log(1 + x) for x in [0, 1]. In f32 a polynomial from tests/compiler/minimax.py with an error of 2^-27.5. */
static struct expr log1p_of_part(struct expr x) {
  static const double c[] = {1,
                             -0x1.ffffd2p-2,
                             0x1.554ddp-2,
                             -0x1.ff23e6p-3,
                             0x1.934b54p-3,
                             -0x1.3a436p-3,
                             0x1.b4ae1ep-4,
                             -0x1.d6b0e4p-5,
                             0x1.491866p-6,
                             -0x1.af4b4ep-9};
  if (x.dtype == DT_F64) return math_log1p(x);
  return expr_function(FUNCTION_LOG1P, mul(x, polynomial(x, c, sizeof c / sizeof *c)), x);
}

/* max(a, b) + log(1 + exp(-|a - b|)); the difference of equal infinities is set to 0. */
struct expr math_logaddexp(struct expr a, struct expr b) {
  struct expr apart = math_abs(sub(a, b)), high = math_max(a, b);
  apart = expr_where(expr_binary(OP_CMPEQ, a, b), expr_num(a, 0), apart);
  return add(high, log1p_of_part(math_exp(math_neg(apart))));
}
/* log(1 + exp(x)) */
struct expr math_softplus(struct expr x) {
  struct expr r = add(math_max(x, expr_num(x, 0)), log1p_of_part(math_exp(math_neg(math_abs(x)))));
  return expr_function(FUNCTION_SOFTPLUS, r, x);
}

/* graph_gradient recognizes this pattern and uses the sigmoid's own derivative, so exp(-x) may overflow. */
struct expr math_sigmoid(struct expr x) {
  return math_reciprocal(add_num(expr_unary(OP_EXP2, mul_num(x, -M_LOG2E)), 1));
}

/* ---- hyperbolic functions ---- */

/* x p(x^2) / q(x^2), clamped to [-1, 1]. x is clamped to `most`, where f is 1 or -1 in f32. The coefficients are from
 * tests/compiler/minimax.py, with errors of 2^-25.5 before rounding. q[0] is 1. */
struct rational {
  double most, p[7], q[7];
};
static struct expr odd_rational(struct expr x, const struct rational *f, unsigned n, unsigned m) {
  struct expr y = clamp(x, f->most), s = math_square(y);
  return clamp(divide(mul(y, polynomial(s, f->p, n)), polynomial(s, f->q, m)), 1);
}

/* f32: an error of 5 ulp. f64: (1 - e) / (1 + e) with e = exp(-2|x|). This loses digits near 0, so below 1/4 the power
 * series is used, whose terms decrease by a factor of 40. */
struct expr math_tanh(struct expr x) {
  static const struct rational f = {9.02,
                                    {1, 0x1.12043ep-3, 0x1.c9f842p-9, 0x1.595534p-16, 0x1.c9a352p-27},
                                    {1, 0x1.de5768p-2, 0x1.a7df1ap-6, 0x1.5841bep-12, 0x1.a0b812p-21}};
  static const double series[] = {-1.0 / 3,
                                  2.0 / 15,
                                  -17.0 / 315,
                                  62.0 / 2835,
                                  -1382.0 / 155925,
                                  21844.0 / 6081075,
                                  -929569.0 / 638512875,
                                  6404582.0 / 10854718875,
                                  -443861162.0 / 1856156927625,
                                  18888466084.0 / 194896477400625};
  if (x.dtype != DT_F64) return expr_function(FUNCTION_TANH, odd_rational(x, &f, 5, 5), x);
  struct expr a = math_abs(x), e = math_exp(mul_num(a, -2)), s = math_square(x);
  struct expr far = divide(one_minus(e), add_num(e, 1));
  struct expr near = mul(x, expr_mulacc(s, polynomial(s, series, 10), expr_num(x, 1)));
  far = expr_where(negative(x), math_neg(far), far);
  return expr_function(FUNCTION_TANH, expr_where(less_num(a, 0.25), near, far), x);
}
/* exp(|x|) is computed as a product of two factors, because it overflows before exp(|x|) / 2 does. */
struct expr math_sinh(struct expr x) {
  double c[10];
  unsigned n = terms(x, 6, 10);
  c[0] = 1;
  for (unsigned i = 1; i < n; i++) c[i] = c[i - 1] / ((2 * i) * (2 * i + 1));
  struct expr a = math_abs(x), h = math_exp(mul_num(a, 0.5)), half = mul_num(h, 0.5);
  struct expr far = sub(mul(half, h), divide(expr_num(x, 0.5), math_square(h)));
  far = expr_where(negative(x), math_neg(far), far);
  struct expr near = less_num(a, 1), y = zero_unless(near, x);
  return expr_where(near, mul(y, polynomial(math_square(y), c, n)), far);
}
struct expr math_cosh(struct expr x) {
  struct expr h = math_exp(mul_num(math_abs(x), 0.5)), half = mul_num(h, 0.5);
  return add(mul(half, h), divide(expr_num(x, 0.5), math_square(h)));
}
/* log(2|x|), used where the square of x would overflow. */
static struct expr log_twice(struct expr x) { return add_num(math_log(x), M_LN2); }
struct expr math_asinh(struct expr x) {
  struct expr a = math_abs(x), far = less(expr_num(x, 1e9), a), b = expr_where(far, expr_num(x, 1), a),
              s = math_square(b);
  struct expr near = math_log1p(add(b, divide(s, add_num(math_sqrt(add_num(s, 1)), 1))));
  struct expr r = expr_where(far, log_twice(a), near);
  r = expr_where(math_isnan(x), x, r);
  return expr_where(negative(x), math_neg(r), expr_where(is_zero(x), x, r));
}
struct expr math_acosh(struct expr x) {
  struct expr far = less(expr_num(x, 1e9), x), t = add_num(expr_where(far, expr_num(x, 2), x), -1);
  struct expr near = math_log1p(add(t, math_sqrt(mul(t, add_num(t, 2)))));
  return expr_where(less_num(x, 1), expr_num(x, NAN), expr_where(far, log_twice(x), near));
}
struct expr math_atanh(struct expr x) {
  struct expr a = math_abs(x), r = mul_num(math_log1p(divide(mul_num(a, 2), one_minus(a))), 0.5);
  return expr_where(negative(x), math_neg(r), expr_where(is_zero(x), x, r));
}

/* ---- trigonometry ---- */

struct expr math_sin(struct expr x) { return expr_unary(OP_SIN, x); }
/* 1 - 2 sin^2(x/2); x + pi/2 would lose digits of a large x. */
struct expr math_cos(struct expr x) { return one_minus(mul_num(math_square(expr_unary(OP_SIN, mul_num(x, 0.5))), 2)); }
/* Computed in f64, because near the poles the cosine must have a small relative error. */
struct expr math_tan(struct expr x) {
  struct expr wide = expr_cast(x, DT_F64);
  return expr_cast(divide(math_sin(wide), math_cos(wide)), x.dtype);
}

/* Reduces |x| below tan(pi/8) by atan a = pi/4 + atan((a - 1) / (a + 1)) = pi/2 - atan(1 / a), then uses the power
 * series. */
struct expr math_atan(struct expr x) {
  double c[21];
  unsigned n = terms(x, 9, 21);
  for (unsigned i = 0; i < n; i++) c[i] = (i % 2 ? -1.0 : 1.0) / (2 * i + 1);
  struct expr a = math_abs(x), one = expr_num(x, 1);
  struct expr middle = less(expr_num(x, 0x1.a827999fcef32p-2), a), high = less(expr_num(x, 0x1.3504f333f9de6p+1), a);
  struct expr over = expr_where(high, expr_num(x, -1), expr_where(middle, add_num(a, -1), a));
  struct expr under = expr_where(high, a, expr_where(middle, add_num(a, 1), one));
  struct expr from = expr_where(high, expr_num(x, M_PI_2), expr_where(middle, expr_num(x, M_PI_4), expr_num(x, 0)));
  struct expr s = divide(over, under), r = add(from, mul(s, polynomial(math_square(s), c, n)));
  return expr_where(negative(x), math_neg(r), expr_where(is_zero(x), x, r));
}
struct expr math_asin(struct expr x) {
  struct expr root = math_sqrt(mul(one_minus(x), add_num(x, 1)));
  return mul_num(math_atan(divide(x, add_num(root, 1))), 2);
}
struct expr math_acos(struct expr x) { return mul_num(math_atan(math_sqrt(divide(one_minus(x), add_num(x, 1)))), 2); }

struct expr math_copysign(struct expr a, struct expr b) {
  return expr_where(expr_binary(OP_XOR, sign_bit(a), sign_bit(b)), math_neg(a), a);
}
struct expr math_atan2(struct expr y, struct expr x) {
  /* the magnitude of y, with a derivative other than 0 at 0 */
  struct expr ay = expr_where(sign_bit(y), math_neg(y), y), ax = math_abs(x);
  struct expr same = expr_binary(OP_CMPEQ, ay, ax), zero = both(is_zero(y), same);
  /* equal magnitudes, including infinite ones, have the ratio 1; two zeros have the ratio 0 */
  struct expr ratio = divide(expr_where(same, expr_num(y, 1), ay), expr_where(same, expr_num(y, 1), ax));
  struct expr r = math_atan(expr_where(zero, expr_num(y, 0), ratio));
  r = expr_where(sign_bit(x), sub(expr_num(r, M_PI), r), r);
  r = expr_where(either(math_isnan(x), math_isnan(y)), expr_num(r, NAN), r);
  return expr_where(sign_bit(y), math_neg(r), r);
}

/* ---- the error function ---- */

/* f32: an error of 6 ulp. f64: below 0.9 the power series. Above, 1 - exp(-a^2) times a polynomial in t = (a - 2.4) /
 * (a + 2.4): a Chebyshev fit of exp(a^2) erfc(a) over [0.9, 6] with an error of 3e-21. At 6 the result is 1. */
struct expr math_erf(struct expr x) {
  static const struct rational f = {
      3.93,
      {0x1.20dd74p+0, 0x1.86b986p-3, 0x1.b07530p-5, 0x1.ef6644p-9, 0x1.2aa4b4p-12, 0x1.1211bcp-19},
      {1, 0x1.013beap-1, 0x1.d3ff94p-4, 0x1.eb6f70p-7, 0x1.3173f0p-10, 0x1.3ecd38p-15}};
  static const double fit[] = {
      0.218498734537033325,     -0.382009158325212551,     0.251456181501586658,     -0.117725340677060949,
      0.0327210647921980105,    -0.000681061956833338786,  -0.0029738439272195939,   0.000480280894908497902,
      0.00034476092956168213,   -0.0000717484964329707948, -0.000055929902217074776, 6.88096487524190641e-6,
      0.0000107620907948014439, 5.8049827773512599e-7,     -1.98358302264973806e-6,  -6.01850420851716004e-7,
      2.60787421000250579e-7,   2.06186241029744146e-7,    -3.60252510894570438e-9,  -3.75458122547669857e-8};
  if (x.dtype != DT_F64) return expr_function(FUNCTION_ERF, odd_rational(x, &f, 6, 6), x);
  enum { TERMS = 18 };
  double c[TERMS], term = M_2_SQRTPI;
  for (unsigned i = 0; i < TERMS; term = -term / ++i) c[i] = term / (2 * i + 1);
  struct expr a = math_abs(x), near = mul(x, polynomial(math_square(x), c, TERMS));
  struct expr b = math_min(a, expr_num(a, 6)), t = divide(add_num(b, -2.4), add_num(b, 2.4));
  struct expr far = one_minus(mul(math_exp(math_neg(math_square(b))), polynomial(t, fit, sizeof fit / sizeof *fit)));
  far = expr_where(negative(x), math_neg(far), far);
  return expr_function(FUNCTION_ERF, expr_where(less_num(a, 0.9), near, far), x);
}

/* x - the maximum over the axes, so that its powers cannot overflow. */
static struct expr below_maximum(struct expr x, unsigned mask) {
  return sub(x, expr_expand(expr_reduce_bound(x, mask), x.dim));
}

struct expr math_softmax(struct expr x, unsigned mask, const struct expr *masked) {
  struct expr power = math_exp(below_maximum(x, mask));
  if (masked) power = expr_where(*masked, expr_num(power, 0), power);
  struct expr total = expr_reduce(OP_ADD, power, mask);
  struct expr value = mul(power, expr_expand(expr_unary(OP_RECIP, total), x.dim));
  return expr_function_along(FUNCTION_SOFTMAX, mask, value, x);
}

struct expr math_log_softmax(struct expr x, unsigned mask) {
  struct expr d = below_maximum(x, mask);
  return sub(d, expr_expand(math_log(expr_reduce(OP_ADD, math_exp(d), mask)), x.dim));
}
