/* Running sums, products and extremes: each element combined with all elements before it along an axis.
 *
 * Within a block of BLOCK elements this is a reduction over a triangle. A longer axis is split into blocks: each block
 * is scanned, then the totals of the blocks are scanned, and each block is combined with the total of all blocks before
 * it. So n elements cost n * BLOCK steps, and a kernel or two per power of BLOCK in n. On one core blocks of 16
 * take a third of the time of blocks of 64. Blocks of 8 are faster still on a host, but need more kernels. */
#include "functions.h"
#include "ops.h"
#include <math.h>
#include <string.h>

enum { BLOCK = 16 };

struct scan {
  const char *name;
  bool sums;   /* accumulates in the type of sums, otherwise in x's type */
  bool floats; /* integers are converted to f32, narrow floats are computed in f32 */
  enum op op;  /* the reduction */
  struct expr (*combine)(struct expr a, struct expr b);
};

static struct expr sum_of(struct expr a, struct expr b) { return expr_binary(OP_ADD, a, b); }
static struct expr product_of(struct expr a, struct expr b) { return expr_binary(OP_MUL, a, b); }

static const struct scan scans[] = {
    [DB_SCAN_SUM] = {"cumsum", .sums = true, .op = OP_ADD, .combine = sum_of},
    [DB_SCAN_PROD] = {"cumprod", .sums = true, .op = OP_MUL, .combine = product_of},
    [DB_SCAN_MAX] = {"cummax", .op = OP_MAX, .combine = math_max},
    [DB_SCAN_MIN] = {"cummin", .op = OP_MAX, .combine = math_max},
    [DB_SCAN_LOGSUMEXP] = {"logcumsumexp", .floats = true, .op = OP_ADD, .combine = math_logaddexp},
};

/* The identity element of the combination. */
static struct expr identity(const struct scan *s, enum dtype t) {
  if (s->op != OP_MAX && !s->floats) return expr_const(t, s->op == OP_MUL, s->op == OP_MUL);
  return expr_least(t);
}

/* Copies the sizes of x with one more axis, of the given size, after `axis`. */
static void insert_size(struct expr x, unsigned axis, int64_t size, int64_t *dim) {
  for (unsigned i = 0; i <= x.rank; i++) dim[i] = i <= axis ? x.dim[i] : i == axis + 1 ? size : x.dim[i - 1];
}

/* Repeats the elements of x along an axis for each position along it: the elements are along the next axis. *before is
 * true for elements at or before the position. */
static struct expr triangle(struct expr x, unsigned axis, struct expr *before) {
  int64_t dim[MAX_RANK], n = x.dim[axis];
  insert_size(x, axis, n, dim);
  dim[axis] = 1;
  struct expr wide = expr_reshape(x, x.rank + 1, dim);
  dim[axis] = n;
  struct expr at = expr_count_along(DT_I32, axis, x.rank + 1, dim);
  *before = expr_not(less(at, expr_count_along(DT_I32, axis + 1, x.rank + 1, dim)));
  return expr_expand(wide, dim);
}

static struct expr scan_block(const struct scan *s, struct expr x, unsigned axis) {
  if (x.dim[axis] == 1) return x;
  struct expr before, wide = triangle(x, axis, &before), none = identity(s, x.dtype);
  unsigned mask = 1u << (axis + 1);
  if (!s->floats) return expr_drop_axes(expr_reduce(s->op, expr_where(before, wide, none), mask), mask);
  struct expr most = expr_reduce(OP_MAX, expr_where(before, wide, none), mask);
  most = expr_where(math_isfinite(most), most, expr_num(most, 0));
  struct expr power = math_exp(expr_binary(OP_SUB, wide, expr_expand(most, wide.dim)));
  struct expr sum = expr_reduce(OP_ADD, expr_where(before, power, expr_num(power, 0)), mask);
  return expr_drop_axes(expr_binary(OP_ADD, math_log(sum), most), mask);
}

static struct expr scan_along(const struct scan *s, struct expr x, unsigned axis) {
  int64_t n = x.dim[axis], blocks = (n + BLOCK - 1) / BLOCK, pairs[2 * MAX_RANK] = {0}, dim[MAX_RANK];
  if (n <= BLOCK) return scan_block(s, x, axis);
  pairs[2 * axis + 1] = blocks * BLOCK - n;
  struct expr y = expr_bounds(OP_PAD, x, pairs);
  insert_size(y, axis, BLOCK, dim);
  dim[axis] = blocks;
  y = scan_block(s, expr_reshape(y, x.rank + 1, dim), axis + 1);
  struct expr total = expr_drop_axes(expr_slice(y, axis + 1, BLOCK - 1, BLOCK), 1u << (axis + 1));
  total = expr_slice(scan_along(s, total, axis), axis, 0, blocks - 1);
  pairs[2 * axis] = 1, pairs[2 * axis + 1] = 0;
  total = expr_pad_value(total, pairs, identity(s, x.dtype));
  dim[axis + 1] = 1;
  total = expr_reshape(total, x.rank + 1, dim);
  dim[axis + 1] = BLOCK;
  y = s->combine(expr_expand(total, dim), y);
  memcpy(dim, x.dim, x.rank * sizeof *dim);
  dim[axis] = blocks * BLOCK;
  return expr_slice(expr_reshape(y, x.rank, dim), axis, 0, n);
}

struct expr expr_cumsum(struct expr x, unsigned axis) { return scan_along(&scans[DB_SCAN_SUM], x, axis); }

db_tensor *db_scan_at(DB_AT, enum db_scan_op op, db_tensor *x, int axis) {
  struct call c;
  bool known = (unsigned)op < sizeof scans / sizeof *scans;
  if (!call_begin(&c, known ? scans[op].name : "scan", file, line, 1, &x)) return c.result;
  if (!known) return call_fail(&c, "unknown scan %d", (int)op);
  const struct scan *s = &scans[op];
  int a = axis_of(axis, x->rank);
  if (a < 0) return call_fail(&c, "there is no axis %d in %s", axis, SHAPE(*x));
  if (x->rank + 2 > MAX_RANK)
    return call_fail(&c, "not supported: a scan of %s, which has more than %d axes", SHAPE(*x), MAX_RANK - 2);
  bool is_float = dtype_is_float(x->dtype);
  enum dtype t = x->dtype;
  if (s->sums) t = is_float ? math_type(t) : t == DT_U64 ? t : DT_I64;
  if (s->floats) t = math_type(t);
  struct expr e = expr_cast(expr_of(x), t);
  bool minimum = op == DB_SCAN_MIN;
  if (minimum) e = is_float ? math_neg(e) : expr_not(e);
  e = scan_along(s, e, (unsigned)a);
  if (minimum) e = is_float ? math_neg(e) : expr_not(e);
  return call_end(&c, dtype_is_narrow_float(x->dtype) ? expr_cast(e, x->dtype) : e);
}
