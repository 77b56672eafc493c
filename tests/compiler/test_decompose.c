/* Every rule that decomposes an operation, for a target that has the least: both sides, over values of every type. */
#include "../graph/soundness.h"
#include "compiler/decompose.h"
#include "compiler/compiler.h"

static void test_decompose(void **state) {
  rule_ctx = (void *)target_find("x86_64");
#ifndef __x86_64__
  rule_ctx = (void *)target_find("aarch64");
#endif
  assert_non_null(rule_ctx);
  check_set(&rules_decompose);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_decompose)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
