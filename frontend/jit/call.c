/* Captured functions: the first call runs the function, the second also records what it submits (capture.c), and later
 * calls replay the recording (replay.c). This file has the calls and the handling of inputs. */
#include "captured.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- inputs ---- */

static int check_input(const db_jit *j, unsigned i, const db_tensor *t) {
  const struct captured_input *c = &j->in[i];
  if (t->dtype != c->dtype)
    return db_fail(-EINVAL, "jit: input %u has type %s, but was captured with type %s", i, dtype_info[t->dtype].name,
                   dtype_info[c->dtype].name);
  if (t->value->slot != c->slot)
    return db_fail(-EINVAL, "jit: input %u is on %s, but was captured on %s", i,
                   db_device_name(slot_device(t->value->slot)), db_device_name(slot_device(c->slot)));
  bool same = t->rank == c->rank;
  for (unsigned k = 0; k < t->rank && same; k++) same = dim_unbound(t->dim[k]) == dim_unbound(c->dim[k]);
  if (!same)
    return db_fail(-EINVAL, "jit: input %u has shape %s, but was captured with shape %s", i, SHAPE(*t),
                   shape_text(c->rank, c->dim).s);
  return 0;
}

/* Checks that a realized input is split as the captured one was. */
static int check_split(const db_jit *j, unsigned i) {
  const struct captured_input *c = &j->in[i];
  const struct value *v = j->input_values[i];
  int64_t bound[DB_GROUP_MAX + 1];
  int axis;
  int err = v->part ? value_sharding(j->input_values[i], &axis, bound) : 0;
  if (err || !v->part) return err;
  if (axis == c->axis && (axis < 0 || !memcmp(bound, c->bound, (value_count(v) + 1) * sizeof *bound))) return 0;
  return db_fail(-EINVAL, "jit: input %u is split along axis %d into other parts than at capture, along axis %d", i,
                 axis, c->axis);
}

static bool is_aligned(const struct value *v, int64_t first) {
  return (uint64_t)first * dtype_info[v->expr->dtype].size % SLICE_ALIGNMENT == 0;
}

/* Kernels require aligned inputs: an unaligned slice is copied to memory of its own. */
static int align_input(struct value *v) {
  int64_t first = 0;
  int err = 0;
  if (!v->part) return !value_is_contiguous(v, &first) || is_aligned(v, first) ? 0 : value_takes_copy(v, first);
  for (unsigned k = 0; k < value_count(v) && !err; k++) err = align_input(v->part[k]);
  return err || value_becomes_parts(v, (int)v->real->arg.i, v->part) ? err : db_fail(-ENOMEM, "jit: out of memory");
}

