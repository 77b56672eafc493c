/* Calls of functions that are not inlined: arguments in registers and on the stack, nested calls, pointers to private
 * memory. */
#include "../../frontend/source/opencl.h"

struct pair {
  uint lo, hi;
  float f[6];
};
__attribute__((noinline)) uint twice(uint x) { return x * 2 + 1; }
__attribute__((noinline)) void fill(struct pair *p, uint x, float f) {
  p->lo = twice(x);
  p->hi = x ^ 0x55;
  for (int i = 0; i < 6; i++) p->f[i] = f * (float)(i + (int)(x & 3));
}
__attribute__((noinline)) struct pair combine(struct pair a, struct pair b, uint k) {
  struct pair r = a;
  r.lo += twice(b.lo);
  r.hi ^= b.hi + k;
  for (int i = 0; i < 6; i++) r.f[i] += b.f[(i + k) % 6];
  return r;
}
__kernel void calls(__global uint *out, __global float *outf, __global const uint *in, uint n) {
  uint i = get_global_id(0);
  if (i >= n) return;
  struct pair a, b;
  fill(&a, in[i], 0.5f);
  fill(&b, in[i] + i, 0.25f);
  struct pair c = combine(a, b, i);
  if (in[i] & 1) c = combine(c, a, in[i] & 7);
  out[i] = c.lo + 3 * c.hi;
  outf[i] = c.f[0] + 2 * c.f[1] + 4 * c.f[2] + 8 * c.f[3] + 16 * c.f[4] + 32 * c.f[5];
}
