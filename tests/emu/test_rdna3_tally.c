/* Checks the counts of short code, instruction by instruction: classes, bytes by memory, LDS bank conflicts, active
 * lanes and divergent branches, in both wave sizes. */
#include "emu/exec/lines.h"
#include "wave.h"

enum { DATA_VA = 0x400000, BYTES = 16384, SCRATCH_VA = 0x800000 };

struct bench {
  struct wave *t;
  struct emu_detail d;
  void *data, *scratch;
  unsigned lanes;
};

static int setup(void **state, bool wave64) {
  struct bench *b = calloc(1, sizeof *b);
  b->t = wave_new(wave64);
  b->lanes = wave64 ? 64 : 32;
  b->data = aligned_alloc(4096, BYTES), b->scratch = aligned_alloc(4096, BYTES);
  memset(b->data, 0, BYTES), memset(b->scratch, 0, BYTES);
  assert_int_equal(vm_map(b->t->vm, DATA_VA, BYTES, b->data, VM_READ | VM_WRITE, 2), 0);
  assert_int_equal(vm_map(b->t->vm, SCRATCH_VA, BYTES, b->scratch, VM_READ | VM_WRITE, 3), 0);
  b->t->w.scratch_base = SCRATCH_VA, b->t->w.scratch_size = 64 * b->lanes;
  *state = b;
  return 0;
}
static int setup32(void **state) { return setup(state, false); }
static int setup64(void **state) { return setup(state, true); }
static int teardown(void **state) {
  struct bench *b = *state;
  wave_free(b->t);
  free(b->data), free(b->scratch), free(b);
  return 0;
}

/* v0 = lane * 4, v[2:3] an address of data, v[6:7] one of LDS, s[4:5] data, s[8:11] a buffer of 64 bytes. */
static void run_counted(struct bench *b, const char *text, enum emu_counting counting) {
  struct rdna3_wave *w = &b->t->w;
  for (unsigned l = 0; l < b->lanes; l++) {
    *wave_v(b->t, 0, l) = l * 4;
    *wave_v(b->t, 2, l) = DATA_VA + l * 16, *wave_v(b->t, 3, l) = 0;
    *wave_v(b->t, 6, l) = l * 4, *wave_v(b->t, 7, l) = RDNA3_SHARED_HI;
  }
  w->s[4] = DATA_VA, w->s[5] = 0;
  w->s[8] = DATA_VA, w->s[9] = 0, w->s[10] = 64, w->s[11] = 0x31014000;
  w->s[RDNA3_EXEC] = ~0u, w->s[RDNA3_EXEC + 1] = w->wave64 ? ~0u : 0;
  w->exec = 0, w->executed = 0, w->counts = true;
  rdna3_count_lanes(w);
  b->t->stats.counting = counting;
  memset(&b->d, 0, sizeof b->d);
  b->t->stats.detail = &b->d;
  wave_run_ok(b->t, 0, text);
  uint64_t sum = 0;
  for (unsigned i = 0; i < EMU_CLASS_COUNT; i++) sum += b->d.executed[i];
  assert_int_equal(sum, w->executed);
}

/* Runs the code twice: counting classes and counting everything must agree. Returns the latter. */
static const struct emu_detail *tally(struct bench *b, const char *text) {
  char closed[2048];
  snprintf(closed, sizeof closed, "%s\ns_endpgm\n", text);
  wave_assemble(b->t, closed);
  run_counted(b, text, EMU_COUNT_CLASSES_LDS);
  struct emu_detail classes = b->d;
  run_counted(b, text, EMU_COUNT_ALL);
  assert_memory_equal(classes.executed, b->d.executed, sizeof classes.executed);
  assert_int_equal(classes.lds_passes, b->d.lds_passes);
  assert_int_equal(classes.lds_conflicts, b->d.lds_conflicts);
  assert_int_equal(classes.lds_cycles, b->d.lds_cycles);
  assert_int_equal(classes.vector, 0);
  return &b->d;
}

