/* Scheduling, from the leaves to the roots: builds the value of every use. A value that is written to memory completes
 * a unit. */
#include "scheduler.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct uop *schedule_value_at(struct scheduler *s, struct node *x, struct uop *const *idx, struct uop *valid,
                              uint32_t use) {
  if (op_info[x->u->op].cls == OPCLASS_LEAF) return x->u;
  if (x->numel == 0) return schedule_zero(s->graph, x->u->dtype);
  if (in_memory(x)) return schedule_load(s, x, idx, valid);
  return s->use[use].value;
}

static struct uop *source_value(struct scheduler *s, struct uop *u, const struct use *w, unsigned k) {
  return schedule_value_at(s, node_of(s, u->src[k]), w->src_idx, w->src_valid, w->src_use[k]);
}

static struct uop *evaluate(struct scheduler *s, struct node *n, const struct use *w) {
  struct graph *g = s->graph;
  struct uop *u = n->u, *src[3] = {0};
  if (is_alu(u)) {
    for (unsigned k = 0; k < u->nsrc; k++) src[k] = source_value(s, u, w, k);
    return uop_with_src(g, u, src);
  }
  if (u->op == OP_IOTA) return uop_cast(g, w->idx[0], u->dtype);
  struct uop *x = source_value(s, u, w, 0);
  if (u->op == OP_REDUCE_AXIS) {
    if (node_of(s, u->src[0])->numel == 0) return uop_identity(g, u->aux, u->dtype);
    if (!w->nranges) return x;
    struct uop *all[2 * MAX_RANK + 1] = {x}, *both = NULL;
    unsigned inner = 0;
    if (u->aux == OP_ADD && (both = schedule_merged_sum(s, u, w, &inner, all + 1))) all[0] = both;
    memcpy(all + 1 + inner, w->range, w->nranges * sizeof *all);
    unsigned nsrc = 1;
    for (unsigned i = 1; i < inner + w->nranges + 1; i++) {
      struct uop *selected = schedule_selected(s, (enum op)u->aux, all[0], all[i]);
      if (selected)
        all[0] = selected;
      else
        all[nsrc++] = all[i];
    }
    return nsrc > 1 ? uop_new(g, OP_REDUCE, u->dtype, 1, (union uop_arg){0}, u->aux, all, nsrc) : all[0];
  }
  return schedule_masked(s, x, w->padded); /* movement and CONTIGUOUS */
}

/* ---- units ----------------------------------------------------------------------------------- */
struct unit *schedule_add_unit(struct scheduler *s) {
  struct unit *p = schedule_grow(s, s->unit, s->nunits, &s->units_capacity, sizeof *p);
  if (!p) return NULL;
  s->unit = p;
  return memset(&p[s->nunits++], 0, sizeof *p);
}

static bool push_node(struct scheduler *s, size_t *depth, struct uop *u) {
  if (s->mark[u->id] == s->walk) return true;
  s->mark[u->id] = s->walk;
  struct uop **p = schedule_grow(s, s->stack, *depth, &s->stack_capacity, sizeof *p);
  if (!p) return false;
  s->stack = p;
  p[(*depth)++] = u;
  return true;
}

/* Adds everything below the nodes on the stack from index `at` on. Nodes remain on the stack, which becomes the list of
 * visited nodes. */
static bool walk_down(struct scheduler *s, size_t at, size_t *depth) {
  for (; at < *depth; at++) {
    struct uop *v = s->stack[at];
    for (unsigned k = 0; k < v->nsrc; k++)
      if (!push_node(s, depth, v->src[k])) return false;
  }
  return true;
}

/* Begins a walk over the nodes that exist now. */
static bool begin_walk(struct scheduler *s) {
  size_t nodes = graph_node_count(s->graph);
  s->walk++;
  if (nodes <= s->nmarks) return true;
  uint32_t *p = realloc(s->mark, 2 * nodes * sizeof *p);
  if (!p) return schedule_no_memory(s), false;
  memset(p + s->nmarks, 0, (2 * nodes - s->nmarks) * sizeof *p);
  s->mark = p, s->nmarks = 2 * nodes;
  return true;
}

