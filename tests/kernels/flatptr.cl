/* Generic pointers to global, local and private memory, chosen at run time. */
#include "../../frontend/source/opencl.h"

__attribute__((noinline)) void bump(uint *p, uint x) { *p = *p * 3 + x; }
__attribute__((noinline)) uint pick(uint which, __global uint *g, __local uint *l, __private uint *p) {
  uint *q = which == 0 ? (uint *)g : which == 1 ? (uint *)l : (uint *)p;
  bump(q, which + 5);
  bump(q + 1, which);
  return q[0] ^ q[1];
}
__kernel void flatptr(__global uint *out, __global uint *g, uint n) {
  __local uint l[128][2];
  uint i = get_global_id(0), lid = get_local_id(0);
  uint p[2] = {i, i * i};
  l[lid][0] = i + 1;
  l[lid][1] = i + 2;
  if (i < n) out[i] = pick(i % 3, g + 2 * i, l[lid], p) + l[lid][0] + p[1];
}
