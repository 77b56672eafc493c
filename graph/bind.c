/* Serializes a graph without the parts that vary from run to run, and rebuilds a graph from its serialization.
 *
 * A key is a sequence of 32-bit words: one record per node, sources first, then the numbers of the roots. A record
 * consists of op, type, lanes and aux; the number of sources and the length of a name; the argument or the name; the
 * numbers of the sources. */
#include "bind.h"
#include "exchange.h"
#include "symbolic.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
  NO_NUMBER = UINT32_MAX,
  HEAD_WORDS = 4,
  MOST_STEPS = 10000,
  MEAN_WORDS = 7,     /* of a record */
  EXPECTED_GROWTH = 4 /* nodes that scheduling makes of one node */
};

struct seen {
  uint32_t stamp, number;
  struct uop *to; /* the node's replacement */
  bool written;
};
struct walk_frame {
  struct uop *u;
  unsigned next;
};
struct binder {
  struct graph *graph;
  struct seen *seen; /* by node id */
  size_t capacity;
  uint32_t stamp;
  struct walk_frame *stack;
  size_t stack_capacity;
};

struct binder *binder_new(void) { return calloc(1, sizeof(struct binder)); }

void binder_free(struct binder *b) {
  if (!b) return;
  free(b->seen);
  free(b->stack);
  free(b);
}

/* Makes room for every node that the graph has so far. */
static bool reserve(struct binder *b) {
  size_t n = graph_node_count(b->graph) + 1, capacity = n + n / 2;
  if (n <= b->capacity) return true;
  struct seen *more = realloc(b->seen, capacity * sizeof *more);
  if (!more) return false;
  memset(more + b->capacity, 0, (capacity - b->capacity) * sizeof *more);
  b->seen = more;
  b->capacity = capacity;
  return true;
}

bool binder_begin(struct binder *b, struct graph *g) {
  b->graph = g;
  if (++b->stamp == 0) {
    memset(b->seen, 0, b->capacity * sizeof *b->seen);
    b->stamp = 1;
  }
  return reserve(b);
}

static struct seen *entry(const struct binder *b, const struct uop *u) {
  struct seen *s = &b->seen[u->id];
  if (s->stamp != b->stamp) *s = (struct seen){.stamp = b->stamp, .number = NO_NUMBER};
  return s;
}

bool binder_replace(struct binder *b, const struct uop *from, struct uop *to) {
  if (!reserve(b)) return false;
  if (from != to) entry(b, from)->to = to;
  return true;
}

struct uop *binder_resolve(const struct binder *b, struct uop *u) {
  while (u->id < b->capacity && entry(b, u)->to) u = entry(b, u)->to;
  return u;
}

bool binder_mark_written(struct binder *b, const struct uop *buffer) {
  if (!reserve(b)) return false;
  entry(b, buffer)->written = true;
  return true;
}

/* ---- slices ---- */

/* *steps limits the number of nodes visited, because a shared node is visited once per use. */
static bool bound_value(const struct uop *u, int64_t *value, unsigned *steps) {
  int64_t x[3] = {0};
  if (*steps <= 1) return false;
  --*steps;
  if (u->op == OP_CONST) {
    *value = u->arg.i;
    return !dtype_is_float(u->dtype);
  }
  if (u->op == OP_BIND) return bound_value(u->src[1], value, steps);
  if (op_info[u->op].arity != 2 || op_info[u->op].cls != OPCLASS_ALU) return false;
  if (!bound_value(u->src[0], &x[0], steps)) return false;
  x[1] = x[0];
  if (u->src[1] != u->src[0] && !bound_value(u->src[1], &x[1], steps)) return false;
  return fold_integers(u->op, u->src[0]->dtype, x, value);
}

bool uop_bound_value(const struct uop *u, int64_t *value) { return bound_value(u, value, &(unsigned){MOST_STEPS}); }

/* Also returns true for an expression that is too large to search. */
static bool has_bind_within(const struct uop *u, unsigned *steps) {
  if (u->op == OP_BIND || *steps <= 1) return true;
  --*steps;
  for (unsigned i = 0; i < u->nsrc; i++)
    if ((!i || u->src[i] != u->src[0]) && has_bind_within(u->src[i], steps)) return true;
  return false;
}
static bool has_bind(const struct uop *u) { return has_bind_within(u, &(unsigned){MOST_STEPS}); }

