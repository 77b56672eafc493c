/* Decodes instruction words to struct rdna3_inst, from rdna3.def and the field layout of each format. Source: RDNA3 ISA
 * document, chapter "Microcode Formats". */
#include <string.h>
#include "rdna3.h"

/* Row + 1, indexed by format and opcode. */
#define OP(format, opcode, name, operands, flags, bytes) [RDNA3_##format][opcode] = RDNA3_##format##_##name + 1,
static const uint16_t row_of[RDNA3_FORMAT_COUNT][1024] = {
#include "rdna3.def"
};
#undef OP

/* The position of a field in a format: lowest bit of the 64-bit word, and width. */
struct span {
  uint8_t low, width;
};
#define F(name) [RDNA3_FIELD_##name]
static const struct span layout[RDNA3_FORMAT_COUNT][RDNA3_FIELD_vsrcy1 + 1] = {
    [RDNA3_SOP2] = {F(sdst) = {16, 7}, F(ssrc1) = {8, 8}, F(ssrc0) = {0, 8}},
    [RDNA3_SOPK] = {F(sdst) = {16, 7}, F(simm16) = {0, 16}},
    [RDNA3_SOP1] = {F(sdst) = {16, 7}, F(ssrc0) = {0, 8}},
    [RDNA3_SOPC] = {F(ssrc1) = {8, 8}, F(ssrc0) = {0, 8}},
    [RDNA3_SOPP] = {F(simm16) = {0, 16}},
    [RDNA3_SMEM] = {F(sbase) = {0, 6}, F(sdata) = {6, 7}, F(soffset) = {57, 7}},
    [RDNA3_VOP2] = {F(vdst) = {17, 8}, F(vsrc1) = {9, 8}, F(src0) = {0, 9}},
    [RDNA3_VOP1] = {F(vdst) = {17, 8}, F(src0) = {0, 9}},
    [RDNA3_VOPC] = {F(vsrc1) = {9, 8}, F(src0) = {0, 9}},
    [RDNA3_VOP3] = {F(vdst) = {0, 8}, F(src0) = {32, 9}, F(src1) = {41, 9}, F(src2) = {50, 9}},
    [RDNA3_VOP3SD] = {F(vdst) = {0, 8}, F(sdst) = {8, 7}, F(src0) = {32, 9}, F(src1) = {41, 9}, F(src2) = {50, 9}},
    [RDNA3_VOP3P] = {F(vdst) = {0, 8}, F(src0) = {32, 9}, F(src1) = {41, 9}, F(src2) = {50, 9}},
    [RDNA3_VINTERP] = {F(vdst) = {0, 8}, F(src0) = {32, 9}, F(src1) = {41, 9}, F(src2) = {50, 9}},
    [RDNA3_VOPD_X] = {F(vdstx) = {56, 8}, F(srcx0) = {0, 9}, F(vsrcx1) = {9, 8}},
    [RDNA3_VOPD_Y] = {F(vdsty) = {49, 7}, F(srcy0) = {32, 9}, F(vsrcy1) = {41, 8}},
    [RDNA3_DS] = {F(addr) = {32, 8}, F(data0) = {40, 8}, F(data1) = {48, 8}, F(vdst) = {56, 8}},
    [RDNA3_FLAT] = {F(addr) = {32, 8}, F(data) = {40, 8}, F(saddr) = {48, 7}, F(vdst) = {56, 8}},
    [RDNA3_GLOBAL] = {F(addr) = {32, 8}, F(data) = {40, 8}, F(saddr) = {48, 7}, F(vdst) = {56, 8}},
    [RDNA3_SCRATCH] = {F(addr) = {32, 8}, F(data) = {40, 8}, F(saddr) = {48, 7}, F(vdst) = {56, 8}},
    [RDNA3_MUBUF] = {F(vaddr) = {32, 8}, F(vdata) = {40, 8}, F(srsrc) = {48, 5}, F(soffset) = {56, 8}},
    [RDNA3_MTBUF] = {F(vaddr) = {32, 8}, F(vdata) = {40, 8}, F(srsrc) = {48, 5}, F(soffset) = {56, 8}},
};
#undef F

static uint32_t bits(uint64_t word, unsigned low, unsigned width) {
  return (uint32_t)(word >> low & ((1ull << width) - 1));
}
static int32_t sext(uint32_t value, unsigned width) { return (int32_t)(value << (32 - width)) >> (32 - width); }

