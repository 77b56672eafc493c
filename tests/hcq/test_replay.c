/* Replays of recordings, on the CPU and on an emulated GPU of each vendor: changes by slots, and errors. */
#include "hcq/hcq.h"
#include "host_object.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include "tests/ok.h"

enum { ITEMS = 64, N = 1000 }; /* elements per workgroup, elements of the arrays */

static const struct machine {
  const char *name, *file;
  uint32_t block[3];
} machines[] = {
    {"CPU", NULL, {1, 1, 1}},
    {"EMU+AMD:gfx1100", KERNELS_DIR "/bench/kernels/saxpy.gfx1100.co", {ITEMS, 1, 1}},
    {"EMU+NV:sm_90", DATA_DIR "/../../bench/kernels/saxpy.sm_90.cubin", {ITEMS, 1, 1}},
};
enum { MACHINES = sizeof machines / sizeof *machines };
static const struct db_param params[] = {{"y", 0, 8, DB_PARAM_BUFFER},
                                         {"x", 8, 8, DB_PARAM_BUFFER},
                                         {"a", 16, 4, DB_PARAM_VALUE},
                                         {"n", 20, 4, DB_PARAM_VALUE}};
static const char host_saxpy[] =
    "#include <stdint.h>\n"
    "void saxpy(const void *k, uint32_t x, uint32_t y, uint32_t z) {\n"
    "  const struct { float *y; const float *x; float a; uint32_t n; } *p = k;\n"
    "  for (uint32_t i = x * 64; i < x * 64 + 64 && i < p->n; i++) p->y[i] += p->a * p->x[i];\n}\n";

/* A device with the kernel, and arrays that the host can access. */
struct bench {
  const struct machine *m;
  db_device *dev;
  db_program *saxpy;
  db_buffer *y[2], *x;
  float *hy[2], *hx;
  db_queue *q;
};

static bool bench_open(struct bench *b, const struct machine *m) {
  size_t size = 0;
  void *image;
  *b = (struct bench){.m = m};
  if (m->file) {
    FILE *f = fopen(m->file, "rb");
    assert_non_null(f);
    image = malloc(1 << 20);
    size = fread(image, 1, 1 << 20, f);
    fclose(f);
  } else if (!(image = host_object(host_saxpy, "", &size))) {
    print_message("no compiler for the host: %s is left out\n", m->name);
    return false;
  }
  b->dev = db_open(m->name);
  if (!b->dev) fail_msg("%s", db_error());
  b->saxpy = db_program_load(b->dev, image, size, "saxpy", m->file ? NULL : params, m->file ? 0 : 4);
  if (!b->saxpy) fail_msg("%s", db_error());
  free(image);
  for (int i = 0; i < 2; i++) {
    b->y[i] = db_alloc(b->dev, N * 4, DB_BUFFER_HOST);
    memset(b->hy[i] = db_buffer_host(b->y[i]), 0, N * 4);
  }
  b->x = db_alloc(b->dev, N * 4, DB_BUFFER_HOST);
  b->hx = db_buffer_host(b->x);
  for (int i = 0; i < N; i++) b->hx[i] = (float)(i + 1);
  b->q = db_queue_new(b->dev, DB_QUEUE_COMPUTE);
  assert_non_null(b->q);
  return true;
}

static void bench_close(struct bench *b) {
  db_queue_release(b->q);
  for (int i = 0; i < 2; i++) db_buffer_release(b->y[i]);
  db_buffer_release(b->x);
  db_program_release(b->saxpy);
  struct db_device_counters c;
  db_device_counters(b->dev, &c);
  assert_int_equal(c.bytes_allocated, 0);
  db_close(b->dev);
}

enum { SLOT_Y = 1, SLOT_A, SLOT_N, SLOT_GRID, SLOT_X, SLOT_TIME };
static int record_saxpy(struct bench *b, uint32_t groups) {
  float one = 1;
  struct db_arg args[] = {{.buffer = b->y[0], .slot = SLOT_Y},
                          {.buffer = b->x, .slot = SLOT_X},
                          {.data = &one, .slot = SLOT_A},
                          {.bits = N, .slot = SLOT_N}};
  return db_queue_exec_slots(b->q, b->saxpy, args, 4, (uint32_t[3]){groups, 1, 1}, b->m->block,
                             (const unsigned[3]){SLOT_GRID, 0, 0});
}

