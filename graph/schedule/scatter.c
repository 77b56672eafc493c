/* Scheduling: the cost of writing values at indices becomes proportional to the number of values instead of the number
 * of positions times the number of values.
 *
 * The gradient of a lookup, a scatter and a histogram are reductions of WHERE(index = position, value, identity) over
 * the elements of the index: each position compares all of them. If that costs more, the reduction becomes one of
 * these:
 * - a SCATTER in order: memory filled with the identity element, and a kernel that walks along the index and combines
 * each value with the element at its index. One work-item walks for each element off the two axes;
 * - an atomic SCATTER: the same in any order, by atomic operations. The results of integers are exact. Those of floats
 * differ from run to run, so floats are combined like this only if the machine's model allows it;
 * - a SEGMENTS: the elements of the index are sorted, so that each position combines adjacent ones (segment.c).
 *
 * Except for atomic operations on floats, the values of a position are combined in the order of the index or in a fixed
 * tree, so the result is the same on every run. */
#include "../movement.h"
#include "scheduler.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  MOST_DEEP = 16,
  MOST_COST = 16, /* of what is computed where it is read */
  ATOMICS_PER_COPY = 1 << 13,
  ATOMIC_BYTES = 32 /* of memory traffic that an atomic operation costs */
};

/* How the reduction is computed: by comparing each position with all elements of the index, by walking along the index,
 * by atomic operations, or by sorting the index. */
enum way { COMPARE, WALK, ATOMIC, SORT, WAYS };
struct scattered {
  unsigned places, walked; /* axis of the positions, axis that is reduced */
  struct uop *index, *value, *none;
};

/* ---- detection ---- */

static struct uop *collapse_axis(struct graph *g, struct uop *u, unsigned axis, unsigned depth);

/* The same for a RESHAPE that keeps the axis. */
static struct uop *collapse_reshaped(struct graph *g, struct uop *u, unsigned axis, unsigned depth) {
  const struct shape *to = u->shape, *from = u->src[0]->shape;
  struct uop *dim[MAX_RANK];
  int64_t before = 1, size = to->dim[axis]->arg.i;
  if (shape_numel(to) <= 0 || size == 1) return NULL;
  for (unsigned i = 0; i < axis; i++) before *= to->dim[i]->arg.i;
  for (unsigned i = 0; i < from->rank; before /= from->dim[i++]->arg.i) {
    if (before == 1 && from->dim[i]->arg.i == size) {
      struct uop *x = collapse_axis(g, u->src[0], i, depth);
      memcpy(dim, to->dim, to->rank * sizeof *dim);
      dim[axis] = uop_index(g, 1);
      return x ? uop_movement(g, OP_RESHAPE, x, dim, to->rank) : NULL;
    }
    if (before % from->dim[i]->arg.i) return NULL;
  }
  return NULL;
}

