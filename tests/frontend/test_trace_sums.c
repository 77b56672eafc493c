/* Thread traces, performance counters and the emulator's statistics agree: for every kernel of the kernel cases and for
 * kernels that the compiler makes, the instructions of a class in the traces of a workgroup processor's four SIMDs are
 * as many as its counter counts, the traces start as many waves on every processor as its counter counts, and the sums
 * of the counters are the emulator's statistics. */
#define _GNU_SOURCE
#include "../emu/kernel_table.h"
#include "../../emu/emu.h"
#include "../../frontend/files/files.h"
#include "../../hcq/device.h"
#include "../../hcq/sqtt/sqtt.h"
#include "../ok.h"
#include "support.h"

enum { ENGINES = 6, ARRAYS = 2, PROCESSORS = 4, INSTANCES = ENGINES * ARRAYS * PROCESSORS, SIMDS = 4 };
enum { TRACE_BYTES = 4 << 20, MOST_LAUNCHES = 16 };

static db_device *dev;
static int open_gpu(void **state) { return (dev = db_open(EMULATED)) ? 0 : -1; }
static int close_gpu(void **state) {
  db_close(dev);
  return 0;
}

/* The counters, the class of the trace's packets and the statistics' classes that each counts. */
static const struct compared {
  const char *counter;
  enum sqtt_class traced;
  uint32_t executed; /* a bit for each class */
} compared[] = {
#define BIT(class) (1u << EMU_##class##_CLASS)
    {"SQ_INSTS_VALU", SQTT_CLASS_VALU, BIT(VALU) | BIT(TRANS) | BIT(MATRIX)},
    {"SQ_INSTS_SALU", SQTT_CLASS_SALU, BIT(SALU)},
    {"SQ_INSTS_SMEM", SQTT_CLASS_SMEM, BIT(SMEM)},
    {"SQ_INSTS_LDS", SQTT_CLASS_LDS, BIT(LDS)},
    {"SQ_INSTS_TEX", SQTT_CLASS_MEMORY, BIT(GLOBAL) | BIT(SCRATCH)},
    {"SQ_INSTS_BRANCH", SQTT_CLASS_BRANCH, BIT(BRANCH)},
#undef BIT
};
enum { COMPARED = sizeof compared / sizeof *compared, COUNTERS = COMPARED + 1, WAVES = COMPARED };

/* ---- one launch, with one SIMD of each shader engine traced ---- */

struct measured {
  db_counter_set *set;
  db_thread_trace *trace;
  char name[64];
  unsigned first; /* the engine of the first workgroup */
};

/* Workgroups go to the engines in turns, across launches. To compare launches, engines are numbered from the first
 * one. */
static uint64_t launched;
static unsigned engine_of(const struct measured *m, unsigned turn) { return (m->first + turn) % ENGINES; }

static struct measured measured_new(unsigned simd, const char *name) {
  const char *names[COUNTERS];
  for (unsigned i = 0; i < COMPARED; i++) names[i] = compared[i].counter;
  names[WAVES] = "SQ_WAVES";
  struct measured m = {db_counter_set_new(dev, names, COUNTERS),
                       db_thread_trace_new(dev, TRACE_BYTES),
                       {0},
                       (unsigned)((launched + 1) % ENGINES)};
  if (!m.set || !m.trace) fail_msg("%s", db_error());
  OK(db_thread_trace_select(m.trace, simd));
  snprintf(m.name, sizeof m.name, "%s", name);
  return m;
}
static void measured_free(struct measured *m) {
  db_counter_set_release(m->set);
  db_thread_trace_release(m->trace);
}
static void measure_begin(const struct measured *m, db_queue *q) {
  OK(db_queue_counters_begin(q, m->set, 0));
  OK(db_queue_trace_begin(q, m->trace));
}
static void measure_end(const struct measured *m, db_queue *q) {
  OK(db_queue_trace_end(q, m->trace));
  OK(db_queue_counters_end(q));
}

/* ---- sums of a launch that ran once for each SIMD ----
 *
 * The sums of different runs are compared only if the runs execute the same instructions. */

