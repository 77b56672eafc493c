/* End to end on emulated NVIDIA GPUs: cubins, launches and launch chains, copies, waits, timestamps, errors, faults.
 * Cubins are in tests/data/nv/cubin. */
#define DEVICE "EMU+NV:sm_90"
#define FILES  DATA_DIR "/nv/cubin/%s.cubin"
#include "device_test.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "hcq/backend.h"
#include "hcq/nv/pushbuffer.h"

#define DIMS(x, y, z) ((uint32_t[3]){x, y, z})

static db_program *load(const char *kernel) { return load_on(dev, "13.0.sm_90", kernel); }

/* Launches once and reads the first bytes of the output. */
static void launch(db_device *on, db_program *p, struct db_arg *args, unsigned nargs, const uint32_t grid[3],
                   const uint32_t block[3], db_buffer *from, void *out, size_t n) {
  db_queue *q = db_queue_new(on, DB_QUEUE_COMPUTE);
  OK(db_queue_exec(q, p, args, nargs, grid, block));
  run(q);
  OK(db_buffer_read(from, 0, out, n));
  db_queue_release(q);
}

/* ---- kernels ---- */

static void saxpy_on(db_device *on, const char *file) {
  enum { N = 1000 };
  db_program *p = load_on(on, file, "saxpy");
  db_buffer *x = db_alloc(on, N * 4, 0), *y = db_alloc(on, N * 4 + 4, 0);
  static float hx[N], hy[N + 1], got[N + 1];
  for (int i = 0; i <= N; i++) hy[i] = (float)(i % 7);
  for (int i = 0; i < N; i++) hx[i] = (float)i;
  OK(db_buffer_write(x, 0, hx, sizeof hx));
  OK(db_buffer_write(y, 0, hy, sizeof hy));
  float a = 0.5f;
  launch(on, p, (struct db_arg[]){{.buffer = y}, {.buffer = x}, {.data = &a}, {.bits = N}}, 4, DIMS(N / 128 + 1, 1, 1),
         DIMS(128, 1, 1), y, got, sizeof got);
  for (int i = 0; i < N; i++) assert_float_equal(got[i], 0.5f * (float)i + (float)(i % 7), 0);
  assert_float_equal(got[N], (float)(N % 7), 0);
  db_program_release(p);
  db_buffer_release(x);
  db_buffer_release(y);
}

static void saxpy(void **state) {
  saxpy_on(dev, "13.0.sm_90");
  saxpy_on(dev, "12.4.sm_90");
}

/* QMD V03_00, and code for sm_80 on its successors. */
static void older_architectures(void **state) {
  static const char *const names[] = {"EMU+NV:sm_80", "EMU+NV:sm_86", "EMU+NV:sm_89"};
  for (int i = 0; i < 3; i++) {
    db_device *d = db_open(names[i]);
    if (!d) fail_msg("%s", db_error());
    saxpy_on(d, "12.4.sm_80");
    db_close(d);
  }
}

static void arguments_of_all_sizes(void **state) {
  struct {
    int a;
    double b;
    char c[40];
  } s = {.a = 1000, .b = 0.25, .c = {0, 0, 0, 5}};
  db_program *p = load("structs");
  db_buffer *out = db_alloc(dev, 8, 0);
  double got;
  unsigned n;
  const struct db_param *params = db_program_params(p, &n);
  assert_int_equal(n, 4);
  assert_int_equal(params[0].size, 56);
  assert_int_equal(params[1].kind, DB_PARAM_BUFFER);
  assert_int_equal(params[3].kind, DB_PARAM_VALUE);
  assert_string_equal(params[2].name, "arg2");
  launch(dev, p, (struct db_arg[]){{.data = &s}, {.buffer = out}, {.bits = 200}, {.bits = (uint16_t)-30000}}, 4,
         DIMS(1, 1, 1), DIMS(1, 1, 1), out, &got, 8);
  assert_float_equal(got, 1000 + 0.25 + 5 + 200 - 30000, 0);
  /* An address as plain bits */
  launch(dev, p, (struct db_arg[]){{.data = &s}, {.bits = db_buffer_address(out)}, {.bits = 1}, {.bits = 2}}, 4,
         DIMS(1, 1, 1), DIMS(1, 1, 1), out, &got, 8);
  assert_float_equal(got, 1000 + 0.25 + 5 + 1 + 2, 0);
  db_program_release(p);
  db_buffer_release(out);
}

