/* Convolutions: the number of kernels, empty ones, errors. Their values are tested in tests/data/cases. */
#include "../../emu/emu.h"
#include "../../hcq/backend.h"
#include "support.h"

static void one_kernel(void **state) {
  db_device *dev = open_device("CPU");
  {
    DB_SCOPED;
    float data[4096] = {0};
    db_tensor *x = db_from(data, DB_F32, dev, 2, 4, 8, 8), *w = db_from(data, DB_F32, dev, 4, 4, 3, 3);
    db_tensor *b = db_from(data, DB_F32, dev, 4);
    db_tensor *y[] = {db_conv2d(x, w, b), db_conv2d(x, w, b, .padding = DB_LIST(1), .stride = DB_LIST(2)),
                      db_relu(db_conv2d(x, w, b, .dilation = DB_LIST(2))),
                      db_conv_transpose2d(x, w, b, .stride = DB_LIST(2), .output_padding = DB_LIST(1)),
                      db_conv2d(x, db_reshape(w, 16, 1, 3, 3), NULL, .groups = 4)};
    for (unsigned i = 0; i < sizeof y / sizeof *y; i++) {
      unsigned before = kernels_so_far(dev);
      if (db_realize(y[i])) fail_msg("%s", db_error());
      assert_int_equal(kernels_so_far(dev) - before, 1);
    }
  }
  db_close(dev);
}

/* Gradients: one kernel each for weight and bias. The input needs two, a product and the sum of its windows, which is
 * much faster than both in one. dy is read from memory, as in a network. */
static void kernels_of_gradients(void **state) {
  db_device *dev = open_device("CPU");
  {
    DB_SCOPED;
    float data[4096] = {0};
    db_tensor *x = db_from(data, DB_F32, dev, 2, 4, 8, 8), *w = db_from(data, DB_F32, dev, 4, 4, 3, 3);
    db_tensor *b = db_from(data, DB_F32, dev, 4), *of[] = {x, w, b}, *d[3];
    db_tensor *y[] = {db_conv2d(x, w, b), db_conv2d(x, w, b, .padding = DB_LIST(1), .stride = DB_LIST(2)),
                      db_conv_transpose2d(x, w, b, .stride = DB_LIST(2), .padding = DB_LIST(1))};
    for (unsigned i = 0; i < sizeof y / sizeof *y; i++) {
      db_tensor *dy = db_from_at(DB_HERE, data, DB_F32, dev, DB_LIST(2, 4, db_dim(y[i], 2), db_dim(y[i], 3)));
      db_grad_all(y[i], dy, of, 3, d);
      for (unsigned k = 0; k < 3; k++) {
        unsigned before = kernels_so_far(dev);
        if (db_realize(d[k])) fail_msg("%s", db_error());
        assert_true(kernels_so_far(dev) - before <= (k ? 1 : 2));
      }
    }
  }
  db_close(dev);
}

/* A gradient that reads the convolution's result: computing that again in blocks of a few channels would take longer
 * than writing it to memory. */
static void gradient_of_a_square(void **state) {
  db_device *dev = open_device("CPU");
  {
    DB_SCOPED;
    db_tensor *x = db_rand(DB_F32, dev, 8, 32, 56, 56), *w = db_rand(DB_F32, dev, 64, 32, 3, 3);
    assert_int_equal(db_realize(x, w), 0);
    db_tensor *y = db_conv2d(x, w, NULL, .padding = DB_LIST(1)), *d = db_grad(db_sum(db_mul(y, y)), w);
    unsigned before = kernels_so_far(dev);
    if (db_realize(d)) fail_msg("%s", db_error());
    assert_int_equal(kernels_so_far(dev) - before, 2);
  }
  db_close(dev);
}

static void empty_batch(void **state) {
  {
    DB_SCOPED;
    db_tensor *w = db_ones(DB_F32, NULL, 6, 4, 3, 3), *y = db_conv2d(db_zeros(DB_F32, NULL, 0, 4, 8, 8), w, NULL);
    char none;
    must_read(y, &none, 0);
    assert_int_equal(db_dim(y, 0), 0);
    assert_int_equal(db_dim(y, 1), 6);
    y = db_conv2d(db_zeros(DB_F32, NULL, 1, 0, 8, 8), db_zeros(DB_F32, NULL, 2, 0, 8, 8), NULL);
    float zero[2];
    must_read(y, zero, sizeof zero);
    assert_true(zero[0] == 0 && zero[1] == 0);
    y = db_conv2d(w, db_zeros(DB_F32, NULL, 2, 4, 0, 1), NULL);
    assert_contains(db_poison(y), "no elements along axis 2");
  }
}

