/* Scheduling: computes each of several concatenated tensors by a kernel of its own, which writes into its part of the
 * result's memory.
 *
 * Frontends write cat and stack, and gradients of slices add up to, expressions over the whole result: WHERE(index <
 * end of the first, PAD(first), WHERE(...)) or a tree of these, and ADD of PADs that do not overlap. Evaluated at every
 * element of the result, each of n tensors is evaluated n times too often. If that costs more than the launches, the
 * expression becomes a JOIN here. Two or three tensors (the halves of a rotation) remain an expression, unless all of
 * them have to be written to memory of their own that nothing else reads: they are then written to the result's memory
 * instead. */
#include "../movement.h"
#include "../rules.h"
#include "scheduler.h"
#include <stdlib.h>
#include <string.h>

enum { LEAST_PIECES = 4, MANY_PIECES = 32, MOST_READ = 1024, ACCESS_BYTES = 16 };

struct piece {
  struct uop *x; /* has the shape of the whole result; NULL: zeros */
  int64_t begin, end;
};
struct pending { /* an expression that is still to be read, up to the end of its elements */
  struct uop *u;
  int64_t end;
};
struct joining {
  struct scheduler *s;
  struct uop **order;
  size_t n;
  uint32_t *users;  /* by node id */
  uint16_t *device; /* by node id */
  uint8_t *is_part; /* by node id: the node belongs to the expression of a JOIN */
  uint32_t *inside; /* ids of the nodes in the expression that is being read */
  size_t ninside, inside_capacity;
  struct piece *piece;
  size_t npieces, capacity;
  struct pending *stack;
  size_t stack_capacity;
};

static bool add_piece(struct joining *j, struct uop *x, int64_t begin, int64_t end) {
  if (begin == end) return true;
  struct piece *p = schedule_grow(j->s, j->piece, j->npieces, &j->capacity, sizeof *p);
  if (!p) return false;
  j->piece = p;
  p[j->npieces++] = (struct piece){x, begin, end};
  return true;
}

static bool record_inside(struct joining *j, const struct uop *u) {
  uint32_t *p = schedule_grow(j->s, j->inside, j->ninside, &j->inside_capacity, sizeof *p);
  if (!p) return false;
  j->inside = p;
  p[j->ninside++] = u->id;
  return true;
}

/* ---- choices by index ---- */

/* If u is WHERE(index < end, x, rest), stores end and returns the axis of the index, otherwise returns -1. */
static int splits_along(const struct uop *u, int64_t *end) {
  if (u->op != OP_WHERE || u->src[0]->op != OP_CMPLT || !uop_is_const(u->src[0]->src[1])) return -1;
  *end = u->src[0]->src[1]->arg.i;
  return counts_along(u->src[0]->src[0]);
}

static bool push_node(struct joining *j, size_t *depth, struct uop *u, int64_t end) {
  struct pending *p = schedule_grow(j->s, j->stack, *depth, &j->stack_capacity, sizeof *p);
  if (!p) return false;
  j->stack = p;
  p[(*depth)++] = (struct pending){u, end};
  return true;
}

/* Reads a tree of choices from left to right: `begin` is where the next piece begins. */
static bool read_choices(struct joining *j, struct uop *u, int *axis) {
  int64_t end, begin = 0;
  size_t depth = 0;
  if ((*axis = splits_along(u, &end)) < 0 || !uop_is_const(u->shape->dim[*axis])) return false;
  if (!push_node(j, &depth, u, u->shape->dim[*axis]->arg.i)) return false;
  while (depth) {
    struct pending p = j->stack[--depth];
    bool splits = splits_along(p.u, &end) == *axis && end > begin && end <= p.end;
    if (splits && (p.u == u || j->users[p.u->id] == 1)) {
      if ((p.u != u && !record_inside(j, p.u)) || !push_node(j, &depth, p.u->src[2], p.end) ||
          !push_node(j, &depth, p.u->src[1], end))
        return false;
      continue;
    }
    if (!add_piece(j, p.u, begin, p.end)) return false;
    begin = p.end;
  }
  return true;
}

