/* Stencils, matrix products, transforms, dynamic programs: blocks that share results. */
#include "shared.h"

/* Two steps of heat in a plane, f32, edges fixed. */
KERNEL heat2d(u32 *out, const u32 *in, u32 n) {
  __shared__ float a[18][18], b[18][18];
  u32 x = threadIdx.x, y = threadIdx.y;
  for (u32 r = y; r < 18; r += 16)
    for (u32 c = x; c < 18; c += 16) a[r][c] = b[r][c] = fmul((float)(i32)in[r * 18 + c], 0x1p-31f);
  for (int step = 0; step < 2; step++) {
    __syncthreads();
    float v = fadd(fadd(a[y][x + 1], a[y + 2][x + 1]), fadd(a[y + 1][x], a[y + 1][x + 2]));
    b[y + 1][x + 1] = ffma(0.2f, v, fmul(0.2f, a[y + 1][x + 1]));
    __syncthreads();
    a[y + 1][x + 1] = b[y + 1][x + 1];
  }
  out[y * 16 + x] = f32_bits(a[y + 1][x + 1]);
}

/* One step of heat on a line, f64, periodic. */
KERNEL heat1d(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  double l = (double)in[(i + n - 1) % n], c = (double)in[i], r = (double)in[(i + 1) % n];
  ((u64 *)out)[i] = f64_bits(dfma(0.1, dadd(l, dfma(-2.0, c, r)), c));
}

/* Conway's rule on bytes, on a torus. */
KERNEL life(u32 *out, const u32 *in, u32 n) {
  u32 x = threadIdx.x, y = threadIdx.y + blockIdx.x * blockDim.y, alive = 0;
  const u8 *cell = (const u8 *)in;
  for (u32 dy = 0; dy < 3; dy++)
    for (u32 dx = 0; dx < 3; dx++)
      if (dx != 1 || dy != 1) alive += cell[(y + dy + n - 1) % n * n + (x + dx + n - 1) % n] & 1;
  u8 now = cell[y * n + x] & 1;
  ((u8 *)out)[y * n + x] = alive == 3 || (now && alive == 2);
}

/* Blur of four-byte pixels, by a kernel in constant memory. */
TABLE u8 binomial[5] = {1, 4, 6, 4, 1};
KERNEL blur(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, sum[4] = {8, 8, 8, 8};
  for (u32 k = 0; k < 5; k++) {
    u32 at = i + k < 2 ? 0 : i + k - 2 >= n ? n - 1 : i + k - 2;
    uchar4 p = ((const uchar4 *)in)[at];
    sum[0] += p.x * binomial[k], sum[1] += p.y * binomial[k], sum[2] += p.z * binomial[k], sum[3] += p.w * binomial[k];
  }
  ((uchar4 *)out)[i] = make_uchar4((u8)(sum[0] >> 4), (u8)(sum[1] >> 4), (u8)(sum[2] >> 4), (u8)(sum[3] >> 4));
}

/* c = a b with tiles in shared memory, f32. */
KERNEL sgemm(u32 *out, const u32 *in, u32 n) {
  __shared__ float ta[16][16], tb[16][16];
  u32 x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
  const float *a = (const float *)in, *b = a + n * n;
  float sum = 0;
  for (u32 k = 0; k < n; k += 16) {
    ta[y][x] = a[row * n + k + x], tb[y][x] = b[(k + y) * n + column];
    __syncthreads();
    for (u32 j = 0; j < 16; j++) sum = ffma(ta[y][j], tb[j][x], sum);
    __syncthreads();
  }
  ((float *)out)[row * n + column] = sum;
}

/* Four f64 outputs per thread, loaded in pairs. */
KERNEL dgemm(u32 *out, const u32 *in, u32 n) {
  __shared__ double ta[8][8];
  __shared__ double2 tb[8][8];
  u32 x = threadIdx.x, y = threadIdx.y;
  const double *a = (const double *)in, *b = a + n * n;
  double s0 = 0, s1 = 0;
  for (u32 k = 0; k < n; k += 8) {
    ta[y][x] = a[(blockIdx.y * 8 + y) * n + k + x];
    tb[y][x] = ((const double2 *)b)[((k + y) * n + blockIdx.x * 16) / 2 + x];
    __syncthreads();
    for (u32 j = 0; j < 8; j++) s0 = dfma(ta[y][j], tb[j][x].x, s0), s1 = dfma(ta[y][j], tb[j][x].y, s1);
    __syncthreads();
  }
  double2 r = {s0, s1};
  ((double2 *)out)[((blockIdx.y * 8 + y) * n + blockIdx.x * 16) / 2 + x] = r;
}

