/* Memory of the NVIDIA backend on the emulated machine: copies of every kind, peers, limits, and leaks when devices are
 * opened and closed. */
#include "hcq/nv/nv.h"

#define DEVICE "EMU+NV:sm_90"
#include "device_test.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "tests/sanitizers.h"

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static void fill(uint8_t *p, size_t n, uint32_t seed) {
  for (size_t i = 0; i < n; i++) p[i] = (uint8_t)((seed = seed * 1664525 + 1013904223) >> 24);
}

static void copy(db_queue *q, db_buffer *dst, size_t at, db_buffer *src, size_t from, size_t n) {
  uint64_t when;
  OK(db_queue_copy(q, dst, at, src, from, n));
  OK(db_queue_submit(q, &when));
  OK(db_wait(db_queue_timeline(q), when, 60 * SECOND));
}

static db_buffer *alloc(db_device *on, size_t n, unsigned flags) {
  db_buffer *b = db_alloc(on, n, flags);
  if (!b) fail_msg("%s", db_error());
  return b;
}

static void every_kind_to_every_kind(void **state) {
  enum { N = 70001, KINDS = 4 };
  static uint8_t mine[N + 20], want[N], got[N];
  db_queue *q = db_queue_new(dev, DB_QUEUE_COPY);
  for (int i = 0; i < KINDS; i++)
    for (int j = 0; j < KINDS; j++) {
      db_buffer *b[2];
      for (int k = 0; k < 2; k++) {
        int kind = k ? j : i;
        b[k] = kind == 3 && k == j % 2 ? db_import_host(dev, mine + 13, N)
               : kind == 3             ? alloc(dev, N, 0)
                                       : alloc(dev, N,
                                   kind == 1   ? DB_BUFFER_CPU_MAP
                                               : kind == 2 ? DB_BUFFER_HOST
                                                           : 0);
        if (!b[k]) fail_msg("%s", db_error());
      }
      fill(want, N, (uint32_t)(i * KINDS + j));
      OK(db_buffer_write(b[0], 0, want, N));
      copy(q, b[1], 3, b[0], 5, N - 5);
      OK(db_buffer_read(b[1], 3, got, N - 5));
      assert_memory_equal(got, want + 5, N - 5);
      for (int k = 0; k < 2; k++) {
        if (db_buffer_host(b[k])) { /* the host reads the same */
          const uint8_t *p = db_buffer_host(b[k]);
          assert_memory_equal(p + (k ? 3 : 5), want + 5, N - 5);
        }
        db_buffer_release(b[k]);
      }
    }
  db_queue_release(q);
}

static void imports_of_the_same_pages(void **state) {
  uint8_t *page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  db_device *other = db_open(DEVICE ":1");
  assert_non_null(other);
  db_buffer *a = db_import_host(dev, page + 10, 5000), *b = db_import_host(dev, page + 3000, 3000),
            *c = db_import_host(other, page, 3 * 4096);
  if (!a || !b || !c) fail_msg("%s", db_error());
  db_buffer *x = alloc(dev, 5000, 0);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COPY);
  fill(page, 5010, 3);
  copy(q, x, 0, a, 0, 5000);
  copy(q, b, 2500, x, 0, 500); /* page + 5500, which a does not reach */
  assert_memory_equal(page + 5500, page + 10, 500);
  db_queue *q2 = db_queue_new(other, DB_QUEUE_COPY);
  copy(q2, c, 7000, c, 5500, 500);
  assert_memory_equal(page + 7000, page + 10, 500);
  db_queue_release(q);
  db_queue_release(q2);
  db_buffer_release(a);
  db_buffer_release(b);
  db_buffer_release(c);
  db_buffer_release(x);
  db_close(other);
  munmap(page, 3 * 4096);
  assert_null(db_import_host(dev, (void *)0x10000, 4096)); /* not mapped */
  assert_non_null(strstr(db_error(), DEVICE ": allocating 4096 bytes of imported host memory"));
}

