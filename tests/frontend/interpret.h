/* A reference for tensor operations, by plain loops over single elements, without graphs, kernels or devices. An
 * element of an integer type is its value, wrapped. An element of a float type is an interval that contains every
 * result that rounding at each step, or at fewer steps, may give. A value derived from intervals (a comparison, an
 * integer part, a difference of close numbers) is therefore either known or marked unknown. A result is NULL if an
 * argument is bad, and has no elements (cell NULL) if it would be too large. */
#ifndef TESTS_FRONTEND_INTERPRET_H
#define TESTS_FRONTEND_INTERPRET_H
#include "../../frontend/doorbell.h"
#include "../../graph/dtype.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ARRAY_RANK = 8, ARRAY_MOST = 4096 };
struct cell {
  enum { KNOWN, NOT_A_NUMBER, ANY } state;
  double lo, hi; /* floats; infinite only when lo == hi */
  int64_t i;     /* integers and bool; for u64 the bits */
};
struct array {
  db_dtype t;
  unsigned rank;
  int64_t dim[ARRAY_RANK], n;
  struct cell *cell;
};

static void array_free(struct array *a) {
  if (!a) return;
  free(a->cell);
  free(a);
}

static struct array *array_new(db_dtype t, unsigned rank, const int64_t *dim) {
  if (rank > ARRAY_RANK) return NULL;
  struct array *a = calloc(1, sizeof *a);
  a->t = t, a->rank = rank, a->n = 1;
  for (unsigned i = 0; i < rank; i++) {
    a->dim[i] = dim[i];
    if (__builtin_mul_overflow(a->n, dim[i], &a->n) || a->n > ARRAY_MOST * 64) a->n = ARRAY_MOST * 64;
  }
  for (unsigned i = 0; i < rank; i++)
    if (!dim[i]) a->n = 0;
  if (a->n <= ARRAY_MOST) a->cell = calloc((size_t)a->n + 1, sizeof *a->cell);
  return a;
}

/* ---- types ---- */

static bool is_float(db_dtype t) { return dtype_is_float((enum dtype)t); }
static bool is_unsigned(db_dtype t) { return dtype_info[t].cls == 'u'; }
static int bits_of(db_dtype t) { return 8 * dtype_info[t].size; }

/* Of a float type: the spacing of numbers after 1, the largest number, and the smallest positive one. */
static double eps_of(db_dtype t) {
  switch ((int)t) {
  case DB_F8E4M3: return 0x1p-3;
  case DB_F8E5M2: return 0x1p-2;
  case DB_F16: return 0x1p-10;
  case DB_BF16: return 0x1p-7;
  case DB_F32: return 0x1p-23;
  default: return 0x1p-52;
  }
}
static double most_of(db_dtype t) {
  switch ((int)t) {
  case DB_F8E4M3: return 448;
  case DB_F8E5M2: return 57344;
  case DB_F16: return 65504;
  case DB_F64: return DBL_MAX;
  default: return 3.38e38;
  }
}
static double least_of(db_dtype t) {
  switch ((int)t) {
  case DB_F8E4M3: return 0x1p-9;
  case DB_F8E5M2: return 0x1p-16;
  case DB_F16: return 0x1p-24;
  case DB_F64: return DBL_MIN;
  default: return FLT_MIN;
  }
}
static bool is_narrow(db_dtype t) { return is_float(t) && bits_of(t) < 32; }
/* The type of the results of real functions, and the type in which sums are computed. */
static db_dtype real_type(db_dtype t) { return is_float(t) ? t : DB_F32; }
static db_dtype sum_type(db_dtype t) { return is_narrow(t) ? DB_F32 : is_float(t) ? t : t == DB_U64 ? DB_U64 : DB_I64; }

static db_dtype promoted(db_dtype a, db_dtype b) {
  if (a == b || b == DB_BOOL) return a;
  if (a == DB_BOOL) return b;
  if (is_float(a) != is_float(b)) return is_float(a) ? a : b;
  int x = bits_of(a), y = bits_of(b);
  if (is_float(a)) return x > y ? a : y > x ? b : x == 8 ? DB_F16 : DB_F32;
  if (is_unsigned(a) == is_unsigned(b)) return x > y ? a : b;
  int u = is_unsigned(a) ? x : y, s = is_unsigned(a) ? y : x;
  if (u == 64) return DB_F64;
  int bits = s > u ? s : 2 * u;
  return bits == 16 ? DB_I16 : bits == 32 ? DB_I32 : DB_I64;
}

static int64_t wrap(db_dtype t, uint64_t v) {
  int shift = 64 - bits_of(t);
  if (t == DB_BOOL) return v != 0;
  return is_unsigned(t) ? (int64_t)(v << shift >> shift) : (int64_t)(v << shift) >> shift;
}

/* ---- cells ---- */

static struct cell unknown(void) { return (struct cell){ANY, 0, 0, 0}; }
static struct cell not_a_number(void) { return (struct cell){NOT_A_NUMBER, 0, 0, 0}; }
static struct cell whole(db_dtype t, uint64_t v) { return (struct cell){KNOWN, 0, 0, wrap(t, v)}; }
static struct cell exact(double v) { return isnan(v) ? not_a_number() : (struct cell){KNOWN, v, v, 0}; }

/* Widens c by an error of ulps units in the last place; not if the type represents c exactly and a single step computed
 * it. */
