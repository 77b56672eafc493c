/* Scheduling: the loops of a kernel. There is one for each axis of its result, or several where a RESHAPE merges axes
 * of a contraction: the results of a grouped convolution have one axis of channels, but its sum has one of groups and
 * one of the channels of a group. With loops over both, the addresses of the sum's operands have no quotients, so the
 * compiler computes it in tiles, also if elementwise operations on the merged axis follow. */
#include "scheduler.h"
#include <string.h>

enum { MOST_STEPS = 64 };

/* From the kernel's value to the contraction in the same kernel, if there is one: the movement in between, and the sum
 * that is merged with it (sum.c). */
struct path {
  struct uop *step[MOST_STEPS];
  unsigned n, visited;
  bool sums;   /* a sum is on it; below it, there is only movement */
  bool merges; /* a RESHAPE on it may merge axes */
};

static bool has_one_position(const struct uop *length) { return uop_is_const(length) && length->arg.i <= 1; }

/* Whether a RESHAPE adds or removes axes of more than one element. */
static bool changes_axes(const struct uop *u) {
  const struct shape *a = u->shape, *b = u->src[0]->shape;
  for (unsigned i = 0, k = 0;; i++, k++) {
    while (i < a->rank && has_one_position(a->dim[i])) i++;
    while (k < b->rank && has_one_position(b->dim[k])) k++;
    if (i == a->rank || k == b->rank) return i < a->rank || k < b->rank;
    if (a->dim[i] != b->dim[k]) return true;
  }
}

/* Finds the path from u. Values that other operations than elementwise ones use are written to memory, and so are
 * those that are repeated. */
static bool find_path(struct scheduler *s, struct uop *u, bool is_root, struct path *p) {
  bool sum = u->op == OP_REDUCE_AXIS && u->aux == OP_ADD;
  if (!is_root && node_of(s, u)->realized) return false;
  if (sum && schedule_is_contraction(u)) return true;
  if (++p->visited > MOST_STEPS) return false;
  if ((is_movement(u) && u->op != OP_EXPAND) || (sum && !p->sums)) {
    bool summed = p->sums, merged = p->merges;
    p->sums = p->sums || sum;
    p->merges = p->merges || (u->op == OP_RESHAPE && changes_axes(u));
    p->step[p->n++] = u;
    if (find_path(s, u->src[0], false, p)) return true;
    p->n--, p->sums = summed, p->merges = merged;
    return false;
  }
  if (!is_alu(u) || p->sums || (!is_root && node_of(s, u)->branches)) return false;
  for (unsigned i = 0; i < u->nsrc; i++)
    if (find_path(s, u->src[i], false, p)) return true;
  return false;
}

enum { DEEP = 4 };

/* Whether an index contains the remainder of the loop's position. */
static bool has_remainder(struct uop *const *at, unsigned n, unsigned depth, const struct uop *loop, int64_t by) {
  for (unsigned i = 0; i < n; i++) {
    const struct uop *u = at[i];
    if (u->op == OP_MOD && u->src[0] == loop && uop_is_const(u->src[1]) && u->src[1]->arg.i == by) return true;
    if (depth < DEEP && u->op != OP_RANGE && has_remainder(u->src, u->nsrc, depth + 1, loop, by)) return true;
  }
  return false;
}

/* Finds a loop and a divisor of its length whose quotient is in u and whose remainder is in an index. */
static bool find_quotient(struct uop *const *at, unsigned n, const struct uop *u, unsigned depth,
                          const struct uop **loop, int64_t *by) {
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): every axis has an index
  const struct uop *x = u->op == OP_IDIV ? u->src[0] : NULL;
  if (x && x->op == OP_RANGE && x->aux == AXIS_LOOP && uop_is_const(u->src[1]) && uop_is_const(x->src[0])) {
    *loop = x, *by = u->src[1]->arg.i;
    if (x->src[0]->arg.i % *by == 0 && has_remainder(at, n, 0, x, *by)) return true;
  }
  for (unsigned i = 0; i < u->nsrc && depth < DEEP && u->op != OP_RANGE; i++)
    if (find_quotient(at, n, u->src[i], depth + 1, loop, by)) return true;
  return false;
}

