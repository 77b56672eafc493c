/* Convolutions: the number of kernels, empty ones, errors. Their values are tested in tests/data/cases. */
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

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_kernel), cmocka_unit_test(kernels_of_gradients),
                                     cmocka_unit_test(empty_batch), cmocka_unit_test(refused)};
  has_ptxas(); /* sets the cache folder before anything is compiled */
  return cmocka_run_group_tests_name("conv", tests, NULL, finish);
}
