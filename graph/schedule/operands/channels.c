/* Scheduling: copies the factors of convolutions to memory in which channels are adjacent. A box of such a tensor, some
 * channels of a rectangle of pixels, is then an operand of a matrix instruction: for each position in the filter the
 * rectangle begins elsewhere. With adjacent pixels, rows would begin at unaligned addresses, and strides would leave
 * gaps. Without boxes, each work-item loads several adjacent channels at once, so fragments need fewer instructions.
 *
 * The axes of the product that only occur in sums, like y + ky, are a convolution's window. Channels are another axis:
 * the one that is summed, or in the gradient of the weights, where pixels are summed, the one of the result. If the
 * channels are in groups, it is the axis of the channels of a group. */
#include "../scheduler.h"
#include <stdlib.h>
#include <string.h>

enum {
  LEAST_CHANNELS = 32, /* with padding; copies of fewer channels must take less time than products without them */
  LEAST_USES = 32,     /* uses of an element that pay for its copy */
  SLOW = 4,            /* factor between the times of products without matrix instructions and at the machine's rate */
  SLOW_TILES = 2,      /* the same for matrix instructions */
  FEW = 16,            /* rows and columns of a block of results of few channels */
  UNITS = 2,           /* of channels that are loaded at once: as many as a matrix instruction takes */
  MOST_RANGES = 2 * MAX_RANK,
};

/* A tensor, and the index of a factor's element in it over the product's ranges. */
struct view {
  struct uop *base;
  struct uop *at[MAX_RANK];
};

/* A factor of the product: what casts and movement of it read, and the lowest tensor on the way there that has the
 * fewest elements. */
struct factor {
  struct view memory, least;
  struct uop *copied; /* the base of `least`, before its axes were taken apart */
  enum dtype narrow;  /* the type of matrix instructions that its values have */
};

struct product {
  struct scheduler *s;
  struct uop *range[MOST_RANGES];
  unsigned nranges;
  uint64_t window, summed; /* ranges, by number */
  uint64_t batch;          /* ranges that are axes of both factors, and of the result: groups of channels */
  uint32_t types;          /* of matrix instructions */
  struct factor factor[2];
};

static struct uop *new_range(struct product *p, struct uop *size, bool summed) {
  if (uop_is_const(size) && size->arg.i == 1) return uop_index(p->s->graph, 0);
  if (p->nranges == MOST_RANGES) return NULL;
  if (summed) p->summed |= UINT64_C(1) << p->nranges;
  struct uop *r = uop_range(p->s->graph, size, p->nranges, AXIS_LOOP);
  return p->range[p->nranges++] = r;
}

/* Goes down to what casts and movement of v->base read. f: NULL, or the factor, of which what lies on the way is noted.
 * Returns false after an error. */
static bool go_down(struct product *p, struct view *v, struct factor *f) {
  for (int64_t fewest = INT64_MAX;;) {
    struct uop *u = v->base, *in[MAX_RANK], *valid = NULL, *padded;
    int64_t n = shape_numel(u->shape);
    if (f && n <= fewest) fewest = n, f->least = *v;
    if (f && p->types >> u->dtype & 1) f->narrow = u->dtype;
    if (u->op != OP_CAST && (!is_movement(u) || u->src[0]->op == OP_BUFFER)) return true;
    memcpy(in, v->at, sizeof in);
    if (u->op != OP_CAST && !index_movement(p->s->simplifier, u, in, v->at, &valid, &padded)) return false;
    v->base = u->src[0];
  }
}

/* The number of the range that the index is, maybe plus a constant, or -1. */
static int plain(const struct uop *at) {
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): every axis has an index
  if (at->op == OP_ADD && at->src[1]->op == OP_CONST) at = at->src[0];
  return at->op == OP_RANGE ? (int)at->arg.i : -1;
}

/* Whether the index counts two ranges, the second one fastest, through all `size` positions of an axis. Stores them in
 * range. */
static bool counts_two(const struct uop *at, int64_t size, struct uop *range[2]) {
  if (at->op != OP_ADD) return false;
  for (unsigned i = 0; i < 2; i++) {
    const struct uop *outer = at->src[i];
    if (outer->op != OP_MUL || outer->src[1]->op != OP_CONST) continue;
    range[0] = outer->src[0], range[1] = at->src[1 - i];
    if (range[0]->op != OP_RANGE || range[1]->op != OP_RANGE) continue;
    if (outer->src[1]->arg.i == range[1]->src[0]->arg.i && range[0]->src[0]->arg.i * range[1]->src[0]->arg.i == size)
      return true;
  }
  return false;
}

