/* Tensors: values in global memory from which or to which an instruction copies boxes (PTX ISA,
 * "cp.async.bulk.tensor").
 *
 * The address of an element is a sum of coordinates times strides. Dimension 0 is contiguous. A condition under which
 * the value is loaded or stored must be a bound of one coordinate, or be the same for all boxes of a round, which are
 * then outside where it does not hold: a copy of loaded values writes zeros outside the bounds, and a copy of stored
 * values nothing. If the rows of a box are positions of a joined axis, each digit of the position is a dimension: the
 * pixels of a convolution.
 *
 * Strides and the address of a tensor are multiples of 16 bytes, but the coordinates of a box are not limited, so each
 * class of rows (struct tensor) may begin at any element. */
#include "internal.h"
#include "matrix.h"
#include <stdlib.h>
#include <string.h>

enum { STRIDE_UNIT = 16, MAX_TENSOR = 1 << 30, MAX_STEP = 8, MAX_BOXES = 64 };

/* One dimension: its coordinate is the sum of coef times term, minus low. */
struct dim {
  int64_t coef[MAX_TERMS]; /* by the address's terms; 0: not in this dimension */
  int64_t stride, low, high;
  bool by_low, by_high; /* low, high: given by a condition */
  int digit;            /* the term that counts positions within a box; -1: a box has one position */
  int64_t count;        /* of positions within a box */
};

struct finder {
  const struct codegen *k;
  const struct tensor_sides *sides;
  struct affine address;
  struct dim dim[MAX_TENSOR_RANK];
  unsigned ndims;
  struct uop *exists; /* the condition without which all boxes of a round are outside, or NULL */
};

static int term_of(const struct finder *f, const struct uop *u) {
  for (unsigned i = 0; i < f->address.n; i++)
    if (f->address.term[i] == u) return (int)i;
  return -1;
}

static uint64_t all_inner(const struct tensor_sides *s) {
  uint64_t axes = s->axes[0] | s->axes[1];
  for (unsigned i = 0; i < s->ninner; i++) axes |= UINT64_C(1) << s->inner[i];
  return axes;
}

static bool is_taken(const struct finder *f, unsigned term) {
  bool taken = false;
  for (unsigned d = 0; d < f->ndims; d++) taken = taken || f->dim[d].coef[term];
  return taken;
}

static struct dim *new_dim(struct finder *f, int64_t stride, int digit, int64_t count) {
  if (f->ndims == MAX_TENSOR_RANK) return NULL;
  f->dim[f->ndims] = (struct dim){.stride = stride, .digit = digit, .count = count};
  return &f->dim[f->ndims++];
}

/* Starts a dimension with a side of which the address has a multiple. */
static bool take_side(struct finder *f, unsigned side, int64_t count) {
  int first = term_of(f, f->sides->range[side]);
  if (first < 0 || f->address.coef[first] < 1) return false;
  struct dim *d = new_dim(f, f->address.coef[first], first, count);
  for (unsigned i = 0; d && i < f->address.n; i++) {
    int a = axis_with(f->k, f->address.term[i]);
    if (a < 0 || !(f->sides->axes[side] >> a & 1)) continue;
    if (f->address.coef[i] < 1 || f->address.coef[i] % d->stride) return false;
    d->coef[i] = f->address.coef[i] / d->stride;
  }
  return d;
}

/* Whether the term is range / from % count. */
static bool is_digit(const struct uop *term, const struct uop *range, int64_t *from, int64_t *count) {
  if (term == range) return *from = 1, *count = uop_max((struct uop *)range) + 1, true;
  bool division = term->op == OP_IDIV;
  if ((!division && term->op != OP_MOD) || term->src[1]->op != OP_CONST) return false;
  int64_t by = term->src[1]->arg.i;
  if (!is_digit(term->src[0], range, from, count) || by < 1 || *count % by) return false;
  *count = division ? *count / by : by;
  if (division) *from *= by;
  return true;
}

