/* Scheduling: a reduction of values that are its identity element at all positions but one is the value at that
 * position. Example: the gradient of a cross entropy sums rows that are 0 except at the label. */
#include "scheduler.h"
#include <math.h>
#include <stdlib.h>

static bool depends_on(struct uop *u, const struct uop *range) {
  size_t n;
  struct uop **order = uop_toposort(&u, 1, &n);
  bool found = !order;
  for (size_t i = 0; i < n && !found; i++) found = order[i] == range;
  free(order);
  return found;
}

/* If x compares the position in a range with a value, returns the value, otherwise NULL. */
static struct uop *compared_position(const struct uop *x, const struct uop *range) {
  for (unsigned k = 0; k < 2 && x->op == OP_CMPEQ; k++) {
    const struct uop *position = x->src[k];
    if (position->op == OP_CAST && dtype_holds(position->dtype, 0, uop_max(range))) position = position->src[0];
    if (position == range) return depends_on(x->src[!k], range) ? NULL : x->src[!k];
  }
  return NULL;
}

/* If x is the identity element of op unless the position in a range has one value, stores this value in *at and returns
 * x at this position, otherwise NULL. */
static struct uop *chosen(struct graph *g, enum op op, struct uop *x, const struct uop *range, struct uop **at) {
  if (x->op == OP_WHERE && x->src[2] == uop_identity(g, op, x->dtype) && !depends_on(x->src[1], range))
    return (*at = compared_position(x->src[0], range)) ? x->src[1] : NULL;
  if (op != OP_ADD) return NULL;
  if (x->op == OP_CAST && x->src[0]->dtype == DT_BOOL)
    return (*at = compared_position(x->src[0], range)) ? uop_cast(g, uop_const_int(g, DT_BOOL, 1), x->dtype) : NULL;
  bool keeps_zero =
      x->op == OP_NEG || x->op == OP_CAST ||
      (x->op == OP_MUL && uop_is_const(x->src[1]) && (!dtype_is_float(x->dtype) || isfinite(x->src[1]->arg.f)));
  if (!keeps_zero) return NULL;
  struct uop *src[2] = {chosen(g, op, x->src[0], range, at), x->nsrc > 1 ? x->src[1] : NULL};
  return src[0] ? uop_with_src(g, x, src) : NULL;
}

struct uop *schedule_selected(struct scheduler *s, enum op op, struct uop *x, const struct uop *range) {
  struct graph *g = s->graph;
  struct uop *at, *valid, *none = uop_identity(g, op, x->dtype), *value = chosen(g, op, x, range, &at);
  if (!value) return NULL;
  schedule_bounded_index(s, at, range->src[0], &valid);
  if (op == OP_ADD && dtype_is_float(x->dtype)) value = uop_binary(g, OP_ADD, value, none); /* a sum is never -0 */
  return valid ? uop_where(g, valid, value, none) : value;
}
