/* Choices that are the same for all elements in most rounds of phases, such as the mask of a causal attention: the
 * rounds that are completely below the diagonal choose the score for all elements. Values that stay in registers are
 * first computed with the choice of these rounds. In the other rounds, a region that the whole workgroup enters or
 * skips computes them again with all choices. Reductions and loads are evaluated once, before the region. */
#include "lower.h"
#include <stdlib.h>
#include <string.h>

struct uop *lower_holds_for_all(struct lowerer *L, struct uop *term, uint64_t elements) {
  if (term->op == OP_CONST) return term->arg.i ? term : NULL;
  if (term->op == OP_AND) {
    struct uop *x = lower_holds_for_all(L, term->src[0], elements);
    struct uop *y = x ? lower_holds_for_all(L, term->src[1], elements) : NULL;
    return !y || x->op == OP_CONST ? y : y->op == OP_CONST ? x : uop_binary(L->g, OP_AND, x, y);
  }
  if (term->op != OP_CMPLT || term->src[0]->dtype != DT_INDEX) return NULL;
  struct affine a;
  affine_of(uop_binary(L->g, OP_SUB, term->src[1], term->src[0]), &a);
  struct uop *same = NULL;
  int64_t least = a.constant, bound;
  for (unsigned i = 0; i < a.n; i++) {
    if (axes_below(L->k, a.term[i]) & elements) { /* not mask_of: the term may be new */
      if (__builtin_mul_overflow(a.coef[i], a.coef[i] > 0 ? uop_min(a.term[i]) : uop_max(a.term[i]), &bound) ||
          __builtin_add_overflow(least, bound, &least))
        return NULL;
      continue;
    }
    struct uop *v = uop_binary(L->g, OP_MUL, a.term[i], uop_index(L->g, a.coef[i]));
    same = same ? uop_binary(L->g, OP_ADD, same, v) : v;
  }
  if (!same) return least > 0 ? uop_new(L->g, OP_CONST, DT_BOOL, 1, (union uop_arg){.i = 1}, 0, NULL, 0) : NULL;
  struct uop *holds = uop_binary(L->g, OP_CMPLT, uop_index(L->g, -least), same);
  return uop_max(holds) ? holds : NULL;
}

/* The axes along which elements of one round differ: all but those around the phases. */
static uint64_t axes_of_round(const struct codegen *k) {
  uint64_t axes = 0;
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].kind != AXIS_GLOBAL) axes |= UINT64_C(1) << a;
  return axes;
}

/* The same value as an index, or NULL: positions are compared as integers that programs made of them. */
static struct uop *as_index(struct lowerer *L, struct uop *u) {
  if (u->dtype == DT_INDEX) return u;
  if (u->dtype != DT_I32 && u->dtype != DT_I64) return NULL;
  struct uop *v = NULL, *src[2] = {NULL, NULL};
  if (u->op == OP_CONST) return uop_index(L->g, u->arg.i);
  for (unsigned s = 0; s < u->nsrc && s < 2; s++) src[s] = as_index(L, u->src[s]);
  if (u->op == OP_CAST)
    v = src[0];
  else if ((u->op == OP_ADD || u->op == OP_SUB || u->op == OP_MUL) && src[0] && src[1])
    v = uop_binary(L->g, u->op, src[0], src[1]);
  return v && (u->dtype == DT_I64 || fits32(uop_min(v), uop_max(v))) ? v : NULL;
}

/* The source of a WHERE that all elements choose if *when holds, a condition on round and block; NULL: there is none.
 */
static struct uop *choice_of_all(struct lowerer *L, const struct uop *where, struct uop **when) {
  uint64_t elements = axes_of_round(L->k);
  const struct uop *c = where->src[0];
  struct uop *x = c->op == OP_CMPLT ? as_index(L, c->src[0]) : NULL, *y = x ? as_index(L, c->src[1]) : NULL;
  if (!y) return NULL;
  struct uop *not = uop_binary(L->g, OP_CMPLT, y, uop_binary(L->g, OP_ADD, x, uop_index(L->g, 1)));
  if ((*when = lower_holds_for_all(L, not, elements))) return where->src[2];
  *when = lower_holds_for_all(L, uop_binary(L->g, OP_CMPLT, x, y), elements);
  return *when ? where->src[1] : NULL;
}