/* Starts the dimension of rows whose class and number in the class are the digits of a joined axis. */
static bool take_permuted(struct finder *f) {
  const int64_t apart = f->sides->apart;
  int class = -1, number = -1;
  for (unsigned i = 0; i < f->address.n; i++) {
    int64_t from, count;
    if (!is_digit(f->address.term[i], f->sides->range[1], &from, &count)) continue;
    if (from == apart && count == ROW_CLASSES) class = (int)i;
    if (from == 1 && count == apart) number = (int)i;
  }
  if (class < 0 || number < 0 || f->address.coef[class] < 1) return false;
  if (f->address.coef[number] != f->address.coef[class] * ROW_CLASSES) return false;
  struct dim *d = new_dim(f, f->address.coef[class], number, f->sides->rows);
  if (d) d->coef[class] = 1, d->coef[number] = ROW_CLASSES;
  return d;
}

/* Starts the dimensions of side 1: one, or one for each digit of a joined axis. */
static bool take_rows(struct finder *f) {
  const struct uop *range = f->sides->range[1];
  if (f->sides->permuted) return take_permuted(f);
  if (term_of(f, range) >= 0) return take_side(f, 1, f->sides->rows);
  int64_t done = 1;
  while (done < f->sides->rows) {
    struct dim *d = NULL;
    for (unsigned i = 0; i < f->address.n && !d; i++) {
      int64_t from, count;
      if (!is_digit(f->address.term[i], range, &from, &count) || from != done) continue;
      if (f->address.coef[i] < 1 || !(d = new_dim(f, f->address.coef[i], (int)i, count))) return false;
      d->coef[i] = 1, done *= count;
    }
    if (!d) return false;
  }
  return done == f->sides->rows;
}

/* Takes a condition x < y as a bound of the dimension that has one of its terms, or of a new one. */
static bool take_bound(struct finder *f, const struct uop *valid) {
  struct affine a; /* > 0 where the condition holds */
  affine_of(uop_binary(f->k->g, OP_SUB, valid->src[1], valid->src[0]), &a);
  struct dim *d = NULL;
  int64_t coef[MAX_TERMS] = {0}, ratio = 0; /* of the address's coefficients to those of the condition */
  for (unsigned i = 0; i < a.n; i++) {
    int t = term_of(f, a.term[i]);
    if (t < 0 || f->address.coef[t] % a.coef[i]) return false;
    if (i && f->address.coef[t] / a.coef[i] != ratio) return false;
    ratio = f->address.coef[t] / a.coef[i];
    coef[t] = ratio < 0 ? -a.coef[i] : a.coef[i];
    for (unsigned n = 0; n < f->ndims; n++) {
      if (!f->dim[n].coef[t]) continue;
      if (d && d != &f->dim[n]) return false;
      d = &f->dim[n];
    }
  }
  bool upper = ratio < 0;
  int64_t stride = upper ? -ratio : ratio;
  if (!ratio || (!d && !(d = new_dim(f, stride, -1, 1)))) return false;
  bool bounded = d->by_low || d->by_high;
  if ((bounded || d == f->dim) && d->stride != stride) return false;
  for (unsigned t = 0; t < f->address.n; t++)
    if (bounded ? d->coef[t] != coef[t] : d->coef[t] && !coef[t]) return false;
  memcpy(d->coef, coef, sizeof coef);
  d->stride = stride;
  int64_t bound = upper ? a.constant - 1 : 1 - a.constant;
  if (upper && (!d->by_high || bound < d->high)) d->high = bound, d->by_high = true;
  if (!upper && (!d->by_low || bound > d->low)) d->low = bound, d->by_low = true;
  return true;
}

/* Whether the results for which the condition does not hold are not stored. */
static bool is_unstored(const struct finder *f, const struct uop *valid) {
  bool found = false;
  for (unsigned i = 0; i < f->k->nguards && f->sides->operand < MATRIX_C; i++)
    found = found || f->k->unstored[f->sides->operand][i] == valid;
  return found;
}

/* Takes the conditions. Those of the second pass are of results that are not stored; they are bounds where no other
 * bound is in their way. */
static bool take_bounds(struct finder *f, struct uop *valid, unsigned pass) {
  if (valid->op == OP_AND) return take_bounds(f, valid->src[0], pass) && take_bounds(f, valid->src[1], pass);
  if (valid->op == OP_CONST) return valid->arg.i;
  bool compares = valid->op == OP_CMPLT && valid->src[0]->dtype == DT_INDEX, unstored = is_unstored(f, valid);
  if (unstored != pass) return true;
  struct finder was = *f;
  if (compares && take_bound(f, valid)) return true;
  *f = was;
  if (unstored) return true;
  if (!compares || (axes_below(f->k, valid) & all_inner(f->sides))) return false;
  f->exists = f->exists ? uop_binary(f->k->g, OP_AND, f->exists, valid) : valid;
  return true;
}

