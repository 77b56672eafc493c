/* Scheduling: merges a sum over movement of a sum into one sum. ADD commutes with RESHAPE, PERMUTE, SHRINK, SHEAR, PAD
 * and FLIP, because the padding is ADD's identity element. Example: the gradient of a convolution with respect to its
 * input is a sum over the kernel of a SHEAR of a sum over the output channels; it becomes one matrix product that
 * reduces over both, unless few input channels make that slower than the separate sums.
 *
 * The padding becomes a condition inside the sum. In a product only one factor gets the condition, one that depends on
 * the condition's ranges anyway: if the other factor of a matrix product depended on the position of the result too, it
 * could not be reused for several results. If padding meets a number that is not finite, the result is NaN, as with a
 * convolution's zero padding. */
#include "scheduler.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* With a longer outer sum there are so many fewer results that the inner sum is better computed alone: it is mostly a
 * matrix product, whose factors are reused for several results. The largest common windows are 11 by 11. */
enum { MOST_TAPS = 128 };

/* Columns of a product's results with which loads of operands take little time. */
enum { MANY_COLUMNS = 64 };
/* The estimate for fewer columns has to exceed the time of separate sums by this factor. */
static const double ENOUGH_GAIN = 1.5;

/* ---- cost ---- */

/* Whether the machine multiplies the factors of x with matrix instructions. */
static bool uses_tiles(const struct schedule_machine *m, const struct uop *x) {
  const struct uop *product = below_casts(x);
  bool tiles = product->op == OP_MUL;
  for (unsigned i = 0; i < 2 && tiles; i++)
    tiles = m->tile_types & ~m->large_types & 1u << below_casts(product->src[i])->dtype;
  return tiles;
}

/* The time in ns of sums with `terms` products in total and a number of results. */
static double sum_time(const struct schedule_machine *m, double rate, double terms, int64_t results) {
  double full = (double)m->groups * (double)m->side, share = (double)results < full ? (double)results / full : 1;
  return 2 * terms / (rate * share);
}

/* The factor by which few columns of a product's results slow down a machine that computes them in blocks without
 * matrix instructions: each element of the larger operand that a work-item loads is used for few products. x: what the
 * inner sum adds up; taps: length of the outer sum */
static double few_columns(const struct schedule_machine *m, const struct uop *x, int64_t taps) {
  const struct uop *product = below_casts(x);
  double largest = 1;
  if (!m->block_columns || product->op != OP_MUL || uses_tiles(m, x)) return 1;
  for (unsigned i = 0; i < 2; i++) {
    const struct uop *f = below_casts(product->src[i]);
    if ((double)shape_numel(f->shape) > largest) largest = (double)shape_numel(f->shape);
  }
  double columns = (double)shape_numel(x->shape) / largest / (double)taps;
  return columns < 1 ? MANY_COLUMNS : columns < MANY_COLUMNS ? MANY_COLUMNS / columns : 1;
}

bool schedule_sums_merge(struct scheduler *s, const struct node *n, const struct use *w) {
  const struct node *sum = w->sum;
  if (!sum || n->u->op != OP_REDUCE_AXIS || n->u->aux != OP_ADD || n->numel <= 0) return false;
  int64_t all = shape_numel(sum->u->src[0]->shape), inner = shape_numel(n->u->src[0]->shape),
          taps = sum->numel > 0 ? all / sum->numel : 0;
  int64_t results = schedule_elements(w->kernel, (1u << w->kernel->nranges) - 1);
  if (taps <= 0 || taps > MOST_TAPS || inner <= 0 || results <= 0) return false;
  if (w->kernel->next_axis + n->u->src[0]->shape->rank > MOST_AXES) return false;
  const struct schedule_machine *m = schedule_machine_of(s, n->device);
  double length = (double)inner / (double)n->numel;
  double traffic = 2.0 * (double)n->numel * dtype_info[n->u->dtype].size / m->bytes_per_ns;
  /* of a window that moves in strides; without one, both sums are weighed at the rate without matrix instructions,
   * which leaves those of few channels apart */
  double taps_left = schedule_strided_taps(w->valid);
  double rate = taps_left < 1 && uses_tiles(m, n->u->src[0]) ? m->tile_flops_per_ns : m->flops_per_ns;
  double apart = sum_time(m, rate, (double)inner, n->numel) + traffic + m->launch_ns;
  /* Each result of the inner sum is used once, so many products of the merged sum are products of padding. If the
   * machine can skip them, it can do so along only one of two dimensions: the other one is that of vectors or tiles. */
  double merged = (double)results * (double)taps * length * taps_left;
  if (m->skips && taps_left == 1 && merged > (double)inner) merged = sqrt(merged * (double)inner);
  double slower = few_columns(m, n->u->src[0], taps);
  return sum_time(m, rate, merged, results) * slower <= apart * (slower > 1 ? ENOUGH_GAIN : 1);
}

/* ---- conditions ---- */

