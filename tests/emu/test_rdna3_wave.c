/* Wave operations other than arithmetic: scalars, branches, modes, lanes moving data, pairs, matrices, barriers,
 * faults. Registers are compared with the results that the ISA document defines. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include "emu/race.h"
#include "wave.h"

typedef uint32_t u32;
typedef uint64_t u64;
static u64 seed = 7;

static float f32(u32 v) {
  float r;
  memcpy(&r, &v, 4);
  return r;
}
static u32 bits(float x) {
  u32 r;
  memcpy(&r, &x, 4);
  return r;
}
static u32 half(float x) {
  _Float16 h = (_Float16)x;
  uint16_t r;
  memcpy(&r, &h, 2);
  return r;
}
static void fill(struct wave *t) {
  for (unsigned r = 0; r < 64; r++)
    for (unsigned l = 0; l < 64; l++) *wave_v(t, r, l) = (u32)wave_random(&seed);
}
static void run(struct wave *t, const char *text) {
  char all[4096];
  snprintf(all, sizeof all, "%s\ns_endpgm\n", text);
  wave_assemble(t, all);
  wave_run_ok(t, 0, text);
}

/* ---- scalar instructions: s[0:1] and s[2:3] in, s[4:5] and SCC out ---- */
struct scalar {
  const char *text;
  u64 a, b;
  u32 scc_in;
  u64 r;
  u32 scc;
};
static const struct scalar scalars[] = {
    {"s_add_u32 s4, s0, s2", 0xffffffff, 1, 0, 0, 1},
    {"s_add_u32 s4, s0, s2", 5, 6, 1, 11, 0},
    {"s_addc_u32 s4, s0, s2", 0xffffffff, 0, 1, 0, 1},
    {"s_addc_u32 s4, s0, s2", 0xffffffff, 0xffffffff, 1, 0xffffffff, 1},
    {"s_subb_u32 s4, s0, s2", 0, 0xffffffff, 1, 0, 1},
    {"s_subb_u32 s4, s0, s2", 7, 3, 1, 3, 0},
    {"s_sub_u32 s4, s0, s2", 3, 4, 0, 0xffffffff, 1},
    {"s_add_i32 s4, s0, s2", 0x7fffffff, 1, 0, 0x80000000, 1},
    {"s_add_i32 s4, s0, s2", 0xffffffff, 1, 1, 0, 0},
    {"s_sub_i32 s4, s0, s2", 0x80000000, 1, 0, 0x7fffffff, 1},
    {"s_absdiff_i32 s4, s0, s2", 5, 0xfffffffe, 0, 7, 1},
    {"s_lshl_b32 s4, s0, s2", 3, 33, 0, 6, 1},
    {"s_lshr_b64 s[4:5], s[0:1], s2", 0x8000000000000000, 63, 0, 1, 1},
    {"s_ashr_i64 s[4:5], s[0:1], s2", 0x8000000000000000, 62, 0, 0xfffffffffffffffe, 1},
    {"s_ashr_i32 s4, s0, s2", 0x80000000, 31, 0, 0xffffffff, 1},
    {"s_lshl3_add_u32 s4, s0, s2", 0x20000000, 1, 0, 1, 1},
    {"s_min_i32 s4, s0, s2", 0xffffffff, 1, 0, 0xffffffff, 1},
    {"s_max_u32 s4, s0, s2", 3, 0xfffffff0, 1, 0xfffffff0, 0},
    {"s_nand_b32 s4, s0, s2", 0xffffffff, 0xffffffff, 1, 0, 0},
    {"s_xnor_b64 s[4:5], s[0:1], s[2:3]", 5, 5, 0, ~0ull, 1},
    {"s_or_not1_b32 s4, s0, s2", 0, 0xfffffff0, 0, 15, 1},
    {"s_bfe_u32 s4, s0, s2", 0xabcd1234, 8 | 8 << 16, 0, 0x12, 1},
    {"s_bfe_i32 s4, s0, s2", 0xabcdf234, 8 | 8 << 16, 0, 0xfffffff2, 1},
    {"s_bfe_i64 s[4:5], s[0:1], s2", 0x00f0000000000000, 52 | 4 << 16, 0, ~0ull, 1},
    {"s_bfe_u64 s[4:5], s[0:1], s2", ~0ull, 60 | 64 << 16, 0, 15, 1},
    {"s_bfm_b32 s4, s0, s2", 4, 8, 1, 0xf00, 1},
    {"s_bfm_b64 s[4:5], s0, s2", 4, 40, 0, 0xf0000000000, 0},
    {"s_mul_hi_i32 s4, s0, s2", 0xffffffff, 2, 1, 0xffffffff, 1},
    {"s_mul_hi_u32 s4, s0, s2", 0xffffffff, 2, 0, 1, 0},
    {"s_cselect_b32 s4, s0, s2", 1, 2, 1, 1, 1},
    {"s_cselect_b64 s[4:5], s[0:1], s[2:3]", 1, 2ull << 40, 0, 2ull << 40, 0},
    {"s_pack_lh_b32_b16 s4, s0, s2", 0x11112222, 0x33334444, 0, 0x33332222, 0},
    {"s_pack_hl_b32_b16 s4, s0, s2", 0x11112222, 0x33334444, 0, 0x44441111, 0},
    {"s_mov_b64 s[4:5], -1", 0, 0, 1, ~0ull, 1},
    {"s_mov_b64 s[4:5], 0x12345678", 0, 0, 0, 0x12345678, 0},
    {"s_mov_b64 s[4:5], src_shared_base", 0, 0, 0, 0x1000000000000, 0},
    {"s_mov_b64 s[4:5], 1.0", 0, 0, 0, 0x3ff0000000000000, 0},
    {"s_mov_b32 s4, 1.0", 0, 0, 0, 0x3f800000, 0},
    {"s_mov_b32 s4, src_scc", 0, 0, 1, 1, 1},
    {"s_cmov_b32 s4, s0", 9, 0, 1, 9, 1},
    {"s_brev_b64 s[4:5], s[0:1]", 3, 0, 0, 0xc000000000000000, 0},
    {"s_ctz_i32_b64 s4, s[0:1]", 1ull << 40, 0, 0, 40, 0},
    {"s_ctz_i32_b32 s4, s0", 0, 0, 0, 0xffffffff, 0},
    {"s_clz_i32_u64 s4, s[0:1]", 1ull << 40, 0, 0, 23, 0},
    {"s_clz_i32_u32 s4, s0", 0, 0, 0, 0xffffffff, 0},
    {"s_cls_i32 s4, s0", 0xfff00000, 0, 0, 12, 0},
    {"s_cls_i32_i64 s4, s[0:1]", ~0ull, 0, 0, 0xffffffff, 0},
    {"s_sext_i32_i8 s4, s0", 0x80, 0, 0, 0xffffff80, 0},
    {"s_abs_i32 s4, s0", 0x80000000, 0, 0, 0x80000000, 1},
    {"s_bcnt1_i32_b64 s4, s[0:1]", ~0ull, 0, 0, 64, 1},
    {"s_bcnt0_i32_b32 s4, s0", 0xffffffff, 0, 1, 0, 0},
    {"s_bitset1_b32 s4, s0", 35, 0, 0, 8, 0},
    {"s_bitreplicate_b64_b32 s[4:5], s0", 0x80000001, 0, 0, 0xc000000000000003, 0},
    {"s_quadmask_b32 s4, s0", 0x10200003, 0, 0, 0xa1, 1},
    {"s_wqm_b32 s4, s0", 0x10200003, 0, 0, 0xf0f0000f, 1},
    {"s_movk_i32 s4, 0x8000", 0, 0, 0, 0xffff8000, 0},
    {"s_mov_b32 s4, s0\ns_addk_i32 s4, 0x7fff", 0x7fffffff, 0, 0, 0x80007ffe, 1},
    {"s_mov_b32 s4, s0\ns_mulk_i32 s4, -3", 5, 0, 1, 0xfffffff1, 1},
    {"s_cmpk_lt_i32 s0, 0xffff", 0xfffffff0, 0, 0, 0, 1},
    {"s_cmpk_lt_u32 s0, 0xffff", 0xfffffff0, 0, 1, 0, 0},
    {"s_cmp_gt_i32 s0, s2", 0xffffffff, 0, 1, 0, 0},
    {"s_cmp_gt_u32 s0, s2", 0xffffffff, 0, 0, 0, 1},
    {"s_cmp_lg_u64 s[0:1], s[2:3]", 1ull << 40, 0, 0, 0, 1},
    {"s_bitcmp1_b64 s[0:1], s2", 1ull << 40, 40, 0, 0, 1},
    {"s_getreg_b32 s4, hwreg(HW_REG_MODE, 4, 4)", 0, 0, 0, 15, 0},
    {"s_sendmsg_rtn_b64 s[4:5], sendmsg(MSG_RTN_GET_REALTIME)", 0, 0, 0, 0x123456789abc, 0},
    {"s_mov_b32 m0, 2\ns_movrels_b32 s4, s0", 7, 9, 0, 9, 0},
    {"s_mov_b32 null, s0\ns_mov_b32 s4, null", 7, 9, 0, 0, 0},
    {"s_or_saveexec_b32 s4, s0\ns_mov_b32 s5, exec_lo\ns_mov_b32 exec_lo, s4", 0xff, 0, 0, ~0ull, 1},
    {"s_and_saveexec_b32 s4, s0\ns_mov_b32 s5, exec_lo\ns_mov_b32 exec_lo, s4", 0xff, 0, 0, 0xffffffffffull, 1},
    {"s_and_not1_saveexec_b32 s4, s0\ns_mov_b32 s5, exec_lo\ns_mov_b32 exec_lo, s4", 0xff, 0, 1, 0xffffffffull, 0},
};
static void scalar_operations(void **state) {
  enum { N = sizeof scalars / sizeof *scalars };
  struct wave *t = wave_new(false);
  const char *text[N];
  for (unsigned i = 0; i < N; i++) text[i] = scalars[i].text;
  wave_snippets(t, text, sizeof *text, N);
  for (unsigned i = 0; i < N; i++) {
    const struct scalar *s = &scalars[i];
    u32 in[8] = {(u32)s->a, (u32)(s->a >> 32), (u32)s->b, (u32)(s->b >> 32)};
    memcpy(t->w.s, in, sizeof in);
    t->w.s[RDNA3_SCC] = s->scc_in;
    wave_run_ok(t, i * WAVE_SNIPPET, s->text);
    u64 got = t->w.s[4] | (u64)t->w.s[5] << 32;
    if (got != s->r || t->w.s[RDNA3_SCC] != s->scc)
      fail_msg("%s: got %llx scc %u, not %llx scc %u", s->text, (unsigned long long)got, t->w.s[RDNA3_SCC],
               (unsigned long long)s->r, s->scc);
  }
  wave_free(t);
}

