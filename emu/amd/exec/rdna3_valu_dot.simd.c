/* Dot products of two, four or eight elements of a register, added to S2. Source: RDNA3 ISA document, VOP3P and VOP3
 * lists. */
#include "rdna3_simd.h"

static inline f32 bf16(u32 h) { return as_f32(h << 16); }
/* Rounds to nearest even. */
static inline u32 to_bf16(f32 x) {
  u32 v = as_u32(x);
  return x != x ? v >> 16 | 0x40 : (v + 0x7fff + (v >> 16 & 1)) >> 16;
}
/* Products of two 16-bit floats are exact in f32; the sum is rounded after each addition, S2 first. */
#define DOT2(a, b, c, get) ((c) + get((a) & 0xffff) * get((b) & 0xffff) + get((a) >> 16) * get((b) >> 16))
OP3(dot2_f32_f16, f32, u32, u32, f32, DOT2(a, b, c, half_to_float))
OP3(dot2_f32_bf16, f32, u32, u32, f32, DOT2(a, b, c, bf16))
OP3(dot2_bf16_bf16, u32, u32, u32, u32, (d[l] & 0xffff0000u) | to_bf16(DOT2(a, b, bf16(c & 0xffff), bf16)))
OP3(dot2_f16_f16, u32, u32, u32, u32,
    (d[l] & 0xffff0000u) | float_to_half(DOT2(a, b, half_to_float(c & 0xffff), half_to_float)))

static inline i64 element(u32 x, int i, int bits, u32 is_signed) {
  u32 up = x << (32 - bits - i * bits);
  return is_signed ? (i64)((i32)up >> (32 - bits)) : (i64)(up >> (32 - bits));
}
static inline i64 dot(u32 a, u32 b, int bits, u32 sa, u32 sb) {
  i64 s = 0;
  for (int i = 0; i < 32 / bits; i++) s += element(a, i, bits, sa) * element(b, i, bits, sb);
  return s;
}
/* neg bits 0 and 1 select which sources are signed. */
#define IU(name, bits, convert)                                                                                        \
  FN(name) {                                                                                                           \
    const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);                                                 \
    u32 sa = u->inst->neg & 1, sb = u->inst->neg & 2;                                                                  \
    STORE(u32, ({                                                                                                      \
            i64 s = dot(a_[l], b_[l], bits, sa, sb) + (i32)c_[l];                                                      \
            (u32)(convert);                                                                                            \
          }))                                                                                                          \
  }
#define SAT_I32(s) ((s) > INT32_MAX ? INT32_MAX : (s) < INT32_MIN ? INT32_MIN : (s))
#define SAT_U32(s) ((s) > UINT32_MAX ? UINT32_MAX : (s))
IU(dot4_i32_iu8, 8, s)
IU(dot8_i32_iu4, 4, s)
IU(dot4_i32_iu8_clamp, 8, SAT_I32(s))
IU(dot8_i32_iu4_clamp, 4, SAT_I32(s))
OP3(dot4_u32_u8, u32, u32, u32, u32, (u32)(dot(a, b, 8, 0, 0) + c))
OP3(dot8_u32_u4, u32, u32, u32, u32, (u32)(dot(a, b, 4, 0, 0) + c))
OP3(dot4_u32_u8_clamp, u32, u32, u32, u32, (u32)SAT_U32(dot(a, b, 8, 0, 0) + c))
OP3(dot8_u32_u4_clamp, u32, u32, u32, u32, (u32)SAT_U32(dot(a, b, 4, 0, 0) + c))

#define H(format, name) {RDNA3_##format##_v_##name, name}
#define HC(format, name)                                                                                               \
  H(format, name), { RDNA3_CLAMPED + RDNA3_##format##_v_##name, name##_clamp }
const struct rdna3_handler SIMD_NAME(rdna3_valu_dot_handlers)[] = {
    H(VOP3P, dot2_f32_f16),  {RDNA3_VOP2_v_dot2acc_f32_f16, dot2_f32_f16},
    H(VOP3P, dot2_f32_bf16), H(VOP3, dot2_f16_f16),
    H(VOP3, dot2_bf16_bf16), HC(VOP3P, dot4_i32_iu8),
    HC(VOP3P, dot8_i32_iu4), HC(VOP3P, dot4_u32_u8),
    HC(VOP3P, dot8_u32_u4),  {RDNA3_ROW_COUNT, NULL},
};
