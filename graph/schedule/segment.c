/* Scheduling: SEGMENTS, the combination of values whose index is sorted. Those of one position are adjacent in the
 * order, so each element of the result is a sum over a range of positions that is loaded from memory. Three kernels:
 * - where the elements of each position begin: a binary search in the sorted keys;
 * - combinations of whole blocks of elements, if one position has all elements of the block. So a position with very
 * many elements does not leave the machine waiting for one work-item;
 * - the result: the elements before the first whole block, the blocks, the elements after the last one. */
#include "scheduler.h"
#include <string.h>

enum {
  LEAST_BLOCK = 32, /* elements */
  FEW_BLOCKS = 16   /* blocks that take about as long as an element of one, because they are combined last */
};

/* A sum over a range of positions in the order, as a RANGE, and the use of the value in it. */
struct run {
  struct uop *range;
  uint32_t use;
  struct uop **idx; /* the element of value */
};
struct segments {
  unsigned places, walked;
  int64_t n, block; /* elements of the index, and of a block; 0: there are no blocks */
  struct uop *begin, *sums;
  struct planned_kernel *search, *whole, *result;
  struct run in_block, head, blocks, tail; /* in_block: of `whole` */
};

static struct uop *temporary(struct scheduler *s, const struct node *n, enum dtype t, int64_t size) {
  struct uop *elements = uop_index(s->graph, size);
  unsigned device = n->device == NO_DEVICE ? 0 : n->device;
  return uop_new(s->graph, OP_BUFFER, t, 1, (union uop_arg){.i = (*s->next_buffer)++}, device, &elements, 1);
}

static struct uop *load(struct scheduler *s, struct uop *buffer, struct uop *at) {
  struct uop *src[] = {buffer, at};
  struct uop *index = uop_new(s->graph, OP_INDEX, buffer->dtype, 1, (union uop_arg){0}, 0, src, 2);
  return uop_new(s->graph, OP_LOAD, buffer->dtype, 1, (union uop_arg){0}, 0, &index, 1);
}
static struct uop *load_index(struct scheduler *s, struct uop *buffer, struct uop *at) {
  return uop_cast(s->graph, load(s, buffer, at), DT_INDEX);
}

static struct uop *binary(struct scheduler *s, enum op op, struct uop *a, struct uop *b) {
  return index_binary(s->simplifier, op, a, b);
}
static struct uop *number(struct scheduler *s, int64_t v) { return uop_index(s->graph, v); }
static struct uop *larger(struct scheduler *s, struct uop *a, struct uop *b) { return binary(s, OP_MAX, a, b); }
static struct uop *smaller(struct scheduler *s, struct uop *a, struct uop *b) {
  return uop_where(s->graph, uop_binary(s->graph, OP_CMPLT, a, b), a, b);
}
/* x, which is at most `most`, with this upper bound. */
static struct uop *at_most(struct scheduler *s, struct uop *x, int64_t most) {
  return binary(s, OP_SUB, number(s, most), larger(s, binary(s, OP_SUB, number(s, most), x), number(s, 0)));
}

/* The memory of source i of the SEGMENTS, the order or the keys. */
static struct node *memory_of_source(struct scheduler *s, const struct node *n, unsigned i) {
  struct node *b = node_of(s, base_of(n->u->src[i]));
  if (b->device == NO_DEVICE) b->device = n->device;
  if (!in_memory(b)) b->realized = true, b->why = SCHEDULE_SCATTERED;
  return b;
}

/* The position in the order, or in the keys, of element `at` along the walked axis; idx: of the result or the value. */
static struct uop *place(struct scheduler *s, const struct node *n, const struct segments *p, struct uop *const *idx,
                         struct uop *at) {
  const struct shape *shape = n->u->src[1]->shape;
  struct uop *to[MAX_RANK];
  for (unsigned i = 0; i < shape->rank; i++)
    to[i] = i == p->walked ? at : shape->dim[i]->arg.i == 1 ? number(s, 0) : idx[i];
  return index_flatten(s->simplifier, shape, to);
}

/* Where the elements of a position begin is stored for the positions 0 to size: idx is an index of the result. */
static struct uop *begin_at(struct scheduler *s, const struct node *n, const struct segments *p, struct uop *const *idx,
                            struct uop *position) {
  struct shape shape = *n->u->src[1]->shape;
  struct uop *to[MAX_RANK];
  shape.dim[p->walked] = number(s, 1);
  for (unsigned i = 0; i < shape.rank; i++) to[i] = shape.dim[i]->arg.i == 1 ? number(s, 0) : idx[i];
  shape.dim[p->places] = number(s, n->u->src[3]->arg.i + 1), to[p->places] = position;
  return index_flatten(s->simplifier, &shape, to);
}

