/* Internal functions on parameters, for layers. */
#ifndef DOORBELL_FRONTEND_PARAMS_H
#define DOORBELL_FRONTEND_PARAMS_H
#include "../nn.h"
#include "../tensor/call.h"

/* Makes a constant parameter that is not trained. */
db_parameter *params_statistic(db_params *p, const char *name, double value, db_list shape);
/* Whether db_recompute computes a block for the second time on this thread. */
bool params_recomputing(void);
/* a * b for sizes of parameters; INT64_MAX, which no tensor can have as a size, on overflow. */
static inline int64_t size_times(int64_t a, int64_t b) {
  int64_t r;
  return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}
/* Makes layers multiply in this type (DB_NONE: that of their arguments). Returns 0 or a negative errno. */
int params_set_compute(db_params *p, db_dtype dtype);
/* Whether the tree of p computes in mixed precision; false if p is NULL. */
bool param_is_mixed(const db_parameter *p);
/* x in the type in which the tree of p multiplies. x may be NULL. */
db_tensor *param_operand(DB_AT, const db_parameter *p, db_tensor *x);
/* The tensor of p, or NULL if p is NULL. */
static inline db_tensor *param_tensor(const db_parameter *p) { return p ? p->tensor : NULL; }
#endif
