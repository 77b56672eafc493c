/* PC sampling of NVIDIA GPUs: the registers that set it up, and the records that the GPU streams to memory (PMA, the
 * performance monitor aggregator). Sources: tinygrad (runtime/ops_nv.py, extra/nv_pma) for the sequence and its values;
 * NVIDIA nvgpu (hw_perf_ga10b.h, hw_perf_gb10b.h) for the names of registers; NVIDIA's Tegra SoC HWPM tests for the
 * header of a record. The meaning of values without a name here is not public.
 *
 * Wire format only: driver, emulator and tests include it. */
#ifndef DOORBELL_HCQ_NV_PMA_WIRE_H
#define DOORBELL_HCQ_NV_PMA_WIRE_H
#include <stdint.h>
#include "../../bits.h"

/* ---- registers ---- */

/* The performance monitor of an SM: offsets from its base. */
enum {
  PMM_EVENT_SEL = 0x40,
  PMM_TRIG0_SEL = 0x48,
  PMM_TRIG1_SEL = 0x50,
  PMM_ENGINE_SEL = 0x6c, /* what starts it; PMM_STARTED_BY_TRIGGER: PM_TRIGGER in a queue */
  PMM_CONTROL = 0x9c,
  PMM_EC = 0xec,
  PMM_108 = 0x108,
  PMM_120 = 0x120,       /* Blackwell */
  PMM_PERFMON_ID = 0x128 /* the id in its records */
};
enum {
  PMM_EVENTS = 0x19181716,
  PMM_TRIG0 = 0x1d1c1b1a,
  PMM_TRIG1 = 0x001e201f,
  PMM_EC_VALUE = 1,
  PMM_STARTED_BY_TRIGGER = 2,
  PMM_CONTROL_VALUE = 5,
};

/* GA10x and AD10x. GPC i is the i-th of those that have a TPC. */
enum {
  PMA_GA_PMM = 0x180000,
  PMA_GA_PMM_STRIDE = 0x4000, /* by GPC */
  PMA_GA_PMM_UNIT = 0x200,    /* by TPC, the missing ones of the GPC first */
  PMA_GA_PMM_SM0 = 0x400,
  PMA_GA_PMM_SM1 = 0x1000,
  PMA_GA_PMM_108 = 0x20,
  PMA_GA_ROUTER = 0x244000, /* by GPC */
  PMA_GA_ROUTER_STRIDE = 0x200,
  PMA_GA_ROUTER_STREAM = 1 << 8,
  PMA_GA_CONTROL_USER = 0x24a620,
  PMA_GA_CONTROL_CLEAR = 1 << 1, /* clears the overflow */
  PMA_GA_CONTROL_VALUE = 0x02000007,
  PMA_GA_65C = 0x24a65c, /* two words by GPC, of ones */
  PMA_GA_GPC = 0x419800, /* broadcast to the GPCs */
};
/* GB20x. */
enum {
  PMA_GB_PMM = 0x200000,
  PMA_GB_PMM_STRIDE = 0x4000,
  PMA_GB_PMM_UNIT = 0x200,
  PMA_GB_PMM_TPC = 0x200, /* the monitor of a TPC; those of SMs start at PMA_GB_PMM_SM */
  PMA_GB_PMM_SM = 0x800,
  PMA_GB_PMM_108 = 0xa0,
  PMA_GB_PMM_120 = 0x100000,
  PMA_GB_1128 = 0x2b1128, /* three pairs of words */
  PMA_GB_1128_PAIRS = 3,
  PMA_GB_1128_FIRST = 480,
  PMA_GB_CONTROL_USER = 0x2b0a10,
  PMA_GB_CONFIG_USER = 0x2b0a24,
  PMA_GB_CONFIG_VALUE = 0x04000001,
  PMA_GB_GPC = 0x424000,
};
#define PMA_GB_1128_SECOND   0x80000000u
#define PMA_GB_CONTROL_VALUE 0x80000002u
/* Offsets from PMA_GA_GPC and PMA_GB_GPC. */
enum {
  PMA_GPC_SAMPLING = 0x304,
  PMA_GPC_SAMPLING_VALUE = 0x80808a,
  PMA_GPC_CONTEXT_ENABLE = 0x3dc, /* a register of the context */
};

/* ---- records: four bytes of data, the header, 24 bytes of data ---- */

enum { PMA_RECORD_BYTES = 32, PMA_DATA_BYTES = 28, PMA_HEADER_AT = 4, PMA_IDS = 1 << 11 };
/* Fields of the header. The id and the number of dropped samples have two parts each, L the lower one. */
enum {
  BITS_ENUM(PMA_BYTES, 4, 0) BITS_ENUM(PMA_DROPPED_L, 7, 5) BITS_ENUM(PMA_ID_L, 15, 8) BITS_ENUM(PMA_DROPPED_H, 24, 16)
      BITS_ENUM(PMA_ID_H, 27, 25) BITS_ENUM(PMA_SD, 28, 28) /* samples were dropped before this record: incomplete data
                                                               of the id is void */
};
enum { PMA_DROPPED_MAX = (1 << 12) - 1 };
enum { PMA_RECORD_OF_PMA = 0x7ff }; /* the id of records that the aggregator itself writes */

/* The id of an SM; GPCs are numbered as above. */
static inline uint32_t pma_id(unsigned gpc, unsigned tpc, unsigned sm) { return gpc << 5 | tpc << 1 | sm; }

/* Samples follow each other in the data of an id, across records. */
enum pma_format { PMA_SAMPLES_8, PMA_SAMPLES_9 }; /* bytes of a sample: before Blackwell, and on Blackwell */
enum { PMA_PC_SHIFT = 4 };
/* Stall reasons of samples of eight bytes; only those that the emulator writes have a name here. */
enum {
  PMA_STALL_CONSTANT = 2,
  PMA_STALL_BARRIER = 3,
  PMA_STALL_SHORT_SCOREBOARD = 7,
  PMA_STALL_LONG_SCOREBOARD = 9,
  PMA_STALL_WAIT = 10,
  PMA_STALL_SELECTED = 18,
};
/* A sample of eight bytes. */
static inline uint64_t pma_sample8(uint64_t pc, unsigned stall, unsigned warp, unsigned issued) {
  return pc >> PMA_PC_SHIFT | (uint64_t)(stall & 0x1f) << 45 | (uint64_t)(warp & 0x3f) << 50 |
         (uint64_t)(issued & 1) << 62;
}
#endif
