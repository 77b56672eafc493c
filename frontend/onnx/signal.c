/* Signals and random numbers: windows, Fourier transforms, mel weights. */
#include "operators.h"

/* ---- windows ---- */

/* Sums of cosines: a[0] - a[1] cos(2 pi i / n) + a[2] cos(4 pi i / n). */
db_tensor *onnx_op_window(struct onnx_call *c) {
  static const double terms[3][3] = {{0.5, 0.5, 0}, {25.0 / 46, 1 - 25.0 / 46, 0}, {0.42, 0.5, 0.08}};
  int64_t size = 0;
  if (node_read_ints(c, 0, &size, 1) != 1) return NULL;
  db_dtype t = onnx_element_dtype((int32_t)node_int(c, "output_datatype", ONNX_FLOAT));
  int64_t period = node_int(c, "periodic", 1) ? size : size - 1;
  if (t == DB_NONE || size < 1) return node_unsupported(c, "this type or size");
  const double *a = terms[c->op->param];
  db_tensor *angle = db_mul(db_arange(0, (double)size, 1, DB_F64, c->dev), 2 * M_PI / (double)(period ? period : 1));
  db_tensor *x = db_add(db_mul(db_cos(angle), -a[1]), a[0]);
  if (a[2] != 0) x = db_add(x, db_mul(db_cos(db_mul(angle, 2.0)), a[2]));
  return db_cast(x, t);
}

/* ---- Fourier transforms ---- */

/* [n, m]: cos or sin of 2 pi row column / n, from the remainder, which is exact. */
static db_tensor *waves(struct onnx_call *c, int64_t n, int64_t m, bool sine) {
  db_tensor *row = db_unsqueeze(db_arange(0, (double)n, 1, DB_I64, c->dev), 1);
  db_tensor *turns = db_mod(db_mul(row, db_arange(0, (double)m, 1, DB_I64, c->dev)), n);
  db_tensor *angle = db_mul(db_cast(turns, DB_F64), 2 * M_PI / (double)n);
  return sine ? db_sin(angle) : db_cos(angle);
}

/* Transforms the axis before the last one, which has 1 or 2 elements: the real and the imaginary part. Signals are cut
 * or padded to n elements; m frequencies are computed. */
static db_tensor *transform(struct onnx_call *c, db_tensor *x, int64_t n, int64_t m, bool inverse) {
  int64_t pairs[2 * ONNX_RANK] = {0};
  unsigned rank = db_rank(x);
  pairs[2 * (rank - 2) + 1] = n - db_dim(x, -2);
  x = db_movedim(db_pad_at(DB_HERE, x, db_operand_int(0), SIZES(2 * rank, pairs)), -1, 0);
  db_dtype t = db_dtype_of(x);
  db_tensor *cosine = waves(c, n, m, false), *sine = waves(c, n, m, true);
  x = db_cast(x, DB_F64);
  if (!inverse) sine = db_neg(sine);
  db_tensor *real = db_index(x, DB_PICK(0)), *re = db_matmul(real, cosine), *im = db_matmul(real, sine);
  if (db_dim(x, 0) == 2) {
    db_tensor *imaginary = db_index(x, DB_PICK(1));
    re = db_sub(re, db_matmul(imaginary, sine));
    im = db_add(im, db_matmul(imaginary, cosine));
  }
  if (inverse) re = db_div(re, (double)n), im = db_div(im, (double)n);
  return db_cast(db_stack(-1, re, im), t);
}

db_tensor *onnx_op_dft(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  unsigned rank = db_rank(x);
  int64_t at = node_int(c, "axis", 1), n = 0;
  if (c->opset >= 20) at = -2;
  if (node_read_ints(c, 2, &at, 1) < 0 || node_read_ints(c, 1, &n, 1) < 0) return NULL;
  int axis = node_axis(c, at, rank);
  if (axis < 0) return NULL;
  bool inverse = node_int(c, "inverse", 0), one_sided = node_int(c, "onesided", 0);
  if (rank < 2 || axis == (int)rank - 1) return node_unsupported(c, "axis %d of %u", axis, rank);
  x = db_movedim(x, axis, -2);
  db_tensor *y;
  if (inverse && one_sided) { /* the frequencies that are missing are the conjugates of the others */
    if (!n) n = 2 * (db_dim(x, -2) - 1);
    int64_t have = n / 2 + 1;
    db_tensor *re = db_index(x, DB_REST, DB_SLICE(0, have, 1), DB_PICK(0));
    db_tensor *im = db_index(x, DB_REST, DB_SLICE(0, have, 1), DB_PICK(1));
    int64_t rest = n - have;
    db_tensor *more_re = db_flip(db_index(re, DB_REST, DB_SLICE(1, 1 + rest, 1)), -1);
    db_tensor *more_im = db_neg(db_flip(db_index(im, DB_REST, DB_SLICE(1, 1 + rest, 1)), -1));
    x = db_stack(-1, db_cat(-1, re, more_re), db_cat(-1, im, more_im));
    y = db_index(transform(c, x, n, n, true), DB_REST, DB_SLICE(0, 1, 1));
  } else {
    if (!n) n = db_dim(x, -2);
    y = transform(c, x, n, one_sided ? n / 2 + 1 : n, inverse);
  }
  return db_movedim(y, -2, axis);
}

