/* Runs the same kernels on emulated GPUs through their drivers: the times include packets, doorbells and waits.
 * Measures the speed of sm_90, and what counting costs on both GPUs. */
#ifndef DOORBELL_BENCH_EMU_DRIVER_H
#define DOORBELL_BENCH_EMU_DRIVER_H
#include <stdio.h>
#include <stdlib.h>
#include "bench/emu/kernels.h"
#include "emu/emu.h"
#include "hcq/backend.h"
#include "hcq/hcq.h"

#ifndef SM_90_CUBIN /* the Makefile passes the full path */
#define SM_90_CUBIN "bench/emu/sm_90.cubin"
#endif
#define DRIVER_TIMEOUT 60000000000ull

/* A kernel on a device. */
struct driver_kernel {
  const struct kernel *k;
  db_device *dev;
  db_queue *queue;
  db_program *program;
  db_buffer *out, *operand[2];
  void *host[2];
  struct db_arg args[4];
  unsigned nargs;
};

static inline void driver_unload(struct driver_kernel *d) {
  db_queue_release(d->queue);
  db_program_release(d->program);
  db_buffer_release(d->out);
  for (int i = 0; i < 2; i++) db_buffer_release(d->operand[i]), free(d->host[i]);
}

static inline bool driver_load(struct driver_kernel *d, db_device *dev, const void *code, size_t size,
                               const struct kernel *k) {
  *d = (struct driver_kernel){.k = k, .dev = dev, .nargs = 1};
  d->queue = db_queue_new(dev, DB_QUEUE_COMPUTE);
  d->program = db_program_load(dev, code, size, k->name, NULL, 0);
  d->out = db_alloc(dev, (size_t)k->results * 4, 0);
  d->args[0].buffer = d->out;
  bool ok = d->queue && d->program && d->out;
  for (int i = 0; i < 2 && ok && k->operands[i]; i++) {
    size_t bytes = (size_t)k->operands[i] * 4;
    d->host[i] = calloc(1, bytes), d->operand[i] = db_alloc(dev, bytes, 0);
    ok = d->host[i] && d->operand[i];
    if (ok) fill(d->host[i], k->operands[i], k->operand), ok = !db_buffer_write(d->operand[i], 0, d->host[i], bytes);
    d->args[d->nargs++].buffer = d->operand[i];
  }
  if (k->n) d->args[d->nargs++].bits = k->n;
  return ok;
}

