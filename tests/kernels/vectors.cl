/* Vector loads and stores of every width, packed conversions. */
#include "../../frontend/source/opencl.h"

__kernel void vectors(__global float4 *out, __global uchar4 *pix, __global const float4 *in, __global const uint4 *u,
                      __global ulong2 *o2, __global float *o3, uint n) {
  uint i = get_global_id(0);
  if (i >= n) return;
  float4 a = in[i];
  uint4 b = u[i];
  uint8 wide = (uint8)(b, b.wzyx);
  wide = wide * 3 + (uint8)(i);
  out[2 * i] = a.wzyx * 2.0f + a;
  out[2 * i + 1] = (float4)((float)wide.s0, (float)wide.s3, (float)(int)wide.s5, (float)(wide.s7 & 0xff));
  pix[i] = (uchar4)((uchar)(b.x >> 24), (uchar)b.y, (uchar)(b.z >> 8), (uchar)clamp((int)(a.x * 255.0f), 0, 255));
  o2[i] = (ulong2)(((ulong)wide.s1 << 32) | wide.s2, (ulong)wide.s4 * wide.s6);
  o3[3 * i] = a.x;
  o3[3 * i + 1] = a.y + a.z;
  o3[3 * i + 2] = a.w;
}
