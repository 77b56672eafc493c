/* Conversions between formats. Every source is exact in a double or in a 64-bit integer, so a conversion rounds once:
 * the host rounds to f32 and f64, narrow() to smaller formats. Source: PTX ISA, "cvt" and "cvt.pack". */
#include "sm_simd.h"

/* flag: modifiers and SM_FTZ; arg: formats and rounding, as SM_CONVERT packs them. */
#define SOURCE(u) ((u)->arg & 7)
#define RESULT(u) ((u)->arg >> 3 & 7)
#define ROUND(u)  ((u)->arg >> 6 & 3)
#define SHIFT(u)  ((u)->arg >> 8 & 31)

/* Loads the source as doubles, with its modifiers. */
static inline void load_source(f64 *x, const struct sm_warp *w, const struct sm_uop *u) {
  const u32 *a_ = ROW(u32, 0);
  u32 shift = SHIFT(u);
  switch (SOURCE(u)) {
  case SM_F16: {
    ROWBUF(u32, h);
    ROWBUF(float, f);
    LANES { h[l] = a_[l] >> shift & 0xffff; }
    halves_to_floats(f, h);
    LANES { x[l] = (f64)f[l]; }
  } break;
  case SM_BF16_FORMAT: LANES { x[l] = (f64)as_f32(a_[l] >> shift << 16);
    }
    break;
  case SM_F64: LANES { x[l] = as_f64(pair(a_, l));
    }
    break;
  default:
    if (u->flag & SM_FTZ) {
      LANES { x[l] = (f64)flush32(as_f32(a_[l])); }
    } else {
      LANES { x[l] = (f64)as_f32(a_[l]); }
    }
  }
  const uint64_t keep0 = KEEP(u, 0, 1ull << 63), flip0 = FLIP(u, 0, 1ull << 63);
  LANES { x[l] = as_f64(MODIFIED(as_u64(x[l]), 0)); }
}
static inline const struct sm_uop *store_result(struct sm_warp *w, const struct sm_uop *u, const f64 *x) {
  u32 round = ROUND(u), ftz = u->flag & SM_FTZ, sat = u->flag & SM_SAT;
  switch (RESULT(u)) {
  case SM_F16: {
    STORE(u32, x[l] != x[l] ? 0x7fff : narrow(x[l], 10, 5, round))
  }
  case SM_BF16_FORMAT: {
    STORE(u32, x[l] != x[l] ? 0x7fff : narrow(x[l], 7, 8, round))
  }
  case SM_F64: {
    STORE64(f64, canonical64(x[l]))
  }
  default: {
    STORE(f32, ({
            f32 r = canonical32((f32)x[l]);
            r = ftz ? flush32(r) : r;
            sat ? saturate32(r) : r;
          }))
  }
  }
}
FN(f2f) {
  ROWBUF(double, x);
  load_source(x, w, u);
  return store_result(w, u, x);
}
/* Rounds to an integer. The host's rounding mode is to nearest here. */
static inline f64 round_to_integer(f64 x, u32 round) {
  f64 size = __builtin_fabs(x), t = (size + 0x1p52) - 0x1p52, floor = t > size ? t - 1 : t, rest = size - floor;
  u32 negative = (u32)(as_u64(x) >> 63), odd = (u32)as_u64(floor + 0x1p52) & 1;
  u32 up = round == SM_ROUND_NEAREST ? rest > 0.5 || (rest == 0.5 && odd)
           : round == SM_ROUND_ZERO  ? 0
                                     : (round == SM_ROUND_DOWN ? negative : !negative) && rest > 0;
  f64 r = __builtin_copysign(up ? floor + 1 : floor, x);
  return size < 0x1p52 ? r : x;
}
FN(frnd) {
  ROWBUF(double, x);
  load_source(x, w, u);
  u32 round = ROUND(u);
  LANES { x[l] = round_to_integer(x[l], round); }
  return store_result(w, u, x);
}
/* Converts to integers, with saturation. imm: number of bits of the result. NaN gives 0, but if source or result has 64
 * bits it gives only the sign bit set. */
