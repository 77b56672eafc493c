/* Compares every op with PyTorch and NumPy: all cases on the CPU, some on the emulated GPUs (long_cases.c runs all
 * there). */
#include "reference.h"

enum { SOME = 16 };

static void cpu(void **state) { assert_int_equal(run_cases("CPU", 1), 0); }
static void emulated(void **state) { assert_int_equal(run_cases(EMULATED, SOME), 0); }
static void nvidia(void **state) {
  if (!has_ptxas()) skip();
  assert_int_equal(run_cases(EMULATED_NVIDIA, SOME), 0);
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cpu), cmocka_unit_test(emulated), cmocka_unit_test(nvidia)};
  has_ptxas(); /* sets the cache folder before anything is compiled */
  return cmocka_run_group_tests_name("cases", tests, NULL, finish);
}
