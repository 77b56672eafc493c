/* A copy that needs more than one SDMA packet of 1 GiB. */
#include "hcq/hcq.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include "tests/ok.h"

#define GIB (1ull << 30)
#define N   (GIB + (3u << 20) + 5)

static void more_than_a_packet(void **state) {
  db_device *dev = db_open("EMU+AMD:gfx1100");
  if (!dev) fail_msg("%s", db_error());
  db_buffer *a = db_alloc(dev, N + 7, 0), *b = db_alloc(dev, N + 7, 0);
  static const uint64_t marks[] = {0, 4096, GIB / 2 + 1, GIB - 16, GIB - 8, GIB, GIB + 8, GIB + (2u << 20), N - 8};
  enum { MARKS = sizeof marks / sizeof *marks };
  for (uint64_t i = 0; i < MARKS; i++) {
    uint64_t v = 0x0101010101010101ull * (i + 1);
    OK(db_buffer_write(a, marks[i] + 3, &v, 8));
  }
  db_queue *q = db_queue_new(dev, DB_QUEUE_COPY);
  uint64_t when, packets;
  struct db_device_counters before, after;
  db_device_counters(dev, &before);
  OK(db_queue_copy(q, b, 6, a, 3, N));
  OK(db_queue_submit(q, &when));
  OK(db_wait(db_queue_timeline(q), when, 120000000000ull));
  db_device_counters(dev, &after);
  packets = after.packets - before.packets;
  assert_in_range(packets, 2, 10);
  for (uint64_t i = 0; i < MARKS; i++) {
    uint64_t v = 0;
    OK(db_buffer_read(b, marks[i] + 6, &v, 8));
    assert_int_equal(v, 0x0101010101010101ull * (i + 1));
  }
  db_queue_release(q);
  db_buffer_release(a);
  db_buffer_release(b);
  db_close(dev);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(more_than_a_packet)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
