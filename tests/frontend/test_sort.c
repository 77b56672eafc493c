/* Sorting, compared with a stable sort written here: indices, ties, NaN, both directions, axes of all lengths. */
#include "support.h"

/* Whether b, which follows a, must come before it. */
static bool after(double a, double b, bool descending) {
  if (isnan(a) || isnan(b)) return descending ? isnan(b) && !isnan(a) : isnan(a) && !isnan(b);
  return descending ? a < b : a > b;
}

static void insertion_sort(const float *x, int64_t n, int64_t stride, bool descending, int64_t *order) {
  for (int64_t i = 0; i < n; i++) {
    int64_t k = i;
    for (; k > 0 && after((double)x[order[k - 1] * stride], (double)x[i * stride], descending); k--)
      order[k] = order[k - 1];
    order[k] = i;
  }
}

static uint32_t draw(uint32_t *state) { return *state = *state * 1664525 + 1013904223; }

static void fill(float *x, int64_t n, unsigned kinds) {
  uint32_t s = (uint32_t)n;
  for (int64_t i = 0; i < n; i++) {
    uint32_t r = draw(&s) >> 8, odd = r % 97;
    x[i] = odd == 0   ? NAN
           : odd == 1 ? INFINITY
           : odd == 2 ? -INFINITY
           : odd == 3 ? -0.0f
           : odd == 4 ? 0
                      : (float)(r % kinds) - (float)kinds / 2;
  }
}

/* Sorts [n, 2] along axis 0, so that elements are not adjacent. */
static void check(db_device *dev, int64_t n, unsigned kinds, bool descending) {
  size_t count = (size_t)n * 2;
  float *x = malloc(count * sizeof *x), *value = malloc(count * sizeof *x);
  int64_t *place = malloc(count * sizeof *place), *order = malloc((size_t)n * sizeof *order);
  fill(x, 2 * n, kinds);
  {
    DB_SCOPED;
    db_tensor *t = db_from(x, DB_F32, dev, n, 2);
    must_read(db_argsort(t, 0, descending), place, count * sizeof *place);
    must_read(db_sort(t, 0, descending), value, count * sizeof *value);
  }
  for (int64_t c = 0; c < 2; c++) {
    insertion_sort(x + c, n, 2, descending, order);
    for (int64_t i = 0; i < n; i++) {
      assert_int_equal(place[2 * i + c], order[i]);
      assert_memory_equal(&value[2 * i + c], &x[2 * order[i] + c], sizeof *x); /* bits: -0 and NaN as they were */
    }
  }
  free(x);
  free(value);
  free(place);
  free(order);
}

/* The first k elements of [n, 2] along axis 0. */
static void check_first(db_device *dev, int64_t n, int64_t k, unsigned kinds, bool largest) {
  size_t count = (size_t)k * 2;
  float *x = malloc((size_t)n * 2 * sizeof *x), *value = malloc(count * sizeof *x);
  int64_t *place = malloc(count * sizeof *place), *order = malloc((size_t)n * sizeof *order);
  fill(x, 2 * n, kinds);
  {
    DB_SCOPED;
    db_tensor *places, *values = db_topk(db_from(x, DB_F32, dev, n, 2), k, 0, largest, &places);
    must_read(values, value, count * sizeof *value);
    must_read(places, place, count * sizeof *place);
  }
  for (int64_t c = 0; c < 2; c++) {
    insertion_sort(x + c, n, 2, largest, order);
    for (int64_t i = 0; i < k; i++) {
      assert_int_equal(place[2 * i + c], order[i]);
      assert_memory_equal(&value[2 * i + c], &x[2 * order[i] + c], sizeof *x);
    }
  }
  free(x);
  free(value);
  free(place);
  free(order);
}

static void every_device(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    check(dev, 1, 5, false);
    check(dev, 50, 7, false);
    check(dev, 50, 7, true);
    check(dev, 600, 50, false); /* three blocks */
    check_first(dev, 300, 3, 50, true);
    db_close(dev);
  }
}

static void first_ones_of_long_axes(void **state) {
  static const int64_t first[] = {1, 2, 21, 22, 100, 256, 257, 4999};
  db_device *dev = open_device("CPU");
  for (unsigned i = 0; i < sizeof first / sizeof *first; i++) {
    check_first(dev, 5000, first[i], 1000, true);
    check_first(dev, 5000, first[i], 20, false);
  }
  check_first(dev, 129, 32, 3, true);
  check_first(dev, 3000, 64, 1, true); /* all equal except for the special ones */
  db_close(dev);
}

static void all_lengths(void **state) {
  static const int64_t lengths[] = {2, 3, 255, 256, 257, 512, 513, 1024, 1025, 2048, 5000};
  db_device *dev = open_device("CPU");
  for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    check(dev, lengths[i], 1000, false);
    check(dev, lengths[i], 20, true);
  }
  check(dev, 3000, 1, false); /* all equal except for the special ones */
  db_close(dev);
}