/* Finds the format by the leading bits, and the opcode in it. Returns false for patterns of no format. Image and export
 * instructions, and loads of interpolation parameters, are not for compute shaders; they have no layout here and decode
 * as invalid. */
static bool find_format(uint32_t w, enum rdna3_format *format, unsigned *opcode, unsigned *words) {
#define IS(f, low, width, n) return *format = RDNA3_##f, *opcode = bits(w, low, width), *words = n, true
  if (!(w >> 31)) {
    if (bits(w, 25, 6) == 0x3f) IS(VOP1, 9, 8, 1);
    if (bits(w, 25, 6) == 0x3e) IS(VOPC, 17, 8, 1);
    IS(VOP2, 25, 6, 1);
  }
  if (w >> 30 == 2) {
    if (bits(w, 28, 2) != 3) IS(SOP2, 23, 7, 1);
    switch (bits(w, 23, 5)) {
    case 0x1d: IS(SOP1, 8, 8, 1);
    case 0x1e: IS(SOPC, 16, 7, 1);
    case 0x1f: IS(SOPP, 16, 7, 1);
    default: IS(SOPK, 23, 5, 1);
    }
  }
  switch (w >> 26) {
  case 0x32: IS(VOPD_X, 22, 4, 2);
  case 0x33:
    if (bits(w, 24, 2) == 1 && !bits(w, 23, 1)) IS(VINTERP, 16, 7, 2);
    if (bits(w, 23, 3)) return false;
    IS(VOP3P, 16, 7, 2);
  case 0x35: IS(VOP3, 16, 10, 2);
  case 0x36: IS(DS, 18, 8, 2);
  case 0x37:
    switch (bits(w, 16, 2)) {
    case 0: IS(FLAT, 18, 7, 2);
    case 1: IS(SCRATCH, 18, 7, 2);
    case 2: IS(GLOBAL, 18, 7, 2);
    default: return false;
    }
  case 0x38: IS(MUBUF, 18, 8, 2);
  case 0x3a: IS(MTBUF, 15, 4, 2);
  case 0x3d: IS(SMEM, 18, 8, 2);
  default: return false;
  }
#undef IS
}

/* Returns the row of an opcode of the VOP3 encoding: a VOP3 row, or the VOPC, VOP2 or VOP1 row whose 64-bit form it
 * is. */
static unsigned vop3_row(unsigned opcode, enum rdna3_format *format) {
  unsigned row;
  if (opcode < 0x100)
    row = row_of[RDNA3_VOPC][opcode];
  else if (opcode < 0x180)
    row = row_of[RDNA3_VOP2][opcode - 0x100];
  else if (opcode < 0x200)
    row = row_of[RDNA3_VOP1][opcode - 0x180];
  else if ((row = row_of[RDNA3_VOP3SD][opcode]) != 0)
    *format = RDNA3_VOP3SD;
  else
    row = row_of[RDNA3_VOP3][opcode];
  if (opcode < 0x200 && row && rdna3_ops[row - 1].flags & F_NO_E64) return 0;
  if (opcode >= 0x120 && opcode <= 0x122) *format = RDNA3_VOP3SD;
  return row;
}

static void add_operand(struct rdna3_inst *in, struct rdna3_operand o, uint64_t word, enum rdna3_format f) {
  unsigned i = in->operands++;
  struct span s = layout[f][o.field];
  /* In wave64 a matrix result is spread over twice as many lanes. */
  if (in->wave64 && o.type >= RDNA3_TYPE_wmma_dc_bf16) o.bits /= 2;
  in->operand[i] = o;
  in->arg[i] = (uint16_t)bits(word, s.low, s.width);
}

