/* Phases: kernels that run one after the other in each round of the loops around them, and pass values through memory
 * that is private to a work-item of the host, or shared by the workgroup of a GPU. Each phase is lowered inside these
 * loops like a kernel. A copy or computation in a phase that does not change along one of the loops is placed before
 * that loop and serves all its rounds. On GPUs a barrier follows each phase, and the phases use the same work-items; a
 * phase may leave some of them idle.
 *
 * If the loop over rounds (graph/schedule/schedule.h) is present, it is the innermost one. Memory that is carried from
 * round to round is initialized before it. Stores that do not depend on the round follow it. */
#include "lower.h"
#include <stdlib.h>
#include <string.h>

enum { CACHE_LINE = 64 };

struct uop *lower_phase_memory(struct lowerer *L, const struct uop *local) {
  if (local->arg.i < 0 || local->arg.i >= MAX_PHASE_MEMORIES || local->src[0]->op != OP_CONST) {
    lower_fail(L, "phases pass values in too many memories, or in one of unknown size");
    return lower_iconst(L, DT_INDEX, 0);
  }
  struct uop **memory = &L->phase_memory[local->arg.i];
  if (*memory) return *memory;
  struct uop *size = lower_iconst(L, DT_INDEX, local->src[0]->arg.i);
  uint64_t bytes = (uint64_t)local->src[0]->arg.i * dtype_info[local->dtype].size;
  L->k->local_bytes += (uint32_t)((bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
  return *memory = lower_mk(L, OP_LOCAL, local->dtype, 1, L->next_local++, 0, &size, 1);
}

/* Orders all memories of phases after a node of the block: what is loaded from them later follows it. */
static void order_memories(struct lowerer *L, struct block *in, struct uop *after) {
  for (unsigned i = 0; i < MAX_PHASE_MEMORIES; i++) {
    struct uop **now = &L->phase_memory[i];
    if (*now) *now = lower_mk_in(L, in, OP_AFTER, (*now)->dtype, (struct uop *[]){*now, after}, 2);
  }
}

static bool has_items(const struct lowerer *L) { return L->k->target->kind != TARGET_HOST; }

/* Orders what the block stored to memories of phases before everything that follows. */
static void end_phase(struct lowerer *L, struct block *in) {
  struct uop *last = in->n ? in->item[in->n - 1] : NULL;
  if (L->b.failed || !last) return;
  if (has_items(L)) last = lower_mk_in(L, in, OP_BARRIER, DT_VOID, &last, 1);
  order_memories(L, in, last);
}

/* ---- work-items ------------------------------------------------------------------------------------------------- */

/* Lists the axes of a phase that are work-items, lanes of a wave first. Returns the number of work-items. */
static int64_t items_of(const struct codegen *p, unsigned *axis, unsigned *n) {
  int64_t items = 1;
  *n = 0;
  for (unsigned pass = 0; pass < 2; pass++)
    for (unsigned a = 0; a < p->naxes; a++) {
      if (p->axes[a].kind != AXIS_LOCAL || p->axes[a].fragment == pass) continue;
      axis[(*n)++] = a, items *= p->axes[a].size;
    }
  return items;
}

/* The workgroup has as many work-items as the phase that uses most of them. */
static bool make_items(struct lowerer *L) {
  struct codegen *k = L->k;
  unsigned axis[MAX_AXES], n;
  int64_t most = 1;
  for (unsigned i = 0; i < k->nparts; i++) {
    int64_t items = items_of(&k->parts[i], axis, &n);
    if (items > most) most = items;
  }
  if (most > k->target->max_group || most > k->target->max_block[0])
    return lower_fail(L, "a workgroup has more work-items than the target allows");
  k->block[0] = (uint32_t)most;
  struct uop *bound = lower_iconst(L, DT_I32, most);
  L->item = most > 1 ? lower_mk(L, OP_SPECIAL, DT_I32, 1, 0, 1, &bound, 1) : lower_iconst(L, DT_I32, 0);
  return true;
}

/* Gives the phase's axes to work-items. Work-items without work skip the block that is opened; *opened is NULL if there
 * are none. `most`: work-items of the workgroup. */
static bool assign_items(struct lowerer *L, int64_t most, struct block **opened) {
  struct codegen *p = L->k;
  unsigned axis[MAX_AXES], n;
  int64_t items = items_of(p, axis, &n), stride = 1;
  for (unsigned i = 0; i < n; i++) {
    int64_t size = p->axes[axis[i]].size;
    struct uop *v = L->item, *by = lower_iconst(L, DT_I32, stride), *of = lower_iconst(L, DT_I32, size);
    if (stride > 1) v = lower_mk(L, OP_IDIV, DT_I32, 1, 0, 0, (struct uop *[]){v, by}, 2);
    if (stride * size < most) v = lower_mk(L, OP_MOD, DT_I32, 1, 0, 0, (struct uop *[]){v, of}, 2);
    L->axis_value[axis[i]] = size == 1 ? lower_iconst(L, DT_I32, 0) : v;
    stride *= size;
  }
  size_t count;
  struct uop **order = uop_toposort(&p->ast, 1, &count), *works = NULL;
  bool copies = !order;
  for (size_t i = 0; order && i < count; i++) copies = copies || order[i]->op == OP_STAGE;
  free(order);
  if (items < most && copies) return lower_fail(L, "a workgroup that is partly idle cannot share a copy");
  if (items < most)
    works = lower_mk(L, OP_CMPLT, DT_BOOL, 1, 0, 0, (struct uop *[]){L->item, lower_iconst(L, DT_I32, items)}, 2);
  return lower_open_inside(L, works, opened);
}

/* ---- rounds ----------------------------------------------------------------------------------------------------- */

/* Whether every element of the carried memory is accessed by one work-item only, at positions that are known at compile
 * time: only phase p accesses it, always at the same index, and without loops. */
static bool can_keep(const struct codegen *p, const struct uop *local) {
  size_t count;
  struct uop *ast = p->ast, **order = uop_toposort(&ast, 1, &count);
  uint64_t *mask = axis_masks(p, false), vectors = 0, mine;
  const struct uop *at = NULL;
  bool ok = order && mask;
  for (size_t i = 0; ok && i < count; i++) {
    if (order[i]->op != OP_INDEX || order[i]->src[0] != local) continue;
    ok = !at || at == order[i]->src[1]; /* conditions do not matter: registers exist for padding too */
    at = order[i]->src[1], mine = mask[at->id];
    for (unsigned a = 0; a < p->naxes; a++) {
      const struct axis *x = &p->axes[a];
      if (!(mine >> a & 1) || x->size == 1) continue;
      ok = ok && (x->kind == AXIS_UPCAST || x->kind == AXIS_LOCAL || x->kind == AXIS_GLOBAL) && !x->padded;
      if (x->vector) vectors |= UINT64_C(1) << a;
    }
  }
  free(order);
  free(mask);
  return ok && at && !(vectors & (vectors - 1));
}

/* Finds the carried memories that can be in registers. */
static void find_kept(struct lowerer *L) {
  const struct codegen *k = L->k;
  const struct uop *local[MAX_PHASE_MEMORIES] = {NULL};
  int user[MAX_PHASE_MEMORIES]; /* the only phase that uses the memory, or -1 */
  for (unsigned i = 0; i < k->nparts; i++) {
    size_t count;
    struct uop *ast = k->parts[i].ast, **order = uop_toposort(&ast, 1, &count);
    for (size_t n = 0; order && n < count; n++) {
      const struct uop *u = order[n];
      if (u->op != OP_LOCAL || !u->aux || u->arg.i < 0 || u->arg.i >= MAX_PHASE_MEMORIES) continue;
      user[u->arg.i] = local[u->arg.i] ? -1 : (int)i;
      local[u->arg.i] = u;
    }
    if (!order) lower_fail(L, "out of memory");
    free(order);
  }
  for (unsigned i = 0; i < MAX_PHASE_MEMORIES; i++)
    if (local[i] && user[i] >= 0 && can_keep(&k->parts[user[i]], local[i])) L->keeps |= UINT32_C(1) << i;
}

bool lower_is_kept(const struct lowerer *L, const struct uop *base) {
  return base->op == OP_LOCAL && base->arg.i >= 0 && base->arg.i < MAX_PHASE_MEMORIES && (L->keeps >> base->arg.i & 1);
}

/* The register of the element, or of all elements along the vector axis, at the current positions. */
static struct uop *kept_register(struct lowerer *L, const struct uop *index, int vec) {
  const struct uop *local = index->src[0];
  uint64_t code = lower_code_of(L, mask_of(L, index->src[1]));
  for (size_t i = 0; i < L->nkept; i++)
    if (L->kept[i].memory == local->arg.i && L->kept[i].code == code) return L->kept[i].pointer;
  if (L->nkept == L->kept_capacity) {
    size_t capacity = L->kept_capacity ? 2 * L->kept_capacity : 64;
    struct kept *more = realloc(L->kept, capacity * sizeof *more);
    if (!more) return lower_fail(L, "out of memory"), NULL;
    L->kept = more, L->kept_capacity = capacity;
  }
  unsigned lanes = vec < 0 ? 1 : (unsigned)L->k->axes[vec].size;
  struct uop *one = lower_iconst(L, DT_INDEX, 1), *zero = lower_iconst(L, DT_I32, 0);
  struct uop *reg = lower_mk(L, OP_REG, local->dtype, lanes, L->next_reg++, 0, &one, 1);
  struct uop *pointer = lower_mk(L, OP_INDEX, local->dtype, lanes, 0, 0, (struct uop *[]){reg, zero}, 2);
  struct uop *first = build_node(&L->b, uop_identity(L->b.g, local->aux, local->dtype));
  struct uop *begin[2] = {pointer, lower_broadcast(L, first, lanes)};
  lower_mk_in(L, L->before_rounds, OP_STORE, DT_VOID, begin, 2);
  L->kept[L->nkept++] = (struct kept){local->arg.i, code, pointer};
  return pointer;
}

static int vector_of(const struct lowerer *L, const struct uop *index) {
  uint64_t vec = lowest(mask_of(L, index->src[1]) & L->expanded & L->vectors);
  return vec ? __builtin_ctzll(vec) : -1;
}

struct uop *lower_kept_load(struct lowerer *L, struct uop *index) {
  int vec = vector_of(L, index), at = vec < 0 ? VEC : L->position[vec];
  if (vec >= 0) L->position[vec] = VEC;
  struct uop *pointer = kept_register(L, index, vec);
  if (vec >= 0) L->position[vec] = at;
  if (!pointer) return index;
  struct uop *src[2] = {pointer, L->kept_order};
  struct uop *v = lower_mk(L, OP_LOAD, pointer->dtype, pointer->lanes, 0, 0, src, 2);
  return vec >= 0 && at != VEC ? lower_gep(L, v, (unsigned)at) : v;
}

void lower_kept_store(struct lowerer *L, struct uop *index, struct uop *value) {
  struct uop *pointer = kept_register(L, index, vector_of(L, index));
  if (!pointer) return;
  struct uop *src[2] = {pointer, lower_broadcast(L, value, pointer->lanes)};
  lower_mk_in(L, deeper(L->main, lower_block_of(L, value)), OP_STORE, DT_VOID, src, 2);
}

/* Stores the identity elements of their operations to the memories that are carried from round to round. */
static void begin_carried(struct lowerer *L, struct block *in) {
  struct codegen *k = L->k;
  size_t count;
  struct uop **order = uop_toposort(&k->ast, 1, &count);
  for (size_t i = 0; order && i < count && !L->b.failed; i++) {
    const struct uop *local = order[i];
    if (local->op != OP_LOCAL || !local->aux || lower_is_kept(L, local)) continue;
    struct uop *memory = lower_phase_memory(L, local), *value = uop_identity(L->b.g, local->aux, local->dtype);
    int64_t n = local->src[0]->arg.i, items = k->block[0];
    struct uop *bound = lower_iconst(L, DT_I32, (n + items - 1) / items);
    struct uop *range =
        uop_new(L->g, OP_RANGE, DT_I32, 1, (union uop_arg){.i = L->next_range++}, AXIS_SERIAL, &bound, 1);
    struct block *loop = lower_block_open(L, in, range);
    struct uop *at = lower_index_op(L, OP_MUL, range, lower_iconst(L, DT_I32, items)), *valid = NULL;
    at = lower_index_op(L, OP_ADD, at, L->item);
    if (n % items) valid = lower_mk(L, OP_CMPLT, DT_BOOL, 1, 0, 0, (struct uop *[]){at, lower_iconst(L, DT_I32, n)}, 2);
    struct uop *src[3] = {memory, at, valid};
    struct uop *pointer = lower_mk(L, OP_INDEX, local->dtype, 1, 0, 0, src, valid ? 3 : 2);
    struct uop *store = lower_mk_in(L, loop, OP_STORE, DT_VOID, (struct uop *[]){pointer, build_node(&L->b, value)}, 2);
    lower_block_close(L, loop, &store, 1);
  }
  if (!order) lower_fail(L, "out of memory");
  free(order);
  end_phase(L, in);
}

/* The stores of a phase that depend on the range, or those that do not. NULL: there are none. */
static struct uop *stores_in(struct lowerer *L, const struct uop *ast, const struct uop *range, bool depend) {
  struct uop *store[2 * MAX_PHASE_MEMORIES];
  unsigned n = 0;
  if (ast->nsrc > sizeof store / sizeof *store) lower_fail(L, "a phase has too many stores");
  for (unsigned i = 0; i < ast->nsrc && !L->b.failed; i++) {
    size_t count;
    struct uop *s = ast->src[i], **order = uop_toposort(&s, 1, &count);
    bool found = false;
    if (!order) lower_fail(L, "out of memory");
    for (size_t k = 0; order && k < count; k++) found = found || order[k] == range;
    free(order);
    if (found == depend) store[n++] = s;
  }
  return n ? uop_new(L->g, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, store, n) : NULL;
}

/* ---- phases ----------------------------------------------------------------------------------------------------- */

/* Lowers stores of phase i in a block. value: of the axes around the phases. */
static bool lower_phase(struct lowerer *L, struct codegen *k, unsigned i, struct uop *stores, struct block *in,
                        struct uop *const *value) {
  struct codegen *p = &k->parts[i];
  struct uop *ast = p->ast;
  struct block *opened = NULL;
  p->ast = stores;
  if (!lower_prepare(L, p)) return false;
  for (unsigned a = 0; a < p->naxes; a++)
    for (unsigned s = 0; s < k->naxes; s++)
      if (p->axes[a].range == k->axes[s].range) L->axis_value[a] = value[s];
  L->main = in;
  if (has_items(L) && !assign_items(L, k->block[0], &opened)) return false;
  if (!lower_loops(L)) return false;
  if (opened) lower_block_close(L, opened, NULL, 0);
  end_phase(L, in);
  p->ast = ast;
  return !L->b.failed;
}

/* Lowers the stores of all phases that depend on the range, or those that do not; all if range is NULL. */
static bool lower_each(struct lowerer *L, struct codegen *k, const struct uop *range, bool depend, struct block *in,
                       struct uop *const *value) {
  for (unsigned i = 0; i < k->nparts && !L->b.failed; i++) {
    struct uop *ast = k->parts[i].ast, *stores = range ? stores_in(L, ast, range, depend) : ast;
    if (stores && !lower_phase(L, k, i, stores, in, value)) return false;
  }
  L->k = k;
  return !L->b.failed;
}

static bool lower_rounds(struct lowerer *L, struct codegen *k, unsigned axis, struct block *in, struct uop **value) {
  const struct uop *range = k->axes[axis].range;
  find_kept(L);
  begin_carried(L, in);
  struct block *round = lower_loop_open(L, in, axis, AXIS_SERIAL);
  L->before_rounds = in, L->kept_order = round->open;
  order_memories(L, round, round->open);
  value[axis] = round->open;
  if (!lower_each(L, k, range, true, round, value)) return false;
  struct uop *end = lower_block_close(L, round, NULL, 0);
  order_memories(L, in, end);
  value[axis] = NULL, L->kept_order = end;
  return lower_each(L, k, range, false, in, value);
}

bool lower_phases(struct lowerer *L) {
  struct codegen *k = L->k;
  unsigned global[MAX_AXES], nglobal = 0, nloops = 0;
  struct block *opened[MAX_AXES], *in = L->root;
  struct uop *value[MAX_AXES];
  int rounds = -1;
  if (!lower_prepare(L, k)) return false;
  for (unsigned d = 0; d < 3; d++) k->grid[d] = k->block[d] = 1;
  if (!make_items(L)) return false;
  for (unsigned a = k->naxes; a-- > 0;) /* innermost first */
    if (k->axes[a].kind == AXIS_GLOBAL) global[nglobal++] = a;
  if (!lower_grid(L, global, nglobal)) return false;
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].kind == AXIS_ORDERED)
      rounds = (int)a;
    else if (k->axes[a].kind != AXIS_GLOBAL)
      opened[nloops++] = in = lower_loop_open(L, in, a, AXIS_SERIAL);
  memcpy(value, L->axis_value, sizeof value);
  if (!(rounds < 0 ? lower_each(L, k, NULL, true, in, value) : lower_rounds(L, k, (unsigned)rounds, in, value)))
    return false;
  uint64_t bytes = k->local_bytes;
  for (unsigned i = 0; i < k->nparts; i++) bytes += k->parts[i].local_bytes;
  k->local_bytes = (uint32_t)bytes;
  if (bytes > k->target->local_bytes) return lower_fail(L, "the phases need more local memory than the target has");
  struct uop *end = NULL;
  while (nloops > 0 && !L->b.failed) end = lower_block_close(L, opened[--nloops], end ? &end : NULL, end ? 1 : 0);
  return !L->b.failed;
}
