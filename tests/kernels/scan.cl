/* Inclusive prefix sum of each group's share, in local memory. */
#include "../../frontend/source/opencl.h"

__kernel void scan(__global uint *out, __global const uint *in, uint n) {
  __local uint t[2][256];
  uint l = get_local_id(0), g = get_global_id(0), size = get_local_size(0), from = 0;
  t[0][l] = g < n ? in[g] : 0;
  for (uint d = 1; d < size; d <<= 1) {
    barrier(CLK_LOCAL_MEM_FENCE);
    t[from ^ 1][l] = l >= d ? t[from][l] + t[from][l - d] : t[from][l];
    from ^= 1;
  }
  if (g < n) out[g] = t[from][l];
}
