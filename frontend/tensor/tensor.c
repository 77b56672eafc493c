/* Tensors, the scopes that own them, poison, and the frame of every operation: lock, check the arguments, make the
 * result. */
#include "call.h"
#include "../run/capture.h"
#include "../run/exchange.h"
#include "../run/report.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What an operation returns when there is no memory for a tensor; never freed. */
static struct {
  uint32_t refs;
  char text[64];
} no_memory_text = {UINT32_MAX / 2, "out of memory for a tensor"};
static db_tensor no_memory = {.refs = UINT32_MAX / 2, .poison = (struct poison *)&no_memory_text};

/* What a tensor is while its memory waits for the next one. */
static struct {
  uint32_t refs;
  char text[64];
} released_text = {UINT32_MAX / 2, "the tensor was released, or its scope has ended"};

/* ---- scopes ---- */

/* A thread's open scopes, one behind the other: each is a NULL and the tensors that it owns. */
struct scopes {
  db_tensor **tensors;
  size_t n, capacity, depth;
  size_t
      merged; /* scopes that had no memory to begin and those begun inside them: part of the innermost one that had */
};
static _Thread_local struct scopes scopes;

static pthread_key_t scopes_key;
static void scopes_key_make(void) { pthread_key_create(&scopes_key, free); }

/* False without memory for one more. */
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

/* Gives the innermost scope a reference that the caller holds. Without memory for that the tensor stays the caller's,
 * who then never releases it. */
static db_tensor *publish(db_tensor *t) {
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
  pthread_mutex_unlock(&rt.lock);
  s->depth--;
}

db_tensor *db_keep(db_tensor *t) {
  struct scopes *s = &scopes;
  if (!t || t == &no_memory || !s->depth) return t;
  size_t at = s->n, begin;
  while (s->tensors[at - 1] && s->tensors[at - 1] != t) at--;
  if (s->tensors[at - 1] && s->merged) return t; /* the enclosing scope has it already */
  if (s->tensors[at - 1]) {
    s->tensors[at - 1] = s->tensors[--s->n]; /* out of this scope */
  } else {
    pthread_mutex_lock(&rt.lock); /* it is not this scope's: the enclosing one gets a reference of its own */
    t->refs++;
    pthread_mutex_unlock(&rt.lock);
  }
  if (s->merged) return publish(t);
  if (s->depth == 1) return t;
  /* Between the enclosing scope's tensors and the NULL that begins this one. */
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
  pthread_mutex_unlock(&rt.lock);
}

/* ---- queries ---- */

unsigned db_rank(const db_tensor *t) { return t ? t->rank : 0; }
int64_t db_dim(const db_tensor *t, int axis) {
  int a = t ? axis_of(axis, t->rank) : -1;
  return a < 0 ? 0 : t->dim[a] >= 0 ? t->dim[a] : db_size_value(t->dim[a]);
}
int64_t db_numel(const db_tensor *t) {
  int64_t n = t && t->value;
  for (unsigned i = 0; n && i < t->rank; i++) n *= db_dim(t, (int)i);
  return n;
}
db_dtype db_dtype_of(const db_tensor *t) { return t ? (db_dtype)t->dtype : DB_NONE; }
db_device *db_device_of(const db_tensor *t) { return t && t->value ? slot_device(t->value->slot) : NULL; }
const char *db_poison(const db_tensor *t) { return !t ? "the tensor is NULL" : t->poison ? t->poison->text : NULL; }
_Static_assert((int)DB_F64 == DT_F64 && (int)DB_F8E4M3 == DT_F8E4M3 && (int)DB_F8E5M2 == DT_F8E5M2,
               "public types are the graph's");
const char *db_dtype_name(db_dtype t) { return t >= DB_BOOL && t <= DB_F8E5M2 ? dtype_info[t].name : "?"; }
size_t db_dtype_size(db_dtype t) { return t >= DB_BOOL && t <= DB_F8E5M2 ? dtype_info[t].size : 0; }

int axis_of(int64_t axis, unsigned rank) {
  if (axis < 0) axis += rank;
  return axis < 0 || axis >= rank ? -1 : (int)axis;
}

int64_t dims_numel(unsigned rank, const int64_t *dim) {
  int64_t n = 1;
  for (unsigned i = 0; i < rank; i++) n = dim_product(n, dim[i]);
  return n;
}

bool dims_possible(unsigned rank, const int64_t *dim) {
  int64_t n = 1;
  for (unsigned i = 0; i < rank; i++) {
    int64_t most = dim_most(dim[i]);
    if (most < 0 || (most && (__builtin_mul_overflow(n, most, &n) || n > INT64_MAX / 16))) return false;
  }
  return true;
}

