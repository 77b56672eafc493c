/* Scheduling: sums products over the padding of factors that are copied to memory with rows of round size. The padding
 * is zeros, so the sum is the same, and its kernel checks no element for whether it is one of the padding. */
#include "../scheduler.h"
#include <string.h>

/* Whether x is a copy without its padding, which is along *axis. */
static bool removes_padding(const struct uop *x, int *axis) {
  const struct uop *copy = x->op == OP_SHRINK ? x->src[0] : NULL;
  if (!copy || copy->op != OP_CONTIGUOUS || copy->src[0]->op != OP_PAD) return false;
  if (copy->arg.i != CONTIGUOUS_ALIGNED && copy->arg.i != CONTIGUOUS_CHANNELS) return false;
  *axis = -1;
  for (unsigned i = 0; i < x->shape->rank; i++)
    if (x->shape->dim[i] != copy->shape->dim[i]) *axis = (int)i;
  return *axis >= 0;
}

/* The axis of a RESHAPE with the same elements as one of its source, or -1. */
static int reshaped(const struct uop *u, int axis) {
  const struct shape *from = u->src[0]->shape, *to = u->shape;
  int64_t before = 1, now = 1;
  for (int i = 0; i < axis; i++) before *= from->dim[i]->arg.i;
  for (unsigned i = 0; i < to->rank; now *= to->dim[i++]->arg.i)
    if (now == before && to->dim[i] == from->dim[axis]) return (int)i;
  return -1;
}

/* The movement u of x, a source whose axis is longer. Sets *axis to the longer axis of the result. Returns NULL if u
 * changes elements along it. */
static struct uop *move(struct graph *g, const struct uop *u, struct uop *x, int *axis) {
  struct uop *src[2 * MAX_RANK + 1], *size = x->shape->dim[*axis];
  int a = *axis;
  memcpy(src, u->src, u->nsrc * sizeof *src);
  src[0] = x;
  switch (u->op) {
  case OP_PERMUTE:
    for (unsigned i = 0; i < u->shape->rank; i++)
      if ((u->arg.i >> 4 * i & 15) == a) *axis = (int)i;
    break;
  case OP_RESHAPE:
    if ((*axis = reshaped(u, a)) < 0) return NULL;
    src[1 + *axis] = size;
    break;
  case OP_EXPAND: src[1 + a] = size; break;
  case OP_PAD: /* adds no elements, or as many as the copy has */
    if (!uop_is_const(u->src[1 + 2 * a]) || u->src[1 + 2 * a]->arg.i) return NULL;
    if (u->src[2 + 2 * a]->arg.i && u->shape->dim[a] != size) return NULL;
    src[2 + 2 * a] = uop_index(g, 0);
    break;
  case OP_SHRINK:
    if (u->shape->dim[a] != u->src[0]->shape->dim[a]) return NULL;
    src[2 + 2 * a] = size;
    break;
  case OP_SHEAR:
    if ((u->arg.i & 15) == a || (u->arg.i >> 4 & 15) == a) return NULL;
    break;
  case OP_FLIP:
    if (u->arg.i >> a & 1) return NULL;
    break;
  default: return NULL;
  }
  return uop_new(g, u->op, u->dtype, u->lanes, u->arg, u->aux, src, u->nsrc);
}

/* A factor with the padding of its copy, which is along *axis. Returns NULL if there is none. */
static struct uop *with_padding(struct graph *g, struct uop *x, int *axis) {
  if (removes_padding(x, axis)) return x->src[0];
  if ((x->op != OP_CAST && !is_movement(x)) || shape_numel(x->shape) < 0) return NULL;
  struct uop *below = with_padding(g, x->src[0], axis);
  if (!below) return NULL;
  return x->op == OP_CAST ? uop_cast(g, below, x->dtype) : move(g, x, below, axis);
}

static int64_t size_along(const struct uop *x, int axis) { return x->shape->dim[axis]->arg.i; }

struct uop *schedule_pad_axis(struct graph *g, struct uop *x, unsigned axis, const struct uop *size) {
  struct uop *by[2 * MAX_RANK];
  for (unsigned i = 0; i < 2 * x->shape->rank; i++) by[i] = uop_index(g, 0);
  if (x->shape->dim[axis] == size) return x;
  by[2 * axis + 1] = uop_index(g, size->arg.i - x->shape->dim[axis]->arg.i);
  return uop_movement(g, OP_PAD, x, by, 2 * x->shape->rank);
}

/* The product, summed along the axes of the mask, with the padding of its factors' copies along one of these. */
static struct uop *pad_product(struct graph *g, struct uop *x, int64_t mask) {
  struct uop *src[2];
  int axis[2];
  for (unsigned i = 0; i < 2; i++) {
    src[i] = with_padding(g, x->src[i], &axis[i]);
    if (src[i] && !(mask >> axis[i] & 1)) src[i] = NULL;
  }
  if (src[0] && src[1] && axis[0] != axis[1]) return x;
  if (!src[0] && !src[1]) return x;
  const unsigned longest = !src[0] || (src[1] && size_along(src[1], axis[1]) > size_along(src[0], axis[0]));
  const struct uop *size = src[longest]->shape->dim[axis[longest]];
  for (unsigned i = 0; i < 2; i++)
    src[i] = schedule_pad_axis(g, src[i] ? src[i] : x->src[i], (unsigned)axis[longest], size);
  return src[0]->shape == src[1]->shape ? uop_with_src(g, x, src) : x;
}

/* x, summed along the axes of the mask, with the padding of the factors of sums in it. */
static struct uop *pad_sums(struct graph *g, struct uop *x, int64_t mask) {
  struct uop *src[2 * MAX_RANK + 1];
  bool sum = x->op == OP_REDUCE_AXIS && x->aux == OP_ADD;
  if (x->op == OP_MUL) return pad_product(g, x, mask);
  if (!sum && x->op != OP_CAST && !is_movement(x)) return x;
  memcpy(src, x->src, x->nsrc * sizeof *src);
  src[0] = pad_sums(g, x->src[0], sum ? x->arg.i : 0);
  return src[0] == x->src[0] ? x : uop_with_src(g, x, src);
}

struct uop *schedule_sum_padding(struct graph *g, const struct uop *reduce, struct uop *x) {
  bool sum = reduce->aux == OP_ADD && shape_numel(x->shape) >= 0;
  return sum ? pad_sums(g, x, reduce->arg.i) : x;
}