db_tensor *onnx_op_stft(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *window = node_input(c, 2);
  int64_t step = 0, length = window ? db_dim(window, 0) : 0;
  if (node_read_ints(c, 1, &step, 1) != 1 || node_read_ints(c, 3, &length, 1) < 0) return NULL;
  if (step < 1 || length < 1) return node_unsupported(c, "frames of %lld elements", (long long)length);
  if (db_rank(x) == 2) x = db_unsqueeze(x, -1);
  /* [batch, frames, parts, length] */
  x = db_unfold(x, 1, length, step);
  if (window) x = db_mul(x, window);
  bool one_sided = node_int(c, "onesided", 1);
  return transform(c, db_transpose(x, 2, 3), length, one_sided ? length / 2 + 1 : length, false);
}

db_tensor *onnx_op_mel_weights(struct onnx_call *c) {
  double v[5];
  db_dtype t = onnx_element_dtype((int32_t)node_int(c, "output_datatype", ONNX_FLOAT));
  for (unsigned i = 0; i < 5; i++)
    if (node_read_numbers(c, i, &v[i], 1) != 1) return NULL;
  int64_t bins = (int64_t)v[0], rows = (int64_t)v[1] / 2 + 1;
  if (t == DB_NONE || bins < 1 || bins > 4096 || rows < 1 || rows > 1 << 20) return node_unsupported(c, "these sizes");
  double low = 2595 * log10(1 + v[3] / 700), high = 2595 * log10(1 + v[4] / 700),
         step = (high - low) / (double)(bins + 2);
  float *w = calloc((size_t)(rows * bins), sizeof *w);
  int64_t *edge = calloc((size_t)bins + 2, sizeof *edge);
  for (int64_t i = 0; edge && i < bins + 2; i++)
    edge[i] = (int64_t)floor((v[1] + 1) * (700 * (pow(10, ((double)i * step + low) / 2595) - 1)) / v[2]);
  for (int64_t i = 0; w && edge && i < bins; i++) {
    int64_t a = edge[i], b = edge[i + 1], d = edge[i + 2];
    if (b == a && b >= 0 && b < rows) w[b * bins + i] = 1;
    for (int64_t k = a < 0 ? 0 : a; b > a && k <= b && k < rows; k++)
      w[k * bins + i] = (float)((double)(k - a) / (double)(b - a));
    for (int64_t k = b < 0 ? 0 : b; d > b && k < d && k < rows; k++)
      w[k * bins + i] = (float)((double)(d - k) / (double)(d - b));
  }
  db_tensor *out = w && edge ? db_cast(node_tensor(c, w, DB_F32, 2, (int64_t[]){rows, bins}), t)
                             : db_fail_null(-ENOMEM, "out of memory");
  free(w), free(edge);
  return out;
}

/* ---- random numbers ---- */

/* The sequence of numbers is Doorbell's: a seed in the file has no effect. */
static db_tensor *random_of(struct onnx_call *c, unsigned rank, const int64_t *dim, db_dtype t) {
  bool normal = c->op->param == DB_RANDOM_NORMAL;
  double a = normal ? node_float(c, "mean", 0) : node_float(c, "low", 0);
  double b = normal ? node_float(c, "scale", 1) : node_float(c, "high", 1);
  if (t == DB_NONE) return node_unsupported(c, "this type");
  return db_random_at(DB_HERE, (enum db_random)c->op->param, a, b, t, c->dev, SIZES(rank, dim));
}
db_tensor *onnx_op_random(struct onnx_call *c) {
  int64_t dim[ONNX_RANK];
  unsigned n = node_ints(c, "shape", dim, ONNX_RANK);
  return random_of(c, n, dim, onnx_element_dtype((int32_t)node_int(c, "dtype", ONNX_FLOAT)));
}
db_tensor *onnx_op_random_like(struct onnx_call *c) {
  const db_tensor *x = c->in[0]->t;
  int64_t dim[ONNX_RANK], t = node_int(c, "dtype", 0);
  node_shape(x, dim);
  return random_of(c, db_rank(x), dim, t ? onnx_element_dtype((int32_t)t) : db_dtype_of(x));
}
db_tensor *onnx_op_bernoulli(struct onnx_call *c) {
  db_tensor *p = node_input(c, 0);
  int64_t dim[ONNX_RANK], t = node_int(c, "dtype", 0);
  node_shape(p, dim);
  db_tensor *r = db_random_at(DB_HERE, DB_RANDOM_UNIFORM, 0, 1, DB_F32, c->dev, SIZES(db_rank(p), dim));
  return db_cast(db_lt(r, db_cast(p, DB_F32)), t ? onnx_element_dtype((int32_t)t) : db_dtype_of(p));
}
/* Adding Gumbel noise to log probabilities and taking the largest draws from the distribution. */
db_tensor *onnx_op_multinomial(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  int64_t samples = node_int(c, "sample_size", 1), t = node_int(c, "dtype", 6);
  if (db_rank(x) != 2 || onnx_element_dtype((int32_t)t) == DB_NONE) return node_unsupported(c, "this shape or type");
  db_tensor *r =
      db_random_at(DB_HERE, DB_RANDOM_UNIFORM, 0, 1, DB_F32, c->dev, DB_LIST(db_dim(x, 0), samples, db_dim(x, 1)));
  db_tensor *noise = db_neg(db_log(db_neg(db_log(db_maximum(r, 1e-30)))));
  return db_cast(db_argmax(db_add(db_unsqueeze(db_cast(x, DB_F32), 1), noise), -1), onnx_element_dtype((int32_t)t));
}
