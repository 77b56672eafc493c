/* Program-scope variables: a table of pointers that the loader must relocate, constants, and memory that starts as
 * zeros. */
#include "../../frontend/source/opencl.h"

__global int globals_first[4] = {1, 2, 3, 4};
__global int globals_second[4] = {10, 20, 30, 40};
__global int *__global globals_table[3] = {globals_first, globals_second, globals_first + 2};
__global int globals_zeros[2000];

__kernel void globals(__global int *out, uint n) {
  uint i = get_global_id(0);
  if (i >= n) return;
  globals_zeros[i % 2000] += (int)i;
  out[i] = globals_table[i % 3][i & 1] + globals_zeros[i % 2000];
}
