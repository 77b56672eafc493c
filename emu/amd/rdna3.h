/* RDNA3 (gfx1100) in the emulator: the instruction table's types, a decoded instruction, a wave, and the
 * micro-operation that executes.
 *
 * bytes --rdna3_decode--> struct rdna3_inst --rdna3_build--> struct rdna3_uop --fn(w, u)--> the next micro-operation
 *
 * A micro-operation's function does the whole instruction for 32 lanes and returns its successor: u + 1, or for a taken
 * branch what rdna3_jump gives. It returns NULL to stop the wave, after setting w->state (rdna3_fault does that).
 *
 * Sources: AMD "RDNA3 Shader Instruction Set Architecture" document; LLVM AMDGPUUsage. */
#ifndef DOORBELL_EMU_AMD_RDNA3_H
#define DOORBELL_EMU_AMD_RDNA3_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../simd_level.h"
#include "shader.h"

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

/* One enumerator a table row: RDNA3_VOP2_v_add_f32, RDNA3_GLOBAL_global_load_b32, RDNA3_VOPD_X_v_dual_mul_f32 ... */
#define OP(format, opcode, name, operands, flags) RDNA3_##format##_##name,
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
  F_LITERAL = 1024,
};

struct rdna3_operand {
  uint8_t field, kind, type; /* enum rdna3_field, rdna3_kind, rdna3_type */
  uint16_t bits;             /* 0 ends the list */
};
enum { RDNA3_MAX_OPERANDS = 6 };
struct rdna3_op {
  const char *name;
  uint16_t opcode, flags;
  uint8_t format;
  struct rdna3_operand operand[RDNA3_MAX_OPERANDS];
};
extern const struct rdna3_op rdna3_ops[RDNA3_ROW_COUNT];
extern const char *const rdna3_format_names[RDNA3_FORMAT_COUNT];

/* Modifiers that an encoding of a vector instruction takes; the masks are explained in rdna3_modifiers.def. */
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
  RDNA3_POPS_WAVE = 239, /* this and the next three can be named but are not executed */
  RDNA3_VCCZ = 251,
  RDNA3_EXECZ = 252,
  RDNA3_LDS_DIRECT = 254,
  RDNA3_LITERAL = 255,
  RDNA3_VGPR0 = 256,
};

struct rdna3_inst {
  uint64_t pc;
  uint32_t dw[5];             /* the words, size bytes of them valid (4 for an invalid instruction) */
  uint32_t literal;           /* valid when has_literal */
  const struct rdna3_op *op;  /* NULL: not a valid instruction */
  const struct rdna3_op *opy; /* the Y half of a VOPD pair; op is then the X half */
  uint8_t size;               /* bytes */
  uint8_t format;             /* as encoded: RDNA3_VOP3 or RDNA3_VOP3SD for the 64-bit form of a VOP1, VOP2 or VOPC row;
                                 RDNA3_VOPD_X for a pair */
  uint16_t opcode;            /* as encoded */
  /* The operands as this encoding has them (e64 forms differ from the row's list), and each one's number: a 9-bit
   * source number for kinds src*, ssrc*, a 7-bit scalar number for s*, the plain VGPR number for kind vgpr, the raw
   * immediate for simm*-like kinds. sbase and srsrc are already scaled to the first SGPR's number. For a pair: X's
   * operands first, then Y's. */
  uint8_t operands, operands_x;
  struct rdna3_operand operand[RDNA3_MAX_OPERANDS];
  uint16_t arg[RDNA3_MAX_OPERANDS];
  bool has_literal;
  bool wave64; /* decoded for wave64: lane masks are pairs, a matrix result has half the registers */
  /* VOP modifiers: bit i belongs to source i; opsel bit 3 to the destination. In 32-bit encodings of 16-bit operands,
   * opsel holds the "high half" bits that sit in the register numbers. */
  uint8_t abs, neg, opsel, opsel_hi, neg_hi, omod;
  bool clamp;
  uint8_t dpp; /* 0, 8 or 16; arg of src0 is then the VGPR of the extra dword */
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
  /* Fields of operands that the instruction does not have are not zero. Hardware ignores them; LLVM's assembler never
   * writes them, and its disassembler refuses them. */
  bool ignored;
};

