/* Stages: memory of a work-item (host) or a workgroup (GPU) that is filled with values before they are used.
 *
 * The fill stands in the innermost loop over which its values change, in front of everything that was put there later.
 * Work-items of a workgroup fill all stages of a place together; one barrier keeps the readers behind the fill, and one
 * the next fill behind them. */
#include "lower.h"
#include <stdlib.h>
#include <string.h>

enum { CACHE_LINE = 64, MOST_TOGETHER = 16 };

/* What is in a stage that sums before this round is added: nothing in the first of the rounds. */
static struct uop *so_far(struct lowerer *L, struct block *in, struct uop *u, struct uop *pointer, unsigned lanes) {
  uint64_t rounds = lower_bound_axes(L, u) & ~mask_of(L, u->src[1]);
  struct uop *first = NULL, *zero = lower_iconst(L, DT_I32, 0);
  for (uint64_t m = rounds; m; m &= m - 1) {
    struct uop *at = lower_to_dtype(L, L->axis_value[__builtin_ctzll(m)], DT_I32);
    struct uop *now = lower_mk(L, OP_CMPEQ, DT_BOOL, 1, 0, 0, (struct uop *[]){at, zero}, 2);
    first = first ? build_alu(&L->b, OP_AND, DT_BOOL, (struct uop *[]){first, now}, 2) : now;
  }
  struct uop *sum = lower_mk(L, OP_LOAD, u->dtype, lanes, 0, 0, (struct uop *[]){pointer, in->open}, 2);
  struct uop *src[3] = {lower_broadcast(L, first, lanes),
                        lower_broadcast(L, build(&L->b, uop_identity(L->b.g, u->aux, u->dtype)), lanes), sum};
  return lower_mk(L, OP_WHERE, u->dtype, lanes, 0, 0, src, 3);
}

/* The vector of lanes of a and b: lane l is lane pick[l] of a, or of b behind a's. */
static struct uop *shuffle(struct lowerer *L, struct uop *a, struct uop *b, const unsigned *pick) {
  struct uop *lane[MAX_LANES];
  unsigned n = a->lanes;
  for (unsigned l = 0; l < n; l++) lane[l] = lower_mk(L, OP_GEP, a->dtype, 1, pick[l] % n, 0, pick[l] < n ? &a : &b, 1);
  return lower_mk(L, OP_VECTORIZE, a->dtype, n, 0, 0, lane, n);
}

/* Transposes n vectors of n: blocks of four change places, then the elements of each block of 4 x 4, which are
 * neighbours in the machine's registers. */
static void transpose(struct lowerer *L, struct uop **v, unsigned n) {
  unsigned low[MAX_LANES] = {0}, high[MAX_LANES] = {0};
  for (unsigned half = n / 2; half >= 4; half /= 2) {
    for (unsigned l = 0; l < n; l++) low[l] = l & half ? n + l - half : l, high[l] = l & half ? n + l : l + half;
    for (unsigned i = 0; i < n; i++) {
      if (i & half) continue;
      struct uop *a = v[i], *b = v[i + half];
      v[i] = shuffle(L, a, b, low), v[i + half] = shuffle(L, a, b, high);
    }
  }
  unsigned even[MAX_LANES] = {0}, odd[MAX_LANES] = {0};
  for (unsigned l = 0; l < n; l++) {
    unsigned block = l & ~3u, at = l & 3;
    low[l] = block + at / 2 + (at & 1 ? n : 0), high[l] = low[l] + 2; /* a0 b0 a1 b1, a2 b2 a3 b3 */
    even[l] = block + (at & 1) + (at & 2 ? n : 0), odd[l] = even[l] + 2;
  }
  for (unsigned i = 0; i < n; i += 4) {
    struct uop *x[4] = {shuffle(L, v[i], v[i + 1], low), shuffle(L, v[i], v[i + 1], high),
                        shuffle(L, v[i + 2], v[i + 3], low), shuffle(L, v[i + 2], v[i + 3], high)};
    for (unsigned j = 0; j < 4; j++) v[i + j] = shuffle(L, x[j / 2], x[2 + j / 2], j & 1 ? odd : even);
  }
}

