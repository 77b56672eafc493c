/* Memory of every kind: histograms, atomic operations, vector accesses, constants, pointers of unknown space. */
#include "shared.h"

KERNEL histogram_shared(u32 *out, const u32 *in, u32 n) {
  __shared__ u32 bins[256];
  const u8 *bytes = (const u8 *)in;
  for (u32 b = threadIdx.x; b < 256; b += blockDim.x) bins[b] = 0;
  __syncthreads();
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[bytes[i]], 1);
  __syncthreads();
  for (u32 b = threadIdx.x; b < 256; b += blockDim.x)
    if (bins[b]) atomicAdd(&out[b], bins[b]);
}

/* One addition for all lanes with the same value. */
KERNEL histogram_match(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, bin = in[i] & 15;
  u32 peers = __match_any_sync(~0u, bin), leader = __ffs(peers) - 1;
  if ((threadIdx.x & 31) == leader) atomicAdd(&out[bin], __popc(peers));
}

/* Every atomic operation on 32 bits; each one whose result depends on the order uses a separate word. */
KERNEL atomics32(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i];
  atomicAdd(&out[0], x), atomicSub(&out[1], x), atomicMin(&out[2], x), atomicMax(&out[3], x);
  atomicMin((int *)&out[4], (int)x), atomicMax((int *)&out[5], (int)x);
  atomicAnd(&out[6], x | 0xf), atomicOr(&out[7], x & 0xf0f0), atomicXor(&out[8], x);
  atomicInc(&out[9], 100), atomicDec(&out[10], 100);
  u32 before = atomicExch(&out[16 + i], x), seen = atomicCAS(&out[16 + i], x, ~x);
  out[16 + i] = before + 7 * seen;
  atomicCAS(&out[16 + i], x, 0);
}

KERNEL atomics64(u32 *out, const u32 *in, u32 n) {
  u64 *o = (u64 *)out;
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  u64 x = (u64)in[i] * 0x9e3779b97f4a7c15ull;
  atomicAdd(&o[0], x), atomicMin(&o[1], x), atomicMax(&o[2], x), atomicMin((i64 *)&o[3], (i64)x);
  atomicMax((i64 *)&o[4], (i64)x), atomicAnd(&o[5], x | 0xff), atomicOr(&o[6], x & 0xf0f000f0f0), atomicXor(&o[7], x);
  u64 old = atomicExch(&o[16 + i], x);
  o[16 + i] = old + atomicCAS(&o[16 + i], x, x + 1);
}

/* Floats whose sums are exact whatever the order. */
KERNEL atomics_float(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd((float *)&out[0], (float)(in[i] & 0xff));
  atomicAdd((double *)&out[2], (double)in[i] * 0.25);
  float v = plain_f32(in[i]);
  u32 old = out[4], seen;
  do { /* the largest by compare and swap */
    seen = old;
    if (!(v > bits_f32(seen))) break;
    old = atomicCAS(&out[4], seen, f32_bits(v));
  } while (old != seen);
}

KERNEL atomics_shared(u32 *out, const u32 *in, u32 n) {
  __shared__ u32 s[12];
  __shared__ u64 w[3];
  __shared__ float f;
  u32 t = threadIdx.x, x = in[blockIdx.x * blockDim.x + t];
  if (t < 12) s[t] = t == 2 || t == 4 || t == 6 ? 0x7fffffff : 0;
  if (t < 3) w[t] = t;
  if (!t) f = 0;
  __syncthreads();
  atomicAdd(&s[0], x), atomicSub(&s[1], x), atomicMin(&s[2], x), atomicMax(&s[3], x);
  atomicMin((int *)&s[4], (int)x), atomicMax((int *)&s[5], (int)x);
  atomicAnd(&s[6], x | 0xff0), atomicOr(&s[7], x & 0xf0f0), atomicXor(&s[8], x);
  atomicInc(&s[9], 36), atomicDec(&s[10], 36);
  for (u32 old = s[11], seen; (seen = old, old = atomicCAS(&s[11], seen, seen ^ x)) != seen;) {}
  atomicAdd(&w[0], (u64)x << 20), atomicMax(&w[1], (u64)x << 7), atomicAdd(&f, (float)(x & 63));
  if (t == 5) {
    u64 before = atomicExch(&w[2], 77), seen = atomicCAS(&w[2], 77, 78);
    w[2] = before + seen;
  }
  __syncthreads();
  u32 *o = out + blockIdx.x * 19;
  if (t < 12) o[t] = s[t];
  if (t < 3) o[12 + 2 * t] = (u32)w[t], o[13 + 2 * t] = (u32)(w[t] >> 32);
  if (!t) o[18] = f32_bits(f);
}

/* A lock that all threads of all blocks take in turn. */
__device__ u32 lock;
KERNEL spin_lock(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  for (bool done = false; !done;) {
    if (atomicCAS(&lock, 0, 1) == 0) {
      __threadfence();
      volatile u32 *o = out;
      o[0] = o[0] + in[i];
      o[1] = o[1] + 1;
      __threadfence();
      atomicExch(&lock, 0);
      done = true;
    }
  }
}

