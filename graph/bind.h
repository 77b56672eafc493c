/* Splits a graph into the parts that vary from run to run and the rest. The rest is the key under which the cache
 * stores the graph's schedule.
 *
 * BUFFERs and EXCHANGEs are numbered in order of appearance, a BIND is replaced by its VAR, and a contiguous slice of a
 * buffer is replaced by a buffer of its own, at an offset. The next batch of a data set or the next step of a loop thus
 * gives the same key. The key is a serialized graph, from which bound_graph rebuilds the graph; equal keys give equal
 * graphs. */
#ifndef DOORBELL_GRAPH_BIND_H
#define DOORBELL_GRAPH_BIND_H
#include "uop.h"

struct bound_buffer { /* the memory that BUFFER i of the bound graph refers to in this run */
  int64_t id;
  uint64_t offset, bytes; /* of the slice in the BUFFER with this id */
  unsigned device;
};
struct bound_var {
  const char *name; /* name of the VAR, interned by its graph */
  int64_t value;
};
struct binding {
  uint32_t *key;
  size_t nkey; /* words */
  uint64_t hash;
  struct bound_buffer *buffers;
  struct bound_var *vars;
  unsigned nbuffers, nvars, nroots;
};

struct binder; /* scratch memory of a walk, reused by the next one */
struct binder *binder_new(void);
void binder_free(struct binder *b);

/* Begins a new walk over g and forgets the replacements and written marks of the previous one. Returns false when out
 * of memory. */
bool binder_begin(struct binder *b, struct graph *g);
/* Makes the walk use `to` in place of `from`. Returns false when out of memory. */
bool binder_replace(struct binder *b, const struct uop *from, struct uop *to);
struct uop *binder_resolve(const struct binder *b, struct uop *u);
/* Marks a BUFFER that an ASSIGN writes. Slices of it remain movement ops, so that the scheduler sees which reads
 * overlap the write. Returns false when out of memory. */
bool binder_mark_written(struct binder *b, const struct uop *buffer);
/* Serializes everything below the roots into *out. A slice becomes a buffer of its own if its offset is a multiple of
 * `alignment` bytes. Returns 0, or a negative errno with a message in err. Free *out with binding_free. */
int binder_bind(struct binder *b, struct uop *const *roots, unsigned nroots, size_t alignment, struct binding *out,
                char *err, size_t errcap);
void binding_free(struct binding *b);

/* Rebuilds the graph of a key in g and stores its roots. Returns false when out of memory. */
bool bound_graph(const uint32_t *key, size_t nkey, struct graph *g, struct uop **roots, unsigned nroots);

/* Evaluates an index expression whose variables are bound. Returns false if it cannot be evaluated, for instance
 * because a variable is not bound. */
bool uop_bound_value(const struct uop *u, int64_t *value);
/* Whether u's elements are contiguous in a BUFFER. If so, stores the BUFFER, the index of the first element, and
 * whether that index depends on bound variables. b may be NULL: nothing is replaced. */
bool uop_contiguous_slice(const struct binder *b, struct uop *u, struct uop **buffer, int64_t *offset, bool *varies);
#endif