static void peers_both_ways(void **state) {
  enum { N = 300000 };
  static uint8_t want[N], got[N];
  db_device *other = db_open(DEVICE ":1");
  assert_non_null(other);
  db_buffer *a = alloc(dev, N, 0), *b = alloc(other, N, 0);
  fill(want, N, 9);
  OK(db_buffer_write(a, 0, want, N));
  db_queue *pull = db_queue_new(other, DB_QUEUE_COPY), *push = db_queue_new(dev, DB_QUEUE_COPY);
  uint64_t when;
  OK(db_queue_copy(pull, b, 0, a, 0, N / 2)); /* the other GPU reads this GPU's memory */
  OK(db_queue_submit(pull, &when));
  OK(db_queue_wait(push, db_queue_timeline(pull), when)); /* GPU waits for GPU */
  OK(db_queue_copy(push, b, N / 2, a, N / 2, N / 2));
  OK(db_queue_submit(push, &when));
  OK(db_wait(db_queue_timeline(push), when, 60 * SECOND));
  OK(db_buffer_read(b, 0, got, N));
  assert_memory_equal(got, want, N);
  db_queue_release(pull);
  db_queue_release(push);
  db_buffer_release(a); /* while the other GPU still maps it */
  db_buffer_release(b);
  db_close(other);

  other = db_open(DEVICE ":1"); /* either one sets up peer access again */
  assert_non_null(other);
  a = alloc(dev, N, 0);
  b = alloc(other, N, 0);
  OK(db_buffer_write(a, 0, want, N));
  pull = db_queue_new(other, DB_QUEUE_COPY);
  copy(pull, b, 0, a, 0, N);
  OK(db_buffer_read(b, 0, got, N));
  assert_memory_equal(got, want, N);
  db_queue_release(pull);
  db_buffer_release(a);
  db_buffer_release(b);
  db_close(other);
}

static void another_machine(void **state) {
  db_device *cpu = db_open("CPU");
  db_buffer *a = alloc(cpu, 4096, 0), *b = alloc(dev, 4096, 0);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COPY);
  memset(db_buffer_host(a), 5, 4096);
  copy(q, b, 0, a, 0, 4096);
  uint8_t got[4096];
  OK(db_buffer_read(b, 0, got, sizeof got));
  assert_memory_equal(got, db_buffer_host(a), sizeof got);
  db_queue_release(q);
  q = db_queue_new(cpu, DB_QUEUE_COPY);
  assert_int_equal(db_queue_copy(q, a, 0, b, 0, 4096), -EXDEV);
  assert_non_null(strstr(db_error(), "not supported: access to memory of " DEVICE " that is not host memory"));
  db_queue_release(q);
  db_buffer_release(a);
  db_buffer_release(b);
  db_close(cpu);
}

static void limits(void **state) {
  assert_null(db_alloc(dev, 1ull << 45, 0));
  assert_non_null(strstr(db_error(), DEVICE ": "));
  assert_null(db_alloc(dev, 200ull << 30, 0));
  if (!strstr(db_error(), "out of memory, ")) fail_msg("%s", db_error());
  db_buffer *b = alloc(dev, 1ull << 30, 0); /* uses no memory until it is written */
  uint8_t v = 77, got = 0;
  OK(db_buffer_write(b, (1ull << 30) - 1, &v, 1));
  OK(db_buffer_read(b, (1ull << 30) - 1, &got, 1));
  assert_int_equal(got, 77);
  assert_int_equal(db_buffer_address(b) % (2 << 20), 0);
  db_buffer_release(b);
}

