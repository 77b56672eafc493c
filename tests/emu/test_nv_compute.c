/* The compute class of an emulated NVIDIA channel: inline-to-memory writes, report semaphores, QMD launches and their
 * dependents. Words and bits are literal; their meaning is in open-gpu-doc's clcbc0.h, clcbc0qmd.h and, for the older
 * layout, clc7c0qmd.h. */
#include "nv_engine.h"

/* ptxas 13.0's code for sm_90 of
 *    spin(volatile unsigned *p) { while (!*p) {} }
 *    digit(unsigned *p, unsigned k) { *p = *p * 10 + k; }
 *    cta(unsigned *out) { out[the CTA's number] = blockIdx.x | blockIdx.y << 8 | blockIdx.z << 16 | blockDim.x << 24; }
 * with parameters from c[0x0][0x210] on. */
static const uint64_t spin_code[] = {
    0x00000a00ff017b82, 0x000ff00000000800, /* LDC R1, c[0x0][0x28] */
    0x00008400ff027b82, 0x000e220000000a00, /* LDC.64 R2, c[0x0][0x210] */
    0x0000820000047ab9, 0x000fca0000000a00, /* ULDC.64 UR4, c[0x0][0x208] */
    0x0000000402007981, 0x001ea4000c1f5900, /* LDG.E.STRONG.SYS R0, desc[UR4][R2.64] */
    0x000000ff0000720c, 0x004fda0003f05270, /* ISETP.NE.AND P0, PT, R0, RZ, PT */
    0xfffffffc00f48947, 0x000fea000383ffff, /* @!P0 BRA 0x30 */
    0x000000000000794d, 0x000fea0003800000, /* EXIT */
};
static const uint64_t digit_code[] = {
    0x00000a00ff017b82, 0x000ff00000000800, /* LDC R1, c[0x0][0x28] */
    0x00008400ff027b82, 0x000e220000000a00, /* LDC.64 R2, c[0x0][0x210] */
    0x0000820000047ab9, 0x000fce0000000a00, /* ULDC.64 UR4, c[0x0][0x208] */
    0x00008600ff057b82, 0x000e620000000800, /* LDC R5, c[0x0][0x218] */
    0x0000000402007981, 0x001e64000c1e1900, /* LDG.E R0, desc[UR4][R2.64] */
    0x0000000a00057824, 0x002fca00078e0205, /* IMAD R5, R0, 0xa, R5 */
    0x0000000502007986, 0x000fe2000c101904, /* STG.E desc[UR4][R2.64], R5 */
    0x000000000000794d, 0x000fea0003800000, /* EXIT */
};
static const uint64_t cta_code[] = {
    0x00000a00ff017b82, 0x000fe20000000800, /* LDC R1, c[0x0][0x28] */
    0x0000000000047919, 0x000e220000002600, /* S2R R4, SR_CTAID.Y */
    0x0000000000047ab9, 0x000fcc0000000800, /* ULDC UR4, c[0x0][0x0] */
    0x00000300ff097b82, 0x000e620000000800, /* LDC R9, c[0x0][0xc] */
    0x0000001804047899, 0x000fe2000800063f, /* USHF.L.U32 UR4, UR4, 0x18, URZ */
    0x0000000000077919, 0x000eac0000002700, /* S2R R7, SR_CTAID.Z */
    0x00000400ff067b82, 0x000ef00000000800, /* LDC R6, c[0x0][0x10] */
    0x00000000000579c3, 0x000f300000002500, /* S2UR UR5, SR_CTAID.X */
    0x00008400ff027b82, 0x000f620000000a00, /* LDC.64 R2, c[0x0][0x210] */
    0x0000000804007819, 0x001fc400000006ff, /* SHF.L.U32 R0, R4, 0x8, RZ */
    0x0000001007057819, 0x044fe200000006ff, /* SHF.L.U32 R5, R7.reuse, 0x10, RZ */
    0x0000000607047224, 0x008fc600078e0204, /* IMAD R4, R7, R6, R4 */
    0x0000000505007c12, 0x010fe2000f8efe00, /* LOP3.LUT R0, R5, UR5, R0, 0xfe, !PT */
    0x0000000504077e24, 0x002fc6000f8e0209, /* IMAD R7, R4, R9, UR5 */
    0x0000000400057c12, 0x000fe2000f8efcff, /* LOP3.LUT R5, R0, UR4, RZ, 0xfc, !PT */
    0x0000820000047ab9, 0x000fe20000000a00, /* ULDC.64 UR4, c[0x0][0x208] */
    0x0000000407027825, 0x020fca00078e0002, /* IMAD.WIDE.U32 R2, R7, 0x4, R2 */
    0x0000000502007986, 0x000fe2000c101904, /* STG.E desc[UR4][R2.64], R5 */
    0x000000000000794d, 0x000fea0003800000, /* EXIT */
};

enum { COMPUTE = 1, SPIN_AT = 0x100000, DIGIT_AT = 0x101000, CTA_AT = 0x102000, QMD_AT = 0x110000, BANK_AT = 0x120000 };

struct fixture {
  struct gpu g;
  struct chan c;
};

