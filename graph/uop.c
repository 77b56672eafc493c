/* Nodes: the arena, the hash-consing table, interned strings, constructors, and walks over the graph that never
 * recurse. */
#include "internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct op_info op_info[OP_COUNT] = {
#define OP(name, cls, arity, comm, doc) [OP_##name] = {#name, OPCLASS_##cls, arity, comm},
#include "ops.def"
#undef OP
};

/* Chunks are aligned to their size, so that a node's address leads to its graph. A node too large for one gets a chunk
 * of its own, which it starts, so that the same arithmetic holds. */
enum { CHUNK = 1 << 16 };
struct chunk {
  struct graph *graph;
  struct chunk *next;
  size_t size;
};

struct graph {
  char *at, *end; /* free space of the newest chunk */
  struct chunk *chunks;
  struct slot {
    uint64_t hash;
    struct uop *node; /* NULL: empty */
  } *slot;
  size_t capacity, count;
  size_t bytes;
  char **string;
  size_t nstrings, strings_capacity;
  const char *error;
  struct uop *broken; /* what uop_new returns when memory is out */
};

static struct chunk *chunk_new(struct graph *g, size_t size) {
  size = (size + CHUNK - 1) & ~(size_t)(CHUNK - 1);
  struct chunk *c = aligned_alloc(CHUNK, size);
  if (!c) return NULL;
  *c = (struct chunk){g, g->chunks, size};
  g->chunks = c;
  g->bytes += size;
  return c;
}

static void *take(struct graph *g, size_t size) {
  size = (size + 7) & ~(size_t)7;
  if ((size_t)(g->end - g->at) < size) {
    size_t need = size + sizeof(struct chunk);
    struct chunk *c = chunk_new(g, need);
    if (!c) {
      g->error = "out of memory";
      return NULL;
    }
    if (need > CHUNK / 4) return c + 1;
    g->at = (char *)(c + 1), g->end = (char *)c + CHUNK;
  }
  void *p = g->at;
  g->at += size;
  return p;
}

void *graph_alloc(struct graph *g, size_t size) {
  void *p = take(g, size);
  return p ? memset(p, 0, size) : NULL;
}

struct graph *uop_graph(const struct uop *u) {
  return ((struct chunk *)((uintptr_t)u & ~(uintptr_t)(CHUNK - 1)))->graph;
}

struct graph *graph_new(void) {
  struct graph *g = calloc(1, sizeof *g);
  if (!g) return NULL;
  g->capacity = 1024;
  g->slot = calloc(g->capacity, sizeof *g->slot);
  g->broken = g->slot ? graph_alloc(g, sizeof *g->broken + sizeof(struct bounds)) : NULL;
  if (!g->broken) {
    graph_free(g);
    return NULL;
  }
  g->broken->op = OP_CONST, g->broken->lanes = 1;
  g->broken->id = UINT32_MAX;
  return g;
}

void graph_free(struct graph *g) {
  if (!g) return;
  for (struct chunk *c = g->chunks, *next; c; c = next) next = c->next, free(c);
  free(g->slot);
  free(g->string);
  free(g);
}

size_t graph_node_count(const struct graph *g) { return g->count; }
size_t graph_bytes(const struct graph *g) { return g->bytes + g->capacity * sizeof *g->slot; }
const char *graph_error(const struct graph *g) { return g->error; }
void graph_set_error(struct graph *g, const char *why) {
  if (!g->error) g->error = why;
}

