/* Sums of products that work-items of emulated GPUs compute without matrix instructions: their values, and the numbers
 * of instructions and bank conflicts. Products of bytes, which matrix instructions sum in i32. */
#include "executed.h"

enum work { PLAIN, BIAS_RELU, COMPUTED, MASKED };
struct contraction {
  int64_t batch, m, n, k;
  bool a_transposed, b_transposed;
  db_dtype t;
  enum work work;
};

/* Multiples of 1/8 below 2, whose products and short sums are exact. */
static double element_of(int64_t i, unsigned seed) {
  uint32_t x = (uint32_t)(i + 1) * 2654435761u ^ seed * 40503u;
  return (double)((x ^ x >> 13) * 2246822519u >> 28) / 8 - 1;
}

/* The nearest number with a significand of 8 bits, the even one of two. */
static double rounded_to_bf16(double x) {
  int exponent;
  double significand = frexp(x, &exponent);
  return ldexp(nearbyint(significand * 256), exponent - 8);
}

static db_tensor *matrix_of(db_device *dev, const struct contraction *c, int64_t rows, int64_t columns, bool transposed,
                            unsigned seed) {
  int64_t n = c->batch * rows * columns;
  double *x = malloc((size_t)n * sizeof *x);
  assert_non_null(x);
  for (int64_t i = 0; i < n; i++) x[i] = element_of(i, seed) * (c->t == DB_I32 ? 8 : 1);
  db_tensor *t =
      db_cast(db_from(x, DB_F64, dev, c->batch, transposed ? columns : rows, transposed ? rows : columns), c->t);
  if (db_realize(t)) fail_msg("%s", db_error());
  free(x);
  return transposed ? db_permute(t, 0, 2, 1) : t;
}

static double operand(const struct contraction *c, bool b, int64_t batch, int64_t row, int64_t column) {
  int64_t rows = b ? c->k : c->m, columns = b ? c->n : c->k;
  bool transposed = b ? c->b_transposed : c->a_transposed;
  int64_t i = transposed ? (batch * columns + column) * rows + row : (batch * rows + row) * columns + column;
  double x = element_of(i, 1 + b) * (c->t == DB_I32 ? 8 : 1);
  if (c->work == COMPUTED && !b) return (x > 0 ? x : 0) + 1;
  if (c->work == MASKED && !b && column > row) return 0;
  return x;
}

static db_tensor *result_of(db_device *dev, const struct contraction *c, db_tensor *a, db_tensor *b) {
  if (c->work == COMPUTED) a = db_add(db_relu(a), 1);
  if (c->work == MASKED) {
    db_tensor *row = db_reshape(db_arange(0, (double)c->m, 1, DB_I32, dev), c->m, 1);
    a = db_where(db_lt(row, db_arange(0, (double)c->k, 1, DB_I32, dev)), 0, a);
  }
  db_tensor *y = db_matmul(a, b);
  return c->work == BIAS_RELU ? db_relu(db_add(y, db_cast(db_arange(0, (double)c->n, 1, DB_I32, dev), c->t))) : y;
}

/* Checks the results, and returns what the kernels executed. */
static struct emu_detail run(const struct contraction *c, const char *device, unsigned *kernels) {
  int64_t n = c->batch * c->m * c->n;
  double *got = malloc((size_t)n * sizeof *got);
  struct emu_detail before, after;
  {
    DB_SCOPED;
    db_device *dev = open_device(device);
    db_tensor *a = matrix_of(dev, c, c->m, c->k, c->a_transposed, 1),
              *b = matrix_of(dev, c, c->k, c->n, c->b_transposed, 2), *y = result_of(dev, c, a, b);
    assert_int_equal(db_device_synchronize(dev, db_device_timeout(dev)), 0);
    assert_int_equal(emu_detail(db_device_os(dev), true), 0);
    unsigned first = kernels_so_far(dev);
    before = executed_so_far(dev);
    if (db_realize(y) || db_device_synchronize(dev, db_device_timeout(dev))) fail_msg("%s", db_error());
    after = executed_so_far(dev);
    *kernels = kernels_so_far(dev) - first;
    must_read(db_cast(y, DB_F64), got, (size_t)n * sizeof *got);
    db_close(dev);
  }
  for (int64_t i = 0; i < n; i += n < 20000 || i % c->n > c->n - 3 ? 1 : 13) {
    int64_t column = i % c->n, row = i / c->n % c->m, batch = i / c->n / c->m;
    double want = 0;
    for (int64_t k = 0; k < c->k; k++) want += operand(c, false, batch, row, k) * operand(c, true, batch, k, column);
    if (c->work == BIAS_RELU) want = want + (double)column > 0 ? want + (double)column : 0;
    if (c->t == DB_F16) want = (double)(_Float16)want;
    if (c->t == DB_BF16) want = rounded_to_bf16(want);
    if (got[i] != want)
      fail_msg("%s, %ld of %ld x %ld x %ld: element %ld, %ld, %ld is %.9g, not %.9g", device, (long)c->batch,
               (long)c->m, (long)c->n, (long)c->k, (long)batch, (long)row, (long)column, got[i], want);
  }
  free(got);
  struct emu_detail d = after;
  for (unsigned i = 0; i < EMU_CLASS_COUNT; i++) d.executed[i] -= before.executed[i];
  d.lds_conflicts -= before.lds_conflicts, d.model_ps -= before.model_ps;
  return d;
}

