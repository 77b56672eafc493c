/* Checkpoints: one file with the parameters under their names, and everything else that a training needs to continue
 * under names that begin with "checkpoint/". */
#include "optim.h"
#include "state.h"
#include "../files/files.h"
#include "../jit/random.h"
#include "../ops/ops.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, MOST_NUMBERS = 1024 };
#define PREFIX "checkpoint/"

/* The tensors that a checkpoint restores. */
struct entries {
  struct db_named *at;
  bool *found;
  size_t n, room;
  bool good;
};

static void add_entry(struct entries *e, const char *name, db_tensor *t) {
  if (e->n == e->room) {
    size_t more = e->room ? 2 * e->room : 64;
    struct db_named *at = realloc(e->at, more * sizeof *at);
    bool *found = realloc(e->found, more * sizeof *found);
    if (at) e->at = at;
    if (found) e->found = found;
    e->good &= at && found;
    if (!e->good) return;
    e->room = more;
  }
  char *copy = strdup(name);
  e->good &= copy != NULL;
  if (!copy) return;
  e->found[e->n] = false;
  e->at[e->n++] = (struct db_named){copy, t};
}

static void entries_free(struct entries *e) {
  for (size_t i = 0; i < e->n; i++) free((char *)e->at[i].name);
  free(e->at);
  free(e->found);
}

static struct entries list_entries(const struct db_checkpoint *c) {
  struct entries e = {.good = true};
  char state[64], name[128];
  db_tensor *t;
  for (size_t i = 0; i < db_params_count(c->params); i++)
    add_entry(&e, db_params_get(c->params, i)->name, db_params_get(c->params, i)->tensor);
  for (unsigned k = 0; k < DB_CHECKPOINT_MOST; k++)
    for (unsigned i = 0; (t = optim_state(c->optim[k], i, state, sizeof state)); i++) {
      snprintf(name, sizeof name, PREFIX "optim%u.%s", k, state);
      add_entry(&e, name, t);
    }
  for (unsigned i = 0; (t = ema_state(c->ema, i, state, sizeof state)); i++) {
    snprintf(name, sizeof name, PREFIX "%s", state);
    add_entry(&e, name, t);
  }
  return e;
}

/* ---- numbers of the host ---- */

/* The version, how the training was set up, and its numbers. The first `fixed` numbers must be the same when a
 * checkpoint is loaded. */
struct numbers {
  double v[MOST_NUMBERS];
  unsigned n, fixed;
};
static void add_number(struct numbers *l, double v) {
  if (l->n < MOST_NUMBERS) l->v[l->n++] = v;
}

static struct numbers list_numbers(const struct db_checkpoint *c) {
  struct numbers l = {.n = 0};
  add_number(&l, VERSION);
  add_number(&l, c->plateau != NULL);
  for (unsigned k = 0; k < DB_CHECKPOINT_MOST; k++) {
    const db_optim *o = c->optim[k];
    add_number(&l, o ? (double)(o->kind - optim_kind(DB_OPTIM_SGD)) : -1);
    add_number(&l, o ? o->ngroups : 0);
    add_number(&l, c->jit[k] != NULL);
  }
  l.fixed = l.n;
  add_number(&l, (double)c->step);
  const struct db_lr_plateau *p = c->plateau;
  if (p) {
    const double v[] = {p->lr, p->best, p->bad, p->cooling, p->begun};
    for (unsigned i = 0; i < 5; i++) add_number(&l, v[i]);
  }
  for (unsigned k = 0; k < DB_CHECKPOINT_MOST; k++)
    for (unsigned g = 0; c->optim[k] && g < c->optim[k]->ngroups; g++) add_number(&l, c->optim[k]->groups[g].lr);
  return l;
}

static int check_room(const struct numbers *l, const char *path) {
  if (l->n < MOST_NUMBERS) return 0;
  return db_fail(-ENOTSUP, "%s: not supported: so many groups of parameters", path);
}

