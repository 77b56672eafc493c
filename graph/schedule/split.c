/* Scheduling: splits long reductions with few results, which would use only a handful of a machine's cores, into two
 * steps: partial results, and their reduction. The outer reduced axes become the parts, and if they are not enough, one
 * axis is split. Contiguous memory is split as one axis. If the parts do not divide the length, the second step reduces
 * the remainder, so that no part needs a bounds check. Products of matrices are split if their results are computed in
 * fewer blocks than the machine has processors (split-K). Where matrix instructions need aligned rows, the last part
 * ends in zeros instead, which are not in memory. */
#include "scheduler.h"
#include <stdlib.h>
#include <string.h>

enum {
  FAIR_RATE = 10, /* bytes per ns that one workgroup reads while the whole machine is busy */
  BALANCE = 2,    /* parts per workgroup that reads at this rate */
  LEAST_LENGTH = 128 /* minimum length of a part */,
  LEAST_SUM = 512,  /* the same for products of matrices */
  FEW_ROWS = 4,     /* products with fewer rows or columns are sums of columns */
  FEW_CHANNELS = 8, /* fewer are not copied (operands/channels.c), but joined to the other axes of the result */
  LEAST_GAIN = 2,   /* the gain has to exceed this number of launches */
  WINDOW_NS = 4,    /* in which a workgroup multiplies one position of a long sum, if windows keep it from streaming */
  LOADED_NS = 3,    /* the same for matrices, on machines whose work-items load what they copy */
  LONG_SUM = 4,     /* maximum number of results for each position of such a sum, as in gradients of few channels */
  RECTANGLE = 16,   /* positions along a sum that a matrix instruction takes at once */
  ROUND_ROW = 8,    /* rows of matrices whose length is a multiple begin at aligned addresses */
  ROUND = 128,      /* positions of a sum that are copied at once for matrix instructions */
  MOST_DEEP = 8,    /* depth to which an expression is searched */
  MOST_NODES = 64   /* the same in nodes */
};
/* Lengths of parts from `length` on are multiples of `unit`, so that parts of contiguous memory begin at aligned
 * addresses and workgroups have no idle work-items. */
static const struct {
  int64_t length, unit;
} units[] = {{1024, 1024}, {256, 16}, {64, 4}};

static struct uop *reduce_axes(struct graph *g, const struct uop *u, struct uop *x, int64_t mask) {
  return mask ? uop_new(g, OP_REDUCE_AXIS, u->dtype, 1, (union uop_arg){.i = mask}, u->aux, &x, 1) : x;
}

/* Partial results are always written to memory. */
static struct uop *make_partial(struct graph *g, struct uop *x) {
  return uop_new(g, OP_CONTIGUOUS, x->dtype, 1, (union uop_arg){.i = CONTIGUOUS_PARTIAL}, 0, &x, 1);
}

double schedule_share(const struct schedule_machine *m, int64_t used) {
  double most = m->bytes_per_ns / m->stream_per_ns;
  int64_t all = most > (double)m->groups ? m->groups : most < 1 ? 1 : (int64_t)most, rounds = (used + all - 1) / all;
  return used < 1 ? 1 : (double)used / (double)(rounds * all);
}

/* Whether each element of u is read once, from memory or from another reduction. Matrix products read each element of
 * their operands many times. */
static bool reads_once(const struct uop *u, unsigned depth) {
  int64_t all = shape_numel(u->shape);
  while (u->op == OP_RESHAPE || u->op == OP_PERMUTE || u->op == OP_FLIP || u->op == OP_CONTIGUOUS || u->op == OP_SHRINK)
    u = u->src[0];
  if (!is_alu(u)) return u->op != OP_EXPAND && u->nsrc && shape_numel(u->shape) >= all;
  for (unsigned i = 0; i < u->nsrc && depth; i++)
    if (u->src[i]->shape->rank && reads_once(u->src[i], depth - 1)) return true;
  return false;
}

/* The product with a repeated factor in u, such as a matrix product, whose columns the machine computes in tiles. NULL
 * if there is none. */
