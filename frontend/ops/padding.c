/* Padding with a value, or with elements of the tensor. */
#include "ops.h"
#include <string.h>

/* Applies negative amounts by cropping x and stores the others in pad. Returns false if the call has failed. */
static bool crop(struct call *c, struct expr *x, db_list pairs, int64_t *pad) {
  int64_t inside[2 * MAX_RANK], sum[MAX_RANK], dim[MAX_RANK];
  if (!list_ok(c, pairs)) return false;
  if (pairs.n != 2 * x->rank)
    return call_fail(c, "%u numbers were given for %s; two per axis are needed", pairs.n, SHAPE(*x)), false;
  for (unsigned i = 0; i < x->rank; i++) {
    int64_t before = pairs.v[2 * i], after = pairs.v[2 * i + 1], n = x->dim[i];
    if (dims_symbolic(2, &pairs.v[2 * i]) || dim_is_symbolic(n)) {
      if (dim_min(before) < 0 || dim_min(after) < 0)
        return call_fail(c,
                         "axis %u: %s before and %s after; a symbolic size cannot be reduced by padding, use db_shrink",
                         i, dim_text(before).s, dim_text(after).s),
               false;
      pad[2 * i] = before;
      pad[2 * i + 1] = after;
      inside[2 * i] = 0;
      inside[2 * i + 1] = n;
      sum[i] = dim_sum(dim_sum(n, before), after);
      continue;
    }
    int64_t cut = before < 0 ? before : 0, cut_end = after < 0 ? after : 0;
    if (cut < -n || cut_end < -n || cut + cut_end < -n)
      return call_fail(c, "axis %u of %s: %lld before and %lld after remove more elements than it has", i, SHAPE(*x),
                       (long long)before, (long long)after),
             false;
    inside[2 * i] = -cut;
    inside[2 * i + 1] = n + cut_end;
    pad[2 * i] = before - cut;
    pad[2 * i + 1] = after - cut_end;
    if (__builtin_add_overflow(n + cut + cut_end, pad[2 * i], &sum[i]) ||
        __builtin_add_overflow(sum[i], pad[2 * i + 1], &sum[i]))
      return call_fail(c, "axis %u becomes too large", i), false;
  }
  if (!call_sizes(c, (db_list){x->rank, sum}, dim)) return false;
  *x = expr_bounds(OP_SHRINK, *x, inside);
  return true;
}

db_tensor *db_pad_at(DB_AT, db_tensor *x, db_operand value, db_list pairs) {
  struct call c;
  int64_t pad[2 * MAX_RANK];
  if (!call_begin_sized(&c, "pad", file, line, 1, &x)) return c.result;
  if (value.kind == DB_OPERAND_TENSOR) return call_fail(&c, "the value is a tensor, not a number");
  if (!call_number(&c, &value, x->dtype)) return c.result;
  struct expr e = expr_of(x);
  if (!crop(&c, &e, pairs, pad)) return c.result;
  return call_end(&c, expr_pad_value(e, pad, operand_expr(&value, x->dtype)));
}

/* The n elements to insert before or after x along an axis. n is at most what the mode can take from x. */
static struct expr border(struct expr x, enum db_pad_mode mode, unsigned axis, int64_t n, bool after) {
  int64_t size = x.dim[axis], dim[MAX_RANK];
  if (mode == DB_PAD_CIRCULAR) return after ? expr_slice(x, axis, 0, n) : expr_slice(x, axis, size - n, size);
  if (mode == DB_PAD_REFLECT) {
    x = after ? expr_slice(x, axis, size - 1 - n, size - 1) : expr_slice(x, axis, 1, n + 1);
    return expr_flip(x, 1u << axis);
  }
  x = after ? expr_slice(x, axis, size - 1, size) : expr_slice(x, axis, 0, 1);
  memcpy(dim, x.dim, sizeof dim);
  dim[axis] = n;
  return expr_expand(x, dim);
}

db_tensor *db_pad_mode_at(DB_AT, db_tensor *x, enum db_pad_mode mode, db_list pairs) {
  static const char *const names[] = {"pad_reflect", "pad_replicate", "pad_circular"};
  struct call c;
  int64_t pad[2 * MAX_RANK] = {0};
  bool known = (unsigned)mode - DB_PAD_REFLECT < sizeof names / sizeof *names;
  if (!call_begin(&c, known ? names[mode - DB_PAD_REFLECT] : "pad", file, line, 1, &x)) return c.result;
  if (!known) return call_fail(&c, "unknown padding mode %d", (int)mode);
  struct expr e = expr_of(x);
  if (!crop(&c, &e, pairs, pad)) return c.result;
  if (dims_symbolic(pairs.n, pairs.v)) return call_fail(&c, "not supported: padding by a symbolic size");
  for (unsigned i = 0; i < e.rank; i++) {
    int64_t before = pad[2 * i], after = pad[2 * i + 1], size = e.dim[i];
    int64_t most = mode == DB_PAD_REFLECT ? size - 1 : mode == DB_PAD_CIRCULAR ? size : size ? INT64_MAX : 0;
    if (before > most || after > most)
      return call_fail(&c, "axis %u of %s: %lld before and %lld after; %lld elements allow at most %lld", i, SHAPE(*x),
                       (long long)before, (long long)after, (long long)size, (long long)(most < 0 ? 0 : most));
    struct expr part[3];
    unsigned n = 0;
    if (before) part[n++] = border(e, mode, i, before, false);
    part[n++] = e;
    if (after) part[n++] = border(e, mode, i, after, true);
    e = expr_cat(part, n, i);
  }
  return call_end(&c, e);
}
