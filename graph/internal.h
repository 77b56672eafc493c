/* Shared inside graph/: a map from nodes to nodes, and the parts of uop.c that facts.c fills in. */
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

/* flags of a node */
enum { UOP_HAS_BOUNDS = 1 };

struct bounds {
  int64_t min, max;
};
static inline struct bounds *uop_bounds_slot(const struct uop *u) { return (struct bounds *)&u->src[u->nsrc]; }
struct bounds uop_compute_bounds(const struct uop *u);
const struct shape *uop_compute_shape(struct graph *g, struct uop *u);
#endif
