/* Tensors over several devices, as values: a value that is realized on a group has one single-device value per part.
 *
 * Realizing resolves the expressions of all requested values on groups (graph/shard/shard.h) and makes ordinary values
 * of them, one per device, with assigns where the originals assign. It then realizes those as if they had been
 * requested, and the values on the groups take over the results. Intermediate values are not computed themselves: each
 * gets a carrier, a value that only has sources, which keeps the order among assigns. */
#include "value.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_pending(const struct value *v) { return v->assigns && !v->real && !v->stale; }
static bool on_group(const struct value *v) { return slot_group(v->slot) != NULL; }

bool values_need_shards(const struct reach *reach) {
  bool need = false;
  for (size_t i = 0; i < reach->n; i++) need |= on_group(reach->values[i]);
  return need;
}

/* ---- lowering ---- */

struct lowering {
  struct lowered {
    struct value *v; /* unrealized, in creation order */
    int axis;
  } *values;
  size_t n;
  struct sharder *sharder;
  char text[512];
  struct value **roots; /* to realize */
  unsigned nroots;
};

static int by_serial(const void *a, const void *b) {
  const struct lowered *x = a, *y = b;
  return x->v->serial < y->v->serial ? -1 : x->v->serial > y->v->serial;
}

/* The values that replace v on single devices. Stores the array in *out and returns its length: 1 or the size of the
 * group. */
static unsigned replacements_of(struct value *v, struct value ***out) {
  static struct value *self; /* static: guarded by rt.lock */
  *out = v->lowered ? v->lowered : v->real && on_group(v) ? v->part : &self;
  if (*out == &self) self = v;
  return !v->lowered ? (v->real && on_group(v) ? value_count(v) : 1) : v->lowered[1] ? value_count(v) : 1;
}

static unsigned device_slot(const struct value *v, unsigned i) {
  const struct shard_group *group = slot_group(v->slot);
  return group ? group->device[i] : v->slot;
}

/* Makes a single-device value that replaces v, with the expression expr. If v is an assign, its target is part i. */
static struct value *lowered_value(struct value *v, unsigned i, struct uop *expr, bool placed) {
  size_t most = 1;
  for (unsigned k = 0; k < v->nsrc; k++) most += value_count(v->src[k]);
  struct value **src = malloc(most * sizeof *src), **of, *l;
  unsigned n = 0;
  if (!src) return NULL;
  for (unsigned k = 0; k < v->nsrc; k++) {
    unsigned count = replacements_of(v->src[k], &of);
    if (!k && is_pending(v))
      src[n++] = of[count > 1 ? i : 0];
    else
      for (unsigned p = 0; p < count; p++) src[n++] = of[p];
  }
  if ((l = value_over(expr, device_slot(v, i), src, n))) {
    l->placed = placed;
    l->tracked = false; /* v keeps the history for gradients */
    if (is_pending(v)) l->assigns = true, l->file = v->file, l->line = v->line, l->src[0]->targeted++;
  }
  free(src);
  return l;
}

static int lower_value(struct lowering *w, struct lowered *at, bool asked) {
  struct value *v = at->v;
  bool group = on_group(v), wanted = asked || is_pending(v);
  unsigned n = wanted && group ? value_count(v) : 1;
  v->lowered = calloc(n + 1, sizeof(struct value *)); /* NULL-terminated; carriers have one element */
  if (!v->lowered) return db_fail(-ENOMEM, "realize: out of memory");
  const struct sharded *x = wanted ? sharder_resolve(w->sharder, v->expr) : NULL;
  if (wanted && !x) return db_fail(sharder_status(w->sharder), "realize: %s", w->text);
  bool parts = x && x->group != SHARD_ORDINARY;
  at->axis = parts ? x->axis : SHARD_REPLICATED;
  for (unsigned i = 0; i < n; i++) {
    struct uop *u = !x ? uop_const_int(rt.graph, DT_VOID, 0) : x->part[parts ? i : 0];
    if (!(v->lowered[i] = lowered_value(v, i, u, x && x->placed))) return db_fail(-ENOMEM, "realize: out of memory");
    if (asked) w->roots[w->nroots++] = v->lowered[i];
  }
  if (is_pending(v) && !group) v->src[0]->targeted--; /* the replacement is the one that targets it now */
  return 0;
}

/* Whether v is or depends on a value on a group. Its sources have been lowered already. */
static bool touches_group(const struct value *v) {
  bool touches = on_group(v);
  for (unsigned k = 0; k < v->nsrc; k++) touches |= v->src[k]->lowered || on_group(v->src[k]);
  return touches;
}

/* ---- after realizing ---- */

/* Marks the values that v, a completed assign, has overwritten as stale. */
static void mark_overwritten(struct value *v) {
  struct value *base = v->src[0];
  bool any = false;
  while (is_pending(base)) base = base->src[0];
  for (unsigned i = 0; base->part && i < value_count(base); i++) any |= base->part[i]->stale;
  if (!any) return;
  base->overwritten_real = base->real;
  base->real = NULL;
  value_loses_parts(base);
  if (base->newer) base->newer->older = NULL;
  base->newer = v, v->older = base;
  for (struct value *x = v->src[0];; x = x->src[0]) {
    x->stale = true, x->file = v->file, x->line = v->line;
    if (x == base) return;
  }
}

