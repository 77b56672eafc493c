/* An evaluator of scalar expressions, independent of the code under test: exact in each type, with a flag for undefined
 * results. */
#ifndef TESTS_GRAPH_EVAL_H
#define TESTS_GRAPH_EVAL_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "graph/uop.h"

union value {
  int64_t i;
  double f;
};
struct env {
  struct uop *leaf[64];
  union value value[64];
  unsigned n;
  bool undefined; /* division by zero, a shift by too much, a float out of an integer's range, a NaN made from bits (it
                     may be quieted) */
  bool overflow;  /* an index exceeds 64 bits; also undefined */
  uint64_t time;  /* counts changes of values */
  union value (*load)(struct env *e, struct uop *load);
  void *user;
  bool lowered; /* evaluate like compiled code: conversions to integers saturate, and all NaNs are equal, also those
                   made from bits */
};

static uint64_t rng_state = 88172645463325252;
static inline uint64_t rng(void) {
  rng_state ^= rng_state << 13, rng_state ^= rng_state >> 7, rng_state ^= rng_state << 17;
  return rng_state * 0x2545f4914f6cdd1d >> 11;
}
static inline int64_t pick(int64_t lo, int64_t hi) { return lo + (int64_t)(rng() % (uint64_t)(hi - lo + 1)); }

static inline int64_t eval_wrap(enum dtype t, __int128 v, bool *overflow) {
  switch (t) {
  case DT_BOOL: return v != 0;
  case DT_I8: return (int8_t)v;
  case DT_U8: return (uint8_t)v;
  case DT_I16: return (int16_t)v;
  case DT_U16: return (uint16_t)v;
  case DT_I32: return (int32_t)v;
  case DT_U32: return (uint32_t)v;
  case DT_INDEX:
    if (v != (int64_t)v) *overflow = true;
    return (int64_t)v;
  default: return (int64_t)v;
  }
}
static inline __int128 eval_widen(enum dtype t, int64_t v) { return t == DT_U64 ? (__int128)(uint64_t)v : v; }

/* Rounds to a binary format by scaling to an integer: to nearest, ties to even. */
static inline double eval_round(enum dtype t, double v) {
  static const struct {
    int digits, least, most;
  } formats[DT_COUNT] = {[DT_F16] = {11, -14, 15},
                         [DT_BF16] = {8, -126, 127},
                         [DT_F32] = {24, -126, 127},
                         [DT_F8E4M3] = {4, -6, 8},
                         [DT_F8E5M2] = {3, -14, 15}};
  int digits = formats[t].digits, least = formats[t].least, most = formats[t].most, e;
  if (t == DT_F8E4M3 && isinf(v)) return NAN;
  if (!digits || !isfinite(v) || v == 0) return v;
  frexp(v, &e);
  e = e - 1 < least ? least : e - 1;
  double unit = ldexp(1, e - digits + 1), r = nearbyint(v / unit) * unit;
  if (t == DT_F8E4M3 && fabs(r) > 448) return NAN;
  return fabs(r) >= ldexp(1, most + 1) ? copysign(INFINITY, v) : copysign(r, v);
}

static union value eval(struct env *e, struct uop *u);

/* op of floats of type t */
static inline union value eval_float(enum op op, enum dtype t, double a, double b, double c) {
  union value r = {0};
  double v;
  switch (op) {
  case OP_CMPLT: return (union value){.i = a < b};
  case OP_CMPEQ: return (union value){.i = a == b};
  case OP_CMPNE: return (union value){.i = a != b};
  case OP_NEG: v = -a; break;
  case OP_FUNCTION: v = a; break;
  case OP_RECIP: v = 1 / a; break;
  case OP_SQRT: v = sqrt(a); break;
  case OP_EXP2: v = exp2(a); break;
  case OP_LOG2: v = log2(a); break;
  case OP_SIN: v = sin(a); break;
  case OP_TRUNC: v = trunc(a); break;
  case OP_ADD: v = a + b; break;
  case OP_SUB: v = a - b; break;
  case OP_MUL: v = a * b; break;
  case OP_FDIV: v = a / b; break;
  case OP_MAX: v = isnan(a) || isnan(b) ? NAN : a == b ? (signbit(a) ? b : a) : a > b ? a : b; break;
  case OP_SHL: v = isinf(b) ? (b < 0 ? 0 : b) : ldexp(a, (int)fmax(-5000, fmin(b, 5000))); break;
  case OP_MULACC: v = t == DT_F32 ? (double)fmaf((float)a, (float)b, (float)c) : fma(a, b, c); break;
  default: fail_msg("float %s", op_info[op].name); return r;
  }
  r.f = eval_round(t, v);
  return r;
}

