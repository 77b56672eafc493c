/* Vector operations compared with plain C, lane by lane, on corner and random values, under full and partial EXEC, in
 * wave32 and wave64. Sources are v[0:1], v[2:3] and v[4:5], the destination is v[6:7], the incoming lane mask is s[4:5]
 * or vcc, the outgoing one s[8:9]. */
#include <fenv.h>
#include <stdbool.h>
#include <math.h>
#include "emu/simd_level.h"
#include "wave.h"

typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;
typedef int64_t i64;
typedef unsigned __int128 u128;
typedef __int128 i128;

static float f(u64 x) {
  u32 v = (u32)x;
  float r;
  memcpy(&r, &v, 4);
  return r;
}
static u32 u(float x) {
  u32 r;
  memcpy(&r, &x, 4);
  return r;
}
static double g(u64 x) {
  double r;
  memcpy(&r, &x, 8);
  return r;
}
static u64 ug(double x) {
  u64 r;
  memcpy(&r, &x, 8);
  return r;
}
static _Float16 h(u64 x) {
  uint16_t v = (uint16_t)x;
  _Float16 r;
  memcpy(&r, &v, 2);
  return r;
}
static u32 uh(_Float16 x) {
  uint16_t r;
  memcpy(&r, &x, 2);
  return r;
}

/* The result of a row: 32 or 64 bits, a mask bit, or a half beside the old other half. */
enum {
  R32 = 1,
  R64 = 2,
  MASK = 4,
  F32 = 8,
  F64 = 16,
  F16 = 32,
  ULP1 = 64,
  W32 = 128 /* not in wave64 */,
  SMALL = 256 /* moderate exponents */,
  FMASK = F32 | F64 | F16
};
struct args {
  u64 a, b, c, d; /* sources and the old destination */
  u32 m, lane;
};
struct result {
  u64 r;
  u32 m;
};
struct row {
  const char *text;
  struct result (*want)(struct args x);
  unsigned kind;
};
#define W(name, expr, mask)                                                                                            \
  static struct result name(struct args x) {                                                                           \
    u64 a = x.a, b = x.b, c = x.c, d = x.d;                                                                            \
    u32 m = x.m, al = (u32)a, bl = (u32)b, cl = (u32)c;                                                                \
    (void)a, (void)b, (void)c, (void)d, (void)m, (void)al, (void)bl, (void)cl;                                         \
    return (struct result){(u64)(expr), (u32)(mask)};                                                                  \
  }

static i32 bits_signed(u32 x, unsigned n) { return n ? (i32)(x << (32 - n)) >> (32 - n) : 0; }
static u32 reversed(u32 x) {
  u32 r = 0;
  for (int i = 0; i < 32; i++) r |= (x >> i & 1) << (31 - i);
  return r;
}
static u32 lead(u32 x) {
  for (u32 i = 0; i < 32; i++)
    if (x >> (31 - i) & 1) return i;
  return ~0u;
}
static u32 trail(u32 x) {
  for (u32 i = 0; i < 32; i++)
    if (x >> i & 1) return i;
  return ~0u;
}
static u32 signs(u32 x) {
  for (u32 i = 1; i < 32; i++)
    if ((x >> (31 - i) & 1) != x >> 31) return i;
  return ~0u;
}
static u32 sat(i128 x, i128 lo, i128 hi) { return (u32)(x < lo ? lo : x > hi ? hi : x); }
static i64 med(i64 x, i64 y, i64 z) {
  if ((x >= y && x <= z) || (x <= y && x >= z)) return x;
  return (y >= x && y <= z) || (y <= x && y >= z) ? y : z;
}
static u32 permuted(u32 a, u32 b, u32 sel) {
  u32 r = 0;
  u64 v = (u64)a << 32 | b;
  for (int i = 0; i < 4; i++) {
    u32 s = sel >> (8 * i) & 255, byte;
    if (s < 8)
      byte = v >> (8 * s) & 255;
    else if (s < 12)
      byte = v >> (16 * (s - 8) + 15) & 1 ? 255 : 0;
    else
      byte = s == 12 ? 0 : 255;
    r |= byte << (8 * i);
  }
  return r;
}
static u32 sad(u32 a, u32 b) {
  u32 s = 0;
  for (int i = 0; i < 4; i++) s += (u32)abs((int)(a >> (8 * i) & 255) - (int)(b >> (8 * i) & 255));
  return s;
}
static u64 div_i128(i128 x) { return (u64)x; }