static const struct contraction cases[] = {
    {1, 96, 80, 64, false, false, DB_F32, PLAIN},      {1, 65, 127, 61, false, false, DB_F32, PLAIN},
    {1, 64, 100, 72, false, true, DB_F32, BIAS_RELU},  {1, 63, 67, 33, true, true, DB_F32, BIAS_RELU},
    {1, 70, 96, 100, true, false, DB_F32, COMPUTED},   {1, 77, 93, 101, false, true, DB_F32, COMPUTED},
    {3, 33, 40, 50, false, false, DB_F32, PLAIN},      {2, 40, 33, 51, true, true, DB_F32, MASKED},
    {1, 8, 512, 300, false, true, DB_F32, PLAIN},      {1, 7, 300, 301, false, false, DB_F32, PLAIN},
    {1, 300, 5, 64, false, false, DB_F32, BIAS_RELU},  {1, 64, 64, 8, true, false, DB_F32, PLAIN},
    {1, 40, 44, 2000, false, true, DB_F32, PLAIN},     {1, 48, 64, 40, false, false, DB_F64, PLAIN},
    {1, 37, 41, 43, true, true, DB_F64, COMPUTED},     {1, 33, 64, 65, false, false, DB_I32, PLAIN},
    {1, 50, 50, 50, true, false, DB_I32, MASKED},      {1, 130, 66, 34, false, false, DB_F32, MASKED},
    {1, 65, 127, 61, false, false, DB_F16, PLAIN},     {1, 130, 67, 101, false, true, DB_F16, MASKED},
    {2, 40, 33, 51, true, true, DB_F16, PLAIN},        {1, 100, 255, 79, true, false, DB_F16, PLAIN},
    {3, 17, 9, 130, false, false, DB_F16, PLAIN},      {1, 255, 129, 255, false, false, DB_F16, MASKED},
    {1, 64, 301, 31, false, false, DB_F16, PLAIN},     {1, 61, 300, 31, true, true, DB_F16, MASKED},
    {1, 129, 131, 257, false, false, DB_F16, PLAIN},   {1, 129, 131, 257, true, false, DB_BF16, PLAIN},
    {1, 70, 130, 33, false, false, DB_BF16, PLAIN},    {1, 8, 201, 303, false, false, DB_F16, BIAS_RELU},
    {1, 203, 11, 129, false, false, DB_BF16, PLAIN},   {1, 128, 129, 136, false, false, DB_F16, BIAS_RELU},
    {1, 65, 136, 131, false, false, DB_F16, PLAIN},    {2, 65, 67, 131, false, false, DB_F16, PLAIN},
    {1, 131, 131, 133, false, true, DB_F16, PLAIN},    {1, 131, 131, 133, true, true, DB_BF16, PLAIN},
    {1, 2, 131, 257, false, false, DB_F16, BIAS_RELU}, {1, 133, 3, 257, false, false, DB_BF16, PLAIN},
    {1, 5, 136, 256, false, true, DB_BF16, PLAIN},     {1, 200, 7, 129, true, false, DB_F16, PLAIN},
    {1, 3, 200, 131, true, false, DB_F16, PLAIN},      {1, 136, 8, 256, true, false, DB_BF16, PLAIN},
    {1, 17, 300, 131, false, true, DB_F16, BIAS_RELU}, {1, 200, 7, 129, false, true, DB_BF16, PLAIN},
    {1, 2, 130, 33, false, true, DB_F16, PLAIN},       {1, 300, 513, 65, false, true, DB_F16, PLAIN},
};

static void values_are_exact(void **state) {
  static const char *more = "EMU+NV:sm_80";
  unsigned kernels;
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    FOR_EMULATED_GPU run(&cases[i], DEVICE_NAME, &kernels);
    if (has_ptxas() && i % 4 == 0) run(&cases[i], more, &kernels);
  }
}

/* The instructions for each 32 products, and bank conflicts. gfx1100 multiplies two pairs in one instruction. Matrices
 * of odd sizes, whose rows begin at unaligned addresses, need few more instructions than those of round sizes. */
static void few_other_instructions(void **state) {
  static const struct {
    const char *device;
    struct contraction c;
    double most;
  } of[] = {
      {EMULATED, {1, 512, 512, 256, false, false, DB_F32, PLAIN}, 0.8},
      {EMULATED, {1, 512, 512, 256, false, true, DB_F32, PLAIN}, 0.8},
      {EMULATED, {1, 512, 512, 256, true, false, DB_F32, PLAIN}, 0.8},
      {EMULATED, {1, 511, 511, 511, false, false, DB_F32, PLAIN}, 0.9},
      {EMULATED, {1, 512, 512, 512, false, false, DB_F16, PLAIN}, 0.085},
      {EMULATED, {1, 511, 511, 511, false, false, DB_F16, PLAIN}, 0.145},
      {EMULATED, {1, 255, 255, 255, false, false, DB_F16, PLAIN}, 0.36},
      {EMULATED_NVIDIA, {1, 512, 512, 256, false, false, DB_F32, PLAIN}, 1.45},
      {EMULATED_NVIDIA, {1, 512, 512, 256, false, true, DB_F32, PLAIN}, 1.55},
      {EMULATED_NVIDIA, {1, 512, 512, 256, true, false, DB_F32, PLAIN}, 1.45},
      {EMULATED_NVIDIA, {1, 511, 511, 511, false, false, DB_F32, PLAIN}, 1.72},
      {EMULATED_NVIDIA, {1, 511, 511, 511, false, false, DB_F16, PLAIN}, 0.05},
      {EMULATED_NVIDIA, {1, 511, 511, 511, true, false, DB_BF16, PLAIN}, 0.04},
      {EMULATED_NVIDIA, {1, 511, 511, 511, false, true, DB_F16, PLAIN}, 0.043},
      {EMULATED_NVIDIA, {1, 17, 1023, 1023, false, true, DB_F16, PLAIN}, 0.15},
      {EMULATED_NVIDIA, {1, 255, 255, 255, false, false, DB_BF16, PLAIN}, 0.07},
  };
  for (unsigned i = 0; i < (has_ptxas() ? sizeof of / sizeof *of : 7); i++) {
    const struct contraction *c = &of[i].c;
    unsigned kernels;
    struct emu_detail d = run(c, of[i].device, &kernels);
    double n = 0, each = (double)(c->m * c->n * c->k) / 32;
    for (unsigned class = 0; class < EMU_CLASS_COUNT; class ++) n += (double)d.executed[class];
    if (n <= of[i].most * each && !d.lds_conflicts && !d.executed[EMU_SCRATCH_CLASS] && kernels == 1) continue;
    fail_msg("%s, case %u: %.3f instructions for 32 products, %lu bank conflicts, %lu spills, %u kernels", of[i].device,
             i, n / each, (unsigned long)d.lds_conflicts, (unsigned long)d.executed[EMU_SCRATCH_CLASS], kernels);
  }
}

/* On gfx1100 the copies of odd rows take little longer than those of rows of 16 bytes or more, in a long and narrow
 * product of f16, which takes about as long as its memory accesses (960 GB/s and a launch of 2 us). */
static void odd_sums_take_little_longer(void **state) {
  static const int64_t sums[][2] = {{63, 64}, {31, 32}};
  for (unsigned rows = 64; rows <= 128; rows *= 2)
    for (unsigned i = 0; i < 2; i++) {
      double us[2], bytes = 0;
      unsigned kernels;
      for (unsigned n = 0; n < 2; n++) {
        struct contraction c = {1, rows, 50257, sums[i][n], false, false, DB_F16, PLAIN};
        us[n] = (double)run(&c, "EMU+AMD:gfx1100", &kernels).model_ps * 1e-6;
        bytes = 2.0 * (double)(c.m * c.k + c.k * c.n + c.m * c.n);
      }
      if (us[0] > 1.25 * us[1] || us[1] > 1.2 * (bytes / 960e3 + 2))
        fail_msg("%u rows: %g us for a sum of %d, %g for one of %d", rows, us[0], (int)sums[i][0], us[1],
                 (int)sums[i][1]);
    }
}

