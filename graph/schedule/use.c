/* Scheduling, from the roots to the leaves: finds the uses of each node and decides which nodes are realized.
 *
 * A use (kernel, index, valid) means that a kernel evaluates the node at that index, an expression over the kernel's
 * ranges. The op determines the uses of the sources: elementwise ops pass the index on, movement rewrites it, a reduce
 * adds ranges. The rules for realizing are at the top of schedule.c. */
#include "scheduler.h"
#include <errno.h>
#include <string.h>

enum {
  RECOMPUTE = 32,
  REPEATED = 8,
  MAX_USES = RECOMPUTE + 2,
  MAX_REDUCES = 4,
  SHORT_REDUCE = 64,
  FEW_RESULTS = 1 << 16,
  REPEATED_TERMS = 1 << 20,
  NARROW = 16,
  NARROW_LENGTH = 4096,
  NARROW_COST = 192,
  LARGE_CONTRACTION = 1 << 20, /* number of products */
  FEW_OF = 16,                 /* a use of less than 1/FEW_OF of the elements recomputes them */
};

static void mark_realized(struct node *n, enum schedule_reason why) { n->realized = true, n->why = (uint8_t)why; }

/* The inputs of a kernel. Nodes are visited after their users. At any time a kernel therefore reads at most the nodes
 * that it loads and every node that it uses and that has not been visited yet: each of these becomes a load if it is
 * realized. A visited node that stays in the kernel is replaced by its sources. */
static uint32_t number_of(const struct scheduler *s, const struct node *n) { return (uint32_t)(n - s->node); }

static unsigned input_at(const struct planned_kernel *k, uint32_t node) {
  unsigned i = 0;
  while (i < k->ninputs && k->input[i] != node) i++;
  return i;
}

static bool is_input(const struct node *n) {
  return op_info[n->u->op].cls != OPCLASS_LEAF && n->u->op != OP_IOTA && n->numel != 0;
}

void schedule_add_input(struct scheduler *s, struct planned_kernel *k, const struct node *n) {
  uint32_t number = number_of(s, n);
  if (!is_input(n) || input_at(k, number) < k->ninputs) return;
  if (k->ninputs == k->inputs_capacity) {
    unsigned capacity = k->inputs_capacity ? 2 * k->inputs_capacity : 8;
    uint32_t *p = graph_alloc(s->graph, capacity * sizeof *p);
    if (!p) {
      schedule_no_memory(s);
      return;
    }
    if (k->ninputs) memcpy(p, k->input, k->ninputs * sizeof *p);
    k->input = p, k->inputs_capacity = capacity;
  }
  k->input[k->ninputs++] = number;
}

static void remove_input(struct scheduler *s, struct planned_kernel *k, const struct node *n) {
  unsigned i = input_at(k, number_of(s, n));
  if (i < k->ninputs) k->input[i] = k->input[--k->ninputs];
}

static unsigned tensor_sources(const struct uop *u) {
  return u->op == OP_GATHER ? 1 : schedule_nsources(u); /* schedule_gather handles the index of a GATHER */
}

/* Whether k would read too many buffers if n were replaced by its sources. */
static bool exceeds_inputs(struct scheduler *s, const struct planned_kernel *k, const struct node *n) {
  unsigned more = 0, sources = tensor_sources(n->u);
  for (unsigned i = 0; i < sources; i++) {
    struct node *x = node_of(s, n->u->src[i]);
    more += is_input(x) && input_at(k, number_of(s, x)) == k->ninputs;
  }
  return more > 1 && k->ninputs - 1 + more > MOST_INPUTS;
}

/* Whether n can be realized at the cost of its memory only: RESHAPE and CONTIGUOUS are skipped elsewhere, and an EXPAND
 * would be larger than its source. */
static bool may_realize(const struct uop *u) {
  return u->op != OP_RESHAPE && u->op != OP_CONTIGUOUS && u->op != OP_EXPAND && u->op != OP_IOTA;
}

/* Whether n is cheap to compute from positions and constants: it is computed wherever it is used. */
static bool needs_no_memory(const struct node *n) { return !n->reads && n->cost <= REPEATED; }

/* Finds or adds the use (idx, valid) of n in a kernel. Returns NO_USE if the value will be loaded from memory or needs
 * no index. */
