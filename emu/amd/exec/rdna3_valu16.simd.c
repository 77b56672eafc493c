/* Vector operations on 16-bit integers and halves, single and packed. A single result replaces the low half of its
 * register and keeps the high half; each source has its value in the low half. Source: RDNA3 ISA document, instruction
 * lists. */
#include "rdna3_simd.h"

#define KEEP_HIGH(x) ((d[l] & 0xffff0000u) | ((u32)(x) & 0xffff))

/* ---- integers ---- */
#define I1(name, T, expr)                                                                                              \
  FN(name) {                                                                                                           \
    const u32 *a_ = ROW(u32, 0);                                                                                       \
    STORE(u32, KEEP_HIGH(({                                                                                            \
            T a = (T)a_[l];                                                                                            \
            (expr);                                                                                                    \
          })))                                                                                                         \
  }
#define I2(name, T, expr)                                                                                              \
  FN(name) {                                                                                                           \
    const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);                                                                    \
    STORE(u32, KEEP_HIGH(({                                                                                            \
            T a = (T)a_[l], b = (T)b_[l];                                                                              \
            (expr);                                                                                                    \
          })))                                                                                                         \
  }
#define I3(name, T, expr)                                                                                              \
  FN(name) {                                                                                                           \
    const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);                                                 \
    STORE(u32, KEEP_HIGH(({                                                                                            \
            T a = (T)a_[l], b = (T)b_[l], c = (T)c_[l];                                                                \
            (expr);                                                                                                    \
          })))                                                                                                         \
  }
/* Packed: expr is evaluated twice, for the low and the high elements. */
#define PK2(name, T, expr)                                                                                             \
  FN(name) {                                                                                                           \
    const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);                                                                    \
    STORE(u32, ({                                                                                                      \
            u32 lo_, hi_;                                                                                              \
            {                                                                                                          \
              T a = (T)a_[l], b = (T)b_[l];                                                                            \
              lo_ = (u16)(expr);                                                                                       \
            }                                                                                                          \
            {                                                                                                          \
              T a = (T)(a_[l] >> 16), b = (T)(b_[l] >> 16);                                                            \
              hi_ = (u16)(expr);                                                                                       \
            }                                                                                                          \
            lo_ | hi_ << 16;                                                                                           \
          }))                                                                                                          \
  }
#define PK3(name, T, expr)                                                                                             \
  FN(name) {                                                                                                           \
    const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);                                                 \
    STORE(u32, ({                                                                                                      \
            u32 lo_, hi_;                                                                                              \
            {                                                                                                          \
              T a = (T)a_[l], b = (T)b_[l], c = (T)c_[l];                                                              \
              lo_ = (u16)(expr);                                                                                       \
            }                                                                                                          \
            {                                                                                                          \
              T a = (T)(a_[l] >> 16), b = (T)(b_[l] >> 16), c = (T)(c_[l] >> 16);                                      \
              hi_ = (u16)(expr);                                                                                       \
            }                                                                                                          \
            lo_ | hi_ << 16;                                                                                           \
          }))                                                                                                          \
  }
