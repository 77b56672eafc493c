/* Performance counters of NVIDIA GPUs: those of the emulated GPU equal its statistics and are placed on SMs; they are
 * refused if RM does not permit profiling. test_nv_rm.c tests a GPU without them. */
#define DEVICE "EMU+NV:sm_90"
#define FILES  "%s"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "device_test.h"
#include "emu/emu.h"
#include "emu/machine.h"
#include "hcq/device.h"
#include "hcq/nv/counters.h"

enum { SMS = 132, GPCS = 8, BYTES = 1 << 18, MOST_ARGS = 8 };

static const char *names[NV_COUNTERS_COUNT] = {
#define NAME(name, exact, unit, description) "SM_" #name,
    NV_COUNTERS(NAME)
#undef NAME
};

static uint64_t sum_of(const db_counter_set *set, unsigned i) {
  uint64_t sum;
  OK(db_counter_set_read(set, i, NULL, 0, &sum));
  return sum;
}

static void lists_what_is_counted(void **state) {
  struct db_counter all[NV_COUNTERS_COUNT];
  assert_int_equal(db_counters(dev, all, NV_COUNTERS_COUNT), NV_COUNTERS_COUNT);
  for (int i = 0; i < NV_COUNTERS_COUNT; i++) {
    assert_string_equal(all[i].name, names[i]);
    assert_string_equal(all[i].block, "SM");
    assert_int_equal(all[i].instances, SMS);
    bool model = i == NV_COUNTER_SHARED_CYCLES || i == NV_COUNTER_SHARED_CONFLICTS;
    assert_int_equal(all[i].source, model ? DB_COUNTER_MODEL : DB_COUNTER_EXACT);
  }
}

/* ---- counting ---- */

/* Kernels of the repository's cubins: `buffers` buffers, then values. */
static const struct launch {
  const char *file, *kernel;
  uint32_t grid, block;
  unsigned buffers, values;
  uint32_t value[2];
} launches[] = {
    {"bench/kernels/saxpy.sm_90.cubin", "saxpy", 100, 128, 2, 2, {0x3f800000, 12345}},
    {"bench/kernels/reduce.sm_90.cubin", "reduce", 60, 256, 2, 1, {9999}},
    {"bench/kernels/histogram.sm_90.cubin", "histogram", 20, 256, 2, 1, {9999}},
};

static db_program *load_launch(const struct launch *l) {
  char path[512];
  snprintf(path, sizeof path, "%s/../../%s", DATA_DIR, l->file);
  return load_on(dev, path, l->kernel);
}

static void record(db_queue *q, const struct launch *l, db_program *p, db_buffer *const *buffers, uint32_t grid) {
  struct db_arg args[MOST_ARGS] = {{0}};
  for (unsigned i = 0; i < l->buffers; i++) args[i].buffer = buffers[i];
  for (unsigned i = 0; i < l->values; i++) args[l->buffers + i].bits = l->value[i];
  OK(db_queue_exec(q, p, args, l->buffers + l->values, (uint32_t[3]){grid, 1, 1}, (uint32_t[3]){l->block, 1, 1}));
}

static void fill(db_buffer *b) {
  uint32_t *data = db_buffer_host(b);
  for (uint32_t i = 0; i < BYTES / 4; i++) data[i] = i * 2654435761u >> 7;
}

static struct emu_stats stats(void) {
  struct emu_stats s;
  OK(emu_stats(db_device_os(dev), 0, &s));
  return s;
}