static uint32_t add_use(struct scheduler *s, struct node *n, const struct use *like, struct uop **idx,
                        struct uop *valid) {
  if (in_memory(n) || op_info[n->u->op].cls == OPCLASS_LEAF || n->numel == 0) return NO_USE;
  if (n->nuses >= MAX_USES && is_alu(n->u) && !needs_no_memory(n)) {
    mark_realized(n, SCHEDULE_EXPENSIVE);
    return NO_USE;
  }
  unsigned rank = n->u->shape->rank, looked = 0;
  for (uint32_t i = n->use; i != NO_USE && looked < 8; i = s->use[i].next, looked++) {
    struct use *w = &s->use[i];
    if (w->kernel != like->kernel || w->valid != valid) continue;
    if (w->idx != idx && memcmp(w->idx, idx, rank * sizeof *idx) != 0) continue;
    w->in_reduce |= like->in_reduce, w->expanded |= like->expanded;
    if (w->sum != like->sum) w->sum = NULL;
    if (w->depth < like->depth) w->depth = like->depth;
    return i;
  }
  struct use *p = schedule_grow(s, s->use, s->nuses, &s->uses_capacity, sizeof *p);
  if (!p) return NO_USE;
  s->use = p;
  p[s->nuses] = (struct use){.kernel = like->kernel,
                             .idx = idx,
                             .valid = valid,
                             .in_reduce = like->in_reduce,
                             .expanded = like->expanded,
                             .depth = like->depth,
                             .sum = like->sum,
                             .next = n->use};
  n->use = (uint32_t)s->nuses++;
  n->nuses++;
  return n->use;
}

/* Whether each dimension of the node is indexed by a different LOOP range of the kernel. Stores the mask of the other
 * ranges in left. */
static bool follows_loops(struct scheduler *s, struct node *n, const struct use *w, unsigned *left) {
  const struct shape *shape = n->u->shape;
  struct planned_kernel *k = w->kernel;
  unsigned used = 0;
  for (unsigned i = 0; i < shape->rank; i++) {
    struct uop *x = w->idx[i];
    if (uop_is_const(x) && uop_is_const(shape->dim[i]) && shape->dim[i]->arg.i == 1) continue;
    if (x->op != OP_RANGE || x->aux != AXIS_LOOP) return false;
    unsigned at = 0;
    while (at < k->nranges && k->range[at] != x) at++;
    if (at == k->nranges || (used >> at & 1) || x->src[0] != simplify(s->simplifier, shape->dim[i])) return false;
    used |= 1u << at;
  }
  *left = ((1u << k->nranges) - 1) & ~used;
  return true;
}

int64_t schedule_elements(const struct planned_kernel *k, unsigned ranges) {
  int64_t n = 1;
  for (unsigned i = 0; i < k->nranges; i++)
    if ((ranges >> i & 1) && __builtin_mul_overflow(n, uop_max(k->range[i]) + 1, &n)) return INT64_MAX;
  return n;
}

static double bytes_read(const struct uop *reduce) {
  return (double)shape_numel(reduce->src[0]->shape) * dtype_info[reduce->src[0]->dtype].size;
}

/* Whether the kernel has another reduce that reads much more than this one, as a variance over parts of columns does
 * for each of the means. */
static bool reads_much_more(const struct node *n, const struct use *w) {
  enum { MUCH = 8 };
  return w->kernel->read > MUCH * bytes_read(n->reduce->u);
}

/* Whether a kernel with this reduce's workgroups leaves most of the machine idle for longer than a launch takes. */
static bool leaves_idle(const struct scheduler *s, const struct node *n, const struct use *w) {
  const struct schedule_machine *m = schedule_machine_of(s, n->device);
  double bytes = bytes_read(n->reduce->u), share = schedule_share(m, schedule_workgroups(m, n->reduce->u));
  if (w->kernel->read > bytes) bytes = w->kernel->read;
  return (bytes / share - bytes) / m->bytes_per_ns > m->launch_ns;
}

/* Whether the remaining ranges `left` cover exactly what the reduce consumed, that is, their number of elements equals
 * that of the elements reduced to one result, and the rows keep the machine busy. */
