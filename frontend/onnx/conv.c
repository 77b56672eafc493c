/* Convolutions and pools. */
#include "operators.h"

enum { MOST_SIZES = 3 };

/* The attributes that convolutions and pools share. */
struct window {
  unsigned n; /* axes */
  int64_t kernel[MOST_SIZES], stride[MOST_SIZES], dilation[MOST_SIZES];
  int64_t pads[2 * MOST_SIZES]; /* before and after each axis, as db_conv takes them */
};

/* Pads so that the output has the size of the input divided by the stride, rounded up. */
static void pad_same(struct window *w, const db_tensor *x, bool upper) {
  for (unsigned i = 0; i < w->n; i++) {
    int64_t size = db_dim(x, 2 + (int)i), out = (size + w->stride[i] - 1) / w->stride[i];
    int64_t all = (out - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i] + 1 - size;
    if (all < 0) all = 0;
    w->pads[2 * i] = upper ? all / 2 : all - all / 2;
    w->pads[2 * i + 1] = all - w->pads[2 * i];
  }
}

/* kernel: its sizes if the attribute is not given, or NULL. */
static bool read_window(struct onnx_call *c, const db_tensor *x, const db_tensor *kernel, struct window *w) {
  int64_t pads[2 * MOST_SIZES];
  *w = (struct window){.n = db_rank(x) - 2};
  if (db_rank(x) < 3 || db_rank(x) > 2 + MOST_SIZES)
    return node_unsupported(c, "%u axes of the input; 3 to %d are", db_rank(x), 2 + MOST_SIZES), false;
  unsigned given = node_ints(c, "kernel_shape", w->kernel, w->n);
  if (given != w->n && (!kernel || db_rank(kernel) != db_rank(x)))
    return node_unsupported(c, "this kernel_shape"), false;
  for (unsigned i = 0; i < w->n; i++) {
    w->stride[i] = w->dilation[i] = 1;
    if (kernel) w->kernel[i] = db_dim(kernel, 2 + (int)i);
  }
  node_ints(c, "strides", w->stride, w->n);
  node_ints(c, "dilations", w->dilation, w->n);
  for (unsigned i = 0; i < w->n; i++)
    if (w->stride[i] < 1 || w->dilation[i] < 1 || w->kernel[i] < 1)
      return node_unsupported(c, "strides, dilations and sizes below 1"), false;
  unsigned npads = node_ints(c, "pads", pads, 2 * w->n);
  for (unsigned i = 0; i < w->n && npads == 2 * w->n; i++)
    w->pads[2 * i] = pads[i], w->pads[2 * i + 1] = pads[w->n + i];
  if (node_is(c, "auto_pad", "SAME_UPPER", "NOTSET")) pad_same(w, x, true);
  if (node_is(c, "auto_pad", "SAME_LOWER", "NOTSET")) pad_same(w, x, false);
  return true;
}

static db_tensor *convolve(struct onnx_call *c, db_tensor *x, db_tensor *weight, db_tensor *bias) {
  struct window w;
  if (!read_window(c, x, weight, &w)) return NULL;
  struct db_conv options = {.stride = SIZES(w.n, w.stride),
                            .padding = SIZES(2 * w.n, w.pads),
                            .dilation = SIZES(w.n, w.dilation),
                            .groups = node_int(c, "group", 1)};
  return db_conv_at(DB_HERE, w.n, false, x, weight, bias, options);
}

db_tensor *onnx_op_conv(struct onnx_call *c) {
  return convolve(c, node_input(c, 0), node_input(c, 1), node_input(c, 2));
}

db_tensor *onnx_conv_last(struct onnx_call *c, db_tensor *weight, db_tensor *bias) {
  int64_t order[ONNX_RANK];
  unsigned rank = db_rank(weight);
  order[0] = rank - 1, order[1] = rank - 2;
  for (unsigned i = 2; i < rank; i++) order[i] = i - 2;
  db_tensor *y = convolve(c, node_input(c, 0), db_permute_at(DB_HERE, weight, SIZES(rank, order)), NULL);
  if (!y || db_poison(y)) return y;
  c->last = c->pending = true;
  return bias ? onnx_from_last(c, db_add(onnx_to_last(c, y), bias)) : y;
}

