/* Internal to the sharder. shard.c walks the graph and has a rule for each kind of node, layout.c changes a tensor's
 * layout, and move.c has the rules for movement ops. */
#ifndef DOORBELL_GRAPH_SHARDER_H
#define DOORBELL_GRAPH_SHARDER_H
#include "peer.h"
#include "../internal.h"
#include "shard.h"

struct sharder {
  struct graph *graph;
  const struct binder *binder;
  const struct shard_group *(*group)(unsigned number);
  struct uop_map done; /* maps a node to its struct sharded */
  struct walk_frame *stack;
  size_t capacity;
  struct memory_block *memory;
  char *err;
  size_t errcap;
  int status;
};

/* shard.c. All functions return NULL after shard_fail. */
struct sharded *shard_fail(struct sharder *s, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
struct sharded *shard_new(struct sharder *s, unsigned group, int axis, bool placed);
/* u with other sources, for one part. src must have room for all of u's sources. */
struct uop *shard_node(struct sharder *s, struct uop *u, struct uop *const *src);

static inline bool shard_is_split(const struct sharded *x) { return x->group != SHARD_ORDINARY && x->axis >= 0; }
static inline unsigned shard_count(const struct sharder *s, const struct sharded *x) {
  return x->group == SHARD_ORDINARY ? 1 : s->group(x->group)->n;
}
static inline int64_t shard_size(const struct sharded *x, unsigned i) { return x->bound[i + 1] - x->bound[i]; }

/* layout.c */
/* A layout without parts: an even split, or the layout of x. */
struct sharded *shard_even(struct sharder *s, unsigned group, int axis, int64_t size, bool placed);
struct sharded *shard_like(struct sharder *s, const struct sharded *x, bool placed);
/* x on the layout's group, in that layout. */
struct sharded *shard_lay_out(struct sharder *s, struct sharded *x, const struct sharded *layout);
struct sharded *shard_replicate(struct sharder *s, struct sharded *x, unsigned group);
/* Elements [begin, end) of x, along the axis that it is split along, on a device. */
struct uop *shard_range(struct sharder *s, const struct sharded *x, int64_t begin, int64_t end, unsigned device);
/* All of x on a device. */
struct uop *shard_gather(struct sharder *s, const struct sharded *x, unsigned device);
/* x, which is split along one of `axes`, split along the largest other axis instead, or replicated if no other axis is
 * at least as long as the number of devices. */
struct sharded *shard_split_elsewhere(struct sharder *s, struct sharded *x, unsigned axes);

/* move.c: movement op u applied to x. views: the result must be a view, so no element may move to another device. */
struct sharded *shard_move(struct sharder *s, struct uop *u, struct sharded *x, bool views);
#endif
