/* Translates decoded instructions to micro-operations. It resolves everything that is known before a wave runs
 * (register rows, constants, modifiers, MODE, branch targets), so that operations do not check it at run time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "rdna3_exec.h"

enum {
  TMP_DST = RDNA3_TMP + 6,
  ZERO = 200,     /* scalar registers that stay 0; a lane mask of null reads them */
  SHADOW = 208,   /* a copy of a scalar pair that the instruction overwrites */
  QUAD = 1 << 30, /* src of a constant while building: index of a row, or QUAD + index of a 64-bit scalar */
  NO_TARGET = ~0u,
};

struct builder {
  struct rdna3_trace *t;
  struct rdna3_uop *uop;
  uint32_t uops, uop_cap;
  uint32_t *row; /* values to splat into 32 lanes */
  uint32_t rows, row_cap;
  uint64_t *quad;
  uint32_t quads, quad_cap;
  bool *target; /* per word: a branch of the trace targets it */
  const struct rdna3_inst *in;
  unsigned shadowed; /* this scalar and the next are read from SHADOW; RDNA3_SINK if none */
  bool failed;
};

static void *grow_array(struct builder *b, void *p, uint32_t n, uint32_t *cap, size_t size) {
  if (n < *cap) return p;
  uint32_t bigger = *cap ? *cap * 2 : 64;
  void *q = realloc(p, bigger * size);
  if (!q)
    b->failed = true;
  else
    *cap = bigger;
  return q ? q : p;
}

static struct rdna3_uop *emit(struct builder *b, rdna3_exec_fn *fn) {
  static _Thread_local struct rdna3_uop spill; /* written to after an allocation failed; the build is discarded */
  b->uop = grow_array(b, b->uop, b->uops, &b->uop_cap, sizeof *b->uop);
  struct rdna3_uop *u = b->failed ? &spill : &b->uop[b->uops++];
  *u = (struct rdna3_uop){.fn = fn, .inst = b->in};
  return u;
}

/* ---- constants ---- */

static int32_t const_rows(struct builder *b, uint64_t value, unsigned words) {
  uint32_t v[2] = {(uint32_t)value, (uint32_t)(value >> 32)};
  for (uint32_t i = 0; i + words <= b->rows; i++)
    if (b->row[i] == v[0] && (words == 1 || b->row[i + 1] == v[1])) return (int32_t)i;
  for (unsigned i = 0; i < words; i++) {
    b->row = grow_array(b, b->row, b->rows, &b->row_cap, sizeof *b->row);
    if (b->failed) return 0;
    b->row[b->rows++] = v[i];
  }
  return (int32_t)(b->rows - words);
}
static int32_t const_quad(struct builder *b, uint64_t value) {
  for (uint32_t i = 0; i < b->quads; i++)
    if (b->quad[i] == value) return (int32_t)(QUAD + i);
  b->quad = grow_array(b, b->quad, b->quads, &b->quad_cap, sizeof *b->quad);
  if (b->failed) return 0;
  b->quad[b->quads] = value;
  return (int32_t)(QUAD + b->quads++);
}

static bool is_16bit_float(unsigned type) {
  return type == RDNA3_TYPE_f16 || type == RDNA3_TYPE_b16 || type == RDNA3_TYPE_u16 || type == RDNA3_TYPE_i16 ||
         type == RDNA3_TYPE_pk2_f16 || type == RDNA3_TYPE_wmma_dc_f16;
}
static bool is_bf16(unsigned type) {
  return type == RDNA3_TYPE_bf16 || type == RDNA3_TYPE_pk2_bf16 || type == RDNA3_TYPE_wmma_dc_bf16;
}

/* Returns the bits that constant operand `code` supplies to an operand of this type. */
static uint64_t constant(const struct rdna3_operand *o, unsigned code, uint32_t literal) {
  static const struct {
    uint16_t f16, bf16;
    uint32_t f32;
    uint64_t f64;
  } fp[] = {
      {0x3800, 0x3f00, 0x3f000000, 0x3fe0000000000000}, {0xb800, 0xbf00, 0xbf000000, 0xbfe0000000000000},
      {0x3c00, 0x3f80, 0x3f800000, 0x3ff0000000000000}, {0xbc00, 0xbf80, 0xbf800000, 0xbff0000000000000},
      {0x4000, 0x4000, 0x40000000, 0x4000000000000000}, {0xc000, 0xc000, 0xc0000000, 0xc000000000000000},
      {0x4400, 0x4080, 0x40800000, 0x4010000000000000}, {0xc400, 0xc080, 0xc0800000, 0xc010000000000000},
      {0x3118, 0x3e22, 0x3e22f983, 0x3fc45f306dc9c882},
  };
  if (code >= RDNA3_INT0 && code <= 192) return code - RDNA3_INT0;
  if (code > 192 && code <= 208) {
    int64_t v = 192 - (int64_t)code;
    return o->bits == 16 ? (uint16_t)v : (uint64_t)v;
  }
  switch (code) {
  case RDNA3_SHARED_BASE: return (uint64_t)RDNA3_SHARED_HI << 32;
  case RDNA3_SHARED_LIMIT: return (uint64_t)RDNA3_SHARED_HI << 32 | UINT32_MAX;
  case RDNA3_PRIVATE_BASE: return (uint64_t)RDNA3_PRIVATE_HI << 32;
  case RDNA3_PRIVATE_LIMIT: return (uint64_t)RDNA3_PRIVATE_HI << 32 | UINT32_MAX;
  case RDNA3_LITERAL:
    if (o->type == RDNA3_TYPE_f64) return (uint64_t)literal << 32;
    if (o->type == RDNA3_TYPE_i64) return (uint64_t)(int64_t)(int32_t)literal;
    return literal;
  }
  if (code >= RDNA3_FLOAT0 && code <= RDNA3_INV2PI) {
    unsigned i = code - RDNA3_FLOAT0;
    if (o->bits == 64) return fp[i].f64;
    return is_bf16(o->type) ? fp[i].bf16 : is_16bit_float(o->type) ? fp[i].f16 : fp[i].f32;
  }
  return 0; /* null */
}
static bool is_constant(unsigned code) {
  return code == RDNA3_NULL || (code >= RDNA3_INT0 && code < 256 && code != RDNA3_SCC);
}

