/* What channels of NVIDIA GPUs read: entries of the GPFIFO ring, method headers in pushbuffers, and the methods of the
 * host engine, the compute classes and the copy classes (table in methods.def).
 *
 * Wire format only, shared by encoder, emulator and tests. Sources: NVIDIA open-gpu-doc (class headers),
 * open-gpu-kernel-modules (clc56f.h, clc86f.h, clc96f.h). */
#ifndef DOORBELL_HCQ_NV_METHODS_H
#define DOORBELL_HCQ_NV_METHODS_H
#include "../bits.h"
#include "counters.h"
#include <stdbool.h>
#include <stddef.h>

/* ---- GPFIFO entries: 8 bytes in a ring ---- */

enum {
  /* dword 0 */
  BITS_ENUM(NV_GP_ENTRY0_FETCH, 0, 0)          /* 0: unconditional */
  BITS_ENUM(NV_GP_ENTRY0_GET, 31, 2)           /* address bits 31:2 */
  BITS_ENUM(NV_GP_ENTRY0_EXTENDED_BASE, 24, 8) /* operand of NV_GP_OPCODE_SET_PB_SEGMENT_EXTENDED_BASE */
  /* dword 1 */
  BITS_ENUM(NV_GP_ENTRY1_GET_HI, 7, 0)   /* address bits 39:32 */
  BITS_ENUM(NV_GP_ENTRY1_OPCODE, 7, 0)   /* if LENGTH is 0 */
  BITS_ENUM(NV_GP_ENTRY1_LEVEL, 9, 9)    /* 0 main, 1 subroutine */
  BITS_ENUM(NV_GP_ENTRY1_LENGTH, 30, 10) /* dwords */
  BITS_ENUM(NV_GP_ENTRY1_SYNC, 31, 31)   /* 1: fetch only after earlier entries have been executed */

  NV_GP_OPCODE_NOP = 0,
  NV_GP_OPCODE_ILLEGAL = 1,
  NV_GP_OPCODE_GP_CRC = 2,
  NV_GP_OPCODE_PB_CRC = 3,
  NV_GP_OPCODE_SET_PB_SEGMENT_EXTENDED_BASE = 4, /* from Hopper on: address bits from 40 */

  NV_GP_ENTRY_BYTES = 8,
  NV_GP_LENGTH_MAX = 0x1fffff,
  NV_GP_ADDRESS_BITS = 40,
};

/* Offsets in a channel's USERD page. Blackwell has no GPGet. */
enum { NV_USERD_BYTES = 512, NV_USERD_GP_GET = 0x88, NV_USERD_GP_PUT = 0x8c };
/* Offsets in the usermode register page. */
enum { NV_USERMODE_TIME_0 = 0x80, NV_USERMODE_TIME_1 = 0x84, NV_USERMODE_NOTIFY_CHANNEL_PENDING = 0x90 };

/* ---- method headers ---- */

enum {
  BITS_ENUM(NV_METHOD_ADDRESS, 11, 0) /* byte address >> 2 */
  BITS_ENUM(NV_METHOD_RESERVED, 12, 12) BITS_ENUM(NV_METHOD_SUBCHANNEL, 15, 13)
      BITS_ENUM(NV_METHOD_COUNT, 28, 16) /* number of data dwords, or the data of an IMMD */
  BITS_ENUM(NV_METHOD_OPCODE, 31, 29)

      NV_OPCODE_GRP0 = 0, /* if all other bits are 0 a NOP, otherwise sub-device masks */
  NV_OPCODE_INC = 1,      /* each data dword goes to the next method */
  NV_OPCODE_GRP2 = 2,
  NV_OPCODE_NON_INC = 3, /* all data dwords go to the same method */
  NV_OPCODE_IMMD = 4,
  NV_OPCODE_ONE_INC = 5, /* the first data dword goes to the method, the others to the next one */
  NV_OPCODE_END_PB_SEGMENT = 7,

  NV_METHOD_COUNT_MAX = 0x1fff,
  /* Conventional numbers; SET_OBJECT binds a class to a subchannel. Host methods may use any. */
  NV_SUBCHANNEL_COMPUTE = 1,
  NV_SUBCHANNEL_COPY = 4,
  NV_HOST_METHODS_END = 0x100, /* byte address: lower ones belong to the host engine */
};
#define NV_METHOD_HEADER(opcode, subchannel, address, count)                                                           \
  (BITS(NV_METHOD_OPCODE, opcode) | BITS(NV_METHOD_COUNT, count) | BITS(NV_METHOD_SUBCHANNEL, subchannel) |            \
   BITS(NV_METHOD_ADDRESS, (address) >> 2))

/* ---- methods ---- */

enum { /* NV_HOST_SEM_EXECUTE = 0x6c, NV_HOST_SEM_EXECUTE_OPERATION_SHIFT, ... */
#define NV_METHOD(set, name, address, n, bits) NV_##set##_##name = (address),
#define NV_FIELD(set, method, field, hi, lo)   BITS_ENUM(NV_##set##_##method##_##field, hi, lo)
#include "methods.def"
#undef NV_METHOD
#undef NV_FIELD
};

