/* Sliding windows as movement: repeats x along new kernel axes, shears an axis along each of them by the dilation, and
 * keeps every stride-th element. Indices stay sums of multiples; gradients shear back, so theirs do, too. */
#include "window.h"
#include <string.h>

bool window_list(struct call *c, const char *what, db_list list, unsigned n, int64_t otherwise, int64_t least,
                 int64_t *out) {
  if (!list_ok(c, list)) return false;
  if (list.n > 1 && list.n != n)
    return call_fail(c, "%u numbers were given as %s; give one, or one per axis for %u axes", list.n, what, n), false;
  for (unsigned i = 0; i < n; i++) {
    out[i] = !list.n ? otherwise : list.v[list.n == 1 ? 0 : i];
    if (out[i] < least || out[i] > INT32_MAX)
      return call_fail(c, "the %s is %lld; it must be at least %lld", what, (long long)out[i], (long long)least), false;
  }
  return true;
}

bool window_padding(struct call *c, db_list list, unsigned n, int64_t *before, int64_t *after) {
  if (list.n != 2 * n) {
    if (!window_list(c, "padding", list, n, 0, 0, before)) return false;
    memcpy(after, before, n * sizeof *after);
    return true;
  }
  if (!list_ok(c, list)) return false;
  for (unsigned i = 0; i < n; i++) {
    before[i] = list.v[2 * i], after[i] = list.v[2 * i + 1];
    int64_t least = before[i] < after[i] ? before[i] : after[i];
    if (least < 0 || before[i] > INT32_MAX || after[i] > INT32_MAX)
      return call_fail(c, "the padding is %lld before and %lld after; it must not be negative", (long long)before[i],
                       (long long)after[i]),
             false;
  }
  return true;
}

bool window_input(struct call *c, struct window *w, const db_tensor *x, unsigned n) {
  if (n < 1 || n > WINDOW_AXES)
    return call_fail(c, "the kernel has %u axes; it must have 1 to %d", n, WINDOW_AXES), false;
  if (x->rank != n + 1 && x->rank != n + 2)
    return call_fail(
               c,
               "the input is %s; it must have %u axes, channels and %u that windows move over, after an optional batch",
               SHAPE(*x), n + 1, n),
           false;
  w->n = n;
  for (unsigned i = 0; i < n; i++) {
    w->in[i] = x->dim[x->rank - n + i];
    if (w->in[i] < 1 || w->in[i] > INT32_MAX)
      return call_fail(c, "not supported: windows along axis %u of %s", x->rank - n + i, SHAPE(*x)), false;
  }
  return true;
}

bool window_output(struct call *c, struct window *w, bool ceil) {
  for (unsigned i = 0; i < w->n; i++) {
    int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1, have = w->in[i] + w->before[i] + w->after[i];
    if (have < span)
      return call_fail(c, "the kernel spans %lld of axis %u, which has %lld with padding", (long long)span, i,
                       (long long)have),
             false;
    w->out[i] = (have - span + (ceil ? w->stride[i] - 1 : 0)) / w->stride[i] + 1;
    if (ceil && (w->out[i] - 1) * w->stride[i] >= w->in[i] + w->before[i]) w->out[i]--;
  }
  return true;
}

int64_t window_reach(const struct window *w, unsigned axis) {
  return (w->out[axis] - 1) * w->stride[axis] + (w->kernel[axis] - 1) * w->dilation[axis] + 1;
}

struct expr window_pad(const struct window *w, struct expr x) {
  int64_t pairs[2 * MAX_RANK] = {0};
  for (unsigned i = 0; i < w->n; i++) {
    unsigned a = x.rank - w->n + i;
    pairs[2 * a] = w->before[i], pairs[2 * a + 1] = w->after[i];
  }
  return expr_bounds(OP_PAD, x, pairs);
}

/* Keeps every step-th element of the last n axes, whose sizes are multiples of their steps. */
static struct expr keep_every(struct expr x, unsigned n, const int64_t *step) {
  int64_t dim[MAX_RANK], pairs[2 * MAX_RANK], last[MAX_RANK];
  unsigned rank = x.rank - n;
  bool all = true;
  for (unsigned i = 0; i < n; i++) all &= step[i] == 1;
  if (all) return x;
  memcpy(dim, x.dim, rank * sizeof *dim);
  for (unsigned i = 0; i < n; i++) dim[rank + 2 * i] = x.dim[rank + i] / step[i], dim[rank + 2 * i + 1] = step[i];
  memcpy(last, x.dim, rank * sizeof *last);
  for (unsigned i = 0; i < n; i++) last[rank + i] = dim[rank + 2 * i];
  for (unsigned i = 0; i < rank + 2 * n; i++) {
    pairs[2 * i] = 0;
    pairs[2 * i + 1] = i >= rank && (i - rank) % 2 ? 1 : dim[i];
  }
  return expr_reshape(expr_bounds(OP_SHRINK, expr_reshape(x, rank + 2 * n, dim), pairs), x.rank, last);
}

struct expr window_slide(const struct window *w, struct expr x) {
  int64_t dim[MAX_RANK];
  unsigned n = w->n, first = x.rank - n, order[MAX_RANK];
  memcpy(dim, x.dim, first * sizeof *dim); /* [..., kernel, positions], because keep_every works on the last axes */
  for (unsigned i = 0; i < n; i++) dim[first + i] = 1, dim[first + n + i] = x.dim[first + i];
  x = expr_reshape(x, first + 2 * n, dim);
  for (unsigned i = 0; i < n; i++) dim[first + i] = w->kernel[i];
  x = expr_expand(x, dim);
  for (unsigned i = 0; i < n; i++)
    x = expr_shear(x, first + i, first + n + i, w->dilation[i], w->out[i] * w->stride[i]);
  x = keep_every(x, n, w->stride);
  for (unsigned i = 0; i < first; i++) order[i] = i;
  for (unsigned i = 0; i < n; i++) order[first + i] = first + n + i, order[first + n + i] = first + i;
  return expr_permute(x, order);
}
