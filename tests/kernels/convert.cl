/* Conversions among numeric types. */
#include "../../frontend/source/opencl.h"

__kernel void convert(__global long *out, __global const float *f, __global const int *s, __global const long *w,
                      uint n) {
  uint i = get_global_id(0);
  if (i >= n) return;
  __global long *o = out + 12 * i;
  float x = f[i];
  o[0] = (int)x;
  o[1] = (uint)fabs(x);
  o[2] = (long)x;
  o[3] = (long)(ulong)fabs(x);
  o[4] = as_uint((float)s[i]);
  o[5] = as_uint((float)(uint)s[i]);
  o[6] = as_uint((float)w[i]);
  o[7] = as_uint((float)(ulong)w[i]);
  o[8] = as_long((double)w[i]);
  o[9] = as_long((double)(ulong)w[i]);
  o[10] = as_ushort((half)x) | (long)as_uint((float)(half)x) << 16;
  o[11] = (char)s[i] + 1000 * (short)s[i] + (long)(uchar)w[i] * 7 + (short)(half)(float)(short)s[i];
}
