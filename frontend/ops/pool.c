/* Pools: the maximum or the mean of windows, given the window's size or the output's size. */
#include "window.h"
#include <math.h>
#include <string.h>

static struct expr number_of(struct expr like, int64_t v) { return expr_const(like.dtype, (double)v, v); }
static struct expr binary_int(enum op op, struct expr x, int64_t v) { return expr_binary(op, x, number_of(x, v)); }

static enum dtype mean_type(enum dtype t) { return !dtype_is_float(t) || dtype_is_narrow_float(t) ? DT_F32 : t; }

/* For each output, the number of elements that its window covers along an axis, in the shape of the result. Padding
 * counts if padding_counts is set. */
static struct expr covered_count(const struct window *w, unsigned axis, bool padding_counts, unsigned rank,
                                 const int64_t *dim) {
  int64_t low = padding_counts ? -w->before[axis] : 0, high = w->in[axis] + (padding_counts ? w->after[axis] : 0);
  int64_t step = w->dilation[axis];
  struct expr first = expr_count_along(DT_I32, rank - w->n + axis, rank, dim);
  first = binary_int(OP_ADD, binary_int(OP_MUL, first, w->stride[axis]), -w->before[axis]);
  struct expr skipped = expr_binary(OP_SUB, number_of(first, low + step - 1), first);
  struct expr held =
      expr_binary(OP_SUB, number_of(first, high - 1 + step), first); /* the last element counted starts before high */
  if (step > 1) skipped = binary_int(OP_IDIV, skipped, step), held = binary_int(OP_IDIV, held, step);
  skipped = binary_int(OP_MAX, skipped, 0);
  struct expr past = binary_int(OP_MAX, expr_binary(OP_SUB, number_of(held, w->kernel[axis]), held), 0);
  held = expr_binary(OP_SUB, number_of(past, w->kernel[axis]), past);
  return binary_int(OP_MAX, expr_binary(OP_SUB, held, skipped), 1);
}

/* Divides a sum over windows by the number of elements. */
static struct expr divide_by_count(const struct window *w, struct expr sum, bool padding_counts) {
  double all = 1;
  bool whole = true;
  for (unsigned i = 0; i < w->n; i++) {
    int64_t padded = w->in[i] + w->before[i] + w->after[i];
    whole = whole && window_reach(w, i) <= padded && (padding_counts || !(w->before[i] + w->after[i]));
    all *= (double)w->kernel[i];
  }
  if (whole) return expr_binary(OP_MUL, sum, expr_const(sum.dtype, 1 / all, 0));
  struct expr count = {0};
  for (unsigned i = 0; i < w->n; i++) {
    struct expr n = expr_cast(covered_count(w, i, padding_counts, sum.rank, sum.dim), sum.dtype);
    count = i ? expr_binary(OP_MUL, count, n) : n;
  }
  return expr_binary(OP_FDIV, sum, count);
}

/* Adds elements after the padding, so that the last windows are full. */
static struct window fill_last_windows(struct window w) {
  for (unsigned i = 0; i < w.n; i++) {
    int64_t missing = window_reach(&w, i) - (w.in[i] + w.before[i] + w.after[i]);
    if (missing > 0) w.after[i] += missing;
  }
  return w;
}

static struct expr pool(const struct window *w, enum db_pool_op op, struct expr x, bool padding_counts) {
  struct window all = fill_last_windows(*w);
  int64_t pairs[2 * MAX_RANK] = {0};
  unsigned n = w->n, first = x.rank - n;
  enum dtype t = x.dtype;
  bool mean = op == DB_POOL_MEAN;
  if (mean) x = expr_cast(x, mean_type(t));
  for (unsigned i = 0; i < n; i++) pairs[2 * (first + i)] = all.before[i], pairs[2 * (first + i) + 1] = all.after[i];
  x = expr_pad_value(x, pairs, mean ? number_of(x, 0) : expr_least(t));
  unsigned mask = ((1u << n) - 1) << x.rank;
  struct expr r = expr_drop_axes(expr_reduce(mean ? OP_ADD : OP_MAX, window_slide(&all, x), mask), mask);
  if (!mean) return r;
  r = divide_by_count(w, r, padding_counts);
  return dtype_is_narrow_float(t) ? expr_cast(r, t) : r;
}

static bool pool_known(struct call *c, enum db_pool_op op) {
  if (op == DB_POOL_MAX || op == DB_POOL_MEAN) return true;
  return call_fail(c, "unknown pooling %d", (int)op), false;
}

db_tensor *db_pool_at(DB_AT, unsigned axes, enum db_pool_op op, db_tensor *x, db_list kernel, struct db_pool o) {
  struct call c;
  struct window w = {0};
  if (!call_begin(&c, op == DB_POOL_MEAN ? "avg_pool" : "max_pool", file, line, 1, &x)) return c.result;
  if (!pool_known(&c, op) || !window_input(&c, &w, x, axes)) return c.result;
  if (!kernel.n) return call_fail(&c, "the size of the kernel is missing");
  if (!window_list(&c, "kernel", kernel, axes, 1, 1, w.kernel)) return c.result;
  if (!window_list(&c, "stride", o.stride.n ? o.stride : kernel, axes, 1, 1, w.stride)) return c.result;
  if (!window_list(&c, "dilation", o.dilation, axes, 1, 1, w.dilation)) return c.result;
  if (!window_padding(&c, o.padding, axes, w.before, w.after)) return c.result;
  for (unsigned i = 0; i < axes; i++) {
    int64_t span = (w.kernel[i] - 1) * w.dilation[i] + 1;
    if (w.before[i] >= span || w.after[i] >= span)
      return call_fail(
          &c, "the padding is %lld before and %lld after, but the kernel spans %lld; windows would hold padding only",
          (long long)w.before[i], (long long)w.after[i], (long long)span);
  }
  if (!window_output(&c, &w, o.ceil_mode)) return c.result;
  return call_end(&c, pool(&w, op, expr_of(x), !o.exclude_padding));
}

