/* Stages: memory of a work-item (host) or a workgroup (GPU) that is filled with values before they are used.
 *
 * A stage is filled in the innermost loop over which its values change, before everything that is placed there later.
 * The work-items of a workgroup fill all stages of a block together. One barrier orders the stores of the fill before
 * the loads that read the stage. Another one orders these loads before the stores of the next fill. */
#include "lower.h"
#include <stdlib.h>
#include <string.h>

/* The sum in an accumulating stage before the current round: the identity element in the first round. */
static struct uop *sum_before_round(struct lowerer *L, struct block *in, struct uop *u, struct uop *pointer,
                                    unsigned lanes) {
  uint64_t rounds = lower_bound_axes(L, u) & ~mask_of(L, u->src[1]);
  struct uop *first = NULL, *zero = lower_iconst(L, DT_I32, 0);
  for (uint64_t m = rounds; m; m &= m - 1) {
    struct uop *at = lower_to_dtype(L, L->axis_value[__builtin_ctzll(m)], DT_I32);
    struct uop *now = lower_mk(L, OP_CMPEQ, DT_BOOL, 1, 0, 0, (struct uop *[]){at, zero}, 2);
    first = first ? build_alu(&L->b, OP_AND, DT_BOOL, (struct uop *[]){first, now}, 2) : now;
  }
  struct uop *sum = lower_mk(L, OP_LOAD, u->dtype, lanes, 0, 0, (struct uop *[]){pointer, in->open}, 2);
  struct uop *src[3] = {lower_broadcast(L, first, lanes),
                        lower_broadcast(L, build_node(&L->b, uop_identity(L->b.g, u->aux, u->dtype)), lanes), sum};
  return lower_mk(L, OP_WHERE, u->dtype, lanes, 0, 0, src, 3);
}

/* A vector of lanes of a and b: lane l is lane pick[l] of a followed by b. */
static struct uop *shuffle(struct lowerer *L, struct uop *a, struct uop *b, const unsigned *pick) {
  struct uop *lane[MAX_LANES];
  unsigned n = a->lanes;
  for (unsigned l = 0; l < n; l++) lane[l] = lower_mk(L, OP_GEP, a->dtype, 1, pick[l] % n, 0, pick[l] < n ? &a : &b, 1);
  return lower_mk(L, OP_VECTORIZE, a->dtype, n, 0, 0, lane, n);
}

/* Transposes n vectors of n lanes: exchanges blocks of four lanes, then transposes each block of 4 x 4, whose rows are
 * aligned parts of registers. */
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

/* Where the elements of a stage are written: at `offset` after their index. If write is not set, the values are
 * computed but not stored yet. kept: NULL, or registers, one for each vector of elements: if write is set the values
 * are in them, otherwise they are stored there. */
struct place {
  struct block *in;
  struct uop *memory, *offset;
  bool write;
  struct uop **kept;
};

static struct uop *element_index(struct lowerer *L, struct uop *u, const struct place *to, struct uop *valid) {
  struct uop *at = lower_add_offset(L, lower_eval_index(L, u->src[1]), to->offset);
  struct uop *src[3] = {to->memory, at, valid};
  return lower_mk(L, OP_INDEX, u->dtype, 1, 0, 0, src, valid ? 3 : 2);
}

/* Fills a stage that is contiguous along the row axis with values that are loaded as vectors along another axis, one
 * square at a time. If the lanes are more than the rows, several of them are transposed together, as a word. */
static struct uop *fill_squares(struct lowerer *L, struct uop *u, const struct place *to, uint64_t mask, unsigned lane,
                                unsigned row) {
  unsigned elements = (unsigned)L->k->axes[lane].size, n = (unsigned)L->k->axes[row].size, per = elements / n;
  struct uop *last = NULL, *v[MAX_LANES];
  uint64_t square = UINT64_C(1) << lane | UINT64_C(1) << row;
  lower_first_position(L, mask);
  do {
    L->position[lane] = VEC;
    for (unsigned i = 0; i < n; i++) {
      L->position[row] = (int)i;
      v[i] = lower_broadcast(L, lower_eval_as(L, u->src[0], u->dtype), elements);
      if (L->b.failed) return NULL;
      if (to->write && per > 1) v[i] = lower_mk(L, OP_BITCAST, DT_U32, n, 0, 0, &v[i], 1);
    }
    if (to->write) transpose(L, v, n);
    L->position[row] = 0;
    for (unsigned i = 0; to->write && i < n; i++) {
      L->position[lane] = (int)(i * per);
      struct uop *x = v[i], *pointer = element_index(L, u, to, NULL);
      if (per > 1) x = lower_mk(L, OP_BITCAST, u->dtype, elements, 0, 0, &x, 1);
      struct block *here = deeper(deeper(to->in, lower_block_of(L, pointer)), lower_block_of(L, x));
      last = lower_mk_in(L, here, OP_STORE, DT_VOID, (struct uop *[]){pointer, x}, 2);
    }
    L->position[lane] = 0;
  } while (lower_next_position(L, mask & ~square) && !L->b.failed);
  return last;
}