/* Counts one launch, with launches before and after it that do not count. */
static void count_launch(const struct launch *l, db_counter_set *set) {
  db_buffer *buffers[2] = {db_alloc(dev, BYTES, DB_BUFFER_HOST), db_alloc(dev, BYTES, DB_BUFFER_HOST)};
  db_program *p = load_launch(l);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  fill(buffers[0]), fill(buffers[1]);
  emu_detail(db_device_os(dev), true);
  struct emu_stats before = stats();
  record(q, l, p, buffers, l->grid);
  run(q);
  struct emu_stats after = stats();
  emu_detail(db_device_os(dev), false);
  fill(buffers[0]), fill(buffers[1]);
  record(q, l, p, buffers, 3);
  OK(db_queue_counters_begin(q, set, 0));
  record(q, l, p, buffers, l->grid);
  OK(db_queue_counters_end(q));
  record(q, l, p, buffers, 5);
  run(q);
#define DELTA(field)    (after.detail.field - before.detail.field)
#define EXECUTED(class) DELTA(executed[EMU_##class##_CLASS])
  const uint64_t expected[NV_COUNTERS_COUNT] = {
      l->grid,
      after.waves - before.waves,
      after.instructions - before.instructions,
      EXECUTED(VALU),
      EXECUTED(TRANS),
      EXECUTED(MATRIX),
      EXECUTED(SALU),
      EXECUTED(SMEM),
      EXECUTED(GLOBAL),
      EXECUTED(SCRATCH),
      EXECUTED(LDS),
      EXECUTED(BRANCH),
      EXECUTED(CONTROL),
      DELTA(lanes),
      DELTA(branches),
      DELTA(divergent),
      DELTA(sectors),
      DELTA(loaded[EMU_GLOBAL_SPACE]),
      DELTA(stored[EMU_GLOBAL_SPACE]),
      DELTA(lds_cycles),
      DELTA(lds_conflicts),
  };
#undef EXECUTED
#undef DELTA
  uint64_t classes = 0;
  for (unsigned i = 0; i < NV_COUNTERS_COUNT; i++) {
    if (sum_of(set, i) != expected[i])
      fail_msg("%s: %s is %llu, not %llu", l->kernel, names[i], (unsigned long long)sum_of(set, i),
               (unsigned long long)expected[i]);
    if (i >= NV_COUNTER_INSTS_ALU && i <= NV_COUNTER_INSTS_CONTROL) classes += sum_of(set, i);
  }
  assert_int_equal(classes, sum_of(set, NV_COUNTER_INSTS)); /* every instruction is in one class */
  for (int i = 0; i < 2; i++) db_buffer_release(buffers[i]);
  db_queue_release(q);
  db_program_release(p);
}

static void counts_equal_statistics(void **state) {
  db_counter_set *set = db_counter_set_new(dev, names, NV_COUNTERS_COUNT);
  if (!set) fail_msg("%s", db_error());
  assert_int_equal(db_counter_set_passes(set), 1);
  assert_int_equal(db_counter_set_read(set, 0, NULL, 0, NULL), -ENODATA);
  for (size_t i = 0; i < sizeof launches / sizeof *launches; i++) count_launch(&launches[i], set);
  assert_true(sum_of(set, NV_COUNTER_INSTS_SHARED) > 0); /* of the histogram */
  db_counter_set_release(set);
}

/* saxpy of 128 threads that are contiguous in memory: 4 warps of 4 sectors for each of three accesses. */
static void counts_sectors(void **state) {
  static const struct launch l = {"bench/kernels/saxpy.sm_90.cubin", "saxpy", 10, 128, 2, 2, {0x3f800000, 1280}};
  static const char *const two[] = {"SM_GLOBAL_SECTORS", "SM_GLOBAL_BYTES_LOADED"};
  db_counter_set *set = db_counter_set_new(dev, two, 2);
  db_buffer *buffers[2] = {db_alloc(dev, BYTES, DB_BUFFER_HOST), db_alloc(dev, BYTES, DB_BUFFER_HOST)};
  db_program *p = load_launch(&l);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  OK(db_queue_counters_begin(q, set, 0));
  record(q, &l, p, buffers, l.grid);
  OK(db_queue_counters_end(q));
  run(q);
  assert_int_equal(sum_of(set, 0), 10 * 4 * 4 * 3);
  assert_int_equal(sum_of(set, 1), 1280 * 8);
  for (int i = 0; i < 2; i++) db_buffer_release(buffers[i]);
  db_counter_set_release(set), db_queue_release(q), db_program_release(p);
}

