/* Movement operations: check their arguments and move no data. Joining is in join.c, padding in padding.c. */
#include "ops.h"
#include <errno.h>
#include <string.h>

db_tensor *db_reshape_at(DB_AT, db_tensor *x, db_list shape) {
  struct call c;
  int64_t dim[MAX_RANK], known = 1, n;
  int open = -1;
  if (!call_begin_sized(&c, "reshape", file, line, 1, &x) || !list_ok(&c, shape)) return c.result;
  if (shape.n > MAX_RANK) return call_fail(&c, "%u axes were given, more than %d", shape.n, MAX_RANK);
  n = dims_numel(x->rank, x->dim);
  for (unsigned i = 0; i < shape.n; i++) {
    dim[i] = shape.v[i];
    bool symbolic = dim_is_symbolic(known) || dim_is_symbolic(dim[i]);
    if (dim[i] == -1 && open < 0) {
      open = (int)i;
      dim[i] = 1;
    } else if (dim_min(dim[i]) < 0 || (!symbolic && __builtin_mul_overflow(known, dim[i], &known))) {
      return call_fail(&c, "%s to %s: sizes must not be negative, but one of them may be -1", SHAPE(*x),
                       shape_text(shape.n, shape.v).s);
    } else if (symbolic)
      known = dim_product(known, dim[i]);
  }
  if (open >= 0 && !known)
    return call_fail(&c, "%s to %s: -1 is ambiguous beside a size of 0", SHAPE(*x), shape_text(shape.n, shape.v).s);
  if (open >= 0) dim_quotient(n, known, &dim[open]);
  if (dims_numel(shape.n, dim) != n)
    return call_fail(&c, "%s has %s elements, which %s cannot hold", SHAPE(*x), dim_text(n).s,
                     shape_text(shape.n, shape.v).s);
  return call_end(&c, expr_reshape(expr_of(x), shape.n, dim));
}

bool call_axes(struct call *c, const db_tensor *x, db_list axes, bool all, unsigned *mask) {
  if (!list_ok(c, axes)) return false;
  *mask = !axes.n && all ? (1u << x->rank) - 1 : 0;
  for (unsigned i = 0; i < axes.n; i++) {
    int a = axis_of(axes.v[i], x->rank);
    if (a < 0) return call_fail(c, "there is no axis %lld in %s", (long long)axes.v[i], SHAPE(*x)), false;
    if (*mask >> a & 1) return call_fail(c, "axis %d of %s is named twice", a, SHAPE(*x)), false;
    *mask |= 1u << a;
  }
  return true;
}

db_tensor *db_permute_at(DB_AT, db_tensor *x, db_list axes) {
  struct call c;
  unsigned mask, order[MAX_RANK];
  if (!call_begin_sized(&c, "permute", file, line, 1, &x) || !list_ok(&c, axes)) return c.result;
  if (axes.n != x->rank) return call_fail(&c, "%u axes are named, but %s has %u", axes.n, SHAPE(*x), x->rank);
  if (!call_axes(&c, x, axes, false, &mask)) return c.result;
  for (unsigned i = 0; i < axes.n; i++) order[i] = (unsigned)axis_of(axes.v[i], x->rank);
  return call_end(&c, expr_permute(expr_of(x), order));
}

db_tensor *db_transpose_at(DB_AT, db_tensor *x, int a, int b) {
  struct call c;
  unsigned order[MAX_RANK];
  if (!call_begin_sized(&c, "transpose", file, line, 1, &x)) return c.result;
  int i = axis_of(a, x->rank), j = axis_of(b, x->rank);
  if (i < 0 || j < 0) return call_fail(&c, "there is no axis %d in %s", i < 0 ? a : b, SHAPE(*x));
  for (unsigned k = 0; k < x->rank; k++) order[k] = k;
  order[i] = (unsigned)j;
  order[j] = (unsigned)i;
  return call_end(&c, expr_permute(expr_of(x), order));
}

