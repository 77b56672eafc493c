/* Transposes through padded local memory: words and bytes. */
#include "../../frontend/source/opencl.h"

__kernel __attribute__((reqd_work_group_size(16, 16, 1))) void transpose(__global uint *out, __global uchar *out8,
                                                                         __global const uint *in,
                                                                         __global const uchar *in8, uint w, uint h) {
  __local uint t[16][17];
  __local uchar t8[16][20];
  uint lx = get_local_id(0), ly = get_local_id(1), bx = get_group_id(0) * 16, by = get_group_id(1) * 16;
  if (bx + lx < w && by + ly < h) t[ly][lx] = in[(by + ly) * w + bx + lx], t8[ly][lx] = in8[(by + ly) * w + bx + lx];
  barrier(CLK_LOCAL_MEM_FENCE);
  if (by + lx < h && bx + ly < w) out[(bx + ly) * h + by + lx] = t[lx][ly], out8[(bx + ly) * h + by + lx] = t8[lx][ly];
}
