/* Optimizers: parameters with their state, in groups with options of their own, and steps. A step assigns all new
 * values and realizes them together, so that the gradient's kernels can include the update. */
#include "optim.h"
#include "state.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static db_tensor *tensor_of_numbers(const double *v, db_dtype t, db_device *dev, db_list shape) {
  float f[2] = {(float)v[0], shape.n ? (float)v[1] : 0};
  return db_from_at(DB_HERE, t == DB_F64 ? (const void *)v : f, t, dev, shape);
}

db_tensor *optim_zeros(db_tensor *x, const int64_t *dim) {
  int axis;
  db_device *dev = db_device_of(x), *devices[DB_GROUP_MAX];
  unsigned n = db_sharding(x, &axis);
  db_tensor *zeros =
      db_full_at(DB_HERE, db_operand_int(0), optim_arithmetic(db_dtype_of(x)), dev, (db_list){db_rank(x), dim});
  if (axis == DB_REPLICATE || dim[axis] != db_dim(x, axis)) return zeros;
  for (unsigned i = 0; i < n; i++) devices[i] = db_group_device(dev, i);
  return db_shard(zeros, devices, n, axis);
}

void optim_replace_tensor(db_tensor **t, db_tensor *next) {
  db_retain(next);
  db_release(*t);
  *t = next;
}

/* ---- making and freeing ---- */

/* The index of the scalars for p in the last group, which are made if there are none. */
static unsigned scalars_for(db_optim *o, db_tensor *p) {
  unsigned group = o->ngroups - 1;
  const struct db_optim_options *opt = &o->groups[group];
  db_dtype t = optim_arithmetic(db_dtype_of(p));
  db_device *dev = db_device_of(p);
  for (unsigned i = 0; i < o->nscalars; i++)
    if (o->scalars[i].dev == dev && o->scalars[i].dtype == t && o->scalars[i].group == group) return i;
  double rest[] = {1 - opt->beta1, 1 - opt->beta2}, none[] = {0, 0};
  struct scalars *s = &o->scalars[o->nscalars];
  *s = (struct scalars){.dev = dev, .dtype = t, .group = group};
  optim_replace_tensor(&s->lr, tensor_of_numbers(&opt->lr, t, dev, (db_list){0}));
  if (o->kind->warms) {
    optim_replace_tensor(&s->warm, tensor_of_numbers(none, t, dev, DB_LIST(2)));
    optim_replace_tensor(&s->rest, tensor_of_numbers(rest, t, dev, DB_LIST(2)));
  }
  if (o->kind->counts) optim_replace_tensor(&s->step, tensor_of_numbers(none, t, dev, (db_list){0}));
  return o->nscalars++;
}

/* Drops the parameters from the first one on. */
static void drop_parameters(db_optim *o, unsigned first) {
  while (o->n > first) {
    struct parameter *p = &o->params[--o->n];
    db_release(p->tensor);
    for (unsigned k = 0; k < MAX_STATE; k++) db_release(p->state[k]);
  }
}

static void drop_scalars(db_optim *o, unsigned first) {
  while (o->nscalars > first) {
    struct scalars *s = &o->scalars[--o->nscalars];
    db_release(s->lr);
    db_release(s->warm);
    db_release(s->rest);
    db_release(s->step);
  }
}

void db_optim_free(db_optim *o) {
  if (!o) return;
  drop_parameters(o, 0);
  drop_scalars(o, 0);
  db_release(o->scale);
  db_release(o->good);
  free(o->groups);
  free(o->params);
  free(o->scalars);
  free(o);
}

static int check_options(const struct kind *k, const struct db_optim_options *o) {
  const double v[] = {o->beta1, o->beta2, o->lr,    o->momentum,    o->weight_decay,
                      o->eps,   o->trust, o->decay, o->least_scale, o->clip};
  static const char *const names[] = {"beta1", "beta2", "lr",    "momentum",    "weight_decay",
                                      "eps",   "trust", "decay", "least_scale", "clip"};
  for (unsigned i = 0; i < sizeof v / sizeof *v; i++)
    if (!(v[i] >= 0 && isfinite(v[i])) || (i < 2 && v[i] >= 1))
      return db_fail(-EINVAL, "%s: %s is %g", k->name, names[i], v[i]);
  if (k->counts && o->clip == 0) return db_fail(-EINVAL, "%s: clip is 0", k->name);
  return 0;
}