/* A use, in kernel k, of the value of each element in the order from `first` on. */
static struct run plan_run(struct scheduler *s, struct node *n, const struct segments *p, struct planned_kernel *k,
                           struct uop *first, struct uop *count) {
  struct run r = {.range = uop_range(s->graph, count, k->next_axis++, AXIS_REDUCE),
                  .idx = schedule_index_array(s, n->u->shape->rank)};
  if (!r.idx) return r;
  struct uop *order = schedule_buffer(s, memory_of_source(s, n, 1));
  memcpy(r.idx, k->idx, n->u->shape->rank * sizeof *r.idx);
  r.idx[p->places] = number(s, 0);
  r.idx[p->walked] = load_index(s, order, place(s, n, p, k->idx, binary(s, OP_ADD, first, r.range)));
  n->kernel = k;
  r.use = schedule_use_at(s, n, node_of(s, n->u->src[0]), r.idx);
  return r;
}

/* Plans the kernel of whole blocks. */
static void plan_blocks(struct scheduler *s, struct node *n, struct segments *p) {
  struct shape shape = *n->u->src[0]->shape;
  struct node *none = node_of(s, n->u->src[4]);
  int64_t count = p->n / p->block;
  shape.dim[p->walked] = number(s, count);
  schedule_start_piece(s, n, none, &shape);
  struct planned_kernel *k = p->whole = n->kernel;
  if (!k) return;
  p->sums = temporary(s, n, n->u->dtype, shape_numel(n->u->src[0]->shape) / p->n * count);
  struct uop *keys = schedule_buffer(s, memory_of_source(s, n, 2));
  struct uop *first = binary(s, OP_MUL, k->idx[p->walked], number(s, p->block));
  struct uop *last = binary(s, OP_ADD, first, number(s, p->block - 1));
  struct uop *one = uop_binary(s->graph, OP_CMPEQ, load(s, keys, place(s, n, p, k->idx, first)),
                               load(s, keys, place(s, n, p, k->idx, last)));
  p->in_block = plan_run(s, n, p, k, first, uop_where(s->graph, one, number(s, p->block), number(s, 0)));
}

static void plan_result(struct scheduler *s, struct node *n, struct segments *p) {
  schedule_start_piece(s, n, node_of(s, n->u->src[4]), n->u->shape);
  struct planned_kernel *k = p->result = n->kernel;
  if (!k) return;
  struct uop *position = k->idx[p->places], *next = binary(s, OP_ADD, position, number(s, 1));
  struct uop *from = load_index(s, p->begin, begin_at(s, n, p, k->idx, position)),
             *to = load_index(s, p->begin, begin_at(s, n, p, k->idx, next));
  if (!p->block) {
    p->head = plan_run(s, n, p, k, from, at_most(s, binary(s, OP_SUB, to, from), p->n));
    return;
  }
  struct uop *block = number(s, p->block);
  struct uop *up = binary(s, OP_IDIV, binary(s, OP_ADD, from, number(s, p->block - 1)), block),
             *down = binary(s, OP_IDIV, to, block);
  struct uop *end = smaller(s, binary(s, OP_MUL, up, block), to);
  struct uop *rest = larger(s, binary(s, OP_MUL, down, block), end);
  p->head = plan_run(s, n, p, k, from, at_most(s, binary(s, OP_SUB, end, from), p->block - 1));
  struct uop *count = larger(s, binary(s, OP_SUB, down, up), number(s, 0));
  p->blocks.range = uop_range(s->graph, at_most(s, count, p->n / p->block), k->next_axis++, AXIS_REDUCE);
  p->blocks.idx = schedule_index_array(s, n->u->shape->rank);
  if (!p->blocks.idx) return;
  memcpy(p->blocks.idx, k->idx, n->u->shape->rank * sizeof *k->idx);
  p->blocks.idx[p->places] = number(s, 0);
  p->blocks.idx[p->walked] = binary(s, OP_ADD, up, p->blocks.range);
  p->tail = plan_run(s, n, p, k, rest, at_most(s, binary(s, OP_SUB, to, rest), p->block - 1));
}