static db_recording *bind(db_queue *q) {
  db_recording *r = db_queue_bind(q);
  if (!r) fail_msg("%s", db_error());
  return r;
}
static void run(struct bench *b, db_recording *r) {
  uint64_t when;
  OK(db_recording_submit(r, &when));
  OK(db_wait(db_queue_timeline(b->q), when, 10 * SECOND));
}

static void slots_change_marked_arguments(void **state) {
  for (int m = 0; m < MACHINES; m++) {
    struct bench b;
    if (!bench_open(&b, &machines[m])) continue;
    uint32_t all = (N + ITEMS - 1) / ITEMS;
    OK(record_saxpy(&b, all));
    OK(db_queue_memory_barrier(b.q));
    OK(record_saxpy(&b, all));
    db_recording *r = bind(b.q);
    assert_true(db_recording_patches(r) >= 10);
    run(&b, r); /* as it was recorded */
    for (int i = 0; i < N; i++) assert_true(b.hy[0][i] == 2.0f * (float)(i + 1));
    OK(db_recording_set_buffer(r, SLOT_Y, b.y[1], 0)); /* another array */
    run(&b, r);
    for (int i = 0; i < N; i++) assert_true(b.hy[0][i] == 2.0f * (float)(i + 1) && b.hy[1][i] == b.hy[0][i]);
    float a = -3;
    uint32_t bits;
    memcpy(&bits, &a, 4);
    OK(db_recording_set_value(r, SLOT_A, bits)); /* another factor, and an array that begins at an offset */
    OK(db_recording_set_buffer(r, SLOT_Y, b.y[0], 400));
    OK(db_recording_set_value(r, SLOT_N, N - 100));
    run(&b, r);
    for (int i = 0; i < N; i++)
      assert_true(b.hy[0][i] == 2.0f * (float)(i + 1) - (i < 100 ? 0 : 6.0f * (float)(i - 99)));
    memset(b.hy[1], 0, N * 4);
    OK(db_recording_set_buffer(r, SLOT_Y, b.y[1], 0)); /* a smaller grid than n, then one that covers it again */
    OK(db_recording_set_value(r, SLOT_N, N));
    OK(db_recording_set_value(r, SLOT_GRID, 2));
    run(&b, r);
    for (int i = 0; i < N; i++) assert_true(b.hy[1][i] == (i < 2 * ITEMS ? -6.0f * (float)(i + 1) : 0.0f));
    OK(db_recording_set_value(r, SLOT_GRID, all));
    run(&b, r);
    for (int i = 2 * ITEMS; i < N; i++) assert_true(b.hy[1][i] == -6.0f * (float)(i + 1));
    db_recording_release(r);
    bench_close(&b);
  }
}

/* Two recordings alternately, submitted without waiting: one doorbell per run, nothing is lost, each run uses the
 * inputs set for it. */
static void replays_queue_behind_each_other(void **state) {
  enum { RUNS = 600 };
  for (int m = 0; m < MACHINES; m++) {
    struct bench b;
    if (!bench_open(&b, &machines[m])) continue;
    db_recording *r[2];
    for (int i = 0; i < 2; i++) {
      for (int k = 0; k < 5; k++) {
        OK(record_saxpy(&b, (N + ITEMS - 1) / ITEMS));
        OK(db_queue_memory_barrier(b.q));
      }
      r[i] = bind(b.q);
    }
    struct db_device_counters before, after;
    db_device_counters(b.dev, &before);
    uint64_t when = 0;
    for (int i = 0; i < RUNS; i++) {
      float a = (float)(i % 7);
      uint32_t bits;
      memcpy(&bits, &a, 4);
      OK(db_recording_set_value(r[i % 2], SLOT_A, bits));
      OK(db_recording_set_buffer(r[i % 2], SLOT_Y, b.y[i % 3 == 0], 0));
      OK(db_recording_submit(r[i % 2], &when));
    }
    OK(db_wait(db_queue_timeline(b.q), when, 20 * SECOND));
    db_device_counters(b.dev, &after);
    assert_int_equal(after.doorbells - before.doorbells, RUNS);
    assert_int_equal(after.kernels - before.kernels, 5 * RUNS);
    float sum[2] = {0};
    for (int i = 0; i < RUNS; i++) sum[i % 3 == 0] += 5.0f * (float)(i % 7);
    for (int i = 0; i < N; i++)
      assert_true(b.hy[0][i] == sum[0] * (float)(i + 1) && b.hy[1][i] == sum[1] * (float)(i + 1));
    for (int i = 0; i < 2; i++) db_recording_release(r[i]);
    bench_close(&b);
  }
}

