/* Prefix sums, and algorithms based on them. */
#include "shared.h"

/* Inclusive, by doubling distances; one block. */
KERNEL scan_doubling(u32 *out, const u32 *in, u32 n) {
  __shared__ u32 s[2][256];
  u32 t = threadIdx.x, from = 0;
  s[0][t] = in[t];
  for (u32 d = 1; d < 256; d *= 2) {
    __syncthreads();
    s[from ^ 1][t] = s[from][t] + (t >= d ? s[from][t - d] : 0);
    from ^= 1;
  }
  out[t] = s[from][t];
}

/* Exclusive, up and down a tree, two elements a thread. */
KERNEL scan_tree(u32 *out, const u32 *in, u32 n) {
  __shared__ u32 s[256];
  u32 t = threadIdx.x, offset = 1, base = blockIdx.x * 256;
  s[2 * t] = in[base + 2 * t], s[2 * t + 1] = in[base + 2 * t + 1];
  for (u32 d = 128; d; d >>= 1, offset *= 2) {
    __syncthreads();
    if (t < d) s[offset * (2 * t + 2) - 1] += s[offset * (2 * t + 1) - 1];
  }
  if (!t) s[255] = 0;
  for (u32 d = 1; d < 256; d *= 2) {
    offset >>= 1;
    __syncthreads();
    if (t < d) {
      u32 a = offset * (2 * t + 1) - 1, b = a + offset, v = s[a];
      s[a] = s[b], s[b] += v;
    }
  }
  __syncthreads();
  out[base + 2 * t] = s[2 * t], out[base + 2 * t + 1] = s[2 * t + 1];
}

BODY u64 warp_scan(u64 v) {
  for (int d = 1; d < 32; d *= 2) {
    u64 w = __shfl_up_sync(~0u, v, d);
    if ((threadIdx.x & 31) >= d) v += w;
  }
  return v;
}
/* 64-bit inclusive sums of a block: first inside warps, then over the warps. */
KERNEL scan_shuffle(u32 *out, const u32 *in, u32 n) {
  __shared__ u64 warp[8];
  u32 t = threadIdx.x, i = blockIdx.x * 256 + t;
  u64 v = warp_scan((u64)in[i] << 3);
  if ((t & 31) == 31) warp[t >> 5] = v;
  __syncthreads();
  if (t < 32) {
    u64 w = warp_scan(t < 8 ? warp[t] : 0);
    if (t < 8) warp[t] = w;
  }
  __syncthreads();
  ((u64 *)out)[i] = v + (t >= 32 ? warp[(t >> 5) - 1] : 0);
}

/* Sums that start again at every head. */
KERNEL scan_segmented(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * 32 + threadIdx.x, lane = threadIdx.x, v = in[i] >> 8;
  u32 heads = __ballot_sync(~0u, (in[i] & 7) == 0) | 1u;
  u32 start = 31 - __clz(heads & (0xffffffffu >> (31 - lane)));
  for (u32 d = 1; d < 32; d *= 2) {
    u32 w = __shfl_up_sync(~0u, v, d);
    if (lane >= start + d) v += w;
  }
  out[i] = v;
}

/* Keeps the elements that pass a test, in order, by votes and counts. */
KERNEL scan_compact(u32 *out, const u32 *in, u32 n) {
  __shared__ u32 base[8];
  u32 t = threadIdx.x, lane = t & 31, x = in[t];
  bool keep = (x ^ x >> 7) & 1;
  u32 vote = __ballot_sync(~0u, keep), before = __popc(vote & ((1u << lane) - 1));
  if (!lane) base[t >> 5] = __popc(vote);
  __syncthreads();
  u32 at = before, total = 0;
  for (u32 w = 0; w < 8; w++) {
    if (w < t >> 5) at += base[w];
    total += base[w];
  }
  if (keep) out[1 + at] = x;
  if (!t) out[0] = total;
}

/* Running maximum of signed values. */
KERNEL scan_max(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * 32 + threadIdx.x;
  i32 v = (i32)in[i];
  for (u32 d = 1; d < 32; d *= 2) {
    i32 w = __shfl_up_sync(~0u, v, d);
    v = threadIdx.x >= d && w > v ? w : v;
  }
  out[i] = (u32)v;
}