/* An input minus its zero point, in a wider type. A zero point that is a vector has an element for each position along
 * the axis; one with a single element holds for all. */
static db_tensor *centered(struct onnx_call *c, unsigned i, unsigned zero, int axis, db_dtype t) {
  db_tensor *x = db_cast(node_input(c, i), t);
  if (!node_has_input(c, zero)) return x;
  db_tensor *z = db_cast(node_input(c, zero), t);
  if (db_rank(z) == 1 && db_dim(z, 0) > 1) {
    int64_t dim[ONNX_RANK];
    for (unsigned k = 0; k < db_rank(x); k++) dim[k] = (int)k == axis ? db_dim(z, 0) : 1;
    z = db_reshape_at(DB_HERE, z, SIZES(db_rank(x), dim));
  } else if (db_rank(z) == 1) {
    z = db_reshape_at(DB_HERE, z, DB_LIST());
  }
  return db_sub(x, z);
}
db_tensor *onnx_op_conv_integer(struct onnx_call *c) {
  return convolve(c, centered(c, 0, 2, 1, DB_I32), centered(c, 1, 3, 0, DB_I32), NULL);
}
db_tensor *onnx_op_matmul_integer(struct onnx_call *c) {
  db_tensor *a = node_input(c, 0), *b = node_input(c, 1);
  return db_matmul(centered(c, 0, 2, (int)db_rank(a) - 2, DB_I32), centered(c, 1, 3, (int)db_rank(b) - 1, DB_I32));
}

/* ---- quantized products ---- */

/* x / scale + zero, rounded and limited to the type of zero. */
static db_tensor *requantize(struct onnx_call *c, db_tensor *x, db_tensor *scale, db_tensor *zero) {
  db_dtype t = db_dtype_of(zero);
  db_tensor *q = db_add(db_round(db_div(x, db_cast(scale, DB_F32))), db_cast(zero, DB_F32));
  return db_cast(t == DB_U8 ? db_clamp(q, 0, 255) : db_clamp(q, -128, 127), t);
}
/* A scale of each channel as a factor along an axis. */
static db_tensor *scale_along(struct onnx_call *c, unsigned i, unsigned rank, int axis) {
  db_tensor *s = db_cast(node_input(c, i), DB_F32);
  int64_t dim[ONNX_RANK], n = db_numel(s);
  if (n == 1) return db_reshape_at(DB_HERE, s, DB_LIST());
  for (unsigned k = 0; k < rank; k++) dim[k] = (int)k == axis ? n : 1;
  return db_reshape_at(DB_HERE, s, SIZES(rank, dim));
}
db_tensor *onnx_op_qlinear_matmul(struct onnx_call *c) {
  int ra = (int)db_rank(node_input(c, 0)), rb = (int)db_rank(node_input(c, 3));
  db_tensor *sum = db_matmul(centered(c, 0, 2, ra - 2, DB_I32), centered(c, 3, 5, rb - 1, DB_I32));
  db_tensor *scale = db_mul(scale_along(c, 1, (unsigned)ra, ra - 2), scale_along(c, 4, (unsigned)rb, rb - 1));
  return requantize(c, db_mul(db_cast(sum, DB_F32), scale), node_input(c, 6), node_input(c, 7));
}
db_tensor *onnx_op_qlinear_conv(struct onnx_call *c) {
  unsigned rank = db_rank(node_input(c, 0));
  db_tensor *sum = convolve(c, centered(c, 0, 2, 1, DB_I32), centered(c, 3, 5, 0, DB_I32), node_input(c, 8));
  if (!sum) return NULL;
  db_tensor *x = db_mul(db_cast(sum, DB_F32), scale_along(c, 1, rank, 1));
  return requantize(c, db_mul(x, scale_along(c, 4, rank, 1)), node_input(c, 6), node_input(c, 7));
}

/* ---- transposed convolution ---- */

