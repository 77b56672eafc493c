/* Tensors as lists with one part per device, and the exchanges between the parts (graph/shard/peer.h). The exchanges
 * are lazy, scheduled together with the operations around them, and captured like other operations. */
#include "../../graph/shard/peer.h"
#include "../ops/functions.h"
#include "../ops/ops.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Stores n poisoned outputs with a message. */
static int poison_all(DB_AT, const char *op, db_tensor **out, unsigned n, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
static int poison_all(DB_AT, const char *op, db_tensor **out, unsigned n, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  for (unsigned i = 0; results_ok(op, out, n) && i < n; i++) {
    struct call c;
    out[i] = call_begin(&c, op, file, line, 0, NULL) ? call_fail(&c, "%s", text) : c.result;
  }
  return -EINVAL;
}

static int check_parts(DB_AT, const char *op, db_tensor *const *in, unsigned n, db_tensor **out) {
  if (!n || n > DB_PARTS_MAX) return poison_all(file, line, op, out, n <= DB_PARTS_MAX ? n : 0, "%u parts", n);
  if (!results_ok(op, out, n)) return -EINVAL;
  if (!in) return poison_all(file, line, op, out, n, "the array of %u parts is NULL", n);
  for (unsigned i = 0; i < n; i++)
    if (db_poison(in[i]))
      return poison_all(file, line, op, out, n, "part %u: %s", i, db_poison(in[i]));
    else if (slot_group(in[i]->value->slot))
      return poison_all(file, line, op, out, n, "part %u is on %s; each part must be on one device", i,
                        db_device_name(db_device_of(in[i])));
    else if (dims_symbolic(in[i]->rank, in[i]->dim))
      return poison_all(file, line, op, out, n, "not supported: part %u is %s, which has a symbolic size", i,
                        SHAPE(*in[i]));
  return 0;
}

/* Checks that the parts have one type and shape, except along `axis` (-1: without exception). */
static int check_alike(DB_AT, const char *op, db_tensor *const *in, unsigned n, int axis, db_tensor **out) {
  int err = check_parts(file, line, op, in, n, out);
  if (err) return err;
  for (unsigned i = 0; i < n; i++) {
    bool same = db_rank(in[i]) == db_rank(in[0]) && db_dtype_of(in[i]) == db_dtype_of(in[0]);
    for (unsigned k = 0; k < db_rank(in[i]) && same; k++)
      same = (int)k == axis || db_dim(in[i], (int)k) == db_dim(in[0], (int)k);
    if (!same)
      return poison_all(file, line, op, out, n, "part %u is %s of %s, but part 0 is %s of %s", i, SHAPE(*in[i]),
                        db_dtype_name(db_dtype_of(in[i])), SHAPE(*in[0]), db_dtype_name(db_dtype_of(in[0])));
  }
  return 0;
}

static db_tensor *slice_axis(DB_AT, db_tensor *x, int axis, int64_t first, int64_t end) {
  int64_t pairs[2 * MAX_RANK];
  unsigned rank = db_rank(x);
  for (unsigned k = 0; k < rank; k++) pairs[2 * k] = 0, pairs[2 * k + 1] = db_dim(x, (int)k);
  pairs[2 * axis] = first, pairs[2 * axis + 1] = end;
  return db_shrink_at(file, line, x, (db_list){2 * rank, pairs});
}

void db_split_to_at(DB_AT, db_tensor *x, db_device *const *devices, unsigned n, int axis, db_tensor **parts) {
  if (!n || n > DB_PARTS_MAX) {
    poison_all(file, line, "split_to", parts, n <= DB_PARTS_MAX ? n : 0, "%u devices", n);
    return;
  }
  if (!results_ok("split_to", parts, n)) return;
  if (!devices) {
    poison_all(file, line, "split_to", parts, n, "the array of %u devices is NULL", n);
    return;
  }
  int a = axis == DB_REPLICATE || db_poison(x) ? 0 : axis_of(axis, db_rank(x));
  if (a < 0 || db_poison(x)) {
    if (db_poison(x))
      poison_all(file, line, "split_to", parts, n, "%s", db_poison(x));
    else
      poison_all(file, line, "split_to", parts, n, "there is no axis %d in %s", axis, SHAPE(*x));
    return;
  }
  int64_t size = db_rank(x) ? db_dim(x, a) : 0;
  for (unsigned i = 0; i < n; i++) {
    db_tensor *part = x;
    if (axis != DB_REPLICATE) part = slice_axis(file, line, x, a, peer_share(size, i, n), peer_share(size, i + 1, n));
    parts[i] = db_to_at(file, line, part, devices[i]);
  }
}

db_tensor *db_gather_parts_at(DB_AT, db_tensor *const *parts, unsigned n, int axis, db_device *dev) {
  db_tensor *moved[DB_PARTS_MAX], *bad;
  if (!n || n > DB_PARTS_MAX || !parts) {
    poison_all(file, line, "gather_parts", &bad, 1, parts ? "%u parts" : "the array of %u parts is NULL", n);
    return bad;
  }
  for (unsigned i = 0; i < n; i++) moved[i] = db_to_at(file, line, parts[i], dev);
  return db_cat_at(file, line, moved, n, axis, false);
}

/* ---- exchanges ---- */

void db_all_gather_at(DB_AT, db_tensor *const *in, unsigned n, int axis, db_tensor **out) {
  if (check_parts(file, line, "all_gather", in, n, out)) return;
  int a = axis_of(axis, db_rank(in[0]));
  if (a < 0) {
    poison_all(file, line, "all_gather", out, n, "there is no axis %d in %s", axis, SHAPE(*in[0]));
    return;
  }
  if (check_alike(file, line, "all_gather", in, n, a, out)) return;
  for (unsigned i = 0; i < n; i++) out[i] = db_gather_parts_at(file, line, in, n, a, db_device_of(in[i]));
}

static struct uop *combine_sum(struct graph *g, struct uop *a, struct uop *b) { return uop_binary(g, OP_ADD, a, b); }
static struct uop *combine_product(struct graph *g, struct uop *a, struct uop *b) {
  return uop_binary(g, OP_MUL, a, b);
}
static struct uop *combine_max(struct graph *g, struct uop *a, struct uop *b) { return uop_binary(g, OP_MAX, a, b); }
static struct expr as_expr(struct uop *u) {
  struct expr e = {.u = u, .dtype = u->dtype, .rank = u->shape->rank};
  for (unsigned i = 0; i < e.rank; i++) e.dim[i] = u->shape->dim[i]->arg.i;
  return e;
}
static struct uop *combine_min(struct graph *g, struct uop *a, struct uop *b) {
  return math_min(as_expr(a), as_expr(b)).u;
}

static peer_combine *const combinations[] = {[REDUCE_ROW(SUM)] = combine_sum,
                                             [REDUCE_ROW(PROD)] = combine_product,
                                             [REDUCE_ROW(MAX)] = combine_max,
                                             [REDUCE_ROW(MIN)] = combine_min,
                                             [REDUCE_ROW(MEAN)] = combine_sum};

static bool can_combine(enum db_reduce_op op) {
  return reduce_row(op) < sizeof combinations / sizeof *combinations && combinations[reduce_row(op)];
}

/* Stores in out the combination of all parts: the whole on every device if axis is -1, else device i's share along the
 * axis. */
static void reduce_parts(DB_AT, const char *name, enum db_reduce_op op, db_tensor *const *in, unsigned n, int axis,
                         db_tensor **out) {
  uint8_t device[DB_PARTS_MAX];
  struct uop *x[DB_PARTS_MAX], *u[DB_PARTS_MAX];
  struct value *v[DB_PARTS_MAX];
  int64_t dim[DB_PARTS_MAX];
  pthread_mutex_lock(&rt.lock);
  for (unsigned i = 0; i < n; i++) device[i] = in[i]->value->slot, x[i] = value_node(in[i]->value);
  if (axis < 0)
    peer_all_reduce(rt.graph, combinations[reduce_row(op)], device, x, n, u);
  else
    peer_reduce_scatter(rt.graph, combinations[reduce_row(op)], device, x, n, (unsigned)axis, u);
  for (unsigned i = 0; i < n; i++) {
    v[i] = value_new(u[i], device[i], in, n);
    if (axis >= 0) dim[i] = u[i]->shape->dim[axis]->arg.i;
  }
  pthread_mutex_unlock(&rt.lock);
  for (unsigned i = 0; i < n; i++) {
    struct call c;
    int64_t sizes[MAX_RANK];
    if (!call_begin(&c, name, file, line, 1, &in[i])) {
      out[i] = c.result;
      continue;
    }
    memcpy(sizes, in[i]->dim, in[i]->rank * sizeof *sizes);
    if (axis >= 0) sizes[axis] = dim[i];
    out[i] = call_end_value(&c, v[i], in[i]->dtype, in[i]->rank, sizes);
    if (op == DB_REDUCE_MEAN)
      out[i] = db_binary_at(file, line, DB_BINARY_DIV, db_operand_tensor(out[i]), db_operand_int((int64_t)n));
  }
}

void db_reduce_scatter_at(DB_AT, enum db_reduce_op op, db_tensor *const *in, unsigned n, int axis, db_tensor **out) {
  if (check_alike(file, line, "reduce_scatter", in, n, -1, out)) return;
  int a = axis_of(axis, db_rank(in[0]));
  if (a >= 0 && can_combine(op))
    reduce_parts(file, line, "reduce_scatter", op, in, n, a, out);
  else if (a < 0)
    poison_all(file, line, "reduce_scatter", out, n, "there is no axis %d in %s", axis, SHAPE(*in[0]));
  else
    poison_all(file, line, "reduce_scatter", out, n, "reduction %d cannot combine parts", (int)op);
}

void db_all_reduce_at(DB_AT, enum db_reduce_op op, db_tensor *const *in, unsigned n, db_tensor **out) {
  if (check_alike(file, line, "all_reduce", in, n, -1, out)) return;
  if (can_combine(op))
    reduce_parts(file, line, "all_reduce", op, in, n, -1, out);
  else
    poison_all(file, line, "all_reduce", out, n, "reduction %d cannot combine parts", (int)op);
}
