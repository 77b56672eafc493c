/* The timed operations: their tensors, their graphs, and a reference in plain f64 arithmetic. */
#include "speed.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SHAPE(...) ((struct tensor_shape){sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), {__VA_ARGS__}})

int64_t speed_numel(struct tensor_shape s) {
  int64_t n = 1;
  for (unsigned i = 0; i < s.n; i++) n *= s.dim[i];
  return n;
}

db_dtype speed_type(const struct speed_case *c, unsigned i) { return c->op->type ? c->op->type(c, i) : c->dtype; }

static double bytes_of(const struct speed_case *c, unsigned i) {
  return (double)speed_numel(c->op->shape(c, i)) * (double)db_dtype_size(speed_type(c, i));
}

void case_bytes(const struct speed_case *c, double *read, double *written) {
  *read = 0;
  for (unsigned i = 0; i < c->op->ninputs; i++) *read += bytes_of(c, i);
  *written = bytes_of(c, c->op->ninputs);
}

void fill_numbers(float *x, int64_t n, uint32_t seed) {
  uint32_t s = seed * 2654435761u + 1;
  for (int64_t i = 0; i < n; i++) {
    s = s * 1664525u + 1013904223u; /* Numerical Recipes' linear congruential generator */
    x[i] = (float)(int32_t)(s & 0xffffff00u) * 0x1p-31f;
  }
}

void fill_input(const struct speed_case *c, unsigned i, float *x, int64_t n) {
  fill_numbers(x, n, i);
  for (int64_t k = 0; k < n && speed_type(c, i) == DB_I32; k++) x[k] = floorf((x[k] + 1) / 2 * (float)c->n[0]);
}

/* ---- matmul: batch m n k ta tb; ta: a is [k, m], tb: b is [n, k]. With batch 1 there is no batch axis ---- */
enum { MM_BATCH, MM_M, MM_N, MM_K, MM_TA, MM_TB };

static struct tensor_shape matmul_shape(const struct speed_case *c, unsigned i) {
  const int64_t *n = c->n;
  int64_t rows = i == 1 ? n[MM_K] : n[MM_M], cols = i == 0 ? n[MM_K] : n[MM_N];
  bool swapped = i == 0 ? n[MM_TA] : i == 1 ? n[MM_TB] : false;
  if (swapped) rows = i == 1 ? n[MM_N] : n[MM_K], cols = i == 1 ? n[MM_K] : n[MM_M];
  return n[MM_BATCH] > 1 ? SHAPE(n[MM_BATCH], rows, cols) : SHAPE(rows, cols);
}
static db_tensor *matmul_build(const struct speed_case *c, db_tensor *const *in) {
  db_tensor *a = c->n[MM_TA] ? db_transpose(in[0], -1, -2) : in[0];
  db_tensor *b = c->n[MM_TB] ? db_transpose(in[1], -1, -2) : in[1];
  return db_matmul(a, b);
}
static struct expected matmul_element(const struct speed_case *c, float *const *in, int64_t at) {
  const int64_t *n = c->n, j = at % n[MM_N], i = at / n[MM_N] % n[MM_M], batch = at / n[MM_N] / n[MM_M];
  const float *a = in[0] + batch * n[MM_M] * n[MM_K], *b = in[1] + batch * n[MM_N] * n[MM_K];
  struct expected e = {0};
  for (int64_t k = 0; k < n[MM_K]; k++) {
    double x = (double)(n[MM_TA] ? a[k * n[MM_M] + i] : a[i * n[MM_K] + k]) *
               (double)(n[MM_TB] ? b[j * n[MM_K] + k] : b[k * n[MM_N] + j]);
    e.value += x, e.scale += fabs(x);
  }
  return e;
}
static double matmul_cost(const struct speed_case *c) { return (double)c->n[MM_K]; }
static double matmul_flops(const struct speed_case *c) {
  return 2.0 * (double)c->n[MM_BATCH] * (double)c->n[MM_M] * (double)c->n[MM_N] * (double)c->n[MM_K];
}

/* ---- conv: batch, channels in, height and width, channels out, kernel, stride, groups; padded by kernel / 2 ---- */
enum { CV_BATCH, CV_IN, CV_SIZE, CV_OUT, CV_KERNEL, CV_STRIDE, CV_GROUPS };

static int64_t conv_groups(const struct speed_case *c) { return c->n[CV_GROUPS] ? c->n[CV_GROUPS] : 1; }
/* The number of channels of a group: those of the input, or of the result. */
static int64_t group_in(const struct speed_case *c) { return c->n[CV_IN] / conv_groups(c); }
static int64_t group_out(const struct speed_case *c) { return c->n[CV_OUT] / conv_groups(c); }

