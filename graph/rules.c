/* Helpers of the rules: arithmetic on constants, exact in each type. */
#include "symbolic.h"
#include <math.h>

const struct ruleset *const rules_simplify[] = {&rules_fold, &rules_algebra, &rules_symbolic, NULL};

static struct uop *constant(struct graph *g, const struct uop *like, enum dtype t, int64_t v) {
  return uop_new(g, OP_CONST, t, like->lanes, (union uop_arg){.i = dtype_wrap(t, v)}, 0, NULL, 0);
}
static struct uop *constant_float(struct graph *g, const struct uop *like, enum dtype t, double v) {
  return uop_new(g, OP_CONST, t, like->lanes, (union uop_arg){.f = dtype_round(t, v)}, 0, NULL, 0);
}

/* Arithmetic of DT_INDEX must not overflow; the other integers wrap. */
static struct uop *wrapped_const(struct graph *g, enum dtype t, bool overflow, int64_t v) {
  return overflow && t == DT_INDEX ? NULL : uop_const_int(g, t, v);
}
struct uop *add_constants(struct graph *g, struct uop *a, struct uop *b) {
  int64_t v;
  if (!a || !b) return NULL;
  bool overflow = __builtin_add_overflow(ival(a), ival(b), &v);
  return wrapped_const(g, a->dtype, overflow, v);
}
struct uop *sub_constants(struct graph *g, struct uop *a, struct uop *b) {
  int64_t v;
  if (!a || !b) return NULL;
  bool overflow = __builtin_sub_overflow(ival(a), ival(b), &v);
  return wrapped_const(g, a->dtype, overflow, v);
}
struct uop *mul_constants(struct graph *g, struct uop *a, struct uop *b) {
  int64_t v;
  if (!a || !b) return NULL;
  bool overflow = __builtin_mul_overflow(ival(a), ival(b), &v);
  return wrapped_const(g, a->dtype, overflow, v);
}

int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b < 0); }
int64_t ceil_divide(int64_t a, int64_t b) { return a / b + (a % b > 0); }

struct uop *compare(struct graph *g, enum op op, struct uop *a, struct uop *b) {
  return a && b ? uop_binary(g, op, a, b) : NULL;
}

struct uop *swap_sources(struct graph *g, struct uop *u) {
  return uop_with_src(g, u, (struct uop *[]){u->src[1], u->src[0]});
}

struct uop *lanes_of(struct graph *g, struct uop *v, int64_t first, unsigned n) {
  if (v->nsrc != v->lanes || first < 0 || first + n > v->nsrc) return NULL;
  if (n == 1) return v->src[first];
  return uop_new(g, OP_VECTORIZE, v->dtype, n, (union uop_arg){0}, 0, v->src + first, n);
}

struct uop *lanes_of_part(struct graph *g, struct uop *u) {
  struct uop *part = u->src[0];
  return uop_new(g, OP_GEP, u->dtype, u->lanes, (union uop_arg){.i = u->arg.i + part->arg.i}, 0, part->src, 1);
}

struct uop *lanes_in_order(struct uop *v) {
  struct uop *x = v->src[0]->src[0];
  if (x->lanes != v->nsrc) return NULL;
  for (unsigned i = 0; i < v->nsrc; i++)
    if (v->src[i]->op != OP_GEP || v->src[i]->src[0] != x || v->src[i]->arg.i != i || v->src[i]->lanes != 1)
      return NULL;
  return x;
}

bool exact_reciprocal(const struct uop *c) {
  if (c->op != OP_CONST || !dtype_is_float(c->dtype)) return false;
  int e;
  double m = frexp(fval(c), &e);
  if (!isfinite(fval(c)) || fabs(m) != 0.5) return false;
  /* both c and 1/c must be normal numbers of the type: up to 2^6 for f8e4m3, up to 2^14 (f16's limit) for the others */
  int most = c->dtype == DT_F8E4M3 ? 6 : 14;
  return e - 1 >= -most && e - 1 <= most;
}

