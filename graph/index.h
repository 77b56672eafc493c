/* Index expressions: what an element of a movement op's result is an element of. */
#ifndef DOORBELL_GRAPH_INDEX_H
#define DOORBELL_GRAPH_INDEX_H
#include "uop.h"

struct simplifier; /* the symbolic rules over one graph, with what they have simplified so far */
struct simplifier *simplifier_new(struct graph *g);
void simplifier_free(struct simplifier *s);
struct graph *simplifier_graph(const struct simplifier *s);
struct uop *simplify(struct simplifier *s, struct uop *u);
/* u, simplified for where the condition holds; elsewhere the result may differ. NULL is no condition. */
struct uop *simplify_under(struct simplifier *s, struct uop *u, struct uop *condition);

/* Integer arithmetic of DT_INDEX, simplified; the sources are already simple. */
struct uop *index_binary(struct simplifier *s, enum op op, struct uop *a, struct uop *b);
/* Conjunction of conditions; NULL is true. */
struct uop *index_and(struct simplifier *s, struct uop *a, struct uop *b);

/* out: where in its source the element of movement op u at index `in` lies; *valid (NULL: always) is narrowed by what a
 * PAD or SHEAR added, and *padded is what this op added itself. False: memory ran out. */
bool index_movement(struct simplifier *s, struct uop *u, struct uop *const *in, struct uop **out, struct uop **valid,
                    struct uop **padded);
/* Row-major offset of an index in a shape. */
struct uop *index_flatten(struct simplifier *s, const struct shape *shape, struct uop *const *idx);
#endif
