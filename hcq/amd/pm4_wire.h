/* PM4 packets as the compute microengine (MEC) of gfx11 reads them: one table of opcodes, lengths and fields. Sources:
 * the Linux amdgpu driver's soc15d.h and nvd.h (opcodes, ACQUIRE_MEM, RELEASE_MEM, WAIT_REG_MEM), AMD's PAL headers for
 * the MEC (remaining fields).
 *
 * Wire format only, shared by encoder, emulator and tests. P(packet, opcode, minimum and maximum payload dwords,
 * fields), and fields are F(packet, dword, field, hi, lo); dword 1 is the first after the header. Bits outside every
 * field are reserved and must be zero. Dwords after those with fields (register values, WRITE_DATA's data) are data:
 * see pm4_packet_bits. */
#ifndef DOORBELL_HCQ_AMD_PM4_WIRE_H
#define DOORBELL_HCQ_AMD_PM4_WIRE_H
#include "../bits.h"
#include "registers.h"

/* A type-3 header: type, payload dwords - 1, opcode. Type 2 is a filler of one dword. */
enum {
  BITS_ENUM(PM4_HEADER_PREDICATE, 0, 0) BITS_ENUM(PM4_HEADER_SHADER_TYPE, 1, 1) /* 1 compute; MEC queues ignore it */
  BITS_ENUM(PM4_HEADER_OPCODE, 15, 8) BITS_ENUM(PM4_HEADER_COUNT, 29, 16) BITS_ENUM(PM4_HEADER_TYPE, 31, 30)
      PM4_MAX_PAYLOAD = 0x3fff, /* count 0x3fff has another meaning: see PM4_NOP_ONE_DWORD */
};
#define PM4_HEADER(opcode, payload) (3u << 30 | ((uint32_t)(payload) - 1) << 16 | (uint32_t)(opcode) << 8)
#define PM4_TYPE2_FILLER            0x80000000u
/* A NOP whose count is all ones is one dword long (gfx9 and later). */
#define PM4_NOP_ONE_DWORD 0xffff1000u

