/* Helper functions of compiler/rules/decompose.rules. */
#ifndef DOORBELL_COMPILER_DECOMPOSE_H
#define DOORBELL_COMPILER_DECOMPOSE_H
#include <math.h>
#include "../graph/symbolic.h"
#include "internal.h"

extern const struct ruleset rules_decompose;

bool may_trap(const struct uop *divides);        /* the divisor may be 0, or -1 if the dividend is signed */
bool may_overshift(const struct uop *shifts);    /* the count may be negative or at least the width */
bool is_numeric(const struct uop *u);            /* u is a constant or a vector of constants, none of them NaN */
bool is_nonzero(const struct uop *u);            /* all lanes are one float constant that is not 0 */
bool is_integer(const struct uop *u, int64_t v); /* all lanes are the integer constant v */
static inline int64_t width(const struct uop *u) { return dtype_info[u->dtype].size * 8; } /* in bits */
struct uop *int_min_like(struct graph *g, const struct uop *like); /* least value of a signed type */
struct uop *float_like(struct graph *g, const struct uop *like, double v);
struct uop *compute_in_f32(struct graph *g, const struct uop *root,
                           struct uop *x); /* root's operation on x, computed in f32 */
bool has_scalef(const struct target *t);   /* the host multiplies by 2^n in one instruction (AVX-512) */
struct uop *rounding_magic(struct graph *g, const struct uop *like); /* 1.5 * 2^23 for f32, 1.5 * 2^52 for f64 */
bool is_log2e(const struct uop *u);                                  /* u is log2(e) or -log2(e), rounded to the type */
struct uop *log2e_rest(struct graph *g, const struct uop *c);        /* exact value minus c */
/* Clamps the exponent of a power of 2. The exponent is x, or x * c if c is not NULL. Beyond the bounds the integer part
 * is not exact and 2^r may become negative. In f64 that can happen on both sides, because the polynomial has odd
 * degree. In f32 only a product must be kept from -inf, for which r would be infinite. */
struct uop *exp2_clamp(struct graph *g, struct uop *x, const struct uop *c);
struct uop *exp2_polynomial(struct graph *g, struct uop *r); /* 2^r, |r| <= 1/2 */
/* Returns 2^(n + r), |r| <= 1/2. The low bits of t hold n plus twice the exponent's bias. Each half of n gets one bias,
 * and the bits of the half become the exponent of a power of 2. */
struct uop *exp2_scaled(struct graph *g, struct uop *t, struct uop *r);
struct uop *log2_polynomial(struct graph *g, struct uop *m);   /* f32: (log2(1 + m) - m log2(e)) / m^2 */
struct uop *artanh_polynomial(struct graph *g, struct uop *z); /* f64: (2 artanh(s) / s - 2) / z, z = s * s */
struct uop *sin_polynomial(struct graph *g, struct uop *r);    /* sin(r) / r, |r| <= pi/2 */
#endif