/* Writes what is contiguous along the row axis, and was loaded as vectors along another one, a square at a time. */
static struct uop *fill_squares(struct lowerer *L, struct block *in, struct uop *u, struct uop *memory, uint64_t mask,
                                unsigned lane, unsigned row, bool write) {
  unsigned n = (unsigned)L->k->axes[lane].size;
  struct uop *last = NULL, *v[MAX_LANES];
  uint64_t square = UINT64_C(1) << lane | UINT64_C(1) << row;
  lower_first_position(L, mask);
  do {
    L->position[lane] = VEC;
    for (unsigned i = 0; i < n; i++) {
      L->position[row] = (int)i;
      v[i] = lower_broadcast(L, lower_eval_as(L, u->src[0], u->dtype), n);
    }
    if (L->b.failed) return NULL;
    if (write) transpose(L, v, n);
    L->position[row] = 0;
    for (unsigned i = 0; write && i < n; i++) {
      L->position[lane] = (int)i;
      struct uop *at = lower_eval_index(L, u->src[1]);
      struct uop *pointer = lower_mk(L, OP_INDEX, u->dtype, 1, 0, 0, (struct uop *[]){memory, at}, 2);
      struct block *here = deeper(deeper(in, lower_block_of(L, pointer)), lower_block_of(L, v[i]));
      last = lower_mk_in(L, here, OP_STORE, DT_VOID, (struct uop *[]){pointer, v[i]}, 2);
    }
    L->position[lane] = 0;
  } while (lower_next_position(L, mask & ~square) && !L->b.failed);
  return last;
}

/* Writes what is contiguous along the row axis, which has two, and was loaded as vectors along another one. */
static struct uop *fill_pairs(struct lowerer *L, struct block *in, struct uop *u, struct uop *memory, uint64_t mask,
                              unsigned lane, unsigned row, bool write) {
  unsigned n = (unsigned)L->k->axes[lane].size, zip[2][MAX_LANES] = {{0}};
  struct uop *last = NULL, *v[2];
  uint64_t both = UINT64_C(1) << lane | UINT64_C(1) << row;
  for (unsigned l = 0; l < 2 * n; l++) zip[l / n][l % n] = l / 2 + l % 2 * n;
  lower_first_position(L, mask);
  do {
    L->position[lane] = VEC;
    for (unsigned i = 0; i < 2; i++) {
      L->position[row] = (int)i;
      v[i] = lower_broadcast(L, lower_eval_as(L, u->src[0], u->dtype), n);
    }
    if (L->b.failed) return NULL;
    L->position[row] = 0;
    for (unsigned half = 0; write && half < 2; half++) {
      L->position[lane] = (int)(half * n / 2);
      struct uop *x = shuffle(L, v[0], v[1], zip[half]), *at = lower_eval_index(L, u->src[1]);
      struct uop *pointer = lower_mk(L, OP_INDEX, u->dtype, 1, 0, 0, (struct uop *[]){memory, at}, 2);
      struct block *here = deeper(deeper(in, lower_block_of(L, pointer)), lower_block_of(L, x));
      last = lower_mk_in(L, here, OP_STORE, DT_VOID, (struct uop *[]){pointer, x}, 2);
    }
    L->position[lane] = 0;
  } while (lower_next_position(L, mask & ~both) && !L->b.failed);
  return last;
}

/* Computes the value at every position of the expanded axes, or writes it there: all values are computed first, so that
 * their loads are in flight together. The last STORE. */