/* Static shared memory, followed by dynamic memory whose size is an added parameter. */
static void shared_memory(void **state) {
  enum { N = 96 };
  size_t n = read_image("13.0.sm_90");
  struct db_param dynamic = {.name = "dynamic", .kind = DB_PARAM_LOCAL};
  db_program *p = db_program_load(dev, image, n, "shares", &dynamic, 1);
  if (!p) fail_msg("%s", db_error());
  db_buffer *y = db_alloc(dev, 2 * N * 4, 0);
  float v[2 * N], got[N];
  for (int i = 0; i < 2 * N; i++) v[i] = (float)(i * i);
  OK(db_buffer_write(y, 0, v, sizeof v));
  launch(dev, p, (struct db_arg[]){{.buffer = y}, {.bits = N}, {.bits = N * 4}}, 3, DIMS(1, 1, 1), DIMS(N, 1, 1), y,
         got, sizeof got);
  for (int i = 0; i < N; i++) assert_float_equal(got[i], v[N - 1 - i] + v[N + (i + 1) % N], 0);
  db_program_release(p);
  dynamic.size = 4;
  assert_null(db_program_load(dev, image, n, "shares", &dynamic, 1));
  assert_non_null(strstr(db_error(), "describes its own parameters"));
  db_buffer_release(y);
}

/* Initialized and zeroed variables, pointers between them, __constant__ memory; they keep their values between
 * launches. */
static void global_variables(void **state) {
  db_program *p = load("globals");
  db_buffer *out = db_alloc(dev, 32, 0);
  int got[8];
  for (int round = 0; round < 2; round++) {
    launch(dev, p, (struct db_arg[]){{.buffer = out}}, 1, DIMS(1, 1, 1), DIMS(8, 1, 1), out, got, sizeof got);
    for (int i = 0; i < 8; i++) assert_int_equal(got[i], (i & 3) + 1 + 3 + 10 * ((i & 3) + 1));
  }
  db_program_release(p);
  db_buffer_release(out);
}

