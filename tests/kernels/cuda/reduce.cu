/* Reductions: trees in shared memory, shuffles, redux, and the last block. */
#include "shared.h"

/* out[block] = sum of the block's strided share. */
KERNEL reduce_tree(u32 *out, const u32 *in, u32 n) {
  __shared__ u32 part[256];
  u32 t = threadIdx.x, sum = 0;
  for (u32 i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) sum += in[i];
  part[t] = sum;
  for (u32 s = blockDim.x / 2; s; s >>= 1) {
    __syncthreads();
    if (t < s) part[t] += part[t + s];
  }
  if (!t) out[blockIdx.x] = part[0];
}

/* The same sum in f32, in an order that the host repeats: shuffles inside warps, then one warp. */
KERNEL reduce_shuffle(u32 *out, const u32 *in, u32 n) {
  __shared__ float part[32];
  u32 t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  float v = i < n ? fmul((float)(i32)in[i], 0x1p-31f) : 0;
  for (int s = 16; s; s >>= 1) v = fadd(v, __shfl_down_sync(~0u, v, s));
  if (!(t & 31)) part[t >> 5] = v;
  __syncthreads();
  if (t >= 32) return;
  v = t < blockDim.x / 32 ? part[t] : 0;
  for (int s = 16; s; s >>= 1) v = fadd(v, __shfl_down_sync(~0u, v, s));
  if (!t) out[blockIdx.x] = f32_bits(v);
}

/* Eight words for each warp from the redux instructions. */
KERNEL reduce_redux(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i];
  u32 r[8] = {__reduce_add_sync(~0u, x),
              __reduce_min_sync(~0u, x),
              __reduce_max_sync(~0u, x),
              (u32)__reduce_min_sync(~0u, (int)x),
              (u32)__reduce_max_sync(~0u, (int)x),
              __reduce_and_sync(~0u, x | 0xffff0000u),
              __reduce_or_sync(~0u, x & 0x80808080u),
              __reduce_xor_sync(~0u, x)};
  if (!(threadIdx.x & 31))
    for (int k = 0; k < 8; k++) out[i / 32 * 8 + k] = r[k];
}

/* The position of the largest 64-bit value, the first of equal ones; shuffles exchange pairs. */
KERNEL reduce_argmax(u32 *out, const u32 *in, u32 n) {
  __shared__ i64 best[8];
  __shared__ u32 where[8];
  u32 t = threadIdx.x, at = blockIdx.x * blockDim.x + t;
  i64 v = (i64)((u64)(in[at] >> 24) << 33) - ((i64)1 << 40);
  for (int s = 1; s < 32; s <<= 1) {
    i64 w = __shfl_xor_sync(~0u, v, s);
    u32 b = __shfl_xor_sync(~0u, at, s);
    if (w > v || (w == v && b < at)) v = w, at = b;
  }
  if (!(t & 31)) best[t >> 5] = v, where[t >> 5] = at;
  __syncthreads();
  if (t) return;
  for (u32 k = 1; k < blockDim.x / 32; k++)
    if (best[k] > v || (best[k] == v && where[k] < at)) v = best[k], at = where[k];
  out[blockIdx.x * 2] = at;
  out[blockIdx.x * 2 + 1] = fold64((u64)v);
}

/* Dot products in f64, one row a warp, with fused steps. */
KERNEL reduce_dot(u32 *out, const u32 *in, u32 n) {
  u32 lane = threadIdx.x & 31, row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  double sum = 0;
  for (u32 k = lane; k < n; k += 32) {
    double a = (double)(i32)in[row * n + k] * 0x1p-31, b = (double)(i32)in[k] * 0x1p-31;
    sum = dfma(a, b, sum);
  }
  for (int s = 16; s; s >>= 1) sum = dadd(sum, __shfl_xor_sync(~0u, sum, s));
  if (!lane) ((u64 *)out)[row] = f64_bits(sum);
}

/* Every block stores its part; the block that increments the counter last combines all parts. */
__device__ u32 arrived;
KERNEL reduce_last(u32 *out, const u32 *in, u32 n) {
  __shared__ u32 part[4], last;
  u32 t = threadIdx.x, sum = 0;
  for (u32 i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) sum += in[i] * (i | 1);
  sum = __reduce_add_sync(~0u, sum);
  if (!(t & 31)) part[t >> 5] = sum;
  __syncthreads();
  if (!t) {
    ((volatile u32 *)out)[1 + blockIdx.x] = part[0] + part[1] + part[2] + part[3];
    __threadfence();
    last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || t) return;
  u32 h = 0;
  for (u32 b = 0; b < gridDim.x; b++) h = rotl(h, 5) ^ ((volatile u32 *)out)[1 + b];
  out[0] = h;
}

/* Mean and variance by Welford's updates, merged by pairs; f32. */
KERNEL reduce_welford(u32 *out, const u32 *in, u32 n) {
  u32 lane = threadIdx.x, row = blockIdx.x;
  float mean = 0, m2 = 0, count = 0;
  for (u32 k = lane; k < n; k += 32) {
    float v = fmul((float)(i32)in[row * n + k], 0x1p-29f), d = fsub(v, mean);
    count = fadd(count, 1.0f);
    mean = fadd(mean, fdiv(d, count));
    m2 = ffma(d, fsub(v, mean), m2);
  }
  for (int s = 16; s; s >>= 1) {
    float c = __shfl_down_sync(~0u, count, s), m = __shfl_down_sync(~0u, mean, s), q = __shfl_down_sync(~0u, m2, s);
    float all = fadd(count, c), d = fsub(m, mean);
    if (lane < s) {
      mean = ffma(d, fdiv(c, all), mean);
      m2 = fadd(fadd(m2, q), fmul(fmul(d, d), fdiv(fmul(count, c), all)));
      count = all;
    }
  }
  if (!lane) out[row * 2] = f32_bits(mean), out[row * 2 + 1] = f32_bits(fdiv(m2, fsub(count, 1.0f)));
}
