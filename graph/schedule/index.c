/* Scheduling: the location of an element in memory. Builds loads, the indices of GATHERs and the views of ASSIGNs. */
#include "scheduler.h"
#include <errno.h>

enum { EXPENSIVE_PLACE = 32 };

struct uop *schedule_zero(struct graph *g, enum dtype t) {
  return dtype_is_float(t) ? uop_const_float(g, t, 0) : uop_const_int(g, t, 0);
}

struct uop **schedule_index_array(struct scheduler *s, unsigned rank) {
  struct uop **p = graph_alloc(s->graph, (rank + 1) * sizeof *p);
  if (!p) schedule_no_memory(s);
  return p;
}

/* The number of elements for the largest values of the variables in a shape. */
static int64_t most_elements(struct scheduler *s, const struct shape *shape) {
  int64_t n = 1;
  for (unsigned i = 0; i < shape->rank; i++)
    if (uop_max(shape->dim[i]) < 0 || __builtin_mul_overflow(n, uop_max(shape->dim[i]), &n)) {
      schedule_fail(s, -EOVERFLOW, "a value is larger than any memory");
      return 0;
    }
  return n;
}

/* A new BUFFER for n. */
static struct uop *new_buffer(struct scheduler *s, struct node *n) {
  int64_t size = n->numel < 0 ? most_elements(s, n->u->shape) : n->numel;
  return uop_new(s->graph, OP_BUFFER, n->u->dtype, 1, (union uop_arg){.i = (*s->next_buffer)++},
                 n->device == NO_DEVICE ? 0 : n->device, (struct uop *[]){uop_index(s->graph, size)}, 1);
}

struct uop *schedule_next_version(struct scheduler *s, struct uop *before) {
  uint32_t old = schedule_version(s, before);
  if (old == NO_UNIT) return before;
  struct uop *size = before->src[0], *real = s->version[old].real;
  struct uop *b = uop_new(s->graph, OP_BUFFER, real->dtype, 1, (union uop_arg){.i = -(int64_t)s->nversions - 1},
                          real->aux, &size, 1);
  uint32_t v = schedule_version(s, b);
  if (v == NO_UNIT) return before;
  s->version[v].real = real, s->version[v].previous = before;
  return b;
}

/* The memory of an ASSIGN or SCATTER after it is written: a new version of its previous contents. */
static struct uop *new_version(struct scheduler *s, struct node *n) {
  bool fresh = n->u->op == OP_SCATTER;
  if (fresh && n->u->arg.i >> 8 == SCATTER_PERMUTES) return new_buffer(s, n);
  struct uop *before = fresh ? new_buffer(s, n) : schedule_buffer(s, node_of(s, base_of(n->u->src[0])));
  if (n->numel == 0 || (!fresh && node_of(s, n->u->src[2])->numel == 0)) return before;
  return schedule_next_version(s, before);
}

struct uop *schedule_buffer(struct scheduler *s, struct node *n) {
  if (n->buffer) return n->buffer;
  if (n->u->op == OP_COPY) {
    struct node *x = node_of(s, base_of(n->u->src[0]));
    if (x->device == n->device) return n->buffer = schedule_buffer(s, x);
  }
  return n->buffer = (n->u->op == OP_ASSIGN || n->u->op == OP_SCATTER ? new_version : new_buffer)(s, n);
}

struct uop *schedule_load(struct scheduler *s, struct node *n, struct uop *const *idx, struct uop *valid) {
  struct graph *g = s->graph;
  struct uop *at = n->u->op == OP_BUFFER ? idx[0] : index_flatten(s->simplifier, n->u->shape, idx);
  struct uop *src[3] = {schedule_buffer(s, n), simplify_under(s->simplifier, at, valid), valid};
  enum dtype t = n->u->dtype;
  struct uop *index = uop_new(g, OP_INDEX, t, 1, (union uop_arg){0}, 0, src, valid ? 3 : 2);
  return uop_new(g, OP_LOAD, t, 1, (union uop_arg){0}, 0, (struct uop *[]){index, schedule_zero(g, t)}, valid ? 2 : 1);
}

