#include "sharder.h"
#include "../custom.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory that is freed with the sharder ---- */

enum { BLOCK = 1 << 16 };

struct memory_block {
  struct memory_block *next;
  size_t used, size;
  max_align_t data[];
};

static void *shard_alloc(struct sharder *s, size_t size) {
  struct memory_block *b = s->memory;
  size = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
  if (!b || b->size - b->used < size) {
    size_t most = size > BLOCK ? size : BLOCK;
    if (!(b = calloc(1, sizeof *b + most))) return NULL;
    *b = (struct memory_block){.next = s->memory, .size = most};
    s->memory = b;
  }
  b->used += size;
  return (char *)b->data + b->used - size;
}

struct sharder *sharder_new(struct graph *g, const struct binder *b,
                            const struct shard_group *(*group)(unsigned number), char *err, size_t errcap) {
  struct sharder *s = calloc(1, sizeof *s);
  if (s) *s = (struct sharder){.graph = g, .binder = b, .group = group, .err = err, .errcap = errcap};
  return s;
}

void sharder_free(struct sharder *s) {
  if (!s) return;
  for (struct memory_block *b = s->memory, *next; b; b = next) {
    next = b->next;
    free(b);
  }
  uop_map_free(&s->done);
  free(s->stack);
  free(s);
}

int sharder_status(const struct sharder *s) { return s->status; }

struct sharded *shard_fail(struct sharder *s, int status, const char *fmt, ...) {
  if (s->status) return NULL;
  va_list ap;
  va_start(ap, fmt);
  if (s->errcap) vsnprintf(s->err, s->errcap, fmt, ap);
  va_end(ap);
  s->status = status;
  return NULL;
}

struct sharded *shard_new(struct sharder *s, unsigned group, int axis, bool placed) {
  unsigned n = group == SHARD_ORDINARY ? 1 : s->group(group)->n;
  struct sharded *x = shard_alloc(s, sizeof *x);
  if (x) {
    *x = (struct sharded){.group = (uint8_t)group, .axis = axis, .placed = placed};
    x->part = shard_alloc(s, n * sizeof *x->part);
    x->bound = shard_alloc(s, (n + 1) * sizeof *x->bound);
  }
  return x && x->part && x->bound ? x : shard_fail(s, -ENOMEM, "out of memory for tensors on several devices");
}

struct uop *shard_node(struct sharder *s, struct uop *u, struct uop *const *src) {
  bool same = true;
  for (unsigned k = 0; k < u->nsrc; k++) same &= src[k] == u->src[k];
  return same ? u : uop_with_src(s->graph, u, src);
}

/* ---- a rule for each kind of node; x: its resolved sources ---- */

enum { MOST_RULE_SOURCES = 3 };

static struct sharded *keep_ordinary(struct sharder *s, struct uop *u, struct sharded *const *x, unsigned n) {
  struct sharded *y = shard_new(s, SHARD_ORDINARY, 0, u->op == OP_BUFFER || u->op == OP_COPY);
  struct uop *few[2 * MAX_RANK + 1];
  if (!y) return NULL;
  y->part[0] = u;
  for (unsigned k = 0; k < n; k++) y->placed |= x[k]->placed, y->changed |= x[k]->changed;
  if (!y->changed) return y;
  memcpy(few, u->src, u->nsrc * sizeof *few);
  for (unsigned k = 0; k < n; k++) few[k] = x[k]->part[0];
  y->part[0] = shard_node(s, u, few);
  return y;
}

/* Stores the group that the sources are on, SHARD_ORDINARY if all are constants. Returns false if the sources are
 * incompatible. */
static bool common_group(struct sharder *s, struct uop *u, struct sharded *const *x, unsigned n, unsigned *group) {
  *group = SHARD_ORDINARY;
  for (unsigned k = 0; k < n; k++)
    if (x[k]->group != SHARD_ORDINARY) {
      if (*group != SHARD_ORDINARY && *group != x[k]->group)
        return shard_fail(s, -EINVAL, "%s mixes tensors of two groups of devices; shard one like the other first",
                          op_info[u->op].name),
               false;
      *group = x[k]->group;
    }
  for (unsigned k = 0; k < n && *group != SHARD_ORDINARY; k++)
    if (x[k]->group == SHARD_ORDINARY && x[k]->placed)
      return shard_fail(s, -EINVAL,
                        "%s mixes a tensor on one device with one on several; shard it like the other first",
                        op_info[u->op].name),
             false;
  return true;
}

