/* Performance counters: lists, sets and passes, counting in queues and replays. On the emulated GPU the values are
 * compared with the emulator's own statistics, and with what a real gfx1100 counted for the same code objects. */
#define DEVICE "EMU+AMD:gfx1100"
#define FILES  KERNELS_DIR "/%s.gfx1100.co"
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "device_test.h"
#include "emu/emu.h"
#include "hcq/amd/perfmon.h"
#include "hcq/device.h"
#include "sqtt_recordings.h"

enum { ITEMS = 64, WGPS = 48 };
static const char *const names[] = {"SQ_WAVES", "SQ_INSTS_VALU", "SQ_INSTS_SALU", "SQ_INSTS_SMEM",
                                    "SPI_CSN_NUM_THREADGROUPS"};

/* ---- the device's list ---- */

static void lists_what_is_counted(void **state) {
  int n = db_counters(dev, NULL, 0);
  assert_int_equal(n, AMD_PERF_COUNTS);
  struct db_counter *all = calloc((size_t)n, sizeof *all);
  assert_int_equal(db_counters(dev, all, (unsigned)n), n);
  bool found = false;
  for (int i = 0; i < n; i++) {
    assert_true(all[i].source == DB_COUNTER_EXACT || all[i].source == DB_COUNTER_MODEL);
    assert_true(*all[i].description && *all[i].unit);
    if (strcmp(all[i].name, "SQ_INSTS_VALU") != 0) continue;
    found = true;
    assert_string_equal(all[i].block, "SQ");
    assert_string_equal(all[i].unit, "instructions");
    assert_int_equal(all[i].instances, WGPS);
    assert_int_equal(all[i].source, DB_COUNTER_EXACT);
  }
  assert_true(found);
  free(all);
}

static void refused(const char *const *list, unsigned n, const char *why) {
  assert_null(db_counter_set_new(dev, list, n));
  if (!strstr(db_error(), why)) fail_msg("no \"%s\" in: %s", why, db_error());
}

static void refuses_bad_sets(void **state) {
  refused((const char *[]){"SQ_INSTS_VALU", "SQ_BUSY_CYCLES"}, 2, "the device has no counter SQ_BUSY_CYCLES");
  refused((const char *[]){"SQ_WAVES", "SQ_WAVES"}, 2, "counter SQ_WAVES is listed twice");
  refused(names, 0, "a set of 0 counters");
  refused((const char *[]){NULL}, 1, "the name is NULL");
  assert_null(db_counter_set_new(NULL, names, 1));
  assert_int_equal(db_counter_set_read(NULL, 0, NULL, 0, NULL), -EINVAL);
}

/* ---- counting ---- */

struct saxpy {
  db_program *program;
  db_buffer *x, *y;
  db_queue *q;
};
static struct saxpy saxpy_new(void) {
  struct saxpy s = {load_on(dev, "bench/kernels/saxpy", "saxpy"), db_alloc(dev, 1 << 20, DB_BUFFER_HOST),
                    db_alloc(dev, 1 << 20, DB_BUFFER_HOST), db_queue_new(dev, DB_QUEUE_COMPUTE)};
  assert_true(s.program && s.x && s.y && s.q);
  memset(db_buffer_host(s.x), 0, 1 << 20), memset(db_buffer_host(s.y), 0, 1 << 20);
  return s;
}
static void saxpy_free(struct saxpy *s) {
  db_queue_release(s->q);
  db_buffer_release(s->x);
  db_buffer_release(s->y);
  db_program_release(s->program);
}
static void saxpy_record(struct saxpy *s, uint32_t groups) {
  const struct db_arg args[] = {{.buffer = s->y}, {.buffer = s->x}, {.bits = 0x3f800000}, {.bits = groups * ITEMS}};
  OK(db_queue_exec(s->q, s->program, args, 4, (uint32_t[3]){groups, 1, 1}, (uint32_t[3]){ITEMS, 1, 1}));
  OK(db_queue_memory_barrier(s->q)); /* all launches write to the same memory */
}
static uint64_t sum_of(const db_counter_set *set, unsigned i) {
  uint64_t sum;
  OK(db_counter_set_read(set, i, NULL, 0, &sum));
  return sum;
}

