/* Integer, logic, shift and predicate operations. Sources: PTX ISA for the results; nvdisasm output and ptxas output
 * for the encodings. */
#include "sm_simd.h"

/* ---- moves, logic ---- */
OP1(mov, u32, u32, a)
FN(sel) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  u32 mask = sm_psrc(w, u, 0);
  STORE(u32, mask >> l & 1 ? a_[l] : b_[l])
}
OP2(and_, u32, u32, u32, a &b)
OP2(or_, u32, u32, u32, a | b)
OP2(xor_, u32, u32, u32, a ^ b)
OP2(not_b, u32, u32, u32, ((void)a, ~b))
OP2(andn_b, u32, u32, u32, a & ~b)
OP2(andn_a, u32, u32, u32, ~a &b)
OP3(and3, u32, u32, u32, u32, a &b &c)
OP3(or3, u32, u32, u32, u32, a | b | c)
OP3(xor3, u32, u32, u32, u32, a ^ b ^ c)
OP3(and_or, u32, u32, u32, u32, (a & b) | c)
OP3(or_and, u32, u32, u32, u32, a | (b & c))
OP3(or_and_c, u32, u32, u32, u32, (a | b) & c)
OP3(mux_b, u32, u32, u32, u32, (a & b) | (c & ~b))
OP3(xor_and, u32, u32, u32, u32, a ^ (b & c))
OP3(mux_a, u32, u32, u32, u32, (a & b) | (c & ~a))

/* Any function of three bits: entry ab is the value as a function of c for these a and b. */
struct lut {
  u32 and_[4], xor_[4];
};
static inline struct lut lut_of(u32 lut) {
  struct lut t;
  for (u32 ab = 0; ab < 4; ab++) {
    u32 zero = -(lut >> (2 * ab) & 1), one = -(lut >> (2 * ab + 1) & 1);
    t.and_[ab] = zero ^ one, t.xor_[ab] = zero;
  }
  return t;
}
static inline u32 look_up(const struct lut *t, u32 a, u32 b, u32 c) {
  u32 f00 = (c & t->and_[0]) ^ t->xor_[0], f01 = (c & t->and_[1]) ^ t->xor_[1];
  u32 f10 = (c & t->and_[2]) ^ t->xor_[2], f11 = (c & t->and_[3]) ^ t->xor_[3];
  u32 f0 = f00 ^ ((f00 ^ f01) & b), f1 = f10 ^ ((f10 ^ f11) & b);
  return f0 ^ ((f0 ^ f1) & a);
}
FN(lop3) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);
  const struct lut t = lut_of(u->arg);
  STORE(u32, look_up(&t, a_[l], b_[l], c_[l]))
}
/* With a predicate: whether the result is not 0, combined by or, or by and (arg bit 8), with another predicate. */
FN(lop3_p) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);
  const struct lut t = lut_of(u->arg);
  ROWBUF(u32, r);
  LANES { r[l] = look_up(&t, a_[l], b_[l], c_[l]); }
  u32 bits, lanes = sm_lanes(w, u), in = sm_psrc(w, u, 0);
  LANE_BITS(bits, r[l] != 0)
  store_row(sm_dst(w, u), r, lanes);
  sm_pdst(w, u, 0, lanes, u->arg >> 8 ? bits & in : bits | in);
  return u + 1;
}

