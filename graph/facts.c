/* Facts, which are computed once, when a node is made, from the facts of its sources: bounds of integers by interval
 * arithmetic, and shapes of tensors.
 *
 * Bounds are int64. The bounds of a u64 that may exceed int64 are the whole int64 range, from which nothing follows.
 * INDEX arithmetic is assumed not to overflow. The other integers wrap, so an interval that exceeds the type's range
 * becomes that range. */
#include "custom.h"
#include "dims.h"
#include "internal.h"
#include <string.h>

static struct bounds type_range(enum dtype t) {
  switch (t) {
  case DT_BOOL: return (struct bounds){0, 1};
  case DT_I8: return (struct bounds){INT8_MIN, INT8_MAX};
  case DT_U8: return (struct bounds){0, UINT8_MAX};
  case DT_I16: return (struct bounds){INT16_MIN, INT16_MAX};
  case DT_U16: return (struct bounds){0, UINT16_MAX};
  case DT_I32: return (struct bounds){INT32_MIN, INT32_MAX};
  case DT_U32: return (struct bounds){0, UINT32_MAX};
  default: return (struct bounds){INT64_MIN, INT64_MAX};
  }
}

static int64_t clamp128(__int128 v) { return v < INT64_MIN ? INT64_MIN : v > INT64_MAX ? INT64_MAX : (int64_t)v; }

/* The bounds of type t for an exact interval. */
static struct bounds clamp_to_type(enum dtype t, __int128 lo, __int128 hi) {
  struct bounds r = type_range(t);
  if (t == DT_INDEX) return (struct bounds){clamp128(lo), clamp128(hi)};
  if (lo < r.min || hi > r.max || (t == DT_U64 && lo < 0)) return r;
  return (struct bounds){(int64_t)lo, (int64_t)hi};
}

static struct bounds bounds_of_four(enum dtype t, __int128 a, __int128 b, __int128 c, __int128 d) {
  __int128 lo = a, hi = a;
  if (b < lo) lo = b;
  if (b > hi) hi = b;
  if (c < lo) lo = c;
  if (c > hi) hi = c;
  if (d < lo) lo = d;
  if (d > hi) hi = d;
  return clamp_to_type(t, lo, hi);
}

static struct bounds mul_bounds(enum dtype t, struct bounds a, struct bounds b) {
  return bounds_of_four(t, (__int128)a.min * b.min, (__int128)a.min * b.max, (__int128)a.max * b.min,
                        (__int128)a.max * b.max);
}

/* b does not contain 0 */
static struct bounds div_bounds(enum dtype t, struct bounds a, struct bounds b) {
  __int128 first = b.min ? b.min : 1, last = b.max ? b.max : 1;
  return bounds_of_four(t, a.min / first, a.min / last, a.max / first, a.max / last);
}

static struct bounds bool_bounds(bool yes, bool no) { return (struct bounds){yes, !no}; }

static int64_t ones_above(int64_t v) { /* the smallest 2^k-1 >= v, for v >= 0 */
  return v ? (int64_t)(~UINT64_C(0) >> __builtin_clzll((uint64_t)v)) : 0;
}

static struct bounds mod_bounds(enum dtype t, struct bounds a, struct bounds b) {
  if (a.min >= 0 && b.min == b.max && b.min > 0 && a.min / b.min == a.max / b.min)
    return (struct bounds){a.min % b.min, a.max % b.min};
  __int128 m = (b.min > 0 ? (__int128)b.max : -(__int128)b.min) - 1,
           least = b.min > 0 ? (__int128)b.min : -(__int128)b.max;
  if (a.min >= 0 && a.max < least) return a;
  __int128 lo = a.min < 0 ? (-m > a.min ? -m : (__int128)a.min) : 0,
           hi = a.max > 0 ? (m < a.max ? m : (__int128)a.max) : 0;
  return clamp_to_type(t, lo, hi);
}

