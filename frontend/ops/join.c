/* Joins and splits tensors: concatenation, splitting, repeating, rolling, grids. */
#include "../tensor/call.h"
#include <stdlib.h>
#include <string.h>

/* ---- joining ---- */

db_tensor *db_cat_at(DB_AT, db_tensor *const *x, unsigned n, int axis, bool stack) {
  struct call c;
  struct expr *e = NULL;
  if (!call_begin(&c, stack ? "stack" : "cat", file, line, n, x)) return c.result;
  if (!n) return call_fail(&c, "there are no tensors");
  unsigned rank = x[0]->rank + stack;
  int a = axis_of(axis, rank);
  if (a < 0 || rank > MAX_RANK) return call_fail(&c, "the tensors are %s and have no axis %d", SHAPE(*x[0]), axis);
  enum dtype t = x[0]->dtype;
  for (unsigned i = 0; i < n; i++) {
    bool fits = x[i]->rank == x[0]->rank;
    for (unsigned k = 0; fits && k < x[0]->rank; k++)
      fits = x[i]->dim[k] == x[0]->dim[k] || (!stack && k == (unsigned)a);
    if (!fits) {
      struct shape_text first = shape_text(x[0]->rank, x[0]->dim);
      return call_fail(&c, "tensor 0 is %s, but tensor %u is %s; all sizes except along axis %d must be equal", first.s,
                       i, SHAPE(*x[i]), axis);
    }
    t = dtype_promote(t, x[i]->dtype);
  }
  if (!(e = malloc(n * sizeof *e))) return call_fail(&c, "out of memory for %u tensors", n);
  for (unsigned i = 0; i < n; i++) {
    e[i] = expr_cast(expr_of(x[i]), t);
    if (!stack) continue;
    int64_t dim[MAX_RANK];
    for (unsigned k = 0; k < rank; k++) dim[k] = k == (unsigned)a ? 1 : x[i]->dim[k - (k > (unsigned)a)];
    e[i] = expr_reshape(e[i], rank, dim);
  }
  struct expr r = expr_cat(e, n, (unsigned)a);
  free(e);
  return call_end(&c, r);
}

/* ---- splitting ---- */

/* Makes piece k. Each piece is a separate operation, so each one is poisoned if the sizes are wrong. */
static db_tensor *split_piece(DB_AT, db_tensor *x, int axis, db_list sizes, unsigned k) {
  struct call c;
  int64_t total = 0, begin = 0;
  if (!call_begin(&c, "split", file, line, 1, &x) || !list_ok(&c, sizes)) return c.result;
  int a = axis_of(axis, x->rank);
  if (a < 0) return call_fail(&c, "there is no axis %d in %s", axis, SHAPE(*x));
  for (unsigned i = 0; i < sizes.n; i++) {
    if (i == k) begin = total;
    if (sizes.v[i] < 0 || total < 0 || __builtin_add_overflow(total, sizes.v[i], &total)) total = -1;
  }
  if (total != x->dim[a])
    return call_fail(&c, "axis %d of %s cannot be split into %s: the sizes must add up to %lld", axis, SHAPE(*x),
                     shape_text(sizes.n, sizes.v).s, (long long)x->dim[a]);
  return call_end(&c, expr_slice(expr_of(x), (unsigned)a, begin, begin + sizes.v[k]));
}

void db_split_at(DB_AT, db_tensor *x, int axis, db_tensor **out, db_list sizes) {
  if (!results_ok("split", out, sizes.n)) return;
  for (unsigned k = 0; k < sizes.n; k++) out[k] = split_piece(file, line, x, axis, sizes, k);
}

void db_chunk_at(DB_AT, db_tensor *x, int axis, unsigned n, db_tensor **out) {
  if (!results_ok("chunk", out, n)) return;
  int64_t left = db_dim(x, axis), most = n ? (left + n - 1) / n : 0, *sizes = malloc(n * sizeof *sizes + 1);
  for (unsigned k = 0; sizes && k < n; k++) left -= sizes[k] = left < most ? left : most;
  for (unsigned k = 0; k < n; k++)
    out[k] =
        sizes ? split_piece(file, line, x, axis, (db_list){n, sizes}, k) : db_cat_at(file, line, NULL, 0, 0, false);
  free(sizes);
}

/* ---- repeating, rolling ---- */

/* Repeats through a new axis, [.., n, d, ..] or with `each` [.., d, n, ..], which is merged with the old one. */
static struct expr repeat_axis(struct expr x, unsigned axis, int64_t n, bool each) {
  int64_t dim[MAX_RANK + 1];
  if (n == 1) return x;
  if (x.dim[axis] == 1) {
    memcpy(dim, x.dim, sizeof x.dim);
    dim[axis] = n;
    return expr_expand(x, dim);
  }
  unsigned at = axis + each;
  for (unsigned i = 0; i <= x.rank; i++) dim[i] = i < at ? x.dim[i] : i == at ? 1 : x.dim[i - 1];
  struct expr e = expr_reshape(x, x.rank + 1, dim);
  dim[at] = n;
  e = expr_expand(e, dim);
  memcpy(dim, x.dim, sizeof x.dim);
  dim[axis] *= n;
  return expr_reshape(e, x.rank, dim);
}
struct expr expr_repeat(struct expr x, unsigned axis, int64_t n) { return repeat_axis(x, axis, n, false); }

