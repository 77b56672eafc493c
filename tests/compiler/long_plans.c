/* test_plans with more kernels. */
#define COUNT 4000
#include "test_plans.c"
