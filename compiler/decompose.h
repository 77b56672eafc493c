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
static inline int64_t width(const struct uop *u) { return dtype_info[u->dtype].size * 8; } /* in bits */
struct uop *least_number(struct graph *g, const struct uop *like);                         /* of a signed type */
struct uop *number(struct graph *g, const struct uop *like, double v);
struct uop *in_f32(struct graph *g, const struct uop *root, struct uop *x); /* root's operation on x in f32, and back */
/* Taylor series with `terms` terms: e^x, sin(sqrt(x)) / sqrt(x), and (2 artanh(sqrt(x)) / sqrt(x) without its first
 * term) / x. */
struct uop *exp_series(struct graph *g, struct uop *x, unsigned terms);
struct uop *sin_series(struct graph *g, struct uop *x, unsigned terms);
struct uop *artanh_series(struct graph *g, struct uop *x, unsigned terms);
#endif
