/* Reading images at positions between their elements: GridSample, DeformConv, RoiAlign. */
#include "operators.h"

enum { MOST_AXES = 3, MOST_TAPS = 4 };

/* The elements along one axis that a position is between, and their weights. */
struct taps {
  unsigned n;
  db_tensor *at[MOST_TAPS], *weight[MOST_TAPS];
  db_tensor *there[MOST_TAPS]; /* false: 0 is read instead; NULL: all are elements */
};

/* Limits positions to 0 to size - 1, so that they are elements even if they come from a NaN. */
static db_tensor *inside(struct onnx_call *c, db_tensor *at, int64_t size) {
  return db_maximum(db_minimum(at, size - 1), 0);
}

/* Reflects positions at both ends of an axis until they are between them. */
static db_tensor *reflect(struct onnx_call *c, db_tensor *x, int64_t size, bool corners) {
  double low = corners ? 0 : -0.5, length = (double)(corners ? size - 1 : size);
  if (length <= 0) return db_zeros_like(x);
  db_tensor *way = db_sub(x, low);
  way = db_sub(way, db_mul(db_floor(db_div(way, 2 * length)), 2 * length));
  way = db_add(db_minimum(way, db_sub(2 * length, way)), low);
  return db_where(db_or(db_lt(x, low), db_gt(x, low + length)), way, x);
}

enum padding { ZEROS, BORDER, REFLECTION };

static void add_tap(struct onnx_call *c, struct taps *t, db_tensor *x, db_tensor *weight, int64_t size,
                    enum padding padding, bool corners) {
  if (padding == REFLECTION) x = reflect(c, x, size, corners);
  if (padding == ZEROS) t->there[t->n] = db_and(db_ge(x, 0), db_le(x, size - 1));
  t->at[t->n] = inside(c, db_cast(x, DB_I64), size);
  t->weight[t->n++] = weight;
}

/* Weights of cubic interpolation (Keys, "Cubic convolution interpolation for digital image processing") of an element
 * at a distance of at most 1, or from 1 to 2. */
static db_tensor *cubic_near(struct onnx_call *c, db_tensor *d) {
  const double a = -0.75;
  return db_add(db_mul(db_mul(db_sub(db_mul(d, a + 2), a + 3), d), d), 1);
}
static db_tensor *cubic_far(struct onnx_call *c, db_tensor *d) {
  const double a = -0.75;
  db_tensor *sum = db_add(db_mul(db_sub(db_mul(d, a), 5 * a), d), 8 * a);
  return db_sub(db_mul(sum, d), 4 * a);
}

/* order: 0, 1 or 3, of the interpolation. x: positions in elements, of a float type. */
static struct taps taps_of(struct onnx_call *c, db_tensor *x, int64_t size, int order, enum padding padding,
                           bool corners) {
  struct taps t = {0};
  double last = (double)(size - 1), outer = corners ? 0 : 0.5; /* the image ends so far from its outer elements */
  if (order == 0) x = db_round(x);
  if (padding == BORDER) x = db_where(db_lt(x, -outer), 0, db_where(db_gt(x, last + outer), last, x));
  if (padding == REFLECTION) x = reflect(c, x, size, corners);
  if (order == 0) {
    add_tap(c, &t, x, NULL, size, padding, corners);
    return t;
  }
  db_tensor *first = db_floor(x), *d = db_sub(x, first), *rest = db_sub(1, d);
  if (order == 3) add_tap(c, &t, db_sub(first, 1), cubic_far(c, db_add(d, 1)), size, padding, corners);
  add_tap(c, &t, first, order == 3 ? cubic_near(c, d) : rest, size, padding, corners);
  add_tap(c, &t, db_add(first, 1), order == 3 ? cubic_near(c, rest) : d, size, padding, corners);
  if (order == 3) add_tap(c, &t, db_add(first, 2), cubic_far(c, db_add(rest, 1)), size, padding, corners);
  return t;
}

/* The sum, or the maximum, of the elements between which positions are, times their weights. x: [batch..., sizes...,
 * channels]; batch: `leading` positions in its first axes. The result has the channels last. */
