/* Sums of products of bytes inside sums of floats. */
#ifndef DOORBELL_COMPILER_DOTS_H
#define DOORBELL_COMPILER_DOTS_H
#include "internal.h"

enum { DOT_CHAIN = 8, MOST_DOT_SUMS = 16 };

/* What a float sum adds: factors * the sum of products of bytes along an axis. */
struct dot {
  struct uop *byte[2]; /* the operands of a product; byte[1] is i8, byte[0] is u8 or i8 */
  struct uop *axis;    /* the range */
  unsigned lanes;      /* its size */
  struct uop *factor[DOT_CHAIN];
  unsigned nfactors;
  struct uop *chain[DOT_CHAIN]; /* the nodes from the float sum to the sum of products */
  unsigned nchain;
};
/* Whether the REDUCE is such a sum. */
bool dot_of(const struct uop *sum, struct dot *d);

/* Plans a kernel with such sums; sets *done if it has any. */
bool dots_host(struct codegen *k, bool *done);
#endif
