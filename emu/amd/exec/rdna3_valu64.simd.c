/* Vector operations on 64-bit integers and doubles: values in two rows. Source: RDNA3 ISA document, instruction
 * lists. */
#include "rdna3_simd.h"

#define A(T)     PAIR_##T(a_, l)
#define B(T)     PAIR_##T(b_, l)
#define C(T)     PAIR_##T(c_, l)
#define SOURCES1 const u32 *a_ = ROW(u32, 0);
#define SOURCES2 SOURCES1 const u32 *b_ = ROW(u32, 1);
#define SOURCES3 SOURCES2 const u32 *c_ = ROW(u32, 2);
#define TO64(name, n, TD, expr)                                                                                        \
  FN(name) { SOURCES##n STORE64(TD, expr) }
#define TO32(name, n, TD, expr)                                                                                        \
  FN(name) { SOURCES##n STORE(TD, expr) }

/* ---- integers ---- */
TO64(lshlrev_b64, 2, u64, B(u64) << (a_[l] & 63))
TO64(lshrrev_b64, 2, u64, B(u64) >> (a_[l] & 63))
TO64(ashrrev_i64, 2, i64, B(i64) >> (a_[l] & 63))

/* a * b + c with the carry (unsigned) or overflow (signed) out of 64 bits in the lane mask. */
#define MAD64(name, product, overflow)                                                                                 \
  FN(name) {                                                                                                           \
    const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);                                                 \
    u32 bits = 0, lanes = *w->lanes, *d = rdna3_dst(w, u);                                                             \
    u32 lo_[RDNA3_LANES] __attribute__((aligned(64))), hi_[RDNA3_LANES] __attribute__((aligned(64)));                  \
    i32 flag_[RDNA3_LANES] __attribute__((aligned(64)));                                                               \
    LANES {                                                                                                            \
      uint64_t p = product, c = C(u64), r = p + c;                                                                     \
      lo_[l] = (u32)r, hi_[l] = (u32)(r >> 32);                                                                        \
      flag_[l] = (overflow) ? -1 : 0;                                                                                  \
    }                                                                                                                  \
    bits = gather_bits(flag_);                                                                                         \
    store_row(d, lo_, lanes), store_row(d + RDNA3_LANES, hi_, lanes);                                                  \
    write_mask(w, u, bits &lanes);                                                                                     \
    return u + 1;                                                                                                      \
  }
MAD64(mad_u64_u32, (uint64_t)a_[l] * b_[l], r < p)
MAD64(mad_i64_i32, (uint64_t)((i64)(i32)a_[l] * (i32)b_[l]), (~(p ^ c) & (p ^ r)) >> 63)

/* Returns the sum of four byte distances between b and window i (bytes i to i + 3) of s. masked: bytes of b that are 0
 * do not count. */
static inline u32 window_sad(uint64_t s, u32 b, int i, int masked) {
  u32 sum = 0, win = (u32)(s >> (8 * i));
  for (int k = 0; k < 4; k++) {
    i32 x = (i32)(win >> (8 * k) & 0xff), y = (i32)(b >> (8 * k) & 0xff);
    sum += masked && !y ? 0 : (u32)(x > y ? x - y : y - x);
  }
  return sum;
}
static inline uint64_t packed_sads(uint64_t s, u32 b, uint64_t c, int masked, int clamp) {
  uint64_t r = 0;
  for (int i = 0; i < 4; i++) {
    u32 x = (u32)(c >> (16 * i) & 0xffff) + window_sad(s, b, i, masked);
    r |= (uint64_t)(clamp && x > 0xffff ? 0xffff : x & 0xffff) << (16 * i);
  }
  return r;
}
TO64(qsad_pk_u16_u8, 3, u64, packed_sads(A(u64), b_[l], C(u64), 0, 0))
TO64(mqsad_pk_u16_u8, 3, u64, packed_sads(A(u64), b_[l], C(u64), 1, 0))
TO64(qsad_pk_u16_u8_clamp, 3, u64, packed_sads(A(u64), b_[l], C(u64), 0, 1))
TO64(mqsad_pk_u16_u8_clamp, 3, u64, packed_sads(A(u64), b_[l], C(u64), 1, 1))
/* For a source wider than 64 bits the builder stores its register number in src. */
static const struct rdna3_uop *mqsad(struct rdna3_wave *w, const struct rdna3_uop *u, int clamp) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = w->v + (u->src[2] - RDNA3_VGPR0) * RDNA3_LANES;
  u32 lanes = *w->lanes, *d = rdna3_dst(w, u), r[4][RDNA3_LANES];
  for (int i = 0; i < 4; i++)
    for (int l = 0; l < RDNA3_LANES; l++) {
      uint64_t x = (uint64_t)c_[i * RDNA3_LANES + l] + window_sad(A(u64), b_[l], i, 1);
      r[i][l] = clamp && x > UINT32_MAX ? UINT32_MAX : (u32)x;
    }
  for (int i = 0; i < 4; i++) store_row(d + i * RDNA3_LANES, r[i], lanes);
  return u + 1;
}
FN(mqsad_u32_u8) { return mqsad(w, u, 0); }
FN(mqsad_u32_u8_clamp) { return mqsad(w, u, 1); }

