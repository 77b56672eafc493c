/* Sorts 256 signed integers per group, ascending. */
#include "../../frontend/source/opencl.h"

__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void bitonic(__global int *data) {
  __local int s[256];
  uint l = get_local_id(0);
  __global int *d = data + get_group_id(0) * 256;
  s[l] = d[l];
  s[l + 128] = d[l + 128];
  for (uint k = 2; k <= 256; k <<= 1)
    for (uint j = k >> 1; j > 0; j >>= 1) {
      barrier(CLK_LOCAL_MEM_FENCE);
      uint a = 2 * l - (l & (j - 1)), b = a + j;
      bool up = (a & k) == 0;
      if ((s[a] > s[b]) == up) {
        int t = s[a];
        s[a] = s[b];
        s[b] = t;
      }
    }
  barrier(CLK_LOCAL_MEM_FENCE);
  d[l] = s[l];
  d[l + 128] = s[l + 128];
}
