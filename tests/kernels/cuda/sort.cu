/* Sorting and searching. */
#include "shared.h"

/* A bitonic network over 256 words in shared memory. */
KERNEL sort_bitonic(u32 *out, const u32 *in, u32 n) {
  __shared__ u32 s[256];
  u32 t = threadIdx.x, base = blockIdx.x * 256;
  s[t] = in[base + t];
  for (u32 k = 2; k <= 256; k *= 2)
    for (u32 j = k / 2; j; j /= 2) {
      __syncthreads();
      u32 o = t ^ j;
      if (o > t && (s[t] > s[o]) == !(t & k)) {
        u32 v = s[t];
        s[t] = s[o], s[o] = v;
      }
    }
  __syncthreads();
  out[base + t] = s[t];
}

/* A bitonic network over the lanes of a warp, of signed 64-bit keys. */
KERNEL sort_warp(u32 *out, const u32 *in, u32 n) {
  u32 lane = threadIdx.x & 31, i = blockIdx.x * blockDim.x + threadIdx.x;
  i64 v = (i64)((u64)in[i] << 32 | ~in[i]);
  for (u32 k = 2; k <= 32; k *= 2)
    for (u32 j = k / 2; j; j /= 2) {
      i64 w = __shfl_xor_sync(~0u, v, j);
      bool low = !(lane & j) == !(lane & k);
      v = (w < v) == low ? w : v;
    }
  ((i64 *)out)[i] = v;
}

/* Least significant digits first, four bits a pass, ranks by votes; one warp. */
KERNEL sort_radix(u32 *out, const u32 *in, u32 n) {
  __shared__ u32 keys[32], count[16];
  u32 lane = threadIdx.x, key = in[blockIdx.x * 32 + lane];
  for (u32 shift = 0; shift < 32; shift += 4) {
    u32 digit = key >> shift & 15, peers = __match_any_sync(~0u, digit);
    if (lane < 16) count[lane] = 0;
    __syncwarp();
    if ((peers & ((1u << lane) - 1)) == 0) count[digit] = __popc(peers);
    __syncwarp();
    u32 at = __popc(peers & ((1u << lane) - 1));
    for (u32 d = 0; d < digit; d++) at += count[d];
    keys[at] = key;
    __syncwarp();
    key = keys[lane];
    __syncwarp();
  }
  out[blockIdx.x * 32 + lane] = key;
}

/* Neighbours exchanged in odd and even steps, f32. */
KERNEL sort_odd_even(u32 *out, const u32 *in, u32 n) {
  __shared__ float s[64];
  u32 t = threadIdx.x;
  s[t] = plain_f32(in[blockIdx.x * 64 + t]);
  for (u32 step = 0; step < 64; step++) {
    __syncthreads();
    if ((t & 1) == (step & 1) && t + 1 < 64 && s[t] > s[t + 1]) {
      float v = s[t];
      s[t] = s[t + 1], s[t + 1] = v;
    }
  }
  __syncthreads();
  out[blockIdx.x * 64 + t] = f32_bits(s[t]);
}

/* Merges two sorted halves by the rank of each element in the other half. */
KERNEL sort_merge(u32 *out, const u32 *in, u32 n) {
  u32 t = threadIdx.x, half = n / 2;
  const u32 *other = t < half ? in + half : in;
  u32 v = in[t], lo = 0, hi = half;
  while (lo < hi) {
    u32 mid = (lo + hi) / 2;
    if (t < half ? other[mid] < v : other[mid] <= v)
      lo = mid + 1;
    else
      hi = mid;
  }
  out[(t < half ? t : t - half) + lo] = v;
}

/* Counts a word of eight letters in a text: unaligned bytes. */
KERNEL search_text(u32 *out, const u32 *in, u32 n) {
  const u8 *text = (const u8 *)in, *word = text + n - 4;
  u32 found = 0;
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i + 4 <= n; i += gridDim.x * blockDim.x) {
    u32 same = 0;
    for (u32 k = 0; k < 4; k++) same += (text[i + k] & 3) == (word[k] & 3);
    found += same == 4;
  }
  if (found) atomicAdd(out, found);
}

/* Breadth first over a graph whose edges come from a hash, to a fixed point inside one block. */
KERNEL search_graph(u32 *out, const u32 *in, u32 n) {
  __shared__ u32 distance[128], changed;
  u32 t = threadIdx.x;
  distance[t] = t ? ~0u : 0;
  for (u32 round = 0;; round++) {
    __syncthreads();
    if (!t) changed = 0;
    __syncthreads();
    if (distance[t] == round)
      for (u32 e = 0; e < 3; e++) {
        u32 to = in[t * 3 + e] % 128;
        if (atomicMin(&distance[to], round + 1) > round + 1) changed = 1;
      }
    __syncthreads();
    if (!changed) break;
  }
  out[t] = distance[t];
}
