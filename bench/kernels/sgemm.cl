/* c = a*b, n x n floats in row order, n a multiple of 16: groups of 16x16 work-items, one tile of each operand in local
 * memory. */
#include "../../frontend/source/opencl.h"

#define TILE 16

__kernel __attribute__((reqd_work_group_size(TILE, TILE, 1))) void sgemm(__global float *c, __global const float *a,
                                                                         __global const float *b, uint n) {
  __local float ta[TILE][TILE], tb[TILE][TILE];
  uint tx = get_local_id(0), ty = get_local_id(1);
  uint col = get_group_id(0) * TILE + tx, row = get_group_id(1) * TILE + ty;
  float sum = 0;
  for (uint k = 0; k < n; k += TILE) {
    ta[ty][tx] = a[row * n + k + tx];
    tb[ty][tx] = b[(k + ty) * n + col];
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (uint j = 0; j < TILE; j++) sum = fma(ta[ty][j], tb[j][tx], sum);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  c[row * n + col] = sum;
}
