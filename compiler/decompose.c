/* Operations in terms of what every target has, with one meaning everywhere.
 *
 * Integer division by zero gives 0 and the least integer divided by -1 wraps; shift counts are taken modulo the width;
 * MAX lets NaN through; bf16 and 8-bit float arithmetic is f32 arithmetic, rounded. EXP2, LOG2 and SIN are range reductions and polynomials
 * (Taylor coefficients: their error is below the type's rounding on the reduced range), except where the target has an
 * instruction as accurate. */
#include "internal.h"
#include <math.h>

enum dtype compute_dtype(enum dtype t) { return dtype_is_narrow_float(t) && t != DT_F16 ? DT_F32 : t; }

static struct uop *make(struct builder *b, enum op op, enum dtype t, struct uop *const *src, unsigned nsrc) {
  return b->make(b, op, t, src[0]->lanes, (union uop_arg){0}, 0, src, nsrc);
}
static struct uop *un(struct builder *b, enum op op, enum dtype t, struct uop *x) { return make(b, op, t, &x, 1); }
static struct uop *bin(struct builder *b, enum op op, struct uop *x, struct uop *y) {
  return make(b, op, x->dtype, (struct uop *[]){x, y}, 2);
}
static struct uop *cmp(struct builder *b, enum op op, struct uop *x, struct uop *y) {
  return make(b, op, DT_BOOL, (struct uop *[]){x, y}, 2);
}
static struct uop *where(struct builder *b, struct uop *c, struct uop *x, struct uop *y) {
  return make(b, OP_WHERE, x->dtype, (struct uop *[]){c, x, y}, 3);
}
static struct uop *fma3(struct builder *b, struct uop *x, struct uop *y, struct uop *z) {
  return make(b, OP_MULACC, x->dtype, (struct uop *[]){x, y, z}, 3);
}

struct uop *build_int(struct builder *b, enum dtype t, int64_t v) {
  struct uop *c = uop_const_int(b->g, t, v);
  return b->make(b, OP_CONST, t, 1, c->arg, 0, NULL, 0);
}

struct uop *build_const(struct builder *b, enum dtype t, double v) {
  struct uop *c = uop_const_float(b->g, t, v);
  return b->make(b, OP_CONST, t, 1, c->arg, 0, NULL, 0);
}

static struct uop *splat(struct builder *b, struct uop *c, unsigned lanes) {
  if (lanes == 1) return c;
  struct uop *lane[64];
  for (unsigned i = 0; i < lanes; i++) lane[i] = c;
  return b->make(b, OP_VECTORIZE, c->dtype, lanes, (union uop_arg){0}, 0, lane, lanes);
}
/* Constants of another value's type and lanes. */
static struct uop *lf(struct builder *b, const struct uop *x, double v) {
  return splat(b, build_const(b, x->dtype, v), x->lanes);
}
static struct uop *li(struct builder *b, const struct uop *x, int64_t v) {
  return splat(b, build_int(b, x->dtype, v), x->lanes);
}

/* c[0] + x * (c[1] + x * ...) */
static struct uop *polynomial(struct builder *b, struct uop *x, const double *c, unsigned n) {
  struct uop *p = lf(b, x, c[n - 1]);
  for (unsigned i = n - 1; i-- > 0;) p = fma3(b, p, x, lf(b, x, c[i]));
  return p;
}

/* ---- conversions ----------------------------------------------------------------------------------------------- */

/* f64 to f32 rounded to odd, so that a second rounding to fewer bits sees what this one dropped. */
static struct uop *f32_odd(struct builder *b, struct uop *v) {
  struct uop *f = un(b, OP_CAST, DT_F32, v), *back = un(b, OP_CAST, DT_F64, f), *u = un(b, OP_BITCAST, DT_U32, f);
  struct uop *inexact = bin(b, OP_AND, cmp(b, OP_CMPNE, back, v), cmp(b, OP_CMPEQ, v, v));
  struct uop *away = where(b, cmp(b, OP_CMPLT, v, lf(b, v, 0)), cmp(b, OP_CMPLT, back, v), cmp(b, OP_CMPLT, v, back));
  struct uop *down = where(b, away, bin(b, OP_SUB, u, li(b, u, 1)), u);
  return un(b, OP_BITCAST, DT_F32, where(b, inexact, bin(b, OP_OR, down, li(b, u, 1)), u));
}

