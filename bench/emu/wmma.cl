/* c = a * transpose(b), n x n, halves into floats: a 16 x 16 tile per wave. A lane holds a row of a and of b, and
 * every second row of a column of c (RDNA3 ISA document, "WMMA"). */
#include "work.h"

typedef half half16 __attribute__((ext_vector_type(16)));
typedef float float8 __attribute__((ext_vector_type(8)));

__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void
wmma(__global float *restrict c, __global const half *restrict a, __global const half *restrict b, uint n) {
  uint lane = get_local_id(0), row = (uint)get_group_id(1) * 16, col = (uint)get_group_id(0) * 16;
  __global const half *pa = a + (row + lane % 16) * n, *pb = b + (col + lane % 16) * n;
  float8 sum = 0;
  for (uint k = 0; k < n; k += 16)
    sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(*(__global const half16 *)(pa + k),
                                                     *(__global const half16 *)(pb + k), sum);
  for (uint r = 0; r < 8; r++) c[(row + 2 * r + lane / 16) * n + col + lane % 16] = sum[r];
}
