/* Devices of different machines in one process: waits and signals in either direction without the host, copies through
 * host memory, lifetimes of imports, and losses. */
#include "hcq/backend.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/ok.h"

/* sm_86 has semaphores only at 40-bit addresses; the names of the last two make them separate machines. */
static const char *const names[] = {"CPU", "EMU+AMD:gfx1100", "EMU+NV:sm_86", "EMU+AMD:gfx1100,gfx1100,gfx1100",
                                    "EMU+NV:sm_90"};
enum { MACHINES = sizeof names / sizeof *names };
static db_device *dev[MACHINES];

static void open_all(void) {
  for (int i = 0; i < MACHINES; i++)
    if (!(dev[i] = db_open(names[i]))) fail_msg("%s", db_error());
}
static void close_all(void) {
  for (int i = 0; i < MACHINES; i++) db_close(dev[i]);
}

/* A queue of each device, until stampers_close ends. */
static db_queue *mine_of[MACHINES];
static db_queue *mine(int a) {
  if (!mine_of[a]) mine_of[a] = db_queue_new(dev[a], DB_QUEUE_COMPUTE);
  return mine_of[a];
}

#define EACH_PAIR                                                                                                      \
  for (int a = 0; a < MACHINES; a++)                                                                                   \
    for (int b = 0; b < MACHINES; b++)                                                                                 \
      if (a != b)

static void wait_for(db_queue *q, uint64_t when, const char *what, int a, int b) {
  if (db_wait(db_queue_timeline(q), when, 30 * SECOND))
    fail_msg("%s, %s and %s: %s", what, names[a], names[b], db_error());
}

/* Two queues pass a value back and forth; the host checks only the end. */
static void ping_pong(void **state) {
  const uint64_t bounces = getenv("EMU_STRICT") ? 50 : 1000; /* each poll of the host causes a fault there */
  EACH_PAIR for (int kind = 0; kind < 2; kind++) {
    if (a > b) continue;
    db_signal *ping = db_signal_new(dev[a]), *pong = db_signal_new(dev[b]);
    db_queue *qa = db_queue_new(dev[a], DB_QUEUE_COMPUTE), *qb = db_queue_new(dev[b], (enum db_queue_kind)kind);
    for (uint64_t i = 1; i <= bounces; i++) {
      OK(db_queue_wait(qa, pong, i - 1));
      OK(db_queue_signal(qa, ping, i));
      OK(db_queue_wait(qb, ping, i));
      OK(db_queue_signal(qb, pong, i));
    }
    uint64_t wa, wb;
    OK(db_queue_submit(qb, &wb));
    OK(db_queue_submit(qa, &wa));
    wait_for(qa, wa, "ping", a, b);
    wait_for(qb, wb, "pong", a, b);
    assert_int_equal(db_signal_value(ping), bounces);
    assert_int_equal(db_signal_value(pong), bounces);
    db_queue_release(qa);
    db_queue_release(qb);
    db_signal_release(ping);
    db_signal_release(pong);
  }
}

/* A queue waits for another machine's timeline, and none of its work runs before. */
static void timelines(void **state) {
  EACH_PAIR {
    db_signal *gate = db_signal_new(dev[a]), *after = db_signal_new(dev[a]);
    db_queue *qa = db_queue_new(dev[a], DB_QUEUE_COPY), *qb = db_queue_new(dev[b], DB_QUEUE_COMPUTE);
    uint64_t wa, wb;
    OK(db_queue_wait(qa, gate, 1));
    OK(db_queue_submit(qa, &wa));
    OK(db_queue_wait(qb, db_queue_timeline(qa), wa));
    OK(db_queue_signal(qb, after, 7)); /* a signal of the other device, stored by this one */
    OK(db_queue_submit(qb, &wb));
    assert_int_equal(db_wait(db_queue_timeline(qb), wb, SECOND / 200), -ETIMEDOUT);
    assert_int_equal(db_signal_value(after), 0);
    db_signal_set(gate, 1);
    wait_for(qb, wb, "timeline", a, b);
    assert_int_equal(db_signal_value(after), 7);
    db_queue_release(qa);
    db_queue_release(qb);
    db_signal_release(gate);
    db_signal_release(after);
  }
}

static void fill(uint8_t *p, size_t n, uint32_t seed) {
  for (size_t i = 0; i < n; i++) p[i] = (uint8_t)((seed = seed * 1664525 + 1013904223) >> 24);
}