/* ---- doubles ---- */
static inline int is_nan(f64 a) { return a != a; }
static inline f64 quiet(f64 a) { return as_f64(as_u64(a) | 1ull << 51); }
static inline int is_snan(f64 a) { return a != a && !(as_u64(a) >> 51 & 1); }
static inline i64 sort_key(f64 a) {
  i64 x = (i64)as_u64(a);
  return x ^ (i64)((uint64_t)(x >> 63) >> 1);
}
static inline f64 min2(f64 a, f64 b, u32 ieee) {
  f64 r = is_nan(a) ? b : is_nan(b) ? a : sort_key(a) < sort_key(b) ? a : b;
  r = is_nan(r) ? quiet(r) : r;
  return ieee && is_snan(a) ? quiet(a) : ieee && is_snan(b) ? quiet(b) : r;
}
static inline f64 max2(f64 a, f64 b, u32 ieee) {
  f64 r = is_nan(a) ? b : is_nan(b) ? a : sort_key(a) > sort_key(b) ? a : b;
  r = is_nan(r) ? quiet(r) : r;
  return ieee && is_snan(a) ? quiet(a) : ieee && is_snan(b) ? quiet(b) : r;
}
#define IEEE (w->mode & RDNA3_MODE_IEEE)
TO64(add_f64, 2, f64, A(f64) + B(f64))
TO64(mul_f64, 2, f64, A(f64) * B(f64))
TO64(min_f64, 2, f64, min2(A(f64), B(f64), IEEE))
TO64(max_f64, 2, f64, max2(A(f64), B(f64), IEEE))
TO64(fma_f64, 3, f64, __builtin_fma(A(f64), B(f64), C(f64)))
TO64(trunc_f64, 1, f64, __builtin_trunc(A(f64)))
TO64(ceil_f64, 1, f64, __builtin_ceil(A(f64)))
TO64(floor_f64, 1, f64, __builtin_floor(A(f64)))
/* Rounds to even in every rounding mode. */
static inline f64 round_even(f64 a) {
  f64 x = __builtin_fabs(a), t = __builtin_trunc(x), r = x - t;
  f64 odd = t - 2 * __builtin_trunc(t * 0.5);
  f64 up = r > 0.5 || (r == 0.5 && odd != 0) ? 1.0 : 0.0;
  return __builtin_copysign(t + up, a);
}
TO64(rndne_f64, 1, f64, ({
       f64 a = A(f64);
       !(__builtin_fabs(a) < 0x1p52) ? (is_nan(a) ? quiet(a) : a) : round_even(a);
     }))
TO64(fract_f64, 1, f64, ({
       f64 a = A(f64), r = a - __builtin_floor(a);
       r >= 1.0 ? 0x1.fffffffffffffp-1 : r;
     }))
/* Scaling by 2^n in two factors would round twice if the result is denormal. That case is rounded once, in a
 * multiplication by a tiny power. */
