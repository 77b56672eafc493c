/* RDNA3 (gfx1100): the types of the instruction table and of a decoded instruction. exec/rdna3_wave.h describes
 * execution.
 *
 * Sources: AMD "RDNA3 Shader Instruction Set Architecture" document; LLVM AMDGPUUsage. */
#ifndef DOORBELL_EMU_AMD_RDNA3_H
#define DOORBELL_EMU_AMD_RDNA3_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- the table ---- */

/* clang-format off */
#define RDNA3_FORMATS(X)                                                                                               \
  X(SOP2) X(SOPK) X(SOP1) X(SOPC) X(SOPP) X(SMEM) X(VOP2) X(VOP1) X(VOPC) X(VOP3) X(VOP3SD) X(VOP3P) X(VOPD_X)         \
  X(VOPD_Y) X(DS) X(FLAT) X(GLOBAL) X(SCRATCH) X(MUBUF) X(MTBUF) X(MIMG) X(VINTERP) X(LDSDIR) X(EXP)
#define RDNA3_FIELDS(X)                                                                                                \
  X(addr) X(attr) X(data) X(data0) X(data1) X(saddr) X(sbase) X(sdata) X(sdst) X(simm16) X(soffset) X(src0) X(src1)    \
  X(src2) X(srcx0) X(srcy0) X(srsrc) X(ssamp) X(ssrc0) X(ssrc1) X(tgt) X(vaddr) X(vdata) X(vdst) X(vdstx) X(vdsty)     \
  X(vsrc0) X(vsrc1) X(vsrc2) X(vsrc3) X(vsrcx1) X(vsrcy1)
#define RDNA3_KINDS(X)                                                                                                 \
  X(attr) X(clause) X(delay) X(hwreg) X(label) X(sdst) X(sdst_null) X(sendmsg) X(sendmsg_rtn) X(simm16) X(simm8)       \
  X(smem_offset) X(src) X(src_vgpr) X(src_vgpr_or_inline) X(sreg) X(sreg_m0_inl) X(ssrc) X(ssrc_lanesel) X(tgt)        \
  X(version) X(vgpr) X(wait_event) X(waitcnt) X(waitcnt_depctr) X(exec)
#define RDNA3_TYPES(X)                                                                                                 \
  X(b8) X(b16) X(b32) X(b64) X(b96) X(b128) X(b256) X(b512) X(u16) X(i16) X(u24) X(i24) X(u32) X(i32) X(u64) X(i64)    \
  X(f16) X(bf16) X(f32) X(f64) X(m64) X(buf) X(img) X(samp) X(rsrc_scalar) X(rsrc_scratch) X(rsrc_typed) X(pk2_b16)    \
  X(pk2_bf16) X(pk2_f16) X(pk2_i16) X(pk2_u16) X(pk2_u8) X(pk4_b8) X(pk4_iu8) X(pk4_u8) X(pk8_iu4) X(pk8_u4)           \
  X(wmma_ab_bf16) X(wmma_ab_f16) X(wmma_ab_iu4) X(wmma_ab_iu8) X(wmma_dc_bf16) X(wmma_dc_f16) X(wmma_dc_f32)           \
  X(wmma_dc_i32)
/* clang-format on */

#define X(n) RDNA3_##n,
enum rdna3_format { RDNA3_FORMATS(X) RDNA3_FORMAT_COUNT };
#undef X
#define X(n) RDNA3_FIELD_##n,
enum rdna3_field { RDNA3_FIELDS(X) };
#undef X
#define X(n) RDNA3_KIND_##n,
enum rdna3_kind { RDNA3_KINDS(X) };
#undef X
#define X(n) RDNA3_TYPE_##n,
enum rdna3_type { RDNA3_TYPES(X) };
#undef X

/* One enumerator per table row: RDNA3_VOP2_v_add_f32, RDNA3_GLOBAL_global_load_b32, RDNA3_VOPD_X_v_dual_mul_f32 ... */
#define OP(format, opcode, name, operands, flags, bytes) RDNA3_##format##_##name,
enum rdna3_row {
#include "rdna3.def"
  RDNA3_ROW_COUNT
};
#undef OP

