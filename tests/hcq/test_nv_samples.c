/* PC sampling of NVIDIA GPUs, on emulated ones: samples fall on instructions that were executed, as often as the model
 * says; what is refused; streams that are full or damaged; the registers of each family of chips. */
#define DEVICE "EMU+NV:sm_86"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "device_test.h"
#include "emu/emu.h"
#include "emu/machine.h"
#include "hcq/device.h"
#include "hcq/nv/pma/registers.h"
#include "hcq/nv/pma/samples.h"

enum { BYTES = 1 << 18, MEMORY = 8 << 20, PERIOD = 64 };

/* ---- launches ---- */

static const struct launch {
  const char *kernel;
  uint32_t grid, block;
  unsigned buffers, values; /* values: 32-bit arguments after the buffers */
  uint32_t value, local;    /* of all of them; bytes of dynamic shared memory */
} saxpy = {"saxpy", 300, 256, 2, 2, 70000, 0}, locals = {"locals", 40, 64, 1, 1, 300, 0},
  shares = {"shares", 64, 128, 1, 1, 128, 512}, calls = {"calls", 20, 32, 1, 1, 0, 0};

struct work { /* a kernel with its arguments */
  const struct launch *launch;
  db_program *program;
  db_buffer *buffer[2];
};
static struct work prepare(db_device *on, const struct launch *l) {
  const struct db_param local = {.kind = DB_PARAM_LOCAL};
  struct work w = {.launch = l};
  static uint8_t image[1 << 16];
  FILE *f = fopen(DATA_DIR "/nv/cubin/12.4.sm_80.cubin", "rb");
  size_t n = f ? fread(image, 1, sizeof image, f) : 0;
  if (f) fclose(f);
  w.program = db_program_load(on, image, n, l->kernel, &local, l->local > 0);
  if (!w.program) fail_msg("%s", db_error());
  for (unsigned i = 0; i < l->buffers; i++) {
    w.buffer[i] = db_alloc(on, BYTES * 2, DB_BUFFER_HOST);
    memset(db_buffer_host(w.buffer[i]), 0, BYTES * 2);
  }
  return w;
}
static void finish(struct work *w) {
  for (unsigned i = 0; i < w->launch->buffers; i++) db_buffer_release(w->buffer[i]);
  db_program_release(w->program);
}
static void record_grid(db_queue *q, const struct work *w, uint32_t grid) {
  const struct launch *l = w->launch;
  struct db_arg args[5] = {{0}};
  unsigned n = 0;
  for (unsigned i = 0; i < l->buffers; i++) args[n++].buffer = w->buffer[i];
  for (unsigned i = 0; i < l->values; i++) args[n++].bits = l->value;
  if (l->local) args[n++].bits = l->local;
  OK(db_queue_exec(q, w->program, args, n, (uint32_t[3]){grid, 1, 1}, (uint32_t[3]){l->block, 1, 1}));
}
static void record(db_queue *q, const struct work *w) { record_grid(q, w, w->launch->grid); }

static db_pc_sampler *sampler_of(db_device *on, size_t bytes) {
  db_pc_sampler *s = db_pc_sampler_new(on, bytes);
  if (!s) fail_msg("%s", db_error());
  return s;
}
static struct db_pc_sample *read_all(db_pc_sampler *s, size_t *n, uint64_t *lost) {
  struct db_pc_sample *samples = db_pc_sampler_read(s, n, lost);
  if (!samples) fail_msg("%s", db_error());
  return samples;
}
static void run_sampled(db_queue *q, db_pc_sampler *s, const struct work *w) {
  OK(db_queue_samples_begin(q, s));
  record(q, w);
  OK(db_queue_samples_end(q, s));
  run(q);
}

/* ---- what is sampled ---- */

static struct emu_site *instructions(db_device *on, const db_program *p, size_t *n) {
  struct os *os = db_device_os(on);
  struct emu_kernel_stats *kernels;
  struct emu_site *site = NULL;
  size_t nkernels;
  OK(emu_kernels(os, 0, &kernels, &nkernels));
  for (size_t i = 0; i < nkernels; i++)
    if (kernels[i].pgm == db_program_address(p)) OK(emu_instructions(os, 0, &kernels[i], &site, n));
  free(kernels);
  assert_non_null(site);
  return site;
}

