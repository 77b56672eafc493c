/* Convolutions: windows of the input times weights, in one sum. A transposed convolution distributes each input to the
 * outputs that it affects: it inserts stride - 1 zeros between the inputs and shears them backward along the kernel. */
#include "functions.h"
#include "window.h"
#include <string.h>

struct conv {
  struct window w;
  int64_t extra[WINDOW_AXES];     /* output padding */
  int64_t batch, groups, in, out; /* in, out: channels per group */
  enum dtype sum, type;
};

/* "same" padding: the output has in / stride elements, rounded up. If the padding is odd, the larger half comes
 * after. */
static void pad_same(struct window *w) {
  for (unsigned i = 0; i < w->n; i++) {
    w->out[i] = (w->in[i] + w->stride[i] - 1) / w->stride[i];
    int64_t missing = window_reach(w, i) - w->in[i];
    w->before[i] = missing > 0 ? missing / 2 : 0;
    w->after[i] = missing > 0 ? missing - w->before[i] : 0;
  }
}

static bool channels(struct call *c, struct conv *v, const db_tensor *x, const db_tensor *weight, const db_tensor *bias,
                     const struct db_conv *o, bool transposed) {
  unsigned n = v->w.n;
  int64_t all = x->dim[x->rank - n - 1];
  v->batch = x->rank == n + 2 ? x->dim[0] : 1;
  v->groups = o->groups ? o->groups : 1;
  if (v->groups < 1) return call_fail(c, "%lld groups", (long long)v->groups), false;
  if (weight->rank != n + 2)
    return call_fail(c, "the weight is %s; it must have %u axes", SHAPE(*weight), n + 2), false;
  for (unsigned i = 0; i < n; i++) {
    v->w.kernel[i] = weight->dim[2 + i];
    if (v->w.kernel[i] < 1 || v->w.kernel[i] > INT32_MAX)
      return call_fail(c, "the weight %s has no elements along axis %u", SHAPE(*weight), 2 + i), false;
  }
  int64_t from = transposed ? weight->dim[0] : dim_product(weight->dim[1], v->groups);
  int64_t to = transposed ? dim_product(weight->dim[1], v->groups) : weight->dim[0];
  if (from != all || all % v->groups || to % v->groups)
    return call_fail(c, "input %s and weight %s in %lld groups: the input has %lld channels, the weight needs %lld",
                     SHAPE(*x), SHAPE(*weight), (long long)v->groups, (long long)all, (long long)from),
           false;
  v->in = all / v->groups, v->out = to / v->groups;
  if (bias && (bias->rank != 1 || bias->dim[0] != to))
    return call_fail(c, "the bias is %s; it must have %lld output channels", SHAPE(*bias), (long long)to), false;
  v->type = dtype_promote(x->dtype, weight->dtype);
  if (bias) v->type = dtype_promote(v->type, bias->dtype);
  v->sum = product_sum_type(v->type);
  return true;
}

/* Multiplies windows [batch, channels, outputs, kernel] with weight [groups, out, in, kernel] and sums over in and
 * kernel. */
static struct expr sum_of_products(const struct conv *v, struct expr windows, struct expr weight) {
  unsigned n = v->w.n, rank = 4 + 2 * n, mask = 1u << 3;
  int64_t x[MAX_RANK] = {v->batch, v->groups, 1, v->in}, y[MAX_RANK] = {1, v->groups, v->out, v->in}, both[MAX_RANK];
  for (unsigned i = 0; i < n; i++) {
    x[4 + i] = v->w.out[i], y[4 + i] = 1;
    x[4 + n + i] = y[4 + n + i] = v->w.kernel[i];
    mask |= 1u << (4 + n + i);
  }
  for (unsigned i = 0; i < rank; i++) both[i] = x[i] > y[i] ? x[i] : y[i];
  both[0] = v->batch;
  windows = expr_expand(expr_reshape(windows, rank, x), both);
  weight = expr_expand(expr_reshape(weight, rank, y), both);
  return expr_reduce(OP_ADD, expr_binary(OP_MUL, windows, weight), mask);
}

/* Adds the bias to the sum [batch, groups, out, 1, outputs, 1...], and reshapes it to the result. The reshape is last,
 * so that the kernel has loops over groups and over their channels, whose operands then have plain strides. */
static struct expr add_bias(const struct conv *v, struct expr r, const db_tensor *x, const db_tensor *bias) {
  unsigned n = v->w.n, at = 0;
  int64_t dim[MAX_RANK], sums[MAX_RANK] = {v->batch, v->groups, v->out, 1}, along[MAX_RANK] = {1, v->groups, v->out, 1};
  if (x->rank == n + 2) dim[at++] = v->batch;
  dim[at++] = v->groups * v->out;
  for (unsigned i = 0; i < n; i++) dim[at + i] = sums[4 + i] = v->w.out[i], sums[4 + n + i] = 1;
  for (unsigned i = 4; i < r.rank; i++) along[i] = 1;
  if (bias) {
    struct expr b = expr_reshape(expr_cast(expr_of(bias), v->sum), r.rank, along);
    r = expr_binary(OP_ADD, r, expr_expand(b, sums));
  }
  return expr_reshape(expr_cast(r, v->type), x->rank, dim);
}

