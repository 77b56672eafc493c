/* Access to the memory of a machine's other devices: according to its links, and without peer access only host memory.
 */
#include "hcq/hcq.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/ok.h"

enum { BYTES = 5000 };

/* Machines that only this suite opens, so that each is made with the current value of the variable. */
static const struct {
  const char *first, *second, *peers;
} cases[] = {
    {"EMU+AMD:gfx1100,gfx1100,gfx1100", "EMU+AMD:gfx1100,gfx1100,gfx1100:2", "1"},
    {"EMU+AMD:gfx1100,gfx1100", "EMU+AMD:gfx1100,gfx1100:1", "0"},
    {"EMU+NV:sm_90,sm_90,sm_90", "EMU+NV:sm_90,sm_90,sm_90:2", "1"},
    {"EMU+NV:sm_90,sm_90", "EMU+NV:sm_90,sm_90:1", "0"},
};
enum { CASES = sizeof cases / sizeof *cases };

static int copy(db_device *by, db_buffer *dst, db_buffer *src) {
  db_queue *q = db_queue_new(by, DB_QUEUE_COPY);
  uint64_t when;
  int err = db_queue_copy(q, dst, 0, src, 0, BYTES);
  if (!err) OK(db_queue_submit(q, &when));
  if (!err) OK(db_wait(db_queue_timeline(q), when, 20 * SECOND));
  db_queue_release(q);
  return err;
}

static void reaches_only_linked_devices(void **state) {
  db_device *cpu = db_open("CPU");
  for (int i = 0; i < CASES; i++) {
    bool peers = cases[i].peers[0] == '1';
    uint8_t in[BYTES], out[BYTES] = {0};
    setenv("EMU_P2P", cases[i].peers, 1);
    db_device *a = db_open(cases[i].first), *b = db_open(cases[i].second);
    if (!a || !b) fail_msg("%s", db_error());
    assert_true(db_reaches(a, a) && db_reaches(a, cpu) && !db_reaches(cpu, a));
    assert_int_equal(db_reaches(a, b), peers);
    assert_int_equal(db_reaches(b, a), peers);
    db_buffer *mine = db_alloc(a, BYTES, 0), *theirs = db_alloc(b, BYTES, 0),
              *host = db_alloc(b, BYTES, DB_BUFFER_HOST);
    memset(in, 17 + i, BYTES);
    OK(db_buffer_write(theirs, 0, in, BYTES));
    int err = copy(a, mine, theirs);
    assert_int_equal(err, peers ? 0 : -EXDEV);
    if (err) assert_non_null(strstr(db_error(), cases[i].first));
    if (!peers) { /* through host memory */
      OK(copy(b, host, theirs));
      OK(copy(a, mine, host));
    }
    OK(db_buffer_read(mine, 0, out, BYTES));
    assert_memory_equal(in, out, BYTES);
    db_buffer_release(mine);
    db_buffer_release(theirs);
    db_buffer_release(host);
    db_close(a);
    db_close(b);
  }
  db_close(cpu);
}

static void checks_the_environment(void **state) {
  setenv("EMU_P2P", "no", 1);
  assert_null(db_open("EMU+NV:sm_90"));
  assert_non_null(strstr(db_error(), "EMU_P2P is \"no\"; it can be 0 or 1"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(reaches_only_linked_devices),
                                     cmocka_unit_test(checks_the_environment)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
