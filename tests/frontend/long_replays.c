/* Ten million replays on the CPU, fewer on emulated devices, also over two devices: memory does not grow. */
#include "support.h"
#include "tests/ok.h"

static size_t resident_kib(void) {
  unsigned long size = 0, resident = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  assert_non_null(f);
  assert_int_equal(fscanf(f, "%lu %lu", &size, &resident), 2);
  fclose(f);
  return resident * 4;
}

/* To the other device and back, if there is another one. */
static int step(void *ctx, db_tensor *const *in, db_tensor **out) {
  db_tensor *there = db_mul(db_to(in[0], ctx), 3);
  out[0] = db_add(db_to(there, db_device_of(in[0])), 1);
  return 0;
}

static void replay(const char *name, const char *other_name, unsigned runs) {
  db_device *dev = open_device(name), *other = open_device(other_name);
  db_jit *j = db_jit_new(step, other, 1, 1);
  db_tensor *in[2] = {db_from(((float[]){1, 2, 3, 4}), DB_F32, dev, 4),
                      db_from(((float[]){5, 6, 7, 8}), DB_F32, dev, 4)};
  OK(db_realize(in[0], in[1]));
  struct db_device_counters early[2] = {0}, late[2];
  size_t before = 0;
  for (unsigned i = 0; i < runs; i++) {
    DB_SCOPED;
    db_tensor *out[1];
    OK(db_jit_call(j, &in[i & 1], out));
    if (i == runs / 2) { /* rings have wrapped around, and memory that is kept for later calls is allocated */
      EXPECT_FLOATS(out[0], i & 1 ? 16 : 4, i & 1 ? 19 : 7, i & 1 ? 22 : 10, i & 1 ? 25 : 13);
      db_device_counters(dev, &early[0]), db_device_counters(other, &early[1]);
      before = resident_kib();
    }
    if (i == runs - 1) EXPECT_FLOATS(out[0], i & 1 ? 16 : 4, i & 1 ? 19 : 7, i & 1 ? 22 : 10, i & 1 ? 25 : 13);
  }
  db_device_counters(dev, &late[0]), db_device_counters(other, &late[1]);
  size_t after = resident_kib();
  print_message("%s, %s: %u replays, resident %zu KiB after half of them, %zu KiB after all\n", name, other_name, runs,
                before, after);
  for (int i = 0; i < 2; i++) assert_int_equal(late[i].bytes_allocated, early[i].bytes_allocated);
  assert_true(after < before + 1024);
  db_release(in[0]);
  db_release(in[1]);
  db_jit_free(j);
  db_close(other);
  db_close(dev);
}

static void cpu(void **state) { replay("CPU", "CPU", 10000000); }
static void emulated(void **state) {
  FOR_EMULATED_GPU {
    char second[64];
    snprintf(second, sizeof second, "%s:1", DEVICE_NAME);
    replay(DEVICE_NAME, DEVICE_NAME, 100000);
    replay(DEVICE_NAME, second, 100000); /* half of them fill a ring even with the smallest packets */
  }
}
static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cpu), cmocka_unit_test(emulated)};
  return cmocka_run_group_tests_name("replays", tests, NULL, finish);
}