W(w_mov, al, 0)
W(w_not, ~al, 0)
W(w_and, al &bl, 0)
W(w_or, al | bl, 0)
W(w_xor, al ^ bl, 0)
W(w_xnor, ~(al ^ bl), 0)
W(w_xor3, al ^ bl ^ cl, 0)
W(w_or3, al | bl | cl, 0)
W(w_andor, (al & bl) | cl, 0)
W(w_bfi, (al & bl) | (~al & cl), 0)
W(w_shl, (u64)bl << (al % 32) & 0xffffffff, 0)
W(w_shr, bl / ((u64)1 << (al % 32)), 0)
W(w_sar, (u32)((i64)(i32)bl >> (al % 32)), 0)
W(w_shlor, (u32)((u64)al << (bl % 32)) | cl, 0)
W(w_shladd, (u32)((u64)al << (bl % 32)) + cl, 0)
W(w_addshl, (u32)((u64)(u32)(al + bl) << (cl % 32)), 0)
W(w_bfeu, (u32)(((u64)al >> (bl % 32)) % ((u64)1 << (cl % 32))), 0)
W(w_bfei, (u32)bits_signed((u32)((i64)(i32)al >> (bl % 32)), cl % 32), 0)
W(w_bfm, (u32)((((u64)1 << (al % 32)) - 1) << (bl % 32)), 0)
W(w_alignbit, (u32)((((u64)al << 32) | bl) >> (cl % 32)), 0)
W(w_alignbyte, (u32)((((u64)al << 32) | bl) >> (8 * (cl % 4))), 0)
W(w_perm, permuted(al, bl, cl), 0)
W(w_bfrev, reversed(al), 0)
W(w_bcnt, (u32)__builtin_popcount(al) + bl, 0)
W(w_clz, lead(al), 0)
W(w_ctz, trail(al), 0)
W(w_cls, signs(al), 0)
W(w_cnd, m ? bl : al, 0)
W(w_add, (u32)(a + b), 0)
W(w_sub, (u32)(a - b), 0)
W(w_rsub, (u32)(b - a), 0)
W(w_addusat, sat((i128)al + bl, 0, UINT32_MAX), 0)
W(w_subusat, sat((i128)al - bl, 0, UINT32_MAX), 0)
W(w_addisat, sat((i128)(i32)al + (i32)bl, INT32_MIN, INT32_MAX), 0)
W(w_subisat, sat((i128)(i32)al - (i32)bl, INT32_MIN, INT32_MAX), 0)
W(w_add3, (u32)(a + b + c), 0)
W(w_xad, (u32)((al ^ bl) + cl), 0)
W(w_mullo, (u32)(a *b), 0)
W(w_mulhiu, (u64)al *bl >> 32, 0)
W(w_mulhii, (u64)((i64)(i32)al *(i32)bl) >> 32 & 0xffffffff, 0)
#define X24(x) ((i64)(i32)((x) << 8) >> 8)
W(w_mul24, (u32)((al & 0xffffff) * (u64)(bl & 0xffffff)), 0)
W(w_mulhi24, (al & 0xffffff) * (u64)(bl & 0xffffff) >> 32, 0)
W(w_muli24, (u32)(X24(al) * X24(bl)), 0)
W(w_mulhii24, (u32)((u64)(X24(al) * X24(bl)) >> 32), 0)
W(w_mad24, (u32)((al & 0xffffff) * (u64)(bl & 0xffffff) + cl), 0)
W(w_madi24, (u32)(X24(al) * X24(bl) + cl), 0)
W(w_madu16, (u32)((u64)(al & 0xffff) * (bl & 0xffff) + cl), 0)
W(w_madi16, (u32)((i64)(int16_t)al *(int16_t)bl + (i64)(i32)cl), 0)
W(w_minu, al < bl ? al : bl, 0)
W(w_maxu, al > bl ? al : bl, 0)
W(w_mini, (u32)((i32)al < (i32)bl ? al : bl), 0)
W(w_maxi, (u32)((i32)al > (i32)bl ? al : bl), 0)
W(w_medi, (u32)med((i32)al, (i32)bl, (i32)cl), 0)
W(w_medu, (u32)med(al, bl, cl), 0)
W(w_min3i, (u32)(i32)fmin(fmin((i32)al, (i32)bl), (i32)cl), 0)
W(w_max3u, (u32)fmax(fmax(al, bl), cl), 0)
W(w_minmaxi, (u32)(i32)fmax(fmin((i32)al, (i32)bl), (i32)cl), 0)
W(w_maxminu, (u32)fmin(fmax(al, bl), cl), 0)
W(w_sad, sad(al, bl) + cl, 0)
W(w_sadhi, (sad(al, bl) << 16) + cl, 0)
W(w_sad32, (u32)llabs((i64)al - bl) + cl, 0)
W(w_addco, (u32)(al + (u64)bl), ((u64)al + bl) >> 32)
W(w_subco, (u32)(al - (u64)bl), bl > al)
W(w_rsubco, (u32)(bl - (u64)al), al > bl)
W(w_addci, (u32)((u64)al + bl + m), ((u64)al + bl + m) >> 32)
W(w_subci, (u32)((u64)al - bl - m), (u64)bl + m > al)
W(w_rsubci, (u32)((u64)bl - al - m), (u64)al + m > bl)
W(w_madu64, (u64)((u128)al *bl + c), (u128)((u128)al *bl + c) >> 64)
W(w_madi64, div_i128((i128)(i32)al *(i32)bl + (i64)c),
  (i128)((i128)(i32)al *(i32)bl + (i64)c) != (i64)((u64)((i64)(i32)al * (i32)bl) + c))
W(w_shl64, b << (al % 64), 0)
W(w_shr64, b >> (al % 64), 0)
W(w_sar64, (u64)((i64)b >> (al % 64)), 0)

W(w_addf, u(f(a) + f(b)), 0)
W(w_subf, u(f(a) - f(b)), 0)
W(w_mulf, u(f(a) * f(b)), 0)
W(w_mulz, f(a) == 0 || f(b) == 0 ? 0 : u(f(a) * f(b)), 0)
W(w_fma, u(fmaf(f(a), f(b), f(c))), 0)
W(w_fmanegs, u(fmaf(-f(a), fabsf(f(b)), -fabsf(f(c)))), 0)
W(w_fmac, u(fmaf(f(a), f(b), f(d))), 0)
W(w_fmamk, u(fmaf(f(a), 2.75f, f(b))), 0)
W(w_fmaak, u(fmaf(f(a), f(b), -3.5f)), 0)
static float clamp01(float x) { return x > 1 ? 1 : x > 0 ? x : 0; }
W(w_addclamp, u(clamp01(f(a) + f(b))), 0)
static float fminimum(float a, float b) {
  return isnan(a) ? b : isnan(b) ? a : a == b ? (signbit(a) ? a : b) : fminf(a, b);
}
static float fmaximum(float a, float b) {
  return isnan(a) ? b : isnan(b) ? a : a == b ? (signbit(a) ? b : a) : fmaxf(a, b);
}
static int snan(u32 x) { return (x & 0x7fffffff) > 0x7f800000 && !(x & 0x400000); }
W(w_minf, snan(al) || snan(bl) ? 0x7fc00000 : u(fminimum(f(a), f(b))), 0)
W(w_maxf, snan(al) || snan(bl) ? 0x7fc00000 : u(fmaximum(f(a), f(b))), 0)
W(w_trunc, u(truncf(f(a))), 0)
W(w_ceil, u(ceilf(f(a))), 0)
W(w_floor, u(floorf(f(a))), 0)
W(w_rndne, u(rintf(f(a))), 0)
W(w_fract, isnan(f(a)) || isinf(f(a)) ? 0x7fc00000 : u(fminf(f(a) - floorf(f(a)), 0x1.fffffep-1f)), 0)
W(w_ldexp, u(ldexpf(f(a), (i32)bl)), 0)
W(w_frexpm, isinf(f(a)) ? al : u(({
    int e;
    frexpf(f(a), &e);
  })),
  0)