static inline i32 sat_i16(i64 x) { return x > INT16_MAX ? INT16_MAX : x < INT16_MIN ? INT16_MIN : (i32)x; }
static inline i32 sat_u16(i64 x) { return x > UINT16_MAX ? UINT16_MAX : x < 0 ? 0 : (i32)x; }
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
I1(mov_b16, u16, a)
I1(not_b16, u16, ~a)
I2(and_b16, u16, a &b)
I2(or_b16, u16, a | b)
I2(xor_b16, u16, a ^ b)
I2(add_nc_u16, u16, a + b)
I2(sub_nc_u16, u16, a - b)
I2(add_nc_u16_clamp, u16, sat_u16(a + b))
I2(sub_nc_u16_clamp, u16, sat_u16(a - b))
I2(add_nc_i16_clamp, i16, sat_i16(a + b))
I2(sub_nc_i16_clamp, i16, sat_i16(a - b))
I2(mul_lo_u16, u16, (u32)a *b)
I3(mad_u16, u16, (u32)a *b + c)
I3(mad_u16_clamp, u16, sat_u16((i64)a *b + c))
I3(mad_i16_clamp, i16, sat_i16((i64)a *b + c))
I2(lshlrev_b16, u16, (u32)b << (a & 15))
I2(lshrrev_b16, u16, b >> (a & 15))
I2(ashrrev_i16, i16, b >> (a & 15))
#define ORDER(T, t)                                                                                                    \
  I2(min_##t, T, MIN(a, b))                                                                                            \
  I2(max_##t, T, MAX(a, b))                                                                                            \
  I3(min3_##t, T, ({                                                                                                   \
       T m = MIN(a, b);                                                                                                \
       MIN(m, c);                                                                                                      \
     }))                                                                                                               \
  I3(max3_##t, T, ({                                                                                                   \
       T m = MAX(a, b);                                                                                                \
       MAX(m, c);                                                                                                      \
     }))                                                                                                               \
  I3(med3_##t, T, ({                                                                                                   \
       T lo = MIN(a, b), hi = MAX(a, b), m = MIN(hi, c);                                                               \
       MAX(lo, m);                                                                                                     \
     }))
ORDER(u16, u16)
ORDER(i16, i16)
PK2(pk_add_u16, u16, a + b)
PK2(pk_sub_u16, u16, a - b)
PK2(pk_mul_lo_u16, u16, (u32)a *b)
PK3(pk_mad_u16, u16, (u32)a *b + c)
PK2(pk_add_u16_clamp, u16, sat_u16(a + b))
PK2(pk_sub_u16_clamp, u16, sat_u16(a - b))
PK2(pk_add_i16_clamp, i16, sat_i16(a + b))
PK2(pk_sub_i16_clamp, i16, sat_i16(a - b))
PK3(pk_mad_u16_clamp, u16, sat_u16((i64)a *b + c))
PK3(pk_mad_i16_clamp, i16, sat_i16((i64)a *b + c))
PK2(pk_lshlrev_b16, u16, (u32)b << (a & 15))
PK2(pk_lshrrev_b16, u16, b >> (a & 15))
PK2(pk_ashrrev_i16, i16, b >> (a & 15))
PK2(pk_min_u16, u16, MIN(a, b))
PK2(pk_max_u16, u16, MAX(a, b))
PK2(pk_min_i16, i16, MIN(a, b))
PK2(pk_max_i16, i16, MAX(a, b))
OP1(cvt_i32_i16, i32, u32, (i16)a)
OP1(cvt_u32_u16, u32, u32, (u16)a)
static inline u32 sat_u8(i32 x) { return x > 255 ? 255 : x < 0 ? 0 : (u32)x; }
I1(sat_pk_u8_i16, u32, sat_u8((i16)a) | sat_u8((i16)(a >> 16)) << 8)
FN(cndmask_b16) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  u32 mask = read_mask(w, u);
  STORE(u32, KEEP_HIGH(mask >> l & 1 ? b_[l] : a_[l]))
}

/* ---- halves: computed in f32, which is precise enough that the second rounding, to half, gives the correct half
 * ---- */
#define LOAD(name, i, high)                                                                                            \
  ROWBUF(f32, name);                                                                                                   \
  if (high) {                                                                                                          \
    ROWBUF(u32, up_);                                                                                                  \
    const u32 *s_ = ROW(u32, i);                                                                                       \
    LANES { up_[l] = s_[l] >> 16; }                                                                                    \
    halves_to_floats(name, up_);                                                                                       \
  } else {                                                                                                             \
    halves_to_floats(name, ROW(u32, i));                                                                               \
  }