static int64_t conv_size(const struct speed_case *c) {
  const int64_t *n = c->n;
  return (n[CV_SIZE] + n[CV_KERNEL] / 2 * 2 - n[CV_KERNEL]) / n[CV_STRIDE] + 1;
}
static struct tensor_shape conv_shape(const struct speed_case *c, unsigned i) {
  const int64_t *n = c->n, out = conv_size(c);
  if (i == 0) return SHAPE(n[CV_BATCH], n[CV_IN], n[CV_SIZE], n[CV_SIZE]);
  if (i == 1) return SHAPE(n[CV_OUT], group_in(c), n[CV_KERNEL], n[CV_KERNEL]);
  return SHAPE(n[CV_BATCH], n[CV_OUT], out, out);
}
static db_tensor *conv_build(const struct speed_case *c, db_tensor *const *in) {
  return db_conv2d(in[0], in[1], NULL, .stride = DB_LIST(c->n[CV_STRIDE]), .padding = DB_LIST(c->n[CV_KERNEL] / 2),
                   .groups = conv_groups(c));
}
static struct expected conv_element(const struct speed_case *c, float *const *in, int64_t at) {
  const int64_t *n = c->n, size = conv_size(c), x = at % size, y = at / size % size, out = at / size / size % n[CV_OUT],
                batch = at / size / size / n[CV_OUT], in_group = group_in(c), first = out / group_out(c) * in_group;
  struct expected e = {0};
  for (int64_t channel = 0; channel < in_group; channel++)
    for (int64_t ky = 0; ky < n[CV_KERNEL]; ky++)
      for (int64_t kx = 0; kx < n[CV_KERNEL]; kx++) {
        int64_t iy = y * n[CV_STRIDE] + ky - n[CV_KERNEL] / 2, ix = x * n[CV_STRIDE] + kx - n[CV_KERNEL] / 2;
        if (iy < 0 || ix < 0 || iy >= n[CV_SIZE] || ix >= n[CV_SIZE]) continue;
        double v = (double)in[0][((batch * n[CV_IN] + first + channel) * n[CV_SIZE] + iy) * n[CV_SIZE] + ix] *
                   (double)in[1][((out * in_group + channel) * n[CV_KERNEL] + ky) * n[CV_KERNEL] + kx];
        e.value += v, e.scale += fabs(v);
      }
  return e;
}
static double conv_cost(const struct speed_case *c) {
  return (double)(group_in(c) * c->n[CV_KERNEL] * c->n[CV_KERNEL]);
}
static double conv_flops(const struct speed_case *c) {
  return 2.0 * (double)speed_numel(conv_shape(c, 2)) * conv_cost(c);
}

/* ---- the gradients of conv: conv_dx of the input, conv_dw of the weight, for a given gradient dy of the result. The
 * inputs are x, w and dy; one of the first two is not read. ---- */

static struct tensor_shape conv_dx_shape(const struct speed_case *c, unsigned i) {
  return conv_shape(c, i == 2 ? 2 : i == 1 ? 1 : 0);
}
static struct tensor_shape conv_dw_shape(const struct speed_case *c, unsigned i) {
  return conv_shape(c, i == 3 ? 1 : i);
}
static db_tensor *conv_gradient(const struct speed_case *c, db_tensor *const *in, unsigned of) {
  db_tensor *x[2] = {in[0], in[1]}, *dx = NULL;
  x[of] = db_requires_grad(in[of]);
  db_grad_all(conv_build(c, x), in[2], &x[of], 1, &dx);
  return dx;
}
static db_tensor *conv_dx_build(const struct speed_case *c, db_tensor *const *in) { return conv_gradient(c, in, 0); }
static db_tensor *conv_dw_build(const struct speed_case *c, db_tensor *const *in) { return conv_gradient(c, in, 1); }

/* The position in the result that reads position `at` of an image through position k of the filter, or -1. */
static int64_t conv_reader(const struct speed_case *c, int64_t at, int64_t k) {
  int64_t from = at - k + c->n[CV_KERNEL] / 2, stride = c->n[CV_STRIDE];
  return from < 0 || from % stride || from / stride >= conv_size(c) ? -1 : from / stride;
}
static void add_product(struct expected *e, float x, float y) {
  double v = (double)x * (double)y;
  e->value += v, e->scale += fabs(v);
}
static struct expected conv_dx_element(const struct speed_case *c, float *const *in, int64_t at) {
  const int64_t *n = c->n, size = n[CV_SIZE], out = conv_size(c), kernel = n[CV_KERNEL];
  const int64_t channel = at / size / size % n[CV_IN], batch = at / size / size / n[CV_IN], in_group = group_in(c);
  const int64_t first = channel / in_group * group_out(c);
  struct expected e = {0};
  for (int64_t o = first; o < first + group_out(c); o++)
    for (int64_t k = 0; k < kernel * kernel; k++) {
      int64_t y = conv_reader(c, at / size % size, k / kernel), x = conv_reader(c, at % size, k % kernel);
      if (y < 0 || x < 0) continue;
      add_product(&e, in[1][(o * in_group + channel % in_group) * kernel * kernel + k],
                  in[2][((batch * n[CV_OUT] + o) * out + y) * out + x]);
    }
  return e;
}
static struct expected conv_dw_element(const struct speed_case *c, float *const *in, int64_t at) {
  const int64_t *n = c->n, size = n[CV_SIZE], out = conv_size(c), kernel = n[CV_KERNEL];
  const int64_t kx = at % kernel, ky = at / kernel % kernel, filter = at / kernel / kernel, in_group = group_in(c);
  const int64_t o = filter / in_group, channel = o / group_out(c) * in_group + filter % in_group;
  struct expected e = {0};
  for (int64_t batch = 0; batch < n[CV_BATCH]; batch++)
    for (int64_t i = 0; i < size * size; i++) {
      int64_t y = conv_reader(c, i / size, ky), x = conv_reader(c, i % size, kx);
      if (y < 0 || x < 0) continue;
      add_product(&e, in[0][(batch * n[CV_IN] + channel) * size * size + i],
                  in[2][((batch * n[CV_OUT] + o) * out + y) * out + x]);
    }
  return e;
}
static double conv_dx_cost(const struct speed_case *c) {
  return (double)(group_out(c) * c->n[CV_KERNEL] * c->n[CV_KERNEL]);
}
static double conv_dw_cost(const struct speed_case *c) {
  return (double)(c->n[CV_BATCH] * c->n[CV_SIZE] * c->n[CV_SIZE]);
}

