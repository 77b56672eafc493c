/* Finds which axes of a value form one dimension of its elements: the parts of a split axis, and axes on whose sum
 * alone the value depends, like y + ky of a convolution. A copy of the value then has each element once. */
#include "../../graph/symbolic.h"
#include "internal.h"
#include <stdlib.h>
#include <string.h>

/* Adds the sum, and the sums inside its terms that are not ranges. Returns false if there are too many. */
static bool note_index(struct windows *w, struct uop *u, unsigned depth) {
  if (!w->mask[u->id]) return true;
  if (w->nindices == MAX_INDICES || depth == 16) return false;
  struct affine *f = &w->index[w->nindices++];
  affine_of(u, f);
  unsigned n = f->n;
  for (unsigned t = 0; t < n; t++) {
    struct uop *term = f->term[t];
    if (term->op == OP_RANGE) continue;
    for (unsigned s = 0; s < term->nsrc; s++)
      if (term->src[s]->dtype == DT_INDEX && !note_index(w, term->src[s], depth + 1)) return false;
  }
  return true;
}

bool windows_of(struct windows *w, const struct codegen *k, struct uop *value, const uint64_t *mask) {
  size_t count;
  struct uop **order = uop_toposort(&value, 1, &count);
  w->k = k, w->mask = mask, w->nindices = 0;
  bool ok = order;
  for (unsigned pass = 0; pass < 2; pass++) /* addresses first, then conditions and other uses */
    for (size_t i = 0; ok && i < count; i++)
      for (unsigned s = 0; s < order[i]->nsrc && ok && order[i]->dtype != DT_INDEX; s++)
        if (order[i]->src[s]->dtype == DT_INDEX && (order[i]->op == OP_INDEX) == !pass)
          ok = note_index(w, order[i]->src[s], 0);
  free(order);
  return ok;
}

bool windows_ratio(const struct windows *w, unsigned a, unsigned b, int64_t *x, int64_t *y) {
  *x = *y = 0;
  for (unsigned i = 0; i < w->nindices; i++) {
    int64_t u = affine_coef(&w->index[i], w->k->axes[a].range), v = affine_coef(&w->index[i], w->k->axes[b].range);
    int64_t left, right;
    if (!u && !v) continue;
    if (!u || !v) return false;
    if (!*x) *x = u, *y = v;
    if (__builtin_mul_overflow(u, *y, &left) || __builtin_mul_overflow(v, *x, &right) || left != right) return false;
  }
  int64_t d = greatest_divisor(*x, *y);
  if (d) *x /= d, *y /= d;
  return d;
}

/* Computes the first position and the size of the dimension. Returns false if no ranges reach some of its positions. */
static bool find_extent(const struct windows *w, struct dimension *d) {
  int64_t reach = 0, high = 0;
  d->low = 0;
  bool counted[MAX_DIMENSIONS] = {0};
  for (unsigned round = 0; round < d->n; round++) {
    unsigned least = MAX_DIMENSIONS;
    for (unsigned i = 0; i < d->n; i++)
      if (!counted[i] && (least == MAX_DIMENSIONS || llabs(d->coef[i]) < llabs(d->coef[least]))) least = i;
    int64_t coef = d->coef[least], last = coef * (w->k->axes[d->axis[least]].size - 1);
    counted[least] = true;
    if (llabs(coef) > reach + 1) return false;
    reach += llabs(last);
    *(last < 0 ? &d->low : &high) += last;
  }
  d->size = high - d->low + 1;
  return true;
}

/* Whether memory addresses decrease along the dimension. */
static bool is_reversed(const struct windows *w, const struct dimension *d) {
  for (unsigned i = 0; i < w->nindices; i++) {
    int64_t coef = affine_coef(&w->index[i], w->k->axes[d->axis[0]].range);
    if (coef) return (coef < 0) != (d->coef[0] < 0);
  }
  return false;
}