static db_tensor *gather(struct onnx_call *c, db_tensor *x, db_tensor *const *batch, unsigned leading,
                         const struct taps *t, unsigned axes, bool max) {
  db_subscript s[2 + MOST_AXES];
  db_tensor *all = NULL;
  unsigned count = 1;
  for (unsigned i = 0; i < leading; i++) s[i] = DB_BY(batch[i]);
  for (unsigned k = 0; k < axes; k++) count *= t[k].n;
  for (unsigned i = 0; i < count; i++) {
    db_tensor *weight = NULL, *there = NULL;
    for (unsigned k = 0, left = i; k < axes; left /= t[k++].n) {
      unsigned tap = left % t[k].n;
      s[leading + k] = DB_BY(t[k].at[tap]);
      if (t[k].there[tap]) there = there ? db_and(there, t[k].there[tap]) : t[k].there[tap];
      if (t[k].weight[tap]) weight = weight ? db_mul(weight, t[k].weight[tap]) : t[k].weight[tap];
    }
    db_tensor *part = db_index_at(DB_HERE, x, s, leading + axes);
    if (weight) part = db_mul(part, db_cast(db_unsqueeze(weight, -1), db_dtype_of(part)));
    if (there) part = db_where(db_unsqueeze(there, -1), part, 0); /* the element in its place may be infinite */
    all = !all ? part : max ? db_maximum(all, part) : db_add(all, part);
  }
  return all;
}

/* Positions 0 to n - 1 along one of `rank` axes. */
static db_tensor *along(struct onnx_call *c, int64_t n, unsigned axis, unsigned rank, db_dtype t) {
  int64_t dim[ONNX_RANK];
  for (unsigned i = 0; i < rank; i++) dim[i] = i == axis ? n : 1;
  return db_reshape_at(DB_HERE, db_arange(0, (double)n, 1, t, c->dev), SIZES(rank, dim));
}

/* ---- GridSample ---- */

db_tensor *onnx_op_grid_sample(struct onnx_call *c) {
  static const struct {
    const char *name;
    int order;
  } modes[] = {{"linear", 1}, {"bilinear", 1}, {"nearest", 0}, {"cubic", 3}, {"bicubic", 3}};
  static const char *const paddings[] = {"zeros", "border", "reflection"};
  db_tensor *x = node_input(c, 0), *grid = node_input(c, 1);
  unsigned rank = db_rank(x), axes = rank - 2, padding = 0, mode = 0;
  bool corners = node_int(c, "align_corners", 0);
  if (rank < 3 || axes > MOST_AXES || db_rank(grid) != rank || db_dim(grid, -1) != axes)
    return node_unsupported(c, "a grid with %u axes for an input with %u", db_rank(grid), rank);
  while (mode < 5 && !node_is(c, "mode", modes[mode].name, "linear")) mode++;
  while (padding < 3 && !node_is(c, "padding_mode", paddings[padding], "zeros")) padding++;
  if (mode == 5 || padding == 3) return node_unsupported(c, "this mode");
  db_dtype t = db_dtype_of(x), wide = db_dtype_of(grid) == DB_F64 ? DB_F64 : DB_F32;
  if (!db_numel(x) || db_dim(grid, 0) != db_dim(x, 0)) return node_unsupported(c, "inputs of these shapes");
  struct taps taps[MOST_AXES];
  for (unsigned k = 0; k < axes; k++) { /* the first coordinate is that of the last axis */
    double size = (double)db_dim(x, 2 + (int)k);
    db_tensor *at = db_add(db_cast(db_index(grid, DB_REST, DB_PICK(axes - 1 - k)), wide), 1);
    at = corners ? db_mul(db_div(at, 2), size - 1) : db_div(db_sub(db_mul(at, size), 1), 2);
    taps[k] = taps_of(c, at, (int64_t)size, modes[mode].order, padding, corners);
  }
  db_tensor *batch = along(c, db_dim(x, 0), 0, rank - 1, DB_I64);
  if (modes[mode].order) x = db_cast(x, db_dtype_of(x) == DB_F64 ? DB_F64 : wide);
  return db_cast(onnx_from_last(c, gather(c, onnx_to_last(c, x), &batch, 1, taps, axes, false)), t);
}

/* ---- DeformConv: a convolution whose elements are read at positions moved by an input ---- */

struct deform {
  int64_t stride[2], dilation[2], pads[4], groups, offset_groups;
};

/* Reads an attribute of n numbers that are at least `least`. v has their values if it is not given. */
static bool read_numbers(struct onnx_call *c, const char *name, unsigned n, int64_t least, int64_t *v) {
  const Onnx__Attribute *a = node_attribute(c, name);
  if (a && a->n_ints != n) return node_unsupported(c, "%s of %zu values, expected %u", name, a->n_ints, n), false;
  node_ints(c, name, v, n);
  for (unsigned i = 0; i < n; i++)
    if (v[i] < least) return node_unsupported(c, "%s of %lld", name, (long long)v[i]), false;
  return true;
}

