// What lanes of a warp tell each other.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void shuffles(const u32 *in, u32 *out, u32 by) {
  u32 i = threadIdx.x, x = in[i];
  u32 *o = out + i * 16;
  o[0] = __shfl_sync(~0u, x, 5), o[1] = __shfl_sync(~0u, x, i * 3), o[2] = __shfl_sync(~0u, x, i + by, 8);
  o[3] = __shfl_up_sync(~0u, x, 1), o[4] = __shfl_up_sync(~0u, x, by, 16), o[5] = __shfl_down_sync(~0u, x, 3);
  o[6] = __shfl_down_sync(~0u, x, by, 4), o[7] = __shfl_xor_sync(~0u, x, 16), o[8] = __shfl_xor_sync(~0u, x, by, 8);
  u64 w = __shfl_xor_sync(~0u, (u64)x << 32 | i, 1);
  o[9] = (u32)(w >> 32) ^ (u32)w;
  u32 v, p;
  asm volatile("{.reg .pred q; shfl.sync.up.b32 %0|q, %2, %3, 0x800, 0xffffffff; selp.u32 %1, 1, 0, q;}" : "=r"(v), "=r"(p) : "r"(x), "r"(by));
  o[10] = v, o[11] = p;
  asm volatile("{.reg .pred q; shfl.sync.down.b32 %0|q, %2, 7, 0x1c1f, 0xffffffff; selp.u32 %1, 1, 0, q;}" : "=r"(v), "=r"(p) : "r"(x));
  o[12] = v, o[13] = p;
  asm volatile("{.reg .pred q; shfl.sync.idx.b32 %0|q, %2, %3, 0x101b, 0xffffffff; selp.u32 %1, 1, 0, q;}" : "=r"(v), "=r"(p) : "r"(x), "r"(i * 7));
  o[14] = v, o[15] = p;
}
extern "C" __global__ void votes(const u32 *in, u32 *out) {
  u32 i = threadIdx.x, x = in[i];
  u32 *o = out + i * 16;
  o[0] = __ballot_sync(~0u, x & 1), o[1] = __any_sync(~0u, x % 50 == 0), o[2] = __all_sync(~0u, x != 0);
  o[3] = __match_any_sync(~0u, x % 5);
  int same;
  o[4] = __match_all_sync(~0u, x >> 30 > 4, &same), o[5] = same;
  o[6] = __match_all_sync(~0u, x % 2, &same), o[7] = same;
  o[8] = __reduce_add_sync(~0u, x), o[9] = __reduce_min_sync(~0u, x), o[10] = (u32)__reduce_max_sync(~0u, (int)x);
  o[11] = __reduce_and_sync(~0u, x | 0xf0), o[12] = __reduce_or_sync(~0u, x & 0xff00ff), o[13] = __reduce_xor_sync(~0u, x);
  o[14] = __match_any_sync(~0u, (u64)(x % 3) << 40);
  o[15] = __activemask();
}
// Different sets of lanes at the same time and in different branches.
extern "C" __global__ void partial(const u32 *in, u32 *out) {
  u32 i = threadIdx.x, x = in[i], lane = i % 32, *o = out + i * 8;
  u32 half = lane < 16 ? 0xffff : 0xffff0000;
  o[0] = __reduce_add_sync(half, x), o[1] = __ballot_sync(half, x & 2), o[2] = __shfl_sync(half, x, lane / 16 * 16 + 3);
  if (lane % 3 == 0) {
    u32 m = 0x49249249;
    o[3] = __reduce_max_sync(m, x), o[4] = __shfl_sync(m, x, 9), o[5] = __activemask();
  } else if (x & 1) {
    u32 m = __activemask();
    o[3] = __popc(m), o[4] = __match_any_sync(m, x & 6), o[5] = __ballot_sync(m, x & 8);
  } else {
    __syncwarp(__activemask());
    o[3] = o[4] = o[5] = 1;
  }
  __syncwarp();
  o[6] = __activemask();
  for (u32 k = 0; k <= lane % 4; k++) o[7] = __popc(__activemask()) * 0 + k;
}
// Lanes wait for each other at different instructions.
extern "C" __global__ void apart(const u32 *in, u32 *out) {
  __shared__ u32 s[64];
  u32 i = threadIdx.x, lane = i % 32;
  if (lane & 1) {
    s[i] = in[i];
    __syncwarp();
    out[i] = s[i - 1];
  } else {
    s[i] = in[i] + 1;
    __syncwarp();
    out[i] = s[i + 1];
  }
}
// The same operation at two instructions: lanes read values that other lanes pass to the other instruction.
extern "C" __global__ void crossed(const u32 *in, u32 *out) {
  u32 i = threadIdx.x, lane = i % 32, x = in[i], r;
  if (x & 4) {
    r = __shfl_sync(~0u, x + 1, lane ^ 3) * 2;
    out[i * 2 + 1] = 7;
  } else {
    r = __shfl_sync(~0u, x * 5, lane ^ 3) + 1;
    out[i * 2 + 1] = 9;
  }
  out[i * 2] = r;
}
extern "C" __global__ void groups(const u32 *in, u32 *out) {
  namespace cg = cooperative_groups;
  u32 i = threadIdx.x, x = in[i];
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  out[i * 4] = cg::reduce(tile, x, cg::plus<u32>());
  auto mine = cg::labeled_partition(cg::tiled_partition<32>(cg::this_thread_block()), (int)(x % 3));
  out[i * 4 + 1] = cg::reduce(mine, x, cg::bit_xor<u32>());
  out[i * 4 + 2] = mine.size() * 100 + mine.thread_rank();
  if (x & 1) {
    auto on = cg::coalesced_threads();
    out[i * 4 + 3] = on.shfl(x, 0) + on.size();
  } else {
    out[i * 4 + 3] = 0;
  }
}
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void matrices(const u32 *in, u32 *out) {
  __shared__ __align__(16) u32 s[4][32][4];
  u32 i = threadIdx.x;
  for (u32 k = 0; k < 4; k++) s[0][i][k] = in[i * 4 + k];
  __syncwarp();
  u32 at = (u32)__cvta_generic_to_shared(&s[0][i][0]), r[4], *o = out + i * 32;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(o[0]), "=r"(o[1]), "=r"(o[2]), "=r"(o[3]) : "r"(at));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
  for (u32 k = 0; k < 4; k++) o[4 + k] = r[k];
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(o[8]), "=r"(o[9]) : "r"(at));
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(o[10]) : "r"(at));
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(o[11]) : "r"(r[0]));
  u32 to = (u32)__cvta_generic_to_shared(&s[1][i ^ 7][0]);
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]));
  to = (u32)__cvta_generic_to_shared(&s[2][i][0]);
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(to), "r"(r[0]), "r"(r[1]));
  __syncwarp();
  for (u32 k = 0; k < 4; k++) o[12 + k] = s[1][i][k], o[16 + k] = s[2][i % 16][k];
}
#endif
