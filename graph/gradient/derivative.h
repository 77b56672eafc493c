/* Helper functions of the table of derivatives, graph/rules/gradient.rules. */
#ifndef DOORBELL_GRAPH_DERIVATIVE_H
#define DOORBELL_GRAPH_DERIVATIVE_H
#include "../rules.h"

/* ---- gradient.c: ctx of the rules is the walk ---- */
struct uop *gradient_dy(const void *ctx);
struct uop *gradient_none(const void *ctx);
bool is_not_target(const void *ctx, const struct uop *u); /* true if u is not a target */
struct uop *copy_gradient_back(const void *ctx, struct uop *dy, const struct uop *x);

/* ---- derivative.c ---- */
bool is_number(const struct uop *u);
struct uop *expand_like(struct graph *g, struct uop *y, const struct uop *x);
struct uop *reshape_like(struct graph *g, struct uop *y, const struct uop *x);
struct uop *move_back(struct graph *g, const struct uop *movement, struct uop *dy);
/* For each element, the product of all other elements along the axes. Unlike the total divided by the element, it is
 * correct for zeros, infinities and higher derivatives. */
struct uop *product_of_others(struct graph *g, struct uop *x, int64_t axes);
struct uop *softmax_back(struct graph *g, struct uop *y, struct uop *dy); /* y: FUNCTION_SOFTMAX */
struct uop *equals_result(struct graph *g, struct uop *max);
struct uop *share_of_equals(struct graph *g, struct uop *max, struct uop *dy);
/* Gradient of GATHER's x: for each element of x, the sum of dy over the positions whose index selects it. */
struct uop *scatter_sum(struct graph *g, const struct uop *gather, struct uop *dy);
struct uop *outside_of_view(struct graph *g, struct uop *assign, struct uop *dy);
struct uop *inside_view(struct graph *g, struct uop *assign, struct uop *dy);
struct uop *exchange_gradient(struct graph *g, const struct uop *u, struct uop *dy); /* NULL if it has no gradient */
#endif