/* u with size 1 along an axis that it does not depend on, or NULL if it may depend on it. */
static struct uop *collapse_axis(struct graph *g, struct uop *u, unsigned axis, unsigned depth) {
  if (!u->shape->rank) return u;
  if (u->op == OP_RESHAPE && depth) return collapse_reshaped(g, u, axis, depth - 1);
  if (u->op == OP_PERMUTE && depth) {
    struct uop *x = collapse_axis(g, u->src[0], (uint64_t)u->arg.i >> 4 * axis & 15, depth - 1);
    return x ? uop_new(g, OP_PERMUTE, x->dtype, 1, u->arg, 0, &x, 1) : NULL;
  }
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

/* The index, with size 1 along axes on which it does not depend. */
static struct uop *narrow_index(struct graph *g, const struct scattered *x) {
  struct uop *index = x->index, *narrow;
  for (unsigned i = 0; i < index->shape->rank; i++)
    if (i != x->walked && (narrow = collapse_axis(g, index, i, MOST_DEEP))) index = narrow;
  return index;
}

static bool is_identity(enum op op, const struct uop *none, const struct uop *value) {
  if (none->op != OP_CONST) return false;
  if (dtype_is_float(none->dtype))
    return op == OP_MAX ? none->arg.f == -INFINITY : none->arg.f == (op == OP_MUL) && !signbit(none->arg.f);
  if (op == OP_MAX) return none->arg.i <= uop_min(value);
  return none->arg.i == (op == OP_MUL);
}

/* A constant as a value of type t, or NULL if t does not hold it. */
static struct uop *constant_of_type(struct graph *g, const struct uop *x, enum dtype t) {
  if (!x || x->op != OP_CONST || dtype_is_float(x->dtype) != dtype_is_float(t)) return NULL;
  if (dtype_is_float(t)) return uop_const_float(g, t, x->arg.f);
  return dtype_holds(t, x->arg.i, x->arg.i) ? uop_const_int(g, t, x->arg.i) : NULL;
}

/* Whether u reduces, along one axis, values chosen where an index equals the position along another axis. Values of
 * small types may be converted before they are reduced. */
static bool read_scatter(struct graph *g, struct uop *u, struct scattered *out) {
  if (u->op != OP_REDUCE_AXIS || !u->arg.i || u->arg.i & (u->arg.i - 1)) return false;
  struct uop *x = u->src[0], *hit = x;
  const struct shape *shape = x->shape;
  out->walked = (unsigned)__builtin_ctzll((uint64_t)u->arg.i);
  out->value = out->none = NULL;
  if (x->op == OP_WHERE)
    hit = x->src[0], out->value = x->src[1], out->none = broadcast_scalar(x->src[2]);
  else if (x->op == OP_CAST && x->src[0]->op == OP_WHERE)
    hit = x->src[0]->src[0], out->value = uop_cast(g, x->src[0]->src[1], x->dtype),
    out->none = constant_of_type(g, broadcast_scalar(x->src[0]->src[2]), x->dtype);
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
    /* An index that is the same for all elements selects one position. */
    return out->index->shape->rank == shape->rank && !collapse_axis(g, out->index, out->walked, MOST_DEEP);
  }
  return false;
}

/* The type in which atomic operations combine values of type t. They have no smaller types. */
static enum dtype atomic_type(enum dtype t) {
  return dtype_info[t].size >= 4 ? t : dtype_is_float(t) ? DT_F32 : DT_I32;
}

/* Whether atomic operations of the machine combine values of type t by op. The results of floats depend on the order.
 */
static bool has_atomics(const struct schedule_machine *m, enum op op, enum dtype t) {
  if (dtype_is_float(t)) return m->atomics == ATOMICS_ANY && op == OP_ADD;
  return m->atomics && (op == OP_MAX || (op == OP_ADD && t != DT_BOOL));
}

/* The number of copies of the result that atomic operations write, because those at one address take place one after
 * the other, even if all elements of the index are equal. */
static int64_t copy_count(const struct schedule_machine *m, const struct uop *u, const struct scattered *x) {
  int64_t all = shape_numel(u->shape) * dtype_info[atomic_type(u->dtype)].size, copies = 1;
  while (copies * ATOMICS_PER_COPY < u->src[0]->shape->dim[x->walked]->arg.i &&
         4 * (double)(copies * all) / m->bytes_per_ns < m->launch_ns)
    copies *= 2;
  return u->shape->rank < MAX_RANK ? copies : 1;
}

