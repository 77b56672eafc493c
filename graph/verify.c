/* Checks that a graph is well-formed at a stage. The message is about the first node that is not. */
#include "internal.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct check {
  char *err;
  size_t errcap;
  const struct uop *u;
  enum uop_stage stage;
};

__attribute__((format(printf, 2, 3))) static int bad(const struct check *c, const char *fmt, ...) {
  char why[256], expr[96];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  const struct uop *u = c->u;
  const char *op = u->op < OP_COUNT ? op_info[u->op].name : "?",
             *type = u->dtype < DT_COUNT ? dtype_info[u->dtype].name : "?";
  bool printable = u->op < OP_COUNT && u->dtype < DT_COUNT;
  if (c->errcap)
    snprintf(c->err, c->errcap, "%s %s: %s in %s", op, type, why, printable ? uop_expr(u, expr, sizeof expr) : "?");
  return -EINVAL;
}

static char *shape_text(const struct shape *s, char *buf, size_t cap) {
  size_t n = 0;
  char dim[64];
  n += (size_t)snprintf(buf, cap, "(");
  for (unsigned i = 0; s && i < s->rank && n < cap; i++)
    n += (size_t)snprintf(buf + n, cap - n, "%s%s", i ? ", " : "", uop_expr(s->dim[i], dim, sizeof dim));
  if (n < cap) snprintf(buf + n, cap - n, s ? ")" : "?)");
  return buf;
}

enum { F = 1, I = 2, B = 4 }; /* float, integer, bool */
static unsigned class_of(unsigned t) { return t == DT_VOID ? 0 : t == DT_BOOL ? B : dtype_is_float(t) ? F : I; }

/* The types that each elementwise op accepts. CAST, BITCAST and WHERE have their own rules. */
static const uint8_t takes[OP_COUNT] = {
    [OP_NEG] = F | I,       [OP_RECIP] = F,         [OP_SQRT] = F,       [OP_EXP2] = F,        [OP_LOG2] = F,
    [OP_SIN] = F,           [OP_TRUNC] = F,         [OP_ADD] = F | I,    [OP_SUB] = F | I,     [OP_MUL] = F | I,
    [OP_FDIV] = F,          [OP_IDIV] = I,          [OP_MOD] = I,        [OP_MAX] = F | I | B, [OP_CMPLT] = F | I | B,
    [OP_CMPEQ] = F | I | B, [OP_CMPNE] = F | I | B, [OP_AND] = I | B,    [OP_OR] = I | B,      [OP_XOR] = I | B,
    [OP_SHL] = I,           [OP_SHR] = I,           [OP_MULACC] = F | I, [OP_FUNCTION] = F,
};

static int check_alu(const struct check *c) {
  const struct uop *u = c->u;
  for (unsigned i = 0; i < u->nsrc; i++)
    if (u->src[i]->lanes != u->lanes && u->src[i]->lanes != 1)
      return bad(c, "source %u has %u lanes, the result %u", i, u->src[i]->lanes, u->lanes);
  const struct uop *a = u->src[0];
  switch (u->op) {
  case OP_CAST: return a->dtype == DT_VOID || u->dtype == DT_VOID ? bad(c, "void has no values") : 0;
  case OP_BITCAST:
    if (dtype_info[a->dtype].size * a->lanes != dtype_info[u->dtype].size * u->lanes)
      return bad(c, "%s has another size", dtype_info[a->dtype].name);
    return 0;
  case OP_WHERE:
    if (a->dtype != DT_BOOL) return bad(c, "the condition is %s, not bool", dtype_info[a->dtype].name);
    if (u->src[1]->dtype != u->dtype || u->src[2]->dtype != u->dtype)
      return bad(c, "chooses between %s and %s", dtype_info[u->src[1]->dtype].name, dtype_info[u->src[2]->dtype].name);
    return 0;
  default: break;
  }
  bool scales = u->op == OP_SHL && u->aux && c->stage != STAGE_TENSOR && class_of(a->dtype) == F;
  if (!(takes[u->op] & class_of(a->dtype)) && !scales) return bad(c, "not defined for %s", dtype_info[a->dtype].name);
  for (unsigned i = 1; i < u->nsrc; i++)
    if (u->src[i]->dtype != a->dtype)
      return bad(c, "mixes %s and %s", dtype_info[a->dtype].name, dtype_info[u->src[i]->dtype].name);
  enum dtype want = u->op == OP_CMPLT || u->op == OP_CMPEQ || u->op == OP_CMPNE ? DT_BOOL : a->dtype;
  return u->dtype == want ? 0 : bad(c, "the result should be %s", dtype_info[want].name);
}