struct sums {
  uint64_t traced[ENGINES][COMPARED]; /* instructions of the traced processor */
  uint64_t counted[COUNTERS][INSTANCES];
  unsigned runs;
  bool differ;
};

static void add_trace(struct sums *s, const struct measured *m, unsigned turn) {
  unsigned engine = engine_of(m, turn);
  struct sqtt_trace t;
  size_t size;
  uint64_t lost, waves[ARRAYS][PROCESSORS] = {{0}};
  void *bytes = db_thread_trace_read(m->trace, engine, &size, &lost);
  if (!bytes || sqtt_decode(&t, bytes, size, NULL, 0)) fail_msg("%s: engine %u: %s", m->name, engine, db_error());
  if (lost) fail_msg("%s: engine %u: %llu packets lost", m->name, engine, (unsigned long long)lost);
  for (uint32_t i = 0; i < t.ninsts; i++) {
    if (t.insts[i].class == SQTT_CLASS_UNKNOWN) fail_msg("%s: unknown op 0x%x", m->name, t.insts[i].op);
    for (unsigned k = 0; k < COMPARED; k++) s->traced[turn][k] += t.insts[i].class == compared[k].traced;
  }
  for (uint32_t i = 0; i < t.nwaves; i++) waves[t.waves[i].sa][t.waves[i].wgp]++;
  for (unsigned i = 0; i < ARRAYS * PROCESSORS; i++) {
    uint64_t counted = s->counted[WAVES][turn * ARRAYS * PROCESSORS + i];
    if (waves[i / PROCESSORS][i % PROCESSORS] != counted)
      fail_msg("%s: engine %u, processor %u: %llu waves in the trace, %llu counted", m->name, engine, i,
               (unsigned long long)waves[i / PROCESSORS][i % PROCESSORS], (unsigned long long)counted);
  }
  sqtt_free(&t), free(bytes);
}

static void add_run(struct sums *s, const struct measured *m) {
  for (unsigned i = 0; i < COUNTERS; i++) {
    enum { EACH = ARRAYS * PROCESSORS };
    uint64_t read[INSTANCES], values[INSTANCES];
    OK(db_counter_set_read(m->set, i, read, INSTANCES, NULL));
    for (unsigned e = 0; e < ENGINES; e++)
      memcpy(values + e * EACH, read + engine_of(m, e) * EACH, EACH * sizeof *read);
    if (s->runs && !s->differ && memcmp(values, s->counted[i], sizeof values))
      fail_msg("%s: counter %u differs between runs", m->name, i);
    memcpy(s->counted[i], values, sizeof values);
  }
  for (unsigned e = 0; e < ENGINES; e++) add_trace(s, m, e);
  s->runs++;
}

static uint64_t total(const struct sums *s, unsigned counter) {
  uint64_t sum = 0;
  for (unsigned i = 0; i < INSTANCES; i++) sum += s->counted[counter][i];
  return sum;
}

static void compare_traces(const struct sums *s, const char *name) {
  assert_int_equal(s->runs, SIMDS);
  for (unsigned e = 0; e < ENGINES && !s->differ; e++)
    for (unsigned k = 0; k < COMPARED; k++) {
      uint64_t counted = s->counted[k][e * ARRAYS * PROCESSORS];
      if (s->traced[e][k] != counted)
        fail_msg("%s: engine %u: %llu instructions in the traces, %s is %llu", name, e,
                 (unsigned long long)s->traced[e][k], compared[k].counter, (unsigned long long)counted);
    }
}

/* ---- statistics ---- */

static struct emu_stats stats(void) {
  struct emu_stats s;
  OK(emu_stats(db_device_os(dev), 0, &s));
  return s;
}

static void compare_stats(const uint64_t *counted, const struct emu_stats *before, const char *name) {
  struct emu_stats after = stats();
  for (unsigned k = 0; k < COMPARED; k++) {
    uint64_t executed = 0;
    for (unsigned i = 0; i < EMU_CLASS_COUNT; i++)
      if (compared[k].executed >> i & 1) executed += after.detail.executed[i] - before->detail.executed[i];
    if (counted[k] != executed)
      fail_msg("%s: %s is %llu, the statistics have %llu", name, compared[k].counter, (unsigned long long)counted[k],
               (unsigned long long)executed);
  }
  assert_int_equal(counted[WAVES], after.waves - before->waves);
}

