/* Tensors, the scopes that own them, poison, and the steps common to every operation: take the lock, check the
 * arguments, make the result. */
#include "call.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returned by operations when there is no memory for a tensor; never freed. */
static struct {
  uint32_t refs;
  char text[64];
} no_memory_text = {UINT32_MAX / 2, "out of memory for a tensor"};
static db_tensor no_memory = {.refs = UINT32_MAX / 2, .poison = (struct poison *)&no_memory_text};

/* The poison of freed tensor objects until their memory is reused. */
static struct {
  uint32_t refs;
  char text[64];
} released_text = {UINT32_MAX / 2, "the tensor was released, or its scope has ended"};

/* ---- scopes ---- */

/* A thread's open scopes in one array: each scope is a NULL followed by the tensors that it owns. */
struct scopes {
  db_tensor **tensors;
  size_t n, capacity, depth;
  size_t merged; /* number of scopes that had no memory to begin, and of scopes begun inside them; they count as part of
                    the innermost proper scope */
};
static _Thread_local struct scopes scopes;

static pthread_key_t scopes_key;
static void scopes_key_make(void) { pthread_key_create(&scopes_key, free); }

/* Returns false if memory runs out. */
static bool scopes_push(struct scopes *s, db_tensor *t) {
  if (s->n == s->capacity) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    size_t capacity = s->capacity ? 2 * s->capacity : 64;
    db_tensor **more = realloc(s->tensors, capacity * sizeof *more);
    if (!more) return false;
    s->tensors = more;
    s->capacity = capacity;
    pthread_once(&once, scopes_key_make);
    pthread_setspecific(scopes_key, more); /* freed when the thread ends */
  }
  s->tensors[s->n++] = t;
  return true;
}

static void tensor_free(db_tensor *t) {
  if (t->value && t->value->leaf == t) t->value->leaf = NULL;
  value_release(t->value);
  value_release(t->grad);
  if (t->poison && !--t->poison->refs) free(t->poison);
  *t = (db_tensor){.poison = (struct poison *)&released_text};
  object_free(t, sizeof *t);
}

static void tensor_release(db_tensor *t) {
  if (t && t != &no_memory && !--t->refs) tensor_free(t);
}

/* Moves the caller's reference to the innermost scope. If memory runs out, nobody releases the tensor. */
static db_tensor *add_to_scope(db_tensor *t) {
  if (scopes.depth && t != &no_memory) scopes_push(&scopes, t);
  return t;
}

void db_scope_begin(void) {
  if (scopes.merged || !scopes_push(&scopes, NULL))
    scopes.merged++;
  else
    scopes.depth++;
}

void db_scope_end(void) {
  struct scopes *s = &scopes;
  if (s->merged) {
    s->merged--;
    return;
  }
  if (!s->depth) return;
  pthread_mutex_lock(&rt.lock);
  for (db_tensor *t; (t = s->tensors[--s->n]);) tensor_release(t);
  bool unused = rt.unused;
  pthread_mutex_unlock(&rt.lock);
  s->depth--;
  if (unused) storages_give_back();
}

db_tensor *db_keep(db_tensor *t) {
  struct scopes *s = &scopes;
  if (!t || t == &no_memory || !s->depth) return t;
  size_t at = s->n, begin;
  while (s->tensors[at - 1] && s->tensors[at - 1] != t) at--;
  if (s->tensors[at - 1] && s->merged) return t; /* the enclosing scope owns it already */
  if (s->tensors[at - 1]) {
    s->tensors[at - 1] = s->tensors[--s->n]; /* remove it from this scope */
  } else {
    pthread_mutex_lock(&rt.lock); /* this scope does not own it: add a reference for the enclosing one */
    t->refs++;
    pthread_mutex_unlock(&rt.lock);
  }
  if (s->merged) return add_to_scope(t);
  if (s->depth == 1) return t;
  /* Insert it between the enclosing scope's tensors and the NULL that begins this scope. */
  if (!scopes_push(s, t)) return t;
  for (begin = s->n - 1; s->tensors[begin];) begin--;
  s->tensors[s->n - 1] = s->tensors[begin + 1];
  s->tensors[begin + 1] = NULL;
  s->tensors[begin] = t;
  return t;
}

db_tensor *db_retain(db_tensor *t) {
  if (!t || t == &no_memory) return t;
  pthread_mutex_lock(&rt.lock);
  t->refs++;
  pthread_mutex_unlock(&rt.lock);
  return t;
}

void db_release(db_tensor *t) {
  if (!t) return;
  pthread_mutex_lock(&rt.lock);
  tensor_release(t);
  bool unused = rt.unused;
  pthread_mutex_unlock(&rt.lock);
  if (unused) storages_give_back();
}

/* ---- common steps of operations ---- */