static const struct uop *product_of(const struct uop *u) {
  u = below_casts(u);
  return u->op == OP_MUL && (repeats_elements(u->src[0]) || repeats_elements(u->src[1])) ? u : NULL;
}

/* Whether a factor has an element at several positions of a window, as in a convolution. */
static bool has_window(const struct uop *product) {
  for (unsigned i = 0; i < 2; i++)
    for (const struct uop *u = product->src[i]; u->op == OP_CAST || is_movement(u); u = u->src[0])
      if (u->op == OP_SHEAR) return true;
  return false;
}

/* Whether the positions of the sum have no rectangle of pixels that a matrix instruction takes at once. */
static bool lacks_rectangles(const struct uop *u, const struct uop *x) {
  int64_t rectangle = 1;
  for (unsigned i = 0; i < x->shape->rank; i++) {
    int64_t n = x->shape->dim[i]->arg.i;
    if (u->arg.i >> i & 1) rectangle *= n & -n;
  }
  return rectangle < RECTANGLE;
}

static bool sums_one_axis(const struct uop *u, const struct uop *x) {
  unsigned n = 0;
  for (unsigned i = 0; i < x->shape->rank; i++) n += (u->arg.i >> i & 1) && x->shape->dim[i]->arg.i > 1;
  return n == 1;
}

/* How a machine computes a product of matrices in blocks: the number of workgroups, the arithmetic rate of all
 * processors, and the least time of a workgroup for each position of the sum. */
struct blocks {
  int64_t n;       /* 0: there are none */
  int64_t results; /* with those that pad blocks of matrix instructions */
  bool rounds;     /* parts of the sum have to be whole rounds for fast copies */
  double flops_per_ns, position_ns;
};

/* The blocks for the results of u, the sum of x. */
static struct blocks blocks_of(const struct schedule_machine *m, const struct uop *u, const struct uop *x) {
  const struct uop *product = product_of(x);
  int64_t largest[2] = {1, 1};
  struct blocks none = {0}, b = {.n = 1, .flops_per_ns = m->tile_flops_per_ns};
  if (!product || u->aux != OP_ADD || dtype_info[u->dtype].size < 4) return none;
  bool matrix = m->tile && (u->dtype == DT_F32 || u->dtype == DT_I32);
  for (unsigned i = 0; i < 2; i++) matrix = matrix && schedule_tiles_pay(m, u, x, below_casts(product->src[i])->dtype);
  for (unsigned i = 0; i < u->shape->rank; i++) {
    int64_t n = u->shape->dim[i]->arg.i;
    b.n *= n;
    if (n > largest[0])
      largest[1] = largest[0], largest[0] = n;
    else if (n > largest[1])
      largest[1] = n;
  }
  const int64_t results = b.n;
  bool window = has_window(product), is_long = LONG_SUM * (shape_numel(x->shape) / results) >= results;
  bool joins = window && is_long && largest[1] < FEW_CHANNELS;
  if (joins) matrix = false, largest[1] = results / largest[0];
  const int64_t side[2] = {matrix ? m->tile : m->block_columns, matrix ? m->tile : m->block_rows};
  if (!side[0] || largest[!matrix && !window] < FEW_ROWS) return none;
  for (unsigned i = 0; i < 2; i++) { /* the last blocks of a convolution are smaller if they have few results */
    bool whole = !window || joins || largest[i] < side[i];
    b.n = b.n / largest[i] * (whole ? (largest[i] + side[i] - 1) / side[i] * side[i] : largest[i]);
  }
  b.n = (b.n + side[0] * side[1] - 1) / (side[0] * side[1]);
  b.rounds = matrix && !window && m->align && sums_one_axis(u, x);
  b.results = matrix && !window ? b.n * side[0] * side[1] : results;
  if (!matrix) b.flops_per_ns = m->flops_per_ns;
  if (window && (is_long || (matrix && m->align && lacks_rectangles(u, x)))) b.position_ns = WINDOW_NS;
  if (!window && matrix && !m->align && largest[1] >= FEW_ROWS) b.position_ns = LOADED_NS;
  return b;
}