/* Decodes one instruction of a wave32 or wave64 program from n words at dw, as hardware does. Returns its size in
 * bytes, or 0 when there is none (out->op is NULL then, size 4, dw[0] kept); never reads past n words. Every register
 * an operand names lies inside its file. */
unsigned rdna3_decode_wave(const uint32_t *dw, size_t n, uint64_t pc, bool wave64, struct rdna3_inst *out);
/* As LLVM's disassembler does: with fields that hardware ignores set there is no instruction. */
unsigned rdna3_decode_listing(const uint32_t *dw, size_t n, uint64_t pc, bool wave64, struct rdna3_inst *out);
static inline unsigned rdna3_decode(const uint32_t *dw, size_t n, uint64_t pc, struct rdna3_inst *out) {
  return rdna3_decode_wave(dw, n, pc, false, out);
}
/* The words of a row's plain form: first registers, no modifiers. Returns the size in bytes; 0 for rows of formats that
 * do not decode. */
unsigned rdna3_example(enum rdna3_row row, uint32_t dw[4]);
/* LLVM's text for it (rdna3_print.c); ".long 0x..." when op is NULL. Returns the length. */
int rdna3_print(const struct rdna3_inst *inst, char *buf, size_t cap);

/* ---- a wave ---- */

enum {
  RDNA3_LANES = 32, /* of a row; wave64 runs as two halves */
  RDNA3_VGPRS = 256,
  RDNA3_TMP = 256, /* rows 256.. are the emulator's own: source i expanded at 256 + 2 * i, a result before its modifiers
                      at 262 */
  RDNA3_ROWS = 265,
  RDNA3_SINK = 128, /* scalar writes to null land here */
  RDNA3_SGPRS = 256,
  RDNA3_RECENT = 8,
};
enum rdna3_state { RDNA3_RUNNING, RDNA3_BARRIER, RDNA3_ENDED, RDNA3_FAULTED, RDNA3_YIELDED };

struct rdna3_uop;
struct rdna3_trace;
struct rdna3_wave;
typedef const struct rdna3_uop *rdna3_exec_fn(struct rdna3_wave *w, const struct rdna3_uop *u);

struct rdna3_wave {
  /* Half 0's (or wave32's) registers at file, half 1's at file + RDNA3_ROWS * RDNA3_LANES. While a vector or memory
   * operation runs, v is its half's file, *lanes its 32 active lanes and half its number; operations never look at the
   * other half. Row r is v + r * RDNA3_LANES, 128-byte aligned. */
  uint32_t *v;
  const uint32_t *lanes;
  uint32_t half;
  uint32_t mode; /* MODE register */
  bool wave64;
  enum rdna3_state state;
  int64_t budget;               /* instructions left of the time slice; only taken branches look */
  uint64_t executed;            /* instructions, up to run */
  const struct rdna3_uop *run;  /* first of the straight run not yet counted in executed */
  const struct rdna3_uop *next; /* where a stopped wave goes on */
  uint32_t
      s[RDNA3_SGPRS]; /* by scalar number: SGPRs 0..105, VCC, TTMPs, null (always 0), M0, EXEC; SCC (0 or 1) at 253 */
  uint32_t *file;
  uint32_t dpp_lanes;  /* what lanes points to while a DPP operation runs */
  uint32_t fp_control; /* host floating-point control word for MODE's f32 field */

  struct vm *vm;
  struct vm_range load, store, scalar, scratch; /* last translations, for vm_translate */
  struct vm_range recent[RDNA3_RECENT];         /* others looked up lately */
  unsigned recent_next;
  uint8_t *lds;             /* the workgroup's */
  uint32_t lds_size;        /* bytes allocated to it; at most 64 KiB */
  uint64_t scratch_base;    /* this wave's slot, GPU address; 0 when the dispatch has no scratch */
  uint32_t scratch_size;    /* bytes of the slot */
  uint32_t group[3], index; /* workgroup id; wave number in it */
  const struct shader_dispatch *dispatch;
  struct shader_core *core;
  struct code_cache *code;
  struct rdna3_jump_cache *jumps; /* of the core; may be NULL */
  struct shader_stats *stats;     /* memory operations add to bytes_loaded and bytes_stored */
  struct fault *fault;
  uint64_t exec, exec_before; /* where stats->detail is: EXEC, and EXEC before its last change or the last branch */
};

