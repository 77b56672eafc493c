/* Lazy values and the graph that they are in.
 *
 * Nodes are never freed one by one: a node is live while a value refers to it. A realized value refers to memory.
 * Values built on it earlier keep its expression, and realizing them substitutes the memory for it. So memory is freed
 * as soon as no tensor needs it, whatever expressions still name it. Only a value that gradients may be computed
 * through (tracked) keeps its expression and sources after it is realized. */
#include "value.h"
#include <errno.h>
#include <stdlib.h>

enum { COLLECT_LEAST = 1 << 15 };

struct value *value_blank(struct uop *expr, unsigned slot, unsigned nsrc) {
  struct value *v = object_new(sizeof *v + nsrc * sizeof *v->src);
  if (!v) return NULL;
  v->room = nsrc;
  v->refs = 1;
  v->serial = ++rt.serials;
  v->slot = (uint8_t)slot;
  v->expr = expr;
  v->nsrc = nsrc;
  v->placed = uop_names_device(expr) || expr->op == OP_MULTI;
  slot_retain(slot);
  v->next = rt.values;
  if (rt.values) rt.values->prev = v;
  rt.values = v;
  rt.nvalues++;
  return v;
}

void value_set_source(struct value *v, unsigned i, struct value *s) {
  v->src[i] = s;
  s->refs++;
  s->dependents++;
  v->placed |= s->placed;
  v->tracked |= (s->tracked || s->leaf) && dtype_is_float(v->expr->dtype);
}

struct value *value_over(struct uop *expr, unsigned slot, struct value *const *src, unsigned nsrc) {
  struct value *v = value_blank(expr, slot, nsrc);
  for (unsigned i = 0; v && i < nsrc; i++) value_set_source(v, i, src[i]);
  return v;
}

void value_retain(struct value *v) { v->refs++; }

static void unlink_value(struct value *v) {
  if (v->prev)
    v->prev->next = v->next;
  else
    rt.values = v->next;
  if (v->next) v->next->prev = v->prev;
  rt.nvalues--;
}

/* Drops v's sources. Pushes those without references on *dead through their prev link instead of recursing, so that a
 * long chain does not overflow the stack. */
static void drop_sources(struct value *v, struct value **dead) {
  for (unsigned i = 0; i < v->nsrc; i++) {
    struct value *s = v->src[i];
    if (v->assigns && !i) s->targeted--;
    if (--s->dependents == 0 && s->real && !s->tracked) s->expr = s->real;
    if (--s->refs) continue;
    unlink_value(s);
    s->prev = *dead;
    *dead = s;
  }
  v->nsrc = 0;
}

unsigned value_count(const struct value *v) {
  const struct shard_group *group = slot_group(v->slot);
  return group ? group->n : 1;
}

static void drop_parts(struct value *v, struct value **dead) {
  for (unsigned i = 0; v->part && i < value_count(v); i++) {
    struct value *p = v->part[i];
    if (p->whole == v) p->whole = NULL;
    if (--p->refs) continue;
    unlink_value(p);
    p->prev = *dead;
    *dead = p;
  }
  if (v->part) object_free(v->part, value_count(v) * sizeof *v->part);
  v->part = NULL;
}

static void free_dead(struct value *dead) {
  while (dead) {
    struct value *v = dead;
    dead = v->prev;
    drop_sources(v, &dead);
    drop_parts(v, &dead);
    if (v->storage) storage_release(v->storage);
    slot_release(v->slot);
    if (v->older) v->older->newer = v->newer;
    if (v->newer) v->newer->older = v->older;
    object_free(v, sizeof *v + v->room * sizeof *v->src);
  }
}

void value_release(struct value *v) {
  if (!v || --v->refs) return;
  unlink_value(v);
  v->prev = NULL;
  free_dead(v);
}

void value_becomes(struct value *v, struct uop *real, struct storage *s) {
  struct value *dead = NULL;
  if (!v->tracked) drop_sources(v, &dead);
  free_dead(dead);
  if (v->storage) storage_release(v->storage);
  v->real = real;
  v->storage = s;
  v->placed = true;
  if (!v->dependents && !v->tracked) v->expr = real;
}

bool value_becomes_parts(struct value *v, int axis, struct value **part) {
  struct uop *real[DB_GROUP_MAX];
  struct value *dead = NULL;
  unsigned n = value_count(v);
  for (unsigned i = 0; i < n; i++) real[i] = part[i]->real;
  struct uop *u = uop_new(rt.graph, OP_MULTI, v->expr->dtype, 1, (union uop_arg){.i = axis}, v->slot, real, n);
  if (v->part != part) drop_parts(v, &dead);
  v->part = part;
  for (unsigned i = 0; i < n; i++) part[i]->whole = v;
  free_dead(dead);
  value_becomes(v, u, NULL);
  return !graph_error(rt.graph);
}

