/* Optimizers: each kind is a function from a parameter, its gradient and its state to their next values, written with
 * tensor operations. A step assigns all of them and realizes them together, so that the gradient's kernels can include
 * the update. Learning rates are functions of the step. */
#include "../nn.h"
#include "../tensor/call.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { MAX_STATE = 2, ITERATIONS = 5 };

/* Scalars in memory, so that changing them does not change a step's kernels. One set per device and type of
 * arithmetic. */
struct scalars {
  db_device *dev;
  db_dtype dtype;
  db_tensor *lr;
  db_tensor *warm,
      *rest; /* warm: Adam's 1 - beta^t for both betas, updated by a recurrence that loses no digits; rest: 1 - beta */
};
struct parameter {
  db_tensor *tensor, *state[MAX_STATE];
  struct scalars *scalars;
};
struct update {
  db_tensor *next, *state[MAX_STATE];
};
struct db_optim {
  enum db_optim_kind kind;
  struct db_optim_options opt;
  struct parameter *params;
  struct scalars *scalars;
  unsigned n, nscalars;
};

/* ---- the kinds ---- */

static db_tensor *norm(db_tensor *x) { return db_sqrt(db_sum(db_square(x))); }

/* Updates the momentum buffer and returns the direction. All tensors have the type of the arithmetic; the buffer starts
 * at 0. */
static db_tensor *momentum(const struct db_optim *o, db_tensor *g, db_tensor *buffer, struct update *u) {
  if (o->opt.momentum == 0) return g;
  u->state[0] = db_add(db_mul(buffer, o->opt.momentum), g);
  return o->opt.nesterov ? db_add(g, db_mul(u->state[0], o->opt.momentum)) : u->state[0];
}

static void sgd(const struct db_optim *o, const struct scalars *s, db_tensor *p, db_tensor *g, db_tensor *const *state,
                struct update *u) {
  if (o->opt.weight_decay != 0) g = db_add(g, db_mul(p, o->opt.weight_decay));
  u->next = db_sub(p, db_mul(momentum(o, g, state[0], u), s->lr));
}

/* Adam's direction: the mean of gradients divided by the root of the mean of their squares, both corrected for starting
 * at 0. */
static db_tensor *adam_direction(const struct db_optim *o, const struct scalars *s, db_tensor *g,
                                 db_tensor *const *state, struct update *u) {
  double b1 = o->opt.beta1, b2 = o->opt.beta2;
  db_tensor *m = u->state[0] = db_add(db_mul(state[0], b1), db_mul(g, 1 - b1));
  db_tensor *v = u->state[1] = db_add(db_mul(state[1], b2), db_mul(db_square(g), 1 - b2));
  db_tensor *first = db_reshape(db_shrink(s->warm, 0, 1)), *second = db_reshape(db_shrink(s->warm, 1, 2));
  return db_div(db_div(m, first), db_add(db_sqrt(db_div(v, second)), o->opt.eps));
}

static void adam(const struct db_optim *o, const struct scalars *s, db_tensor *p, db_tensor *g, db_tensor *const *state,
                 struct update *u) {
  if (o->opt.weight_decay != 0) g = db_add(g, db_mul(p, o->opt.weight_decay));
  u->next = db_sub(p, db_mul(adam_direction(o, s, g, state, u), s->lr));
}

static void adamw(const struct db_optim *o, const struct scalars *s, db_tensor *p, db_tensor *g,
                  db_tensor *const *state, struct update *u) {
  db_tensor *d = adam_direction(o, s, g, state, u);
  if (o->opt.weight_decay != 0) d = db_add(d, db_mul(p, o->opt.weight_decay));
  u->next = db_sub(p, db_mul(d, s->lr));
}

/* a / b where both are positive, else 1. */
static db_tensor *positive_ratio(db_tensor *a, db_tensor *b) {
  db_tensor *both = db_and(db_gt(a, 0.0), db_gt(b, 0.0));
  return db_where(both, db_div(a, db_where(both, b, 1.0)), 1.0);
}

