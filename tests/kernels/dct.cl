/* 8x8 discrete cosine transform of blocks, rows then columns, coefficients given. */
#include "../../frontend/source/opencl.h"

__kernel __attribute__((reqd_work_group_size(8, 8, 1))) void dct(__global float *out, __global const short *in,
                                                                 __constant float *c) {
  __local float t[8][8];
  uint x = get_local_id(0), y = get_local_id(1), base = get_group_id(0) * 64;
  float s = 0;
  for (uint k = 0; k < 8; k++) s = fma(c[x * 8 + k], (float)in[base + y * 8 + k], s);
  t[y][x] = s;
  barrier(CLK_LOCAL_MEM_FENCE);
  s = 0;
  for (uint k = 0; k < 8; k++) s = fma(c[y * 8 + k], t[k][x], s);
  out[base + y * 8 + x] = s;
}
