/* Hashes, ciphers and codes for one thread, in the C that CUDA C and the host's compiler share. */
#ifndef DOORBELL_TESTS_CUDA_HASH_H
#define DOORBELL_TESTS_CUDA_HASH_H
#include "shared.h"

/* MurmurHash3's 32-bit form over eight words. */
BODY u32 murmur3_body(u32 x, u32 i) {
  u32 h = i;
  for (u32 k = 0; k < 8; k++) {
    u32 w = x * (2 * k + 1) ^ k;
    w = rotl(w * 0xcc9e2d51u, 15) * 0x1b873593u;
    h = rotl(h ^ w, 13) * 5u + 0xe6546b64u;
  }
  h ^= 32;
  h = (h ^ h >> 16) * 0x85ebca6bu;
  h = (h ^ h >> 13) * 0xc2b2ae35u;
  return h ^ h >> 16;
}

/* xxHash's 64-bit form over eight long words. */
BODY u64 xxh_round(u64 acc, u64 w) { return rotl64(acc + w * 0xc2b2ae3d27d4eb4full, 31) * 0x9e3779b185ebca87ull; }
BODY u32 xxh64_body(u32 x, u32 i) {
  const u64 p1 = 0x9e3779b185ebca87ull, p2 = 0xc2b2ae3d27d4eb4full, p3 = 0x165667b19e3779f9ull,
            p4 = 0x85ebca77c2b2ae63ull;
  u64 v[4] = {i + p1 + p2, i + p2, i, i - p1}, h;
  for (u32 k = 0; k < 8; k++) v[k & 3] = xxh_round(v[k & 3], (u64)x << 32 ^ (u64)k * i);
  h = rotl64(v[0], 1) + rotl64(v[1], 7) + rotl64(v[2], 12) + rotl64(v[3], 18);
  for (u32 k = 0; k < 4; k++) h = (h ^ xxh_round(0, v[k])) * p1 + p4;
  h += 64;
  h = (h ^ h >> 33) * p2;
  h = (h ^ h >> 29) * p3;
  return fold64(h ^ h >> 32);
}

/* FNV-1a and Adler-32 over the bytes of two words, many times. */
BODY u32 fnv_adler_body(u32 x, u32 i) {
  u32 f = 2166136261u, a = 1, b = 0;
  u64 g = 14695981039346656037ull;
  for (u32 k = 0; k < 64; k++) {
    u8 c = (u8)((k & 4 ? x : i) >> 8 * (k & 3)) ^ (u8)k;
    f = (f ^ c) * 16777619u, g = (g ^ c) * 1099511628211ull;
    a = (a + c) % 65521u, b = (b + a) % 65521u;
  }
  return f ^ fold64(g) ^ (b << 16 | a);
}

