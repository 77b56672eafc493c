/* Counts of each instruction on emulated GPUs: they add up to the counts of the kernel; texts; the model of caches. */
#define DEVICE "EMU+AMD:gfx1100"
#define FILES  "%s"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "device_test.h"
#include "emu/emu.h"
#include "emu/exec/caches.h"
#include "hcq/device.h"

enum { BYTES = 1 << 18 };

/* ---- kernels ---- */

static const struct launch {
  const char *device, *file, *kernel;
  uint32_t grid[2], block[2];
  unsigned buffers, values;
  uint32_t value;   /* of all arguments after the buffers */
  const char *text; /* of an instruction */
} launches[] = {
    {DEVICE, KERNELS_DIR "/bench/emu/tiled.gfx1100.co", "tiled", {4, 4}, {16, 16}, 3, 1, 64, "s_barrier"},
    {DEVICE, KERNELS_DIR "/bench/emu/divergent.gfx1100.co", "divergent", {8, 1}, {256, 1}, 2, 1, 120, "s_cbranch"},
    {"EMU+NV:sm_90",
     DATA_DIR "/../../bench/kernels/reduce.sm_90.cubin",
     "reduce",
     {20, 1},
     {256, 1},
     2,
     1,
     9999,
     "SHFL"},
    {"EMU+NV:sm_90",
     DATA_DIR "/../../bench/kernels/histogram.sm_90.cubin",
     "histogram",
     {4, 1},
     {256, 1},
     2,
     1,
     9999,
     "ATOMS"},
    /* A GPU without a model of caches. */
    {"EMU+NV:sm_89", DATA_DIR "/nv/cubin/12.4.sm_80.cubin", "saxpy", {4, 1}, {256, 1}, 2, 2, 999, "FFMA"},
};

static void run_launch(db_device *on, const struct launch *l) {
  struct db_arg args[4] = {{0}};
  unsigned n = l->buffers + l->values;
  for (unsigned i = 0; i < l->buffers; i++) {
    uint32_t *data = db_buffer_host(args[i].buffer = db_alloc(on, BYTES, DB_BUFFER_HOST));
    for (uint32_t k = 0; k < BYTES / 4; k++) data[k] = k * 2654435761u >> 9;
  }
  for (unsigned i = l->buffers; i < n; i++) args[i].bits = l->value;
  db_program *p = load_on(on, l->file, l->kernel);
  db_queue *q = db_queue_new(on, DB_QUEUE_COMPUTE);
  OK(db_queue_exec(q, p, args, n, (uint32_t[3]){l->grid[0], l->grid[1], 1},
                   (uint32_t[3]){l->block[0], l->block[1], 1}));
  run(q);
  for (unsigned i = 0; i < l->buffers; i++) db_buffer_release(args[i].buffer);
  db_queue_release(q);
  db_program_release(p);
}

/* The counts of the instructions add up to the kernel's. */
static void compare_sums(const char *name, const struct emu_kernel_stats *k, const struct emu_site *site, size_t n,
                         bool model) {
  struct emu_site sum = {0};
  for (size_t i = 0; i < n; i++) {
#define ADD(field) sum.field += site[i].field
    ADD(executed), ADD(lanes), ADD(lines), ADD(sectors), ADD(branches), ADD(divergent), ADD(lds_cycles);
    ADD(lds_conflicts), ADD(l1_hits), ADD(l2_hits), ADD(memory_lines), ADD(wait_cycles);
#undef ADD
    if (i && site[i].pc <= site[i - 1].pc) fail_msg("%s: the instructions are not in the order of addresses", name);
    if (!*site[i].text) fail_msg("%s: the instruction at 0x%llx has no text", name, (unsigned long long)site[i].pc);
  }
  const struct {
    const char *what;
    uint64_t sum, all;
  } pairs[] = {{"executed", sum.executed, k->instructions},
#define PAIR(field) {#field, sum.field, k->detail.field}
               PAIR(lanes),
               PAIR(lines),
               PAIR(sectors),
               PAIR(branches),
               PAIR(divergent),
               PAIR(lds_cycles),
               PAIR(lds_conflicts),
               PAIR(l1_hits),
               PAIR(l2_hits),
               PAIR(memory_lines),
               PAIR(wait_cycles)};
#undef PAIR
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    if (pairs[i].sum != pairs[i].all)
      fail_msg("%s: %s is %llu, the kernel's is %llu", name, pairs[i].what, (unsigned long long)pairs[i].sum,
               (unsigned long long)pairs[i].all);
  assert_int_equal(sum.l1_hits + sum.l2_hits + sum.memory_lines, model ? sum.lines : 0);
  assert_true((sum.memory_lines > 0 && sum.wait_cycles > 0) == model);
  assert_true(sum.lines > 0 && (!model || sum.lds_cycles + sum.branches > 0));
}

