/* Files of parameters. A file is read twice: first only the names are compared, then the tensors are assigned one at a
 * time, so that host and device hold one of them besides the parameters. */
#include "params.h"
#include "state.h"
#include "../files/files.h"
#include "../ops/ops.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- a tensor ---- */

/* Makes target a tensor of t's type and value. Functions that were captured with its old memory refuse to run. */
static int change_type(db_tensor *target, db_tensor *t) {
  int err = db_realize(t);
  if (!err) err = db_realize(target);
  if (err) return err;
  pthread_mutex_lock(&rt.lock);
  for (struct value *v = rt.values; v; v = v->next)
    if (v->storage == target->value->storage) v->stale = true;
  value_retain(t->value);
  tensor_set_value(target, t->value);
  target->dtype = t->dtype;
  pthread_mutex_unlock(&rt.lock);
  return 0;
}

int assign_loaded(const char *name, db_tensor *target, db_tensor *t, bool convert) {
  DB_SCOPED;
  if (db_poison(target)) return db_fail(-EINVAL, "%s: %s", name, db_poison(target));
  if (t->rank != target->rank || memcmp(t->dim, target->dim, t->rank * sizeof *t->dim) != 0)
    return db_fail(-EINVAL, "%s is %s, but in the file it is %s", name, SHAPE(*target), SHAPE(*t));
  bool floats = dtype_is_float(t->dtype) && dtype_is_float(target->dtype);
  if (!floats && t->dtype != target->dtype)
    return db_fail(-EINVAL, "%s is %s, but in the file it is %s", name, dtype_info[target->dtype].name,
                   dtype_info[t->dtype].name);
  if (!convert && t->dtype != target->dtype && !target->value->part) return change_type(target, t);
  db_tensor *now = db_to(db_cast(t, db_dtype_of(target)), db_device_of(target));
  if (db_poison(now)) return db_fail(-EINVAL, "%s: %s", name, db_poison(now));
  db_assign(target, now);
  return db_realize(target);
}

/* ---- names ---- */

void add_name(struct names *l, const char *name) {
  size_t used = strlen(l->text), room = sizeof l->text - used;
  l->n++;
  if (l->shown + 1 < l->n || (size_t)snprintf(NULL, 0, ", '%s'", name) + 24 >= room) return;
  l->shown++;
  snprintf(l->text + used, room, "%s'%s'", used ? ", " : "", name);
}

const char *names_text(struct names *l) {
  size_t used = strlen(l->text);
  if (l->shown < l->n)
    snprintf(l->text + used, sizeof l->text - used, "%s%u others", used ? " and " : "", l->n - l->shown);
  l->shown = l->n;
  return l->text;
}

struct import {
  db_params *params;
  const struct db_import *options;
  bool *found; /* by index of the parameter */
  struct names unknown;
  size_t seen;
};

/* The name of a tensor of the file in the tree, which the caller frees; NULL if it is not loaded. */
static char *renamed(const struct db_import *o, const char *name) {
  for (unsigned i = 0; i < o->nrename; i++) {
    size_t n = strlen(o->rename[i].from);
    if (strncmp(name, o->rename[i].from, n) != 0) continue;
    if (!o->rename[i].to) return NULL;
    char *to = malloc(strlen(o->rename[i].to) + strlen(name + n) + 1);
    return to ? strcat(strcpy(to, o->rename[i].to), name + n) : NULL;
  }
  return strdup(name);
}

static bool note_name(void *ctx, const char *name, db_device **dev) {
  struct import *m = ctx;
  char *to = renamed(m->options, name);
  size_t i = 0;
  m->seen++;
  if (!to) return false;
  while (i < db_params_count(m->params) && strcmp(db_params_get(m->params, i)->name, to) != 0) i++;
  if (i < db_params_count(m->params)) {
    m->found[i] = true;
  } else {
    add_name(&m->unknown, to);
    if (m->options->unmatched) m->options->unmatched(m->options->ctx, to, true);
  }
  free(to);
  return false;
}
static int take_nothing(void *ctx, const char *name, db_tensor *t) { return 0; }

static db_parameter *parameter_of(const struct import *m, const char *name) {
  char *to = renamed(m->options, name);
  db_parameter *param = to ? db_params_find(m->params, to) : NULL;
  free(to);
  return param;
}
static bool wants(void *ctx, const char *name, db_device **dev) {
  const db_parameter *param = parameter_of(ctx, name);
  if (param) *dev = db_device_of(param->tensor);
  return param != NULL;
}
static int take(void *ctx, const char *name, db_tensor *t) {
  struct import *m = ctx;
  db_parameter *param = parameter_of(m, name);
  return assign_loaded(param->name, param->tensor, t, m->options->convert);
}

/* Compares the names of file and tree. */
static int compare_names(const char *path, struct import *m) {
  struct names missing = {0};
  bool any = false;
  int err = files_load(path, &(struct sink){m, note_name, take_nothing});
  if (err) return err;
  for (size_t i = 0; i < db_params_count(m->params); i++) {
    any |= m->found[i];
    if (m->found[i]) continue;
    add_name(&missing, db_params_get(m->params, i)->name);
    if (m->options->unmatched) m->options->unmatched(m->options->ctx, db_params_get(m->params, i)->name, false);
  }
  if (m->unknown.n && !m->options->partial)
    return db_fail(-ENOENT, "%s: there is no parameter %s", path, names_text(&m->unknown));
  if (missing.n && !m->options->partial)
    return db_fail(-ENOENT, "%s: the file has no parameter %s", path, names_text(&missing));
  if (m->seen && !any) return db_fail(-ENOENT, "%s: none of its %zu tensors is a parameter of the tree", path, m->seen);
  return 0;
}

int db_params_import_with(db_params *p, const char *path, struct db_import options) {
  if (!p) return db_fail_argument("params_load", "tree");
  if (options.nrename && !options.rename) return db_fail_argument("params_load", "list of names");
  for (unsigned i = 0; i < options.nrename; i++)
    if (!options.rename[i].from) return db_fail_argument("params_load", "name to replace");
  struct import m = {.params = p, .options = &options, .found = calloc(db_params_count(p) + 1, sizeof(bool))};
  if (!m.found) return db_fail(-ENOMEM, "%s: out of memory", path);
  int err = compare_names(path, &m);
  if (!err) err = files_load(path, &(struct sink){&m, wants, take});
  free(m.found);
  return err;
}

int db_params_load(db_params *p, const char *path, bool partial) {
  return db_params_import_with(p, path, (struct db_import){.partial = partial});
}

int db_params_save(const db_params *p, const char *path) {
  if (!p) return db_fail_argument("params_save", "tree");
  size_t n = db_params_count(p);
  struct db_named *named = calloc(n + 1, sizeof *named);
  if (!named) return db_fail(-ENOMEM, "%s: out of memory", path);
  for (size_t i = 0; i < n; i++) named[i] = (struct db_named){db_params_get(p, i)->name, db_params_get(p, i)->tensor};
  int err = db_save(path, named, (unsigned)n);
  free(named);
  return err;
}
