/* RDNA3 instructions as text, in the format of LLVM 19's disassembler for gfx1100.
 *
 * Printing follows the operand list of the decoded instruction: each kind of operand has one format; the format's
 * modifiers follow. Sources: LLVM "AMDGPU assembly syntax" (Syntax of gfx11 instructions, operands and modifiers);
 * tests/emu/test_rdna3_print.c compares with LLVM. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "rdna3.h"

struct out {
  char *buf;
  size_t cap, len;
};
static void put_text(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put_text(struct out *o, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(o->len < o->cap ? o->buf + o->len : NULL, o->len < o->cap ? o->cap - o->len : 0, fmt, ap);
  va_end(ap);
  if (n > 0) o->len += (size_t)n;
}

/* ---- registers and constants ---- */

static void put_vgpr(struct out *o, unsigned n, unsigned words) {
  if (words <= 1)
    put_text(o, "v%u", n);
  else
    put_text(o, "v[%u:%u]", n, n + words - 1);
}

static void put_scalar(struct out *o, unsigned n, unsigned words) {
  static const char *const halves[] = {"vcc", "exec"};
  if (n < RDNA3_VCC) {
    words <= 1 ? put_text(o, "s%u", n) : put_text(o, "s[%u:%u]", n, n + words - 1);
  } else if (n < RDNA3_TTMP0 || n >= RDNA3_EXEC) {
    const char *name = halves[n >= RDNA3_EXEC];
    words <= 1 ? put_text(o, "%s_%s", name, n & 1 ? "hi" : "lo") : put_text(o, "%s", name);
  } else if (n < RDNA3_NULL) {
    n -= RDNA3_TTMP0;
    words <= 1 ? put_text(o, "ttmp%u", n) : put_text(o, "ttmp[%u:%u]", n, n + words - 1);
  } else {
    put_text(o, n == RDNA3_NULL ? "null" : "m0");
  }
}

static void put_constant(struct out *o, unsigned n, unsigned bits) {
  static const char *const floats[] = {"0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0"};
  static const char *const apertures[] = {"src_shared_base", "src_shared_limit", "src_private_base",
                                          "src_private_limit"};
  if (n <= 192)
    put_text(o, "%u", n - RDNA3_INT0);
  else if (n <= 208)
    put_text(o, "-%u", n - 192);
  else if (n >= RDNA3_SHARED_BASE && n <= RDNA3_PRIVATE_LIMIT)
    put_text(o, "%s", apertures[n - RDNA3_SHARED_BASE]);
  else if (n >= RDNA3_FLOAT0 && n < RDNA3_INV2PI)
    put_text(o, "%s", floats[n - RDNA3_FLOAT0]);
  else if (n == RDNA3_INV2PI)
    put_text(o, bits == 64 ? "0.15915494309189532" : "0.15915494");
  else
    put_text(o, "src_%s",
             n == RDNA3_SCC         ? "scc"
             : n == RDNA3_VCCZ      ? "vccz"
             : n == RDNA3_EXECZ     ? "execz"
             : n == RDNA3_POPS_WAVE ? "pops_exiting_wave_id"
                                    : "lds_direct");
}

/* For 16-bit integers a float constant prints as the bits that it supplies. */
static bool put_bits16(struct out *o, unsigned n, unsigned type) {
  static const uint16_t halves[] = {0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118};
  bool integer = type == RDNA3_TYPE_u16 || type == RDNA3_TYPE_i16 || type == RDNA3_TYPE_b16;
  if (!integer || n < RDNA3_FLOAT0 || n > RDNA3_INV2PI) return false;
  put_text(o, "0x%x", halves[n - RDNA3_FLOAT0]);
  return true;
}

/* Mixed precision: packed encoding, but neg and abs apply to whole sources. */
static bool is_mix(const struct rdna3_inst *in) {
  return in->op >= &rdna3_ops[RDNA3_VOP3P_v_fma_mix_f32] && in->op <= &rdna3_ops[RDNA3_VOP3P_v_fma_mixhi_f16];
}

/* A literal that equals an inline constant prints as that constant. For 16-bit integers the comparison uses all 32
 * bits. */
