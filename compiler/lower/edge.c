/* Lowers padded axes in two versions. Where a whole vector, tile or group of work-items is inside, the kernel runs
 * without the conditions that PAD steps added. Only at the edge it checks each element; there, and in kernels of one
 * version, hosts limit the rows instead. */
#include "lower.h"
#include <stdlib.h>
#include <string.h>

static bool is_true(const struct uop *u) { return u->op == OP_CONST && u->dtype == DT_BOOL && u->arg.i; }

/* Rebuilds u over src, which are simplified already, without conditions that became true. */
static struct uop *rebuild_simplified(struct graph *g, struct uop *u, struct uop *const *src) {
  if (u->op == OP_AND && u->nsrc > 1 && is_true(src[0])) return src[1];
  if (u->op == OP_AND && u->nsrc > 1 && is_true(src[1])) return src[0];
  if (u->op == OP_WHERE && u->nsrc > 1 && is_true(src[0])) return src[1];
  unsigned n = u->nsrc;
  if (u->op == OP_INDEX && n > 2 && is_true(src[2])) n = 2;
  if (u->op == OP_LOAD && u->src[0]->nsrc > 2 && src[0]->nsrc == 2) n = 1;
  return uop_new(g, u->op, u->dtype, u->lanes, u->arg, u->aux, src, n);
}

/* Two versions are not possible with an MMA or fragments: all lanes of a wave take part in an MMA or a shuffle, so a
 * wave cannot be in both versions. Nor are they with a STAGE, which is filled outside the loops that use it, so each
 * version would need its own copy. What KEEP keeps of a row is the same in both versions, or each computes it. */
static bool needs_one_version(const struct codegen *k) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  bool found = !order, kept = plan_has(&k->plan, STEP_KEEP);
  for (unsigned a = 0; a < k->naxes; a++) found = found || k->axes[a].fragment;
  for (size_t i = 0; i < count && !found; i++) found = (order[i]->op == OP_STAGE && !kept) || order[i]->op == OP_MMA;
  free(order);
  return found;
}

/* Returns `from` with the guards replaced by true, or NULL if memory runs out. */
static struct uop *without_guards(struct codegen *k, struct uop *from, struct uop *const *guard, unsigned nguards) {
  size_t count, room = graph_node_count(k->g);
  struct uop **order = uop_toposort(&from, 1, &count), **map = calloc(room, sizeof *map), *result = NULL;
  if (order && map) {
    for (unsigned i = 0; i < nguards; i++)
      map[guard[i]->id] = uop_new(k->g, OP_CONST, DT_BOOL, 1, (union uop_arg){.i = 1}, 0, NULL, 0);
    for (size_t i = 0; i < count; i++) {
      struct uop *u = order[i], *few[8] = {0}, **src = few;
      if (map[u->id]) continue;
      bool same = true;
      if (u->nsrc > 8 && !(src = malloc(u->nsrc * sizeof *src))) goto out;
      for (unsigned s = 0; s < u->nsrc; s++) src[s] = map[u->src[s]->id], same = same && src[s] == u->src[s];
      map[u->id] = same ? u : rebuild_simplified(k->g, u, src);
      if (src != few) free(src);
    }
    result = map[from->id];
  }
out:
  free(order);
  free(map);
  return result;
}

/* Whether a version is for all positions of the axis at once: of expanded axes, and of work-items that meet at
 * barriers. */
static bool is_whole(const struct lowerer *L, unsigned axis) {
  enum axis_kind kind = L->k->axes[axis].kind;
  return (L->expanded >> axis & 1) || kind == AXIS_GROUP || (L->grouped && kind == AXIS_LOCAL);
}

/* Whether the guard holds for all positions of such axes if it holds for the first or last one of each; sets *first to
 * the axes of which the first decides. It may not if a position is a remainder, which begins again at 0. */
static bool ends_decide(const struct lowerer *L, const struct uop *guard, uint64_t *first) {
  struct affine a; /* > 0 where the guard holds */
  uint64_t whole = 0;
  *first = 0;
  for (unsigned i = 0; i < L->k->naxes; i++)
    if (is_whole(L, i)) whole |= UINT64_C(1) << i;
  if (guard->op != OP_CMPLT) return false;
  affine_of(uop_binary(L->g, OP_SUB, guard->src[1], guard->src[0]), &a);
  for (unsigned i = 0; i < a.n; i++) {
    uint64_t own = mask_of(L, a.term[i]) & whole;
    if (own && a.term[i]->op != OP_RANGE) return false;
    if (a.coef[i] > 0) *first |= own;
  }
  return true;
}

