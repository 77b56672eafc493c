/* What may differ from run to run is taken out of a graph, and what is left is the key that its schedule is found
 * under.
 *
 * BUFFERs and EXCHANGEs are numbered by appearance, BINDs become their VAR, and a slice of memory that is contiguous
 * becomes memory of its own at an offset, so that the next batch of a data set or the next step of a loop has the same
 * key. The key is the graph itself, written down: bound_graph makes the graph again, and two keys that are equal stand
 * for equal graphs. */
#ifndef DOORBELL_GRAPH_BIND_H
#define DOORBELL_GRAPH_BIND_H
#include "uop.h"

struct bound_buffer { /* what BUFFER i of the bound graph stands for in this run */
  int64_t id;
  uint64_t offset, bytes; /* of the slice in the BUFFER with that id */
  unsigned device;
};
struct bound_var {
  const char *name; /* of the VAR, interned by its graph */
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

struct binder; /* memory of a walk, kept from one to the next */
struct binder *binder_new(void);
void binder_free(struct binder *b);

/* Begins a walk over g, after which nothing is replaced or written. False: out of memory. */
bool binder_begin(struct binder *b, struct graph *g);
/* Wherever the walk meets `from` it takes `to`. False: out of memory. */
bool binder_replace(struct binder *b, const struct uop *from, struct uop *to);
struct uop *binder_resolve(const struct binder *b, struct uop *u);
/* The BUFFER is written by an ASSIGN: slices of it stay movement, so that who reads what is written can be told. */
bool binder_mark_written(struct binder *b, const struct uop *buffer);
/* Writes down what is below the roots. Slices become memory where their offset is a multiple of `alignment` bytes. 0,
 * or a negative errno and a message. */
int binder_bind(struct binder *b, struct uop *const *roots, unsigned nroots, size_t alignment, struct binding *out,
                char *err, size_t errcap);
void binding_free(struct binding *b);

/* The graph that a key stands for, made in g, with its roots. False: out of memory. */
bool bound_graph(const uint32_t *key, size_t nkey, struct graph *g, struct uop **roots, unsigned nroots);

/* The value of an index expression whose variables are bound; false when one is not. */
bool uop_bound_value(const struct uop *u, int64_t *value);
/* Whether u's elements lie one after the other in a BUFFER, without a gap; which, at what element they begin, and
 * whether that is another where bound variables have other values. */
bool uop_contiguous_slice(const struct binder *b, struct uop *u, struct uop **buffer, int64_t *offset, bool *varies);
#endif