uint32_t rdna3_scalar32(const struct rdna3_wave *w, unsigned n) {
  struct rdna3_operand o = {.type = RDNA3_TYPE_b32, .bits = 32};
  return is_constant(n) ? (uint32_t)constant(&o, n, 0) : w->s[n];
}
uint64_t rdna3_scalar64(const struct rdna3_wave *w, unsigned n) {
  struct rdna3_operand o = {.type = RDNA3_TYPE_b64, .bits = 64};
  return is_constant(n) ? constant(&o, n, 0) : w->s[n] | (uint64_t)w->s[n + 1] << 32;
}

/* ---- scalar instructions ---- */

static void scalar_source(struct builder *b, struct rdna3_uop *u, unsigned slot, const struct rdna3_operand *o,
                          unsigned code) {
  if (is_constant(code)) {
    u->constant |= (uint8_t)(1u << slot);
    u->src[slot] = const_quad(b, constant(o, code, b->in->literal));
  } else {
    u->src[slot] = (int32_t)(code * 4);
  }
}

static bool is_noop(const struct rdna3_inst *in) {
  switch (in->op - rdna3_ops) {
  case RDNA3_SOPP_s_nop:
  case RDNA3_SOPP_s_clause:
  case RDNA3_SOPP_s_delay_alu:
  case RDNA3_SOPP_s_waitcnt:
  case RDNA3_SOPP_s_waitcnt_depctr:
  case RDNA3_SOPP_s_wait_idle:
  case RDNA3_SOPP_s_wait_event:
  case RDNA3_SOPP_s_set_inst_prefetch_distance:
  case RDNA3_SOPP_s_setprio:
  case RDNA3_SOPP_s_incperflevel:
  case RDNA3_SOPP_s_decperflevel:
  case RDNA3_SOPP_s_ttracedata:
  case RDNA3_SOPP_s_ttracedata_imm:
  case RDNA3_SOPP_s_wakeup:
  case RDNA3_SOPK_s_version:
  case RDNA3_SOPK_s_waitcnt_vscnt:
  case RDNA3_SOPK_s_waitcnt_vmcnt:
  case RDNA3_SOPK_s_waitcnt_expcnt:
  case RDNA3_SOPK_s_waitcnt_lgkmcnt:
  case RDNA3_VOP1_v_nop:
  case RDNA3_VOP1_v_pipeflush: return true;
  default: return false;
  }
}

static void build_scalar(struct builder *b, const struct rdna3_inst *in, rdna3_exec_fn *fn) {
  struct rdna3_uop *u = emit(b, fn);
  u->dst = RDNA3_SINK;
  for (unsigned i = 0; i < in->operands; i++) {
    const struct rdna3_operand *o = &in->operand[i];
    unsigned code = in->arg[i];
    switch (o->field) {
    case RDNA3_FIELD_sdst: u->dst = code == RDNA3_NULL ? RDNA3_SINK : (int32_t)code; break;
    case RDNA3_FIELD_ssrc0:
      if (o->kind == RDNA3_KIND_sendmsg_rtn)
        u->arg = code;
      else
        scalar_source(b, u, 0, o, code);
      break;
    case RDNA3_FIELD_ssrc1: scalar_source(b, u, 1, o, code); break;
    case RDNA3_FIELD_simm16: u->arg = (uint32_t)(int32_t)(int16_t)code; break;
    }
  }
  if (in->format == RDNA3_SOPP) u->arg = (uint32_t)(int32_t)(int16_t)(in->dw[0] & 0xffff);
  if (in->has_literal) u->imm = in->literal;
}

/* ---- vector instructions ---- */

/* Sign modifiers apply to floats, and to the two selects that LLVM uses on floats. */
static bool has_sign_modifiers(const struct rdna3_inst *in, unsigned type) {
  ptrdiff_t row = in->op - rdna3_ops;
  return type == RDNA3_TYPE_f32 || type == RDNA3_TYPE_f64 || type == RDNA3_TYPE_f16 || type == RDNA3_TYPE_bf16 ||
         type == RDNA3_TYPE_pk2_f16 || type == RDNA3_TYPE_pk2_bf16 || row == RDNA3_VOP2_v_cndmask_b32 ||
         row == RDNA3_VOP3_v_cndmask_b16;
}
static bool is_packed(unsigned type) {
  return type == RDNA3_TYPE_pk2_f16 || type == RDNA3_TYPE_pk2_i16 || type == RDNA3_TYPE_pk2_u16 ||
         type == RDNA3_TYPE_pk2_bf16;
}
static bool is_mix(const struct rdna3_inst *in) {
  ptrdiff_t row = in->op - rdna3_ops;
  return row == RDNA3_VOP3P_v_fma_mix_f32 || row == RDNA3_VOP3P_v_fma_mixlo_f16 || row == RDNA3_VOP3P_v_fma_mixhi_f16;
}
static bool is_f16(unsigned type) { return type == RDNA3_TYPE_f16 || type == RDNA3_TYPE_pk2_f16; }

