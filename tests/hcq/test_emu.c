/* End to end on an emulated GPU: memory, copies, launches, waits, timestamps, faults. */
#define DEVICE "EMU+AMD:gfx1100"
#define FILES  KERNELS_DIR "/%s.gfx1100.co"
#include "device_test.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "hcq/elf/elf.h"

static db_program *load(const char *file, const char *kernel) { return load_on(dev, file, kernel); }

/* The kernel with its first instruction replaced. */
static db_program *load_patched(db_device *on, const char *file, const char *kernel, uint32_t instruction) {
  struct elf e;
  Elf64_Sym sym;
  const char *name;
  size_t n = read_image(file);
  OK(elf_open(&e, image, n));
  OK(elf_symbol(&e.symbols, (unsigned)elf_find_symbol(&e, kernel), &sym, &name));
  for (unsigned i = 0; i < e.nsegments; i++)
    if (e.segments[i].p_type == PT_LOAD && sym.st_value - e.segments[i].p_vaddr < e.segments[i].p_filesz)
      memcpy(image + e.segments[i].p_offset + (sym.st_value - e.segments[i].p_vaddr), &instruction, 4);
  elf_close(&e);
  db_program *p = db_program_load(on, image, n, kernel, NULL, 0);
  if (!p) fail_msg("%s: %s", file, db_error());
  return p;
}

