/* Capturing: runs a function, records what it submits, and then determines what each memory is used for.
 *
 * The memory of a command is identified by its storage. So memories that a replay must tell apart get separate storages
 * while capturing: inputs are copies, and tensors made before the capture do not share memory. */
#include "captured.h"
#include "../run/custom.h"
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static db_jit *jit_of(struct capture *c) { return (db_jit *)((char *)c - offsetof(db_jit, capture)); }

/* ---- capturing ---- */

void jit_refuse(db_jit *j, int err, const char *fmt, ...) {
  if (j->error) return;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(j->error_text, sizeof j->error_text, fmt, ap);
  va_end(ap);
  j->error = err;
}

/* Makes room for n more elements and returns the array. If memory runs out, refuses the capture and returns the old
 * array. */
static void *grow_array(db_jit *j, void *array, size_t size, size_t count, size_t n, size_t *capacity) {
  if (array && count + n <= *capacity) return array;
  size_t more = *capacity ? 2 * *capacity : 64;
  while (more < count + n) more *= 2;
  void *p = realloc(array, more * size);
  if (!p) {
    jit_refuse(j, -ENOMEM, "jit: out of memory");
    return array;
  }
  *capacity = more;
  return p;
}

static struct value *find_value(const struct storage *s) {
  for (struct value *v = rt.values; v; v = v->next)
    if (v->storage == s) return v;
  return NULL;
}

/* Memory that no tensor refers to belongs to the program. */
static uint32_t memory_of(db_jit *j, struct storage *s) {
  struct program *p = &j->program;
  for (unsigned i = 0; i < p->nmemories; i++)
    if (j->memories[i].storage == s) return i;
  size_t capacity = j->memories_capacity;
  j->memories = grow_array(j, j->memories, sizeof *j->memories, p->nmemories, 1, &capacity);
  p->memories = grow_array(j, p->memories, sizeof *p->memories, p->nmemories, 1, &j->memories_capacity);
  if (j->error) return 0;
  struct captured_memory *m = &j->memories[p->nmemories];
  *m = (struct captured_memory){.kind = OWNED, .storage = s};
  for (unsigned i = 0; i < j->ninputs; i++)
    if (j->inputs[i]->storage == s) m->kind = INPUT, m->input = i;
  if (m->kind == OWNED && (m->value = find_value(s))) {
    m->kind = OUTER;
    value_retain(m->value);
  }
  if (m->kind == OWNED) s->refs++;
  p->memories[p->nmemories] = (struct program_memory){s->buffer, 0, s->slot, m->kind != OWNED};
  return p->nmemories++;
}

static void add_access(db_jit *j, struct captured_place place, uint64_t bytes, bool written) {
  struct program *p = &j->program;
  p->accesses = grow_array(j, p->accesses, sizeof *p->accesses, p->naccesses, 1, &j->accesses_capacity);
  uint32_t memory = memory_of(j, place.storage);
  if (j->error) return;
  j->memories[memory].written |= written;
  p->accesses[p->naccesses++] = (struct program_access){memory, written, place.offset, bytes};
}

static struct program_command *add_command(db_jit *j, const struct program_command *like) {
  struct program *p = &j->program;
  p->commands = grow_array(j, p->commands, sizeof *p->commands, p->ncommands, 1, &j->commands_capacity);
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
  j->var_names = grow_array(j, j->var_names, sizeof *j->var_names, p->nvars, 1, &capacity);
  p->vars = grow_array(j, p->vars, sizeof *p->vars, p->nvars, 1, &j->vars_capacity);
  char *copy = strdup(name);
  if (j->error || !copy) {
    free(copy);
    jit_refuse(j, -ENOMEM, "jit: out of memory");
    return 0;
  }
  j->var_names[p->nvars] = copy;
  p->vars[p->nvars] = value;
  return p->nvars++;
}

/* bytes is at most STAGE_PIECE if one of the two is staging memory. */
static void add_piece(db_jit *j, unsigned slot, struct captured_place dst, struct captured_place src, uint64_t bytes) {
  if (!add_command(j, &(struct program_command){.slot = (uint8_t)slot, .naccesses = 2})) return;
  add_access(j, dst, bytes, true);
  add_access(j, src, bytes, false);
}