W(w_frexpe, (u32)({
    int e = 0;
    if (!isinf(f(a)) && !isnan(f(a))) frexpf(f(a), &e);
    e;
  }),
  0)
W(w_f2i, isnan(f(a)) ? 0 : sat((i128)fmaxf(fminf(f(a), 4e9f), -4e9f), INT32_MIN, INT32_MAX), 0)
W(w_f2u, isnan(f(a)) ? 0 : sat((i128)fmaxf(fminf(f(a), 8e9f), -4e9f), 0, UINT32_MAX), 0)
W(w_i2f, u((float)(i32)al), 0)
W(w_u2f, u((float)al), 0)
W(w_ubyte2, u((float)(al >> 16 & 255)), 0)
static float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }
W(w_exp, u(flushed((float)exp2((double)flushed(f(a))))), 0)
W(w_log, u((float)log2((double)flushed(f(a)))), 0)
W(w_rcp, u(flushed(1.0f / flushed(f(a)))), 0)
W(w_rsq, u((float)(1 / sqrt((double)flushed(f(a))))), 0)
W(w_sqrt, u(sqrtf(flushed(f(a)))), 0)
/* Folds the turn to a quarter turn first, because pi is not a double. */
static float sin_turns(float a) {
  double r = (double)a - rint((double)a);
  return (float)sin(6.283185307179586 * (fabs(r) > 0.25 ? copysign(0.5, r) - r : r));
}
static float cos_turns(float a) { return (float)sin(6.283185307179586 * (0.25 - fabs((double)a - rint((double)a)))); }
W(w_sin, u(sin_turns(f(a))), 0)
W(w_cos, u(cos_turns(f(a))), 0)
W(w_pki16,
  (sat(isnan(f(a)) ? 0 : (i128)fmaxf(fminf(f(a), 1e9f), -1e9f), -32768, 32767) & 0xffff) |
      sat(isnan(f(b)) ? 0 : (i128)fmaxf(fminf(f(b), 1e9f), -1e9f), -32768, 32767) << 16,
  0)
W(w_pku16, sat(al, 0, 65535) | sat(bl, 0, 65535) << 16, 0)

W(w_addd, ug(g(a) + g(b)), 0)
W(w_muld, ug(g(a) * g(b)), 0)
W(w_fmad, ug(fma(g(a), g(b), g(c))), 0)
W(w_fmadneg, ug(fma(-g(a), g(b), fabs(g(c)))), 0)
static double dmin(double a, double b) {
  return isnan(a) ? b : isnan(b) ? a : a == b ? (signbit(a) ? a : b) : fmin(a, b);
}
static int snan64(u64 x) { return (x & ~(1ull << 63)) > 0x7ff0000000000000 && !(x >> 51 & 1); }
W(w_mind, snan64(a) || snan64(b) ? 0x7ff8000000000000 : ug(dmin(g(a), g(b))), 0)
W(w_truncd, ug(trunc(g(a))), 0)
W(w_ceild, ug(ceil(g(a))), 0)
W(w_floord, ug(floor(g(a))), 0)
W(w_rndned, ug(rint(g(a))), 0)
W(w_ldexpd, ug(ldexp(g(a), (i32)bl)), 0)
W(w_frexpmd, isinf(g(a)) ? a : ug(({
    int e;
    frexp(g(a), &e);
  })),
  0)
W(w_frexped, (u32)({
    int e = 0;
    if (!isinf(g(a)) && !isnan(g(a))) frexp(g(a), &e);
    e;
  }),
  0)
W(w_d2i, isnan(g(a)) ? 0 : sat((i128)fmax(fmin(g(a), 4e9), -4e9), INT32_MIN, INT32_MAX), 0)
W(w_d2u, isnan(g(a)) ? 0 : sat((i128)fmax(fmin(g(a), 8e9), -4e9), 0, UINT32_MAX), 0)
W(w_i2d, ug((double)(i32)al), 0)
W(w_u2d, ug((double)al), 0)
W(w_f2d, ug((double)f(a)), 0)
W(w_d2f, u((float)g(a)), 0)
W(w_rcpd, ug(1.0 / g(a)), 0)
W(w_sqrtd, ug(sqrt(g(a))), 0)

/* Halves: the low half is written, the high half of the destination is unchanged. */
#define LOW(x)  (((u32)d & 0xffff0000u) | ((u32)(x) & 0xffff))
#define HIGH(x) (((u32)d & 0xffffu) | (u32)(x) << 16)
W(w_addh, LOW(uh((_Float16)((float)h(a) + (float)h(b)))), 0)
W(w_addhhi, HIGH(uh((_Float16)((float)h(a >> 16) + (float)h(b)))), 0)
W(w_subh, LOW(uh((_Float16)((float)h(a) - (float)h(b)))), 0)
W(w_mulh, LOW(uh((_Float16)((float)h(a) * (float)h(b)))), 0)
/* Rounded once: long double represents any product of halves, and the sum to more than 11 additional bits. */
static _Float16 fmah(_Float16 a, _Float16 b, _Float16 c) {
  long double exact = (long double)(double)(float)a * (double)(float)b + (double)(float)c;
  float r = (float)exact;
  if (isnan(r) || isinf(r)) return (_Float16)r;
  /* round to odd, so that the second rounding is correct */
  if ((long double)r != exact) {
    if (fabsl((long double)r) > fabsl(exact)) r = nextafterf(r, 0);
    u32 v = u(r) | 1;
    r = f(v);
  }
  return (_Float16)r;
}
W(w_fmah, LOW(uh(fmah(h(a), h(b), h(c)))), 0)
W(w_cvth, LOW(uh((_Float16)f(a))), 0)
W(w_cvthi, HIGH(uh((_Float16)f(a))), 0)
W(w_cvtfh, u((float)h(a)), 0)
W(w_cvtfhhi, u((float)h(a >> 16)), 0)
W(w_u16h, LOW(uh((_Float16)(float)(al & 0xffff))), 0)
W(w_hi16, LOW(isnan((float)h(a)) ? 0 : sat((i128)fmaxf(fminf((float)h(a), 1e6f), -1e6f), -32768, 32767)), 0)
W(w_sqrth, LOW(uh((_Float16)sqrtf((float)h(a)))), 0)
W(w_rndneh, LOW(uh((_Float16)rintf((float)h(a)))), 0)
W(w_ldexph, LOW(uh((_Float16)ldexp((double)(float)h(a), (int16_t)bl))), 0)
W(w_add16, LOW(al + bl), 0)
W(w_add16hi, HIGH((al >> 16) + (bl >> 16)), 0)
W(w_add16sat, LOW(sat((i128)(al & 0xffff) + (bl & 0xffff), 0, 65535)), 0)
W(w_mul16, LOW(al *bl), 0)
W(w_mad16, LOW(al *bl + cl), 0)
W(w_shl16, LOW((bl & 0xffff) << (al & 15)), 0)
W(w_sar16, LOW((i32)(int16_t)bl >> (al & 15)), 0)
W(w_min16, LOW((int16_t)al < (int16_t)bl ? al : bl), 0)
W(w_med16, LOW((u32)med((int16_t)al, (int16_t)bl, (int16_t)cl)), 0)
W(w_pack, (al & 0xffff) | bl << 16, 0)
W(w_packhi, al >> 16 | (bl & 0xffff0000u), 0)
#define TWO(lo, hi) (((u32)(lo) & 0xffff) | (u32)(hi) << 16)
W(w_pkadd, TWO(al + bl, (al >> 16) + (bl >> 16)), 0)
W(w_pkaddsel, TWO((al >> 16) + bl, al + (bl >> 16)), 0)
W(w_pkaddsat,
  TWO(sat((i128)(int16_t)al + (int16_t)bl, -32768, 32767),
      sat((i128)(int16_t)(al >> 16) + (int16_t)(bl >> 16), -32768, 32767)),
  0)
