/* Builders of floating-point instructions: f32, f64, packed f16 and bf16, and MUFU. Bit positions: nvdisasm output. */
#include "sm_operand.h"

#define BUILD(name) static bool name(struct sm_builder *b, const struct sass_inst *inst, const char **why)
#define SOURCES(layout, wide)                                                                                          \
  struct sm_sources s;                                                                                                 \
  if (!sm_sources(b, inst, layout, wide, &s, why)) return false;
#define BITS(at, n) ((unsigned)sass_bits(inst, at, n))
#define BIT(at)     ((unsigned)sass_bit(inst, at))

/* Builds an operation on x, y and optionally z. fn has four variants: plain; with source modifiers; with denormal
 * flushing, too; with saturation, another rounding mode or a scale, too. The result is multiplied by 2^scale. */
static bool build_arithmetic(struct sm_builder *b, const struct sass_inst *inst, const uint16_t fn[4],
                             const struct sm_source *x, const struct sm_source *y, const struct sm_source *z,
                             bool multiplies, int scale) {
  unsigned round = BITS(78, 2);
  uint32_t flag = sm_modifiers(inst, 0, x) | sm_modifiers(inst, 1, y) | (z ? sm_modifiers(inst, 2, z) : 0) |
                  (BIT(80) ? SM_FTZ : 0) | (BIT(77) ? SM_SAT : 0) | (multiplies && BIT(76) ? SM_FMZ : 0);
  enum sm_rowop f = scale || flag & (SM_SAT | SM_FMZ) ? fn[3] : flag & SM_FTZ ? fn[2] : flag ? fn[1] : fn[0];
  if (!sm_round_begin(b, inst, round)) return true;
  struct sm_uop *u = sm_begin(b, inst, f);
  if (!u) return true;
  sm_use(b, u, 0, x);
  sm_use(b, u, 1, y);
  if (z) sm_use(b, u, 2, z);
  u->flag = flag;
  u->arg = (uint32_t)scale;
  sm_round_end(b, inst, round);
  return true;
}
#define VARIANTS(f) {SM_FN_##f, SM_FN_##f##_m, SM_FN_##f##_ftz, SM_FN_##f##_any}
BUILD(fadd) {
  static const uint16_t fn[] = VARIANTS(fadd);
  SOURCES(SM_LAYOUT_AC, 0)
  return build_arithmetic(b, inst, fn, &s.a, &s.c, NULL, false, 0);
}
BUILD(fmul) {
  static const uint16_t fn[] = VARIANTS(fmul);
  SOURCES(SM_LAYOUT_AB, 0)
  return build_arithmetic(b, inst, fn, &s.a, &s.b, NULL, true, (int)BITS(84, 3) - 4); /* D8, D4, D2, none, M2, M4, M8 */
}
BUILD(ffma) {
  static const uint16_t fn[] = VARIANTS(ffma);
  SOURCES(SM_LAYOUT_ABC, 0)
  return build_arithmetic(b, inst, fn, &s.a, &s.b, &s.c, true, 0);
}
/* Builds an operation with sources A and B with modifiers. */
static struct sm_uop *build_ab(struct sm_builder *b, const struct sass_inst *inst, enum sm_rowop fn, const char **why) {
  struct sm_sources s;
  if (!sm_sources(b, inst, SM_LAYOUT_AB, 0, &s, why)) return NULL;
  struct sm_uop *u = sm_begin(b, inst, fn);
  if (!u) return NULL;
  sm_use(b, u, 0, &s.a);
  sm_use(b, u, 1, &s.b);
  u->flag = sm_modifiers(inst, 0, &s.a) | sm_modifiers(inst, 1, &s.b) | (BIT(80) ? SM_FTZ : 0);
  return u;
}
BUILD(fsel) {
  struct sm_uop *u = build_ab(b, inst, SM_FN_fsel, why);
  if (u) sm_predicate_in(u, 0, 87);
  return sm_built(u, why);
}
BUILD(fmnmx) {
  struct sm_uop *u = build_ab(b, inst, SM_FN_fmnmx, why);
  if (!u) return !*why;
  sm_predicate_in(u, 0, 87);
  u->flag |= (BIT(81) ? SM_NAN : 0) | (BIT(82) ? SM_XORSIGN : 0);
  return true;
}
/* The sixteen comparisons. The second eight are true for NaNs, so they are inverted ordered comparisons. */
static const struct {
  uint8_t compare;
  bool swap, invert;
} compares[16] = {
    {SM_COMPARE_FALSE, false, false}, {SM_COMPARE_LT, false, false},  {SM_COMPARE_EQ, false, false},
    {SM_COMPARE_LE, false, false},    {SM_COMPARE_LT, true, false},   {SM_COMPARE_NE, false, false},
    {SM_COMPARE_LE, true, false},     {SM_COMPARE_NUM, false, false}, {SM_COMPARE_NUM, false, true},
    {SM_COMPARE_LE, true, true},      {SM_COMPARE_NE, false, true},   {SM_COMPARE_LT, true, true},
    {SM_COMPARE_LE, false, true},     {SM_COMPARE_EQ, false, true},   {SM_COMPARE_LT, false, true},
    {SM_COMPARE_FALSE, false, true},
};
static bool build_compare(struct sm_builder *b, const struct sass_inst *inst, const char **why, enum sm_rowop fn,
                          enum sm_layout layout, unsigned wide, bool ftz) {
  unsigned combine = BITS(74, 2), cmp = BITS(76, 4);
  SOURCES(layout, wide)
  const struct sm_source *x = &s.a, *y = layout == SM_LAYOUT_AC ? &s.c : &s.b;
  if (compares[cmp].swap) {
    const struct sm_source *t = x;
    x = y, y = t;
  }
  struct sm_uop *u = sm_begin(b, inst, fn);
  if (!u) return true;
  sm_use(b, u, 0, x);
  sm_use(b, u, 1, y);
  u->flag = sm_modifiers(inst, 0, x) | sm_modifiers(inst, 1, y) | (ftz ? SM_FTZ : 0);
  u->arg =
      combine | (uint32_t)compares[cmp].compare << SM_COMPARE_SHIFT | (uint32_t)compares[cmp].invert << SM_INVERT_SHIFT;
  sm_predicate_in(u, 0, 87);
  if (fn == SM_FN_fset) return true;
  sm_predicate_out(u, 0, 81);
  sm_predicate_out(u, 1, 84);
  return true;
}
BUILD(fsetp) { return build_compare(b, inst, why, SM_FN_fsetp, SM_LAYOUT_AB, 0, BIT(80)); }
BUILD(fset) { return build_compare(b, inst, why, SM_FN_fset, SM_LAYOUT_AB, 0, BIT(80)); }
BUILD(dsetp) {
  unsigned cmp = BITS(76, 4);
  if (cmp && cmp != 15) return build_compare(b, inst, why, SM_FN_dsetp, SM_LAYOUT_AC, 7, false);
  SOURCES(SM_LAYOUT_AC, 7)
  struct sm_uop *u = sm_begin(b, inst, SM_FN_dsetp_minmax);
  if (!u) return true;
  sm_use(b, u, 0, &s.a);
  sm_use(b, u, 1, &s.c);
  u->flag = sm_modifiers(inst, 0, &s.a) | sm_modifiers(inst, 1, &s.c);
  u->arg = BITS(74, 2) | (uint32_t)(cmp == 15) << SM_INVERT_SHIFT;
  sm_predicate_in(u, 0, 87);
  sm_predicate_out(u, 0, 81);
  sm_predicate_out(u, 1, 84);
  return true;
}
BUILD(fchk) {
  struct sm_uop *u = build_ab(b, inst, SM_FN_fchk, why);
  if (u) sm_predicate_out(u, 0, 81);
  return sm_built(u, why);
}
static bool build_arithmetic64(struct sm_builder *b, const struct sass_inst *inst, const char **why, enum sm_rowop fn,
                               const struct sm_source *x, const struct sm_source *y, const struct sm_source *z) {
  unsigned round = BITS(78, 2);
  if (sm_odd_pair(inst)) return sm_refuse(why, "a register pair that begins at an odd register");
  if (!sm_round_begin(b, inst, round)) return true;
  struct sm_uop *u = sm_begin(b, inst, fn);
  if (!u) return true;
  sm_use(b, u, 0, x);
  sm_use(b, u, 1, y);
  if (z) sm_use(b, u, 2, z);
  u->flag = sm_modifiers(inst, 0, x) | sm_modifiers(inst, 1, y) | (z ? sm_modifiers(inst, 2, z) : 0);
  sm_round_end(b, inst, round);
  return true;
}
BUILD(dadd) {
  SOURCES(SM_LAYOUT_AC64, 7)
  return build_arithmetic64(b, inst, why, SM_FN_dadd, &s.a, &s.c, NULL);
}
BUILD(dmul) {
  SOURCES(SM_LAYOUT_AB, 7)
  return build_arithmetic64(b, inst, why, SM_FN_dmul, &s.a, &s.b, NULL);
}
BUILD(dfma) {
  SOURCES(SM_LAYOUT_ABC, 7)
  return build_arithmetic64(b, inst, why, SM_FN_dfma, &s.a, &s.b, &s.c);
}