#define COMPUTE(out, expr)                                                                                             \
  ROWBUF(f32, f_);                                                                                                     \
  LANES { f_[l] = (expr); }                                                                                            \
  floats_to_halves(out, f_);
#define H1(name, expr)                                                                                                 \
  FN(name) {                                                                                                           \
    ROWBUF(u32, h_);                                                                                                   \
    LOAD(a_, 0, 0)                                                                                                     \
    COMPUTE(h_, ({                                                                                                     \
              f32 a = a_[l];                                                                                           \
              (expr);                                                                                                  \
            }))                                                                                                        \
    STORE(u32, KEEP_HIGH(h_[l]))                                                                                       \
  }
#define H2(name, expr)                                                                                                 \
  FN(name) {                                                                                                           \
    ROWBUF(u32, h_);                                                                                                   \
    LOAD(a_, 0, 0)                                                                                                     \
    LOAD(b_, 1, 0)                                                                                                     \
    COMPUTE(h_, ({                                                                                                     \
              f32 a = a_[l], b = b_[l];                                                                                \
              (expr);                                                                                                  \
            }))                                                                                                        \
    STORE(u32, KEEP_HIGH(h_[l]))                                                                                       \
  }
#define H3(name, expr)                                                                                                 \
  FN(name) {                                                                                                           \
    ROWBUF(u32, h_);                                                                                                   \
    LOAD(a_, 0, 0)                                                                                                     \
    LOAD(b_, 1, 0)                                                                                                     \
    LOAD(c_, 2, 0)                                                                                                     \
    COMPUTE(h_, ({                                                                                                     \
              f32 a = a_[l], b = b_[l], c = c_[l];                                                                     \
              (expr);                                                                                                  \
            }))                                                                                                        \
    STORE(u32, KEEP_HIGH(h_[l]))                                                                                       \
  }
#define PKH2(name, expr)                                                                                               \
  FN(name) {                                                                                                           \
    ROWBUF(u32, lo_);                                                                                                  \
    ROWBUF(u32, hi_);                                                                                                  \
    for (int high = 0; high < 2; high++) {                                                                             \
      LOAD(a_, 0, high)                                                                                                \
      LOAD(b_, 1, high)                                                                                                \
      COMPUTE(high ? hi_ : lo_, ({                                                                                     \
                f32 a = a_[l], b = b_[l];                                                                              \
                (expr);                                                                                                \
              }))                                                                                                      \
    }                                                                                                                  \
    STORE(u32, lo_[l] | hi_[l] << 16)                                                                                  \
  }
#define PKH3(name, expr)                                                                                               \
  FN(name) {                                                                                                           \
    ROWBUF(u32, lo_);                                                                                                  \
    ROWBUF(u32, hi_);                                                                                                  \
    for (int high = 0; high < 2; high++) {                                                                             \
      LOAD(a_, 0, high)                                                                                                \
      LOAD(b_, 1, high)                                                                                                \
      LOAD(c_, 2, high)                                                                                                \
      COMPUTE(high ? hi_ : lo_, ({                                                                                     \
                f32 a = a_[l], b = b_[l], c = c_[l];                                                                   \
                (expr);                                                                                                \
              }))                                                                                                      \
    }                                                                                                                  \
    STORE(u32, lo_[l] | hi_[l] << 16)                                                                                  \
  }
H2(add_f16, a + b)
H2(sub_f16, a - b)
H2(subrev_f16, b - a)
H2(mul_f16, a *b)
H3(fma_f16, fma_half(a, b, c))
PKH2(pk_add_f16, a + b)
PKH2(pk_mul_f16, a *b)
PKH3(pk_fma_f16, fma_half(a, b, c))
H1(trunc_f16, __builtin_truncf(a))
H1(ceil_f16, __builtin_ceilf(a))
H1(floor_f16, __builtin_floorf(a))
static inline f32 round_even(f32 a) {
  f32 x = __builtin_fabsf(a), t = __builtin_truncf(x), r = x - t;
  i32 odd = x < 0x1p20f ? (i32)t & 1 : 0;
  return __builtin_copysignf(t + (r > 0.5f || (r == 0.5f && odd) ? 1.0f : 0.0f), a);
}
H1(rndne_f16, !(__builtin_fabsf(a) < 1024) ? a : round_even(a))
H1(fract_f16, ({
     f32 r = a - __builtin_floorf(a);
     r > 0x1.ffcp-1f ? 0x1.ffcp-1f : r;
   }))
