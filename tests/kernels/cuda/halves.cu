/* f16 and bf16: one at a time and two at a time. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "shared.h"

BODY u32 h2(__half2 v) { return *(u32 *)&v; }
BODY u32 b2(__nv_bfloat162 v) { return *(u32 *)&v; }
BODY __half2 as_h2(u32 v) { return *(__half2 *)&v; }
BODY __nv_bfloat162 as_b2(u32 v) { return *(__nv_bfloat162 *)&v; }

/* Pairs of f16 whose exponents are near 0. */
KERNEL half_pairs(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i];
  __half2 a = as_h2((x & 0x8fff8fffu) + 0x30003000u), b = as_h2((rotl(x, 11) & 0x8fff8fffu) + 0x30003000u);
  __half2 c = as_h2((rotl(x, 21) & 0x8fff8fffu) + 0x30003000u);
  u32 *o = out + i * 8;
  o[0] = h2(__hadd2_rn(a, b)), o[1] = h2(__hmul2_rn(a, c)), o[2] = h2(__hfma2(a, b, c)), o[3] = h2(__hsub2_rn(b, c));
  o[4] = h2(__hmin2(a, b)), o[5] = h2(__hmax2(b, c)), o[6] = h2(__hneg2(a)) ^ h2(__habs2(b)) << 1;
  o[7] = __hlt2_mask(a, b) ^ (__hge2_mask(b, c) & 0x5a5a5a5a) ^ h2(__hfma2_relu(a, b, c));
}

KERNEL bfloat_pairs(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i];
  __nv_bfloat162 a = as_b2((x & 0x81ff81ffu) + 0x3f003f00u), b = as_b2((rotl(x, 11) & 0x81ff81ffu) + 0x3f003f00u);
  __nv_bfloat162 c = as_b2((rotl(x, 21) & 0x81ff81ffu) + 0x3f003f00u);
  u32 *o = out + i * 8;
  o[0] = b2(__hadd2_rn(a, b)), o[1] = b2(__hmul2_rn(a, c)), o[2] = b2(__hfma2(a, b, c)), o[3] = b2(__hsub2_rn(b, c));
  o[4] = b2(__hmin2(a, b)), o[5] = b2(__hmax2(b, c)), o[6] = b2(__hneg2(a)) ^ b2(__habs2(b)) << 1;
  o[7] = __hlt2_mask(a, b) ^ (__hge2_mask(b, c) & 0x5a5a5a5a);
}

/* Conversions of f16 and bf16 from and to everything. */
KERNEL half_conversions(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i];
  float f = plain_f32(x), g = plain_f32(x * 69069u + i);
  double d = plain_f64(x, i);
  __half h = __float2half_rn(f);
  __nv_bfloat16 b = __float2bfloat16_rn(g);
  u32 *o = out + i * 8;
  o[0] = __half_as_ushort(h) | (u32)__bfloat16_as_ushort(b) << 16;
  o[1] = f32_bits(__half2float(h)), o[2] = f32_bits(__bfloat162float(b));
  o[3] = __half_as_ushort(__int2half_rn((int)x >> 16)) | (u32)__half_as_ushort(__uint2half_rn(x >> 20)) << 16;
  o[4] = (u32)__half2int_rz(h) ^ __half2uint_rz(__habs(h)) << 16;
  o[5] = h2(__floats2half2_rn(f, g)), o[6] = b2(__floats2bfloat162_rn(f, g));
  o[7] = __half_as_ushort(__double2half(d)) | (u32)__half_as_ushort(hfloor(h)) << 16;
}

/* A row times a column in f16 with f32 sums, and a running maximum. */
KERNEL half_dot(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  __half2 most = as_h2(0xfbfffbffu);
  for (u32 k = 0; k < n; k++) {
    __half2 a = as_h2((in[i * n + k] & 0x83ff83ffu) + 0x38003800u), b = as_h2((in[k] & 0x83ff83ffu) + 0x38003800u);
    float2 p = __half22float2(a), q = __half22float2(b);
    sum = ffma(p.x, q.x, sum), sum = ffma(p.y, q.y, sum);
    most = __hmax2(most, __hmul2_rn(a, b));
  }
  out[2 * i] = f32_bits(sum), out[2 * i + 1] = h2(most);
}