static db_tensor *new_poisoned(struct poison *p) {
  db_tensor *t = p ? object_new(sizeof *t) : NULL;
  if (!t) {
    if (p && !p->refs) free(p);
    return &no_memory;
  }
  t->refs = 1;
  t->poison = p;
  p->refs++;
  return add_to_scope(t);
}

static db_tensor *propagate_poison(const db_tensor *from) {
  return from == &no_memory ? &no_memory : new_poisoned(from->poison);
}

void call_leave(struct call *c) {
  if (c->holds_slot) slot_release(c->slot);
  pthread_mutex_unlock(&rt.lock);
}

db_tensor *call_fail(struct call *c, const char *fmt, ...) {
  char text[1024];
  int n = c->file ? snprintf(text, sizeof text, "%s at %s:%d: ", c->op, c->file, c->line)
                  : snprintf(text, sizeof text,
                             "%s: ", c->op); /* a call without a location, made for an object of the caller */
  va_list ap;
  va_start(ap, fmt);
  if (n > 0 && (size_t)n < sizeof text) vsnprintf(text + n, sizeof text - (size_t)n, fmt, ap);
  va_end(ap);
  struct poison *p = malloc(sizeof *p + strlen(text) + 1);
  if (p) {
    p->refs = 0;
    strcpy(p->text, text);
  }
  c->result = new_poisoned(p);
  call_leave(c);
  return c->result;
}

bool call_begin(struct call *c, const char *op, DB_AT, unsigned nin, db_tensor *const *in) {
  if (!call_begin_sized(c, op, file, line, nin, in)) return false;
  for (unsigned i = 0; i < nin; i++)
    if (dims_symbolic(in[i]->rank, in[i]->dim))
      return call_fail(c, "not supported: argument %u is %s, which has a symbolic size", i + 1, SHAPE(*in[i])), false;
  return true;
}

bool call_begin_sized(struct call *c, const char *op, DB_AT, unsigned nin, db_tensor *const *in) {
  *c = (struct call){.op = op, .file = file, .line = line, .in = in, .nin = nin};
  if (nin && in && nin <= sizeof c->few / sizeof *c->few) c->in = memcpy(c->few, in, nin * sizeof *in);
  pthread_mutex_lock(&rt.lock);
  rt.oversized = false;
  if (nin && !in) return call_fail(c, "the array of %u tensors is NULL", nin), false;
  for (unsigned i = 0; i < nin; i++) {
    if (!in[i]) return call_fail(c, nin > 1 ? "argument %u is NULL" : "the argument is NULL", i + 1), false;
    if (in[i]->poison == (struct poison *)&released_text)
      return call_fail(c, "argument %u was released, or its scope has ended; db_keep moves it to the enclosing scope",
                       i + 1),
             false;
    if (!in[i]->value) {
      c->result = propagate_poison(in[i]);
      pthread_mutex_unlock(&rt.lock);
      return false;
    }
  }
  if (runtime_init()) return call_fail(c, "%s", db_error()), false;
  if (nin) c->slot = in[0]->value->slot;
  for (unsigned i = 1; i < nin; i++)
    if (in[i]->value->slot != c->slot)
      return call_fail(c, "argument %u is on %s, but the first is on %s; move one with db_to%s", i + 1,
                       db_device_name(slot_device(in[i]->value->slot)), db_device_name(slot_device(c->slot)),
                       slot_group(c->slot) || slot_group(in[i]->value->slot) ? " or db_shard" : ""),
             false;
  graph_collect();
  return true;
}

bool call_device(struct call *c, db_device *dev) {
  int slot = slot_of(dev);
  if (slot < 0) return call_fail(c, "%s", db_error()), false;
  c->slot = (unsigned)slot;
  c->holds_slot = true;
  return true;
}

/* Takes over the caller's reference on v. */
static db_tensor *tensor_new(struct value *v, enum dtype t, unsigned rank, const int64_t *dim) {
  db_tensor *x = v ? object_new(sizeof *x) : NULL;
  if (!x) {
    value_release(v);
    return NULL;
  }
  x->refs = 1;
  x->value = v;
  x->dtype = t;
  x->rank = rank;
  memcpy(x->dim, dim, rank * sizeof *dim);
  return add_to_scope(x);
}

db_tensor *call_end_value(struct call *c, struct value *v, enum dtype t, unsigned rank, const int64_t *dim) {
  db_tensor *x = tensor_new(v, t, rank, dim);
  c->result = x ? x : &no_memory;
  call_leave(c);
  return c->result;
}

db_tensor *call_same(struct call *c, db_tensor *t) {
  call_leave(c);
  return c->result = t;
}

