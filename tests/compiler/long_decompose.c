/* test_decompose with more instances of every rule. */
#define INSTANCES   8000
#define EXPRESSIONS 0
#include "test_decompose.c"