bool schedule_only_loads(struct scheduler *s, const struct unit *u) {
  size_t depth = 0;
  if (!begin_walk(s)) return false;
  for (unsigned i = 0; i < u->nstores; i++)
    if (!push_node(s, &depth, u->store[i].value)) return false;
  for (size_t at = 0; at < depth; at++) {
    struct uop *v = s->stack[at];
    if (v->op == OP_RANGE || v->op == OP_VAR) return false;
    for (unsigned k = 0; k < v->nsrc && v->op != OP_LOAD; k++)
      if (!push_node(s, &depth, v->src[k])) return false;
  }
  return true;
}

/* Whether u loads from memory, and not a value that an earlier phase passes on. */
static bool loads_memory(const struct uop *u) { return u->op == OP_LOAD && u->src[0]->src[0]->op != OP_LOCAL; }

bool schedule_scan(struct scheduler *s, struct unit *u) {
  size_t depth = 0, found = 0, reduces = 0;
  if (!begin_walk(s)) return false;
  for (unsigned i = 0; i < u->nstores + u->npassed; i++)
    if (!push_node(s, &depth, u->store[i].index) || !push_node(s, &depth, u->store[i].value)) return false;
  if (!walk_down(s, 0, &depth)) return false;
  for (size_t at = 0; at < depth; at++) found += loads_memory(s->stack[at]), reduces += s->stack[at]->op == OP_REDUCE;
  u->load = graph_alloc(s->graph, (found + reduces + 1) * sizeof(struct uop *));
  if (!u->load) return schedule_no_memory(s), false;
  u->reduce = u->load + found;
  u->nloads = u->ninner = u->nreduces = 0;
  u->variable = false, u->gathers = GATHERS_UNKNOWN;
  for (size_t at = 0; at < depth; at++) u->variable = u->variable || s->stack[at]->op == OP_VAR;
  for (size_t at = 0; at < depth; at++)
    if (s->stack[at]->op == OP_REDUCE) u->reduce[u->nreduces++] = s->stack[at];
  struct uop **load = graph_alloc(s->graph, (found + 1) * sizeof *load);
  if (!load) return schedule_no_memory(s), false;
  for (size_t at = 0; at < depth; at++)
    if (loads_memory(s->stack[at])) load[u->nloads++] = s->stack[at];
  if (u->nreduces) {
    s->walk++, depth = 0;
    for (unsigned i = 0; i < u->nreduces; i++)
      if (!push_node(s, &depth, u->reduce[i]->src[0])) return false;
    if (!walk_down(s, 0, &depth)) return false;
  }
  unsigned outer = 0;
  for (unsigned pass = 0; pass < 2; pass++)
    for (unsigned i = 0; i < u->nloads; i++) {
      bool inner = u->nreduces && s->mark[load[i]->id] == s->walk;
      if (inner != !pass) continue;
      u->load[outer++] = load[i];
      u->ninner += inner;
    }
  return true;
}

struct unit *schedule_add_kernel(struct scheduler *s, struct node *n, struct uop *index, struct uop *value) {
  struct planned_kernel *k = n->kernel;
  struct unit *u = schedule_add_unit(s);
  struct store *store = graph_alloc(s->graph, sizeof *store);
  if (!u || !store) {
    schedule_no_memory(s);
    return NULL;
  }
  *store = (struct store){index, simplify(s->simplifier, value), n->why};
  u->store = store, u->nstores = 1;
  u->device = n->device == NO_DEVICE ? 0 : n->device;
  u->nranges = k->nranges, u->serial = k->serial, u->depth = k->depth;
  u->contracts = k->contracts;
  memcpy(u->range, k->range, sizeof u->range);
  return schedule_scan(s, u) ? u : NULL;
}

static void finish_realized(struct scheduler *s, struct node *n) {
  struct planned_kernel *k = n->kernel;
  struct uop *b = schedule_buffer(s, n);
  if (n->numel == 0) return;
  struct uop *at = index_flatten(s->simplifier, n->u->shape, k->idx);
  struct uop *index = uop_new(s->graph, OP_INDEX, n->u->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){b, at}, 2);
  schedule_add_kernel(s, n, index, n->use == NO_USE ? n->u : s->use[n->use].value); /* no use: constant or variable */
}

