/* Performance counters of gfx11, gfx12, gfx942 and gfx950: the registers of each block, and which events an emulated
 * GPU counts.
 *
 * A block counts in each of its instances. Each counter of a block has a register that selects its event, and one or
 * two registers with the result. GRBM_GFX_INDEX selects the instance that is read; writes go to all instances.
 *
 * Wire format only: driver, emulator and tests include it. Sources: ROCm aqlprofile, gfx11_block_table.h,
 * gfx12_block_table.h and the tables of gfx9/Mi300 (blocks, scopes, instances, counters); Linux gc_11_0_0_offset.h,
 * gc_12_0_0_offset.h and gc_9_4_3_offset.h (addresses). */
#ifndef DOORBELL_HCQ_AMD_PERF_H
#define DOORBELL_HCQ_AMD_PERF_H
#include <stddef.h>
#include <stdint.h>
#include "registers.h"

/* Where the instances of a block are: of the whole GPU, of each shader engine, of each shader array, or of each WGP. */
enum amd_perf_scope { AMD_PERF_GLOBAL, AMD_PERF_SE, AMD_PERF_SA, AMD_PERF_WGP };
enum {
  AMD_PERF_GRBM,
  AMD_PERF_SQ,
  AMD_PERF_SPI,
  AMD_PERF_TA,
  AMD_PERF_TCP,
  AMD_PERF_GL1C,
  AMD_PERF_GL2C,
  AMD_PERF_TD,
  AMD_PERF_TCC,
  AMD_PERF_CPC,
  AMD_PERF_CPF,
  AMD_PERF_BLOCKS,
  AMD_PERF_SLOTS = 8 /* largest number of counters of a block */
};

struct amd_perf_block {
  const char *name;
  enum amd_perf_scope scope;
  uint8_t units; /* instances in each of the scope's places */
  uint8_t slots; /* number of counters */
  int8_t high;   /* register of a result's upper dword, relative to the lower one; 0 if results have 32 bits */
  uint16_t select[AMD_PERF_SLOTS], result[AMD_PERF_SLOTS]; /* by counter; result: the lower dword */
};

/* The rows that several generations share. */
/* clang-format off */
#define GRBM_ROW {"GRBM", AMD_PERF_GLOBAL, 1, 2, 1, {0xd840, 0xd841}, {0xd040, 0xd043}}
#define SQ_ROW                                                                                                         \
  {"SQ", AMD_PERF_WGP, 1, 8, 0,                                                                                        \
   {0xd9c0, 0xd9c2, 0xd9c4, 0xd9c6, 0xd9c8, 0xd9ca, 0xd9cc, 0xd9ce},                                                   \
   {0xd1c0, 0xd1c2, 0xd1c4, 0xd1c6, 0xd1c8, 0xd1ca, 0xd1cc, 0xd1ce}}
#define SPI_ROW                                                                                                        \
  {"SPI", AMD_PERF_SE, 1, 6, -1,                                                                                       \
   {0xd980, 0xd981, 0xd982, 0xd983, 0xd988, 0xd989},                                                                   \
   {0xd181, 0xd183, 0xd185, 0xd187, 0xd189, 0xd18b}}
