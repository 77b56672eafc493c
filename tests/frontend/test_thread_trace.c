/* Thread traces through the driver on the emulated GPU: the decoded instructions of each traced wave are those that the
 * shader machine executes when it runs the same kernel step by step, without driver and trace. */
#define _GNU_SOURCE
#include "../../emu/emu.h"
#include "../../frontend/files/files.h"
#include "../../frontend/prof/code.h"
#include "../../hcq/device.h"
#include "../emu/kernel_run.h"
#include "../hcq/sqtt_recordings.h"
#include "../ok.h"
#include "emu/amd/exec/rdna3_wave.h"

enum { ENGINES = 6, ARRAYS = 2, PROCESSORS = 4, MOST_WAVES = 4096, BUFFER = 1 << 16, MOST_ARGS = 4 };
#define SKIP_ARG UINT32_MAX

/* A launch of one dimension. Buffers have BUFFER bytes of the numbers 0, 1, 2...; value: of the other arguments. */
static const struct launch {
  const char *file, *kernel;
  uint32_t groups, items;
  unsigned buffers, values;
  uint32_t value[2];
} launches[] = {{"bench/kernels/saxpy", "saxpy", 200, 64, 2, 2, {0x3f800000, 12345}},
                {"bench/kernels/reduce", "reduce", 120, 256, 2, 1, {9999}},
                {"tests/kernels/diverge", "diverge", 100, 96, 2, 1, {9000}},
                {"tests/kernels/bitonic", "bitonic", 60, 128, 1, 0, {0}},
                {"tests/kernels/f64", "f64", 50, 64, 2, 1, {700}},
                {"tests/kernels/flatptr", "flatptr", 50, 128, 2, 1, {3000}},
                {"tests/kernels/calls", "calls", 20, 64, 3, 1, {1000}}};

/* ---- what the shader machine executes ---- */

static struct expected {
  uint32_t *pc; /* offsets from the image */
  uint32_t n, cap;
} expected[MOST_WAVES];
static unsigned nexpected;

static void expect_pc(struct expected *e, uint64_t pc) {
  if (e->n == e->cap) e->cap = e->cap ? e->cap * 2 : 256, e->pc = realloc(e->pc, e->cap * sizeof *e->pc);
  e->pc[e->n++] = (uint32_t)pc;
}

static int step_group(struct run *r, const struct shader_dispatch *d, const uint32_t group[3]) {
  int waves = shader_open(r->core, r->code, d, group, &r->stats, &r->fault);
  if (waves < 0) return waves;
  assert_true(nexpected + (unsigned)waves <= MOST_WAVES);
  bool more = true;
  while (more) {
    more = false;
    for (int i = 0; i < waves; i++) {
      struct expected *e = &expected[nexpected + (unsigned)i];
      enum shader_step did = SHADER_STEPPED;
      while (did == SHADER_STEPPED) {
        const struct rdna3_wave *w = shader_wave(r->core, (unsigned)i);
        uint64_t pc = w->next->inst->pc;
        enum rdna3_state before = w->state;
        did = shader_step(r->core, (unsigned)i);
        bool waited = before == RDNA3_BARRIER && did == SHADER_AT_BARRIER && w->next->inst->pc == pc;
        if (before != RDNA3_ENDED && !waited) expect_pc(e, pc - r->image_va);
        if (did == SHADER_FAULTED) fail_msg("%s", r->fault.text);
      }
      more |= did != SHADER_ENDED;
    }
  }
  shader_close(r->core);
  nexpected += (unsigned)waves;
  return 0;
}

static uint64_t steps(void) {
  uint64_t n = 0;
  for (unsigned i = 0; i < nexpected; i++) n += expected[i].n;
  return n;
}

static void fill(uint32_t *p) {
  for (unsigned i = 0; i < BUFFER / 4; i++) p[i] = i;
}

/* Returns whether the kernel's workgroups use both compute units of a processor (bit 29 of RSRC1, WGP_MODE). */
static bool run_steps(const struct launch *l) {
  struct run r;
  static struct shader_trace recorder;
  recorder = (struct shader_trace){.instructions = true};
  for (unsigned i = 0; i < nexpected; i++) expected[i].n = 0;
  nexpected = 0;
  run_open(&r, l->file, l->kernel);
  r.run_group = step_group;
  r.stats.trace = &recorder; /* else steps pass over instructions that do nothing here */
  for (unsigned i = 0; i < l->buffers; i++) fill(run_buffer(&r, NULL, BUFFER));
  for (unsigned i = 0; i < l->values; i++) run_u32(&r, l->value[i]);
  run_ok(&r, l->groups, 1, 1, l->items, 1, 1);
  bool both = r.rsrc1 >> 29 & 1;
  run_close(&r);
  for (unsigned i = 0; i < SHADER_TRACE_WAVES; i++) free(recorder.wave[i].insts);
  return both;
}

