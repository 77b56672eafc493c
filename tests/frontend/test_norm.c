/* Normalizations: the number of kernels, and errors. Their values are tested in tests/data/cases. */
#include "executed.h"

static void kernels(void **state) {
  db_device *dev = open_device("CPU");
  {
    DB_SCOPED;
    float data[512] = {1};
    db_tensor *x = db_from(data, DB_F32, dev, 4, 8, 4, 4), *w = db_from(data, DB_F32, dev, 8);
    db_tensor *r = db_from(data, DB_F32, dev, 32, 16), *v = db_from(data, DB_F32, dev, 16);
    struct {
      db_tensor *y;
      unsigned kernels;
    } cases[] = {
        {db_batch_norm(x, w, w, w, w, 1e-5), 1}, {db_layer_norm(r, 1, v, v, 1e-5), 2}, {db_rms_norm(r, 1, v, 1e-5), 1}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
      unsigned before = kernels_so_far(dev);
      if (db_realize(cases[i].y)) fail_msg("%s", db_error());
      assert_true(kernels_so_far(dev) - before <= cases[i].kernels);
    }
  }
  db_close(dev);
}

/* On GPUs several work-items share a row, even a short one of an odd length: their loads are adjacent. If each had a
 * row of its own, 31 columns would take four times as long. */
static void short_rows_are_shared(void **state) {
  enum { ROWS = 2265, MOST = 31 };
  static float x[ROWS * MOST], y[ROWS * MOST];
  static const int columns[] = {8, 9, 17, MOST};
  for (unsigned i = 0; i < 2 * sizeof columns / sizeof *columns; i++) {
    const char *device = i % 2 ? EMULATED_NVIDIA : EMULATED;
    int n = columns[i / 2];
    if (i % 2 && !has_ptxas()) continue;
    for (int k = 0; k < ROWS * n; k++) x[k] = (float)(k * 7919 % 997) / 100;
    struct emu_detail before;
    double us;
    db_device *dev = db_open(device);
    {
      DB_SCOPED;
      db_tensor *t = db_contiguous(db_from(x, DB_F32, dev, ROWS, n));
      must_read(t, y, (size_t)(ROWS * n) * sizeof *y);
      assert_int_equal(emu_detail(db_device_os(dev), true), 0);
      before = executed_so_far(dev);
      must_read(db_softmax(t, 1), y, (size_t)(ROWS * n) * sizeof *y);
      us = (double)(executed_so_far(dev).model_ps - before.model_ps) * 1e-6;
    }
    db_close(dev);
    for (int r = 0; r < ROWS; r++) {
      double sum = 0;
      for (int k = 0; k < n; k++) sum += exp((double)x[r * n + k] - 10);
      for (int k = 0; k < n; k++)
        if (fabs((double)y[r * n + k] - exp((double)x[r * n + k] - 10) / sum) > 1e-6)
          fail_msg("%s, %d columns: element %d, %d is %g", device, n, r, k, (double)y[r * n + k]);
    }
    if (us > 2.8) fail_msg("%s, %d columns: %g us", device, n, us);
  }
}

static void refused(void **state) {
  {
    DB_SCOPED;
    db_tensor *x = db_zeros(DB_F32, NULL, 2, 6, 4), *w = db_zeros(DB_F32, NULL, 6), *i = db_zeros(DB_I32, NULL, 2, 6);
    assert_contains(db_poison(db_layer_norm(x, 1, w, NULL, 1e-5)),
                    "the weight is [6]; for the input [2, 6, 4] it must have axes 2 to 2");
    assert_contains(db_poison(db_layer_norm(x, 4, NULL, NULL, 1e-5)), "cannot normalize the last 4 axes of [2, 6, 4]");
    assert_contains(db_poison(db_rms_norm(i, 1, NULL, 1e-5)), "the input is i32; cast it to a float");
    assert_contains(db_poison(db_rms_norm(x, 1, NULL, NAN)), "epsilon is nan");
    assert_contains(db_poison(db_group_norm(x, 4, NULL, NULL, 1e-5)),
                    "the 6 channels of [2, 6, 4] cannot be divided into 4 groups");
    assert_contains(db_poison(db_group_norm(w, 1, NULL, NULL, 1e-5)),
                    "the input is [6]; it must have a batch and channels");
    assert_contains(db_poison(db_batch_norm(x, w, NULL, w, NULL, 1e-5)),
                    "a mean and a variance must be given together");
    assert_contains(db_poison(db_batch_norm(x, NULL, NULL, x, w, 1e-5)), "the mean is [2, 6, 4]");
    assert_contains(db_poison(db_batch_norm(NULL, w, w, w, w, 1e-5)), "NULL");
  }
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(kernels), cmocka_unit_test(short_rows_are_shared),
                                     cmocka_unit_test(refused)};
  has_ptxas(); /* sets the cache folder before anything is compiled */
  return cmocka_run_group_tests_name("norm", tests, NULL, finish);
}