static int restore_numbers(struct db_checkpoint *c, const double *v) {
  int err = 0;
  c->step = (int64_t)*v++;
  if (c->plateau) {
    c->plateau->lr = v[0], c->plateau->best = v[1], c->plateau->begun = v[4] != 0;
    c->plateau->bad = (unsigned)v[2], c->plateau->cooling = (unsigned)v[3];
    v += 5;
  }
  for (unsigned k = 0; k < DB_CHECKPOINT_MOST; k++)
    for (unsigned g = 0; c->optim[k] && g < c->optim[k]->ngroups && !err; g++)
      err = db_optim_set_group_lr(c->optim[k], g, *v++);
  return err;
}

/* The random generator: its seed and number of calls; of each function its stream, and for each device the number of
 * calls. */
enum { JIT_WORDS = 2 + JIT_RANDOM_DEVICES, WORDS = 2 + DB_CHECKPOINT_MOST * JIT_WORDS };

static int list_random(const struct db_checkpoint *c, uint64_t words[WORDS]) {
  uint32_t calls;
  int err = 0;
  memset(words, 0, WORDS * sizeof *words);
  random_state(&words[0], &calls);
  words[1] = calls;
  for (unsigned k = 0; k < DB_CHECKPOINT_MOST && !err; k++) {
    struct jit_random r;
    uint64_t *at = words + 2 + (size_t)k * JIT_WORDS;
    if (!c->jit[k] || (err = jit_random_read(c->jit[k], &r))) continue;
    at[0] = r.stream, at[1] = r.n;
    for (unsigned i = 0; i < r.n; i++) at[2 + i] = r.count[i];
  }
  return err;
}

static int restore_random(const char *path, const struct db_checkpoint *c, const uint64_t words[WORDS]) {
  int err = 0;
  for (unsigned k = 0; k < DB_CHECKPOINT_MOST && !err; k++) {
    const uint64_t *at = words + 2 + (size_t)k * JIT_WORDS;
    struct jit_random r = {.stream = (uint32_t)at[0], .n = (unsigned)at[1]};
    if (!c->jit[k]) continue;
    if (at[1] > JIT_RANDOM_DEVICES)
      return db_fail(-EINVAL, "%s: %llu random generators", path, (unsigned long long)at[1]);
    for (unsigned i = 0; i < r.n; i++) r.count[i] = (uint32_t)at[2 + i];
    err = jit_random_restore(c->jit[k], &r);
  }
  if (!err) random_restore(words[0], (uint32_t)words[1]);
  return err;
}

/* ---- saving ---- */

int db_checkpoint_save(const char *path, const struct db_checkpoint *c) {
  if (!c || !c->params) return db_fail_argument("checkpoint_save", c ? "tree of parameters" : "checkpoint");
  uint64_t words[WORDS];
  struct numbers l = list_numbers(c);
  int err = check_room(&l, path);
  if (!err) err = list_random(c, words);
  if (err) return err;
  struct entries e = list_entries(c);
  db_device *host = db_open("CPU");
  {
    DB_SCOPED;
    add_entry(&e, PREFIX "numbers", db_from(l.v, DB_F64, host, l.n));
    add_entry(&e, PREFIX "random", db_from(words, DB_U64, host, WORDS));
    if (!host)
      err = -ENODEV;
    else
      err = e.good ? db_save(path, e.at, (unsigned)e.n) : db_fail(-ENOMEM, "%s: out of memory", path);
  }
  db_close(host);
  entries_free(&e);
  return err;
}

/* ---- loading: a first pass compares names and reads the numbers, a second one assigns the tensors ---- */

struct loading {
  struct entries e;
  struct numbers numbers; /* in the file; fixed is not set */
  uint64_t words[WORDS];
  bool has_numbers, has_random;
  struct names unknown;
  db_device *host;
};

static struct db_named *find_entry(struct loading *l, const char *name) {
  for (size_t i = 0; i < l->e.n; i++)
    if (!strcmp(l->e.at[i].name, name)) return &l->e.at[i];
  return NULL;
}