static enum way cheapest(struct graph *g, const struct schedule_machine *m, const struct uop *u,
                         const struct scattered *x) {
  const struct shape *shape = u->src[0]->shape;
  int64_t all = shape_numel(shape), results = shape_numel(u->shape), size = dtype_info[u->dtype].size;
  if (all <= 0 || results <= 0) return COMPARE;
  double count = (double)shape->dim[x->walked]->arg.i,
         parallel = (double)results / (double)shape->dim[x->places]->arg.i;
  double groups = m->bytes_per_ns / 10 < (double)m->groups ? m->bytes_per_ns / 10 : (double)m->groups;
  double rounds = parallel / ((double)m->side * (groups < 1 ? 1 : groups));
  double clear = 2 * (double)results * (double)size / m->bytes_per_ns + 2 * m->launch_ns;
  double time[WAYS] = {
      [COMPARE] = (double)all / m->compares_per_ns,
      [WALK] = count * m->access_ns * (rounds < 1 ? 1 : rounds) + clear,
      [ATOMIC] = INFINITY,
      [SORT] = schedule_sort_ns(m, narrow_index(g, x)->shape, shape->dim[x->places]->arg.i, x->walked) +
               2 * (count * parallel + (double)results) * (double)size / m->bytes_per_ns + 3 * m->launch_ns,
  };
  if (has_atomics(m, (enum op)u->aux, u->dtype))
    time[ATOMIC] =
        ATOMIC_BYTES * count * parallel / m->bytes_per_ns + clear + (copy_count(m, u, x) > 1 ? 2 * m->launch_ns : 0);
  enum way best = COMPARE;
  for (enum way w = COMPARE; w < WAYS; w++)
    if (time[w] < time[best]) best = w;
  return best;
}

/* Writes element i to copy i % copies of the result: the positions of the copies follow each other. The new index has
 * size 1 along the same axes as the old one until it is expanded, so little memory holds it. */
static void spread_copies(struct graph *g, struct scattered *x, struct uop *places, int64_t copies) {
  struct uop *index = narrow_index(g, x), *n = index->shape->dim[x->walked];
  enum dtype t = dtype_holds(DT_I32, -1, copies * places->arg.i) ? DT_I32 : DT_I64;
  struct uop *at = uop_new(g, OP_IOTA, t, 1, (union uop_arg){0}, 0, &n, 1), *dim[MAX_RANK];
  for (unsigned i = 0; i < index->shape->rank; i++) dim[i] = i == x->walked ? n : uop_index(g, 1);
  at = uop_binary(g, OP_AND, at, uop_const_int(g, t, copies - 1));
  at = uop_binary(g, OP_MUL, at, uop_const_int(g, t, places->arg.i));
  at = expand_to(g, uop_movement(g, OP_RESHAPE, at, dim, index->shape->rank), index->shape);
  struct uop *inside = schedule_inside(g, index, places->arg.i);
  index = uop_where(g, inside, uop_binary(g, OP_ADD, uop_cast(g, index, t), at), uop_const_int(g, t, -1));
  x->index = expand_to(g, index, x->index->shape);
}

/* The combination of copies: x [.., copies * places, ..] becomes [.., places, ..]. */
static struct uop *combine_copies(struct graph *g, enum op op, struct uop *x, unsigned axis, struct uop *places,
                                  int64_t copies) {
  struct uop *dim[MAX_RANK];
  unsigned rank = x->shape->rank;
  memcpy(dim, x->shape->dim, rank * sizeof *dim);
  memmove(dim + axis + 1, dim + axis, (rank - axis) * sizeof *dim);
  dim[axis] = uop_index(g, copies), dim[axis + 1] = places;
  x = uop_movement(g, OP_RESHAPE, x, dim, rank + 1);
  x = uop_new(g, OP_REDUCE_AXIS, x->dtype, 1, (union uop_arg){.i = INT64_C(1) << axis}, op, &x, 1);
  memmove(dim + axis, dim + axis + 1, (rank - axis) * sizeof *dim);
  return uop_movement(g, OP_RESHAPE, x, dim, rank);
}

