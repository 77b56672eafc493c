/* Metrics that are computed from counters (metrics.def). */
#ifndef DOORBELL_FRONTEND_PROF_METRICS_H
#define DOORBELL_FRONTEND_PROF_METRICS_H
#include "prof.h"

/* Evaluates a formula. value returns false for an unknown name. Returns NAN if a name is unknown, a divisor is 0, or
 * the formula is malformed. */
double metrics_evaluate(const char *formula, bool (*value)(void *ctx, const char *name, size_t n, double *v),
                        void *ctx);
/* The metrics of one launch of a kernel, as an object by name. seconds: its mean time. */
json_t *metrics_json(const char *arch, const struct prof_kernel *k, double seconds);
/* Replaces names of metrics in a list by the counters that they need, and "metrics" by those of all metrics. The caller
 * frees the list. Returns NULL if memory runs out. */
char *metrics_counters(const char *list);
/* Prints the metrics of all machines. */
void metrics_print(FILE *f);
#endif