/* ---- predicates ---- */
FN(plop3) {
  u32 a = sm_psrc(w, u, 0), b = sm_psrc(w, u, 1), c = sm_psrc(w, u, 2), lanes = sm_lanes(w, u);
  const struct lut t0 = lut_of(u->arg & 0xff), t1 = lut_of(u->arg >> 8);
  u32 r0 = look_up(&t0, a, b, c), r1 = look_up(&t1, a, b, c);
  sm_pdst(w, u, 0, lanes, r0);
  sm_pdst(w, u, 1, lanes, r1);
  return u + 1;
}
/* Inputs are sign bits of registers if the flag's bit is set. */
FN(plop3_sign) {
  u32 in[3], lanes = sm_lanes(w, u);
  for (unsigned i = 0; i < 3; i++)
    if (u->flag >> i & 1)
      in[i] = gather_bits(ROW(i32, i));
    else
      in[i] = sm_psrc(w, u, i);
  const struct lut t0 = lut_of(u->arg & 0xff), t1 = lut_of(u->arg >> 8);
  u32 r0 = look_up(&t0, in[0], in[1], in[2]), r1 = look_up(&t1, in[0], in[1], in[2]);
  sm_pdst(w, u, 0, lanes, r0);
  sm_pdst(w, u, 1, lanes, r1);
  return u + 1;
}
/* Collects predicate u->psrc[0] and the six after it in the bits of a byte, for the bits that b selects; arg is the
 * byte's position. */
FN(p2r) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *p = w->p + u->psrc[0];
  u32 shift = u->arg;
  ROWBUF(u32, bits);
  LANES { bits[l] = 0; }
  for (u32 i = 0; i < 7; i++) {
    u32 mask = p[i];
    LANES { bits[l] |= (mask >> l & 1) << i; }
  }
  STORE(u32, (a_[l] & ~((b_[l] & 0xff) << shift)) | (bits[l] & b_[l] & 0xff) << shift)
}
FN(r2p) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  u32 *p = w->p + u->pdst[0], shift = u->arg, lanes = sm_lanes(w, u);
  for (u32 i = 0; i < 7; i++) {
    ROWBUF(i32, value);
    ROWBUF(i32, chosen);
    LANES {
      value[l] = (i32)(a_[l] >> (shift + i) << 31);
      chosen[l] = (i32)(b_[l] >> i << 31);
    }
    for (int l = 0; l < ROW_LANES; l++) value[l] >>= 31, chosen[l] >>= 31;
    u32 set = lanes & gather_bits(chosen);
    p[i] = (p[i] & ~set) | (gather_bits(value) & set);
  }
  return u + 1;
}

/* ---- comparisons ---- */
#define SETP(name, T, expr)                                                                                            \
  FN(name) {                                                                                                           \
    const T *a_ = ROW(T, 0), *b_ = ROW(T, 1);                                                                          \
    u32 bits;                                                                                                          \
    LANE_BITS(bits, ({                                                                                                 \
                T a = a_[l], b = b_[l];                                                                                \
                (expr);                                                                                                \
              }))                                                                                                      \
    return set_predicates(w, u, INVERTED(u, bits));                                                                    \
  }
SETP(isetp_lt, i32, a < b)
SETP(isetp_le, i32, a <= b)
SETP(isetp_lt_u, u32, a < b)
SETP(isetp_le_u, u32, a <= b)
SETP(isetp_eq, u32, a == b)
FN(isetp_false) { return set_predicates(w, u, INVERTED(u, 0)); }
/* Compares high halves; predicate 1 is the result for the low halves. */
static inline const struct sm_uop *compare_high(struct sm_warp *w, const struct sm_uop *u, u32 less, u32 equal) {
  return set_predicates(w, u, INVERTED(u, less | (equal & sm_psrc(w, u, 1))));
}
#define SETP_EX(name, T)                                                                                               \
  FN(name) {                                                                                                           \
    const T *a_ = ROW(T, 0), *b_ = ROW(T, 1);                                                                          \
    u32 less, equal;                                                                                                   \
    {LANE_BITS(less, a_[l] < b_[l])} LANE_BITS(equal, a_[l] == b_[l]) return compare_high(w, u, less, equal);          \
  }
SETP_EX(isetp_ex, i32)
SETP_EX(isetp_ex_u, u32)
FN(isetp_ex_eq) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  u32 equal;
  LANE_BITS(equal, a_[l] == b_[l])
  return compare_high(w, u, 0, equal);
}

