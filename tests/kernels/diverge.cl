/* Divergent control flow: nested loops of differing lengths, breaks, a switch. */
#include "../../frontend/source/opencl.h"

__kernel void diverge(__global uint *out, __global const uint *in, uint n) {
  uint i = get_global_id(0);
  if (i >= n) return;
  uint x = in[i], steps = 0, acc = 0;
  while (x > 1 && steps < 500) {
    x = x & 1 ? 3 * x + 1 : x >> 1;
    if ((++steps & 7) == 3) {
      for (uint j = 0; j < (x & 15); j++) {
        acc += j * x;
        if ((acc & 0x3f) == 5) break;
        if (j & 2) continue;
        acc ^= j << 3;
      }
    }
  }
  switch (steps % 6) {
  case 0: acc += 11; break;
  case 1: acc *= 3; break;
  case 2: acc = ~acc; /* fall through */
  case 3: acc ^= i; break;
  case 4: acc -= steps; break;
  default: acc = rotate(acc, steps);
  }
  out[i] = acc + steps;
}
