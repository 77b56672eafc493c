/* WMMA: D = A * B + C over 16x16 matrices with 16 terms a sum, across the lanes of a wave; EXEC is ignored.
 *
 * A: lane l % 16 holds row l % 16, B: column l % 16, elements in k order through the registers (lanes 16 and up repeat
 * lanes 0 to 15). C and D in wave32: register v, lane l is row 2 v + l / 16, column l % 16; in wave64: row 4 v + l /
 * 16. 16-bit results take one half of each register. f16 and bf16 sums are kept in f32, in order of k, one rounding a
 * step. Source: AMD matrix instruction calculator; RDNA3 ISA document. */
#include "rdna3_simd.h"

enum { N = 16 };
enum input { F16, BF16, IU8, IU4 };

/* Register r, lane l of the wave; a tuple's register number comes as the operand's source number. */
static inline const u32 *source(const struct rdna3_wave *w, const struct rdna3_uop *u, unsigned i) {
  return w->file + (u->src[i] - RDNA3_VGPR0) * RDNA3_LANES;
}
static inline u32 *result(struct rdna3_wave *w, i32 offset, int row) {
  int v = w->wave64 ? row / 4 : row / 2, lane = (w->wave64 ? row % 4 : row % 2) * N;
  return w->file + offset / 4 + v * RDNA3_LANES + lane / RDNA3_LANES * RDNA3_ROWS * RDNA3_LANES + lane % RDNA3_LANES;
}

static inline f32 float_element(u32 x, enum input in, u32 neg, u32 neg_hi, int high) {
  u32 h = high ? x >> 16 : x & 0xffff;
  h ^= (high ? neg_hi : neg) ? 0x8000 : 0;
  return in == F16 ? half_to_float(h) : as_f32(h << 16);
}
static inline i32 int_element(u32 x, int k, int bits, u32 is_signed) {
  u32 up = x << (32 - bits - k % (32 / bits) * bits);
  return is_signed ? (i32)up >> (32 - bits) : (i32)(up >> (32 - bits));
}
/* A constant as C: the bits for this width. */
static inline u32 constant_c(const struct rdna3_wave *w, const struct rdna3_uop *u, enum input in, int narrow) {
  i32 code = u->src[2];
  u32 v = code == RDNA3_LITERAL ? u->inst->literal : rdna3_scalar32(w, (unsigned)code);
  if (!narrow || code < RDNA3_FLOAT0 || code > RDNA3_INV2PI) return v;
  return in == F16 ? float_to_half(as_f32(v)) : v >> 16;
}
static inline u32 to_bf16(f32 x) {
  u32 v = as_u32(x);
  return x != x ? v >> 16 | 0x40 : (v + 0x7fff + (v >> 16 & 1)) >> 16;
}

static const struct rdna3_uop *floats(struct rdna3_wave *w, const struct rdna3_uop *u, enum input in, int narrow) {
  const struct rdna3_inst *i = u->inst;
  f32 a[N][N], b[N][N], sum[N][N] __attribute__((aligned(64)));
  const u32 *ra = source(w, u, 0), *rb = source(w, u, 1);
  u32 shift = i->opsel & 4 ? 16 : 0;
  for (int k = 0; k < N; k++)
    for (int l = 0; l < N; l++) {
      a[l][k] = float_element(ra[k / 2 * RDNA3_LANES + l], in, i->neg & 1, i->neg_hi & 1, k & 1);
      b[k][l] = float_element(rb[k / 2 * RDNA3_LANES + l], in, i->neg & 2, i->neg_hi & 2, k & 1);
    }
  for (int r = 0; r < N; r++) {
    u32 fixed = u->src[2] < RDNA3_VGPR0 ? constant_c(w, u, in, narrow) : 0;
    const u32 *c = u->src[2] < RDNA3_VGPR0 ? NULL : result(w, rdna3_vgpr((unsigned)u->src[2] - RDNA3_VGPR0), r);
    for (int l = 0; l < N; l++) {
      u32 x = c ? c[l] >> (narrow ? shift : 0) : fixed;
      f32 f = !narrow ? as_f32(x) : in == F16 ? half_to_float(x & 0xffff) : as_f32(x << 16);
      if (i->neg_hi & 4) f = __builtin_fabsf(f);
      sum[r][l] = i->neg & 4 ? -f : f;
    }
  }
  for (int r = 0; r < N; r++)
    for (int k = 0; k < N; k++)
      for (int l = 0; l < N; l++) sum[r][l] = __builtin_fmaf(a[r][k], b[k][l], sum[r][l]);
  for (int r = 0; r < N; r++) {
    u32 *d = result(w, u->dst, r);
    for (int l = 0; l < N; l++) {
      u32 h = in == F16 ? float_to_half(sum[r][l]) : to_bf16(sum[r][l]);
      d[l] = narrow ? (d[l] & ~(0xffffu << shift)) | h << shift : as_u32(sum[r][l]);
    }
  }
  return u + 1;
}

