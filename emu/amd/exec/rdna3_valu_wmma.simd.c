/* WMMA: D = A * B + C on 16x16 matrices across the lanes of a wave; each sum has 16 terms. EXEC is ignored.
 *
 * A: lane l % 16 holds row l % 16; B: column l % 16. Elements are in k order through the registers; lanes 16 and up
 * repeat lanes 0 to 15. C and D in wave32: register v, lane l is row 2 v + l / 16, column l % 16; in wave64: row 4 v +
 * l / 16. 16-bit results use one half of each register. f16 and bf16 sums are kept in f32, in order of k, with one
 * rounding per step. Source: AMD matrix instruction calculator; RDNA3 ISA document. */
#include "rdna3_simd.h"

enum { N = 16 };
enum input { F16, BF16, IU8, IU4 };

/* Return register r, lane l of the wave; the register number of a tuple is its operand's source number. */
static inline const u32 *source_row(const struct rdna3_wave *w, const struct rdna3_uop *u, unsigned i) {
  return w->file + (u->src[i] - RDNA3_VGPR0) * RDNA3_LANES;
}
static inline u32 *result_row(struct rdna3_wave *w, i32 offset, int row) {
  int v = w->wave64 ? row / 4 : row / 2, lane = (w->wave64 ? row % 4 : row % 2) * N;
  return w->file + offset / 4 + v * RDNA3_LANES + lane / RDNA3_LANES * RDNA3_ROWS * RDNA3_LANES + lane % RDNA3_LANES;
}

/* Converts the elements of each lane's row of A or column of B, indexed by k. */
static inline void float_elements(f32 (*m)[N], const u32 *rows, enum input in, u32 neg, u32 neg_hi) {
  u32 flip = neg ? 0x8000 : 0, flip_hi = neg_hi ? 0x8000 : 0;
  for (int r = 0; r < N / 2; r++) {
    u32 h[2 * N] __attribute__((aligned(64))); /* low halves, then high ones */
    for (int l = 0; l < N; l++) {
      u32 x = rows[r * RDNA3_LANES + l];
      h[l] = (x & 0xffff) ^ flip;
      h[N + l] = x >> 16 ^ flip_hi;
    }
    if (in == F16)
      halves_to_floats(m[2 * r], h);
    else
      for (int l = 0; l < 2 * N; l++) m[2 * r + l / N][l % N] = as_f32(h[l] << 16);
  }
}
/* sum[r] += a[k][r] * b[k] for each k in order; each sum is rounded. */
static inline void multiply(f32 (*sum)[N], const f32 (*a)[N], const f32 (*b)[N]) {
#if defined(__AVX512F__)
  __m512 s[N];
#pragma GCC unroll 16
  for (int r = 0; r < N; r++) s[r] = _mm512_load_ps(sum[r]);
#pragma GCC unroll 1
  for (int k = 0; k < N; k++) {
    __m512 row = _mm512_load_ps(b[k]);
#pragma GCC unroll 16
    for (int r = 0; r < N; r++) s[r] = _mm512_fmadd_ps(_mm512_set1_ps(a[k][r]), row, s[r]);
  }
#pragma GCC unroll 16
  for (int r = 0; r < N; r++) _mm512_store_ps(sum[r], s[r]);
#elif defined(__FMA__) && defined(__AVX2__)
  for (int r = 0; r < N; r += 4) {
    __m256 s[8];
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) s[j] = _mm256_load_ps(&sum[r + j / 2][j % 2 * 8]);
#pragma GCC unroll 1
    for (int k = 0; k < N; k++) {
      __m256 half[2] = {_mm256_load_ps(b[k]), _mm256_load_ps(b[k] + 8)};
#pragma GCC unroll 8
      for (int j = 0; j < 8; j++) s[j] = _mm256_fmadd_ps(_mm256_broadcast_ss(&a[k][r + j / 2]), half[j % 2], s[j]);
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) _mm256_store_ps(&sum[r + j / 2][j % 2 * 8], s[j]);
  }
#else
  for (int k = 0; k < N; k++)
    for (int r = 0; r < N; r++)
      for (int l = 0; l < N; l++) sum[r][l] = __builtin_fmaf(a[k][r], b[k][l], sum[r][l]);