W(w_pkmad, TWO(al *bl + cl, (al >> 16) * (bl >> 16) + (cl >> 16)), 0)
W(w_pkconst, TWO(al + 5, (al >> 16) + 5), 0)
W(w_pkmulh, TWO(uh((_Float16)((float)h(a) * (float)h(b))), uh((_Float16)((float)h(a >> 16) * (float)h(b >> 16)))), 0)
W(w_pkfmah, TWO(uh(fmah(h(a), h(b), h(c))), uh(fmah(h(a >> 16), h(b >> 16), h(c >> 16)))), 0)
W(w_pkaddneg, TWO(uh((_Float16)((float)h(a) - (float)h(b))), uh((_Float16)((float)h(b >> 16) - (float)h(a >> 16)))), 0)
W(w_pkone, TWO(uh((_Float16)((float)h(a) + 1.0f)), uh((_Float16)((float)h(a >> 16) + 1.0f))), 0)
W(w_mix, u(fmaf((float)h(a >> 16), -f(b), fabsf((float)h(c)))), 0)
W(w_mixlo, LOW(uh((_Float16)fmaf((float)h(a), f(b), f(c)))), 0)
W(w_mixhi, HIGH(uh((_Float16)fmaf((float)h(a), f(b), f(c)))), 0)
static i64 dotn(u32 a, u32 b, unsigned n, int sa, int sb) {
  i64 s = 0;
  for (unsigned i = 0; i < 32; i += n) {
    u32 x = a >> i & ((1u << n) - 1), y = b >> i & ((1u << n) - 1);
    s += (sa ? (i64)bits_signed(x, n) : x) * (sb ? (i64)bits_signed(y, n) : y);
  }
  return s;
}
W(w_dot4, (u32)(dotn(al, bl, 8, 1, 0) + (i32)cl), 0)
W(w_dot4sat, sat((i128)dotn(al, bl, 8, 1, 1) + (i32)cl, INT32_MIN, INT32_MAX), 0)
W(w_dot8, (u32)(dotn(al, bl, 4, 0, 1) + (i32)cl), 0)
W(w_dot4u, (u32)(dotn(al, bl, 8, 0, 0) + cl), 0)
W(w_dot2, u(f(c) + (float)h(a) * (float)h(b) + (float)h(a >> 16) * (float)h(b >> 16)), 0)

W(w_ltf, 0, f(a) < f(b))
W(w_ngef, 0, !(f(a) >= f(b)))
W(w_lgf, 0, f(a) < f(b) || f(a) > f(b))
W(w_uf, 0, isnan(f(a)) || isnan(f(b)))
W(w_gtabs, 0, fabsf(f(a)) > -f(b))
W(w_ltd, 0, g(a) < g(b))
W(w_nled, 0, !(g(a) <= g(b)))
W(w_eqh, 0, (float)h(a) == (float)h(b))
W(w_lth, 0, (float)h(a) < (float)h(b))
W(w_lti, 0, (i32)al < (i32)bl)
W(w_geu, 0, al >= bl)
W(w_lti64, 0, (i64)a < (i64)b)
W(w_neu64, 0, a != b)
W(w_lti16, 0, (int16_t)al < (int16_t)bl)
static u32 class_bit(double x, int is_snan, int denormal) {
  if (isnan(x)) return is_snan ? 0 : 1;
  if (isinf(x)) return x < 0 ? 2 : 9;
  if (x == 0) return signbit(x) ? 5 : 6;
  return denormal ? (x < 0 ? 4 : 7) : x < 0 ? 3 : 8;
}
W(w_classf, 0, bl >> class_bit((double)f(a), snan(al), fabsf(f(a)) < 0x1p-126f) & 1)
W(w_classd, 0, bl >> class_bit(g(a), snan64(a), fabs(g(a)) < 0x1p-1022) & 1)
W(w_mbcnt, (u32)__builtin_popcountll(0x0f1e2d3c4b5a6978ull & ((u64)0xffffffff & ((1ull << x.lane) - 1))) + bl, 0)
W(w_s0, al + 0x1000u, 0)
W(w_lit, al * 0x12345u, 0)

