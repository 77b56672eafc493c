/* Macros to define SASS operations on rows (emu/exec/lane_ops.h), and what the operations share: predicates, float
 * modifiers, comparisons, small formats. Included by files that are compiled once per host feature level. */
#ifndef DOORBELL_EMU_NV_SM_SIMD_H
#define DOORBELL_EMU_NV_SM_SIMD_H
/* No code reads exception flags. Without them a choice between two results needs no branch. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif
#include "sm_rowop.h"

#define FN(name)  static const struct sm_uop *name(struct sm_warp *w, const struct sm_uop *u)
#define ROW(T, i) ((const T *)sm_row(w, u, i))
#define ACTIVE    sm_lanes(w, u)
#define DST       sm_dst(w, u)
#include "../../exec/lane_ops.h"

/* The last step of a comparison: combines its result c, and the inverse of c, with the accumulator predicate. */
static inline u32 combined(const struct sm_warp *w, const struct sm_uop *u, u32 c) {
  u32 acc = sm_psrc(w, u, 0), how = u->arg & 3;
  return how == SM_COMBINE_AND ? c & acc : how == SM_COMBINE_OR ? c | acc : c ^ acc;
}
static inline const struct sm_uop *set_predicates(struct sm_warp *w, const struct sm_uop *u, u32 c) {
  u32 lanes = sm_lanes(w, u), both[2] = {combined(w, u, c), combined(w, u, ~c)};
  sm_pdst(w, u, 0, lanes, both[0]);
  sm_pdst(w, u, 1, lanes, both[1]);
  return u + 1;
}
#define INVERTED(u, bits) ((bits) ^ -(u32)((u)->arg >> SM_INVERT_SHIFT & 1))

/* Source modifiers of floats: |x| first, then -x. */
#define KEEP(u, i, sign) ((u)->flag & SM_ABS(i) ? ~(sign) : (sign) | ~(sign))
#define FLIP(u, i, sign) ((u)->flag & SM_NEG(i) ? (sign) : (sign) ^ (sign))
#define MODIFIED(x, i)   (((x) & keep##i) ^ flip##i)
#define MODIFIERS(u, i)  const u32 keep##i = KEEP(u, i, 0x80000000u), flip##i = FLIP(u, i, 0x80000000u)
#define MODIFIERS64(u, i)                                                                                              \
  const uint64_t keep##i = KEEP(u, i, 0x8000000000000000u), flip##i = FLIP(u, i, 0x8000000000000000u)
#define MODIFIERS16(u, i) const u32 keep##i = KEEP(u, i, 0x80008000u), flip##i = FLIP(u, i, 0x80008000u)

static inline f32 flush32(f32 x) { return as_u32(x) & 0x7f800000 ? x : as_f32(as_u32(x) & 0x80000000); }
static inline f32 canonical32(f32 x) { return x != x ? as_f32(0x7fffffff) : x; }
static inline f64 canonical64(f64 x) { return x != x ? as_f64(0xfff8000000000000) : x; }
static inline f32 saturate32(f32 x) {
  f32 r = x > 0 ? x : 0;
  return r < 1 ? r : 1;
}
/* Maps floats to integers of the same order, with -0 below 0. */
static inline i32 ordered(u32 x) { return (i32)x < 0 ? (i32)(x ^ 0x7fffffff) : (i32)x; }
#define NAN32(x) (((x) & 0x7fffffff) > 0x7f800000)
/* Evaluates the comparison in arg; one result bit per lane. */
#define COMPARE(bits, a, b)                                                                                            \
  switch (u->arg >> SM_COMPARE_SHIFT & 7) {                                                                            \
  case SM_COMPARE_LT: {                                                                                                \
    LANE_BITS(bits, (a) < (b))                                                                                         \
  } break;                                                                                                             \
  case SM_COMPARE_EQ: {                                                                                                \
    LANE_BITS(bits, (a) == (b))                                                                                        \
  } break;                                                                                                             \
  case SM_COMPARE_LE: {                                                                                                \
    LANE_BITS(bits, (a) <= (b))                                                                                        \
  } break;                                                                                                             \
  case SM_COMPARE_NE: {                                                                                                \
    LANE_BITS(bits, (a) < (b) || (a) > (b))                                                                            \
  } break;                                                                                                             \
  case SM_COMPARE_NUM: {                                                                                               \
    LANE_BITS(bits, (a) == (a) && (b) == (b))                                                                          \
  } break;                                                                                                             \
  }

/* Returns the magnitude of x in a format of `mantissa` and `exponent` bits, rounded once as if the exponent were
 * unbounded. x is not NaN. */
static inline i64 magnitude(f64 x, int mantissa, int exponent, u32 round) {
  uint64_t v = as_u64(x), a = v & INT64_MAX;
  i64 power = (i64)(a >> 52) - 1023, least = 2 - (1 << (exponent - 1)), negative = (i64)(v >> 63);
  i64 drop = 52 - mantissa + (power < least ? least - power : 0);
  drop = drop > 54 ? 54 : drop;
  uint64_t m = (a & 0xfffffffffffff) | (a >> 52 ? 1ull << 52 : 0), kept = m >> drop;
  uint64_t rest = m & ((1ull << drop) - 1), tie = 1ull << (drop - 1);
  uint64_t up = round == SM_ROUND_NEAREST ? rest > tie || (rest == tie && kept & 1)
                : round == SM_ROUND_ZERO  ? 0
                                          : (round == SM_ROUND_DOWN ? negative : !negative) && rest;
  return (i64)(kept + up) + (power >= least ? (i64)(power - least) << mantissa : 0);
}
/* Returns the format's bits with the sign on top. Too large a value becomes infinity or the largest number, as the
 * rounding mode (enum sm_round) requires. */
static inline u32 narrow(f64 x, int mantissa, int exponent, u32 round) {
  i64 r = magnitude(x, mantissa, exponent, round), infinity = (i64)((1 << exponent) - 1) << mantissa;
  u32 negative = (u32)(as_u64(x) >> 63), away = round == SM_ROUND_DOWN ? negative : !negative;
  u32 unbounded = x - x != 0 || round == SM_ROUND_NEAREST || (round != SM_ROUND_ZERO && away);
  r = r >= infinity ? infinity - !unbounded : r;
  return (u32)r | negative << (mantissa + exponent);
}
/* Convert a byte to a float. Exact. */
static inline f32 from_e5m2(u32 x) { return half_to_float(x << 8); }
static inline f32 from_e4m3(u32 x) {
  u32 size = x & 0x7f, sign = (x & 0x80) << 24;
  f32 normal = as_f32((size << 20) + (120u << 23)), tiny = (f32)(i32)size * 0x1p-9f;
  u32 r = size == 0x7f ? 0x7fffffff : size < 8 ? as_u32(tiny) : as_u32(normal);
  return as_f32(r | sign);
}
#endif