static inline double driver_clock(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Returns the seconds of a launch by a clock, or -1 if it failed. With a set, counters count it. */
static inline double driver_run(struct driver_kernel *d, const uint32_t grid[2], const uint32_t block[2],
                                clockid_t clock, db_counter_set *set) {
  uint64_t when;
  double start = driver_clock(clock);
  if ((set && db_queue_counters_begin(d->queue, set, 0)) ||
      db_queue_exec(d->queue, d->program, d->args, d->nargs, (uint32_t[]){grid[0], grid[1], 1},
                    (uint32_t[]){block[0], block[1], 1}) ||
      (set && db_queue_counters_end(d->queue)) || db_queue_submit(d->queue, &when) ||
      db_wait(db_queue_timeline(d->queue), when, DRIVER_TIMEOUT))
    return -1;
  return driver_clock(clock) - start;
}

/* Returns the minimum of several launches, or -1. The first one, which decodes, is not timed. */
static inline double driver_time(struct driver_kernel *d, clockid_t clock, db_counter_set *set) {
  double best = INFINITY;
  for (int i = 0; i <= OURS_REPEAT; i++) {
    double s = driver_run(d, d->k->groups, d->k->threads, clock, set);
    if (s < 0) return s;
    if (i && s < best) best = s;
  }
  return best;
}

/* Compares the result with the host's. */
static inline bool driver_right(const struct driver_kernel *d) {
  size_t bytes = (size_t)d->k->results * 4;
  void *expect = malloc(bytes), *got = malloc(bytes);
  bool ok = expect && got && !db_buffer_read(d->out, 0, got, bytes);
  if (ok) {
    d->k->host(d->k, expect, d->host[0], d->host[1]);
    ok = right(d->k, got, expect);
  }
  free(expect), free(got);
  return ok;
}

static inline size_t driver_file(const char *path, void *to, size_t most) {
  FILE *file = fopen(path, "rb");
  size_t size = file ? fread(to, 1, most, file) : 0;
  if (file) fclose(file);
  return size;
}

/* ---- speed of sm_90 ---- */

struct sm_90_figure {
  uint64_t instructions;
  double seconds, launch; /* minimum; launch: the seconds of a launch of one warp */
};
/* Measures one kernel. Returns false if it fails or its result is wrong. */
static inline bool sm_90_measure(db_device *dev, const void *cubin, size_t size, const struct kernel *k,
                                 struct sm_90_figure *f) {
  struct driver_kernel d;
  struct emu_stats before, after;
  f->seconds = f->launch = INFINITY;
  emu_stats(db_device_os(dev), 0, &before);
  bool ok = driver_load(&d, dev, cubin, size, k) && (f->seconds = driver_time(&d, CLOCK_MONOTONIC, NULL)) >= 0;
  emu_stats(db_device_os(dev), 0, &after);
  f->instructions = (after.instructions - before.instructions) / (OURS_REPEAT + 1);
  if (!ok)
    fprintf(stderr, "sm_90: %s: %s\n", k->name, db_error());
  else if (!(ok = driver_right(&d)))
    fprintf(stderr, "sm_90: %s: wrong result\n", k->name);
  for (int i = 0; i < LAUNCHES && ok && k == kernels; i++) { /* only vadd is also timed with one warp */
    double s = driver_run(&d, (uint32_t[]){1, 1}, (uint32_t[]){32, 1}, CLOCK_MONOTONIC, NULL);
    if (s < f->launch) f->launch = s;
  }
  driver_unload(&d);
  return ok;
}

static bool sm_90_rows(const char *path) {
  static unsigned char cubin[1 << 18];
  size_t size = driver_file(path, cubin, sizeof cubin);
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

/* ---- the cost of counting ---- */

/* What is counted: nothing; counters of classes of instructions; all counts (emu_detail); all counts for each
 * instruction, with the model of caches (emu_annotate). */
enum driver_counting { COUNT_NOTHING, COUNT_CLASSES, COUNT_ALL, COUNT_EACH, COUNTINGS };

static inline bool counting_times(db_device *dev, const void *code, size_t size, const struct kernel *k,
                                  const char *counter, double seconds[COUNTINGS]) {
  struct driver_kernel d;
  bool ok = driver_load(&d, dev, code, size, k);
  for (int turn = 0; turn < 2 && ok; turn++) /* take turns, so that other work on the machine affects all */
    for (int how = 0; how < COUNTINGS && ok; how++) {
      db_counter_set *set = how == COUNT_CLASSES ? db_counter_set_new(dev, &counter, 1) : NULL;
      emu_detail(db_device_os(dev), how == COUNT_ALL);
      if (how == COUNT_EACH) emu_annotate(db_device_os(dev), true);
      double s = how == COUNT_CLASSES && !set ? -1 : driver_time(&d, CLOCK_PROCESS_CPUTIME_ID, set);
      emu_annotate(db_device_os(dev), false);
      db_counter_set_release(set);
      ok = s >= 0 && driver_right(&d);
      if (!turn || s < seconds[how]) seconds[how] = s;
    }
  if (!ok) fprintf(stderr, "%s: %s: failed, or wrong result: %s\n", db_device_name(dev), k->name, db_error());
  driver_unload(&d);
  return ok;
}

/* Prints how many times as long the kernels of a GPU take while they are counted. dir: of the code objects; NULL: path
 * is a file with all kernels. */
static bool counting_rows(const char *device, const char *counter, const char *dir, const char *path) {
  static unsigned char code[1 << 18];
  db_device *dev = db_open(device);
  if (!dev) return fprintf(stderr, "%s: %s\n", device, db_error()), false;
  double none[KERNELS], ratios[COUNTINGS][KERNELS];
  bool ok = true;
  printf("\n%-28s %8s %8s %8s\n", device, "classes", "all", "each");
  for (int i = 0; i < KERNELS && ok; i++) {
    char file[PATH_MAX];
    snprintf(file, sizeof file, "%s/bench/emu/%s.gfx1100.co", dir ? dir : "", kernels[i].name);
    double seconds[COUNTINGS];
    size_t size = driver_file(dir ? file : path, code, sizeof code);
    ok = counting_times(dev, code, size, &kernels[i], counter, seconds);
    for (int how = 0; how < COUNTINGS && ok; how++) ratios[how][i] = seconds[how] / seconds[COUNT_NOTHING];
    none[i] = 1;
    if (ok)
      printf("%-28s %8.2f %8.2f %8.2f\n", kernels[i].name, ratios[COUNT_CLASSES][i], ratios[COUNT_ALL][i],
             ratios[COUNT_EACH][i]);
  }
  if (ok)
    printf("%-28s %8.2f %8.2f %8.2f\n", "geometric mean", ratio(ratios[COUNT_CLASSES], none),
           ratio(ratios[COUNT_ALL], none), ratio(ratios[COUNT_EACH], none));
  db_close(dev);
  return ok;
}

static bool counting(const char *dir, const char *cubin) {
  printf(
      "\nprocessor time with counting, relative to that without: classes of instructions, all, and each instruction\n");
  bool amd = counting_rows("EMU+AMD:gfx1100", "SQ_INSTS_VALU", dir, NULL);
  return counting_rows("EMU+NV:sm_90", "SM_INSTS_ALU", NULL, cubin) && amd;
}
#endif
