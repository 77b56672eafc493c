/* c = a*b, n x n floats: one element per work-item, read directly from memory. */
#include "work.h"

KERNEL_2D(matmul)(__global float *restrict c, __global const float *restrict a, __global const float *restrict b,
                  uint n) {
  uint col = global_x(16), row = global_y(16);
  float sum = 0;
  for (uint k = 0; k < n; k++) sum = fma(a[row * n + k], b[k * n + col], sum);
  c[row * n + col] = sum;
}
