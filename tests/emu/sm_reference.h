/* Reference for small floating-point formats: decodes exactly, and rounds from 113 bits by division and remainder. */
#ifndef DOORBELL_TESTS_SM_REFERENCE_H
#define DOORBELL_TESTS_SM_REFERENCE_H
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
typedef __float128 quad;
#else
typedef long double quad;
#endif

static inline float float_of(uint32_t v) {
  float f;
  memcpy(&f, &v, 4);
  return f;
}
static inline uint32_t bits_of(float f) {
  uint32_t v;
  memcpy(&v, &f, 4);
  return v;
}
static inline double double_of(uint64_t v) {
  double f;
  memcpy(&f, &v, 8);
  return f;
}
static inline uint64_t bits64_of(double f) {
  uint64_t v;
  memcpy(&v, &f, 8);
  return v;
}
static inline quad scaled(quad x, int by) {
  for (; by > 0; by--) x *= 2;
  for (; by < 0; by++) x /= 2;
  return x;
}
/* Decodes a format with given numbers of mantissa and exponent bits and the sign on top; the highest exponent is for
 * infinity and NaN. */
static inline quad decode(uint32_t v, int mantissa, int exponent) {
  int e = v >> mantissa & ((1 << exponent) - 1), bias = (1 << (exponent - 1)) - 1, top = (1 << exponent) - 1;
  quad m = v & ((1u << mantissa) - 1), sign = v >> (mantissa + exponent) & 1 ? -1 : 1;
  if (e == top) return m != 0 ? (quad)__builtin_nan("") : sign * (quad)__builtin_inf();
  if (e) m += 1u << mantissa;
  return sign * scaled(m, (e ? e : 1) - bias - mantissa);
}
/* round: 0 nearest even, 1 down, 2 up, 3 to zero. x is a number or infinite. */
static inline uint32_t encode(quad x, int mantissa, int exponent, int round) {
  int bias = (1 << (exponent - 1)) - 1, top = (1 << exponent) - 1;
  int negative = x < 0 || (x == 0 && 1 / x < 0);
  uint32_t sign = (uint32_t)negative << (mantissa + exponent), infinity = (uint32_t)top << mantissa;
  quad size = negative ? -x : x;
  if (size == (quad)__builtin_inf()) return sign | infinity;
  int e = 1 - bias; /* a unit in the last place is 2^(e - mantissa) */
  quad one = scaled(1, e + 1);
  while (size >= one && e <= 200) one *= 2, e++;
  quad units = scaled(size, mantissa - e); /* below 2^(mantissa + 1) */
  uint32_t whole = units < (quad)4294967295.0 ? (uint32_t)units : ~0u;
  quad rest = units - whole;
  int away = round == 1 ? negative : round == 2 ? !negative : 0;
  int up = round == 0 ? rest > 0.5 || (rest == 0.5 && whole & 1) : away && rest > 0;
  int64_t v = (int64_t)whole + up + ((int64_t)(e + bias - 1) << mantissa);
  if (v >= infinity) v = round == 0 || away ? infinity : infinity - 1;
  return sign | (uint32_t)v;
}
#endif
