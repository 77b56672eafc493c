/* Work for one work-item, as functions from two words to one, in the common subset of OpenCL C and the host's C: the
 * same text compiled for both must give the same bits. */
#ifndef DOORBELL_TESTS_BODIES_H
#define DOORBELL_TESTS_BODIES_H
#ifdef __OPENCL_C_VERSION__
#include "../../frontend/source/opencl.h"
#pragma OPENCL FP_CONTRACT OFF
typedef uint u32;
typedef ulong u64;
typedef int i32;
typedef long i64;
#define TABLE __constant
#define BODY_KERNEL(name)                                                                                              \
  __kernel void name(__global u32 *out, __global const u32 *in, u32 n) {                                               \
    u32 i = get_global_id(0);                                                                                          \
    if (i < n) out[i] = name##_body(in[i], i);                                                                         \
  }
#else
#include <stdint.h>
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t i32;
typedef int64_t i64;
#define TABLE static const
#endif
#define BODY static inline __attribute__((unused))

BODY u32 rotl(u32 x, u32 n) { return x << (n & 31) | x >> (-n & 31); }
BODY u64 rotl64(u64 x, u32 n) { return x << (n & 63) | x >> (-n & 63); }

/* CRC-32 of 64 bytes, bit by bit. */
BODY u32 crc32_body(u32 x, u32 i) {
  u32 crc = ~0u;
  for (u32 k = 0; k < 16; k++) {
    crc ^= x * (k + 1) + i;
    for (int b = 0; b < 32; b++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

TABLE u32 sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
/* One SHA-256 block, its digest folded to a word. */
BODY u32 sha256_body(u32 x, u32 i) {
  u32 w[64], h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  for (u32 t = 0; t < 16; t++) w[t] = (x ^ t * 0x9e3779b9u) + i;
  for (u32 t = 16; t < 64; t++) {
    u32 a = w[t - 15], b = w[t - 2];
    w[t] = w[t - 16] + (rotl(a, 25) ^ rotl(a, 14) ^ a >> 3) + w[t - 7] + (rotl(b, 15) ^ rotl(b, 13) ^ b >> 10);
  }
  u32 s[8];
  for (int k = 0; k < 8; k++) s[k] = h[k];
  for (u32 t = 0; t < 64; t++) {
    u32 e = s[4], a = s[0];
    u32 t1 = s[7] + (rotl(e, 26) ^ rotl(e, 21) ^ rotl(e, 7)) + ((e & s[5]) ^ (~e & s[6])) + sha256_k[t] + w[t];
    u32 t2 = (rotl(a, 30) ^ rotl(a, 19) ^ rotl(a, 10)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
    for (int k = 7; k > 0; k--) s[k] = s[k - 1];
    s[4] += t1;
    s[0] = t1 + t2;
  }
  u32 r = 0;
  for (u32 k = 0; k < 8; k++) r = rotl(r, 5) ^ (h[k] + s[k]);
  return r;
}

/* SipHash-2-4 of two words: 64-bit rotations and additions. */
BODY u32 siphash_body(u32 x, u32 i) {
  u64 v0 = 0x736f6d6570736575ul ^ i, v1 = 0x646f72616e646f6dul ^ x, v2 = 0x6c7967656e657261ul ^ i,
      v3 = 0x7465646279746573ul ^ x;
  u64 m = (u64)x << 32 | i;
  for (int round = 0; round < 6; round++) {
    if (round == 0) v3 ^= m;
    if (round == 2) v0 ^= m, v2 ^= 0xff;
    v0 += v1, v1 = rotl64(v1, 13) ^ v0, v0 = rotl64(v0, 32);
    v2 += v3, v3 = rotl64(v3, 16) ^ v2;
    v0 += v3, v3 = rotl64(v3, 21) ^ v0;
    v2 += v1, v1 = rotl64(v1, 17) ^ v2, v2 = rotl64(v2, 32);
  }
  u64 r = v0 ^ v1 ^ v2 ^ v3;
  return (u32)r ^ (u32)(r >> 32);
}

/* A xorshift, a PCG and a lagged generator. */
BODY u32 rng_body(u32 x, u32 i) {
  u64 a = (u64)x * 0x9e3779b97f4a7c15ul + i + 1, p = i;
  u32 lag[17], sum = 0;
  for (u32 k = 0; k < 17; k++) lag[k] = x * (2 * k + 1) + k;
  for (u32 k = 0; k < 40; k++) {
    a ^= a >> 12, a ^= a << 25, a ^= a >> 27;
    p = p * 6364136223846793005ul + 1442695040888963407ul;
    u32 s = (u32)((p >> 18 ^ p) >> 27), pcg = rotl(s, -(u32)(p >> 59));
    u32 l = lag[k % 17] += rotl(lag[(k + 12) % 17], 7);
    sum += (u32)(a * 2685821657736338717ul >> 32) ^ pcg ^ l;
  }
  return sum;
}

/* Counting, reversing, spreading and searching bits. */
BODY u32 bits_body(u32 x, u32 i) {
  u32 r =
      (u32)__builtin_popcount(x ^ i) | (x ? (u32)__builtin_clz(x) : 32) << 6 | (x ? (u32)__builtin_ctz(x) : 32) << 12;
  u64 y = (u64)x << 20 ^ (u64)i * 0x10001000100010ul;
  r += (u32)__builtin_popcountl(y) + (y ? (u32)__builtin_clzl(y) : 64) + (y ? (u32)__builtin_ctzl(y) : 64);
  u32 rev = 0, spread = 0, gray = x;
  for (int b = 0; b < 32; b++) rev |= (x >> b & 1) << (31 - b);
  for (int b = 0; b < 16; b++) spread |= (x >> b & 1) << 2 * b | (i >> b & 1) << (2 * b + 1);
  for (int s = 1; s < 32; s <<= 1) gray ^= gray >> s;
  u32 up = x - 1;
  for (int s = 1; s < 32; s <<= 1) up |= up >> s;
  i32 sx = (i32)x, field = (i32)(x << 7) >> 19, absolute = sx < 0 ? (i32)-x : sx;
  return r ^ rev ^ spread * 3 ^ gray * 5 ^ (up + 1) * 7 ^ __builtin_bswap32(x) * 9 ^ (u32)field * 11 ^
         (u32)absolute * 13;
}

/* Saturating, averaging and widening arithmetic in all widths. */
BODY i64 clip(i64 v, i64 lo, i64 hi) { return v < lo ? lo : v > hi ? hi : v; }
BODY u32 saturate_body(u32 x, u32 i) {
  u32 r = 0;
  for (u32 k = 0; k < 4; k++) {
    i32 a8 = (i32)(signed char)(x >> 8 * k), b8 = (i32)(signed char)(i * 37 >> k), a16 = (i32)(short)(x >> 4 * k),
        b16 = (i32)(short)(i * 7919 << k);
    i64 a = (i32)x, b = (i32)rotl(x, 8 * k + i), ua = x, ub = rotl(x, i);
    r = r * 31 + (u32)clip(a8 + b8, -128, 127) + (u32)clip(a8 - b8, -128, 127) +
        (u32)clip(a16 * b16 >> 8, -32768, 32767);
    r = r * 31 + (u32)clip(a + b, -2147483648l, 2147483647l) + (u32)clip(ua - ub, 0, 4294967295l) +
        (u32)clip(ua + ub, 0, 4294967295l);
    r += (u32)((a + b) >> 1) + (u32)((ua + ub + 1) >> 1) + (u32)(a * b >> 32) + (u32)((u64)ua * (u64)ub >> 32);
    r += (a8 > b8 ? a8 - b8 : b8 - a8) + ((a16 < b16) ? (u32)b16 : (u32)a16);
  }
  return r;
}

/* 256-bit squares modulo 2^256 in words, carries through 64 bits. */
BODY u32 bigint_body(u32 x, u32 i) {
  u32 a[8], r = 0;
  for (u32 k = 0; k < 8; k++) a[k] = x * (k + 3) ^ i;
  for (int step = 0; step < 5; step++) {
    u32 p[8] = {0};
    for (int j = 0; j < 8; j++) {
      u64 carry = 0;
      for (int k = 0; j + k < 8; k++) {
        u64 t = (u64)a[j] * a[k] + p[j + k] + carry;
        p[j + k] = (u32)t;
        carry = t >> 32;
      }
    }
    u64 borrow = 0;
    for (int k = 0; k < 8; k++) {
      u64 d = (u64)p[k] - (x + (u32)k) - borrow;
      a[k] = (u32)d;
      borrow = d >> 63;
    }
  }
  for (int k = 0; k < 8; k++) r = rotl(r, 3) ^ a[k];
  return r;
}

/* Modular powers and greatest common divisors: 64-bit division. */
BODY u32 modpow_body(u32 x, u32 i) {
  u64 m = (u64)x % 1000003ul * 2047 + 3, base = i + 2, r = 1;
  for (u32 e = x % 1009 + 5; e; e >>= 1) {
    if (e & 1) r = r * base % m;
    base = base * base % m;
  }
  u64 a = ((u64)x << 13) + i, b = (u64)i * 77777 + 12;
  while (b) {
    u64 t = a % b;
    a = b, b = t;
  }
  i64 s = (i64)((u64)x << 31) - (i64)((u64)i << 50);
  return (u32)r ^ (u32)a ^ (u32)(s / (i64)(i + 1)) ^ (u32)(s % 1000000007l);
}

/* Number of steps until z^2 + c leaves the circle, in f32 without fused operations. */
BODY u32 mandelbrot_body(u32 x, u32 i) {
  float cx = (float)(x & 1023) * (1.0f / 384.0f) - 2.0f, cy = (float)(x >> 10 & 1023) * (1.0f / 512.0f) - 1.0f, zx = 0,
        zy = 0;
  u32 n = 0;
  while (n < 96 && zx * zx + zy * zy <= 4.0f) {
    float t = zx * zx - zy * zy + cx;
    zy = 2.0f * zx * zy + cy;
    zx = t;
    n++;
  }
  return n << 8 | (u32)(i32)(zx * 16.0f + 64.0f);
}

/* Newton's square and cube roots, a continued fraction: f64 division. */
BODY u32 newton_body(u32 x, u32 i) {
  double a = (double)(x >> 3) + 0.5, r = a, c = a, f = 1.0;
  for (int k = 0; k < 24; k++) r = 0.5 * (r + a / r);
  for (int k = 0; k < 40; k++) c = (2.0 * c + a / (c * c)) / 3.0;
  for (u32 k = 20 + (i & 7); k; k--) f = (double)k + (double)(x & 255) / f;
  u64 bits = (u64)(r * 65536.0) ^ (u64)(c * 1048576.0) ^ (u64)(f * 4294967296.0);
  return (u32)bits ^ (u32)(bits >> 32);
}

/* Sorts a private array by insertion, then searches it. */
BODY u32 insertion_body(u32 x, u32 i) {
  u32 a[24], r = 0;
  for (u32 k = 0; k < 24; k++) a[k] = (x = x * 1664525u + 1013904223u) >> 12;
  for (u32 k = 1; k < 24; k++) {
    u32 v = a[k], j = k;
    for (; j && a[j - 1] > v; j--) a[j] = a[j - 1];
    a[j] = v;
  }
  for (u32 q = 0; q < 6; q++) {
    u32 want = (x >> q ^ i) >> 12, lo = 0, hi = 24;
    while (lo < hi) {
      u32 mid = (lo + hi) / 2;
      if (a[mid] < want)
        lo = mid + 1;
      else
        hi = mid;
    }
    r = r * 25 + lo;
  }
  return r ^ a[11] ^ a[23] << 8;
}

/* ChaCha20's block function, folded to a word. */
BODY u32 chacha_body(u32 x, u32 i) {
  u32 s[16], r = 0;
  for (u32 k = 0; k < 16; k++) s[k] = k < 4 ? 0x61707865 + k * 0x33 : x * k + i;
#define QUARTER(a, b, c, d)                                                                                            \
  s[a] += s[b], s[d] = rotl(s[d] ^ s[a], 16), s[c] += s[d], s[b] = rotl(s[b] ^ s[c], 12), s[a] += s[b],                \
                s[d] = rotl(s[d] ^ s[a], 8), s[c] += s[d], s[b] = rotl(s[b] ^ s[c], 7)
  for (int round = 0; round < 10; round++) {
    QUARTER(0, 4, 8, 12), QUARTER(1, 5, 9, 13), QUARTER(2, 6, 10, 14), QUARTER(3, 7, 11, 15);
    QUARTER(0, 5, 10, 15), QUARTER(1, 6, 11, 12), QUARTER(2, 7, 8, 13), QUARTER(3, 4, 9, 14);
  }
  for (int k = 0; k < 16; k++) r = rotl(r, 1) + s[k];
  return r;
}

/* Writes and reads decimal digits, and computes a checksum over the text: bytes in a private array. */
BODY u32 decimal_body(u32 x, u32 i) {
  unsigned char text[12];
  u32 n = 0, sum = 1, back = 0;
  for (u32 v = x; v || !n; v /= 10) text[n++] = (unsigned char)('0' + v % 10);
  for (u32 k = 0; k < n / 2; k++) {
    unsigned char t = text[k];
    text[k] = text[n - 1 - k], text[n - 1 - k] = t;
  }
  for (u32 k = 0; k < n; k++) sum = (sum * 131 + text[k]) % 65521, back = back * 10 + (text[k] - '0');
  return sum ^ (back - x) << 16 ^ n << 24 ^ i;
}

/* Sine and cosine by CORDIC in fixed point, and an integer square root. */
BODY u32 cordic_body(u32 x, u32 i) {
  const i32 angle[16] = {51471, 30385, 16054, 8149, 4090, 2047, 1023, 511, 255, 127, 63, 31, 15, 7, 3, 1};
  i32 c = 39796, s = 0, z = (i32)(x % 102943) - 51471;
  for (int k = 0; k < 16; k++) {
    i32 dx = c >> k, dy = s >> k;
    if (z >= 0)
      c -= dy, s += dx, z -= angle[k];
    else
      c += dy, s -= dx, z += angle[k];
  }
  u32 root = 0, rest = x ^ i;
  for (u32 bit = 1u << 30; bit; bit >>= 2) {
    u32 t = root + bit;
    root >>= 1;
    if (rest >= t) rest -= t, root += bit;
  }
  return (u32)c ^ (u32)s << 8 ^ root << 3 ^ rest;
}
#define BODIES(X)                                                                                                      \
  X(crc32)                                                                                                             \
  X(sha256)                                                                                                            \
  X(siphash)                                                                                                           \
  X(rng) X(bits) X(saturate) X(bigint) X(modpow) X(mandelbrot) X(newton) X(insertion) X(chacha) X(decimal) X(cordic)
#endif