/* Evaluated only when a message is written. */
#define FROM shape_text(x->shape, from, sizeof from)

static int check_tensor(const struct check *c) {
  const struct uop *u = c->u, *x = u->src[0];
  char from[256], to[256];
  for (unsigned i = 1; i < u->nsrc && u->op != OP_GATHER && u->op != OP_ASSIGN && u->op != OP_MULTI && u->op != OP_JOIN;
       i++)
    if (!dtype_is_int(u->src[i]->dtype))
      return bad(c, "dimension %u is %s, not an integer", i - 1, dtype_info[u->src[i]->dtype].name);
  if (u->op == OP_BUFFER) {
    if (!uop_is_const(x) || x->dtype != DT_INDEX || x->arg.i < 0)
      return bad(c, "its size is not a constant of at least 0");
    return 0;
  }
  if (u->op == OP_IOTA)
    return dtype_is_int(u->dtype) && dtype_is_int(x->dtype) ? 0 : bad(c, "counts in and up to integers");
  if (x->dtype != u->dtype) return bad(c, "its source is %s", dtype_info[x->dtype].name);
  if (!x->shape) return 0; /* reported for the source */
  unsigned rank = x->shape->rank;
  switch (u->op) {
  case OP_RESHAPE:
    if (!u->shape) return bad(c, "more than %d dimensions", MAX_RANK);
    int64_t n = shape_numel(x->shape), m = shape_numel(u->shape);
    for (unsigned i = 0; i < u->shape->rank; i++)
      if (uop_max(u->shape->dim[i]) < 0)
        return bad(c, "a negative dimension in %s", shape_text(u->shape, to, sizeof to));
    if (n != m)
      return bad(c, "%s and %s have different numbers of elements", FROM, shape_text(u->shape, to, sizeof to));
    break;
  case OP_EXPAND:
    if (u->nsrc != rank + 1) return bad(c, "%u dimensions for %s", u->nsrc - 1u, FROM);
    for (unsigned i = 0; i < rank; i++) {
      const struct uop *d = x->shape->dim[i];
      if (d != u->src[i + 1] && !(uop_is_const(d) && d->arg.i == 1))
        return bad(c, "dimension %u of %s is not 1 and cannot grow", i, FROM);
      if (uop_max(u->src[i + 1]) < 0) return bad(c, "dimension %u would be negative", i);
    }
    break;
  case OP_PERMUTE:
    if (!u->shape)
      return bad(c, "axis order 0x%" PRIx64 " is not a permutation of the axes of %s", (uint64_t)u->arg.i, FROM);
    break;
  case OP_PAD:
  case OP_SHRINK:
    if (u->nsrc != 2 * rank + 1) return bad(c, "%u bounds for %s", u->nsrc - 1u, FROM);
    for (unsigned i = 0; i < rank; i++) {
      struct uop *b = u->src[1 + 2 * i], *e = u->src[2 + 2 * i];
      if (u->op == OP_PAD && (uop_max(b) < 0 || uop_max(e) < 0)) return bad(c, "negative padding of axis %u", i);
      if (u->op == OP_SHRINK && (uop_max(b) < 0 || uop_max(e) < uop_min(b) || uop_min(e) > uop_max(x->shape->dim[i])))
        return bad(c, "%" PRId64 "..%" PRId64 " is not within axis %u of %s", uop_min(b), uop_max(e), i, FROM);
    }
    if (!u->shape) return bad(c, "a dimension overflows");
    break;
  case OP_SHEAR:
    if (!u->shape || (u->arg.i & 15) == (u->arg.i >> 4 & 15))
      return bad(c, "axis %d along axis %d of %s", (int)(u->arg.i >> 4 & 15), (int)(u->arg.i & 15), FROM);
    if (uop_max(u->src[1]) < 0) return bad(c, "a negative dimension");
    break;
  case OP_FLIP:
    if ((uint64_t)u->arg.i >> rank)
      return bad(c, "axis mask 0x%" PRIx64 " names axes that %s lacks", (uint64_t)u->arg.i, FROM);
    break;
  case OP_REDUCE_AXIS:
    if ((uint64_t)u->arg.i >> rank)
      return bad(c, "axis mask 0x%" PRIx64 " names axes that %s lacks", (uint64_t)u->arg.i, FROM);
    if (u->aux != OP_ADD && u->aux != OP_MUL && u->aux != OP_MAX)
      return bad(c, "reduces with something other than ADD, MUL or MAX");
    break;
  case OP_GATHER: {
    const struct shape *index = u->src[1]->shape;
    if (!dtype_is_int(u->src[1]->dtype)) return bad(c, "the index is %s", dtype_info[u->src[1]->dtype].name);
    if (!index) return 0; /* reported for the index */
    if ((uint64_t)u->arg.i >= rank || index->rank != rank)
      return bad(c, "axis %" PRId64 " and an index %s for %s", u->arg.i, shape_text(index, to, sizeof to), FROM);
    for (unsigned i = 0; i < rank; i++)
      if (i != u->arg.i && index->dim[i] != x->shape->dim[i])
        return bad(c, "dimension %u of the index %s is not that of %s", i, shape_text(index, to, sizeof to), FROM);
    break;
  }
  case OP_ASSIGN: {
    const struct uop *view = u->src[1], *value = u->src[2], *to_memory = view;
    while (x->op == OP_RESHAPE) x = x->src[0];
    if (x->op != OP_BUFFER && x->op != OP_ASSIGN) return bad(c, "%s is not in memory", op_info[x->op].name);
    while (to_memory != u->src[0] && to_memory != x && to_memory->op >= OP_RESHAPE && to_memory->op <= OP_FLIP)
      to_memory = to_memory->src[0];
    if (to_memory != u->src[0] && to_memory != x) return bad(c, "the second source is no view of the first");
    if (value->dtype != u->dtype) return bad(c, "the value is %s", dtype_info[value->dtype].name);
    if (view->shape && value->shape && !shape_equal(view->shape, value->shape))
      return bad(c, "%s is written to %s", shape_text(value->shape, to, sizeof to),
                 shape_text(view->shape, from, sizeof from));
    break;
  }
  default: break;
  }
  return 0;
}

