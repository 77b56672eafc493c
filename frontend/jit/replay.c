/* Replaying: finds the memory of this call, binds the variables, runs the program and makes tensors for the outputs.
 * The first replay builds the program. */
#include "captured.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Lists the memories that the program writes and others may see. The program's own memory that nobody else holds is not
 * listed. */
static int list_written(db_jit *j) {
  free(j->written);
  j->nwritten = 0;
  j->writes_input = false;
  j->written = malloc((j->program.nmemories + 1) * sizeof *j->written);
  if (!j->written) return db_fail(-ENOMEM, "jit: out of memory");
  for (unsigned i = 0; i < j->program.nmemories; i++) {
    const struct captured_memory *m = &j->memories[i];
    bool is_seen = m->kind == OUTER || (m->kind == OWNED && (m->output || (m->storage && m->storage->refs > 1)));
    if (m->written && is_seen) j->written[j->nwritten++] = i;
    j->writes_input |= m->written && m->kind == INPUT;
  }
  return 0;
}

/* Marks the program's own memory that nobody else can see as shareable. Memory of tensors that the function left
 * elsewhere is not. */
static void mark_shared(db_jit *j) {
  for (unsigned i = 0; i < j->program.nmemories; i++) {
    const struct captured_memory *m = &j->memories[i];
    struct program_memory *to = &j->program.memories[i];
    to->bytes = m->storage && m->kind == OWNED ? m->storage->size : 0;
    to->shares =
        m->kind == OWNED && m->storage && m->storage->refs == 1 && m->written && !m->output && !m->storage->pinned;
  }
}

