/* Arithmetic on sizes. Sizes that are equal whatever their variables are bound to are one node, so that shapes compare
 * by pointer: a size is kept as a polynomial in what cannot be taken apart (VAR, BIND), its terms and their factors in
 * an order that does not depend on values. */
#ifndef DOORBELL_GRAPH_DIMS_H
#define DOORBELL_GRAPH_DIMS_H
#include "uop.h"

/* NULL: a number overflows. */
struct uop *dim_add(struct graph *g, struct uop *a, struct uop *b);
struct uop *dim_sub(struct graph *g, struct uop *a, struct uop *b);
struct uop *dim_mul(struct graph *g, struct uop *a, struct uop *b);
/* a / b where b divides a whatever the variables are; NULL where it does not. */
struct uop *dim_divide(struct graph *g, struct uop *a, struct uop *b);
#endif