/* ---- sums ---- */
OP2(iadd, u32, u32, u32, a + b)
OP2(isub, u32, u32, u32, a - b)
OP2(shl_add, u32, u32, u32, (a << u->arg) + b)
OP3(iadd3, u32, u32, u32, u32, a + b + c)
#define FLIPS(u, i)   const u32 flip##i = -((u)->flag >> (i) & 1)
#define FLIPPED(x, i) ((x) ^ flip##i)
FN(iadd3_neg) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);
  FLIPS(u, 0);
  FLIPS(u, 1);
  FLIPS(u, 2);
  u32 more = 0 - flip0 - flip1 - flip2;
  STORE(u32, FLIPPED(a_[l], 0) + FLIPPED(b_[l], 1) + FLIPPED(c_[l], 2) + more)
}
/* With carry inputs (negated sources are then inverted) or carry outputs. */
FN(iadd3_carry) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);
  FLIPS(u, 0);
  FLIPS(u, 1);
  FLIPS(u, 2);
  u32 extended = u->flag & SM_CARRY_IN, in0 = extended ? sm_psrc(w, u, 0) : 0, in1 = extended ? sm_psrc(w, u, 1) : 0;
  u32 more = extended ? 0 : 0 - flip0 - flip1 - flip2, lanes = sm_lanes(w, u);
  ROWBUF(u32, r);
  ROWBUF(i32, one);
  ROWBUF(i32, two);
  LANES {
    uint64_t s =
        (uint64_t)FLIPPED(a_[l], 0) + FLIPPED(b_[l], 1) + FLIPPED(c_[l], 2) + more + (in0 >> l & 1) + (in1 >> l & 1);
    u32 high = (u32)(s >> 32);
    r[l] = (u32)s, one[l] = high ? -1 : 0, two[l] = high > 1 ? -1 : 0;
  }
  store_row(sm_dst(w, u), r, lanes);
  sm_pdst(w, u, 0, lanes, gather_bits(one));
  sm_pdst(w, u, 1, lanes, gather_bits(two));
  return u + 1;
}
/* 64-bit sums of register pairs. */
FN(iadd3_64) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);
  const uint64_t f0 = -(uint64_t)(u->flag & 1), f1 = -(uint64_t)(u->flag >> 1 & 1), f2 = -(uint64_t)(u->flag >> 2 & 1);
  u32 extended = u->flag & SM_CARRY_IN, in0 = extended ? sm_psrc(w, u, 0) : 0, in1 = extended ? sm_psrc(w, u, 1) : 0;
  uint64_t more = extended ? 0 : 0 - f0 - f1 - f2;
  u32 lanes = sm_lanes(w, u), *d = sm_dst(w, u);
  ROWBUF(u32, lo);
  ROWBUF(u32, hi);
  ROWBUF(i32, one);
  ROWBUF(i32, two);
  LANES {
    uint64_t a = pair(a_, l) ^ f0, b = pair(b_, l) ^ f1, c = pair(c_, l) ^ f2, s = a + b, t = s + c;
    uint64_t k = more + (in0 >> l & 1) + (in1 >> l & 1), r = t + k;
    int carries = (s < a) + (t < s) + (r < t);
    lo[l] = (u32)r, hi[l] = (u32)(r >> 32), one[l] = carries ? -1 : 0, two[l] = carries > 1 ? -1 : 0;
  }
  store_row(d, lo, lanes), store_row(d + ROW_LANES, hi, lanes);
  sm_pdst(w, u, 0, lanes, gather_bits(one));
  sm_pdst(w, u, 1, lanes, gather_bits(two));
  return u + 1;
}
/* b + (a << arg). With high: the high word of the shifted pair c:a, plus b. Flag bits 0 and 1 negate the shifted value
 * and b (with a carry in they invert them); bit 2: c is a's sign. */