/* Three rows by a matrix whose rows begin at unaligned addresses, which work-items load one element at a time: halves
 * of lines give workgroups to the whole machine. */
static void few_rows_use_the_whole_machine(void **state) {
  struct contraction c = {1, 3, 1023, 1023, false, false, DB_F32, PLAIN};
  unsigned kernels;
  if (!has_ptxas()) return;
  double us = (double)run(&c, "EMU+NV:sm_90", &kernels).model_ps * 1e-6;
  if (us > 6.5) fail_msg("%g us", us);
}

/* A product and what is computed of it are two results of one kernel, which is planned like that of the product. */
static void check_two_results(const char *device, db_dtype t) {
  enum { ROWS = 200, COLUMNS = 300, SUM = 128 };
  static float x[ROWS * SUM], w[SUM * COLUMNS], e[ROWS * COLUMNS], got[2][ROWS * COLUMNS];
  DB_SCOPED;
  db_device *dev = open_device(device);
  for (int64_t i = 0; i < ROWS * SUM; i++) x[i] = (float)element_of(i, 1);
  for (int64_t i = 0; i < SUM * COLUMNS; i++) w[i] = (float)element_of(i, 2);
  for (int64_t i = 0; i < ROWS * COLUMNS; i++) e[i] = (float)element_of(i, 3);
  db_tensor *a = db_cast(db_from(x, DB_F32, dev, ROWS, SUM), t), *b = db_cast(db_from(w, DB_F32, dev, SUM, COLUMNS), t),
            *c = db_cast(db_from(e, DB_F32, dev, ROWS, COLUMNS), t), *y = db_matmul(a, b), *z = db_mul(y, c);
  assert_int_equal(db_realize(a, b, c), 0);
  assert_int_equal(db_device_synchronize(dev, db_device_timeout(dev)), 0);
  assert_int_equal(emu_detail(db_device_os(dev), true), 0);
  unsigned first = kernels_so_far(dev), class = t == DB_F32 ? EMU_LDS_CLASS : EMU_MATRIX_CLASS;
  struct emu_detail before = executed_so_far(dev);
  assert_int_equal(db_realize(y, z), 0);
  assert_int_equal(kernels_so_far(dev) - first, 1);
  must_read(db_cast(y, DB_F32), got[0], sizeof got[0]);
  must_read(db_cast(z, DB_F32), got[1], sizeof got[1]);
  assert_true(executed_so_far(dev).executed[class] > before.executed[class]);
  for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
    double want[2] = {0, 0};
    for (int64_t k = 0; k < SUM; k++)
      want[0] += (double)x[i / COLUMNS * SUM + k] * (double)w[k * COLUMNS + i % COLUMNS];
    want[1] = want[0] * (double)e[i];
    for (unsigned n = 0; n < 2; n++)
      if (fabs((double)got[n][i] - want[n]) > (t == DB_F32 ? 0 : 1e-3 * fabs(want[n])))
        fail_msg("%s, result %u: element %ld is %g, not %g", device, n, (long)i, (double)got[n][i], want[n]);
  }
  db_close(dev);
}

static void products_with_other_results(void **state) {
  check_two_results(EMULATED, DB_F32);
  check_two_results(EMULATED, DB_F16);
  if (!has_ptxas()) return;
  check_two_results(EMULATED_NVIDIA, DB_F32);
  check_two_results(EMULATED_NVIDIA, DB_F16);
}

/* Few results of a long sum are computed in parts, even if the products are few. Those of an odd sum leave a short
 * remainder, or the last part ends in zeros: on sm_90 parts of a multiple of 8 positions are copied in boxes. Rows of
 * an odd sum are copied first. */
static void few_results_take_little_time(void **state) {
  static const struct {
    const char *device;
    struct contraction c;
    double most;
    unsigned kernels;
  } of[] = {{"EMU+AMD:gfx1100", {1, 16, 16, 8192, false, false, DB_F16, PLAIN}, 14, 2},
            {"EMU+AMD:gfx1100", {1, 16, 16, 8191, false, true, DB_F16, PLAIN}, 10, 2},
            {"EMU+AMD:gfx1100", {1, 128, 10, 4096, false, false, DB_BF16, PLAIN}, 14, 2},
            {"EMU+AMD:gfx1100", {1, 70, 130, 8191, false, false, DB_F16, PLAIN}, 11, 2},
            {"EMU+AMD:gfx1100", {1, 127, 129, 8191, false, false, DB_F32, PLAIN}, 15, 2},
            {"EMU+AMD:gfx1100", {1, 24, 48, 2360, true, false, DB_F16, PLAIN}, 9, 2},
            {"EMU+NV:sm_90", {1, 127, 129, 8190, false, false, DB_F32, PLAIN}, 18, 2},
            {"EMU+NV:sm_90", {1, 127, 129, 8191, false, false, DB_F32, PLAIN}, 19, 2},
            {"EMU+NV:sm_90", {1, 128, 128, 10000, false, false, DB_F16, PLAIN}, 7, 2},
            {"EMU+NV:sm_90", {1, 128, 128, 9999, true, false, DB_F16, PLAIN}, 7, 2},
            {"EMU+NV:sm_90", {1, 120, 29, 11888, false, true, DB_BF16, PLAIN}, 6, 2},
            {"EMU+NV:sm_90", {1, 128, 128, 9999, false, true, DB_F16, PLAIN}, 13, 3},
            {"EMU+NV:sm_90", {1, 64, 64, 20001, false, false, DB_BF16, PLAIN}, 11, 3},
            {"EMU+NV:sm_90", {1, 96, 96, 10240, false, false, DB_F16, PLAIN}, 7, 2}};
  for (unsigned i = 0; i < sizeof of / sizeof *of; i++) {
    unsigned kernels;
    if (strcmp(of[i].device, EMULATED_NVIDIA) == 0 && !has_ptxas()) continue;
    double us = (double)run(&of[i].c, of[i].device, &kernels).model_ps * 1e-6;
    if (us > of[i].most || kernels != of[i].kernels) fail_msg("case %u: %g us, %u kernels", i, us, kernels);
  }
}

/* An infinite element of A makes only its row infinite, one of B only its column, though vectors that reach past the
 * end of a row of 61 or 77 elements load elements of the next row. */