/* The same for a row axis of size 2: pairs are interleaved. */
static struct uop *fill_pairs(struct lowerer *L, struct uop *u, const struct place *to, uint64_t mask, unsigned lane,
                              unsigned row) {
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
    for (unsigned half = 0; to->write && half < 2; half++) {
      L->position[lane] = (int)(half * n / 2);
      struct uop *x = shuffle(L, v[0], v[1], zip[half]), *pointer = element_index(L, u, to, NULL);
      struct block *here = deeper(deeper(to->in, lower_block_of(L, pointer)), lower_block_of(L, x));
      last = lower_mk_in(L, here, OP_STORE, DT_VOID, (struct uop *[]){pointer, x}, 2);
    }
    L->position[lane] = 0;
  } while (lower_next_position(L, mask & ~both) && !L->b.failed);
  return last;
}

/* Whether the position in a stage has the elements of words along the range apart. */
static bool has_words(const struct affine *at, const struct uop *range) {
  bool found = false;
  for (unsigned i = 0; i < at->n; i++) found = found || (at->term[i]->op == OP_MOD && at->term[i]->src[0] == range);
  return found;
}

/* Computes the value at every position of the expanded axes, or stores it there. All values are computed first, so
 * their loads are in flight together. Returns the last STORE. */
static struct uop *fill_stage(struct lowerer *L, struct uop *u, const struct place *to) {
  uint64_t mask = lower_bound_axes(L, u) & L->expanded, vec = lowest(mask & L->vectors);
  unsigned lanes = vec ? (unsigned)L->k->axes[__builtin_ctzll(vec)].size : 1;
  struct affine a;
  affine_of(u->src[1], &a);
  bool whole = vec && affine_coef(&a, L->k->axes[__builtin_ctzll(vec)].range) == 1;
  for (uint64_t m = mask & ~L->vectors; vec && !whole && !u->aux && m; m &= m - 1) {
    const struct axis *row = &L->k->axes[__builtin_ctzll(m)];
    if (has_words(&a, L->k->axes[__builtin_ctzll(vec)].range))
      return fill_squares(L, u, to, mask, (unsigned)__builtin_ctzll(vec), (unsigned)__builtin_ctzll(m));
    int64_t along = affine_coef(&a, L->k->axes[__builtin_ctzll(vec)].range);
    if (affine_coef(&a, row->range) == 1 && row->size == 2 && along == 2 && !(lanes & (lanes - 1)))
      return fill_pairs(L, u, to, mask, (unsigned)__builtin_ctzll(vec), (unsigned)__builtin_ctzll(m));
    if (affine_coef(&a, row->range) == 1 && row->size == lanes && lanes >= 4 && !(lanes & (lanes - 1)))
      return fill_squares(L, u, to, mask, (unsigned)__builtin_ctzll(vec), (unsigned)__builtin_ctzll(m));
  }
  struct uop *last = NULL, **kept = to->kept;
  lower_first_position(L, mask);
  do {
    if (vec) L->position[__builtin_ctzll(vec)] = VEC;
    struct uop *v = kept && to->write ? *kept++ : lower_broadcast(L, lower_eval_as(L, u->src[0], u->dtype), lanes);
    if (L->b.failed) return NULL;
    if (kept && !to->write)
      last = lower_mk_in(L, deeper(to->in, lower_block_of(L, v)), OP_STORE, DT_VOID, (struct uop *[]){*kept++, v}, 2);
    for (unsigned l = 0; to->write && l < (whole ? 1 : lanes); l++) {
      if (vec) L->position[__builtin_ctzll(vec)] = (int)l;
      struct uop *x = whole ? v : lower_gep(L, v, l), *pointer = element_index(L, u, to, NULL);
      if (u->aux) x = lower_combine(L, u->aux, sum_before_round(L, to->in, u, pointer, x->lanes), x);
      struct block *here = deeper(deeper(to->in, lower_block_of(L, pointer)), lower_block_of(L, x));
      last = lower_mk_in(L, here, OP_STORE, DT_VOID, (struct uop *[]){pointer, x}, 2);
    }
    if (vec) L->position[__builtin_ctzll(vec)] = 0;
  } while (lower_next_position(L, mask & ~vec) && !L->b.failed);
  return last;
}