/* u part by part, with its sources changed to layout `layout`. */
static struct sharded *by_parts(struct sharder *s, struct uop *u, struct sharded **x, unsigned n,
                                const struct sharded *layout) {
  struct sharded *y = shard_like(s, layout, false);
  struct uop *src[2 * MAX_RANK + 1];
  if (!y) return NULL;
  for (unsigned k = 0; k < n; k++) {
    if (!(x[k] = shard_lay_out(s, x[k], layout))) return NULL;
    y->placed |= x[k]->placed;
  }
  memcpy(src, u->src, u->nsrc * sizeof *src);
  for (unsigned i = 0; i < shard_count(s, y); i++) {
    for (unsigned k = 0; k < n; k++) src[k] = x[k]->part[i];
    y->part[i] = shard_node(s, u, src);
  }
  return y;
}

/* All sources take the layout of the first one that is split. */
static struct sharded *elementwise(struct sharder *s, struct uop *u, struct sharded **x, unsigned n) {
  unsigned group;
  const struct sharded *layout = NULL;
  if (!common_group(s, u, x, n, &group)) return NULL;
  if (group == SHARD_ORDINARY) return keep_ordinary(s, u, x, n);
  for (unsigned k = 0; k < n && !layout; k++)
    if (shard_is_split(x[k])) layout = x[k];
  if (!layout) layout = shard_new(s, group, SHARD_REPLICATED, false);
  return layout ? by_parts(s, u, x, n, layout) : NULL;
}

static struct sharded *movement(struct sharder *s, struct uop *u, struct sharded **x, unsigned n) {
  return x[0]->group == SHARD_ORDINARY ? keep_ordinary(s, u, x, n) : shard_move(s, u, x[0], false);
}

static struct uop *combine_sum(struct graph *g, struct uop *a, struct uop *b) { return uop_binary(g, OP_ADD, a, b); }
static struct uop *combine_product(struct graph *g, struct uop *a, struct uop *b) {
  return uop_binary(g, OP_MUL, a, b);
}
static struct uop *combine_max(struct graph *g, struct uop *a, struct uop *b) { return uop_binary(g, OP_MAX, a, b); }

/* Each device reduces its part. If the split axis is reduced, the devices then all-reduce their results. */
static struct sharded *reduce(struct sharder *s, struct uop *u, struct sharded **x, unsigned n) {
  if (x[0]->group == SHARD_ORDINARY) return keep_ordinary(s, u, x, n);
  struct sharded *y = by_parts(s, u, x, n, x[0]), *all;
  if (!y || !shard_is_split(y) || !(u->arg.i >> y->axis & 1)) return y;
  const struct shard_group *group = s->group(y->group);
  if (!(all = shard_new(s, y->group, SHARD_REPLICATED, y->placed))) return NULL;
  peer_combine *combine = u->aux == OP_ADD ? combine_sum : u->aux == OP_MUL ? combine_product : combine_max;
  if (y->placed)
    peer_all_reduce(s->graph, combine, group->device, y->part, group->n, all->part);
  else
    for (unsigned i = 0; i < group->n; i++) /* of constants: each device computes all of it */
      for (unsigned k = 0; k < group->n; k++)
        all->part[i] = k ? combine(s->graph, all->part[i], y->part[k]) : y->part[0];
  return all;
}

/* Gathers from a table that is split along the gathered axis: each device contributes the elements that it has and 0
 * for the others. */
static struct sharded *gather_split(struct sharder *s, struct uop *u, struct sharded *table, struct sharded *index) {
  const struct shard_group *group = s->group(table->group);
  struct sharded *y = shard_new(s, table->group, SHARD_REPLICATED, true);
  struct uop *part[256];
  enum dtype t = dtype_info[u->src[1]->dtype].size < 4 || u->src[1]->dtype == DT_I32 ? DT_I32 : DT_I64;
  if (!y || !(index = shard_replicate(s, index, table->group))) return NULL;
  for (unsigned i = 0; i < group->n; i++) {
    struct uop *at = uop_cast(s->graph, index->part[i], t);
    at = uop_binary(s->graph, OP_SUB, at, uop_const_int(s->graph, t, table->bound[i]));
    part[i] = shard_node(s, u, (struct uop *[]){table->part[i], at});
  }
  peer_combine *combine = u->dtype == DT_BOOL ? combine_max : combine_sum;
  peer_all_reduce(s->graph, combine, group->device, part, group->n, y->part);
  return y;
}