FN(f2i) {
  ROWBUF(double, x);
  load_source(x, w, u);
  u32 round = ROUND(u), bits = (u32)u->imm, is_signed = !(u->flag & SM_UNSIGNED);
  u32 nan = SOURCE(u) == SM_F64 ? 1u << (bits - 1) : 0;
  f64 least = is_signed ? -(f64)(1ull << (bits - 1)) : 0, most = (f64)((1ull << (is_signed ? bits - 1 : bits)) - 1);
  f64 middle = is_signed ? 0 : 0x1p31;
  STORE(u32, ({
          f64 r = round_to_integer(x[l], round);
          r = r > least ? r : least, r = r < most ? r : most;
          u32 v = (u32)(i32)(r - middle) ^ (u32)(i64)middle;
          x[l] != x[l] ? nan : v;
        }))
}
FN(f2i_64) {
  ROWBUF(double, x);
  ROWBUF(uint64_t, r);
  load_source(x, w, u);
  u32 round = ROUND(u), is_signed = !(u->flag & SM_UNSIGNED);
  LANES { x[l] = round_to_integer(x[l], round); }
  for (int l = 0; l < ROW_LANES; l++) {
    f64 a = x[l];
    if (a != a)
      r[l] = 1ull << 63;
    else if (is_signed)
      r[l] = a >= 0x1p63 ? INT64_MAX : a < -0x1p63 ? 1ull << 63 : (uint64_t)(i64)a;
    else
      r[l] = a >= 0x1p64 ? UINT64_MAX : a <= 0 ? 0 : (uint64_t)a;
  }
  STORE64(u64, r[l])
}
/* The most frequent case: f32 to 32 bits. */
FN(f2i_s32) {
  const f32 *a_ = ROW(f32, 0);
  STORE(i32, ({
          f32 a = a_[l], t = a >= -0x1p31f && a < 0x1p31f ? a : 0;
          i32 r = (i32)t;
          r = a >= 0x1p31f ? INT32_MAX : r;
          r = a < -0x1p31f ? INT32_MIN : r;
          r;
        }))
}
FN(f2i_u32) {
  const f32 *a_ = ROW(f32, 0);
  STORE(u32, ({
          f32 a = a_[l], above = a - 0x1p31f, big = a >= 0x1p31f ? above : a;
          f32 t = big > 0 && big < 0x1p31f ? big : 0;
          u32 r = (u32)(i32)t ^ (a >= 0x1p31f ? 0x80000000 : 0);
          r = a >= 0x1p32f ? UINT32_MAX : r;
          r;
        }))
}
/* Converts from integers. imm: number of bits of the source. A 64-bit source is rounded to odd, so that the later
 * rounding is correct, except for f64 and f32, where the host rounds. */
FN(i2f) {
  const u32 *a_ = ROW(u32, 0);
  u32 bits = (u32)u->imm, shift = SHIFT(u), is_signed = !(u->flag & SM_UNSIGNED), result = RESULT(u);
  ROWBUF(double, x);
  if (bits < 64) {
    u32 gone = 32 - bits;
    if (is_signed) {
      LANES { x[l] = (f64)((i32)(a_[l] >> shift << gone) >> gone); }
    } else {
      LANES {
        u32 v = a_[l] >> shift << gone >> gone;
        x[l] = (f64)(i32)(v >> 1) * 2 + (f64)(i32)(v & 1);
      }
    }
    return store_result(w, u, x);
  }
  if (result == SM_F32) {
    ROWBUF(float, f);
    for (int l = 0; l < ROW_LANES; l++) {
      uint64_t v = pair(a_, l);
      f[l] = !v ? 0 : is_signed ? (f32)(i64)v : (f32)v;
    }
    STORE(f32, f[l])
  }
  for (int l = 0; l < ROW_LANES; l++) {
    uint64_t v = pair(a_, l), negative = is_signed && v >> 63, size = negative ? 0 - v : v;
    if (result != SM_F64 && size >> 53) size = (size & ~0x7ffull) | (size & 0x7ff ? 0x800 : 0);
    x[l] = !v ? 0 : result == SM_F64 ? (is_signed ? (f64)(i64)v : (f64)v) : negative ? -(f64)size : (f64)size;
  }
  return store_result(w, u, x);
}
FN(i2f_s32) {
  const i32 *a_ = ROW(i32, 0);
  STORE(f32, (f32)a_[l])
}

/* ---- packing ---- */

/* Converts one number for a packing conversion: to the format in arg, with SM_RELU and SM_SAT of flag (SM_SAT: no
 * result is infinite). */
static inline u32 narrow_packed(f32 f, u32 format, u32 round, u32 relu, u32 finite) {
  f64 x = (f64)f;
  u32 nan = x != x, sign;
  x = relu && !(x > 0) ? 0 : x;
  sign = (u32)(as_u64(x) >> 63);
  i64 r, most;
  u32 infinity, none, top;
  switch (format) {
  case SM_F16: r = magnitude(x, 10, 5, round), infinity = 0x7c00, most = 0x7bff, none = 0x7fff, top = 15; break;
  case SM_BF16_FORMAT: r = magnitude(x, 7, 8, round), infinity = 0x7f80, most = 0x7f7f, none = 0x7fff, top = 15; break;
  case SM_E5M2: r = magnitude(x, 2, 5, round), infinity = 0x7c, most = 0x7b, none = 0x7f, top = 7; break;
  /* E4M3 has no infinity: its top exponent encodes numbers, up to 448, and NaN */
  case SM_E4M3: r = magnitude(x, 3, 4, round), infinity = none = 0x7f, most = 0x7e, top = 7; break;
  default: r = magnitude(x, 10, 8, round) << 13, infinity = 0x7f800000, most = 0x7f7fe000, none = 0x7fffffff, top = 31;
  }
  u32 over = x - x == 0 && round == SM_ROUND_ZERO && format != SM_E4M3 ? (u32)most : infinity;
  over = finite ? (u32)most : over;
  u32 v = (r > most ? over : (u32)r) | sign << top;
  return nan ? none : v;
}
#define SMALL(x)      narrow_packed(x, format, round, relu, finite)
#define SMALL_OPTIONS u32 format = RESULT(u), round = ROUND(u), relu = u->flag & SM_RELU, finite = u->flag & SM_SAT
/* Packs b and, above it, a, in elements of imm bits. If these fill only half a register, the half of c that arg selects
 * goes above them. */
