/* c = a*b, n x n floats, tiles of 16 x 16 through local memory. */
#include "work.h"

KERNEL_2D(tiled)(__global float *restrict c, __global const float *restrict a, __global const float *restrict b,
                 uint n) {
  __local float ta[16][16], tb[16][16];
  uint tx = get_local_id(0), ty = get_local_id(1), col = global_x(16), row = global_y(16);
  float sum = 0;
  for (uint k = 0; k < n; k += 16) {
    ta[ty][tx] = a[row * n + k + tx];
    tb[ty][tx] = b[(k + ty) * n + col];
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (uint j = 0; j < 16; j++) sum = fma(ta[ty][j], tb[j][tx], sum);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  c[row * n + col] = sum;
}