/* Memory that the hardware addresses with 40 bits, and addresses that nothing may overlap. */
static void respects_the_limits_of_addresses(void **state) {
  const struct nv_device *nv = nv_device(dev);
  const struct nv_machine *m = nv->machine;
  assert_int_equal(m->shared_window % (4ull << 30), 0);
  assert_int_equal(m->local_window % (4ull << 30), 0);
  for (int i = 0; i < 2; i++) {
    assert_true(nv->rings[i].fifo.va + nv->rings[i].fifo.size <= NV_LOW_END);
    assert_true(nv->rings[i].push.va + nv->rings[i].push.size <= NV_LOW_END);
    assert_true(nv->rings[i].context.va + nv->rings[i].context.size <= NV_LOW_END);
  }
  db_buffer *all[300];
  for (int i = 0; i < 300; i++) {
    size_t n = (size_t)(i % 7 + 1) << (i % 17);
    all[i] = alloc(dev, n, i % 3 == 0 ? DB_BUFFER_HOST : 0);
    uint64_t at = db_buffer_address(all[i]),
             lowest = m->shared_window < m->local_window ? m->shared_window : m->local_window;
    assert_true(at + n <= lowest || at >= lowest + (8ull << 30));
    for (int j = 0; j < i; j++) {
      uint64_t other = db_buffer_address(all[j]);
      assert_true(at + n <= other || other + db_buffer_size(all[j]) <= at);
    }
  }
  for (int i = 0; i < 300; i++) db_buffer_release(all[i * 7 % 300]);
}

static unsigned mappings(void) {
  unsigned n = 0;
  FILE *f = fopen("/proc/self/maps", "r");
  for (int c; f && (c = getc(f)) != EOF;) n += c == '\n';
  if (f) fclose(f);
  return n;
}

static void devices_come_and_go(void **state) {
  close_device(state);
  unsigned first = 0;
  for (int i = 0; i < 12; i++) {
    open_device(state);
    assert_non_null(dev);
    db_buffer *b = alloc(dev, 100000, i & 1 ? DB_BUFFER_HOST : 0);
    uint32_t v = 1234567u * (uint32_t)i, got = 0;
    OK(db_buffer_write(b, 96, &v, 4));
    OK(db_buffer_read(b, 96, &got, 4));
    assert_int_equal(got, v);
    db_buffer_release(b);
    close_device(state);
    if (i == 3) first = mappings();
  }
  /* Thread stacks, arenas and mappings of ThreadSanitizer's runtime may be mapped and unmapped. */
#ifndef THREAD_SANITIZER
  assert_in_range(mappings(), 1, first + 8);
#else
  (void)first;
#endif
  open_device(state);
  assert_non_null(dev);
}

static void stamps_lie_in_between(void **state) {
  db_queue *q = db_queue_new(dev, DB_QUEUE_COPY);
  db_signal *first = db_signal_new(dev), *second = db_signal_new(dev);
  db_buffer *a = alloc(dev, 8 << 20, 0), *b = alloc(dev, 8 << 20, 0);
  uint64_t before = now_ns(), when;
  OK(db_queue_timestamp(q, first));
  OK(db_queue_copy(q, a, 0, b, 0, 8 << 20));
  OK(db_queue_timestamp(q, second));
  OK(db_queue_submit(q, &when));
  OK(db_wait(db_queue_timeline(q), when, 60 * SECOND));
  uint64_t after = now_ns(), t1 = db_signal_time_ns(first), t2 = db_signal_time_ns(second);
  assert_true(t1 < t2);
  /* the clocks are read in pairs, between which the scheduler may interrupt */
  assert_in_range(t1, before - SECOND / 10, after + SECOND / 10);
  assert_in_range(t2, before - SECOND / 10, after + SECOND / 10);
  db_signal_release(first);
  db_signal_release(second);
  db_buffer_release(a);
  db_buffer_release(b);
  db_queue_release(q);
}

int main(void) {
#define T(name) cmocka_unit_test(name)
  const struct CMUnitTest tests[] = {
      T(every_kind_to_every_kind),
      T(imports_of_the_same_pages),
      T(peers_both_ways),
      T(another_machine),
      T(limits),
      T(respects_the_limits_of_addresses),
      T(devices_come_and_go),
      T(stamps_lie_in_between),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