static bool is_pointer(const struct uop *u) {
  u = uop_behind_after(u);
  return u->op == OP_PARAM || u->op == OP_STAGE || u->op == OP_LOCAL || u->op == OP_REG || u->op == OP_BUFFER;
}

static int check_kernel(const struct check *c) {
  const struct uop *u = c->u;
  static const uint8_t least[OP_COUNT] = {
      [OP_INDEX] = 2, [OP_LOAD] = 1, [OP_STORE] = 2, [OP_REDUCE] = 1, [OP_STAGE] = 3,
      [OP_MMA] = 3,   [OP_END] = 1,  [OP_AFTER] = 1, [OP_IF] = 1,     [OP_VECTORIZE] = 1};
  if (u->nsrc < least[u->op]) return bad(c, "has %u sources, needs %u", u->nsrc, least[u->op]);
  switch (u->op) {
  case OP_PARAM:
  case OP_LOCAL:
  case OP_REG:
    if (!u->nsrc) return bad(c, "has no size");
    if (!dtype_is_int(u->src[0]->dtype) || uop_max(u->src[0]) < 0)
      return bad(c, "its size is not an integer of at least 0");
    return 0;
  case OP_RANGE:
    if (u->aux > AXIS_ORDERED) return bad(c, "unknown kind of axis %u", u->aux);
    return dtype_is_int(u->src[0]->dtype) ? 0 : bad(c, "its bound is not an integer");
  case OP_SPECIAL:
    if (u->aux > 1 || u->arg.i < 0 || u->arg.i > 2)
      return bad(c, "there is no dimension %" PRId64 " of kind %u", u->arg.i, u->aux);
    return 0;
  case OP_INDEX:
    if (!is_pointer(u->src[0])) return bad(c, "source 0 is %s, not a pointer", op_info[u->src[0]->op].name);
    if (!dtype_is_int(u->src[1]->dtype))
      return bad(c, "the index is %s, not an integer", dtype_info[u->src[1]->dtype].name);
    if (u->nsrc > 2 && u->src[2]->dtype != DT_BOOL)
      return bad(c, "the condition is %s, not bool", dtype_info[u->src[2]->dtype].name);
    if (u->nsrc > 3) return bad(c, "more than three sources");
    return 0;
  case OP_LOAD:
    if (uop_behind_after(u->src[0])->op != OP_INDEX)
      return bad(c, "loads from %s, not an INDEX", op_info[u->src[0]->op].name);
    if (uop_behind_after(u->src[0])->nsrc > 2 && (u->nsrc < 2 || u->src[1]->dtype != u->dtype))
      return bad(c, "a conditional load needs a value of its type for when it is not valid");
    return 0;
  case OP_STORE:
    if (uop_behind_after(u->src[0])->op != OP_INDEX)
      return bad(c, "stores to %s, not an INDEX", op_info[u->src[0]->op].name);
    if (uop_behind_after(u->src[0])->dtype != u->src[1]->dtype)
      return bad(c, "stores %s into %s", dtype_info[u->src[1]->dtype].name, dtype_info[u->src[0]->dtype].name);
    return 0;
  case OP_FETCH:
    for (unsigned i = 0; i < 2; i++)
      if (u->src[i]->op != OP_INDEX || u->src[i]->dtype != u->src[0]->dtype)
        return bad(c, "source %u is %s of %s", i, op_info[u->src[i]->op].name, dtype_info[u->src[i]->dtype].name);
    return u->arg.i > 0 ? 0 : bad(c, "copies %" PRId64 " elements", u->arg.i);
  case OP_REDUCE:
    if (c->stage == STAGE_LINEAR) return bad(c, "is gone once the kernel is linear");
    if (u->aux != OP_ADD && u->aux != OP_MUL && u->aux != OP_MAX)
      return bad(c, "reduces with something other than ADD, MUL or MAX");
    if (u->src[0]->dtype != u->dtype) return bad(c, "its value is %s", dtype_info[u->src[0]->dtype].name);
    for (unsigned i = 1; i < u->nsrc; i++)
      if (u->src[i]->op != OP_RANGE) return bad(c, "source %u is %s, not a RANGE", i, op_info[u->src[i]->op].name);
    return 0;
  case OP_MMA:
    if (u->src[0]->dtype != u->src[1]->dtype)
      return bad(c, "multiplies %s and %s", dtype_info[u->src[0]->dtype].name, dtype_info[u->src[1]->dtype].name);
    if (c->stage == STAGE_LINEAR) {
      const struct uop *sum = u->src[2];
      bool tiles = (u->nsrc == 5 || u->nsrc == 7) && u->src[0]->op == OP_INDEX && u->src[1]->op == OP_INDEX;
      return (u->nsrc == 3 || tiles) && sum->dtype == u->dtype && sum->lanes == u->lanes
                 ? 0
                 : bad(c, "adds to %s of %u lanes", dtype_info[sum->dtype].name, sum->lanes);
    }
    if (u->aux < 2 || u->aux > u->nsrc) return bad(c, "binds from source %u on", u->aux);
    for (unsigned i = 2; i < u->nsrc; i++)
      if (u->src[i]->op != OP_RANGE) return bad(c, "source %u is %s, not a RANGE", i, op_info[u->src[i]->op].name);
    return 0;
  case OP_STAGE:
    if (c->stage == STAGE_LINEAR) return bad(c, "is gone once the kernel is linear");
    if (u->src[0]->dtype != u->dtype) return bad(c, "its value is %s", dtype_info[u->src[0]->dtype].name);
    if (u->aux && u->aux != OP_ADD && u->aux != OP_MUL && u->aux != OP_MAX)
      return bad(c, "combines with something other than ADD, MUL or MAX");
    if (!dtype_is_int(u->src[1]->dtype))
      return bad(c, "the index is %s, not an integer", dtype_info[u->src[1]->dtype].name);
    if (uop_min(u->src[1]) < 0 || uop_max(u->src[1]) >= u->arg.i)
      return bad(c, "its index is not within its %" PRId64 " elements", u->arg.i);
    for (unsigned i = 2; i < u->nsrc; i++)
      if (u->src[i]->op != OP_RANGE) return bad(c, "source %u is %s, not a RANGE", i, op_info[u->src[i]->op].name);
    return 0;
  case OP_END:
    for (unsigned i = 1; i < u->nsrc; i++)
      if (u->src[i]->op != OP_RANGE) return bad(c, "source %u is %s, not a RANGE", i, op_info[u->src[i]->op].name);
    return 0;
  case OP_IF:
    return u->src[0]->dtype == DT_BOOL ? 0 : bad(c, "the condition is %s, not bool", dtype_info[u->src[0]->dtype].name);
  case OP_ENDIF: return u->src[0]->op == OP_IF ? 0 : bad(c, "ends %s, not an IF", op_info[u->src[0]->op].name);
  case OP_VECTORIZE: {
    unsigned lanes = 0;
    for (unsigned i = 0; i < u->nsrc; i++) lanes += u->src[i]->lanes;
    return lanes == u->lanes ? 0 : bad(c, "%u lanes from sources with %u", u->lanes, lanes);
  }
  case OP_GEP:
    return u->arg.i >= 0 && u->arg.i + u->lanes <= u->src[0]->lanes
               ? 0
               : bad(c, "lane %" PRId64 " of a vector of %u", u->arg.i, u->src[0]->lanes);
  default: return 0;
  }
}

