/* Shared inside graph/: the graph itself, a map from nodes to nodes, and what uop.c, walk.c and facts.c ask of each
 * other. */
#ifndef DOORBELL_GRAPH_INTERNAL_H
#define DOORBELL_GRAPH_INTERNAL_H
#include "uop.h"

/* Open addressing, keys are node pointers. All-zero is an empty map. */
struct uop_map {
  struct {
    const struct uop *key;
    void *value;
  } *slot;
  size_t capacity, count;
};
void *uop_map_get(const struct uop_map *m, const struct uop *key);       /* NULL when absent */
bool uop_map_put(struct uop_map *m, const struct uop *key, void *value); /* false: out of memory */
void uop_map_free(struct uop_map *m);

void graph_set_error(struct graph *g, const char *why); /* a string that lives on; the first error stays */

struct graph {
  char *at, *end; /* free space of the newest chunk */
  struct chunk **chunk;
  size_t nchunks, chunk_capacity;
  char *fresh, *fresh_end; /* of the newest block: memory for chunks */
  struct block *blocks;
  struct slot *slot;
  uint8_t *byte; /* a slot each */
  unsigned log2; /* of the slots */
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
  struct uop *broken; /* what uop_new returns when memory is out */
};
void graph_clear_marks(struct graph *g);
/* uop_new for u of any graph over the sources of g that stand for its own. */
struct uop *uop_like(struct graph *g, const struct uop *u, struct uop *const *src);

struct bounds uop_compute_bounds(const struct uop *u);
const struct shape *uop_compute_shape(struct graph *g, struct uop *u);
/* The shape equal to s that stands for all of them; only the first rank dims are there. */
const struct shape *shape_intern(struct graph *g, const struct shape *s);
#endif
