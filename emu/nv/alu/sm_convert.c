/* Builders of conversion instructions. Bit positions and codes: nvdisasm output. */
#include "sm_operand.h"

#define BUILD(name) static bool name(struct sm_builder *b, const struct sass_inst *inst, const char **why)
#define BITS(at, n) ((unsigned)sass_bits(inst, at, n))
#define BIT(at)     ((unsigned)sass_bit(inst, at))

/* Builds an instruction with one source in slot 32, with modifiers. from_wide and to_wide: source and result have 64
 * bits. Returns NULL as sm_simple does. */
static struct sm_uop *build_unary(struct sm_builder *b, const struct sass_inst *inst, enum sm_rowop fn, bool from_wide,
                                  bool to_wide, const char **why) {
  struct sm_sources s;
  if (!sm_sources(b, inst, SM_LAYOUT_B, from_wide ? 2 : 0, &s, why)) return NULL;
  if (to_wide && sm_odd_pair(inst)) {
    *why = "a register pair that begins at an odd register";
    return NULL;
  }
  struct sm_uop *u = sm_begin(b, inst, fn);
  if (!u) return NULL;
  if (s.b.immediate && from_wide && (inst->id == SASS_I2F))
    sm_constant64(b, u, 0, (uint64_t)(int64_t)(int32_t)(s.b.value >> 32));
  else
    sm_use(b, u, 0, &s.b);
  u->flag = sm_modifiers(inst, 0, &s.b);
  return u;
}
static bool is_float(unsigned format) { return format >= SM_F16 && format <= SM_BF16_FORMAT; }
/* Bit 60 selects the upper half of a 16-bit source. */
static unsigned half_shift(const struct sass_inst *inst, unsigned format) {
  bool immediate = inst->form == 4;
  return (format == SM_F16 || format == SM_BF16_FORMAT) && !immediate && BIT(60) ? 16 : 0;
}

BUILD(f2f) {
  unsigned to = BITS(75, 3), from = BITS(84, 3), round = BITS(78, 2);
  if (!is_float(to) || !is_float(from)) return sm_refuse(why, "this format");
  *why = NULL;
  if (!sm_round_begin(b, inst, round)) return true;
  struct sm_uop *u = build_unary(b, inst, SM_FN_f2f, from == SM_F64, to == SM_F64, why);
  if (!u) return !*why;
  u->flag |= BIT(80) ? SM_FTZ : 0;
  u->arg = SM_CONVERT(from, to, round, half_shift(inst, from));
  sm_round_end(b, inst, round);
  return true;
}
BUILD(frnd) {
  unsigned to = BITS(75, 3), from = BITS(84, 3);
  if (!is_float(to) || from != to) return sm_refuse(why, "this format");
  struct sm_uop *u = build_unary(b, inst, SM_FN_frnd, from == SM_F64, to == SM_F64, why);
  if (!u) return !*why;
  u->flag |= BIT(80) ? SM_FTZ : 0;
  u->arg = SM_CONVERT(from, to, BITS(78, 2), half_shift(inst, from));
  return true;
}
BUILD(f2i) {
  unsigned from = BITS(84, 3), size = BITS(75, 2), round = BITS(78, 2), is_signed = BIT(72);
  if (!is_float(from)) return sm_refuse(why, "this format");
  enum sm_rowop fn = size == 3 ? SM_FN_f2i_64 : SM_FN_f2i;
  /* denormals are truncated to 0 anyway */
  if (size == 2 && from == SM_F32 && round == SM_ROUND_ZERO && (inst->form == 4 || !BITS(62, 2)))
    fn = is_signed ? SM_FN_f2i_s32 : SM_FN_f2i_u32;
  struct sm_uop *u = build_unary(b, inst, fn, from == SM_F64, size == 3, why);
  if (!u) return !*why;
  u->flag |= (BIT(80) ? SM_FTZ : 0) | (is_signed ? 0 : SM_UNSIGNED);
  u->arg = SM_CONVERT(from, 0, round, half_shift(inst, from)), u->imm = 8u << size;
  return true;
}
static bool int_to_float(struct sm_builder *b, const struct sass_inst *inst, const char **why, unsigned to,
                         unsigned size, unsigned round) {
  unsigned is_signed = BIT(74), part = inst->id == SASS_I2F && inst->form != 4 ? BITS(60, 2) : 0;
  if (!is_float(to)) return sm_refuse(why, "this format");
  if ((size == 1 && part > 1) || (size > 1 && part && inst->form == 1))
    return sm_refuse(why, "this part of a register");
  *why = NULL;
  if (!sm_round_begin(b, inst, round)) return true;
  bool plain = size == 2 && to == SM_F32 && is_signed;
  struct sm_uop *u = build_unary(b, inst, plain ? SM_FN_i2f_s32 : SM_FN_i2f, size == 3, to == SM_F64, why);
  if (!u) return !*why;
  u->flag = is_signed ? 0 : SM_UNSIGNED;
  u->arg = SM_CONVERT(0, to, round, size < 2 ? part * (8u << size) : 0), u->imm = 8u << size;
  sm_round_end(b, inst, round);
  return true;
}
BUILD(i2f) { return int_to_float(b, inst, why, BITS(75, 3), BITS(84, 2), BITS(78, 2)); }
BUILD(i2fp) {
  unsigned round = BITS(78, 2);
  if (round == 1 || round == 2) return sm_refuse(why, "this rounding");
  return int_to_float(b, inst, why, BITS(75, 3), 2, round);
}

