/* Worker threads that share the machine's cores: a job is a range of independent indices, cut into chunks that idle
 * threads take. */
#ifndef DOORBELL_EMU_POOL_H
#define DOORBELL_EMU_POOL_H
#include <stdbool.h>
#include <stdint.h>

/* One turn of a wait that keeps the core: giving it up may cost milliseconds when others want it, more than such a wait
 * lasts. */
static inline void pool_relax(void) {
#if defined(__x86_64__)
  for (int i = 0; i < 8; i++) __builtin_ia32_pause();
#elif defined(__aarch64__)
  for (int i = 0; i < 8; i++) __asm__ volatile("yield");
#endif
}

struct pool;
/* One worker for each host core this process may use, but the caller's own. NULL when out of memory. Threads start with
 * the first job. */
struct pool *pool_new(void);
void pool_free(struct pool *pool);
/* Workers, callers of pool_run not counted. */
unsigned pool_workers(const struct pool *pool);

/* worker: 0 the thread in pool_run, 1 .. pool_workers() a worker, which runs one job at a time. seat: 0 the caller's,
 * then in order of joining this job; below max_seats. */
typedef bool (*pool_fn)(void *ctx, unsigned worker, unsigned seat, uint64_t begin, uint64_t end);
/* Runs fn over [0, total) and returns when all of it is done. The caller takes part. Several threads may run jobs at
 * the same time. */
void pool_run(struct pool *pool, uint64_t total, uint64_t chunk, unsigned max_seats, pool_fn fn, void *ctx);
#endif