/* From one device's memory through pinned host memory to another's, with their copy queues. */
static void copies(void **state) {
  enum { MOST = 5 << 20 };
  static uint8_t want[MOST], got[MOST + 64], mine[1 << 16];
  static const struct {
    size_t n, from, to, in;
  } cases[] = {{1, 0, 0, 0}, {4097, 3, 1, 7}, {65537, 4095, 5, 1}, {MOST - 13, 9, 11, 2}};
  fill(want, MOST, 5);
  EACH_PAIR for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    size_t n = cases[k].n;
    if (n > 100000 && a + b != 3) continue;
    db_buffer *src = db_alloc(dev[a], MOST, 0), *dst = db_alloc(dev[b], MOST, 0);
    db_buffer *pinned = n + 8 > sizeof mine || k % 2 ? db_alloc(dev[k % 2 ? a : b], n + 8, DB_BUFFER_HOST)
                                                     : db_import_host(dev[a], mine + 5, n + 8);
    if (!src || !dst || !pinned) fail_msg("%s", db_error());
    OK(db_buffer_write(src, 0, want, MOST));
    OK(db_buffer_write(dst, 0, got, MOST));
    db_queue *in = db_queue_new(dev[a], DB_QUEUE_COPY), *out = db_queue_new(dev[b], DB_QUEUE_COPY);
    uint64_t read, written;
    OK(db_queue_wait(out, db_queue_timeline(in), dev[a]->rings[DB_QUEUE_COPY]->submitted + 1));
    OK(db_queue_copy(out, dst, cases[k].to, pinned, cases[k].in, n));
    OK(db_queue_submit(out, &written)); /* the waiting queue is submitted first */
    OK(db_queue_copy(in, pinned, cases[k].in, src, cases[k].from, n));
    OK(db_queue_submit(in, &read));
    wait_for(out, written, "copy", a, b);
    memset(got, 0xee, n + 64);
    OK(db_buffer_read(dst, cases[k].to, got, n));
    assert_memory_equal(got, want + cases[k].from, n);
    memset(got, 0, n + 64);
    db_queue_release(in);
    db_queue_release(out);
    db_buffer_release(src);
    db_buffer_release(dst);
    db_buffer_release(pinned);
  }
}

/* Another machine cannot reach device memory, but the host can reach mapped memory. */
static void what_is_not_reached(void **state) {
  EACH_PAIR {
    if (!a) continue;
    db_buffer *theirs = db_alloc(dev[a], 4096, 0), *mapped = db_alloc(dev[a], 4096, DB_BUFFER_CPU_MAP),
              *mine = db_alloc(dev[b], 4096, 0);
    db_queue *q = db_queue_new(dev[b], DB_QUEUE_COPY);
    assert_int_equal(db_queue_copy(q, mine, 0, theirs, 0, 4096), -EXDEV);
    assert_non_null(strstr(db_error(), "not supported: access to memory of"));
    assert_int_equal(db_queue_submit(q, NULL), -EXDEV);
    if (b)
      assert_int_equal(db_queue_copy(q, mine, 0, mapped, 0, 4096), -EXDEV);
    else {
      uint64_t when;
      memset(db_buffer_host(mapped), 9, 4096);
      OK(db_queue_copy(q, mine, 0, mapped, 0, 4096));
      OK(db_queue_submit(q, &when));
      wait_for(q, when, "the host's copy", a, b);
      assert_int_equal(((uint8_t *)db_buffer_host(mine))[4095], 9);
    }
    db_queue_release(q);
    db_buffer_release(theirs);
    db_buffer_release(mapped);
    db_buffer_release(mine);
  }
}

/* Replays switch to memory of other machines and wait for their signals. */
static void replays(void **state) {
  enum { N = 5000, SLOT_FROM = 1, SLOT_TIME };
  EACH_PAIR {
    if (!b) continue;
    db_buffer *mine = db_alloc(dev[b], N, DB_BUFFER_HOST), *from[2];
    for (int i = 0; i < 2; i++) memset(db_buffer_host(from[i] = db_alloc(dev[a], N, DB_BUFFER_HOST)), i + 1, N);
    db_signal *gate = db_signal_new(dev[a]);
    db_queue *q = db_queue_new(dev[b], DB_QUEUE_COPY), *open = db_queue_new(dev[a], DB_QUEUE_COMPUTE);
    OK(db_queue_wait_slot(q, gate, 0, SLOT_TIME));
    OK(db_queue_copy_slots(q, mine, 0, 0, from[0], 0, SLOT_FROM, N));
    db_recording *r = db_queue_bind(q);
    if (!r) fail_msg("%s", db_error());
    for (uint64_t i = 1; i <= 6; i++) {
      uint64_t when;
      OK(db_recording_set_value(r, SLOT_TIME, i));
      OK(db_recording_set_buffer(r, SLOT_FROM, from[i % 2], 0));
      OK(db_recording_submit(r, &when));
      OK(db_queue_signal(open, gate, i));
      OK(db_queue_submit(open, NULL));
      wait_for(q, when, "replay", a, b);
      assert_int_equal(((uint8_t *)db_buffer_host(mine))[N - 1], i % 2 + 1);
    }
    db_recording_release(r);
    db_queue_release(q);
    db_queue_release(open);
    db_signal_release(gate);
    db_buffer_release(mine);
    for (int i = 0; i < 2; i++) db_buffer_release(from[i]);
  }
}

