/* 3x3 box blur of an 8-bit image through a local tile with halo, 16x8 groups. */
#include "../../frontend/source/opencl.h"

__kernel __attribute__((reqd_work_group_size(16, 8, 1))) void blur(__global uchar *out, __global const uchar *in, int w,
                                                                   int h) {
  __local uchar t[10][18];
  int x0 = get_group_id(0) * 16 - 1, y0 = get_group_id(1) * 8 - 1;
  int l = get_local_id(1) * 16 + get_local_id(0);
  for (int k = l; k < 180; k += 128) {
    int x = clamp(x0 + k % 18, 0, w - 1), y = clamp(y0 + k / 18, 0, h - 1);
    t[k / 18][k % 18] = in[y * w + x];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  int lx = get_local_id(0), ly = get_local_id(1), x = x0 + 1 + lx, y = y0 + 1 + ly;
  if (x >= w || y >= h) return;
  uint sum = 4;
  for (int dy = 0; dy < 3; dy++)
    for (int dx = 0; dx < 3; dx++) sum += t[ly + dy][lx + dx];
  out[y * w + x] = sum / 9;
}