static void opens_machines_by_name(void **state) {
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

/* ---- arguments that the driver fills in ---- */

static void hidden_arguments(void **state) {
  db_program *p = load("tests/kernels/hidden", "hidden");
  const uint32_t grid[3] = {3, 2, 4}, block[3] = {8, 4, 2};
  enum { ITEMS = 24 * 8 * 8, WORDS = 20 };
  db_buffer *out = db_alloc(dev, ITEMS * WORDS * 4, 0);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  OK(db_queue_exec(q, p, &(struct db_arg){.buffer = out}, 1, grid, block));
  run(q);
  uint32_t *got = malloc(ITEMS * WORDS * 4), *w = got;
  OK(db_buffer_read(out, 0, got, ITEMS * WORDS * 4));
  for (uint32_t z = 0; z < 8; z++)
    for (uint32_t y = 0; y < 8; y++)
      for (uint32_t x = 0; x < 24; x++, w += WORDS) {
        const uint32_t id[3] = {x, y, z};
        assert_int_equal(w[0], 3);
        for (int d = 0; d < 3; d++) {
          assert_int_equal(w[1 + d], id[d]);
          assert_int_equal(w[4 + d], id[d] % block[d]);
          assert_int_equal(w[7 + d], id[d] / block[d]);
          assert_int_equal(w[10 + d], block[d]);
          assert_int_equal(w[13 + d], grid[d]);
          assert_int_equal(w[16 + d], grid[d] * block[d]);
        }
        assert_int_equal(w[19], 0);
      }
  free(got);
  db_queue_release(q);
  db_buffer_release(out);
  db_program_release(p);
}

static uint32_t scratch_reference(uint32_t in) {
  uint32_t a[96];
  uint8_t c[72];
  for (uint32_t k = 0; k < 96; k++) a[k] = in * (k + 1);
  for (uint32_t k = 0; k < 72; k++) c[k] = (uint8_t)(in >> (k & 15));
  for (uint32_t k = 0; k < 64; k++) {
    uint32_t p = (a[k % 96] >> 7) % 96, q = (a[p] >> 3) % 96, t = a[p];
    a[p] = a[q] + c[(q + k) % 72];
    a[q] = t ^ k;
    c[p % 72] = (uint8_t)(c[p % 72] + t);
  }
  uint32_t h = 0;
  for (uint32_t k = 0; k < 96; k++) h = h * 31 + a[k];
  for (uint32_t k = 0; k < 72; k++) h = h * 33 + c[k];
  return h;
}

static void private_memory(void **state) {
  db_program *p = load("tests/kernels/scratch", "scratch");
  enum { N = 20000 };
  uint32_t *h = malloc(N * 4);
  for (uint32_t i = 0; i < N; i++) h[i] = i * 2654435761u;
  db_buffer *in = db_import_host(dev, h, N * 4), *out = db_alloc(dev, N * 4, DB_BUFFER_HOST);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  OK(db_queue_exec(q, p, (struct db_arg[]){{.buffer = out}, {.buffer = in}, {.bits = N}}, 3,
                   (uint32_t[3]){(N + 127) / 128, 1, 1}, (uint32_t[3]){128, 1, 1}));
  run(q);
  const uint32_t *got = db_buffer_host(out);
  for (uint32_t i = 0; i < N; i++)
    if (got[i] != scratch_reference(h[i])) fail_msg("element %u is %x, not %x", i, got[i], scratch_reference(h[i]));
  db_queue_release(q);
  db_buffer_release(in);
  db_buffer_release(out);
  db_program_release(p);
  free(h);
}

static void launch_errors(void **state) {
  db_program *p = load("bench/kernels/saxpy", "saxpy");
  db_buffer *b = db_alloc(dev, 64, 0);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  struct db_arg args[4] = {{.buffer = b}, {.buffer = b}, {.bits = 0}, {.bits = 0}};
  const uint32_t one[3] = {1, 1, 1};
  const struct {
    uint32_t grid[3], block[3];
    const char *says;
  } cases[] = {
      {{1, 1, 1}, {2048, 1, 1}, "work-items"},      {{1, 1, 1}, {64, 64, 1}, "work-items"},
      {{1, 1, 1}, {65536, 65536, 1}, "work-items"}, {{0x40000000, 1, 1}, {64, 1, 1}, "2^32"},
      {{1, 0, 1}, {64, 1, 1}, "at least 1"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(db_queue_exec(q, p, args, 4, cases[i].grid, cases[i].block), -EINVAL);
    assert_non_null(strstr(db_error(), cases[i].says));
    assert_non_null(strstr(db_error(), "saxpy"));
    assert_int_equal(db_queue_submit(q, NULL), -EINVAL);
  }
  args[3].buffer = b; /* n is a number */
  assert_int_equal(db_queue_exec(q, p, args, 4, one, one), -EINVAL);
  assert_non_null(strstr(db_error(), "not a buffer"));
  db_queue_submit(q, NULL);
  size_t n = read_image("bench/kernels/saxpy");
  assert_null(db_program_load(dev, image, n, "nothing", NULL, 0));
  assert_non_null(strstr(db_error(), "saxpy")); /* lists the existing kernels */
  assert_null(db_program_load(dev, image, n / 2, NULL, NULL, 0));
  assert_null(db_program_load(dev, NULL, 0, NULL, NULL, 0));
  db_queue_release(q);
  db_buffer_release(b);
  db_program_release(p);
}

/* ---- queues ---- */

/* Copy and compute queues pass work to each other without the host. */
static void queues_wait_for_each_other(void **state) {
  enum { N = 4096, ROUNDS = 20 };
  db_program *p = load("bench/kernels/saxpy", "saxpy");
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
                     (uint32_t[3]){N / 64, 1, 1}, (uint32_t[3]){64, 1, 1}));
    OK(db_queue_signal(compute, done, r));
    OK(db_queue_submit(compute, NULL));
    OK(db_queue_copy(copy, dx, 0, hx, 0, N * 4));
    OK(db_queue_copy(copy, dy, 0, hy, 0, N * 4));
    OK(db_queue_signal(copy, ready, r));
    OK(db_queue_wait(copy, done, r));
    OK(db_queue_copy(copy, hy, 0, dy, 0, N * 4));
    OK(db_queue_submit(copy, &when));
  }
  OK(db_wait(db_queue_timeline(copy), when, 60 * SECOND));
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