static uint64_t mix(uint64_t a, uint64_t b) {
  unsigned __int128 p = (unsigned __int128)(a ^ 0x9e3779b97f4a7c15) * (b ^ 0xe7037ed1a0b428db);
  return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static uint64_t string_hash(const char *s) {
  uint64_t h = 0xcbf29ce484222325;
  for (; *s; s++) h = (h ^ (uint8_t)*s) * 0x100000001b3;
  return h;
}

/* Few names exist (variables), so a linear table does. */
const char *graph_intern(struct graph *g, const char *s) {
  for (size_t i = 0; i < g->nstrings; i++)
    if (!strcmp(g->string[i], s)) return g->string[i];
  if (g->nstrings == g->strings_capacity) {
    size_t n = g->strings_capacity ? g->strings_capacity * 2 : 16;
    char **p = realloc(g->string, n * sizeof *p);
    if (!p) {
      g->error = "out of memory";
      return "";
    }
    g->string = p, g->strings_capacity = n;
  }
  size_t n = strlen(s) + 1;
  char *copy = graph_alloc(g, n);
  if (!copy) return "";
  memcpy(copy, s, n);
  return g->string[g->nstrings++] = copy;
}

static bool table_grow(struct graph *g) {
  size_t n = g->capacity * 4;
  struct slot *slot = calloc(n, sizeof *slot);
  if (!slot) return false;
  for (size_t i = 0; i < g->capacity; i++) {
    if (!g->slot[i].node) continue;
    size_t at = g->slot[i].hash & (n - 1);
    while (slot[at].node) at = (at + 1) & (n - 1);
    slot[at] = g->slot[i];
  }
  free(g->slot);
  g->slot = slot, g->capacity = n;
  return true;
}

static bool same_sources(const struct uop *u, struct uop *const *src) {
  for (unsigned i = 0; i < u->nsrc; i++)
    if (u->src[i] != src[i]) return false;
  return true;
}

struct uop *uop_new(struct graph *g, enum op op, enum dtype dtype, unsigned lanes, union uop_arg arg, unsigned aux,
                    struct uop *const *src, unsigned nsrc) {
  if (nsrc > UINT16_MAX) {
    g->error = "a node has more than 65535 sources";
    return g->broken;
  }
  uint64_t head = (uint64_t)op | (uint64_t)dtype << 8 | (uint64_t)(lanes & 255) << 16 | (uint64_t)(aux & 255) << 24 |
                  (uint64_t)nsrc << 32;
  uint64_t argument = (uint64_t)arg.i;
  if (op == OP_VAR) {
    arg.s = graph_intern(g, arg.s);
    argument = string_hash(arg.s);
  }
  uint64_t h = mix(head, argument);
  for (unsigned i = 0; i < nsrc; i++) h = mix(h, src[i]->hash + i);

  size_t mask = g->capacity - 1, at = h & mask;
  for (; g->slot[at].node; at = (at + 1) & mask) {
    struct uop *u = g->slot[at].node;
    if (g->slot[at].hash == h && u->op == op && u->dtype == dtype && u->lanes == (lanes & 255) &&
        u->aux == (aux & 255) && u->nsrc == nsrc && u->arg.i == arg.i && same_sources(u, src))
      return u;
  }
  bool bounded = dtype != DT_VOID && !dtype_is_float(dtype);
  struct uop *u = take(g, sizeof *u + nsrc * sizeof *src + (bounded ? sizeof(struct bounds) : 0));
  if (!u) return g->broken;
  *u = (struct uop){.op = (uint8_t)op,
                    .dtype = (uint8_t)dtype,
                    .lanes = (uint8_t)lanes,
                    .aux = (uint8_t)aux,
                    .nsrc = (uint16_t)nsrc,
                    .flags = bounded ? UOP_HAS_BOUNDS : 0,
                    .id = (uint32_t)g->count,
                    .arg = arg,
                    .hash = h};
  for (unsigned i = 0; i < nsrc; i++) u->src[i] = src[i];
  g->slot[at] = (struct slot){h, u};
  g->count++;
  if (g->count * 8 > g->capacity * 5 && !table_grow(g) && g->count + 1 >= g->capacity) {
    g->error = "out of memory";
    g->capacity = 1024, g->count = 0; /* an empty table keeps further lookups ending */
    memset(g->slot, 0, g->capacity * sizeof *g->slot);
  }
  if (bounded) *uop_bounds_slot(u) = uop_compute_bounds(u);
  u->shape = uop_compute_shape(g, u);
  return u;
}

/* ---- constructors ---- */
int64_t dtype_wrap(enum dtype t, int64_t v) {
  switch (t) {
  case DT_BOOL: return v != 0;
  case DT_I8: return (int8_t)v;
  case DT_U8: return (uint8_t)v;
  case DT_I16: return (int16_t)v;
  case DT_U16: return (uint16_t)v;
  case DT_I32: return (int32_t)v;
  case DT_U32: return (uint32_t)v;
  default: return v;
  }
}

double dtype_round(enum dtype t, double v) {
  return t == DT_F64 || !dtype_is_float(t) ? v : float_from_bits(t, float_to_bits(t, v));
}

struct uop *uop_const_int(struct graph *g, enum dtype t, int64_t v) {
  union uop_arg arg = {.i = dtype_wrap(t, v)};
  if (dtype_is_float(t)) arg.f = dtype_round(t, (double)v);
  return uop_new(g, OP_CONST, t, 1, arg, 0, NULL, 0);
}

struct uop *uop_const_float(struct graph *g, enum dtype t, double v) {
  if (dtype_is_float(t)) return uop_new(g, OP_CONST, t, 1, (union uop_arg){.f = dtype_round(t, v)}, 0, NULL, 0);
  if (t == DT_BOOL) return uop_const_int(g, t, v != 0);
  if (t == DT_U64 && v >= 0x1p63) return uop_const_int(g, t, v < 0x1p64 ? (int64_t)(uint64_t)v : -1);
  return uop_const_int(g, t, isnan(v) ? 0 : v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : (int64_t)v);
}

struct uop *uop_index(struct graph *g, int64_t v) { return uop_const_int(g, DT_INDEX, v); }

struct uop *uop_var(struct graph *g, const char *name, int64_t min, int64_t max) {
  return uop_new(g, OP_VAR, DT_INDEX, 1, (union uop_arg){.s = name}, 0,
                 (struct uop *[]){uop_index(g, min), uop_index(g, max)}, 2);
}

struct uop *uop_unary(struct graph *g, enum op op, struct uop *x) {
  return uop_new(g, op, x->dtype, x->lanes, (union uop_arg){0}, 0, &x, 1);
}

struct uop *uop_binary(struct graph *g, enum op op, struct uop *a, struct uop *b) {
  enum dtype t = op == OP_CMPLT || op == OP_CMPEQ || op == OP_CMPNE ? DT_BOOL : a->dtype;
  unsigned lanes = a->lanes > b->lanes ? a->lanes : b->lanes;
  return uop_new(g, op, t, lanes, (union uop_arg){0}, 0, (struct uop *[]){a, b}, 2);
}

struct uop *uop_where(struct graph *g, struct uop *c, struct uop *t, struct uop *f) {
  return uop_new(g, OP_WHERE, t->dtype, t->lanes, (union uop_arg){0}, 0, (struct uop *[]){c, t, f}, 3);
}

struct uop *uop_cast(struct graph *g, struct uop *x, enum dtype t) {
  return x->dtype == t ? x : uop_new(g, OP_CAST, t, x->lanes, (union uop_arg){0}, 0, &x, 1);
}

struct uop *uop_range(struct graph *g, struct uop *bound, int64_t axis, enum axis_kind kind) {
  return uop_new(g, OP_RANGE, DT_INDEX, 1, (union uop_arg){.i = axis}, kind, &bound, 1);
}

struct uop *uop_with_src(struct graph *g, struct uop *u, struct uop *const *src) {
  return uop_new(g, u->op, u->dtype, u->lanes, u->arg, u->aux, src, u->nsrc);
}

/* ---- maps ---- */
static size_t map_at(const struct uop_map *m, const struct uop *key) {
  size_t at = (key->hash * 0x9e3779b97f4a7c15 >> 20) & (m->capacity - 1);
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
struct uop **uop_toposort(struct uop *const *roots, unsigned nroots, size_t *count) {
  struct frame {
    struct uop *u;
    unsigned next;
  } *stack = NULL;
  size_t depth = 0, stack_capacity = 0, n = 0, capacity = 64;
  struct uop_map seen = {0};
  struct uop **order = malloc(capacity * sizeof *order);
  if (!order) goto fail;
  for (unsigned r = 0; r < nroots; r++) {
    struct uop *enter = roots[r];
    for (;;) {
      if (enter && !uop_map_get(&seen, enter)) {
        if (!uop_map_put(&seen, enter, enter)) goto fail;
        if (depth == stack_capacity) {
          size_t c = stack_capacity ? stack_capacity * 2 : 64;
          struct frame *p = realloc(stack, c * sizeof *p);
          if (!p) goto fail;
          stack = p, stack_capacity = c;
        }
        stack[depth++] = (struct frame){enter, 0};
      }
      enter = NULL;
      if (!depth) break;
      struct frame *f = &stack[depth - 1];
      if (f->next < f->u->nsrc) {
        enter = f->u->src[f->next++];
        continue;
      }
      if (n == capacity) {
        struct uop **p = realloc(order, capacity * 2 * sizeof *p);
        if (!p) goto fail;
        order = p, capacity *= 2;
      }
      order[n++] = f->u;
      depth--;
    }
  }
  uop_map_free(&seen);
  free(stack);
  *count = n;
  return order;
fail:
  uop_map_free(&seen);
  free(stack);
  free(order);
  *count = 0;
  return NULL;
}

/* Rebuilds everything below u over the map, which holds the replacements made so far. */
static struct uop *rebuild(struct graph *g, struct uop *u, struct uop_map *map) {
  size_t n;
  struct uop **order = uop_toposort(&u, 1, &n), *result = g->broken;
  struct uop *few[16], **src = few, **many = NULL;
  size_t room = 16;
  for (size_t i = 0; i < n; i++) {
    struct uop *v = order[i], *to = uop_map_get(map, v);
    if (!to) {
      if (v->nsrc > room) {
        struct uop **p = realloc(many, v->nsrc * sizeof *p);
        if (!p) goto out;
        src = many = p, room = v->nsrc;
      }
      bool same = uop_graph(v) == g;
      for (unsigned k = 0; k < v->nsrc; k++) {
        src[k] = uop_map_get(map, v->src[k]);
        same = same && src[k] == v->src[k];
      }
      to = same ? v : uop_with_src(g, v, src);
      if (!uop_map_put(map, v, to)) goto out;
    }
    result = to;
  }
out:
  if (!n || result == g->broken) g->error = "out of memory";
  free(many);
  free(order);
  return result;
}

struct uop *uop_import(struct graph *g, struct uop *u) {
  if (uop_graph(u) == g) return u;
  struct uop_map map = {0};
  struct uop *r = rebuild(g, u, &map);
  uop_map_free(&map);
  return r;
}

struct uop *uop_substitute(struct graph *g, struct uop *u, struct uop *const *from, struct uop *const *to, unsigned n) {
  struct uop_map map = {0};
  for (unsigned i = 0; i < n; i++)
    if (!uop_map_put(&map, from[i], to[i])) g->error = "out of memory";
  struct uop *r = g->error ? g->broken : rebuild(g, u, &map);
  uop_map_free(&map);
  return r;
}