/* op of integers or bools of type t */
static inline union value eval_int(struct env *e, enum op op, enum dtype t, int64_t sa, int64_t sb, int64_t sc) {
  __int128 a = eval_widen(t, sa), b = eval_widen(t, sb), c = eval_widen(t, sc), v = 0;
  int bits = dtype_info[t].size * 8;
  switch (op) {
  case OP_CMPLT: return (union value){.i = a < b};
  case OP_CMPEQ: return (union value){.i = a == b};
  case OP_CMPNE: return (union value){.i = a != b};
  case OP_NEG: v = -a; break;
  case OP_FUNCTION: v = a; break;
  case OP_ADD: v = a + b; break;
  case OP_SUB: v = a - b; break;
  case OP_MUL: v = (__int128)((unsigned __int128)a * (unsigned __int128)b); break;
  case OP_MULACC: v = (__int128)((unsigned __int128)a * (unsigned __int128)b + (unsigned __int128)c); break;
  case OP_IDIV:
  case OP_MOD:
    if (!b) {
      e->undefined = true;
      return (union value){0};
    }
    v = op == OP_IDIV ? a / b : a % b;
    break;
  case OP_MAX: v = a > b ? a : b; break;
  case OP_AND: v = a & b; break;
  case OP_OR: v = a | b; break;
  case OP_XOR: v = a ^ b; break;
  case OP_SHL:
  case OP_SHR:
    if (b < 0 || b >= bits) {
      e->undefined = true;
      return (union value){0};
    }
    v = op == OP_SHL ? (__int128)((unsigned __int128)a << b) : a >> b;
    break;
  default: fail_msg("integer %s", op_info[op].name);
  }
  return (union value){.i = eval_wrap(t, v, &e->overflow)};
}

static inline union value eval_cast(struct env *e, struct uop *u) {
  union value x = eval(e, u->src[0]), r = {0};
  enum dtype from = u->src[0]->dtype, to = u->dtype;
  if (dtype_is_float(from)) {
    if (dtype_is_float(to))
      r.f = eval_round(to, x.f);
    else if (to == DT_BOOL)
      r.i = x.f != 0;
    else {
      double v = trunc(x.f), end = ldexp(1, dtype_info[to].size * 8 - (dtype_info[to].cls == 'i'));
      double least = dtype_info[to].cls == 'i' ? -end : 0;
      if (!(v >= least && v < end)) {
        e->undefined |= !e->lowered;
        if (v >= end) r.i = to == DT_U64 ? -1 : end > 0x1p62 ? INT64_MAX : (int64_t)end - 1;
        if (v < least) r.i = (int64_t)least;
      } else
        r.i = to == DT_U64 ? (int64_t)(uint64_t)v : (int64_t)v;
    }
    return r;
  }
  if (!dtype_is_float(to))
    return (union value){.i = to == DT_BOOL ? x.i != 0 : eval_wrap(to, eval_widen(from, x.i), &e->overflow)};
  if (from == DT_U64)
    r.f = to == DT_F32 ? (double)(float)(uint64_t)x.i : eval_round(to, (double)(uint64_t)x.i);
  else
    r.f = to == DT_F32 ? (double)(float)x.i : eval_round(to, (double)x.i);
  return r;
}

static inline union value eval_from_bits(enum dtype t, uint64_t bits);
static inline uint64_t eval_bits(enum dtype t, union value v) {
  float f = (float)v.f;
  uint32_t w;
  uint16_t h;
  memcpy(&w, &f, 4);
  switch (t) {
  case DT_F32: return w;
  case DT_BF16: return w >> 16;
  case DT_F8E4M3:
  case DT_F8E5M2:
    for (unsigned i = 0; i < 256; i++)
      if (!memcmp(&(double){eval_from_bits(t, i).f}, &v.f, sizeof v.f)) return i;
    return 0x7f;
  case DT_F16: {
    _Float16 x = (_Float16)f;
    memcpy(&h, &x, 2);
    return h;
  }
  default: return (uint64_t)v.i;
  }
}
static inline union value eval_from_bits(enum dtype t, uint64_t bits) {
  union value r = {.i = (int64_t)bits};
  uint32_t w = (uint32_t)bits;
  uint16_t h = (uint16_t)bits;
  float f;
  _Float16 x;
  bool ignored;
  switch (t) {
  case DT_BF16: w <<= 16; /* fall through */
  case DT_F32:
    memcpy(&f, &w, 4);
    r.f = (double)f;
    return r;
  case DT_F16:
    memcpy(&x, &h, 2);
    r.f = (double)x;
    return r;
  case DT_F64: return r;
  case DT_F8E4M3:
  case DT_F8E5M2: { /* by definition: sign, exponent, mantissa */
    int mantissa = t == DT_F8E4M3 ? 3 : 2, bias = t == DT_F8E4M3 ? 7 : 15;
    int exponent = (int)(bits & 0x7f) >> mantissa, m = (int)bits & ((1 << mantissa) - 1);
    if (t == DT_F8E4M3 ? (bits & 0x7f) == 0x7f : exponent == 31 && m)
      r.f = NAN;
    else if (t == DT_F8E5M2 && exponent == 31)
      r.f = INFINITY;
    else
      r.f = ldexp(m + (exponent ? 1 << mantissa : 0), (exponent ? exponent : 1) - bias - mantissa);
    if (bits & 0x80) r.f = -r.f;
    return r;
  }
  default: r.i = eval_wrap(t, (__int128)bits, &ignored); return r;
  }
}

