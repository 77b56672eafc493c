/* The step that puts rounds of a reduction outside of loops over outputs: the sums of all these outputs are kept in a
 * STAGE that is added to in each of the rounds. What is staged for a round is then used by all of the outputs. */
#include "internal.h"
#include <stdlib.h>

/* The one REDUCE that binds the range, if it is in no other reduction or copy and none is in it. */
static struct uop *reduce_over(const struct codegen *k, const struct uop *range) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count), *found = NULL;
  bool *below = calloc(graph_node_count(k->g), sizeof *below), *nested = calloc(graph_node_count(k->g), sizeof *nested);
  bool alone = order && below && nested;
  for (size_t i = 0; alone && i < count; i++) {
    struct uop *u = order[i];
    for (unsigned s = 0; s < u->nsrc; s++) {
      below[u->id] = below[u->id] || below[u->src[s]->id] || u->src[s] == found;
      nested[u->id] = nested[u->id] || nested[u->src[s]->id] || u->src[s]->op == OP_REDUCE;
    }
    bool mine = false;
    for (unsigned s = binds_from(u); s < u->nsrc; s++) mine = mine || u->src[s] == range;
    bool binds = binds_from(u) < u->nsrc;
    if (mine && (found || u->op != OP_REDUCE || nested[u->id])) alone = false;
    if (binds && !mine && found && below[u->id]) alone = false;
    if (mine) found = u;
  }
  free(order);
  free(below);
  free(nested);
  return alone ? found : NULL;
}

static bool possible(const struct codegen *k, const struct step *s, const uint64_t *mask, char *why, size_t cap) {
  uint64_t listed = 0;
  int64_t kept = 1;
  unsigned rounds = 0, first = 0;
  if (k->target->kind != TARGET_HOST) return refuse(why, cap, "it is for the host only");
  for (unsigned i = 0; i < s->nlist; i++) {
    int a = axis_named(k, s->list[i]);
    if (a < 0) return refuse(why, cap, "the kernel has no such axis at this point");
    enum axis_kind kind = k->axes[a].kind;
    if (listed >> a & 1) return refuse(why, cap, "an axis is listed twice");
    if (k->axes[a].range->src[0]->op != OP_CONST) return refuse(why, cap, "an axis has a symbolic size");
    if (kind != AXIS_REDUCE && kind != AXIS_LOOP && kind != AXIS_SERIAL && kind != AXIS_UPCAST)
      return refuse(why, cap, "a %s axis is listed", axis_kind_name(kind));
    listed |= UINT64_C(1) << a;
    if (kind == AXIS_REDUCE) {
      if (!rounds++) first = (unsigned)a;
    } else if (__builtin_mul_overflow(kept, k->axes[a].size, &kept) || kept > (int64_t)k->target->local_bytes)
      return refuse(why, cap, "the sums need more local memory than there is");
  }
  if (!rounds) return refuse(why, cap, "no reduce axis is listed");
  if (k->naxes + s->nlist > MAX_AXES) return refuse(why, cap, "the kernel would have more than %d axes", MAX_AXES);
  const struct uop *reduce = reduce_over(k, k->axes[first].range);
  if (!reduce) return refuse(why, cap, "several reductions are over the axis, or are inside of each other");
  if (dtype_is_narrow_float(reduce->dtype)) return refuse(why, cap, "the sums are of a narrow type");
  if (kept * dtype_info[reduce->dtype].size > (int64_t)k->target->local_bytes)
    return refuse(why, cap, "the sums need more local memory than there is");
  if (reduce->nsrc - 1u == rounds) return refuse(why, cap, "no round is left inside");
  for (unsigned a = 0; a < k->naxes; a++) {
    enum axis_kind kind = k->axes[a].kind;
    bool in_list = listed >> a & 1, along = mask[reduce->id] >> a & 1;
    if (in_list && kind == AXIS_REDUCE && !reduce_binds(reduce, k->axes[a].range))
      return refuse(why, cap, "the reduce axes are of several reductions");
    if (in_list && kind != AXIS_REDUCE && !along) return refuse(why, cap, "the sums do not change along an axis");
    if (along && !in_list && (kind == AXIS_UPCAST || kind == AXIS_UNROLL))
      return refuse(why, cap, "all %s axes must be listed", axis_kind_name(kind));
  }
  return true;
}

bool order_possible(const struct codegen *k, const struct step *s, char *why, size_t cap) {
  uint64_t *mask = axis_masks(k, false);
  bool ok = mask && possible(k, s, mask, why, cap);
  free(mask);
  return ok;
}

bool order_apply(struct codegen *k, const struct step *s) {
  struct graph *g = k->g;
  struct uop *from[MAX_STAGED], *to[MAX_STAGED], *bound[2 * MAX_AXES + 2], *left[MAX_AXES + 1], *reduce = NULL;
  unsigned n = 0, nbound = 2, nleft = 1, vector = MAX_STAGED;
  for (unsigned i = 0; i < s->nlist; i++) {
    struct axis *a = &k->axes[axis_named(k, s->list[i])];
    if (a->kind != AXIS_REDUCE) continue;
    if (!reduce) reduce = reduce_over(k, a->range);
    bound[nbound++] = a->range;
    a->name = (struct axis_name){0}; /* later steps do not split it: the copy counts by it */
  }
  if (!reduce) return codegen_fail(k, "out of memory");
  for (unsigned i = 1; i < reduce->nsrc; i++) {
    bool outside = false;
    for (unsigned j = 2; j < nbound; j++) outside = outside || bound[j] == reduce->src[i];
    if (!outside) left[nleft++] = reduce->src[i];
  }
  for (unsigned i = 0; i < s->nlist; i++) {
    int at = axis_named(k, s->list[i]);
    if (at < 0) continue; /* one of the rounds */
    const struct axis a = k->axes[at];
    struct uop *copy = axis_add(k, a.size, a.kind == AXIS_UPCAST ? AXIS_UPCAST : AXIS_REDUCE, a.vector);
    if (!copy) return codegen_fail(k, "more than %d axes", MAX_AXES);
    if (a.vector) vector = n;
    from[n] = a.range, to[n++] = copy;
    bound[nbound++] = copy;
  }
  /* In the order of the list, a vector's lanes without gaps. */
  struct uop *at = uop_index(g, 0), *use = at;
  int64_t stride = 1;
  for (unsigned i = 0; i <= n; i++) {
    unsigned x = i == 0 ? vector : n - i;
    if (x == MAX_STAGED || (i && x == vector)) continue;
    struct uop *step = uop_index(g, stride);
    at = uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, to[x], step), at);
    use = uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, from[x], step), use);
    stride *= uop_max(from[x]) + 1;
  }
  left[0] = uop_substitute(g, reduce->src[0], from, to, n);
  bound[0] = uop_new(g, OP_REDUCE, reduce->dtype, 1, reduce->arg, reduce->aux, left, nleft);
  bound[1] = at;
  struct uop *sums = uop_new(g, OP_STAGE, reduce->dtype, 1, (union uop_arg){.i = stride}, reduce->aux, bound, nbound);
  struct uop *index = uop_new(g, OP_INDEX, reduce->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){sums, use}, 2);
  struct uop *load = uop_new(g, OP_LOAD, reduce->dtype, 1, (union uop_arg){0}, 0, &index, 1);
  k->ast = uop_substitute(g, k->ast, &reduce, &load, 1);
  return true;
}