/* ---- packed halves ---- */

/* Sets the flag bits for a source's halves and modifiers; the bits of both belong to slots. Returns false for an
 * invalid swizzle. */
static bool add_half_modifiers(const struct sass_inst *inst, unsigned i, const struct sm_source *s, bool swizzles,
                               uint32_t *flag) {
  static const uint8_t swizzle[] = {[SM_SLOT_A] = 74, [SM_SLOT_32] = 60, [SM_SLOT_64] = 81},
                       neg[] = {[SM_SLOT_A] = 72, [SM_SLOT_32] = 63, [SM_SLOT_64] = 84},
                       abs[] = {[SM_SLOT_A] = 73, [SM_SLOT_32] = 62, [SM_SLOT_64] = 83};
  if (s->immediate) return true;
  unsigned which = swizzles ? BITS(swizzle[s->slot], 2) : 0;
  *flag |=
      (BIT(neg[s->slot]) ? SM_NEG(i) : 0) | (BIT(abs[s->slot]) ? SM_ABS(i) : 0) | which << (SM_HALVES_SHIFT + 2 * i);
  return which != 1;
}
static uint32_t half_options(const struct sass_inst *inst) {
  return (BIT(77) ? SM_SAT : 0) | (BIT(80) ? SM_FTZ : 0) | (BIT(85) ? SM_BF16 : 0);
}
static struct sm_uop *half_op(struct sm_builder *b, const struct sass_inst *inst, enum sm_rowop fn,
                              const struct sm_source *x, const struct sm_source *y, const struct sm_source *z,
                              bool swizzles, uint32_t flag, const char **why) {
  if (!add_half_modifiers(inst, 0, x, swizzles, &flag) || !add_half_modifiers(inst, 1, y, swizzles, &flag) ||
      (z && !add_half_modifiers(inst, 2, z, swizzles, &flag))) {
    *why = "this choice of halves";
    return NULL;
  }
  struct sm_uop *u = sm_begin(b, inst, fn);
  if (!u) return NULL;
  sm_use(b, u, 0, x);
  sm_use(b, u, 1, y);
  if (z) sm_use(b, u, 2, z);
  u->flag = flag;
  return u;
}
BUILD(hadd2) {
  SOURCES(SM_LAYOUT_AC, 0)
  enum sm_rowop fn = BIT(78) ? SM_FN_hadd2_f32 : SM_FN_hadd2;
  return sm_built(half_op(b, inst, fn, &s.a, &s.c, NULL, true, half_options(inst), why), why);
}
BUILD(hmul2) {
  if (BIT(78)) return sm_refuse(why, "a result of 32 bits");
  SOURCES(SM_LAYOUT_AB, 0)
  uint32_t flag = half_options(inst) | (BIT(76) ? SM_FMZ : 0);
  return sm_built(half_op(b, inst, SM_FN_hmul2, &s.a, &s.b, NULL, true, flag, why), why);
}
BUILD(hfma2) {
  if (BIT(78)) return sm_refuse(why, "a result of 32 bits");
  if (BIT(76) && BIT(80)) return sm_refuse(why, ".OOB");
  SOURCES(SM_LAYOUT_ABC, 0)
  bool swizzles = inst->id == SASS_HFMA2;
  uint32_t flag = half_options(inst) | (BIT(76) ? SM_FMZ : 0) | (BIT(79) ? SM_RELU : 0);
  /* -0 * 0 + a constant is a move */
  bool is_number = s.c.immediate && (s.c.value & 0x7c00) != 0x7c00 && (s.c.value & 0x7c000000) != 0x7c000000;
  if (s.a.zero && s.b.zero && BIT(72) && !BIT(73) && !BIT(75) && !BIT(s.b.slot == SM_SLOT_32 ? 63 : 84) && is_number &&
      !flag) {
    struct sm_uop *u = sm_begin(b, inst, SM_FN_mov);
    if (u) sm_use(b, u, 0, &s.c);
    return true;
  }
  return sm_built(half_op(b, inst, SM_FN_hfma2, &s.a, &s.b, &s.c, swizzles, flag, why), why);
}
static struct sm_uop *half_minmax(struct sm_uop *u, const struct sass_inst *inst) {
  if (u) sm_predicate_in(u, 0, 87);
  return u;
}
BUILD(hmnmx2) {
  if (BIT(78)) return sm_refuse(why, "a result of 32 bits");
  SOURCES(SM_LAYOUT_AB, 0)
  uint32_t flag = (half_options(inst) & ~SM_SAT) | (BIT(81) ? SM_NAN : 0) | (BIT(82) ? SM_XORSIGN : 0);
  return sm_built(half_minmax(half_op(b, inst, SM_FN_hmnmx2, &s.a, &s.b, NULL, true, flag, why), inst), why);
}
BUILD(vhmnmx) {
  if (BIT(78)) return sm_refuse(why, "a result of 32 bits");
  SOURCES(SM_LAYOUT_ABC, 0)
  uint32_t flag = (half_options(inst) & ~SM_SAT) | (BIT(81) ? SM_NAN : 0) | (BIT(82) ? SM_XORSIGN : 0);
  if (s.c.slot != SM_SLOT_64) return sm_refuse(why, "this form");
  /* the third source's halves are in bits 76 and 77; bit 81, where other instructions have them, is an option here */
  struct sm_source third = s.c;
  if (!add_half_modifiers(inst, 0, &s.a, true, &flag) || !add_half_modifiers(inst, 1, &s.b, true, &flag) ||
      !add_half_modifiers(inst, 2, &third, false, &flag) || BITS(76, 2) == 1)
    return sm_refuse(why, "this choice of halves");
  struct sm_uop *u = sm_begin(b, inst, SM_FN_vhmnmx);
  if (!u) return true;
  sm_use(b, u, 0, &s.a);
  sm_use(b, u, 1, &s.b);
  sm_use(b, u, 2, &s.c);
  u->flag = flag | BITS(76, 2) << (SM_HALVES_SHIFT + 4);
  sm_predicate_in(u, 0, 87);
  return true;
}
static struct sm_uop *half_compare(struct sm_builder *b, const struct sass_inst *inst, enum sm_rowop fn,
                                   const char **why) {
  unsigned combine = BITS(69, 2), cmp = BITS(76, 4);
  struct sm_sources s;
  if (!sm_sources(b, inst, SM_LAYOUT_AC, 0, &s, why)) return NULL;
  bool swap = compares[cmp].swap;
  uint32_t flag = (BIT(80) ? SM_FTZ : 0) | (BIT(65) ? SM_BF16 : 0);
  struct sm_uop *u = half_op(b, inst, fn, swap ? &s.c : &s.a, swap ? &s.a : &s.c, NULL, true, flag, why);
  if (!u) return NULL;
  u->arg =
      combine | (uint32_t)compares[cmp].compare << SM_COMPARE_SHIFT | (uint32_t)compares[cmp].invert << SM_INVERT_SHIFT;
  sm_predicate_in(u, 0, 87);
  return u;
}
BUILD(hset2) {
  struct sm_uop *u = half_compare(b, inst, SM_FN_hset2, why);
  if (u) u->imm = !BIT(71) ? 0xffff : BIT(65) ? 0x3f80 : 0x3c00;
  return sm_built(u, why);
}
BUILD(hsetp2) {
  struct sm_uop *u = half_compare(b, inst, SM_FN_hsetp2, why);
  if (!u) return !*why;
  u->imm = BIT(71);
  sm_predicate_out(u, 0, 81);
  sm_predicate_out(u, 1, 84);
  return true;
}