static struct cell rounded(db_dtype t, struct cell c, double ulps) {
  if (c.state || isinf(c.lo)) return c;
  double most = 0.9 * most_of(t);
  if (!(fabs(c.lo) <= most && fabs(c.hi) <= most)) return unknown();
  if (ulps == 1 && c.lo == c.hi && float_from_bits((enum dtype)t, float_to_bits((enum dtype)t, c.lo)) == c.lo) return c;
  c.lo -= ulps * (fabs(c.lo) * eps_of(t) + least_of(t));
  c.hi += ulps * (fabs(c.hi) * eps_of(t) + least_of(t));
  return c;
}
static bool bound(struct cell a, struct cell b) { return isinf(a.lo) || isinf(b.lo); }
static bool point(struct cell a) { return a.lo == a.hi; }

static struct cell cell_cast(struct cell c, db_dtype from, db_dtype t) {
  if (from == t || c.state == ANY) return c;
  if (is_float(from)) {
    if (is_float(t)) return isinf(c.lo) && c.state == KNOWN ? (t == DB_F8E4M3 ? not_a_number() : c) : rounded(t, c, 1);
    if (t == DB_BOOL) {
      if (c.state == NOT_A_NUMBER || c.lo > 0 || c.hi < 0) return whole(t, 1);
      return c.lo == 0 && c.hi == 0 ? whole(t, 0) : unknown();
    }
    double v = trunc(c.lo), low = is_unsigned(t) ? 0 : -ldexp(1, bits_of(t) - 1);
    double high = ldexp(1, bits_of(t) - (is_unsigned(t) ? 0 : 1));
    if (c.state || v != trunc(c.hi) || v < low || v >= high) return unknown();
    return whole(t, v < 0 ? (uint64_t)(int64_t)v : (uint64_t)v);
  }
  if (!is_float(t)) return whole(t, (uint64_t)c.i);
  c = exact(from == DB_U64 ? (double)(uint64_t)c.i : (double)c.i);
  if (bits_of(from) == 64 && fabs(c.lo) > 0x1p53) c.lo -= 2048, c.hi += 2048;
  return rounded(t, c, 1);
}

/* Whether a float is 0, NaN, infinite or finite; for integers only 0 matters. */
static struct cell cell_test(enum db_unary_op op, struct cell c, db_dtype t) {
  if (c.state == ANY) return c;
  bool nan = is_float(t) && c.state == NOT_A_NUMBER, infinite = is_float(t) && !nan && isinf(c.lo);
  if (op == DB_UNARY_ISNAN) return whole(DB_BOOL, nan);
  if (op == DB_UNARY_ISINF) return whole(DB_BOOL, infinite);
  if (op == DB_UNARY_ISFINITE) return whole(DB_BOOL, !nan && !infinite);
  if (!is_float(t)) return whole(DB_BOOL, !c.i);
  if (nan || c.lo > 0 || c.hi < 0) return whole(DB_BOOL, 0);
  return point(c) ? whole(DB_BOOL, 1) : unknown();
}

static struct cell integer_unary(enum db_unary_op op, struct cell c, db_dtype t) {
  uint64_t u = (uint64_t)c.i;
  bool negative = !is_unsigned(t) && c.i < 0;
  switch (op) {
  case DB_UNARY_NEG: return whole(t, -u);
  case DB_UNARY_NOT: return t == DB_BOOL ? whole(t, !u) : whole(t, ~u);
  case DB_UNARY_ABS: return whole(t, negative ? -u : u);
  case DB_UNARY_SIGN: return whole(t, negative ? -1ull : u != 0);
  case DB_UNARY_SQUARE: return whole(t, u * u);
  case DB_UNARY_RELU: return whole(t, negative ? 0 : u);
  case DB_UNARY_RELU6: return whole(t, negative ? 0 : u > 6 ? 6 : u);
  case DB_UNARY_FRAC: return whole(t, 0);
  default: return c; /* an integer already */
  }
}

/* Returns the result for an infinite argument. */
static struct cell infinite_unary(enum db_unary_op op, struct cell c) {
  double x = c.lo;
  switch (op) {
  case DB_UNARY_NEG: return exact(-x);
  case DB_UNARY_ABS:
  case DB_UNARY_SQUARE: return exact(INFINITY);
  case DB_UNARY_SIGN: return exact(x < 0 ? -1 : 1);
  case DB_UNARY_RELU: return exact(fmax(x, 0));
  case DB_UNARY_FLOOR:
  case DB_UNARY_CEIL:
  case DB_UNARY_TRUNC:
  case DB_UNARY_SINH:
  case DB_UNARY_ASINH:
  case DB_UNARY_ROUND: return c;
  case DB_UNARY_FRAC: return not_a_number();
  case DB_UNARY_RELU6: return exact(x < 0 ? 0 : 6);
  case DB_UNARY_EXPM1: return x < 0 ? exact(-1) : c;
  case DB_UNARY_ERF: return exact(x < 0 ? -1 : 1);
  case DB_UNARY_RECIPROCAL: return exact(0);
  case DB_UNARY_SQRT:
  case DB_UNARY_LOG:
  case DB_UNARY_LOG2: return x < 0 ? not_a_number() : c;
  case DB_UNARY_RSQRT: return x < 0 ? not_a_number() : exact(0);
  case DB_UNARY_EXP:
  case DB_UNARY_EXP2: return exact(x < 0 ? 0 : INFINITY);
  case DB_UNARY_SIN:
  case DB_UNARY_COS: return not_a_number();
  case DB_UNARY_SIGMOID: return exact(x > 0);
  case DB_UNARY_TANH: return exact(x < 0 ? -1 : 1);
  default: return unknown();
  }
}