/* ---- attention: heads of queries, length, width, causal, heads of queries per head of keys and values (0: 1) ---- */
enum { AT_HEADS, AT_LENGTH, AT_WIDTH, AT_CAUSAL, AT_GROUP };

static int64_t attention_group(const struct speed_case *c) { return c->n[AT_GROUP] ? c->n[AT_GROUP] : 1; }
static struct tensor_shape attention_shape(const struct speed_case *c, unsigned i) {
  int64_t group = i == 1 || i == 2 ? attention_group(c) : 1;
  return SHAPE(c->n[AT_HEADS] / group, c->n[AT_LENGTH], c->n[AT_WIDTH]);
}
static db_tensor *attention_build(const struct speed_case *c, db_tensor *const *in) {
  return db_attention(in[0], in[1], in[2], .causal = c->n[AT_CAUSAL] != 0);
}
static struct expected attention_element(const struct speed_case *c, float *const *in, int64_t at) {
  int64_t length = c->n[AT_LENGTH], width = c->n[AT_WIDTH], column = at % width, row = at / width % length,
          head = at / width / length, keys = c->n[AT_CAUSAL] ? row + 1 : length;
  int64_t shared = head / attention_group(c) * length * width;
  const float *q = in[0] + (head * length + row) * width, *k = in[1] + shared, *v = in[2] + shared;
  double *score = malloc((size_t)keys * sizeof *score), most = -INFINITY, sum = 0;
  struct expected e = {0};
  for (int64_t i = 0; i < keys; i++) {
    score[i] = 0;
    for (int64_t d = 0; d < width; d++) score[i] += (double)q[d] * (double)k[i * width + d];
    score[i] /= sqrt((double)width);
    most = fmax(most, score[i]);
  }
  for (int64_t i = 0; i < keys; i++) sum += score[i] = exp(score[i] - most);
  for (int64_t i = 0; i < keys; i++) {
    double x = score[i] / sum * (double)v[i * width + column];
    e.value += x, e.scale += fabs(x);
  }
  free(score);
  return e;
}
static double attention_cost(const struct speed_case *c) { return (double)(c->n[AT_LENGTH] * (c->n[AT_WIDTH] + 20)); }
static double attention_flops(const struct speed_case *c) {
  double all =
      4.0 * (double)c->n[AT_HEADS] * (double)c->n[AT_LENGTH] * (double)c->n[AT_LENGTH] * (double)c->n[AT_WIDTH];
  return c->n[AT_CAUSAL] ? all / 2 : all;
}

/* ---- attention and its gradient: the gradients of queries, keys and values for a given gradient of the result. The
 * result has the heads of all three, one after the other. ---- */

static struct tensor_shape gradient_shape(const struct speed_case *c, unsigned i) {
  int64_t heads = c->n[AT_HEADS] + 2 * c->n[AT_HEADS] / attention_group(c);
  if (i == 4) return SHAPE(heads, c->n[AT_LENGTH], c->n[AT_WIDTH]);
  return attention_shape(c, i);
}
static db_tensor *gradient_build(const struct speed_case *c, db_tensor *const *in) {
  db_tensor *x[3], *dx[3];
  for (unsigned i = 0; i < 3; i++) x[i] = db_requires_grad(in[i]);
  db_grad_all(attention_build(c, x), in[3], x, 3, dx);
  for (unsigned i = 0; i < 3; i++) dx[i] = db_contiguous(dx[i]);
  return db_cat_n(dx, 3, 0);
}