db_tensor *db_expand_at(DB_AT, db_tensor *x, db_list shape) {
  struct call c;
  int64_t want[MAX_RANK], dim[MAX_RANK];
  if (!call_begin_sized(&c, "expand", file, line, 1, &x) || !list_ok(&c, shape)) return c.result;
  if (shape.n < x->rank || shape.n > MAX_RANK)
    return call_fail(&c, "%s to %s: an expansion keeps all axes, at most %d", SHAPE(*x), shape_text(shape.n, shape.v).s,
                     MAX_RANK);
  for (unsigned i = 0; i < shape.n; i++) {
    int64_t have = i < shape.n - x->rank ? 1 : x->dim[i - (shape.n - x->rank)];
    want[i] = shape.v[i] == -1 ? have : shape.v[i];
    if (have != 1 && want[i] != have)
      return call_fail(&c, "%s to %s: axis %u has size %s; only an axis of size 1 can grow", SHAPE(*x),
                       shape_text(shape.n, shape.v).s, i, dim_text(have).s);
  }
  if (!call_sizes(&c, (db_list){shape.n, want}, dim)) return c.result;
  return call_end(&c, expr_broadcast(expr_of(x), shape.n, dim));
}

static bool pair_count_good(struct call *c, const db_tensor *x, db_list pairs) {
  if (!list_ok(c, pairs)) return false;
  if (pairs.n == 2 * x->rank) return true;
  return call_fail(c, "%u numbers were given for %s; two per axis are needed", pairs.n, SHAPE(*x)), false;
}

bool call_pairs(struct call *c, const db_tensor *x, db_list pairs) {
  if (!pair_count_good(c, x, pairs)) return false;
  for (unsigned i = 0; i < x->rank; i++) {
    const int64_t *p = &pairs.v[2 * i];
    if (!dim_at_most(0, p[0]) || !dim_at_most(p[1], x->dim[i]) || !dim_at_most(p[0], p[1]))
      return call_fail(c, "axis %u of %s: [%s, %s) is not within [0, %s)%s", i, SHAPE(*x), dim_text(p[0]).s,
                       dim_text(p[1]).s, dim_text(x->dim[i]).s, bind_failure(p[1] < 0 ? p[1] : p[0]).s),
             false;
  }
  return true;
}

db_tensor *db_shrink_at(DB_AT, db_tensor *x, db_list pairs) {
  struct call c;
  if (!call_begin_sized(&c, "shrink", file, line, 1, &x)) return c.result;
  if (!call_pairs(&c, x, pairs)) return c.result;
  return call_end(&c, expr_bounds(OP_SHRINK, expr_of(x), pairs.v));
}

db_tensor *db_flip_at(DB_AT, db_tensor *x, db_list axes) {
  struct call c;
  unsigned mask;
  if (!call_begin_sized(&c, "flip", file, line, 1, &x)) return c.result;
  if (!call_axes(&c, x, axes, false, &mask)) return c.result;
  return call_end(&c, expr_flip(expr_of(x), mask));
}

db_tensor *db_contiguous_at(DB_AT, db_tensor *x) {
  struct call c;
  if (!call_begin_sized(&c, "contiguous", file, line, 1, &x)) return c.result;
  struct expr e = expr_of(x);
  e.u = uop_new(rt.graph, OP_CONTIGUOUS, e.dtype, 1, (union uop_arg){0}, 0, &e.u, 1);
  return call_end(&c, e);
}

db_tensor *db_to_at(DB_AT, db_tensor *x, db_device *dev) {
  struct call c;
  if (!call_begin_sized(&c, "to", file, line, 1, &x)) return c.result;
  int slot = slot_of(dev);
  if (slot < 0) return call_fail(&c, "%s", db_error());
  bool moves = (unsigned)slot != c.slot;
  c.slot = (unsigned)slot;
  c.holds_slot = true;
  struct expr e = expr_of(x);
  if (moves) e.u = uop_new(rt.graph, OP_COPY, e.dtype, 1, (union uop_arg){0}, c.slot, &e.u, 1);
  return call_end(&c, e);
}

/* ---- adding, dropping, merging and moving axes ---- */

db_tensor *db_squeeze_at(DB_AT, db_tensor *x, db_list axes) {
  struct call c;
  unsigned mask;
  if (!call_begin_sized(&c, "squeeze", file, line, 1, &x)) return c.result;
  if (!call_axes(&c, x, axes, true, &mask)) return c.result;
  for (unsigned i = 0; i < x->rank; i++)
    if (x->dim[i] != 1) mask &= ~(1u << i);
  return call_end(&c, expr_drop_axes(expr_of(x), mask));
}