static void calls_and_stack(void **state) {
  db_program *p = load("calls");
  db_buffer *out = db_alloc(dev, 64 * 4, 0);
  int got[64];
  static const int fibonacci[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
  launch(dev, p, (struct db_arg[]){{.buffer = out}, {.bits = 1}}, 2, DIMS(1, 1, 1), DIMS(12, 1, 1), out, got, 48);
  for (int i = 0; i < 12; i++) assert_int_equal(got[i], fibonacci[i]);
  launch(dev, p, (struct db_arg[]){{.buffer = out}, {.bits = 0}}, 2, DIMS(1, 1, 1), DIMS(12, 1, 1), out, got, 48);
  for (int i = 0; i < 12; i++) assert_int_equal(got[i], 2 * i);
  db_program_release(p);

  p = load("locals");
  launch(dev, p, (struct db_arg[]){{.buffer = out}, {.bits = 10}}, 2, DIMS(1, 1, 1), DIMS(64, 1, 1), out, got, 256);
  int sum = 0;
  for (int i = 0; i < 10; i++) sum += (i * 7 & 63) * 10;
  for (int i = 0; i < 64; i++) assert_int_equal(got[i], sum);
  db_program_release(p);
  db_buffer_release(out);
}

/* Separately compiled: addresses and calls in code are relocated. */
static void linked_functions(void **state) {
  db_buffer *out = db_alloc(dev, 4, 0);
  int got[1];
  db_program *p = load_on(dev, "13.0.sm_90.linked", NULL);
  launch(dev, p, (struct db_arg[]){{.buffer = out}, {.bits = 2}}, 2, DIMS(1, 1, 1), DIMS(1, 1, 1), out, got, 4);
  assert_int_equal(got[0], (2 * 7 + 2) + 5 + (3 * 7 + 3) + 3);
  launch(dev, p, (struct db_arg[]){{.buffer = out}, {.bits = 0}}, 2, DIMS(1, 1, 1), DIMS(1, 1, 1), out, got, 4);
  assert_int_equal(got[0], 0 + 5 + 3 * 9 + 1);
  db_program_release(p);
  db_buffer_release(out);
}

static void sizes(void **state) {
  size_t n = read_image("13.0.sm_90");
  struct db_param dynamic = {.name = "dynamic", .kind = DB_PARAM_LOCAL};
  db_program *p = db_program_load(dev, image, n, "sizes", &dynamic, 1);
  db_buffer *out = db_alloc(dev, 32, 0);
  uint32_t got[8];
  launch(dev, p, (struct db_arg[]){{.buffer = out}, {.bits = 1000}}, 2, DIMS(5, 3, 2), DIMS(32, 2, 4), out, got, 32);
  static const uint32_t want[8] = {32, 2, 4, 5, 3, 2, 1000, 1024}; /* all sizes are multiples of 128 */
  for (int i = 0; i < 8; i++) assert_int_equal(got[i], want[i]);
  db_program_release(p);
  db_buffer_release(out);
}

/* ---- errors ---- */

static void launch_errors(void **state) {
  db_program *saxpy_kernel = load("saxpy"), *shares = load("shares");
  db_buffer *b = db_alloc(dev, 64, 0);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  struct db_arg args[4] = {{.buffer = b}, {.buffer = b}, {.bits = 0}, {.bits = 0}};
  const struct {
    uint32_t grid[3], block[3];
    const char *says;
  } cases[] = {
      {{1, 1, 1}, {2048, 1, 1}, "block 2048x1x1, a block has at most 1024 threads"},
      {{1, 1, 1}, {64, 64, 1}, "block 64x64x1"},
      {{1, 1, 1}, {1, 1, 65}, "block 1x1x65"},
      {{1, 65536, 1}, {1, 1, 1}, "grid 1x65536x1"},
      {{0x80000000, 1, 1}, {1, 1, 1}, "grid 2147483648x1x1"},
      {{1, 0, 1}, {64, 1, 1}, "at least 1"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(db_queue_exec(q, saxpy_kernel, args, 4, cases[i].grid, cases[i].block), -EINVAL);
    if (!strstr(db_error(), cases[i].says) || !strstr(db_error(), "saxpy")) fail_msg("%s", db_error());
    assert_int_equal(db_queue_submit(q, NULL), -EINVAL);
  }
  args[1] = (struct db_arg){.bits = 1};
  assert_int_equal(db_queue_exec(q, shares, args, 2, DIMS(1, 1, 1), DIMS(129, 1, 1)), -EINVAL);
  assert_non_null(strstr(db_error(), "a block has at most 128 threads")); /* launch bounds */
  db_queue_submit(q, NULL);
  args[1].buffer = args[3].buffer = b; /* the last is a number */
  assert_int_equal(db_queue_exec(q, saxpy_kernel, args, 4, DIMS(1, 1, 1), DIMS(1, 1, 1)), -EINVAL);
  assert_non_null(strstr(db_error(), "not a buffer"));
  db_queue_submit(q, NULL);
  db_queue_release(q);
  db_program_release(saxpy_kernel);
  struct db_param dynamic = {.name = "dynamic", .kind = DB_PARAM_LOCAL};
  size_t n = read_image("13.0.sm_90");
  db_program *p = db_program_load(dev, image, n, "shares", &dynamic, 1);
  q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  args[1] = (struct db_arg){.bits = 1};
  args[2] = (struct db_arg){.bits = 227 << 10};
  assert_int_equal(db_queue_exec(q, p, args, 3, DIMS(1, 1, 1), DIMS(32, 1, 1)), -EINVAL);
  assert_non_null(strstr(db_error(), "of shared memory, a block has at most 233472"));
  db_queue_release(q);
  db_program_release(p);
  db_program_release(shares);
  db_buffer_release(b);
}

static void load_errors(void **state) {
  size_t n = read_image("13.0.sm_90");
  assert_null(db_program_load(dev, image, n, "nothing", NULL, 0));
  assert_non_null(strstr(db_error(), "saxpy")); /* lists the existing kernels */
  assert_null(db_program_load(dev, image, n / 2, "saxpy", NULL, 0));
  assert_null(db_program_load(dev, NULL, 0, NULL, NULL, 0));
  n = read_image("12.4.sm_80");
  assert_null(db_program_load(dev, image, n, "saxpy", NULL, 0));
  assert_non_null(strstr(db_error(), "the cubin is for sm_80, the device is sm_90"));
  n = read_image("13.0.sm_90.printf");
  assert_null(db_program_load(dev, image, n, "prints", NULL, 0));
  assert_non_null(strstr(db_error(), "kernel prints: not supported: calls vprintf"));
  db_program *p = load_on(dev, "13.0.sm_90.printf", "silent");
  db_buffer *out = db_alloc(dev, 4, 0);
  int got = 0;
  launch(dev, p, (struct db_arg[]){{.buffer = out}}, 1, DIMS(1, 1, 1), DIMS(1, 1, 1), out, &got, 4);
  assert_int_equal(got, 1);
  db_program_release(p);
  db_buffer_release(out);
}

/* ---- copies ---- */

static void copies(void **state) {
  static const size_t lengths[] = {1, 3, 4, 127, 4096, 4097, (1 << 20) + 3};
  enum { SIZE = (1 << 20) + 64 };
  uint8_t *from = malloc(SIZE), *to = malloc(SIZE);
  for (int i = 0; i < SIZE; i++) from[i] = (uint8_t)(i * 167 + i / 251);
  db_buffer *a = db_alloc(dev, SIZE, 0), *b = db_alloc(dev, SIZE, 0), *h = db_import_host(dev, to, SIZE);
  OK(db_buffer_write(a, 0, from, SIZE));
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    size_t n = lengths[i], src = i * 5, dst = 37 - i * 3;
    memset(to, 0xee, SIZE);
    db_queue *q = db_queue_new(dev, DB_QUEUE_COPY);
    OK(db_queue_copy(q, b, dst, a, src, n)); /* the second copy depends on the first */
    OK(db_queue_memory_barrier(q));
    OK(db_queue_copy(q, h, 11, b, dst, n));
    run(q);
    assert_memory_equal(to + 11, from + src, n);
    assert_int_equal(to[10], 0xee);
    assert_int_equal(to[11 + n], 0xee);
    db_queue_release(q);
  }
  db_buffer_release(a);
  db_buffer_release(b);
  db_buffer_release(h);
  free(from);
  free(to);
}

/* ---- queues ---- */

/* A launch directly after a launch adds no methods; anything in between starts a new chain. */
static void chains(void **state) {
  db_program *p = load("saxpy");
  float x[64], y[64] = {0};
  for (int i = 0; i < 64; i++) x[i] = (float)i;
  db_buffer *bx = db_import_host(dev, x, sizeof x), *by = db_import_host(dev, y, sizeof y);
  db_signal *sig = db_signal_new(dev);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  float a = 1;
  struct db_arg args[] = {{.buffer = by}, {.buffer = bx}, {.data = &a}, {.bits = 64}};
#define EXEC() OK(db_queue_exec(q, p, args, 4, DIMS(1, 1, 1), DIMS(64, 1, 1)))
  EXEC();
  assert_int_equal(q->words.n, 3); /* SEND_PCAS_A and SEND_SIGNALING_PCAS2_B */
  EXEC();
  EXEC();
  OK(db_queue_memory_barrier(q));
  EXEC();
  assert_int_equal(q->words.n, 3);
  OK(db_queue_signal(q, sig, 1));
  assert_int_equal(q->words.n, 9);
  EXEC();
  assert_int_equal(q->words.n, 12);
  OK(db_queue_wait(q, sig, 1)); /* waits for the launch first */
  assert_int_equal(q->words.n, 19);
  EXEC();
  OK(db_queue_timestamp(q, sig));
  EXEC();
  EXEC();
  assert_int_equal(q->words.n, 31);
  run(q);
  EXEC(); /* another recording, although at the same address */
  assert_int_equal(q->words.n, 3);
  hcq_queue_reset(q);
  OK(db_queue_wait(q, sig, 1));
  EXEC();
  assert_int_equal(q->words.n, 9);
  run(q);
#undef EXEC
  for (int i = 0; i < 64; i++) assert_float_equal(y[i], 9 * i, 0);
  db_signal_release(sig);
  db_queue_release(q);
  db_buffer_release(bx);
  db_buffer_release(by);
  db_program_release(p);
}

/* The same QMD inline in the pushbuffer, for arguments at addresses that SEND_PCAS_A cannot encode. */
static void inline_launches(void **state) {
  static const struct {
    const char *device, *file;
    unsigned words;
  } on[] = {{DEVICE, "13.0.sm_90", 96}, {"EMU+NV:sm_86", "12.4.sm_80", 64}};
  for (int i = 0; i < 2; i++) {
    db_device *d = db_open(on[i].device);
    if (!d) fail_msg("%s", db_error());
    db_program *p = load_on(d, on[i].file, "sizes");
    db_buffer *out = db_alloc(d, 32, 0);
    db_queue *q = db_queue_new(d, DB_QUEUE_COMPUTE);
    uint32_t got[8] = {0};
    OK(db_buffer_write(out, 0, got, 32));
    OK(db_queue_exec(q, p, (struct db_arg[]){{.buffer = out}}, 1, DIMS(7, 1, 1), DIMS(33, 1, 1)));
    uint64_t address = (uint64_t)q->words.w[1] << 8;
    words_reset(&q->words);
    push_launch_inline(&q->words, address, q->chain.launch, on[i].words);
    run(q);
    OK(db_buffer_read(out, 0, got, 32));
    assert_int_equal(got[0], 33);
    assert_int_equal(got[3], 7);
    db_queue_release(q);
    db_buffer_release(out);
    db_program_release(p);
    db_close(d);
  }
}

/* Copy and compute queues pass work to each other without the host. */
static void queues_wait_for_each_other(void **state) {
  enum { N = 1024, ROUNDS = 20 };
  db_program *p = load("saxpy");
  static float x[N], y[N];
  for (int i = 0; i < N; i++) x[i] = (float)i;
  db_buffer *dx = db_alloc(dev, N * 4, 0), *dy = db_alloc(dev, N * 4, 0), *hx = db_import_host(dev, x, N * 4),
            *hy = db_import_host(dev, y, N * 4);
  db_signal *ready = db_signal_new(dev), *done = db_signal_new(dev);
  db_queue *copy = db_queue_new(dev, DB_QUEUE_COPY), *compute = db_queue_new(dev, DB_QUEUE_COMPUTE);
  float a = 2;
  uint64_t when;
  for (uint64_t r = 1; r <= ROUNDS; r++) {
    OK(db_queue_wait(compute, ready, r)); /* submitted before the work that it waits for */
    OK(db_queue_exec(compute, p, (struct db_arg[]){{.buffer = dy}, {.buffer = dx}, {.data = &a}, {.bits = N}}, 4,
                     DIMS(N / 64, 1, 1), DIMS(64, 1, 1)));
    OK(db_queue_signal(compute, done, r));
    OK(db_queue_submit(compute, NULL));
    OK(db_queue_copy(copy, dx, 0, hx, 0, N * 4));
    OK(db_queue_copy(copy, dy, 0, hy, 0, N * 4));
    OK(db_queue_signal(copy, ready, r));
    OK(db_queue_wait(copy, done, r));
    OK(db_queue_copy(copy, hy, 0, dy, 0, N * 4));
    OK(db_queue_submit(copy, &when));
  }
  OK(db_wait(db_queue_timeline(copy), when, 20 * SECOND));
  for (int i = 0; i < N; i++) assert_float_equal(y[i], 2.0f * ROUNDS * (float)i, 0);
  assert_int_equal(db_signal_value(done), ROUNDS);
  db_buffer *buffers[] = {dx, dy, hx, hy};
  for (int i = 0; i < 4; i++) db_buffer_release(buffers[i]);
  db_signal_release(ready);
  db_signal_release(done);
  db_queue_release(copy);
  db_queue_release(compute);
  db_program_release(p);
}

static void timestamps(void **state) {
  db_program *p = load("sizes");
  db_buffer *out = db_alloc(dev, 32, 0);
  db_signal *s[4];
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  uint64_t before = (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE), *copy = db_queue_new(dev, DB_QUEUE_COPY);
  for (int i = 0; i < 4; i++) s[i] = db_signal_new(dev);
  for (int i = 0; i < 3; i++) {
    if (i) OK(db_queue_exec(q, p, (struct db_arg[]){{.buffer = out}}, 1, DIMS(50, 1, 1), DIMS(64, 1, 1)));
    OK(db_queue_timestamp(q, s[i]));
  }
  run(q);
  OK(db_queue_timestamp(copy, s[3]));
  run(copy);
  clock_gettime(CLOCK_MONOTONIC, &t);
  uint64_t after = (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
  uint64_t last = before > 1000000 ? before - 1000000 : 0; /* the two clocks are read one after the other */
  for (int i = 0; i < 4; i++) {
    assert_true(db_signal_time_ns(s[i]) >= last);
    last = db_signal_time_ns(s[i]);
    assert_int_equal(db_signal_value(s[i]), 0);
    db_signal_release(s[i]);
  }
  assert_true(last <= after + 1000000);
  db_queue_release(q);
  db_queue_release(copy);
  db_buffer_release(out);
  db_program_release(p);
}

/* A long chain, then more submissions than the ring has entries and the pushbuffer has bytes; everything is released
 * immediately. */
static void many_launches(void **state) {
  db_program *p = load("saxpy");
  static float x[64], y[64];
  for (int i = 0; i < 64; i++) x[i] = (float)i, y[i] = 0;
  db_buffer *bx = db_import_host(dev, x, sizeof x), *by = db_import_host(dev, y, sizeof y);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  float a = 1;
  struct db_arg args[] = {{.buffer = by}, {.buffer = bx}, {.data = &a}, {.bits = 64}};
  enum { TOGETHER = 2000, ALONE = 2500 };
  struct db_device_counters before, after;
  db_device_counters(dev, &before);
  for (int i = 0; i < TOGETHER; i++) OK(db_queue_exec(q, p, args, 4, DIMS(1, 1, 1), DIMS(64, 1, 1)));
  uint64_t when;
  OK(db_queue_submit(q, &when));
  for (int i = 0; i < ALONE; i++) {
    OK(db_queue_exec(q, p, args, 4, DIMS(1, 1, 1), DIMS(64, 1, 1)));
    OK(db_queue_submit(q, &when));
  }
  db_signal *timeline = db_signal_retain(db_queue_timeline(q));
  db_buffer_release(bx);
  db_buffer_release(by);
  db_program_release(p);
  db_queue_release(q);
  OK(db_wait(timeline, when, 20 * SECOND));
  db_signal_release(timeline);
  for (int i = 0; i < 64; i++) assert_float_equal(y[i], (float)((TOGETHER + ALONE) * i), 0);
  db_device_counters(dev, &after);
  assert_int_equal(after.kernels - before.kernels, TOGETHER + ALONE);
  assert_int_equal(after.doorbells - before.doorbells, 1 + ALONE);
}

/* Recordings that fill a quarter of the pushbuffer, and ones that exceed it, several at a time. */
static void long_recordings(void **state) {
  static const unsigned lengths[] = {8000, 30000, 11000, 60000, 10000};
  db_signal *sig = db_signal_new(dev);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COPY);
  uint64_t when, value = 0;
  struct db_device_counters before, after;
  db_device_counters(dev, &before);
  for (int round = 0; round < 3; round++)
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
      for (unsigned j = 0; j < lengths[i]; j++) OK(db_queue_signal(q, sig, ++value));
      OK(db_queue_submit(q, &when));
    }
  OK(db_wait(db_queue_timeline(q), when, 20 * SECOND));
  assert_int_equal(db_signal_value(sig), value);
  db_device_counters(dev, &after);
  assert_int_equal(after.doorbells - before.doorbells, 15);
  db_signal_release(sig);
  db_queue_release(q);
}

