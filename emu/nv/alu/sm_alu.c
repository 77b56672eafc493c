/* Builders of integer, logic and predicate instructions, vector and uniform. Bit positions: nvdisasm output. */
#include "sm_operand.h"

#define BUILD(name) static bool name(struct sm_builder *b, const struct sass_inst *inst, const char **why)
/* For builders that need the operands before they can choose the function. */
#define SOURCES(layout, wide)                                                                                          \
  struct sm_sources s;                                                                                                 \
  if (!sm_sources(b, inst, layout, wide, &s, why)) return false;

/* Emits a micro-operation with the given sources; NULL ends the list. */
static struct sm_uop *emit_sources(struct sm_builder *b, const struct sass_inst *inst, enum sm_rowop fn,
                                   const struct sm_source *x, const struct sm_source *y, const struct sm_source *z) {
  struct sm_uop *u = sm_begin(b, inst, fn);
  if (!u) return NULL;
  if (x) sm_use(b, u, 0, x);
  if (y) sm_use(b, u, 1, y);
  if (z) sm_use(b, u, 2, z);
  return u;
}
#define BITS(at, n) ((unsigned)sass_bits(inst, at, n))
#define BIT(at)     ((unsigned)sass_bit(inst, at))
/* Returns whether the source in its slot is negated. */
static unsigned negated_bit(const struct sass_inst *inst, const struct sm_source *s) {
  return s->immediate ? 0 : s->slot == SM_SLOT_A ? BIT(72) : s->slot == SM_SLOT_32 ? BIT(63) : BIT(75);
}

/* ---- moves and selects ---- */
BUILD(mov) {
  if (!sm_is_uniform(inst) && BITS(72, 4) != 0xf) return sm_refuse(why, "a mask of lanes");
  return sm_built(sm_simple(b, inst, SM_LAYOUT_B, SM_FN_mov, why), why);
}
BUILD(sel) {
  struct sm_uop *u = sm_simple(b, inst, SM_LAYOUT_AB, SM_FN_sel, why);
  if (u) sm_predicate_in(u, 0, 87);
  return sm_built(u, why);
}

/* ---- comparisons ---- */
BUILD(isetp) {
  /* each comparison from five functions: the function, whether to invert it, and the function for high halves */
  static const struct {
    uint16_t fn[2], high[2]; /* [0] unsigned, [1] signed */
    bool invert;
  } table[8] = {
      {{SM_FN_isetp_false, SM_FN_isetp_false}, {SM_FN_isetp_false, SM_FN_isetp_false}, false},
      {{SM_FN_isetp_lt_u, SM_FN_isetp_lt}, {SM_FN_isetp_ex_u, SM_FN_isetp_ex}, false},
      {{SM_FN_isetp_eq, SM_FN_isetp_eq}, {SM_FN_isetp_ex_eq, SM_FN_isetp_ex_eq}, false},
      {{SM_FN_isetp_le_u, SM_FN_isetp_le}, {SM_FN_isetp_ex_u, SM_FN_isetp_ex}, false},
      {{SM_FN_isetp_le_u, SM_FN_isetp_le}, {SM_FN_isetp_ex_u, SM_FN_isetp_ex}, true},
      {{SM_FN_isetp_eq, SM_FN_isetp_eq}, {SM_FN_isetp_ex_eq, SM_FN_isetp_ex_eq}, true},
      {{SM_FN_isetp_lt_u, SM_FN_isetp_lt}, {SM_FN_isetp_ex_u, SM_FN_isetp_ex}, true},
      {{SM_FN_isetp_false, SM_FN_isetp_false}, {SM_FN_isetp_false, SM_FN_isetp_false}, true},
  };
  unsigned cmp = BITS(76, 3), combine = BITS(74, 2), high = BIT(72);
  struct sm_uop *u = sm_simple(b, inst, SM_LAYOUT_AB, high ? table[cmp].high[BIT(73)] : table[cmp].fn[BIT(73)], why);
  if (!u) return !*why;
  sm_predicate_out(u, 0, 81);
  sm_predicate_out(u, 1, 84);
  sm_predicate_in(u, 0, 87);
  if (high) sm_predicate_in(u, 1, 68);
  if (high && table[cmp].invert) u->psrc_not ^= 2;
  u->arg = combine | (uint32_t)table[cmp].invert << SM_INVERT_SHIFT;
  return true;
}

