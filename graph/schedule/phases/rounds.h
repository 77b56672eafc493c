/* Kernels that compute their columns in rounds: what rounds.c finds out about them, for itself and blocks.c. */
#ifndef DOORBELL_GRAPH_ROUNDS_H
#define DOORBELL_GRAPH_ROUNDS_H
#include "phases.h"

/* A value without the factors that are not known before the last round. */
struct scaled {
  struct uop *value;
  struct uop *factor; /* of the complete value, over the unit's rows; NULL: 1 */
  double exponent;    /* the value is proportional to 2^(exponent * maximum) */
};

/* What a member computes in a round. */
struct round_part {
  enum { ROUND_WIDE, ROUND_MAXIMUM, ROUND_SUM } kind;
  struct uop *column[MAX_RANK]; /* the unit's ranges that number columns, in the order of rounds.size */
  struct uop *reduce;           /* the reduction over the columns; NULL: WIDE */
  unsigned summed;              /* the wide member whose values are summed; MOST_MEMBERS: none */
  struct scaled scaled;
};

struct rounds {
  struct phaser *p;
  struct phased *k;
  struct round_part part[MOST_MEMBERS]; /* by member */
  unsigned maximum;                     /* member; MOST_MEMBERS: none */
  double exponent;                      /* of the sums that depend on the maximum; 0: none */
  bool reduces;                         /* a part has a maximum or a sum of its row */
  /* Of the ranges that number columns. A round has consecutive iterations of the first one and one iteration of each of
   * the others. */
  int64_t size[MAX_RANK];
  unsigned ncolumns;
};

static inline const struct unit *rounds_unit(const struct rounds *o, unsigned i) {
  return &o->p->s->unit[o->k->member[i].unit];
}

/* rounds.c */
/* Finds what the kernel's members compute in rounds. Returns false if the kernel has no rounds. */
bool rounds_find_parts(struct phaser *p, struct phased *k, struct rounds *o);
/* The member whose result is loaded, or MOST_MEMBERS. */
unsigned rounds_member(const struct rounds *o, const struct uop *load);
/* Whether a range of member i's unit numbers columns. */
bool rounds_is_column(const struct rounds *o, unsigned i, const struct uop *range);
/* The value that wide member i passes on: without a conversion to a wider type, and rounded to the type of the factors
 * with which matrix instructions multiply it. */
struct uop *rounds_passed_value(const struct rounds *o, unsigned i);

/* blocks.c */
/* The range of member i's result of which a workgroup computes a slice; NULL if it computes whole rows. */
struct uop *rounds_sliced_range(const struct rounds *o, unsigned i);
#endif
