/* Movement operations: their arguments are checked here, no data moves. */
#include "internal.h"
#include <errno.h>
#include <string.h>

db_tensor *db_reshape_at(DB_AT, db_tensor *x, db_list shape) {
  struct call c;
  int64_t dim[MAX_RANK], known = 1, n;
  int open = -1;
  if (!call_begin_sized(&c, "reshape", file, line, 1, &x)) return c.result;
  if (shape.n > MAX_RANK) return call_fail(&c, "%u axes, more than %d", shape.n, MAX_RANK);
  n = dims_numel(x->rank, x->dim);
  for (unsigned i = 0; i < shape.n; i++) {
    dim[i] = shape.v[i];
    bool symbolic = dim_is_symbolic(known) || dim_is_symbolic(dim[i]);
    if (dim[i] == -1 && open < 0) {
      open = (int)i;
      dim[i] = 1;
    } else if (dim_least(dim[i]) < 0 || (!symbolic && __builtin_mul_overflow(known, dim[i], &known))) {
      return call_fail(&c, "%s to %s: sizes are not negative, and one of them may be -1", SHAPE(*x),
                       shape_text(shape.n, shape.v).s);
    } else if (symbolic)
      known = dim_product(known, dim[i]);
  }
  if (open >= 0 && !known)
    return call_fail(&c, "%s to %s: any size would do for -1 beside a size of 0", SHAPE(*x),
                     shape_text(shape.n, shape.v).s);
  if (open >= 0) dim_quotient(n, known, &dim[open]);
  if (dims_numel(shape.n, dim) != n)
    return call_fail(&c, "%s has %s elements, which %s cannot hold", SHAPE(*x), dim_text(n).s,
                     shape_text(shape.n, shape.v).s);
  return call_end(&c, expr_reshape(expr_of(x), shape.n, dim));
}

bool call_axes(struct call *c, const db_tensor *x, db_list axes, bool all, unsigned *mask) {
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
  if (!call_begin_sized(&c, "permute", file, line, 1, &x)) return c.result;
  if (axes.n != x->rank) return call_fail(&c, "%u axes named for %s, which has %u", axes.n, SHAPE(*x), x->rank);
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
  if (!call_begin_sized(&c, "expand", file, line, 1, &x)) return c.result;
  if (shape.n < x->rank || shape.n > MAX_RANK)
    return call_fail(&c, "%s to %s: an expansion keeps all axes, of at most %d", SHAPE(*x),
                     shape_text(shape.n, shape.v).s, MAX_RANK);
  for (unsigned i = 0; i < shape.n; i++) {
    int64_t have = i < shape.n - x->rank ? 1 : x->dim[i - (shape.n - x->rank)];
    want[i] = shape.v[i] == -1 ? have : shape.v[i];
    if (have != 1 && want[i] != have)
      return call_fail(&c, "%s to %s: axis %u has size %s, only size 1 grows", SHAPE(*x),
                       shape_text(shape.n, shape.v).s, i, dim_text(have).s);
  }
  if (!call_sizes(&c, (db_list){shape.n, want}, dim)) return c.result;
  return call_end(&c, expr_broadcast(expr_of(x), shape.n, dim));
}

static bool pair_count_good(struct call *c, const db_tensor *x, db_list pairs) {
  if (pairs.n == 2 * x->rank) return true;
  return call_fail(c, "%u numbers for %s; two for each axis are needed", pairs.n, SHAPE(*x)), false;
}

db_tensor *db_pad_at(DB_AT, db_tensor *x, db_operand value, db_list pairs) {
  struct call c;
  int64_t sum[MAX_RANK], dim[MAX_RANK];
  if (!call_begin_sized(&c, "pad", file, line, 1, &x)) return c.result;
  if (value.kind == DB_OPERAND_TENSOR) return call_fail(&c, "the value is a tensor, not a number");
  if (!number_fits(&value, x->dtype))
    return call_fail(&c, "%lld does not fit %s", (long long)value.i, dtype_info[x->dtype].name);
  if (!pair_count_good(&c, x, pairs)) return c.result;
  for (unsigned i = 0; i < x->rank; i++) {
    const int64_t *p = &pairs.v[2 * i];
    if (dim_least(p[0]) < 0 || dim_least(p[1]) < 0)
      return call_fail(&c, "axis %u: %s before and %s after; padding is not negative, db_shrink removes", i,
                       dim_text(p[0]).s, dim_text(p[1]).s);
    bool symbolic = dims_symbolic(2, p) || dim_is_symbolic(x->dim[i]);
    if (!symbolic &&
        (__builtin_add_overflow(x->dim[i], p[0], &sum[i]) || __builtin_add_overflow(sum[i], p[1], &sum[i])))
      return call_fail(&c, "axis %u grows without bound", i);
    if (symbolic) sum[i] = dim_sum(dim_sum(x->dim[i], p[0]), p[1]);
  }
  if (!call_sizes(&c, (db_list){x->rank, sum}, dim)) return c.result;
  return call_end(&c, expr_pad_value(expr_of(x), pairs.v, operand_expr(&value, x->dtype)));
}

db_tensor *db_shrink_at(DB_AT, db_tensor *x, db_list pairs) {
  struct call c;
  if (!call_begin_sized(&c, "shrink", file, line, 1, &x)) return c.result;
  if (!pair_count_good(&c, x, pairs)) return c.result;
  for (unsigned i = 0; i < x->rank; i++) {
    const int64_t *p = &pairs.v[2 * i];
    if (!dim_at_most(0, p[0]) || !dim_at_most(p[1], x->dim[i]) || !dim_at_most(p[0], p[1]))
      return call_fail(&c, "axis %u of %s: [%s, %s) is not within [0, %s)", i, SHAPE(*x), dim_text(p[0]).s,
                       dim_text(p[1]).s, dim_text(x->dim[i]).s);
  }
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