/* Operations whose bounds are those of the exact result, rounded at most once. Returns false for the others. */
static bool exact_unary(enum db_unary_op op, struct cell c, db_dtype t, struct cell *r) {
  double lo = c.lo, hi = c.hi, size = fmax(fabs(lo), fabs(hi));
  bool straddles = lo < 0 && hi > 0;
  switch (op) {
  case DB_UNARY_NEG: *r = (struct cell){KNOWN, -hi, -lo, 0}; break;
  case DB_UNARY_ABS: *r = (struct cell){KNOWN, straddles ? 0 : fmin(fabs(lo), fabs(hi)), size, 0}; break;
  case DB_UNARY_SIGN: *r = (struct cell){KNOWN, (lo > 0) - (lo < 0), (hi > 0) - (hi < 0), 0}; break;
  case DB_UNARY_FLOOR: *r = (struct cell){KNOWN, floor(lo), floor(hi), 0}; break;
  case DB_UNARY_CEIL: *r = (struct cell){KNOWN, ceil(lo), ceil(hi), 0}; break;
  case DB_UNARY_TRUNC: *r = (struct cell){KNOWN, trunc(lo), trunc(hi), 0}; break;
  case DB_UNARY_SQUARE:
    lo = straddles ? 0 : fmin(fabs(lo), fabs(hi));
    *r = rounded(t, (struct cell){KNOWN, lo * lo, size * size, 0}, 1);
    break;
  case DB_UNARY_RELU: *r = (struct cell){KNOWN, fmax(lo, 0), fmax(hi, 0), 0}; break;
  case DB_UNARY_RELU6: *r = (struct cell){KNOWN, fmin(fmax(lo, 0), 6), fmin(fmax(hi, 0), 6), 0}; break;
  case DB_UNARY_ROUND: *r = (struct cell){KNOWN, rint(lo), rint(hi), 0}; break;
  case DB_UNARY_FRAC:
    *r = trunc(lo) != trunc(hi) ? unknown() : (struct cell){KNOWN, lo - trunc(lo), hi - trunc(hi), 0};
    break;
  default: return false;
  }
  return true;
}

static struct cell cell_unary(enum db_unary_op op, struct cell c, db_dtype t) {
  double lo = c.lo, hi = c.hi, mid = lo / 2 + hi / 2, size = fmax(fabs(lo), fabs(hi));
  struct cell r = unknown();
  if (c.state == ANY) return c;
  if (!is_float(t)) return integer_unary(op, c, t);
  if (c.state == NOT_A_NUMBER) return c;
  if (isinf(lo)) return infinite_unary(op, c);
  if (exact_unary(op, c, t, &r)) return r;
  /* From here on results have an error of some units in the last place, which for functions computed with exp2 also
   * grows with the argument. */
  double units = t == DB_F32 || t == DB_F64 ? 8 + 2 * size : 2 + size * 0x1p-10;
  switch (op) {
  case DB_UNARY_RECIPROCAL:
    if (lo > 0 || hi < 0) r = (struct cell){KNOWN, 1 / hi, 1 / lo, 0};
    units = 2;
    break;
  case DB_UNARY_SQRT:
  case DB_UNARY_RSQRT:
    if (hi < 0) return not_a_number();
    if (lo < 0 || (op == DB_UNARY_RSQRT && lo == 0)) return r;
    r = op == DB_UNARY_SQRT ? (struct cell){KNOWN, sqrt(lo), sqrt(hi), 0}
                            : (struct cell){KNOWN, 1 / sqrt(hi), 1 / sqrt(lo), 0};
    units = point(c) && op == DB_UNARY_SQRT ? 1 : 4;
    break;
  case DB_UNARY_EXP2: r = (struct cell){KNOWN, exp2(lo), exp2(hi), 0}; break;
  case DB_UNARY_EXP: r = (struct cell){KNOWN, exp(lo), exp(hi), 0}; break;
  case DB_UNARY_LOG2:
  case DB_UNARY_LOG:
    if (hi < 0) return not_a_number();
    if (lo <= 0) return r;
    r = op == DB_UNARY_LOG ? (struct cell){KNOWN, log(lo), log(hi), 0} : (struct cell){KNOWN, log2(lo), log2(hi), 0};
    r.lo -= 8 * eps_of(t), r.hi += 8 * eps_of(t), units = 8;
    break;
  case DB_UNARY_SIN:
  case DB_UNARY_COS:
    if (size > 1e4) return r;
    mid = op == DB_UNARY_SIN ? sin(mid) : cos(mid);
    lo = (hi - lo) / 2 + 8 * eps_of(t);
    return (struct cell){KNOWN, mid - lo, mid + lo, 0};
  case DB_UNARY_EXPM1: r = (struct cell){KNOWN, expm1(lo), expm1(hi), 0}; break;
  case DB_UNARY_SINH: r = (struct cell){KNOWN, sinh(lo), sinh(hi), 0}; break;
  case DB_UNARY_ASINH: r = (struct cell){KNOWN, asinh(lo), asinh(hi), 0}; break;
  case DB_UNARY_ATAN: r = (struct cell){KNOWN, atan(lo), atan(hi), 0}; break;
  case DB_UNARY_ERF: r = (struct cell){KNOWN, erf(lo), erf(hi), 0}; break;
  case DB_UNARY_SIGMOID: r = (struct cell){KNOWN, 1 / (1 + exp(-lo)), 1 / (1 + exp(-hi)), 0}; break;
  case DB_UNARY_TANH: r = (struct cell){KNOWN, tanh(lo), tanh(hi), 0}; break;
  default: break;
  }
  return rounded(t, r, units);
}

