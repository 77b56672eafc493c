/* Plans sums of products along long rows whose results are the few taps of a filter, such as the gradient of the
 * weights of a depthwise convolution, on the host.
 *
 * Vectors are along the rows of both factors. A vector of one factor is loaded once for several taps, and
 * multiplied by one of the other factor for each. A contraction would pad the taps to the lanes of a vector. */
#include "../view.h"

enum {
  LEAST_ROW = 16,      /* elements */
  MOST_SIDE = 11,      /* taps along an axis */
  MOST_SUMS = 9,       /* taps at once, with 16 vector registers */
  WIDE_BYTES = 64,     /* vectors of this size have 32 registers, */
  MOST_WIDE_SUMS = 25, /* and so many sums */
  MOST_VECTORS = 8,    /* of a row that is expanded as a whole; of others, */
  FEW_VECTORS = 4      /* so many */
};

struct taps {
  int row;      /* the axis of the sum along which both factors are contiguous */
  uint64_t own; /* the output axes of the taps, on which only one factor depends */
};

/* Finds the taps of a kernel with one reduction, of two loads. */
static bool find(const struct view *p, struct taps *t) {
  const struct codegen *k = p->k;
  uint64_t some = 0, both = UINT64_MAX, rows = p->reduce[0];
  unsigned loads = 0;
  for (unsigned i = 0; i < p->n; i++) {
    const struct access *x = &p->access[i];
    if (x->store || !(x->mask & p->reduce[0])) continue;
    for (unsigned a = 0; a < k->naxes; a++)
      if (stride(p, x, (int)a) != 1) rows &= ~(UINT64_C(1) << a);
    some |= x->mask, both &= x->mask, loads++;
  }
  if (loads != 2 || !rows || (some & ~both & p->reduce[0])) return false;
  *t = (struct taps){.row = __builtin_ctzll(rows)};
  for (unsigned a = 0; a < k->naxes; a++) {
    const struct axis *x = &k->axes[a];
    if (x->kind != AXIS_LOOP || x->size < 2 || both >> a & 1) continue;
    if (!axis_is_static(x) || x->size > MOST_SIDE || !(some >> a & 1)) return false;
    t->own |= UINT64_C(1) << a;
  }
  for (unsigned i = 0; i < p->n; i++) { /* one factor has all taps */
    const struct access *x = &p->access[i];
    if (!x->store && (x->mask & p->reduce[0]) && (x->mask & t->own) && (x->mask & t->own) != t->own) return false;
  }
  return t->own && axis_is_static(&k->axes[t->row]) && k->axes[t->row].size >= LEAST_ROW;
}

bool optimize_taps(struct view *p, bool *done) {
  struct codegen *k = p->k;
  struct taps t;
  int64_t most = k->target->vector_bytes >= WIDE_BYTES ? MOST_WIDE_SUMS : MOST_SUMS;
  *done = !k->is_phase && p->nreduces == 1 && find(p, &t);
  if (!*done) return true;
  for (unsigned a = k->naxes; a-- > 0;) {
    int64_t size = k->axes[a].size;
    if (!(t.own >> a & 1) || size > most || !can(p, STEP_UPCAST, (int)a, size)) continue;
    if (!step(p, STEP_UPCAST, (int)a, size)) return false;
    most /= size;
  }
  int64_t lanes = largest_padded(p, STEP_VECTOR, t.row, lanes_for(p, t.row, k->target->vector_bytes));
  struct axis_name row = k->axes[t.row].name;
  if (lanes > 1 && !step_padded(p, STEP_VECTOR, t.row, lanes)) return false;
  int rest = axis_named(k, row); /* -1: one vector has the whole row */
  int64_t vectors = rest < 0 ? 1 : k->axes[rest].size, amount = vectors <= MOST_VECTORS ? vectors : FEW_VECTORS;
  if (!can(p, STEP_UNROLL, rest, amount)) amount = largest_possible(p, STEP_UNROLL, rest, amount);
  return (amount < 2 || step(p, STEP_UNROLL, rest, amount)) && spread_host(p);
}
