/* Murmur-style mixing: 32-bit multiplies, rotates, shifts, bit counts, high products, division. */
#include "../../frontend/source/opencl.h"

__kernel void hash(__global uint *out, __global const uint *in, uint n, uint rounds) {
  uint i = get_global_id(0);
  if (i >= n) return;
  uint h = in[i] ^ 0x9747b28c;
  for (uint r = 0; r < rounds; r++) {
    uint k = (h + r) * 0xcc9e2d51u;
    k = rotate(k, 15u) * 0x1b873593u;
    h = rotate(h ^ k, 13u) * 5 + 0xe6546b64u;
    h ^= mul_hi(h, k) + popcount(k) + clz(k >> (r & 15));
    h += k / (r + 3) - k % (r + 7);
    h ^= (uint)((int)h >> 5) + (uint)((int)k / ((int)r - 19)) + (h < k ? 77 : 13);
  }
  h ^= h >> 16;
  out[i] = h * 0x85ebca6bu;
}