static bool repeats_row(const struct scheduler *s, struct node *n, const struct use *w, unsigned left) {
  struct node *r = n->reduce;
  int64_t rows = n->numel, length = schedule_elements(w->kernel, left), all = shape_numel(r->u->src[0]->shape);
  if (rows <= 0 || all < 0 || rows != r->numel || all / rows != length) return false;
  bool many = rows >= schedule_machine_of(s, n->device)->groups && !reads_much_more(n, w);
  return many || !leaves_idle(s, n, w);
}

/* The number of elements that x repeats or rearranges. */
static int64_t elements_behind(const struct uop *x) {
  while (is_movement(x) || x->op == OP_CAST) x = x->src[0];
  return shape_numel(x->shape);
}

/* Whether a kernel of phases may compute x again where it is needed: x is computed, element by element, from sums of
 * products whose factors are much smaller. */
static bool may_be_recomputed(const struct scheduler *s, struct uop *x, unsigned depth) {
  enum { DEEP = 8, MUCH = 2 };
  bool found = false;
  if (x->op == OP_REDUCE_AXIS) {
    struct uop *product = x->src[0];
    while (product->op == OP_CAST) product = product->src[0];
    if (x->aux != OP_ADD || product->op != OP_MUL) return false;
    int64_t factors = elements_behind(product->src[0]) + elements_behind(product->src[1]);
    return repeats_elements(product->src[0]) && repeats_elements(product->src[1]) &&
           node_of(s, x)->numel > MUCH * factors;
  }
  if (x->op != OP_CAST && !is_movement(x) && !is_alu(x)) return false;
  for (unsigned i = 0; i < tensor_sources(x) && depth < DEEP && !found; i++)
    found = may_be_recomputed(s, x->src[i], depth + 1);
  return found;
}

/* Whether the remaining ranges are so short that one work-item runs them all after computing the reduce once (softmax
 * times a narrow matrix is one kernel). */
static bool is_narrow(const struct scheduler *s, struct node *n, const struct use *w, unsigned left) {
  int64_t all = shape_numel(n->reduce->u->src[0]->shape);
  if (n->numel <= 0 || all < 0 || schedule_elements(w->kernel, left) > NARROW) return false;
  if (schedule_machine_of(s, n->device)->phase_items && may_be_recomputed(s, n->reduce->u->src[0], 0)) return false;
  if (reads_much_more(n, w) && leaves_idle(s, n, w)) return false;
  return n->numel >= schedule_machine_of(s, n->device)->groups || all / n->reduce->numel <= NARROW_LENGTH;
}

/* The mask of the kernel's output ranges that an index depends on; all of them if the index is too deep to search. */
static unsigned ranges_of(const struct planned_kernel *k, const struct uop *u, unsigned depth) {
  unsigned found = 0;
  if (u->op == OP_RANGE) {
    for (unsigned i = 0; i < k->nranges; i++) found |= (unsigned)(k->range[i] == u) << i;
    return found;
  }
  if (depth == 8 && u->nsrc) return (1u << k->nranges) - 1;
  for (unsigned i = 0; i < u->nsrc; i++) found |= ranges_of(k, u->src[i], depth + 1);
  return found;
}

/* The number of times that a kernel evaluates the same element of n. */
static int64_t evaluations_per_element(const struct node *n, const struct use *w) {
  unsigned found = 0;
  for (unsigned i = 0; i < n->u->shape->rank; i++) found |= ranges_of(w->kernel, w->idx[i], 0);
  return schedule_elements(w->kernel, ((1u << w->kernel->nranges) - 1) & ~found);
}

/* A reduce inside another one that it depends on is repeated for each of the kernel's other results. If that is little
 * work, and the reduce only reads memory or another reduce, a separate kernel would cost more. */
