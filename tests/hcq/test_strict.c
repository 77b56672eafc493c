/* EMU_STRICT=1: a program with all its waits and barriers runs; without any one of them the race is reported, as it is
 * if the host does not wait. */
#include "hcq/backend.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/ok.h"
#include "tests/sanitizers.h"

enum { N = 1000 };
static const struct machine {
  const char *name, *file;
  bool in_order; /* launches of a queue run one after the other, so a barrier between them needs no packet */
} machines[] = {
    {"EMU+AMD:gfx1100", KERNELS_DIR "/bench/kernels/saxpy.gfx1100.co", false},
    {"EMU+NV:sm_90", DATA_DIR "/../../bench/kernels/saxpy.sm_90.cubin", true},
};

/* The program adds x to y0 twice, copies y0 to y1 on a copy queue, and adds x to y1. Each run of it omits nothing, or
 * one of its waits and barriers. */
enum { NOTHING, BARRIER, COPY_WAITS, COMPUTE_WAITS, LEFT_OUT };
static const char *const left_out[LEFT_OUT] = {"nothing", "the barrier", "the copy's wait", "the last kernel's wait"};

static const void *read_image(const struct machine *m, size_t *size) {
  static char image[1 << 20];
  FILE *f = fopen(m->file, "rb");
  assert_non_null(f);
  *size = fread(image, 1, sizeof image, f);
  fclose(f);
  return image;
}

/* Neither queue starts before the host has set the first signal, which it does when everything is submitted, even if
 * its thread is slow. */
static void gated(db_queue *first, db_queue *other, db_signal *const *gate) {
  OK(db_queue_wait(first, gate[0], 1));
  OK(db_queue_signal(first, gate[1], 1));
  OK(db_queue_wait(other, gate[1], 1));
}

/* Runs the program. Returns 0, or the error of waiting for its end. */
static int run(const struct machine *m, bool two_gpus, int without) {
  size_t size;
  const void *image = read_image(m, &size);
  char second[64];
  snprintf(second, sizeof second, "%s:1", m->name);
  db_device *dev = db_open(m->name), *other = two_gpus ? db_open(second) : dev ? db_device_retain(dev) : NULL;
  if (!dev || !other) fail_msg("%s", db_error());
  db_program *saxpy = db_program_load(dev, image, size, "saxpy", NULL, 0);
  if (!saxpy) fail_msg("%s", db_error());
  db_buffer *x = db_alloc(dev, N * 4, DB_BUFFER_HOST), *y[2];
  for (int i = 0; i < N; i++) ((float *)db_buffer_host(x))[i] = (float)i;
  for (int i = 0; i < 2; i++) memset(db_buffer_host(y[i] = db_alloc(dev, N * 4, DB_BUFFER_HOST)), 0, N * 4);
  db_queue *compute = db_queue_new(dev, DB_QUEUE_COMPUTE), *copies = db_queue_new(other, DB_QUEUE_COPY);
  const uint32_t grid[3] = {(N + 63) / 64, 1, 1}, block[3] = {64, 1, 1};
  float one = 1;
  struct db_arg args[] = {{.buffer = y[0]}, {.buffer = x}, {.data = &one}, {.bits = N}};
  uint64_t computed, copied, when;
  db_signal *gate[2] = {db_signal_new(dev), db_signal_new(dev)};
  gated(compute, copies, gate);
  OK(db_queue_exec(compute, saxpy, args, 4, grid, block));
  if (without != BARRIER) OK(db_queue_memory_barrier(compute));
  OK(db_queue_exec(compute, saxpy, args, 4, grid, block));
  OK(db_queue_submit(compute, &computed));
  if (without != COPY_WAITS) OK(db_queue_wait(copies, db_queue_timeline(compute), computed));
  OK(db_queue_copy(copies, y[1], 0, y[0], 0, N * 4));
  OK(db_queue_submit(copies, &copied));
  if (without != COMPUTE_WAITS) OK(db_queue_wait(compute, db_queue_timeline(copies), copied));
  OK(db_queue_memory_barrier(compute));
  args[0].buffer = y[1];
  OK(db_queue_exec(compute, saxpy, args, 4, grid, block));
  OK(db_queue_submit(compute, &when));
  db_signal_set(gate[0], 1);
  /* Either queue may be stopped, and then the other one waits for it. */
  char said[1024] = "";
  int err = -ETIMEDOUT;
  for (int tries = 0; tries < 400 && err == -ETIMEDOUT; tries++) {
    err = db_wait(db_queue_timeline(copies), copied, SECOND / 20);
    if (!err || err == -ETIMEDOUT) {
      int other_err = db_wait(db_queue_timeline(compute), when, SECOND / 20);
      if (other_err) err = other_err;
    }
  }
  if (err) { /* a wait for the stopped queue never ends; after a wait that timed out, closing does not wait long */
    snprintf(said, sizeof said, "%s", db_error());
    db_wait(db_queue_timeline(copies), copied, SECOND / 2);
    db_wait(db_queue_timeline(compute), when, SECOND / 2);
  }
  if (!err)
    for (int i = 0; i < N; i++)
      if (((float *)db_buffer_host(y[1]))[i] != 3.0f * (float)i)
        fail_msg("%s, %d GPUs, without %s: element %d is %g", m->name, two_gpus + 1, left_out[without], i,
                 (double)((float *)db_buffer_host(y[1]))[i]);
  for (int i = 0; i < 2; i++) db_signal_release(gate[i]);
  db_queue_release(compute);
  db_queue_release(copies);
  for (int i = 0; i < 2; i++) db_buffer_release(y[i]);
  db_buffer_release(x);
  db_program_release(saxpy);
  db_close(other);
  db_close(dev);
  if (err && !strstr(said, "data race: ")) fail_msg("%s without %s: %s", m->name, left_out[without], said);
  if (err && !strstr(said, "nothing orders the two")) fail_msg("%s", said);
  return err;
}

