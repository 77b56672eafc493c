/* MUFU: functions of one number. They are computed in double and rounded once, so results are within 0.51 ulp of the
 * exact value (hardware's results are within its documented bounds; their bits are not published). f32 denormals count
 * as zero, as inputs and as results. Source: PTX ISA, the .approx instructions. */
#include "sm_simd.h"

static inline f64 sine(f64 a) {
  f64 f = turns((f32)a), up = 0.5 - f, down = -0.5 - f, endless = a - a, g = f > 0.25 ? up : f;
  g = f < -0.25 ? down : g;
  f64 r = sin_quarter(g);
  r = a == 0 ? a : r;
  return endless != 0 ? __builtin_nan("") : r;
}
static inline f64 cosine(f64 a) {
  f64 r = sin_quarter(0.25 - __builtin_fabs(turns((f32)a))), endless = a - a;
  return endless != 0 ? __builtin_nan("") : r;
}
static inline f64 power_of_two(f64 a) {
  f64 r = exp2_of(a);
  return a != a ? a : r;
}
static inline f64 logarithm(f64 a) {
  f64 endless = a - a, r = log2_of(a > 0 && endless == 0 ? a : 1);
  r = endless != 0 ? a : r;
  r = a < 0 ? __builtin_nan("") : r;
  r = a == 0 ? -__builtin_inf() : r;
  return a != a ? a : r;
}
static inline f64 inverse(f64 a) { return 1.0 / a; }
static inline f64 root(f64 a) { return __builtin_sqrt(a); }
static inline f64 inverse_root(f64 a) {
  f64 r = 1.0 / __builtin_sqrt(a > 0 ? a : 1), infinite = 1.0 / a;
  r = a < 0 ? __builtin_nan("") : r;
  r = a == 0 ? infinite : r;
  return a != a ? a : r;
}
/* Near zero by a quotient of Lambert's continued fraction, else by the exponential. */
static inline f64 hyperbolic_tangent(f64 a) {
  f64 s = a * a, e = exp2_of(__builtin_fabs(a) * 2.8853900817779268), far = 1 - 2 / (e + 1);
  f64 near = a * (135135 + s * (17325 + s * (378 + s))) / (135135 + s * (62370 + s * (3150 + s * 28)));
  f64 r = s < 0.36 ? near : __builtin_copysign(far, a);
  return a != a ? a : r;
}

#define FUNCTION(name, f)                                                                                              \
  FN(name) {                                                                                                           \
    const u32 *a_ = ROW(u32, 0);                                                                                       \
    MODIFIERS(u, 0);                                                                                                   \
    STORE(f32, canonical32(flush32((f32)f((f64)flush32(as_f32(MODIFIED(a_[l], 0)))))))                                 \
  }
/* Applies f to one half of the source (arg: its shift), as f16 or bf16; the result goes to the low half. */
#define FUNCTION_HALF(name, f)                                                                                         \
  FN(name) {                                                                                                           \
    const u32 *a_ = ROW(u32, 0);                                                                                       \
    u32 shift = u->arg, bf16 = u->flag & SM_BF16;                                                                      \
    const u32 keep0 = KEEP(u, 0, 0x8000), flip0 = FLIP(u, 0, 0x8000);                                                  \
    ROWBUF(u32, h);                                                                                                    \
    ROWBUF(float, x);                                                                                                  \
    LANES { h[l] = MODIFIED(a_[l] >> shift & 0xffff, 0); }                                                             \
    if (bf16) {                                                                                                        \
      LANES { x[l] = as_f32(h[l] << 16); }                                                                             \
    } else {                                                                                                           \
      halves_to_floats(x, h);                                                                                          \
    }                                                                                                                  \
    ROWBUF(double, y_);                                                                                                \
    LANES { y_[l] = f((f64)x[l]); }                                                                                    \
    int mantissa = bf16 ? 7 : 10, exponent = bf16 ? 8 : 5;                                                             \
    STORE(u32, y_[l] != y_[l] ? 0x7fff : narrow(y_[l], mantissa, exponent, SM_ROUND_NEAREST))                          \
  }
#define MUFU2(name, f)                                                                                                 \
  FUNCTION(name, f)                                                                                                    \
  FUNCTION_HALF(name##_half, f)
MUFU2(mufu_cos, cosine)
MUFU2(mufu_sin, sine)
MUFU2(mufu_ex2, power_of_two)
MUFU2(mufu_lg2, logarithm)
MUFU2(mufu_rcp, inverse)
MUFU2(mufu_rsq, inverse_root)
MUFU2(mufu_sqrt, root)
MUFU2(mufu_tanh, hyperbolic_tangent)

/* Rounds a double to its high word and flushes denormals. */
static inline u32 high_word(f64 r) {
  uint64_t v = as_u64(r), rounded = (v + 0x80000000u) >> 32;
  u32 high = r != r ? 0x7fffffff : r - r != 0 ? (u32)(v >> 32) : (u32)rounded;
  return high & 0x7ff00000 ? high : high & 0x80000000;
}
static inline f64 from_high(u32 x) { return as_f64((uint64_t)(x & 0x7ff00000 ? x : x & 0x80000000) << 32); }
FN(mufu_rcp64h) {
  const u32 *a_ = ROW(u32, 0);
  MODIFIERS(u, 0);
  STORE(u32, high_word(1.0 / from_high(MODIFIED(a_[l], 0))))
}
FN(mufu_rsq64h) {
  const u32 *a_ = ROW(u32, 0);
  MODIFIERS(u, 0);
  STORE(u32, high_word(inverse_root(from_high(MODIFIED(a_[l], 0)))))
}

#define MUFU(name) [SM_FN_##name] = name,
sm_exec_fn *const SIMD_NAME(sm_rowop_mufu)[SM_FN_COUNT] = {
#include "sm_rowop.def"
};