/* ---- sums ---- */
static void build_carries(struct sm_uop *u, const struct sass_inst *inst, bool second) {
  sm_predicate_out(u, 0, 81);
  if (second) sm_predicate_out(u, 1, 84);
  if (!BIT(74)) return;
  u->flag |= SM_CARRY_IN;
  sm_predicate_in(u, 0, 87);
  if (second) sm_predicate_in(u, 1, 77);
}
BUILD(iadd3) {
  SOURCES(SM_LAYOUT_ABC, 0)
  unsigned neg = negated_bit(inst, &s.a) | negated_bit(inst, &s.b) << 1 | negated_bit(inst, &s.c) << 2;
  bool carry = BIT(74) || BITS(81, 3) != SASS_PT || BITS(84, 3) != SASS_PT;
  struct sm_uop *u;
  if (carry)
    u = emit_sources(b, inst, SM_FN_iadd3_carry, &s.a, &s.b, &s.c);
  else if (!neg && s.c.zero)
    return emit_sources(b, inst, SM_FN_iadd, &s.a, &s.b, NULL), true;
  else if (!neg && s.b.zero)
    return emit_sources(b, inst, SM_FN_iadd, &s.a, &s.c, NULL), true;
  else if (!neg)
    return emit_sources(b, inst, SM_FN_iadd3, &s.a, &s.b, &s.c), true;
  else if (s.c.zero && neg == 2)
    return emit_sources(b, inst, SM_FN_isub, &s.a, &s.b, NULL), true;
  else if (s.c.zero && neg == 1)
    return emit_sources(b, inst, SM_FN_isub, &s.b, &s.a, NULL), true;
  else
    u = emit_sources(b, inst, SM_FN_iadd3_neg, &s.a, &s.b, &s.c);
  if (!u) return true;
  u->flag = neg;
  if (carry) build_carries(u, inst, true);
  return true;
}
BUILD(iadd3_64) {
  /* It is not known how negative immediates are extended; ptxas puts them in registers. */
  bool immediate = inst->form == 4 && !BITS(63, 1);
  if (inst->form != 1 && !immediate) return sm_refuse(why, "a negative immediate or a constant of 64 bits");
  SOURCES(SM_LAYOUT_ABC, 7)
  if (BITS(16, 6) != SASS_URZ && BITS(16, 1)) return sm_refuse(why, "a register pair that begins at an odd register");
  struct sm_uop *u = emit_sources(b, inst, SM_FN_iadd3_64, &s.a, &s.b, &s.c);
  if (!u) return true;
  if (immediate) sm_constant64(b, u, 1, BITS(32, 32));
  u->flag = negated_bit(inst, &s.a) | negated_bit(inst, &s.b) << 1 | negated_bit(inst, &s.c) << 2;
  build_carries(u, inst, true);
  return true;
}
BUILD(viadd) {
  SOURCES(SM_LAYOUT_AB, 0)
  unsigned neg = negated_bit(inst, &s.b), halves = BIT(73);
  struct sm_uop *u = emit_sources(b, inst, halves ? SM_FN_viadd_16x2 : neg ? SM_FN_isub : SM_FN_iadd, &s.a, &s.b, NULL);
  if (u && halves) u->flag = neg << 1;
  return true;
}
BUILD(lea) {
  SOURCES(SM_LAYOUT_ABC, 0)
  unsigned high = BIT(80), neg = negated_bit(inst, &s.a) | (s.b.slot == SM_SLOT_32 ? negated_bit(inst, &s.b) << 1 : 0);
  bool plain = !high && !neg && !BIT(74) && BITS(81, 3) == SASS_PT;
  struct sm_uop *u = emit_sources(b, inst,
                                  plain  ? SM_FN_shl_add
                                  : high ? SM_FN_lea_hi
                                         : SM_FN_lea,
                                  &s.a, &s.b, plain ? NULL : &s.c);
  if (!u) return true;
  u->arg = BITS(75, 5);
  if (plain) return true;
  u->flag = neg | BIT(73) << 2;
  build_carries(u, inst, false);
  return true;
}
BUILD(iabs) { return sm_built(sm_simple(b, inst, SM_LAYOUT_B, SM_FN_iabs, why), why); }
BUILD(vabsdiff) {
  return sm_built(sm_simple(b, inst, SM_LAYOUT_ABC, BIT(73) ? SM_FN_vabsdiff : SM_FN_vabsdiff_u, why), why);
}
BUILD(vabsdiff4) {
  static const uint16_t fn[2][2] = {{SM_FN_vabsdiff4_u, SM_FN_vabsdiff4}, {SM_FN_vabsdiff4_acc_u, SM_FN_vabsdiff4_acc}};
  return sm_built(sm_simple(b, inst, SM_LAYOUT_ABC, fn[BIT(75)][BIT(73)], why), why);
}

