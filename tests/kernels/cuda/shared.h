/* Shared by kernels in CUDA C and their references in C: types, and arithmetic that rounds once on both sides with any
 * compiler flags. */
#ifndef DOORBELL_TESTS_CUDA_SHARED_H
#define DOORBELL_TESTS_CUDA_SHARED_H
#ifdef __CUDACC__
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
#define KERNEL extern "C" __global__ void
#define BODY   static inline __device__
#define CALLED static __device__ __noinline__
#define TABLE  static __constant__
#define fadd   __fadd_rn
#define fsub   __fsub_rn
#define fmul   __fmul_rn
#define ffma   __fmaf_rn
#define fdiv   __fdiv_rn
#define fsqrt  __fsqrt_rn
#define dadd   __dadd_rn
#define dsub   __dsub_rn
#define dmul   __dmul_rn
#define dfma   __fma_rn
#define ddiv   __ddiv_rn
#define dsqrt  __dsqrt_rn
BODY u32 f32_bits(float f) { return __float_as_uint(f); }
BODY float bits_f32(u32 u) { return __uint_as_float(u); }
BODY u64 f64_bits(double d) { return (u64)__double_as_longlong(d); }
BODY double bits_f64(u64 u) { return __longlong_as_double((i64)u); }
/* out[i] = NAME_body(in[i], i) */
#define BODY_KERNEL(name)                                                                                              \
  KERNEL name(u32 *out, const u32 *in, u32 n) {                                                                        \
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;                                                                     \
    if (i < n) out[i] = name##_body(in[i], i);                                                                         \
  }
#else
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
typedef uint8_t u8;
typedef int8_t i8;
typedef uint16_t u16;
typedef int16_t i16;
typedef uint32_t u32;
typedef int32_t i32;
typedef unsigned long long u64;
typedef long long i64;
#define BODY       static inline __attribute__((unused))
#define CALLED     static __attribute__((unused))
#define TABLE      static const
#define fadd(a, b) ((float)(a) + (float)(b))
#define fsub(a, b) ((float)(a) - (float)(b))
#define fmul(a, b) ((float)(a) * (float)(b))
#define ffma       fmaf
#define fdiv(a, b) ((float)(a) / (float)(b))
#define fsqrt      sqrtf
#define dadd(a, b) ((double)(a) + (double)(b))
#define dsub(a, b) ((double)(a) - (double)(b))
#define dmul(a, b) ((double)(a) * (double)(b))
#define dfma       fma
#define ddiv(a, b) ((double)(a) / (double)(b))
#define dsqrt      sqrt
BODY u32 f32_bits(float f) {
  u32 u;
  memcpy(&u, &f, 4);
  return u;
}
BODY float bits_f32(u32 u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
BODY u64 f64_bits(double d) {
  u64 u;
  memcpy(&u, &d, 8);
  return u;
}
BODY double bits_f64(u64 u) {
  double d;
  memcpy(&d, &u, 8);
  return d;
}
#endif
typedef unsigned __int128 u128;
typedef __int128 i128;
BODY u32 rotl(u32 x, u32 n) { return x << (n & 31) | x >> (-n & 31); }
BODY u64 rotl64(u64 x, u32 n) { return x << (n & 63) | x >> (-n & 63); }
BODY u32 fold64(u64 x) { return (u32)x ^ (u32)(x >> 32); }
BODY u32 next_random(u32 *s) { return *s = *s * 1664525u + 1013904223u; } /* Numerical Recipes' generator */
/* Numbers whose exponents are near 0, with any mantissa and sign. */
BODY float plain_f32(u32 x) { return bits_f32((x & 0x807fffffu) | ((x >> 27 & 15u) + 120u) << 23); }
BODY double plain_f64(u32 x, u32 i) {
  u64 m = (u64)x * 0x9e3779b97f4a7c15ull ^ (u64)i << 17;
  return bits_f64((m & 0x800fffffffffffffull) | ((m >> 57 & 31u) + 1008u) << 52);
}
#endif
