/* Scheduling: which values are written to memory, and the kernel that computes each.
 *
 * Walking from the roots to the leaves, every node collects its uses: (kernel, index, valid) says that this kernel
 * evaluates the node at that index, an expression over the kernel's ranges. What a use means for the sources follows from
 * the op: elementwise passes it on, movement rewrites the index (index.c), a reduce adds ranges. A node is realized
 * (computed by a kernel of its own, its uses become loads) when
 *   - it is a root, or the source of a CONTIGUOUS or of a COPY (what RESHAPE does is looked through);
 *   - it carries a reduce - it is one, or is elementwise over one of the same size off which nothing else branches - and is
 *     used by more than one kernel, or at more than one index, or inside another reduce, or in a kernel that already holds
 *     a reduce of other axes, or along an expanded axis, which would repeat it. One repetition is allowed: along ranges
 *     that are exactly what the reduce consumed. That kernel computes the reduce once a row and walks the row again
 *     (softmax), unless rows are few and huge (SERIAL_ROWS, SERIAL_LENGTH), which would leave the machine idle;
 *   - it is elementwise and evaluating it again at each use is dear: (uses - 1) * cost > RECOMPUTE, or it costs more than
 *     REPEATED and is repeated inside a reduce. Cost counts elementwise ops back to what is in memory, TRANSCENDENTAL each
 *     for exp2, log2, sin, sqrt and divisions.
 * Then walking from the leaves to the roots, every use is given its value; at a realized node that completes a kernel. */
#include "schedule.h"
#include "index.h"
#include "internal.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
  SERIAL_ROWS = 64,
  SERIAL_LENGTH = 1 << 20,
  RECOMPUTE = 32,
  REPEATED = 8,
  TRANSCENDENTAL = 4,
  MAX_USES = RECOMPUTE + 2,
  NO_DEVICE = 256
};

struct planned_kernel {
  struct uop *root, *out; /* tensor node, its BUFFER */
  struct uop **idx;       /* the output index */
  struct uop *range[MAX_RANK];
  unsigned nranges;
  int64_t next_axis;
  struct node *reduce; /* the reduce fused first */
  unsigned serial;     /* bit mask of ranges that are AXIS_SERIAL */
};

struct use {
  struct planned_kernel *kernel;
  struct uop **idx;
  struct uop *valid; /* NULL: always */
  bool in_reduce, expanded;
  struct uop **src_idx; /* the use this makes of each source */
  struct uop *src_valid, *padded;
  uint32_t src_use[3];
  struct uop **range; /* REDUCE_AXIS: its ranges */
  unsigned nranges;
  struct uop *value;
  uint32_t next;
};
enum { NO_USE = UINT32_MAX };

struct node {
  struct uop *u;
  uint32_t use, nuses; /* list of uses, newest first */
  uint32_t cost, device;
  struct node *reduce; /* the reduce it carries */
  bool branches;       /* something other than elementwise ops and movement that keeps the size uses it, too */
  bool realized;
  struct planned_kernel *kernel; /* its own, when realized by one */
  struct uop *buffer;            /* where its value is, when in memory */
  int64_t numel;
};

struct scheduler {
  struct graph *graph;
  struct simplifier *simplifier;
  struct uop_map node_of;
  struct node *node;
  size_t nnodes;
  struct use *use;
  size_t nuses, uses_capacity;
  int64_t *next_buffer;
  struct schedule *out;
  size_t items_capacity;
  char *err;
  size_t errcap;
  int status;
};

__attribute__((format(printf, 3, 4))) static int fail(struct scheduler *s, int status, const char *fmt, ...) {
  if (s->status) return s->status;
  va_list ap;
  va_start(ap, fmt);
  if (s->errcap) vsnprintf(s->err, s->errcap, fmt, ap);
  va_end(ap);
  return s->status = status;
}
static int no_memory(struct scheduler *s) { return fail(s, -ENOMEM, "out of memory while scheduling"); }

static struct node *node_of(struct scheduler *s, struct uop *u) { return uop_map_get(&s->node_of, u); }
static bool is_movement(const struct uop *u) { return u->op >= OP_RESHAPE && u->op <= OP_FLIP; }
static bool is_alu(const struct uop *u) { return op_info[u->op].cls == OPCLASS_ALU; }
static bool in_memory(const struct node *n) { return n->realized || n->u->op == OP_BUFFER || n->u->op == OP_COPY; }

