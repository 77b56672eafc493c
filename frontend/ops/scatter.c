/* Elements chosen and placed by an index of x's rank: gather, scatter, counting.
 *
 * No writes race: by definition each position searches the index for the elements that come to it, so every run gives
 * the same result. Where one walk along the index is cheaper, the scheduler transforms the expression into it
 * (graph/schedule/scatter.c). */
#include "functions.h"
#include "ops.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct expr expr_wrapped_index(struct expr index, int64_t n) {
  char cls = dtype_info[index.dtype].cls;
  unsigned size = dtype_info[index.dtype].size;
  if (cls == 'u' && size == 8)
    index = expr_where(less(index, expr_const(DT_U64, 0, n)), index, expr_const(DT_U64, 0, INT64_MAX));
  bool wide = n > INT32_MAX || size == 8 || (cls == 'u' && size == 4);
  struct expr i = expr_cast(index, wide ? DT_I64 : DT_I32);
  return cls == 'u' ? i : expr_where(less_num(i, 0), expr_binary(OP_ADD, i, expr_const(i.dtype, 0, n)), i);
}

static struct expr least_value(enum dtype t) {
  bool is_signed = dtype_info[t].cls == 'i';
  return expr_const(t, -INFINITY, is_signed ? INT64_MIN >> (64 - 8 * dtype_info[t].size) : 0);
}

/* Turns x [.., k, ..] into [.., n, .., k]: repeats it n times along the axis and moves its elements to a new last
 * axis. */
static struct expr repeat_before_axis(struct expr x, unsigned axis, int64_t n) {
  int64_t dim[MAX_RANK];
  unsigned order[MAX_RANK];
  for (unsigned i = 0; i <= x.rank; i++) order[i] = i;
  order[axis] = x.rank, order[x.rank] = axis;
  memcpy(dim, x.dim, sizeof dim);
  dim[x.rank] = 1;
  x = expr_permute(expr_reshape(x, x.rank + 1, dim), order);
  memcpy(dim, x.dim, sizeof dim);
  dim[axis] = n;
  return expr_expand(x, dim);
}

static struct expr reduce_hits(struct expr hit, struct expr v, struct expr none, enum op op) {
  return expr_drop_axes(expr_reduce(op, expr_where(hit, v, none), 1u << (hit.rank - 1)), 1u << (hit.rank - 1));
}

struct expr expr_scatter(struct expr x, unsigned axis, struct expr index, struct expr src, enum db_scatter mode,
                         bool with_x) {
  int64_t n = x.dim[axis], count = index.dim[axis];
  struct expr wide = repeat_before_axis(index, axis, n);
  struct expr hit = expr_binary(OP_CMPEQ, wide, expr_count_along(wide.dtype, axis, wide.rank, wide.dim));
  if (mode == DB_SCATTER_REPLACE) { /* find the last hit: its position + 1, or 0 if there is none */
    struct expr at = expr_count_along(count < INT32_MAX ? DT_I32 : DT_I64, wide.rank - 1, wide.rank, wide.dim);
    struct expr last = reduce_hits(hit, binary_num(OP_ADD, at, 1), expr_num(at, 0), OP_MAX);
    return expr_where(less_num(last, 1), x, expr_gather(src, axis, binary_num(OP_SUB, last, 1)));
  }
  struct expr v = repeat_before_axis(src, axis, n), any = reduce_hits(hit, hit, expr_const(DT_BOOL, 0, 0), OP_MAX), r;
  if (mode == DB_SCATTER_PROD) {
    r = reduce_hits(hit, v, expr_num(v, 1), OP_MUL);
    r = with_x ? expr_binary(OP_MUL, r, x) : r;
  } else if (mode == DB_SCATTER_MAX || mode == DB_SCATTER_MIN) {
    bool least = mode == DB_SCATTER_MIN, is_float = dtype_is_float(x.dtype);
    if (least) v = is_float ? math_neg(v) : expr_not(v);
    r = reduce_hits(hit, v, least_value(v.dtype), OP_MAX);
    if (least) r = is_float ? math_neg(r) : expr_not(r);
    if (with_x) r = least ? math_min(r, x) : math_max(r, x);
  } else {
    r = reduce_hits(hit, v, expr_num(v, 0), OP_ADD);
    if (with_x) r = expr_binary(OP_ADD, r, x);
    if (mode == DB_SCATTER_MEAN) {
      enum dtype t = dtype_is_float(x.dtype) || x.dtype == DT_U64 ? x.dtype : DT_I64;
      struct expr one = expr_const(t, 1, 1), total = reduce_hits(hit, one, expr_num(one, 0), OP_ADD);
      if (with_x) total = binary_num(OP_ADD, total, 1);
      total = math_max(total, one);
      r = t == x.dtype && dtype_is_float(t) ? expr_binary(OP_FDIV, r, total)
                                            : expr_cast(math_idiv(expr_cast(r, t), total), x.dtype);
    }
  }
  return expr_where(any, r, x);
}