static inline const struct sm_uop *lea_of(struct sm_warp *w, const struct sm_uop *u, int high) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);
  FLIPS(u, 0);
  FLIPS(u, 1);
  u32 extended = u->flag & SM_CARRY_IN, in = extended ? sm_psrc(w, u, 0) : 0, shift = u->arg;
  u32 more = extended ? 0 : 0 - flip0 - flip1, is_signed = u->flag & 4, lanes = sm_lanes(w, u);
  ROWBUF(u32, r);
  ROWBUF(i32, carry);
  LANES {
    u32 a = a_[l], c = is_signed ? (u32)((i32)a >> 31) : c_[l];
    u32 t = high ? (u32)(((uint64_t)c << 32 | a) << shift >> 32) : a << shift;
    uint64_t s = (uint64_t)FLIPPED(t, 0) + FLIPPED(b_[l], 1) + more + (in >> l & 1);
    r[l] = (u32)s, carry[l] = s >> 32 ? -1 : 0;
  }
  store_row(sm_dst(w, u), r, lanes);
  sm_pdst(w, u, 0, lanes, gather_bits(carry));
  return u + 1;
}
FN(lea) { return lea_of(w, u, 0); }
FN(lea_hi) { return lea_of(w, u, 1); }
OP1(iabs, u32, u32, (i32)a < 0 ? -a : a)
static inline u32 distance(i32 a, i32 b) { return a > b ? (u32)a - (u32)b : (u32)b - (u32)a; }
static inline u32 distance_u(u32 a, u32 b) { return a > b ? a - b : b - a; }
OP3(vabsdiff, u32, i32, i32, u32, distance(a, b) + c)
OP3(vabsdiff_u, u32, u32, u32, u32, distance_u(a, b) + c)
#define BYTE(x, i)   ((x) >> (8 * (i)) & 0xff)
#define SBYTE(x, i)  ((i32)((x) << (24 - 8 * (i))) >> 24)
#define BYTES(f)     (f(0) | f(1) << 8 | f(2) << 16 | f(3) << 24)
#define SUM(f)       (f(0) + f(1) + f(2) + f(3))
#define UNSIGNED4(i) distance_u(BYTE(a, i), BYTE(b, i))
#define SIGNED4(i)   distance(SBYTE(a, i), SBYTE(b, i))
OP3(vabsdiff4, u32, u32, u32, u32, ((void)c, BYTES(SIGNED4)))
OP3(vabsdiff4_u, u32, u32, u32, u32, ((void)c, BYTES(UNSIGNED4)))
OP3(vabsdiff4_acc, u32, u32, u32, u32, SUM(SIGNED4) + c)
OP3(vabsdiff4_acc_u, u32, u32, u32, u32, SUM(UNSIGNED4) + c)
FN(viadd_16x2) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  FLIPS(u, 1);
  u32 more = flip1 & 1;
  STORE(u32, ({
          u32 a = a_[l], b = b_[l] ^ flip1;
          ((a + b + more) & 0xffff) | ((a >> 16) + (b >> 16) + more) << 16;
        }))
}

/* ---- minimum and maximum ---- */
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
OP2(imin, i32, i32, i32, MIN(a, b))
OP2(imax, i32, i32, i32, MAX(a, b))
OP2(imin_u, u32, u32, u32, MIN(a, b))
OP2(imax_u, u32, u32, u32, MAX(a, b))
/* Minimum or maximum of a and b, then of c if flag bit 3 is set; or of a + b and c if bit 4 is set. Elements have 32 or
 * 16 bits. */
enum { THIRD = SM_MINMAX_THIRD, ADD = SM_MINMAX_ADD };
#define PICK(T, a, b) (least ? MIN((T)(a), (T)(b)) : MAX((T)(a), (T)(b)))
#define MINMAX(name, T, BITS)                                                                                          \
  FN(name) {                                                                                                           \
    const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);                                                 \
    FLIPS(u, 1);                                                                                                       \
    FLIPS(u, 2);                                                                                                       \
    u32 mask = sm_psrc(w, u, 0), third = u->flag & THIRD, add = u->flag & ADD, relu = u->flag & SM_RELU;               \
    STORE(u32, ({                                                                                                      \
            u32 r = 0, least = mask >> l & 1;                                                                          \
            for (int at = 0; at < 32; at += BITS) {                                                                    \
              T a = (T)(a_[l] >> at), b = (T)((b_[l] >> at ^ flip1) - flip1), c = (T)((c_[l] >> at ^ flip2) - flip2);  \
              T ab = add ? (T)((u32)a + (u32)b) : PICK(T, a, b), m = add || third ? PICK(T, ab, c) : ab;               \
              m = relu && m < (T)1 ? 0 : m;                                                                            \
              r |= ((u32)m & (~0u >> (32 - BITS))) << at;                                                              \
            }                                                                                                          \
            r;                                                                                                         \
          }))                                                                                                          \
  }