#define TA_ROW {"TA", AMD_PERF_SE, 16, 2, 1, {0xdac0, 0xdac2}, {0xd2c0, 0xd2c2}}
/* clang-format on */
static const struct amd_perf_block gfx11_perf_blocks[AMD_PERF_BLOCKS] = {
    [AMD_PERF_GRBM] = GRBM_ROW,
    [AMD_PERF_SQ] = SQ_ROW,
    [AMD_PERF_SPI] = SPI_ROW,
    [AMD_PERF_TA] = TA_ROW,
    [AMD_PERF_TCP] = {"TCP", AMD_PERF_SA, 16, 4, 1, {0xdb40, 0xdb42, 0xdb44, 0xdb45}, {0xd340, 0xd342, 0xd344, 0xd346}},
    [AMD_PERF_GL1C] =
        {"GL1C", AMD_PERF_SA, 4, 4, 1, {0xdba0, 0xdba2, 0xdba3, 0xdba4}, {0xd3a0, 0xd3a2, 0xd3a4, 0xd3a6}},
    [AMD_PERF_GL2C] =
        {"GL2C", AMD_PERF_GLOBAL, 32, 4, 1, {0xdb80, 0xdb82, 0xdb84, 0xdb85}, {0xd380, 0xd382, 0xd384, 0xd386}},
};
static const struct amd_perf_block gfx12_perf_blocks[AMD_PERF_BLOCKS] = {
    [AMD_PERF_GRBM] = GRBM_ROW,
    [AMD_PERF_SQ] = SQ_ROW,
    [AMD_PERF_SPI] = {"SPI",
                      AMD_PERF_SE,
                      1,
                      6,
                      -1,
                      {0xd980, 0xd981, 0xd982, 0xd983, 0xd984, 0xd985},
                      {0xd181, 0xd183, 0xd185, 0xd187, 0xd189, 0xd18b}},
    [AMD_PERF_TA] = {"TA", AMD_PERF_WGP, 2, 2, 1, {0xdac0, 0xdac2}, {0xd2c0, 0xd2c2}},
    [AMD_PERF_TCP] = {"TCP", AMD_PERF_WGP, 2, 4, 1, {0xdb40, 0xdb42, 0xdb44, 0xdb45}, {0xd340, 0xd342, 0xd344, 0xd346}},
    [AMD_PERF_GL1C] =
        {"GL1C", AMD_PERF_SA, 4, 4, 1, {0xdba0, 0xdba2, 0xdba4, 0xdba6}, {0xd3a0, 0xd3a2, 0xd3a4, 0xd3a6}},
    [AMD_PERF_GL2C] =
        {"GL2C", AMD_PERF_GLOBAL, 32, 4, 1, {0xdb80, 0xdb82, 0xdb84, 0xdb86}, {0xd380, 0xd382, 0xd384, 0xd386}},
};
/* gfx942 and gfx950. Each XCC has these blocks. SQ has 16 pairs of registers, of which 8 can be used. */
static const struct amd_perf_block gfx9_perf_blocks[AMD_PERF_BLOCKS] = {
    [AMD_PERF_GRBM] = GRBM_ROW,
    [AMD_PERF_SQ] = {"SQ",
                     AMD_PERF_SE,
                     1,
                     8,
                     1,
                     {0xd9c0, 0xd9c1, 0xd9c2, 0xd9c3, 0xd9c4, 0xd9c5, 0xd9c6, 0xd9c7},
                     {0xd1c0, 0xd1c2, 0xd1c4, 0xd1c6, 0xd1c8, 0xd1ca, 0xd1cc, 0xd1ce}},
    [AMD_PERF_SPI] = SPI_ROW,
    [AMD_PERF_TA] = TA_ROW,
    [AMD_PERF_TD] = {"TD", AMD_PERF_SE, 16, 2, 1, {0xdb00, 0xdb02}, {0xd300, 0xd302}},
    [AMD_PERF_TCP] = {"TCP", AMD_PERF_SE, 16, 4, 1, {0xdb40, 0xdb42, 0xdb44, 0xdb45}, {0xd340, 0xd342, 0xd344, 0xd346}},
    [AMD_PERF_TCC] =
        {"TCC", AMD_PERF_GLOBAL, 16, 4, 1, {0xdb80, 0xdb82, 0xdb84, 0xdb85}, {0xd380, 0xd382, 0xd384, 0xd386}},
    [AMD_PERF_CPC] = {"CPC", AMD_PERF_GLOBAL, 1, 2, 1, {0xd809, 0xd803}, {0xd006, 0xd004}},
    [AMD_PERF_CPF] = {"CPF", AMD_PERF_GLOBAL, 1, 2, 1, {0xd807, 0xd805}, {0xd00a, 0xd008}},
};
#undef GRBM_ROW
#undef SQ_ROW
#undef SPI_ROW
#undef TA_ROW

/* SQ_CONTROL enables the waves of all stages and VMIDs. SQ_SELECT makes an event count on all SIMDs, clients and
 * banks. */
#define GFX9_PERF_SQ_CONTROL 0xffff0055
#define GFX9_PERF_SQ_SELECT  0x0f0ff000
enum { GFX9_SQ_PERFCOUNTER_MASK = 0xd9e1, GFX9_RLC_PERFMON_CLK_CNTL = 0xdcbf };

/* Numbers of a GPU's parts that hold instances. */
struct amd_perf_shape {
  uint32_t engines, arrays, wgps; /* shader engines of an XCC, arrays of each, WGPs of each array */
  uint32_t xccs;
};
static inline uint32_t amd_perf_instances(const struct amd_perf_block *b, const struct amd_perf_shape *s) {
  uint32_t places[] = {1, s->engines, s->engines * s->arrays, s->engines * s->arrays * s->wgps};
  return places[b->scope] * b->units * s->xccs;
}