/* Reads the attributes and compares them with the shapes of the inputs. */
static bool read_deform(struct onnx_call *c, struct deform *d) {
  static const char *const names[] = {"x", "the weights", "the offset"};
  db_tensor *in[3] = {node_input(c, 0), node_input(c, 1), node_input(c, 2)}, *x = in[0], *w = in[1], *offset = in[2];
  for (unsigned i = 0; i < 3; i++)
    if (db_rank(in[i]) != 4 || (i < 2 && !db_numel(in[i])))
      return node_unsupported(c, "%u axes and %lld elements of %s", db_rank(in[i]), (long long)db_numel(in[i]),
                              names[i]),
             false;
  int64_t kernel[2] = {db_dim(w, 2), db_dim(w, 3)}, channels = db_dim(x, 1);
  *d = (struct deform){.stride = {1, 1},
                       .dilation = {1, 1},
                       .groups = node_int(c, "group", 1),
                       .offset_groups = node_int(c, "offset_group", 1)};
  if (!read_numbers(c, "strides", 2, 1, d->stride) || !read_numbers(c, "dilations", 2, 1, d->dilation) ||
      !read_numbers(c, "pads", 4, INT32_MIN, d->pads) || !read_numbers(c, "kernel_shape", 2, 1, kernel))
    return false;
  if (kernel[0] != db_dim(w, 2) || kernel[1] != db_dim(w, 3))
    return node_unsupported(c, "a kernel_shape other than that of the weights"), false;
  if (d->groups < 1 || d->groups > channels || channels != d->groups * db_dim(w, 1) || db_dim(w, 0) % d->groups)
    return node_unsupported(c, "a group of %lld", (long long)d->groups), false;
  int64_t og = d->offset_groups;
  if (og < 1 || og > channels || channels % og || db_dim(offset, 1) != 2 * og * kernel[0] * kernel[1])
    return node_unsupported(c, "an offset_group of %lld", (long long)og), false;
  if (db_dim(offset, 0) != db_dim(x, 0))
    return node_unsupported(c, "a batch of the offset other than that of x"), false;
  for (int k = 0; k < 2; k++) { /* doubles do not overflow */
    double room = (double)db_dim(x, 2 + k) + (double)d->pads[k] + (double)d->pads[2 + k] -
                  ((double)(kernel[k] - 1) * (double)d->dilation[k] + 1);
    if (room < 0 || floor(room / (double)d->stride[k]) + 1 != (double)db_dim(offset, 2 + k))
      return node_unsupported(c, "%lld positions along axis %d of the offset", (long long)db_dim(offset, 2 + k), 2 + k),
             false;
  }
  return true;
}

db_tensor *onnx_op_deform_conv(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *w = node_input(c, 1), *offset = node_input(c, 2), *mask = node_input(c, 4);
  struct deform d;
  if (!read_deform(c, &d)) return NULL;
  int64_t groups = d.groups, og = d.offset_groups;
  int64_t n = db_dim(x, 0), channels = db_dim(x, 1), size[2] = {db_dim(x, 2), db_dim(x, 3)};
  int64_t kh = db_dim(w, 2), kw = db_dim(w, 3), oh = db_dim(offset, 2), ow = db_dim(offset, 3), m = db_dim(w, 0);
  db_dtype t = db_dtype_of(x), wide = t == DB_F64 ? DB_F64 : DB_F32;
  struct taps taps[2];
  offset = db_reshape(db_cast(offset, wide), n, og, kh, kw, 2, oh, ow);
  for (unsigned k = 0; k < 2; k++) { /* axes: batch, group, rows and columns of the kernel, of the output */
    db_tensor *at = db_mul(along(c, k ? kw : kh, 2 + k, 6, wide), (double)d.dilation[k]);
    at = db_add(at, db_mul(along(c, k ? ow : oh, 4 + k, 6, wide), (double)d.stride[k]));
    at = db_add(db_sub(at, (double)d.pads[k]), db_index(offset, DB_WHOLE, DB_WHOLE, DB_WHOLE, DB_WHOLE, DB_PICK(k)));
    taps[k] = taps_of(c, at, size[k], 1, ZEROS, false);
  }
  db_tensor *batch[2] = {along(c, n, 0, 6, DB_I64), along(c, og, 1, 6, DB_I64)};
  db_tensor *images = db_permute(db_reshape(db_cast(x, wide), n, og, channels / og, size[0], size[1]), 0, 1, 3, 4, 2);
  db_tensor *read = gather(c, images, batch, 2, taps, 2, false);
  if (mask) read = db_mul(read, db_reshape(db_cast(mask, wide), n, og, kh, kw, oh, ow, 1));
  read = db_reshape(db_permute(read, 0, 1, 6, 2, 3, 4, 5), n, groups, channels / groups * kh * kw, oh * ow);
  db_tensor *y = db_matmul(db_reshape(db_cast(w, wide), groups, m / groups, -1), read);
  y = db_reshape(y, n, m, oh, ow);
  if (node_has_input(c, 3)) y = db_add(y, db_reshape(db_cast(node_input(c, 3), wide), -1, 1, 1));
  return db_cast(y, t);
}