static struct sharded *gather(struct sharder *s, struct uop *u, struct sharded **x, unsigned n) {
  unsigned group, axis = (unsigned)u->arg.i;
  struct sharded *table = x[0], *index = x[1];
  if (!common_group(s, u, x, n, &group)) return NULL;
  if (group == SHARD_ORDINARY) return keep_ordinary(s, u, x, n);
  if (shard_is_split(table) && table->axis == (int)axis) {
    if (!shard_is_split(index) && table->placed) return gather_split(s, u, table, index);
    if (!(table = shard_replicate(s, table, group))) return NULL;
  }
  if (shard_is_split(table)) return by_parts(s, u, (struct sharded *[]){table, index}, n, table);
  if (!shard_is_split(index) || index->axis != (int)axis) { /* the table is split like the index */
    if (!shard_is_split(index) && !(index = shard_replicate(s, index, group))) return NULL;
    return by_parts(s, u, (struct sharded *[]){table, index}, n, index);
  }
  if (!(table = shard_replicate(s, table, group))) return NULL;
  struct sharded *y = shard_like(s, index, table->placed || index->placed);
  for (unsigned i = 0; y && i < shard_count(s, y); i++)
    y->part[i] = shard_node(s, u, (struct uop *[]){table->part[i], index->part[i]});
  return y;
}

/* Part by part: the memory stays on its device, and the value is moved there. */
static struct sharded *assign(struct sharder *s, struct uop *u, struct sharded **x, unsigned n) {
  if (x[0]->group == SHARD_ORDINARY) {
    if (x[2]->group != SHARD_ORDINARY)
      return shard_fail(s, -EINVAL,
                        "ASSIGN of a tensor on several devices to a tensor on one device; move it with COPY first");
    return keep_ordinary(s, u, x, n);
  }
  struct uop *chain[64], *at = u->src[1];
  unsigned length = 0;
  for (; at != u->src[0] && at->op >= OP_RESHAPE && at->op <= OP_FLIP; at = at->src[0]) {
    if (length == sizeof chain / sizeof *chain)
      return shard_fail(s, -ENOTSUP, "not supported: assigning to a view of more than 64 steps");
    chain[length++] = at;
  }
  if (at != u->src[0]) return shard_fail(s, -EINVAL, "ASSIGN to a tensor that is not a view of its first source");
  struct sharded *view = x[0], *value, *y = shard_like(s, x[0], true);
  while (length && view) view = shard_move(s, chain[--length], view, true);
  if (!view || !y || !(value = shard_lay_out(s, x[2], view))) return NULL;
  for (unsigned i = 0; i < shard_count(s, y); i++)
    y->part[i] = shard_node(s, u, (struct uop *[]){x[0]->part[i], view->part[i], value->part[i]});
  return y;
}

/* Copies to a device or to a group. If the group has as many devices as x's, x keeps its split; otherwise it is
 * replicated. */
static struct sharded *copy(struct sharder *s, struct uop *u, struct sharded **x, unsigned n) {
  const struct shard_group *group = s->group(u->aux);
  if (!group) {
    if (x[0]->group == SHARD_ORDINARY) return keep_ordinary(s, u, x, n);
    struct sharded *y = shard_new(s, SHARD_ORDINARY, 0, true);
    struct uop *all = y ? shard_gather(s, x[0], u->aux) : NULL;
    if (!y) return NULL;
    y->changed = true;
    y->part[0] = x[0]->placed ? all : shard_node(s, u, &all);
    return y;
  }
  struct sharded *y = x[0];
  if (y->group != u->aux) {
    bool same = shard_is_split(y) && shard_count(s, y) == group->n;
    struct sharded *layout = same ? shard_like(s, y, true) : shard_new(s, u->aux, SHARD_REPLICATED, true);
    if (!layout) return NULL;
    layout->group = u->aux;
    if (y->placed && y->group != SHARD_ORDINARY) return shard_lay_out(s, y, layout);
    y = shard_lay_out(s, y, layout);
  } else if (y->placed)
    return y;
  struct sharded *placed = y ? shard_like(s, y, true) : NULL;
  for (unsigned i = 0; placed && i < group->n; i++)
    placed->part[i] = uop_new(s->graph, OP_COPY, u->dtype, 1, u->arg, group->device[i], &y->part[i], 1);
  return placed;
}

