/* Scheduling: the cost of writing values at indices becomes proportional to the number of values instead of the number
 * of positions times the number of values.
 *
 * The gradient of a lookup, a scatter and a histogram are reductions of WHERE(index = position, value, identity) over
 * the elements of the index: each position compares all of them. If that costs more, the reduction becomes a SCATTER
 * here: memory filled with the identity element, and a kernel that walks along the index in order and combines each
 * value with the element at its index. One work-item walks for each element off the two axes. The values are combined
 * in the order of the index, so the result is the same on every run.
 *
 * Where each step of the walk waits long for memory, the values of equal indices are combined first, each with all
 * others in parallel. The result is written at the first of these indices only, so the walk needs no order. */
#include "../movement.h"
#include "scheduler.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COMPARE_COST = 4, MOST_DEEP = 16 };

/* How the reduction is computed: by comparing each position with all elements of the index, by walking along the index,
 * or by walking along an index without equal elements. */
enum way { COMPARE, WALK, COMBINE };
struct scattered {
  unsigned places, walked; /* axis of the positions, axis that is reduced */
  struct uop *index, *value, *none;
};

/* ---- detection ---- */

/* u with size 1 along an axis that it does not depend on, or NULL if it may depend on it. */
static struct uop *collapse_axis(struct graph *g, struct uop *u, unsigned axis, unsigned depth) {
  if (!u->shape->rank) return u;
  if (u->op == OP_EXPAND) {
    struct uop *src[MAX_RANK + 1], *x = u->src[0];
    if (!uop_is_const(x->shape->dim[axis]) || x->shape->dim[axis]->arg.i != 1) return NULL;
    memcpy(src, u->src, u->nsrc * sizeof *src);
    src[1 + axis] = uop_index(g, 1);
    u = uop_with_src(g, u, src);
    return shape_equal(u->shape, x->shape) ? x : u;
  }
  if (!is_alu(u) || !depth) return NULL;
  struct uop *src[3];
  for (unsigned i = 0; i < u->nsrc; i++)
    if (!(src[i] = collapse_axis(g, u->src[i], axis, depth - 1))) return NULL;
  return uop_with_src(g, u, src);
}

static bool is_identity(enum op op, const struct uop *none, const struct uop *value) {
  if (none->op != OP_CONST) return false;
  if (dtype_is_float(none->dtype))
    return op == OP_MAX ? none->arg.f == -INFINITY : none->arg.f == (op == OP_MUL) && !signbit(none->arg.f);
  if (op == OP_MAX) return none->arg.i <= uop_min(value);
  return none->arg.i == (op == OP_MUL);
}

/* Whether u reduces, along one axis, values chosen where an index equals the position along another axis. */
static bool read_scatter(struct graph *g, struct uop *u, struct scattered *out) {
  if (u->op != OP_REDUCE_AXIS || !u->arg.i || u->arg.i & (u->arg.i - 1)) return false;
  struct uop *x = u->src[0], *hit = x;
  const struct shape *shape = x->shape;
  out->walked = (unsigned)__builtin_ctzll((uint64_t)u->arg.i);
  out->value = out->none = NULL;
  if (x->op == OP_WHERE)
    hit = x->src[0], out->value = x->src[1], out->none = broadcast_scalar(x->src[2]);
  else if (x->op == OP_CAST && x->src[0]->dtype == DT_BOOL)
    hit = x->src[0], out->value = uop_const_int(g, x->dtype, 1), out->none = uop_const_int(g, x->dtype, 0);
  else if (x->dtype == DT_BOOL)
    out->value = uop_const_int(g, DT_BOOL, 1), out->none = uop_const_int(g, DT_BOOL, 0);
  if (hit->op != OP_CMPEQ || !out->none || !is_identity((enum op)u->aux, out->none, out->value)) return false;
  for (unsigned k = 0; k < 2; k++) {
    int axis = counts_along(hit->src[k]);
    if (axis < 0 || axis == (int)out->walked || !shape_equal(hit->shape, shape)) continue;
    out->places = (unsigned)axis;
    out->index = collapse_axis(g, hit->src[!k], out->places, MOST_DEEP);
    if (!out->index || !(out->value = collapse_axis(g, out->value, out->places, MOST_DEEP))) return false;
    return out->index->shape->rank == shape->rank;
  }
  return false;
}

