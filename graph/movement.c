/* Helpers of the movement rules: arithmetic on lists of dimensions and bounds. */
#include "movement.h"
#include "internal.h"
#include "symbolic.h"

static bool is_number(const struct uop *u, int64_t v) { return uop_is_const(u) && ival(u) == v; }
static union uop_arg int_arg(int64_t i) { return (union uop_arg){.i = i}; }

static struct uop *add_dims(struct graph *g, struct uop *a, struct uop *b) {
  if (uop_is_const(a) && uop_is_const(b)) return add_constants(g, a, b);
  return is_number(a, 0) ? b : is_number(b, 0) ? a : uop_binary(g, OP_ADD, a, b);
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */
bool moves_nothing(const struct uop *u) {
  const struct shape *from = u->src[0]->shape;
  if (!from || u->shape != from) return false;
  switch (u->op) {
  case OP_FLIP: return !u->arg.i;
  case OP_SHEAR: return u->arg.i >> 8 == 0 || is_number(from->dim[u->arg.i & 15], 1); /* along one element */
  case OP_PERMUTE:
    for (unsigned i = 0; i < from->rank; i++)
      if (((uint64_t)u->arg.i >> (4 * i) & 15) != i) return false;
    return true;
  case OP_PAD:
    for (unsigned i = 1; i < u->nsrc; i++)
      if (!is_number(u->src[i], 0)) return false;
    return true;
  case OP_SHRINK:
    for (unsigned i = 1; i < u->nsrc; i += 2)
      if (!is_number(u->src[i], 0)) return false;
    return true;
  default: return true;
  }
}

bool keeps_order(const struct uop *u) {
  const struct shape *from = u->src[0]->shape;
  int last = -1;
  for (unsigned i = 0; i < from->rank; i++) {
    int axis = (uint64_t)u->arg.i >> (4 * i) & 15;
    if (is_number(from->dim[axis], 1)) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

static int64_t size_one_axes(const struct uop *u) {
  const struct shape *from = u->src[0]->shape;
  int64_t mask = 0;
  for (unsigned i = 0; i < from->rank; i++)
    if ((u->arg.i >> i & 1) && is_number(from->dim[i], 1)) mask |= INT64_C(1) << i;
  return mask;
}
int64_t flipped_size_one_axes(const struct uop *u) { return size_one_axes(u); }
int64_t reduced_size_one_axes(const struct uop *u) { return size_one_axes(u); }

struct uop *broadcast_scalar(struct uop *x) {
  while (x->op == OP_EXPAND || x->op == OP_RESHAPE) x = x->src[0];
  return x->op == OP_CONST || x->op == OP_VAR || x->op == OP_BIND ? x : NULL;
}

bool is_zero_scalar(struct uop *x) {
  const struct uop *n = broadcast_scalar(x);
  return n && uop_is_const(n) && n->arg.i == 0; /* also for a float: the bits of -0 are not 0 */
}

/* ---- replacements ---------------------------------------------------------------------------------------------- */
struct uop *reshape_to(struct graph *g, struct uop *x, const struct shape *to) {
  return x->shape == to ? x : uop_movement(g, OP_RESHAPE, x, to->dim, to->rank);
}

struct uop *expand_to(struct graph *g, struct uop *x, const struct shape *to) {
  return x->shape == to ? x : uop_movement(g, OP_EXPAND, x, to->dim, to->rank);
}

int64_t compose_orders(int64_t outer, int64_t inner, unsigned rank) {
  uint64_t order = 0;
  for (unsigned i = 0; i < rank; i++)
    order |= ((uint64_t)inner >> (4 * ((uint64_t)outer >> (4 * i) & 15)) & 15) << (4 * i);
  return (int64_t)order;
}

struct uop *add_pads(struct graph *g, struct uop *u) {
  struct uop *inner = u->src[0], *by[2 * MAX_RANK];
  for (unsigned i = 1; i < u->nsrc; i++)
    if (!(by[i - 1] = add_dims(g, u->src[i], inner->src[i]))) return NULL;
  return uop_movement(g, OP_PAD, inner->src[0], by, u->nsrc - 1u);
}

struct uop *add_shrinks(struct graph *g, struct uop *u) {
  struct uop *inner = u->src[0], *bound[2 * MAX_RANK];
  for (unsigned i = 1; i < u->nsrc; i++) /* both bounds are relative to the inner begin */
    if (!(bound[i - 1] = add_dims(g, u->src[i], inner->src[(i - 1) / 2 * 2 + 1]))) return NULL;
  return uop_movement(g, OP_SHRINK, inner->src[0], bound, u->nsrc - 1u);
}

/* Moves a SHRINK below a PAD: it removes padding first, then elements of x. On a symbolic axis the two ops are only
 * swapped if one of them leaves the axis unchanged. */
struct uop *shrink_padded(struct graph *g, struct uop *u) {
  struct uop *pad = u->src[0], *x = pad->src[0], *bound[2 * MAX_RANK], *by[2 * MAX_RANK];
  unsigned rank = u->shape->rank;
  bool changes = false;
  for (unsigned i = 0; i < rank; i++) {
    struct uop *before = pad->src[1 + 2 * i], *after = pad->src[2 + 2 * i], *b = u->src[1 + 2 * i],
               *e = u->src[2 + 2 * i], *dim = x->shape->dim[i];
    if (is_number(before, 0) && is_number(after, 0)) { /* no padding: the slice is unchanged */
      bound[2 * i] = b, bound[2 * i + 1] = e;
      by[2 * i] = by[2 * i + 1] = before;
      changes |= !is_number(b, 0) || e != dim;
    } else if (is_number(b, 0) && e == pad->shape->dim[i]) {
      bound[2 * i] = uop_index(g, 0), bound[2 * i + 1] = dim;
      by[2 * i] = before, by[2 * i + 1] = after;
    } else {
      if (!uop_is_const(before) || !uop_is_const(b) || !uop_is_const(e) || !uop_is_const(dim)) return NULL;
      int64_t n = ival(dim), from = ival(b) - ival(before), to = ival(e) - ival(before);
      int64_t first = from < 0 ? 0 : from > n ? n : from, last = to < first ? first : to > n ? n : to;
      if (first == last) return uop_const_int(g, u->dtype, 0); /* only padding remains */
      bound[2 * i] = uop_index(g, first), bound[2 * i + 1] = uop_index(g, last);
      by[2 * i] = uop_index(g, first - from), by[2 * i + 1] = uop_index(g, to - last);
      changes = true;
    }
  }
  if (!changes) return NULL;
  return uop_movement(g, OP_PAD, uop_movement(g, OP_SHRINK, x, bound, 2 * rank), by, 2 * rank);
}

struct uop *shrink_expanded(struct graph *g, struct uop *u) {
  struct uop *x = u->src[0]->src[0], *bound[2 * MAX_RANK];
  const struct shape *wide = u->src[0]->shape;
  for (unsigned i = 0; i < u->shape->rank; i++) {
    bool grown = x->shape->dim[i] != wide->dim[i];
    bound[2 * i] = grown ? uop_index(g, 0) : u->src[1 + 2 * i];
    bound[2 * i + 1] = grown ? uop_index(g, 1) : u->src[2 + 2 * i];
  }
  return expand_to(g, uop_movement(g, OP_SHRINK, x, bound, 2 * u->shape->rank), u->shape);
}

struct uop *shrink_permuted(struct graph *g, struct uop *u) {
  struct uop *permute = u->src[0], *x = permute->src[0], *bound[2 * MAX_RANK];
  for (unsigned i = 0; i < u->shape->rank; i++) {
    unsigned axis = (uint64_t)permute->arg.i >> (4 * i) & 15;
    bound[2 * axis] = u->src[1 + 2 * i], bound[2 * axis + 1] = u->src[2 + 2 * i];
  }
  struct uop *cut = uop_movement(g, OP_SHRINK, x, bound, 2 * u->shape->rank);
  return uop_new(g, OP_PERMUTE, x->dtype, 1, permute->arg, 0, &cut, 1);
}

int counts_along(const struct uop *u) {
  if (u->op == OP_EXPAND) u = u->src[0];
  const struct shape *shape = u->shape;
  if (u->op == OP_RESHAPE) u = u->src[0];
  if (u->op != OP_IOTA || !shape || !dtype_holds(u->dtype, 0, uop_max(u->src[0]))) return -1;
  int axis = -1;
  for (unsigned i = 0; i < shape->rank; i++) {
    if (uop_is_const(shape->dim[i]) && shape->dim[i]->arg.i == 1) continue;
    if (axis >= 0) return -1;
    axis = (int)i;
  }
  return axis;
}

/* Replaces each WHERE by the branch that the whole slice takes. */
struct uop *shrink_chosen(struct graph *g, struct uop *u) {
  struct uop *x = u->src[0];
  while (x->op == OP_WHERE && x->src[0]->op == OP_CMPLT && uop_is_const(x->src[0]->src[1])) {
    int axis = counts_along(x->src[0]->src[0]);
    if (axis < 0 || !uop_is_const(u->src[1 + 2 * axis]) || !uop_is_const(u->src[2 + 2 * axis])) break;
    int64_t end = ival(x->src[0]->src[1]);
    bool below = ival(u->src[2 + 2 * axis]) <= end, above = ival(u->src[1 + 2 * axis]) >= end;
    if (!below && !above) break;
    x = x->src[below ? 1 : 2];
  }
  if (x == u->src[0]) return NULL;
  if (!x->shape->rank) return x;
  return uop_movement(g, OP_SHRINK, x, u->src + 1, u->nsrc - 1u);
}

struct uop *alu_of_scalars(struct graph *g, struct uop *u) {
  struct uop *src[3];
  bool changes = false;
  if (u->nsrc > 3) return NULL;
  for (unsigned i = 0; i < u->nsrc; i++) {
    src[i] = u->src[i];
    if ((src[i]->op != OP_EXPAND && src[i]->op != OP_RESHAPE) || !broadcast_scalar(src[i])) continue;
    src[i] = broadcast_scalar(src[i]);
    changes = true;
  }
  return changes ? uop_with_src(g, u, src) : NULL; /* if only numbers remain, the engine expands the result */
}

struct uop *reduce_longer_axes(struct graph *g, struct uop *u) {
  int64_t mask = u->arg.i & ~size_one_axes(u);
  return mask ? uop_new(g, OP_REDUCE_AXIS, u->dtype, 1, int_arg(mask), u->aux, u->src, 1) : u->src[0];
}

/* Reduces a broadcast number, only where the result is exact: a maximum, a sum of integers, a sum of zeros, a product
 * of ones. */
struct uop *reduce_scalar(struct graph *g, struct uop *u, struct uop *number) {
  const struct shape *from = u->src[0]->shape;
  int64_t n = 1;
  for (unsigned i = 0; i < from->rank; i++)
    if ((u->arg.i >> i & 1) && (!uop_is_const(from->dim[i]) || __builtin_mul_overflow(n, ival(from->dim[i]), &n)))
      return NULL;
  if (n < 1) return NULL; /* a reduction of no elements gives the identity element */
  if (u->aux == OP_MAX) return number;
  if (!uop_is_const(number)) return NULL;
  if (u->aux == OP_MUL) return number == konst(g, number, 1) ? number : NULL;
  if (is_zero_scalar(number)) return number;
  return dtype_is_int(u->dtype) && u->dtype != DT_INDEX ? mul_constants(g, number, konst(g, number, n)) : NULL;
}

const struct ruleset *const rules_tensors[] = {&rules_movement, &rules_fold, &rules_algebra, NULL};
