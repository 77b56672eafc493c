/* Derivatives that the table graph/rules/gradient.rules cannot express: inverse movement ops, and derivatives of
 * reductions, gathers, assignments and exchanges. */
#include "derivative.h"
#include "../dims.h"
#include "../exchange.h"
#include "../internal.h"
#include <string.h>

enum { GROUP = 32 }; /* group size: inside a group, each product of the others is computed by a loop over the group */

static struct uop *node(struct graph *g, enum op op, struct uop *x, int64_t arg, unsigned aux) {
  return uop_new(g, op, x->dtype, x->lanes, (union uop_arg){.i = arg}, aux, &x, 1);
}
static bool is_one(const struct uop *dim) { return uop_is_const(dim) && dim->arg.i == 1; }
static bool is_narrow(enum dtype t) { return dtype_is_float(t) && dtype_info[t].size < 4; }
static struct uop *number(struct graph *g, enum dtype t, double v) { return uop_const_float(g, t, v); }

bool is_number(const struct uop *u) {
  while (u->op == OP_NEG || u->op == OP_CAST) u = u->src[0];
  return u->op == OP_CONST;
}

/* ---- movement ---- */

struct uop *reshape_like(struct graph *g, struct uop *y, const struct uop *x) {
  if (!x->shape || !y->shape || shape_equal(x->shape, y->shape)) return y;
  return uop_movement(g, OP_RESHAPE, y, x->shape->dim, x->shape->rank);
}

struct uop *expand_like(struct graph *g, struct uop *y, const struct uop *x) {
  if (!x->shape || shape_equal(x->shape, y->shape)) return y;
  return uop_movement(g, OP_EXPAND, y, x->shape->dim, x->shape->rank);
}

static struct uop *reduce(struct graph *g, enum op op, struct uop *x, uint64_t axes) {
  if (!axes) return x;
  if (!is_narrow(x->dtype) || op == OP_MAX) return node(g, OP_REDUCE_AXIS, x, (int64_t)axes, op);
  return uop_cast(g, node(g, OP_REDUCE_AXIS, uop_cast(g, x, DT_F32), (int64_t)axes, op), x->dtype);
}

/* The sum over axes, which become 1. If an EXPAND only repeated values along the axes, a multiplication replaces the
 * sum. */
static struct uop *sum(struct graph *g, struct uop *x, uint64_t axes) {
  int64_t times = 1;
  bool grown = x->op == OP_EXPAND && axes;
  for (unsigned i = 0; grown && i < x->shape->rank; i++) {
    const struct uop *dim = x->shape->dim[i];
    if (!(axes >> i & 1)) continue;
    grown = is_one(x->src[0]->shape->dim[i]) && uop_is_const(dim) && !__builtin_mul_overflow(times, dim->arg.i, &times);
  }
  if (!grown) return reduce(g, OP_ADD, x, axes);
  struct uop *dim[MAX_RANK];
  for (unsigned i = 0; i < x->shape->rank; i++) dim[i] = axes >> i & 1 ? uop_index(g, 1) : x->shape->dim[i];
  struct uop *y = uop_movement(g, OP_EXPAND, x->src[0], dim, x->shape->rank);
  if (shape_equal(y->shape, x->src[0]->shape)) y = x->src[0];
  return uop_binary(g, OP_MUL, y, number(g, y->dtype, (double)times));
}

/* The gradient of a movement op's source. Its shape is the source's, except that symbolic sizes may be equal without
 * being the same node. */