static struct uop *bf16_from_f32(struct builder *b, struct uop *x) {
  struct uop *u = un(b, OP_BITCAST, DT_U32, x);
  struct uop *odd = bin(b, OP_AND, bin(b, OP_SHR, u, li(b, u, 16)), li(b, u, 1));
  struct uop *rounded = bin(b, OP_ADD, u, bin(b, OP_ADD, odd, li(b, u, 0x7fff)));
  struct uop *quiet = bin(b, OP_OR, u, li(b, u, 0x400000));
  struct uop *bits = where(b, cmp(b, OP_CMPNE, x, x), quiet, rounded);
  return un(b, OP_BITCAST, DT_BF16, un(b, OP_CAST, DT_U16, bin(b, OP_SHR, bits, li(b, u, 16))));
}

/* The 8-bit floats: sign, exponent of this bias, mantissa of so many bits; magnitudes from `special` on are NaN or
 * infinity; an f32 of magnitude `overflow` or more is none of their finite numbers. */
static const struct format8 {
  unsigned bias, mantissa, special, overflow;
} e4m3 = {7, 3, 0x7f, 0x43e80001}, e5m2 = {15, 2, 0x7c, 0x47700000};
static const struct format8 *format8_of(enum dtype t) { return t == DT_F8E4M3 ? &e4m3 : t == DT_F8E5M2 ? &e5m2 : NULL; }

static struct uop *f8_from_f32(struct builder *b, struct uop *x, enum dtype t) {
  const struct format8 *f = format8_of(t);
  unsigned drop = 23 - f->mantissa;
  struct uop *u = un(b, OP_BITCAST, DT_U32, x), *a = bin(b, OP_AND, u, li(b, u, 0x7fffffff));
  struct uop *sign = bin(b, OP_AND, bin(b, OP_SHR, u, li(b, u, 24)), li(b, u, 0x80));
  struct uop *v = bin(b, OP_SUB, a, li(b, a, (int64_t)(127 - f->bias) << 23));
  struct uop *odd = bin(b, OP_AND, bin(b, OP_SHR, v, li(b, v, drop)), li(b, v, 1));
  v = bin(b, OP_SHR, bin(b, OP_ADD, v, bin(b, OP_ADD, odd, li(b, v, (1 << (drop - 1)) - 1))), li(b, v, drop));
  /* adding the number whose last place is the least subnormal rounds to a multiple of that */
  int place = 24 - (int)(f->bias + f->mantissa);
  struct uop *af = un(b, OP_BITCAST, DT_F32, a), *sum = bin(b, OP_ADD, af, lf(b, af, ldexp(1, place)));
  struct uop *small = bin(b, OP_SUB, un(b, OP_BITCAST, DT_U32, sum), li(b, a, (int64_t)(127 + place) << 23));
  v = where(b, cmp(b, OP_CMPLT, a, li(b, a, (int64_t)(128 - f->bias) << 23)), small, v);
  v = where(b, cmp(b, OP_CMPLT, a, li(b, a, f->overflow)), v, li(b, v, f->special));
  v = where(b, cmp(b, OP_CMPNE, x, x), li(b, v, 0x7f), v);
  return un(b, OP_BITCAST, t, un(b, OP_CAST, DT_U8, bin(b, OP_OR, v, sign)));
}