MINMAX(minmax, i32, 32)
MINMAX(minmax_u, u32, 32)
MINMAX(minmax_16, i16, 16)
MINMAX(minmax_u16, u16, 16)

/* ---- shifts and bytes ---- */
OP1(shl, u32, u32, a << u->arg)
OP1(shr, u32, u32, a >> u->arg)
OP1(sar, i32, i32, a >> u->arg)
/* a is the low word and c the high word; arg is in [1, 31]. */
OP2(funnel_left, u32, u32, u32, b << u->arg | a >> (32 - u->arg))
OP2(funnel_right, u32, u32, u32, a >> u->arg | b << (32 - u->arg))
OP2(shl_v, u32, u32, u32, b < 32 ? a << (b & 31) : 0)
OP2(shr_v, u32, u32, u32, b < 32 ? a >> (b & 31) : 0)
OP2(sar_v, i32, i32, u32, a >> (b < 32 ? b : 31))
/* The general funnel shift. flag: SASS bits from 73 on. */
FN(shf) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);
  u32 type = u->flag & 3, width = type < 2 ? 64 : 32, wrap = u->flag >> 2 & 1, right = u->flag >> 3 & 1,
      high = u->flag >> 7 & 1, is_signed = !(type & 1);
  STORE(u32, ({
          u32 b = b_[l], n = wrap ? b & (width - 1) : b < width ? b : width;
          uint64_t v = (uint64_t)c_[l] << 32 | a_[l], low = v << (n & 63), up = v >> (n & 63);
          uint64_t arithmetic = (uint64_t)((i64)v >> (n < 64 ? n : 63));
          low = n < 64 ? low : 0, up = is_signed ? arithmetic : n < 64 ? up : 0;
          uint64_t r = right ? up : low;
          (u32)(high ? r >> 32 : r);
        }))
}
/* The low n bits, sign- or zero-extended. flag: SASS bits from 73 on. */
FN(sgxt) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  u32 zero = !(u->flag & 1), wrap = u->flag >> 2 & 1;
  STORE(u32, ({
          u32 b = b_[l], n = wrap ? b & 31 : b < 32 ? b : 32, gone = 32 - n, up = n ? a_[l] << (gone & 31) : 0;
          u32 z = up >> (gone & 31), s = (u32)((i32)up >> (gone & 31));
          zero ? z : s;
        }))
}
/* b ones, starting at bit a. */
FN(bmsk) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  u32 wrap = u->flag >> 2 & 1;
  STORE(u32, ({
          u32 a = wrap ? a_[l] & 31 : a_[l], b = wrap ? b_[l] & 31 : b_[l];
          u32 ones_ = b < 32 ? (1u << (b & 31)) - 1 : ~0u;
          a < 32 ? ones_ << (a & 31) : 0;
        }))
}
/* Returns the byte of c:a that a selector nibble names; bit 3 of the nibble replicates the byte's sign. */
static inline u32 permute_byte(uint64_t ca, u32 sel) {
  u32 byte = (u32)(ca >> (8 * (sel & 7))) & 0xff;
  return sel & 8 ? (0 - (byte >> 7)) & 0xff : byte;
}
static inline u32 permute(u32 a, u32 b, u32 c) {
  uint64_t ca = (uint64_t)c << 32 | a;
  return permute_byte(ca, b) | permute_byte(ca, b >> 4) << 8 | permute_byte(ca, b >> 8) << 16 |
         permute_byte(ca, b >> 12) << 24;
}
OP3(prmt, u32, u32, u32, u32, permute(a, b, c))
/* For the same selector, arg, in all lanes. */
FN(prmt_same) {
  const u32 *rows[2] = {ROW(u32, 0), ROW(u32, 2)}, *row[4];
  u32 shift[4], sign[4];
  for (u32 k = 0; k < 4; k++) {
    u32 n = u->arg >> (4 * k) & 15;
    row[k] = rows[n >> 2 & 1], shift[k] = 24 - 8 * (n & 3), sign[k] = n & 8 ? 31 : 24;
  }
  /* With sign the byte's top bit is replicated into all eight bits; otherwise the byte itself. The mask below removes
   * the rest. */
#define PART(k) (((u32)((i32)(row[k][l] << shift[k]) >> sign[k]) & 0xff) << (8 * (k)))
  STORE(u32, PART(0) | PART(1) | PART(2) | PART(3))
}
/* Returns the selector that another mode is equivalent to. arg: mode. */
static inline u32 selector(u32 mode, u32 s) {
  u32 r = 0;
  for (u32 k = 0; k < 4; k++) {
    u32 n = mode == 1   ? s + k
            : mode == 2 ? (s - k) & 7
            : mode == 3 ? s
            : mode == 4 ? MAX(k, s)
            : mode == 5 ? MIN(k, s)
                        : 2 * (s & 1) + (k & 1);
    r |= n << (4 * k);
  }
  return r;
}
FN(prmt_mode) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);
  u32 mode = u->arg;
  STORE(u32, permute(a_[l], selector(mode, b_[l] & 3), c_[l]))
}
OP1(popc, u32, u32, ones(a ^ u->arg))
OP1(brev, u32, u32, reverse(a))
/* The position of the highest set bit, or of the highest bit that differs from the sign. arg: value to xor with; flag:
 * SASS bits from 73 on. */
