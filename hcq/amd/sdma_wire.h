/* SDMA packets of version 6 (gfx11): one table of operations, lengths and fields. Source: the Linux amdgpu driver's
 * sdma_v6_0_0_pkt_open.h.
 *
 * Wire format only, shared by encoder, emulator and tests. P(packet, op, sub-op, dwords, fields), and fields are
 * F(packet, dword, field, hi, lo); dword 0 is the header. Bits outside every field are reserved and must be zero. For
 * WRITE_LINEAR and NOP, dwords is the minimum length: their COUNT adds data. */
#ifndef DOORBELL_HCQ_AMD_SDMA_WIRE_H
#define DOORBELL_HCQ_AMD_SDMA_WIRE_H
#include "../bits.h"

enum { BITS_ENUM(SDMA_HEADER_OP, 7, 0) BITS_ENUM(SDMA_HEADER_SUB_OP, 15, 8) SDMA_SUB_OP_BASE = 8 };
#define SDMA_HEADER(op, sub_op) ((uint32_t)(sub_op) << 8 | (uint32_t)(op))
/* Maximum bytes of one COPY_LINEAR or CONSTANT_FILL: COUNT has 30 bits and holds bytes - 1. */
#define SDMA_MAX_COPY 0x40000000u

/* clang-format off */
#define SDMA_PACKETS(P, F) \
  P(NOP, 0, 0, 1, F(NOP, 0, COUNT, 29, 16)) \
  P(COPY_LINEAR, 1, 0, 7, \
    F(COPY_LINEAR, 0, ENCRYPT, 16, 16) F(COPY_LINEAR, 0, TMZ, 18, 18) F(COPY_LINEAR, 0, CPV, 19, 19) \
    F(COPY_LINEAR, 0, BACKWARDS, 25, 25) \
    F(COPY_LINEAR, 0, BROADCAST, 27, 27) F(COPY_LINEAR, 1, COUNT, 29, 0) F(COPY_LINEAR, 2, DST_SWAP, 17, 16) \
    F(COPY_LINEAR, 2, DST_CACHE_POLICY, 20, 18) F(COPY_LINEAR, 2, SRC_SWAP, 25, 24) \
    F(COPY_LINEAR, 2, SRC_CACHE_POLICY, 28, 26) \
    F(COPY_LINEAR, 3, SRC_LO, 31, 0) F(COPY_LINEAR, 4, SRC_HI, 31, 0) F(COPY_LINEAR, 5, DST_LO, 31, 0) \
    F(COPY_LINEAR, 6, DST_HI, 31, 0)) \
  P(WRITE_LINEAR, 2, 0, 5, \
    F(WRITE_LINEAR, 0, ENCRYPT, 16, 16) F(WRITE_LINEAR, 0, TMZ, 18, 18) F(WRITE_LINEAR, 0, CPV, 28, 28) \
    F(WRITE_LINEAR, 1, DST_LO, 31, 0) \
    F(WRITE_LINEAR, 2, DST_HI, 31, 0) F(WRITE_LINEAR, 3, COUNT, 19, 0) F(WRITE_LINEAR, 3, SWAP, 25, 24) \
    F(WRITE_LINEAR, 3, CACHE_POLICY, 28, 26) F(WRITE_LINEAR, 4, DATA, 31, 0)) \
  P(INDIRECT, 4, 0, 6, \
    F(INDIRECT, 0, VMID, 19, 16) F(INDIRECT, 0, PRIV, 31, 31) F(INDIRECT, 1, BASE_LO, 31, 5) \
    F(INDIRECT, 2, BASE_HI, 31, 0) \
    F(INDIRECT, 3, SIZE, 19, 0) F(INDIRECT, 4, CSA_LO, 31, 0) F(INDIRECT, 5, CSA_HI, 31, 0)) \
  P(FENCE, 5, 0, 4, \
    F(FENCE, 0, MTYPE, 18, 16) F(FENCE, 0, GCC, 19, 19) F(FENCE, 0, SYS, 20, 20) F(FENCE, 0, SNP, 22, 22) \
    F(FENCE, 0, GPA, 23, 23) \
    F(FENCE, 0, L2_POLICY, 25, 24) F(FENCE, 0, LLC_POLICY, 26, 26) F(FENCE, 0, CPV, 28, 28) \
    F(FENCE, 1, ADDR_LO, 31, 0) F(FENCE, 2, ADDR_HI, 31, 0) F(FENCE, 3, DATA, 31, 0)) \
  P(TRAP, 6, 0, 2, F(TRAP, 1, INT_CONTEXT, 27, 0)) \
  P(POLL_REGMEM, 8, 0, 6, \
    F(POLL_REGMEM, 0, CACHE_POLICY, 22, 20) F(POLL_REGMEM, 0, CPV, 24, 24) F(POLL_REGMEM, 0, HDP_FLUSH, 26, 26) \
    F(POLL_REGMEM, 0, FUNC, 30, 28) F(POLL_REGMEM, 0, MEM_POLL, 31, 31) F(POLL_REGMEM, 1, ADDR_LO, 31, 0) \
    F(POLL_REGMEM, 2, ADDR_HI, 31, 0) \
    F(POLL_REGMEM, 3, VALUE, 31, 0) F(POLL_REGMEM, 4, MASK, 31, 0) F(POLL_REGMEM, 5, INTERVAL, 15, 0) \
    F(POLL_REGMEM, 5, RETRY_COUNT, 27, 16)) \
  P(COND_EXE, 9, 0, 5, \
    F(COND_EXE, 0, CACHE_POLICY, 26, 24) F(COND_EXE, 0, CPV, 28, 28) F(COND_EXE, 1, ADDR_LO, 31, 0) \
    F(COND_EXE, 2, ADDR_HI, 31, 0) \
    F(COND_EXE, 3, REFERENCE, 31, 0) F(COND_EXE, 4, EXEC_COUNT, 13, 0)) \
  P(ATOMIC, 10, 0, 8, \
    F(ATOMIC, 0, LOOP, 16, 16) F(ATOMIC, 0, TMZ, 18, 18) F(ATOMIC, 0, CACHE_POLICY, 22, 20) F(ATOMIC, 0, CPV, 24, 24) \
    F(ATOMIC, 0, ATOMIC_OP, 31, 25) F(ATOMIC, 1, ADDR_LO, 31, 0) F(ATOMIC, 2, ADDR_HI, 31, 0) \
    F(ATOMIC, 3, SRC_LO, 31, 0) \
    F(ATOMIC, 4, SRC_HI, 31, 0) F(ATOMIC, 5, CMP_LO, 31, 0) F(ATOMIC, 6, CMP_HI, 31, 0) \
    F(ATOMIC, 7, LOOP_INTERVAL, 12, 0)) \
  P(CONSTANT_FILL, 11, 0, 5, \
    F(CONSTANT_FILL, 0, SWAP, 17, 16) F(CONSTANT_FILL, 0, CACHE_POLICY, 26, 24) F(CONSTANT_FILL, 0, CPV, 28, 28) \
    F(CONSTANT_FILL, 0, FILL_SIZE, 31, 30) F(CONSTANT_FILL, 1, DST_LO, 31, 0) F(CONSTANT_FILL, 2, DST_HI, 31, 0) \
    F(CONSTANT_FILL, 3, DATA, 31, 0) F(CONSTANT_FILL, 4, COUNT, 29, 0)) \
  P(TIMESTAMP_GLOBAL, 13, 2, 3, \
    F(TIMESTAMP_GLOBAL, 0, L2_POLICY, 25, 24) F(TIMESTAMP_GLOBAL, 0, LLC_POLICY, 26, 26) \
    F(TIMESTAMP_GLOBAL, 0, CPV, 28, 28) \
    F(TIMESTAMP_GLOBAL, 1, ADDR_LO, 31, 3) F(TIMESTAMP_GLOBAL, 2, ADDR_HI, 31, 0)) \
  P(GCR_REQ, 17, 1, 5, \
    F(GCR_REQ, 1, BASE_LO, 31, 7) F(GCR_REQ, 2, BASE_HI, 15, 0) F(GCR_REQ, 2, CONTROL_LO, 31, 16) \
    F(GCR_REQ, 3, CONTROL_HI, 2, 0) \
    F(GCR_REQ, 3, LIMIT_LO, 31, 7) F(GCR_REQ, 4, LIMIT_HI, 15, 0) F(GCR_REQ, 4, VMID, 27, 24))