static inline f64 scale(f64 a, i32 n) {
  f64 up = as_f64((uint64_t)(1023 + 1000) << 52);
  n = n < -3000 ? -3000 : n > 3000 ? 3000 : n;
  for (int k = 0; k < 2; k++)
    if (n > 1000) a *= up, n -= 1000;
  /* Scaling down: normalise first, so that only the last step can round. */
  i32 e = (i32)(as_u64(a) >> 52 & 2047);
  if (e == 0) a *= 0x1p64, n -= 64, e = (i32)(as_u64(a) >> 52 & 2047);
  if (e == 0 || e == 2047) return a; /* zero, infinity, NaN */
  if (n < -1000 && e + n > 0) return as_f64((as_u64(a) & ~(2047ull << 52)) | (uint64_t)(e + n) << 52);
  if (n >= -1000 && n <= 1000 && e + n > 0) return a * as_f64((uint64_t)(1023 + n) << 52);
  if (n > 1000) return a * up * as_f64((uint64_t)(1023 + 1000) << 52);
  i32 to = -n - (e - 1);                                   /* distance below 2^-1022 */
  a = as_f64((as_u64(a) & ~(2047ull << 52)) | 1ull << 52); /* exponent of 2^-1022 */
  to = to > 100 ? 100 : to;
  return a * as_f64((uint64_t)(1023 - to) << 52);
}
FN(ldexp_f64) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  STORE64(f64, ({
            f64 a = A(f64);
            is_nan(a) ? quiet(a) : scale(a, (i32)b_[l]);
          }))
}
static inline i32 exponent(uint64_t m) { /* of a positive finite nonzero double's bits, for a mantissa in [0.5, 1) */
  i32 e = (i32)(m >> 52);
  return e ? e - 1022 : -1010 - __builtin_clzll(m) - 1;
}
TO32(frexp_exp_i32_f64, 1, i32, ({
       uint64_t m = A(u64) & ~(1ull << 63);
       m == 0 || m >= 2047ull << 52 ? 0 : exponent(m);
     }))
TO64(frexp_mant_f64, 1, u64, ({
       uint64_t x = A(u64), m = x & ~(1ull << 63);
       uint64_t n = m < 1ull << 52 && m ? m << (__builtin_clzll(m) - 11) : m;
       m == 0               ? x
       : m > 2047ull << 52  ? x | 1ull << 51
       : m == 2047ull << 52 ? x
                            : (x & 1ull << 63) | 1022ull << 52 | (n & ((1ull << 52) - 1));
     }))

static inline i32 to_i32(f64 a) { return a != a ? 0 : a >= 0x1p31 ? INT32_MAX : a <= -0x1p31 ? INT32_MIN : (i32)a; }
static inline u32 to_u32(f64 a) { return !(a > 0) ? 0 : a >= 0x1p32 ? UINT32_MAX : (u32)(i64)a; }
TO32(cvt_i32_f64, 1, i32, to_i32(A(f64)))
TO32(cvt_u32_f64, 1, u32, to_u32(A(f64)))
TO64(cvt_f64_i32, 1, f64, (f64)(i32)a_[l])
TO64(cvt_f64_u32, 1, f64, (f64)a_[l])
TO64(cvt_f64_f32, 1, f64, (f64)as_f32(a_[l]))
TO32(cvt_f32_f64, 1, f32, (f32)A(f64))

/* ---- division helpers: see the f32 forms ---- */
FN(div_fmas_f64) {
  u32 mask = read_mask(w, u);
  SOURCES3
  STORE64(f64, ({
            f64 r = __builtin_fma(A(f64), B(f64), C(f64));
            mask >> l & 1 ? r *((as_u64(C(f64)) >> 52 & 2047) > 1023 ? 0x1p128 : 0x1p-128) : r;
          }))
}
static inline uint64_t fix_quotient(uint64_t q, uint64_t den, uint64_t num) {
  uint64_t top = 1ull << 63, inf = 2047ull << 52, sign = (den ^ num) & top, d = den & ~top, n = num & ~top;
  i32 ed = (i32)(d >> 52), en = (i32)(n >> 52);
  uint64_t r = en - ed < -1075 ? sign : ed == 2047 || (q & ~top) > inf ? sign | inf : (q & ~top) | sign;
  r = d == inf || n == 0 ? sign : r;
  r = d == 0 || n == inf ? sign | inf : r;
  r = (d == 0 && n == 0) || (d == inf && n == inf) ? 0xfff8000000000000ull : r;
  return n > inf ? num | 1ull << 51 : d > inf ? den | 1ull << 51 : r;
}
TO64(div_fixup_f64, 3, u64, fix_quotient(A(u64), B(u64), C(u64)))
/* As v_div_scale_f32, with f64's ranges. */
FN(div_scale_f64) {
  SOURCES3
  u32 lanes = *w->lanes, bits = 0, *dst = rdna3_dst(w, u), lo[RDNA3_LANES], hi[RDNA3_LANES];
  for (int l = 0; l < RDNA3_LANES; l++) {
    f64 a = A(f64), d = B(f64), n = C(f64), r = a;
    i32 ed = (i32)(as_u64(d) >> 52 & 2047), en = (i32)(as_u64(n) >> 52 & 2047);
    int flag = 1, a_is_d = as_u64(a) == as_u64(d), a_is_n = as_u64(a) == as_u64(n);
    f64 inverse = 1.0 / d, quotient = n / d;
    int tiny_inverse = inverse != 0 && __builtin_fabs(inverse) < 0x1p-1022;
    int tiny_quotient = quotient != 0 && __builtin_fabs(quotient) < 0x1p-1022;
    if (n == 0 || d == 0)
      r = __builtin_nan("");
    else if (en - ed >= 768)
      r = a_is_d ? a * 0x1p128 : a;
    else if (ed == 0)
      r = a * 0x1p128, flag = 0;
    else if (tiny_inverse && tiny_quotient)
      r = a_is_d ? a * 0x1p-128 : a;
    else if (tiny_inverse)
      r = a * 0x1p-128, flag = 0;
    else if (tiny_quotient)
      r = a_is_n ? a * 0x1p128 : a;
    else if (en <= 53)
      r = a * 0x1p128, flag = 0;
    else
      flag = 0;
    uint64_t v = as_u64(r);
    lo[l] = (u32)v, hi[l] = (u32)(v >> 32), bits |= (u32)flag << l;
  }
  store_row(dst, lo, lanes), store_row(dst + RDNA3_LANES, hi, lanes);
  write_mask(w, u, bits & lanes);
  return u + 1;
}