/* What memory holds the value of u, apart from its shape. */
static struct uop *base(struct uop *u) {
  while (u->op == OP_RESHAPE || u->op == OP_CONTIGUOUS) u = u->src[0];
  return u;
}

static bool keeps_size(const struct uop *u) {
  return is_alu(u) || u->op == OP_RESHAPE || u->op == OP_PERMUTE || u->op == OP_FLIP || u->op == OP_CONTIGUOUS;
}

static unsigned nsources(const struct uop *u) {
  if (is_alu(u)) return u->nsrc;
  return u->op == OP_GATHER ? 2 : u->op == OP_BUFFER || u->op == OP_IOTA || op_info[u->op].cls == OPCLASS_LEAF ? 0 : 1;
}

static uint32_t op_cost(const struct uop *u) {
  switch (u->op) {
  case OP_RECIP:
  case OP_SQRT:
  case OP_EXP2:
  case OP_LOG2:
  case OP_SIN:
  case OP_FDIV:
  case OP_IDIV:
  case OP_MOD: return TRANSCENDENTAL;
  default: return 1;
  }
}

/* ---- facts that flow from the leaves: cost, the reduce carried, device ----------------------------------------------------------- */
static int analyse(struct scheduler *s, struct node *n) {
  struct uop *u = n->u;
  n->use = NO_USE;
  n->device = NO_DEVICE;
  n->numel = shape_numel(u->shape);
  if (u->op == OP_ASSIGN || u->op == OP_BIND)
    return fail(s, -EINVAL, "not supported: scheduling %s", op_info[u->op].name);
  if (u->op == OP_SINK) return fail(s, -EINVAL, "SINK is not a tensor; schedule its sources as roots");
  if (u->op == OP_BUFFER) n->device = u->aux, n->buffer = uop_import(s->graph, u);
  for (unsigned i = 0; i < nsources(u); i++) {
    struct node *x = node_of(s, u->src[i]);
    if (x->device == NO_DEVICE) continue;
    if (n->device != NO_DEVICE && n->device != x->device)
      return fail(s, -EINVAL, "%s mixes device slots %u and %u; copy one operand to the other's device first",
                  op_info[u->op].name, n->device, x->device);
    n->device = x->device;
  }
  if (u->op == OP_COPY) n->device = u->aux;
  if (u->op == OP_REDUCE_AXIS) {
    n->reduce = n;
  } else if (keeps_size(u)) {
    uint64_t cost = is_alu(u) ? op_cost(u) : 0;
    for (unsigned i = 0; i < nsources(u); i++) {
      struct node *x = node_of(s, u->src[i]);
      cost += x->cost;
      if (!n->reduce && !x->branches) n->reduce = x->reduce;
    }
    n->cost = cost > 1u << 30 ? 1u << 30 : (uint32_t)cost;
  } else if (is_movement(u))
    n->cost = node_of(s, u->src[0])->cost;
  else if (u->op == OP_GATHER) {
    uint64_t cost = 1 + (uint64_t)node_of(s, u->src[0])->cost + node_of(s, u->src[1])->cost;
    n->cost = cost > 1u << 30 ? 1u << 30 : (uint32_t)cost;
  }
  return 0;
}

/* ---- memory and indices --------------------------------------------------------------------------------------------------------------- */
static struct uop *zero_of(struct graph *g, enum dtype t) {
  return dtype_is_float(t) ? uop_const_float(g, t, 0) : uop_const_int(g, t, 0);
}

static struct uop **index_array(struct scheduler *s, unsigned rank) {
  struct uop **p = graph_alloc(s->graph, (rank + 1) * sizeof *p);
  if (!p) no_memory(s);
  return p;
}

/* The BUFFER of a value that is in memory; a copy to where it is already is no copy. */
static struct uop *buffer_of(struct scheduler *s, struct node *n) {
  if (n->buffer) return n->buffer;
  if (n->u->op == OP_COPY) {
    struct node *x = node_of(s, base(n->u->src[0]));
    if (x->device == n->device) return n->buffer = buffer_of(s, x);
  }
  return n->buffer =
             uop_new(s->graph, OP_BUFFER, n->u->dtype, 1, (union uop_arg){.i = (*s->next_buffer)++},
                     n->device == NO_DEVICE ? 0 : n->device, (struct uop *[]){uop_index(s->graph, n->numel)}, 1);
}

