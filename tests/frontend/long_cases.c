/* All cases of tests/data/cases on the emulated GPUs, and on the device that DEV names. */
#include "reference.h"

static void emulated(void **state) { assert_int_equal(run_cases(EMULATED, 1), 0); }
static void nvidia(void **state) {
  if (!has_ptxas()) skip();
  assert_int_equal(run_cases(EMULATED_NVIDIA, 1), 0);
}
static void chosen(void **state) {
  if (!getenv("DEV")) skip();
  assert_int_equal(run_cases(getenv("DEV"), 1), 0);
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(emulated), cmocka_unit_test(nvidia), cmocka_unit_test(chosen)};
  has_ptxas(); /* sets the cache folder before anything is compiled */
  return cmocka_run_group_tests_name("cases, all", tests, NULL, finish);
}
