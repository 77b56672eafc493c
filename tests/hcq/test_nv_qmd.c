/* Queue meta data, bit by bit, and constant bank 0. Positions and offsets are taken from NVIDIA's open-gpu-doc
 * (clc9c0qmd.h, clcbc0qmd.h, clcdc0qmd.h) and from nvdisasm's output for code by ptxas, not from the encoder's table.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>
#include "hcq/nv/launch.h"

static uint32_t bits(const uint32_t *qmd, unsigned hi, unsigned lo) {
  assert_int_equal(hi / 32, lo / 32);
  return (uint32_t)((uint64_t)qmd[lo / 32] >> lo % 32 & ((1ull << (hi - lo + 1)) - 1));
}

/* ---- the table ---- */

/* Every field stores every value in its range without changing others; no two fields share a bit. */
static void round_trip(void **state) {
  for (enum qmd_version v = QMD_V03; v <= QMD_V05; v++) {
    uint32_t used[QMD_MAX_WORDS] = {0}, q[QMD_MAX_WORDS];
    for (unsigned f = 0; f < QMD_FIELDS; f++) {
      const struct qmd_field_info *info = qmd_field_info(f);
      for (unsigned i = 0; i < info->count && qmd_has(v, f); i++) {
        unsigned width = qmd_width(v, f), shift = info->place[v].shift;
        uint64_t max = ((1ull << width) - 1) << shift, step = 1ull << shift;
        memset(q, 0, sizeof q);
        assert_true(qmd_set(q, v, f, i, max));
        assert_true(qmd_get(q, v, f, i) == max);
        unsigned set = 0;
        for (unsigned w = 0; w < QMD_MAX_WORDS; w++) {
          set += (unsigned)__builtin_popcount(q[w]);
          if (q[w] & used[w]) fail_msg("V0%u %s[%u] overlaps another field", qmd_major(v), info->name, i);
          if (q[w] && w >= qmd_words(v)) fail_msg("V0%u %s[%u] lies outside", qmd_major(v), info->name, i);
          used[w] |= q[w];
        }
        assert_int_equal(set, width);
        assert_int_equal(qmd_reserved_bit(q, v), -1);
        assert_false(qmd_set(q, v, f, i, max + step));
        assert_true(qmd_get(q, v, f, i) == max);
        if (shift) assert_false(qmd_set(q, v, f, i, step / 2));
        memset(q, 0xff, sizeof q);
        assert_true(qmd_set(q, v, f, i, 0));
        unsigned clear = 0;
        for (unsigned w = 0; w < QMD_MAX_WORDS; w++) clear += (unsigned)__builtin_popcount(~q[w]);
        assert_int_equal(clear, width);
      }
      if (!qmd_has(v, f)) {
        memset(q, 0, sizeof q);
        assert_true(qmd_set(q, v, f, 0, 0));
        assert_false(qmd_set(q, v, f, 0, 1));
        assert_true(qmd_get(q, v, f, 0) == 0);
      }
      assert_false(qmd_set(q, v, f, info->count, 0));
    }
    for (unsigned w = 0; w < qmd_words(v); w++)
      for (unsigned b = 0; b < 32; b++) {
        memset(q, 0, sizeof q);
        q[w] = 1u << b;
        assert_int_equal(qmd_reserved_bit(q, v), used[w] >> b & 1 ? -1 : (int)(w * 32 + b));
      }
  }
}

