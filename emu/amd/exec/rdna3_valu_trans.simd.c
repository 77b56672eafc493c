/* Transcendental operations. They are computed in double and rounded once, so f32 and f16 results are within 0.51 ulp
 * of the exact value (hardware guarantees 1 ulp). f32 forms treat denormal inputs as zero and flush denormal results to
 * zero. Source: RDNA3 ISA document, instruction lists. */
#include "rdna3_simd.h"

static inline f32 daz(f32 a) { return as_u32(a) & 0x7f800000 ? a : as_f32(as_u32(a) & 0x80000000); }
static inline f32 quiet_nan(f32 a) { return as_f32(as_u32(a) | 0x400000); }
static inline f32 invalid(void) { return as_f32(0xffc00000u); }

static inline f32 sine(f32 a) {
  f64 f = turns(a), g = f > 0.25 ? 0.5 - f : f < -0.25 ? -0.5 - f : f;
  f32 r = (f32)sin_quarter(g);
  r = a == 0 ? a : r;
  return a - a != 0 ? (a != a ? quiet_nan(a) : invalid()) : r;
}
static inline f32 cosine(f32 a) {
  f64 f = turns(a);
  f = f < 0 ? -f : f;
  f32 r = (f32)sin_quarter(0.25 - f);
  return a - a != 0 ? (a != a ? quiet_nan(a) : invalid()) : r;
}
static inline f32 exponential(f32 a) { return a != a ? quiet_nan(a) : (f32)exp2_of((f64)a); }
static inline f32 logarithm(f32 a) {
  f32 r = (f32)log2_of(a > 0 ? (f64)a : 1);
  r = a == 0 ? -__builtin_inff() : a < 0 ? invalid() : a - a != 0 ? a : r;
  return a != a ? quiet_nan(a) : r;
}
static inline f32 inverse_root(f32 a) {
  f32 r = (f32)(1.0 / __builtin_sqrt(a > 0 ? (f64)a : 1));
  r = a == 0 ? 1.0f / a : a < 0 ? invalid() : r;
  return a != a ? quiet_nan(a) : r;
}
static inline f32 root(f32 a) { return a < 0 ? invalid() : __builtin_sqrtf(a); }

OP1(exp_f32, f32, f32, daz(exponential(daz(a))))
OP1(log_f32, f32, f32, logarithm(daz(a)))
OP1(rcp_f32, f32, f32, daz(1.0f / daz(a)))
OP1(rsq_f32, f32, f32, inverse_root(daz(a)))
OP1(sqrt_f32, f32, f32, root(daz(a)))
OP1(sin_f32, f32, f32, sine(daz(a)))
OP1(cos_f32, f32, f32, cosine(daz(a)))

#define F16(name, expr)                                                                                                \
  FN(name) {                                                                                                           \
    f32 a_[RDNA3_LANES] __attribute__((aligned(64))), f_[RDNA3_LANES] __attribute__((aligned(64)));                    \
    u32 h_[RDNA3_LANES] __attribute__((aligned(64)));                                                                  \
    halves_to_floats(a_, ROW(u32, 0));                                                                                 \
    LANES {                                                                                                            \
      f32 a = a_[l];                                                                                                   \
      f_[l] = (expr);                                                                                                  \
    }                                                                                                                  \
    floats_to_halves(h_, f_);                                                                                          \
    STORE(u32, (d[l] & 0xffff0000u) | h_[l])                                                                           \
  }
F16(exp_f16, exponential(a))
F16(log_f16, logarithm(a))
F16(rcp_f16, 1.0f / a)
F16(rsq_f16, inverse_root(a))
F16(sqrt_f16, root(a))
F16(sin_f16, sine(a))
F16(cos_f16, cosine(a))

#define F64(name, expr)                                                                                                \
  FN(name) {                                                                                                           \
    const u32 *a_ = ROW(u32, 0);                                                                                       \
    STORE64(f64, ({                                                                                                    \
              f64 a = PAIR_f64(a_, l);                                                                                 \
              (expr);                                                                                                  \
            }))                                                                                                        \
  }
F64(rcp_f64, 1.0 / a)
F64(rsq_f64, 1.0 / __builtin_sqrt(a))
F64(sqrt_f64, __builtin_sqrt(a))

#define H(name) {RDNA3_VOP1_v_##name, name}
const struct rdna3_handler SIMD_NAME(rdna3_valu_trans_handlers)[] = {
    H(exp_f32),
    H(log_f32),
    H(rcp_f32),
    {RDNA3_VOP1_v_rcp_iflag_f32, rcp_f32},
    H(rsq_f32),
    H(sqrt_f32),
    H(sin_f32),
    H(cos_f32),
    H(exp_f16),
    H(log_f16),
    H(rcp_f16),
    H(rsq_f16),
    H(sqrt_f16),
    H(sin_f16),
    H(cos_f16),
    H(rcp_f64),
    H(rsq_f64),
    H(sqrt_f64),
    {RDNA3_ROW_COUNT, NULL},
};