static struct cell cell_mul(struct cell a, struct cell b, db_dtype t) {
  if (a.state || b.state)
    return a.state == ANY && b.state == ANY                     ? a
           : a.state == NOT_A_NUMBER || b.state == NOT_A_NUMBER ? not_a_number()
                                                                : unknown();
  if (bound(a, b)) return point(a) && point(b) ? exact(a.lo * b.lo) : unknown();
  double p = a.lo * b.lo, q = a.lo * b.hi, r = a.hi * b.lo, s = a.hi * b.hi;
  return rounded(t, (struct cell){KNOWN, fmin(fmin(p, q), fmin(r, s)), fmax(fmax(p, q), fmax(r, s)), 0}, 1);
}
static struct cell cell_add(struct cell a, struct cell b, db_dtype t) {
  if (a.state || b.state) return a.state == NOT_A_NUMBER || b.state == NOT_A_NUMBER ? not_a_number() : unknown();
  if (bound(a, b)) return point(a) && point(b) ? exact(a.lo + b.lo) : unknown();
  return rounded(t, (struct cell){KNOWN, a.lo + b.lo, a.hi + b.hi, 0}, 1);
}
static struct cell cell_max(struct cell a, struct cell b) {
  if (a.state == NOT_A_NUMBER || b.state == NOT_A_NUMBER) return not_a_number();
  if (a.state || b.state || (bound(a, b) && !(point(a) && point(b)))) return unknown();
  return (struct cell){KNOWN, fmax(a.lo, b.lo), fmax(a.hi, b.hi), 0};
}
static struct cell cell_neg(struct cell a, db_dtype t) { return cell_unary(DB_UNARY_NEG, a, t); }
static struct cell cell_div(struct cell a, struct cell b, db_dtype t) {
  if (a.state || b.state) return a.state == NOT_A_NUMBER || b.state == NOT_A_NUMBER ? not_a_number() : unknown();
  if (b.lo <= 0 && b.hi >= 0) return unknown(); /* the sign of a zero is unknown */
  if (bound(a, b)) return point(a) && point(b) ? exact(a.lo / b.lo) : unknown();
  double p = a.lo / b.lo, q = a.lo / b.hi, r = a.hi / b.lo, s = a.hi / b.hi;
  return rounded(t, (struct cell){KNOWN, fmin(fmin(p, q), fmin(r, s)), fmax(fmax(p, q), fmax(r, s)), 0}, 2);
}
/* Returns -1, 0 or 1 if a is less than, equal to or greater than b; 2 if unknown; 3 if one is NaN. */
static int cell_order(struct cell a, struct cell b, db_dtype t) {
  if (a.state == ANY || b.state == ANY) return 2;
  if (t == DB_U64) return ((uint64_t)a.i > (uint64_t)b.i) - ((uint64_t)a.i < (uint64_t)b.i);
  if (!is_float(t)) return (a.i > b.i) - (a.i < b.i);
  if (a.state || b.state) return 3;
  return a.hi < b.lo ? -1 : a.lo > b.hi ? 1 : point(a) && point(b) ? 0 : 2;
}

static struct cell integer_binary(enum db_binary_op op, struct cell a, struct cell b, db_dtype t) {
  uint64_t x = (uint64_t)a.i, y = (uint64_t)b.i;
  if (a.state || b.state) return unknown();
  switch (op) {
  case DB_BINARY_ADD: return t == DB_BOOL ? whole(t, x | y) : whole(t, x + y);
  case DB_BINARY_SUB: return whole(t, x - y);
  case DB_BINARY_MUL: return whole(t, x * y);
  case DB_BINARY_IDIV:
  case DB_BINARY_MOD: {
    if (!y) return whole(t, 0);
    if (is_unsigned(t)) return whole(t, op == DB_BINARY_IDIV ? x / y : x % y);
    if (b.i == -1) return whole(t, op == DB_BINARY_IDIV ? -x : 0);
    int64_t q = a.i / b.i, r = a.i % b.i;
    if (r && (r < 0) != (b.i < 0)) q--, r += b.i;
    return whole(t, (uint64_t)(op == DB_BINARY_IDIV ? q : r));
  }
  case DB_BINARY_MAX: return cell_order(a, b, t) > 0 ? a : b;
  case DB_BINARY_MIN: return cell_order(a, b, t) < 0 ? a : b;
  case DB_BINARY_AND: return whole(t, x & y);
  case DB_BINARY_OR: return whole(t, x | y);
  case DB_BINARY_XOR: return whole(t, x ^ y);
  default: return unknown();
  }
}

/* The remainder of an infinite dividend, and so the quotient, is NaN. A finite number divided by an infinite one is 0
 * or -1. NumPy agrees. */