/* The number of parts of a product that is computed in blocks. Each of the machine's processors runs one of its
 * workgroups. The second step reads what the first one writes. */
static int64_t product_parts(const struct schedule_machine *m, int64_t all, int64_t results, const struct blocks *b) {
  int64_t processors = m->groups / 2, parts = processors / b->n, most = all / results / LEAST_SUM;
  if (parts > most) parts = most;
  if (parts < 2) return 1;
  for (int64_t n = parts; n > parts / 2 && !b->rounds; n--) /* parts of equal length, if there are any */
    if (all / results % n == 0) {
      parts = n;
      break;
    }
  double length = (double)all / (double)results, alone = length * b->position_ns;
  double busy = 2 * length * (double)b->results / b->flops_per_ns * (double)processors / (double)b->n;
  if (busy < alone) busy = alone;
  double traffic = 2 * (double)(parts * results) * dtype_info[DT_F32].size / m->bytes_per_ns;
  return busy - busy / (double)parts - traffic < LEAST_GAIN * m->launch_ns ? 1 : parts;
}

/* The number of workgroups that compute the results of u, the reduction of x. Those of adjacent columns share one. */
static int64_t workgroups_of(const struct schedule_machine *m, const struct uop *u, const struct uop *x, bool stream) {
  unsigned last = x->shape->rank;
  while (last && x->shape->dim[last - 1]->arg.i == 1) last--;
  bool columns = last && !(u->arg.i >> (last - 1) & 1);
  int64_t side = !columns ? 1 : stream && m->columns > m->side && !product_of(x) ? m->columns : m->side;
  return (shape_numel(u->shape) + side - 1) / side;
}

int64_t schedule_workgroups(const struct schedule_machine *m, const struct uop *reduce) {
  return workgroups_of(m, reduce, reduce->src[0], reads_once(reduce->src[0], MOST_DEEP));
}

/* The number of parts into which the reduction of x by u is split; 1 if it is not split. */
static int64_t part_count(const struct schedule_machine *m, const struct uop *u, const struct uop *x) {
  int64_t all = shape_numel(x->shape), results = shape_numel(u->shape);
  if (all <= 0 || results <= 0) return 1;
  struct blocks b = blocks_of(m, u, x);
  if (b.n) return product_parts(m, all, results, &b);
  double memory = (double)all * dtype_info[x->dtype].size / m->bytes_per_ns, most = m->bytes_per_ns / FAIR_RATE;
  if (memory < LEAST_GAIN * m->launch_ns / (double)m->groups) return 1;
  bool stream = reads_once(x, MOST_DEEP);
  int64_t used = workgroups_of(m, u, x, stream);
  double share = schedule_share(m, used), whole = stream ? memory : 2 * (double)all / m->flops_per_ns;
  if (used >= m->groups || whole / share - whole < LEAST_GAIN * m->launch_ns) return 1;
  most = BALANCE * most > (double)m->groups ? (double)m->groups : BALANCE * most;
  int64_t parts = ((int64_t)most + used - 1) / used;
  return parts * LEAST_LENGTH > all / results ? all / results / LEAST_LENGTH : parts;
}

/* Splits an axis of n elements into parts of equal length, from `parts` to twice as many, with the shortest remainder.
 * aligns: parts of round length begin at aligned addresses. Returns their number. */
static int64_t split_length(int64_t n, int64_t parts, bool aligns, int64_t *length) {
  int64_t best = 1, least = n;
  *length = n;
  for (int64_t p = parts; p <= 2 * parts && p <= n && least; p++) {
    int64_t each = n / p, unit = 1;
    for (unsigned i = 0; i < sizeof units / sizeof *units && unit == 1 && aligns; i++)
      if (each >= units[i].length) unit = units[i].unit;
    each -= n % p ? each % unit : 0;
    if (n - p * each < least) best = p, *length = each, least = n - p * each;
  }
  return best;
}