uint64_t lower_stage_axes(const struct lowerer *L, const struct uop *u) {
  uint64_t axes = mask_of(L, u);
  for (uint64_t m = axes & L->expanded; m; m &= m - 1)
    if (L->k->axes[__builtin_ctzll(m)].size == 1) axes &= ~lowest(m);
  return axes;
}

/* The block in which the stage is filled: the innermost loop over which its values change. NULL if one of its loops is
 * not open. */
static struct block *fill_block(struct lowerer *L, const struct uop *u) {
  uint64_t outer = lower_stage_axes(L, u);
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

/* Finds the stages that are filled together with u. On GPUs these are the stages of the same block, so they share
 * barriers. Accumulating stages over the same ranges are filled in the same loops, so they share loads. Other stages
 * with their own loops, and other stages on the host, where there are no barriers, are filled alone. Returns the number
 * of stages. */
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
  struct block *place = fill_block(L, u);
  struct uop *ast = L->k->ast, **order = uop_toposort(&ast, 1, &count);
  for (size_t i = 0; order && i < count && n < MOST_TOGETHER; i++)
    if (order[i]->op == OP_STAGE && order[i] != u && fill_block(L, order[i]) == place && !has_loops(L, order[i]) &&
        !lower_memo_at(L, order[i], 0)->key)
      out[n++] = order[i];
  free(order);
  return n;
}

