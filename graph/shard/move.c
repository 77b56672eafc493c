/* The sharder: movement ops. Elements that stay in the same part along the split axis stay on their device; for the
 * other ops the functions here compute which elements each device needs of the others. */
#include "sharder.h"
#include <errno.h>
#include <string.h>

enum { MOST_SOURCES = 2 * MAX_RANK + 1 };

static bool is_size(const struct uop *dim, int64_t n) { return uop_is_const(dim) && dim->arg.i == n; }
static bool is_static_shape(const struct shape *s) { return shape_numel(s) >= 0; }

/* Makes y's parts: u applied to x's parts. If sized is not 0, source number `sized` is the size of y's part. */
static struct sharded *apply_to_parts(struct sharder *s, struct uop *u, const struct sharded *x, struct sharded *y,
                                      unsigned sized) {
  struct uop *src[MOST_SOURCES];
  if (!y) return NULL;
  memcpy(src, u->src, u->nsrc * sizeof *src);
  for (unsigned i = 0; i < shard_count(s, x); i++) {
    src[0] = x->part[i];
    if (sized) src[sized] = uop_index(s->graph, shard_size(y, i));
    y->part[i] = shard_node(s, u, src);
  }
  return y;
}

/* u applied to x's parts, where u leaves the split axis alone, except that it is `axis` in the result. */
static struct sharded *apply_along(struct sharder *s, struct uop *u, const struct sharded *x, int axis) {
  struct sharded *y = shard_like(s, x, x->placed);
  if (!y) return NULL;
  y->axis = axis;
  bool sized = shard_is_split(y) && (u->op == OP_RESHAPE || u->op == OP_EXPAND),
       bounded = shard_is_split(y) && (u->op == OP_PAD || u->op == OP_SHRINK);
  if (!bounded) return apply_to_parts(s, u, x, y, sized ? 1 + (unsigned)axis : 0);
  struct uop *src[MOST_SOURCES];
  memcpy(src, u->src, u->nsrc * sizeof *src);
  for (unsigned i = 0; i < shard_count(s, x); i++) {
    src[0] = x->part[i];
    src[1 + 2 * axis] = uop_index(s->graph, 0);
    src[2 + 2 * axis] = uop_index(s->graph, u->op == OP_PAD ? 0 : shard_size(x, i));
    y->part[i] = shard_node(s, u, src);
  }
  return y;
}

static struct sharded *apply_replicated(struct sharder *s, struct uop *u, struct sharded *x) {
  x = shard_replicate(s, x, x->group);
  return x ? apply_along(s, u, x, SHARD_REPLICATED) : NULL;
}

/* ---- RESHAPE ---- */

static int64_t dims_product(const struct shape *s, unsigned from, unsigned to) {
  int64_t n = 1;
  for (unsigned i = from; i < to; i++) n *= s->dim[i]->arg.i;
  return n;
}

/* Finds the axis of `to` that corresponds to split axis `axis` of `from`: the number of elements before it is the same,
 * and the number of elements after one of the two axes divides that after the other. Returns -1 if there is none.
 * Stores in rest the number of elements of one step along the axis, in `from` and in `to`. */
static int trace_axis(const struct shape *from, unsigned axis, const struct shape *to, int64_t rest[2]) {
  if (!is_static_shape(from) ||
      !is_static_shape(to)) { /* symbolic sizes: the dimensions up to the axis must be the same nodes */
    for (unsigned i = 0; i <= axis; i++)
      if (i >= to->rank || from->dim[i] != to->dim[i]) return -1;
    rest[0] = rest[1] = 1;
    return (int)axis;
  }
  int64_t before = dims_product(from, 0, axis);
  if (!shape_numel(from)) return -1;
  rest[0] = dims_product(from, axis + 1, from->rank);
  for (unsigned b = 0; b < to->rank; b++) {
    rest[1] = dims_product(to, b + 1, to->rank);
    if (dims_product(to, 0, b) == before && to->dim[b]->arg.i > 1 && (rest[0] % rest[1] == 0 || rest[1] % rest[0] == 0))
      return (int)b;
  }
  return -1;
}

static struct sharded *reshape_parts(struct sharder *s, struct uop *u, struct sharded *x, unsigned axis,
                                     int64_t rest[2]) {
  unsigned n = shard_count(s, x);
  struct sharded *y = shard_even(s, x->group, (int)axis, 0, x->placed);
  if (!y) return NULL;
  for (unsigned i = 0; i <= n; i++) {
    if (x->bound[i] * rest[0] % rest[1]) return NULL;
    y->bound[i] = x->bound[i] * rest[0] / rest[1];
  }
  return apply_to_parts(s, u, x, y, 1 + axis);
}

