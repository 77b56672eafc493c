/* test_soundness with more instances of every rule. */
#define INSTANCES   8000
#define EXPRESSIONS 600000
#include "test_soundness.c"