struct uop *lower_stage_memory(struct lowerer *L, const struct uop *u, int64_t buffers) {
  struct codegen *k = L->k;
  struct uop *size = lower_iconst(L, DT_INDEX, u->arg.i * buffers);
  uint64_t bytes = (uint64_t)(u->arg.i * buffers) * dtype_info[u->dtype].size;
  k->local_bytes += (uint32_t)((bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES);
  if (k->local_bytes > local_room(k)) lower_fail(L, "the stages need more local memory than the target has");
  bool tiles = k->tile[0].descriptor ||
               k->tile[1].descriptor; /* the layout of a tile's rows depends on bits of their addresses */
  return lower_mk(L, OP_LOCAL, u->dtype, 1, L->next_local++, tiles ? TILE_ALIGN_BITS : 0, &size, 1);
}

/* Fills a stage that keeps values of a padded row in two versions: without conditions, and at the edge with them.
 * Returns the end of the last one, or NULL, and fills nothing, if there is no such axis. */
static struct uop *fill_versions(struct lowerer *L, struct uop *u, const struct place *to) {
  struct uop *value = u->src[0], *whole, *before[MAX_AXES], *last = NULL, *src[MAX_AXES + 2];
  uint64_t own = lower_bound_axes(L, u);
  struct edge e;
  if (!plan_has(&L->k->plan, STEP_KEEP) || u->aux || !to->write || to->kept || u->nsrc > MAX_AXES + 2) return NULL;
  if (!edge_of_rounds(L, own, &value, 1, &e, &whole)) return NULL;
  struct uop *inside = edge_inside(L, &e);
  if (!inside) return NULL;
  memcpy(before, L->axis_value, sizeof before);
  memcpy(src, u->src, u->nsrc * sizeof *src);
  for (unsigned version = 0; version < 2 && !L->b.failed; version++) {
    struct place at = *to;
    at.in = edge_open(L, to->in, inside, version, own & ~L->expanded, before);
    src[0] = version ? value : whole;
    fill_stage(L, uop_with_src(L->g, u, src), &at);
    if (!L->b.failed) last = lower_block_close(L, at.in, NULL, 0);
  }
  edge_forget(L, own & ~L->expanded);
  memcpy(L->axis_value, before, sizeof before);
  return last;
}

/* Fills n stages over the same ranges, in loops over those ranges that are not ids. Returns the last STORE, or the end
 * of the loops. */
static struct uop *fill_stages(struct lowerer *L, struct uop *const *stage, const struct place *to, unsigned n) {
  struct place at[MOST_TOGETHER];
  struct block *in = to->in;
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
  for (unsigned i = 0; i < n; i++) at[i] = to[i], at[i].in = in;
  bool versions = n == 1 && nloops && (last = fill_versions(L, stage[0], &at[0]));
  for (unsigned pass = nloops ? 0 : 1; pass < 2 && !versions; pass++)
    for (unsigned i = 0; i < n && !L->b.failed; i++) {
      at[i].write = pass && to[i].write;
      last = fill_stage(L, stage[i], &at[i]);
    }
  while (nloops > 0 && !L->b.failed) last = lower_block_close(L, opened[--nloops], &last, 1);
  for (unsigned s = binds_from(stage[0]); s < stage[0]->nsrc; s++)
    L->axis_value[__builtin_ctzll(mask_of(L, stage[0]->src[s]))] = NULL;
  return last;
}

/* ---- pipelines ------------------------------------------------------------------------------------------------- */

/* Whether FETCH can copy the stage's value: 4, 8 or 16 bytes, aligned and contiguous on both sides. Sets *along to the
 * axis of the elements that one FETCH copies, VEC if that is one element. Returns false if the value is computed or has
 * another layout. */
static bool can_fetch(struct lowerer *L, const struct uop *u, int *along) {
  const struct uop *load = u->src[0], *index = load->op == OP_LOAD ? load->src[0] : NULL;
  if (!L->k->target->has_fetch || !index || index->op != OP_INDEX || index->src[0]->op != OP_PARAM || u->aux)
    return false;
  if (has_loops(L, u) || (load->nsrc > 1 && !is_zero(load->src[1]))) return false;
  uint64_t vec = lowest(lower_bound_axes(L, u) & L->vectors);
  unsigned size = dtype_info[u->dtype].size, lanes = vec ? (unsigned)L->k->axes[__builtin_ctzll(vec)].size : 1;
  struct affine from, to;
  affine_of(index->src[1], &from);
  affine_of(u->src[1], &to);
  *along = vec ? __builtin_ctzll(vec) : VEC;
  if (size * lanes != 4 && size * lanes != 8 && size * lanes != 16) return false;
  if (!vec) return true;
  struct uop *range = L->k->axes[*along].range;
  if (lower_contiguous_axis(L, load->src[0], false) != *along || affine_coef(&to, range) != 1) return false;
  for (unsigned i = 0; i < from.n; i++)
    if (from.term[i] != range && from.coef[i] % lanes) return false;
  return from.constant % lanes == 0;
}

bool lower_fetches_ahead(struct lowerer *L, unsigned axis) {
  size_t count;
  struct uop *ast = L->k->ast, **order = uop_toposort(&ast, 1, &count);
  bool found = false, ok = order && L->k->axes[axis].buffers;
  for (size_t i = 0; ok && i < count; i++) {
    int along;
    if (order[i]->op != OP_STAGE || !(mask_of(L, order[i]) >> axis & 1)) continue;
    bool inner = false; /* it is filled in a loop of the phase, not ahead of the rounds */
    for (uint64_t m = lower_stage_axes(L, order[i]); m; m &= m - 1) {
      enum axis_kind kind = L->k->axes[__builtin_ctzll(m)].kind;
      inner = inner || kind == AXIS_REDUCE || kind == AXIS_SERIAL;
    }
    if (inner) continue;
    found = true, ok = can_fetch(L, order[i], &along);
  }
  free(order);
  return found && ok;
}

/* The axis ahead of whose rounds the stages of the block are copied, or -1. Ahead of the
 * rounds of phases, only FETCHes are made. */
static int pipelined_axis(struct lowerer *L, const struct block *place) {
  for (unsigned a = 0; a < L->k->naxes; a++) {
    bool open = L->k->axes[a].buffers && place->open && L->axis_value[a] == place->open;
    if (open && (L->k->axes[a].kind != AXIS_GLOBAL || lower_fetches_ahead(L, a))) return (int)a;
  }
  return -1;
}

/* Fetches the stage's elements, or only computes their addresses. Where `valid` does not hold, nothing is fetched.
 * Returns the last FETCH. */
static struct uop *fetch_stage(struct lowerer *L, struct uop *u, const struct place *to, int along, struct uop *valid) {
  uint64_t mask = lower_bound_axes(L, u) & L->expanded;
  struct uop *load = u->src[0], *last = NULL;
  if (along >= 0) mask &= ~(UINT64_C(1) << along), L->position[along] = 0;
  for (unsigned s = binds_from(u); s < u->nsrc; s++) {
    unsigned a = (unsigned)__builtin_ctzll(mask_of(L, u->src[s]));
    if (L->k->axes[a].kind == AXIS_ITEM) L->axis_value[a] = L->item;
  }
  lower_first_position(L, mask);
  int64_t lanes = along >= 0 ? L->k->axes[along].size : 1;
  do {
    struct uop *src[2] = {element_index(L, u, to, valid), lower_pointer(L, load->src[0])};
    if (L->b.failed) return NULL;
    if (!to->write) continue;
    last = uop_new(L->g, OP_FETCH, DT_VOID, 1, (union uop_arg){.i = lanes}, 0, src, 2);
    lower_place(L, deeper(deeper(to->in, lower_block_of(L, src[0])), lower_block_of(L, src[1])), last);
  } while (lower_next_position(L, mask) && !L->b.failed);
  for (unsigned s = binds_from(u); s < u->nsrc; s++) L->axis_value[__builtin_ctzll(mask_of(L, u->src[s]))] = NULL;
  return last;
}

static struct uop *add_wait(struct lowerer *L, struct block *in, bool close, int64_t groups, struct uop *after) {
  struct uop *u = uop_new(L->g, OP_WAIT, DT_VOID, 1, (union uop_arg){.i = groups}, close, &after, 1);
  lower_place(L, in, u);
  return u;
}

/* ---- copies ----------------------------------------------------------------------------------------------------- */

/* The round that is copied. fetched, computed: the value of the axis for FETCHes and for computed values. valid:
 * without it nothing is fetched. */
struct round {
  int axis; /* -1: the stages are not pipelined */
  struct uop *fetched, *computed, *valid, *buffer;
};

/* Copies stages in block `in`. pass 0: only what can be in flight during the round: FETCHes, and the loads of computed
 * values; pass 1: the rest; pass 2: both. kept: NULL, or for each stage NULL or registers: pass 2 stores the stage's
 * values there, and pass 1 copies only these stages. Returns the last STORE or FETCH, and sets *fetches if it made a
 * FETCH. */
static struct uop *copy_stages(struct lowerer *L, struct block *in, struct uop *const *stage, struct uop *const *memory,
                               unsigned n, const struct round *r, unsigned pass, struct uop **const *kept,
                               bool *fetches) {
  struct uop *last = NULL;
  for (unsigned half = 0; half < 2; half++) /* computes all addresses first, so adjacent FETCHes share one condition */
    for (unsigned i = 0; i < n && !L->b.failed; i++) {
      int along;
      bool fetched = can_fetch(L, stage[i], &along), keeps = kept && kept[i];
      struct place to = {in, memory[i], NULL, half, keeps ? kept[i] : NULL};
      if (kept && !keeps && pass == 1) continue;
      if (r->buffer) to.offset = lower_index_op(L, OP_MUL, r->buffer, lower_iconst(L, DT_I32, stage[i]->arg.i));
      if (r->axis >= 0) L->axis_value[r->axis] = fetched ? r->fetched : r->computed;
      struct uop *made = NULL;
      if (fetched && pass != 1)
        made = fetch_stage(L, stage[i], &to, along, r->valid);
      else if (!fetched && (keeps ? half == pass % 2 : pass == 2 || pass == half) && (half || !has_loops(L, stage[i])))
        made = fill_stages(L, &stage[i], &to, 1);
      if (half && made) last = made;
      *fetches = *fetches || (half && made && fetched);
    }
  return last;
}

/* Makes a register for each vector of elements of a stage that is not fetched. Returns false if there are too many. */
static bool make_kept(struct lowerer *L, const struct uop *u, struct uop **kept) {
  uint64_t mask = lower_bound_axes(L, u) & L->expanded, vec = lowest(mask & L->vectors);
  unsigned lanes = vec ? (unsigned)L->k->axes[__builtin_ctzll(vec)].size : 1;
  int64_t count = 1;
  for (uint64_t m = mask & ~vec; m; m &= m - 1) count *= L->k->axes[__builtin_ctzll(m)].size;
  if (count > MAX_ROUNDS || has_loops(L, u)) return false;
  struct uop *one = lower_iconst(L, DT_INDEX, 1), *zero = lower_iconst(L, DT_I32, 0);
  for (int64_t i = 0; i < count; i++) {
    struct uop *reg = lower_mk(L, OP_REG, u->dtype, lanes, L->next_reg++, 0, &one, 1);
    kept[i] = lower_mk(L, OP_INDEX, u->dtype, lanes, 0, 0, (struct uop *[]){reg, zero}, 2);
  }
  if (count < MAX_ROUNDS) kept[count] = NULL;
  return true;
}

/* Like copy_stages with pass 2. Where conditions are the same for all elements, or concern only results that are not
 * stored, makes versions with fewer checks (copies.c). kept: NULL, or arrays of MAX_ROUNDS nodes for the stages'
 * values, which are then not stored yet; the first one stays NULL for a stage that is copied. */
static struct uop *copy_versions(struct lowerer *L, struct block *in, struct uop *const *stage,
                                 struct uop *const *memory, unsigned n, const struct round *r,
                                 struct uop *(*kept)[MAX_ROUNDS], bool *fetches) {
  struct uop *item = L->item, *last = NULL, **registers[MOST_TOGETHER];
  struct copy_version version[COPY_VERSIONS];
  struct memo *memo = L->memo;
  size_t cap = L->memo_cap, used = L->memo_n;
  bool loops = false;
  int along;
  if (r->axis >= 0) L->axis_value[r->axis] = r->computed;
  for (unsigned i = 0; i < n; i++) loops = loops || has_loops(L, stage[i]);
  unsigned versions = loops ? 0 : lower_copy_versions(L, stage, n, version);
  if (!versions) return copy_stages(L, in, stage, memory, n, r, 2, NULL, fetches);
  if (!version[0].when) return copy_stages(L, in, version[0].stage, memory, n, r, 2, NULL, fetches);
  for (unsigned i = 0; i < n; i++) {
    bool fetched = can_fetch(L, version[0].stage[i], &along);
    registers[i] = kept && !fetched && make_kept(L, stage[i], kept[i]) ? kept[i] : NULL;
  }
  for (unsigned v = 0; v < versions && !L->b.failed; v++) {
    struct block *b = lower_if_open(L, in, version[v].when);
    /* nodes that depend on the work-item are placed in this version */
    L->item = lower_mk_in(L, b, OP_AFTER, item->dtype, (struct uop *[]){item, b->open}, 2);
    L->memo_cap = 1024, L->memo_n = 0, L->memo = calloc(L->memo_cap, sizeof *L->memo);
    if (!L->memo) lower_fail(L, "out of memory");
    if (!L->b.failed) copy_stages(L, b, version[v].stage, memory, n, r, 2, kept ? registers : NULL, fetches);
    if (!L->b.failed) last = lower_block_close(L, b, NULL, 0);
    free(L->memo);
    L->memo = memo, L->memo_cap = cap, L->memo_n = used, L->item = item;
  }
  for (unsigned i = 0; i < n && !L->b.failed; i++)
    for (unsigned j = 0; registers[i] && j < MAX_ROUNDS && registers[i][j]; j++) {
      struct uop *src[2] = {registers[i][j], last};
      registers[i][j] = lower_mk(L, OP_LOAD, src[0]->dtype, src[0]->lanes, 0, 0, src, 2);
    }
  return last;
}

/* Copies the values of round `round` to the stages, in a pass of copy_stages. Returns the last STORE or FETCH.
 * *fetches: whether it made a FETCH. */
static struct uop *copy_round(struct lowerer *L, struct pipeline *p, struct block *in, struct uop *round, unsigned pass,
                              bool *fetches) {
  struct uop *was = L->axis_value[p->axis], *last;
  struct memo *memo = L->memo;
  size_t cap = L->memo_cap, n = L->memo_n;
  struct round r = {.axis = p->axis, .fetched = round, .computed = round, .buffer = round};
  struct uop *end = lower_to_dtype(L, p->body->open->src[0], DT_I32);
  if (round->op != OP_CONST || end->op != OP_CONST) { /* past the last round nothing is fetched, and computed values are
                                                       * those of the last round again */
    struct uop *buffers = lower_iconst(L, DT_I32, p->buffers);
    r.buffer = lower_mk(L, OP_MOD, DT_I32, 1, 0, 0, (struct uop *[]){round, buffers}, 2);
    r.valid = lower_mk(L, OP_CMPLT, DT_BOOL, 1, 0, 0, (struct uop *[]){round, end}, 2);
    struct uop *src[3] = {r.valid, round, lower_index_op(L, OP_ADD, end, lower_iconst(L, DT_I32, -1))};
    r.computed = lower_mk(L, OP_WHERE, DT_I32, 1, 0, 0, src, 3);
  }
  L->memo_cap = 1024, L->memo_n = 0, L->memo = calloc(L->memo_cap, sizeof *L->memo);
  if (!L->memo) lower_fail(L, "out of memory");
  *fetches = false;
  struct uop **kept[MOST_TOGETHER];
  for (unsigned i = 0; i < p->n; i++) kept[i] = p->kept[i][0] ? p->kept[i] : NULL;
  if (pass < 2 && !lower_has_conditions(p->stage, p->n))
    last = copy_stages(L, in, p->stage, p->memory, p->n, &r, pass, NULL, fetches);
  else if (pass != 1)
    last = copy_versions(L, in, p->stage, p->memory, p->n, &r, pass ? NULL : p->kept, fetches);
  else
    last = copy_stages(L, in, p->stage, p->memory, p->n, &r, pass, kept, fetches);
  free(L->memo);
  L->memo = memo, L->memo_cap = cap, L->memo_n = n, L->axis_value[p->axis] = was;
  return last;
}

/* Copies the first rounds of the stages before the loop, and in each round the one that is buffers - 1 rounds later.
 * One barrier per round suffices. It orders the stores of the copies for this round before this round's loads, and the
 * previous round's loads before this round's stores to the same buffer. */
static struct uop *fill_ahead(struct lowerer *L, struct pipeline *p) {
  struct block *outside = p->body->parent;
  struct uop *round = L->axis_value[p->axis], *last, *waited[1 + MOST_TOGETHER];
  int64_t ahead = p->buffers - 1;
  bool fetches = false;
  for (unsigned i = 0; i < p->n; i++) waited[1 + i] = p->memory[i];
  if (outside != L->root) lower_mk_in(L, outside, OP_BARRIER, DT_VOID, p->memory, p->n);
  for (int64_t r = 0; r < ahead; r++) {
    last = copy_round(L, p, outside, lower_iconst(L, DT_I32, r), 2, &fetches);
    if (fetches && last) add_wait(L, outside, true, r, last);
  }
  int64_t groups = L->k->axes[p->axis].kind == AXIS_GLOBAL ? L->fetching : 1; /* per round: of all phases, or 1 */
  /* After the group of this round, the phase itself has made at least ahead - 1 groups, and the other phases together
   * groups - 1. These may still be in flight. Round 0 has the fewest, because each phase makes its first groups before
   * the rounds. */
  waited[0] = fetches ? add_wait(L, p->body, false, ahead + groups - 2, round) : round;
  struct uop *ready = lower_mk_in(L, p->body, OP_BARRIER, DT_VOID, waited, 1 + p->n);
  p->next = lower_index_op(L, OP_ADD, round, lower_iconst(L, DT_I32, ahead));
  last = copy_round(L, p, p->body, p->next, 0, &fetches);
  if (fetches && last) add_wait(L, p->body, true, -1, last);
  return ready;
}

void lower_finish_round(struct lowerer *L, const struct block *body) {
  for (unsigned i = 0; i < L->npipelines; i++) {
    struct pipeline *p = &L->pipeline[i];
    int saved[MAX_AXES];
    bool fetches;
    if (p->body != body) continue;
    if (p->boxed) {
      lower_boxes_read(L, p);
      continue;
    }
    memcpy(saved, L->position, sizeof saved);
    copy_round(L, p, p->body, p->next, 1, &fetches);
    memcpy(L->position, saved, sizeof saved);
  }
}

/* ---- a stage --------------------------------------------------------------------------------------------------- */

/* A barrier of the work-items that compute: without the wave that copies boxes. */
static struct uop *barrier_of_items(struct lowerer *L, struct block *in, struct uop *const *after, unsigned n) {
  enum barrier of = L->nboxed ? BARRIER_ITEMS : BARRIER_GROUP;
  union uop_arg items = {.i = L->nboxed ? L->items : 0};
  struct uop *u = uop_new(L->g, OP_BARRIER, DT_VOID, 1, items, of, after, n);
  lower_place(L, in, u);
  return u;
}

/* Fills stages of one block here. Returns the node after which they may be read. */
static struct uop *fill_now(struct lowerer *L, struct block *in, struct uop *const *stage, struct uop *const *memory,
                            unsigned n) {
  struct uop *last[1 + MOST_TOGETHER] = {0};
  if (L->k->target->kind == TARGET_HOST) { /* accumulating stages together */
    struct place to[MOST_TOGETHER] = {{0}};
    for (unsigned i = 0; i < n; i++) to[i] = (struct place){in, memory[i], NULL, true, NULL};
    return fill_stages(L, stage, to, n);
  }
  const struct round all = {.axis = -1};
  bool fetches = false;
  if (in != L->root) barrier_of_items(L, in, memory, n); /* last round's loads before the new stores */
  last[0] = copy_versions(L, in, stage, memory, n, &all, NULL, &fetches);
  if (L->b.failed) return stage[0];
  if (fetches) add_wait(L, in, true, -1, last[0]), last[0] = add_wait(L, in, false, 0, last[0]);
  memcpy(last + 1, memory, n * sizeof *memory);
  return barrier_of_items(L, in, last, 1 + n);
}

struct uop *lower_eval_stage(struct lowerer *L, struct uop *u) {
  struct codegen *k = L->k;
  struct memo *m = lower_memo_at(L, u, 0);
  if (m->key) return m->value;
  struct pipeline *copied;
  struct uop *ready = lower_boxes_wait(L, u, &copied);
  if (ready) {
    struct uop *src[2] = {copied->memory[0], ready};
    lower_memo_put(L, u, 0, lower_mk_in(L, copied->body, OP_AFTER, u->dtype, src, 2));
    return lower_memo_at(L, u, 0)->value;
  }
  struct block *outside = fill_block(L, u);
  if (!outside || (lower_stage_axes(L, u) & L->expanded)) {
    lower_fail(L, "a stage changes along an unrolled axis");
    return u;
  }
  int saved[MAX_AXES], axis = pipelined_axis(L, outside);
  memcpy(saved, L->position, sizeof saved);
  struct pipeline p = {.body = outside, .axis = axis, .buffers = axis < 0 ? 1 : k->axes[axis].buffers};
  p.n = find_together(L, u, p.stage);
  for (unsigned i = 0; i < p.n; i++) p.memory[i] = lower_stage_memory(L, p.stage[i], p.buffers);
  if (axis >= 0 && L->npipelines == MOST_PIPELINES) lower_fail(L, "too many pipelines");
  ready = u;
  p.boxed = lower_can_box(L, &p);
  if (!L->b.failed)
    ready = axis < 0  ? fill_now(L, outside, p.stage, p.memory, p.n)
            : p.boxed ? lower_boxes_ahead(L, &p)
                      : fill_ahead(L, &p);
  memcpy(L->position, saved, sizeof saved);
  if (L->b.failed) return u;
  if (axis >= 0) L->pipeline[L->npipelines++] = p;
  for (unsigned i = 0; i < p.n; i++) {
    struct uop *filled = lower_mk_in(L, outside, OP_AFTER, p.stage[i]->dtype, (struct uop *[]){p.memory[i], ready}, 2);
    lower_memo_put(L, p.stage[i], 0, filled);
  }
  return lower_memo_at(L, u, 0)->value;
}

struct uop *lower_stage_offset(struct lowerer *L, const struct uop *stage) {
  for (unsigned i = 0; i < L->npipelines; i++)
    for (unsigned s = 0; s < L->pipeline[i].n; s++) {
      const struct pipeline *p = &L->pipeline[i];
      if (p->stage[s] != stage) continue;
      struct uop *src[2] = {lower_round(L, p), lower_iconst(L, DT_I32, p->buffers)};
      struct uop *buffer = lower_mk(L, OP_MOD, DT_I32, 1, 0, 0, src, 2);
      return lower_index_op(L, OP_MUL, buffer, lower_iconst(L, DT_I32, stage->arg.i));
    }
  return NULL;
}
