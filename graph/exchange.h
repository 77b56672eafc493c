/* EXCHANGE: what the processes of a program make together of what each of them has. The graph knows shapes and
 * derivatives; frontend/run/exchange.c does it.
 *
 * Every EXCHANGE has a number of its own: equal expressions in one process may differ in another, so two exchanges are
 * never one node. */
#ifndef DOORBELL_GRAPH_EXCHANGE_H
#define DOORBELL_GRAPH_EXCHANGE_H
#include "uop.h"

/* X(name, of its gradient, what is said of it). N processes; x is flat for GATHER, [N, part] for SCATTER, and of any
 * shape for the others, whose result has the same. */
#define EXCHANGES(X)                                                                                                   \
  X(SUM, SUM, "all-reduce sum")        /* of all x, to all */                                                          \
  X(PROD, NONE, "all-reduce product")  /* likewise */                                                                  \
  X(MAX, NONE, "all-reduce maximum")   /* NaN where one is NaN */                                                      \
  X(MIN, NONE, "all-reduce minimum")   /* likewise */                                                                  \
  X(BROADCAST, REDUCE, "broadcast")    /* the root's x, to all */                                                      \
  X(REDUCE, BROADCAST, "reduce")       /* the sum to the root, zeros to the others */                                  \
  X(GATHER, SCATTER, "all-gather")     /* [N, elements of x]: everyone's x, to all */                                  \
  X(SCATTER, GATHER, "reduce-scatter") /* row i of the sum, to process i */
enum exchange_op {
#define X(name, back, text) EXCHANGE_##name,
  EXCHANGES(X)
#undef X
      EXCHANGE_NONE
};
const char *exchange_op_text(enum exchange_op op);

/* x: of elements that the op takes as they are; sums of less than 32 bits are the caller's to widen. root: of BROADCAST
 * and REDUCE. */
struct uop *uop_exchange(struct graph *g, enum exchange_op op, unsigned root, struct uop *x, const struct shape *shape);
static inline unsigned exchange_root(const struct uop *u) { return (unsigned)((uint64_t)u->arg.i & UINT32_MAX); }
static inline uint32_t exchange_number(const struct uop *u) { return (uint32_t)((uint64_t)u->arg.i >> 32); }
/* The arg of u with another number. */
static inline int64_t exchange_renumbered(const struct uop *u, uint32_t number) {
  return (int64_t)((uint64_t)number << 32 | exchange_root(u));
}
#endif