/* Either side may be closed first; its imports, and imports of its memory, are released. */
static void closing(void **state) {
  for (int order = 0; order < 2; order++)
    for (int m = 1; m < MACHINES; m++) {
      char second[64];
      snprintf(second, sizeof second, "%s:1", names[m]);
      db_device *other = db_open(second);
      if (!other) fail_msg("%s", db_error());
      int b = m == 1 ? 2 : 1;
      db_buffer *mine = db_alloc(dev[b], 4096, DB_BUFFER_HOST), *theirs = db_alloc(other, 4096, DB_BUFFER_HOST);
      db_queue *q = db_queue_new(other, DB_QUEUE_COPY), *back = db_queue_new(dev[b], DB_QUEUE_COPY);
      uint64_t there, when;
      memset(db_buffer_host(mine), 3, 4096);
      OK(db_queue_copy(q, theirs, 0, mine, 0, 4096));
      OK(db_queue_submit(q, &there));
      OK(db_queue_wait(back, db_queue_timeline(q), there));
      OK(db_queue_copy(back, mine, 0, theirs, 0, 2048));
      OK(db_queue_submit(back, &when));
      wait_for(back, when, "there and back", m, b);
      assert_non_null(other->imports);
      if (order) db_buffer_release(mine);
      db_queue_release(back);
      db_queue_release(q);
      db_buffer_release(theirs);
      db_close(other);
      if (order) continue;
      assert_null(mine->imports);
      db_buffer_release(mine);
    }
}

/* Threads with different devices use the same buffer and the same signal of another device. */
enum { THREADS = MACHINES - 1, ROUNDS = 60, SHARED = 9000 };
struct worker {
  db_device *dev;
  db_buffer *from;
  db_signal *gate;
  char failed[256];
};
static int work(struct worker *w) {
  db_queue *q = db_queue_new(w->dev, DB_QUEUE_COPY);
  int err = q ? 0 : -ENOMEM;
  for (int i = 0; i < ROUNDS && !err; i++) {
    db_buffer *to = db_alloc(w->dev, SHARED, DB_BUFFER_HOST);
    uint64_t when;
    if (!to || (err = db_queue_wait(q, w->gate, 1)) || (err = db_queue_copy(q, to, 0, w->from, 0, SHARED)) ||
        (err = db_queue_submit(q, &when)) || (err = db_wait(db_queue_timeline(q), when, 30 * SECOND)))
      err = err ? err : -ENOMEM;
    else if (memcmp(db_buffer_host(to), db_buffer_host(w->from), SHARED))
      err = -EILSEQ;
    db_buffer_release(to);
  }
  if (err) snprintf(w->failed, sizeof w->failed, "%d: %.200s", err, db_error());
  db_queue_release(q);
  return err;
}
static void *worker_main(void *arg) {
  work(arg);
  return NULL;
}
static void threads(void **state) {
  pthread_t thread[THREADS];
  struct worker w[THREADS] = {0};
  db_buffer *from = db_alloc(dev[0], SHARED, 0);
  db_signal *gate = db_signal_new(dev[0]);
  memset(db_buffer_host(from), 0x5a, SHARED);
  for (int i = 0; i < THREADS; i++) {
    w[i] = (struct worker){.dev = dev[i + 1], .from = from, .gate = gate};
    assert_int_equal(pthread_create(&thread[i], NULL, worker_main, &w[i]), 0);
  }
  db_signal_set(gate, 1);
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < THREADS; i++)
    if (w[i].failed[0]) fail_msg("%s: %s", names[i + 1], w[i].failed);
  db_signal_release(gate);
  db_buffer_release(from);
}

/* All devices wait for a device of one machine that is lost: the waits end with the reason and the devices continue to
 * work. */