static void branches_and_calls(void **state) {
  struct wave *t = wave_new(false);
  run(t, "s_mov_b32 s0, 0\ns_mov_b32 s1, 10\nloop: s_add_u32 s0, s0, s1\ns_sub_u32 s1, s1, 1\ns_cmp_lg_u32 s1, "
         "0\ns_cbranch_scc1 loop");
  assert_int_equal(t->w.s[0], 55);
  assert_int_equal(t->w.executed, 2 + 10 * 4 + 1);
  run(t, "s_getpc_b64 s[0:1]\nbase: s_add_u32 s0, s0, f-base\ns_addc_u32 s1, s1, 0\ns_swappc_b64 s[2:3], "
         "s[0:1]\ns_add_u32 s4, s4, 100\ns_branch end\n"
         "f: s_mov_b32 s4, 7\ns_setpc_b64 s[2:3]\nend:");
  assert_int_equal(t->w.s[4], 107);
  run(t, "s_call_b64 s[2:3], f\ns_add_u32 s4, s4, 100\ns_branch end\nf: s_mov_b32 s4, 9\ns_setpc_b64 s[2:3]\nend:");
  assert_int_equal(t->w.s[4], 109);
  /* vccz, execz and their opposites test one word in wave32 */
  run(t, "s_mov_b32 s4, 0\ns_mov_b32 vcc_lo, 0\ns_mov_b32 vcc_hi, 1\ns_cbranch_vccnz end\ns_add_u32 s4, s4, "
         "1\ns_cbranch_vccz a\ns_branch end\n"
         "a: s_add_u32 s4, s4, 2\ns_cbranch_execz end\ns_add_u32 s4, s4, 4\nend:");
  assert_int_equal(t->w.s[4], 7);
  wave_free(t);
  t = wave_new(true);
  run(t, "s_mov_b32 s4, 0\ns_mov_b32 vcc_lo, 0\ns_mov_b32 vcc_hi, 1\ns_cbranch_vccz end\ns_add_u32 s4, s4, 1\nend:");
  assert_int_equal(t->w.s[4], 1);
  wave_free(t);
}

