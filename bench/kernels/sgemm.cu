/* c = a*b, n x n floats in row order, n a multiple of 16: blocks of 16x16 threads, one tile of each operand in shared
 * memory. */
#include "cuda.h"

#define TILE 16

extern "C" __global__ __launch_bounds__(256) void sgemm(float *c, const float *a, const float *b, u32 n) {
  __shared__ float ta[TILE][TILE], tb[TILE][TILE];
  u32 tx = threadIdx.x, ty = threadIdx.y, column = blockIdx.x * TILE + tx, row = blockIdx.y * TILE + ty;
  float sum = 0;
  for (u32 k = 0; k < n; k += TILE) {
    ta[ty][tx] = a[row * n + k + tx];
    tb[ty][tx] = b[(k + ty) * n + column];
    __syncthreads();
#pragma unroll
    for (u32 j = 0; j < TILE; j++) sum = fmaf(ta[ty][j], tb[j][tx], sum);
    __syncthreads();
  }
  c[row * n + column] = sum;
}
