/* Operators that change shapes, and that make tensors from shapes. */
#include "operators.h"

/* ---- tensors from attributes and shapes ---- */

static db_tensor *from_attribute(struct onnx_call *c, const Onnx__Tensor *t) {
  struct onnx_array a;
  char why[512];
  if (onnx_array_of(t, &c->model->files, &a, why, sizeof why)) return db_fail_null(-EINVAL, "value: %s", why);
  db_tensor *x = node_tensor(c, a.data, a.dtype, a.rank, a.dim);
  c->element = onnx_element_held(t->data_type);
  free(a.own);
  return x;
}

db_tensor *onnx_op_constant(struct onnx_call *c) {
  const Onnx__Attribute *a = c->node->n_attribute ? c->node->attribute[0] : NULL;
  if (a && a->name) a = node_attribute(c, a->name);
  if (!a || !a->name) return node_unsupported(c, "a constant without a value");
  const char *name = c->node->attribute[0]->name;
  if (!strcmp(name, "value") && a->t) return from_attribute(c, a->t);
  if (!strcmp(name, "value_float")) return node_tensor(c, &a->f, DB_F32, 0, NULL);
  if (!strcmp(name, "value_int")) return node_tensor(c, &a->i, DB_I64, 0, NULL);
  if (!strcmp(name, "value_floats")) return node_tensor(c, a->floats, DB_F32, 1, (int64_t[]){(int64_t)a->n_floats});
  if (!strcmp(name, "value_ints")) return node_tensor(c, a->ints, DB_I64, 1, (int64_t[]){(int64_t)a->n_ints});
  return node_unsupported(c, "the constant's attribute %.40s", name);
}

db_tensor *onnx_op_constant_of_shape(struct onnx_call *c) {
  int64_t dim[ONNX_RANK], zero = 0;
  const Onnx__Attribute *a = node_attribute(c, "value");
  int n = node_read_ints(c, 0, dim, ONNX_RANK);
  if (n < 0) return NULL;
  db_tensor *value = a && a->t ? from_attribute(c, a->t) : node_tensor(c, &zero, DB_F32, 0, NULL);
  return value ? db_expand_at(DB_HERE, db_reshape_at(DB_HERE, value, DB_LIST()), SIZES(n, dim)) : NULL;
}

db_tensor *onnx_op_shape(struct onnx_call *c) {
  const db_tensor *x = c->in[0]->t;
  int64_t dim[ONNX_RANK], rank = (int64_t)db_rank(x);
  int64_t begin = node_int(c, "start", 0), end = node_int(c, "end", rank);
  node_shape(x, dim);
  begin = begin < 0 ? begin + rank : begin, end = end < 0 ? end + rank : end;
  begin = begin < 0 ? 0 : begin > rank ? rank : begin, end = end > rank ? rank : end;
  return node_vector(c, dim + begin, end > begin ? (unsigned)(end - begin) : 0);
}
db_tensor *onnx_op_size(struct onnx_call *c) {
  int64_t n = db_numel(c->in[0]->t);
  return node_tensor(c, &n, DB_I64, 0, NULL);
}

db_tensor *onnx_op_range(struct onnx_call *c) {
  double v[3];
  db_dtype t = db_dtype_of(c->in[0]->t);
  for (unsigned i = 0; i < 3; i++)
    if (node_read_numbers(c, i, &v[i], 1) != 1) return NULL;
  double n = ceil((v[1] - v[0]) / v[2]);
  if (!(n > 0)) return db_full_at(DB_HERE, db_operand_int(0), t, c->dev, DB_LIST(0));
  db_dtype wide = t >= DB_F16 ? DB_F64 : DB_I64;
  int64_t start, step;
  if (wide == DB_I64) {
    if (node_read_ints(c, 0, &start, 1) != 1 || node_read_ints(c, 2, &step, 1) != 1) return NULL;
    return db_cast(db_add(db_mul(db_arange(0, n, 1, wide, c->dev), step), start), t);
  }
  return db_cast(db_add(db_mul(db_arange(0, n, 1, wide, c->dev), v[2]), v[0]), t);
}