static void refused(void **state) {
  {
    DB_SCOPED;
    db_tensor *x = db_zeros(DB_F32, NULL, 2, 4, 8, 8), *w = db_zeros(DB_F32, NULL, 6, 4, 3, 3);
    db_tensor *b = db_zeros(DB_F32, NULL, 5), *v = db_zeros(DB_F32, NULL, 6, 4, 3);
    assert_contains(db_poison(db_conv2d(x, w, b)), "the bias is [5]; it must have 6 output channels");
    assert_contains(db_poison(db_conv2d(x, v, NULL)), "the weight is [6, 4, 3]; it must have 4 axes");
    assert_contains(db_poison(db_conv1d(x, v, NULL)), "conv1d at");
    assert_contains(db_poison(db_conv1d(x, v, NULL)), "[2, 4, 8, 8]; it must have 2 axes");
    assert_contains(db_poison(db_conv2d(x, w, NULL, .groups = 2)), "the input has 4 channels, the weight needs 8");
    assert_contains(db_poison(db_conv2d(x, w, NULL, .groups = -2)), "-2 groups");
    assert_contains(db_poison(db_conv2d(x, w, NULL, .stride = DB_LIST(0))), "the stride is 0; it must be at least 1");
    assert_contains(db_poison(db_conv2d(x, w, NULL, .dilation = DB_LIST(4))),
                    "the kernel spans 9 of axis 0, which has 8");
    assert_contains(db_poison(db_conv2d(x, w, NULL, .padding = DB_LIST(1, 1, 1))), "3 numbers were given as padding");
    assert_contains(db_poison(db_conv2d(x, w, NULL, .padding = DB_LIST(1, -1, 1, 1))), "1 before and -1 after");
    assert_contains(db_poison(db_conv2d(x, w, NULL, .padding = DB_LIST(1), .same = true)),
                    "padding and same padding exclude each other");
    assert_contains(db_poison(db_conv_transpose2d(x, w, NULL)), "the input has 4 channels, the weight needs 6");
    db_tensor *t = db_zeros(DB_F32, NULL, 4, 6, 3, 3);
    assert_contains(db_poison(db_conv_transpose2d(x, t, NULL, .output_padding = DB_LIST(1))),
                    "the output padding is 1");
    assert_contains(db_poison(db_conv_transpose2d(x, t, NULL, .padding = DB_LIST(5))), "the padding removes all 10");
  }
}

/* An infinite element changes only the results that it is a part of: a transposed convolution with stride 2 and three
 * taps has one tap or two for each result. */
static void infinite_elements(void **state) {
  enum { IN = 6, TAPS = 3, OUT = 12, CHANNELS = 64, BATCH = 4 };
  static const float one[OUT] = {2, INFINITY, INFINITY, INFINITY, 2, 4, 2, 4, 2, 4, 2, 3}, tap[TAPS] = {1, 2, 3};
  static float w[CHANNELS * CHANNELS * TAPS], x[BATCH * CHANNELS * IN], y[BATCH * CHANNELS * OUT];
  for (int i = 0; i < BATCH * CHANNELS * IN; i++) x[i] = i % IN == 1 ? INFINITY : 1;
  for (int i = 0; i < CHANNELS * CHANNELS * TAPS; i++) w[i] = tap[i % TAPS];
  FOR_DEVICES for (int channels = 1; channels <= CHANNELS; channels += CHANNELS - 1) {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_dtype t = channels == 1 ? DB_F32 : DB_F16;
      int batch = channels == 1 ? 1 : BATCH;
      db_tensor *of = db_contiguous(db_cast(db_from(x, DB_F32, dev, batch, channels, IN), t)), *r;
      db_tensor *taps = db_contiguous(db_cast(db_from(w, DB_F32, dev, channels, channels, TAPS), t));
      if (db_realize(of, taps)) fail_msg("%s", db_error());
      r = db_conv_transpose1d(of, taps, NULL, .stride = DB_LIST(2), .padding = DB_LIST(1),
                              .output_padding = DB_LIST(1));
      must_read(db_cast(r, DB_F32), y, sizeof(float) * (size_t)(batch * channels * OUT));
      for (int i = 0; i < batch * channels * OUT; i++)
        if (y[i] != one[i % OUT] * (float)channels) fail_msg("%s: %d is %g", DEVICE_NAME, i, (double)y[i]);
    }
    db_close(dev);
  }
}

