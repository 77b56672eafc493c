/* Stable sorting along one axis: converts elements to integers of the same order, finds the positions of those, and
 * gathers the values.
 *
 * An axis of at most WHOLE elements, or a block of BLOCK elements of a longer axis, is sorted by counting: the position
 * of an element is the number of elements before it. The blocks of a longer axis are then merged in pairs. A merged
 * pair consists of segments of SEGMENT elements. For the first element of each, a search finds how many of the elements
 * before it come from the first run; each step of the search tests RADIX candidates. A segment is then sorted by
 * counting. So n elements cost n * (BLOCK + SEGMENT * log(n / BLOCK)) comparisons, in a few kernels per doubling.
 *
 * If only the first few elements are needed, the first ones of each block are, and of blocks of these. */
#include "functions.h"
#include "ops.h"
#include <math.h>
#include <string.h>

enum {
  WHOLE = 512,
  BLOCK = 256,
  SEGMENT = 32,
  RADIX = 16,
  FEW = 256,       /* first elements that are found without sorting the others, */
  LEAST_BLOCK = 64 /* in blocks of at least this size and three times as many elements */
};

static struct expr typed_unary(enum op op, enum dtype t, struct expr x) {
  x.dtype = t;
  x.u = uop_new(rt.graph, op, t, 1, (union uop_arg){0}, 0, &x.u, 1);
  return x;
}
static struct expr in_memory(struct expr x) { return typed_unary(OP_CONTIGUOUS, x.dtype, x); }

/* Integers with the order of x. Floats: -0 counts as 0, NaN comes last; the bits of negative numbers except the sign
 * are inverted. */
static struct expr sort_key(struct expr x, bool descending) {
  if (dtype_is_float(x.dtype)) {
    x = expr_cast(x, math_type(x.dtype));
    x = expr_where(math_isnan(x), expr_num(x, NAN), binary_num(OP_ADD, x, 0));
    x = typed_unary(OP_BITCAST, x.dtype == DT_F64 ? DT_I64 : DT_I32, x);
    int64_t all = x.dtype == DT_I64 ? INT64_MAX : INT32_MAX;
    x = expr_where(less_num(x, 0), expr_binary(OP_XOR, x, expr_const(x.dtype, 0, all)), x);
  } else if (dtype_info[x.dtype].size < 4)
    x = expr_cast(x, DT_I32);
  return descending ? expr_not(x) : x;
}

/* Whether the keys of elements of dtype x are below the greatest integer of their dtype. */
static bool is_below_greatest(enum dtype x, enum dtype key) {
  return dtype_is_float(x) || dtype_info[x].size < dtype_info[key].size;
}

/* A key that is at least as great as all keys of elements of dtype x, and below the greatest integer if they are. */
static struct expr greatest_key(enum dtype x, enum dtype key) {
  int64_t bits = 8 * dtype_info[key].size;
  int64_t most = dtype_info[key].cls != 'u' ? (int64_t)(UINT64_MAX >> (65 - bits))
                 : bits == 64               ? -1
                                            : (INT64_C(1) << bits) - 1;
  return expr_const(key, 0, most - is_below_greatest(x, key));
}

/* Turns x [.., n] into [.., n, n]: repeats the whole row for each element (rows), or each element along a row. */
static struct expr square(struct expr x, bool rows) {
  int64_t dim[MAX_RANK];
  unsigned last = x.rank - 1;
  memcpy(dim, x.dim, sizeof dim);
  dim[last + rows] = x.dim[last];
  dim[last + !rows] = 1;
  struct expr e = expr_reshape(x, x.rank + 1, dim);
  dim[last] = dim[last + 1] = x.dim[last];
  return expr_expand(e, dim);
}
static struct expr reduce_last(struct expr x, enum op op) {
  unsigned mask = 1u << (x.rank - 1);
  return expr_drop_axes(expr_reduce(op, x, mask), mask);
}

/* Whether one key of elements of dtype x comes before another one: it is less, or equal and at an earlier position. */
static struct expr comes_before(struct expr key, struct expr other, struct expr earlier, enum dtype x) {
  if (is_below_greatest(x, key.dtype)) return less(key, expr_binary(OP_ADD, other, expr_cast(earlier, key.dtype)));
  return expr_where(earlier, expr_not(less(other, key)), less(key, other));
}

/* For the first k positions of the sorted last axis, the index of its element; i32. The keys are of elements of dtype
 * x. */
