/* From values to executables: finds what must be computed for the requested values and what an assign may overwrite,
 * and updates the values afterwards.
 *
 * Assigns. A tensor that was assigned by db_assign or db_set refers to an ASSIGN of its old value. Computing the ASSIGN
 * overwrites the memory of the old value in place; readers of the old contents in the same realize are scheduled before
 * it. Realized values keep their contents: while another one shares the memory, the assign writes to a copy. Unrealized
 * values that were built on the old contents do not prevent the overwrite. They become stale, and realizing one is an
 * error that names the assign. Overwritten memory gets a new BUFFER id, so no expression built before can read it. */
#include "capture.h"
#include "../../graph/dims.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_movement(const struct uop *u) { return u->op >= OP_RESHAPE && u->op <= OP_FLIP; }

struct realizing {
  const struct env *env;
  bool keeps; /* assigns write to copies only */
  struct reach reach;
  struct value **values; /* one per root */
  struct uop **roots;
  unsigned n;
};

/* ---- views of memory ---- */

/* Returns u with realized values substituted if it is movement over a BUFFER, else NULL. */
static struct uop *view_of(struct uop *u) {
  struct uop *chain[64], *src[2 * MAX_RANK + 1];
  unsigned n = 0;
  u = binder_resolve(rt.binder, u);
  for (; is_movement(u); u = binder_resolve(rt.binder, u->src[0])) {
    if (n == sizeof chain / sizeof *chain) return NULL;
    chain[n++] = u;
  }
  if (u->op != OP_BUFFER) return NULL;
  while (n-- > 0) {
    struct uop *m = chain[n];
    memcpy(src, m->src, m->nsrc * sizeof *src);
    src[0] = u;
    u = m->src[0] == u ? m : uop_with_src(rt.graph, m, src);
  }
  return u;
}

static struct uop *buffer_under(struct uop *u) {
  while (u->op != OP_BUFFER && u->nsrc) u = u->src[0];
  return u;
}

bool value_is_contiguous(const struct value *v, int64_t *offset) {
  bool all = true, varies;
  for (unsigned i = 0; v->part && i < value_count(v); i++) all = all && value_is_contiguous(v->part[i], offset);
  return v->part ? all : value_place(v, offset, &varies);
}

bool value_place(const struct value *v, int64_t *offset, bool *varies) {
  struct uop *buffer;
  return v->real && uop_contiguous_slice(NULL, v->real, &buffer, offset, varies);
}

bool value_is_whole_memory(const struct value *v) {
  struct uop *u = v->real;
  bool all = true;
  for (unsigned i = 0; v->part && i < value_count(v); i++) all = all && value_is_whole_memory(v->part[i]);
  while (u && u->op == OP_RESHAPE) u = u->src[0];
  return v->part ? all : u && u->op == OP_BUFFER;
}

/* Reports that a value reads memory that no longer exists. */
static int stale_error(const struct realizing *r, int64_t id) {
  const struct value *found = NULL;
  for (size_t i = 0; i < r->reach.n; i++) {
    const struct value *v = r->reach.values[i];
    if (v->stale && (!found || buffer_under(v->expr)->arg.i == id)) found = v;
  }
  if (!found) return db_fail(-EPROTO, "realize: buffer %lld has no memory", (long long)id);
  return db_fail(-EINVAL,
                 "realize: the tensor depends on a value that the assign at %s:%d has overwritten; realize it before "
                 "the assign, or together with the assigned tensor",
                 found->file, found->line);
}

/* ---- roots ---- */

static int add_root(struct realizing *r, struct value *v, struct uop *root) {
  for (unsigned i = 0; i < r->n; i++)
    if (r->values[i] == v) return 0;
  r->values[r->n] = v;
  r->roots[r->n++] = root;
  return 0;
}