struct shape_text shape_text(unsigned rank, const int64_t *dim) {
  struct shape_text t = {"["};
  size_t n = 1;
  for (unsigned i = 0; i < rank && n < sizeof t.s - 32; i++)
    n += (size_t)snprintf(t.s + n, sizeof t.s - n, i ? ", %.28s" : "%.28s", dim_text(dim[i]).s);
  snprintf(t.s + n, sizeof t.s - n, n < sizeof t.s - 32 ? "]" : ", ...]");
  return t;
}

/* ---- the frame of an operation ---- */

static db_tensor *poisoned(struct poison *p) {
  db_tensor *t = p ? object_new(sizeof *t) : NULL;
  if (!t) {
    if (p && !p->refs) free(p);
    return &no_memory;
  }
  t->refs = 1;
  t->poison = p;
  p->refs++;
  return publish(t);
}

static db_tensor *spread(const db_tensor *from) { return from == &no_memory ? &no_memory : poisoned(from->poison); }

void call_leave(struct call *c) {
  if (c->holds_slot) slot_release(c->slot);
  pthread_mutex_unlock(&rt.lock);
}

db_tensor *call_fail(struct call *c, const char *fmt, ...) {
  char text[1024];
  int n = c->file ? snprintf(text, sizeof text, "%s at %s:%d: ", c->op, c->file, c->line)
                  : snprintf(text, sizeof text, "%s: ", c->op); /* made for an object of the caller's */
  va_list ap;
  va_start(ap, fmt);
  if (n > 0 && (size_t)n < sizeof text) vsnprintf(text + n, sizeof text - (size_t)n, fmt, ap);
  va_end(ap);
  struct poison *p = malloc(sizeof *p + strlen(text) + 1);
  if (p) {
    p->refs = 0;
    strcpy(p->text, text);
  }
  c->result = poisoned(p);
  call_leave(c);
  return c->result;
}

bool call_begin(struct call *c, const char *op, DB_AT, unsigned nin, db_tensor *const *in) {
  if (!call_begin_sized(c, op, file, line, nin, in)) return false;
  for (unsigned i = 0; i < nin; i++)
    if (dims_symbolic(in[i]->rank, in[i]->dim))
      return call_fail(c, "not supported: argument %u is %s, of symbolic size", i + 1, SHAPE(*in[i])), false;
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
      return call_fail(c, "argument %u was released, or its scope has ended; db_keep hands it to the enclosing one",
                       i + 1),
             false;
    if (!in[i]->value) {
      c->result = spread(in[i]);
      pthread_mutex_unlock(&rt.lock);
      return false;
    }
  }
  if (runtime_init()) return call_fail(c, "%s", db_error()), false;
  if (nin) c->slot = in[0]->value->slot;
  for (unsigned i = 1; i < nin; i++)
    if (in[i]->value->slot != c->slot)
      return call_fail(c, "argument %u is on %s, the first on %s; move one with db_to%s", i + 1,
                       db_device_name(slot_device(in[i]->value->slot)), db_device_name(slot_device(c->slot)),
                       slot_group(c->slot) || slot_group(in[i]->value->slot) ? " or db_shard" : ""),
             false;
  graph_collect();
  return true;
}

/* Takes over the caller's reference on v. */
bool call_device(struct call *c, db_device *dev) {
  int slot = slot_of(dev);
  if (slot < 0) return call_fail(c, "%s", db_error()), false;
  c->slot = (unsigned)slot;
  c->holds_slot = true;
  return true;
}

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
  return publish(x);
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
  call_fail(c, "%s%s%s%s has too many elements; fewer than 2^59 are possible", of, c->nin > 3 ? ", ..." : "",
            c->nin ? ": " : "", bad.s);
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
  return call_fail(c, "a list of %u numbers has none: its pointer is NULL; DB_LIST makes lists", list.n), false;
}

bool results_ok(const char *op, db_tensor **out, unsigned n) {
  if (out || !n) return true;
  return db_fail(-EINVAL, "%s: the array for %u results is NULL", op, n), false;
}

struct bind_failure bind_failure(int64_t size) {
  struct bind_failure f = {""};
  bool failed = (size == -EINVAL || size == -ENOMEM) && !strncmp(db_error(), "bind: ", 6);
  if (failed) snprintf(f.s, sizeof f.s, "; db_bind gave that: %.200s", db_error() + 6);
  return f;
}