db_tensor *db_unsqueeze_at(DB_AT, db_tensor *x, db_list axes) {
  struct call c;
  int64_t dim[MAX_RANK];
  unsigned rank, mask = 0;
  if (!call_begin_sized(&c, "unsqueeze", file, line, 1, &x) || !list_ok(&c, axes)) return c.result;
  rank = x->rank + axes.n;
  if (rank > MAX_RANK) return call_fail(&c, "%s with %u more axes has more than %d axes", SHAPE(*x), axes.n, MAX_RANK);
  for (unsigned i = 0; i < axes.n; i++) {
    int a = axis_of(axes.v[i], rank);
    if (a < 0 || (mask >> a & 1))
      return call_fail(&c, "%s: axis %lld of %u %s", SHAPE(*x), (long long)axes.v[i], rank,
                       a < 0 ? "does not exist" : "is named twice");
    mask |= 1u << a;
  }
  for (unsigned i = 0, k = 0; i < rank; i++) dim[i] = mask >> i & 1 ? 1 : x->dim[k++];
  return call_end(&c, expr_reshape(expr_of(x), rank, dim));
}

db_tensor *db_flatten_at(DB_AT, db_tensor *x, int first, int last) {
  struct call c;
  int64_t dim[MAX_RANK], joined = 1;
  unsigned n = 0;
  if (!call_begin(&c, "flatten", file, line, 1, &x)) return c.result;
  if (!x->rank) return call_end(&c, expr_reshape(expr_of(x), 1, (int64_t[]){1}));
  int a = axis_of(first, x->rank), b = axis_of(last, x->rank);
  if (a < 0 || b < a) return call_fail(&c, "axis %d to axis %d is not a range of axes of %s", first, last, SHAPE(*x));
  for (int i = 0; i < (int)x->rank; i++) {
    if (i >= a && i <= b) joined *= x->dim[i];
    if (i < a || i > b) dim[n++] = x->dim[i];
    if (i == b) dim[n++] = joined;
  }
  return call_end(&c, expr_reshape(expr_of(x), n, dim));
}

db_tensor *db_unflatten_at(DB_AT, db_tensor *x, int axis, db_list sizes) {
  struct call c;
  int64_t dim[MAX_RANK], known = 1;
  if (!call_begin(&c, "unflatten", file, line, 1, &x) || !list_ok(&c, sizes)) return c.result;
  int a = axis_of(axis, x->rank), open = -1;
  if (a < 0) return call_fail(&c, "there is no axis %d in %s", axis, SHAPE(*x));
  if (x->rank - 1 + sizes.n > MAX_RANK) return call_fail(&c, "more than %d axes", MAX_RANK);
  for (unsigned i = 0; i < (unsigned)a; i++) dim[i] = x->dim[i];
  for (unsigned i = 0; i < sizes.n; i++) {
    int64_t v = dim[(unsigned)a + i] = sizes.v[i];
    if (v == -1 && open < 0)
      open = a + (int)i;
    else if (v < 0 || __builtin_mul_overflow(known, v, &known))
      return call_fail(&c, "axis %d of %s cannot become %s", axis, SHAPE(*x), shape_text(sizes.n, sizes.v).s);
  }
  bool fits = open < 0 ? known == x->dim[a] : known && x->dim[a] % known == 0;
  if (!fits)
    return call_fail(&c, "axis %d of %s cannot become %s: the product of the sizes must be %lld", axis, SHAPE(*x),
                     shape_text(sizes.n, sizes.v).s, (long long)x->dim[a]);
  if (open >= 0) dim[open] = x->dim[a] / known;
  for (unsigned i = (unsigned)a + 1; i < x->rank; i++) dim[i - 1 + sizes.n] = x->dim[i];
  return call_end(&c, expr_reshape(expr_of(x), x->rank - 1 + sizes.n, dim));
}

db_tensor *db_movedim_at(DB_AT, db_tensor *x, db_list from, db_list to) {
  struct call c;
  unsigned source, target, order[MAX_RANK];
  if (!call_begin_sized(&c, "movedim", file, line, 1, &x)) return c.result;
  if (from.n != to.n) return call_fail(&c, "%u axes of %s cannot move to %u positions", from.n, SHAPE(*x), to.n);
  if (!call_axes(&c, x, from, false, &source) || !call_axes(&c, x, to, false, &target)) return c.result;
  for (unsigned i = 0; i < from.n; i++) order[axis_of(to.v[i], x->rank)] = (unsigned)axis_of(from.v[i], x->rank);
  for (unsigned i = 0, k = 0; i < x->rank; i++) {
    if (target >> i & 1) continue;
    while (source >> k & 1) k++;
    order[i] = k++;
  }
  return call_end(&c, expr_permute(expr_of(x), order));
}