/* Whether every value of `from` is a value of `to`. */
static bool represents(enum dtype to, enum dtype from) {
  static const int8_t digits[DT_COUNT] = {
      [DT_F16] = 11, [DT_BF16] = 8, [DT_F32] = 24, [DT_F64] = 53, [DT_F8E4M3] = 4, [DT_F8E5M2] = 3};
  static const int16_t exponent[DT_COUNT] = {
      [DT_F16] = 5, [DT_BF16] = 8, [DT_F32] = 8, [DT_F64] = 11, [DT_F8E4M3] = 4, [DT_F8E5M2] = 5};
  if (to == from) return true;
  if (from == DT_BOOL) return to != DT_VOID;
  if (to == DT_BOOL) return false;
  bool from_float = dtype_is_float(from), to_float = dtype_is_float(to);
  if (from_float) return to_float && digits[to] >= digits[from] && exponent[to] >= exponent[from];
  int bits = dtype_info[from].size * 8 - (dtype_info[from].cls == 'i');
  if (to_float) return bits <= digits[to] && exponent[to] >= 8; /* f16 could hold u8 too, but not i16 */
  if (dtype_info[from].cls == 'i') return dtype_info[to].cls == 'i' && dtype_info[to].size >= dtype_info[from].size;
  return dtype_info[to].size > dtype_info[from].size ||
         (dtype_info[to].cls == 'u' && dtype_info[to].size == dtype_info[from].size);
}

bool cast_is_direct(enum dtype from, enum dtype via, enum dtype to) {
  if (represents(via, from)) return !(dtype_is_float(via) && !dtype_is_float(from) && dtype_is_int(to)) || to == from;
  /* wrapping twice equals wrapping once to the narrower type */
  bool ints = dtype_is_int(from) && dtype_is_int(via) && dtype_is_int(to);
  return ints && dtype_info[to].size <= dtype_info[via].size && via != DT_INDEX && to != DT_INDEX;
}

static struct uop *fold_cast(struct graph *g, struct uop *u) {
  const struct uop *x = u->src[0];
  enum dtype from = x->dtype, to = u->dtype;
  if (dtype_is_float(from)) {
    double v = fval(x);
    if (dtype_is_float(to)) return constant_float(g, u, to, v);
    if (to == DT_BOOL) return constant(g, u, to, v != 0);
    /* a value out of range has no defined result */
    double t = trunc(v), least = dtype_info[to].cls == 'u' ? 0 : -ldexp(1, dtype_info[to].size * 8 - 1);
    double end = ldexp(1, dtype_info[to].size * 8 - (dtype_info[to].cls == 'i'));
    if (!(t >= least && t < end)) return NULL;
    return constant(g, u, to, to == DT_U64 && t >= 0x1p63 ? (int64_t)(uint64_t)t : (int64_t)t);
  }
  if (!dtype_is_float(to)) return constant(g, u, to, ival(x));
  if (from == DT_U64 && ival(x) < 0) {
    if (to == DT_F32) return constant_float(g, u, to, (double)(float)(uint64_t)ival(x));
    return to == DT_F64 ? constant_float(g, u, to, (double)(uint64_t)ival(x)) : NULL;
  }
  if (to == DT_F32) return constant_float(g, u, to, (double)(float)ival(x));
  bool exact = ival(x) >= -(INT64_C(1) << 53) && ival(x) <= INT64_C(1) << 53;
  return exact || to == DT_F64 ? constant_float(g, u, to, (double)ival(x)) : NULL;
}

static struct uop *fold_bitcast(struct graph *g, struct uop *u) {
  const struct uop *x = u->src[0];
  if (dtype_info[x->dtype].size != dtype_info[u->dtype].size || u->lanes != x->lanes) return NULL;
  /* a NaN's payload is lost in a conversion through another type */
  if (dtype_is_float(x->dtype) && x->dtype != DT_F64 && isnan(fval(x))) return NULL;
  uint64_t bits = dtype_is_float(x->dtype) ? float_to_bits(x->dtype, fval(x)) : (uint64_t)ival(x);
  if (!dtype_is_float(u->dtype))
    return x->dtype == DT_F64 && isnan(fval(x)) ? NULL : constant(g, u, u->dtype, (int64_t)bits);
  double v = float_from_bits(u->dtype, bits);
  return isnan(v) && u->dtype != DT_F64 ? NULL : constant_float(g, u, u->dtype, v);
}

