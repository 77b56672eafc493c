/* Expressions: graph nodes together with the shape that the operations check. The callers have checked the
 * arguments. */
#include "../../graph/gradient/gradient.h"
#include "expr.h"
#include "size.h"
#include <math.h>
#include <string.h>

static union uop_arg int_arg(int64_t i) { return (union uop_arg){.i = i}; }

struct expr expr_const(enum dtype t, double f, int64_t i) {
  struct uop *u = dtype_is_float(t) ? uop_const_float(rt.graph, t, f) : uop_const_int(rt.graph, t, i);
  return (struct expr){.u = u, .dtype = t};
}

int64_t expr_whole(double v) {
  if (v != v) return 0;
  return v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : (int64_t)v;
}

struct expr expr_least(enum dtype t) {
  int64_t least = dtype_info[t].cls == 'i' ? INT64_MIN >> (64 - 8 * dtype_info[t].size) : 0;
  return expr_const(t, t == DT_F8E4M3 ? -448 : -INFINITY, least); /* e4m3 has no infinity */
}

struct expr expr_num(struct expr like, double v) { return expr_const(like.dtype, v, expr_whole(v)); }

/* Has the shape of x unless x is a scalar, else that of y. Scalars have rank 0 and combine with every shape. */
static struct expr with_shape(struct uop *u, enum dtype t, struct expr x, struct expr y) {
  struct expr e = x.rank ? x : y;
  e.u = u;
  e.dtype = t;
  return e;
}

struct expr expr_cast(struct expr x, enum dtype t) {
  if (x.dtype == t) return x;
  if (t == DT_BOOL) return expr_binary(OP_CMPNE, x, expr_num(x, 0));
  return with_shape(uop_cast(rt.graph, x.u, t), t, x, x);
}

struct expr expr_unary(enum op op, struct expr x) { return with_shape(uop_unary(rt.graph, op, x.u), x.dtype, x, x); }

struct expr expr_binary(enum op op, struct expr a, struct expr b) {
  bool compares = op_info[op].types & COMPARES;
  return with_shape(uop_binary(rt.graph, op, a.u, b.u), compares ? DT_BOOL : a.dtype, a, b);
}

struct expr expr_mulacc(struct expr a, struct expr b, struct expr c) {
  struct uop *src[3] = {a.u, b.u, c.u};
  struct expr e = with_shape(c.u, c.dtype, c, a.rank ? a : b);
  e.u = uop_new(rt.graph, OP_MULACC, c.dtype, 1, int_arg(0), 0, src, 3);
  return e;
}

struct expr expr_function(enum function f, struct expr value, struct expr x) {
  return expr_function_along(f, 0, value, x);
}

struct expr expr_function_along(enum function f, unsigned axes, struct expr value, struct expr x) {
  struct uop *src[2] = {value.u, x.u};
  return with_shape(uop_new(rt.graph, OP_FUNCTION, x.dtype, 1, int_arg(axes), f, src, 2), x.dtype, x, x);
}

struct expr expr_where(struct expr c, struct expr a, struct expr b) {
  struct expr e = with_shape(uop_where(rt.graph, c.u, a.u, b.u), a.dtype, a, b);
  return c.rank ? with_shape(e.u, a.dtype, c, c) : e;
}

struct expr expr_not(struct expr x) {
  return expr_binary(OP_XOR, x, expr_const(x.dtype, 0, x.dtype == DT_BOOL ? 1 : -1));
}

/* Records the first expression with too many elements. call_end fails the call with its shape. */
static struct expr check_size(struct expr e) {
  if (!rt.oversized && !dims_possible(e.rank, e.dim)) {
    rt.oversized = true;
    rt.oversized_shape = shape_text(e.rank, e.dim);
  }
  return e;
}

/* Makes an op with the source x followed by n index-valued sources. */
static struct uop *with_dims(enum op op, struct expr x, const int64_t *v, unsigned n) {
  struct uop *src[1 + 2 * MAX_RANK] = {x.u};
  for (unsigned i = 0; i < n; i++) src[1 + i] = dim_uop(v[i]);
  return uop_new(rt.graph, op, x.dtype, 1, int_arg(0), 0, src, n + 1);
}

static bool same_shape(struct expr x, unsigned rank, const int64_t *dim) {
  return x.rank == rank && !memcmp(x.dim, dim, rank * sizeof *dim);
}

