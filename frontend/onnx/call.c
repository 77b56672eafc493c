/* Inputs and attributes of a node. */
#include "evaluate.h"
#include "operators.h"
#include <limits.h>
#include <stdarg.h>

/* ---- inputs ---- */

bool node_has_input(const struct onnx_call *c, unsigned i) { return i < c->nin && c->in[i]; }
bool node_has_output(const struct onnx_call *c, unsigned i) { return i < c->nout && c->node->output[i][0]; }

static void compute_known(struct onnx_value *v) { /* the value of a table, which owns t */
  if (v->ready) return;
  v->ready = true;
  db_tensor *t = db_retain(db_contiguous_at(NULL, 0, v->t)); /* a captured program does not take views */
  db_release(v->t);
  db_realize(v->t = t);
}

db_tensor *node_input(struct onnx_call *c, unsigned i) { return node_has_input(c, i) ? node_value(c, c->in[i]) : NULL; }

db_tensor *node_value(struct onnx_call *c, struct onnx_value *v) {
  if (!v->known || c->known) return v->t;
  compute_known(v);
  if (c->model->dev == c->model->cpu) return v->t;
  if (!v->there) {
    v->there = db_retain(db_to(v->t, c->model->dev));
    db_realize(v->there);
  }
  return v->there;
}

int32_t node_element(const struct onnx_call *c, unsigned i) {
  return c->in[i]->element ? c->in[i]->element : onnx_element_of(db_dtype_of(c->in[i]->t));
}

db_operand node_operand(struct onnx_call *c, unsigned i, const db_tensor *beside) {
  struct onnx_value *v = node_has_input(c, i) ? c->in[i] : NULL;
  double number;
  bool fits = v && v->known && !c->known && db_numel(v->t) == 1 && db_rank(v->t) <= db_rank(beside) &&
              db_dtype_of(v->t) == db_dtype_of(beside) && is_float(beside);
  if (fits && node_read_numbers(c, i, &number, 1) == 1) return db_operand_float(number);
  return db_operand_tensor(node_input(c, i));
}

db_tensor *node_unsupported(struct onnx_call *c, const char *fmt, ...) {
  char text[256];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  db_fail(-EINVAL, "not supported: %s", text);
  return NULL;
}

void node_shape(const db_tensor *x, int64_t dim[ONNX_RANK]) {
  for (unsigned i = 0; i < db_rank(x); i++) dim[i] = db_dim(x, (int)i);
}

int node_axis(struct onnx_call *c, int64_t axis, unsigned rank) {
  if (axis >= -(int64_t)rank && axis < (int64_t)rank) return (int)(axis < 0 ? axis + rank : axis);
  db_fail(-EINVAL, "axis %lld of a tensor with %u axes", (long long)axis, rank);
  return -1;
}

db_tensor *node_tensor(struct onnx_call *c, const void *data, db_dtype t, unsigned rank, const int64_t *dim) {
  return db_from_at(DB_HERE, data, t, c->dev, (db_list){rank, dim});
}
db_tensor *node_vector(struct onnx_call *c, const int64_t *v, unsigned n) {
  return node_tensor(c, v, DB_I64, 1, (int64_t[]){n});
}

/* ---- attributes ---- */

const Onnx__Attribute *node_attribute(const struct onnx_call *c, const char *name) {
  for (size_t i = 0; i < c->node->n_attribute; i++) {
    const Onnx__Attribute *a = c->node->attribute[i];
    if (!a->name || strcmp(a->name, name) != 0) continue;
    if (!a->ref_attr_name || !*a->ref_attr_name) return a;
    return c->e ? onnx_function_attribute(c->e, a->ref_attr_name) : NULL; /* none while the main graph is prepared */
  }
  return NULL;
}
int64_t node_int(const struct onnx_call *c, const char *name, int64_t unset) {
  const Onnx__Attribute *a = node_attribute(c, name);
  return a ? a->i : unset; /* writers may leave out a field that is 0 */
}
double node_float(const struct onnx_call *c, const char *name, double unset) {
  const Onnx__Attribute *a = node_attribute(c, name);
  return a ? (double)a->f : unset;
}
bool node_is(const struct onnx_call *c, const char *name, const char *text, const char *unset) {
  const Onnx__Attribute *a = node_attribute(c, name);
  if (!a) return !strcmp(text, unset);
  return a->s.len == strlen(text) && !memcmp(a->s.data, text, a->s.len);
}
unsigned node_ints(const struct onnx_call *c, const char *name, int64_t *out, unsigned cap) {
  const Onnx__Attribute *a = node_attribute(c, name);
  unsigned n = a && a->n_ints < cap ? (unsigned)a->n_ints : a ? cap : 0;
  if (n) memcpy(out, a->ints, n * sizeof *out);
  return n;
}

/* ---- values on the host ---- */

#define MOST_READ ((size_t)1 << 30)

static int keep_read(struct onnx_reads *r, const void *data, size_t bytes) {
  if (r->n == r->capacity) {
    size_t capacity = r->capacity ? 2 * r->capacity : 16;
    struct onnx_read *more = realloc(r->read, capacity * sizeof *more);
    if (!more) return db_fail(-ENOMEM, "out of memory");
    r->read = more, r->capacity = capacity;
  }
  void *copy = malloc(bytes + 1);
  if (!copy) return db_fail(-ENOMEM, "out of memory");
  memcpy(copy, data, bytes);
  r->read[r->n++] = (struct onnx_read){copy, bytes};
  return 0;
}

