/* out[group] = sum of the group's share of n unsigned integers: a strided sum per work-item, then a tree in local
 * memory. */
#include "../../frontend/source/opencl.h"

#define GROUP 256

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void reduce(__global uint *out, __global const uint *in,
                                                                        uint n) {
  __local uint part[GROUP];
  uint l = get_local_id(0), sum = 0;
  for (uint i = get_group_id(0) * GROUP + l; i < n; i += get_num_groups(0) * GROUP) sum += in[i];
  part[l] = sum;
  for (uint s = GROUP / 2; s > 0; s >>= 1) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l < s) part[l] += part[l + s];
  }
  if (l == 0) out[get_group_id(0)] = part[0];
}
