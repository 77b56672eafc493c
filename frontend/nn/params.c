/* Trees of parameters: their names, initial values and tensors.
 *
 * A hash of seed, name and element index determines the initial values, which are made on the host. So they are the
 * same on every device and do not depend on other parameters. */
#define _GNU_SOURCE
#include "params.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct db_params {
  struct tree *tree;
  char *prefix; /* "" or "layer1.0." */
};
struct tree {
  struct db_params root;
  db_device *dev;
  uint64_t seed;
  bool training;
  db_dtype dtype;   /* of new parameters */
  db_dtype compute; /* the type in which layers multiply; DB_NONE: that of their arguments */
  db_parameter **params;
  db_tensor **trained;
  struct db_params **views;
  size_t nparams, ntrained, nviews;
};

/* Makes room for one more element in *array, which has n. Returns false if memory runs out. */
static bool grow_array(void *array, size_t n) {
  void **p = array;
  if (n & (n - 1)) return true;
  void *more = realloc(*p, (n ? 2 * n : 1) * sizeof(void *));
  if (more) *p = more;
  return more != NULL;
}

db_params *db_params_new(db_device *dev, uint64_t seed) {
  struct tree *t = calloc(1, sizeof *t);
  if (!t || !(t->root.prefix = strdup(""))) {
    db_fail(-ENOMEM, "params: out of memory");
    free(t);
    return NULL;
  }
  t->root.tree = t;
  t->dev = db_device_retain(dev);
  t->seed = seed;
  t->training = true;
  t->dtype = DB_F32;
  return &t->root;
}

void db_params_free(db_params *p) {
  if (!p) return;
  struct tree *t = p->tree;
  for (size_t i = 0; i < t->nparams; i++) {
    db_release(t->params[i]->tensor);
    free((char *)t->params[i]->name);
    free(t->params[i]);
  }
  for (size_t i = 0; i < t->nviews; i++) {
    free(t->views[i]->prefix);
    free(t->views[i]);
  }
  free(t->params);
  free(t->trained);
  free(t->views);
  free(t->root.prefix);
  db_close(t->dev);
  free(t);
}

db_params *db_params_at(db_params *p, const char *fmt, ...) {
  char *name = NULL, *prefix = NULL;
  if (!p || !fmt) return db_fail_null(-EINVAL, "params_at: the %s is NULL", p ? "name" : "tree");
  va_list ap;
  va_start(ap, fmt);
  int n = vasprintf(&name, fmt, ap);
  va_end(ap);
  if (n < 0 || asprintf(&prefix, "%s%s.", p->prefix, name) < 0) prefix = NULL;
  if (n >= 0) free(name);
  struct db_params *view = calloc(1, sizeof *view);
  if (!view || !prefix || !grow_array(&p->tree->views, p->tree->nviews)) {
    db_fail(-ENOMEM, "params: out of memory");
    free(view);
    free(prefix);
    return NULL;
  }
  *view = (struct db_params){p->tree, prefix};
  return p->tree->views[p->tree->nviews++] = view;
}

void db_params_train(db_params *p, bool training) {
  if (p) p->tree->training = training;
}
bool db_params_training(const db_params *p) { return p && p->tree->training; }

/* ---- types ---- */

int db_params_set_dtype(db_params *p, db_dtype dtype) {
  if (!p) return db_fail_argument("params_set_dtype", "tree");
  if (dtype <= DB_NONE || dtype > DB_F8E5M2 || !dtype_is_float((enum dtype)dtype))
    return db_fail(-EINVAL, "params_set_dtype: the type is %s; parameters are floats", db_dtype_name(dtype));
  p->tree->dtype = dtype;
  return 0;
}

int params_set_compute(db_params *p, db_dtype dtype) {
  struct tree *t = p->tree;
  for (size_t i = 0; i < t->nparams && dtype != DB_NONE; i++)
    if (db_dtype_of(t->params[i]->tensor) != DB_F32)
      return db_fail(-EINVAL, "mixed_precision: the parameter %s is %s; it must be f32", t->params[i]->name,
                     db_dtype_name(db_dtype_of(t->params[i]->tensor)));
  t->compute = dtype;
  return 0;
}

static db_dtype compute_type(const db_parameter *p) { return p && p->params ? p->params->tree->compute : DB_NONE; }

bool param_is_mixed(const db_parameter *p) { return compute_type(p) != DB_NONE; }

db_tensor *param_operand(DB_AT, const db_parameter *p, db_tensor *x) {
  db_dtype t = compute_type(p);
  return t == DB_NONE || !x || !dtype_is_float((enum dtype)db_dtype_of(x)) ? x : db_cast_at(file, line, x, t);
}