/* Rebuilds the STORE without such choices outside reductions. Returns NULL if there are none. Sets *when to the
 * condition under which that is correct. */
static struct uop *without_choices(struct lowerer *L, struct uop *store, struct uop **when) {
  size_t count, room = graph_node_count(L->g);
  struct uop **order = uop_toposort(&store, 1, &count), **map = calloc(room, sizeof *map);
  bool ok = order && map;
  *when = NULL;
  for (size_t i = 0; ok && i < count; i++) {
    struct uop *u = order[i], *src[4], *holds = NULL, *chosen = NULL;
    map[u->id] = u;
    if (u->op == OP_REDUCE || u->op == OP_LOAD || u->nsrc > 4) continue; /* they are evaluated once */
    if (u->op == OP_WHERE) chosen = choice_of_all(L, u, &holds);
    bool same = !chosen;
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): sources precede a node in the order
    for (unsigned s = 0; s < u->nsrc; s++) src[s] = map[u->src[s]->id], same = same && src[s] == u->src[s];
    if (chosen) map[u->id] = map[chosen->id];
    if (chosen && holds->op != OP_CONST && holds != *when)
      *when = *when ? uop_binary(L->g, OP_AND, *when, holds) : holds;
    if (!same && !chosen) map[u->id] = uop_with_src(L->g, u, src);
  }
  for (unsigned i = 0; ok && i < L->nreduces; i++) /* the sum would begin with another value */
    for (size_t n = 0; L->added[i] && n < count; n++)
      ok = ok && (order[n] != L->added[i] || map[order[n]->id] == order[n]);
  struct uop *plain = ok && *when && map[store->id] != store ? map[store->id] : NULL;
  free(order);
  free(map);
  return plain;
}

static bool reads_memory_of(struct uop *store) {
  size_t count;
  struct uop *value = store->src[1], **order = uop_toposort(&value, 1, &count);
  bool found = !order;
  for (size_t i = 0; i < count && order; i++) found = found || order[i] == store->src[0]->src[0];
  free(order);
  return found;
}

struct uop *lower_plain_store(struct lowerer *L, struct uop *store, struct uop **when) {
  int round = axis_of_rounds(L->k);
  struct uop *made[2];
  if (round < 0 || L->k->target->kind == TARGET_HOST || !lower_is_kept(L, store->src[0]->src[0])) return NULL;
  if (reads_memory_of(store) || !(made[0] = without_choices(L, store, when))) return NULL;
  made[1] = *when;
  return lower_add_masks(L, made, 2) ? made[0] : NULL;
}

struct chosen lower_choices_open(struct lowerer *L, struct uop *when) {
  int round = axis_of_rounds(L->k);
  struct uop *same = lower_eval(L, when), *one = build_int(&L->b, DT_BOOL, 1);
  struct chosen c = {L->main, L->memo, L->memo_cap, L->memo_n, L->axis_value[round]};
  L->memo = calloc(c.cap, sizeof *L->memo); /* what the region evaluates is not valid after it */
  if (!L->memo) {
    L->memo = c.memo, c.memo = NULL;
    lower_fail(L, "out of memory");
    return c;
  }
  L->memo_n = 0;
  L->main = lower_if_open(L, c.main, build_alu(&L->b, OP_XOR, DT_BOOL, (struct uop *[]){same, one}, 2));
  /* indices that depend on the round, and therefore conditions, are evaluated again in the region */
  L->axis_value[round] = lower_mk_in(L, L->main, OP_AFTER, c.round->dtype, (struct uop *[]){c.round, L->main->open}, 2);
  for (size_t i = 0; i < c.cap; i++) {
    const struct memo *m = &c.memo[i];
    if (m->key && !(m->key->dtype == DT_INDEX && (mask_of(L, m->key) >> round & 1)))
      lower_memo_put(L, m->key, m->code, m->value);
  }
  return c;
}

void lower_choices_close(struct lowerer *L, const struct chosen *c) {
  if (!c->memo) return;
  if (!L->b.failed) lower_block_close(L, L->main, NULL, 0);
  free(L->memo);
  L->main = c->main, L->memo = c->memo, L->memo_cap = c->cap, L->memo_n = c->n;
  L->axis_value[axis_of_rounds(L->k)] = c->round;
}
