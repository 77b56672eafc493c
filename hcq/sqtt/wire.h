/* The packets of thread traces as constants, for the decoder and for those that write traces. packets.def is the table
 * and names its sources.
 *
 * SQTT_GFX11_INST_CODE and _BITS are a packet's low bits and its length, SQTT_GFX11_INST_DELTA is the position of its
 * time, SQTT_GFX11_INST_wave_SHIFT and _WIDTH those of a field, and SQTT_GFX11_OP_SALU is a value of INST's op. */
#ifndef DOORBELL_HCQ_SQTT_WIRE_H
#define DOORBELL_HCQ_SQTT_WIRE_H

enum sqtt_layout { SQTT_GFX11, SQTT_GFX12, SQTT_CDNA, SQTT_LAYOUTS };
/* The values of LAYOUT_HEADER's field layout. */
enum { SQTT_LAYOUT_GFX11 = 3, SQTT_LAYOUT_GFX12 = 4 };

enum sqtt_type {
#define TYPE(name, meaning) SQTT_##name,
#include "packets.def"
  SQTT_TYPES,
};

enum {
#define PACKET(layout, name, code_bits, code, bits, delta_hi, delta_lo, rule)                                          \
  SQTT_##layout##_##name##_CODE = (code), SQTT_##layout##_##name##_BITS = (bits),                                      \
  SQTT_##layout##_##name##_DELTA = (delta_lo),
#define FIELD(layout, packet, name, hi, lo)                                                                            \
  SQTT_##layout##_##packet##_##name##_SHIFT = (lo), SQTT_##layout##_##packet##_##name##_WIDTH = (hi) - (lo) + 1,
#define OP(layout, code, name, class, unit) SQTT_##layout##_OP_##name = (code),
#include "packets.def"
};

/* The traced unit of EXEC packets. ALUEXEC's src is a mask of the first two. */
enum sqtt_alu_source { SQTT_ALU_SCALAR = 1, SQTT_ALU_VECTOR = 2 };
/* VMEMEXEC's src. Instructions of the other SIMDs that share a unit with the traced one are reported, too. */
enum sqtt_memory_source { SQTT_MEMORY_LDS, SQTT_MEMORY_OTHER_LDS, SQTT_MEMORY_VMEM, SQTT_MEMORY_OTHER_VMEM };

/* REG's address, relative to 0x2e00 if is_sh is set; otherwise it is a register's dword address. */
enum { SQTT_REG_PGM_LO = 0x0c, SQTT_REG_PGM_HI = 0x0d, SQTT_REG_DISPATCH_END = 0x7e, SQTT_REG_EVENT = 0xff };

/* A trace consists of units of this many bytes. The hardware fills the last one with NOP. */
enum { SQTT_UNIT_BYTES = 32 };

#endif