/* Rounding and denormals follow MODE immediately, also when a wave changes it. */
static void modes(void **state) {
  const char *preload = getenv("LD_PRELOAD");
  if (preload && strstr(preload, "vgpreload")) skip(); /* valgrind ignores the control word and rounds to nearest */
  struct wave *t = wave_new(false);
  const char *add = "v_add_f32 v2, v0, v1\nv_add_f64 v[8:9], v[4:5], v[6:7]\nv_cvt_f16_f32 v3, v0";
  static const struct {
    const char *set;
    u32 f32, f64, f16;
  } rounds[] = {{"s_round_mode 0", 0x3f800000, 0, 0x3c00},
                {"s_round_mode 5", 0x3f800001, 1, 0x3c01},
                {"s_round_mode 1", 0x3f800001, 0, 0x3c00},
                {"s_round_mode 4", 0x3f800000, 1, 0x3c01},
                {"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 15", 0x3f800000, 0, 0x3c00}};
  for (unsigned i = 0; i < 5; i++) {
    char text[512];
    snprintf(text, sizeof text, "%s\n%s\ns_round_mode 0\nv_add_f32 v10, v0, v1", rounds[i].set, add);
    for (unsigned l = 0; l < 32; l++) {
      *wave_v(t, 0, l) = 0x3f800000 + (l == 1), *wave_v(t, 1, l) = bits(0x1p-30f);
      *wave_v(t, 4, l) = 0, *wave_v(t, 5, l) = 0x3ff00000, *wave_v(t, 6, l) = 0, *wave_v(t, 7, l) = 0x3a000000;
      *wave_v(t, 3, l) = 0;
    }
    run(t, text);
    assert_int_equal(*wave_v(t, 2, 0), rounds[i].f32);
    assert_int_equal(*wave_v(t, 8, 0), rounds[i].f64);
    assert_int_equal(*wave_v(t, 3, 1), rounds[i].f16);
    assert_int_equal(*wave_v(t, 10, 0), 0x3f800000);
  }
  /* denormals: f32 in MODE[5:4], f16 and f64 in MODE[7:6]; bit 0 of each lets inputs through, bit 1 results */
  static const struct {
    unsigned mode;
    u32 f32, f64, f16;
  } denorms[] = {{15, 1, 1, 1}, {12, 0, 1, 1}, {3, 1, 0, 0}, {0, 0, 0, 0}};
  for (unsigned i = 0; i < 4; i++) {
    char text[256];
    snprintf(text, sizeof text,
             "s_denorm_mode %u\nv_mul_f32 v2, 1.0, v0\nv_mul_f64 v[8:9], 1.0, v[4:5]\nv_mul_f16 v3, 1.0, "
             "v1\ns_denorm_mode 15",
             denorms[i].mode);
    *wave_v(t, 0, 5) = 1, *wave_v(t, 1, 5) = 1, *wave_v(t, 4, 5) = 1, *wave_v(t, 5, 5) = 0, *wave_v(t, 3, 5) = 0;
    run(t, text);
    assert_int_equal(*wave_v(t, 2, 5), denorms[i].f32);
    assert_int_equal(*wave_v(t, 8, 5), denorms[i].f64);
    assert_int_equal(*wave_v(t, 3, 5), denorms[i].f16);
  }
  /* output multipliers apply only without output denormals and outside of IEEE mode */
  *wave_v(t, 0, 0) = bits(3), *wave_v(t, 1, 0) = bits(4);
  run(t, "s_denorm_mode 12\nv_add_f32 v5, v0, v1 mul:4\ns_setreg_imm32_b32 hwreg(HW_REG_MODE, 9, 1), 0\n"
         "v_add_f32 v2, v0, v1 mul:4\nv_add_f32 v3, v0, v1 clamp div:2\ns_denorm_mode 15\nv_add_f32 v4, v0, v1 mul:4");
  assert_int_equal(*wave_v(t, 2, 0), bits(28));
  assert_int_equal(*wave_v(t, 3, 0), bits(1));
  assert_int_equal(*wave_v(t, 4, 0), bits(7));
  assert_int_equal(*wave_v(t, 5, 0), bits(7));
  wave_free(t);
}

/* ---- division ---- */

/* LLVM's expansion of an f32 division: v0 / v1 into v2. */
static const char divide[] = "v_div_scale_f32 v3, null, v1, v1, v0\n"
                             "v_div_scale_f32 v4, vcc_lo, v0, v1, v0\n"
                             "v_rcp_f32 v5, v3\n"
                             "v_fma_f32 v6, -v3, v5, 1.0\n"
                             "v_fma_f32 v5, v6, v5, v5\n"
                             "v_mul_f32 v6, v4, v5\n"
                             "v_fma_f32 v7, -v3, v6, v4\n"
                             "v_fma_f32 v6, v7, v5, v6\n"
                             "v_fma_f32 v7, -v3, v6, v4\n"
                             "v_div_fmas_f32 v7, v7, v5, v6\n"
                             "v_div_fixup_f32 v2, v7, v1, v0";

