/* The worker pool.
 *
 * A job is stored on the caller's stack and is in the pool's list while it may have chunks left. Taking a chunk is one
 * atomic addition. The lock is taken to join and to leave a job, not per chunk. */
#define _GNU_SOURCE
#include "pool.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

/* An idle worker polls for SPIN_NS, then waits DOZES times for DOZE_NS each, then sleeps until it is woken. Waking
 * costs more than many small jobs, so the caller wakes waiting workers only after it has spent WAKE_NS on a job that is
 * not done. But they always join eventually, which kernels whose workgroups wait for each other need. */
enum { SPIN_NS = 20000, DOZE_NS = 1000000, DOZES = 100, WAKE_NS = 4000, LEAVE_SPIN_NS = 50000, MAX_WORKERS = 255 };

struct pool_job {
  struct pool_job *next;
  pool_fn fn;
  void *ctx;
  uint64_t total, chunk;
  unsigned seats, max_seats; /* guarded by lock */
  atomic_uint inside;        /* number of workers in fn; incremented only under the lock */
  _Atomic uint64_t taken;
};

struct pool_worker {
  struct pool *pool;
  unsigned index;
  pthread_t thread;
};

struct pool {
  pthread_mutex_t lock;
  pthread_cond_t work, left;
  struct pool_job *jobs; /* guarded by lock */
  atomic_uint njobs;
  unsigned sleepers; /* guarded by lock */
  atomic_uint dozers;
  bool quit, started;
  unsigned n, running; /* number of workers wanted, started */
  struct pool_worker workers[];
};

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct pool *pool_new(void) {
  cpu_set_t set;
  int cores = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
  unsigned n = cores <= 1 ? 0 : cores - 1 > MAX_WORKERS ? MAX_WORKERS : (unsigned)cores - 1;
  struct pool *p = calloc(1, sizeof *p + n * sizeof p->workers[0]);
  if (!p) return NULL;
  p->n = n;
  pthread_mutex_init(&p->lock, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&p->work, &attr);
  pthread_condattr_destroy(&attr);
  pthread_cond_init(&p->left, NULL);
  return p;
}

unsigned pool_workers(const struct pool *p) { return p->n; }

static bool job_chunk(struct pool_job *job, unsigned worker, unsigned seat) {
  uint64_t begin = atomic_fetch_add_explicit(&job->taken, job->chunk, memory_order_relaxed);
  if (begin >= job->total) return false;
  uint64_t end = job->total - begin < job->chunk ? job->total : begin + job->chunk;
  if (job->fn(job->ctx, worker, seat, begin, end)) return true;
  atomic_store_explicit(&job->taken, job->total, memory_order_relaxed);
  return false;
}

static struct pool_job *joinable(struct pool *p) {
  struct pool_job *job = p->jobs;
  while (job && (job->seats == job->max_seats || atomic_load_explicit(&job->taken, memory_order_relaxed) >= job->total))
    job = job->next;
  return job;
}

