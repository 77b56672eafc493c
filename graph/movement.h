/* Helper functions of graph/rules/movement.rules. A result of NULL, 0 or false means that the rule does not apply. */
#ifndef DOORBELL_GRAPH_MOVEMENT_H
#define DOORBELL_GRAPH_MOVEMENT_H
#include "rules.h"

bool moves_nothing(const struct uop *u);
bool keeps_order(const struct uop *permute);                  /* the axes longer than 1 keep their order */
int64_t flipped_size_one_axes(const struct uop *flip);        /* mask of the flipped axes of size 1 */
int64_t reduced_size_one_axes(const struct uop *reduce_axis); /* mask of the reduced axes of size 1 */
/* The scalar (CONST, VAR, BIND) that x is or broadcasts (by EXPAND and RESHAPE); NULL if it is something else. */
struct uop *broadcast_scalar(struct uop *x);
bool is_zero_scalar(struct uop *x);

struct uop *reshape_to(struct graph *g, struct uop *x, const struct shape *to);
struct uop *expand_to(struct graph *g, struct uop *x, const struct shape *to);
int64_t compose_orders(int64_t outer, int64_t inner, unsigned rank); /* the order of two PERMUTEs in one */
struct uop *add_pads(struct graph *g, struct uop *pad);              /* merges a PAD of a PAD */
struct uop *add_shrinks(struct graph *g, struct uop *shrink);        /* merges a SHRINK of a SHRINK */
/* Swap a SHRINK with the op below it. */
struct uop *shrink_padded(struct graph *g, struct uop *shrink);
struct uop *shrink_expanded(struct graph *g, struct uop *shrink);
struct uop *shrink_permuted(struct graph *g, struct uop *shrink);
struct uop *shrink_chosen(struct graph *g, struct uop *shrink); /* of a WHERE whose condition the slice may decide */
/* The axis along which u counts 0, 1, ..., or -1 if u is not such a counter or its type is too small. */
int counts_along(const struct uop *u);
/* An elementwise node with its broadcast numbers replaced by scalars. */
struct uop *alu_of_scalars(struct graph *g, struct uop *alu);
struct uop *reduce_longer_axes(struct graph *g, struct uop *reduce_axis);
struct uop *reduce_scalar(struct graph *g, struct uop *reduce_axis, struct uop *number);
#endif
