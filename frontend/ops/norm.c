/* Normalizations: subtract the mean and divide by the standard deviation over a set of axes. Narrow floats are computed
 * in f32. */
#include "functions.h"
#include "ops.h"
#include <math.h>
#include <string.h>

/* The parameters and the axes [begin, end) of x that they apply to. */
struct affine {
  unsigned begin, end;
  db_tensor *weight, *bias;
};

static bool check_float(struct call *c, const db_tensor *x, double eps) {
  if (!dtype_is_float(x->dtype))
    return call_fail(c, "the input is %s; cast it to a float", dtype_info[x->dtype].name), false;
  if (!(eps >= 0)) return call_fail(c, "epsilon is %g; it must not be negative", eps), false;
  return true;
}

static bool parameter_fits(struct call *c, const char *what, const db_tensor *p, const db_tensor *x,
                           const struct affine *a) {
  unsigned n = a->end - a->begin;
  if (!p) return true;
  if (p->rank != n || memcmp(p->dim, x->dim + a->begin, n * sizeof *p->dim) != 0)
    return call_fail(c, "the %s is %s; for the input %s it must have axes %u to %u", what, SHAPE(*p), SHAPE(*x),
                     a->begin, a->end - 1),
           false;
  if (!dtype_is_float(p->dtype))
    return call_fail(c, "the %s is %s; it must be a float", what, dtype_info[p->dtype].name), false;
  return true;
}

/* Broadcasts p, which has axes [a->begin, a->end) of a shape, to that shape. */
static struct expr broadcast_parameter(db_tensor *p, const struct affine *a, unsigned rank, const int64_t *dim,
                                       enum dtype t) {
  int64_t ones[MAX_RANK];
  for (unsigned i = 0; i < rank; i++) ones[i] = i >= a->begin && i < a->end ? dim[i] : 1;
  return expr_expand(expr_reshape(expr_cast(expr_of(p), t), rank, ones), dim);
}

static struct expr mean_of(struct expr x, unsigned mask) {
  double n = 1;
  for (unsigned i = 0; i < x.rank; i++)
    if (mask >> i & 1) n *= (double)x.dim[i];
  return binary_num(OP_MUL, expr_reduce(OP_ADD, x, mask), 1 / n);
}
static struct expr divide_by_root(struct expr x, struct expr square, double eps) {
  struct expr r = expr_unary(OP_RECIP, expr_unary(OP_SQRT, binary_num(OP_ADD, square, eps)));
  return expr_binary(OP_MUL, x, expr_expand(r, x.dim));
}
static struct expr normalize(struct expr x, unsigned mask, double eps) {
  struct expr d = expr_binary(OP_SUB, x, expr_expand(mean_of(x, mask), x.dim));
  return divide_by_root(d, mean_of(expr_binary(OP_MUL, d, d), mask), eps);
}
static struct expr apply_affine(struct expr x, const struct affine *a) {
  if (a->weight) x = expr_binary(OP_MUL, x, broadcast_parameter(a->weight, a, x.rank, x.dim, x.dtype));
  if (a->bias) x = expr_binary(OP_ADD, x, broadcast_parameter(a->bias, a, x.rank, x.dim, x.dtype));
  return x;
}
static struct expr widen(const db_tensor *x) {
  return expr_cast(expr_of(x), dtype_is_narrow_float(x->dtype) ? DT_F32 : x->dtype);
}

/* Removes NULLs from the list of arguments. Returns the number of tensors left. */
static unsigned drop_null(db_tensor **t, unsigned n) {
  unsigned k = 1; /* the first one is never NULL */
  for (unsigned i = 1; i < n; i++)
    if (t[i]) t[k++] = t[i];
  return k;
}

static db_tensor *norm_last_axes(DB_AT, const char *name, bool centred, db_tensor *x, unsigned axes, db_tensor *weight,
                                 db_tensor *bias, double eps) {
  struct call c;
  db_tensor *in[3] = {x, weight, bias};
  if (!call_begin_sized(&c, name, file, line, drop_null(in, 3), in)) return c.result;
  if (axes < 1 || axes > x->rank) return call_fail(&c, "cannot normalize the last %u axes of %s", axes, SHAPE(*x));
  struct affine a = {x->rank - axes, x->rank, weight, bias};
  if (dims_symbolic(axes, x->dim + a.begin))
    return call_fail(&c, "not supported: the last %u axes of %s have a symbolic size", axes, SHAPE(*x));
  if (!check_float(&c, x, eps) || !parameter_fits(&c, "weight", weight, x, &a) ||
      !parameter_fits(&c, "bias", bias, x, &a))
    return c.result;
  unsigned mask = ((1u << axes) - 1) << a.begin;
  struct expr e = widen(x);
  e = centred ? normalize(e, mask, eps) : divide_by_root(e, mean_of(expr_binary(OP_MUL, e, e), mask), eps);
  return call_end(&c, expr_cast(apply_affine(e, &a), x->dtype));
}