/* ---- minimum and maximum ---- */
static struct sm_uop *build_minmax(struct sm_builder *b, const struct sass_inst *inst, const struct sm_sources *s,
                                   unsigned is_signed, unsigned flag) {
  static const uint16_t fn[2][2] = {{SM_FN_minmax_u, SM_FN_minmax}, {SM_FN_minmax_u16, SM_FN_minmax_16}};
  unsigned halves = !(inst->id == SASS_IMNMX) && BIT(73);
  struct sm_uop *u = emit_sources(b, inst, fn[halves][is_signed], &s->a, &s->b, &s->c);
  if (!u) return NULL;
  u->flag = flag;
  sm_predicate_in(u, 0, 87);
  return u;
}
/* Minimum or maximum of two operands. */
BUILD(vimnmx) {
  static const uint16_t fn[2][2] = {{SM_FN_imax_u, SM_FN_imax}, {SM_FN_imin_u, SM_FN_imin}};
  bool old = inst->id == SASS_IMNMX;
  unsigned is_signed = old ? BIT(73) : BIT(72), plain = old || (!BIT(73) && !BIT(76));
  if (!old && BITS(81, 3) != SASS_PT) return sm_refuse(why, "predicates as results");
  SOURCES(SM_LAYOUT_AB, 0)
  if (plain && (sm_always(inst, 87) || sm_never(inst, 87)))
    return emit_sources(b, inst, fn[sm_always(inst, 87)][is_signed], &s.a, &s.b, NULL), true;
  s.c = s.b; /* encoded but not used */
  build_minmax(b, inst, &s, is_signed, old ? 0 : BIT(76) ? SM_RELU : 0);
  return true;
}
BUILD(vimnmx3) {
  SOURCES(SM_LAYOUT_ABC, 0)
  build_minmax(b, inst, &s, BIT(72), SM_MINMAX_THIRD | (BIT(76) ? SM_RELU : 0));
  return true;
}
BUILD(viaddmnmx) {
  SOURCES(SM_LAYOUT_ABC, 0)
  build_minmax(b, inst, &s, BIT(72),
               SM_MINMAX_ADD | (BIT(76) ? SM_RELU : 0) | negated_bit(inst, &s.b) << 1 | negated_bit(inst, &s.c) << 2);
  return true;
}