/* clang-format off */
#define PM4_PACKETS(P, F) \
  P(NOP, 0x10, 1, 0x3fff, ) \
  P(SET_BASE, 0x11, 3, 3, \
    F(SET_BASE, 1, BASE_INDEX, 3, 0) F(SET_BASE, 2, ADDR_LO, 31, 3) F(SET_BASE, 3, ADDR_HI, 15, 0)) \
  P(DISPATCH_DIRECT, 0x15, 4, 4, \
    F(DISPATCH_DIRECT, 1, DIM_X, 31, 0) F(DISPATCH_DIRECT, 2, DIM_Y, 31, 0) F(DISPATCH_DIRECT, 3, DIM_Z, 31, 0) \
    F(DISPATCH_DIRECT, 4, INITIATOR, 31, 0)) \
  P(DISPATCH_INDIRECT, 0x16, 3, 3, \
    F(DISPATCH_INDIRECT, 1, ADDR_LO, 31, 2) F(DISPATCH_INDIRECT, 2, ADDR_HI, 15, 0) \
    F(DISPATCH_INDIRECT, 3, INITIATOR, 31, 0)) \
  P(ATOMIC_MEM, 0x1e, 8, 8, \
    F(ATOMIC_MEM, 1, ATOMIC, 6, 0) F(ATOMIC_MEM, 1, COMMAND, 11, 8) F(ATOMIC_MEM, 1, CACHE_POLICY, 26, 25) \
    F(ATOMIC_MEM, 2, ADDR_LO, 31, 0) F(ATOMIC_MEM, 3, ADDR_HI, 31, 0) F(ATOMIC_MEM, 4, SRC_LO, 31, 0) \
    F(ATOMIC_MEM, 5, SRC_HI, 31, 0) \
    F(ATOMIC_MEM, 6, CMP_LO, 31, 0) F(ATOMIC_MEM, 7, CMP_HI, 31, 0) F(ATOMIC_MEM, 8, LOOP_INTERVAL, 12, 0)) \
  P(COND_EXEC, 0x22, 4, 4, \
    F(COND_EXEC, 1, ADDR_LO, 31, 2) F(COND_EXEC, 2, ADDR_HI, 31, 0) F(COND_EXEC, 3, CACHE_POLICY, 26, 25) \
    F(COND_EXEC, 4, EXEC_COUNT, 13, 0)) \
  P(PRED_EXEC, 0x23, 1, 1, \
    F(PRED_EXEC, 1, EXEC_COUNT, 13, 0) F(PRED_EXEC, 1, DEVICE_SELECT, 31, 24)) \
  P(WRITE_DATA, 0x37, 4, 0x3fff, \
    F(WRITE_DATA, 1, DST_SEL, 11, 8) F(WRITE_DATA, 1, ADDR_INCR_DISABLE, 16, 16) F(WRITE_DATA, 1, WR_CONFIRM, 20, 20) \
    F(WRITE_DATA, 1, CACHE_POLICY, 26, 25) F(WRITE_DATA, 1, ENGINE_SEL, 31, 30) \
    F(WRITE_DATA, 2, ADDR_LO, 31, 0) F(WRITE_DATA, 3, ADDR_HI, 31, 0)) \
  P(WAIT_REG_MEM, 0x3c, 6, 6, \
    F(WAIT_REG_MEM, 1, FUNCTION, 2, 0) F(WAIT_REG_MEM, 1, MEM_SPACE, 5, 4) F(WAIT_REG_MEM, 1, OPERATION, 7, 6) \
    F(WAIT_REG_MEM, 1, ENGINE, 9, 8) F(WAIT_REG_MEM, 1, CACHE_POLICY, 26, 25) \
    F(WAIT_REG_MEM, 2, ADDR_LO, 31, 0) F(WAIT_REG_MEM, 3, ADDR_HI, 31, 0) F(WAIT_REG_MEM, 4, REFERENCE, 31, 0) \
    F(WAIT_REG_MEM, 5, MASK, 31, 0) F(WAIT_REG_MEM, 6, POLL_INTERVAL, 15, 0) \
    F(WAIT_REG_MEM, 6, OPTIMIZE_ACE_OFFLOAD, 31, 31)) \
  P(INDIRECT_BUFFER, 0x3f, 3, 3, \
    F(INDIRECT_BUFFER, 1, BASE_LO, 31, 2) F(INDIRECT_BUFFER, 2, BASE_HI, 31, 0) F(INDIRECT_BUFFER, 3, SIZE, 19, 0) \
    F(INDIRECT_BUFFER, 3, CHAIN, 20, 20) F(INDIRECT_BUFFER, 3, OFFLOAD_POLLING, 21, 21) \
    F(INDIRECT_BUFFER, 3, VALID, 23, 23) \
    F(INDIRECT_BUFFER, 3, VMID, 27, 24) F(INDIRECT_BUFFER, 3, CACHE_POLICY, 29, 28) \
    F(INDIRECT_BUFFER, 3, PRIV, 31, 31)) \
  P(COPY_DATA, 0x40, 5, 5, \
    F(COPY_DATA, 1, SRC_SEL, 3, 0) F(COPY_DATA, 1, DST_SEL, 11, 8) F(COPY_DATA, 1, SRC_CACHE_POLICY, 14, 13) \
    F(COPY_DATA, 1, COUNT_SEL, 16, 16) F(COPY_DATA, 1, WR_CONFIRM, 20, 20) F(COPY_DATA, 1, DST_CACHE_POLICY, 26, 25) \
    F(COPY_DATA, 1, PQ_EXE_STATUS, 29, 29) \
    F(COPY_DATA, 2, SRC_LO, 31, 0) F(COPY_DATA, 3, SRC_HI, 31, 0) F(COPY_DATA, 4, DST_LO, 31, 0) \
    F(COPY_DATA, 5, DST_HI, 31, 0)) \
  P(EVENT_WRITE, 0x46, 1, 1, \
    F(EVENT_WRITE, 1, EVENT_TYPE, 5, 0) F(EVENT_WRITE, 1, EVENT_INDEX, 11, 8)) \
  P(RELEASE_MEM, 0x49, 7, 7, \
    F(RELEASE_MEM, 1, EVENT_TYPE, 5, 0) F(RELEASE_MEM, 1, EVENT_INDEX, 11, 8) F(RELEASE_MEM, 1, GLM_WB, 12, 12) \
    F(RELEASE_MEM, 1, GLM_INV, 13, 13) F(RELEASE_MEM, 1, GLV_INV, 14, 14) F(RELEASE_MEM, 1, GL1_INV, 15, 15) \
    F(RELEASE_MEM, 1, GL2_US, 16, 16) F(RELEASE_MEM, 1, GL2_RANGE, 18, 17) F(RELEASE_MEM, 1, GL2_DISCARD, 19, 19) \
    F(RELEASE_MEM, 1, GL2_INV, 20, 20) F(RELEASE_MEM, 1, GL2_WB, 21, 21) F(RELEASE_MEM, 1, SEQ, 23, 22) \
    F(RELEASE_MEM, 1, GLK_WB, 24, 24) F(RELEASE_MEM, 1, CACHE_POLICY, 26, 25) F(RELEASE_MEM, 1, EXECUTE, 28, 28) \
    F(RELEASE_MEM, 1, GLK_INV, 30, 30) \
    F(RELEASE_MEM, 2, DST_SEL, 17, 16) F(RELEASE_MEM, 2, INT_SEL, 26, 24) F(RELEASE_MEM, 2, DATA_SEL, 31, 29) \
    F(RELEASE_MEM, 3, ADDR_LO, 31, 0) F(RELEASE_MEM, 4, ADDR_HI, 31, 0) F(RELEASE_MEM, 5, DATA_LO, 31, 0) \
    F(RELEASE_MEM, 6, DATA_HI, 31, 0) F(RELEASE_MEM, 7, INT_CTXID, 31, 0)) \
  P(ACQUIRE_MEM, 0x58, 7, 7, \
    F(ACQUIRE_MEM, 2, SIZE_LO, 31, 0) F(ACQUIRE_MEM, 3, SIZE_HI, 7, 0) F(ACQUIRE_MEM, 3, SIZE_UNUSED, 31, 8) \
    F(ACQUIRE_MEM, 4, BASE_LO, 31, 0) F(ACQUIRE_MEM, 5, BASE_HI, 23, 0) \
    F(ACQUIRE_MEM, 6, POLL_INTERVAL, 15, 0) \
    F(ACQUIRE_MEM, 7, GLI_INV, 1, 0) F(ACQUIRE_MEM, 7, GL1_RANGE, 3, 2) F(ACQUIRE_MEM, 7, GLM_WB, 4, 4) \
    F(ACQUIRE_MEM, 7, GLM_INV, 5, 5) \
    F(ACQUIRE_MEM, 7, GLK_WB, 6, 6) F(ACQUIRE_MEM, 7, GLK_INV, 7, 7) F(ACQUIRE_MEM, 7, GLV_INV, 8, 8) \
    F(ACQUIRE_MEM, 7, GL1_INV, 9, 9) \
    F(ACQUIRE_MEM, 7, GL2_US, 10, 10) F(ACQUIRE_MEM, 7, GL2_RANGE, 12, 11) F(ACQUIRE_MEM, 7, GL2_DISCARD, 13, 13) \
    F(ACQUIRE_MEM, 7, GL2_INV, 14, 14) F(ACQUIRE_MEM, 7, GL2_WB, 15, 15) F(ACQUIRE_MEM, 7, SEQ, 17, 16) \
    F(ACQUIRE_MEM, 7, RANGE_IS_PA, 18, 18)) \
  P(SET_SH_REG, 0x76, 2, 0x3fff, \
    F(SET_SH_REG, 1, OFFSET, 15, 0) F(SET_SH_REG, 1, VMID_SHIFT, 27, 23) F(SET_SH_REG, 1, INDEX, 31, 28)) \
  P(SET_UCONFIG_REG, 0x79, 2, 0x3fff, F(SET_UCONFIG_REG, 1, OFFSET, 15, 0)) \
  P(WAIT_REG_MEM64, 0x93, 8, 8, \
    F(WAIT_REG_MEM64, 1, FUNCTION, 2, 0) F(WAIT_REG_MEM64, 1, MEM_SPACE, 5, 4) F(WAIT_REG_MEM64, 1, OPERATION, 7, 6) \
    F(WAIT_REG_MEM64, 1, CACHE_POLICY, 26, 25) \
    F(WAIT_REG_MEM64, 2, ADDR_LO, 31, 0) F(WAIT_REG_MEM64, 3, ADDR_HI, 31, 0) \
    F(WAIT_REG_MEM64, 4, REFERENCE_LO, 31, 0) \
    F(WAIT_REG_MEM64, 5, REFERENCE_HI, 31, 0) F(WAIT_REG_MEM64, 6, MASK_LO, 31, 0) \
    F(WAIT_REG_MEM64, 7, MASK_HI, 31, 0) \
    F(WAIT_REG_MEM64, 8, POLL_INTERVAL, 15, 0) F(WAIT_REG_MEM64, 8, OPTIMIZE_ACE_OFFLOAD, 31, 31)) \
  P(SET_SH_REG_INDEX, 0x9b, 2, 0x3fff, F(SET_SH_REG_INDEX, 1, OFFSET, 15, 0) F(SET_SH_REG_INDEX, 1, INDEX, 31, 28))