static struct cell cell_idiv(struct cell a, struct cell b, db_dtype t) {
  bool finite = isfinite(a.lo) && isfinite(a.hi) && isfinite(b.lo) && isfinite(b.hi);
  if (a.state || b.state || finite || (b.lo <= 0 && b.hi >= 0)) return cell_unary(DB_UNARY_FLOOR, cell_div(a, b, t), t);
  if (!point(a) || !point(b)) return unknown();
  if (isinf(a.lo)) return not_a_number();
  return exact(a.lo != 0 && signbit(a.lo) != signbit(b.lo) ? -1 : 0);
}

static struct cell cell_binary(enum db_binary_op op, struct cell a, struct cell b, db_dtype t) {
  if (op >= DB_BINARY_EQ) {
    int o = cell_order(a, b, t);
    if (o == 2) return unknown();
    switch (op) {
    case DB_BINARY_EQ: return whole(DB_BOOL, o == 0);
    case DB_BINARY_NE: return whole(DB_BOOL, o != 0);
    case DB_BINARY_LT: return whole(DB_BOOL, o == -1);
    case DB_BINARY_LE: return whole(DB_BOOL, o <= 0);
    case DB_BINARY_GT: return whole(DB_BOOL, o == 1);
    default: return whole(DB_BOOL, o == 0 || o == 1);
    }
  }
  if (!is_float(t)) return integer_binary(op, a, b, t);
  switch (op) {
  case DB_BINARY_ADD: return cell_add(a, b, t);
  case DB_BINARY_SUB: return cell_add(a, cell_neg(b, t), t);
  case DB_BINARY_MUL: return cell_mul(a, b, t);
  case DB_BINARY_DIV: return cell_div(a, b, t);
  case DB_BINARY_IDIV: return cell_idiv(a, b, t);
  case DB_BINARY_MOD: {
    if (!a.state && !b.state && bound(a, b)) return unknown();
    struct cell q = cell_unary(DB_UNARY_FLOOR, cell_div(a, b, t), t);
    return cell_add(a, cell_neg(cell_mul(q, b, t), t), t);
  }
  case DB_BINARY_MAX: return cell_max(a, b);
  case DB_BINARY_MIN: return cell_neg(cell_max(cell_neg(a, t), cell_neg(b, t)), t);
  default: return unknown();
  }
}

/* ---- shapes ---- */

static int64_t axis(int64_t a, unsigned rank) {
  return a < -(int64_t)rank || a >= (int64_t)rank ? -1 : a < 0 ? a + rank : a;
}
/* Axes as a bit mask: all if none is named, -1 if one is bad. */
static int64_t axes_mask(db_list axes, unsigned rank, bool all) {
  int64_t mask = !axes.n && all ? (1 << rank) - 1 : 0;
  for (unsigned i = 0; i < axes.n; i++) {
    int64_t a = axis(axes.v[i], rank);
    if (a < 0 || mask >> a & 1) return -1;
    mask |= 1 << a;
  }
  return mask;
}
static void place_of(const struct array *a, int64_t k, int64_t *at) {
  for (unsigned i = a->rank; i--;) at[i] = k % a->dim[i], k /= a->dim[i];
}
/* The element of a that broadcasting assigns to index `at` of rank axes. */
static struct cell broadcast_cell(const struct array *a, unsigned rank, const int64_t *at) {
  int64_t k = 0;
  for (unsigned i = 0; i < a->rank; i++) k = k * a->dim[i] + (a->dim[i] == 1 ? 0 : at[i + rank - a->rank]);
  return a->cell[k];
}
static bool broadcast(unsigned *rank, int64_t *dim, const struct array *a) {
  unsigned n = a->rank > *rank ? a->rank : *rank;
  int64_t out[ARRAY_RANK];
  for (unsigned i = 0; i < n; i++) {
    int64_t p = i + *rank < n ? 1 : dim[i + *rank - n], q = i + a->rank < n ? 1 : a->dim[i + a->rank - n];
    if (p != q && p != 1 && q != 1) return false;
    out[i] = p == 1 ? q : p;
  }
  memcpy(dim, out, sizeof out), *rank = n;
  return true;
}

/* ---- operations ---- */

static struct array *array_unary(enum db_unary_op op, const struct array *x) {
  bool no_bool = op == DB_UNARY_NEG || op == DB_UNARY_SIGN || op == DB_UNARY_SQUARE || op == DB_UNARY_RELU ||
                 op == DB_UNARY_RELU6 || op == DB_UNARY_FRAC;
  bool test = op == DB_UNARY_ISNAN || op == DB_UNARY_ISINF || op == DB_UNARY_ISFINITE || op == DB_UNARY_LOGICAL_NOT;
  if ((x->t == DB_BOOL && no_bool) || (is_float(x->t) && op == DB_UNARY_NOT)) return NULL;
  db_dtype t = op >= DB_UNARY_RECIPROCAL ? real_type(x->t) : x->t;
  struct array *r = array_new(test ? DB_BOOL : t, x->rank, x->dim);
  for (int64_t i = 0; i < r->n; i++)
    r->cell[i] = test ? cell_test(op, x->cell[i], t) : cell_unary(op, cell_cast(x->cell[i], x->t, t), t);
  return r;
}

static struct array *array_cast(const struct array *x, db_dtype t) {
  if (t < DB_BOOL || t > DB_F8E5M2) return NULL;
  struct array *r = array_new(t, x->rank, x->dim);
  for (int64_t i = 0; i < r->n; i++) r->cell[i] = cell_cast(x->cell[i], x->t, t);
  return r;
}