/* The modification of a source's value before the operation: halves are rearranged, then each word is (x & and_mask) ^
 * xor_mask. */
struct shape {
  enum rdna3_arrange arrange;
  uint32_t and_mask, xor_mask; /* for the only word or the low word */
  uint32_t and_mask_hi, xor_mask_hi;
};
static bool is_plain(const struct shape *s) {
  return s->arrange == RDNA3_KEEP && s->and_mask == ~0u && !s->xor_mask && s->and_mask_hi == ~0u && !s->xor_mask_hi;
}
static uint32_t apply_shape(const struct shape *s, uint32_t x) {
  switch (s->arrange) {
  case RDNA3_KEEP: break;
  case RDNA3_SWAP: x = x >> 16 | x << 16; break;
  case RDNA3_LOW: x = (x & 0xffff) * 0x10001u; break;
  case RDNA3_HIGH: x = (x >> 16) * 0x10001u; break;
  case RDNA3_SHIFT: x >>= 16; break;
  }
  return (x & s->and_mask) ^ s->xor_mask;
}

static struct shape source_shape(const struct rdna3_inst *in, const struct rdna3_operand *o, unsigned slot) {
  struct shape s = {RDNA3_KEEP, ~0u, 0, ~0u, 0};
  unsigned bit = 1u << slot;
  if (in->format == RDNA3_VOP3P) {
    if (!is_packed(o->type)) {
      if (o->type == RDNA3_TYPE_f32 && in->neg & bit) s.xor_mask = 0x80000000u;
      return s;
    }
    bool low = in->opsel & bit, high = in->opsel_hi & bit;
    s.arrange = low == high ? (low ? RDNA3_HIGH : RDNA3_LOW) : low ? RDNA3_SWAP : RDNA3_KEEP;
    if (o->type == RDNA3_TYPE_pk2_f16 || o->type == RDNA3_TYPE_pk2_bf16)
      s.xor_mask = (in->neg & bit ? 0x8000u : 0) | (in->neg_hi & bit ? 0x80000000u : 0);
    return s;
  }
  if (o->bits == 16 && in->opsel & bit) s.arrange = RDNA3_SHIFT;
  uint32_t sign = o->bits == 16                                                     ? 0x8000u
                  : o->type == RDNA3_TYPE_pk2_f16 || o->type == RDNA3_TYPE_pk2_bf16 ? 0x80008000u
                                                                                    : 0x80000000u;
  if (!has_sign_modifiers(in, o->type)) return s;
  if (in->abs & bit) *(o->bits == 64 ? &s.and_mask_hi : &s.and_mask) = ~sign;
  if (in->neg & bit) *(o->bits == 64 ? &s.xor_mask_hi : &s.xor_mask) = sign;
  return s;
}

struct source {
  int32_t offset;
  bool constant;
};

static void emit_bits(struct builder *b, enum rdna3_arrange arrange, struct source from, int32_t to, uint32_t and_mask,
                      uint32_t xor_mask) {
  struct rdna3_uop *u = emit(b, rdna3_glue->bits[arrange]);
  u->src[0] = from.offset, u->constant = from.constant, u->dst = to;
  u->imm = and_mask | (uint64_t)xor_mask << 32;
}