/* The element of n, which is in memory, at an index. */
static struct uop *load(struct scheduler *s, struct node *n, struct uop *const *idx, struct uop *valid) {
  struct graph *g = s->graph;
  struct uop *at = n->u->op == OP_BUFFER ? idx[0] : index_flatten(s->simplifier, n->u->shape, idx);
  struct uop *src[3] = {buffer_of(s, n), simplify_under(s->simplifier, at, valid), valid};
  enum dtype t = n->u->dtype;
  struct uop *index = uop_new(g, OP_INDEX, t, 1, (union uop_arg){0}, 0, src, valid ? 3 : 2);
  return uop_new(g, OP_LOAD, t, 1, (union uop_arg){0}, 0, (struct uop *[]){index, zero_of(g, t)}, valid ? 2 : 1);
}

static bool type_holds(enum dtype t, int64_t lo, int64_t hi) {
  if (t == DT_INDEX || t == DT_I64 || t == DT_U64) return lo > INT64_MIN && hi < INT64_MAX && (t != DT_U64 || lo >= 0);
  bool negative = dtype_info[t].cls == 'i';
  int64_t top = (INT64_C(1) << (dtype_info[t].size * 8 - negative)) - 1;
  return t != DT_BOOL && dtype_is_int(t) && lo >= (negative ? -top - 1 : 0) && hi <= top;
}

/* v as an index. Arithmetic that cannot overflow its type is done on indices, where more is known of it. */
static struct uop *to_index(struct scheduler *s, struct uop *v) {
  struct graph *g = s->graph;
  if (v->dtype == DT_INDEX) return v;
  if (v->op == OP_CONST && !dtype_is_float(v->dtype)) return uop_index(g, v->arg.i);
  if (v->op == OP_CAST && v->src[0]->dtype == DT_INDEX && type_holds(v->dtype, uop_min(v->src[0]), uop_max(v->src[0])))
    return v->src[0];
  if (v->op == OP_ADD || v->op == OP_SUB || v->op == OP_MUL) {
    struct uop *a = to_index(s, v->src[0]), *b = to_index(s, v->src[1]), *c = index_binary(s->simplifier, v->op, a, b);
    if (type_holds(v->dtype, uop_min(c), uop_max(c))) return c;
  }
  return uop_cast(g, v, DT_INDEX);
}

static struct uop *tensor_value(struct scheduler *s, struct node *n, struct uop *const *idx, struct uop *valid);

/* Where in its source the element of GATHER u at idx lies. False: memory ran out. */
static bool index_gather(struct scheduler *s, struct uop *u, struct uop *const *idx, struct uop **out,
                         struct uop **valid, struct uop **padded) {
  struct graph *g = s->graph;
  struct node *index = node_of(s, u->src[1]);
  if (index->device == NO_DEVICE) index->device = node_of(s, u)->device;
  struct uop *value = tensor_value(s, index, idx, *valid), *dim = uop_import(g, u->src[0]->shape->dim[u->arg.i]);
  if (!value) return false;
  struct uop *at = to_index(s, value);
  struct uop *inside = index_and(s->simplifier, index_binary(s->simplifier, OP_CMPLT, uop_index(g, -1), at),
                                 index_binary(s->simplifier, OP_CMPLT, at, dim));
  for (unsigned i = 0; i < u->src[0]->shape->rank; i++) out[i] = idx[i];
  /* Inside, 32 bits hold it; outside, nothing is read. */
  if ((uop_min(at) < INT32_MIN || uop_max(at) > INT32_MAX) && uop_max(dim) <= INT32_MAX)
    at = uop_cast(g, uop_cast(g, value, DT_I32), DT_INDEX);
  out[u->arg.i] = at;
  *padded = uop_is_const(inside) && inside->arg.i ? NULL : inside;
  *valid = index_and(s->simplifier, *valid, *padded);
  return true;
}

/* The element of n at idx as an expression over loads, for the index of a GATHER, which must be known before what it indexes is looked
 * at. Reduces, and what is dear, become values in memory. NULL: memory ran out. */