/* Sets the operands of this encoding from those of the row. */
static void list_operands(struct rdna3_inst *in, const struct rdna3_op *op, uint64_t word, enum rdna3_format f) {
  static const struct rdna3_operand mask_dst = {RDNA3_FIELD_vdst, RDNA3_KIND_sreg, RDNA3_TYPE_m64, 64},
                                    exec_dst = {RDNA3_FIELD_vdst, RDNA3_KIND_exec, RDNA3_TYPE_m64, 64},
                                    carry_out = {RDNA3_FIELD_sdst, RDNA3_KIND_sreg, RDNA3_TYPE_m64, 64},
                                    mask_in = {RDNA3_FIELD_src2, RDNA3_KIND_sreg, RDNA3_TYPE_m64, 64};
  bool e64 = op->format != f;
  if (e64 && op->format == RDNA3_VOPC) add_operand(in, op->flags & F_W_EXEC ? exec_dst : mask_dst, word, f);
  bool flat = f == RDNA3_FLAT || f == RDNA3_GLOBAL;
  unsigned data = 0;
  for (unsigned i = 0; i < RDNA3_MAX_OPERANDS; i++)
    if (op->operand[i].field == RDNA3_FIELD_data) data = op->operand[i].bits;
  for (unsigned i = 0; i < RDNA3_MAX_OPERANDS && op->operand[i].bits; i++) {
    struct rdna3_operand o = op->operand[i];
    if (flat && data && o.field == RDNA3_FIELD_vdst) {
      /* Atomics return the old value if glc is set. Half of the data of a compare-and-swap is the comparison value, so
       * the result has half the size. */
      if (!bits(word, 14, 1)) continue;
      o.bits = (uint16_t)(op->flags & F_CMPSWAP ? data / 2 : data);
    }
    if (e64 && o.field == RDNA3_FIELD_vsrc1) o.field = RDNA3_FIELD_src1, o.kind = RDNA3_KIND_src;
    add_operand(in, o, word, f);
    if (e64 && f == RDNA3_VOP3SD && o.field == RDNA3_FIELD_vdst) add_operand(in, carry_out, word, f);
  }
  if (e64 && op->flags & F_R_VCC) add_operand(in, mask_in, word, f);
}

/* Register pairs start at even numbers, larger groups at multiples of four. */
static bool valid_scalar(unsigned code, unsigned words) {
  if (words > 1 && code < RDNA3_NULL && code % (words > 2 ? 4 : 2)) return false;
  if (code < RDNA3_VCC) return code + words <= RDNA3_VCC;
  if (code < RDNA3_TTMP0) return code + words <= RDNA3_TTMP0;
  if (code < RDNA3_NULL) return code + words <= RDNA3_NULL;
  if (code == RDNA3_NULL) return true;
  if (code == RDNA3_M0) return words == 1;
  return code < RDNA3_INT0 && code + words <= RDNA3_INT0;
}
static bool valid_constant(unsigned code) {
  return (code >= RDNA3_INT0 && code <= 208) || (code >= RDNA3_SHARED_BASE && code <= RDNA3_PRIVATE_LIMIT) ||
         (code >= RDNA3_FLOAT0 && code <= RDNA3_INV2PI) || (code >= RDNA3_VCCZ && code <= RDNA3_SCC) ||
         code == RDNA3_POPS_WAVE || code == RDNA3_LITERAL;
}

/* Sources that are neither in a register file nor constants. */
static bool special_register(unsigned code) {
  return (code >= RDNA3_SHARED_BASE && code <= RDNA3_POPS_WAVE) || (code >= RDNA3_VCCZ && code <= RDNA3_SCC);
}

/* Two scalar instructions use the source as a register number, but can encode any constant. */
static bool any_scalar(const struct rdna3_inst *in) {
  ptrdiff_t row = in->op - rdna3_ops;
  return row == RDNA3_SOP1_s_movrelsd_2_b32 || row == RDNA3_SOP1_s_swappc_b64;
}
static bool takes_literal(const struct rdna3_inst *in, const struct rdna3_operand *o) {
  return o->kind == RDNA3_KIND_src || o->kind == RDNA3_KIND_ssrc || o->kind == RDNA3_KIND_src_vgpr_or_inline ||
         (o->field == RDNA3_FIELD_ssrc0 && any_scalar(in));
}

