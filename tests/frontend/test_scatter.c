/* Values that an index places, of sizes for which GPUs do not compare every position with every index: they sort the
 * index, or combine values atomically. All tests run twice, the second time with DETERMINISTIC=0. Results are compared
 * with plain loops. */
#include "executed.h"
#include <sys/wait.h>
#include <unistd.h>

enum { PLACES = 9001, COUNT = 9973, WIDTH = 3 };

static int32_t place[COUNT];      /* some are outside, and many are equal */
static float value[COUNT][WIDTH]; /* whose sums are exact */
static double sum[PLACES][WIDTH], most[PLACES][WIDTH];
static int64_t count[PLACES];

static void prepare(void) {
  uint32_t seed = 12345;
  for (int i = 0; i < COUNT; i++) {
    seed = seed * 1664525 + 1013904223;
    place[i] = i % 3 == 0 ? PLACES - 1 - (int32_t)(seed >> 16) % 2 : (int32_t)(seed >> 8) % PLACES;
    for (int c = 0; c < WIDTH; c++) value[i][c] = (float)((i * 7 + c * 5) % 33 - 16) / 4;
  }
  for (int p = 0; p < PLACES; p++)
    for (int c = 0; c < WIDTH; c++) most[p][c] = -INFINITY;
  for (int i = 0; i < COUNT; i++) {
    count[place[i]]++;
    for (int c = 0; c < WIDTH; c++) {
      double v = (double)value[i][c];
      sum[place[i]][c] += v, most[place[i]][c] = fmax(most[place[i]][c], v);
    }
  }
}

static void sums_gradients(void **state) {
  static const struct {
    db_dtype t;
    double tolerance;
  } types[] = {{DB_F32, 0}, {DB_F16, 0x1p-11}, {DB_BF16, 0x1p-8}, {DB_F64, 0}};
  static double got[PLACES][WIDTH];
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    for (unsigned k = 0; k < sizeof types / sizeof *types; k++) {
      DB_SCOPED;
      db_tensor *table = db_requires_grad(db_zeros(types[k].t, dev, PLACES, WIDTH));
      db_tensor *rows = db_index_select(table, 0, db_from(place, DB_I32, dev, COUNT));
      db_tensor *g = db_grad_from(rows, db_cast(db_from(value, DB_F32, dev, COUNT, WIDTH), types[k].t), table);
      must_read(db_cast(g, DB_F64), got, sizeof got);
      for (int p = 0; p < PLACES; p++)
        for (int c = 0; c < WIDTH; c++)
          if (fabs(got[p][c] - sum[p][c]) > types[k].tolerance * fabs(sum[p][c]))
            fail_msg("%s, %s: row %d column %d is %g, not %g", DEVICE_NAME, db_dtype_name(types[k].t), p, c, got[p][c],
                     sum[p][c]);
    }
    db_close(dev);
  }
}

/* Rows of which several adjacent elements are added at once, and rows that are too short or not aligned for it. */
static void sums_rows(void **state) {
  enum { MOST = 12, ROWS = 2500, AT = 701 };
  static const int widths[] = {2, 4, 6, 7, MOST};
  static const db_dtype types[] = {DB_F32, DB_F16, DB_BF16};
  static float v[ROWS * MOST];
  static double got[AT * MOST], want[AT * MOST];
  static int32_t at[ROWS];
  for (int i = 0; i < ROWS; i++) at[i] = place[i] % AT;
  FOR_EMULATED_GPU {
    db_device *dev = open_device(DEVICE_NAME);
    for (unsigned k = 0; k < sizeof widths / sizeof *widths * (sizeof types / sizeof *types); k++) {
      DB_SCOPED;
      db_dtype t = types[k % (sizeof types / sizeof *types)];
      int w = widths[k / (sizeof types / sizeof *types)];
      memset(want, 0, sizeof want);
      for (int i = 0; i < ROWS * w; i++)
        v[i] = (float)(i * 7 % 33 - 16) / 4, want[at[i / w] * w + i % w] += (double)v[i];
      db_tensor *table = db_requires_grad(db_zeros(t, dev, AT, w));
      db_tensor *rows = db_index_select(table, 0, db_from(at, DB_I32, dev, ROWS));
      db_tensor *g = db_grad_from(rows, db_cast(db_from(v, DB_F32, dev, ROWS, w), t), table);
      must_read(db_cast(g, DB_F64), got, sizeof *got * (size_t)(AT * w));
      double tolerance = t == DB_F32 ? 0 : t == DB_F16 ? 0x1p-11 : 0x1p-8;
      for (int i = 0; i < AT * w; i++)
        if (fabs(got[i] - want[i]) > tolerance * fabs(want[i]))
          fail_msg("%s, %s, rows of %d: element %d is %g, not %g", DEVICE_NAME, db_dtype_name(t), w, i, got[i],
                   want[i]);
    }
    db_close(dev);
  }
}

static void counts(void **state) {
  static int64_t got[PLACES];
  static bool hit[PLACES];
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_tensor *at = db_from(place, DB_I32, dev, COUNT), *none = db_zeros(DB_BOOL, dev, PLACES);
      must_read(db_bincount(at, PLACES), got, sizeof got);
      assert_memory_equal(got, count, sizeof got);
      must_read(db_scatter(none, 0, db_cast(at, DB_I64), db_full(1, DB_BOOL, dev, COUNT)), hit, sizeof hit);
      for (int p = 0; p < PLACES; p++) assert_int_equal(hit[p], count[p] > 0);
    }
    db_close(dev);
  }
}