/* The staging memory for the program's copies from the slot's device. */
static struct storage *stage_of(db_jit *j, unsigned slot) {
  struct captured_stage *s = &j->stages[slot];
  if (s->storage) return s->storage;
  struct storage *made = storage_new_pinned(slot, rt.next_buffer++, STAGE_BYTES);
  if (!made)
    jit_refuse(j, -ENOMEM, "jit: no memory for copies between devices: %s", db_error());
  else
    memory_of(j, s->storage = made); /* memories holds the reference */
  storage_release(made);
  return j->error ? NULL : made;
}

static void add_copy(db_jit *j, struct captured_place dst, struct captured_place src, uint64_t bytes) {
  unsigned a = dst.storage->slot, b = src.storage->slot;
  enum copy_way way = copy_way(a, b);
  if (way != COPY_STAGED) {
    add_piece(j, way == COPY_BY_DESTINATION ? a : b, dst, src, bytes);
    return;
  }
  for (uint64_t n; bytes && !j->error; bytes -= n, dst.offset += n, src.offset += n) {
    bool anew; /* not used: program_order derives the order of the pieces from the bytes they touch */
    n = bytes < STAGE_PIECE ? bytes : STAGE_PIECE;
    struct captured_place between = {.storage = stage_of(j, b)};
    if (!between.storage) return;
    between.offset = stage_take(&j->stages[b].stage, n, &anew);
    add_piece(j, b, between, src, n);
    add_piece(j, a, dst, between, n);
  }
}

static void on_copy(struct capture *c, struct captured_place dst, struct captured_place src, uint64_t bytes) {
  if (!jit_of(c)->error) add_copy(jit_of(c), dst, src, bytes);
}

