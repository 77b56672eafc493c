/* Pools and interpolation: the number of kernels, their time on GPUs, the sizes of adaptive pools, and errors. Other
 * values are tested in tests/data/cases. */
#include "executed.h"

static void one_kernel(void **state) {
  db_device *dev = open_device("CPU");
  {
    DB_SCOPED;
    float data[1024] = {0};
    db_tensor *x = db_from(data, DB_F32, dev, 2, 4, 8, 8);
    db_tensor *y[] = {db_max_pool2d(x, DB_LIST(2)),
                      db_max_pool2d(x, DB_LIST(3), .padding = DB_LIST(1), .stride = DB_LIST(2)),
                      db_avg_pool2d(x, DB_LIST(3), .padding = DB_LIST(1), .exclude_padding = true),
                      db_adaptive_avg_pool2d(x, 1, 1),
                      db_adaptive_max_pool2d(x, 4, 2),
                      db_interpolate(x, DB_LIST(16, 16))};
    for (unsigned i = 0; i < sizeof y / sizeof *y; i++) {
      unsigned before = kernels_so_far(dev);
      if (db_realize(db_contiguous(y[i]))) fail_msg("%s", db_error());
      assert_int_equal(kernels_so_far(dev) - before, 1);
    }
  }
  db_close(dev);
}

/* Adaptive pools combine the elements from floor(o * in / out) to ceil((o + 1) * in / out) for any two sizes. */
static void adaptive_sizes(void **state) {
  enum { MOST = 12 };
  for (int in = 1; in <= MOST; in++)
    for (int out = 1; out <= MOST; out++) {
      DB_SCOPED;
      float data[MOST], most[MOST], mean[MOST];
      for (int i = 0; i < in; i++) data[i] = (float)(i * 7 % 5 - 3);
      db_tensor *x = db_from(data, DB_F32, NULL, 1, in);
      must_read(db_adaptive_max_pool1d(x, out), most, (size_t)out * sizeof *most);
      must_read(db_adaptive_avg_pool1d(x, out), mean, (size_t)out * sizeof *mean);
      for (int o = 0; o < out; o++) {
        int begin = o * in / out, end = ((o + 1) * in + out - 1) / out;
        float largest = data[begin], sum = 0;
        for (int i = begin; i < end; i++) largest = data[i] > largest ? data[i] : largest, sum += data[i];
        float average = sum / (float)(end - begin);
        if (most[o] != largest || fabsf(mean[o] - average) > 1e-6f)
          fail_msg("output %d of %d of %d elements: %g, %g", o, out, in, most[o], mean[o]);
      }
    }
}

/* Reads t and returns the model time in us. */
static double read_timed(db_device *dev, db_tensor *t, float *out, size_t n) {
  assert_int_equal(emu_detail(db_device_os(dev), true), 0);
  struct emu_detail before = executed_so_far(dev);
  must_read(t, out, n * sizeof *out);
  return (double)(executed_so_far(dev).model_ps - before.model_ps) * 1e-6;
}

/* The work-items of a GPU compute a window each: if several shared one, those of a maximum and of its gradient would
 * take two and three times as long. An element's gradient compares it with the maxima of at most four windows. */
