/* Warps: all kinds of shuffles, votes, matches, and divergent threads that wait for each other. */
#include "shared.h"

KERNEL shuffles(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i], lane = threadIdx.x & 31, h;
  h = __shfl_sync(~0u, x, 5) + __shfl_sync(~0u, x, lane * 7) * 3u + __shfl_sync(~0u, x, lane + 3, 8) * 5u;
  h ^= __shfl_up_sync(~0u, x, 3) + __shfl_up_sync(~0u, x, 5, 16) * 3u;
  h ^= __shfl_down_sync(~0u, x, 7) * 5u + __shfl_down_sync(~0u, x, 1, 4) * 7u;
  h += __shfl_xor_sync(~0u, x, 21) ^ __shfl_xor_sync(~0u, x, 6, 8);
  h += fold64(__shfl_sync(~0u, (u64)x << 11 | lane, (int)(x & 31)));
  h ^= f32_bits(__shfl_xor_sync(~0u, (float)(x & 0xffff), 1));
  out[i] = h;
}

KERNEL votes(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i];
  u32 h = __ballot_sync(~0u, x & 1) ^ rotl(__ballot_sync(~0u, (x & 7) > 2), 7);
  h += (u32)__any_sync(~0u, x % 61 == 0) + 2u * (u32)__all_sync(~0u, x % 61) + 4u * (u32)__all_sync(~0u, i < n);
  h ^= rotl(__match_any_sync(~0u, x & 7), 3);
  h ^= (u32)__match_any_sync(~0u, (u64)(x & 3) << 40 | 5) * 3u;
  int same, known;
  u32 all = __match_all_sync(~0u, x >> 31, &same), fixed = __match_all_sync(~0u, 77u, &known);
  h += all * 5u + (u32)same + fixed * 9u + (u32)known * 2u;
  out[i] = h + (u32)__syncthreads_count(x & 2) + (u32)__syncthreads_or(x % 1009 == 0) * 64u +
           (u32)__syncthreads_and(x != 0) * 128u;
}

/* Half of a warp on each side of a branch: each side votes and shuffles for itself. */
KERNEL sides(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i], lane = threadIdx.x & 31, h;
  u32 odd = __ballot_sync(~0u, lane & 1);
  if (lane & 1) {
    h = __ballot_sync(odd, x & 4) + __shfl_xor_sync(odd, x, 2) * 3u + __reduce_add_sync(odd, x & 0xffff);
  } else {
    h = __ballot_sync(~odd, x & 8) ^ __shfl_xor_sync(~odd, x, 4) * 7u ^ __reduce_xor_sync(~odd, x);
    for (u32 k = 0; k < (x & 7); k++) h = rotl(h, 3) + k;
  }
  __syncwarp();
  out[i] = h + __shfl_down_sync(~0u, h, 1);
}

/* Lanes leave a loop one by one; the others continue together. */
KERNEL leaving(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i], h = 0;
  for (u32 round = 0; round < 64; round++) {
    u32 here = __activemask();
    h += (here >> (threadIdx.x & 31)) & 1;
    if (x % 61 == round % 61) break;
    h = h * 5 + (x >> (round & 31) & 3);
    if ((x ^ round * 2654435761u) >> 28 == 0) return;
  }
  out[i] = h;
}

/* A lane waits for a value of its neighbour in the same warp, which needs independent progress of lanes. */
KERNEL relay(u32 *out, const u32 *in, u32 n) {
  __shared__ volatile u32 baton[64];
  u32 t = threadIdx.x, base = blockIdx.x * 64;
  baton[t] = 0;
  __syncthreads();
  if (t == 0) {
    baton[0] = in[base] | 1u;
  } else {
    while (!baton[t - 1]) {}
    __threadfence_block();
    baton[t] = (rotl(baton[t - 1], 3) ^ in[base + t]) | 1u;
  }
  __syncthreads();
  out[base + t] = baton[t];
}

/* A lock between the lanes of a warp. */
KERNEL warp_lock(u32 *out, const u32 *in, u32 n) {
  __shared__ u32 held, sum, turns;
  if (!threadIdx.x) held = 0, sum = 0, turns = 0;
  __syncthreads();
  while (atomicCAS(&held, 0, 1)) {}
  __threadfence_block();
  *(volatile u32 *)&sum = *(volatile u32 *)&sum + in[blockIdx.x * blockDim.x + threadIdx.x];
  *(volatile u32 *)&turns = *(volatile u32 *)&turns + 1;
  __threadfence_block();
  atomicExch(&held, 0);
  __syncthreads();
  if (!threadIdx.x) out[2 * blockIdx.x] = sum, out[2 * blockIdx.x + 1] = turns;
}

/* Two halves of a block use separate barriers: producers and consumers of a ring. */
KERNEL named_barriers(u32 *out, const u32 *in, u32 n) {
  __shared__ u32 ring[2][64];
  u32 t = threadIdx.x, h = 0;
  if (t < 64) {
    for (u32 k = 0; k < 6; k++) {
      if (k >= 2) asm volatile("bar.sync %0, 128;" ::"r"(3 + (k & 1)) : "memory"); /* the slot is free */
      ring[k & 1][t] = in[k * 64 + t] * (k + 1);
      asm volatile("bar.arrive %0, 128;" ::"r"(1 + (k & 1)) : "memory"); /* and now full */
    }
  } else {
    for (u32 k = 0; k < 6; k++) {
      asm volatile("bar.sync %0, 128;" ::"r"(1 + (k & 1)) : "memory");
      h = rotl(h, 5) ^ ring[k & 1][127 - t] + ring[k & 1][t - 64];
      if (k < 4) asm volatile("bar.arrive %0, 128;" ::"r"(3 + (k & 1)) : "memory");
    }
    out[t - 64] = h;
  }
}

/* A warp sorts by electing a leader for the remaining elements. */
KERNEL elections(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i] & 7, lane = threadIdx.x & 31, order = 0, left = ~0u;
  while (left >> lane & 1) {
    u32 leader = __ffs(left) - 1, value = __shfl_sync(left, x, leader), same = __ballot_sync(left, x == value);
    order++;
    left &= ~same;
  }
  out[i] = order << 8 | x;
}
