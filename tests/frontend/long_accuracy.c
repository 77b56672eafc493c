/* test_accuracy over every f32, and more of f64. */
#define STRIDE 1
#define COUNT  8000000
#include "test_accuracy.c"
