/* Runs a compiled kernel once, through a device's queue. */
#ifndef TESTS_FRONTEND_KERNEL_LAUNCH_H
#define TESTS_FRONTEND_KERNEL_LAUNCH_H
#include "../compiler/harness.h"
#include "hcq/hcq.h"
#include "tests/ok.h"

enum { MAX_OUTPUTS = 48 };

static void launch(db_device *dev, const struct kernel *k, db_buffer *const *bufs, const int32_t *var) {
  struct db_param params[MAX_OUTPUTS + 2];
  struct db_arg args[MAX_OUTPUTS + 2] = {{0}};
  for (unsigned i = 0; i < k->nparams; i++) {
    params[i] = (struct db_param){.offset = k->params[i].offset,
                                  .size = k->params[i].size,
                                  .kind = k->params[i].is_buffer ? DB_PARAM_BUFFER : DB_PARAM_VALUE};
    snprintf(params[i].name, sizeof params[i].name, "%s", k->params[i].name);
    if (k->params[i].is_buffer)
      args[i].buffer = bufs[i];
    else
      args[i].data = var;
  }
  bool host = !strcmp(db_device_name(dev), "CPU");
  db_program *p = db_program_load(dev, k->image, k->image_size, k->name, host ? params : NULL, host ? k->nparams : 0);
  if (!p) fail_msg("%s: %s", k->name, db_error());
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  uint64_t when;
  db_queue_exec(q, p, args, k->nparams, k->grid, k->block);
  OK(db_queue_submit(q, &when));
  OK(db_wait(db_queue_timeline(q), when, db_device_timeout(dev)));
  db_queue_release(q);
  db_program_release(p);
}
#endif
