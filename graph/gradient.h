/* Gradients: a reverse walk over a tensor graph by the table of derivatives, graph/rules/gradient.rules. */
#ifndef DOORBELL_GRAPH_GRADIENT_H
#define DOORBELL_GRAPH_GRADIENT_H
#include "uop.h"

/* A node whose value was computed from an expression that the graph does not show: what flows to `memory` flows on to
 * `expr`. */
struct gradient_link {
  struct uop *memory, *expr;
};

/* out[i]: the derivative of root with respect to target[i], weighted by seed (root's shape and type; NULL: ones) and
 * summed over root; of target[i]'s shape and type. NULL where root does not depend on the target. The nodes of out are
 * in root's graph, and ordinary nodes: they have gradients themselves.
 *
 * Conventions. A target counts wherever its node occurs: equal expressions are one node. Integers, comparisons,
 * conversions to and from integers, TRUNC and BITCAST let nothing through; a BITCAST to a value's own type is thus how
 * a gradient is cut. The two sides of MAX share where they are equal, the maxima of a REDUCE_AXIS share evenly; beside
 * a number MAX gives nothing where it is equal, and |x| nothing at 0. WHERE gives exactly 0 to the side not taken,
 * which an infinite derivative further down still makes NaN. Contributions are summed in the order of the walk, those
 * of a type narrower than f32 in f32 and rounded once.
 *
 * links: in an order in which no expression contains the memory of a later one. 0, or a negative errno and a message in
 * err. */
int graph_gradient(struct graph *g, struct uop *root, struct uop *seed, struct uop *const *target, unsigned n,
                   const struct gradient_link *links, unsigned nlinks, struct uop **out, char *err, size_t errcap);
/* x, which gradients do not pass. */
struct uop *gradient_cut(struct graph *g, struct uop *x);
#endif