struct value *value_of_parts(unsigned slot, int axis, struct value **part) {
  struct value *v = value_blank(part[0]->real, slot, 0);
  if (!v) return db_fail_null(-ENOMEM, "out of memory");
  value_becomes_parts(v, axis, part);
  return v;
}

void value_loses_parts(struct value *v) {
  struct value *dead = NULL;
  drop_parts(v, &dead);
  free_dead(dead);
}

uint32_t value_mark(void) {
  static uint32_t mark;
  return ++mark;
}

static bool reach_add(struct reach *r, struct value *v, uint32_t mark) {
  if (v->mark == mark) return true;
  if (r->n == r->capacity) {
    size_t capacity = r->capacity ? 2 * r->capacity : 64;
    struct value **more = realloc(r->values, capacity * sizeof *more);
    if (!more) return false;
    r->values = more;
    r->capacity = capacity;
  }
  v->mark = mark;
  v->refs++;
  r->values[r->n++] = v;
  return true;
}

bool values_reach(struct value *const *v, unsigned n, struct reach *out) {
  uint32_t mark = value_mark();
  bool ok = true;
  *out = (struct reach){0};
  for (unsigned i = 0; i < n && ok; i++) ok = reach_add(out, v[i], mark);
  for (size_t i = 0; i < out->n && ok; i++)
    for (unsigned k = 0; k < out->values[i]->nsrc && !out->values[i]->real && ok; k++)
      ok = reach_add(out, out->values[i]->src[k], mark);
  if (!ok) reach_free(out);
  return ok;
}

void reach_free(struct reach *r) {
  while (r->n) value_release(r->values[--r->n]);
  free(r->values);
  *r = (struct reach){0};
}

/* Copies the nodes below the roots to g in one walk. Returns the copies, indexed by id in the old graph. */
static struct uop **copy_nodes(struct graph *g, struct uop *const *roots, unsigned n) {
  size_t count, most = 0;
  struct uop **order = uop_toposort(roots, n, &count);
  for (size_t i = 0; order && i < count; i++)
    if (order[i]->id > most) most = order[i]->id;
  struct uop **copy = order ? calloc(most + 1, sizeof *copy) : NULL;
  graph_reserve(g, count);
  for (size_t i = 0; copy && i < count; i++) {
    const struct uop *u = order[i];
    struct uop *few[8], **src = u->nsrc <= 8 ? few : malloc(u->nsrc * sizeof *src);
    for (unsigned k = 0; src && k < u->nsrc; k++) src[k] = copy[u->src[k]->id];
    if (src) copy[u->id] = uop_new(g, u->op, u->dtype, u->lanes, u->arg, u->aux, src, u->nsrc);
    if (src != few) free(src);
    if (!src || graph_error(g)) {
      free(copy);
      copy = NULL;
    }
  }
  free(order);
  return copy;
}

void graph_collect(void) {
  size_t count = graph_node_count(rt.graph), n = 0;
  if (rt.holding || count < rt.collect_at || count < COLLECT_LEAST) return;
  struct graph *g = graph_new();
  struct uop **roots = malloc((2 * rt.nvalues + rt.nsizes + 1) * sizeof *roots), **copy = NULL;
  for (struct value *v = rt.values; v && roots; v = v->next) {
    roots[n++] = v->expr;
    if (v->real || v->overwritten_real) roots[n++] = v->real ? v->real : v->overwritten_real;
  }
  for (uint32_t i = 0; i < rt.nsizes && roots; i++) roots[n++] = rt.sizes[i];
  if (g && roots) copy = copy_nodes(g, roots, (unsigned)n);
  free(roots);
  if (!copy) { /* out of memory: keep the old graph */
    graph_free(g);
    return;
  }
  for (struct value *v = rt.values; v; v = v->next) {
    v->expr = copy[v->expr->id];
    if (v->real) v->real = copy[v->real->id];
    if (v->overwritten_real) v->overwritten_real = copy[v->overwritten_real->id];
  }
  for (uint32_t i = 0; i < rt.nsizes; i++) rt.sizes[i] = copy[rt.sizes[i]->id];
  free(copy);
  graph_free(rt.graph);
  rt.graph = g;
  rt.graphs++;
  /* while a program builds a large graph, there is little to free */
  rt.collect_at = (graph_node_count(g) > count / 2 ? 4 : 2) * graph_node_count(g);
}

int values_replace(const struct reach *reach) {
  bool ok = binder_begin(rt.binder, rt.graph);
  for (size_t i = 0; i < reach->n && ok; i++)
    if (reach->values[i]->real) ok = binder_replace(rt.binder, reach->values[i]->expr, reach->values[i]->real);
  return ok ? 0 : db_fail(-ENOMEM, "realize: out of memory");
}