/* ---- RoiAlign: means or maxima of samples in the cells of boxes ---- */

enum { MOST_SAMPLES = 256, MOST_CELLS = 1 << 14 }; /* along an axis of a cell, and of a box */

struct boxes {
  db_tensor *box; /* [boxes, 4] */
  db_dtype t;     /* of positions and weights: f32 or f64 */
  bool half;      /* positions are those of the elements' centers */
  int64_t samples[2], cells[2];
  db_tensor *counts[2]; /* of the samples of each box along an axis; NULL: all have `samples` */
};

/* The begin of the boxes along an axis, and the size of their cells: [boxes, 1, 1]. */
static void box_along(struct onnx_call *c, const struct boxes *b, unsigned k, db_tensor **begin, db_tensor **cell) {
  double scale = node_float(c, "spatial_scale", 1), shift = b->half ? 0.5 : 0;
  *begin = db_sub(db_mul(db_index(b->box, DB_WHOLE, DB_PICK(1 - k)), scale), shift);
  db_tensor *size = db_sub(db_sub(db_mul(db_index(b->box, DB_WHOLE, DB_PICK(3 - k)), scale), shift), *begin);
  *cell = db_div(b->half ? size : db_maximum(size, 1), (double)b->cells[k]);
  *begin = db_reshape(*begin, -1, 1, 1), *cell = db_reshape(*cell, -1, 1, 1);
}

static double rounded(db_dtype t, double x) { return t == DB_F64 ? x : (double)(float)x; }

/* Without a sampling_ratio, the number of samples depends on the size of a box, so sizes are read on the host. */
static bool count_samples(struct onnx_call *c, struct boxes *b) {
  size_t n;
  double *v = node_read_all(c, 1, &n), scale = node_float(c, "spatial_scale", 1);
  if (!v) return false;
  int64_t boxes = (int64_t)n / 4;
  for (unsigned k = 0; k < 2; k++) {
    float *counts = calloc((size_t)boxes + 1, sizeof *counts);
    b->samples[k] = 1;
    for (int64_t i = 0; counts && i < boxes; i++) {
      double *box = v + 4 * i, end = rounded(b->t, box[3 - k] * scale);
      double size = rounded(b->t, end - rounded(b->t, box[1 - k] * scale));
      if (!b->half && !(size > 1)) size = 1;
      double count = ceil(rounded(b->t, size / (double)b->cells[k]));
      counts[i] = count > 0 ? (float)count : 0;
      if (count > (double)b->samples[k]) b->samples[k] = count <= MOST_SAMPLES ? (int64_t)count : MOST_SAMPLES + 1;
    }
    if (counts) b->counts[k] = db_cast(node_tensor(c, counts, DB_F32, 3, (int64_t[]){boxes, 1, 1}), b->t);
    free(counts);
    if (!counts || b->samples[k] > MOST_SAMPLES) {
      free(v);
      return counts ? node_unsupported(c, "more than %d samples along an axis", MOST_SAMPLES),
             false  : db_fail(-ENOMEM, "out of memory"), false;
    }
  }
  free(v);
  return true;
}

/* The elements of the samples along an axis: [boxes, cells, samples]. Samples that are not in the image are 0. */
static struct taps samples_along(struct onnx_call *c, const struct boxes *b, unsigned k, int64_t size) {
  db_tensor *begin, *cell, *count = b->counts[k];
  struct taps t = {.n = 2};
  box_along(c, b, k, &begin, &cell);
  db_tensor *sample = db_mul(db_add(along(c, b->samples[k], 2, 3, b->t), 0.5), cell);
  sample = count ? db_div(sample, db_maximum(count, 1)) : db_div(sample, (double)b->samples[k]);
  db_tensor *x = db_add(db_add(begin, db_mul(along(c, b->cells[k], 1, 3, b->t), cell)), sample);
  db_tensor *there = db_and(db_ge(x, -1), db_le(x, (double)size));
  x = db_minimum(db_maximum(x, 0), (double)(size - 1));
  db_tensor *first = db_floor(x), *d = db_sub(x, first);
  t.at[0] = inside(c, db_cast(first, DB_I64), size), t.at[1] = inside(c, db_cast(db_add(first, 1), DB_I64), size);
  t.weight[0] = db_sub(1, d), t.weight[1] = d, t.there[0] = t.there[1] = there;
  return t;
}

