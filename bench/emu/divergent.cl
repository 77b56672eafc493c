/* Collatz steps: a data-dependent number of iterations per element, with a two-way branch in each. */
#include "work.h"

KERNEL_1D(divergent)(__global uint *restrict out, __global const uint *restrict in, uint limit) {
  uint i = global_x(GROUP_1D), x = in[i], steps = 0, sum = 0;
  while (x > 1 && steps < limit) {
    if (x & 1) {
      x = 3 * x + 1;
      sum += x ^ steps;
      if (sum & 2) sum = rotate(sum, x & 31);
    } else {
      x >>= 1;
      sum ^= x;
      for (uint j = 0; j < (x & 3); j++) sum = sum * 5 + j;
    }
    steps++;
  }
  out[i] = sum + steps;
}
