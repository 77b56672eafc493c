/* Threads of the CPU device: one per queue, which executes its ring, and helpers that share a kernel's workgroups.
 *
 * When a queue's thread runs out of commands, it first spins, then naps for a fraction of the time it has been idle so
 * far, and sleeps only after a long idle time. A host that submits from time to time therefore makes no system call. It
 * makes one only to wake a sleeping thread, or to sleep itself until a command is done. A helper spins after a kernel,
 * then sleeps until the next one is posted. */
#define _GNU_SOURCE
#include "cpu.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FOREIGN_SIGNAL_NS 50000u /* another device's signal arrives without a notify */
#define STOP_TIMEOUT_NS   2000000000ull
#define SPIN_NS           20000u /* after this long without work, a queue's thread gives up its core */
#define HELPER_SPIN_NS    50000u /* a helper spins this long for the next kernel, a queue's thread for its helpers */
#define NAP_MIN_NS        20000u
#define NAP_PART          8u /* a nap is 1/8 of the idle time before it, so it delays new work by at most that */
#define NAP_MAX_NS        8000000u
#define DEEP_NS           500000000u /* after this long without work, it sleeps until woken */

/* ---- sleeping ---- */

void cpu_notify(struct cpu_device *dev) {
  /* Pairs with the fence in cpu_sleep: the caller's store comes before the load of sleepers. */
  atomic_thread_fence(memory_order_seq_cst);
  if (!atomic_load_explicit(&dev->sleepers, memory_order_relaxed)) return;
  pthread_mutex_lock(&dev->lock);
  pthread_cond_broadcast(&dev->changed);
  pthread_mutex_unlock(&dev->lock);
}

void cpu_sleep(struct cpu_device *dev, uint64_t ns, bool (*ready)(void *ctx), void *ctx) {
  uint64_t until = hcq_now_ns() + ns;
  struct timespec t = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};
  pthread_mutex_lock(&dev->lock);
  atomic_fetch_add_explicit(&dev->sleepers, 1, memory_order_relaxed);
  atomic_thread_fence(memory_order_seq_cst);
  if (!ready || !ready(ctx)) pthread_cond_timedwait(&dev->changed, &dev->lock, &t);
  atomic_fetch_sub_explicit(&dev->sleepers, 1, memory_order_relaxed);
  pthread_mutex_unlock(&dev->lock);
}

static void futex_wait(atomic_uint *at, unsigned seen, uint64_t ns) {
  struct timespec t = {0, (long)ns};
  syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, seen, ns ? &t : NULL, NULL, 0); /* ns 0: until woken */
}

static bool has_work(const struct cpu_ring *ring) {
  return atomic_load_explicit(&ring->wptr, memory_order_acquire) !=
             atomic_load_explicit(&ring->rptr, memory_order_acquire) ||
         atomic_load(&ring->dev->stop);
}

/* Wakes the ring's thread if it rests deeper than deeper_than. Call it after the store that the thread is to see. The
 * fence pairs with the one in wait_for_work: the store of wptr or stop comes before the load of ring->idle_state. */
