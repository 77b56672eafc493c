/* Structures and vectors passed by value. */
#include "../../frontend/source/opencl.h"

struct params {
  uchar tag;
  short bias;
  float scale[3];
  long big;
  uint3 v;
};
__kernel void structarg(__global float *out, struct params p, float4 w, uchar4 c, __global const float *in, uint n) {
  uint i = get_global_id(0);
  if (i >= n) return;
  float x = in[i];
  float r =
      x * p.scale[i % 3] + (float)p.bias + w.x * (float)c.x + w.y * (float)c.y + w.z * (float)c.z + w.w * (float)c.w;
  out[i] = r + (float)(p.tag + p.v.x * p.v.y + p.v.z) + (float)(int)(p.big >> 33);
}
