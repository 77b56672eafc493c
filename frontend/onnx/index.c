/* Operators that read and write elements at positions in tensors. */
#define _GNU_SOURCE /* qsort_r */
#include "operators.h"

db_tensor *onnx_op_gather(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  db_subscript s[ONNX_RANK];
  int axis = node_axis(c, node_int(c, "axis", 0), db_rank(x));
  if (axis < 0) return NULL;
  for (int i = 0; i < axis; i++) s[i] = DB_WHOLE;
  s[axis] = DB_BY(node_input(c, 1));
  /* One known position is a part of the tensor, which moves nothing. */
  int64_t at;
  if (c->in[1]->known && !c->known && !db_rank(c->in[1]->t)) {
    if (node_read_ints(c, 1, &at, 1) < 0) return NULL;
    s[axis] = DB_PICK(at);
  }
  return db_index_at(DB_HERE, x, s, (unsigned)axis + 1);
}

db_tensor *onnx_op_gather_elements(struct onnx_call *c) {
  return db_gather(node_input(c, 0), (int)node_int(c, "axis", 0), node_input(c, 1));
}

/* Adds positions along the axes of a batch, which broadcast with those in the index. */
static void batch_subscripts(struct onnx_call *c, const db_tensor *x, int batch, unsigned rank, db_subscript *s) {
  for (int i = 0; i < batch; i++) {
    int64_t dim[ONNX_RANK];
    for (unsigned k = 0; k < rank; k++) dim[k] = (int)k == i ? db_dim(x, i) : 1;
    db_tensor *all = db_arange(0, (double)db_dim(x, i), 1, DB_I64, c->dev);
    s[i] = DB_BY(db_reshape_at(DB_HERE, all, SIZES(rank, dim)));
  }
}

db_tensor *onnx_op_gather_nd(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *index = node_input(c, 1);
  int64_t batch = node_int(c, "batch_dims", 0), n = db_dim(index, -1);
  db_subscript s[ONNX_RANK];
  if (batch < 0 || n < 1 || batch + n > (int64_t)db_rank(x))
    return node_unsupported(c, "positions of %lld axes", (long long)n);
  batch_subscripts(c, x, (int)batch, db_rank(index) - 1, s);
  for (int64_t i = 0; i < n; i++) s[batch + i] = DB_BY(db_cast(db_index(index, DB_REST, DB_PICK(i)), DB_I64));
  return db_index_at(DB_HERE, x, s, (unsigned)(batch + n));
}

static bool scatter_mode(struct onnx_call *c, enum db_scatter *mode) {
  static const struct {
    const char *name;
    enum db_scatter mode;
  } modes[] = {{"none", DB_SCATTER_REPLACE},
               {"add", DB_SCATTER_SUM},
               {"mul", DB_SCATTER_PROD},
               {"max", DB_SCATTER_MAX},
               {"min", DB_SCATTER_MIN}};
  for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++)
    if (node_is(c, "reduction", modes[i].name, "none")) return *mode = modes[i].mode, true;
  return node_unsupported(c, "this reduction"), false;
}

db_tensor *onnx_op_scatter_elements(struct onnx_call *c) {
  enum db_scatter mode;
  if (!scatter_mode(c, &mode)) return NULL;
  return db_scatter_at(DB_HERE, node_input(c, 0), (int)node_int(c, "axis", 0), node_input(c, 1),
                       db_operand_tensor(node_input(c, 2)), mode, true);
}

/* Positions of several axes become positions along one axis that merges them. */
db_tensor *onnx_op_scatter_nd(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *index = db_cast(node_input(c, 1), DB_I64), *flat = NULL;
  int64_t dim[ONNX_RANK], n = db_dim(index, -1), rest = 1, merged = 1;
  enum db_scatter mode;
  if (!scatter_mode(c, &mode)) return NULL;
  if (n < 1 || n > (int64_t)db_rank(x)) return node_unsupported(c, "positions of %lld axes", (long long)n);
  node_shape(x, dim);
  for (int64_t i = n; i < (int64_t)db_rank(x); i++) rest *= dim[i];
  for (int64_t i = n; i-- > 0; merged *= dim[i]) {
    db_tensor *at = db_index(index, DB_REST, DB_PICK(i));
    at = db_mul(db_where(db_lt(at, 0), db_add(at, dim[i]), at), merged);
    flat = flat ? db_add(flat, at) : at;
  }
  int64_t count = db_numel(index) / n;
  flat = db_expand(db_reshape(flat, count, 1), count, rest);
  db_tensor *updates = db_reshape(node_input(c, 2), count, rest);
  db_tensor *out = db_scatter_at(DB_HERE, db_reshape(x, merged, rest), 0, flat, db_operand_tensor(updates), mode, true);
  return db_reshape_at(DB_HERE, out, SIZES(db_rank(x), dim));
}