/* The first device exchanges with the other processes, then the other devices of the group copy its result. */
static struct sharded *exchange(struct sharder *s, struct uop *u, struct sharded **x, unsigned n) {
  if (x[0]->group == SHARD_ORDINARY) return keep_ordinary(s, u, x, n);
  const struct shard_group *group = s->group(x[0]->group);
  struct sharded *y = shard_new(s, x[0]->group, SHARD_REPLICATED, true);
  struct uop *src[MAX_RANK + 1];
  if (!y) return NULL;
  memcpy(src, u->src, u->nsrc * sizeof *src);
  src[0] = shard_gather(s, x[0], group->device[0]);
  struct uop *all = shard_node(s, u, src);
  for (unsigned i = 0; i < group->n; i++) y->part[i] = peer_copy(s->graph, all, group->device[0], group->device[i]);
  return y;
}

static struct sharded *shard(struct sharder *s, struct uop *u, struct sharded **x, unsigned n) {
  int axis = (int)u->arg.i;
  const struct shape *shape = u->shape;
  const struct shard_group *group = s->group(u->aux);
  if (!group) return shard_fail(s, -EINVAL, "SHARD over %u, which is not a group of devices", u->aux);
  if (axis >= 0 && (axis >= (int)shape->rank || !uop_is_const(shape->dim[axis])))
    return shard_fail(s, -ENOTSUP, "not supported: a tensor split along an axis of symbolic size");
  struct sharded *layout = shard_even(s, u->aux, axis, axis < 0 ? 0 : shape->dim[axis]->arg.i, x[0]->placed);
  if (!layout || x[0]->group != SHARD_ORDINARY) return layout ? shard_lay_out(s, x[0], layout) : NULL;
  for (unsigned i = 0; i < group->n; i++) {
    struct uop *mine = x[0]->part[0];
    if (axis >= 0) mine = peer_slice(s->graph, mine, (unsigned)axis, layout->bound[i], layout->bound[i + 1]);
    if (x[0]->placed) mine = uop_new(s->graph, OP_COPY, u->dtype, 1, (union uop_arg){0}, group->device[i], &mine, 1);
    layout->part[i] = mine;
  }
  return layout;
}

static struct sharded *contiguous(struct sharder *s, struct uop *u, struct sharded **x, unsigned n) {
  return x[0]->group == SHARD_ORDINARY ? keep_ordinary(s, u, x, n) : by_parts(s, u, x, n, x[0]);
}

static struct sharded *keep_leaf(struct sharder *s, struct uop *u, struct sharded **x, unsigned n) {
  return keep_ordinary(s, u, x, 0);
}

/* The parts of a MULTI are in memory already. */
static struct sharded *resolve_multi(struct sharder *s, struct uop *u) {
  const struct shard_group *group = s->group(u->aux);
  if (!group || group->n != u->nsrc) return shard_fail(s, -EINVAL, "MULTI of %u parts over group %u", u->nsrc, u->aux);
  struct sharded *y = shard_new(s, u->aux, (int)u->arg.i, true);
  for (unsigned i = 0; y && i < u->nsrc; i++) {
    y->part[i] = u->src[i];
    if (y->axis >= 0) y->bound[i + 1] = y->bound[i] + u->src[i]->shape->dim[y->axis]->arg.i;
  }
  return y;
}

/* A launch of a kernel that the user brings, on one device. */
static struct sharded *resolve_custom(struct sharder *s, struct uop *u) {
  struct sharded *y = shard_new(s, SHARD_ORDINARY, 0, true);
  struct uop **src = shard_alloc(s, u->nsrc * sizeof *src);
  if (!y || !src) return NULL;
  memcpy(src, u->src, u->nsrc * sizeof *src);
  for (unsigned k = 0; k < custom_inputs(u); k++) {
    const struct sharded *x = uop_map_get(&s->done, binder_resolve(s->binder, u->src[k]));
    if (x->group != SHARD_ORDINARY)
      return shard_fail(s, -ENOTSUP, "not supported: a kernel of your own on tensors over several devices");
    src[k] = x->part[0], y->changed |= x->changed;
  }
  y->part[0] = y->changed ? shard_node(s, u, src) : u;
  return y;
}