static struct emu_stats stats(void) {
  struct emu_stats s;
  assert_int_equal(emu_stats(db_device_os(dev), 0, &s), 0);
  return s;
}

/* What statistics named before and after counted in between. */
#define DELTA(field)    (after.detail.field - before.detail.field)
#define EXECUTED(class) DELTA(executed[EMU_##class##_CLASS])

/* The counts equal the emulator's statistics; kernels before and after do not count. */
static void counts_what_runs_in_between(void **state) {
  enum { GROUPS = 100 };
  struct saxpy s = saxpy_new();
  db_counter_set *set = db_counter_set_new(dev, names, 5);
  assert_non_null(set);
  assert_int_equal(db_counter_set_passes(set), 1);
  assert_int_equal(db_counter_set_read(set, 0, NULL, 0, NULL), -ENODATA);
  emu_detail(db_device_os(dev), true);
  struct emu_stats before = stats();
  saxpy_record(&s, GROUPS);
  run(s.q);
  struct emu_stats after = stats();
  emu_detail(db_device_os(dev), false);

  saxpy_record(&s, 7);
  OK(db_queue_counters_begin(s.q, set, 0));
  saxpy_record(&s, GROUPS);
  OK(db_queue_counters_end(s.q));
  saxpy_record(&s, 9);
  run(s.q);
  assert_int_equal(sum_of(set, 0), after.waves - before.waves);
  assert_int_equal(sum_of(set, 0), 2 * GROUPS);
  assert_int_equal(sum_of(set, 1), EXECUTED(VALU) + EXECUTED(TRANS));
  assert_int_equal(sum_of(set, 2), EXECUTED(SALU));
  assert_int_equal(sum_of(set, 3), EXECUTED(SMEM));
  assert_true(sum_of(set, 1) > 2 * GROUPS && sum_of(set, 3) >= 2 * GROUPS);
  assert_int_equal(sum_of(set, 4), GROUPS);

  /* Each WGP ran two or three of the workgroups, of two waves each. */
  uint64_t waves[WGPS + 1], all = 0;
  waves[WGPS] = 77;
  OK(db_counter_set_read(set, 0, waves, WGPS, NULL));
  for (int i = 0; i < WGPS; i++) {
    assert_true(waves[i] == 4 || waves[i] == 6);
    all += waves[i];
  }
  assert_int_equal(all, 2 * GROUPS);
  assert_int_equal(waves[WGPS], 77);
  db_counter_set_release(set);
  saxpy_free(&s);
}

static const struct workload {
  const char *name;
  uint32_t groups[3], threads[3];
  unsigned operands;
  uint32_t n; /* the last argument; 0 if there is none */
} workloads[] = {
    {"vadd", {16, 1, 1}, {256, 1, 1}, 2, 0},       {"matmul", {4, 4, 1}, {16, 16, 1}, 2, 64},
    {"tiled", {4, 4, 1}, {16, 16, 1}, 2, 64},      {"reduction", {16, 1, 1}, {256, 1, 1}, 1, 8},
    {"hash", {8, 1, 1}, {256, 1, 1}, 1, 16},       {"transcendental", {8, 1, 1}, {256, 1, 1}, 1, 4},
    {"divergent", {8, 1, 1}, {256, 1, 1}, 1, 120}, {"wmma", {4, 4, 1}, {32, 1, 1}, 2, 64},
};