static void divisions(void **state) {
  struct wave *t = wave_new(false);
  /* S0, S1 (denominator), S2 (numerator): the result, and whether the mask is set. */
  static const struct {
    u32 s0, s1, s2, r;
    bool mask, flush;
  } cases[] = {
      {0x3f800000, 0, 0x3f800000, 0x7fc00000, true, false},           /* x / 0 */
      {0, 0x3f800000, 0, 0x7fc00000, true, false},                    /* 0 / x */
      {0x3f800000, 0x3f800000, 0x7f7fffff, 0x5f800000, true, false},  /* far apart: the denominator */
      {0x7f7fffff, 0x3f800000, 0x7f7fffff, 0x7f7fffff, true, false},  /* and not the numerator */
      {1, 1, 0x3f800000, 0x7fc00000, true, true},                     /* a flushed denominator is zero */
      {0x00400000, 0x00400000, 0x00800000, 0x20000000, false, false}, /* a denormal denominator */
      {0x3f800000, 0x7f000000, 0x3f800000, 0x3f800000, true, false},  /* tiny inverse and quotient: not the numerator */
      {0x7f000000, 0x7f000000, 0x3f800000, 0x5f000000, true, false},  /* but the denominator */
      {0x7f000000, 0x7f000000, 0x40800000, 0x5f000000, false, false}, /* a tiny inverse alone */
      {0x00800000, 0x40800000, 0x00800000, 0x20800000, true, false},  /* a tiny quotient alone: the numerator */
      {0x40800000, 0x40800000, 0x00800000, 0x40800000, true, false},  /* and not the denominator */
      {0x0b000000, 0x0b000000, 0x0b000000, 0x2b000000, false, false}, /* a tiny numerator: both */
      {0x40000000, 0x40800000, 0x40000000, 0x40000000, false, false}, /* nothing to do */
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    *wave_v(t, 0, 0) = cases[i].s0, *wave_v(t, 1, 0) = cases[i].s1, *wave_v(t, 2, 0) = cases[i].s2;
    run(t, cases[i].flush ? "s_denorm_mode 12\nv_div_scale_f32 v3, vcc_lo, v0, v1, v2\ns_denorm_mode 15"
                          : "v_div_scale_f32 v3, vcc_lo, v0, v1, v2");
    u32 r = *wave_v(t, 3, 0);
    bool nan = (cases[i].r & 0x7fffffff) > 0x7f800000;
    if (nan ? (r & 0x7fffffff) <= 0x7f800000 : r != cases[i].r) fail_msg("case %zu: 0x%08x", i, r);
    if ((t->w.s[RDNA3_VCC] & 1) != cases[i].mask) fail_msg("case %zu: mask %u", i, t->w.s[RDNA3_VCC] & 1);
  }
  /* For all operands, tiny and huge, the quotient equals the host's. */
  for (unsigned round = 0; round < 64; round++) {
    for (unsigned l = 0; l < 32; l++) {
      for (unsigned v = 0; v < 2; v++) {
        u32 x = (u32)wave_random(&seed);
        *wave_v(t, v, l) = round % 4 == 0 ? x : (x & 0x807fffff) | (x >> 8 & (round % 4 == 1 ? 31 : 63)) << 23;
      }
    }
    run(t, divide);
    for (unsigned l = 0; l < 32; l++) {
      float n = f32(*wave_v(t, 0, l)), d = f32(*wave_v(t, 1, l)), q = n / d, got = f32(*wave_v(t, 2, l));
      if (q == q ? bits(q) != bits(got) : got == got) fail_msg("%a / %a: %a, %a is expected", n, d, got, q);
    }
  }
  /* So do denormal quotients by large denominators, which are rounded twice. */
  for (unsigned l = 0; l < 32; l++)
    *wave_v(t, 0, l) = bits(1 + (float)l / 32), *wave_v(t, 1, l) = bits(0x1p124f * (float)(l + 1) / 3);
  run(t, divide);
  for (unsigned l = 0; l < 32; l++) {
    float n = f32(*wave_v(t, 0, l)), d = f32(*wave_v(t, 1, l)), got = f32(*wave_v(t, 2, l));
    if (fabsf(got - n / d) > 0x1p-149f) fail_msg("%a / %a: %a, %a is expected", n, d, got, n / d);
  }
  wave_free(t);
}

/* Clamped sums and differences with carries: saturated, with the same mask as without clamping. */
static void clamped_carries(void **state) {
  static const struct {
    const char *text;
    u32 a, b, carry, r, mask;
  } cases[] = {
      {"v_add_co_u32 v2, vcc_lo, v0, v1 clamp", 0xffffffff, 1, 0, 0xffffffff, 1},
      {"v_add_co_u32 v2, vcc_lo, v0, v1 clamp", 100, 200, 0, 300, 0},
      {"v_sub_co_u32 v2, vcc_lo, v0, v1 clamp", 0, 1, 0, 0, 1},
      {"v_sub_co_u32 v2, vcc_lo, v0, v1 clamp", 300, 100, 0, 200, 0},
      {"v_subrev_co_u32 v2, vcc_lo, v0, v1 clamp", 1, 0, 0, 0, 1},
      {"v_add_co_ci_u32 v2, vcc_lo, v0, v1, vcc_lo clamp", 0xfffffffe, 1, 1, 0xffffffff, 1},
      {"v_add_co_ci_u32 v2, vcc_lo, v0, v1, vcc_lo clamp", 0xfffffffd, 1, 1, 0xffffffff, 0},
      {"v_sub_co_ci_u32 v2, vcc_lo, v0, v1, vcc_lo clamp", 5, 5, 1, 0, 1},
      {"v_subrev_co_ci_u32 v2, vcc_lo, v0, v1, vcc_lo clamp", 4, 5, 1, 0, 0},
  };
  for (int wave64 = 0; wave64 < 2; wave64++) {
    struct wave *t = wave_new(wave64);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
      char text[128], *at;
      snprintf(text, sizeof text, "%s", cases[i].text);
      while (wave64 && (at = strstr(text, "vcc_lo"))) memmove(at + 3, at + 6, strlen(at + 6) + 1);
      *wave_v(t, 0, 3) = cases[i].a, *wave_v(t, 1, 3) = cases[i].b;
      t->w.s[RDNA3_VCC] = cases[i].carry << 3;
      run(t, text);
      if (*wave_v(t, 2, 3) != cases[i].r || (t->w.s[RDNA3_VCC] >> 3 & 1) != cases[i].mask)
        fail_msg("%s: 0x%x, mask %u", text, *wave_v(t, 2, 3), t->w.s[RDNA3_VCC] >> 3 & 1);
    }
    wave_free(t);
  }
}