static void put_init(struct chan *c, uint32_t class) {
  PUT(c, INC(COMPUTE, 0, 1), class, INC(COMPUTE, 0x2a0, 2), 4, 0, INC(COMPUTE, 0x7b0, 2), 3, 0xff000000);
}
static void load(struct gpu *g) {
  memcpy(g->data + SPIN_AT, spin_code, sizeof spin_code);
  memcpy(g->data + DIGIT_AT, digit_code, sizeof digit_code);
  memcpy(g->data + CTA_AT, cta_code, sizeof cta_code);
}
static int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  gpu_open(&f->g);
  load(&f->g);
  chan_open(&f->g, &f->c, NULL, NV_ENGINE_GRAPHICS, 0);
  put_init(&f->c, 0xcbc0);
  *state = f;
  return 0;
}
static int teardown(void **state) {
  struct fixture *f = *state;
  chan_close(&f->c);
  gpu_close(&f->g);
  free(f);
  return 0;
}
static uint32_t *word(struct fixture *f, unsigned i) { return (uint32_t *)(void *)f->g.data + i; }

/* ---- QMDs ---- */

static void set(uint32_t *q, unsigned hi, unsigned lo, uint64_t value) {
  for (unsigned b = lo; b <= hi; b++)
    q[b / 32] = (q[b / 32] & ~(1u << b % 32)) | (uint32_t)(value >> (b - lo) & 1) << b % 32;
}

/* A launch of the program at data + code with constant bank 0 at data + BANK_AT + 0x400 i, whose parameters are a
 * pointer and a number. Returns the QMD, at data + QMD_AT + 0x200 i. */
static uint32_t *qmd(struct fixture *f, unsigned i, uint32_t code, uint32_t x, uint32_t y, uint32_t z, uint32_t block,
                     uint64_t pointer, uint32_t number) {
  uint32_t *q = (void *)(f->g.data + QMD_AT + 0x200 * i), *bank = (void *)(f->g.data + BANK_AT + 0x400 * i);
  uint64_t pgm = f->g.data_va + code, bank_va = f->g.data_va + BANK_AT + 0x400 * i;
  memset(bank, 0, 0x400);
  const uint32_t head[6] = {block, 1, 1, x, y, z};
  memcpy(bank, head, sizeof head);
  memcpy(bank + 0x210 / 4, &pointer, 8);
  bank[0x218 / 4] = number;
  memset(q, 0, 384);
  set(q, 583, 580, 4);
  set(q, 25, 23, 2); /* GRID_CTA */
  set(q, 543, 536, 0x90);
  set(q, 1247, 1216, LO(pgm));
  set(q, 1272, 1248, HI(pgm));
  set(q, 1208, 1200, 16); /* registers */
  set(q, 1055, 1024, x);
  set(q, 1071, 1056, y);
  set(q, 1103, 1088, z);
  set(q, 1167, 1152, block);
  set(q, 1183, 1168, 1);
  set(q, 1199, 1184, 1);
  set(q, 601, 584, 1024); /* shared memory */
  set(q, 613, 608, 3);    /* minimum: 8 KiB */
  set(q, 625, 620, 3);
  set(q, 619, 614, 58); /* maximum: 228 KiB */
  set(q, 416, 416, 1);
  set(q, 1567, 1536, bank_va >> 6);
  set(q, 1586, 1568, bank_va >> 38);
  set(q, 1599, 1587, 0x400 >> 4);
  return q;
}
static uint64_t qmd_va(struct fixture *f, unsigned i) { return f->g.data_va + QMD_AT + 0x200 * i; }
static void put_pcas(struct chan *c, uint64_t va, unsigned action) {
  PUT(c, INC(COMPUTE, 0x2b4, 1), (uint32_t)(va >> 8), IMMD(COMPUTE, 0x2c0, action));
}
static void set_release(uint32_t *q, unsigned i, uint64_t va, uint64_t payload, unsigned size) {
  static const unsigned at[3] = {640, 768, 896}, payload_at[3] = {704, 832, 960};
  set(q, 320 + 16 * i, 320 + 16 * i, 1);
  set(q, 322 + 16 * i, 321 + 16 * i, size);
  set(q, at[i] + 31, at[i], LO(va));
  set(q, at[i] + 56, at[i] + 32, HI(va));
  set(q, payload_at[i] + 31, payload_at[i], LO(payload));
  set(q, payload_at[i] + 63, payload_at[i] + 32, HI(payload));
}

/* ---- without SMs ---- */

static void put_i2m(struct chan *c, unsigned subchannel, uint64_t va, uint32_t n, uint32_t launch) {
  PUT(c, INC(subchannel, 0x180, 4), n, 1, HI(va), LO(va), INC(subchannel, 0x1b0, 1), launch);
}

