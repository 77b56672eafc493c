/* Vector comparisons: one bit per lane, written to a lane mask, or to EXEC for v_cmpx. Source: RDNA3 ISA document,
 * VOPC. */
#include "rdna3_simd.h"

#define CMP(name, T, LOAD, expr)                                                                                       \
  FN(name) {                                                                                                           \
    const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);                                                                    \
    u32 bits, lanes = *w->lanes;                                                                                       \
    LANE_BITS(bits, ({                                                                                                 \
                T a = LOAD(a_, l), b = LOAD(b_, l);                                                                    \
                (void)a, (void)b;                                                                                      \
                (expr);                                                                                                \
              }))                                                                                                      \
    write_mask(w, u, bits &lanes);                                                                                     \
    return u + 1;                                                                                                      \
  }
#define L_u32(p, l) ((p)[l])
#define L_i32(p, l) ((i32)(p)[l])
#define L_f32(p, l) as_f32((p)[l])
#define L_u16(p, l) ((u16)(p)[l])
#define L_i16(p, l) ((i16)(p)[l])
#define L_f16(p, l) half_to_float((p)[l] & 0xffff)
#define L_u64(p, l) PAIR_u64(p, l)
#define L_i64(p, l) PAIR_i64(p, l)
#define L_f64(p, l) PAIR_f64(p, l)
#define INT16(t, T)                                                                                                    \
  CMP(lt_##t, T, L_##t, a < b)                                                                                         \
  CMP(eq_##t, T, L_##t, a == b)                                                                                        \
  CMP(le_##t, T, L_##t, a <= b)                                                                                        \
  CMP(gt_##t, T, L_##t, a > b)                                                                                         \
  CMP(ne_##t, T, L_##t, a != b)                                                                                        \
  CMP(ge_##t, T, L_##t, a >= b)
#define INT(t, T)                                                                                                      \
  CMP(f_##t, T, L_##t, 0)                                                                                              \
  INT16(t, T)                                                                                                          \
  CMP(t_##t, T, L_##t, 1)
#define FLOAT(t, T)                                                                                                    \
  CMP(f_##t, T, L_##t, 0)                                                                                              \
  CMP(lt_##t, T, L_##t, a < b)                                                                                         \
  CMP(eq_##t, T, L_##t, a == b)                                                                                        \
  CMP(le_##t, T, L_##t, a <= b)                                                                                        \
  CMP(gt_##t, T, L_##t, a > b)                                                                                         \
  CMP(lg_##t, T, L_##t, (a != b) & (a == a) & (b == b))                                                                \
  CMP(ge_##t, T, L_##t, a >= b)                                                                                        \
  CMP(o_##t, T, L_##t, (a == a) & (b == b))                                                                            \
  CMP(u_##t, T, L_##t, (a != a) | (b != b))                                                                            \
  CMP(nge_##t, T, L_##t, !(a >= b))                                                                                    \
  CMP(nlg_##t, T, L_##t, (a == b) | (a != a) | (b != b))                                                               \
  CMP(ngt_##t, T, L_##t, !(a > b))                                                                                     \
  CMP(nle_##t, T, L_##t, !(a <= b))                                                                                    \
  CMP(neq_##t, T, L_##t, a != b)                                                                                       \
  CMP(nlt_##t, T, L_##t, !(a < b))                                                                                     \
  CMP(t_##t, T, L_##t, 1)
INT(u32, u32)
INT(i32, i32)
INT16(u16, u16)
INT16(i16, i16)
INT(u64, uint64_t)
INT(i64, i64)
FLOAT(f16, f32)
FLOAT(f32, f32)
FLOAT(f64, f64)

/* Class of a float as a bit number: 0 signalling NaN, 1 quiet NaN, then -inf, -normal, -denormal, -0, +0, +denormal,
 * +normal, +inf. */
static inline u32 class_of(u32 negative, u32 exp_zero, u32 exp_ones, u32 mantissa, u32 quiet) {
  u32 kind = exp_ones ? 0 : !exp_zero ? 1 : mantissa ? 2 : 3; /* inf, normal, denormal, zero */
  return exp_ones && mantissa ? quiet : negative ? 2 + kind : 9 - kind;
}
static inline u32 class32(u32 a) {
  return class_of(a >> 31, !(a & 0x7f800000), (a & 0x7f800000) == 0x7f800000, a & 0x7fffff, a >> 22 & 1);
}
static inline u32 class16(u32 a) {
  return class_of(a >> 15 & 1, !(a & 0x7c00), (a & 0x7c00) == 0x7c00, a & 0x3ff, a >> 9 & 1);
}
static inline u32 class64(uint64_t a) {
  u32 h = (u32)(a >> 32);
  return class_of(h >> 31, !(h & 0x7ff00000), (h & 0x7ff00000) == 0x7ff00000, (a & ((1ull << 52) - 1)) != 0,
                  h >> 19 & 1);
}
#define CLASS(name, expr)                                                                                              \
  FN(name) {                                                                                                           \
    const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);                                                                    \
    u32 bits, lanes = *w->lanes;                                                                                       \
    LANE_BITS(bits, b_[l] >> (expr) & 1)                                                                               \
    write_mask(w, u, bits &lanes);                                                                                     \
    return u + 1;                                                                                                      \
  }
CLASS(class_f32, class32(a_[l]))
CLASS(class_f16, class16(a_[l]))
CLASS(class_f64, class64(pair(a_, l)))

#define H(name)                                                                                                        \
  {RDNA3_VOPC_v_cmp_##name, name}, { RDNA3_VOPC_v_cmpx_##name, name }
#define INTS16(t) H(lt_##t), H(eq_##t), H(le_##t), H(gt_##t), H(ne_##t), H(ge_##t)
#define INTS(t)   H(f_##t), INTS16(t), H(t_##t)
#define FLOATS(t)                                                                                                      \
  H(f_##t), H(lt_##t), H(eq_##t), H(le_##t), H(gt_##t), H(lg_##t), H(ge_##t), H(o_##t), H(u_##t), H(nge_##t),          \
      H(nlg_##t), H(ngt_##t), H(nle_##t), H(neq_##t), H(nlt_##t), H(t_##t), H(class_##t)
const struct rdna3_handler SIMD_NAME(rdna3_valu_cmp_handlers)[] = {
    INTS(u32),   INTS(i32),   INTS(u64),   INTS(i64),   INTS16(u16),
    INTS16(i16), FLOATS(f16), FLOATS(f32), FLOATS(f64), {RDNA3_ROW_COUNT, NULL},
};