struct uop *storage_node(const struct storage *s, int64_t first, enum dtype t, unsigned rank, const int64_t *dim) {
  int64_t n = 1, whole = (int64_t)(s->size / dtype_info[t].size);
  for (unsigned i = 0; i < rank; i++) n = dim_product(n, dim[i]);
  struct uop *length = uop_index(rt.graph, whole);
  struct expr e = {.dtype = t, .rank = 1, .dim = {whole}};
  e.u = uop_new(rt.graph, OP_BUFFER, t, 1, (union uop_arg){.i = s->id}, s->slot, &length, 1);
  e = expr_reshape(expr_bounds(OP_SHRINK, e, (int64_t[]){first, dim_sum(first, n)}), rank, dim);
  return graph_error(rt.graph) ? NULL : e.u;
}

struct value *value_new(struct uop *expr, unsigned slot, db_tensor *const *src, unsigned nsrc) {
  struct value *v = value_blank(expr, slot, nsrc);
  for (unsigned i = 0; v && i < nsrc; i++) value_set_source(v, i, src[i]->value);
  return v;
}

struct value *value_of_storage(struct storage *s, struct uop *node) {
  struct value *v = node ? value_new(node, s->slot, NULL, 0) : NULL;
  if (v)
    value_becomes(v, node, s);
  else
    storage_release(s);
  return v;
}

db_tensor *tensor_of_value(struct value *v, enum dtype t, unsigned rank, const int64_t *dim) {
  return v ? tensor_new(v, t, rank, dim) : NULL;
}

db_tensor *call_end_storage(struct call *c, struct storage *s, int64_t first, enum dtype t, unsigned rank,
                            const int64_t *dim) {
  db_tensor *x = tensor_of_value(value_of_storage(s, storage_node(s, first, t, rank, dim)), t, rank, dim);
  if (!x) return call_fail(c, "out of memory");
  return call_same(c, x);
}

bool call_possible(struct call *c, unsigned rank, const int64_t *dim) {
  if (!rt.oversized && dims_possible(rank, dim)) return true;
  char of[3 * sizeof(struct shape_text)] = "";
  size_t n = 0;
  for (unsigned i = 0; i < c->nin && i < 3; i++)
    n += (size_t)snprintf(of + n, sizeof of - n, "%s%s", i ? ", " : "of ", SHAPE(*c->in[i]));
  struct shape_text bad = rt.oversized ? rt.oversized_shape : shape_text(rank, dim);
  call_fail(c, "%s%s%s%s has too many elements; the limit is 2^59", of, c->nin > 3 ? ", ..." : "", c->nin ? ": " : "",
            bad.s);
  return false;
}

db_tensor *call_end(struct call *c, struct expr e) {
  if (!call_possible(c, e.rank, e.dim)) return c->result;
  if (graph_error(rt.graph)) return call_fail(c, "%s", graph_error(rt.graph));
  return call_end_value(c, value_new(e.u, c->slot, c->in, c->nin), e.dtype, e.rank, e.dim);
}

struct expr expr_of(const db_tensor *t) {
  struct expr e = {value_node(t->value), t->dtype, t->rank, {0}};
  memcpy(e.dim, t->dim, t->rank * sizeof *t->dim);
  return e;
}

bool list_ok(struct call *c, db_list list) {
  if (list.v || !list.n) return true;
  return call_fail(c, "the pointer of a list of %u numbers is NULL; DB_LIST makes lists", list.n), false;
}

bool results_ok(const char *op, db_tensor **out, unsigned n) {
  if (out || !n) return true;
  return db_fail(-EINVAL, "%s: the array for %u results is NULL", op, n), false;
}

struct bind_failure bind_failure(int64_t size) {
  struct bind_failure f = {""};
  bool failed = (size == -EINVAL || size == -ENOMEM) && !strncmp(db_error(), "bind: ", 6);
  if (failed) snprintf(f.s, sizeof f.s, "; db_bind reported: %.200s", db_error() + 6);
  return f;
}

bool call_sizes(struct call *c, db_list list, int64_t *dim) {
  if (!list_ok(c, list)) return false;
  if (list.n > MAX_RANK) return call_fail(c, "%u axes were given, more than %d", list.n, MAX_RANK), false;
  for (unsigned i = 0; i < list.n; i++) {
    dim[i] = list.v[i];
    if (dim_min(dim[i]) < 0)
      return call_fail(c, "axis %u of %s has size %s; a size must not be negative%s", i, shape_text(list.n, list.v).s,
                       dim_text(dim[i]).s, bind_failure(dim[i]).s),
             false;
  }
  return call_possible(c, list.n, list.v);
}

bool call_shape(struct call *c, db_list list, int64_t *dim) {
  if (list.n <= MAX_RANK && list.v && dims_symbolic(list.n, list.v))
    return call_fail(c, "not supported: the symbolic size in %s", shape_text(list.n, list.v).s), false;
  return call_sizes(c, list, dim);
}

int tensor_error(const db_tensor *t, const char *what) {
  if (!t) return db_fail(-EINVAL, "%s: the tensor is NULL", what);
  return db_fail(t == &no_memory ? -ENOMEM : -EINVAL, "%s", t->poison->text);
}
