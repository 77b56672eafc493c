/* Vector operations on 32-bit integers and floats. Source: RDNA3 ISA document, chapter "Vector ALU Operations" and the
 * instruction lists. */
#include "rdna3_simd.h"

/* ---- moves, logic, shifts ---- */
OP1(mov_b32, u32, u32, a)
OP1(not_b32, u32, u32, ~a)
OP2(and_b32, u32, u32, u32, a &b)
OP2(or_b32, u32, u32, u32, a | b)
OP2(xor_b32, u32, u32, u32, a ^ b)
OP2(xnor_b32, u32, u32, u32, ~(a ^ b))
OP3(xor3_b32, u32, u32, u32, u32, a ^ b ^ c)
OP3(or3_b32, u32, u32, u32, u32, a | b | c)
OP3(and_or_b32, u32, u32, u32, u32, (a & b) | c)
OP3(bfi_b32, u32, u32, u32, u32, (a & b) | (~a & c))
OP2(lshlrev_b32, u32, u32, u32, b << (a & 31))
OP2(lshrrev_b32, u32, u32, u32, b >> (a & 31))
OP2(ashrrev_i32, i32, u32, i32, b >> (a & 31))
OP3(lshl_or_b32, u32, u32, u32, u32, a << (b & 31) | c)
OP3(bfe_u32, u32, u32, u32, u32, a >> (b & 31) & ((1u << (c & 31)) - 1))
static inline i32 signed_field(i32 a, u32 offset, u32 width) {
  u32 f = (u32)(a >> (offset & 31)), n = width & 31, sign = n ? 1u << (n - 1) : 0;
  f &= (1u << n) - 1;
  return (i32)((f ^ sign) - sign);
}
OP3(bfe_i32, i32, i32, u32, u32, signed_field(a, b, c))
OP2(bfm_b32, u32, u32, u32, ((1u << (a & 31)) - 1) << (b & 31))
OP3(alignbit_b32, u32, u32, u32, u32, (u32)(((uint64_t)a << 32 | b) >> (c & 31)))
OP3(alignbyte_b32, u32, u32, u32, u32, (u32)(((uint64_t)a << 32 | b) >> (8 * (c & 3))))
static inline u32 permute_byte(uint64_t ab, u32 sel) {
  sel &= 0xff;
  u32 byte = (u32)(ab >> (8 * (sel & 7))) & 0xff, sign = (u32)(ab >> (16 * (sel & 3) + 15)) & 1;
  return sel >= 13 ? 0xff : sel == 12 ? 0 : sel >= 8 ? (sign ? 0xff : 0) : byte;
}
OP3(perm_b32, u32, u32, u32, u32, ({
      uint64_t ab = (uint64_t)a << 32 | b;
      permute_byte(ab, c) | permute_byte(ab, c >> 8) << 8 | permute_byte(ab, c >> 16) << 16 |
          permute_byte(ab, c >> 24) << 24;
    }))
OP1(bfrev_b32, u32, u32, reverse(a))
OP2(bcnt_u32_b32, u32, u32, u32, ones(a) + b)
OP1(clz_i32_u32, i32, u32, a ? (i32)(32 - ones(smear(a))) : -1)
OP1(ctz_i32_b32, i32, u32, a ? (i32)ones(~a &(a - 1)) : -1)
OP1(cls_i32, i32, i32, ({
      u32 x = (u32)(a ^ a >> 31);
      x ? (i32)(32 - ones(smear(x))) : -1;
    }))
FN(cndmask_b32) {
  u32 mask = read_mask(w, u);
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  STORE(u32, mask >> l & 1 ? b_[l] : a_[l])
}