static struct uop *f8_to_f32(struct builder *b, struct uop *x) {
  const struct format8 *f = format8_of(x->dtype);
  unsigned up = 23 - f->mantissa;
  struct uop *u = un(b, OP_CAST, DT_U32, un(b, OP_BITCAST, DT_U8, x)), *m = bin(b, OP_AND, u, li(b, u, 0x7f));
  struct uop *high = bin(b, OP_SHL, m, li(b, m, up));
  struct uop *normal = bin(b, OP_ADD, high, li(b, m, (int64_t)(127 - f->bias) << 23));
  struct uop *count = un(b, OP_CAST, DT_F32, m);
  struct uop *small = bin(b, OP_MUL, count, lf(b, count, ldexp(1, 1 - (int)(f->bias + f->mantissa))));
  struct uop *v = where(b, cmp(b, OP_CMPLT, m, li(b, m, 1 << f->mantissa)), un(b, OP_BITCAST, DT_U32, small), normal);
  /* the first special magnitude is infinity, where the type has one */
  struct uop *special = f == &e4m3 ? li(b, m, 0x7fc00000) : bin(b, OP_OR, high, li(b, m, 0x7f800000));
  v = where(b, cmp(b, OP_CMPLT, m, li(b, m, f->special)), v, special);
  struct uop *sign = bin(b, OP_SHL, bin(b, OP_AND, u, li(b, u, 0x80)), li(b, u, 24));
  return un(b, OP_BITCAST, DT_F32, bin(b, OP_OR, v, sign));
}

struct uop *build_cast(struct builder *b, struct uop *x, enum dtype t) {
  enum dtype from = x->dtype;
  if (from == t) return x;
  if (x->op == OP_CONST && x->lanes == 1 && compute_dtype(t) == t && compute_dtype(from) == from) {
    if (dtype_is_float(from)) {
      if (dtype_is_float(t)) return build_const(b, t, x->arg.f);
    } else if (from != DT_U64 || x->arg.i >= 0)
      return build_int(b, t, x->arg.i);
  }
  if (from == DT_BF16) {
    struct uop *u = un(b, OP_CAST, DT_U32, un(b, OP_BITCAST, DT_U16, x));
    return build_cast(b, un(b, OP_BITCAST, DT_F32, bin(b, OP_SHL, u, li(b, u, 16))), t);
  }
  if (format8_of(from)) return build_cast(b, f8_to_f32(b, x), t);
  if (t == DT_BOOL) return cmp(b, OP_CMPNE, x, dtype_is_float(from) ? lf(b, x, 0) : li(b, x, 0));
  if (dtype_is_narrow_float(t) && from == DT_F64)
    x = f32_odd(b, x);
  else if (t == DT_BF16 && dtype_is_int(from) && dtype_info[from].size >= 4)
    x = f32_odd(b, un(b, OP_CAST, DT_F64, x));
  else if (dtype_is_narrow_float(t) && !dtype_is_float(from))
    x = un(b, OP_CAST, DT_F32, x); /* beyond 2^24 they overflow anyway */
  if (t == DT_BF16) return bf16_from_f32(b, build_cast(b, x, DT_F32));
  if (format8_of(t)) return f8_from_f32(b, build_cast(b, x, DT_F32), t);
  if (x->dtype == DT_F16 && t != DT_F32) x = un(b, OP_CAST, DT_F32, x);
  return x->dtype == t ? x : un(b, OP_CAST, t, x);
}

