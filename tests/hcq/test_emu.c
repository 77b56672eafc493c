/* The whole way over an emulated GPU: memory, copies, launches, waits, timestamps, faults. */
#include "hcq/hcq.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define SECOND 1000000000ull
#define DEVICE "EMU+AMD:gfx1100"
#define OK(call)                                                                                                       \
  do {                                                                                                                 \
    int ok_ = (call);                                                                                                  \
    if (ok_) fail_msg("%s: %d: %s", #call, ok_, db_error());                                                           \
  } while (0)

static db_device *dev;

static int open_device(void **state) {
  dev = db_open(DEVICE);
  if (!dev) fprintf(stderr, "%s\n", db_error());
  return dev ? 0 : -1;
}
static int close_device(void **state) {
  db_close(dev);
  return 0;
}

static db_program *load(const char *file, const char *kernel) {
  char path[512];
  snprintf(path, sizeof path, KERNELS_DIR "/%s.gfx1100.co", file);
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("no %s", path);
  static char image[1 << 20];
  size_t n = fread(image, 1, sizeof image, f);
  fclose(f);
  db_program *p = db_program_load(dev, image, n, kernel, NULL, 0);
  if (!p) fail_msg("%s: %s", path, db_error());
  return p;
}

static void run(db_queue *q) {
  uint64_t when;
  OK(db_queue_submit(q, &when));
  OK(db_wait(db_queue_timeline(q), when, 60 * SECOND));
}

static void names(void **state) {
  assert_string_equal(db_device_name(dev), DEVICE);
  assert_string_equal(db_device_arch(dev), "gfx1100");
  assert_non_null(strstr(db_device_description(dev), "96 CUs"));
  assert_null(db_open("EMU+AMD:gfx9999"));
  assert_non_null(strstr(db_error(), "gfx9999"));
}

static void copies(void **state) {
  const struct {
    size_t n, from, to;
  } cases[] = {{1, 0, 0}, {3, 1, 2}, {4096, 0, 0}, {4097, 5, 3}, {1 << 20, 0, 64}, {(5 << 20) + 7, 13, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t n = cases[i].n, room = n + 100;
    db_buffer *a = db_alloc(dev, room, 0), *b = db_alloc(dev, room, i & 1 ? DB_BUFFER_HOST : 0);
    uint8_t *in = malloc(room), *out = malloc(room), *back = calloc(1, room);
    for (size_t j = 0; j < room; j++) in[j] = (uint8_t)(j * 131 + i), out[j] = 0xee;
    OK(db_buffer_write(a, 0, in, room));
    OK(db_buffer_write(b, 0, out, room));
    db_queue *q = db_queue_new(dev, DB_QUEUE_COPY);
    OK(db_queue_copy(q, b, cases[i].to, a, cases[i].from, n));
    run(q);
    OK(db_buffer_read(b, 0, back, room));
    memcpy(out + cases[i].to, in + cases[i].from, n);
    assert_memory_equal(back, out, room);
    db_queue_release(q);
    db_buffer_release(a);
    db_buffer_release(b);
    free(in);
    free(out);
    free(back);
  }
}

static void imported_memory(void **state) {
  static char host[20000];
  for (int i = 0; i < 20000; i++) host[i] = (char)(i * 7);
  db_buffer *mine = db_import_host(dev, host + 123, 10001), *theirs = db_alloc(dev, 10001, 0);
  assert_non_null(mine);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COPY);
  OK(db_queue_copy(q, theirs, 0, mine, 0, 10001));
  run(q);
  char back[10001];
  OK(db_buffer_read(theirs, 0, back, 10001));
  assert_memory_equal(back, host + 123, 10001);
  db_queue_release(q);
  db_buffer_release(mine);
  db_buffer_release(theirs);
}

static void saxpy(void **state) {
  enum { N = 100000 };
  db_program *p = load("bench/kernels/saxpy", "saxpy");
  unsigned n;
  const struct db_param *params = db_program_params(p, &n);
  assert_int_equal(n, 4);
  db_buffer *x = db_alloc(dev, N * 4, 0), *y = db_alloc(dev, N * 4, 0);
  float *hx = malloc(N * 4), *hy = malloc(N * 4), *got = malloc(N * 4);
  for (int i = 0; i < N; i++) hx[i] = (float)i, hy[i] = (float)(i % 100);
  OK(db_buffer_write(x, 0, hx, N * 4));
  OK(db_buffer_write(y, 0, hy, N * 4));
  assert_int_equal(params[0].kind, DB_PARAM_BUFFER);
  assert_int_equal(params[2].kind, DB_PARAM_VALUE);
  float a = 0.25f;
  struct db_arg args[4] = {{.buffer = y}, {.buffer = x}, {.data = &a}, {.bits = N}};
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  db_signal *t0 = db_signal_new(dev), *t1 = db_signal_new(dev);
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  uint64_t before = (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
  OK(db_queue_timestamp(q, t0));
  OK(db_queue_exec(q, p, args, 4, (uint32_t[3]){(N + 255) / 256, 1, 1}, (uint32_t[3]){256, 1, 1}));
  OK(db_queue_timestamp(q, t1));
  run(q);
  clock_gettime(CLOCK_MONOTONIC, &t);
  uint64_t after = (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
  assert_in_range(db_signal_time_ns(t0), before - 50000, after);
  assert_in_range(db_signal_time_ns(t1), db_signal_time_ns(t0), after + 50000);
  OK(db_buffer_read(y, 0, got, N * 4));
  for (int i = 0; i < N; i++)
    if (got[i] != hy[i] + 0.25f * hx[i]) fail_msg("element %d is %f", i, (double)got[i]);
  db_signal_release(t0);
  db_signal_release(t1);
  db_queue_release(q);
  db_buffer_release(x);
  db_buffer_release(y);
  db_program_release(p);
  free(hx);
  free(hy);
  free(got);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names),
      cmocka_unit_test(copies),
      cmocka_unit_test(imported_memory),
      cmocka_unit_test(saxpy),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