/* ---- logic ---- */
BUILD(lop3) {
  static const struct {
    uint8_t lut;
    bool two; /* true if the result does not depend on c */
    uint16_t fn;
  } known[] = {
      {0xc0, true, SM_FN_and_},    {0xfc, true, SM_FN_or_},      {0x3c, true, SM_FN_xor_},
      {0x33, true, SM_FN_not_b},   {0x30, true, SM_FN_andn_b},   {0x0c, true, SM_FN_andn_a},
      {0x80, false, SM_FN_and3},   {0xfe, false, SM_FN_or3},     {0x96, false, SM_FN_xor3},
      {0xea, false, SM_FN_and_or}, {0xf8, false, SM_FN_or_and},  {0xa8, false, SM_FN_or_and_c},
      {0xe2, false, SM_FN_mux_b},  {0x78, false, SM_FN_xor_and}, {0xca, false, SM_FN_mux_a},
  };
  SOURCES(SM_LAYOUT_ABC, 0)
  unsigned lut = BITS(72, 8);
  if (BITS(81, 3) != SASS_PT) {
    struct sm_uop *u = emit_sources(b, inst, SM_FN_lop3_p, &s.a, &s.b, &s.c);
    if (!u) return true;
    u->arg = lut | BIT(80) << 8;
    sm_predicate_out(u, 0, 81);
    sm_predicate_in(u, 0, 87);
    return true;
  }
  for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].lut == lut) return emit_sources(b, inst, known[i].fn, &s.a, &s.b, known[i].two ? NULL : &s.c), true;
  struct sm_uop *u = emit_sources(b, inst, SM_FN_lop3, &s.a, &s.b, &s.c);
  if (u) u->arg = lut;
  return true;
}
BUILD(plop3) {
  struct sm_uop *u = sm_begin(b, inst, SM_FN_plop3);
  if (!u) return true;
  sm_predicate_out(u, 0, 81);
  sm_predicate_out(u, 1, 84);
  sm_predicate_in(u, 0, 87);
  sm_predicate_in(u, 1, 77);
  sm_predicate_in(u, 2, 68);
  if (BIT(67) && u->psrc[2] < SM_UP) u->psrc[2] += SM_UP;
  u->arg = BITS(64, 3) | BITS(72, 5) << 3 | BITS(16, 8) << 8;
  return true;
}
/* One, two or three inputs are sign bits of registers; the lowest bits of the opcode select how many. */
BUILD(plop3_sign) {
  unsigned kind = inst->opcode & 3; /* 1: b; 2: b and c; 3: all */
  *why = NULL;
  struct sm_sources s;
  if (!sm_sources(b, inst, SM_LAYOUT_AB, 0, &s, why)) return false;
  if (kind > 1 && !sm_sources(b, inst, SM_LAYOUT_ABC, 0, &s, why)) return false;
  struct sm_uop *u = emit_sources(b, inst, SM_FN_plop3_sign, &s.a, &s.b, kind > 1 ? &s.c : NULL);
  if (!u) return true;
  sm_predicate_out(u, 0, 81);
  sm_predicate_out(u, 1, 84);
  if (kind < 3) sm_predicate_in(u, 0, 87);
  if (kind < 2) sm_predicate_in(u, 2, 68);
  if (kind < 2 && BIT(67) && u->psrc[2] < SM_UP) u->psrc[2] += SM_UP;
  u->flag = kind == 1 ? 2 : kind == 2 ? 6 : 7;
  u->arg = BITS(72, 8) | BITS(16, 8) << 8;
  return true;
}
BUILD(p2r) {
  struct sm_uop *u = sm_simple(b, inst, SM_LAYOUT_AB, SM_FN_p2r, why);
  if (!u) return !*why;
  u->psrc[0] = sm_is_uniform(inst) ? SM_UP : SM_P;
  u->arg = 8 * BITS(76, 2);
  return true;
}
BUILD(r2p) {
  struct sm_uop *u = sm_simple(b, inst, SM_LAYOUT_AB, SM_FN_r2p, why);
  if (!u) return !*why;
  u->pdst[0] = sm_is_uniform(inst) ? SM_UP : SM_P;
  u->arg = 8 * BITS(76, 2);
  return true;
}

