/* Data exchange between devices, expressed as COPY nodes and arithmetic, so that it is scheduled together with the
 * surrounding graph. x[i] is on device[i], or consists of constants. */
#ifndef DOORBELL_GRAPH_PEER_H
#define DOORBELL_GRAPH_PEER_H
#include "../uop.h"

/* The reducing operation. */
typedef struct uop *peer_combine(struct graph *g, struct uop *a, struct uop *b);

/* The first element of share i when size elements are divided as evenly as possible into n shares. */
static inline int64_t peer_share(int64_t size, unsigned i, unsigned n) { return size * (int64_t)i / (int64_t)n; }

/* Elements [begin, end) along an axis, whose size must be constant. */
struct uop *peer_slice(struct graph *g, struct uop *x, unsigned axis, int64_t begin, int64_t end);
/* x, which is on device `from`, on device `to`. */
struct uop *peer_copy(struct graph *g, struct uop *x, unsigned from, unsigned to);
/* Concatenates tensors, which are all on one device, along an axis. */
struct uop *peer_join(struct graph *g, struct uop *const *x, unsigned n, unsigned axis);
/* Concatenates the x[i] along an axis, on device `to`. */
struct uop *peer_gather(struct graph *g, const uint8_t *device, struct uop *const *x, unsigned n, unsigned axis,
                        unsigned to);
/* Combines the x[i], which have the same shape, element by element. out[i], on device[i], is share i of the result
 * along an axis. */
void peer_reduce_scatter(struct graph *g, peer_combine *combine, const uint8_t *device, struct uop *const *x,
                         unsigned n, unsigned axis, struct uop **out);
/* The same, but each device gets the whole result. Small tensors are sent from each device to each other and combined
 * everywhere in the same order, so that all results are bitwise equal. Large tensors use a ring: the partial result of
 * a share passes from device to device, each combines its part, and finally each device copies the other devices'
 * shares. */
void peer_all_reduce(struct graph *g, peer_combine *combine, const uint8_t *device, struct uop *const *x, unsigned n,
                     struct uop **out);
#endif
