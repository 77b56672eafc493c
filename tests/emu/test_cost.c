/* Model time: its value for counts that are easy to add up by hand, and what increases it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "emu/exec/cost.h"

static uint64_t ps_of(const char *arch, const struct emu_detail *d, uint64_t waves, uint64_t groups,
                      uint64_t resident) {
  return emu_model_ps(arch, d, &(struct emu_launch){waves, groups, resident});
}

enum { LAUNCH_PS = 2000000 };

/* By the rows of cost.def. */
static void estimates_times(void **state) {
  /* 132 SMs, each with a CTA of 32 warps of 1000 FFMA: 4 per cycle, 8000 cycles at 1830 MHz. */
  struct emu_detail d = {.executed[EMU_VALU_CLASS] = 132 * 32 * 1000};
  uint64_t want = LAUNCH_PS + (uint64_t)(8000 * 1e6 / 1830);
  assert_in_range(ps_of("sm_90", &d, 132 * 32, 132, 64), want - 1, want + 1);
  /* One more CTA with the same work waits for an SM, so the time is that of two CTAs in a row. */
  d.executed[EMU_VALU_CLASS] = 133 * 32 * 1000;
  want = LAUNCH_PS + (uint64_t)(16000 * 1e6 / 1830);
  assert_in_range(ps_of("sm_90", &d, 133 * 32, 133, 64), want - 1, want + 1);
  /* A single wave waits for its instructions: 1000 loads of 320 cycles, four in flight. */
  d = (struct emu_detail){.executed[EMU_GLOBAL_CLASS] = 1000, .lines = 1000};
  want = LAUNCH_PS + (uint64_t)(80000 * 1e6 / 2500);
  assert_in_range(ps_of("gfx1100", &d, 1, 1, 32), want - 1, want + 1);
  /* Memory: 960 MB in a millisecond. */
  d.memory_bytes = 960000000;
  assert_int_equal(ps_of("gfx1100", &d, 1, 1, 32), LAUNCH_PS + UINT64_C(1000000000));
  /* An H100 multiplies matrices of 8192 in 1.11 ms at 989 TFLOP/s: blocks of 16 x 8 x 8 multiply-adds. */
  d = (struct emu_detail){.executed[EMU_MATRIX_CLASS] = 1, .matrix_blocks = UINT64_C(8192) * 8192 * 8192 / 1024};
  double seconds = (double)(ps_of("sm_90", &d, 132 * 4, 132, 64) - LAUNCH_PS) * 1e-12;
  assert_true(fabs(2.0 * 8192 * 8192 * 8192 / seconds / 989e12 - 1) < 0.01);
  /* And a 7900 XTX at 123 TFLOP/s. */
  seconds = (double)(ps_of("gfx1100", &d, 96 * 4, 96, 32) - LAUNCH_PS) * 1e-12;
  assert_true(fabs(2.0 * 8192 * 8192 * 8192 / seconds / 123e12 - 1) < 0.01);
}

static void more_work_takes_longer(void **state) {
  static const char *const archs[] = {"sm_90", "gfx1100"};
  for (unsigned a = 0; a < 2; a++) {
    struct emu_detail d = {.executed = {1000, 100, 100, 100, 4000, 100, 100, 1000, 10, 500}, .lines = 1000};
    uint64_t waves = 64, groups = 16, base = ps_of(archs[a], &d, waves, groups, 16);
    assert_true(base > LAUNCH_PS);
    for (unsigned i = 0; i < EMU_CLASS_COUNT; i++) {
      struct emu_detail more = d;
      more.executed[i] += 100000;
      assert_true(ps_of(archs[a], &more, waves, groups, 16) > base);
    }
    struct emu_detail more = d;
    more.lines = 1000000; /* not adjacent */
    assert_true(ps_of(archs[a], &more, waves, groups, 16) > base);
    more = d, more.lds_cycles = 1000000;
    assert_true(ps_of(archs[a], &more, waves, groups, 16) > base);
    more = d, more.matrix_blocks = 10000000;
    assert_true(ps_of(archs[a], &more, waves, groups, 16) > base);
    assert_true(ps_of(archs[a], &d, waves, 1, 4) > ps_of(archs[a], &d, waves, 1, 32)); /* few waves fit */
    assert_int_equal(ps_of(archs[a], &d, waves, groups, 16), base);
  }
  struct emu_detail none = {0};
  assert_int_equal(ps_of("sm_90", &none, 0, 0, 0), LAUNCH_PS);
  assert_int_equal(ps_of("sm_86", &none, 1, 1, 0), 0); /* cost.def has no rows */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(estimates_times), cmocka_unit_test(more_work_takes_longer)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