/* ---- functions ---- */
BUILD(mufu) {
  static const uint16_t fn[10][2] = {
      {SM_FN_mufu_cos, SM_FN_mufu_cos_half},   {SM_FN_mufu_sin, SM_FN_mufu_sin_half},
      {SM_FN_mufu_ex2, SM_FN_mufu_ex2_half},   {SM_FN_mufu_lg2, SM_FN_mufu_lg2_half},
      {SM_FN_mufu_rcp, SM_FN_mufu_rcp_half},   {SM_FN_mufu_rsq, SM_FN_mufu_rsq_half},
      {SM_FN_mufu_rcp64h, SM_FN_COUNT},        {SM_FN_mufu_rsq64h, SM_FN_COUNT},
      {SM_FN_mufu_sqrt, SM_FN_mufu_sqrt_half}, {SM_FN_mufu_tanh, SM_FN_mufu_tanh_half},
  };
  /* 1: f16, 2: bf16. Before sm_90 the format was one bit, for f16. */
  unsigned f = BITS(74, 4), format = inst->version >= 0x90 ? BITS(72, 2) : BIT(73);
  if (f >= 10 || format == 3 || (format && fn[f][1] == SM_FN_COUNT)) return sm_refuse(why, "this function");
  SOURCES(SM_LAYOUT_B, 0)
  struct sm_uop *u = sm_begin(b, inst, fn[f][format > 0]);
  if (!u) return true;
  sm_use(b, u, 0, &s.b);
  u->flag = sm_modifiers(inst, 0, &s.b) | (format == 2 ? SM_BF16 : 0);
  u->arg = format && !s.b.immediate && BIT(60) ? 16 : 0;
  return true;
}

const struct sm_family sm_float_family[] = {
    {SASS_FADD, fadd},       {SASS_FMUL, fmul},     {SASS_FFMA, ffma},     {SASS_FSEL, fsel},   {SASS_FMNMX, fmnmx},
    {SASS_FSETP, fsetp},     {SASS_FSET, fset},     {SASS_FCHK, fchk},     {SASS_DADD, dadd},   {SASS_DMUL, dmul},
    {SASS_DFMA, dfma},       {SASS_DSETP, dsetp},   {SASS_HADD2, hadd2},   {SASS_HMUL2, hmul2}, {SASS_HFMA2, hfma2},
    {SASS_HFMA2_MMA, hfma2}, {SASS_HMNMX2, hmnmx2}, {SASS_VHMNMX, vhmnmx}, {SASS_HSET2, hset2}, {SASS_HSETP2, hsetp2},
    {SASS_MUFU, mufu},       {SASS_ID_COUNT, NULL},
};