/* A sampled warp reports an instruction as issued once in PERIOD times that it issues one. */
static void compare_with_executed(const struct launch *l, const struct db_pc_sample *samples, size_t n,
                                  const struct emu_site *site, size_t nsites) {
  uint64_t *issued = calloc(nsites, sizeof *issued), executed = 0, all = 0;
  for (size_t i = 0; i < n; i++) {
    size_t k = 0;
    while (k < nsites && site[k].pc != samples[i].pc) k++;
    if (k == nsites || !site[k].executed)
      fail_msg("%s: a sample at 0x%llx, which was not executed", l->kernel, (unsigned long long)samples[i].pc);
    if (samples[i].gpc >= 12 || samples[i].tpc >= 6 || samples[i].warp >= 48)
      fail_msg("%s: a sample of GPC %u, TPC %u, warp %u", l->kernel, samples[i].gpc, samples[i].tpc, samples[i].warp);
    assert_non_null(db_stall_name(samples[i].reason));
    assert_true(!samples[i].issued || samples[i].reason == DB_STALL_NONE);
    issued[k] += samples[i].issued;
  }
  for (size_t k = 0; k < nsites; k++) {
    executed += site[k].executed, all += issued[k];
    uint64_t expected = site[k].executed / PERIOD;
    if (expected >= 100 && (issued[k] < expected / 2 || issued[k] > expected * 2))
      fail_msg("%s: %s was issued in %llu samples of %llu executions", l->kernel, site[k].text,
               (unsigned long long)issued[k], (unsigned long long)site[k].executed);
  }
  if (all < executed / PERIOD * 9 / 10 || all > executed / PERIOD * 11 / 10)
    fail_msg("%s: %llu samples of %llu executions", l->kernel, (unsigned long long)all, (unsigned long long)executed);
  free(issued);
}

static void samples_what_was_executed(void **state) {
  static const char *const devices[] = {DEVICE, "EMU+NV:sm_89"};
  static const struct launch *const launches[] = {&saxpy, &locals, &shares, &calls};
  for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
    db_device *on = db_open(devices[d]);
    db_pc_sampler *s = sampler_of(on, MEMORY);
    db_queue *q = db_queue_new(on, DB_QUEUE_COMPUTE);
    for (size_t i = 0; i < sizeof launches / sizeof *launches; i++) {
      struct work w = prepare(on, launches[i]);
      uint64_t lost;
      size_t n, nsites;
      OK(emu_annotate(db_device_os(on), true));
      run_sampled(q, s, &w);
      OK(emu_annotate(db_device_os(on), false));
      struct db_pc_sample *samples = read_all(s, &n, &lost);
      struct emu_site *site = instructions(on, w.program, &nsites);
      assert_int_equal(lost, 0);
      compare_with_executed(launches[i], samples, n, site, nsites);
      free(site), free(samples), finish(&w);
    }
    db_queue_release(q), db_pc_sampler_release(s), db_close(on);
  }
}

static size_t count_reason(const struct db_pc_sample *samples, size_t n, enum db_stall reason) {
  size_t found = 0;
  for (size_t i = 0; i < n; i++) found += samples[i].reason == reason;
  return found;
}

static void names_stalls(void **state) {
  const struct {
    const struct launch *launch;
    enum db_stall most; /* of the stalls */
    bool sync;
  } cases[] = {
      {&saxpy, DB_STALL_MEMORY, false}, {&shares, DB_STALL_MEMORY, true}, {&locals, DB_STALL_EXECUTION, false}};
  db_pc_sampler *s = sampler_of(dev, MEMORY);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct work w = prepare(dev, cases[i].launch);
    size_t n;
    run_sampled(q, s, &w);
    struct db_pc_sample *samples = read_all(s, &n, NULL);
    for (int r = DB_STALL_NONE + 1; r < DB_STALLS; r++)
      if (count_reason(samples, n, (enum db_stall)r) > count_reason(samples, n, cases[i].most))
        fail_msg("%s: most stalls are %s", cases[i].launch->kernel, db_stall_name((enum db_stall)r));
    assert_int_equal(count_reason(samples, n, DB_STALL_SYNC) > 0, cases[i].sync);
    assert_int_equal(count_reason(samples, n, DB_STALL_OTHER), 0);
    free(samples), finish(&w);
  }
  assert_null(db_stall_name(DB_STALLS));
  db_queue_release(q), db_pc_sampler_release(s);
}

