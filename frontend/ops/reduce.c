/* Reductions and operations built on them: mean, variance, norms, softmax, positions of extremes, matrix products. */
#include "functions.h"
#include "ops.h"
#include <errno.h>
#include <math.h>
#include <string.h>

static enum dtype float_type(enum dtype t) { return !dtype_is_float(t) || dtype_is_narrow_float(t) ? DT_F32 : t; }

/* The number of elements that are reduced to one. */
static int64_t reduced_count(struct expr x, unsigned mask) {
  int64_t n = 1;
  for (unsigned i = 0; i < x.rank; i++)
    if (mask >> i & 1) n = dim_product(n, x.dim[i]);
  return n;
}

/* The type in which sums and products accumulate: i64 or u64 for integers, f32 for narrow floats. */
static enum dtype sum_type(enum dtype t) { return dtype_is_float(t) ? float_type(t) : t == DT_U64 ? DT_U64 : DT_I64; }

static struct expr reduce_sum(struct expr x, unsigned mask) {
  return expr_reduce(OP_ADD, expr_cast(x, sum_type(x.dtype)), mask);
}
static struct expr reduce_prod(struct expr x, unsigned mask) {
  return expr_reduce(OP_MUL, expr_cast(x, sum_type(x.dtype)), mask);
}
static struct expr reduce_max(struct expr x, unsigned mask) { return expr_reduce(OP_MAX, x, mask); }
static struct expr reduce_min(struct expr x, unsigned mask) {
  if (dtype_is_float(x.dtype)) return expr_unary(OP_NEG, expr_reduce(OP_MAX, expr_unary(OP_NEG, x), mask));
  return expr_not(expr_reduce(OP_MAX, expr_not(x), mask));
}
static struct expr divide_by_size(struct expr x, int64_t n) {
  if (!dim_is_symbolic(n)) return mul_num(x, n > 0 ? 1 / (double)n : NAN);
  struct expr size = {.u = uop_cast(rt.graph, dim_uop(n), x.dtype), .dtype = x.dtype};
  size = expr_where(expr_binary(OP_CMPLT, expr_num(x, 0), size), size, expr_num(x, NAN));
  return expr_binary(OP_FDIV, x, size);
}
static struct expr reduce_mean(struct expr x, unsigned mask) {
  return divide_by_size(expr_reduce(OP_ADD, expr_cast(x, float_type(x.dtype)), mask), reduced_count(x, mask));
}
/* The sum of squared differences from the mean, divided by count - correction. */
static struct expr variance(struct expr x, unsigned mask, double correction) {
  x = expr_cast(x, float_type(x.dtype));
  struct expr d = expr_binary(OP_SUB, x, expr_expand(reduce_mean(x, mask), x.dim));
  int64_t count = reduced_count(x, mask);
  struct expr sum = expr_reduce(OP_ADD, expr_binary(OP_MUL, d, d), mask);
  if (dim_is_symbolic(count)) return divide_by_size(sum, dim_difference(count, (int64_t)correction));
  double n = (double)count - correction;
  return n > 0 ? mul_num(sum, 1 / n) : expr_binary(OP_FDIV, sum, expr_num(sum, 0));
}
static struct expr reduce_var(struct expr x, unsigned mask) { return variance(x, mask, 1); }
static struct expr reduce_std(struct expr x, unsigned mask) { return math_sqrt(variance(x, mask, 1)); }
static struct expr reduce_any(struct expr x, unsigned mask) { return expr_reduce(OP_MAX, expr_cast(x, DT_BOOL), mask); }
static struct expr reduce_all(struct expr x, unsigned mask) {
  return expr_not(expr_reduce(OP_MAX, expr_not(expr_cast(x, DT_BOOL)), mask));
}
static struct expr reduce_count(struct expr x, unsigned mask) { return reduce_sum(expr_cast(x, DT_BOOL), mask); }
/* Subtracts the maximum first, so that the exponential cannot overflow. An infinite maximum is not subtracted, because
 * infinity - infinity is NaN. */
static struct expr reduce_logsumexp(struct expr x, unsigned mask) {
  x = expr_cast(x, float_type(x.dtype));
  struct expr most = expr_reduce(OP_MAX, x, mask);
  most = expr_where(math_isfinite(most), most, expr_num(most, 0));
  struct expr power = math_exp(expr_binary(OP_SUB, x, expr_expand(most, x.dim)));
  return expr_binary(OP_ADD, math_log(expr_reduce(OP_ADD, power, mask)), most);
}

static const struct {
  const char *name;
  struct expr (*build)(struct expr x,
                       unsigned mask); /* narrow floats: returns f32, which db_reduce_at rounds at the end */
} rows[] = {
    [REDUCE_ROW(SUM)] = {"sum", reduce_sum},
    [REDUCE_ROW(PROD)] = {"prod", reduce_prod},
    [REDUCE_ROW(MAX)] = {"max", reduce_max},
    [REDUCE_ROW(MIN)] = {"min", reduce_min},
    [REDUCE_ROW(MEAN)] = {"mean", reduce_mean},
    [REDUCE_ROW(VAR)] = {"var", reduce_var},
    [REDUCE_ROW(STD)] = {"std", reduce_std},
    [REDUCE_ROW(ANY)] = {"any", reduce_any},
    [REDUCE_ROW(ALL)] = {"all", reduce_all},
    [REDUCE_ROW(COUNT_NONZERO)] = {"count_nonzero", reduce_count},
    [REDUCE_ROW(LOGSUMEXP)] = {"logsumexp", reduce_logsumexp},
};