/* Checks that operand i exists and is entirely inside its register file. */
static bool valid_operand(const struct rdna3_inst *in, unsigned i) {
  const struct rdna3_operand *o = &in->operand[i];
  unsigned code = in->arg[i], words = (o->bits + 31u) / 32;
  switch (o->kind) {
  case RDNA3_KIND_vgpr:
    if (o->field == RDNA3_FIELD_addr && in->format == RDNA3_GLOBAL)
      for (unsigned k = 0; k < in->operands; k++)
        if (in->operand[k].field == RDNA3_FIELD_saddr && in->arg[k] != RDNA3_NULL) words = 1;
    if (o->field == RDNA3_FIELD_vaddr) words = in->idxen + in->offen;
    if (o->field == RDNA3_FIELD_vdata) words += in->tfe;
    return code + words <= RDNA3_VGPRS;
  case RDNA3_KIND_src_vgpr:
    return code >= RDNA3_VGPR0 ? code - RDNA3_VGPR0 + words <= RDNA3_VGPRS
                               : code == RDNA3_NULL || special_register(code) ||
                                     (code == RDNA3_LDS_DIRECT && in->op == &rdna3_ops[RDNA3_VOP1_v_readfirstlane_b32]);
  case RDNA3_KIND_src_vgpr_or_inline:
    if (code >= RDNA3_VGPR0) return code - RDNA3_VGPR0 + words <= RDNA3_VGPRS;
    return code == RDNA3_NULL || valid_constant(code);
  case RDNA3_KIND_src:
    /* Interpolation reads only registers, scalar registers included. */
    if (in->format == RDNA3_VINTERP && code < RDNA3_VGPR0) return valid_scalar(code, 1);
    __attribute__((fallthrough));
  case RDNA3_KIND_ssrc:
  case RDNA3_KIND_ssrc_lanesel:
    if (code >= RDNA3_VGPR0) return o->kind == RDNA3_KIND_src && code - RDNA3_VGPR0 + words <= RDNA3_VGPRS;
    if (words > 2) return false;
    if (code == RDNA3_LDS_DIRECT) return o->kind == RDNA3_KIND_src && words == 1;
    return code < RDNA3_INT0 ? valid_scalar(code, words) : valid_constant(code);
  case RDNA3_KIND_sreg:
  case RDNA3_KIND_sdst:
    if (o->field == RDNA3_FIELD_ssrc0 && code >= RDNA3_INT0) {
      if (any_scalar(in)) return valid_constant(code);
      return special_register(code);
    }
    if ((o->field == RDNA3_FIELD_vdst || o->field == RDNA3_FIELD_src2) && special_register(code)) return true;
    if (o->field == RDNA3_FIELD_sdata && code > RDNA3_NULL) return false;
    if (o->field == RDNA3_FIELD_src2 && o->type == RDNA3_TYPE_m64 && code >= RDNA3_EXEC) return false;
    if (o->field == RDNA3_FIELD_saddr && code == RDNA3_EXEC + 1) return false;
    /* A lane mask has one register in wave32, an aligned pair in wave64. */
    return valid_scalar(code, o->type == RDNA3_TYPE_m64 ? 1u + in->wave64 : words);
  case RDNA3_KIND_smem_offset: return code < RDNA3_INT0;
  case RDNA3_KIND_sreg_m0_inl:
    return code < RDNA3_INT0 ? valid_scalar(code, 1) : valid_constant(code) && code != RDNA3_LITERAL;
  default: return true;
  }
}

static bool has_field(const struct rdna3_inst *in, uint8_t field) {
  for (unsigned i = 0; i < in->operands; i++)
    if (in->operand[i].field == field) return true;
  return false;
}

/* Returns true if fields of operands that the instruction does not have are not zero. */
static bool ignored_fields(const struct rdna3_inst *in, uint64_t word) {
  unsigned sources = 0;
  switch (in->format) {
  case RDNA3_VOP1: return !in->operands && bits(word, 17, 8);
  case RDNA3_DS:
    for (unsigned i = 0; i < 4; i++) {
      static const uint8_t fields[] = {RDNA3_FIELD_addr, RDNA3_FIELD_data0, RDNA3_FIELD_data1, RDNA3_FIELD_vdst};
      if (!has_field(in, fields[i]) && bits(word, 32 + 8 * i, 8)) return true;
    }
    return false;
  case RDNA3_VOPD_X:
    if (!has_field(in, RDNA3_FIELD_vsrcx1) && bits(word, 9, 8)) return true;
    return !has_field(in, RDNA3_FIELD_vsrcy1) && bits(word, 41, 8);
  case RDNA3_VOP3:
  case RDNA3_VOP3SD:
  case RDNA3_VOP3P:
    for (unsigned i = 0; i < in->operands; i++) sources |= 1u << rdna3_source_number(in->operand[i].field);
    if (!(sources & 2) && bits(word, 41, 9)) return true;
    if (!(sources & 4) && bits(word, 50, 9)) return true;
    return !(sources & 1) && (bits(word, 32, 9) || bits(word, 0, 8));
  default: return false;
  }
}

