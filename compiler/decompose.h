/* Helper functions of compiler/rules/decompose.rules. */
#ifndef DOORBELL_COMPILER_DECOMPOSE_H
#define DOORBELL_COMPILER_DECOMPOSE_H
#include <math.h>
#include "../graph/symbolic.h"
#include "internal.h"

extern const struct ruleset rules_decompose;

bool may_trap(const struct uop *divides);     /* the divisor may be 0, or -1 where the dividend is signed */
bool may_overshift(const struct uop *shifts); /* the count may be negative or the width and more */
bool is_numeric(const struct uop *u);         /* a constant or a vector of them, none of them NaN */
bool is_nonzero(const struct uop *u);         /* one float for all lanes, not 0 */
static inline int64_t width(const struct uop *u) { return dtype_info[u->dtype].size * 8; } /* in bits */
struct uop *least_number(struct graph *g, const struct uop *like);                         /* of a signed type */
struct uop *number(struct graph *g, const struct uop *like, double v);
struct uop *in_f32(struct graph *g, const struct uop *root, struct uop *x); /* root's operation on x in f32, and back */
bool scales(const struct target *t); /* the host multiplies by 2^n in one instruction: AVX-512 */
struct uop *rounding_magic(struct graph *g, const struct uop *like); /* 1.5 * 2^23 or 2^52 */
bool is_log2e(const struct uop *u);                                  /* log2(e) or -log2(e), rounded to the type */
struct uop *log2e_rest(struct graph *g, const struct uop *c);        /* what c lacks to be exact */
/* x, or x * c if c is not NULL, is an exponent of 2: x, or a near bound where the integer part is not exact and 2^r may
 * become negative. That can happen in f64, whose polynomial is of odd degree; in f32 only a product has to be kept from
 * -inf, where r would be infinite. */
struct uop *exp2_clamp(struct graph *g, struct uop *x, const struct uop *c);
struct uop *exp2_polynomial(struct graph *g, struct uop *r); /* 2^r, |r| <= 1/2 */
/* 2^(n + r), |r| <= 1/2, where the low bits of t are n and twice the exponent's bias: each half of n has its bias, and
 * its power of 2 has the half in the place of the exponent. */
struct uop *exp2_scaled(struct graph *g, struct uop *t, struct uop *r);
struct uop *log2_polynomial(struct graph *g, struct uop *m);   /* f32: (log2(1 + m) - m log2(e)) / m^2 */
struct uop *artanh_polynomial(struct graph *g, struct uop *z); /* f64: (2 artanh(s) / s - 2) / z, z = s * s */
struct uop *sin_polynomial(struct graph *g, struct uop *r);    /* sin(r) / r, |r| <= pi/2 */
#endif
