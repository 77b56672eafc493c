/* Timelines beyond 32 bits, and work that waits for a lost device. */
#include "hcq/backend.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/ok.h"

static const char *const names[] = {"CPU", "EMU+AMD:gfx1100", "EMU+NV:sm_90"};
enum { NAMES = sizeof names / sizeof *names };

/* Here the hardware's count restarts every COUNT_MAX submissions instead of every 2^32. */
static void timelines_continue_after_the_count_restarts(void **state) {
  enum { COUNT_MAX = 100, RUNS = 1050, N = 256 };
  for (int d = 0; d < NAMES; d++) {
    db_device *dev = db_open(names[d]);
    if (!dev) fail_msg("%s", db_error());
    for (int i = 0; i < 2; i++) dev->rings[i]->count_max = COUNT_MAX;
    db_buffer *a = db_alloc(dev, N, DB_BUFFER_HOST), *b = db_alloc(dev, N, DB_BUFFER_HOST);
    uint8_t *ha = db_buffer_host(a), *hb = db_buffer_host(b);
    db_queue *copies = db_queue_new(dev, DB_QUEUE_COPY), *compute = db_queue_new(dev, DB_QUEUE_COMPUTE);
    uint64_t first = dev->rings[DB_QUEUE_COPY]->submitted, copied = 0, computed = 0;
    for (int i = 1; i <= RUNS; i++) {
      memset(ha, i, N);
      OK(db_queue_copy(copies, b, 0, a, 0, N));
      OK(db_queue_submit(copies, &copied));
      assert_int_equal(copied, first + (uint64_t)i);
      OK(db_queue_wait(compute, db_queue_timeline(copies),
                       copied)); /* from the queue whose count restarts at other times */
      OK(db_queue_submit(compute, &computed));
      OK(db_wait(db_queue_timeline(compute), computed, 10 * SECOND));
      assert_int_equal(hb[i % N], (uint8_t)i);
      assert_true(db_signal_value(db_queue_timeline(copies)) == copied);
      OK(db_wait(db_queue_timeline(copies), first + 1, 0)); /* a value from long ago is still reached */
      if (i % 7 == 0) {
        OK(db_queue_wait(compute, db_queue_timeline(copies), first + 1)); /* for the hardware too */
        OK(db_queue_submit(compute, &computed));
        OK(db_wait(db_queue_timeline(compute), computed, 10 * SECOND));
      }
    }
    assert_true(dev->rings[DB_QUEUE_COPY]->base > 0 && dev->rings[DB_QUEUE_COMPUTE]->base > 0);
    /* A recording made before a timeline restarts cannot distinguish its values from new ones. */
    OK(db_queue_wait(compute, db_queue_timeline(copies), copied));
    for (int i = 0; i < COUNT_MAX + 1; i++) {
      OK(db_queue_copy(copies, b, 0, a, 0, N));
      OK(db_queue_submit(copies, &copied));
    }
    assert_int_equal(db_queue_submit(compute, &computed), -ESTALE);
    assert_non_null(strstr(db_error(), "record it again"));
    OK(db_queue_wait(compute, db_queue_timeline(copies), copied));
    OK(db_queue_submit(compute, &computed));
    OK(db_wait(db_queue_timeline(compute), computed, 10 * SECOND));
    db_queue_release(copies);
    db_queue_release(compute);
    db_buffer_release(a);
    db_buffer_release(b);
    db_close(dev);
  }
}

/* The first GPU waits for the second, whose copy faults: the wait ends with the reason, and the first GPU continues to
 * work. */
static void other_queues_survive_a_loss(void **state) {
  enum { N = 4096 };
  for (int d = 1; d < NAMES; d++) {
    char second[64];
    snprintf(second, sizeof second, "%s:1", names[d]);
    db_device *dev = db_open(names[d]), *doomed = db_open(second);
    if (!dev || !doomed) fail_msg("%s", db_error());
    db_buffer *a = db_alloc(dev, N, DB_BUFFER_HOST), *b = db_alloc(dev, N, DB_BUFFER_HOST), *c = db_alloc(doomed, N, 0);
    memset(db_buffer_host(a), 7, N);
    db_queue *q = db_queue_new(dev, DB_QUEUE_COPY), *dies = db_queue_new(doomed, DB_QUEUE_COPY);
    uint64_t never, waits, after;
    uint64_t address = c->address;
    c->address = 0x1000; /* not mapped */
    OK(db_queue_copy(dies, a, 0, c, 0, N));
    c->address = address;
    OK(db_queue_submit(dies, &never));
    OK(db_queue_wait(q, db_queue_timeline(dies), never));
    OK(db_queue_copy(q, b, 0, a, 0, N));
    OK(db_queue_submit(q, &waits));
    assert_int_equal(db_wait(db_queue_timeline(q), waits, 20 * SECOND), -EIO);
    assert_non_null(strstr(db_error(), second));
    assert_non_null(strstr(db_error(), "which was lost: "));
    assert_int_equal(db_wait(db_queue_timeline(dies), never, 20 * SECOND), -EIO);
    assert_int_equal(dev->lost, 0);
    memset(db_buffer_host(b), 0, N);
    OK(db_queue_copy(q, b, 0, a, 0, N));
    OK(db_queue_submit(q, &after));
    OK(db_wait(db_queue_timeline(q), after, 20 * SECOND));
    assert_int_equal(((uint8_t *)db_buffer_host(b))[N - 1], 7);
    assert_int_equal(db_wait(db_queue_timeline(q), waits, 0), -EIO); /* it stays failed */
    db_queue_release(dies);
    db_queue_release(q);
    db_buffer_release(a);
    db_buffer_release(b);
    db_buffer_release(c);
    db_close(doomed);
    db_close(dev);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(timelines_continue_after_the_count_restarts),
                                     cmocka_unit_test(other_queues_survive_a_loss)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