/* A copy queue and a compute queue pass work to each other in every run, with signal values that slots increase. */
static void queues_wait_for_each_other(void **state) {
  enum { RUNS = 20, TO_COPY = 7, TO_COMPUTE, SOURCE, DESTINATION };
  for (int m = 0; m < MACHINES; m++) {
    struct bench b;
    if (!bench_open(&b, &machines[m])) continue;
    db_queue *copies = db_queue_new(b.dev, DB_QUEUE_COPY);
    db_signal *computed = db_signal_new(b.dev), *copied = db_signal_new(b.dev);
    assert_true(copies && computed && copied);
    OK(record_saxpy(&b, (N + ITEMS - 1) / ITEMS)); /* y0 += x, then y1 = y0 by copy, then y1 += x */
    OK(db_queue_signal_slot(b.q, computed, 0, TO_COPY));
    OK(db_queue_wait_slot(b.q, copied, 0, TO_COMPUTE));
    float one = 1;
    struct db_arg args[] = {{.buffer = b.y[1]}, {.buffer = b.x}, {.data = &one}, {.bits = N}};
    OK(db_queue_exec(b.q, b.saxpy, args, 4, (uint32_t[3]){(N + ITEMS - 1) / ITEMS, 1, 1}, b.m->block));
    db_recording *compute = bind(b.q);
    OK(db_queue_wait_slot(copies, computed, 0, TO_COPY));
    OK(db_queue_copy_slots(copies, b.y[0], 0, DESTINATION, b.y[1], 0, SOURCE, N * 4)); /* both are set below */
    OK(db_queue_signal_slot(copies, copied, 0, TO_COMPUTE));
    db_recording *copy = bind(copies);
    OK(db_recording_set_buffer(copy, SOURCE, b.y[0], 0));
    OK(db_recording_set_buffer(copy, DESTINATION, b.y[1], 0));
    for (uint64_t i = 1; i <= RUNS; i++) {
      uint64_t when[2];
      OK(db_recording_set_value(compute, TO_COPY, i));
      OK(db_recording_set_value(compute, TO_COMPUTE, i));
      OK(db_recording_set_value(copy, TO_COPY, i));
      OK(db_recording_set_value(copy, TO_COMPUTE, i));
      OK(db_recording_submit(copy, &when[1])); /* waits for work that is submitted after it */
      OK(db_recording_submit(compute, &when[0]));
      OK(db_wait(db_queue_timeline(b.q), when[0], 10 * SECOND));
      OK(db_wait(db_queue_timeline(copies), when[1], 10 * SECOND));
      for (int k = 0; k < N; k++)
        assert_true(b.hy[0][k] == (float)(i * (uint64_t)(k + 1)) && b.hy[1][k] == (float)((i + 1) * (uint64_t)(k + 1)));
    }
    db_recording_release(copy);
    db_recording_release(compute);
    db_signal_release(computed);
    db_signal_release(copied);
    db_queue_release(copies);
    bench_close(&b);
  }
}

/* Everything is released immediately after its use: a run in flight keeps it. */
static void recordings_hold_what_they_use(void **state) {
  for (int m = 0; m < MACHINES; m++) {
    struct bench b;
    if (!bench_open(&b, &machines[m])) continue;
    float sum[2] = {1, 2}, *seen = b.hy[0];
    OK(record_saxpy(&b, 1));
    db_recording *r = bind(b.q);
    for (int i = 0; i < 2; i++) {
      db_buffer *mine = db_alloc(b.dev, N * 4, DB_BUFFER_HOST);
      float *x = db_buffer_host(mine);
      for (int k = 0; k < N; k++) x[k] = sum[i];
      OK(db_recording_set_buffer(r, SLOT_X, mine, 0));
      db_buffer_release(mine);
      uint64_t when;
      OK(db_recording_submit(r, &when));
      if (i) db_recording_release(r);
    }
    OK(db_device_synchronize(b.dev, 10 * SECOND));
    for (int k = 0; k < ITEMS; k++) assert_true(seen[k] == 3);
    bench_close(&b);
  }
}

static void refused(int err, int want, const char *says) {
  assert_int_equal(err, want);
  if (!strstr(db_error(), says)) fail_msg("\"%s\" does not contain \"%s\"", db_error(), says);
}