/* The last tap of an even position does not exist. Its weight, which an index gathers, would be after the index, at the
 * end of a page. */
static void weights_by_index(db_device *dev) {
  enum { CHANNELS = 4096, TAPS = 3, IN = 6, OUT = 12 };
  static int32_t place[CHANNELS * TAPS];
  static float got[CHANNELS][OUT];
  for (int i = 0; i < CHANNELS * TAPS; i++) place[i] = i % 64;
  DB_SCOPED;
  db_tensor *x = db_from(((float[IN]){1, 2, 3, 4, 5, 6}), DB_F32, dev, 1, 1, IN), *y;
  db_tensor *w = db_take(db_arange(0, 64, 1, DB_F32, dev), db_from(place, DB_I32, dev, 1, CHANNELS, TAPS));
  y = db_conv_transpose1d(x, w, NULL, .stride = DB_LIST(2), .padding = DB_LIST(1), .output_padding = DB_LIST(1));
  must_read(y, got, sizeof got);
  for (int c = 0; c < CHANNELS; c++)
    for (int o = 0; o < OUT; o++) {
      int want = 0;
      for (int i = 0, t = o + 1; i < IN; i++, t -= 2) want += t >= 0 && t < TAPS ? (i + 1) * place[TAPS * c + t] : 0;
      assert_true(got[c][o] == (float)want);
    }
}

static db_tensor *ones(db_device *dev, int64_t a, int64_t b, int64_t c, int64_t d) {
  db_tensor *t = db_contiguous(db_ones(DB_F16, dev, a, b, c, d));
  if (db_realize(t)) fail_msg("%s", db_error());
  return t;
}

/* Rows of padding, and rows that the plan adds. Limiting a position twice would load from before the images. */
static void rows_after_the_image(db_device *dev) {
  static float got[48 * 4 * 3];
  DB_SCOPED;
  db_tensor *y = db_conv2d(ones(dev, 1, 32, 5, 6), ones(dev, 48, 32, 1, 2), NULL, .stride = DB_LIST(2),
                           .padding = DB_LIST(0, 3, 0, 0));
  must_read(db_cast(y, DB_F32), got, sizeof got);
  for (int i = 0; i < 48 * 4 * 3; i++) assert_true(got[i] == (i / 3 % 4 < 3 ? 64 : 0));
}

/* The same with conditions on the position of a tap in the image and on a part of that position. */
static void columns_after_the_image(db_device *dev) {
  static const float column[] = {5, 5, 5, 5, 4, 2};
  static float got[2 * 32 * 8 * 6];
  DB_SCOPED;
  db_tensor *x = ones(dev, 2, 32, 8, 6), *w = ones(dev, 32, 48, 4, 5);
  db_tensor *y = db_conv_transpose2d(x, w, NULL, .stride = DB_LIST(3, 2), .padding = DB_LIST(0, 0, 0, 3),
                                     .output_padding = DB_LIST(2, 0), .groups = 2);
  must_read(db_cast(db_grad_from(y, ones(dev, 2, 96, 27, 12), x), DB_F32), got, sizeof got);
  for (int i = 0; i < 2 * 32 * 8 * 6; i++) assert_true(got[i] == 48 * 4 * column[i % 6]);
}

static void loads_stay_in_memory(void **state) {
  FOR_EMULATED_GPU {
    db_device *dev = open_device(DEVICE_NAME);
    weights_by_index(dev);
    rows_after_the_image(dev);
    columns_after_the_image(dev);
    db_close(dev);
  }
}

/* ---- convolutions by matrix instructions ---- */

struct conv {
  int64_t batch, in, size, out, kernel, stride;
  db_dtype dtype;
  /* bit r: kernels of result r load no operand through registers and have no bank conflicts, on a GPU with tensor
   * copies */
  unsigned boxed;
  unsigned most;  /* instructions per matrix instruction of the result and of the gradient of the input, on gfx1100 */
  int64_t groups; /* 0: one */
};
#define TIMEOUT_NS 100000000000ull
enum { RESULTS = 3 }; /* the result, the gradient of the input, that of the weight */