static void put_literal_value(struct out *o, uint32_t value, unsigned type, unsigned bits) {
  static const uint32_t f64[] = {0x3fe00000, 0xbfe00000, 0x3ff00000, 0xbff00000,
                                 0x40000000, 0xc0000000, 0x40100000, 0xc0100000};
  static const uint32_t f32[] = {0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000,
                                 0xc0000000, 0x40800000, 0xc0800000, 0x3e22f983};
  static const uint32_t f16[] = {0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118};
  static const uint32_t bf16[] = {0x3f00, 0xbf00, 0x3f80, 0xbf80, 0x4000, 0xc000, 0x4080, 0xc080, 0x3e22};
  const uint32_t *floats = f32;
  unsigned n = 9;
  uint32_t match = value;
  int64_t number = (int32_t)value;
  switch (type) {
  case RDNA3_TYPE_f64:
    floats = f64, n = 8;
    number = value ? INT32_MAX : 0;
    break;
  case RDNA3_TYPE_f16:
    floats = f16, match = value &= 0xffff;
    number = (int16_t)value;
    break;
  case RDNA3_TYPE_bf16:
    floats = bf16, number = (int16_t)value;
    if ((value & 0xffff) >= 0x3e22) match = value & 0xffff;
    break;
  case RDNA3_TYPE_pk2_f16:
  case RDNA3_TYPE_pk2_b16: floats = f16; break;
  case RDNA3_TYPE_pk2_bf16: floats = bf16; break;
  default:
    if (bits == 64) n = 0, number = value;
  }
  if (number >= -16 && number <= 64) {
    put_text(o, "%d", (int)number);
    return;
  }
  for (unsigned i = 0; i < n; i++)
    if (match == floats[i]) {
      put_constant(o, RDNA3_FLOAT0 + i, 32);
      return;
    }
  put_text(o, "0x%" PRIx32, bits == 16 && type != RDNA3_TYPE_bf16 ? value & 0xffff : value);
}
/* The third source of these is a shift amount in 32 bits. */
static bool shift_amount(const struct rdna3_inst *in) {
  return in->op == &rdna3_ops[RDNA3_VOP3_v_alignbit_b32] || in->op == &rdna3_ops[RDNA3_VOP3_v_alignbyte_b32];
}

static void put_literal(struct out *o, const struct rdna3_inst *in, const struct rdna3_operand *op) {
  if (is_mix(in)) {
    put_literal_value(o, in->literal, RDNA3_TYPE_f16, 16);
    return;
  }
  /* Constants of a matrix print as f64 in wave32, as f32 in wave64. */
  if (op->type >= RDNA3_TYPE_wmma_dc_bf16) {
    put_literal_value(o, in->literal, in->wave64 ? RDNA3_TYPE_b32 : RDNA3_TYPE_f64, in->wave64 ? 32 : 64);
    return;
  }
  /* Next to a mandatory literal, a half of a pair prints the literal as 32 bits. */
  if (in->opy && (in->op->flags | in->opy->flags) & F_LITERAL) {
    put_literal_value(o, in->literal, RDNA3_TYPE_b32, 32);
    return;
  }
  bool narrow = op->bits == 16 && in->format >= RDNA3_VOP2 && !shift_amount(in);
  put_literal_value(o, in->literal, narrow || op->bits != 16 ? op->type : RDNA3_TYPE_b32,
                    narrow           ? 16
                    : op->bits == 16 ? 32
                                     : op->bits);
}

/* Prints a 9-bit source number. */
static void put_source(struct out *o, const struct rdna3_inst *in, unsigned n, const struct rdna3_operand *op) {
  unsigned words = (op->bits + 31u) / 32;
  if (n >= RDNA3_VGPR0)
    put_vgpr(o, n - RDNA3_VGPR0, words);
  else if (n == RDNA3_LITERAL)
    put_literal(o, in, op);
  else if (n < RDNA3_INT0)
    put_scalar(o, n, op->type == RDNA3_TYPE_m64 ? 1u + in->wave64 : words);
  else if (in->format < RDNA3_VOP2 || shift_amount(in) || !put_bits16(o, n, op->type))
    put_constant(o, n, op->type >= RDNA3_TYPE_wmma_dc_bf16 && !in->wave64 ? 64 : op->bits);
}

/* ---- immediates with a special syntax ---- */

static void put_waitcnt(struct out *o, unsigned imm) {
  unsigned vm = imm >> 10 & 63, exp = imm & 7, lgkm = imm >> 4 & 63;
  bool all = vm == 63 && exp == 7 && lgkm == 63;
  const char *space = "";
  if (all || vm != 63) put_text(o, "vmcnt(%u)", vm), space = " ";
  if (all || exp != 7) put_text(o, "%sexpcnt(%u)", space, exp), space = " ";
  if (all || lgkm != 63) put_text(o, "%slgkmcnt(%u)", space, lgkm);
}