static void counts_classes(void **state) {
  const struct emu_detail *d = tally(*state, "s_mov_b32 s0, 3\n"
                                             "0:\n"
                                             "v_add_f32 v1, v1, v1\n"
                                             "v_exp_f32 v1, v1\n"
                                             "s_sub_u32 s0, s0, 1\n"
                                             "s_cmp_lg_u32 s0, 0\n"
                                             "s_cbranch_scc1 0b\n"
                                             "v_wmma_f32_16x16x16_f16 v[16:23], v[32:39], v[40:47], v[16:23]\n"
                                             "s_load_b64 s[12:13], s[4:5], null\n"
                                             "s_waitcnt lgkmcnt(0)\n"
                                             "s_branch 1f\n"
                                             "1:\n"
                                             "s_nop 0\n");
  assert_int_equal(d->executed[EMU_SALU_CLASS], 7);
  assert_int_equal(d->executed[EMU_VALU_CLASS], 3);
  assert_int_equal(d->executed[EMU_TRANS_CLASS], 3);
  assert_int_equal(d->executed[EMU_MATRIX_CLASS], 1);
  assert_int_equal(d->executed[EMU_SMEM_CLASS], 1);
  assert_int_equal(d->executed[EMU_BRANCH_CLASS], 4);
  assert_int_equal(d->executed[EMU_CONTROL_CLASS], 3);
  assert_int_equal(d->approximate, 4);
  assert_int_equal(d->branches, 3);
  assert_int_equal(d->divergent, 0);
  assert_int_equal(d->vector, 7);
  assert_int_equal(d->partial, 0);
  assert_int_equal(d->loaded[EMU_SCALAR_SPACE], 8);
}

static void counts_bytes(void **state) {
  struct bench *b = *state;
  unsigned lanes = b->lanes;
  const struct emu_detail *d = tally(b, "global_load_b128 v[8:11], v[2:3], off\n"
                                        "global_store_b16 v0, v1, s[4:5]\n"
                                        "global_load_d16_hi_u8 v8, v0, s[4:5]\n"
                                        "global_atomic_add_u32 v0, v1, s[4:5]\n"
                                        "flat_load_b32 v8, v[6:7]\n"
                                        "flat_store_b64 v[2:3], v[8:9]\n"
                                        "scratch_store_b32 off, v1, off offset:4\n"
                                        "scratch_load_b64 v[8:9], off, off offset:8\n"
                                        "ds_load_2addr_b32 v[8:9], v0 offset1:32\n"
                                        "ds_store_b8 v0, v1\n"
                                        "ds_add_u64 v1, v[8:9]\n"
                                        "ds_append v8\n"
                                        "ds_bpermute_b32 v8, v0, v1\n"
                                        "buffer_load_b32 v8, v0, s[8:11], 0 offen\n"
                                        "s_load_b256 s[12:19], s[4:5], 0x20\n");
  assert_int_equal(d->loaded[EMU_GLOBAL_SPACE], lanes * (16 + 1 + 4) + 64); /* the buffer has 16 words */
  assert_int_equal(d->stored[EMU_GLOBAL_SPACE], lanes * (2 + 4 + 8));
  assert_int_equal(d->loaded[EMU_SCRATCH_SPACE], lanes * 8);
  assert_int_equal(d->stored[EMU_SCRATCH_SPACE], lanes * 4);
  assert_int_equal(d->loaded[EMU_LDS_SPACE], lanes * (4 + 8 + 8) + 4);
  assert_int_equal(d->stored[EMU_LDS_SPACE], lanes * (1 + 8) + 4);
  assert_int_equal(d->loaded[EMU_SCALAR_SPACE], 32);
  assert_int_equal(d->executed[EMU_LDS_CLASS], 5);
  assert_int_equal(d->executed[EMU_GLOBAL_CLASS], 7);
  assert_int_equal(d->executed[EMU_SCRATCH_CLASS], 2);
}