static struct uop *tensor_value(struct scheduler *s, struct node *n, struct uop *const *idx, struct uop *valid) {
  struct graph *g = s->graph;
  struct uop *u = n->u;
  if (u->op == OP_CONST || u->op == OP_VAR) return uop_import(g, u);
  if (n->numel == 0) return zero_of(g, u->dtype);
  if (u->op == OP_IOTA) return simplify(s->simplifier, uop_cast(g, idx[0], u->dtype));
  if (u->op == OP_REDUCE_AXIS || (is_alu(u) && n->cost > RECOMPUTE)) n->realized = true;
  if (in_memory(n)) return load(s, n, idx, valid);
  struct uop *src[3] = {0};
  if (is_alu(u)) {
    for (unsigned k = 0; k < u->nsrc; k++) {
      src[k] = tensor_value(s, node_of(s, u->src[k]), idx, valid);
      if (!src[k]) return NULL;
    }
    return simplify(s->simplifier, uop_with_src(g, u, src));
  }
  struct node *x = node_of(s, u->src[0]);
  if (x->device == NO_DEVICE) x->device = n->device;
  if (u->op == OP_CONTIGUOUS) return tensor_value(s, x, idx, valid);
  struct uop **from = index_array(s, u->src[0]->shape->rank), *padded = NULL;
  if (!from) return NULL;
  if (x->numel == 0)
    padded = NULL;
  else if (u->op == OP_GATHER) {
    if (!index_gather(s, u, idx, from, &valid, &padded)) return NULL;
  } else
    index_movement(s->simplifier, u, idx, from, &valid, &padded);
  struct uop *v = tensor_value(s, x, from, valid);
  return v && padded ? simplify(s->simplifier, uop_where(g, padded, v, zero_of(g, u->dtype))) : v;
}

/* ---- from the roots: uses and what is realized -------------------------------------------------------------------------------------- */
/* The use (idx, valid) of n in k, found or added; NO_USE when the value will be loaded from memory or needs no index. */
static uint32_t add_use(struct scheduler *s, struct node *n, const struct use *like, struct uop **idx,
                        struct uop *valid) {
  if (in_memory(n) || n->u->op == OP_CONST || n->u->op == OP_VAR || n->numel == 0) return NO_USE;
  if (n->nuses >= MAX_USES && is_alu(n->u)) {
    n->realized = true;
    return NO_USE;
  }
  unsigned rank = n->u->shape->rank, looked = 0;
  for (uint32_t i = n->use; i != NO_USE && looked < 8; i = s->use[i].next, looked++) {
    struct use *w = &s->use[i];
    if (w->kernel != like->kernel || w->valid != valid) continue;
    if (w->idx != idx && memcmp(w->idx, idx, rank * sizeof *idx) != 0) continue;
    w->in_reduce |= like->in_reduce, w->expanded |= like->expanded;
    return i;
  }
  if (s->nuses == s->uses_capacity) {
    size_t c = s->uses_capacity ? s->uses_capacity * 2 : 64;
    struct use *p = c < NO_USE ? realloc(s->use, c * sizeof *p) : NULL;
    if (!p) return no_memory(s), NO_USE;
    s->use = p, s->uses_capacity = c;
  }
  s->use[s->nuses] = (struct use){.kernel = like->kernel,
                                  .idx = idx,
                                  .valid = valid,
                                  .in_reduce = like->in_reduce,
                                  .expanded = like->expanded,
                                  .next = n->use};
  n->use = (uint32_t)s->nuses++;
  n->nuses++;
  return n->use;
}

/* Whether the use's repetition along other ranges of its kernel walks exactly what the reduce consumed: each dimension of the node is one
 * range of the kernel, and the ranges left over count as many elements as one result of the reduce is made of. */
static bool walks_again(struct node *n, const struct use *w, unsigned *serial) {
  const struct shape *shape = n->u->shape;
  struct planned_kernel *k = w->kernel;
  unsigned used = 0;
  for (unsigned i = 0; i < shape->rank; i++) {
    struct uop *x = w->idx[i];
    if (uop_is_const(x) && uop_is_const(shape->dim[i]) && shape->dim[i]->arg.i == 1) continue;
    if (x->op != OP_RANGE || x->aux != AXIS_LOOP) return false;
    unsigned at = 0;
    while (at < k->nranges && k->range[at] != x) at++;
    if (at == k->nranges || (used >> at & 1) || uop_max(x) + 1 != uop_max(shape->dim[i])) return false;
    used |= 1u << at;
  }
  struct node *r = n->reduce;
  int64_t rows = n->numel, length = 1, all = r->u->src[0]->shape ? shape_numel(r->u->src[0]->shape) : -1;
  for (unsigned i = 0; i < k->nranges; i++)
    if (!(used >> i & 1) && __builtin_mul_overflow(length, uop_max(k->range[i]) + 1, &length)) return false;
  *serial = ((1u << k->nranges) - 1) & ~used;
  if (rows < 0 || all < 0 || rows == 0 || rows != r->numel || all / rows != length) return false;
  return rows >= SERIAL_ROWS || length <= SERIAL_LENGTH;
}