/* Whether condition b implies a; both compare a value with a constant. */
static bool term_implies(const struct uop *a, const struct uop *b) {
  if (a == b) return true;
  if (a->op != OP_CMPLT || b->op != OP_CMPLT) return false;
  bool below = uop_is_const(a->src[1]) && uop_is_const(b->src[1]) && a->src[0] == b->src[0];
  bool above = uop_is_const(a->src[0]) && uop_is_const(b->src[0]) && a->src[1] == b->src[1];
  return below ? b->src[1]->arg.i <= a->src[1]->arg.i : above && b->src[0]->arg.i >= a->src[0]->arg.i;
}

/* Whether each term of conjunction p is implied by a term of valid. */
static bool implies(const struct uop *valid, const struct uop *p) {
  if (p->op == OP_AND) return implies(valid, p->src[0]) && implies(valid, p->src[1]);
  if (valid->op == OP_AND) return implies(valid->src[0], p) || implies(valid->src[1], p);
  return term_implies(p, valid);
}

static struct uop *load_condition(const struct uop *load) {
  return load->src[0]->nsrc == 3 ? load->src[0]->src[2] : NULL;
}
/* Whether x is a LOAD, maybe converted, that gives 0 where p does not hold. */
static bool is_zero_unless(const struct uop *x, const struct uop *p) {
  while (x->op == OP_CAST) x = x->src[0];
  return x->op == OP_LOAD && load_condition(x) && implies(load_condition(x), p);
}

struct uop *schedule_masked(struct scheduler *s, struct uop *x, struct uop *p) {
  if (!p || is_zero_unless(x, p)) return x;
  return uop_where(s->graph, p, x, schedule_zero(s->graph, x->dtype));
}

/* The mask of the numbers of the ranges that u depends on. */
static uint64_t ranges_in(struct scheduler *s, struct uop *u) {
  size_t n;
  struct uop **order = uop_toposort(&u, 1, &n);
  uint64_t found = 0;
  if (!order) schedule_no_memory(s);
  for (size_t i = 0; order && i < n; i++)
    if (order[i]->op == OP_RANGE) found |= UINT64_C(1) << (order[i]->arg.i & 63);
  free(order);
  return found;
}

/* u with its loads that are valid only where p holds made unconditional. Returns NULL if one could then leave its
 * buffer. */
static struct uop *make_unconditional(struct scheduler *s, struct uop *u, const struct uop *p) {
  enum { MOST = 16 };
  struct uop *from[MOST], *to[MOST];
  unsigned pairs = 0;
  size_t n;
  struct uop **order = uop_toposort(&u, 1, &n);
  bool ok = order;
  if (!order) schedule_no_memory(s);
  for (size_t i = 0; i < n && ok; i++) {
    struct uop *x = order[i], *index = x->op == OP_LOAD ? x->src[0] : NULL;
    ok = x->op != OP_VAR;
    if (!index || index->nsrc != 3) continue;
    ok = pairs < MOST && implies(p, index->src[2]) && uop_min(index->src[1]) >= 0 &&
         uop_max(index->src[1]) < index->src[0]->src[0]->arg.i;
    if (!ok) break;
    index = uop_new(s->graph, OP_INDEX, index->dtype, 1, (union uop_arg){0}, 0, index->src, 2);
    from[pairs] = x;
    to[pairs++] = uop_new(s->graph, OP_LOAD, x->dtype, 1, (union uop_arg){0}, 0, &index, 1);
  }
  free(order);
  return !ok ? NULL : pairs ? uop_substitute(s->graph, u, from, to, pairs) : u;
}

/* v if p holds, otherwise 0, as a term of a sum. */
static struct uop *masked_term(struct scheduler *s, struct uop *v, struct uop *p) {
  if (v->op != OP_MUL) return schedule_masked(s, v, p);
  uint64_t asked = ranges_in(s, p);
  for (unsigned k = 0; k < 2; k++) {
    struct uop *a = v->src[k], *b = v->src[!k];
    bool goes = !(asked & ~ranges_in(s, a)) && ((asked & ~ranges_in(s, b)) || is_zero_unless(a, p));
    if (!goes) continue;
    struct uop *free_of = make_unconditional(s, b, p);
    if (free_of) return uop_binary(s->graph, OP_MUL, schedule_masked(s, a, p), free_of);
    if (is_zero_unless(a, p) && is_zero_unless(b, p)) return v;
  }
  return schedule_masked(s, v, p);
}

struct uop *schedule_merged_sum(struct scheduler *s, const struct uop *sum, const struct use *w, unsigned *nranges,
                                struct uop **range) {
  struct uop *u = sum->src[0], *p = NULL;
  uint32_t i = w->src_use[0];
  for (; i != NO_USE && is_movement(u); i = s->use[i].src_use[0], u = u->src[0])
    p = index_and(s->simplifier, p, s->use[i].padded);
  if (i == NO_USE || u->op != OP_REDUCE_AXIS || !s->use[i].merged || s->use[i].value->op != OP_REDUCE) return NULL;
  struct uop *inner = s->use[i].value;
  *nranges = inner->nsrc - 1u;
  memcpy(range, inner->src + 1, *nranges * sizeof *range);
  return p ? masked_term(s, inner->src[0], p) : inner->src[0];
}