/* Of an ALU operation whose sources all have bounds s. */
static struct bounds alu_bounds(const struct uop *u, const struct bounds *s) {
  enum dtype t = u->dtype;
  struct bounds all = type_range(t), a = s[0], b = s[1];
  bool cmp64 = u->op >= OP_CMPLT && u->op <= OP_CMPNE && u->src[0]->dtype == DT_U64 && (a.min < 0 || b.min < 0);
  bool equal = (u->nsrc > 1 && u->src[0] == u->src[1]) || (a.min == a.max && b.min == b.max && a.min == b.min);
  bool apart = a.max < b.min || b.max < a.min;
  switch (u->op) {
  case OP_NEG: return clamp_to_type(t, -(__int128)a.max, -(__int128)a.min);
  case OP_ADD: return clamp_to_type(t, (__int128)a.min + b.min, (__int128)a.max + b.max);
  case OP_SUB: return clamp_to_type(t, (__int128)a.min - b.max, (__int128)a.max - b.min);
  case OP_MUL: return mul_bounds(t, a, b);
  case OP_MULACC: {
    struct bounds p = mul_bounds(DT_INDEX, a, b);
    return p.min == INT64_MIN || p.max == INT64_MAX
               ? all
               : clamp_to_type(t, (__int128)p.min + s[2].min, (__int128)p.max + s[2].max);
  }
  case OP_IDIV:
    if (b.min <= 0 && b.max >= 0) return all;
    return div_bounds(t, a, b);
  case OP_MOD: return b.min <= 0 && b.max >= 0 ? all : mod_bounds(t, a, b);
  case OP_MAX: return (struct bounds){a.min > b.min ? a.min : b.min, a.max > b.max ? a.max : b.max};
  case OP_CMPLT: return cmp64 ? all : bool_bounds(a.max < b.min, a.min >= b.max);
  case OP_CMPEQ: return cmp64 ? all : bool_bounds(equal, apart);
  case OP_CMPNE: return cmp64 ? all : bool_bounds(apart, equal);
  case OP_AND:
    if (t == DT_BOOL) return (struct bounds){a.min & b.min, a.max & b.max};
    if (a.min >= 0 && b.min >= 0) return (struct bounds){0, a.max < b.max ? a.max : b.max};
    if (a.min >= 0) return (struct bounds){0, a.max};
    if (b.min >= 0) return (struct bounds){0, b.max};
    return all;
  case OP_OR:
    if (t == DT_BOOL) return (struct bounds){a.min | b.min, a.max | b.max};
    if (a.min < 0 || b.min < 0) return all;
    return (struct bounds){a.min > b.min ? a.min : b.min, ones_above(a.max > b.max ? a.max : b.max)};
  case OP_XOR:
    if (t == DT_BOOL) return all;
    return a.min < 0 || b.min < 0 ? all : (struct bounds){0, ones_above(a.max > b.max ? a.max : b.max)};
  case OP_SHL:
    if (b.min < 0 || b.max > 62) return all;
    return bounds_of_four(t, (__int128)a.min * ((int64_t)1 << b.min), (__int128)a.min * ((int64_t)1 << b.max),
                          (__int128)a.max * ((int64_t)1 << b.min), (__int128)a.max * ((int64_t)1 << b.max));
  case OP_SHR:
    if (b.min < 0 || b.max > 63) return all;
    return bounds_of_four(t, a.min >> b.min, a.min >> b.max, a.max >> b.min, a.max >> b.max);
  case OP_WHERE:
    if (a.min > 0) return b;
    if (a.max == 0) return s[2];
    return (struct bounds){b.min < s[2].min ? b.min : s[2].min, b.max > s[2].max ? b.max : s[2].max};
  default: return all;
  }
}