static void wake(struct cpu_ring *ring, enum cpu_idle deeper_than) {
  atomic_thread_fence(memory_order_seq_cst);
  if (atomic_load_explicit(&ring->idle_state, memory_order_relaxed) <= deeper_than) return;
  atomic_fetch_add(&ring->wake_futex, 1);
  syscall(SYS_futex, &ring->wake_futex, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void cpu_wake(struct cpu_device *dev) {
  for (int i = 0; i < 2; i++)
    if (has_work(&dev->rings[i])) wake(&dev->rings[i], CPU_AWAKE);
}

/* Lets a queue's thread, which has been idle for idle_ns nanoseconds, spin, nap or sleep. */
static void wait_for_work(struct cpu_ring *ring, uint64_t idle_ns) {
  if (idle_ns < SPIN_NS) {
    if (ring->dev->nthreads > 1)
      hcq_spin_pause();
    else
      sched_yield(); /* on a single core, let the submitting thread run */
    return;
  }
  unsigned seen = atomic_load(&ring->wake_futex);
  uint64_t ns = idle_ns / NAP_PART;
  ns = ns < NAP_MIN_NS ? NAP_MIN_NS : ns > NAP_MAX_NS ? NAP_MAX_NS : ns;
  if (idle_ns >= DEEP_NS) ns = 0;
  atomic_store_explicit(&ring->idle_state, ns ? CPU_NAPS : CPU_SLEEPS, memory_order_relaxed);
  /* Pairs with the fence in wake: the store of idle_state comes before has_work loads wptr and stop. */
  atomic_thread_fence(memory_order_seq_cst);
  if (!has_work(ring)) futex_wait(&ring->wake_futex, seen, ns);
  atomic_store_explicit(&ring->idle_state, CPU_AWAKE, memory_order_relaxed);
}

/* ---- kernels ---- */

/* Runs workgroups until none are left, and returns their number. */
static uint64_t run_workgroups(struct cpu_job *job) {
  uint32_t gx = job->grid[0], gy = job->grid[1];
  for (uint64_t n = 0;;) {
    uint64_t first = atomic_fetch_add_explicit(&job->next, job->chunk, memory_order_relaxed);
    if (first >= job->total) return n;
    uint64_t last = job->total - first < job->chunk ? job->total : first + job->chunk;
    uint32_t x = (uint32_t)(first % gx), y = (uint32_t)(first / gx % gy), z = (uint32_t)(first / gx / gy);
    n += last - first;
    for (uint64_t i = first; i < last; i++) {
      job->entry(job->kernarg, x, y, z);
      if (++x == gx) {
        x = 0;
        if (++y == gy) y = 0, z++;
      }
    }
  }
}

static void run_share(struct cpu_device *dev, struct cpu_job *job, unsigned worker) {
  if (!dev->counting.n) {
    run_workgroups(job);
    return;
  }
  if (worker) cpu_helper_begin(dev);
  cpu_worker_end(dev, worker, run_workgroups(job));
}

/* Makes large pages of the calling thread's stack, if the system has them: copies that kernels keep there reach over
 * many pages. */
static void use_large_pages(void) {
  pthread_attr_t attributes;
  void *stack;
  size_t size;
  if (pthread_getattr_np(pthread_self(), &attributes)) return;
  if (!pthread_attr_getstack(&attributes, &stack, &size)) madvise(stack, size, MADV_HUGEPAGE);
  pthread_attr_destroy(&attributes);
}

/* Spins until *value equals v (if `equal`) or differs from v (if not), for about HELPER_SPIN_NS at most. The caller
 * must not hold job_lock. In a program, the next kernel begins after a few microseconds, and waking a thread takes
 * longer. */
static void spin_until(struct cpu_device *dev, const _Atomic uint64_t *value, uint64_t v, bool equal) {
  enum { PAUSES = 64 }; /* between looks at the clock */
  for (uint64_t end = hcq_now_ns() + HELPER_SPIN_NS; hcq_now_ns() < end && !atomic_load(&dev->stop);)
    for (unsigned i = 0; i < PAUSES; i++) {
      if ((atomic_load_explicit(value, memory_order_acquire) == v) == equal) return;
      hcq_spin_pause();
    }
}

static void *helper_main(void *arg) {
  struct cpu_device *dev = arg;
  uint64_t seen = 0;
  unsigned worker = 1 + atomic_fetch_add(&dev->workers, 1);
  use_large_pages();
  pthread_mutex_lock(&dev->job_lock);
  while (!atomic_load(&dev->stop)) {
    if (dev->job_number == seen) {
      pthread_mutex_unlock(&dev->job_lock);
      spin_until(dev, &dev->job_number, seen, false);
      pthread_mutex_lock(&dev->job_lock);
    }
    while (dev->job_number == seen && !atomic_load(&dev->stop)) pthread_cond_wait(&dev->job_posted, &dev->job_lock);
    if (atomic_load(&dev->stop)) break;
    seen = dev->job_number;
    if (!dev->job) continue; /* it ended before this thread began */
    struct cpu_job *job = dev->job;
    dev->job_active++;
    pthread_mutex_unlock(&dev->job_lock);
    run_share(dev, job, worker);
    pthread_mutex_lock(&dev->job_lock);
    if (--dev->job_active == 0) pthread_cond_signal(&dev->job_done);
  }
  pthread_mutex_unlock(&dev->job_lock);
  cpu_worker_close();
  return NULL;
}

/* Stack size of threads: a kernel keeps its stages on the stack (compiler/target.c). */
#define STACK_BYTES ((size_t)16 << 20)

static int start_thread(pthread_t *thread, void *(*entry)(void *), void *arg) {
  pthread_attr_t attributes;
  int err = pthread_attr_init(&attributes);
  if (err) return err;
  err = pthread_attr_setstacksize(&attributes, STACK_BYTES);
  if (!err) err = pthread_create(thread, &attributes, entry, arg);
  pthread_attr_destroy(&attributes);
  return err;
}

/* Starts the helpers. A thread that cannot be created is not an error: the queue's thread does its work. */
static void start_helpers(struct cpu_device *dev) {
  if (dev->helpers || dev->nthreads < 2) return;
  dev->helpers = calloc(dev->nthreads - 1, sizeof *dev->helpers);
  while (dev->helpers && dev->nhelpers < dev->nthreads - 1 &&
         !start_thread(&dev->helpers[dev->nhelpers], helper_main, dev))
    dev->nhelpers++;
}

static void run_kernel(struct cpu_device *dev, cpu_entry *entry, const void *kernarg, const uint32_t *grid) {
  struct cpu_job job = {.entry = entry, .kernarg = kernarg, .grid = {grid[0], grid[1], grid[2]}};
  job.total = (uint64_t)grid[0] * grid[1] * grid[2];
  job.chunk = job.total / (dev->nthreads * 8);
  if (!job.chunk) job.chunk = 1;
  if (job.total > 1) start_helpers(dev);
  if (job.total == 1 || !dev->nhelpers) {
    run_share(dev, &job, 0);
    return;
  }
  pthread_mutex_lock(&dev->job_lock);
  dev->job = &job;
  dev->job_number++;
  pthread_cond_broadcast(&dev->job_posted);
  pthread_mutex_unlock(&dev->job_lock);
  run_share(dev, &job, 0);
  pthread_mutex_lock(&dev->job_lock);
  dev->job = NULL; /* no more helpers join; wait for those that have */
  if (dev->job_active) {
    pthread_mutex_unlock(&dev->job_lock);
    spin_until(dev, &dev->job_active, 0, true);
    pthread_mutex_lock(&dev->job_lock);
  }
  while (dev->job_active) pthread_cond_wait(&dev->job_done, &dev->job_lock);
  pthread_mutex_unlock(&dev->job_lock);
}

/* ---- the ring ---- */

// NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): a command has all its op's words
static inline uint64_t operand(const uint32_t *c, unsigned at) { return c[at] | (uint64_t)c[at + 1] << 32; }

struct awaited {
  const _Atomic uint64_t *value;
  uint64_t reference;
  struct cpu_device *dev;
};
static bool reached(void *ctx) {
  struct awaited *a = ctx;
  // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): a wait has 4 words
  return atomic_load_explicit(a->value, memory_order_acquire) >= a->reference || atomic_load(&a->dev->stop);
}

static void execute(struct cpu_device *dev, const uint32_t *c) {
  // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): no command has 0 words
  switch ((enum cpu_op)(*c & 0xff)) {
  case CPU_OP_WAIT: {
    struct awaited a = {(_Atomic uint64_t *)(uintptr_t)operand(c, 1), c[3], dev};
    while (!reached(&a)) {
      cpu_wake(dev); /* the other queue may be the one that signals */
      cpu_sleep(dev, FOREIGN_SIGNAL_NS, reached, &a);
    }
    break;
  }
  case CPU_OP_SIGNAL:
    atomic_store_explicit((_Atomic uint64_t *)(uintptr_t)operand(c, 1), c[3], memory_order_release);
    cpu_notify(dev);
    break;
  case CPU_OP_STAMP:
    atomic_store_explicit((_Atomic uint64_t *)(uintptr_t)operand(c, 1), hcq_now_ns(), memory_order_release);
    break;
  case CPU_OP_EXEC:
    run_kernel(dev, (cpu_entry *)(uintptr_t)operand(c, 1), (const void *)(uintptr_t)operand(c, 3), c + 5);
    break;
  case CPU_OP_COPY:
    memcpy((void *)(uintptr_t)operand(c, 1), (const void *)(uintptr_t)operand(c, 3), operand(c, 5));
    break;
  // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): a count has 4 words
  case CPU_OP_COUNT: cpu_count(dev, c[3], (uint64_t *)(uintptr_t)operand(c, 1)); break;
  case CPU_OP_COUNTED: cpu_counted(dev, (uint64_t *)(uintptr_t)operand(c, 1)); break;
  case CPU_OP_CALL: {
    const uint32_t *list = (const uint32_t *)(uintptr_t)operand(c, 1), *last = list + operand(c, 3);
    for (; list < last && !atomic_load_explicit(&dev->stop, memory_order_relaxed); list += *list >> 8)
      execute(dev, list);
    break;
  }
  }
}

static void *ring_main(void *arg) {
  struct cpu_ring *ring = arg;
  struct cpu_device *dev = ring->dev;
  uint64_t rptr = 0, active = 0; /* a queue that was never used sleeps at once */
  prctl(PR_SET_TIMERSLACK, 1000ul);
  use_large_pages();
  while (!atomic_load(&dev->stop)) {
    uint64_t wptr = atomic_load_explicit(&ring->wptr, memory_order_acquire);
    if (rptr == wptr) {
      wait_for_work(ring, hcq_now_ns() - active);
      continue;
    }
    uint32_t command[CPU_COMMAND_MAX], n = ring->words[rptr % CPU_RING_WORDS] >> 8;
    for (uint32_t i = 0; i < n; i++) command[i] = ring->words[(rptr + i) % CPU_RING_WORDS];
    execute(dev, command);
    if (atomic_load(&dev->stop)) break; /* an interrupted wait must not count as done */
    rptr += n;
    atomic_store_explicit(&ring->rptr, rptr, memory_order_release);
    if (rptr == wptr) active = hcq_now_ns();
  }
  cpu_worker_close();
  atomic_store(&ring->finished, true);
  cpu_notify(dev);
  return NULL;
}

int cpu_ring_submit(struct cpu_ring *ring, const uint32_t *words, size_t n) {
  uint64_t wptr = atomic_load_explicit(&ring->wptr, memory_order_relaxed), since = 0;
  for (size_t at = 0; at < n;) {
    uint32_t ndw = words[at] >> 8;
    size_t need = at || n > CPU_RING_WORDS ? ndw : n; /* all or nothing, if the ring can hold it */
    if (wptr + need - atomic_load_explicit(&ring->rptr, memory_order_acquire) > CPU_RING_WORDS) {
      /* Publish what is in the ring so far, or the worker would never make room. */
      atomic_store_explicit(&ring->wptr, wptr, memory_order_release);
      wake(ring, CPU_AWAKE);
      int err = hcq_ring_wait_room(&ring->base, &since);
      /* Half of it may run, without its timeline signal. */
      if (err && at) hcq_device_lost(&ring->dev->base, "%s", db_error());
      if (err) return err;
      continue;
    }
    for (uint32_t i = 0; i < ndw; i++) ring->words[(wptr + i) % CPU_RING_WORDS] = words[at + i];
    wptr += ndw;
    at += ndw;
    since = 0;
  }
  atomic_store_explicit(&ring->wptr, wptr, memory_order_release);
  wake(ring, CPU_NAPS);
  return 0;
}

/* ---- start and stop ---- */

int cpu_ring_start(struct cpu_ring *ring, struct cpu_device *dev, enum db_queue_kind kind) {
  ring->base.dev = &dev->base;
  dev->base.rings[kind] = &ring->base;
  ring->words = malloc(CPU_RING_WORDS * sizeof *ring->words);
  if (!ring->words) return db_fail(-ENOMEM, "%s: out of memory for a command ring", dev->base.name);
  int err = hcq_ring_init(&ring->base, &dev->base, kind, 0);
  if (err) return err;
  if ((err = start_thread(&ring->thread, ring_main, ring)))
    return db_fail(-err, "%s: cannot start a queue's thread: %s", dev->base.name, strerror(err));
  ring->started = true;
  return 0;
}

static bool all_finished(void *ctx) {
  struct cpu_device *dev = ctx;
  for (int i = 0; i < 2; i++)
    if (dev->rings[i].started && !atomic_load(&dev->rings[i].finished)) return false;
  return true;
}

bool cpu_rings_stop(struct cpu_device *dev) {
  atomic_store(&dev->stop, true);
  cpu_notify(dev);
  cpu_wake(dev);
  uint64_t start = hcq_now_ns();
  while (!all_finished(dev)) {
    if (hcq_now_ns() - start > STOP_TIMEOUT_NS) return false;
    cpu_sleep(dev, 100000000, all_finished, dev);
  }
  for (int i = 0; i < 2; i++) {
    if (dev->rings[i].started) pthread_join(dev->rings[i].thread, NULL);
    dev->rings[i].started = false;
  }
  pthread_mutex_lock(&dev->job_lock);
  pthread_cond_broadcast(&dev->job_posted);
  pthread_mutex_unlock(&dev->job_lock);
  for (unsigned i = 0; i < dev->nhelpers; i++) pthread_join(dev->helpers[i], NULL);
  dev->nhelpers = 0;
  return true;
}