/* The same with two compute queues: y0 += x on the first, y1 += y0 on another one, with or without a wait. */
static int run_on_two(const struct machine *m, bool waits) {
  size_t size;
  const void *image = read_image(m, &size);
  db_device *dev = db_open(m->name);
  db_program *saxpy = db_program_load(dev, image, size, "saxpy", NULL, 0);
  if (!saxpy) fail_msg("%s", db_error());
  db_buffer *x = db_alloc(dev, N * 4, DB_BUFFER_HOST), *y[2];
  for (int i = 0; i < N; i++) ((float *)db_buffer_host(x))[i] = (float)i;
  for (int i = 0; i < 2; i++) memset(db_buffer_host(y[i] = db_alloc(dev, N * 4, DB_BUFFER_HOST)), 0, N * 4);
  db_queue *q[2] = {db_queue_new_at(dev, DB_QUEUE_COMPUTE, 0), db_queue_new_at(dev, DB_QUEUE_COMPUTE, 1)};
  db_signal *done = db_signal_new(dev), *gate[2] = {db_signal_new(dev), db_signal_new(dev)};
  const uint32_t grid[3] = {(N + 63) / 64, 1, 1}, block[3] = {64, 1, 1};
  float one = 1;
  uint64_t when[2];
  struct db_arg first[] = {{.buffer = y[0]}, {.buffer = x}, {.data = &one}, {.bits = N}};
  struct db_arg second[] = {{.buffer = y[1]}, {.buffer = y[0]}, {.data = &one}, {.bits = N}};
  gated(q[0], q[1], gate);
  OK(db_queue_exec(q[0], saxpy, first, 4, grid, block));
  OK(db_queue_signal(q[0], done, 1));
  if (waits) OK(db_queue_wait(q[1], done, 1));
  OK(db_queue_exec(q[1], saxpy, second, 4, grid, block));
  for (int i = 0; i < 2; i++) OK(db_queue_submit(q[i], &when[i]));
  db_signal_set(gate[0], 1);
  int err = 0;
  for (int i = 0; i < 2 && !err; i++) err = db_wait(db_queue_timeline(q[i]), when[i], 20 * SECOND);
  if (err) assert_non_null(strstr(db_error(), "nothing orders the two"));
  for (int i = 0; i < N && !err; i++) assert_true(((float *)db_buffer_host(y[1]))[i] == (float)i);
  db_signal_release(done);
  for (int i = 0; i < 2; i++) {
    db_signal_release(gate[i]);
    db_queue_release(q[i]);
    db_buffer_release(y[i]);
  }
  db_buffer_release(x);
  db_program_release(saxpy);
  db_close(dev);
  return err;
}

/* Copies b = a, then c = b, on one copy queue, in one recording or in two. */
static int copies_in_turn(const struct machine *m, bool barrier, bool two) {
  db_device *dev = db_open(m->name);
  if (!dev) fail_msg("%s", db_error());
  db_buffer *b[3];
  for (int i = 0; i < 3; i++) memset(db_buffer_host(b[i] = db_alloc(dev, N, DB_BUFFER_HOST)), i, N);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COPY);
  uint64_t when;
  OK(db_queue_copy(q, b[1], 0, b[0], 0, N));
  if (two) OK(db_queue_submit(q, &when));
  if (barrier) OK(db_queue_memory_barrier(q));
  OK(db_queue_copy(q, b[2], 0, b[1], 0, N));
  OK(db_queue_submit(q, &when));
  int err = db_wait(db_queue_timeline(q), when, 20 * SECOND);
  if (err) assert_non_null(strstr(db_error(), "nothing orders the two"));
  for (int i = 0; i < N && !err; i++) assert_int_equal(((uint8_t *)db_buffer_host(b[2]))[i], 0);
  db_queue_release(q);
  for (int i = 0; i < 3; i++) db_buffer_release(b[i]);
  db_close(dev);
  return err;
}

/* Copies of a queue may overlap, except those of different submissions. */
static void dependent_copies(void **state) {
  for (size_t m = 0; m < sizeof machines / sizeof *machines; m++)
    for (int i = 0; i < 4; i++)
      assert_int_equal(copies_in_turn(&machines[m], i & 1, i & 2), i || machines[m].in_order ? 0 : -EIO);
}

