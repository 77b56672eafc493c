/* Tensors: values in global memory of which an instruction copies boxes (PTX ISA, "cp.async.bulk.tensor").
 *
 * The address of an element is a sum of coordinates times strides. Dimension 0 is contiguous. A condition under which
 * the value is loaded must be a bound of one coordinate: the copy then writes zeros outside the bounds. */
#include "internal.h"
#include <string.h>

enum { MAX_CONDITIONS = 8, STRIDE_UNIT = 16, MAX_TENSOR = 1 << 30 };

/* One dimension: its coordinate is the sum of coef times term, minus low. */
struct dim {
  int64_t coef[MAX_TERMS]; /* by the address's terms; 0: not in this dimension */
  int64_t stride, low, high;
  bool by_low, by_high; /* low, high: given by a condition */
};

struct finder {
  const struct codegen *k;
  struct affine address;
  struct dim dim[MAX_TENSOR_RANK];
  unsigned ndims;
};

static int axis_of(const struct codegen *k, const struct uop *range) {
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].range == range) return (int)a;
  return -1;
}

static int term_of(const struct finder *f, const struct uop *range) {
  for (unsigned i = 0; i < f->address.n; i++)
    if (f->address.term[i] == range) return (int)i;
  return -1;
}

static bool is_taken(const struct finder *f, unsigned term) {
  bool taken = false;
  for (unsigned d = 0; d < f->ndims; d++) taken = taken || f->dim[d].coef[term];
  return taken;
}

/* Starts dimensions 0 and 1 with the axes of the two sides. */
static bool take_sides(struct finder *f, const struct tensor_sides *s) {
  for (unsigned d = 0; d < 2; d++) {
    struct dim *x = &f->dim[f->ndims++];
    int first = term_of(f, s->range[d]);
    if (first < 0 || f->address.coef[first] < 1) return false;
    x->stride = f->address.coef[first];
    for (unsigned i = 0; i < f->address.n; i++) {
      int a = axis_of(f->k, f->address.term[i]);
      if (a < 0 || f->address.coef[i] < 1) return false;
      if (!(s->axes[d] >> a & 1)) continue;
      if (f->address.coef[i] % x->stride) return false;
      x->coef[i] = f->address.coef[i] / x->stride;
    }
  }
  return f->dim[0].stride == 1;
}

/* Takes a condition x < y as a bound of the dimension that has one of its terms. */
static bool take_bound(struct finder *f, const struct uop *valid) {
  struct affine a; /* > 0 where the condition holds */
  affine_of(uop_binary(f->k->g, OP_SUB, valid->src[1], valid->src[0]), &a);
  struct dim *d = NULL;
  for (unsigned i = 0; i < a.n; i++) {
    int t = term_of(f, a.term[i]);
    if (t < 0) return false;
    for (unsigned n = 0; n < 2; n++)
      if (f->dim[n].coef[t]) {
        if (d && d != &f->dim[n]) return false;
        d = &f->dim[n];
      }
  }
  if (!d) return false;
  bool upper = a.coef[0] < 0, bounded = d->by_low || d->by_high;
  int64_t coef[MAX_TERMS] = {0};
  for (unsigned i = 0; i < a.n; i++) {
    int t = term_of(f, a.term[i]);
    coef[t] = upper ? -a.coef[i] : a.coef[i];
    if (coef[t] < 1 || f->address.coef[t] != coef[t] * d->stride) return false;
  }
  for (unsigned t = 0; t < f->address.n; t++)
    if ((bounded || d->coef[t]) && d->coef[t] != coef[t]) return false;
  memcpy(d->coef, coef, sizeof coef);
  int64_t bound = upper ? a.constant - 1 : 1 - a.constant;
  if (upper && (!d->by_high || bound < d->high)) d->high = bound, d->by_high = true;
  if (!upper && (!d->by_low || bound > d->low)) d->low = bound, d->by_low = true;
  return true;
}

static bool take_bounds(struct finder *f, struct uop *valid) {
  if (valid->op == OP_AND) return take_bounds(f, valid->src[0]) && take_bounds(f, valid->src[1]);
  if (valid->op == OP_CONST) return valid->arg.i;
  return valid->op == OP_CMPLT && valid->src[0]->dtype == DT_INDEX && take_bound(f, valid);
}

/* Adds a term that is in no dimension to one without bounds, or makes a dimension of it. */
static bool take_rest(struct finder *f, unsigned term) {
  int64_t coef = f->address.coef[term];
  for (unsigned n = 2; n-- > 0;) {
    struct dim *d = &f->dim[n];
    if (coef % d->stride || d->by_low || d->by_high) continue;
    d->coef[term] = coef / d->stride;
    return true;
  }
  if (f->ndims == MAX_TENSOR_RANK) return false;
  struct dim *d = &f->dim[f->ndims++];
  d->stride = coef, d->coef[term] = 1;
  return true;
}

