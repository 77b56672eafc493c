/* Local atomics of every operation, with a dynamically sized local argument. */
#include "../../frontend/source/opencl.h"

__kernel void ldsatomics(__global uint *out, __global const uint *in, __local uint *t, uint slots) {
  uint l = get_local_id(0), size = get_local_size(0);
  for (uint i = l; i < slots * 8; i += size) t[i] = i / slots == 4 || i / slots == 6 ? ~0u : 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  uint x = in[get_global_id(0)], k = x % slots;
  atomic_add(&t[k], x);
  atomic_sub(&t[slots + k], x >> 3);
  atomic_xor(&t[2 * slots + k], x);
  atomic_or(&t[3 * slots + k], x);
  atomic_and(&t[4 * slots + k], x);
  atomic_max(&t[5 * slots + k], x);
  atomic_min(&t[6 * slots + k], x);
  uint seen = t[7 * slots + k], old;
  while ((old = atomic_cmpxchg(&t[7 * slots + k], seen, seen + (x & 0xff))) != seen) seen = old;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = l; i < slots * 8; i += size) out[get_group_id(0) * slots * 8 + i] = t[i];
}
