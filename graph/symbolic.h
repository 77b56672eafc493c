/* Helper functions of graph/rules/fold.rules, algebra.rules, symbolic.rules and devectorize.rules. A result of NULL
 * means that the rule does not apply. */
#ifndef DOORBELL_GRAPH_SYMBOLIC_H
#define DOORBELL_GRAPH_SYMBOLIC_H
#include "rules.h"

/* rules.c */
struct uop *fold_constants(struct graph *g, struct uop *u); /* evaluates u, whose sources are constants */
/* Stores in *value the result of an operation on integers of type t, before it is wrapped to its type. Returns false
 * for a division by 0, a shift by the width or more, an overflow of DT_INDEX, and an operation without integers. */
bool fold_integers(enum op op, enum dtype t, const int64_t x[3], int64_t *value);
struct uop *swap_sources(struct graph *g, struct uop *u);
bool exact_reciprocal(const struct uop *c); /* float c: x / c equals x * (1 / c) for every x */
/* Casting from `from` to `via` and then to `to` equals casting from `from` to `to`. */
bool cast_is_direct(enum dtype from, enum dtype via, enum dtype to);
struct uop *add_constants(struct graph *g, struct uop *a, struct uop *b); /* overflow: NULL for DT_INDEX, others wrap */
struct uop *sub_constants(struct graph *g, struct uop *a, struct uop *b);
struct uop *mul_constants(struct graph *g, struct uop *a, struct uop *b);
struct uop *compare(struct graph *g, enum op op, struct uop *a, struct uop *b);
int64_t floor_divide(int64_t a, int64_t b); /* b > 0 */
int64_t ceil_divide(int64_t a, int64_t b);
int64_t greatest_divisor(int64_t a, int64_t b); /* greatest common divisor; |a| if b is 0 */

/* Lanes [first, first + n) of a VECTORIZE whose sources are scalars. */
struct uop *lanes_of(struct graph *g, struct uop *vectorize, int64_t first, unsigned n);
/* The GEP of another GEP as one of the vector below. */
struct uop *lanes_of_part(struct graph *g, struct uop *gep);
/* The vector that a VECTORIZE reassembles from all of its lanes, in order. */
struct uop *lanes_in_order(struct uop *vectorize);

/* linear.c: reads x, of DT_INDEX, as a sum of constant multiples */
struct uop *linear_gather(struct graph *g, struct uop *x); /* adds up equal terms; turns (x//a)*a + x%a into x */
struct uop *linear_divide(struct graph *g, struct uop *x, int64_t c); /* x // c, x >= 0, c > 0 */
struct uop *linear_remainder(struct graph *g, struct uop *x, int64_t c);
struct uop *linear_below(struct graph *g, struct uop *x, int64_t c); /* x < c */
struct uop *linear_above(struct graph *g, struct uop *x, int64_t c); /* c < x */
#endif