/* Moves the samples of the rows or of the columns to their axes: [boxes, rows, samples, columns, samples]. */
static db_tensor *spread(struct onnx_call *c, db_tensor *x, unsigned k) {
  int64_t a = db_dim(x, 1), b = db_dim(x, 2);
  return k ? db_reshape(x, -1, 1, 1, a, b) : db_reshape(x, -1, a, b, 1, 1);
}

db_tensor *onnx_op_roi_align(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *index = node_input(c, 2), *live[2] = {NULL, NULL};
  const char *positions = "coordinate_transformation_mode";
  db_dtype t = db_dtype_of(x) == DB_F64 ? DB_F64 : DB_F32;
  struct boxes b = {.box = db_cast(node_input(c, 1), t),
                    .t = t,
                    .half = c->opset >= 16 && node_is(c, positions, "half_pixel", "half_pixel"),
                    .cells = {node_int(c, "output_height", 1), node_int(c, "output_width", 1)}};
  bool max = node_is(c, "mode", "max", "avg");
  int64_t ratio = node_int(c, "sampling_ratio", 0);
  if (db_rank(x) != 4 || !db_numel(x) || db_rank(b.box) != 2 || db_dim(b.box, 1) != 4 || db_rank(index) != 1 ||
      db_dim(index, 0) != db_dim(b.box, 0) || b.cells[0] < 1 || b.cells[1] < 1)
    return node_unsupported(c, "inputs of these shapes");
  for (unsigned k = 0; k < 2; k++)
    if (b.cells[k] > MOST_CELLS)
      return node_unsupported(c, "an %s of %lld; at most %d is", k ? "output_width" : "output_height",
                              (long long)b.cells[k], MOST_CELLS);
  if (!max && !node_is(c, "mode", "avg", "avg")) return node_unsupported(c, "this mode");
  if (c->opset >= 16 && !b.half && !node_is(c, positions, "output_half_pixel", "half_pixel"))
    return node_unsupported(c, "this %s", positions);
  if (ratio > MOST_SAMPLES)
    return node_unsupported(c, "a sampling_ratio of %lld; at most %d is", (long long)ratio, MOST_SAMPLES);
  b.samples[0] = b.samples[1] = ratio;
  if (ratio < 1 && !count_samples(c, &b)) return NULL;
  struct taps taps[2];
  for (unsigned k = 0; k < 2; k++) {
    taps[k] = samples_along(c, &b, k, db_dim(x, 2 + (int)k));
    for (unsigned i = 0; i < 2; i++) {
      taps[k].at[i] = spread(c, taps[k].at[i], k);
      taps[k].weight[i] = spread(c, taps[k].weight[i], k);
      taps[k].there[i] = spread(c, taps[k].there[i], k);
    }
    if (b.counts[k]) live[k] = spread(c, db_lt(along(c, b.samples[k], 2, 3, t), b.counts[k]), k);
  }
  db_tensor *batch = db_reshape(inside(c, db_cast(index, DB_I64), db_dim(x, 0)), -1, 1, 1, 1, 1);
  db_tensor *all = gather(c, onnx_to_last(c, db_cast(x, t)), &batch, 1, taps, 2, max);
  /* Boxes with fewer samples than the largest one leave out the others. */
  if (live[0])
    all = db_where_at(DB_HERE, db_unsqueeze(db_and(live[0], live[1]), -1), db_operand_tensor(all),
                      db_operand_float(max ? -INFINITY : 0));
  db_tensor *y = db_reduce_at(DB_HERE, max ? DB_REDUCE_MAX : DB_REDUCE_SUM, all, DB_LIST(2, 4), false);
  db_tensor *count = live[0] ? db_reshape(db_mul(b.counts[0], b.counts[1]), -1, 1, 1, 1) : NULL;
  if (max && count) y = db_where(db_eq(count, 0), 0, y);
  if (!max) y = count ? db_div(y, db_maximum(count, 1)) : db_div(y, (double)ratio * (double)ratio);
  return db_cast(onnx_from_last(c, y), db_dtype_of(x));
}
