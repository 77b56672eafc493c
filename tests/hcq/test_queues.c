/* Several queues of a kind on one device: they run at the same time and wait for each other only where asked to. */
#include "hcq/hcq.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/ok.h"

static const struct machine {
  const char *name, *relay, *saxpy;
} machines[] = {
    {"EMU+AMD:gfx1100", KERNELS_DIR "/tests/kernels/relay.gfx1100.co", KERNELS_DIR "/bench/kernels/saxpy.gfx1100.co"},
    {"EMU+NV:sm_90", DATA_DIR "/nv/relay.cubin", DATA_DIR "/../../bench/kernels/saxpy.sm_90.cubin"},
};
#define FOR_MACHINES for (const struct machine *m = machines; m < machines + sizeof machines / sizeof *machines; m++)
static const uint32_t one[3] = {1, 1, 1}, block[3] = {64, 1, 1};

static db_device *open_device(const char *name) {
  db_device *dev = db_open(name);
  if (!dev) fail_msg("%s", db_error());
  return dev;
}
static db_queue *queue(db_device *dev, enum db_queue_kind kind, unsigned index) {
  db_queue *q = db_queue_new_at(dev, kind, index);
  if (!q) fail_msg("%s", db_error());
  return q;
}
static db_program *load(db_device *dev, const char *path, const char *kernel) {
  static char image[1 << 20];
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("no %s", path);
  size_t n = fread(image, 1, sizeof image, f);
  fclose(f);
  db_program *p = db_program_load(dev, image, n, kernel, NULL, 0);
  if (!p) fail_msg("%s", db_error());
  return p;
}
static db_buffer *zeroes(db_device *dev, size_t bytes) {
  db_buffer *b = db_alloc(dev, bytes, DB_BUFFER_HOST);
  assert_non_null(b);
  memset(db_buffer_host(b), 0, bytes);
  return b;
}
static void wait_for(db_queue *q, uint64_t when) { OK(db_wait(db_queue_timeline(q), when, 20 * SECOND)); }

/* Sets flags[set] to value, then waits until flags[wait] has it too. */
static void relay(db_queue *q, db_program *p, db_buffer *flags, unsigned wait, unsigned set, uint32_t value) {
  struct db_arg args[] = {{.buffer = flags, .bits = wait * 64}, {.buffer = flags, .bits = set * 64}, {.bits = value}};
  OK(db_queue_exec(q, p, args, 3, one, block));
}

static void counts_queues(void **state) {
  static const struct {
    const char *name, *says;
    unsigned compute, copy;
  } cases[] = {{"CPU", "CPU: compute queue 1; there is 1, numbered from 0", 1, 1},
               {"EMU+AMD:gfx1100", "compute queue 4; there are 4, numbered from 0", 4, 2},
               {"EMU+NV:sm_90", "compute queue 4; there are 4, numbered from 0", 4, 4}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    db_device *dev = open_device(cases[i].name);
    assert_int_equal(db_device_queues(dev, DB_QUEUE_COMPUTE), cases[i].compute);
    assert_int_equal(db_device_queues(dev, DB_QUEUE_COPY), cases[i].copy);
    assert_null(db_queue_new_at(dev, DB_QUEUE_COMPUTE, cases[i].compute));
    if (!strstr(db_error(), cases[i].says)) fail_msg("%s", db_error());
    assert_null(db_queue_new_at(dev, DB_QUEUE_COPY, 99));
    db_queue *first = db_queue_new(dev, DB_QUEUE_COMPUTE), *same = queue(dev, DB_QUEUE_COMPUTE, 0);
    assert_ptr_equal(db_queue_timeline(first), db_queue_timeline(same));
    db_queue_release(first);
    db_queue_release(same);
    db_close(dev);
  }
}