db_tensor *db_layer_norm_at(DB_AT, db_tensor *x, unsigned axes, db_tensor *weight, db_tensor *bias, double eps) {
  return norm_last_axes(file, line, "layer_norm", true, x, axes, weight, bias, eps);
}
db_tensor *db_rms_norm_at(DB_AT, db_tensor *x, unsigned axes, db_tensor *weight, double eps) {
  return norm_last_axes(file, line, "rms_norm", false, x, axes, weight, NULL, eps);
}

db_tensor *db_group_norm_at(DB_AT, db_tensor *x, int64_t groups, db_tensor *weight, db_tensor *bias, double eps) {
  struct call c;
  db_tensor *in[3] = {x, weight, bias};
  if (!call_begin(&c, groups ? "group_norm" : "instance_norm", file, line, drop_null(in, 3), in)) return c.result;
  if (x->rank < 2) return call_fail(&c, "the input is %s; it must have a batch and channels", SHAPE(*x));
  if (!groups) groups = x->dim[1] ? x->dim[1] : 1; /* one group per channel */
  if (groups < 1 || x->dim[1] % groups)
    return call_fail(&c, "the %lld channels of %s cannot be divided into %lld groups", (long long)x->dim[1], SHAPE(*x),
                     (long long)groups);
  struct affine a = {1, 2, weight, bias};
  if (!check_float(&c, x, eps) || !parameter_fits(&c, "weight", weight, x, &a) ||
      !parameter_fits(&c, "bias", bias, x, &a))
    return c.result;
  if (x->rank == MAX_RANK) return call_fail(&c, "not supported: %u axes", x->rank);
  int64_t dim[MAX_RANK] = {x->dim[0], groups, x->dim[1] / groups};
  memcpy(dim + 3, x->dim + 2, (x->rank - 2) * sizeof *dim);
  struct expr e = expr_reshape(widen(x), x->rank + 1, dim);
  e = normalize(e, ((1u << e.rank) - 1) & ~3u, eps);
  return call_end(&c, expr_cast(apply_affine(expr_reshape(e, x->rank, x->dim), &a), x->dtype));
}

db_tensor *db_batch_norm_at(DB_AT, db_tensor *x, db_tensor *weight, db_tensor *bias, db_tensor *mean, db_tensor *var,
                            double eps) {
  struct call c;
  db_tensor *in[5] = {x, weight, bias, mean, var};
  if (!call_begin(&c, "batch_norm", file, line, drop_null(in, 5), in)) return c.result;
  if (x->rank < 2) return call_fail(&c, "the input is %s; it must have a batch and channels", SHAPE(*x));
  if (!mean != !var) return call_fail(&c, "a mean and a variance must be given together");
  struct affine a = {1, 2, weight, bias};
  if (!check_float(&c, x, eps) || !parameter_fits(&c, "weight", weight, x, &a) ||
      !parameter_fits(&c, "bias", bias, x, &a) || !parameter_fits(&c, "mean", mean, x, &a) ||
      !parameter_fits(&c, "variance", var, x, &a))
    return c.result;
  struct expr e = widen(x);
  if (!mean) {
    e = apply_affine(normalize(e, ((1u << x->rank) - 1) & ~2u, eps), &a);
  } else { /* compute per channel whatever depends only on the channel */
    struct expr by = divide_by_root(expr_full(expr_num(e, 1), 1, x->dim + 1), expr_cast(expr_of(var), e.dtype), eps);
    int64_t ones[MAX_RANK];
    for (unsigned i = 0; i < x->rank; i++) ones[i] = i == 1 ? x->dim[1] : 1;
    if (weight) by = expr_binary(OP_MUL, by, expr_cast(expr_of(weight), e.dtype));
    e = expr_binary(OP_SUB, e, broadcast_parameter(mean, &a, e.rank, e.dim, e.dtype));
    e = expr_binary(OP_MUL, e, expr_expand(expr_reshape(by, x->rank, ones), x->dim));
    if (bias) e = expr_binary(OP_ADD, e, broadcast_parameter(bias, &a, e.rank, e.dim, e.dtype));
  }
  return call_end(&c, expr_cast(e, x->dtype));
}

db_tensor *norm_batch_statistic(DB_AT, db_tensor *x, bool variance) {
  struct call c;
  if (!call_begin(&c, "batch_norm", file, line, 1, &x)) return c.result;
  unsigned mask = ((1u << x->rank) - 1) & ~2u;
  struct expr e = widen(x), d = expr_binary(OP_SUB, e, expr_expand(mean_of(e, mask), e.dim));
  e = variance ? mean_of(expr_binary(OP_MUL, d, d), mask) : mean_of(e, mask);
  return call_end(&c, expr_drop_axes(e, mask));
}