static void instructions_add_up(void **state) {
  for (size_t i = 0; i < sizeof launches / sizeof *launches; i++) {
    const struct launch *l = &launches[i];
    db_device *on = db_open(l->device);
    if (!on) fail_msg("%s", db_error());
    struct os *os = db_device_os(on);
    struct emu_kernel_stats *kernels;
    struct emu_site *site;
    size_t nkernels, n;
    char line[512];
    OK(emu_assumptions(os, 0, line, sizeof line));
    bool model = strncmp(l->device, "EMU+NV:sm_89", 12) != 0;
    assert_int_equal(strstr(line, "model of caches: ") != NULL, model);
    OK(emu_annotate(os, true));
    run_launch(on, l);
    OK(emu_annotate(os, false));
    run_launch(on, l); /* counts nothing */
    OK(emu_kernels(os, 0, &kernels, &nkernels));
    bool found = false;
    for (size_t k = 0; k < nkernels; k++) {
      if (emu_instructions(os, 0, &kernels[k], &site, &n)) continue;
      compare_sums(l->kernel, &kernels[k], site, n, model);
      for (size_t s = 0; s < n; s++) found |= strstr(site[s].text, l->text) != NULL;
      free(site);
    }
    if (!found) fail_msg("%s: no instruction contains %s", l->kernel, l->text);
    struct emu_kernel_stats unknown = {.pgm = 1};
    assert_int_equal(emu_instructions(os, 0, &unknown, &site, &n), -ENOENT);
    assert_int_equal(emu_instructions(os, 9, &unknown, &site, &n), -EINVAL);
    free(kernels);
    db_close(on);
  }
}

/* ---- caches ---- */

static void access(struct emu_caches *c, struct emu_detail *d, uint64_t line, bool store) {
  uint32_t cycles = emu_caches_access(c, d, line, 1, store, 0);
  if (!store) d->wait_cycles += cycles;
}

static void expect(const struct emu_detail *d, uint64_t l1, uint64_t l2, uint64_t memory, uint64_t wait) {
  assert_int_equal(d->l1_hits, l1);
  assert_int_equal(d->l2_hits, l2);
  assert_int_equal(d->memory_lines, memory);
  assert_int_equal(d->wait_cycles, wait);
}

static void model_of_caches(void **state) {
  /* L1: two sets of four lines, L2: four sets of four. They take 1 and 10 cycles, memory 100. */
  static const struct emu_cache_model m = {"tiny", 1, 4, 2, 4, 1, 10, 100};
  struct emu_caches c;
  struct emu_detail d = {0};
  OK(emu_caches_init(&c, &m));
  for (uint64_t line = 0; line < 8; line += 2) access(&c, &d, line, false); /* fills a set of L1 */
  expect(&d, 0, 0, 4, 400);
  access(&c, &d, 0, false); /* the oldest line becomes the newest */
  expect(&d, 1, 0, 4, 401);
  access(&c, &d, 8, false); /* replaces line 2 */
  access(&c, &d, 0, false);
  expect(&d, 2, 0, 5, 502);
  access(&c, &d, 2, false); /* is in L2 */
  expect(&d, 2, 1, 5, 512);
  access(&c, &d, 3, true); /* stores do not wait and are not in L1 afterwards */
  access(&c, &d, 3, false);
  expect(&d, 2, 2, 6, 522);
  emu_caches_begin(&c); /* the next workgroup has another L1 */
  access(&c, &d, 3, false);
  expect(&d, 2, 3, 6, 532);
  d.wait_cycles += emu_caches_access(&c, &d, 3, 1 | 1 << 17, false, 0); /* lines 3 and 20: the slowest one counts */
  expect(&d, 3, 3, 7, 632);
  assert_int_equal(emu_caches_access(&c, &d, 20, 1, false, 50), 50);
  emu_caches_free(&c);
  assert_non_null(emu_cache_model("sm_90"));
  assert_null(emu_cache_model("sm_80"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(instructions_add_up), cmocka_unit_test(model_of_caches)};
  return cmocka_run_group_tests(tests, open_device, close_device);
}