static void rows_do_not_mix(void **state) {
  enum { M = 70, N = 77, K = 61, BAD = 3 };
  _Float16 *a = malloc(sizeof(_Float16) * M * K), *b = malloc(sizeof(_Float16) * K * N);
  float *got = malloc(sizeof *got * M * N);
  assert_true(a && b && got);
  for (int i = 0; i < M * K; i++) a[i] = (_Float16)(i == BAD * K ? (float)INFINITY : 1);
  for (int i = 0; i < K * N; i++) b[i] = (_Float16)(i == BAD * N ? (float)INFINITY : 1);
  FOR_EMULATED_GPU {
    DB_SCOPED;
    db_device *dev = open_device(DEVICE_NAME);
    db_tensor *y = db_matmul(db_from(a, DB_F16, dev, M, K), db_from(b, DB_F16, dev, K, N));
    must_read(db_cast(y, DB_F32), got, sizeof *got * M * N);
    for (int i = 0; i < M * N; i++)
      if ((i / N == BAD || i % N == 0) != !isfinite(got[i]) || (isfinite(got[i]) && got[i] != K))
        fail_msg("%s: element %d, %d is %g", DEVICE_NAME, i / N, i % N, (double)got[i]);
    db_close(dev);
  }
  free(a), free(b), free(got);
}

/* ---- convolutions and both gradients ---------------------------------------------------------------------------- */

struct convolution {
  int64_t batch, in, height, width, out, kernel, stride;
};
static const struct convolution convolutions[] = {
    {1, 16, 14, 14, 24, 3, 1}, {2, 8, 7, 7, 20, 3, 1},    {1, 12, 15, 9, 16, 3, 2}, {3, 20, 8, 6, 12, 1, 1},
    {1, 3, 20, 20, 16, 7, 2},  {2, 16, 28, 28, 16, 5, 1}, {2, 24, 14, 8, 16, 3, 2}, {1, 16, 12, 12, 8, 4, 2},
    {2, 8, 8, 10, 24, 2, 2},   {1, 16, 12, 6, 16, 6, 3},  {1, 16, 9, 16, 8, 5, 2},
};

static db_tensor *image_of(db_device *dev, const int64_t size[4], unsigned seed) {
  int64_t n = size[0] * size[1] * size[2] * size[3];
  float *x = malloc((size_t)n * sizeof *x);
  assert_non_null(x);
  for (int64_t i = 0; i < n; i++) x[i] = (float)element_of(i, seed);
  db_tensor *t = db_from(x, DB_F32, dev, size[0], size[1], size[2], size[3]);
  if (db_realize(t)) fail_msg("%s", db_error());
  free(x);
  return t;
}

/* Adds the products of a convolution to those of its three tensors whose values are not NULL. */
static void add_products(const struct convolution *c, const int64_t size[3][4], double *y, double *dx, double *dw) {
  const int64_t image = size[0][2] * size[0][3], result = size[2][2] * size[2][3], filter = c->kernel * c->kernel;
  for (int64_t b = 0; b < c->batch; b++)
    for (int64_t o = 0; o < c->out; o++)
      for (int64_t i = 0; i < c->in; i++)
        for (int64_t p = 0; p < result; p++)
          for (int64_t k = 0; k < filter; k++) {
            int64_t row = p / size[2][3] * c->stride + k / c->kernel - c->kernel / 2,
                    column = p % size[2][3] * c->stride + k % c->kernel - c->kernel / 2;
            if (row < 0 || column < 0 || row >= c->height || column >= c->width) continue;
            int64_t at[3] = {(b * c->in + i) * image + row * c->width + column, (o * c->in + i) * filter + k,
                             (b * c->out + o) * result + p};
            double x = element_of(at[0], 1), w = element_of(at[1], 2), dy = element_of(at[2], 3);
            y[at[2]] += x * w, dx[at[0]] += dy * w, dw[at[1]] += dy * x;
          }
}

static void convolutions_are_exact(void **state) {
  for (unsigned i = 0; i < sizeof convolutions / sizeof *convolutions; i++) {
    const struct convolution *c = &convolutions[i];
    const int64_t pad = c->kernel / 2,
                  size[3][4] = {{c->batch, c->in, c->height, c->width},
                                {c->out, c->in, c->kernel, c->kernel},
                                {c->batch, c->out, (c->height + 2 * pad - c->kernel) / c->stride + 1,
                                 (c->width + 2 * pad - c->kernel) / c->stride + 1}};
    double *want[3], *got;
    size_t n[3];
    for (unsigned t = 0; t < 3; t++) {
      n[t] = (size_t)(size[t][0] * size[t][1] * size[t][2] * size[t][3]);
      want[t] = calloc(n[t], sizeof **want);
      assert_non_null(want[t]);
    }
    add_products(c, size, want[2], want[0], want[1]);
    FOR_EMULATED_GPU {
      DB_SCOPED;
      db_device *dev = open_device(DEVICE_NAME);
      db_tensor *x[2], *result[3];
      for (unsigned t = 0; t < 2; t++) x[t] = db_requires_grad(image_of(dev, size[t], 1 + t));
      result[2] = db_conv2d(x[0], x[1], NULL, .stride = DB_LIST(c->stride), .padding = DB_LIST(pad));
      db_grad_all(result[2], image_of(dev, size[2], 3), x, 2, result);
      for (unsigned t = 0; t < 3; t++) {
        assert_non_null(got = malloc(n[t] * sizeof *got));
        must_read(db_cast(result[t], DB_F64), got, n[t] * sizeof *got);
        for (size_t e = 0; e < n[t]; e++)
          if (got[e] != want[t][e])
            fail_msg("%s, convolution %u, tensor %u: element %zu is %.9g, not %.9g", DEVICE_NAME, i, t, e, got[e],
                     want[t][e]);
        free(got);
      }
      db_close(dev);
    }
    for (unsigned t = 0; t < 3; t++) free(want[t]);
  }
}

/* The 128-byte lines that the instructions of a convolution of 3 x 3 access, for each of the elements that they load
 * and store. Weights are contiguous along the filter only, which is not an axis of the copy: adjacent work-items copy
 * adjacent channels, 36 bytes apart, not results. */
static void copies_access_few_lines(void **state) {
  static const int64_t image[4] = {1, 128, 28, 28}, filter[4] = {128, 128, 3, 3};
  static const double most[2] = {0.25, 0.24}; /* gfx1100: 0.44 with adjacent results; sm_90: 0.53 */
  FOR_EMULATED_GPU {
    DB_SCOPED;
    db_device *dev = open_device(DEVICE_NAME);
    db_tensor *y = db_conv2d(image_of(dev, image, 1), image_of(dev, filter, 2), NULL, .padding = DB_LIST(1));
    assert_int_equal(db_device_synchronize(dev, db_device_timeout(dev)), 0);
    assert_int_equal(emu_detail(db_device_os(dev), true), 0);
    struct emu_detail before = executed_so_far(dev), after;
    if (db_realize(y) || db_device_synchronize(dev, db_device_timeout(dev))) fail_msg("%s", db_error());
    after = executed_so_far(dev);
    uint64_t bytes = after.loaded[EMU_GLOBAL_SPACE] - before.loaded[EMU_GLOBAL_SPACE] + after.stored[EMU_GLOBAL_SPACE] -
                     before.stored[EMU_GLOBAL_SPACE];
    double lines = (double)(after.lines - before.lines) / (double)(bytes / sizeof(float));
    if (lines > most[!strcmp(DEVICE_NAME, EMULATED_NVIDIA)]) fail_msg("%s: %.3f lines per element", DEVICE_NAME, lines);
    db_close(dev);
  }
}