static inline f32 power2(i32 n) { return as_f32((u32)(n + 127) << 23); }
FN(ldexp_f16) {
  ROWBUF(u32, h_);
  LOAD(a_, 0, 0)
  const u32 *b_ = ROW(u32, 1);
  /* A half times 2^-60 is a normal float. Exponents outside [-60, 60] overflow or underflow a half anyway. */
  COMPUTE(h_, ({
            i32 n = (i16)b_[l];
            a_[l] * power2(n < -60 ? -60 : n > 60 ? 60 : n);
          }))
  STORE(u32, KEEP_HIGH(h_[l]))
}

static inline int is_nan(u32 a) { return (a & 0x7fff) > 0x7c00; }
static inline int is_snan(u32 a) { return is_nan(a) && !(a & 0x200); }
static inline u32 quiet(u32 a) { return a | 0x200; }
static inline i32 sort_key(u32 a) { return a & 0x8000 ? -(i32)(a & 0x7fff) - 1 : (i32)(a & 0x7fff); }
static inline u32 pick_number(u32 a, u32 b, u32 r, u32 ieee) {
  r = is_nan(a) ? b : is_nan(b) ? a : r;
  r = is_nan(r) ? quiet(r) : r;
  return ieee && is_snan(a) ? quiet(a) : ieee && is_snan(b) ? quiet(b) : r;
}
static inline u32 min2(u32 a, u32 b, u32 ieee) { return pick_number(a, b, sort_key(a) < sort_key(b) ? a : b, ieee); }
static inline u32 max2(u32 a, u32 b, u32 ieee) { return pick_number(a, b, sort_key(a) > sort_key(b) ? a : b, ieee); }
#define IEEE (w->mode & RDNA3_MODE_IEEE)
I2(min_f16, u16, min2(a, b, IEEE))
I2(max_f16, u16, max2(a, b, IEEE))
I3(min3_f16, u16, min2(min2(a, b, IEEE), c, IEEE))
I3(max3_f16, u16, max2(max2(a, b, IEEE), c, IEEE))
I3(minmax_f16, u16, max2(min2(a, b, IEEE), c, IEEE))
I3(maxmin_f16, u16, min2(max2(a, b, IEEE), c, IEEE))
I3(med3_f16, u16,
   is_nan(a) | is_nan(b) | is_nan(c) ? min2(min2(a, b, IEEE), c, IEEE)
                                     : max2(min2(a, b, 0), min2(max2(a, b, 0), c, 0), 0))
PK2(pk_min_f16, u16, min2(a, b, IEEE))
PK2(pk_max_f16, u16, max2(a, b, IEEE))

I1(frexp_exp_i16_f16, u16, ({
     u32 m = a & 0x7fff, e = m >> 10, k = as_u32((f32)m) >> 23;
     m == 0 || m >= 0x7c00 ? 0 : e ? (i32)e - 14 : (i32)k - 127 - 23;
   }))
I1(frexp_mant_f16, u16, ({
     u32 m = a & 0x7fff, norm = as_u32((f32)m) >> 13 & 0x3ff;
     m == 0 ? a : m > 0x7c00 ? quiet(a) : m == 0x7c00 ? a : (a & 0x8000u) | 0x3800 | (m < 0x400 ? norm : m & 0x3ff);
   }))