/* Apertures of flat addresses: the high 32 bits (KFD's defaults for SH_MEM_BASES). */
enum { RDNA3_SHARED_HI = 0x00010000, RDNA3_PRIVATE_HI = 0x00020000 };

/* ---- micro-operations ---- */

/* One instruction becomes one or more micro-operations. A source of a vector operation is always a row of 32 lanes
 * (64-bit values: this row and the next): a VGPR, a constant expanded when the code was decoded, or a temporary row
 * that a micro-operation before it filled with an expanded scalar or a modified value. So operations have no variants.
 * In wave64 a micro-operation before each half's sequence sets v, lanes and half. */
struct rdna3_uop {
  rdna3_exec_fn *fn;
  const struct rdna3_inst *inst;
  int32_t dst;    /* vector: byte offset of the destination's first row in the register file; scalar: number in s */
  int32_t src[3]; /* byte offsets: from w->v (scalar operands: from w->s), or from this uop when its bit in constant is
                     set */
  uint8_t constant; /* bit i: src[i] is a constant */
  uint8_t sdst;     /* number in s of the lane mask it writes (VCC, an SGPR, RDNA3_SINK for none); + w->half */
  uint8_t smask;    /* number in s of the lane mask it reads; + w->half */
  uint8_t flag;     /* anything a family wants, set by its builder; so are arg and imm */
  uint32_t arg;
  union {
    const struct rdna3_uop *target; /* branches; NULL when it must be looked up by address */
    uint64_t imm;
    uint8_t byte[8];
  };
};
_Static_assert(sizeof(struct rdna3_uop) <= 64, "at most a cache line");

/* How memory formats plug in (rdna3_mem*.c). Called once per decoded instruction of format SMEM, DS, FLAT, GLOBAL,
 * SCRATCH, MUBUF, MTBUF; u->inst is set and all else zero. It fills dst, src, constant, imm... as its own functions
 * want to read them (rdna3_vgpr below is the usual way; a scalar write to RDNA3_NULL goes to RDNA3_SINK, a scalar read
 * of it is 0) and returns the function that executes one half (32 lanes: w->v, *w->lanes, which may be 0, w->half), or
 * NULL when the instruction is not supported. In wave64 every format but SMEM runs once a half. The function returns u
 * + 1, or rdna3_fault(...) on a fault: memory operations are complete when they return. */
rdna3_exec_fn *rdna3_mem_build(struct rdna3_uop *u);

/* Byte offset of VGPR n in the register file, for dst and src. */
static inline int32_t rdna3_vgpr(unsigned n) { return (int32_t)(n * RDNA3_LANES * 4); }
/* Source row i / destination row of the half being executed. */
static inline const void *rdna3_row(const struct rdna3_wave *w, const struct rdna3_uop *u, unsigned i) {
  const char *base = u->constant >> i & 1 ? (const char *)u : (const char *)w->v;
  return __builtin_assume_aligned(base + u->src[i], 64);
}
static inline void *rdna3_dst(struct rdna3_wave *w, const struct rdna3_uop *u) {
  return __builtin_assume_aligned((char *)w->v + u->dst, 64);
}
/* The value of scalar operand number n (0..255, without literals), 32 or 64 bits. Constants have the value for 32- or
 * 64-bit integers; float constants that of f32 or f64. For builders and rare paths: execution reads w->s. */
uint32_t rdna3_scalar32(const struct rdna3_wave *w, unsigned n);
uint64_t rdna3_scalar64(const struct rdna3_wave *w, unsigned n);

/* Stops the wave: fills *w->fault (kind, pc, address, access, lane + 32 * half or -1, workgroup, wave, text = the
 * formatted message + instruction bytes and disassembly) and returns NULL, for the operation to return. */
const struct rdna3_uop *rdna3_fault(struct rdna3_wave *w, const struct rdna3_uop *u, enum fault_kind kind, int lane,
                                    uint64_t address, unsigned access, const char *fmt, ...)
    __attribute__((format(printf, 7, 8)));

/* For families of functions: lists of { enum rdna3_row, function }, closed by row RDNA3_ROW_COUNT. RDNA3_CLAMPED + row:
 * the function for an integer operation whose clamp bit is set. */
enum { RDNA3_CLAMPED = 0x8000 };
struct rdna3_handler {
  uint16_t row;
  rdna3_exec_fn *fn;
};
#endif