/* Checks the reserved bits of the other formats, which must be zero. */
static bool has_reserved_bits(const struct rdna3_inst *in, uint64_t word) {
  ptrdiff_t row = in->op - rdna3_ops;
  switch (in->format) {
  case RDNA3_SOPP: return !in->operands && row != RDNA3_SOPP_s_endpgm && bits(word, 0, 16);
  case RDNA3_SMEM: return in->operand[0].kind != RDNA3_KIND_sreg && bits(word, 13, 2);
  case RDNA3_DS:
    switch (row) {
    case RDNA3_DS_ds_nop: return bits(word, 0, 16) || in->gds;
    case RDNA3_DS_ds_permute_b32:
    case RDNA3_DS_ds_bpermute_b32:
    case RDNA3_DS_ds_bvh_stack_rtn_b32: return in->gds;
    case RDNA3_DS_ds_gws_sema_release_all:
    case RDNA3_DS_ds_gws_init:
    case RDNA3_DS_ds_gws_sema_v:
    case RDNA3_DS_ds_gws_sema_br:
    case RDNA3_DS_ds_gws_sema_p:
    case RDNA3_DS_ds_gws_barrier:
    case RDNA3_DS_ds_ordered_count:
    case RDNA3_DS_ds_add_gs_reg_rtn:
    case RDNA3_DS_ds_sub_gs_reg_rtn: return !in->gds;
    default: return false;
    }
  case RDNA3_MTBUF: return in->tfe;
  case RDNA3_MUBUF:
    if (!in->operands) return in->glc || in->dlc || in->tfe || in->offen || in->idxen;
    return in->tfe && in->op->flags & (F_ATOMIC | F_INTO_LDS);
  case RDNA3_FLAT: return bits(word, 48, 7) != RDNA3_NULL || in->sve;
  case RDNA3_GLOBAL: return in->sve;
  default: return false;
  }
}

/* 16-bit operands of 32-bit encodings name a half register: bit 7 of the number selects the high half. */
static void split_halves(struct rdna3_inst *in) {
  for (unsigned i = 0; i < in->operands; i++) {
    if (in->operand[i].bits != 16) continue;
    bool source = in->operand[i].kind != RDNA3_KIND_vgpr;
    if (source && in->arg[i] < RDNA3_VGPR0) continue;
    if (in->arg[i] & 0x80) in->opsel |= (uint8_t)(1u << rdna3_source_number(in->operand[i].field));
    in->arg[i] &= (uint16_t)~0x80u;
  }
}

static void vop3_modifiers(struct rdna3_inst *in, uint64_t word) {
  in->neg = (uint8_t)bits(word, 61, 3);
  in->clamp = bits(word, 15, 1);
  if (in->format == RDNA3_VOP3P) {
    in->opsel = (uint8_t)bits(word, 11, 3);
    in->opsel_hi = (uint8_t)(bits(word, 59, 2) | bits(word, 14, 1) << 2);
    in->neg_hi = (uint8_t)bits(word, 8, 3);
    return;
  }
  in->omod = (uint8_t)bits(word, 59, 2);
  if (in->format == RDNA3_VOP3SD) return;
  in->abs = (uint8_t)bits(word, 8, 3);
  in->opsel = (uint8_t)bits(word, 11, 4);
}

/* RDNA3 ISA document, VINTERP: wait_exp, which has no effect in compute shaders, op_sel, clamp and neg. */
static void interpolation_modifiers(struct rdna3_inst *in, uint64_t word) {
  in->wait_exp = (uint8_t)bits(word, 8, 3);
  in->opsel = (uint8_t)bits(word, 11, 4);
  in->clamp = bits(word, 15, 1);
  in->neg = (uint8_t)bits(word, 61, 3);
}

static void memory_modifiers(struct rdna3_inst *in, uint64_t word) {
  switch (in->format) {
  case RDNA3_SMEM:
    in->offset = sext(bits(word, 32, 21), 21);
    in->dlc = bits(word, 13, 1), in->glc = bits(word, 14, 1);
    break;
  case RDNA3_DS:
    in->offset0 = (uint8_t)bits(word, 0, 8), in->offset1 = (uint8_t)bits(word, 8, 8);
    in->offset = (int32_t)bits(word, 0, 16);
    in->gds = bits(word, 17, 1);
    break;
  case RDNA3_FLAT:
  case RDNA3_GLOBAL:
  case RDNA3_SCRATCH:
    in->offset = in->format == RDNA3_FLAT ? (int32_t)bits(word, 0, 12) : sext(bits(word, 0, 13), 13);
    in->dlc = bits(word, 13, 1), in->glc = bits(word, 14, 1), in->slc = bits(word, 15, 1);
    in->sve = bits(word, 55, 1);
    break;
  case RDNA3_MTBUF: in->tbuffer_format = (uint8_t)bits(word, 19, 7); __attribute__((fallthrough));
  case RDNA3_MUBUF:
    in->offset = (int32_t)bits(word, 0, 12);
    in->slc = bits(word, 12, 1), in->dlc = bits(word, 13, 1), in->glc = bits(word, 14, 1);
    in->tfe = bits(word, 53, 1), in->offen = bits(word, 54, 1), in->idxen = bits(word, 55, 1);
    break;
  }
}

