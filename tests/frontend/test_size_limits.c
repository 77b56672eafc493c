/* Programs that exceed the limits of one kernel: many buffers, long chains, many axes, many workgroups. The scheduler
 * and the compiler divide them, and the values are the same. */
#include "support.h"
#include "../../frontend/nn.h"

/* Sums and stacks of more tensors than a kernel has arguments. */
static void many_tensors(void **state) {
  enum { N = 400, WIDTH = 3 };
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    float sum[WIDTH], *rows = malloc(N * WIDTH * sizeof *rows);
    {
      DB_SCOPED;
      static db_tensor *x[N];
      db_tensor *all = NULL;
      for (int i = 0; i < N; i++) {
        x[i] = db_from(((float[]){(float)i, 1, (float)-i}), DB_F32, dev, WIDTH);
        all = all ? db_add(all, x[i]) : x[i];
      }
      must_read(all, sum, sizeof sum);
      must_read(db_stack_n(x, N, 0), rows, N * WIDTH * sizeof *rows);
    }
    assert_float_equal(sum[0], N * (N - 1) / 2, 0);
    assert_float_equal(sum[1], N, 0);
    for (int i = 0; i < N; i++)
      for (int k = 0; k < WIDTH; k++) assert_float_equal(rows[i * WIDTH + k], k == 1 ? 1 : k ? -i : i, 0);
    free(rows);
    db_close(dev);
  }
}

/* An LSTM of 200 steps gives the same as two of 100, the second one starting from the state of the first. */
static void long_lstm(void **state) {
  enum { STEPS = 200, BATCH = 2, IN = 3, HIDDEN = 4 };
  float x[STEPS * BATCH * IN];
  for (int i = 0; i < STEPS * BATCH * IN; i++) x[i] = (float)(i * 7 % 13) / 6 - 1;
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    float whole[STEPS][BATCH * HIDDEN], halves[STEPS][BATCH * HIDDEN];
    {
      DB_SCOPED;
      db_params *p = db_params_new(dev, 1);
      db_recurrent lstm = db_lstm_new(p, "lstm", IN, HIDDEN, 1);
      db_tensor *in = db_from(x, DB_F32, dev, STEPS, BATCH, IN), *h = NULL, *c = NULL;
      must_read(db_recurrent_run(&lstm, in, NULL, NULL), whole, sizeof whole);
      for (int i = 0; i < 2; i++) {
        db_tensor *half = db_shrink(in, i * STEPS / 2, (i + 1) * STEPS / 2, 0, BATCH, 0, IN);
        must_read(db_recurrent_run(&lstm, half, &h, &c), halves[i * STEPS / 2], sizeof halves / 2);
      }
      db_params_free(p);
    }
    for (int i = 0; i < STEPS; i++)
      for (int k = 0; k < BATCH * HIDDEN; k++) assert_float_equal(whole[i][k], halves[i][k], 1e-5);
    db_close(dev);
  }
}

static db_tensor *chain(db_tensor *x, int n) {
  for (int i = 0; i < n; i++) {
    db_tensor *next = i & 1 ? db_mul(x, -1) : db_add(x, 1);
    db_release(x);
    x = next;
  }
  return x;
}

static void long_chains(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    int n = d_ ? 12000 : 100000;
    db_tensor *x = chain(db_from(((float[]){1, 2, -3}), DB_F32, dev, 3), n);
    EXPECT_FLOATS(x, 1, 2, -3); /* x -> -(x + 1) twice is x */
    db_release(x);
    db_close(dev);
  }
}

/* Repeating p = p[p] finds the end of every list. */
static void pointer_doubling(void **state) {
  enum { N = 1 << 10 };
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    int32_t p[N], got[N];
    for (int i = 0; i < N; i++) p[i] = i + 1 < N ? i + 1 : i;
    {
      DB_SCOPED;
      db_tensor *next = db_from(p, DB_I32, dev, N);
      for (int i = 0; i < 20; i++) next = db_gather(next, 0, next);
      must_read(next, got, sizeof got);
    }
    for (int i = 0; i < N; i++) assert_int_equal(got[i], N - 1);
    db_close(dev);
  }
}

/* 16 axes, normalized over every other one: 32 ranges of a kernel. */
static void many_axes(void **state) {
  enum { RANK = 16, N = 1 << 12 };
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    static float x[N], got[N];
    for (int i = 0; i < N; i++) x[i] = (float)(i * 37 % 101);
    {
      DB_SCOPED;
      db_tensor *t = db_from(x, DB_F32, dev, 2, 2, 2, 2, 2, 2, 1, 1, 2, 2, 2, 2, 2, 2, 1, 1);
      db_tensor *off = db_sub(t, db_mean_keep(t, 0, 2, 4, 6, 8, 10, 12, 14));
      db_tensor *norm = db_div(off, db_sqrt(db_mean_keep(db_mul(off, off), 0, 2, 4, 6, 8, 10, 12, 14)));
      must_read(norm, got, sizeof got);
    }
    for (int kept = 0; kept < N; kept++) { /* bits of the normalized axes: 11, 9, 7, 5, 3, 1 */
      if (kept & 0xaaa) continue;
      double sum = 0, squares = 0;
      for (int i = 0; i < N; i++)
        if ((i & 0x555) == kept) sum += (double)x[i];
      for (int i = 0; i < N; i++)
        if ((i & 0x555) == kept) squares += ((double)x[i] - sum / 64) * ((double)x[i] - sum / 64);
      for (int i = 0; i < N; i++)
        if ((i & 0x555) == kept) assert_float_equal(got[i], ((double)x[i] - sum / 64) / sqrt(squares / 64), 1e-4);
    }
    db_close(dev);
  }
}

/* More rows than NVIDIA has blocks along y. */
static void tall_matmul(void **state) {
  enum { ROWS = 280000, COLUMNS = 160 };
  float *a = malloc(ROWS * 2 * sizeof *a), b[2][COLUMNS], *got = malloc((size_t)ROWS * COLUMNS * sizeof *got);
  for (int i = 0; i < ROWS * 2; i++) a[i] = (float)(i % 1000);
  for (int i = 0; i < 2 * COLUMNS; i++) b[i / COLUMNS][i % COLUMNS] = (float)(i % 7);
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      must_read(db_matmul(db_from(a, DB_F32, dev, ROWS, 2), db_from(b, DB_F32, dev, 2, COLUMNS)), got,
                (size_t)ROWS * COLUMNS * sizeof *got);
    }
    for (int i = 0; i < ROWS; i++)
      for (int k = 0; k < COLUMNS; k++)
        if (got[(size_t)i * COLUMNS + (size_t)k] != a[2 * i] * b[0][k] + a[2 * i + 1] * b[1][k])
          fail_msg("%s: row %d, column %d is %g", DEVICE_NAME, i, k, (double)got[(size_t)i * COLUMNS + (size_t)k]);
    db_close(dev);
  }
  free(a);
  free(got);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(many_tensors),     cmocka_unit_test(long_lstm), cmocka_unit_test(long_chains),
      cmocka_unit_test(pointer_doubling), cmocka_unit_test(many_axes), cmocka_unit_test(tall_matmul),
  };
  return cmocka_run_group_tests_name("frontend/size_limits", tests, NULL, NULL);
}