/* ---- shifts and bytes ---- */
BUILD(shf) {
  SOURCES(SM_LAYOUT_ABC, 0)
  unsigned type = BITS(73, 2), wrap = BIT(75), right = BIT(76), high = BIT(80), is_signed = type == 2;
  struct sm_uop *u = NULL;
  const struct sm_source *x = high ? &s.c : &s.a, *y = high ? &s.a : &s.c;
  if (type >= 2 && s.b.immediate) {
    unsigned n = wrap ? s.b.value & 31 : s.b.value < 32 ? (unsigned)s.b.value : 32;
    if (n == 0) return emit_sources(b, inst, SM_FN_mov, x, NULL, NULL), true;
    if (n < 32) {
      if (right && high)
        u = emit_sources(b, inst, is_signed ? SM_FN_sar : SM_FN_shr, x, NULL, NULL);
      else if (right == high || y->zero) /* shift in the other word's bits, or zeros */
        u = y->zero ? emit_sources(b, inst, right ? SM_FN_shr : SM_FN_shl, x, NULL, NULL) : NULL;
      if (!u && !right && !high) u = emit_sources(b, inst, SM_FN_shl, x, NULL, NULL);
      if (!u && !right && high) u = emit_sources(b, inst, SM_FN_funnel_left, &s.a, &s.c, NULL);
      if (!u && right && !high) u = emit_sources(b, inst, SM_FN_funnel_right, &s.a, &s.c, NULL);
      if (u) u->arg = n;
      return true;
    }
  }
  if (type >= 2 && !wrap) {
    if (!right && !high) return emit_sources(b, inst, SM_FN_shl_v, &s.a, &s.b, NULL), true;
    if (right && high) return emit_sources(b, inst, is_signed ? SM_FN_sar_v : SM_FN_shr_v, &s.c, &s.b, NULL), true;
    if (right && !is_signed && s.c.zero) return emit_sources(b, inst, SM_FN_shr_v, &s.a, &s.b, NULL), true;
  }
  u = emit_sources(b, inst, SM_FN_shf, &s.a, &s.b, &s.c);
  if (u) u->flag = BITS(73, 8);
  return true;
}
BUILD(sgxt) {
  struct sm_uop *u = sm_simple(b, inst, SM_LAYOUT_AB, SM_FN_sgxt, why);
  if (u) u->flag = BITS(73, 3);
  return sm_built(u, why);
}
BUILD(bmsk) {
  struct sm_uop *u = sm_simple(b, inst, SM_LAYOUT_AB, SM_FN_bmsk, why);
  if (u) u->flag = BITS(73, 3);
  return sm_built(u, why);
}
BUILD(prmt) {
  SOURCES(SM_LAYOUT_ABC, 0)
  unsigned mode = BITS(72, 3);
  if (mode > 6) return sm_refuse(why, "this mode");
  bool same = !mode && s.b.immediate;
  struct sm_uop *u = emit_sources(b, inst,
                                  mode   ? SM_FN_prmt_mode
                                  : same ? SM_FN_prmt_same
                                         : SM_FN_prmt,
                                  &s.a, &s.b, &s.c);
  if (u) u->arg = same ? (uint32_t)s.b.value : mode;
  return true;
}
BUILD(popc) {
  struct sm_uop *u = sm_simple(b, inst, SM_LAYOUT_B, SM_FN_popc, why);
  if (u && inst->form != 4) u->arg = 0 - BIT(63);
  return sm_built(u, why);
}
BUILD(brev) { return sm_built(sm_simple(b, inst, SM_LAYOUT_B, SM_FN_brev, why), why); }
BUILD(flo) {
  struct sm_uop *u = sm_simple(b, inst, SM_LAYOUT_B, SM_FN_flo, why);
  if (!u) return !*why;
  u->arg = inst->form != 4 ? 0 - BIT(63) : 0, u->flag = BITS(73, 2);
  sm_predicate_out(u, 0, 81);
  return true;
}

