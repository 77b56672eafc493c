/* Scheduling: sorts indices, as a graph of tensors. The order is stable.
 *
 * Up to FEW elements are compared with each other: the place of an element is the number of elements before it. More
 * are sorted by digits of their keys, from the lowest (radix sort). For each digit
 * - the elements of each block that have the digit are counted,
 * - the counts are summed over all lower digits, and over all blocks before,
 * - the place of an element is this sum plus the number of elements before it in its block that have the same digit.
 * Long digits and blocks cost comparisons, short ones cost launches and memory, so plan_radix chooses both for the
 * number of elements. */
#include "../movement.h"
#include "scheduler.h"
#include <math.h>

enum { FEW = 2048, MOST_WIDTH = 8, LEAST_BLOCK = 32, MOST_BLOCK = 256, FLAT_SUM = 1024 };

struct radix {
  unsigned digits, width; /* bits of a digit */
  int64_t block;
  double ns;
};

/* The number of values of a digit. The last digit of what is no position may be one more than that of a position. */
static int64_t values_of(const struct radix *r, int64_t places, unsigned digit) {
  return digit + 1 == r->digits ? (places >> (digit * r->width)) + 1 : INT64_C(1) << r->width;
}

/* The launches of many_sums_before. */
static unsigned launches_of_sums(int64_t n, int64_t block) {
  unsigned launches = 1;
  for (; n > FLAT_SUM; n = (n + block - 1) / block) launches += 2;
  return launches;
}

/* The time to sort a rows of n elements: comparisons with the values of a digit, with the elements of a block, and of
 * counts with the counts of a block. */
static double radix_ns(const struct schedule_machine *m, const struct radix *r, double a, int64_t n, int64_t places) {
  enum { ELEMENT_BYTES = 24, COUNT_BYTES = 16, LAUNCHES = 4 }; /* without those of the sums */
  double ns = 0;
  for (unsigned d = 0; d < r->digits; d++) {
    int64_t values = values_of(r, places, d), counts = values * ((n + r->block - 1) / r->block);
    if (a * (double)counts >= INT32_MAX / 2) return INFINITY; /* they are indexed by i32 */
    double compares = (double)n * (double)(values + r->block) + (double)counts * (double)r->block;
    double bytes = ELEMENT_BYTES * (double)n + COUNT_BYTES * (double)counts;
    ns += a * (compares / m->compares_per_ns + bytes / m->bytes_per_ns);
    ns += (LAUNCHES + launches_of_sums(counts, r->block)) * m->launch_ns;
  }
  return ns;
}

/* The digits and blocks that sort a rows of n elements in the least time. */
static struct radix plan_radix(const struct schedule_machine *m, double a, int64_t n, int64_t places) {
  struct radix best = {.ns = INFINITY};
  unsigned bits = 1;
  while ((places - 1) >> bits) bits++;
  for (unsigned digits = (bits + MOST_WIDTH - 1) / MOST_WIDTH; digits <= bits; digits++)
    for (int64_t block = LEAST_BLOCK; block <= MOST_BLOCK; block *= 2) {
      struct radix r = {.width = (bits + digits - 1) / digits, .block = block};
      r.digits = (bits + r.width - 1) / r.width;
      r.ns = radix_ns(m, &r, a, n, places);
      if (!best.digits || r.ns < best.ns) best = r;
    }
  return best;
}

double schedule_sort_ns(const struct schedule_machine *m, const struct shape *shape, int64_t places, unsigned axis) {
  double all = (double)shape_numel(shape), n = (double)shape->dim[axis]->arg.i;
  if (all >= INT32_MAX / 2 || places >= INT32_MAX - 1) return INFINITY;
  if (n <= FEW) return 2 * all * n / m->compares_per_ns + 3 * m->launch_ns;
  return plan_radix(m, all / n, shape->dim[axis]->arg.i, places).ns;
}

/* ---- tensors of known sizes ---- */

static struct uop *constant(struct graph *g, int64_t v) { return uop_const_int(g, DT_I32, v); }

static struct uop *move(struct graph *g, enum op op, struct uop *x, unsigned n, const int64_t *numbers) {
  struct uop *src[2 * MAX_RANK];
  for (unsigned i = 0; i < n; i++) src[i] = uop_index(g, numbers[i]);
  return uop_movement(g, op, x, src, n);
}
#define SIZES(...)                                                                                                     \
  (sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }
#define RESHAPE(x, ...) move(g, OP_RESHAPE, x, SIZES(__VA_ARGS__))
#define EXPAND(x, ...)  move(g, OP_EXPAND, x, SIZES(__VA_ARGS__))
#define SHRINK(x, ...)  move(g, OP_SHRINK, x, SIZES(__VA_ARGS__))
#define PAD(x, ...)     move(g, OP_PAD, x, SIZES(__VA_ARGS__))

