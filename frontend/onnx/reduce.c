/* Reductions, scans, products of matrices and normalizations along an axis. */
#include "operators.h"

/* Max and min of no elements. */
static db_tensor *reduce_nothing(struct onnx_call *c, db_tensor *x, db_list axes, bool keep) {
  db_dtype t = db_dtype_of(x);
  db_tensor *shape = db_reduce_at(DB_HERE, DB_REDUCE_SUM, x, axes, keep);
  bool max = c->op->param == DB_REDUCE_MAX;
  if (is_float(x)) return db_cast(db_full_like(shape, max ? -INFINITY : INFINITY), t);
  if (t == DB_BOOL) return db_cast(db_full_like(shape, max ? 0 : 1), t);
  unsigned bits = 8 * (unsigned)db_dtype_size(t);
  bool is_unsigned = t == DB_U8 || t == DB_U16 || t == DB_U32 || t == DB_U64;
  if (is_unsigned) return db_cast(db_full_like(shape, max ? 0 : -1), t);
  int64_t least = (int64_t)(UINT64_MAX << (bits - 1));
  return db_cast(db_full_like(shape, max ? least : ~least), t);
}

static db_tensor *reduce(struct onnx_call *c, db_tensor *x, db_list axes, bool keep) {
  int op = c->op->param;
  db_dtype t = db_dtype_of(x);
  bool half = t == DB_F16 || t == DB_BF16;
  if ((op == DB_REDUCE_MAX || op == DB_REDUCE_MIN) && !db_numel(x)) return reduce_nothing(c, x, axes, keep);
  if ((op == DB_REDUCE_MAX || op == DB_REDUCE_MIN) && t == DB_BOOL) x = db_cast(x, DB_U8);
  if (half) x = db_cast(x, DB_F32);
  switch (op) {
  case ONNX_REDUCE_L1: x = db_reduce_at(DB_HERE, DB_REDUCE_SUM, db_abs(x), axes, keep); break;
  case ONNX_REDUCE_L2:
    x = db_reduce_at(DB_HERE, DB_REDUCE_SUM, db_square(x), axes, keep);
    x = db_sqrt(is_float(x) ? x : db_cast(x, DB_F64));
    break;
  case ONNX_REDUCE_SUM_SQUARE: x = db_reduce_at(DB_HERE, DB_REDUCE_SUM, db_square(x), axes, keep); break;
  case ONNX_REDUCE_LOG_SUM: x = db_log(db_reduce_at(DB_HERE, DB_REDUCE_SUM, x, axes, keep)); break;
  case DB_REDUCE_LOGSUMEXP:
    if (!db_numel(x)) {
      x = db_log(db_reduce_at(DB_HERE, DB_REDUCE_SUM, x, axes, keep));
      break;
    } /* fallthrough */
  default: x = db_reduce_at(DB_HERE, (enum db_reduce_op)op, x, axes, keep);
  }
  return db_cast(x, t);
}

/* Axes are an input since opset 18, for ReduceSum since 13, and an attribute before. */
db_tensor *onnx_op_reduce(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  int64_t axes[ONNX_RANK], all[ONNX_RANK];
  int n = node_ints_of(c, 1, "axes", axes, ONNX_RANK, false);
  if (n < 0) return NULL;
  if (!n && node_int(c, "noop_with_empty_axes", 0)) {
    if (c->op->param == ONNX_REDUCE_L1 || c->op->param == ONNX_REDUCE_L2) return db_abs(x);
    if (c->op->param == ONNX_REDUCE_SUM_SQUARE) return db_square(x);
    return c->op->param == ONNX_REDUCE_LOG_SUM ? db_log(x) : x;
  }
  unsigned rank = db_rank(x);
  for (unsigned i = 0; i < rank; i++) all[i] = i;
  if (!rank) return reduce(c, db_reshape(x, 1), DB_LIST(0), false);
  return reduce(c, x, n ? SIZES(n, axes) : SIZES(rank, all), node_int(c, "keepdims", 1));
}

