/* Writing vector operations: each is a loop over 32 lanes that the compiler turns into the host's vectors (these files
 * are compiled once per host feature level). With every lane active the result is stored outright, otherwise lane by
 * lane under EXEC. */
#ifndef DOORBELL_EMU_AMD_RDNA3_SIMD_H
#define DOORBELL_EMU_AMD_RDNA3_SIMD_H
#include <string.h>
#include "rdna3_exec.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Row elements. Registers have no type of their own, so these may alias. */
typedef uint32_t u32 __attribute__((may_alias));
typedef int32_t i32 __attribute__((may_alias));
typedef float f32 __attribute__((may_alias));
typedef uint64_t u64 __attribute__((may_alias));
typedef int64_t i64;
typedef double f64;
typedef uint16_t u16;
typedef int16_t i16;
typedef uint8_t u8;

/* Lanes never depend on each other: a destination row is a source row or does not overlap it. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop that stays scalar is slow, not wrong */
#define LANES _Pragma("clang loop vectorize(assume_safety)") for (int l = 0; l < RDNA3_LANES; l++)
#else
#define LANES _Pragma("GCC ivdep") for (int l = 0; l < RDNA3_LANES; l++)
#endif
#define ALL       (*w->lanes == ~0u)
#define ON(l)     (lanes >> (l) & 1)
#define FN(name)  static const struct rdna3_uop *name(struct rdna3_wave *w, const struct rdna3_uop *u)
#define ROW(T, i) ((const T *)rdna3_row(w, u, i))

static inline f32 as_f32(u32 x) {
  f32 r;
  memcpy(&r, &x, 4);
  return r;
}
static inline u32 as_u32(f32 x) {
  u32 r;
  memcpy(&r, &x, 4);
  return r;
}
static inline f64 as_f64(uint64_t x) {
  f64 r;
  memcpy(&r, &x, 8);
  return r;
}
static inline uint64_t as_u64(f64 x) {
  uint64_t r;
  memcpy(&r, &x, 8);
  return r;
}

/* d = expr for the active lanes; expr may use a, b, c (the sources' elements at this lane) and d[l]. */
#define STORE(TD, expr)                                                                                                \
  u32 lanes = *w->lanes;                                                                                               \
  TD *d = rdna3_dst(w, u);                                                                                             \
  if (__builtin_expect(lanes == ~0u, 1)) {                                                                             \
    LANES { d[l] = (expr); }                                                                                           \
  } else {                                                                                                             \
    LANES {                                                                                                            \
      TD r_ = (expr);                                                                                                  \
      d[l] = ON(l) ? r_ : d[l];                                                                                        \
    }                                                                                                                  \
  }                                                                                                                    \
  return u + 1;
#define OP1(name, TD, TA, expr)                                                                                        \
  FN(name) {                                                                                                           \
    const TA *a_ = ROW(TA, 0);                                                                                         \
    STORE(TD, ({                                                                                                       \
            TA a = a_[l];                                                                                              \
            (expr);                                                                                                    \
          }))                                                                                                          \
  }
#define OP2(name, TD, TA, TB, expr)                                                                                    \
  FN(name) {                                                                                                           \
    const TA *a_ = ROW(TA, 0);                                                                                         \
    const TB *b_ = ROW(TB, 1);                                                                                         \
    STORE(TD, ({                                                                                                       \
            TA a = a_[l];                                                                                              \
            TB b = b_[l];                                                                                              \
            (expr);                                                                                                    \
          }))                                                                                                          \
  }
#define OP3(name, TD, TA, TB, TC, expr)                                                                                \
  FN(name) {                                                                                                           \
    const TA *a_ = ROW(TA, 0);                                                                                         \
    const TB *b_ = ROW(TB, 1);                                                                                         \
    const TC *c_ = ROW(TC, 2);                                                                                         \
    STORE(TD, ({                                                                                                       \
            TA a = a_[l];                                                                                              \
            TB b = b_[l];                                                                                              \
            TC c = c_[l];                                                                                              \
            (expr);                                                                                                    \
          }))                                                                                                          \
  }

/* 64-bit elements lie in two rows. */
static inline uint64_t pair(const u32 *row, int l) { return row[l] | (uint64_t)row[l + RDNA3_LANES] << 32; }
#define PAIR_u64(p, l) pair(p, l)
#define PAIR_i64(p, l) (i64) pair(p, l)
#define PAIR_f64(p, l) as_f64(pair(p, l))
#define BITS_u64(x)    (x)
#define BITS_i64(x)    (uint64_t)(x)
#define BITS_f64(x)    as_u64(x)
/* Results go through a buffer: the destination pair may overlap a source pair by one row. */
#define STORE64(TD, expr)                                                                                              \
  u32 lanes = *w->lanes, lo_[RDNA3_LANES] __attribute__((aligned(64))), hi_[RDNA3_LANES] __attribute__((aligned(64))); \
  u32 *d = rdna3_dst(w, u);                                                                                            \
  LANES {                                                                                                              \
    uint64_t r_ = BITS_##TD(expr);                                                                                     \
    lo_[l] = (u32)r_, hi_[l] = (u32)(r_ >> 32);                                                                        \
  }                                                                                                                    \
  store_row(d, lo_, lanes), store_row(d + RDNA3_LANES, hi_, lanes);                                                    \
  return u + 1;

static inline void store_row(u32 *d, const u32 *r, u32 lanes) {
  if (__builtin_expect(lanes == ~0u, 1))
    memcpy(d, r, RDNA3_LANES * 4);
  else
    LANES { d[l] = ON(l) ? r[l] : d[l]; }
}

