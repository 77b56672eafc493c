/* Performance counters of the CPU device: the events of perf_event_open, counted by each worker thread. Instance 0 of a
 * counter is the compute queue's thread, the others are the helpers. */
#define _GNU_SOURCE
#include "cpu.h"
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Events of the processor itself are counted by few registers: 4 on every x86 with two threads per core. */
enum { SLOTS = 4, MANY_SLOTS = 16 };
enum block { OWN, SOFTWARE, PROCESSOR };
enum { WORKGROUPS = 0 /* the first event */ };

#define PERF_TYPE_OWN UINT32_MAX
static const struct event {
  const char *name;
  uint64_t config;
  const char *processor, *unit, *description;
  uint32_t type;
  bool kernel;
} events[] = {
#define EVENT(name, type, config, processor, kernel, unit, description)                                                \
  {#name, config, processor, unit, description, PERF_TYPE_##type, kernel},
#include "events.def"
};
enum { EVENTS = sizeof events / sizeof *events };

/* Opens an event of the calling thread, which does not count yet. Returns a descriptor or a negative errno. */
static int open_event(const struct event *e) {
  struct perf_event_attr a = {.type = e->type,
                              .size = sizeof a,
                              .config = e->config,
                              .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
                              .disabled = 1,
                              .exclude_kernel = !e->kernel,
                              .exclude_hv = 1};
  int fd = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
  return fd < 0 ? -errno : fd;
}

/* ---- the list ---- */

static void find_vendor(char vendor[13]) {
  memset(vendor, 0, 13);
#if defined(__x86_64__)
  unsigned a, b, c, d;
  if (!__get_cpuid(0, &a, &b, &c, &d)) return;
  memcpy(vendor, &b, 4);
  memcpy(vendor + 4, &d, 4);
  memcpy(vendor + 8, &c, 4);
#endif
}

/* Returns 0 if this machine counts the event, or a negative errno. */
static int try_event(const struct event *e, const char *vendor) {
  if (e->type == PERF_TYPE_OWN) return 0;
  if (*e->processor && strcmp(e->processor, vendor) != 0) return -ENODEV;
  int fd = open_event(e);
  if (fd < 0) return fd;
  close(fd);
  return 0;
}

static int make_list(struct cpu_device *dev) {
  char vendor[13];
  find_vendor(vendor);
  dev->counters = calloc(EVENTS, sizeof *dev->counters);
  if (!dev->counters) return -ENOMEM;
  for (unsigned i = 0; i < EVENTS; i++) {
    const struct event *e = &events[i];
    if (try_event(e, vendor)) continue;
    dev->counters[dev->ncounters++] = (struct hcq_counter){
        .info = {.name = e->name,
                 .block = e->type == PERF_TYPE_OWN        ? "queue"
                          : e->type == PERF_TYPE_SOFTWARE ? "kernel"
                                                          : "processor",
                 .unit = e->unit,
                 .description = e->description,
                 .instances = dev->nthreads,
                 .source = DB_COUNTER_MEASURED},
        .block = e->type == PERF_TYPE_OWN        ? OWN
                 : e->type == PERF_TYPE_SOFTWARE ? SOFTWARE
                                                 : PROCESSOR,
        .number = (uint16_t)i,
    };
  }
  return 0;
}

int cpu_counters(db_device *base, const struct hcq_counter **list, unsigned *n, const struct hcq_counter **check) {
  struct cpu_device *dev = (struct cpu_device *)base;
  pthread_mutex_lock(&base->lock);
  int err = dev->counters ? 0 : make_list(dev);
  pthread_mutex_unlock(&base->lock);
  if (err) return db_fail(err, "%s: out of host memory for the list of counters", base->name);
  *list = dev->counters, *n = dev->ncounters;
  *check = &dev->counters[WORKGROUPS];
  return 0;
}

unsigned cpu_counter_slots(db_device *dev, const struct hcq_counter *c) {
  return c->block == PROCESSOR ? SLOTS : MANY_SLOTS;
}

static int fail_forbidden(db_device *dev, const char *name) {
  char level[16] = "unknown";
  ssize_t n = dev->os->read_file(dev->os, "/proc/sys/kernel/perf_event_paranoid", level, sizeof level - 1);
  if (n > 0) level[n] = 0, level[strcspn(level, "\n")] = 0;
  return db_fail(-EACCES,
                 "%s: the kernel forbids counter %s: perf_event_paranoid is %s; the administrator allows it with "
                 "sysctl kernel.perf_event_paranoid=1",
                 dev->name, name, level);
}

/* Whether the machine has a performance monitoring unit that the kernel uses. */
static bool has_unit(void) {
  int fd = open_event(&(struct event){.type = PERF_TYPE_HARDWARE, .config = PERF_COUNT_HW_CPU_CYCLES});
  if (fd >= 0) close(fd);
  return fd >= 0;
}

int cpu_counter_missing(db_device *dev, const char *name) {
  char vendor[13];
  const struct event *e = events, *last = events + EVENTS;
  while (e < last && strcmp(e->name, name) != 0) e++;
  if (e == last) return db_fail(-ENOENT, "%s: the device has no counter %s", dev->name, name);
  find_vendor(vendor);
  int err = try_event(e, vendor);
  if (err == -ENODEV) return db_fail(-ENOENT, "%s: this processor does not count %s", dev->name, name);
  if (err == -EACCES || err == -EPERM) return fail_forbidden(dev, name);
  if (err == -ENOENT && e->type != PERF_TYPE_SOFTWARE && has_unit())
    return db_fail(-ENOENT, "%s: this processor does not count %s", dev->name, name);
  if (err == -ENOENT && e->type != PERF_TYPE_SOFTWARE)
    return db_fail(-ENOTSUP,
                   "%s: counter %s needs a performance monitoring unit, which this machine does not have; virtual "
                   "machines often lack it",
                   dev->name, name);
  return db_fail(-ENOTSUP, "%s: counter %s: %s", dev->name, name, strerror(-err));
}

/* ---- commands ---- */

static int put_command(db_queue *q, enum cpu_op op, uint64_t address, uint32_t number) {
  uint32_t *w = words_packet(&q->words, 4);
  if (!w) return 0; /* failure is sticky in words */
  w[0] = CPU_HEADER(op, 4);
  memcpy(w + 1, &address, 8);
  w[3] = number;
  return 0;
}

int cpu_counters_begin(db_queue *q, const struct hcq_counter_pick *picks, unsigned n) {
  for (unsigned i = 0; i < n; i++) put_command(q, CPU_OP_COUNT, picks[i].address, picks[i].counter->number);
  return 0;
}

int cpu_counters_end(db_queue *q, const struct hcq_counter_pick *picks, unsigned n, uint64_t done_address) {
  return put_command(q, CPU_OP_COUNTED, done_address, 0);
}

/* ---- counting ----
 *
 * The queue's thread counts from the begin to the end of counting, so the calls that start and stop its events are not
 * in the time of the kernels. A helper counts around its share of each kernel. */

/* This thread's events, by number. */
static _Thread_local struct opened {
  int fd;                    /* the descriptor plus 1; 0: not open */
  uint64_t enabled, running; /* total times when it last stopped: PERF_EVENT_IOC_RESET clears only the count */
} opened[EVENTS];

static void start_event(struct cpu_device *dev, unsigned number) {
  const struct event *e = &events[number];
  int *fd = &opened[number].fd;
  if (e->type == PERF_TYPE_OWN) return;
  if (!*fd) *fd = open_event(e) + 1;
  if (*fd <= 0) {
    *fd = 0;
    atomic_store(&dev->counting.failed, true);
  } else {
    ioctl(*fd - 1, PERF_EVENT_IOC_RESET, 0);
    ioctl(*fd - 1, PERF_EVENT_IOC_ENABLE, 0);
  }
}

/* Adds what an event has counted. If the kernel had to share the processor's counters, its part of the time is scaled
 * up, as perf stat does. */
static void stop_event(struct cpu_device *dev, unsigned number, uint64_t *value) {
  struct {
    uint64_t value, enabled, running;
  } r;
  struct opened *o = &opened[number];
  if (!o->fd) return;
  if (ioctl(o->fd - 1, PERF_EVENT_IOC_DISABLE, 0) || read(o->fd - 1, &r, sizeof r) != sizeof r) {
    atomic_store(&dev->counting.failed, true);
    return;
  }
  uint64_t enabled = r.enabled - o->enabled, running = r.running - o->running;
  o->enabled = r.enabled, o->running = r.running;
  if (enabled && !running)
    atomic_store(&dev->counting.failed, true);
  else
    *value += running < enabled ? (uint64_t)((double)r.value * (double)enabled / (double)running) : r.value;
}

void cpu_count(struct cpu_device *dev, unsigned event, uint64_t *values) {
  struct cpu_counting *c = &dev->counting;
  if (c->n == CPU_MOST_COUNTED) return;
  memset(values, 0, dev->nthreads * sizeof *values);
  c->event[c->n] = event;
  c->values[c->n++] = values;
  start_event(dev, event);
}

void cpu_counted(struct cpu_device *dev, uint64_t *done) {
  struct cpu_counting *c = &dev->counting;
  for (unsigned i = 0; i < c->n; i++) stop_event(dev, c->event[i], &c->values[i][0]);
  *done = !atomic_exchange(&c->failed, false);
  c->n = 0;
}

void cpu_helper_begin(struct cpu_device *dev) {
  for (unsigned i = 0; i < dev->counting.n; i++) start_event(dev, dev->counting.event[i]);
}

void cpu_worker_end(struct cpu_device *dev, unsigned worker, uint64_t workgroups) {
  const struct cpu_counting *c = &dev->counting;
  for (unsigned i = 0; i < c->n; i++)
    if (c->event[i] == WORKGROUPS)
      c->values[i][worker] += workgroups;
    else if (worker)
      stop_event(dev, c->event[i], &c->values[i][worker]);
}

void cpu_worker_close(void) {
  for (unsigned i = 0; i < EVENTS; i++)
    if (opened[i].fd) close(opened[i].fd - 1);
  memset(opened, 0, sizeof opened);
}
