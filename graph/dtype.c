/* Element types: the table, and conversions between f32 and narrower floats (IEEE 754 binary16, bfloat16, and the two
 * formats of the OCP 8-bit Floating Point Specification) in integer code. */
#include "dtype.h"
#include <math.h>
#include <string.h>

const struct dtype_info dtype_info[DT_COUNT] = {
#define X(e, name, bytes, cls) [DT_##e] = {name, bytes, cls},
    DTYPES(X)
#undef X
};

static uint32_t bits_of(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
static float float_of(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}

uint16_t f32_to_f16(float f) {
  uint32_t u = bits_of(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x1ff));
  if (a >= 0x47800000)
    return (uint16_t)(sign | 0x7c00); /* 2^16 and up; smaller values that round up to it carry below */
  if (a >= 0x38800000) {              /* normal numbers of f16 */
    uint32_t v = a - 0x38000000;
    return (uint16_t)(sign | ((v + 0xfff + (v >> 13 & 1)) >> 13));
  }
  if (a < 0x33000000) return (uint16_t)sign; /* less than half of the smallest subnormal */
  unsigned shift = 126 - (a >> 23);
  uint32_t m = (a & 0x7fffff) | 0x800000, v = m >> shift, rest = m & ((1u << shift) - 1), half = 1u << (shift - 1);
  return (uint16_t)(sign | (v + (rest > half || (rest == half && (v & 1)))));
}

float f16_to_f32(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
  if (e == 31) return float_of(sign | 0x7f800000 | m << 13);
  if (e) return float_of(sign | (e + 112) << 23 | m << 13);
  float f = (float)m * 0x1p-24f;
  return sign ? -f : f;
}

uint16_t f32_to_bf16(float f) {
  uint32_t u = bits_of(f);
  if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

float bf16_to_f32(uint16_t h) { return float_of((uint32_t)h << 16); }

/* The 7 exponent and mantissa bits of a magnitude whose result is finite. bias: of the exponent; mantissa: number of
 * mantissa bits. */
static uint32_t to_byte(uint32_t a, unsigned bias, unsigned mantissa) {
  unsigned drop = 23 - mantissa;
  uint32_t least = (128 - bias) << 23; /* smallest normal number */
  if (a >= least) {
    uint32_t v = a - ((127 - bias) << 23);
    return (v + ((1u << (drop - 1)) - 1) + (v >> drop & 1)) >> drop;
  }
  /* adding a number whose unit in the last place is the smallest subnormal rounds to a multiple of it */
  uint32_t place = (127 + 23 + 1 - bias - mantissa) << 23;
  return bits_of(float_of(a) + float_of(place)) - place;
}

static float from_byte(uint8_t h, unsigned bias, unsigned mantissa) {
  uint32_t sign = (uint32_t)(h & 0x80) << 24, m = h & 0x7f;
  if (m >> mantissa) return float_of(sign | ((m << (23 - mantissa)) + ((127 - bias) << 23)));
  float f = (float)m * float_of((127 + 1 - bias - mantissa) << 23);
  return sign ? -f : f;
}

uint8_t f32_to_f8e4m3(float f) {
  uint32_t u = bits_of(f), sign = u >> 24 & 0x80, a = u & 0x7fffffff;
  return (uint8_t)(sign | (a > 0x43e80000 ? 0x7f : to_byte(a, 7, 3))); /* 464 is a tie, rounded to the even 448 */
}

float f8e4m3_to_f32(uint8_t h) {
  if ((h & 0x7f) == 0x7f) return float_of((uint32_t)(h & 0x80) << 24 | 0x7fc00000);
  return from_byte(h, 7, 3);
}

uint8_t f32_to_f8e5m2(float f) {
  uint32_t u = bits_of(f), sign = u >> 24 & 0x80, a = u & 0x7fffffff;
  if (a > 0x7f800000) return (uint8_t)(sign | 0x7f);
  return (uint8_t)(sign | (a >= 0x47700000 ? 0x7c : to_byte(a, 15, 2)));
}

float f8e5m2_to_f32(uint8_t h) { return f16_to_f32((uint16_t)(h << 8)); }

/* Rounds to odd, so that a second rounding to fewer bits gives the correctly rounded result. */
static float to_f32_odd(double v) {
  float f = (float)v;
  if ((double)f == v || isnan(v)) return f;
  if (isinf(f)) return isinf(v) ? f : copysignf(0x1.fffffep127f, f);
  uint32_t u = bits_of(f);
  if (fabs((double)f) > fabs(v)) u--; /* truncate */
  return float_of(u | 1);
}

uint64_t float_to_bits(enum dtype t, double v) {
  uint64_t u;
  switch (t) {
  case DT_F16: return f32_to_f16(to_f32_odd(v));
  case DT_BF16: return f32_to_bf16(to_f32_odd(v));
  case DT_F8E4M3: return f32_to_f8e4m3(to_f32_odd(v));
  case DT_F8E5M2: return f32_to_f8e5m2(to_f32_odd(v));
  case DT_F32: return bits_of((float)v);
  default: memcpy(&u, &v, 8); return u;
  }
}

double float_from_bits(enum dtype t, uint64_t bits) {
  double v;
  switch (t) {
  case DT_F16: return (double)f16_to_f32((uint16_t)bits);
  case DT_BF16: return (double)bf16_to_f32((uint16_t)bits);
  case DT_F8E4M3: return (double)f8e4m3_to_f32((uint8_t)bits);
  case DT_F8E5M2: return (double)f8e5m2_to_f32((uint8_t)bits);
  case DT_F32: return (double)float_of((uint32_t)bits);
  default: memcpy(&v, &bits, 8); return v;
  }
}