/* Some positions from the headers: {high, low, shift} in V03_00, V04_00, V05_00; high 0: absent. */
static void fields_are_at_known_positions(void **state) {
  static const struct {
    enum qmd_field field;
    unsigned element;
    uint16_t at[3][3];
  } want[] = {
      {QMD_QMD_MAJOR_VERSION, 0, {{583, 580, 0}, {583, 580, 0}, {471, 468, 0}}},
      {QMD_QMD_TYPE, 0, {{0}, {25, 23, 0}, {153, 151, 0}}},
      {QMD_SASS_VERSION, 0, {{1663, 1656, 0}, {543, 536, 0}, {455, 448, 0}}},
      {QMD_PROGRAM_ADDRESS_LOWER, 0, {{1567, 1536, 0}, {1247, 1216, 0}, {1055, 1024, 4}}},
      {QMD_PROGRAM_ADDRESS_UPPER, 0, {{1584, 1568, 0}, {1272, 1248, 0}, {1076, 1056, 4}}},
      {QMD_REGISTER_COUNT, 0, {{656, 648, 0}, {1208, 1200, 0}, {1136, 1128, 0}}},
      {QMD_BARRIER_COUNT, 0, {{767, 763, 0}, {1215, 1211, 0}, {1141, 1137, 0}}},
      {QMD_GRID_WIDTH, 0, {{415, 384, 0}, {1055, 1024, 0}, {1279, 1248, 0}}},
      {QMD_GRID_HEIGHT, 0, {{431, 416, 0}, {1071, 1056, 0}, {1295, 1280, 0}}},
      {QMD_GRID_DEPTH, 0, {{463, 448, 0}, {1103, 1088, 0}, {1327, 1312, 0}}},
      {QMD_CTA_THREAD_DIMENSION2, 0, {{639, 624, 0}, {1199, 1184, 0}, {1127, 1120, 0}}},
      {QMD_GPC_CGA_HEIGHT, 0, {{0}, {2157, 2152, 0}, {2061, 2056, 0}}},
      {QMD_SHARED_MEMORY_SIZE, 0, {{561, 544, 0}, {601, 584, 0}, {1162, 1152, 7}}},
      {QMD_MIN_SM_CONFIG_SHARED_MEM_SIZE, 0, {{567, 562, 0}, {613, 608, 0}, {1168, 1163, 0}}},
      {QMD_TARGET_SM_CONFIG_SHARED_MEM_SIZE, 0, {{662, 657, 0}, {625, 620, 0}, {1180, 1175, 0}}},
      {QMD_SHADER_LOCAL_MEMORY_LOW_SIZE, 0, {{759, 736, 0}, {535, 512, 0}, {1199, 1184, 4}}},
      {QMD_CONSTANT_BUFFER_VALID, 3, {{643, 643, 0}, {428, 428, 0}, {1868, 1868, 0}}},
      {QMD_CONSTANT_BUFFER_ADDR_LOWER, 2, {{1183, 1152, 0}, {1695, 1664, 6}, {1503, 1472, 6}}},
      {QMD_CONSTANT_BUFFER_ADDR_UPPER, 7, {{1520, 1504, 0}, {2034, 2016, 6}, {1842, 1824, 6}}},
      {QMD_CONSTANT_BUFFER_SIZE, 1, {{1151, 1139, 4}, {1663, 1651, 4}, {1471, 1459, 4}}},
      {QMD_CONSTANT_BUFFER_INVALIDATE, 4, {{1330, 1330, 0}, {435, 435, 0}, {1875, 1875, 0}}},
      {QMD_CWD_MEMBAR_TYPE, 0, {{369, 368, 0}, {1137, 1136, 0}, {625, 624, 0}}},
      {QMD_RELEASE2_ENABLE, 0, {{1719, 1719, 0}, {352, 352, 0}, {320, 320, 0}}},
      {QMD_RELEASE1_ADDR_UPPER, 0, {{935, 928, 0}, {824, 800, 0}, {824, 800, 0}}},
      {QMD_RELEASE0_PAYLOAD_LOWER, 0, {{863, 832, 0}, {735, 704, 0}, {575, 544, 0}}},
      {QMD_RELEASE2_STRUCTURE_SIZE, 0, {{1727, 1726, 0}, {354, 353, 0}, {322, 321, 0}}},
      {QMD_DEPENDENT_QMD0_ENABLE, 0, {{512, 512, 0}, {368, 368, 0}, {336, 336, 0}}},
      {QMD_DEPENDENT_QMD0_ACTION, 0, {{515, 513, 0}, {371, 369, 0}, {339, 337, 0}}},
      {QMD_DEPENDENT_QMD0_PREFETCH, 0, {{516, 516, 0}, {372, 372, 0}, {340, 340, 0}}},
      {QMD_DEPENDENT_QMD0_POINTER, 0, {{511, 480, 8}, {479, 448, 8}, {415, 384, 8}}},
      {QMD_OUTER_PUT, 0, {{30, 0, 0}, {3038, 3008, 0}, {3038, 3008, 0}}},
  };
  for (size_t i = 0; i < sizeof want / sizeof *want; i++)
    for (enum qmd_version v = QMD_V03; v <= QMD_V05; v++) {
      const uint16_t *at = want[i].at[v];
      const char *name = qmd_field_info(want[i].field)->name;
      if (!at[0] != !qmd_has(v, want[i].field)) fail_msg("V0%u %s", qmd_major(v), name);
      if (!at[0]) continue;
      uint32_t q[QMD_MAX_WORDS] = {0};
      uint32_t pattern = 0x5a96c3b1 & (uint32_t)((1ull << (at[0] - at[1] + 1)) - 1);
      assert_true(qmd_set(q, v, want[i].field, want[i].element, (uint64_t)pattern << at[2]));
      if (bits(q, at[0], at[1]) != pattern) fail_msg("V0%u %s: not at %u:%u", qmd_major(v), name, at[0], at[1]);
      q[at[1] / 32] &= ~(uint32_t)(((1ull << (at[0] - at[1] + 1)) - 1) << at[1] % 32);
      for (unsigned w = 0; w < QMD_MAX_WORDS; w++) assert_int_equal(q[w], 0);
    }
}