/* ---- queries ---- */

size_t db_params_count(const db_params *p) { return p ? p->tree->nparams : 0; }

int64_t db_params_numel(const db_params *p) {
  int64_t n = 0;
  for (size_t i = 0; p && i < p->tree->ntrained; i++) n += db_numel(p->tree->trained[i]);
  return n;
}

db_parameter *db_params_get(const db_params *p, size_t i) {
  return p && i < p->tree->nparams ? p->tree->params[i] : NULL;
}

db_parameter *db_params_find(const db_params *p, const char *name) {
  for (size_t i = 0; p && name && i < p->tree->nparams; i++)
    if (!strcmp(p->tree->params[i]->name, name)) return p->tree->params[i];
  return NULL;
}

db_tensor *const *db_params_trained(db_params *p, unsigned *n) {
  if (n) *n = p ? (unsigned)p->tree->ntrained : 0;
  return p ? p->tree->trained : NULL;
}

int db_param_set(db_parameter *param, db_tensor *t) {
  int err = 0;
  if (!param || !param->tensor) return db_fail(-EINVAL, "param_set: there is no parameter");
  db_scope_begin();
  db_tensor *old = param->tensor, *now = t;
  if (!db_poison(now) && !db_poison(old)) now = db_to(db_cast(t, db_dtype_of(old)), db_device_of(old));
  if (db_poison(now) || db_poison(old))
    err = db_fail(-EINVAL, "param_set: %s: %s", param->name, db_poison(old) ? db_poison(old) : db_poison(now));
  else if (now->rank != old->rank || memcmp(now->dim, old->dim, old->rank * sizeof *old->dim) != 0)
    err = db_fail(-EINVAL, "param_set: %s is %s, but the new value is %s", param->name, SHAPE(*old), SHAPE(*now));
  else
    db_assign(old, now);
  db_scope_end();
  return err;
}

/* ---- creation ---- */

/* A poisoned tensor with the reason why a parameter cannot be made. */
static db_tensor *poisoned_parameter(const char *prefix, const char *name, const char *why) {
  struct call c;
  if (!call_begin(&c, "parameter", NULL, 0, 0, NULL)) return c.result;
  return call_fail(&c, "%s%s: %s", prefix, name, why);
}

db_parameter *db_param_new(db_params *p, const char *name, db_tensor *init, bool trained) {
  if (!p || !name) return db_fail(-EINVAL, "param: %s is NULL", p ? "the name" : "the tree"), NULL;
  struct tree *t = p->tree;
  db_parameter *param = calloc(1, sizeof *param);
  char *path = NULL;
  if (asprintf(&path, "%s%s", p->prefix, name) < 0) path = NULL;
  if (!param || !path || !grow_array(&t->params, t->nparams) || !grow_array(&t->trained, t->ntrained)) {
    db_fail(-ENOMEM, "param: out of memory");
    free(param);
    free(path);
    return NULL;
  }
  db_scope_begin();
  if (db_params_find(p, path)) init = poisoned_parameter("", path, "a parameter with this name exists already");
  /* a separate handle, which the caller's other uses of init do not share */
  db_tensor *own = init && !db_poison(init) ? db_detach(init)
                   : init                   ? init
                                            : poisoned_parameter("", path, "the initial value is NULL");
  *param = (db_parameter){path, db_retain(own), trained, &t->root};
  db_scope_end();
  t->params[t->nparams++] = param;
  if (trained) t->trained[t->ntrained++] = param->tensor;
  return param;
}