static void finds_maxima(void **state) {
  static const db_dtype types[] = {DB_F32, DB_I16, DB_I32};
  static double got[PLACES][WIDTH];
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    for (unsigned k = 0; k < sizeof types / sizeof *types; k++) {
      DB_SCOPED;
      double scale = types[k] == DB_F32 ? 1 : 4;
      db_tensor *v = db_cast(db_mul(db_from(value, DB_F32, dev, COUNT, WIDTH), scale), types[k]);
      db_tensor *at = db_expand(db_from(place, DB_I32, dev, COUNT, 1), COUNT, WIDTH);
      db_tensor *x = db_full(-1000, types[k], dev, PLACES, WIDTH);
      must_read(db_cast(db_scatter_reduce(x, 0, at, v, DB_SCATTER_MAX, true), DB_F64), got, sizeof got);
      for (int p = 0; p < PLACES; p++)
        for (int c = 0; c < WIDTH; c++) assert_true(got[p][c] == fmax(-1000, most[p][c] * scale));
    }
    db_close(dev);
  }
}

/* Adds rows of `width` values at an index that is the same for all of its columns. Returns the model time in us. */
static double add_rows(db_device *dev, int width) {
  float *v = malloc((size_t)COUNT * (size_t)width * sizeof *v),
        *got = malloc((size_t)PLACES * (size_t)width * sizeof *v);
  for (int i = 0; i < COUNT * width; i++) v[i] = value[i / width][i % width % WIDTH];
  DB_SCOPED;
  db_tensor *at = db_from(place, DB_I32, dev, COUNT, 1), *rows = db_from(v, DB_F32, dev, COUNT, width);
  db_tensor *x = db_contiguous(db_zeros(DB_F32, dev, PLACES, width));
  if (db_realize(at, rows, x)) fail_msg("%s", db_error());
  assert_int_equal(emu_detail(db_device_os(dev), true), 0);
  struct emu_detail before = executed_so_far(dev);
  must_read(db_scatter_add(x, 0, db_expand(at, COUNT, width), rows), got, (size_t)PLACES * (size_t)width * sizeof *got);
  double us = (double)(executed_so_far(dev).model_ps - before.model_ps) * 1e-6;
  for (int i = 0; i < PLACES * width; i++)
    if ((double)got[i] != sum[i / width][i % width % WIDTH]) fail_msg("row %d: %g", i / width, (double)got[i]);
  free(v);
  free(got);
  return us;
}

/* An index that is the same for all columns of the rows is sorted once. If it was sorted for each of 64 columns, that
 * would take 144 us on sm_90 and 212 us on gfx1100. */
static void rows_share_the_index(void **state) {
  FOR_EMULATED_GPU {
    db_device *dev = open_device(DEVICE_NAME);
    double us = add_rows(dev, 64);
    if (us > 100) fail_msg("%s: %g us", DEVICE_NAME, us);
    db_close(dev);
  }
}

/* A sum that only unsigned integers can have. */
static void means_of_unsigned_integers(void **state) {
  const uint64_t large = (UINT64_C(1) << 63) + 1;
  uint64_t got[2];
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_tensor *x = db_from(((uint64_t[]){5, 7}), DB_U64, dev, 2), *at = db_from(((int32_t[]){0}), DB_I32, dev, 1);
      must_read(db_scatter_reduce(x, 0, at, db_from(&large, DB_U64, dev, 1), DB_SCATTER_MEAN, true), got, sizeof got);
    }
    assert_true(got[0] == (large + 5) / 2 && got[1] == 7);
    db_close(dev);
  }
}

/* Without DETERMINISTIC=0, sums of floats are the same in every run. */
static void repeats(void **state) {
  static float first[PLACES][WIDTH], again[PLACES][WIDTH], v[COUNT][WIDTH];
  const char *any_order = getenv("DETERMINISTIC");
  for (int i = 0; i < COUNT; i++)
    for (int c = 0; c < WIDTH; c++) v[i][c] = sinf((float)(i * WIDTH + c));
  FOR_EMULATED_GPU {
    db_device *dev = open_device(DEVICE_NAME);
    for (int round = 0; round < 3; round++) {
      DB_SCOPED;
      db_tensor *table = db_requires_grad(db_zeros(DB_F32, dev, PLACES, WIDTH));
      db_tensor *rows = db_index_select(table, 0, db_from(place, DB_I32, dev, COUNT));
      unsigned before = kernels_so_far(dev);
      must_read(db_grad_from(rows, db_from(v, DB_F32, dev, COUNT, WIDTH), table), round ? again : first, sizeof first);
      unsigned kernels = kernels_so_far(dev) - before;
      if (any_order)
        assert_in_range(kernels, 2, 4); /* one fills the memory, one combines, others for copies of the result */
      else
        assert_true(kernels > 4); /* those of a sort */
      for (int p = 0; p < PLACES && round; p++)
        for (int c = 0; c < WIDTH; c++) {
          float difference = fabsf(first[p][c] - again[p][c]);
          assert_true(any_order ? difference <= 1e-3f : !difference);
        }
    }
    db_close(dev);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sums_gradients),
                                     cmocka_unit_test(sums_rows),
                                     cmocka_unit_test(counts),
                                     cmocka_unit_test(finds_maxima),
                                     cmocka_unit_test(rows_share_the_index),
                                     cmocka_unit_test(means_of_unsigned_integers),
                                     cmocka_unit_test(repeats)};
  prepare();
  fflush(NULL);
  pid_t child = fork();
  if (child < 0) return 1;
  if (!child) setenv("DETERMINISTIC", "0", 1);
  int failed = cmocka_run_group_tests_name(child ? "in order" : "in any order", tests, NULL, NULL), status = 1;
  if (child && waitpid(child, &status, 0) != child) return 1;
  return child ? failed || !WIFEXITED(status) || WEXITSTATUS(status) : failed;
}