/* Dot products of bytes by dp4a and of halves of words by dp2a. */
KERNEL byte_dots(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  int s = (int)i, t = 7;
  u32 u = i;
  for (u32 k = 0; k < 8; k++) {
    u32 a = in[i * 8 + k], b = in[(i * 8 + k * 3 + 1) % n];
    s = __dp4a((int)a, (int)b, s), u = __dp4a(a, b, u);
    t = __dp2a_lo((int)a, (int)b, t), t = __dp2a_hi((int)b, (int)a, t);
  }
  out[i] = (u32)s ^ rotl(u, 8) ^ rotl((u32)t, 16);
}

/* A transform of 128 points modulo 998244353 in shared memory. */
BODY u32 power_mod(u32 b, u32 e) {
  u64 r = 1, v = b;
  for (; e; e >>= 1, v = v * v % 998244353u)
    if (e & 1) r = r * v % 998244353u;
  return (u32)r;
}
KERNEL transform_mod(u32 *out, const u32 *in, u32 n) {
  __shared__ u32 s[128];
  u32 t = threadIdx.x;
  for (u32 k = t; k < 128; k += 64) s[__brev(k) >> 25] = in[blockIdx.x * 128 + k] % 998244353u;
  for (u32 half = 1; half < 128; half *= 2) {
    __syncthreads();
    u32 j = t % half, at = t / half * 2 * half + j, w = power_mod(3, 998244352u / (2 * half) * j);
    u32 a = s[at], b = (u32)((u64)s[at + half] * w % 998244353u);
    s[at] = (a + b) % 998244353u, s[at + half] = (a + 998244353u - b) % 998244353u;
  }
  __syncthreads();
  for (u32 k = t; k < 128; k += 64) out[blockIdx.x * 128 + k] = s[k];
}

/* A complex transform of 64 points, f32; its roots of unity are in the input. */
KERNEL transform_f32(u32 *out, const u32 *in, u32 n) {
  __shared__ float2 s[64];
  u32 t = threadIdx.x;
  const float2 *x = (const float2 *)in, *root = x + 64;
  for (u32 k = t; k < 64; k += 32) s[__brev(k) >> 26] = x[k];
  for (u32 half = 1; half < 64; half *= 2) {
    __syncthreads();
    u32 j = t % half, at = t / half * 2 * half + j;
    float2 w = root[j * (32 / half)], a = s[at], b = s[at + half], p;
    p.x = ffma(b.x, w.x, -fmul(b.y, w.y)), p.y = ffma(b.x, w.y, fmul(b.y, w.x));
    s[at] = make_float2(fadd(a.x, p.x), fadd(a.y, p.y));
    s[at + half] = make_float2(fsub(a.x, p.x), fsub(a.y, p.y));
  }
  __syncthreads();
  for (u32 k = t; k < 64; k += 32) ((float2 *)out)[k] = s[k];
}

/* All shortest paths between 32 nodes. */
KERNEL floyd(u32 *out, const u32 *in, u32 n) {
  __shared__ u32 d[32][33];
  u32 x = threadIdx.x;
  for (u32 y = threadIdx.y; y < 32; y += blockDim.y) d[y][x] = x == y ? 0 : in[y * 32 + x] >> 16;
  for (u32 k = 0; k < 32; k++) {
    __syncthreads();
    for (u32 y = threadIdx.y; y < 32; y += blockDim.y) {
      u32 v = d[y][k] + d[k][x];
      if (v < d[y][x]) d[y][x] = v;
    }
  }
  __syncthreads();
  for (u32 y = threadIdx.y; y < 32; y += blockDim.y) out[y * 32 + x] = d[y][x];
}