int onnx_read_bytes(struct evaluation *e, const char *why, struct onnx_value *v, void **data, size_t *bytes) {
  struct onnx_plan *p = e->plan;
  *bytes = (size_t)db_numel(v->t) * db_dtype_size(db_dtype_of(v->t));
  if (*bytes > MOST_READ) return db_fail(-EINVAL, "not supported: reading %zu bytes on the host", *bytes);
  *data = malloc(*bytes + 1);
  if (!*data) return db_fail(-ENOMEM, "out of memory");
  if (!v->known && !p->dynamic) p->dynamic = why;
  /* While a run is captured, nothing can be read. The nodes are the same as in the run before, so the values are. */
  if (v->known && p->evaluated && !p->dynamic && e->next_read < p->reads.n &&
      p->reads.read[e->next_read].bytes == *bytes) {
    memcpy(*data, p->reads.read[e->next_read++].data, *bytes);
    return 0;
  }
  int err = db_read(v->t, *data, *bytes);
  if (!err && v->known) v->ready = true;
  if (!err && v->known && !p->evaluated) err = keep_read(&p->reads, *data, *bytes);
  if (err) free(*data), *data = NULL;
  return err;
}

static double number_at(const void *data, db_dtype t, size_t i) {
  switch (t) {
  case DB_BOOL:
  case DB_U8: return ((const uint8_t *)data)[i];
  case DB_I8: return ((const int8_t *)data)[i];
  case DB_I16: return ((const int16_t *)data)[i];
  case DB_U16: return ((const uint16_t *)data)[i];
  case DB_I32: return ((const int32_t *)data)[i];
  case DB_U32: return ((const uint32_t *)data)[i];
  case DB_I64: return (double)((const int64_t *)data)[i];
  case DB_U64: return (double)((const uint64_t *)data)[i];
  case DB_F32: return (double)((const float *)data)[i];
  default: return ((const double *)data)[i];
  }
}

/* Reads input i; narrow floats are converted on their device. */
static int read_input(struct onnx_call *c, unsigned i, void **data, db_dtype *t, size_t *n) {
  struct onnx_value v = *c->in[i];
  size_t bytes;
  *t = db_dtype_of(v.t);
  if (*t >= DB_F16 && *t != DB_F32 && *t != DB_F64) v = onnx_value_of(db_cast(v.t, *t = DB_F64), v.known);
  int err = db_poison(v.t) ? db_fail(-EINVAL, "%s", db_poison(v.t)) : 0;
  if (!err) err = onnx_read_bytes(c->e, c->op->name, &v, data, &bytes);
  *n = err ? 0 : bytes / db_dtype_size(*t);
  return err;
}

double *node_read_all(struct onnx_call *c, unsigned i, size_t *n) {
  void *data;
  db_dtype t;
  if (read_input(c, i, &data, &t, n)) return NULL;
  double *out = malloc(*n * sizeof *out + 1);
  for (size_t k = 0; out && k < *n; k++) out[k] = number_at(data, t, k);
  free(data);
  if (!out) db_fail(-ENOMEM, "out of memory");
  return out;
}

int node_read_numbers(struct onnx_call *c, unsigned i, double *out, unsigned cap) {
  size_t n = 0;
  if (!node_has_input(c, i)) return 0;
  if ((uint64_t)db_numel(c->in[i]->t) > cap)
    return db_fail(-EINVAL, "input %u has %lld values, more than %u", i, (long long)db_numel(c->in[i]->t), cap), -1;
  double *all = node_read_all(c, i, &n);
  if (!all) return -1;
  memcpy(out, all, n * sizeof *out);
  free(all);
  return (int)n;
}

int node_read_ints(struct onnx_call *c, unsigned i, int64_t *out, unsigned cap) {
  void *data;
  db_dtype t;
  size_t n;
  if (!node_has_input(c, i)) return 0;
  if ((uint64_t)db_numel(c->in[i]->t) > cap)
    return db_fail(-EINVAL, "input %u has %lld values, more than %u", i, (long long)db_numel(c->in[i]->t), cap), -1;
  if (read_input(c, i, &data, &t, &n)) return -1;
  for (size_t k = 0; k < n; k++) {
    double v = t == DB_I64 ? 0 : number_at(data, t, k);
    out[k] = t == DB_I64   ? ((int64_t *)data)[k]
             : v >= 0x1p62 ? INT64_MAX / 2
             : v > -0x1p62 ? (int64_t)v
                           : INT64_MIN / 2;
  }
  free(data);
  return (int)n;
}

int node_ints_of(struct onnx_call *c, unsigned i, const char *name, int64_t *out, unsigned cap, bool required) {
  if (node_has_input(c, i)) return node_read_ints(c, i, out, cap);
  if (node_attribute(c, name)) return (int)node_ints(c, name, out, cap);
  return required ? db_fail(-EINVAL, "%s is missing", name), -1 : 0;
}
