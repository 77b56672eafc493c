/* Exponential moving averages of parameters. */
#include "optim.h"
#include "state.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct db_ema {
  db_tensor **param, **mean, **kept; /* kept: the parameters' own values while they have those of the averages */
  unsigned n;
  double decay;
  bool used;
};

/* A copy in memory of its own, in the type in which t is updated. */
static db_tensor *copy_of(db_tensor *t) {
  db_tensor *zeros = optim_zeros(t, t->dim), *copy = NULL;
  if (!db_realize(zeros)) optim_replace_tensor(&copy, db_assign(zeros, db_cast(db_detach(t), db_dtype_of(zeros))));
  if (copy && db_realize(copy)) db_release(copy), copy = NULL;
  return copy;
}

db_ema *db_ema_new(db_tensor *const *params, unsigned n, double decay) {
  if (n && !params) return db_fail_null(-EINVAL, "ema: the array of %u parameters is NULL", n);
  if (!(decay >= 0 && decay <= 1)) return db_fail_null(-EINVAL, "ema: the decay is %g; it must be from 0 to 1", decay);
  for (unsigned i = 0; i < n; i++)
    if (db_poison(params[i]) || !dtype_is_float(params[i]->dtype))
      return db_fail_null(-EINVAL, "ema: parameter %u: %s", i,
                          db_poison(params[i]) ? db_poison(params[i]) : "it must be a float");
  db_ema *e = calloc(1, sizeof *e);
  db_tensor **all = calloc(3 * (size_t)n + 1, sizeof(db_tensor *));
  if (!e || !all) {
    free(e), free(all);
    return db_fail_null(-ENOMEM, "ema: out of memory for %u parameters", n);
  }
  *e = (db_ema){all, all + n, all + 2 * n, 0, decay, false};
  bool good = true;
  for (unsigned i = 0; i < n && good; i++) {
    DB_SCOPED;
    e->param[e->n++] = db_retain(params[i]);
    good = (e->mean[i] = copy_of(params[i])) != NULL;
  }
  if (good) return e;
  db_ema_free(e);
  return NULL;
}

void db_ema_free(db_ema *e) {
  if (!e) return;
  for (unsigned i = 0; i < e->n; i++) db_release(e->param[i]), db_release(e->mean[i]), db_release(e->kept[i]);
  free(e->param);
  free(e);
}

int db_ema_update(db_ema *e) {
  if (!e) return db_fail_argument("ema_update", "db_ema");
  if (e->used) return db_fail(-EINVAL, "ema_update: the parameters have the values of their averages");
  DB_SCOPED;
  for (unsigned i = 0; i < e->n; i++) {
    db_tensor *now = db_cast(db_detach(e->param[i]), db_dtype_of(e->mean[i]));
    db_tensor *next = db_add(db_mul(db_detach(e->mean[i]), e->decay), db_mul(now, 1 - e->decay));
    if (db_poison(next)) return db_fail(-EINVAL, "ema_update: %s", db_poison(next));
    db_assign(e->mean[i], next);
  }
  return db_realize_all(e->mean, e->n);
}

int db_ema_use(db_ema *e, bool use) {
  if (!e) return db_fail_argument("ema_use", "db_ema");
  int err = 0;
  for (unsigned i = 0; i < e->n && !err; i++) {
    DB_SCOPED;
    if (use == (e->kept[i] != NULL)) continue;
    if (use && !(e->kept[i] = copy_of(e->param[i]))) {
      err = -EINVAL;
      break;
    }
    db_assign(e->param[i], db_cast(use ? e->mean[i] : e->kept[i], db_dtype_of(e->param[i])));
    err = db_realize(e->param[i]);
    if (!use && !err) db_release(e->kept[i]), e->kept[i] = NULL;
  }
  e->used = use || err; /* after an error, db_ema_use(e, false) restores what was kept */
  return err;
}

db_tensor *ema_state(const db_ema *e, unsigned i, char *name, size_t cap) {
  if (!e || i >= e->n) return NULL;
  snprintf(name, cap, "ema.%u", i);
  return e->mean[i];
}
