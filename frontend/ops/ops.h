/* What the operations share: checks of their arguments, and expressions that several of them build. */
#ifndef DOORBELL_FRONTEND_OPS_OPS_H
#define DOORBELL_FRONTEND_OPS_OPS_H
#include "../tensor/call.h"

static inline bool dtype_public(db_dtype t) { return t >= DB_BOOL && t <= DB_F8E5M2; }
/* The row of a reduction in a table of them; past its end for what is none. */
static inline unsigned reduce_row(enum db_reduce_op op) { return (unsigned)op - DB_REDUCE_SUM; }
#define REDUCE_ROW(name) DB_REDUCE_##name - DB_REDUCE_SUM

/* ---- elementwise.c ---- */
/* Does the number fit the integer type it is to become? */
bool number_fits(const db_operand *o, enum dtype t);
bool call_number(struct call *c, const db_operand *o, enum dtype t); /* false once the call has failed */
/* A tensor's expression cast to t, or a constant of rank 0. */
struct expr operand_expr(const db_operand *o, enum dtype t);
/* A set of axes as a bit mask; all of them when the list is empty and all is set. False once the call has failed. */
bool call_axes(struct call *c, const db_tensor *x, db_list axes, bool all, unsigned *mask);

/* Whether pairs are a begin and an end within each axis of x; false once the call has failed. */
bool call_pairs(struct call *c, const db_tensor *x, db_list pairs);

/* The shape that x and dim (rank, in place) broadcast to; false when they do not. */
bool broadcast_shape(const db_tensor *x, unsigned *rank, int64_t *dim);

/* ---- indexing.c, scatter.c ---- */
/* An index as signed numbers that hold n, negative ones counted from the end; what lies outside of n stays outside. */
struct expr expr_wrapped_index(struct expr index, int64_t n);
/* x with src put along an axis where index (of src's shape; off the axis of x's, too) says. x has less than MAX_RANK
 * axes. */
struct expr expr_scatter(struct expr x, unsigned axis, struct expr index, struct expr src, enum db_scatter mode,
                         bool with_x);

/* ---- sort.c ---- */
/* The places along the last axis that the sorted elements come from; i32. */
struct expr expr_argsort(struct expr x, bool descending);

/* ---- norm.c ---- */
/* The mean or the variance [channels] of x [batch, channels, ...], as batch normalization has them. */
db_tensor *norm_batch_statistic(DB_AT, db_tensor *x, bool variance);

/* ---- scan.c ---- */
struct expr expr_cumsum(struct expr x, unsigned axis); /* in x's own type */

/* ---- assign.c ---- */
/* x stands for v from now on, of which it takes over the reference; a tensor that gradients are collected for stays
 * one. */
void tensor_stands_for(db_tensor *x, struct value *v);
/* c->in[0] stands from now on for what it was with the elements that view selects replaced by value's: view is movement
 * over its expression, value is of the view's shape and of its type. Returns the tensor; drops the lock. */
db_tensor *call_assign(struct call *c, struct expr view, struct expr value);
/* Poisons x, which is to be assigned, as the failed call's result is, and returns it: what was not assigned must not be
 * taken for the new value. */
db_tensor *assign_failed(db_tensor *x, db_tensor *poisoned);
#endif
