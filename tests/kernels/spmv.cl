/* Sparse matrix (compressed rows) times vector: rows of uneven length. */
#include "../../frontend/source/opencl.h"

__kernel void spmv(__global float *y, __global const uint *start, __global const ushort *column,
                   __global const float *value, __global const float *x, uint rows) {
  uint r = get_global_id(0);
  if (r >= rows) return;
  float s = 0;
  for (uint k = start[r]; k < start[r + 1]; k++) s = fma(value[k], x[column[k]], s);
  y[r] = s;
}
