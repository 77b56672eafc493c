/* Tensors, and the steps that every operation begins and ends with. */
#ifndef DOORBELL_FRONTEND_TENSOR_CALL_H
#define DOORBELL_FRONTEND_TENSOR_CALL_H
#include "../run/value.h"
#include "expr.h"
#include "size.h"

/* ---- tensor.c: tensors, poison, scopes, and the begin and end of every operation ---- */

struct poison {
  uint32_t refs;
  char text[];
};
struct db_tensor {
  uint32_t refs;
  enum dtype dtype; /* VOID if poisoned */
  unsigned rank;
  struct value *value;   /* NULL if poisoned */
  struct value *grad;    /* collected by db_backward, or NULL */
  struct poison *poison; /* NULL if not poisoned */
  int64_t dim[MAX_RANK];
};
/* One call of an operation, from the check of its arguments to its result. Every call_ function that fails or ends a
 * call releases rt.lock and sets result. */
struct call {
  const char *op, *file;
  int line;
  db_tensor *few[3], *const *in; /* in is few, or the caller's array if there are more */
  unsigned nin;
  unsigned slot;
  bool holds_slot;   /* the call owns a reference on slot, which no argument keeps open */
  db_tensor *result; /* set when the call has ended */
};
/* Takes rt.lock and checks the arguments. Returns false if one is NULL, poisoned, of symbolic size or on another device
 * than the first; return call->result then. */
bool call_begin(struct call *c, const char *op, DB_AT, unsigned nin, db_tensor *const *in);
/* The same for an operation that accepts tensors of symbolic size. */
bool call_begin_sized(struct call *c, const char *op, DB_AT, unsigned nin, db_tensor *const *in);
/* Ends the call with a poisoned tensor, whose message starts with the operation and its location. Releases rt.lock. */
db_tensor *call_fail(struct call *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Ends the call with a tensor for e, or with poison if e or an expression that it was made from has too many elements.
 * Releases rt.lock. */
db_tensor *call_end(struct call *c, struct expr e);
/* Checks the number of elements only. Returns false if the call has failed. */
bool call_possible(struct call *c, unsigned rank, const int64_t *dim);
/* Sets call->slot to the slot of dev. The call holds a reference on the slot until it ends. Returns false if the call
 * has failed. */
bool call_device(struct call *c, db_device *dev);
/* Ends a call without a result: releases rt.lock. */
void call_leave(struct call *c);
/* Ends the call with a row-major tensor in s that starts at element `first`. Takes over the caller's reference on s. */
db_tensor *call_end_storage(struct call *c, struct storage *s, int64_t first, enum dtype t, unsigned rank,
                            const int64_t *dim);
/* Makes a tensor in the innermost scope. Takes over the caller's reference on v. Returns NULL if v is NULL or memory
 * runs out. Called with rt.lock held. */
db_tensor *tensor_of_value(struct value *v, enum dtype t, unsigned rank, const int64_t *dim);
/* Makes a lazy value built on the values of tensors. Returns NULL if memory runs out. */
struct value *value_new(struct uop *expr, unsigned slot, db_tensor *const *src, unsigned nsrc);
/* Makes a value for node, which reads the memory s. Takes over the caller's reference on s. Returns NULL if memory runs
 * out. */
struct value *value_of_storage(struct storage *s, struct uop *node);
/* A node for row-major elements of s that start at element `first`. */
struct uop *storage_node(const struct storage *s, int64_t first, enum dtype t, unsigned rank, const int64_t *dim);
/* Ends the call with a tensor for v. Takes over the caller's reference on v. */
db_tensor *call_end_value(struct call *c, struct value *v, enum dtype t, unsigned rank, const int64_t *dim);
/* Ends the call with an existing tensor. Releases rt.lock. */
db_tensor *call_same(struct call *c, db_tensor *t);
/* Reports the error of a tensor that is poisoned or NULL. Returns a negative errno with a message. */
int tensor_error(const db_tensor *t, const char *what);
struct expr expr_of(const db_tensor *t);
#define SHAPE(t) shape_text((t).rank, (t).dim).s
/* What db_bind reported if size is one of its errors, as the end of a message; else "". */
struct bind_failure {
  char s[256];
} bind_failure(int64_t size);
/* Checks that the list has a pointer if it has a length. Returns false if the call has failed. */
bool list_ok(struct call *c, db_list list);
/* Checks that there is an array for n results. Returns false after db_fail. */
bool results_ok(const char *op, db_tensor **out, unsigned n);
/* Copies a list of sizes to dim. Returns false after call_fail into c->result. */
bool call_shape(struct call *c, db_list list, int64_t *dim);
bool call_sizes(struct call *c, db_list list, int64_t *dim); /* accepts symbolic sizes */
#endif
