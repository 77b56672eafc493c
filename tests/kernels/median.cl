/* 3x3 median of bytes by a partial sort; the border repeats. */
#include "../../frontend/source/opencl.h"

__kernel void median(__global uchar *out, __global const uchar *in, int w, int h) {
  int x = get_global_id(0), y = get_global_id(1);
  if (x >= w || y >= h) return;
  uchar v[9];
  for (int k = 0; k < 9; k++) v[k] = in[clamp(y + k / 3 - 1, 0, h - 1) * w + clamp(x + k % 3 - 1, 0, w - 1)];
  for (int i = 0; i < 5; i++)
    for (int j = i + 1; j < 9; j++) {
      uchar lo = min(v[i], v[j]), hi = max(v[i], v[j]);
      v[i] = lo, v[j] = hi;
    }
  out[y * w + x] = v[4];
}