db_tensor *db_reduce_at(DB_AT, enum db_reduce_op op, db_tensor *x, db_list axes, bool keep) {
  struct call c;
  unsigned mask;
  bool known = reduce_row(op) < sizeof rows / sizeof *rows;
  if (!call_begin_sized(&c, known ? rows[reduce_row(op)].name : "reduce", file, line, 1, &x)) return c.result;
  if (!known) return call_fail(&c, "unknown reduction %d", (int)op);
  if (!call_axes(&c, x, axes, true, &mask)) return c.result;
  if ((op == DB_REDUCE_MAX || op == DB_REDUCE_MIN) && !dim_at_most(1, reduced_count(expr_of(x), mask)))
    return call_fail(&c, "%s has no element along these axes, so it has no %s", SHAPE(*x), rows[reduce_row(op)].name);
  struct expr r = rows[reduce_row(op)].build(expr_of(x), mask);
  if (dtype_is_narrow_float(x->dtype) && dtype_is_float(r.dtype)) r = expr_cast(r, x->dtype);
  return call_end(&c, keep ? r : expr_drop_axes(r, mask));
}

db_tensor *db_variance_at(DB_AT, db_tensor *x, db_list axes, double correction, bool keep, bool root) {
  struct call c;
  unsigned mask;
  if (!call_begin(&c, root ? "std" : "var", file, line, 1, &x)) return c.result;
  if (!call_axes(&c, x, axes, true, &mask)) return c.result;
  if (!isfinite(correction))
    return call_fail(&c, "the variance of %s has the correction %g; it must be finite", SHAPE(*x), correction);
  struct expr r = variance(expr_of(x), mask, correction);
  if (root) r = math_sqrt(r);
  if (dtype_is_narrow_float(x->dtype)) r = expr_cast(r, x->dtype);
  return call_end(&c, keep ? r : expr_drop_axes(r, mask));
}

db_tensor *db_norm_at(DB_AT, db_tensor *x, double p, db_list axes, bool keep) {
  struct call c;
  unsigned mask;
  if (!call_begin(&c, "norm", file, line, 1, &x)) return c.result;
  if (isnan(p)) return call_fail(&c, "the norm of %s has the power NaN", SHAPE(*x));
  if (!call_axes(&c, x, axes, true, &mask)) return c.result;
  if (isinf(p) && reduced_count(expr_of(x), mask) == 0)
    return call_fail(&c, "%s has no element along these axes, so it has no extreme", SHAPE(*x));
  struct expr e = expr_cast(expr_of(x), float_type(x->dtype)), a = math_abs(e), r;
  if (p == 2)
    r = math_sqrt(expr_reduce(OP_ADD, math_square(e), mask));
  else if (p == 1)
    r = expr_reduce(OP_ADD, a, mask);
  else if (p == 0)
    r = expr_reduce(OP_ADD, expr_cast(expr_cast(e, DT_BOOL), e.dtype), mask);
  else if (isinf(p))
    r = p > 0 ? reduce_max(a, mask) : reduce_min(a, mask);
  else {
    struct expr sum = expr_reduce(OP_ADD, math_pow(a, expr_num(a, p)), mask);
    r = math_pow(sum, expr_num(sum, 1 / p));
  }
  if (dtype_is_narrow_float(x->dtype)) r = expr_cast(r, x->dtype);
  return call_end(&c, keep ? r : expr_drop_axes(r, mask));
}

/* The first position of the extreme or of a NaN. It is found as the maximum, over such positions, of the number of
 * elements from there to the end. */
db_tensor *db_arg_at(DB_AT, db_tensor *x, db_list axis, bool keep, bool least) {
  struct call c;
  unsigned mask;
  if (!call_begin(&c, least ? "argmin" : "argmax", file, line, 1, &x)) return c.result;
  if (axis.n > 1) return call_fail(&c, "%u axes were given for %s; give one, or none for all axes", axis.n, SHAPE(*x));
  if (!call_axes(&c, x, axis, true, &mask)) return c.result;
  if (reduced_count(expr_of(x), mask) == 0)
    return call_fail(&c, "%s has no element along these axes, so it has no extreme", SHAPE(*x));
  struct expr e = expr_of(x);
  if (!axis.n) e = expr_reshape(e, 1, (int64_t[]){dims_numel(x->rank, x->dim)});
  unsigned a = axis.n ? (unsigned)axis_of(axis.v[0], x->rank) : 0, along = 1u << a;
  enum dtype t = e.dim[a] <= INT32_MAX ? DT_I32 : DT_I64;
  struct expr most = expr_expand(least ? reduce_min(e, along) : reduce_max(e, along), e.dim);
  struct expr there = expr_binary(OP_CMPEQ, e, most), left = expr_count_along(t, a, e.rank, e.dim);
  if (dtype_is_float(e.dtype)) there = expr_binary(OP_OR, there, math_isnan(e));
  left = expr_binary(OP_SUB, expr_num(left, (double)e.dim[a]), left);
  struct expr r = expr_reduce(OP_MAX, expr_where(there, left, expr_num(left, 0)), along);
  r = expr_cast(expr_binary(OP_SUB, expr_num(r, (double)e.dim[a]), r), DT_I64);
  if (axis.n) return call_end(&c, keep ? r : expr_drop_axes(r, along));
  int64_t ones[MAX_RANK];
  for (unsigned i = 0; i < x->rank; i++) ones[i] = 1;
  return call_end(&c, expr_reshape(r, keep ? x->rank : 0, ones));
}