/* ---- the kernel cases ---- */

static db_program *load(const struct run *r) {
  struct mapping m;
  OK(map_file(r->path, &m));
  db_program *p = db_program_load(dev, m.bytes, m.size, r->kernel, NULL, 0);
  if (!p) fail_msg("%s: %s", r->path, db_error());
  unmap_file(&m);
  return p;
}

static unsigned arguments(const struct run *r, db_buffer *const *buffers, struct db_arg *args) {
  for (unsigned i = 0; i < r->nargs; i++) {
    const struct run_arg *a = &r->arg[i];
    if (a->buffer >= 0)
      args[i] = (struct db_arg){.buffer = buffers[a->buffer]};
    else if (a->local)
      args[i] = (struct db_arg){.bits = a->local};
    else
      args[i] = (struct db_arg){.data = r->args + a->at};
  }
  return r->nargs;
}

/* Runs the launch once for each SIMD, with equal contents of the buffers. Two of the runs count everything, two only
 * what the counters need. */
static int measure_launch(struct run *r, const uint32_t grid[3], const uint32_t block[3]) {
  db_buffer *buffers[RUN_BUFFERS];
  struct db_arg args[RUN_ARGS];
  static struct sums s;
  memset(&s, 0, sizeof s);
  /* Workgroups that add floats at the same time repeat their compare-and-swap. */
  s.differ = !strcmp(r->kernel, "atomics") && grid[0] > 1;
  for (unsigned i = 0; i < r->nbuf; i++)
    if (!(buffers[i] = db_alloc(dev, r->buf[i].size, 0))) fail_msg("%s", db_error());
  db_program *p = load(r);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  unsigned nargs = arguments(r, buffers, args);
  for (unsigned simd = 0; simd < SIMDS; simd++) {
    struct measured m = measured_new(simd, r->kernel);
    uint64_t when;
    for (unsigned i = 0; i < r->nbuf; i++) OK(db_buffer_write(buffers[i], 0, r->buf[i].data, r->buf[i].size));
    emu_detail(db_device_os(dev), simd % 2);
    struct emu_stats before = stats();
    measure_begin(&m, q);
    OK(db_queue_exec(q, p, args, nargs, grid, block));
    measure_end(&m, q);
    OK(db_queue_submit(q, &when));
    OK(db_wait(db_queue_timeline(q), when, 60 * SECOND));
    add_run(&s, &m);
    uint64_t counted[COUNTERS];
    for (unsigned i = 0; i < COUNTERS; i++) counted[i] = total(&s, i);
    if (simd % 2) compare_stats(counted, &before, r->kernel);
    struct emu_stats after = stats();
    r->stats.waves = after.waves - before.waves, r->stats.workgroups = after.workgroups - before.workgroups;
    measured_free(&m);
  }
  compare_traces(&s, r->kernel);
  for (unsigned i = 0; i < r->nbuf; i++) {
    OK(db_buffer_read(buffers[i], 0, r->buf[i].data, r->buf[i].size));
    db_buffer_release(buffers[i]);
  }
  db_queue_release(q);
  db_program_release(p);
  return 0;
}

static int measure_cases(void **state) {
  run_on_device = measure_launch;
  return 0;
}

/* ---- kernels of the compiler ---- */

static struct {
  bool on;
  unsigned simd, n;
  struct measured launch[MOST_LAUNCHES];
} watched;

int __real_db_queue_exec(db_queue *q, db_program *p, const struct db_arg *args, unsigned nargs, const uint32_t grid[3],
                         const uint32_t block[3]);