FN(flo) {
  const u32 *a_ = ROW(u32, 0);
  u32 flip = u->arg, is_signed = u->flag & 1, shift_amount = u->flag >> 1 & 1, lanes = sm_lanes(w, u), bits;
  ROWBUF(u32, r);
  LANES {
    u32 a = a_[l] ^ flip, x = is_signed ? a ^ (u32)((i32)a >> 31) : a, at = ones(smear(x)) - 1;
    r[l] = shift_amount && x ? 31 - at : at;
  }
  LANE_BITS(bits, r[l] != ~0u)
  store_row(sm_dst(w, u), r, lanes);
  sm_pdst(w, u, 0, lanes, bits);
  return u + 1;
}

/* ---- products ---- */
OP2(imul, u32, u32, u32, a *b)
OP3(imad, u32, u32, u32, u32, a *b + c)
OP3(imad_sub, u32, u32, u32, u32, a *b - c)
FN(imad_x) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);
  FLIPS(u, 2);
  u32 in = sm_psrc(w, u, 0);
  STORE(u32, a_[l] * b_[l] + FLIPPED(c_[l], 2) + (in >> l & 1))
}
static inline uint64_t product(u32 a, u32 b) { return (uint64_t)a * b; }
static inline uint64_t product_s(u32 a, u32 b) { return (uint64_t)((i64)(i32)a * (i32)b); }
#define WIDE(name, mul)                                                                                                \
  FN(name) {                                                                                                           \
    const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);                                                 \
    STORE64(u64, mul(a_[l], b_[l]) + pair(c_, l))                                                                      \
  }