/* Lines of 128 bytes per half wave, and the memory touched, including that of scalar loads. */
static void counts_lines(void **state) {
  struct bench *b = *state;
  struct emu_lines lines = {0};
  static const struct {
    const char *text;
    unsigned lines;
  } cases[] = {
      {"global_load_b128 v[8:11], v[2:3], off\n", 4}, /* 16 bytes apart */
      {"global_load_b32 v8, v0, s[4:5]\n", 1},        /* adjacent */
      {"global_store_b8 v0, v1, s[4:5] offset:2\n", 1},
      {"flat_load_b32 v8, v[2:3]\n", 4},
      {"flat_load_b32 v8, v[6:7]\n", 0}, /* LDS */
      {"ds_load_b32 v8, v0\n", 0},
      {"v_mul_u32_u24 v0, 32, v0\nglobal_load_b32 v8, v0, s[4:5] offset:64\n", 32},
      {"v_mul_u32_u24 v0, 32, v0\nglobal_load_b32 v8, v0, s[4:5] offset:126\n", 33}, /* each in two */
  };
  b->t->stats.lines = &lines;
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct emu_detail *d = tally(b, cases[i].text);
    uint64_t want = cases[i].lines * (uint64_t)(b->lanes / 32);
    if (d->lines != want)
      fail_msg("%s: %llu lines, not %llu", cases[i].text, (unsigned long long)d->lines, (unsigned long long)want);
  }
  emu_lines_free(&lines);
  for (int i = 0; i < 2; i++) tally(b, "global_load_b32 v8, v0, s[4:5]\nglobal_load_b32 v8, v0, s[4:5] offset:4\n");
  assert_int_equal(emu_lines_bytes(&lines), b->lanes * 4 + 128);
  tally(b, "s_load_b64 s[12:13], s[4:5], 0x1000\nglobal_store_b32 v0, v1, s[4:5]\n");
  assert_int_equal(emu_lines_bytes(&lines), 2 * b->lanes * 4 + 2 * 128);
  struct emu_lines sum = {0};
  emu_lines_add(&sum, &lines);
  emu_lines_add(&sum, &lines);
  assert_int_equal(emu_lines_bytes(&sum), emu_lines_bytes(&lines));
  emu_lines_free(&lines);
  emu_lines_free(&sum);
  b->t->stats.lines = NULL;
}

