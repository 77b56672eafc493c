/* Runs the same kernels as SASS on an emulated GPU through its driver: the times include pushbuffers, doorbells and
 * waits. */
#ifndef DOORBELL_BENCH_EMU_SM_90_H
#define DOORBELL_BENCH_EMU_SM_90_H
#include <stdio.h>
#include <stdlib.h>
#include "bench/emu/kernels.h"
#include "emu/emu.h"
#include "hcq/backend.h"
#include "hcq/hcq.h"

#ifndef SM_90_CUBIN /* the Makefile passes the full path */
#define SM_90_CUBIN "bench/emu/sm_90.cubin"
#endif
#define SM_90_TIMEOUT 60000000000ull

/* Returns the seconds of a launch, or -1 if it failed. */
static inline double sm_90_run(db_queue *q, db_program *p, struct db_arg *args, unsigned nargs, const uint32_t grid[2],
                               const uint32_t block[2]) {
  uint64_t when;
  double start = now();
  if (db_queue_exec(q, p, args, nargs, (uint32_t[]){grid[0], grid[1], 1}, (uint32_t[]){block[0], block[1], 1}) ||
      db_queue_submit(q, &when) || db_wait(db_queue_timeline(q), when, SM_90_TIMEOUT))
    return -1;
  return now() - start;
}

struct sm_90_figure {
  uint64_t instructions;
  double seconds, launch; /* minimum; launch: the seconds of a launch of one warp */
};
/* Measures one kernel. Returns false if it fails or its result is wrong. */
static inline bool sm_90_measure(db_device *dev, const void *cubin, size_t size, const struct kernel *k,
                                 struct sm_90_figure *f) {
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  db_program *p = db_program_load(dev, cubin, size, k->name, NULL, 0);
  db_buffer *out = db_alloc(dev, (size_t)k->results * 4, 0), *operand[2] = {0};
  void *host[2] = {0}, *expect = malloc((size_t)k->results * 4), *got = malloc((size_t)k->results * 4);
  struct db_arg args[4] = {{.buffer = out}};
  unsigned nargs = 1;
  bool ok = q && p && out && expect && got;
  for (int i = 0; i < 2 && ok && k->operands[i]; i++) {
    size_t bytes = (size_t)k->operands[i] * 4;
    host[i] = calloc(1, bytes), operand[i] = db_alloc(dev, bytes, 0);
    ok = host[i] && operand[i];
    if (ok) fill(host[i], k->operands[i], k->operand), ok = !db_buffer_write(operand[i], 0, host[i], bytes);
    args[nargs++].buffer = operand[i];
  }
  if (k->n) args[nargs++].bits = k->n;
  struct emu_stats before, after;
  f->seconds = f->launch = INFINITY;
  for (int i = 0; i <= OURS_REPEAT && ok; i++) { /* the first run, which decodes, is not timed */
    emu_stats(db_device_os(dev), 0, &before);
    double s = sm_90_run(q, p, args, nargs, k->groups, k->threads);
    emu_stats(db_device_os(dev), 0, &after);
    ok = s >= 0;
    if (i && s < f->seconds) f->seconds = s;
  }
  f->instructions = after.instructions - before.instructions;
  if (ok) {
    k->host(k, expect, host[0], host[1]);
    ok = !db_buffer_read(out, 0, got, (size_t)k->results * 4);
    if (ok && !right(k, got, expect)) ok = false, fprintf(stderr, "sm_90: %s: wrong result\n", k->name);
  } else {
    fprintf(stderr, "sm_90: %s: %s\n", k->name, db_error());
  }
  for (int i = 0; i < LAUNCHES && ok && k == kernels; i++) { /* only vadd is also timed with one warp */
    double s = sm_90_run(q, p, args, nargs, (uint32_t[]){1, 1}, (uint32_t[]){32, 1});
    if (s < f->launch) f->launch = s;
  }
  db_queue_release(q);
  db_program_release(p);
  db_buffer_release(out);
  for (int i = 0; i < 2; i++) db_buffer_release(operand[i]), free(host[i]);
  free(expect), free(got);
  return ok;
}

static bool sm_90_rows(const char *path) {
  static unsigned char cubin[1 << 18];
  FILE *file = fopen(path, "rb");
  size_t size = file ? fread(cubin, 1, sizeof cubin, file) : 0;
  if (file) fclose(file);
  db_device *dev = size ? db_open("EMU+NV:sm_90") : NULL;
  if (!dev) return fprintf(stderr, "sm_90: %s\n", size ? db_error() : path), false;
  double per[KERNELS], seconds[KERNELS], launch = INFINITY;
  bool ok = true;
  printf("\n%-15s %12s %8s: ms %8s\n", "sm_90 kernel", "instructions", "doorbell", "M/s");
  for (int i = 0; i < KERNELS; i++) {
    struct sm_90_figure f = {0};
    bool good = sm_90_measure(dev, cubin, size, &kernels[i], &f);
    ok &= good;
    per[i] = (double)f.instructions * 1e-6, seconds[i] = good ? f.seconds : -1;
    if (good)
      printf("%-15s %12llu %12.3f %8.1f\n", kernels[i].name, (unsigned long long)f.instructions, f.seconds * 1e3,
             per[i] / f.seconds);
    else
      printf("%-15s %34s\n", kernels[i].name, "FAILED");
    if (good && !i) launch = f.launch;
  }
  printf("%-28s %12s %8.1f\n", "geometric mean", "", ratio(per, seconds));
  printf("doorbell: launch of one warp through the driver, from recording to completion: %.2f us\n", launch * 1e6);
  db_close(dev);
  return ok;
}
#endif
