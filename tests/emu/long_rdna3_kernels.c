/* Every kernel case, compiled at -O0, -O1 and -O3, in wave32 and wave64. */
#include "kernel_table.h"

static int choose(void **state) {
  run_variant = *state;
  return 0;
}

int main(void) {
  static const char *const variants[] = {".O0.w32", ".O0.w64", ".O1.w32", ".O1.w64", ".O3.w32", ".O3.w64"};
#define X(name) {#name, name, choose, NULL, NULL},
  static const struct CMUnitTest cases[] = {KERNEL_CASES(X)};
  enum { CASES = sizeof cases / sizeof *cases, VARIANTS = sizeof variants / sizeof *variants };
  static struct CMUnitTest tests[CASES * VARIANTS];
  static char names[CASES * VARIANTS][48];
  for (unsigned i = 0; i < CASES * VARIANTS; i++) {
    tests[i] = cases[i / VARIANTS];
    snprintf(names[i], sizeof names[i], "%s%s", tests[i].name, variants[i % VARIANTS]);
    tests[i].name = names[i];
    tests[i].initial_state = (void *)(uintptr_t)variants[i % VARIANTS];
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