/* The axes that reductions and stages bind. */
static uint64_t bound_axes(const struct lowerer *L, struct uop *const *order, size_t count) {
  uint64_t bound = 0;
  for (size_t i = 0; i < count; i++)
    if (order[i]->op == OP_REDUCE || order[i]->op == OP_STAGE) bound |= lower_bound_axes(L, order[i]);
  return bound;
}

/* The address of a load without the conditions that `guard` holds. */
static struct uop *limit_address(struct graph *g, struct uop *index, struct uop *const *guard, unsigned n) {
  for (unsigned i = 0; i < n && index->nsrc > 2; i++) {
    struct uop *x = guard[i]->src[0], *rest = condition_without(g, index->src[2], guard[i]);
    struct affine address;
    affine_of(index->src[1], &address);
    int64_t factor = affine_factor(&address, x);
    if (rest == index->src[2] || factor <= 0) continue;
    struct uop *at = limit_position(g, index->src[1], x, guard[i]->src[1]->arg.i - 1, factor);
    struct uop *src[] = {index->src[0], at, rest};
    index = uop_new(g, OP_INDEX, index->dtype, 1, index->arg, index->aux, src, rest ? 3 : 2);
  }
  return index;
}

/* Hosts load the last row in place of rows past the end of outputs: a register tile then needs an address for each of
 * its rows, not a condition for each load. What is computed from such rows is not stored. Along vectors conditions
 * stay. Returns the ast with such loads, or NULL if memory runs out. */
static struct uop *limit_rows(const struct lowerer *L) {
  const struct codegen *k = L->k;
  struct uop *ast = k->ast, *guard[MAX_GUARDS];
  if (k->target->kind != TARGET_HOST || k->is_phase || !k->nguards) return ast;
  size_t count;
  struct uop **order = uop_toposort(&ast, 1, &count), **from = order ? malloc(2 * count * sizeof *from) : NULL;
  struct uop **to = from ? from + count : NULL;
  uint64_t not = order ? L->vectors | bound_axes(L, order, count) : 0;
  unsigned n = 0, nloads = 0;
  for (unsigned i = 0; i < k->nguards; i++) {
    struct uop *g = k->guard[i];
    bool limits = g->op == OP_CMPLT && g->src[0]->dtype == DT_INDEX && g->src[1]->op == OP_CONST;
    if (limits && mask_of(L, g) && !(mask_of(L, g) & not)) guard[n++] = g;
  }
  for (size_t i = 0; from && n && i < count; i++) {
    struct uop *load = order[i], *index = load->op == OP_LOAD ? load->src[0] : NULL;
    if (!index || index->op != OP_INDEX || is_stored(k, index)) continue;
    struct uop *limited = limit_address(k->g, index, guard, n);
    if (limited == index) continue;
    struct uop *src[] = {uop_substitute(k->g, limited, from, to, nloads), load->src[load->nsrc - 1]};
    from[nloads] = load;
    to[nloads++] = uop_new(k->g, OP_LOAD, load->dtype, load->lanes, load->arg, load->aux, src,
                           limited->nsrc == 2 ? 1 : load->nsrc);
  }
  ast = from ? uop_substitute(k->g, ast, from, to, nloads) : NULL;
  free(order);
  free(from);
  return ast;
}

/* Chooses the guards that the versions check. Guards over axes of outputs are checked once for a whole body, inside
 * every loop on which one of them depends. A reduction that depends on a guarded axis runs inside that check. If that
 * is inside a loop on which the reduction does not depend, it would be repeated in each round; then versions differ
 * only in axes on which no reduction depends, and guards over other axes alone stay as they are. So do guards over axes
 * that are bound by a reduction or a stage. */
