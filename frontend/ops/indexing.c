/* Indexing by integers, slices and tensors, and its inverse: x with the indexed elements replaced.
 *
 * Slices and integers are movement. The axes that tensors index are moved to the front and merged into one axis. A
 * single GATHER reads it at the positions that the tensors give together. */
#include "functions.h"
#include "ops.h"
#include <stdlib.h>
#include <string.h>

/* The subscripts resolved to the axes of x, and the position of the tensors' axes in the result. */
struct plan {
  struct { /* per axis of x */
    int64_t begin, count, step;
    bool dropped;
    int tensor; /* index of the tensor that indexes it, or -1 */
  } axis[MAX_RANK];
  struct { /* per axis after slices and integers: an axis of x, or -1 for a new one */
    int from;
  } out[MAX_RANK];
  unsigned nout, ntensors, place; /* place: number of result axes before those of the tensors */
  db_tensor *tensor[MAX_RANK];
};

/* Resolves a slice with Python's rules: stores where it begins and the number of elements. */
static void take_slice(const db_subscript *s, int64_t n, int64_t *begin, int64_t *count) {
  int64_t step = s->step, low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
  int64_t b = s->begin == DB_OPEN ? (step < 0 ? high : low) : s->begin < 0 ? s->begin + n : s->begin;
  int64_t e = s->end == DB_OPEN ? (step < 0 ? low : high) : s->end < 0 ? s->end + n : s->end;
  b = b < low ? low : b > high ? high : b;
  e = e < low ? low : e > high ? high : e;
  int64_t span = step < 0 ? b - e : e - b, size = step < 0 ? -step : step;
  *begin = b;
  *count = span > 0 ? (span - 1) / size + 1 : 0;
}

/* Resolves the subscripts against x. Returns false if the call has failed. */
static bool make_plan(struct call *c, const db_tensor *x, const db_subscript *s, unsigned n, struct plan *p) {
  unsigned used = 0, rests = 0, axis = 0, plain = 0;
  int group = -1; /* the last subscript that was a number or a tensor */
  bool apart = false, placed = false;
  *p = (struct plan){0};
  if (n && !s) return call_fail(c, "the array of %u subscripts is NULL", n), false;
  for (unsigned i = 0; i < n; i++) {
    if (dims_symbolic(3, (int64_t[]){s[i].begin, s[i].end, s[i].step}))
      return call_fail(c, "not supported: symbolic numbers in subscripts of %s; db_shrink takes them", SHAPE(*x)),
             false;
    used += s[i].kind != DB_SUBSCRIPT_NEW && s[i].kind != DB_SUBSCRIPT_REST;
    rests += s[i].kind == DB_SUBSCRIPT_REST;
  }
  if (used > x->rank || rests > 1)
    return call_fail(c,
                     rests > 1 ? "%u subscripts of %s: more than one of them means all remaining axes"
                               : "%u subscripts of %s",
                     used, SHAPE(*x)),
           false;
  for (unsigned i = 0; i <= n; i++) {
    enum db_subscript_kind kind = i < n ? s[i].kind : DB_SUBSCRIPT_REST;
    unsigned repeat = kind == DB_SUBSCRIPT_REST ? (i == n && rests ? 0 : x->rank - used) : 1;
    for (unsigned k = 0; k < repeat; k++) {
      if (p->nout == MAX_RANK) return call_fail(c, "the result has more than %d axes", MAX_RANK), false;
      if (kind == DB_SUBSCRIPT_NEW) {
        p->out[p->nout++].from = -1;
        plain++;
        continue;
      }
      int64_t size = x->dim[axis], begin = 0, count = size, step = 1;
      p->axis[axis].tensor = -1;
      if (kind == DB_SUBSCRIPT_PICK || kind == DB_SUBSCRIPT_TENSOR) {
        apart |= group >= 0 && group != (int)i - 1;
        group = (int)i;
        if (!placed) p->place = plain, placed = true;
      }
      if (kind == DB_SUBSCRIPT_PICK) {
        begin = s[i].begin < 0 ? s[i].begin + size : s[i].begin;
        if (begin < 0 || begin >= size)
          return call_fail(c, "index %lld is outside of axis %u of %s", (long long)s[i].begin, axis, SHAPE(*x)), false;
        count = 1;
        p->axis[axis].dropped = true;
      } else if (kind == DB_SUBSCRIPT_SLICE) {
        step = s[i].step;
        if (!step || step == INT64_MIN)
          return call_fail(c, "axis %u of %s has a step of %lld", axis, SHAPE(*x), (long long)step), false;
        take_slice(&s[i], size, &begin, &count);
      } else if (kind == DB_SUBSCRIPT_TENSOR) {
        if (!dtype_is_int(s[i].t->dtype))
          return call_fail(c,
                           "the subscript of axis %u of %s is a tensor of %s; it must be integers (for bool, use "
                           "db_masked_select)",
                           axis, SHAPE(*x), dtype_info[s[i].t->dtype].name),
                 false;
        p->axis[axis].tensor = (int)p->ntensors;
        p->tensor[p->ntensors++] = s[i].t;
      }
      p->axis[axis].begin = begin, p->axis[axis].count = count, p->axis[axis].step = step;
      if (!p->axis[axis].dropped) p->out[p->nout++].from = (int)axis;
      plain += kind != DB_SUBSCRIPT_PICK && kind != DB_SUBSCRIPT_TENSOR;
      axis++;
    }
  }
  if (apart) p->place = 0;
  return true;
}

