/* Arithmetic for one thread as functions from two words to one, in the C that CUDA C and the host's compiler share. */
#ifndef DOORBELL_TESTS_CUDA_ARITH_H
#define DOORBELL_TESTS_CUDA_ARITH_H
#include "shared.h"

/* 32-bit division of either sign by variables and constants. */
BODY u32 div32_body(u32 x, u32 i) {
  u32 d = (i * 2654435761u >> (i & 31)) | 1u;
  i32 s = (i32)x, t = (i32)((i * 40503u) ^ 0x80000005u) >> (i % 30), q;
  if (t == 0 || t == -1) t = 3;
  q = s / t;
  return x / d * 3u + x % d + (u32)q * 5u + (u32)(s % t) * 7u + x / 10u + x % 1000003u + (u32)(s / -7) + (u32)(s % 641);
}

/* 64-bit division: numerators and denominators of all lengths. */
BODY u32 div64_body(u32 x, u32 i) {
  u64 a = ((u64)x << 32 | (x * 2654435761u)) >> (i % 40), b = ((u64)(i + 1) * 0x9e3779b97f4a7c15ull >> (x & 63)) | 1u;
  i64 s = (i64)(a ^ (u64)i << 60), t = (i64)b * (i & 1 ? 1 : -1);
  if (t == -1) t = 11;
  return fold64(a / b) + fold64(a % b) * 3u + fold64((u64)(s / t)) * 5u + fold64((u64)(s % t)) * 7u +
         fold64(a / 1000000007u) + fold64((u64)(s % 86400));
}

/* 128-bit products, sums, shifts, comparisons and quotients. */
BODY u32 wide128_body(u32 x, u32 i) {
  u64 a = (u64)x * 0x9e3779b97f4a7c15ull + i, b = (u64)i * 0xc2b2ae3d27d4eb4full ^ x;
  u128 p = (u128)a * b, q = p + ((u128)b << 64 | a), r = q - ((u128)x << 90);
  i128 s = (i128)(i64)a * (i64)b;
  u128 d = ((u128)(b >> (x & 31)) << (i & 31)) | 1u;
  u64 h =
      (u64)(p >> 64) ^ (u64)q ^ (u64)(r >> 37) ^ (u64)(r << (i & 63)) ^ (u64)(s >> 70) ^ (u64)(q / d) ^ (u64)(r % d);
  return fold64(h) + (q < r) + (u32)(s < 0) * 2u;
}

/* Narrow types wrap and extend. */
BODY u32 narrow_body(u32 x, u32 i) {
  u8 a = (u8)x, b = (u8)(x >> 8);
  i8 c = (i8)(x >> 16), d = (i8)(x >> 24);
  u16 e = (u16)(x * 7u), f = (u16)(x >> 11);
  i16 g = (i16)(x >> 5), h = (i16)(i * 31337u);
  a = (u8)(a * b + 13), b = (u8)(a << 3 | b >> 5), c = (i8)(c * d), d = (i8)(c >> 2), e = (u16)((u32)e * f),
  f = (u16)(e - f);
  g = (i16)(g * h), h = (i16)(g >> 7);
  return a + b * 257u + (u32)c * 65599u + (u32)d * 31u + e * 3u + f * 5u + (u32)g * 7u + (u32)h * 11u + (u32)(c < d) +
         (u32)(g % 100) + (u32)(e / 10u);
}

/* f32, each operation rounded once. */
BODY u32 f32_body(u32 x, u32 i) {
  float a = plain_f32(x), b = plain_f32(x * 69069u + i), c = plain_f32(i * 2654435761u ^ x);
  u32 h = f32_bits(fadd(a, b)) ^ rotl(f32_bits(fmul(b, c)), 3) ^ rotl(f32_bits(ffma(a, b, c)), 6);
  h ^= rotl(f32_bits(fdiv(a, b)), 9) ^ rotl(f32_bits(fsqrt(fmul(c, c))), 12) ^ rotl(f32_bits(fsub(a, c)), 15);
  h ^= rotl(f32_bits(fdiv(1.0f, c)), 18) ^ rotl(f32_bits(ffma(-a, c, b)), 21);
  return h + (a < b) + (u32)(a >= c) * 2u + (u32)(b != c) * 4u;
}

/* f64, each operation rounded once. */
BODY u32 f64_body(u32 x, u32 i) {
  double a = plain_f64(x, i), b = plain_f64(x * 69069u + 1u, i), c = plain_f64(~x, i + 7u);
  u64 h = f64_bits(dadd(a, b)) ^ rotl64(f64_bits(dmul(b, c)), 7) ^ rotl64(f64_bits(dfma(a, b, c)), 14);
  h ^= rotl64(f64_bits(ddiv(a, b)), 21) ^ rotl64(f64_bits(dsqrt(dmul(c, c))), 28) ^ rotl64(f64_bits(dsub(a, c)), 35);
  h ^= rotl64(f64_bits(ddiv(1.0, c)), 42) ^ rotl64(f64_bits(dfma(-a, c, b)), 49) ^ f64_bits(dsqrt(fabs(b)));
  return fold64(h) + (a < b) + (u32)(a >= c) * 2u + (u32)(b != c) * 4u;
}