#endif
}
static inline i32 int_element(u32 x, int k, int bits, u32 is_signed) {
  u32 up = x << (32 - bits - k % (32 / bits) * bits);
  return is_signed ? (i32)up >> (32 - bits) : (i32)(up >> (32 - bits));
}
/* Returns the bits of a constant operand C for this width. */
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

static inline const struct rdna3_uop *multiply_floats(struct rdna3_wave *w, const struct rdna3_uop *u, enum input in,
                                                      int narrow) {
  const struct rdna3_inst *i = u->inst;
  f32 a[N][N] __attribute__((aligned(64))), b[N][N] __attribute__((aligned(64))),
      sum[N][N] __attribute__((aligned(64)));
  u32 shift = i->opsel & 4 ? 16 : 0, clear = i->neg_hi & 4 ? 0x7fffffff : ~0u, flip = i->neg & 4 ? 0x80000000 : 0;
  u32 fixed = u->src[2] < RDNA3_VGPR0 ? constant_c(w, u, in, narrow) : 0;
  float_elements(a, source_row(w, u, 0), in, i->neg & 1, i->neg_hi & 1);
  float_elements(b, source_row(w, u, 1), in, i->neg & 2, i->neg_hi & 2);
  for (int r = 0; r < N; r++) {
    const u32 *c = u->src[2] < RDNA3_VGPR0 ? NULL : result_row(w, rdna3_vgpr((unsigned)u->src[2] - RDNA3_VGPR0), r);
    for (int l = 0; l < N; l++) {
      u32 x = c ? c[l] : fixed;
      if (narrow) {
        x = c ? x >> shift : x;
        x = in == F16 ? as_u32(half_to_float(x & 0xffff)) : x << 16;
      }
      sum[r][l] = as_f32((x & clear) ^ flip);
    }
  }
  multiply(sum, a, b);
  for (int r = 0; r < N; r++) {
    u32 *d = result_row(w, u->dst, r);
    if (!narrow) {
      memcpy(d, sum[r], sizeof sum[r]);
      continue;
    }
    for (int l = 0; l < N; l++) {
      u32 h = in == F16 ? float_to_half(sum[r][l]) : to_bf16(sum[r][l]);
      d[l] = (d[l] & ~(0xffffu << shift)) | h << shift;
    }
  }
  return u + 1;
}

static const struct rdna3_uop *multiply_ints(struct rdna3_wave *w, const struct rdna3_uop *u, int bits) {
  const struct rdna3_inst *i = u->inst;
  i32 a[N][N], b[N][N];
  i64 sum[N][N];
  const u32 *ra = source_row(w, u, 0), *rb = source_row(w, u, 1);
  for (int k = 0; k < N; k++)
    for (int l = 0; l < N; l++) {
      int reg = k * bits / 32 * RDNA3_LANES + l;
      a[l][k] = int_element(ra[reg], k, bits, i->neg & 1);
      b[k][l] = int_element(rb[reg], k, bits, i->neg & 2);
    }
  for (int r = 0; r < N; r++) {
    u32 fixed = u->src[2] < RDNA3_VGPR0 ? constant_c(w, u, IU8, 0) : 0;
    const u32 *c = u->src[2] < RDNA3_VGPR0 ? NULL : result_row(w, rdna3_vgpr((unsigned)u->src[2] - RDNA3_VGPR0), r);
    for (int l = 0; l < N; l++) sum[r][l] = (i32)(c ? c[l] : fixed);
    for (int k = 0; k < N; k++)
      for (int l = 0; l < N; l++) sum[r][l] += (i64)a[r][k] * b[k][l];
  }
  for (int r = 0; r < N; r++) {
    u32 *d = result_row(w, u->dst, r);
    for (int l = 0; l < N; l++) {
      i64 s = sum[r][l];
      d[l] = (u32)(i->clamp ? (s > INT32_MAX ? INT32_MAX : s < INT32_MIN ? INT32_MIN : s) : s);
    }
  }
  return u + 1;
}

FN(f32_f16) { return multiply_floats(w, u, F16, 0); }
FN(f32_bf16) { return multiply_floats(w, u, BF16, 0); }
FN(f16_f16) { return multiply_floats(w, u, F16, 1); }
FN(bf16_bf16) { return multiply_floats(w, u, BF16, 1); }
FN(i32_iu8) { return multiply_ints(w, u, 8); }
FN(i32_iu4) { return multiply_ints(w, u, 4); }

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
