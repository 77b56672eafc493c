/* Gradients by hand. The function of the user runs once, when the tensor is made, with a symbol for the gradient of the
 * result. What it returns is kept as sources of the value; a gradient is substituted for the symbol (grad.c). */
#include "ops.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char op[] = "custom_gradient";

/* A tensor that stands for a gradient, unlike any other one. */
static db_tensor *gradient_symbol(DB_AT, db_tensor *like) {
  struct call c;
  if (!call_begin(&c, op, file, line, 1, &like)) return c.result;
  struct uop *zeros = expr_full(expr_const(like->dtype, 0, 0), like->rank, like->dim).u;
  struct uop *own =
      uop_new(rt.graph, OP_COPY, like->dtype, 1, (union uop_arg){.i = rt.next_buffer++}, like->value->slot, &zeros, 1);
  return call_end_value(&c, value_over(own, like->value->slot, NULL, 0), like->dtype, like->rank, like->dim);
}

/* The gradient of x, or the reason why it cannot be one. NULL stands for zeros. */
static db_tensor *check_gradient(DB_AT, db_tensor *x, db_tensor *g, unsigned i) {
  struct call c;
  if (!g) g = db_full_like_at(file, line, x, db_operand_int(0));
  db_tensor *in[] = {g, x};
  if (!call_begin(&c, op, file, line, 2, in)) return c.result;
  if (g->rank != x->rank || memcmp(g->dim, x->dim, g->rank * sizeof *g->dim) != 0)
    return call_fail(&c, "gradient %u is %s, but the input is %s", i, SHAPE(*g), SHAPE(*x));
  call_leave(&c);
  return db_cast_at(file, line, g, (db_dtype)x->dtype);
}

/* y with gradients by hand. The arg of the BITCAST distinguishes it from y and from y with other gradients. */
static db_tensor *with_gradients(struct call *c, db_tensor *dy, db_tensor *const *g, uint64_t key) {
  db_tensor *y = c->in[0];
  unsigned n = c->nin - 1;
  union uop_arg arg = {.i = (int64_t)(key >> 1 | 1)};
  struct uop *node = value_node(y->value);
  node = uop_new(rt.graph, OP_BITCAST, y->dtype, 1, arg, 0, &node, 1);
  struct value *v = value_blank(node, c->slot, 2 + 2 * n);
  if (!v) return call_fail(c, "out of memory");
  value_set_source(v, 0, y->value);
  value_set_source(v, 1, dy->value);
  for (unsigned i = 0; i < n; i++) {
    value_set_source(v, 2 + i, c->in[1 + i]->value);
    value_set_source(v, 2 + n + i, g[i]->value);
  }
  v->by_hand = n;
  return call_end_value(c, v, y->dtype, y->rank, y->dim);
}

/* Calls the function, and checks what it stores in g. in: the result, then n inputs. Returns a poisoned tensor after an
 * error, else NULL. */
static db_tensor *ask_gradients(DB_AT, db_tensor *const *in, unsigned n, db_gradient_fn *fn, void *ctx, db_tensor **dy,
                                db_tensor **g) {
  struct call c;
  if (!call_begin(&c, op, file, line, n + 1, in)) return c.result;
  if (!dtype_is_float(in[0]->dtype)) return call_fail(&c, "the result is %s", dtype_info[in[0]->dtype].name);
  call_leave(&c);
  *dy = gradient_symbol(file, line, in[0]);
  if (db_poison(*dy)) return *dy;
  if (fn(ctx, *dy, in + 1, n, g))
    return call_begin(&c, op, file, line, n + 1, in) ? call_fail(&c, "the function failed: %s", db_error()) : c.result;
  for (unsigned i = 0; i < n; i++)
    if (db_poison(g[i] = check_gradient(file, line, in[1 + i], g[i], i))) return g[i];
  return NULL;
}

db_tensor *gradient_by_hand(DB_AT, db_tensor *y, db_tensor *const *x, unsigned n, db_gradient_fn *fn, void *ctx,
                            uint64_t key) {
  struct call c;
  db_tensor *result, *dy = NULL, **in = fn && n && x ? calloc(2 * (size_t)n + 1, sizeof *in) : NULL;
  if (!in)
    return call_begin(&c, op, file, line, 1, &y)
               ? call_fail(&c, "%s", fn && n && x ? "out of memory" : "there is no function, or no input")
               : c.result;
  db_tensor **g = in + n + 1;
  in[0] = y;
  memcpy(in + 1, x, n * sizeof(db_tensor *));
  {
    DB_SCOPED;
    result = ask_gradients(file, line, in, n, fn, ctx, &dy, g);
    if (!result && !call_begin(&c, op, file, line, n + 1, in)) result = c.result;
    if (!result && dy) result = with_gradients(&c, dy, g, key);
    db_keep(result);
  }
  free(in);
  return result;
}

db_tensor *db_custom_gradient_at(DB_AT, db_tensor *y, db_tensor *const *x, unsigned n, db_gradient_fn *fn, void *ctx) {
  return gradient_by_hand(file, line, y, x, n, fn, ctx, gradient_key((void *)fn, ctx));
}
