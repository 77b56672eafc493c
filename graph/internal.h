/* Internal to graph/: the graph itself, a map keyed by nodes, and functions of uop.c, walk.c and facts.c that the
 * others use. */
#ifndef DOORBELL_GRAPH_INTERNAL_H
#define DOORBELL_GRAPH_INTERNAL_H
#include "uop.h"

/* Hash map with open addressing, keyed by node pointers. An all-zero map is empty. */
struct uop_map {
  struct {
    const struct uop *key;
    void *value;
  } *slot;
  size_t capacity, count;
};
void *uop_map_get(const struct uop_map *m, const struct uop *key);       /* NULL if absent */
bool uop_map_put(struct uop_map *m, const struct uop *key, void *value); /* false: out of memory */
void uop_map_free(struct uop_map *m);

void graph_set_error(struct graph *g, const char *why); /* keeps the pointer; the first error stays */

struct graph {
  char *at, *end; /* free space of the newest chunk */
  struct chunk **chunk;
  size_t nchunks, chunk_capacity;
  char *fresh, *fresh_end; /* free space of the newest block, for chunks */
  struct block *blocks;
  struct slot *slot;
  uint8_t *byte; /* one byte per slot */
  unsigned log2; /* of the number of slots */
  size_t count, grow_at;
  size_t bytes;
  char **string;
  size_t nstrings, strings_capacity;
  struct shape_slot {
    uint64_t hash;
    const struct shape *shape;
  } *shapes;
  size_t nshapes, shape_capacity;
  uint32_t walked; /* the highest mark given out */
  struct walk_frame {
    struct uop *u;
    unsigned next;
  } *stack;
  size_t stack_capacity;
  const char *error;
  struct uop *broken; /* returned by uop_new when out of memory */
};
void graph_clear_marks(struct graph *g);
/* Makes in g a copy of u, a node of any graph, with the sources src, which are nodes of g. */
struct uop *uop_like(struct graph *g, const struct uop *u, struct uop *const *src);
/* A RESHAPE, EXPAND, PAD or SHRINK of x by n sizes. */
struct uop *uop_movement(struct graph *g, enum op op, struct uop *x, struct uop *const *size, unsigned n);
/* A scalar repeated in a shape of at least rank 1. */
struct uop *uop_broadcast(struct graph *g, struct uop *scalar, const struct shape *shape);

struct bounds uop_compute_bounds(const struct uop *u);
const struct shape *uop_compute_shape(struct graph *g, struct uop *u);
/* Returns the graph's one copy of shape s. Only its first rank dims are allocated. */
const struct shape *shape_intern(struct graph *g, const struct shape *s);
#endif
