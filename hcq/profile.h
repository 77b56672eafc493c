/* Times of commands: a line per command (DEBUG=2), a trace file (PROFILE), and the record that `doorbell prof` reads
 * (PROF). The queue layer and the tensor layer both report the commands that they have timed here. */
#ifndef DOORBELL_HCQ_PROFILE_H
#define DOORBELL_HCQ_PROFILE_H
#include "object.h"
#include <jansson.h>

/* ---- profile.c: the lines and the file ---- */

/* What the environment asks for; read once per process. */
struct hcq_profile_env {
  bool lines; /* DEBUG is at least 2. A DEBUG that is not a number counts as 0 here; the tensor layer rejects it */
  int rank;   /* rank of this process if a launcher started several; otherwise -1 */
  const char *path;     /* of the trace file, with the rank in it if there is one; NULL for no file */
  const char *record;   /* the folder of the record; NULL for no record */
  const char *counters; /* names, separated by commas, to count around each kernel; NULL for none */
  unsigned pass;        /* which pass of the counters this process counts */
};
const struct hcq_profile_env *hcq_profile_env(void);
/* Whether commands must be timed for the trace file or the record. */
static inline bool hcq_profile_files(void) { return hcq_profile_env()->path || hcq_profile_env()->record; }
/* Whether counters count each kernel. */
static inline bool hcq_profile_counted(void) { return hcq_profile_files() && hcq_profile_env()->counters; }

/* A command that has finished. */
struct hcq_event {
  db_device *device;
  const char *name;
  enum hcq_event_kind { HCQ_EVENT_KERNEL, HCQ_EVENT_COPY, HCQ_EVENT_EXCHANGE } kind;
  const db_program *program;  /* of a kernel; NULL if unknown */
  uint32_t grid[3], block[3]; /* of a kernel; grid may be an upper bound */
  uint32_t local_bytes;       /* of a kernel: static and dynamic local memory of a workgroup; 0: the program's */
  unsigned queue, args;       /* queue: which of the device's queues of that kind */
  bool uncounted;             /* bytes and flops are unknown */
  uint64_t bytes, begin_ns, end_ns;
  double flops;
};
/* The queue of event `to` waited for event `from`; both are indices. */
struct hcq_event_wait {
  size_t from, to;
};

/* What counters counted during one kernel, which ran alone. */
struct hcq_counts {
  db_device *device;
  const char *kernel;
  uint64_t begin_ns, end_ns; /* of the kernel, without the commands that start and read the counters */
  unsigned n;                /* number of counters; 0: `why` says why none counted */
  struct hcq_count {
    const char *name, *unit;
    enum db_counter_source source;
    unsigned instances;
    uint64_t sum; /* of all instances */
  } *counts;
  unsigned passes; /* that the counters need */
  uint64_t check;  /* equal in all passes if they did the same work */
  const char *why;
};

/* Opens the trace file and the record if the environment asks for them and they are not open. On failure returns a
 * negative errno, with a message that names the file. */
int hcq_profile_open(void);
/* Likewise, when a device is opened, so the files include what happens before its first queue is created. Reports no
 * error; creating the queue does. */
void hcq_profile_open_early(void);
/* Prints the lines and writes the files, as the environment asks. If a file cannot be written, one call fails with a
 * negative errno and a message; later calls do not write it. */
int hcq_profile_events(const struct hcq_event *events, size_t n, const struct hcq_event_wait *waits, size_t nwaits);
int hcq_profile_counts(const struct hcq_counts *counts);
/* Writes how much of dev's memory is allocated now. */
void hcq_profile_memory(const db_device *dev, uint64_t bytes);

/* Called around fork, with the devices' locks held. The file belongs to the parent process: a child does not write to
 * it. */
void hcq_profile_before_fork(void);
void hcq_profile_after_fork(bool in_child);

/* What host threads do for the devices; each thread has a track in the trace file and in the report. */
enum hcq_host_work { HCQ_HOST_SCHEDULE, HCQ_HOST_COMPILE, HCQ_HOST_SUBMIT, HCQ_HOST_WAIT };
extern const char *const hcq_host_works[]; /* their names */
/* Whether it is timed: there is a trace file or a record. */
extern atomic_bool hcq_host_timed;
/* Returns the time, or 0 if it is not needed. */
static inline uint64_t hcq_host_begin(void) {
  return __builtin_expect(atomic_load_explicit(&hcq_host_timed, memory_order_relaxed), 0) ? hcq_now_ns() : 0;
}
__attribute__((cold)) void hcq_host_worked(enum hcq_host_work work, const char *name, uint64_t begin_ns);
/* Records the work of this thread since hcq_host_begin returned begin_ns. name may be "". */
static inline void hcq_host_end(enum hcq_host_work work, const char *name, uint64_t begin_ns) {
  if (__builtin_expect(begin_ns != 0, 0)) hcq_host_worked(work, name, begin_ns);
}

__attribute__((cold)) void hcq_host_copied(const db_device *dev, bool is_write, uint64_t bytes, uint64_t begin_ns);
/* Records a copy between the host and a device's memory, for which this thread has waited since hcq_host_begin returned
 * begin_ns. */
static inline void hcq_host_copy_end(const db_device *dev, bool is_write, uint64_t bytes, uint64_t begin_ns) {
  if (__builtin_expect(begin_ns != 0, 0)) hcq_host_copied(dev, is_write, bytes, begin_ns);
}

/* ---- profiling/record.c: the record ---- */

/* Whether a record is being written. */
extern atomic_bool hcq_recorded;

/* Opens the record if the environment asks for one and it is not open. */
int hcq_record_open(void);
/* Used by profile.c, with its lock held. */
int hcq_record_events(const struct hcq_event *events, size_t n);
int hcq_record_counts(const struct hcq_counts *c);
int hcq_record_memory(const db_device *dev, uint64_t bytes);
/* What a thread of the host did. */
struct hcq_host_event {
  const char *work, *name; /* work: as in hcq_host_works, or "write" or "read" of a device's memory */
  const db_device *device; /* of a write or a read */
  uint64_t bytes, begin_ns, end_ns;
  long thread;
};
void hcq_record_host(const struct hcq_host_event *e);
/* Writes a line of another type, with these fields after `type` and `device`, and releases them. dev may be NULL. Does
 * nothing else if there is no record. */
void hcq_record_line(const char *type, const db_device *dev, json_t *fields);
/* What a higher layer adds to the record about devices. Called with an open device while there is a record; NULL unless
 * the layer sets them. */
extern struct hcq_record_hooks {
  void (*opened)(db_device *dev);
  void (*closing)(db_device *dev); /* also at the end of the process */
} hcq_record_hooks;
void hcq_record_opened(db_device *dev);
void hcq_record_closing(db_device *dev);
void hcq_record_before_fork(void);
void hcq_record_after_fork(bool in_child);

/* ---- profiling/clocks.c ---- */

/* Called when a set of counters, a thread trace or a PC sampler is made, and when it is released: meanwhile the
 * clocks are stable if the driver offers that. */
void hcq_clocks_hold(db_device *dev);
void hcq_clocks_drop(db_device *dev);
/* Returns why the clocks of a device with sets of counters, thread traces or PC samplers are not stable, or "". */
const char *hcq_clocks_unstable(const db_device *dev);

/* ---- profile_queue.c: recorders that stamp their commands ---- */

/* Creates a recorder like db_queue_new_at, but does not time its commands: the caller times and reports them. With
 * PROF_COUNTERS its kernels are counted. */
db_queue *hcq_queue_unprofiled(db_device *dev, enum db_queue_kind kind, unsigned index);
#endif