static bool index_fits(struct call *c, const db_tensor *x, int a, const db_tensor *index, const db_tensor *src) {
  bool fits = dtype_is_int(index->dtype) && index->rank == x->rank && (!src || src->rank == x->rank);
  for (unsigned i = 0; fits && i < x->rank; i++)
    fits = ((int)i == a || index->dim[i] <= x->dim[i]) && (!src || index->dim[i] <= src->dim[i]);
  if (fits) return true;
  struct shape_text by = shape_text(index->rank, index->dim), from = {""};
  if (src) from = shape_text(src->rank, src->dim);
  return call_fail(c,
                   "the input is %s and the index %s of %s%s%s: the index must be integers, have the same rank, and "
                   "not be larger except along axis %d",
                   SHAPE(*x), by.s, dtype_info[index->dtype].name, src ? " and a source " : "", from.s, a),
         false;
}

/* The first dim[i] elements of x along every axis i except `skip`. */
static struct expr crop(struct expr x, int skip, const int64_t *dim) {
  for (unsigned i = 0; i < x.rank; i++)
    if ((int)i != skip) x = expr_slice(x, i, 0, dim[i]);
  return x;
}

db_tensor *db_gather_at(DB_AT, db_tensor *x, int axis, db_tensor *index) {
  struct call c;
  if (!call_begin(&c, "gather", file, line, 2, (db_tensor *[]){x, index})) return c.result;
  int a = axis_of(axis, x->rank);
  if (a < 0) return call_fail(&c, "there is no axis %d in %s", axis, SHAPE(*x));
  if (!index_fits(&c, x, a, index, NULL)) return c.result;
  struct expr e = crop(expr_of(x), a, index->dim);
  return call_end(&c, expr_gather(e, (unsigned)a, expr_wrapped_index(expr_of(index), e.dim[a])));
}

db_tensor *db_scatter_at(DB_AT, db_tensor *x, int axis, db_tensor *index, db_operand value, enum db_scatter mode,
                         bool with_x) {
  struct call c;
  db_tensor *in[3] = {x, index, value.t};
  bool has_source = value.kind == DB_OPERAND_TENSOR;
  if (!call_begin(&c, "scatter", file, line, has_source ? 3 : 2, in)) return c.result;
  int a = axis_of(axis, x->rank);
  if (mode < DB_SCATTER_REPLACE || mode > DB_SCATTER_MEAN) return call_fail(&c, "unknown scatter mode %d", (int)mode);
  if (a < 0) return call_fail(&c, "there is no axis %d in %s", axis, SHAPE(*x));
  if (!index_fits(&c, x, a, index, has_source ? value.t : NULL)) return c.result;
  if (has_source && value.t->dtype != x->dtype)
    return call_fail(&c, "the source is %s, but the input is %s; cast the source", dtype_info[value.t->dtype].name,
                     dtype_info[x->dtype].name);
  if (!call_number(&c, &value, x->dtype)) return c.result;
  if (x->dtype == DT_BOOL && (mode == DB_SCATTER_SUM || mode == DB_SCATTER_PROD || mode == DB_SCATTER_MEAN))
    return call_fail(&c, "the input is bool; sums, products and means need numbers");
  if (x->rank == MAX_RANK) return call_fail(&c, "not supported: the input %s has %d axes", SHAPE(*x), MAX_RANK);
  struct expr e = expr_of(x), i = expr_wrapped_index(expr_of(index), x->dim[a]), part = crop(e, a, index->dim);
  struct expr src = operand_expr(&value, x->dtype);
  src = has_source ? crop(src, -1, index->dim) : expr_full(src, index->rank, index->dim);
  enum dtype t = dtype_is_narrow_float(x->dtype) && mode != DB_SCATTER_REPLACE ? DT_F32 : x->dtype;
  struct expr r = expr_scatter(expr_cast(part, t), (unsigned)a, i, expr_cast(src, t), mode, with_x);
  r = expr_cast(r, x->dtype);
  int64_t pairs[2 * MAX_RANK] = {0};
  bool whole = true;
  for (unsigned k = 0; k < e.rank; k++) pairs[2 * k + 1] = e.dim[k] - r.dim[k], whole &= !pairs[2 * k + 1];
  if (whole) return call_end(&c, r);
  struct expr inside = expr_bounds(OP_PAD, expr_full(expr_const(DT_BOOL, 0, 1), r.rank, r.dim), pairs);
  return call_end(&c, expr_where(inside, expr_bounds(OP_PAD, r, pairs), e));
}