static int check_node(const struct check *c) {
  const struct uop *u = c->u;
  if (u->op >= OP_COUNT || u->dtype >= DT_COUNT) return bad(c, "no such op or type");
  const struct op_info *o = &op_info[u->op];
  if (o->arity >= 0 && u->nsrc != o->arity) return bad(c, "has %u sources, needs %d", u->nsrc, o->arity);
  if (!u->lanes) return bad(c, "has no lanes");
  switch (o->cls) {
  case OPCLASS_LEAF:
    if (u->op == OP_CONST && !dtype_is_float(u->dtype) && u->arg.i != dtype_wrap(u->dtype, u->arg.i))
      return bad(c, "%" PRId64 " is not a value of the type", u->arg.i);
    return 0;
  case OPCLASS_TENSOR:
    if (c->stage != STAGE_TENSOR) return bad(c, "does not belong in a kernel");
    if (!u->nsrc) return bad(c, "has no sources");
    return check_tensor(c);
  case OPCLASS_ALU: {
    int r = check_alu(c);
    if (r || u->shape) return r;
    char a[128], b[128];
    const struct shape *first = NULL;
    for (unsigned i = 0; i < u->nsrc; i++) {
      const struct shape *s = u->src[i]->shape;
      if (!s || !s->rank) continue;
      if (first && !shape_equal(first, s))
        return bad(c, "shapes %s and %s differ", shape_text(first, a, sizeof a), shape_text(s, b, sizeof b));
      first = s;
    }
    return 0;
  }
  default:
    if (c->stage == STAGE_TENSOR && u->op != OP_SINK) return bad(c, "does not belong in a tensor graph");
    return check_kernel(c);
  }
}

int uop_verify(struct uop *const *roots, unsigned nroots, enum uop_stage stage, char *err, size_t errcap) {
  size_t n;
  struct uop **order = uop_toposort(roots, nroots, &n);
  if (!order) {
    if (errcap) snprintf(err, errcap, "out of memory");
    return -ENOMEM;
  }
  int r = 0;
  struct uop *axis[64] = {0}; /* the RANGE with each axis number */
  for (size_t i = 0; i < n && !r; i++) {
    struct check c = {err, errcap, order[i], stage};
    r = check_node(&c);
    if (r || order[i]->op != OP_RANGE || order[i]->arg.i < 0 || order[i]->arg.i >= 64) continue;
    struct uop **a = &axis[order[i]->arg.i];
    if (*a && *a != order[i]) r = bad(&c, "axis %" PRId64 " is two different ranges", order[i]->arg.i);
    *a = order[i];
  }
  free(order);
  return r;
}