static struct expr block_order(struct expr key, int64_t k, enum dtype x) {
  struct expr mine = square(key, false), other = square(key, true);
  unsigned last = key.rank;
  struct expr i = expr_count_along(DT_I32, last - 1, mine.rank, mine.dim),
              j = expr_count_along(DT_I32, last, mine.rank, mine.dim);
  struct expr before = comes_before(other, mine, less(j, i), x);
  struct expr place = in_memory(reduce_last(expr_cast(before, DT_I32), OP_ADD));
  struct expr here = expr_binary(OP_CMPEQ, square(place, true), i);
  struct expr order = reduce_last(expr_where(here, j, expr_num(j, 0)), OP_MAX);
  return expr_slice(order, last - 1, 0, k);
}

/* Reads x [.., n] at index [.., n, m]. */
static struct expr gather_last(struct expr x, struct expr index) {
  int64_t dim[MAX_RANK];
  unsigned last = x.rank - 1;
  memcpy(dim, index.dim, sizeof dim);
  dim[last] *= dim[last + 1];
  return expr_reshape(expr_gather(x, last, expr_reshape(index, x.rank, dim)), index.rank, index.dim);
}

/* For each segment of two merged runs, key [.., 2 m], how many of the elements before it come from the first run; i32
 * [.., segments]. Of equal elements, those of the first run come first. */
static struct expr segment_starts(struct expr key) {
  unsigned last = key.rank - 1;
  int64_t m = key.dim[last] / 2, wide[MAX_RANK], one[MAX_RANK];
  memcpy(one, key.dim, sizeof one);
  one[last] = 2 * m / SEGMENT;
  memcpy(wide, one, sizeof wide);
  wide[last + 1] = RADIX;
  one[last + 1] = 1;
  struct expr from = expr_full(expr_const(DT_I32, 0, 0), key.rank, one);
  struct expr t = binary_num(OP_MUL, expr_count_along(DT_I32, last, key.rank + 1, wide), SEGMENT),
              r = expr_count_along(DT_I32, last + 1, key.rank + 1, wide);
  for (int64_t step = m, more = 1; more; more = step > 1, step = step > RADIX ? step / RADIX : 1) {
    if (step == m) step = m > RADIX ? m / RADIX : 1;
    struct expr base = expr_expand(expr_reshape(from, key.rank + 1, one), wide);
    struct expr n = expr_binary(OP_ADD, base, binary_num(OP_MUL, binary_num(OP_ADD, r, 1), (double)step));
    struct expr rest = expr_binary(OP_SUB, t, n); /* number of elements from the second run if n come from the first */
    struct expr a = gather_last(key, binary_num(OP_SUB, n, 1)),
                b = gather_last(key, binary_num(OP_ADD, rest, (double)m));
    struct expr out = expr_not(less_num(rest, (double)m)),
                fits = expr_not(expr_binary(OP_OR, less_num(rest, 0), less(expr_num(n, (double)m), n)));
    struct expr holds = expr_binary(OP_AND, fits, expr_binary(OP_OR, out, expr_not(less(b, a))));
    struct expr count = reduce_last(expr_cast(holds, DT_I32), OP_ADD);
    from = in_memory(expr_binary(OP_ADD, from, binary_num(OP_MUL, count, (double)step)));
  }
  return from;
}

/* Merges two sorted runs, *key [.., 2 m], of elements of dtype x, and the indices of the elements, *order, likewise. */
static void merge(struct expr *key, struct expr *order, enum dtype x) {
  unsigned last = key->rank - 1, rank = key->rank + 1;
  int64_t m = key->dim[last] / 2, segments = 2 * m / SEGMENT, dim[MAX_RANK], pairs[2 * MAX_RANK] = {0};
  struct expr first = segment_starts(*key);
  pairs[2 * last + 1] = 1;
  struct expr next = expr_pad_value(expr_slice(first, last, 1, segments), pairs, expr_const(DT_I32, (double)m, m));
  memcpy(dim, key->dim, sizeof dim);
  dim[last] = segments, dim[last + 1] = 1;
  first = expr_reshape(first, rank, dim), next = expr_reshape(next, rank, dim);
  dim[last + 1] = SEGMENT;
  first = expr_expand(first, dim), next = expr_expand(next, dim);
  /* the segment's elements of the first run, then those of the second one */
  struct expr i = expr_count_along(DT_I32, last + 1, rank, dim),
              t = binary_num(OP_MUL, expr_count_along(DT_I32, last, rank, dim), SEGMENT);
  struct expr a = expr_binary(OP_ADD, first, i);
  struct expr b = expr_binary(OP_ADD, expr_binary(OP_SUB, t, next), binary_num(OP_ADD, i, (double)m));
  struct expr from = expr_reshape(expr_where(less(a, next), a, b), key->rank, key->dim);
  struct expr at = in_memory(expr_reshape(expr_gather(*order, last, from), rank, dim));
  struct expr of = in_memory(expr_reshape(expr_gather(*key, last, from), rank, dim));
  struct expr sorted = in_memory(block_order(of, SEGMENT, x));
  *key = in_memory(expr_reshape(expr_gather(of, last + 1, sorted), key->rank, key->dim));
  *order = in_memory(expr_reshape(expr_gather(at, last + 1, sorted), key->rank, key->dim));
}