static enum way cheapest(const struct schedule_machine *m, const struct uop *u, const struct scattered *x) {
  const struct shape *shape = u->src[0]->shape;
  int64_t all = shape_numel(shape), results = shape_numel(u->shape), size = dtype_info[u->dtype].size;
  if (all <= 0 || results <= 0) return COMPARE;
  double count = (double)shape->dim[x->walked]->arg.i,
         parallel = (double)results / (double)shape->dim[x->places]->arg.i;
  double groups = m->bytes_per_ns / 10 < (double)m->groups ? m->bytes_per_ns / 10 : (double)m->groups;
  double rounds = parallel / ((double)m->side * (groups < 1 ? 1 : groups));
  double walk = count * m->access_ns * (rounds < 1 ? 1 : rounds);
  double clear = 2 * (double)results * (double)size / m->bytes_per_ns + 2 * m->launch_ns;
  /* Twice as many comparisons: whether an element is the first of its equals is a reduction, too. */
  double combine = 2 * COMPARE_COST * count * count * parallel / m->flops_per_ns + 2 * m->launch_ns + m->access_ns;
  double best = combine < walk ? combine : walk;
  if (COMPARE_COST * (double)all / m->flops_per_ns <= best + clear) return COMPARE;
  return combine < walk ? COMBINE : WALK;
}

/* u with `n` elements along both axes of x. */
static struct uop *expand_axes(struct graph *g, const struct scattered *x, struct uop *u, struct uop *n) {
  struct uop *dim[MAX_RANK];
  memcpy(dim, u->shape->dim, u->shape->rank * sizeof *dim);
  dim[x->places] = dim[x->walked] = n;
  return uop_movement(g, OP_EXPAND, u, dim, u->shape->rank);
}

/* Counts along one axis of a tensor of the same rank as u, whose other axes have size 1. */
static struct uop *counter(struct graph *g, const struct uop *u, unsigned axis, struct uop *n) {
  struct uop *dim[MAX_RANK], *count = uop_new(g, OP_IOTA, DT_I64, 1, (union uop_arg){0}, 0, &n, 1);
  for (unsigned i = 0; i < u->shape->rank; i++) dim[i] = i == axis ? n : uop_index(g, 1);
  return uop_movement(g, OP_RESHAPE, count, dim, u->shape->rank);
}

/* Where element i of the index, along `walked`, equals element j, along `places`. */
static struct uop *equal_elements(struct graph *g, const struct scattered *x, struct uop *index, struct uop *n) {
  struct uop *other = schedule_exchange_axes(g, index, x->places, x->walked);
  return uop_binary(g, OP_CMPEQ, expand_axes(g, x, index, n), expand_axes(g, x, other, n));
}

static struct uop *reduce_walked(struct graph *g, const struct scattered *x, enum op op, struct uop *u) {
  union uop_arg axes = {.i = INT64_C(1) << x->walked};
  struct uop *sums = uop_new(g, OP_REDUCE_AXIS, u->dtype, 1, axes, op, &u, 1);
  return schedule_exchange_axes(g, sums, x->places, x->walked);
}

