/* Helpers that several operations share: checks of arguments, and expressions. */
#ifndef DOORBELL_FRONTEND_OPS_OPS_H
#define DOORBELL_FRONTEND_OPS_OPS_H
#include "../tensor/call.h"

static inline bool dtype_public(db_dtype t) { return t >= DB_BOOL && t <= DB_F8E5M2; }
/* The row of a reduction in a table of reductions; a row past the table's end if op is not one. */
static inline unsigned reduce_row(enum db_reduce_op op) { return (unsigned)op - DB_REDUCE_SUM; }
#define REDUCE_ROW(name) DB_REDUCE_##name - DB_REDUCE_SUM

/* ---- elementwise.c ---- */
/* Whether the number fits the integer type t; true for other types. */
bool number_fits(const db_operand *o, enum dtype t);
bool call_number(struct call *c, const db_operand *o,
                 enum dtype t); /* checks number_fits; false if the call has failed */
/* A tensor's expression cast to t, or a constant of rank 0. */
struct expr operand_expr(const db_operand *o, enum dtype t);
/* Makes a bit mask of axes; an empty list is all axes if `all` is set. Returns false if the call has failed. */
bool call_axes(struct call *c, const db_tensor *x, db_list axes, bool all, unsigned *mask);

/* Checks that pairs are a begin and an end within each axis of x. Returns false if the call has failed. */
bool call_pairs(struct call *c, const db_tensor *x, db_list pairs);

/* Broadcasts the shape (rank, dim) with that of x, in place. Returns false if they do not broadcast. */
bool broadcast_shape(const db_tensor *x, unsigned *rank, int64_t *dim);

/* ---- indexing.c, scatter.c ---- */
/* Converts an index to signed numbers that can represent n, and adds n to negative ones. An index out of range stays
 * out of range. */
struct expr expr_wrapped_index(struct expr index, int64_t n);
/* x with src written along an axis at the positions in index. index has src's shape, and x's shape except along the
 * axis. x has fewer than MAX_RANK axes. */
struct expr expr_scatter(struct expr x, unsigned axis, struct expr index, struct expr src, enum db_scatter mode,
                         bool with_x);

/* ---- sort.c ---- */
/* For each of the first k positions along the sorted last axis, the position that its element comes from; i32. k is
 * from 1 to the number of elements. */
struct expr expr_argsort(struct expr x, int64_t k, bool descending);

/* ---- norm.c ---- */
/* The mean or the variance [channels] of x [batch, channels, ...], computed as in batch normalization. */
db_tensor *norm_batch_statistic(DB_AT, db_tensor *x, bool variance);

/* ---- scan.c ---- */
struct expr expr_cumsum(struct expr x, unsigned axis); /* has x's type */

/* ---- random.c ---- */
/* The seed, and the number of random calls since it was set outside of functions given to db_jit. */
void random_state(uint64_t *seed, uint32_t *calls);
void random_restore(uint64_t seed, uint32_t calls);

/* ---- by_hand.c ---- */
/* db_custom_gradient. Results over one y that have different keys have gradients of their own; a key that is the same
 * in each step of a training makes its schedule found again. */
db_tensor *gradient_by_hand(DB_AT, db_tensor *y, db_tensor *const *x, unsigned n, db_gradient_fn *fn, void *ctx,
                            uint64_t key);
static inline uint64_t gradient_key(const void *fn, const void *ctx) {
  return (uint64_t)(uintptr_t)fn * 31 + (uint64_t)(uintptr_t)ctx;
}

/* ---- assign.c ---- */
/* Replaces the value of x by v and takes over the reference on v. If x is marked for gradients, it stays marked. */
void tensor_set_value(db_tensor *x, struct value *v);
/* Assigns value to the elements of the tensor c->in[0] that view selects. view is movement over the tensor's
 * expression; value has its shape and type. Ends the call and returns the tensor. Releases rt.lock. */
db_tensor *call_assign(struct call *c, struct expr view, struct expr value);
/* Poisons x, the target of a failed assign, with the poison of the failed call, so that its old value is not mistaken
 * for the new one. Does nothing if the call did not fail. Returns the result for the caller. */
db_tensor *assign_failed(db_tensor *x, db_tensor *poisoned);
#endif
