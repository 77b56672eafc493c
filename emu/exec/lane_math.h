/* Arithmetic on rows of 32 lanes that all emulated GPUs share: loops that the compiler vectorizes, formats that the
 * host may not support, and functions that hosts do not have as vector instructions. Included by files that are
 * compiled once per host feature level. */
#ifndef DOORBELL_EMU_LANE_MATH_H
#define DOORBELL_EMU_LANE_MATH_H
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { ROW_LANES = 32 };

/* Types of row elements. Registers have no fixed type, so these may alias. */
typedef uint32_t u32 __attribute__((may_alias));
typedef int32_t i32 __attribute__((may_alias));
typedef float f32 __attribute__((may_alias));
typedef uint64_t u64 __attribute__((may_alias));
typedef int64_t i64;
typedef double f64;
typedef uint16_t u16;
typedef int16_t i16;
typedef uint8_t u8;

/* Lanes never depend on each other: a destination row equals a source row or does not overlap it. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop that is not vectorized is only slow */
#define LANES _Pragma("clang loop vectorize(assume_safety)") for (int l = 0; l < ROW_LANES; l++)
#else
#define LANES _Pragma("GCC ivdep") for (int l = 0; l < ROW_LANES; l++)
#endif
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

/* A 64-bit element is stored in two rows. */
static inline uint64_t pair(const u32 *row, int l) { return row[l] | (uint64_t)row[l + ROW_LANES] << 32; }
#define PAIR_u64(p, l) pair(p, l)
#define PAIR_i64(p, l) (i64) pair(p, l)
#define PAIR_f64(p, l) as_f64(pair(p, l))
#define BITS_u64(x)    (x)
#define BITS_i64(x)    (uint64_t)(x)
#define BITS_f64(x)    as_u64(x)
/* Returns the sign bit of each lane. */
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
  for (int l = 0; l < ROW_LANES; l++) r |= (u32)flag[l] >> 31 << l;
  return r;
#endif
}
/* Sets bits to one bit per lane, for all lanes, set where expr is true. */
#define LANE_BITS(bits, expr)                                                                                          \
  i32 flag_[ROW_LANES] __attribute__((aligned(64)));                                                                   \
  LANES { flag_[l] = (expr) ? -1 : 0; }                                                                                \
  bits = gather_bits(flag_);
/* ---- bits ---- */

static inline u32 reverse(u32 x) {
  x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
  x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
  x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
  return x >> 24 | (x >> 8 & 0xff00) | (x & 0xff00) << 8 | x << 24;
}
static inline u32 ones(u32 x) {
  x -= x >> 1 & 0x55555555;
  x = (x & 0x33333333) + (x >> 2 & 0x33333333);
  return ((x + (x >> 4)) & 0x0f0f0f0f) * 0x01010101u >> 24;
}
/* Sets all bits below the highest set bit; the number of leading zeros is 32 minus the number of ones. */
static inline u32 smear(u32 x) {
  x |= x >> 1, x |= x >> 2, x |= x >> 4, x |= x >> 8;
  return x | x >> 16;
}
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
/* Rounds to nearest even; overflow gives infinity. */
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
/* Rounds x to a value that a half can hold, in the rounding mode of the host's control word: adds a number whose last
 * bit has the weight of the half's last bit, and subtracts it again. */
static inline f32 round_to_half(f32 x) {
  u32 v = as_u32(x), sign = v & 0x80000000u, a = v & 0x7fffffff, exponent = a & 0x7f800000;
  f32 grid = as_f32(sign | ((exponent < 113u << 23 ? 113u << 23 : exponent) + (13u << 23)));
  f32 one = as_f32(sign | 0x3f800000u),
      up = one + as_f32(sign | 0x33c00000u);                             /* 1 and three quarters of its last bit */
  f32 beyond = as_f32(sign | (up == one ? 0x477fe000u : 0x7f800000u));   /* the largest half, or infinity */
  f32 rounded = as_f32((as_u32((x + grid) - grid) & 0x7fffffff) | sign); /* a zero has the sign of x */
  return a >= 0x7f800000u ? x : a >= 0x47800000u ? beyond : rounded;
}
/* Convert the halves in the low 16 bits of 32 elements to floats, and floats to halves in the rounding mode of the
 * host's control word. */
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
  LANES { d[l] = float_to_half(round_to_half(s[l])); }
#endif
}
/* Returns a * b + c rounded once to half, as a float that converts exactly to that half: rounds to odd with more bits
 * than a half has. */
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

/* ---- functions computed in double; within 0.51 ulp of a float ---- */

static inline f64 round_int(f64 x) { return (x + 0x1.8p52) - 0x1.8p52; } /* |x| < 2^51 */
/* 2^x: x = n + f, |f| <= 1/2, and the exponential series of f ln 2. */
static inline f64 exp2_of(f64 x) {
  x = x > 1100 ? 1100 : x;
  x = x < -1100 ? -1100 : x;
  f64 n = round_int(x), t = (x - n) * 0.6931471805599453;
  f64 p =
      1 + t * (1 + t * (1.0 / 2 +
                        t * (1.0 / 6 + t * (1.0 / 24 + t * (1.0 / 120 +
                                                            t * (1.0 / 720 + t * (1.0 / 5040 + t * (1.0 / 40320))))))));
  i32 e = (i32)(u32)as_u64(x + 0x1.8p52); /* n; if x is a NaN, any value */
  e = e > 1000 ? 1000 : e < -1000 ? -1000 : e;
  return p * as_f64((uint64_t)(i64)(1023 + e) << 52);
}
/* log2 of a positive normal double: exponent, and the series of artanh((m - 1) / (m + 1)) for m in [sqrt(1/2),
 * sqrt(2)). */
static inline f64 log2_of(f64 x) {
  uint64_t v = as_u64(x) - as_u64(0.7071067811865476);
  i32 e = (i32)((i64)v >> 52);
  f64 m = as_f64(as_u64(x) - ((uint64_t)(i64)e << 52)), t = (m - 1) / (m + 1), s = t * t;
  f64 p = 1 + s * (1.0 / 3 +
                   s * (1.0 / 5 + s * (1.0 / 7 + s * (1.0 / 9 + s * (1.0 / 11 + s * (1.0 / 13 + s * (1.0 / 15)))))));
  return (f64)e + t * p * 2.8853900817779268;
}
/* sin(2 pi x) for |x| <= 1/4. */
static inline f64 sin_quarter(f64 x) {
  f64 y = x * 6.283185307179586, s = y * y;
  return y * (1 - s * (1.0 / 6 - s * (1.0 / 120 - s * (1.0 / 5040 -
                                                       s * (1.0 / 362880 - s * (1.0 / 39916800 -
                                                                                s * (1.0 / 6227020800.0 -
                                                                                     s * (1.0 / 1307674368000.0))))))));
}
/* Reduces a number of turns to [-1/2, 1/2]. A float of 2^24 or more is a whole number of turns. */
static inline f64 turns(f32 a) {
  f64 x = __builtin_fabsf(a) < 0x1p24f ? (f64)a : 0;
  return x - round_int(x);
}
#endif
