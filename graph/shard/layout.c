/* The sharder: changes a tensor's layout. */
#include "sharder.h"
#include <errno.h>
#include <string.h>

struct sharded *shard_even(struct sharder *s, unsigned group, int axis, int64_t size, bool placed) {
  struct sharded *x = shard_new(s, group, axis, placed);
  unsigned n = x ? shard_count(s, x) : 0;
  for (unsigned i = 0; x && axis >= 0 && i <= n; i++) x->bound[i] = peer_share(size, i, n);
  return x;
}

struct sharded *shard_like(struct sharder *s, const struct sharded *x, bool placed) {
  struct sharded *y = shard_new(s, x->group, x->axis, placed);
  if (y && shard_is_split(y)) memcpy(y->bound, x->bound, (shard_count(s, x) + 1) * sizeof *x->bound);
  return y;
}

static bool same_layout(struct sharder *s, const struct sharded *x, const struct sharded *y) {
  if (x->group != y->group || x->axis != y->axis) return false;
  return !shard_is_split(x) || !memcmp(x->bound, y->bound, (shard_count(s, x) + 1) * sizeof *x->bound);
}

/* A piece of x's part k, copied to a device. */
static struct uop *copy_piece(struct sharder *s, const struct sharded *x, unsigned k, struct uop *piece,
                              unsigned device) {
  return x->placed ? peer_copy(s->graph, piece, s->group(x->group)->device[k], device) : piece;
}

struct uop *shard_range(struct sharder *s, const struct sharded *x, int64_t begin, int64_t end, unsigned device) {
  struct uop *piece[256];
  unsigned n = shard_count(s, x), found = 0, axis = (unsigned)x->axis;
  for (unsigned k = 0; k < n; k++) {
    int64_t a = begin > x->bound[k] ? begin : x->bound[k], b = end < x->bound[k + 1] ? end : x->bound[k + 1];
    if (a >= b) continue;
    struct uop *mine = peer_slice(s->graph, x->part[k], axis, a - x->bound[k], b - x->bound[k]);
    piece[found++] = copy_piece(s, x, k, mine, device);
  }
  if (found) return peer_join(s->graph, piece, found, axis);
  return copy_piece(s, x, 0, peer_slice(s->graph, x->part[0], axis, 0, 0), device);
}

/* All of x on a device, in its group or not. */
static struct uop *gather_whole(struct sharder *s, const struct sharded *x, unsigned device) {
  if (x->group == SHARD_ORDINARY) return x->part[0];
  const struct shard_group *group = s->group(x->group);
  if (shard_is_split(x)) return shard_range(s, x, 0, x->bound[group->n], device);
  for (unsigned k = 0; k < group->n; k++)
    if (group->device[k] == device) return x->part[k];
  return copy_piece(s, x, 0, x->part[0], device);
}

struct uop *shard_gather(struct sharder *s, const struct sharded *x, unsigned device) {
  return gather_whole(s, x, device);
}

/* Part i of layout `to` of a tensor that is split along another axis: every device has some of its elements. */
static struct uop *collect_part(struct sharder *s, const struct sharded *x, const struct sharded *to, unsigned i) {
  struct sharded mine = *x;
  struct uop *part[256];
  for (unsigned k = 0; k < shard_count(s, x); k++)
    part[k] = peer_slice(s->graph, x->part[k], (unsigned)to->axis, to->bound[i], to->bound[i + 1]);
  mine.part = part;
  return gather_whole(s, &mine, s->group(to->group)->device[i]);
}

struct sharded *shard_lay_out(struct sharder *s, struct sharded *x, const struct sharded *layout) {
  if (same_layout(s, x, layout)) return x;
  if (!x->part[0]->shape->rank && x->group == layout->group) return x; /* a scalar is compatible with every part */
  struct sharded *y = shard_like(s, layout, x->placed);
  const struct shard_group *group = s->group(layout->group);
  if (!y) return NULL;
  for (unsigned i = 0; i < group->n; i++) {
    unsigned device = group->device[i];
    if (!shard_is_split(y) || !x->part[0]->shape->rank)
      y->part[i] = gather_whole(s, x, device);
    else if (!shard_is_split(x)) {
      struct uop *all = x->group == y->group ? x->part[i] : gather_whole(s, x, device);
      y->part[i] = peer_slice(s->graph, all, (unsigned)y->axis, y->bound[i], y->bound[i + 1]);
    } else if (x->axis == y->axis)
      y->part[i] = shard_range(s, x, y->bound[i], y->bound[i + 1], device);
    else
      y->part[i] = collect_part(s, x, y, i);
  }
  return y;
}

struct sharded *shard_replicate(struct sharder *s, struct sharded *x, unsigned group) {
  struct sharded *layout = shard_new(s, group, SHARD_REPLICATED, x->placed);
  return layout ? shard_lay_out(s, x, layout) : NULL;
}

struct sharded *shard_split_elsewhere(struct sharder *s, struct sharded *x, unsigned axes) {
  const struct shape *shape = x->part[0]->shape;
  unsigned n = shard_count(s, x);
  int best = SHARD_REPLICATED;
  for (unsigned i = 0; i < shape->rank; i++) {
    if ((axes >> i & 1) || !uop_is_const(shape->dim[i]) || shape->dim[i]->arg.i < (int64_t)n) continue;
    if (best < 0 || shape->dim[i]->arg.i > shape->dim[best]->arg.i) best = (int)i;
  }
  struct sharded *to = shard_even(s, x->group, best, best < 0 ? 0 : shape->dim[best]->arg.i, x->placed);
  return to ? shard_lay_out(s, x, to) : NULL;
}
