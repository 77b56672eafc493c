/* A stable radix sort of 256 keys per group: four bits per pass, counts by digit and work-item scanned in local
 * memory. */
#include "../../frontend/source/opencl.h"

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void radix(__global uint *keys) {
  __local uint k[2][256];
  __local ushort count[16 * 64];
  uint l = get_local_id(0), from = 0;
  __global uint *g = keys + get_group_id(0) * 256;
  for (uint j = 0; j < 4; j++) k[0][4 * l + j] = g[4 * l + j];
  for (uint shift = 0; shift < 32; shift += 4) {
    for (uint d = 0; d < 16; d++) count[d * 64 + l] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint j = 0; j < 4; j++) count[(k[from][4 * l + j] >> shift & 15) * 64 + l]++;
    barrier(CLK_LOCAL_MEM_FENCE);
    /* Each work-item sums sixteen counters, then all before its own. */
    uint own = 0, before = 0;
    for (uint j = 0; j < 16; j++) own += count[16 * l + j];
    barrier(CLK_LOCAL_MEM_FENCE);
    k[from ^ 1][l] = own;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint j = 0; j < l; j++) before += k[from ^ 1][j];
    for (uint j = 0; j < 16; j++) {
      uint c = count[16 * l + j];
      count[16 * l + j] = before;
      before += c;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint j = 0; j < 4; j++) {
      uint v = k[from][4 * l + j];
      k[from ^ 1][count[(v >> shift & 15) * 64 + l]++] = v;
    }
    from ^= 1;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (uint j = 0; j < 4; j++) g[4 * l + j] = k[from][4 * l + j];
}