/* ---- products ---- */
BUILD(imad) {
  SOURCES(SM_LAYOUT_ABC, 0)
  unsigned neg = negated_bit(inst, &s.c);
  if (BIT(74)) {
    struct sm_uop *u = emit_sources(b, inst, SM_FN_imad_x, &s.a, &s.b, &s.c);
    if (u) sm_predicate_in(u, 0, 87), u->flag = neg << 2;
    return true;
  }
  uint64_t factor = s.b.immediate ? s.b.value : 0;
  if (!neg && (s.a.zero || s.b.zero)) return emit_sources(b, inst, SM_FN_mov, &s.c, NULL, NULL), true;
  if (!neg && factor == 1) return emit_sources(b, inst, SM_FN_iadd, &s.a, &s.c, NULL), true;
  if (neg && factor == 1) return emit_sources(b, inst, SM_FN_isub, &s.a, &s.c, NULL), true;
  if (!neg && factor && !(factor & (factor - 1))) {
    struct sm_uop *u = s.c.zero ? emit_sources(b, inst, SM_FN_shl, &s.a, NULL, NULL)
                                : emit_sources(b, inst, SM_FN_shl_add, &s.a, &s.c, NULL);
    if (u) u->arg = (uint32_t)__builtin_ctzll(factor);
    return true;
  }
  if (s.c.zero) return emit_sources(b, inst, SM_FN_imul, &s.a, &s.b, NULL), true;
  emit_sources(b, inst, neg ? SM_FN_imad_sub : SM_FN_imad, &s.a, &s.b, &s.c);
  return true;
}
static bool imad_pair(struct sm_builder *b, const struct sass_inst *inst, const char **why, bool high) {
  SOURCES(SM_LAYOUT_ABC, 4)
  if (!high && sm_odd_pair(inst)) return sm_refuse(why, "a register pair that begins at an odd register");
  unsigned neg = negated_bit(inst, &s.c), is_signed = BIT(73);
  if (!neg && !BIT(74) && BITS(81, 3) == SASS_PT && (!high || s.c.zero)) {
    if (high)
      emit_sources(b, inst, is_signed ? SM_FN_imul_hi : SM_FN_imul_hi_u, &s.a, &s.b, NULL);
    else
      emit_sources(b, inst, is_signed ? SM_FN_imad_wide : SM_FN_imad_wide_u, &s.a, &s.b, &s.c);
    return true;
  }
  struct sm_uop *u = emit_sources(b, inst, SM_FN_imad_wide_carry, &s.a, &s.b, &s.c);
  if (!u) return true;
  u->flag = neg << 2 | (is_signed ? 0 : SM_UNSIGNED), u->arg = high;
  build_carries(u, inst, false);
  return true;
}
BUILD(imad_wide) { return imad_pair(b, inst, why, false); }
BUILD(imad_hi) { return imad_pair(b, inst, why, true); }
BUILD(idp) {
  unsigned kind = BITS(76, 2);
  SOURCES(SM_LAYOUT_ABC, 0)
  struct sm_uop *u = emit_sources(b, inst, kind ? SM_FN_idp2 : SM_FN_idp4, &s.a, &s.b, &s.c);
  if (u) u->flag = BITS(73, 2) | negated_bit(inst, &s.c) << 2, u->arg = kind == 3 ? 16 : 0;
  return true;
}

const struct sm_family sm_alu_family[] = {
    {SASS_MOV, mov},
    {SASS_UMOV, mov},
    {SASS_SEL, sel},
    {SASS_USEL, sel},
    {SASS_ISETP, isetp},
    {SASS_UISETP, isetp},
    {SASS_IADD3, iadd3},
    {SASS_UIADD3, iadd3},
    {SASS_UIADD3_64, iadd3_64},
    {SASS_VIADD, viadd},
    {SASS_LEA, lea},
    {SASS_ULEA, lea},
    {SASS_IABS, iabs},
    {SASS_VABSDIFF, vabsdiff},
    {SASS_VABSDIFF4, vabsdiff4},
    {SASS_IMNMX, vimnmx},
    {SASS_VIMNMX, vimnmx},
    {SASS_VIMNMX3, vimnmx3},
    {SASS_VIADDMNMX, viaddmnmx},
    {SASS_LOP3, lop3},
    {SASS_ULOP3, lop3},
    {SASS_PLOP3, plop3},
    {SASS_UPLOP3, plop3},
    {SASS_PLOP3_SIGN, plop3_sign},
    {SASS_UPLOP3_SIGN, plop3_sign},
    {SASS_P2R, p2r},
    {SASS_UP2UR, p2r},
    {SASS_R2P, r2p},
    {SASS_UR2UP, r2p},
    {SASS_SHF, shf},
    {SASS_USHF, shf},
    {SASS_SGXT, sgxt},
    {SASS_USGXT, sgxt},
    {SASS_BMSK, bmsk},
    {SASS_UBMSK, bmsk},
    {SASS_PRMT, prmt},
    {SASS_UPRMT, prmt},
    {SASS_POPC, popc},
    {SASS_UPOPC, popc},
    {SASS_BREV, brev},
    {SASS_UBREV, brev},
    {SASS_FLO, flo},
    {SASS_UFLO, flo},
    {SASS_IMAD, imad},
    {SASS_UIMAD, imad},
    {SASS_IMAD_WIDE, imad_wide},
    {SASS_UIMAD_WIDE, imad_wide},
    {SASS_IMAD_HI, imad_hi},
    {SASS_IDP, idp},
    {SASS_ID_COUNT, NULL},
};
