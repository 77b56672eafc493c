/* Operations on f32 and f64, with one rounding each. The host's control word selects the rounding mode. This file
 * implements denormal flushing, saturation and the canonical NaN. Source: PTX ISA, "Floating-Point Instructions". */
#include "sm_simd.h"

/* ---- f32 ---- */

/* Each operation has three variants: plain; with source modifiers and flushing; with all options. */
static inline f32 finish_f32(f32 r, u32 flag) {
  r = canonical32(r);
  r = flag & SM_FTZ ? flush32(r) : r;
  return flag & SM_SAT ? saturate32(r) : r;
}
#define LOAD32(x, i) as_f32(MODIFIED(x, i))
FN(fadd) {
  const f32 *a_ = ROW(f32, 0), *b_ = ROW(f32, 1);
  STORE(f32, canonical32(a_[l] + b_[l]))
}
FN(fmul) {
  const f32 *a_ = ROW(f32, 0), *b_ = ROW(f32, 1);
  STORE(f32, canonical32(a_[l] * b_[l]))
}
FN(ffma) {
  const f32 *a_ = ROW(f32, 0), *b_ = ROW(f32, 1), *c_ = ROW(f32, 2);
  STORE(f32, canonical32(__builtin_fmaf(a_[l], b_[l], c_[l])))
}
#define FLUSHED(x) (ftz ? flush32(x) : (x))
static inline const struct sm_uop *add_of(struct sm_warp *w, const struct sm_uop *u, u32 ftz, u32 sat) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  MODIFIERS(u, 0);
  MODIFIERS(u, 1);
  u32 flag = ftz | sat;
  STORE(f32, finish_f32(FLUSHED(LOAD32(a_[l], 0)) + FLUSHED(LOAD32(b_[l], 1)), flag))
}
static inline const struct sm_uop *mul_of(struct sm_warp *w, const struct sm_uop *u, u32 ftz) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  MODIFIERS(u, 0);
  MODIFIERS(u, 1);
  STORE(f32, finish_f32(FLUSHED(LOAD32(a_[l], 0)) * FLUSHED(LOAD32(b_[l], 1)), ftz))
}
static inline const struct sm_uop *fma_of(struct sm_warp *w, const struct sm_uop *u, u32 ftz, u32 sat, u32 fmz) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);
  MODIFIERS(u, 0);
  MODIFIERS(u, 1);
  MODIFIERS(u, 2);
  u32 flag = ftz | sat;
  STORE(f32, ({
          f32 a = FLUSHED(LOAD32(a_[l], 0)), b = FLUSHED(LOAD32(b_[l], 1)), c = FLUSHED(LOAD32(c_[l], 2));
          u32 zero = fmz && (a == 0 || b == 0);
          a = zero ? 0 : a, b = zero ? 0 : b;
          finish_f32(__builtin_fmaf(a, b, c), flag);
        }))
}
FN(fadd_m) { return add_of(w, u, 0, 0); }
FN(fmul_m) { return mul_of(w, u, 0); }
FN(ffma_m) { return fma_of(w, u, 0, 0, 0); }
FN(fadd_ftz) { return add_of(w, u, SM_FTZ, 0); }
FN(fmul_ftz) { return mul_of(w, u, SM_FTZ); }
FN(ffma_ftz) { return fma_of(w, u, SM_FTZ, 0, 0); }
FN(fadd_any) { return add_of(w, u, u->flag & SM_FTZ, u->flag & SM_SAT); }
/* The product is exact in double, and so is its product with the scale (arg: the exponent of a power of two), so one
 * rounding follows. ptxas folds a multiplication into the scale only where the source allows contraction, that is, a
 * fused operation with one rounding. */
FN(fmul_any) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  MODIFIERS(u, 0);
  MODIFIERS(u, 1);
  u32 flag = u->flag, ftz = flag & (SM_FTZ | SM_FMZ), fmz = flag & SM_FMZ;
  const f64 scale = as_f64((uint64_t)(1023 + (i32)u->arg) << 52);
  STORE(f32, ({
          f32 a = FLUSHED(LOAD32(a_[l], 0)), b = FLUSHED(LOAD32(b_[l], 1));
          f32 p = finish_f32((f32)((f64)a * (f64)b * scale), (flag & SM_SAT) | ftz);
          fmz && (a == 0 || b == 0) ? 0 : p;
        }))
}
FN(ffma_any) { return fma_of(w, u, u->flag & (SM_FTZ | SM_FMZ), u->flag & SM_SAT, u->flag & SM_FMZ); }