static bool is_short_inside(struct scheduler *s, struct node *n, const struct use *w) {
  struct planned_kernel *k = w->kernel;
  struct uop *x = n->reduce->u->src[0];
  while (is_movement(x)) x = x->src[0];
  struct node *below = node_of(s, x);
  if (!in_memory(below) && !below->reduce) return false;
  /* A sum over a sum becomes one long sum in a kernel of its own (sum.c). */
  bool sums = x->op == OP_REDUCE_AXIS && x->aux == OP_ADD && n->reduce->u->aux == OP_ADD;
  if (sums && !in_memory(below)) return false;
  int64_t all = shape_numel(n->reduce->u->src[0]->shape), results = 1;
  for (unsigned i = 0; i < k->nranges; i++)
    if (__builtin_mul_overflow(results, uop_max(k->range[i]) + 1, &results)) return false;
  return n->numel > 0 && all > 0 && all / n->reduce->numel <= SHORT_REDUCE && results <= FEW_RESULTS && !k->serial &&
         n->cost <= REPEATED && evaluations_per_element(n, w) - 1 <= REPEATED_TERMS / all;
}

/* Whether a sum of few products of integers is a term of another sum, which uses it once. Compilers keep it in
 * registers (a product of quantized vectors). */
static bool is_integer_term(struct node *n, const struct use *w) {
  const struct uop *u = n->reduce->u, *x = u->src[0];
  while (x->op == OP_CAST) x = x->src[0];
  int64_t all = shape_numel(x->shape);
  return dtype_info[u->dtype].cls == 'i' && u->aux == OP_ADD && x->op == OP_MUL && !w->expanded && !w->kernel->serial &&
         n->numel > 0 && all > 0 && all / n->reduce->numel <= SHORT_REDUCE;
}

bool schedule_is_contraction(const struct uop *u) {
  const struct uop *x = u->src[0];
  while (x->op == OP_CAST) x = x->src[0];
  return u->aux == OP_ADD && x->op == OP_MUL && repeats_elements(x->src[0]) && repeats_elements(x->src[1]) &&
         shape_numel(x->shape) >= LARGE_CONTRACTION;
}

/* Whether a use evaluates n at twice as many positions as it has elements, most of them padding: the gradient of a
 * convolution with stride 2. */
static bool is_mostly_padding(const struct node *n, const struct use *w) {
  return w->valid && n->numel > 0 && schedule_elements(w->kernel, (1u << w->kernel->nranges) - 1) / n->numel >= 2;
}

/* Whether x is computed element by element from a tensor in memory of the same shape. */
static bool reads_elements(const struct scheduler *s, struct uop *x, unsigned depth) {
  enum { DEEP = 8 };
  if (x->op != OP_CAST && !is_alu(x)) return in_memory(node_of(s, base_of(x)));
  bool found = false;
  for (unsigned i = 0; i < x->nsrc && depth < DEEP && !found; i++) found = reads_elements(s, x->src[i], depth + 1);
  return found;
}

/* Whether a machine that sums columns row by row reads a large matrix from memory for a reduction along its columns. It
 * does so for one reduction at a time, whose results go to memory: several kernels that read in order take less time
 * than one that reads each column twice. */
static bool reads_columns(const struct scheduler *s, const struct node *n) {
  struct uop *u = n->reduce->u, *x = u->src[0];
  unsigned rank = x->shape->rank;
  int64_t all = shape_numel(x->shape), columns = rank < 2 ? 0 : uop_max(x->shape->dim[rank - 1]);
  bool large = columns >= COLUMNS_LEAST && !(u->arg.i >> (rank - 1) & 1) && n->reduce->numel > 0 &&
               all * dtype_info[x->dtype].size >= COLUMNS_BYTES && all / n->reduce->numel >= COLUMNS_ROWS;
  return large && schedule_machine_of(s, n->device)->columns && reads_elements(s, x, 0);
}

