/* 5x5 convolution with zero borders, the input tile in local memory. */
#include "../../frontend/source/opencl.h"

__kernel __attribute__((reqd_work_group_size(8, 8, 1))) void conv(__global float *out, __global const float *in,
                                                                  __constant float *k, int w, int h) {
  __local float t[12][12];
  int lx = get_local_id(0), ly = get_local_id(1), bx = get_group_id(0) * 8, by = get_group_id(1) * 8;
  for (int i = ly * 8 + lx; i < 144; i += 64) {
    int x = bx + i % 12 - 2, y = by + i / 12 - 2;
    t[i / 12][i % 12] = x >= 0 && y >= 0 && x < w && y < h ? in[y * w + x] : 0.0f;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (bx + lx >= w || by + ly >= h) return;
  float s = 0;
  for (int j = 0; j < 5; j++)
    for (int i = 0; i < 5; i++) s = fma(k[5 * j + i], t[ly + j][lx + i], s);
  out[(by + ly) * w + bx + lx] = s;
}
