/* Thread traces: packets, waves and instructions of traces that the tests write, and of recordings of real GPUs where
 * they are present. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "hcq/sqtt/sqtt.h"
#include "../ok.h"
#include "sqtt_recordings.h"
#include "sqtt_writer.h"

const char *db_error(void);

#define F11(packet, field, value)     SQTT_F(GFX11, packet, field, value)
#define P11(w, packet, delta, fields) SQTT_P(w, GFX11, packet, delta, fields)
#define START11(sa_, wgp_, simd_, slot, lanes)                                                                         \
  (F11(WAVESTART, sa, sa_) | F11(WAVESTART, wgp, wgp_) | F11(WAVESTART, simd, simd_) | F11(WAVESTART, wave, slot) |    \
   F11(WAVESTART, lanes_minus_1, (lanes) - 1) | F11(WAVESTART, size, 3))
#define END11(sa_, wgp_, simd_, slot)                                                                                  \
  (F11(WAVEEND, sa, sa_) | F11(WAVEEND, wgp, wgp_) | F11(WAVEEND, simd, simd_) | F11(WAVEEND, wave, slot))
#define OP11(slot, name) (F11(INST, wave, slot) | F11(INST, op, SQTT_GFX11_OP_##name))

/* ---- packets ---- */

/* The first packets of a recording of a gfx1100. */
static void packets_of_gfx11(void **state) {
  static const uint8_t bytes[] = {0x91, 0x01, 0x90, 0x68, 0x00, 0x00, 0x00, 0x00, 0x51, 0x26, 0x00,
                                  0x09, 0x02, 0x00, 0xc2, 0x00, 0x00, 0x02, 0x40, 0x01, 0x10, 0x78,
                                  0x00, 0x00, 0x00, 0x09, 0x82, 0x1e, 0x00, 0x01, 0x00, 0x00};
  static const struct {
    unsigned offset, time, type;
    uint64_t bits;
  } expected[] = {{0, 0, SQTT_LAYOUT_HEADER, 0x68900191},
                  {16, 76, SQTT_TS_WAVE_STATE, 0x2651},
                  {22, 76, SQTT_REG, 0x40020000c2000209},
                  {38, 1997, SQTT_TS_DELTA_OR_MARK, 0x781001}};
  struct sqtt_reader r;
  struct sqtt_packet p;
  OK(sqtt_open(&r, bytes, sizeof bytes));
  assert_int_equal(r.layout, SQTT_GFX11);
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    assert_int_equal(sqtt_next(&r, &p), 1);
    assert_int_equal(p.offset, expected[i].offset);
    assert_int_equal(p.time, expected[i].time);
    assert_int_equal(p.type, expected[i].type);
    assert_int_equal(p.bits, expected[i].bits);
    assert_int_equal(p.repeat, 1);
  }
  /* The unit of 32 bytes ends inside of the next packet: a complete trace may end so. */
  assert_int_equal(sqtt_next(&r, &p), 0);
  assert_int_equal(r.at, 50);
  /* If another byte is missing, the trace is cut. */
  OK(sqtt_open(&r, bytes, sizeof bytes - 1));
  while (sqtt_next(&r, &p) == 1) continue;
  assert_int_equal(sqtt_next(&r, &p), -EBADMSG);
  assert_non_null(strstr(db_error(), "REG at nibble 50 (byte 0x19) needs 16 nibbles, the trace ends after 12"));
}