/* ---- integers -------------------------------------------------------------------------------------------------- */
static struct uop *divide(struct builder *b, enum op op, struct uop *x, struct uop *y) {
  bool is_signed = dtype_info[y->dtype].cls == 'i';
  const struct uop *c = y;
  if (y->op == OP_VECTORIZE) {
    c = y->src[0];
    for (unsigned i = 1; i < y->nsrc; i++)
      if (y->src[i] != c) c = y;
  }
  if (c->op == OP_CONST && c->arg.i && (c->arg.i != -1 || !is_signed)) return bin(b, op, x, y);
  if (y->lanes == 1 && uop_min(y) > 0 && uop_max(y) < INT64_MAX) return bin(b, op, x, y);
  struct uop *zero = cmp(b, OP_CMPEQ, y, li(b, y, 0)), *trap = zero;
  if (is_signed) {
    struct uop *least = li(b, x, (int64_t)(UINT64_MAX << (dtype_info[x->dtype].size * 8 - 1)));
    struct uop *wraps = bin(b, OP_AND, cmp(b, OP_CMPEQ, x, least), cmp(b, OP_CMPEQ, y, li(b, y, -1)));
    trap = bin(b, OP_OR, zero, wraps);
  }
  struct uop *safe = bin(b, op, x, where(b, trap, li(b, y, 1), y));
  return where(b, zero, li(b, x, 0), safe);
}

static struct uop *shift(struct builder *b, enum op op, struct uop *x, struct uop *y) {
  int64_t bits = dtype_info[x->dtype].size * 8;
  if (y->op != OP_CONST || y->arg.i < 0 || y->arg.i >= bits) y = bin(b, OP_AND, y, li(b, y, bits - 1));
  return bin(b, op, x, y);
}

/* ---- floats ---------------------------------------------------------------------------------------------------- */
static bool is_number(const struct uop *u) {
  if (u->op == OP_VECTORIZE) {
    for (unsigned i = 0; i < u->nsrc; i++)
      if (!is_number(u->src[i])) return false;
    return true;
  }
  return u->op == OP_CONST && !isnan(u->arg.f);
}

static struct uop *maximum(struct builder *b, struct uop *x, struct uop *y) {
  if (!dtype_is_float(x->dtype)) return where(b, cmp(b, OP_CMPLT, x, y), y, x);
  if (is_number(y)) return where(b, cmp(b, OP_CMPLT, x, y), y, x);
  if (is_number(x)) return where(b, cmp(b, OP_CMPLT, y, x), x, y);
  return where(b, bin(b, OP_OR, cmp(b, OP_CMPLT, x, y), cmp(b, OP_CMPNE, y, y)), y, x);
}

struct format { /* of an IEEE type */
  enum dtype bits;
  int mantissa, bias;
  double largest_exponent, least_exponent; /* beyond them exp2 is inf or 0 */
  unsigned exp_terms, log_terms, sin_terms;
};
static const struct format format32 = {DT_I32, 23, 127, 129, -151, 8, 5, 7};
static const struct format format64 = {DT_I64, 52, 1023, 1025, -1076, 14, 11, 11};
static const struct format *format_of(enum dtype t) { return t == DT_F64 ? &format64 : &format32; }

static struct uop *power_of_two(struct builder *b, const struct format *f, struct uop *n, enum dtype t) {
  struct uop *biased = bin(b, OP_ADD, n, li(b, n, f->bias));
  return un(b, OP_BITCAST, t, bin(b, OP_SHL, biased, li(b, n, f->mantissa)));
}

/* 2^x = 2^n * e^((x - n) ln 2), n the nearest integer; scaled in two steps so that subnormal results round once more
 * but do not vanish. */
static struct uop *exp2_series(struct builder *b, struct uop *x) {
  const struct format *f = format_of(x->dtype);
  double c[14] = {1};
  for (unsigned i = 1; i < f->exp_terms; i++) c[i] = c[i - 1] / i;
  struct uop *low = lf(b, x, f->least_exponent), *high = lf(b, x, f->largest_exponent);
  struct uop *y = where(b, cmp(b, OP_CMPLT, x, low), low, x);
  y = where(b, cmp(b, OP_CMPLT, high, y), high, y);
  struct uop *half = where(b, cmp(b, OP_CMPLT, y, lf(b, y, 0)), lf(b, y, -0.5), lf(b, y, 0.5));
  struct uop *whole = un(b, OP_TRUNC, y->dtype, bin(b, OP_ADD, y, half));
  struct uop *t = bin(b, OP_MUL, bin(b, OP_SUB, y, whole), lf(b, y, M_LN2));
  struct uop *n = un(b, OP_CAST, f->bits, whole), *n1 = bin(b, OP_SHR, n, li(b, n, 1));
  struct uop *p = bin(b, OP_MUL, polynomial(b, t, c, f->exp_terms), power_of_two(b, f, n1, x->dtype));
  return bin(b, OP_MUL, p, power_of_two(b, f, bin(b, OP_SUB, n, n1), x->dtype));
}