/* Adds the copy that starts an exchange and the exchange, or the copy that ends it. */
static void add_transfer(db_jit *j, const struct executable *e, const struct exec_command *x,
                         const struct captured_place *place) {
  const struct exchange *what = &e->exchanges[x->exchange - 1];
  struct captured_place dst = place[e->args[x->args]], src = place[e->args[x->args + 1]], whole = dst;
  if (!x->sends) {
    src.offset += what->got;
    add_copy(j, dst, src, what->received);
    return;
  }
  dst.offset += what->at;
  add_copy(j, dst, src, what->sent);
  struct exchange *own = malloc(sizeof *own);
  if (!own) jit_refuse(j, -ENOMEM, "jit: out of memory");
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

static void on_run(struct capture *capture, const struct executable *e, const struct binding *b,
                   const struct captured_place *place) {
  db_jit *j = jit_of(capture);
  struct program *p = &j->program;
  for (size_t i = 0; i < e->ncommands && !j->error; i++) {
    const struct exec_command *x = &e->commands[i];
    const uint32_t *args = e->args + x->args;
    if (x->exchange) {
      add_transfer(j, e, x, place);
      continue;
    }
    if (!x->kernel) {
      add_copy(j, place[args[0]], place[args[1]], e->buffers[args[0]].bytes);
      continue;
    }
    struct program_command *c = add_command(
        j,
        &(struct program_command){
            .kernel = x->kernel, .program = x->program, .slot = x->slot, .naccesses = x->nbuffers, .nvars = x->nvars});
    if (!c) return;
    if (x->kernel->arguments) kernel_retain(c->custom = x->kernel);
    for (uint32_t k = 0; k < x->nbuffers; k++) {
      struct captured_place at = place[args[k]];
      uint64_t offset = e->offsets[x->args + k];
      at.offset += offset;
      add_access(j, at, e->buffers[args[k]].bytes - offset, k < x->noutputs);
    }
    p->var_of = grow_array(j, p->var_of, sizeof *p->var_of, p->nvar_of, x->nvars, &j->var_of_capacity);
    for (uint32_t k = 0; k < x->nvars && !j->error; k++) {
      const struct bound_var *v = &b->vars[args[x->nbuffers + k]];
      p->var_of[p->nvar_of++] = var_of(j, v->name, v->value);
    }
  }
}

static void on_refusal(struct capture *c, int err, const char *why) { jit_refuse(jit_of(c), err, "%s", why); }

static bool is_known(const db_jit *j, const struct storage *s) {
  for (unsigned i = 0; i < j->program.nmemories; i++)
    if (j->memories[i].storage == s) return true;
  return false;
}

/* Also updates the value on a group of which it is a part. */
int jit_take_own_memory(struct value *v, int64_t first) {
  struct value *whole = v->whole;
  int err = value_takes_copy(v, first);
  if (err || !whole || value_becomes_parts(whole, (int)whole->real->arg.i, whole->part)) return err;
  return db_fail(-ENOMEM, "jit: out of memory");
}

static int on_use(struct capture *c, struct value *v) {
  db_jit *j = jit_of(c);
  int64_t first;
  bool shared = false;
  if (!v->storage || v->serial > c->before || v->storage->refs == 1 || is_known(j, v->storage)) return 0;
  for (const struct value *o = rt.values; o && !shared; o = o->next)
    shared = o != v && o->storage == v->storage && o->serial <= c->before;
  if (!shared) return 0;
  if (!value_is_contiguous(v, &first))
    return db_fail(-ENOTSUP, "jit: not supported: a tensor that is a non-contiguous view of memory that other tensors "
                             "share; use the tensor that it views");
  capturing = NULL; /* done once, not in every replay */
  int err = jit_take_own_memory(v, first);
  capturing = c;
  return err;
}

const struct capture_ops jit_capture_ops = {on_run, on_copy, on_refusal, on_use, jit_on_random, jit_on_random_calls};

/* ---- after the function has returned ---- */

/* The value that now refers to the memory of v, after assigns. */
static struct value *newest_value(struct value *v) {
  while (v->stale && v->newer) v = v->newer;
  return v;
}

static void follow_assigns(struct captured_memory *m) {
  struct value *v = newest_value(m->value);
  if (v == m->value) return;
  value_retain(v);
  value_release(m->value);
  m->value = v;
}

int jit_find_outer(struct captured_memory *m, struct storage **out) {
  follow_assigns(m);
  *out = m->value->storage;
  if (*out && !m->value->stale) return 0;
  return db_fail(-EINVAL, "jit: a tensor that the captured function uses was overwritten at %s:%d; capture again",
                 m->value->file ? m->value->file : "?", m->value->line);
}

static int describe_output(db_jit *j, unsigned i, const struct value *v, struct captured_output *o) {
  bool varies;
  if (!value_place(v, &o->offset, &varies))
    return db_fail(-ENOTSUP, "jit: not supported: output %u is a non-contiguous view of memory", i);
  if (varies)
    return db_fail(-ENOTSUP, "jit: not supported: output %u is a view whose position depends on a variable", i);
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
    jit_output_clear(o);
    *o = (struct captured_output){.memory = UINT32_MAX, .dtype = t->dtype, .slot = v->slot, .rank = t->rank};
    memcpy(o->dim, t->dim, t->rank * sizeof *t->dim);
    for (unsigned k = 0; k < t->rank; k++) dim_each_var(t->dim[k], add_var, j);
    o->sized = dims_symbolic(t->rank, t->dim);
    if (o->sized && v->part)
      return db_fail(-ENOTSUP, "jit: not supported: output %u is on several devices and has symbolic sizes, %s", i,
                     SHAPE(*t));
    if (!v->part) {
      err = describe_output(j, i, v, o);
      continue;
    }
    o->axis = (int)v->real->arg.i;
    struct captured_output *part = calloc(value_count(v), sizeof *part);
    if (!part) return db_fail(-ENOMEM, "jit: out of memory");
    slot_retain(o->slot);
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
                 "jit: not supported: the function assigns to input %u; return its new value, or assign to a tensor "
                 "that is not an input",
                 i);
}

