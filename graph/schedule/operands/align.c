/* Scheduling: copies operands of products whose rows do not begin at aligned addresses to memory where they do, and
 * operands whose rows do not lie along the sum if the instructions cannot transpose them. Matrix instructions read such
 * copies without a conversion of each element's address. Some machines do so from rows at any address, but not if only
 * those of the second matrix lie along the sum: then that one is copied with rows along its columns. If the rows of
 * both lie along the sum, adjacent results are stored one by one, so it is copied if there are many. */
#include "../scheduler.h"
#include <string.h>

enum {
  LEAST_ROW = 64,              /* elements of a row */
  LEAST_USES = 64,             /* uses of an element that pay for its copy */
  LEAST_LARGE_USES = 16,       /* the same if the sum is divided because it is long, or the factor is large */
  LARGE_FACTOR = 1 << 20,      /* elements of a large factor */
  LEAST_STRAIGHT_USES = 4,     /* the same for a transposed copy, without which single elements are read for each use */
  STRAIGHT_PRODUCTS = 1 << 22, /* with fewer, it takes longer to launch it */
  MANY_PRODUCTS = 1 << 26,     /* of a product that is large */
  MANY_RESULTS = 1 << 16,      /* the same for its results */
  STORED_APART = 1 << 21,      /* results that take as long to be stored one by one as a copy takes */
  ALIGNED_UNITS = 2, /* of `align` bytes in a copy's rows: as many as a matrix instruction takes along the sum */
  BLOCK = 64,        /* rows, columns and products of a result that are computed at once */
  MOST_PADDING = 36, /* maximum factor of products computed, with padding to whole blocks, to products needed */
};

bool schedule_tiles_pay(const struct schedule_machine *m, const struct uop *reduce, const struct uop *x, enum dtype t) {
  bool large = shape_numel(x->shape) >= MANY_PRODUCTS && shape_numel(reduce->shape) >= MANY_RESULTS;
  return m->tile_types >> t & 1 && (large || !(m->large_types >> t & 1));
}

/* Whether a RESHAPE only adds and removes axes of size 1. */
static bool keeps_axes(const struct uop *u) {
  const struct shape *a = u->shape, *b = u->src[0]->shape;
  unsigned i = 0, k = 0;
  for (;;) {
    while (i < a->rank && a->dim[i]->arg.i == 1) i++;
    while (k < b->rank && b->dim[k]->arg.i == 1) k++;
    if (i == a->rank || k == b->rank) return i == a->rank && k == b->rank;
    if (a->dim[i++] != b->dim[k++]) return false;
  }
}

/* The last axis of more than one element; -1 if there is none. */
static int last_axis(const struct shape *s) {
  int last = (int)s->rank - 1;
  while (last >= 0 && s->dim[last]->arg.i == 1) last--;
  return last;
}

/* The matrix in memory with rows at multiples of `align` bytes. */
static struct uop *align_matrix(struct graph *g, struct uop *x, int64_t align, bool transposed) {
  const struct shape *s = x->shape;
  struct uop *pad[2 * MAX_RANK], *whole[2 * MAX_RANK];
  int last = last_axis(s);
  if (last < 0) return x;
  int64_t n = s->dim[last]->arg.i, unit = align / dtype_info[x->dtype].size, padded = ALIGNED_UNITS * unit;
  if (n < LEAST_ROW || (n % unit == 0 && !transposed) || n == shape_numel(s)) return x;
  for (unsigned i = 0; i < s->rank; i++) {
    pad[2 * i] = whole[2 * i] = uop_index(g, 0);
    pad[2 * i + 1] = uop_index(g, (int)i == last ? (padded - n % padded) % padded : 0), whole[2 * i + 1] = s->dim[i];
  }
  x = uop_movement(g, OP_PAD, x, pad, 2 * s->rank);
  x = uop_new(g, OP_CONTIGUOUS, x->dtype, 1, (union uop_arg){.i = CONTIGUOUS_ALIGNED}, 0, &x, 1);
  return uop_movement(g, OP_SHRINK, x, whole, 2 * s->rank);
}

static struct uop *align_factor(struct graph *g, struct uop *x, int64_t align) {
  if (shape_numel(x->shape) < 0) return x;
  if (x->op == OP_RESHAPE && x->src[0]->op == OP_BUFFER) return align_matrix(g, x, align, false);
  bool kept = x->op == OP_CAST || x->op == OP_EXPAND || x->op == OP_PERMUTE || x->op == OP_RESHAPE;
  if (!kept || shape_numel(x->src[0]->shape) < 0 || (x->op == OP_RESHAPE && !keeps_axes(x))) return x;
  struct uop *src[MAX_RANK + 1], *aligned = align_factor(g, x->src[0], align);
  if (aligned == x->src[0]) return x;
  memcpy(src, x->src, x->nsrc * sizeof *src);
  src[0] = aligned;
  return uop_with_src(g, x, src);
}

