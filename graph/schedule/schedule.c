/* Scheduling: decides which values are written to memory, and which kernel computes each.
 *
 * A value is realized (computed by a kernel of its own, from whose output other kernels load it) if one of these holds:
 * - it is a root, or the source of a CONTIGUOUS, a COPY, an EXCHANGE or a CUSTOM (below any RESHAPE), or is assigned;
 * - it is the index of a GATHER and is a reduce, or expensive;
 * - it passes on a reduce (it is one, or is elementwise over one of the same size that has no other users) and is used
 * by more than one kernel or at more than one index, or would be repeated: along an expanded axis, or inside another
 * reduce that it depends on. Inside a reduce that it does not depend on, it is computed once before it (a variance is
 * one kernel); a sum under a sum is merged with it (sum.c). Three repetitions are allowed. First, along ranges that are
 * exactly what the reduce consumed: the kernel computes the reduce once per row and walks the row again (softmax is one
 * kernel), unless the rows are so few that most of the machine is idle for longer than a launch takes. Second, along
 * ranges of at most NARROW elements, all of which the work-item of the row runs (softmax times a narrow matrix is one
 * kernel). Neither is allowed if the kernel has another reduce that reads much more, and would leave most of the
 * machine idle (a variance over parts of columns). Third, a short reduce may be repeated in a small kernel, where a
 * launch costs more (SHORT_REDUCE, FEW_RESULTS: a global average before a classifier). A short sum of products of
 * integers that is a term of another sum, and used once, stays in its kernel (a product of quantized vectors);
 * - it is a reduce and its kernel has MAX_REDUCES others, or others that walk other rows, or a large contraction;
 * - its kernel would read more than MOST_INPUTS buffers, or its expression would be deeper than MOST_DEPTH;
 * - it is elementwise and evaluating it again at each use is expensive: (uses - 1) * cost > RECOMPUTE, or it costs more
 * than REPEATED and is repeated inside a reduce, unless it is repeated fewer than NARROW times at a total cost of at
 * most NARROW_COST. Uses of few elements do not count (FEW_OF), and what costs at most REPEATED and reads no memory is
 * not written. The cost is the number of elementwise ops back to memory; exp2, log2, sin, sqrt and divisions count as
 * TRANSCENDENTAL.
 *
 * Reduces with few results of very many elements are done in two steps (split.c). Kernels that pass on rows to one
 * another become phases of kernels that compute these rows again where they need them, so that the passed values never
 * exist as a whole (phases/). Kernels over the same ranges that share what they read, or of which one reads what the
 * other writes, become one with several outputs (fuse.c). An output is not stored if the kernels that read it can
 * compute it from other outputs in less time (recompute.c). */
#include "scheduler.h"
#include "../custom.h"
#include "../rules.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { TRANSCENDENTAL = 4, MOST_COST = 1 << 30 };

int schedule_fail(struct scheduler *s, int status, const char *fmt, ...) {
  if (s->status) return s->status;
  va_list ap;
  va_start(ap, fmt);
  if (s->errcap) vsnprintf(s->err, s->errcap, fmt, ap);
  va_end(ap);
  return s->status = status;
}
int schedule_no_memory(struct scheduler *s) { return schedule_fail(s, -ENOMEM, "out of memory while scheduling"); }

const char *schedule_reason_text(enum schedule_reason why) {
  static const char *const text[] = {
#define X(e, text) text,
      SCHEDULE_REASONS(X)
#undef X
  };
  return text[why];
}

void *schedule_grow(struct scheduler *s, void *array, size_t n, size_t *capacity, size_t size) {
  if (n < *capacity) return array;
  size_t c = *capacity ? 2 * *capacity : 64;
  void *p = c < NO_USE ? realloc(array, c * size) : NULL;
  if (p)
    *capacity = c;
  else
    schedule_no_memory(s);
  return p;
}

bool schedule_simplify(struct scheduler *s, struct uop **roots, unsigned nroots) {
  for (unsigned i = 0; i < nroots; i++) roots[i] = rewriter_run(s->tensors, roots[i]);
  if (graph_error(s->graph)) schedule_no_memory(s);
  return !s->status;
}

