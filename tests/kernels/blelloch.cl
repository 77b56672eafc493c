/* Exclusive prefix sum of 2 n elements by n work-items, up and down a tree; 64-bit sums. */
#include "../../frontend/source/opencl.h"

__kernel void blelloch(__global ulong *out, __global const uint *in) {
  __local ulong t[512];
  uint l = get_local_id(0), n = 2 * get_local_size(0), base = get_group_id(0) * n, stride = 1;
  t[2 * l] = in[base + 2 * l], t[2 * l + 1] = in[base + 2 * l + 1];
  for (uint d = n >> 1; d; d >>= 1, stride <<= 1) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l < d) t[stride * (2 * l + 2) - 1] += t[stride * (2 * l + 1) - 1];
  }
  if (!l) t[n - 1] = 0;
  for (uint d = 1; d < n; d <<= 1) {
    stride >>= 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l < d) {
      uint a = stride * (2 * l + 1) - 1, b = stride * (2 * l + 2) - 1;
      ulong v = t[a];
      t[a] = t[b], t[b] += v;
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  out[base + 2 * l] = t[2 * l], out[base + 2 * l + 1] = t[2 * l + 1];
}
