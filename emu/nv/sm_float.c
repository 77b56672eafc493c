/* Builders of floating-point instructions of f32 and f64. Bit positions: nvdisasm output. */
#include "sm_operand.h"

#define BUILD(name) static bool name(struct sm_builder *b, const struct sass_inst *inst, const char **why)
#define SOURCES(layout, wide)                                                                                          \
  struct sm_sources s;                                                                                                 \
  if (!sm_sources(b, inst, layout, wide, &s, why)) return false;
#define BITS(at, n) ((unsigned)sass_bits(inst, at, n))
#define BIT(at)     ((unsigned)sass_bit(inst, at))

static bool refuse(const char **why, const char *what) {
  *why = what;
  return false;
}
static bool odd_pair(const struct sass_inst *inst) { return BITS(16, 8) != SASS_RZ && BIT(16); }

/* An operation on x, y and perhaps z in one of the function's four variants: plain, with source modifiers, flushing
 * denormals too, with saturation or another rounding as well. */
static bool arithmetic(struct sm_builder *b, const struct sass_inst *inst, const uint16_t fn[4],
                       const struct sm_source *x, const struct sm_source *y, const struct sm_source *z,
                       bool multiplies) {
  unsigned round = BITS(78, 2);
  uint32_t flag = sm_modifiers(inst, 0, x) | sm_modifiers(inst, 1, y) | (z ? sm_modifiers(inst, 2, z) : 0) |
                  (BIT(80) ? SM_FTZ : 0) | (BIT(77) ? SM_SAT : 0) | (multiplies && BIT(76) ? SM_FMZ : 0);
  enum sm_rowop f = flag & (SM_SAT | SM_FMZ) ? fn[3] : flag & SM_FTZ ? fn[2] : flag ? fn[1] : fn[0];
  if (!sm_round_begin(b, inst, round)) return true;
  struct sm_uop *u = sm_begin(b, inst, f);
  if (!u) return true;
  sm_use(b, u, 0, x);
  sm_use(b, u, 1, y);
  if (z) sm_use(b, u, 2, z);
  u->flag = flag;
  sm_round_end(b, inst, round);
  return true;
}
#define VARIANTS(f) {SM_FN_##f, SM_FN_##f##_m, SM_FN_##f##_ftz, SM_FN_##f##_any}
BUILD(fadd) {
  static const uint16_t fn[] = VARIANTS(fadd);
  SOURCES(SM_LAYOUT_AC, 0)
  return arithmetic(b, inst, fn, &s.a, &s.c, NULL, false);
}
BUILD(fmul) {
  static const uint16_t fn[] = VARIANTS(fmul);
  if (BITS(84, 3) != 4) return refuse(why, "a scale");
  SOURCES(SM_LAYOUT_AB, 0)
  return arithmetic(b, inst, fn, &s.a, &s.b, NULL, true);
}
BUILD(ffma) {
  static const uint16_t fn[] = VARIANTS(ffma);
  SOURCES(SM_LAYOUT_ABC, 0)
  return arithmetic(b, inst, fn, &s.a, &s.b, &s.c, true);
}
/* A and B with modifiers. */
static struct sm_uop *two(struct sm_builder *b, const struct sass_inst *inst, enum sm_rowop fn, const char **why) {
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
  struct sm_uop *u = two(b, inst, SM_FN_fsel, why);
  if (u) sm_predicate_in(u, 0, 87);
  return sm_built(u, why);
}
BUILD(fmnmx) {
  struct sm_uop *u = two(b, inst, SM_FN_fmnmx, why);
  if (!u) return !*why;
  sm_predicate_in(u, 0, 87);
  u->flag |= (BIT(81) ? SM_NAN : 0) | (BIT(82) ? SM_XORSIGN : 0);
  return true;
}
/* What the sixteen comparisons are made of: the second eight are true of NaNs and so the inverse of an ordered one. */
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
static bool compare(struct sm_builder *b, const struct sass_inst *inst, const char **why, enum sm_rowop fn,
                    enum sm_layout layout, unsigned wide, bool ftz) {
  unsigned combine = BITS(74, 2), cmp = BITS(76, 4);
  if (combine == 3) return refuse(why, "this way to combine predicates");
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
BUILD(fsetp) { return compare(b, inst, why, SM_FN_fsetp, SM_LAYOUT_AB, 0, BIT(80)); }
BUILD(fset) { return compare(b, inst, why, SM_FN_fset, SM_LAYOUT_AB, 0, BIT(80)); }
BUILD(dsetp) {
  unsigned cmp = BITS(76, 4);
  if (cmp && cmp != 15) return compare(b, inst, why, SM_FN_dsetp, SM_LAYOUT_AC, 7, false);
  if (BITS(74, 2) == 3) return refuse(why, "this way to combine predicates");
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
  struct sm_uop *u = two(b, inst, SM_FN_fchk, why);
  if (u) sm_predicate_out(u, 0, 81);
  return sm_built(u, why);
}
BUILD(fswzadd) {
  if (BIT(77)) return refuse(why, "derivatives of helper lanes");
  *why = NULL;
  unsigned round = BITS(78, 2);
  if (!sm_round_begin(b, inst, round)) return true;
  struct sm_uop *u = sm_begin(b, inst, SM_FN_fswzadd);
  if (!u) return true;
  u->src[0] = sm_r(BITS(24, 8)), u->src[1] = sm_r(BITS(64, 8));
  u->arg = BITS(32, 8), u->flag = BIT(80) ? SM_FTZ : 0;
  sm_round_end(b, inst, round);
  return true;
}

static bool arithmetic64(struct sm_builder *b, const struct sass_inst *inst, const char **why, enum sm_rowop fn,
                         const struct sm_source *x, const struct sm_source *y, const struct sm_source *z) {
  unsigned round = BITS(78, 2);
  if (odd_pair(inst)) return refuse(why, "a register pair that begins at an odd register");
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
  return arithmetic64(b, inst, why, SM_FN_dadd, &s.a, &s.c, NULL);
}
BUILD(dmul) {
  SOURCES(SM_LAYOUT_AB, 7)
  return arithmetic64(b, inst, why, SM_FN_dmul, &s.a, &s.b, NULL);
}
BUILD(dfma) {
  SOURCES(SM_LAYOUT_ABC, 7)
  return arithmetic64(b, inst, why, SM_FN_dfma, &s.a, &s.b, &s.c);
}

const struct sm_family sm_float_family[] = {
    {SASS_FADD, fadd},   {SASS_FMUL, fmul},   {SASS_FFMA, ffma},       {SASS_FSEL, fsel},     {SASS_FMNMX, fmnmx},
    {SASS_FSETP, fsetp}, {SASS_FSET, fset},   {SASS_FCHK, fchk},       {SASS_DADD, dadd},     {SASS_DMUL, dmul},
    {SASS_DFMA, dfma},   {SASS_DSETP, dsetp}, {SASS_FSWZADD, fswzadd}, {SASS_ID_COUNT, NULL},
};
