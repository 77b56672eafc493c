/* Packed operations: two f16 or bf16 elements per register, with one rounding each. They are computed in f32; where a
 * second rounding could change the result, the first rounds to odd. Source: PTX ISA, "Half Precision Floating-Point
 * Instructions". */
#include "sm_simd.h"

/* The two elements of each lane in a row: part[0] is for the low half of the result, part[1] for the high half. */
struct halves {
  float part[2][ROW_LANES] __attribute__((aligned(64)));
};
/* Flushes a denormal f16 or bf16 to zero; exponent is the format's exponent mask. */
static inline u32 flush16(u32 h, u32 exponent) { return h & exponent ? h : h & 0x8000; }
#define EXPONENT(u) ((u)->flag & SM_BF16 ? 0x7f80u : 0x7c00u)

/* Loads source i with its modifiers, as 16-bit patterns. */
static inline void load_patterns(const struct sm_warp *w, const struct sm_uop *u, unsigned i, u32 *low, u32 *high) {
  const u32 *x_ = ROW(u32, i);
  const u32 keep = KEEP(u, i, 0x80008000u), flip = FLIP(u, i, 0x80008000u),
            which = u->flag >> (SM_HALVES_SHIFT + 2 * i);
  u32 low_shift = (which & 3) == 3 ? 16 : 0, high_shift = (which & 3) == 2 ? 0 : 16;
  LANES {
    u32 x = (x_[l] & keep) ^ flip;
    low[l] = x >> low_shift & 0xffff, high[l] = x >> high_shift & 0xffff;
  }
  if (!(u->flag & SM_FTZ)) return;
  u32 exponent = EXPONENT(u);
  LANES { low[l] = flush16(low[l], exponent), high[l] = flush16(high[l], exponent); }
}
static inline void load_halves(struct halves *h, const struct sm_warp *w, const struct sm_uop *u, unsigned i) {
  ROWBUF(u32, low);
  ROWBUF(u32, high);
  load_patterns(w, u, i, low, high);
  if (u->flag & SM_BF16) {
    LANES { h->part[0][l] = as_f32(low[l] << 16), h->part[1][l] = as_f32(high[l] << 16); }
  } else {
    halves_to_floats(h->part[0], low), halves_to_floats(h->part[1], high);
  }
}
static inline u32 round_bf16(f32 x) {
  u32 v = as_u32(x);
  return (v + 0x7fff + (v >> 16 & 1)) >> 16;
}
/* Rounds, saturates and packs both elements. */
static inline const struct sm_uop *store_halves(struct sm_warp *w, const struct sm_uop *u, struct halves *h) {
  u32 bits[2][ROW_LANES] __attribute__((aligned(64))), exponent = EXPONENT(u);
  for (int k = 0; k < 2; k++) {
    float *x = h->part[k];
    if (u->flag & SM_SAT) {
      LANES { x[l] = saturate32(x[l]); }
    }
    if (u->flag & SM_RELU) {
      LANES {
        f32 r = x[l];
        x[l] = r > 0 || r != r ? r : 0;
      }
    }
    if (u->flag & SM_BF16) {
      LANES { bits[k][l] = x[l] != x[l] ? 0x7fff : round_bf16(x[l]); }
    } else {
      floats_to_halves(bits[k], x);
      LANES { bits[k][l] = x[l] != x[l] ? 0x7fff : bits[k][l]; }
    }
    if (u->flag & SM_FTZ) {
      LANES { bits[k][l] = flush16(bits[k][l], exponent); }
    }
  }
  STORE(u32, bits[0][l] | bits[1][l] << 16)
}
FN(hadd2) {
  struct halves a, b;
  load_halves(&a, w, u, 0), load_halves(&b, w, u, 1);
  for (int k = 0; k < 2; k++) LANES {
      a.part[k][l] += b.part[k][l];
    }
  return store_halves(w, u, &a);
}
/* The sum of the low elements, as an f32. */
FN(hadd2_f32) {
  struct halves a, b;
  load_halves(&a, w, u, 0), load_halves(&b, w, u, 1);
  u32 sat = u->flag & SM_SAT;
  STORE(f32, ({
          f32 r = canonical32(a.part[0][l] + b.part[0][l]);
          sat ? saturate32(r) : r;
        }))
}
/* Products of two elements are exact in f32, except those of bf16 far below its smallest number. */
FN(hmul2) {
  struct halves a, b;
  load_halves(&a, w, u, 0), load_halves(&b, w, u, 1);
  u32 fmz = u->flag & SM_FMZ;
  for (int k = 0; k < 2; k++) LANES {
      f32 x = a.part[k][l], y = b.part[k][l], p = x * y;
      a.part[k][l] = fmz && (x == 0 || y == 0) ? 0 : p;
    }
  return store_halves(w, u, &a);
}
/* Returns a * b + c rounded to odd, so that rounding it to a half is correct. a * b is exact. */
static inline f32 fma_odd(f32 a, f32 b, f32 c) {
  f32 p = a * b, s = p + c, bb = s - p, e = (p - (s - bb)) + (c - bb);
  u32 v = as_u32(s), step = (as_u32(e) ^ v) >> 31 ? ~0u : 1;
  u32 stays = e == 0 ? 1 : (v & 0x7f800000) == 0x7f800000 ? 1 : v & 1;
  return as_f32(stays ? v : v + step);
}
/* The same in double, for bf16. */
static inline f64 fma_odd64(f64 a, f64 b, f64 c) {
  f64 p = a * b, s = p + c, bb = s - p, e = (p - (s - bb)) + (c - bb);
  uint64_t v = as_u64(s), step = (as_u64(e) ^ v) >> 63 ? ~0ull : 1, top = 0x7ff0000000000000;
  uint64_t stays = e == 0 ? 1 : (v & top) == top ? 1 : v & 1;
  return as_f64(stays ? v : v + step);
}
static inline void fma_halves(float *a, const float *b, const float *c, u32 bf16) {
  if (!bf16) {
    LANES { a[l] = fma_odd(a[l], b[l], c[l]); }
    return;
  }
  ROWBUF(double, odd);
  ROWBUF(u32, r);
  LANES { odd[l] = fma_odd64((f64)a[l], (f64)b[l], (f64)c[l]); }
  LANES { r[l] = odd[l] != odd[l] ? 0x7fff : narrow(odd[l], 7, 8, SM_ROUND_NEAREST); }
  LANES { a[l] = as_f32(r[l] << 16); }
}
FN(hfma2) {
  struct halves a, b, c;
  load_halves(&a, w, u, 0), load_halves(&b, w, u, 1), load_halves(&c, w, u, 2);
  for (int k = 0; k < 2; k++) {
    if (u->flag & SM_FMZ) {
      LANES {
        float x = a.part[k][l], y = b.part[k][l];
        a.part[k][l] = y == 0 ? 0 : x, b.part[k][l] = x == 0 ? 0 : y;
      }
    }
    fma_halves(a.part[k], b.part[k], c.part[k], u->flag & SM_BF16);
  }
  return store_halves(w, u, &a);
}