static bool same_sample(const struct db_pc_sample *a, const struct db_pc_sample *b) {
  return a->pc == b->pc && a->gpc == b->gpc && a->tpc == b->tpc && a->sm == b->sm && a->warp == b->warp &&
         a->reason == b->reason && a->issued == b->issued;
}

/* Only kernels between begin and end are sampled, in recordings too, and the samples are the same each time. */
static void samples_between_begin_and_end(void **state) {
  db_pc_sampler *s = sampler_of(dev, MEMORY);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  struct work in = prepare(dev, &saxpy), out = prepare(dev, &locals);
  struct db_pc_sample *samples[4];
  size_t n[4];
  uint64_t first = db_program_address(in.program), lost;
  record(q, &out);
  OK(db_queue_samples_begin(q, s));
  record(q, &in);
  record(q, &in);
  OK(db_queue_samples_end(q, s));
  record(q, &out);
  db_recording *r = db_queue_bind(q);
  assert_non_null(r);
  for (int i = 0; i < 4; i++) {
    uint64_t when;
    OK(db_recording_submit(r, &when));
    OK(db_wait(db_queue_timeline(q), when, 60 * SECOND));
    samples[i] = read_all(s, &n[i], &lost);
    assert_int_equal(lost, 0);
    for (size_t k = 0; k < n[i]; k++) assert_true(samples[i][k].pc - first < 0x400);
    assert_true(n[i] > 1000 && n[i] == n[0]);
    for (size_t k = 0; k < n[i]; k++) assert_true(same_sample(&samples[i][k], &samples[0][k]));
  }
  for (int i = 0; i < 4; i++) free(samples[i]);
  free(read_all(s, &n[0], &lost));
  assert_int_equal(n[0], 0);
  db_recording_release(r);
  finish(&in), finish(&out);
  db_queue_release(q), db_pc_sampler_release(s);
}

/* Memory that is full: the samples that were read and those that were dropped add up. */
static void counts_what_is_lost(void **state) {
  enum { SMALL = 4096 };
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  struct work w = prepare(dev, &saxpy);
  size_t all, first, second;
  uint64_t lost;
  db_pc_sampler *s = sampler_of(dev, MEMORY);
  run_sampled(q, s, &w);
  free(read_all(s, &all, &lost));
  assert_int_equal(lost, 0);
  db_pc_sampler_release(s);
  s = sampler_of(dev, 1); /* rounded up to SMALL */
  run_sampled(q, s, &w);
  free(read_all(s, &first, &lost));
  assert_true(lost >= 1);
  assert_in_range(first, SMALL / 32 * 28 / 8 - 82, SMALL / 32 * 28 / 8);
  OK(db_queue_samples_begin(q, s));
  record_grid(q, &w, 1);
  OK(db_queue_samples_end(q, s));
  run(q);
  struct db_pc_sample *samples = read_all(s, &second, &lost);
  size_t of_one = count_reason(samples, second, DB_STALL_NONE);
  assert_true(of_one > 0 && second > of_one);
  assert_true(lost > all / 2);
  free(samples);
  /* Without the ones that a launch of one CTA adds. */
  db_pc_sampler_release(s);
  s = sampler_of(dev, MEMORY);
  OK(db_queue_samples_begin(q, s));
  record_grid(q, &w, 1);
  OK(db_queue_samples_end(q, s));
  run(q);
  size_t one;
  free(read_all(s, &one, NULL));
  assert_int_equal(second, one);
  assert_int_equal(first + lost, all);
  db_pc_sampler_release(s);
  finish(&w);
  db_queue_release(q);
}

/* ---- what is refused ---- */

