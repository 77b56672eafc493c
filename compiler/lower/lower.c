/* Lowers ranges to a list of operations in execution order.
 *
 * GLOBAL, LOCAL and GROUP ranges become hardware ids. UPCAST and UNROLL ranges are expanded: a node is made once per
 * combination of positions on which it depends, and along one axis as a vector. Other ranges become loops. Nodes are
 * made through linearize.c, which places them. reduce.c lowers reductions. */
#include "lower.h"
#include <stdlib.h>
#include <string.h>

/* ---- expansion ------------------------------------------------------------------------------------------------- */
uint64_t lower_code_of(const struct lowerer *L, uint64_t mask) {
  uint64_t code = 0;
  for (uint64_t m = mask & L->expanded; m; m &= m - 1) {
    int a = __builtin_ctzll(m);
    code = code * (uint64_t)(L->k->axes[a].size + 1) + (uint64_t)(L->position[a] + 1);
  }
  return code;
}

struct memo *lower_memo_at(struct lowerer *L, const struct uop *u, uint64_t code) {
  size_t at = ((u->id + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ code * UINT64_C(0xe7037ed1a0b428db)) >> 20;
  for (at &= L->memo_cap - 1; L->memo[at].key; at = (at + 1) & (L->memo_cap - 1))
    if (L->memo[at].key == u && L->memo[at].code == code) break;
  return &L->memo[at];
}

void lower_memo_put(struct lowerer *L, const struct uop *u, uint64_t code, struct uop *value) {
  if (L->memo_n * 2 >= L->memo_cap) {
    struct memo *old = L->memo;
    size_t n = L->memo_cap;
    struct memo *p = calloc(n * 4, sizeof *p);
    if (!p) {
      lower_fail(L, "out of memory");
      return;
    }
    L->memo = p, L->memo_cap = n * 4;
    for (size_t i = 0; i < n; i++)
      if (old[i].key) *lower_memo_at(L, old[i].key, old[i].code) = old[i];
    free(old);
  }
  struct memo *m = lower_memo_at(L, u, code);
  L->memo_n += !m->key;
  *m = (struct memo){u, code, value};
}

/* Returns the axis whose lanes a node's value has at the current positions, or -1. */
int lower_vector_axis(const struct lowerer *L, uint64_t mask) {
  for (uint64_t m = mask & L->expanded; m; m &= m - 1)
    if (L->position[__builtin_ctzll(m)] == VEC) return __builtin_ctzll(m);
  return -1;
}

/* Evaluates u lane by lane, for operations without a vector form. */
struct uop *lower_each_lane(struct lowerer *L, struct uop *u, int axis) {
  struct uop *lane[MAX_LANES];
  unsigned n = (unsigned)L->k->axes[axis].size;
  for (unsigned i = 0; i < n; i++) {
    L->position[axis] = (int)i;
    lane[i] = lower_eval(L, u);
  }
  L->position[axis] = VEC;
  return lower_vectorize(L, lane, n);
}

/* Advances the positions over the axes of mask, the last axis fastest. Returns false after the last combination. */
bool lower_next_position(struct lowerer *L, uint64_t mask) {
  for (; mask;) {
    int a = 63 - __builtin_clzll(mask);
    if (++L->position[a] < L->k->axes[a].size) return true;
    L->position[a] = 0;
    mask &= ~(UINT64_C(1) << a);
  }
  return false;
}

void lower_first_position(struct lowerer *L, uint64_t mask) {
  for (; mask; mask &= mask - 1) L->position[__builtin_ctzll(mask)] = 0;
}

/* ---- values ---------------------------------------------------------------------------------------------------- */
static enum dtype lowered_dtype(struct uop *u) {
  if (u->dtype != DT_INDEX) return compute_dtype(u->dtype);
  bool narrow = fits32(uop_min(u), uop_max(u));
  for (unsigned i = 0; narrow && i < u->nsrc; i++)
    if (u->src[i]->dtype == DT_INDEX) narrow = fits32(uop_min(u->src[i]), uop_max(u->src[i]));
  return narrow ? DT_I32 : DT_I64;
}

/* Computes the coefficient of the axis in the index. Returns false if the index is not linear along the axis. */
static bool linear_along(const struct lowerer *L, struct uop *index, int axis, int64_t *coef) {
  struct affine a;
  *coef = 0;
  if (!(mask_of(L, index) >> axis & 1)) return true;
  affine_of(index, &a);
  for (unsigned i = 0; i < a.n; i++)
    if (a.term[i] == L->k->axes[axis].range)
      *coef = a.coef[i];
    else if (mask_of(L, a.term[i]) >> axis & 1)
      return false;
  return fits32(*coef, *coef);
}

static bool index_sources_are_linear(const struct lowerer *L, const struct uop *u, int axis) {
  int64_t coef;
  for (unsigned i = 0; i < u->nsrc; i++)
    if (u->src[i]->dtype == DT_INDEX && !linear_along(L, u->src[i], axis, &coef)) return false;
  return true;
}

/* The vector of an index that is linear along the axis: its first value plus multiples of the coefficient. */
static struct uop *index_vector(struct lowerer *L, struct uop *index, int axis) {
  struct uop *lane[MAX_LANES];
  unsigned n = (unsigned)L->k->axes[axis].size;
  int64_t coef;
  linear_along(L, index, axis, &coef);
  L->position[axis] = 0;
  struct uop *first = lower_eval(L, index);
  L->position[axis] = VEC;
  if (L->b.failed || !coef) return first;
  enum dtype t = first->dtype == DT_I32 && !fits32(uop_min(index), uop_max(index)) ? DT_I64 : first->dtype;
  for (unsigned i = 0; i < n; i++) lane[i] = lower_iconst(L, t, coef * (int64_t)i);
  struct uop *src[2] = {lower_broadcast(L, lower_to_dtype(L, first, t), n), lower_vectorize(L, lane, n)};
  return build_alu(&L->b, OP_ADD, t, src, 2);
}

/* Whether u converts an 8-bit float in memory to f16, which needs fewer instructions than by way of f32. */
static bool widens_float8(const struct uop *u) {
  if (u->op != OP_CAST || u->dtype != DT_F16 || dtype_info[u->src[0]->dtype].size != 1) return false;
  const struct uop *v = u->src[0]->op == OP_WHERE && is_zero(u->src[0]->src[2]) ? u->src[0]->src[1] : u->src[0];
  return dtype_is_float(v->dtype) && v->op == OP_LOAD;
}

/* The value of a comparison of indices if it is the same everywhere at the current positions, in all lanes. Otherwise
 * NULL. */
static struct uop *decided(struct lowerer *L, struct uop *u) {
  uint64_t expanded = mask_of(L, u) & L->expanded;
  if (u->op != OP_CMPLT || u->src[0]->dtype != DT_INDEX || !expanded) return NULL;
  struct affine a;
  affine_of(uop_binary(L->g, OP_SUB, u->src[1], u->src[0]), &a);
  int64_t low = a.constant, high = a.constant; /* of what the second operand is greater by */
  for (unsigned i = 0; i < a.n; i++) {
    int64_t from = uop_min(a.term[i]), to = uop_max(a.term[i]), product[2];
    uint64_t m = mask_of(L, a.term[i]) & expanded;
    int p = a.term[i]->op == OP_RANGE && m ? L->position[__builtin_ctzll(m)] : VEC;
    if (p != VEC) from = to = p;
    bool over =
        __builtin_mul_overflow(a.coef[i], from, &product[0]) || __builtin_mul_overflow(a.coef[i], to, &product[1]);
    bool up = a.coef[i] > 0;
    if (over || __builtin_add_overflow(low, product[!up], &low) || __builtin_add_overflow(high, product[up], &high))
      return NULL;
  }
  return low > 0 || high <= 0 ? build_int(&L->b, DT_BOOL, low > 0) : NULL;
}

struct uop *lower_eval_alu(struct lowerer *L, struct uop *u) {
  struct uop *src[3] = {u, u, u};
  unsigned lanes = 1;
  if (u->nsrc > 3 || !u->nsrc) {
    lower_fail(L, "malformed operation");
    return u;
  }
  if (widens_float8(u)) return build_cast(&L->b, lower_eval_as(L, u->src[0], u->src[0]->dtype), u->dtype);
  const unsigned n = u->nsrc;
  int vec = lower_vector_axis(L, mask_of(L, u));
  struct uop *known = decided(L, u);
  if (known) return lower_broadcast(L, known, vec < 0 ? 1 : (unsigned)L->k->axes[vec].size);
  if (vec >= 0 && (u->dtype == DT_INDEX || !index_sources_are_linear(L, u, vec))) return lower_each_lane(L, u, vec);
  for (unsigned i = 0; i < n; i++) {
    src[i] = u->src[i]->dtype == DT_INDEX && vec >= 0 ? index_vector(L, u->src[i], vec) : lower_eval(L, u->src[i]);
    if (src[i]->lanes > lanes) lanes = src[i]->lanes;
  }
  if (L->b.failed) return u;
  enum dtype t = lowered_dtype(u);
  if (u->op == OP_CAST) {
    struct uop *v = build_cast(&L->b, src[0], u->dtype == DT_INDEX ? t : u->dtype);
    return build_cast(&L->b, v, compute_dtype(v->dtype));
  }
  if (u->op == OP_BITCAST) {
    struct uop *v = src[0];
    if (u->src[0]->dtype != DT_INDEX) v = build_cast(&L->b, v, u->src[0]->dtype);
    v = v->dtype == u->dtype ? v : lower_mk(L, OP_BITCAST, u->dtype, v->lanes, 0, 0, &v, 1);
    return build_cast(&L->b, v, compute_dtype(u->dtype));
  }
  /* Index operands get the same width: the largest width of the operands and the result. */
  enum dtype wide = DT_VOID;
  for (unsigned i = 0; i < n; i++)
    if (u->src[i]->dtype == DT_INDEX && wide != DT_I64) wide = src[i]->dtype;
  if (u->dtype == DT_INDEX && t == DT_I64) wide = DT_I64;
  for (unsigned i = 0; i < n; i++) {
    if (u->src[i]->dtype == DT_INDEX) src[i] = lower_to_dtype(L, src[i], wide);
    src[i] = lower_broadcast(L, src[i], lanes);
  }
  for (unsigned i = 0; i < 2 && u->op == OP_AND && t == DT_BOOL; i++)
    if ((known = same_lanes(src[i])) && known->op == OP_CONST) return known->arg.i ? src[1 - i] : src[i];
  struct uop *v = build_alu(&L->b, u->op, u->dtype == DT_INDEX ? wide : t, src, n);
  if (u->dtype == DT_INDEX && v->lanes == 1 && uop_min(v) == uop_max(v)) return lower_iconst(L, v->dtype, uop_min(v));
  if (compute_dtype(u->dtype) != u->dtype && u->op != OP_WHERE && u->op != OP_MAX && u->op != OP_NEG)
    v = build_cast(&L->b, build_cast(&L->b, v, u->dtype), v->dtype); /* every operation rounds to its type */
  return v;
}

static struct uop *eval_leaf(struct lowerer *L, struct uop *u) {
  if (u->op == OP_CONST) {
    enum dtype t = lowered_dtype(u);
    return dtype_is_float(t) ? build_const(&L->b, t, u->arg.f) : lower_iconst(L, t, u->arg.i);
  }
  if (u->op == OP_VAR) {
    for (unsigned i = 0; i < u->nsrc; i++) lower_place(L, L->root, u->src[i]);
    return lower_make(&L->b, OP_VAR, DT_I32, 1, u->arg, 0, u->src, u->nsrc);
  }
  uint64_t m = mask_of(L, u);
  int a = m ? __builtin_ctzll(m) : -1;
  if (a >= 0 && (L->expanded >> a & 1))
    return L->position[a] == VEC ? lower_each_lane(L, u, a) : lower_iconst(L, DT_I32, L->position[a]);
  if (a >= 0 && L->axis_value[a]) return L->axis_value[a];
  lower_fail(L, "a range is used outside its loop");
  return u;
}

struct uop *lower_eval(struct lowerer *L, struct uop *u) {
  if (L->b.failed) return u;
  if (u->op == OP_CONST || u->op == OP_VAR || u->op == OP_RANGE) return eval_leaf(L, u);
  if (u->op == OP_REDUCE) return lower_eval_reduce(L, u);
  struct uop *started = lower_started_sum(L, u);
  if (started) return lower_eval_reduce(L, started);
  uint64_t code = lower_code_of(L, mask_of(L, u));
  struct memo *m = lower_memo_at(L, u, code);
  if (m->key) return m->value;
  if (++L->depth > MAX_DEPTH) {
    codegen_fail(L->k, "an expression is more than %d operations deep", MAX_DEPTH);
    L->b.failed = true;
  }
  struct uop *v = u;
  if (L->b.failed) return u;
  if (u->op == OP_LOAD && u->nsrc && u->src[0]->op == OP_INDEX && is_base(u->src[0]->src[0]))
    v = lower_eval_load(L, u, compute_dtype(u->dtype));
  else if (op_info[u->op].cls == OPCLASS_ALU && u->dtype == DT_INDEX && lower_vector_axis(L, mask_of(L, u)) < 0 &&
           (u->op == OP_ADD || u->op == OP_SUB || u->op == OP_MUL || u->op == OP_SHL))
    v = lower_eval_index(L, u);
  else if (op_info[u->op].cls == OPCLASS_ALU)
    v = lower_eval_alu(L, u);
  else {
    codegen_fail(L->k, "%s cannot be inside a kernel", op_info[u->op].name);
    L->b.failed = true;
  }
  L->depth--;
  if (!L->b.failed) lower_memo_put(L, u, code, v);
  return v;
}

struct uop *lower_eval_as(struct lowerer *L, struct uop *u, enum dtype t) {
  /* A choice between a LOAD and 0, as in copies.c, is made in the stored type, too. */
  if (u->op == OP_WHERE && u->dtype == t && u->src[1]->op == OP_LOAD && is_zero(u->src[2])) {
    struct uop *v = lower_eval_as(L, u->src[1], t), *when = lower_eval(L, u->src[0]);
    unsigned lanes = v->lanes > when->lanes ? v->lanes : when->lanes;
    struct uop *src[3] = {lower_broadcast(L, when, lanes), lower_broadcast(L, v, lanes),
                          lower_broadcast(L, lower_zero(L, t), lanes)};
    return lower_mk(L, OP_WHERE, t, lanes, 0, 0, src, 3);
  }
  bool memory = u->op == OP_LOAD && u->dtype == t && u->src[0]->op == OP_INDEX && is_base(u->src[0]->src[0]);
  return memory ? lower_eval_load(L, u, t) : build_cast(&L->b, lower_eval(L, u), t);
}

/* Evaluates the values of all stores before the first store, because a kernel with several outputs may read what it
 * overwrites. */
static void evaluate_all(struct lowerer *L, struct uop *store) {
  uint64_t mask = mask_of(L, store) & L->expanded, vec = lowest(mask & L->vectors);
  lower_first_position(L, mask);
  do {
    if (vec) L->position[__builtin_ctzll(vec)] = VEC;
    lower_eval(L, store->src[1]);
    if (vec) L->position[__builtin_ctzll(vec)] = 0;
  } while (lower_next_position(L, mask & ~vec) && !L->b.failed);
}

/* Whether one atomic operation of the machine combines all elements of a vector along an axis that is contiguous in
 * memory. Its address must be a multiple of its size. */
static bool combines_vector(const struct lowerer *L, const struct uop *store, unsigned axis) {
  const struct uop *index = store->src[0];
  int64_t lanes = L->k->axes[axis].size;
  if (store->aux != OP_ADD || index->dtype != DT_F32 || (lanes != 2 && lanes != 4)) return false;
  if (lanes * dtype_info[DT_F32].size > L->k->target->atomic_bytes) return false;
  struct affine a;
  affine_of(index->src[1], &a);
  return affine_begins_at_multiple(&a, L->k->axes[axis].range, lanes);
}

void lower_place_store(struct lowerer *L, struct uop *store, struct uop *base, struct uop *at, struct uop *valid,
                       struct uop *v) {
  struct uop *src[3] = {base, at, valid};
  struct uop *pointer = lower_mk(L, OP_INDEX, store->src[0]->dtype, 1, 0, 0, src, valid ? 3 : 2);
  struct block *in = deeper(deeper(L->main, lower_block_of(L, pointer)), lower_block_of(L, v));
  union uop_arg number = {.i = store->aux ? ++L->natomics : 0};
  lower_place(L, in, uop_new(L->g, OP_STORE, DT_VOID, 1, number, store->aux, (struct uop *[]){pointer, v}, 2));
}

static bool lower_store(struct lowerer *L, struct uop *store) {
  struct codegen *k = L->k;
  struct uop *index = store->src[0];
  uint64_t mask = mask_of(L, store) & L->expanded, vec = lowest(mask & L->vectors);
  bool masks = k->target->has_masks && !L->group_first, kept = lower_is_kept(L, index->src[0]);
  if (lower_results(L, store)) return !L->b.failed;
  int along = lower_contiguous_axis(L, index, masks);
  struct uop *base = kept ? NULL : lower_memory(L, index->src[0]);
  int turns = vec && !kept ? lower_interleaved_axis(L, store, (unsigned)__builtin_ctzll(vec)) : -1;
  if (turns >= 0) mask &= ~(UINT64_C(1) << turns);
  lower_first_position(L, mask);
  do {
    if (turns >= 0) {
      if (!lower_store_interleaved(L, store, base, (unsigned)__builtin_ctzll(vec), (unsigned)turns)) return false;
      continue;
    }
    /* Values are evaluated as vectors along the vector axis. They are stored as vectors if they are contiguous. */
    unsigned lanes = 1;
    if (vec) {
      L->position[__builtin_ctzll(vec)] = VEC;
      lanes = (unsigned)k->axes[__builtin_ctzll(vec)].size;
    }
    struct uop *value = lower_broadcast(L, lower_eval(L, store->src[1]), lanes);
    if (L->b.failed) return false;
    value = build_cast(&L->b, value, index->dtype);
    for (unsigned l = 0; kept && l < lanes; l++) {
      if (vec) L->position[__builtin_ctzll(vec)] = (int)l;
      lower_kept_store(L, index, lower_gep(L, value, l));
    }
    bool whole = vec && along == __builtin_ctzll(vec) && (!store->aux || combines_vector(L, store, (unsigned)along));
    for (unsigned l = 0; l < (whole ? 1 : lanes) && !kept && !L->b.failed; l++) {
      if (vec) L->position[__builtin_ctzll(vec)] = (int)l;
      struct uop *v = whole ? value : lower_gep(L, value, l), *at = lower_eval_index(L, index->src[1]);
      bool masked = masks && whole && index->nsrc > 2 && (mask_of(L, index->src[2]) & vec);
      if (masked) L->position[__builtin_ctzll(vec)] = VEC;
      struct uop *valid = lower_eval_valid(L, index);
      if (masked) L->position[__builtin_ctzll(vec)] = 0, valid = lower_broadcast(L, valid, lanes);
      if (L->group_first && !(mask_of(L, store) & L->grouped))
        valid = valid ? build_alu(&L->b, OP_AND, DT_BOOL, (struct uop *[]){valid, L->group_first}, 2) : L->group_first;
      lower_place_store(L, store, base, at, valid, v);
    }
    if (vec) L->position[__builtin_ctzll(vec)] = 0;
  } while (lower_next_position(L, mask & ~vec) && !L->b.failed);
  return !L->b.failed;
}

/* ---- axes to ids and loops ------------------------------------------------------------------------------------- */

/* Upper bound of the ids in a dimension of the workgroup (aux) or the grid; block[] is set before the grid. */
static int64_t most_ids(const struct codegen *k, unsigned d, unsigned aux) {
  const struct target *t = k->target;
  if (aux) return t->max_block[d];
  int64_t groups = t->max_items / k->block[d];
  return groups < t->max_grid[d] ? groups : t->max_grid[d];
}

/* The product of the axes' sizes, or -1 if it exceeds INT32_MAX. */
static int64_t total_of(const struct codegen *k, const unsigned *axis, unsigned n) {
  int64_t total = 1;
  for (unsigned i = 0; i < n; i++)
    if (__builtin_mul_overflow(total, k->axes[axis[i]].size, &total) || total > INT32_MAX) return -1;
  return total;
}

/* Distributes axes over the three dimensions: the first to x, the second to y, all others to z. If that exceeds the
 * machine's limits, each dimension in turn takes as many axes as fit. end: index after the last axis of each dimension.
 * Returns false if the axes do not fit. */
static bool spread_ids(const struct codegen *k, const unsigned *axis, unsigned n, unsigned aux, unsigned end[3]) {
  bool fits = true;
  for (unsigned d = 0, from = 0; d < 3; from = end[d++]) {
    end[d] = d == 2 || from == n ? n : from + 1;
    int64_t total = total_of(k, axis + from, end[d] - from);
    fits = fits && total >= 0 && total <= most_ids(k, d, aux);
  }
  if (fits) return true;
  for (unsigned d = 0, from = 0; d < 3; from = end[d++])
    for (end[d] = from; end[d] < n; end[d]++) {
      int64_t total = total_of(k, axis + from, end[d] + 1 - from);
      if (total < 0 || total > most_ids(k, d, aux)) break;
    }
  return end[2] == n;
}

/* If the grid does not fit, its axes become loops, the outermost axes first. */
static bool shrink_grid(struct lowerer *L, unsigned *global, unsigned *n) {
  struct codegen *k = L->k;
  unsigned end[3];
  while (!spread_ids(k, global, *n, 0, end)) {
    unsigned i = *n;
    while (i > 0 && (k->axes[global[i - 1]].padded || k->axes[global[i - 1]].size < 2)) i--;
    if (!i) return lower_fail(L, "a launch has more workgroups than the target allows");
    k->axes[global[i - 1]].kind = AXIS_SERIAL;
    memmove(global + i - 1, global + i, (--*n - (i - 1)) * sizeof *global);
  }
  return true;
}

/* Makes the positions along the axes, the first of which counts fastest, of an id that is less than `total`. */
static void divide_id(struct lowerer *L, struct uop *id, int64_t total, const unsigned *axis, unsigned n) {
  int64_t stride = 1;
  for (unsigned i = 0; i < n; i++) {
    int64_t size = L->k->axes[axis[i]].size;
    struct uop *v = id;
    if (stride > 1) v = lower_mk(L, OP_IDIV, DT_I32, 1, 0, 0, (struct uop *[]){v, lower_iconst(L, DT_I32, stride)}, 2);
    if (stride * size < total)
      v = lower_mk(L, OP_MOD, DT_I32, 1, 0, 0, (struct uop *[]){v, lower_iconst(L, DT_I32, size)}, 2);
    L->axis_value[axis[i]] = size == 1 ? lower_iconst(L, DT_I32, 0) : v;
    stride *= size;
  }
}

static bool assign_ids(struct lowerer *L, const unsigned *axis, unsigned n, unsigned aux, uint32_t *dims) {
  struct codegen *k = L->k;
  unsigned end[3];
  if (!spread_ids(k, axis, n, aux, end))
    return lower_fail(L, "a workgroup has more work-items than the target allows in one dimension");
  for (unsigned d = 0, from = 0, to = 0; d < 3; d++) {
    from = to, to = end[d];
    if (from == to) continue;
    int64_t total = total_of(k, axis + from, to - from);
    dims[d] = (uint32_t)total;
    if (!aux) extent_of(k, axis + from, to - from, total, &k->extent[d]);
    struct uop *bound = lower_iconst(L, DT_I32, total), *id = lower_mk(L, OP_SPECIAL, DT_I32, 1, d, aux, &bound, 1);
    divide_id(L, id, total, axis + from, to - from);
  }
  return true;
}

/* The number of the work-item in its workgroup; x counts fastest. */
static struct uop *item_number(struct lowerer *L) {
  const uint32_t *block = L->k->block;
  struct uop *number = NULL;
  for (unsigned d = 3; d-- > 0;) {
    if (block[d] == 1) continue;
    struct uop *bound = lower_iconst(L, DT_I32, block[d]), *id = lower_mk(L, OP_SPECIAL, DT_I32, 1, d, 1, &bound, 1);
    if (number) number = lower_index_op(L, OP_MUL, number, lower_iconst(L, DT_I32, block[d]));
    number = number ? lower_index_op(L, OP_ADD, number, id) : id;
  }
  return number ? number : lower_iconst(L, DT_I32, 0);
}

/* The number of positions along the axes of a kind. */
static int64_t positions(const struct codegen *k, enum axis_kind kind) {
  int64_t n = 1;
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].kind == kind) n *= k->axes[a].size;
  return n;
}