/* Rows longer than a block are sorted in tensors of up to 14 axes. More axes are refused. */
static void many_axes(void **state) {
  enum { N = 700, MOST = 14 };
  float x[N], sorted[N];
  int64_t dim[MOST + 1];
  for (int i = 0; i < N; i++) x[i] = (float)(i * 7919 % 1009);
  for (int i = 0; i < MOST; i++) dim[i] = i == MOST - 1 ? N : 1;
  {
    DB_SCOPED;
    db_tensor *t = db_from_at(DB_HERE, x, DB_F32, NULL, (db_list){MOST, dim});
    must_read(db_sort(t, -1, false), sorted, sizeof sorted);
    for (int i = 1; i < N; i++) assert_true(sorted[i - 1] < sorted[i]);
    assert_true(must_item(db_median(t, -1)) == (double)sorted[(N - 1) / 2]);
    dim[MOST - 1] = 1, dim[MOST] = N;
    assert_contains(db_poison(db_sort(db_from_at(DB_HERE, x, DB_F32, NULL, (db_list){MOST + 1, dim}), -1, false)),
                    "14");
  }
}

static void integers_to_their_ends(void **state) {
  {
    DB_SCOPED;
    uint64_t u[4] = {1, UINT64_MAX, 0, UINT64_MAX - 1}, usorted[4];
    int64_t i[4] = {5, INT64_MIN, INT64_MAX, -1}, isorted[4], place[4];
    int8_t b[3] = {127, -128, 0}, bsorted[3];
    must_read(db_sort(db_from(u, DB_U64, NULL, 4), 0, false), usorted, sizeof usorted);
    must_read(db_sort(db_from(i, DB_I64, NULL, 4), -1, true), isorted, sizeof isorted);
    must_read(db_argsort(db_from(i, DB_I64, NULL, 4), -1, true), place, sizeof place);
    must_read(db_sort(db_from(b, DB_I8, NULL, 3), 0, false), bsorted, sizeof bsorted);
    assert_memory_equal(usorted, ((uint64_t[]){0, 1, UINT64_MAX - 1, UINT64_MAX}), sizeof usorted);
    assert_memory_equal(isorted, ((int64_t[]){INT64_MAX, 5, -1, INT64_MIN}), sizeof isorted);
    assert_memory_equal(place, ((int64_t[]){2, 0, 3, 1}), sizeof place);
    assert_memory_equal(bsorted, ((int8_t[]){-128, 0, 127}), sizeof bsorted);
  }
}

static void first_ones_and_the_middle(void **state) {
  {
    DB_SCOPED;
    db_tensor *x = db_from(((float[]){3, 1, 2, 1, 9, -4}), DB_F32, NULL, 2, 3), *places;
    float top[4], low[2], middle[2], of_nan;
    int64_t at[4];
    must_read(db_topk(x, 2, 1, true, &places), top, sizeof top);
    must_read(places, at, sizeof at);
    must_read(db_topk(x, 1, -1, false, NULL), low, sizeof low);
    must_read(db_median(x, 1), middle, sizeof middle);
    must_read(db_median(db_from(((float[]){1, NAN, 2, 3}), DB_F32, NULL, 4), 0), &of_nan, sizeof of_nan);
    assert_memory_equal(top, ((float[]){3, 2, 9, 1}), sizeof top);
    assert_memory_equal(at, ((int64_t[]){0, 2, 1, 0}), sizeof at);
    assert_memory_equal(low, ((float[]){1, -4}), sizeof low);
    assert_memory_equal(middle, ((float[]){2, 1}), sizeof middle);
    assert_true(isnan(of_nan));
    assert_int_equal(db_dim(db_sort(db_zeros(DB_F32, NULL, 2, 0), 1, false), 1), 0);
    assert_contains(db_poison(db_topk(x, 4, 1, true, NULL)), "topk at ");
    assert_contains(db_poison(db_topk(x, -1, 1, true, NULL)), "topk at ");
    assert_contains(db_poison(db_sort(x, 2, false)), "no axis 2 in [2, 3]");
    assert_contains(db_poison(db_argsort(x, -3, false)), "no axis -3");
    assert_contains(db_poison(db_median(db_zeros(DB_F32, NULL, 2, 0), 1)), "no element");
  }
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_device),
                                     cmocka_unit_test(all_lengths),
                                     cmocka_unit_test(first_ones_of_long_axes),
                                     cmocka_unit_test(many_axes),
                                     cmocka_unit_test(integers_to_their_ends),
                                     cmocka_unit_test(first_ones_and_the_middle)};
  has_ptxas();
  return cmocka_run_group_tests_name("sort", tests, NULL, finish);
}