static inline u32 fix_quotient(u32 q, u32 den, u32 num) {
  u32 sign = (den ^ num) & 0x8000, d = den & 0x7fff, n = num & 0x7fff, inf = 0x7c00;
  u32 r = (q & 0x7fff) | sign;
  r = d == inf || n == 0 ? sign : r;
  r = d == 0 || n == inf ? sign | inf : r;
  r = (d == 0 && n == 0) || (d == inf && n == inf) ? 0xfe00 : r;
  return n > inf ? quiet(num) : d > inf ? quiet(den) : r;
}
I3(div_fixup_f16, u16, fix_quotient(a, b, c))

/* ---- interpolation: the lanes of a quad hold the parameters ---- */

/* Copies the source of lane `lane` of each quad to all lanes of the quad. */
static inline void broadcast_in_quad(f32 *to, const f32 *from, int lane) {
  LANES { to[l] = from[(l & ~3) + lane]; }
}
#define INTERPOLATE(a_, b_, c_)                                                                                        \
  ROWBUF(f32, sum_);                                                                                                   \
  LANES { sum_[l] = __builtin_fmaf(a_[l], b_[l], c_[l]); }
FN(interp_p10_f32) {
  ROWBUF(f32, p10_);
  ROWBUF(f32, p0_);
  broadcast_in_quad(p10_, ROW(f32, 0), 1);
  broadcast_in_quad(p0_, ROW(f32, 2), 0);
  const f32 *i_ = ROW(f32, 1);
  INTERPOLATE(p10_, i_, p0_)
  STORE(f32, sum_[l])
}
FN(interp_p2_f32) {
  ROWBUF(f32, p20_);
  broadcast_in_quad(p20_, ROW(f32, 0), 2);
  const f32 *j_ = ROW(f32, 1), *c_ = ROW(f32, 2);
  INTERPOLATE(p20_, j_, c_)
  STORE(f32, sum_[l])
}
FN(interp_p10_f16_f32) {
  ROWBUF(f32, p10_);
  ROWBUF(f32, p0_);
  LOAD(a_, 0, 0)
  LOAD(c_, 2, 0)
  broadcast_in_quad(p10_, a_, 1);
  broadcast_in_quad(p0_, c_, 0);
  const f32 *i_ = ROW(f32, 1);
  INTERPOLATE(p10_, i_, p0_)
  STORE(f32, sum_[l])
}
FN(interp_p2_f16_f32) {
  ROWBUF(f32, p20_);
  ROWBUF(u32, h_);
  LOAD(a_, 0, 0)
  broadcast_in_quad(p20_, a_, 2);
  const f32 *j_ = ROW(f32, 1), *c_ = ROW(f32, 2);
  INTERPOLATE(p20_, j_, c_)
  floats_to_halves(h_, sum_);
  STORE(u32, KEEP_HIGH(h_[l]))
}