static bool note_name(void *ctx, const char *name, db_device **dev) {
  struct loading *l = ctx;
  const struct db_named *entry = find_entry(l, name);
  *dev = l->host;
  if (!strcmp(name, PREFIX "numbers") || !strcmp(name, PREFIX "random")) return true;
  if (entry)
    l->e.found[entry - l->e.at] = true;
  else
    add_name(&l->unknown, name);
  return false;
}
static int take_numbers(void *ctx, const char *name, db_tensor *t) {
  struct loading *l = ctx;
  bool random = !strcmp(name, PREFIX "random");
  int64_t n = db_numel(t);
  if (n > (random ? WORDS : MOST_NUMBERS) || db_dtype_of(t) != (random ? DB_U64 : DB_F64))
    return db_fail(-EINVAL, "%s has %lld elements of %s", name, (long long)n, db_dtype_name(db_dtype_of(t)));
  l->numbers.n = random ? l->numbers.n : (unsigned)n;
  *(random ? &l->has_random : &l->has_numbers) = !random || n == WORDS;
  return random ? db_read(t, l->words, (size_t)n * sizeof *l->words)
                : db_read(t, l->numbers.v, (size_t)n * sizeof *l->numbers.v);
}

static bool wants(void *ctx, const char *name, db_device **dev) {
  const struct db_named *entry = find_entry(ctx, name);
  if (entry) *dev = db_device_of(entry->tensor);
  return entry != NULL;
}
static int take(void *ctx, const char *name, db_tensor *t) {
  return assign_loaded(name, find_entry(ctx, name)->tensor, t, false);
}

/* Checks that the checkpoint is one of c's training. */
static int compare(const char *path, struct loading *l, const struct db_checkpoint *c) {
  struct names missing = {0};
  struct numbers own = list_numbers(c);
  if (check_room(&own, path)) return -ENOTSUP;
  for (size_t i = 0; i < l->e.n; i++)
    if (!l->e.found[i]) add_name(&missing, l->e.at[i].name);
  if (!l->has_numbers || !l->has_random) return db_fail(-EINVAL, "%s: not a checkpoint", path);
  if (l->unknown.n) return db_fail(-ENOENT, "%s: the training has no %s", path, names_text(&l->unknown));
  if (missing.n) return db_fail(-ENOENT, "%s: the checkpoint has no %s", path, names_text(&missing));
  if (l->numbers.n != own.n || memcmp(l->numbers.v, own.v, own.fixed * sizeof *own.v) != 0)
    return db_fail(-EINVAL,
                   "%s: not supported: the checkpoint has another version, or the training has other kinds of "
                   "optimizers, groups, functions or schedules",
                   path);
  const double *v = l->numbers.v + own.fixed;
  bool possible = fabs(v[0]) <= 0x1p53;
  if (c->plateau) possible = possible && v[3] >= 0 && v[3] <= UINT_MAX && v[4] >= 0 && v[4] <= UINT_MAX;
  return possible ? 0 : db_fail(-EINVAL, "%s: the step or a count of the schedule is not possible", path);
}

int db_checkpoint_load(const char *path, struct db_checkpoint *c) {
  if (!c || !c->params) return db_fail_argument("checkpoint_load", c ? "tree of parameters" : "checkpoint");
  struct loading *l = calloc(1, sizeof *l);
  if (!l) return db_fail(-ENOMEM, "%s: out of memory", path);
  l->e = list_entries(c);
  l->host = db_open("CPU");
  int err = !l->host ? -ENODEV : l->e.good ? 0 : db_fail(-ENOMEM, "%s: out of memory", path);
  if (!err) err = files_load(path, &(struct sink){l, note_name, take_numbers});
  if (!err) err = compare(path, l, c);
  if (!err) err = restore_random(path, c, l->words);
  if (!err) err = files_load(path, &(struct sink){l, wants, take});
  if (!err) err = restore_numbers(c, l->numbers.v + list_numbers(c).fixed);
  db_close(l->host);
  entries_free(&l->e);
  free(l);
  return err;
}