static struct expr take_slices(const struct plan *p, struct expr x) {
  int64_t dim[MAX_RANK];
  for (unsigned i = 0; i < x.rank; i++) {
    int64_t step = p->axis[i].step, begin = p->axis[i].begin, count = p->axis[i].count;
    int64_t span = count ? (count - 1) * (step < 0 ? -step : step) + 1 : 0;
    if (step < 0) begin = count ? begin - span + 1 : 0;
    x = expr_slice(x, i, count ? begin : 0, (count ? begin : 0) + span);
    if (step < 0) x = expr_flip(x, 1u << i);
    x = expr_stride(x, i, step < 0 ? -step : step);
  }
  for (unsigned i = 0; i < p->nout; i++) dim[i] = p->out[i].from < 0 ? 1 : p->axis[p->out[i].from].count;
  return expr_reshape(x, p->nout, dim);
}

/* The inverse of basic: moves the elements of v, which has the shape that basic returns, to their positions in x's
 * shape; 0 elsewhere. */
static struct expr scatter_slices(const struct plan *p, struct expr v, const db_tensor *x) {
  int64_t dim[MAX_RANK], pairs[2 * MAX_RANK] = {0};
  for (unsigned i = 0; i < x->rank; i++) dim[i] = p->axis[i].count;
  v = expr_reshape(v, x->rank, dim);
  for (unsigned i = 0; i < x->rank; i++) {
    int64_t count = p->axis[i].count, step = p->axis[i].step, size = step < 0 ? -step : step, begin = p->axis[i].begin;
    if (!count) continue; /* the padding at the end gives it x's size */
    if (step < 0) v = expr_flip(v, 1u << i), begin -= (count - 1) * size;
    if (size > 1 && count > 1) { /* insert zeros between the elements */
      for (unsigned k = 0; k <= v.rank; k++) dim[k] = k <= i ? v.dim[k] : k == i + 1 ? 1 : v.dim[k - 1];
      struct expr wide = expr_reshape(v, v.rank + 1, dim);
      memset(pairs, 0, sizeof pairs);
      pairs[2 * (i + 1) + 1] = size - 1;
      wide = expr_bounds(OP_PAD, wide, pairs);
      memcpy(dim, v.dim, sizeof dim);
      dim[i] *= size;
      v = expr_slice(expr_reshape(wide, v.rank, dim), i, 0, (count - 1) * size + 1);
    }
    memset(pairs, 0, sizeof pairs);
    pairs[2 * i] = begin;
    pairs[2 * i + 1] = x->dim[i] - begin - v.dim[i];
    v = expr_bounds(OP_PAD, v, pairs);
  }
  memset(pairs, 0, sizeof pairs);
  for (unsigned i = 0; i < x->rank; i++) pairs[2 * i + 1] = x->dim[i] - v.dim[i];
  return expr_bounds(OP_PAD, v, pairs);
}

