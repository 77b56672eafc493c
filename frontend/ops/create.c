/* Creates tensors: of one value, from host memory, of evenly spaced numbers, and matrices of ones and zeros. */
#include "ops.h"
#include "../run/launch.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

db_tensor *db_full_at(DB_AT, db_operand value, db_dtype dtype, db_device *dev, db_list shape) {
  struct call c;
  int64_t dim[MAX_RANK];
  if (!call_begin(&c, "full", file, line, 0, NULL)) return c.result;
  if (!dtype_public(dtype)) return call_fail(&c, "%d is not an element type", (int)dtype);
  if (value.kind == DB_OPERAND_TENSOR)
    return call_fail(&c, "the value is a tensor, not a number; use db_expand to repeat a tensor");
  if (!call_number(&c, &value, (enum dtype)dtype)) return c.result;
  if (!call_shape(&c, shape, dim) || !call_device(&c, dev)) return c.result;
  return call_end(&c, expr_full(operand_expr(&value, (enum dtype)dtype), shape.n, dim));
}

/* Makes a value on a slot with a copy of data. Returns NULL after db_fail. */
static struct value *value_from(unsigned slot, const void *data, enum dtype t, unsigned rank, const int64_t *dim) {
  int64_t n = dims_numel(rank, dim), id = rt.next_buffer++;
  size_t bytes = (size_t)n * dtype_info[t].size;
  struct uop *size = uop_index(rt.graph, n);
  struct expr e = {.dtype = t, .rank = 1, .dim = {n}};
  e.u = uop_new(rt.graph, OP_BUFFER, t, 1, (union uop_arg){.i = id}, slot, &size, 1);
  e = expr_reshape(e, rank, dim);
  struct storage *s = storage_new(slot, id, bytes);
  if (!s) return NULL;
  struct value *v = storage_write(s, data, bytes) ? NULL : value_new(e.u, slot, NULL, 0);
  if (!v) {
    storage_release(s);
    return NULL;
  }
  value_becomes(v, e.u, s);
  return v;
}

/* Copies data to a device, or to each device of a group. */
static db_tensor *from_host(struct call *c, const void *data, enum dtype t, unsigned rank, const int64_t *dim) {
  const struct shard_group *group = slot_group(c->slot);
  unsigned n = group ? group->n : 0, made = 0;
  struct value **part = group ? object_new(n * sizeof *part) : NULL, *v = NULL;
  while (part && made < n && (part[made] = value_from(group->device[made], data, t, rank, dim))) made++;
  if (!group)
    v = value_from(c->slot, data, t, rank, dim);
  else if (part && made == n)
    v = value_of_parts(c->slot, SHARD_REPLICATED, part);
  if (v) return call_end_value(c, v, t, rank, dim);
  while (made) value_release(part[--made]);
  object_free(part, n * sizeof *part);
  return call_fail(c, "%s", group && !part ? "out of memory" : db_error());
}

db_tensor *db_from_at(DB_AT, const void *data, db_dtype dtype, db_device *dev, db_list shape) {
  struct call c;
  int64_t dim[MAX_RANK];
  if (!call_begin(&c, "from", file, line, 0, NULL)) return c.result;
  if (!dtype_public(dtype)) return call_fail(&c, "%d is not an element type", (int)dtype);
  if (!call_shape(&c, shape, dim)) return c.result;
  if (!data && dims_numel(shape.n, dim)) return call_fail(&c, "the data is NULL");
  if (!call_device(&c, dev)) return c.result;
  return from_host(&c, data, (enum dtype)dtype, shape.n, dim);
}

/* Whether v converts to t without leaving its range. */
static bool in_range(enum dtype t, double v) {
  if (dtype_is_float(t)) return true;
  int bits = 8 * dtype_info[t].size;
  bool is_signed = dtype_info[t].cls == 'i';
  return v > (is_signed ? -ldexp(1, bits - 1) - 1 : -1) && v < ldexp(1, is_signed ? bits - 1 : bits);
}