db_tensor *onnx_op_eye_like(struct onnx_call *c) {
  const db_tensor *x = c->in[0]->t;
  int64_t k = node_int(c, "k", 0), dtype = node_int(c, "dtype", 0);
  db_dtype t = dtype ? onnx_element_dtype((int32_t)dtype) : db_dtype_of(x);
  if (db_rank(x) != 2 || t == DB_NONE) return node_unsupported(c, "this type or number of axes");
  db_tensor *row = db_unsqueeze(db_arange(0, (double)db_dim(x, 0), 1, DB_I64, c->dev), 1);
  return db_cast(db_eq(db_add(row, k), db_arange(0, (double)db_dim(x, 1), 1, DB_I64, c->dev)), t);
}

/* ---- shapes ---- */

db_tensor *onnx_op_reshape(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  int64_t dim[ONNX_RANK], known = 1;
  int n = node_ints_of(c, 1, "shape", dim, ONNX_RANK, false), inferred = -1;
  if (n < 0) return NULL;
  for (int i = 0; i < n; i++) {
    if (!dim[i] && !node_int(c, "allowzero", 0)) dim[i] = db_dim(x, i);
    if (dim[i] == -1)
      inferred = i;
    else if (__builtin_mul_overflow(known, dim[i], &known))
      return node_unsupported(c, "these sizes");
  }
  if (inferred >= 0 && !known) dim[inferred] = 0;
  return db_reshape_at(DB_HERE, x, SIZES(n, dim));
}

db_tensor *onnx_op_flatten(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  int64_t axis = node_int(c, "axis", 1), rows = 1, columns = 1, rank = (int64_t)db_rank(x);
  if (axis < 0) axis += rank;
  for (int i = 0; i < rank; i++) *(i < axis ? &rows : &columns) *= db_dim(x, i);
  return db_reshape(x, rows, columns);
}

db_tensor *onnx_op_squeeze(struct onnx_call *c) {
  int64_t axes[ONNX_RANK];
  int n = node_ints_of(c, 1, "axes", axes, ONNX_RANK, false);
  return n < 0 ? NULL : db_squeeze_at(DB_HERE, node_input(c, 0), SIZES(n, axes));
}
db_tensor *onnx_op_unsqueeze(struct onnx_call *c) {
  int64_t axes[ONNX_RANK];
  int n = node_ints_of(c, 1, "axes", axes, ONNX_RANK, true);
  return n < 0 ? NULL : n ? db_unsqueeze_at(DB_HERE, node_input(c, 0), SIZES(n, axes)) : node_input(c, 0);
}

db_tensor *onnx_op_transpose(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  int64_t axes[ONNX_RANK];
  unsigned rank = db_rank(x), n = node_ints(c, "perm", axes, ONNX_RANK);
  for (unsigned i = 0; !n && i < rank; i++) axes[i] = rank - 1 - i;
  return db_permute_at(DB_HERE, x, SIZES(n ? n : rank, axes));
}

/* Broadcasts both ways: the input may be larger than the shape. */
db_tensor *onnx_op_expand(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  int64_t dim[ONNX_RANK];
  int n = node_read_ints(c, 1, dim, ONNX_RANK), rank = (int)db_rank(x);
  if (n < 0) return NULL;
  for (int i = 1; i <= n && i <= rank; i++)
    if (dim[n - i] == 1) dim[n - i] = db_dim(x, rank - i);
  if (rank <= n) return db_expand_at(DB_HERE, x, SIZES(n, dim));
  int64_t all[ONNX_RANK];
  node_shape(x, all);
  memcpy(all + rank - n, dim, (size_t)n * sizeof *dim);
  return db_expand_at(DB_HERE, x, SIZES(rank, all));
}

db_tensor *onnx_op_tile(struct onnx_call *c) {
  int64_t times[ONNX_RANK];
  int n = node_read_ints(c, 1, times, ONNX_RANK);
  return n < 0 ? NULL : db_repeat_at(DB_HERE, node_input(c, 0), SIZES(n, times));
}

