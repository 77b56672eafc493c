/* Matrix products by mma.sync in every type: c = a b. a has 32 rows and 64 columns, b 64 rows and 16 columns. Elements
 * are small whole numbers, so every order of summation gives the same result. One warp computes 16 x 8 elements.
 * Fragments have the layout of the PTX ISA, "Warp-level matrix instructions". */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "shared.h"

BODY int a_at(const u32 *in, u32 row, u32 k) { return (int)(((const u8 *)in)[row * 64 + k] & 15) - 8; }
BODY int b_at(const u32 *in, u32 k, u32 column) { return (int)(((const u8 *)in)[2048 + k * 16 + column] & 15) - 7; }

BODY u32 half_pair(int x, int y) {
  return __half_as_ushort(__int2half_rn(x)) | (u32)__half_as_ushort(__int2half_rn(y)) << 16;
}
BODY u32 bfloat_pair(int x, int y) { return f32_bits((float)x) >> 16 | (f32_bits((float)y) & 0xffff0000u); }

#define PLACE                                                                                                          \
  u32 lane = threadIdx.x, g = lane >> 2, t = lane & 3, row = blockIdx.y * 16 + g, column = blockIdx.x * 8 + g;         \
  u32 at = row * 16 + blockIdx.x * 8 + t * 2