/* The reason why a node that passes on a reduce must be realized, or -1 if it stays in its only kernel. */
static int realize_reduce_reason(struct scheduler *s, struct node *n, struct use *w) {
  struct planned_kernel *k = w->kernel;
  unsigned left = 0, serial = 0;
  bool inside = false, term = false;
  if (n->nuses > 1) return SCHEDULE_SHARED;
  if (w->in_reduce || w->expanded) {
    bool once = follows_loops(s, n, w, &left);
    if (w->in_reduce && !once) {
      if ((w->merged = schedule_sums_merge(s, n, w))) return -1;
      term = is_integer_term(n, w);
      if (!term && !is_short_inside(s, n, w)) return SCHEDULE_NESTED;
      inside = !term;
    } else if (left && reads_columns(s, n))
      return SCHEDULE_REPEATED;
    else if (!once || (left && !repeats_row(s, n, w, left) && !is_narrow(s, n, w, left)))
      return SCHEDULE_REPEATED;
    else
      serial = left;
  }
  if (n->u->op != OP_REDUCE_AXIS) return -1;
  if (w->in_reduce && !inside && !term && reads_columns(s, n)) return SCHEDULE_NESTED;
  if (k->nreduces && k->next_axis + n->u->src[0]->shape->rank > MOST_AXES) return SCHEDULE_CROWDED;
  bool together = k->serial == serial || schedule_elements(k, k->serial | serial) <= NARROW;
  bool contracts = schedule_is_contraction(n->u);
  if (contracts && is_mostly_padding(n, w)) return SCHEDULE_PADDED;
  if (k->nreduces && !k->serial && !serial && (contracts || k->contracts)) return SCHEDULE_CROWDED;
  if (k->nreduces && (!together || k->nreduces == MAX_REDUCES)) return SCHEDULE_CROWDED;
  if (inside && k->nreduces > 1) return SCHEDULE_NESTED;
  k->nreduces++, k->serial |= serial, k->contracts = contracts;
  return -1;
}

/* The reason why the kernels that use n cannot contain it, or -1 if they can. */
static int realize_for_limits(struct scheduler *s, const struct node *n) {
  if (!may_realize(n->u)) return -1;
  for (uint32_t w = n->use; w != NO_USE; w = s->use[w].next) {
    if (s->use[w].depth >= MOST_DEPTH) return SCHEDULE_DEEP;
    if (exceeds_inputs(s, s->use[w].kernel, n)) return SCHEDULE_WIDE;
  }
  return -1;
}

/* The number of uses of n that read more than a few of its elements, at least 1. */
static unsigned large_uses(struct scheduler *s, const struct node *n) {
  unsigned large = 0;
  for (uint32_t i = n->use; i != NO_USE; i = s->use[i].next) {
    double reached = 1;
    for (unsigned k = 0; k < n->u->shape->rank; k++)
      reached *= (double)uop_max(s->use[i].idx[k]) - (double)uop_min(s->use[i].idx[k]) + 1;
    large += n->numel < 0 || reached * FEW_OF > (double)n->numel;
  }
  return large ? large : 1;
}

/* Adds the elements of the memory and of the reduces from which x is computed element by element. Stops when there are
 * more than `most`. */
static void add_sources(const struct scheduler *s, struct uop *x, unsigned depth, int64_t most, int64_t *elements,
                        bool *reduces) {
  enum { DEEP = 16 };
  bool reduce = x->op == OP_REDUCE_AXIS, computed = x->op == OP_CAST || is_movement(x) || is_alu(x);
  if (op_info[x->op].cls == OPCLASS_LEAF && !in_memory(node_of(s, x))) return;
  if (reduce || !computed || in_memory(node_of(s, base_of(x)))) {
    *elements += elements_behind(x), *reduces = *reduces || reduce;
    return;
  }
  if (depth == DEEP) *elements = most + 1;
  for (unsigned i = 0; i < tensor_sources(x) && *elements <= most; i++)
    add_sources(s, x->src[i], depth + 1, most, elements, reduces);
}

/* Whether n is computed from sums or maxima of its rows and from other tensors that together are much smaller, like the
 * softmax of an outer product. Its memory would grow with the product of two lengths. A host computes it again only if
 * it is long. */
static bool is_outer(const struct scheduler *s, const struct node *n) {
  enum { MUCH = 16, LONG = 1 << 26 };
  int64_t elements = 0;
  bool reduces = false;
  if (n->numel < (schedule_machine_of(s, n->device)->phase_items ? 0 : LONG)) return false;
  if (n->cost <= NARROW_COST) add_sources(s, n->u, 0, n->numel / MUCH, &elements, &reduces);
  return reduces && elements * MUCH <= n->numel;
}