struct bounds uop_compute_bounds(const struct uop *u) {
  enum dtype t = u->dtype;
  struct bounds all = type_range(t), none = {INT64_MIN, INT64_MAX};
  if (u->op == OP_CONST) return t == DT_U64 && u->arg.i < 0 ? all : (struct bounds){u->arg.i, u->arg.i};
  struct bounds s[3] = {none, none, none};
  bool known = u->nsrc > 0; /* all sources have bounds */
  for (unsigned i = 0; i < u->nsrc && i < 3; i++) {
    if (u->src[i]->flags & UOP_HAS_BOUNDS)
      s[i] = *uop_bounds(u->src[i]);
    else
      known = false;
  }
  struct bounds a = s[0], b = s[1];
  bool wide = t == DT_U64 && (a.min < 0 || (u->nsrc > 1 && b.min < 0)); /* a u64 with unknown bounds */
  switch (u->op) {
  case OP_BIND: return known ? a : all;
  case OP_VAR: return known && u->nsrc == 2 ? clamp_to_type(t, a.min, b.max) : all;
  case OP_RANGE:
  case OP_SPECIAL: return known ? clamp_to_type(t, 0, a.max > 0 ? a.max - 1 : 0) : all;
  case OP_RESHAPE:
  case OP_EXPAND:
  case OP_PERMUTE:
  case OP_SHRINK:
  case OP_FLIP:
  case OP_CONTIGUOUS:
  case OP_COPY:
  case OP_SHARD:
  case OP_AFTER:
  case OP_GEP: return u->nsrc && u->src[0]->dtype == t && (u->src[0]->flags & UOP_HAS_BOUNDS) ? a : all;
  case OP_IOTA: return known ? clamp_to_type(t, 0, a.max > 0 ? a.max - 1 : 0) : all;
  case OP_GATHER:
  case OP_SHEAR:
  case OP_PAD:
    return u->nsrc && (u->src[0]->flags & UOP_HAS_BOUNDS)
               ? (struct bounds){a.min < 0 ? a.min : 0, a.max > 0 ? a.max : 0}
               : all;
  case OP_CAST:
    if (!known || (u->src[0]->dtype == DT_U64 && a.min < 0)) return all;
    if (t == DT_BOOL) return bool_bounds(a.min > 0 || a.max < 0, a.min == 0 && a.max == 0);
    return clamp_to_type(t, a.min, a.max);
  default: break;
  }
  if (!known || wide || op_info[u->op].cls != OPCLASS_ALU || op_info[u->op].arity != u->nsrc) return all;
  return alu_bounds(u, s);
}

/* ---- shapes ---- */
static const struct shape scalar;

int64_t shape_numel(const struct shape *s) {
  int64_t n = 1;
  for (unsigned i = 0; i < s->rank; i++)
    if (!uop_is_const(s->dim[i]) || __builtin_mul_overflow(n, s->dim[i]->arg.i, &n)) return -1;
  return n;
}

bool shape_equal(const struct shape *a, const struct shape *b) {
  if (a == b) return true;
  return a && b && a->rank == b->rank && !memcmp(a->dim, b->dim, a->rank * sizeof *a->dim);
}

static const struct shape *custom_shape(struct graph *g, struct uop *u) {
  struct shape s = {.rank = custom_rank(u)};
  if (s.rank > MAX_RANK || custom_inputs(u) + s.rank + CUSTOM_NUMBERS > u->nsrc) return NULL;
  memcpy(s.dim, u->src + custom_inputs(u), s.rank * sizeof *s.dim);
  return s.rank ? shape_intern(g, &s) : &scalar;
}

/* Sets the sizes of out. Returns false if the argument is no permutation. */
static bool permute_shape(const struct uop *u, const struct shape *x, struct shape *out) {
  unsigned seen = 0;
  for (unsigned i = 0; i < out->rank; i++) {
    unsigned from = (unsigned)((uint64_t)u->arg.i >> (4 * i)) & 15;
    if (from >= out->rank || (seen >> from & 1)) return false;
    seen |= 1u << from;
    out->dim[i] = x->dim[from];
  }
  return true;
}

