/* 64-bit integers: products, quotients, shifts, comparisons. */
#include "../../frontend/source/opencl.h"

__kernel void i64(__global long *out, __global const long *a, __global const long *b, uint n) {
  uint i = get_global_id(0);
  if (i >= n) return;
  long x = a[i], y = b[i];
  out[6 * i] = x * y;
  out[6 * i + 1] = x / y;
  out[6 * i + 2] = x % y;
  out[6 * i + 3] = (long)((ulong)x / (ulong)y) + (long)((ulong)x % (ulong)y);
  out[6 * i + 4] = (x << (y & 63)) ^ (x >> (y & 31)) ^ (long)((ulong)y >> (x & 63));
  out[6 * i + 5] = (x < y ? x - y : y + x) ^ ((ulong)x > (ulong)y ? ~x : x | y);
}