/* ---- conversions ---- */
FN(cvt_f16_f32) {
  ROWBUF(u32, h_);
  floats_to_halves(h_, ROW(f32, 0));
  STORE(u32, KEEP_HIGH(h_[l]))
}
FN(cvt_f32_f16){LOAD(a_, 0, 0) STORE(f32, a_[l])} FN(cvt_f16_u16) {
  ROWBUF(u32, h_);
  const u32 *a_ = ROW(u32, 0);
  COMPUTE(h_, (f32)(a_[l] & 0xffff))
  STORE(u32, KEEP_HIGH(h_[l]))
}
FN(cvt_f16_i16) {
  ROWBUF(u32, h_);
  const u32 *a_ = ROW(u32, 0);
  COMPUTE(h_, (f32)(i16)a_[l])
  STORE(u32, KEEP_HIGH(h_[l]))
}
static inline u32 to_u16(f32 a) { return !(a > 0) ? 0 : a >= 65535 ? 65535 : (u32)(i32)a; }
static inline u32 to_i16(f32 a) {
  return a != a ? 0 : a >= 32767 ? 32767 : a <= -32768 ? 0x8000 : (u32)(i32)a & 0xffff;
}
static inline f32 clamp_above(f32 a, f32 lo) { return a != a ? 0 : a > 1 ? 1 : a < lo ? lo : a; }
static inline u32 snorm16(f32 a) { return (u32)(i32)round_even(clamp_above(a, -1) * 32767.0f) & 0xffff; }
static inline u32 unorm16(f32 a) { return (u32)(i32)round_even(clamp_above(a, 0) * 65535.0f) & 0xffff; }
I1(cvt_u16_f16, u16, to_u16(half_to_float(a)))
I1(cvt_i16_f16, u16, to_i16(half_to_float(a)))
I1(cvt_norm_i16_f16, u16, snorm16(half_to_float(a)))
I1(cvt_norm_u16_f16, u16, unorm16(half_to_float(a)))
OP2(cvt_pk_norm_i16_f16, u32, u32, u32, snorm16(half_to_float(a & 0xffff)) | snorm16(half_to_float(b & 0xffff)) << 16)
OP2(cvt_pk_norm_u16_f16, u32, u32, u32, unorm16(half_to_float(a & 0xffff)) | unorm16(half_to_float(b & 0xffff)) << 16)
OP2(pack_b32_f16, u32, u32, u32, (a & 0xffff) | b << 16)
/* Rounds toward zero: a value that is too large becomes the largest finite half. */
static inline u32 truncate_to_half(u32 v) {
  u32 sign = v >> 16 & 0x8000, a = v & 0x7fffffff, shift = a >= 0x33800000u && a < 0x38800000u ? 126 - (a >> 23) : 24;
  u32 tiny = a < 0x33800000u ? 0 : ((a & 0x7fffff) | 0x800000) >> shift;
  u32 r = a > 0x7f800000u    ? 0x7e00 | (a >> 13 & 0x1ff)
          : a == 0x7f800000u ? 0x7c00
          : a >= 0x47800000u ? 0x7bff
          : a < 0x38800000u  ? tiny
                             : (a - 0x38000000u) >> 13;
  return r | sign;
}
OP2(cvt_pk_rtz_f16_f32, u32, u32, u32, truncate_to_half(a) | truncate_to_half(b) << 16)
FN(fma_mixlo_f16) {
  ROWBUF(u32, h_);
  const f32 *a_ = ROW(f32, 0), *b_ = ROW(f32, 1), *c_ = ROW(f32, 2);
  COMPUTE(h_, __builtin_fmaf(a_[l], b_[l], c_[l]))
  STORE(u32, KEEP_HIGH(h_[l]))
}