bool uop_contiguous_slice(const struct binder *b, struct uop *u, struct uop **buffer, int64_t *offset, bool *varies) {
  struct uop *chain[64];
  unsigned n = 0;
  u = b ? binder_resolve(b, u) : u;
  for (; u->op == OP_RESHAPE || u->op == OP_SHRINK || u->op == OP_CONTIGUOUS;
       u = b ? binder_resolve(b, u->src[0]) : u->src[0]) {
    if (n == sizeof chain / sizeof *chain) return false;
    chain[n++] = u;
  }
  if (u->op != OP_BUFFER) return false;
  *buffer = u;
  *offset = 0;
  *varies = false;
  while (n-- > 0) {
    const struct uop *m = chain[n];
    if (m->op != OP_SHRINK) continue;
    const struct shape *from = m->src[0]->shape;
    int64_t stride = 1, dim, begin, end;
    bool partial = false; /* an inner axis is sliced */
    bool scaled = false;  /* the size of an inner axis depends on a variable */
    for (unsigned i = from->rank; i-- > 0;) {
      if (!uop_bound_value(from->dim[i], &dim) || !uop_bound_value(m->src[1 + 2 * i], &begin) ||
          !uop_bound_value(m->src[2 + 2 * i], &end))
        return false;
      if (partial && end - begin != 1) return false;
      *varies |= has_bind(m->src[1 + 2 * i]) || (begin && scaled);
      scaled |= has_bind(from->dim[i]);
      *offset += begin * stride;
      stride *= dim;
      partial = partial || end - begin != dim;
    }
  }
  return true;
}

/* Whether u is a SHRINK of constant size and position that may become a buffer of its own. */
static bool is_slice(const struct binder *b, struct uop *u, size_t alignment, struct bound_buffer *out) {
  struct uop *buffer;
  bool varies;
  int64_t offset, n = u->op == OP_SHRINK ? shape_numel(u->shape) : 0;
  if (n <= 0 || !uop_contiguous_slice(b, u, &buffer, &offset, &varies) || varies || entry(b, buffer)->written)
    return false;
  uint64_t size = dtype_info[u->dtype].size;
  *out = (struct bound_buffer){buffer->arg.i, (uint64_t)offset * size, (uint64_t)n * size, buffer->aux};
  return out->offset % alignment == 0;
}

/* ---- writing ---- */

struct writer {
  struct binding *out;
  size_t key_capacity;
  uint32_t nodes, exchanges;
  unsigned buffers_capacity, vars_capacity;
  char *err;
  size_t errcap;
};

static void *grow_array(void *p, size_t need, size_t *capacity, size_t size) {
  if (need <= *capacity) return p;
  size_t c = *capacity ? *capacity : 64;
  while (c < need) c *= 2;
  void *more = realloc(p, c * size);
  if (more) *capacity = c;
  return more;
}

/* Appends n words to the key and returns them for the caller to fill. NULL when out of memory. */
static uint32_t *append_words(struct writer *w, size_t n) {
  uint32_t *p = grow_array(w->out->key, w->out->nkey + n, &w->key_capacity, sizeof *p);
  if (!p) return NULL;
  w->out->key = p;
  w->out->nkey += n;
  return p + w->out->nkey - n;
}

/* Appends a record and returns the place for the sources' numbers, which follow its head. */
static uint32_t *append_record(struct writer *w, unsigned op, unsigned dtype, unsigned lanes, unsigned aux, int64_t arg,
                               unsigned nsrc) {
  uint32_t *p = append_words(w, HEAD_WORDS + nsrc);
  if (!p) return NULL;
  p[0] = op | dtype << 8 | lanes << 16 | aux << 24;
  p[1] = nsrc;
  memcpy(p + 2, &arg, sizeof arg);
  w->nodes++;
  return p + HEAD_WORDS;
}

static bool write_var(struct writer *w, const struct uop *u, const uint32_t *src) {
  size_t length = strlen(u->arg.s), n = (length + 3) / 4;
  uint32_t *p = length && length <= UINT16_MAX ? append_words(w, 2 + n + 2) : NULL;
  if (!p) return false;
  memset(p, 0, (2 + n) * sizeof *p);
  p[0] = u->op | (uint32_t)u->dtype << 8 | (uint32_t)u->lanes << 16 | (uint32_t)u->aux << 24;
  p[1] = 2 | (uint32_t)length << 16;
  memcpy(p + 2, u->arg.s, length);
  memcpy(p + 2 + n, src, 2 * sizeof *src);
  w->nodes++;
  return true;
}