/* The SCATTER in any order. */
static struct uop *atomic_scatter(struct graph *g, const struct schedule_machine *m, const struct uop *u,
                                  struct scattered *x) {
  struct uop *places = u->shape->dim[x->places];
  enum dtype t = atomic_type(u->dtype);
  int64_t copies = copy_count(m, u, x);
  if (copies > 1) spread_copies(g, x, places, copies);
  struct uop *src[] = {uop_cast(g, x->value, t), x->index, uop_index(g, copies * places->arg.i),
                       uop_cast(g, x->none, t)};
  union uop_arg arg = {.i = x->places | x->walked << 4 | SCATTER_ATOMIC << 8};
  struct uop *result = uop_new(g, OP_SCATTER, t, 1, arg, u->aux, src, 4);
  if (copies > 1) result = combine_copies(g, (enum op)u->aux, result, x->places, places, copies);
  return uop_cast(g, result, u->dtype);
}

static struct uop *scatter_of(struct graph *g, const struct schedule_machine *m, const struct uop *u,
                              struct scattered *x, enum way way) {
  const struct shape *shape = x->index->shape;
  struct uop *places = u->shape->dim[x->places];
  if (!x->value->shape->rank || !shape_equal(x->value->shape, shape)) { /* a scalar */
    if (x->value->shape->rank) return NULL;
    struct uop *src[MAX_RANK + 1] = {x->value};
    for (unsigned i = 0; i < shape->rank; i++) src[i + 1] = uop_index(g, 1);
    src[0] = uop_new(g, OP_RESHAPE, u->dtype, 1, (union uop_arg){0}, 0, src, shape->rank + 1);
    for (unsigned i = 0; i < shape->rank; i++) src[i + 1] = shape->dim[i];
    x->value = uop_new(g, OP_EXPAND, u->dtype, 1, (union uop_arg){0}, 0, src, shape->rank + 1);
  }
  if (way == SORT) {
    struct uop *order, *keys = schedule_sort(g, m, narrow_index(g, x), places->arg.i, x->walked, &order);
    struct uop *src[] = {x->value, order, keys, places, x->none};
    return uop_new(g, OP_SEGMENTS, u->dtype, 1, (union uop_arg){.i = x->places | x->walked << 4}, u->aux, src, 5);
  }
  if (way == ATOMIC) return atomic_scatter(g, m, u, x);
  struct uop *src[] = {x->value, x->index, places, x->none};
  union uop_arg arg = {.i = x->places | x->walked << 4 | SCATTER_IN_ORDER << 8};
  return uop_new(g, OP_SCATTER, u->dtype, 1, arg, u->aux, src, 4);
}

bool schedule_make_scatters(struct scheduler *s, struct uop **roots, unsigned nroots) {
  struct graph *g = s->graph;
  size_t n = 0, room = graph_node_count(g), most = 1;
  struct uop **order = uop_toposort(roots, nroots, &n), **now = NULL, **src = NULL;
  uint8_t *found = calloc(room + 1, 1); /* enum way, by node id */
  uint16_t *device = order ? schedule_devices(s, order, n) : NULL;
  bool any = false, ok = device && found;
  struct scattered x;
  if (!ok) goto out;
  for (size_t i = 0; i < n; i++) {
    if (order[i]->nsrc > most) most = order[i]->nsrc;
    if (!read_scatter(g, order[i], &x)) continue;
    found[order[i]->id] = cheapest(g, schedule_machine_of(s, device[order[i]->id]), order[i], &x);
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
    const struct schedule_machine *m = schedule_machine_of(s, device[u->id]);
    struct uop *scatter = scatter_of(g, m, now[u->id], &x, found[u->id]);
    if (scatter) now[u->id] = scatter;
  }
  for (unsigned i = 0; i < nroots && ok; i++) roots[i] = now[roots[i]->id];
out:
  if (!ok) schedule_no_memory(s);
  free(order);
  free(found);
  free(device);
  free(now);
  free(src);
  return ok;
}

/* ---- the kernels: one clears the memory, one walks along the index ---- */