static db_tensor *convolve(struct call *c, db_tensor *x, db_tensor *weight, db_tensor *bias, unsigned n,
                           const struct db_conv *o) {
  struct conv v = {0};
  struct window *w = &v.w;
  if (!window_input(c, w, x, n) || !channels(c, &v, x, weight, bias, o, false)) return c->result;
  if (!window_list(c, "stride", o->stride, n, 1, 1, w->stride)) return c->result;
  if (!window_list(c, "dilation", o->dilation, n, 1, 1, w->dilation)) return c->result;
  if (o->same && o->padding.n) return call_fail(c, "padding and same padding exclude each other");
  if (o->output_padding.n) return call_fail(c, "output padding is possible for transposed convolutions only");
  if (!window_padding(c, o->padding, n, w->before, w->after)) return c->result;
  if (o->same) pad_same(w);
  if (!window_output(c, w, false)) return c->result;
  struct expr windows = window_slide(w, window_pad(w, expr_cast(expr_of(x), v.sum)));
  return call_end(c, add_bias(&v, sum_of_products(&v, windows, expr_cast(expr_of(weight), v.sum)), x, bias));
}

/* Inserts stride - 1 zeros after every element of the last axes of x. */
static struct expr insert_zeros(const struct window *w, struct expr x) {
  int64_t dim[MAX_RANK], pairs[2 * MAX_RANK] = {0};
  unsigned n = w->n, first = x.rank - n;
  memcpy(dim, x.dim, first * sizeof *dim);
  for (unsigned i = 0; i < n; i++) {
    dim[first + 2 * i] = w->in[i], dim[first + 2 * i + 1] = 1;
    pairs[2 * (first + 2 * i + 1) + 1] = w->stride[i] - 1;
  }
  struct expr e = expr_bounds(OP_PAD, expr_reshape(x, first + 2 * n, dim), pairs);
  for (unsigned i = 0; i < n; i++) dim[first + i] = w->in[i] * w->stride[i];
  return expr_reshape(e, x.rank, dim);
}

/* Turns [..., in] into [..., outputs, kernel]: an input is at output = in * stride + kernel * dilation - before. */
static struct expr window_scatter(const struct window *w, struct expr x) {
  int64_t dim[MAX_RANK], pairs[2 * MAX_RANK] = {0};
  unsigned n = w->n, first = x.rank - n;
  x = insert_zeros(w, x);
  memcpy(dim, x.dim, x.rank * sizeof *dim);
  for (unsigned i = 0; i < n; i++) dim[x.rank + i] = 1;
  x = expr_reshape(x, x.rank + n, dim);
  for (unsigned i = 0; i < n; i++) dim[first + n + i] = w->kernel[i];
  x = expr_expand(x, dim);
  for (unsigned i = 0; i < n; i++)
    x = expr_shear(x, first + n + i, first + i, -w->dilation[i], w->before[i] + w->out[i]);
  for (unsigned i = 0; i < x.rank; i++) {
    pairs[2 * i] = i >= first && i < first + n ? w->before[i - first] : 0;
    pairs[2 * i + 1] = x.dim[i];
  }
  return expr_bounds(OP_SHRINK, x, pairs);
}

static db_tensor *convolve_transposed(struct call *c, db_tensor *x, db_tensor *weight, db_tensor *bias, unsigned n,
                                      const struct db_conv *o) {
  struct conv v = {0};
  struct window *w = &v.w;
  if (!window_input(c, w, x, n) || !channels(c, &v, x, weight, bias, o, true)) return c->result;
  if (!window_list(c, "stride", o->stride, n, 1, 1, w->stride)) return c->result;
  if (!window_list(c, "dilation", o->dilation, n, 1, 1, w->dilation)) return c->result;
  if (!window_list(c, "output padding", o->output_padding, n, 0, 0, v.extra)) return c->result;
  if (o->same) return call_fail(c, "not supported: same padding of a transposed convolution");
  if (!window_padding(c, o->padding, n, w->before, w->after)) return c->result;
  for (unsigned i = 0; i < n; i++) {
    int64_t full = (w->in[i] - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i] + 1 + v.extra[i];
    w->out[i] = full - w->before[i] - w->after[i];
    if (v.extra[i] && v.extra[i] >= w->stride[i] && v.extra[i] >= w->dilation[i])
      return call_fail(c, "the output padding is %lld; it must be less than the stride or the dilation",
                       (long long)v.extra[i]);
    if (w->out[i] < 1) return call_fail(c, "the padding removes all %lld outputs", (long long)full);
  }
  /* [groups * in, out, kernel] to [groups, out, in, kernel] */
  struct expr y = expr_cast(expr_of(weight), v.sum);
  int64_t dim[MAX_RANK] = {v.groups, v.in, v.out};
  memcpy(dim + 3, w->kernel, n * sizeof *dim);
  unsigned order[MAX_RANK] = {0, 2, 1, 3, 4, 5};
  y = expr_permute(expr_reshape(y, 3 + n, dim), order);
  struct expr windows = window_scatter(w, expr_cast(expr_of(x), v.sum));
  return call_end(c, add_bias(&v, sum_of_products(&v, windows, y), x, bias));
}

db_tensor *db_conv_at(DB_AT, unsigned axes, bool transposed, db_tensor *x, db_tensor *weight, db_tensor *bias,
                      struct db_conv options) {
  static const char *const names[2][4] = {
      {"conv", "conv1d", "conv2d", "conv3d"},
      {"conv_transpose", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}};
  struct call c;
  db_tensor *in[3] = {x, weight, bias};
  if (!call_begin(&c, names[transposed][axes <= 3 ? axes : 0], file, line, bias ? 3 : 2, in)) return c.result;
  return (transposed ? convolve_transposed : convolve)(&c, x, weight, bias, axes, &options);
}