static void clock_rules(void **state) {
  static const struct {
    unsigned type, time;
  } expected[] = {{SQTT_LAYOUT_HEADER, 0}, {SQTT_TS_DELTA_SHORT, 4},     {SQTT_TS_DELTA_SHORT, 23},
                  {SQTT_NOP, 23},          {SQTT_TS_DELTA_OR_MARK, 23},  {SQTT_TS_DELTA_OR_MARK, 1023},
                  {SQTT_VALUINST, 1030},   {SQTT_TS_DELTA_OR_MARK, 1130}};
  struct sqtt_writer w;
  struct sqtt_reader r;
  struct sqtt_packet p;
  for (unsigned layout = SQTT_LAYOUT_GFX11; layout <= SQTT_LAYOUT_GFX12; layout++) {
    sqtt_put_header(&w, layout);
    P11(&w, TS_DELTA_SHORT, 0, 0);
    P11(&w, TS_DELTA_SHORT, 15, 0);
    P11(&w, NOP, 0, 0);
    if (layout == SQTT_LAYOUT_GFX11) {
      P11(&w, TS_DELTA_OR_MARK, 5000, F11(TS_DELTA_OR_MARK, rt, 1));
      P11(&w, TS_DELTA_OR_MARK, 1000, 0);
      P11(&w, VALUINST, 7, 0);
      P11(&w, TS_DELTA_OR_MARK, 100, F11(TS_DELTA_OR_MARK, rt, 1) | F11(TS_DELTA_OR_MARK, pl, 1));
    } else {
      SQTT_P(&w, GFX12, TS_DELTA_OR_MARK, 5000, SQTT_F(GFX12, TS_DELTA_OR_MARK, rt, 1));
      SQTT_P(&w, GFX12, TS_DELTA_OR_MARK, 1000, 0);
      SQTT_P(&w, GFX12, VALUINST, 7, 0);
      SQTT_P(&w, GFX12, TS_DELTA_OR_MARK, 100,
             SQTT_F(GFX12, TS_DELTA_OR_MARK, rt, 1) | SQTT_F(GFX12, TS_DELTA_OR_MARK, pl, 1));
    }
    OK(sqtt_open(&r, w.bytes, (w.at + 1) / 2));
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
      assert_int_equal(sqtt_next(&r, &p), 1);
      assert_int_equal(p.type, expected[i].type);
      assert_int_equal(p.time, expected[i].time);
    }
  }
}

static void runs_of_nothing(void **state) {
  struct sqtt_reader r;
  struct sqtt_packet p;
  for (unsigned n = 1; n < 70; n++) {
    struct sqtt_writer w;
    sqtt_put_header(&w, SQTT_LAYOUT_GFX11);
    for (unsigned i = 0; i < n; i++) P11(&w, NOP, 0, 0);
    P11(&w, ALUEXEC, 1, 0);
    OK(sqtt_open(&r, w.bytes, (w.at + 1) / 2));
    assert_int_equal(sqtt_next(&r, &p), 1);
    assert_int_equal(sqtt_next(&r, &p), 1);
    assert_int_equal(p.type, SQTT_NOP);
    assert_int_equal(p.repeat, n);
    assert_int_equal(sqtt_next(&r, &p), 1);
    assert_int_equal(p.type, SQTT_ALUEXEC);
    assert_int_equal(p.offset, 16 + n);
  }
  static const uint8_t zeros[99] = {0x11, 0x80};
  OK(sqtt_open(&r, zeros, sizeof zeros));
  assert_int_equal(r.layout, SQTT_CDNA);
  assert_int_equal(sqtt_next(&r, &p), 1);
  assert_int_equal(sqtt_next(&r, &p), 1);
  assert_int_equal(p.type, SQTT_MISC);
  assert_int_equal(p.repeat, (99 - 8) / 2);
  assert_int_equal(sqtt_next(&r, &p), -EBADMSG); /* half a packet */
}

/* Every byte that begins no packet is refused, at both halves of a byte. */
static void bytes_that_begin_nothing(void **state) {
  unsigned refused = 0;
  for (unsigned byte = 0; byte < 256; byte++)
    for (unsigned odd = 0; odd < 2; odd++) {
      struct sqtt_writer w;
      struct sqtt_reader r;
      struct sqtt_packet p;
      char where[40];
      sqtt_put_header(&w, SQTT_LAYOUT_GFX11);
      if (odd) P11(&w, NOP, 0, 0);
      sqtt_put(&w, byte, 8);
      OK(sqtt_open(&r, w.bytes, sqtt_put_end(&w)));
      for (unsigned i = 0; i < 1 + odd; i++) assert_int_equal(sqtt_next(&r, &p), 1);
      int got = byte & 15 ? sqtt_next(&r, &p) : 1;
      if (got == 1) continue;
      refused++;
      assert_int_equal(got, -EBADMSG);
      snprintf(where, sizeof where, "nibble %u (byte 0x8) is 0x%02x", 16 + odd, byte);
      assert_non_null(strstr(db_error(), where));
    }
  assert_int_equal(refused, 2 * 18);
}

