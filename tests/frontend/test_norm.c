/* Normalizations: the number of kernels, and errors. Their values are tested in tests/data/cases. */
#include "support.h"

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
  const struct CMUnitTest tests[] = {cmocka_unit_test(kernels), cmocka_unit_test(refused)};
  has_ptxas(); /* sets the cache folder before anything is compiled */
  return cmocka_run_group_tests_name("norm", tests, NULL, finish);
}