/* Submissions that cannot run yet fill all entries, then the whole pushbuffer. */
static void full_ring(void **state) {
  db_signal *gate = db_signal_new(dev), *count = db_signal_new(dev);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COPY);
  uint64_t when;
  for (uint64_t i = 1; i <= 1000; i++) {
    OK(db_queue_wait(q, gate, 1));
    for (int j = 0; j < 20; j++) OK(db_queue_signal(q, count, (i - 1) * 20 + (uint64_t)j));
    OK(db_queue_submit(q, &when));
  }
  assert_int_equal(db_signal_value(count), 0);
  db_signal_set(gate, 1);
  for (uint64_t i = 1001; i <= 4000; i++) { /* waits for room from time to time */
    for (int j = 0; j < 20; j++) OK(db_queue_signal(q, count, (i - 1) * 20 + (uint64_t)j));
    OK(db_queue_submit(q, &when));
  }
  OK(db_wait(db_queue_timeline(q), when, 20 * SECOND));
  assert_int_equal(db_signal_value(count), 4000 * 20 - 1);
  db_signal_release(gate);
  db_signal_release(count);
  db_queue_release(q);
}

/* A kernel on one GPU writes the other's memory, which waits for it. */
static void two_gpus(void **state) {
  db_device *other = db_open(DEVICE ":1");
  if (!other) fail_msg("%s", db_error());
  db_program *p = load_on(other, "13.0.sm_90", "saxpy");
  float x[64], y[64] = {0}, got[64], a = 3;
  for (int i = 0; i < 64; i++) x[i] = (float)i;
  db_buffer *bx = db_alloc(dev, 256, 0), *by = db_alloc(dev, 256, 0), *mine = db_alloc(dev, 256, 0);
  OK(db_buffer_write(bx, 0, x, 256));
  OK(db_buffer_write(by, 0, y, 256));
  db_signal *done = db_signal_new(dev);
  db_queue *q = db_queue_new(other, DB_QUEUE_COMPUTE), *copy = db_queue_new(dev, DB_QUEUE_COPY);
  OK(db_queue_wait(copy, done, 1));
  OK(db_queue_copy(copy, mine, 0, by, 0, 256));
  uint64_t when;
  OK(db_queue_submit(copy, &when));
  OK(db_queue_exec(q, p, (struct db_arg[]){{.buffer = by}, {.buffer = bx}, {.data = &a}, {.bits = 64}}, 4,
                   DIMS(1, 1, 1), DIMS(64, 1, 1)));
  OK(db_queue_signal(q, done, 1));
  run(q);
  OK(db_wait(db_queue_timeline(copy), when, 20 * SECOND));
  OK(db_buffer_read(mine, 0, got, 256));
  for (int i = 0; i < 64; i++) assert_float_equal(got[i], 3.0f * (float)i, 0);
  db_signal_release(done);
  db_queue_release(q);
  db_queue_release(copy);
  db_program_release(p);
  db_buffer_release(bx);
  db_buffer_release(by);
  db_buffer_release(mine);
  db_close(other);
}