/* x = 2^e * (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); ln(1 + f) = f - (f*f/2 - s * (f*f/2 + R)), s = f / (2 + f), where R
 * is what the series of 2 artanh(s) has beyond its first term, divided by s. */
static struct uop *log2_series(struct builder *b, struct uop *x) {
  const struct format *f = format_of(x->dtype);
  int64_t one = (int64_t)f->bias << f->mantissa, root = f == &format64 ? 0x3fe6a09e667f3bcd : 0x3f3504f3;
  double c[12];
  for (unsigned i = 0; i < f->log_terms; i++) c[i] = 2.0 / (2 * i + 3);
  struct uop *tiny = cmp(b, OP_CMPLT, x, lf(b, x, ldexp(1, 1 - f->bias)));
  struct uop *y = where(b, tiny, bin(b, OP_MUL, x, lf(b, x, ldexp(1, f->mantissa + 2))), x);
  struct uop *u = un(b, OP_BITCAST, f->bits, y);
  u = bin(b, OP_ADD, u, li(b, u, one - root));
  struct uop *e = bin(b, OP_SUB, bin(b, OP_SHR, u, li(b, u, f->mantissa)), li(b, u, f->bias));
  e = bin(b, OP_SUB, e, where(b, tiny, li(b, u, f->mantissa + 2), li(b, u, 0)));
  u = bin(b, OP_ADD, bin(b, OP_AND, u, li(b, u, ((int64_t)1 << f->mantissa) - 1)), li(b, u, root));
  struct uop *m = bin(b, OP_SUB, un(b, OP_BITCAST, x->dtype, u), lf(b, x, 1));
  struct uop *s = bin(b, OP_FDIV, m, bin(b, OP_ADD, m, lf(b, m, 2))), *z = bin(b, OP_MUL, s, s);
  struct uop *r = bin(b, OP_MUL, polynomial(b, z, c, f->log_terms), z);
  struct uop *square = bin(b, OP_MUL, bin(b, OP_MUL, m, m), lf(b, m, 0.5));
  struct uop *ln = bin(b, OP_SUB, m, bin(b, OP_SUB, square, bin(b, OP_MUL, s, bin(b, OP_ADD, square, r))));
  /* log2(e) in two parts */
  double high = f == &format64 ? 0x1.71547652b82fep+0 : (double)(float)M_LOG2E;
  double low = f == &format64 ? 0x1.777d0ffda0d24p-56 : M_LOG2E - high;
  struct uop *ef = un(b, OP_CAST, x->dtype, e);
  struct uop *v = fma3(b, ln, lf(b, ln, high), fma3(b, ln, lf(b, ln, low), ef));
  int64_t infinity = ((int64_t)f->bias * 2 + 1) << f->mantissa; /* magnitudes not below are inf and NaN */
  struct uop *all = un(b, OP_BITCAST, f->bits, x);
  all = bin(b, OP_AND, all, li(b, all, f->bits == DT_I64 ? INT64_MAX : INT32_MAX));
  v = where(b, cmp(b, OP_CMPLT, all, li(b, all, infinity)), v, x);
  v = where(b, cmp(b, OP_CMPLT, x, lf(b, x, 0)), lf(b, x, NAN), v);
  return where(b, cmp(b, OP_CMPEQ, x, lf(b, x, 0)), lf(b, x, -INFINITY), v);
}