/* The id in the region that `open` opens, of which the `count` ids from `first` on enter it, counted from 0. */
static struct uop *id_inside(struct lowerer *L, struct uop *id, int64_t first, int64_t count, struct uop *open) {
  int64_t ones = 1; /* the mask shows the upper bound to later passes; inside the region it clears no bit that is set */
  while (ones < count) ones *= 2;
  if (first) id = lower_mk(L, OP_SUB, DT_I32, 1, 0, 0, (struct uop *[]){id, lower_iconst(L, DT_I32, first)}, 2);
  id = lower_mk(L, OP_AND, DT_I32, 1, 0, 0, (struct uop *[]){id, lower_iconst(L, DT_I32, ones - 1)}, 2);
  return lower_mk_in(L, L->main, OP_AFTER, DT_I32, (struct uop *[]){id, open}, 2);
}

/* Opens the region that only a part's workgroups enter, and makes the part's ids inside it. Parts with fewer work-items
 * than others leave some of them idle. Returns NULL on failure. */
static struct block *open_part(struct lowerer *L, const unsigned *global, unsigned nglobal, const unsigned *local,
                               unsigned nlocal) {
  int64_t count = positions(L->k, AXIS_GLOBAL), items = positions(L->k, AXIS_LOCAL);
  struct uop *bound[2] = {lower_iconst(L, DT_I32, L->part_total), lower_iconst(L, DT_I32, L->part_items)}, *id[2];
  for (unsigned i = 0; i < 2; i++) id[i] = lower_mk(L, OP_SPECIAL, DT_I32, 1, 0, i, &bound[i], 1);
  struct uop *end = lower_iconst(L, DT_I32, L->part_first + count);
  struct uop *mine = lower_mk(L, OP_CMPLT, DT_BOOL, 1, 0, 0, (struct uop *[]){id[0], end}, 2);
  if (L->part_first) {
    struct uop *before = lower_iconst(L, DT_I32, (int64_t)L->part_first - 1);
    struct uop *after = lower_mk(L, OP_CMPLT, DT_BOOL, 1, 0, 0, (struct uop *[]){before, id[0]}, 2);
    mine = lower_mk(L, OP_AND, DT_BOOL, 1, 0, 0, (struct uop *[]){after, mine}, 2);
  }
  if (items < L->part_items) {
    struct uop *works[] = {id[1], lower_iconst(L, DT_I32, items)};
    works[0] = lower_mk(L, OP_CMPLT, DT_BOOL, 1, 0, 0, works, 2), works[1] = mine;
    mine = lower_mk(L, OP_AND, DT_BOOL, 1, 0, 0, works, 2);
  }
  /* The number distinguishes the regions of parts. */
  struct uop *open = uop_new(L->g, OP_IF, DT_VOID, 1, (union uop_arg){.i = -(int64_t)L->part_first - 1}, 0, &mine, 1);
  L->main = lower_block_open(L, L->root, open);
  divide_id(L, id_inside(L, id[0], L->part_first, count, open), count, global, nglobal);
  divide_id(L, id_inside(L, id[1], 0, items, open), items, local, nlocal);
  L->k->block[0] = L->part_items;
  return L->b.failed ? NULL : L->main;
}

