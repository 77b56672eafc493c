/* Five-point stencil over a w x h grid; the border is copied. */
#include "../../frontend/source/opencl.h"

__kernel void stencil(__global float *out, __global const float *in, int w, int h) {
  int x = get_global_id(0), y = get_global_id(1);
  if (x >= w || y >= h) return;
  int i = y * w + x;
  if (x == 0 || y == 0 || x == w - 1 || y == h - 1)
    out[i] = in[i];
  else
    out[i] = fma(0.5f, in[i], 0.125f * (in[i - 1] + in[i + 1] + in[i - w] + in[i + w]));
}
