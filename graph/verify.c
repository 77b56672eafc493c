/* Checks that a graph is well-formed at a stage. The message is about the first node that is not. */
#include "custom.h"
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

__attribute__((format(printf, 2, 3))) static int malformed(const struct check *c, const char *fmt, ...) {
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

static unsigned class_of(unsigned t) {
  if (t == DT_VOID) return 0;
  return t == DT_BOOL ? TAKES_BOOL : dtype_is_float(t) ? TAKES_FLOAT : TAKES_INT;
}

static int check_alu(const struct check *c) {
  const struct uop *u = c->u;
  for (unsigned i = 0; i < u->nsrc && u->op != OP_BITCAST; i++)
    if (u->src[i]->lanes != u->lanes && u->src[i]->lanes != 1)
      return malformed(c, "source %u has %u lanes, the result %u", i, u->src[i]->lanes, u->lanes);
  const struct uop *a = u->src[0];
  switch (u->op) {
  case OP_CAST: return a->dtype == DT_VOID || u->dtype == DT_VOID ? malformed(c, "void has no values") : 0;
  case OP_BITCAST:
    if (dtype_info[a->dtype].size * a->lanes != dtype_info[u->dtype].size * u->lanes)
      return malformed(c, "%s has another size", dtype_info[a->dtype].name);
    return 0;
  case OP_WHERE:
    if (a->dtype != DT_BOOL) return malformed(c, "the condition is %s, not bool", dtype_info[a->dtype].name);
    if (u->src[1]->dtype != u->dtype || u->src[2]->dtype != u->dtype)
      return malformed(c, "chooses between %s and %s", dtype_info[u->src[1]->dtype].name,
                       dtype_info[u->src[2]->dtype].name);
    return 0;
  default: break;
  }
  bool scales = u->op == OP_SHL && u->aux && c->stage != STAGE_TENSOR && class_of(a->dtype) == TAKES_FLOAT;
  if (!(op_info[u->op].types & class_of(a->dtype)) && !scales)
    return malformed(c, "not defined for %s", dtype_info[a->dtype].name);
  for (unsigned i = 1; i < u->nsrc; i++)
    if (u->src[i]->dtype != a->dtype)
      return malformed(c, "mixes %s and %s", dtype_info[a->dtype].name, dtype_info[u->src[i]->dtype].name);
  enum dtype want = op_info[u->op].types & COMPARES ? DT_BOOL : a->dtype;
  return u->dtype == want ? 0 : malformed(c, "the result should be %s", dtype_info[want].name);
}

/* The shape of the first source as text; evaluated only when a message is written. */
#define FROM shape_text(c->u->src[0]->shape, (char[256]){0}, 256)

static int check_reshape(const struct check *c) {
  const struct uop *u = c->u;
  char to[256];
  if (!u->shape) return malformed(c, "more than %d dimensions", MAX_RANK);
  for (unsigned i = 0; i < u->shape->rank; i++)
    if (uop_max(u->shape->dim[i]) < 0)
      return malformed(c, "a negative dimension in %s", shape_text(u->shape, to, sizeof to));
  if (shape_numel(u->src[0]->shape) != shape_numel(u->shape))
    return malformed(c, "%s and %s have different numbers of elements", FROM, shape_text(u->shape, to, sizeof to));
  return 0;
}

static int check_expand(const struct check *c) {
  const struct uop *u = c->u;
  const struct shape *x = u->src[0]->shape;
  if (u->nsrc != x->rank + 1) return malformed(c, "%u dimensions for %s", u->nsrc - 1u, FROM);
  for (unsigned i = 0; i < x->rank; i++) {
    const struct uop *d = x->dim[i];
    if (d != u->src[i + 1] && !(uop_is_const(d) && d->arg.i == 1))
      return malformed(c, "dimension %u of %s is not 1 and cannot grow", i, FROM);
    if (uop_max(u->src[i + 1]) < 0) return malformed(c, "dimension %u would be negative", i);
  }
  return 0;
}

static int check_permute(const struct check *c) {
  return c->u->shape ? 0
                     : malformed(c, "axis order 0x%" PRIx64 " is not a permutation of the axes of %s",
                                 (uint64_t)c->u->arg.i, FROM);
}

static int check_pad_or_shrink(const struct check *c) {
  const struct uop *u = c->u;
  const struct shape *x = u->src[0]->shape;
  if (u->nsrc != 2 * x->rank + 1) return malformed(c, "%u bounds for %s", u->nsrc - 1u, FROM);
  for (unsigned i = 0; i < x->rank; i++) {
    struct uop *b = u->src[1 + 2 * i], *e = u->src[2 + 2 * i];
    if (u->op == OP_PAD && (uop_max(b) < 0 || uop_max(e) < 0)) return malformed(c, "negative padding of axis %u", i);
    if (u->op == OP_SHRINK && (uop_max(b) < 0 || uop_max(e) < uop_min(b) || uop_min(e) > uop_max(x->dim[i])))
      return malformed(c, "%" PRId64 "..%" PRId64 " is not within axis %u of %s", uop_min(b), uop_max(e), i, FROM);
  }
  return u->shape ? 0 : malformed(c, "a dimension overflows");
}

static int check_shear(const struct check *c) {
  const struct uop *u = c->u;
  int along = (int)(u->arg.i & 15), axis = (int)(u->arg.i >> 4 & 15);
  if (!u->shape || along == axis) return malformed(c, "axis %d along axis %d of %s", axis, along, FROM);
  return uop_max(u->src[1]) < 0 ? malformed(c, "a negative dimension") : 0;
}

static int check_axis_mask(const struct check *c) {
  const struct uop *u = c->u;
  if ((uint64_t)u->arg.i >> u->src[0]->shape->rank)
    return malformed(c, "axis mask 0x%" PRIx64 " names axes that %s lacks", (uint64_t)u->arg.i, FROM);
  if (u->op == OP_REDUCE_AXIS && u->aux != OP_ADD && u->aux != OP_MUL && u->aux != OP_MAX)
    return malformed(c, "reduces with something other than ADD, MUL or MAX");
  return 0;
}

static int check_gather(const struct check *c) {
  const struct uop *u = c->u;
  const struct shape *x = u->src[0]->shape, *index = u->src[1]->shape;
  char to[256];
  if (!dtype_is_int(u->src[1]->dtype)) return malformed(c, "the index is %s", dtype_info[u->src[1]->dtype].name);
  if (!index) return 0; /* reported for the index */
  if ((uint64_t)u->arg.i >= x->rank || index->rank != x->rank)
    return malformed(c, "axis %" PRId64 " and an index %s for %s", u->arg.i, shape_text(index, to, sizeof to), FROM);
  for (unsigned i = 0; i < x->rank; i++)
    if (i != u->arg.i && index->dim[i] != x->dim[i])
      return malformed(c, "dimension %u of the index %s is not that of %s", i, shape_text(index, to, sizeof to), FROM);
  return 0;
}

static int check_custom_param(const struct check *c, unsigned i) {
  const struct uop *u = c->u;
  unsigned at = custom_param_at(u, i);
  int64_t kind = custom_number(u, at);
  uint64_t what = (uint64_t)custom_number(u, at + 1), results = (uint64_t)custom_number(u, CUSTOM_RESULTS);
  if (kind < 0 || kind > CUSTOM_PARAM_VALUE) return malformed(c, "parameter %u has the kind %" PRId64, i, kind);
  uint64_t input = kind == CUSTOM_PARAM_UPDATED ? what >> 32 : what, result = what & UINT32_MAX;
  if ((kind == CUSTOM_PARAM_INPUT || kind == CUSTOM_PARAM_UPDATED) && input >= custom_inputs(u))
    return malformed(c, "parameter %u is input %" PRIu64 " of %u", i, input, custom_inputs(u));
  if ((kind == CUSTOM_PARAM_RESULT || kind == CUSTOM_PARAM_UPDATED) && result >= results)
    return malformed(c, "parameter %u is result %" PRIu64 " of %" PRIu64, i, result, results);
  if (kind == CUSTOM_PARAM_UPDATED && u->src[input]->dtype != custom_result_type(u, (unsigned)result))
    return malformed(c, "parameter %u updates an input of another type", i);
  return 0;
}

static int check_custom(const struct check *c) {
  const struct uop *u = c->u;
  unsigned first = custom_inputs(u) + custom_rank(u);
  if (!u->shape) return malformed(c, "%u sources are too few", u->nsrc);
  for (unsigned i = custom_inputs(u); i < u->nsrc; i++)
    if (!uop_is_const(u->src[i])) return malformed(c, "source %u is not a number", i);
  int64_t results = custom_number(u, CUSTOM_RESULTS), params = custom_number(u, CUSTOM_PARAMS);
  if (results < 1 || results > u->nsrc || params < 1 || params > u->nsrc ||
      first + CUSTOM_NUMBERS + 2 * (results + params) != u->nsrc)
    return malformed(c, "%" PRId64 " results and %" PRId64 " parameters, but %u sources", results, params, u->nsrc);
  int64_t mine = custom_number(u, CUSTOM_RESULT);
  if (mine < 0 || mine >= results) return malformed(c, "is result %" PRId64 " of %" PRId64, mine, results);
  if (custom_result_type(u, (unsigned)mine) != u->dtype ||
      custom_result_size(u, (unsigned)mine) != shape_numel(u->shape))
    return malformed(c, "result %" PRId64 " has another type or size", mine);
  int err = 0;
  for (unsigned i = 0; i < params && !err; i++) err = check_custom_param(c, i);
  return err;
}

static int check_assign(const struct check *c) {
  const struct uop *u = c->u, *x = u->src[0], *view = u->src[1], *value = u->src[2], *to_memory = view;
  char from[256], to[256];
  while (x->op == OP_RESHAPE) x = x->src[0];
  if (x->op != OP_BUFFER && x->op != OP_ASSIGN) return malformed(c, "%s is not in memory", op_info[x->op].name);
  while (to_memory != u->src[0] && to_memory != x && to_memory->op >= OP_RESHAPE && to_memory->op <= OP_FLIP)
    to_memory = to_memory->src[0];
  if (to_memory != u->src[0] && to_memory != x) return malformed(c, "the second source is not a view of the first");
  if (value->dtype != u->dtype) return malformed(c, "the value is %s", dtype_info[value->dtype].name);
  if (view->shape && value->shape && !shape_equal(view->shape, value->shape))
    return malformed(c, "%s is written to %s", shape_text(value->shape, to, sizeof to),
                     shape_text(view->shape, from, sizeof from));
  return 0;
}

static int check_buffer(const struct check *c) {
  const struct uop *size = c->u->src[0];
  bool good = uop_is_const(size) && size->dtype == DT_INDEX && size->arg.i >= 0;
  return good ? 0 : malformed(c, "its size is not a constant of at least 0");
}

static int check_iota(const struct check *c) {
  bool good = dtype_is_int(c->u->dtype) && dtype_is_int(c->u->src[0]->dtype);
  return good ? 0 : malformed(c, "its type and its size must be integers");
}

/* By op, for sources that have a shape and the op's type. */
typedef int check_fn(const struct check *c);
static check_fn *const tensor_checks[OP_COUNT] = {
    [OP_RESHAPE] = check_reshape,   [OP_EXPAND] = check_expand,         [OP_PERMUTE] = check_permute,
    [OP_PAD] = check_pad_or_shrink, [OP_SHRINK] = check_pad_or_shrink,  [OP_SHEAR] = check_shear,
    [OP_FLIP] = check_axis_mask,    [OP_REDUCE_AXIS] = check_axis_mask, [OP_GATHER] = check_gather,
    [OP_CUSTOM] = check_custom,     [OP_ASSIGN] = check_assign,
};

/* Whether the sources after the first are dimensions or bounds. */
static bool has_dimensions(const struct uop *u) {
  return u->op != OP_GATHER && u->op != OP_ASSIGN && u->op != OP_MULTI && u->op != OP_JOIN && u->op != OP_CUSTOM;
}

static int check_tensor(const struct check *c) {
  const struct uop *u = c->u, *x = u->src[0];
  for (unsigned i = 1; i < u->nsrc && has_dimensions(u); i++)
    if (!dtype_is_int(u->src[i]->dtype))
      return malformed(c, "dimension %u is %s, not an integer", i - 1, dtype_info[u->src[i]->dtype].name);
  if (u->op == OP_BUFFER) return check_buffer(c);
  if (u->op == OP_IOTA) return check_iota(c);
  if (x->dtype != u->dtype && u->op != OP_CUSTOM) return malformed(c, "its source is %s", dtype_info[x->dtype].name);
  if (!x->shape) return 0; /* reported for the source */
  return tensor_checks[u->op] ? tensor_checks[u->op](c) : 0;
}

static bool is_pointer(const struct uop *u) {
  u = uop_skip_after(u);
  return u->op == OP_PARAM || u->op == OP_STAGE || u->op == OP_LOCAL || u->op == OP_REG || u->op == OP_BUFFER;
}

/* Sources of u from `first` on are RANGEs. */
static int check_ranges(const struct check *c, unsigned first) {
  const struct uop *u = c->u;
  for (unsigned i = first; i < u->nsrc; i++)
    if (u->src[i]->op != OP_RANGE) return malformed(c, "source %u is %s, not a RANGE", i, op_info[u->src[i]->op].name);
  return 0;
}

static bool combines(unsigned op) { return op == OP_ADD || op == OP_MUL || op == OP_MAX; }

static int check_memory(const struct check *c) {
  if (!c->u->nsrc) return malformed(c, "has no size");
  const struct uop *size = c->u->src[0];
  return dtype_is_int(size->dtype) && uop_max(size) >= 0 ? 0 : malformed(c, "its size is not an integer of at least 0");
}

static int check_range(const struct check *c) {
  const struct uop *u = c->u;
  if (u->aux > AXIS_ORDERED) return malformed(c, "unknown kind of axis %u", u->aux);
  return dtype_is_int(u->src[0]->dtype) ? 0 : malformed(c, "its bound is not an integer");
}

static int check_special(const struct check *c) {
  const struct uop *u = c->u;
  bool good = u->aux <= 1 && u->arg.i >= 0 && u->arg.i <= 2;
  return good ? 0 : malformed(c, "unknown dimension %" PRId64 " of kind %u", u->arg.i, u->aux);
}

static int check_index(const struct check *c) {
  const struct uop *u = c->u;
  if (!is_pointer(u->src[0])) return malformed(c, "source 0 is %s, not a pointer", op_info[u->src[0]->op].name);
  if (!dtype_is_int(u->src[1]->dtype))
    return malformed(c, "the index is %s, not an integer", dtype_info[u->src[1]->dtype].name);
  if (u->nsrc > 2 && u->src[2]->dtype != DT_BOOL)
    return malformed(c, "the condition is %s, not bool", dtype_info[u->src[2]->dtype].name);
  if (u->nsrc > 3) return malformed(c, "more than three sources");
  return 0;
}

static int check_load(const struct check *c) {
  const struct uop *u = c->u;
  if (uop_skip_after(u->src[0])->op != OP_INDEX)
    return malformed(c, "loads from %s, not an INDEX", op_info[u->src[0]->op].name);
  if (uop_skip_after(u->src[0])->nsrc > 2 && (u->nsrc < 2 || u->src[1]->dtype != u->dtype))
    return malformed(c, "a conditional load needs a value of its type for invalid lanes");
  return 0;
}

static int check_store(const struct check *c) {
  const struct uop *u = c->u;
  if (uop_skip_after(u->src[0])->op != OP_INDEX)
    return malformed(c, "stores to %s, not an INDEX", op_info[u->src[0]->op].name);
  if (uop_skip_after(u->src[0])->dtype != u->src[1]->dtype)
    return malformed(c, "stores %s into %s", dtype_info[u->src[1]->dtype].name, dtype_info[u->src[0]->dtype].name);
  return !u->aux || u->aux == OP_ADD || u->aux == OP_MAX ? 0
                                                         : malformed(c, "combines by something else than ADD or MAX");
}

static int check_fetch(const struct check *c) {
  const struct uop *u = c->u;
  for (unsigned i = 0; i < 2; i++)
    if (u->src[i]->op != OP_INDEX || u->src[i]->dtype != u->src[0]->dtype)
      return malformed(c, "source %u is %s of %s", i, op_info[u->src[i]->op].name, dtype_info[u->src[i]->dtype].name);
  return u->arg.i > 0 ? 0 : malformed(c, "copies %" PRId64 " elements", u->arg.i);
}

static int check_box(const struct check *c) {
  const struct uop *u = c->u;
  for (unsigned i = 0; i < u->nsrc; i++)
    if (i < (u->aux ? 1 : 2) ? u->src[i]->op != OP_INDEX : u->src[i]->dtype != DT_I32)
      return malformed(c, "source %u is %s of %s", i, op_info[u->src[i]->op].name, dtype_info[u->src[i]->dtype].name);
  return 0;
}

static int check_phase(const struct check *c) {
  const struct uop *u = c->u;
  if (u->src[0]->op != OP_INDEX || u->src[0]->dtype != DT_U64) return malformed(c, "is not over an mbarrier");
  return u->nsrc == 1u + (u->aux == PHASE_WAIT) ? 0 : malformed(c, "has %u sources", u->nsrc);
}

static int check_reduce(const struct check *c) {
  const struct uop *u = c->u;
  if (c->stage == STAGE_LINEAR) return malformed(c, "does not belong in a linear kernel");
  if (!combines(u->aux)) return malformed(c, "reduces with something other than ADD, MUL or MAX");
  if (u->src[0]->dtype != u->dtype) return malformed(c, "its value is %s", dtype_info[u->src[0]->dtype].name);
  return check_ranges(c, 1);
}

static int check_mma(const struct check *c) {
  const struct uop *u = c->u;
  enum dtype a = u->src[0]->dtype, b = u->src[1]->dtype;
  bool bytes = (a == DT_I8 && b == DT_U8) || (a == DT_U8 && b == DT_I8);
  if (a != b && !bytes) return malformed(c, "multiplies %s and %s", dtype_info[a].name, dtype_info[b].name);
  if (c->stage == STAGE_LINEAR) {
    const struct uop *sum = u->src[2];
    bool tiles = (u->nsrc == 5 || u->nsrc == 7) && u->src[1]->op == OP_INDEX;
    return (u->nsrc == 3 || tiles) && sum->dtype == u->dtype && sum->lanes == u->lanes
               ? 0
               : malformed(c, "adds to %s of %u lanes", dtype_info[sum->dtype].name, sum->lanes);
  }
  if (u->aux < 2 || u->aux > u->nsrc) return malformed(c, "binds from source %u on", u->aux);
  return check_ranges(c, 2);
}

static int check_stage(const struct check *c) {
  const struct uop *u = c->u;
  if (c->stage == STAGE_LINEAR) return malformed(c, "does not belong in a linear kernel");
  if (u->src[0]->dtype != u->dtype) return malformed(c, "its value is %s", dtype_info[u->src[0]->dtype].name);
  if (u->aux && !combines(u->aux)) return malformed(c, "combines with something other than ADD, MUL or MAX");
  if (!dtype_is_int(u->src[1]->dtype))
    return malformed(c, "the index is %s, not an integer", dtype_info[u->src[1]->dtype].name);
  if (uop_min(u->src[1]) < 0 || uop_max(u->src[1]) >= u->arg.i)
    return malformed(c, "its index is not within its %" PRId64 " elements", u->arg.i);
  return check_ranges(c, 2);
}

static int check_end(const struct check *c) { return check_ranges(c, 1); }

static int check_if(const struct check *c) {
  const struct uop *x = c->u->src[0];
  return x->dtype == DT_BOOL ? 0 : malformed(c, "the condition is %s, not bool", dtype_info[x->dtype].name);
}

static int check_endif(const struct check *c) {
  const struct uop *x = c->u->src[0];
  return x->op == OP_IF ? 0 : malformed(c, "ends %s, not an IF", op_info[x->op].name);
}

static int check_vectorize(const struct check *c) {
  const struct uop *u = c->u;
  unsigned lanes = 0;
  for (unsigned i = 0; i < u->nsrc; i++) {
    lanes += u->src[i]->lanes;
    if (u->src[i]->lanes != u->src[0]->lanes) return malformed(c, "sources with different numbers of lanes");
  }
  if (u->src[0]->lanes > 1 && (u->nsrc & (u->nsrc - 1))) return malformed(c, "%u vectors, no power of two", u->nsrc);
  return lanes == u->lanes ? 0 : malformed(c, "%u lanes from sources with %u", u->lanes, lanes);
}

static int check_shuffle(const struct check *c) {
  const struct uop *u = c->u;
  if (u->src[0]->dtype != u->dtype) return malformed(c, "changes the type");
  if (u->lanes != 1 || dtype_info[u->dtype].size < 4) return malformed(c, "exchanges no 32 or 64 bits");
  return u->src[1]->op == OP_CONST && u->src[1]->arg.i > 0 ? 0 : malformed(c, "its lanes are no constant");
}

static int check_dot(const struct check *c) {
  const struct uop *u = c->u, *sum = u->src[2];
  bool types = u->src[0]->dtype == DT_U8 && u->src[1]->dtype == DT_I8 && sum->dtype == DT_I32 && u->dtype == DT_I32;
  if (!types) return malformed(c, "does not multiply u8 and i8 to i32");
  bool lanes = u->lanes == sum->lanes && u->src[0]->lanes == 4 * u->lanes && u->src[1]->lanes == 4 * u->lanes;
  return lanes ? 0 : malformed(c, "%u lanes of %u and %u", u->lanes, u->src[0]->lanes, u->src[1]->lanes);
}

static int check_gep(const struct check *c) {
  const struct uop *u = c->u;
  bool good = u->arg.i >= 0 && u->arg.i + u->lanes <= u->src[0]->lanes;
  return good ? 0 : malformed(c, "lane %" PRId64 " of a vector of %u", u->arg.i, u->src[0]->lanes);
}

static const struct {
  uint8_t least; /* sources */
  check_fn *check;
} kernel_checks[OP_COUNT] = {
    [OP_PARAM] = {0, check_memory},
    [OP_LOCAL] = {0, check_memory},
    [OP_REG] = {0, check_memory},
    [OP_RANGE] = {0, check_range},
    [OP_SPECIAL] = {0, check_special},
    [OP_INDEX] = {2, check_index},
    [OP_LOAD] = {1, check_load},
    [OP_STORE] = {2, check_store},
    [OP_FETCH] = {0, check_fetch},
    [OP_BOX] = {3, check_box},
    [OP_PHASE] = {1, check_phase},
    [OP_REDUCE] = {1, check_reduce},
    [OP_MMA] = {3, check_mma},
    [OP_DOT] = {3, check_dot},
    [OP_STAGE] = {3, check_stage},
    [OP_END] = {1, check_end},
    [OP_AFTER] = {1, NULL},
    [OP_IF] = {1, check_if},
    [OP_ENDIF] = {0, check_endif},
    [OP_VECTORIZE] = {1, check_vectorize},
    [OP_GEP] = {0, check_gep},
    [OP_SHUFFLE] = {2, check_shuffle},
};

static int check_kernel(const struct check *c) {
  const struct uop *u = c->u;
  unsigned least = kernel_checks[u->op].least;
  if (u->nsrc < least) return malformed(c, "has %u sources, needs %u", u->nsrc, least);
  return kernel_checks[u->op].check ? kernel_checks[u->op].check(c) : 0;
}

static int check_node(const struct check *c) {
  const struct uop *u = c->u;
  if (u->op >= OP_COUNT || u->dtype >= DT_COUNT) return malformed(c, "unknown op or type");
  const struct op_info *o = &op_info[u->op];
  if (o->arity >= 0 && u->nsrc != o->arity) return malformed(c, "has %u sources, needs %d", u->nsrc, o->arity);
  if (!u->lanes) return malformed(c, "has no lanes");
  switch (o->cls) {
  case OPCLASS_LEAF:
    if (u->op == OP_CONST && !dtype_is_float(u->dtype) && u->arg.i != dtype_wrap(u->dtype, u->arg.i))
      return malformed(c, "%" PRId64 " is not a value of the type", u->arg.i);
    return 0;
  case OPCLASS_TENSOR:
    if (c->stage != STAGE_TENSOR) return malformed(c, "does not belong in a kernel");
    if (!u->nsrc) return malformed(c, "has no sources");
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
        return malformed(c, "shapes %s and %s differ", shape_text(first, a, sizeof a), shape_text(s, b, sizeof b));
      first = s;
    }
    return 0;
  }
  default:
    if (c->stage == STAGE_TENSOR && u->op != OP_SINK) return malformed(c, "does not belong in a tensor graph");
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
    if (*a && *a != order[i]) r = malformed(&c, "axis %" PRId64 " belongs to two different ranges", order[i]->arg.i);
    *a = order[i];
  }
  free(order);
  return r;
}