/* Stores in p the probabilities of one query, and in ds the gradients of its scores. */
static void gradient_row(const struct speed_case *c, const float *q, const float *k, const float *v, const float *dy,
                         int64_t row, double *p, double *ds) {
  int64_t width = c->n[AT_WIDTH], keys = c->n[AT_CAUSAL] ? row + 1 : c->n[AT_LENGTH];
  double most = -INFINITY, sum = 0, mean = 0;
  for (int64_t j = 0; j < c->n[AT_LENGTH]; j++) {
    p[j] = ds[j] = 0;
    for (int64_t d = 0; d < width; d++) p[j] += (double)q[row * width + d] * (double)k[j * width + d];
    for (int64_t d = 0; d < width; d++) ds[j] += (double)dy[row * width + d] * (double)v[j * width + d];
    p[j] = j < keys ? p[j] / sqrt((double)width) : -INFINITY;
    most = fmax(most, p[j]);
  }
  for (int64_t j = 0; j < c->n[AT_LENGTH]; j++) sum += p[j] = exp(p[j] - most);
  for (int64_t j = 0; j < c->n[AT_LENGTH]; j++) mean += (p[j] /= sum) * ds[j];
  for (int64_t j = 0; j < c->n[AT_LENGTH]; j++) ds[j] = p[j] * (ds[j] - mean) / sqrt((double)width);
}
/* Adds to e what one head of queries contributes to an element. which: of the gradients. */
static void add_gradient(const struct speed_case *c, float *const *in, int64_t head, unsigned which, int64_t row,
                         int64_t column, struct expected *e) {
  int64_t length = c->n[AT_LENGTH], width = c->n[AT_WIDTH], own = head * length * width,
          shared = head / attention_group(c) * length * width;
  const float *q = in[0] + own, *k = in[1] + shared, *v = in[2] + shared, *dy = in[3] + own;
  double *p = malloc((size_t)length * sizeof *p), *ds = malloc((size_t)length * sizeof *ds);
  for (int64_t i = which ? 0 : row; i < (which ? length : row + 1); i++) {
    gradient_row(c, q, k, v, dy, i, p, ds);
    for (int64_t j = which ? row : 0; j < (which ? row + 1 : length); j++) {
      double x = !which       ? ds[j] * (double)k[j * width + column]
                 : which == 1 ? ds[j] * (double)q[i * width + column]
                              : p[j] * (double)dy[i * width + column];
      e->value += x, e->scale += fabs(x);
    }
  }
  free(p);
  free(ds);
}
static struct expected gradient_element(const struct speed_case *c, float *const *in, int64_t at) {
  int64_t length = c->n[AT_LENGTH], width = c->n[AT_WIDTH], column = at % width, row = at / width % length,
          head = at / width / length, heads = c->n[AT_HEADS], group = attention_group(c);
  struct expected e = {.scale = c->dtype == DB_F16 ? 0x1p-14 : 0}; /* f16 rounds smaller numbers to 2^-24 */
  if (head < heads) return add_gradient(c, in, head, 0, row, column, &e), e;
  unsigned which = 1 + (head - heads) / (heads / group);
  head = (head - heads) % (heads / group) * group;
  for (int64_t i = 0; i < group; i++) add_gradient(c, in, head + i, which, row, column, &e);
  return e;
}
static double gradient_cost(const struct speed_case *c) { return (double)c->n[AT_LENGTH] * attention_cost(c); }
static double gradient_flops(const struct speed_case *c) { return 3.5 * attention_flops(c); } /* 7 products */

/* ---- operations on a matrix: rows, columns ---- */
enum { ROWS, COLS };

static struct tensor_shape matrix_shape(const struct speed_case *c, unsigned i) {
  return SHAPE(c->n[ROWS], c->n[COLS]);
}
static double cost_row(const struct speed_case *c) { return (double)c->n[COLS] * 10; }
static double cost_one(const struct speed_case *c) { return 20; }

static db_tensor *softmax_build(const struct speed_case *c, db_tensor *const *in) { return db_softmax(in[0], -1); }
static struct expected softmax_element(const struct speed_case *c, float *const *in, int64_t at) {
  const float *row = in[0] + at / c->n[COLS] * c->n[COLS];
  double most = -INFINITY, sum = 0;
  for (int64_t i = 0; i < c->n[COLS]; i++) most = fmax(most, (double)row[i]);
  for (int64_t i = 0; i < c->n[COLS]; i++) sum += exp((double)row[i] - most);
  double e = exp((double)row[at % c->n[COLS]] - most) / sum;
  return (struct expected){e, c->dtype == DB_F16 ? fmax(e, 0x1p-14) : e}; /* f16 rounds smaller numbers to 2^-24 */
}

static db_tensor *log_softmax_build(const struct speed_case *c, db_tensor *const *in) {
  return db_log_softmax(in[0], -1);
}
static struct expected log_softmax_element(const struct speed_case *c, float *const *in, int64_t at) {
  double e = log(softmax_element(c, in, at).value);
  return (struct expected){e, fabs(e)};
}

