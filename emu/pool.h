/* Worker threads that share the host's cores. A job is a range of independent indices, which is cut into chunks; idle
 * threads take the next chunk. */
#ifndef DOORBELL_EMU_POOL_H
#define DOORBELL_EMU_POOL_H
#include <stdbool.h>
#include <stdint.h>

/* One iteration of a busy wait. It does not yield the core: if other threads want the core, yielding can cost
 * milliseconds, which is more than such a wait takes. */
static inline void pool_relax(void) {
#if defined(__x86_64__)
  for (int i = 0; i < 8; i++) __builtin_ia32_pause();
#elif defined(__aarch64__)
  for (int i = 0; i < 8; i++) __asm__ volatile("yield");
#endif
}

struct pool;
/* Creates a pool with one worker for each host core that this process may use, except one for the caller. The first job
 * starts the threads. Returns NULL if out of memory. */
struct pool *pool_new(void);
void pool_free(struct pool *pool);
/* The number of workers; callers of pool_run do not count. */
unsigned pool_workers(const struct pool *pool);

/* Executes indices [begin, end). worker is 0 in the thread that called pool_run and 1 .. pool_workers() in a worker; a
 * worker executes one job at a time. seat is 0 for the caller and counts up in the order in which workers join this
 * job; it is less than max_seats. */
typedef bool (*pool_fn)(void *ctx, unsigned worker, unsigned seat, uint64_t begin, uint64_t end);
/* Runs fn over [0, total) in chunks and returns when all are done. The caller executes chunks, too. At most max_seats
 * threads take part. If fn returns false, chunks that have not started are dropped. Several threads may run jobs at the
 * same time. */
void pool_run(struct pool *pool, uint64_t total, uint64_t chunk, unsigned max_seats, pool_fn fn, void *ctx);
#endif