/* Makes v refer to the results of its replacements. */
static int take_results(struct value *v, int axis) {
  unsigned n = value_count(v);
  struct value *l = v->lowered[0];
  if (is_pending(v)) mark_overwritten(v);
  if (on_group(v)) {
    struct value **part = object_new(n * sizeof *part);
    if (!part) return db_fail(-ENOMEM, "realize: out of memory");
    for (unsigned i = 0; i < n; i++) value_retain(part[i] = v->lowered[i]);
    return value_becomes_parts(v, axis, part) ? 0 : db_fail(-ENOMEM, "realize: out of memory");
  }
  l->storage->refs++;
  value_becomes(v, l->real, l->storage);
  if (l->older) {
    v->older = l->older, v->older->newer = v;
    l->older = NULL;
  }
  return 0;
}

static int finish_value(const struct lowered *at) {
  struct value *v = at->v, **l = v->lowered;
  int err = 0;
  if (!l) return 0;
  if (is_pending(v) && !on_group(v)) v->src[0]->targeted++;
  bool done = l[0] != NULL;
  for (unsigned i = 0; done && i < (l[1] ? value_count(v) : 1); i++) done = l[i] && l[i]->real;
  if (done)
    err = take_results(v, at->axis);
  else if (l[0] && l[0]->stale)
    v->stale = true, v->file = l[0]->file, v->line = l[0]->line;
  for (unsigned i = 0; l[i]; i++) value_release(l[i]);
  free(l);
  v->lowered = NULL;
  return err;
}

static bool parts_are_there(const struct value *v) {
  bool all = v->part && v->real;
  for (unsigned i = 0; all && i < value_count(v); i++) all = v->part[i]->real;
  return all;
}

int values_realize_shards(struct value *const *v, unsigned n, const struct reach *reach, bool contiguous, bool keeps,
                          realize_fn *realize) {
  struct lowering w = {0};
  size_t most = 0;
  int err = 0;
  uint32_t asked = value_mark();
  w.values = malloc((reach->n + 1) * sizeof *w.values);
  for (size_t i = 0; i < reach->n && w.values; i++) {
    struct value *r = reach->values[i];
    if (!r->real && !r->stale) w.values[w.n++] = (struct lowered){r, SHARD_REPLICATED};
    most += value_count(r);
  }
  w.roots = malloc((most + 1) * sizeof *w.roots);
  w.sharder = sharder_new(rt.graph, rt.binder, slot_group, w.text, sizeof w.text);
  if (!w.values || !w.roots || !w.sharder) err = db_fail(-ENOMEM, "realize: out of memory");
  for (unsigned i = 0; i < n && !err; i++) {
    v[i]->mark = asked;
    if (v[i]->stale && on_group(v[i]))
      err = db_fail(-EINVAL, "realize: the assign at %s:%d has overwritten this tensor; realize it before the assign",
                    v[i]->file, v[i]->line);
  }
  if (!err) qsort(w.values, w.n, sizeof *w.values, by_serial);
  for (size_t i = 0; i < w.n && !err; i++)
    if (touches_group(w.values[i].v)) err = lower_value(&w, &w.values[i], w.values[i].v->mark == asked);
  for (unsigned i = 0; i < n && !err;
       i++) { /* a realized value may have to become contiguous; the others contain no group */
    struct value **of;
    if (v[i]->lowered || v[i]->mark != asked) continue;
    v[i]->mark = 0;
    for (unsigned k = 0, count = replacements_of(v[i], &of); k < count; k++) w.roots[w.nroots++] = of[k];
  }
  if (!err) err = realize(w.roots, w.nroots, contiguous, keeps);
  for (unsigned i = 0; i < n && !err; i++) /* rebuild the value from its parts, which may be in other memory now */
    if (parts_are_there(v[i]) && !value_becomes_parts(v[i], (int)v[i]->real->arg.i, v[i]->part))
      err = db_fail(-ENOMEM, "realize: out of memory");
  while (w.values && w.n) { /* in reverse, so that an assign comes after the assigns that target it */
    int failed = finish_value(&w.values[--w.n]);
    if (!err) err = failed;
  }
  sharder_free(w.sharder);
  free(w.values);
  free(w.roots);
  return err;
}

int value_sharding(struct value *v, int *axis, int64_t *bound) {
  unsigned n = value_count(v);
  struct reach reach = {0};
  char text[512];
  int err = 0;
  *axis = SHARD_REPLICATED;
  if (!on_group(v)) return 0;
  if (v->real) {
    *axis = (int)v->real->arg.i;
    for (unsigned i = 0; bound && i < n && *axis >= 0; i++)
      bound[i + 1] = (i ? bound[i] : (bound[0] = 0)) + v->part[i]->real->shape->dim[*axis]->arg.i;
    return 0;
  }
  if (!values_reach(&v, 1, &reach)) return db_fail(-ENOMEM, "out of memory");
  struct sharder *s = NULL;
  if (!(err = values_replace(&reach)) && !(s = sharder_new(rt.graph, rt.binder, slot_group, text, sizeof text)))
    err = db_fail(-ENOMEM, "out of memory");
  const struct sharded *x = s ? sharder_resolve(s, v->expr) : NULL;
  if (s && !x) err = db_fail(sharder_status(s), "%s", text);
  if (x && x->group != SHARD_ORDINARY && x->axis >= 0) {
    *axis = x->axis;
    if (bound) memcpy(bound, x->bound, (n + 1) * sizeof *bound);
  }
  sharder_free(s);
  reach_free(&reach);
  return err;
}