static void close_loops(struct lowerer *L, struct block *const *opened, unsigned n) {
  struct uop *end = NULL;
  while (n-- > 0 && !L->b.failed) end = lower_block_close(L, opened[n], end ? &end : NULL, end ? 1 : 0);
}

/* The only node that uses a sum of matrix instructions, if that node adds it to another value that depends on the same
 * axes. */
static struct uop *only_adder(const struct lowerer *L, const struct uop *reduce, struct uop *const *order,
                              size_t count) {
  struct uop *user = NULL;
  unsigned uses = 0;
  if (reduce->src[0]->op != OP_MMA) return NULL;
  for (size_t i = 0; i < count; i++)
    for (unsigned s = 0; s < order[i]->nsrc; s++)
      if (order[i]->src[s] == reduce) user = order[i], uses++;
  if (uses != 1 || user->dtype != reduce->dtype || dtype_is_narrow_float(user->dtype)) return NULL;
  bool adds = user->op == OP_ADD || (user->op == OP_MULACC && user->src[2] == reduce);
  return adds && mask_of(L, user) == mask_of(L, reduce) ? user : NULL;
}

static bool find_reduces(struct lowerer *L, struct uop *ast) {
  size_t count;
  struct uop **order = uop_toposort(&ast, 1, &count);
  if (!order) return lower_fail(L, "out of memory");
  L->nreduces = 0, L->summed = 0;
  for (size_t i = 0; i < count; i++)
    if (order[i]->op == OP_REDUCE && L->nreduces < 64)
      L->reduces[L->nreduces++] = order[i];
    else if (order[i]->op == OP_STAGE && order[i]->aux)
      L->summed |= mask_of(L, order[i]);
  for (unsigned i = 0; i < L->nreduces; i++) {
    L->added[i] = only_adder(L, L->reduces[i], order, count);
    L->dot[i] = lower_find_dot(L, L->reduces[i], order, count);
  }
  free(order);
  return true;
}