/* ---- tensors as subscripts ---- */

/* The shape that the tensors of a plan broadcast to. */
struct broadcast_shape {
  unsigned rank;
  int64_t dim[MAX_RANK], count;
};
static bool broadcast_subscripts(struct call *c, const struct plan *p, struct broadcast_shape *t) {
  *t = (struct broadcast_shape){.count = 1};
  for (unsigned k = 0; k < p->ntensors; k++) {
    const db_tensor *x = p->tensor[k];
    if (!broadcast_shape(x, &t->rank, t->dim)) {
      struct shape_text have = shape_text(t->rank, t->dim);
      return call_fail(c, "the subscripts %s and %s do not broadcast", have.s, SHAPE(*x)), false;
    }
  }
  t->count = dims_numel(t->rank, t->dim);
  if (t->rank + p->nout - p->ntensors > MAX_RANK)
    return call_fail(c, "the result has more than %d axes", MAX_RANK), false;
  return true;
}

/* One position along the merged axis for each element of the tensors; -1 if one of them is out of range. */
static struct expr joined_index(const struct plan *p, const struct broadcast_shape *t, const int64_t *sizes) {
  int64_t total = 1, flat = t->count;
  for (unsigned k = 0; k < p->ntensors; k++) total *= sizes[k];
  struct expr sum = {0}, good = {0};
  for (unsigned k = 0; k < p->ntensors; k++) {
    struct expr i = expr_wrapped_index(expr_broadcast(expr_of(p->tensor[k]), t->rank, t->dim), sizes[k]);
    if (p->ntensors == 1) return expr_reshape(i, 1, &flat);
    struct expr ok = expr_binary(OP_AND, less(i, expr_const(i.dtype, 0, sizes[k])), expr_not(less_num(i, 0)));
    enum dtype wide = total > INT32_MAX ? DT_I64 : DT_I32;
    i = expr_cast(expr_where(ok, i, expr_num(i, 0)), wide);
    sum = k ? expr_binary(OP_ADD, expr_binary(OP_MUL, sum, expr_const(wide, 0, sizes[k])), i) : i;
    good = k ? expr_binary(OP_AND, good, ok) : ok;
  }
  return expr_reshape(expr_where(good, sum, expr_num(sum, -1)), 1, &flat);
}

/* Moves the axes that tensors index to the front and merges them: [merged, rest...]. Stores the permutation in order
 * and the sizes of the indexed axes in sizes. */
static struct expr join_indexed(const struct plan *p, struct expr e, unsigned *order, int64_t *sizes) {
  unsigned n = 0;
  for (unsigned k = 0; k < p->ntensors; k++)
    for (unsigned i = 0; i < p->nout; i++)
      if (p->out[i].from >= 0 && p->axis[p->out[i].from].tensor == (int)k) order[n++] = i, sizes[k] = e.dim[i];
  for (unsigned i = 0; i < p->nout; i++)
    if (p->out[i].from < 0 || p->axis[p->out[i].from].tensor < 0) order[n++] = i;
  e = expr_permute(e, order);
  int64_t dim[MAX_RANK] = {1};
  for (unsigned k = 0; k < p->ntensors; k++) dim[0] *= sizes[k];
  for (unsigned i = p->ntensors; i < e.rank; i++) dim[i - p->ntensors + 1] = e.dim[i];
  return expr_reshape(e, e.rank - p->ntensors + 1, dim);
}

/* Reshapes an index along axis 0 for x and repeats it over the other axes. */
static struct expr rows_index(struct expr index, struct expr x) {
  int64_t dim[MAX_RANK] = {index.dim[0]};
  for (unsigned i = 1; i < x.rank; i++) dim[i] = 1;
  index = expr_reshape(index, x.rank, dim);
  for (unsigned i = 1; i < x.rank; i++) dim[i] = x.dim[i];
  return expr_expand(index, dim);
}