static void not_a_trace(void **state) {
  struct sqtt_reader r;
  struct sqtt_writer w;
  assert_int_equal(sqtt_open(&r, "", 0), -EBADMSG);
  assert_int_equal(sqtt_open(&r, "\177ELF\2\1\1\0", 8), -EBADMSG);
  assert_non_null(strstr(db_error(), "not a header"));
  sqtt_put_header(&w, 5);
  assert_int_equal(sqtt_open(&r, w.bytes, 8), -ENOTSUP);
  assert_non_null(strstr(db_error(), "layout 5"));
}

/* ---- waves and instructions ---- */

/* The first wave of a small program: the issue, the execution and the stall of each instruction. */
static void one_wave(void **state) {
  struct sqtt_writer w;
  struct sqtt_trace t;
  sqtt_put_header(&w, SQTT_LAYOUT_GFX11);
  P11(&w, REG, 0, F11(REG, is_sh, 1) | F11(REG, address, SQTT_REG_PGM_LO) | F11(REG, value, 0x12345678));
  P11(&w, REG, 0, F11(REG, is_sh, 1) | F11(REG, address, SQTT_REG_PGM_HI) | F11(REG, value, 0x7f));
  P11(&w, TS_DELTA_OR_MARK, 100, 0);
  P11(&w, WAVESTART, 0, START11(0, 0, 0, 2, 3));
  P11(&w, WAVESTART, 1, START11(1, 3, 2, 5, 32)); /* elsewhere: no instructions */
  P11(&w, TS_DELTA_SHORT, 5, 0);
  P11(&w, INST, 0, OP11(2, SMEM));              /* 110 */
  P11(&w, VALUINST, 1, F11(VALUINST, wave, 2)); /* 111 */
  P11(&w, ALUEXEC, 3, F11(ALUEXEC, src, 3));    /* 114: both */
  P11(&w, TS_DELTA_OR_MARK, 1000, 0);
  P11(&w, IMMEDIATE, 0, F11(IMMEDIATE, wave, 2));             /* 1114 */
  P11(&w, INST, 1, F11(INST, wave, 2) | F11(INST, op, 0x5b)); /* of another SIMD */
  P11(&w, INST, 1, OP11(2, VMEM_LOAD));                       /* 1116 */
  P11(&w, VMEMEXEC, 2, F11(VMEMEXEC, src, SQTT_MEMORY_OTHER_VMEM));
  P11(&w, VMEMEXEC, 2, F11(VMEMEXEC, src, SQTT_MEMORY_VMEM)); /* 1120 */
  P11(&w, WAVEEND, 5, END11(1, 3, 2, 5));
  P11(&w, WAVEEND, 5, END11(0, 0, 0, 2)); /* 1130 */
  OK(sqtt_decode(&t, w.bytes, sqtt_put_end(&w), NULL, 0));
  assert_int_equal(t.nwaves, 2);
  const struct sqtt_wave *a = &t.waves[0], *b = &t.waves[1];
  assert_int_equal(a->start, 100), assert_int_equal(a->end, 1130);
  assert_int_equal(a->lanes, 3), assert_int_equal(a->slot, 2);
  assert_int_equal(a->program, 0x7f1234567800);
  assert_true(a->has_start && a->has_end && a->traced);
  assert_int_equal(b->start, 101), assert_int_equal(b->end, 1125);
  assert_int_equal(b->lanes, 32), assert_int_equal(b->slot, 5), assert_int_equal(b->sa, 1);
  assert_int_equal(b->wgp, 3), assert_int_equal(b->simd, 2), assert_int_equal(b->insts, 0);
  assert_false(b->traced);
  static const struct {
    unsigned time, class, stall, duration;
  } expected[] = {{110, SQTT_CLASS_SMEM, 10, 4},
                  {111, SQTT_CLASS_VALU, 0, 3},
                  {1114, SQTT_CLASS_IMMEDIATE, 1002, SQTT_NONE},
                  {1116, SQTT_CLASS_MEMORY, 1, 4},
                  {1130, SQTT_CLASS_END, 13, SQTT_NONE}};
  uint32_t at = a->first;
  assert_int_equal(a->insts, 5);
  for (unsigned i = 0; i < a->insts; i++, at = t.insts[at].next) {
    assert_int_equal(t.insts[at].time, expected[i].time);
    assert_int_equal(t.insts[at].class, expected[i].class);
    assert_int_equal(t.insts[at].stall, expected[i].stall);
    assert_int_equal(t.insts[at].duration, expected[i].duration);
    assert_int_equal(t.insts[at].pc, SQTT_NONE);
  }
  assert_int_equal(at, SQTT_NONE);
  sqtt_free(&t);
}

