/* The step that moves rounds of reductions outside loops over outputs: a STAGE keeps the sums of all these outputs, and
 * each round adds to it. All outputs then use what is staged for a round, and rows of a matrix are read in order where
 * its columns are summed.
 *
 * REDUCE(value, r, s) at c becomes a load from STAGE(REDUCE(value, s), c, r, c). The aux of this STAGE is the operation
 * that combines the values stored at one position. */
#include "internal.h"
#include <stdlib.h>
#include <string.h>

struct listed { /* the listed axes, as masks and in order */
  uint64_t reduced, kept;
  unsigned axis[MAX_STAGED], n;
};

/* Narrow floats are summed in f32, as in lower/reduce.c. */
static enum dtype sum_dtype(enum dtype t) { return dtype_is_narrow_float(t) ? DT_F32 : t; }

static bool is_expanded(const struct axis *a) { return a->kind == AXIS_UPCAST || a->kind == AXIS_UNROLL; }

/* Whether the axis has a bound that is known when a workgroup begins. */
static bool bound_by_ids(const struct codegen *k, const struct axis *a) {
  size_t count;
  struct uop *bound = a->range->src[0], **order = uop_toposort(&bound, 1, &count);
  bool ok = order;
  for (size_t i = 0; ok && i < count; i++)
    for (unsigned x = 0; x < k->naxes; x++)
      if (k->axes[x].range == order[i] && k->axes[x].kind != AXIS_GLOBAL) ok = false;
  free(order);
  return ok;
}

static bool list_axes(const struct codegen *k, const struct step *s, struct listed *p, char *why, size_t cap) {
  *p = (struct listed){0};
  for (unsigned i = 0; i < s->nlist; i++) {
    int at = axis_named(k, s->list[i]);
    if (at < 0) return refuse(why, cap, "the kernel has no such axis at this point");
    const struct axis *a = &k->axes[at];
    if ((p->reduced | p->kept) >> at & 1) return refuse(why, cap, "an axis is listed twice");
    bool kept = a->kind == AXIS_LOOP || a->kind == AXIS_SERIAL || a->kind == AXIS_UPCAST;
    if (!kept && a->kind != AXIS_REDUCE)
      return refuse(why, cap, "a %s axis is neither a loop of a reduction nor one of its results",
                    axis_kind_name(a->kind));
    if (!bound_by_ids(k, a)) return refuse(why, cap, "the size of an axis depends on another loop");
    *(kept ? &p->kept : &p->reduced) |= UINT64_C(1) << at;
    p->axis[p->n++] = (unsigned)at;
  }
  if (!p->reduced) return refuse(why, cap, "no reduce axis is listed");
  return true;
}

static int64_t kept_elements(const struct codegen *k, const struct listed *p) {
  double n = 1;
  for (unsigned i = 0; i < p->n; i++)
    if (p->kept >> p->axis[i] & 1) n *= (double)k->axes[p->axis[i]].size;
  return n < INT32_MAX ? (int64_t)n : INT32_MAX;
}

static bool binds(const struct codegen *k, const struct uop *u, unsigned axis) {
  return u->op == OP_REDUCE && reduce_binds(u, k->axes[axis].range);
}

/* Whether the rounds of reduction u can be moved in this way. */
static bool reduce_possible(const struct codegen *k, const struct uop *u, const struct listed *p, const uint64_t *mask,
                            char *why, size_t cap) {
  for (unsigned i = 0; i < p->n; i++)
    if ((p->reduced >> p->axis[i] & 1) && !binds(k, u, p->axis[i]))
      return refuse(why, cap, "the reduce axes belong to several reductions");
  if (p->kept & ~mask[u->id]) return refuse(why, cap, "the sums do not change along an axis");
  for (unsigned a = 0; a < k->naxes; a++)
    if ((mask[u->id] & ~p->kept) >> a & 1 && is_expanded(&k->axes[a]))
      return refuse(why, cap, "all %s axes must be listed", axis_kind_name(k->axes[a].kind));
  unsigned left = 0;
  for (unsigned s = 1; s < u->nsrc; s++) left += !(p->reduced & mask[u->src[s]->id]);
  if (u->src[0]->op == OP_MMA && !left) return refuse(why, cap, "the matrix instruction leaves no loop of the sum");
  size_t count;
  struct uop *value = u->src[0], **order = uop_toposort(&value, 1, &count);
  bool plain = order;
  for (size_t i = 0; i < count && plain; i++) plain = order[i]->op != OP_REDUCE;
  free(order);
  return plain || refuse(why, cap, "it contains a reduction");
}

