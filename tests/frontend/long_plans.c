/* test_plans with more kernels. */
#define COUNT 600
#include "test_plans.c"