/* Joins two dimensions to one. A vector's lanes stay adjacent; otherwise elements that are adjacent in memory do. */
static bool join_dimensions(const struct windows *w, const struct dimension *a, const struct dimension *b,
                            struct dimension *out) {
  int64_t x, y;
  if (a->n + b->n > MAX_DIMENSIONS || !windows_ratio(w, a->axis[0], b->axis[0], &x, &y)) return false;
  int64_t left, right;
  if (__builtin_mul_overflow(x, b->coef[0], &left) || __builtin_mul_overflow(y, a->coef[0], &right)) return false;
  int64_t d = greatest_divisor(left, right), sign;
  *out = *a;
  for (unsigned i = 0; i < a->n; i++)
    if (__builtin_mul_overflow(a->coef[i], left / d, &out->coef[i])) return false;
  for (unsigned i = 0; i < b->n; i++) {
    out->axis[out->n] = b->axis[i];
    if (__builtin_mul_overflow(b->coef[i], right / d, &out->coef[out->n++])) return false;
  }
  sign = is_reversed(w, out) ? -1 : 1;
  for (unsigned i = 0; i < out->n; i++)
    if (w->k->axes[out->axis[i]].vector) sign = out->coef[i] < 0 ? -1 : 1;
  for (unsigned i = 0; i < out->n; i++) {
    out->coef[i] *= sign;
    if (llabs(out->coef[i]) > INT32_MAX || (w->k->axes[out->axis[i]].vector && out->coef[i] != 1)) return false;
  }
  return find_extent(w, out);
}

/* Whether the axis is a part of one that is summed. Fragments of matrix instructions have parts of other kinds. */
static bool is_summed(const struct codegen *k, unsigned axis) {
  for (unsigned a = 0; a < k->naxes; a++) {
    const struct axis *x = &k->axes[a];
    bool part = a == axis || (x->name.letter && x->name.letter == k->axes[axis].name.letter);
    if (part && !x->fragment && (x->kind == AXIS_REDUCE || x->kind == AXIS_UNROLL)) return true;
  }
  return false;
}

/* Whether one dimension numbers outputs and the other one products that are summed. On GPUs they stay apart, so that
 * rows of a copy can be padded. */
static bool are_rows(const struct windows *w, const struct dimension *a, const struct dimension *b) {
  return w->k->target->kind != TARGET_HOST && is_summed(w->k, a->axis[0]) != is_summed(w->k, b->axis[0]);
}

unsigned windows_group(const struct windows *w, const unsigned *axis, unsigned n, struct dimension *dim) {
  unsigned ndims = 0;
  if (n > MAX_DIMENSIONS) return 0;
  for (unsigned i = 0; i < n; i++)
    dim[ndims++] = (struct dimension){.axis = {axis[i]}, .coef = {1}, .n = 1, .size = w->k->axes[axis[i]].size};
  /* Joins axes whose windows overlap, so each element is stored once. The joint dimension takes the later place in the
   * list. */
  for (bool again = true; again;) {
    again = false;
    for (unsigned a = 0; a + 1 < ndims && !again; a++)
      for (unsigned b = a + 1; b < ndims && !again; b++) {
        struct dimension both;
        again = join_dimensions(w, &dim[a], &dim[b], &both) && both.size < dim[a].size * dim[b].size;
        if (!again) continue;
        dim[b] = both;
        memmove(&dim[a], &dim[a + 1], (--ndims - a) * sizeof *dim);
      }
  }
  /* Joins neighbours in the list that continue each other. */
  for (unsigned d = 0; d + 1 < ndims;) {
    struct dimension *x = &dim[d], both;
    bool one = !are_rows(w, x, x + 1) && join_dimensions(w, x, x + 1, &both) && !x->low && !x[1].low &&
               both.size == x->size * x[1].size && both.coef[x->n - 1] == x[1].size * both.coef[x->n] &&
               both.coef[x->n + x[1].n - 1] == 1;
    if (!one) {
      d++;
      continue;
    }
    *x = both;
    memmove(x + 1, x + 2, (--ndims - d - 1) * sizeof *x);
  }
  return ndims;
}

int64_t windows_stride(const struct codegen *k, unsigned axis) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  int64_t found = 1;
  for (size_t i = 0; order && i < count; i++) {
    const struct uop *u = order[i];
    if ((u->op != OP_IDIV && u->op != OP_MOD) || u->dtype != DT_INDEX || u->src[1]->op != OP_CONST) continue;
    struct affine a;
    affine_of(u->src[0], &a);
    bool reduced = false;
    for (unsigned r = 0; r < k->naxes; r++)
      reduced = reduced || (k->axes[r].kind == AXIS_REDUCE && affine_coef(&a, k->axes[r].range));
    if (reduced && llabs(affine_coef(&a, k->axes[axis].range)) == 1 && u->src[1]->arg.i > found)
      found = u->src[1]->arg.i;
  }
  free(order);
  return found <= MOST_STRIDE ? found : 1;
}