void schedule_segment_uses(struct scheduler *s, struct node *n) {
  n->why = SCHEDULE_SCATTERED;
  if (n->numel == 0) return;
  struct segments *p = n->segments = graph_alloc(s->graph, sizeof *p);
  if (!p) {
    schedule_no_memory(s);
    return;
  }
  *p = (struct segments){.places = n->u->arg.i & 15, .walked = n->u->arg.i >> 4 & 15};
  struct node *value = node_of(s, n->u->src[0]), *none = node_of(s, n->u->src[4]);
  struct shape shape = *n->u->src[1]->shape;
  p->n = shape.dim[p->walked]->arg.i;
  if (value->device == NO_DEVICE) value->device = n->device;
  schedule_scatter_inputs(s, n->u->src[0]);
  for (unsigned i = 1; i < 3; i++) memory_of_source(s, n, i);
  for (p->block = LEAST_BLOCK; FEW_BLOCKS * p->block * p->block < p->n;) p->block *= 2;
  if (p->n < 2 * p->block) p->block = 0;
  shape.dim[p->walked] = number(s, 1), shape.dim[p->places] = number(s, n->u->src[3]->arg.i + 1);
  p->begin = temporary(s, n, DT_I32, shape_numel(n->u->src[1]->shape) / p->n * (n->u->src[3]->arg.i + 1));
  schedule_start_piece(s, n, none, &shape);
  p->search = n->kernel;
  if (p->block) plan_blocks(s, n, p);
  plan_result(s, n, p);
  n->kernel = NULL;
}

/* ---- values ---- */

static void add_kernel(struct scheduler *s, struct node *n, struct planned_kernel *k, struct uop *buffer,
                       struct uop *at, struct uop *value) {
  struct uop *src[] = {buffer, at};
  n->kernel = k;
  struct unit *u =
      schedule_add_kernel(s, n, uop_new(s->graph, OP_INDEX, buffer->dtype, 1, (union uop_arg){0}, 0, src, 2), value);
  if (u) u->scatters = true;
}

/* The number of keys below a position, found from the highest bit to the lowest. */
static void search_begin(struct scheduler *s, struct node *n, struct segments *p) {
  struct graph *g = s->graph;
  struct planned_kernel *k = p->search;
  struct uop *keys = schedule_buffer(s, memory_of_source(s, n, 2)), *position = k->idx[p->places], *at = number(s, 0);
  struct uop *end = uop_const_int(g, DT_I32, n->u->src[3]->arg.i), *wanted = uop_cast(g, position, DT_I32);
  int64_t step = 1;
  while (step * 2 <= p->n) step *= 2;
  for (; step; step /= 2) {
    struct uop *last = uop_binary(g, OP_ADD, at, number(s, step - 1));
    struct uop *src[] = {keys, place(s, n, p, k->idx, last), uop_binary(g, OP_CMPLT, last, number(s, p->n))};
    struct uop *key[] = {uop_new(g, OP_INDEX, DT_I32, 1, (union uop_arg){0}, 0, src, 3), end};
    struct uop *below = uop_binary(g, OP_CMPLT, uop_new(g, OP_LOAD, DT_I32, 1, (union uop_arg){0}, 0, key, 2), wanted);
    at = uop_binary(g, OP_ADD, at, uop_where(g, below, number(s, step), number(s, 0)));
  }
  add_kernel(s, n, k, p->begin, begin_at(s, n, p, k->idx, position), uop_cast(g, at, DT_I32));
}

static struct uop *reduce(struct scheduler *s, const struct node *n, struct uop *value, struct uop *range) {
  struct uop *src[] = {value, range};
  return uop_new(s->graph, OP_REDUCE, n->u->dtype, 1, (union uop_arg){0}, n->u->aux, src, 2);
}
static struct uop *value_of_run(struct scheduler *s, const struct node *n, const struct run *r) {
  return reduce(s, n, schedule_value_at(s, node_of(s, n->u->src[0]), r->idx, NULL, r->use), r->range);
}

/* The element of the sums of blocks at an index whose walked axis counts blocks. */
static struct uop *block_at(struct scheduler *s, const struct node *n, const struct segments *p,
                            struct uop *const *idx) {
  struct shape shape = *n->u->src[0]->shape;
  shape.dim[p->walked] = number(s, p->n / p->block);
  return index_flatten(s->simplifier, &shape, idx);
}

void schedule_segment_values(struct scheduler *s, struct node *n) {
  struct segments *p = n->segments;
  enum op op = n->u->aux;
  if (n->numel == 0 || !p || !p->search || !p->result || (p->block && !p->whole)) return;
  search_begin(s, n, p);
  if (p->block) add_kernel(s, n, p->whole, p->sums, block_at(s, n, p, p->whole->idx), value_of_run(s, n, &p->in_block));
  struct uop *result = value_of_run(s, n, &p->head);
  if (p->block) {
    struct uop *sum = load(s, p->sums, block_at(s, n, p, p->blocks.idx));
    result = uop_binary(s->graph, op, result, reduce(s, n, sum, p->blocks.range));
    result = uop_binary(s->graph, op, result, value_of_run(s, n, &p->tail));
  }
  struct uop *at = index_flatten(s->simplifier, n->u->shape, p->result->idx);
  add_kernel(s, n, p->result, schedule_buffer(s, n), at, result);
}
