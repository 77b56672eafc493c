/* Stores of vectors whose elements take turns in memory, as when the channels of an image become its last axis: the
 * elements of a vector are n apart, and those between them are at the n positions of another axis. The n vectors of
 * these positions are shuffled into n vectors of consecutive elements. */
#include "lower.h"

int lower_interleaved_axis(struct lowerer *L, const struct uop *store, unsigned vec) {
  const struct uop *index = store->src[0];
  const struct axis *axis = L->k->axes;
  if (L->k->target->kind != TARGET_HOST || store->aux || index->nsrc > 2) return -1;
  struct affine a;
  affine_of(index->src[1], &a);
  int64_t n = affine_coef(&a, axis[vec].range);
  if (n < 2 || n > MOST_TURNS) return -1;
  for (unsigned i = 0; i < a.n; i++) {
    uint64_t m = mask_of(L, a.term[i]) & L->expanded, both = m | UINT64_C(1) << vec;
    int along = m ? __builtin_ctzll(m) : -1;
    if (along < 0 || a.coef[i] != 1 || a.term[i] != axis[along].range || axis[along].size != n) continue;
    bool other = false;
    for (unsigned j = 0; j < a.n; j++)
      other =
          other || (a.term[j] != axis[along].range && a.term[j] != axis[vec].range && (mask_of(L, a.term[j]) & both));
    if (!other) return along;
  }
  return -1;
}

/* Lane l becomes lane (first + l) / n of v if (first + l) % n is c, otherwise it stays that of `rest`. */
static struct uop *mix(struct lowerer *L, struct uop *rest, struct uop *v, unsigned c, unsigned n, unsigned first) {
  struct uop *lane[MAX_LANES];
  for (unsigned l = 0; l < v->lanes; l++) {
    unsigned e = first + l, from = c == 1 || e % n == c ? e / n : l; /* with c = 1, `rest` is the first vector itself */
    lane[l] = lower_mk(L, OP_GEP, v->dtype, 1, from, 0, e % n == c ? &v : &rest, 1);
  }
  return lower_mk(L, OP_VECTORIZE, v->dtype, v->lanes, 0, 0, lane, v->lanes);
}

bool lower_store_interleaved(struct lowerer *L, struct uop *store, struct uop *base, unsigned vec, unsigned along) {
  struct uop *index = store->src[0], *v[MOST_TURNS] = {NULL};
  const unsigned n = (unsigned)L->k->axes[along].size, lanes = (unsigned)L->k->axes[vec].size;
  for (unsigned c = 0; c < n; c++) {
    L->position[vec] = VEC, L->position[along] = (int)c;
    v[c] = build_cast(&L->b, lower_broadcast(L, lower_eval(L, store->src[1]), lanes), index->dtype);
  }
  for (unsigned first = 0; first < n * lanes && !L->b.failed; first += lanes) {
    struct uop *mixed = v[0];
    for (unsigned c = 1; c < n; c++) mixed = mix(L, mixed, v[c], c, n, first);
    L->position[vec] = (int)(first / n), L->position[along] = (int)(first % n);
    lower_place_store(L, store, base, lower_eval_index(L, index->src[1]), NULL, mixed);
  }
  L->position[vec] = L->position[along] = 0;
  return !L->b.failed;
}