/* DPP supports only 32-bit and 16-bit operands and operations on independent lanes; neg and abs require a float
 * operand. */
static bool dpp_allowed(const struct rdna3_inst *in, uint32_t word) {
  const struct rdna3_modifiers *m = rdna3_modifiers(in->format, in->opcode);
  bool e32 = in->format == RDNA3_VOP1 || in->format == RDNA3_VOP2 || in->format == RDNA3_VOPC;
  if (e32 && in->dpp == 16 && bits(word, 20, 4) & ~(unsigned)m->takes) return false;
  if (m->dpp == 1)
    for (unsigned i = 0; i < in->operands; i++)
      if (in->operand[i].field == RDNA3_FIELD_src1 && in->arg[i] < RDNA3_VGPR0 && !special_register(in->arg[i]) &&
          in->arg[i] != RDNA3_NULL)
        return false;
  return m->dpp;
}

static void dpp_fields(struct rdna3_inst *in, uint32_t x, unsigned marker) {
  if (marker != RDNA3_DPP16) {
    in->dpp = 8, in->fi = marker == RDNA3_DPP8_FI, in->dpp_ctrl = x >> 8;
    return;
  }
  in->dpp = 16;
  in->dpp_ctrl = bits(x, 8, 9);
  in->fi = bits(x, 18, 1), in->bound_ctrl = bits(x, 19, 1);
  in->bank_mask = (uint8_t)bits(x, 24, 4), in->row_mask = (uint8_t)bits(x, 28, 4);
  if (in->format == RDNA3_VOP3 || in->format == RDNA3_VOP3SD || in->format == RDNA3_VOP3P) return;
  in->neg |= (uint8_t)(bits(x, 20, 1) | bits(x, 22, 1) << 1);
  in->abs |= (uint8_t)(bits(x, 21, 1) | bits(x, 23, 1) << 1);
}

static bool valid_dpp_ctrl(unsigned c) {
  return c <= 0xff || (c >= 0x101 && c <= 0x10f) || (c >= 0x111 && c <= 0x11f) || (c >= 0x121 && c <= 0x12f) ||
         c == 0x140 || c == 0x141 || (c >= 0x150 && c <= 0x16f);
}

/* Checks that modifier bits that the instruction does not have are zero. */
static bool reserved_vop3(const struct rdna3_inst *in, uint64_t word) {
  const struct rdna3_modifiers *m = rdna3_modifiers(in->format, in->opcode);
  unsigned set = bits(word, 8, 8) | bits(word, 59, 5) << 8;
  if (in->format == RDNA3_VOP3SD) set &= 0x1f80;
  return !m->known || set & ~(unsigned)m->takes;
}

static unsigned decode_invalid(struct rdna3_inst *out) {
  struct rdna3_inst blank = {.pc = out->pc, .dw = {out->dw[0]}, .size = 4, .wave64 = out->wave64};
  *out = blank;
  return 0;
}

