/* A private array indexed by data, so that it lives in scratch memory. */
#include "../../frontend/source/opencl.h"

__kernel void scratch(__global uint *out, __global const uint *in, uint n) {
  uint i = get_global_id(0);
  if (i >= n) return;
  uint a[96];
  uchar c[72];
  for (uint k = 0; k < 96; k++) a[k] = in[i] * (k + 1);
  for (uint k = 0; k < 72; k++) c[k] = in[i] >> (k & 15);
  for (uint k = 0; k < 64; k++) {
    uint p = (a[k % 96] >> 7) % 96, q = (a[p] >> 3) % 96;
    uint t = a[p];
    a[p] = a[q] + c[(q + k) % 72];
    a[q] = t ^ k;
    c[p % 72] += t;
  }
  uint h = 0;
  for (uint k = 0; k < 96; k++) h = h * 31 + a[k];
  for (uint k = 0; k < 72; k++) h = h * 33 + c[k];
  out[i] = h;
}