/* ---- faults ---- */

static void unmapped_address(void **state) {
  db_device *d = db_open("EMU+NV:sm_90,sm_90"); /* a separate machine */
  if (!d) fail_msg("%s", db_error());
  db_program *p = load_on(d, "13.0.sm_90", "saxpy");
  db_buffer *b = db_alloc(d, 4096, 0);
  db_queue *q = db_queue_new(d, DB_QUEUE_COMPUTE);
  float a = 1;
  uint64_t when;
  OK(db_queue_exec(q, p, (struct db_arg[]){{.buffer = b}, {.bits = 0xdead0000}, {.data = &a}, {.bits = 64}}, 4,
                   DIMS(1, 1, 1), DIMS(64, 1, 1)));
  OK(db_queue_submit(q, &when));
  assert_int_equal(db_wait(db_queue_timeline(q), when, 20 * SECOND), -EIO);
  char first[2048];
  snprintf(first, sizeof first, "%s", db_error());
  if (!strstr(first, "saxpy") || !strstr(first, "0xdead0000")) fail_msg("%s", first);
  assert_int_equal(db_queue_submit(q, NULL), -EIO); /* the device stays lost */
  assert_string_equal(db_error(), first);
  db_queue_release(q);
  db_program_release(p);
  db_buffer_release(b);
  db_close(d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(saxpy),
      cmocka_unit_test(arguments_of_all_sizes),
      cmocka_unit_test(shared_memory),
      cmocka_unit_test(global_variables),
      cmocka_unit_test(calls_and_stack),
      cmocka_unit_test(sizes),
      cmocka_unit_test(launch_errors),
      cmocka_unit_test(load_errors),
      cmocka_unit_test(copies),
      cmocka_unit_test(chains),
      cmocka_unit_test(inline_launches),
      cmocka_unit_test(queues_wait_for_each_other),
      cmocka_unit_test(timestamps),
      cmocka_unit_test(many_launches),
      cmocka_unit_test(long_recordings),
      cmocka_unit_test(full_ring),
      cmocka_unit_test(two_gpus),
      cmocka_unit_test(older_architectures),
      cmocka_unit_test(linked_functions),
      cmocka_unit_test(unmapped_address),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
