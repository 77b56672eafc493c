/* Pools and interpolation: the number of kernels, the sizes of adaptive pools, and errors. Other values are tested in
 * tests/data/cases. */
#include "support.h"

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
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_kernel), cmocka_unit_test(adaptive_sizes),
                                     cmocka_unit_test(refused)};
  has_ptxas(); /* sets the cache folder before anything is compiled */
  return cmocka_run_group_tests_name("pool", tests, NULL, finish);
}