static struct tensor_shape layer_norm_shape(const struct speed_case *c, unsigned i) {
  return i == 1 || i == 2 ? SHAPE(c->n[COLS]) : matrix_shape(c, i);
}
static db_tensor *layer_norm_build(const struct speed_case *c, db_tensor *const *in) {
  return db_layer_norm(in[0], 1, in[1], in[2], 1e-5);
}
static struct expected normalized(double x, double sum, double squares, double n, double weight, double bias) {
  double mean = sum / n, deviation = sqrt(squares / n - mean * mean + 1e-5), value = (x - mean) / deviation * weight;
  return (struct expected){value + bias, fabs(value) + fabs(bias) + fabs(mean / deviation * weight)};
}
static struct expected layer_norm_element(const struct speed_case *c, float *const *in, int64_t at) {
  const float *row = in[0] + at / c->n[COLS] * c->n[COLS];
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < c->n[COLS]; i++) sum += (double)row[i], squares += (double)row[i] * (double)row[i];
  int64_t i = at % c->n[COLS];
  return normalized((double)row[i], sum, squares, (double)c->n[COLS], (double)in[1][i], (double)in[2][i]);
}

static db_tensor *gelu_build(const struct speed_case *c, db_tensor *const *in) { return db_gelu_tanh(in[0]); }
static struct expected gelu_element(const struct speed_case *c, float *const *in, int64_t at) {
  double x = (double)in[0][at];
  return (struct expected){0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))), fabs(x)};
}

static db_tensor *add_build(const struct speed_case *c, db_tensor *const *in) { return db_add(in[0], in[1]); }
static struct expected add_element(const struct speed_case *c, float *const *in, int64_t at) {
  return (struct expected){(double)in[0][at] + (double)in[1][at], fabs((double)in[0][at]) + fabs((double)in[1][at])};
}

static db_tensor *scale_build(const struct speed_case *c, db_tensor *const *in) {
  return db_relu(db_add(db_mul(in[0], 2.5), 0.5));
}
static struct expected scale_element(const struct speed_case *c, float *const *in, int64_t at) {
  return (struct expected){fmax(0, (double)in[0][at] * 2.5 + 0.5), fabs((double)in[0][at]) * 2.5 + 0.5};
}

static db_tensor *exp2_build(const struct speed_case *c, db_tensor *const *in) { return db_exp2(in[0]); }
static struct expected exp2_element(const struct speed_case *c, float *const *in, int64_t at) {
  double e = exp2((double)in[0][at]);
  return (struct expected){e, e};
}

static struct tensor_shape transpose_shape(const struct speed_case *c, unsigned i) {
  return i ? SHAPE(c->n[COLS], c->n[ROWS]) : SHAPE(c->n[ROWS], c->n[COLS]);
}
static db_tensor *transpose_build(const struct speed_case *c, db_tensor *const *in) {
  return db_contiguous(db_transpose(in[0], 0, 1));
}
static struct expected transpose_element(const struct speed_case *c, float *const *in, int64_t at) {
  double v = (double)in[0][at % c->n[ROWS] * c->n[COLS] + at / c->n[ROWS]];
  return (struct expected){v, fabs(v)};
}

/* ---- reductions: rows, columns, axis; axis -1: all elements ---- */
enum { AXIS = 2 };
static struct tensor_shape reduce_shape(const struct speed_case *c, unsigned i) {
  if (!i) return matrix_shape(c, 0);
  return c->n[AXIS] < 0 ? SHAPE(1) : SHAPE(c->n[1 - c->n[AXIS]]);
}
static double reduce_cost(const struct speed_case *c) {
  return c->n[AXIS] < 0 ? (double)(c->n[ROWS] * c->n[COLS]) : (double)c->n[c->n[AXIS]];
}
/* What the elements that are reduced to element `at` of the result have: their sum, sum of squares, sum of absolute
 * values, and the maximum with its position. */
struct reduced {
  double count, sum, squares, magnitude, most, most_at;
};
static struct reduced reduce_element(const struct speed_case *c, float *const *in, int64_t at) {
  int64_t axis = c->n[AXIS], rows = c->n[ROWS], cols = c->n[COLS], step = axis == 0 ? cols : 1;
  const float *x = in[0] + (axis == 0 ? at : axis == 1 ? at * cols : 0);
  struct reduced r = {.count = (double)(axis < 0 ? rows * cols : c->n[axis]), .most = -INFINITY};
  for (int64_t i = 0; i < (int64_t)r.count; i++) {
    double v = (double)x[i * step];
    r.sum += v, r.squares += v * v, r.magnitude += fabs(v);
    if (v > r.most) r.most = v, r.most_at = (double)i;
  }
  return r;
}
#define REDUCTION(name, value, scale)                                                                                  \
  static db_tensor *name##_build(const struct speed_case *c, db_tensor *const *in) {                                   \
    return c->n[AXIS] < 0 ? db_##name(in[0]) : db_##name(in[0], c->n[AXIS]);                                           \
  }                                                                                                                    \
  static struct expected name##_element(const struct speed_case *c, float *const *in, int64_t at) {                    \
    struct reduced r = reduce_element(c, in, at);                                                                      \
    return (struct expected){value, scale};                                                                            \
  }