struct expr expr_reshape(struct expr x, unsigned rank, const int64_t *dim) {
  if (same_shape(x, rank, dim)) return x;
  struct expr e = {.u = with_dims(OP_RESHAPE, x, dim, rank), .dtype = x.dtype, .rank = rank};
  memcpy(e.dim, dim, rank * sizeof *dim);
  return e;
}

struct expr expr_expand(struct expr x, const int64_t *dim) {
  if (same_shape(x, x.rank, dim)) return x;
  x.u = with_dims(OP_EXPAND, x, dim, x.rank);
  memcpy(x.dim, dim, x.rank * sizeof *dim);
  return check_size(x);
}

struct expr expr_full(struct expr scalar, unsigned rank, const int64_t *dim) {
  int64_t ones[MAX_RANK];
  for (unsigned i = 0; i < rank; i++) ones[i] = 1;
  return expr_expand(expr_reshape(scalar, rank, ones), dim);
}

struct expr expr_broadcast(struct expr x, unsigned rank, const int64_t *dim) {
  int64_t padded[MAX_RANK];
  for (unsigned i = 0; i < rank; i++) padded[i] = i < rank - x.rank ? 1 : x.dim[i - (rank - x.rank)];
  return expr_expand(expr_reshape(x, rank, padded), dim);
}

struct expr expr_permute(struct expr x, const unsigned *axes) {
  uint64_t order = 0;
  struct expr e = x;
  bool identity = true;
  for (unsigned i = 0; i < x.rank; i++) {
    order |= (uint64_t)axes[i] << (4 * i);
    e.dim[i] = x.dim[axes[i]];
    identity &= axes[i] == i;
  }
  if (!identity) e.u = uop_new(rt.graph, OP_PERMUTE, x.dtype, 1, int_arg((int64_t)order), 0, &x.u, 1);
  return e;
}

struct expr expr_bounds(enum op op, struct expr x, const int64_t *pairs) {
  struct expr e = x;
  for (unsigned i = 0; i < x.rank; i++)
    e.dim[i] = op == OP_PAD ? dim_sum(dim_sum(x.dim[i], pairs[2 * i]), pairs[2 * i + 1])
                            : dim_difference(pairs[2 * i + 1], pairs[2 * i]);
  if (!same_shape(x, e.rank, e.dim)) e.u = with_dims(op, x, pairs, 2 * x.rank);
  return check_size(e);
}

struct expr expr_shear(struct expr x, unsigned a, unsigned b, int64_t by, int64_t size) {
  if (!by && x.dim[b] == size) return x;
  int64_t arg = (int64_t)((uint64_t)by << 8) | b << 4 | a;
  x.u = uop_new(rt.graph, OP_SHEAR, x.dtype, 1, int_arg(arg), 0, (struct uop *[]){x.u, dim_uop(size)}, 2);
  x.dim[b] = size;
  return check_size(x);
}

struct expr expr_flip(struct expr x, unsigned mask) {
  if (mask) x.u = uop_new(rt.graph, OP_FLIP, x.dtype, 1, int_arg(mask), 0, &x.u, 1);
  return x;
}

struct expr expr_iota(enum dtype t, int64_t n) {
  enum dtype whole = dtype_is_int(t) ? t : n <= INT32_MAX ? DT_I32 : DT_I64;
  struct uop *size = dim_uop(n);
  struct expr e = {.dtype = whole, .rank = 1, .dim = {n}};
  e.u = uop_new(rt.graph, OP_IOTA, whole, 1, int_arg(0), 0, &size, 1);
  return expr_cast(check_size(e), t);
}

struct expr expr_count_along(enum dtype t, unsigned axis, unsigned rank, const int64_t *dim) {
  int64_t ones[MAX_RANK];
  for (unsigned i = 0; i < rank; i++) ones[i] = i == axis ? dim[i] : 1;
  return expr_expand(expr_reshape(expr_iota(t, dim[axis]), rank, ones), dim);
}

struct expr expr_gather(struct expr x, unsigned axis, struct expr index) {
  struct expr e = index;
  e.dtype = x.dtype;
  e.u = uop_new(rt.graph, OP_GATHER, x.dtype, 1, int_arg(axis), 0, (struct uop *[]){x.u, index.u}, 2);
  return e;
}

