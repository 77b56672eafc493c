/* c = a + b, four elements per work-item. */
#include "work.h"

KERNEL_1D(vadd)(__global float4 *restrict c, __global const float4 *restrict a, __global const float4 *restrict b) {
  uint i = global_x(GROUP_1D);
  c[i] = a[i] + b[i];
}