/* Combines the values of equal indices. All but the first of these indices become -1, so nothing is written there. */
static void combine_equal(struct graph *g, enum op op, struct scattered *x) {
  const struct shape *shape = x->index->shape;
  struct uop *index = x->index, *n = shape->dim[x->walked], *narrow;
  if (dtype_info[index->dtype].cls != 'i') index = uop_cast(g, index, DT_I64);
  struct uop *values = uop_where(g, equal_elements(g, x, index, n), expand_axes(g, x, x->value, n), x->none);
  x->value = reduce_walked(g, x, op, values);
  for (unsigned i = 0; i < shape->rank; i++) /* the index may be the same along other axes */
    if (i != x->places && i != x->walked && (narrow = collapse_axis(g, index, i, MOST_DEEP))) index = narrow;
  struct uop *before = uop_binary(g, OP_CMPLT, expand_axes(g, x, counter(g, index, x->walked, n), n),
                                  expand_axes(g, x, counter(g, index, x->places, n), n));
  struct uop *equal = equal_elements(g, x, index, n);
  struct uop *again = reduce_walked(g, x, OP_MAX, uop_binary(g, OP_AND, equal, expand_to(g, before, equal->shape)));
  index = uop_where(g, again, uop_const_int(g, index->dtype, -1), index);
  x->index = shape_equal(index->shape, shape) ? index : expand_to(g, index, shape);
}

static struct uop *scatter_of(struct graph *g, const struct uop *u, struct scattered *x, enum way way) {
  const struct shape *shape = x->index->shape;
  if (!x->value->shape->rank || !shape_equal(x->value->shape, shape)) { /* a scalar */
    if (x->value->shape->rank) return NULL;
    struct uop *src[MAX_RANK + 1] = {x->value};
    for (unsigned i = 0; i < shape->rank; i++) src[i + 1] = uop_index(g, 1);
    src[0] = uop_new(g, OP_RESHAPE, u->dtype, 1, (union uop_arg){0}, 0, src, shape->rank + 1);
    for (unsigned i = 0; i < shape->rank; i++) src[i + 1] = shape->dim[i];
    x->value = uop_new(g, OP_EXPAND, u->dtype, 1, (union uop_arg){0}, 0, src, shape->rank + 1);
  }
  if (way == COMBINE) combine_equal(g, (enum op)u->aux, x);
  struct uop *src[] = {x->value, x->index, u->shape->dim[x->places], x->none};
  union uop_arg arg = {.i = x->places | x->walked << 4 | (way == COMBINE) << 8};
  return uop_new(g, OP_SCATTER, u->dtype, 1, arg, u->aux, src, 4);
}

bool schedule_make_scatters(struct scheduler *s, struct uop **roots, unsigned nroots) {
  struct graph *g = s->graph;
  size_t n = 0, room = graph_node_count(g), most = 1;
  struct uop **order = uop_toposort(roots, nroots, &n), **now = NULL, **src = NULL;
  uint8_t *found = calloc(room + 1, 1); /* enum way, by node id */
  bool any = false, ok = order && found;
  struct scattered x;
  if (!ok) goto out;
  for (size_t i = 0; i < n; i++) {
    if (order[i]->nsrc > most) most = order[i]->nsrc;
    if (!read_scatter(g, order[i], &x)) continue;
    found[order[i]->id] = cheapest(schedule_machine_of(s, schedule_device_under(x.index)), order[i], &x);
    any |= found[order[i]->id] != COMPARE;
  }
  if (!any) goto out;
  now = calloc(room + 1, sizeof *now);
  src = calloc(most, sizeof *src);
  ok = now && src;
  for (size_t i = 0; i < n && ok; i++) {
    struct uop *u = order[i];
    bool same = true;
    for (unsigned k = 0; k < u->nsrc; k++) src[k] = now[u->src[k]->id], same &= src[k] == u->src[k];
    now[u->id] = same ? u : uop_with_src(g, u, src);
    if (!found[u->id] || !read_scatter(g, now[u->id], &x)) continue;
    struct uop *scatter = scatter_of(g, now[u->id], &x, found[u->id]);
    if (scatter) now[u->id] = scatter;
  }
  for (unsigned i = 0; i < nroots && ok; i++) roots[i] = now[roots[i]->id];
out:
  if (!ok) schedule_no_memory(s);
  free(order);
  free(found);
  free(now);
  free(src);
  return ok;
}

/* ---- the kernels: one clears the memory, one walks along the index ---- */

