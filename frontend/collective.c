/* Tensors over several devices: a list with one part a device, and what the parts exchange. All of it is copies between devices and arithmetic on the
 * graph, so that nothing is computed before it is asked for, schedules together with what surrounds it, and is captured like everything else. */
#include "internal.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

enum { DIRECT_BYTES = 1 << 18 /* of an all-reduce: below, fewer steps are worth more copies */ };

/* n outputs that tell what is wrong. */
static int poison_all(DB_AT, const char *op, db_tensor **out, unsigned n, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
static int poison_all(DB_AT, const char *op, db_tensor **out, unsigned n, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  for (unsigned i = 0; i < n; i++) {
    struct call c;
    out[i] = call_begin(&c, op, file, line, 0, NULL) ? call_fail(&c, "%s", text) : c.result;
  }
  return -EINVAL;
}

static int check_parts(DB_AT, const char *op, db_tensor *const *in, unsigned n, db_tensor **out) {
  if (!n || n > DB_PARTS_MAX) return poison_all(file, line, op, out, n <= DB_PARTS_MAX ? n : 0, "%u parts", n);
  for (unsigned i = 0; i < n; i++)
    if (db_poison(in[i])) return poison_all(file, line, op, out, n, "part %u: %s", i, db_poison(in[i]));
  return 0;
}

/* All parts are alike, off `axis` (-1: altogether). */
static int check_alike(DB_AT, const char *op, db_tensor *const *in, unsigned n, int axis, db_tensor **out) {
  int err = check_parts(file, line, op, in, n, out);
  if (err) return err;
  for (unsigned i = 0; i < n; i++) {
    bool same = db_rank(in[i]) == db_rank(in[0]) && db_dtype_of(in[i]) == db_dtype_of(in[0]);
    for (unsigned k = 0; k < db_rank(in[i]) && same; k++)
      same = (int)k == axis || db_dim(in[i], (int)k) == db_dim(in[0], (int)k);
    if (!same)
      return poison_all(file, line, op, out, n, "part %u is %s of %s, part 0 %s of %s", i, SHAPE(*in[i]),
                        db_dtype_name(db_dtype_of(in[i])), SHAPE(*in[0]), db_dtype_name(db_dtype_of(in[0])));
  }
  return 0;
}

/* Where part i of n begins when size elements are dealt out as evenly as can be. */
static int64_t share(int64_t size, unsigned i, unsigned n) { return size * (int64_t)i / (int64_t)n; }

static db_tensor *slice(DB_AT, db_tensor *x, int axis, int64_t first, int64_t end) {
  int64_t pairs[2 * MAX_RANK];
  unsigned rank = db_rank(x);
  for (unsigned k = 0; k < rank; k++) pairs[2 * k] = 0, pairs[2 * k + 1] = db_dim(x, (int)k);
  pairs[2 * axis] = first, pairs[2 * axis + 1] = end;
  return db_shrink_at(file, line, x, (db_list){2 * rank, pairs});
}

void db_shard_at(DB_AT, db_tensor *x, db_device *const *devices, unsigned n, int axis, db_tensor **parts) {
  if (!n || n > DB_PARTS_MAX) {
    poison_all(file, line, "shard", parts, n <= DB_PARTS_MAX ? n : 0, "%u devices", n);
    return;
  }
  int a = axis == DB_REPLICATE || db_poison(x) ? 0 : axis_of(axis, db_rank(x));
  if (a < 0 || db_poison(x)) {
    if (db_poison(x))
      poison_all(file, line, "shard", parts, n, "%s", db_poison(x));
    else
      poison_all(file, line, "shard", parts, n, "there is no axis %d in %s", axis, SHAPE(*x));
    return;
  }
  int64_t size = db_rank(x) ? db_dim(x, a) : 0;
  for (unsigned i = 0; i < n; i++) {
    db_tensor *part = x;
    if (axis != DB_REPLICATE) part = slice(file, line, x, a, share(size, i, n), share(size, i + 1, n));
    parts[i] = db_to_at(file, line, part, devices[i]);
  }
}

db_tensor *db_gather_parts_at(DB_AT, db_tensor *const *parts, unsigned n, int axis, db_device *dev) {
  db_tensor *moved[DB_PARTS_MAX], *bad;
  if (!n || n > DB_PARTS_MAX) {
    poison_all(file, line, "gather_parts", &bad, 1, "%u parts", n);
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

static const struct {
  bool combines, mean;
  enum db_binary_op op;
} combinations[] = {[DB_SUM] = {true, false, DB_ADD},
                    [DB_PROD] = {true, false, DB_MUL},
                    [DB_MAXIMUM] = {true, false, DB_MAX},
                    [DB_MINIMUM] = {true, false, DB_MIN},
                    [DB_MEAN] = {true, true, DB_ADD}};

static bool can_combine(enum db_reduce_op op) {
  return (unsigned)op < sizeof combinations / sizeof *combinations && combinations[op].combines;
}

static db_tensor *combine(DB_AT, enum db_reduce_op op, db_tensor *a, db_tensor *b) {
  return db_binary_at(file, line, combinations[op].op, db_operand_tensor(a), db_operand_tensor(b));
}
static db_tensor *finished(DB_AT, enum db_reduce_op op, db_tensor *x, unsigned n) {
  if (!combinations[op].mean) return x;
  return db_binary_at(file, line, DB_DIV, db_operand_tensor(x), db_operand_int((int64_t)n));
}

/* Elements [first, end) along the axis of all parts, combined from device to device, ending on device `last`. */
static db_tensor *chain(DB_AT, enum db_reduce_op op, db_tensor *const *in, unsigned n, int axis, int64_t first,
                        int64_t end, unsigned last) {
  db_tensor *sum = NULL;
  for (unsigned k = 1; k <= n; k++) {
    db_tensor *x = in[(last + k) % n], *mine = slice(file, line, x, axis, first, end);
    sum = sum ? combine(file, line, op, db_to_at(file, line, sum, db_device_of(x)), mine) : mine;
  }
  return finished(file, line, op, sum, n);
}

void db_reduce_scatter_at(DB_AT, enum db_reduce_op op, db_tensor *const *in, unsigned n, int axis, db_tensor **out) {
  if (check_alike(file, line, "reduce_scatter", in, n, -1, out)) return;
  int a = axis_of(axis, db_rank(in[0]));
  if (a < 0 || !can_combine(op)) {
    if (a < 0)
      poison_all(file, line, "reduce_scatter", out, n, "there is no axis %d in %s", axis, SHAPE(*in[0]));
    else
      poison_all(file, line, "reduce_scatter", out, n, "reduction %d does not combine", (int)op);
    return;
  }
  int64_t size = db_dim(in[0], a);
  for (unsigned i = 0; i < n; i++)
    out[i] = chain(file, line, op, in, n, a, share(size, i, n), share(size, i + 1, n), i);
}

/* Small ones: everyone gets everything and combines in one order, so that all results are the same bits. Large ones go round a
 * ring: each device combines its share on the way, then shares are handed round. */
void db_all_reduce_at(DB_AT, enum db_reduce_op op, db_tensor *const *in, unsigned n, db_tensor **out) {
  if (check_alike(file, line, "all_reduce", in, n, -1, out)) return;
  if (!can_combine(op)) {
    poison_all(file, line, "all_reduce", out, n, "reduction %d does not combine", (int)op);
    return;
  }
  int64_t numel = db_numel(in[0]);
  if (n < 3 || numel < (int64_t)n || (size_t)numel * db_dtype_size(db_dtype_of(in[0])) <= DIRECT_BYTES) {
    for (unsigned i = 0; i < n; i++) {
      db_tensor *sum = NULL;
      for (unsigned k = 0; k < n; k++) {
        db_tensor *x = db_to_at(file, line, in[k], db_device_of(in[i]));
        sum = sum ? combine(file, line, op, sum, x) : x;
      }
      out[i] = finished(file, line, op, sum, n);
    }
    return;
  }
  db_tensor *flat[DB_PARTS_MAX], *shares[DB_PARTS_MAX];
  int64_t dim[MAX_RANK];
  unsigned rank = db_rank(in[0]);
  for (unsigned k = 0; k < rank; k++) dim[k] = db_dim(in[0], (int)k);
  for (unsigned i = 0; i < n; i++) flat[i] = db_reshape_at(file, line, in[i], (db_list){1, (int64_t[]){numel}});
  db_reduce_scatter_at(file, line, op, flat, n, 0, shares);
  for (unsigned i = 0; i < n; i++)
    out[i] = db_reshape_at(file, line, db_gather_parts_at(file, line, shares, n, 0, db_device_of(in[i])),
                           (db_list){rank, dim});
}