/* The view with two axes for each one whose positions are counted by two ranges: groups of channels and channels of a
 * group. */
static struct view apart(struct graph *g, const struct view *v) {
  struct view out = {.base = v->base};
  struct uop *dim[MAX_RANK], *range[2];
  unsigned rank = 0, old = v->base->shape->rank;
  for (unsigned d = 0; d < old; d++) {
    struct uop *size = v->base->shape->dim[d];
    if (rank + old - d < MAX_RANK && counts_two(v->at[d], size->arg.i, range))
      for (unsigned i = 0; i < 2; i++) dim[rank] = range[i]->src[0], out.at[rank++] = range[i];
    else
      dim[rank] = size, out.at[rank++] = v->at[d];
  }
  if (rank > old) out.base = uop_movement(g, OP_RESHAPE, v->base, dim, rank);
  return out;
}

/* Replaces each range whose quotient is an index by two ranges: a RESHAPE merges groups of channels and channels of a
 * group between two sums. Returns false if there are too many. */
static bool divide_ranges(struct product *p) {
  struct graph *g = p->s->graph;
  for (unsigned i = 0; i < 4; i++) {
    struct view *v = i % 2 ? &p->factor[i / 2].least : &p->factor[i / 2].memory;
    const struct uop *loop;
    int64_t by;
    while (schedule_find_merged(v->at, v->base->shape->rank, &loop, &by)) {
      int64_t number = loop->arg.i;
      struct uop *was = p->range[number], *inner = new_range(p, uop_index(g, by), p->summed >> number & 1);
      if (!inner) return false;
      struct uop *outer = uop_range(g, uop_index(g, was->src[0]->arg.i / by), number, AXIS_LOOP);
      struct uop *both = uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, outer, uop_index(g, by)), inner);
      p->range[number] = outer;
      for (unsigned k = 0; k < 4; k++) {
        struct view *w = k % 2 ? &p->factor[k / 2].least : &p->factor[k / 2].memory;
        for (unsigned d = 0; d < w->base->shape->rank; d++)
          w->at[d] = simplify(p->s->simplifier, uop_substitute(g, w->at[d], &was, &both, 1));
      }
    }
  }
  return true;
}

/* The ranges that are indices of the view's axes. */
static uint64_t axes_of(const struct view *v) {
  uint64_t axes = 0;
  for (unsigned d = 0; d < v->base->shape->rank; d++)
    if (plain(v->at[d]) >= 0) axes |= UINT64_C(1) << plain(v->at[d]);
  return axes;
}

static void find_window(struct product *p) {
  for (unsigned i = 0; i < 2; i++)
    for (unsigned d = 0; d < p->factor[i].least.base->shape->rank; d++) {
      size_t n;
      struct uop *at = p->factor[i].least.at[d], **order = plain(at) >= 0 ? NULL : uop_toposort(&at, 1, &n);
      for (size_t k = 0; order && k < n; k++)
        if (order[k]->op == OP_RANGE) p->window |= UINT64_C(1) << order[k]->arg.i;
      free(order);
    }
}

/* Notes the product that the reduction sums, itself or by another sum below movement. Returns false if there is
 * none. */
static bool find_product(struct product *p, const struct uop *reduce, struct uop *x) {
  struct view v = {.base = x};
  int64_t summed = reduce->arg.i;
  for (unsigned sums = 0; sums < 2; sums++) {
    for (unsigned i = 0; i < v.base->shape->rank; i++)
      if (!v.at[i] || summed >> i & 1)
        if (!(v.at[i] = new_range(p, v.base->shape->dim[i], summed >> i & 1))) return false;
    if (!go_down(p, &v, NULL)) return false;
    if (v.base->op != OP_REDUCE_AXIS || v.base->aux != OP_ADD) break;
    summed = v.base->arg.i, v.base = v.base->src[0];
  }
  if (v.base->op != OP_MUL) return false;
  for (unsigned i = 0; i < 2; i++) {
    struct factor *f = &p->factor[i];
    f->memory = v, f->memory.base = v.base->src[i];
    if (!go_down(p, &f->memory, f)) return false;
    f->copied = f->least.base;
  }
  if (!divide_ranges(p)) return false;
  for (unsigned i = 0; i < 2; i++) {
    p->factor[i].least = apart(p->s->graph, &p->factor[i].least);
    p->factor[i].memory = apart(p->s->graph, &p->factor[i].memory);
  }
  find_window(p);
  p->batch = axes_of(&p->factor[0].least) & axes_of(&p->factor[1].least) & ~p->summed;
  return true;
}