static void pairs(void **state) {
  uint32_t q[QMD_MAX_WORDS] = {0};
  assert_true(qmd_set_pair(q, QMD_V04, QMD_CONSTANT_BUFFER_ADDR_LOWER, 1, 0x1ffabcdef000040));
  assert_true(q[50] == (uint32_t)(0x1ffabcdef000040 >> 6));
  assert_true(bits(q, 1650, 1632) == 0x1ffabcdef000040 >> 38);
  assert_true(qmd_get_pair(q, QMD_V04, QMD_CONSTANT_BUFFER_ADDR_LOWER, 1) == 0x1ffabcdef000040);
  assert_false(qmd_set_pair(q, QMD_V04, QMD_CONSTANT_BUFFER_ADDR_LOWER, 1, 0x20)); /* not 64-byte aligned */
  assert_false(
      qmd_set_pair(q, QMD_V04, QMD_CONSTANT_BUFFER_ADDR_LOWER, 1, 0x200000000000000)); /* 57 bits are too many */
  assert_false(qmd_set_pair(q, QMD_V04, QMD_CONSTANT_BUFFER_ADDR_LOWER, 8, 0x40));
  assert_true(qmd_set_pair(q, QMD_V05, QMD_PROGRAM_ADDRESS_LOWER, 0, 0x1234567890ab80));
  assert_true(q[32] == 0x67890ab8 && bits(q, 1076, 1056) == 0x1234567890ab80 >> 36);
  assert_true(qmd_set_pair(q, QMD_V03, QMD_PROGRAM_ADDRESS_LOWER, 0, 0x1ffff00000080));
  assert_true(q[48] == 0x80 && bits(q, 1584, 1568) == 0x1ffff);
  assert_false(qmd_set_pair(q, QMD_V03, QMD_PROGRAM_ADDRESS_LOWER, 0, 0x2000000000000));
}

/* ---- a launch ---- */

static struct nv_launch launch(uint32_t sm_version) {
  struct nv_launch l = {
      .arch = nv_arch(sm_version),
      .program = 0x1234567880,
      .registers = 40,
      .barriers = 2,
      .grid = {100000, 3, 65535},
      .block = {256, 2, 1},
      .cluster = {1, 1, 1},
      .shared_size = 5000,
      .dynamic_size = 300,
      .local_size = 0x240,
      .shared_window = 0x7f0100000000,
      .local_window = 0x7f0200000000,
      .grid_id = 0x100000007,
      .sms = 132,
      .max_warps_per_sm = 64,
      .bank[0] = {0xab00001000, 0x234},
      .bank[3] = {0xab12345600, 0x100},
  };
  assert_non_null(l.arch);
  return l;
}

