/* Half precision, scalar and packed. */
#include "../../frontend/source/opencl.h"

__kernel void f16(__global half *out, __global const half *a, __global const half *b, uint n) {
  uint i = get_global_id(0);
  if (2 * i + 1 >= n) return;
  half2 x = *(__global const half2 *)(a + 2 * i), y = *(__global const half2 *)(b + 2 * i);
  half2 z = x * y + x;
  half w = fma(z.x, y.y, z.y);
  z -= (half2)(w, (half)0.5f);
  if (z.x > z.y) z = z.yx;
  *(__global half2 *)(out + 2 * i) = z + (half2)((half)(float)i, (half)(short)(i & 31));
}