static bool numeric_type(struct call *c, db_dtype t) {
  if (dtype_public(t) && t != DB_BOOL) return true;
  return call_fail(c, "the type is %s; it must be numeric", db_dtype_name(t)), false;
}

static struct expr affine(struct expr i, double step, double start) {
  i = step == 1 ? i : expr_binary(OP_MUL, i, expr_num(i, step));
  return start == 0 ? i : expr_binary(OP_ADD, i, expr_num(i, start));
}

/* start + i * step. If both numbers are integers, this is computed in the narrowest integers that represent all
 * results; otherwise in f64, rounded once. */
static struct expr evenly_spaced(enum dtype t, int64_t n, double start, double step) {
  double last = start + (double)(n ? n - 1 : 0) * step, far = fmax(fabs(start), fabs(last));
  bool whole = start == trunc(start) && step == trunc(step) && fabs(step) < 0x1p62;
  enum dtype in = !whole ? DT_F64 : far < 0x1p31 ? DT_I32 : far < 0x1p62 ? DT_I64 : DT_F64;
  if (in == DT_F64 && dtype_is_int(t) && far >= 0x1p53) in = DT_U64; /* wraps around to the right result */
  return expr_cast(affine(expr_iota(in, n), step, start), t);
}

db_tensor *db_arange_at(DB_AT, double start, double stop, double step, db_dtype dtype, db_device *dev) {
  struct call c;
  if (!call_begin(&c, "arange", file, line, 0, NULL)) return c.result;
  if (!numeric_type(&c, dtype)) return c.result;
  double count = ceil((stop - start) / step);
  if (!(fabs(count) < 1e15)) return call_fail(&c, "a range from %g to %g by %g has no end", start, stop, step);
  int64_t n = count > 0 ? (int64_t)count : 0;
  enum dtype t = (enum dtype)dtype;
  double last = start + (double)(n - 1) * step;
  if (n && (!in_range(t, start) || !in_range(t, last)))
    return call_fail(&c, "%g does not fit %s", in_range(t, start) ? last : start, db_dtype_name(dtype));
  if (!call_device(&c, dev)) return c.result;
  return call_end(&c, evenly_spaced(t, n, start, step));
}

/* Computed from both ends, so that the last number is exactly stop. */
db_tensor *db_linspace_at(DB_AT, double start, double stop, int64_t n, db_dtype dtype, db_device *dev) {
  struct call c;
  int64_t dim[1];
  if (!call_begin(&c, "linspace", file, line, 0, NULL)) return c.result;
  if (!numeric_type(&c, dtype) || !call_shape(&c, (db_list){1, &n}, dim)) return c.result;
  enum dtype t = (enum dtype)dtype;
  if (!isfinite(start) || !isfinite(stop) || !in_range(t, start) || !in_range(t, stop))
    return call_fail(&c, "a range from %g to %g of %s: both ends must be numbers of that type", start, stop,
                     db_dtype_name(dtype));
  if (!call_device(&c, dev)) return c.result;
  int64_t half = (n + 1) / 2;
  struct expr i = expr_iota(DT_I64, n), x = expr_cast(i, DT_F64);
  double step = n > 1 ? (stop - start) / (double)(n - 1) : 0;
  struct expr left = affine(x, step, start), right = affine(affine(x, 1, -(double)(n - 1)), step, stop);
  struct expr r = expr_where(expr_binary(OP_CMPLT, i, expr_num(i, (double)half)), left, right);
  return call_end(&c, expr_cast(r, t));
}

/* Over the last two axes: true where column - row < k. */
static struct expr below_diagonal(unsigned rank, const int64_t *dim, int64_t k) {
  int64_t rows = dim[rank - 2], cols = dim[rank - 1], most = INT32_MAX / 4;
  enum dtype t = rows > most || cols > most || k > most || k < -most ? DT_I64 : DT_I32;
  struct expr row = expr_count_along(t, rank - 2, rank, dim), col = expr_count_along(t, rank - 1, rank, dim);
  return expr_binary(OP_CMPLT, col, affine(row, 1, (double)k));
}