/* Timestamps of two kernels per run, in memory. */
static void writes_timestamps(void **state) {
  for (int m = 0; m < MACHINES; m++) {
    struct bench b;
    if (!bench_open(&b, &machines[m])) continue;
    db_buffer *times = db_alloc(b.dev, 4 * DB_STAMP_BYTES, DB_BUFFER_HOST);
    memset(db_buffer_host(times), 0, 4 * DB_STAMP_BYTES);
    for (unsigned i = 0; i < 2; i++) {
      OK(db_queue_memory_barrier(b.q));
      OK(db_queue_stamp(b.q, times, (2 * i) * DB_STAMP_BYTES));
      OK(record_saxpy(&b, 1));
      OK(db_queue_stamp(b.q, times, (2 * i + 1) * DB_STAMP_BYTES));
    }
    db_recording *r = bind(b.q);
    assert_int_equal(db_stamp_time_ns(b.dev, times, 0), 0);
    uint64_t last = 0;
    for (int n = 0; n < 3; n++) {
      run(&b, r);
      for (unsigned i = 0; i < 4; i++) {
        uint64_t t = db_stamp_time_ns(b.dev, times, i * DB_STAMP_BYTES);
        assert_true(t >= last);
        last = t;
      }
    }
    assert_true(last > 0);
    db_recording_release(r);
    assert_int_equal(db_queue_stamp(b.q, times, 4), -EINVAL);
    assert_null(db_queue_bind(b.q));
    assert_non_null(strstr(db_error(), "a stamp at offset 4 of a buffer of 128 bytes"));
    assert_int_equal(db_queue_stamp(b.q, times, 4 * DB_STAMP_BYTES), -EINVAL);
    assert_null(db_queue_bind(b.q));
    db_buffer_release(times);
    bench_close(&b);
  }
}

static void refuses_wrong_values(void **state) {
  for (int m = 0; m < MACHINES; m++) {
    struct bench b;
    if (!bench_open(&b, &machines[m])) continue;
    OK(record_saxpy(&b, 1));
    db_recording *r = bind(b.q);
    refused(db_recording_set_value(r, SLOT_TIME, 1), -EINVAL, "the recording has no slot 6");
    refused(db_recording_set_value(r, 0, 1), -EINVAL, "no slot 0");
    refused(db_recording_set_value(r, 70000, 1), -EINVAL, "no slot 70000");
    refused(db_recording_set_value(r, SLOT_Y, 1), -EINVAL, "slot 1 marks buffers");
    refused(db_recording_set_buffer(r, SLOT_N, b.x, 0), -EINVAL, "slot 3 marks values");
    refused(db_recording_set_buffer(r, SLOT_X, b.x, N * 4 + 1), -EINVAL, "offset 4001 in a buffer of 4000 bytes");
    refused(db_recording_set_value(r, SLOT_N, 1ull << 32), -EINVAL, "exceeds 4294967295");
    refused(db_recording_set_value(r, SLOT_GRID, 0), -EINVAL, "a grid of 0");
    run(&b, r); /* it still works */
    assert_true(b.hy[0][5] == 6);
    db_recording_release(r);
    struct db_arg args[] = {{.buffer = b.y[0], .slot = 9}, {.buffer = b.x}, {.bits = 0, .slot = 9}, {.bits = N}};
    OK(db_queue_exec(b.q, b.saxpy, args, 4, (uint32_t[3]){1, 1, 1}, b.m->block));
    assert_null(db_queue_bind(b.q));
    assert_non_null(strstr(db_error(), "slot 9 marks a buffer and a value"));
    args[0].slot = DB_SLOT_MAX + 1;
    assert_int_equal(db_queue_exec(b.q, b.saxpy, args, 4, (uint32_t[3]){1, 1, 1}, b.m->block), -EINVAL);
    assert_null(db_queue_bind(b.q)); /* the recorder's first error */
    assert_non_null(strstr(db_error(), "slot 65536; slots are 1 to 65535"));
    assert_int_equal(db_queue_exec(b.q, b.saxpy, args, 3, (uint32_t[3]){1, 1, 1}, b.m->block), -EINVAL);
    assert_null(db_queue_bind(b.q));
    assert_non_null(strstr(db_error(), "takes 4 arguments, 3 given"));
    r = bind(b.q); /* an empty recording also runs */
    assert_int_equal(db_recording_patches(r), 0);
    run(&b, r);
    db_recording_release(r);
    bench_close(&b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(slots_change_marked_arguments),
      cmocka_unit_test(replays_queue_behind_each_other),
      cmocka_unit_test(queues_wait_for_each_other),
      cmocka_unit_test(recordings_hold_what_they_use),
      cmocka_unit_test(writes_timestamps),
      cmocka_unit_test(refuses_wrong_values),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