/* One bit a lane from rows of 0 / nonzero flags (0 or ~0). */
static inline u32 gather_bits(const i32 *flag) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  return (u32)_mm512_movepi32_mask(_mm512_load_si512(flag)) | (u32)_mm512_movepi32_mask(_mm512_load_si512(flag + 16))
                                                                  << 16;
#elif defined(__AVX2__)
  u32 r = 0;
  for (int k = 0; k < 4; k++)
    r |= (u32)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_load_si256((const __m256i *)(const void *)(flag + 8 * k))))
         << (8 * k);
  return r;
#elif defined(__SSE2__)
  u32 r = 0;
  for (int k = 0; k < 8; k++)
    r |= (u32)_mm_movemask_ps(_mm_castsi128_ps(_mm_load_si128((const __m128i *)(const void *)(flag + 4 * k))))
         << (4 * k);
  return r;
#else
  u32 r = 0;
  for (int l = 0; l < RDNA3_LANES; l++) r |= (u32)(flag[l] & 1) << l;
  return r;
#endif
}
/* bits = one bit a lane, of every lane, set where expr is true. */
#define LANE_BITS(bits, expr)                                                                                          \
  i32 flag_[RDNA3_LANES] __attribute__((aligned(64)));                                                                 \
  LANES { flag_[l] = (expr) ? -1 : 0; }                                                                                \
  bits = gather_bits(flag_);
static inline void write_mask(struct rdna3_wave *w, const struct rdna3_uop *u, u32 bits) {
  w->s[u->sdst + w->half] = bits;
}
static inline u32 read_mask(const struct rdna3_wave *w, const struct rdna3_uop *u) { return w->s[u->smask + w->half]; }

/* ---- f16 ---- */

/* Exact. */
static inline f32 half_to_float(u32 h) {
  u32 sign = (h & 0x8000) << 16, rest = h & 0x7fff;
  f32 normal = as_f32((rest << 13) + 0x38000000u), tiny = (f32)(i32)rest * 0x1p-24f;
  u32 r = rest >= 0x7c00 ? (rest << 13) | 0x7f800000u | (rest > 0x7c00 ? 0x400000u : 0)
          : rest < 0x400 ? as_u32(tiny)
                         : as_u32(normal);
  return as_f32(r | sign);
}
/* Rounding to nearest even; overflow gives infinity. */
static inline u32 float_to_half(f32 x) {
  u32 v = as_u32(x), sign = v >> 16 & 0x8000, a = v & 0x7fffffff;
  u32 normal = (a - 0x38000000u + 0xfff + (a >> 13 & 1)) >> 13;
  u32 shift =
      a >= 0x33000000u && a < 0x38800000u ? 126 - (a >> 23) : 24; /* below 2^-14: the mantissa in units of 2^-24 */
  u32 m = (a & 0x7fffff) | 0x800000, kept = m >> shift, rest = m & ((1u << shift) - 1), tie = 1u << (shift - 1);
  u32 tiny = a < 0x33000000u ? 0 : kept + (rest > tie || (rest == tie && kept & 1));
  u32 r = a > 0x7f800000u ? 0x7e00 | (a >> 13 & 0x1ff) : a >= 0x47800000u ? 0x7c00 : a < 0x38800000u ? tiny : normal;
  return r | sign;
}
/* Halves in the low 16 bits of 32 elements, as floats; and back, rounding as the host's control word says where the
 * host can. */
static inline void halves_to_floats(f32 *d, const u32 *s) {
#if defined(__AVX512F__)
  for (int k = 0; k < 2; k++)
    _mm512_storeu_ps(d + 16 * k, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_loadu_si512(s + 16 * k))));
#else
  LANES { d[l] = half_to_float(s[l] & 0xffff); }
#endif
}
static inline void floats_to_halves(u32 *d, const f32 *s) {
#if defined(__AVX512F__)
  for (int k = 0; k < 2; k++)
    _mm512_storeu_si512(d + 16 * k,
                        _mm512_cvtepu16_epi32(_mm512_cvtps_ph(_mm512_loadu_ps(s + 16 * k), _MM_FROUND_CUR_DIRECTION)));
#elif defined(__F16C__)
  for (int k = 0; k < 4; k++)
    _mm256_storeu_si256((__m256i *)(void *)(d + 8 * k),
                        _mm256_cvtepu16_epi32(_mm256_cvtps_ph(_mm256_loadu_ps(s + 8 * k), _MM_FROUND_CUR_DIRECTION)));
#else
  LANES { d[l] = float_to_half(s[l]); }
#endif
}
/* a * b + c rounded once to half, as a float that converts to that half: rounded to odd with more bits than a half
 * has. */
static inline f32 fma_half(f32 a, f32 b, f32 c) {
  f64 p = (f64)a * b, s = p + c, bb = s - p, e = (p - (s - bb)) + (c - bb);
  uint64_t v = as_u64(s);
  int inexact = e != 0 && s - s == 0; /* infinities and NaNs have no error term */
  int64_t step = (e > 0) == (s > 0) ? 1 : -1;
  v = inexact && !(v & 1) ? v + (uint64_t)step : v;
  uint64_t low = v & ((1ull << 29) - 1);
  f64 odd = as_f64((v & ~((1ull << 29) - 1)) | (uint64_t)(low != 0) << 29);
  return (f32)(s - s == 0 ? odd : s);
}
#endif
