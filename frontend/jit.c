/* Capture: a function of tensors runs once as it is, a second time while what it submits is written down, and is replayed from then
 * on (program.c). */
#include "jit.h"
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local db_jit *capturing;

/* ---- capturing ---- */

static void refuse(db_jit *j, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void refuse(db_jit *j, int err, const char *fmt, ...) {
  if (j->error) return;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(j->error_text, sizeof j->error_text, fmt, ap);
  va_end(ap);
  j->error = err;
}

/* Room for n more elements; NULL and the capture fails when there is no memory. */
static void *room(db_jit *j, void *array, size_t size, size_t count, size_t n, size_t *capacity) {
  if (array && count + n <= *capacity) return array;
  size_t more = *capacity ? 2 * *capacity : 64;
  while (more < count + n) more *= 2;
  void *p = realloc(array, more * size);
  if (!p) {
    refuse(j, -ENOMEM, "jit: out of memory");
    return array;
  }
  *capacity = more;
  return p;
}

static struct value *value_in(const struct storage *s) {
  for (struct value *v = rt.values; v; v = v->next)
    if (v->storage == s) return v;
  return NULL;
}

/* Memory that no tensor stands for is the program's own. */
static uint32_t memory_of(db_jit *j, struct storage *s) {
  struct program *p = &j->program;
  for (unsigned i = 0; i < p->nmemories; i++)
    if (j->memories[i].storage == s) return i;
  size_t capacity = j->memories_capacity;
  j->memories = room(j, j->memories, sizeof *j->memories, p->nmemories, 1, &capacity);
  p->memories = room(j, p->memories, sizeof *p->memories, p->nmemories, 1, &j->memories_capacity);
  if (j->error) return 0;
  struct captured_memory *m = &j->memories[p->nmemories];
  *m = (struct captured_memory){.kind = OWNED, .storage = s};
  for (unsigned i = 0; i < j->ninputs; i++)
    if (j->inputs[i]->storage == s) m->kind = INPUT, m->input = i;
  if (m->kind == OWNED && (m->value = value_in(s))) {
    m->kind = OUTER;
    value_retain(m->value);
  }
  if (m->kind == OWNED) s->refs++;
  p->memories[p->nmemories] = (struct program_memory){s->buffer, 0, s->slot, m->kind != OWNED};
  return p->nmemories++;
}

static void add_access(db_jit *j, struct captured_place place, uint64_t bytes, bool written) {
  struct program *p = &j->program;
  p->accesses = room(j, p->accesses, sizeof *p->accesses, p->naccesses, 1, &j->accesses_capacity);
  uint32_t memory = memory_of(j, place.storage);
  if (j->error) return;
  j->memories[memory].written |= written;
  p->accesses[p->naccesses++] = (struct program_access){memory, written, place.offset, bytes};
}

static struct program_command *add_command(db_jit *j, const struct program_command *like) {
  struct program *p = &j->program;
  p->commands = room(j, p->commands, sizeof *p->commands, p->ncommands, 1, &j->commands_capacity);
  if (j->error) return NULL;
  struct program_command *c = &p->commands[p->ncommands++];
  *c = *like;
  c->first = (uint32_t)p->naccesses;
  c->vars = (uint32_t)p->nvar_of;
  return c;
}

static uint32_t var_of(db_jit *j, const char *name, int64_t value) {
  struct program *p = &j->program;
  for (unsigned i = 0; i < p->nvars; i++)
    if (!strcmp(j->var_names[i], name)) return i;
  size_t capacity = j->vars_capacity;
  j->var_names = room(j, j->var_names, sizeof *j->var_names, p->nvars, 1, &capacity);
  p->vars = room(j, p->vars, sizeof *p->vars, p->nvars, 1, &j->vars_capacity);
  char *copy = strdup(name);
  if (j->error || !copy) {
    free(copy);
    refuse(j, -ENOMEM, "jit: out of memory");
    return 0;
  }
  j->var_names[p->nvars] = copy;
  p->vars[p->nvars] = value;
  return p->nvars++;
}

/* bytes at most STAGE_PIECE when one of both is staging memory. */
static void capture_part(db_jit *j, unsigned slot, struct captured_place dst, struct captured_place src,
                         uint64_t bytes) {
  if (!add_command(j, &(struct program_command){.slot = (uint8_t)slot, .naccesses = 2})) return;
  add_access(j, dst, bytes, true);
  add_access(j, src, bytes, false);
}

/* Memory that the program's copies from the slot's device pass through. */
static struct storage *stage_of(db_jit *j, unsigned slot) {
  struct captured_stage *s = &j->stages[slot];
  if (s->storage) return s->storage;
  struct storage *made = storage_new_pinned(slot, rt.next_buffer++, STAGE_BYTES);
  if (!made)
    refuse(j, -ENOMEM, "jit: no memory for copies between devices: %s", db_error());
  else
    memory_of(j, s->storage = made); /* which keeps it */
  storage_release(made);
  return j->error ? NULL : made;
}

static void capture_copy(db_jit *j, struct captured_place dst, struct captured_place src, uint64_t bytes) {
  unsigned a = dst.storage->slot, b = src.storage->slot;
  enum copy_way way = copy_way(a, b);
  if (way != COPY_STAGED) {
    capture_part(j, way == COPY_BY_DESTINATION ? a : b, dst, src, bytes);
    return;
  }
  for (uint64_t n; bytes && !j->error; bytes -= n, dst.offset += n, src.offset += n) {
    bool anew; /* the order of commands follows from the bytes they touch */
    n = bytes < STAGE_PIECE ? bytes : STAGE_PIECE;
    struct captured_place between = {.storage = stage_of(j, b)};
    if (!between.storage) return;
    between.offset = stage_take(&j->stages[b].stage, n, &anew);
    capture_part(j, b, between, src, n);
    capture_part(j, a, dst, between, n);
  }
}

void jit_capture_copy(struct captured_place dst, struct captured_place src, uint64_t bytes) {
  if (capturing && !capturing->error) capture_copy(capturing, dst, src, bytes);
}

/* The copy that begins an exchange, with that behind it, or the copy that ends it. */
static void capture_transfer(db_jit *j, const struct executable *e, const struct exec_command *x,
                             const struct captured_place *place) {
  const struct exchange *what = &e->exchanges[x->exchange - 1];
  struct captured_place dst = place[e->args[x->args]], src = place[e->args[x->args + 1]], whole = dst;
  if (!x->sends) {
    src.offset += what->got;
    jit_capture_copy(dst, src, what->received);
    return;
  }
  dst.offset += what->at;
  jit_capture_copy(dst, src, what->sent);
  struct exchange *own = malloc(sizeof *own);
  if (!own) refuse(j, -ENOMEM, "jit: out of memory");
  struct program_command *c = own ? add_command(j, &(struct program_command){.slot = dst.storage->slot}) : NULL;
  if (!c) {
    free(own);
    return;
  }
  *own = *what;
  c->exchange = own;
  c->naccesses = 1;
  add_access(j, whole, exchange_bytes(what), true);
}

void jit_capture_run(const struct executable *e, const struct binding *b, const struct captured_place *place) {
  db_jit *j = capturing;
  if (!j) return;
  struct program *p = &j->program;
  for (size_t i = 0; i < e->ncommands && !j->error; i++) {
    const struct exec_command *x = &e->commands[i];
    const uint32_t *args = e->args + x->args;
    if (x->exchange) {
      capture_transfer(j, e, x, place);
      continue;
    }
    if (!x->kernel) {
      capture_copy(j, place[args[0]], place[args[1]], e->buffers[args[0]].bytes);
      continue;
    }
    struct program_command *c = add_command(
        j,
        &(struct program_command){
            .kernel = x->kernel, .program = x->program, .slot = x->slot, .naccesses = x->nbuffers, .nvars = x->nvars});
    if (!c) return;
    for (uint32_t k = 0; k < x->nbuffers; k++)
      add_access(j, place[args[k]], e->buffers[args[k]].bytes, k < x->noutputs);
    p->var_of = room(j, p->var_of, sizeof *p->var_of, p->nvar_of, x->nvars, &j->var_of_capacity);
    for (uint32_t k = 0; k < x->nvars && !j->error; k++) {
      const struct bound_var *v = &b->vars[args[x->nbuffers + k]];
      p->var_of[p->nvar_of++] = var_of(j, v->name, v->value);
    }
  }
}

void jit_host_read(void) {
  if (capturing)
    refuse(capturing, -EINVAL,
           "jit: a value is read inside the captured function; replays do not run it, so return the tensor instead");
}

void jit_place_varies(void) {
  if (capturing)
    refuse(capturing, -ENOTSUP, "jit: not supported: an assign to a copy of what lies where a variable says");
}

static bool is_known(const db_jit *j, const struct storage *s) {
  for (unsigned i = 0; i < j->program.nmemories; i++)
    if (j->memories[i].storage == s) return true;
  return false;
}

/* The same for what it is a part of. */
static int take_own_memory(struct value *v, int64_t first) {
  struct value *whole = v->whole;
  int err = value_takes_copy(v, first);
  if (err || !whole || value_becomes_parts(whole, (int)whole->real->arg.i, whole->part)) return err;
  return db_fail(-ENOMEM, "jit: out of memory");
}

int jit_unshare(struct value *v) {
  db_jit *j = capturing;
  int64_t first;
  bool shared = false;
  if (!j || !v->storage || v->serial > j->before || v->storage->refs == 1 || is_known(j, v->storage)) return 0;
  for (const struct value *o = rt.values; o && !shared; o = o->next)
    shared = o != v && o->storage == v->storage && o->serial <= j->before;
  if (!shared) return 0;
  if (!value_is_contiguous(v, &first))
    return db_fail(-ENOTSUP,
                   "jit: not supported: a tensor that is a view, not contiguous, of memory that others are in; "
                   "use the tensor that it is a view of");
  capturing = NULL; /* done once, not by each call */
  int err = take_own_memory(v, first);
  capturing = j;
  return err;
}

void jit_assign_moves(const struct value *from) {
  if (capturing && from->serial <= capturing->before)
    refuse(capturing, -ENOTSUP,
           "jit: not supported: a tensor that was there before is assigned while its old value is still needed, "
           "by another tensor or a later step; compute what needs it before the assign");
}

db_tensor *jit_random_count(db_device *dev, uint32_t *stream) {
  db_jit *j = capturing;
  if (!j) return NULL;
  capturing = NULL; /* what follows is done once, not by each call */
  pthread_mutex_lock(&rt.lock);
  int slot = slot_of(dev);
  pthread_mutex_unlock(&rt.lock);
  if (slot >= 0 && !j->count[slot]) {
    db_tensor *t = db_from_at(DB_HERE, (uint32_t[]){0}, DB_U32, dev, DB_LIST(1));
    if (!db_poison(t)) j->count[slot] = db_retain(t);
  }
  pthread_mutex_lock(&rt.lock);
  if (slot >= 0) slot_release((unsigned)slot);
  pthread_mutex_unlock(&rt.lock);
  capturing = j;
  *stream = j->stream;
  if (slot < 0 || !j->count[slot]) {
    refuse(j, -ENOMEM, "jit: no state for random numbers: %s", db_error());
    return NULL;
  }
  return db_add(j->count[slot], (int64_t)j->random_calls[slot]++);
}

/* Each call goes on where the last one's numbers ended. */
static int advance_random(db_jit *j) {
  int err = 0;
  for (unsigned i = 0; i < NUMBERS && !err; i++) {
    if (!j->count[i]) continue;
    db_assign(j->count[i], db_add(j->count[i], (int64_t)j->random_calls[i]));
    err = db_realize(j->count[i]);
  }
  return err;
}

/* ---- after the function has run ---- */

/* What now stands for the value's memory: assigns go on from one value to the next. */
static struct value *newest(struct value *v) {
  while (v->stale && v->newer) v = v->newer;
  return v;
}

static void follow(struct captured_memory *m) {
  struct value *v = newest(m->value);
  if (v == m->value) return;
  value_retain(v);
  value_release(m->value);
  m->value = v;
}

int jit_find_outer(struct captured_memory *m, struct storage **out) {
  follow(m);
  *out = m->value->storage;
  if (*out && !m->value->stale) return 0;
  return db_fail(-EINVAL, "jit: a tensor that the captured function uses was overwritten at %s:%d; capture again",
                 m->value->file ? m->value->file : "?", m->value->line);
}

static int describe_output(db_jit *j, unsigned i, const struct value *v, struct captured_output *o) {
  bool varies;
  if (!value_place(v, &o->offset, &varies))
    return db_fail(-ENOTSUP, "jit: not supported: output %u is a view of memory that is not contiguous", i);
  if (varies) return db_fail(-ENOTSUP, "jit: not supported: output %u is a view at a place that a variable says", i);
  if (v->storage->size) o->memory = memory_of(j, v->storage);
  if (j->error) return db_fail(j->error, "%s", j->error_text);
  if (o->memory != UINT32_MAX && j->memories[o->memory].kind == OWNED) {
    j->memories[o->memory].output = true;
    j->program.memories[o->memory].varies = true;
  }
  return 0;
}

static bool add_var(void *ctx, const char *name, int64_t value) {
  var_of(ctx, name, value);
  return true;
}

static int describe_outputs(db_jit *j, db_tensor *const *out) {
  int err = 0;
  for (unsigned i = 0; i < j->nout && !err; i++) {
    struct captured_output *o = &j->out[i];
    const db_tensor *t = out[i];
    const struct value *v = t->value;
    free(o->part);
    *o = (struct captured_output){.memory = UINT32_MAX, .dtype = t->dtype, .slot = v->slot, .rank = t->rank};
    memcpy(o->dim, t->dim, t->rank * sizeof *t->dim);
    for (unsigned k = 0; k < t->rank; k++) dim_each_var(t->dim[k], add_var, j);
    o->sized = dims_symbolic(t->rank, t->dim);
    if (o->sized && v->part)
      return db_fail(-ENOTSUP, "jit: not supported: output %u, on several devices, has symbolic sizes, %s", i,
                     SHAPE(*t));
    if (!v->part) {
      err = describe_output(j, i, v, o);
      continue;
    }
    o->axis = (int)v->real->arg.i;
    struct captured_output *part = calloc(value_count(v), sizeof *part);
    if (!part) return db_fail(-ENOMEM, "jit: out of memory");
    for (unsigned k = 0; k < value_count(v) && !err; k++) {
      part[k] = *o;
      part[k].slot = v->part[k]->slot;
      if (o->axis >= 0) part[k].dim[o->axis] = v->part[k]->real->shape->dim[o->axis]->arg.i;
      err = describe_output(j, i, v->part[k], &part[k]);
    }
    o->part = part;
  }
  return err;
}

static int input_is_assigned(unsigned i) {
  return db_fail(-ENOTSUP,
                 "jit: not supported: input %u is assigned inside; return its new value, or assign a tensor that "
                 "the function finds elsewhere",
                 i);
}

/* Values that parameters have now, by their memory. */
static int settle_memories(db_jit *j) {
  for (unsigned i = 0; i < j->program.nmemories; i++) {
    struct captured_memory *m = &j->memories[i];
    if (m->kind == INPUT) m->storage = NULL;
    if (m->kind == INPUT && m->written) return input_is_assigned(m->input);
    if (m->kind != OUTER) continue;
    follow(m);
    if (m->value->refs == 1 && m->value->serial <= j->before)
      return db_fail(-ENOTSUP,
                     "jit: not supported: a tensor that was there before is released inside, or made to stand "
                     "for something else without db_assign, which replays could not do");
    if (m->value->storage != m->storage)
      return db_fail(-ENOTSUP, "jit: not supported: a tensor that was computed before is given other memory inside");
  }
  return 0;
}

/* ---- calls ---- */

static int check_input(const db_jit *j, unsigned i, const db_tensor *t) {
  const struct captured_input *c = &j->in[i];
  if (t->dtype != c->dtype)
    return db_fail(-EINVAL, "jit: input %u is of %s, it was captured as %s", i, dtype_info[t->dtype].name,
                   dtype_info[c->dtype].name);
  if (t->value->slot != c->slot)
    return db_fail(-EINVAL, "jit: input %u is on %s, it was captured on %s", i,
                   db_device_name(slot_device(t->value->slot)), db_device_name(slot_device(c->slot)));
  bool same = t->rank == c->rank;
  for (unsigned k = 0; k < t->rank && same; k++) same = dim_unbound(t->dim[k]) == dim_unbound(c->dim[k]);
  if (!same)
    return db_fail(-EINVAL, "jit: input %u is %s, it was captured as %s", i, SHAPE(*t), shape_text(c->rank, c->dim).s);
  return 0;
}

/* Whether a realized input is split as the captured one was. */
static int check_split(const db_jit *j, unsigned i) {
  const struct captured_input *c = &j->in[i];
  const struct value *v = j->given[i];
  int64_t bound[DB_GROUP_MAX + 1];
  int axis;
  int err = v->part ? value_sharding(j->given[i], &axis, bound) : 0;
  if (err || !v->part) return err;
  if (axis == c->axis && (axis < 0 || !memcmp(bound, c->bound, (value_count(v) + 1) * sizeof *bound))) return 0;
  return db_fail(-EINVAL,
                 "jit: input %u is split along axis %d, in other parts than along axis %d when it was captured", i,
                 axis, c->axis);
}

static bool is_aligned(const struct value *v, int64_t first) {
  return (uint64_t)first * dtype_info[v->expr->dtype].size % SLICE_ALIGNMENT == 0;
}

/* Kernels take inputs to be aligned: a slice that is not gets memory of its own. */
static int align_input(struct value *v) {
  int64_t first = 0;
  int err = 0;
  if (!v->part) return !value_is_contiguous(v, &first) || is_aligned(v, first) ? 0 : value_takes_copy(v, first);
  for (unsigned k = 0; k < value_count(v) && !err; k++) err = align_input(v->part[k]);
  return err || value_becomes_parts(v, (int)v->real->arg.i, v->part) ? err : db_fail(-ENOMEM, "jit: out of memory");
}

/* Whether all inputs lie in memory, in order and aligned, and where: parts of what is on groups one behind the other. */
static bool inputs_computed(db_jit *j) {
  unsigned n = 0;
  for (unsigned i = 0; i < j->nin; i++) {
    struct value *v = j->given[i];
    unsigned count = v->part ? value_count(v) : 1;
    if (!v->part && !v->storage) return false;
    for (unsigned k = 0; k < count; k++, n++) {
      struct value *x = j->inputs[n] = v->part ? v->part[k] : v;
      if (!value_is_contiguous(x, &j->firsts[n]) || !is_aligned(x, j->firsts[n])) return false;
    }
  }
  j->ninputs = n;
  return true;
}

/* Room for the parts of what is given. */
static int reserve_inputs(db_jit *j) {
  unsigned n = 0;
  for (unsigned i = 0; i < j->nin; i++) n += value_count(j->given[i]);
  if (n <= j->inputs_capacity) return 0;
  struct value **inputs = realloc(j->inputs, n * sizeof *inputs);
  if (inputs) j->inputs = inputs;
  int64_t *firsts = realloc(j->firsts, n * sizeof *firsts);
  if (firsts) j->firsts = firsts;
  if (!inputs || !firsts) return db_fail(-ENOMEM, "jit: out of memory");
  j->inputs_capacity = n;
  return 0;
}

static int take_inputs(db_jit *j, db_tensor *const *in) {
  for (unsigned i = 0; i < j->nin; i++) {
    if (!in[i] || !in[i]->value)
      return db_fail(-EINVAL, "jit: input %u: %s", i, db_poison(in[i]) ? db_poison(in[i]) : "it has no value");
    j->given[i] = in[i]->value;
  }
  int err = 0;
  for (unsigned i = 0; i < j->nin && !err; i++)
    if (j->calls > 1) err = check_input(j, i, in[i]);
  if (!err) err = reserve_inputs(j);
  if (!err && !inputs_computed(j)) {
    err = realize_values(j->given, j->nin, true);
    for (unsigned i = 0; i < j->nin && !err; i++) err = align_input(j->given[i]);
    if (!err && !inputs_computed(j)) err = db_fail(-EPROTO, "jit: the inputs are not in memory");
  }
  for (unsigned i = 0; i < j->nin && !err; i++)
    if (j->calls > 1) err = check_split(j, i);
  return err;
}

static int describe_inputs(db_jit *j, db_tensor *const *in) {
  int err = 0;
  for (unsigned i = 0; i < j->nin && !err; i++) {
    struct captured_input *c = &j->in[i];
    free(c->bound);
    *c = (struct captured_input){in[i]->dtype, in[i]->value->slot, in[i]->rank, {0}, NULL, SHARD_REPLICATED};
    memcpy(c->dim, in[i]->dim, in[i]->rank * sizeof *in[i]->dim);
    if (!in[i]->value->part) continue;
    c->bound = malloc((value_count(in[i]->value) + 1) * sizeof *c->bound);
    err = c->bound ? value_sharding(in[i]->value, &c->axis, c->bound) : db_fail(-ENOMEM, "jit: out of memory");
  }
  return err;
}

static int run_function(db_jit *j, db_tensor *const *in, db_tensor **out) {
  int err = j->fn(j->ctx, in, out);
  if (err) db_fail(err, "jit: the function failed: %s", db_error());
  for (unsigned i = 0; i < j->nout && !err; i++)
    if (!out[i]) err = db_fail(-EINVAL, "jit: the function left output %u unset", i);
  return !err && j->nout ? db_realize_all(out, j->nout) : err;
}

/* Ends the scope that the function ran in; its outputs go to the caller's. */
static void leave_scope(db_jit *j, db_tensor *const *out) {
  for (unsigned i = 0; i < j->nout; i++)
    if (out[i]) db_keep(out[i]);
  db_scope_end();
}

/* Lock held; returns how many tensors the caller has to release without it. */
static unsigned forget(db_jit *j, db_tensor *dropped[NUMBERS]) {
  unsigned n = 0;
  for (unsigned i = 0; i < j->program.nmemories; i++) {
    struct captured_memory *m = &j->memories[i];
    if (m->kind == OWNED) storage_release(m->storage);
    storage_release(m->former);
    if (m->kind == OUTER) value_release(m->value);
  }
  for (unsigned i = 0; i < j->program.nvars; i++) free(j->var_names[i]);
  for (unsigned i = 0; i < NUMBERS; i++) {
    if (j->count[i]) dropped[n++] = j->count[i];
    j->count[i] = NULL;
    j->random_calls[i] = 0;
  }
  program_free(&j->program);
  j->built = false;
  j->failed = 0;
  free(j->memories);
  free(j->var_names);
  free(j->written);
  j->memories = NULL;
  j->var_names = NULL;
  j->written = NULL, j->nwritten = 0;
  j->memories_capacity = j->accesses_capacity = j->commands_capacity = j->vars_capacity = j->var_of_capacity = 0;
  return n;
}

static int list_written(db_jit *j) {
  free(j->written);
  j->nwritten = 0;
  j->written = malloc((j->program.nmemories + 1) * sizeof *j->written);
  if (!j->written) return db_fail(-ENOMEM, "jit: out of memory");
  for (unsigned i = 0; i < j->program.nmemories; i++)
    if (j->memories[i].written && j->memories[i].kind != INPUT) j->written[j->nwritten++] = i;
  return 0;
}

/* Of the program's own memory what nobody else can see may share; not what tensors that the function left elsewhere are in. */
static void mark_shared(db_jit *j) {
  for (unsigned i = 0; i < j->program.nmemories; i++) {
    const struct captured_memory *m = &j->memories[i];
    struct program_memory *to = &j->program.memories[i];
    to->bytes = m->storage && m->kind == OWNED ? m->storage->size : 0;
    to->shares =
        m->kind == OWNED && m->storage && m->storage->refs == 1 && m->written && !m->output && !m->storage->pinned;
  }
}

/* Storage for the memories from the first on, which the plan added; what lies in them goes. */
static int take_shared(db_jit *j, unsigned first) {
  struct program *p = &j->program;
  if (p->nmemories == first) return 0;
  struct captured_memory *more = realloc(j->memories, p->nmemories * sizeof *more);
  if (!more) return db_fail(-ENOMEM, "jit: out of memory");
  j->memories = more;
  for (unsigned i = 0; i < first; i++)
    if (p->memories[i].in) {
      storage_release(more[i].storage);
      more[i].storage = NULL;
      more[i].written = false;
      p->memories[i].buffer = NULL;
    }
  for (unsigned i = first; i < p->nmemories; i++) {
    struct storage *s = storage_new(p->memories[i].slot, rt.next_buffer++, p->memories[i].bytes);
    more[i] = (struct captured_memory){.kind = OWNED, .storage = s, .written = true};
    if (s) p->memories[i].buffer = s->buffer;
  }
  for (unsigned i = first; i < p->nmemories; i++)
    if (!more[i].storage) return -ENOMEM;
  return 0;
}

static int build(db_jit *j) {
  const struct env *env;
  unsigned before = j->program.nmemories;
  int err = env_get(&env);
  mark_shared(j);
  if (!err) err = program_order(&j->program);
  if (!err) err = take_shared(j, before);
  if (!err) err = program_record(&j->program);
  if (err) program_unbuild(&j->program);
  j->failed = err;
  if (!err && env->debug >= 2) jit_print(j, stderr);
  j->built = !err;
  return err;
}

/* The elements of a realized value, as far as variables let them go, in memory that nothing else is in. */
static struct storage *copy_memory(const struct value *v, int64_t first) {
  size_t size = dtype_info[v->expr->dtype].size, bytes = size;
  const struct shape *shape = v->real->shape;
  for (unsigned i = 0; i < shape->rank; i++) bytes *= (size_t)uop_max(shape->dim[i]);
  struct storage *s = storage_new(v->slot, rt.next_buffer++, bytes);
  if (!s || !storage_copy(s, v->storage, (uint64_t)first * size, bytes)) return s;
  storage_release(s);
  return NULL;
}

static struct value *copy_value(const struct value *v) {
  const struct shape *shape = v->real->shape;
  int64_t first = 0, dim[MAX_RANK];
  if (!v->part) {
    value_is_contiguous(v, &first);
    struct storage *s = copy_memory(v, first);
    for (unsigned i = 0; i < shape->rank; i++) dim[i] = dim_of_uop(shape->dim[i]);
    return s ? value_of_storage(s, storage_node(s, 0, v->expr->dtype, shape->rank, dim)) : NULL;
  }
  unsigned n = value_count(v), made = 0;
  struct value **part = malloc(n * sizeof *part), *whole = NULL;
  while (part && made < n && (part[made] = copy_value(v->part[made]))) made++;
  if (part && made == n) whole = value_of_parts(v->slot, (int)v->real->arg.i, part);
  while (!whole && made) value_release(part[--made]);
  if (!whole) free(part);
  return whole;
}

/* While captured, inputs are tensors in memory that nothing else is in: which of the memory that is used is which input can be told. */
static int copy_inputs(db_jit *j, db_tensor *const *in, db_tensor **own) {
  int err = 0;
  pthread_mutex_lock(&rt.lock);
  for (unsigned i = 0; i < j->nin && !err; i++) {
    struct value *v = copy_value(j->given[i]);
    own[i] = v ? tensor_of_value(v, in[i]->dtype, in[i]->rank, in[i]->dim) : NULL;
    if (!own[i]) err = db_fail(-ENOMEM, "jit: input %u: %s", i, v ? "out of memory" : db_error());
  }
  pthread_mutex_unlock(&rt.lock);
  for (unsigned i = 0; i < j->nin && !err; i++) {
    if (in[i]->value->leaf == in[i]) db_requires_grad(own[i]);
    j->given[i] = own[i]->value;
  }
  if (!err && !inputs_computed(j)) err = db_fail(-EPROTO, "jit: the inputs are not in memory");
  return err;
}

static int capture_calls(db_jit *j, db_tensor *const *in, db_tensor **own, db_tensor **out) {
  int err = copy_inputs(j, in, own);
  if (err) return err;
  j->before = rt.serials;
  capturing = j;
  err = run_function(j, own, out);
  if (!err) err = advance_random(j);
  capturing = NULL;
  for (unsigned i = 0; i < j->nin && !err; i++)
    if (own[i]->value != j->given[i]) err = input_is_assigned(i);
  if (!err && j->error) err = db_fail(j->error, "%s", j->error_text);
  return err;
}

static int capture(db_jit *j, db_tensor *const *in, db_tensor **out) {
  db_tensor **own = calloc(j->nin + 1, sizeof(db_tensor *)), *dropped[NUMBERS];
  if (!own) return db_fail(-ENOMEM, "jit: out of memory");
  j->error = 0;
  memset(j->stages, 0, sizeof j->stages);
  db_scope_begin();
  int err = capture_calls(j, in, own, out);
  pthread_mutex_lock(&rt.lock);
  if (!err) err = describe_outputs(j, out);
  pthread_mutex_unlock(&rt.lock);
  leave_scope(j, out);
  free(own);
  pthread_mutex_lock(&rt.lock);
  if (!err) err = settle_memories(j);
  unsigned n = err ? forget(j, dropped) : 0;
  pthread_mutex_unlock(&rt.lock);
  while (n) db_release(dropped[--n]);
  return err;
}

/* Whether something is built on v, or on what it is a part of. */
static bool has_dependents(const struct value *v) { return v->dependents || (v->whole && v->whole->dependents); }

/* What an OUTER memory is in this run. Another tensor that is realized and lies in memory that is written keeps its value: the program goes on in
 * a copy, as an assign outside would. */
static int place_outer(struct captured_memory *m, const struct program_memory *at) {
  const struct value *v = m->value;
  struct storage *s = m->storage;
  if (v->storage == s && s->buffer == at->buffer && !v->stale && !(m->written && (has_dependents(v) || s->refs > 1)))
    return 0;
  int err = jit_find_outer(m, &m->storage);
  if (err || !m->written) return err;
  if (has_dependents(m->value))
    return db_fail(-EINVAL, "jit: a tensor that this assigns has others built on it that are not realized; realize "
                            "or release them before, they would see the new value");
  if (m->storage->refs == 1) return 0;
  if (!value_is_whole_memory(m->value))
    return db_fail(-EINVAL,
                   "jit: a tensor that this assigns is a part of memory that others are in, too; capture again");
  err = take_own_memory(m->value, 0);
  m->storage = m->value->storage;
  return err;
}

/* Somebody may still hold what the last run returned. */
static int place_output(struct captured_memory *m) {
  struct storage *s = m->former;
  if (m->storage->refs == 1) return 0;
  if (!s || s->refs > 1) {
    s = storage_new(m->storage->slot, rt.next_buffer++, m->storage->size);
    if (!s) return -ENOMEM;
    storage_release(m->former);
  }
  m->former = m->storage;
  m->storage = s;
  return 0;
}

/* An input is read where it is, unless the program writes there in this run. */
static int place_input(db_jit *j, struct captured_memory *m, struct program_memory *at) {
  const struct value *v = j->inputs[m->input];
  bool is_written = false;
  at->offset = (uint64_t)j->firsts[m->input] * dtype_info[v->expr->dtype].size;
  at->buffer = v->storage->buffer;
  for (unsigned i = 0; i < j->nwritten && !is_written; i++)
    is_written = j->memories[j->written[i]].storage == v->storage;
  if (!is_written) return 0;
  m->storage = copy_memory(v, j->firsts[m->input]);
  if (!m->storage) return -ENOMEM;
  j->copies = true;
  at->offset = 0;
  at->buffer = m->storage->buffer;
  return 0;
}

/* Copies of inputs are the run's. */
static void drop_copies(db_jit *j) {
  for (unsigned i = 0; i < j->program.nmemories && j->copies; i++)
    if (j->memories[i].kind == INPUT) {
      storage_release(j->memories[i].storage);
      j->memories[i].storage = NULL;
    }
  j->copies = false;
}

/* Where a memory is in this run. */
static inline int place_memory(db_jit *j, uint32_t i) {
  struct captured_memory *m = &j->memories[i];
  struct program_memory *at = &j->program.memories[i];
  int err = 0;
  if (m->kind == INPUT) return place_input(j, m, at);
  if (m->kind == OUTER) err = place_outer(m, at);
  if (m->output) err = place_output(m);
  if (m->storage) at->buffer = m->storage->buffer;
  return err;
}

/* Inputs come last: they may be what the program writes. */
static int place_memories(db_jit *j) {
  const struct program *p = &j->program;
  int err = 0;
  for (int inputs = 0; inputs < 2; inputs++)
    for (unsigned k = 0, n = j->built ? p->nvarying : p->nmemories; k < n && !err; k++) {
      uint32_t i = j->built ? p->varying[k] : k;
      if ((j->memories[i].kind == INPUT) == inputs) err = place_memory(j, i);
    }
  return err;
}

static int bind_vars(db_jit *j, db_tensor *const *in) {
  for (unsigned i = 0; i < j->program.nvars; i++) {
    unsigned from = j->nin;
    int64_t value = 0, other;
    for (unsigned k = 0; k < j->nin; k++)
      for (unsigned a = 0; a < in[k]->rank; a++) {
        if (!dim_var_value(in[k]->dim[a], j->var_names[i], &other)) continue;
        if (from < j->nin && other != value)
          return db_fail(-EINVAL, "jit: %s is %lld in the shape of input %u and %lld in that of input %u",
                         j->var_names[i], (long long)value, from, (long long)other, k);
        from = k, value = other;
      }
    if (from == j->nin)
      return db_fail(-EINVAL,
                     "jit: nothing gives %s a value: a variable that changes between calls has to be in the "
                     "shape of an input",
                     j->var_names[i]);
    j->program.vars[i] = value;
  }
  return 0;
}

static bool value_of_var(void *ctx, const char *name, int64_t *value) {
  const db_jit *j = ctx;
  for (unsigned i = 0; i < j->program.nvars; i++)
    if (!strcmp(j->var_names[i], name)) return *value = j->program.vars[i], true;
  return false;
}

static struct uop *output_node(struct captured_output *o, const struct storage *s, int64_t first) {
  for (int k = 0; k < 2; k++) {
    const struct output_node *n = &o->nodes[k];
    if (n->graph == rt.graphs && n->id == s->id && n->first == first && n->node) return n->node;
  }
  o->nodes[1] = o->nodes[0];
  o->nodes[0] = (struct output_node){rt.graphs, s->id, first, storage_node(s, first, o->dtype, o->rank, o->dim)};
  return o->nodes[0].node;
}

/* The memory that a run has left output o in; NULL: no memory. */
static struct value *output_value(db_jit *j, struct captured_output *o, const int64_t *dim) {
  const struct captured_memory *m = o->memory == UINT32_MAX ? NULL : &j->memories[o->memory];
  int64_t first = o->offset;
  struct storage *s = NULL;
  if (!m)
    s = storage_new(o->slot, rt.next_buffer++, 0);
  else
    s = m->kind == INPUT ? j->inputs[m->input]->storage : m->kind == OUTER ? m->value->storage : m->storage;
  if (!s) return NULL;
  if (m) s->refs++;
  if (m && m->kind == INPUT)
    first += j->firsts[m->input] * dtype_info[j->inputs[m->input]->expr->dtype].size / dtype_info[o->dtype].size;
  return value_of_storage(s, o->sized ? storage_node(s, first, o->dtype, o->rank, dim) : output_node(o, s, first));
}

static struct value *output_parts(db_jit *j, struct captured_output *o) {
  struct value *whole = NULL;
  unsigned n = slot_group(o->slot)->n, made = 0;
  struct value **part = object_new(n * sizeof *part);
  while (part && made < n && (part[made] = output_value(j, &o->part[made], NULL))) made++;
  if (part && made == n) whole = value_of_parts(o->slot, o->axis, part);
  while (!whole && made) value_release(part[--made]);
  if (!whole) object_free(part, n * sizeof *part);
  return whole;
}

static int make_outputs(db_jit *j, db_tensor **out) {
  graph_collect();
  for (unsigned i = 0; i < j->nout; i++) {
    struct captured_output *o = &j->out[i];
    int64_t dim[MAX_RANK];
    for (unsigned k = 0; k < o->rank; k++) dim[k] = o->sized ? dim_rebound(o->dim[k], value_of_var, j) : o->dim[k];
    out[i] = tensor_of_value(o->part ? output_parts(j, o) : output_value(j, o, dim), o->dtype, o->rank, dim);
    if (!out[i]) return db_fail(-ENOMEM, "jit: out of memory for output %u", i);
  }
  return 0;
}

static int replay(db_jit *j, db_tensor *const *in, db_tensor **out) {
  if (j->failed) return db_fail(j->failed, "jit: what was captured could not be made ready before; capture again");
  int err = j->built ? 0 : list_written(j);
  if (!err) err = place_memories(j);
  if (!err) err = bind_vars(j, in);
  if (!err && !j->built) err = build(j);
  if (!err) err = program_run(&j->program);
  drop_copies(j);
  return err ? err : make_outputs(j, out);
}

/* ---- outside ---- */

static _Atomic uint32_t streams;

void jit_stream_taken(uint32_t stream) {
  uint32_t last = streams;
  while (last < stream >> 16 && !atomic_compare_exchange_weak(&streams, &last, stream >> 16)) {}
}

db_jit *jit_new(unsigned nin, unsigned nout) {
  db_jit *j = calloc(1, sizeof *j);
  if (!j) return db_fail_null(-ENOMEM, "jit: out of memory");
  j->nin = nin;
  j->nout = nout;
  j->in = calloc(nin + 1, sizeof *j->in);
  j->out = calloc(nout + 1, sizeof *j->out);
  j->given = calloc(nin + 1, sizeof(struct value *));
  if (j->in && j->out && j->given) return j;
  db_jit_free(j);
  return db_fail_null(-ENOMEM, "jit: out of memory");
}

db_jit *db_jit_new(db_jit_fn *fn, void *ctx, unsigned nin, unsigned nout) {
  if (!fn) return db_fail_null(-EINVAL, "jit: the function is NULL");
  db_jit *j = jit_new(nin, nout);
  if (!j) return NULL;
  j->fn = fn;
  j->ctx = ctx;
  j->stream = ++streams << 16;
  return j;
}

int db_jit_reset(db_jit *j) {
  if (!j) return db_fail(-EINVAL, "jit: there is none to capture again");
  if (!j->fn) return db_fail(-EINVAL, "jit: what was loaded from a file has no function that could be captured again");
  if (capturing) return db_fail(-EINVAL, "jit: a captured function cannot begin captures anew");
  db_tensor *dropped[NUMBERS];
  pthread_mutex_lock(&rt.lock);
  unsigned n = forget(j, dropped);
  j->calls = 0;
  pthread_mutex_unlock(&rt.lock);
  while (n) db_release(dropped[--n]);
  return 0;
}

void db_jit_counts(const db_jit *j, unsigned *nin, unsigned *nout) {
  *nin = j ? j->nin : 0;
  *nout = j ? j->nout : 0;
}

void db_jit_free(db_jit *j) {
  if (!j) return;
  db_tensor *dropped[NUMBERS];
  pthread_mutex_lock(&rt.lock);
  unsigned n = forget(j, dropped);
  pthread_mutex_unlock(&rt.lock);
  while (n) db_release(dropped[--n]);
  jit_loaded_free(j->loaded);
  for (unsigned i = 0; j->in && i < j->nin; i++) free(j->in[i].bound);
  for (unsigned i = 0; j->out && i < j->nout; i++) free(j->out[i].part);
  free(j->in);
  free(j->out);
  free(j->given);
  free(j->inputs);
  free(j->firsts);
  free(j);
}

int db_jit_call(db_jit *j, db_tensor *const *in, db_tensor **out) {
  if (!j || (j->nin && !in) || (j->nout && !out)) return db_fail(-EINVAL, "jit: a list of tensors is NULL");
  if (capturing) return db_fail(-EINVAL, "jit: not supported: a captured function inside another");
  pthread_mutex_lock(&rt.lock);
  const struct env *env;
  int err = runtime_init();
  if (!err) err = env_get(&env);
  if (!err) err = take_inputs(j, in);
  if (!err && j->calls == 1) err = describe_inputs(j, in);
  bool replays = !err && j->calls > 1 && !(j->fn && !env->jit);
  if (replays) {
    j->calls++;
    err = replay(j, in, out);
  }
  pthread_mutex_unlock(&rt.lock);
  if (err || replays) return err;
  if (j->fn && (!env->jit || j->calls == 0)) {
    memset(out, 0, j->nout * sizeof *out);
    db_scope_begin();
    err = run_function(j, in, out);
    leave_scope(j, out);
    if (!err && env->jit) j->calls = 1;
    return err;
  }
  memset(out, 0, j->nout * sizeof *out);
  err = capture(j, in, out);
  if (!err) j->calls = 2;
  return err;
}
