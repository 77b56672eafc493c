/* Index expressions: map an element of a movement op's result to an element of its source. */
#ifndef DOORBELL_GRAPH_INDEX_H
#define DOORBELL_GRAPH_INDEX_H
#include "uop.h"

struct simplifier; /* applies the symbolic rules to one graph and remembers the results */
struct simplifier *simplifier_new(struct graph *g);
void simplifier_free(struct simplifier *s);
struct graph *simplifier_graph(const struct simplifier *s);
struct uop *simplify(struct simplifier *s, struct uop *u);
/* Simplifies u under the assumption that the condition holds; where it does not hold the result may differ from u. Pass
 * NULL for no condition. */
struct uop *simplify_under(struct simplifier *s, struct uop *u, struct uop *condition);

/* Integer arithmetic of DT_INDEX, simplified. a and b must be simplified already. */
struct uop *index_binary(struct simplifier *s, enum op op, struct uop *a, struct uop *b);
/* Conjunction of two conditions. NULL stands for true. */
struct uop *index_and(struct simplifier *s, struct uop *a, struct uop *b);

/* Computes in out the index, in the source of movement op u, of the element of u at index `in`. Adds to *valid (NULL:
 * always valid) the condition that a PAD or SHEAR introduces, and stores that condition alone in *padded, simplified:
 * it is only right where *valid held before. Returns false when out of memory. */
bool index_movement(struct simplifier *s, struct uop *u, struct uop *const *in, struct uop **out, struct uop **valid,
                    struct uop **padded);
/* Row-major offset of an index in a shape. */
struct uop *index_flatten(struct simplifier *s, const struct shape *shape, struct uop *const *idx);
#endif
