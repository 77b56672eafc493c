/* From a lazy tensor graph to a list of kernels and copies.
 *
 * A kernel's ast is SINK(STORE(INDEX(PARAM 0, index), value)...): PARAM k is item->bufs[k], outputs first. Index
 * expressions and values are written over RANGE nodes: AXIS_LOOP for output axes, numbered outer to inner from 0,
 * AXIS_REDUCE under their REDUCE. The kernel computes its stores for every combination of its LOOP ranges, in any
 * order. A REDUCE that does not depend on a LOOP range need not be evaluated again along it: such a LOOP range is
 * AXIS_SERIAL, to be run inside one work-item (softmax's second kernel reduces a row, then walks the row again).
 * Padding is LOAD(INDEX(p, index, valid), 0). All movement ops are gone. */
#ifndef DOORBELL_GRAPH_SCHEDULE_H
#define DOORBELL_GRAPH_SCHEDULE_H
#include "uop.h"

struct schedule_item {
  enum { SCHEDULE_KERNEL, SCHEDULE_COPY } kind;
  struct uop *ast;   /* KERNEL: the SINK; COPY: NULL */
  struct uop **bufs; /* KERNEL: BUFFER nodes by PARAM slot; COPY: destination, source */
  unsigned nbufs, noutputs;
  unsigned device; /* device slot it runs on */
};
struct schedule {
  struct graph *graph; /* owns every node named here */
  struct schedule_item *items;
  size_t nitems;
  struct uop **outputs; /* per root: its value as BUFFER, possibly under movement ops that cost nothing */
  size_t noutputs;
  struct uop **temporaries; /* BUFFERs that no root refers to */
  size_t ntemporaries;
};
/* Schedules the roots. next_buffer: first unused BUFFER id, advanced past those made here. 0, or a negative errno and a
 * message in err. */
int graph_schedule(struct uop *const *roots, unsigned nroots, int64_t *next_buffer, struct schedule *out, char *err,
                   size_t errcap);
void schedule_free(struct schedule *s);
#endif
