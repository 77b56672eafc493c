/* The gradients of attention: their values, the number of their kernels, and their products. */
#include "attention.h"
#include "executed.h"

struct gradients {
  int64_t heads, group, queries, keys, width; /* group: heads of queries per head of keys and values */
  db_dtype t;
  enum mask_kind mask;
  bool together; /* the result and its gradients are computed in one schedule */
  unsigned kernels;
};

/* Adds to dx = {dq, dk, dv} what one query of one head contributes. x = {q, k, v, dy} */
static void add_gradients(const struct gradients *c, int64_t head, int64_t i, float *const *x, double **dx) {
  const struct one_kernel like = {.mask = c->mask};
  int64_t w = c->width, n = c->keys, row = (head * c->queries + i) * w, of = head / c->group * n * w;
  double *p = calloc((size_t)n, sizeof *p), *dp = calloc((size_t)n, sizeof *dp), most = -INFINITY, sum = 0, mean = 0;
  double scale = 1 / sqrt((double)w);
  for (int64_t j = 0; j < n; j++) {
    for (int64_t d = 0; d < w; d++) p[j] += (double)x[0][row + d] * (double)x[1][of + j * w + d] * scale;
    for (int64_t d = 0; d < w; d++) dp[j] += (double)x[3][row + d] * (double)x[2][of + j * w + d];
    if (!allowed(&like, i, j)) p[j] = -INFINITY;
    most = fmax(most, p[j]);
  }
  for (int64_t j = 0; j < n; j++) sum += p[j] = exp(p[j] - most);
  for (int64_t j = 0; j < n; j++) mean += (p[j] /= sum) * dp[j];
  for (int64_t j = 0; j < n; j++) {
    double ds = p[j] * (dp[j] - mean) * scale;
    for (int64_t d = 0; d < w; d++) {
      dx[0][row + d] += ds * (double)x[1][of + j * w + d];
      dx[1][of + j * w + d] += ds * (double)x[0][row + d];
      dx[2][of + j * w + d] += p[j] * (double)x[3][row + d];
    }
  }
  free(p);
  free(dp);
}

static void check_gradients(const struct gradients *c, const char *device) {
  const struct one_kernel like = {.t = c->t};
  int64_t shared = c->heads / c->group, size = c->heads * c->queries * c->width, less = shared * c->keys * c->width;
  int64_t n[4] = {size, less, less, size};
  float *x[4], *got = calloc((size_t)(size + less), sizeof *got);
  double *want[3], error = c->t == DB_BF16 ? 0.02 : c->t == DB_F16 ? 0.003 : 1e-5;
  for (unsigned i = 0; i < 4; i++) x[i] = calloc((size_t)n[i], sizeof *x[i]);
  for (unsigned i = 0; i < 3; i++) want[i] = calloc((size_t)n[i], sizeof *want[i]);
  {
    DB_SCOPED;
    db_tensor *in[4], *out[4];
    db_device *dev = db_open(device);
    for (unsigned i = 0; i < 4; i++)
      in[i] = db_reshape(tensor_of(&like, dev, n[i], i + 1, 1, x[i]), n[i] == size ? c->heads : shared,
                         n[i] == size ? c->queries : c->keys, c->width);
    assert_int_equal(db_realize(in[0], in[1], in[2], in[3]), 0);
    for (unsigned i = 0; i < 3; i++) db_requires_grad(in[i]);
    db_tensor *y = db_attention(in[0], in[1], in[2], .causal = c->mask == CAUSAL);
    if (!c->together) assert_int_equal(db_realize(y), 0);
    bool counted = !strncmp(device, "EMU", 3) && c->t != DB_F32 && c->mask == NO_MASK && !c->together;
    struct emu_detail executed = {{0}};
    if (counted) assert_int_equal(emu_detail(db_device_os(dev), true), 0);
    if (counted) executed = executed_so_far(dev);
    unsigned before = kernels_so_far(dev);
    db_grad_all(y, in[3], in, 3, out);
    out[3] = y;
    if (db_realize_all(out, 3 + c->together)) fail_msg("%s", db_error());
    if (kernels_so_far(dev) - before != c->kernels)
      fail_msg("%ld x %ld x %ld: %u kernels", (long)c->queries, (long)c->keys, (long)c->width,
               kernels_so_far(dev) - before);
    for (int64_t i = 0; i < c->heads * c->queries; i++) add_gradients(c, i / c->queries, i % c->queries, x, want);
    for (unsigned i = 0; i < 3; i++) {
      double largest = 0;
      must_read(db_cast(out[i], DB_F32), got, (size_t)n[i] * sizeof *got);
      for (int64_t k = 0; k < n[i]; k++) largest = fmax(largest, fabs(want[i][k]));
      for (int64_t k = 0; k < n[i]; k++)
        if (fabs((double)got[k] - want[i][k]) > error * (largest + 1))
          fail_msg("%ld x %ld x %ld: element %ld of gradient %u is %g, not %g", (long)c->queries, (long)c->keys,
                   (long)c->width, (long)k, i, (double)got[k], want[i][k]);
    }
    if (counted) { /* nine products; a block has 16 rows, 8 columns and 16 bytes along the sum */
      uint64_t product = (uint64_t)(size * c->keys) / (16 * 8 * 8);
      uint64_t blocks = executed_so_far(dev).matrix_blocks - executed.matrix_blocks;
      if (blocks < 9 * product) fail_msg("%s: %lu blocks, %lu a product", device, blocks, product);
    }
    db_close(dev);
  }
  for (unsigned i = 0; i < 4; i++) free(x[i]);
  for (unsigned i = 0; i < 3; i++) free(want[i]);
  free(got);
}