struct uop *move_back(struct graph *g, const struct uop *u, struct uop *dy) {
  const struct shape *x = u->src[0]->shape;
  struct uop *dim[2 * MAX_RANK];
  uint64_t axes = 0;
  switch (u->op) {
  case OP_RESHAPE: return reshape_like(g, dy, u->src[0]);
  case OP_FLIP: return node(g, OP_FLIP, dy, u->arg.i, 0);
  case OP_EXPAND:
    for (unsigned i = 0; i < x->rank; i++) axes |= (uint64_t)(is_one(x->dim[i]) && !is_one(u->shape->dim[i])) << i;
    return sum(g, dy, axes);
  case OP_PERMUTE:
    for (unsigned i = 0; i < x->rank; i++) axes |= (uint64_t)i << 4 * ((uint64_t)u->arg.i >> 4 * i & 15);
    return node(g, OP_PERMUTE, dy, (int64_t)axes, 0);
  case OP_PAD:
    for (unsigned i = 0; i < x->rank; i++) {
      dim[2 * i] = u->src[1 + 2 * i];
      dim[2 * i + 1] = dim_add(g, dim[2 * i], x->dim[i]);
      if (!dim[2 * i + 1]) return NULL;
    }
    return uop_movement(g, OP_SHRINK, dy, dim, 2 * x->rank);
  case OP_SHRINK:
    for (unsigned i = 0; i < x->rank; i++) {
      dim[2 * i] = u->src[1 + 2 * i];
      dim[2 * i + 1] = dim_sub(g, x->dim[i], u->src[2 + 2 * i]);
      if (!dim[2 * i + 1]) return NULL;
    }
    return uop_movement(g, OP_PAD, dy, dim, 2 * x->rank);
  case OP_SHEAR: {
    uint64_t back = (uint64_t)-(u->arg.i >> 8) << 8 | ((uint64_t)u->arg.i & 255);
    struct uop *src[] = {dy, x->dim[u->arg.i >> 4 & 15]};
    return uop_new(g, OP_SHEAR, dy->dtype, dy->lanes, (union uop_arg){.i = (int64_t)back}, 0, src, 2);
  }
  default: return NULL;
  }
}

/* ---- reductions ---- */

struct uop *equals_result(struct graph *g, struct uop *max) {
  return uop_binary(g, OP_CMPEQ, max->src[0], expand_like(g, max, max->src[0]));
}

struct uop *share_of_equals(struct graph *g, struct uop *max, struct uop *dy) {
  enum dtype t = is_narrow(dy->dtype) ? DT_F32 : dy->dtype;
  struct uop *count = reduce(g, OP_ADD, uop_cast(g, equals_result(g, max), t), (uint64_t)max->arg.i);
  return uop_cast(g, uop_binary(g, OP_FDIV, uop_cast(g, dy, t), count), dy->dtype);
}

struct uop *softmax_back(struct graph *g, struct uop *y, struct uop *dy) {
  struct uop *mean = reduce(g, OP_ADD, uop_binary(g, OP_MUL, y, dy), (uint64_t)y->arg.i);
  return uop_binary(g, OP_MUL, y, uop_binary(g, OP_SUB, dy, expand_like(g, mean, y)));
}

/* A counter 0, 1, ... along one axis, expanded to shape s. */
static struct uop *count_along(struct graph *g, const struct shape *s, unsigned axis, enum dtype t) {
  struct uop *dim[MAX_RANK], *n = s->dim[axis];
  for (unsigned i = 0; i < s->rank; i++) dim[i] = i == axis ? n : uop_index(g, 1);
  struct uop *iota = uop_new(g, OP_IOTA, t, 1, (union uop_arg){0}, 0, &n, 1);
  return uop_movement(g, OP_EXPAND, uop_movement(g, OP_RESHAPE, iota, dim, s->rank), s->dim, s->rank);
}

/* For each element of x [rows, n], the product of the other elements of its row, by a loop over n. */
static struct uop *others_in_row(struct graph *g, struct uop *x) {
  struct uop *rows = x->shape->dim[0], *n = x->shape->dim[1], *one = uop_index(g, 1);
  struct uop *square[] = {rows, n, n}, *lying[] = {rows, one, n};
  x = uop_movement(g, OP_EXPAND, uop_movement(g, OP_RESHAPE, x, lying, 3), square, 3);
  struct uop *itself =
      uop_binary(g, OP_CMPEQ, count_along(g, x->shape, 1, DT_I64), count_along(g, x->shape, 2, DT_I64));
  x = node(g, OP_REDUCE_AXIS, uop_where(g, itself, number(g, x->dtype, 1), x), 4, OP_MUL);
  return uop_movement(g, OP_RESHAPE, x, (struct uop *[]){rows, n}, 2);
}