/* Emits the preparation of source `slot` and returns where the operation finds it. */
static struct source build_source(struct builder *b, const struct rdna3_operand *o, unsigned code, unsigned slot) {
  const struct rdna3_inst *in = b->in;
  unsigned words = o->bits > 32 ? 2 : 1;
  int32_t tmp = rdna3_vgpr(RDNA3_TMP + 2 * slot);
  struct shape s = source_shape(in, o, slot);
  bool mix = is_mix(in);
  bool half = mix && in->opsel_hi >> slot & 1;
  if (mix) {
    s = (struct shape){RDNA3_KEEP, .and_mask_hi = ~0u};
    s.and_mask = in->neg_hi >> slot & 1 ? 0x7fffffffu : ~0u;
    s.xor_mask = in->neg >> slot & 1 ? 0x80000000u : 0;
  }
  struct source at = {rdna3_vgpr(code - RDNA3_VGPR0), false};
  if (o->kind == RDNA3_KIND_vgpr)
    at.offset = rdna3_vgpr(code);
  else if (code < RDNA3_VGPR0) {
    if (is_constant(code)) {
      struct rdna3_operand as = *o;
      if (half) as.type = RDNA3_TYPE_f16, as.bits = 16;
      uint64_t v = constant(&as, code, in->literal);
      uint32_t lo = half ? (uint32_t)v : apply_shape(&s, (uint32_t)v),
               hi = ((uint32_t)(v >> 32) & s.and_mask_hi) ^ s.xor_mask_hi;
      at = (struct source){const_rows(b, words == 2 ? lo | (uint64_t)hi << 32 : lo, words), true};
      if (!half) return at;
    } else {
      bool fold = s.arrange == RDNA3_KEEP && !half;
      for (unsigned k = 0; k < words; k++) {
        struct rdna3_uop *u = emit(b, rdna3_glue->expand);
        unsigned from = code + k;
        if (from == b->shadowed || from == b->shadowed + 1) from += SHADOW - b->shadowed;
        u->src[0] = (int32_t)(from * 4), u->dst = tmp + rdna3_vgpr(k);
        u->imm = ~0u;
        if (fold) u->imm = k ? s.and_mask_hi | (uint64_t)s.xor_mask_hi << 32 : s.and_mask | (uint64_t)s.xor_mask << 32;
      }
      at.offset = tmp;
      if (fold) return at;
    }
  }
  if (in->dpp && slot == 0) {
    struct rdna3_uop *u = emit(b, in->dpp == 8 ? rdna3_glue->dpp8 : rdna3_glue->dpp16);
    u->src[0] = at.offset, u->dst = tmp;
    at.offset = tmp;
  }
  if (half) {
    struct rdna3_uop *u = emit(b, rdna3_glue->mix);
    u->src[0] = at.offset, u->constant = at.constant, u->dst = tmp;
    u->arg = in->opsel >> slot & 1;
    u->imm = s.and_mask | (uint64_t)s.xor_mask << 32;
    return (struct source){tmp, false};
  }
  if (!is_plain(&s)) {
    emit_bits(b, s.arrange, at, tmp, s.and_mask, s.xor_mask);
    if (words == 2) {
      struct source high = {at.offset + rdna3_vgpr(1), false};
      emit_bits(b, RDNA3_KEEP, high, tmp + rdna3_vgpr(1), s.and_mask_hi, s.xor_mask_hi);
    }
    at = (struct source){tmp, false};
  }
  return at;
}

static struct source flush_f16(struct builder *b, struct source at, unsigned slot) {
  struct rdna3_uop *u = emit(b, rdna3_glue->flush16);
  u->src[0] = at.offset, u->constant = at.constant, u->dst = rdna3_vgpr(RDNA3_TMP + 2 * slot);
  return (struct source){u->dst, false};
}

/* Operations that accumulate into the destination, and those with a literal between their operands, have three
 * sources. */
static bool accumulates(ptrdiff_t row) {
  return row == RDNA3_VOP2_v_fmac_f32 || row == RDNA3_VOP2_v_fmac_f16 || row == RDNA3_VOP2_v_pk_fmac_f16 ||
         row == RDNA3_VOP2_v_fmac_dx9_zero_f32 || row == RDNA3_VOP2_v_dot2acc_f32_f16;
}
static bool literal_in_the_middle(ptrdiff_t row) {
  return row == RDNA3_VOP2_v_fmamk_f32 || row == RDNA3_VOP2_v_fmamk_f16;
}
static bool literal_at_the_end(ptrdiff_t row) { return row == RDNA3_VOP2_v_fmaak_f32 || row == RDNA3_VOP2_v_fmaak_f16; }

/* Operations that access both halves of a wave64 wave. */
static bool whole_wave(const struct rdna3_inst *in) {
  ptrdiff_t row = in->op - rdna3_ops;
  return row == RDNA3_VOP1_v_readfirstlane_b32 || row == RDNA3_VOP3_v_readlane_b32 ||
         row == RDNA3_VOP3_v_writelane_b32 || row == RDNA3_VOP1_v_permlane64_b32 ||
         (row >= RDNA3_VOP3P_v_wmma_f32_16x16x16_f16 && row <= RDNA3_VOP3P_v_wmma_i32_16x16x16_iu4);
}

/* Builds one operand of the row's list. Rows with a literal also call it for the literal, with a synthetic operand. */
static void vector_operand(struct builder *b, struct rdna3_uop *op, const struct rdna3_operand *o, unsigned code,
                           unsigned slot) {
  struct source at = build_source(b, o, code, slot);
  if (is_f16(o->type) && b->in->op->flags & F_R_MODE && !(rdna3_denorm64(b->t->mode) & 1)) at = flush_f16(b, at, slot);
  op->src[slot] = at.offset;
  if (at.constant) op->constant |= (uint8_t)(1u << slot);
}

static rdna3_exec_fn *out_fn(const struct rdna3_operand *dst) {
  switch (dst->type) {
  case RDNA3_TYPE_f32: return rdna3_glue->out_f32;
  case RDNA3_TYPE_f64: return rdna3_glue->out_f64;
  case RDNA3_TYPE_f16: return rdna3_glue->out_f16;
  case RDNA3_TYPE_pk2_f16: return rdna3_glue->out_pk_f16;
  default: return NULL;
  }
}

enum { ROUND_TO_ZERO = 3 }; /* as encoded in MODE */

/* An operation being built, for one half (or all of a wave32 wave). row and the operands [first, last) are those of the
 * instruction, or of one half of a pair. */
