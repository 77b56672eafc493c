/* Cross-lane traffic: swizzle, backward permute, DPP, readlane, ballots. */
#include "../../frontend/source/opencl.h"

__kernel void lanes(__global uint *out, __global const uint *in) {
  uint i = get_global_id(0), x = in[i], l = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
  __global uint *o = out + 10 * i;
  o[0] = __builtin_amdgcn_ds_swizzle(x, 0x041f); /* xor 1 */
  o[1] = __builtin_amdgcn_ds_swizzle(x, 0x801b); /* reverse quads */
  o[2] = __builtin_amdgcn_ds_bpermute((l ^ 5) << 2, x);
  o[3] = __builtin_amdgcn_ds_permute((l ^ 9) << 2, x);
  o[4] = __builtin_amdgcn_readfirstlane(x);
  o[5] = __builtin_amdgcn_readlane(x, 7);
  o[6] = __builtin_amdgcn_update_dpp(1000u, x, 0x111, 0xf, 0xf, false); /* row shift right by one */
  o[7] = __builtin_amdgcn_mov_dpp8(x, 0xfac688);                        /* lane l reads l^1's like order of eight */
#if __AMDGCN_WAVEFRONT_SIZE == 64
  o[8] = __builtin_popcountl(__builtin_amdgcn_ballot_w64(x & 1)) + l;
#else
  o[8] = __builtin_popcount(__builtin_amdgcn_ballot_w32(x & 1)) + l;
#endif
  o[9] = __builtin_amdgcn_permlanex16(x, x, 0x76543210, 0xfedcba98, false, false);
}
