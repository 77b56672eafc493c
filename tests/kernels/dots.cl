/* Packed dot products: eight-bit and half. */
#include "../../frontend/source/opencl.h"

typedef half half2_ __attribute__((ext_vector_type(2)));
__kernel void dots(__global int *out, __global float *outf, __global const int *a, __global const int *b, uint n) {
  uint i = get_global_id(0);
  if (i >= n) return;
  int x = a[i], y = b[i];
  out[4 * i] = __builtin_amdgcn_sudot4(true, x, true, y, (int)i, false);
  out[4 * i + 1] = __builtin_amdgcn_udot4(x, y, i, false);
  out[4 * i + 2] = __builtin_amdgcn_sudot4(true, x, false, y, 0x7fffff00, true);
  out[4 * i + 3] = __builtin_amdgcn_udot8(x, y, 5, false);
  outf[i] = __builtin_amdgcn_fdot2((half2_)((half)(x & 63), (half)(y & 31)), (half2_)((half)(i & 15), (half)0.5f), 1.0f,
                                   false);
}