struct operation {
  ptrdiff_t row;
  unsigned first, last;
  struct rdna3_uop u;
  const struct rdna3_operand *dst; /* a vector register; NULL if there is none */
  unsigned dst_code;               /* its number in the instruction */
  bool clamp;                      /* of the operation itself */
  rdna3_exec_fn *out;              /* modifies the result in TMP_DST; NULL if the operation writes dst */
  unsigned out_flag;
};

static void read_destination(struct operation *op, const struct rdna3_operand *o, unsigned code) {
  if (o->kind == RDNA3_KIND_exec) return;
  if (o->type == RDNA3_TYPE_m64)
    op->u.sdst = code == RDNA3_NULL ? RDNA3_SINK : (uint8_t)code;
  else if (o->kind == RDNA3_KIND_sreg)
    op->u.dst = code == RDNA3_NULL ? RDNA3_SINK : (int32_t)code;
  else
    op->dst = o, op->dst_code = code, op->u.dst = rdna3_vgpr(code);
}

/* Fills the operation's sources and destinations, and emits what prepares sources. */
static void read_operands(struct builder *b, struct operation *op) {
  const struct rdna3_inst *in = b->in;
  const struct rdna3_op *table = &rdna3_ops[op->row];
  struct rdna3_operand literal = {RDNA3_FIELD_src1, RDNA3_KIND_src, table->operand[0].type, table->operand[0].bits};
  struct rdna3_uop *u = &op->u;
  unsigned slot = 0;
  for (unsigned i = op->first; i < op->last; i++) {
    const struct rdna3_operand *o = &in->operand[i];
    unsigned code = in->arg[i];
    if (o->field == RDNA3_FIELD_vdst || o->field == RDNA3_FIELD_vdstx || o->field == RDNA3_FIELD_vdsty)
      read_destination(op, o, code);
    else if (o->field == RDNA3_FIELD_sdst)
      u->sdst = code == RDNA3_NULL ? RDNA3_SINK : (uint8_t)code;
    else if (o->type == RDNA3_TYPE_m64)
      u->smask = code == RDNA3_NULL ? ZERO : (uint8_t)code;
    else if (o->kind == RDNA3_KIND_ssrc || o->kind == RDNA3_KIND_ssrc_lanesel)
      scalar_source(b, u, slot++, o, code);
    else if (o->bits > 64 || o->kind == RDNA3_KIND_src_vgpr_or_inline)
      u->src[slot++] = (int32_t)code; /* the operation interprets it */
    else {
      if (slot == 1 && literal_in_the_middle(op->row)) vector_operand(b, u, &literal, RDNA3_LITERAL, slot++);
      vector_operand(b, u, o, code, slot++);
    }
  }
  if (literal_at_the_end(op->row)) vector_operand(b, u, &literal, RDNA3_LITERAL, slot++);
  if (!accumulates(op->row)) return;
  u->src[2] = rdna3_vgpr(op->dst_code);
  if (op->dst && op->dst->bits == 16 && in->opsel & 8) {
    emit_bits(b, RDNA3_SHIFT, (struct source){u->src[2], false}, rdna3_vgpr(RDNA3_TMP + 4), ~0u, 0);
    u->src[2] = rdna3_vgpr(RDNA3_TMP + 4);
  }
}

/* Decides whether the result is modified, or goes to the upper half of a register, by an operation of its own. */
static void choose_output(const struct builder *b, struct operation *op, int32_t dst_row) {
  const struct rdna3_inst *in = b->in;
  const struct rdna3_operand *dst = op->dst;
  uint32_t mode = b->t->mode;
  unsigned omod = in->omod;
  if (!dst) return;
  /* RDNA3 ISA document, "Output Modifiers": ignored where the output keeps denormals, and in IEEE mode. */
  if (mode & RDNA3_MODE_IEEE || ((dst->type == RDNA3_TYPE_f32 ? rdna3_denorm32(mode) : rdna3_denorm64(mode)) & 2) != 0)
    omod = 0;
  rdna3_exec_fn *modified = out_fn(dst);
  if (modified && (op->clamp || omod)) {
    op->out = modified;
    op->out_flag = omod | (unsigned)op->clamp << 2 | (mode & RDNA3_MODE_DX10_CLAMP ? 8u : 0);
    op->clamp = false;
  } else if (is_f16(dst->type) && rdna3_ops[op->row].flags & F_R_MODE && !(rdna3_denorm64(mode) & 2)) {
    op->out = modified;
  }
  if (op->row == RDNA3_VOP3P_v_fma_mixhi_f16 || (dst->bits == 16 && in->opsel & 8 && in->format != RDNA3_VOP3P)) {
    if (!op->out) op->out = rdna3_glue->out_hi16;
    op->out_flag |= 16;
  }
  if (op->out)
    op->u.dst = rdna3_vgpr(TMP_DST);
  else if (dst_row >= 0)
    op->u.dst = dst_row;
}

/* The rounding and denormals of f64 and f16, where the operation uses them and they differ from those of f32; else
 * those of f32. */
static uint32_t fp_word_of(const struct builder *b, const struct operation *op, uint32_t fp32) {
  uint32_t mode = b->t->mode;
  bool uses_mode = rdna3_ops[op->row].flags & F_R_MODE;
  if (op->row == RDNA3_VINTERP_v_interp_p10_rtz_f16_f32 || op->row == RDNA3_VINTERP_v_interp_p2_rtz_f16_f32)
    return rdna3_fp_word(ROUND_TO_ZERO, rdna3_denorm32(mode));
  bool narrow = uses_mode && op->dst && (op->dst->type == RDNA3_TYPE_f64 || is_f16(op->dst->type));
  for (unsigned i = op->first; i < op->last; i++)
    if (b->in->operand[i].type == RDNA3_TYPE_f64 && uses_mode) narrow = true;
  return narrow ? rdna3_fp_word(rdna3_round64(mode), rdna3_denorm64(mode)) : fp32;
}