/* x with another split, even along axis b of the reshaped tensor, so that no row of it is cut. */
static struct sharded *align_split(struct sharder *s, const struct shape *to, struct sharded *x, int b,
                                   int64_t rest[2]) {
  unsigned n = shard_count(s, x);
  int64_t size = to->dim[b]->arg.i;
  if (size < (int64_t)n || rest[1] % rest[0]) return NULL;
  struct sharded *layout = shard_like(s, x, x->placed);
  for (unsigned i = 0; layout && i <= n; i++) layout->bound[i] = peer_share(size, i, n) * (rest[1] / rest[0]);
  return layout ? shard_lay_out(s, x, layout) : NULL;
}

static struct sharded *reshape(struct sharder *s, struct uop *u, struct sharded *x, bool views) {
  const struct shape *from = u->src[0]->shape, *to = u->shape;
  int64_t rest[2];
  unsigned n = shard_count(s, x);
  int b = trace_axis(from, (unsigned)x->axis, to, rest);
  if (b >= 0) {
    struct sharded *y = reshape_parts(s, u, x, (unsigned)b, rest), *even;
    if (y || s->status || views) return y;
    even = align_split(s, to, x, b, rest);
    if (even || s->status) return even ? reshape_parts(s, u, even, (unsigned)b, rest) : NULL;
  }
  if (views) return NULL;
  for (unsigned a = 0; a < from->rank && is_static_shape(from); a++) { /* try another axis that has a counterpart */
    if ((int)a == x->axis || from->dim[a]->arg.i < (int64_t)n || (b = trace_axis(from, a, to, rest)) < 0) continue;
    struct sharded *layout = shard_even(s, x->group, (int)a, from->dim[a]->arg.i, x->placed);
    struct sharded *y = layout ? shard_lay_out(s, x, layout) : NULL;
    if (!y) return NULL;
    struct sharded *even = rest[0] % rest[1] ? align_split(s, to, y, b, rest) : y;
    if (even) return reshape_parts(s, u, even, (unsigned)b, rest);
    if (s->status) return NULL;
  }
  return apply_replicated(s, u, x);
}

/* ---- PAD and SHRINK ---- */

/* Applies u to the axes other than the split one. */
static struct sharded *change_other_bounds(struct sharder *s, struct uop *u, struct sharded *x) {
  const struct shape *shape = u->src[0]->shape;
  for (unsigned i = 0; i < shape->rank; i++) {
    bool same = u->op == OP_PAD ? is_size(u->src[1 + 2 * i], 0) && is_size(u->src[2 + 2 * i], 0)
                                : is_size(u->src[1 + 2 * i], 0) && u->src[2 + 2 * i] == shape->dim[i];
    if ((int)i != x->axis && !same) return apply_along(s, u, x, x->axis);
  }
  return x;
}

static struct uop *padded(struct sharder *s, struct uop *x, unsigned axis, int64_t before, int64_t behind) {
  struct uop *src[MOST_SOURCES] = {x};
  if (!before && !behind) return x;
  for (unsigned i = 0; i < x->shape->rank; i++) {
    src[1 + 2 * i] = uop_index(s->graph, i == axis ? before : 0);
    src[2 + 2 * i] = uop_index(s->graph, i == axis ? behind : 0);
  }
  return uop_new(s->graph, OP_PAD, x->dtype, 1, (union uop_arg){0}, 0, src, 1 + 2 * x->shape->rank);
}

static int64_t clamp_int(int64_t v, int64_t low, int64_t high) { return v < low ? low : v > high ? high : v; }

/* Applies u along the split axis. If views is set or the size changes by at most one device's share, every device keeps
 * its elements; otherwise the parts are made even again. */
