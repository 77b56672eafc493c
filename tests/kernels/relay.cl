/* Kernels for queues that run at the same time. */
#include "../../frontend/source/opencl.h"

/* Sets a flag when it runs, and ends when another kernel has set its flag. */
__kernel void relay(__global uint *wait_for, __global uint *set, uint value) {
  if (get_global_id(0)) return;
  atomic_xchg(set, value);
  while (atomic_add(wait_for, 0) < value) {}
}

/* A private array indexed by data, so that it lives in scratch memory. */
__kernel void scratch(__global uint *out, __global const uint *in, uint n) {
  uint i = get_global_id(0);
  if (i >= n) return;
  uint a[64];
  for (uint k = 0; k < 64; k++) a[k] = in[i] * (k + 1);
  for (uint k = 0; k < 64; k++) a[(a[k] >> 7) % 64] += a[(a[k] >> 3) % 64] ^ k;
  uint h = 0;
  for (uint k = 0; k < 64; k++) h = h * 31 + a[k];
  out[i] = h;
}