static void inline_to_memory(void **state) {
  struct fixture *f = *state;
  memset(f->g.data, 0xee, 256);
  put_i2m(&f->c, COMPUTE, f->g.data_va, 13, 0x41);
  PUT(&f->c, NON_INC(COMPUTE, 0x1b4, 4), 0x03020100, 0x07060504, 0x0b0a0908, 0xaaaaaa0c);
  put_i2m(&f->c, COMPUTE, f->g.data_va + 17, 4, 0x11); /* not aligned */
  PUT(&f->c, IMMD(COMPUTE, 0x1b4, 0x155));
  /* Three lines of 4 bytes, 16 apart. */
  PUT(&f->c, INC(COMPUTE, 0x180, 5), 4, 3, HI(f->g.data_va), LO(f->g.data_va + 32), 16, INC(COMPUTE, 0x1b0, 1), 0x41,
      NON_INC(COMPUTE, 0x1b4, 3), 1, 2, 3);
  /* Four words of semaphore, and one with a reduction. */
  PUT(&f->c, INC(COMPUTE, 0x1dc, 3), HI(f->g.data_va), LO(f->g.data_va + 96), 0x77);
  put_i2m(&f->c, COMPUTE, f->g.data_va + 128, 4, 1 | 2 << 4);
  PUT(&f->c, IMMD(COMPUTE, 0x1b4, 5));
  put_i2m(&f->c, COMPUTE, f->g.data_va + 132, 4, 1 | 2 << 4 | 1 << 12 | 1 << 1 | 0 << 13);
  PUT(&f->c, IMMD(COMPUTE, 0x1b4, 6));
  /* The separate inline-to-memory class. */
  PUT(&f->c, INC(2, 0, 1), 0xa140);
  put_i2m(&f->c, 2, f->g.data_va + 140, 4, 0x11);
  PUT(&f->c, IMMD(2, 0x1b4, 7));
  finish(&f->c);
  for (unsigned i = 0; i < 16; i++) assert_int_equal(f->g.data[i], i < 13 ? i : 0xee);
  const uint8_t odd[6] = {0xee, 0x55, 1, 0, 0, 0xee};
  assert_memory_equal(f->g.data + 16, odd, 6);
  for (unsigned i = 0; i < 3; i++) {
    assert_int_equal(*word(f, 8 + 4 * i), i + 1);
    assert_int_equal(*word(f, 9 + 4 * i), 0xeeeeeeee);
  }
  assert_int_equal(*word(f, 24), 0x77 + 0x77);
  assert_int_equal(*word(f, 25), 0);
  assert_true(*word(f, 26) != 0xeeeeeeee);
  assert_int_equal(*word(f, 32), 5);
  assert_int_equal(*word(f, 33), 6);
  assert_int_equal(*word(f, 35), 7);
}

static void report_semaphores(void **state) {
  struct fixture *f = *state;
  uint64_t va = f->g.data_va, before = nv_engines_time(f->g.e);
  const uint64_t *d = (const void *)f->g.data;
  memset(f->g.data, 0xee, 256);
  PUT(&f->c, INC(COMPUTE, 0x1b00, 4), HI(va), LO(va), 0x11, 0);                                /* four words */
  PUT(&f->c, INC(COMPUTE, 0x1b00, 4), HI(va), LO(va + 16), 0x12, 1 << 28 | 1 << 20);           /* one, AWAKEN */
  PUT(&f->c, INC(COMPUTE, 0x1b00, 4), HI(va), LO(va), 5, 1 << 28 | 1 << 3 | 0 << 9);           /* add */
  PUT(&f->c, INC(COMPUTE, 0x1b00, 4), HI(va), LO(va), 5, 1 << 28 | 1 << 3 | 1 << 9 | 1 << 17); /* signed minimum */
  PUT(&f->c, INC(COMPUTE, 0x158, 5), 0x21, 0x22, LO(va + 32), HI(va), 0 | 1 << 3);
  PUT(&f->c, INC(COMPUTE, 0x158, 5), 0x21, 0x22, LO(va + 40), HI(va), 0 | 2 << 3 | 1 << 12);
  PUT(&f->c, INC(COMPUTE, 0x158, 5), 0x21, 0x22, LO(va + 48), HI(va), 0 | 0 << 3 | 1 << 12);
  PUT(&f->c, INC(COMPUTE, 0x158, 5), 1, 0, LO(va + 40), HI(va), 0 | 2 << 3 | 1 << 12 | 1 << 6);
  finish(&f->c);
  assert_int_equal(d[0], 5);
  assert_true(d[1] >= before);
  assert_int_equal(d[2], 0xeeeeeeee00000012);
  assert_int_equal(d[4], 0xeeeeeeee00000021);
  assert_int_equal(d[5], 0x2200000022);
  assert_int_equal(d[6], 0x2200000021);
  assert_true(d[7] >= d[1] && d[7] <= nv_engines_time(f->g.e));
}

static void states(void **state) {
  struct fixture *f = *state;
  PUT(&f->c, INC(COMPUTE, 0x310, 1), 0x900, INC(COMPUTE, 0x288, 1), 0x00010040, IMMD(COMPUTE, 0x110, 0));
  PUT(&f->c, INC(COMPUTE, 0x1698, 1), 0x1011, INC(COMPUTE, 0x21c, 1), 0x1017, INC(COMPUTE, 0x1528, 1), 1);
  PUT(&f->c, IMMD(COMPUTE, 0x100, 5), IMMD(COMPUTE, 0x298, 0), IMMD(COMPUTE, 0x1558, 1));
  finish(&f->c);
}