/* ---- integers ---- */
OP2(add_nc_u32, u32, u32, u32, a + b)
OP2(sub_nc_u32, u32, u32, u32, a - b)
OP2(subrev_nc_u32, u32, u32, u32, b - a)
static inline u32 add_sat(u32 a, u32 b) { return a + b < a ? ~0u : a + b; }
static inline u32 sub_sat(u32 a, u32 b) { return a > b ? a - b : 0; }
static inline i32 clamp64(i64 x) { return x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : (i32)x; }
static inline u32 clampu64(uint64_t x) { return x > UINT32_MAX ? UINT32_MAX : (u32)x; }
OP2(add_nc_u32_clamp, u32, u32, u32, add_sat(a, b))
OP2(sub_nc_u32_clamp, u32, u32, u32, sub_sat(a, b))
OP2(subrev_nc_u32_clamp, u32, u32, u32, sub_sat(b, a))
OP2(add_nc_i32_clamp, i32, i32, i32, clamp64((i64)a + b))
OP2(sub_nc_i32_clamp, i32, i32, i32, clamp64((i64)a - b))
OP3(add3_u32, u32, u32, u32, u32, a + b + c)
OP3(xad_u32, u32, u32, u32, u32, (a ^ b) + c)
OP3(lshl_add_u32, u32, u32, u32, u32, (a << (b & 31)) + c)
OP3(add_lshl_u32, u32, u32, u32, u32, (a + b) << (c & 31))
OP2(mul_lo_u32, u32, u32, u32, a *b)
OP2(mul_hi_u32, u32, u32, u32, (u32)((uint64_t)a *b >> 32))
OP2(mul_hi_i32, u32, i32, i32, (u32)((uint64_t)((i64)a *b) >> 32))
#define U24(x) ((x) & 0xffffff)
#define I24(x) ((i32)((u32)(x) << 8) >> 8)
OP2(mul_u32_u24, u32, u32, u32, U24(a) * U24(b))
OP2(mul_hi_u32_u24, u32, u32, u32, (u32)((uint64_t)U24(a) * U24(b) >> 32))
OP2(mul_i32_i24, u32, u32, u32, (u32)I24(a) * (u32)I24(b))
OP2(mul_hi_i32_i24, u32, u32, u32, (u32)((uint64_t)((i64)I24(a) * I24(b)) >> 32))
OP3(mad_u32_u24, u32, u32, u32, u32, U24(a) * U24(b) + c)
OP3(mad_i32_i24, u32, u32, u32, u32, (u32)I24(a) * (u32)I24(b) + c)
OP3(mad_u32_u24_clamp, u32, u32, u32, u32, clampu64((uint64_t)U24(a) * U24(b) + c))
OP3(mad_i32_i24_clamp, i32, u32, u32, i32, clamp64((i64)I24(a) * I24(b) + c))
OP3(mad_u32_u16, u32, u32, u32, u32, (u32)(u16)a *(u16)b + c)
OP3(mad_i32_i16, u32, u32, u32, u32, (u32)((i32)(i16)a *(i16)b) + c)
OP3(mad_u32_u16_clamp, u32, u32, u32, u32, clampu64((uint64_t)(u16)a *(u16)b + c))
OP3(mad_i32_i16_clamp, i32, u32, u32, i32, clamp64((i64)(i16)a *(i16)b + c))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define ORDER(T)                                                                                                       \
  OP2(min_##T, T, T, T, MIN(a, b))                                                                                     \
  OP2(max_##T, T, T, T, MAX(a, b))                                                                                     \
  OP3(min3_##T, T, T, T, T, ({                                                                                         \
        T m = MIN(a, b);                                                                                               \
        MIN(m, c);                                                                                                     \
      }))                                                                                                              \
  OP3(max3_##T, T, T, T, T, ({                                                                                         \
        T m = MAX(a, b);                                                                                               \
        MAX(m, c);                                                                                                     \
      }))                                                                                                              \
  OP3(med3_##T, T, T, T, T, ({                                                                                         \
        T lo = MIN(a, b), hi = MAX(a, b), m = MIN(hi, c);                                                              \
        MAX(lo, m);                                                                                                    \
      }))                                                                                                              \
  OP3(minmax_##T, T, T, T, T, ({                                                                                       \
        T m = MIN(a, b);                                                                                               \
        MAX(m, c);                                                                                                     \
      }))                                                                                                              \
  OP3(maxmin_##T, T, T, T, T, ({                                                                                       \
        T m = MAX(a, b);                                                                                               \
        MIN(m, c);                                                                                                     \
      }))