/* The permutation from [tensors' axes..., rest...] to the result, or back. */
static void result_order(const struct plan *p, unsigned ntensor_axes, bool back, unsigned *order) {
  unsigned rest = p->nout - p->ntensors, n = 0, to[MAX_RANK];
  for (unsigned i = 0; i < p->place; i++) to[n++] = ntensor_axes + i;
  for (unsigned i = 0; i < ntensor_axes; i++) to[n++] = i;
  for (unsigned i = p->place; i < rest; i++) to[n++] = ntensor_axes + i;
  for (unsigned i = 0; i < n; i++) *(back ? &order[to[i]] : &order[i]) = back ? i : to[i];
}

/* Collects the tensors of a call: x, the subscripts, the value. Returns their number. */
static unsigned list_tensors(db_tensor *x, const db_subscript *s, unsigned n, db_tensor *const *value, db_tensor **in) {
  unsigned k = 0;
  in[k++] = x;
  for (unsigned i = 0; s && i < n && k < MAX_RANK + 1; i++)
    if (s[i].kind == DB_SUBSCRIPT_TENSOR) in[k++] = s[i].t;
  if (value) in[k++] = *value;
  return k;
}

db_tensor *db_index_at(DB_AT, db_tensor *x, const db_subscript *s, unsigned n) {
  struct call c;
  struct plan p;
  struct broadcast_shape t;
  db_tensor *in[MAX_RANK + 2];
  if (!call_begin(&c, "index", file, line, list_tensors(x, s, n, NULL, in), in)) return c.result;
  if (!make_plan(&c, x, s, n, &p)) return c.result;
  struct expr e = take_slices(&p, expr_of(x));
  if (!p.ntensors) return call_end(&c, e);
  if (!broadcast_subscripts(&c, &p, &t)) return c.result;
  unsigned order[MAX_RANK] = {0};
  int64_t sizes[MAX_RANK] = {0}, dim[MAX_RANK];
  e = join_indexed(&p, e, order, sizes);
  e = expr_gather(e, 0, rows_index(joined_index(&p, &t, sizes), e));
  memcpy(dim, t.dim, sizeof dim);
  for (unsigned i = 1; i < e.rank; i++) dim[t.rank + i - 1] = e.dim[i];
  e = expr_reshape(e, t.rank + e.rank - 1, dim);
  result_order(&p, t.rank, false, order);
  return call_end(&c, expr_permute(e, order));
}

/* x with the subscripted elements replaced. With in_place it assigns to x and writes its memory. */
static db_tensor *set_elements(DB_AT, db_tensor *x, db_operand value, const db_subscript *s, unsigned n,
                               bool in_place) {
  struct call c;
  struct plan p;
  struct broadcast_shape t = {0};
  db_tensor *in[MAX_RANK + 2];
  bool tensor = value.kind == DB_OPERAND_TENSOR;
  if (!call_begin(&c, in_place ? "set" : "setitem", file, line, list_tensors(x, s, n, tensor ? &value.t : NULL, in),
                  in))
    return c.result;
  if (!make_plan(&c, x, s, n, &p) || !broadcast_subscripts(&c, &p, &t)) return c.result;
  if (!call_number(&c, &value, x->dtype)) return c.result;
  struct expr e = expr_of(x), region = take_slices(&p, e), rows = region, put = operand_expr(&value, x->dtype);
  unsigned order[MAX_RANK] = {0}, back[MAX_RANK] = {0}, rank = region.rank;
  int64_t sizes[MAX_RANK] = {0}, dim[MAX_RANK], permuted[MAX_RANK];
  /* the indexed elements have the shape [tensors..., rest...] with the tensors' axes moved to p.place */
  memcpy(dim, region.dim, sizeof dim);
  if (p.ntensors) {
    rows = join_indexed(&p, region, order, sizes);
    int64_t there[MAX_RANK];
    memcpy(there, t.dim, sizeof there);
    for (unsigned i = 1; i < rows.rank; i++) there[t.rank + i - 1] = rows.dim[i];
    rank = t.rank + rows.rank - 1;
    result_order(&p, t.rank, false, back);
    for (unsigned i = 0; i < rank; i++) dim[i] = there[back[i]];
  }
  bool fits = put.rank <= rank;
  for (unsigned i = 0; fits && i < put.rank; i++) fits = put.dim[i] == 1 || put.dim[i] == dim[i + rank - put.rank];
  if (!fits) {
    struct shape_text have = shape_text(put.rank, put.dim);
    return call_fail(&c, "the elements %s of %s cannot hold %s", shape_text(rank, dim).s, SHAPE(*x), have.s);
  }
  put = expr_broadcast(put, rank, dim);
  if (!dims_numel(rank, dim)) return in_place ? call_same(&c, x) : call_end(&c, e);
  if (in_place && !p.ntensors) return call_assign(&c, region, put);
  if (p.ntensors) {
    result_order(&p, t.rank, true, back);
    put = expr_permute(put, back);
    int64_t flat[MAX_RANK];
    for (unsigned i = 1; i < rows.rank; i++) flat[i] = rows.dim[i];
    flat[0] = t.count;
    put = expr_reshape(put, rows.rank, flat);
    if (rows.rank == MAX_RANK) return call_fail(&c, "not supported: the input %s has %d axes", SHAPE(*x), MAX_RANK);
    struct expr index = rows_index(joined_index(&p, &t, sizes), rows);
    rows = expr_scatter(rows, 0, index, put, DB_SCATTER_REPLACE, true);
    for (unsigned i = 0; i < region.rank; i++) permuted[i] = region.dim[order[i]], back[order[i]] = i;
    put = expr_permute(expr_reshape(rows, region.rank, permuted), back);
  }
  struct expr inside = scatter_slices(&p, expr_full(expr_const(DT_BOOL, 0, 1), put.rank, put.dim), x);
  struct expr r = expr_where(inside, scatter_slices(&p, put, x), e);
  return in_place ? call_assign(&c, e, r) : call_end(&c, r);
}

