/* More sequences of random operations, compared with the naive interpreter on the CPU, and some on each emulated GPU.
 */
#include "sequences.h"

static void run(const char *device, unsigned first, unsigned n) {
  setenv("DEV", device, 1);
  assert_int_equal(db_shutdown(), 0); /* closes the default device */
  sequences_check(first, n);
}

static void cpu(void **state) { run("CPU", 1000, 1000); }
static void emulated(void **state) { run(EMULATED, 0, 200); }
static void nvidia(void **state) {
  if (!has_ptxas()) skip();
  run(EMULATED_NVIDIA, 0, 100);
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cpu), cmocka_unit_test(emulated), cmocka_unit_test(nvidia)};
  has_ptxas(); /* sets the cache folder before anything is compiled */
  return cmocka_run_group_tests_name("sequences, all", tests, NULL, finish);
}