static const struct rule {
  struct sharded *(*apply)(struct sharder *s, struct uop *u, struct sharded **x, unsigned n);
  unsigned nsrc; /* number of sources that are tensors */
} rules[OP_COUNT] = {
    [OP_BUFFER] = {keep_leaf, 0},   [OP_IOTA] = {keep_leaf, 0},   [OP_RESHAPE] = {movement, 1},
    [OP_EXPAND] = {movement, 1},    [OP_PERMUTE] = {movement, 1}, [OP_PAD] = {movement, 1},
    [OP_SHRINK] = {movement, 1},    [OP_SHEAR] = {movement, 1},   [OP_FLIP] = {movement, 1},
    [OP_REDUCE_AXIS] = {reduce, 1}, [OP_GATHER] = {gather, 2},    [OP_ASSIGN] = {assign, 3},
    [OP_COPY] = {copy, 1},          [OP_SHARD] = {shard, 1},      [OP_CONTIGUOUS] = {contiguous, 1},
    [OP_EXCHANGE] = {exchange, 1},
};

/* ---- the walk ---- */

static unsigned tensor_sources(const struct uop *u) {
  enum op_class cls = op_info[u->op].cls;
  return cls == OPCLASS_ALU ? u->nsrc : cls == OPCLASS_TENSOR ? rules[u->op].nsrc : 0;
}

static struct sharded *resolve_node(struct sharder *s, struct uop *u) {
  enum op_class cls = op_info[u->op].cls;
  struct sharded *x[MOST_RULE_SOURCES];
  unsigned n = tensor_sources(u);
  if (u->op == OP_MULTI) return resolve_multi(s, u);
  if (u->op == OP_CUSTOM) return resolve_custom(s, u);
  if (n > MOST_RULE_SOURCES) return shard_fail(s, -EINVAL, "%s of %u sources", op_info[u->op].name, n);
  if (!u->shape) return shard_fail(s, -EINVAL, "%s of shapes that do not match", op_info[u->op].name);
  for (unsigned k = 0; k < n; k++) x[k] = uop_map_get(&s->done, binder_resolve(s->binder, u->src[k]));
  if (cls == OPCLASS_ALU) return elementwise(s, u, x, n);
  if (cls == OPCLASS_LEAF) return keep_leaf(s, u, x, 0);
  if (!rules[u->op].apply) return shard_fail(s, -EINVAL, "%s is not a tensor", op_info[u->op].name);
  return rules[u->op].apply(s, u, x, n);
}

static bool push_frame(struct sharder *s, size_t depth, struct uop *u) {
  if (depth == s->capacity) {
    size_t more = s->capacity ? 2 * s->capacity : 64;
    struct walk_frame *p = realloc(s->stack, more * sizeof *p);
    if (!p) return shard_fail(s, -ENOMEM, "out of memory for tensors on several devices"), false;
    s->stack = p, s->capacity = more;
  }
  s->stack[depth] = (struct walk_frame){u, 0};
  return true;
}

const struct sharded *sharder_resolve(struct sharder *s, struct uop *root) {
  size_t depth = 0;
  root = binder_resolve(s->binder, root);
  if (uop_map_get(&s->done, root)) return uop_map_get(&s->done, root);
  if (!push_frame(s, depth++, root)) return NULL;
  while (depth && !s->status) {
    struct walk_frame *f = &s->stack[depth - 1];
    struct uop *u = f->u, *enter = NULL;
    while (f->next < tensor_sources(u) && !enter) {
      enter = binder_resolve(s->binder, u->src[f->next++]);
      if (uop_map_get(&s->done, enter)) enter = NULL;
    }
    if (enter) {
      push_frame(s, depth++, enter);
      continue;
    }
    struct sharded *x = resolve_node(s, u);
    if (!x && !s->status) shard_fail(s, -EINVAL, "%s cannot be shared by devices", op_info[u->op].name);
    if (x && graph_error(s->graph)) shard_fail(s, -ENOMEM, "%s", graph_error(s->graph));
    if (x && !uop_map_put(&s->done, u, x)) shard_fail(s, -ENOMEM, "out of memory for tensors on several devices");
    depth--;
  }
  return s->status ? NULL : uop_map_get(&s->done, root);
}