/* Runs a workload with counters, or without them if set is NULL. */
static void run_workload(const struct workload *l, db_counter_set *set) {
  char file[64];
  snprintf(file, sizeof file, "bench/emu/%s", l->name);
  db_program *p = load_on(dev, file, l->name);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  struct db_arg args[4] = {{0}};
  unsigned nargs = 0;
  for (; nargs < 1 + l->operands; nargs++) {
    uint32_t *data = db_buffer_host(args[nargs].buffer = db_alloc(dev, 1 << 18, DB_BUFFER_HOST));
    for (uint32_t i = 0; i < 1 << 16; i++) data[i] = i * 2654435761u >> 12;
  }
  if (l->n) args[nargs++].bits = l->n;
  if (set) OK(db_queue_counters_begin(q, set, 0));
  OK(db_queue_exec(q, p, args, nargs, l->groups, l->threads));
  if (set) OK(db_queue_counters_end(q));
  run(q);
  for (unsigned i = 0; i < 1 + l->operands; i++) db_buffer_release(args[i].buffer);
  db_queue_release(q);
  db_program_release(p);
}

/* The counts of real kernels equal the emulator's statistics, also if no event of LDS is counted. */
static void counts_real_kernels(void **state) {
  static const char *const counters[] = {
      "SQ_WAVES",     "SQ_INSTS_VALU",         "SQ_INSTS_SALU",      "SQ_INSTS_SMEM",
      "SQ_INSTS_LDS", "SQC_LDS_BANK_CONFLICT", "SQC_LDS_IDX_ACTIVE",
  };
  db_counter_set *all = db_counter_set_new(dev, counters, 7), *classes = db_counter_set_new(dev, counters, 5);
  assert_true(all && classes);
  assert_int_equal(db_counter_set_passes(all), 1);
  for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++) {
    emu_detail(db_device_os(dev), true);
    struct emu_stats before = stats();
    run_workload(&workloads[i], NULL);
    struct emu_stats after = stats();
    emu_detail(db_device_os(dev), false);
    const uint64_t expected[] = {
        after.waves - before.waves,
        EXECUTED(VALU) + EXECUTED(TRANS) + EXECUTED(MATRIX),
        EXECUTED(SALU),
        EXECUTED(SMEM),
        EXECUTED(LDS),
        DELTA(lds_conflicts),
        DELTA(lds_passes) + DELTA(lds_conflicts),
    };
    run_workload(&workloads[i], classes);
    run_workload(&workloads[i], all);
    for (unsigned k = 0; k < 7; k++)
      if (sum_of(all, k) != expected[k] || (k < 5 && sum_of(classes, k) != expected[k]))
        fail_msg("%s: %s: %llu and %llu, not %llu", workloads[i].name, counters[k], (unsigned long long)sum_of(all, k),
                 k < 5 ? (unsigned long long)sum_of(classes, k) : 0, (unsigned long long)expected[k]);
  }
  db_counter_set_release(all);
  db_counter_set_release(classes);
}

static void replays_count_again(void **state) {
  struct saxpy s = saxpy_new();
  db_counter_set *set = db_counter_set_new(dev, names, 5);
  const struct db_arg args[] = {{.buffer = s.y}, {.buffer = s.x}, {.bits = 0x3f800000}, {.bits = 64 * ITEMS}};
  OK(db_queue_counters_begin(s.q, set, 0));
  OK(db_queue_exec_slots(s.q, s.program, args, 4, (uint32_t[3]){1, 1, 1}, (uint32_t[3]){ITEMS, 1, 1},
                         (const unsigned[3]){1, 0, 0}));
  OK(db_queue_counters_end(s.q));
  db_recording *r = db_queue_bind(s.q);
  assert_non_null(r);
  for (uint64_t groups = 1; groups <= 64; groups *= 4) {
    uint64_t when;
    OK(db_recording_set_value(r, 1, groups));
    OK(db_recording_submit(r, &when));
    OK(db_wait(db_queue_timeline(s.q), when, 60 * SECOND));
    assert_int_equal(sum_of(set, 0), 2 * groups);
    assert_int_equal(sum_of(set, 4), groups);
  }
  db_counter_set_release(set); /* the recording keeps it */
  uint64_t when;
  OK(db_recording_submit(r, &when));
  OK(db_wait(db_queue_timeline(s.q), when, 60 * SECOND));
  db_recording_release(r);
  saxpy_free(&s);
}

/* ---- packets ---- */

