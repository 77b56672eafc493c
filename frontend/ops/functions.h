/* Mathematical functions as expressions of the graph's operations. Arguments are floats of 32 or 64 bits unless a
 * comment says otherwise. */
#ifndef DOORBELL_FRONTEND_MATH_H
#define DOORBELL_FRONTEND_MATH_H
#include "../tensor/expr.h"

static inline struct expr binary_num(enum op op, struct expr x, double v) { return expr_binary(op, x, expr_num(x, v)); }
static inline struct expr add(struct expr a, struct expr b) { return expr_binary(OP_ADD, a, b); }
static inline struct expr sub(struct expr a, struct expr b) { return expr_binary(OP_SUB, a, b); }
static inline struct expr mul(struct expr a, struct expr b) { return expr_binary(OP_MUL, a, b); }
static inline struct expr add_num(struct expr x, double v) { return binary_num(OP_ADD, x, v); }
static inline struct expr mul_num(struct expr x, double v) { return binary_num(OP_MUL, x, v); }
static inline struct expr less(struct expr a, struct expr b) { return expr_binary(OP_CMPLT, a, b); }
static inline struct expr less_num(struct expr a, double v) { return binary_num(OP_CMPLT, a, v); }
static inline struct expr is_zero(struct expr x) { return binary_num(OP_CMPEQ, x, 0); }
/* The type in which transcendental functions are computed. */
static inline enum dtype math_type(enum dtype t) { return !dtype_is_float(t) || dtype_is_narrow_float(t) ? DT_F32 : t; }
/* The type in which products are summed. Matrix instructions sum products of bytes in i32; the low byte of that sum is
 * the sum of bytes. */
static inline enum dtype product_sum_type(enum dtype t) {
  if (t == DT_BOOL || t == DT_I8 || t == DT_U8) return DT_I32;
  return dtype_is_narrow_float(t) ? DT_F32 : t;
}

/* For every numeric type. */
struct expr math_neg(struct expr x);
struct expr math_abs(struct expr x);
struct expr math_sign(struct expr x);
struct expr math_trunc(struct expr x);
struct expr math_floor(struct expr x);
struct expr math_ceil(struct expr x);
struct expr math_round(struct expr x); /* rounds halves to even */
struct expr math_frac(struct expr x);
struct expr math_square(struct expr x);
struct expr math_max(struct expr a, struct expr b);
struct expr math_min(struct expr a, struct expr b);
struct expr math_isnan(struct expr x);
struct expr math_isinf(struct expr x);
struct expr math_isfinite(struct expr x);
struct expr math_idiv(struct expr a, struct expr b);       /* rounds toward minus infinity */
struct expr math_idiv_trunc(struct expr a, struct expr b); /* rounds toward zero */
struct expr math_mod(struct expr a, struct expr b);        /* has the sign of b */
struct expr math_fmod(struct expr a, struct expr b);       /* has the sign of a */
struct expr math_pow(struct expr a, struct expr b);
struct expr math_power(struct expr a, int64_t n); /* by squaring; n is at least 0 */

struct expr math_reciprocal(struct expr x);
struct expr math_sqrt(struct expr x);
struct expr math_rsqrt(struct expr x);
struct expr math_exp2(struct expr x);
struct expr math_exp(struct expr x);
struct expr math_exp10(struct expr x);
struct expr math_expm1(struct expr x);
struct expr math_log2(struct expr x);
struct expr math_log(struct expr x);
struct expr math_log10(struct expr x);
struct expr math_log1p(struct expr x);
struct expr math_sin(struct expr x);
struct expr math_cos(struct expr x);
struct expr math_tan(struct expr x);
struct expr math_asin(struct expr x);
struct expr math_acos(struct expr x);
struct expr math_atan(struct expr x);
struct expr math_atan2(struct expr y, struct expr x);
struct expr math_sinh(struct expr x);
struct expr math_cosh(struct expr x);
struct expr math_tanh(struct expr x);
struct expr math_asinh(struct expr x);
struct expr math_acosh(struct expr x);
struct expr math_atanh(struct expr x);
struct expr math_erf(struct expr x);
struct expr math_sigmoid(struct expr x);
struct expr math_softplus(struct expr x);
struct expr math_logaddexp(struct expr a, struct expr b);
struct expr math_copysign(struct expr a, struct expr b);
/* Over the axes in a mask. masked: where x is -infinity; the result is 0 there. NULL: unknown. */
struct expr math_softmax(struct expr x, unsigned mask, const struct expr *masked);
struct expr math_log_softmax(struct expr x, unsigned mask);
#endif