/* Loads and stores of 1, 2, 4, 8 and 16 bytes. */
KERNEL vectors(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  uint4 a = ((const uint4 *)in)[i];
  uint2 b = ((const uint2 *)in)[i * 2 + 1];
  ushort4 c = ((const ushort4 *)in)[i];
  uchar4 d = ((const uchar4 *)in)[i * 4 + 3];
  short2 e = ((const short2 *)in)[i];
  char f = ((const char *)in)[i * 3];
  double2 g = ((const double2 *)in)[i];
  uint4 r;
  r.x = a.x + b.y + c.w, r.y = a.y ^ (u32)e.x * d.x, r.z = a.z - (u32)e.y + d.w * 256u, r.w = a.w + (u32)f + c.y;
  ((uint4 *)out)[i] = r;
  ((ushort2 *)out)[n * 4 + i] = make_ushort2((u16)(r.x + d.y), (u16)(r.y - c.x));
  ((uchar2 *)out)[n * 10 + i] = make_uchar2((u8)r.z, d.z);
  ((u8 *)out)[n * 22 + i] = (u8)(r.w >> 3);
  ((u64 *)(out + n * 6))[i] = f64_bits(g.x) ^ f64_bits(g.y) << 1;
}

/* Tables in constant memory with uniform and divergent indices; initialized and zeroed globals. */
TABLE u32 primes[32] = {2,  3,  5,  7,  11, 13, 17, 19, 23, 29,  31,  37,  41,  43,  47,  53,
                        59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131};
TABLE u8 letters[28] = "the quick brown fox jumped!";
TABLE double weights[4] = {0.5, -1.25, 3.0, 1e-3};
__device__ u32 seeds[4] = {11, 22, 33, 44};
__device__ u32 zeroed[64];
struct node {
  const u32 *next;
  u32 value;
};
__device__ u32 link_a = 5, link_b = 9;
__device__ const struct node chain[2] = {{&link_b, 100}, {&link_a, 200}};
KERNEL constants(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i], h = 0;
  for (u32 k = 0; k < 32; k++) h += primes[k] * (x >> k & 1);
  h += primes[x & 31] * 1000u + letters[x % 27] * 7u + letters[n % 27] + seeds[i & 3] + zeroed[i & 63];
  h += (u32)(i32)dmul(weights[x & 3], 1000.0) + *chain[i & 1].next * 3u + chain[x & 1].value;
  out[i] = h;
}

/* One function reads and writes shared, local and global memory through generic pointers. */
CALLED void stir(u32 *p, u32 by) {
  p[0] += by * 3;
  p[1] ^= p[0];
}
KERNEL generic(u32 *out, const u32 *in, u32 n) {
  __shared__ u32 s[128][2];
  u32 t = threadIdx.x, i = blockIdx.x * blockDim.x + t, x = in[i], l[2] = {x, ~x};
  s[t][0] = x * 5, s[t][1] = t;
  u32 *which = x % 3 == 0 ? l : x % 3 == 1 ? s[t] : out + 2 * i;
  out[2 * i] = x ^ 0x55, out[2 * i + 1] = i;
  stir(which, x >> 5);
  stir(x & 64 ? s[t] : out + 2 * i, i);
  u32 space = __isShared(which) | __isLocal(which) << 1 | __isGlobal(which) << 2;
  out[2 * i] += l[0] ^ s[t][0];
  out[2 * i + 1] += l[1] + s[t][1] + space * 1000u;
}

/* A transpose through shared memory without bank conflicts, in bytes and in words. */
KERNEL transpose(u32 *out, const u32 *in, u32 n) {
  __shared__ u32 tile[16][17];
  u32 x = threadIdx.x, y = threadIdx.y, bx = blockIdx.x * 16, by = blockIdx.y * 16;
  tile[y][x] = in[(by + y) * n + bx + x];
  __syncthreads();
  out[(bx + y) * n + by + x] = tile[x][y];
}

/* A sparse matrix in rows of different length times a vector, in u32. */
KERNEL sparse(u32 *out, const u32 *in, u32 n) {
  u32 row = blockIdx.x * blockDim.x + threadIdx.x, sum = 0, seed = in[row], length = seed % 23;
  for (u32 k = 0; k < length; k++) {
    u32 column = next_random(&seed) >> 8;
    sum += in[column % n] * (k + 1);
  }
  out[row] = sum;
}

/* All special registers of a launch, in three dimensions. */
KERNEL geometry(u32 *out, const u32 *in, u32 n) {
  u32 t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  u32 b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z), lane, below, equal;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
  asm("mov.u32 %0, %%lanemask_eq;" : "=r"(equal));
  u32 i = b * blockDim.x * blockDim.y * blockDim.z + t;
  out[i] = lane ^ below ^ equal << 1 ^ threadIdx.y << 8 ^ threadIdx.z << 12 ^ blockIdx.y << 16 ^ blockIdx.z << 20 ^
           gridDim.z << 24 ^ (u32)warpSize;
}

/* A structure of a hundred words by value, indexed by a variable. */
struct big {
  u32 w[100];
  u64 d[3];
};
extern "C" __global__ void parameters(u32 *out, const u32 *in, u32 n, u8 a, i16 b, struct big c, double e, float f) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = c.w[in[i] % 100] + a * 3u + (u32)b * 5u + fold64(c.d[i % 3]) + fold64(f64_bits(e)) + f32_bits(f);
}