/* ---- counting ---- */

db_tensor *db_one_hot_at(DB_AT, db_tensor *x, int64_t classes) {
  struct call c;
  int64_t dim[MAX_RANK + 1], checked[MAX_RANK];
  if (!call_begin(&c, "one_hot", file, line, 1, &x)) return c.result;
  memcpy(dim, x->dim, sizeof x->dim);
  dim[x->rank] = 1;
  if (!dtype_is_int(x->dtype) || x->rank == MAX_RANK)
    return call_fail(&c, "the input is %s of %s; it must be integers with fewer than %d axes", SHAPE(*x),
                     dtype_info[x->dtype].name, MAX_RANK);
  struct expr e = expr_reshape(expr_of(x), x->rank + 1, dim);
  dim[x->rank] = classes;
  if (!call_shape(&c, (db_list){x->rank + 1, dim}, checked)) return c.result;
  e = expr_cast(expr_expand(e, dim), DT_I64);
  return call_end(&c, expr_cast(expr_binary(OP_CMPEQ, e, expr_count_along(DT_I64, x->rank, x->rank + 1, dim)), DT_I64));
}

/* For each number below n, how many elements of the vector `place` equal it. */
static struct expr count_equal(struct expr place, int64_t n) {
  int64_t dim[2] = {n, place.dim[0]};
  struct expr wide = expr_broadcast(place, 2, dim);
  struct expr hit = expr_binary(OP_CMPEQ, wide, expr_count_along(wide.dtype, 0, 2, dim));
  return expr_drop_axes(expr_reduce(OP_ADD, expr_cast(hit, DT_I64), 2), 2);
}

db_tensor *db_bincount_at(DB_AT, db_tensor *x, int64_t n) {
  struct call c;
  int64_t dim[1], count;
  if (!call_begin(&c, "bincount", file, line, 1, &x)) return c.result;
  if (!dtype_is_int(x->dtype)) return call_fail(&c, "the input is %s; it must be integers", dtype_info[x->dtype].name);
  if (!call_shape(&c, (db_list){1, &n}, dim)) return c.result;
  count = dims_numel(x->rank, x->dim);
  return call_end(&c, count_equal(expr_reshape(expr_cast(expr_of(x), DT_I64), 1, &count), n));
}

db_tensor *db_histogram_at(DB_AT, db_tensor *x, int64_t bins, double low, double high) {
  struct call c;
  int64_t dim[1], count;
  if (!call_begin(&c, "histogram", file, line, 1, &x)) return c.result;
  if (bins < 1 || !(low < high) || !isfinite(high - low))
    return call_fail(&c, "a histogram of %s needs finite bounds and at least one bin, not %lld bins from %g to %g",
                     SHAPE(*x), (long long)bins, low, high);
  if (!call_shape(&c, (db_list){1, &bins}, dim)) return c.result;
  count = dims_numel(x->rank, x->dim);
  struct expr e = expr_reshape(expr_cast(expr_of(x), math_type(x->dtype)), 1, &count);
  struct expr in = expr_binary(OP_AND, expr_not(less_num(e, low)), expr_not(less(expr_num(e, high), e)));
  struct expr at = math_trunc(binary_num(OP_MUL, binary_num(OP_SUB, e, low), (double)bins / (high - low)));
  at = math_min(expr_where(expr_binary(OP_AND, in, expr_not(math_isnan(e))), at, expr_num(at, -1)),
                expr_num(at, (double)(bins - 1)));
  return call_end(&c, count_equal(expr_cast(at, DT_I64), bins));
}
