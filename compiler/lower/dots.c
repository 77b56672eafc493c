/* Lowers sums of floats that are multiples of sums of products of bytes (plan/dots.h). Each lane of a vector has the
 * sum of four products, which is exact as f32. The float sum adds the lanes separately until its loops end. */
#include "lower.h"
#include "../plan/dots.h"

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

/* The axes of the float sum that are vectors, the outermost first, and how many positions along them have their
 * products in one vector: as many as fill the host's vectors. */
struct together {
  unsigned axis[MAX_AXES], naxes, positions, n;
  uint64_t mask;
};
static struct together together_of(const struct lowerer *L, const struct uop *reduce, const struct dot *d) {
  struct together t = {.positions = 1, .n = 1};
  for (unsigned s = binds_from(reduce); s < reduce->nsrc; s++) {
    uint64_t m = mask_of(L, reduce->src[s]);
    if (!(m & L->expanded & L->vectors)) continue;
    t.axis[t.naxes++] = (unsigned)__builtin_ctzll(m), t.mask |= m;
    t.positions *= (unsigned)L->k->axes[t.axis[t.naxes - 1]].size;
  }
  while (2 * t.n * d->lanes <= L->k->target->vector_bytes && t.positions % (2 * t.n) == 0) t.n *= 2;
  return t;
}

static void set_position(struct lowerer *L, const struct together *t, unsigned position) {
  for (unsigned i = t->naxes; i-- > 0;) {
    unsigned size = (unsigned)L->k->axes[t->axis[i]].size;
    L->position[t->axis[i]] = (int)(position % size), position /= size;
  }
}

unsigned lower_find_dot(const struct lowerer *L, const struct uop *reduce, struct uop *const *order, size_t count) {
  struct dot d;
  if (L->k->target->kind != TARGET_HOST || !dot_of(reduce, &d)) return 0;
  if (!(mask_of(L, d.axis) & L->expanded & L->vectors) || (mask_of(L, reduce) & L->vectors)) return 0;
  return is_used_once(&d, order, count) ? d.lanes * together_of(L, reduce, &d).n / DOT_PRODUCTS : 0;
}

/* The product of the factors that change along the axes of `varying`, or of the other ones; NULL: there are none. */
static struct uop *factors_of(struct lowerer *L, const struct dot *d, uint64_t varying, bool changing) {
  struct uop *product = NULL;
  for (unsigned i = 0; i < d->nfactors && !L->b.failed; i++)
    if (!!(mask_of(L, d->factor[i]) & varying) == changing)
      product = lower_combine(L, OP_MUL, product, lower_eval(L, d->factor[i]));
  return product;
}

/* The product of the factors that change along `varying`, for each of `lanes` sums of the positions from `at` on. The
 * factors are computed as vectors along the innermost axis along which they change. */
static struct uop *factors_at(struct lowerer *L, const struct dot *d, const struct together *t, unsigned at,
                              uint64_t varying, unsigned lanes) {
  struct uop *lane[MAX_LANES], *v = NULL;
  uint64_t changing = 0;
  int axis = -1;
  for (unsigned i = 0; i < d->nfactors; i++) changing |= mask_of(L, d->factor[i]);
  for (unsigned i = 0; i < t->naxes; i++)
    if (changing >> t->axis[i] & 1) axis = (int)t->axis[i];
  for (unsigned i = 0; i < t->n; i++) {
    set_position(L, t, at + i);
    int own = axis >= 0 ? L->position[axis] : 0;
    if (axis >= 0) L->position[axis] = VEC;
    v = factors_of(L, d, varying, true);
    if (axis < 0 || !v || L->b.failed) break;
    struct uop *element = v->lanes > 1 ? lower_gep(L, v, (unsigned)own) : v;
    for (unsigned l = 0; l < lanes / t->n; l++) lane[i * lanes / t->n + l] = element;
  }
  set_position(L, t, at);
  return axis < 0 || !v || L->b.failed ? v : lower_vectorize(L, lane, lanes);
}

/* Bytes of the products at the positions from `at` on. */
static struct uop *bytes_of(struct lowerer *L, struct uop *byte, const struct together *t, unsigned at,
                            unsigned lanes) {
  struct uop *part[MAX_LANES];
  unsigned n = 0;
  do {
    set_position(L, t, at + n);
    part[n++] = lower_broadcast(L, lower_eval(L, byte), lanes);
  } while (n < t->n);
  set_position(L, t, at);
  if (t->n == 1 || L->b.failed) return part[0];
  return lower_mk(L, OP_VECTORIZE, part[0]->dtype, lanes * t->n, 0, 0, part, t->n);
}

/* The sums of four products, with the axis of the products as a vector. The instruction multiplies u8 and i8, so 128 is
 * added to another i8, and 128 times the other factor is subtracted. */
static struct uop *products(struct lowerer *L, const struct dot *d, const struct together *t, unsigned at) {
  unsigned n = d->lanes * t->n, sums = n / DOT_PRODUCTS;
  int axis = __builtin_ctzll(mask_of(L, d->axis));
  struct uop *src[3], *zero = lower_broadcast(L, build_int(&L->b, DT_I32, 0), sums);
  L->position[axis] = VEC;
  for (unsigned i = 0; i < 2; i++) src[i] = bytes_of(L, d->byte[i], t, at, d->lanes);
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

/* acc + factor * v; NULL: acc is 0, or factor is 1 */
static struct uop *add_multiple(struct lowerer *L, struct uop *factor, struct uop *v, struct uop *acc) {
  if (!factor || L->b.failed) return lower_combine(L, OP_ADD, acc, v);
  factor = lower_broadcast(L, factor, v->lanes);
  if (!acc) return lower_combine(L, OP_MUL, factor, v);
  return lower_mk(L, OP_MULACC, DT_F32, v->lanes, 0, 0, (struct uop *[]){factor, v, acc}, 3);
}

struct uop *lower_add_dots(struct lowerer *L, const struct uop *reduce, uint64_t unroll, struct uop *acc) {
  struct uop *sum[2] = {NULL};
  struct dot d;
  unsigned n = 0;
  if (!dot_of(reduce, &d)) {
    lower_fail(L, "a sum of products was lost");
    return acc;
  }
  struct together t = together_of(L, reduce, &d);
  lower_first_position(L, unroll);
  do
    for (unsigned at = 0; at < t.positions && !L->b.failed; at += t.n, n++) {
      struct uop *v = build_cast(&L->b, products(L, &d, &t, at), DT_F32);
      sum[n % 2] = add_multiple(L, factors_at(L, &d, &t, at, unroll, v->lanes), v, sum[n % 2]);
    }
  while (lower_next_position(L, unroll & ~t.mask) && !L->b.failed);
  if (L->b.failed || !sum[0]) return acc;
  if (sum[1]) sum[0] = lower_combine(L, OP_ADD, sum[0], sum[1]);
  return add_multiple(L, factors_of(L, &d, unroll, false), sum[0], acc);
}