unsigned schedule_nsources(const struct uop *u) {
  if (is_alu(u)) return u->nsrc;
  if (u->op == OP_BUFFER || u->op == OP_IOTA || op_info[u->op].cls == OPCLASS_LEAF) return 0;
  if (u->op == OP_CUSTOM) return custom_inputs(u);
  return u->op == OP_GATHER     ? 2
         : u->op == OP_ASSIGN   ? 3
         : u->op == OP_JOIN     ? u->nsrc
         : u->op == OP_SCATTER  ? 2
         : u->op == OP_SEGMENTS ? 3
                                : 1;
}

uint16_t *schedule_devices(const struct scheduler *s, struct uop *const *order, size_t n) {
  uint16_t *device = malloc((graph_node_count(s->graph) + 1) * sizeof *device);
  for (size_t i = 0; device && i < n; i++) {
    const struct uop *u = order[i];
    uint16_t *d = &device[u->id];
    *d = uop_names_device(u) ? u->aux : NO_DEVICE;
    for (unsigned k = 0; k < schedule_nsources(u) && *d == NO_DEVICE; k++) *d = device[u->src[k]->id];
  }
  return device;
}

static bool keeps_size(const struct uop *u) {
  return is_alu(u) || u->op == OP_RESHAPE || u->op == OP_PERMUTE || u->op == OP_FLIP || u->op == OP_CONTIGUOUS;
}

