/* Kernels that write their result over an operand.
 *
 * A kernel that computes each element of its result from the same element of a temporary that no later item uses (a
 * residual connection, the sum of two gradients) gets that temporary as its result: the cache already holds its lines,
 * and one array less is in memory. In the kernel, the loads of the operand become loads of the output, at the index
 * that is written. */
#include "scheduler.h"
#include <stdlib.h>
#include <string.h>

struct life {
  uint32_t first, last; /* items that use the temporary */
  bool plain;           /* only kernels on its device use it, with offset 0 */
  struct uop *now;      /* the buffer that it is in */
};

struct overwriting {
  struct scheduler *s;
  struct uop_map index; /* of a temporary, plus 1 */
  struct life *life;
};

static struct life *life_of(const struct overwriting *o, const struct uop *b) {
  size_t at = (size_t)uop_map_get(&o->index, b);
  return at ? &o->life[at - 1] : NULL;
}

static bool find_lives(struct overwriting *o) {
  const struct schedule *out = o->s->out;
  for (size_t i = 0; i < out->ntemporaries; i++) {
    o->life[i] = (struct life){.first = UINT32_MAX, .plain = true, .now = out->temporaries[i]};
    if (!uop_map_put(&o->index, out->temporaries[i], (void *)(i + 1))) return false;
  }
  for (size_t i = 0; i < out->nitems; i++)
    for (unsigned k = 0; k < out->items[i].nbufs; k++) {
      const struct schedule_item *item = &out->items[i];
      struct life *l = life_of(o, item->bufs[k]);
      if (!l) continue;
      if (l->first == UINT32_MAX) l->first = (uint32_t)i;
      l->last = (uint32_t)i;
      l->plain = l->plain && item->kind == SCHEDULE_KERNEL && item->device == item->bufs[k]->aux && !item->offset[k];
    }
  return true;
}

/* Whether the kernel loads PARAM slot only at the index at which it stores its single result. */
static bool reads_where_it_writes(const struct schedule_item *item, unsigned slot) {
  struct uop *ast = item->ast;
  const struct uop *store = ast->src[0], *to = store->src[0];
  if (item->noutputs != 1 || ast->aux || ast->nsrc != 1 || store->op != OP_STORE || store->aux || to->nsrc != 2 ||
      to->src[0]->op != OP_PARAM)
    return false;
  size_t n, loads = 0, uses = 0;
  struct uop **order = uop_toposort(&ast, 1, &n);
  for (size_t i = 0; order && i < n; i++)
    for (unsigned k = 0; k < order[i]->nsrc; k++) {
      const struct uop *u = order[i], *x = u->src[k];
      uses += x->op == OP_PARAM && x->arg.i == slot;
      loads += u->op == OP_INDEX && !k && x->op == OP_PARAM && x->arg.i == slot && u->nsrc == 2 &&
               x->src[0] == to->src[0]->src[0] && u->src[1] == to->src[1];
    }
  free(order);
  return loads && loads == uses;
}

/* Makes the kernel load from its output what it loads from PARAM slot, and removes that. */
static bool remove_param(struct overwriting *o, struct schedule_item *item, unsigned slot) {
  struct graph *g = o->s->graph;
  size_t n;
  struct uop **order = uop_toposort(&item->ast, 1, &n), *from[MOST_INPUTS + 1], *to[MOST_INPUTS + 1];
  unsigned changed = 0;
  for (size_t i = 0; order && i < n; i++) {
    struct uop *u = order[i];
    if (u->op != OP_PARAM || u->arg.i < slot) continue;
    union uop_arg number = {.i = u->arg.i == slot ? 0 : u->arg.i - 1};
    from[changed] = u;
    to[changed++] = uop_new(g, OP_PARAM, u->dtype, u->lanes, number, u->aux, u->src, u->nsrc);
  }
  if (order) item->ast = uop_substitute(g, item->ast, from, to, changed);
  size_t after = item->nbufs - slot - 1;
  memmove(item->bufs + slot, item->bufs + slot + 1, after * sizeof *item->bufs);
  memmove(item->offset + slot, item->offset + slot + 1, after * sizeof *item->offset);
  item->nbufs--;
  free(order);
  return order;
}

/* The slot of an operand that the item may overwrite, or 0. */
static unsigned overwritable(const struct overwriting *o, const struct schedule_item *item, uint32_t number) {
  const struct uop *result = item->bufs[0];
  const struct life *own = life_of(o, result);
  if (!own || !own->plain || own->first != number) return 0; /* earlier items may have written a part of it */
  for (unsigned k = item->noutputs; k < item->nbufs; k++) {
    const struct uop *b = item->bufs[k];
    const struct life *l = life_of(o, b);
    bool fits = l && l->plain && l->last == number && b->aux == result->aux && b->dtype == result->dtype &&
                b->src[0] == result->src[0];
    for (unsigned other = 0; other < item->nbufs; other++) fits = fits && (other == k || item->bufs[other] != b);
    if (fits && reads_where_it_writes(item, k)) return k;
  }
  return 0;
}

void schedule_in_place(struct scheduler *s) {
  struct schedule *out = s->out;
  struct overwriting o = {.s = s, .life = calloc(out->ntemporaries + 1, sizeof *o.life)};
  bool ok = o.life && find_lives(&o);
  for (size_t i = 0; ok && i < out->nitems; i++) {
    struct schedule_item *item = &out->items[i];
    for (unsigned k = 0; k < item->nbufs; k++) {
      const struct life *l = life_of(&o, item->bufs[k]);
      if (l) item->bufs[k] = l->now;
    }
    bool kernel = item->kind == SCHEDULE_KERNEL && schedule_machine_of(s, item->device)->overwrites;
    unsigned slot = kernel ? overwritable(&o, item, (uint32_t)i) : 0;
    if (!slot) continue;
    struct life *result = life_of(&o, item->bufs[0]);
    life_of(&o, item->bufs[slot])->last = result->last;
    result->now = item->bufs[0] = item->bufs[slot];
    ok = remove_param(&o, item, slot);
  }
  size_t kept = 0;
  for (size_t i = 0; ok && i < out->ntemporaries; i++)
    if (o.life[i].now == out->temporaries[i]) out->temporaries[kept++] = out->temporaries[i];
  if (ok)
    out->ntemporaries = kept;
  else
    schedule_no_memory(s);
  uop_map_free(&o.index);
  free(o.life);
}
