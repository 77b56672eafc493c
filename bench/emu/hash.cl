/* Integer mixing after Murmur3: multiplies, rotates, shifts. */
#include "work.h"

KERNEL_1D(hash)(__global uint *restrict out, __global const uint *restrict in, uint rounds) {
  uint i = global_x(GROUP_1D), h = in[i];
  for (uint r = 0; r < rounds; r++) {
    uint k = rotate((h + r) * 0xcc9e2d51u, 15u) * 0x1b873593u;
    h = rotate(h ^ k, 13u) * 5 + 0xe6546b64u;
    h ^= h >> 16;
  }
  out[i] = h;
}