static void queues_of_a_kind(void **state) {
  NO_THREAD_SANITIZER;
  for (size_t m = 0; m < sizeof machines / sizeof *machines; m++)
    for (int waits = 0; waits < 2; waits++) assert_int_equal(run_on_two(&machines[m], waits), waits ? 0 : -EIO);
}

static void each_wait_is_needed(void **state) {
  NO_THREAD_SANITIZER;
  for (size_t m = 0; m < sizeof machines / sizeof *machines; m++)
    for (int gpus = 1; gpus <= 2; gpus++)
      for (int without = 0; without < LEFT_OUT; without++) {
        bool races = without != NOTHING && !(without == BARRIER && machines[m].in_order);
        int err = run(&machines[m], gpus == 2, without);
        if (err != (races ? -EIO : 0))
          fail_msg("%s, %d GPUs, without %s: %d", machines[m].name, gpus, left_out[without], err);
      }
}

/* ---- the host ---- */

/* The host's mistake while a kernel computes y += x. */
enum mistake { WAITS, READS_EARLY, WRITES_INPUT, REUSES_WORDS, MISTAKES };
static const char *const mistakes[MISTAKES] = {"nothing", "reads the result", "writes an input",
                                               "writes the words of a recording"};

static int host_at_work(const struct machine *m, enum mistake mistake) {
  char said[1024] = "";
  size_t size;
  const void *image = read_image(m, &size);
  db_device *dev = db_open(m->name);
  if (!dev) fail_msg("%s", db_error());
  db_program *saxpy = db_program_load(dev, image, size, "saxpy", NULL, 0);
  if (!saxpy) fail_msg("%s", db_error());
  db_buffer *x = db_alloc(dev, N * 4, DB_BUFFER_HOST), *y = db_alloc(dev, N * 4, DB_BUFFER_HOST);
  volatile float *hx = db_buffer_host(x), *hy = db_buffer_host(y);
  for (int i = 0; i < N; i++) hx[i] = (float)i, hy[i] = 0;
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  const uint32_t grid[3] = {(N + 63) / 64, 1, 1}, block[3] = {64, 1, 1};
  float one = 1;
  struct db_arg args[] = {{.buffer = y}, {.buffer = x}, {.data = &one}, {.bits = N}};
  OK(db_queue_memory_barrier(q));
  OK(db_queue_exec(q, saxpy, args, 4, grid, block));
  db_recording *r = db_queue_bind(q);
  uint64_t when;
  int err = 0;
  /* A race that is reported too late for one run is reported in the next one. */
  for (int runs = 1; runs <= 20 && !err; runs++) {
    OK(db_recording_submit(r, &when));
    volatile uint32_t *words = (uint32_t *)(void *)r->memory->host;
    float early = 0;
    if (mistake == READS_EARLY) early = hy[N - 1];
    if (mistake == WRITES_INPUT) hx[N / 2] = (float)(N / 2);
    if (mistake == REUSES_WORDS) words[1] = words[1];
    (void)early;
    err = db_wait(db_queue_timeline(q), when, 20 * SECOND);
    if (!err)
      for (int i = 0; i < N; i++) assert_float_equal(hy[i], (float)(runs * i), 0);
    if (!err && mistake == WAITS && runs == 3) break;
    /* By then the queue has checked for reports. */
    if (!err) err = db_device_synchronize(dev, 20 * SECOND);
  }
  if (err) snprintf(said, sizeof said, "%s", db_error());
  db_recording_release(r);
  db_queue_release(q);
  db_buffer_release(x);
  db_buffer_release(y);
  db_program_release(saxpy);
  db_close(dev);
  if (err && (!strstr(said, "data race: ") || !strstr(said, "the host"))) fail_msg("%s", said);
  return err;
}

static void reports_races_with_the_host(void **state) {
#ifndef __x86_64__
  skip(); /* the host's accesses are not watched there (emu/watch.h) */
#endif
  for (size_t m = 0; m < sizeof machines / sizeof *machines; m++)
    for (int i = 0; i < MISTAKES; i++) {
      int err = host_at_work(&machines[m], (enum mistake)i);
      if (err != (i == WAITS ? 0 : -EIO)) fail_msg("%s: a host that %s: %d", machines[m].name, mistakes[i], err);
    }
}

static void checks_the_environment(void **state) {
  setenv("EMU_STRICT", "yes", 1);
  assert_null(db_open("EMU+AMD:gfx1100"));
  assert_non_null(strstr(db_error(), "EMU_STRICT is \"yes\"; it can be 0, 1, or another number"));
  setenv("EMU_STRICT", "1", 1);
}

int main(void) {
  setenv("EMU_STRICT", "1", 1);
  const struct CMUnitTest tests[] = {cmocka_unit_test(checks_the_environment), /* must run before a machine exists */
                                     cmocka_unit_test(each_wait_is_needed), cmocka_unit_test(queues_of_a_kind),
                                     cmocka_unit_test(dependent_copies), cmocka_unit_test(reports_races_with_the_host)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
