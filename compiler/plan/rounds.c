/* Steps that change what a loop does in a round.
 *
 * SKIP omits rounds of a reduction in which every product has a factor 0: where the window of a convolution is in the
 * padding, or the window of its gradient is outside the computed outputs. REDUCE(value, r...) becomes
 * REDUCE(WHERE(condition, value, 0), r...) with the condition of the factor's loads. The axis becomes the outermost
 * loop of the reduction. Lowering checks the condition outside the loops on which it does not depend (lower/reduce.c).
 * A later PACK copies the factor without it.
 *
 * PREFETCH brings what is read in the next round into the second-level cache. LOADs get the distance to the same
 * element in the next round, as a number of elements in their arg. It is a hint: later steps may change what the next
 * round is, and the address may be past the end of the argument. */
#include "internal.h"
#include <inttypes.h>
#include <stdlib.h>

/* ---- skip ------------------------------------------------------------------------------------------------------- */

enum { MOST_TERMS = 8 };
struct terms {
  struct uop *term[MOST_TERMS];
  unsigned n;
};

bool has_load(struct uop *u) {
  size_t count;
  struct uop **order = uop_toposort(&u, 1, &count);
  bool found = !order;
  for (size_t i = 0; i < count && !found; i++) found = order[i]->op == OP_LOAD;
  free(order);
  return found;
}

/* Adds the terms of a conjunction. Terms that depend on data are left out, because the processor would mispredict
 * them. */
static void add_terms(struct terms *t, struct uop *condition) {
  if (condition->op == OP_AND) {
    add_terms(t, condition->src[0]);
    add_terms(t, condition->src[1]);
    return;
  }
  for (unsigned i = 0; i < t->n; i++)
    if (t->term[i] == condition) return;
  if (t->n < MOST_TERMS && !has_load(condition)) t->term[t->n++] = condition;
}

/* Adds the conditions outside which x is 0. */
static void add_support(struct terms *t, struct uop *x) {
  if (x->op == OP_LOAD && x->nsrc > 1 && is_zero(x->src[1]) && x->src[0]->op == OP_INDEX && x->src[0]->nsrc > 2)
    add_terms(t, x->src[0]->src[2]);
  if (x->op == OP_WHERE && is_zero(x->src[2])) {
    add_terms(t, x->src[0]);
    add_support(t, x->src[1]);
  }
  if (x->op == OP_CAST || x->op == OP_NEG || x->op == OP_MUL)
    for (unsigned i = 0; i < x->nsrc; i++) add_support(t, x->src[i]);
}

unsigned skip_terms(const struct uop *product, struct uop **term, unsigned most) {
  struct terms t = {.n = 0};
  for (unsigned i = 0; i < 2; i++) add_support(&t, product->src[i]);
  unsigned n = t.n < most ? t.n : most;
  for (unsigned i = 0; i < n; i++) term[i] = t.term[i];
  return n;
}

/* Whether a check of the condition gains nothing: lowering checks it anyway, or it only excludes padding of an axis. */
static bool is_useless(const struct codegen *k, const struct uop *value, const struct uop *term) {
  for (; value->op == OP_WHERE; value = value->src[1])
    if (value->src[0] == term) return true;
  for (unsigned i = 0; i < k->nguards; i++)
    if (k->guard[i] == term) return true;
  return false;
}

/* Finds the terms that allow rounds of the axis to be skipped: those that depend on it and on no expanded axis. Returns
 * their number. */
static unsigned skippable_terms(const struct codegen *k, const struct uop *reduce, unsigned axis, const uint64_t *mask,
                                struct uop **term) {
  struct uop *all[MOST_TERMS];
  const struct uop *product = summed_product(reduce);
  unsigned n = product ? skip_terms(product, all, MOST_TERMS) : 0, found = 0;
  for (unsigned i = 0; i < n; i++) {
    bool fits = mask[all[i]->id] >> axis & 1 && !is_useless(k, reduce->src[0], all[i]);
    for (uint64_t m = mask[all[i]->id]; m; m &= m - 1) {
      enum axis_kind kind = k->axes[__builtin_ctzll(m)].kind;
      fits = fits && kind != AXIS_UPCAST && kind != AXIS_UNROLL;
    }
    if (fits) term[found++] = all[i];
  }
  return found;
}