static void lamb(const struct db_optim *o, const struct scalars *s, db_tensor *p, db_tensor *g, db_tensor *const *state,
                 struct update *u) {
  db_tensor *d = adam_direction(o, s, g, state, u);
  if (o->opt.weight_decay != 0) d = db_add(d, db_mul(p, o->opt.weight_decay));
  u->next = db_sub(p, db_mul(d, db_mul(positive_ratio(norm(p), norm(d)), s->lr)));
}

static void lars(const struct db_optim *o, const struct scalars *s, db_tensor *p, db_tensor *g, db_tensor *const *state,
                 struct update *u) {
  db_tensor *size = norm(p), *slope = norm(g), *both = db_and(db_gt(size, 0.0), db_gt(slope, 0.0));
  db_tensor *against = db_add(slope, db_mul(size, o->opt.weight_decay));
  db_tensor *local = db_where(both, db_div(db_mul(size, o->opt.trust), db_where(both, against, 1.0)), 1.0);
  if (o->opt.weight_decay != 0) g = db_add(g, db_mul(p, o->opt.weight_decay));
  u->next = db_sub(p, momentum(o, db_mul(g, db_mul(local, s->lr)), state[0], u));
}

/* An approximation of the nearest orthogonal matrix: Newton-Schulz iterations with a polynomial that moves singular
 * values in (0, 1] near 1. */
static db_tensor *orthogonal(db_tensor *x) {
  bool tall = db_dim(x, 0) > db_dim(x, 1);
  if (tall) x = db_transpose(x, 0, 1);
  x = db_div(x, db_add(norm(x), 1e-7));
  for (unsigned i = 0; i < ITERATIONS; i++) {
    db_tensor *a = db_matmul(x, db_transpose(x, 0, 1));
    db_tensor *b = db_add(db_mul(a, -4.7750), db_mul(db_matmul(a, a), 2.0315));
    x = db_add(db_mul(x, 3.4445), db_matmul(b, x));
  }
  return tall ? db_transpose(x, 0, 1) : x;
}

static void muon(const struct db_optim *o, const struct scalars *s, db_tensor *p, db_tensor *g, db_tensor *const *state,
                 struct update *u) {
  db_tensor *d = orthogonal(db_reshape(momentum(o, g, state[0], u), db_dim(g, 0), -1));
  double rows = (double)db_dim(d, 0), columns = (double)db_dim(d, 1);
  int64_t dim[MAX_RANK];
  for (unsigned i = 0; i < db_rank(p); i++) dim[i] = db_dim(p, (int)i);
  d = db_reshape_at(DB_HERE, db_mul(d, sqrt(fmax(1, rows / columns))), (db_list){db_rank(p), dim});
  if (o->opt.weight_decay != 0) d = db_add(d, db_mul(p, o->opt.weight_decay));
  u->next = db_sub(p, db_mul(d, s->lr));
}

