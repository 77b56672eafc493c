/* Writing vector operations: each is a loop over 32 lanes that the compiler turns into the host's vectors (these files
 * are compiled once per host feature level). With every lane active the result is stored outright, otherwise lane by
 * lane under EXEC. */
#ifndef DOORBELL_EMU_AMD_RDNA3_SIMD_H
#define DOORBELL_EMU_AMD_RDNA3_SIMD_H
#include "../lane_math.h"
#include "rdna3_exec.h"

#define ALL       (*w->lanes == ~0u)
#define ON(l)     (lanes >> (l) & 1)
#define FN(name)  static const struct rdna3_uop *name(struct rdna3_wave *w, const struct rdna3_uop *u)
#define ROW(T, i) ((const T *)rdna3_row(w, u, i))

/* d = expr for the active lanes; expr may use a, b, c (the sources' elements at this lane) and d[l]. */
#define STORE(TD, expr)                                                                                                \
  u32 lanes = *w->lanes;                                                                                               \
  TD *d = rdna3_dst(w, u);                                                                                             \
  if (__builtin_expect(lanes == ~0u, 1)) {                                                                             \
    LANES { d[l] = (expr); }                                                                                           \
  } else {                                                                                                             \
    LANES {                                                                                                            \
      TD r_ = (expr);                                                                                                  \
      d[l] = ON(l) ? r_ : d[l];                                                                                        \
    }                                                                                                                  \
  }                                                                                                                    \
  return u + 1;
#define OP1(name, TD, TA, expr)                                                                                        \
  FN(name) {                                                                                                           \
    const TA *a_ = ROW(TA, 0);                                                                                         \
    STORE(TD, ({                                                                                                       \
            TA a = a_[l];                                                                                              \
            (expr);                                                                                                    \
          }))                                                                                                          \
  }
#define OP2(name, TD, TA, TB, expr)                                                                                    \
  FN(name) {                                                                                                           \
    const TA *a_ = ROW(TA, 0);                                                                                         \
    const TB *b_ = ROW(TB, 1);                                                                                         \
    STORE(TD, ({                                                                                                       \
            TA a = a_[l];                                                                                              \
            TB b = b_[l];                                                                                              \
            (expr);                                                                                                    \
          }))                                                                                                          \
  }
#define OP3(name, TD, TA, TB, TC, expr)                                                                                \
  FN(name) {                                                                                                           \
    const TA *a_ = ROW(TA, 0);                                                                                         \
    const TB *b_ = ROW(TB, 1);                                                                                         \
    const TC *c_ = ROW(TC, 2);                                                                                         \
    STORE(TD, ({                                                                                                       \
            TA a = a_[l];                                                                                              \
            TB b = b_[l];                                                                                              \
            TC c = c_[l];                                                                                              \
            (expr);                                                                                                    \
          }))                                                                                                          \
  }

/* Results go through a buffer: the destination pair may overlap a source pair by one row. */
#define STORE64(TD, expr)                                                                                              \
  u32 lanes = *w->lanes, lo_[RDNA3_LANES] __attribute__((aligned(64))), hi_[RDNA3_LANES] __attribute__((aligned(64))); \
  u32 *d = rdna3_dst(w, u);                                                                                            \
  LANES {                                                                                                              \
    uint64_t r_ = BITS_##TD(expr);                                                                                     \
    lo_[l] = (u32)r_, hi_[l] = (u32)(r_ >> 32);                                                                        \
  }                                                                                                                    \
  store_row(d, lo_, lanes), store_row(d + RDNA3_LANES, hi_, lanes);                                                    \
  return u + 1;

static inline void store_row(u32 *d, const u32 *r, u32 lanes) {
  if (__builtin_expect(lanes == ~0u, 1))
    memcpy(d, r, RDNA3_LANES * 4);
  else
    LANES { d[l] = ON(l) ? r[l] : d[l]; }
}

static inline void write_mask(struct rdna3_wave *w, const struct rdna3_uop *u, u32 bits) {
  w->s[u->sdst + w->half] = bits;
}
static inline u32 read_mask(const struct rdna3_wave *w, const struct rdna3_uop *u) { return w->s[u->smask + w->half]; }
#endif
