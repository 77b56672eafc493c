/* The interpreter's operations for concatenation, indices, scans and sorting. */
#ifndef TESTS_FRONTEND_INTERPRET_ORDER_H
#define TESTS_FRONTEND_INTERPRET_ORDER_H
#include "interpret.h"

/* Concatenates two tensors along an axis, or stacks them along a new one. */
static struct array *array_cat(const struct array *x, const struct array *y, int64_t along, bool stack) {
  unsigned rank = x->rank + stack;
  int64_t a = axis(along, rank), dim[ARRAY_RANK], at[ARRAY_RANK], from[ARRAY_RANK];
  if (a < 0 || rank > ARRAY_RANK || x->rank != y->rank) return NULL;
  for (unsigned i = 0; i < x->rank; i++)
    if (x->dim[i] != y->dim[i] && (stack || (int64_t)i != a)) return NULL;
  int64_t first = stack ? 1 : x->dim[a];
  for (unsigned i = 0, k = 0; i < rank; i++) dim[i] = stack && (int64_t)i == a ? 2 : x->dim[k++];
  if (!stack) dim[a] += y->dim[a];
  struct array *r = array_new(promoted(x->t, y->t), rank, dim);
  for (int64_t i = 0; r->cell && i < r->n; i++) {
    place_of(r, i, at);
    const struct array *source = at[a] < first ? x : y;
    for (unsigned k = 0, n = 0; k < rank; k++)
      if (!(stack && (int64_t)k == a)) from[n++] = (int64_t)k == a && at[a] >= first ? at[k] - first : at[k];
    r->cell[i] = cell_cast(broadcast_cell(source, source->rank, from), source->t, r->t);
  }
  return r;
}

static struct array *array_roll(const struct array *x, int64_t by, int64_t along) {
  int64_t a = axis(along, x->rank), at[ARRAY_RANK];
  if (a < 0) return NULL;
  struct array *r = array_new(x->t, x->rank, x->dim);
  for (int64_t i = 0; i < r->n; i++) {
    place_of(r, i, at);
    at[a] = ((at[a] - by) % x->dim[a] + x->dim[a]) % x->dim[a];
    r->cell[i] = broadcast_cell(x, x->rank, at);
  }
  return r;
}

/* Every steps[i]-th element of axis i, from its end if negative. */
static struct array *array_stride(const struct array *x, db_list steps) {
  int64_t dim[ARRAY_RANK], at[ARRAY_RANK];
  if (steps.n != x->rank) return NULL;
  for (unsigned i = 0; i < x->rank; i++) {
    if (!steps.v[i]) return NULL;
    dim[i] = (x->dim[i] + llabs(steps.v[i]) - 1) / llabs(steps.v[i]);
  }
  struct array *r = array_new(x->t, x->rank, dim);
  for (int64_t i = 0; i < r->n; i++) {
    place_of(r, i, at);
    for (unsigned k = 0; k < x->rank; k++) at[k] = (steps.v[k] < 0 ? x->dim[k] - 1 : 0) + at[k] * steps.v[k];
    r->cell[i] = broadcast_cell(x, x->rank, at);
  }
  return r;
}

static struct array *array_gather(const struct array *x, int64_t along, const struct array *index) {
  int64_t a = axis(along, x->rank), at[ARRAY_RANK];
  if (a < 0 || index->rank != x->rank || !dtype_is_int((enum dtype)index->t)) return NULL;
  for (unsigned i = 0; i < x->rank; i++)
    if ((int64_t)i != a && index->dim[i] > x->dim[i]) return NULL;
  struct array *r = array_new(x->t, index->rank, index->dim);
  for (int64_t i = 0; i < r->n; i++) {
    struct cell k = index->cell[i];
    place_of(r, i, at);
    at[a] = k.i < 0 && !is_unsigned(index->t) ? k.i + x->dim[a] : k.i;
    bool outside = at[a] < 0 || at[a] >= x->dim[a];
    r->cell[i] = k.state   ? unknown()
                 : outside ? cell_cast(whole(DB_I64, 0), DB_I64, x->t)
                           : broadcast_cell(x, x->rank, at);
  }
  return r;
}

