/* CUDA C kernels compiled by nvcc -O3, on the emulated sm_90. */
#include "cuda_cases.h"

static void one_case(void **state) { cuda_run(*state, "O3"); }
static void parameters(void **state) { cuda_parameters("O3"); }

int main(void) {
  struct CMUnitTest tests[CUDA_CASES + 1];
  for (unsigned i = 0; i < CUDA_CASES; i++)
    tests[i] = (struct CMUnitTest){cuda_cases[i].name, one_case, cuda_setup, NULL, (void *)(uintptr_t)&cuda_cases[i]};
  tests[CUDA_CASES] = (struct CMUnitTest)cmocka_unit_test_setup(parameters, cuda_setup);
  return cmocka_run_group_tests_name("hcq/cuda", tests, NULL, cuda_teardown);
}