static bool room_to_repeat(struct call *c, struct expr x, unsigned axis, int64_t n, int64_t *dim) {
  dim[axis] = dim_product(dim[axis], n);
  if (n < 0)
    return call_fail(c, "%s cannot be repeated %lld times along axis %u", shape_text(x.rank, x.dim).s, (long long)n,
                     axis),
           false;
  if (x.rank == MAX_RANK && x.dim[axis] != 1 && n != 1)
    return call_fail(c, "not supported: the input %s has %d axes", shape_text(x.rank, x.dim).s, MAX_RANK), false;
  return true;
}

db_tensor *db_repeat_at(DB_AT, db_tensor *x, db_list times) {
  struct call c;
  int64_t dim[MAX_RANK], checked[MAX_RANK];
  if (!call_begin(&c, "repeat", file, line, 1, &x) || !list_ok(&c, times)) return c.result;
  unsigned rank = times.n > x->rank ? times.n : x->rank;
  if (rank > MAX_RANK) return call_fail(&c, "%u axes were given, more than %d", rank, MAX_RANK);
  for (unsigned i = 0; i < rank; i++) dim[i] = i < rank - x->rank ? 1 : x->dim[i - (rank - x->rank)];
  struct expr e = expr_reshape(expr_of(x), rank, dim);
  for (unsigned i = 0; i < times.n; i++)
    if (!room_to_repeat(&c, e, i + rank - times.n, times.v[i], dim)) return c.result;
  if (!call_shape(&c, (db_list){rank, dim}, checked)) return c.result;
  for (unsigned i = 0; i < times.n; i++) e = expr_repeat(e, i + rank - times.n, times.v[i]);
  return call_end(&c, e);
}

db_tensor *db_repeat_interleave_at(DB_AT, db_tensor *x, int64_t n, int axis) {
  struct call c;
  int64_t dim[MAX_RANK], checked[MAX_RANK];
  if (!call_begin(&c, "repeat_interleave", file, line, 1, &x)) return c.result;
  int a = axis_of(axis, x->rank);
  if (a < 0) return call_fail(&c, "there is no axis %d in %s", axis, SHAPE(*x));
  memcpy(dim, x->dim, sizeof dim);
  if (!room_to_repeat(&c, expr_of(x), (unsigned)a, n, dim)) return c.result;
  if (!call_shape(&c, (db_list){x->rank, dim}, checked)) return c.result;
  return call_end(&c, repeat_axis(expr_of(x), (unsigned)a, n, true));
}

static struct expr roll_axis(struct expr x, unsigned axis, int64_t by) {
  int64_t n = x.dim[axis], k = n ? (by % n + n) % n : 0;
  if (!k) return x;
  return expr_cat((struct expr[]){expr_slice(x, axis, n - k, n), expr_slice(x, axis, 0, n - k)}, 2, axis);
}

db_tensor *db_roll_at(DB_AT, db_tensor *x, db_list shifts, db_list axes) {
  struct call c;
  if (!call_begin(&c, "roll", file, line, 1, &x) || !list_ok(&c, shifts) || !list_ok(&c, axes)) return c.result;
  if (dims_symbolic(shifts.n, shifts.v))
    return call_fail(&c, "not supported: a shift of %s by a symbolic number", SHAPE(*x));
  struct expr e = expr_of(x);
  if (!axes.n && shifts.n == 1) {
    e = roll_axis(expr_reshape(e, 1, (int64_t[]){dims_numel(x->rank, x->dim)}), 0, shifts.v[0]);
    return call_end(&c, expr_reshape(e, x->rank, x->dim));
  }
  if (axes.n != shifts.n) return call_fail(&c, "%u shifts were given for %u axes of %s", shifts.n, axes.n, SHAPE(*x));
  for (unsigned i = 0; i < axes.n; i++) {
    int a = axis_of(axes.v[i], x->rank);
    if (a < 0) return call_fail(&c, "there is no axis %lld in %s", (long long)axes.v[i], SHAPE(*x));
    e = roll_axis(e, (unsigned)a, shifts.v[i]);
  }
  return call_end(&c, e);
}

/* ---- grids ---- */

static db_tensor *grid_output(DB_AT, db_tensor *const *x, unsigned n, bool columns_first, unsigned k) {
  struct call c;
  int64_t dim[MAX_RANK], ones[MAX_RANK];
  if (!call_begin(&c, "meshgrid", file, line, n, x)) return c.result;
  if (n > MAX_RANK) return call_fail(&c, "%u axes were given, more than %d", n, MAX_RANK);
  for (unsigned i = 0; i < n; i++) {
    unsigned a = columns_first && n > 1 && i < 2 ? 1 - i : i; /* the axis along which tensor i runs */
    if (x[i]->rank > 1) return call_fail(&c, "tensor %u is %s; it must have one axis", i, SHAPE(*x[i]));
    dim[a] = dims_numel(x[i]->rank, x[i]->dim);
    ones[a] = i == k ? dim[a] : 1;
  }
  if (!call_shape(&c, (db_list){n, dim}, dim)) return c.result;
  return call_end(&c, expr_expand(expr_reshape(expr_of(x[k]), n, ones), dim));
}

void db_meshgrid_at(DB_AT, db_tensor *const *x, unsigned n, bool columns_first, db_tensor **out) {
  if (!results_ok("meshgrid", out, n)) return;
  for (unsigned k = 0; k < n; k++) out[k] = grid_output(file, line, x, n, columns_first, k);
}
