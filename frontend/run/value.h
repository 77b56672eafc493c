/* Lazy values: what tensors refer to, and how they are computed. */
#ifndef DOORBELL_FRONTEND_RUN_VALUE_H
#define DOORBELL_FRONTEND_RUN_VALUE_H
#include "runtime.h"

/* ---- value.c: lazy values ---- */

struct value {
  struct value *prev, *next; /* in rt.values */
  uint32_t refs;             /* by tensors and dependents */
  uint32_t dependents;       /* number of values that have this one in src */
  uint32_t targeted;         /* number of assigns whose target (src[0]) this is */
  uint32_t mark;             /* value_mark() of the last walk that reached it */
  uint64_t serial;           /* creation order */
  bool placed;               /* expr contains memory, and so determines a device */
  bool assigns;              /* expr is an ASSIGN to src[0] */
  bool stale;                /* an assign has overwritten its memory; expr still names the old memory */
  bool superseded;           /* of an assign being realized: it is the target of another assign */
  bool tracked;              /* expr depends on a leaf; keeps expr and src when realized, because gradients need them */
  uint8_t slot;
  unsigned nsrc, room;         /* room: the capacity of src */
  unsigned by_hand;            /* n, if src is: the value, dy, n inputs, the n gradients of these (grad.c) */
  struct value *older, *newer; /* older: the value that this assign overwrote; newer: the assign that overwrote this
                                  value; both NULL unless both exist */
  int line;                    /* location of the assign call, for an assign and for the values it made stale */
  const char *file;
  db_tensor *leaf;              /* the tensor for which gradients with respect to this value are collected */
  struct uop *expr;             /* the expression that dependents are built on */
  struct uop *real;             /* movement ops over a BUFFER when realized, else NULL */
  struct uop *overwritten_real; /* of a stale value: real before it was overwritten */
  struct storage *storage;      /* the memory of real */
  struct storage *copy;         /* of an assign being realized: the memory it writes if the old memory must stay */
  struct value **part;          /* of a realized value on a group: one value per device, with a reference on each */
  struct value *whole;          /* the value of which this is a part */
  struct value **lowered; /* while being realized: the values on single devices that replace it (shard_values.c) */
  struct value *src[];    /* the values in expr, an assign's target first; empty once realized, unless tracked */
};
/* Makes a lazy value. Takes references on src. Returns NULL if memory runs out. */
struct value *value_over(struct uop *expr, unsigned slot, struct value *const *src, unsigned nsrc);
/* The same in two steps, for sources that are not in one array: makes a value whose sources must be set before it is
 * used. */
struct value *value_blank(struct uop *expr, unsigned slot, unsigned nsrc);
void value_set_source(struct value *v, unsigned i, struct value *s);
uint32_t value_mark(void); /* a new mark for the values of one walk */
void value_retain(struct value *v);
void value_release(struct value *v);
/* Makes v refer to s. Takes over the caller's reference on s. */
void value_becomes(struct value *v, struct uop *real, struct storage *s);
/* Makes v, a value on a group, refer to its parts, which are split along axis. Takes over the array (from object_new)
 * and the references in it. Returns false if memory runs out. */
bool value_becomes_parts(struct value *v, int axis, struct value **part);
struct value *value_of_parts(unsigned slot, int axis,
                             struct value **part); /* NULL after db_fail; the caller still owns the parts then */
void value_loses_parts(struct value *v);
unsigned value_count(const struct value *v); /* number of parts; 1 on a single device */
static inline struct uop *value_node(const struct value *v) { return v->real ? v->real : v->expr; }
/* The given values and all values they depend on, up to realized ones. */
struct reach {
  struct value **values; /* with a reference on each */
  size_t n, capacity;
};
bool values_reach(struct value *const *v, unsigned n, struct reach *out); /* false: out of memory */
void reach_free(struct reach *r);
/* Makes rt.binder use the memory of realized values instead of their expressions. */
int values_replace(const struct reach *reach);
/* Moves all values to a new graph when dead nodes outnumber live ones. Only values may hold nodes across this call. */
void graph_collect(void);

/* ---- realize.c ---- */
enum { SLICE_ALIGNMENT = 16 /* alignment that the compiler's loads require */ };
/* Computes the values. A view of memory costs nothing, except that with `contiguous` it is copied unless its elements
 * are consecutive. Returns 0 or a negative errno with a message. Called with rt.lock held. */
int realize_values(struct value *const *v, unsigned n, bool contiguous);
/* Whether v's elements are consecutive in its memory; stores the element at which they start. */
bool value_is_contiguous(const struct value *v, int64_t *offset);
/* The same for a value on one device. *varies: whether they start elsewhere for other values of variables. */
bool value_place(const struct value *v, int64_t *offset, bool *varies);
/* Whether v covers all of its memory, in order. */
bool value_is_whole_memory(const struct value *v);
/* Copies v, which starts at element `offset` of its memory, to memory of its own. */
int value_takes_copy(struct value *v, int64_t offset);

/* ---- shard_values.c: values on groups of devices ---- */
/* Whether these values must be realized by values_realize_shards. */
bool values_need_shards(const struct reach *reach);
typedef int realize_fn(struct value *const *v, unsigned n, bool contiguous, bool keeps);
/* Realizes v through values on single devices. reach holds the values that are not realized yet. Realized values are
 * replaced in rt.binder. */
int values_realize_shards(struct value *const *v, unsigned n, const struct reach *reach, bool contiguous, bool keeps,
                          realize_fn *realize);
/* Stores how v is or will be split: the axis, or SHARD_REPLICATED, and in bound, unless NULL, n + 1 numbers: part i
 * covers bound[i] to bound[i + 1]. */
int value_sharding(struct value *v, int *axis, int64_t *bound);
#endif
