/* Resize and Upsample: each axis is resampled on its own, with positions and weights that are computed on the host. */
#include "operators.h"

enum { MOST_REACH = 64, MOST_TAPS = 4 * MOST_REACH };

struct axis_resize {
  int64_t in, out;
  double scale, width; /* width: in * scale, which `out` rounds down, or `out` if sizes are given */
  double begin, end;   /* the region of tf_crop_and_resize, as parts of the axis */
};

/* The position in the input of element o of the output. */
static double position(struct onnx_call *c, const struct axis_resize *a, int64_t o, const char *unset) {
  const char *name = "coordinate_transformation_mode";
  double half = ((double)o + 0.5) / a->scale - 0.5;
  if (node_is(c, name, "asymmetric", unset)) return (double)o / a->scale;
  if (node_is(c, name, "align_corners", unset))
    return a->width == 1 ? 0 : (double)o * (double)(a->in - 1) / (a->width - 1);
  if (node_is(c, name, "pytorch_half_pixel", unset)) return a->out > 1 ? half : 0;
  if (node_is(c, name, "half_pixel_symmetric", unset))
    return (double)a->in / 2 * (1 - (double)a->out / a->width) + half;
  if (node_is(c, name, "tf_crop_and_resize", unset)) {
    double last = (double)(a->in - 1);
    if (a->out == 1) return 0.5 * (a->begin + a->end) * last;
    return a->begin * last + (double)o * (a->end - a->begin) * last / (a->width - 1);
  }
  return half;
}