static int realize_reason(struct scheduler *s, struct node *n) {
  int why = realize_for_limits(s, n);
  if (why >= 0) return why;
  if (!n->nuses || (n->u->op != OP_REDUCE_AXIS && !is_alu(n->u))) return -1;
  struct use *w = &s->use[n->use];
  if (n->reduce) return realize_reduce_reason(s, n, w);
  if (needs_no_memory(n) || is_outer(s, n)) return -1;
  if ((uint64_t)(n->nuses - 1) * n->cost > RECOMPUTE && (uint64_t)(large_uses(s, n) - 1) * n->cost > RECOMPUTE)
    return SCHEDULE_EXPENSIVE;
  if (n->cost > REPEATED && w->in_reduce && w->expanded) {
    int64_t again = evaluations_per_element(n, w) - 1;
    if (n->cost > NARROW_COST || again > NARROW_COST / n->cost || again >= NARROW) return SCHEDULE_EXPENSIVE;
  }
  return -1;
}

/* Begins a kernel for n with new ranges over a shape. value: what it computes, of this shape; NULL: each axis has one
 * loop. */
static struct planned_kernel *start_kernel(struct scheduler *s, struct node *n, const struct shape *shape,
                                           struct uop *value) {
  struct graph *g = s->graph;
  struct planned_kernel *k = n->kernel = graph_alloc(g, sizeof *k);
  if (k) k->idx = schedule_index_array(s, shape->rank);
  if (!k || !k->idx) {
    schedule_no_memory(s);
    return NULL;
  }
  k->value_use = NO_USE;
  schedule_make_loops(s, k, shape, value);
  return k;
}

/* Begins a kernel that writes n, which is then the only use of n. */
static void start_realized(struct scheduler *s, struct node *n) {
  struct planned_kernel *k = start_kernel(s, n, n->u->shape, n->u);
  n->use = NO_USE, n->nuses = 0;
  if (!k) return;
  n->realized = false; /* otherwise add_use would not record the use */
  add_use(s, n, &(struct use){.kernel = k}, k->idx, NULL);
  n->realized = true;
}

uint32_t schedule_start_piece(struct scheduler *s, struct node *n, struct node *x, const struct shape *shape) {
  bool walks = n->u->op == OP_SCATTER || n->u->op == OP_SEGMENTS; /* along an axis of the result */
  struct planned_kernel *k = start_kernel(s, n, shape, walks ? NULL : x->u);
  if (!k) return NO_USE;
  uint32_t use = add_use(s, x, &(struct use){.kernel = k}, k->idx, NULL);
  schedule_add_input(s, k, x);
  return use;
}

uint32_t schedule_use_at(struct scheduler *s, struct node *n, struct node *x, struct uop **idx) {
  uint32_t use = add_use(s, x, &(struct use){.kernel = n->kernel}, idx, NULL);
  schedule_add_input(s, n->kernel, x);
  return use;
}

static void start_assign(struct scheduler *s, struct node *n) {
  struct node *value = node_of(s, n->u->src[2]);
  if (value->device == NO_DEVICE) value->device = n->device;
  if (n->numel == 0 || node_of(s, n->u->src[1])->numel == 0) return;
  n->why = SCHEDULE_ASSIGNED;
  uint32_t use = schedule_start_piece(s, n, value, n->u->src[1]->shape);
  if (n->kernel) n->kernel->value_use = use;
}