/* Values of fields. */
enum {
  NV_SEM_ACQUIRE = 0,
  NV_SEM_RELEASE = 1,
  NV_SEM_ACQ_STRICT_GEQ = 2,
  NV_SEM_ACQ_CIRC_GEQ = 3,
  NV_SEM_ACQ_AND = 4,
  NV_SEM_ACQ_NOR = 5,
  NV_SEM_REDUCTION = 6,
  NV_SEM_RED_IMIN = 0,
  NV_SEM_RED_IMAX = 1,
  NV_SEM_RED_IXOR = 2,
  NV_SEM_RED_IAND = 3,
  NV_SEM_RED_IOR = 4,
  NV_SEM_RED_IADD = 5,
  NV_SEM_RED_INC = 6,
  NV_SEM_RED_DEC = 7,

  NV_SEMD_ACQUIRE = 1, /* SEMAPHORED; RELEASE_WFI 0 waits, RELEASE_SIZE 0 is 16 bytes */
  NV_SEMD_RELEASE = 2,
  NV_SEMD_ACQ_GEQ = 4,
  NV_SEMD_ACQ_AND = 8,
  NV_SEMD_REDUCTION = 16,

  NV_MEMBAR_SYS = 0,
  NV_MEMBAR_GPU = 1,
  NV_MEM_OP_MEMBAR = 5,
  NV_MEM_OP_MMU_TLB_INVALIDATE = 9,
  NV_MEM_OP_MMU_TLB_INVALIDATE_TARGETED = 0xa,
  NV_MEM_OP_MMU_OPERATION = 0xb,
  NV_MEM_OP_L2_PEERMEM_INVALIDATE = 0xd,
  NV_MEM_OP_L2_SYSMEM_INVALIDATE = 0xe,
  NV_MEM_OP_L2_CLEAN_COMPTAGS = 0xf,
  NV_MEM_OP_L2_FLUSH_DIRTY = 0x10,
  NV_MEM_OP_L2_SYSMEM_NCOH_INVALIDATE = 0x11, /* from Blackwell on, and the next one */
  NV_MEM_OP_L2_SYSMEM_COH_INVALIDATE = 0x12,
  NV_MEM_OP_L2_WAIT_FOR_SYS_PENDING_READS = 0x15,
  NV_MEM_OP_ACCESS_COUNTER_CLR = 0x16,

  NV_YIELD_NOP = 0,
  NV_YIELD_TSG = 3,

  NV_PCAS_NOP = 0, /* SEND_SIGNALING_PCAS2_B */
  NV_PCAS_INVALIDATE = 1,
  NV_PCAS_SCHEDULE = 2,
  NV_PCAS_INVALIDATE_COPY_SCHEDULE = 3,
  NV_PCAS_INCREMENT_PUT = 6,
  NV_PCAS_DECREMENT_DEPENDENCE = 7,
  NV_PCAS_PREFETCH = 8,
  NV_PCAS_PREFETCH_SCHEDULE = 9,
  NV_PCAS_INVALIDATE_PREFETCH_COPY_SCHEDULE = 10,
  NV_PCAS_INVALIDATE_PREFETCH_COPY_FORCE_REQUIRE_SCHEDULING = 11,
  NV_PCAS_INCREMENT_DEPENDENCE = 12, /* from C7C0 on, and the next one */
  NV_PCAS_INCREMENT_CWD_REF_COUNTER = 13,
  NV_PCAS_ADDRESS_SHIFT = 8,

  NV_INLINE_QMD_256 = 0,
  NV_INLINE_QMD_384 = 1,

  NV_REPORT_RELEASE = 0,
  NV_REPORT_ACQUIRE = 1,
  NV_REPORT_REPORT_ONLY = 2,
  NV_REPORT_TRAP = 3,
  NV_REPORT_FOUR_WORDS = 0, /* payload, 0, 64-bit time */
  NV_REPORT_ONE_WORD = 1,
  NV_REPORT_TWO_WORDS = 2,

  NV_I2M_FLUSH_DISABLE = 0, /* COMPUTE_LAUNCH_DMA_COMPLETION_TYPE */
  NV_I2M_FLUSH_ONLY = 1,
  NV_I2M_RELEASE_SEMAPHORE = 2,
  NV_LAYOUT_BLOCKLINEAR = 0,
  NV_LAYOUT_PITCH = 1,