/* The whole block for sm_90, dword by dword. */
static void hopper_block(void **state) {
  struct nv_launch l = launch(0x900);
  uint32_t q[QMD_MAX_WORDS], want[QMD_MAX_WORDS] = {0};
  assert_true(nv_launch_qmd(&l, q));
  want[0] = 2u << 23 | 0x3fu << 16;          /* QMD_TYPE GRID_CTA, QMD_GROUP_ID */
  want[13] = 1 | 1 << 3 | 1 << 12 | 1 << 15; /* CONSTANT_BUFFER_VALID and _INVALIDATE of 0 and 3 */
  want[16] = 0x90u << 24;                    /* SASS_VERSION */
  want[17] = 0x240 | 1u << 24;               /* SHADER_LOCAL_MEMORY_HIGH_SIZE, API_VISIBLE_CALL_LIMIT NO_CHECK */
  want[18] = 4 << 4 | 5120 << 8 | 1 << 29 | 1u << 31; /* version 4.0, SHARED_MEMORY_SIZE, two invalidates */
  /* minimum: 8 KiB for one block; target: 3 blocks of 512 threads with 40 registers need 15 KiB: codes KiB / 4 + 1 */
  want[19] = 3 | 58 << 6 | 5 << 12;
  want[32] = 100000, want[33] = 3, want[34] = 65535;
  want[35] = 1 << 16; /* CWD_MEMBAR_TYPE L1_SYSMEMBAR */
  want[36] = 256 | 2 << 16, want[37] = 1 | 40 << 16 | 2u << 27;
  want[38] = 0x34567880, want[39] = 0x12;
  want[48] = (uint32_t)(0xab00001000 >> 6), want[49] = 0xab00001000 >> 38 | (0x240 >> 4) << 19;
  want[54] = (uint32_t)(0xab12345600 >> 6), want[55] = 0xab12345600 >> 38 | (0x100 >> 4) << 19;
  for (unsigned i = 0; i < 96; i++)
    if (q[i] != want[i]) fail_msg("dword %u is 0x%08x, expected 0x%08x", i, q[i], want[i]);
  assert_int_equal(qmd_reserved_bit(q, QMD_V04), -1);

  assert_true(nv_launch_chain(l.arch, q, 0xfedcba9800));
  want[11] = 1 << 16 | 1 << 17 | 1 << 20; /* enable, SCHEDULE, prefetch */
  want[14] = 0xfedcba98;
  for (unsigned i = 0; i < 96; i++) assert_int_equal(q[i], want[i]);
  assert_false(nv_launch_chain(l.arch, q, 0xfedcba9880));  /* not 256-byte aligned */
  assert_false(nv_launch_chain(l.arch, q, 0x1fedcba9800)); /* above 40 bits */
}

static void ampere_block(void **state) {
  struct nv_launch l = launch(0x806);
  l.max_warps_per_sm = 48;
  uint32_t q[QMD_MAX_WORDS], want[QMD_MAX_WORDS] = {0};
  assert_true(nv_launch_qmd(&l, q));
  want[4] = 0x3f | 1 << 6;      /* QMD_GROUP_ID, SM_GLOBAL_CACHING_ENABLE */
  want[5] = 1 << 29 | 1u << 31; /* invalidate shader data, shader constants */
  want[11] = 1 << 16 | 1 << 26; /* L1_SYSMEMBAR, NO_CHECK */
  want[12] = 100000, want[13] = 3, want[14] = 65535;
  want[17] = 5120 | 3 << 18 | 26 << 25; /* 8 KiB including the system's; maximum 100 */
  want[18] = 3 << 4 | 256 << 16;        /* version 3.0, block */
  want[19] = 2 | 1 << 16;
  want[20] = 1 | 1 << 3 | 40 << 8 | 9 << 17; /* banks 0 and 3; registers; target for 3 blocks: 18 of 32 KiB */
  want[23] = 2u << 27;                       /* barriers */
  want[50] = 0x240;                          /* SHADER_LOCAL_MEMORY_HIGH_SIZE */
  want[32] = 0x00001000, want[33] = 0xab | 1 << 18 | (0x240 >> 4) << 19; /* bank 0 */
  want[38] = 0x12345600, want[39] = 0xab | 1 << 18 | (0x100 >> 4) << 19;
  want[48] = 0x34567880, want[49] = 0x12;
  want[51] = 0x86u << 24;
  for (unsigned i = 0; i < 64; i++)
    if (q[i] != want[i]) fail_msg("dword %u is 0x%08x, expected 0x%08x", i, q[i], want[i]);
  assert_true(nv_launch_chain(l.arch, q, 0xfedcba9800));
  assert_int_equal(q[15], 0xfedcba98);
  assert_int_equal(q[16], 1 | 1 << 1 | 1 << 4);
}