/* Pads the last axis of the keys of elements of dtype x to whole blocks, with keys that are not less than others, and
 * splits it: [.., blocks, block]. */
static struct expr blocks_of(struct expr key, int64_t blocks, int64_t block, enum dtype x) {
  unsigned last = key.rank - 1;
  int64_t pairs[2 * MAX_RANK] = {0}, dim[MAX_RANK];
  pairs[2 * last + 1] = blocks * block - key.dim[last];
  if (pairs[2 * last + 1]) key = expr_pad_value(key, pairs, greatest_key(x, key.dtype));
  memcpy(dim, key.dim, sizeof dim);
  dim[last] = blocks, dim[last + 1] = block;
  return in_memory(expr_reshape(key, key.rank + 1, dim));
}

/* Sorts blocks of keys [.., blocks, block] of elements of dtype x. Stores the first k keys of each, and their indices
 * in the axis of all blocks. */
static void sort_blocks(struct expr *key, struct expr *order, int64_t k, enum dtype x) {
  unsigned last = key->rank - 1;
  struct expr at = in_memory(block_order(*key, k, x));
  struct expr block = binary_num(OP_MUL, expr_count_along(DT_I32, last - 1, at.rank, at.dim), (double)key->dim[last]);
  *key = in_memory(expr_gather(*key, last, at));
  *order = expr_binary(OP_ADD, at, block);
}

/* The first k positions of the sorted last axis, if they are few: those of each block are sorted again. */
static struct expr first_order(struct expr key, int64_t k, enum dtype x) {
  unsigned last = key.rank - 1;
  int64_t block = LEAST_BLOCK, dim[MAX_RANK];
  struct expr all = {0};
  while (block < 3 * k) block *= 2;
  memcpy(dim, key.dim, sizeof dim);
  for (bool more = false; dim[last] > 2 * block; more = true) {
    struct expr order;
    int64_t blocks = (dim[last] + block - 1) / block;
    key = blocks_of(key, blocks, block, x);
    sort_blocks(&key, &order, k, x);
    dim[last] = blocks * k;
    key = expr_reshape(key, last + 1, dim);
    order = expr_reshape(order, last + 1, dim);
    all = in_memory(more ? expr_gather(all, last, order) : order);
  }
  struct expr order = block_order(key, k, x);
  return all.u ? expr_gather(all, last, in_memory(order)) : order;
}

/* The first k positions of each sorted row; i32 [rows, k]. The keys, [rows, n], are of elements of dtype x. */
static struct expr rows_order(struct expr key, int64_t k, enum dtype x) {
  int64_t rows = key.dim[0], n = key.dim[1], size = BLOCK;
  struct expr order;
  if (k <= FEW && k * 4 <= n) return first_order(key, k, x);
  if (n <= WHOLE) return block_order(key, k, x);
  while (size < n) size *= 2;
  key = blocks_of(key, size / BLOCK, BLOCK, x);
  sort_blocks(&key, &order, BLOCK, x);
  for (int64_t m = 2 * BLOCK; m <= size; m *= 2) {
    int64_t dim[MAX_RANK] = {rows, size / m, m};
    key = expr_reshape(key, 3, dim), order = expr_reshape(order, 3, dim);
    merge(&key, &order, x);
  }
  return expr_slice(expr_reshape(order, 2, (int64_t[MAX_RANK]){rows, size}), 1, 0, k);
}

struct expr expr_argsort(struct expr x, int64_t k, bool descending) {
  int64_t rows = 1, dim[MAX_RANK];
  for (unsigned i = 0; i + 1 < x.rank; i++) rows *= x.dim[i];
  struct expr key = in_memory(sort_key(x, descending));
  key = expr_reshape(key, 2, (int64_t[MAX_RANK]){rows, x.dim[x.rank - 1]});
  memcpy(dim, x.dim, sizeof dim);
  dim[x.rank - 1] = k;
  return expr_reshape(rows_order(key, k, x.dtype), x.rank, dim);
}