static const struct row rows[] = {
    {"v_mov_b32 v6, v0", w_mov, R32},
    {"v_not_b32 v6, v0", w_not, R32},
    {"v_and_b32 v6, v0, v2", w_and, R32},
    {"v_or_b32 v6, v0, v2", w_or, R32},
    {"v_xor_b32 v6, v0, v2", w_xor, R32},
    {"v_xnor_b32 v6, v0, v2", w_xnor, R32},
    {"v_xor3_b32 v6, v0, v2, v4", w_xor3, R32},
    {"v_or3_b32 v6, v0, v2, v4", w_or3, R32},
    {"v_and_or_b32 v6, v0, v2, v4", w_andor, R32},
    {"v_bfi_b32 v6, v0, v2, v4", w_bfi, R32},
    {"v_lshlrev_b32 v6, v0, v2", w_shl, R32},
    {"v_lshrrev_b32 v6, v0, v2", w_shr, R32},
    {"v_ashrrev_i32 v6, v0, v2", w_sar, R32},
    {"v_lshl_or_b32 v6, v0, v2, v4", w_shlor, R32},
    {"v_lshl_add_u32 v6, v0, v2, v4", w_shladd, R32},
    {"v_add_lshl_u32 v6, v0, v2, v4", w_addshl, R32},
    {"v_bfe_u32 v6, v0, v2, v4", w_bfeu, R32},
    {"v_bfe_i32 v6, v0, v2, v4", w_bfei, R32},
    {"v_bfm_b32 v6, v0, v2", w_bfm, R32},
    {"v_alignbit_b32 v6, v0, v2, v4", w_alignbit, R32},
    {"v_alignbyte_b32 v6, v0, v2, v4", w_alignbyte, R32},
    {"v_perm_b32 v6, v0, v2, v4", w_perm, R32},
    {"v_bfrev_b32 v6, v0", w_bfrev, R32},
    {"v_bcnt_u32_b32 v6, v0, v2", w_bcnt, R32},
    {"v_clz_i32_u32 v6, v0", w_clz, R32},
    {"v_ctz_i32_b32 v6, v0", w_ctz, R32},
    {"v_cls_i32 v6, v0", w_cls, R32},
    {"v_cndmask_b32 v6, v0, v2, @vcc", w_cnd, R32},
    {"v_cndmask_b32 v6, v0, v2, @s4", w_cnd, R32},
    {"v_add_nc_u32 v6, v0, v2", w_add, R32},
    {"v_sub_nc_u32 v6, v0, v2", w_sub, R32},
    {"v_subrev_nc_u32 v6, v0, v2", w_rsub, R32},
    {"v_add_nc_u32 v6, v0, v2 clamp", w_addusat, R32},
    {"v_sub_nc_u32 v6, v0, v2 clamp", w_subusat, R32},
    {"v_add_nc_i32 v6, v0, v2 clamp", w_addisat, R32},
    {"v_sub_nc_i32 v6, v0, v2 clamp", w_subisat, R32},
    {"v_add3_u32 v6, v0, v2, v4", w_add3, R32},
    {"v_xad_u32 v6, v0, v2, v4", w_xad, R32},
    {"v_mul_lo_u32 v6, v0, v2", w_mullo, R32},
    {"v_mul_hi_u32 v6, v0, v2", w_mulhiu, R32},
    {"v_mul_hi_i32 v6, v0, v2", w_mulhii, R32},
    {"v_mul_u32_u24 v6, v0, v2", w_mul24, R32},
    {"v_mul_hi_u32_u24 v6, v0, v2", w_mulhi24, R32},
    {"v_mul_i32_i24 v6, v0, v2", w_muli24, R32},
    {"v_mul_hi_i32_i24 v6, v0, v2", w_mulhii24, R32},
    {"v_mad_u32_u24 v6, v0, v2, v4", w_mad24, R32},
    {"v_mad_i32_i24 v6, v0, v2, v4", w_madi24, R32},
    {"v_mad_u32_u16 v6, v0, v2, v4", w_madu16, R32},
    {"v_mad_i32_i16 v6, v0, v2, v4", w_madi16, R32},
    {"v_min_u32 v6, v0, v2", w_minu, R32},
    {"v_max_u32 v6, v0, v2", w_maxu, R32},
    {"v_min_i32 v6, v0, v2", w_mini, R32},
    {"v_max_i32 v6, v0, v2", w_maxi, R32},
    {"v_med3_i32 v6, v0, v2, v4", w_medi, R32},
    {"v_med3_u32 v6, v0, v2, v4", w_medu, R32},
    {"v_min3_i32 v6, v0, v2, v4", w_min3i, R32},
    {"v_max3_u32 v6, v0, v2, v4", w_max3u, R32},
    {"v_minmax_i32 v6, v0, v2, v4", w_minmaxi, R32},
    {"v_maxmin_u32 v6, v0, v2, v4", w_maxminu, R32},
    {"v_sad_u8 v6, v0, v2, v4", w_sad, R32},
    {"v_sad_hi_u8 v6, v0, v2, v4", w_sadhi, R32},
    {"v_sad_u32 v6, v0, v2, v4", w_sad32, R32},
    {"v_add_co_u32 v6, @s8, v0, v2", w_addco, R32 | MASK},
    {"v_sub_co_u32 v6, @s8, v0, v2", w_subco, R32 | MASK},
    {"v_subrev_co_u32 v6, @s8, v0, v2", w_rsubco, R32 | MASK},
    {"v_add_co_ci_u32_e64 v6, @s8, v0, v2, @s4", w_addci, R32 | MASK},
    {"v_sub_co_ci_u32_e64 v6, @s8, v0, v2, @s4", w_subci, R32 | MASK},
    {"v_subrev_co_ci_u32_e64 v6, @s8, v0, v2, @s4", w_rsubci, R32 | MASK},
    {"v_add_co_ci_u32_e32 v6, @vcc, v0, v2, @vcc\ns_mov_b64 s[8:9], vcc", w_addci, R32 | MASK},
    {"v_mad_u64_u32 v[6:7], @s8, v0, v2, v[4:5]", w_madu64, R64 | MASK},
    {"v_mad_i64_i32 v[6:7], @s8, v0, v2, v[4:5]", w_madi64, R64 | MASK},
    {"v_lshlrev_b64 v[6:7], v0, v[2:3]", w_shl64, R64},
    {"v_lshrrev_b64 v[6:7], v0, v[2:3]", w_shr64, R64},
    {"v_ashrrev_i64 v[6:7], v0, v[2:3]", w_sar64, R64},
    {"v_add_f32 v6, v0, v2", w_addf, R32 | F32},
    {"v_sub_f32 v6, v0, v2", w_subf, R32 | F32},
    {"v_subrev_f32 v6, v2, v0", w_subf, R32 | F32},
    {"v_mul_f32 v6, v0, v2", w_mulf, R32 | F32},
    {"v_mul_dx9_zero_f32 v6, v0, v2", w_mulz, R32 | F32},
    {"v_fma_f32 v6, v0, v2, v4", w_fma, R32 | F32},
    {"v_fma_f32 v6, -v0, |v2|, -|v4|", w_fmanegs, R32 | F32},
    {"v_fmac_f32 v6, v0, v2", w_fmac, R32 | F32},
    {"v_fmamk_f32 v6, v0, 0x40300000, v2", w_fmamk, R32 | F32},
    {"v_fmaak_f32 v6, v0, v2, 0xc0600000", w_fmaak, R32 | F32},
    {"v_add_f32 v6, v0, v2 clamp", w_addclamp, R32 | F32},
    {"v_min_f32 v6, v0, v2", w_minf, R32 | F32},
    {"v_max_f32 v6, v0, v2", w_maxf, R32 | F32},
    {"v_trunc_f32 v6, v0", w_trunc, R32 | F32},
    {"v_ceil_f32 v6, v0", w_ceil, R32 | F32},
    {"v_floor_f32 v6, v0", w_floor, R32 | F32},
    {"v_rndne_f32 v6, v0", w_rndne, R32 | F32},
    {"v_fract_f32 v6, v0", w_fract, R32 | F32},
    {"v_ldexp_f32 v6, v0, v2", w_ldexp, R32 | F32},
    {"v_frexp_mant_f32 v6, v0", w_frexpm, R32 | F32},
    {"v_frexp_exp_i32_f32 v6, v0", w_frexpe, R32 | F32},
    {"v_cvt_i32_f32 v6, v0", w_f2i, R32 | F32},
    {"v_cvt_u32_f32 v6, v0", w_f2u, R32 | F32},
    {"v_cvt_f32_i32 v6, v0", w_i2f, R32},
    {"v_cvt_f32_u32 v6, v0", w_u2f, R32},
    {"v_cvt_f32_ubyte2 v6, v0", w_ubyte2, R32},
    {"v_exp_f32 v6, v0", w_exp, R32 | F32 | ULP1},
    {"v_log_f32 v6, v0", w_log, R32 | F32 | ULP1},
    {"v_rcp_f32 v6, v0", w_rcp, R32 | F32 | ULP1},
    {"v_rsq_f32 v6, v0", w_rsq, R32 | F32 | ULP1},
    {"v_sqrt_f32 v6, v0", w_sqrt, R32 | F32 | ULP1},
    {"v_sin_f32 v6, v0", w_sin, R32 | F32 | ULP1 | SMALL},
    {"v_cos_f32 v6, v0", w_cos, R32 | F32 | ULP1 | SMALL},
    {"v_cvt_pk_i16_f32 v6, v0, v2", w_pki16, R32 | F32},
    {"v_cvt_pk_u16_u32 v6, v0, v2", w_pku16, R32},
    {"v_add_f64 v[6:7], v[0:1], v[2:3]", w_addd, R64 | F64},
    {"v_mul_f64 v[6:7], v[0:1], v[2:3]", w_muld, R64 | F64},
    {"v_fma_f64 v[6:7], v[0:1], v[2:3], v[4:5]", w_fmad, R64 | F64},
    {"v_fma_f64 v[6:7], -v[0:1], v[2:3], |v[4:5]|", w_fmadneg, R64 | F64},
    {"v_min_f64 v[6:7], v[0:1], v[2:3]", w_mind, R64 | F64},
    {"v_trunc_f64 v[6:7], v[0:1]", w_truncd, R64 | F64},
    {"v_ceil_f64 v[6:7], v[0:1]", w_ceild, R64 | F64},
    {"v_floor_f64 v[6:7], v[0:1]", w_floord, R64 | F64},
    {"v_rndne_f64 v[6:7], v[0:1]", w_rndned, R64 | F64},
    {"v_ldexp_f64 v[6:7], v[0:1], v2", w_ldexpd, R64 | F64},
    {"v_frexp_mant_f64 v[6:7], v[0:1]", w_frexpmd, R64 | F64},
    {"v_frexp_exp_i32_f64 v6, v[0:1]", w_frexped, R32 | F64},
    {"v_cvt_i32_f64 v6, v[0:1]", w_d2i, R32 | F64},
    {"v_cvt_u32_f64 v6, v[0:1]", w_d2u, R32 | F64},
    {"v_cvt_f64_i32 v[6:7], v0", w_i2d, R64},
    {"v_cvt_f64_u32 v[6:7], v0", w_u2d, R64},
    {"v_cvt_f64_f32 v[6:7], v0", w_f2d, R64 | F32},
    {"v_cvt_f32_f64 v6, v[0:1]", w_d2f, R32 | F64},
    {"v_rcp_f64 v[6:7], v[0:1]", w_rcpd, R64 | F64},
    {"v_sqrt_f64 v[6:7], v[0:1]", w_sqrtd, R64 | F64},
    {"v_add_f16 v6, v0, v2", w_addh, R32 | F16},
    {".long 0xd5324806, 0x00020500", w_addhhi, R32 | F16},
    {"v_sub_f16 v6, v0, v2", w_subh, R32 | F16},
    {"v_mul_f16 v6, v0, v2", w_mulh, R32 | F16},
    {"v_fma_f16 v6, v0, v2, v4", w_fmah, R32 | F16},
    {"v_cvt_f16_f32 v6, v0", w_cvth, R32 | F32},
    {".long 0x7f0c1500", w_cvthi, R32 | F32},
    {"v_cvt_f32_f16 v6, v0", w_cvtfh, R32 | F16},
    {".long 0x7e0c1780", w_cvtfhhi, R32 | F16},
    {"v_cvt_f16_u16 v6, v0", w_u16h, R32},
    {"v_cvt_i16_f16 v6, v0", w_hi16, R32 | F16},
    {"v_sqrt_f16 v6, v0", w_sqrth, R32 | F16},
    {"v_rndne_f16 v6, v0", w_rndneh, R32 | F16},
    {"v_ldexp_f16 v6, v0, v2", w_ldexph, R32 | F16},
    {"v_add_nc_u16 v6, v0, v2", w_add16, R32},
    {"v_add_nc_u16 v6, v0, v2 op_sel:[1,1,1]", w_add16hi, R32},
    {"v_add_nc_u16 v6, v0, v2 clamp", w_add16sat, R32},
    {"v_mul_lo_u16 v6, v0, v2", w_mul16, R32},
    {"v_mad_u16 v6, v0, v2, v4", w_mad16, R32},
    {"v_lshlrev_b16 v6, v0, v2", w_shl16, R32},
    {"v_ashrrev_i16 v6, v0, v2", w_sar16, R32},
    {"v_min_i16 v6, v0, v2", w_min16, R32},
    {"v_med3_i16 v6, v0, v2, v4", w_med16, R32},
    {"v_pack_b32_f16 v6, v0, v2", w_pack, R32},
    {"v_pack_b32_f16 v6, v0, v2 op_sel:[1,1,0]", w_packhi, R32},
    {"v_pk_add_u16 v6, v0, v2", w_pkadd, R32},
    {"v_pk_add_u16 v6, v0, v2 op_sel:[1,0] op_sel_hi:[0,1]", w_pkaddsel, R32},
    {"v_pk_add_i16 v6, v0, v2 clamp", w_pkaddsat, R32},
    {"v_pk_mad_u16 v6, v0, v2, v4", w_pkmad, R32},
    {"v_pk_add_u16 v6, v0, 5 op_sel_hi:[1,0]", w_pkconst, R32},
    {"v_pk_mul_f16 v6, v0, v2", w_pkmulh, R32 | F16},
    {"v_pk_fma_f16 v6, v0, v2, v4", w_pkfmah, R32 | F16},
    {"v_pk_add_f16 v6, v0, v2 neg_lo:[0,1] neg_hi:[1,0]", w_pkaddneg, R32 | F16},
    {"v_pk_add_f16 v6, v0, 1.0 op_sel_hi:[1,0]", w_pkone, R32 | F16},
    {"v_fma_mix_f32 v6, v0, -v2, |v4| op_sel:[1,0,0] op_sel_hi:[1,0,1]", w_mix, R32 | F32},
    {"v_fma_mixlo_f16 v6, v0, v2, v4 op_sel_hi:[1,0,0]", w_mixlo, R32 | F32},
    {"v_fma_mixhi_f16 v6, v0, v2, v4 op_sel_hi:[1,0,0]", w_mixhi, R32 | F32},
    {"v_dot4_i32_iu8 v6, v0, v2, v4 neg_lo:[1,0,0]", w_dot4, R32},
    {"v_dot4_i32_iu8 v6, v0, v2, v4 neg_lo:[1,1,0] clamp", w_dot4sat, R32},
    {"v_dot8_i32_iu4 v6, v0, v2, v4 neg_lo:[0,1,0]", w_dot8, R32},
    {"v_dot4_u32_u8 v6, v0, v2, v4", w_dot4u, R32},
    {"v_dot2_f32_f16 v6, v0, v2, v4", w_dot2, R32 | F32},
    {"v_cmp_lt_f32 @s8, v0, v2", w_ltf, MASK | F32},
    {"v_cmp_nge_f32 @s8, v0, v2", w_ngef, MASK | F32},
    {"v_cmp_lg_f32 @s8, v0, v2", w_lgf, MASK | F32},
    {"v_cmp_u_f32 @s8, v0, v2", w_uf, MASK | F32},
    {"v_cmp_gt_f32 @s8, |v0|, -v2", w_gtabs, MASK | F32},
    {"v_cmp_lt_f64 @s8, v[0:1], v[2:3]", w_ltd, MASK | F64},
    {"v_cmp_nle_f64 @s8, v[0:1], v[2:3]", w_nled, MASK | F64},
    {"v_cmp_eq_f16_e64 @s8, v0, v2", w_eqh, MASK | F16},
    {"v_cmp_lt_f16_e64 @s8, v0, v2", w_lth, MASK | F16},
    {"v_cmp_lt_i32 @s8, v0, v2", w_lti, MASK},
    {"v_cmp_ge_u32 @s8, v0, v2", w_geu, MASK},
    {"v_cmp_lt_i64 @s8, v[0:1], v[2:3]", w_lti64, MASK},
    {"v_cmp_ne_u64 @s8, v[0:1], v[2:3]", w_neu64, MASK},
    {"v_cmp_lt_i16_e64 @s8, v0, v2", w_lti16, MASK},
    {"v_cmp_class_f32 @s8, v0, v2", w_classf, MASK | F32},
    {"v_cmp_class_f64 @s8, v[0:1], v2", w_classd, MASK | F64},
    {"s_mov_b32 s3, 0x4b5a6978\nv_mbcnt_lo_u32_b32 v6, s3, v2", w_mbcnt, R32},
    {"s_movk_i32 s3, 0x1000\nv_add_nc_u32 v6, s3, v0", w_s0, R32},
    {"v_mul_lo_u32 v6, 0x12345, v0", w_lit, R32},
};
enum { ROWS = sizeof rows / sizeof *rows };