static bool must_realize(struct scheduler *s, struct node *n) {
  if (!n->nuses) return false;
  struct use *w = &s->use[n->use];
  if (n->u->op != OP_REDUCE_AXIS && !is_alu(n->u)) return false;
  if (n->reduce) {
    if (n->nuses > 1 || w->in_reduce) return true;
    unsigned serial = 0;
    if (w->expanded && !walks_again(n, w, &serial)) return true;
    if (n->u->op != OP_REDUCE_AXIS) return false;
    struct planned_kernel *k = w->kernel;
    if (k->reduce && (k->reduce->u->arg.i != n->u->arg.i ||
                      !shape_equal(k->reduce->u->src[0]->shape, n->u->src[0]->shape) || k->serial != serial))
      return true;
    k->reduce = n, k->serial = serial;
    return false;
  }
  if ((uint64_t)(n->nuses - 1) * n->cost > RECOMPUTE) return true;
  return n->cost > REPEATED && w->in_reduce && w->expanded;
}

/* A kernel of its own for n: fresh ranges over its shape, and they are the only use. */
static void start_kernel(struct scheduler *s, struct node *n) {
  struct graph *g = s->graph;
  const struct shape *shape = n->u->shape;
  n->realized = true;
  n->use = NO_USE, n->nuses = 0;
  if (n->numel < 0) {
    fail(s, -EINVAL, "not supported: writing a value of symbolic size to memory");
    return;
  }
  struct planned_kernel *k = n->kernel = graph_alloc(g, sizeof *k);
  struct uop **idx = index_array(s, shape->rank);
  if (!k || !idx) return;
  k->root = n->u;
  k->idx = idx;
  for (unsigned i = 0; i < shape->rank; i++) {
    struct uop *dim = uop_import(g, shape->dim[i]);
    idx[i] = uop_is_const(dim) && dim->arg.i <= 1 ? uop_index(g, 0) : uop_range(g, dim, k->next_axis++, AXIS_LOOP);
    if (idx[i]->op == OP_RANGE) k->range[k->nranges++] = idx[i];
  }
  n->realized = false; /* so that the use is recorded */
  add_use(s, n, &(struct use){.kernel = k}, idx, NULL);
  n->realized = true;
}

/* What use i of n means for the sources of n. */
static void propagate(struct scheduler *s, struct node *n, uint32_t i) {
  struct graph *g = s->graph;
  struct uop *u = n->u;
  struct use w = s->use[i]; /* a copy: adding uses may move the array */
  w.src_idx = w.idx, w.src_valid = w.valid;
  for (unsigned k = 0; k < 3; k++) w.src_use[k] = NO_USE;
  struct use like = w;
  if (is_movement(u)) {
    w.src_idx = index_array(s, u->src[0]->shape->rank);
    if (!w.src_idx) return;
    if (node_of(s, u->src[0])->numel != 0) index_movement(s->simplifier, u, w.idx, w.src_idx, &w.src_valid, &w.padded);
    if (u->op == OP_EXPAND && !shape_equal(u->shape, u->src[0]->shape)) like.expanded = true;
  } else if (u->op == OP_GATHER) {
    w.src_idx = index_array(s, u->src[0]->shape->rank);
    if (!w.src_idx) return;
    int64_t size = node_of(s, u->src[0])->numel;
    if (size != 0 && !index_gather(s, u, w.idx, w.src_idx, &w.src_valid, &w.padded)) return;
    if (n->numel < 0 || size < 0 || n->numel > size) like.expanded = true; /* elements may be taken more than once */
  } else if (u->op == OP_REDUCE_AXIS) {
    const struct shape *x = u->src[0]->shape;
    w.src_idx = index_array(s, x->rank);
    w.range = index_array(s, x->rank);
    if (!w.src_idx || !w.range) return;
    for (unsigned a = 0; a < x->rank; a++) {
      w.src_idx[a] = w.idx[a];
      if (!(u->arg.i >> a & 1)) continue;
      struct uop *dim = uop_import(g, x->dim[a]);
      w.src_idx[a] = uop_is_const(dim) && dim->arg.i <= 1 ? uop_index(g, 0)
                                                          : uop_range(g, dim, w.kernel->next_axis++, AXIS_REDUCE);
      if (w.src_idx[a]->op == OP_RANGE) w.range[w.nranges++] = w.src_idx[a];
    }
    like.in_reduce = true;
  }
  for (unsigned k = 0; k < (u->op == OP_GATHER ? 1 : nsources(u)); k++) { /* the index of a GATHER is in src_idx */
    struct node *x = node_of(s, u->src[k]);
    if (x->device == NO_DEVICE) x->device = n->device; /* made of constants: computed where it is used */
    w.src_use[k] = add_use(s, x, &like, w.src_idx, w.src_valid);
  }
  w.next = s->use[i].next;
  s->use[i] = w;
}