static bool contains(const db_queue *q, const uint32_t *words, size_t n) {
  for (size_t i = 0; i + n <= q->words.n; i++)
    if (!memcmp(q->words.w + i, words, n * 4)) return true;
  return false;
}
#define CONTAINS(q, ...)                                                                                               \
  assert_true(contains(q, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4))

/* Words that other drivers write for the same steps (tinygrad, ops_amd.py). */
static void writes_known_packets(void **state) {
  struct saxpy s = saxpy_new();
  db_counter_set *set = db_counter_set_new(dev, names, 5);
  OK(db_queue_counters_begin(s.q, set, 0));
  CONTAINS(s.q, 0xc0017900, 0x00000200, 0xe0000000); /* all instances */
  CONTAINS(s.q, 0xc0017900, 0x00001808, 0x00000000, 0xc0017900, 0x000019e0, 0x00000055, 0xc0017900, 0x000019e2,
           0x0001ffff);
  CONTAINS(s.q, 0xc0017900, 0x000019c0, 0x00000004); /* SQ counter 0: WAVES */
  CONTAINS(s.q, 0xc0017900, 0x000019c2, 0x0000003e); /* SQ counter 1: INSTS_VALU */
  CONTAINS(s.q, 0xc0017900, 0x00001808, 0x00000000, 0xc0017900, 0x00001808, 0x00000001);
  CONTAINS(s.q, 0xc0004600, 0x00000407); /* waits for earlier kernels */
  OK(db_queue_counters_end(s.q));
  CONTAINS(s.q, 0xc0017900, 0x00001808, 0x00000401);
  CONTAINS(s.q, 0xc0017900, 0x00000200, 0x0002010c, 0xc0044000, 0x00100204, 0x0000d1c2); /* engine 2, array 1, WGP 3 */
  CONTAINS(s.q, 0xc0017900, 0x00000200, 0x60050000, 0xc0044000, 0x00100204, 0x0000d181); /* SPI of engine 5 */
  run(s.q);
  db_counter_set_release(set);
  saxpy_free(&s);
}

/* ---- other generations ---- */

static struct hcq_counter counter_of(const struct amd_perf_generation *g, const char *name) {
  for (unsigned i = 0; i < g->nevents; i++)
    if (!strcmp(g->events[i].name, name))
      return (struct hcq_counter){.info = {.name = name}, .block = g->events[i].block, .number = g->events[i].number};
  fail_msg("%s has no %s", g->arch, name);
  return (struct hcq_counter){0};
}

/* The packets of a set of two counters, of which the second is in another block. */
static void write_packets(db_queue *q, const char *arch, const struct amd_perf_shape *shape, const char *first,
                          const char *second) {
  const struct amd_perf_generation *g = amd_perf_generation(arch);
  assert_non_null(g);
  struct hcq_counter a = counter_of(g, first), b = counter_of(g, second);
  struct hcq_counter_pick picks[] = {{.counter = &a, .slot = 1, .address = 0x7f0000001000},
                                     {.counter = &b, .slot = 0, .address = 0x7f0000002000}};
  memset(q, 0, sizeof *q);
  amd_perf_begin(&q->words, g, picks, 2);
  amd_perf_end(&q->words, g, shape, picks, 2, 0x7f0000000000);
  assert_false(q->words.failed);
}