/* sin x = (-1)^n sin(x - n pi), n the nearest integer. pi comes in parts whose sum is exact to 159 bits; the reduction is in
 * f64 for f32 too, which keeps it exact for arguments to 2^50. */
static struct uop *sin_series(struct builder *b, struct uop *x) {
  const struct format *f = format_of(x->dtype);
  double c[11] = {1};
  for (unsigned i = 1; i < f->sin_terms; i++) c[i] = -c[i - 1] / ((2 * i) * (2 * i + 1));
  struct uop *wide = build_cast(b, x, DT_F64);
  struct uop *half = where(b, cmp(b, OP_CMPLT, wide, lf(b, wide, 0)), lf(b, wide, -0.5), lf(b, wide, 0.5));
  struct uop *n = un(b, OP_TRUNC, DT_F64, fma3(b, wide, lf(b, wide, M_1_PI), half));
  struct uop *r = fma3(b, n, lf(b, n, -0x1.921fb54442d18p+1), wide);
  r = fma3(b, n, lf(b, n, -0x1.1a62633145c07p-53), r);
  if (x->dtype == DT_F64) r = fma3(b, n, lf(b, n, 0x1.f1976b7ed8fbcp-109), r);
  struct uop *twice = bin(b, OP_MUL, n, lf(b, n, 0.5));
  struct uop *odd = cmp(b, OP_CMPNE, twice, un(b, OP_TRUNC, DT_F64, twice));
  r = build_cast(b, r, x->dtype);
  struct uop *p = polynomial(b, bin(b, OP_MUL, r, r), c, f->sin_terms);
  struct uop *v = bin(b, OP_MUL, r, p);
  return where(b, odd, un(b, OP_NEG, v->dtype, v), v);
}

static struct uop *transcendental(struct builder *b, enum op op, struct uop *x) {
  if (x->dtype == DT_F16) return build_cast(b, transcendental(b, op, build_cast(b, x, DT_F32)), DT_F16);
  if (op == OP_SQRT) return un(b, op, x->dtype, x);
  if (op == OP_SIN) return sin_series(b, x);
  bool has = op == OP_EXP2 ? b->target->has_exp2 : b->target->has_log2;
  if (has && x->dtype == DT_F32) return un(b, op, x->dtype, x);
  return op == OP_EXP2 ? exp2_series(b, x) : log2_series(b, x);
}

/* ---- the entry ------------------------------------------------------------------------------------------------- */
struct uop *build_alu(struct builder *b, enum op op, enum dtype t, struct uop *const *src, unsigned nsrc) {
  struct uop *x = src[0];
  if (op == OP_CMPLT || op == OP_CMPEQ || op == OP_CMPNE) return cmp(b, op, x, src[1]);
  if (t == DT_BOOL) switch (op) {
    case OP_ADD:
    case OP_MAX: return bin(b, OP_OR, x, src[1]);
    case OP_MUL: return bin(b, OP_AND, x, src[1]);
    case OP_SUB: return bin(b, OP_XOR, x, src[1]);
    case OP_NEG: return x;
    default: break;
    }
  bool is_float = dtype_is_float(t);
  switch (op) {
  case OP_MAX: return maximum(b, x, src[1]);
  case OP_IDIV:
  case OP_MOD: return is_float ? make(b, op, t, src, nsrc) : divide(b, op, x, src[1]);
  case OP_SHL:
  case OP_SHR: return shift(b, op, x, src[1]);
  case OP_RECIP: return bin(b, OP_FDIV, lf(b, x, 1), x);
  case OP_SQRT:
  case OP_EXP2:
  case OP_LOG2:
  case OP_SIN: return transcendental(b, op, x);
  case OP_MULACC: return is_float ? fma3(b, x, src[1], src[2]) : bin(b, OP_ADD, bin(b, OP_MUL, x, src[1]), src[2]);
  default: return make(b, op, t, src, nsrc);
  }
}