db_tensor *db_setitem_at(DB_AT, db_tensor *x, db_operand value, const db_subscript *s, unsigned n) {
  return set_elements(file, line, x, value, s, n, false);
}
db_tensor *db_set_at(DB_AT, db_tensor *x, db_operand value, const db_subscript *s, unsigned n) {
  return assign_failed(x, set_elements(file, line, x, value, s, n, true));
}

/* ---- one axis, or all axes as one row ---- */

db_tensor *db_index_select_at(DB_AT, db_tensor *x, int axis, db_tensor *index) {
  struct call c;
  if (!call_begin(&c, "index_select", file, line, 2, (db_tensor *[]){x, index})) return c.result;
  int a = axis_of(axis, x->rank);
  if (a < 0) return call_fail(&c, "there is no axis %d in %s", axis, SHAPE(*x));
  if (!dtype_is_int(index->dtype) || index->rank > 1)
    return call_fail(&c, "the index of %s is %s of %s; it must be a vector of integers", SHAPE(*x), SHAPE(*index),
                     dtype_info[index->dtype].name);
  struct expr e = expr_of(x), i = expr_wrapped_index(expr_of(index), e.dim[a]);
  int64_t dim[MAX_RANK];
  for (unsigned k = 0; k < e.rank; k++) dim[k] = k == (unsigned)a ? dims_numel(index->rank, index->dim) : 1;
  i = expr_reshape(i, e.rank, dim);
  for (unsigned k = 0; k < e.rank; k++)
    if (k != (unsigned)a) dim[k] = e.dim[k];
  return call_end(&c, expr_gather(e, (unsigned)a, expr_expand(i, dim)));
}

db_tensor *db_take_at(DB_AT, db_tensor *x, db_tensor *index) {
  struct call c;
  if (!call_begin(&c, "take", file, line, 2, (db_tensor *[]){x, index})) return c.result;
  if (!dtype_is_int(index->dtype))
    return call_fail(&c, "the index of %s is %s; it must be integers", SHAPE(*x), dtype_info[index->dtype].name);
  int64_t n = dims_numel(x->rank, x->dim), count = dims_numel(index->rank, index->dim);
  struct expr i = expr_reshape(expr_wrapped_index(expr_of(index), n), 1, &count);
  struct expr e = expr_gather(expr_reshape(expr_of(x), 1, &n), 0, i);
  return call_end(&c, expr_reshape(e, index->rank, index->dim));
}