/* Copies to c the elements of x along axis a through index `at`. */
static void lane_of(const struct array *x, int64_t a, int64_t *at, struct cell *c) {
  for (int64_t k = 0; k < x->dim[a]; k++) at[a] = k, c[k] = broadcast_cell(x, x->rank, at);
}

/* Replaces each element by the reduction of it and all elements before it. */
static struct array *array_scan(enum db_reduce_op op, const struct array *x, int64_t along) {
  int64_t a = axis(along, x->rank), at[ARRAY_RANK];
  if (a < 0) return NULL;
  struct array *r = array_new(reduced_type(op, x->t), x->rank, x->dim);
  struct cell *c = calloc((size_t)x->dim[a] + 1, sizeof *c);
  for (int64_t i = 0; i < r->n; i++) {
    place_of(r, i, at);
    int64_t n = at[a] + 1;
    lane_of(x, a, at, c);
    r->cell[i] = reduce_cells(op, c, n, x->t, r->t);
  }
  free(c);
  return r;
}

/* Like cell_order, but NaN is the largest value. */
static int cell_rank(struct cell a, struct cell b, db_dtype t) {
  int o = cell_order(a, b, t);
  if (o != 3) return o;
  return (a.state == NOT_A_NUMBER) - (b.state == NOT_A_NUMBER);
}

/* The first index of the maximum or minimum; a NaN is both. */
static struct array *array_arg(const struct array *x, db_list axes, bool keep, bool least) {
  struct array flat = *x;
  if (axes.n > 1) return NULL;
  if (!axes.n) flat.rank = 1, flat.dim[0] = x->n;
  int64_t a = axes.n ? axis(axes.v[0], x->rank) : 0, dim[ARRAY_RANK], at[ARRAY_RANK];
  unsigned rank = 0;
  if (a < 0 || !flat.dim[a]) return NULL;
  for (unsigned i = 0; i < x->rank; i++)
    if (keep || (axes.n && (int64_t)i != a)) dim[rank++] = axes.n && (int64_t)i != a ? x->dim[i] : 1;
  struct array *r = array_new(DB_I64, rank, dim), lanes = flat;
  struct cell *c = calloc((size_t)flat.dim[a] + 1, sizeof *c);
  lanes.dim[a] = 1;
  for (int64_t i = 0; i < r->n; i++) {
    place_of(&lanes, i, at);
    lane_of(&flat, a, at, c);
    int64_t best = 0;
    bool known = true;
    for (int64_t k = 0; k < flat.dim[a]; k++) {
      int o = cell_rank(c[k], c[best], x->t);
      known = known && o != 2 && c[k].state != ANY;
      if (is_float(x->t) && c[best].state == NOT_A_NUMBER) continue;
      if ((is_float(x->t) && c[k].state == NOT_A_NUMBER) || o == (least ? -1 : 1)) best = k;
    }
    r->cell[i] = known ? whole(DB_I64, (uint64_t)best) : unknown();
  }
  free(c);
  return r;
}

/* Sorts stably along an axis. Returns the elements, or with `places` the indices that they come from. */
static struct array *array_sort(const struct array *x, int64_t along, bool descending, bool places) {
  int64_t a = x->rank ? axis(along, x->rank) : 0, at[ARRAY_RANK];
  if (a < 0) return NULL;
  struct array *r = array_new(places ? DB_I64 : x->t, x->rank, x->dim);
  if (!x->rank) {
    r->cell[0] = places ? whole(DB_I64, 0) : x->cell[0];
    return r;
  }
  struct cell *c = calloc((size_t)x->dim[a] + 1, sizeof *c);
  int64_t *order = calloc((size_t)x->dim[a] + 1, sizeof *order);
  for (int64_t i = 0; i < r->n; i++) {
    bool known = true;
    place_of(r, i, at);
    int64_t mine = at[a];
    lane_of(x, a, at, c);
    for (int64_t k = 0; k < x->dim[a]; k++) {
      int64_t j = k;
      for (; j > 0; j--) {
        int o = cell_rank(c[k], c[order[j - 1]], x->t);
        known = known && o != 2;
        if (descending ? o != 1 : o != -1) break;
        order[j] = order[j - 1];
      }
      order[j] = k;
    }
    r->cell[i] = !known ? unknown() : places ? whole(DB_I64, (uint64_t)order[mine]) : c[order[mine]];
  }
  free(order);
  free(c);
  return r;
}
#endif