/* Random multiples of 1/8, whose products and short sums are exact. */
static float *random_eighths(const int64_t *dim, uint32_t seed) {
  int64_t n = dim[0] * dim[1] * dim[2] * dim[3];
  float *x = malloc((size_t)n * sizeof *x);
  for (int64_t i = 0; i < n; i++) seed = seed * 1664525 + 1013904223, x[i] = (float)(seed >> 24) / 128 - 1;
  for (int64_t i = 0; i < n; i++) x[i] = roundf(x[i] * 8) / 8;
  return x;
}

static db_tensor *eighths(db_device *dev, const struct conv *c, const int64_t *dim, uint32_t seed) {
  float *x = random_eighths(dim, seed);
  db_tensor *t = db_cast(db_from_at(DB_HERE, x, DB_F32, dev, (db_list){4, dim}), c->dtype);
  if (db_realize(t) || db_device_synchronize(dev, TIMEOUT_NS)) fail_msg("%s", db_error());
  free(x);
  return t;
}

/* What the kernels that execute matrix instructions did. */
struct counts {
  uint64_t loaded; /* bytes through registers, plus bank conflicts */
  uint64_t executed, matrix;
};

/* Counts what the emulated device has executed so far. */
static struct counts count_products(db_device *dev) {
  struct counts n = {0};
  struct emu_kernel_stats *k;
  size_t kernels;
  if (emu_kernels(db_device_os(dev), db_device_index(dev), &k, &kernels)) fail();
  for (size_t i = 0; i < kernels; i++) {
    const struct emu_detail *d = &k[i].detail;
    if (!d->executed[EMU_MATRIX_CLASS]) continue;
    n.loaded += d->loaded[EMU_GLOBAL_SPACE] + d->lds_conflicts;
    n.matrix += d->executed[EMU_MATRIX_CLASS];
    for (unsigned e = 0; e < EMU_CLASS_COUNT; e++) n.executed += d->executed[e];
  }
  free(k);
  return n;
}

/* Computes result r on the device as f32. counts: NULL, or set. Returns the number of elements. */
static int64_t convolve(db_device *dev, const struct conv *c, unsigned r, float **out, struct counts *counts) {
  DB_SCOPED;
  int64_t size = (c->size + c->kernel / 2 * 2 - c->kernel) / c->stride + 1, n = 1;
  int64_t groups = c->groups ? c->groups : 1;
  int64_t dim[RESULTS][4] = {{c->batch, c->out, size, size},
                             {c->batch, c->in, c->size, c->size},
                             {c->out, c->in / groups, c->kernel, c->kernel}};
  db_tensor *dy = eighths(dev, c, dim[0], 1), *x = eighths(dev, c, dim[1], 2), *w = eighths(dev, c, dim[2], 3);
  bool exact = counts == NULL; /* the reference sums and rounds in f32 */
  if (exact) dy = db_cast(dy, DB_F32), x = db_cast(x, DB_F32), w = db_cast(w, DB_F32);
  db_tensor *of = db_requires_grad(r == 1 ? x : w), *y, *d;
  y = db_conv2d(r == 1 ? of : x, r == 1 ? w : of, NULL, .stride = DB_LIST(c->stride), .padding = DB_LIST(c->kernel / 2),
                .groups = groups);
  if (r) db_grad_all(y, dy, &of, 1, &d);
  struct os *os = db_device_os(dev);
  struct counts before = counts ? count_products(dev) : (struct counts){0};
  if (counts) emu_detail(os, true);
  if (db_realize(r ? d : y) || db_device_synchronize(dev, TIMEOUT_NS)) fail_msg("%s", db_error());
  if (counts) {
    struct counts after = count_products(dev);
    emu_detail(os, false);
    counts->loaded = after.loaded - before.loaded;
    counts->executed = after.executed - before.executed, counts->matrix = after.matrix - before.matrix;
  }
  for (unsigned i = 0; i < 4; i++) n *= dim[r][i];
  *out = malloc((size_t)n * sizeof **out);
  must_read(db_cast(r ? d : y, DB_F32), *out, (size_t)n * sizeof **out);
  return n;
}

