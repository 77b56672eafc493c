/* Plans sums of floats that are multiples of sums of products of bytes on the host: products of quantized matrices and
 * vectors, whose blocks have a factor. The bytes of a block are a vector. Its products are added in groups of four, in
 * the lanes of another vector, and only at the end the lanes are added (lower_dots.c). */
#include "dots.h"
#include <stdlib.h>

enum {
  SHORT = 16, /* a longer axis of a sum stays a loop */
  FEW = 8,    /* vectors that are multiplied at once */
};

/* The 8-bit value that a product's operand is; NULL if there is none. */
static struct uop *byte_of(struct uop *operand) {
  if (operand->op != OP_CAST) return NULL;
  enum dtype t = operand->src[0]->dtype;
  return t == DT_U8 || t == DT_I8 ? operand->src[0] : NULL;
}

/* Whether the REDUCE sums products of bytes along one axis, as many as a vector may have. */
static bool sums_bytes(const struct uop *reduce, struct dot *d) {
  if (reduce->op != OP_REDUCE || reduce->aux != OP_ADD || reduce->nsrc != 2) return false;
  if (reduce->dtype != DT_I32 && reduce->dtype != DT_I64) return false; /* a narrower sum wraps around */
  struct uop *product = reduce->src[0], *size = reduce->src[1]->op == OP_RANGE ? reduce->src[1]->src[0] : NULL;
  while (product->op == OP_CAST && dtype_info[product->dtype].cls == 'i' && product->src[0]->dtype == DT_I32)
    product = product->src[0];
  if (product->op != OP_MUL || product->dtype != DT_I32 || !size || size->op != OP_CONST) return false;
  int64_t n = size->arg.i;
  if (n < 16 || n > MAX_LANES || n & (n - 1)) return false;
  for (unsigned i = 0; i < 2; i++)
    if (!(d->byte[i] = byte_of(product->src[i]))) return false;
  if (d->byte[0]->dtype == DT_I8 && d->byte[1]->dtype == DT_U8) {
    struct uop *swap = d->byte[0];
    d->byte[0] = d->byte[1], d->byte[1] = swap;
  }
  d->lanes = (unsigned)n, d->axis = reduce->src[1];
  return d->byte[1]->dtype == DT_I8;
}

/* Follows the factors from v to the sum of products. */
static bool find_below(struct uop *v, struct dot *d) {
  if (d->nchain == DOT_CHAIN) return false;
  d->chain[d->nchain++] = v;
  if (v->op == OP_CAST && v->src[0]->op == OP_REDUCE && d->nchain < DOT_CHAIN) {
    d->chain[d->nchain++] = v->src[0];
    return sums_bytes(v->src[0], d);
  }
  for (unsigned i = 0; v->op == OP_MUL && i < 2; i++) {
    unsigned nchain = d->nchain, nfactors = d->nfactors;
    d->factor[d->nfactors++] = v->src[1 - i];
    if (find_below(v->src[i], d)) return true;
    d->nchain = nchain, d->nfactors = nfactors;
  }
  return false;
}

bool dot_of(const struct uop *sum, struct dot *d) {
  *d = (struct dot){.lanes = 0};
  return sum->op == OP_REDUCE && sum->aux == OP_ADD && sum->dtype == DT_F32 && find_below(sum->src[0], d);
}

static bool step(struct codegen *k, enum step_kind kind, int axis, int64_t amount) {
  struct step s = {.kind = (uint8_t)kind, .axis = k->axes[axis].name, .amount = amount};
  return amount < 2 || !step_possible(k, s, NULL, 0) || step_apply(k, s);
}

/* Makes the last short axis of each sum a vector, which is then how the factors are computed, and unrolls the others.
 * Axes of the sums of products are vectors already. */
static bool unroll_short(struct codegen *k, const struct uop *reduce) {
  bool last = true;
  for (unsigned i = reduce->nsrc; i-- > 2;) { /* the first axis, of blocks, stays a loop */
    int a = axis_with(k, reduce->src[i]);
    if (a < 0 || k->axes[a].kind != AXIS_REDUCE || k->axes[a].size > SHORT) continue;
    int64_t size = k->axes[a].size;
    bool vector = last && size > 2 && !(size & (size - 1));
    if (size > 1) last = false;
    if (!step(k, vector ? STEP_VECTOR : STEP_UNROLL, a, size)) return false;
  }
  return true;
}

/* Computes the results of few vectors, or of few rows, at once: what the other factor loads and unpacks is then shared.
 */
static bool expand_few(struct codegen *k, const struct dot *d) {
  uint64_t *mask = axis_masks(k, false);
  if (!mask) return codegen_fail(k, "out of memory");
  uint64_t one = mask[d->byte[0]->id] ^ mask[d->byte[1]->id];
  free(mask);
  for (unsigned a = 0, n = k->naxes; a < n; a++)
    if (k->axes[a].kind == AXIS_LOOP && k->axes[a].size <= FEW && (one >> a & 1) &&
        !step(k, STEP_UPCAST, (int)a, k->axes[a].size))
      return false;
  return true;
}

bool dots_host(struct codegen *k, bool *done) {
  struct uop *sum[MOST_DOT_SUMS];
  unsigned n = 0;
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  struct dot d, any = {.lanes = 0};
  *done = false;
  if (!order) return codegen_fail(k, "out of memory");
  for (size_t i = 0; i < count; i++) {
    if (order[i]->op == OP_REDUCE && n < MOST_DOT_SUMS) sum[n++] = order[i];
    if (dot_of(order[i], &d)) *done = true, any = d;
  }
  free(order);
  if (!*done) return true;
  if (!expand_few(k, &any)) return false;
  /* Steps replace the REDUCEs, but the ranges of other axes stay the same. */
  for (unsigned i = 0; i < n; i++) {
    int a = dot_of(sum[i], &d) ? axis_with(k, d.axis) : -1;
    if (a >= 0 && !step(k, STEP_VECTOR, a, d.lanes)) return false;
  }
  for (unsigned i = 0; i < n; i++)
    if (!unroll_short(k, sum[i])) return false;
  return true;
}