ORDER(u32)
ORDER(i32)
#define BYTE(x, i) ((i32)((x) >> (8 * (i)) & 0xff))
static inline u32 distance(i32 a, i32 b) { return (u32)(a > b ? a - b : b - a); }
static inline u32 sad4(u32 a, u32 b) {
  return distance(BYTE(a, 0), BYTE(b, 0)) + distance(BYTE(a, 1), BYTE(b, 1)) + distance(BYTE(a, 2), BYTE(b, 2)) +
         distance(BYTE(a, 3), BYTE(b, 3));
}
static inline u32 masked_sad4(u32 a, u32 b) {
  u32 s = 0;
  for (int i = 0; i < 4; i++) s += BYTE(b, i) ? distance(BYTE(a, i), BYTE(b, i)) : 0;
  return s;
}
OP3(sad_u8, u32, u32, u32, u32, sad4(a, b) + c)
OP3(sad_hi_u8, u32, u32, u32, u32, (sad4(a, b) << 16) + c)
OP3(sad_u16, u32, u32, u32, u32, distance((u16)a, (u16)b) + distance((i32)(a >> 16), (i32)(b >> 16)) + c)
OP3(sad_u32, u32, u32, u32, u32, (a > b ? a - b : b - a) + c)
OP3(msad_u8, u32, u32, u32, u32, masked_sad4(a, b) + c)
OP3(sad_u8_clamp, u32, u32, u32, u32, add_sat(sad4(a, b), c))
OP3(sad_hi_u8_clamp, u32, u32, u32, u32, add_sat(sad4(a, b) << 16, c))
OP3(sad_u16_clamp, u32, u32, u32, u32, add_sat(distance((u16)a, (u16)b) + distance((i32)(a >> 16), (i32)(b >> 16)), c))
OP3(sad_u32_clamp, u32, u32, u32, u32, add_sat(a > b ? a - b : b - a, c))
OP3(msad_u8_clamp, u32, u32, u32, u32, add_sat(masked_sad4(a, b), c))
static inline u32 lerp_byte(u32 a, u32 b, u32 c, int i) {
  return (u32)((BYTE(a, i) + BYTE(b, i) + (BYTE(c, i) & 1)) >> 1) << (8 * i);
}
OP3(lerp_u8, u32, u32, u32, u32,
    lerp_byte(a, b, c, 0) | lerp_byte(a, b, c, 1) | lerp_byte(a, b, c, 2) | lerp_byte(a, b, c, 3))

/* Carries: the mask gets the carry of each active lane, and 0 for inactive lanes. */
#define CARRY(name, sum, out, in)                                                                                      \
  FN(name) {                                                                                                           \
    const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);                                                                    \
    u32 carry = in, bits, lanes = *w->lanes, r_[RDNA3_LANES] __attribute__((aligned(64)));                             \
    LANE_BITS(bits, ({                                                                                                 \
                u32 a = a_[l], b = b_[l], ci = carry >> l & 1;                                                         \
                (void)ci;                                                                                              \
                out;                                                                                                   \
              }))                                                                                                      \
    LANES {                                                                                                            \
      u32 a = a_[l], b = b_[l], ci = carry >> l & 1;                                                                   \
      (void)ci;                                                                                                        \
      r_[l] = sum;                                                                                                     \
    }                                                                                                                  \
    store_row(rdna3_dst(w, u), r_, lanes);                                                                             \
    write_mask(w, u, bits &lanes);                                                                                     \
    return u + 1;                                                                                                      \
  }