bool call_sizes(struct call *c, db_list list, int64_t *dim) {
  if (!list_ok(c, list)) return false;
  if (list.n > MAX_RANK) return call_fail(c, "%u axes, more than %d", list.n, MAX_RANK), false;
  for (unsigned i = 0; i < list.n; i++) {
    dim[i] = list.v[i];
    if (dim_least(dim[i]) < 0)
      return call_fail(c, "axis %u of %s has size %s; sizes are not negative%s", i, shape_text(list.n, list.v).s,
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

/* ---- reading ---- */

static int poisoned_error(const db_tensor *t, const char *what) {
  if (!t) return db_fail(-EINVAL, "%s: the tensor is NULL", what);
  return db_fail(t == &no_memory ? -ENOMEM : -EINVAL, "%s", t->poison->text);
}

int db_realize_all(db_tensor *const *t, unsigned n) {
  if (n && !t) return db_fail(-EINVAL, "realize: the array of %u tensors is NULL", n);
  struct value *few[8], **v = n <= 8 ? few : malloc(n * sizeof *v);
  if (!v) return db_fail(-ENOMEM, "realize: out of memory for a list of %u tensors", n);
  pthread_mutex_lock(&rt.lock);
  int err = 0;
  for (unsigned i = 0; i < n && !err; i++) {
    if (!t[i] || !t[i]->value)
      err = poisoned_error(t[i], "realize");
    else
      v[i] = t[i]->value;
  }
  if (!err && n) err = realize_values(v, n, false);
  pthread_mutex_unlock(&rt.lock);
  if (v != few) free(v);
  return err;
}

static int read_value(const struct value *v, void *dst, size_t size) {
  int64_t at;
  if (!value_is_contiguous(v, &at)) return db_fail(-EPROTO, "read: the tensor is not in memory");
  int err = db_buffer_read(v->storage->buffer, (size_t)at * dtype_info[v->expr->dtype].size, dst, size);
  if (!err) err = storage_check(v->storage);
  if (!err) err = reports_settle(false);
  return err ? err : world_check();
}

/* Part by part; those split along an axis are as many rows of each as there are before it. */
static int read_parts(const db_tensor *t, void *dst, size_t size) {
  const struct value *v = t->value;
  int axis = (int)v->real->arg.i;
  if (axis < 0) return read_value(v->part[0], dst, size);
  size_t rows = 1, row, at = 0;
  for (int i = 0; i < axis; i++) rows *= (size_t)dim_value(t->dim[i]);
  row = size / rows;
  char *buffer = malloc(size);
  int err = buffer ? 0 : db_fail(-ENOMEM, "read: out of memory for %zu bytes", size);
  for (unsigned i = 0; i < value_count(v) && !err; i++) {
    size_t mine = row / (size_t)t->dim[axis] * (size_t)v->part[i]->real->shape->dim[axis]->arg.i;
    if (mine) err = read_value(v->part[i], buffer, rows * mine);
    for (size_t r = 0; r < rows && !err; r++) memcpy((char *)dst + r * row + at, buffer + r * mine, mine);
    at += mine;
  }
  free(buffer);
  return err;
}

int db_read(db_tensor *t, void *dst, size_t bytes) {
  capture_host_read();
  pthread_mutex_lock(&rt.lock);
  int err = 0;
  if (!t || !t->value) {
    err = poisoned_error(t, "read");
  } else {
    size_t size = (size_t)dim_value(dims_numel(t->rank, t->dim)) * dtype_info[t->dtype].size;
    if (bytes != size)
      err = db_fail(-EINVAL, "read: %zu bytes asked of a tensor %s of %s, which has %zu", bytes, SHAPE(*t),
                    dtype_info[t->dtype].name, size);
    else if (!dst && size)
      err = db_fail(-EINVAL, "read: the destination is NULL");
    else if (size && !(err = realize_values(&t->value, 1, true)))
      err = t->value->part ? read_parts(t, dst, size) : read_value(t->value, dst, size);
  }
  pthread_mutex_unlock(&rt.lock);
  return err;
}

int db_item(db_tensor *t, double *out) {
  union {
    uint8_t u8;
    int8_t i8;
    int16_t i16;
    uint16_t u16;
    int32_t i32;
    uint32_t u32;
    int64_t i64;
    uint64_t u64;
    float f32;
    double f64;
  } v = {0};
  if (!out) return db_fail(-EINVAL, "item: the place for the value is NULL");
  if (t && t->value && db_numel(t) != 1)
    return db_fail(-EINVAL, "item: the tensor is %s and has %lld elements, not one", SHAPE(*t), (long long)db_numel(t));
  int err = db_read(t, &v, t ? dtype_info[t->dtype].size : 0);
  if (err || !t) return err;
  switch (t->dtype) {
  case DT_BOOL:
  case DT_U8: *out = v.u8; break;
  case DT_I8: *out = v.i8; break;
  case DT_I16: *out = v.i16; break;
  case DT_U16: *out = v.u16; break;
  case DT_I32: *out = v.i32; break;
  case DT_U32: *out = v.u32; break;
  case DT_I64: *out = (double)v.i64; break;
  case DT_U64: *out = (double)v.u64; break;
  default: *out = float_from_bits(t->dtype, v.u64); break;
  }
  return 0;
}

void db_watch(void (*fn)(void *ctx, const struct db_command *command), void *ctx) {
  pthread_mutex_lock(&rt.lock);
  rt.watch = fn;
  rt.watch_ctx = ctx;
  pthread_mutex_unlock(&rt.lock);
}