db_tensor *db_softmax_at(DB_AT, db_tensor *x, int axis, bool logarithm) {
  struct call c;
  if (!call_begin_sized(&c, logarithm ? "log_softmax" : "softmax", file, line, 1, &x)) return c.result;
  int a = axis_of(axis, x->rank);
  if (a < 0) return call_fail(&c, "there is no axis %d in %s", axis, SHAPE(*x));
  struct expr e = expr_cast(expr_of(x), float_type(x->dtype));
  struct expr r = logarithm ? math_log_softmax(e, 1u << a) : math_softmax(e, 1u << a, NULL);
  return call_end(&c, dtype_is_narrow_float(x->dtype) ? expr_cast(r, x->dtype) : r);
}

/* Multiplies [..., m, k] and [..., k, n] as [..., m, n, k] and sums over k. */
db_tensor *db_matmul_at(DB_AT, db_tensor *a, db_tensor *b) {
  struct call c;
  if (!call_begin_sized(&c, "matmul", file, line, 2, (db_tensor *[]){a, b})) return c.result;
  if (!a->rank || !b->rank)
    return call_fail(&c, "the inputs are %s and %s; both must have an axis", SHAPE(*a), SHAPE(*b));
  enum dtype t = dtype_promote(a->dtype, b->dtype), sum = product_sum_type(t);
  struct expr x = expr_cast(expr_of(a), sum), y = expr_cast(expr_of(b), sum);
  if (a->rank == 1) x = expr_reshape(x, 2, (int64_t[]){1, x.dim[0]});
  if (b->rank == 1) y = expr_reshape(y, 2, (int64_t[]){y.dim[0], 1});
  int64_t m = x.dim[x.rank - 2], k = x.dim[x.rank - 1], n = y.dim[y.rank - 1];
  if (y.dim[y.rank - 2] != k)
    return call_fail(&c, "the inputs are %s and %s: the first has %s columns, but the second has %s rows", SHAPE(*a),
                     SHAPE(*b), dim_text(k).s, dim_text(y.dim[y.rank - 2]).s);
  unsigned batch = (x.rank > y.rank ? x.rank : y.rank) - 2, rank = batch + 3;
  if (rank > MAX_RANK) return call_fail(&c, "the inputs %s and %s have too many axes", SHAPE(*a), SHAPE(*b));
  int64_t dim[MAX_RANK], one[MAX_RANK];
  for (unsigned i = 0; i < batch; i++) {
    int64_t p = i + x.rank < batch + 2 ? 1 : x.dim[i + x.rank - batch - 2];
    int64_t q = i + y.rank < batch + 2 ? 1 : y.dim[i + y.rank - batch - 2];
    if (p != q && p != 1 && q != 1)
      return call_fail(&c, "the inputs are %s and %s: the batch axes do not broadcast", SHAPE(*a), SHAPE(*b));
    dim[i] = p == 1 ? q : p;
  }
  dim[batch] = m, dim[batch + 1] = n, dim[batch + 2] = k;
  unsigned last = y.rank - 1, order[MAX_RANK];
  for (unsigned i = 0; i < y.rank; i++) order[i] = i;
  order[last] = last - 1, order[last - 1] = last;
  y = expr_permute(y, order);
  memcpy(one, x.dim, sizeof one);
  one[x.rank - 1] = 1, one[x.rank] = k;
  x = expr_reshape(x, x.rank + 1, one);
  memcpy(one, y.dim, sizeof one);
  one[last - 1] = 1, one[last] = n, one[last + 1] = k;
  y = expr_reshape(y, y.rank + 1, one);
  struct expr r = expr_binary(OP_MUL, expr_broadcast(x, rank, dim), expr_broadcast(y, rank, dim));
  r = expr_cast(expr_reduce(OP_ADD, r, 1u << (rank - 1)), t);
  unsigned drop = 1u << (rank - 1);
  if (a->rank == 1) drop |= 1u << batch;
  if (b->rank == 1) drop |= 1u << (batch + 1);
  return call_end(&c, expr_drop_axes(r, drop));
}
