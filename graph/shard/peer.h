/* What devices exchange, as nodes: copies between devices and arithmetic, so that it schedules together with what
 * surrounds it. x[i] lies on device[i], or is made of constants. */
#ifndef DOORBELL_GRAPH_PEER_H
#define DOORBELL_GRAPH_PEER_H
#include "../uop.h"

/* What a reduction makes of two values. */
typedef struct uop *peer_combine(struct graph *g, struct uop *a, struct uop *b);

/* Where share i of n begins when size elements are dealt out as evenly as can be. */
static inline int64_t peer_share(int64_t size, unsigned i, unsigned n) { return size * (int64_t)i / (int64_t)n; }

/* Elements [begin, end) along an axis, which is of constant size. */
struct uop *peer_slice(struct graph *g, struct uop *x, unsigned axis, int64_t begin, int64_t end);
/* x of device `from` on device `to`. */
struct uop *peer_copy(struct graph *g, struct uop *x, unsigned from, unsigned to);
/* One behind the other along an axis; all on one device. */
struct uop *peer_join(struct graph *g, struct uop *const *x, unsigned n, unsigned axis);
/* x put together along an axis, on a device. */
struct uop *peer_gather(struct graph *g, const uint8_t *device, struct uop *const *x, unsigned n, unsigned axis,
                        unsigned to);
/* x of one shape, combined element by element: device i gets share i along an axis. */
void peer_reduce_scatter(struct graph *g, peer_combine *combine, const uint8_t *device, struct uop *const *x,
                         unsigned n, unsigned axis, struct uop **out);
/* The same, and each device gets all of it. Small tensors go from each to each and are combined in one order, so that
 * all results are the same bits. Large ones go round a ring: each device combines its share on the way, then shares are
 * handed round. */
void peer_all_reduce(struct graph *g, peer_combine *combine, const uint8_t *device, struct uop *const *x, unsigned n,
                     struct uop **out);
#endif