db_tensor *onnx_op_concat(struct onnx_call *c) {
  enum { FEW = 64 };
  db_tensor *few[FEW], **x = c->nin <= FEW ? few : calloc(c->nin, sizeof *x), *joined;
  if (!x) return db_fail_null(-ENOMEM, "out of memory");
  for (unsigned i = 0; i < c->nin; i++) x[i] = node_input(c, i);
  joined = db_cat_n(x, c->nin, (int)node_int(c, "axis", 1));
  if (x != few) free(x);
  return joined;
}

db_tensor *onnx_op_split(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  int64_t sizes[ONNX_MOST_OUTPUTS];
  int axis = node_axis(c, node_int(c, "axis", 0), db_rank(x));
  int n = node_ints_of(c, 1, "split", sizes, ONNX_MOST_OUTPUTS, false);
  if (n < 0 || axis < 0) return NULL;
  int64_t count = node_int(c, "num_outputs", c->nout), size = db_dim(x, axis), each;
  if (!n && (count < 1 || count > ONNX_MOST_OUTPUTS)) return node_unsupported(c, "%lld outputs", (long long)count);
  each = n ? 0 : (size + count - 1) / count;
  for (int i = 0; !n && i < count; i++) {
    sizes[i] = size < each ? size : each;
    size -= sizes[i];
  }
  if (!n) n = (int)count;
  if (n < (int)c->nout) return node_unsupported(c, "%d sizes for %u outputs", n, c->nout);
  db_tensor *out[ONNX_MOST_OUTPUTS];
  db_split_at(DB_HERE, x, axis, out, SIZES(n, sizes));
  for (unsigned k = 1; k < c->nout; k++) c->out[k] = out[k];
  return out[0];
}

/* Bounds are inputs since opset 10, attributes before. Bounds outside of the axis are clamped. */
db_tensor *onnx_op_slice(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  int64_t begin[ONNX_RANK], end[ONNX_RANK], axes[ONNX_RANK], steps[ONNX_RANK];
  db_subscript s[ONNX_RANK];
  unsigned rank = db_rank(x);
  int n = node_ints_of(c, 1, "starts", begin, ONNX_RANK, true), m = node_ints_of(c, 2, "ends", end, ONNX_RANK, true);
  int naxes = node_ints_of(c, 3, "axes", axes, ONNX_RANK, false), nsteps = node_read_ints(c, 4, steps, ONNX_RANK);
  if (n < 0 || m < 0 || naxes < 0 || nsteps < 0) return NULL;
  if (n != m || (naxes && naxes != n) || (nsteps && nsteps != n) || n > (int)rank)
    return node_unsupported(c, "lists of bounds of different lengths");
  for (unsigned i = 0; i < rank; i++) s[i] = DB_WHOLE;
  for (int i = 0; i < n; i++) {
    int axis = node_axis(c, naxes ? axes[i] : i, rank);
    if (axis < 0) return NULL;
    int64_t size = db_dim(x, axis), step = nsteps ? steps[i] : 1, from = begin[i], to = end[i];
    if (!step) return node_unsupported(c, "a step of 0");
    from = from < 0 ? from + size : from, to = to < 0 ? to + size : to;
    int64_t least = step < 0 ? -1 : 0, most = step < 0 ? size - 1 : size;
    from = from < 0 ? 0 : from > most ? most : from, to = to < least ? least : to > size ? size : to;
    if (step > 0 ? from >= to : from <= to) from = to = 0, step = 1;
    s[axis] = DB_SLICE(from, step < 0 && to < 0 ? DB_OPEN : to, step);
  }
  return rank ? db_index_at(DB_HERE, x, s, rank) : x;
}

/* ---- padding ---- */

