/* Lowers sums of floats that are multiples of sums of products of bytes (plan/dots.h). Each lane of a vector has the
 * sum of four products, which is exact as f32. The float sum adds the lanes separately until its loops end. */
#include "lower.h"
#include "plan/dots.h"

/* Whether all nodes from the float sum to the sum of products have no other users, which would need the whole sum. */
static bool is_used_once(const struct dot *d, struct uop *const *order, size_t count) {
  unsigned uses[DOT_CHAIN] = {0};
  for (size_t i = 0; i < count; i++)
    for (unsigned s = 0; s < order[i]->nsrc; s++)
      for (unsigned c = 0; c < d->nchain; c++) uses[c] += order[i]->src[s] == d->chain[c];
  for (unsigned c = 0; c < d->nchain; c++)
    if (uses[c] != 1) return false;
  return true;
}

unsigned lower_find_dot(const struct lowerer *L, const struct uop *reduce, struct uop *const *order, size_t count) {
  struct dot d;
  if (L->k->target->kind != TARGET_HOST || !dot_of(reduce, &d)) return 0;
  if (!(mask_of(L, d.axis) & L->expanded & L->vectors) || (mask_of(L, reduce) & L->vectors)) return 0;
  return is_used_once(&d, order, count) ? d.lanes / DOT_PRODUCTS : 0;
}

/* A factor at the current positions. It is computed as a vector along an axis of the float sum if there is one. */
static struct uop *factor_at(struct lowerer *L, const struct uop *reduce, struct uop *factor) {
  uint64_t vec = lowest(mask_of(L, factor) & lower_bound_axes(L, reduce) & L->expanded & L->vectors);
  if (!vec) return lower_eval(L, factor);
  int axis = __builtin_ctzll(vec), at = L->position[axis];
  L->position[axis] = VEC;
  struct uop *v = lower_eval(L, factor);
  L->position[axis] = at;
  return v->lanes > 1 ? lower_gep(L, v, (unsigned)at) : v;
}

/* The sums of four products, with the axis of the products as a vector. The instruction multiplies u8 and i8, so 128 is
 * added to another i8, and 128 times the other factor is subtracted. */
static struct uop *products(struct lowerer *L, const struct dot *d) {
  unsigned n = d->lanes, sums = n / DOT_PRODUCTS;
  int axis = __builtin_ctzll(mask_of(L, d->axis));
  struct uop *src[3], *zero = lower_broadcast(L, build_int(&L->b, DT_I32, 0), sums);
  L->position[axis] = VEC;
  for (unsigned i = 0; i < 2; i++) src[i] = lower_broadcast(L, lower_eval(L, d->byte[i]), n);
  L->position[axis] = 0;
  src[2] = zero;
  if (L->b.failed) return zero;
  if (src[0]->dtype == DT_U8) return lower_mk(L, OP_DOT, DT_I32, sums, 0, 0, src, 3);
  struct uop *high = lower_broadcast(L, build_int(&L->b, DT_U8, 128), n);
  struct uop *bits = lower_mk(L, OP_BITCAST, DT_U8, n, 0, 0, &src[0], 1);
  src[0] = build_alu(&L->b, OP_XOR, DT_U8, (struct uop *[]){bits, high}, 2);
  struct uop *sum = lower_mk(L, OP_DOT, DT_I32, sums, 0, 0, src, 3);
  struct uop *more = lower_mk(L, OP_DOT, DT_I32, sums, 0, 0, (struct uop *[]){high, src[1], zero}, 3);
  return build_alu(&L->b, OP_SUB, DT_I32, (struct uop *[]){sum, more}, 2);
}

struct uop *lower_add_dot(struct lowerer *L, const struct uop *reduce, struct uop *acc) {
  struct dot d;
  if (!dot_of(reduce, &d)) {
    lower_fail(L, "a sum of products was lost");
    return acc;
  }
  struct uop *factor = NULL, *v = build_cast(&L->b, products(L, &d), DT_F32);
  for (unsigned i = 0; i < d.nfactors && !L->b.failed; i++)
    factor = lower_combine(L, OP_MUL, factor, factor_at(L, reduce, d.factor[i]));
  if (L->b.failed || !factor) return lower_combine(L, OP_ADD, acc, v);
  factor = lower_broadcast(L, factor, v->lanes);
  if (!acc) return lower_combine(L, OP_MUL, factor, v);
  return lower_mk(L, OP_MULACC, DT_F32, v->lanes, 0, 0, (struct uop *[]){factor, v, acc}, 3);
}