int __wrap_db_queue_exec(db_queue *q, db_program *p, const struct db_arg *args, unsigned nargs, const uint32_t grid[3],
                         const uint32_t block[3]) {
  uint64_t groups = (uint64_t)grid[0] * grid[1] * grid[2];
  if (!watched.on) return launched += groups, __real_db_queue_exec(q, p, args, nargs, grid, block);
  assert_true(watched.n < MOST_LAUNCHES);
  struct measured *m = &watched.launch[watched.n++];
  *m = measured_new(watched.simd, db_program_name(p));
  measure_begin(m, q);
  launched += groups;
  int err = __real_db_queue_exec(q, p, args, nargs, grid, block);
  measure_end(m, q);
  return err;
}

typedef db_tensor *make_fn(db_tensor *const *x);

static void check_compiled(const char *name, make_fn *make, db_tensor *const *x, bool matrix) {
  static struct sums s[MOST_LAUNCHES];
  unsigned launches = 0;
  memset(s, 0, sizeof s);
  struct emu_stats before = stats();
  for (watched.simd = 0; watched.simd < SIMDS; watched.simd++) {
    DB_SCOPED;
    emu_detail(db_device_os(dev), true);
    before = stats();
    watched.on = true, watched.n = 0;
    db_tensor *y = make(x);
    if (!y || db_realize(y)) fail_msg("%s: %s", name, db_error());
    OK(db_device_synchronize(dev, 60 * SECOND));
    watched.on = false;
    uint64_t counted[COUNTERS] = {0};
    launches = watched.n;
    for (unsigned i = 0; i < launches; i++) {
      add_run(&s[i], &watched.launch[i]);
      for (unsigned k = 0; k < COUNTERS; k++) counted[k] += total(&s[i], k);
    }
    compare_stats(counted, &before, name);
    if (watched.simd + 1 < SIMDS)
      for (unsigned i = 0; i < launches; i++) measured_free(&watched.launch[i]);
  }
  assert_true(launches > 0);
  struct emu_stats after = stats();
  bool used = after.detail.executed[EMU_MATRIX_CLASS] > before.detail.executed[EMU_MATRIX_CLASS];
  if (used != matrix) fail_msg("%s: %s matrix instructions", name, used ? "has" : "has no");
  for (unsigned i = 0; i < launches; i++) {
    compare_traces(&s[i], watched.launch[i].name);
    measured_free(&watched.launch[i]);
  }
  emu_detail(db_device_os(dev), false);
}

/* ---- the programs that the compiler's kernels are from ---- */

static db_tensor *product(db_tensor *const *x) { return db_matmul(x[0], x[1]); }
static db_tensor *softmax(db_tensor *const *x) { return db_softmax(x[2], 1); }
static db_tensor *attention(db_tensor *const *x) { return db_attention(x[3], x[4], x[5]); }
static db_tensor *norm(db_tensor *const *x) { return db_layer_norm(x[2], 1, NULL, NULL, 1e-5); }

static void compiled_kernels(void **state) {
  run_on_device = NULL;
  DB_SCOPED;
  db_tensor *x[] = {db_cast(db_rand(DB_F32, dev, 64, 64), DB_F16),
                    db_cast(db_rand(DB_F32, dev, 64, 64), DB_F16),
                    db_rand(DB_F32, dev, 100, 130),
                    db_rand(DB_F32, dev, 2, 64, 32),
                    db_rand(DB_F32, dev, 2, 64, 32),
                    db_rand(DB_F32, dev, 2, 64, 32)};
  if (db_realize_all(x, sizeof x / sizeof *x)) fail_msg("%s", db_error());
  OK(db_device_synchronize(dev, 60 * SECOND));
  check_compiled("product", product, x, true);
  check_compiled("softmax", softmax, x, false);
  check_compiled("attention", attention, x, false);
  check_compiled("norm", norm, x, false);
}

int main(void) {
#define X(name) {#name, name, measure_cases, NULL, NULL},
  static const struct CMUnitTest cases[] = {KERNEL_CASES(X)};
  enum { CASES = sizeof cases / sizeof *cases };
  static struct CMUnitTest tests[CASES + 1];
  memcpy(tests, cases, sizeof cases);
  tests[CASES] = (struct CMUnitTest)cmocka_unit_test(compiled_kernels);
  return cmocka_run_group_tests_name("trace_sums", tests, open_gpu, close_gpu);
}