static const struct kind {
  const char *name;
  void (*update)(const struct db_optim *o, const struct scalars *s, db_tensor *p, db_tensor *g, db_tensor *const *state,
                 struct update *u);
  unsigned states;
  bool warms; /* uses scalars.warm */
  struct db_optim_options defaults;
} kinds[] = {
    [DB_OPTIM_SGD - DB_OPTIM_SGD] = {"sgd", sgd, 1, false, {.lr = 0.01}},
    [DB_OPTIM_ADAM - DB_OPTIM_SGD] = {"adam", adam, 2, true, {.lr = 0.001, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
    [DB_OPTIM_ADAMW -
        DB_OPTIM_SGD] = {"adamw", adamw, 2, true, {.lr = 0.001, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
    [DB_OPTIM_LAMB - DB_OPTIM_SGD] = {"lamb", lamb, 2, true, {.lr = 0.001, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6}},
    [DB_OPTIM_LARS - DB_OPTIM_SGD] = {"lars", lars, 1, false, {.lr = 0.01, .momentum = 0.9, .trust = 0.001}},
    [DB_OPTIM_MUON - DB_OPTIM_SGD] = {"muon", muon, 1, false, {.lr = 0.02, .momentum = 0.95, .nesterov = true}},
};

/* ---- making and freeing ---- */

static db_dtype arithmetic(db_dtype t) { return t == DB_F64 ? DB_F64 : DB_F32; }

static db_tensor *tensor_of_numbers(const double *v, db_dtype t, db_device *dev, db_list shape) {
  float f[2] = {(float)v[0], shape.n ? (float)v[1] : 0};
  return db_from_at(DB_HERE, t == DB_F64 ? (const void *)v : f, t, dev, shape);
}

static db_tensor *zeros_like(db_tensor *x) {
  int64_t dim[MAX_RANK];
  for (unsigned i = 0; i < db_rank(x); i++) dim[i] = db_dim(x, (int)i);
  int axis;
  db_device *dev = db_device_of(x), *devices[DB_GROUP_MAX];
  unsigned n = db_sharding(x, &axis);
  db_tensor *zeros =
      db_full_at(DB_HERE, db_operand_int(0), arithmetic(db_dtype_of(x)), dev, (db_list){db_rank(x), dim});
  if (axis == DB_REPLICATE) return zeros;
  for (unsigned i = 0; i < n; i++) devices[i] = db_group_device(dev, i);
  return db_shard(zeros, devices, n, axis);
}

/* Replaces the reference in *t by one on next. */
static void replace_tensor(db_tensor **t, db_tensor *next) {
  db_retain(next);
  db_release(*t);
  *t = next;
}

static struct scalars *scalars_for(db_optim *o, db_tensor *p) {
  db_dtype t = arithmetic(db_dtype_of(p));
  db_device *dev = db_device_of(p);
  struct scalars *s = o->scalars;
  for (; s < o->scalars + o->nscalars; s++)
    if (s->dev == dev && s->dtype == t) return s;
  double rest[] = {1 - o->opt.beta1, 1 - o->opt.beta2}, none[] = {0, 0};
  *s = (struct scalars){.dev = dev, .dtype = t};
  o->nscalars++;
  replace_tensor(&s->lr, tensor_of_numbers(&o->opt.lr, t, dev, (db_list){0}));
  replace_tensor(&s->warm, tensor_of_numbers(none, t, dev, DB_LIST(2)));
  replace_tensor(&s->rest, tensor_of_numbers(rest, t, dev, DB_LIST(2)));
  return s;
}

void db_optim_free(db_optim *o) {
  if (!o) return;
  for (unsigned i = 0; i < o->n; i++) {
    db_release(o->params[i].tensor);
    for (unsigned k = 0; k < MAX_STATE; k++) db_release(o->params[i].state[k]);
  }
  for (unsigned i = 0; i < o->nscalars; i++) {
    db_release(o->scalars[i].lr);
    db_release(o->scalars[i].warm);
    db_release(o->scalars[i].rest);
  }
  free(o->params);
  free(o->scalars);
  free(o);
}

static int check_options(const struct kind *k, const struct db_optim_options *o) {
  const double v[] = {o->lr, o->momentum, o->weight_decay, o->beta1, o->beta2, o->eps, o->trust};
  static const char *const names[] = {"lr", "momentum", "weight_decay", "beta1", "beta2", "eps", "trust"};
  for (unsigned i = 0; i < sizeof v / sizeof *v; i++)
    if (!(v[i] >= 0 && isfinite(v[i])) || ((i == 3 || i == 4) && v[i] >= 1))
      return db_fail(-EINVAL, "%s: %s is %g", k->name, names[i], v[i]);
  return 0;
}

struct db_optim_options db_optim_defaults(enum db_optim_kind kind) {
  bool known = (unsigned)kind - DB_OPTIM_SGD < sizeof kinds / sizeof *kinds;
  return known ? kinds[kind - DB_OPTIM_SGD].defaults : (struct db_optim_options){0};
}

db_optim *db_optim_new(enum db_optim_kind kind, db_tensor *const *params, unsigned n, struct db_optim_options options) {
  if ((unsigned)kind - DB_OPTIM_SGD >= sizeof kinds / sizeof *kinds)
    return db_fail(-EINVAL, "optim: unknown kind %d", (int)kind), NULL;
  const struct kind *k = &kinds[kind - DB_OPTIM_SGD];
  if (n && !params) return db_fail_null(-EINVAL, "%s: the array of %u parameters is NULL", k->name, n);
  if (check_options(k, &options)) return NULL;
  db_optim *o = calloc(1, sizeof *o);
  if (o) *o = (db_optim){.kind = kind, .opt = options};
  if (o) o->params = calloc((size_t)n + 1, sizeof *o->params);
  if (o) o->scalars = calloc((size_t)n + 1, sizeof *o->scalars);
  db_scope_begin();
  if (!o || !o->params || !o->scalars) {
    db_fail(-ENOMEM, "%s: out of memory for %u parameters", k->name, n);
    goto fail;
  }
  for (unsigned i = 0; i < n; i++) {
    db_tensor *t = params[i] ? db_requires_grad(params[i]) : NULL;
    if (db_poison(t)) {
      db_fail(-EINVAL, "%s: parameter %u: %s", k->name, i, db_poison(t));
      goto fail;
    }
    if (kind == DB_OPTIM_MUON && db_rank(t) < 2) {
      db_fail(-EINVAL,
              "muon: parameter %u has %u axes; muon takes matrices only, so use another optimizer for the others", i,
              db_rank(t));
      goto fail;
    }
  }
  if (n && db_realize_all(params, n)) goto fail;
  for (unsigned i = 0; i < n; i++) {
    struct parameter *p = &o->params[o->n++];
    p->tensor = db_retain(params[i]);
    p->scalars = scalars_for(o, p->tensor);
    for (unsigned s = 0; s < k->states;
         s++) { /* one at a time, because equal values that are realized together share memory */
      replace_tensor(&p->state[s], zeros_like(p->tensor));
      if (db_realize(p->state[s])) goto fail;
    }
  }
  db_scope_end();
  return o;
fail:
  db_scope_end();
  db_optim_free(o);
  return NULL;
}

/* ---- steps ---- */

struct step { /* the assignments of a step */
  db_tensor **target, **next;
  struct value **before; /* the values of the targets before the step */
  unsigned n, assigned;
};

static void plan_change(struct step *s, db_tensor *target, db_tensor *next) {
  s->target[s->n] = target;
  s->next[s->n++] = db_cast(next, db_dtype_of(target));
}

/* Computes the step's assignments. */
static int plan_step(const struct db_optim *o, struct step *s) {
  const struct kind *k = &kinds[o->kind - DB_OPTIM_SGD];
  struct scalars *now = calloc((size_t)o->nscalars + 1, sizeof *now);
  bool any = false;
  if (!now) return db_fail(-ENOMEM, "%s: out of memory", k->name);
  for (unsigned i = 0; i < o->nscalars; i++) {
    now[i] = o->scalars[i];
    if (!k->warms) continue;
    now[i].warm = db_add(now[i].warm, db_mul(db_sub(1.0, now[i].warm), now[i].rest));
    plan_change(s, o->scalars[i].warm, now[i].warm);
  }
  for (unsigned i = 0; i < o->n; i++) {
    const struct parameter *p = &o->params[i];
    struct update u = {0};
    if (!p->tensor->grad) continue;
    db_dtype t = p->scalars->dtype;
    k->update(o, &now[p->scalars - o->scalars], db_cast(db_detach(p->tensor), t), db_cast(db_grad_of(p->tensor), t),
              p->state, &u);
    plan_change(s, p->tensor, u.next);
    for (unsigned j = 0; j < MAX_STATE; j++)
      if (u.state[j]) plan_change(s, p->state[j], u.state[j]);
    any = true;
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
  size_t most = (1 + MAX_STATE) * (size_t)o->n + o->nscalars + 1;
  struct step s = {.target = calloc(most, sizeof(db_tensor *)),
                   .next = calloc(most, sizeof(db_tensor *)),
                   .before = calloc(most, sizeof(struct value *))};
  db_tensor **roots = calloc(most + n, sizeof *roots);
  int err = 0;
  db_scope_begin();
  if (!s.target || !s.next || !s.before || !roots)
    err = db_fail(-ENOMEM, "%s: out of memory", kinds[o->kind - DB_OPTIM_SGD].name);
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

double db_optim_lr(const db_optim *o) { return o ? o->opt.lr : NAN; }

int db_optim_set_lr(db_optim *o, double lr) {
  int err = 0;
  if (!o) return db_fail_argument("optim_set_lr", "optimizer");
  if (!(lr >= 0 && isfinite(lr))) return db_fail(-EINVAL, "%s: lr is %g", kinds[o->kind - DB_OPTIM_SGD].name, lr);
  o->opt.lr = lr;
  db_scope_begin();
  for (unsigned i = 0; i < o->nscalars && !err; i++) {
    db_tensor *t = tensor_of_numbers(&lr, o->scalars[i].dtype, o->scalars[i].dev, (db_list){0});
    db_assign(o->scalars[i].lr, t);
    err = db_realize(o->scalars[i].lr);
  }
  db_scope_end();
  return err;
}

/* ---- clipping ---- */

/* Replaces the gradient collected for t by g. */
static void set_gradient(db_tensor *t, db_tensor *g) {
  pthread_mutex_lock(&rt.lock);
  value_retain(g->value);
  value_release(t->grad);
  t->grad = g->value;
  pthread_mutex_unlock(&rt.lock);
}

enum { TERMS = 32 }; /* number of partial sums that one kernel adds */

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
    if (total) sum = db_add(total, db_to(sum, db_device_of(total)));
    total = ++terms % TERMS ? sum : db_contiguous(sum);
  }
  if (!total && !bad) bad = n ? db_grad_of_at(file, line, params[0]) : db_zeros(DB_F32, NULL);
  if (!bad) {
    total = db_sqrt(total);
    db_tensor *scale = db_minimum(db_div(max_norm, db_add(total, 1e-6)), 1.0);
    for (unsigned i = 0; i < n; i++) {
      if (!params[i] || !params[i]->grad) continue;
      db_tensor *g = db_grad_of(params[i]);
      db_tensor *to = db_to(scale, db_device_of(g));
      set_gradient(params[i], db_cast(db_mul(db_cast(g, arithmetic(db_dtype_of(g))), to), db_dtype_of(g)));
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

/* ---- learning rates ---- */

double db_lr_constant(double lr, double factor, int64_t steps, int64_t step) { return step < steps ? lr * factor : lr; }

double db_lr_step(double lr, double gamma, int64_t every, int64_t step) {
  int64_t times = every > 0 ? step / every : 0;
  return lr * pow(gamma, (double)times);
}

double db_lr_multistep(double lr, double gamma, db_list milestones, int64_t step) {
  for (unsigned i = 0; i < milestones.n && milestones.v; i++)
    if (step >= milestones.v[i]) lr *= gamma;
  return lr;
}

double db_lr_exponential(double lr, double gamma, int64_t step) { return lr * pow(gamma, (double)step); }

/* The value at the fraction `at` of half a cosine wave from a to b. */
static double half_wave(double a, double b, double at) { return b + (a - b) * (1 + cos(M_PI * at)) / 2; }

double db_lr_cosine(double lr, double least, int64_t steps, int64_t step) {
  return steps > 0 ? half_wave(lr, least, (double)step / (double)steps) : lr;
}

double db_lr_linear(double lr, double from, int64_t steps, int64_t step) {
  return step < steps ? lr * (from + (1 - from) * (double)step / (double)steps) : lr;
}

double db_lr_one_cycle(double most, double rise, int64_t steps, int64_t step) {
  double top = rise * (double)steps - 1, last = (double)steps - 1, at = (double)step;
  if (at >= last) return most / 250000;
  return at < top ? half_wave(most / 25, most, at / top) : half_wave(most, most / 250000, (at - top) / (last - top));
}

double db_lr_plateau(struct db_lr_plateau *p, double metric) {
  if (!p) return NAN;
  bool better = !p->begun || metric < p->best * (1 - p->threshold);
  p->begun = true;
  if (better) p->best = metric;
  p->bad = better ? 0 : p->bad + 1;
  if (p->cooling) {
    p->cooling--;
    p->bad = 0;
  }
  if (p->bad > p->patience) {
    p->lr = fmax(p->lr * p->factor, p->least);
    p->cooling = p->cooldown;
    p->bad = 0;
  }
  return p->lr;
}