/* Parameters in lanes 0 to 2 of each quad; the destination may be one of the sources. */
static void interpolates_parameters(void **state) {
  struct wave *t = wave_new(false);
  for (unsigned l = 0; l < 32; l++)
    *wave_v(t, 0, l) = bits(100.0f + (float)l), *wave_v(t, 1, l) = bits(2), *wave_v(t, 2, l) = bits(10.0f + (float)l);
  run(t, "v_interp_p10_f32 v3, v0, v1, v2 wait_exp:7\nv_interp_p2_f32 v4, -v0, v1, v3\nv_mov_b32 v5, v0\n"
         "v_interp_p10_f32 v5, v5, v1, v2\nv_cvt_f16_f32 v6, v0\nv_lshlrev_b32 v6, 16, v6\nv_cvt_f16_f32 v7, v2\n"
         "v_interp_p10_f16_f32 v8, v6, v1, v7 op_sel:[1,0,0,0]\nv_mov_b32 v9, -1\n"
         "v_interp_p2_f16_f32 v9, v6, v1, v3 op_sel:[1,0,0,1]\nv_mov_b32 v10, 0x3f800001\n"
         "v_interp_p10_rtz_f16_f32 v11, v6, v10, v7 op_sel:[1,0,0,0]");
  for (unsigned l = 0; l < 32; l++) {
    float quad = (float)(l & ~3u), p10 = (quad + 101) * 2 + quad + 10, down = p10 - (quad + 102) * 2,
          up = p10 + (quad + 102) * 2;
    assert_true(f32(*wave_v(t, 3, l)) == p10);
    assert_true(f32(*wave_v(t, 4, l)) == down);
    assert_true(f32(*wave_v(t, 5, l)) == p10);
    assert_true(f32(*wave_v(t, 8, l)) == p10);
    assert_int_equal(*wave_v(t, 9, l), half(up) << 16 | 0xffff);
    float exact = quad + 101 + quad + 10; /* plus a small value that rounding towards zero drops */
    assert_true(f32(*wave_v(t, 11, l)) >= exact && f32(*wave_v(t, 11, l)) < nextafterf(exact, 1e9f) * 1.0000001f);
  }
  wave_free(t);
}

/* Fields of operands that an instruction does not have: hardware ignores them, strict machines report them. */
static void ignored_fields(void **state) {
  static const u32 store_with_vdst[] = {0xd8340000, 0x05000100, 0xbfb00000}, /* ds_store_b32 v0, v1 with vdst 5 */
      mov_with_vsrc1[] = {0xca2004ff, 0x02000300, 100, 0xbfb00000};          /* v_dual_mov_b32 v2, 100 with vsrcx1 2 */
  struct rdna3_inst in;
  struct wave *t = wave_new(false);
  wave_assemble(t, "s_endpgm");
  memcpy(t->text, store_with_vdst, sizeof store_with_vdst);
  *wave_v(t, 0, 0) = 64, *wave_v(t, 1, 0) = 77, *wave_v(t, 5, 0) = 5;
  t->w.s[RDNA3_EXEC] = 1;
  wave_run_ok(t, 0, "ds_store_b32 with vdst");
  assert_int_equal(*(u32 *)(t->lds + 64), 77);
  assert_int_equal(*wave_v(t, 5, 0), 5);
  assert_int_equal(rdna3_decode_listing(store_with_vdst, 3, 0, false, &in), 0);
  memcpy(t->text, mov_with_vsrc1, sizeof mov_with_vsrc1);
  code_cache_invalidate(t->code);
  *wave_v(t, 0, 0) = 7;
  wave_run_ok(t, 0, "v_dual_mov_b32 with vsrcx1");
  assert_int_equal(*wave_v(t, 2, 0), 100);
  struct race_task *before = race_task;
  race_task = (struct race_task *)t; /* as on a strict machine */
  enum rdna3_state strict = wave_run(t, 0);
  race_task = before;
  assert_int_equal(strict, RDNA3_FAULTED);
  assert_non_null(strstr(t->fault.text, "hardware ignores"));
  wave_free(t);
}

/* ---- lanes ---- */
static int dpp_from(const char *what, int n, int l) {
  int row = l & ~15, i = l & 15;
  if (!strcmp(what, "row_shl")) return i + n < 16 ? l + n : -1;
  if (!strcmp(what, "row_shr")) return i - n >= 0 ? l - n : -1;
  if (!strcmp(what, "row_ror")) return row + (i + 16 - n) % 16;
  if (!strcmp(what, "row_share")) return row + n;
  if (!strcmp(what, "row_xmask")) return row + (i ^ n);
  if (!strcmp(what, "row_mirror")) return row + 15 - i;
  if (!strcmp(what, "row_half_mirror")) return (l & ~7) + 7 - (l & 7);
  return l;
}
static void dpp(void **state) {
  static const struct {
    const char *what;
    int n;
    bool bound, fi;
    u32 rows, banks;
  } cases[] = {{"row_shl", 3, 0, 0, 15, 15},     {"row_shl", 3, 1, 0, 15, 15},        {"row_shr", 1, 0, 1, 15, 15},
               {"row_ror", 5, 1, 0, 5, 15},      {"row_share", 7, 0, 0, 15, 6},       {"row_xmask", 9, 1, 1, 10, 15},
               {"row_mirror", -1, 0, 0, 15, 15}, {"row_half_mirror", -1, 1, 0, 15, 9}};
  for (int wave64 = 0; wave64 < 2; wave64++) {
    struct wave *t = wave_new(wave64);
    for (unsigned c = 0; c < sizeof cases / sizeof *cases; c++)
      for (int pass = 0; pass < 2; pass++) {
        char text[256], n[16] = "";
        u64 exec = pass ? wave_random(&seed) : ~0ull;
        if (cases[c].n >= 0) snprintf(n, sizeof n, ":%d", cases[c].n);
        snprintf(text, sizeof text, "v_add_nc_u32_dpp v2, v0, v1 %s%s row_mask:%u bank_mask:%u%s%s", cases[c].what, n,
                 cases[c].rows, cases[c].banks, cases[c].bound ? " bound_ctrl:1" : "", cases[c].fi ? " fi:1" : "");
        fill(t);
        u32 old[64], a[64], b[64];
        for (unsigned l = 0; l < 64; l++) old[l] = *wave_v(t, 2, l), a[l] = *wave_v(t, 0, l), b[l] = *wave_v(t, 1, l);
        t->w.s[RDNA3_EXEC] = (u32)exec, t->w.s[RDNA3_EXEC + 1] = wave64 ? (u32)(exec >> 32) : 0;
        run(t, text);
        for (unsigned l = 0; l < (wave64 ? 64 : 32); l++) {
          int from = dpp_from(cases[c].what, cases[c].n, (int)l);
          bool enabled = exec >> l & 1 && cases[c].rows >> (l / 16) & 1 && cases[c].banks >> (l / 4 % 4) & 1;
          bool valid = from >= 0 && (cases[c].fi || exec >> from & 1);
          u32 want = !enabled ? old[l] : valid ? a[from] + b[l] : cases[c].bound ? b[l] : old[l];
          if (*wave_v(t, 2, l) != want)
            fail_msg("%s lane %u exec %llx: got %x, not %x", text, l, (unsigned long long)exec, *wave_v(t, 2, l), want);
        }
      }
    t->w.s[RDNA3_EXEC] = ~0u, t->w.s[RDNA3_EXEC + 1] = wave64 ? ~0u : 0;
    fill(t);
    run(t, "v_mov_b32_dpp v2, v0 quad_perm:[3,0,1,1] row_mask:0xf bank_mask:0xf\nv_mov_b32_dpp v3, v0 "
           "dpp8:[7,6,5,4,3,2,1,0]\n"
           "v_add_f32_dpp v4, -v0, |v1| row_share:2 row_mask:0xf bank_mask:0xf");
    for (unsigned l = 0; l < (wave64 ? 64 : 32); l++) {
      assert_int_equal(*wave_v(t, 2, l), *wave_v(t, 0, (l & ~3u) + (unsigned[]){3, 0, 1, 1}[l & 3]));
      assert_int_equal(*wave_v(t, 3, l), *wave_v(t, 0, l ^ 7));
      float want = -f32(*wave_v(t, 0, (l & ~15u) + 2)) + fabsf(f32(*wave_v(t, 1, l)));
      if (!isnan(want)) assert_int_equal(*wave_v(t, 4, l), bits(want));
    }
    wave_free(t);
  }
}