uint32_t schedule_op_cost(const struct uop *u) {
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

/* ---- facts computed from the leaves: cost, the reduce passed on, device ---------------------- */
static void compute_facts(struct scheduler *s, struct node *n) {
  struct uop *u = n->u;
  n->use = NO_USE;
  n->device = NO_DEVICE;
  n->numel = shape_numel(u->shape);
  if (u->op == OP_BIND) schedule_fail(s, -EINVAL, "BIND is not a tensor; variables are scheduled without their values");
  if (u->op == OP_SHARD || u->op == OP_MULTI)
    schedule_fail(s, -EINVAL, "%s spans several devices; resolve it first (graph/shard/shard.h)", op_info[u->op].name);
  if (u->op == OP_SINK) schedule_fail(s, -EINVAL, "SINK is not a tensor; schedule its sources as roots");
  if (u->op == OP_BUFFER) n->device = u->aux, n->buffer = u;
  s->assigns |= u->op == OP_ASSIGN;
  uint64_t cost = is_alu(u) ? schedule_op_cost(u) : u->op == OP_GATHER;
  n->reads = is_memory(u);
  for (unsigned i = 0; i < schedule_nsources(u) && !s->status; i++) {
    struct node *x = node_of(s, u->src[i]);
    n->reads = n->reads || x->reads;
    if (!i || u->src[i] != u->src[0] || u->op == OP_GATHER) cost += x->cost; /* GATHER: at two indices */
    if (keeps_size(u) && !n->reduce && !x->branches) n->reduce = x->reduce;
    if (x->device == NO_DEVICE) continue;
    if (n->device != NO_DEVICE && n->device != x->device)
      schedule_fail(s, -EINVAL, "%s mixes device slots %u and %u; copy one operand to the other's device first",
                    op_info[u->op].name, n->device, x->device);
    n->device = x->device;
  }
  if (u->op == OP_CONTIGUOUS) n->reduce = NULL; /* its users load it from memory */
  if (is_memory(u) || u->op == OP_REDUCE_AXIS || u->op == OP_CONTIGUOUS) cost = 0;
  n->cost = cost > MOST_COST ? MOST_COST : (uint32_t)cost;
  if (uop_names_device(u)) n->device = u->aux;
  if (u->op == OP_REDUCE_AXIS) n->reduce = n;
}

/* Lists everything below the roots, sources first, and numbers the nodes. */
static bool number_nodes(struct scheduler *s, struct uop *const *roots, unsigned nroots) {
  struct uop **order = uop_toposort(roots, nroots, &s->nnodes);
  s->nnumbers = graph_node_count(s->graph);
  s->node = calloc(s->nnodes + 1, sizeof *s->node);
  s->number = calloc(s->nnumbers + 1, sizeof *s->number);
  if (!order || !s->node || !s->number) {
    free(order);
    return schedule_no_memory(s), false;
  }
  for (size_t i = 0; i < s->nnodes; i++) s->node[i].u = order[i], s->number[order[i]->id] = (uint32_t)i;
  free(order);
  for (size_t i = s->nnodes; i-- > 0;) {
    struct uop *u = s->node[i].u;
    bool apart = !keeps_size(u) || (s->node[i].branches && !is_alu(u));
    for (unsigned k = 0; k < schedule_nsources(u); k++) node_of(s, u->src[k])->branches |= apart;
  }
  for (size_t i = 0; i < s->nnodes && !s->status; i++) compute_facts(s, &s->node[i]);
  return !s->status;
}

/* ---- roots ----------------------------------------------------------------------------------- */

/* The root's value: its buffer under the root's movement ops. */
static struct uop *root_value(struct scheduler *s, struct uop *root) {
  struct graph *g = s->graph;
  struct uop *chain[64], *u = root;
  unsigned n = 0;
  while (!in_memory(node_of(s, u)) && n < 64 && (is_movement(u) || u->op == OP_CONTIGUOUS))
    chain[n++] = u, u = u->src[0];
  struct node *b = node_of(s, u);
  if (!in_memory(b)) {
    schedule_fail(s, -EINVAL, "not supported: a root under more than 64 movement ops");
    return NULL;
  }
  uint32_t version = schedule_version(s, schedule_buffer(s, b));
  if (version == NO_UNIT) return NULL;
  struct uop *v = s->version[version].saved ? s->version[version].saved : s->version[version].real;
  int64_t size = v->src[0]->arg.i;
  if (u->op != OP_BUFFER && b->numel < 0) { /* the part of the memory that the variables' values need */
    struct uop *all = uop_index(g, 1);
    for (unsigned i = 0; i < u->shape->rank; i++) all = index_binary(s->simplifier, OP_MUL, all, u->shape->dim[i]);
    v = uop_new(g, OP_SHRINK, u->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){v, uop_index(g, 0), all}, 3);
  }
  bool flat = u->op == OP_BUFFER || (u->shape->rank == 1 && b->numel == size);
  if (!flat) {
    struct uop *dims[MAX_RANK + 1] = {v};
    memcpy(dims + 1, u->shape->dim, u->shape->rank * sizeof *dims);
    v = uop_new(g, OP_RESHAPE, u->dtype, 1, (union uop_arg){0}, 0, dims, u->shape->rank + 1);
  }
  while (n-- > 0) {
    struct uop *m = chain[n], *src[2 * MAX_RANK + 1] = {v};
    if (m->op == OP_CONTIGUOUS) continue;
    for (unsigned i = 1; i < m->nsrc; i++) src[i] = m->src[i];
    if (m->op == OP_RESHAPE && v->op == OP_RESHAPE) src[0] = v->src[0];
    v = shape_equal(src[0]->shape, m->shape) && m->op == OP_RESHAPE ? src[0] : uop_with_src(g, m, src);
  }
  return v;
}

static void list_outputs(struct scheduler *s, struct uop *const *roots, unsigned nroots) {
  struct schedule *o = s->out;
  struct uop_map named = {0};
  o->outputs = calloc(nroots + 1, sizeof *o->outputs);
  if (!o->outputs) schedule_no_memory(s);
  o->noutputs = nroots;
  for (size_t i = 0; i < s->nnodes && !s->status; i++)
    if (s->node[i].u->op == OP_BUFFER && !uop_map_put(&named, s->node[i].buffer, s->node[i].buffer))
      schedule_no_memory(s);
  for (unsigned i = 0; i < nroots && !s->status; i++) {
    struct uop *b = o->outputs[i] = root_value(s, roots[i]);
    while (b && b->op != OP_BUFFER) b = b->src[0];
    if (b && !uop_map_put(&named, b, b)) schedule_no_memory(s);
  }
  size_t most = 0;
  for (size_t i = 0; i < o->nitems; i++) most += o->items[i].noutputs;
  o->temporaries = calloc(most + 1, sizeof *o->temporaries);
  if (!o->temporaries) schedule_no_memory(s);
  for (size_t i = 0; o->temporaries && i < o->nitems && !s->status; i++)
    for (unsigned k = 0; k < o->items[i].noutputs; k++) {
      struct uop *b = o->items[i].bufs[k];
      if (uop_map_get(&named, b)) continue;
      if (!uop_map_put(&named, b, b)) schedule_no_memory(s);
      o->temporaries[o->ntemporaries++] = b;
    }
  uop_map_free(&named);
}