void schedule_scatter_inputs(struct scheduler *s, struct uop *u) {
  while (is_movement(u)) u = u->src[0];
  struct node *n = node_of(s, u);
  if (op_info[u->op].cls == OPCLASS_LEAF || u->op == OP_IOTA || in_memory(n)) return;
  if (is_alu(u) && n->cost <= MOST_COST) {
    for (unsigned i = 0; i < u->nsrc; i++) schedule_scatter_inputs(s, u->src[i]);
    return;
  }
  n->realized = true, n->why = SCHEDULE_SCATTERED;
}

static bool clears(const struct uop *u) { return u->arg.i >> 8 != SCATTER_PERMUTES; }

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
    schedule_scatter_inputs(s, n->u->src[i]);
    if (!i) p[0].use = schedule_start_piece(s, n, x, n->u->src[0]->shape), p[0].kernel = n->kernel;
    if (i && n->kernel) p[1].use = schedule_use_at(s, n, x, n->kernel->idx);
  }
  if (clears(n->u)) {
    schedule_start_piece(s, n, node_of(s, n->u->src[3]), n->u->shape);
    p[2].kernel = n->kernel;
  }
  n->kernel = NULL;
}

/* Fills the memory with the number of the SCATTER. */
static bool clear_memory(struct scheduler *s, struct node *n, struct uop *before) {
  struct planned_kernel *clear = n->kernel = n->piece[2].kernel;
  if (!clear) return false;
  struct uop *at = index_flatten(s->simplifier, n->u->shape, clear->idx);
  struct uop *index =
      uop_new(s->graph, OP_INDEX, n->u->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){before, at}, 2);
  return schedule_add_kernel(s, n, index, n->u->src[3]);
}

void schedule_scatter_values(struct scheduler *s, struct node *n) {
  struct graph *g = s->graph;
  struct uop *u = n->u, *before = NULL;
  if (n->numel == 0) return;
  struct uop *after = schedule_buffer(s, n);
  uint32_t version = schedule_version(s, after);
  struct planned_kernel *walk = n->piece[0].kernel;
  struct uop **to = schedule_index_array(s, u->shape->rank);
  if (!walk || !to || version == NO_UNIT) return;
  if (clears(u) && !clear_memory(s, n, before = s->version[version].previous)) return;
  unsigned places = u->arg.i & 15, walked = u->arg.i >> 4 & 15;
  enum scatter_order order = u->arg.i >> 8;
  n->kernel = walk;
  struct uop *value = schedule_value_at(s, node_of(s, u->src[0]), walk->idx, NULL, n->piece[0].use);
  struct uop *place = schedule_value_at(s, node_of(s, u->src[1]), walk->idx, NULL, n->piece[1].use), *valid;
  memcpy(to, walk->idx, u->shape->rank * sizeof *to);
  to[walked] = uop_index(g, 0);
  to[places] = schedule_bounded_index(s, place, u->src[2], &valid);
  struct uop *at = simplify_under(s->simplifier, index_flatten(s->simplifier, u->shape, to), valid);
  if (order == SCATTER_PERMUTES) valid = NULL;
  if (order == SCATTER_IN_ORDER) {
    struct uop *from[3] = {before, at, valid};
    struct uop *load[] = {uop_new(g, OP_INDEX, u->dtype, 1, (union uop_arg){0}, 0, from, valid ? 3 : 2),
                          schedule_zero(g, u->dtype)};
    struct uop *old = uop_new(g, OP_LOAD, u->dtype, 1, (union uop_arg){0}, 0, load, valid ? 2 : 1);
    value = uop_binary(g, (enum op)u->aux, old, value);
  }
  struct uop *src[3] = {after, at, valid};
  struct uop *index = uop_new(g, OP_INDEX, u->dtype, 1, (union uop_arg){0}, 0, src, valid ? 3 : 2);
  struct unit *unit = schedule_add_kernel(s, n, index, value);
  if (!unit) return;
  unit->scatters = true;
  if (order == SCATTER_ATOMIC) unit->store[0].combine = (enum op)u->aux;
  if (order == SCATTER_IN_ORDER && walk->idx[walked]->op == OP_RANGE) unit->ordered = walk->idx[walked];
}