/* Makes v a view of memory if possible, else a root. */
static int add_requested(struct realizing *r, struct value *v, bool contiguous) {
  int64_t offset;
  struct uop *u = v->real ? v->real : view_of(v->expr);
  if (u && !v->real) {
    struct uop *b = buffer_under(u);
    struct storage *s = storage_find(b->arg.i);
    if (!s) return stale_error(r, b->arg.i);
    s->refs++;
    value_becomes(v, u, s);
  }
  if (u && (!contiguous || value_is_contiguous(v, &offset))) return 0;
  if (!u) u = v->expr;
  if (v->assigns && !v->real) return add_root(r, v, u);
  /* An expression without memory has no device, so a COPY names it. */
  enum op op = v->placed ? OP_CONTIGUOUS : OP_COPY;
  return add_root(r, v, uop_new(rt.graph, op, u->dtype, 1, (union uop_arg){0}, v->placed ? 0 : v->slot, &u, 1));
}

/* ---- assigns ---- */

// NOLINTNEXTLINE(clang-analyzer-core.NullDereference): lists of values contain no NULL
static bool is_assign(const struct value *v) { return v->assigns && !v->real && !v->stale; }

/* The value in memory that v, an assign, overwrites. It follows a chain of assigns to its start. */
static struct value *overwritten(const struct value *v) {
  struct value *x = v->src[0];
  while (is_assign(x)) x = x->src[0];
  return x;
}

/* Whether two assigns have the same target, somewhere along the chain that ends in v. */
static bool is_contended(const struct value *v) {
  for (; is_assign(v); v = v->src[0])
    if (v->src[0]->targeted > 1) return true;
  return false;
}

/* Marks the assigns in reach that are targets of another one in reach. */
static void mark_superseded(const struct reach *reach) {
  for (size_t i = 0; i < reach->n; i++) reach->values[i]->superseded = false;
  for (size_t i = 0; i < reach->n; i++)
    if (is_assign(reach->values[i])) reach->values[i]->src[0]->superseded = true;
}
static bool is_last(const struct value *v) { return is_assign(v) && !v->superseded; }

/* Performs all assigns in reach; the last one of each chain is a root. If another value must keep the memory, the
 * assign writes to a copy instead. */
static int add_assigns(struct realizing *r) {
  for (size_t i = 0; i < r->reach.n; i++) {
    struct value *v = r->reach.values[i];
    if (!is_last(v)) continue;
    struct value *x = overwritten(v);
    struct uop *buffer = x->real ? buffer_under(x->real) : buffer_under(x->expr);
    if (!x->storage) return stale_error(r, buffer->arg.i);
    add_root(r, v, v->expr);
    if (r->keeps || x->storage->refs > 1 || is_contended(v)) {
      capture_assign_moves(x);
      size_t bytes = (size_t)buffer->src[0]->arg.i * dtype_info[buffer->dtype].size;
      int64_t id = rt.next_buffer++;
      struct storage *copy = storage_new(x->slot, id, bytes);
      if (!copy) return -ENOMEM;
      v->copy = copy;
      int err = storage_copy(copy, x->storage, 0, bytes);
      if (err) return err;
      struct uop *to =
          uop_new(rt.graph, OP_BUFFER, buffer->dtype, 1, (union uop_arg){.i = id}, buffer->aux, buffer->src, 1);
      if (!binder_replace(rt.binder, buffer, to)) return db_fail(-ENOMEM, "realize: out of memory");
      buffer = to;
    }
    if (!binder_mark_written(rt.binder, buffer)) return db_fail(-ENOMEM, "realize: out of memory");
  }
  return 0;
}

/* If two chains of assigns write the same memory, returns the end of one, which must be realized first; else NULL. */
static struct value *competing_assign(const struct reach *reach) {
  struct value *found = NULL;
  for (size_t i = 0; i < reach->n && !found; i++) {
    struct value *v = reach->values[i];
    if (!is_last(v) || !overwritten(v)->storage) continue;
    struct value **last = &overwritten(v)->storage->assigned;
    if (*last && *last != v) found = v;
    *last = v;
  }
  for (size_t i = 0; i < reach->n; i++)
    if (is_last(reach->values[i]) && overwritten(reach->values[i])->storage)
      overwritten(reach->values[i])->storage->assigned = NULL;
  return found;
}

