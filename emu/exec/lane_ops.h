/* Macros to define operations on rows of 32 lanes: each is a loop that the compiler vectorizes. If every lane is
 * active, the result is stored directly, otherwise lane by lane. The machine that includes this file defines before:
 *   FN(name)   the head of an operation's function, whose arguments are w (the wave or warp) and u (the
 * micro-operation) ROW(T, i)  source row i of u ACTIVE     the mask of lanes to store DST        the first row of the
 * destination An operation's function ends by returning u + 1. */
#ifndef DOORBELL_EMU_LANE_OPS_H
#define DOORBELL_EMU_LANE_OPS_H
#include "lane_math.h"

#define ON(l)        (lanes >> (l) & 1)
#define ROWBUF(T, n) T n[ROW_LANES] __attribute__((aligned(64)))

/* d = expr for the active lanes; expr may use l, the lane, and d[l]. */
#define STORE(TD, expr)                                                                                                \
  u32 lanes = ACTIVE;                                                                                                  \
  TD *d = DST;                                                                                                         \
  if (__builtin_expect(lanes == ~0u, 1)) {                                                                             \
    LANES { d[l] = (expr); }                                                                                           \
  } else {                                                                                                             \
    LANES {                                                                                                            \
      TD r_ = (expr);                                                                                                  \
      d[l] = ON(l) ? r_ : d[l];                                                                                        \
    }                                                                                                                  \
  }                                                                                                                    \
  return u + 1;
/* expr may use a, b, c: the sources' elements of the lane. */
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

static inline void store_row(u32 *d, const u32 *r, u32 lanes) {
  if (__builtin_expect(lanes == ~0u, 1))
    memcpy(d, r, ROW_LANES * 4);
  else
    LANES { d[l] = ON(l) ? r[l] : d[l]; }
}
/* 64-bit results go through a buffer: the destination pair may overlap a source pair by one row. */
#define STORE64(TD, expr)                                                                                              \
  u32 lanes = ACTIVE;                                                                                                  \
  ROWBUF(u32, lo_);                                                                                                    \
  ROWBUF(u32, hi_);                                                                                                    \
  u32 *d = DST;                                                                                                        \
  LANES {                                                                                                              \
    uint64_t r_ = BITS_##TD(expr);                                                                                     \
    lo_[l] = (u32)r_, hi_[l] = (u32)(r_ >> 32);                                                                        \
  }                                                                                                                    \
  store_row(d, lo_, lanes), store_row(d + ROW_LANES, hi_, lanes);                                                      \
  return u + 1;
#endif
