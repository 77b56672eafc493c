/* Scheduling: long reductions with few results, which a machine would compute with a handful of its work-items, are
 * done in two steps: many partial results, and their reduction. */
#include "scheduler.h"
#include <stdlib.h>
#include <string.h>

enum { FEW = 64, LONG = 32768, LEAST_PARTS = 8, MOST_PARTS = 256, LEAST_LENGTH = 128 };

static int64_t divisor_of(int64_t n, int64_t most) {
  for (int64_t d = most < n ? most : n; d > 1; d--)
    if (n % d == 0) return d;
  return 1;
}

static struct uop *reduced(struct graph *g, struct uop *u, struct uop *x, int64_t mask) {
  return uop_new(g, OP_REDUCE_AXIS, u->dtype, 1, (union uop_arg){.i = mask}, u->aux, &x, 1);
}

/* u over x in two steps; u over x where that does not pay. */
static struct uop *split(struct graph *g, struct uop *u, struct uop *x) {
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a REDUCE_AXIS has a source, which comes before it
  const struct shape *shape = x->shape;
  int64_t all = shape_numel(shape), mask = u->arg.i, length = 1, first = 0, parts = 1;
  unsigned longest = 0;
  if (all <= 0) return reduced(g, u, x, mask);
  for (unsigned i = 0; i < shape->rank; i++) {
    if (!(mask >> i & 1)) continue;
    int64_t n = shape->dim[i]->arg.i;
    if (!length || n > shape->dim[longest]->arg.i || !(mask >> longest & 1)) longest = i;
    length *= n;
  }
  if (length < LONG || all / length >= FEW) return reduced(g, u, x, mask);
  /* The outer axes are the parts where they are as many as there should be; else a divisor of the longest axis. */
  for (unsigned i = 0; i < shape->rank; i++) {
    if (!(mask >> i & 1) || parts * shape->dim[i]->arg.i > MOST_PARTS) continue;
    parts *= shape->dim[i]->arg.i, first |= INT64_C(1) << i;
    if (parts >= LEAST_PARTS) break;
  }
  if (parts >= LEAST_PARTS && length / parts >= LEAST_LENGTH)
    return reduced(g, u, reduced(g, u, x, mask & ~first), first);
  int64_t n = shape->dim[longest]->arg.i, d = divisor_of(n, MOST_PARTS);
  if (d < LEAST_PARTS || length / d < LEAST_LENGTH || shape->rank == MAX_RANK) return reduced(g, u, x, mask);
  struct uop *src[MAX_RANK + 1] = {x};
  int64_t inner = 0;
  unsigned rank = 0;
  for (unsigned i = 0; i < shape->rank; i++) {
    if (i == longest) src[++rank] = uop_index(g, d);
    if (mask >> i & 1) inner |= INT64_C(1) << rank;
    src[++rank] = i == longest ? uop_index(g, n / d) : shape->dim[i];
  }
  struct uop *v = reduced(g, u, uop_new(g, OP_RESHAPE, x->dtype, 1, (union uop_arg){0}, 0, src, rank + 1), inner);
  v = reduced(g, u, v, INT64_C(1) << longest);
  src[0] = v;
  memcpy(src + 1, u->shape->dim, shape->rank * sizeof *src);
  return uop_new(g, OP_RESHAPE, u->dtype, 1, (union uop_arg){0}, 0, src, shape->rank + 1);
}

bool schedule_split_reduces(struct scheduler *s, struct uop **roots, unsigned nroots) {
  struct graph *g = s->graph;
  size_t n = 0, room = graph_node_count(g);
  bool any = false, ok = false;
  struct uop **order = uop_toposort(roots, nroots, &n), **now = calloc(room + 1, sizeof *now), **src = NULL;
  size_t most = 1;
  for (size_t i = 0; order && i < n; i++) {
    if (order[i]->nsrc > most) most = order[i]->nsrc;
    if (order[i]->op != OP_REDUCE_AXIS) continue;
    int64_t all = shape_numel(order[i]->src[0]->shape), results = shape_numel(order[i]->shape);
    any |= results > 0 && results < FEW && all / results >= LONG;
  }
  src = calloc(most, sizeof *src);
  if (!order || !now || !src) {
    schedule_no_memory(s);
    goto out;
  }
  for (size_t i = 0; any && i < n; i++) {
    struct uop *u = order[i];
    bool same = true;
    for (unsigned k = 0; k < u->nsrc; k++) src[k] = now[u->src[k]->id], same &= src[k] == u->src[k];
    now[u->id] = u->op == OP_REDUCE_AXIS ? split(g, u, src[0]) : same ? u : uop_with_src(g, u, src);
  }
  for (unsigned i = 0; any && i < nroots; i++) roots[i] = now[roots[i]->id];
  ok = true;
out:
  free(order);
  free(now);
  free(src);
  return ok;
}