/* The gradients recompute the probabilities by blocks of queries and by blocks of keys. */
static void gradients_are_kernels(void **state) {
  static const struct gradients cases[] = {
      {2, 1, 256, 256, 32, DB_F32, NO_MASK, false, 2}, {2, 1, 251, 257, 17, DB_F32, CAUSAL, false, 2},
      {2, 1, 256, 256, 32, DB_F32, NO_MASK, true, 2},  {4, 2, 128, 131, 16, DB_F32, CAUSAL, false, 2},
      {6, 3, 100, 256, 16, DB_F32, NO_MASK, true, 2},  {2, 1, 251, 257, 33, DB_BF16, CAUSAL, false, 2},
      {4, 2, 130, 256, 24, DB_F16, NO_MASK, false, 2}, {4, 2, 128, 128, 16, DB_F32, CAUSAL, true, 2},
      {2, 1, 256, 200, 24, DB_F32, CAUSAL, false, 2},  {2, 1, 192, 256, 24, DB_BF16, CAUSAL, true, 2},
      {1, 1, 460, 470, 128, DB_F32, CAUSAL, false, 2},
  };
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) check_gradients(&cases[i], "CPU");
}

/* On GPUs a kernel of its own, or the kernel of the result, computes the values of rows. The gradients that depend on
 * them come later. */
static void gradients_are_kernels_on_gpus(void **state) {
  static const struct gradients cases[] = {
      {2, 1, 128, 131, 32, DB_F16, NO_MASK, false, 3},
      {2, 1, 131, 129, 17, DB_BF16, CAUSAL, false, 3},
      {2, 1, 128, 131, 24, DB_F16, CAUSAL, true, 3},
      {1, 1, 300, 310, 64, DB_F32, CAUSAL, false, 3},
      {4, 2, 128, 131, 24, DB_F16, CAUSAL, true, 3}, /* columns of two axes */
      {4, 2, 130, 128, 32, DB_BF16, NO_MASK, false, 3},
      {6, 3, 257, 250, 16, DB_F16, CAUSAL, false, 3},
      {34, 1, 150, 200, 64, DB_BF16, CAUSAL, false, 3}, /* those of keys and values in registers on gfx1100 */
      {34, 1, 128, 131, 32, DB_F16, NO_MASK, false, 3},
      {64, 2, 100, 190, 48, DB_F16, CAUSAL, true, 3},
      {34, 1, 91, 190, 24, DB_F16, CAUSAL, false, 3},
      {2, 1, 300, 192, 96, DB_BF16, CAUSAL, false, 3},
      {4, 1, 510, 515, 17, DB_F16, CAUSAL, false, 4}, /* and four copies with aligned rows, in one launch */
      {4, 2, 515, 510, 33, DB_F32, NO_MASK, true, 4},
      {1, 1, 512, 500, 256, DB_F32, NO_MASK, false, 3}, /* the scores are as large as queries and keys */
      {2, 1, 515, 510, 1, DB_F32, CAUSAL, false, 2},    /* without products: the query's, and the others */
  };
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    check_gradients(&cases[i], EMULATED);
    if (has_ptxas()) check_gradients(&cases[i], EMULATED_NVIDIA);
  }
}

/* On gfx1100 the gradients of keys and of values in rows of 128 elements do not fit in the registers of one kernel; on
 * sm_90 those in longer rows. */
static void gradients_of_long_rows_are_two_kernels(void **state) {
  static const struct gradients wide[] = {
      {1, 1, 515, 514, 160, DB_F16, NO_MASK, false, 3},
      {1, 1, 513, 515, 192, DB_BF16, NO_MASK, false, 3},
      {1, 1, 515, 514, 256, DB_F16, NO_MASK, false, 3},
  };
  static const struct gradients cases[] = {
      {12, 1, 500, 520, 128, DB_F16, NO_MASK, false, 4},
      {1, 1, 390, 500, 128, DB_BF16, CAUSAL, false, 4},
      {4, 2, 400, 392, 128, DB_F16, CAUSAL, true, 4},
  };
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) check_gradients(&cases[i], EMULATED);
  for (unsigned i = 0; i < sizeof wide / sizeof *wide; i++) {
    struct gradients on_nvidia = wide[i];
    check_gradients(&wide[i], EMULATED);
    on_nvidia.kernels++;
    if (has_ptxas()) check_gradients(&on_nvidia, EMULATED_NVIDIA);
  }
}

/* Rows that do not even fit in those of two kernels are computed in slices. */
static void gradients_of_wide_rows_are_sliced(void **state) {
  static const struct gradients cases[] = {
      {1, 1, 400, 410, 320, DB_F16, NO_MASK, false, 3},
      {1, 1, 390, 500, 320, DB_BF16, CAUSAL, true, 3},
  };
  for (unsigned i = 0; has_ptxas() && i < sizeof cases / sizeof *cases; i++)
    check_gradients(&cases[i], EMULATED_NVIDIA);
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_are_kernels), cmocka_unit_test(gradients_are_kernels_on_gpus),
      cmocka_unit_test(gradients_of_long_rows_are_two_kernels), cmocka_unit_test(gradients_of_wide_rows_are_sliced)};
  has_ptxas(); /* sets the cache folder before anything is compiled */
  return cmocka_run_group_tests_name("attention_gradients", tests, NULL, finish);
}