static u64 seed = 42;
static u64 operand(unsigned kind) {
  static const u64 ints[] = {0,
                             1,
                             2,
                             31,
                             32,
                             63,
                             0x7f,
                             0x80,
                             0xff,
                             0x7fff,
                             0x8000,
                             0xffff,
                             0x10000,
                             0x7fffffff,
                             0x80000000,
                             0xffffffff,
                             0x100000000,
                             0x7fffffffffffffff,
                             0x8000000000000000,
                             ~0ull};
  static const u32 floats[] = {0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000,
                               0x3f800000, 0xbf800000, 0x3f000000, 0x40200000, 0xc0200000, 0x4b000001,
                               0x4f000000, 0xcf000000, 0x4f800000, 0x7f7fffff, 0xff7fffff, 0x7f800000,
                               0xff800000, 0x7fc00000, 0x7fa00000, 0x3effffff};
  static const u64 doubles[] = {0,
                                1ull << 63,
                                1,
                                0x000fffffffffffff,
                                0x0010000000000000,
                                0x3ff0000000000000,
                                0xbff0000000000000,
                                0x3fe0000000000000,
                                0x4004000000000000,
                                0x41dfffffffc00000,
                                0xc1e0000000000000,
                                0x41efffffffe00000,
                                0x7fefffffffffffff,
                                0x7ff0000000000000,
                                0xfff0000000000000,
                                0x7ff8000000000000,
                                0x7ff4000000000000,
                                0x4330000000000001};
  static const uint16_t halves[] = {0,      0x8000, 1,      0x3ff,  0x400,  0x3c00, 0xbc00, 0x3800,
                                    0x4100, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7d00, 0x6400};
  u64 r = wave_random(&seed), pick = r >> 8;
  if (kind & SMALL) return u(ldexpf((float)(i32)(pick & 0xffffff) - 0x800000, -(int)(r % 32)));
  if (r % 3 == 0) return wave_random(&seed);
  if (kind & F32 && r % 3 == 1) return u(ldexpf((float)(i32)pick, (int)(pick >> 40 & 31) - 40));
  if (kind & F64 && r % 3 == 1) return ug(ldexp((double)(i64)pick, (int)(pick >> 40 & 63) - 60));
  if (kind & F32) return floats[pick % (sizeof floats / 4)] | (u64)floats[pick % 7] << 32;
  if (kind & F64) return doubles[pick % (sizeof doubles / 8)];
  if (kind & F16) return halves[pick % (sizeof halves / 2)] | (u32)halves[(pick >> 8) % (sizeof halves / 2)] << 16;
  return ints[pick % (sizeof ints / 8)];
}