/* The value of GRBM_GFX_INDEX that selects instance i of a block of one XCC. They are numbered by shader engine, then
 * array, then WGP, then unit. In memory, the values of XCC 0 come first. */
static inline uint32_t amd_perf_index(const struct amd_perf_block *b, const struct amd_perf_shape *s, uint32_t i) {
  uint32_t unit = i % b->units, place = i / b->units;
  uint32_t wgps = b->scope == AMD_PERF_WGP ? s->wgps : 1, arrays = b->scope >= AMD_PERF_SA ? s->arrays : 1;
  uint32_t wgp = place % wgps, array = place / wgps % arrays, engine = place / wgps / arrays;
  uint32_t index = BITS(GFX11_GRBM_GFX_INDEX_INSTANCE_INDEX, wgp << 2 | unit);
  if (b->scope == AMD_PERF_GLOBAL) index |= BITS(GFX11_GRBM_GFX_INDEX_SE_BROADCAST_WRITES, 1);
  if (b->scope <= AMD_PERF_SE) index |= BITS(GFX11_GRBM_GFX_INDEX_SA_BROADCAST_WRITES, 1);
  if (b->units == 1 && b->scope <= AMD_PERF_SE) index |= BITS(GFX11_GRBM_GFX_INDEX_INSTANCE_BROADCAST_WRITES, 1);
  return index | BITS(GFX11_GRBM_GFX_INDEX_SE_INDEX, engine) | BITS(GFX11_GRBM_GFX_INDEX_SA_INDEX, array);
}
#define AMD_PERF_ALL                                                                                                   \
  (BITS_MASK(GFX11_GRBM_GFX_INDEX_SE_BROADCAST_WRITES) | BITS_MASK(GFX11_GRBM_GFX_INDEX_SA_BROADCAST_WRITES) |         \
   BITS_MASK(GFX11_GRBM_GFX_INDEX_INSTANCE_BROADCAST_WRITES))

enum { AMD_PERF_RESET = 0, AMD_PERF_START = 1, AMD_PERF_STOP = 2 }; /* CP_PERFMON_CNTL.PERFMON_STATE */

/* Events of gfx11 that an emulated GPU counts, because programs alone determine them: X(NAME, block, number, exact,
 * unit, description). exact: equal to the counts that recorded gfx1100 and gfx1200 GPUs gave for the same programs, or
 * no more than a number of waves or workgroups; 0: a model. */
/* clang-format off */
#define AMD_PERF_EMULATED(X) \
  X(WAVES, SQ, 4, 1, "waves", "waves that were launched") \
  X(WAVES_32, SQ, 5, 1, "waves", "waves of 32 lanes that were launched") \
  X(WAVES_64, SQ, 6, 1, "waves", "waves of 64 lanes that were launched") \
  X(INSTS_BRANCH, SQ, 49, 0, "instructions", "branches, calls and returns; one for each wave") \
  X(INSTS_LDS, SQ, 57, 0, "instructions", "LDS instructions; one for each wave") \
  X(INSTS_SALU, SQ, 58, 1, "instructions", "scalar arithmetic; one for each wave; no waits, branches or messages") \
  X(INSTS_SMEM, SQ, 59, 0, "instructions", "scalar memory instructions; one for each wave") \
  X(INSTS_VALU, SQ, 62, 1, "instructions", "vector arithmetic; one for each wave; a dual-issue pair counts once") \
  X(INSTS_TEX, SQ, 65, 0, "instructions", "vector memory instructions, flat ones too; one for each wave") \
  X(LDS_BANK_CONFLICT, SQ, 256, 0, "cycles", "LDS cycles that bank conflicts add") \
  X(LDS_IDX_ACTIVE, SQ, 261, 0, "cycles", "LDS cycles of indexed instructions; exact without bank conflicts") \
  X(CSN_NUM_THREADGROUPS, SPI, 46, 1, "workgroups", "workgroups of compute queues that were launched") \
  X(CSN_WAVE, SPI, 49, 1, "waves", "waves of compute queues that were launched")
/* clang-format on */
#define AMD_PERF_COUNT_ENUM(name, block, number, exact, unit, description) AMD_PERF_COUNT_##name,
enum amd_perf_count { AMD_PERF_EMULATED(AMD_PERF_COUNT_ENUM) AMD_PERF_COUNTS };
#undef AMD_PERF_COUNT_ENUM
#endif