/* In a phase, opens a block for the condition of all stores, if they have one in common that does not depend on
 * expanded axes. What depends on the listed loops is then computed only where it is stored. Returns NULL if there is
 * none. */
static struct block *open_stored(struct lowerer *L, const struct uop *ast, const unsigned *loop, unsigned nloops,
                                 struct block *in) {
  struct uop *valid = NULL;
  for (unsigned i = 0; i < ast->nsrc && L->k->is_phase && L->k->target->kind == TARGET_HOST; i++) {
    const struct uop *index = ast->src[i]->src[0];
    if (index->nsrc < 3 || (i && index->src[2] != valid) || (mask_of(L, index->src[2]) & L->expanded)) return NULL;
    valid = index->src[2];
  }
  if (!valid) return NULL;
  struct block *inside = lower_if_open(L, in, lower_eval(L, valid));
  for (unsigned i = 0; i < nloops; i++) {
    struct uop **v = &L->axis_value[loop[i]];
    if (mask_of(L, valid) >> loop[i] & 1)
      *v = lower_mk_in(L, inside, OP_AFTER, (*v)->dtype, (struct uop *[]){*v, inside->open}, 2);
  }
  edge_forget(L, mask_of(L, valid)); /* the condition itself was evaluated outside */
  return inside;
}