/* Counts what a convolution of 3 x 3 in f16 and both gradients execute. */
static void run_convolution(db_device *dev, int64_t batch, int64_t channels, int64_t side, struct emu_detail out[3]) {
  const int64_t image[4] = {batch, channels, side, side}, filter[4] = {channels, channels, 3, 3};
  db_tensor *x = db_cast(image_of(dev, image, 1), DB_F16), *w = db_cast(image_of(dev, filter, 2), DB_F16), *grad[2];
  db_tensor *dy = db_cast(image_of(dev, image, 3), DB_F16);
  if (db_realize(x) || db_realize(w) || db_realize(dy)) fail_msg("%s", db_error());
  db_tensor *y = db_conv2d(x, w, NULL, .padding = DB_LIST(1));
  db_tensor *of[] = {x, w};
  db_grad_all(y, dy, of, 2, grad);
  for (unsigned i = 0; i < 3; i++) {
    assert_int_equal(db_device_synchronize(dev, db_device_timeout(dev)), 0);
    struct emu_detail before = executed_so_far(dev);
    if (db_realize(i ? grad[i - 1] : y) || db_device_synchronize(dev, db_device_timeout(dev)))
      fail_msg("%s", db_error());
    out[i] = executed_so_far(dev);
    for (unsigned class = 0; class < EMU_CLASS_COUNT; class ++) out[i].executed[class] -= before.executed[class];
    out[i].model_ps -= before.model_ps;
  }
}

/* A convolution of 8 images, or one of its gradients. most: model time in us, on any GPU */
struct timed {
  int64_t channels, results, side, filter, stride;
  db_dtype t;
  enum { RESULT, WEIGHTS, IMAGE } what;
  double most;
};

static void check_time(const struct timed *c) {
  const int64_t side = c->side / c->stride, k = c->filter, pad = (k - 1) / 2;
  const int64_t image[4] = {8, c->channels, c->side, c->side}, filter[4] = {c->results, c->channels, k, k},
                result[4] = {8, c->results, side, side};
  FOR_EMULATED_GPU {
    DB_SCOPED;
    db_device *dev = open_device(DEVICE_NAME);
    db_tensor *x = db_cast(image_of(dev, image, 1), c->t), *w = db_cast(image_of(dev, filter, 2), c->t);
    db_tensor *dy = db_cast(image_of(dev, result, 3), c->t), *grad;
    db_tensor *y = db_conv2d(x, w, NULL, .padding = DB_LIST(pad), .stride = DB_LIST(c->stride));
    if (db_realize(x, w, dy) || db_device_synchronize(dev, db_device_timeout(dev))) fail_msg("%s", db_error());
    if (c->what != RESULT) db_grad_all(y, dy, c->what == IMAGE ? &x : &w, 1, &grad);
    assert_int_equal(emu_detail(db_device_os(dev), true), 0);
    struct emu_detail before = executed_so_far(dev);
    if (db_realize(c->what != RESULT ? grad : y) || db_device_synchronize(dev, db_device_timeout(dev)))
      fail_msg("%s", db_error());
    double us = (double)(executed_so_far(dev).model_ps - before.model_ps) * 1e-6;
    if (us > c->most) fail_msg("%s, %ld to %ld: %g us", DEVICE_NAME, (long)c->channels, (long)c->results, us);
    db_close(dev);
  }
}

/* Adjacent work-items compute adjacent pixels of a convolution to two channels. Joining the axes of the pixels, as for
 * copies that two channels do not share, takes 27 us and more. The sum of a gradient of few weights is divided among
 * all processors: undivided parts for each image take 34 us and more. The gradient of an image of few channels in f32
 * is the sum of a product's results, which have more columns: one sum takes 77 us and more. */
static void convolutions_of_few_channels_are_fast(void **state) {
  static const struct timed of[] = {{64, 2, 28, 3, 1, DB_F16, RESULT, 9},
                                    {3, 32, 64, 3, 1, DB_F16, WEIGHTS, 17},
                                    {4, 48, 56, 7, 2, DB_F32, IMAGE, 18}};
  for (unsigned c = 0; c < sizeof of / sizeof *of; c++) check_time(&of[c]);
}

/* A pixel of the gradient of an image is a sum over the taps of the filter that reached it, which are one in four if
 * the stride is 2. A sum over all taps, or a sum of a product's results, takes up to five times as long. For a gradient
 * of the weights, pixels of all rows are copied next to each other; with padded rows it takes 29 us and more.
 * Workgroups that share the sums of two columns also have rows: without them, 3 channels take 110 us. */
static void strided_gradients_are_fast(void **state) {
  static const struct timed of[] = {{64, 64, 56, 3, 2, DB_F16, IMAGE, 27},      {32, 64, 64, 4, 2, DB_F16, IMAGE, 15},
                                    {128, 256, 28, 2, 2, DB_BF16, IMAGE, 16},   {32, 48, 40, 4, 2, DB_F32, IMAGE, 16},
                                    {128, 256, 56, 1, 2, DB_BF16, WEIGHTS, 24}, {3, 16, 64, 5, 2, DB_F32, IMAGE, 17}};
  for (unsigned c = 0; c < sizeof of / sizeof *of; c++) check_time(&of[c]);
}

/* Few pixels fill an instruction's columns as rectangles, and few channels leave few results of long sums, which are
 * divided. One launch copies both operands. most: model time of the convolution and both gradients, in microseconds */
static void small_convolutions_are_fast(void **state) {
  static const struct {
    int64_t batch, channels, side;
    double most[2][3]; /* gfx1100, sm_90 */
  } of[] = {{8, 16, 32, {{7, 7, 12}, {8, 8, 19}}},   {8, 32, 32, {{10, 10, 15}, {6, 6, 10}}},
            {1, 100, 28, {{11, 11, 13}, {9, 9, 9}}}, {1, 97, 28, {{12, 12, 13}, {9, 9, 9}}},
            {1, 128, 28, {{12, 12, 12}, {7, 7, 9}}}, {1, 256, 7, {{16, 16, 9}, {8, 8, 11}}},
            {2, 64, 32, {{9, 9, 13}, {6, 6, 9}}},    {4, 64, 27, {{13, 13, 18}, {7, 7, 21}}}};
  static const char *const name[] = {"convolution", "gradient of the image", "gradient of the weights"};
  for (unsigned c = 0; c < sizeof of / sizeof *of; c++) FOR_EMULATED_GPU {
      DB_SCOPED;
      db_device *dev = open_device(DEVICE_NAME);
      const double *most = of[c].most[!strcmp(DEVICE_NAME, EMULATED_NVIDIA)];
      struct emu_detail d[3];
      assert_int_equal(emu_detail(db_device_os(dev), true), 0);
      run_convolution(dev, of[c].batch, of[c].channels, of[c].side, d);
      for (unsigned i = 0; i < 3; i++) {
        double us = (double)d[i].model_ps * 1e-6;
        if (us > most[i])
          fail_msg("%s, %d channels, %s: %g us, not %g", DEVICE_NAME, (int)of[c].channels, name[i], us, most[i]);
      }
      db_close(dev);
    }
}