REDUCTION(sum, r.sum, r.magnitude)
REDUCTION(mean, r.sum / r.count, r.magnitude / r.count)
REDUCTION(max, r.most, 1)
REDUCTION(argmax, r.most_at, 1)
REDUCTION(var, (r.squares - r.sum * r.sum / r.count) / (r.count - 1), r.squares / (r.count - 1))

/* ---- batch_norm: batch, channels, height, width; with the batch's statistics, as in training ---- */
enum { BN_BATCH, BN_CHANNELS, BN_HEIGHT, BN_WIDTH };
static struct tensor_shape batch_norm_shape(const struct speed_case *c, unsigned i) {
  const int64_t *n = c->n;
  return i == 1 || i == 2 ? SHAPE(n[BN_CHANNELS]) : SHAPE(n[BN_BATCH], n[BN_CHANNELS], n[BN_HEIGHT], n[BN_WIDTH]);
}
static db_tensor *batch_norm_build(const struct speed_case *c, db_tensor *const *in) {
  return db_batch_norm(in[0], in[1], in[2], NULL, NULL, 1e-5);
}
static struct expected batch_norm_element(const struct speed_case *c, float *const *in, int64_t at) {
  int64_t plane = c->n[BN_HEIGHT] * c->n[BN_WIDTH], channels = c->n[BN_CHANNELS], channel = at / plane % channels;
  double sum = 0, squares = 0;
  for (int64_t b = 0; b < c->n[BN_BATCH]; b++)
    for (int64_t i = 0; i < plane; i++) {
      double x = (double)in[0][(b * channels + channel) * plane + i];
      sum += x, squares += x * x;
    }
  return normalized((double)in[0][at], sum, squares, (double)(c->n[BN_BATCH] * plane), (double)in[1][channel],
                    (double)in[2][channel]);
}
static double batch_norm_cost(const struct speed_case *c) {
  return (double)(c->n[BN_BATCH] * c->n[BN_HEIGHT] * c->n[BN_WIDTH]);
}

/* ---- values added at places that an index selects: places, width, elements of the index ---- */
enum { PLACES, WIDTH, COUNT };

static struct tensor_shape embedding_shape(const struct speed_case *c, unsigned i) {
  const int64_t *n = c->n;
  return i == 0 ? SHAPE(n[COUNT], n[WIDTH]) : i == 1 ? SHAPE(n[COUNT]) : SHAPE(n[PLACES], n[WIDTH]);
}
static db_dtype embedding_type(const struct speed_case *c, unsigned i) { return i == 1 ? DB_I32 : c->dtype; }
/* The gradient of an embedding. */
static db_tensor *embedding_build(const struct speed_case *c, db_tensor *const *in) {
  db_tensor *w = db_requires_grad(
      db_full_at(DB_HERE, db_operand_int(0), c->dtype, db_device_of(in[0]), DB_LIST(c->n[PLACES], c->n[WIDTH])));
  return db_grad_from(db_index_select(w, 0, in[1]), in[0], w);
}
static struct expected embedding_element(const struct speed_case *c, float *const *in, int64_t at) {
  struct expected e = {0};
  for (int64_t i = 0, place = at / c->n[WIDTH]; i < c->n[COUNT]; i++)
    if ((int64_t)in[1][i] == place) {
      double v = (double)in[0][i * c->n[WIDTH] + at % c->n[WIDTH]];
      e.value += v, e.scale += fabs(v);
    }
  return e;
}
static double embedding_cost(const struct speed_case *c) { return (double)c->n[COUNT]; }

/* How often each number below `places` occurs. */
static struct tensor_shape bincount_shape(const struct speed_case *c, unsigned i) {
  return SHAPE(c->n[i ? PLACES : COUNT]);
}
static db_dtype bincount_type(const struct speed_case *c, unsigned i) { return i ? DB_I64 : DB_I32; }
static db_tensor *bincount_build(const struct speed_case *c, db_tensor *const *in) {
  return db_bincount(in[0], c->n[PLACES]);
}
static struct expected bincount_element(const struct speed_case *c, float *const *in, int64_t at) {
  struct expected e = {0, 1};
  for (int64_t i = 0; i < c->n[COUNT]; i++) e.value += (int64_t)in[0][i] == at;
  return e;
}

/* ---- max_pool: batch, channels, height and width, kernel, stride; max_pool_back: its gradient for a given gradient of
 * the result ---- */
enum { MP_BATCH, MP_CHANNELS, MP_SIZE, MP_KERNEL, MP_STRIDE };