/* Returns the memory that v, an assign, was computed in. Marks the values that were built on the old contents as
 * stale. */
static struct storage *take_assigned_memory(struct value *v) {
  struct value *base = overwritten(v);
  struct storage *s = v->copy;
  v->copy = NULL;
  if (s) return s;
  s = base->storage;
  base->overwritten_real = base->real;
  base->real = NULL;
  base->storage = NULL;
  if (base->newer) base->newer->older = NULL;
  base->newer = v, v->older = base;
  storage_rename(s, rt.next_buffer++);
  for (struct value *x = v->src[0];; x = x->src[0]) {
    x->stale = true, x->file = v->file, x->line = v->line;
    if (x == base) return s;
  }
}

/* ---- realizing ---- */

/* A node with v's shape over the memory that starts at byte `offset`. */
static struct uop *memory_node(const struct value *v, const struct storage *s, uint64_t offset) {
  struct graph *g = rt.graph;
  const struct shape *shape = v->expr->shape;
  uint64_t size = dtype_info[v->expr->dtype].size, whole = s->size / size;
  struct uop *n = uop_index(g, (int64_t)whole), *first = uop_index(g, (int64_t)(offset / size)),
             *length = uop_index(g, 1);
  struct uop *u = uop_new(g, OP_BUFFER, v->expr->dtype, 1, (union uop_arg){.i = s->id}, s->slot, &n, 1);
  for (unsigned i = 0; i < shape->rank; i++) length = dim_mul(g, length, shape->dim[i]);
  if (length != n) {
    struct uop *end = dim_add(g, first, length);
    u = uop_new(g, OP_SHRINK, u->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){u, first, end}, 3);
  }
  if (shape_equal(u->shape, shape)) return u;
  struct uop *src[MAX_RANK + 1] = {u};
  memcpy(src + 1, shape->dim, shape->rank * sizeof *src);
  return uop_new(g, OP_RESHAPE, u->dtype, 1, (union uop_arg){0}, 0, src, shape->rank + 1);
}

int value_takes_copy(struct value *v, int64_t offset) {
  int64_t n = shape_numel(v->expr->shape);
  size_t size = dtype_info[v->expr->dtype].size, bytes = (size_t)n * size;
  bool varies = false;
  if (n < 0) return db_fail(-ENOTSUP, "not supported: a copy of a tensor with a symbolic size");
  if (value_place(v, &offset, &varies) && varies) capture_place_varies();
  struct storage *s = storage_new(v->slot, rt.next_buffer++, bytes);
  if (!s) return -ENOMEM;
  int err = storage_copy(s, v->storage, (uint64_t)offset * size, bytes);
  if (err) {
    storage_release(s);
    return err;
  }
  value_becomes(v, memory_node(v, s, 0), s);
  return 0;
}

static int realize(struct value *const *v, unsigned n, bool contiguous, bool keeps, bool on_devices);

static int run_executable(struct realizing *r) {
  char text[512];
  struct binding b;
  struct executable *e = NULL;
  struct storage **made = calloc(r->n, sizeof(struct storage *));
  if (!made) return db_fail(-ENOMEM, "realize: out of memory");
  int err = binder_bind(rt.binder, r->roots, r->n, SLICE_ALIGNMENT, &b, text, sizeof text);
  if (err) {
    free(made);
    return db_fail(err, "realize: %s", text);
  }
  for (unsigned i = 0; i < b.nbuffers && !err; i++)
    if (!storage_find(b.buffers[i].id)) err = stale_error(r, b.buffers[i].id);
  if (!err && !(e = executable_get(r->env, &b))) err = -EINVAL;
  if (!err) err = executable_run(e, &b, r->env, made);
  for (unsigned i = 0; i < r->n && !err; i++) /* rename overwritten memory before any node names it */
    if (is_assign(r->values[i])) {
      storage_release(made[i]);
      made[i] = take_assigned_memory(r->values[i]);
    }
  for (unsigned i = 0; i < r->n && !err; i++) {
    uint32_t o = e->outputs[i];
    struct uop *real = memory_node(r->values[i], made[i], o < b.nbuffers ? b.buffers[o].offset : 0);
    value_becomes(r->values[i], real, made[i]);
  }
  executable_release(e);
  binding_free(&b);
  free(made);
  return err;
}