/* Odd channels take at most 1.6 times the instructions of the round number after them: kernels check the elements that
 * they copy and store, but none that they load from a copy. */
static void odd_channels_take_little_longer(void **state) {
  FOR_EMULATED_GPU {
    DB_SCOPED;
    db_device *dev = open_device(DEVICE_NAME);
    struct emu_detail odd[3], round[3];
    assert_int_equal(emu_detail(db_device_os(dev), true), 0);
    run_convolution(dev, 1, 63, 14, odd);
    run_convolution(dev, 1, 64, 14, round);
    for (unsigned i = 0; i < 3; i++) {
      uint64_t n = odd[i].executed[EMU_VALU_CLASS], of = round[i].executed[EMU_VALU_CLASS];
      if (5 * n > 8 * of) fail_msg("%s: %u: %lu for %lu", DEVICE_NAME, i, (unsigned long)n, (unsigned long)of);
    }
    db_close(dev);
  }
}

/* Bytes of any value. Sums of their products are bytes, too, and wrap. */
static void check_bytes(const char *device, bool matrix) {
  enum { M = 66, N = 50, K = 200 };
  static const db_dtype types[] = {DB_I8, DB_U8};
  uint8_t a[M * K], b[K * N], got[M * N];
  for (unsigned i = 0; i < sizeof a; i++) a[i] = (uint8_t)(i * 2654435761u >> 13);
  for (unsigned i = 0; i < sizeof b; i++) b[i] = (uint8_t)(i * 2246822519u >> 17);
  for (unsigned t = 0; t < 2; t++) {
    DB_SCOPED;
    db_device *dev = open_device(device);
    db_tensor *y = db_matmul(db_from(a, types[t], dev, M, K), db_from(b, types[t], dev, K, N));
    assert_int_equal(db_dtype_of(y), types[t]);
    struct emu_detail before = {{0}};
    if (matrix) assert_int_equal(emu_detail(db_device_os(dev), true), 0);
    if (matrix) before = executed_so_far(dev);
    must_read(y, got, sizeof got);
    if (matrix) assert_true(executed_so_far(dev).executed[EMU_MATRIX_CLASS] > before.executed[EMU_MATRIX_CLASS]);
    for (unsigned i = 0; i < M * N; i++) {
      unsigned want = 0;
      for (unsigned k = 0; k < K; k++) want += (unsigned)a[i / N * K + k] * b[k * N + i % N];
      if (got[i] != (uint8_t)want) fail_msg("%s: element %u is %u, not %u", device, i, got[i], want & 255);
    }
    db_close(dev);
  }
}
/* Results of one byte in rows of an odd length, of which no eighth one begins at an aligned address. */
static void rows_of_bytes(void **state) {
  enum { N = 1023, K = 48 };
  float *a = malloc(sizeof *a * N * K), *b = malloc(sizeof *b * N * K), *got = malloc(sizeof *got * N * N);
  assert_true(a && b && got);
  for (int i = 0; i < N * K; i++) a[i] = ldexpf(1, i / K % 4 - 2), b[i] = ldexpf(1, i % N % 3 - 1);
  FOR_EMULATED_GPU {
    DB_SCOPED;
    db_device *dev = open_device(DEVICE_NAME);
    db_tensor *x = db_cast(db_from(a, DB_F32, dev, N, K), DB_F8E4M3);
    db_tensor *w = db_cast(db_from(b, DB_F32, dev, K, N), DB_F8E4M3);
    db_tensor *y = db_matmul(x, w);
    if (db_realize(x) || db_realize(w) || db_realize(y)) fail_msg("%s", db_error());
    must_read(db_cast(y, DB_F32), got, sizeof *got * N * N);
    for (int i = 0; i < N * N; i++)
      if (got[i] != K * a[i / N * K] * b[i % N])
        fail_msg("%s: element %d, %d is %g", DEVICE_NAME, i / N, i % N, (double)got[i]);
    db_close(dev);
  }
  free(a), free(b), free(got);
}

static void products_of_bytes(void **state) {
  check_bytes("CPU", false);
  check_bytes("EMU+AMD:gfx1100", true);
  if (has_ptxas()) check_bytes("EMU+NV:sm_90", true), check_bytes("EMU+NV:sm_80", true);
}

/* Bytes minus a zero point of each operand, whose sums of products are i32. */
struct quantized {
  uint8_t byte[4096];
  db_dtype t;
  int zero;
};

static int quantized_at(const struct quantized *q, int64_t i) {
  return (q->t == DB_U8 ? (int)q->byte[i] : (int)(int8_t)q->byte[i]) - q->zero;
}

static db_tensor *quantized_tensor(const struct quantized *q, db_device *dev, int64_t n) {
  db_tensor *x = db_cast(db_from(q->byte, q->t, dev, n), DB_I32);
  bool is_byte = q->t == DB_U8 ? q->zero >= 0 && q->zero < 256 : q->zero >= -128 && q->zero < 128;
  db_tensor *zero = is_byte ? db_cast(db_from(((uint8_t[]){(uint8_t)q->zero}), q->t, dev, 1), DB_I32)
                            : db_from(((int32_t[]){q->zero}), DB_I32, dev, 1);
  return q->zero ? db_sub(x, zero) : x;
}

/* Zeros before the first and after the last column. Rows of an odd number of elements are copied in boxes that begin
 * at multiples of 16 bytes: what is before a row's first element there belongs to the row before it. */