static uint64_t mix_bits(
    uint64_t x) { /* the finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators) */
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
static double random_fraction(uint64_t key, uint64_t i) { /* greater than 0, less than 1 */
  return ((double)(mix_bits(key + i * 0x9e3779b97f4a7c15u) >> 11) + 0.5) * 0x1p-53;
}

enum init { UNIFORM, NORMAL, CONSTANT };

static void fill_random(void *to, enum dtype t, int64_t n, enum init init, double v, uint64_t key) {
  size_t size = dtype_info[t].size;
  for (int64_t i = 0; i < n; i++) {
    double a = init == CONSTANT ? 0 : random_fraction(key, 2 * (uint64_t)i), r = 1;
    if (init == UNIFORM) r = 2 * a - 1;
    if (init == NORMAL)
      r = sqrt(-2 * log(a)) * cos(2 * M_PI * random_fraction(key, 2 * (uint64_t)i + 1)); /* Box-Muller */
    uint64_t bits = float_to_bits(t, t == DT_F64 ? r * v : (float)(r * v));
    memcpy((char *)to + (size_t)i * size, &bits, size);
  }
}

/* The reason why a parameter cannot have this shape. */
static const char *why_impossible(db_list shape, char *text, size_t cap) {
  if (shape.n > MAX_RANK)
    snprintf(text, cap, "impossible sizes: %u axes, more than %d", shape.n, MAX_RANK);
  else if (!shape.v)
    snprintf(text, cap, "impossible sizes: the list of %u sizes is NULL", shape.n);
  else if (dims_symbolic(shape.n, shape.v))
    snprintf(text, cap, "impossible sizes: %s has a symbolic size", shape_text(shape.n, shape.v).s);
  else {
    bool negative = false;
    for (unsigned i = 0; i < shape.n; i++) negative |= shape.v[i] < 0;
    snprintf(text, cap, "impossible sizes: %s %s", shape_text(shape.n, shape.v).s,
             negative ? "has a negative size; a layer passes -1 if groups or heads do not divide its channels, or if "
                        "its kernel has another number of axes"
                      : "has too many elements");
  }
  return text;
}

static db_parameter *make_parameter(db_params *p, const char *name, enum init init, double v, db_list shape,
                                    bool trained) {
  if (!p || !name) return db_fail(-EINVAL, "param: %s is NULL", p ? "the name" : "the tree"), NULL;
  struct tree *t = p->tree;
  bool possible = shape.n <= MAX_RANK && (shape.v || !shape.n) && !dims_symbolic(shape.n, shape.v) &&
                  dims_possible(shape.n, shape.v);
  bool good = possible && isfinite(v);
  int64_t n = good ? dims_numel(shape.n, shape.v) : 0;
  db_dtype type = trained ? t->dtype : DB_F32;
  uint64_t key = t->seed;
  for (const char *s = p->prefix; *s; s++) key = mix_bits(key ^ (uint8_t)*s);
  for (const char *s = name; *s; s++) key = mix_bits(key ^ (uint8_t)*s);
  db_parameter *param = NULL;
  void *data = good ? malloc((size_t)n * db_dtype_size(type) + 1) : NULL;
  db_scope_begin();
  db_tensor *value;
  char why[400];
  if (!possible)
    value = poisoned_parameter(p->prefix, name, why_impossible(shape, why, sizeof why));
  else if (!good)
    value = poisoned_parameter(p->prefix, name, "its initial values are not finite");
  else if (data)
    fill_random(data, (enum dtype)type, n, init, v, key), value = db_from_at(NULL, 0, data, type, t->dev, shape);
  else
    value = poisoned_parameter(p->prefix, name, "out of memory");
  if (data && db_poison(value)) value = poisoned_parameter(p->prefix, name, db_poison(value));
  param = db_param_new(p, name, value, trained);
  db_scope_end();
  free(data);
  return param;
}

db_parameter *db_param_uniform(db_params *p, const char *name, double bound, db_list shape) {
  return make_parameter(p, name, UNIFORM, bound, shape, true);
}
db_parameter *db_param_normal(db_params *p, const char *name, double deviation, db_list shape) {
  return make_parameter(p, name, NORMAL, deviation, shape, true);
}
db_parameter *db_param_full(db_params *p, const char *name, double value, db_list shape) {
  return make_parameter(p, name, CONSTANT, value, shape, true);
}
db_parameter *params_statistic(db_params *p, const char *name, double value, db_list shape) {
  return make_parameter(p, name, CONSTANT, value, shape, false);
}

/* ---- training ---- */

int db_train_step(db_params *p, db_optim *o, db_tensor *loss) {
  if (db_poison(loss))
    return db_fail(-EINVAL, "train_step: %s",
                   db_poison(loss)); /* reported first: it may be the reason why the others are NULL */
  if (!p || !o) return db_fail_argument("train_step", p ? "optimizer" : "tree of parameters");
  struct tree *t = p->tree;
  db_tensor **also = malloc((t->nparams + 1) * sizeof(db_tensor *));
  unsigned n = 0;
  if (!also) return db_fail(-ENOMEM, "train_step: out of memory");
  also[n++] = loss;
  for (size_t i = 0; i < t->nparams; i++)
    if (!t->params[i]->trained) also[n++] = t->params[i]->tensor;
  int err = db_optim_backward(o, loss);
  if (!err) err = db_optim_step_with(o, also, n);
  db_optim_zero_grad(o);
  free(also);
  return err;
}