/* Each kernel ends when the other one runs. */
static void kernels_overlap(void **state) {
  FOR_MACHINES {
    db_device *dev = open_device(m->name);
    db_program *p = load(dev, m->relay, "relay");
    db_buffer *flags = zeroes(dev, 128);
    db_queue *a = queue(dev, DB_QUEUE_COMPUTE, 0);
    for (unsigned i = 1; i < db_device_queues(dev, DB_QUEUE_COMPUTE); i++) {
      db_queue *b = queue(dev, DB_QUEUE_COMPUTE, i);
      assert_ptr_not_equal(db_queue_timeline(a), db_queue_timeline(b));
      uint64_t when[2];
      relay(a, p, flags, 0, 1, i);
      relay(b, p, flags, 1, 0, i);
      OK(db_queue_submit(a, &when[0]));
      OK(db_queue_submit(b, &when[1]));
      wait_for(a, when[0]);
      wait_for(b, when[1]);
      db_queue_release(b);
    }
    db_queue_release(a);
    db_buffer_release(flags);
    db_program_release(p);
    db_close(dev);
  }
}

/* A kernel ends when another one sets a flag, and that one waits for a copy: so the copy ran meanwhile. Their times
 * show the same. */
static void a_copy_overlaps_a_kernel(void **state) {
  enum { BEGIN, END, STAMPS };
  FOR_MACHINES {
    db_device *dev = open_device(m->name);
    db_program *p = load(dev, m->relay, "relay");
    db_buffer *flags = zeroes(dev, 128), *from = zeroes(dev, 4096), *to = zeroes(dev, 4096);
    memset(db_buffer_host(from), 42, 4096);
    for (unsigned i = 0; i < db_device_queues(dev, DB_QUEUE_COPY); i++) {
      db_queue *kernel = queue(dev, DB_QUEUE_COMPUTE, 0), *teller = queue(dev, DB_QUEUE_COMPUTE, 1),
               *copy = queue(dev, DB_QUEUE_COPY, i);
      db_signal *started = db_signal_new(dev), *copied = db_signal_new(dev);
      db_buffer *times[2] = {zeroes(dev, STAMPS * DB_STAMP_BYTES), zeroes(dev, STAMPS * DB_STAMP_BYTES)};
      uint64_t when[3], t[2][STAMPS];
      OK(db_queue_stamp(kernel, times[0], BEGIN * DB_STAMP_BYTES));
      OK(db_queue_signal(kernel, started, 1));
      relay(kernel, p, flags, 0, 1, i + 1);
      OK(db_queue_stamp(kernel, times[0], END * DB_STAMP_BYTES));
      OK(db_queue_wait(copy, started, 1));
      OK(db_queue_stamp(copy, times[1], BEGIN * DB_STAMP_BYTES));
      OK(db_queue_copy(copy, to, 0, from, 0, 4096));
      OK(db_queue_stamp(copy, times[1], END * DB_STAMP_BYTES));
      OK(db_queue_signal(copy, copied, 1));
      OK(db_queue_wait(teller, copied, 1));
      relay(teller, p, flags, 1, 0, i + 1);
      OK(db_queue_submit(teller, &when[2]));
      OK(db_queue_submit(copy, &when[1]));
      OK(db_queue_submit(kernel, &when[0]));
      OK(db_device_synchronize(dev, 20 * SECOND));
      assert_true(db_signal_value(db_queue_timeline(teller)) >= when[2]);
      assert_true(db_signal_value(db_queue_timeline(copy)) >= when[1]);
      for (int k = 0; k < 2; k++)
        for (int s = 0; s < STAMPS; s++) t[k][s] = db_stamp_time_ns(dev, times[k], (size_t)s * DB_STAMP_BYTES);
      assert_true(t[0][BEGIN] && t[0][BEGIN] <= t[1][BEGIN]);
      assert_true(t[1][BEGIN] <= t[1][END] && t[1][END] <= t[0][END]);
      assert_memory_equal(db_buffer_host(to), db_buffer_host(from), 4096);
      memset(db_buffer_host(to), 0, 4096);
      for (int k = 0; k < 2; k++) db_buffer_release(times[k]);
      db_signal_release(started);
      db_signal_release(copied);
      db_queue_release(kernel);
      db_queue_release(teller);
      db_queue_release(copy);
    }
    db_buffer_release(flags);
    db_buffer_release(from);
    db_buffer_release(to);
    db_program_release(p);
    db_close(dev);
  }
}