static bool in_set(uint64_t set, int number) { return number >= 0 && (set >> number & 1); }

static int64_t positions(const struct product *p, uint64_t set) {
  int64_t n = 1;
  for (unsigned i = 0; i < p->nranges; i++)
    if (set >> i & 1) n *= p->range[i]->src[0]->arg.i;
  return n;
}

/* Whether rows in memory begin at aligned addresses, and are not along a window. */
static bool is_aligned(const struct product *p, const struct view *f, int64_t unit) {
  const struct shape *s = f->base->shape;
  int64_t row = 1, last = 0;
  unsigned axes = 0;
  int kind = -1;
  for (unsigned d = s->rank; d-- > 0;) {
    int64_t n = s->dim[d]->arg.i;
    int number = plain(f->at[d]);
    if (n == 1) continue;
    if (number < 0 || in_set(p->window, number) || (kind >= 0 && kind != in_set(p->summed, number))) break;
    kind = in_set(p->summed, number), row *= n;
    if (!axes++) last = n;
  }
  if (!p->window && axes == 1) return true; /* a matrix: align.c */
  return row % unit == 0 && axes > 0 && (!p->window || last >= unit);
}

/* The number of adjacent elements along the axes of the sum that are last in memory, of which `last` is the last one
 * with several elements; otherwise 0. */
static int64_t summed_row(const struct product *p, const struct view *f, int last) {
  const struct shape *s = f->base->shape;
  int64_t row = 1;
  for (unsigned d = s->rank; d-- > 0;) {
    if (s->dim[d]->arg.i == 1) continue;
    if ((row == 1 && (int)d != last) || !in_set(p->summed, plain(f->at[d]))) break;
    row *= s->dim[d]->arg.i;
  }
  return row > 1 ? row : 0;
}

/* The axis that becomes the last one, padded to a multiple of `unit` elements, or -1: the longest, of equal ones the
 * last. */
static int channels_of(const struct product *p, const struct view *f, bool straight, int64_t unit) {
  const struct shape *s = f->base->shape;
  bool sums = positions(p, p->window & ~p->summed) >= positions(p, p->window & p->summed);
  int best[2] = {-1, -1};
  for (unsigned d = 0; d < s->rank; d++) {
    int number = plain(f->at[d]);
    int64_t least = !p->window ? LEAST_CHANNELS - unit + 1 : in_set(p->summed, number) ? 1 : unit;
    if (number < 0 || in_set(p->window | p->batch, number) || s->dim[d]->arg.i < least) continue;
    int *b = &best[in_set(p->summed, number)];
    if (*b < 0 || s->dim[d]->arg.i >= s->dim[*b]->arg.i) *b = (int)d;
  }
  if (straight || (sums && best[1] >= 0)) return best[1];
  return sums && (p->window & ~p->summed) ? -1 : best[0];
}

/* A copy of x in the type, in which the channels are the last axis. */
static struct uop *copy_channels(struct graph *g, struct uop *x, enum dtype type, unsigned channels, int64_t unit) {
  enum dtype was = x->dtype;
  unsigned rank = x->shape->rank, last = rank - 1;
  struct uop *pad[2 * MAX_RANK], *whole[2 * MAX_RANK];
  int64_t to = 0, back = 0, n = x->shape->dim[channels]->arg.i;
  for (unsigned i = 0; i < rank; i++) {
    unsigned from = i == last ? channels : i < channels ? i : i + 1;
    to |= (int64_t)from << 4 * i, back |= (int64_t)i << 4 * from;
  }
  x = uop_cast(g, x, type);
  x = uop_new(g, OP_PERMUTE, type, 1, (union uop_arg){.i = to}, 0, &x, 1);
  for (unsigned i = 0; i < rank; i++) {
    pad[2 * i] = whole[2 * i] = uop_index(g, 0), whole[2 * i + 1] = x->shape->dim[i];
    pad[2 * i + 1] = uop_index(g, i == last ? (unit - n % unit) % unit : 0);
  }
  x = n % unit ? uop_movement(g, OP_PAD, x, pad, 2 * rank) : x;
  x = uop_new(g, OP_CONTIGUOUS, type, 1, (union uop_arg){.i = CONTIGUOUS_CHANNELS}, 0, &x, 1);
  x = n % unit ? uop_movement(g, OP_SHRINK, x, whole, 2 * rank) : x;
  return uop_cast(g, uop_new(g, OP_PERMUTE, type, 1, (union uop_arg){.i = back}, 0, &x, 1), was);
}