unsigned rdna3_decode_wave(const uint32_t *dw, size_t n, uint64_t pc, bool wave64, struct rdna3_inst *out) {
  memset(out, 0, sizeof *out);
  out->pc = pc, out->size = 4, out->wave64 = wave64;
  if (!n) return 0;
  out->dw[0] = dw[0];
  enum rdna3_format f;
  unsigned opcode, words, row;
  if (!find_format(dw[0], &f, &opcode, &words) || words > n) return decode_invalid(out);
  uint64_t word = dw[0] | (words > 1 ? (uint64_t)dw[1] << 32 : 0);
  row = f == RDNA3_VOP3 ? vop3_row(opcode, &f) : row_of[f][opcode];
  if (!row) return decode_invalid(out);
  out->op = &rdna3_ops[row - 1];
  out->format = (uint8_t)f, out->opcode = (uint16_t)opcode;
  list_operands(out, out->op, word, f);
  out->operands_x = out->operands;
  bool literal = out->op->flags & F_LITERAL;
  if (f == RDNA3_VOPD_X) {
    if (wave64) return decode_invalid(out);
    unsigned y = row_of[RDNA3_VOPD_Y][bits(word, 17, 5)];
    if (!y) return decode_invalid(out);
    out->opy = &rdna3_ops[y - 1];
    list_operands(out, out->opy, word, RDNA3_VOPD_Y);
    /* The two destinations have opposite parity, so the encoding omits the lowest bit of the second. */
    for (unsigned i = out->operands_x; i < out->operands; i++)
      if (out->operand[i].field == RDNA3_FIELD_vdsty)
        out->arg[i] = (uint16_t)(out->arg[i] << 1 | (~bits(word, 56, 8) & 1));
    literal |= out->opy->flags & F_LITERAL;
  }
  bool vop32 = f == RDNA3_VOP1 || f == RDNA3_VOP2 || f == RDNA3_VOPC;
  bool vop64 = f == RDNA3_VOP3 || f == RDNA3_VOP3SD || f == RDNA3_VOP3P;
  if (vop64) {
    vop3_modifiers(out, word);
    if (reserved_vop3(out, word)) return decode_invalid(out);
  } else if (f == RDNA3_VINTERP) {
    interpolation_modifiers(out, word);
  } else {
    memory_modifiers(out, word);
    if (has_reserved_bits(out, word)) return decode_invalid(out);
  }
  out->ignored = ignored_fields(out, word);
  for (unsigned i = 0; i < out->operands; i++) {
    struct rdna3_operand *o = &out->operand[i];
    unsigned code = out->arg[i];
    if (o->field == RDNA3_FIELD_sbase) out->arg[i] = (uint16_t)(code * 2);
    if (o->field == RDNA3_FIELD_srsrc) out->arg[i] = (uint16_t)(code * 4);
    bool dpp = code == RDNA3_DPP16 || code == RDNA3_DPP8 || code == RDNA3_DPP8_FI;
    if (dpp && (vop32 || vop64) && o->field == RDNA3_FIELD_src0) {
      if (words >= n) return decode_invalid(out);
      dpp_fields(out, dw[words], code);
      if (!dpp_allowed(out, dw[words])) return decode_invalid(out);
      if (out->dpp == 16 && !valid_dpp_ctrl(out->dpp_ctrl)) return decode_invalid(out);
      out->arg[i] = (uint16_t)(RDNA3_VGPR0 + (dw[words] & 0xff));
    } else if (code == RDNA3_LITERAL && f != RDNA3_VINTERP && takes_literal(out, o)) {
      literal = true;
    }
  }
  if (literal && out->dpp) return decode_invalid(out);
  if (literal || out->dpp) {
    if (words >= n) return decode_invalid(out);
    if (literal) out->has_literal = true, out->literal = dw[words];
    words++;
  }
  if (vop32) split_halves(out);
  for (unsigned i = 0; i < out->operands; i++)
    if (!valid_operand(out, i)) return decode_invalid(out);
  memcpy(out->dw, dw, words * 4);
  out->size = (uint8_t)(words * 4);
  return out->size;
}

unsigned rdna3_decode_listing(const uint32_t *dw, size_t n, uint64_t pc, bool wave64, struct rdna3_inst *out) {
  unsigned size = rdna3_decode_wave(dw, n, pc, wave64, out);
  bool refused = out->ignored;
  /* LLVM supports only interpolation of VGPRs. */
  for (unsigned i = 0; out->format == RDNA3_VINTERP && i < out->operands; i++)
    refused |= out->operand[i].kind == RDNA3_KIND_src && out->arg[i] < RDNA3_VGPR0;
  return refused ? decode_invalid(out) : size;
}

