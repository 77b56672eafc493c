/* Optimizers: each kind is a function from a parameter, its gradient and its state to the next ones, written with tensor operations.
 *
 * Kinds that go element by element keep parameters of one type on one device in one piece of memory: gradients are computed into their places in
 * another, and one kernel steps them all. The others, and what has no company, step one by one. */
#include "nn.h"
#include "internal.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { MAX_STATE = 2, ITERATIONS = 5 };

/* In memory, so that a step's kernels are the same whatever they are; one set for each device and type of arithmetic. */
struct scalars {
  db_device *dev;
  db_dtype dtype;
  db_tensor *lr;
  db_tensor *warm,
      *rest; /* Adam's 1 - beta^t, for both betas, and 1 - beta: told by recurrence, which loses no digits */
};
struct parameter {
  db_tensor *tensor, *state[MAX_STATE]; /* no state while it is in a group */
  struct scalars *scalars;
  struct group *group;
  int64_t begin; /* its first element there */
};
struct group {
  struct scalars *scalars;
  db_dtype dtype;
  int64_t size;
  db_tensor *p, *g, *state[MAX_STATE]; /* [size] */
};
struct update {
  db_tensor *next, *state[MAX_STATE];
};
struct db_optim {
  enum db_optim_kind kind;
  struct db_optim_options opt;
  struct parameter *params;
  struct scalars *scalars;
  struct group *groups;
  unsigned n, nscalars, ngroups;
  bool grouped; /* groups are made by the first step */
};

/* ---- the kinds ---- */

static db_tensor *norm(db_tensor *x) { return db_sqrt(db_sum(db_square(x))); }

/* p, g and the state in the type of the arithmetic; the state starts at 0. */
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

/* Adam's direction: the mean over the root of the mean of squares, each corrected for having started at 0. */
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

/* a / b where both are above 0, else 1. */
static db_tensor *ratio(db_tensor *a, db_tensor *b) {
  db_tensor *both = db_and(db_gt(a, 0.0), db_gt(b, 0.0));
  return db_where(both, db_div(a, db_where(both, b, 1.0)), 1.0);
}

static void lamb(const struct db_optim *o, const struct scalars *s, db_tensor *p, db_tensor *g, db_tensor *const *state,
                 struct update *u) {
  db_tensor *d = adam_direction(o, s, g, state, u);
  if (o->opt.weight_decay != 0) d = db_add(d, db_mul(p, o->opt.weight_decay));
  u->next = db_sub(p, db_mul(d, db_mul(ratio(norm(p), norm(d)), s->lr)));
}

static void lars(const struct db_optim *o, const struct scalars *s, db_tensor *p, db_tensor *g, db_tensor *const *state,
                 struct update *u) {
  db_tensor *size = norm(p), *slope = norm(g), *both = db_and(db_gt(size, 0.0), db_gt(slope, 0.0));
  db_tensor *against = db_add(slope, db_mul(size, o->opt.weight_decay));
  db_tensor *local = db_where(both, db_div(db_mul(size, o->opt.trust), db_where(both, against, 1.0)), 1.0);
  if (o->opt.weight_decay != 0) g = db_add(g, db_mul(p, o->opt.weight_decay));
  u->next = db_sub(p, momentum(o, db_mul(g, db_mul(local, s->lr)), state[0], u));
}

