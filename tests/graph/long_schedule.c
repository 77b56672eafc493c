/* test_schedule with more and larger random graphs. */
#define RANDOM_GRAPHS 150000
#define RANDOM_OPS    34
#include "test_schedule.c"