static struct expr swap_axes(struct expr x, unsigned a, unsigned b) {
  unsigned order[MAX_RANK];
  for (unsigned i = 0; i < x.rank; i++) order[i] = i;
  order[a] = b, order[b] = a;
  return expr_permute(x, order);
}

db_tensor *db_rot90_at(DB_AT, db_tensor *x, int times, int from, int to) {
  struct call c;
  if (!call_begin_sized(&c, "rot90", file, line, 1, &x)) return c.result;
  int a = axis_of(from, x->rank), b = axis_of(to, x->rank);
  if (a < 0 || b < 0 || a == b)
    return call_fail(&c, "axes %d and %d of %s must be two different axes", from, to, SHAPE(*x));
  int k = (times % 4 + 4) % 4;
  struct expr e = expr_of(x);
  if (k == 2) e = expr_flip(e, 1u << a | 1u << b);
  if (k == 1) e = swap_axes(expr_flip(e, 1u << b), (unsigned)a, (unsigned)b);
  if (k == 3) e = expr_flip(swap_axes(e, (unsigned)a, (unsigned)b), 1u << b);
  return call_end(&c, e);
}

/* ---- steps, windows, diagonals ---- */

struct expr expr_stride(struct expr x, unsigned axis, int64_t step) {
  int64_t n = x.dim[axis], count = n ? (n - 1) / step + 1 : 0, pairs[2 * MAX_RANK] = {0}, dim[MAX_RANK];
  if (step == 1 || !n) return x;
  if (count == 1) return expr_slice(x, axis, 0, 1);
  if (x.rank == MAX_RANK) { /* no axis is left for the steps */
    int64_t at[MAX_RANK];
    for (unsigned i = 0; i < x.rank; i++) at[i] = i == axis ? count : x.dim[i];
    struct expr place = expr_count_along(n <= INT32_MAX ? DT_I32 : DT_I64, axis, x.rank, at);
    return expr_gather(x, axis, expr_binary(OP_MUL, place, expr_const(place.dtype, 0, step)));
  }
  pairs[2 * axis + 1] = count * step - n;
  x = expr_bounds(OP_PAD, x, pairs);
  for (unsigned i = 0; i <= x.rank; i++)
    dim[i] = i < axis ? x.dim[i] : i == axis ? count : i == axis + 1 ? step : x.dim[i - 1];
  x = expr_slice(expr_reshape(x, x.rank + 1, dim), axis + 1, 0, 1);
  return expr_drop_axes(x, 1u << (axis + 1));
}

db_tensor *db_stride_at(DB_AT, db_tensor *x, db_list steps) {
  struct call c;
  if (!call_begin(&c, "stride", file, line, 1, &x) || !list_ok(&c, steps)) return c.result;
  if (steps.n != x->rank)
    return call_fail(&c, "%u steps were given for %s; one per axis is needed", steps.n, SHAPE(*x));
  struct expr e = expr_of(x);
  for (unsigned i = 0; i < x->rank; i++) {
    int64_t step = steps.v[i];
    if (!step || step == INT64_MIN || dim_is_symbolic(step))
      return call_fail(&c, "axis %u of %s has a step of %lld", i, SHAPE(*x), (long long)step);
    if (step < 0) e = expr_flip(e, 1u << i);
    e = expr_stride(e, i, step < 0 ? -step : step);
  }
  return call_end(&c, e);
}

struct expr expr_windows(struct expr x, unsigned axis, int64_t size, int64_t step, int64_t dilation) {
  int64_t dim[MAX_RANK], places = x.dim[axis] - dilation * (size - 1);
  for (unsigned i = 0; i <= x.rank; i++) dim[i] = i == x.rank ? 1 : x.dim[i];
  x = expr_reshape(x, x.rank + 1, dim);
  dim[x.rank - 1] = size;
  x = expr_shear(expr_expand(x, dim), x.rank - 1, axis, dilation, places);
  return expr_stride(x, axis, step);
}

