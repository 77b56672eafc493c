/* A device used by several threads at the same time, each with its own recorders, recordings and memory. */
#include "hcq/backend.h"
#include "saxpy.h"
#include <pthread.h>
#include <sys/mman.h>
#include "tests/ok.h"

enum { THREADS = 4, ROUNDS = 24, N = 500, BYTES = N * 4 };

/* Shared by a test's threads, which all use its objects. */
struct common {
  const struct machine *m;
  const void *image;
  size_t size;
  db_device *dev[2];
  db_program *saxpy[2];
  db_buffer *x[2];
};

struct worker {
  pthread_t thread;
  struct common *common;
  unsigned number;
  char wrong[400];
};

/* cmocka's assertions may only be used on the main thread. */
#define TRY(call)                                                                                                      \
  do                                                                                                                   \
    if (call) {                                                                                                        \
      if (!w->wrong[0]) snprintf(w->wrong, sizeof w->wrong, "%s: %s", #call, db_error());                              \
      goto out;                                                                                                        \
    }                                                                                                                  \
  while (0)
#define CHECK(condition)                                                                                               \
  do                                                                                                                   \
    if (!(condition)) {                                                                                                \
      if (!w->wrong[0]) snprintf(w->wrong, sizeof w->wrong, "%s", #condition);                                         \
      goto out;                                                                                                        \
    }                                                                                                                  \
  while (0)

static void expect(struct worker *w, db_buffer *buf, float factor) {
  float out[N];
  TRY(db_buffer_read(buf, 0, out, BYTES));
  for (int i = 0; i < N; i++) CHECK(out[i] == factor * (float)(i + 1));
out:;
}

/* Launches, then a copy and a replay, on one device; all objects are made and released within the round. */
static void round_on(struct worker *w, unsigned d, int round) {
  struct common *c = w->common;
  db_device *dev = c->dev[d], *again = NULL;
  db_buffer *y = NULL, *z = NULL;
  db_queue *compute = NULL, *copies = NULL;
  db_signal *signal = NULL;
  db_program *own = NULL, *saxpy = c->saxpy[d];
  db_recording *r = NULL;
  uint64_t when, copied;
  static const float zero[N];
  float a = (float)(1 + w->number), sum = 0;
  if (round % 8 == 0) {
    TRY(!(again = db_open(db_device_name(dev))));
    TRY(!(saxpy = own = saxpy_load(c->m, again, c->image, c->size)));
  }
  TRY(!(y = db_alloc(dev, BYTES, 0)) || !(z = db_alloc(dev, BYTES, round % 2 ? DB_BUFFER_HOST : 0)));
  TRY(!(compute = db_queue_new(dev, DB_QUEUE_COMPUTE)) || !(copies = db_queue_new(dev, DB_QUEUE_COPY)));
  TRY(!(signal = db_signal_new(dev)));
  TRY(db_buffer_write(y, 0, zero, BYTES));
  for (int i = 0; i < 3; i++, sum += a) {
    TRY(db_queue_memory_barrier(compute));
    TRY(saxpy_record(c->m, compute, saxpy, y, c->x[d], a, 0, N));
    TRY(db_queue_submit(compute, &when));
  }
  TRY(db_queue_wait(copies, db_queue_timeline(compute), when));
  TRY(db_queue_copy(copies, z, 0, y, 0, BYTES));
  TRY(db_queue_timestamp(copies, signal));
  TRY(db_queue_signal(copies, signal, 7));
  TRY(db_queue_submit(copies, &copied));
  TRY(db_wait(signal, 7, 60 * SECOND));
  CHECK(db_signal_time_ns(signal) > 0);
  expect(w, z, sum);
  TRY(db_queue_wait(compute, signal, 7));
  TRY(db_queue_memory_barrier(compute));
  TRY(saxpy_record(c->m, compute, saxpy, y, c->x[d], 0, 1, N));
  TRY(!(r = db_queue_bind(compute)));
  for (int i = 0; i < 3; i++) {
    float by = (float)(i + round % 3);
    uint32_t bits;
    memcpy(&bits, &by, 4);
    TRY(db_recording_set_value(r, 1, bits));
    TRY(db_recording_submit(r, &when));
    sum += by;
  }
  db_recording_release(r); /* released while it runs */
  r = NULL;
  expect(w, y, sum);
  TRY(db_device_synchronize(dev, 60 * SECOND));
out:
  db_recording_release(r);
  db_program_release(own);
  db_queue_release(copies);
  db_queue_release(compute);
  db_signal_release(signal);
  db_buffer_release(z);
  db_buffer_release(y);
  db_close(again);
}

static void *one_device(void *arg) {
  struct worker *w = arg;
  for (int round = 0; round < ROUNDS && !w->wrong[0]; round++) round_on(w, 0, round);
  return NULL;
}

/* A timeline may have restarted, in which case the wait for it must be recorded again. */
static void *again_and_again(void *arg) {
  struct worker *w = arg;
  for (int round = 0; round < ROUNDS && !w->wrong[0]; round++)
    for (int tries = 0; tries < 1000; tries++) {
      w->wrong[0] = 0;
      round_on(w, 0, round);
      if (!strstr(w->wrong, "record it again")) break;
    }
  return NULL;
}

/* From one device to the other and back, with queues that wait for each other; in between on either device alone. */
static void *two_devices(void *arg) {
  struct worker *w = arg;
  struct common *c = w->common;
  for (int round = 0; round < ROUNDS && !w->wrong[0]; round++) {
    unsigned d = (w->number + (unsigned)round) & 1;
    if (round % 2) {
      round_on(w, d, round);
      continue;
    }
    db_queue *copy[2] = {0}, *compute[2] = {0};
    db_buffer *y[2] = {0};
    uint64_t when = 0, copied = 0;
    static const float zero[N];
    for (unsigned i = 0; i < 2; i++) {
      TRY(!(copy[i] = db_queue_new(c->dev[i], DB_QUEUE_COPY)));
      TRY(!(compute[i] = db_queue_new(c->dev[i], DB_QUEUE_COMPUTE)));
      TRY(!(y[i] = db_alloc(c->dev[i], BYTES, DB_BUFFER_HOST)));
      TRY(db_buffer_write(y[i], 0, zero, BYTES));
    }
    for (unsigned hop = 0; hop < 4; hop++, d ^= 1) {
      if (copied) TRY(db_queue_wait(compute[d], db_queue_timeline(copy[d]), copied));
      TRY(saxpy_record(c->m, compute[d], c->saxpy[d], y[d], c->x[d], 1, 0, N));
      TRY(db_queue_submit(compute[d], &when));
      TRY(db_queue_wait(copy[!d], db_queue_timeline(compute[d]), when));
      TRY(db_queue_copy(copy[!d], y[!d], 0, y[d], 0, BYTES));
      TRY(db_queue_submit(copy[!d], &copied));
    }
    TRY(db_wait(db_queue_timeline(copy[d]), copied, 60 * SECOND));
    expect(w, y[d], 4);
  out:
    for (unsigned i = 0; i < 2; i++) {
      db_queue_release(copy[i]);
      db_queue_release(compute[i]);
      db_buffer_release(y[i]);
    }
  }
  return NULL;
}

static void together(const struct machine *m, unsigned devices, void *(*work)(void *), uint64_t count_max) {
  struct common c = {.m = m};
  void *image = saxpy_image(m, &c.size);
  if (!(c.image = image)) {
    print_message("no compiler for the host: %s is left out\n", m->name);
    return;
  }
  for (unsigned d = 0; d < devices; d++) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", m->name, d ? ":1" : "");
    if (!(c.dev[d] = db_open(name))) fail_msg("%s", db_error());
    for (int i = 0; i < 2 && count_max; i++) c.dev[d]->rings[i]->count_max = count_max;
    if (!(c.saxpy[d] = saxpy_load(m, c.dev[d], image, c.size))) fail_msg("%s", db_error());
    float x[N];
    for (int i = 0; i < N; i++) x[i] = (float)(i + 1);
    c.x[d] = db_alloc(c.dev[d], BYTES, 0);
    OK(db_buffer_write(c.x[d], 0, x, BYTES));
  }
  struct worker w[THREADS];
  for (unsigned i = 0; i < THREADS; i++) {
    w[i] = (struct worker){.common = &c, .number = i};
    assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
  }
  for (unsigned i = 0; i < THREADS; i++) pthread_join(w[i].thread, NULL);
  for (unsigned i = 0; i < THREADS; i++)
    if (w[i].wrong[0]) fail_msg("%s: thread %u: %s", m->name, i, w[i].wrong);
  for (unsigned d = 0; d < devices; d++) {
    struct db_device_counters counted;
    db_program_release(c.saxpy[d]);
    db_buffer_release(c.x[d]);
    OK(db_device_synchronize(c.dev[d], 60 * SECOND));
    db_device_counters(c.dev[d], &counted);
    assert_int_equal(counted.bytes_allocated, 0);
    if (work == one_device) { /* no thread's work was lost */
      assert_int_equal(counted.kernels, THREADS * ROUNDS * 6);
      assert_true(counted.copies >= THREADS * ROUNDS);
    }
    db_close(c.dev[d]);
  }
  free(image);
}

static void threads_share_one_device(void **state) {
  for (int m = 0; m < MACHINES; m++) together(&machines[m], 1, one_device, 0);
}

static void threads_share_two_devices(void **state) {
  for (int m = 1; m < MACHINES; m++) together(&machines[m], 2, two_devices, 0);
}

/* All queues become idle repeatedly while threads submit. */
static void resets_timelines_while_threads_submit(void **state) {
  for (int m = 0; m < MACHINES; m++) together(&machines[m], 1, again_and_again, 40);
}

/* Recordings made at the same time: each needs addresses below 1 TiB on NVIDIA. */
static void *recordings(void *arg) {
  struct worker *w = arg;
  db_queue *q = NULL;
  db_recording *bound[16] = {0};
  TRY(!(q = db_queue_new(w->common->dev[0], DB_QUEUE_COMPUTE)));
  for (unsigned i = 0; i < 16; i++) {
    TRY(db_queue_memory_barrier(q));
    TRY(!(bound[i] = db_queue_bind(q)));
  }
out:
  for (unsigned i = 0; i < 16; i++) db_recording_release(bound[i]);
  db_queue_release(q);
  return NULL;
}

/* As with the address sanitizer, whose shadow memory leaves only 2 GiB of those addresses. */
static void records_with_few_low_addresses(void **state) {
  const uintptr_t from = 2ull << 30, end = 1ull << 40;
  void *taken = mmap((void *)from, end - from, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (taken == MAP_FAILED) print_message("from 2 GiB to 1 TiB something is mapped already\n");
  for (int round = 0; round < 20; round++)
    for (int m = 1; m < MACHINES; m++) together(&machines[m], 1, recordings, 0);
  if (taken != MAP_FAILED) munmap(taken, end - from);
}

struct opener {
  pthread_t thread;
  const char *name;
  int failures;
};
static void *open_and_close(void *arg) {
  struct opener *o = arg;
  for (int i = 0; i < 8; i++) {
    db_device *dev = db_open(o->name);
    o->failures += !dev;
    db_close(dev);
  }
  return NULL;
}

/* One thread releases the last reference while another one opens the device. */
static void opens_and_closes_at_the_same_time(void **state) {
  for (int m = 0; m < MACHINES; m++) {
    struct opener o[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
      o[i] = (struct opener){.name = machines[m].name};
      assert_int_equal(pthread_create(&o[i].thread, NULL, open_and_close, &o[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
      pthread_join(o[i].thread, NULL);
      assert_int_equal(o[i].failures, 0);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(threads_share_one_device), cmocka_unit_test(threads_share_two_devices),
      cmocka_unit_test(resets_timelines_while_threads_submit), cmocka_unit_test(records_with_few_low_addresses),
      cmocka_unit_test(opens_and_closes_at_the_same_time)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