static struct uop *fold_float(struct graph *g, struct uop *u) {
  double a = fval(u->src[0]), b = u->nsrc > 1 ? fval(u->src[1]) : 0;
  enum dtype t = u->dtype;
  switch (u->op) {
  case OP_CMPLT: return constant(g, u, t, a < b);
  case OP_CMPEQ: return constant(g, u, t, a == b);
  case OP_CMPNE: return constant(g, u, t, a != b);
  case OP_NEG: return constant_float(g, u, t, -a);
  case OP_RECIP: return constant_float(g, u, t, 1 / a);
  case OP_SQRT: return constant_float(g, u, t, sqrt(a));
  case OP_EXP2: return constant_float(g, u, t, exp2(a));
  case OP_LOG2: return constant_float(g, u, t, log2(a));
  case OP_SIN: return constant_float(g, u, t, sin(a));
  case OP_TRUNC: return constant_float(g, u, t, trunc(a));
  /* One operation in double on values of at most 24 digits, then rounded, gives the correctly rounded result. */
  case OP_ADD: return constant_float(g, u, t, a + b);
  case OP_SUB: return constant_float(g, u, t, a - b);
  case OP_MUL: return constant_float(g, u, t, a * b);
  case OP_FDIV: return constant_float(g, u, t, a / b);
  case OP_MAX:
    return isnan(a) || isnan(b) || (a == b && signbit(a) != signbit(b)) ? NULL : constant_float(g, u, t, a > b ? a : b);
  case OP_MULACC:
    if (t == DT_F32) return constant_float(g, u, t, (double)fmaf((float)a, (float)b, (float)fval(u->src[2])));
    return t == DT_F64 ? constant_float(g, u, t, fma(a, b, fval(u->src[2]))) : NULL;
  default: return NULL;
  }
}

bool fold_integers(enum op op, enum dtype t, const int64_t x[3], int64_t *value) {
  int64_t a = x[0], b = x[1], v = 0;
  bool wide = t == DT_U64, overflow = false;
  unsigned bits = dtype_info[t].size * 8u;
  switch (op) {
  case OP_CMPLT: v = wide ? (uint64_t)a < (uint64_t)b : a < b; break;
  case OP_CMPEQ: v = a == b; break;
  case OP_CMPNE: v = a != b; break;
  case OP_NEG: overflow = __builtin_sub_overflow((int64_t)0, a, &v); break;
  case OP_ADD: overflow = __builtin_add_overflow(a, b, &v); break;
  case OP_SUB: overflow = __builtin_sub_overflow(a, b, &v); break;
  case OP_MUL: overflow = __builtin_mul_overflow(a, b, &v); break;
  case OP_MULACC:
    overflow = __builtin_mul_overflow(a, b, &v);
    overflow |= __builtin_add_overflow(v, x[2], &v);
    break;
  case OP_IDIV:
    if (!b) return false;
    if (wide)
      v = (int64_t)((uint64_t)a / (uint64_t)b);
    else if (b == -1)
      overflow = __builtin_sub_overflow((int64_t)0, a, &v);
    else
      v = a / b;
    break;
  case OP_MOD:
    if (!b) return false;
    v = wide ? (int64_t)((uint64_t)a % (uint64_t)b) : b == -1 ? 0 : a % b;
    break;
  case OP_MAX: v = wide ? ((uint64_t)a > (uint64_t)b ? a : b) : a > b ? a : b; break;
  case OP_AND: v = a & b; break;
  case OP_OR: v = a | b; break;
  case OP_XOR: v = a ^ b; break;
  case OP_SHL:
    if (b < 0 || b >= bits) return false;
    v = (int64_t)((uint64_t)a << b);
    overflow = t == DT_INDEX && v >> b != a;
    break;
  case OP_SHR:
    if (b < 0 || b >= bits) return false;
    v = wide ? (int64_t)((uint64_t)a >> b) : a >> b;
    break;
  default: return false;
  }
  *value = v;
  return !overflow || t != DT_INDEX;
}

static struct uop *fold_int(struct graph *g, struct uop *u) {
  int64_t x[3] = {0}, v;
  for (unsigned i = 0; i < u->nsrc && i < 3; i++) x[i] = ival(u->src[i]);
  return fold_integers(u->op, u->src[0]->dtype, x, &v) ? constant(g, u, u->dtype, v) : NULL;
}

struct uop *fold_constants(struct graph *g, struct uop *u) {
  for (unsigned i = 0; i < u->nsrc; i++)
    if (u->src[i]->op != OP_CONST) return NULL;
  if (!u->nsrc || u->op == OP_WHERE) return NULL;
  if (u->op == OP_CAST) return fold_cast(g, u);
  if (u->op == OP_BITCAST) return fold_bitcast(g, u);
  return dtype_is_float(u->src[0]->dtype) ? fold_float(g, u) : fold_int(g, u);
}