static struct uop *in_memory_of(struct graph *g, struct uop *x) {
  return uop_new(g, OP_CONTIGUOUS, x->dtype, 1, (union uop_arg){0}, 0, &x, 1);
}
/* 0, 1, ... n - 1 */
static struct uop *count(struct graph *g, int64_t n) {
  struct uop *size = uop_index(g, n);
  return uop_new(g, OP_IOTA, DT_I32, 1, (union uop_arg){0}, 0, &size, 1);
}
/* The sum over one axis, which becomes 1. */
static struct uop *sum(struct graph *g, struct uop *x, unsigned axis) {
  x = uop_cast(g, x, DT_I32);
  return uop_new(g, OP_REDUCE_AXIS, DT_I32, 1, (union uop_arg){.i = INT64_C(1) << axis}, OP_ADD, &x, 1);
}
/* x [a, n] where `when` is true, otherwise 0. */
static struct uop *only(struct graph *g, struct uop *when, struct uop *x) {
  return uop_where(g, when, x, constant(g, 0));
}

/* ---- a few elements ---- */

/* For each pair of elements i and j, [a, n, n]: whether j < i. */
static struct uop *earlier(struct graph *g, int64_t a, int64_t n) {
  struct uop *i = EXPAND(RESHAPE(count(g, n), 1, n, 1), a, n, n), *j = EXPAND(RESHAPE(count(g, n), 1, 1, n), a, n, n);
  return uop_binary(g, OP_CMPLT, j, i);
}

static struct uop *order_of_few(struct graph *g, struct uop *keys, int64_t a, int64_t n) {
  struct uop *mine = EXPAND(RESHAPE(keys, a, n, 1), a, n, n), *other = EXPAND(RESHAPE(keys, a, 1, n), a, n, n);
  struct uop *equal = uop_binary(g, OP_AND, uop_binary(g, OP_CMPEQ, other, mine), earlier(g, a, n));
  struct uop *before = uop_binary(g, OP_OR, uop_binary(g, OP_CMPLT, other, mine), equal);
  struct uop *place = EXPAND(in_memory_of(g, RESHAPE(sum(g, before, 2), a, 1, n)), a, n, n);
  struct uop *at = EXPAND(RESHAPE(count(g, n), 1, n, 1), a, n, n),
             *from = EXPAND(RESHAPE(count(g, n), 1, 1, n), a, n, n);
  return RESHAPE(sum(g, only(g, uop_binary(g, OP_CMPEQ, place, at), from), 2), a, n);
}

/* ---- many elements ---- */

/* x [a, n]: for each element, the sum of those before it. */
static struct uop *sums_before(struct graph *g, struct uop *x, int64_t a, int64_t n) {
  struct uop *all = EXPAND(RESHAPE(x, a, 1, n), a, n, n);
  return RESHAPE(sum(g, only(g, earlier(g, a, n), all), 2), a, n);
}

/* The same in memory, for many elements: in blocks, and over the sums of blocks. */
static struct uop *many_sums_before(struct graph *g, struct uop *x, int64_t a, int64_t n, int64_t block) {
  if (n <= FLAT_SUM) return in_memory_of(g, sums_before(g, x, a, n));
  int64_t blocks = (n + block - 1) / block;
  x = RESHAPE(PAD(x, 0, 0, 0, blocks * block - n), a * blocks, block);
  struct uop *before = many_sums_before(g, in_memory_of(g, RESHAPE(sum(g, x, 1), a, blocks)), a, blocks, block);
  before = EXPAND(RESHAPE(before, a * blocks, 1), a * blocks, block);
  x = in_memory_of(g, uop_binary(g, OP_ADD, before, sums_before(g, x, a * blocks, block)));
  return SHRINK(RESHAPE(x, a, blocks * block), 0, a, 0, n);
}