static bool write_buffer(struct writer *w, enum dtype t, struct bound_buffer what) {
  struct binding *o = w->out;
  size_t capacity = w->buffers_capacity;
  struct bound_buffer *p = grow_array(o->buffers, o->nbuffers + 1, &capacity, sizeof *p);
  if (!p) return false;
  o->buffers = p;
  w->buffers_capacity = (unsigned)capacity;
  p[o->nbuffers] = what;
  uint32_t size = w->nodes;
  if (!append_record(w, OP_CONST, DT_INDEX, 1, 0, (int64_t)(what.bytes / dtype_info[t].size), 0)) return false;
  uint32_t *src = append_record(w, OP_BUFFER, t, 1, what.device, o->nbuffers++, 1);
  if (src) src[0] = size;
  return src != NULL;
}

/* Writes a slice as a BUFFER of its own under a RESHAPE to the slice's shape. */
static bool write_slice(struct writer *w, const struct uop *u, struct bound_buffer what, uint32_t *number) {
  if (!write_buffer(w, u->dtype, what)) return false;
  *number = w->nodes - 1;
  if (u->shape->rank == 1) return true;
  uint32_t buffer = *number, first = w->nodes, *src;
  for (unsigned i = 0; i < u->shape->rank; i++)
    if (!append_record(w, OP_CONST, DT_INDEX, 1, 0, u->shape->dim[i]->arg.i, 0)) return false;
  *number = w->nodes;
  src = append_record(w, OP_RESHAPE, u->dtype, 1, 0, 0, u->shape->rank + 1);
  if (!src) return false;
  src[0] = buffer;
  for (unsigned i = 0; i < u->shape->rank; i++) src[i + 1] = first + i;
  return true;
}

static int bind_fail(struct writer *w, int status, const char *fmt, const char *name, int64_t a, int64_t b) {
  if (w->errcap) snprintf(w->err, w->errcap, fmt, name, (long long)a, (long long)b);
  return status;
}
static int no_memory(struct writer *w) { return bind_fail(w, -ENOMEM, "out of memory%s", "", 0, 0); }

static int write_bind(struct writer *w, const struct uop *u) {
  struct binding *o = w->out;
  const struct uop *var = u->src[0];
  int64_t value = u->src[1]->arg.i;
  if (value < uop_min(u->src[0]) || value > uop_max(u->src[0]) || value != (int32_t)value)
    return bind_fail(w, -EINVAL, "variable %s is bound to %lld, which is out of its bounds", var->arg.s, value, 0);
  for (unsigned i = 0; i < o->nvars; i++) {
    if (strcmp(o->vars[i].name, var->arg.s) != 0) continue;
    if (o->vars[i].value == value) return 0;
    return bind_fail(w, -EINVAL, "variable %s is bound to both %lld and %lld", var->arg.s, o->vars[i].value, value);
  }
  size_t capacity = w->vars_capacity;
  struct bound_var *p = grow_array(o->vars, o->nvars + 1, &capacity, sizeof *p);
  if (!p) return no_memory(w);
  o->vars = p;
  w->vars_capacity = (unsigned)capacity;
  p[o->nvars++] = (struct bound_var){var->arg.s, value};
  return 0;
}

/* Writes u, whose sources have been numbered. */
static int write_node(struct binder *b, struct writer *w, struct uop *u) {
  struct seen *s = entry(b, u);
  struct uop *few[2 * MAX_RANK + 1], **src = u->nsrc <= 2 * MAX_RANK + 1 ? few : malloc(u->nsrc * sizeof *src);
  int status = 0;
  if (!src) return no_memory(w);
  for (unsigned i = 0; i < u->nsrc; i++) src[i] = binder_resolve(b, u->src[i]);
  if (u->op == OP_BUFFER) {
    uint64_t bytes = (uint64_t)u->src[0]->arg.i * dtype_info[u->dtype].size;
    if (!write_buffer(w, u->dtype, (struct bound_buffer){u->arg.i, 0, bytes, u->aux})) status = no_memory(w);
  } else if (u->op == OP_VAR) {
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): a variable has two sources
    uint32_t bounds[2] = {entry(b, src[0])->number, entry(b, src[1])->number};
    if (!write_var(w, u, bounds)) status = no_memory(w);
  } else if (u->op == OP_BIND) {
    s->number = entry(b, src[0])->number;
    status = write_bind(w, u);
    goto out;
  } else {
    int64_t arg = u->op == OP_EXCHANGE ? exchange_renumbered(u, w->exchanges++) : u->arg.i;
    uint32_t *p = append_record(w, u->op, u->dtype, u->lanes, u->aux, arg, u->nsrc);
    for (unsigned i = 0; p && i < u->nsrc; i++) p[i] = entry(b, src[i])->number;
    if (!p) status = no_memory(w);
  }
  s->number = w->nodes - 1;
