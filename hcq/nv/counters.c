/* Performance counters: what RM permits, and those of emulated GPUs.
 *
 * A program that counts on a real GPU needs an object of the profiler class, which RM gives only to administrators
 * unless a parameter of the kernel module says otherwise. Beyond that it needs the numbers of events and the addresses
 * of registers, which are not public, so counters of real GPUs are refused. Timestamps, and the clocks that kernels
 * read themselves, need neither. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "counters.h"
#include "nv.h"
#include "pushbuffer.h"
#include "rm.h"

/* ---- permission ---- */

/* The value of RmProfilingAdminOnly among the parameters of the kernel module; -1 if it cannot be read. */
static int admin_only(struct nv_machine *m) {
  static const char key[] = "RmProfilingAdminOnly:";
  char text[8192];
  ssize_t n = m->os->read_file(m->os, RM_PROC_PARAMS, text, sizeof text);
  const char *at = n > 0 ? strstr(text, key) : NULL;
  return at ? atoi(at + sizeof key - 1) : -1;
}

int nv_profiler_refused(struct nv_device *dev, int rc) {
  if (rc != RM_INSUFFICIENT_PERMISSIONS) return rm_error(dev->base.name, rc, "creating the profiler object");
  int restricted = admin_only(dev->machine);
  return db_fail(-EACCES,
                 "%s: the driver does not permit profiling%s; the administrator permits it with the nvidia module's "
                 "parameter NVreg_RestrictProfilingToAdminUsers=0, or run the program as root or with CAP_PERFMON",
                 dev->base.name, restricted == 1 ? " (" RM_PROC_PARAMS ": RmProfilingAdminOnly: 1)" : "");
}

static int check_permission(struct nv_device *dev) {
  struct rm_profiler_alloc profiler = {0};
  uint32_t object;
  int rc = rm_object_new(dev->machine, dev->subdevice, RM_CLASS_PROFILER, &profiler, sizeof profiler, &object);
  if (rc) return nv_profiler_refused(dev, rc);
  rm_object_free(dev->machine, dev->subdevice, &object);
  return 0;
}

/* ---- the list ---- */

int nv_counters_attach(struct nv_device *dev, struct nv_ring *ring) {
  if (ring->counters) return 0;
  return rm_object_new(dev->machine, ring->channel, RM_CLASS_COUNTERS, NULL, 0, &ring->counters);
}

/* Gives each compute channel an object of the counters' class. Real GPUs do not have that class. */
static int attach(struct nv_device *dev) {
  if (dev->counts) return 0;
  int err = db_device_synchronize(&dev->base, dev->base.timeout_ns);
  for (unsigned i = 0; i < HCQ_QUEUES && !err; i++) {
    struct nv_ring *r = &dev->rings[hcq_ring_index(DB_QUEUE_COMPUTE, i)];
    if (!r->running) continue;
    int rc = nv_counters_attach(dev, r);
    if (rc == RM_INVALID_CLASS)
      return db_fail(-ENOTSUP,
                     "%s: not supported: performance counters of %s, because NVIDIA does not publish their events and "
                     "registers; timestamps and the clock registers of kernels work",
                     dev->base.name, dev->base.arch);
    err = rc ? rm_error(dev->base.name, rc, "creating the counters") : nv_ring_setup(dev, r);
  }
  dev->counts = !err;
  return err;
}

static int make_list(struct nv_device *dev) {
  static const struct hcq_counter rows[NV_COUNTERS_COUNT] = {
#define ROW(name_, exact, unit_, description_)                                                                         \
  {.info = {.name = "SM_" #name_,                                                                                      \
            .block = "SM",                                                                                             \
            .unit = unit_,                                                                                             \
            .description = description_,                                                                               \
            .source = (exact) ? DB_COUNTER_EXACT : DB_COUNTER_MODEL},                                                  \
   .number = NV_COUNTER_##name_},
      NV_COUNTERS(ROW)
#undef ROW
  };
  if (dev->counters) return 0;
  dev->counters = malloc(sizeof rows);
  if (!dev->counters) return db_fail(-ENOMEM, "%s: out of host memory for the list of counters", dev->base.name);
  memcpy(dev->counters, rows, sizeof rows);
  for (unsigned i = 0; i < NV_COUNTERS_COUNT; i++) dev->counters[i].info.instances = dev->sms;
  return 0;
}

int nv_counters(db_device *base, const struct hcq_counter **list, unsigned *n, const struct hcq_counter **check) {
  struct nv_device *dev = nv_device(base);
  unsigned paused = hcq_device_pause(base);
  int err = dev->counters ? 0 : check_permission(dev);
  if (!err) err = attach(dev);
  if (!err) err = make_list(dev);
  hcq_device_resume(base, paused);
  if (err) return err;
  *list = dev->counters, *n = NV_COUNTERS_COUNT;
  *check = &dev->counters[NV_COUNTER_INSTS];
  return 0;
}

unsigned nv_counter_slots(db_device *base, const struct hcq_counter *counter) { return NV_COUNTERS_COUNT; }

/* ---- methods ---- */

int nv_counters_begin(db_queue *q, const struct hcq_counter_pick *picks, unsigned n) {
  uint32_t started = 0;
  for (unsigned i = 0; i < n; i++) started |= nv_counters_started_by(picks[i].counter->number);
  push_wait_for_idle(&q->words);
  push_method(&q->words, NV_SUBCHANNEL_COUNTERS, NV_COUNTERS_START, started);
  return 0;
}

int nv_counters_end(db_queue *q, const struct hcq_counter_pick *picks, unsigned n, uint64_t done_address) {
  push_wait_for_idle(&q->words);
  push_method(&q->words, NV_SUBCHANNEL_COUNTERS, NV_COUNTERS_STOP, 1);
  for (unsigned i = 0; i < n; i++) {
    push_pair(&q->words, NV_SUBCHANNEL_COUNTERS, NV_COUNTERS_ADDRESS_UPPER, picks[i].address);
    push_method(&q->words, NV_SUBCHANNEL_COUNTERS, NV_COUNTERS_STORE, picks[i].counter->number);
  }
  push_release(&q->words, done_address, 1);
  return 0;
}