/* The same for products of matrices in parts of whole rounds: the last part may end in padding. */
static int64_t split_rounds(int64_t n, int64_t parts, int64_t *length) {
  *length = ((n + parts - 1) / parts + ROUND - 1) / ROUND * ROUND;
  return (n + *length - 1) / *length;
}

/* Whether the elements of u are the elements of contiguous memory, in their order, and constants. */
static bool is_contiguous(const struct uop *u, unsigned *nodes) {
  while (u->op == OP_RESHAPE) u = u->src[0];
  if (u->op == OP_EXPAND) return shape_numel(u->src[0]->shape) == 1;
  if (is_memory(u) || u->op == OP_CONTIGUOUS || op_info[u->op].cls == OPCLASS_LEAF) return true;
  if (!is_alu(u)) return false;
  for (unsigned i = 0; i < u->nsrc; i++) {
    if (!*nodes) return false;
    --*nodes;
    if (!is_contiguous(u->src[i], nodes)) return false;
  }
  return true;
}

/* x with adjacent reduced axes as one, which is the first of them; the others have one element then. */
static struct uop *merge_axes(struct graph *g, const struct uop *u, struct uop *x) {
  const struct shape *shape = x->shape;
  struct uop *dim[MAX_RANK];
  unsigned first = MAX_RANK;
  for (unsigned i = 0; i < shape->rank; i++) {
    int64_t n = shape->dim[i]->arg.i;
    dim[i] = shape->dim[i];
    if (n == 1) continue;
    if (!(u->arg.i >> i & 1))
      first = MAX_RANK;
    else if (first == MAX_RANK)
      first = i;
    else
      dim[first] = uop_index(g, dim[first]->arg.i * n), dim[i] = uop_index(g, 1);
  }
  return uop_movement(g, OP_RESHAPE, x, dim, shape->rank);
}

/* x, a product, with zeros behind its factors' elements along axis a, so that there are n. */
static struct uop *pad_factors(struct graph *g, struct uop *x, unsigned a, int64_t n) {
  struct uop *src[2];
  for (unsigned i = 0; i < 2; i++) src[i] = schedule_pad_axis(g, x->src[i], a, uop_index(g, n));
  return uop_with_src(g, x, src);
}

/* The reduction of x by u in two steps: the results of the first step are those of each element along the axes
 * `first`, and of each of several parts of axis a. rounds: these are whole rounds, with zeros at the end */
static struct uop *reduce_parts(struct graph *g, const struct uop *u, struct uop *x, int64_t first, unsigned a,
                                int64_t parts, bool rounds) {
  const struct shape *shape = x->shape;
  struct uop *dim[MAX_RANK + 1] = {x}, *bounds[2 * MAX_RANK] = {0};
  int64_t n = shape->dim[a]->arg.i, length, inner = 0, outer = 0;
  bool aligns = n % ROUND_ROW == 0 || !product_of(x); /* the rows of a matrix of another length do not */
  parts = rounds ? split_rounds(n, parts, &length) : split_length(n, parts, aligns, &length);
  unsigned rank = 0;
  for (unsigned i = 0; i < shape->rank; i++) {
    bounds[2 * i] = uop_index(g, 0), bounds[2 * i + 1] = i == a ? uop_index(g, parts * length) : shape->dim[i];
    if (i == a) outer |= INT64_C(1) << rank, dim[rank++] = uop_index(g, parts);
    if (u->arg.i >> i & 1) *(first >> i & 1 ? &outer : &inner) |= INT64_C(1) << rank;
    dim[rank++] = i == a ? uop_index(g, length) : shape->dim[i];
  }
  struct uop *main = parts * length > n   ? pad_factors(g, x, a, parts * length)
                     : parts * length < n ? uop_movement(g, OP_SHRINK, x, bounds, 2 * shape->rank)
                                          : x;
  main = make_partial(g, reduce_axes(g, u, uop_movement(g, OP_RESHAPE, main, dim, rank), inner));
  main = uop_movement(g, OP_RESHAPE, reduce_axes(g, u, main, outer), u->shape->dim, u->shape->rank);
  if (parts * length >= n) return main;
  bounds[2 * a] = bounds[2 * a + 1], bounds[2 * a + 1] = shape->dim[a];
  struct uop *rest = reduce_axes(g, u, uop_movement(g, OP_SHRINK, x, bounds, 2 * shape->rank), u->arg.i);
  return uop_binary(g, (enum op)u->aux, main, rest);
}

