/* Walks over graphs, without recursion, and maps keyed by nodes.
 *
 * A walk marks the nodes that it visits with numbers greater than those of all earlier walks, so no marks have to be
 * cleared and no map is needed. The mark is also the node's position in the walk's order. For this reason only one
 * thread may use a graph at a time. */
#include "internal.h"
#include <stdlib.h>

/* ---- maps ---- */
static size_t map_at(const struct uop_map *m, const struct uop *key) {
  size_t at = ((uint64_t)(uintptr_t)key * 0x9e3779b97f4a7c15 >> 20) & (m->capacity - 1);
  while (m->slot[at].key && m->slot[at].key != key) at = (at + 1) & (m->capacity - 1);
  return at;
}

void *uop_map_get(const struct uop_map *m, const struct uop *key) {
  return m->capacity ? m->slot[map_at(m, key)].value : NULL;
}

bool uop_map_put(struct uop_map *m, const struct uop *key, void *value) {
  if (m->count * 2 >= m->capacity) {
    struct uop_map n = {.capacity = m->capacity ? m->capacity * 4 : 64, .count = m->count};
    n.slot = calloc(n.capacity, sizeof *n.slot);
    if (!n.slot) return false;
    for (size_t i = 0; i < m->capacity; i++)
      if (m->slot[i].key) n.slot[map_at(&n, m->slot[i].key)] = m->slot[i];
    free(m->slot);
    *m = n;
  }
  size_t at = map_at(m, key);
  m->count += !m->slot[at].key;
  m->slot[at].key = key, m->slot[at].value = value;
  return true;
}

void uop_map_free(struct uop_map *m) {
  free(m->slot);
  *m = (struct uop_map){0};
}

/* ---- walks ---- */
struct walk {
  struct graph *g; /* the graph of the visited nodes */
  uint32_t base;   /* marks >= base are of this walk */
  struct uop **order;
  size_t n, capacity;
};

/* Clears all marks before they exceed 32 bits. */
static bool walk_begin(struct walk *w, struct graph *g, size_t more) {
  if (g->walked + g->count + more >= UINT32_MAX) graph_clear_marks(g);
  *w = (struct walk){.g = g, .base = g->walked + 1, .capacity = 64 + more};
  w->order = malloc(w->capacity * sizeof *w->order);
  return w->order;
}

static bool emit(struct walk *w, struct uop *u) {
  if (w->n == w->capacity) {
    struct uop **p = realloc(w->order, w->capacity * 2 * sizeof *p);
    if (!p) return false;
    w->order = p, w->capacity *= 2;
  }
  u->mark = w->base + (uint32_t)w->n;
  w->order[w->n++] = u;
  return true;
}

/* Appends the nodes reachable from root that the walk has not visited, sources first. */
static bool walk_from(struct walk *w, struct uop *root) {
  struct graph *g = w->g;
  struct uop *enter = root;
  size_t depth = 0;
  if (root->mark >= w->base) return true;
  for (;;) {
    if (enter) {
      if (depth == g->stack_capacity) {
        size_t c = g->stack_capacity ? g->stack_capacity * 2 : 64;
        struct walk_frame *p = realloc(g->stack, c * sizeof *p);
        if (!p) return false;
        g->stack = p, g->stack_capacity = c;
      }
      g->stack[depth++] = (struct walk_frame){enter, 0};
      enter->mark = w->base;
    }
    struct walk_frame *f = &g->stack[depth - 1];
    struct uop *u = f->u;
    unsigned i = f->next;
    for (enter = NULL; i < u->nsrc && !enter;) {
      struct uop *s = u->src[i++];
      if (s->mark >= w->base) continue;
      if (s->nsrc)
        enter = s;
      else if (!emit(w, s))
        return false;
    }
    if (enter) {
      f->next = i;
      continue;
    }
    if (!emit(w, u)) return false;
    if (!--depth) return true;
  }
}

static void walk_end(struct walk *w) { w->g->walked = w->base + (uint32_t)w->n; }

struct uop **uop_toposort(struct uop *const *roots, unsigned nroots, size_t *count) {
  struct walk w = {.capacity = 1};
  *count = 0;
  if (!nroots) return malloc(sizeof *w.order);
  if (!walk_begin(&w, uop_graph(roots[0]), 0)) return NULL;
  bool ok = true;
  for (unsigned r = 0; r < nroots && ok; r++) ok = walk_from(&w, roots[r]);
  walk_end(&w);
  if (!ok) {
    free(w.order);
    return NULL;
  }
  *count = w.n;
  return w.order;
}

/* Makes in g the copies of the walk's nodes from number `first` on; the sources of a copy are the copies of the node's
 * sources. to[] has room for all nodes; the caller has set the first `first` entries. */
static bool rebuild(struct graph *g, const struct walk *w, size_t first, struct uop **to) {
  struct uop *few[16], **many = NULL;
  size_t room = 16;
  bool here = w->g == g, ok = true;
  for (size_t i = first; i < w->n && ok; i++) {
    struct uop *v = w->order[i], **src = few;
    if (v->nsrc > 16) {
      if (v->nsrc > room) {
        struct uop **p = realloc(many, v->nsrc * sizeof *p);
        if (!(ok = p)) break;
        many = p, room = v->nsrc;
      }
      src = many;
    }
    bool same = here;
    for (unsigned k = 0; k < v->nsrc; k++) {
      src[k] = to[v->src[k]->mark - w->base];
      same = same && src[k] == v->src[k];
    }
    to[i] = same ? v : first ? uop_with_src(g, v, src) : uop_like(g, v, src);
  }
  free(many);
  return ok;
}

struct uop *uop_substitute(struct graph *g, struct uop *u, struct uop *const *from, struct uop *const *to, unsigned n) {
  struct walk w;
  struct uop *result = g->broken, **map = NULL;
  if (!walk_begin(&w, uop_graph(u), n)) goto out;
  size_t pairs = 0;
  map = malloc((n ? n : 1) * sizeof *map);
  if (!map) goto out;
  for (unsigned i = 0; i < n; i++) { /* mark them as visited before the walk, which then does not enter their sources */
    if (uop_graph(from[i]) != w.g) continue;
    if (from[i]->mark < w.base && emit(&w, from[i])) pairs++;
    map[from[i]->mark - w.base] = to[i];
  }
  bool walked = walk_from(&w, u);
  walk_end(&w);
  struct uop **all = walked ? realloc(map, (w.n ? w.n : 1) * sizeof *map) : NULL;
  if (!all) goto out;
  map = all;
  if (rebuild(g, &w, pairs, map)) result = map[u->mark - w.base];
out:
  if (result == g->broken) g->error = "out of memory";
  free(map);
  free(w.order);
  return result;
}

struct uop *uop_import(struct graph *g, struct uop *u) {
  if (uop_graph(u) == g) return u;
  struct walk w;
  struct uop *result = g->broken, **map = NULL;
  // NOLINTNEXTLINE(clang-analyzer-optin.portability.UnixAPI): the walk has at least u, which it had not visited
  if (walk_begin(&w, uop_graph(u), 0) && walk_from(&w, u) && (map = malloc(w.n * sizeof *map)) &&
      rebuild(g, &w, 0, map))
    result = map[w.n - 1];
  walk_end(&w);
  if (result == g->broken) g->error = "out of memory";
  free(map);
  free(w.order);
  return result;
}