db_tensor *onnx_op_conv_transpose(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *weight = node_input(c, 1), *bias = node_input(c, 2);
  struct window w;
  int64_t more[MOST_SIZES] = {0}, wanted[MOST_SIZES], zero[2 * MOST_SIZES] = {0}, pairs[2 * (2 + MOST_SIZES)] = {0};
  if (!read_window(c, x, weight, &w)) return NULL;
  node_ints(c, "output_padding", more, w.n);
  bool has_shape = node_ints(c, "output_shape", wanted, w.n) == w.n;
  bool upper = node_is(c, "auto_pad", "SAME_UPPER", "NOTSET"), lower = node_is(c, "auto_pad", "SAME_LOWER", "NOTSET");
  for (unsigned i = 0; i < w.n; i++) {
    int64_t size = db_dim(x, 2 + (int)i);
    int64_t full = (size - 1) * w.stride[i] + (w.kernel[i] - 1) * w.dilation[i] + 1 + more[i];
    if (has_shape || upper || lower) {
      int64_t out = has_shape ? wanted[i] : size * w.stride[i], all = full - out;
      w.pads[2 * i] = upper ? (all + 1) / 2 : all / 2;
      if (upper && !has_shape) w.pads[2 * i] = all / 2;
      w.pads[2 * i + 1] = all - w.pads[2 * i];
    }
    /* The padding is removed from the whole output, because more[i] may be larger than db_conv accepts. */
    pairs[4 + 2 * i] = -w.pads[2 * i], pairs[4 + 2 * i + 1] = more[i] - w.pads[2 * i + 1];
  }
  struct db_conv options = {.stride = SIZES(w.n, w.stride),
                            .padding = SIZES(2 * w.n, zero),
                            .dilation = SIZES(w.n, w.dilation),
                            .groups = node_int(c, "group", 1)};
  db_tensor *y = db_conv_at(DB_HERE, w.n, true, x, weight, NULL, options);
  y = db_pad_at(DB_HERE, y, db_operand_int(0), SIZES(4 + 2 * w.n, pairs));
  if (!bias) return y;
  int64_t dim[2 + MOST_SIZES] = {1, db_dim(bias, 0), 1, 1, 1};
  return db_add(y, db_reshape_at(DB_HERE, bias, SIZES(2 + w.n, dim)));
}

/* ---- pools ---- */

/* With ceil_mode, windows that start in the padding at the end do not count. Adds padding to w until the last window
 * fits. */
static void pad_ceil(struct onnx_call *c, const db_tensor *x, struct window *w) {
  if (!node_int(c, "ceil_mode", 0)) return;
  for (unsigned i = 0; i < w->n; i++) {
    int64_t size = db_dim(x, 2 + (int)i), extent = (w->kernel[i] - 1) * w->dilation[i] + 1;
    int64_t padded = size + w->pads[2 * i] + w->pads[2 * i + 1], over = padded - extent;
    if (over < 0) continue;
    int64_t last = (over + w->stride[i] - 1) / w->stride[i] * w->stride[i];
    if (last >= size + w->pads[2 * i]) last -= w->stride[i];
    if (last + extent > padded) w->pads[2 * i + 1] += last + extent - padded;
  }
}

/* All windows of x, padded with a value: [batch, channels, outputs..., kernel...]. */
static db_tensor *windows(struct onnx_call *c, db_tensor *x, const struct window *w, db_operand value) {
  int64_t pairs[2 * (2 + MOST_SIZES)] = {0}, order[2 + 2 * MOST_SIZES] = {0, 1};
  memcpy(pairs + 4, w->pads, 2 * w->n * sizeof *pairs);
  x = db_pad_at(DB_HERE, x, value, SIZES(4 + 2 * w->n, pairs));
  for (unsigned i = 0; i < w->n; i++) {
    int axis = 2 + 2 * (int)i;
    int64_t size = db_dim(x, axis), extent = (w->kernel[i] - 1) * w->dilation[i] + 1;
    db_subscript s[2 + 2 * MOST_SIZES];
    for (int k = 0; k < axis; k++) s[k] = DB_WHOLE;
    int64_t count = size < extent ? 0 : (size - extent) / w->stride[i] + 1;
    db_tensor *begin = db_mul(db_arange(0, (double)count, 1, DB_I64, c->dev), w->stride[i]);
    db_tensor *offset = db_mul(db_arange(0, (double)w->kernel[i], 1, DB_I64, c->dev), w->dilation[i]);
    s[axis] = DB_BY(db_add(db_unsqueeze(begin, 1), offset));
    x = db_index_at(DB_HERE, x, s, (unsigned)axis + 1);
    order[2 + i] = axis, order[2 + w->n + i] = axis + 1;
  }
  return db_permute_at(DB_HERE, x, SIZES(2 + 2 * w->n, order));
}

