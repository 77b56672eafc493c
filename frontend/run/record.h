/* What a record has about how kernels are compiled. */
#ifndef DOORBELL_FRONTEND_RUN_RECORD_H
#define DOORBELL_FRONTEND_RUN_RECORD_H
#include "launch.h"
#include "../../graph/schedule/schedule.h"
#include "../../hcq/profile.h"

/* These functions do nothing unless PROF_CODE or VIZ asks for them. Called with rt.lock held. */
void record_kernel(const struct env *env, const db_device *dev, const struct kernel *k);
/* Returns rows of lines [[address, text]] for kernel .text.KERNEL of a cubin, or NULL. */
json_t *record_sass_rows(const char *arch, const char *kernel, const void *image, size_t size);
/* Around scheduling, to record its rewrites. */
void record_schedule_begin(const struct env *env);
void record_schedule_end(const struct env *env);
/* s: the schedule of the roots, of which e was made. */
void record_schedule(const struct env *env, const struct schedule *s, const struct executable *e,
                     struct uop *const *roots, unsigned n);
#endif