/* ---- the driver ---- */

static db_device *dev;
static int open_device(void **state) { return (dev = db_open("EMU+AMD:gfx1100")) ? 0 : -1; }
static int close_device(void **state) {
  db_close(dev);
  return 0;
}

static void wait_for(db_queue *q, uint64_t when) { OK(db_wait(db_queue_timeline(q), when, 60 * SECOND)); }

static db_program *load(const struct launch *l, struct mapping *m) {
  char path[512];
  snprintf(path, sizeof path, KERNELS_DIR "/%s.gfx1100.co", l->file);
  OK(map_file(path, m));
  db_program *p = db_program_load(dev, m->bytes, m->size, l->kernel, NULL, 0);
  if (!p) fail_msg("%s: %s", path, db_error());
  return p;
}

static void exec(db_queue *q, const struct launch *l, db_program *p, uint32_t rows) {
  struct db_arg args[MOST_ARGS] = {{0}};
  db_buffer *buffers[MOST_ARGS];
  static uint32_t numbers[BUFFER / 4];
  fill(numbers);
  for (unsigned i = 0; i < l->buffers; i++) {
    args[i].buffer = buffers[i] = db_alloc(dev, BUFFER, 0);
    OK(db_buffer_write(buffers[i], 0, numbers, BUFFER));
  }
  for (unsigned i = 0; i < l->values; i++) args[l->buffers + i].bits = l->value[i];
  OK(db_queue_exec(q, p, args, l->buffers + l->values, (uint32_t[3]){l->groups, rows, 1},
                   (uint32_t[3]){l->items, 1, 1}));
  for (unsigned i = 0; i < l->buffers; i++) db_buffer_release(buffers[i]);
}

/* Runs a launch while a trace is on, with `rows` workgroups in the second dimension. */
static db_thread_trace *trace_rows(const struct launch *l, db_program *p, size_t bytes, uint32_t rows) {
  db_thread_trace *t = db_thread_trace_new(dev, bytes);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  uint64_t when;
  if (!t) fail_msg("%s", db_error());
  OK(db_queue_trace_begin(q, t));
  exec(q, l, p, rows);
  OK(db_queue_trace_end(q, t));
  OK(db_queue_submit(q, &when));
  wait_for(q, when);
  db_queue_release(q);
  return t;
}

static db_thread_trace *trace(const struct launch *l, db_program *p, size_t bytes) {
  return trace_rows(l, p, bytes, 1);
}

/* ---- comparison ---- */

static void compare_wave(const char *what, const struct sqtt_trace *t, const struct sqtt_wave *w,
                         const struct prof_code *c, const struct expected *e) {
  uint32_t at = w->first, k = 0;
  for (uint32_t i = 0; i < e->n; i++) {
    uint32_t pc = (uint32_t)(e->pc[i] - c->address);
    if (c->code.at[pc / 4].silent) continue;
    if (at == SQTT_NONE || t->insts[at].pc != pc)
      fail_msg("%s: instruction %u is at 0x%x, expected 0x%x %s", what, k, at == SQTT_NONE ? 0 : t->insts[at].pc, pc,
               c->text[pc / 4]);
    at = t->insts[at].next, k++;
  }
  if (at != SQTT_NONE) fail_msg("%s: the trace has instructions after the wave's end", what);
}

/* The engine of a queue's next workgroup: they go to the engines in turns, the first one to engine 1. */
static unsigned next_engine(void) {
  struct emu_stats s;
  OK(emu_stats(db_device_os(dev), 0, &s));
  return (unsigned)((1 + s.workgroups) % ENGINES);
}

/* Returns whether a wave is on the traced SIMD, the first of its unit. earlier: the number of the dispatch's workgroups
 * that went to the same unit before. In compute-unit mode the SIMD of a workgroup's first wave changes with every
 * workgroup if a workgroup has an even number of waves; if it has an odd number, it changes with every second one: 0,
 * 1, 1, 0. */
static bool on_first_simd(bool both, unsigned earlier, unsigned waves, unsigned wave) {
  return both ? wave % 4 == 0 : ((waves % 2 ? (earlier + 1) / 2 : earlier) + wave) % 2 == 0;
}

/* Compares the traced waves of an engine. Within it, workgroups go to processors, arrays and compute units in turns.
 * Returns the number of waves in the trace. */
