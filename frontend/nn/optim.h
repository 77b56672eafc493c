/* Optimizers inside: a table of kinds (kinds.c), parameters with their state, and the steps (optim.c). */
#ifndef DOORBELL_FRONTEND_OPTIM_H
#define DOORBELL_FRONTEND_OPTIM_H
#include "../nn.h"
#include "../tensor/call.h"

enum { MAX_STATE = 3 };

/* Scalars in memory, so that changing them does not change a step's kernels. One set per device, type of arithmetic and
 * group. */
struct scalars {
  db_device *dev;
  db_dtype dtype;
  unsigned group;
  db_tensor *lr;
  /* Of kinds with Adam's correction. warm: 1 - beta^t for both betas, updated by a recurrence that loses no digits;
   * rest: 1 - beta */
  db_tensor *warm, *rest;
  db_tensor *step; /* of kinds that count: the number of the step, from 1 */
};
struct parameter {
  db_tensor *tensor, *state[MAX_STATE];
  unsigned scalars; /* index in the optimizer's scalars */
};
struct update {
  db_tensor *next, *state[MAX_STATE];
};
/* A row of the table of kinds. */
struct kind {
  const char *name;
  /* Computes the next values of a parameter p and its state from its gradient g. */
  void (*update)(const struct db_optim_options *o, const struct scalars *s, db_tensor *p, db_tensor *g,
                 db_tensor *const *state, struct update *u);
  /* Whether there is a state i. dim has the sizes of p; changes them to those of the state. */
  bool (*has_state)(const struct db_optim_options *o, unsigned i, unsigned rank, int64_t *dim);
  bool warms, counts; /* uses scalars.warm and rest; uses scalars.step */
  unsigned least_rank;
  struct db_optim_options defaults;
};
/* The row of a kind, or NULL. */
const struct kind *optim_kind(enum db_optim_kind kind);

struct db_optim {
  const struct kind *kind;
  struct db_optim_options *groups;
  struct parameter *params;
  struct scalars *scalars;
  unsigned ngroups, n, nscalars;
  /* Loss scaling, or NULL: a factor and the number of steps since it last changed, f32, on the device of the first
   * parameter. */
  db_tensor *scale, *good;
  int64_t interval; /* number of good steps after which the factor doubles */
};
/* The type in which a parameter of type t is updated. */
static inline db_dtype optim_arithmetic(db_dtype t) { return t == DB_F64 ? DB_F64 : DB_F32; }
/* Zeros of shape dim, placed as x is, of the type in which x is updated. */
db_tensor *optim_zeros(db_tensor *x, const int64_t *dim);
/* Replaces the reference in *t by one on next. */
void optim_replace_tensor(db_tensor **t, db_tensor *next);

/* ---- gradients.c ---- */
/* Replaces the gradient collected for t by g. */
void set_gradient(db_tensor *t, db_tensor *g);
/* A bool: whether the gradients of all parameters are finite. Poison if one of them is. */
db_tensor *gradients_finite(const db_optim *o);
/* sum + term, or term if sum is NULL, on the device of sum. terms counts the calls; a kernel adds a limited number of
 * terms. */
db_tensor *add_term(db_tensor *sum, db_tensor *term, unsigned *terms, enum db_binary_op op);
#endif