/* One block of SHA-1. */
BODY u32 sha1_body(u32 x, u32 i) {
  u32 w[80], a = 0x67452301, b = 0xefcdab89, c = 0x98badcfe, d = 0x10325476, e = 0xc3d2e1f0;
  for (u32 t = 0; t < 16; t++) w[t] = (x ^ t * 0x9e3779b9u) + i;
  for (u32 t = 16; t < 80; t++) w[t] = rotl(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
  for (u32 t = 0; t < 80; t++) {
    u32 f = t < 20 ? (b & c) | (~b & d) : t < 40 || t >= 60 ? b ^ c ^ d : (b & c) | (b & d) | (c & d);
    u32 k = t < 20 ? 0x5a827999 : t < 40 ? 0x6ed9eba1 : t < 60 ? 0x8f1bbcdc : 0xca62c1d6;
    f += rotl(a, 5) + e + k + w[t];
    e = d, d = c, c = rotl(b, 30), b = a, a = f;
  }
  return a ^ rotl(b, 1) ^ rotl(c, 2) ^ rotl(d, 3) ^ rotl(e, 4);
}

/* One block of MD5, its constants from a table. */
TABLE u32 md5_k[64] = {0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
                       0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
                       0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
                       0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
                       0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
                       0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
                       0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
                       0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};
TABLE u8 md5_shift[16] = {7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21};
BODY u32 md5_body(u32 x, u32 i) {
  u32 a = 0x67452301, b = 0xefcdab89, c = 0x98badcfe, d = 0x10325476;
  for (u32 t = 0; t < 64; t++) {
    u32 r = t >> 4, g = r == 0 ? t : r == 1 ? 5 * t + 1 : r == 2 ? 3 * t + 5 : 7 * t;
    u32 f = r == 0 ? (b & c) | (~b & d) : r == 1 ? (d & b) | (~d & c) : r == 2 ? b ^ c ^ d : c ^ (b | ~d);
    f += a + md5_k[t] + (x * (g & 15) + i);
    a = d, d = c, c = b, b += rotl(f, md5_shift[(r << 2) | (t & 3)]);
  }
  return a ^ rotl(b, 8) ^ rotl(c, 16) ^ rotl(d, 24);
}

/* CRC-32 by a table of nibbles that threads index apart. */
TABLE u32 crc_nibble[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                            0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                            0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
BODY u32 crc_table_body(u32 x, u32 i) {
  u32 crc = ~0u;
  for (u32 k = 0; k < 32; k++) {
    crc ^= (x >> 8 * (k & 3) ^ i * k) & 0xffu;
    crc = crc >> 4 ^ crc_nibble[crc & 15u];
    crc = crc >> 4 ^ crc_nibble[crc & 15u];
  }
  return ~crc;
}

/* AES's S-box from inverses in GF(2^8), one round of it with MixColumns. */
BODY u8 gf_mul(u8 a, u8 b) {
  u8 p = 0;
  for (int k = 0; k < 8; k++) {
    if (b & 1) p ^= a;
    a = (u8)(a << 1 ^ (a & 0x80 ? 0x1b : 0));
    b >>= 1;
  }
  return p;
}
BODY u32 aes_body(u32 x, u32 i) {
  u8 s[4], m[4];
  for (int k = 0; k < 4; k++) {
    u8 v = (u8)(x >> 8 * k), inverse = 1, base = v;
    for (int e = 254; e; e >>= 1) {
      if (e & 1) inverse = gf_mul(inverse, base);
      base = gf_mul(base, base);
    }
    if (!v) inverse = 0;
    u32 w = inverse * 0x101u;
    s[k] = (u8)(w ^ w >> 4 ^ w >> 5 ^ w >> 6 ^ w >> 7 ^ 0x63);
  }
  for (int k = 0; k < 4; k++)
    m[k] = (u8)(gf_mul(s[k], 2) ^ gf_mul(s[(k + 1) & 3], 3) ^ s[(k + 2) & 3] ^ s[(k + 3) & 3]);
  return (m[0] | (u32)m[1] << 8 | (u32)m[2] << 16 | (u32)m[3] << 24) ^ i;
}

/* TEA, and Speck with 64-bit words. */
BODY u32 cipher_body(u32 x, u32 i) {
  u32 a = x, b = i, sum = 0;
  for (int k = 0; k < 32; k++) {
    sum += 0x9e3779b9u;
    a += ((b << 4) + 0xa341316cu) ^ (b + sum) ^ ((b >> 5) + 0xc8013ea4u);
    b += ((a << 4) + 0xad90777du) ^ (a + sum) ^ ((a >> 5) + 0x7e95761eu);
  }
  u64 l = (u64)a << 32 | b, r = ~l, key = (u64)x * i;
  for (u32 k = 0; k < 32; k++) {
    l = (rotl64(l, 56) + r) ^ key, r = rotl64(r, 3) ^ l;
    key = (rotl64(key, 56) + key) ^ k;
  }
  return fold64(l ^ r);
}

/* Base64 and back, through bytes of an own array. */
BODY u32 base64_body(u32 x, u32 i) {
  u8 in[12], text[16], back[12];
  u32 h = 0;
  for (u32 k = 0; k < 12; k++) in[k] = (u8)(x >> (k & 3) * 8) ^ (u8)(i * k);
  for (u32 k = 0; k < 16; k++) {
    u32 at = k / 4 * 3, w = (u32)in[at] << 16 | (u32)in[at + 1] << 8 | in[at + 2], v = w >> (18 - 6 * (k & 3)) & 63;
    text[k] = (u8)(v < 26 ? 'A' + v : v < 52 ? 'a' + v - 26 : v < 62 ? '0' + v - 52 : v == 62 ? '+' : '/');
  }
  for (u32 k = 0; k < 16; k++) {
    u8 c = text[k];
    u32 v = c >= 'a' ? c - 'a' + 26u : c >= 'A' ? c - 'A' + 0u : c >= '0' ? c - '0' + 52u : c == '+' ? 62u : 63u;
    text[k] = (u8)v;
    h = h * 33 + c;
  }
  for (u32 k = 0; k < 12; k++) {
    u32 at = k / 3 * 4, w = (u32)text[at] << 18 | (u32)text[at + 1] << 12 | (u32)text[at + 2] << 6 | text[at + 3];
    back[k] = (u8)(w >> (16 - 8 * (k % 3)));
    h += (u32)(back[k] == in[k]) << 8;
  }
  return h;
}

/* Multiplication in GF(2^32), and Hamming codes. */
BODY u32 galois_body(u32 x, u32 i) {
  u64 p = 0;
  for (u32 k = 0; k < 32; k++)
    if (i * 0x01000193u >> k & 1) p ^= (u64)x << k;
  for (int k = 63; k >= 32; k--)
    if (p >> k & 1) p ^= 0x1000000afull << (k - 32);
  u32 syndrome = 0;
  for (u32 k = 1; k < 32; k++) syndrome ^= x >> k & 1 ? k : 0;
  return (u32)p ^ syndrome << 27 ^ (x & ~(1u << (syndrome & 31)));
}
#define HASH(X) X(murmur3) X(xxh64) X(fnv_adler) X(sha1) X(md5) X(crc_table) X(aes) X(cipher) X(base64) X(galois)
#endif