/* Writes a part of a cache at a position along an axis, for each batch another one. */
db_tensor *onnx_op_tensor_scatter(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *update = node_input(c, 1);
  int axis = node_axis(c, node_int(c, "axis", -2), db_rank(x));
  if (axis < 1) return axis ? NULL : node_unsupported(c, "writing along the batch");
  int64_t n = db_dim(update, axis), size = db_dim(x, axis), dim[ONNX_RANK], ones[ONNX_RANK];
  node_shape(update, dim);
  for (unsigned i = 0; i < db_rank(x); i++) ones[i] = (int)i == axis ? n : 1;
  db_tensor *at = db_reshape_at(DB_HERE, db_arange(0, (double)n, 1, DB_I64, c->dev), SIZES(db_rank(x), ones));
  if (node_has_input(c, 2)) {
    for (unsigned i = 0; i < db_rank(x); i++) ones[i] = i ? 1 : dim[0];
    at = db_add(at, db_reshape_at(DB_HERE, db_cast(node_input(c, 2), DB_I64), SIZES(db_rank(x), ones)));
  }
  if (node_is(c, "mode", "circular", "linear")) at = db_mod(at, size);
  return db_scatter(x, axis, db_expand_at(DB_HERE, at, SIZES(db_rank(x), dim)), update);
}

db_tensor *onnx_op_one_hot(struct onnx_call *c) {
  db_tensor *index = node_input(c, 0), *values = node_input(c, 2);
  int64_t depth = 0, dim[ONNX_RANK];
  unsigned rank = db_rank(index) + 1;
  if (node_read_ints(c, 1, &depth, 1) != 1) return NULL;
  int axis = node_axis(c, node_int(c, "axis", -1), rank);
  if (axis < 0) return NULL;
  if (is_float(index)) index = db_cast(index, DB_I64);
  index = db_where(db_lt(index, 0), db_add(index, depth), index);
  for (unsigned i = 0; i < rank; i++) dim[i] = (int)i == axis ? depth : 1;
  db_tensor *classes = db_reshape_at(DB_HERE, db_arange(0, (double)depth, 1, DB_I64, c->dev), SIZES(rank, dim));
  return db_where(db_eq(db_unsqueeze(index, axis), classes), db_index(values, DB_PICK(1)),
                  db_index(values, DB_PICK(0)));
}

/* Reverses the first `lengths` elements of each sequence. */
db_tensor *onnx_op_reverse_sequence(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  int64_t time = node_int(c, "time_axis", 0), batch = node_int(c, "batch_axis", 1), dim[2] = {1, 1};
  if ((time != 0 && time != 1) || batch != 1 - time) return node_unsupported(c, "these axes");
  dim[batch] = db_dim(x, (int)batch);
  db_tensor *length = db_reshape_at(DB_HERE, db_cast(node_input(c, 1), DB_I64), SIZES(2, dim));
  dim[batch] = 1, dim[time] = db_dim(x, (int)time);
  db_tensor *at = db_reshape_at(DB_HERE, db_arange(0, (double)dim[time], 1, DB_I64, c->dev), SIZES(2, dim));
  at = db_where(db_lt(at, length), db_sub(db_sub(length, 1), at), at);
  db_subscript s[2];
  batch_subscripts(c, x, (int)batch + 1, 2, s);
  s[time] = DB_BY(at);
  return db_index_at(DB_HERE, x, s, 2);
}

/* ---- shapes that depend on values ---- */

db_tensor *onnx_op_nonzero(struct onnx_call *c) {
  size_t n, count = 0;
  db_tensor *x = c->in[0]->t;
  double *v = node_read_all(c, 0, &n);
  unsigned rank = db_rank(x);
  int64_t *at = v ? malloc(n * (rank + 1) * sizeof *at + 1) : NULL;
  if (!at) {
    free(v);
    return NULL;
  }
  for (size_t i = 0; i < n; i++) count += v[i] != 0;
  for (size_t i = 0, k = 0; i < n; i++) {
    if (v[i] == 0) continue;
    size_t left = i;
    for (unsigned d = rank; d-- > 0; left /= (size_t)db_dim(x, (int)d))
      at[d * count + k] = (int64_t)(left % (size_t)db_dim(x, (int)d));
    k++;
  }
  db_tensor *out = node_tensor(c, at, DB_I64, 2, (int64_t[]){rank, (int64_t)count});
  free(at), free(v);
  return out;
}

