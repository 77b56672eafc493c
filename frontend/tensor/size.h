/* Sizes of axes, and shapes. */
#ifndef DOORBELL_FRONTEND_TENSOR_SIZE_H
#define DOORBELL_FRONTEND_TENSOR_SIZE_H
#include "../run/runtime.h"

/* ---- size.c: a size is a number, or a token for index arithmetic over variables ---- */

bool dim_is_symbolic(int64_t dim);
/* A hash that is equal for sizes that differ only in the values of their variables. */
uint64_t dim_unbound(int64_t dim);
/* Stores the value of a variable in a size. Returns false if the size does not use the variable. */
bool dim_var_value(int64_t dim, const char *name, int64_t *value);
/* Calls fn for every variable in a size until fn returns false. Returns false in that case. */
bool dim_each_var(int64_t dim, bool (*fn)(void *ctx, const char *name, int64_t value), void *ctx);
/* The size with new values for the variables for which value() returns true. */
int64_t dim_rebound(int64_t dim, bool (*value)(void *ctx, const char *name, int64_t *value), void *ctx);
bool dims_symbolic(unsigned rank, const int64_t *dim);
/* A variable with a value. The caller has checked both. */
int64_t dim_bind(const char *name, int64_t min, int64_t max, int64_t value);
bool dim_is_name(const char *name); /* of a valid variable name */
struct uop *dim_uop(int64_t dim);
int64_t dim_of_uop(struct uop *u); /* the size of an index expression; negative if u is NULL or memory runs out */
int64_t dim_sum(int64_t a, int64_t b);
int64_t dim_difference(int64_t a, int64_t b);
int64_t dim_product(int64_t a, int64_t b);
bool dim_quotient(int64_t a, int64_t b, int64_t *out); /* false, with out unchanged, if b does not divide a */
int64_t dim_value(int64_t dim);                        /* the bound value */
int64_t dim_min(int64_t dim);                          /* smallest possible value */
/* largest possible value */
int64_t dim_max(int64_t dim);
bool dim_at_most(int64_t a, int64_t b); /* a <= b for all values of the variables */
struct dim_text {
  char s[96];
} dim_text(int64_t dim);

/* ---- shapes ---- */
int64_t dims_numel(unsigned rank, const int64_t *dim);
/* Whether the nonzero sizes multiply to fewer than 2^59 elements, so that a byte count fits int64_t. This holds for
 * every tensor and for every expression that one is made from. */
bool dims_possible(unsigned rank, const int64_t *dim);
/* "[2, 3]" */
struct shape_text shape_text(unsigned rank, const int64_t *dim);
/* The index of an axis, which may count from the end; -1 if out of range. */
int axis_of(int64_t axis, unsigned rank);
#endif