/* ---- from the leaves: values and kernels ------------------------------------------------------------------------------------------- */
static struct uop *reduce_identity(struct graph *g, enum op op, enum dtype t) {
  if (op == OP_MAX) {
    static const int64_t least[DT_COUNT] = {
        [DT_I8] = INT8_MIN, [DT_I16] = INT16_MIN, [DT_I32] = INT32_MIN, [DT_I64] = INT64_MIN, [DT_INDEX] = INT64_MIN};
    return dtype_is_float(t) ? uop_const_float(g, t, -INFINITY) : uop_const_int(g, t, least[t]);
  }
  return dtype_is_float(t) ? uop_const_float(g, t, op == OP_MUL) : uop_const_int(g, t, op == OP_MUL);
}

static struct uop *source_value(struct scheduler *s, struct uop *u, const struct use *w, unsigned k) {
  struct node *x = node_of(s, u->src[k]);
  if (x->u->op == OP_CONST || x->u->op == OP_VAR) return uop_import(s->graph, x->u);
  if (x->numel == 0) return zero_of(s->graph, x->u->dtype);
  if (in_memory(x)) return load(s, x, w->src_idx, w->src_valid);
  return s->use[w->src_use[k]].value;
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
    if (node_of(s, u->src[0])->numel == 0) return reduce_identity(g, u->aux, u->dtype);
    if (!w->nranges) return x;
    struct uop *all[MAX_RANK + 1] = {x};
    memcpy(all + 1, w->range, w->nranges * sizeof *all);
    return uop_new(g, OP_REDUCE, u->dtype, 1, (union uop_arg){0}, u->aux, all, w->nranges + 1);
  }
  if (w->padded) {
    bool masked =
        x->op == OP_LOAD && x->src[0]->nsrc == 3 && x->src[0]->src[2] == w->src_valid; /* yields 0 there already */
    if (!masked) return uop_where(g, w->padded, x, zero_of(g, u->dtype));
  }
  return x; /* movement and CONTIGUOUS */
}

static struct schedule_item *add_item(struct scheduler *s) {
  struct schedule *o = s->out;
  if (o->nitems == s->items_capacity) {
    size_t c = s->items_capacity ? s->items_capacity * 2 : 16;
    struct schedule_item *p = realloc(o->items, c * sizeof *p);
    if (!p) return no_memory(s), NULL;
    o->items = p, s->items_capacity = c;
  }
  return memset(&o->items[o->nitems++], 0, sizeof *o->items);
}