bool schedule_find_merged(struct uop *const *at, unsigned n, const struct uop **loop, int64_t *by) {
  for (unsigned i = 0; i < n; i++)
    if (find_quotient(at, n, at[i], 0, loop, by)) return true;
  return false;
}

/* Finds a loop whose positions the contraction at the end of the path divides. */
static bool find_merged(struct scheduler *s, const struct path *p, const struct planned_kernel *k,
                        const struct uop **loop, int64_t *by) {
  struct uop *in[MAX_RANK], *at[MAX_RANK], *valid = NULL, *padded;
  const struct shape *shape = p->step[0]->shape;
  memcpy(at, k->idx, shape->rank * sizeof *at);
  int64_t next = k->next_axis;
  for (unsigned i = 0; i < p->n; i++) {
    struct uop *u = p->step[i];
    shape = u->src[0]->shape;
    memcpy(in, at, u->shape->rank * sizeof *in);
    if (u->op != OP_REDUCE_AXIS) {
      if (!index_movement(s->simplifier, u, in, at, &valid, &padded)) return false;
      continue;
    }
    for (unsigned a = 0; a < shape->rank; a++)
      if (u->arg.i >> a & 1) at[a] = uop_range(s->graph, shape->dim[a], next++, AXIS_REDUCE);
  }
  return schedule_find_merged(at, shape->rank, loop, by);
}

/* The loops of a kernel, outermost first: the axis that a loop is a part of, its length and its position. */
struct loops {
  unsigned axis[MAX_RANK], n;
  struct uop *length[MAX_RANK], *position[MAX_RANK];
};

static void make_ranges(struct scheduler *s, struct planned_kernel *k, unsigned rank, struct loops *l) {
  struct graph *g = s->graph;
  struct uop *zero = uop_index(g, 0);
  k->nranges = 0, k->next_axis = 0;
  for (unsigned i = 0; i < rank; i++) k->idx[i] = zero;
  for (unsigned i = 0; i < l->n; i++) {
    struct uop *length = l->length[i], **idx = &k->idx[l->axis[i]], *at = zero;
    if (!has_one_position(length)) at = k->range[k->nranges++] = uop_range(g, length, k->next_axis++, AXIS_LOOP);
    l->position[i] = at;
    if (*idx != zero) at = index_binary(s->simplifier, OP_ADD, index_binary(s->simplifier, OP_MUL, *idx, length), at);
    *idx = at;
  }
}

/* Divides loop i into two, the inner one of length `by`. */
static void divide(struct graph *g, struct loops *l, unsigned i, int64_t by) {
  memmove(&l->axis[i + 1], &l->axis[i], (l->n - i) * sizeof *l->axis);
  memmove(&l->length[i + 1], &l->length[i], (l->n - i) * sizeof *l->length);
  l->n++;
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): each loop has a length
  l->length[i] = uop_index(g, l->length[i]->arg.i / by), l->length[i + 1] = uop_index(g, by);
}

void schedule_make_loops(struct scheduler *s, struct planned_kernel *k, const struct shape *shape, struct uop *value) {
  struct loops l = {.n = shape->rank};
  struct path p = {.n = 0};
  const struct uop *loop;
  int64_t by;
  for (unsigned i = 0; i < shape->rank; i++) l.axis[i] = i, l.length[i] = simplify(s->simplifier, shape->dim[i]);
  make_ranges(s, k, shape->rank, &l);
  if (!value || !find_path(s, value, true, &p) || !p.merges) return;
  while (l.n < MAX_RANK && find_merged(s, &p, k, &loop, &by)) {
    unsigned i = 0;
    while (l.position[i] != loop) i++;
    divide(s->graph, &l, i, by);
    make_ranges(s, k, shape->rank, &l);
  }
}