static void columns_are_padded(void **state) {
  static const struct {
    int m, k, n, before, after;
  } of[] = {{17, 48, 127, 2, 2}, {16, 33, 100, 1, 1}, {64, 64, 121, 8, 3}, {64, 64, 120, 8, 0}};
  for (unsigned c = 0; c < sizeof of / sizeof *of; c++) FOR_EMULATED_GPU {
      DB_SCOPED;
      db_device *dev = open_device(DEVICE_NAME);
      const int m = of[c].m, k = of[c].k, n = of[c].n, width = n + of[c].before + of[c].after;
      static float a[64 * 64], b[64 * 128], got[64 * 136];
      for (int i = 0; i < m * k; i++) a[i] = (float)(i * 7 % 11 - 5);
      for (int i = 0; i < k * n; i++) b[i] = (float)(i * 5 % 13 - 6);
      db_tensor *x = db_cast(db_from(a, DB_F32, dev, m, k), DB_F16),
                *y = db_cast(db_from(b, DB_F32, dev, k, n), DB_F16);
      if (db_realize(x, y)) fail_msg("%s", db_error());
      db_tensor *product = db_matmul(x, db_pad(y, 0, 0, of[c].before, of[c].after));
      must_read(db_cast(product, DB_F32), got, (size_t)(m * width) * sizeof *got);
      for (int i = 0; i < m * width; i++) {
        int column = i % width - of[c].before;
        float want = 0;
        for (int t = 0; column >= 0 && column < n && t < k; t++) want += a[i / width * k + t] * b[t * n + column];
        if (fabsf(got[i] - want) > 0x1p-10f * fabsf(want))
          fail_msg("%s, case %u, element %d: %g, not %g", DEVICE_NAME, c, i, got[i], want);
      }
      db_close(dev);
    }
}

/* Convolutions, whose images are padded, and transposed ones, whose images are sheared. */
static void check_quantized_images(db_device *dev, const struct quantized q[2]) {
  enum { SIDE = 7, OUT = 17, IN = 3 };
  static int32_t image[SIDE * SIDE * OUT];
  db_tensor *x = db_reshape(quantized_tensor(&q[0], dev, (int64_t)IN * SIDE * SIDE), 1, IN, SIDE, SIDE);
  for (int transposed = 0; transposed < 2; transposed++) {
    int outer = transposed ? IN : OUT, inner = transposed ? OUT : IN;
    db_tensor *w = db_reshape(quantized_tensor(&q[1], dev, (int64_t)OUT * IN * 9), outer, inner, 3, 3);
    must_read(transposed ? db_conv_transpose2d(x, w, NULL, .padding = DB_LIST(1))
                         : db_conv2d(x, w, NULL, .padding = DB_LIST(1)),
              image, sizeof image);
    for (int i = 0; i < SIDE * SIDE * OUT; i++) {
      int out = i / (SIDE * SIDE), row = i / SIDE % SIDE, column = i % SIDE, want = 0;
      for (int k = 0; k < IN * 9; k++) {
        int in = k / 9, down = k / 3 % 3 - 1, right = k % 3 - 1, at = (transposed ? in * OUT + out : out * IN + in) * 9;
        int r = transposed ? row - down : row + down, s = transposed ? column - right : column + right;
        if (r >= 0 && s >= 0 && r < SIDE && s < SIDE)
          want += quantized_at(&q[0], (in * SIDE + r) * SIDE + s) * quantized_at(&q[1], at + k % 9);
      }
      if (image[i] != want) fail_msg("pixel %d is %d, not %d (transposed: %d)", i, image[i], want, transposed);
    }
  }
}

static void check_quantized(db_device *dev, const struct quantized q[2], bool matrix) {
  enum { M = 35, N = 41, K = 83 };
  static int32_t got[M * N];
  DB_SCOPED;
  db_tensor *y = db_matmul(db_reshape(quantized_tensor(&q[0], dev, (int64_t)M * K), M, K),
                           db_reshape(quantized_tensor(&q[1], dev, (int64_t)K * N), K, N));
  struct emu_detail before = {{0}};
  if (matrix) before = executed_so_far(dev);
  must_read(y, got, sizeof got);
  if (matrix) assert_true(executed_so_far(dev).executed[EMU_MATRIX_CLASS] > before.executed[EMU_MATRIX_CLASS]);
  for (int i = 0; i < M * N; i++) {
    int want = 0;
    for (int k = 0; k < K; k++) want += quantized_at(&q[0], i / N * K + k) * quantized_at(&q[1], k * N + i % N);
    if (got[i] != want) fail_msg("product %d is %d, not %d", i, got[i], want);
  }
  check_quantized_images(dev, q);
}

/* Matrix instructions compute sums of products of any bytes minus any zero points, also where a convolution pads or
 * shears. */
static void products_of_quantized(void **state) {
  static const char *const device[] = {"CPU", "EMU+AMD:gfx1100", "EMU+NV:sm_80", "EMU+NV:sm_90"};
  static const int zeros[][2] = {{0, 0}, {3, 0}, {-5, -5}, {121, 7}, {300, 9}};
  struct quantized q[2];
  for (unsigned i = 0; i < sizeof q[0].byte; i++)
    q[0].byte[i] = (uint8_t)(i * 2654435761u >> 13), q[1].byte[i] = (uint8_t)(i * 2246822519u >> 17);
  for (unsigned d = 0; d < (has_ptxas() ? 4 : 2); d++) {
    db_device *dev = open_device(device[d]);
    if (d) assert_int_equal(emu_detail(db_device_os(dev), true), 0);
    for (unsigned i = 0; i < 4 * sizeof zeros / sizeof *zeros; i++) {
      for (unsigned o = 0; o < 2; o++) q[o].t = i >> o & 1 ? DB_U8 : DB_I8, q[o].zero = zeros[i / 4][o];
      check_quantized(dev, q, d);
    }
    db_close(dev);
  }
}

/* Expects that all elements of y are 0. */
static void expect_zeros(const char *device, db_dtype t, int line, db_tensor *y) {
  size_t n = (size_t)db_numel(y);
  float *got = malloc((n + 1) * sizeof *got);
  assert_non_null(got);
  memset(got, 0x55, (n + 1) * sizeof *got);
  if (db_read(db_cast(y, DB_F32), got, n * sizeof *got))
    fail_msg("%s, %s, line %d: %s", device, db_dtype_name(t), line, db_error());
  for (size_t i = 0; i < n; i++)
    if (got[i] != 0) fail_msg("%s, %s, line %d: element %zu is %g", device, db_dtype_name(t), line, i, (double)got[i]);
  free(got);
}