/* Allocates the memories from `first` on, which the plan added, and frees those placed in them. */
static int allocate_planned(db_jit *j, unsigned first) {
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

/* Orders the memories as calls look them up: inputs last, because place_input compares them with the memories that the
 * program writes. */
static void order_varying(db_jit *j) {
  struct program *p = &j->program;
  unsigned n = 0;
  for (unsigned k = 0; k < p->nvarying; k++) {
    uint32_t i = p->varying[k];
    if (j->memories[i].kind == INPUT) continue;
    p->varying[k] = p->varying[n];
    p->varying[n++] = i;
  }
}

static int build_program(db_jit *j) {
  const struct env *env;
  unsigned before = j->program.nmemories;
  int err = env_get(&env);
  mark_shared(j);
  if (!err) err = program_order(&j->program);
  if (!err) err = allocate_planned(j, before);
  if (!err) err = program_record(&j->program);
  if (!err) order_varying(j);
  if (err) program_unbuild(&j->program);
  j->failed = err;
  if (!err && env->debug >= 2) jit_print(j, stderr);
  j->built = !err;
  return err;
}

/* Whether a value depends on v, or on the value of which v is a part. */
static bool has_dependents(const struct value *v) { return v->dependents || (v->whole && v->whole->dependents); }

/* Finds the storage of an OUTER memory for this run. If other realized tensors share memory that the program writes,
 * they keep their values: the program continues in a copy, as an assign would. */
static int place_outer(struct captured_memory *m, const struct program_memory *at) {
  const struct value *v = m->value;
  struct storage *s = m->storage;
  if (v->storage == s && s->buffer == at->buffer && !v->stale && !(m->written && (has_dependents(v) || s->refs > 1)))
    return 0;
  int err = jit_find_outer(m, &m->storage);
  if (err || !m->written) return err;
  if (has_dependents(m->value))
    return db_fail(-EINVAL, "jit: tensors that are not realized depend on a tensor to which the function assigns; "
                            "realize or release them first, because they would see the new value");
  if (m->storage->refs == 1) return 0;
  if (!value_is_whole_memory(m->value))
    return db_fail(-EINVAL,
                   "jit: the function assigns to a tensor that shares its memory with other tensors; capture again");
  err = jit_take_own_memory(m->value, 0);
  m->storage = m->value->storage;
  return err;
}

/* Alternates between two storages, because a caller may still hold the output of the last run. */
static int place_output(struct captured_memory *m) {
  struct storage *s = m->previous_storage;
  if (m->storage->refs == 1) return 0;
  if (!s || s->refs > 1) {
    s = storage_new(m->storage->slot, rt.next_buffer++, m->storage->size);
    if (!s) return -ENOMEM;
    storage_release(m->previous_storage);
  }
  m->previous_storage = m->storage;
  m->storage = s;
  return 0;
}

/* An input is used in place, unless the program writes its memory in this run; then it is copied. */
static int place_input(db_jit *j, struct captured_memory *m, struct program_memory *at) {
  const struct value *v = j->inputs[m->input];
  bool is_written = false;
  int err = storage_check(v->storage);
  if (err) return err;
  at->offset = (uint64_t)j->firsts[m->input] * dtype_info[v->expr->dtype].size;
  at->buffer = v->storage->buffer;
  for (unsigned i = 0; i < j->nwritten && !is_written; i++)
    is_written = j->memories[j->written[i]].storage == v->storage;
  if (!is_written) return 0;
  m->storage = jit_copy_memory(v, j->firsts[m->input]);
  if (!m->storage) return -ENOMEM;
  j->copies = true;
  at->offset = 0;
  at->buffer = m->storage->buffer;
  return 0;
}

/* Copies of inputs are used by one run only. */
static void drop_copies(db_jit *j) {
  for (unsigned i = 0; i < j->program.nmemories && j->copies; i++)
    if (j->memories[i].kind == INPUT) {
      storage_release(j->memories[i].storage);
      j->memories[i].storage = NULL;
    }
  j->copies = false;
}

/* Finds the buffer of a memory for this run. */
static inline int place_memory(db_jit *j, uint32_t i) {
  struct captured_memory *m = &j->memories[i];
  struct program_memory *at = &j->program.memories[i];
  int err = 0;
  if (m->kind == INPUT) return place_input(j, m, at);
  if (m->kind == OUTER && !(err = place_outer(m, at))) err = storage_check(m->storage);
  if (m->output) err = place_output(m);
  if (m->storage) at->buffer = m->storage->buffer;
  return err;
}

static int place_memories(db_jit *j) {
  const struct program *p = &j->program;
  int err = 0;
  if (j->built) {
    for (unsigned k = 0; k < p->nvarying && !err; k++) err = place_memory(j, p->varying[k]);
    return err;
  }
  for (int inputs = 0; inputs < 2; inputs++)
    for (unsigned i = 0; i < p->nmemories && !err; i++)
      if ((j->memories[i].kind == INPUT) == inputs) err = place_memory(j, i);
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
          return db_fail(-EINVAL,
                         "jit: variable %s is %lld in the shape of input %u, but %lld in the shape of input %u",
                         j->var_names[i], (long long)value, from, (long long)other, k);
        from = k, value = other;
      }
    if (from == j->nin)
      return db_fail(
          -EINVAL,
          "jit: variable %s has no value: a variable that changes between calls must occur in the shape of an input",
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

/* A value for output o, in the memory where this run leaves it. Returns NULL if memory runs out. */
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

/* A run that failed may have started on some queues. */
static int run_program(db_jit *j) {
  int err = program_run(&j->program);
  for (unsigned i = 0; i < j->nwritten; i++)
    if (j->memories[j->written[i]].storage) storage_written(j->memories[j->written[i]].storage);
  for (unsigned i = 0; i < j->nin && j->writes_input; i++)
    if (j->inputs[i]->storage) storage_written(j->inputs[i]->storage);
  return err;
}

int jit_replay(db_jit *j, db_tensor *const *in, db_tensor **out) {
  if (j->failed)
    return db_fail(j->failed, "jit: an earlier attempt to build the captured program failed; capture again");
  int err = j->built ? 0 : list_written(j);
  if (!err) err = place_memories(j);
  if (!err) err = bind_vars(j, in);
  if (!err && !j->built) err = build_program(j);
  if (!err) err = run_program(j);
  drop_copies(j);
  return err ? err : make_outputs(j, out);
}
