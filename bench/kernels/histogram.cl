/* bins[b] += number of bytes b in data[0..n): a histogram per group in local memory, added to the result at the end. */
#include "../../frontend/source/opencl.h"

#define GROUP 256

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void histogram(__global uint *bins,
                                                                           __global const uchar *data, uint n) {
  __local uint local_bins[256];
  uint l = get_local_id(0);
  local_bins[l] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = get_group_id(0) * GROUP + l; i < n; i += get_num_groups(0) * GROUP) atomic_inc(&local_bins[data[i]]);
  barrier(CLK_LOCAL_MEM_FENCE);
  atomic_add(&bins[l], local_bins[l]);
}
