/* All shortest paths of a 32-node graph: Floyd and Warshall in local memory, one barrier per step. */
#include "../../frontend/source/opencl.h"

__kernel __attribute__((reqd_work_group_size(32, 8, 1))) void floyd(__global uint *d) {
  __local uint t[32][32];
  uint x = get_local_id(0), y = get_local_id(1);
  __global uint *g = d + get_group_id(0) * 1024;
  for (uint r = y; r < 32; r += 8) t[r][x] = g[r * 32 + x];
  for (uint k = 0; k < 32; k++) {
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint r = y; r < 32; r += 8) t[r][x] = min(t[r][x], t[r][k] + t[k][x]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint r = y; r < 32; r += 8) g[r * 32 + x] = t[r][x];
}