static inline union value eval_identity(enum op op, enum dtype t) {
  static const int64_t least[DT_COUNT] = {
      [DT_I8] = INT8_MIN, [DT_I16] = INT16_MIN, [DT_I32] = INT32_MIN, [DT_I64] = INT64_MIN};
  if (dtype_is_float(t)) return (union value){.f = op == OP_MAX ? -INFINITY : op == OP_MUL};
  return (union value){.i = op == OP_MAX ? least[t] : op == OP_MUL};
}

/* op of two values of type t */
static inline union value eval_two(struct env *e, enum op op, enum dtype t, union value a, union value b) {
  return dtype_is_float(t) ? eval_float(op, t, a.f, b.f, 0) : eval_int(e, op, t, a.i, b.i, 0);
}

/* Combines the values of a REDUCE in the order of its ranges. first: none was combined yet. */
static inline void eval_reduce(struct env *e, struct uop *u, unsigned r, union value *acc, bool *first) {
  if (r == u->nsrc) {
    union value x = eval(e, u->src[0]);
    *acc = *first ? x : eval_two(e, u->aux, u->dtype, *acc, x);
    *first = false;
    return;
  }
  int64_t n = eval(e, u->src[r]->src[0]).i;
  unsigned at = e->n++;
  assert_true(at < 64);
  e->leaf[at] = u->src[r];
  for (int64_t i = 0; i < n; i++) {
    e->value[at].i = i, e->time++;
    eval_reduce(e, u, r + 1, acc, first);
  }
  e->n--, e->time++;
}

static __attribute__((unused)) int64_t variable; /* the value of every VAR that is not a leaf */

static union value eval(struct env *e, struct uop *u) {
  for (unsigned i = e->n; i-- > 0;)
    if (e->leaf[i] == u) return e->value[i];
  if (u->op == OP_CONST) return (union value){.i = u->arg.i};
  if (u->op == OP_VAR) return (union value){.i = variable};
  if (u->op == OP_LOAD && e->load) return e->load(e, u);
  if (u->op == OP_REDUCE) {
    union value acc = eval_identity(u->aux, u->dtype);
    bool first = true;
    eval_reduce(e, u, 1, &acc, &first);
    return acc;
  }
  if (op_info[u->op].cls != OPCLASS_ALU) {
    char buf[200];
    fail_msg("no value for %s", uop_expr(u, buf, sizeof buf));
  }
  if (u->op == OP_CAST) return eval_cast(e, u);
  if (u->op == OP_BITCAST) {
    union value v = eval_from_bits(u->dtype, eval_bits(u->src[0]->dtype, eval(e, u->src[0])));
    e->undefined |= dtype_is_float(u->dtype) && isnan(v.f) && !e->lowered;
    return v;
  }
  if (u->op == OP_WHERE) return eval(e, eval(e, u->src[0]).i ? u->src[1] : u->src[2]);
  union value a = eval(e, u->src[0]), b = u->nsrc > 1 ? eval(e, u->src[1]) : a,
              c = u->nsrc > 2 ? eval(e, u->src[2]) : a;
  enum dtype t = u->src[0]->dtype;
  return dtype_is_float(t) ? eval_float(u->op, t, a.f, b.f, c.f) : eval_int(e, u->op, t, a.i, b.i, c.i);
}

static inline bool eval_same(enum dtype t, union value a, union value b) {
  return a.i == b.i || (dtype_is_float(t) && isnan(a.f) && isnan(b.f));
}
#endif