/* The axis of x along which elements are adjacent in memory; -1 if none is known. */
static int adjacent_axis(const struct uop *x) {
  if (x->op == OP_RESHAPE && x->src[0]->op == OP_BUFFER) return last_axis(x->shape);
  if (x->op != OP_CAST && x->op != OP_EXPAND && x->op != OP_PERMUTE && (x->op != OP_RESHAPE || !keeps_axes(x)))
    return -1;
  int below = adjacent_axis(x->src[0]);
  if (below < 0 || x->op == OP_CAST || x->op == OP_EXPAND) return below;
  if (x->op == OP_PERMUTE) {
    for (unsigned i = 0; i < x->shape->rank; i++)
      if ((x->arg.i >> 4 * i & 15) == below) return (int)i;
    return -1;
  }
  int number = 0, i = -1; /* a RESHAPE: the axis with as many axes of more than one element before it */
  for (int k = 0; k < below; k++) number += x->src[0]->shape->dim[k]->arg.i != 1;
  while (number >= 0) number -= x->shape->dim[++i]->arg.i != 1;
  return i;
}

/* x without its casts. */
static struct uop *without_casts(struct graph *g, struct uop *x) {
  struct uop *src[MAX_RANK + 1];
  if (x->op == OP_CAST) return without_casts(g, x->src[0]);
  if (x->op == OP_BUFFER) return x;
  memcpy(src, x->src, x->nsrc * sizeof *src);
  src[0] = without_casts(g, x->src[0]);
  return uop_new(g, x->op, src[0]->dtype, x->lanes, x->arg, x->aux, src, x->nsrc);
}

static unsigned count_casts(const struct uop *x) {
  unsigned n = 0;
  for (; x->op == OP_CAST || is_movement(x); x = x->src[0]) n += x->op == OP_CAST;
  return n;
}

struct uop *schedule_exchange_axes(struct graph *g, struct uop *x, unsigned a, unsigned b) {
  int64_t order = 0;
  for (unsigned i = 0; i < x->shape->rank; i++) order |= (int64_t)(i == a ? b : i == b ? a : i) << 4 * i;
  return a == b ? x : uop_new(g, OP_PERMUTE, x->dtype, 1, (union uop_arg){.i = order}, 0, &x, 1);
}

/* The factor without outer casts and expansions. */
static struct uop *inner_of(struct uop *x) {
  while (x->op == OP_CAST || x->op == OP_EXPAND) x = x->src[0];
  return x;
}

/* A copy of the factor with aligned rows in memory, which lie along axis a instead of axis b, the last one in memory.
 * inner: the factor without outer casts and expansions */
static struct uop *turn(struct graph *g, struct uop *x, struct uop *inner, unsigned a, unsigned b, int64_t align) {
  struct uop *stored = schedule_exchange_axes(g, without_casts(g, inner), a, b);
  struct uop *copy = align_matrix(g, stored, align, true);
  if (copy == stored) return x;
  copy = uop_cast(g, schedule_exchange_axes(g, copy, a, b), inner->dtype);
  return uop_substitute(g, x, &inner, &copy, 1);
}

/* A copy of the factor whose rows in memory lie along the sum, if those of the factor do not. */
static struct uop *straighten(struct graph *g, struct uop *x, const struct uop *reduce, int64_t align) {
  struct uop *inner = inner_of(x);
  const struct shape *s = inner->shape;
  int now = adjacent_axis(inner), last = last_axis(s), sum = -1;
  if (now < 0 || reduce->arg.i >> now & 1 || count_casts(inner) > 1) return x;
  for (unsigned i = 0; i < s->rank; i++)
    if (reduce->arg.i >> i & 1 && s->dim[i]->arg.i > 1) sum = (int)i;
  if (sum < 0) return x;
  return turn(g, x, inner, (unsigned)sum, (unsigned)last, align);
}

static int64_t padded_to_blocks(int64_t n) { return n == 1 ? 1 : (n + BLOCK - 1) / BLOCK * BLOCK; }

/* Whether elements of the factor, without outer casts and expansions, have the order of memory. */
static bool has_memory_order(const struct uop *inner) {
  while (inner->op == OP_CAST || inner->op == OP_RESHAPE) inner = inner->src[0];
  return inner->op == OP_BUFFER;
}

/* Whether axis b of the product, the next one after axis a with more than one element, counts on from it in both
 * factors, so that compilers merge them. */
static bool continues(const struct uop *reduce, const struct uop *x, unsigned a, unsigned b) {
  if ((reduce->arg.i >> a & 1) != (reduce->arg.i >> b & 1)) return false;
  for (unsigned i = 0; i < 2; i++) {
    const struct uop *inner = inner_of(x->src[i]);
    bool has = inner->shape->dim[b]->arg.i > 1;
    if ((inner->shape->dim[a]->arg.i > 1) != has || (has && !has_memory_order(inner))) return false;
  }
  return true;
}

