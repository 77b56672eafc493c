/* Tensors, and the frame of every operation on them. */
#ifndef DOORBELL_FRONTEND_TENSOR_CALL_H
#define DOORBELL_FRONTEND_TENSOR_CALL_H
#include "../run/value.h"
#include "expr.h"
#include "size.h"

/* ---- tensor.c: tensors, poison, scopes, and the frame of every operation ---- */

struct poison {
  uint32_t refs;
  char text[];
};
struct db_tensor {
  uint32_t refs;
  enum dtype dtype; /* VOID when poisoned */
  unsigned rank;
  struct value *value;   /* NULL when poisoned */
  struct value *grad;    /* collected by db_backward; NULL when there is none */
  struct poison *poison; /* NULL when not */
  int64_t dim[MAX_RANK];
};
/* One call of an operation, from the check of its arguments to its result. */
struct call {
  const char *op, *file;
  int line;
  db_tensor *few[3], *const *in; /* in is few, or the caller's array of more */
  unsigned nin;
  unsigned slot;
  bool holds_slot;   /* the call's own reference, for a slot that no argument keeps */
  db_tensor *result; /* set once the call has ended */
};
/* Takes the lock and checks the arguments: false when one is NULL, poisoned or on another device; then return
 * call->result. */
bool call_begin(struct call *c, const char *op, DB_AT, unsigned nin, db_tensor *const *in);
/* The same for an operation that takes tensors of symbolic sizes. */
bool call_begin_sized(struct call *c, const char *op, DB_AT, unsigned nin, db_tensor *const *in);
/* The poisoned result; drops the lock. */
db_tensor *call_fail(struct call *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The result, or poison when it or an expression on the way to it has too many elements; drops the lock. */
db_tensor *call_end(struct call *c, struct expr e);
/* The same check alone: false once the call has failed. */
bool call_possible(struct call *c, unsigned rank, const int64_t *dim);
/* The slot for a new tensor on dev; the call holds a reference on it until it ends. False once the call has failed. */
bool call_device(struct call *c, db_device *dev);
/* Ends a call without a result: drops the lock. */
void call_leave(struct call *c);
/* The same for the elements of memory from the first on, row after row; takes over the caller's reference on s. */
db_tensor *call_end_storage(struct call *c, struct storage *s, int64_t first, enum dtype t, unsigned rank,
                            const int64_t *dim);
/* A tensor in the innermost scope; takes over the caller's reference on v. Lock held; NULL: no memory, or no v. */
db_tensor *tensor_of_value(struct value *v, enum dtype t, unsigned rank, const int64_t *dim);
/* A lazy value built on those of tensors. NULL when memory is out. */
struct value *value_new(struct uop *expr, unsigned slot, db_tensor *const *src, unsigned nsrc);
/* A value over memory that node stands for; takes over the caller's reference on s. NULL: no memory. */
struct value *value_of_storage(struct storage *s, struct uop *node);
/* Elements of memory from the first on, in rows. */
struct uop *storage_node(const struct storage *s, int64_t first, enum dtype t, unsigned rank, const int64_t *dim);
/* The same for a value made by the caller, whose reference it takes over. */
db_tensor *call_end_value(struct call *c, struct value *v, enum dtype t, unsigned rank, const int64_t *dim);
/* Ends with a tensor that exists; drops the lock. */
db_tensor *call_same(struct call *c, db_tensor *t);
/* The error of computing or reading a poisoned tensor, or NULL: a negative errno and a message. */
int tensor_error(const db_tensor *t, const char *what);
struct expr expr_of(const db_tensor *t);
#define SHAPE(t) shape_text((t).rank, (t).dim).s
/* What to say of a size that is an error of db_bind; "". */
struct bind_failure {
  char s[256];
} bind_failure(int64_t size);
/* A list of numbers has some, or none: false once the call has failed. */
bool list_ok(struct call *c, db_list list);
/* Whether there is an array for n results: false after db_fail. */
bool results_ok(const char *op, db_tensor **out, unsigned n);
/* Fills dim from a list; false after call_fail into c->result. */
bool call_shape(struct call *c, db_list list, int64_t *dim);
bool call_sizes(struct call *c, db_list list, int64_t *dim); /* symbolic ones, too */
#endif