/* A program of six instructions: 0 s_mov, 4 v_add (8 bytes), 12 s_delay_alu, 16 s_cbranch to 4, 20 s_waitcnt, 24
 * s_endpgm. */
static const struct sqtt_code_inst loop_insts[] = {{4, SQTT_CLASS_SALU},
                                                   {8, SQTT_CLASS_VALU},
                                                   {0},
                                                   {4, SQTT_CLASS_IMMEDIATE, .silent = true},
                                                   {4, SQTT_CLASS_BRANCH, .jump = -12},
                                                   {4, SQTT_CLASS_IMMEDIATE},
                                                   {4, SQTT_CLASS_END}};
static const struct sqtt_code loop = {.size = sizeof loop_insts / sizeof *loop_insts * 4, .at = loop_insts};

static void addresses(void **state) {
  struct sqtt_writer w;
  struct sqtt_trace t;
  sqtt_put_header(&w, SQTT_LAYOUT_GFX11);
  P11(&w, WAVESTART, 0, START11(0, 0, 0, 0, 32));
  P11(&w, INST, 1, OP11(0, SALU));
  P11(&w, VALUINST, 1, 0);
  P11(&w, INST, 1, OP11(0, JUMP));
  P11(&w, VALUINST, 1, 0);
  P11(&w, INST, 1, OP11(0, JUMP_NO));
  P11(&w, IMMEDIATE_MASK, 1, F11(IMMEDIATE_MASK, mask, 1));
  P11(&w, WAVEEND, 1, END11(0, 0, 0, 0));
  OK(sqtt_decode(&t, w.bytes, sqtt_put_end(&w), &loop, 1));
  static const unsigned pcs[] = {0, 4, 16, 4, 16, 20, 24};
  assert_int_equal(t.ninsts, 7);
  for (unsigned i = 0; i < 7; i++) assert_int_equal(t.insts[i].pc, pcs[i]);
  assert_int_equal(t.out_of_step, 0);
  sqtt_free(&t);
}

/* Begins a trace of a wave that calls a function. */
static void put_call(struct sqtt_writer *w, uint32_t program) {
  sqtt_put_header(w, SQTT_LAYOUT_GFX11);
  P11(w, REG, 0, F11(REG, is_sh, 1) | F11(REG, address, SQTT_REG_PGM_LO) | F11(REG, value, program >> 8));
  P11(w, WAVESTART, 0, START11(0, 0, 0, 3, 32));
  P11(w, INST, 1, OP11(3, CALL));
}

