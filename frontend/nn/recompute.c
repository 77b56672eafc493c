/* Blocks that are computed again for their gradients. The second computation reads inputs that depend on the gradient
 * of the result, so that it is not one with the first and cannot run before the gradient is known. */
#include "params.h"
#include "../ops/ops.h"
#include "../run/capture.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local bool recomputing;
bool params_recomputing(void) { return recomputing; }

/* ---- random numbers ---- */

struct random_place {
  uint64_t seed;
  uint32_t calls, of_function[SLOT_NUMBERS];
};
static void note_random(struct random_place *p) {
  const uint32_t *calls = capture_random_calls();
  random_state(&p->seed, &p->calls);
  if (calls) memcpy(p->of_function, calls, sizeof p->of_function);
}
static void return_to(const struct random_place *p) {
  uint32_t *calls = capture_random_calls();
  random_restore(p->seed, p->calls);
  if (calls) memcpy(calls, p->of_function, sizeof p->of_function);
}

/* ---- the marked tensors that a block uses ---- */

struct tensors {
  db_tensor **t;
  unsigned n, capacity;
};
static bool add_tensor(struct tensors *l, db_tensor *t) {
  if (l->n == l->capacity) {
    unsigned more = l->capacity ? 2 * l->capacity : 16;
    db_tensor **p = realloc(l->t, more * sizeof *p);
    if (!p) return false;
    l->t = p, l->capacity = more;
  }
  l->t[l->n++] = t;
  return true;
}

/* Adds the marked tensors that y was computed from without going through those in the list. */
static bool add_marked(struct tensors *l, struct value *y) {
  struct value **stack = NULL;
  size_t depth = 0, room = 0;
  uint32_t mark = value_mark();
  bool good = true;
  for (unsigned i = 0; i < l->n; i++) l->t[i]->value->mark = mark;
  for (struct value *v = y; v && good; v = depth ? stack[--depth] : NULL) {
    if (v->mark == mark) continue;
    v->mark = mark;
    if (v->leaf) good = add_tensor(l, v->leaf);
    if (depth + v->nsrc > room) {
      struct value **p = realloc(stack, (room = 2 * (depth + v->nsrc)) * sizeof(struct value *));
      good &= p != NULL;
      if (p) stack = p;
    }
    for (unsigned i = 0; i < v->nsrc && good; i++) stack[depth++] = v->src[i];
  }
  free(stack);
  return good;
}

/* ---- the block ---- */

struct block {
  db_block_fn *fn;
  void *ctx;
  unsigned n;
  const struct random_place *begin;
};

/* x, as a value that depends on dy. */
static db_tensor *after(db_tensor *x, db_tensor *dy) {
  if (!dtype_is_float(x->dtype)) return x;
  db_tensor *first = db_reshape(db_shrink(db_reshape(dy, -1), 0, 1));
  return db_contiguous(db_add(db_detach(x), db_cast(db_mul(first, 0.0), db_dtype_of(x))));
}

static int block_gradients(void *ctx, db_tensor *dy, db_tensor *const *x, unsigned n, db_tensor **dx) {
  const struct block *b = ctx;
  struct random_place end;
  db_tensor **again = calloc(n, sizeof(db_tensor *));
  if (!again) return db_fail(-ENOMEM, "out of memory");
  for (unsigned i = 0; i < n; i++) again[i] = i < b->n ? after(x[i], dy) : x[i];
  note_random(&end);
  return_to(b->begin);
  recomputing = true;
  db_tensor *y = b->fn(b->ctx, again, b->n);
  recomputing = false;
  return_to(&end);
  unsigned none = 0;
  const char *why = NULL;
  db_grad_all(y, dy, again, n, dx);
  free(again);
  for (unsigned i = 0; i < n; i++) {
    if (!db_poison(dx[i])) continue;
    why = db_poison(dx[i]); /* y may not depend on some of them */
    dx[i] = NULL, none++;
  }
  return none < n ? 0 : db_fail(-EINVAL, "%s", why);
}

db_tensor *db_recompute_at(DB_AT, db_block_fn *fn, void *ctx, db_tensor *const *x, unsigned n) {
  struct call c;
  struct random_place begin;
  struct tensors all = {0};
  db_tensor *y;
  if (!fn || !n || !x)
    return call_begin(&c, "recompute", file, line, 0, NULL)
               ? call_fail(&c, "the function or the list of inputs is NULL or empty")
               : c.result;
  if (!call_begin(&c, "recompute", file, line, n, x)) return c.result;
  call_leave(&c);
  note_random(&begin);
  {
    DB_SCOPED;
    y = fn(ctx, x, n);
    bool good = !db_poison(y);
    pthread_mutex_lock(&rt.lock);
    for (unsigned i = 0; i < n && good; i++) good = add_tensor(&all, x[i]);
    if (good) good = add_marked(&all, y->value);
    pthread_mutex_unlock(&rt.lock);
    struct block b = {fn, ctx, n, &begin};
    if (good) y = gradient_by_hand(file, line, y, all.t, all.n, block_gradients, &b, gradient_key((void *)fn, ctx));
    db_keep(y);
  }
  free(all.t);
  return y;
}