static uint32_t hashed(uint32_t in) {
  uint32_t a[64], h = 0;
  for (uint32_t k = 0; k < 64; k++) a[k] = in * (k + 1);
  for (uint32_t k = 0; k < 64; k++) a[(a[k] >> 7) % 64] += a[(a[k] >> 3) % 64] ^ k;
  for (uint32_t k = 0; k < 64; k++) h = h * 31 + a[k];
  return h;
}

/* Kernels with private memory, on all queues at the same time: no two share it. Blocking reads run after all of them.
 */
static void queues_have_private_memory(void **state) {
  enum { N = 1024, ROUNDS = 4, QUEUES = 3 };
  FOR_MACHINES {
    db_device *dev = open_device(m->name);
    db_program *p = load(dev, m->relay, "scratch");
    db_queue *q[QUEUES];
    db_buffer *in[QUEUES], *out[QUEUES];
    for (unsigned i = 0; i < QUEUES; i++) {
      q[i] = queue(dev, DB_QUEUE_COMPUTE, i);
      in[i] = zeroes(dev, N * 4);
      out[i] = db_alloc(dev, N * 4, 0);
      for (uint32_t k = 0; k < N; k++) ((uint32_t *)db_buffer_host(in[i]))[k] = (k + 1) * (2654435761u + i);
    }
    for (int r = 0; r < ROUNDS; r++)
      for (unsigned i = 0; i < QUEUES; i++) {
        struct db_arg args[] = {{.buffer = out[i]}, {.buffer = in[i]}, {.bits = N}};
        OK(db_queue_memory_barrier(q[i]));
        OK(db_queue_exec(q[i], p, args, 3, (uint32_t[3]){N / 64, 1, 1}, block));
        OK(db_queue_submit(q[i], NULL));
      }
    for (unsigned i = QUEUES; i-- > 0;) {
      static uint32_t got[N];
      OK(db_buffer_read(out[i], 0, got, sizeof got));
      for (uint32_t k = 0; k < N; k++) assert_int_equal(got[k], hashed(((uint32_t *)db_buffer_host(in[i]))[k]));
      db_buffer_release(in[i]);
      db_buffer_release(out[i]);
      db_queue_release(q[i]);
    }
    db_program_release(p);
    db_close(dev);
  }
}

/* A kernel on a later queue reads unmapped memory: the device is lost for all of its queues, other devices are not. */
static void a_fault_on_a_later_queue(void **state) {
  FOR_MACHINES {
    char second[64];
    snprintf(second, sizeof second, "%s:1", m->name);
    db_device *dev = open_device(m->name), *other = open_device(second);
    db_program *saxpy = load(dev, m->saxpy, "saxpy");
    db_queue *a = queue(dev, DB_QUEUE_COMPUTE, 0), *b = queue(dev, DB_QUEUE_COMPUTE, 2);
    db_buffer *x = zeroes(dev, 4096);
    float factor = 1;
    struct db_arg args[] = {{.buffer = x, .bits = UINT64_C(1) << 44}, {.buffer = x}, {.data = &factor}, {.bits = 1000}};
    uint64_t when;
    OK(db_queue_exec(b, saxpy, args, 4, (uint32_t[3]){16, 1, 1}, block));
    OK(db_queue_submit(b, &when));
    assert_int_equal(db_wait(db_queue_timeline(b), when, 20 * SECOND), -EIO);
    if (!strstr(db_error(), "saxpy")) fail_msg("%s", db_error());
    assert_int_equal(db_queue_submit(a, &when), -EIO);
    assert_null(db_queue_new_at(dev, DB_QUEUE_COMPUTE, 1));
    db_queue_release(a);
    db_queue_release(b);
    db_buffer_release(x);
    db_program_release(saxpy);
    db_close(dev);
    db_queue *fine = queue(other, DB_QUEUE_COMPUTE, 1);
    OK(db_queue_submit(fine, &when));
    wait_for(fine, when);
    db_queue_release(fine);
    db_close(other);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counts_queues),
      cmocka_unit_test(kernels_overlap),
      cmocka_unit_test(a_copy_overlaps_a_kernel),
      cmocka_unit_test(queues_have_private_memory),
      cmocka_unit_test(a_fault_on_a_later_queue),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