/* Completes the bounds by the largest values of the terms. */
static bool measure(const struct finder *f, struct dim *d) {
  int64_t high = 0, last;
  for (unsigned i = 0; i < f->address.n; i++)
    if (__builtin_mul_overflow(d->coef[i], uop_max(f->address.term[i]), &last) ||
        __builtin_add_overflow(high, last, &high))
      return false;
  if (!d->by_high) d->high = high;
  return d->high >= d->low && d->high - d->low < MAX_TENSOR;
}

static struct uop *coordinate(const struct finder *f, const struct dim *d, uint64_t sides) {
  struct graph *g = f->k->g;
  struct uop *sum = uop_index(g, -d->low);
  for (unsigned i = 0; i < f->address.n; i++) {
    struct uop *range = f->address.term[i];
    if (!d->coef[i] || (sides >> axis_of(f->k, range) & 1)) continue;
    sum = uop_binary(g, OP_ADD, sum, uop_binary(g, OP_MUL, range, uop_index(g, d->coef[i])));
  }
  return sum;
}

/* Makes the pieces of side 0 a dimension, if dimension 0 consists of whole pieces, so that one box has all of them. */
static bool join_pieces(struct finder *f, const struct tensor_sides *s) {
  struct dim *x = &f->dim[0], *piece = &f->dim[f->ndims];
  if (s->pieces < 2 || f->ndims == MAX_TENSOR_RANK || s->pieces > MAX_BOX || x->low || (x->high + 1) % s->row)
    return false;
  *piece = (struct dim){.stride = s->row, .high = (x->high + 1) / s->row - 1, .by_high = true};
  for (unsigned i = 0; i < f->address.n; i++) {
    if (!x->coef[i] || (s->axes[0] >> axis_of(f->k, f->address.term[i]) & 1)) continue;
    if (x->coef[i] % s->row) return false;
    piece->coef[i] = x->coef[i] / s->row;
  }
  for (unsigned i = 0; i < f->address.n; i++)
    if (piece->coef[i]) x->coef[i] = 0;
  x->high = s->row - 1, x->by_high = true;
  f->ndims++;
  return true;
}

/* Fills in the map and the coordinates. Returns false if the map cannot express them. */
static bool describe(struct finder *f, const struct tensor_sides *s, unsigned size, struct tensor *out) {
  struct tensor_text *t = &out->text;
  int64_t offset = f->address.constant, bytes = s->row * size;
  for (unsigned d = 0; d < f->ndims; d++)
    if (!measure(f, &f->dim[d])) return false;
  unsigned rank = f->ndims;
  bool joined = join_pieces(f, s);
  for (unsigned d = 0; d < f->ndims; d++) {
    struct dim *x = &f->dim[d];
    if (x->stride > INT64_MAX / size) return false;
    if (d && (x->stride * size % STRIDE_UNIT || x->stride * size / STRIDE_UNIT > UINT32_MAX)) return false;
    t->size[d] = (uint32_t)(x->high - x->low + 1), t->box[d] = 1;
    if (d) t->stride[d - 1] = (uint32_t)(x->stride * size / STRIDE_UNIT);
    offset += x->stride * x->low;
    out->at[d] = coordinate(f, x, s->axes[0] | s->axes[1]);
  }
  if (offset < 0 || offset * size % STRIDE_UNIT || offset > UINT32_MAX) return false;
  out->row = s->row, out->pieces = joined ? 1 : s->pieces, out->rows = s->rows, out->parts = 1;
  while (out->rows > MAX_BOX && out->rows % 2 == 0) out->rows /= 2, out->parts *= 2;
  if (out->rows > MAX_BOX || bytes < 32 || (joined && out->parts > 1)) return false;
  if (joined) t->box[rank] = (uint32_t)s->pieces;
  t->box[0] = (uint32_t)s->row, t->box[1] = (uint32_t)out->rows;
  t->rank = f->ndims, t->offset = (uint32_t)(offset * size / STRIDE_UNIT);
  t->type = size == 1 ? 0 : size == 2 ? 1 : 2; /* unsigned integers: copies do not change values */
  t->swizzle = bytes == 32 ? 1 : bytes == 64 ? 2 : 3;
  return true;
}

bool tensor_of(const struct codegen *k, struct uop *value, const struct tensor_sides *s, struct tensor *out) {
  struct finder f = {.k = k};
  unsigned size = dtype_info[value->dtype].size;
  if (value->op != OP_LOAD || (value->nsrc > 1 && !is_zero(value->src[1])) || size > 4) return false;
  const struct uop *index = value->src[0];
  if (index->op != OP_INDEX || index->src[0]->op != OP_PARAM) return false;
  affine_of(index->src[1], &f.address);
  if (f.address.n >= MAX_TERMS || !take_sides(&f, s)) return false;
  if (index->nsrc > 2 && !take_bounds(&f, index->src[2])) return false;
  for (unsigned i = 0; i < f.address.n; i++)
    if (!is_taken(&f, i) && !take_rest(&f, i)) return false;
  *out = (struct tensor){.text.slot = (uint32_t)index->src[0]->arg.i};
  return describe(&f, s, size, out);
}