static bool choose_guards(struct lowerer *L, struct edge *e) {
  const struct codegen *k = L->k;
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  if (!order) return lower_fail(L, "out of memory");
  uint64_t loops = 0, inner = bound_axes(L, order, count), outer = 0, first;
  free(order);
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].kind == AXIS_SERIAL || k->axes[a].kind == AXIS_LOOP) loops |= UINT64_C(1) << a;
  for (unsigned i = 0; i < L->nreduces; i++) outer |= mask_of(L, L->reduces[i]);
  bool again = false;
  for (unsigned pass = 0; pass < (again ? 2 : 1); pass++) {
    e->n = 0, e->axes = 0;
    for (unsigned i = 0; i < k->nguards; i++) {
      uint64_t m = mask_of(L, k->guard[i]);
      if (!m || (m & inner) || (pass && !(m & ~outer)) || !ends_decide(L, k->guard[i], &first)) continue;
      e->guard[e->n++] = k->guard[i], e->axes |= pass ? m & ~outer : m;
    }
    for (unsigned i = 0; i < L->nreduces; i++) {
      uint64_t own = mask_of(L, L->reduces[i]);
      again = again || ((own & e->axes) && (e->axes & loops & ~own));
    }
  }
  return true;
}

static bool find_whole(struct lowerer *L, struct edge *e) {
  struct codegen *k = L->k;
  struct uop *ast = k->ast;
  *e = (struct edge){0};
  L->one_version = k->nguards && !k->is_phase && needs_one_version(k);
  if (!k->nguards || needs_one_version(k)) return true;
  if (!choose_guards(L, e)) return false;
  for (unsigned s = 0; s < ast->nsrc; s++) /* both versions would make a store that is outside the check */
    if (e->axes & ~mask_of(L, ast->src[s])) e->n = 0;
  if (!e->n) return true;
  e->whole = without_guards(k, ast, e->guard, e->n);
  return e->whole ? lower_add_masks(L, &e->whole, 1) : lower_fail(L, "out of memory");
}

bool edge_find(struct lowerer *L, struct edge *e) {
  if (!find_whole(L, e)) return false;
  struct codegen *k = L->k;
  struct uop *edge = limit_rows(L);
  if (!edge) return lower_fail(L, "out of memory");
  if (edge != k->ast && !lower_add_masks(L, &edge, 1)) return false;
  k->ast = edge;
  return true;
}

/* The guard for all positions of the axes of which a version is for all. */
static struct uop *guard_of_all(const struct lowerer *L, struct uop *guard) {
  const struct codegen *k = L->k;
  struct uop *from[MAX_AXES], *to[MAX_AXES];
  uint64_t first;
  unsigned n = 0;
  ends_decide(L, guard, &first);
  for (unsigned a = 0; a < k->naxes; a++) {
    if (!is_whole(L, a)) continue;
    from[n] = k->axes[a].range, to[n++] = uop_index(k->g, first >> a & 1 ? 0 : k->axes[a].size - 1);
  }
  return uop_substitute(k->g, guard, from, to, n);
}

/* Returns the condition that the guards hold for all positions of expanded axes, and for all work-items that meet at
 * barriers, at the current ids and loop counters. NULL if it never holds or always holds. */
struct uop *edge_inside(struct lowerer *L, const struct edge *e) {
  struct uop *inside = NULL;
  for (unsigned i = 0; i < e->n; i++) {
    struct uop *guard = guard_of_all(L, e->guard[i]), *ok = NULL;
    if (!uop_max(guard)) return NULL;
    /* Its axes must be known: a nested version forgets what depends on them. */
    if (!uop_min(guard) && lower_add_masks(L, &guard, 1)) ok = lower_eval(L, guard);
    if (L->b.failed) return NULL;
    if (!ok) continue;
    inside = inside ? build_alu(&L->b, OP_AND, DT_BOOL, (struct uop *[]){inside, ok}, 2) : ok;
  }
  return inside;
}

bool edge_is_last(const struct lowerer *L, const struct edge *e, uint64_t loop) {
  const struct axis *a = &L->k->axes[__builtin_ctzll(loop)];
  struct uop *range = a->range, *before = uop_range(L->g, uop_index(L->g, a->size - 1), range->arg.i, a->kind);
  bool last = true;
  for (unsigned i = 0; i < e->n; i++)
    last = last && uop_min(uop_substitute(L->g, guard_of_all(L, e->guard[i]), &range, &before, 1));
  return last;
}