/* Packets that fill the ring several times, in one submission and in many; everything is released immediately. */
static void many_launches(void **state) {
  db_program *p = load("bench/kernels/saxpy", "saxpy");
  static float x[64], y[64];
  for (int i = 0; i < 64; i++) x[i] = (float)i, y[i] = 0;
  db_buffer *bx = db_import_host(dev, x, sizeof x), *by = db_import_host(dev, y, sizeof y);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  float a = 1;
  struct db_arg args[] = {{.buffer = by}, {.buffer = bx}, {.data = &a}, {.bits = 64}};
  enum { TOGETHER = 10000, ALONE = 3000 };
  struct db_device_counters before, after;
  db_device_counters(dev, &before);
  for (int i = 0; i < TOGETHER; i++) {
    OK(db_queue_exec(q, p, args, 4, (uint32_t[3]){1, 1, 1}, (uint32_t[3]){64, 1, 1}));
    OK(db_queue_memory_barrier(q));
  }
  uint64_t when;
  OK(db_queue_submit(q, &when));
  for (int i = 0; i < ALONE; i++) {
    OK(db_queue_memory_barrier(q));
    OK(db_queue_exec(q, p, args, 4, (uint32_t[3]){1, 1, 1}, (uint32_t[3]){64, 1, 1}));
    OK(db_queue_submit(q, &when));
  }
  db_signal *timeline = db_signal_retain(db_queue_timeline(q));
  db_buffer_release(bx);
  db_buffer_release(by);
  db_program_release(p);
  db_queue_release(q);
  OK(db_wait(timeline, when, 60 * SECOND));
  db_signal_release(timeline);
  for (int i = 0; i < 64; i++) assert_float_equal(y[i], (float)((TOGETHER + ALONE) * i), 0);
  db_device_counters(dev, &after);
  assert_int_equal(after.kernels - before.kernels, TOGETHER + ALONE);
  assert_int_equal(after.doorbells - before.doorbells, 1 + ALONE);
}

/* Two GPUs of one machine: memory, signals and kernels of one, used by the other. */
static void two_gpus(void **state) {
  db_device *other = db_open(DEVICE ":1");
  if (!other) fail_msg("%s", db_error());
  assert_ptr_not_equal(other, dev);
  assert_string_equal(db_device_name(other), DEVICE ":1");
  enum { N = 100000 };
  uint8_t *in = malloc(N), *out = calloc(1, N);
  for (int i = 0; i < N; i++) in[i] = (uint8_t)(i * 31);
  db_buffer *a = db_alloc(dev, N, 0), *b = db_alloc(other, N, 0);
  db_signal *s = db_signal_new(dev);
  OK(db_buffer_write(a, 0, in, N));
  db_queue *qa = db_queue_new(dev, DB_QUEUE_COPY), *qb = db_queue_new(other, DB_QUEUE_COPY);
  uint64_t when;
  OK(db_queue_wait(qb, s, 5));
  OK(db_queue_copy(qb, b, 0, a, 0, N));
  OK(db_queue_submit(qb, &when));
  OK(db_queue_signal(qa, s, 5));
  OK(db_queue_submit(qa, NULL));
  OK(db_wait(db_queue_timeline(qb), when, 10 * SECOND));
  OK(db_buffer_read(b, 0, out, N));
  assert_memory_equal(in, out, N);
  db_device *cpu = db_open("CPU");
  db_buffer *c = db_alloc(cpu, N, 0);
  OK(db_queue_copy(qb, c, 0, a, 0, N));
  OK(db_queue_submit(qb, &when));
  OK(db_wait(db_queue_timeline(qb), when, 10 * SECOND));
  assert_memory_equal(in, db_buffer_host(c), N);
  db_buffer_release(c);
  db_close(cpu);
  db_buffer_release(a);
  db_buffer_release(b);
  db_signal_release(s);
  db_queue_release(qa);
  db_queue_release(qb);
  db_close(other);
  free(in);
  free(out);
  assert_null(db_open(DEVICE ":2"));
  assert_non_null(strstr(db_error(), "there are 2 GPUs"));
}

/* ---- faults: each on a separate machine, which is then lost ---- */

static db_device *own_machine(int n) {
  char name[128];
  snprintf(name, sizeof name, "EMU+AMD:gfx1100%s%s", n > 0 ? ",gfx1100" : "", n > 1 ? ",gfx1100" : "");
  db_device *d = db_open(name);
  if (!d) fail_msg("%s", db_error());
  return d;
}