db_tensor *db_unfold_at(DB_AT, db_tensor *x, int axis, int64_t size, int64_t step) {
  struct call c;
  if (!call_begin(&c, "unfold", file, line, 1, &x)) return c.result;
  int a = axis_of(axis, x->rank);
  if (a < 0) return call_fail(&c, "there is no axis %d in %s", axis, SHAPE(*x));
  if (size < 1 || size > x->dim[a] || step < 1)
    return call_fail(&c, "axis %d of %s cannot have windows of %lld at distances of %lld", axis, SHAPE(*x),
                     (long long)size, (long long)step);
  if (x->rank == MAX_RANK)
    return call_fail(&c, "not supported: windows of %s, which has %d axes already", SHAPE(*x), MAX_RANK);
  return call_end(&c, expr_windows(expr_of(x), (unsigned)a, size, step, 1));
}

/* Moves row i to the left by i positions, so that the diagonal becomes a column. */
struct expr expr_diagonal(struct expr x, unsigned rows, unsigned cols, int64_t offset) {
  int64_t skip_rows = offset < 0 ? -offset : 0, skip_cols = offset > 0 ? offset : 0;
  int64_t r = x.dim[rows] - skip_rows, k = x.dim[cols] - skip_cols, n = r < k ? r : k;
  if (n < 0) n = 0;
  unsigned order[MAX_RANK], at = 0;
  x = expr_slice(x, rows, n ? skip_rows : 0, n ? skip_rows + n : 0);
  x = expr_slice(x, cols, n ? skip_cols : 0, n ? skip_cols + n : 0);
  for (unsigned i = 0; i < x.rank; i++)
    if (i != rows && i != cols) order[at++] = i;
  order[at] = rows, order[at + 1] = cols;
  x = expr_permute(x, order);
  return expr_drop_axes(expr_shear(x, at, at + 1, 1, n ? 1 : 0), n ? 1u << (at + 1) : 0);
}

db_tensor *db_diagonal_at(DB_AT, db_tensor *x, int64_t offset, int rows, int cols) {
  struct call c;
  if (!call_begin(&c, "diagonal", file, line, 1, &x)) return c.result;
  int a = axis_of(rows, x->rank), b = axis_of(cols, x->rank);
  if (a < 0 || b < 0 || a == b)
    return call_fail(&c, "axes %d and %d of %s must be two different axes", rows, cols, SHAPE(*x));
  if (dim_is_symbolic(offset)) return call_fail(&c, "not supported: a symbolic offset");
  if (offset < -x->dim[a]) offset = -x->dim[a];
  if (offset > x->dim[b]) offset = x->dim[b];
  struct expr e = expr_diagonal(expr_of(x), (unsigned)a, (unsigned)b, offset);
  if (e.rank == x->rank) e = expr_reshape(e, e.rank - 1, e.dim); /* an empty diagonal: [..., 0, 0] to [..., 0] */
  return call_end(&c, e);
}

/* A matrix of zeros with a vector on a diagonal, or the diagonal of a matrix. */
db_tensor *db_diag_at(DB_AT, db_tensor *x, int64_t offset) {
  struct call c;
  if (x && x->value && x->rank == 2) return db_diagonal_at(file, line, x, offset, 0, 1);
  if (!call_begin(&c, "diag", file, line, 1, &x)) return c.result;
  if (x->rank != 1) return call_fail(&c, "the input is %s; it must have one or two axes", SHAPE(*x));
  if (offset > INT32_MAX || offset < -INT32_MAX)
    return call_fail(&c, "the diagonal %lld is too far from the main diagonal", (long long)offset);
  int64_t n = x->dim[0], side = n + (offset < 0 ? -offset : offset), dim[2];
  if (!call_shape(&c, DB_LIST(side, side), dim)) return c.result;
  /* element (i, j) is element j - i of a vector that has only element 0; shearing turns the column into a diagonal */
  struct expr e = expr_reshape(expr_of(x), 2, (int64_t[]){n, 1});
  e = expr_shear(e, 0, 1, -1, n);
  e = expr_bounds(OP_PAD, e,
                  (int64_t[]){offset < 0 ? -offset : 0, offset > 0 ? offset : 0, offset > 0 ? offset : 0,
                              offset < 0 ? -offset : 0});
  return call_end(&c, e);
}