bool jit_inputs_computed(db_jit *j) {
  unsigned n = 0;
  for (unsigned i = 0; i < j->nin; i++) {
    struct value *v = j->input_values[i];
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

/* Makes room for the parts of all inputs. */
static int reserve_inputs(db_jit *j) {
  unsigned n = 0;
  for (unsigned i = 0; i < j->nin; i++) n += value_count(j->input_values[i]);
  if (n <= j->inputs_capacity) return 0;
  struct value **inputs = realloc(j->inputs, n * sizeof *inputs);
  if (inputs) j->inputs = inputs;
  int64_t *firsts = realloc(j->firsts, n * sizeof *firsts);
  if (firsts) j->firsts = firsts;
  if (!inputs || !firsts) return db_fail(-ENOMEM, "jit: out of memory");
  j->inputs_capacity = n;
  return 0;
}

static int note_inputs(db_jit *j, db_tensor *const *in) {
  for (unsigned i = 0; i < j->nin; i++) {
    if (!in[i] || !in[i]->value)
      return db_fail(-EINVAL, "jit: input %u: %s", i, db_poison(in[i]) ? db_poison(in[i]) : "it has no value");
    j->input_values[i] = in[i]->value;
  }
  int err = 0;
  for (unsigned i = 0; i < j->nin && !err; i++)
    if (j->calls > 1) err = check_input(j, i, in[i]);
  if (!err) err = reserve_inputs(j);
  if (!err && !jit_inputs_computed(j)) {
    err = realize_values(j->input_values, j->nin, true);
    for (unsigned i = 0; i < j->nin && !err; i++) err = align_input(j->input_values[i]);
    if (!err && !jit_inputs_computed(j)) err = db_fail(-EPROTO, "jit: the inputs are not in memory");
  }
  for (unsigned i = 0; i < j->nin && !err; i++)
    if (j->calls > 1) err = check_split(j, i);
  return err;
}

void jit_input_clear(struct captured_input *c) {
  if (c->bound) slot_release(c->slot);
  free(c->bound);
  *c = (struct captured_input){0};
}

void jit_output_clear(struct captured_output *o) {
  if (o->part) slot_release(o->slot);
  free(o->part);
  *o = (struct captured_output){0};
}

unsigned jit_input_of(const db_jit *j, unsigned place, unsigned *part) {
  unsigned i = 0, n;
  for (; place >= (n = j->in[i].bound ? slot_group(j->in[i].slot)->n : 1); i++) place -= n;
  *part = place;
  return i;
}

static int describe_inputs(db_jit *j, db_tensor *const *in) {
  int err = 0;
  for (unsigned i = 0; i < j->nin && !err; i++) {
    struct captured_input *c = &j->in[i];
    jit_input_clear(c);
    *c = (struct captured_input){in[i]->dtype, in[i]->value->slot, in[i]->rank, {0}, NULL, SHARD_REPLICATED};
    memcpy(c->dim, in[i]->dim, in[i]->rank * sizeof *in[i]->dim);
    if (!in[i]->value->part) continue;
    c->bound = malloc((value_count(in[i]->value) + 1) * sizeof *c->bound);
    if (c->bound) slot_retain(c->slot);
    err = c->bound ? value_sharding(in[i]->value, &c->axis, c->bound) : db_fail(-ENOMEM, "jit: out of memory");
  }
  return err;
}

/* Whether an assign is not computed yet and a tensor still refers to it. */
static bool is_wanted(const struct value *v) {
  return !v->real && !v->stale && v->refs > v->dependents + 1; /* 1: the reference in struct assigns */
}

/* Computes the outputs together with the function's assigns, because they share subexpressions. */
static int realize_results(const db_jit *j, db_tensor *const *out, const struct assigns *made) {
  unsigned n = 0;
  int err = 0;
  struct value **v = malloc((j->nout + made->n + 1) * sizeof(struct value *));
  if (!v || made->failed) {
    free(v);
    return db_fail(-ENOMEM, "jit: out of memory");
  }
  pthread_mutex_lock(&rt.lock);
  for (unsigned i = 0; i < j->nout && !err; i++) {
    const char *poison = out[i] ? db_poison(out[i]) : NULL;
    if (!out[i])
      err = db_fail(-EINVAL, "jit: the function left output %u unset", i);
    else if (!out[i]->value)
      err = db_fail(-EINVAL, "jit: output %u: %s", i, poison ? poison : "it has no value");
    else
      v[n++] = out[i]->value;
  }
  for (size_t i = 0; i < made->n; i++)
    if (is_wanted(made->values[i])) v[n++] = made->values[i];
  if (!err) err = realize_values(v, n, false);
  pthread_mutex_unlock(&rt.lock);
  free(v);
  return err;
}

int jit_run_function(db_jit *j, db_tensor *const *in, db_tensor **out) {
  struct assigns made = {0}, *outer = assigns_made;
  struct capture *counted = counting;
  assigns_made = &made, counting = &j->capture;
  j->capture = (struct capture){&jit_capture_ops, rt.serials};
  memset(j->random_calls, 0, sizeof j->random_calls);
  int err = j->fn(j->ctx, in, out);
  assigns_made = outer, counting = counted;
  if (err)
    db_fail(err, "jit: the function failed: %s", db_error());
  else
    err = realize_results(j, out, &made);
  assigns_free(&made);
  return err ? err : jit_advance_random(j);
}

void jit_leave_scope(db_jit *j, db_tensor *const *out) {
  for (unsigned i = 0; i < j->nout; i++)
    if (out[i]) db_keep(out[i]);
  db_scope_end();
}

void jit_forget(db_jit *j) {
  for (unsigned i = 0; i < j->program.nmemories; i++) {
    struct captured_memory *m = &j->memories[i];
    if (m->kind == OWNED) storage_release(m->storage);
    storage_release(m->previous_storage);
    if (m->kind == OUTER) value_release(m->value);
  }
  for (unsigned i = 0; i < j->program.nvars; i++) free(j->var_names[i]);
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
}

/* ---- public functions ---- */

/* The number of the last stream. Every access is a separate atomic update; no other data depends on its order. */
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
  j->input_values = calloc(nin + 1, sizeof(struct value *));
  if (j->in && j->out && j->input_values) return j;
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
  if (!j) return db_fail(-EINVAL, "jit: the db_jit is NULL: there is nothing to capture again");
  if (!j->fn) return db_fail(-EINVAL, "jit: a program loaded from a file has no function to capture again");
  if (capturing) return db_fail(-EINVAL, "jit: a captured function cannot reset captures");
  pthread_mutex_lock(&rt.lock);
  jit_forget(j);
  j->calls = 0;
  pthread_mutex_unlock(&rt.lock);
  return 0;
}

void db_jit_counts(const db_jit *j, unsigned *nin, unsigned *nout) {
  if (nin) *nin = j ? j->nin : 0;
  if (nout) *nout = j ? j->nout : 0;
}

void db_jit_free(db_jit *j) {
  if (!j) return;
  pthread_mutex_lock(&rt.lock);
  jit_forget(j);
  for (unsigned i = 0; j->in && i < j->nin; i++) jit_input_clear(&j->in[i]);
  for (unsigned i = 0; j->out && i < j->nout; i++) jit_output_clear(&j->out[i]);
  pthread_mutex_unlock(&rt.lock);
  for (unsigned i = 0; i < j->nrandom; i++) db_release(j->random_count[j->random_slots[i]]);
  jit_loaded_free(j->loaded);
  free(j->in);
  free(j->out);
  free(j->input_values);
  free(j->inputs);
  free(j->firsts);
  free(j);
}

int db_jit_call(db_jit *j, db_tensor *const *in, db_tensor **out) {
  if (!j || (j->nin && !in) || (j->nout && !out)) return db_fail(-EINVAL, "jit: a list of tensors is NULL");
  if (capturing) return db_fail(-EINVAL, "jit: not supported: a call of a captured function inside another");
  pthread_mutex_lock(&rt.lock);
  const struct env *env;
  int err = runtime_init();
  if (!err) err = env_get(&env);
  if (!err) err = note_inputs(j, in);
  if (!err && j->calls == 1) err = describe_inputs(j, in);
  bool replays = !err && j->calls > 1 && !(j->fn && !env->jit);
  if (replays) {
    j->calls++;
    err = jit_replay(j, in, out);
  }
  pthread_mutex_unlock(&rt.lock);
  if (err || replays) return err;
  if (j->fn && (!env->jit || j->calls == 0)) {
    if (j->nout) memset(out, 0, j->nout * sizeof *out);
    db_scope_begin();
    err = jit_run_function(j, in, out);
    jit_leave_scope(j, out);
    if (!err && env->jit) j->calls = 1;
    return err;
  }
  if (j->nout) memset(out, 0, j->nout * sizeof *out);
  err = jit_capture(j, in, out);
  if (!err) j->calls = 2;
  return err;
}
