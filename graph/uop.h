/* UOps: the one immutable, hash-consed node type for everything from a tensor program to a kernel's instructions.
 *
 * A node is op, dtype, lanes, arg, aux and sources; making the same node twice in one graph returns the same pointer,
 * so equality is ==. Nodes live in their graph's arena and die with it. Facts (shape, bounds) are computed once and
 * cached. */
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
struct op_info {
  const char *name;
  uint8_t cls;
  int8_t arity;
  bool commutative;
};
extern const struct op_info op_info[OP_COUNT];

/* Of a FUNCTION. */
enum function { FUNCTION_TANH, FUNCTION_ERF, FUNCTION_EXPM1, FUNCTION_LOG1P, FUNCTION_SOFTPLUS };

/* What a RANGE stands for. The scheduler makes LOOP, REDUCE, SERIAL and ORDERED; the optimizer splits them into the
 * others. LOOP: output axis, any order or in parallel. SERIAL: output axis that stays a loop in one work-item.
 * GLOBAL/LOCAL: workgroup / work-item ids. REDUCE: reduction loop. GROUP: reduction over the work-items of a group.
 * UPCAST/UNROLL: output / reduction axis unrolled in one work-item. ITEM: the number of a work-item in its group.
 * ORDERED: output axis that one work-item walks along in ascending order, in which it reads what it wrote before. */
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

#define MAX_RANK 16

union uop_arg {
  int64_t i;
  double f;
  const char *s; /* interned by the graph */
};

struct uop {
  uint8_t op, dtype, lanes, aux;
  uint16_t nsrc, flags;
  uint32_t id;   /* creation order in its graph: sources have smaller ids */
  uint32_t mark; /* of the last walk over it (graph/walk.c) */
  union uop_arg arg;
  uint64_t hash;             /* of the whole expression; the same in every graph */
  const struct shape *shape; /* NULL where the sources do not fit together */
  struct uop *src[];         /* integer and bool nodes keep their bounds behind the sources */
};

struct bounds {
  int64_t min, max;
};
enum { UOP_HAS_BOUNDS = 1 }; /* flags of a node */

/* A graph is used by one thread at a time: walks mark its nodes. */
struct graph;
struct graph *graph_new(void);
void graph_free(struct graph *g);
size_t graph_node_count(const struct graph *g);
size_t graph_bytes(const struct graph *g);
const char *graph_intern(struct graph *g, const char *s);
struct graph *uop_graph(const struct uop *u);    /* the graph that owns it */
void *graph_alloc(struct graph *g, size_t size); /* zeroed memory that dies with the graph; NULL when there is none */
/* NULL, or why the graph must not be used any more (out of memory). */
const char *graph_error(const struct graph *g);

/* The node, existing or new. Never NULL: when memory runs out it is a VOID constant and graph_error says so. */
struct uop *uop_new(struct graph *g, enum op op, enum dtype dtype, unsigned lanes, union uop_arg arg, unsigned aux,
                    struct uop *const *src, unsigned nsrc);
/* Copies u with everything below it into g (identity when it is there already). */
struct uop *uop_import(struct graph *g, struct uop *u);

/* Shorthands. */
struct uop *uop_const_int(struct graph *g, enum dtype t, int64_t v); /* wrapped to t; a float t gets the value */
struct uop *uop_const_float(struct graph *g, enum dtype t,
                            double v);       /* rounded to t; an integer t gets the truncated value */
int64_t dtype_wrap(enum dtype t, int64_t v); /* as stored in a constant of t */
double dtype_round(enum dtype t, double v);
struct uop *uop_with_src(struct graph *g, struct uop *u, struct uop *const *src); /* u over other sources */
struct uop *uop_var(struct graph *g, const char *name, int64_t min, int64_t max);
struct uop *uop_index(struct graph *g, int64_t v); /* CONST of DT_INDEX */
/* The node whose value an AFTER, or a chain of them, gives. */
static inline const struct uop *uop_behind_after(const struct uop *u) {
  while (u->op == OP_AFTER && u->nsrc) u = u->src[0];
  return u;
}
/* Whether a kernel's ast is phases: SINKs that run one after the other at each place of the ranges behind them. */
static inline bool uop_is_phased(const struct uop *sink) { return sink->op == OP_SINK && sink->aux; }
/* The value that changes nothing in a reduction by op: ADD, MUL or MAX. */
struct uop *uop_identity(struct graph *g, enum op op, enum dtype t);
struct uop *uop_unary(struct graph *g, enum op op, struct uop *x);
struct uop *uop_binary(struct graph *g, enum op op, struct uop *a,
                       struct uop *b); /* dtype of a; bool for comparisons */
struct uop *uop_where(struct graph *g, struct uop *c, struct uop *t, struct uop *f);
struct uop *uop_cast(struct graph *g, struct uop *x, enum dtype t); /* x itself when it has that type */
struct uop *uop_range(struct graph *g, struct uop *bound, int64_t axis, enum axis_kind kind);
static inline bool uop_is_const(const struct uop *u) { return u->op == OP_CONST; }

/* Shape of a tensor-level node: rank and dims (index-typed nodes, CONST where static). Scalars have rank 0. */
struct shape { /* a kernel's nodes have rank 0; an elementwise source of rank 0 broadcasts */
  unsigned rank;
  struct uop *dim[MAX_RANK];
};
const struct shape *uop_shape(struct graph *g, struct uop *u);
/* Bounds of an integer or bool node, both inclusive; the dtype's range where nothing better is known. */
static inline const struct bounds *uop_bounds(const struct uop *u) { /* of a node that has them */
  const void *behind = u->src + u->nsrc;
  return behind;
}
static inline int64_t uop_min(const struct uop *u) {
  return u->flags & UOP_HAS_BOUNDS ? uop_bounds(u)->min : INT64_MIN;
}
static inline int64_t uop_max(const struct uop *u) {
  return u->flags & UOP_HAS_BOUNDS ? uop_bounds(u)->max : INT64_MAX;
}

int64_t shape_numel(const struct shape *s); /* -1 when a dimension is symbolic or the product overflows */
bool shape_equal(const struct shape *a, const struct shape *b);

/* Postorder of everything reachable from the roots, sources before users; free() the array. */
struct uop **uop_toposort(struct uop *const *roots, unsigned nroots, size_t *count);
/* Replaces: for pairs from[i] -> to[i], rebuilds u. */
struct uop *uop_substitute(struct graph *g, struct uop *u, struct uop *const *from, struct uop *const *to, unsigned n);

/* Printing: one node a line with ids and sources; an expression on one line (infix, for index expressions). */
void uop_print(FILE *f, struct uop *const *roots, unsigned nroots);
char *uop_expr(const struct uop *u, char *buf, size_t cap);

/* Checks well-formedness at a stage; 0 or -EINVAL with a message in err. */
enum uop_stage { STAGE_TENSOR, STAGE_KERNEL, STAGE_LINEAR };
int uop_verify(struct uop *const *roots, unsigned nroots, enum uop_stage stage, char *err, size_t errcap);

#endif