/* The operation and what it needs before and after. dst_row < 0: the destination is the instruction's. */
static bool build_operation(struct builder *b, ptrdiff_t row, unsigned first, unsigned last, int32_t dst_row) {
  const struct rdna3_op *table = &rdna3_ops[row];
  uint32_t mode = b->t->mode;
  struct operation op = {row, first, last, .clamp = b->in->clamp && table->format != RDNA3_VOPC};
  op.u = (struct rdna3_uop){.inst = b->in, .sdst = RDNA3_SINK, .smask = ZERO, .dst = RDNA3_SINK};
  if (table->flags & F_R_VCC) op.u.smask = RDNA3_VCC;
  if (table->flags & F_W_VCC) op.u.sdst = RDNA3_VCC;
  if (table->format == RDNA3_VOPC) op.u.sdst = table->flags & F_W_EXEC ? RDNA3_EXEC : RDNA3_VCC;
  read_operands(b, &op);
  choose_output(b, &op, dst_row);
  op.u.fn = rdna3_fn[op.clamp][row];
  if (!op.u.fn) return false;
  /* FP16_OVFL (overflow saturates instead of giving infinity) is not supported: such code faults and says so. */
  if (mode & RDNA3_MODE_FP16_OVFL && op.dst && is_f16(op.dst->type) && table->flags & F_R_MODE) return false;
  uint32_t fp32 = rdna3_fp_word(rdna3_round32(mode), rdna3_denorm32(mode)), fp = fp_word_of(b, &op, fp32);
  if (fp != fp32) emit(b, rdna3_glue->fp)->arg = fp;
  *emit(b, op.u.fn) = op.u;
  if (fp != fp32) emit(b, rdna3_glue->fp)->arg = fp32;
  if (op.out) {
    if (is_f16(op.dst->type) && !(rdna3_denorm64(mode) & 2)) {
      struct rdna3_uop *f = emit(b, rdna3_glue->flush16);
      f->src[0] = f->dst = rdna3_vgpr(TMP_DST);
    }
    struct rdna3_uop *o = emit(b, op.out);
    o->src[0] = rdna3_vgpr(TMP_DST), o->flag = (uint8_t)op.out_flag;
    o->dst = dst_row >= 0 ? dst_row : rdna3_vgpr(op.dst_code);
  }
  if (b->in->dpp) emit(b, rdna3_glue->lanes);
  return true;
}

/* True for formats other than memory accesses. */
static bool is_vector(const struct rdna3_inst *in) { return in->format < RDNA3_DS || in->format == RDNA3_VINTERP; }

/* Returns the first register of the lane mask that an instruction writes, if it also reads that pair as scalars. In
 * wave64 the high half must not read the low half's result. */
static unsigned overwritten_scalar(const struct rdna3_inst *in) {
  unsigned mask = in->op->format == RDNA3_VOPC || in->op->flags & F_W_VCC ? RDNA3_VCC : RDNA3_SINK;
  for (unsigned i = 0; i < in->operands; i++)
    if (in->operand[i].type == RDNA3_TYPE_m64 &&
        (in->operand[i].field == RDNA3_FIELD_sdst || in->operand[i].field == RDNA3_FIELD_vdst))
      mask = in->arg[i];
  if (mask >= RDNA3_NULL) return RDNA3_SINK;
  for (unsigned i = 0; i < in->operands; i++) {
    const struct rdna3_operand *o = &in->operand[i];
    if (o->kind != RDNA3_KIND_src || in->arg[i] >= RDNA3_NULL) continue;
    if (in->arg[i] <= mask + 1 && in->arg[i] + (o->bits + 31u) / 32 > mask) return mask;
  }
  return RDNA3_SINK;
}

static bool build_halves(struct builder *b, const struct rdna3_inst *in) {
  bool masks = in->op->format == RDNA3_VOPC || in->op->flags & F_W_VCC || in->format == RDNA3_VOP3SD;
  unsigned shadowed = overwritten_scalar(in);
  if (shadowed != RDNA3_SINK) {
    struct rdna3_uop *u = emit(b, rdna3_fn[0][RDNA3_SOP1_s_mov_b64]);
    u->src[0] = (int32_t)(shadowed * 4), u->dst = SHADOW;
  }
  b->shadowed = shadowed;
  for (unsigned half = 0; half < 2; half++) {
    uint32_t at = b->uops;
    struct rdna3_uop *enter = emit(b, rdna3_glue->enter);
    enter->flag = (uint8_t)half;
    if (!is_vector(in)) {
      struct rdna3_uop u = {.inst = in};
      u.fn = rdna3_mem_build(&u);
      if (!u.fn) return false;
      *emit(b, u.fn) = u;
    } else if (!build_operation(b, in->op - rdna3_ops, 0, in->operands, -1)) {
      return false;
    }
    /* Do not skip instructions that write lane masks if no lane is active: the mask's bits become 0. */
    if (!masks && !b->failed) b->uop[at].arg = b->uops - at;
  }
  b->shadowed = RDNA3_SINK;
  return true;
}