/* ---- operations ---- */

enum what { VALUES, PLACES };

static struct expr swap_with_last(struct expr x, unsigned a) {
  unsigned order[MAX_RANK];
  for (unsigned i = 0; i < x.rank; i++) order[i] = i;
  order[a] = x.rank - 1, order[x.rank - 1] = a;
  return expr_permute(x, order);
}

/* The first k elements of x sorted along an axis (k = -1: all), or their positions. */
static db_tensor *sort_axis(DB_AT, const char *op, db_tensor *x, int axis, int64_t k, bool descending, enum what what) {
  struct call c;
  if (!call_begin(&c, op, file, line, 1, &x)) return c.result;
  if (!x->rank) return call_end(&c, what == VALUES ? expr_of(x) : expr_const(DT_I64, 0, 0));
  int a = axis_of(axis, x->rank);
  if (a < 0) return call_fail(&c, "there is no axis %d in %s", axis, SHAPE(*x));
  int64_t n = x->dim[a];
  if (k < -1 || k > n)
    return call_fail(&c, "the first %lld elements of axis %d of %s do not exist", (long long)k, axis, SHAPE(*x));
  if (n >= INT32_MAX / (2 * RADIX) || x->rank + 1 >= MAX_RANK)
    return call_fail(&c, "not supported: sorting %s, of more than %d elements or %d axes", SHAPE(*x),
                     INT32_MAX / (2 * RADIX), MAX_RANK - 2);
  struct expr e = swap_with_last(expr_of(x), (unsigned)a), at;
  if (n == 0 || k == 0)
    at = expr_slice(expr_full(expr_const(DT_I32, 0, 0), e.rank, e.dim), e.rank - 1, 0, 0);
  else
    at = expr_argsort(e, k < 0 ? n : k, descending);
  struct expr r = what == VALUES ? expr_gather(e, e.rank - 1, at) : expr_cast(at, DT_I64);
  return call_end(&c, swap_with_last(r, (unsigned)a));
}

db_tensor *db_sort_at(DB_AT, db_tensor *x, int axis, bool descending) {
  return sort_axis(file, line, "sort", x, axis, -1, descending, VALUES);
}
db_tensor *db_argsort_at(DB_AT, db_tensor *x, int axis, bool descending) {
  return sort_axis(file, line, "argsort", x, axis, -1, descending, PLACES);
}
db_tensor *db_topk_at(DB_AT, db_tensor *x, int64_t k, int axis, bool largest, db_tensor **places) {
  if (k < 0) k = INT64_MAX; /* sort_axis refuses it */
  if (places) *places = sort_axis(file, line, "topk", x, axis, k, largest, PLACES);
  return sort_axis(file, line, "topk", x, axis, k, largest, VALUES);
}

/* The lower of the two middle elements; NaN, which sorts last, if there is one. */
db_tensor *db_median_at(DB_AT, db_tensor *x, int axis, bool keep) {
  struct call c;
  if (!call_begin(&c, "median", file, line, 1, &x)) return c.result;
  int a = axis_of(axis, x->rank);
  if (a < 0) return call_fail(&c, "there is no axis %d in %s", axis, SHAPE(*x));
  int64_t n = x->dim[a];
  if (!n) return call_fail(&c, "%s has no element along axis %d", SHAPE(*x), axis);
  if (n >= INT32_MAX / (2 * RADIX) || x->rank + 1 >= MAX_RANK)
    return call_fail(&c, "not supported: sorting %s, of more than %d elements or %d axes", SHAPE(*x),
                     INT32_MAX / (2 * RADIX), MAX_RANK - 2);
  struct expr e = swap_with_last(expr_of(x), (unsigned)a), at = expr_argsort(e, n, false);
  unsigned last = e.rank - 1;
  struct expr r = expr_gather(e, last, expr_slice(at, last, (n - 1) / 2, (n - 1) / 2 + 1));
  struct expr top = expr_gather(e, last, expr_slice(at, last, n - 1, n));
  if (dtype_is_float(e.dtype)) r = expr_where(math_isnan(top), top, r);
  r = swap_with_last(r, (unsigned)a);
  return call_end(&c, keep ? r : expr_drop_axes(r, 1u << a));
}