/* The leading bits of each format. */
static const uint32_t encodings[RDNA3_FORMAT_COUNT] = {
    [RDNA3_SOP2] = 2u << 30,       [RDNA3_SOPK] = 0xbu << 28,     [RDNA3_SOP1] = 0x17du << 23,
    [RDNA3_SOPC] = 0x17eu << 23,   [RDNA3_SOPP] = 0x17fu << 23,   [RDNA3_SMEM] = 0x3du << 26,
    [RDNA3_VOP1] = 0x3fu << 25,    [RDNA3_VOPC] = 0x3eu << 25,    [RDNA3_VOP3] = 0x35u << 26,
    [RDNA3_VOP3SD] = 0x35u << 26,  [RDNA3_VOP3P] = 0xccu << 24,   [RDNA3_VOPD_X] = 0x32u << 26,
    [RDNA3_VOPD_Y] = 0x32u << 26,  [RDNA3_DS] = 0x36u << 26,      [RDNA3_FLAT] = 0x37u << 26,
    [RDNA3_SCRATCH] = 0x37u << 26, [RDNA3_GLOBAL] = 0x37u << 26,  [RDNA3_MUBUF] = 0x38u << 26,
    [RDNA3_MTBUF] = 0x3au << 26,   [RDNA3_VINTERP] = 0xcdu << 24,
};
static const struct span opcodes[RDNA3_FORMAT_COUNT] = {
    [RDNA3_SOP2] = {23, 7},    [RDNA3_SOPK] = {23, 5},   [RDNA3_SOP1] = {8, 8},     [RDNA3_SOPC] = {16, 7},
    [RDNA3_SOPP] = {16, 7},    [RDNA3_SMEM] = {18, 8},   [RDNA3_VOP2] = {25, 6},    [RDNA3_VOP1] = {9, 8},
    [RDNA3_VOPC] = {17, 8},    [RDNA3_VOP3] = {16, 10},  [RDNA3_VOP3SD] = {16, 10}, [RDNA3_VOP3P] = {16, 7},
    [RDNA3_VOPD_X] = {22, 4},  [RDNA3_VOPD_Y] = {17, 5}, [RDNA3_DS] = {18, 8},      [RDNA3_FLAT] = {18, 7},
    [RDNA3_SCRATCH] = {18, 7}, [RDNA3_GLOBAL] = {18, 7}, [RDNA3_MUBUF] = {18, 8},   [RDNA3_MTBUF] = {15, 4},
    [RDNA3_VINTERP] = {16, 7},
};

unsigned rdna3_example(enum rdna3_row row, uint32_t dw[4]) {
  const struct rdna3_op *op = &rdna3_ops[row];
  unsigned f = op->format;
  if (!opcodes[f].width) return 0;
  uint64_t word = encodings[f] | (uint64_t)op->opcode << opcodes[f].low;
  if (f == RDNA3_VOPD_X) word |= (uint64_t)rdna3_ops[RDNA3_VOPD_Y_v_dual_mov_b32].opcode << opcodes[RDNA3_VOPD_Y].low;
  if (f == RDNA3_VOPD_Y) word |= (uint64_t)rdna3_ops[RDNA3_VOPD_X_v_dual_mov_b32].opcode << opcodes[RDNA3_VOPD_X].low;
  if (f == RDNA3_SCRATCH || f == RDNA3_GLOBAL) word |= (uint64_t)(f == RDNA3_GLOBAL ? 2 : 1) << 16;
  if (f == RDNA3_FLAT || f == RDNA3_GLOBAL || f == RDNA3_SCRATCH) word |= (uint64_t)RDNA3_NULL << 48;
  if (f == RDNA3_MUBUF && op->operand[0].bits) word |= (uint64_t)RDNA3_INT0 << 56;
  /* All registers have number 0: s0 or v0. */
  for (unsigned i = 0; i < RDNA3_MAX_OPERANDS && op->operand[i].bits; i++) {
    const struct rdna3_operand *o = &op->operand[i];
    struct span s = layout[f][o->field];
    if (s.width == 9 &&
        (o->kind == RDNA3_KIND_src || o->kind == RDNA3_KIND_src_vgpr || o->kind == RDNA3_KIND_src_vgpr_or_inline))
      word |= (uint64_t)RDNA3_VGPR0 << s.low;
    if (o->field == RDNA3_FIELD_ssrc0 && o->kind == RDNA3_KIND_sreg_m0_inl) word |= (uint64_t)RDNA3_M0 << s.low;
  }
  dw[0] = (uint32_t)word, dw[1] = (uint32_t)(word >> 32), dw[2] = dw[3] = 0;
  struct rdna3_inst in;
  unsigned size = rdna3_decode(dw, 4, 0, &in);
  if (!size && f == RDNA3_DS) { /* some rows exist only for the global data share */
    dw[0] |= 1u << 17;
    size = rdna3_decode(dw, 4, 0, &in);
  }
  return (f == RDNA3_VOPD_Y ? in.opy : in.op) == op ? size : 0;
}