static double cubic(double x, double a) {
  x = fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/* How many elements of the input make one of the output, and where they begin relative to it. */
struct kernel {
  enum { NEAREST, LINEAR, CUBIC } mode;
  double a, scale; /* scale below 1: wider, against aliasing */
  int first, taps;
};

static bool read_kernel(struct onnx_call *c, double scale, struct kernel *k) {
  *k = (struct kernel){.a = node_float(c, "cubic_coeff_a", -0.75), .scale = 1};
  k->mode = node_is(c, "mode", "linear", "nearest") ? LINEAR : node_is(c, "mode", "cubic", "nearest") ? CUBIC : NEAREST;
  if (k->mode && node_int(c, "antialias", 0) && scale < 1) k->scale = scale;
  int reach = k->mode == CUBIC ? 2 : 1;
  if (!(k->scale > 0) || reach / k->scale > MOST_REACH) return node_unsupported(c, "a scale of %g", scale), false;
  k->first = (int)floor(-reach / k->scale) + 1;
  k->taps = 2 - 2 * k->first;
  return true;
}

/* Weights of the elements around `at`, ratio (0, 1] after the first one of the two nearest. */
static void weigh(struct onnx_call *c, const struct kernel *k, double ratio, double *w) {
  if (k->mode == NEAREST) {
    const char *name = "nearest_mode", *unset = c->opset < 11 ? "floor" : "round_prefer_floor";
    bool right = ratio == 1                                     ? true
                 : node_is(c, name, "floor", unset)             ? false
                 : node_is(c, name, "ceil", unset)              ? true
                 : node_is(c, name, "round_prefer_ceil", unset) ? ratio >= 0.5
                                                                : ratio > 0.5;
    w[0] = !right, w[1] = right;
    return;
  }
  for (int j = 0; j < k->taps; j++) {
    double x = (k->first + j - ratio) * k->scale, linear = 1 - fabs(x);
    w[j] = k->mode == CUBIC ? cubic(x, k->a) : linear > 0 ? linear : 0;
  }
}

/* Fills a matrix [in, out] of weights. */
static void fill_weights(struct onnx_call *c, const struct axis_resize *a, const struct kernel *k, const char *unset,
                         float *matrix, double *outside) {
  bool exclude = node_int(c, "exclude_outside", 0);
  for (int64_t o = 0; o < a->out; o++) {
    double x = position(c, a, o, unset), base = ceil(x) - 1, w[MOST_TAPS] = {0}, sum = 0;
    weigh(c, k, x - base, w);
    for (int j = 0; j < k->taps; j++) {
      double at = base + k->first + j;
      if (exclude && (at < 0 || at >= (double)a->in)) w[j] = 0;
      sum += w[j];
    }
    for (int j = 0; j < k->taps; j++) {
      double at = base + k->first + j;
      int64_t i = at<0 ? 0 : at>(double)(a->in - 1) ? a->in - 1 : (int64_t)at;
      matrix[i * a->out + o] += (float)(sum != 0 ? w[j] / sum : w[j]);
    }
    outside[o] = x < 0 || x > (double)(a->in - 1);
  }
}

/* Nearest neighbours are read at their positions; the others are a product with a matrix. */
static db_tensor *apply(struct onnx_call *c, db_tensor *x, int axis, const struct axis_resize *a,
                        const struct kernel *k, const float *matrix) {
  if (k->mode != NEAREST) {
    db_dtype t = db_dtype_of(x), wide = t >= DB_F16 ? t : DB_F32; /* weights of integers are fractions, too */
    db_tensor *w = db_cast(node_tensor(c, matrix, DB_F32, 2, (int64_t[]){a->in, a->out}), wide);
    return db_cast(db_movedim(db_matmul(db_movedim(db_cast(x, wide), axis, -1), w), -1, axis), wide);
  }
  bool repeats = a->out % a->in == 0;
  int64_t *at = calloc((size_t)a->out + 1, sizeof *at);
  if (!at) return db_fail_null(-ENOMEM, "out of memory");
  for (int64_t o = 0; o < a->out; o++) {
    for (int64_t i = 0; i < a->in; i++)
      if (matrix[i * a->out + o] != 0) at[o] = i;
    repeats = repeats && at[o] == o / (a->out / a->in);
  }
  db_tensor *y = repeats ? db_repeat_interleave(x, a->out / a->in, axis)
                         : db_index_select(x, axis, node_vector(c, at, (unsigned)a->out));
  free(at);
  return y;
}

static db_tensor *resize_axis(struct onnx_call *c, db_tensor *x, int axis, const struct axis_resize *a,
                              const char *unset) {
  struct kernel k;
  if (!read_kernel(c, a->scale, &k)) return NULL;
  if (a->in < 1 || a->out < 1 || a->in > 1 << 15 || a->out > 1 << 15)
    return node_unsupported(c, "%lld elements from %lld", (long long)a->out, (long long)a->in);
  float *matrix = calloc((size_t)(a->in * a->out), sizeof *matrix);
  double *outside = calloc((size_t)a->out, sizeof *outside);
  db_tensor *y = NULL;
  if (matrix && outside) {
    fill_weights(c, a, &k, unset, matrix, outside);
    y = apply(c, x, axis, a, &k, matrix);
    if (node_is(c, "coordinate_transformation_mode", "tf_crop_and_resize", unset)) {
      int64_t dim[ONNX_RANK];
      for (unsigned i = 0; i < db_rank(x); i++) dim[i] = (int)i == axis ? a->out : 1;
      db_tensor *is_outside = db_ne(node_tensor(c, outside, DB_F64, db_rank(x), dim), 0);
      y = db_where(is_outside, node_float(c, "extrapolation_value", 0), y);
    }
  } else {
    db_fail(-ENOMEM, "out of memory");
  }
  free(matrix), free(outside);
  return y;
}

/* All axes keep their proportions: the smallest or the largest of the scales holds for each. */
static void keep_proportions(struct onnx_call *c, struct axis_resize *a, const int64_t *axes, unsigned n) {
  bool smaller = node_is(c, "keep_aspect_ratio_policy", "not_larger", "stretch"),
       larger = node_is(c, "keep_aspect_ratio_policy", "not_smaller", "stretch");
  double scale = a[axes[0]].scale;
  for (unsigned i = 1; i < n; i++)
    if (smaller ? a[axes[i]].scale < scale : a[axes[i]].scale > scale) scale = a[axes[i]].scale;
  for (unsigned i = 0; i < n && (smaller || larger); i++) {
    struct axis_resize *r = &a[axes[i]];
    r->scale = scale, r->out = (int64_t)floor(scale * (double)r->in + 0.5), r->width = (double)r->out;
  }
}

db_tensor *onnx_op_resize(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  db_dtype t = db_dtype_of(x);
  bool old = c->op->param || c->opset < 11; /* Upsample, and Resize before opset 11: only scales, no region */
  struct axis_resize a[ONNX_RANK];
  double scales[ONNX_RANK] = {0}, region[2 * ONNX_RANK] = {0};
  int64_t sizes[ONNX_RANK] = {0}, axes[ONNX_RANK] = {0};
  unsigned rank = db_rank(x), n = node_ints(c, "axes", axes, ONNX_RANK);
  int nsizes = old ? 0 : node_read_ints(c, 3, sizes, ONNX_RANK), nregion = 0;
  int nscales = node_read_numbers(c, old ? 1 : 2, scales, ONNX_RANK);
  if (!n)
    for (n = 0; n < rank; n++) axes[n] = n;
  const Onnx__Attribute *given = node_attribute(c, "scales");
  for (unsigned i = 0; given && i < given->n_floats && i < ONNX_RANK; i++)
    scales[i] = (double)given->floats[i], nscales = (int)i + 1;
  if (!old && node_has_input(c, 1) && db_numel(c->in[1]->t)) nregion = node_read_numbers(c, 1, region, 2 * ONNX_RANK);
  if (nsizes < 0 || nscales < 0 || nregion < 0) return NULL;
  if ((nsizes ? nsizes : nscales) != (int)n)
    return node_unsupported(c, "%d scales or sizes for %u axes", nsizes + nscales, n);
  for (unsigned i = 0; i < rank; i++)
    a[i] = (struct axis_resize){db_dim(x, (int)i), db_dim(x, (int)i), 1, (double)db_dim(x, (int)i), 0, 1};
  for (unsigned i = 0; i < n; i++) {
    int axis = node_axis(c, axes[i], rank);
    if (axis < 0) return NULL;
    struct axis_resize *r = &a[axes[i] = axis];
    r->scale = nsizes ? (double)sizes[i] / (double)r->in : scales[i];
    r->out = nsizes ? sizes[i] : (int64_t)floor((double)r->in * scales[i]);
    r->width = nsizes ? (double)sizes[i] : (double)r->in * scales[i];
    if (nregion == 2 * (int)n) r->begin = region[i], r->end = region[n + i];
  }
  if (nsizes) keep_proportions(c, a, axes, n);
  for (unsigned i = 0; i < rank && x; i++)
    if (a[i].out != a[i].in || a[i].scale != 1 || a[i].begin != 0 || a[i].end != 1)
      x = resize_axis(c, x, (int)i, &a[i], old ? "asymmetric" : "half_pixel");
  return db_cast(x, t);
}