/* Finds the current values of OUTER memories and refuses what replays could not do. */
static int settle_memories(db_jit *j) {
  for (unsigned i = 0; i < j->program.nmemories; i++) {
    struct captured_memory *m = &j->memories[i];
    if (m->kind == INPUT) m->storage = NULL;
    if (m->kind == INPUT && m->written) return input_is_assigned(m->input);
    if (m->kind != OUTER) continue;
    follow_assigns(m);
    if (m->value->refs == 1 && m->value->serial <= j->capture.before)
      return db_fail(-ENOTSUP, "jit: not supported: the function releases a tensor that existed before, or gives it "
                               "another value without db_assign; replays could not do this");
    if (m->value->storage != m->storage)
      return db_fail(-ENOTSUP,
                     "jit: not supported: the function gives other memory to a tensor that was computed before");
  }
  return 0;
}

/* Copies for the largest sizes that the variables allow. */
struct storage *jit_copy_memory(const struct value *v, int64_t first) {
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
    struct storage *s = jit_copy_memory(v, first);
    for (unsigned i = 0; i < shape->rank; i++) dim[i] = dim_of_uop(shape->dim[i]);
    return s ? value_of_storage(s, storage_node(s, 0, v->expr->dtype, shape->rank, dim)) : NULL;
  }
  unsigned n = value_count(v), made = 0;
  struct value **part = object_new(n * sizeof *part), *whole = NULL;
  while (part && made < n && (part[made] = copy_value(v->part[made]))) made++;
  if (part && made == n) whole = value_of_parts(v->slot, (int)v->real->arg.i, part);
  while (!whole && made) value_release(part[--made]);
  if (!whole) object_free(part, n * sizeof *part);
  return whole;
}

/* Replaces the inputs by copies in separate memory while capturing, so that every memory belongs to at most one
 * input. */
static int copy_inputs(db_jit *j, db_tensor *const *in, db_tensor **own) {
  int err = 0;
  pthread_mutex_lock(&rt.lock);
  for (unsigned i = 0; i < j->nin && !err; i++) {
    struct value *v = copy_value(j->input_values[i]);
    own[i] = v ? tensor_of_value(v, in[i]->dtype, in[i]->rank, in[i]->dim) : NULL;
    if (!own[i]) err = db_fail(-ENOMEM, "jit: input %u: %s", i, v ? "out of memory" : db_error());
  }
  pthread_mutex_unlock(&rt.lock);
  for (unsigned i = 0; i < j->nin && !err; i++) {
    if (in[i]->value->leaf == in[i]) db_requires_grad(own[i]);
    j->input_values[i] = own[i]->value;
  }
  if (!err && !jit_inputs_computed(j)) err = db_fail(-EPROTO, "jit: the inputs are not in memory");
  return err;
}

static int capture_calls(db_jit *j, db_tensor *const *in, db_tensor **own, db_tensor **out) {
  int err = copy_inputs(j, in, own);
  if (err) return err;
  capturing = &j->capture;
  err = jit_run_function(j, own, out);
  capturing = NULL;
  for (unsigned i = 0; i < j->nin && !err; i++)
    if (own[i]->value != j->input_values[i]) err = input_is_assigned(i);
  if (!err && j->error) err = db_fail(j->error, "%s", j->error_text);
  return err;
}

int jit_capture(db_jit *j, db_tensor *const *in, db_tensor **out) {
  db_tensor **own = calloc(j->nin + 1, sizeof(db_tensor *));
  if (!own) return db_fail(-ENOMEM, "jit: out of memory");
  j->error = 0;
  memset(j->stages, 0, sizeof j->stages);
  db_scope_begin();
  int err = capture_calls(j, in, own, out);
  pthread_mutex_lock(&rt.lock);
  if (!err) err = describe_outputs(j, out);
  pthread_mutex_unlock(&rt.lock);
  jit_leave_scope(j, out);
  free(own);
  pthread_mutex_lock(&rt.lock);
  if (!err) err = settle_memories(j);
  if (err) jit_forget(j);
  pthread_mutex_unlock(&rt.lock);
  return err;
}