static db_list last_axes(unsigned n, int64_t axes[MOST_SIZES]) {
  for (unsigned i = 0; i < n; i++) axes[i] = (int64_t)i - n;
  return SIZES(n, axes);
}

/* Where the maximum of each window is in its batch and channel, or in all of x. */
static db_tensor *max_positions(struct onnx_call *c, db_tensor *x, const struct window *w) {
  int64_t dim[ONNX_RANK], n = 1, step = 1, count = 1;
  bool columns = node_int(c, "storage_order", 0);
  unsigned rank = 2 + w->n;
  node_shape(x, dim);
  db_tensor *all = windows(c, x, w, db_operand_float(-INFINITY)), *at = NULL;
  for (unsigned i = 0; i < w->n; i++) n *= w->kernel[i], count *= dim[2 + i];
  int64_t outputs[2 + MOST_SIZES];
  for (unsigned i = 0; i < rank; i++) outputs[i] = db_dim(all, (int)i);
  int64_t flat[3 + MOST_SIZES];
  memcpy(flat, outputs, rank * sizeof *flat), flat[rank] = n;
  db_tensor *inner = db_argmax(db_reshape_at(DB_HERE, all, SIZES(rank + 1, flat)), -1);
  db_tensor *left = inner;
  int64_t steps[MOST_SIZES];
  for (unsigned i = 0; i < w->n; i++) {
    unsigned k = columns ? i : w->n - 1 - i;
    steps[k] = step, step *= dim[2 + k];
  }
  for (unsigned i = w->n; i-- > 0; left = db_idiv(left, w->kernel[i])) {
    int64_t ones[2 + MOST_SIZES] = {1, 1, 1, 1, 1};
    ones[2 + i] = outputs[2 + i];
    db_tensor *begin = db_mul(db_arange(0, (double)outputs[2 + i], 1, DB_I64, c->dev), w->stride[i]);
    begin = db_reshape_at(DB_HERE, db_sub(begin, w->pads[2 * i]), SIZES(rank, ones));
    db_tensor *place = db_mul(db_add(begin, db_mul(db_mod(left, w->kernel[i]), w->dilation[i])), steps[i]);
    at = at ? db_add(at, place) : place;
  }
  int64_t ones[2 + MOST_SIZES] = {dim[0], dim[1], 1, 1, 1};
  db_tensor *base = db_mul(db_arange(0, (double)(dim[0] * dim[1]), 1, DB_I64, c->dev), count);
  return db_add(at, db_reshape_at(DB_HERE, base, SIZES(rank, ones)));
}