/* Whether several lanes, which have the same rows, update memory that they do not keep in registers. */
static bool lanes_update(const struct lowerer *L, struct uop *ast) {
  if (!L->grouped) return false;
  size_t count;
  struct uop **order = uop_toposort(&ast, 1, &count);
  bool found = !order;
  for (size_t i = 0; order && i < count; i++)
    for (unsigned s = 0; s < ast->nsrc; s++) {
      const struct uop *to = ast->src[s]->src[0]->src[0];
      bool loads = order[i]->op == OP_LOAD && order[i]->src[0]->src[0] == to;
      found = found || (loads && to->op == OP_LOCAL && !lower_is_kept(L, to));
    }
  free(order);
  return found;
}

/* Stores vectors of which only some lanes may be inside a padded axis in two versions: whole in workgroups that are
 * completely inside, lane by lane in the others. in: the block of the innermost loop. Returns false if there are no
 * such vectors. */
static bool store_versions(struct lowerer *L, struct uop *store, struct block *in) {
  struct uop *index = store->src[0], *src[2] = {index->src[0], index->src[1]}, *made[2];
  uint64_t elements = L->expanded, vec = lowest(mask_of(L, store) & L->vectors);
  struct block *main = L->main;
  if (index->nsrc < 3 || !(mask_of(L, index->src[2]) & vec) || L->k->target->has_masks) return false;
  if (lower_contiguous_axis(L, index, true) != __builtin_ctzll(vec) || lower_contiguous_axis(L, index, false) >= 0)
    return false;
  for (unsigned a = 0; a < L->k->naxes; a++)
    if (L->k->axes[a].kind == AXIS_LOCAL) elements |= UINT64_C(1) << a;
  struct uop *when = lower_holds_for_all(L, index->src[2], elements);
  if (!when || when->op == OP_CONST) return false;
  made[0] = uop_new(L->g, OP_INDEX, index->dtype, 1, index->arg, index->aux, src, 2), made[1] = when;
  made[0] = uop_new(L->g, OP_STORE, DT_VOID, 1, store->arg, 0, (struct uop *[]){made[0], store->src[1]}, 2);
  if (!lower_add_masks(L, made, 2)) return true;
  evaluate_all(L, store);
  struct uop *inside = lower_eval(L, when);
  for (unsigned version = 0; version < 2 && !L->b.failed; version++) {
    if (version) inside = build_alu(&L->b, OP_XOR, DT_BOOL, (struct uop *[]){inside, build_int(&L->b, DT_BOOL, 1)}, 2);
    L->main = lower_if_open(L, in, inside);
    if (lower_store(L, version ? store : made[0])) lower_block_close(L, L->main, NULL, 0);
  }
  L->main = main;
  return true;
}