static void put_depctr(struct out *o, unsigned imm) {
  static const struct {
    const char *name;
    uint8_t low, width;
  } fields[] = {{"hold_cnt", 7, 1}, {"sa_sdst", 0, 1}, {"va_vdst", 12, 4}, {"va_sdst", 9, 3},
                {"va_ssrc", 8, 1},  {"va_vcc", 1, 1},  {"vm_vsrc", 2, 3}};
  enum { N = sizeof fields / sizeof *fields };
  unsigned known = 0;
  bool set = false;
  for (unsigned i = 0; i < N; i++) {
    unsigned max = (1u << fields[i].width) - 1;
    known |= max << fields[i].low;
    set |= (imm >> fields[i].low & max) != max;
  }
  if (imm & ~known) {
    put_text(o, "0x%x", imm);
    return;
  }
  const char *space = "";
  for (unsigned i = 0; i < N; i++) {
    unsigned max = (1u << fields[i].width) - 1, value = imm >> fields[i].low & max;
    if (set && value == max) continue;
    put_text(o, "%sdepctr_%s(%u)", space, fields[i].name, value);
    space = " ";
  }
}

static void put_delay_alu(struct out *o, unsigned imm) {
  static const char *const ids[16] = {
      "NO_DEP",        "VALU_DEP_1",    "VALU_DEP_2",        "VALU_DEP_3",   "VALU_DEP_4",   "TRANS32_DEP_1",
      "TRANS32_DEP_2", "TRANS32_DEP_3", "FMA_ACCUM_CYCLE_1", "SALU_CYCLE_1", "SALU_CYCLE_2", "SALU_CYCLE_3"};
  static const char *const skips[8] = {"SAME", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4"};
  unsigned id0 = imm & 15, skip = imm >> 4 & 7, id1 = imm >> 7 & 15;
  const char *bar = "";
  if (id0) put_text(o, "instid0(%s)", ids[id0] ? ids[id0] : "/* invalid instid value */"), bar = " | ";
  if (skip) put_text(o, "%sinstskip(%s)", bar, skips[skip] ? skips[skip] : "/* invalid instskip value */"), bar = " | ";
  if (id1) put_text(o, "%sinstid1(%s)", bar, ids[id1] ? ids[id1] : "/* invalid instid value */"), bar = " | ";
  if (!*bar) put_text(o, "0");
}

static void put_sendmsg(struct out *o, unsigned imm) {
  static const char *const low[] = {
      [1] = "INTERRUPT", "HS_TESSFACTOR", "DEALLOC_VGPRS", NULL, "STALL_WAVE_GEN", "HALT_WAVES", NULL, NULL,
      "GS_ALLOC_REQ"};
  static const char *const high[] = {"GET_DOORBELL", "GET_DDID", "GET_TMA",      "GET_REALTIME",
                                     "SAVE_WAVE",    "GET_TBA",  "GET_TBA_TO_PC"};
  unsigned id = imm & 255;
  const char *name = id < 10 ? low[id] : id >= 128 && id < 135 ? high[id - 128] : NULL;
  if (name)
    put_text(o, "sendmsg(MSG_%s%s)", id >= 128 ? "RTN_" : "", name);
  else if (imm < 256)
    put_text(o, "sendmsg(%u, 0, 0)", imm);
  else
    put_text(o, "%u", imm);
}

static void put_hwreg(struct out *o, unsigned imm) {
  static const char *const names[64] = {[1] = "MODE",
                                        [2] = "STATUS",
                                        [3] = "TRAPSTS",
                                        [5] = "GPR_ALLOC",
                                        [6] = "LDS_ALLOC",
                                        [7] = "IB_STS",
                                        [15] = "SH_MEM_BASES",
                                        [18] = "PERF_SNAPSHOT_PC_LO",
                                        [19] = "PERF_SNAPSHOT_PC_HI",
                                        [20] = "FLAT_SCR_LO",
                                        [21] = "FLAT_SCR_HI",
                                        [23] = "HW_ID1",
                                        [24] = "HW_ID2",
                                        [27] = "PERF_SNAPSHOT_DATA",
                                        [29] = "SHADER_CYCLES"};
  unsigned id = imm & 63, offset = imm >> 6 & 31, size = (imm >> 11 & 31) + 1;
  names[id] ? put_text(o, "hwreg(HW_REG_%s", names[id]) : put_text(o, "hwreg(%u", id);
  if (offset != 0 || size != 32) put_text(o, ", %u, %u", offset, size);
  put_text(o, ")");
}

static void put_swizzle(struct out *o, unsigned imm) {
  if (imm == 0) return;
  put_text(o, " offset:");
  if (imm & 0x8000 && imm < 0x8100) {
    put_text(o, "swizzle(QUAD_PERM,%u,%u,%u,%u)", imm & 3, imm >> 2 & 3, imm >> 4 & 3, imm >> 6 & 3);
  } else if (imm & 0x8000) {
    put_text(o, "%u", imm);
  } else {
    unsigned and_mask = imm & 31, or_mask = imm >> 5 & 31, xor_mask = imm >> 10 & 31;
    if (and_mask == 31 && or_mask == 0 && xor_mask && !(xor_mask & (xor_mask - 1))) {
      put_text(o, "swizzle(SWAP,%u)", xor_mask);
    } else if (and_mask == 31 && or_mask == 0 && xor_mask && !((xor_mask + 1) & xor_mask)) {
      put_text(o, "swizzle(REVERSE,%u)", xor_mask + 1);
    } else {
      unsigned group = 32 - and_mask;
      if (group > 1 && !(group & (group - 1)) && or_mask < group && xor_mask == 0) {
        put_text(o, "swizzle(BROADCAST,%u,%u)", group, or_mask);
      } else {
        char mask[6];
        for (int b = 4; b >= 0; b--) {
          unsigned probe0 = ((0 & and_mask) | or_mask) ^ xor_mask, probe1 = ((31 & and_mask) | or_mask) ^ xor_mask;
          mask[4 - b] = (probe0 >> b & 1) ? (probe1 >> b & 1 ? '1' : 'i') : (probe1 >> b & 1 ? 'p' : '0');
        }
        mask[5] = 0;
        put_text(o, "swizzle(BITMASK_PERM,\"%s\")", mask);
      }
    }
  }
}

/* ---- modifiers ---- */

/* The few instructions whose half registers LLVM 19 prints. */
static bool true16(const struct rdna3_inst *in) {
  ptrdiff_t row = in->op - rdna3_ops;
  return row == RDNA3_VOP1_v_mov_b16;
}
static const char *half_suffix(const struct rdna3_inst *in, unsigned i) {
  unsigned n = rdna3_source_number(in->operand[i].field);
  if (!true16(in)) return "";
  return in->opsel >> (n < 3 ? n : 3) & 1 ? ".h" : ".l";
}

static bool is_integer(unsigned type) {
  return type == RDNA3_TYPE_i16 || type == RDNA3_TYPE_u16 || type == RDNA3_TYPE_b16 || type == RDNA3_TYPE_i32 ||
         type == RDNA3_TYPE_u32;
}

static void put_modified_source(struct out *o, const struct rdna3_inst *in, unsigned i) {
  unsigned n = rdna3_source_number(in->operand[i].field), code = in->arg[i];
  bool packed = in->format == RDNA3_VOP3P;
  unsigned negs = in->neg, abss = in->abs;
  bool sign = false;
  if (in->format == RDNA3_VOP3 || in->format == RDNA3_VOP3SD) {
    const struct rdna3_modifiers *m = rdna3_modifiers(in->format, in->opcode);
    /* For integer sources the neg bit means sign extension, which the plain encoding does not print. */
    bool integer = (in->op == &rdna3_ops[RDNA3_VOP3_v_cvt_pk_u8_f32] && n > 0) ||
                   (in->op == &rdna3_ops[RDNA3_VOP3_v_trig_preop_f64] && n == 1) ||
                   in->operand[i].type == RDNA3_TYPE_i32;
    if (n < 3 && negs >> n & 1 && (m->prints >> 10 >> n & 1 ? integer : in->dpp)) sign = true;
    negs &= m->prints >> 10, abss &= m->prints;
  }
  if (packed && is_mix(in)) abss = in->neg_hi, packed = false;
  bool neg = n < 3 && !packed && negs >> n & 1, abs = n < 3 && !packed && abss >> n & 1;
  bool immediate = code >= RDNA3_INT0 && code < RDNA3_VGPR0 &&
                   !(code >= RDNA3_SHARED_BASE && code <= RDNA3_POPS_WAVE) &&
                   (code < RDNA3_VCCZ || code == RDNA3_LITERAL);
  if (true16(in)) abs = false;
  bool sext = sign || (neg && true16(in)), word = (neg && !abs && immediate) || sext;
  put_text(o, "%s%s", sext ? "sext(" : word ? "neg(" : neg ? "-" : "", abs ? "|" : "");
  put_source(o, in, code, &in->operand[i]);
  if (code >= RDNA3_VGPR0) put_text(o, "%s", half_suffix(in, i));
  put_text(o, "%s%s", abs ? "|" : "", word ? ")" : "");
}

static void put_bit_list(struct out *o, const char *name, unsigned value, unsigned n, unsigned unless) {
  if (value == unless) return;
  put_text(o, " %s:[", name);
  for (unsigned i = 0; i < n; i++) put_text(o, "%s%u", i ? "," : "", value >> i & 1);
  put_text(o, "]");
}

static unsigned sources(const struct rdna3_inst *in) {
  unsigned n = 0;
  for (unsigned i = 0; i < in->operands; i++) n += rdna3_source_number(in->operand[i].field) < 3;
  return n;
}

static void put_dpp(struct out *o, const struct rdna3_inst *in) {
  unsigned c = in->dpp_ctrl;
  if (in->dpp == 8) {
    put_text(o, " dpp8:[");
    for (int i = 0; i < 8; i++) put_text(o, "%s%u", i ? "," : "", c >> 3 * i & 7);
    put_text(o, "]%s", in->fi ? " fi:1" : "");
    return;
  }
  if (c <= 0xff)
    put_text(o, " quad_perm:[%u,%u,%u,%u]", c & 3, c >> 2 & 3, c >> 4 & 3, c >> 6 & 3);
  else if (c == 0x140 || c == 0x141)
    put_text(o, " row_%smirror", c & 1 ? "half_" : "");
  else {
    static const char *const names[] = {[0] = "shl", [1] = "shr", [2] = "ror", [5] = "share", [6] = "xmask"};
    put_text(o, " row_%s:%u", names[c >> 4 & 7], c & 15);
  }
  put_text(o, " row_mask:0x%x bank_mask:0x%x%s%s", in->row_mask, in->bank_mask, in->bound_ctrl ? " bound_ctrl:1" : "",
           in->fi ? " fi:1" : "");
}

static void put_vop_modifiers(struct out *o, const struct rdna3_inst *in) {
  const struct rdna3_modifiers *m = rdna3_modifiers(in->format, in->opcode);
  unsigned n = sources(in);
  if (in->format == RDNA3_VOP3P) {
    unsigned all = (1u << n) - 1;
    bool mix = is_mix(in);
    if (m->op_sel) put_bit_list(o, "op_sel", in->opsel & all, n, 0);
    if (m->op_sel) put_bit_list(o, "op_sel_hi", in->opsel_hi & all, n, mix ? 0 : all);
    if (!mix) put_bit_list(o, "neg_lo", in->neg & all, n, 0);
    if (!mix) put_bit_list(o, "neg_hi", in->neg_hi & all, n, 0);
  } else if (in->format == RDNA3_VOP3 && m->op_sel) {
    unsigned shown = in->opsel & m->prints >> 3, sel = shown & ((1u << n) - 1);
    if (m->op_sel > n) sel |= (shown >> 3 & 1) << (m->op_sel - 1);
    put_bit_list(o, "op_sel", sel, m->op_sel, 0);
  }
  if (in->clamp && m->prints & 0x80) put_text(o, " clamp");
  static const char *const omod[] = {"", " mul:2", " mul:4", " div:2"};
  put_text(o, "%s", omod[in->omod]);
  if (in->dpp) put_dpp(o, in);
}

static void put_cache_policy(struct out *o, const struct rdna3_inst *in) {
  put_text(o, "%s%s%s", in->glc ? " glc" : "", in->slc ? " slc" : "", in->dlc ? " dlc" : "");
}

/* ---- memory formats ---- */

/* Names of the unified buffer formats (RDNA3 ISA document, table of buffer formats). */
static const char *const buffer_formats[128] = {"INVALID",
                                                [2] = "8_SNORM",
                                                "8_USCALED",
                                                "8_SSCALED",
                                                "8_UINT",
                                                "8_SINT",
                                                "16_UNORM",
                                                "16_SNORM",
                                                "16_USCALED",
                                                "16_SSCALED",
                                                "16_UINT",
                                                "16_SINT",
                                                "16_FLOAT",
                                                "8_8_UNORM",
                                                "8_8_SNORM",
                                                "8_8_USCALED",
                                                "8_8_SSCALED",
                                                "8_8_UINT",
                                                "8_8_SINT",
                                                "32_UINT",
                                                "32_SINT",
                                                "32_FLOAT",
                                                "16_16_UNORM",
                                                "16_16_SNORM",
                                                "16_16_USCALED",
                                                "16_16_SSCALED",
                                                "16_16_UINT",
                                                "16_16_SINT",
                                                "16_16_FLOAT",
                                                "10_11_11_FLOAT",
                                                "11_11_10_FLOAT",
                                                "10_10_10_2_UNORM",
                                                "10_10_10_2_SNORM",
                                                "10_10_10_2_UINT",
                                                "10_10_10_2_SINT",
                                                "2_10_10_10_UNORM",
                                                "2_10_10_10_SNORM",
                                                "2_10_10_10_USCALED",
                                                "2_10_10_10_SSCALED",
                                                "2_10_10_10_UINT",
                                                "2_10_10_10_SINT",
                                                "8_8_8_8_UNORM",
                                                "8_8_8_8_SNORM",
                                                "8_8_8_8_USCALED",
                                                "8_8_8_8_SSCALED",
                                                "8_8_8_8_UINT",
                                                "8_8_8_8_SINT",
                                                "32_32_UINT",
                                                "32_32_SINT",
                                                "32_32_FLOAT",
                                                "16_16_16_16_UNORM",
                                                "16_16_16_16_SNORM",
                                                "16_16_16_16_USCALED",
                                                "16_16_16_16_SSCALED",
                                                "16_16_16_16_UINT",
                                                "16_16_16_16_SINT",
                                                "16_16_16_16_FLOAT",
                                                "32_32_32_UINT",
                                                "32_32_32_SINT",
                                                "32_32_32_FLOAT",
                                                "32_32_32_32_UINT",
                                                "32_32_32_32_SINT",
                                                "32_32_32_32_FLOAT"};

static bool two_addresses(const char *name) {
  for (; *name; name++)
    if (name[0] == '2' && name[1] == 'a' && name[2] == 'd') return true;
  return false;
}

static void put_memory_modifiers(struct out *o, const struct rdna3_inst *in) {
  switch (in->format) {
  case RDNA3_SMEM: put_text(o, "%s%s", in->glc ? " glc" : "", in->dlc ? " dlc" : ""); return;
  case RDNA3_DS:
    if (in->op == &rdna3_ops[RDNA3_DS_ds_swizzle_b32]) {
      put_swizzle(o, (unsigned)in->offset);
    } else if (two_addresses(in->op->name)) {
      if (in->offset0) put_text(o, " offset0:%u", in->offset0);
      if (in->offset1) put_text(o, " offset1:%u", in->offset1);
    } else if (in->offset) {
      put_text(o, " offset:%d", in->offset);
    }
    if (in->gds) put_text(o, " gds");
    return;
  case RDNA3_MTBUF:
  case RDNA3_MUBUF:
    if (!in->operands) return;
    if (in->format == RDNA3_MTBUF && in->tbuffer_format != 1) {
      const char *name = buffer_formats[in->tbuffer_format];
      name ? put_text(o, " format:[BUF_FMT_%s]", name) : put_text(o, " format:%u", in->tbuffer_format);
    }
    put_text(o, "%s%s", in->idxen ? " idxen" : "", in->offen ? " offen" : "");
    if (in->offset) put_text(o, " offset:%d", in->offset);
    put_cache_policy(o, in);
    if (in->tfe) put_text(o, " tfe");
    return;
  case RDNA3_FLAT:
    /* LLVM prints all 13 bits of the field. */
    if (in->dw[0] & 0x1fff) put_text(o, " offset:%u", in->dw[0] & 0x1fff);
    put_cache_policy(o, in);
    return;
  default:
    if (in->offset) put_text(o, " offset:%d", in->offset);
    put_cache_policy(o, in);
  }
}

/* SMEM's last operand: an SGPR, an immediate, or both. */
static void put_smem_offset(struct out *o, const struct rdna3_inst *in, unsigned n) {
  if (n == RDNA3_NULL && in->offset) {
    put_text(o, in->offset < 0 ? "-0x%x" : "0x%x", in->offset < 0 ? -(unsigned)in->offset : (unsigned)in->offset);
    return;
  }
  put_scalar(o, n, 1);
  if (in->offset)
    put_text(o, in->offset < 0 ? " offset:-0x%x" : " offset:0x%x",
             in->offset < 0 ? -(unsigned)in->offset : (unsigned)in->offset);
}

/* ---- one operand ---- */

static void put_version(struct out *o, unsigned imm) {
  static const char *const names[] = {[0] = "GFX7", [4] = "GFX10", [6] = "GFX11", [9] = "GFX12"};
  unsigned id = imm & 0xff;
  if (imm & 0x1f00) {
    put_text(o, "0x%x", imm);
    return;
  }
  static const char *const flags[] = {"W64", "W32", "MDP"};
  unsigned set = imm >> 13;
  put_text(o, "%.*s", set ? __builtin_popcount(set) - 1 : 0, "((");
  if (id < 10 && names[id])
    put_text(o, "UC_VERSION_%s", names[id]);
  else
    put_text(o, "%u", id);
  for (unsigned i = 0, before = 0; i < 3; i++)
    if (set >> i & 1) put_text(o, "%s|UC_VERSION_%s_BIT", before++ ? ")" : "", flags[i]);
}

/* Small counts and levels print in decimal; masks and distances in hexadecimal. */
static bool decimal(const struct rdna3_inst *in) {
  switch (in->op - rdna3_ops) {
  case RDNA3_SOPP_s_nop:
  case RDNA3_SOPP_s_setkill:
  case RDNA3_SOPP_s_sethalt:
  case RDNA3_SOPP_s_sleep:
  case RDNA3_SOPP_s_trap:
  case RDNA3_SOPP_s_denorm_mode:
  case RDNA3_SOPP_s_setprio:
  case RDNA3_SOPP_s_incperflevel:
  case RDNA3_SOPP_s_decperflevel:
  case RDNA3_SMEM_s_atc_probe:
  case RDNA3_SMEM_s_atc_probe_buffer: return true;
  default: return false;
  }
}

static bool has_operand(const struct rdna3_inst *in, uint8_t field, unsigned *arg) {
  for (unsigned i = 0; i < in->operands; i++)
    if (in->operand[i].field == field) {
      *arg = in->arg[i];
      return true;
    }
  return false;
}

static void put_operand(struct out *o, const struct rdna3_inst *in, unsigned i) {
  const struct rdna3_operand *op = &in->operand[i];
  unsigned n = in->arg[i], words = (op->bits + 31u) / 32, saddr;
  switch (op->kind) {
  case RDNA3_KIND_vgpr:
    if (op->field == RDNA3_FIELD_addr && in->format == RDNA3_SCRATCH && !in->sve) {
      put_text(o, "off");
    } else if (op->field == RDNA3_FIELD_vaddr) {
      words = (unsigned)in->idxen + in->offen;
      words ? put_vgpr(o, n, words) : put_text(o, "off");
    } else {
      if (op->field == RDNA3_FIELD_addr && in->format == RDNA3_GLOBAL && has_operand(in, RDNA3_FIELD_saddr, &saddr) &&
          saddr != RDNA3_NULL)
        words = 1;
      if (op->field == RDNA3_FIELD_vdata) words += in->tfe;
      unsigned from = rdna3_source_number(op->field);
      bool integer =
          is_integer(op->type) || (in->op == &rdna3_ops[RDNA3_VOP2_v_ldexp_f16] && op->field == RDNA3_FIELD_vsrc1);
      bool neg = from < 3 && in->neg >> from & 1, abs = from < 3 && in->abs >> from & 1 && !integer;
      put_text(o, "%s%s", !neg ? "" : integer ? "sext(" : "-", abs ? "|" : "");
      put_vgpr(o, n, words);
      put_text(o, "%s%s%s", abs ? "|" : "", half_suffix(in, i), neg && integer ? ")" : "");
    }
    return;
  case RDNA3_KIND_src:
  case RDNA3_KIND_src_vgpr:
  case RDNA3_KIND_src_vgpr_or_inline: put_modified_source(o, in, i); return;
  case RDNA3_KIND_sreg:
  case RDNA3_KIND_sdst:
  case RDNA3_KIND_sdst_null:
    if (op->field == RDNA3_FIELD_saddr && n == RDNA3_NULL)
      put_text(o, "off");
    else
      put_source(o, in, n, op);
    return;
  case RDNA3_KIND_sreg_m0_inl:
  case RDNA3_KIND_ssrc_lanesel:
  case RDNA3_KIND_ssrc: put_source(o, in, n, op); return;
  case RDNA3_KIND_smem_offset: put_smem_offset(o, in, n); return;
  case RDNA3_KIND_waitcnt: put_waitcnt(o, n); return;
  case RDNA3_KIND_waitcnt_depctr: put_depctr(o, n); return;
  case RDNA3_KIND_delay: put_delay_alu(o, n); return;
  case RDNA3_KIND_sendmsg:
  case RDNA3_KIND_sendmsg_rtn: put_sendmsg(o, n); return;
  case RDNA3_KIND_hwreg: put_hwreg(o, n); return;
  case RDNA3_KIND_label: put_text(o, "%u", n); return;
  case RDNA3_KIND_version: put_version(o, n); return;
  default: put_text(o, n <= 64 && decimal(in) ? "%u" : "0x%x", n);
  }
}

static const char *suffix(const struct rdna3_inst *in) {
  bool e32 = in->format == RDNA3_VOP1 || in->format == RDNA3_VOP2 || in->format == RDNA3_VOPC;
  bool e64 = in->format == RDNA3_VOP3 || in->format == RDNA3_VOP3SD || in->format == RDNA3_VOP3P;
  if (in->dpp) return e64 ? "_e64_dpp" : in->format == RDNA3_VOPC ? "" : "_dpp";
  if (e32) return (in->op->flags & F_NO_E64 && !true16(in)) || !in->operands ? "" : "_e32";
  return e64 && in->op->format != in->format ? "_e64" : "";
}

static void put_mandatory_literal(struct out *o, const struct rdna3_inst *in) {
  if (in->format == RDNA3_SOPK)
    put_literal_value(o, in->literal, RDNA3_TYPE_b32, 32);
  else
    put_text(o, "0x%" PRIx32, in->literal);
}

static void put_operand_list(struct out *o, const struct rdna3_inst *in, unsigned from, unsigned to,
                             const struct rdna3_op *op) {
  const char *comma = " ", *vcc = in->wave64 ? "vcc" : "vcc_lo";
  /* Masks that the 32-bit encodings do not store: destination first, source last. */
  bool e32 = in->format == RDNA3_VOP1 || in->format == RDNA3_VOP2 || in->format == RDNA3_VOPC;
  if (in->format == RDNA3_VOPC && op->flags & F_W_VCC) put_text(o, " %s", vcc), comma = ", ";
  for (unsigned i = from; i < to; i++) {
    if (in->operand[i].kind == RDNA3_KIND_exec) continue;
    put_text(o, "%s", comma);
    put_operand(o, in, i);
    comma = ", ";
    /* v_fmamk: the literal is the second factor. */
    if (op->flags & F_MIDDLE && i == from + 1) {
      put_text(o, ", ");
      put_mandatory_literal(o, in);
    }
    if (e32 && in->format == RDNA3_VOP2 && i == from && op->flags & F_W_VCC) put_text(o, ", %s", vcc);
  }
  if (op->flags & F_LITERAL && !(op->flags & F_MIDDLE)) {
    put_text(o, "%s", comma);
    put_mandatory_literal(o, in);
  }
  if (e32 && op->flags & F_R_VCC) put_text(o, "%s%s", comma, vcc);
}

/* 32-bit encodings can name high halves of registers, but LLVM 19 does not support them by default. */
static bool beyond_llvm(const struct rdna3_inst *in) {
  bool e32 = in->format == RDNA3_VOP1 || in->format == RDNA3_VOP2 || in->format == RDNA3_VOPC;
  return e32 && in->opsel && !true16(in);
}

int rdna3_print(const struct rdna3_inst *in, char *buf, size_t cap) {
  struct out o = {buf, cap, 0};
  if (cap) *buf = 0;
  if (!in->op || beyond_llvm(in)) {
    put_text(&o, ".long 0x%08" PRIx32, in->dw[0]);
    return (int)o.len;
  }
  put_text(&o, "%s%s", in->op->name, suffix(in));
  if (in->op == &rdna3_ops[RDNA3_SOPK_s_setreg_b32]) {
    put_text(&o, " ");
    put_operand(&o, in, 1);
    put_text(&o, ", ");
    put_operand(&o, in, 0);
    return (int)o.len;
  }
  put_operand_list(&o, in, 0, in->operands_x, in->op);
  if (in->opy) {
    put_text(&o, " :: %s", in->opy->name);
    put_operand_list(&o, in, in->operands_x, in->operands, in->opy);
    return (int)o.len;
  }
  switch (in->format) {
  case RDNA3_VOP1:
  case RDNA3_VOP2:
  case RDNA3_VOPC:
    if (in->dpp) put_dpp(&o, in);
    break;
  case RDNA3_VOP3:
  case RDNA3_VOP3SD:
  case RDNA3_VOP3P: put_vop_modifiers(&o, in); break;
  case RDNA3_VINTERP:
    put_text(&o, "%s", in->clamp ? " clamp" : "");
    put_bit_list(&o, "op_sel", in->opsel, 4, 0);
    put_text(&o, " wait_exp:%u", in->wait_exp);
    break;
  case RDNA3_SMEM:
  case RDNA3_DS:
  case RDNA3_FLAT:
  case RDNA3_GLOBAL:
  case RDNA3_SCRATCH:
  case RDNA3_MUBUF:
  case RDNA3_MTBUF: put_memory_modifiers(&o, in); break;
  case RDNA3_SOPP:
    if (in->op == &rdna3_ops[RDNA3_SOPP_s_endpgm] && in->dw[0] & 0xffff) put_text(&o, " %u", in->dw[0] & 0xffff);
    break;
  default: break;
  }
  return (int)o.len;
}
