/* What the table of derivatives, graph/rules/gradient.rules, is written with. */
#ifndef DOORBELL_GRAPH_DERIVATIVE_H
#define DOORBELL_GRAPH_DERIVATIVE_H
#include "rules.h"

/* ---- gradient.c: the walk, which is the rules' ctx ---- */
struct uop *gradient_dy(const void *ctx);
struct uop *gradient_none(const void *ctx);
bool passes(const void *ctx, const struct uop *u); /* it is no target */
struct uop *copy_back(const void *ctx, struct uop *dy, const struct uop *x);

/* ---- exchange.c ---- */
struct uop *exchange_back(struct graph *g, const struct uop *u, struct uop *dy); /* NULL: it has none */

/* ---- derivative.c ---- */
bool is_number(const struct uop *u);
struct uop *expand_like(struct graph *g, struct uop *y, const struct uop *x);
struct uop *reshape_like(struct graph *g, struct uop *y, const struct uop *x);
struct uop *move_back(struct graph *g, const struct uop *movement, struct uop *dy);
/* For each element along the axes the product of all others: zeros, infinities and higher derivatives come out
 * right. */
struct uop *product_of_others(struct graph *g, struct uop *x, int64_t axes);
struct uop *equals_result(struct graph *g, struct uop *max);
struct uop *share_of_equals(struct graph *g, struct uop *max, struct uop *dy);
/* Sums what flows to each element of x: a reduce over the places whose index names it. */
struct uop *scatter_sum(struct graph *g, const struct uop *gather, struct uop *dy);
struct uop *outside_of_view(struct graph *g, struct uop *assign, struct uop *dy);
struct uop *inside_view(struct graph *g, struct uop *assign, struct uop *dy);
#endif