/* Realizes what the walk reads, except for a few cheap operations. */
static void realize_inputs(struct scheduler *s, struct uop *u) {
  while (is_movement(u)) u = u->src[0];
  struct node *n = node_of(s, u);
  if (op_info[u->op].cls == OPCLASS_LEAF || u->op == OP_IOTA || in_memory(n)) return;
  if (is_alu(u) && n->cost <= COMPARE_COST) {
    for (unsigned i = 0; i < u->nsrc; i++) realize_inputs(s, u->src[i]);
    return;
  }
  n->realized = true, n->why = SCHEDULE_SCATTERED;
}

void schedule_scatter_uses(struct scheduler *s, struct node *n) {
  n->why = SCHEDULE_SCATTERED;
  if (n->numel == 0) return;
  struct planned_piece *p = n->piece = graph_alloc(s->graph, 3 * sizeof *p);
  if (!p) {
    schedule_no_memory(s);
    return;
  }
  for (unsigned i = 0; i < 2; i++) {
    struct node *x = node_of(s, n->u->src[i]);
    if (x->device == NO_DEVICE) x->device = n->device;
    realize_inputs(s, n->u->src[i]);
    if (!i) p[0].use = schedule_start_piece(s, n, x, n->u->src[0]->shape), p[0].kernel = n->kernel;
    if (i && n->kernel) p[1].use = schedule_also_use(s, n, x);
  }
  schedule_start_piece(s, n, node_of(s, n->u->src[3]), n->u->shape);
  p[2].kernel = n->kernel;
  n->kernel = NULL;
}

void schedule_scatter_values(struct scheduler *s, struct node *n) {
  struct graph *g = s->graph;
  struct uop *u = n->u;
  if (n->numel == 0) return;
  struct uop *after = schedule_buffer(s, n);
  uint32_t version = schedule_version(s, after);
  struct planned_kernel *walk = n->piece[0].kernel, *clear = n->kernel = n->piece[2].kernel;
  struct uop **to = schedule_index_array(s, u->shape->rank);
  if (!walk || !clear || !to || version == NO_UNIT) return;
  struct uop *before = s->version[version].previous, *at = index_flatten(s->simplifier, u->shape, clear->idx);
  struct uop *index = uop_new(g, OP_INDEX, u->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){before, at}, 2);
  if (!schedule_add_kernel(s, n, index, u->src[3])) return;
  unsigned places = u->arg.i & 15, walked = u->arg.i >> 4 & 15;
  n->kernel = walk;
  struct uop *value = schedule_value_at(s, node_of(s, u->src[0]), walk->idx, NULL, n->piece[0].use);
  struct uop *place = schedule_value_at(s, node_of(s, u->src[1]), walk->idx, NULL, n->piece[1].use), *valid;
  memcpy(to, walk->idx, u->shape->rank * sizeof *to);
  to[walked] = uop_index(g, 0);
  to[places] = schedule_bounded_index(s, place, u->src[2], &valid);
  at = simplify_under(s->simplifier, index_flatten(s->simplifier, u->shape, to), valid);
  struct uop *src[3] = {before, at, valid};
  index = uop_new(g, OP_INDEX, u->dtype, 1, (union uop_arg){0}, 0, src, valid ? 3 : 2);
  struct uop *load[] = {index, schedule_zero(g, u->dtype)};
  struct uop *old = uop_new(g, OP_LOAD, u->dtype, 1, (union uop_arg){0}, 0, load, valid ? 2 : 1);
  src[0] = after;
  index = uop_new(g, OP_INDEX, u->dtype, 1, (union uop_arg){0}, 0, src, valid ? 3 : 2);
  struct unit *unit = schedule_add_kernel(s, n, index, uop_binary(g, (enum op)u->aux, old, value));
  bool in_order = !(u->arg.i >> 8);
  if (unit) unit->scatters = true;
  if (unit && in_order && walk->idx[walked]->op == OP_RANGE) unit->ordered = walk->idx[walked];
}