/* Windows, strides, channels and pixels beyond the last whole tile. */
static void products_of_boxes(void **state) {
  static const struct conv convs[] = {
      {16, 64, 28, 64, 3, 1, DB_BF16, 7},  {16, 64, 28, 128, 3, 2, DB_F16, 7},   {16, 72, 14, 136, 5, 1, DB_BF16, 7},
      {32, 128, 14, 256, 1, 2, DB_F16, 3}, {2, 64, 16, 64, 3, 1, DB_F16, 0, 40}, {4, 64, 14, 40, 3, 2, DB_F16, 0},
      {1, 3, 32, 64, 7, 2, DB_F16, 0},
  };
  FOR_EMULATED_GPU for (unsigned i = 0; i < sizeof convs / sizeof *convs; i++) for (unsigned r = 0; r < RESULTS; r++) {
    const struct conv *c = &convs[i];
    if (d_ == 1 && c->boxed) continue; /* large */
    db_device *dev = open_device(DEVICE_NAME), *cpu = open_device("CPU");
    float *got, *want;
    struct counts counts;
    int64_t n = convolve(dev, c, r, &got, &counts);
    convolve(cpu, c, r, &want, NULL);
    for (int64_t e = 0; e < n; e++) {
      float step = (fabsf(want[e]) + 1) * (c->dtype == DB_BF16 ? 0x1p-8f : 0x1p-11f); /* rounded twice at most */
      if (!(fabsf(got[e] - want[e]) <= 2 * step))
        fail_msg("%s, case %u, result %u, element %ld: %g, not %g", DEVICE_NAME, i, r, (long)e, (double)got[e],
                 (double)want[e]);
    }
    if (d_ == 2 && (c->boxed >> r & 1) && counts.loaded)
      fail_msg("case %u, result %u: %lu", i, r, (unsigned long)counts.loaded);
    if (d_ == 1 && c->most && r < 2 && counts.executed > c->most * counts.matrix)
      fail_msg("case %u, result %u: %lu instructions, %lu of them matrix instructions", i, r,
               (unsigned long)counts.executed, (unsigned long)counts.matrix);
    free(got);
    free(want);
    db_close(dev);
    db_close(cpu);
  }
}

/* An element of a tensor of four axes; 0 in the padding. */
static double element(const float *x, const int64_t *dim, int64_t a, int64_t b, int64_t c, int64_t d) {
  bool inside = c >= 0 && c < dim[2] && d >= 0 && d < dim[3];
  return inside ? (double)x[((a * dim[1] + b) * dim[2] + c) * dim[3] + d] : 0;
}

/* Element e of result r, summed directly over all products that belong to it. data, dim: of dy, x and w. */
static double sum_of_group(const struct conv *c, unsigned r, float *const *data, int64_t (*dim)[4], int64_t e) {
  enum { BATCH, OUT, IN, TAP, ROW, COLUMN, LOOPS };
  const int64_t out = c->out / c->groups, in = c->in / c->groups, taps = c->kernel * c->kernel, *d = dim[r];
  const int64_t at[4] = {e / d[3] / d[2] / d[1], e / d[3] / d[2] % d[1], e / d[3] % d[2], e % d[3]};
  const int64_t group = r == 1 ? at[1] / in : at[r ? 0 : 1] / out;
  int64_t from[LOOPS] = {[OUT] = group * out},
          to[LOOPS] = {c->batch, (group + 1) * out, in, taps, dim[0][2], dim[0][3]};
  const int64_t fixed[RESULTS][LOOPS] = {{at[0], at[1], -1, -1, at[2], at[3]},
                                         {at[0], -1, at[1] % in, -1, -1, -1},
                                         {-1, at[0], at[1], at[2] * c->kernel + at[3], -1, -1}};
  for (unsigned i = 0; i < LOOPS; i++)
    if (fixed[r][i] >= 0) from[i] = fixed[r][i], to[i] = from[i] + 1;
  double sum = 0;
  for (int64_t n = from[BATCH]; n < to[BATCH]; n++)
    for (int64_t o = from[OUT]; o < to[OUT]; o++)
      for (int64_t i = from[IN]; i < to[IN]; i++)
        for (int64_t tap = from[TAP]; tap < to[TAP]; tap++)
          for (int64_t y = from[ROW]; y < to[ROW]; y++)
            for (int64_t x = from[COLUMN]; x < to[COLUMN]; x++) {
              int64_t ky = tap / c->kernel, kx = tap % c->kernel;
              int64_t row = y * c->stride + ky - c->kernel / 2, column = x * c->stride + kx - c->kernel / 2;
              if (r == 1 && (row != at[2] || column != at[3])) continue;
              double dy = r == 0 ? 1 : element(data[0], dim[0], n, o, y, x);
              double pixel = r == 1 ? 1 : element(data[1], dim[1], n, group * in + i, row, column);
              sum += dy * pixel * (r == 2 ? 1 : element(data[2], dim[2], o, i, ky, kx));
            }
  return sum;
}

