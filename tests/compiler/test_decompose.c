/* Every rule that decomposes an operation, for a target with the fewest features and for AVX-512: both sides, over
 * values of every type. */
#include "../graph/soundness.h"
#include "compiler/decompose.h"
#include "compiler/compiler.h"
#include "compiler/target/target.h"

#ifdef __x86_64__
#define HOST_ARCH "x86_64"
#else
#define HOST_ARCH "aarch64"
#endif

static void test_decompose(void **state) {
  const struct target *host = target_find(HOST_ARCH);
  assert_non_null(host);
  struct target least = *host, most = *host;
  least.kind = TARGET_AMDGPU; /* adds the rules for AMD GPUs */
  least.features = "", most.features = "avx512vl";
  rule_ctx = &least, rule_ctx_else = &most;
  check_set(&rules_decompose);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_decompose)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