static int64_t pool_padding(const struct speed_case *c) { return (c->n[MP_KERNEL] - 1) / 2; }
static int64_t pool_size(const struct speed_case *c) {
  return (c->n[MP_SIZE] + 2 * pool_padding(c) - c->n[MP_KERNEL]) / c->n[MP_STRIDE] + 1;
}
static struct tensor_shape pool_shape(const struct speed_case *c, unsigned i) {
  int64_t side = i == 1 ? pool_size(c) : c->n[MP_SIZE];
  return SHAPE(c->n[MP_BATCH], c->n[MP_CHANNELS], side, side);
}
static db_tensor *pool_build(const struct speed_case *c, db_tensor *const *in) {
  return db_max_pool2d(in[0], DB_LIST(c->n[MP_KERNEL]), .stride = DB_LIST(c->n[MP_STRIDE]),
                       .padding = DB_LIST(pool_padding(c)));
}
static db_tensor *pool_back_build(const struct speed_case *c, db_tensor *const *in) {
  db_tensor *x = db_requires_grad(in[0]);
  return db_grad_from(pool_build(c, &x), in[1], x);
}

/* The maximum of a window of an image, and how many elements are equal to it. */
static float most_of(const struct speed_case *c, const float *image, int64_t row, int64_t column, unsigned *equal) {
  float most = -INFINITY;
  *equal = 0;
  for (int64_t i = 0; i < c->n[MP_KERNEL] * c->n[MP_KERNEL]; i++) {
    int64_t y = row * c->n[MP_STRIDE] + i / c->n[MP_KERNEL] - pool_padding(c),
            x = column * c->n[MP_STRIDE] + i % c->n[MP_KERNEL] - pool_padding(c);
    if (y < 0 || x < 0 || y >= c->n[MP_SIZE] || x >= c->n[MP_SIZE]) continue;
    float v = image[y * c->n[MP_SIZE] + x];
    *equal = v > most ? 1 : *equal + (v == most);
    most = fmaxf(most, v);
  }
  return most;
}
static struct expected pool_element(const struct speed_case *c, float *const *in, int64_t at) {
  int64_t side = pool_size(c), image = at / side / side;
  unsigned equal;
  float most = most_of(c, in[0] + image * c->n[MP_SIZE] * c->n[MP_SIZE], at / side % side, at % side, &equal);
  return (struct expected){(double)most, 1};
}
static struct expected pool_back_element(const struct speed_case *c, float *const *in, int64_t at) {
  int64_t side = pool_size(c), n = c->n[MP_SIZE], image = at / n / n, y = at / n % n, x = at % n;
  struct expected e = {0, 1};
  for (int64_t row = 0; row < side; row++) {
    int64_t in_row = y + pool_padding(c) - row * c->n[MP_STRIDE];
    if (in_row < 0 || in_row >= c->n[MP_KERNEL]) continue;
    for (int64_t column = 0; column < side; column++) {
      int64_t in_column = x + pool_padding(c) - column * c->n[MP_STRIDE];
      unsigned equal;
      if (in_column < 0 || in_column >= c->n[MP_KERNEL]) continue;
      if (most_of(c, in[0] + image * n * n, row, column, &equal) != in[0][at]) continue;
      double v = (double)in[1][(image * side + row) * side + column] / equal;
      e.value += v, e.scale += fabs(v);
    }
  }
  return e;
}
static double pool_cost(const struct speed_case *c) { return (double)(c->n[MP_KERNEL] * c->n[MP_KERNEL]); }
static double pool_back_cost(const struct speed_case *c) { return (double)c->n[MP_SIZE] + 4 * pool_cost(c); }

/* ---- rows, columns: sort, in ascending order; topk, the largest k in descending order; cumsum ---- */
enum { FIRST = 2 };
static struct tensor_shape topk_shape(const struct speed_case *c, unsigned i) {
  return SHAPE(c->n[ROWS], i && c->n[FIRST] < c->n[COLS] ? c->n[FIRST] : c->n[COLS]);
}
static db_tensor *sort_build(const struct speed_case *c, db_tensor *const *in) { return db_sort(in[0], 1, false); }
static db_tensor *topk_build(const struct speed_case *c, db_tensor *const *in) {
  return db_topk(in[0], topk_shape(c, 1).dim[1], 1, true, NULL);
}
static db_tensor *cumsum_build(const struct speed_case *c, db_tensor *const *in) { return db_cumsum(in[0], 1); }

static int ascending(const void *a, const void *b) {
  const float *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}
/* The element of a row that has `before` smaller or equal ones before it in ascending order. */
static struct expected in_order(const struct speed_case *c, const float *row, int64_t before) {
  size_t n = (size_t)c->n[COLS];
  float *x = malloc(n * sizeof *x);
  struct expected e = {NAN, 1};
  if (!x) return e;
  memcpy(x, row, n * sizeof *x);
  qsort(x, n, sizeof *x, ascending);
  e.value = (double)x[before];
  free(x);
  return e;
}
static struct expected sort_element(const struct speed_case *c, float *const *in, int64_t at) {
  return in_order(c, in[0] + at / c->n[COLS] * c->n[COLS], at % c->n[COLS]);
}
static struct expected topk_element(const struct speed_case *c, float *const *in, int64_t at) {
  int64_t k = topk_shape(c, 1).dim[1];
  return in_order(c, in[0] + at / k * c->n[COLS], c->n[COLS] - 1 - at % k);
}
static struct expected cumsum_element(const struct speed_case *c, float *const *in, int64_t at) {
  const float *row = in[0] + at / c->n[COLS] * c->n[COLS];
  struct expected e = {0};
  for (int64_t i = 0; i <= at % c->n[COLS]; i++) e.value += (double)row[i], e.scale += fabs((double)row[i]);
  return e;
}
static double sort_cost(const struct speed_case *c) { return (double)c->n[COLS] * (1 + 4 * log2((double)c->n[COLS])); }