static uint32_t compare_engine(const struct launch *l, const struct sqtt_trace *t, const struct prof_code *c,
                               unsigned turn, bool both) {
  unsigned units = ENGINES * ARRAYS * PROCESSORS * (both ? 1 : 2), waves = nexpected / l->groups;
  uint32_t at = 0;
  char what[100];
  for (unsigned group = turn, earlier = 0; group < l->groups; group += units, earlier++)
    for (unsigned wave = 0; wave < waves; wave++) {
      if (!on_first_simd(both, earlier, waves, wave)) continue;
      while (at < t->nwaves && !t->waves[at].traced) at++;
      snprintf(what, sizeof what, "%s: engine %u from the first, workgroup %u, wave %u", l->kernel, turn, group, wave);
      if (at == t->nwaves) fail_msg("%s: is not in the trace", what);
      compare_wave(what, t, &t->waves[at++], c, &expected[group * waves + wave]);
    }
  while (at < t->nwaves && !t->waves[at].traced) at++;
  assert_int_equal(at, t->nwaves);
  return t->nwaves;
}

static void traces_executed_commands(void **state) {
  uint64_t jumps = 0;
  for (size_t i = 0; i < sizeof launches / sizeof *launches; i++) {
    const struct launch *l = &launches[i];
    struct mapping m;
    struct prof_code c;
    uint32_t waves = 0;
    bool both = run_steps(l);
    struct emu_stats before, after;
    db_program *p = load(l, &m);
    OK(emu_stats(db_device_os(dev), 0, &before));
    unsigned first = next_engine();
    db_thread_trace *traced = trace(l, p, 1 << 20);
    OK(emu_stats(db_device_os(dev), 0, &after));
    assert_int_equal(after.instructions - before.instructions, steps());
    assert_int_equal(after.waves - before.waves, nexpected);
    OK(prof_code_elf(&c, m.bytes, m.size, l->kernel, SQTT_GFX11));
    assert_int_equal(db_thread_trace_engines(traced), ENGINES);
    for (unsigned e = 0; e < ENGINES; e++) {
      struct sqtt_trace t;
      size_t size;
      uint64_t lost;
      void *bytes = db_thread_trace_read(traced, e, &size, &lost);
      if (!bytes) fail_msg("%s", db_error());
      if (sqtt_decode(&t, bytes, size, &c.code, 1)) fail_msg("%s: engine %u: %s", l->kernel, e, db_error());
      assert_int_equal(lost, 0);
      assert_int_equal(size % SQTT_UNIT_BYTES, 0);
      if (t.out_of_step) fail_msg("%s: engine %u: out of step at 0x%x", l->kernel, e, t.first_out_of_step.pc);
      assert_int_equal(t.not_followed, 0);
      jumps += t.count[SQTT_NEW_PC];
      waves += compare_engine(l, &t, &c, (e + ENGINES - first) % ENGINES, both);
      for (uint32_t k = 0; k < t.nwaves; k++) assert_true(t.waves[k].has_start && t.waves[k].has_end);
      for (uint32_t k = 0; k < t.nwaves; k++) assert_int_equal(t.waves[k].program, db_program_address(p));
      assert_true(t.marks >= 2 && sqtt_mhz(&t) > 1500 && sqtt_mhz(&t) < 4000);
      sqtt_free(&t), free(bytes);
    }
    assert_int_equal(waves, nexpected);
    prof_code_free(&c), db_thread_trace_release(traced), db_program_release(p), unmap_file(&m);
  }
  assert_true(jumps > 0);
}

/* ---- recordings of a gfx1100 ---- */

/* Returns the first wave with instructions. */
static const struct sqtt_wave *first_traced(const struct sqtt_trace *t) {
  for (uint32_t i = 0; i < t->nwaves; i++)
    if (t->waves[i].insts) return &t->waves[i];
  fail_msg("no wave has instructions");
  return NULL;
}

/* The type of packet, or the op of an INST. Waits that end at the same time share a packet. */
static unsigned kind_of_packet(const struct sqtt_inst *in) {
  enum { OPS = 256 };
  return in->type == SQTT_INST ? in->op : OPS + (in->type == SQTT_IMMEDIATE_MASK ? SQTT_IMMEDIATE : in->type);
}