/* The longest common subsequence of two texts, one antidiagonal after another. */
KERNEL common_text(u32 *out, const u32 *in, u32 n) {
  __shared__ u16 d[3][66];
  u32 t = threadIdx.x;
  for (u32 k = t; k < 66; k += 64) d[0][k] = d[1][k] = d[2][k] = 0;
  for (u32 step = 0; step < 127; step++) {
    __syncthreads();
    u16 *now = d[step % 3], *last = d[(step + 2) % 3], *before = d[(step + 1) % 3];
    u32 column = step - t;
    if (t <= step && column < 64) {
      u16 a = last[t], b = column ? last[t + 1] : 0, c = column ? before[t] : 0;
      if (!t) a = 0, c = 0;
      now[t + 1] = (in[t] & 3) == (in[64 + column] & 3) ? (u16)(c + 1) : a > b ? a : b;
    }
  }
  __syncthreads();
  if (t == 63) out[0] = d[126 % 3][64];
}

/* Forces between bodies, f32, tiles of positions in shared memory, an inverse cube by square root and division. */
KERNEL nbody(u32 *out, const u32 *in, u32 n) {
  __shared__ float4 tile[64];
  u32 i = blockIdx.x * 64 + threadIdx.x;
  float4 me = ((const float4 *)in)[i];
  float3 f = {0, 0, 0};
  for (u32 b = 0; b < n; b += 64) {
    __syncthreads();
    tile[threadIdx.x] = ((const float4 *)in)[b + threadIdx.x];
    __syncthreads();
    for (u32 k = 0; k < 64; k++) {
      float dx = fsub(tile[k].x, me.x), dy = fsub(tile[k].y, me.y), dz = fsub(tile[k].z, me.z);
      float r2 = ffma(dx, dx, ffma(dy, dy, ffma(dz, dz, 0.01f))), s = fdiv(tile[k].w, fmul(r2, fsqrt(r2)));
      f.x = ffma(dx, s, f.x), f.y = ffma(dy, s, f.y), f.z = ffma(dz, s, f.z);
    }
  }
  ((float *)out)[i * 3] = f.x, ((float *)out)[i * 3 + 1] = f.y, ((float *)out)[i * 3 + 2] = f.z;
}

/* A matrix in 24 columns and rows split into two triangles, in place, f64, without pivots. */
KERNEL triangles(u32 *out, const u32 *in, u32 n) {
  __shared__ double m[24][25];
  u32 t = threadIdx.x;
  for (u32 r = 0; r < 24; r++) m[r][t] = (double)(in[r * 24 + t] >> 20) + (r == t ? 1e5 : 0.0);
  __syncthreads();
  for (u32 k = 0; k < 24; k++) {
    if (t > k) m[t][k] = ddiv(m[t][k], m[k][k]);
    __syncthreads();
    if (t > k)
      for (u32 c = k + 1; c < 24; c++) m[t][c] = dfma(-m[t][k], m[k][c], m[t][c]);
    __syncthreads();
  }
  for (u32 r = 0; r < 24; r++) ((u64 *)out)[r * 24 + t] = f64_bits(m[r][t]);
}

/* With selectors that repeat a sign, which __byte_perm leaves out. */
BODY u32 permute(u32 a, u32 b, u32 selector) {
  u32 r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
  return r;
}
/* Bits, bytes and halves of words side by side. */
KERNEL side_by_side(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, a = in[i], b = rotl(a, 13) * 5u + i, h;
  h = __popc(a) | __clz((int)(a >> (i & 31))) << 6 | __ffs((int)b) << 12 | __popcll((u64)a * b) << 18;
  h ^= __brev(a) + __byte_perm(a, b, 0x5210 + (i & 7)) * 3u + permute(a, b, 0xb961) + (u32)__clzll((i64)a) * 257u;
  h ^= __funnelshift_l(a, b, i) + __funnelshift_rc(a, b, i & 63) * 5u + fold64(__brevll((u64)b << 9 | a));
  h ^= __vadd2(a, b) + __vmaxs2(a, b) * 3u + __vminu4(a, b) * 5u + __vabsdiffu4(a, b) * 7u + __vsub4(a, b) * 9u;
  h ^= __sad((int)a, (int)b, h & 255) + __usad(a, b, 3u) * 3u + __umulhi(a, b) * 5u + (u32)__mulhi((int)a, (int)b) * 7u;
  h ^= fold64(__umul64hi((u64)a << 20 | b, (u64)b << 30 | a)) + (u32)__mul24((int)a, (int)b) + __uhadd(a, b) * 3u;
  out[i] = h ^ __vcmpgtu4(a, b) ^ (u32)max(min((int)a, (int)b), -5000) ^ __viaddmax_s32((int)a, 5, (int)b) ^
           (u32)__vimax3_s32((int)a, (int)b, (int)i);
}