/* Compares result r on the device with direct sums. counts: NULL, or set. */
static void check_groups(const char *device, const struct conv *c, unsigned r, struct counts *counts) {
  enum { SAMPLES = 64 };
  db_device *dev = open_device(device);
  float *got, *data[RESULTS];
  int64_t size = (c->size + c->kernel / 2 * 2 - c->kernel) / c->stride + 1;
  int64_t dim[RESULTS][4] = {{c->batch, c->out, size, size},
                             {c->batch, c->in, c->size, c->size},
                             {c->out, c->in / c->groups, c->kernel, c->kernel}};
  int64_t n = convolve(dev, c, r, &got, counts);
  for (unsigned k = 0; k < RESULTS; k++) data[k] = random_eighths(dim[k], k + 1);
  for (unsigned s = 0; s < SAMPLES; s++) {
    int64_t e = (int64_t)s * (n - 1) / (SAMPLES - 1);
    double want = sum_of_group(c, r, data, dim, e);
    double step = (fabs(want) + 1) * (c->dtype == DB_BF16 ? 0x1p-8 : 0x1p-11);
    if (!(fabs((double)got[e] - want) <= step))
      fail_msg("%s, %ld groups, result %u, element %ld: %g, not %g", device, (long)c->groups, r, (long)e,
               (double)got[e], want);
  }
  for (unsigned k = 0; k < RESULTS; k++) free(data[k]);
  free(got);
  db_close(dev);
}

/* Matrix instructions compute convolutions of groups, which are a batch of products, and of few channels. */
static void products_of_groups_and_of_few_channels(void **state) {
  static const struct conv large = {6, 256, 14, 256, 3, 1, DB_F16, .groups = 16},
                           strided = {2, 48, 15, 80, 3, 2, DB_BF16, .groups = 2},
                           plain = {3, 48, 12, 96, 3, 1, DB_F32, .groups = 4},
                           few = {16, 12, 40, 48, 3, 1, DB_F16, .groups = 1},
                           image = {2, 3, 90, 32, 7, 2, DB_F16, .groups = 1};
  for (unsigned r = 0; r < RESULTS; r++) {
    struct counts counts = {0}, of_few = {0};
    check_groups("CPU", &plain, r, NULL);
    FOR_EMULATED_GPU {
      check_groups(DEVICE_NAME, &strided, r, &counts);
      check_groups(DEVICE_NAME, &large, r, &counts);
      check_groups(DEVICE_NAME, &few, r, &of_few);
      if (r == 0) check_groups(DEVICE_NAME, &image, r, &(struct counts){0});
      bool weights = r == 2 && !strcmp(DEVICE_NAME, EMULATED); /* too few for a machine without boxes */
      if (!counts.matrix || (!of_few.matrix && !weights))
        fail_msg("%s, result %u: no matrix instructions", DEVICE_NAME, r);
    }
  }
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_kernel),
                                     cmocka_unit_test(kernels_of_gradients),
                                     cmocka_unit_test(gradient_of_a_square),
                                     cmocka_unit_test(empty_batch),
                                     cmocka_unit_test(refused),
                                     cmocka_unit_test(infinite_elements),
                                     cmocka_unit_test(loads_stay_in_memory),
                                     cmocka_unit_test(products_of_boxes),
                                     cmocka_unit_test(products_of_groups_and_of_few_channels)};
  has_ptxas(); /* sets the cache folder before anything is compiled */
  return cmocka_run_group_tests_name("conv", tests, NULL, finish);
}
