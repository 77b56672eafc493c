/* Expressions: nodes of the graph with their shape. */
#ifndef DOORBELL_FRONTEND_TENSOR_EXPR_H
#define DOORBELL_FRONTEND_TENSOR_EXPR_H
#include "../run/runtime.h"

/* ---- expr.c: expressions whose arguments are known to be good ---- */

struct expr {
  struct uop *u;
  enum dtype dtype;
  unsigned rank;
  int64_t dim[MAX_RANK];
};
struct expr expr_const(enum dtype t, double f, int64_t i); /* rank 0: goes with any shape in arithmetic */
int64_t expr_whole(double v);                              /* truncated; out of range gives the nearest end, NaN 0 */
struct expr expr_least(enum dtype t);                      /* what no number of the type is less than */
struct expr expr_num(struct expr like, double v);          /* of like's dtype */
struct expr expr_full(struct expr scalar, unsigned rank, const int64_t *dim);
struct expr expr_cast(struct expr x, enum dtype t);
struct expr expr_unary(enum op op, struct expr x);
struct expr expr_binary(enum op op, struct expr a, struct expr b);            /* same dtype, same shape or rank 0 */
struct expr expr_mulacc(struct expr a, struct expr b, struct expr c);         /* a * b + c in one rounding */
struct expr expr_function(enum function f, struct expr value, struct expr x); /* value, whose derivative is known */
struct expr expr_where(struct expr c, struct expr a, struct expr b);
struct expr expr_not(struct expr x);
struct expr expr_reshape(struct expr x, unsigned rank, const int64_t *dim);
struct expr expr_expand(struct expr x, const int64_t *dim); /* same rank */
struct expr expr_permute(struct expr x, const unsigned *axes);
struct expr expr_bounds(enum op op, struct expr x, const int64_t *pairs); /* PAD, SHRINK */
/* Element (..i..j..) is x's at (..i..j + by * i..), i along axis a and j along axis b, which gets size elements; 0
 * outside of x. */
struct expr expr_shear(struct expr x, unsigned a, unsigned b, int64_t by, int64_t size);
struct expr expr_flip(struct expr x, unsigned mask);
struct expr expr_iota(enum dtype t, int64_t n); /* 0, 1, ... n - 1; t holds them */
/* Each element's place along an axis, in that shape. */
struct expr expr_count_along(enum dtype t, unsigned axis, unsigned rank, const int64_t *dim);
/* x where the axis is at the index, an integer of x's shape but for that axis; 0 where there is no such place. */
struct expr expr_gather(struct expr x, unsigned axis, struct expr index);
struct expr expr_pad_value(struct expr x, const int64_t *pairs, struct expr value); /* value: a constant */
struct expr expr_cat(const struct expr *x, unsigned n, unsigned axis);              /* of one dtype, n at least 1 */
struct expr expr_repeat(struct expr x, unsigned axis,
                        int64_t n); /* the whole axis n times; x has less than MAX_RANK axes */
struct expr expr_slice(struct expr x, unsigned axis, int64_t begin, int64_t end);
struct expr expr_stride(struct expr x, unsigned axis, int64_t step); /* every step-th; step at least 1 */
/* Windows along an axis as a new last axis: their elements are dilation apart, they begin step apart. */
struct expr expr_windows(struct expr x, unsigned axis, int64_t size, int64_t step, int64_t dilation);
/* A diagonal of two axes as the last axis in their stead. */
struct expr expr_diagonal(struct expr x, unsigned rows, unsigned cols, int64_t offset);
struct expr expr_reduce(enum op op, struct expr x, unsigned mask); /* axes become 1 */
/* The maximum as a number that gradients do not see, for what does not depend on it: a softmax. */
struct expr expr_reduce_bound(struct expr x, unsigned mask);
struct expr expr_drop_axes(struct expr x, unsigned mask);
/* Grows x to a shape it broadcasts to. */
struct expr expr_broadcast(struct expr x, unsigned rank, const int64_t *dim);
enum dtype dtype_promote(enum dtype a, enum dtype b);
#endif