static void compare_instructions(const char *capture, const struct sqtt_trace *real,
                                 const struct sqtt_trace *emulated) {
  const struct sqtt_wave *a = first_traced(real), *b = first_traced(emulated);
  assert_int_equal(a->insts, b->insts);
  for (uint32_t i = a->first, k = b->first, n = 0; i != SQTT_NONE; i = real->insts[i].next, n++) {
    const struct sqtt_inst *x = &real->insts[i], *y = &emulated->insts[k];
    if (kind_of_packet(x) != kind_of_packet(y) || (x->duration == SQTT_NONE) != (y->duration == SQTT_NONE))
      fail_msg("%s: instruction %u: %s op 0x%x, the GPU wrote %s op 0x%x", capture, n, sqtt_type_name(y->type), y->op,
               sqtt_type_name(x->type), x->op);
    k = y->next;
  }
}

/* Workgroups start in the same order on the same engines, processors and SIMDs. */
static void compare_places(const char *what, const struct sqtt_trace *real, const struct sqtt_trace *emulated) {
  if (real->nwaves != emulated->nwaves)
    fail_msg("%s: %u waves, the GPU launched %u", what, emulated->nwaves, real->nwaves);
  for (uint32_t i = 0; i < real->nwaves; i++) {
    const struct sqtt_wave *x = &real->waves[i], *y = &emulated->waves[i];
    if (x->sa != y->sa || x->wgp != y->wgp || x->simd != y->simd || x->slot != y->slot || x->lanes != y->lanes)
      fail_msg("%s: wave %u is on array %u, processor %u, SIMD %u, slot %u; the GPU's on %u, %u, %u, %u", what, i,
               y->sa, y->wgp, y->simd, y->slot, x->sa, x->wgp, x->simd, x->slot);
  }
}

/* gpu: an emulated device that has run nothing, so the first workgroup goes to engine 1. */
static void compare_recording(const char *capture, const char *gpu, const struct launch *l, uint32_t rows) {
  char name[100];
  size_t size;
  struct sqtt_trace real, emulated;
  db_device *const shared = dev;
  dev = db_open(gpu);
  if (!dev) fail_msg("%s", db_error());
  snprintf(name, sizeof name, "gfx1100/%s/k0.elf", capture);
  void *code = recorded_bytes(name, &size);
  db_program *p = db_program_load(dev, code, size, NULL, NULL, 0);
  if (!p) fail_msg("%s: %s", name, db_error());
  db_thread_trace *t = trace_rows(l, p, 1 << 20, rows);
  for (unsigned e = 0; e < ENGINES; e++) {
    snprintf(name, sizeof name, "gfx1100/%s/k0_se%u.sqtt", capture, e);
    void *recorded = recorded_bytes(name, &size);
    OK(sqtt_decode(&real, recorded, size, NULL, 0));
    void *bytes = db_thread_trace_read(t, e, &size, NULL);
    OK(sqtt_decode(&emulated, bytes, size, NULL, 0));
    compare_places(name, &real, &emulated);
    if (e == 1) compare_instructions(capture, &real, &emulated);
    sqtt_free(&real), sqtt_free(&emulated), free(recorded), free(bytes);
  }
  free(code);
  db_thread_trace_release(t), db_program_release(p), db_close(dev);
  dev = shared;
}

/* The emulated GPU writes the packets that a real one wrote for the same code. */
static void packets_of_a_real_gpu(void **state) {
#define GPUS "EMU+AMD:gfx1100,gfx1100,gfx1100:"
  fclose(recorded_summary());
  compare_recording("plus_0", GPUS "0", &(struct launch){.groups = 1, .items = 3, .buffers = 3}, 1);
  compare_recording("empty_0", GPUS "1", &(struct launch){.groups = 1, .items = 1}, 1);
  compare_recording("gemm_0", GPUS "2", &(struct launch){.groups = 32, .items = 16, .buffers = 3}, 32);
#undef GPUS
}

/* The model of times: a wait ends when the last scalar load before it finishes. */
static void waits_for_memory(void **state) {
  enum { SCALAR_LOAD = 890, LONG = 100 };
  struct mapping m;
  struct sqtt_trace t;
  size_t size;
  uint64_t loaded = 0;
  db_program *p = load(&launches[0], &m);
  db_thread_trace *traced = trace(&launches[0], p, 1 << 20);
  void *bytes = db_thread_trace_read(traced, 0, &size, NULL);
  OK(sqtt_decode(&t, bytes, size, NULL, 0));
  const struct sqtt_wave *w = first_traced(&t);
  uint32_t i = w->first;
  for (; i != SQTT_NONE && (t.insts[i].class != SQTT_CLASS_IMMEDIATE || t.insts[i].stall < LONG); i = t.insts[i].next)
    if (t.insts[i].class == SQTT_CLASS_SMEM) loaded = t.insts[i].time;
  assert_true(i != SQTT_NONE && loaded);
  assert_int_equal(t.insts[i].time, loaded + SCALAR_LOAD);
  sqtt_free(&t), free(bytes);
  db_thread_trace_release(traced), db_program_release(p), unmap_file(&m);
}