/* Adds a term that is in no dimension to the one with the largest stride that divides it and no bounds, or makes a
 * dimension of it. */
static bool take_rest(struct finder *f, unsigned term) {
  int64_t coef = f->address.coef[term];
  struct dim *best = NULL;
  for (unsigned n = 0; n < f->ndims; n++) {
    struct dim *d = &f->dim[n];
    if (coef % d->stride || d->by_low || d->by_high) continue;
    if (!best || d->stride > best->stride) best = d;
  }
  if (!best && (coef < 1 || !(best = new_dim(f, coef, -1, 1)))) return false;
  best->coef[term] = coef / best->stride;
  return true;
}

/* Lowers the largest coordinate to that of stored results, if the coordinate increases with a value that has a bound
 * for them. */
static void lower_to_stored(const struct finder *f, struct dim *d) {
  for (unsigned g = 0; g < f->k->nguards && f->sides->operand < MATRIX_C; g++) {
    const struct uop *valid = f->k->unstored[f->sides->operand][g];
    struct affine a; /* > 0 where the condition holds */
    if (!valid || valid->op != OP_CMPLT) continue;
    affine_of(uop_binary(f->k->g, OP_SUB, valid->src[1], valid->src[0]), &a);
    int64_t ratio = 0, most = 0;
    bool same = a.n > 0;
    for (unsigned i = 0; i < a.n && same; i++) {
      int t = term_of(f, a.term[i]);
      if (!i && t >= 0) ratio = -d->coef[t] / a.coef[i];
      same = t >= 0 && ratio > 0 && a.coef[i] < 0 && d->coef[t] == -ratio * a.coef[i];
      if (same) most += d->coef[t] * uop_max(a.term[i]);
    }
    if (same && ratio * (a.constant - 1) < most) d->high -= most - ratio * (a.constant - 1);
  }
}

/* Completes the bounds by the smallest and largest values of the terms. */
static bool measure(const struct finder *f, struct dim *d) {
  int64_t low = 0, high = 0, first, last;
  for (unsigned i = 0; i < f->address.n; i++) {
    int64_t least = uop_min(f->address.term[i]), most = uop_max(f->address.term[i]);
    bool falls = d->coef[i] < 0;
    if (!d->coef[i]) continue;
    if (__builtin_mul_overflow(d->coef[i], falls ? most : least, &first) || __builtin_add_overflow(low, first, &low) ||
        __builtin_mul_overflow(d->coef[i], falls ? least : most, &last) || __builtin_add_overflow(high, last, &high))
      return false;
  }
  if (!d->by_low) d->low = low;
  if (!d->by_high) d->high = high, lower_to_stored(f, d);
  return d->high >= d->low && d->high - d->low < MAX_TENSOR;
}

/* The coordinate of a box. */
static struct uop *coordinate(const struct finder *f, const struct dim *d) {
  struct graph *g = f->k->g;
  struct uop *sum = uop_index(g, -d->low);
  uint64_t inner = all_inner(f->sides);
  for (unsigned i = 0; i < f->address.n; i++) {
    struct uop *term = f->address.term[i];
    bool zero = !uop_min(term) && !uop_max(term);
    if (!d->coef[i] || zero || (axes_below(f->k, term) & inner)) continue;
    sum = uop_binary(g, OP_ADD, sum, uop_binary(g, OP_MUL, term, uop_index(g, d->coef[i])));
  }
  return sum;
}

/* Makes the pieces of side 0 a dimension, if dimension 0 consists of whole pieces, so that one box has all of them. */
static bool join_pieces(struct finder *f) {
  const struct tensor_sides *s = f->sides;
  struct dim *x = &f->dim[0], *piece = &f->dim[f->ndims];
  if (s->pieces < 2 || f->ndims == MAX_TENSOR_RANK || s->pieces > MAX_BOX || x->low || (x->high + 1) % s->row)
    return false;
  *piece = (struct dim){
      .stride = s->row, .high = (x->high + 1) / s->row - 1, .by_high = true, .digit = -1, .count = s->pieces};
  for (unsigned i = 0; i < f->address.n; i++) {
    if (!x->coef[i] || (axes_below(f->k, f->address.term[i]) & s->axes[0])) continue;
    if (x->coef[i] % s->row) return false;
    piece->coef[i] = x->coef[i] / s->row;
  }
  for (unsigned i = 0; i < f->address.n; i++)
    if (piece->coef[i]) x->coef[i] = 0;
  x->high = s->row - 1, x->by_high = true;
  f->ndims++;
  return true;
}

