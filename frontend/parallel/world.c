/* Tensors that the processes of a program compute together. run/exchange.c performs the exchanges. */
#include "../ops/ops.h"
#include "../run/exchange.h"
#include <errno.h>
#include <limits.h>
#include <string.h>

int db_world_rank(void) {
  int err = world_begin();
  return err ? err : (int)world_rank();
}

int db_world_size(void) {
  int err = world_begin();
  return err ? err : (int)world_size();
}

/* Exchanges x, which has the shape that the op takes (graph/exchange.h). The result has the shape dim. */
static struct expr exchange_expr(const struct call *c, enum exchange_op op, unsigned root, struct expr x, unsigned rank,
                                 const int64_t *dim) {
  const struct value *v = c->in[0]->value;
  struct shape shape = {.rank = rank};
  struct expr e = {NULL, x.dtype, rank, {0}};
  for (unsigned i = 0; i < rank; i++) shape.dim[i] = uop_index(rt.graph, e.dim[i] = dim[i]);
  if (!v->placed && !v->real) /* constants have no device yet */
    x.u = uop_new(rt.graph, OP_COPY, x.dtype, 1, (union uop_arg){0}, c->slot, &x.u, 1);
  e.u = uop_exchange(rt.graph, op, root, x.u, &shape);
  return e;
}

/* Begins a call after MPI has started. Returns false if the call has failed. A process that is alone does not
 * exchange. */
static bool begin_call(struct call *c, const char *op, DB_AT, db_tensor *const *t) {
  int err = world_begin();
  char text[512];
  if (err) snprintf(text, sizeof text, "%s", db_error());
  if (!call_begin(c, op, file, line, 1, t)) return false;
  if (err) return call_fail(c, "%s", text), false;
  if (dims_numel((*t)->rank, (*t)->dim) > INT_MAX / (int64_t)world_size())
    return call_fail(c, "not supported: an exchange of more than %d elements", INT_MAX), false;
  return true;
}

static const struct {
  bool combines;
  enum exchange_op op, of_bool; /* for bool, as the numbers 0 and 1 */
} combinations[] = {[REDUCE_ROW(SUM)] = {true, EXCHANGE_SUM, EXCHANGE_MAX},
                    [REDUCE_ROW(PROD)] = {true, EXCHANGE_PROD, EXCHANGE_MIN},
                    [REDUCE_ROW(MAX)] = {true, EXCHANGE_MAX, EXCHANGE_MAX},
                    [REDUCE_ROW(MIN)] = {true, EXCHANGE_MIN, EXCHANGE_MIN},
                    [REDUCE_ROW(MEAN)] = {true, EXCHANGE_SUM, EXCHANGE_SUM}};

static bool can_combine(struct call *c, enum db_reduce_op op) {
  if (reduce_row(op) < sizeof combinations / sizeof *combinations && combinations[reduce_row(op)].combines) return true;
  return call_fail(c, "reduction %d cannot combine tensors of processes", (int)op), false;
}

/* The type in which processes exchange and combine elements. */
static enum dtype wire_type(enum dtype t) {
  return t == DT_BOOL ? DT_U8 : dtype_is_float(t) && dtype_info[t].size < 4 ? DT_F32 : t;
}

/* Converts the result to t; a mean divides by the number of processes, and of integers is f32. */
static struct expr convert_result(enum db_reduce_op op, struct expr x, enum dtype t) {
  if (op != DB_REDUCE_MEAN) return expr_cast(x, t);
  if (!dtype_is_float(x.dtype)) x = expr_cast(x, t = DT_F32);
  return expr_cast(expr_binary(OP_FDIV, x, expr_num(x, world_size())), t);
}

db_tensor *db_world_all_reduce_at(DB_AT, enum db_reduce_op op, db_tensor *t) {
  struct call c;
  if (op == DB_REDUCE_MEAN && db_dtype_of(t) == DB_BOOL) t = db_cast_at(file, line, t, DB_I32);
  if (!begin_call(&c, "world_all_reduce", file, line, &t) || !can_combine(&c, op)) return c.result;
  struct expr x = expr_of(t);
  if (world_size() > 1) {
    enum exchange_op how = t->dtype == DT_BOOL ? combinations[reduce_row(op)].of_bool : combinations[reduce_row(op)].op;
    x = exchange_expr(&c, how, 0, expr_cast(x, wire_type(t->dtype)), t->rank, t->dim);
  }
  return call_end(&c, convert_result(op, x, t->dtype));
}