/* Clamps a diagonal beyond the corners to the nearest such diagonal, which selects the same elements. */
static int64_t diagonal_within(int64_t k, const int64_t *rows_cols) {
  if (dims_symbolic(2, rows_cols)) return k < INT32_MIN / 4 ? INT32_MIN / 4 : k > INT32_MAX / 4 ? INT32_MAX / 4 : k;
  int64_t least = -rows_cols[0] - 1, most = rows_cols[1] + 1;
  return k < least ? least : k > most ? most : k;
}

db_tensor *db_eye_at(DB_AT, int64_t rows, int64_t cols, db_dtype dtype, db_device *dev) {
  struct call c;
  int64_t dim[2];
  if (!call_begin(&c, "eye", file, line, 0, NULL)) return c.result;
  if (!dtype_public(dtype)) return call_fail(&c, "%d is not an element type", (int)dtype);
  if (!call_shape(&c, DB_LIST(rows, cols), dim) || !call_device(&c, dev)) return c.result;
  struct expr on = expr_binary(OP_AND, below_diagonal(2, dim, 1), expr_not(below_diagonal(2, dim, 0)));
  return call_end(&c, expr_cast(on, (enum dtype)dtype));
}

db_tensor *db_tri_at(DB_AT, int64_t rows, int64_t cols, int64_t diagonal, db_dtype dtype, db_device *dev) {
  struct call c;
  int64_t dim[2];
  if (!call_begin(&c, "tri", file, line, 0, NULL)) return c.result;
  if (!dtype_public(dtype)) return call_fail(&c, "%d is not an element type", (int)dtype);
  if (!call_shape(&c, DB_LIST(rows, cols), dim) || !call_device(&c, dev)) return c.result;
  return call_end(&c, expr_cast(below_diagonal(2, dim, diagonal_within(diagonal, dim) + 1), (enum dtype)dtype));
}

db_tensor *db_triangle_at(DB_AT, db_tensor *x, int64_t diagonal, bool upper) {
  struct call c;
  if (!call_begin_sized(&c, upper ? "triu" : "tril", file, line, 1, &x)) return c.result;
  if (x->rank < 2) return call_fail(&c, "the input is %s; it must have two axes", SHAPE(*x));
  if (dim_is_symbolic(diagonal)) return call_fail(&c, "not supported: a symbolic diagonal number of %s", SHAPE(*x));
  struct expr e = expr_of(x),
              lower = below_diagonal(x->rank, x->dim, diagonal_within(diagonal, x->dim + x->rank - 2) + !upper);
  struct expr zero = expr_num(e, 0);
  return call_end(&c, upper ? expr_where(lower, zero, e) : expr_where(lower, e, zero));
}

db_tensor *db_full_like_at(DB_AT, db_tensor *x, db_operand value) {
  struct call c;
  if (!call_begin_sized(&c, "full_like", file, line, 1, &x)) return c.result;
  if (value.kind == DB_OPERAND_TENSOR) return call_fail(&c, "the value is a tensor, not a number");
  if (!call_number(&c, &value, x->dtype)) return c.result;
  return call_end(&c, expr_full(operand_expr(&value, x->dtype), x->rank, x->dim));
}

db_tensor *db_size_tensor_at(DB_AT, int64_t size, db_device *dev) {
  struct call c;
  if (!call_begin(&c, "size_tensor", file, line, 0, NULL)) return c.result;
  if (dim_min(size) < 0) return call_fail(&c, "%lld is not a size", (long long)size);
  if (!call_device(&c, dev)) return c.result;
  return call_end(&c, (struct expr){.u = uop_cast(rt.graph, dim_uop(size), DT_I64), .dtype = DT_I64});
}