FN(fsel) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  MODIFIERS(u, 0);
  MODIFIERS(u, 1);
  u32 mask = sm_psrc(w, u, 0), ftz = u->flag & SM_FTZ;
  STORE(f32, ({
          f32 x = as_f32(mask >> l & 1 ? MODIFIED(a_[l], 0) : MODIFIED(b_[l], 1));
          FLUSHED(x);
        }))
}
FN(fmnmx) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  MODIFIERS(u, 0);
  MODIFIERS(u, 1);
  u32 mask = sm_psrc(w, u, 0), ftz = u->flag & SM_FTZ, nan = u->flag & SM_NAN, xorsign = u->flag & SM_XORSIGN;
  STORE(u32, ({
          u32 a = MODIFIED(a_[l], 0), b = MODIFIED(b_[l], 1), sign = ((a_[l] ^ flip0) ^ (b_[l] ^ flip1)) & 0x80000000;
          a = as_u32(FLUSHED(as_f32(a))), b = as_u32(FLUSHED(as_f32(b)));
          u32 first = (ordered(a) < ordered(b)) == (mask >> l & 1), r = first ? a : b;
          u32 na = NAN32(a), nb = NAN32(b), bad = nan ? na | nb : na & nb;
          r = na ? b : nb ? a : r;
          r = xorsign ? (r & 0x7fffffff) | sign : r;
          bad ? 0x7fffffff : r;
        }))
}
static inline u32 compare32(const struct sm_warp *w, const struct sm_uop *u) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  MODIFIERS(u, 0);
  MODIFIERS(u, 1);
  u32 bits = 0;
  if (u->flag & SM_FTZ) {
    COMPARE(bits, flush32(LOAD32(a_[l], 0)), flush32(LOAD32(b_[l], 1)))
  } else {
    COMPARE(bits, LOAD32(a_[l], 0), LOAD32(b_[l], 1))
  }
  return INVERTED(u, bits);
}
FN(fsetp) { return set_predicates(w, u, compare32(w, u)); }
FN(fset) {
  u32 bits = combined(w, u, compare32(w, u));
  STORE(u32, bits >> l & 1 ? 0x3f800000 : 0)
}
/* Predicate 0 says whether a division needs its slow path. It is set in all lanes, which is always correct. */
FN(fchk) {
  sm_pdst(w, u, 0, sm_lanes(w, u), ~0u);
  return u + 1;
}

/* ---- f64 ---- */
#define LOAD64(p, i) as_f64(MODIFIED(pair(p, l), i))
FN(dadd) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  MODIFIERS64(u, 0);
  MODIFIERS64(u, 1);
  STORE64(f64, canonical64(LOAD64(a_, 0) + LOAD64(b_, 1)))
}
FN(dmul) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  MODIFIERS64(u, 0);
  MODIFIERS64(u, 1);
  STORE64(f64, canonical64(LOAD64(a_, 0) * LOAD64(b_, 1)))
}
FN(dfma) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);
  MODIFIERS64(u, 0);
  MODIFIERS64(u, 1);
  MODIFIERS64(u, 2);
  STORE64(f64, canonical64(__builtin_fma(LOAD64(a_, 0), LOAD64(b_, 1), LOAD64(c_, 2))))
}
FN(dsetp) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  MODIFIERS64(u, 0);
  MODIFIERS64(u, 1);
  u32 bits = 0;
  COMPARE(bits, LOAD64(a_, 0), LOAD64(b_, 1))
  return set_predicates(w, u, INVERTED(u, bits));
}
/* Predicate 0: a is the minimum (arg bit 8: maximum), or b is NaN; predicate 1: both are NaN. */
FN(dsetp_minmax) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  MODIFIERS64(u, 0);
  MODIFIERS64(u, 1);
  u32 less, greater, na, nb, lanes = sm_lanes(w, u);
  {
    LANE_BITS(less, ({
                i64 x = (i64)MODIFIED(pair(a_, l), 0), y = (i64)MODIFIED(pair(b_, l), 1);
                (x < 0 ? x ^ INT64_MAX : x) < (y < 0 ? y ^ INT64_MAX : y);
              }))
  }
  {
    LANE_BITS(greater, ({
                i64 x = (i64)MODIFIED(pair(a_, l), 0), y = (i64)MODIFIED(pair(b_, l), 1);
                (x < 0 ? x ^ INT64_MAX : x) > (y < 0 ? y ^ INT64_MAX : y);
              }))
  }
  {LANE_BITS(na, LOAD64(a_, 0) != LOAD64(a_, 0))} LANE_BITS(nb, LOAD64(b_, 1) != LOAD64(b_, 1)) u32 first =
      ~na & (nb | (INVERTED(u, 0) ? greater : less));
  sm_pdst(w, u, 0, lanes, combined(w, u, first));
  sm_pdst(w, u, 1, lanes, combined(w, u, na & nb));
  return u + 1;
}

#define FLOAT(name) [SM_FN_##name] = name,
sm_exec_fn *const SIMD_NAME(sm_rowop_float)[SM_FN_COUNT] = {
#include "sm_rowop.def"
};
