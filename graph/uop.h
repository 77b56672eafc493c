/* UOps: the single immutable, hash-consed node type for everything from a tensor program to a kernel's instructions.
 *
 * A node consists of op, dtype, lanes, arg, aux and sources. Making the same node twice in one graph returns the same
 * pointer, so nodes are compared with ==. Nodes live in their graph's arena and are freed with it. Facts about a node
 * (shape, bounds) are computed once, when it is made, and stored in it. */
#ifndef DOORBELL_GRAPH_UOP_H
#define DOORBELL_GRAPH_UOP_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "dtype.h"

enum op {
#define OP(name, cls, arity, comm, doc) OP_##name,
#include "ops.def"
#undef OP
  OP_COUNT
};
enum op_class { OPCLASS_LEAF, OPCLASS_TENSOR, OPCLASS_ALU, OPCLASS_KERNEL };
/* The types that an elementwise op takes. CAST, BITCAST and WHERE take OTHER types: they have rules of their own. */
enum op_types {
  TAKES_OTHER,
  TAKES_FLOAT = 1,
  TAKES_INT = 2,
  TAKES_BOOL = 4,
  TAKES_ALL = TAKES_FLOAT | TAKES_INT | TAKES_BOOL,
  COMPARES = 8, /* the result is bool */
};
struct op_info {
  const char *name;
  uint8_t cls;
  int8_t arity;
  bool commutative;
  uint8_t types;     /* enum op_types */
  const char *infix; /* C's operator, NULL if there is none */
};
extern const struct op_info op_info[OP_COUNT];

/* aux of a FUNCTION node. SOFTMAX is over the axes in the mask arg. */
enum function { FUNCTION_TANH, FUNCTION_ERF, FUNCTION_EXPM1, FUNCTION_LOG1P, FUNCTION_SOFTPLUS, FUNCTION_SOFTMAX };

/* The kind of loop that a RANGE is. The scheduler makes LOOP, REDUCE, SERIAL and ORDERED; the optimizer splits these
 * into the other kinds.
 *
 * LOOP: output axis, run in any order or in parallel.
 * SERIAL: output axis that remains a loop inside one work-item.
 * GLOBAL, LOCAL: workgroup id, work-item id.
 * REDUCE: reduction loop.
 * GROUP: reduction over the work-items of a workgroup.
 * UPCAST, UNROLL: output axis, reduction axis that is unrolled in one work-item.
 * ITEM: number of a work-item in its workgroup.
 * ORDERED: output axis that one work-item runs in ascending order, because a later iteration reads what an earlier one
 * wrote. */
enum axis_kind {
  AXIS_LOOP,
  AXIS_REDUCE,
  AXIS_SERIAL,
  AXIS_GLOBAL,
  AXIS_LOCAL,
  AXIS_GROUP,
  AXIS_UPCAST,
  AXIS_UNROLL,
  AXIS_ITEM,
  AXIS_ORDERED
};

/* What happens to the mbarrier of a PHASE. INIT: its phases end after arg arrivals. EXPECT: one arrival, and the phase
 * does not end before arg bytes have arrived. ARRIVE: one arrival. WAIT: until the phase of that parity has ended. */
enum phase { PHASE_INIT, PHASE_EXPECT, PHASE_ARRIVE, PHASE_WAIT };

/* Whose barrier a BARRIER is. BEFORE_BOX: a wave's; BOXes after it read what its work-items have stored before it.
 * ITEMS: of the first arg work-items of the workgroup, whole waves. */
enum barrier { BARRIER_GROUP, BARRIER_WAVE, BARRIER_BEFORE_BOX, BARRIER_ITEMS };

#define MAX_RANK 16

union uop_arg {
  int64_t i;
  double f;
  const char *s; /* interned by the graph */
};

struct uop {
  uint8_t op, dtype;
  uint16_t lanes;
  uint8_t aux, flags;
  uint16_t nsrc;
  uint32_t id;   /* creation order in its graph: sources have smaller ids */
  uint32_t mark; /* set by the last walk over it (graph/walk.c) */
  union uop_arg arg;
  uint64_t hash;             /* of the whole expression; the same in every graph */
  const struct shape *shape; /* NULL if the sources' shapes are incompatible */
  struct uop *src[];         /* an integer or bool node stores its bounds after the sources */
};

struct bounds {
  int64_t min, max;
};
enum { UOP_HAS_BOUNDS = 1 }; /* flags of a node */

/* Only one thread may use a graph at a time, because walks write marks into its nodes. */
struct graph;
struct graph *graph_new(void);
void graph_free(struct graph *g);
size_t graph_node_count(const struct graph *g);
/* Makes room for n nodes, which is faster than growing in steps. Does nothing when out of memory. */
void graph_reserve(struct graph *g, size_t n);
size_t graph_bytes(const struct graph *g);
const char *graph_intern(struct graph *g, const char *s);
struct graph *uop_graph(const struct uop *u);    /* the graph that owns it */
void *graph_alloc(struct graph *g, size_t size); /* zeroed, freed with the graph; NULL when out of memory */
/* NULL, or the reason why the graph must not be used any more (for instance out of memory). */
const char *graph_error(const struct graph *g);

