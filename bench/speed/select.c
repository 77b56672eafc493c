/* The timed operations that choose elements, and running sums: pools, sorts. References as in ops.c. */
#include "speed.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SHAPE(...) ((struct tensor_shape){sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), {__VA_ARGS__}})

/* ---- max_pool: batch, channels, height and width, kernel, stride; max_pool_back: its gradient for a given gradient of
 * the result ---- */
enum { BATCH, CHANNELS, SIZE, KERNEL, STRIDE };

static int64_t padding_of(const struct speed_case *c) { return (c->n[KERNEL] - 1) / 2; }
static int64_t pooled_size(const struct speed_case *c) {
  return (c->n[SIZE] + 2 * padding_of(c) - c->n[KERNEL]) / c->n[STRIDE] + 1;
}
static struct tensor_shape pool_shape(const struct speed_case *c, unsigned i) {
  int64_t side = i == 1 ? pooled_size(c) : c->n[SIZE];
  return SHAPE(c->n[BATCH], c->n[CHANNELS], side, side);
}
static db_tensor *pool_build(const struct speed_case *c, db_tensor *const *in) {
  return db_max_pool2d(in[0], DB_LIST(c->n[KERNEL]), .stride = DB_LIST(c->n[STRIDE]),
                       .padding = DB_LIST(padding_of(c)));
}
static db_tensor *pool_back_build(const struct speed_case *c, db_tensor *const *in) {
  db_tensor *x = db_requires_grad(in[0]);
  return db_grad_from(pool_build(c, &x), in[1], x);
}

/* The maximum of a window of an image, and how many elements are equal to it. */
static float most_of(const struct speed_case *c, const float *image, int64_t row, int64_t column, unsigned *equal) {
  float most = -INFINITY;
  *equal = 0;
  for (int64_t i = 0; i < c->n[KERNEL] * c->n[KERNEL]; i++) {
    int64_t y = row * c->n[STRIDE] + i / c->n[KERNEL] - padding_of(c),
            x = column * c->n[STRIDE] + i % c->n[KERNEL] - padding_of(c);
    if (y < 0 || x < 0 || y >= c->n[SIZE] || x >= c->n[SIZE]) continue;
    float v = image[y * c->n[SIZE] + x];
    *equal = v > most ? 1 : *equal + (v == most);
    most = fmaxf(most, v);
  }
  return most;
}
static struct expected pool_element(const struct speed_case *c, float *const *in, int64_t at) {
  int64_t side = pooled_size(c), image = at / side / side;
  unsigned equal;
  float most = most_of(c, in[0] + image * c->n[SIZE] * c->n[SIZE], at / side % side, at % side, &equal);
  return (struct expected){(double)most, 1};
}
static struct expected pool_back_element(const struct speed_case *c, float *const *in, int64_t at) {
  int64_t side = pooled_size(c), n = c->n[SIZE], image = at / n / n, y = at / n % n, x = at % n;
  struct expected e = {0, 1};
  for (int64_t row = 0; row < side; row++) {
    int64_t in_row = y + padding_of(c) - row * c->n[STRIDE];
    if (in_row < 0 || in_row >= c->n[KERNEL]) continue;
    for (int64_t column = 0; column < side; column++) {
      int64_t in_column = x + padding_of(c) - column * c->n[STRIDE];
      unsigned equal;
      if (in_column < 0 || in_column >= c->n[KERNEL]) continue;
      if (most_of(c, in[0] + image * n * n, row, column, &equal) != in[0][at]) continue;
      double v = (double)in[1][(image * side + row) * side + column] / equal;
      e.value += v, e.scale += fabs(v);
    }
  }
  return e;
}
static double pool_cost(const struct speed_case *c) { return (double)(c->n[KERNEL] * c->n[KERNEL]); }
static double pool_back_cost(const struct speed_case *c) { return (double)c->n[SIZE] + 4 * pool_cost(c); }

/* ---- rows, columns: sort, in ascending order; topk, the largest k in descending order; cumsum ---- */
enum { ROWS, COLUMNS, FIRST };

static struct tensor_shape rows_shape(const struct speed_case *c, unsigned i) {
  return SHAPE(c->n[ROWS], c->n[COLUMNS]);
}
static struct tensor_shape topk_shape(const struct speed_case *c, unsigned i) {
  return SHAPE(c->n[ROWS], i && c->n[FIRST] < c->n[COLUMNS] ? c->n[FIRST] : c->n[COLUMNS]);
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
  size_t n = (size_t)c->n[COLUMNS];
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
  return in_order(c, in[0] + at / c->n[COLUMNS] * c->n[COLUMNS], at % c->n[COLUMNS]);
}
static struct expected topk_element(const struct speed_case *c, float *const *in, int64_t at) {
  int64_t k = topk_shape(c, 1).dim[1];
  return in_order(c, in[0] + at / k * c->n[COLUMNS], c->n[COLUMNS] - 1 - at % k);
}
static struct expected cumsum_element(const struct speed_case *c, float *const *in, int64_t at) {
  const float *row = in[0] + at / c->n[COLUMNS] * c->n[COLUMNS];
  struct expected e = {0};
  for (int64_t i = 0; i <= at % c->n[COLUMNS]; i++) e.value += (double)row[i], e.scale += fabs((double)row[i]);
  return e;
}
static double sort_cost(const struct speed_case *c) {
  return (double)c->n[COLUMNS] * (1 + 4 * log2((double)c->n[COLUMNS]));
}
static double cumsum_cost(const struct speed_case *c) { return (double)c->n[COLUMNS]; }

const struct speed_op select_ops[] = {
    {"max_pool", "batch channels size kernel stride", 1, pool_shape, pool_build, pool_element, pool_cost, NULL, 0},
    {"max_pool_back", "batch channels size kernel stride", 2, pool_shape, pool_back_build, pool_back_element,
     pool_back_cost, NULL, 1e-6, .rounded = 1 /* gradients that equal maxima share */},
    {"sort", "rows columns", 1, rows_shape, sort_build, sort_element, sort_cost, NULL, 0},
    {"topk", "rows columns k", 1, topk_shape, topk_build, topk_element, sort_cost, NULL, 0},
    {"cumsum", "rows columns", 1, rows_shape, cumsum_build, cumsum_element, cumsum_cost, NULL, 4e-6},
};
const unsigned select_op_count = sizeof select_ops / sizeof *select_ops;