/* Finds the first of the items that have the same ast. */
static void find_equal_asts(struct scheduler *s) {
  struct uop_map first = {0}; /* ast -> number of its first item + 1 */
  for (size_t i = 0; i < s->out->nitems && !s->status; i++) {
    struct schedule_item *item = &s->out->items[i];
    if (item->kind != SCHEDULE_KERNEL) continue;
    size_t known = (size_t)uop_map_get(&first, item->ast);
    item->first = known ? known - 1 : i;
    if (!known && !uop_map_put(&first, item->ast, (void *)(i + 1))) schedule_no_memory(s);
  }
  uop_map_free(&first);
}

/* Realizes the roots. */
static void realize_roots(struct scheduler *s, struct uop *const *roots, unsigned nroots) {
  for (unsigned i = 0; i < nroots; i++) {
    struct uop *u = roots[i];
    while (is_movement(u) || u->op == OP_CONTIGUOUS) u = u->src[0];
    if (in_memory(node_of(s, u))) continue; /* a view of memory costs nothing */
    struct node *b = node_of(s, base_of(roots[i]));
    b->realized = true, b->why = SCHEDULE_ROOT;
  }
}

/* Marks the memory that roots are in as kept, and makes copies where a later write overwrites it. */
static void keep_roots(struct scheduler *s, struct uop *const *roots, unsigned nroots) {
  bool any = false;
  for (unsigned i = 0; i < nroots && !s->status; i++) {
    struct uop *u = roots[i];
    while (!in_memory(node_of(s, u)) && (is_movement(u) || u->op == OP_CONTIGUOUS)) u = u->src[0];
    if (!in_memory(node_of(s, u))) continue;
    uint32_t v = schedule_version(s, schedule_buffer(s, node_of(s, u)));
    if (v == NO_UNIT) return;
    s->version[v].kept = true;
    if (s->version[v].next_writer == NO_UNIT || s->version[v].saved) continue;
    struct uop *saved = schedule_save(s, s->version[v].buffer, s->version[v].real->aux);
    s->version[v].saved = saved;
    any = true;
  }
  if (any && !s->status) schedule_versions(s);
}

/* Copies the roots to g, in one walk. Returns false when out of memory. */
static bool copy_roots(struct graph *g, struct uop *const *roots, unsigned nroots, struct uop **mine) {
  size_t n, most = 1;
  struct uop **order = uop_toposort(roots, nroots, &n), **src = NULL, **to = NULL;
  uint32_t last = 0;
  for (size_t i = 0; order && i < n; i++) {
    if (order[i]->nsrc > most) most = order[i]->nsrc;
    if (order[i]->id > last) last = order[i]->id;
  }
  src = calloc(most, sizeof *src);
  to = malloc((last + 1) * sizeof *to);
  bool ok = order && src && to;
  for (size_t i = 0; ok && i < n; i++) {
    for (unsigned k = 0; k < order[i]->nsrc; k++) src[k] = to[order[i]->src[k]->id];
    to[order[i]->id] = uop_with_src(g, order[i], src);
  }
  for (unsigned i = 0; ok && i < nroots; i++) mine[i] = to[roots[i]->id];
  free(order);
  free(src);
  free(to);
  return ok;
}

const struct schedule_machine *schedule_machine_of(const struct scheduler *s, unsigned device) {
  static const struct schedule_machine common = {.groups = 64,
                                                 .side = 8,
                                                 .columns = 1024,
                                                 .scratch = 1 << 21,
                                                 .access_ns = 5,
                                                 .launch_ns = 2000,
                                                 .bytes_per_ns = 20,
                                                 .stream_per_ns = 10,
                                                 .flops_per_ns = 200,
                                                 .compares_per_ns = 50,
                                                 .skips = true};
  const struct schedule_machine *m = s->machine_of ? s->machine_of(device == NO_DEVICE ? 0 : device) : NULL;
  return m ? m : &common;
}