db_tensor *onnx_op_pool(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  struct window w;
  db_dtype t = db_dtype_of(x);
  if (!read_window(c, x, NULL, &w)) return NULL;
  int64_t before_ceil[2 * MOST_SIZES];
  memcpy(before_ceil, w.pads, sizeof before_ceil);
  pad_ceil(c, x, &w);
  bool max = c->op->param == DB_POOL_MAX, count_pads = node_int(c, "count_include_pad", 0);
  if (node_has_output(c, 1)) c->out[1] = max_positions(c, is_float(x) ? x : db_cast(x, DB_F32), &w);
  int64_t axes[MOST_SIZES];
  db_list last = last_axes(w.n, axes);
  if (max) {
    db_operand least = is_float(x) ? db_operand_float(-INFINITY) : db_operand_int(t == DB_U8 ? 0 : -128);
    struct db_pool o = {
        .stride = SIZES(w.n, w.stride), .padding = SIZES(2 * w.n, w.pads), .dilation = SIZES(w.n, w.dilation)};
    bool small = true;
    for (unsigned i = 0; i < 2 * w.n; i++) small = small && w.pads[i] <= (w.kernel[i / 2] - 1) * w.dilation[i / 2];
    if (small) return db_pool_at(DB_HERE, w.n, DB_POOL_MAX, x, SIZES(w.n, w.kernel), o);
    return db_reduce_at(DB_HERE, DB_REDUCE_MAX, windows(c, x, &w, least), last, false);
  }
  /* The mean divides by the elements of the input, or also by the padding that the attributes ask for, but not by what
   * ceil_mode adds. */
  db_tensor *ones = db_ones_like(x);
  if (count_pads) {
    int64_t pairs[2 * (2 + MOST_SIZES)] = {0};
    memcpy(pairs + 4, before_ceil, 2 * w.n * sizeof *pairs);
    ones = db_pad_at(DB_HERE, ones, db_operand_int(1), SIZES(4 + 2 * w.n, pairs));
  }
  struct window counted = w;
  for (unsigned i = 0; i < 2 * w.n && count_pads; i++) counted.pads[i] = w.pads[i] - before_ceil[i];
  bool simple = !memcmp(before_ceil, w.pads, sizeof before_ceil);
  for (unsigned i = 0; i < 2 * w.n; i++) simple = simple && w.pads[i] <= (w.kernel[i / 2] - 1) * w.dilation[i / 2];
  if (simple) {
    struct db_pool o = {.stride = SIZES(w.n, w.stride),
                        .padding = SIZES(2 * w.n, w.pads),
                        .dilation = SIZES(w.n, w.dilation),
                        .exclude_padding = !count_pads};
    return db_pool_at(DB_HERE, w.n, DB_POOL_MEAN, x, SIZES(w.n, w.kernel), o);
  }
  db_tensor *sum = db_reduce_at(DB_HERE, DB_REDUCE_SUM, windows(c, x, &w, db_operand_int(0)), last, false);
  db_tensor *n = db_reduce_at(DB_HERE, DB_REDUCE_SUM, windows(c, ones, &counted, db_operand_int(0)), last, false);
  return db_cast(db_div(sum, n), t);
}

/* (sum of |x|^p)^(1/p) of each window. */
db_tensor *onnx_op_lp_pool(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  struct window w;
  int64_t axes[MOST_SIZES];
  if (!read_window(c, x, NULL, &w)) return NULL;
  pad_ceil(c, x, &w);
  double p = (double)node_int(c, "p", 2);
  return db_norm_at(DB_HERE, windows(c, x, &w, db_operand_int(0)), p, last_axes(w.n, axes), false);
}

db_tensor *onnx_op_global_pool(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  int64_t axes[ONNX_RANK];
  unsigned n = 0;
  for (unsigned i = 2; i < db_rank(x); i++) axes[n++] = i;
  if (!n) return node_unsupported(c, "%u axes of the input", db_rank(x));
  if (!c->op->param) return db_norm_at(DB_HERE, x, (double)node_int(c, "p", 2), SIZES(n, axes), true);
  return db_reduce_at(DB_HERE, (enum db_reduce_op)c->op->param, x, SIZES(n, axes), true);
}

/* Writes each element back to where max_positions found it. */
db_tensor *onnx_op_max_unpool(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *at = node_input(c, 1);
  struct window w;
  int64_t dim[ONNX_RANK], count = 1;
  if (!read_window(c, x, NULL, &w)) return NULL;
  node_shape(x, dim);
  for (unsigned i = 0; i < w.n; i++)
    dim[2 + i] = (dim[2 + i] - 1) * w.stride[i] + w.kernel[i] - w.pads[2 * i] - w.pads[2 * i + 1];
  for (unsigned i = 0; i < 2 + w.n; i++) count *= dim[i];
  int64_t wanted[ONNX_RANK], pairs[2 * ONNX_RANK] = {0};
  int n = node_read_ints(c, 2, wanted, ONNX_RANK);
  if (n < 0) return NULL;
  /* Positions are those in a tensor of the size that the attributes give. */
  db_tensor *zeros = db_full_at(DB_HERE, db_operand_int(0), db_dtype_of(x), c->dev, DB_LIST(count));
  db_tensor *flat = db_scatter(zeros, 0, db_reshape(at, -1), db_reshape(x, -1));
  db_tensor *y = db_reshape_at(DB_HERE, flat, SIZES(2 + w.n, dim));
  for (int i = 0; i < n && n == (int)w.n + 2; i++) pairs[2 * i + 1] = wanted[i] - dim[i];
  return n ? db_pad_at(DB_HERE, y, db_operand_int(0), SIZES(2 * (2 + w.n), pairs)) : y;
}