static int check_parameter(const db_optim *o, unsigned i, db_tensor *t) {
  t = t ? db_requires_grad(t) : NULL;
  if (db_poison(t)) return db_fail(-EINVAL, "%s: parameter %u: %s", o->kind->name, i, db_poison(t));
  for (unsigned k = 0; k < o->n; k++)
    if (o->params[k].tensor == t)
      return db_fail(-EINVAL, "%s: parameter %u is in another group of the optimizer already", o->kind->name, i);
  if (db_rank(t) < o->kind->least_rank)
    return db_fail(-EINVAL,
                   "%s: parameter %u has %u axes; %s takes matrices only, so use another optimizer for the others",
                   o->kind->name, i, db_rank(t), o->kind->name);
  return 0;
}

/* Makes the state of a parameter, which is in the last group. */
static int add_parameter(db_optim *o, db_tensor *t) {
  struct parameter *p = &o->params[o->n++];
  int err = 0;
  *p = (struct parameter){.tensor = db_retain(t), .scalars = scalars_for(o, t)};
  for (unsigned i = 0; i < MAX_STATE && !err; i++) {
    int64_t dim[MAX_RANK];
    memcpy(dim, t->dim, sizeof dim);
    if (!o->kind->has_state(&o->groups[o->ngroups - 1], i, t->rank, dim)) continue;
    optim_replace_tensor(&p->state[i], optim_zeros(t, dim));
    err = db_realize(p->state[i]); /* one at a time: equal values that are realized together share memory */
  }
  return err;
}

/* Makes room for a group and n parameters. */
static bool reserve(db_optim *o, unsigned n) {
  struct db_optim_options *groups = realloc(o->groups, (o->ngroups + 1) * sizeof *groups);
  if (groups) o->groups = groups;
  struct parameter *params = realloc(o->params, ((size_t)o->n + n + 1) * sizeof *params);
  if (params) o->params = params;
  struct scalars *scalars = realloc(o->scalars, ((size_t)o->nscalars + n + 1) * sizeof *scalars);
  if (scalars) o->scalars = scalars;
  return groups && params && scalars;
}

int db_optim_add_group_with(db_optim *o, db_tensor *const *params, unsigned n, struct db_optim_options options) {
  if (!o) return db_fail_argument("optim_add_group", "optimizer");
  if (n && !params) return db_fail(-EINVAL, "%s: the array of %u parameters is NULL", o->kind->name, n);
  int err = check_options(o->kind, &options);
  if (err) return err;
  if (!reserve(o, n)) return db_fail(-ENOMEM, "%s: out of memory for %u parameters", o->kind->name, n);
  unsigned had = o->n, scalars = o->nscalars;
  o->groups[o->ngroups++] = options;
  db_scope_begin();
  for (unsigned i = 0; i < n && !err; i++) err = check_parameter(o, i, params[i]);
  if (n && !err) err = db_realize_all(params, n);
  for (unsigned i = 0; i < n && !err; i++) err = add_parameter(o, params[i]);
  db_scope_end();
  if (!err) return (int)o->ngroups - 1;
  drop_parameters(o, had);
  drop_scalars(o, scalars);
  o->ngroups--;
  return err;
}

db_optim *db_optim_new(enum db_optim_kind kind, db_tensor *const *params, unsigned n, struct db_optim_options options) {
  const struct kind *k = optim_kind(kind);
  if (!k) return db_fail_null(-EINVAL, "optim: unknown kind %d", (int)kind);
  db_optim *o = calloc(1, sizeof *o);
  if (!o) return db_fail_null(-ENOMEM, "%s: out of memory", k->name);
  o->kind = k;
  if (db_optim_add_group_with(o, params, n, options) >= 0) return o;
  db_optim_free(o);
  return NULL;
}