/* Numbers the kernel's buffers as parameters in the order the ast names them, output first, and marks its serial ranges. */
static void finish_kernel(struct scheduler *s, struct node *n, struct uop *value) {
  struct graph *g = s->graph;
  struct planned_kernel *k = n->kernel;
  k->out = buffer_of(s, n);
  if (n->numel == 0) return;
  if (!value) value = uop_import(g, n->u); /* a constant or variable */
  struct uop *at = index_flatten(s->simplifier, n->u->shape, k->idx);
  struct uop *index = uop_new(g, OP_INDEX, n->u->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){k->out, at}, 2);
  struct uop *store = uop_new(g, OP_STORE, DT_VOID, 1, (union uop_arg){0}, 0,
                              (struct uop *[]){index, simplify(s->simplifier, value)}, 2);
  struct uop *sink = uop_new(g, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, &store, 1);

  size_t norder = 0, count = 1;
  struct uop **order = uop_toposort(&sink, 1, &norder);
  struct uop **from = NULL, **to = NULL;
  struct schedule_item *item = add_item(s);
  if (!order || !item) goto out;
  for (size_t i = 0; i < norder; i++) count += order[i]->op == OP_BUFFER && order[i] != k->out;
  item->kind = SCHEDULE_KERNEL;
  item->device = n->device == NO_DEVICE ? 0 : n->device;
  item->bufs = calloc(count, sizeof *item->bufs);
  from = calloc(count + k->nranges, sizeof *from);
  to = calloc(count + k->nranges, sizeof *to);
  if (!item->bufs || !from || !to) {
    no_memory(s);
    goto out;
  }
  item->noutputs = 1;
  unsigned pairs = 0;
  for (size_t i = 0; i <= norder; i++) {
    struct uop *b = i ? order[i - 1] : k->out;
    if (b->op != OP_BUFFER || (i && b == k->out)) continue;
    from[pairs] = item->bufs[item->nbufs] = b;
    to[pairs++] = uop_new(g, OP_PARAM, b->dtype, 1, (union uop_arg){.i = item->nbufs++}, 0, b->src, 1);
  }
  for (unsigned i = 0; i < k->nranges; i++)
    if (k->serial >> i & 1) {
      from[pairs] = k->range[i];
      to[pairs++] = uop_range(g, k->range[i]->src[0], k->range[i]->arg.i, AXIS_SERIAL);
    }
  item->ast = uop_substitute(g, sink, from, to, pairs);
out:
  free(order);
  free(from);
  free(to);
}

static void finish_copy(struct scheduler *s, struct node *n) {
  struct node *x = node_of(s, base(n->u->src[0]));
  buffer_of(s, n);
  if (x->device == n->device || n->numel == 0) return;
  struct schedule_item *item = add_item(s);
  if (!item) return;
  item->kind = SCHEDULE_COPY;
  item->device = n->device;
  item->bufs = calloc(2, sizeof *item->bufs);
  if (!item->bufs) {
    no_memory(s);
    return;
  }
  item->nbufs = 2, item->noutputs = 1;
  item->bufs[0] = n->buffer, item->bufs[1] = buffer_of(s, x);
}

/* The root's value as its buffer under the movement that leads to it. */
static struct uop *output(struct scheduler *s, struct uop *root) {
  struct graph *g = s->graph;
  struct uop *chain[64], *u = root;
  unsigned n = 0;
  while (!in_memory(node_of(s, u)) && n < 64 && (is_movement(u) || u->op == OP_CONTIGUOUS))
    chain[n++] = u, u = u->src[0];
  struct node *b = node_of(s, u);
  if (!b->buffer) {
    fail(s, -EINVAL, "not supported: a root under more than 64 movement ops");
    return NULL;
  }
  struct uop *v = b->buffer;
  bool flat = u->op == OP_BUFFER || (u->shape->rank == 1);
  if (!flat) {
    struct uop *dims[MAX_RANK + 1] = {v};
    for (unsigned i = 0; i < u->shape->rank; i++) dims[i + 1] = uop_import(g, u->shape->dim[i]);
    v = uop_new(g, OP_RESHAPE, u->dtype, 1, (union uop_arg){0}, 0, dims, u->shape->rank + 1);
  }
  while (n-- > 0) {
    struct uop *m = chain[n], *src[2 * MAX_RANK + 1] = {v};
    if (m->op == OP_CONTIGUOUS) continue;
    for (unsigned i = 1; i < m->nsrc; i++) src[i] = uop_import(g, m->src[i]);
    if (m->op == OP_RESHAPE && v->op == OP_RESHAPE) src[0] = v->src[0];
    v = shape_equal(src[0]->shape, m->shape) && m->op == OP_RESHAPE ? src[0] : uop_with_src(g, m, src);
  }
  return v;
}

static int outputs(struct scheduler *s, struct uop *const *roots, unsigned nroots) {
  struct schedule *o = s->out;
  struct uop_map named = {0};
  o->outputs = calloc(nroots + 1, sizeof *o->outputs);
  o->temporaries = calloc(s->nnodes + 1, sizeof *o->temporaries);
  if (!o->outputs || !o->temporaries) return no_memory(s);
  o->noutputs = nroots;
  for (size_t i = 0; i < s->nnodes; i++)
    if (s->node[i].u->op == OP_BUFFER && !uop_map_put(&named, s->node[i].buffer, s->node[i].buffer)) no_memory(s);
  for (unsigned i = 0; i < nroots && !s->status; i++) {
    o->outputs[i] = output(s, roots[i]);
    struct uop *b = o->outputs[i];
    while (b && b->op != OP_BUFFER) b = b->src[0];
    if (b && !uop_map_put(&named, b, b)) no_memory(s);
  }
  for (size_t i = 0; i < s->nnodes; i++) {
    struct node *n = &s->node[i];
    if (!n->buffer || n->u->op == OP_BUFFER || uop_map_get(&named, n->buffer)) continue;
    if (!uop_map_put(&named, n->buffer, n->buffer)) no_memory(s);
    o->temporaries[o->ntemporaries++] = n->buffer;
  }
  uop_map_free(&named);
  return s->status;
}