/* Sums columns of patches back into an image. */
db_tensor *onnx_op_col2im(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  int64_t image[MOST_SIZES], block[MOST_SIZES], stride[MOST_SIZES] = {1, 1, 1}, dilation[MOST_SIZES] = {1, 1, 1};
  int64_t pads[2 * MOST_SIZES] = {0}, patches[MOST_SIZES], cells = 1, total = 1;
  int n = node_read_ints(c, 1, image, MOST_SIZES), m = node_read_ints(c, 2, block, MOST_SIZES);
  if (n < 1 || m != n || db_rank(x) != 3) return n < 0 || m < 0 ? NULL : node_unsupported(c, "these sizes");
  node_ints(c, "strides", stride, (unsigned)n);
  node_ints(c, "dilations", dilation, (unsigned)n);
  node_ints(c, "pads", pads, 2 * (unsigned)n);
  db_tensor *at = NULL, *inside = NULL;
  for (int i = 0; i < n; i++)
    if (stride[i] < 1 || dilation[i] < 1 || block[i] < 1 || image[i] < 1)
      return node_unsupported(c, "strides, dilations and sizes below 1");
  for (int i = 0; i < n; i++) {
    patches[i] = (image[i] + pads[i] + pads[n + i] - (block[i] - 1) * dilation[i] - 1) / stride[i] + 1;
    if (__builtin_mul_overflow(cells, block[i], &cells) || __builtin_mul_overflow(total, image[i], &total))
      return node_unsupported(c, "these sizes");
  }
  /* The position of cell [block...] of patch [patches...] in the image. */
  for (int i = 0; i < n; i++) {
    int64_t dim[2 * MOST_SIZES];
    for (int k = 0; k < 2 * n; k++) dim[k] = 1;
    dim[i] = block[i];
    db_tensor *cell = db_mul(db_arange(0, (double)block[i], 1, DB_I64, c->dev), dilation[i]);
    cell = db_reshape_at(DB_HERE, cell, SIZES(2 * n, dim));
    dim[i] = 1, dim[n + i] = patches[i];
    db_tensor *patch = db_mul(db_arange(0, (double)patches[i], 1, DB_I64, c->dev), stride[i]);
    db_tensor *place = db_add(cell, db_reshape_at(DB_HERE, db_sub(patch, pads[i]), SIZES(2 * n, dim)));
    db_tensor *ok = db_and(db_ge(place, 0), db_lt(place, image[i]));
    at = at ? db_add(db_mul(at, image[i]), place) : place;
    inside = inside ? db_and(inside, ok) : ok;
  }
  at = db_reshape(db_where(inside, at, total), 1, -1); /* cells in the padding go past the end */
  int64_t batch = db_dim(x, 0), channels = db_dim(x, 1) / cells, dim[2 + MOST_SIZES] = {batch, channels};
  db_tensor *values = db_reshape(x, batch * channels, -1);
  db_tensor *zeros =
      db_full_at(DB_HERE, db_operand_int(0), db_dtype_of(x), c->dev, DB_LIST(batch * channels, total + 1));
  db_tensor *y = db_scatter_add(zeros, 1, db_expand(at, batch * channels, db_numel(at)), values);
  memcpy(dim + 2, image, (size_t)n * sizeof *image);
  return db_reshape_at(DB_HERE, db_index(y, DB_WHOLE, DB_SLICE(0, total, 1)), SIZES(2 + n, dim));
}