static void windows_take_little_time(void **state) {
  enum { IMAGES = 64, IN = 112, OUT = 56 };
  static const struct {
    const char *device;
    double maximum, gradient;
  } most[] = {{EMULATED, 7, 21}, {EMULATED_NVIDIA, 3.7, 11}};
  const size_t n = IMAGES * IN * IN, m = IMAGES * OUT * OUT;
  float *x = malloc(n * sizeof *x), *dy = malloc(m * sizeof *dy), *y = malloc(m * sizeof *y),
        *dx = malloc(n * sizeof *dx);
  float *expected = calloc(n, sizeof *expected);
  for (size_t i = 0; i < n; i++) x[i] = (float)(i * 7919 % n);
  for (size_t i = 0; i < m; i++) {
    size_t best = SIZE_MAX, image = i / OUT / OUT * IN * IN, row = i / OUT % OUT * 2, column = i % OUT * 2;
    dy[i] = (float)(i % 13);
    for (size_t k = 0; k < 9; k++) {
      size_t r = row + k / 3, c = column + k % 3, at = image + (r - 1) * IN + c - 1;
      if (r && c && (best == SIZE_MAX || x[at] > x[best])) best = at;
    }
    expected[best] += dy[i];
  }
  for (unsigned i = 0; i < sizeof most / sizeof *most; i++) {
    if (i && !has_ptxas()) continue;
    db_device *dev = db_open(most[i].device);
    double maximum, gradient;
    {
      DB_SCOPED;
      db_tensor *t = db_contiguous(db_from(x, DB_F32, dev, IMAGES, 1, IN, IN));
      db_tensor *g = db_contiguous(db_from(dy, DB_F32, dev, IMAGES, 1, OUT, OUT));
      if (db_realize(t) || db_realize(g)) fail_msg("%s", db_error());
      db_tensor *z = db_max_pool2d(t, DB_LIST(3), .stride = DB_LIST(2), .padding = DB_LIST(1));
      db_tensor *back = db_grad_from(z, g, t);
      gradient = read_timed(dev, back, dx, n);
      maximum = read_timed(dev, z, y, m);
    }
    db_close(dev);
    for (size_t k = 0; k < n; k++)
      if (dx[k] != expected[k]) fail_msg("%s: the gradient of element %zu is %g", most[i].device, k, (double)dx[k]);
    if (maximum > most[i].maximum || gradient > most[i].gradient)
      fail_msg("%s: %g and %g us", most[i].device, maximum, gradient);
  }
  free(x);
  free(dy);
  free(y);
  free(dx);
  free(expected);
}

static void refused(void **state) {
  {
    DB_SCOPED;
    db_tensor *x = db_zeros(DB_F32, NULL, 2, 4, 8, 8), *i = db_zeros(DB_I32, NULL, 2, 4, 8);
    assert_contains(db_poison(db_max_pool2d(x, DB_LIST())), "the size of the kernel is missing");
    assert_contains(db_poison(db_max_pool2d(x, DB_LIST(2, 2, 2))), "3 numbers were given as kernel");
    assert_contains(db_poison(db_max_pool2d(x, DB_LIST(2), .padding = DB_LIST(2))), "the padding is 2 before");
    assert_contains(db_poison(db_avg_pool2d(x, DB_LIST(9))), "the kernel spans 9 of axis 0, which has 8");
    assert_contains(db_poison(db_avg_pool3d(i, DB_LIST(2))), "[2, 4, 8]; it must have 4 axes");
    assert_contains(db_poison(db_adaptive_avg_pool2d(x, 0)), "the size is 0");
    assert_contains(db_poison(db_pool_at(DB_HERE, 7, DB_POOL_MAX, x, DB_LIST(1), (struct db_pool){0})),
                    "the kernel has 7 axes");
    assert_contains(db_poison(db_interpolate(i, DB_LIST(4), .mode = DB_INTERPOLATE_LINEAR)),
                    "linear interpolation of i32");
    assert_contains(db_poison(db_interpolate(x, DB_LIST(4, 4), .scale[0] = 2)), "either sizes or a scale");
    assert_contains(db_poison(db_interpolate(x, DB_LIST())), "either sizes or a scale");
    assert_contains(db_poison(db_interpolate(x, DB_LIST(), .scale[0] = NAN)), "the scale nan");
    assert_contains(db_poison(db_interpolate(x, DB_LIST(), .scale[0] = 0.01)), "the scale 0.01");
    assert_contains(db_poison(db_interpolate(x, DB_LIST(4), .align_corners = true)), "corners");
  }
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_kernel), cmocka_unit_test(windows_take_little_time),
                                     cmocka_unit_test(adaptive_sizes), cmocka_unit_test(refused)};
  has_ptxas(); /* sets the cache folder before anything is compiled */
  return cmocka_run_group_tests_name("pool", tests, NULL, finish);
}