/* Extra cycles of one half wave of 32 lanes. */
static void counts_bank_conflicts(void **state) {
  struct bench *b = *state;
  static const struct {
    const char *text;
    unsigned extra;
  } cases[] = {
      {"ds_load_b32 v8, v0", 0},                                /* one word per lane */
      {"v_mov_b32 v1, 0\nds_load_b32 v8, v1", 0},               /* one word for all */
      {"v_lshlrev_b32 v1, 1, v0\nds_load_b32 v8, v1", 1},       /* every second bank */
      {"v_lshlrev_b32 v1, 5, v0\nds_load_b32 v8, v1", 31},      /* one bank */
      {"v_mul_u32_u24 v1, 33, v0\nds_store_b32 v1, v0", 0},     /* rows of 33 words */
      {"v_lshrrev_b32 v1, 2, v0\nds_load_u8 v8, v1", 0},        /* four lanes per word */
      {"v_lshlrev_b32 v1, 1, v0\nds_load_b64 v[8:9], v1", 0},   /* two words per lane */
      {"v_lshlrev_b32 v1, 2, v0\nds_load_b128 v[8:11], v1", 0}, /* four */
      {"v_lshlrev_b32 v1, 3, v0\nds_load_b128 v[8:11], v1", 4}, /* four of eight: 1 in each of 4 parts */
      {"ds_load_2addr_b32 v[8:9], v0 offset1:1", 0},
      {"v_lshlrev_b32 v1, 1, v0\nds_store_2addr_b32 v1, v0, v0 offset1:1", 2},
      {"v_lshlrev_b32 v6, 1, v6\nflat_load_b32 v8, v[6:7]", 1},
      {"s_mov_b64 exec, 3\nv_lshlrev_b32 v1, 5, v0\nds_load_b32 v8, v1", 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint64_t halves = strstr(cases[i].text, "exec") ? 1 : b->lanes / 32;
    const struct emu_detail *d = tally(b, cases[i].text);
    if (d->lds_conflicts != cases[i].extra * halves)
      fail_msg("%s: %llu conflict cycles, not %u * %u", cases[i].text, (unsigned long long)d->lds_conflicts,
               cases[i].extra, (unsigned)halves);
  }
}

/* An if and its else, taken by 8 lanes and the others; then a loop that lanes leave one after the other; then a uniform
 * if. */
static void counts_divergence(void **state) {
  const struct emu_detail *d = tally(*state, "v_cmp_gt_u32 vcc_lo, 32, v0\n" /* lanes 0..7 */
                                             "s_and_saveexec_b32 s0, vcc_lo\n"
                                             "s_cbranch_execz 0f\n"
                                             "v_mov_b32 v1, v0\n" /* 8 lanes */
                                             "0:\n"
                                             "s_xor_b32 exec_lo, exec_lo, s0\n"
                                             "v_mov_b32 v1, v0\n" /* 24 lanes */
                                             "s_mov_b32 exec_lo, s0\n"
                                             "1:\n"
                                             "v_cmpx_gt_u32 12, v0\n" /* lanes 0..2: 32, then 3, 2, 1 */
                                             "v_add_nc_u32 v0, v0, 4\n"
                                             "s_cbranch_execnz 1b\n"
                                             "s_mov_b32 exec_lo, s0\n"
                                             "s_cbranch_execz 2f\n"
                                             "s_mov_b32 vcc_lo, exec_lo\n"
                                             "s_cbranch_vccz 2f\n"
                                             "s_mov_b32 vcc_lo, 1\n"
                                             "s_cbranch_vccz 2f\n"
                                             "2:\n");
  assert_int_equal(d->branches, 1 + 4 + 3);
  /* The if; the loop at 3 lanes of 32, 2 of 3 and 1 of 2, but not at 0 of 1; the vote of one lane. */
  assert_int_equal(d->divergent, 1 + 3 + 1);
  assert_int_equal(d->vector, 1 + 2 + 4 + 4);
  assert_int_equal(d->partial, 2 + 3 + 4);
  assert_int_equal(d->lanes, 32 + 8 + 24 + (32 + 3 + 2 + 1) + (3 + 2 + 1 + 0));
}

/* The report of an access outside LDS leaves the counts as they are. */
static void counts_outside_lds_once(void **state) {
  struct bench *b = *state;
  struct shader_notes notes = {0};
  b->t->dispatch.notes = &notes, b->t->w.lds_size = 0;
  const struct emu_detail *d = tally(b, "s_nop 0\nds_store_b32 v0, v1\n");
  assert_int_equal(notes.lds_outside, 2 * 32);
  assert_int_equal(d->executed[EMU_LDS_CLASS], 1);
}

/* Code built with counting is not run when counting is off, and vice versa. */
static void counts_nothing_when_off(void **state) {
  struct bench *b = *state;
  tally(b, "v_mov_b32 v1, v0");
  b->t->stats.detail = NULL, b->t->w.counts = false;
  b->t->w.executed = 0;
  wave_run_ok(b->t, 0, "off");
  assert_int_equal(b->t->w.executed, 2);
  assert_int_equal(b->d.executed[EMU_VALU_CLASS], 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(counts_classes, setup32, teardown),
      cmocka_unit_test_setup_teardown(counts_bytes, setup32, teardown),
      cmocka_unit_test_setup_teardown(counts_bytes, setup64, teardown),
      cmocka_unit_test_setup_teardown(counts_lines, setup32, teardown),
      cmocka_unit_test_setup_teardown(counts_lines, setup64, teardown),
      cmocka_unit_test_setup_teardown(counts_bank_conflicts, setup32, teardown),
      cmocka_unit_test_setup_teardown(counts_bank_conflicts, setup64, teardown),
      cmocka_unit_test_setup_teardown(counts_divergence, setup32, teardown),
      cmocka_unit_test_setup_teardown(counts_outside_lds_once, setup32, teardown),
      cmocka_unit_test_setup_teardown(counts_nothing_when_off, setup32, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
