/* Lazy values: what tensors stand for, and how they are computed. */
#ifndef DOORBELL_FRONTEND_RUN_VALUE_H
#define DOORBELL_FRONTEND_RUN_VALUE_H
#include "runtime.h"

/* ---- value.c: what a tensor stands for ---- */

struct value {
  struct value *prev, *next; /* in rt.values */
  uint32_t refs;             /* tensors and dependents */
  uint32_t dependents;       /* values built on expr */
  uint32_t targeted;         /* assigns on it */
  uint32_t mark;             /* of the last walk */
  uint64_t serial;           /* in the order they were made */
  bool placed;               /* some memory, and so a device, is in expr */
  bool assigns;              /* expr is an ASSIGN on src[0] */
  bool stale;                /* its memory was overwritten by an assign; expr names what it was */
  bool superseded;           /* of an assign being realized: another goes on from it */
  bool tracked;              /* a leaf is in expr: once realized it keeps expr and src, the way for gradients */
  uint8_t slot;
  unsigned nsrc, room;         /* room: what src was made for */
  struct value *older, *newer; /* of what an assign overwrote and wrote, while both live */
  int line;                    /* where the assign was called, of one and of what it made stale */
  const char *file;
  db_tensor *leaf;         /* the living tensor that gradients with respect to this value are collected for */
  struct uop *expr;        /* what dependents were built on */
  struct uop *real;        /* once realized: movement over a BUFFER */
  struct uop *was;         /* of a stale value: real, before it was overwritten */
  struct storage *storage; /* of real */
  struct storage *copy;    /* of an assign being realized: what it is computed in, when its old memory must stay */
  struct value **part;     /* of a realized one on a group, instead of storage: a value a device, a reference on each */
  struct value *whole;     /* whose part this is */
  struct value **lowered;  /* while it is realized: what stands for it on single devices (shard_values.c) */
  struct value *src[];     /* what expr was built on, an assign's target first; none once realized, unless tracked */
};
/* A lazy value; takes references on src. NULL when memory is out. */
struct value *value_over(struct uop *expr, unsigned slot, struct value *const *src, unsigned nsrc);
/* The same in two steps, for sources that are not in one array: a value whose sources are set before it is used. */
struct value *value_blank(struct uop *expr, unsigned slot, unsigned nsrc);
void value_set_source(struct value *v, unsigned i, struct value *s);
uint32_t value_mark(void); /* for the mark of the values of one walk */
void value_retain(struct value *v);
void value_release(struct value *v);
/* Makes v stand for s; takes over the caller's reference on s. */
void value_becomes(struct value *v, struct uop *real, struct storage *s);
/* Makes v, on a group, stand for its parts, split along axis: takes over the array, of object_new, and the references
 * in it. False: out of memory. */
bool value_becomes_parts(struct value *v, int axis, struct value **part);
struct value *value_of_parts(unsigned slot, int axis,
                             struct value **part); /* NULL after db_fail: they are the caller's still */
void value_loses_parts(struct value *v);
unsigned value_count(const struct value *v); /* of parts; 1 on one device */
static inline struct uop *value_node(const struct value *v) { return v->real ? v->real : v->expr; }
/* The values themselves and what they were built on, as far as that is not realized. */
struct reach {
  struct value **values; /* a reference on each */
  size_t n, capacity;
};
bool values_reach(struct value *const *v, unsigned n, struct reach *out); /* false: out of memory */
void reach_free(struct reach *r);
/* rt.binder takes the memory of what is realized in place of its expression. */
int values_replace(const struct reach *reach);
/* Moves what lives to a new graph once dead nodes outnumber it. No node may be held across this but by values. */
void graph_collect(void);

/* ---- realize.c ---- */
enum { SLICE_ALIGNMENT = 16 /* the compiler's loads take memory to be aligned so */ };
/* Computes the values. A view of memory costs nothing; contiguous: unless its elements lie one after the other it is
 * copied. Lock held. */
int realize_values(struct value *const *v, unsigned n, bool contiguous);
/* Whether v's elements lie one after the other in its memory, and at what element they begin. */
bool value_is_contiguous(const struct value *v, int64_t *offset);
/* The same of one device, and whether they begin elsewhere when variables have other values. */
bool value_place(const struct value *v, int64_t *offset, bool *varies);
/* Whether v is all of its memory in order. */
bool value_is_whole_memory(const struct value *v);
/* Gives v, which begins at that element of its memory, memory of its own. */
int value_takes_copy(struct value *v, int64_t offset);

/* ---- shard_values.c: values on groups of devices ---- */
/* Whether realizing needs values_realize_shards. */
bool values_need_shards(const struct reach *reach);
typedef int realize_fn(struct value *const *v, unsigned n, bool contiguous, bool keeps);
/* Realizes v, whose values not realized yet are in reach, by what stands for them on single devices; what is realized
 * is replaced in rt.binder. */
int values_realize_shards(struct value *const *v, unsigned n, const struct reach *reach, bool contiguous, bool keeps,
                          realize_fn *realize);
/* How v is or will be split: its axis (SHARD_REPLICATED: not), and where each part begins and ends, n + 1 numbers (may
 * be NULL). */
int value_sharding(struct value *v, int *axis, int64_t *bound);
#endif