/* ---- conversions of integers with saturation ---- */
static uint64_t integer_range(unsigned bits, bool is_signed) {
  int32_t low = is_signed ? -(1 << (bits - 1)) : 0, high = (1 << (is_signed ? bits - 1 : bits)) - 1;
  return (uint32_t)low | (uint64_t)(uint32_t)high << 32;
}
BUILD(i2i) {
  unsigned type = BITS(76, 2);
  struct sm_uop *u = sm_simple(b, inst, SM_LAYOUT_B, SM_FN_i2i, why);
  if (u) u->arg = type < 2 ? 8 : 16, u->imm = integer_range(u->arg, type & 1);
  return sm_built(u, why);
}
BUILD(i2ip) {
  static const uint8_t bits[8] = {8, 8, 16, 16, 2, 2, 4, 4};
  unsigned type = BITS(76, 3), how = BITS(74, 2), upper_half = bits[type] == 8 && BITS(72, 2) == 1;
  if (how == 0) return sm_refuse(why, "a conversion that does not saturate");
  struct sm_uop *u = sm_simple(b, inst, SM_LAYOUT_ABC, SM_FN_i2ip, why);
  if (!u) return !*why;
  u->imm = integer_range(bits[type], type & 1), u->arg = bits[type], u->flag = upper_half;
  if (how == 2) u->imm &= 0xffffffff00000000; /* .SATRELU */
  return true;
}

/* ---- packing ---- */
static unsigned merge_shift(const struct sass_inst *inst) { return BIT(72) ? 16 : 0; }
BUILD(f2fp) {
  bool narrow = BIT(87), tf32 = BIT(86), merge_one = BIT(78), single = BIT(89), bytes = BIT(90);
  unsigned round = BITS(79, 2), source = BITS(73, 2), shift = merge_shift(inst), bits = narrow ? 8 : 16;
  unsigned to = tf32 ? SM_TF32 : narrow ? (BIT(76) ? SM_E4M3 : SM_E5M2) : BIT(76) ? SM_BF16_FORMAT : SM_F16;
  uint32_t flag = (BIT(75) ? SM_RELU : 0) | (BIT(77) ? SM_SAT : 0);
  enum sm_rowop fn;
  unsigned imm = bits;
  if (BIT(81) || round == 1 || round == 2) return sm_refuse(why, "this rounding");
  if (tf32 && (!BIT(76) || narrow)) return sm_refuse(why, "this format");
  if (source == 0 && !single && !merge_one && !narrow && !bytes && !tf32)
    fn = SM_FN_f2fp;
  else if (source == 0 && !single && merge_one && narrow && bytes && !tf32)
    fn = SM_FN_f2fp;
  else if (source == 0 && !single && merge_one && !narrow && !bytes && !tf32)
    fn = SM_FN_f2fp_one;
  else if (source == 0 && single && tf32)
    fn = SM_FN_f2fp_one, imm = 32;
  else if (source == 1 && !single && !merge_one && narrow && bytes)
    fn = SM_FN_f2fp_narrow;
  else if (source > 1 && single && !narrow && !bytes && !tf32)
    fn = SM_FN_f2fp_widen, imm = source == 3 ? SM_E4M3 : SM_E5M2, shift = BIT(88) ? 16 : 0;
  else
    return sm_refuse(why, "this packing");
  if (fn != SM_FN_f2fp_widen && BIT(88)) return sm_refuse(why, "the upper half of a source");
  if (fn == SM_FN_f2fp && !flag && !round && !narrow) fn = to == SM_F16 ? SM_FN_f2fp_f16 : SM_FN_f2fp_bf16;
  struct sm_uop *u = sm_simple(b, inst, SM_LAYOUT_ABC, fn, why);
  if (!u) return !*why;
  u->flag = flag, u->arg = SM_CONVERT(0, to, round, shift), u->imm = imm;
  return true;
}
BUILD(f2ip) {
  unsigned round = BITS(78, 2);
  if (BIT(77)) return sm_refuse(why, "this format");
  if (round == 1 || round == 2) return sm_refuse(why, "this rounding");
  struct sm_uop *u = sm_simple(b, inst, SM_LAYOUT_ABC, SM_FN_f2ip, why);
  if (!u) return !*why;
  u->flag = (BIT(76) ? 0 : SM_UNSIGNED) | (BIT(75) ? SM_RELU : 0);
  u->arg = SM_CONVERT(0, 0, round, merge_shift(inst));
  return true;
}

const struct sm_family sm_convert_family[] = {
    {SASS_F2F, f2f},   {SASS_FRND, frnd}, {SASS_F2I, f2i},   {SASS_I2F, i2f},    {SASS_I2FP, i2fp},     {SASS_I2I, i2i},
    {SASS_I2IP, i2ip}, {SASS_F2FP, f2fp}, {SASS_F2IP, f2ip}, {SASS_UF2FP, f2fp}, {SASS_ID_COUNT, NULL},
};
