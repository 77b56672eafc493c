/* Samples of program counters: the device's sampler, and reading it. queue.c records the commands. */
#include "../backend.h"
#include "../profile.h"
#include <errno.h>
#include <stdlib.h>

const char *db_stall_name(enum db_stall reason) {
  static const char *const names[DB_STALLS] = {
      [DB_STALL_OTHER] = "other",
      [DB_STALL_NONE] = "no stall",
      [DB_STALL_FETCH] = "instruction fetch",
      [DB_STALL_EXECUTION] = "execution dependency",
      [DB_STALL_MEMORY] = "memory dependency",
      [DB_STALL_SYNC] = "synchronization",
      [DB_STALL_CONSTANT] = "constant memory",
      [DB_STALL_PIPE] = "pipe busy",
      [DB_STALL_MEMORY_THROTTLE] = "memory throttle",
  };
  return (unsigned)reason < DB_STALLS ? names[reason] : NULL;
}

db_pc_sampler *db_pc_sampler_new(db_device *dev, size_t bytes) {
  if (!dev) return db_null_of("device");
  if (hcq_device_check(dev)) return NULL;
  if (!dev->ops || !dev->ops->sampler_open)
    return db_fail_null(-ENOTSUP, "%s: not supported: samples of program counters; some NVIDIA GPUs have them",
                        dev->name);
  db_pc_sampler *s = calloc(1, sizeof *s);
  if (!s) return db_fail_null(-ENOMEM, "%s: out of host memory for a PC sampler", dev->name);
  s->dev = db_device_retain(dev);
  s->bytes = bytes;
  hcq_clocks_hold(dev);
  if (!dev->ops->sampler_open(s)) return s;
  hcq_clocks_drop(dev);
  db_close(dev);
  free(s);
  return NULL;
}

void db_pc_sampler_release(db_pc_sampler *s) {
  if (!s) return;
  if (!s->dev->inherited) s->dev->ops->sampler_close(s);
  hcq_clocks_drop(s->dev);
  db_close(s->dev);
  free(s);
}

struct db_pc_sample *db_pc_sampler_read(db_pc_sampler *s, size_t *n, uint64_t *lost) {
  struct db_pc_sample *samples = NULL;
  uint64_t none;
  if (!s || !n) return db_null_of(s ? "n" : "PC sampler");
  *n = 0;
  if (hcq_device_check(s->dev)) return NULL;
  return s->dev->ops->sampler_read(s, &samples, n, lost ? lost : &none) ? NULL : samples;
}