bool skip_possible(const struct codegen *k, const struct step *s, const uint64_t *mask, char *why, size_t cap) {
  int axis = axis_named(k, s->axis);
  size_t count;
  struct uop *ast = k->ast, **order, *term[MOST_TERMS];
  unsigned found = 0;
  if (k->target->kind != TARGET_HOST) return refuse(why, cap, "the step applies to the host only");
  if (k->axes[axis].kind != AXIS_REDUCE)
    return refuse(why, cap, "a %s axis is not a loop of a reduction", axis_kind_name(k->axes[axis].kind));
  order = uop_toposort(&ast, 1, &count);
  for (size_t i = 0; order && i < count; i++)
    if (order[i]->op == OP_REDUCE && reduce_binds(order[i], k->axes[axis].range))
      found += skippable_terms(k, order[i], (unsigned)axis, mask, term);
  free(order);
  return found || refuse(why, cap, "no factor of a summed product is 0 in whole rounds of it");
}

bool skip_apply(struct codegen *k, const struct step *s) {
  int axis = axis_named(k, s->axis);
  uint64_t *mask = axis_masks(k, false);
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count), *from[MAX_ORDERED], *to[MAX_ORDERED];
  unsigned n = 0;
  for (size_t i = 0; mask && order && i < count && n < MAX_ORDERED; i++) {
    struct uop *u = order[i], *term[MOST_TERMS], *src[MAX_AXES + 1];
    if (u->op != OP_REDUCE || !reduce_binds(u, k->axes[axis].range)) continue;
    unsigned terms = skippable_terms(k, u, (unsigned)axis, mask, term);
    unsigned at = 1;
    src[0] = u->src[0], src[at++] = k->axes[axis].range;
    for (unsigned x = 1; x < u->nsrc; x++)
      if (u->src[x] != k->axes[axis].range) src[at++] = u->src[x];
    struct uop *zero = uop_const_int(k->g, u->src[0]->dtype, 0);
    for (unsigned t = 0; t < terms; t++) src[0] = uop_where(k->g, term[t], src[0], zero);
    from[n] = u, to[n] = uop_new(k->g, OP_REDUCE, u->dtype, 1, u->arg, u->aux, src, u->nsrc);
    n += terms > 0;
  }
  bool ok = mask && order;
  free(order);
  free(mask);
  if (ok) k->ast = uop_substitute(k->g, k->ast, from, to, n);
  return ok || codegen_fail(k, "out of memory");
}

/* ---- prefetch --------------------------------------------------------------------------------------------------- */

/* The distance of a load from argument `slot` in the next round of the axis; 0 if it is not known or there is none. */
static int64_t distance(const struct codegen *k, const struct uop *u, int64_t slot, int axis) {
  const struct uop *index = u->op == OP_LOAD ? u->src[0] : NULL;
  if (!index || index->op != OP_INDEX || index->src[0]->op != OP_PARAM || index->src[0]->arg.i != slot) return 0;
  struct affine a;
  affine_of(index->src[1], &a);
  return affine_coef(&a, k->axes[axis].range);
}

bool prefetch_possible(const struct codegen *k, const struct step *s, const uint64_t *mask, char *why, size_t cap) {
  (void)mask;
  int axis = axis_named(k, s->axis);
  enum axis_kind kind = k->axes[axis].kind;
  size_t count;
  struct uop *ast = k->ast, **order;
  bool found = false;
  if (k->target->kind != TARGET_HOST) return refuse(why, cap, "the step applies to the host only");
  if (kind != AXIS_LOOP && kind != AXIS_SERIAL && kind != AXIS_REDUCE)
    return refuse(why, cap, "a %s axis is not a loop", axis_kind_name(kind));
  order = uop_toposort(&ast, 1, &count);
  for (size_t i = 0; order && i < count; i++) found = found || distance(k, order[i], s->amount, axis);
  free(order);
  return found || refuse(why, cap, "no address in argument %" PRId64 " is a multiple of the axis", s->amount);
}

bool prefetch_apply(struct codegen *k, const struct step *s) {
  int axis = axis_named(k, s->axis);
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count), *from[MAX_ORDERED], *to[MAX_ORDERED];
  unsigned n = 0;
  bool ok = order;
  for (size_t i = 0; ok && i < count && n < MAX_ORDERED; i++) {
    struct uop *u = order[i];
    union uop_arg ahead = {.i = distance(k, u, s->amount, axis)};
    if (!ahead.i) continue;
    from[n] = u;
    to[n++] = uop_new(k->g, OP_LOAD, u->dtype, u->lanes, ahead, u->aux, u->src, u->nsrc);
  }
  free(order);
  if (ok) k->ast = uop_substitute(k->g, k->ast, from, to, n);
  return ok || codegen_fail(k, "out of memory");
}