/* Whether a STAGE in the value is filled in each round over the axes. */
static bool is_filled_over(const struct lowerer *L, struct uop *value, uint64_t axes) {
  size_t count;
  struct uop **order = uop_toposort(&value, 1, &count);
  bool found = !order;
  for (size_t i = 0; i < count && !found; i++) found = order[i]->op == OP_STAGE && (mask_of(L, order[i]) & axes);
  free(order);
  return found;
}

/* Adds the terms of the condition that depend only on the axes. */
static void add_guards(const struct lowerer *L, struct uop *when, uint64_t axes, struct edge *e) {
  uint64_t m = mask_of(L, when), first;
  if (when->op == OP_AND) {
    add_guards(L, when->src[0], axes, e);
    add_guards(L, when->src[1], axes, e);
    return;
  }
  bool known = false;
  for (unsigned i = 0; i < e->n; i++) known = known || e->guard[i] == when;
  if (known || e->n == MAX_GUARDS || !m || (m & ~axes) || !ends_decide(L, when, &first)) return;
  e->guard[e->n++] = when, e->axes |= m;
}

/* A matrix instruction has padded axes of its own for each operand: adds the conditions of the loads of both. */
static void add_operand_guards(const struct lowerer *L, struct uop *mma, uint64_t own, struct edge *e) {
  size_t count;
  struct uop **order = uop_toposort(&mma, 1, &count);
  own |= lower_bound_axes(L, mma);
  for (size_t i = 0; order && i < count; i++)
    if (order[i]->op == OP_INDEX && order[i]->nsrc > 2) add_guards(L, order[i]->src[2], own, e);
  free(order);
}

bool edge_of_rounds(struct lowerer *L, uint64_t own, struct uop *const *value, unsigned n, struct edge *e,
                    struct uop **whole) {
  struct codegen *k = L->k;
  *e = (struct edge){0};
  for (unsigned i = 0; i < k->nguards; i++) add_guards(L, k->guard[i], own, e);
  for (unsigned i = 0; i < n; i++)
    if (value[i]->op == OP_MMA) add_operand_guards(L, value[i], own, e);
  if (!(e->axes & ~L->expanded)) return false;
  bool differs = false;
  for (unsigned i = 0; i < n; i++) {
    if (is_filled_over(L, value[i], own)) return false;
    if (!(whole[i] = without_guards(k, value[i], e->guard, e->n))) return lower_fail(L, "out of memory");
    differs = differs || whole[i] != value[i];
  }
  return differs && lower_add_masks(L, whole, n);
}

void edge_forget(struct lowerer *L, uint64_t axes) {
  size_t n = 0;
  for (size_t i = 0; i < L->memo_cap; i++)
    if (L->memo[i].key) n++;
  struct memo *kept = malloc((n ? n : 1) * sizeof *kept);
  if (!kept) {
    lower_fail(L, "out of memory");
    return;
  }
  n = 0;
  for (size_t i = 0; i < L->memo_cap; i++)
    if (L->memo[i].key && !(mask_of(L, L->memo[i].key) & axes)) kept[n++] = L->memo[i];
  memset(L->memo, 0, L->memo_cap * sizeof *L->memo);
  L->memo_n = 0;
  for (size_t i = 0; i < n; i++) lower_memo_put(L, kept[i].key, kept[i].code, kept[i].value);
  free(kept);
}

struct block *edge_open(struct lowerer *L, struct block *in, struct uop *inside, unsigned version, uint64_t loops,
                        struct uop *const *before) {
  struct uop *one = build_int(&L->b, DT_BOOL, 1);
  struct uop *outside = build_alu(&L->b, OP_XOR, DT_BOOL, (struct uop *[]){inside, one}, 2);
  struct block *opened = lower_if_open(L, in, version ? outside : inside);
  edge_forget(L, loops);
  for (uint64_t m = loops; m; m &= m - 1) {
    struct uop *v = before[__builtin_ctzll(m)];
    struct uop *now = lower_mk_in(L, opened, OP_AFTER, v->dtype, (struct uop *[]){v, opened->open}, 2);
    L->axis_value[__builtin_ctzll(m)] = now;
  }
  return opened;
}