static void expect_refusal(const char *name, bool restricted, const char *text) {
  db_device *on = db_open(name);
  if (!on) fail_msg("%s", db_error());
  if (restricted) nv_machine_restrict(db_device_os(on));
  assert_null(db_pc_sampler_new(on, 4096));
  assert_string_equal(db_error(), text);
  db_close(on);
}

static void refuses_with_a_reason(void **state) {
  expect_refusal("EMU+NV:sm_90", false,
                 "EMU+NV:sm_90: not supported: PC sampling of sm_90, because its registers are not public; sm_86, "
                 "sm_89 and sm_120 are supported");
  expect_refusal("EMU+AMD:gfx1100", false,
                 "EMU+AMD:gfx1100: not supported: samples of program counters; some NVIDIA GPUs have them");
  expect_refusal("EMU+NV:sm_89", true,
                 "EMU+NV:sm_89: the driver does not permit profiling (/proc/driver/nvidia/params: "
                 "RmProfilingAdminOnly: 1); the administrator permits it with the nvidia module's parameter "
                 "NVreg_RestrictProfilingToAdminUsers=0, or run the program as root or with CAP_PERFMON");
  assert_null(db_pc_sampler_new(dev, 0));
  assert_string_equal(db_error(), DEVICE ": 0 bytes for PC samples; 1 to 4292870144 are possible");
  db_pc_sampler *s = sampler_of(dev, 4096);
  assert_null(db_pc_sampler_new(dev, 4096));
  assert_string_equal(db_error(), DEVICE ": PC sampling: a stream of records (another profiler uses it): the driver "
                                         "returned STATE_IN_USE (0x63)");
  db_pc_sampler_release(s);
  db_pc_sampler_release(sampler_of(dev, 4096)); /* nothing of the refused one is left */
}