static bool same(u64 got, u64 want, unsigned kind) {
  if (got == want) return true;
  if (kind & F64 && kind & R64) return isnan(g(got)) && isnan(g(want));
  if (kind & (F32 | F64) && isnan(f(got)) && isnan(f(want))) return true;
  if (kind & ULP1) return llabs((i64)(i32)got - (i32)want) <= 1;
  if (kind & (F16 | F32)) { /* halves: any NaN equals any other */
    for (int i = 0; i < 32; i += 16) {
      u32 x = got >> i & 0xffff, y = want >> i & 0xffff;
      if (x != y && !((x & 0x7fff) > 0x7c00 && (y & 0x7fff) > 0x7c00)) return false;
    }
    return kind & F16 || (got ^ want) >> 16 == 0 || (got & 0xffff) == (want & 0xffff);
  }
  return false;
}

static void check_rows(bool wave64) {
  struct wave *t = wave_new(wave64);
  unsigned lanes = wave64 ? 64 : 32;
  static char text[ROWS][256];
  const char *snippet[ROWS];
  for (unsigned i = 0; i < ROWS; i++) {
    /* @vcc, @s4, @s8: the mask registers of this wave size */
    char *o = text[i];
    for (const char *p = rows[i].text; *p; p++) {
      if (*p != '@')
        *o++ = *p;
      else if (p[1] == 'v')
        o += sprintf(o, wave64 ? "vcc" : "vcc_lo"), p += 3;
      else
        o += sprintf(o, wave64 ? (p[2] == '4' ? "s[4:5]" : "s[8:9]") : (p[2] == '4' ? "s4" : "s8")), p += 2;
    }
    *o = 0, snippet[i] = text[i];
  }
  wave_snippets(t, snippet, sizeof *snippet, ROWS);
  for (unsigned i = 0; i < ROWS; i++)
    for (int round = 0; round < 24; round++) {
      const struct row *r = &rows[i];
      struct args x[64];
      u64 exec = round % 2 ? wave_random(&seed) : ~0ull, mask = wave_random(&seed);
      if (round == 23 && wave64) exec &= ~0xffffffffull;
      if (!wave64) exec &= 0xffffffff;
      for (unsigned l = 0; l < lanes; l++) {
        x[l] =
            (struct args){operand(r->kind), operand(r->kind), operand(r->kind), wave_random(&seed), mask >> l & 1, l};
        u64 v[4] = {x[l].a, x[l].b, x[l].c, x[l].d};
        for (unsigned k = 0; k < 8; k++) *wave_v(t, k, l) = (u32)(v[k / 2] >> (k % 2 * 32));
      }
      t->w.s[RDNA3_EXEC] = (u32)exec, t->w.s[RDNA3_EXEC + 1] = (u32)(exec >> 32);
      t->w.s[4] = t->w.s[RDNA3_VCC] = (u32)mask, t->w.s[5] = t->w.s[RDNA3_VCC + 1] = (u32)(mask >> 32);
      t->w.s[8] = t->w.s[9] = 0xdeadbeef;
      wave_run_ok(t, i * WAVE_SNIPPET, r->text);
      u64 got_mask = t->w.s[8] | (u64)t->w.s[9] << 32;
      for (unsigned l = 0; l < lanes; l++) {
        struct result want = r->want(x[l]);
        bool on = exec >> l & 1;
        u64 got = *wave_v(t, 6, l) | (u64)*wave_v(t, 7, l) << 32, expect = on ? want.r : x[l].d;
        if (r->kind & R32) got &= 0xffffffff, expect &= 0xffffffff;
        if (r->kind & (R32 | R64) && !(on ? same(got, expect, r->kind) : got == expect))
          fail_msg("%s (wave%u, lane %u %s): a %llx b %llx c %llx d %llx mask %u: got %llx, not %llx", snippet[i],
                   lanes, l, on ? "on" : "off", (unsigned long long)x[l].a, (unsigned long long)x[l].b,
                   (unsigned long long)x[l].c, (unsigned long long)x[l].d, x[l].m, (unsigned long long)got,
                   (unsigned long long)expect);
        if (r->kind & MASK && (got_mask >> l & 1) != (on ? want.m & 1 : 0))
          fail_msg("%s (wave%u, lane %u %s): a %llx b %llx mask %u: mask bit %u", snippet[i], lanes, l,
                   on ? "on" : "off", (unsigned long long)x[l].a, (unsigned long long)x[l].b, x[l].m,
                   (unsigned)(got_mask >> l & 1));
      }
    }
  wave_free(t);
}
/* Tests every SIMD level that this host can run. */
static void every_level(bool wave64) {
  rdna3_init();
  for (unsigned level = 0; level <= simd_level(); level++) {
    rdna3_choose(level);
    check_rows(wave64);
  }
}
static void operations_wave32(void **state) { every_level(false); }
static void operations_wave64(void **state) { every_level(true); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(operations_wave32), cmocka_unit_test(operations_wave64)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