/* With the clamp bit a sum that carries becomes the largest number, and a difference that borrows becomes 0. */
#define CARRIES(name, sum, out, in, limit)                                                                             \
  CARRY(name, sum, out, in)                                                                                            \
  CARRY(name##_clamp, (out) ? (limit) : (sum), out, in)
CARRIES(add_co_u32, a + b, a + b < a, 0, ~0u)
CARRIES(sub_co_u32, a - b, b > a, 0, 0)
CARRIES(subrev_co_u32, b - a, a > b, 0, 0)
CARRIES(add_co_ci_u32, a + b + ci, (a + b < a) | (a + b + ci < ci), read_mask(w, u), ~0u)
CARRIES(sub_co_ci_u32, a - b - ci, (b > a) | (a - b < ci), read_mask(w, u), 0)
CARRIES(subrev_co_ci_u32, b - a - ci, (a > b) | (b - a < ci), read_mask(w, u), 0)

/* ---- floats ---- */
OP2(add_f32, f32, f32, f32, a + b)
OP2(sub_f32, f32, f32, f32, a - b)
OP2(subrev_f32, f32, f32, f32, b - a)
OP2(mul_f32, f32, f32, f32, a *b)
OP2(mul_dx9_zero_f32, f32, f32, f32, a == 0 || b == 0 ? 0.0f : a * b)
OP3(fma_f32, f32, f32, f32, f32, __builtin_fmaf(a, b, c))
OP3(fma_dx9_zero_f32, f32, f32, f32, f32, a == 0 || b == 0 ? c : __builtin_fmaf(a, b, c))

/* minNum and maxNum with -0 < +0. With MODE.IEEE a signalling NaN gives a quiet NaN instead of being ignored. */
static inline u32 quiet(u32 a) { return a | 0x400000; }
static inline int is_nan(u32 a) { return (a & 0x7fffffff) > 0x7f800000; }
static inline int is_snan(u32 a) { return is_nan(a) && !(a & 0x400000); }
static inline i32 sort_key(u32 a) { return (i32)a ^ (i32)((u32)((i32)a >> 31) >> 1); }
static inline u32 min_bits(u32 a, u32 b) { return is_nan(a) ? b : is_nan(b) ? a : sort_key(a) < sort_key(b) ? a : b; }
static inline u32 max_bits(u32 a, u32 b) { return is_nan(a) ? b : is_nan(b) ? a : sort_key(a) > sort_key(b) ? a : b; }
static inline u32 ieee_min(u32 a, u32 b, u32 ieee) {
  u32 r = min_bits(a, b);
  r = is_nan(r) ? quiet(r) : r;
  return ieee && is_snan(a) ? quiet(a) : ieee && is_snan(b) ? quiet(b) : r;
}
static inline u32 ieee_max(u32 a, u32 b, u32 ieee) {
  u32 r = max_bits(a, b);
  r = is_nan(r) ? quiet(r) : r;
  return ieee && is_snan(a) ? quiet(a) : ieee && is_snan(b) ? quiet(b) : r;
}
/* If MODE flushes denormals, a denormal input counts as zero with its sign. */
static inline u32 daz(u32 a, u32 keep) { return keep || a & 0x7f800000 ? a : a & 0x80000000; }
#define IEEE (w->mode & RDNA3_MODE_IEEE)
#define KEEP (rdna3_denorm32(w->mode) & 1)
#define F_ORDER(name, args, expr)                                                                                      \
  FN(name) {                                                                                                           \
    u32 ieee = IEEE, keep = KEEP;                                                                                      \
    const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = args > 2 ? ROW(u32, 2) : a_;                                 \
    STORE(u32, ({                                                                                                      \
            u32 a = daz(a_[l], keep), b = daz(b_[l], keep), c = daz(c_[l], keep);                                      \
            (void)c;                                                                                                   \
            (expr);                                                                                                    \
          }))                                                                                                          \
  }
F_ORDER(min_f32, 2, ieee_min(a, b, ieee))
F_ORDER(max_f32, 2, ieee_max(a, b, ieee))
F_ORDER(min3_f32, 3, ieee_min(ieee_min(a, b, ieee), c, ieee))
F_ORDER(max3_f32, 3, ieee_max(ieee_max(a, b, ieee), c, ieee))
F_ORDER(minmax_f32, 3, ieee_max(ieee_min(a, b, ieee), c, ieee))
F_ORDER(maxmin_f32, 3, ieee_min(ieee_max(a, b, ieee), c, ieee))
/* The median; if an operand is a NaN, the minimum of the three. */
F_ORDER(med3_f32, 3, ({
          u32 any = (u32)(is_nan(a) | is_nan(b) | is_nan(c));
          u32 lo = min_bits(a, b), hi = max_bits(a, b), m = min_bits(hi, c);
          any ? ieee_min(ieee_min(a, b, ieee), c, ieee) : max_bits(lo, m);
        }))

OP1(trunc_f32, f32, f32, __builtin_truncf(a))
OP1(ceil_f32, f32, f32, __builtin_ceilf(a))
OP1(floor_f32, f32, f32, __builtin_floorf(a))
/* Rounds to even in every rounding mode. Adding and subtracting 2^23 would follow the mode, so the steps are
 * explicit. */
static inline f32 round_even(f32 a) {
  f32 t = __builtin_truncf(a), r = __builtin_fabsf(a - t);
  i32 odd = __builtin_fabsf(t) < 0x1p24f ? (i32)t & 1 : 0;
  f32 up = r > 0.5f || (r == 0.5f && odd) ? 1.0f : 0.0f;
  return __builtin_copysignf(__builtin_fabsf(t) + up, a);
}
OP1(rndne_f32, f32, f32, a != a || __builtin_fabsf(a) >= 0x1p23f ? a + 0.0f * 0 : round_even(a))
OP1(fract_f32, f32, f32, ({
      f32 r = a - __builtin_floorf(a);
      r >= 1.0f ? 0x1.fffffep-1f : r;
    }))
OP2(ldexp_f32, f32, f32, i32, ({
      /* Multiply in three steps, of which only the last can round. */
      i32 n = b < -300 ? -300 : b > 300 ? 300 : b, x = n / 3, y = n - 2 * x;
      f64 r = (f64)a * as_f64((uint64_t)(1023 + x) << 52) * as_f64((uint64_t)(1023 + x) << 52) *
              as_f64((uint64_t)(1023 + y) << 52);
      (f32) r;
    }))
OP1(frexp_exp_i32_f32, i32, u32, ({
      u32 m = a & 0x7fffffff;
      i32 e = (i32)(m >> 23);
      m == 0 || m >= 0x7f800000 ? 0 : e ? e - 126 : (i32)ones(smear(m)) - 148;
    }))
OP1(frexp_mant_f32, u32, u32, ({
      u32 m = a & 0x7fffffff, up = as_u32((f32)(i32)m); /* a denormal's mantissa, normalised */
      m == 0            ? a
      : m >= 0x7f800000 ? (m > 0x7f800000 ? quiet(a) : a)
                        : (a & 0x80000000) | 0x3f000000 | ((m < 0x800000 ? up : m) & 0x7fffff);
    }))

/* ---- conversions ---- */
static inline i32 to_i32(f32 a) { return a != a ? 0 : a >= 0x1p31f ? INT32_MAX : a < -0x1p31f ? INT32_MIN : (i32)a; }
static inline u32 to_u32(f32 a) { return !(a > 0) ? 0 : a >= 0x1p32f ? UINT32_MAX : (u32)(i64)a; }
OP1(cvt_f32_i32, f32, i32, (f32)a)
OP1(cvt_f32_u32, f32, u32, (f32)a)
OP1(cvt_u32_f32, u32, f32, to_u32(a))
OP1(cvt_i32_f32, i32, f32, to_i32(a))
OP1(cvt_nearest_i32_f32, i32, f32, to_i32(__builtin_floorf(a + 0.5f)))
OP1(cvt_floor_i32_f32, i32, f32, to_i32(__builtin_floorf(a)))
OP1(cvt_off_f32_i4, f32, u32, (f32)((i32)(a << 28) >> 28) * 0.0625f)
OP1(cvt_f32_ubyte0, f32, u32, (f32)BYTE(a, 0))
OP1(cvt_f32_ubyte1, f32, u32, (f32)BYTE(a, 1))
OP1(cvt_f32_ubyte2, f32, u32, (f32)BYTE(a, 2))
OP1(cvt_f32_ubyte3, f32, u32, (f32)BYTE(a, 3))
static inline u32 sat_i16(i32 a) { return (u32)(a > INT16_MAX ? INT16_MAX : a < INT16_MIN ? INT16_MIN : a) & 0xffff; }
static inline u32 sat_u16(u32 a) { return a > UINT16_MAX ? UINT16_MAX : a; }
OP2(cvt_pk_i16_f32, u32, f32, f32, sat_i16(to_i32(a)) | sat_i16(to_i32(b)) << 16)
OP2(cvt_pk_u16_f32, u32, f32, f32, sat_u16(to_u32(a)) | sat_u16(to_u32(b)) << 16)
OP2(cvt_pk_i16_i32, u32, i32, i32, sat_i16(a) | sat_i16(b) << 16)
OP2(cvt_pk_u16_u32, u32, u32, u32, sat_u16(a) | sat_u16(b) << 16)
static inline f32 clamp_above(f32 a, f32 lo) { return a != a ? 0 : a > 1 ? 1 : a < lo ? lo : a; }
static inline u32 snorm16(f32 a) { return (u32)(i32)round_even(clamp_above(a, -1) * 32767.0f) & 0xffff; }
static inline u32 unorm16(f32 a) { return (u32)(i32)round_even(clamp_above(a, 0) * 65535.0f) & 0xffff; }
OP2(cvt_pk_norm_i16_f32, u32, f32, f32, snorm16(a) | snorm16(b) << 16)
OP2(cvt_pk_norm_u16_f32, u32, f32, f32, unorm16(a) | unorm16(b) << 16)
OP3(cvt_pk_u8_f32, u32, f32, u32, u32, ({
      f32 x = round_even(a != a || a < 0 ? 0 : a > 255 ? 255 : a);
      u32 s = 8 * (b & 3);
      (c & ~(0xffu << s)) | (u32)(i32)x << s;
    }))

/* ---- division helpers and cube maps ---- */
FN(div_fmas_f32) {
  u32 mask = read_mask(w, u);
  const f32 *a_ = ROW(f32, 0), *b_ = ROW(f32, 1), *c_ = ROW(f32, 2);
  STORE(f32, ({
          f32 r = __builtin_fmaf(a_[l], b_[l], c_[l]);
          /* undoes div_scale's 2^64: near overflow the denominator was scaled, near underflow the numerator */
          mask >> l & 1 ? r *((as_u32(c_[l]) >> 23 & 255) > 127 ? 0x1p64f : 0x1p-64f) : r;
        }))
}
/* Fixes special quotients: q = S0 (quotient so far), d = S1 (denominator), n = S2 (numerator). The sign comes from the
 * operands. A quotient that overflowed in an intermediate step has become NaN (infinity minus infinity). */
static inline u32 fix_quotient(u32 q, u32 den, u32 num) {
  u32 sign = (den ^ num) & 0x80000000, d = den & 0x7fffffff, n = num & 0x7fffffff, inf = 0x7f800000;
  i32 ed = (i32)(d >> 23), en = (i32)(n >> 23);
  u32 r = en - ed < -150 ? sign : ed == 255 || (q & 0x7fffffff) > inf ? sign | inf : (q & 0x7fffffff) | sign;
  r = d == inf || n == 0 ? sign : r;
  r = d == 0 || n == inf ? sign | inf : r;
  r = (d == 0 && n == 0) || (d == inf && n == inf) ? 0xffc00000u : r;
  return n > inf ? quiet(num) : d > inf ? quiet(den) : r;
}
OP3(div_fixup_f32, u32, u32, u32, u32, fix_quotient(a, b, c))
/* Returns whether x, rounded to f32, is denormal. It computes in f64, because the mode may flush f32 denormals. */
static inline int denormal_as_f32(f64 x) {
  x = __builtin_fabs(x);
  return x > 0x1p-150 && x < 0x1p-126 - 0x1p-150;
}
/* Scales the numerator or the denominator (whichever S0 is) by 2^64 or its inverse if a step of the division would
 * leave the normal range. The cases and their order are those of the RDNA3 ISA document (V_DIV_SCALE_F32). gfx1100 also
 * sets the mask in the first case (tinygrad, test/amd/hw/test_vop3.py). The same source reports this for the last case
 * with flushed denormals. It cannot hold without flushing: LLVM's division then scales both operands, and its
 * v_div_fmas would scale a correct quotient. Where the inverse and the quotient are denormal, the document scales a
 * large denominator by 2^64, too, which overflows: LLVM's division would give infinity for 1 / 1e38. Only the inverse
 * is what v_div_fmas undoes. Denormal operands that the mode flushes count as zero. */
FN(div_scale_f32) {
  const f32 *a_ = ROW(f32, 0), *d_ = ROW(f32, 1), *n_ = ROW(f32, 2);
  u32 lanes = *w->lanes, bits = 0, r_[RDNA3_LANES] __attribute__((aligned(64)));
  for (int l = 0; l < RDNA3_LANES; l++) {
    f32 a = a_[l], d = d_[l], n = n_[l], r = a;
    i32 ed = (i32)(as_u32(d) >> 23 & 255), en = (i32)(as_u32(n) >> 23 & 255);
    int flag = 1, a_is_d = as_u32(a) == as_u32(d), a_is_n = as_u32(a) == as_u32(n);
    int tiny_inverse = denormal_as_f32(1.0 / d), tiny_quotient = denormal_as_f32((f64)n / d);
    if (n == 0 || d == 0)
      r = __builtin_nanf("");
    else if (en - ed >= 96)
      r = a_is_d ? a * 0x1p64f : a;
    else if (ed == 0)
      r = a * 0x1p64f, flag = 0;
    else if (tiny_inverse && tiny_quotient)
      r = a_is_d ? a * 0x1p-64f : a;
    else if (tiny_inverse)
      r = a * 0x1p-64f, flag = 0;
    else if (tiny_quotient)
      r = a_is_n ? a * 0x1p64f : a;
    else if (en <= 23)
      r = a * 0x1p64f, flag = 0;
    else
      flag = 0;
    r_[l] = as_u32(r), bits |= (u32)flag << l;
  }
  store_row(rdna3_dst(w, u), r_, lanes);
  write_mask(w, u, bits & lanes);
  return u + 1;
}
/* Cube maps: the coordinate with the largest magnitude selects the face; on ties z before y before x. */
enum { FACE_X, FACE_Y, FACE_Z };
static inline int cube_face(f32 x, f32 y, f32 z) {
  x = __builtin_fabsf(x), y = __builtin_fabsf(y), z = __builtin_fabsf(z);
  return z >= x && z >= y ? FACE_Z : y >= x ? FACE_Y : FACE_X;
}
OP3(cubeid_f32, f32, f32, f32, f32, ({
      int f = cube_face(a, b, c);
      f == FACE_Z ? (c < 0 ? 5.0f : 4.0f) : f == FACE_Y ? (b < 0 ? 3.0f : 2.0f) : (a < 0 ? 1.0f : 0.0f);
    }))
OP3(cubesc_f32, f32, f32, f32, f32, ({
      int f = cube_face(a, b, c);
      f == FACE_Z ? (c < 0 ? -a : a) : f == FACE_Y ? a : (a < 0 ? c : -c);
    }))
OP3(cubetc_f32, f32, f32, f32, f32, ({
      int f = cube_face(a, b, c);
      f == FACE_Y ? (b < 0 ? -c : c) : -b;
    }))
OP3(cubema_f32, f32, f32, f32, f32, ({
      int f = cube_face(a, b, c);
      2.0f * (f == FACE_Z ? c : f == FACE_Y ? b : a);
    }))
OP3(mullit_f32, f32, f32, f32, f32,
    b == -3.4028234663852886e38f || !(c > 0) || b != b || (b - b != 0 && b < 0) ? -3.4028234663852886e38f : a * b)

#define H(format, name) {RDNA3_##format##_v_##name, name}
#define HC(format, name)                                                                                               \
  {RDNA3_##format##_v_##name, name}, { RDNA3_CLAMPED + RDNA3_##format##_v_##name, name##_clamp }
#define ORDERS(T)                                                                                                      \
  H(VOP2, min_##T), H(VOP2, max_##T), H(VOP3, min3_##T), H(VOP3, max3_##T), H(VOP3, med3_##T), H(VOP3, minmax_##T),    \
      H(VOP3, maxmin_##T)
const struct rdna3_handler SIMD_NAME(rdna3_valu32_handlers)[] = {
    H(VOP1, mov_b32),
    H(VOP1, not_b32),
    H(VOP2, and_b32),
    H(VOP2, or_b32),
    H(VOP2, xor_b32),
    H(VOP2, xnor_b32),
    H(VOP3, xor3_b32),
    H(VOP3, or3_b32),
    H(VOP3, and_or_b32),
    H(VOP3, bfi_b32),
    H(VOP2, lshlrev_b32),
    H(VOP2, lshrrev_b32),
    H(VOP2, ashrrev_i32),
    H(VOP3, lshl_or_b32),
    H(VOP3, bfe_u32),
    H(VOP3, bfe_i32),
    H(VOP3, bfm_b32),
    H(VOP3, alignbit_b32),
    H(VOP3, alignbyte_b32),
    H(VOP3, perm_b32),
    H(VOP1, bfrev_b32),
    H(VOP3, bcnt_u32_b32),
    H(VOP1, clz_i32_u32),
    H(VOP1, ctz_i32_b32),
    H(VOP1, cls_i32),
    H(VOP2, cndmask_b32),
    HC(VOP2, add_nc_u32),
    HC(VOP2, sub_nc_u32),
    HC(VOP2, subrev_nc_u32),
    {RDNA3_VOP3_v_add_nc_i32, add_nc_u32},
    {RDNA3_CLAMPED + RDNA3_VOP3_v_add_nc_i32, add_nc_i32_clamp},
    {RDNA3_VOP3_v_sub_nc_i32, sub_nc_u32},
    {RDNA3_CLAMPED + RDNA3_VOP3_v_sub_nc_i32, sub_nc_i32_clamp},
    H(VOP3, add3_u32),
    H(VOP3, xad_u32),
    H(VOP3, lshl_add_u32),
    H(VOP3, add_lshl_u32),
    H(VOP3, mul_lo_u32),
    H(VOP3, mul_hi_u32),
    H(VOP3, mul_hi_i32),
    H(VOP2, mul_u32_u24),
    H(VOP2, mul_hi_u32_u24),
    H(VOP2, mul_i32_i24),
    H(VOP2, mul_hi_i32_i24),
    HC(VOP3, mad_u32_u24),
    HC(VOP3, mad_i32_i24),
    HC(VOP3, mad_u32_u16),
    HC(VOP3, mad_i32_i16),
    ORDERS(u32),
    ORDERS(i32),
    ORDERS(f32),
    HC(VOP3, sad_u8),
    HC(VOP3, sad_hi_u8),
    HC(VOP3, sad_u16),
    HC(VOP3, sad_u32),
    HC(VOP3, msad_u8),
    H(VOP3, lerp_u8),
    HC(VOP3SD, add_co_u32),
    HC(VOP3SD, sub_co_u32),
    HC(VOP3SD, subrev_co_u32),
    HC(VOP2, add_co_ci_u32),
    HC(VOP2, sub_co_ci_u32),
    HC(VOP2, subrev_co_ci_u32),
    H(VOP2, add_f32),
    H(VOP2, sub_f32),
    H(VOP2, subrev_f32),
    H(VOP2, mul_f32),
    H(VOP2, mul_dx9_zero_f32),
    H(VOP3, fma_f32),
    {RDNA3_VOP2_v_fmac_f32, fma_f32},
    {RDNA3_VOP2_v_fmamk_f32, fma_f32},
    {RDNA3_VOP2_v_fmaak_f32, fma_f32},
    {RDNA3_VOP3P_v_fma_mix_f32, fma_f32},
    H(VOP3, fma_dx9_zero_f32),
    {RDNA3_VOP2_v_fmac_dx9_zero_f32, fma_dx9_zero_f32},
    H(VOP1, trunc_f32),
    H(VOP1, ceil_f32),
    H(VOP1, floor_f32),
    H(VOP1, rndne_f32),
    H(VOP1, fract_f32),
    H(VOP3, ldexp_f32),
    H(VOP1, frexp_exp_i32_f32),
    H(VOP1, frexp_mant_f32),
    H(VOP1, cvt_f32_i32),
    H(VOP1, cvt_f32_u32),
    H(VOP1, cvt_u32_f32),
    H(VOP1, cvt_i32_f32),
    H(VOP1, cvt_nearest_i32_f32),
    H(VOP1, cvt_floor_i32_f32),
    H(VOP1, cvt_off_f32_i4),
    H(VOP1, cvt_f32_ubyte0),
    H(VOP1, cvt_f32_ubyte1),
    H(VOP1, cvt_f32_ubyte2),
    H(VOP1, cvt_f32_ubyte3),
    H(VOP3, cvt_pk_i16_f32),
    H(VOP3, cvt_pk_u16_f32),
    H(VOP3, cvt_pk_i16_i32),
    H(VOP3, cvt_pk_u16_u32),
    H(VOP3, cvt_pk_norm_i16_f32),
    H(VOP3, cvt_pk_norm_u16_f32),
    H(VOP3, cvt_pk_u8_f32),
    H(VOP3, div_fmas_f32),
    H(VOP3, div_fixup_f32),
    H(VOP3SD, div_scale_f32),
    H(VOP3, cubeid_f32),
    H(VOP3, cubesc_f32),
    H(VOP3, cubetc_f32),
    H(VOP3, cubema_f32),
    H(VOP3, mullit_f32),
    {RDNA3_ROW_COUNT, NULL},
};