FN(f2fp) {
  const f32 *a_ = ROW(f32, 0), *b_ = ROW(f32, 1);
  const u32 *c_ = ROW(u32, 2);
  SMALL_OPTIONS;
  u32 bits = (u32)u->imm, shift = SHIFT(u), merge = bits < 16 ? ~0u : 0;
  STORE(u32, SMALL(b_[l]) | SMALL(a_[l]) << bits | (c_[l] >> shift << 16 & merge))
}
FN(f2fp_f16) {
  ROWBUF(u32, high);
  ROWBUF(u32, low);
  const f32 *a_ = ROW(f32, 0), *b_ = ROW(f32, 1);
  floats_to_halves(high, a_), floats_to_halves(low, b_);
  STORE(u32, (a_[l] != a_[l] ? 0x7fff : high[l]) << 16 | (b_[l] != b_[l] ? 0x7fff : low[l]))
}
static inline u32 to_bf16(f32 x) {
  u32 v = as_u32(x);
  return x != x ? 0x7fff : (v + 0x7fff + (v >> 16 & 1)) >> 16;
}
FN(f2fp_bf16) {
  const f32 *a_ = ROW(f32, 0), *b_ = ROW(f32, 1);
  STORE(u32, to_bf16(a_[l]) << 16 | to_bf16(b_[l]))
}
/* Converts b alone: below a half of c, or as the whole register. */
FN(f2fp_one) {
  const f32 *b_ = ROW(f32, 1);
  const u32 *c_ = ROW(u32, 2);
  SMALL_OPTIONS;
  u32 shift = SHIFT(u), merge = u->imm == 32 ? 0 : ~0u;
  STORE(u32, SMALL(b_[l]) | (c_[l] >> shift << 16 & merge))
}
/* Converts two halves of b to two bytes, below a half of c. */
FN(f2fp_narrow) {
  const u32 *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);
  SMALL_OPTIONS;
  u32 shift = SHIFT(u);
  ROWBUF(u32, h);
  ROWBUF(float, low);
  ROWBUF(float, high);
  LANES { h[l] = b_[l] & 0xffff; }
  halves_to_floats(low, h);
  LANES { h[l] = b_[l] >> 16; }
  halves_to_floats(high, h);
  STORE(u32, SMALL(low[l]) | SMALL(high[l]) << 8 | c_[l] >> shift << 16)
}
/* Converts two bytes of b, from the bit that arg selects on, to two f16 or bf16. imm: SM_E4M3 if that is their
 * format. */
FN(f2fp_widen) {
  const u32 *b_ = ROW(u32, 1);
  SMALL_OPTIONS;
  u32 shift = SHIFT(u), e4m3 = u->imm == SM_E4M3;
  STORE(u32, ({
          u32 x = b_[l] >> shift, low = x & 0xff, high = x >> 8 & 0xff;
          f32 y = e4m3 ? from_e4m3(low) : from_e5m2(low), z = e4m3 ? from_e4m3(high) : from_e5m2(high);
          SMALL(y) | SMALL(z) << 16;
        }))
}
/* Saturates a and b to bytes, a above b, below a half of c. */
static inline u32 to_byte(f32 a, f64 least, f64 most, u32 round) {
  f64 r = round_to_integer((f64)a, round);
  r = r > least ? r : least, r = r < most ? r : most;
  return a != a ? 0 : (u32)(i32)r & 0xff;
}
FN(f2ip) {
  const f32 *a_ = ROW(f32, 0), *b_ = ROW(f32, 1);
  const u32 *c_ = ROW(u32, 2);
  u32 shift = SHIFT(u), round = ROUND(u);
  f64 least = u->flag & SM_UNSIGNED || u->flag & SM_RELU ? 0 : -128, most = u->flag & SM_UNSIGNED ? 255 : 127;
  STORE(u32, to_byte(b_[l], least, most, round) | to_byte(a_[l], least, most, round) << 8 | c_[l] >> shift << 16)
}

#define CONVERT(name) [SM_FN_##name] = name,
sm_exec_fn *const SIMD_NAME(sm_rowop_convert)[SM_FN_COUNT] = {
#include "sm_rowop.def"
};
