/* Gradients: a reverse walk over a tensor graph with the table of derivatives, graph/rules/gradient.rules. */
#ifndef DOORBELL_GRAPH_GRADIENT_H
#define DOORBELL_GRAPH_GRADIENT_H
#include "../uop.h"

/* Gradients by hand: those of x[i] are g[i], in which the node dy stands for the gradient of the result. */
struct gradient_by_hand {
  struct uop *dy, *const *x, *const *g;
  unsigned n;
};
/* Links a realized node to the expression that computed it, which the graph no longer contains: a gradient that reaches
 * `memory` continues at `expr`. Or, if `hand` is set, memory and expr are one node, whose gradients are by hand. */
struct gradient_link {
  struct uop *memory, *expr;
  const struct gradient_by_hand *hand;
};

/* Stores in out[i] the derivative of root with respect to target[i], weighted by seed and summed over root. It has
 * target[i]'s shape and type, and is NULL if root does not depend on target[i]. seed has root's shape and type; NULL
 * stands for ones. The nodes of out are ordinary nodes of root's graph, so they can be differentiated again.
 *
 * Conventions. A target counts wherever its node occurs, because equal expressions are one node. No gradient passes
 * through integers, comparisons, conversions to and from integers, TRUNC and BITCAST; gradient_cut uses a BITCAST to
 * the value's own type. If the two operands of MAX are equal, each gets half; equal maxima of a REDUCE_AXIS share
 * evenly. If one operand of MAX is a number, the other one gets 0 where they are equal, and |x| has gradient 0 at 0.
 * WHERE gives exactly 0 to the branch not taken; an infinite derivative below that branch still turns the 0 into NaN.
 * Contributions are summed in the order of the walk. Contributions to a type narrower than f32 are summed in f32 and
 * rounded once.
 *
 * links must be ordered so that no expression contains the memory of a later link. Returns 0, or a negative errno with
 * a message in err. */
int graph_gradient(struct graph *g, struct uop *root, struct uop *seed, struct uop *const *target, unsigned n,
                   const struct gradient_link *links, unsigned nlinks, struct uop **out, char *err, size_t errcap);
/* x, through which no gradient passes. */
struct uop *gradient_cut(struct graph *g, struct uop *x);
#endif
