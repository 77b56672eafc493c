/* CUDA C kernels at every level: nvcc -O0, -O3, -use_fast_math and -G. */
#include "cuda_cases.h"

struct instance {
  const struct cuda_case *c; /* NULL: the kernel with parameters of all sizes */
  const char *level;
  char name[64];
};

static void run_instance(void **state) {
  const struct instance *i = *state;
  if (i->c)
    cuda_run(i->c, i->level);
  else
    cuda_parameters(i->level);
}

int main(void) {
  static const char *const levels[] = {"O0", "O3", "fast", "G"};
  enum { LEVELS = 4, ALL = LEVELS * (CUDA_CASES + 1) };
  static struct instance instances[ALL];
  static struct CMUnitTest tests[ALL];
  for (unsigned i = 0; i < ALL; i++) {
    const struct cuda_case *c = i / LEVELS < CUDA_CASES ? &cuda_cases[i / LEVELS] : NULL;
    instances[i] = (struct instance){.c = c, .level = levels[i % LEVELS]};
    snprintf(instances[i].name, sizeof instances[i].name, "%s %s", c ? c->name : "parameters", levels[i % LEVELS]);
    tests[i] = (struct CMUnitTest){instances[i].name, run_instance, cuda_setup, NULL, &instances[i]};
  }
  return cmocka_run_group_tests_name("hcq/cuda, every level", tests, NULL, cuda_teardown);
}
