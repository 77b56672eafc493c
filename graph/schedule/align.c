/* Scheduling: copies operands of products whose rows do not begin at aligned addresses to memory where they do. Matrix
 * instructions read such rows without a conversion of each element's address. */
#include "scheduler.h"
#include <string.h>

enum { LEAST_ROW = 64, LEAST_USES = 128 }; /* elements of a row; uses of an element that pay for its copy */

/* Whether a RESHAPE only adds and removes axes of size 1. */
static bool keeps_axes(const struct uop *u) {
  const struct shape *a = u->shape, *b = u->src[0]->shape;
  unsigned i = 0, k = 0;
  for (;;) {
    while (i < a->rank && a->dim[i]->arg.i == 1) i++;
    while (k < b->rank && b->dim[k]->arg.i == 1) k++;
    if (i == a->rank || k == b->rank) return i == a->rank && k == b->rank;
    if (a->dim[i++] != b->dim[k++]) return false;
  }
}

/* The matrix in memory with rows at multiples of `align` bytes. */
static struct uop *align_matrix(struct graph *g, struct uop *x, int64_t align) {
  const struct shape *s = x->shape;
  struct uop *pad[2 * MAX_RANK], *whole[2 * MAX_RANK];
  unsigned last = s->rank;
  while (last && s->dim[last - 1]->arg.i == 1) last--;
  if (!last) return x;
  int64_t n = s->dim[--last]->arg.i, unit = align / dtype_info[x->dtype].size;
  if (n < LEAST_ROW || n % unit == 0 || n == shape_numel(s)) return x;
  for (unsigned i = 0; i < s->rank; i++) {
    pad[2 * i] = whole[2 * i] = uop_index(g, 0);
    pad[2 * i + 1] = uop_index(g, i == last ? unit - n % unit : 0), whole[2 * i + 1] = s->dim[i];
  }
  x = uop_movement(g, OP_PAD, x, pad, 2 * s->rank);
  x = uop_new(g, OP_CONTIGUOUS, x->dtype, 1, (union uop_arg){.i = CONTIGUOUS_ALIGNED}, 0, &x, 1);
  return uop_movement(g, OP_SHRINK, x, whole, 2 * s->rank);
}

static struct uop *align_factor(struct graph *g, struct uop *x, int64_t align) {
  if (shape_numel(x->shape) < 0) return x;
  if (x->op == OP_RESHAPE && x->src[0]->op == OP_BUFFER) return align_matrix(g, x, align);
  bool kept = x->op == OP_CAST || x->op == OP_EXPAND || x->op == OP_PERMUTE || x->op == OP_RESHAPE;
  if (!kept || shape_numel(x->src[0]->shape) < 0 || (x->op == OP_RESHAPE && !keeps_axes(x))) return x;
  struct uop *src[MAX_RANK + 1], *aligned = align_factor(g, x->src[0], align);
  if (aligned == x->src[0]) return x;
  memcpy(src, x->src, x->nsrc * sizeof *src);
  src[0] = aligned;
  return uop_with_src(g, x, src);
}

struct uop *schedule_align(struct graph *g, const struct schedule_machine *m, const struct uop *reduce, struct uop *x) {
  if (!m->align || reduce->aux != OP_ADD || shape_numel(reduce->shape) < 2 || x->op != OP_MUL) return x;
  struct uop *src[2];
  for (unsigned i = 0; i < 2; i++) {
    const struct uop *f = below_casts(x->src[i]);
    if (!(m->tile_types >> f->dtype & 1) || dtype_info[f->dtype].size >= m->align) return x;
    int64_t uses = shape_numel(x->shape) / shape_numel(f->shape);
    src[i] = f->op == OP_BUFFER && uses >= LEAST_USES ? align_factor(g, x->src[i], m->align) : x->src[i];
  }
  return src[0] != x->src[0] || src[1] != x->src[1] ? uop_with_src(g, x, src) : x;
}