/* Calls a function at 8 and returns. The targets come late: after the next instruction, and after the wave's end. */
static void jumps_to_registers(void **state) {
  static const struct sqtt_code_inst insts[] = {{4, SQTT_CLASS_BRANCH, .indirect = true},
                                                {4, SQTT_CLASS_END},
                                                {4, SQTT_CLASS_VALU},
                                                {4, SQTT_CLASS_BRANCH, .indirect = true}};
  static const struct sqtt_code code = {.size = 16, .at = insts};
  enum { PROGRAM = 0x123400 };
  for (unsigned cut = 0; cut < 2; cut++) {
    struct sqtt_writer w;
    struct sqtt_trace t;
    put_call(&w, PROGRAM);
    P11(&w, VALUINST, 1, F11(VALUINST, wave, 3));
    P11(&w, NEW_PC, 1, F11(NEW_PC, wave, 2) | F11(NEW_PC, dword, PROGRAM / 4)); /* of another wave */
    P11(&w, NEW_PC, 1, F11(NEW_PC, wave, 3) | F11(NEW_PC, dword, (PROGRAM + 8) / 4));
    P11(&w, INST, 1, OP11(3, CALL));
    P11(&w, WAVEEND, 1, END11(0, 0, 0, 3));
    if (!cut) P11(&w, NEW_PC, 1, F11(NEW_PC, wave, 3) | F11(NEW_PC, dword, (PROGRAM + 4) / 4));
    OK(sqtt_decode(&t, w.bytes, sqtt_put_end(&w), &code, 1));
    const unsigned pcs[] = {0, 8, 12, cut ? SQTT_NONE : 4};
    assert_int_equal(t.ninsts, 4);
    for (unsigned i = 0; i < 4; i++) assert_int_equal(t.insts[i].pc, pcs[i]);
    assert_int_equal(t.out_of_step, 0);
    assert_int_equal(t.not_followed, cut);
    sqtt_free(&t);
  }
}

/* Calls a function outside the code, which jumps to another one there: the addresses of neither are reported. */
static void jumps_out_of_the_code(void **state) {
  static const struct sqtt_code_inst insts[] = {
      {4, SQTT_CLASS_BRANCH, .indirect = true}, {4, SQTT_CLASS_VALU}, {4, SQTT_CLASS_END}};
  static const struct sqtt_code code = {.size = 12, .at = insts};
  enum { PROGRAM = 0x123400 };
  struct sqtt_writer w;
  struct sqtt_trace t;
  put_call(&w, PROGRAM);
  P11(&w, NEW_PC, 1, F11(NEW_PC, wave, 3) | F11(NEW_PC, dword, (PROGRAM + 0x1000) / 4));
  P11(&w, INST, 1, OP11(3, CALL));
  P11(&w, NEW_PC, 1, F11(NEW_PC, wave, 3) | F11(NEW_PC, dword, (PROGRAM + 4) / 4));
  P11(&w, VALUINST, 1, F11(VALUINST, wave, 3));
  P11(&w, WAVEEND, 1, END11(0, 0, 0, 3));
  OK(sqtt_decode(&t, w.bytes, sqtt_put_end(&w), &code, 1));
  assert_int_equal(t.ninsts, 4);
  for (unsigned i = 0; i < 4; i++) assert_int_equal(t.insts[i].pc, i ? SQTT_NONE : 0);
  assert_int_equal(t.not_followed, 1);
  sqtt_free(&t);
}

/* A trace may contain the waves and not their instructions. */
static void instructions_excluded(void **state) {
  struct sqtt_writer w;
  struct sqtt_trace t;
  sqtt_put_header(&w, SQTT_LAYOUT_GFX11);
  P11(&w, WAVESTART, 0, START11(0, 0, 0, 0, 32));
  P11(&w, WAVEEND, 3, END11(0, 0, 0, 0));
  OK(sqtt_decode(&t, w.bytes, sqtt_put_end(&w), &loop, 1));
  assert_int_equal(t.ninsts, 0);
  assert_int_equal(t.out_of_step, 0);
  assert_true(t.waves[0].has_end);
  sqtt_free(&t);
}

