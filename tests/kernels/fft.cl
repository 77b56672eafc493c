/* 64-point radix-2 complex FFT per group in local memory; twiddle factors are given. */
#include "../../frontend/source/opencl.h"

__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void fft(__global float2 *data,
                                                                  __global const float2 *twiddle) {
  __local float2 s[64];
  uint l = get_local_id(0);
  __global float2 *d = data + get_group_id(0) * 64;
  s[__builtin_bitreverse32(l) >> 26] = d[l];
  s[__builtin_bitreverse32(l + 32) >> 26] = d[l + 32];
  for (uint half_size = 1; half_size < 64; half_size <<= 1) {
    barrier(CLK_LOCAL_MEM_FENCE);
    uint k = l & (half_size - 1), a = 2 * l - k, b = a + half_size;
    float2 t = twiddle[k * (32 / half_size)], x = s[a], y = s[b];
    float2 z = (float2)(fma(t.x, y.x, -(t.y * y.y)), fma(t.x, y.y, t.y * y.x));
    s[a] = x + z;
    s[b] = x - z;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  d[l] = s[l];
  d[l + 32] = s[l + 32];
}
