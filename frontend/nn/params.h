/* What layers need of parameters beyond nn.h. */
#ifndef DOORBELL_FRONTEND_PARAMS_H
#define DOORBELL_FRONTEND_PARAMS_H
#include "../nn.h"
#include "../tensor/call.h"

/* A constant that is not trained. */
db_parameter *params_statistic(db_params *p, const char *name, double value, db_list shape);
/* A size of a layer's parameter; where it does not fit it is INT64_MAX, which no tensor can have. */
static inline int64_t size_times(int64_t a, int64_t b) {
  int64_t r;
  return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}
/* NULL for no parameter. */
static inline db_tensor *param_tensor(const db_parameter *p) { return p ? p->tensor : NULL; }
#endif