/* 2/pi to 1201 bits after the point, most significant word first. v_trig_preop_f64 returns 53 of them, from bit 53 *
 * S1[4:0] on, or later for large exponents of S0. Digits: the binary expansion of 2/pi. */
static const u32 two_over_pi[38] = {
    0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561,
    0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484,
    0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f,
    0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b,
    0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b6bab,
};
static uint64_t two_over_pi_bits(unsigned at) {
  uint64_t r = 0;
  for (unsigned i = at; i < at + 53; i++) r = r << 1 | (i < 1201 ? two_over_pi[i / 32] >> (31 - i % 32) & 1 : 0);
  return r;
}
FN(trig_preop_f64) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  u32 lanes = *w->lanes, *d = rdna3_dst(w, u), lo[RDNA3_LANES], hi[RDNA3_LANES];
  for (int l = 0; l < RDNA3_LANES; l++) {
    i32 e = (i32)(a_[l + RDNA3_LANES] >> 20 & 2047), shift = (i32)(b_[l] & 31) * 53;
    if (e > 1077) shift += e - 1077;
    f64 r = (f64)two_over_pi_bits((unsigned)shift);
    i32 n = -53 - shift + (e >= 1968 ? 128 : 0);
    uint64_t v = as_u64(scale(r, n));
    lo[l] = (u32)v, hi[l] = (u32)(v >> 32);
  }
  store_row(d, lo, lanes), store_row(d + RDNA3_LANES, hi, lanes);
  return u + 1;
}

#define H(format, name) {RDNA3_##format##_v_##name, name}
#define HC(format, name)                                                                                               \
  H(format, name), { RDNA3_CLAMPED + RDNA3_##format##_v_##name, name##_clamp }
const struct rdna3_handler SIMD_NAME(rdna3_valu64_handlers)[] = {
    H(VOP3, lshlrev_b64),    H(VOP3, lshrrev_b64),     H(VOP3, ashrrev_i64),      H(VOP3SD, mad_u64_u32),
    H(VOP3SD, mad_i64_i32),  HC(VOP3, qsad_pk_u16_u8), HC(VOP3, mqsad_pk_u16_u8), HC(VOP3, mqsad_u32_u8),
    H(VOP3, add_f64),        H(VOP3, mul_f64),         H(VOP3, min_f64),          H(VOP3, max_f64),
    H(VOP3, fma_f64),        H(VOP1, trunc_f64),       H(VOP1, ceil_f64),         H(VOP1, floor_f64),
    H(VOP1, rndne_f64),      H(VOP1, fract_f64),       H(VOP3, ldexp_f64),        H(VOP1, frexp_exp_i32_f64),
    H(VOP1, frexp_mant_f64), H(VOP1, cvt_i32_f64),     H(VOP1, cvt_u32_f64),      H(VOP1, cvt_f64_i32),
    H(VOP1, cvt_f64_u32),    H(VOP1, cvt_f64_f32),     H(VOP1, cvt_f32_f64),      H(VOP3, div_fmas_f64),
    H(VOP3, div_fixup_f64),  H(VOP3SD, div_scale_f64), H(VOP3, trig_preop_f64),   {RDNA3_ROW_COUNT, NULL},
};
