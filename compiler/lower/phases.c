/* Phases: kernels that run one after the other in each round of the loops around them, and pass values through memory
 * that is private to a work-item of the host, or shared by the workgroup of a GPU. Each phase is lowered inside these
 * loops like a kernel. A copy or computation in a phase that does not change along one of the loops is placed before
 * that loop and serves all its rounds. On GPUs the phases use the same work-items; a phase may leave some of them idle.
 * Memory of which each work-item accesses only its own elements is in registers; a barrier follows each phase that
 * accesses other memory of phases.
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
static void end_phase(struct lowerer *L, struct block *in, bool shares) {
  struct uop *last = in->n ? in->item[in->n - 1] : NULL;
  if (L->b.failed || !last) return;
  L->kept_order = last;
  if (!shares) return;
  if (has_items(L)) last = lower_mk_in(L, in, OP_BARRIER, DT_VOID, &last, 1);
  order_memories(L, in, last);
}

/* Whether some work-items access memory of phases that others access too. */
static bool shares_memory(const struct lowerer *L, const struct uop *ast) {
  size_t count;
  struct uop *root = (struct uop *)(uintptr_t)ast, **order = uop_toposort(&root, 1, &count);
  bool found = !order;
  for (size_t i = 0; order && i < count; i++)
    found = found || (order[i]->op == OP_LOCAL && !lower_is_kept(L, order[i]));
  free(order);
  return found;
}

/* ---- work-items ------------------------------------------------------------------------------------------------- */

static bool is_item(const struct axis *a) { return a->kind == AXIS_LOCAL || (a->kind == AXIS_GROUP && a->fragment); }

/* Lists the axes of a phase that are work-items, lanes of a wave first, then columns before rows: adjacent lanes access
 * adjacent columns, and the same row. Returns the number of work-items. */