static bool is_whole(struct scheduler *s, struct node *n) {
  int64_t all = schedule_buffer(s, n)->src[0]->arg.i;
  for (struct uop *v = n->u->src[1]; v->op != OP_BUFFER && v->op != OP_ASSIGN; v = v->src[0])
    if (v->op != OP_RESHAPE) return false;
  return node_of(s, n->u->src[1])->numel == all;
}

/* Writes the value directly into the view, unless the kernel reads elements that other work-items of it write. In that
 * case it writes to temporary memory, which a second kernel copies. */
static void finish_assign(struct scheduler *s, struct node *n) {
  struct graph *g = s->graph;
  struct planned_kernel *k = n->kernel;
  struct uop *value = schedule_value_at(s, node_of(s, n->u->src[2]), k->idx, NULL, k->value_use);
  struct uop *index = schedule_view(s, n->u, k->idx);
  if (!index) return;
  uint32_t v = schedule_version(s, index->src[0]);
  struct uop *before = v == NO_UNIT ? NULL : s->version[v].previous;
  struct unit *u = schedule_add_kernel(s, n, index, value);
  bool clash = false;
  for (unsigned i = 0; u && i < u->nloads; i++) {
    struct uop *from = u->load[i]->src[0];
    clash |= from->src[0] == before && from->src[1] != index->src[1];
  }
  if (!clash) return;
  const struct shape *shape = n->u->src[1]->shape;
  struct uop *flat = index_flatten(s->simplifier, shape, k->idx);
  struct uop *size = uop_index(g, node_of(s, n->u->src[1])->numel);
  if (size->arg.i < 0) {
    schedule_fail(s, -EINVAL,
                  "not supported: assigning a value of symbolic size that reads other elements of the same memory");
    return;
  }
  struct uop *b = uop_new(g, OP_BUFFER, n->u->dtype, 1, (union uop_arg){.i = (*s->next_buffer)++}, u->device, &size, 1);
  struct uop *temporary = uop_new(g, OP_INDEX, n->u->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){b, flat}, 2);
  u->store[0].index = temporary, u->store[0].why = SCHEDULE_OVERWRITTEN;
  if (!schedule_scan(s, u)) return;
  k->serial = 0;
  u = schedule_add_kernel(s, n, index, uop_new(g, OP_LOAD, n->u->dtype, 1, (union uop_arg){0}, 0, &temporary, 1));
  if (u) u->swaps = is_whole(s, n);
}

static void finish_copy(struct scheduler *s, struct node *n) {
  struct node *x = node_of(s, base_of(n->u->src[0]));
  struct uop *to = schedule_buffer(s, n);
  if (x->device == n->device || n->numel == 0) return;
  struct unit *u = schedule_add_unit(s);
  if (!u) return;
  u->device = n->device;
  u->copy_to = to, u->copy_from = schedule_buffer(s, x);
}

static void finish_exchange(struct scheduler *s, struct node *n) {
  struct uop *from = schedule_buffer(s, node_of(s, base_of(n->u->src[0]))), *to = schedule_buffer(s, n);
  if (n->numel == 0) return;
  for (unsigned end = 0; end < 2; end++) {
    struct unit *u = schedule_add_unit(s);
    if (!u) return;
    u->device = n->device == NO_DEVICE ? 0 : n->device;
    u->exchange = n->u;
    *(end ? &u->copy_to : &u->copy_from) = end ? to : from;
  }
}

void schedule_values(struct scheduler *s, struct node *n) {
  if (n->u->op == OP_COPY) finish_copy(s, n);
  if (n->u->op == OP_EXCHANGE) finish_exchange(s, n);
  if (n->u->op == OP_CUSTOM) schedule_custom(s, n);
  for (uint32_t w = n->use; w != NO_USE && !s->status; w = s->use[w].next) s->use[w].value = evaluate(s, n, &s->use[w]);
  void (*pieces)(struct scheduler *, struct node *) = n->u->op == OP_JOIN       ? schedule_join_values
                                                      : n->u->op == OP_SCATTER  ? schedule_scatter_values
                                                      : n->u->op == OP_SEGMENTS ? schedule_segment_values
                                                                                : NULL;
  if (pieces) {
    if (!s->status) pieces(s, n);
    return;
  }
  if (!n->kernel || s->status) return;
  if (n->u->op == OP_ASSIGN)
    finish_assign(s, n);
  else
    finish_realized(s, n);
}