static void *worker_main(void *arg) {
  struct pool_worker *w = arg;
  struct pool *p = w->pool;
  unsigned dozes = 0;
  pthread_mutex_lock(&p->lock);
  while (!p->quit) {
    struct pool_job *job = joinable(p);
    if (job) {
      unsigned seat = job->seats++;
      atomic_fetch_add_explicit(&job->inside, 1, memory_order_relaxed);
      pthread_mutex_unlock(&p->lock);
      while (job_chunk(job, w->index, seat)) {}
      pthread_mutex_lock(&p->lock);
      /* Release pairs with the acquire loads of inside in pool_run. After this the job may no longer exist. */
      if (atomic_fetch_sub_explicit(&job->inside, 1, memory_order_release) == 1) pthread_cond_broadcast(&p->left);
      dozes = 0;
      continue;
    }
    if (!dozes) {
      pthread_mutex_unlock(&p->lock);
      uint64_t until = now_ns() + SPIN_NS;
      unsigned seen = atomic_load_explicit(&p->njobs, memory_order_relaxed);
      while (atomic_load_explicit(&p->njobs, memory_order_relaxed) <= seen && now_ns() < until) pool_relax();
      pthread_mutex_lock(&p->lock);
    }
    if (p->quit || joinable(p)) continue;
    if (dozes++ < DOZES) {
      uint64_t until = now_ns() + DOZE_NS;
      struct timespec t = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
      atomic_fetch_add_explicit(&p->dozers, 1, memory_order_relaxed);
      pthread_cond_timedwait(&p->work, &p->lock, &t);
      atomic_fetch_sub_explicit(&p->dozers, 1, memory_order_relaxed);
    } else {
      p->sleepers++;
      pthread_cond_wait(&p->work, &p->lock);
      p->sleepers--;
    }
  }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

/* The caller holds the lock. Having fewer threads than wanted costs only speed. */
static void start_workers(struct pool *p) {
  sigset_t all, old;
  sigfillset(&all);
  sigdelset(&all, SIGSEGV), sigdelset(&all, SIGBUS); /* if blocked, they end the process (guard.h) */
  pthread_sigmask(SIG_SETMASK, &all, &old);
  unsigned n = 0;
  for (; n < p->n; n++) {
    p->workers[n] = (struct pool_worker){.pool = p, .index = n + 1};
    if (pthread_create(&p->workers[n].thread, NULL, worker_main, &p->workers[n])) break;
  }
  p->running = n;
  p->started = true;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void pool_run(struct pool *p, uint64_t total, uint64_t chunk, unsigned max_seats, pool_fn fn, void *ctx) {
  struct pool_job job = {.fn = fn, .ctx = ctx, .total = total, .chunk = chunk, .seats = 1, .max_seats = max_seats};
  if (total <= chunk || max_seats <= 1) {
    while (job_chunk(&job, 0, 0)) {}
    return;
  }
  pthread_mutex_lock(&p->lock);
  if (!p->started) start_workers(p);
  job.next = p->jobs;
  p->jobs = &job;
  atomic_fetch_add_explicit(&p->njobs, 1, memory_order_relaxed);
  if (p->sleepers) pthread_cond_broadcast(&p->work);
  pthread_mutex_unlock(&p->lock);

  uint64_t wake_at = now_ns() + WAKE_NS;
  while (job_chunk(&job, 0, 0)) {
    if (!wake_at || now_ns() < wake_at) continue;
    wake_at = 0;
    if (!atomic_load_explicit(&p->dozers, memory_order_relaxed)) continue;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
  }

  pthread_mutex_lock(&p->lock);
  struct pool_job **at = &p->jobs;
  while (*at != &job) at = &(*at)->next;
  *at = job.next;
  atomic_fetch_sub_explicit(&p->njobs, 1, memory_order_relaxed);
  if (atomic_load_explicit(&job.inside, memory_order_relaxed)) {
    pthread_mutex_unlock(&p->lock);
    for (uint64_t until = now_ns() + LEAVE_SPIN_NS;
         atomic_load_explicit(&job.inside, memory_order_acquire) && now_ns() < until;)
      pool_relax();
    pthread_mutex_lock(&p->lock);
  }
  while (atomic_load_explicit(&job.inside, memory_order_acquire)) pthread_cond_wait(&p->left, &p->lock);
  pthread_mutex_unlock(&p->lock);
}

void pool_free(struct pool *p) {
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  p->quit = true;
  pthread_cond_broadcast(&p->work);
  pthread_mutex_unlock(&p->lock);
  for (unsigned i = 0; i < p->running; i++) pthread_join(p->workers[i].thread, NULL);
  pthread_cond_destroy(&p->left);
  pthread_cond_destroy(&p->work);
  pthread_mutex_destroy(&p->lock);
  free(p);
}
