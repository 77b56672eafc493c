/* Queues, and the thread of each queue that polls its doorbell and processes its packets. */
#define _GNU_SOURCE
#include "gpu.h"
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "../../../hcq/amd/registers.h"

/* ---- sleeping and waking ---- */

enum {
  SPIN_NS = 30000,          /* after work: poll again without sleeping */
  SLEEP_MIN_NS = 20000,     /* then sleep for a part of the idle time so far ... */
  SLEEP_PART = 16,          /* ... so noticing a doorbell takes at most this part of the idle time before it, */
  SLEEP_MAX_NS = 4000000,   /* and at most this long */
  SLEEP_STRICT_NS = 100000, /* strict machines: a part of race.c's window */
  RUN_BUDGET = 1 << 16,
};

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static long futex(atomic_uint *at, int op, unsigned value, const struct timespec *timeout) {
  return syscall(SYS_futex, at, op, value, timeout, NULL, 0);
}

void amd_wake_queues(struct amd_shared *s) {
  atomic_fetch_add(&s->wake_futex, 1);
  if (atomic_load(&s->sleepers)) futex(&s->wake_futex, FUTEX_WAKE_PRIVATE, INT_MAX, NULL);
}

/* Waits a short time before the next poll. Returns early if wake_futex has changed since it was `seen`: an event
 * occurred that the queue may wait for. */
static void queue_pause(struct amd_shared *s, unsigned seen, uint64_t idle_ns) {
  const uint64_t max = s->machine->strict ? SLEEP_STRICT_NS : SLEEP_MAX_NS;
  if (idle_ns < SPIN_NS) {
    pool_relax();
    return;
  }
  uint64_t ns = idle_ns / SLEEP_PART;
  ns = ns < SLEEP_MIN_NS ? SLEEP_MIN_NS : ns > max ? max : ns;
  struct timespec t = {0, (long)ns};
  atomic_fetch_add(&s->sleepers, 1);
  futex(&s->wake_futex, FUTEX_WAIT_PRIVATE, seen, &t);
  atomic_fetch_sub(&s->sleepers, 1);
}

static void *queue_main(void *arg) {
  struct amd_queue *q = arg;
  struct amd_shared *s = q->gpu->shared;
  uint64_t active = now_ns();
  prctl(PR_SET_TIMERSLACK, 1000ul);
  while (!atomic_load_explicit(&q->quit, memory_order_acquire)) {
    unsigned seen = atomic_load(&s->wake_futex);
    uint64_t before = q->packets;
    if (atomic_load_explicit(&q->percentage, memory_order_relaxed)) cp_run(q, RUN_BUDGET);
    uint64_t now = now_ns();
    if (before != q->packets)
      active = now;
    else
      queue_pause(s, seen, now - active);
  }
  return NULL;
}

/* ---- creating and freeing queues ---- */

struct amd_queue *amd_queue_new(struct amd_gpu *gpu, bool sdma, uint64_t ring_va, uint32_t ring_bytes, const void *ring,
                                void *rptr, _Atomic uint64_t *doorbell) {
  struct amd_queue *q = calloc(1, sizeof *q);
  if (!q) return NULL;
  q->gpu = gpu;
  q->sdma = sdma;
  q->ring_va = ring_va;
  q->ring = ring;
  q->ring_dwords = ring_bytes / 4;
  q->rptr = rptr;
  q->doorbell = doorbell;
  atomic_init(&q->percentage, KFD_QUEUE_PERCENTAGE_MAX);
  q->packet = calloc(CP_PACKET_MAX, sizeof q->packet[0]);
  if (!sdma) {
    q->core = shader_core_new();
    q->code = code_cache_new(&shader_code_kind);
  }
  if (!q->packet || (!sdma && (!q->core || !q->code))) {
    amd_queue_free(q);
    return NULL;
  }
  /* By default all compute units may be used, as the kernel sets it. */
  const uint32_t masks[] = {GFX11_COMPUTE_STATIC_THREAD_MGMT_SE0, GFX11_COMPUTE_STATIC_THREAD_MGMT_SE1,
                            GFX11_COMPUTE_STATIC_THREAD_MGMT_SE2, GFX11_COMPUTE_STATIC_THREAD_MGMT_SE3,
                            GFX11_COMPUTE_STATIC_THREAD_MGMT_SE4, GFX11_COMPUTE_STATIC_THREAD_MGMT_SE5,
                            GFX11_COMPUTE_STATIC_THREAD_MGMT_SE6, GFX11_COMPUTE_STATIC_THREAD_MGMT_SE7};
  for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) q->sh[masks[i] - PM4_SH_BASE] = ~0u;
  return q;
}

void amd_queue_free(struct amd_queue *q) {
  if (!q) return;
  if (q->started) {
    atomic_store(&q->stop, true);
    atomic_store_explicit(&q->quit, true, memory_order_release);
    amd_wake_queues(q->gpu->shared);
    pthread_join(q->thread, NULL);
  }
  shader_core_free(q->core);
  code_cache_free(q->code);
  race_queue_free(q->race);
  free(q->packet);
  free(q);
}

int amd_queue_start(struct amd_queue *q) {
  sigset_t all, old;
  sigfillset(&all);
  sigdelset(&all, SIGSEGV), sigdelset(&all, SIGBUS); /* if blocked, they end the process (guard.h) */
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int rc = -pthread_create(&q->thread, NULL, queue_main, q);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  q->started = !rc;
  return rc;
}