/* As tinygrad writes them, and aqlprofile for RLC_PERFMON_CLK_CNTL. The MI300X has 8 XCCs of 4 shader engines. */
static void packets_of_gfx942(void **state) {
  static const struct amd_perf_shape shape = {4, 1, 0, 8};
  db_queue q;
  write_packets(&q, "gfx942", &shape, "SQ_INSTS_VALU", "TCC_HIT");
  CONTAINS(&q, 0xc0017900, 0x00001cbf, 1, 0xc0017900, 0x00001808, 0);
  CONTAINS(&q, 0xc0017900, 0x000019e0, 0xffff0055, 0xc0017900, 0x000019e1, 0xffffffff);
  CONTAINS(&q, 0xc0017900, 0x000019c1, 0x0f0ff000 | 26); /* SQ counter 1 */
  CONTAINS(&q, 0xc0017900, 0x00001b80, 17);              /* TCC counter 0 */
  /* XCC 7 reads its engine 3: 31st of 32 instances, 64 bits. */
  enum { DWORDS = 3 + 6 + 6 };
  CONTAINS(&q, 0xc0002300, 0x80000000 | 4 * DWORDS, 0xc0017900, 0x00000200, 0x60000000);
  CONTAINS(&q, 0xc0017900, 0x00000200, 0x60030000, 0xc0044000, 0x00100204, 0x0000d1c2, 0, 0x000010f8, 0x7f00,
           0xc0044000, 0x00100204, 0x0000d1c3, 0, 0x000010fc, 0x7f00);
  CONTAINS(&q, 0xc0002300, 0x80000000 | 16 * DWORDS, 0xc0017900, 0x00000200, 0xa0000000);
  CONTAINS(&q, 0xc0017900, 0x00001cbf, 0);
  words_free(&q.words);
  /* gfx950 numbers events in another way. */
  write_packets(&q, "gfx950", &shape, "SQ_INSTS_SALU", "TCC_HIT");
  CONTAINS(&q, 0xc0017900, 0x000019c1, 0x0f0ff000 | 62);
  CONTAINS(&q, 0xc0017900, 0x00001b80, 21);
  words_free(&q.words);
}

static void packets_of_gfx12(void **state) {
  static const struct amd_perf_shape shape = {4, 2, 4, 1};
  db_queue q;
  write_packets(&q, "gfx1200", &shape, "SQ_WAVES", "GL2C_HIT");
  CONTAINS(&q, 0xc0017900, 0x000019e0, 0x55, 0xc0017900, 0x000019e2, 0x1ffff, 0xc0017900, 0x000019c2);
  CONTAINS(&q, 0xc0017900, 0x00001b80, 41);
  CONTAINS(&q, 0xc0017900, 0x00000200, 0x0003010c, 0xc0044000, 0x00100204, 0x0000d1c2);            /* the last WGP */
  CONTAINS(&q, 0xc0017900, 0x00000200, 0xa000001f, 0xc0044000, 0x00100204, 0x0000d380, 0, 0x20f8); /* channel 31 */
  words_free(&q.words);
}

/* Each event is in a block of its generation, and can be selected: 9 bits for SQ, 7 for TCP of gfx9, else 10. */
static void events_of_all_generations(void **state) {
  static const char *const archs[] = {"gfx1100", "gfx1201", "gfx942", "gfx950"};
  for (size_t k = 0; k < 4; k++) {
    const struct amd_perf_generation *g = amd_perf_generation(archs[k]);
    assert_true(g && g->nevents > 200);
    for (unsigned i = 0; i < g->nevents; i++) {
      const struct amd_perf_event *e = &g->events[i];
      const struct amd_perf_block *b = &g->blocks[e->block];
      unsigned most = e->block == AMD_PERF_SQ ? 511 : e->block == AMD_PERF_TCP && k > 1 ? 127 : 1023;
      if (!b->slots || e->number > most) fail_msg("%s: %s: number %u", archs[k], e->name, e->number);
    }
    counter_of(g, "SQ_INSTS_VALU"); /* the check of several passes */
  }
  assert_null(amd_perf_generation("gfx1030"));
}

/* ---- several passes ---- */

static const char *const nine[] = {
    "SQ_WAVES",      "SQ_WAVES_32",  "SQ_WAVES_64",           "SQ_INSTS_VALU",      "SQ_INSTS_SALU",
    "SQ_INSTS_SMEM", "SQ_INSTS_LDS", "SQC_LDS_BANK_CONFLICT", "SQC_LDS_IDX_ACTIVE",
};

static void run_pass(struct saxpy *s, db_counter_set *set, unsigned pass, uint32_t groups) {
  OK(db_queue_counters_begin(s->q, set, pass));
  saxpy_record(s, groups);
  OK(db_queue_counters_end(s->q));
  run(s->q);
}