/* Whether x is the product of two matrices (axes that count on are one), to be summed by `reduce`, that are copied as
 * fast if their rows begin at any element, unless the rows of both lie along the sum. Sets *columns to the axis of the
 * result's columns, and *second to the number of the factor with these columns. */
static bool takes_any_rows(const struct schedule_machine *m, const struct uop *reduce, const struct uop *x,
                           unsigned *columns, unsigned *second) {
  const struct shape *s = x->shape;
  int64_t all = shape_numel(s);
  double padded = 1;
  unsigned axes = 0, found = 0, joined = 0, before = 0;
  int64_t whole = 1;
  int last = all > 0 ? last_axis(reduce->shape) : -1;
  if (last < 0) return false;
  for (unsigned i = 0; i < s->rank; i++) {
    int64_t n = s->dim[i]->arg.i;
    if (n == 1) continue;
    if (axes && continues(reduce, x, before, i)) {
      joined++, whole *= n;
    } else {
      padded *= (double)padded_to_blocks(whole);
      axes++, whole = n;
    }
    before = i;
  }
  padded *= (double)padded_to_blocks(whole);
  if (axes != 3 || padded > MOST_PADDING * (double)all) return false;
  *columns = (unsigned)last, *second = 0;
  for (unsigned i = 0; i < 2; i++) {
    const struct uop *f = below_casts(x->src[i]), *inner = inner_of(x->src[i]);
    if (f->op != OP_BUFFER || !(m->unaligned_types >> f->dtype & 1) || adjacent_axis(inner) < 0) return false;
    if (shape_numel(f->shape) == all || count_casts(inner) > 1) return false;
    if (joined && !has_memory_order(inner)) return false;
    if (inner->shape->dim[last]->arg.i > 1) *second = i, found++;
  }
  int now = found == 1 ? adjacent_axis(inner_of(x->src[*second])) : -1;
  return now >= 0 && !(joined && reduce->arg.i >> now & 1); /* joined columns would be apart in a copy along them */
}

/* The product, or one with a copy of the second factor whose rows lie along the columns instead of along the sum. NULL
 * if that does not pay, and its rows have to be aligned. */
static struct uop *turn_second(struct graph *g, const struct schedule_machine *m, const struct uop *reduce,
                               struct uop *x, unsigned columns, unsigned second) {
  struct uop *inner = inner_of(x->src[second]), *src[2] = {x->src[0], x->src[1]};
  const struct uop *f = below_casts(inner);
  int now = adjacent_axis(inner), first = adjacent_axis(inner_of(x->src[!second]));
  if (now < 0 || !(reduce->arg.i >> now & 1)) return x;
  bool both = first >= 0 && reduce->arg.i >> first & 1;
  bool few = shape_numel(reduce->shape) < STORED_APART,
       used = shape_numel(x->shape) / shape_numel(f->shape) >= LEAST_USES;
  if (inner->shape->dim[now]->arg.i * dtype_info[f->dtype].size % m->align == 0) return NULL;
  if (!used || (both && few)) return both ? x : NULL;
  src[second] = turn(g, src[second], inner, columns, (unsigned)last_axis(inner->shape), m->align);
  return src[second] == x->src[second] ? NULL : uop_with_src(g, x, src);
}

struct uop *schedule_align(struct graph *g, const struct schedule_machine *m, const struct uop *reduce, struct uop *x,
                           bool whole) {
  if (!m->align || reduce->aux != OP_ADD || shape_numel(reduce->shape) < 2 || x->op != OP_MUL) return x;
  unsigned columns, second;
  struct uop *src[2], *turned = NULL;
  if (whole && takes_any_rows(m, reduce, x, &columns, &second)) turned = turn_second(g, m, reduce, x, columns, second);
  if (turned) return turned;
  for (unsigned i = 0; i < 2; i++) {
    const struct uop *f = below_casts(x->src[i]);
    if (!schedule_tiles_pay(m, reduce, x, f->dtype) || dtype_info[f->dtype].size >= m->align) return x;
    int64_t n = shape_numel(f->shape);
    src[i] = x->src[i];
    if (f->op != OP_BUFFER || !n) continue;
    int64_t uses = shape_numel(x->shape) / n;
    bool many = shape_numel(x->shape) >= STRAIGHT_PRODUCTS;
    if (many && uses >= LEAST_STRAIGHT_USES && m->straight_types >> f->dtype & 1)
      src[i] = straighten(g, src[i], reduce, m->align);
    if (uses >= (whole && n < LARGE_FACTOR ? LEAST_USES : LEAST_LARGE_USES) && src[i] == x->src[i])
      src[i] = align_factor(g, src[i], m->align);
  }
  return src[0] != x->src[0] || src[1] != x->src[1] ? uop_with_src(g, x, src) : x;
}