/* Finds how the coordinates change along the axes for each of whose positions there are boxes of their own. */
static bool find_inner(const struct finder *f, struct tensor *out) {
  int64_t boxes = out->pieces * out->parts * out->classes;
  out->ninner = f->sides->ninner;
  for (unsigned i = 0; i < out->ninner; i++) {
    const struct axis *a = &f->k->axes[f->sides->inner[i]];
    int t = term_of(f, a->range);
    if (t < 0) return false;
    out->inner[i].size = a->size, boxes *= a->size;
    for (unsigned d = 0; d < f->ndims; d++)
      if (f->dim[d].coef[t]) out->inner[i].dim = d, out->inner[i].coef = f->dim[d].coef[t];
  }
  return boxes <= MAX_BOXES;
}

/* Divides the coordinate of rows by the number of classes. Returns false if a box may begin between rows of one
 * number, or rows of a class would not be multiples of 16 bytes apart. size: of an element */
static bool count_classes(struct finder *f, unsigned size) {
  struct dim *x = &f->dim[1];
  bool whole =
      f->ndims > 1 && x->count == f->sides->rows && f->sides->rows % ROW_CLASSES == 0 && x->low % ROW_CLASSES == 0;
  whole = whole && x->stride * ROW_CLASSES * size % STRIDE_UNIT == 0; /* not of bytes, unless rows have even lengths */
  for (unsigned i = 0; i < f->address.n; i++) {
    bool side = axes_below(f->k, f->address.term[i]) & f->sides->axes[1];
    if (!x->coef[i] || (side && !f->sides->permuted)) continue;
    whole = whole && (side || x->coef[i] % ROW_CLASSES == 0); /* permuted: a box has one class */
    x->coef[i] /= ROW_CLASSES;
  }
  return whole;
}

/* Makes the map of each class from that of all rows. Boxes of a class without rows are outside of its map. offset: of
 * the first row in the argument, in elements; stride: of rows */
static void divide_classes(struct tensor *out, int64_t offset, int64_t stride, unsigned size) {
  int64_t unit = STRIDE_UNIT / size, rows = out->text->size[1];
  for (unsigned c = ROW_CLASSES; c-- > 0;) {
    struct tensor_text *t = &out->text[c];
    int64_t first = offset + c * stride;
    *t = out->text[0];
    out->begin[c] = (uint8_t)(first % unit);
    t->size[0] += (uint32_t)(first % unit), t->size[1] = (uint32_t)((rows - c + ROW_CLASSES - 1) / ROW_CLASSES);
    t->offset = (uint32_t)(first / unit), t->stride[0] = (uint32_t)(stride * ROW_CLASSES / unit);
    if (c < rows) continue;
    out->begin[c] = UINT8_MAX;
    t->size[0] = t->size[1] = 1, t->offset = out->text[0].offset;
  }
}

/* Fills in the map and the coordinates. Returns false if the map cannot express them, or has elements outside the
 * buffer. */