/* ---- minimum and maximum ---- */
struct pick {
  u32 exponent, mask, nan, xorsign;
};
static inline i32 ordered16(u32 h) { return h & 0x8000 ? (i32)(h ^ 0xffff7fff) : (i32)h; }
static inline u32 pick(const struct pick *p, u32 a, u32 b, u32 sign, int l) {
  u32 na = (a & 0x7fff) > p->exponent, nb = (b & 0x7fff) > p->exponent, bad = p->nan ? na | nb : na & nb;
  u32 r = (ordered16(a) < ordered16(b)) == (p->mask >> l & 1) ? a : b;
  r = na ? b : nb ? a : r;
  r = p->xorsign ? (r & 0x7fff) | (sign & 0x8000) : r;
  return bad ? 0x7fff : r;
}
static inline const struct sm_uop *minmax_halves(struct sm_warp *w, const struct sm_uop *u, int sources) {
  u32 h[3][2][ROW_LANES] __attribute__((aligned(64)));
  struct pick p = {EXPONENT(u), sm_psrc(w, u, 0), u->flag & SM_NAN, u->flag & SM_XORSIGN};
  for (int i = 0; i < sources; i++) load_patterns(w, u, (unsigned)i, h[i][0], h[i][1]);
  /* signs before the absolute value is taken */
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  u32 flip = (u->flag ^ u->flag >> 1) & 1 ? 0x8000 : 0, a_high = (u->flag >> SM_HALVES_SHIFT & 3) != 2 ? 16 : 0,
      b_high = (u->flag >> (SM_HALVES_SHIFT + 2) & 3) != 2 ? 16 : 0,
      a_low = (u->flag >> SM_HALVES_SHIFT & 3) == 3 ? 16 : 0,
      b_low = (u->flag >> (SM_HALVES_SHIFT + 2) & 3) == 3 ? 16 : 0;
  STORE(u32, ({
          u32 low = pick(&p, h[0][0][l], h[1][0][l], a_[l] >> a_low ^ b_[l] >> b_low ^ flip, l);
          u32 high = pick(&p, h[0][1][l], h[1][1][l], a_[l] >> a_high ^ b_[l] >> b_high ^ flip, l);
          if (sources > 2) {
            low = pick(&p, low, h[2][0][l], low ^ h[2][0][l], l);
            high = pick(&p, high, h[2][1][l], high ^ h[2][1][l], l);
          }
          low | high << 16;
        }))
}
FN(hmnmx2) { return minmax_halves(w, u, 2); }
FN(vhmnmx) { return minmax_halves(w, u, 3); }

/* ---- comparisons ---- */
static inline u32 compare_half(const struct sm_uop *u, const f32 *a, const f32 *b) {
  u32 bits = 0;
  COMPARE(bits, a[l], b[l])
  return INVERTED(u, bits);
}
/* Writes all ones, or 1.0 (imm), to each half. */
FN(hset2) {
  struct halves a, b;
  load_halves(&a, w, u, 0), load_halves(&b, w, u, 1);
  u32 low = combined(w, u, compare_half(u, a.part[0], b.part[0]));
  u32 high = combined(w, u, compare_half(u, a.part[1], b.part[1])), one = (u32)u->imm;
  STORE(u32, (low >> l & 1 ? one : 0) | (high >> l & 1 ? one << 16 : 0))
}
/* Writes one predicate per half; or, with imm, the conjunction of both halves and its inverse. */
FN(hsetp2) {
  struct halves a, b;
  load_halves(&a, w, u, 0), load_halves(&b, w, u, 1);
  u32 low = compare_half(u, a.part[0], b.part[0]), high = compare_half(u, a.part[1], b.part[1]);
  if (u->imm) return set_predicates(w, u, low & high);
  u32 lanes = sm_lanes(w, u), both[2] = {combined(w, u, low), combined(w, u, high)};
  sm_pdst(w, u, 0, lanes, both[0]);
  sm_pdst(w, u, 1, lanes, both[1]);
  return u + 1;
}

#define HALF(name) [SM_FN_##name] = name,
sm_exec_fn *const SIMD_NAME(sm_rowop_half)[SM_FN_COUNT] = {
#include "sm_rowop.def"
};