static void other_machines_survive_a_loss(void **state) {
  enum { N = 4096 };
  for (int lost = 1; lost < MACHINES; lost++) { /* the CPU has no faults of this kind */
    char second[64];
    snprintf(second, sizeof second, "%s:1", names[lost]);
    db_device *doomed = db_open(second);
    if (!doomed) fail_msg("%s", db_error());
    db_buffer *x[MACHINES], *y[MACHINES], *c = db_alloc(doomed, N, 0);
    db_queue *q[MACHINES], *dies = db_queue_new(doomed, DB_QUEUE_COPY);
    uint64_t never, waits[MACHINES], after, address = c->address;
    for (int i = 0; i < MACHINES; i++) {
      x[i] = db_alloc(dev[i], N, DB_BUFFER_HOST), y[i] = db_alloc(dev[i], N, DB_BUFFER_HOST);
      memset(db_buffer_host(x[i]), 7, N);
      q[i] = db_queue_new(dev[i], DB_QUEUE_COPY);
      OK(db_queue_wait(q[i], db_queue_timeline(dies), doomed->rings[DB_QUEUE_COPY]->submitted + 1));
      OK(db_queue_copy(q[i], y[i], 0, x[i], 0, N));
      OK(db_queue_submit(q[i], &waits[i]));
    }
    c->address = 0x1000; /* not mapped */
    OK(db_queue_copy(dies, x[0], 0, c, 0, N));
    c->address = address;
    OK(db_queue_submit(dies, &never));
    for (int i = 0; i < MACHINES; i++) {
      if (db_wait(db_queue_timeline(q[i]), waits[i], 20 * SECOND) != -EIO)
        fail_msg("%s waits for %s: %s", names[i], second, db_error());
      assert_non_null(strstr(db_error(), second));
      assert_non_null(strstr(db_error(), "which was lost: "));
      assert_int_equal(dev[i]->lost, 0);
      memset(db_buffer_host(y[i]), 0, N);
      OK(db_queue_copy(q[i], y[i], 0, x[i], 0, N));
      OK(db_queue_submit(q[i], &after));
      wait_for(q[i], after, "after the loss", i, lost);
      assert_int_equal(((uint8_t *)db_buffer_host(y[i]))[N - 1], 7);
      db_queue_release(q[i]);
      db_buffer_release(x[i]);
      db_buffer_release(y[i]);
    }
    db_queue_release(dies);
    db_buffer_release(c);
    db_close(doomed);
  }
}

/* A device that has stamped a signal is closed: the time can still be read, waits end, and the device is freed with the
 * signal. */
static void stampers_close(void **state) {
  static const char *const stampers[] = {"CPU", "EMU+AMD:gfx1100:1", "EMU+NV:sm_86:1"};
  for (int a = 0; a < MACHINES; a++)
    for (unsigned s = 0; s < sizeof stampers / sizeof *stampers; s++) {
      db_device *by = db_open(stampers[s]);
      if (!by) fail_msg("%s", db_error());
      db_signal *sig = db_signal_new(dev[a]), *end = db_signal_new(dev[a]);
      db_queue *q = db_queue_new(by, DB_QUEUE_COMPUTE);
      uint64_t when, begin_ns, end_ns;
      for (int i = 0; i < 3; i++) OK(db_queue_timestamp(q, sig));
      OK(db_queue_timestamp(q, end));
      OK(db_queue_submit(q, &when));
      wait_for(q, when, stampers[s], a, a);
      if (by != dev[a]) {
        assert_int_equal(db_queue_timestamp(q, db_queue_timeline(mine(a))), -EINVAL);
        assert_int_equal(db_queue_submit(q, NULL), -EINVAL);
      }
      uint64_t before = db_signal_time_ns(sig);
      assert_true(before > 0);
      db_queue_release(q);
      bool other = by != dev[a];
      db_close(by);
      uint64_t after = db_signal_time_ns(sig);
      assert_in_range(after, before - SECOND, before + SECOND);
      db_signal_interval(sig, end, &begin_ns, &end_ns);
      assert_true(end_ns >= begin_ns);
      assert_int_equal(db_wait(sig, 1, SECOND / 50), -ETIMEDOUT);
      db_signal_release(sig);
      db_signal_release(end);
      if (!other) continue;
      if (!(by = db_open(stampers[s]))) fail_msg("%s", db_error());
      db_close(by);
    }
  for (int a = 0; a < MACHINES; a++) db_queue_release(mine_of[a]), mine_of[a] = NULL;
}

/* Each test opens its own devices: strict machines detect the host's accesses with faults, whose handler cmocka
 * replaces when a test begins. */
#define WITH_DEVICES(test)                                                                                             \
  static void with_devices_##test(void **state) {                                                                      \
    open_all();                                                                                                        \
    test(state);                                                                                                       \
    close_all();                                                                                                       \
  }
WITH_DEVICES(ping_pong)
WITH_DEVICES(timelines)
WITH_DEVICES(copies)
WITH_DEVICES(what_is_not_reached)
WITH_DEVICES(replays)
WITH_DEVICES(closing)
WITH_DEVICES(stampers_close)
WITH_DEVICES(threads)
WITH_DEVICES(other_machines_survive_a_loss)

int main(void) {
  const struct CMUnitTest tests[] = {
#define TEST(test) {#test, with_devices_##test, NULL, NULL, NULL}
      TEST(ping_pong), TEST(timelines),      TEST(copies),  TEST(what_is_not_reached),           TEST(replays),
      TEST(closing),   TEST(stampers_close), TEST(threads), TEST(other_machines_survive_a_loss),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