/* The right operand is tensor y or, if y is NULL, number b. */
static struct array *array_binary(enum db_binary_op op, const struct array *x, const struct array *y, db_operand b) {
  struct array number = {.t = x->t, .n = 1, .cell = &(struct cell){KNOWN, 0, 0, 0}};
  if (!y) {
    if ((b.kind == DB_OPERAND_FLOAT || op == DB_BINARY_DIV) && !is_float(x->t)) number.t = DB_F32;
    if (b.kind == DB_OPERAND_INT && number.t == DB_BOOL) number.t = DB_I32;
    *number.cell = b.kind == DB_OPERAND_FLOAT ? cell_cast(exact(b.f), DB_F64, number.t)
                                              : cell_cast(whole(DB_I64, (uint64_t)b.i), DB_I64, number.t);
    if (b.kind == DB_OPERAND_INT && dtype_is_int((enum dtype)number.t) &&
        (number.cell->i != b.i || (is_unsigned(number.t) && b.i < 0)))
      return NULL;
    y = &number;
  }
  db_dtype t = promoted(x->t, y->t);
  if (t == DB_BOOL && (op == DB_BINARY_SUB || op == DB_BINARY_IDIV || op == DB_BINARY_MOD)) return NULL;
  if (is_float(t) && (op == DB_BINARY_AND || op == DB_BINARY_OR || op == DB_BINARY_XOR)) return NULL;
  if (op == DB_BINARY_DIV) t = real_type(t);
  unsigned rank = x->rank;
  int64_t dim[ARRAY_RANK], at[ARRAY_RANK];
  memcpy(dim, x->dim, sizeof dim);
  if (!broadcast(&rank, dim, y)) return NULL;
  struct array *r = array_new(op >= DB_BINARY_EQ ? DB_BOOL : t, rank, dim);
  for (int64_t i = 0; r->cell && i < r->n; i++) {
    place_of(r, i, at);
    r->cell[i] = cell_binary(op, cell_cast(broadcast_cell(x, rank, at), x->t, t),
                             cell_cast(broadcast_cell(y, rank, at), y->t, t), t);
  }
  return r;
}

static struct array *array_where(const struct array *c, const struct array *x, const struct array *y) {
  if (c->t != DB_BOOL) return NULL;
  db_dtype t = promoted(x->t, y->t);
  unsigned rank = c->rank;
  int64_t dim[ARRAY_RANK], at[ARRAY_RANK];
  memcpy(dim, c->dim, sizeof dim);
  if (!broadcast(&rank, dim, x) || !broadcast(&rank, dim, y)) return NULL;
  struct array *r = array_new(t, rank, dim);
  for (int64_t i = 0; r->cell && i < r->n; i++) {
    place_of(r, i, at);
    struct cell k = broadcast_cell(c, rank, at);
    r->cell[i] = k.state ? unknown()
                 : k.i   ? cell_cast(broadcast_cell(x, rank, at), x->t, t)
                         : cell_cast(broadcast_cell(y, rank, at), y->t, t);
  }
  return r;
}

static struct array *array_reshape(const struct array *x, db_list shape) {
  int64_t dim[ARRAY_RANK], known = 1;
  int open = -1;
  if (shape.n > ARRAY_RANK) return NULL;
  for (unsigned i = 0; i < shape.n; i++) {
    dim[i] = shape.v[i];
    if (dim[i] == -1 && open < 0)
      open = (int)i;
    else if (dim[i] < 0 || __builtin_mul_overflow(known, dim[i], &known))
      return NULL;
  }
  if (open >= 0 && (!known || x->n % known)) return NULL;
  if (open >= 0) dim[open] = x->n / known, known = x->n;
  if (known != x->n) return NULL;
  struct array *r = array_new(x->t, shape.n, dim);
  memcpy(r->cell, x->cell, (size_t)x->n * sizeof *x->cell);
  return r;
}

static struct array *array_permute(const struct array *x, db_list axes) {
  int64_t dim[ARRAY_RANK], at[ARRAY_RANK], from[ARRAY_RANK];
  if (axes.n != x->rank || axes_mask(axes, x->rank, false) < 0) return NULL;
  for (unsigned i = 0; i < x->rank; i++) dim[i] = x->dim[axis(axes.v[i], x->rank)];
  struct array *r = array_new(x->t, x->rank, dim);
  for (int64_t i = 0; i < r->n; i++) {
    place_of(r, i, at);
    for (unsigned k = 0; k < x->rank; k++) from[axis(axes.v[k], x->rank)] = at[k];
    r->cell[i] = broadcast_cell(x, x->rank, from);
  }
  return r;
}

static struct array *array_expand(const struct array *x, db_list shape) {
  int64_t dim[ARRAY_RANK], at[ARRAY_RANK];
  if (shape.n < x->rank || shape.n > ARRAY_RANK) return NULL;
  for (unsigned i = 0; i < shape.n; i++) {
    int64_t have = i + x->rank < shape.n ? 1 : x->dim[i + x->rank - shape.n];
    dim[i] = shape.v[i] == -1 ? have : shape.v[i];
    if (dim[i] < 0 || (have != 1 && have != dim[i])) return NULL;
  }
  struct array *r = array_new(x->t, shape.n, dim);
  for (int64_t i = 0; r->cell && i < r->n; i++) place_of(r, i, at), r->cell[i] = broadcast_cell(x, r->rank, at);
  return r;
}