/* Returns a requested value that shows memory, as it is or after some assigns, while other assigns in reach overwrite
 * this memory; such a value must be realized first. Of several, the one that depends on the fewest assigns. NULL if
 * there is none. */
static struct value *first_overwritten_view(struct value *const *v, unsigned n, const struct reach *all) {
  struct value *best = NULL;
  size_t fewest = SIZE_MAX, assigns = 0;
  for (size_t i = 0; i < all->n; i++) assigns += is_assign(all->values[i]);
  for (unsigned i = 0; i < n && assigns && n > 1; i++) {
    struct reach own;
    struct uop *u = binder_resolve(rt.binder, v[i]->expr);
    size_t before = 0;
    if (v[i]->real || is_assign(v[i]) || view_of(u)) continue;
    while (is_movement(u) || u->op == OP_CONTIGUOUS) u = binder_resolve(rt.binder, u->src[0]);
    if ((u->op != OP_BUFFER && u->op != OP_ASSIGN) || !values_reach(&v[i], 1, &own)) continue;
    for (size_t k = 0; k < own.n; k++) before += is_assign(own.values[k]);
    reach_free(&own);
    if (before < fewest) fewest = before, best = v[i];
  }
  return best;
}

/* Realizes values none of which depends on a value on a group of devices. */
static int realize_on_devices(struct value *const *v, unsigned n, bool contiguous, bool keeps) {
  return realize(v, n, contiguous, keeps, true);
}

static int realize(struct value *const *v, unsigned n, bool contiguous, bool keeps, bool on_devices) {
  struct realizing r = {.keeps = keeps};
  int err = env_get(&r.env);
  if (err || (err = runtime_init())) return err;
  graph_collect();
  struct value *first;
  do {
    reach_free(&r.reach);
    if (!values_reach(v, n, &r.reach)) err = db_fail(-ENOMEM, "realize: out of memory");
    for (size_t i = 0; i < r.reach.n && !err; i++) err = capture_unshare(r.reach.values[i]);
    if (err || (err = values_replace(&r.reach))) goto out;
    if (!on_devices && values_need_shards(&r.reach)) {
      err = values_realize_shards(v, n, &r.reach, contiguous, keeps, realize_on_devices);
      goto out;
    }
    mark_superseded(&r.reach);
    first = competing_assign(&r.reach);
    if (!first) first = first_overwritten_view(v, n, &r.reach);
    if (first && (err = realize(&first, 1, false, true, on_devices)))
      goto out; /* the other values may read what it would overwrite */
  } while (first);
  r.roots = calloc(n + r.reach.n, sizeof *r.roots);
  r.values = calloc(n + r.reach.n, sizeof(struct value *));
  if (!r.roots || !r.values) {
    err = db_fail(-ENOMEM, "realize: out of memory");
    goto out;
  }
  for (unsigned i = 0; i < n && !err; i++) err = add_requested(&r, v[i], contiguous);
  if (!err && r.n) err = add_assigns(&r);
  if (!err && r.n) err = run_executable(&r);
out:
  for (unsigned i = 0; i < r.n; i++)
    if (r.values[i]->copy) { // NOLINT(clang-analyzer-core.NullDereference): add_root set the first n
      storage_release(r.values[i]->copy);
      r.values[i]->copy = NULL;
    }
  reach_free(&r.reach);
  free(r.roots);
  free(r.values);
  return err;
}

int realize_values(struct value *const *v, unsigned n, bool contiguous) {
  return n ? realize(v, n, contiguous, false, false) : 0;
}
