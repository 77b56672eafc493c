/* Expressions: graph nodes with their shapes. */
#ifndef DOORBELL_FRONTEND_TENSOR_EXPR_H
#define DOORBELL_FRONTEND_TENSOR_EXPR_H
#include "../run/runtime.h"

/* ---- expr.c: expressions. The caller has checked the arguments ---- */

struct expr {
  struct uop *u;
  enum dtype dtype;
  unsigned rank;
  int64_t dim[MAX_RANK];
};
struct expr expr_const(enum dtype t, double f, int64_t i); /* rank 0: combines with any shape */
int64_t expr_whole(double v);                              /* truncates; saturates out of range; NaN gives 0 */
struct expr expr_least(enum dtype t);                      /* a lower bound of all values of the type */
struct expr expr_num(struct expr like, double v);          /* of like's dtype */
struct expr expr_full(struct expr scalar, unsigned rank, const int64_t *dim);
struct expr expr_cast(struct expr x, enum dtype t);
struct expr expr_unary(enum op op, struct expr x);
struct expr expr_binary(enum op op, struct expr a, struct expr b);    /* same dtype, same shape or rank 0 */
struct expr expr_mulacc(struct expr a, struct expr b, struct expr c); /* a * b + c, rounded once */
struct expr expr_function(enum function f, struct expr value,
                          struct expr x); /* value, which is f(x) with a known derivative */
struct expr expr_function_along(enum function f, unsigned axes, struct expr value, struct expr x);
struct expr expr_where(struct expr c, struct expr a, struct expr b);
struct expr expr_not(struct expr x);
struct expr expr_reshape(struct expr x, unsigned rank, const int64_t *dim);
struct expr expr_expand(struct expr x, const int64_t *dim); /* same rank */
struct expr expr_permute(struct expr x, const unsigned *axes);
struct expr expr_bounds(enum op op, struct expr x, const int64_t *pairs); /* PAD, SHRINK */
/* Shears x: element (..i..j..) of the result is element (..i..j + by * i..) of x, or 0 outside of x. i is the index
 * along axis a, j along axis b, which gets `size` elements. */
struct expr expr_shear(struct expr x, unsigned a, unsigned b, int64_t by, int64_t size);
struct expr expr_flip(struct expr x, unsigned mask);
struct expr expr_iota(enum dtype t, int64_t n); /* 0, 1, ... n - 1; t can represent them */
/* Each element's position along an axis, in the given shape. */
struct expr expr_count_along(enum dtype t, unsigned axis, unsigned rank, const int64_t *dim);
/* Reads x at the position `index` along the axis; 0 where index is out of range. index is an integer with x's shape
 * except along that axis. */
struct expr expr_gather(struct expr x, unsigned axis, struct expr index);
struct expr expr_pad_value(struct expr x, const int64_t *pairs, struct expr value); /* value is a constant */
struct expr expr_cat(const struct expr *x, unsigned n, unsigned axis);              /* of one dtype; n is at least 1 */
struct expr expr_repeat(struct expr x, unsigned axis,
                        int64_t n); /* repeats the whole axis n times; x has fewer than MAX_RANK axes */
struct expr expr_slice(struct expr x, unsigned axis, int64_t begin, int64_t end);
struct expr expr_stride(struct expr x, unsigned axis, int64_t step); /* every step-th element; step is at least 1 */
/* Windows along an axis as a new last axis. Elements of a window are dilation apart, windows start step apart. */
struct expr expr_windows(struct expr x, unsigned axis, int64_t size, int64_t step, int64_t dilation);
/* A diagonal of two axes as a new last axis that replaces them. */
struct expr expr_diagonal(struct expr x, unsigned rows, unsigned cols, int64_t offset);
struct expr expr_reduce(enum op op, struct expr x, unsigned mask); /* the reduced axes get size 1 */
/* The maximum, without a gradient. For expressions whose result does not depend on it, such as softmax. */
struct expr expr_reduce_bound(struct expr x, unsigned mask);
struct expr expr_drop_axes(struct expr x, unsigned mask);
/* Broadcasts x to a shape. */
struct expr expr_broadcast(struct expr x, unsigned rank, const int64_t *dim);
enum dtype dtype_promote(enum dtype a, enum dtype b);
#endif