/* x [rows, n], each row padded with ones to a multiple of GROUP, as [groups, GROUP]. */
static struct uop *in_groups(struct graph *g, struct uop *x, int64_t rows, int64_t n, int64_t padded) {
  if (padded > n) {
    struct uop *none = uop_index(g, 0), *pad[] = {none, none, none, uop_index(g, padded - n)};
    struct uop *dim[] = {uop_index(g, rows), uop_index(g, n)}, *ones[] = {uop_index(g, 1), uop_index(g, 1)};
    struct uop *yes =
        uop_movement(g, OP_EXPAND, uop_movement(g, OP_RESHAPE, uop_const_int(g, DT_BOOL, 1), ones, 2), dim, 2);
    struct uop *there = uop_movement(g, OP_PAD, yes, pad, 4);
    x = uop_where(g, there, uop_movement(g, OP_PAD, x, pad, 4), number(g, x->dtype, 1));
  }
  struct uop *dim[] = {uop_index(g, rows * padded / GROUP), uop_index(g, GROUP)};
  return uop_movement(g, OP_RESHAPE, x, dim, 2);
}

/* A tree of groups of GROUP elements: the product of the others is that of the others in the same group times that of
 * the other groups. */
struct uop *product_of_others(struct graph *g, struct uop *x, int64_t axes) {
  const struct shape *shape = x->shape;
  struct uop *dim[MAX_RANK], *rows = uop_index(g, 1), *n = rows;
  uint64_t order = 0, back = 0;
  enum dtype t = x->dtype;
  unsigned at = 0;
  for (unsigned last = 0; last < 2; last++)
    for (unsigned i = 0; i < shape->rank; i++) {
      if ((axes >> i & 1) != last) continue;
      order |= (uint64_t)i << 4 * at, back |= (uint64_t)at << 4 * i;
      dim[at++] = shape->dim[i];
      struct uop **count = last ? &n : &rows;
      *count = dim_mul(g, *count, shape->dim[i]);
      if (!*count) return NULL;
    }
  if (is_narrow(t)) x = uop_cast(g, x, DT_F32);
  x = uop_movement(g, OP_RESHAPE, node(g, OP_PERMUTE, x, (int64_t)order, 0), (struct uop *[]){rows, n}, 2);
  struct uop *level[16]; /* level k + 1 has the products of level k's groups; GROUP^16 exceeds any size */
  int64_t length[16], padded[16], r = uop_is_const(rows) ? rows->arg.i : -1, len = uop_is_const(n) ? n->arg.i : -1;
  unsigned depth = 0;
  for (; r > 0 && len > GROUP; depth++) {
    length[depth] = len, padded[depth] = (len + GROUP - 1) / GROUP * GROUP;
    level[depth] = in_groups(g, x, r, len, padded[depth]);
    len = padded[depth] / GROUP;
    struct uop *product = node(g, OP_REDUCE_AXIS, level[depth], 2, OP_MUL), *flat[] = {rows, uop_index(g, len)};
    x = uop_movement(g, OP_RESHAPE, product, flat, 2);
  }
  x = others_in_row(g, x);
  while (depth--) {
    struct uop *column[] = {uop_index(g, r * len), uop_index(g, 1)};
    x = expand_like(g, uop_movement(g, OP_RESHAPE, x, column, 2), level[depth]);
    x = uop_binary(g, OP_MUL, others_in_row(g, level[depth]), x);
    x = uop_movement(g, OP_RESHAPE, x, (struct uop *[]){rows, uop_index(g, padded[depth])}, 2);
    len = length[depth];
    struct uop *none = uop_index(g, 0), *keep[] = {none, rows, none, uop_index(g, len)};
    if (len < padded[depth]) x = uop_movement(g, OP_SHRINK, x, keep, 4);
  }
  x = node(g, OP_PERMUTE, uop_movement(g, OP_RESHAPE, x, dim, shape->rank), (int64_t)back, 0);
  return uop_cast(g, x, t);
}