struct expr expr_pad_value(struct expr x, const int64_t *pairs, struct expr value) {
  struct expr padded = expr_bounds(OP_PAD, x, pairs);
  if (padded.u == x.u) return x;
  const struct uop *v = value.u;
  bool zero = v->op == OP_CONST && (dtype_is_float(value.dtype) ? v->arg.f == 0 && !signbit(v->arg.f) : v->arg.i == 0);
  if (zero) return padded;
  struct expr inside = expr_bounds(OP_PAD, expr_full(expr_const(DT_BOOL, 0, 1), x.rank, x.dim), pairs);
  return expr_where(inside, padded, value);
}

/* The elements of x[0..n) along an axis from `begin` on, padded to `total` elements. The choices form a balanced tree,
 * so that a slice of many tensors reaches its tensor in few steps. */
static struct expr cat_padded(const struct expr *x, unsigned n, unsigned axis, int64_t begin, int64_t total) {
  if (n == 1) {
    int64_t pairs[2 * MAX_RANK] = {0};
    pairs[2 * axis] = begin;
    pairs[2 * axis + 1] = total - begin - x->dim[axis];
    return expr_bounds(OP_PAD, *x, pairs);
  }
  int64_t middle = begin;
  for (unsigned i = 0; i < n / 2; i++) middle += x[i].dim[axis];
  struct expr left = cat_padded(x, n / 2, axis, begin, total);
  struct expr right = cat_padded(x + n / 2, n - n / 2, axis, middle, total);
  struct expr before = expr_count_along(total <= INT32_MAX ? DT_I32 : DT_I64, axis, left.rank, left.dim);
  return expr_where(expr_binary(OP_CMPLT, before, expr_const(before.dtype, 0, middle)), left, right);
}

struct expr expr_cat(const struct expr *x, unsigned n, unsigned axis) {
  int64_t total = 0;
  for (unsigned i = 0; i < n; i++) total = dim_sum(total, x[i].dim[axis]);
  return cat_padded(x, n, axis, 0, total);
}

struct expr expr_slice(struct expr x, unsigned axis, int64_t begin, int64_t end) {
  int64_t pairs[2 * MAX_RANK];
  for (unsigned i = 0; i < x.rank; i++) pairs[2 * i] = 0, pairs[2 * i + 1] = x.dim[i];
  pairs[2 * axis] = begin;
  pairs[2 * axis + 1] = end;
  return expr_bounds(OP_SHRINK, x, pairs);
}

struct expr expr_reduce(enum op op, struct expr x, unsigned mask) {
  if (!mask) return x;
  x.u = uop_new(rt.graph, OP_REDUCE_AXIS, x.dtype, 1, int_arg(mask), op, &x.u, 1);
  for (unsigned i = 0; i < x.rank; i++)
    if (mask >> i & 1) x.dim[i] = 1;
  return x;
}

struct expr expr_reduce_bound(struct expr x, unsigned mask) {
  x = expr_reduce(OP_MAX, x, mask);
  x.u = gradient_cut(rt.graph, x.u);
  return x;
}

struct expr expr_drop_axes(struct expr x, unsigned mask) {
  int64_t dim[MAX_RANK];
  unsigned n = 0;
  for (unsigned i = 0; i < x.rank; i++)
    if (!(mask >> i & 1)) dim[n++] = x.dim[i];
  return expr_reshape(x, n, dim);
}

/* The narrowest signed type with at least `size` bytes; f64 beyond 8 bytes. */
static enum dtype signed_of(unsigned size) {
  return size <= 1 ? DT_I8 : size <= 2 ? DT_I16 : size <= 4 ? DT_I32 : size <= 8 ? DT_I64 : DT_F64;
}

enum dtype dtype_promote(enum dtype a, enum dtype b) {
  if (a == b) return a;
  struct dtype_info x = dtype_info[a], y = dtype_info[b];
  if (x.cls == 'b') return b;
  if (y.cls == 'b') return a;
  if (x.cls == 'f' && y.cls == 'f') return x.size == y.size ? (x.size == 1 ? DT_F16 : DT_F32) : x.size > y.size ? a : b;
  if (x.cls == 'f') return a;
  if (y.cls == 'f') return b;
  if (x.cls == y.cls) return x.size >= y.size ? a : b;
  unsigned u = x.cls == 'u' ? x.size : y.size, i = x.cls == 'i' ? x.size : y.size;
  return i > u ? signed_of(i) : signed_of(2 * u);
}