/* ---- adaptive pools: output o combines the elements [o * in / out, ceil((o + 1) * in / out)) ---- */

static struct expr window_begin(struct expr o, int64_t in, int64_t out) {
  return binary_int(OP_IDIV, binary_int(OP_MUL, o, in), out);
}
static struct expr window_end(struct expr o, int64_t in, int64_t out) {
  return binary_int(OP_IDIV, binary_int(OP_ADD, binary_int(OP_MUL, o, in), in + out - 1), out);
}
/* The number of elements of the largest window. The remainders of o * in / out are the multiples of the two sizes'
 * greatest common divisor below out. */
static int64_t widest_window(int64_t in, int64_t out) {
  int64_t divisor = out, rest = in;
  while (rest) {
    int64_t next = divisor % rest;
    divisor = rest, rest = next;
  }
  return (in + out - divisor + out - 1) / out;
}

/* Splits axis a of x into outputs and, on a new axis after it, the elements of each. Missing elements are filled with
 * the identity element. */
static struct expr adaptive_windows(struct expr x, unsigned a, int64_t out, enum db_pool_op op) {
  int64_t in = x.dim[a], most = widest_window(in, out), dim[MAX_RANK], grid[2] = {out, most};
  struct expr o = expr_count_along(DT_I64, 0, 2, grid), k = expr_count_along(DT_I64, 1, 2, grid);
  struct expr at = expr_binary(OP_ADD, window_begin(o, in, out), k);
  struct expr inside = expr_binary(OP_CMPLT, at, window_end(o, in, out));
  for (unsigned i = 0; i < x.rank; i++) dim[i] = i == a ? out * most : 1;
  at = expr_reshape(expr_where(inside, at, number_of(at, -1)), x.rank, dim);
  memcpy(dim, x.dim, sizeof dim);
  dim[a] = out * most;
  x = expr_gather(x, a, expr_expand(at, dim));
  memmove(dim + a + 1, dim + a, (x.rank - a) * sizeof *dim);
  dim[a] = out, dim[a + 1] = most;
  x = expr_reshape(x, x.rank + 1, dim);
  if (op == DB_POOL_MEAN) return x;
  int64_t ones[MAX_RANK];
  for (unsigned i = 0; i < x.rank; i++) ones[i] = i == a ? out : i == a + 1 ? most : 1;
  return expr_where(expr_expand(expr_reshape(inside, x.rank, ones), dim), x, expr_least(x.dtype));
}

static struct expr adaptive_pool(struct expr x, unsigned n, const int64_t *out, enum db_pool_op op) {
  enum dtype t = x.dtype;
  unsigned first = x.rank - n, mask = 0;
  int64_t in[WINDOW_AXES];
  memcpy(in, x.dim + first, n * sizeof *in);
  if (op == DB_POOL_MEAN) x = expr_cast(x, mean_type(t));
  for (unsigned i = 0; i < n; i++) {
    x = adaptive_windows(x, first + 2 * i, out[i], op);
    mask |= 1u << (first + 2 * i + 1);
  }
  x = expr_drop_axes(expr_reduce(op == DB_POOL_MEAN ? OP_ADD : OP_MAX, x, mask), mask);
  for (unsigned i = 0; i < n && op == DB_POOL_MEAN; i++) {
    struct expr o = expr_count_along(DT_I64, first + i, x.rank, x.dim);
    struct expr count = expr_binary(OP_SUB, window_end(o, in[i], out[i]), window_begin(o, in[i], out[i]));
    x = expr_binary(OP_FDIV, x, expr_cast(count, x.dtype));
  }
  return op == DB_POOL_MEAN && dtype_is_narrow_float(t) ? expr_cast(x, t) : x;
}

db_tensor *db_adaptive_pool_at(DB_AT, unsigned axes, enum db_pool_op op, db_tensor *x, db_list sizes) {
  struct call c;
  struct window w = {0};
  const char *name = op == DB_POOL_MEAN ? "adaptive_avg_pool" : "adaptive_max_pool";
  if (!call_begin(&c, name, file, line, 1, &x)) return c.result;
  if (!pool_known(&c, op) || !window_input(&c, &w, x, axes)) return c.result;
  if (!sizes.n) return call_fail(&c, "the size of the result is missing");
  if (!window_list(&c, "size", sizes, axes, 1, 1, w.out)) return c.result;
  bool equal = true;
  for (unsigned i = 0; i < axes; i++) {
    equal = equal && w.in[i] % w.out[i] == 0;
    w.kernel[i] = w.stride[i] = w.in[i] / w.out[i];
    w.dilation[i] = 1;
  }
  return call_end(&c, equal ? pool(&w, op, expr_of(x), true) : adaptive_pool(expr_of(x), axes, w.out, op));
}
