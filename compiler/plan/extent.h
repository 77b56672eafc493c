/* Grid dimensions that depend on variables. */
#ifndef DOORBELL_COMPILER_EXTENT_H
#define DOORBELL_COMPILER_EXTENT_H
#include <stdint.h>

/* The number of workgroups in a grid dimension that depends on variables: times * ceil(sum of terms / per). A term is
 * the product of its factor and its variables. `var` numbers the kernel's parameters that are not buffers, from 0. */
enum { EXTENT_TERMS = 4, EXTENT_VARS = 3 };
struct kernel_extent {
  uint32_t times, per;
  uint8_t nterms; /* 0: the dimension is kernel.grid, whatever the variables are */
  struct extent_term {
    int64_t factor;
    uint8_t nvars, var[EXTENT_VARS];
  } term[EXTENT_TERMS];
};
#endif