int graph_schedule(struct uop *const *roots, unsigned nroots, int64_t *next_buffer, struct schedule *out, char *err,
                   size_t errcap) {
  struct scheduler s = {.next_buffer = next_buffer, .out = out, .err = err, .errcap = errcap};
  *out = (struct schedule){0};
  if (errcap) *err = 0;
  int malformed = uop_verify(roots, nroots, STAGE_TENSOR, err, errcap);
  if (malformed) return malformed;
  size_t norder = 0;
  struct uop **order = uop_toposort(roots, nroots, &norder);
  s.graph = out->graph = graph_new();
  s.simplifier = s.graph ? simplifier_new(s.graph) : NULL;
  s.node = calloc(norder + 1, sizeof *s.node);
  if (!order || !s.simplifier || !s.node) {
    no_memory(&s);
    goto out;
  }
  s.nnodes = norder;
  for (size_t i = 0; i < norder && !s.status; i++) {
    s.node[i].u = order[i];
    if (!uop_map_put(&s.node_of, order[i], &s.node[i])) no_memory(&s);
  }
  for (size_t i = norder; i-- > 0 && !s.status;) {
    struct uop *u = order[i];
    bool apart = !keeps_size(u) || (s.node[i].branches && !is_alu(u));
    for (unsigned k = 0; k < nsources(u); k++) node_of(&s, u->src[k])->branches |= apart;
  }
  for (size_t i = 0; i < norder && !s.status; i++) analyse(&s, &s.node[i]);
  if (s.status) goto out;

  for (unsigned i = 0; i < nroots; i++) {
    struct uop *u = roots[i];
    while (is_movement(u) || u->op == OP_CONTIGUOUS) u = u->src[0];
    if (!in_memory(node_of(&s, u)))
      node_of(&s, base(roots[i]))->realized = true; /* else a view of memory: costs nothing */
  }
  for (size_t i = norder; i-- > 0 && !s.status;) {
    struct node *n = &s.node[i];
    struct uop *u = n->u;
    if (u->op == OP_CONTIGUOUS || u->op == OP_COPY) {
      struct node *b = node_of(&s, base(u->src[0]));
      if (b->u->op != OP_BUFFER && b->u->op != OP_COPY) b->realized = true;
      if (u->op == OP_COPY && b->device == NO_DEVICE) b->device = n->device;
    }
    if (u->op == OP_BUFFER || u->op == OP_COPY) continue;
    if (!n->realized) n->realized = must_realize(&s, n);
    if (n->realized) start_kernel(&s, n);
    for (uint32_t w = n->use; w != NO_USE && !s.status; w = s.use[w].next) propagate(&s, n, w);
  }
  for (size_t i = 0; i < norder && !s.status; i++) {
    struct node *n = &s.node[i];
    if (n->u->op == OP_COPY) finish_copy(&s, n);
    for (uint32_t w = n->use; w != NO_USE; w = s.use[w].next) s.use[w].value = evaluate(&s, n, &s.use[w]);
    if (n->kernel) finish_kernel(&s, n, n->use == NO_USE ? NULL : s.use[n->use].value);
  }
  if (!s.status) outputs(&s, roots, nroots);
  if (!s.status && graph_error(s.graph)) no_memory(&s);
out:
  simplifier_free(s.simplifier);
  uop_map_free(&s.node_of);
  free(s.node);
  free(s.use);
  free(order);
  if (s.status) {
    schedule_free(out);
  }
  return s.status;
}

void schedule_free(struct schedule *s) {
  for (size_t i = 0; i < s->nitems; i++) free(s->items[i].bufs);
  free(s->items);
  free(s->outputs);
  free(s->temporaries);
  graph_free(s->graph);
  *s = (struct schedule){0};
}
