/* Reductions over 32 lanes in registers: sum, maximum, exclusive-or, and an inclusive scan, in either wave size. */
#include "../../frontend/source/opencl.h"

__kernel void subgroup(__global uint *out, __global const uint *in) {
  uint i = get_global_id(0), x = in[i], sum = x, most = x, all = x, scan = x;
  uint l = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)) & 31;
#define STEP(pattern)                                                                                                  \
  sum += __builtin_amdgcn_ds_swizzle(sum, pattern);                                                                    \
  most = max(most, (uint)__builtin_amdgcn_ds_swizzle(most, pattern));                                                  \
  all ^= __builtin_amdgcn_ds_swizzle(all, pattern)
  STEP(0x041f);
  STEP(0x081f);
  STEP(0x101f);
  STEP(0x201f);
  STEP(0x401f);
  for (uint d = 1; d < 32; d <<= 1) {
    uint below = __builtin_amdgcn_ds_bpermute((int)((l - d) << 2), (int)scan);
    if (l >= d) scan += below;
  }
  __global uint *o = out + 4 * i;
  o[0] = sum, o[1] = most, o[2] = all, o[3] = scan;
}