/* The reduction of x by u in two steps, or in one if two would not be faster. */
static struct uop *split_reduce(struct graph *g, const struct schedule_machine *m, struct uop *u, struct uop *x) {
  int64_t mask = u->arg.i, first = 0, have = 1, parts = part_count(m, u, x);
  if (parts < 2) return reduce_axes(g, u, x, mask);
  unsigned nodes = MOST_NODES, a = 0, last = 0;
  if (is_contiguous(x, &nodes)) x = merge_axes(g, u, x);
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a REDUCE_AXIS has a source, which comes before it
  const struct shape *shape = x->shape;
  for (unsigned i = 0; i < shape->rank; i++)
    if ((mask >> i & 1) && shape->dim[i]->arg.i > 1) last = i;
  for (; a < last; a++) {
    if (!(mask >> a & 1)) continue;
    if (have * shape->dim[a]->arg.i > 2 * parts) break;
    have *= shape->dim[a]->arg.i, first |= INT64_C(1) << a;
  }
  parts = (parts + have / 2) / have;
  if (parts < 2) return reduce_axes(g, u, make_partial(g, reduce_axes(g, u, x, mask & ~first)), first);
  if (shape->rank == MAX_RANK) return reduce_axes(g, u, x, mask);
  return reduce_parts(g, u, x, first, a, parts, x->op == OP_MUL && blocks_of(m, u, x).rounds);
}

bool schedule_split_reduces(struct scheduler *s, struct uop **roots, unsigned nroots) {
  struct graph *g = s->graph;
  size_t n = 0, room = graph_node_count(g), most = 1;
  bool any = false, ok = false;
  struct uop **order = uop_toposort(roots, nroots, &n), **now = calloc(room + 1, sizeof *now), **src = NULL;
  uint16_t *device = order ? schedule_devices(s, order, n) : NULL;
  if (!order || !now || !device) {
    schedule_no_memory(s);
    goto out;
  }
  for (size_t i = 0; i < n; i++) {
    const struct uop *u = order[i];
    if (u->nsrc > most) most = u->nsrc;
    if (u->op != OP_REDUCE_AXIS) continue;
    const struct schedule_machine *m = schedule_machine_of(s, device[u->id]);
    any = any || m->align || m->channel_align || m->bytes || part_count(m, u, u->src[0]) > 1;
  }
  src = calloc(most, sizeof *src);
  if (!src) {
    schedule_no_memory(s);
    goto out;
  }
  for (size_t i = 0; any && i < n; i++) {
    struct uop *u = order[i];
    bool same = true;
    for (unsigned k = 0; k < u->nsrc; k++) src[k] = now[u->src[k]->id], same &= src[k] == u->src[k];
    const struct schedule_machine *m = u->op == OP_REDUCE_AXIS ? schedule_machine_of(s, device[u->id]) : NULL;
    if (m) {
      struct uop *rest, *x = schedule_channels(s, m, u, schedule_bytes(g, m, u, src[0], &rest));
      x = schedule_align(g, m, u, x, part_count(m, u, x) < 2);
      x = split_reduce(g, m, u, schedule_sum_padding(g, u, x));
      now[u->id] = rest ? uop_binary(g, OP_ADD, x, rest) : x;
    } else
      now[u->id] = same ? u : uop_with_src(g, u, src);
  }
  for (unsigned i = 0; any && i < nroots; i++) roots[i] = now[roots[i]->id];
  ok = true;
out:
  free(order);
  free(now);
  free(src);
  free(device);
  return ok;
}
