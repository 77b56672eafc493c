/* The greatest of each group's floats and where it first is: a tree over pairs in local memory. */
#include "../../frontend/source/opencl.h"

__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void argmax(__global uint *where, __global float *most,
                                                                      __global const float *in) {
  __local float v[128];
  __local ushort at[128];
  uint l = get_local_id(0);
  v[l] = in[get_global_id(0)], at[l] = l;
  for (uint d = 64; d; d >>= 1) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l >= d) continue;
    float o = v[l + d];
    if (o > v[l] || (o == v[l] && at[l + d] < at[l])) v[l] = o, at[l] = at[l + d];
  }
  if (!l) where[get_group_id(0)] = at[0], most[get_group_id(0)] = v[0];
}