static bool reads_vgpr(const struct rdna3_inst *in, unsigned first, unsigned last, ptrdiff_t row, unsigned reg) {
  for (unsigned i = first; i < last; i++) {
    bool is_dst = in->operand[i].field == RDNA3_FIELD_vdstx || in->operand[i].field == RDNA3_FIELD_vdsty;
    if (is_dst && !accumulates(row)) continue;
    if (in->operand[i].kind == RDNA3_KIND_vgpr ? in->arg[i] == reg : in->arg[i] == RDNA3_VGPR0 + reg) return true;
  }
  return false;
}

/* Returns the VOP2 or VOP1 row of one half of a pair. */
static ptrdiff_t pair_row(const struct rdna3_op *op) {
  static const uint16_t rows[] = {
      RDNA3_VOP2_v_fmac_f32,        RDNA3_VOP2_v_fmaak_f32,   RDNA3_VOP2_v_fmamk_f32,  RDNA3_VOP2_v_mul_f32,
      RDNA3_VOP2_v_add_f32,         RDNA3_VOP2_v_sub_f32,     RDNA3_VOP2_v_subrev_f32, RDNA3_VOP2_v_mul_dx9_zero_f32,
      RDNA3_VOP1_v_mov_b32,         RDNA3_VOP2_v_cndmask_b32, RDNA3_VOP2_v_max_f32,    RDNA3_VOP2_v_min_f32,
      RDNA3_VOP2_v_dot2acc_f32_f16, RDNA3_ROW_COUNT,          RDNA3_ROW_COUNT,         RDNA3_ROW_COUNT,
      RDNA3_VOP2_v_add_nc_u32,      RDNA3_VOP2_v_lshlrev_b32, RDNA3_VOP2_v_and_b32,
  };
  return op->opcode < sizeof rows / sizeof *rows ? rows[op->opcode] : RDNA3_ROW_COUNT;
}

/* Both halves must read their sources before either writes. Executing one after the other is correct unless each reads
 * what the other writes. */
static bool build_pair(struct builder *b, const struct rdna3_inst *in) {
  ptrdiff_t x = pair_row(in->op), y = pair_row(in->opy);
  if (x == RDNA3_ROW_COUNT || y == RDNA3_ROW_COUNT) return false;
  unsigned mid = in->operands_x, end = in->operands;
  unsigned dst_x = in->arg[0], dst_y = in->arg[mid];
  bool y_reads_x = reads_vgpr(in, mid, end, y, dst_x), x_reads_y = reads_vgpr(in, 0, mid, x, dst_y);
  if (!y_reads_x) return build_operation(b, x, 0, mid, -1) && build_operation(b, y, mid, end, -1);
  if (!x_reads_y) return build_operation(b, y, mid, end, -1) && build_operation(b, x, 0, mid, -1);
  if (!build_operation(b, x, 0, mid, rdna3_vgpr(TMP_DST)) || !build_operation(b, y, mid, end, -1)) return false;
  struct rdna3_uop *u = emit(b, rdna3_glue->move);
  u->src[0] = rdna3_vgpr(TMP_DST), u->dst = rdna3_vgpr(dst_x);
  return true;
}

/* Checks for sources that can be encoded but that this machine does not have. */
static bool reads_unknown(const struct rdna3_inst *in) {
  for (unsigned i = 0; i < in->operands; i++) {
    unsigned kind = in->operand[i].kind, n = in->arg[i];
    bool source = kind == RDNA3_KIND_src || kind == RDNA3_KIND_ssrc || kind == RDNA3_KIND_ssrc_lanesel ||
                  kind == RDNA3_KIND_sreg_m0_inl || kind == RDNA3_KIND_src_vgpr;
    if (source && (n == RDNA3_POPS_WAVE || n == RDNA3_VCCZ || n == RDNA3_EXECZ || n == RDNA3_LDS_DIRECT)) return true;
    if (kind == RDNA3_KIND_src_vgpr && n < RDNA3_VGPR0) return true;
    if (kind == RDNA3_KIND_src_vgpr_or_inline &&
        (n < RDNA3_INT0 || (n >= RDNA3_SHARED_BASE && n <= RDNA3_POPS_WAVE) || (n >= RDNA3_VCCZ && n < RDNA3_VGPR0)))
      return true;
    if (kind == RDNA3_KIND_sreg && n >= RDNA3_INT0) return true;
  }
  return false;
}

static bool build_inst(struct builder *b, const struct rdna3_inst *in) {
  if (!in->op || reads_unknown(in)) return false;
  ptrdiff_t row = in->op - rdna3_ops;
  switch (in->format) {
  case RDNA3_SOP2:
  case RDNA3_SOPK:
  case RDNA3_SOP1:
  case RDNA3_SOPC:
  case RDNA3_SOPP:
    if (!rdna3_fn[0][row]) return false;
    /* The operand must be a register; LLVM also accepts a constant, which has no meaning here. */
    if (row == RDNA3_SOP1_s_movrelsd_2_b32 && is_constant(in->arg[1])) return false;
    build_scalar(b, in, rdna3_fn[0][row]);
    return true;
  case RDNA3_VOPD_X: return !b->t->wave64 && build_pair(b, in);
  case RDNA3_SMEM: break;
  default:
    if (b->t->wave64 && !whole_wave(in)) return build_halves(b, in);
    if (is_vector(in)) return build_operation(b, row, 0, in->operands, -1);
  }
  struct rdna3_uop u = {.inst = in};
  u.fn = rdna3_mem_build(&u);
  if (!u.fn) return false;
  *emit(b, u.fn) = u;
  return true;
}