static void queues_check_the_order(void **state) {
  db_pc_sampler *s = sampler_of(dev, 4096);
  struct {
    enum db_queue_kind kind;
    int begins, ends;
    const char *text;
  } cases[] = {
      {DB_QUEUE_COPY, 1, 0, DEVICE ": PC samples recorded into a copy queue"},
      {DB_QUEUE_COMPUTE, 2, 0, DEVICE ": the queue already samples; record the end first"},
      {DB_QUEUE_COMPUTE, 0, 1, DEVICE ": the queue does not use this PC sampler; record its begin first"},
      {DB_QUEUE_COMPUTE, 1, 0, DEVICE ": the queue still samples; record the end of the samples first"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    db_queue *q = db_queue_new(dev, cases[i].kind);
    for (int k = 0; k < cases[i].begins; k++) db_queue_samples_begin(q, s);
    for (int k = 0; k < cases[i].ends; k++) db_queue_samples_end(q, s);
    assert_int_equal(db_queue_submit(q, NULL), -EINVAL);
    assert_string_equal(db_error(), cases[i].text);
    db_queue_release(q);
  }
  db_pc_sampler_release(s);
}

/* ---- the stream ---- */

static uint8_t known[PMA_IDS / 8];
static struct pma_rest rest[PMA_IDS];

/* Writes a record: data bytes counted from `first`, for an id. */
static void put_record(uint8_t *at, uint32_t id, const uint8_t *data, unsigned n, uint32_t dropped, uint32_t more) {
  uint32_t header = n | (dropped & 7) << 5 | (id & 0xff) << 8 | (dropped >> 3) << 16 | (id >> 8) << 25 | more;
  memset(at, 0, 32);
  for (unsigned i = 0; i < n && i < 28; i++) at[i < 4 ? i : i + 4] = data[i];
  memcpy(at + 4, &header, 4);
}

static void expect_damage(const uint8_t *stream, size_t size, const char *text) {
  struct pma_samples s;
  assert_int_equal(pma_decode(&s, rest, stream, size, PMA_SAMPLES_8, known), -EBADMSG);
  assert_string_equal(db_error(), text);
  pma_samples_free(&s);
}

static void decodes_streams(void **state) {
  uint8_t stream[32 * 5], data[64];
  struct pma_samples s;
  pma_ids_add(known, 0x25), pma_ids_add(known, 0x3a1);
  /* Seven samples of 8 bytes take two records of one id; another id's record is in between. */
  for (unsigned i = 0; i < 7; i++) {
    uint64_t v = pma_sample8(0x7f1234000 + 16 * i, 9 + (i & 1), i, i & 1);
    memcpy(data + 8 * i, &v, 8);
  }
  put_record(stream, 0x25, data, 28, 0, 0);
  put_record(stream + 32, 0x3a1, data, 8, 0, 0);
  put_record(stream + 64, 0x25, data + 28, 28, 0, 0);
  put_record(stream + 96, 0x7ff, data, 0, 0, 1u << 12);
  OK(pma_decode(&s, rest, stream, 128, PMA_SAMPLES_8, known));
  assert_int_equal(s.n, 8);
  assert_int_equal(s.dropped, 0);
  for (unsigned i = 0, k = 0; i < 8; i++) {
    const struct db_pc_sample *p = &s.sample[i];
    if (p->gpc == 0x3a1 >> 5) {
      assert_int_equal(p->tpc, 0);
      assert_int_equal(p->sm, 1);
      continue;
    }
    assert_int_equal(p->pc, 0x7f1234000 + 16 * k);
    assert_int_equal(p->reason, k & 1 ? DB_STALL_EXECUTION : DB_STALL_MEMORY);
    assert_int_equal(p->warp, k);
    assert_int_equal(p->issued, k & 1);
    assert_true(p->gpc == 1 && p->tpc == 2 && p->sm == 1);
    k++;
  }
  pma_samples_free(&s);
  /* After a record that says that samples were dropped, the half sample before it is void. */
  put_record(stream + 64, 0x25, data, 24, 0x123, 1u << 28);
  OK(pma_decode(&s, rest, stream, 96, PMA_SAMPLES_8, known));
  assert_int_equal(s.n, 3 + 1 + 3);
  assert_int_equal(s.dropped, 0x123);
  pma_samples_free(&s);
  /* The fourth sample's second half is in what is decoded next. */
  put_record(stream + 64, 0x25, data + 28, 28, 0, 0);
  OK(pma_decode(&s, rest, stream, 32, PMA_SAMPLES_8, known));
  assert_int_equal(s.n, 3);
  assert_int_equal(s.dropped, 0);
  pma_samples_free(&s);
  OK(pma_decode(&s, rest, stream + 64, 32, PMA_SAMPLES_8, known));
  assert_int_equal(s.n, 4);
  assert_int_equal(s.sample[0].pc, 0x7f1234000 + 16 * 3);
  assert_int_equal(s.sample[3].pc, 0x7f1234000 + 16 * 6);
  pma_samples_free(&s);
}

static void decodes_long_samples(void **state) {
  /* stall 8, warp 0x35, pc 0x123456789abc0, issued */
  uint64_t pc = 0x123456789abc0 >> 4;
  uint8_t stream[32], data[9] = {8 | 3 << 6};
  struct pma_samples s;
  for (unsigned i = 0; i < 53; i++) data[1 + i / 8] |= (uint8_t)((pc >> i & 1) << i % 8);
  data[8] |= 5 << 4 | 1 << 3;
  put_record(stream, 0x25, data, 9, 0, 0);
  OK(pma_decode(&s, rest, stream, 32, PMA_SAMPLES_9, known));
  assert_int_equal(s.n, 1);
  assert_int_equal(s.sample[0].pc, 0x123456789abc0);
  assert_int_equal(s.sample[0].warp, 0x35);
  assert_int_equal(s.sample[0].reason, DB_STALL_MEMORY);
  assert_true(s.sample[0].issued);
  pma_samples_free(&s);
}

static void damage_has_an_offset(void **state) {
  uint8_t stream[96], data[32] = {0};
  put_record(stream, 0x25, data, 24, 0, 0);
  put_record(stream + 32, 0x25, data, 24, 0, 0);
  put_record(stream + 64, 0x25, data, 29, 0, 0);
  expect_damage(stream, 96, "PC samples: the record at offset 0x40 has 29 bytes of data; 28 are possible");
  put_record(stream + 32, 0x26, data, 24, 0, 0);
  expect_damage(stream, 96, "PC samples: the record at offset 0x20 is of SM 0x26, which was not set up");
  expect_damage(stream, 80, "PC samples: the record at offset 0x40 is cut off");
}

/* ---- registers ---- */

static void expect_write(const struct pma_ops *ops, uint32_t offset, uint32_t mask, uint32_t value) {
  unsigned found = 0;
  for (unsigned i = 0; i < ops->n; i++)
    found += ops->op[i].offset == offset && ops->op[i].op == 1 && ops->op[i].type == 0 && ops->op[i].mask == mask &&
             ops->op[i].value == value;
  if (found != 1) fail_msg("0x%x = 0x%x is written %u times", offset, value, found);
}

/* The numbers are those of facts on each family, not the names of pma_wire.h. */
static void registers_of_each_family(void **state) {
  static const struct pma_shape shape = {.gpcs = 2, .tpcs = {6, 5}, .tpcs_per_gpc = 6, .sms_per_tpc = 2};
  assert_null(pma_chip(0x900));
  assert_null(pma_chip(0x800));
  assert_ptr_equal(pma_chip(0x806), pma_chip(0x809));
  assert_ptr_equal(pma_chip(0xa04), pma_chip(0xc00));
  struct pma_ops ga = {0}, gb = {0};
  pma_chip(0x806)->setup(&ga, &shape);
  assert_int_equal(ga.n, 2 + 4 + 1 + 1 + 22 * 8);
  assert_int_equal(ga.first, 2);
  expect_write(&ga, 0x244200, 0x100, 0x100);
  expect_write(&ga, 0x24a668, ~0u, ~0u);
  expect_write(&ga, 0x24a620, ~0u, 0x02000007);
  expect_write(&ga, 0x419b04, ~0u, 0x80808a);
  expect_write(&ga, 0x180000 + 0x400 + 0x128, ~0u, 0);
  /* The second GPC lacks a TPC, so its first one is the second unit. */
  expect_write(&ga, 0x184000 + 0x200 + 0x1000 + 0x128, ~0u, 1 << 5 | 1);
  expect_write(&ga, 0x184000 + 5 * 0x200 + 0x400 + 0x128, ~0u, 1 << 5 | 4 << 1);
  expect_write(&ga, 0x180000 + 0x400 + 0x50, ~0u, 0x001e201f);
  expect_write(&ga, 0x180000 + 0x400 + 0x108, ~0u, 0x20);
  assert_int_equal(pma_chip(0x809)->context_enable, 0x419bdc);
  pma_chip(0xc00)->setup(&gb, &shape);
  assert_int_equal(gb.n, 6 + 2 + 11 * 4 + 1 + 22 * 9);
  assert_int_equal(gb.first, 0);
  expect_write(&gb, 0x2b1128, ~0u, 480);
  expect_write(&gb, 0x2b113c, ~0u, 0x80000000);
  expect_write(&gb, 0x2b0a24, ~0u, 0x04000001);
  expect_write(&gb, 0x2b0a10, ~0u, 0x80000002);
  expect_write(&gb, 0x204000 + 0x200 + 4 * 0x200 + 0x120, ~0u, 0);
  expect_write(&gb, 0x424304, ~0u, 0x80808a);
  expect_write(&gb, 0x204000 + 0x800 + 9 * 0x200 + 0x128, ~0u, 1 << 5 | 4 << 1 | 1);
  expect_write(&gb, 0x204000 + 0x800 + 9 * 0x200 + 0x120, ~0u, 0x100000);
  assert_int_equal(pma_chip(0xa04)->context_enable, 0x4243dc);
  free(ga.op), free(gb.op);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(samples_what_was_executed),
      cmocka_unit_test(names_stalls),
      cmocka_unit_test(samples_between_begin_and_end),
      cmocka_unit_test(counts_what_is_lost),
      cmocka_unit_test(refuses_with_a_reason),
      cmocka_unit_test(queues_check_the_order),
      cmocka_unit_test(decodes_streams),
      cmocka_unit_test(decodes_long_samples),
      cmocka_unit_test(damage_has_an_offset),
      cmocka_unit_test(registers_of_each_family),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