db_tensor *onnx_op_pad(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  int64_t pads[2 * ONNX_RANK], axes[ONNX_RANK], pairs[2 * ONNX_RANK] = {0};
  double value = node_float(c, "value", 0);
  unsigned rank = db_rank(x);
  int n = node_ints_of(c, 1, "pads", pads, 2 * ONNX_RANK, true), naxes = node_read_ints(c, 3, axes, ONNX_RANK);
  if (n < 0 || naxes < 0 || node_read_numbers(c, 2, &value, 1) < 0) return NULL;
  unsigned count = node_has_input(c, 3) ? (unsigned)naxes : rank;
  if ((unsigned)n != 2 * count || count > rank) return node_unsupported(c, "%d pads for %u axes", n, count);
  for (unsigned i = 0; i < count; i++) {
    int axis = node_axis(c, node_has_input(c, 3) ? axes[i] : i, rank);
    if (axis < 0) return NULL;
    pairs[2 * axis] = pads[i], pairs[2 * axis + 1] = pads[count + i];
  }
  db_list list = SIZES(2 * rank, pairs);
  if (node_is(c, "mode", "reflect", "constant")) return db_pad_mode_at(DB_HERE, x, DB_PAD_REFLECT, list);
  if (node_is(c, "mode", "edge", "constant")) return db_pad_mode_at(DB_HERE, x, DB_PAD_REPLICATE, list);
  if (node_is(c, "mode", "wrap", "constant")) return db_pad_mode_at(DB_HERE, x, DB_PAD_CIRCULAR, list);
  if (!node_is(c, "mode", "constant", "constant")) return node_unsupported(c, "this mode");
  db_operand with = is_float(x) ? db_operand_float(value) : db_operand_int((int64_t)value);
  return db_pad_at(DB_HERE, x, with, list);
}

db_tensor *onnx_op_center_crop_pad(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  int64_t shape[ONNX_RANK], axes[ONNX_RANK], pairs[2 * ONNX_RANK] = {0};
  unsigned naxes = node_ints(c, "axes", axes, ONNX_RANK);
  int n = node_read_ints(c, 1, shape, ONNX_RANK);
  if (n < 0) return NULL;
  if (naxes && (int)naxes != n) return node_unsupported(c, "%d sizes for %u axes", n, naxes);
  for (int i = 0; i < n; i++) {
    int axis = node_axis(c, naxes ? axes[i] : i, db_rank(x));
    if (axis < 0) return NULL;
    int64_t more = shape[i] - db_dim(x, axis), before = more < 0 ? -(-more / 2) : more / 2;
    pairs[2 * axis] = before, pairs[2 * axis + 1] = more - before;
  }
  return db_pad_at(DB_HERE, x, db_operand_int(0), SIZES(2 * db_rank(x), pairs));
}

/* ---- blocks of pixels and triangles ---- */

/* Writes the sizes of a block for db_rearrange. Returns the text, which is in `sizes`. */
static const char *block_sizes(const struct onnx_call *c, char sizes[64]) {
  long long n = node_int(c, "blocksize", 1);
  snprintf(sizes, 64, "p=%lld q=%lld", n, n);
  return sizes;
}

/* Moves channels to blocks of pixels. CRD: the channel is the outer part of the channel axis, DCR: the inner part. */
db_tensor *onnx_op_depth_to_space(struct onnx_call *c) {
  char sizes[64];
  bool crd = node_is(c, "mode", "CRD", "DCR");
  return db_rearrange(node_input(c, 0), crd ? "b (c p q) h w -> b c (h p) (w q)" : "b (p q c) h w -> b c (h p) (w q)",
                      block_sizes(c, sizes));
}
db_tensor *onnx_op_space_to_depth(struct onnx_call *c) {
  char sizes[64];
  bool crd = node_is(c, "mode", "CRD", "DCR");
  return db_rearrange(node_input(c, 0), crd ? "b c (h p) (w q) -> b (c p q) h w" : "b c (h p) (w q) -> b (p q c) h w",
                      block_sizes(c, sizes));
}

db_tensor *onnx_op_trilu(struct onnx_call *c) {
  int64_t k = 0;
  if (node_read_ints(c, 1, &k, 1) < 0) return NULL;
  db_tensor *x = node_input(c, 0);
  int64_t most = 1 + db_dim(x, -1) + db_dim(x, -2);
  k = k > most ? most : k < -most ? -most : k;
  return db_triangle_at(DB_HERE, x, k, node_int(c, "upper", 1));
}