static struct uop *fill(struct lowerer *L, struct block *in, struct uop *u, struct uop *memory, bool write) {
  uint64_t mask = lower_bound_axes(L, u) & L->expanded, vec = lowest(mask & L->vectors);
  unsigned lanes = vec ? (unsigned)L->k->axes[__builtin_ctzll(vec)].size : 1;
  struct affine a;
  affine_of(u->src[1], &a);
  bool whole = vec && affine_coef(&a, L->k->axes[__builtin_ctzll(vec)].range) == 1;
  for (uint64_t m = mask & ~L->vectors; vec && !whole && !u->aux && m; m &= m - 1) {
    const struct axis *row = &L->k->axes[__builtin_ctzll(m)];
    int64_t along = affine_coef(&a, L->k->axes[__builtin_ctzll(vec)].range);
    if (affine_coef(&a, row->range) == 1 && row->size == 2 && along == 2 && !(lanes & (lanes - 1)))
      return fill_pairs(L, in, u, memory, mask, (unsigned)__builtin_ctzll(vec), (unsigned)__builtin_ctzll(m), write);
    if (affine_coef(&a, row->range) == 1 && row->size == lanes && lanes >= 4 && !(lanes & (lanes - 1)))
      return fill_squares(L, in, u, memory, mask, (unsigned)__builtin_ctzll(vec), (unsigned)__builtin_ctzll(m), write);
  }
  struct uop *last = NULL;
  lower_first_position(L, mask);
  do {
    if (vec) L->position[__builtin_ctzll(vec)] = VEC;
    struct uop *v = lower_broadcast(L, lower_eval_as(L, u->src[0], u->dtype), lanes);
    if (L->b.failed) return NULL;
    for (unsigned l = 0; write && l < (whole ? 1 : lanes); l++) {
      if (vec) L->position[__builtin_ctzll(vec)] = (int)l;
      struct uop *x = whole ? v : lower_gep(L, v, l), *at = lower_eval_index(L, u->src[1]);
      struct uop *pointer = lower_mk(L, OP_INDEX, u->dtype, 1, 0, 0, (struct uop *[]){memory, at}, 2);
      if (u->aux) x = lower_combine(L, u->aux, so_far(L, in, u, pointer, x->lanes), x);
      struct block *here = deeper(deeper(in, lower_block_of(L, pointer)), lower_block_of(L, x));
      last = lower_mk_in(L, here, OP_STORE, DT_VOID, (struct uop *[]){pointer, x}, 2);
    }
    if (vec) L->position[__builtin_ctzll(vec)] = 0;
  } while (lower_next_position(L, mask & ~vec) && !L->b.failed);
  return last;
}

/* Where the stage is filled: in the innermost loop over which its values change. NULL: one is not open. */
static struct block *place_of(struct lowerer *L, const struct uop *u) {
  uint64_t outer = mask_of(L, u);
  for (uint64_t m = outer; m; m &= m - 1)
    if (!L->axis_value[__builtin_ctzll(m)]) return NULL;
  return lower_block_over(L, outer);
}

static bool has_loops(const struct lowerer *L, const struct uop *u) {
  for (unsigned s = binds_from(u); s < u->nsrc; s++) {
    uint64_t axis = mask_of(L, u->src[s]);
    if (!(axis & L->expanded) && L->k->axes[__builtin_ctzll(axis)].kind != AXIS_ITEM) return true;
  }
  return false;
}

/* The stages that are filled together with u: those of a workgroup that stand in one place, and those that sum over the
 * same ranges, in the same loops, so that they share what they load. Others with loops of their own are filled alone,
 * and so are others on the host, where nothing waits. */
static unsigned find_together(struct lowerer *L, struct uop *u, struct uop **out) {
  unsigned n = 0;
  size_t count = 0;
  out[n++] = u;
  if (u->aux) {
    uint64_t own = lower_bound_axes(L, u);
    struct uop *ast = L->k->ast, **order = uop_toposort(&ast, 1, &count);
    for (size_t i = 0; order && i < count && n < MOST_TOGETHER; i++)
      if (order[i]->op == OP_STAGE && order[i]->aux && order[i] != u && lower_bound_axes(L, order[i]) == own &&
          mask_of(L, order[i]) == mask_of(L, u))
        out[n++] = order[i];
    free(order);
    return n;
  }
  if (L->k->target->kind == TARGET_HOST || has_loops(L, u)) return n;
  struct block *place = place_of(L, u);
  struct uop *ast = L->k->ast, **order = uop_toposort(&ast, 1, &count);
  for (size_t i = 0; order && i < count && n < MOST_TOGETHER; i++)
    if (order[i]->op == OP_STAGE && order[i] != u && place_of(L, order[i]) == place && !has_loops(L, order[i]) &&
        !lower_memo_at(L, order[i], 0)->key)
      out[n++] = order[i];
  free(order);
  return n;
}

