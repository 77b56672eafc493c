/* test_index with more random expressions. */
#define EXPRESSIONS 400000
#include "test_index.c"
