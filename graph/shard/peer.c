#include "peer.h"
#include <string.h>

enum { DIRECT_BYTES = 1 << 18 /* all-reduces up to this size send everything directly: more copies, fewer steps */ };

static struct uop *peer_node(struct graph *g, enum op op, struct uop *const *src, unsigned nsrc, int64_t arg,
                             unsigned aux) {
  return uop_new(g, op, src[0]->dtype, 1, (union uop_arg){.i = arg}, aux, src, nsrc);
}

static struct uop *with_bounds(struct graph *g, enum op op, struct uop *x, unsigned axis, int64_t a, int64_t b) {
  struct uop *src[1 + 2 * MAX_RANK] = {x};
  for (unsigned i = 0; i < x->shape->rank; i++) {
    src[1 + 2 * i] = uop_index(g, i == axis ? a : 0);
    src[2 + 2 * i] = i == axis ? uop_index(g, b) : op == OP_PAD ? uop_index(g, 0) : x->shape->dim[i];
  }
  return peer_node(g, op, src, 1 + 2 * x->shape->rank, 0, 0);
}

static int64_t size_along(const struct uop *x, unsigned axis) { return x->shape->dim[axis]->arg.i; }

struct uop *peer_slice(struct graph *g, struct uop *x, unsigned axis, int64_t begin, int64_t end) {
  return begin || end != size_along(x, axis) ? with_bounds(g, OP_SHRINK, x, axis, begin, end) : x;
}

struct uop *peer_copy(struct graph *g, struct uop *x, unsigned from, unsigned to) {
  return from == to ? x : peer_node(g, OP_COPY, &x, 1, 0, to);
}

/* Whether an element's index along an axis is less than `end`, as a tensor of shape s. */
static struct uop *is_index_below(struct graph *g, const struct shape *s, unsigned axis, int64_t end) {
  enum dtype t = s->dim[axis]->arg.i <= INT32_MAX ? DT_I32 : DT_I64;
  struct uop *src[1 + MAX_RANK] = {uop_new(g, OP_IOTA, t, 1, (union uop_arg){0}, 0, &s->dim[axis], 1)};
  for (unsigned i = 0; i < s->rank; i++) src[1 + i] = i == axis ? s->dim[i] : uop_index(g, 1);
  if (s->rank != 1) {
    src[0] = peer_node(g, OP_RESHAPE, src, 1 + s->rank, 0, 0);
    memcpy(src + 1, s->dim, s->rank * sizeof *src);
    src[0] = peer_node(g, OP_EXPAND, src, 1 + s->rank, 0, 0);
  }
  return uop_binary(g, OP_CMPLT, src[0], uop_const_int(g, t, end));
}

struct uop *peer_join(struct graph *g, struct uop *const *x, unsigned n, unsigned axis) {
  int64_t total = 0, begin;
  while (n > 1 && !size_along(x[n - 1], axis)) n--;
  for (unsigned i = 0; i < n; i++) total += size_along(x[i], axis);
  struct uop *joined = x[n - 1];
  begin = total - size_along(joined, axis);
  if (begin) joined = with_bounds(g, OP_PAD, joined, axis, begin, 0);
  for (unsigned i = n - 1; i-- > 0;) {
    int64_t size = size_along(x[i], axis);
    begin -= size;
    if (!size) continue;
    struct uop *mine = with_bounds(g, OP_PAD, x[i], axis, begin, total - begin - size);
    joined = uop_where(g, is_index_below(g, joined->shape, axis, begin + size), mine, joined);
  }
  return joined;
}

struct uop *peer_gather(struct graph *g, const uint8_t *device, struct uop *const *x, unsigned n, unsigned axis,
                        unsigned to) {
  struct uop *moved[256];
  for (unsigned i = 0; i < n; i++) moved[i] = peer_copy(g, x[i], device[i], to);
  return peer_join(g, moved, n, axis);
}

/* ---- reductions ---- */

void peer_reduce_scatter(struct graph *g, peer_combine *combine, const uint8_t *device, struct uop *const *x,
                         unsigned n, unsigned axis, struct uop **out) {
  int64_t size = size_along(x[0], axis);
  for (unsigned i = 0; i < n; i++) { /* passes from device to device and ends on device i */
    struct uop *sum = NULL;
    for (unsigned k = 1; k <= n; k++) {
      unsigned at = (i + k) % n, last = (i + k - 1) % n;
      struct uop *mine = peer_slice(g, x[at], axis, peer_share(size, i, n), peer_share(size, i + 1, n));
      sum = sum ? combine(g, peer_copy(g, sum, device[last], device[at]), mine) : mine;
    }
    out[i] = sum;
  }
}

static struct uop *reshape(struct graph *g, struct uop *x, struct uop *const *dim, unsigned rank) {
  struct uop *src[1 + MAX_RANK] = {x};
  memcpy(src + 1, dim, rank * sizeof *dim);
  return peer_node(g, OP_RESHAPE, src, 1 + rank, 0, 0);
}

void peer_all_reduce(struct graph *g, peer_combine *combine, const uint8_t *device, struct uop *const *x, unsigned n,
                     struct uop **out) {
  const struct shape *shape = x[0]->shape;
  int64_t numel = shape_numel(shape);
  if (n < 3 || numel < (int64_t)n || numel * dtype_info[x[0]->dtype].size <= DIRECT_BYTES) {
    for (unsigned i = 0; i < n; i++) {
      struct uop *sum = NULL;
      for (unsigned k = 0; k < n; k++) {
        struct uop *one = peer_copy(g, x[k], device[k], device[i]);
        sum = sum ? combine(g, sum, one) : one;
      }
      out[i] = sum;
    }
    return;
  }
  struct uop *flat[256], *share[256], *all = uop_index(g, numel);
  for (unsigned i = 0; i < n; i++) flat[i] = reshape(g, x[i], &all, 1);
  peer_reduce_scatter(g, combine, device, flat, n, 0, share);
  for (unsigned i = 0; i < n; i++)
    out[i] = reshape(g, peer_gather(g, device, share, n, 0, device[i]), shape->dim, shape->rank);
}
