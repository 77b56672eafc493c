/* Tensors that lie on several devices: a rewrite to tensors that lie on one each.
 *
 * A device group is a list of devices under a number of its own, which stands where a device's would: SHARD(x) is x on
 * a group, split along an axis or with all of it on each device, MULTI puts parts in memory together to the tensor that
 * they are. Everything else in a graph is as on one device, and is resolved here from the leaves on: each node becomes
 * a node for every device of its group, and where the devices need what others have, copies between them (peer.h). */
#ifndef DOORBELL_GRAPH_SHARD_H
#define DOORBELL_GRAPH_SHARD_H
#include "../bind.h"
#include "../uop.h"

enum { SHARD_ORDINARY = 255 /* as a group: none */, SHARD_REPLICATED = -1 /* as an axis: each device has all of it */ };

struct shard_group {
  unsigned n;
  const uint8_t *device;
};

/* What a node has become. */
struct sharded {
  uint8_t group; /* SHARD_ORDINARY: a tensor on one device, or of constants, which is part[0] */
  bool placed;   /* memory is in it */
  bool changed;  /* ordinary: something on a group is in it */
  int axis;
  int64_t *bound;    /* of a split one: part i has elements [bound[i], bound[i + 1]) along the axis */
  struct uop **part; /* one a device of the group */
};

struct sharder;
/* group: NULL for the number of a device. Nodes that the binder replaces are taken as what replaces them. NULL: out of
 * memory. */
struct sharder *sharder_new(struct graph *g, const struct binder *b,
                            const struct shard_group *(*group)(unsigned number), char *err, size_t errcap);
void sharder_free(struct sharder *s);
/* Lives as long as s. NULL: a message is in err, and the status is that. */
const struct sharded *sharder_resolve(struct sharder *s, struct uop *u);
int sharder_status(const struct sharder *s);
#endif
