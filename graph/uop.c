/* Nodes: the arena, the hash-consing table, interned strings and shapes, and constructors. */
#include "internal.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

const struct op_info op_info[OP_COUNT] = {
#define OP(name, cls, arity, comm, doc)           [OP_##name] = {#name, OPCLASS_##cls, arity, comm, TAKES_OTHER, NULL},
#define ALU(name, arity, comm, types, infix, doc) [OP_##name] = {#name, OPCLASS_ALU, arity, comm, types, infix},
#include "ops.def"
#undef OP
};

/* Chunks are aligned to their size: masking a node's address gives its chunk, and the chunk points to the graph. The
 * first chunks are allocated one by one, later ones in blocks of huge pages. A node too large for a chunk gets a larger
 * one of its own, at whose start it is stored, so that masking its address works too. */
enum { CHUNK = 1 << 16, BLOCK = 1 << 21, SINGLE_CHUNKS = 32 };
struct chunk {
  struct graph *graph;
  uint64_t number;
};
struct block { /* memory for one or more chunks */
  void *memory;
  size_t size; /* BLOCK if allocated by huge_alloc, otherwise by aligned_alloc */
  struct block *next;
};

/* Allocates zeroed memory in huge pages, which cause fewer page faults and TLB misses. size is a multiple of BLOCK. */
static void *huge_alloc(size_t size) {
  char *p = mmap(NULL, size + BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return NULL;
  size_t before = -(uintptr_t)p & (BLOCK - 1);
  if (before) munmap(p, before);
  munmap(p + before + size, BLOCK - before);
  madvise(p + before, size, MADV_HUGEPAGE); /* only advice: an error does not matter */
  return p + before;
}

/* Some freed memory is kept for the next graph: the kernel need not clear it again. Guarded by spare_lock. */
enum { MOST_SPARE = 32 };
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static struct spare {
  void *memory[MOST_SPARE];
  unsigned n, most;
} spare_chunks = {.most = MOST_SPARE}, spare_blocks = {.most = 8};
static struct spare *spare_of(size_t size) {
  return size == CHUNK ? &spare_chunks : size == BLOCK ? &spare_blocks : NULL;
}

static void *block_new(struct graph *g, size_t size) {
  struct block *b = malloc(sizeof *b);
  struct spare *spare = spare_of(size);
  void *p = NULL;
  if (b && spare) {
    pthread_mutex_lock(&spare_lock);
    if (spare->n) p = spare->memory[--spare->n];
    pthread_mutex_unlock(&spare_lock);
  }
  if (b && !p) p = size == BLOCK ? huge_alloc(size) : aligned_alloc(CHUNK, size);
  if (!p) {
    free(b);
    return NULL;
  }
  *b = (struct block){p, size, g->blocks};
  g->blocks = b;
  g->bytes += size;
  return p;
}

static void block_free(struct block *b) {
  struct spare *spare = spare_of(b->size);
  if (spare) {
    pthread_mutex_lock(&spare_lock);
    if (spare->n < spare->most) spare->memory[spare->n++] = b->memory, b->memory = NULL;
    pthread_mutex_unlock(&spare_lock);
  }
  if (b->memory && b->size == BLOCK)
    munmap(b->memory, BLOCK);
  else
    free(b->memory);
  free(b);
}

/* size: bytes needed, including the chunk's head. */
static struct chunk *chunk_new(struct graph *g, size_t size) {
  if (g->nchunks == g->chunk_capacity) {
    size_t n = g->chunk_capacity ? g->chunk_capacity * 2 : 8;
    struct chunk **p = realloc(g->chunk, n * sizeof *p);
    if (!p) return NULL;
    g->chunk = p, g->chunk_capacity = n;
  }
  struct chunk *c = NULL;
  if (size > CHUNK || g->nchunks < SINGLE_CHUNKS) {
    size_t whole = (size + CHUNK - 1) & ~(size_t)(CHUNK - 1);
    c = block_new(g, whole == BLOCK ? whole + CHUNK : whole); /* only blocks from huge_alloc have size BLOCK */
  } else {
    if (g->fresh == g->fresh_end) {
      g->fresh = block_new(g, BLOCK);
      g->fresh_end = g->fresh ? g->fresh + BLOCK : NULL;
    }
    if (g->fresh) c = (struct chunk *)g->fresh, g->fresh += CHUNK;
  }
  if (!c) return NULL;
  *c = (struct chunk){g, g->nchunks};
  g->chunk[g->nchunks++] = c;
  return c;
}

static void *arena_alloc_in_new_chunk(struct graph *g, size_t size) {
  size_t need = size + sizeof(struct chunk);
  struct chunk *c = chunk_new(g, need);
  if (!c) {
    g->error = "out of memory";
    return NULL;
  }
  if (need > CHUNK / 4) return c + 1;
  g->at = (char *)(c + 1), g->end = (char *)c + CHUNK;
  void *p = g->at;
  g->at += size;
  return p;
}

static inline void *arena_alloc(struct graph *g, size_t size) {
  size = (size + 7) & ~(size_t)7;
  if (__builtin_expect((size_t)(g->end - g->at) < size, 0)) return arena_alloc_in_new_chunk(g, size);
  void *p = g->at;
  g->at += size;
  return p;
}

void *graph_alloc(struct graph *g, size_t size) {
  void *p = arena_alloc(g, size);
  return p ? memset(p, 0, size) : NULL;
}

static inline struct chunk *chunk_of(const void *p) { return (struct chunk *)((uintptr_t)p & ~(uintptr_t)(CHUNK - 1)); }

struct graph *uop_graph(const struct uop *u) { return chunk_of(u)->graph; }

/* The hash table of nodes. A node's tag is the upper half of its hash, and its slot's index is the upper bits of the
 * tag. A larger table therefore keeps the order of the slots, and growing is one pass over both tables. A separate
 * array after the slots holds one byte per slot: the lower bits of the tag, or 0 if the slot is empty. A lookup of a
 * new node usually reads only this array, which is small enough to stay in the cache. */
struct slot {
  uint32_t tag;
  uint32_t where; /* number of the chunk, and offset in it in words */
};
enum { WORD_BITS = 13, FIRST_LOG2 = 11 };
_Static_assert(CHUNK >> WORD_BITS == 8, "a chunk has 2^13 words");

static inline uint32_t where_of(const struct uop *u) {
  const struct chunk *c = chunk_of(u);
  return (uint32_t)(c->number << WORD_BITS | (uintptr_t)((const char *)u - (const char *)c) / 8);
}
static inline struct uop *node_at(const struct graph *g, uint32_t where) {
  return (struct uop *)((char *)g->chunk[where >> WORD_BITS] + (where & ((1 << WORD_BITS) - 1)) * 8);
}

static size_t table_size(unsigned log2) { return (sizeof(struct slot) + 1) << log2; }

static inline uint8_t *bytes_of(struct slot *slot, unsigned log2) { return (uint8_t *)(slot + ((size_t)1 << log2)); }

static struct slot *table_new(unsigned log2) {
  size_t size = table_size(log2), huge = (size + BLOCK - 1) & ~(size_t)(BLOCK - 1);
  struct slot *slot = size < BLOCK ? malloc(size) : huge_alloc(huge);
  if (slot && size < BLOCK) memset(bytes_of(slot, log2), 0, (size_t)1 << log2);
  return slot;
}

static void table_free(struct slot *slot, unsigned log2) {
  size_t size = table_size(log2), huge = (size + BLOCK - 1) & ~(size_t)(BLOCK - 1);
  if (size < BLOCK)
    free(slot);
  else
    munmap(slot, huge);
}

static inline uint8_t byte_of(uint32_t tag) { return (uint8_t)(tag | 0x80); }

static bool table_grow(struct graph *g, unsigned log2) {
  struct slot *slot = log2 <= 32 ? table_new(log2) : NULL;
  if (!slot) return false;
  size_t mask = ((size_t)1 << log2) - 1;
  uint8_t *byte = bytes_of(slot, log2);
  for (size_t i = 0; i < (size_t)1 << g->log2; i++) {
    if (!g->byte[i]) continue;
    struct slot s = g->slot[i];
    size_t at = s.tag >> (32 - log2);
    while (byte[at]) at = (at + 1) & mask;
    slot[at] = s;
    byte[at] = byte_of(s.tag);
  }
  table_free(g->slot, g->log2);
  g->slot = slot, g->log2 = log2;
  g->byte = byte;
  g->grow_at = mask / 8 * 5;
  return true;
}

void graph_reserve(struct graph *g, size_t n) {
  unsigned log2 = g->log2;
  while (log2 < 32 && ((size_t)1 << log2) / 8 * 5 < n) log2++;
  if (log2 > g->log2) table_grow(g, log2);
}

struct graph *graph_new(void) {
  struct graph *g = calloc(1, sizeof *g);
  if (!g) return NULL;
  g->log2 = FIRST_LOG2;
  g->grow_at = ((size_t)1 << FIRST_LOG2) / 8 * 5;
  g->slot = table_new(g->log2);
  if (g->slot) g->byte = bytes_of(g->slot, g->log2);
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
  for (struct block *b = g->blocks, *next; b; b = next) {
    next = b->next;
    block_free(b);
  }
  if (g->slot) table_free(g->slot, g->log2);
  free(g->chunk);
  free(g->string);
  free(g->shapes);
  free(g->stack);
  free(g);
}

size_t graph_node_count(const struct graph *g) { return g->count; }
size_t graph_bytes(const struct graph *g) { return g->bytes + table_size(g->log2); }
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

/* A linear search is enough: only variables have names, and there are few of them. */
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

/* Shapes are interned, so that two shapes of one graph are equal if their pointers are. */
const struct shape *shape_intern(struct graph *g, const struct shape *s) {
  uint64_t h = s->rank;
  for (unsigned i = 0; i < s->rank; i++) h = mix(h, (uintptr_t)s->dim[i]);
  if (g->nshapes * 2 >= g->shape_capacity) {
    size_t n = g->shape_capacity ? g->shape_capacity * 2 : 64;
    struct shape_slot *slot = calloc(n, sizeof *slot);
    if (!slot) {
      g->error = "out of memory";
      return NULL;
    }
    for (size_t i = 0; i < g->shape_capacity; i++) {
      if (!g->shapes[i].shape) continue;
      size_t at = g->shapes[i].hash & (n - 1);
      while (slot[at].shape) at = (at + 1) & (n - 1);
      slot[at] = g->shapes[i];
    }
    free(g->shapes);
    g->shapes = slot, g->shape_capacity = n;
  }
  size_t at = h & (g->shape_capacity - 1);
  for (; g->shapes[at].shape; at = (at + 1) & (g->shape_capacity - 1)) {
    const struct shape *t = g->shapes[at].shape;
    if (g->shapes[at].hash == h && t->rank == s->rank && !memcmp(t->dim, s->dim, s->rank * sizeof *s->dim)) return t;
  }
  struct shape *keep = arena_alloc(g, offsetof(struct shape, dim) + s->rank * sizeof *s->dim);
  if (!keep) return NULL;
  memcpy(keep, s, offsetof(struct shape, dim) + s->rank * sizeof *s->dim);
  g->shapes[at] = (struct shape_slot){h, keep};
  g->nshapes++;
  return keep;
}

/* ---- nodes ---- */
static inline bool same_sources(const struct uop *u, struct uop *const *src) {
  for (unsigned i = 0; i < u->nsrc; i++)
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the heads are equal, and with them the numbers of sources
    if (u->src[i] != src[i]) return false;
  return true;
}

static inline uint64_t head_of(enum op op, enum dtype dtype, unsigned lanes, unsigned aux, unsigned nsrc) {
  return (uint64_t)op | (uint64_t)dtype << 8 | (uint64_t)(lanes & 0xffff) << 16 | (uint64_t)(aux & 255) << 32 |
         (uint64_t)nsrc << 48;
}

/* The first 8 bytes of a node, op to nsrc, in the format of head_of, without its flags. */
static inline uint64_t node_head(const struct uop *u) {
  uint64_t h;
  memcpy(&h, u, sizeof h);
  return h & 0xffff00ffffffffff;
}
_Static_assert(offsetof(struct uop, dtype) == 1 && offsetof(struct uop, lanes) == 2 && offsetof(struct uop, aux) == 4 &&
                   offsetof(struct uop, flags) == 5 && offsetof(struct uop, nsrc) == 6,
               "node_head");

static struct uop *find_or_make(struct graph *g, uint64_t head, union uop_arg arg, struct uop *const *src,
                                uint64_t hash) {
  uint32_t tag = (uint32_t)(hash >> 32);
  size_t mask = ((size_t)1 << g->log2) - 1, at = tag >> (32 - g->log2);
  const uint8_t *byte = g->byte;
  for (; byte[at]; at = (at + 1) & mask) {
    if (byte[at] != byte_of(tag) || g->slot[at].tag != tag) continue;
    struct uop *u = node_at(g, g->slot[at].where);
    if (node_head(u) == head && u->arg.i == arg.i && same_sources(u, src)) return u;
  }
  enum dtype dtype = (enum dtype)(head >> 8 & 255);
  unsigned nsrc = (unsigned)(head >> 48);
  bool bounded = dtype != DT_VOID && !dtype_is_float(dtype);
  struct uop *u = arena_alloc(g, sizeof *u + nsrc * sizeof *src + (bounded ? sizeof(struct bounds) : 0));
  if (!u) return g->broken;
  *u = (struct uop){.op = (uint8_t)head,
                    .dtype = (uint8_t)dtype,
                    .lanes = (uint16_t)(head >> 16),
                    .aux = (uint8_t)(head >> 32),
                    .flags = bounded ? UOP_HAS_BOUNDS : 0,
                    .nsrc = (uint16_t)nsrc,
                    .id = (uint32_t)g->count,
                    .arg = arg,
                    .hash = hash};
  for (unsigned i = 0; i < nsrc; i++) u->src[i] = src[i];
  g->slot[at] = (struct slot){tag, where_of(u)};
  g->byte[at] = byte_of(tag);
  g->count++;
  /* a small table grows faster, to rehash less often */
  if (g->count > g->grow_at && !table_grow(g, g->log2 + (g->log2 < 16 ? 2 : 1)) &&
      g->count + 1 >= (size_t)1 << g->log2) {
    g->error = "out of memory";
    /* Empty the table, so that later lookups terminate. Ids keep counting: arrays by id have room for
     * graph_node_count() nodes. */
    memset(g->byte, 0, (size_t)1 << g->log2);
  }
  if (bounded) *(struct bounds *)uop_bounds(u) = uop_compute_bounds(u);
  u->shape = uop_compute_shape(g, u);
  return u;
}

struct uop *uop_new(struct graph *g, enum op op, enum dtype dtype, unsigned lanes, union uop_arg arg, unsigned aux,
                    struct uop *const *src, unsigned nsrc) {
  if (nsrc > UINT16_MAX) {
    g->error = "a node has more than 65535 sources";
    return g->broken;
  }
  uint64_t head = head_of(op, dtype, lanes, aux, nsrc), argument = (uint64_t)arg.i;
  if (op == OP_VAR) {
    arg.s = graph_intern(g, arg.s);
    argument = string_hash(arg.s);
  }
  uint64_t h = mix(head, argument);
  for (unsigned i = 0; i < nsrc; i++) h = mix(h, src[i]->hash + i);
  return find_or_make(g, head, arg, src, h);
}

struct uop *uop_like(struct graph *g, const struct uop *u, struct uop *const *src) {
  union uop_arg arg = u->arg;
  if (u->op == OP_VAR) arg.s = graph_intern(g, arg.s);
  return find_or_make(g, node_head(u), arg, src, u->hash);
}

void graph_clear_marks(struct graph *g) {
  for (size_t i = 0; i < (size_t)1 << g->log2; i++)
    if (g->byte[i]) node_at(g, g->slot[i].where)->mark = 0;
  g->walked = 0;
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

bool dtype_holds(enum dtype t, int64_t lo, int64_t hi) {
  if (t == DT_INDEX || t == DT_I64 || t == DT_U64) return lo > INT64_MIN && hi < INT64_MAX && (t != DT_U64 || lo >= 0);
  if (t == DT_BOOL || !dtype_is_int(t)) return false;
  bool negative = dtype_info[t].cls == 'i';
  int64_t top = (INT64_C(1) << (dtype_info[t].size * 8 - negative)) - 1;
  return lo >= (negative ? -top - 1 : 0) && hi <= top;
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

struct uop *uop_identity(struct graph *g, enum op op, enum dtype t) {
  if (op != OP_MAX) return dtype_is_float(t) ? uop_const_float(g, t, op == OP_MUL) : uop_const_int(g, t, op == OP_MUL);
  if (t == DT_F8E4M3) return uop_const_float(g, t, -448); /* it has no infinity: its lowest value */
  if (dtype_is_float(t)) return uop_const_float(g, t, -INFINITY);
  if (t == DT_BOOL || dtype_info[t].cls == 'u') return uop_const_int(g, t, 0);
  return uop_const_int(g, t, (int64_t)(UINT64_MAX << (dtype_info[t].size * 8 - 1)));
}

struct uop *uop_var(struct graph *g, const char *name, int64_t min, int64_t max) {
  return uop_new(g, OP_VAR, DT_INDEX, 1, (union uop_arg){.s = name}, 0,
                 (struct uop *[]){uop_index(g, min), uop_index(g, max)}, 2);
}

struct uop *uop_unary(struct graph *g, enum op op, struct uop *x) {
  return uop_new(g, op, x->dtype, x->lanes, (union uop_arg){0}, 0, &x, 1);
}

struct uop *uop_binary(struct graph *g, enum op op, struct uop *a, struct uop *b) {
  enum dtype t = op_info[op].types & COMPARES ? DT_BOOL : a->dtype;
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

struct uop *uop_movement(struct graph *g, enum op op, struct uop *x, struct uop *const *size, unsigned n) {
  struct uop *src[1 + 2 * MAX_RANK] = {x};
  memcpy(src + 1, size, n * sizeof *size);
  return uop_new(g, op, x->dtype, x->lanes, (union uop_arg){0}, 0, src, n + 1);
}

struct uop *uop_broadcast(struct graph *g, struct uop *scalar, const struct shape *shape) {
  struct uop *one[MAX_RANK];
  for (unsigned i = 0; i < shape->rank; i++) one[i] = uop_index(g, 1);
  struct uop *ones = uop_movement(g, OP_RESHAPE, scalar, one, shape->rank);
  return ones->shape == shape ? ones : uop_movement(g, OP_EXPAND, ones, shape->dim, shape->rank);
}