/* Pads by the pairs with a value or, if shrink is set, keeps the elements between the pairs' bounds. */
static struct array *array_bounds(const struct array *x, db_list pairs, bool shrink, int64_t value) {
  int64_t dim[ARRAY_RANK], at[ARRAY_RANK];
  if (pairs.n != 2 * x->rank) return NULL;
  for (unsigned i = 0; i < x->rank; i++) {
    int64_t a = pairs.v[2 * i], b = pairs.v[2 * i + 1];
    if (shrink ? a < 0 || b > x->dim[i] || a > b : fmin((double)a, 0) + fmin((double)b, 0) + (double)x->dim[i] < 0)
      return NULL;
    dim[i] = shrink ? b - a : a + x->dim[i] + b;
  }
  struct cell fill = cell_cast(whole(DB_I64, (uint64_t)value), DB_I64, x->t);
  if (!shrink && dtype_is_int((enum dtype)x->t) && (fill.i != value || (is_unsigned(x->t) && value < 0))) return NULL;
  struct array *r = array_new(x->t, x->rank, dim);
  for (int64_t i = 0; r->cell && i < r->n; i++) {
    bool inside = true;
    place_of(r, i, at);
    for (unsigned k = 0; k < x->rank; k++) {
      at[k] += shrink ? pairs.v[2 * k] : -pairs.v[2 * k];
      inside = inside && at[k] >= 0 && at[k] < x->dim[k];
      if (x->dim[k] == 1) at[k] = 0;
    }
    r->cell[i] = inside ? broadcast_cell(x, x->rank, at) : fill;
  }
  return r;
}

static struct array *array_flip(const struct array *x, db_list axes) {
  int64_t mask = axes_mask(axes, x->rank, false), at[ARRAY_RANK];
  if (mask < 0) return NULL;
  struct array *r = array_new(x->t, x->rank, x->dim);
  for (int64_t i = 0; i < r->n; i++) {
    place_of(r, i, at);
    for (unsigned k = 0; k < x->rank; k++)
      if (mask >> k & 1) at[k] = x->dim[k] - 1 - at[k];
    r->cell[i] = broadcast_cell(x, x->rank, at);
  }
  return r;
}

/* The sum of n terms of type t in any order. */
static struct cell sum_cells(const struct cell *c, int64_t n, db_dtype t) {
  struct cell r = {KNOWN, 0, 0, 0};
  if (!is_float(t)) {
    for (int64_t i = 0; i < n; i++) {
      if (c[i].state) return unknown();
      r = whole(t, (uint64_t)r.i + (uint64_t)c[i].i);
    }
    return r;
  }
  double size = 0, fine = 1;
  bool points = true, infinite = false;
  for (int64_t i = 0; i < n; i++) {
    r = cell_add(r, c[i], DB_F64);
    if (c[i].state) continue;
    infinite = infinite || isinf(c[i].lo);
    points = points && point(c[i]) && c[i].lo * 1024 == trunc(c[i].lo * 1024);
    if (points && c[i].lo != trunc(c[i].lo)) fine = 1024;
    size += fmax(fabs(c[i].lo), fabs(c[i].hi));
  }
  if (r.state || infinite) return r;
  if (size > 0.9 * most_of(t)) return unknown();
  if (points && size * fine < 1 / eps_of(t)) return r; /* every partial sum is exact */
  double error = (double)(n + 2) * (size * eps_of(t) + least_of(t));
  return (struct cell){KNOWN, r.lo - error, r.hi + error, 0};
}
static struct cell product_cells(const struct cell *c, int64_t n, db_dtype t) {
  struct cell r = is_float(t) ? exact(1) : whole(t, 1);
  double large = 1, small = 1;
  for (int64_t i = 0; i < n; i++) {
    if (!is_float(t)) {
      if (c[i].state) return unknown();
      r = whole(t, (uint64_t)r.i * (uint64_t)c[i].i);
      continue;
    }
    r = cell_mul(r, c[i], t);
    if (c[i].state) continue;
    large *= fmax(fmax(fabs(c[i].lo), fabs(c[i].hi)), 1);
    small *= fmin(fmin(fabs(c[i].lo), fabs(c[i].hi)), 1);
  }
  if (!is_float(t) || r.state) return r;
  if (!(large < 0.9 * most_of(t)) || (small < 1e10 * least_of(t) && small > 0)) return unknown();
  return point(r) && r.lo == trunc(r.lo) && large < 1 / eps_of(t) ? r : rounded(t, r, (double)n + 1);
}

static db_dtype reduced_type(enum db_reduce_op op, db_dtype t) {
  return op == DB_REDUCE_SUM || op == DB_REDUCE_PROD  ? (is_float(t) ? t : sum_type(t))
         : op == DB_REDUCE_MAX || op == DB_REDUCE_MIN ? t
                                                      : real_type(t);
}

