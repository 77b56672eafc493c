/* Element types: the table, and conversions between f32 and the 16-bit floats (IEEE 754 binary16, bfloat16) in plain
 * integer code. */
#include "dtype.h"
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
    return (uint16_t)(sign | 0x7c00); /* 2^16 and up; what rounds up to it carries into the exponent below */
  if (a >= 0x38800000) {              /* a normal half */
    uint32_t v = a - 0x38000000;
    return (uint16_t)(sign | ((v + 0xfff + (v >> 13 & 1)) >> 13));
  }
  if (a < 0x33000000) return (uint16_t)sign; /* below half of the least subnormal */
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