bool order_possible(const struct codegen *k, const struct step *s, const uint64_t *mask, char *why, size_t cap) {
  struct listed p;
  if (k->target->kind != TARGET_HOST) return refuse(why, cap, "the step applies to the host only");
  if (plan_has(&k->plan, STEP_KEEP)) return refuse(why, cap, "values of a reduction are kept");
  if (!list_axes(k, s, &p, why, cap)) return false;
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  unsigned found = 0;
  bool *below = calloc(graph_node_count(k->g), sizeof *below), ok = order && below;
  double bytes = 0;
  for (size_t i = 0; i < count && ok; i++) {
    bool any = false;
    for (unsigned n = 0; n < order[i]->nsrc; n++)
      below[order[i]->id] = below[order[i]->id] || below[order[i]->src[n]->id];
    if (below[order[i]->id] && binds_from(order[i]) < order[i]->nsrc)
      ok = refuse(why, cap, "the reduction is inside another one or inside a copy");
    for (unsigned n = 0; n < p.n; n++) any = any || ((p.reduced >> p.axis[n] & 1) && binds(k, order[i], p.axis[n]));
    if (!any || !ok) continue;
    below[order[i]->id] = true;
    ok = reduce_possible(k, order[i], &p, mask, why, cap);
    found++, bytes += (double)kept_elements(k, &p) * dtype_info[sum_dtype(order[i]->dtype)].size;
  }
  free(order);
  free(below);
  if (ok && !found) return refuse(why, cap, "no reduction runs over the axes");
  if (ok && found > MAX_ORDERED) return refuse(why, cap, "more than %d reductions run over the axes", MAX_ORDERED);
  if (ok && bytes > k->target->local_bytes)
    return refuse(why, cap, "the sums need more local memory than the target has");
  if (ok && k->naxes + p.n > MAX_AXES) return refuse(why, cap, "the kernel would have more than %d axes", MAX_AXES);
  return ok;
}

bool order_apply(struct codegen *k, const struct step *s) {
  struct graph *g = k->g;
  struct listed p;
  if (!list_axes(k, s, &p, NULL, 0)) return codegen_fail(k, "out of memory");
  struct uop *from[MAX_STAGED], *to[MAX_STAGED], *bound[MAX_STAGED], *use, *at;
  unsigned nkept = 0, nbound = 0, vector = MAX_STAGED;
  int64_t number = next_range_number(k), stride = 1, size = kept_elements(k, &p), count_of[MAX_STAGED];
  for (unsigned i = 0; i < p.n; i++)
    if (p.reduced >> p.axis[i] & 1) bound[nbound++] = k->axes[p.axis[i]].range;
  for (unsigned i = 0; i < p.n; i++) {
    if (!(p.kept >> p.axis[i] & 1)) continue;
    const struct axis *a = &k->axes[p.axis[i]];
    struct axis copy = {.size = a->size,
                        .kind = is_expanded(a) ? AXIS_UPCAST : AXIS_REDUCE,
                        .vector = a->vector,
                        .fragment = a->fragment};
    from[nkept] = a->range, count_of[nkept] = a->size;
    if (a->vector) vector = nkept;
    to[nkept] = bound[nbound++] = copy.range = uop_range(g, a->range->src[0], number++, copy.kind);
    nkept++;
    k->axes[k->naxes++] = copy;
  }
  if (!nbound) return codegen_fail(k, "order: no reduce axis is listed");
  /* Positions follow the order of the list, except that the lanes of a vector are contiguous. */
  use = at = uop_index(g, 0);
  for (unsigned i = 0; i <= nkept; i++) {
    unsigned x = i == 0 ? vector : nkept - i;
    if (x == MAX_STAGED || (i && x == vector)) continue;
    struct uop *c = uop_index(g, stride);
    at = uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, to[x], c), at);
    use = uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, from[x], c), use);
    stride *= count_of[x];
  }

  size_t count;
  struct uop **order = uop_toposort(&k->ast, 1, &count), *old[MAX_ORDERED], *fresh[MAX_ORDERED];
  unsigned found = 0;
  for (size_t i = 0; order && i < count; i++) {
    struct uop *u = order[i], *src[MAX_AXES + 2];
    if (u->op != OP_REDUCE || !reduce_binds(u, bound[0])) continue;
    enum dtype t = sum_dtype(u->dtype);
    unsigned n = 1;
    src[0] = u->src[0]->dtype == t ? u->src[0] : uop_cast(g, u->src[0], t);
    if (u->src[0]->op == OP_MMA) { /* its sums have that type anyway */
      struct uop *mma = u->src[0];
      src[0] = uop_new(g, OP_MMA, t, 1, mma->arg, mma->aux, mma->src, mma->nsrc);
    }
    for (unsigned b = 1; b < u->nsrc; b++) {
      bool gone = false;
      for (unsigned j = 0; j < nbound; j++) gone = gone || bound[j] == u->src[b];
      if (!gone) src[n++] = u->src[b];
    }
    struct uop *value = n > 1 ? uop_new(g, OP_REDUCE, t, 1, u->arg, u->aux, src, n) : src[0];
    src[0] = uop_substitute(g, value, from, to, nkept), src[1] = at;
    memcpy(src + 2, bound, nbound * sizeof *src);
    struct uop *stage = uop_new(g, OP_STAGE, t, 1, (union uop_arg){.i = size}, u->aux, src, nbound + 2);
    struct uop *index = uop_new(g, OP_INDEX, t, 1, (union uop_arg){0}, 0, (struct uop *[]){stage, use}, 2);
    struct uop *load = uop_new(g, OP_LOAD, t, 1, (union uop_arg){0}, 0, &index, 1);
    old[found] = u, fresh[found++] = t == u->dtype ? load : uop_cast(g, load, u->dtype);
  }
  free(order);
  if (!found) return codegen_fail(k, "out of memory");
  k->ast = uop_substitute(g, k->ast, old, fresh, found);
  for (unsigned i = 0; i < p.n; i++) {
    struct axis *a = &k->axes[p.axis[i]];
    a->fragment = false;                                             /* the matrix instruction has the copy */
    if (p.reduced >> p.axis[i] & 1) a->name = (struct axis_name){0}; /* STAGEs bind it now: no step may take it */
  }
  return true;
}