struct db_optim_options db_optim_options(const db_optim *o, unsigned group) {
  return o && group < o->ngroups ? o->groups[group] : (struct db_optim_options){.lr = NAN};
}

/* ---- steps ---- */

struct step { /* the assignments of a step */
  db_tensor **target, **next;
  struct value **before; /* the values of the targets before the step */
  unsigned n, assigned;
  db_tensor *finite; /* whether all gradients are finite, or NULL if the step is taken in any case */
};

/* target becomes next, unless the step is skipped. */
static void plan_change(struct step *s, db_tensor *target, db_tensor *next) {
  next = db_cast(next, db_dtype_of(target));
  if (s->finite) next = db_where(db_to(s->finite, db_device_of(target)), next, db_detach(target));
  s->target[s->n] = target;
  s->next[s->n++] = next;
}

/* Doubles the factor of the loss after `interval` good steps in a row. Halves it when the step is skipped. */
static void plan_scale(const db_optim *o, struct step *s) {
  db_tensor *finite = s->finite, *good = db_add(db_detach(o->good), 1.0), *grows = db_ge(good, (double)o->interval);
  db_tensor *scale = db_detach(o->scale);
  db_tensor *up = db_where(grows, db_minimum(db_mul(scale, 2.0), 0x1p120), scale);
  db_tensor *down = db_maximum(db_mul(scale, 0.5), 0x1p-120);
  s->finite = NULL; /* these two change in any case */
  plan_change(s, o->scale, db_where(finite, up, down));
  plan_change(s, o->good, db_where(db_and(finite, db_logical_not(grows)), good, 0.0));
  s->finite = finite;
}

/* Computes the next scalars of a kind in now. */
static void plan_scalars(const db_optim *o, struct step *s, struct scalars *now) {
  for (unsigned i = 0; i < o->nscalars; i++) {
    now[i] = o->scalars[i];
    if (o->kind->warms) {
      now[i].warm = db_add(now[i].warm, db_mul(db_sub(1.0, now[i].warm), now[i].rest));
      plan_change(s, o->scalars[i].warm, now[i].warm);
    }
    if (o->kind->counts) plan_change(s, o->scalars[i].step, now[i].step = db_add(now[i].step, 1.0));
  }
}

/* Computes the step's assignments. */
static int plan_step(const db_optim *o, struct step *s) {
  const struct kind *k = o->kind;
  struct scalars *now = calloc((size_t)o->nscalars + 1, sizeof *now);
  bool any = false;
  if (!now) return db_fail(-ENOMEM, "%s: out of memory", k->name);
  for (unsigned i = 0; i < o->n; i++) any |= o->params[i].tensor->grad != NULL;
  if (o->scale && any) {
    s->finite = gradients_finite(o);
    plan_scale(o, s);
  }
  plan_scalars(o, s, now);
  for (unsigned i = 0; i < o->n; i++) {
    const struct parameter *p = &o->params[i];
    const struct scalars *scalars = &now[p->scalars];
    struct update u = {0};
    if (!p->tensor->grad) continue;
    k->update(&o->groups[scalars->group], scalars, db_cast(db_detach(p->tensor), scalars->dtype),
              db_cast(db_grad_of(p->tensor), scalars->dtype), p->state, &u);
    plan_change(s, p->tensor, u.next);
    for (unsigned j = 0; j < MAX_STATE; j++)
      if (u.state[j]) plan_change(s, p->state[j], u.state[j]);
  }
  free(now);
  for (unsigned i = 0; i < s->n; i++)
    if (db_poison(s->next[i])) return db_fail(-EINVAL, "%s: %s", k->name, db_poison(s->next[i]));
  return any ? 0 : db_fail(-EINVAL, "%s: no parameter has a gradient; call db_backward first", k->name);
}

static void assign_all(struct step *s) {
  for (; s->assigned < s->n; s->assigned++) {
    unsigned i = s->assigned;
    s->before[i] = s->target[i]->value;
    value_retain(s->before[i]);
    db_assign(s->target[i], s->next[i]);
  }
}

