/* EXCHANGE: collective operations between the processes of a program. The graph knows their shapes and derivatives;
 * frontend/run/exchange.c executes them.
 *
 * Every EXCHANGE has a unique number. Equal expressions in one process may have different values in another process, so
 * two exchanges must never be the same node. */
#ifndef DOORBELL_GRAPH_EXCHANGE_H
#define DOORBELL_GRAPH_EXCHANGE_H
#include "uop.h"

/* X(name, exchange of its gradient, text for messages). With N processes, x is flat for GATHER and [N, part] for
 * SCATTER. For the other ops x has any shape, and the result has the same shape. */
#define EXCHANGES(X)                                                                                                   \
  X(SUM, SUM, "all-reduce sum")        /* sum of all x, on every process */                                            \
  X(PROD, NONE, "all-reduce product")  /* likewise */                                                                  \
  X(MAX, NONE, "all-reduce maximum")   /* NaN if any x is NaN */                                                       \
  X(MIN, NONE, "all-reduce minimum")   /* likewise */                                                                  \
  X(BROADCAST, REDUCE, "broadcast")    /* the root's x, on every process */                                            \
  X(REDUCE, BROADCAST, "reduce")       /* the sum on the root, zeros on the others */                                  \
  X(GATHER, SCATTER, "all-gather")     /* [N, elements of x]: every process's x, on every process */                   \
  X(SCATTER, GATHER, "reduce-scatter") /* row i of the sum, on process i */
enum exchange_op {
#define X(name, back, text) EXCHANGE_##name,
  EXCHANGES(X)
#undef X
      EXCHANGE_NONE
};
const char *exchange_op_text(enum exchange_op op);
enum exchange_op exchange_op_transposed(unsigned op); /* the exchange of its gradient; EXCHANGE_NONE if there is none */

/* The caller must convert x to a type that the op takes; in particular it widens types of less than 32 bits before a
 * sum. root: the root of BROADCAST and REDUCE; ignored by the others. */
struct uop *uop_exchange(struct graph *g, enum exchange_op op, unsigned root, struct uop *x, const struct shape *shape);
static inline unsigned exchange_root(const struct uop *u) { return (unsigned)((uint64_t)u->arg.i & UINT32_MAX); }
static inline uint32_t exchange_number(const struct uop *u) { return (uint32_t)((uint64_t)u->arg.i >> 32); }
/* u's arg with another number. */
static inline int64_t exchange_renumbered(const struct uop *u, uint32_t number) {
  return (int64_t)((uint64_t)number << 32 | exchange_root(u));
}
#endif
