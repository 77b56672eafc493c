/* TF32=1: an NVIDIA GPU multiplies f32 by matrix instructions, which take 10 of the 23 fraction bits of their operands.
 * All tests run twice, the second time without the variable. Results are compared with sums of products in f64. */
#include "emu/emu.h"
#include "hcq/backend.h"
#include "support.h"
#include <sys/wait.h>
#include <unistd.h>

enum { SAMPLES = 997, CHANNELS = 64, SIDE = 34 };
static const char *const nvidia[] = {"EMU+NV:sm_90", "EMU+NV:sm_80"};

static float *random_floats(size_t n, uint32_t seed) {
  float *x = malloc(n * sizeof *x);
  assert_non_null(x);
  for (size_t i = 0; i < n; i++) {
    seed = seed * 1664525 + 1013904223;
    x[i] = (float)(int32_t)(seed & 0xffffff00u) * 0x1p-31f;
  }
  return x;
}

/* The value that an instruction takes of an operand. */
static double operand(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (getenv("TF32")) bits &= 0xffffe000;
  memcpy(&x, &bits, sizeof bits);
  return (double)x;
}

struct sum {
  double value, size;
  unsigned n;
};
static void add_product(struct sum *s, float a, float b) {
  double p = operand(a) * operand(b);
  s->value += p, s->size += fabs(p), s->n++;
}
static void check(const char *device, const char *what, size_t at, float got, const struct sum *s) {
  if (!(fabs((double)got - s->value) <= s->size * (s->n + 1) * 0x1p-24))
    fail_msg("%s, %s: element %zu is %.9g, not %.9g", device, what, at, (double)got, s->value);
}

/* Reads y. Returns the number of matrix instructions that computed it. */
static uint64_t read_counted(db_device *dev, db_tensor *y, float *out, size_t n) {
  struct emu_stats before, after;
  assert_int_equal(emu_detail(db_device_os(dev), true), 0);
  assert_int_equal(emu_stats(db_device_os(dev), db_device_index(dev), &before), 0);
  must_read(y, out, n * sizeof *out);
  assert_int_equal(emu_stats(db_device_os(dev), db_device_index(dev), &after), 0);
  return after.detail.executed[EMU_MATRIX_CLASS] - before.detail.executed[EMU_MATRIX_CLASS];
}

/* x @ w, or x @ w^T. */
static void check_matmul(const char *device, int64_t n, bool turned, bool tf32) {
  DB_SCOPED;
  size_t count = (size_t)(n * n);
  float *a = random_floats(count, 1), *b = random_floats(count, 2), *got = malloc(count * sizeof *got);
  db_device *dev = open_device(device);
  db_tensor *x = db_from(a, DB_F32, dev, n, n), *w = db_from(b, DB_F32, dev, n, n);
  assert_non_null(got);
  uint64_t matrix = read_counted(dev, db_matmul(x, turned ? db_transpose(w, 0, 1) : w), got, count);
  if (tf32 != (matrix > 0)) fail_msg("%s, %ld: %lu matrix instructions", device, (long)n, (unsigned long)matrix);
  for (size_t i = 0; i < SAMPLES; i++) {
    int64_t at = (int64_t)(i * (count - 1) / (SAMPLES - 1)), row = at / n, column = at % n;
    struct sum s = {.n = 0};
    for (int64_t k = 0; k < n; k++) add_product(&s, a[row * n + k], turned ? b[column * n + k] : b[k * n + column]);
    check(device, "matmul", (size_t)at, got[at], &s);
  }
  free(a), free(b), free(got);
  db_close(dev);
}

static void matmuls(void **state) {
  bool tf32 = getenv("TF32");
  for (unsigned d = 0; d < 2 && has_ptxas(); d++) {
    check_matmul(nvidia[d], 512, false, tf32);
    check_matmul(nvidia[d], 511, false, tf32);
    check_matmul(nvidia[d], 512, true, tf32);
  }
}

static void convolutions(void **state) {
  enum { PIXELS = SIDE * SIDE, BATCH = 2, ALL = BATCH * CHANNELS * PIXELS };
  bool tf32 = getenv("TF32");
  float *a = random_floats(ALL, 3), *b = random_floats(CHANNELS * CHANNELS * 9, 4), *got = malloc(ALL * sizeof *got);
  assert_non_null(got);
  for (unsigned d = 0; d < 2 && has_ptxas(); d++) {
    DB_SCOPED;
    db_device *dev = open_device(nvidia[d]);
    db_tensor *x = db_from(a, DB_F32, dev, BATCH, CHANNELS, SIDE, SIDE),
              *w = db_from(b, DB_F32, dev, CHANNELS, CHANNELS, 3, 3);
    uint64_t matrix = read_counted(dev, db_conv2d(x, w, NULL, .padding = DB_LIST(1)), got, ALL);
    if (tf32 != (matrix > 0)) fail_msg("%s: %lu matrix instructions", nvidia[d], (unsigned long)matrix);
    for (int i = 0; i < SAMPLES; i++) {
      int at = (int)((int64_t)i * (ALL - 1) / (SAMPLES - 1)), column = at % SIDE, row = at / SIDE % SIDE;
      int out = at / PIXELS % CHANNELS, image = at / PIXELS / CHANNELS;
      struct sum s = {.n = 0};
      for (int c = 0; c < CHANNELS; c++)
        for (int f = 0; f < 9; f++) {
          int y = row + f / 3 - 1, z = column + f % 3 - 1;
          if (y < 0 || y >= SIDE || z < 0 || z >= SIDE) continue;
          add_product(&s, a[((image * CHANNELS + c) * SIDE + y) * SIDE + z], b[(out * CHANNELS + c) * 9 + f]);
        }
      check(nvidia[d], "convolution", (size_t)at, got[at], &s);
    }
    db_close(dev);
  }
  free(a), free(b), free(got);
}

/* Small products, and those of one row, are as fast without rounding. */
static void small_products_are_not_rounded(void **state) {
  for (unsigned d = 0; d < 2 && has_ptxas(); d++) {
    DB_SCOPED;
    float got[64];
    db_device *dev = open_device(nvidia[d]);
    db_tensor *x = db_full(1 + 0x1p-17, DB_F32, dev, 8, 64), *w = db_full(1, DB_F32, dev, 64, 8);
    if (db_realize(x) || db_realize(w)) fail_msg("%s", db_error());
    assert_int_equal(read_counted(dev, db_matmul(x, w), got, 64), 0);
    for (unsigned i = 0; i < 64; i++) assert_true(got[i] == 64 * (1 + 0x1p-17f));
    db_close(dev);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(matmuls), cmocka_unit_test(convolutions),
                                     cmocka_unit_test(small_products_are_not_rounded)};
  fflush(NULL);
  pid_t child = fork();
  if (child < 0) return 1;
  unsetenv("TF32");
  if (child) setenv("TF32", "1", 1);
  int failed = cmocka_run_group_tests_name(child ? "in tf32" : "in f32", tests, NULL, NULL), status = 1;
  if (child && waitpid(child, &status, 0) != child) return 1;
  return child ? failed || !WIFEXITED(status) || WEXITSTATUS(status) : failed;
}