/* If packets were lost, the rest does not agree with the code: no wrong address is reported. */
static void addresses_after_a_loss(void **state) {
  struct sqtt_writer w;
  struct sqtt_trace t;
  sqtt_put_header(&w, SQTT_LAYOUT_GFX11);
  P11(&w, WAVESTART, 0, START11(0, 0, 0, 0, 32));
  P11(&w, INST, 1, OP11(0, SALU));
  P11(&w, INST, 1, OP11(0, JUMP)); /* without the v_add before */
  P11(&w, VALUINST, 1, 0);
  P11(&w, WAVESTART, 0, START11(0, 0, 0, 0, 32)); /* the end of the first wave is lost, too */
  P11(&w, INST, 1, OP11(0, SALU));
  OK(sqtt_decode(&t, w.bytes, sqtt_put_end(&w), &loop, 1));
  assert_int_equal(t.ninsts, 4);
  assert_int_equal(t.insts[0].pc, 0);
  assert_int_equal(t.insts[1].pc, SQTT_NONE);
  assert_int_equal(t.insts[2].pc, SQTT_NONE);
  assert_int_equal(t.insts[3].pc, 0);
  assert_int_equal(t.out_of_step, 1);
  assert_int_equal(t.first_out_of_step.pc, 4);
  assert_int_equal(t.first_out_of_step.wave, 0);
  assert_int_equal(t.restarted, 1);
  assert_int_equal(t.nwaves, 2);
  assert_false(t.waves[0].has_end);
  sqtt_free(&t);
}

/* Instructions and the end of a wave whose start is not in the trace. */
static void wave_that_ran_before(void **state) {
  struct sqtt_writer w;
  struct sqtt_trace t;
  sqtt_put_header(&w, SQTT_LAYOUT_GFX11);
  P11(&w, VALUINST, 7, F11(VALUINST, wave, 4));
  P11(&w, WAVEEND, 1, END11(0, 0, 0, 4));
  OK(sqtt_decode(&t, w.bytes, sqtt_put_end(&w), &loop, 1));
  assert_int_equal(t.nwaves, 1);
  assert_int_equal(t.waves[0].insts, 2);
  assert_false(t.waves[0].has_start);
  assert_int_equal(t.waves[0].end, 8);
  assert_int_equal(t.insts[0].pc, SQTT_NONE);
  sqtt_free(&t);
}

static void lost_packets_of_cdna(void **state) {
  struct sqtt_writer w = {.at = 0};
  struct sqtt_trace t;
  sqtt_put(&w, 0xf8011, 64);
  SQTT_P(&w, CDNA, MISC, 0, 3 << 4);
  SQTT_P(&w, CDNA, WAVESTART, 0, SQTT_F(CDNA, WAVESTART, wave, 2) | SQTT_F(CDNA, WAVESTART, count, 64));
  SQTT_P(&w, CDNA, INST, 0, SQTT_F(CDNA, INST, wave, 2) | SQTT_F(CDNA, INST, op, SQTT_CDNA_OP_VALU_MATRIX));
  SQTT_P(&w, CDNA, MISC, 0, SQTT_F(CDNA, MISC, misc_type, 2));
  SQTT_P(&w, CDNA, WAVEEND, 0, SQTT_F(CDNA, WAVEEND, wave, 2));
  OK(sqtt_decode(&t, w.bytes, w.at / 2, NULL, 0));
  assert_int_equal(t.layout, SQTT_CDNA);
  assert_int_equal(t.lost, 1);
  assert_int_equal(t.nwaves, 1);
  assert_int_equal(t.waves[0].lanes, 64);
  assert_int_equal(t.waves[0].start, 12);
  assert_int_equal(t.waves[0].insts, 1);
  assert_int_equal(t.insts[0].class, SQTT_CLASS_VALU);
  assert_string_equal(sqtt_op_name(t.layout, t.insts[0].op), "VALU_MATRIX");
  sqtt_free(&t);
}

/* A trace that is cut anywhere, or with any byte changed, decodes to something or is refused with the place. */
static void cuts_and_changes(void **state) {
  struct sqtt_writer w;
  struct sqtt_trace t;
  unsigned refused[2] = {0};
  sqtt_put_header(&w, SQTT_LAYOUT_GFX11);
  for (unsigned i = 0; i < 8; i++) {
    P11(&w, WAVESTART, 1, START11(0, 0, 0, i, 32));
    P11(&w, INST, 1, OP11(i, SALU));
    P11(&w, REG, 0, F11(REG, value, 0x77777777));
    P11(&w, WAVEEND, 1, END11(0, 0, 0, i));
  }
  size_t size = sqtt_put_end(&w);
  for (size_t n = 0; n < size; n++) {
    uint8_t *copy = malloc(n + 1); /* of exactly the size, for the sanitizers */
    memcpy(copy, w.bytes, n);
    if (sqtt_decode(&t, copy, n, &loop, 1)) refused[0]++, assert_true(n < 8 || strstr(db_error(), "nibble"));
    sqtt_free(&t), free(copy);
  }
  for (size_t at = 8; at < size; at++)
    for (unsigned byte = 0; byte < 256; byte++) {
      uint8_t was = w.bytes[at];
      w.bytes[at] = (uint8_t)byte;
      if (sqtt_decode(&t, w.bytes, size, &loop, 1)) refused[1]++, assert_non_null(strstr(db_error(), "nibble"));
      sqtt_free(&t);
      w.bytes[at] = was;
    }
  assert_true(refused[0] > 50 && refused[1] > 1000);
}