/* Lowers a store, in two steps if its value has choices that most rounds do not need (choices.c). */
static void lower_with_choices(struct lowerer *L, struct uop *store, struct block *in) {
  struct uop *when, *plain = L->k->is_phase ? lower_plain_store(L, store, &when) : NULL;
  if (plain && lower_store(L, plain)) {
    struct chosen c = lower_choices_open(L, when);
    lower_store(L, store);
    lower_choices_close(L, &c);
  } else if (!plain && !(L->one_version && store_versions(L, store, in)))
    lower_store(L, store);
}

/* Opens the loops of the list and lowers the stores of the ast inside them. */
static void lower_stores(struct lowerer *L, struct uop *ast, const unsigned *loop, unsigned nloops, struct block *in) {
  struct block *opened[MAX_AXES + 1], *inside;
  for (unsigned i = 0; i < nloops; i++) opened[i] = in = lower_loop_open(L, in, loop[i], AXIS_SERIAL);
  if ((inside = open_stored(L, ast, loop, nloops, in))) opened[nloops++] = inside;
  bool update = L->k->is_phase && lanes_update(L, ast);
  for (unsigned i = 0; i < ast->nsrc && (update || ast->nsrc > 1) && !L->b.failed; i++) evaluate_all(L, ast->src[i]);
  if (update && L->idle) lower_fail(L, "a workgroup that is partly idle cannot share a copy of rows");
  if (update && in->n) /* all lanes have loaded what they update */
    lower_mk_in(L, in, OP_BARRIER, DT_VOID, &in->item[in->n - 1], 1);
  for (unsigned i = 0; i < ast->nsrc && !L->b.failed; i++) lower_with_choices(L, ast->src[i], in);
  close_loops(L, opened, nloops);
}

/* Lowers both versions of a kernel with padded axes. Returns false if one version suffices; then nothing was
 * lowered. */