enum {
  F_COMPUTE = 1,
  F_R_SCC = 2,
  F_W_SCC = 4,
  F_R_VCC = 8,
  F_W_VCC = 16,
  F_R_EXEC = 32,
  F_W_EXEC = 64,
  F_R_M0 = 128,
  F_R_MODE = 256,
  F_NO_E64 = 512,
  F_LITERAL = 1 << 10,
  F_MIDDLE = 1 << 11,
  F_BRANCH = 1 << 12,
  F_CONDITIONAL = 1 << 13,
  F_CONTROL = 1 << 14,
  F_TRANS = 1 << 15,
  F_MATRIX = 1 << 16,
  F_ATOMIC = 1 << 17,
  F_CMPSWAP = 1 << 18,
  F_LOADS = 1 << 19,
  F_STORES = 1 << 20,
  F_TWO_ADDRESSES = 1 << 21,
  F_STRIDE64 = 1 << 22,
  F_BY_LANE = 1 << 23,
  F_BY_WAVE = 1 << 24,
  F_INTO_LDS = 1 << 25,
};

/* The number of the source that a field of a vector instruction holds: 0 to 2; 3 for other fields. */
static inline unsigned rdna3_source_number(uint8_t field) {
  switch (field) {
  case RDNA3_FIELD_src0: return 0;
  case RDNA3_FIELD_vsrc1:
  case RDNA3_FIELD_src1: return 1;
  case RDNA3_FIELD_src2: return 2;
  default: return 3;
  }
}

struct rdna3_operand {
  uint8_t field, kind, type; /* enum rdna3_field, rdna3_kind, rdna3_type */
  uint16_t bits;             /* 0 terminates the list */
};
enum { RDNA3_MAX_OPERANDS = 6 };
struct rdna3_op {
  const char *name;
  uint16_t opcode;
  uint8_t format, bytes; /* bytes: per lane at one address; 0 if it accesses no counted memory */
  uint32_t flags;
  struct rdna3_operand operand[RDNA3_MAX_OPERANDS];
};
extern const struct rdna3_op rdna3_ops[RDNA3_ROW_COUNT];
extern const char *const rdna3_format_names[RDNA3_FORMAT_COUNT];

/* The modifiers that an encoding of a vector instruction accepts. rdna3_modifiers.def explains the masks. */
struct rdna3_modifiers {
  uint16_t takes, prints;
  uint8_t op_sel, dpp;
  bool known;
};
const struct rdna3_modifiers *rdna3_modifiers(unsigned format, unsigned opcode);

/* ---- a decoded instruction ---- */

/* Numbers of scalar operands (9-bit source numbers; 256 and up are VGPRs). */
enum {
  RDNA3_VCC = 106,
  RDNA3_TTMP0 = 108,
  RDNA3_NULL = 124,
  RDNA3_M0 = 125,
  RDNA3_EXEC = 126,
  RDNA3_INT0 = 128,
  RDNA3_DPP8 = 233,
  RDNA3_DPP8_FI = 234,
  RDNA3_SHARED_BASE = 235,
  RDNA3_SHARED_LIMIT,
  RDNA3_PRIVATE_BASE,
  RDNA3_PRIVATE_LIMIT,
  RDNA3_FLOAT0 = 240,
  RDNA3_INV2PI = 248,
  RDNA3_DPP16 = 250,
  RDNA3_SCC = 253,
  RDNA3_POPS_WAVE = 239, /* this and the next three can be encoded but are not executed */
  RDNA3_VCCZ = 251,
  RDNA3_EXECZ = 252,
  RDNA3_LDS_DIRECT = 254,
  RDNA3_LITERAL = 255,
  RDNA3_VGPR0 = 256,
  RDNA3_VGPRS = 256, /* number of VGPRs */
};