static void large_sets_take_passes(void **state) {
  struct saxpy s = saxpy_new();
  db_counter_set *set = db_counter_set_new(dev, nine, 9);
  assert_non_null(set);
  assert_int_equal(db_counter_set_passes(set), 2);
  run_pass(&s, set, 0, 10);
  assert_int_equal(db_counter_set_read(set, 0, NULL, 0, NULL), -ENODATA);
  assert_non_null(strstr(db_error(), "pass 1 of 2 of a set of counters has not run"));
  run_pass(&s, set, 1, 11);
  assert_int_equal(db_counter_set_read(set, 0, NULL, 0, NULL), -ESTALE);
  assert_non_null(strstr(db_error(), "did different work: SQ_INSTS_VALU is "));
  run_pass(&s, set, 1, 10);
  assert_int_equal(sum_of(set, 0), 20);
  assert_int_equal(sum_of(set, 1) + sum_of(set, 2), 20);
  for (unsigned i = 6; i < 9; i++) assert_int_equal(sum_of(set, i), 0); /* saxpy uses no LDS */
  assert_true(sum_of(set, 3) > 0);
  db_counter_set_release(set);
  saxpy_free(&s);
}

/* ---- wrong use ---- */

static void refuses_wrong_order(void **state) {
  struct saxpy s = saxpy_new();
  db_queue *copies = db_queue_new(dev, DB_QUEUE_COPY);
  db_counter_set *set = db_counter_set_new(dev, names, 5);
#define REFUSED(queue, call, why)                                                                                      \
  do {                                                                                                                 \
    assert_int_equal(call, -EINVAL);                                                                                   \
    if (!strstr(db_error(), why)) fail_msg("no \"%s\" in: %s", why, db_error());                                       \
    assert_int_equal(db_queue_submit(queue, NULL), -EINVAL);                                                           \
  } while (0)
  REFUSED(copies, db_queue_counters_begin(copies, set, 0), "counters recorded into a copy queue");
  REFUSED(s.q, db_queue_counters_begin(s.q, set, 1), "pass 1 of a set of counters that has 1");
  REFUSED(s.q, db_queue_counters_begin(s.q, NULL, 0), "the set of counters is NULL");
  REFUSED(s.q, db_queue_counters_end(s.q), "the queue does not count");
  OK(db_queue_counters_begin(s.q, set, 0));
  REFUSED(s.q, db_queue_counters_begin(s.q, set, 0), "the queue already counts");
  OK(db_queue_counters_begin(s.q, set, 0));
  assert_int_equal(db_queue_submit(s.q, NULL), -EINVAL);
  assert_non_null(strstr(db_error(), "record the end of counting first"));
  OK(db_queue_counters_begin(s.q, set, 0));
  assert_null(db_queue_bind(s.q));
  assert_non_null(strstr(db_error(), "record the end of counting first"));
  run(s.q); /* the recorder is empty again */
  db_counter_set_release(set);
  db_queue_release(copies);
  saxpy_free(&s);
}

/* ---- real hardware ---- */

/* Kernels of the recordings that take buffers only, with their launches (README.md there). */
static const struct recorded {
  const char *capture;
  unsigned nbuffers;
  uint32_t grid[3], block[3];
} recorded[] = {{"plus_0", 3, {1, 1, 1}, {3, 1, 1}}, {"gemm_0", 3, {32, 32, 1}, {16, 1, 1}}};

/* Stores what each WGP of a real gfx1100 counted. The list contains "xcc.instance.engine.array.wgp=value" for each
 * value that is not zero. */