/* Sums of no products, products without results, and sums of padding only. */
static void check_empty(const char *name, db_device *dev, db_dtype t) {
  static const uint8_t memory[65536];
#define X(...)   db_from(memory, t, dev, __VA_ARGS__)
#define ZEROS(y) expect_zeros(name, t, __LINE__, y)
  ZEROS(db_matmul(X(4, 0), X(0, 3)));
  ZEROS(db_matmul(X(256, 0), X(0, 511)));
  ZEROS(db_matmul(X(64, 0), db_transpose(X(65, 0), 0, 1)));
  ZEROS(db_matmul(db_transpose(X(0, 64), 0, 1), X(0, 130)));
  ZEROS(db_matmul(X(8, 64, 0), X(8, 0, 65)));
  ZEROS(db_matmul(X(0, 64, 32), X(32, 65)));
  ZEROS(db_matmul(X(0, 32), X(32, 65)));
  ZEROS(db_matmul(X(65, 32), X(32, 0)));
  ZEROS(db_matmul(X(0, 0), X(0, 0)));
  ZEROS(db_matmul(X(64, 100), db_pad(X(0, 256), 0, 100, 0, 0)));
  ZEROS(db_pad(db_matmul(X(64, 0), X(0, 256)), 1, 1, 1, 1));
  ZEROS(db_matmul(db_matmul(X(64, 100), X(100, 0)), X(0, 100)));
  ZEROS(db_conv2d(X(2, 0, 8, 8), X(4, 0, 3, 3), NULL));
  ZEROS(db_conv2d(X(2, 0, 28, 28), X(64, 0, 3, 3), NULL));
  ZEROS(db_conv2d(X(0, 64, 28, 28), X(16, 64, 3, 3), NULL));
#undef ZEROS
#undef X
}
static void empty_sums_are_zero(void **state) {
  static const char *const names[] = {"CPU", EMULATED, EMULATED_NVIDIA, "EMU+NV:sm_80", "EMU+NV:sm_89"};
  static const db_dtype types[] = {DB_I8, DB_U8, DB_F8E4M3, DB_F16, DB_BF16, DB_F32};
  for (unsigned d = 0; d < (has_ptxas() ? 5 : 2); d++) {
    db_device *dev = open_device(names[d]);
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++) {
      DB_SCOPED;
      check_empty(names[d], dev, types[i]);
    }
    db_close(dev);
  }
}

/* Machines without matrix instructions for 8-bit floats convert them to f16. The identity matrix times all finite codes
 * gives their values. Products of codes are summed in f32, with at most 1.5 instructions for 32 products. */
static void check_float8(const char *device, db_dtype x_type, db_dtype w_type) {
  enum { M = 130, N = 96, K = 256 };
  uint8_t *codes = malloc((size_t)K * K), *identity = calloc(1, (size_t)K * K);
  float *x = malloc((size_t)K * K * 4), *w = malloc((size_t)K * N * 4), *got = malloc((size_t)K * K * 4);
  assert_true(codes && identity && x && w && got);
  for (unsigned i = 0; i < K * K; i++) { /* row i / K has the codes that begin with i / K */
    uint8_t code = (uint8_t)(i + i / K), largest = x_type == DB_F8E4M3 || w_type == DB_F8E4M3 ? 0x77 : 0x7b;
    codes[i] = (code & 0x7f) > largest ? code & 0x80 : code;
  }
  for (unsigned i = 0; i < K; i++) identity[i * K + i] = w_type == DB_F8E4M3 ? 0x38 : 0x3c; /* 1 */
  DB_SCOPED;
  db_device *dev = open_device(device), *cpu = open_device("CPU");
  must_read(db_cast(db_from(codes, x_type, cpu, K, K), DB_F32), x, (size_t)K * K * 4);
  must_read(db_cast(db_from(codes, w_type, cpu, K, N), DB_F32), w, (size_t)K * N * 4);
  db_tensor *a = db_cast(db_from(codes, x_type, dev, K, K), DB_F32),
            *one = db_cast(db_from(identity, w_type, dev, K, K), DB_F32);
  must_read(db_matmul(a, one), got, (size_t)K * K * 4);
  for (unsigned i = 0; i < K * K; i++)
    if (got[i] != x[i]) fail_msg("%s: code %02x is %g, not %g", device, codes[i], (double)got[i], (double)x[i]);
  a = db_shrink(a, 0, M, 0, K);
  db_tensor *y = db_matmul(a, db_cast(db_from(codes, w_type, dev, K, N), DB_F32));
  assert_int_equal(emu_detail(db_device_os(dev), true), 0);
  struct emu_detail before = executed_so_far(dev), after;
  must_read(y, got, (size_t)M * N * 4);
  after = executed_so_far(dev);
  assert_true(after.executed[EMU_MATRIX_CLASS] > before.executed[EMU_MATRIX_CLASS]);
  uint64_t all = 0;
  for (unsigned i = 0; i < EMU_CLASS_COUNT; i++) all += after.executed[i] - before.executed[i];
  if (all > M * N * K / 32 * 3 / 2) fail_msg("%s: %lu instructions", device, (unsigned long)all);
  for (unsigned i = 0; i < M * N; i++) {
    double want = 0, size = 0;
    for (unsigned k = 0; k < K; k++) {
      double p = (double)x[i / N * K + k] * (double)w[k * N + i % N];
      want += p, size += fabs(p);
    }
    if (!(fabs((double)got[i] - want) <= size * (K + 1) * 0x1p-24))
      fail_msg("%s: element %u is %.9g, not %.9g", device, i, (double)got[i], want);
  }
  db_close(dev);
  db_close(cpu);
  free(codes), free(identity), free(x), free(w), free(got);
}
static void products_of_float8(void **state) {
  static const char *const names[] = {EMULATED, "EMU+NV:sm_80", "EMU+NV:sm_89"};
  for (unsigned d = 0; d < (has_ptxas() ? 3 : 1); d++) {
    check_float8(names[d], DB_F8E4M3, DB_F8E4M3);
    check_float8(names[d], DB_F8E5M2, DB_F8E5M2);
    check_float8(names[d], DB_F8E4M3, DB_F8E5M2);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(values_are_exact),
                                     cmocka_unit_test(few_other_instructions),
                                     cmocka_unit_test(odd_sums_take_little_longer),
                                     cmocka_unit_test(few_results_take_little_time),
                                     cmocka_unit_test(few_rows_use_the_whole_machine),
                                     cmocka_unit_test(products_with_other_results),
                                     cmocka_unit_test(rows_do_not_mix),
                                     cmocka_unit_test(convolutions_are_exact),
                                     cmocka_unit_test(copies_access_few_lines),
                                     cmocka_unit_test(odd_channels_take_little_longer),
                                     cmocka_unit_test(small_convolutions_are_fast),
                                     cmocka_unit_test(convolutions_of_few_channels_are_fast),
                                     cmocka_unit_test(strided_gradients_are_fast),
                                     cmocka_unit_test(rows_of_bytes),
                                     cmocka_unit_test(products_of_bytes),
                                     cmocka_unit_test(products_of_quantized),
                                     cmocka_unit_test(columns_are_padded),
                                     cmocka_unit_test(empty_sums_are_zero),
                                     cmocka_unit_test(products_of_float8)};
  return cmocka_run_group_tests_name("frontend/contractions", tests, NULL, NULL);
}