KERNEL mma_f16(u32 *out, const u32 *in, u32 n) {
  PLACE;
  float c[4] = {0, 0, 0, 0}, *o = (float *)out;
  for (u32 k = 0; k < 64; k += 16) {
    u32 a[4], b[2];
    for (u32 r = 0; r < 4; r++) {
      u32 kk = k + t * 2 + (r >> 1) * 8, rr = row + (r & 1) * 8;
      a[r] = half_pair(a_at(in, rr, kk), a_at(in, rr, kk + 1));
    }
    for (u32 r = 0; r < 2; r++)
      b[r] = half_pair(b_at(in, k + t * 2 + r * 8, column), b_at(in, k + t * 2 + r * 8 + 1, column));
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  o[at] = c[0], o[at + 1] = c[1], o[at + 128] = c[2], o[at + 129] = c[3];
}

/* f16 sums, steps of eight. */
KERNEL mma_f16_f16(u32 *out, const u32 *in, u32 n) {
  PLACE;
  u32 c[2] = {0, 0};
  for (u32 k = 0; k < 64; k += 8) {
    u32 a[2], b = half_pair(b_at(in, k + t * 2, column), b_at(in, k + t * 2 + 1, column));
    for (u32 r = 0; r < 2; r++)
      a[r] = half_pair(a_at(in, row + r * 8, k + t * 2), a_at(in, row + r * 8, k + t * 2 + 1));
    asm("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3}, {%4}, {%0,%1};"
        : "+r"(c[0]), "+r"(c[1])
        : "r"(a[0]), "r"(a[1]), "r"(b));
  }
  out[at / 2] = c[0], out[at / 2 + 64] = c[1];
}

KERNEL mma_bf16(u32 *out, const u32 *in, u32 n) {
  PLACE;
  float c[4] = {0, 0, 0, 0}, *o = (float *)out;
  for (u32 k = 0; k < 64; k += 16) {
    u32 a[4], b[2];
    for (u32 r = 0; r < 4; r++) {
      u32 kk = k + t * 2 + (r >> 1) * 8, rr = row + (r & 1) * 8;
      a[r] = bfloat_pair(a_at(in, rr, kk), a_at(in, rr, kk + 1));
    }
    for (u32 r = 0; r < 2; r++)
      b[r] = bfloat_pair(b_at(in, k + t * 2 + r * 8, column), b_at(in, k + t * 2 + r * 8 + 1, column));
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  o[at] = c[0], o[at + 1] = c[1], o[at + 128] = c[2], o[at + 129] = c[3];
}

KERNEL mma_tf32(u32 *out, const u32 *in, u32 n) {
  PLACE;
  float c[4] = {0, 0, 0, 0}, *o = (float *)out;
  for (u32 k = 0; k < 64; k += 8) {
    u32 a[4], b[2];
    for (u32 r = 0; r < 4; r++) a[r] = f32_bits((float)a_at(in, row + (r & 1) * 8, k + t + (r >> 1) * 4));
    for (u32 r = 0; r < 2; r++) b[r] = f32_bits((float)b_at(in, k + t + r * 4, column));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  o[at] = c[0], o[at + 1] = c[1], o[at + 128] = c[2], o[at + 129] = c[3];
}

/* Signed times unsigned bytes, with saturation. */
KERNEL mma_s8(u32 *out, const u32 *in, u32 n) {
  PLACE;
  int c[4] = {0, 0, 0x7ffffff0, -0x7ffffff0};
  for (u32 k = 0; k < 64; k += 32) {
    u32 a[4], b[2];
    for (u32 r = 0; r < 4; r++) {
      a[r] = 0;
      for (u32 e = 0; e < 4; e++)
        a[r] |= (u32)(u8)(a_at(in, row + (r & 1) * 8, k + t * 4 + (r >> 1) * 16 + e) * 15) << 8 * e;
    }
    for (u32 r = 0; r < 2; r++) {
      b[r] = 0;
      for (u32 e = 0; e < 4; e++) b[r] |= (u32)(u8)((b_at(in, k + t * 4 + r * 16 + e, column) + 7) * 17) << 8 * e;
    }
    asm("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  out[at] = (u32)c[0], out[at + 1] = (u32)c[1], out[at + 128] = (u32)c[2], out[at + 129] = (u32)c[3];
}

/* Steps of four, eight rows at a time. */
KERNEL mma_f64(u32 *out, const u32 *in, u32 n) {
  u32 lane = threadIdx.x, g = lane >> 2, t = lane & 3, row = blockIdx.y * 8 + g, column = blockIdx.x * 8 + g;
  double c[2] = {0, 0}, *o = (double *)out;
  for (u32 k = 0; k < 64; k += 4) {
    double a = (double)a_at(in, row, k + t), b = (double)b_at(in, k + t, column);
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
        : "+d"(c[0]), "+d"(c[1])
        : "d"(a), "d"(b));
  }
  o[row * 16 + blockIdx.x * 8 + t * 2] = c[0], o[row * 16 + blockIdx.x * 8 + t * 2 + 1] = c[1];
}

/* Fragments through ldmatrix out of shared memory, b transposed on the way. */
KERNEL mma_ldmatrix(u32 *out, const u32 *in, u32 n) {
  __shared__ __align__(16) u16 a[16][72], b[64][8];
  u32 lane = threadIdx.x, at = (blockIdx.y * 16 + (lane >> 2)) * 16 + blockIdx.x * 8 + (lane & 3) * 2;
  float c[4] = {0, 0, 0, 0}, *o = (float *)out;
  for (u32 k = lane; k < 16 * 64; k += 32)
    a[k / 64][k % 64] = __half_as_ushort(__int2half_rn(a_at(in, blockIdx.y * 16 + k / 64, k % 64)));
  for (u32 k = lane; k < 64 * 8; k += 32)
    b[k / 8][k % 8] = __half_as_ushort(__int2half_rn(b_at(in, k / 8, blockIdx.x * 8 + k % 8)));
  __syncwarp();
  for (u32 k = 0; k < 64; k += 16) {
    u32 fa[4], fb[2];
    u32 pa = (u32)__cvta_generic_to_shared(&a[lane & 15][k + (lane >> 4) * 8]);
    u32 pb = (u32)__cvta_generic_to_shared(&b[k + (lane & 15)][0]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3])
                 : "r"(pa));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(fb[0]), "=r"(fb[1]) : "r"(pb));
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
  }
  o[at] = c[0], o[at + 1] = c[1], o[at + 128] = c[2], o[at + 129] = c[3];
}

/* Tiles of 8 x 8 halves turned around in registers. */
KERNEL mma_transpose(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * 32 + threadIdx.x, v = in[i], r;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(v));
  out[i] = r;
}
