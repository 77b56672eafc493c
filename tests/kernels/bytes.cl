/* 8- and 16-bit integers: blend, saturation, packed loads, sign extension. */
#include "../../frontend/source/opencl.h"

__kernel void bytes(__global uchar *out, __global short *out16, __global const uchar *a, __global const uchar *b,
                    uint n) {
  uint i = get_global_id(0);
  if (i >= n) return;
  uchar x = a[i], y = b[i];
  uchar mix = (uchar)((x * 77 + y * 179 + 128) >> 8);
  out[i] = add_sat(sub_sat(mix, (uchar)9), (uchar)(x > y ? 40 : y & 15));
  char sx = (char)x, sy = (char)y;
  short s = (short)((sx << 7) - sy * 3);
  s = (short)(s >> (y & 7)) + (short)((ushort)s >> 3);
  out16[i] = max(min(s, (short)9000), (short)-9000) - (short)(sx / (sy | 1));
}