db_tensor *db_world_broadcast_at(DB_AT, db_tensor *t, int root) {
  struct call c;
  if (!begin_call(&c, "world_broadcast", file, line, &t)) return c.result;
  if (root < 0 || root >= (int)world_size())
    return call_fail(&c, "process %d does not exist: there are %u, counted from 0", root, world_size());
  struct expr x = expr_of(t);
  if (world_size() > 1) x = exchange_expr(&c, EXCHANGE_BROADCAST, (unsigned)root, x, t->rank, t->dim);
  return call_end(&c, x);
}

/* The index of axis, or -1 if the call has failed. */
static int find_axis(struct call *c, const db_tensor *t, int axis) {
  int a = axis_of(axis, t->rank);
  if (a < 0) call_fail(c, "there is no axis %d in %s", axis, SHAPE(*t));
  return a;
}

static struct expr move_axis(struct expr x, unsigned from, unsigned to) {
  unsigned axes[MAX_RANK], next = 0;
  for (unsigned i = 0; i < x.rank; i++) {
    next += next == from;
    axes[i] = i == to ? from : next++;
  }
  return expr_permute(x, axes);
}

db_tensor *db_world_all_gather_at(DB_AT, db_tensor *t, int axis) {
  struct call c;
  if (!begin_call(&c, "world_all_gather", file, line, &t)) return c.result;
  int a = find_axis(&c, t, axis);
  if (a < 0) return c.result;
  int64_t n = (int64_t)world_size(), numel = dims_numel(t->rank, t->dim), dim[MAX_RANK + 1];
  if (n == 1) return call_end(&c, expr_of(t));
  if (t->rank == MAX_RANK) return call_fail(&c, "%s has the maximum number of axes", SHAPE(*t));
  struct expr x = exchange_expr(&c, EXCHANGE_GATHER, 0, expr_reshape(expr_of(t), 1, &numel), 2, (int64_t[]){n, numel});
  dim[0] = n;
  memcpy(dim + 1, t->dim, t->rank * sizeof *dim);
  x = move_axis(expr_reshape(x, t->rank + 1, dim), 0, (unsigned)a);
  memcpy(dim, t->dim, t->rank * sizeof *dim);
  dim[a] *= n;
  return call_end(&c, expr_reshape(x, t->rank, dim));
}

db_tensor *db_world_reduce_scatter_at(DB_AT, enum db_reduce_op op, db_tensor *t, int axis) {
  struct call c;
  if (!begin_call(&c, "world_reduce_scatter", file, line, &t)) return c.result;
  int a = find_axis(&c, t, axis);
  if (a < 0) return c.result;
  int64_t n = (int64_t)world_size(), dim[MAX_RANK + 1];
  if (op != DB_REDUCE_SUM && op != DB_REDUCE_MEAN)
    return call_fail(&c, "not supported: a reduction that is not a sum or a mean");
  if (t->dtype == DT_BOOL) return call_fail(&c, "not supported: the tensor is bool");
  if (t->dim[a] % n)
    return call_fail(&c, "axis %d of %s is not a multiple of the %lld processes", a, SHAPE(*t), (long long)n);
  if (n == 1) return call_end(&c, convert_result(op, expr_of(t), t->dtype));
  if (t->rank == MAX_RANK) return call_fail(&c, "%s has the maximum number of axes", SHAPE(*t));
  for (unsigned i = 0; i < t->rank; i++) dim[i + (i > (unsigned)a)] = t->dim[i];
  dim[a] = n, dim[a + 1] = t->dim[a] / n;
  struct expr x = move_axis(expr_reshape(expr_cast(expr_of(t), wire_type(t->dtype)), t->rank + 1, dim), (unsigned)a, 0);
  int64_t part = dims_numel(t->rank, t->dim) / n;
  x = exchange_expr(&c, EXCHANGE_SCATTER, 0, expr_reshape(x, 2, (int64_t[]){n, part}), 1, &part);
  memcpy(dim, t->dim, t->rank * sizeof *dim);
  dim[a] /= n;
  return call_end(&c, convert_result(op, expr_reshape(x, t->rank, dim), t->dtype));
}