int graph_schedule(struct uop *const *roots, unsigned nroots, int64_t *next_buffer, struct schedule *out, char *err,
                   size_t errcap) {
  return graph_schedule_on(NULL, roots, nroots, next_buffer, out, err, errcap);
}

int graph_schedule_on(const struct schedule_machine *(*machine_of)(unsigned device), struct uop *const *roots,
                      unsigned nroots, int64_t *next_buffer, struct schedule *out, char *err, size_t errcap) {
  struct graph *g = graph_new();
  struct uop **mine = calloc(nroots + 1, sizeof *mine);
  int status = -ENOMEM;
  *out = (struct schedule){0};
  if (g && mine && copy_roots(g, roots, nroots, mine)) {
    status = graph_schedule_within(g, machine_of, mine, nroots, next_buffer, out, err, errcap);
  } else {
    if (errcap) snprintf(err, errcap, "out of memory while scheduling");
    graph_free(g);
  }
  free(mine);
  return status;
}

int graph_schedule_within(struct graph *g, const struct schedule_machine *(*machine_of)(unsigned device),
                          struct uop *const *roots, unsigned nroots, int64_t *next_buffer, struct schedule *out,
                          char *err, size_t errcap) {
  struct scheduler s = {
      .graph = g, .machine_of = machine_of, .next_buffer = next_buffer, .out = out, .err = err, .errcap = errcap};
  *out = (struct schedule){.graph = g};
  if (errcap) *err = 0;
  struct uop **mine = calloc(nroots + 1, sizeof *mine);
  if ((s.status = uop_verify(roots, nroots, STAGE_TENSOR, err, errcap))) goto out;
  s.simplifier = simplifier_new(g);
  s.tensors = rewriter_new(g, rules_tensors, NULL);
  if (!s.simplifier || !s.tensors || !mine) {
    schedule_no_memory(&s);
    goto out;
  }
  memcpy(mine, roots, nroots * sizeof *mine);
  if (!schedule_simplify(&s, mine, nroots) || !schedule_make_joins(&s, mine, nroots) ||
      !schedule_make_scatters(&s, mine, nroots) || !schedule_place_constants(&s, mine, nroots) ||
      !schedule_split_reduces(&s, mine, nroots) || !number_nodes(&s, mine, nroots))
    goto out;
  realize_roots(&s, mine, nroots);
  for (size_t i = s.nnodes; i-- > 0 && !s.status;) schedule_uses(&s, &s.node[i]);
  for (size_t i = 0; i < s.nnodes && !s.status; i++) schedule_values(&s, &s.node[i]);
  if (!s.status) schedule_divide_strides(&s);
  if (!s.status) schedule_versions(&s);
  if (!s.status) keep_roots(&s, mine, nroots);
  if (!s.status) schedule_phases(&s);
  if (!s.status) schedule_fuse(&s);
  if (!s.status) schedule_recompute(&s);
  if (!s.status) schedule_items(&s);
  if (!s.status) list_outputs(&s, mine, nroots);
  if (!s.status) schedule_in_place(&s);
  if (!s.status) find_equal_asts(&s);
  if (!s.status && graph_error(s.graph)) schedule_no_memory(&s);
out:
  simplifier_free(s.simplifier);
  rewriter_free(s.tensors);
  uop_map_free(&s.version_of);
  for (size_t i = 0; i < s.nversions; i++) free(s.version[i].reader);
  free(s.version);
  free(s.node);
  free(s.number);
  free(s.use);
  free(s.unit);
  free(s.mark);
  free(s.stack);
  free(mine);
  if (s.status) schedule_free(out);
  return s.status;
}

void schedule_free(struct schedule *s) {
  for (size_t i = 0; i < s->nitems; i++) {
    free(s->items[i].bufs);
    free(s->items[i].offset);
    free(s->items[i].vars);
    free(s->items[i].why);
  }
  free(s->items);
  free(s->outputs);
  free(s->temporaries);
  graph_free(s->graph);
  *s = (struct schedule){0};
}