/* ---- GATHER ---------------------------------------------------------------------------------- */
/* Converts v to an index. Arithmetic that cannot overflow its type becomes DT_INDEX arithmetic, about which the rules
 * know more. */
static struct uop *to_index(struct scheduler *s, struct uop *v) {
  struct graph *g = s->graph;
  if (v->dtype == DT_INDEX) return v;
  if (v->op == OP_CONST && !dtype_is_float(v->dtype)) return uop_index(g, v->arg.i);
  if (v->op == OP_CAST && v->src[0]->dtype == DT_INDEX && dtype_holds(v->dtype, uop_min(v->src[0]), uop_max(v->src[0])))
    return v->src[0];
  if (v->op == OP_ADD || v->op == OP_SUB || v->op == OP_MUL) {
    struct uop *a = to_index(s, v->src[0]), *b = to_index(s, v->src[1]), *c = index_binary(s->simplifier, v->op, a, b);
    if (dtype_holds(v->dtype, uop_min(c), uop_max(c))) return c;
  }
  return uop_cast(g, v, DT_INDEX);
}

static struct uop *tensor_value(struct scheduler *s, struct planned_kernel *k, struct node *n, struct uop *const *idx,
                                struct uop *valid);

struct uop *schedule_bounded_index(struct scheduler *s, struct uop *value, struct uop *n, struct uop **valid) {
  struct graph *g = s->graph;
  struct uop *at = to_index(s, value);
  struct uop *inside = index_and(s->simplifier, index_binary(s->simplifier, OP_CMPLT, uop_index(g, -1), at),
                                 index_binary(s->simplifier, OP_CMPLT, at, n));
  *valid = uop_is_const(inside) && inside->arg.i ? NULL : inside;
  /* In range the value fits 32 bits; out of range nothing is read. */
  if ((uop_min(at) < INT32_MIN || uop_max(at) > INT32_MAX) && uop_max(n) <= INT32_MAX)
    at = uop_cast(g, uop_cast(g, value, DT_I32), DT_INDEX);
  return at;
}

bool schedule_gather(struct scheduler *s, struct planned_kernel *k, struct uop *u, struct uop *const *idx,
                     struct uop **out, struct uop **valid, struct uop **padded) {
  struct node *index = node_of(s, u->src[1]);
  if (index->device == NO_DEVICE) index->device = node_of(s, u)->device;
  struct uop *value = tensor_value(s, k, index, idx, *valid), *dim = u->src[0]->shape->dim[u->arg.i];
  if (!value) return false;
  for (unsigned i = 0; i < u->src[0]->shape->rank; i++) out[i] = idx[i];
  out[u->arg.i] = schedule_bounded_index(s, value, dim, padded);
  *valid = index_and(s->simplifier, *valid, *padded);
  return true;
}

/* Builds the element of n at idx as an expression over loads. n is part of the index of a GATHER in kernel k, which the
 * scheduler needs before it reaches the source of that GATHER. Reduces and expensive values are realized. A chain of
 * GATHERs whose indices are GATHERs would double in size with each link; its cost doubles too, so links of the chain
 * are realized. Returns NULL when out of memory. */