/* Between integers and floats, both ways, within range. */
BODY u32 convert_body(u32 x, u32 i) {
  float f = plain_f32(x);
  double d = plain_f64(x, i);
  i32 s = (i32)x;
  i64 l = (i64)((u64)x << 29 ^ (u64)i * 0x123456789abull);
  u32 h = (u32)(i32)fmul(f, 1000.0f) ^ (u32)fmul(fabsf(f), 70000.0f) * 3u ^ (u32)(i32)dmul(d, 3000.0) * 5u;
  h ^= fold64((u64)(i64)dmul(d, 1e12)) ^ fold64((u64)dmul(fabs(d), 3e12)) ^ (u32)(u8)(i32)fmul(f, 0.5f);
  h ^=
      f32_bits((float)s) ^ rotl(f32_bits((float)x), 1) ^ rotl(f32_bits((float)l), 2) ^ rotl(f32_bits((float)(u64)l), 3);
  h ^= fold64(f64_bits((double)s)) ^ fold64(f64_bits((double)x)) ^ fold64(f64_bits((double)l)) * 3u;
  h ^= fold64(f64_bits((double)(u64)l)) * 5u ^ f32_bits((float)d) ^ fold64(f64_bits((double)f));
  h ^= f32_bits((float)(i16)x) * 7u ^ f32_bits((float)(u8)(x >> 9));
  return h;
}

/* Rounding to integers. llrint: under -fno-math-errno clang 19 makes (u32)lrint(d) a conversion to 32 bits. */
BODY u32 whole_body(u32 x, u32 i) {
  float f = fmul(plain_f32(x), 37.0f);
  double d = dmul(plain_f64(x, i), 1e6);
  u32 h =
      f32_bits(floorf(f)) ^ rotl(f32_bits(ceilf(f)), 3) ^ rotl(f32_bits(truncf(f)), 6) ^ rotl(f32_bits(rintf(f)), 9);
  h ^= rotl(f32_bits(roundf(f)), 12) ^ fold64(f64_bits(floor(d))) ^ fold64(f64_bits(ceil(d))) * 3u;
  return h ^ fold64(f64_bits(trunc(d))) * 5u ^ fold64(f64_bits(rint(d))) * 7u ^ (u32)(i32)lrintf(f) ^ (u32)llrint(d);
}

/* Maximum, minimum, signs, and comparisons of NaN and infinities. */
BODY u32 minmax_body(u32 x, u32 i) {
  u32 y = x * 1103515245u + i, h;
  i32 s = (i32)x, t = (i32)y;
  i64 a = (i64)((u64)x << 31) - 5, b = (i64)((u64)y << 31);
  float f = plain_f32(x), g = i % 5 ? plain_f32(y) : bits_f32(0x7fc00000u), inf = bits_f32(0x7f800000u);
  double d = plain_f64(x, i), e = i % 7 ? plain_f64(y, i) : bits_f64(0x7ff8000000000000ull);
  h = (x < y ? x : y) ^ (u32)(s > t ? s : t) * 3u ^ fold64((u64)(a < b ? a : b)) * 5u ^ (u32)(s < 0 ? -s : s);
  h ^= f32_bits(fminf(f, g)) ^ f32_bits(fmaxf(f, g)) * 3u ^ fold64(f64_bits(fmin(d, e))) ^
       fold64(f64_bits(fmax(e, d))) * 7u;
  h ^= f32_bits(copysignf(f, bits_f32(y))) ^ f32_bits(fabsf(f)) * 9u;
  h += (f < g) + (u32)(f > g) * 2u + (u32)(f <= g) * 4u + (u32) !(f >= g) * 8u + (u32)(g != g) * 16u +
       (u32)(f == g) * 32u;
  h += (d < e) + (u32) !(d < e) * 64u + (u32)(e == e) * 128u + (u32)(f < inf) * 256u + (u32)(-inf < g) * 512u;
  return h;
}

/* Shifts by variable amounts in all widths. */
BODY u32 shift_body(u32 x, u32 i) {
  u64 a = (u64)x * 0x100000001b3ull ^ i;
  u32 n = i & 31u, m = (x ^ i) & 63u;
  u32 h = x << n ^ x >> (31u - n) ^ (u32)((i32)x >> n) ^ fold64(a << m) ^ fold64(a >> (63u - m)) * 3u;
  h ^= fold64((u64)((i64)a >> m)) * 5u ^ rotl(x, i) ^ fold64(rotl64(a, x)) ^ (x >> 3 & 0x1ffu) ^
       (u32)((i32)(x << 9) >> 20);
  return h ^ (u32)(a >> 13 & 0xfffff) ^ (x & ~(0xffu << (n & 23u)));
}