/* ---- sums of PADs that do not overlap ---- */

/* If u is a PAD of exactly one axis, returns that axis and stores the bounds of the padded tensor along it; otherwise
 * returns -1. */
static int pads_along(const struct uop *u, int64_t *begin, int64_t *end) {
  int axis = -1;
  if (u->op != OP_PAD) return -1;
  for (unsigned i = 0; i < u->shape->rank; i++) {
    const struct uop *before = u->src[1 + 2 * i], *after = u->src[2 + 2 * i], *dim = u->src[0]->shape->dim[i];
    if (!uop_is_const(before) || !uop_is_const(after)) return -1;
    if (!before->arg.i && !after->arg.i) continue;
    if (axis >= 0 || !uop_is_const(dim)) return -1;
    axis = (int)i, *begin = before->arg.i, *end = *begin + dim->arg.i;
  }
  return axis;
}

static int by_begin(const void *a, const void *b) {
  const struct piece *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

static bool read_sum(struct joining *j, struct uop *u, int *axis) {
  size_t depth = 0, first;
  int64_t begin, end, at = 0, size;
  *axis = -1;
  if (u->op != OP_ADD || !push_node(j, &depth, u, 0)) return false;
  while (depth) {
    struct uop *v = j->stack[--depth].u;
    if (v->op == OP_ADD && (v == u || j->users[v->id] == 1)) {
      if ((v != u && !record_inside(j, v)) || !push_node(j, &depth, v->src[0], 0) ||
          !push_node(j, &depth, v->src[1], 0))
        return false;
      continue;
    }
    int along = pads_along(v, &begin, &end);
    if (along < 0 || (*axis >= 0 && along != *axis)) return false;
    *axis = along;
    if (!add_piece(j, v, begin, end)) return false;
  }
  if (!j->npieces || !uop_is_const(u->shape->dim[*axis])) return false;
  qsort(j->piece, j->npieces, sizeof *j->piece, by_begin);
  size = u->shape->dim[*axis]->arg.i;
  first = j->npieces;
  for (size_t i = 0; i < first; i++) {
    if (j->piece[i].begin < at) return false;
    if (!add_piece(j, NULL, at, j->piece[i].begin)) return false;
    at = j->piece[i].end;
  }
  if (!add_piece(j, NULL, at, size)) return false;
  qsort(j->piece, j->npieces, sizeof *j->piece, by_begin);
  return true;
}

/* ---- the JOIN ---- */

/* The CONTIGUOUS whose elements are those of the piece, if nothing else uses it; otherwise NULL. */
static struct uop *only_written(const struct joining *j, struct uop *x) {
  while (x && (x->op == OP_PAD || x->op == OP_RESHAPE || x->op == OP_PERMUTE) && j->users[x->id] == 1) x = x->src[0];
  return x && x->op == OP_CONTIGUOUS && !x->arg.i && j->users[x->id] == 1 ? x : NULL;
}

/* Whether all pieces have to be written to memory anyway, and kernels can write them to their part of the result as
 * fast as to memory of their own: rows of the pieces begin at multiples of the widest access. */
static bool are_written(const struct joining *j, const struct uop *u, int axis) {
  int64_t row = dtype_info[u->dtype].size;
  for (unsigned i = (unsigned)axis + 1; i < u->shape->rank; i++) row *= u->shape->dim[i]->arg.i;
  for (size_t i = 0; i < j->npieces; i++)
    if (!only_written(j, j->piece[i].x) || j->piece[i].end * row % ACCESS_BYTES) return false;
  return true;
}

static bool is_profitable(const struct joining *j, const struct uop *u, int axis) {
  int64_t all = shape_numel(u->shape);
  if (all <= 0) return false;
  if (are_written(j, u, axis)) return true;
  if (j->npieces < LEAST_PIECES) return false;
  if (j->npieces > MANY_PIECES) return true;
  const struct schedule_machine *m = schedule_machine_of(j->s, j->device[u->id]);
  bool outer = true; /* pieces that are adjacent in memory become parts of one launch */
  for (int i = 0; i < axis; i++) outer &= uop_is_const(u->shape->dim[i]) && u->shape->dim[i]->arg.i == 1;
  double looks = (double)all * (double)(j->npieces - 2) * dtype_info[u->dtype].size;
  return looks / m->bytes_per_ns >= m->launch_ns * (outer ? 1 : (double)j->npieces);
}

static struct uop *build_join(const struct joining *j, const struct uop *u, int axis, struct uop *const *now) {
  struct graph *g = j->s->graph;
  struct uop **src = graph_alloc(g, j->npieces * sizeof *src);
  if (!src) return NULL;
  for (size_t i = 0; i < j->npieces; i++) {
    const struct piece *p = &j->piece[i];
    struct uop *x = p->x ? now[p->x->id] : schedule_zero(g, u->dtype), *bounds[2 * MAX_RANK + 1];
    const struct uop *written = p->x ? only_written(j, p->x) : NULL;
    if (written) x = uop_substitute(g, x, &now[written->id], now[written->id]->src, 1);
    bounds[0] = x->shape->rank ? x : uop_broadcast(g, x, u->shape);
    for (unsigned k = 0; k < u->shape->rank; k++) {
      bounds[1 + 2 * k] = uop_index(g, (int)k == axis ? p->begin : 0);
      bounds[2 + 2 * k] = (int)k == axis ? uop_index(g, p->end) : u->shape->dim[k];
    }
    src[i] = uop_new(g, OP_SHRINK, u->dtype, 1, (union uop_arg){0}, 0, bounds, 2 * u->shape->rank + 1);
    if (u->op == OP_ADD && p->x) src[i] = uop_binary(g, OP_ADD, src[i], schedule_zero(g, u->dtype)); /* -0 + 0 is 0 */
  }
  size_t n = j->npieces, groups = 0;
  for (size_t at = 0; n > UINT16_MAX && at < n;
       at += UINT16_MAX, groups++) { /* more than a node has: a JOIN of JOINs */
    unsigned more = n - at < UINT16_MAX ? (unsigned)(n - at) : UINT16_MAX;
    src[groups] = uop_new(g, OP_JOIN, u->dtype, 1, (union uop_arg){.i = axis}, 0, src + at, more);
  }
  return uop_new(g, OP_JOIN, u->dtype, 1, (union uop_arg){.i = axis}, 0, src, (unsigned)(groups ? groups : n));
}

/* Reads the expression of u into pieces. Returns false if a JOIN is not possible or would not be faster. */
static bool read_pieces(struct joining *j, struct uop *u, int *axis) {
  j->npieces = j->ninside = 0;
  bool chain = u->op == OP_WHERE ? read_choices(j, u, axis) : read_sum(j, u, axis);
  chain = chain && is_profitable(j, u, *axis);
  /* an expression that does not become a JOIN is read again from each node in it, unless it is long */
  for (size_t i = 0; (chain || j->ninside > MOST_READ) && i < j->ninside; i++) j->is_part[j->inside[i]] = 1;
  return chain;
}

/* Whether u may be the root of an expression that becomes a JOIN. */
static bool may_be_root(const struct uop *u) {
  int64_t a, b;
  if (u->op == OP_WHERE) return splits_along(u, &a) >= 0;
  return u->op == OP_ADD && u->shape && u->shape->rank &&
         (pads_along(u->src[1], &a, &b) >= 0 || pads_along(u->src[0], &a, &b) >= 0);
}

bool schedule_make_joins(struct scheduler *s, struct uop **roots, unsigned nroots) {
  struct graph *g = s->graph;
  struct joining j = {.s = s, .order = uop_toposort(roots, nroots, &j.n)};
  size_t room = graph_node_count(g), most = 1;
  struct uop **now = NULL, **src = NULL;
  uint8_t *begins = calloc(room + 1, 1);
  bool any = false, ok = false;
  j.users = calloc(room + 1, sizeof *j.users);
  j.is_part = calloc(room + 1, 1);
  j.device = j.order ? schedule_devices(s, j.order, j.n) : NULL;
  if (!j.device || !begins || !j.users || !j.is_part) goto out;
  for (size_t i = 0; i < j.n; i++) {
    if (j.order[i]->nsrc > most) most = j.order[i]->nsrc;
    for (unsigned k = 0; k < j.order[i]->nsrc; k++) j.users[j.order[i]->src[k]->id]++;
  }
  for (unsigned i = 0; i < nroots; i++) j.users[roots[i]->id]++;
  int axis;
  for (size_t i = j.n; i-- > 0;) { /* users first, to find an expression at its root */
    struct uop *u = j.order[i];
    if (!j.is_part[u->id] && may_be_root(u)) any |= begins[u->id] = read_pieces(&j, u, &axis);
  }
  if (s->status) goto out;
  if ((ok = !any)) goto out;
  now = calloc(room + 1, sizeof *now);
  src = calloc(most, sizeof *src);
  ok = now && src;
  for (size_t i = 0; i < j.n && ok; i++) {
    struct uop *u = j.order[i];
    bool same = true;
    for (unsigned k = 0; k < u->nsrc; k++) src[k] = now[u->src[k]->id], same &= src[k] == u->src[k];
    if (begins[u->id] && read_pieces(&j, u, &axis))
      now[u->id] = build_join(&j, u, axis, now);
    else
      now[u->id] = same ? u : uop_with_src(g, u, src);
    ok = now[u->id] != NULL;
  }
  for (unsigned i = 0; i < nroots && ok; i++) roots[i] = now[roots[i]->id];
  ok = ok && schedule_simplify(s, roots, nroots);
out:
  if (!ok) schedule_no_memory(s);
  free(j.order);
  free(j.users);
  free(j.device);
  free(j.is_part);
  free(j.piece);
  free(j.stack);
  free(j.inside);
  free(begins);
  free(now);
  free(src);
  return ok;
}

/* ---- its kernels ---- */

void schedule_join_uses(struct scheduler *s, struct node *n) {
  unsigned pieces = n->u->nsrc;
  n->why = SCHEDULE_JOINED;
  n->piece = graph_alloc(s->graph, pieces * sizeof *n->piece);
  if (!n->piece) schedule_no_memory(s);
  for (unsigned i = 0; i < pieces && !s->status; i++) {
    struct node *x = node_of(s, n->u->src[i]);
    if (x->device == NO_DEVICE) x->device = n->device;
    n->piece[i].use = schedule_start_piece(s, n, x, n->u->src[i]->shape);
    n->piece[i].kernel = n->kernel;
  }
  n->kernel = NULL;
}

void schedule_join_values(struct scheduler *s, struct node *n) {
  struct uop *b = schedule_buffer(s, n), *u = n->u;
  int64_t begin = 0;
  for (unsigned i = 0; i < u->nsrc && !s->status; i++) {
    struct planned_kernel *k = n->kernel = n->piece[i].kernel;
    const struct shape *shape = u->src[i]->shape;
    struct uop **idx = schedule_index_array(s, shape->rank);
    if (!k || !idx) return;
    memcpy(idx, k->idx, shape->rank * sizeof *idx);
    idx[u->arg.i] = index_binary(s->simplifier, OP_ADD, idx[u->arg.i], uop_index(s->graph, begin));
    struct uop *at = index_flatten(s->simplifier, u->shape, idx);
    struct uop *index = uop_new(s->graph, OP_INDEX, u->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){b, at}, 2);
    schedule_add_kernel(s, n, index, schedule_value_at(s, node_of(s, u->src[i]), k->idx, NULL, n->piece[i].use));
    begin += shape->dim[u->arg.i]->arg.i;
  }
}