/* ---- recordings ---- */

static uint64_t number(const char *cell) { return strtoull(cell, NULL, 10); }

static void compare_counts(const char *name, const struct sqtt_trace *t, char *const column[RECORDED_COLUMNS]) {
  static const unsigned types[] = {SQTT_WAVESTART,      SQTT_WAVEEND, SQTT_INST,     SQTT_VALUINST, SQTT_IMMEDIATE,
                                   SQTT_IMMEDIATE_MASK, SQTT_ALUEXEC, SQTT_VMEMEXEC, SQTT_WAVERDY,  SQTT_REG,
                                   SQTT_EVENT,          SQTT_NOP};
  enum { OF_CDNA = 2 }; /* the list counts only these types of CDNA's packets */
  uint64_t packets = 0;
  for (unsigned i = 0; i < SQTT_TYPES; i++) packets += t->count[i];
  if (packets != number(column[RECORDED_PACKETS]) || t->clocks != number(column[RECORDED_CLOCKS]))
    fail_msg("%s: %" PRIu64 " packets, time %" PRIu64 "; expected %s and %s", name, packets, t->clocks,
             column[RECORDED_PACKETS], column[RECORDED_CLOCKS]);
  unsigned n = t->layout == SQTT_CDNA ? OF_CDNA : sizeof types / sizeof *types;
  for (unsigned i = 0; i < n; i++)
    if (t->count[types[i]] != number(column[RECORDED_WAVESTARTS + i]))
      fail_msg("%s: %" PRIu64 " packets %s, expected %s", name, t->count[types[i]], sqtt_type_name(types[i]),
               column[RECORDED_WAVESTARTS + i]);
}

/* Compares the counts of packets of every recording. Every wave's start and end are there, and no slot is used twice at
 * a time. */
static void recorded_counts(void **state) {
  FILE *f = recorded_summary();
  char line[4096], name[200], *column[RECORDED_COLUMNS];
  unsigned traces = 0;
  while (fgets(line, sizeof line, f)) {
    size_t size;
    struct sqtt_trace t;
    recorded_split(line, column);
    recorded_name(name, column, "sqtt");
    void *bytes = recorded_bytes(name, &size);
    if (sqtt_decode(&t, bytes, size, NULL, 0)) fail_msg("%s: %s", name, db_error());
    compare_counts(name, &t, column);
    for (unsigned i = 0; i < t.nwaves; i++) assert_true(t.waves[i].has_start && t.waves[i].has_end);
    assert_int_equal(t.nwaves, t.count[SQTT_WAVESTART]);
    assert_int_equal(t.restarted + t.lost, 0);
    if (t.marks > 1) assert_true(sqtt_mhz(&t) > 500 && sqtt_mhz(&t) < 4000);
    sqtt_free(&t), free(bytes), traces++;
  }
  fclose(f);
  print_message("%u traces\n", traces);
}

/* The listing was made with other names for these fields, or for parts of them. */
static bool is_renamed(const char *name) {
  static const char *const names[] = {"slot", "hi_byte", "subop", "val32", "id7", "b4", "regaddr", "regdata", "delta"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i])) return true;
  return false;
}