/* x, or what x is a RESHAPE of, with another shape. */
static struct uop *reshape(struct graph *g, struct uop *x, const struct shape *to) {
  while (x->op == OP_RESHAPE && x->shape != to) x = x->src[0];
  return x->shape == to ? x : uop_movement(g, OP_RESHAPE, x, to->dim, to->rank);
}

/* x with the copies in place of the factors' bases. A RESHAPE that merges axes of a copy moves up to the one that takes
 * them apart, so that both vanish. */
static struct uop *with_copies(struct product *p, struct uop *x, struct uop *const copy[2]) {
  struct graph *g = p->s->graph;
  struct uop *src[MAX_RANK * 2 + 1];
  for (unsigned i = 0; i < 2; i++)
    if (x == p->factor[i].copied && copy[i]) return reshape(g, copy[i], x->shape);
  if (x->op != OP_CAST && x->op != OP_REDUCE_AXIS && x->op != OP_MUL && !is_movement(x)) return x;
  memcpy(src, x->src, x->nsrc * sizeof *src);
  for (unsigned i = 0; i < (x->op == OP_MUL ? 2 : 1); i++) src[i] = with_copies(p, x->src[i], copy);
  if (src[0] != x->src[0] && x->op == OP_CAST && src[0]->op == OP_RESHAPE)
    return reshape(g, uop_cast(g, src[0]->src[0], x->dtype), x->shape);
  if (src[0] != x->src[0] && x->op == OP_RESHAPE) return reshape(g, src[0], x->shape);
  return uop_with_src(g, x, src);
}

/* Whether copies of this number of bytes, and products with padding, take less time than the products take without
 * matrix instructions. padding: the number of products with it, for each one without. Those of few channels fill only a
 * part of an instruction. Without boxes, each wave waits for what it loads, so there have to be blocks of results for
 * all processors. */
static bool pays_for_few(const struct product *p, const struct schedule_machine *m, int64_t bytes, double padding) {
  uint64_t all = (UINT64_C(1) << p->nranges) - 1;
  double products = (double)positions(p, all), blocks = (double)positions(p, all & ~p->summed) / (FEW * FEW);
  if (!m->align && blocks < (double)m->groups / 2) return false;
  double more = SLOW_TILES * 2 * products * (padding - 1) / m->tile_flops_per_ns;
  return SLOW * 2 * products / m->flops_per_ns >= more + 2 * (double)bytes / m->bytes_per_ns + m->launch_ns;
}

struct uop *schedule_channels(struct scheduler *s, const struct schedule_machine *m, const struct uop *reduce,
                              struct uop *x) {
  struct product p = {.s = s, .types = m->tile_types};
  struct uop *copy[2] = {NULL, NULL};
  int64_t bytes = 0, fewest = LEAST_CHANNELS;
  double padding = 1;
  if (!m->channel_align || reduce->aux != OP_ADD || shape_numel(x->shape) < 0 || !find_product(&p, reduce, x)) return x;
  for (unsigned i = 0; i < 2; i++) {
    const struct view *f = &p.factor[i].least;
    enum dtype t = p.factor[i].narrow;
    int64_t size = dtype_info[t].size, n = shape_numel(f->base->shape);
    if (!schedule_tiles_pay(m, reduce, x, t) || size >= m->channel_align || n < 1) return x;
    /* Without a window or instructions that copy boxes, only an operand whose elements are not adjacent is copied. */
    int64_t unit = p.window || m->align ? m->channel_align / size : 1;
    if (is_aligned(&p, &p.factor[i].memory, unit)) continue;
    bool pays = positions(&p, (UINT64_C(1) << p.nranges) - 1) / n > LEAST_USES - m->channel_align / size;
    int64_t padded = m->channel_align / size;
    int channels = pays ? channels_of(&p, f, m->straight_types >> t & 1, padded) : -1;
    if (channels >= 0) {
      int64_t number = f->base->shape->dim[channels]->arg.i, multiple = UNITS * padded;
      int64_t row = p.window ? 0 : summed_row(&p, f, channels);
      if (row && row % padded == 0) multiple = 1; /* rows of several axes are aligned without padding */
      int64_t whole = (number + multiple - 1) / multiple * multiple;
      double more = (double)whole / (double)number;
      copy[i] = copy_channels(s->graph, f->base, t, (unsigned)channels, multiple);
      bytes += n * size, padding = more > padding ? more : padding;
      if (number + padded - 1 < fewest) fewest = number + padded - 1;
    } else if (p.window)
      return x;
  }
  if (fewest < LEAST_CHANNELS && !pays_for_few(&p, m, bytes, padding)) return x;
  return copy[0] || copy[1] ? with_copies(&p, x, copy) : x;
}