/* Adds the uses of n's sources that use i of n causes. */
static void propagate(struct scheduler *s, struct node *n, uint32_t i) {
  struct graph *g = s->graph;
  struct uop *u = n->u;
  struct use w = s->use[i]; /* a copy, because adding uses may move the array */
  w.src_idx = w.idx, w.src_valid = w.valid;
  for (unsigned k = 0; k < 3; k++) w.src_use[k] = NO_USE;
  struct use like = w;
  if (like.depth < UINT16_MAX) like.depth++;
  if (!is_movement(u)) like.sum = u->op == OP_REDUCE_AXIS && u->aux == OP_ADD && !w.merged && !w.in_reduce ? n : NULL;
  if (w.kernel->depth < like.depth) w.kernel->depth = like.depth;
  if (is_movement(u)) {
    w.src_idx = schedule_index_array(s, u->src[0]->shape->rank);
    if (!w.src_idx) return;
    if (node_of(s, u->src[0])->numel != 0) index_movement(s->simplifier, u, w.idx, w.src_idx, &w.src_valid, &w.padded);
    if (u->op == OP_EXPAND && !shape_equal(u->shape, u->src[0]->shape)) like.expanded = true;
  } else if (u->op == OP_GATHER) {
    w.src_idx = schedule_index_array(s, u->src[0]->shape->rank);
    if (!w.src_idx) return;
    int64_t size = node_of(s, u->src[0])->numel;
    if (size != 0 && !schedule_gather(s, w.kernel, u, w.idx, w.src_idx, &w.src_valid, &w.padded)) return;
    if (n->numel < 0 || size < 0 || n->numel > size) like.expanded = true; /* an element may be read more than once */
  } else if (u->op == OP_REDUCE_AXIS) {
    const struct shape *x = u->src[0]->shape;
    if (bytes_read(u) > w.kernel->read) w.kernel->read = bytes_read(u);
    w.src_idx = schedule_index_array(s, x->rank);
    w.range = schedule_index_array(s, x->rank);
    if (!w.src_idx || !w.range) return;
    for (unsigned a = 0; a < x->rank; a++) {
      w.src_idx[a] = w.idx[a];
      if (!(u->arg.i >> a & 1)) continue;
      struct uop *dim = simplify(s->simplifier, x->dim[a]);
      w.src_idx[a] = uop_is_const(dim) && dim->arg.i <= 1 ? uop_index(g, 0)
                                                          : uop_range(g, dim, w.kernel->next_axis++, AXIS_REDUCE);
      if (w.src_idx[a]->op == OP_RANGE) w.range[w.nranges++] = w.src_idx[a];
    }
    like.in_reduce = true;
    unsigned left;
    if (follows_loops(s, n, &w, &left)) like.expanded = false; /* the result is repeated, but its sources are not */
  }
  unsigned sources = tensor_sources(u);
  remove_input(s, w.kernel, n);
  for (unsigned k = 0; k < sources; k++) {
    struct node *x = node_of(s, u->src[k]);
    if (x->device == NO_DEVICE) x->device = n->device; /* an expression of constants: computed where it is used */
    w.src_use[k] = add_use(s, x, &like, w.src_idx, w.src_valid);
    schedule_add_input(s, w.kernel, x);
  }
  w.next = s->use[i].next;
  s->use[i] = w;
}

void schedule_realize_source(struct scheduler *s, struct node *n) {
  struct uop *u = n->u;
  for (unsigned i = 0; u->op == OP_CUSTOM && i < schedule_nsources(u); i++) {
    struct node *b = node_of(s, base_of(u->src[i]));
    if (!in_memory(b)) mark_realized(b, SCHEDULE_LAUNCHED);
    if (b->device == NO_DEVICE) b->device = n->device;
  }
  if (u->op != OP_CONTIGUOUS && u->op != OP_COPY && u->op != OP_EXCHANGE) return;
  struct node *b = node_of(s, base_of(u->src[0]));
  enum schedule_reason why = u->op == OP_COPY                  ? SCHEDULE_COPIED
                             : u->op == OP_EXCHANGE            ? SCHEDULE_EXCHANGED
                             : u->arg.i == CONTIGUOUS_PARTIAL  ? SCHEDULE_PARTIAL
                             : u->arg.i == CONTIGUOUS_ALIGNED  ? SCHEDULE_ALIGNED
                             : u->arg.i == CONTIGUOUS_CHANNELS ? SCHEDULE_CHANNELS
                             : u->arg.i == CONTIGUOUS_BYTES    ? SCHEDULE_BYTES
                                                               : SCHEDULE_CONTIGUOUS;
  if (!in_memory(b)) mark_realized(b, why);
  if (u->op == OP_COPY && b->device == NO_DEVICE) b->device = n->device;
}

void schedule_uses(struct scheduler *s, struct node *n) {
  struct uop *u = n->u;
  schedule_realize_source(s, n);
  if (u->op == OP_ASSIGN) start_assign(s, n);
  if (u->op == OP_JOIN) schedule_join_uses(s, n);
  if (u->op == OP_SCATTER) schedule_scatter_uses(s, n);
  if (u->op == OP_SEGMENTS) schedule_segment_uses(s, n);
  if (is_memory(u)) return;
  if (!n->realized) {
    int why = realize_reason(s, n);
    if (why >= 0) mark_realized(n, (enum schedule_reason)why);
  }
  if (n->realized) start_realized(s, n);
  for (uint32_t w = n->use; w != NO_USE && !s->status; w = s->use[w].next) propagate(s, n, w);
}