static struct uop *tensor_value(struct scheduler *s, struct planned_kernel *k, struct node *n, struct uop *const *idx,
                                struct uop *valid) {
  struct graph *g = s->graph;
  struct uop *u = n->u;
  if (op_info[u->op].cls == OPCLASS_LEAF) return u;
  if (n->numel == 0) return schedule_zero(g, u->dtype);
  if (u->op == OP_IOTA) return simplify(s->simplifier, uop_cast(g, idx[0], u->dtype));
  bool expensive = (is_alu(u) || u->op == OP_GATHER) && n->cost > EXPENSIVE_PLACE;
  if (!in_memory(n) && (u->op == OP_REDUCE_AXIS || expensive)) n->realized = true, n->why = SCHEDULE_INDEX;
  if (in_memory(n)) {
    schedule_add_input(s, k, n);
    return schedule_load(s, n, idx, valid);
  }
  struct uop *src[3] = {0};
  if (is_alu(u)) {
    for (unsigned i = 0; i < u->nsrc; i++) {
      src[i] = i && u->src[i] == u->src[0] ? src[0] : tensor_value(s, k, node_of(s, u->src[i]), idx, valid);
      if (!src[i]) return NULL;
    }
    return simplify(s->simplifier, uop_with_src(g, u, src));
  }
  struct node *x = node_of(s, u->src[0]);
  if (x->device == NO_DEVICE) x->device = n->device;
  schedule_realize_source(s, n);
  if (u->op == OP_CONTIGUOUS) return tensor_value(s, k, x, idx, valid);
  struct uop **from = schedule_index_array(s, u->src[0]->shape->rank), *padded = NULL;
  if (!from) return NULL;
  if (x->numel != 0) {
    if (u->op != OP_GATHER)
      index_movement(s->simplifier, u, idx, from, &valid, &padded);
    else if (!schedule_gather(s, k, u, idx, from, &valid, &padded))
      return NULL;
  }
  struct uop *v = tensor_value(s, k, x, from, valid);
  return v && padded ? simplify(s->simplifier, uop_where(g, padded, v, schedule_zero(g, u->dtype))) : v;
}

/* ---- ASSIGN ---------------------------------------------------------------------------------- */
struct uop *schedule_view(struct scheduler *s, struct uop *u, struct uop *const *idx) {
  struct uop *v = u->src[1], *x = u->src[0], *memory = base_of(x), *valid = NULL, *padded;
  for (; v != x && v != memory; v = v->src[0]) {
    struct uop **from = schedule_index_array(s, v->src[0]->shape->rank);
    if (!from) return NULL;
    if (v->op == OP_EXPAND && !shape_equal(v->shape, v->src[0]->shape)) {
      schedule_fail(s, -EINVAL, "not supported: assigning to a view that repeats elements");
      return NULL;
    }
    index_movement(s->simplifier, v, idx, from, &valid, &padded);
    idx = from;
  }
  struct uop *at = v->op == OP_BUFFER ? idx[0] : index_flatten(s->simplifier, v->shape, idx);
  struct uop *src[3] = {schedule_buffer(s, node_of(s, u)), simplify_under(s->simplifier, at, valid), valid};
  return uop_new(s->graph, OP_INDEX, u->dtype, 1, (union uop_arg){0}, 0, src, valid ? 3 : 2);
}

bool linear_add(struct linear *l, struct uop *u, int64_t factor) {
  switch (u->op) {
  case OP_CONST: l->constant += factor * u->arg.i; return true;
  case OP_ADD: return linear_add(l, u->src[0], factor) && linear_add(l, u->src[1], factor);
  case OP_NEG: return linear_add(l, u->src[0], -factor);
  case OP_MUL: return u->src[1]->op == OP_CONST && linear_add(l, u->src[0], factor * u->src[1]->arg.i);
  case OP_RANGE:
    for (unsigned i = 0; i < l->n; i++)
      if (l->range[i] == u) return false;
    if (l->n == MAX_RANK * 2) return false;
    l->range[l->n] = u, l->distance[l->n++] = factor;
    return true;
  default: return false;
  }
}

int64_t schedule_distance(struct uop *index, const struct uop *range) {
  struct linear l = {.n = 0};
  if (!linear_add(&l, index, 1)) return 0;
  for (unsigned i = 0; i < l.n; i++)
    if (l.range[i] == range) return l.distance[i];
  return 0;
}