out:
  if (src != few) free(src);
  return status;
}

static uint64_t hash_words(const uint32_t *p, size_t n) {
  uint64_t h = n * UINT64_C(0x9e3779b97f4a7c15);
  for (size_t i = 0; i < n; i++) {
    h = (h ^ p[i]) * UINT64_C(0xe7037ed1a0b428db);
    h ^= h >> 29;
  }
  return h;
}

static int write_reachable(struct binder *b, struct writer *w, struct uop *root, size_t alignment) {
  size_t depth = 0;
  struct uop *enter = binder_resolve(b, root);
  for (;;) {
    struct bound_buffer slice;
    if (enter && entry(b, enter)->number == NO_NUMBER) {
      if (is_slice(b, enter, alignment, &slice)) {
        if (!write_slice(w, enter, slice, &entry(b, enter)->number)) return no_memory(w);
      } else {
        struct walk_frame *p = grow_array(b->stack, depth + 1, &b->stack_capacity, sizeof *p);
        if (!p) return no_memory(w);
        b->stack = p;
        p[depth++] = (struct walk_frame){enter, 0};
      }
    }
    enter = NULL;
    if (!depth) return 0;
    struct walk_frame *f = &b->stack[depth - 1];
    unsigned inner = f->u->op == OP_BUFFER ? 0 : f->u->op == OP_BIND ? 1 : f->u->nsrc; /* without sizes and values */
    if (f->next < inner) {
      enter = binder_resolve(b, f->u->src[f->next++]);
      continue;
    }
    int status = write_node(b, w, f->u);
    if (status) return status;
    depth--;
  }
}

int binder_bind(struct binder *b, struct uop *const *roots, unsigned nroots, size_t alignment, struct binding *out,
                char *err, size_t errcap) {
  struct writer w = {.out = out, .err = err, .errcap = errcap};
  int status = reserve(b) ? 0 : no_memory(&w);
  *out = (struct binding){.nroots = nroots};
  for (unsigned i = 0; i < nroots && !status; i++) status = write_reachable(b, &w, roots[i], alignment);
  uint32_t *p = status ? NULL : append_words(&w, nroots);
  for (unsigned i = 0; p && i < nroots; i++) p[i] = entry(b, binder_resolve(b, roots[i]))->number;
  if (!status && !p) status = no_memory(&w);
  if (status) binding_free(out);
  out->hash = hash_words(out->key, out->nkey);
  return status;
}

void binding_free(struct binding *b) {
  free(b->key);
  free(b->buffers);
  free(b->vars);
  *b = (struct binding){0};
}

/* ---- reading ---- */

bool bound_graph(const uint32_t *key, size_t nkey, struct graph *g, struct uop **roots, unsigned nroots) {
  struct uop **node = malloc((nkey / HEAD_WORDS + 1) * sizeof *node), **src = NULL;
  size_t n = 0, at = 0, room = 0;
  char name[UINT16_MAX + 1];
  graph_reserve(g, EXPECTED_GROWTH * nkey / MEAN_WORDS);
  while (node && at < nkey - nroots) {
    const uint32_t *p = key + at;
    unsigned nsrc = p[1] & 0xffff, length = p[1] >> 16;
    union uop_arg arg = {0};
    at += 2 + (length ? (length + 3) / 4 : 2);
    if (length) {
      memcpy(name, p + 2, length);
      name[length] = 0;
      arg.s = graph_intern(g, name);
    } else
      memcpy(&arg.i, p + 2, sizeof arg.i);
    struct uop **more = grow_array(src, nsrc + 1, &room, sizeof *more);
    if (!more) break;
    src = more;
    for (unsigned i = 0; i < nsrc; i++) src[i] = node[key[at++]];
    node[n++] = uop_new(g, p[0] & 0xff, p[0] >> 8 & 0xff, p[0] >> 16 & 0xff, arg, p[0] >> 24, src, nsrc);
  }
  bool ok = node && at == nkey - nroots && !graph_error(g);
  for (unsigned i = 0; ok && i < nroots; i++) roots[i] = node[key[at + i]];
  free(node);
  free(src);
  return ok;
}