static void blackwell_block(void **state) {
  struct nv_launch l = launch(0xc00);
  l.max_warps_per_sm = 48;
  uint32_t q[QMD_MAX_WORDS], want[QMD_MAX_WORDS] = {0};
  assert_true(nv_launch_qmd(&l, q));
  want[4] = 0x3fu << 16 | 2u << 23;
  want[14] = 0xc0 | 1 << 8 | 5 << 20 | 1 << 27 | 1 << 29; /* SASS, NO_CHECK, version 5.0, invalidates 475 and 477 */
  want[19] = 1 << 16;
  want[32] = 0x23456788, want[33] = 0x1; /* the address >> 4 */
  want[34] = 256 | 2 << 16, want[35] = 1 | 40 << 8 | 2 << 17;
  want[36] = 5120 >> 7 | 3 << 11 | 26 << 17 | 5 << 23;
  want[37] = 0x240 >> 4 << 16; /* SHADER_LOCAL_MEMORY_HIGH_SIZE */
  want[39] = 100000, want[40] = 3, want[41] = 65535;
  want[42] = (uint32_t)(0xab00001000 >> 6), want[43] = 0xab00001000 >> 38 | (0x240 >> 4) << 19;
  want[48] = (uint32_t)(0xab12345600 >> 6), want[49] = 0xab12345600 >> 38 | (0x100 >> 4) << 19;
  want[58] = 1 | 1 << 3 | 1 << 12 | 1 << 15;
  for (unsigned i = 0; i < 96; i++)
    if (q[i] != want[i]) fail_msg("dword %u is 0x%08x, expected 0x%08x", i, q[i], want[i]);
}

static void clusters(void **state) {
  struct nv_launch l = launch(0x900);
  uint32_t q[QMD_MAX_WORDS];
  memcpy(l.cluster, (uint32_t[3]){4, 2, 1}, sizeof l.cluster);
  l.explicit_cluster = true;
  assert_true(nv_launch_qmd(&l, q));
  assert_int_equal(bits(q, 25, 23), 3); /* GRID_GPC_CGA */
  assert_int_equal(q[67], 4 | 2 << 8 | 1 << 16);
}

static void refuses_values_that_do_not_fit(void **state) {
  uint32_t q[QMD_MAX_WORDS];
  struct nv_launch l = launch(0x900);
  l.grid[1] = 65536;
  assert_false(nv_launch_qmd(&l, q));
  l = launch(0x900);
  l.program = 1ull << 57;
  assert_false(nv_launch_qmd(&l, q));
  l = launch(0x900);
  l.bank[0].address += 32;
  assert_false(nv_launch_qmd(&l, q));
  l = launch(0xc00);
  l.block[2] = 256;
  assert_false(nv_launch_qmd(&l, q));
  assert_null(nv_arch(0x700));
  assert_null(nv_arch(0));
}

/* Codes of the shared-memory configurations that fit: 0, 8, 16, 32, 64, 100, 132, 164, 196, 228 KiB / 4 + 1. */
static void shared_memory(void **state) {
  static const struct {
    uint32_t sm_version, size, min;
  } want[] = {
      {0x900, 1024, 3},          {0x900, 8 << 10, 3},    {0x900, (8 << 10) + 1, 5}, {0x900, 100 << 10, 26},
      {0x900, 200 << 10, 58},    {0x900, 228 << 10, 58}, {0x800, 163 << 10, 42},    {0x800, (100 << 10) - 1024, 26},
      {0x800, 100 << 10, 34},    {0x806, 0, 3},          {0x806, 99 << 10, 26},     {0x809, 7 << 10, 3},
      {0x809, (7 << 10) + 1, 5},
  };
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    struct nv_launch l = launch(want[i].sm_version);
    uint32_t q[QMD_MAX_WORDS];
    l.shared_size = want[i].size;
    assert_true(nv_launch_qmd(&l, q));
    unsigned lo = l.arch->qmd == QMD_V03 ? 562 : 608;
    if (bits(q, lo + 5, lo) != want[i].min)
      fail_msg("%u bytes on %x: %u", want[i].size, want[i].sm_version, bits(q, lo + 5, lo));
  }
}

