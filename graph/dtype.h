/* Element types. One table: X(enum, name, bytes, class), class i signed, u unsigned, f float, b bool. */
#ifndef DOORBELL_GRAPH_DTYPE_H
#define DOORBELL_GRAPH_DTYPE_H
#include <stdbool.h>
#include <stdint.h>

/* F8E4M3 is the OCP's E4M3 (other libraries append "fn"): it has no infinity, one NaN per sign (0x7f, 0xff), and a
 * maximum of 448. F8E5M2 is the upper byte of f16. INDEX is an integer of unspecified width for index arithmetic; the
 * compiler makes it i32 or i64 according to its bounds. */
#define DTYPES(X)                                                                                                      \
  X(VOID, "void", 0, 'v')                                                                                              \
  X(BOOL, "bool", 1, 'b')                                                                                              \
  X(I8, "i8", 1, 'i')                                                                                                  \
  X(U8, "u8", 1, 'u')                                                                                                  \
  X(I16, "i16", 2, 'i')                                                                                                \
  X(U16, "u16", 2, 'u')                                                                                                \
  X(I32, "i32", 4, 'i')                                                                                                \
  X(U32, "u32", 4, 'u')                                                                                                \
  X(I64, "i64", 8, 'i')                                                                                                \
  X(U64, "u64", 8, 'u')                                                                                                \
  X(F16, "f16", 2, 'f')                                                                                                \
  X(BF16, "bf16", 2, 'f')                                                                                              \
  X(F32, "f32", 4, 'f')                                                                                                \
  X(F64, "f64", 8, 'f')                                                                                                \
  X(F8E4M3, "f8e4m3", 1, 'f')                                                                                          \
  X(F8E5M2, "f8e5m2", 1, 'f')                                                                                          \
  X(INDEX, "index", 8, 'i')

enum dtype {
#define X(e, name, bytes, cls) DT_##e,
  DTYPES(X)
#undef X
      DT_COUNT
};
struct dtype_info {
  const char *name;
  uint8_t size; /* bytes */
  char cls;
};
extern const struct dtype_info dtype_info[DT_COUNT];
static inline bool dtype_is_float(enum dtype t) { return dtype_info[t].cls == 'f'; }
static inline bool dtype_is_int(enum dtype t) { return dtype_info[t].cls == 'i' || dtype_info[t].cls == 'u'; }
/* f16, bf16 and the 8-bit floats. Arithmetic on them is done in f32 and rounded after each operation. */
static inline bool dtype_is_narrow_float(enum dtype t) { return dtype_is_float(t) && dtype_info[t].size < 4; }
/* Conversions round to nearest, ties to even. NaN stays NaN. A value that is too large becomes infinity, or NaN in
 * f8e4m3. */
uint16_t f32_to_f16(float f);
float f16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f);
float bf16_to_f32(uint16_t h);
uint8_t f32_to_f8e4m3(float f);
float f8e4m3_to_f32(uint8_t h);
uint8_t f32_to_f8e5m2(float f);
float f8e5m2_to_f32(uint8_t h);
/* The bits of v rounded once to the float type t, and the value that such bits encode. */
uint64_t float_to_bits(enum dtype t, double v);
double float_from_bits(enum dtype t, uint64_t bits);
#endif