static struct uop *memory_of(struct lowerer *L, const struct uop *u) {
  struct codegen *k = L->k;
  struct uop *size = lower_iconst(L, DT_INDEX, u->arg.i);
  uint64_t bytes = (uint64_t)u->arg.i * dtype_info[u->dtype].size;
  k->local_bytes += (uint32_t)((bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
  if (k->local_bytes > k->target->local_bytes) lower_fail(L, "the stages need more local memory than there is");
  return lower_mk(L, OP_LOCAL, u->dtype, 1, L->next_local++, 0, &size, 1);
}

/* Fills n stages over the same ranges, in loops of their own where those are no ids. The last STORE, or
 * the end of the loops. */
static struct uop *fill_all(struct lowerer *L, struct block *in, struct uop *const *stage, struct uop *const *memory,
                            unsigned n, bool write) {
  struct block *opened[MAX_AXES];
  struct uop *last = NULL;
  unsigned nloops = 0;
  for (unsigned s = binds_from(stage[0]); s < stage[0]->nsrc; s++) {
    uint64_t axis = mask_of(L, stage[0]->src[s]);
    unsigned a = (unsigned)__builtin_ctzll(axis);
    if (L->k->axes[a].kind == AXIS_ITEM)
      L->axis_value[a] = L->item;
    else if (!(axis & L->expanded))
      opened[nloops++] = in = lower_loop_open(L, in, a, AXIS_SERIAL);
  }
  for (unsigned i = 0; i < n && nloops && !L->b.failed; i++) fill(L, in, stage[i], memory[i], false);
  for (unsigned i = 0; i < n && !L->b.failed; i++) last = fill(L, in, stage[i], memory[i], write);
  while (nloops > 0 && !L->b.failed) last = lower_block_close(L, opened[--nloops], &last, 1);
  for (unsigned s = binds_from(stage[0]); s < stage[0]->nsrc; s++)
    L->axis_value[__builtin_ctzll(mask_of(L, stage[0]->src[s]))] = NULL;
  return last;
}

struct uop *lower_eval_stage(struct lowerer *L, struct uop *u) {
  struct codegen *k = L->k;
  struct memo *m = lower_memo_at(L, u, 0);
  if (m->key) return m->value;
  bool shared = k->target->kind != TARGET_HOST;
  struct block *outside = place_of(L, u);
  if (!outside || (mask_of(L, u) & L->expanded)) {
    lower_fail(L, "a stage changes along an unrolled axis");
    return u;
  }
  int saved[MAX_AXES];
  memcpy(saved, L->position, sizeof saved);
  struct uop *stage[MOST_TOGETHER], *memory[MOST_TOGETHER], *last[MOST_TOGETHER] = {0};
  unsigned n = find_together(L, u, stage);
  for (unsigned i = 0; i < n; i++) memory[i] = memory_of(L, stage[i]);
  if (shared && outside != L->root) /* the last round's readers come first */
    lower_mk_in(L, outside, OP_BARRIER, DT_VOID, memory, n);
  unsigned step = u->aux ? n : 1;
  for (unsigned pass = 0; pass < 2; pass++)
    for (unsigned i = 0; i < n && !L->b.failed; i += step)
      if (pass || !has_loops(L, stage[i])) last[i] = fill_all(L, outside, stage + i, memory + i, step, pass);
  memcpy(L->position, saved, sizeof saved);
  if (L->b.failed) return u;
  struct uop *ready = shared ? lower_mk_in(L, outside, OP_BARRIER, DT_VOID, last, n) : last[0];
  for (unsigned i = 0; i < n; i++) {
    struct uop *filled = lower_mk_in(L, outside, OP_AFTER, stage[i]->dtype, (struct uop *[]){memory[i], ready}, 2);
    lower_memo_put(L, stage[i], 0, filled);
  }
  return lower_memo_at(L, u, 0)->value;
}
