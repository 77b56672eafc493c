/* Rewrites tensors on several devices to tensors on one device each.
 *
 * A device group is a numbered list of devices; its number is used in place of a device's. SHARD(x) is x on a group,
 * either split along an axis or replicated on each device. MULTI combines parts that are in memory into the tensor that
 * they form. All other nodes look as on one device. The sharder resolves them from the leaves on: it replaces each node
 * by one node for each device of its group, and inserts copies between devices where one needs data of another
 * (peer.h). */
#ifndef DOORBELL_GRAPH_SHARD_H
#define DOORBELL_GRAPH_SHARD_H
#include "../bind.h"
#include "../uop.h"

enum { SHARD_ORDINARY = 255 /* as a group: none */, SHARD_REPLICATED = -1 /* as an axis: each device has all of it */ };

struct shard_group {
  unsigned n;
  const uint8_t *device;
};

/* The result of resolving a node. */
struct sharded {
  uint8_t group; /* SHARD_ORDINARY: part[0] is the tensor, on one device or of constants */
  bool placed;   /* it depends on memory */
  bool changed;  /* ordinary: it depends on something on a group */
  int axis;
  int64_t *bound;    /* if split: part i has elements [bound[i], bound[i + 1]) along the axis */
  struct uop **part; /* one per device of the group */
};

struct sharder;
/* group(number) returns the group, or NULL if the number is a device's. A node that the binder replaces is resolved as
 * its replacement. Returns NULL when out of memory. */
struct sharder *sharder_new(struct graph *g, const struct binder *b,
                            const struct shard_group *(*group)(unsigned number), char *err, size_t errcap);
void sharder_free(struct sharder *s);
/* Resolves u. The result is freed with s. On failure returns NULL, with a message in err; sharder_status then returns
 * the negative errno. */
const struct sharded *sharder_resolve(struct sharder *s, struct uop *u);
int sharder_status(const struct sharder *s);
#endif
