/* What a record has about how kernels are compiled. */
#ifndef DOORBELL_FRONTEND_RUN_RECORD_H
#define DOORBELL_FRONTEND_RUN_RECORD_H
#include "launch.h"
#include "../../graph/schedule/schedule.h"
#include "../../hcq/profile.h"

/* Both do nothing unless PROF_CODE asks for them. */
void record_kernel(const struct env *env, const db_device *dev, const struct kernel *k);
/* s: the schedule of which e was made. */
void record_schedule(const struct env *env, const struct schedule *s, const struct executable *e);
#endif