/* PM4_<packet> is the opcode; PM4_<packet>_<field>_SHIFT/_WIDTH/_DW the field. */
#define PM4_OPCODE(packet, opcode, least, most, fields) PM4_##packet = opcode,
#define PM4_FIELDS(packet, opcode, least, most, fields) fields
#define PM4_FIELD(packet, dword, field, hi, lo) \
  BITS_ENUM(PM4_##packet##_##field, hi, lo) PM4_##packet##_##field##_DW = dword,
#define PM4_NONE(packet, dword, field, hi, lo)
enum pm4_opcode { PM4_PACKETS(PM4_OPCODE, PM4_NONE) };
enum pm4_field { PM4_PACKETS(PM4_FIELDS, PM4_FIELD) };

struct pm4_packet_info {
  const char *name;
  uint32_t least, most; /* payload dwords */
};
/* name is NULL if the table does not have the opcode. */
static inline struct pm4_packet_info pm4_packet_info(unsigned opcode) {
#define PM4_CASE(packet, opcode, least, most, fields) \
  case opcode: return (struct pm4_packet_info){#packet, least, most};
  switch (opcode) { PM4_PACKETS(PM4_CASE, PM4_NONE) default: return (struct pm4_packet_info){(const char *)0, 0, 0}; }
#undef PM4_CASE
}

/* Bits of payload dword dw (from 1) that belong to a field; the others are reserved. All ones for dwords of data. */
static inline uint32_t pm4_packet_bits(unsigned opcode, unsigned dw) {
  if (opcode == PM4_NOP || (opcode == PM4_WRITE_DATA && dw > 3)) return ~0u;
  if ((opcode == PM4_SET_SH_REG || opcode == PM4_SET_UCONFIG_REG || opcode == PM4_SET_SH_REG_INDEX) && dw > 1)
    return ~0u;
#define PM4_CASE(packet, opcode, least, most, fields) case opcode: return 0 fields;
#define PM4_OR(packet, dword, field, hi, lo) | (dw == (dword) ? BITS_SPAN(hi, lo) : 0)
  switch (opcode) { PM4_PACKETS(PM4_CASE, PM4_OR) default: return 0; }
#undef PM4_CASE
#undef PM4_OR
}
/* clang-format on */

/* Values of fields. */
enum pm4_wait_function { /* (value & mask) compared with the reference, unsigned; also SDMA's POLL_REGMEM */
                         PM4_WAIT_ALWAYS,
                         PM4_WAIT_LT,
                         PM4_WAIT_LE,
                         PM4_WAIT_EQ,
                         PM4_WAIT_NE,
                         PM4_WAIT_GE,
                         PM4_WAIT_GT,
};
enum pm4_wait_space { PM4_WAIT_REGISTER, PM4_WAIT_MEMORY };
enum pm4_wait_operation { PM4_WAIT_POLL, PM4_WAIT_WRITE_THEN_POLL, PM4_WAIT_POLL_PREEMPTIBLE = 3 };
enum pm4_release_data { PM4_DATA_NONE, PM4_DATA_32, PM4_DATA_64, PM4_DATA_GPU_CLOCK, PM4_DATA_SYSTEM_CLOCK };
enum pm4_release_interrupt { PM4_INT_NONE, PM4_INT_ONLY, PM4_INT_AFTER_WRITE, PM4_INT_DATA_AFTER_WRITE };
enum pm4_release_dst { PM4_RELEASE_TO_MEMORY, PM4_RELEASE_TO_L2 };
enum pm4_copy_sel {
  PM4_COPY_REGISTER = 0,
  PM4_COPY_MEMORY = 2,
  PM4_COPY_PERF = 4,
  PM4_COPY_IMMEDIATE = 5,
  PM4_COPY_GPU_CLOCK = 9,
  PM4_COPY_SYSTEM_CLOCK = 10
};
enum pm4_write_dst { PM4_WRITE_REGISTER = 0, PM4_WRITE_L2 = 2, PM4_WRITE_MEMORY = 5 };
/* GLI_INV: 1 invalidates the whole instruction cache. SEQ: 1 handles the caches in order, from the shader outwards. */
enum { PM4_GLI_INV_ALL = 1, PM4_SEQ_PARALLEL = 0, PM4_SEQ_FORWARD = 1 };
/* EVENT_INDEX: the kind of the event in EVENT_TYPE. */
enum pm4_event_index {
  PM4_EVENT_INDEX_OTHER = 0,
  PM4_EVENT_INDEX_CS_FLUSH = 4,
  PM4_EVENT_INDEX_END_OF_PIPE = 5,
  PM4_EVENT_INDEX_SHADER_DONE = 6
};

/* VGT_EVENT_TYPE, in the Linux amdgpu driver's enumeration headers. E(name, number). */
#define PM4_EVENTS(E)                                                                                                  \
  E(CACHE_FLUSH_TS, 4)                                                                                                 \
  E(CONTEXT_DONE, 5)                                                                                                   \
  E(CACHE_FLUSH, 6)                                                                                                    \
  E(CS_PARTIAL_FLUSH, 7)                                                                                               \
  E(CACHE_FLUSH_AND_INV_TS, 20)                                                                                        \
  E(CACHE_FLUSH_AND_INV, 22)                                                                                           \
  E(PERFCOUNTER_START, 23)                                                                                             \
  E(PERFCOUNTER_STOP, 24)                                                                                              \
  E(PERFCOUNTER_SAMPLE, 27)                                                                                            \
  E(BOTTOM_OF_PIPE_TS, 40)                                                                                             \
  E(CS_DONE, 47)                                                                                                       \
  E(THREAD_TRACE_START, 51)                                                                                            \
  E(THREAD_TRACE_STOP, 52)                                                                                             \
  E(THREAD_TRACE_MARKER, 53)                                                                                           \
  E(THREAD_TRACE_DRAW, 54)                                                                                             \
  E(THREAD_TRACE_FINISH, 55)
#define PM4_EVENT_ENUM(name, number) PM4_EVENT_##name = number,
enum pm4_event { PM4_EVENTS(PM4_EVENT_ENUM) };

#endif