static void lanes(void **state) {
  struct wave *t = wave_new(false);
  fill(t);
  t->w.s[RDNA3_EXEC] = 0xfffffff0;
  run(t, "v_readfirstlane_b32 s0, v0\nv_readlane_b32 s1, v0, 35\ns_mov_b32 s4, 9\nv_readlane_b32 s2, v0, "
         "s4\nv_writelane_b32 v1, s2, 1");
  assert_int_equal(t->w.s[0], *wave_v(t, 0, 4));
  assert_int_equal(t->w.s[1], *wave_v(t, 0, 3));
  assert_int_equal(t->w.s[2], *wave_v(t, 0, 9));
  assert_int_equal(*wave_v(t, 1, 1), *wave_v(t, 0, 9));
  t->w.s[RDNA3_EXEC] = ~0u;
  run(t, "s_mov_b32 s0, 0x76543210\ns_mov_b32 s1, 0x0fedcba9\nv_permlane16_b32 v2, v0, s1, s0\nv_permlanex16_b32 v3, "
         "v0, s0, s1");
  for (unsigned l = 0; l < 32; l++) {
    unsigned a = l % 16 < 8 ? (0x0fedcba9u >> (4 * (l % 8)) & 15) : l % 8,
             b = l % 16 < 8 ? l % 8 : (0x0fedcba9u >> (4 * (l % 8)) & 15);
    assert_int_equal(*wave_v(t, 2, l), *wave_v(t, 0, (l & 16) + a));
    assert_int_equal(*wave_v(t, 3, l), *wave_v(t, 0, (~l & 16) + b));
  }
  u32 v0 = *wave_v(t, 0, 17), v1 = *wave_v(t, 1, 17), v12 = *wave_v(t, 12, 17);
  run(t, "v_swap_b32 v0, v1\ns_mov_b32 m0, 3\nv_movrels_b32 v5, v9\nv_movreld_b32 v20, v12");
  assert_int_equal(*wave_v(t, 0, 17), v1);
  assert_int_equal(*wave_v(t, 1, 17), v0);
  assert_int_equal(*wave_v(t, 5, 17), v12);
  assert_int_equal(*wave_v(t, 23, 17), v12);
  wave_free(t);
  t = wave_new(true);
  fill(t);
  u32 low = *wave_v(t, 0, 3), high = *wave_v(t, 0, 35);
  t->w.s[RDNA3_EXEC] = 0;
  run(t, "v_readfirstlane_b32 s0, v0\nv_readlane_b32 s1, v0, 35\nv_mbcnt_lo_u32_b32 v1, -1, 0\nv_mbcnt_hi_u32_b32 v1, "
         "-1, v1\ns_mov_b64 exec, -1\nv_permlane64_b32 v2, v0");
  assert_int_equal(t->w.s[0], *wave_v(t, 0, 32));
  assert_int_equal(t->w.s[1], high);
  assert_int_equal(*wave_v(t, 1, 50), 50);
  assert_int_equal(*wave_v(t, 2, 3), high);
  assert_int_equal(*wave_v(t, 2, 35), low);
  /* the mask overwrites a scalar that both halves still have to read */
  run(t, "s_mov_b32 vcc_lo, 5\ns_mov_b32 vcc_hi, 6\nv_mov_b32 v3, 5\nv_mov_b32 v4, 6\nv_cmp_eq_u64 vcc, vcc, v[3:4]");
  assert_int_equal(t->w.s[RDNA3_VCC] & t->w.s[RDNA3_VCC + 1], ~0u);
  /* v_cmpx keeps only the lanes for which it is true */
  run(t, "s_mov_b64 exec, -1\nv_mbcnt_lo_u32_b32 v1, -1, 0\nv_mbcnt_hi_u32_b32 v1, -1, v1\nv_cmpx_lt_u32 40, "
         "v1\nv_mov_b32 v1, 0");
  assert_int_equal(t->w.s[RDNA3_EXEC], 0);
  assert_int_equal(t->w.s[RDNA3_EXEC + 1], 0xfffffe00);
  assert_int_equal(*wave_v(t, 1, 40), 40);
  assert_int_equal(*wave_v(t, 1, 41), 0);
  wave_free(t);
}

/* Both halves of a pair read before either of them writes. */
static void pairs(void **state) {
  struct wave *t = wave_new(false);
  fill(t);
  u32 a = *wave_v(t, 0, 9), b = *wave_v(t, 1, 9), c = *wave_v(t, 2, 9);
  run(t, "v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v1, v0\nv_dual_mov_b32 v2, v3 :: v_dual_add_nc_u32 v3, v1, v2\n");
  assert_int_equal(*wave_v(t, 0, 9), b);
  assert_int_equal(*wave_v(t, 1, 9), a);
  assert_int_equal(*wave_v(t, 3, 9), a + c);
  for (unsigned l = 0; l < 32; l++)
    *wave_v(t, 4, l) = bits(3), *wave_v(t, 5, l) = bits(4), *wave_v(t, 6, l) = bits(5),
                  *wave_v(t, 7, l) = bits((float)l);
  run(t, "v_dual_fmac_f32 v4, v5, v6 :: v_dual_fmaak_f32 v7, v7, v5, 0x41200000\ns_mov_b32 vcc_lo, 0xf0\n"
         "v_dual_cndmask_b32 v8, v5, v6 :: v_dual_lshlrev_b32 v9, 2, v7");
  assert_int_equal(*wave_v(t, 4, 9), bits(23));
  assert_int_equal(*wave_v(t, 7, 9), bits(46));
  assert_int_equal(*wave_v(t, 8, 3), bits(4));
  assert_int_equal(*wave_v(t, 8, 4), bits(5));
  assert_int_equal(*wave_v(t, 9, 9), bits(46) << 2);
  wave_free(t);
}