static int64_t items_of(const struct codegen *p, unsigned *axis, unsigned *n) {
  int64_t items = 1;
  *n = 0;
  for (unsigned pass = 0; pass < 2; pass++)
    for (unsigned i = 0; i < p->naxes; i++) {
      unsigned a = pass ? p->naxes - 1 - i : i;
      if (!is_item(&p->axes[a]) || p->axes[a].fragment == pass) continue;
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
  k->block[0] = (uint32_t)most, L->items = most;
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
    L->stride[axis[i]] = stride;
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
  L->idle = works;
  return lower_open_inside(L, works, opened);
}

/* ---- rounds ----------------------------------------------------------------------------------------------------- */

/* How the elements at an index of a memory are distributed: its position is the sum of coef times the digit of the
 * work-item's number of that size at that stride, plus an element of the work-item's registers. */
struct spread {
  struct digit {
    int64_t coef, stride, size;
  } digit[MAX_AXES];
  unsigned n;
  int64_t items; /* of the phase */
};

static int by_coef(const void *a, const void *b) {
  const struct digit *x = a, *y = b;
  return x->coef < y->coef ? -1 : x->coef > y->coef;
}

/* Whether no two positions are one element. */
static bool are_distinct(struct digit *digit, unsigned n) {
  int64_t most = 0;
  qsort(digit, n, sizeof *digit, by_coef);
  for (unsigned i = 0; i < n; i++) {
    if (digit[i].coef <= most) return false;
    most += digit[i].coef * (digit[i].size - 1);
  }
  return true;
}

/* Describes the distribution of an index in phase p. stride: of the axes of work-items. Returns false if the position
 * of an element depends on more than work-items and on what is known at compile time. */
static bool spread_of(const struct codegen *p, const int64_t *stride, struct uop *index, struct spread *out) {
  struct digit all[2 * MAX_AXES];
  struct affine f;
  unsigned n = 0;
  affine_of(index, &f);
  out->n = 0;
  for (unsigned i = 0; i < f.n; i++) {
    int a = (int)p->naxes - 1;
    while (a >= 0 && p->axes[a].range != f.term[i]) a--;
    if (a < 0 || f.coef[i] < 1 || p->axes[a].padded) return false;
    const struct axis *x = &p->axes[a];
    if (x->size == 1) continue;
    all[n++] = (struct digit){f.coef[i], 0, x->size};
    if (x->kind == AXIS_UPCAST || x->kind == AXIS_UNROLL) continue;
    if (!is_item(x)) return false;
    int64_t size = x->size & (x->size - 1) ? x->size : 2, bits = size == 2 ? __builtin_ctzll((uint64_t)x->size) : 1;
    if (out->n + bits > MAX_AXES) return false;
    for (int64_t b = 0; b < bits; b++) out->digit[out->n++] = (struct digit){f.coef[i] << b, stride[a] << b, size};
  }
  qsort(out->digit, out->n, sizeof *out->digit, by_coef);
  return are_distinct(all, n);
}

static bool same_spread(const struct spread *a, const struct spread *b) {
  bool same = a->n == b->n && a->items == b->items;
  for (unsigned i = 0; same && i < a->n; i++)
    same = a->digit[i].coef == b->digit[i].coef && a->digit[i].stride == b->digit[i].stride &&
           a->digit[i].size == b->digit[i].size;
  return same;
}

/* Finds the memories of which every work-item accesses only its own elements, at positions that are known at compile
 * time. They are in registers. */
static void find_kept(struct lowerer *L) {
  const struct codegen *k = L->k;
  struct spread *first = calloc(MAX_PHASE_MEMORIES, sizeof *first), now;
  uint32_t found = 0, shared = 0;
  for (unsigned i = 0; first && i < k->nparts; i++) {
    const struct codegen *p = &k->parts[i];
    unsigned axis[MAX_AXES], naxes;
    int64_t stride[MAX_AXES] = {0}, items = items_of(p, axis, &naxes), step = 1;
    for (unsigned n = 0; n < naxes; n++) stride[axis[n]] = step, step *= p->axes[axis[n]].size;
    size_t count;
    struct uop *ast = p->ast, **order = uop_toposort(&ast, 1, &count);
    for (size_t n = 0; order && n < count; n++) {
      const struct uop *base = order[n]->op == OP_INDEX ? order[n]->src[0] : NULL;
      if (!base || base->op != OP_LOCAL || base->arg.i < 0 || base->arg.i >= MAX_PHASE_MEMORIES) continue;
      uint32_t bit = UINT32_C(1) << base->arg.i;
      bool ok = spread_of(p, stride, order[n]->src[1], &now);
      now.items = items;
      if (!ok || ((found & bit) && !same_spread(&now, &first[base->arg.i]))) shared |= bit;
      if (!(found & bit)) first[base->arg.i] = now;
      found |= bit;
    }
    if (!order) lower_fail(L, "out of memory");
    free(order);
  }
  if (!first) lower_fail(L, "out of memory");
  free(first);
  L->keeps = found & ~shared, L->passes = found;
}

bool lower_is_kept(const struct lowerer *L, const struct uop *base) {
  return base->op == OP_LOCAL && base->arg.i >= 0 && base->arg.i < MAX_PHASE_MEMORIES && (L->keeps >> base->arg.i & 1);
}

/* The register of the element at the current positions. */
static struct uop *kept_register(struct lowerer *L, const struct uop *index) {
  const struct uop *local = index->src[0];
  struct affine f;
  affine_of(index->src[1], &f);
  int64_t element = f.constant;
  for (unsigned i = 0; i < f.n; i++) {
    uint64_t m = mask_of(L, f.term[i]) & L->expanded;
    if (m) element += f.coef[i] * L->position[__builtin_ctzll(m)];
  }
  for (size_t i = 0; i < L->nkept; i++)
    if (L->kept[i].memory == local->arg.i && L->kept[i].element == element) return L->kept[i].pointer;
  if (L->nkept == L->kept_capacity) {
    size_t capacity = L->kept_capacity ? 2 * L->kept_capacity : 64;
    struct kept *more = realloc(L->kept, capacity * sizeof *more);
    if (!more) return lower_fail(L, "out of memory"), NULL;
    L->kept = more, L->kept_capacity = capacity;
  }
  struct uop *one = lower_iconst(L, DT_INDEX, 1), *zero = lower_iconst(L, DT_I32, 0);
  struct uop *reg = lower_mk(L, OP_REG, local->dtype, 1, L->next_reg++, 0, &one, 1);
  struct uop *pointer = lower_mk(L, OP_INDEX, local->dtype, 1, 0, 0, (struct uop *[]){reg, zero}, 2);
  if (local->aux) {
    struct uop *begin[2] = {pointer, build_node(&L->b, uop_identity(L->b.g, local->aux, local->dtype))};
    lower_mk_in(L, L->before_rounds, OP_STORE, DT_VOID, begin, 2);
  }
  L->kept[L->nkept++] = (struct kept){local->arg.i, element, pointer};
  return pointer;
}

struct uop *lower_kept_load(struct lowerer *L, struct uop *index) {
  struct uop *pointer = kept_register(L, index);
  if (!pointer) return index;
  return lower_mk(L, OP_LOAD, pointer->dtype, 1, 0, 0, (struct uop *[]){pointer, L->kept_order}, 2);
}

void lower_kept_store(struct lowerer *L, struct uop *index, struct uop *value) {
  struct uop *pointer = kept_register(L, index), *src[2] = {pointer, value};
  if (pointer) lower_mk_in(L, deeper(L->main, lower_block_of(L, value)), OP_STORE, DT_VOID, src, 2);
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
    int64_t n = local->src[0]->arg.i, items = L->items;
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
  bool shares = shares_memory(L, k->ast);
  if (!order) lower_fail(L, "out of memory");
  free(order);
  if (shares) end_phase(L, in, true);
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

/* Expands the loops of one round, which would keep copies and registers inside them. */
static void expand_single_rounds(struct codegen *p) {
  for (unsigned a = 0; a < p->naxes && p->target->kind != TARGET_HOST; a++) {
    struct axis *x = &p->axes[a];
    if (x->size == 1 && x->range->src[0]->op == OP_CONST && x->kind <= AXIS_SERIAL && !x->padded)
      x->kind = x->kind == AXIS_REDUCE ? AXIS_UNROLL : AXIS_UPCAST;
  }
}

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
  if (has_items(L) && !assign_items(L, L->items, &opened)) return false;
  if (!lower_loops(L)) return false;
  for (unsigned b = 0; b < L->npipelines; b++)
    if (L->pipeline[b].boxed) lower_boxes_read(L, &L->pipeline[b]);
  if (opened) lower_block_close(L, opened, NULL, 0);
  end_phase(L, in, shares_memory(L, stores));
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
  L->fetching = 0;
  for (unsigned i = 0; i < k->nparts; i++) {
    int a = axis_of_rounds(&k->parts[i]);
    if (!lower_prepare(L, &k->parts[i])) return false;
    L->fetching += a >= 0 && lower_fetches_ahead(L, (unsigned)a);
  }
  if (!lower_prepare(L, k)) return false;
  memcpy(L->axis_value, value, sizeof L->axis_value);
  find_kept(L);
  begin_carried(L, in);
  if (!lower_boxes_of_phases(L, k, axis, in, value)) return false;
  struct block *round = lower_loop_open(L, in, axis, AXIS_SERIAL);
  for (unsigned i = 0; i < L->nboxed; i++) L->boxed[i].body = L->boxed[i].axis < 0 ? in : round;
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
  for (unsigned i = 0; i < k->nparts; i++) expand_single_rounds(&k->parts[i]);
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
  if (bytes > (uses_groups(k) ? k->target->group_bytes : k->target->local_bytes))
    return lower_fail(L, "the phases need more local memory than the target has");
  struct uop *end = NULL;
  while (nloops > 0 && !L->b.failed) end = lower_block_close(L, opened[--nloops], end ? &end : NULL, end ? 1 : 0);
  return !L->b.failed;
}