/* SDMA_<packet> is the header's low 16 bits (op and sub-op), SDMA_<packet>_DWORDS the length,
 * SDMA_<packet>_<field>_SHIFT/_WIDTH/_DW the field. */
#define SDMA_OP(packet, op, sub_op, dwords, fields) \
  SDMA_##packet = SDMA_HEADER(op, sub_op), SDMA_##packet##_DWORDS = dwords,
#define SDMA_FIELDS(packet, op, sub_op, dwords, fields) fields
#define SDMA_FIELD(packet, dword, field, hi, lo) BITS_ENUM(SDMA_##packet##_##field, hi, lo) \
  SDMA_##packet##_##field##_DW = dword,
#define SDMA_NONE(packet, dword, field, hi, lo)
enum sdma_packet { SDMA_PACKETS(SDMA_OP, SDMA_NONE) };
enum sdma_field { SDMA_PACKETS(SDMA_FIELDS, SDMA_FIELD) };

struct sdma_packet_info {
  const char *name;
  uint32_t dwords;
};
/* By op and sub-op (header & 0xffff); name is NULL if the table does not have the packet. */
static inline struct sdma_packet_info sdma_packet_info(uint32_t header) {
#define SDMA_CASE(packet, op, sub_op, dwords, fields) \
  case SDMA_HEADER(op, sub_op): return (struct sdma_packet_info){#packet, dwords};
  switch (header & 0xffff) {
    SDMA_PACKETS(SDMA_CASE, SDMA_NONE)
    default: return (struct sdma_packet_info){(const char *)0, 0};
  }
#undef SDMA_CASE
}
/* Bits of dword dw (0 is the header) that belong to a field; all ones for dwords of data. */
static inline uint32_t sdma_packet_bits(uint32_t header, unsigned dw) {
  uint32_t bits = dw ? 0 : 0xffff;
  if (((header & 0xffff) == SDMA_NOP && dw) || ((header & 0xffff) == SDMA_WRITE_LINEAR && dw > 4)) return ~0u;
#define SDMA_CASE(packet, op, sub_op, dwords, fields) case SDMA_HEADER(op, sub_op): return bits fields;
#define SDMA_OR(packet, dword, field, hi, lo) | (dw == (dword) ? BITS_SPAN(hi, lo) : 0)
  switch (header & 0xffff) { SDMA_PACKETS(SDMA_CASE, SDMA_OR) default: return 0; }
#undef SDMA_CASE
#undef SDMA_OR
}
/* clang-format on */

/* Values of fields. POLL_REGMEM's FUNC uses the numbers of enum pm4_wait_function. With HDP_FLUSH, its two address
 * dwords are the byte addresses of the register that it polls and of the register that it writes. */
enum { SDMA_MTYPE_UC = 3, SDMA_FILL_BYTE = 0, SDMA_FILL_DWORD = 2 };
enum { SDMA_POLL_EQ = 3, SDMA_POLL_GE = 5, SDMA_POLL_FOREVER = 0xfff };
/* ATOMIC_OP, shared with PM4's ATOMIC_MEM: 64-bit add without a return value. */
enum { SDMA_ATOMIC_ADD64 = 0x2f };

#endif