/* GPCs take CTAs in turns. 132 SMs are four GPCs of 17 and four of 16. */
static void places_ctas(void **state) {
  static const struct launch l = {"bench/kernels/saxpy.sm_90.cubin", "saxpy", 0, 32, 2, 2, {0x3f800000, 32}};
  static const struct {
    uint32_t grid, least, most, first_gpc;
  } cases[] = {{8, 0, 1, 1}, {132, 1, 1, 17}, {140, 1, 2, 18}, {264, 2, 2, 34}};
  db_counter_set *set = db_counter_set_new(dev, names, 1);
  db_buffer *buffers[2] = {db_alloc(dev, BYTES, DB_BUFFER_HOST), db_alloc(dev, BYTES, DB_BUFFER_HOST)};
  db_program *p = load_launch(&l);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint64_t ctas[SMS], in_first = 0;
    OK(db_queue_counters_begin(q, set, 0));
    record(q, &l, p, buffers, cases[i].grid);
    OK(db_queue_counters_end(q));
    run(q);
    OK(db_counter_set_read(set, 0, ctas, SMS, NULL));
    for (unsigned k = 0; k < SMS; k++)
      if (ctas[k] < cases[i].least || ctas[k] > cases[i].most)
        fail_msg("grid %u: %llu CTAs on SM %u", cases[i].grid, (unsigned long long)ctas[k], k);
    for (unsigned k = 0; k < SMS / GPCS + 1; k++) in_first += ctas[k];
    assert_int_equal(in_first, cases[i].first_gpc);
    assert_int_equal(sum_of(set, 0), cases[i].grid);
  }
  for (int i = 0; i < 2; i++) db_buffer_release(buffers[i]);
  db_counter_set_release(set), db_queue_release(q), db_program_release(p);
}

static void replays_count_again(void **state) {
  static const struct launch l = {"bench/kernels/saxpy.sm_90.cubin", "saxpy", 30, 64, 2, 2, {0x3f800000, 1900}};
  db_counter_set *set = db_counter_set_new(dev, names, NV_COUNTERS_COUNT);
  db_buffer *buffers[2] = {db_alloc(dev, BYTES, DB_BUFFER_HOST), db_alloc(dev, BYTES, DB_BUFFER_HOST)};
  db_program *p = load_launch(&l);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  OK(db_queue_counters_begin(q, set, 0));
  record(q, &l, p, buffers, l.grid);
  record(q, &l, p, buffers, 10);
  OK(db_queue_counters_end(q));
  db_recording *r = db_queue_bind(q);
  assert_non_null(r);
  for (unsigned i = 0; i < 3; i++) {
    uint64_t when;
    OK(db_recording_submit(r, &when));
    OK(db_wait(db_queue_timeline(q), when, 60 * SECOND));
    assert_int_equal(sum_of(set, NV_COUNTER_CTAS), 40);
    assert_int_equal(sum_of(set, NV_COUNTER_WARPS), 80);
  }
  db_recording_release(r);
  for (int i = 0; i < 2; i++) db_buffer_release(buffers[i]);
  db_counter_set_release(set), db_queue_release(q), db_program_release(p);
}

/* ---- what is refused ---- */

static void expect_refusal(db_device *on, int err, const char *text) {
  assert_int_equal(db_counters(on, NULL, 0), err);
  assert_string_equal(db_error(), text);
  assert_null(db_counter_set_new(on, names, 1));
  assert_string_equal(db_error(), text);
}

/* These texts are also expected of real GPUs (tests/hw/nv.sh). */
static void refuses_without_permission(void **state) {
  db_device *other = db_open("EMU+NV:sm_80");
  if (!other) fail_msg("%s", db_error());
  nv_machine_restrict(db_device_os(other));
  expect_refusal(other, -EACCES,
                 "EMU+NV:sm_80: the driver does not permit profiling (/proc/driver/nvidia/params: "
                 "RmProfilingAdminOnly: 1); the administrator permits it with the nvidia module's parameter "
                 "NVreg_RestrictProfilingToAdminUsers=0, or run the program as root or with CAP_PERFMON");
  db_close(other);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lists_what_is_counted), cmocka_unit_test(counts_equal_statistics),
      cmocka_unit_test(counts_sectors),        cmocka_unit_test(places_ctas),
      cmocka_unit_test(replays_count_again),   cmocka_unit_test(refuses_without_permission),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