struct rdna3_inst {
  uint64_t pc;
  uint32_t dw[5];             /* the words, of which size bytes are valid (4 for an invalid instruction) */
  uint32_t literal;           /* valid when has_literal */
  const struct rdna3_op *op;  /* NULL if it is not a valid instruction */
  const struct rdna3_op *opy; /* the Y half of a VOPD pair; then op is the X half */
  uint8_t size;               /* in bytes */
  uint8_t format;             /* as encoded: RDNA3_VOP3 or RDNA3_VOP3SD for the 64-bit form of a VOP1, VOP2 or VOPC row;
                                 RDNA3_VOPD_X for a pair */
  uint16_t opcode;            /* as encoded */
  /* The operands of this encoding (e64 forms differ from the row's list), and the number of each: a 9-bit source number
   * for kinds src* and ssrc*, a 7-bit scalar number for s*, the plain VGPR number for kind vgpr, the raw immediate for
   * simm* and similar kinds. sbase and srsrc are already scaled to the number of the first SGPR. For a pair, X's
   * operands come before Y's. */
  uint8_t operands, operands_x;
  struct rdna3_operand operand[RDNA3_MAX_OPERANDS];
  uint16_t arg[RDNA3_MAX_OPERANDS];
  bool has_literal;
  bool wave64; /* decoded for wave64: lane masks are register pairs, a matrix result has half as many registers */
  /* VOP modifiers: bit i applies to source i; opsel bit 3 applies to the destination. In 32-bit encodings of 16-bit
   * operands, opsel holds the "high half" bits of the register numbers. */
  uint8_t abs, neg, opsel, opsel_hi, neg_hi, omod;
  bool clamp;
  uint8_t dpp; /* 0, 8 or 16; if not 0, the argument of src0 is the VGPR of the extra dword */
  bool fi, bound_ctrl;
  uint8_t row_mask, bank_mask;
  uint32_t dpp_ctrl; /* dpp 16: 9 bits; dpp 8: eight 3-bit selectors, 24 bits */
  /* memory modifiers; saddr and soffset are operands */
  int32_t offset; /* SMEM 21-bit and FLAT/GLOBAL/SCRATCH 13-bit signed (FLAT 12-bit unsigned), MUBUF/MTBUF 12-bit
                     unsigned, DS offset1:offset0 */
  uint8_t offset0, offset1; /* DS */
  bool glc, slc, dlc, gds, sve, idxen, offen, tfe;
  uint8_t tbuffer_format, nsa, dmask, dim;
  uint8_t wait_exp; /* VINTERP */
  /* Set if fields of operands that the instruction does not have are not zero. Hardware ignores these fields; LLVM's
   * assembler writes zeros, and its disassembler rejects other values. */
  bool ignored;
};

/* Decodes one instruction of a wave32 or wave64 program from n words at dw, as hardware does. Returns its size in
 * bytes, or 0 if there is no valid instruction (then out->op is NULL, size is 4 and dw[0] is kept). Never reads past n
 * words. Every register of an operand is inside its register file. */
unsigned rdna3_decode_wave(const uint32_t *dw, size_t n, uint64_t pc, bool wave64, struct rdna3_inst *out);
/* Decodes as LLVM's disassembler does: an instruction with ignored fields that are not zero is invalid. */
unsigned rdna3_decode_listing(const uint32_t *dw, size_t n, uint64_t pc, bool wave64, struct rdna3_inst *out);
static inline unsigned rdna3_decode(const uint32_t *dw, size_t n, uint64_t pc, struct rdna3_inst *out) {
  return rdna3_decode_wave(dw, n, pc, false, out);
}
/* Writes the words of a row's plain form: the first registers, no modifiers. Returns the size in bytes, or 0 for rows
 * of formats that are not decoded. */
unsigned rdna3_example(enum rdna3_row row, uint32_t dw[4]);
/* Writes the instruction's text as LLVM prints it, or ".long 0x..." if op is NULL (rdna3_print.c). Returns the
 * length. */
int rdna3_print(const struct rdna3_inst *inst, char *buf, size_t cap);
#endif