static bool describe(struct finder *f, int64_t elements, unsigned size, struct tensor *out) {
  const struct tensor_sides *s = f->sides;
  struct tensor_text *t = out->text;
  int64_t offset = f->address.constant, bytes = s->row * size, last = 0, unit = STRIDE_UNIT / size;
  for (unsigned d = 0; d < f->ndims; d++)
    if (!measure(f, &f->dim[d])) return false;
  out->classes = s->apart ? ROW_CLASSES : 1;
  if (s->apart && !count_classes(f, size)) return false;
  bool joined = !s->apart && join_pieces(f);
  out->row = s->row, out->pieces = joined ? 1 : s->pieces, out->rows = s->rows / out->classes, out->parts = 1;
  while (out->rows > MAX_BOX && out->rows % 2 == 0 && !joined && !s->apart && f->dim[1].count == s->rows)
    out->rows /= 2, out->parts *= 2;
  out->apart = s->apart ? s->apart : joined ? s->pieces * s->rows : out->rows;
  f->dim[0].count = s->row;
  if (out->parts > 1 || s->apart) f->dim[1].count = out->rows;
  for (unsigned d = 0; d < f->ndims; d++) {
    struct dim *x = &f->dim[d];
    int64_t step = x->digit < 0 ? 1 : x->coef[x->digit], box = (x->count - 1) * step + 1;
    if (x->stride > INT64_MAX / size || step < 1 || step > MAX_STEP || box > MAX_BOX || (!d && step > 1)) return false;
    bool classes = d == 1 && s->apart;
    if (d && ((x->stride % unit && !classes) || x->stride / unit > UINT32_MAX / ROW_CLASSES)) return false;
    t->size[d] = (uint32_t)(x->high - x->low + 1), t->box[d] = (uint32_t)box;
    t->steps |= (uint32_t)(step - 1) << TENSOR_STEP_BITS * d;
    if (d) t->stride[d - 1] = (uint32_t)(x->stride / unit);
    offset += x->stride * x->low, last += x->stride * (x->high - x->low);
    if (classes) x->low /= ROW_CLASSES;
    out->at[d] = coordinate(f, x);
    /* What is before a row's first element in its 16 bytes belongs to the previous row. */
    if (!d && s->apart && uop_min(out->at[d]) < 0) return false;
  }
  if (offset < 0 || offset + last >= elements || (offset % unit && !s->apart) || (offset + last) / unit > UINT32_MAX ||
      bytes < 32)
    return false;
  struct uop **outermost = &out->at[f->ndims - 1];
  if (f->exists) *outermost = uop_where(f->k->g, f->exists, *outermost, uop_index(f->k->g, MAX_TENSOR));
  t->rank = f->ndims, t->offset = (uint32_t)(offset / unit);
  t->type = size == 1 ? 0 : size == 2 ? 1 : 2; /* unsigned integers: copies do not change values */
  t->swizzle = bytes == 32 ? 1 : bytes == 64 ? 2 : 3;
  if (s->apart) divide_classes(out, offset, f->dim[1].stride, size);
  return find_inner(f, out);
}

bool tensor_of(const struct codegen *k, struct uop *value, const struct tensor_sides *s, struct tensor *out) {
  return value->op == OP_LOAD && (value->nsrc < 2 || is_zero(value->src[1])) && tensor_at(k, value->src[0], s, out);
}

/* Describes the elements of an INDEX, whose address has these terms. */
static bool tensor_with(struct finder *f, const struct uop *index, struct tensor *out) {
  const struct tensor_sides *s = f->sides;
  if (f->address.n >= MAX_TERMS || !take_side(f, 0, s->row) || f->dim[0].stride != 1 || !take_rows(f)) return false;
  for (unsigned pass = 0; index->nsrc > 2 && pass < 2; pass++)
    if (!take_bounds(f, index->src[2], pass)) return false;
  for (unsigned i = 0; i < f->address.n; i++) {
    struct uop *term = f->address.term[i];
    bool whole = term->op == OP_RANGE || !(axes_below(f->k, term) & all_inner(s));
    bool zero = !uop_min(term) && !uop_max(term);
    if (!is_taken(f, i) && !zero && (!whole || !take_rest(f, i))) return false;
  }
  *out = (struct tensor){.text[0].slot = (uint32_t)index->src[0]->arg.i};
  return describe(f, index->src[0]->src[0]->arg.i, dtype_info[index->dtype].size, out);
}

/* Parts of a joined axis may be one term of the address, but bounds may be those of one of the parts: images that
 * follow each other in memory, and the rows of each. */
bool tensor_at(const struct codegen *k, const struct uop *index, const struct tensor_sides *s, struct tensor *out) {
  struct finder f = {.k = k, .sides = s}, parts = f;
  if (dtype_info[index->dtype].size > 4) return false;
  if (index->op != OP_INDEX || index->src[0]->op != OP_PARAM || index->src[0]->src[0]->op != OP_CONST) return false;
  affine_of(index->src[1], &f.address);
  affine_parts_of(index->src[1], &parts.address);
  return tensor_with(&f, index, out) || tensor_with(&parts, index, out);
}