db_tensor *onnx_op_arg(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  int axis = node_axis(c, node_int(c, "axis", 0), db_rank(x));
  bool last = node_int(c, "select_last_index", 0), keep = node_int(c, "keepdims", 1);
  if (axis < 0) return NULL;
  if (last) x = db_flip(x, axis);
  db_tensor *at = db_arg_at(DB_HERE, x, DB_LIST(axis), keep, c->op->param);
  return last ? db_sub(db_dim(x, axis) - 1, at) : at;
}

/* CumSum and CumProd. exclusive: each element is combined with those before it only. */
db_tensor *onnx_op_scan_along(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  db_dtype t = db_dtype_of(x);
  int64_t at = 0, pairs[2 * ONNX_RANK] = {0};
  bool reverse = node_int(c, "reverse", 0), product = c->op->param;
  if (node_read_ints(c, 1, &at, 1) < 0) return NULL;
  int axis = node_axis(c, at, db_rank(x));
  if (axis < 0) return NULL;
  if (reverse) x = db_flip(x, axis);
  if (node_int(c, "exclusive", 0)) {
    pairs[2 * axis] = 1, pairs[2 * axis + 1] = -1;
    x = db_pad_at(DB_HERE, x, db_operand_int(product), SIZES(2 * db_rank(x), pairs));
  }
  x = db_scan_at(DB_HERE, product ? DB_SCAN_PROD : DB_SCAN_SUM, x, axis);
  return db_cast(reverse ? db_flip(x, axis) : x, t);
}

/* Before opset 13 these treat the axes from `axis` on as one. */
static db_tensor *along(struct onnx_call *c, db_tensor *(*fn)(struct onnx_call *c, db_tensor *x, int axis)) {
  db_tensor *x = node_input(c, 0);
  int64_t dim[ONNX_RANK];
  unsigned rank = db_rank(x);
  int64_t given = node_int(c, "axis", c->opset < 13 ? 1 : -1);
  node_shape(x, dim);
  if (c->opset < 13 && given == (int64_t)rank)
    return db_reshape_at(DB_HERE, fn(c, db_reshape(x, -1, 1), 1), SIZES(rank, dim));
  int axis = node_axis(c, given, rank);
  if (axis < 0) return NULL;
  if (c->opset >= 13) return fn(c, x, axis);
  return db_reshape_at(DB_HERE, fn(c, db_flatten(x, axis, -1), axis), SIZES(rank, dim));
}
static db_tensor *softmax(struct onnx_call *c, db_tensor *x, int axis) {
  return db_softmax_at(DB_HERE, x, axis, c->op->param);
}
static db_tensor *hardmax(struct onnx_call *c, db_tensor *x, int axis) {
  db_tensor *most = db_arg_at(DB_HERE, x, DB_LIST(axis), true, false);
  int64_t dim[ONNX_RANK];
  for (unsigned i = 0; i < db_rank(x); i++) dim[i] = (int)i == axis ? db_dim(x, axis) : 1;
  db_tensor *position =
      db_reshape_at(DB_HERE, db_arange(0, (double)db_dim(x, axis), 1, DB_I64, c->dev), SIZES(db_rank(x), dim));
  return db_cast(db_eq(position, most), db_dtype_of(x));
}
db_tensor *onnx_op_softmax(struct onnx_call *c) { return along(c, softmax); }
db_tensor *onnx_op_hardmax(struct onnx_call *c) { return along(c, hardmax); }

db_tensor *onnx_op_top_k(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *places = NULL;
  int64_t k = node_int(c, "k", 0);
  if (node_has_input(c, 1) && node_read_ints(c, 1, &k, 1) < 0) return NULL;
  db_tensor *values = db_topk(x, k, (int)node_int(c, "axis", -1), node_int(c, "largest", 1), &places);
  if (node_has_output(c, 1)) c->out[1] = places;
  return values;
}

/* ---- products ---- */

db_tensor *onnx_op_matmul(struct onnx_call *c) { return db_matmul(node_input(c, 0), node_input(c, 1)); }