#define H(format, name) {RDNA3_##format##_v_##name, name}
#define HC(format, name)                                                                                               \
  H(format, name), { RDNA3_CLAMPED + RDNA3_##format##_v_##name, name##_clamp }
#define SIGNED(format, name, plain)                                                                                    \
  {RDNA3_##format##_v_##name, plain}, { RDNA3_CLAMPED + RDNA3_##format##_v_##name, name##_clamp }
#define ORDERS(t) H(VOP3, min_##t), H(VOP3, max_##t), H(VOP3, min3_##t), H(VOP3, max3_##t), H(VOP3, med3_##t)
const struct rdna3_handler SIMD_NAME(rdna3_valu16_handlers)[] = {
    H(VOP1, mov_b16),
    H(VOP1, not_b16),
    H(VOP3, and_b16),
    H(VOP3, or_b16),
    H(VOP3, xor_b16),
    HC(VOP3, add_nc_u16),
    HC(VOP3, sub_nc_u16),
    SIGNED(VOP3, add_nc_i16, add_nc_u16),
    SIGNED(VOP3, sub_nc_i16, sub_nc_u16),
    H(VOP3, mul_lo_u16),
    HC(VOP3, mad_u16),
    SIGNED(VOP3, mad_i16, mad_u16),
    H(VOP3, lshlrev_b16),
    H(VOP3, lshrrev_b16),
    H(VOP3, ashrrev_i16),
    ORDERS(u16),
    ORDERS(i16),
    HC(VOP3P, pk_add_u16),
    HC(VOP3P, pk_sub_u16),
    H(VOP3P, pk_mul_lo_u16),
    HC(VOP3P, pk_mad_u16),
    SIGNED(VOP3P, pk_add_i16, pk_add_u16),
    SIGNED(VOP3P, pk_sub_i16, pk_sub_u16),
    SIGNED(VOP3P, pk_mad_i16, pk_mad_u16),
    H(VOP3P, pk_lshlrev_b16),
    H(VOP3P, pk_lshrrev_b16),
    H(VOP3P, pk_ashrrev_i16),
    H(VOP3P, pk_min_u16),
    H(VOP3P, pk_max_u16),
    H(VOP3P, pk_min_i16),
    H(VOP3P, pk_max_i16),
    H(VOP1, cvt_i32_i16),
    H(VOP1, cvt_u32_u16),
    H(VOP1, sat_pk_u8_i16),
    H(VOP3, cndmask_b16),
    H(VOP2, add_f16),
    H(VOP2, sub_f16),
    H(VOP2, subrev_f16),
    H(VOP2, mul_f16),
    H(VOP3, fma_f16),
    {RDNA3_VOP2_v_fmac_f16, fma_f16},
    {RDNA3_VOP2_v_fmamk_f16, fma_f16},
    {RDNA3_VOP2_v_fmaak_f16, fma_f16},
    H(VOP3P, pk_add_f16),
    H(VOP3P, pk_mul_f16),
    H(VOP3P, pk_fma_f16),
    {RDNA3_VOP2_v_pk_fmac_f16, pk_fma_f16},
    H(VOP1, trunc_f16),
    H(VOP1, ceil_f16),
    H(VOP1, floor_f16),
    H(VOP1, rndne_f16),
    H(VOP1, fract_f16),
    H(VOP2, ldexp_f16),
    H(VOP2, min_f16),
    H(VOP2, max_f16),
    H(VOP3, min3_f16),
    H(VOP3, max3_f16),
    H(VOP3, minmax_f16),
    H(VOP3, maxmin_f16),
    H(VOP3, med3_f16),
    H(VOP3P, pk_min_f16),
    H(VOP3P, pk_max_f16),
    H(VOP1, frexp_exp_i16_f16),
    H(VOP1, frexp_mant_f16),
    H(VOP3, div_fixup_f16),
    H(VOP1, cvt_f16_f32),
    H(VINTERP, interp_p10_f32),
    H(VINTERP, interp_p2_f32),
    H(VINTERP, interp_p10_f16_f32),
    H(VINTERP, interp_p2_f16_f32),
    {RDNA3_VINTERP_v_interp_p10_rtz_f16_f32, interp_p10_f16_f32},
    {RDNA3_VINTERP_v_interp_p2_rtz_f16_f32, interp_p2_f16_f32},
    H(VOP1, cvt_f32_f16),
    H(VOP1, cvt_f16_u16),
    H(VOP1, cvt_f16_i16),
    H(VOP1, cvt_u16_f16),
    H(VOP1, cvt_i16_f16),
    H(VOP1, cvt_norm_i16_f16),
    H(VOP1, cvt_norm_u16_f16),
    H(VOP3, cvt_pk_norm_i16_f16),
    H(VOP3, cvt_pk_norm_u16_f16),
    H(VOP3, pack_b32_f16),
    H(VOP2, cvt_pk_rtz_f16_f32),
    H(VOP3P, fma_mixlo_f16),
    {RDNA3_VOP3P_v_fma_mixhi_f16, fma_mixlo_f16},
    {RDNA3_ROW_COUNT, NULL},
};