static void recorded_values(const char *capture, const char *counter, uint64_t values[WGPS]) {
  FILE *f = recorded_file("pmc.tsv");
  char line[8192], *column[RECORDED_COLUMNS];
  enum { CAPTURE = 1, COUNTER = 4, VALUES = 17 };
  bool found = false;
  assert_non_null(f);
  memset(values, 0, WGPS * sizeof *values);
  while (!found && fgets(line, sizeof line, f)) {
    recorded_split(line, column);
    found = !strcmp(column[0], "gfx1100") && !strcmp(column[CAPTURE], capture) && !strcmp(column[COUNTER], counter);
  }
  fclose(f);
  if (!found) fail_msg("no recording of %s for %s", counter, capture);
  unsigned engine, array, wgp;
  unsigned long long value;
  for (char *at = column[VALUES]; sscanf(at, "%*u.%*u.%u.%u.%u=%llu", &engine, &array, &wgp, &value) == 4;) {
    values[(engine * 2 + array) * 4 + wgp] = value;
    at += strcspn(at, " ");
    at += strspn(at, " ");
  }
}

static void run_recorded(db_device *on, const struct recorded *r, db_counter_set *set) {
  char name[200];
  snprintf(name, sizeof name, "gfx1100/%s/k0.elf", r->capture);
  FILE *f = recorded_file(name);
  if (!f) fail_msg("no %s", name);
  size_t n = fread(image, 1, sizeof image, f);
  fclose(f);
  db_program *p = db_program_load(on, image, n, NULL, NULL, 0);
  if (!p) fail_msg("%s: %s", name, db_error());
  db_queue *q = db_queue_new(on, DB_QUEUE_COMPUTE);
  struct db_arg args[4] = {{0}};
  for (unsigned i = 0; i < r->nbuffers; i++) {
    args[i].buffer = db_alloc(on, 1 << 16, DB_BUFFER_HOST);
    memset(db_buffer_host(args[i].buffer), 0, 1 << 16);
  }
  OK(db_queue_counters_begin(q, set, 0));
  OK(db_queue_exec(q, p, args, r->nbuffers, r->grid, r->block));
  OK(db_queue_counters_end(q));
  run(q);
  for (unsigned i = 0; i < r->nbuffers; i++) db_buffer_release(args[i].buffer);
  db_queue_release(q);
  db_program_release(p);
}

/* The counts of each WGP are equal, so the workgroups ran in the same places. Each kernel is the first of its GPU. */
static void counts_as_recorded_hardware(void **state) {
  static const char *const counters[] = {"SQ_INSTS_VALU", "SQ_INSTS_SALU", "SQC_LDS_IDX_ACTIVE",
                                         "SQC_LDS_BANK_CONFLICT"};
  fclose(recorded_summary());
  for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++) {
    char gpu[64];
    snprintf(gpu, sizeof gpu, "EMU+AMD:gfx1100,gfx1100:%zu", i);
    db_device *fresh = db_open(gpu);
    if (!fresh) fail_msg("%s", db_error());
    db_counter_set *set = db_counter_set_new(fresh, counters, 4);
    assert_non_null(set);
    run_recorded(fresh, &recorded[i], set);
    for (unsigned k = 0; k < 4; k++) {
      uint64_t counted[WGPS], real[WGPS];
      OK(db_counter_set_read(set, k, counted, WGPS, NULL));
      recorded_values(recorded[i].capture, counters[k], real);
      for (unsigned w = 0; w < WGPS; w++)
        if (counted[w] != real[w])
          fail_msg("%s: %s of WGP %u: %llu, the recorded GPU counted %llu", recorded[i].capture, counters[k], w,
                   (unsigned long long)counted[w], (unsigned long long)real[w]);
    }
    db_counter_set_release(set);
    db_close(fresh);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lists_what_is_counted),
      cmocka_unit_test(refuses_bad_sets),
      cmocka_unit_test(counts_what_runs_in_between),
      cmocka_unit_test(counts_real_kernels),
      cmocka_unit_test(replays_count_again),
      cmocka_unit_test(large_sets_take_passes),
      cmocka_unit_test(refuses_wrong_order),
      cmocka_unit_test(writes_known_packets),
      cmocka_unit_test(counts_as_recorded_hardware),
      cmocka_unit_test(packets_of_gfx942),
      cmocka_unit_test(packets_of_gfx12),
      cmocka_unit_test(events_of_all_generations),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