db_tensor *onnx_op_gemm(struct onnx_call *c) {
  db_tensor *a = node_input(c, 0), *b = node_input(c, 1), *x;
  double alpha = node_float(c, "alpha", 1), beta = node_float(c, "beta", 1);
  if (node_int(c, "transA", 0)) a = db_transpose(a, 0, 1);
  if (node_int(c, "transB", 0)) b = db_transpose(b, 0, 1);
  x = db_matmul(a, b);
  db_dtype t = db_dtype_of(a);
  if (alpha != 1) x = db_cast(db_mul(x, alpha), t);
  if (!node_has_input(c, 2) || beta == 0) return x;
  return db_add(x, beta == 1 ? node_input(c, 2) : db_cast(db_mul(node_input(c, 2), beta), t));
}

db_tensor *onnx_op_einsum(struct onnx_call *c) {
  const Onnx__Attribute *a = node_attribute(c, "equation");
  db_tensor *x[64];
  char text[512];
  size_t n = 0;
  if (!a || !a->has_s || a->s.len >= sizeof text || c->nin > 64) return node_unsupported(c, "this equation");
  for (size_t i = 0; i < a->s.len; i++)
    if (a->s.data[i] != ' ') text[n++] = (char)a->s.data[i];
  text[n] = 0;
  for (unsigned i = 0; i < c->nin; i++) x[i] = node_input(c, i);
  return db_einsum_n(text, x, c->nin);
}

/* Gaussian elimination; each step takes the row with the largest element of its column as the pivot. */
db_tensor *onnx_op_det(struct onnx_call *c) {
  enum { MOST = 64 };
  db_tensor *x = node_input(c, 0), *product = NULL;
  unsigned rank = db_rank(x);
  int64_t n = rank ? db_dim(x, -1) : 0;
  if (rank < 2 || n != db_dim(x, -2) || n > MOST || n < 1)
    return node_unsupported(c, "a determinant of %lld rows; 1 to %d are", (long long)n, MOST);
  for (int64_t left = n; left > 0; left--) {
    db_tensor *column = db_index(x, DB_REST, DB_PICK(0));
    db_tensor *at = db_argmax_keep(db_abs(column), -1);
    db_tensor *is_pivot = db_eq(db_arange(0, (double)left, 1, DB_I64, c->dev), at);
    db_tensor *chosen = db_cast(is_pivot, db_dtype_of(x));
    db_tensor *row = db_sum_keep(db_mul(x, db_unsqueeze(chosen, -1)), -2);
    db_tensor *pivot = db_index(row, DB_REST, DB_PICK(0), DB_PICK(0));
    /* The pivot's row changes places with the first one, which changes the sign unless they are the same. */
    db_tensor *signed_pivot = db_mul(pivot, db_where(db_eq(db_squeeze(at, -1), 0), 1.0, -1.0));
    product = db_cast(product ? db_mul(product, signed_pivot) : signed_pivot, db_dtype_of(x));
    if (left == 1) break;
    db_tensor *first = db_index(x, DB_REST, DB_SLICE(0, 1, 1), DB_WHOLE);
    x = db_where(db_unsqueeze(is_pivot, -1), first, x);
    db_tensor *safe = db_where(db_eq(pivot, 0), 1.0, pivot);
    db_tensor *rest = db_index(x, DB_REST, DB_SLICE(1, DB_OPEN, 1), DB_WHOLE);
    db_tensor *factor = db_div(db_index(rest, DB_REST, DB_SLICE(0, 1, 1)), db_unsqueeze(safe, -1, -2));
    x = db_index(db_sub(rest, db_mul(factor, row)), DB_REST, DB_SLICE(1, DB_OPEN, 1));
  }
  return product;
}

db_tensor *onnx_op_lp_normalization(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  int axis = node_axis(c, node_int(c, "axis", -1), db_rank(x));
  if (axis < 0) return NULL;
  db_tensor *norm = db_norm_keep(x, (double)node_int(c, "p", 2), axis);
  return db_where(db_eq(norm, 0), 0.0, db_div(x, norm));
}