/* ---- indexing and memory ---- */

/* x with a new axis of n elements inserted before an axis. */
static struct uop *repeat_before(struct graph *g, struct uop *x, unsigned axis, struct uop *n) {
  struct uop *dim[MAX_RANK];
  unsigned rank = x->shape->rank;
  for (unsigned i = 0; i <= rank; i++)
    dim[i] = i < axis ? x->shape->dim[i] : i > axis ? x->shape->dim[i - 1] : uop_index(g, 1);
  x = uop_movement(g, OP_RESHAPE, x, dim, rank + 1);
  dim[axis] = n;
  return uop_movement(g, OP_EXPAND, x, dim, rank + 1);
}

struct uop *scatter_sum(struct graph *g, const struct uop *u, struct uop *dy) {
  struct uop *x = u->src[0], *index = u->src[1];
  unsigned axis = (unsigned)u->arg.i;
  if (x->shape->rank == MAX_RANK) return NULL;
  struct uop *n = x->shape->dim[axis];
  enum dtype t = index->dtype == DT_I32 && uop_max(n) <= INT32_MAX ? DT_I32 : DT_I64;
  index = repeat_before(g, uop_cast(g, index, t), axis, n);
  struct uop *here = uop_binary(g, OP_CMPEQ, index, count_along(g, index->shape, axis, t));
  dy = uop_where(g, here, repeat_before(g, dy, axis, n), number(g, dy->dtype, 0));
  return reshape_like(g, reduce(g, OP_ADD, dy, UINT64_C(2) << axis), x);
}

/* The tensor that the view of an ASSIGN is a view of: the ASSIGN's first source, or the memory below it. */
static struct uop *viewed(const struct uop *assign) {
  struct uop *v = assign->src[1], *memory = assign->src[0];
  while (memory->op == OP_RESHAPE) memory = memory->src[0];
  while (v != assign->src[0] && v != memory && v->op >= OP_RESHAPE && v->op <= OP_FLIP) v = v->src[0];
  return v;
}

struct uop *inside_view(struct graph *g, struct uop *u, struct uop *dy) {
  struct uop *from = viewed(u), *to = reshape_like(g, dy, from), *view = u->src[1];
  if (from->dtype == to->dtype) return uop_substitute(g, view, &from, &to, 1);
  return NULL;
}

struct uop *outside_of_view(struct graph *g, struct uop *u, struct uop *dy) {
  const struct uop *from = viewed(u);
  struct uop *v = u->src[1];
  if (v == from) return number(g, dy->dtype, 0);
  struct uop *inside = uop_broadcast(g, uop_const_int(g, DT_BOOL, 1), v->shape);
  for (; v != from; v = v->src[0]) {
    if (v->op == OP_EXPAND || v->op == OP_SHEAR) return NULL; /* elements may be written twice */
    inside = reshape_like(g, move_back(g, v, inside), v->src[0]);
  }
  return uop_where(g, reshape_like(g, inside, dy), number(g, dy->dtype, 0), dy);
}

/* Every process's result depends on every process's x, so the gradients of all processes must be combined. The
 * transposed exchange does this. */
struct uop *exchange_gradient(struct graph *g, const struct uop *u, struct uop *dy) {
  enum exchange_op back = exchange_op_transposed(u->aux);
  if (back == EXCHANGE_NONE) return NULL;
  bool sums = back != EXCHANGE_BROADCAST && back != EXCHANGE_GATHER;
  enum dtype t = sums && dtype_info[dy->dtype].size < 4 ? DT_F32 : dy->dtype;
  struct uop *flow = uop_exchange(g, back, exchange_root(u), uop_cast(g, dy, t), u->src[0]->shape);
  return uop_cast(g, flow, dy->dtype);
}