static bool lower_edges(struct lowerer *L, const struct edge *e, const unsigned *loop, unsigned nloops,
                        struct block *in) {
  struct codegen *k = L->k;
  struct block *main = L->main;
  struct uop *inside = edge_inside(L, e), *before[MAX_AXES];
  if (!inside) return false;
  memcpy(before, L->axis_value, sizeof before);
  uint64_t mine = e->axes; /* axes whose values differ between the versions */
  for (unsigned i = 0; i < nloops; i++) mine |= UINT64_C(1) << loop[i];
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].kind == AXIS_REDUCE) mine |= UINT64_C(1) << a;
  for (unsigned version = 0; version < 2 && !L->b.failed; version++) {
    struct uop *ast = version ? k->ast : e->whole, *when = inside;
    if (version) when = build_alu(&L->b, OP_XOR, DT_BOOL, (struct uop *[]){inside, build_int(&L->b, DT_BOOL, 1)}, 2);
    struct uop *open = uop_new(L->g, OP_IF, DT_VOID, 1, (union uop_arg){.i = -(int64_t)L->nblocks - 1}, 0, &when, 1);
    if (!find_reduces(L, ast)) return true;
    edge_forget(L, mine);
    L->main = lower_block_open(L, in, open);
    memcpy(L->axis_value, before, sizeof before);
    for (unsigned a = 0; a < k->naxes; a++) { /* nodes that depend on these axes are placed in this version */
      struct uop *v = e->axes >> a & 1 ? before[a] : NULL;
      if (v) L->axis_value[a] = lower_mk_in(L, L->main, OP_AFTER, v->dtype, (struct uop *[]){v, open}, 2);
    }
    lower_stores(L, ast, loop, nloops, L->main);
    if (!L->b.failed) lower_block_close(L, L->main, NULL, 0);
  }
  L->main = main;
  return true;
}

bool lower_grid(struct lowerer *L, unsigned *axis, unsigned n) {
  return shrink_grid(L, axis, &n) && assign_ids(L, axis, n, 0, L->k->grid);
}

/* Work-items past the end of a padded axis skip everything. So do workgroups past the current size of a symbolic axis,
 * and work-items without work. */
bool lower_open_inside(struct lowerer *L, struct uop *works, struct block **opened) {
  struct codegen *k = L->k;
  struct uop *inside = works;
  bool partly = false;
  for (unsigned a = 0; a < k->naxes; a++) {
    struct axis *x = &k->axes[a];
    bool ids = (x->kind == AXIS_GLOBAL && !k->is_phase) || x->kind == AXIS_LOCAL;
    partly = partly || x->padded;
    if (ids && !x->limit && x->range->src[0]->op != OP_CONST) {
      x->padded = true, x->limit = x->range->src[0], x->whole = x->range;
      partly = partly || x->kind == AXIS_LOCAL;
    }
  }
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].padded && k->axes[a].limit) {
      struct uop *at = lower_eval_index(L, k->axes[a].whole), *limit = lower_eval(L, k->axes[a].limit);
      enum dtype t = at->dtype == DT_I64 || limit->dtype == DT_I64 ? DT_I64 : DT_I32;
      struct uop *ok = lower_mk(L, OP_CMPLT, DT_BOOL, 1, 0, 0,
                                (struct uop *[]){lower_to_dtype(L, at, t), lower_to_dtype(L, limit, t)}, 2);
      inside = inside ? lower_mk(L, OP_AND, DT_BOOL, 1, 0, 0, (struct uop *[]){inside, ok}, 2) : ok;
    }
  if (partly && L->grouped) return lower_fail(L, "a workgroup that shares a reduction cannot be partly idle");
  *opened = NULL;
  if (!inside) return true;
  *opened = L->main = lower_if_open(L, L->main, inside);
  /* From here on these ids are inside the bounds, and every node that depends on them is placed in the guarded
   * region. */
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].padded || (works && k->axes[a].kind == AXIS_LOCAL)) {
      struct uop *v = L->axis_value[a];
      L->axis_value[a] = lower_mk_in(L, L->main, OP_AFTER, v->dtype, (struct uop *[]){v, L->main->open}, 2);
    }
  return true;
}

static bool lower_kernel(struct lowerer *L) {
  struct codegen *k = L->k;
  bool host = k->target->kind == TARGET_HOST;
  unsigned global[MAX_AXES], nglobal = 0, local[MAX_AXES], nlocal = 0;
  for (unsigned a = k->naxes; a-- > 0;) /* innermost first */
    if (k->axes[a].kind == AXIS_GLOBAL) global[nglobal++] = a;
  int shared = -1; /* GROUP axes have one size and share one id, so all reductions use the same work-items */
  for (unsigned pass = 0; pass < 2; pass++) /* lanes of a wave count fastest */
    for (unsigned a = 0; a < k->naxes; a++) {
      bool first = k->axes[a].kind == AXIS_LOCAL && k->axes[a].fragment;
      if (first == pass || (k->axes[a].kind != AXIS_LOCAL && (k->axes[a].kind != AXIS_GROUP || shared >= 0))) continue;
      if (k->axes[a].kind == AXIS_GROUP) shared = (int)a;
      local[nlocal++] = a;
    }
  for (unsigned d = 0; d < 3; d++) k->grid[d] = k->block[d] = 1;
  if (host && nlocal) return lower_fail(L, "the host has no work-items");
  L->main = L->root;
  struct block *part = NULL;
  if (L->part_total) {
    if (!(part = open_part(L, global, nglobal, local, nlocal))) return false;
  } else if (!assign_ids(L, local, nlocal, 1, k->block) || !lower_grid(L, global, nglobal))
    return false;
  if ((uint64_t)k->block[0] * k->block[1] * k->block[2] > k->target->max_group)
    return lower_fail(L, "a workgroup has more work-items than the target allows");
  L->item = item_number(L);

  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].kind == AXIS_GROUP) L->axis_value[a] = L->axis_value[shared];

  struct block *inside = NULL;
  if (!lower_open_inside(L, NULL, &inside)) return false;
  if (shared >= 0)
    L->group_first =
        lower_mk(L, OP_CMPEQ, DT_BOOL, 1, 0, 0, (struct uop *[]){L->axis_value[shared], lower_iconst(L, DT_I32, 0)}, 2);

  if (!lower_loops(L)) return false;
  if (inside && !L->b.failed) lower_block_close(L, inside, NULL, 0);
  if (part && !L->b.failed) lower_block_close(L, part, NULL, 0);
  lower_results_end(L);
  return !L->b.failed;
}