/* Drops the old values of the targets, or restores them after an error. */
static void finish_step(struct step *s, bool failed) {
  pthread_mutex_lock(&rt.lock);
  for (unsigned i = 0; i < s->assigned; i++) {
    db_tensor *t = s->target[i];
    struct value *drop = s->before[i];
    if (failed && t->value) {
      drop = t->value;
      t->value = s->before[i];
      if (drop->leaf == t) drop->leaf = NULL, t->value->leaf = t;
    }
    value_release(drop);
  }
  pthread_mutex_unlock(&rt.lock);
}

int db_optim_step_with(db_optim *o, db_tensor *const *also, unsigned n) {
  if (!o || (n && !also)) return db_fail_argument("optim_step", o ? "array of tensors" : "optimizer");
  size_t most = (1 + MAX_STATE) * (size_t)o->n + 2 * (size_t)o->nscalars + 3;
  struct step s = {.target = calloc(most, sizeof(db_tensor *)),
                   .next = calloc(most, sizeof(db_tensor *)),
                   .before = calloc(most, sizeof(struct value *))};
  db_tensor **roots = calloc(most + n, sizeof *roots);
  int err = 0;
  db_scope_begin();
  if (!s.target || !s.next || !s.before || !roots) err = db_fail(-ENOMEM, "%s: out of memory", o->kind->name);
  for (unsigned i = 0; i < n && !err; i++)
    if (db_poison(roots[i] = also[i])) err = db_fail(-EINVAL, "%s", db_poison(also[i]));
  if (!err && !(err = plan_step(o, &s))) {
    assign_all(&s);
    for (unsigned i = 0; i < s.n; i++) roots[n + i] = s.target[i];
    err = db_realize_all(roots, n + s.n);
  }
  finish_step(&s, err != 0);
  db_scope_end();
  free(s.target);
  free(s.next);
  free(s.before);
  free(roots);
  return err;
}

void db_optim_zero_grad(db_optim *o) {
  for (unsigned i = 0; o && i < o->n; i++) db_zero_grad(o->params[i].tensor);
}

double db_optim_lr(const db_optim *o) { return db_optim_options(o, 0).lr; }

int db_optim_set_lr(db_optim *o, double lr) { return db_optim_set_group_lr(o, 0, lr); }

int db_optim_set_group_lr(db_optim *o, unsigned group, double lr) {
  int err = 0;
  if (!o) return db_fail_argument("optim_set_lr", "optimizer");
  if (group >= o->ngroups)
    return db_fail(-EINVAL, "%s: there is no group %u; the optimizer has %u", o->kind->name, group, o->ngroups);
  if (!(lr >= 0 && isfinite(lr))) return db_fail(-EINVAL, "%s: lr is %g", o->kind->name, lr);
  o->groups[group].lr = lr;
  db_scope_begin();
  for (unsigned i = 0; i < o->nscalars && !err; i++) {
    if (o->scalars[i].group != group) continue;
    db_assign(o->scalars[i].lr, tensor_of_numbers(&lr, o->scalars[i].dtype, o->scalars[i].dev, (db_list){0}));
    err = db_realize(o->scalars[i].lr);
  }
  db_scope_end();
  return err;
}

/* ---- checkpoints ---- */

db_tensor *optim_state(const db_optim *o, unsigned i, char *name, size_t cap) {
  static const char *const scalars[] = {"warm", "step"};
  if (!o) return NULL;
  for (unsigned p = 0; p < o->n; p++)
    for (unsigned k = 0; k < MAX_STATE; k++) {
      if (!o->params[p].state[k] || i--) continue;
      snprintf(name, cap, "state.%u.%u", p, k);
      return o->params[p].state[k];
    }
  for (unsigned s = 0; s < 2 * o->nscalars; s++) {
    db_tensor *t = s % 2 ? o->scalars[s / 2].step : o->scalars[s / 2].warm;
    if (!t || i--) continue;
    snprintf(name, cap, "%s.%u", scalars[s % 2], s / 2);
    return t;
  }
  if (!o->scale || i > 1) return NULL;
  snprintf(name, cap, i ? "good_steps" : "loss_scale");
  return i ? o->good : o->scale;
}
