/* The host's processor as a device: two queues, each with a thread that executes commands from a ring, and helper
 * threads that share the workgroups of a kernel. Memory is host memory, addresses are host addresses, time is
 * CLOCK_MONOTONIC. */
#ifndef DOORBELL_HCQ_CPU_CPU_H
#define DOORBELL_HCQ_CPU_CPU_H
#include "../backend.h"
#include <pthread.h>

/* A kernel's entry, called once per workgroup: void name(const void *kernarg, uint32_t wx, uint32_t wy, uint32_t wz).
 */
typedef void cpu_entry(const void *kernarg, uint32_t x, uint32_t y, uint32_t z);

struct cpu_program {
  db_program base;
  cpu_entry *entry;
  void *image;
  size_t image_size;
};

/* A command in a ring: a header dword (operation and total number of dwords), then 64-bit operands, low dword first.
 * CPU_OP_CALL runs a list of commands. */
enum cpu_op {
  CPU_OP_WAIT,
  CPU_OP_SIGNAL,
  CPU_OP_STAMP,
  CPU_OP_EXEC,
  CPU_OP_COPY,
  CPU_OP_CALL,
  CPU_OP_COUNT,  /* count an event from now on */
  CPU_OP_COUNTED /* stop counting all events */
};
enum { CPU_COMMAND_MAX = 8 };
#define CPU_HEADER(op, ndw) ((uint32_t)(op) | (uint32_t)(ndw) << 8)

enum cpu_idle { CPU_AWAKE, CPU_NAPS /* wakes up by itself, soon */, CPU_SLEEPS /* sleeps until it is woken */ };

#define CPU_RING_WORDS (1u << 16)
struct cpu_ring {
  struct hcq_ring base;
  struct cpu_device *dev;
  pthread_t thread;
  bool started;
  uint32_t *words;
  _Atomic uint64_t wptr, rptr; /* dwords, not wrapped */
  atomic_uint wake_futex;      /* the idle thread sleeps on it */
  atomic_uint idle_state;      /* enum cpu_idle */
  atomic_bool finished;        /* the thread has left its loop */
};

/* The workgroups of one kernel. Threads take `chunk` of them at a time. */
struct cpu_job {
  cpu_entry *entry;
  const void *kernarg;
  uint32_t grid[3];
  uint64_t total, chunk;
  _Atomic uint64_t next;
};

/* What the compute queue's kernels count. Its thread changes this only between kernels. */
enum { CPU_MOST_COUNTED = 64 };
struct cpu_counting {
  unsigned n, event[CPU_MOST_COUNTED];
  uint64_t *values[CPU_MOST_COUNTED]; /* one per worker */
  atomic_bool failed;                 /* a worker could not count */
};

struct cpu_device {
  db_device base;
  struct cpu_ring rings[2];
  /* Sleepers wait on `changed` for a signal, room in a ring, or the end of a thread. */
  pthread_mutex_t lock;
  pthread_cond_t changed;
  atomic_uint sleepers;
  atomic_bool stop;

  pthread_t *helpers;
  unsigned nhelpers, nthreads;
  atomic_uint workers; /* numbers given to helpers so far */
  struct cpu_counting counting;
  struct hcq_counter *counters; /* the list; guarded by base.lock until it is made */
  unsigned ncounters;
  pthread_mutex_t job_lock;
  pthread_cond_t job_posted, job_done;
  /* job, job_number and job_active are written only while job_lock is held. */
  struct cpu_job *job;         /* NULL: no more helpers join */
  _Atomic uint64_t job_number; /* of the last job */
  _Atomic uint64_t job_active; /* helpers that work on it */
};

/* Wakes the threads of rings that have work. */
void cpu_wake(struct cpu_device *dev);
/* Wakes all threads in cpu_sleep. Call it after the store that they wait for. */
void cpu_notify(struct cpu_device *dev);
/* Sleeps until the next cpu_notify, at most ns nanoseconds. ready(ctx), if not NULL, is checked with the lock held
 * before sleeping, so no notify is missed. */
void cpu_sleep(struct cpu_device *dev, uint64_t ns, bool (*ready)(void *ctx), void *ctx);

int cpu_ring_start(struct cpu_ring *ring, struct cpu_device *dev, enum db_queue_kind kind);
/* Stops the threads. Returns false if a kernel does not end. */
bool cpu_rings_stop(struct cpu_device *dev);
int cpu_ring_submit(struct cpu_ring *ring, const uint32_t *words, size_t n);

/* ---- counters.c ---- */
int cpu_counters(db_device *dev, const struct hcq_counter **list, unsigned *n, const struct hcq_counter **check);
unsigned cpu_counter_slots(db_device *dev, const struct hcq_counter *c);
int cpu_counter_missing(db_device *dev, const char *name);
int cpu_counters_begin(db_queue *q, const struct hcq_counter_pick *picks, unsigned n);
int cpu_counters_end(db_queue *q, const struct hcq_counter_pick *picks, unsigned n, uint64_t done_address);
/* Called by the queue's thread between kernels: start counting an event, and stop counting all events. *done becomes 1
 * if all workers could count, otherwise 0. */
void cpu_count(struct cpu_device *dev, unsigned event, uint64_t *values);
void cpu_counted(struct cpu_device *dev, uint64_t *done);
/* Called by a helper before its share of a counted kernel, by each worker after its share, and by each worker before
 * its thread ends. worker: 0 for the queue's thread, or the number of a helper. */
void cpu_helper_begin(struct cpu_device *dev);
void cpu_worker_end(struct cpu_device *dev, unsigned worker, uint64_t workgroups);
void cpu_worker_close(void);

/* The function that a kernel calls by name; NULL if it is unknown. */
void *cpu_symbol(const char *name);
int cpu_program_load(db_device *dev, const void *image, size_t size, const char *entry, const struct db_param *params,
                     unsigned nparams, db_program **out);
void cpu_program_free(db_program *prog);
#endif