/* The nearest orthogonal matrix, about, by Newton-Schulz iterations whose polynomial takes singular values in (0, 1] near 1. */
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
  bool warms;       /* uses scalars.warm */
  bool elementwise; /* what becomes of an element depends on nothing else */
  struct db_optim_options defaults;
} kinds[] = {
    [DB_SGD] = {"sgd", sgd, 1, false, true, {.lr = 0.01}},
    [DB_ADAM] = {"adam", adam, 2, true, true, {.lr = 0.001, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
    [DB_ADAMW] = {"adamw", adamw, 2, true, true, {.lr = 0.001, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
    [DB_LAMB] = {"lamb", lamb, 2, true, false, {.lr = 0.001, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6}},
    [DB_LARS] = {"lars", lars, 1, false, false, {.lr = 0.01, .momentum = 0.9, .trust = 0.001}},
    [DB_MUON] = {"muon", muon, 1, false, false, {.lr = 0.02, .momentum = 0.95, .nesterov = true}},
};

/* ---- life ---- */

static db_dtype arithmetic(db_dtype t) { return t == DB_F64 ? DB_F64 : DB_F32; }

static db_tensor *numbers(const double *v, db_dtype t, db_device *dev, db_list shape) {
  float f[2] = {(float)v[0], shape.n ? (float)v[1] : 0};
  return db_from_at(DB_HERE, t == DB_F64 ? (const void *)v : f, t, dev, shape);
}

static db_tensor *zeros_like(db_tensor *x) {
  int64_t dim[MAX_RANK];
  for (unsigned i = 0; i < db_rank(x); i++) dim[i] = db_dim(x, (int)i);
  return db_full_at(DB_HERE, db_operand_int(0), arithmetic(db_dtype_of(x)), db_device_of(x),
                    (db_list){db_rank(x), dim});
}

/* t becomes a reference on next, in place of *t's. */
static void replace(db_tensor **t, db_tensor *next) {
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
  replace(&s->lr, numbers(&o->opt.lr, t, dev, (db_list){0}));
  replace(&s->warm, numbers(none, t, dev, DB_LIST(2)));
  replace(&s->rest, numbers(rest, t, dev, DB_LIST(2)));
  return s;
}

static void group_free(struct group *g) {
  db_release(g->p);
  db_release(g->g);
  for (unsigned k = 0; k < MAX_STATE; k++) db_release(g->state[k]);
  *g = (struct group){0};
}

void db_optim_free(db_optim *o) {
  if (!o) return;
  for (unsigned i = 0; i < o->ngroups; i++) group_free(&o->groups[i]);
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
  free(o->groups);
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

static void set_default(double *v, double to) {
  if (*v == 0) *v = to;
}

db_optim *db_optim_new(enum db_optim_kind kind, db_tensor *const *params, unsigned n, struct db_optim_options options) {
  if ((unsigned)kind >= sizeof kinds / sizeof *kinds)
    return db_fail(-EINVAL, "optim: there is no kind %d", (int)kind), NULL;
  const struct kind *k = &kinds[kind];
  if (check_options(k, &options)) return NULL;
  set_default(&options.lr, k->defaults.lr);
  set_default(&options.momentum, k->defaults.momentum);
  set_default(&options.beta1, k->defaults.beta1);
  set_default(&options.beta2, k->defaults.beta2);
  set_default(&options.eps, k->defaults.eps);
  set_default(&options.trust, k->defaults.trust);
  options.nesterov |= k->defaults.nesterov;
  db_optim *o = calloc(1, sizeof *o);
  if (o) *o = (db_optim){.kind = kind, .opt = options};
  if (o) o->params = calloc((size_t)n + 1, sizeof *o->params);
  if (o) o->scalars = calloc((size_t)n + 1, sizeof *o->scalars);
  if (o) o->groups = calloc((size_t)n + 1, sizeof *o->groups);
  db_scope_begin();
  if (!o || !o->params || !o->scalars || !o->groups) {
    db_fail(-ENOMEM, "%s: out of memory for %u parameters", k->name, n);
    goto fail;
  }
  for (unsigned i = 0; i < n; i++) {
    db_tensor *t = params[i] ? db_requires_grad(params[i]) : NULL;
    if (db_poison(t)) {
      db_fail(-EINVAL, "%s: parameter %u: %s", k->name, i, db_poison(t));
      goto fail;
    }
    if (kind == DB_MUON && db_rank(t) < 2) {
      db_fail(-EINVAL, "muon: parameter %u has %u axes; it takes matrices, another optimizer the rest", i, db_rank(t));
      goto fail;
    }
  }
  if (n && db_realize_all(params, n)) goto fail;
  for (unsigned i = 0; i < n; i++) {
    struct parameter *p = &o->params[o->n++];
    p->tensor = db_retain(params[i]);
    p->scalars = scalars_for(o, p->tensor);
    for (unsigned s = 0; s < k->states; s++) {
      replace(&p->state[s], zeros_like(p->tensor));
      if (!k->elementwise && db_realize(p->state[s])) goto fail;
    }
  }
  db_scope_end();
  return o;
fail:
  db_scope_end();
  db_optim_free(o);
  return NULL;
}

/* ---- groups ---- */

enum { PLACE_ALIGNMENT = 64 }; /* bytes */

static db_tensor *zeros_in_memory(db_dtype t, db_device *dev, int64_t n) {
  db_tensor *z = db_zeros(t, dev, n);
  return db_realize(z) ? NULL : z;
}

/* Whether the value is in that memory from that byte on. */
static bool lies_at(const struct value *v, const struct storage *s, uint64_t offset) {
  int64_t at;
  return v->storage == s && value_is_contiguous(v, &at) && (uint64_t)at * dtype_info[v->expr->dtype].size == offset;
}

/* Puts a copy of what v stands for there. Lock held. */
static int copy_value(struct storage *to, uint64_t offset, struct value *v, int64_t numel) {
  int64_t at;
  size_t size = dtype_info[v->expr->dtype].size;
  int err = realize_values(&v, 1, true);
  if (err) return err;
  if (!value_is_contiguous(v, &at)) return db_fail(-EPROTO, "optim: a parameter is not in memory");
  return storage_copy_to(to, offset, v->storage, (uint64_t)at * size, (size_t)numel * size);
}

/* The parameter stands for its elements of the group's memory. Lock held. */
static int stand_for_place(const struct parameter *p) {
  db_tensor *t = p->tensor, *all = p->group->p;
  struct storage *s = all->value->storage;
  int64_t n = dims_numel(t->rank, t->dim);
  struct expr e = expr_bounds(OP_SHRINK, expr_of(all), (int64_t[]){p->begin, p->begin + n});
  e = expr_reshape(e, t->rank, t->dim);
  struct value *v = value_new(e.u, all->value->slot, NULL, 0), *old = t->value;
  if (!v) return db_fail(-ENOMEM, "optim: out of memory");
  s->refs++;
  value_becomes(v, e.u, s);
  if (old->leaf == t) {
    old->leaf = NULL;
    v->leaf = t;
  }
  t->value = v;
  value_release(old);
  return 0;
}

/* The group's memory, made anew from what its parameters stand for. */
static int gather(db_optim *o, struct group *g) {
  size_t size = dtype_info[g->dtype].size;
  db_tensor *all = zeros_in_memory(g->dtype, g->scalars->dev, g->size);
  if (!all) return -ENOMEM;
  int err = 0;
  pthread_mutex_lock(&rt.lock);
  for (unsigned i = 0; i < o->n && !err; i++) {
    const struct parameter *p = &o->params[i];
    if (p->group == g)
      err = copy_value(all->value->storage, (uint64_t)p->begin * size, p->tensor->value, db_numel(p->tensor));
  }
  pthread_mutex_unlock(&rt.lock);
  if (err) return err;
  replace(&g->p, all);
  pthread_mutex_lock(&rt.lock);
  for (unsigned i = 0; i < o->n && !err; i++)
    if (o->params[i].group == g) err = stand_for_place(&o->params[i]);
  pthread_mutex_unlock(&rt.lock);
  return err;
}

static void leave_group(db_optim *o, const struct group *g) {
  for (unsigned i = 0; i < o->n; i++)
    if (o->params[i].group == g) o->params[i].group = NULL;
}

/* Memory for a group that has its parameters; zeros where nothing is known. */
static int group_memory(db_optim *o, struct group *g) {
  for (unsigned s = 0; s <= kinds[o->kind].states; s++) { /* one by one: equal values realized together share memory */
    db_tensor *z = zeros_in_memory(s ? arithmetic(g->dtype) : g->dtype, g->scalars->dev, g->size);
    if (!z) return -ENOMEM;
    replace(s ? &g->state[s - 1] : &g->g, z);
  }
  return gather(o, g);
}

static int make_groups(db_optim *o) {
  for (unsigned i = 0; i < o->n; i++) {
    struct parameter *first = &o->params[i];
    struct group *g = &o->groups[o->ngroups];
    unsigned members = 0;
    if (!first->tensor->grad || first->group) continue;
    *g = (struct group){.scalars = first->scalars, .dtype = db_dtype_of(first->tensor)};
    int64_t step = PLACE_ALIGNMENT / (int64_t)db_dtype_size(g->dtype);
    for (unsigned j = i; j < o->n; j++) {
      struct parameter *p = &o->params[j];
      if (!p->tensor->grad || p->group || p->scalars != g->scalars || db_dtype_of(p->tensor) != g->dtype) continue;
      p->group = g;
      p->begin = g->size;
      g->size += (db_numel(p->tensor) + step - 1) / step * step;
      members++;
    }
    int err = 0;
    if (members < 2 || !g->size || (err = group_memory(o, g))) {
      leave_group(o, g);
      group_free(g);
      if (err) return err;
      continue;
    }
    o->ngroups++;
    for (unsigned j = i; j < o->n; j++)
      for (unsigned s = 0; s < MAX_STATE && o->params[j].group == g; s++) {
        db_release(o->params[j].state[s]);
        o->params[j].state[s] = NULL;
      }
  }
  o->grouped = true;
  return 0;
}

/* The group's parameters go on one by one. */
static void dissolve(db_optim *o, struct group *g) {
  for (unsigned i = 0; i < o->n; i++) {
    struct parameter *p = &o->params[i];
    if (p->group != g) continue;
    p->group = NULL;
    for (unsigned s = 0; s < kinds[o->kind].states; s++) {
      db_tensor *part = db_shrink(g->state[s], p->begin, p->begin + db_numel(p->tensor));
      replace(&p->state[s], db_reshape_at(DB_HERE, part, (db_list){p->tensor->rank, p->tensor->dim}));
    }
  }
  group_free(g);
}

/* Groups as they have to be for a step: all of a group have gradients, and stand for their places. */
static int prepare_groups(db_optim *o) {
  int err = o->grouped || !kinds[o->kind].elementwise ? 0 : make_groups(o);
  for (unsigned k = 0; k < o->ngroups && !err; k++) {
    struct group *g = &o->groups[k];
    bool complete = true, in_place = true;
    if (!g->size) continue;
    for (unsigned i = 0; i < o->n; i++) {
      const struct parameter *p = &o->params[i];
      if (p->group != g) continue;
      complete &= p->tensor->grad != NULL;
      in_place &= lies_at(p->tensor->value, g->p->value->storage, (uint64_t)p->begin * dtype_info[g->dtype].size);
    }
    if (!complete) {
      dissolve(o, g);
      continue;
    }
    if (!in_place) err = gather(o, g);
    if (!err && g->g->value->storage->refs > 1) { /* a gradient of an earlier step is still held */
      db_tensor *z = zeros_in_memory(g->dtype, g->scalars->dev, g->size);
      if (z)
        replace(&g->g, z);
      else
        err = -ENOMEM;
    }
  }
  return err;
}

/* Realizes what is asked for beside the step and all gradients, those of groups in their places. */
static int realize_gradients(db_optim *o, db_tensor *const *also, unsigned n) {
  struct value **v = calloc((size_t)n + o->n + 1, sizeof *v);
  unsigned count = 0;
  if (!v) return db_fail(-ENOMEM, "optim: out of memory");
  pthread_mutex_lock(&rt.lock);
  for (unsigned i = 0; i < n; i++) v[count++] = also[i]->value;
  for (unsigned i = 0; i < o->n; i++) {
    const struct parameter *p = &o->params[i];
    if (!p->tensor->grad) continue;
    v[count++] = p->tensor->grad;
    if (!p->group) continue;
    p->tensor->grad->place = p->group->g->value->storage;
    p->tensor->grad->place_offset = (uint64_t)p->begin * dtype_info[p->group->dtype].size;
  }
  int err = realize_values(v, count, false);
  for (unsigned i = 0; i < o->n; i++) {
    const struct parameter *p = &o->params[i];
    struct value *grad = p->tensor->grad;
    if (!grad || !p->group) continue;
    if (!err && !lies_at(grad, grad->place, grad->place_offset)) /* it was in memory before */
      err = copy_value(grad->place, grad->place_offset, grad, db_numel(p->tensor));
    grad->place = NULL;
  }
  pthread_mutex_unlock(&rt.lock);
  free(v);
  return err;
}

/* ---- steps ---- */

struct step {
  struct scalars *scalars; /* as they will be */
  struct update *params, *groups;
  db_tensor **roots;
  unsigned nroots;
};

static void add_update(struct step *s, struct update *u, db_dtype t) {
  s->roots[s->nroots++] = u->next = db_cast(u->next, t);
  for (unsigned k = 0; k < MAX_STATE; k++)
    if (u->state[k]) s->roots[s->nroots++] = u->state[k];
}

static int take_step(db_optim *o, struct step *s, db_tensor *const *also, unsigned n) {
  const struct kind *k = &kinds[o->kind];
  bool any = false;
  int err = prepare_groups(o);
  for (unsigned i = 0; i < o->n; i++) any |= o->params[i].tensor->grad != NULL;
  if (!any && !err) err = db_fail(-EINVAL, "%s: no parameter has a gradient; db_backward collects them", k->name);
  if (!err && o->ngroups) err = realize_gradients(o, also, n);
  if (err) return err;
  for (unsigned i = 0; i < n; i++) s->roots[s->nroots++] = also[i];
  for (unsigned i = 0; i < o->nscalars; i++) {
    s->scalars[i] = o->scalars[i];
    if (!k->warms) continue;
    db_tensor *w = s->scalars[i].warm;
    s->roots[s->nroots++] = s->scalars[i].warm = db_add(w, db_mul(db_sub(1.0, w), s->scalars[i].rest));
  }
  for (unsigned i = 0; i < o->ngroups; i++) {
    struct group *g = &o->groups[i];
    if (!g->size) continue;
    db_dtype t = g->scalars->dtype;
    k->update(o, &s->scalars[g->scalars - o->scalars], db_cast(g->p, t), db_cast(g->g, t), g->state, &s->groups[i]);
    add_update(s, &s->groups[i], g->dtype);
  }
  for (unsigned i = 0; i < o->n; i++) {
    struct parameter *p = &o->params[i];
    if (p->group || !p->tensor->grad) continue;
    db_dtype t = p->scalars->dtype;
    k->update(o, &s->scalars[p->scalars - o->scalars], db_cast(db_detach(p->tensor), t),
              db_cast(db_grad_of(p->tensor), t), p->state, &s->params[i]);
    add_update(s, &s->params[i], db_dtype_of(p->tensor));
  }
  return db_realize_all(s->roots, s->nroots);
}

/* What the step has made takes the place of what it was made from. */
static int finish_step(db_optim *o, const struct step *s) {
  int err = 0;
  for (unsigned i = 0; i < o->ngroups; i++) {
    if (!s->groups[i].next) continue;
    replace(&o->groups[i].p, s->groups[i].next);
    for (unsigned k = 0; k < MAX_STATE; k++)
      if (s->groups[i].state[k]) replace(&o->groups[i].state[k], s->groups[i].state[k]);
  }
  for (unsigned i = 0; i < o->n; i++) {
    struct parameter *p = &o->params[i];
    if (p->group) {
      pthread_mutex_lock(&rt.lock);
      if (!err) err = stand_for_place(p);
      pthread_mutex_unlock(&rt.lock);
    }
    if (!s->params[i].next) continue;
    tensor_become(p->tensor, s->params[i].next);
    for (unsigned k = 0; k < MAX_STATE; k++)
      if (s->params[i].state[k]) replace(&p->state[k], s->params[i].state[k]);
  }
  for (unsigned i = 0; i < o->nscalars && kinds[o->kind].warms; i++) replace(&o->scalars[i].warm, s->scalars[i].warm);
  return err;
}

int db_optim_step_with(db_optim *o, db_tensor *const *also, unsigned n) {
  struct step s = {.scalars = calloc((size_t)o->nscalars + 1, sizeof *s.scalars),
                   .params = calloc((size_t)o->n + 1, sizeof *s.params),
                   .groups = calloc((size_t)o->n + 1, sizeof *s.groups),
                   .roots = calloc((size_t)n + 2 * (1 + MAX_STATE) * (size_t)o->n + o->nscalars + 1, sizeof *s.roots)};
  int err =
      s.scalars && s.params && s.groups && s.roots ? 0 : db_fail(-ENOMEM, "%s: out of memory", kinds[o->kind].name);
  for (unsigned i = 0; i < n && !err; i++)
    if (db_poison(also[i])) err = db_fail(-EINVAL, "%s", db_poison(also[i]));
  db_scope_begin();
  if (!err) err = take_step(o, &s, also, n);
  if (!err) err = finish_step(o, &s);
  db_scope_end();
  free(s.scalars);
  free(s.params);
  free(s.groups);
  free(s.roots);
  return err;
}

void db_optim_zero_grad(db_optim *o) {
  for (unsigned i = 0; i < o->n; i++) db_zero_grad(o->params[i].tensor);
}

double db_optim_lr(const db_optim *o) { return o->opt.lr; }

int db_optim_set_lr(db_optim *o, double lr) {
  int err = 0;
  if (!(lr >= 0 && isfinite(lr))) return db_fail(-EINVAL, "%s: lr is %g", kinds[o->kind].name, lr);
  o->opt.lr = lr;
  db_scope_begin();
  for (unsigned i = 0; i < o->nscalars && !err; i++) {
    db_tensor *t = numbers(&lr, o->scalars[i].dtype, o->scalars[i].dev, (db_list){0});
    if (db_poison(t))
      err = db_fail(-ENOMEM, "%s", db_poison(t));
    else
      replace(&o->scalars[i].lr, t);
  }
  db_scope_end();
  return err;
}

/* ---- clipping ---- */

/* What is collected for t becomes g. */
static void set_gradient(db_tensor *t, db_tensor *g) {
  pthread_mutex_lock(&rt.lock);
  value_retain(g->value);
  value_release(t->grad);
  t->grad = g->value;
  pthread_mutex_unlock(&rt.lock);
}

enum { TERMS = 32 }; /* partial sums that one kernel adds */

db_tensor *db_clip_grad_norm_at(DB_AT, db_tensor *const *params, unsigned n, double max_norm) {
  db_tensor *total = NULL, *bad = NULL;
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
      if (!params[i]->grad) continue;
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
  int err = 0;
  db_scope_begin();
  for (unsigned i = 0; i < n && !err; i++) {
    if (params[i] && params[i]->value && !params[i]->grad) continue;
    db_tensor *g = params[i] ? db_grad_of(params[i]) : NULL;
    if (db_poison(g))
      err = db_fail(-EINVAL, "clip_grad_value: parameter %u: %s", i, db_poison(g));
    else
      set_gradient(params[i], db_minimum(db_maximum(g, -limit), limit));
  }
  db_scope_end();
  return err;
}

/* ---- learning rates ---- */

double db_lr_constant(double lr, double factor, int64_t steps, int64_t step) { return step < steps ? lr * factor : lr; }

double db_lr_step(double lr, double gamma, int64_t every, int64_t step) {
  return every > 0 ? lr * pow(gamma, (double)(step / every)) : lr;
}

double db_lr_multistep(double lr, double gamma, db_list milestones, int64_t step) {
  for (unsigned i = 0; i < milestones.n; i++)
    if (step >= milestones.v[i]) lr *= gamma;
  return lr;
}

double db_lr_exponential(double lr, double gamma, int64_t step) { return lr * pow(gamma, (double)step); }

/* From a to b along half a cosine, at a fraction of the way. */
static double half_wave(double a, double b, double at) { return b + (a - b) * (1 + cos(M_PI * at)) / 2; }

double db_lr_cosine(double lr, double least, int64_t steps, int64_t step) {
  return steps > 0 ? half_wave(lr, least, (double)step / (double)steps) : lr;
}

double db_lr_linear(double lr, double from, int64_t steps, int64_t step) {
  return step < steps ? lr * (from + (1 - from) * (double)step / (double)steps) : lr;
}

double db_lr_one_cycle(double most, double rise, int64_t steps, int64_t step) {
  double top = (rise > 0 ? rise : 0.3) * (double)steps - 1, last = (double)steps - 1, at = (double)step;
  if (at >= last) return most / 250000;
  return at <= top ? half_wave(most / 25, most, at / top) : half_wave(most, most / 250000, (at - top) / (last - top));
}

double db_lr_plateau(struct db_lr_plateau *p, double metric) {
  double threshold = p->threshold > 0 ? p->threshold : 1e-4, factor = p->factor > 0 ? p->factor : 0.1;
  bool better = !p->begun || metric < p->best * (1 - threshold);
  p->begun = true;
  if (better) p->best = metric;
  p->bad = better ? 0 : p->bad + 1;
  if (p->cooling) {
    p->cooling--;
    p->bad = 0;
  }
  if (p->bad > p->patience) {
    p->lr = fmax(p->lr * factor, p->least);
    p->cooling = p->cooldown;
    p->bad = 0;
  }
  return p->lr;
}