static void faulting(db_device *d, db_program *p, struct db_arg *args, const char *const says[], int n) {
  db_queue *q = db_queue_new(d, DB_QUEUE_COMPUTE);
  uint64_t when;
  OK(db_queue_exec(q, p, args, 4, (uint32_t[3]){4, 1, 1}, (uint32_t[3]){64, 1, 1}));
  OK(db_queue_submit(q, &when));
  assert_int_equal(db_wait(db_queue_timeline(q), when, 20 * SECOND), -EIO);
  for (int i = 0; i < n; i++)
    if (!strstr(db_error(), says[i])) fail_msg("\"%s\" does not contain \"%s\"", db_error(), says[i]);
  char first[2048];
  snprintf(first, sizeof first, "%s", db_error());
  assert_int_equal(db_queue_submit(q, NULL), -EIO);
  assert_string_equal(db_error(), first);
  db_queue_release(q);
}

static void unmapped_address(void **state) {
  db_device *d = own_machine(1);
  dev = d;
  db_program *p = load("bench/kernels/saxpy", "saxpy");
  db_buffer *b = db_alloc(d, 4096, 0);
  float a = 1;
  struct db_arg args[4] = {{.buffer = b}, {.bits = 0xdead0000}, {.data = &a}, {.bits = 256}};
  static const char *const says[] = {"memory access fault at 0xdead0000", "page not mapped", "saxpy", "global_load"};
  faulting(d, p, args, says, 4);
  db_program_release(p);
  db_buffer_release(b);
  db_close(d);
  /* The same name opens a new machine, which works. */
  d = own_machine(1);
  b = db_alloc(d, 4096, 0);
  uint32_t v = 7, got = 0;
  OK(db_buffer_write(b, 0, &v, 4));
  OK(db_buffer_read(b, 0, &got, 4));
  assert_int_equal(got, 7);
  db_buffer_release(b);
  db_close(d);
}

static void illegal_instruction(void **state) {
  db_device *d = own_machine(2);
  db_program *p = load_patched(d, "bench/kernels/saxpy", "saxpy", 0xbfff0000); /* SOPP has no operation 127 */
  struct db_arg args[4] = {0};
  static const char *const says[] = {"saxpy", "bfff0000"};
  faulting(d, p, args, says, 2);
  db_program_release(p);
  db_close(d);
}

static void endless_kernel(void **state) {
  db_device *d = own_machine(1);
  db_program *p = load_patched(d, "bench/kernels/saxpy", "saxpy", 0xbfa0ffff); /* s_branch to itself */
  db_queue *q = db_queue_new(d, DB_QUEUE_COMPUTE);
  struct db_arg args[4] = {0};
  uint64_t when;
  OK(db_queue_exec(q, p, args, 4, (uint32_t[3]){1, 1, 1}, (uint32_t[3]){64, 1, 1}));
  OK(db_queue_submit(q, &when));
  assert_int_equal(db_wait(db_queue_timeline(q), when, SECOND * 6 / 10), -ETIMEDOUT);
  assert_non_null(strstr(db_error(), "compute queue did not reach 1 within 0.600 s: it is at 0"));
  assert_non_null(strstr(db_error(), "saxpy"));
  db_program_release(p);
  db_queue_release(q);
  struct timespec t0, t1;
  clock_gettime(CLOCK_MONOTONIC, &t0);
  db_close(d); /* closing stops the kernel */
  clock_gettime(CLOCK_MONOTONIC, &t1);
  assert_in_range(t1.tv_sec - t0.tv_sec, 0, 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(opens_machines_by_name), cmocka_unit_test(copies),
      cmocka_unit_test(imported_memory),        cmocka_unit_test(saxpy),
      cmocka_unit_test(hidden_arguments),       cmocka_unit_test(private_memory),
      cmocka_unit_test(launch_errors),          cmocka_unit_test(queues_wait_for_each_other),
      cmocka_unit_test(many_launches),          cmocka_unit_test(two_gpus),
  };
  const struct CMUnitTest faults[] = {
      cmocka_unit_test(unmapped_address),
      cmocka_unit_test(illegal_instruction),
      cmocka_unit_test(endless_kernel),
  };
  int failed = cmocka_run_group_tests(tests, open_device, close_device);
  return failed + cmocka_run_group_tests(faults, NULL, NULL);
}