static void full_memory(void **state) {
  struct mapping m;
  struct launch many = launches[0];
  many.groups = 3000;
  db_program *p = load(&many, &m);
  db_thread_trace *t = trace(&many, p, 1000);
  struct sqtt_trace decoded;
  size_t size;
  uint64_t lost;
  void *bytes = db_thread_trace_read(t, 0, &size, &lost);
  assert_non_null(bytes);
  assert_int_equal(size, 4096 - 32);
  assert_true(lost > 100);
  OK(sqtt_decode(&decoded, bytes, size, NULL, 0));
  assert_true(decoded.nwaves > 100 && decoded.ninsts > 10);
  sqtt_free(&decoded), free(bytes);
  db_thread_trace_release(t), db_program_release(p), unmap_file(&m);
}

static void replays(void **state) {
  struct mapping m;
  struct launch whole = launches[0];
  const struct launch *l = &whole;
  whole.groups -= whole.groups % ENGINES; /* so that each run begins with the same engine */
  db_program *p = load(l, &m);
  db_thread_trace *t = db_thread_trace_new(dev, 1 << 16);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  size_t size[2];
  void *bytes[2];
  OK(db_queue_trace_begin(q, t));
  exec(q, l, p, 1);
  OK(db_queue_trace_end(q, t));
  db_recording *r = db_queue_bind(q);
  assert_non_null(r);
  for (unsigned i = 0; i < 2; i++) {
    uint64_t when;
    OK(db_recording_submit(r, &when));
    wait_for(q, when);
    bytes[i] = db_thread_trace_read(t, 3, &size[i], NULL);
    assert_non_null(bytes[i]);
  }
  assert_true(size[0] > 500);
  assert_int_equal(size[0], size[1]);
  assert_memory_equal(bytes[0], bytes[1], size[0]);
  free(bytes[0]), free(bytes[1]);
  db_recording_release(r), db_queue_release(q), db_thread_trace_release(t), db_program_release(p), unmap_file(&m);
}

static void refuses(void **state) {
  size_t size;
  db_device *cpu = db_open("CPU");
  assert_null(db_thread_trace_new(cpu, 4096));
  assert_non_null(strstr(db_error(), "CPU: not supported: thread traces"));
  db_close(cpu);
  assert_null(db_thread_trace_new(dev, 0));
  assert_null(db_thread_trace_new(NULL, 4096));
  db_thread_trace *t = db_thread_trace_new(dev, 4096);
  assert_null(db_thread_trace_read(t, ENGINES, &size, NULL));
  assert_non_null(strstr(db_error(), "shader engine 6; there are 6"));
  void *nothing = db_thread_trace_read(t, 0, &size, NULL);
  assert_non_null(nothing);
  assert_int_equal(size, 0);
  free(nothing);
  assert_int_equal(db_thread_trace_select(t, 4), -EINVAL);
  assert_non_null(strstr(db_error(), "thread trace of SIMD 4; a workgroup processor has 4"));
  db_queue *q = db_queue_new(dev, DB_QUEUE_COPY);
  assert_int_equal(db_queue_trace_begin(q, t), -EINVAL);
  assert_non_null(strstr(db_error(), "copy queue"));
  db_queue_release(q);
  q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  assert_int_equal(db_queue_trace_end(q, t), -EINVAL);
  assert_non_null(strstr(db_error(), "record its begin first"));
  assert_int_equal(db_queue_submit(q, NULL), -EINVAL);
  OK(db_queue_trace_begin(q, t));
  assert_int_equal(db_queue_trace_begin(q, t), -EINVAL);
  assert_non_null(strstr(db_error(), "the queue already traces"));
  assert_int_equal(db_queue_submit(q, NULL), -EINVAL);
  OK(db_queue_trace_begin(q, t));
  assert_int_equal(db_queue_submit(q, NULL), -EINVAL);
  assert_non_null(strstr(db_error(), "record the end of the trace first"));
  db_queue_release(q);
  db_thread_trace_release(t);
  db_thread_trace_release(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(traces_executed_commands),
                                     cmocka_unit_test(packets_of_a_real_gpu),
                                     cmocka_unit_test(waits_for_memory),
                                     cmocka_unit_test(full_memory),
                                     cmocka_unit_test(replays),
                                     cmocka_unit_test(refuses)};
  return cmocka_run_group_tests_name("thread_trace", tests, open_device, close_device);
}