/* ---- traces ---- */

static bool branch_target(const struct rdna3_trace *t, const struct rdna3_inst *in, uint32_t *word) {
  for (unsigned i = 0; in->op && i < in->operands; i++) {
    if (in->operand[i].kind != RDNA3_KIND_label) continue;
    uint64_t to = in->pc + in->size + (uint64_t)((int64_t)(int16_t)in->arg[i] * 4);
    if (to < t->code.start || to >= t->code.end) return false;
    *word = (uint32_t)((to - t->code.start) / 4);
    return true;
  }
  return false;
}

/* Constants follow the micro-operations in the same allocation; a micro-operation finds them by their offset from
 * it. */
static int lay_out(struct builder *b) {
  struct rdna3_trace *t = b->t;
  size_t code = (b->uops * sizeof *b->uop + 127) & ~(size_t)127;
  size_t rows = (size_t)b->rows * RDNA3_LANES * 4, quads = (b->quads * 8 + 127) & ~(size_t)127;
  if (code + rows + quads > INT32_MAX) return -ENOMEM;
  char *pool = aligned_alloc(128, code + rows + quads);
  if (!pool) return -ENOMEM;
  memcpy(pool, b->uop, b->uops * sizeof *b->uop);
  uint32_t *row = (uint32_t *)(pool + code);
  for (uint32_t i = 0; i < b->rows; i++)
    for (unsigned l = 0; l < RDNA3_LANES; l++) *row++ = b->row[i];
  if (b->quads) memcpy(pool + code + rows, b->quad, b->quads * 8);
  t->pool = pool, t->uop = (struct rdna3_uop *)pool, t->uops = b->uops;
  for (uint32_t i = 0; i < t->uops; i++) {
    struct rdna3_uop *u = &t->uop[i];
    uint32_t word;
    for (unsigned k = 0; k < 3; k++)
      if (u->constant >> k & 1) {
        uint32_t n = (uint32_t)u->src[k];
        const char *at =
            n & QUAD ? pool + code + rows + (n & ~(uint32_t)QUAD) * 8 : pool + code + (size_t)n * RDNA3_LANES * 4;
        u->src[k] = (int32_t)(at - (const char *)u);
      }
    if (u->fn == rdna3_glue->enter)
      u->target = u->arg ? u + u->arg : NULL;
    else if (branch_target(t, u->inst, &word) && t->uop_of[word] != NO_TARGET)
      u->target = &t->uop[t->uop_of[word]];
  }
  return 0;
}

int rdna3_build(struct rdna3_trace *t) {
  size_t words = (t->code.end - t->code.start) / 4;
  struct builder b = {.t = t, .shadowed = RDNA3_SINK};
  int r = -ENOMEM;
  bool changed = false;
  if (t->counts && rdna3_tally_kinds(t)) return -ENOMEM;
  b.target = calloc(words + 1, 1);
  t->uop_of = malloc((words + 1) * sizeof *t->uop_of);
  if (!b.target || !t->uop_of) goto out;
  for (size_t i = 0; i <= words; i++) t->uop_of[i] = NO_TARGET;
  for (uint32_t i = 0; i < t->insts; i++) {
    uint32_t word;
    if (branch_target(t, &t->inst[i], &word)) b.target[word] = true;
  }
  for (uint32_t i = 0; i < t->insts; i++) {
    const struct rdna3_inst *in = &t->inst[i];
    uint32_t word = (uint32_t)((in->pc - t->code.start) / 4), at;
    b.in = in;
    t->uop_of[word] = b.uops;
    if (t->counts_all && changed) emit(&b, rdna3_exec_tally_exec);
    changed = in->op && rdna3_changes_exec(in);
    if (t->records && in->op) emit(&b, rdna3_exec_record);
    if (t->counts_all && in->op && rdna3_tallies(in)) emit(&b, rdna3_exec_tally);
    if (t->counts_lds && in->op && (in->format == RDNA3_DS || in->format == RDNA3_FLAT)) emit(&b, rdna3_exec_tally_lds);
    at = b.uops;
    /* Skip instructions without effect, except at branch targets: counting of a straight-line run starts at the
     * target. */
    if (in->op && is_noop(in) && !b.target[word] && i) continue;
    if (in->op && is_noop(in)) {
      emit(&b, rdna3_glue->lanes);
    } else if ((t->strict && in->ignored) || !build_inst(&b, in)) {
      b.uops = at;
      emit(&b, rdna3_exec_illegal);
    }
  }
  /* One past the last instruction: rdna3_count uses its address. */
  b.in = &t->inst[t->insts];
  if (t->counts_all && changed) emit(&b, rdna3_exec_tally_exec);
  emit(&b, rdna3_exec_continue);
  r = b.failed ? -ENOMEM : lay_out(&b);
out:
  free(b.target), free(b.uop), free(b.row), free(b.quad);
  return r;
}