/* Mandelbrot's steps in f32, a Julia set's in f64. */
BODY u32 fractal_body(u32 x, u32 i) {
  float cx = fsub(fmul((float)(x & 1023), 1.0f / 384.0f), 2.0f),
        cy = fsub(fmul((float)(x >> 10 & 1023), 1.0f / 512.0f), 1.0f);
  float zx = 0, zy = 0;
  u32 n = 0, m = 0;
  while (n < 64 && fadd(fmul(zx, zx), fmul(zy, zy)) <= 4.0f) {
    float t = fadd(fsub(fmul(zx, zx), fmul(zy, zy)), cx);
    zy = ffma(fmul(2.0f, zx), zy, cy);
    zx = t;
    n++;
  }
  double wx = ddiv((double)(x >> 20), 2048.0) - 1.0, wy = ddiv((double)(i & 255), 128.0) - 1.0;
  while (m < 48 && dfma(wx, wx, dmul(wy, wy)) < 4.0) {
    double t = dadd(dsub(dmul(wx, wx), dmul(wy, wy)), -0.8);
    wy = dadd(dmul(dmul(2.0, wx), wy), 0.156);
    wx = t;
    m++;
  }
  return n << 24 ^ m << 16 ^ f32_bits(zx) ^ fold64(f64_bits(wy));
}

/* Newton's roots, and a continued fraction in f64. */
BODY u32 roots_body(u32 x, u32 i) {
  double a = (double)(x >> 3) + 0.5, r = a, c = a, f = 1.0;
  for (int k = 0; k < 20; k++) r = dmul(0.5, dadd(r, ddiv(a, r)));
  for (int k = 0; k < 24; k++) c = ddiv(dfma(2.0, c, ddiv(a, dmul(c, c))), 3.0);
  for (u32 k = 12 + (i & 7); k; k--) f = dadd((double)k, ddiv((double)(x & 255), f));
  return fold64(f64_bits(r)) ^ fold64(f64_bits(c)) * 3u ^ fold64(f64_bits(f)) * 5u;
}

/* Solves four equations in f64 by elimination with pivots. */
BODY u32 gauss_body(u32 x, u32 i) {
  double m[4][5];
  u64 h = 0;
  for (int r = 0; r < 4; r++)
    for (int c = 0; c < 5; c++) m[r][c] = ddiv((double)(i32)(next_random(&x) ^ i), 65536.0);
  for (int c = 0; c < 4; c++) {
    int best = c;
    for (int r = c + 1; r < 4; r++)
      if (fabs(m[r][c]) > fabs(m[best][c])) best = r;
    for (int k = 0; k < 5; k++) {
      double t = m[c][k];
      m[c][k] = m[best][k], m[best][k] = t;
    }
    for (int r = c + 1; r < 4; r++) {
      double q = ddiv(m[r][c], m[c][c]);
      for (int k = c; k < 5; k++) m[r][k] = dfma(-q, m[c][k], m[r][k]);
    }
  }
  for (int r = 3; r >= 0; r--) {
    double v = m[r][4];
    for (int k = r + 1; k < 4; k++) v = dfma(-m[r][k], m[k][4], v);
    m[r][4] = ddiv(v, m[r][r]);
    h = rotl64(h, 13) ^ f64_bits(m[r][4]);
  }
  return fold64(h);
}

/* A strong probable prime test with 128-bit products, and Jacobi symbols. */
BODY u64 mulmod(u64 a, u64 b, u64 m) { return (u64)((u128)a * b % m); }
BODY u32 prime_body(u32 x, u32 i) {
  u64 n = ((u64)x << 5 ^ i) | 1u, d = n - 1, a = 2 + i % 5;
  u32 s = 0, j = 1;
  if (n < 9) n = 341, d = 340;
  while (!(d & 1)) d >>= 1, s++;
  u64 r = 1, b = a % n;
  for (u64 e = d; e; e >>= 1) {
    if (e & 1) r = mulmod(r, b, n);
    b = mulmod(b, b, n);
  }
  u32 probable = r == 1 || r == n - 1;
  for (u32 k = 1; k < s && !probable; k++) r = mulmod(r, r, n), probable = r == n - 1;
  u32 p = x % 1000u + 3, q = i * 2u + 7u;
  while (p) {
    while (!(p & 1)) p >>= 1, j ^= (q & 7) == 3 || (q & 7) == 5;
    u32 t = p;
    p = q, q = t;
    j ^= (p & 3) == 3 && (q & 3) == 3;
    p %= q;
  }
  return probable | j << 1 | q << 2 | (u32)r << 8;
}
#define ARITH(X)                                                                                                       \
  X(div32)                                                                                                             \
  X(div64)                                                                                                             \
  X(wide128) X(narrow) X(f32) X(f64) X(convert) X(whole) X(minmax) X(shift) X(fractal) X(roots) X(gauss) X(prime)
#endif