/* ---- constant bank 0 ---- */

struct word {
  uint32_t offset, value;
};
static void expect_header(uint32_t sm_version, uint32_t size, const struct word *want, size_t n) {
  struct nv_launch l = launch(sm_version);
  uint8_t bank[0x400];
  memcpy(l.grid, (uint32_t[3]){100, 30, 2}, sizeof l.grid);
  memcpy(l.cluster, (uint32_t[3]){4, 2, 1}, sizeof l.cluster);
  l.explicit_cluster = true;
  assert_int_equal(l.arch->param_base, size);
  memset(bank, 0, sizeof bank);
  nv_launch_header(&l, bank);
  for (uint32_t at = 0; at < sizeof bank; at += 4) {
    uint32_t value, expected = 0;
    memcpy(&value, bank + at, 4);
    for (size_t i = 0; i < n; i++)
      if (want[i].offset == at) expected = want[i].value;
    if (value != expected) fail_msg("c[0x0][0x%x] is 0x%x, expected 0x%x", at, value, expected);
  }
}

static void headers(void **state) {
  static const struct word ampere[] = {
      {0x0, 256}, {0x4, 2},       {0x8, 1},     {0xc, 100},     {0x10, 30},         {0x14, 2},
      {0x18, 0},  {0x1c, 0x7f01}, {0x20, 0},    {0x24, 0x7f02}, {0x28, 0x1000000},  {0x2c, 300},
      {0x30, 7},  {0x34, 1},      {0x10c, 132}, {0x114, 0},     {0x50, 0x12345600}, {0x54, 0xab},
  };
  expect_header(0x800, 0x160, ampere, sizeof ampere / sizeof *ampere);
  static const struct word hopper[] = {
      {0x0, 256},          {0x4, 2},       {0x8, 1},           {0xc, 100},          {0x10, 30},
      {0x14, 2},           {0x24, 0x7f02}, {0x28, 0x1000000},  {0x2c, 300},         {0x30, 7},
      {0x34, 1},           {0x10c, 132},   {0x114, 1024},      {0x13c, 5120},       {0x140, 1},
      {0x144, 4},          {0x148, 2},     {0x14c, 1},         {0x150, 0x3e800000}, {0x154, 0x3f000000},
      {0x158, 0x3f800000}, {0x15c, 25},    {0x160, 15},        {0x164, 2},          {0x188, 8},
      {0x198, 0x00001210}, {0x19c, 0xab},  {0xd0, 0x12345600}, {0xd4, 0xab},
  };
  expect_header(0x900, 0x210, hopper, sizeof hopper / sizeof *hopper);
  static const struct word blackwell[] = {
      {0x140, 7},    {0x144, 1},      {0x16c, 1024},       {0x2a0, 4},          {0x2a4, 2},
      {0x2a8, 1},    {0x2ac, 300},    {0x2b0, 0x3e800000}, {0x2b4, 0x3f000000}, {0x2b8, 0x3f800000},
      {0x2bc, 5120}, {0x2c0, 25},     {0x2c4, 15},         {0x2c8, 2},          {0x2cc, 8},
      {0x2d0, 132},  {0x2f4, 0x7f01}, {0x2fc, 0x7f02},     {0x348, 0x00001380}, {0x34c, 0xab},
      {0x360, 256},  {0x364, 2},      {0x368, 1},          {0x36c, 1},          {0x370, 100},
      {0x374, 30},   {0x378, 2},      {0x37c, 0x1000000},  {0x120, 0x12345600}, {0x124, 0xab},
  };
  expect_header(0xa00, 0x380, blackwell, sizeof blackwell / sizeof *blackwell);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(round_trip),    cmocka_unit_test(fields_are_at_known_positions),
      cmocka_unit_test(pairs),         cmocka_unit_test(hopper_block),
      cmocka_unit_test(ampere_block),  cmocka_unit_test(blackwell_block),
      cmocka_unit_test(clusters),      cmocka_unit_test(refuses_values_that_do_not_fit),
      cmocka_unit_test(shared_memory), cmocka_unit_test(headers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