/* ---- matrices: compared with explicit sums, for values whose products and sums are exact ---- */
static void matrices(void **state) {
  for (int wave64 = 0; wave64 < 2; wave64++) {
    struct wave *t = wave_new(wave64);
    int a[16][16], b[16][16], c[16][16];
    unsigned lanes = wave64 ? 64 : 32, regs = wave64 ? 4 : 8;
    for (int kind = 0; kind < 4; kind++) {
      static const char *const text[2][4] = {
          {"v_wmma_f32_16x16x16_f16 v[32:39], v[0:7], v[8:15], v[16:23]",
           "v_wmma_f16_16x16x16_f16 v[32:39], v[0:7], v[8:15], v[16:23] op_sel:[0,0,1]",
           "v_wmma_i32_16x16x16_iu8 v[32:39], v[0:3], v[8:11], v[16:23] neg_lo:[1,0,0]",
           "v_wmma_f32_16x16x16_bf16 v[32:39], v[0:7], v[8:15], 1.0"},
          {"v_wmma_f32_16x16x16_f16 v[32:35], v[0:7], v[8:15], v[16:19]",
           "v_wmma_f16_16x16x16_f16 v[32:35], v[0:7], v[8:15], v[16:19] op_sel:[0,0,1]",
           "v_wmma_i32_16x16x16_iu8 v[32:35], v[0:3], v[8:11], v[16:19] neg_lo:[1,0,0]",
           "v_wmma_f32_16x16x16_bf16 v[32:35], v[0:7], v[8:15], 1.0"}};
      fill(t);
      for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
          a[i][j] = (int)(wave_random(&seed) % 15) - 7, c[i][j] = (int)(wave_random(&seed) % 15) - 7;
          b[i][j] = (int)(wave_random(&seed) % 15) - (kind == 2 ? 0 : 7);
        }
      for (unsigned l = 0; l < lanes; l++) {
        for (int k = 0; k < 16; k++) {
          int x = a[l % 16][k], y = b[k][l % 16];
          u32 *va, *vb;
          if (kind == 2) {
            va = wave_v(t, (unsigned)k / 4, l), vb = wave_v(t, 8 + (unsigned)k / 4, l);
            *va = (*va & ~(255u << (k % 4 * 8))) | (u32)(x & 255) << (k % 4 * 8);
            *vb = (*vb & ~(255u << (k % 4 * 8))) | (u32)(y & 255) << (k % 4 * 8);
          } else {
            va = wave_v(t, (unsigned)k / 2, l), vb = wave_v(t, 8 + (unsigned)k / 2, l);
            u32 hx = kind == 3 ? bits((float)x) >> 16 : half((float)x),
                hy = kind == 3 ? bits((float)y) >> 16 : half((float)y);
            *va = (*va & ~(0xffffu << (k % 2 * 16))) | hx << (k % 2 * 16);
            *vb = (*vb & ~(0xffffu << (k % 2 * 16))) | hy << (k % 2 * 16);
          }
        }
        for (unsigned v = 0; v < regs; v++) {
          int x = c[v * lanes / 16 + l / 16][l % 16];
          *wave_v(t, 16 + v, l) = kind == 0 ? bits((float)x) : kind == 1 ? half((float)x) << 16 : (u32)x;
        }
      }
      u32 kept = *wave_v(t, 32, 5) & 0xffff;
      run(t, text[wave64][kind]);
      for (unsigned l = 0; l < lanes; l++)
        for (unsigned v = 0; v < regs; v++) {
          unsigned i = v * lanes / 16 + l / 16, j = l % 16;
          int sum = kind == 3 ? 1 : c[i][j];
          for (int k = 0; k < 16; k++) sum += a[i][k] * b[k][j];
          u32 got = *wave_v(t, 32 + v, l), want = kind == 2   ? (u32)sum
                                                  : kind == 1 ? half((float)sum)
                                                              : bits((float)sum);
          if (kind == 1) got >>= 16;
          if (got != want) fail_msg("%s: row %u column %u: got %x, not %x", text[wave64][kind], i, j, got, want);
        }
      if (kind == 1) assert_int_equal(*wave_v(t, 32, 5) & 0xffff, kept);
    }
    wave_free(t);
  }
}

