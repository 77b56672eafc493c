/* A kernel for waves of 64 lanes: divergence, local memory, ballots over both halves. */
#pragma clang attribute push(__attribute__((target("wavefrontsize64"))), apply_to = function)
#include "../../frontend/source/opencl.h"

__kernel void wave64(__global ulong *out, __global const uint *in, uint n) {
  __local uint t[128];
  uint i = get_global_id(0), l = get_local_id(0);
  uint x = i < n ? in[i] : 0, y = x;
  t[l] = x * 5;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint k = 0; k < (x & 31); k++) y = y * 3 + t[(l + k) & 127 & (get_local_size(0) - 1)];
  ulong b = __builtin_amdgcn_ballot_w64(y & 1);
  if (i < n) out[i] = b ^ y ^ ((ulong)__builtin_amdgcn_readlane(y, 40) << 32);
}
#pragma clang attribute pop