static void compare_fields(const char *where, enum sqtt_layout layout, const struct sqtt_packet *p, char *text) {
  unsigned n;
  const struct sqtt_field *field = sqtt_fields(layout, p->type, &n);
  for (char *word; (word = strsep(&text, " "));) {
    char *equal = strchr(word, '=');
    if (!equal) continue;
    *equal = 0;
    unsigned i = 0;
    while (i < n && strcmp(field[i].name, word) != 0) i++;
    if (i == n && is_renamed(word)) continue;
    if (i == n) fail_msg("%s: %s has no field %s", where, sqtt_type_name(p->type), word);
    if (sqtt_field_value(&field[i], p) != strtoull(equal + 1, NULL, 0))
      fail_msg("%s: %s.%s = %" PRIu64 ", expected %s", where, sqtt_type_name(p->type), word,
               sqtt_field_value(&field[i], p), equal + 1);
  }
}

/* Compares the packets of one recording with its listing. Returns their number. */
static uint64_t compare_packets(const char *name, FILE *list) {
  enum { OFFSET, TIME, NAME, RAW, FIELDS };
  char row[1024], where[300], *cell[RECORDED_COLUMNS];
  uint64_t packets = 0;
  size_t size;
  struct sqtt_reader r;
  struct sqtt_packet p;
  uint8_t *bytes = recorded_bytes(name, &size);
  OK(sqtt_open(&r, bytes, size));
  assert_non_null(fgets(row, sizeof row, list));
  while (fgets(row, sizeof row, list)) {
    recorded_split(row, cell);
    char *times = strchr(cell[NAME], '*');
    if (times) *times++ = 0;
    snprintf(where, sizeof where, "%s, nibble %s", name, cell[OFFSET]);
    if (sqtt_next(&r, &p) != 1) fail_msg("%s: %s", where, db_error());
    if (p.offset != number(cell[OFFSET]) || p.time != number(cell[TIME]) ||
        strcmp(sqtt_type_name(p.type), cell[NAME]) != 0 || p.bits != strtoull(cell[RAW], NULL, 16) ||
        p.repeat != (times ? number(times) : 1))
      fail_msg("%s: %s*%u 0x%" PRIx64 " at %" PRIu64 ", time %" PRIu64 "; expected %s*%s %s, time %s", where,
               sqtt_type_name(p.type), p.repeat, p.bits, p.offset, p.time, cell[NAME], times ? times : "1", cell[RAW],
               cell[TIME]);
    compare_fields(where, r.layout, &p, cell[FIELDS]);
    packets += p.repeat;
  }
  assert_int_equal(sqtt_next(&r, &p), 0);
  free(bytes);
  return packets;
}

/* Compares each packet of the recordings that have a listing. */
static void recorded_packets(void **state) {
  FILE *f = recorded_summary(), *list;
  char line[4096], name[200], *column[RECORDED_COLUMNS];
  unsigned listings = 0;
  uint64_t packets = 0;
  while (fgets(line, sizeof line, f)) {
    recorded_split(line, column);
    recorded_name(name, column, "packets.tsv");
    if (!(list = recorded_file(name))) continue;
    recorded_name(name, column, "sqtt");
    packets += compare_packets(name, list);
    fclose(list), listings++;
  }
  fclose(f);
  print_message("%u listings, %" PRIu64 " packets\n", listings, packets);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(packets_of_gfx11),
      cmocka_unit_test(clock_rules),
      cmocka_unit_test(runs_of_nothing),
      cmocka_unit_test(bytes_that_begin_nothing),
      cmocka_unit_test(not_a_trace),
      cmocka_unit_test(one_wave),
      cmocka_unit_test(addresses),
      cmocka_unit_test(jumps_to_registers),
      cmocka_unit_test(jumps_out_of_the_code),
      cmocka_unit_test(instructions_excluded),
      cmocka_unit_test(addresses_after_a_loss),
      cmocka_unit_test(wave_that_ran_before),
      cmocka_unit_test(lost_packets_of_cdna),
      cmocka_unit_test(cuts_and_changes),
      cmocka_unit_test(recorded_counts),
      cmocka_unit_test(recorded_packets),
  };
  return cmocka_run_group_tests_name("sqtt", tests, NULL, NULL);
}