static void bad_methods(void **state) {
  struct fixture *f = *state;
  uint32_t hi = HI(f->g.data_va), lo = LO(f->g.data_va);
  const struct {
    uint32_t w[8];
    unsigned n, xid;
    const char *what;
  } cases[] = {
      {{IMMD(COMPUTE, 0x11c, 0)}, 1, 69, "class 0xcbc0 has no method 0x11c"},
      {{IMMD(COMPUTE, 0x270, 0)}, 1, 69, "no method 0x270"}, /* up to C9C0 */
      {{IMMD(COMPUTE, 0x1528, 2)}, 1, 69, "SET_SHADER_EXCEPTIONS sets reserved bits 0x2"},
      {{IMMD(COMPUTE, 0x2c0, 4)}, 1, 69, "PCAS action 4"},
      {{IMMD(COMPUTE, 0x2c0, 6)}, 1, 69, "not supported"},
      {{IMMD(COMPUTE, 0x1558, 0)}, 1, 69, "conditional launches"},
      {{IMMD(COMPUTE, 0x29c, 1)}, 1, 69, "virtualization"},
      {{IMMD(COMPUTE, 0x33e0, 1)}, 1, 69, "not supported"},
      {{IMMD(COMPUTE, 0x1b4, 0)}, 1, 69, "more than LAUNCH_DMA announced"},
      {{IMMD(COMPUTE, 0x180, 8), IMMD(COMPUTE, 0x184, 1), IMMD(COMPUTE, 0x1b0, 1), IMMD(COMPUTE, 0x1b0, 1)},
       4,
       69,
       "8 bytes of the one before"},
      {{IMMD(COMPUTE, 0x1b0, 0)}, 1, 69, "block-linear"},
      {{INC(COMPUTE, 0x180, 4), 4, 1, 0, 0x40000000, IMMD(COMPUTE, 0x1b0, 1), IMMD(COMPUTE, 0x1b4, 9)},
       7,
       31,
       "LOAD_INLINE_DATA writes 0x40000000"},
      {{INC(COMPUTE, 0x1b00, 4), hi, lo, 0, 3}, 5, 69, "not supported"},
      {{INC(COMPUTE, 0x1b00, 4), hi, lo + 4, 0, 0}, 5, 69, "not 16-byte aligned"},
      {{INC(COMPUTE, 0x158, 5), 0, 0, lo, hi, 3 << 3}, 6, 69, "structure size 3"},
      {{INC(COMPUTE, 0x158, 5), 0, 0, lo, hi, 1 << 3 | 1 << 12}, 6, 69, "64 bits"},
      {{INC(COMPUTE, 0x158, 5), 0, 0, lo, hi, 1}, 6, 69, "not supported"},
      {{INC(COMPUTE, 0x1b00, 4), 0, 64, 0, 1 << 28}, 5, 31, "writes 0x40"},
      {{INC(COMPUTE, 0x2b4, 1), 0x400000, IMMD(COMPUTE, 0x2c0, 9)}, 3, 31, "fetch of a QMD reads 0x40000000"},
      {{INC(COMPUTE, 0x318, 2), 0, 0, IMMD(COMPUTE, 0x320, 1)}, 4, 69, "INLINE_SIZE is 256 bytes"},
      {{INC(2, 0, 1), 0xa140, IMMD(2, 0x2c0, 9)}, 3, 69, "class 0xa140 has no method 0x2c0"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct chan c;
    chan_open(&f->g, &c, NULL, NV_ENGINE_GRAPHICS, 0);
    put_init(&c, 0xcbc0);
    put_words(&c, cases[i].w, cases[i].n);
    dies(&c, cases[i].xid, cases[i].what);
    chan_close(&c);
  }
}

/* ---- launches ---- */

static void check_ctas(struct fixture *f, uint32_t block) {
  for (uint32_t z = 0; z < 2; z++)
    for (uint32_t y = 0; y < 3; y++)
      for (uint32_t x = 0; x < 5; x++)
        assert_int_equal(*word(f, x + 5 * (y + 3 * z)), x | y << 8 | z << 16 | block << 24);
}

static void launches_a_grid(void **state) {
  struct fixture *f = *state;
  struct emu_stats before, after;
  uint32_t *q = qmd(f, 0, CTA_AT, 5, 3, 2, 96, f->g.data_va, 0);
  uint64_t start = nv_engines_time(f->g.e);
  nv_engines_stats(f->g.e, &before);
  set_release(q, 0, f->g.data_va + 0x1000, 0x1234, 0);
  set_release(q, 1, f->g.data_va + 0x1010, 0x5678, 1);
  set_release(q, 2, f->g.data_va + 0x1018, 0x1122334455667788, 2);
  set(q, 364, 364, 1); /* 64-bit payload */
  put_pcas(&f->c, qmd_va(f, 0), 9);
  submit(&f->c);
  assert_true(becomes(f->g.data + 0x1018, 0x55667788, 5000));
  check_ctas(f, 96);
  const uint64_t *d = (const void *)(f->g.data + 0x1000);
  assert_int_equal(d[0], 0x1234);
  assert_true(d[1] >= start && d[1] <= nv_engines_time(f->g.e));
  assert_int_equal(d[2], 0x5678);
  assert_int_equal(d[3], 0x1122334455667788);
  nv_engines_stats(f->g.e, &after);
  assert_int_equal(after.dispatches - before.dispatches, 1);
  assert_int_equal(after.workgroups - before.workgroups, 30);
  assert_int_equal(after.waves - before.waves, 90);
  assert_int_equal(after.instructions - before.instructions, 90 * 19);
}

/* Every action that schedules a QMD, and those that do not. */
static void pcas_actions(void **state) {
  struct fixture *f = *state;
  static const uint8_t launch[] = {2, 3, 9, 10, 11}, none[] = {0, 1, 8};
  uint32_t want = 0;
  for (unsigned i = 0; i < sizeof launch; i++) {
    qmd(f, i, DIGIT_AT, 1, 1, 1, 1, f->g.data_va, i + 1);
    put_pcas(&f->c, qmd_va(f, i), launch[i]);
    want = want * 10 + i + 1;
  }
  for (unsigned i = 0; i < sizeof none; i++) put_pcas(&f->c, qmd_va(f, 0), none[i]);
  PUT(&f->c, INC(COMPUTE, 0x2b4, 1), (uint32_t)(qmd_va(f, 0) >> 8), IMMD(COMPUTE, 0x2bc, 3)); /* the older form */
  finish(&f->c);
  assert_int_equal(*word(f, 0), want * 10 + 1);
}

static void inline_qmd(void **state) {
  struct fixture *f = *state;
  uint32_t *q = qmd(f, 0, DIGIT_AT, 1, 1, 1, 1, f->g.data_va, 7), copy[96];
  uint64_t at = qmd_va(f, 4);
  memcpy(copy, q, sizeof copy);
  memset(q, 0, sizeof copy);
  PUT(&f->c, INC(COMPUTE, 0x318, 2), (uint32_t)(at >> 40) | 1u << 30, (uint32_t)(at >> 8));
  PUT(&f->c, INC(COMPUTE, 0x320, 96));
  put_words(&f->c, copy, 96);
  finish(&f->c);
  assert_int_equal(*word(f, 0), 7);
  assert_memory_equal(f->g.data + QMD_AT + 4 * 0x200, copy, sizeof copy);
}

static void set_dependent(uint32_t *q, unsigned i, uint64_t va, unsigned action) {
  set(q, 368 + 5 * i, 368 + 5 * i, 1);
  set(q, 371 + 5 * i, 369 + 5 * i, action);
  set(q, 479 + 32 * i, 448 + 32 * i, va >> 8);
}

/* 1 starts 2 and 3, 3 starts 4; one QMD in the chain has no grid. */
static void chains(void **state) {
  struct fixture *f = *state;
  uint32_t *q[6];
  for (unsigned i = 1; i <= 5; i++) q[i] = qmd(f, i, DIGIT_AT, 1, 1, 1, 1, f->g.data_va, i);
  set_dependent(q[1], 0, qmd_va(f, 2), 1);
  set_dependent(q[1], 1, qmd_va(f, 3), 3);
  set(q[1], 372, 372, 1); /* prefetch */
  set_dependent(q[3], 0, qmd_va(f, 5), 1);
  set(q[5], 25, 23, 1); /* GRID_NULL: no 5 */
  set_dependent(q[5], 1, qmd_va(f, 4), 1);
  set_release(q[5], 0, f->g.data_va + 0x1000, 99, 1);
  put_pcas(&f->c, qmd_va(f, 1), 9);
  finish(&f->c);
  assert_int_equal(*word(f, 0), 1234);
  assert_int_equal(*word(f, 0x400), 99);
}

/* The last one of two QMDs to end starts the third; also counters set by methods. */
static void dependence_counters(void **state) {
  struct fixture *f = *state;
  uint32_t *q[5];
  for (unsigned i = 1; i <= 4; i++) q[i] = qmd(f, i, DIGIT_AT, 1, 1, 1, 1, f->g.data_va, i);
  set_dependent(q[1], 0, qmd_va(f, 3), 4);
  set_dependent(q[2], 0, qmd_va(f, 3), 4);
  set(q[3], 15, 0, 2);
  put_pcas(&f->c, qmd_va(f, 1), 9);
  put_pcas(&f->c, qmd_va(f, 2), 9);
  finish(&f->c);
  assert_int_equal(*word(f, 0), 123);
  set(q[4], 30, 30, 1); /* also asks to be scheduled */
  put_pcas(&f->c, qmd_va(f, 4), 12);
  put_pcas(&f->c, qmd_va(f, 4), 12);
  put_pcas(&f->c, qmd_va(f, 4), 9);
  put_pcas(&f->c, qmd_va(f, 4), 7);
  finish(&f->c);
  assert_int_equal(*word(f, 0), 123);
  put_pcas(&f->c, qmd_va(f, 4), 7);
  finish(&f->c);
  assert_int_equal(*word(f, 0), 1234);
  put_pcas(&f->c, qmd_va(f, 4), 7);
  dies(&f->c, 13, "dependence counter is already 0");
}

static void release_reductions(void **state) {
  struct fixture *f = *state;
  uint32_t *q = qmd(f, 0, DIGIT_AT, 1, 1, 1, 1, f->g.data_va, 1);
  set_release(q, 0, f->g.data_va + 64, 5, 1);
  set(q, 324, 324, 1); /* add */
  set_release(q, 1, f->g.data_va + 68, (uint32_t)-3, 1);
  set(q, 340, 340, 1);
  set(q, 343, 341, 2); /* maximum */
  set(q, 345, 344, 1); /* signed */
  *word(f, 16) = 10;
  *word(f, 17) = 2;
  put_pcas(&f->c, qmd_va(f, 0), 3);
  finish(&f->c);
  assert_int_equal(*word(f, 16), 15);
  assert_int_equal(*word(f, 17), 2);
}

static void clusters(void **state) {
  struct fixture *f = *state;
  uint32_t *q = qmd(f, 0, CTA_AT, 4, 3, 2, 32, f->g.data_va, 0);
  set(q, 25, 23, 3); /* GRID_GPC_CGA */
  set(q, 2149, 2144, 2);
  set(q, 2157, 2152, 1);
  set(q, 2165, 2160, 2);
  put_pcas(&f->c, qmd_va(f, 0), 9);
  finish(&f->c);
  for (uint32_t i = 0; i < 24; i++) assert_int_equal(*word(f, i), i % 4 | i / 4 % 3 << 8 | i / 12 << 16 | 32 << 24);
}

static void bad_qmds(void **state) {
  struct fixture *f = *state;
  static const struct {
    unsigned hi, lo;
    uint64_t value;
    const char *what;
  } cases[] = {
      {583, 580, 3, "version 3.0, class 0xcbc0 takes 4.0"},
      {579, 576, 1, "version 4.1"},
      {26, 26, 1, "dword 0 = 0x05000000 sets reserved bits 0x04000000"},
      {25, 23, 5, "not supported: type 5"},
      {25, 23, 6, "type 6"},
      {1055, 1024, 0, "grid dimension 0 is 0"},
      {1055, 1024, 0x80000000, "grid dimension 0"},
      {1103, 1088, 0, "grid dimension 2 is 0"},
      {1167, 1152, 0, "CTA dimension 0 is 0"},
      {1167, 1152, 1025, "CTA dimension 0 is 1025"},
      {1199, 1184, 65, "CTA dimension 2 is 65"},
      {1183, 1168, 1024, "exceeds 1024 threads"},
      {2149, 2144, 2, "a cluster of 2, but type 2"},
      {1208, 1200, 0, "0 registers"},
      {1208, 1200, 256, "256 registers"},
      {1215, 1211, 17, "17 barriers"},
      {601, 584, 1000, "not a multiple of 128"},
      {601, 584, 229 << 10, "a CTA can have 233472"},
      {613, 608, 2, "MIN_SM_CONFIG_SHARED_MEM_SIZE 2 is not a configuration"},
      {613, 608, 5, "are not ascending"},
      {619, 614, 1, "are not ascending"},
      {543, 536, 0x86, "SASS_VERSION 0x86"},
      {1222, 1216, 16, "not 128-byte aligned"},
      {567, 544, 8, "not multiples of 16"},
      {535, 512, 16, "NON_THROTTLED is 0"},
      {303, 288, 1, "HW_ONLY_DEPENDENCE_COUNTER belongs to the hardware"},
      {28, 28, 1, "ARRIVE_AT_LATCH_VALID"},
      {56, 32, 1, "CIRCULAR_QUEUE_SIZE"},
      {368, 368, 1, "queues"}, /* action 0 is INCREMENT_PUT */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct chan c;
    uint32_t *q = qmd(f, 0, DIGIT_AT, 1, 1, 1, 2, f->g.data_va, 1);
    set(q, cases[i].hi, cases[i].lo, cases[i].value);
    chan_open(&f->g, &c, NULL, NV_ENGINE_GRAPHICS, 0);
    put_init(&c, 0xcbc0);
    put_pcas(&c, qmd_va(f, 0), 9);
    dies(&c, 13, cases[i].what);
    chan_close(&c);
  }
  uint32_t *q = qmd(f, 0, DIGIT_AT, 1, 1, 1, 1024, f->g.data_va, 1);
  set(q, 1208, 1200, 65);
  put_pcas(&f->c, qmd_va(f, 0), 9);
  dies(&f->c, 13, "1024 threads with 65 registers");
}

static void bad_set_up(void **state) {
  struct fixture *f = *state;
  struct chan c;
  uint32_t *q = qmd(f, 0, DIGIT_AT, 1, 1, 1, 1, f->g.data_va, 1);
  chan_open(&f->g, &c, NULL, NV_ENGINE_GRAPHICS, 0);
  put_init(&c, 0xcbc0);
  PUT(&c, INC(COMPUTE, 0x2a0, 2), 4, 0x1000000); /* not 4 GiB aligned */
  put_pcas(&c, qmd_va(f, 0), 9);
  dies(&c, 13, "not aligned to their size");
  chan_close(&c);
  chan_open(&f->g, &c, NULL, NV_ENGINE_GRAPHICS, 0);
  put_init(&c, 0xcbc0);
  PUT(&c, INC(COMPUTE, 0x7b0, 2), 4, 0x1000000);
  put_pcas(&c, qmd_va(f, 0), 9);
  dies(&c, 13, "overlap");
  chan_close(&c);
  /* 16 bytes per thread, 32 lanes, 64 warps, 2 SMs, 66 TPCs: 64 KiB each */
  set(q, 535, 512, 16);
  chan_open(&f->g, &c, NULL, NV_ENGINE_GRAPHICS, 0);
  put_init(&c, 0xcbc0);
  PUT(&c, INC(COMPUTE, 0x790, 2), HI(f->g.data_va), LO(f->g.data_va), INC(COMPUTE, 0x2e4, 3), 0, 0x10000, 0x1ff);
  put_pcas(&c, qmd_va(f, 0), 9);
  finish(&c);
  assert_int_equal(*word(f, 0), 1);
  PUT(&c, INC(COMPUTE, 0x790, 2), HI(f->g.data_va), LO(f->g.data_va + 0x400000));
  put_pcas(&c, qmd_va(f, 0), 9);
  dies(&c, 31, "local memory writes 0x7f0800000");
  chan_close(&c);
  set(q, 535, 512, 0);
  set(q, 1272, 1248, 0x55);
  put_pcas(&f->c, qmd_va(f, 0), 9);
  dies(&f->c, 31, "fetch of a program reads 0x55");
}

/* ---- faults of SMs ---- */

static void sm_page_fault(void **state) {
  struct fixture *f = *state;
  struct nv_channel_error e;
  qmd(f, 0, DIGIT_AT, 1, 1, 1, 1, 0x40000010, 1);
  put_pcas(&f->c, qmd_va(f, 0), 9);
  dies(&f->c, 31, "0x40000010");
  assert_true(nv_channel_error(f->c.ch, &e));
  assert_int_equal(e.fault.kind, FAULT_PAGE);
  assert_int_equal(e.fault.address, 0x40000010);
  assert_int_equal(e.fault.access, VM_READ);
  assert_int_equal(e.fault.pc, f->g.data_va + DIGIT_AT + 0x40);
  assert_int_equal(e.esr, 0);
  assert_non_null(strstr(e.fault.text, "LDG"));
  assert_non_null(strstr(e.fault.text, "launched by channel 0"));
  assert_non_null(strstr(f->g.log[0], "LDG"));
}

/* A QMD whose constant bank is larger than its mapping launches; only reading unmapped parts faults. */
static void constants_beyond_their_mapping(void **state) {
  enum { VA = 0x50000000 };
  struct fixture *f = *state;
  struct nv_channel_error e;
  uint8_t *page[2];
  uint64_t pointer = f->g.data_va;
  uint32_t *q = qmd(f, 0, DIGIT_AT, 1, 1, 1, 1, 0, 0), number;
  for (unsigned i = 0; i < 2; i++) { /* backings that are not contiguous */
    page[i] = f->g.mem + DATA_AT + 0x200000 + 0x10000 * i;
    assert_int_equal(vm_map(f->g.vm, VA + i * PAGE, PAGE, page[i], VM_READ | VM_WRITE, 7 + i), 0);
  }
  static const struct {
    uint32_t page, offset; /* page and offset at which the bank begins */
  } begin[] = {{0, 0}, {0, PAGE - 0x200}, {1, 0}};
  for (number = 1; number <= 3; number++) {
    uint64_t va = VA + begin[number - 1].page * PAGE + begin[number - 1].offset;
    uint8_t *arguments[] = {page[0] + 0x210, page[1] + 0x10, page[1] + 0x210};
    set(q, 1567, 1536, va >> 6), set(q, 1586, 1568, va >> 38), set(q, 1599, 1587, 0x10000 >> 4);
    memcpy(arguments[number - 1], &pointer, 8);
    memcpy(arguments[number - 1] + 8, &number, 4);
    put_pcas(&f->c, qmd_va(f, 0), 9);
    finish(&f->c);
  }
  assert_int_equal(*word(f, 0), 123);
  set(q, 1567, 1536, (VA + 2 * PAGE - 0x200) >> 6);
  put_pcas(&f->c, qmd_va(f, 0), 9);
  dies(&f->c, 31, "reads 8 bytes at 0x210 of constant bank 0, 0x50002010");
  assert_true(nv_channel_error(f->c.ch, &e));
  assert_int_equal(e.fault.kind, FAULT_PAGE);
  assert_int_equal(e.fault.address, VA + 2 * PAGE + 0x10);
  assert_int_equal(e.fault.pc, f->g.data_va + DIGIT_AT + 0x10);
}

static void sm_misaligned(void **state) {
  struct fixture *f = *state;
  struct nv_channel_error e;
  qmd(f, 0, DIGIT_AT, 1, 1, 1, 1, f->g.data_va + 2, 1);
  put_pcas(&f->c, qmd_va(f, 0), 9);
  dies(&f->c, 13, "LDG");
  assert_true(nv_channel_error(f->c.ch, &e));
  assert_int_equal(e.esr, 0xf); /* MISALIGNED_ADDR */
}

static void sm_illegal(void **state) {
  struct fixture *f = *state;
  struct nv_channel_error e;
  memset(f->g.data + DIGIT_AT + 0x20, 0xff, 16);
  qmd(f, 0, DIGIT_AT, 1, 1, 1, 1, f->g.data_va, 1);
  put_pcas(&f->c, qmd_va(f, 0), 9);
  dies(&f->c, 13, "");
  assert_true(nv_channel_error(f->c.ch, &e));
  assert_int_equal(e.fault.kind, FAULT_ILLEGAL);
  assert_int_equal(e.esr, 9); /* ILLEGAL_INSTR_ENCODING */
}

/* ---- at the same time ---- */

/* A grid waits for data that a copy on another channel writes. */
static void grids_run_beside_copies(void **state) {
  struct fixture *f = *state;
  struct chan copy;
  chan_open(&f->g, &copy, NULL, NV_ENGINE_COPY, 0);
  qmd(f, 0, SPIN_AT, 3, 1, 1, 64, f->g.data_va + 64, 0);
  put_pcas(&f->c, qmd_va(f, 0), 9);
  put_release(&f->c, f->g.data_va, 1);
  submit(&f->c);
  assert_true(stays(word(f, 0), 0));
  *word(f, 32) = 5;
  PUT(&copy, INC(4, 0, 1), 0xc8b5, INC(4, 0x400, 4), HI(f->g.data_va), LO(f->g.data_va + 128), HI(f->g.data_va),
      LO(f->g.data_va + 64), INC(4, 0x418, 1), 4, INC(4, 0x300, 1), 0x182);
  submit(&copy);
  assert_true(becomes(word(f, 0), 1, 5000));
  chan_close(&copy);
}

static void freeing_ends_a_grid(void **state) {
  struct fixture *f = *state;
  struct chan c;
  chan_open(&f->g, &c, NULL, NV_ENGINE_GRAPHICS, 0);
  put_init(&c, 0xcbc0);
  qmd(f, 0, SPIN_AT, 1000, 1, 1, 64, f->g.data_va + 64, 0);
  put_release(&c, f->g.data_va, 1);
  put_pcas(&c, qmd_va(f, 0), 9);
  submit(&c);
  assert_true(becomes(word(f, 0), 1, 5000));
  nap();
  chan_close(&c);
  finish(&f->c);
}

static void stop_ends_grids(void **state) {
  struct fixture *f = *state;
  qmd(f, 0, SPIN_AT, 1, 1, 1, 64, f->g.data_va + 64, 0);
  put_release(&f->c, f->g.data_va, 1);
  put_pcas(&f->c, qmd_va(f, 0), 9);
  put_release(&f->c, f->g.data_va, 2);
  submit(&f->c);
  assert_true(becomes(word(f, 0), 1, 5000));
  nap();
  nv_engines_stop(f->g.e);
  assert_int_equal(f->g.logged, 1);
  assert_non_null(strstr(f->g.log[0], "GPU 0, channel 0: stopped"));
  assert_true(stays(word(f, 0), 1));
}

static void counts_kernels(void **state) {
  struct fixture *f = *state;
  struct emu_kernel_stats *k;
  size_t n;
  atomic_store(&f->g.detail, true);
  qmd(f, 0, DIGIT_AT, 2, 1, 1, 32, f->g.data_va, 1);
  qmd(f, 1, CTA_AT, 5, 3, 2, 32, f->g.data_va + 256, 1);
  put_pcas(&f->c, qmd_va(f, 0), 9);
  put_pcas(&f->c, qmd_va(f, 1), 9);
  put_pcas(&f->c, qmd_va(f, 1), 9);
  finish(&f->c);
  assert_int_equal(nv_engines_kernels(f->g.e, &k, &n), 0);
  assert_int_equal(n, 2);
  assert_int_equal(k[0].pgm, f->g.data_va + CTA_AT);
  assert_int_equal(k[0].dispatches, 2);
  assert_int_equal(k[0].waves, 60);
  assert_int_equal(k[0].instructions, 60 * 19);
  assert_int_equal(k[1].dispatches, 1);
  assert_int_equal(k[1].instructions, 2 * 8);
  assert_true(k[0].detail.model_ps > 0 && k[0].detail.model_ps % 2 == 0); /* the same for both */
  assert_true(k[0].detail.lines > 0 && k[0].detail.memory_bytes > 0);
  free(k);
}

/* ---- the older layout ---- */

static void ampere(void **state) {
  static const uint32_t classes[] = {0xc56f, 0xc7c0, 0xc7b5, 0};
  struct nv_model ga102 = gh100;
  struct gpu *g = calloc(1, sizeof *g);
  struct chan c;
  ga102.name = "sm_86";
  ga102.sm_version = 0x806;
  ga102.sass_version = 0x86;
  ga102.max_warps_per_sm = 48;
  ga102.shared_kib_per_sm = 100;
  ga102.shared_bytes_per_cta = 99 << 10;
  ga102.gpfifo_class = 0xc56f;
  ga102.compute_class = 0xc7c0;
  ga102.classes = classes;
  ga102.qmd_major = 3;
  gpu_open_model(g, &ga102);
  load(g);
  chan_open(g, &c, NULL, NV_ENGINE_GRAPHICS, 0);
  nv_channel_allow_class(c.ch, 0xc7c0);
  PUT(&c, INC(COMPUTE, 0, 1), 0xc7c0, INC(COMPUTE, 0x2a0, 2), 0, 0xfe000000, INC(COMPUTE, 0x7b0, 2), 0, 0xff000000);
  uint32_t *q = (void *)(g->data + QMD_AT), *bank = (void *)(g->data + BANK_AT);
  uint64_t pgm = g->data_va + DIGIT_AT, bank_va = g->data_va + BANK_AT, pointer = g->data_va, sem = g->data_va + 64;
  memcpy(bank + 0x210 / 4, &pointer, 8);
  bank[0x218 / 4] = 6;
  set(q, 583, 580, 3);
  set(q, 1663, 1656, 0x86);
  set(q, 1567, 1536, LO(pgm));
  set(q, 1584, 1568, HI(pgm));
  set(q, 656, 648, 16);
  set(q, 415, 384, 1);
  set(q, 431, 416, 1);
  set(q, 463, 448, 1);
  set(q, 607, 592, 1);
  set(q, 623, 608, 1);
  set(q, 639, 624, 1);
  set(q, 561, 544, 1024);
  set(q, 567, 562, 3);
  set(q, 574, 569, 26);
  set(q, 662, 657, 3);
  set(q, 640, 640, 1);
  set(q, 1055, 1024, LO(bank_va));
  set(q, 1072, 1056, HI(bank_va));
  set(q, 1087, 1075, 0x400 >> 4);
  set(q, 823, 823, 1);
  set(q, 831, 830, 1);
  set(q, 799, 768, LO(sem));
  set(q, 807, 800, HI(sem));
  set(q, 863, 832, 42);
  put_pcas(&c, g->data_va + QMD_AT, 9);
  submit(&c);
  if (!becomes(g->data + 64, 42, 5000)) fail_msg("%s", error_text(&c));
  assert_int_equal(*(uint32_t *)(void *)g->data, 6);
  set(q, 574, 569, 34); /* 132 KiB */
  put_pcas(&c, g->data_va + QMD_AT, 9);
  dies(&c, 13, "MAX_SM_CONFIG_SHARED_MEM_SIZE 34 is not a configuration");
  chan_close(&c);
  gpu_close(g);
  free(g);
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
  const struct CMUnitTest tests[] = {
      T(inline_to_memory),
      T(report_semaphores),
      T(states),
      T(bad_methods),
      T(launches_a_grid),
      T(pcas_actions),
      T(inline_qmd),
      T(chains),
      T(dependence_counters),
      T(release_reductions),
      T(clusters),
      T(bad_qmds),
      T(bad_set_up),
      T(sm_page_fault),
      T(constants_beyond_their_mapping),
      T(sm_misaligned),
      T(sm_illegal),
      T(grids_run_beside_copies),
      T(freeing_ends_a_grid),
      T(stop_ends_grids),
      T(counts_kernels),
      cmocka_unit_test(ampere),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