/* clang-format off */
static const struct speed_op ops[] = {
  {"matmul", "batch m n k ta? tb?", 2, matmul_shape, matmul_build, matmul_element, matmul_cost, matmul_flops, 4e-6},
  {"conv", "batch in size out kernel stride [groups]", 2, conv_shape, conv_build, conv_element, conv_cost, conv_flops,
   4e-6},
  {"conv_dx", "batch in size out kernel stride [groups]", 3, conv_dx_shape, conv_dx_build, conv_dx_element,
   conv_dx_cost, conv_flops, 4e-6},
  {"conv_dw", "batch in size out kernel stride [groups]", 3, conv_dw_shape, conv_dw_build, conv_dw_element,
   conv_dw_cost, conv_flops, 4e-6},
  {"attention", "heads length width causal? group", 3, attention_shape, attention_build, attention_element,
   attention_cost, attention_flops, 1e-5, .rounded = 1 /* probabilities */},
  {"attention_back", "heads length width causal? group", 4, gradient_shape, gradient_build, gradient_element,
   gradient_cost, gradient_flops, 2e-5, .rounded = 2 /* probabilities, their gradients */},
  {"softmax", "rows columns", 1, matrix_shape, softmax_build, softmax_element, cost_row, NULL, 1e-5},
  {"log_softmax", "rows columns", 1, matrix_shape, log_softmax_build, log_softmax_element, cost_row, NULL, 1e-5},
  {"layer_norm", "rows columns", 3, layer_norm_shape, layer_norm_build, layer_norm_element, cost_row, NULL, 1e-5},
  {"batch_norm", "batch channels height width", 3, batch_norm_shape, batch_norm_build, batch_norm_element,
   batch_norm_cost, NULL, 1e-5},
  {"gelu", "rows columns", 1, matrix_shape, gelu_build, gelu_element, cost_one, NULL, 1e-6},
  {"exp2", "rows columns", 1, matrix_shape, exp2_build, exp2_element, cost_one, NULL, 1e-6},
  {"sum", "rows columns axis?", 1, reduce_shape, sum_build, sum_element, reduce_cost, NULL, 4e-6},
  {"mean", "rows columns axis?", 1, reduce_shape, mean_build, mean_element, reduce_cost, NULL, 4e-6},
  {"max", "rows columns axis?", 1, reduce_shape, max_build, max_element, reduce_cost, NULL, 0},
  {"argmax", "rows columns axis?", 1, reduce_shape, argmax_build, argmax_element, reduce_cost, NULL, 0},
  {"var", "rows columns axis?", 1, reduce_shape, var_build, var_element, reduce_cost, NULL, 4e-6},
  {"add", "rows columns", 2, matrix_shape, add_build, add_element, cost_one, NULL, 1e-7},
  {"scale", "rows columns", 1, matrix_shape, scale_build, scale_element, cost_one, NULL, 2e-7},
  {"embedding", "places width count", 2, embedding_shape, embedding_build, embedding_element, embedding_cost, NULL,
   4e-6, embedding_type},
  {"bincount", "places width count", 1, bincount_shape, bincount_build, bincount_element, embedding_cost, NULL, 0,
   bincount_type},
  {"transpose", "rows columns", 1, transpose_shape, transpose_build, transpose_element, cost_one, NULL, 0},
  {"max_pool", "batch channels size kernel stride", 1, pool_shape, pool_build, pool_element, pool_cost, NULL, 0},
  {"max_pool_back", "batch channels size kernel stride", 2, pool_shape, pool_back_build, pool_back_element,
   pool_back_cost, NULL, 1e-6, .rounded = 1 /* gradients that equal maxima share */},
  {"sort", "rows columns", 1, matrix_shape, sort_build, sort_element, sort_cost, NULL, 0},
  {"topk", "rows columns k", 1, topk_shape, topk_build, topk_element, sort_cost, NULL, 0},
  {"cumsum", "rows columns", 1, matrix_shape, cumsum_build, cumsum_element, cost_row, NULL, 4e-6},
};
/* clang-format on */

const struct speed_op *speed_op(const char *name) {
  for (unsigned i = 0; i < sizeof ops / sizeof *ops; i++)
    if (!strcmp(ops[i].name, name)) return &ops[i];
  return NULL;
}