  NV_COPY_TRANSFER_NONE = 0,
  NV_COPY_PIPELINED = 1,
  NV_COPY_NON_PIPELINED = 2,
  NV_COPY_PREFETCH = 3, /* CAB5 */
  NV_COPY_SEMAPHORE_NONE = 0,
  NV_COPY_SEMAPHORE_NO_TIMESTAMP = 1,
  NV_COPY_SEMAPHORE_WITH_TIMESTAMP = 2,
  NV_COPY_SEMAPHORE_CONDITIONAL_INTR = 3,
  NV_COPY_RED_FADD = 10, /* SEMAPHORE_REDUCTION: NV_SEM_RED_* and these */
  NV_COPY_RED_FMIN = 11,
  NV_COPY_RED_FMAX = 12,
  NV_REMAP_SRC_X = 0,
  NV_REMAP_SRC_Y = 1,
  NV_REMAP_SRC_Z = 2,
  NV_REMAP_SRC_W = 3,
  NV_REMAP_CONST_A = 4,
  NV_REMAP_CONST_B = 5,
  NV_REMAP_NO_WRITE = 6,
};

/* ---- the methods as tables ---- */

enum nv_method_set { NV_SET_HOST, NV_SET_COMPUTE, NV_SET_COPY, NV_SET_COUNTERS };
struct nv_method {
  const char *name;
  enum nv_method_set set;
  uint16_t address, count;
  uint32_t bits[5]; /* indexed by nv_class_group; 0 if the group does not have the method */
};

static inline const struct nv_method *nv_methods(size_t *n) {
#define ALL(x)                                 {x, x, x, x, x}
#define FROM1(x)                               {0, x, x, x, x}
#define FROM2(x)                               {0, 0, x, x, x}
#define FROM3(x)                               {0, 0, 0, x, x}
#define FROM4(x)                               {0, 0, 0, 0, x}
#define TO0(x)                                 {x, 0, 0, 0, 0}
#define TO1(x)                                 {x, x, 0, 0, 0}
#define TO2(x)                                 {x, x, x, 0, 0}
#define WIDER(x, y)                            {x, x, y, y, y}
#define EACH(a, b, c, d, e)                    {a, b, c, d, e}
#define NV_METHOD(set, name, address, n, bits) {#name, NV_SET_##set, address, n, bits},
#define NV_FIELD(set, method, field, hi, lo)
  static const struct nv_method methods[] = {
#include "methods.def"
  };
#undef ALL
#undef FROM1
#undef FROM2
#undef FROM3
#undef FROM4
#undef TO0
#undef TO1
#undef TO2
#undef WIDER
#undef EACH
#undef NV_METHOD
#undef NV_FIELD
  *n = sizeof methods / sizeof *methods;
  return methods;
}

/* Stores the set of a class and its column in nv_method.bits; returns false for an unknown class. */
static inline bool nv_class_group(uint32_t object_class, enum nv_method_set *set, unsigned *group) {
  static const struct {
    uint16_t object_class;
    uint8_t set, group;
  } classes[] = {
      {0xc36f, NV_SET_HOST, 0},    {0xc46f, NV_SET_HOST, 0},    {0xc56f, NV_SET_HOST, 0},
      {0xc86f, NV_SET_HOST, 1},    {0xc96f, NV_SET_HOST, 2},    {0xca6f, NV_SET_HOST, 2},
      {0xc6c0, NV_SET_COMPUTE, 0}, {0xc7c0, NV_SET_COMPUTE, 1}, {0xc9c0, NV_SET_COMPUTE, 1},
      {0xcbc0, NV_SET_COMPUTE, 2}, {0xcdc0, NV_SET_COMPUTE, 3}, {0xcec0, NV_SET_COMPUTE, 4},
      {0xc6b5, NV_SET_COPY, 0},    {0xc7b5, NV_SET_COPY, 1},    {0xc8b5, NV_SET_COPY, 2},
      {0xc9b5, NV_SET_COPY, 3},    {0xcab5, NV_SET_COPY, 4},    {NV_CLASS_COUNTERS, NV_SET_COUNTERS, 0},
  };
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
    if (classes[i].object_class == object_class) {
      *set = (enum nv_method_set)classes[i].set;
      *group = classes[i].group;
      return true;
    }
  return false;
}

/* The method at a byte address, or NULL if the group does not have it. For repeated lookups see nv_method_index. */
static inline const struct nv_method *nv_method_find(enum nv_method_set set, unsigned group, uint32_t address) {
  size_t n;
  const struct nv_method *m = nv_methods(&n);
  for (size_t i = 0; i < n; i++)
    if (m[i].set == set && m[i].bits[group] && address >= m[i].address && address < m[i].address + 4u * m[i].count &&
        !(address & 3))
      return &m[i];
  return NULL;
}

/* Fills a table of methods by byte address >> 2, for all 4096 addresses that a header can contain. */
static inline void nv_method_index(enum nv_method_set set, unsigned group, const struct nv_method *index[4096]) {
  size_t n;
  const struct nv_method *m = nv_methods(&n);
  for (unsigned i = 0; i < 4096; i++) index[i] = NULL;
  for (size_t i = 0; i < n; i++)
    for (unsigned k = 0; m[i].set == set && m[i].bits[group] && k < m[i].count; k++)
      index[m[i].address / 4 + k] = &m[i];
}

#endif
