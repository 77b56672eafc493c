/* The kernels of tests/hw/steps.c; each uses one more feature than the one before. cuda/hw.cu has the same. */
#include "../../frontend/source/opencl.h"

__kernel void empty(__global uint *out, uint n) {}

__kernel void store(__global uint *out, uint n) { out[0] = n; }

__kernel void ids(__global uint *out, uint n) {
  uint i = get_global_id(0);
  out[i] = i * 3 + n;
}

__kernel void shared(__global uint *out, uint n) {
  __local uint tile[256];
  uint l = get_local_id(0), first = get_group_id(0) * 256;
  tile[l] = first + l + n;
  barrier(CLK_LOCAL_MEM_FENCE);
  out[first + l] = tile[255 - l];
}

/* An array that is indexed at run time lives in scratch memory. */
__kernel void spill(__global uint *out, uint n) {
  uint i = get_global_id(0), a[64], sum = n;
  for (uint k = 0; k < 64; k++) a[k ^ (i & 63)] = k;
#pragma unroll 1
  for (uint k = 0; k < 64; k++) sum += (i + k) * a[k];
  out[i] = sum;
}

/* OpenCL C has no recursion: nested calls that keep their state in memory. */
__attribute__((noinline)) void next(uint *pair) {
  uint sum = pair[0] + pair[1];
  pair[0] = pair[1];
  pair[1] = sum;
}
__attribute__((noinline)) uint fibonacci(uint k) {
  uint pair[2] = {0, 1};
#pragma unroll 1
  while (k--) next(pair);
  return pair[0];
}
__kernel void stack(__global uint *out, uint n) {
  uint i = get_global_id(0);
  out[i] = fibonacci(i % 12) + n;
}

__kernel void atomics(__global uint *out, uint n) { atomic_add(out, 1 + n); }