const struct shape *uop_compute_shape(struct graph *g, struct uop *u) {
  if (u->op == OP_CONST || !u->nsrc) return &scalar;
  const struct shape *x = u->src[0]->shape;
  if (op_info[u->op].cls == OPCLASS_ALU) {
    for (unsigned i = 1; i < u->nsrc; i++) {
      const struct shape *y = u->src[i]->shape;
      if (!x || !y) return NULL;
      if (!x->rank)
        x = y;
      else if (y->rank && x != y)
        return NULL;
    }
    return x;
  }
  if (op_info[u->op].cls != OPCLASS_TENSOR) return &scalar;
  if (u->op == OP_CONTIGUOUS || u->op == OP_COPY || u->op == OP_SHARD || u->op == OP_FLIP || u->op == OP_ASSIGN || !x)
    return x;
  if (u->op == OP_GATHER) return u->nsrc == 2 ? u->src[1]->shape : NULL;
  if (u->op == OP_CUSTOM) return custom_shape(g, u);

  struct shape s = {.rank = x->rank};
  switch (u->op) {
  case OP_BUFFER:
  case OP_IOTA:
    s.rank = 1;
    s.dim[0] = u->src[0];
    break;
  case OP_RESHAPE:
  case OP_EXPAND:
  case OP_EXCHANGE:
    s.rank = u->nsrc - 1u;
    if (s.rank > MAX_RANK || (u->op == OP_EXPAND && s.rank != x->rank)) return NULL;
    memcpy(s.dim, &u->src[1], s.rank * sizeof *s.dim);
    break;
  case OP_PERMUTE:
    if (!permute_shape(u, x, &s)) return NULL;
    break;
  case OP_PAD:
  case OP_SHRINK:
    if (u->nsrc != 1 + 2 * s.rank) return NULL;
    for (unsigned i = 0; i < s.rank; i++) {
      struct uop *p = u->src[1 + 2 * i], *q = u->src[2 + 2 * i];
      struct uop *first = u->op == OP_PAD ? dim_add(g, x->dim[i], p) : q;
      s.dim[i] = !first ? NULL : u->op == OP_PAD ? dim_add(g, first, q) : dim_sub(g, first, p);
      if (!s.dim[i]) return NULL;
    }
    break;
  case OP_SHEAR:
    if ((u->arg.i & 15) >= s.rank || (u->arg.i >> 4 & 15) >= s.rank || u->nsrc != 2) return NULL;
    memcpy(s.dim, x->dim, s.rank * sizeof *s.dim);
    s.dim[u->arg.i >> 4 & 15] = u->src[1];
    break;
  case OP_MULTI:
  case OP_JOIN:
    memcpy(s.dim, x->dim, s.rank * sizeof *s.dim);
    for (unsigned i = 1; u->arg.i >= 0 && i < u->nsrc; i++) {
      const struct shape *part = u->src[i]->shape;
      if (!part || part->rank != s.rank || u->arg.i >= s.rank) return NULL;
      if (!(s.dim[u->arg.i] = dim_add(g, s.dim[u->arg.i], part->dim[u->arg.i]))) return NULL;
    }
    break;
  case OP_SCATTER:
  case OP_SEGMENTS:
    memcpy(s.dim, x->dim, s.rank * sizeof *s.dim);
    s.dim[u->arg.i & 15] = u->src[u->op == OP_SCATTER ? 2 : 3];
    s.dim[u->arg.i >> 4 & 15] = uop_index(g, 1);
    break;
  case OP_REDUCE_AXIS:
    for (unsigned i = 0; i < s.rank; i++) s.dim[i] = (u->arg.i >> i & 1) ? uop_index(g, 1) : x->dim[i];
    break;
  default: return NULL;
  }
  return s.rank ? shape_intern(g, &s) : &scalar;
}

const struct shape *uop_shape(struct graph *g, struct uop *u) { return u->shape; }
