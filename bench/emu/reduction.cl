/* Sums of unsigned integers, one result per group: each work-item adds up `count` of them, then a tree in local
 * memory. */
#include "work.h"

KERNEL_1D(reduction)(__global uint *restrict out, __global const uint *restrict in, uint count) {
  __local uint part[GROUP_1D];
  uint l = get_local_id(0), group = get_group_id(0), sum = 0;
  for (uint i = 0; i < count; i++) sum += in[(group * count + i) * GROUP_1D + l];
  part[l] = sum;
  for (uint s = GROUP_1D / 2; s > 0; s >>= 1) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l < s) part[l] += part[l + s];
  }
  if (l == 0) out[group] = part[0];
}