static struct sharded *change_bounds(struct sharder *s, struct uop *u, struct sharded *x, bool views) {
  struct uop *first = u->src[1 + 2 * x->axis], *last = u->src[2 + 2 * x->axis];
  unsigned n = shard_count(s, x), axis = (unsigned)x->axis;
  const struct shard_group *group = s->group(x->group);
  int64_t size = x->bound[n];
  bool pads = u->op == OP_PAD;
  if (!uop_is_const(first) || !uop_is_const(last))
    return shard_fail(s, -ENOTSUP, "not supported: %s by a symbolic size along the axis that is split over devices",
                      op_info[u->op].name);
  int64_t a = first->arg.i, b = last->arg.i, now = pads ? size + a + b : b - a,
          change = now > size ? now - size : size - now;
  if (!change) return x;
  struct sharded *y = shard_even(s, x->group, x->axis, now, x->placed);
  if (!y) return NULL;
  if (views || change * (int64_t)n <= size) {
    for (unsigned i = 0; i <= n; i++)
      y->bound[i] = !pads ? clamp_int(x->bound[i], a, b) - a : !i ? 0 : i == n ? now : x->bound[i] + a;
    for (unsigned i = 0; i < n; i++) {
      int64_t begin = shard_size(y, i) ? y->bound[i] + a - x->bound[i] : 0; /* the range may not intersect the part */
      y->part[i] = pads ? padded(s, x->part[i], axis, i ? 0 : a, i == n - 1 ? b : 0)
                        : peer_slice(s->graph, x->part[i], axis, begin, begin + shard_size(y, i));
    }
    return y;
  }
  bool split = now >= (int64_t)n;
  if (!split) y = shard_even(s, x->group, SHARD_REPLICATED, 0, x->placed);
  for (unsigned i = 0; y && i < n; i++) {
    int64_t begin = split ? y->bound[i] : 0, end = split ? y->bound[i + 1] : now, shift = pads ? -a : a;
    int64_t from = clamp_int(begin + shift, 0, size), to = clamp_int(end + shift, from, size);
    y->part[i] = shard_range(s, x, from, to, group->device[i]);
    if (pads) {
      int64_t front = clamp_int(a - begin, 0, end - begin);
      y->part[i] = padded(s, y->part[i], axis, front, end - begin - front - (to - from));
    }
  }
  return y;
}

/* ---- the others ---- */

static struct sharded *permute(struct sharder *s, struct uop *u, struct sharded *x) {
  for (unsigned i = 0; i < u->shape->rank; i++)
    if ((int)((uint64_t)u->arg.i >> 4 * i & 15) == x->axis) return apply_along(s, u, x, (int)i);
  return NULL;
}

/* Reverses the parts: the last one is flipped and copied to the first device, and so on. */
static struct sharded *flip(struct sharder *s, struct uop *u, struct sharded *x) {
  const struct shard_group *group = s->group(x->group);
  struct sharded *y = shard_like(s, x, x->placed);
  for (unsigned i = 0; y && i < group->n; i++) {
    struct uop *mine = shard_node(s, u, &x->part[group->n - 1 - i]);
    y->part[i] = x->placed ? peer_copy(s->graph, mine, group->device[group->n - 1 - i], group->device[i]) : mine;
    y->bound[i + 1] = x->bound[group->n] - x->bound[group->n - 1 - i];
  }
  return y;
}

struct sharded *shard_move(struct sharder *s, struct uop *u, struct sharded *x, bool views) {
  const struct shape *from = u->src[0]->shape;
  struct sharded *y = NULL;
  unsigned axes = 0;
  if (!shard_is_split(x)) return apply_along(s, u, x, x->axis);
  unsigned axis = (unsigned)x->axis;
  switch (u->op) {
  case OP_RESHAPE: y = reshape(s, u, x, views); break;
  case OP_EXPAND:
    if (from->dim[axis] == u->shape->dim[axis])
      y = apply_along(s, u, x, x->axis);
    else if (!views)
      y = apply_replicated(s, u, x);
    break;
  case OP_PERMUTE: y = permute(s, u, x); break;
  case OP_PAD:
  case OP_SHRINK:
    y = change_other_bounds(s, u, x);
    if (y) y = change_bounds(s, u, y, views);
    break;
  case OP_FLIP:
    if (!(u->arg.i >> axis & 1))
      y = apply_along(s, u, x, x->axis);
    else if (!views)
      y = flip(s, u, x);
    break;
  case OP_SHEAR:
    axes = 1u << (u->arg.i & 15) | 1u << (u->arg.i >> 4 & 15);
    if (axes >> axis & 1) x = views ? NULL : shard_split_elsewhere(s, x, axes);
    if (x) y = apply_along(s, u, x, x->axis);
    break;
  default: break;
  }
  if (!y && views)
    shard_fail(s, -ENOTSUP, "not supported: assigning to a view whose elements %s moves between devices",
               op_info[u->op].name);
  return y;
}