static struct cell reduce_cells(enum db_reduce_op op, struct cell *c, int64_t n, db_dtype from, db_dtype t) {
  db_dtype in = op == DB_REDUCE_MAX || op == DB_REDUCE_MIN ? from : is_narrow(t) ? DB_F32 : t;
  for (int64_t i = 0; i < n; i++) c[i] = cell_cast(c[i], from, in);
  struct cell r = n ? c[0] : not_a_number();
  switch (op) {
  case DB_REDUCE_SUM: r = sum_cells(c, n, in); break;
  case DB_REDUCE_PROD: r = product_cells(c, n, in); break;
  case DB_REDUCE_MAX:
  case DB_REDUCE_MIN:
    for (int64_t i = 1; i < n; i++) r = cell_binary(op == DB_REDUCE_MAX ? DB_BINARY_MAX : DB_BINARY_MIN, r, c[i], in);
    break;
  default:
    if (!n || (op != DB_REDUCE_MEAN && n < 2)) return not_a_number();
    r = cell_div(sum_cells(c, n, in), exact((double)n), in);
    if (op == DB_REDUCE_MEAN) break;
    for (int64_t i = 0; i < n; i++) c[i] = cell_unary(DB_UNARY_SQUARE, cell_add(c[i], cell_neg(r, in), in), in);
    r = cell_div(sum_cells(c, n, in), exact((double)(n - 1)), in);
    if (r.state == KNOWN && r.lo < 0) r.lo = 0;
    if (op == DB_REDUCE_STD) r = cell_unary(DB_UNARY_SQRT, r, in);
  }
  return cell_cast(r, in, t);
}

static struct array *array_reduce(enum db_reduce_op op, const struct array *x, db_list axes, bool keep) {
  int64_t mask = axes_mask(axes, x->rank, true), dim[ARRAY_RANK], kept[ARRAY_RANK], at[ARRAY_RANK], count = 1;
  unsigned rank = 0;
  if (mask < 0) return NULL;
  for (unsigned i = 0; i < x->rank; i++) {
    kept[i] = mask >> i & 1 ? 1 : x->dim[i];
    if (mask >> i & 1) count *= x->dim[i];
    if (keep || !(mask >> i & 1)) dim[rank++] = kept[i];
  }
  if (!count && (op == DB_REDUCE_MAX || op == DB_REDUCE_MIN)) return NULL;
  struct array *r = array_new(reduced_type(op, x->t), rank, dim), full = {.rank = x->rank, .dim = {0}};
  memcpy(full.dim, kept, sizeof kept);
  struct cell *c = calloc((size_t)count + 1, sizeof *c);
  for (int64_t i = 0; i < r->n; i++) {
    int64_t n = 0, home[ARRAY_RANK];
    place_of(&full, i, home);
    for (int64_t k = 0; k < x->n; k++) {
      bool mine = true;
      place_of(x, k, at);
      for (unsigned a = 0; a < x->rank; a++) mine = mine && (mask >> a & 1 || at[a] == home[a]);
      if (mine) c[n++] = x->cell[k];
    }
    r->cell[i] = reduce_cells(op, c, n, x->t, r->t);
  }
  free(c);
  return r;
}

static struct array *array_matmul(const struct array *x, const struct array *y) {
  if (!x->rank || !y->rank) return NULL;
  struct array a = *x, b = *y;
  if (x->rank == 1) a.rank = 2, a.dim[1] = x->dim[0], a.dim[0] = 1;
  if (y->rank == 1) b.rank = 2, b.dim[1] = 1;
  int64_t m = a.dim[a.rank - 2], inner = a.dim[a.rank - 1], n = b.dim[b.rank - 1], dim[ARRAY_RANK], at[ARRAY_RANK];
  if (b.dim[b.rank - 2] != inner) return NULL;
  struct array batch = {.rank = a.rank - 2}, other = {.rank = b.rank - 2};
  memcpy(batch.dim, a.dim, sizeof batch.dim), memcpy(other.dim, b.dim, sizeof other.dim);
  if (!broadcast(&batch.rank, batch.dim, &other)) return NULL;
  unsigned rank = batch.rank;
  memcpy(dim, batch.dim, sizeof dim);
  if (x->rank > 1) dim[rank++] = m;
  if (y->rank > 1) dim[rank++] = n;
  db_dtype t = promoted(x->t, y->t), in = t == DB_BOOL ? DB_I32 : is_narrow(t) ? DB_F32 : t;
  struct array *r = array_new(t, rank, dim);
  struct cell *c = calloc((size_t)inner + 1, sizeof *c);
  for (int64_t i = 0; r->cell && i < r->n; i++) {
    int64_t row = i / n % m, column = i % n;
    place_of(&batch, i / (m * n), at);
    for (int64_t k = 0; k < inner; k++) {
      at[batch.rank] = row, at[batch.rank + 1] = k;
      struct cell p = cell_cast(broadcast_cell(&a, batch.rank + 2, at), a.t, in);
      at[batch.rank] = k, at[batch.rank + 1] = column;
      struct cell q = cell_cast(broadcast_cell(&b, batch.rank + 2, at), b.t, in);
      c[k] = cell_binary(DB_BINARY_MUL, p, q, in);
    }
    r->cell[i] = cell_cast(sum_cells(c, inner, in), in, t);
  }
  free(c);
  return r;
}

/* ---- comparing ---- */

static bool cell_meets(struct cell c, db_dtype t, const void *data, int64_t i) {
  uint64_t bits = 0;
  memcpy(&bits, (const char *)data + i * dtype_info[t].size, dtype_info[t].size);
  if (c.state == ANY) return true;
  if (!is_float(t)) return wrap(t, bits) == c.i;
  double v = float_from_bits((enum dtype)t, bits);
  return c.state == NOT_A_NUMBER ? isnan(v) : v >= c.lo && v <= c.hi;
}
#endif