/* The order of x [a, n] by a digit. */
static struct uop *sort_by_digit(struct graph *g, struct uop *keys, struct uop *order, int64_t a, int64_t n,
                                 int64_t places, const struct radix *r, unsigned digit) {
  int64_t block = r->block, blocks = (n + block - 1) / block, values = values_of(r, places, digit);
  union uop_arg along = {.i = 1};
  struct uop *key = order ? uop_new(g, OP_GATHER, DT_I32, 1, along, 0, (struct uop *[]){keys, order}, 2) : keys;
  key = uop_binary(g, OP_SHR, key, constant(g, digit * r->width));
  if (digit + 1 < r->digits) key = uop_binary(g, OP_AND, key, constant(g, values - 1));
  key = uop_binary(g, OP_ADD, key, constant(g, 1)); /* the rest of the last block has digit 0 */
  key = uop_cast(g, key, dtype_holds(DT_U8, values, values) ? DT_U8 : DT_I32); /* read several times */
  key = in_memory_of(g, RESHAPE(PAD(key, 0, 0, 0, blocks * block - n), a, blocks, block));
  struct uop *value = uop_cast(g, uop_binary(g, OP_ADD, count(g, values), constant(g, 1)), key->dtype);
  value = EXPAND(RESHAPE(value, 1, values, 1, 1), a, values, blocks, block);
  struct uop *all = EXPAND(RESHAPE(key, a, 1, blocks, block), a, values, blocks, block);
  struct uop *counts = in_memory_of(g, RESHAPE(sum(g, uop_binary(g, OP_CMPEQ, all, value), 3), a, values * blocks));
  struct uop *base = many_sums_before(g, counts, a, values * blocks, block);
  struct uop *number = EXPAND(RESHAPE(count(g, blocks), 1, blocks, 1), a, blocks, block);
  struct uop *at = uop_binary(g, OP_SUB, uop_cast(g, key, DT_I32), constant(g, 1));
  at = uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, at, constant(g, blocks)), number);
  base = uop_new(g, OP_GATHER, DT_I32, 1, along, 0, (struct uop *[]){base, RESHAPE(at, a, blocks * block)}, 2);
  struct uop *mine = EXPAND(RESHAPE(key, a * blocks, block, 1), a * blocks, block, block),
             *other = EXPAND(RESHAPE(key, a * blocks, 1, block), a * blocks, block, block);
  struct uop *same = uop_binary(g, OP_AND, uop_binary(g, OP_CMPEQ, other, mine), earlier(g, a * blocks, block));
  base = RESHAPE(base, a * blocks, block);
  struct uop *place = in_memory_of(g, uop_binary(g, OP_ADD, base, RESHAPE(sum(g, same, 2), a * blocks, block)));
  place = SHRINK(RESHAPE(place, a, blocks * block), 0, a, 0, n);
  if (!order) order = EXPAND(RESHAPE(count(g, n), 1, n), a, n);
  struct uop *src[] = {RESHAPE(order, a, 1, n), RESHAPE(place, a, 1, n), uop_index(g, n), constant(g, 0)};
  union uop_arg arg = {.i = 1 | 2 << 4 | SCATTER_PERMUTES << 8};
  return RESHAPE(uop_new(g, OP_SCATTER, DT_I32, 1, arg, OP_ADD, src, 4), a, n);
}

static struct uop *order_of_many(struct graph *g, const struct schedule_machine *m, struct uop *keys, int64_t a,
                                 int64_t n, int64_t places) {
  struct radix r = plan_radix(m, (double)a, n, places);
  struct uop *order = NULL;
  for (unsigned d = 0; d < r.digits; d++) order = sort_by_digit(g, keys, order, a, n, places, &r, d);
  return order;
}

/* ---- any number ---- */

struct uop *schedule_inside(struct graph *g, struct uop *index, int64_t n) {
  enum dtype t = index->dtype;
  struct uop *below = uop_binary(g, OP_CMPLT, index, uop_const_int(g, t, n));
  if (!dtype_holds(t, n, n)) below = uop_const_int(g, DT_BOOL, 1);
  if (dtype_info[t].cls != 'i') return below;
  struct uop *negative = uop_binary(g, OP_CMPLT, index, uop_const_int(g, t, 0));
  return uop_where(g, negative, uop_const_int(g, DT_BOOL, 0), below);
}

/* Exchanges the axis of a tensor with its last one. */
static struct uop *exchange_last(struct graph *g, struct uop *x, unsigned axis) {
  return axis + 1 == x->shape->rank ? x : schedule_exchange_axes(g, x, axis, x->shape->rank - 1);
}

struct uop *schedule_sort(struct graph *g, const struct schedule_machine *m, struct uop *index, int64_t places,
                          unsigned axis, struct uop **order) {
  struct uop *x = exchange_last(g, index, axis), *keys;
  const struct shape *shape = x->shape;
  int64_t n = index->shape->dim[axis]->arg.i, a = shape_numel(shape) / n;
  keys = uop_where(g, schedule_inside(g, x, places), uop_cast(g, x, DT_I32), constant(g, places));
  keys = in_memory_of(g, RESHAPE(keys, a, n));
  struct uop *o = n <= FEW ? order_of_few(g, keys, a, n) : order_of_many(g, m, keys, a, n, places);
  o = in_memory_of(g, o);
  keys = uop_new(g, OP_GATHER, DT_I32, 1, (union uop_arg){.i = 1}, 0, (struct uop *[]){keys, o}, 2);
  *order = exchange_last(g, reshape_to(g, o, shape), axis);
  return exchange_last(g, reshape_to(g, keys, shape), axis);
}