bool lower_loops(struct lowerer *L) {
  struct codegen *k = L->k;
  L->region = L->main;
  memcpy(L->id, L->axis_value, sizeof L->id);
  struct edge edge;
  if (!edge_find(L, &edge)) return false;
  unsigned loop[MAX_AXES], nloops = 0, outside = 0;
  uint64_t reduced = 0; /* loops on which a reduction depends are outside the other loops, so the reduction runs once
                         * for these */
  for (unsigned i = 0; i < L->nreduces; i++) reduced |= mask_of(L, L->reduces[i]);
  reduced |= L->summed;
  for (unsigned pass = 0; pass < 2; pass++)
    for (unsigned a = 0; a < k->naxes; a++) {
      bool loops = k->axes[a].kind == AXIS_SERIAL || k->axes[a].kind == AXIS_LOOP || k->axes[a].kind == AXIS_ORDERED;
      if (!loops || (reduced >> a & 1) == pass) continue;
      loop[nloops++] = a;
      if (edge.axes >> a & 1) outside = nloops;
    }
  struct block *opened[MAX_AXES], *in = L->main;
  for (unsigned i = 0; i < outside; i++) opened[i] = in = lower_loop_open(L, in, loop[i], AXIS_SERIAL);
  bool versions = edge.n && lower_edges(L, &edge, loop + outside, nloops - outside, in);
  if (!versions && find_reduces(L, k->ast)) lower_stores(L, k->ast, loop + outside, nloops - outside, in);
  close_loops(L, opened, outside);
  return !L->b.failed;
}

bool lower_add_masks(struct lowerer *L, struct uop *const *made, unsigned n) {
  struct codegen *k = L->k;
  struct uop *ast = k->ast, *all[1 + MAX_LANES];
  uint64_t *before = L->mask;
  size_t nbefore = L->nmask;
  if (n > MAX_LANES) return lower_fail(L, "too many new nodes");
  all[0] = ast;
  memcpy(all + 1, made, n * sizeof *all);
  k->ast = uop_new(L->g, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, all, n + 1);
  L->nmask = graph_node_count(L->g);
  L->mask = axis_masks(k, false);
  k->ast = ast;
  for (size_t i = 0; L->mask && i < nbefore; i++) L->mask[i] |= before[i]; /* of nodes that were added before */
  free(before);
  return L->mask || lower_fail(L, "out of memory");
}

bool lower_prepare(struct lowerer *L, struct codegen *k) {
  k->stage = "lower";
  L->k = k;
  L->expanded = L->vectors = L->grouped = 0;
  L->nreduces = L->npipelines = 0;
  memset(L->axis_value, 0, sizeof L->axis_value);
  memset(L->memo, 0, L->memo_cap * sizeof *L->memo);
  L->memo_n = 0;
  for (unsigned a = 0; a < k->naxes; a++) {
    uint64_t bit = UINT64_C(1) << a;
    if (k->axes[a].kind == AXIS_UPCAST || k->axes[a].kind == AXIS_UNROLL) {
      L->expanded |= bit;
      if (k->axes[a].vector) L->vectors |= bit;
    } else if (k->axes[a].kind == AXIS_GROUP)
      L->grouped |= bit;
    if (k->axes[a].range->arg.i >= L->next_range) L->next_range = (unsigned)k->axes[a].range->arg.i + 1;
  }
  free(L->mask);
  L->nmask = graph_node_count(k->g);
  L->mask = axis_masks(k, false);
  return L->mask ? find_reduces(L, k->ast) : codegen_fail(k, "out of memory");
}

static bool lower_parts(struct lowerer *L, struct codegen *k) {
  int64_t total = 0, most = 1;
  for (unsigned i = 0; i < k->nparts; i++) {
    int64_t items = positions(&k->parts[i], AXIS_LOCAL);
    total += positions(&k->parts[i], AXIS_GLOBAL), most = items > most ? items : most;
  }
  if (total > k->target->max_grid[0] || most > k->target->max_block[0] || total > k->target->max_items / most)
    return codegen_fail(k, "a launch has more workgroups or work-items than the target allows");
  L->part_total = (uint32_t)total, L->part_items = (uint32_t)most;
  for (unsigned i = 0; i < k->nparts; i++) {
    struct codegen *p = &k->parts[i];
    if (!lower_prepare(L, p) || !lower_kernel(L)) return false;
    memcpy(k->block, p->block, sizeof k->block);
    L->part_first += (uint32_t)positions(p, AXIS_GLOBAL);
  }
  k->grid[0] = L->part_total, k->grid[1] = k->grid[2] = 1;
  L->k = k;
  return true;
}

bool lower(struct codegen *k) {
  k->stage = "lower";
  struct lowerer L = {.b = {.make = lower_make, .placed = lower_is_placed, .g = k->g, .target = k->target},
                      .k = k,
                      .g = k->g,
                      .memo_cap = 1024};
  L.memo = calloc(L.memo_cap, sizeof *L.memo);
  L.root = L.memo ? lower_block_open(&L, NULL, NULL) : NULL;
  bool ok = L.root;
  if (!ok) codegen_fail(k, "out of memory");
  ok = ok && !L.b.failed &&
       (uop_is_phased(k->ast) ? lower_phases(&L)
        : k->nparts           ? lower_parts(&L, k)
                              : lower_prepare(&L, k) && lower_kernel(&L)) &&
       lower_linearize(&L);
  free(L.mask);
  free(L.memo);
  free(L.slot);
  free(L.b.memo);
  free(L.kept);
  for (unsigned i = 0; i < L.nblocks; i++) {
    free(L.blocks[i]->item);
    free(L.blocks[i]);
  }
  return ok;
}