db_tensor *onnx_op_compress(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  size_t n;
  int64_t count = 0;
  int axis = 0;
  if (!node_attribute(c, "axis"))
    x = db_reshape(x, -1);
  else if ((axis = node_axis(c, node_int(c, "axis", 0), db_rank(x))) < 0)
    return NULL;
  double *chosen = node_read_all(c, 1, &n);
  int64_t *at = chosen ? malloc(n * sizeof *at + 1) : NULL;
  for (size_t i = 0; at && i < n; i++)
    if (chosen[i] != 0) at[count++] = (int64_t)i;
  free(chosen);
  if (!at) return NULL;
  db_tensor *out = db_index_select(x, axis, node_vector(c, at, (unsigned)count));
  free(at);
  return out;
}

/* ---- Unique ---- */

/* Slices along an axis as rows of numbers. */
struct rows {
  const double *v;
  size_t n, length;
};
static int compare_rows(const void *a, const void *b, void *ctx) {
  const struct rows *r = ctx;
  size_t i = *(const size_t *)a, k = *(const size_t *)b;
  for (size_t j = 0; j < r->length; j++) {
    double x = r->v[i * r->length + j], y = r->v[k * r->length + j];
    if (x != y) return x < y ? -1 : 1;
  }
  return 0;
}
static int by_number(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

/* first[u]: where the unique row u occurs first; inverse[i]: the unique row of row i. Returns their number. */
static size_t find_unique(const struct rows *r, bool sorted, size_t *order, int64_t *first, int64_t *inverse,
                          int64_t *counts) {
  size_t n = 0;
  for (size_t i = 0; i < r->n; i++) order[i] = i;
  qsort_r(order, r->n, sizeof *order, compare_rows, (void *)r);
  for (size_t i = 0; i < r->n; i++) {
    if (!i || compare_rows(&order[i - 1], &order[i], (void *)r)) first[n] = (int64_t)order[i], counts[n++] = 0;
    if ((int64_t)order[i] < first[n - 1]) first[n - 1] = (int64_t)order[i];
    inverse[order[i]] = (int64_t)n - 1;
    counts[n - 1]++;
  }
  if (sorted) return n;
  /* In the order of the first occurrences. */
  qsort(first, n, sizeof *first, by_number);
  int64_t *rank = (int64_t *)order; /* of the sorted rows; as large as the rows' number */
  for (size_t u = 0; u < n; u++) rank[inverse[first[u]]] = (int64_t)u;
  memset(counts, 0, n * sizeof *counts);
  for (size_t i = 0; i < r->n; i++) counts[inverse[i] = rank[inverse[i]]]++;
  return n;
}

static db_tensor *unique(struct onnx_call *c, db_tensor *x, int axis, const struct rows *r) {
  size_t n = r->n + 1;
  size_t *order = malloc(n * sizeof *order);
  int64_t *first = malloc(n * 3 * sizeof *first), *inverse = first ? first + n : NULL,
          *counts = first ? inverse + n : NULL;
  db_tensor *out = NULL;
  if (order && first) {
    unsigned found = (unsigned)find_unique(r, node_int(c, "sorted", 1), order, first, inverse, counts);
    out = db_index_select(x, axis, node_vector(c, first, found));
    if (node_has_output(c, 1)) c->out[1] = node_vector(c, first, found);
    if (node_has_output(c, 2)) c->out[2] = node_vector(c, inverse, (unsigned)r->n);
    if (node_has_output(c, 3)) c->out[3] = node_vector(c, counts, found);
  } else {
    db_fail(-ENOMEM, "out of memory");
  }
  free(order), free(first);
  return out;
}

db_tensor *onnx_op_unique(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  int axis = 0;
  if (!node_attribute(c, "axis"))
    x = db_reshape(x, -1);
  else if ((axis = node_axis(c, node_int(c, "axis", 0), db_rank(x))) < 0)
    return NULL;
  struct onnx_value v = onnx_value_of(db_movedim(x, axis, 0), c->known), *before = c->in[0];
  struct rows r = {NULL, (size_t)db_dim(x, axis), 0};
  c->in[0] = &v;
  size_t n;
  double *all = node_read_all(c, 0, &n);
  c->in[0] = before;
  if (!all) return NULL;
  r.v = all, r.length = r.n ? n / r.n : 0;
  db_tensor *out = unique(c, x, axis, &r);
  free(all);
  return out;
}