WIDE(imad_wide, product_s)
WIDE(imad_wide_u, product)
OP2(imul_hi, u32, u32, u32, (u32)(product_s(a, b) >> 32))
OP2(imul_hi_u, u32, u32, u32, (u32)(product(a, b) >> 32))
/* All options: c negated, or inverted with a carry in; a carry out; with arg bit 0 only the high word is written. */
FN(imad_wide_carry) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);
  const uint64_t flip = -(uint64_t)(u->flag >> 2 & 1);
  u32 extended = u->flag & SM_CARRY_IN, in = extended ? sm_psrc(w, u, 0) : 0, unsigned_ = u->flag & SM_UNSIGNED;
  u32 more = extended ? 0 : (u32)flip & 1, lanes = sm_lanes(w, u), *d = sm_dst(w, u);
  ROWBUF(u32, lo);
  ROWBUF(u32, hi);
  ROWBUF(i32, carry);
  LANES {
    uint64_t p = unsigned_ ? product(a_[l], b_[l]) : product_s(a_[l], b_[l]), s = p + (pair(c_, l) ^ flip);
    uint64_t t = s + more + (in >> l & 1);
    lo[l] = (u32)t, hi[l] = (u32)(t >> 32), carry[l] = s < p || t < s ? -1 : 0;
  }
  if (!u->arg) store_row(d, lo, lanes), d += ROW_LANES;
  store_row(d, hi, lanes);
  sm_pdst(w, u, 0, lanes, gather_bits(carry));
  return u + 1;
}
#define ELEMENT(x, i, bits, is_signed)                                                                                 \
  ({                                                                                                                   \
    u32 up_ = (x) << (32 - (bits) - (i) * (bits));                                                                     \
    is_signed ? (i32)up_ >> (32 - (bits)) : (i32)(up_ >> (32 - (bits)));                                               \
  })
/* Sums of four products of bytes, or of two products of a half and a byte. flag: SASS bits from 73 on. */
FN(idp4) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);
  u32 sa = u->flag & 1, sb = u->flag >> 1 & 1, flip = 0 - (u->flag >> 2 & 1);
  STORE(u32, ({
          u32 s = (c_[l] ^ flip) - flip;
          for (int i = 0; i < 4; i++) s += (u32)(ELEMENT(a_[l], i, 8, sa) * ELEMENT(b_[l], i, 8, sb));
          s;
        }))
}
FN(idp2) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);
  u32 sa = u->flag & 1, sb = u->flag >> 1 & 1, flip = 0 - (u->flag >> 2 & 1), first = u->arg;
  STORE(u32, ({
          u32 s = (c_[l] ^ flip) - flip, b = b_[l] >> first;
          for (int i = 0; i < 2; i++) s += (u32)(ELEMENT(a_[l], i, 16, sa) * ELEMENT(b, i, 8, sb));
          s;
        }))
}

/* ---- narrowing ---- */
/* imm: the lowest and the highest value; arg: bits per element. Bits above an element are 0: ptxas 13.4 uses the result
 * of I2I.S16 as an unsigned number of 32 bits. */
static inline u32 clamp_to(u32 x, i32 low, i32 high) {
  i32 s = (i32)x;
  return (u32)(s < low ? low : s > high ? high : s);
}
FN(i2i) {
  const u32 *a_ = ROW(u32, 0);
  i32 low = (i32)u->imm, high = (i32)(u->imm >> 32);
  u32 mask = (1u << u->arg) - 1;
  STORE(u32, clamp_to(a_[l], low, high) & mask)
}
/* Saturates and packs b and, above it, a. The rest of the register comes from c: its low bits, or (flag) its upper
 * half. */
FN(i2ip) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1), *c_ = ROW(u32, 2);
  i32 low = (i32)u->imm, high = (i32)(u->imm >> 32);
  u32 bits = u->arg, mask = (1u << bits) - 1, shift = u->flag ? 16 : 0;
  STORE(u32, (clamp_to(b_[l], low, high) & mask) | (clamp_to(a_[l], low, high) & mask) << bits |
                 (u32)((uint64_t)(c_[l] >> shift) << (2 * bits)))
}

#define INT(name) [SM_FN_##name] = name,
sm_exec_fn *const SIMD_NAME(sm_rowop_int)[SM_FN_COUNT] = {
#include "sm_rowop.def"
};