/* ---- workgroups ---- */
static void *pages;
static int launch(struct wave *t, u32 threads, bool wave32, u32 lds, const atomic_bool *stop,
                  struct shader_core *core) {
  struct shader_dispatch d = {.vm = t->vm,
                              .pgm = WAVE_CODE,
                              .rsrc1 = 3 | 0xf0 << 12 | 1 << 21 | 1 << 23,
                              .rsrc2 = 15 << 1 | 1 << 7 | 2 << 11 | ((lds + 511) / 512) << 15,
                              .groups = {1, 1, 1},
                              .threads = {threads, 1, 1},
                              .wave32 = wave32,
                              .clock = wave_clock,
                              .stop = stop};
  d.user_data[0] = 0x40000000;
  return shader_run_workgroup(core, t->code, &d, (u32[]){5, 0, 0}, 0, &t->stats, &t->fault);
}
static void workgroups(void **state) {
  struct wave *t = wave_new(false);
  struct shader_core *core = shader_core_new();
  pages = aligned_alloc(4096, 8192);
  memset(pages, 0, 8192);
  assert_int_equal(vm_map(t->vm, 0x40000000, 8192, pages, VM_READ | VM_WRITE, 2), 0);
  /* Waves pass a number on through LDS, two barriers per step; each adds its first lane's id. */
  wave_assemble(t, "v_lshlrev_b32 v1, 2, v0\nds_store_b32 v1, v0\ns_waitcnt lgkmcnt(0)\ns_barrier\n"
                   "v_xor_b32 v2, 0x3fc, v1\nds_load_b32 v3, v2\ns_waitcnt lgkmcnt(0)\ns_barrier\n"
                   "v_lshl_add_u32 v3, s15, 16, v3\nglobal_store_b32 v1, v3, s[0:1]\ns_endpgm");
  if (launch(t, 256, true, 1024, NULL, core)) fail_msg("%s", t->fault.text);
  for (u32 i = 0; i < 256; i++) assert_int_equal(((u32 *)pages)[i], 5 << 16 | (i ^ 255));
  assert_int_equal(t->stats.waves, 8);
  assert_int_equal(t->stats.instructions, 8 * 11);
  /* The last wave of a group is partial; lanes past the group do not store. */
  memset(pages, 0xff, 8192);
  wave_assemble(t, "v_lshlrev_b32 v1, 2, v0\nglobal_store_b32 v1, v0, s[0:1]\ns_endpgm");
  if (launch(t, 77, true, 0, NULL, core)) fail_msg("%s", t->fault.text);
  for (u32 i = 0; i < 100; i++) assert_int_equal(((u32 *)pages)[i], i < 77 ? i : ~0u);
  /* One wave spins until another has stored; waves take turns. */
  memset(pages, 0, 8192);
  wave_assemble(
      t, "v_cmp_gt_u32 vcc_lo, 32, v0\ns_cbranch_vccz second\n"
         "spin: s_load_b32 s4, s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\ns_cmp_eq_u32 s4, 0\ns_cbranch_scc1 spin\ns_endpgm\n"
         "second: v_mov_b32 v1, 0\nv_mov_b32 v2, 1\nglobal_store_b32 v1, v2, s[0:1]\ns_endpgm");
  if (launch(t, 64, true, 0, NULL, core)) fail_msg("%s", t->fault.text);
  /* An endless wave detects the stop flag. */
  atomic_bool stop = true;
  wave_assemble(t, "loop: s_branch loop");
  assert_int_equal(launch(t, 32, true, 0, &stop, core), -ECANCELED);
  /* Launches that are impossible. */
  assert_int_equal(launch(t, 2048, true, 0, NULL, core), -EFAULT);
  shader_core_free(core);
  wave_free(t);
  free(pages);
}

static void faults(void **state) {
  struct wave *t = wave_new(false);
  wave_assemble(t, "v_mov_b32 v0, 1\n.long 0xd6ff0000, 0\ns_endpgm");
  memcpy(t->text + 4, &(u32){0xfc000000}, 4);
  assert_int_equal(wave_run(t, 0), RDNA3_FAULTED);
  assert_int_equal(t->fault.kind, FAULT_ILLEGAL);
  assert_int_equal(t->fault.pc, WAVE_CODE + 4);
  assert_non_null(strstr(t->fault.text, "fc000000"));
  wave_assemble(t, "s_trap 2");
  assert_int_equal(wave_run(t, 0), RDNA3_FAULTED);
  assert_int_equal(t->fault.kind, FAULT_TRAP);
  assert_non_null(strstr(t->fault.text, "s_trap"));
  wave_assemble(t, "s_code_end");
  assert_int_equal(wave_run(t, 0), RDNA3_FAULTED);
  assert_int_equal(t->fault.kind, FAULT_ILLEGAL);
  wave_assemble(t, "s_mov_b64 s[0:1], 0x100\ns_setpc_b64 s[0:1]");
  assert_int_equal(wave_run(t, 0), RDNA3_FAULTED);
  assert_int_equal(t->fault.kind, FAULT_PAGE);
  assert_int_equal(t->fault.address, 0x100);
  /* Pairs exist only in wave32; image instructions are not supported. */
  t->w.wave64 = true;
  memcpy(t->text, (u32[]){0xca100101, 0x00000102}, 8);
  code_cache_invalidate(t->code);
  assert_int_equal(wave_run(t, 0), RDNA3_FAULTED);
  assert_int_equal(t->fault.kind, FAULT_ILLEGAL);
  wave_free(t);
}

/* Random words end in a fault or in an orderly stop and never crash the host. */
static void random_words(void **state) {
  static const u32 heads[] = {0x00000000, 0x7e000000, 0x7c000000, 0x80000000, 0xb0000000, 0xbe800000,
                              0xbf000000, 0xbf800000, 0xc8000000, 0xcc000000, 0xd4000000, 0xd6000000,
                              0xd8000000, 0xdc000000, 0xe0000000, 0xf4000000};
  static const u32 keep[] = {0x7fffffff, 0x01ffffff, 0x01ffffff, 0x3fffffff, 0x0fffffff, 0x007fffff,
                             0x007fffff, 0x007fffff, 0x03ffffff, 0x00ffffff, 0x03ffffff, 0x01ffffff,
                             0x03ffffff, 0x03ffffff, 0x03ffffff, 0x03ffffff};
  for (int wave64 = 0; wave64 < 2; wave64++) {
    struct wave *t = wave_new(wave64);
    for (int i = 0; i < 20000; i++) {
      u32 *p = (u32 *)t->text;
      for (int k = 0; k < 16; k++) {
        u64 r = wave_random(&seed);
        unsigned h = (r >> 40) % 16;
        p[k] = k % 2 ? (u32)r : heads[h] | ((u32)r & keep[h]);
      }
      p[16] = 0xbfb00000; /* s_endpgm */
      code_cache_invalidate(t->code);
      t->w.mode = 0x3f0, t->w.fp_control = rdna3_fp_word(0, 3), t->w.s[RDNA3_NULL] = 0;
      enum rdna3_state s = wave_run(t, 0);
      for (int turn = 0; turn < 3 && (s == RDNA3_YIELDED || s == RDNA3_BARRIER); turn++) s = wave_run(t, 64);
      assert_true(s != RDNA3_RUNNING);
    }
    wave_free(t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(scalar_operations),
      cmocka_unit_test(branches_and_calls),
      cmocka_unit_test(modes),
      cmocka_unit_test(divisions),
      cmocka_unit_test(clamped_carries),
      cmocka_unit_test(interpolates_parameters),
      cmocka_unit_test(ignored_fields),
      cmocka_unit_test(dpp),
      cmocka_unit_test(lanes),
      cmocka_unit_test(pairs),
      cmocka_unit_test(matrices),
      cmocka_unit_test(workgroups),
      cmocka_unit_test(faults),
      cmocka_unit_test(random_words),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