static const struct rdna3_uop *ints(struct rdna3_wave *w, const struct rdna3_uop *u, int bits) {
  const struct rdna3_inst *i = u->inst;
  i32 a[N][N], b[N][N];
  i64 sum[N][N];
  const u32 *ra = source(w, u, 0), *rb = source(w, u, 1);
  for (int k = 0; k < N; k++)
    for (int l = 0; l < N; l++) {
      int reg = k * bits / 32 * RDNA3_LANES + l;
      a[l][k] = int_element(ra[reg], k, bits, i->neg & 1);
      b[k][l] = int_element(rb[reg], k, bits, i->neg & 2);
    }
  for (int r = 0; r < N; r++) {
    u32 fixed = u->src[2] < RDNA3_VGPR0 ? constant_c(w, u, IU8, 0) : 0;
    const u32 *c = u->src[2] < RDNA3_VGPR0 ? NULL : result(w, rdna3_vgpr((unsigned)u->src[2] - RDNA3_VGPR0), r);
    for (int l = 0; l < N; l++) sum[r][l] = (i32)(c ? c[l] : fixed);
    for (int k = 0; k < N; k++)
      for (int l = 0; l < N; l++) sum[r][l] += (i64)a[r][k] * b[k][l];
  }
  for (int r = 0; r < N; r++) {
    u32 *d = result(w, u->dst, r);
    for (int l = 0; l < N; l++) {
      i64 s = sum[r][l];
      d[l] = (u32)(i->clamp ? (s > INT32_MAX ? INT32_MAX : s < INT32_MIN ? INT32_MIN : s) : s);
    }
  }
  return u + 1;
}

FN(f32_f16) { return floats(w, u, F16, 0); }
FN(f32_bf16) { return floats(w, u, BF16, 0); }
FN(f16_f16) { return floats(w, u, F16, 1); }
FN(bf16_bf16) { return floats(w, u, BF16, 1); }
FN(i32_iu8) { return ints(w, u, 8); }
FN(i32_iu4) { return ints(w, u, 4); }

const struct rdna3_handler SIMD_NAME(rdna3_valu_wmma_handlers)[] = {
    {RDNA3_VOP3P_v_wmma_f32_16x16x16_f16, f32_f16},
    {RDNA3_VOP3P_v_wmma_f32_16x16x16_bf16, f32_bf16},
    {RDNA3_VOP3P_v_wmma_f16_16x16x16_f16, f16_f16},
    {RDNA3_VOP3P_v_wmma_bf16_16x16x16_bf16, bf16_bf16},
    {RDNA3_VOP3P_v_wmma_i32_16x16x16_iu8, i32_iu8},
    {RDNA3_CLAMPED + RDNA3_VOP3P_v_wmma_i32_16x16x16_iu8, i32_iu8},
    {RDNA3_VOP3P_v_wmma_i32_16x16x16_iu4, i32_iu4},
    {RDNA3_CLAMPED + RDNA3_VOP3P_v_wmma_i32_16x16x16_iu4, i32_iu4},
    {RDNA3_ROW_COUNT, NULL},
};
