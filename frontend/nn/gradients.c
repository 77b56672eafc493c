/* Gradients between db_backward and the optimizer's step: scaled losses, clipping, means over processes. */
#include "optim.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

void set_gradient(db_tensor *t, db_tensor *g) {
  pthread_mutex_lock(&rt.lock);
  value_retain(g->value);
  value_release(t->grad);
  t->grad = g->value;
  pthread_mutex_unlock(&rt.lock);
}

enum { TERMS = 32 }; /* number of terms that one kernel adds */

db_tensor *add_term(db_tensor *sum, db_tensor *term, unsigned *terms, enum db_binary_op op) {
  if (sum) term = db_binary_at(DB_HERE, op, db_operand_tensor(sum), db_operand_tensor(db_to(term, db_device_of(sum))));
  return ++*terms % TERMS ? term : db_contiguous(term);
}

/* ---- scaled losses ---- */

db_tensor *gradients_finite(const db_optim *o) {
  db_tensor *finite = NULL;
  unsigned terms = 0;
  for (unsigned i = 0; i < o->n; i++)
    if (o->params[i].tensor->grad)
      finite = add_term(finite, db_all(db_isfinite(db_grad_of(o->params[i].tensor))), &terms, DB_BINARY_AND);
  return db_to(finite, db_device_of(o->scale));
}

/* Divides the gradient collected for t by the factor of the loss and adds the gradient collected before, if any.
 * Takes over the reference on it. */
static void unscale_gradient(db_tensor *t, db_tensor *inverse, struct value *before) {
  db_tensor *g = NULL, *old = NULL;
  if (t->grad) g = db_mul(db_grad_of(t), db_to(inverse, db_device_of(t)));
  pthread_mutex_lock(&rt.lock);
  if (before) value_release(t->grad), t->grad = before;
  pthread_mutex_unlock(&rt.lock);
  if (before && g) old = db_grad_of(t);
  if (g) set_gradient(t, old ? db_add(old, g) : g);
}

int db_optim_backward(db_optim *o, db_tensor *loss) {
  if (!o) return db_fail_argument("optim_backward", "optimizer");
  if (db_poison(loss)) return db_fail(-EINVAL, "%s: %s", o->kind->name, db_poison(loss));
  if (!o->scale) return db_backward(loss);
  struct value **before = calloc((size_t)o->n + 1, sizeof(struct value *));
  if (!before) return db_fail(-ENOMEM, "%s: out of memory", o->kind->name);
  db_scope_begin();
  pthread_mutex_lock(&rt.lock);
  for (unsigned i = 0; i < o->n; i++) before[i] = o->params[i].tensor->grad, o->params[i].tensor->grad = NULL;
  pthread_mutex_unlock(&rt.lock);
  db_tensor *scale = db_detach(o->scale);
  int err = db_backward(db_mul(db_cast(loss, DB_F32), db_to(scale, db_device_of(loss))));
  db_tensor *inverse = db_reciprocal(scale);
  for (unsigned i = 0; i < o->n; i++) unscale_gradient(o->params[i].tensor, inverse, before[i]);
  db_scope_end();
  free(before);
  return err;
}

/* ---- clipping ---- */

db_tensor *db_clip_grad_norm_at(DB_AT, db_tensor *const *params, unsigned n, double max_norm) {
  db_tensor *total = NULL, *bad = NULL;
  if (n && !params) return db_grad_of_at(file, line, NULL);
  db_scope_begin();
  for (unsigned i = 0, terms = 0; i < n && !bad; i++) {
    if (params[i] && params[i]->value && !params[i]->grad) continue;
    db_tensor *g = db_grad_of_at(file, line, params[i]), *sum = db_sum(db_square(db_cast(g, DB_F32)));
    if (db_poison(sum)) {
      bad = sum;
      break;
    }
    total = add_term(total, sum, &terms, DB_BINARY_ADD);
  }
  if (!total && !bad) bad = n ? db_grad_of_at(file, line, params[0]) : db_zeros(DB_F32, NULL);
  if (!bad) {
    total = db_sqrt(total);
    db_tensor *scale = db_minimum(db_div(max_norm, db_add(total, 1e-6)), 1.0);
    for (unsigned i = 0; i < n; i++) {
      if (!params[i] || !params[i]->grad) continue;
      db_tensor *g = db_grad_of(params[i]);
      db_tensor *to = db_to(scale, db_device_of(g));
      set_gradient(params[i], db_cast(db_mul(db_cast(g, optim_arithmetic(db_dtype_of(g))), to), db_dtype_of(g)));
    }
  }
  db_keep(bad ? bad : total);
  db_scope_end();
  return bad ? bad : total;
}

int db_clip_grad_value(db_tensor *const *params, unsigned n, double limit) {
  if (n && !params) return db_fail(-EINVAL, "clip_grad_value: the array of %u parameters is NULL", n);
  int err = 0;
  db_scope_begin();
  for (unsigned i = 0; i < n && !err; i++) {
    if (params[i] && params[i]->value && !params[i]->grad) continue;
    db_tensor *g = params[i] ? db_grad_of(params[i]) : NULL;
    if (!g || db_poison(g))
      err = db_fail(-EINVAL, "clip_grad_value: parameter %u: %s", i, db_poison(g));
    else
      set_gradient(params[i], db_minimum(db_maximum(g, -limit), limit));
  }
  db_scope_end();
  return err;
}

int db_world_mean_grads(db_tensor *const *params, unsigned n) {
  if (n && !params) return db_fail(-EINVAL, "world_mean_grads: the array of %u parameters is NULL", n);
  int err = 0;
  db_scope_begin();
  for (unsigned i = 0; i < n && !err; i++) {
    if (params[i] && params[i]->value && !params[i]->grad) continue;
    db_tensor *g = params[i] ? db_world_all_reduce(DB_REDUCE_MEAN, db_grad_of(params[i])) : NULL;
    if (!g || db_poison(g))
      err = db_fail(-EINVAL, "world_mean_grads: parameter %u: %s", i, db_poison(g));
    else
      set_gradient(params[i], g);
  }
  db_scope_end();
  return err;
}