/* Returns the node, existing or new. Never returns NULL: when out of memory it returns a VOID constant and sets
 * graph_error. */
struct uop *uop_new(struct graph *g, enum op op, enum dtype dtype, unsigned lanes, union uop_arg arg, unsigned aux,
                    struct uop *const *src, unsigned nsrc);
/* Copies u and everything below it into g. Returns u itself if it already belongs to g. */
struct uop *uop_import(struct graph *g, struct uop *u);

/* Shorthands. */
struct uop *uop_const_int(struct graph *g, enum dtype t, int64_t v);  /* wraps to t; a float t stores v as a float */
struct uop *uop_const_float(struct graph *g, enum dtype t, double v); /* rounds to t; an integer t stores v truncated */
int64_t dtype_wrap(enum dtype t, int64_t v);                          /* v as a constant of type t stores it */
double dtype_round(enum dtype t, double v);
bool dtype_holds(enum dtype t, int64_t lo, int64_t hi); /* whether integer type t holds all values from lo to hi */
struct uop *uop_with_src(struct graph *g, struct uop *u, struct uop *const *src); /* u with other sources */
struct uop *uop_var(struct graph *g, const char *name, int64_t min, int64_t max);
struct uop *uop_index(struct graph *g, int64_t v); /* CONST of DT_INDEX */
/* Strips AFTER nodes: returns the node whose value they pass on. */
static inline const struct uop *uop_skip_after(const struct uop *u) {
  while (u->op == OP_AFTER && u->nsrc) u = u->src[0];
  return u;
}
/* Whether a kernel's ast consists of phases: SINKs that run one after the other for each combination of the RANGEs that
 * follow them in the sources. */
static inline bool uop_is_phased(const struct uop *sink) { return sink->op == OP_SINK && sink->aux; }
/* The identity element of a reduction by op (ADD, MUL or MAX). */
struct uop *uop_identity(struct graph *g, enum op op, enum dtype t);
struct uop *uop_unary(struct graph *g, enum op op, struct uop *x);
struct uop *uop_binary(struct graph *g, enum op op, struct uop *a,
                       struct uop *b); /* dtype of a; bool for comparisons */
struct uop *uop_where(struct graph *g, struct uop *c, struct uop *t, struct uop *f);
struct uop *uop_cast(struct graph *g, struct uop *x, enum dtype t); /* x itself if it has type t */
struct uop *uop_range(struct graph *g, struct uop *bound, int64_t axis, enum axis_kind kind);
static inline bool uop_is_const(const struct uop *u) { return u->op == OP_CONST; }
/* Whether aux is the slot of the device that the value is on. */
static inline bool uop_names_device(const struct uop *u) {
  return u->op == OP_BUFFER || u->op == OP_COPY || u->op == OP_CUSTOM;
}

/* Shape of a tensor-level node: rank and dims. A dim is a DT_INDEX node, a CONST if it is static. Scalars have rank 0.
 */
struct shape { /* nodes inside a kernel have rank 0; a source of rank 0 broadcasts in elementwise ops */
  unsigned rank;
  struct uop *dim[MAX_RANK];
};
const struct shape *uop_shape(struct graph *g, struct uop *u);
/* Bounds of an integer or bool node, both inclusive: the dtype's range if nothing tighter is known. */
static inline const struct bounds *uop_bounds(const struct uop *u) { /* u must have UOP_HAS_BOUNDS */
  const void *behind = u->src + u->nsrc;
  return behind;
}
static inline int64_t uop_min(const struct uop *u) {
  return u->flags & UOP_HAS_BOUNDS ? uop_bounds(u)->min : INT64_MIN;
}
static inline int64_t uop_max(const struct uop *u) {
  return u->flags & UOP_HAS_BOUNDS ? uop_bounds(u)->max : INT64_MAX;
}

int64_t shape_numel(const struct shape *s); /* -1 if a dimension is symbolic or the product overflows */
bool shape_equal(const struct shape *a, const struct shape *b);

/* Returns every node reachable from the roots, sources before users. The caller frees the array. NULL when out of
 * memory. */
struct uop **uop_toposort(struct uop *const *roots, unsigned nroots, size_t *count);
/* The index of u, a node of `order`, in this array. Valid until the next walk over the graph (uop_toposort,
 * uop_substitute or uop_import). */
static inline size_t uop_position(struct uop *const *order, const struct uop *u) { return u->mark - order[0]->mark; }
/* Rebuilds u with every from[i] in it replaced by to[i]. */
struct uop *uop_substitute(struct graph *g, struct uop *u, struct uop *const *from, struct uop *const *to, unsigned n);

/* uop_print writes one line per node, with ids and sources. uop_expr writes an expression on one line, in infix
 * notation (for index expressions), into buf and returns buf. */
void uop_print(FILE *f, struct uop *const *roots, unsigned nroots);
char *uop_expr(const struct uop *u, char *buf, size_t cap);

/* Checks that the graph is well-formed at a stage. Returns 0, or a negative errno with a message in err: -EINVAL if it
 * is not well-formed, -ENOMEM. */
enum uop_stage { STAGE_TENSOR, STAGE_KERNEL, STAGE_LINEAR };
int uop_verify(struct uop *const *roots, unsigned nroots, enum uop_stage stage, char *err, size_t errcap);

#endif
