/* Arithmetic on sizes. Two sizes that are equal for all values of their variables are the same node, so that shapes are
 * compared by pointer. To achieve this, a size is kept as a polynomial in its atoms (VAR, BIND), with terms and factors
 * in an order that does not depend on values. */
#ifndef DOORBELL_GRAPH_DIMS_H
#define DOORBELL_GRAPH_DIMS_H
#include "uop.h"

/* These return NULL if a constant overflows. */
struct uop *dim_add(struct graph *g, struct uop *a, struct uop *b);
struct uop *dim_sub(struct graph *g, struct uop *a, struct uop *b);
struct uop *dim_mul(struct graph *g, struct uop *a, struct uop *b);
/* a / b if b divides a for all values of the variables, otherwise NULL. */
struct uop *dim_divide(struct graph *g, struct uop *a, struct uop *b);
#endif
