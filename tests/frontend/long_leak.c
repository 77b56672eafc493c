/* Ten thousand steps of a training-like loop on each device: neither the device's memory use nor the process grows. */
#include "support.h"

static size_t resident_pages(void) {
  unsigned long size = 0, resident = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  assert_non_null(f);
  assert_int_equal(fscanf(f, "%lu %lu", &size, &resident), 2);
  fclose(f);
  return resident;
}

static void steps(const char *device) {
  db_device *dev = open_device(device);
  struct db_device_counters early = {0}, late;
  size_t pages = 0;
  db_tensor *w = db_full(1, DB_F32, dev, 16, 16);
  for (int i = 0; i < 10000; i++) {
    {
      DB_SCOPED;
      float x[16];
      for (int k = 0; k < 16; k++) x[k] = (float)((i + k) % 5) / 16;
      db_tensor *in = db_from(x, DB_F32, dev, 16), *y = db_tanh(db_matmul(in, w));
      db_tensor *next = db_sub(w, db_mul(db_reshape(y, 1, 16), 0.001));
      if (db_realize(next, db_sum(y))) fail_msg("%s", db_error());
      db_release(w);
      w = db_retain(next);
      if (i % 1000 == 0) must_item(db_sum(w));
    }
    if (i == 3000) db_device_counters(dev, &early), pages = resident_pages();
  }
  db_device_counters(dev, &late);
  assert_true(late.bytes_allocated <= early.bytes_allocated);
  assert_true(resident_pages() < pages + 1024); /* 4 MiB */
  db_release(w);
  db_close(dev);
}

static void cpu(void **state) { steps("CPU"); }
static void emulated(void **state) { steps(EMULATED); }
static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cpu), cmocka_unit_test(emulated)};
  return cmocka_run_group_tests_name("leak", tests, NULL, finish);
}
