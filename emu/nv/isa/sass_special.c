/* Prints operands whose form depends on several fields, which a row's lists cannot express. Functions are found by
 * name. */
#include <stdio.h>
#include <string.h>
#include "sass_text.h"

/* Multiply-adds with a trivial factor print as the simpler operation. */
static void imad_alias(struct text *t) {
  const struct sass_inst *in = t->in;
  enum sass_place b = sass_place_of('B', in->form);
  bool constant_form = in->form == 3 || in->form == 5;
  if (in->form > 5 || sass_bit(in, 74) || (constant_form && sass_bit(in, 91))) return;
  /* this combination of scheduling bits is not a reuse hint */
  if (!sass_bit(in, 109) && sass_bits(in, 122, 3) == 3) return;
  uint32_t number = (uint32_t)(in->lo >> 32);
  bool a_zero = sass_bits(in, 24, 8) == SASS_RZ, c_zero = in->form == 4 && sass_bits(in, 64, 8) == SASS_RZ;
  bool b_zero = b == CONSTANT ? false : b == NUMBER ? number == 0 : sass_bits(in, b == AT_32 ? 32 : 64, 8) == SASS_RZ;
  if (a_zero || b_zero || (b == NUMBER && number == 1 && c_zero))
    sass_put(t, ".MOV");
  else if (b == NUMBER && number == 1)
    sass_put(t, ".IADD");
  else if (b == NUMBER && c_zero && number < 0x80000000 && number != 0x10000 && !(number & (number - 1)))
    sass_put(t, ".SHL");
}

static void put_half(struct text *t, unsigned at) {
  if (sass_bit(t->in, at)) sass_put(t, ".H1");
}
/* I2IP keeps the top bits of the third source: as many as two results take. */
static void pack_part(struct text *t) {
  static const char *const part[4][4] = {{"", ".H1"}, {"", ".H1"}, {NULL, NULL, NULL, ".28"}, {NULL, NULL, ".24"}};
  const char *s = part[sass_bits(t->in, 77, 2)][sass_bits(t->in, 72, 2)];
  sass_put_source(t, 'C', "", 0, "");
  if (!s) t->bad = true;
  sass_put(t, "%s", s ? s : "");
}
/* The third source of conversions that fill one half of it; bit 72 selects the half. */
static void merge_high(struct text *t) {
  sass_put_source(t, 'C', "f", 1, "");
  put_half(t, 72);
}
/* A part of a source register, such as "R2.B1" or "|R2|.H1". names: indexed by the two bits at 60. */
static void put_part(struct text *t, const char *flags, size_t n, const char *const names[4]) {
  if (sass_place_of('B', t->in->form) == NUMBER) {
    sass_put_source(t, 'B', flags, n, "");
    return;
  }
  const char *s = names[sass_bits(t->in, 60, 2)];
  if (!s) t->bad = true;
  sass_put_source(t, 'B', flags, n, s ? s : "");
}
static const char *const part_none[4] = {"", "", "", ""}, *const part_half[4] = {"", ".H1", NULL, NULL},
                         *const part_byte[4] = {"", ".B1", ".B2", ".B3"};
static void put_packed_number(struct text *t, unsigned format) {
  uint32_t v = (uint32_t)(t->in->lo >> 32);
  sass_put_float(t, format == 1   ? sass_from_f16(v & 0xffff)
                    : format == 3 ? sass_from_f64_high(v)
                    : format == 4 ? sass_from_f32(v << 16)
                                  : sass_from_f32(v));
}
static void convert_source(struct text *t) {
  unsigned format = (unsigned)sass_bits(t->in, 84, 3);
  if (sass_place_of('B', t->in->form) == NUMBER)
    put_packed_number(t, format);
  else
    put_part(t, "|", 1, format == 1 || format == 4 ? part_half : part_none);
}
static void int_source(struct text *t) {
  static const char *const *const names[4] = {part_byte, part_half, part_none, part_none};
  put_part(t, "s", sass_bit(t->in, 74), names[sass_bits(t->in, 84, 2)]);
}
static void mufu_source(struct text *t) {
  static const uint8_t format_of[4] = {2, 1, 4, 2};
  unsigned op = (unsigned)sass_bits(t->in, 74, 4);
  unsigned type = t->in->version >= 0x90 ? (unsigned)sass_bits(t->in, 72, 2) : sass_bit(t->in, 73);
  if (type && (op == 6 || op == 7)) t->bad = true;
  if (sass_place_of('B', t->in->form) == NUMBER)
    put_packed_number(t, op == 6 || op == 7 ? 3 : format_of[type]);
  else
    put_part(t, "|", 1, type ? part_half : part_none);
}
/* "R12.B1": the byte that holds predicates */
static void predicate_byte(struct text *t) {
  sass_put_source(t, t->in->id == SASS_R2P ? 'A' : 'a', "", 0, part_byte[sass_bits(t->in, 76, 2)]);
}

/* FSWZADD: the signs of both terms, for the lanes of a quad. */
static void swizzle(struct text *t) {
  for (unsigned i = 8; i; i -= 2) {
    static const char *const names[4] = {"PP", "PN", "NP", "ZP"};
    sass_put(t, "%s", names[sass_bits(t->in, 30 + i, 2)]);
  }
}

/* F2FP packs; several bits together select the formats and the sources. */
enum packing { PACK_AB, MERGE_C, PACK_B, PACK_AB_MERGE_C, UNPACK_B_MERGE_C, UNPACK_B, PACKINGS };
static enum packing packing_of(const struct sass_inst *in) {
  /* the source format's two bits, then bits 78, 89, 90 */
  static const uint8_t of[32] = {
      [000] = PACK_AB + 1,          [001] = MERGE_C + 1,  [003] = PACK_B + 1,   [005] = PACK_AB_MERGE_C + 1,
      [014] = UNPACK_B_MERGE_C + 1, [022] = UNPACK_B + 1, [032] = UNPACK_B + 1,
  };
  uint64_t v = sass_bits(in, 73, 2) << 3 | sass_bit(in, 78) | sass_bits(in, 89, 2) << 1;
  return of[v] ? of[v] - 1u : PACKINGS;
}
static void f2fp(struct text *t) {
  const struct sass_inst *in = t->in;
  static const char *const to[8] = {"F16", "BF16", NULL, "TF32", "E5M2", "E4M3", NULL, NULL},
                           *const from[4] = {"F32", "F16", "E5M2", "E4M3"}, *const how[PACKINGS] = {"PACK_AB",
                                                                                                    "MERGE_C",
                                                                                                    "PACK_B",
                                                                                                    "PACK_AB_MERGE_C",
                                                                                                    "UNPACK_B_MERGE_C",
                                                                                                    "UNPACK_B"};
  enum packing p = packing_of(in);
  if (in->version < 0x89) {
    /* rows without 8-bit formats */
    if ((p != PACK_AB && p != MERGE_C) || sass_bit(in, 79) != sass_bit(in, 80) || sass_bit(in, 81)) t->bad = true;
    sass_put(t, "%s%s%s.%s%s", sass_bit(in, 77) ? ".SATFINITE" : "", sass_bit(in, 75) ? ".RELU" : "",
             sass_bit(in, 76) ? ".BF16" : "", sass_bit(in, 78) ? "MERGE_C" : "PACK_AB", sass_bit(in, 79) ? ".RZ" : "");
    return;
  }
  const char *a = to[sass_bit(in, 76) | sass_bits(in, 86, 2) << 1];
  unsigned rounding = (unsigned)sass_bits(in, 79, 3);
  if (p == PACKINGS || !a || (rounding && (rounding != 3 || p > PACK_B)) || (p == PACK_B && a != to[3])) {
    t->bad = true;
    return;
  }
  sass_put(t, "%s%s.%s.%s.%s%s", sass_bit(in, 77) ? ".SATFINITE" : "", sass_bit(in, 75) ? ".RELU" : "", a,
           from[sass_bits(in, 73, 2)], how[p], rounding ? ".RZ" : "");
}
static void f2fp_operands(struct text *t) {
  const struct sass_inst *in = t->in;
  enum packing p = packing_of(in);
  if (p == PACK_AB || p == PACK_AB_MERGE_C) {
    sass_put_source(t, 'A', "", 0, "");
    sass_put(t, ", ");
  }
  sass_put_source(t, 'B', "f", 1, "");
  if (p == UNPACK_B && sass_bit(in, 88)) sass_put(t, ".H1");
  if (p == MERGE_C || p == PACK_AB_MERGE_C || p == UNPACK_B_MERGE_C) {
    sass_put(t, ", ");
    merge_high(t);
  }
}

/* The additional results of VIMNMX: two predicates or none. */
static void minmax_predicates(struct text *t) {
  unsigned a = (unsigned)sass_bits(t->in, 81, 3), b = (unsigned)sass_bits(t->in, 84, 3);
  if (a == SASS_PT) return;
  if (b == SASS_PT) t->bad = true;
  sass_next_operand(t);
  sass_put_predicate(t, a, false, false);
  sass_next_operand(t);
  sass_put_predicate(t, b, false, false);
}

/* Returns the number of bytes to add to a program counter. From sm_90 on, the low eight bits of the distance, in words,
 * are in a separate field. */
static uint64_t split_offset(const struct sass_inst *in) {
  uint64_t high = (uint64_t)sass_sbits(in, 34, 48);
  return (in->version < 0x90 ? high : high << 8 | sass_bits(in, 16, 8)) * 4;
}
/* Bit 91 adds a uniform register to the target of a call. */
static void target(struct text *t) {
  if (t->in->id == SASS_CALL && sass_bit(t->in, 91)) {
    sass_put_at(t, 24, true);
    sass_put(t, " ");
  }
  sass_put_target(t, t->in->pc + SASS_BYTES + split_offset(t->in));
}
/* program counters as data operands */
static void put_pc(struct text *t) {
  uint64_t high = sass_bits(t->in, 34, 47);
  sass_put_hex(t, (t->in->version < 0x90 ? high : high << 8 | sass_bits(t->in, 16, 8)) * 4);
}
static void constant(struct text *t) {
  sass_put(t, "c[0x%x][", (unsigned)sass_bits(t->in, 54, 5));
  sass_put_signed(t, sass_sbits(t->in, 40, 14) * 4);
  sass_put(t, "]");
}
static void near_pc(struct text *t) {
  sass_put_target(t, t->in->pc + SASS_BYTES + (uint64_t)sass_sbits(t->in, 24, 58));
}

/* A register and the constant added to it, such as "R4 -0x150"; for relative jumps the constant includes the next
 * instruction's address. */
static void put_indirect(struct text *t, bool uniform, bool relative) {
  sass_put_at(t, 24, uniform);
  int64_t v = (int64_t)(split_offset(t->in) + (relative ? t->in->pc + SASS_BYTES : 0));
  if (t->in->id != SASS_RET && !relative && !v) return;
  sass_put(t, " ");
  relative ? sass_put_target(t, (uint64_t)v) : sass_put_signed(t, v);
}
static void jump_relative(struct text *t) { put_indirect(t, false, true); }
static void jump_absolute(struct text *t) { put_indirect(t, false, false); }
static void jump_return(struct text *t) { put_indirect(t, sass_bit(t->in, 91), !sass_bit(t->in, 85)); }
static void jump_far(struct text *t) { sass_bit(t->in, 91) ? put_indirect(t, true, false) : put_pc(t); }
static void jump_uniform(struct text *t) { put_indirect(t, true, false); }
static void sync_target(struct text *t) {
  sass_put_target(t, t->in->pc + SASS_BYTES + (uint64_t)(sass_sbits(t->in, 34, 30) * 4));
}

/* a set of lanes in a uniform register */
static void mask(struct text *t) {
  if (sass_bit(t->in, 30)) sass_put(t, "~");
  sass_put_at(t, 24, true);
}
static void elected(struct text *t) {
  if (sass_bit(t->in, 72)) sass_put(t, "~");
  sass_put_at(t, 24, true);
}
static void barrier(struct text *t) { sass_put(t, "B%u", (unsigned)sass_bits(t->in, 16, 4)); }

/* The scoreboards in a set, highest first. */
static void put_scoreboards(struct text *t, unsigned at) {
  const char *separator = "";
  sass_put(t, "{");
  for (unsigned i = 6; i--;)
    if (sass_bit(t->in, at + i)) {
      sass_put(t, "%s%u", separator, i);
      separator = ",";
    }
  sass_put(t, "}");
}
static void scoreboards(struct text *t) {
  const struct sass_inst *in = t->in;
  unsigned set = in->form == 6 ? 38 : 32;
  if (in->form == 6 || sass_bit(in, 47)) {
    unsigned n = (unsigned)sass_bits(in, 44, 3);
    if (n > 5 || !sass_bit(in, 47)) t->bad = true;
    sass_next_operand(t);
    sass_put(t, "SB%u", n);
    sass_next_operand(t);
    in->form == 6 ? sass_put_at(t, 32, true) : sass_put_hex(t, sass_bits(in, 38, 6));
  }
  if (!sass_bits(in, set, 6)) return;
  sass_next_operand(t);
  put_scoreboards(t, set);
}

/* Loads of constants by byte address. */
static void load_constant(struct text *t) {
  const struct sass_inst *in = t->in;
  bool uniform = in->id == SASS_ULDC;
  unsigned index = (unsigned)sass_bits(in, in->opcode == 0x582 ? 64 : 24, uniform ? 6 : 8);
  bool bindless = in->opcode == 0x582 || (in->opcode == 0xab9 && sass_bit(in, 91));
  if (bindless) {
    sass_put(t, "cx[");
    sass_put_at(t, 24, true);
    sass_put(t, "][");
  } else {
    sass_put(t, "c[0x%x][", (unsigned)sass_bits(in, 54, 5));
  }
  int64_t offset = sass_sbits(in, 38, 16);
  if (in->opcode != 0xab9 && (uniform || index != SASS_RZ || (!offset && !bindless))) {
    sass_put_register(t, index, uniform);
    sass_put_offset(t, offset);
  } else if (bindless) {
    sass_put_hex(t, (uint64_t)offset & 0xffff);
  } else {
    sass_put_signed(t, offset);
  }
  sass_put(t, "]");
}
static void load_uniform(struct text *t) {
  unsigned r = (unsigned)sass_bits(t->in, 24, 6);
  int64_t offset = sass_sbits(t->in, 38, 32);
  if (r == SASS_URZ && offset) {
    sass_put(t, "[0x%x]", (unsigned)offset);
  } else {
    sass_put(t, "[");
    sass_put_register(t, r, true);
    sass_put_offset(t, offset);
    sass_put(t, "]");
  }
  if (r != SASS_URZ) {
    sass_put(t, ", ");
    sass_put_predicate(t, (unsigned)sass_bits(t->in, 87, 3), sass_bit(t->in, 90), true);
  }
}
/* The destination of a copy to shared memory, such as "[R7+0x10]", and its source. */
static void copy_shared(struct text *t) {
  const struct sass_inst *in = t->in;
  unsigned r = (unsigned)sass_bits(in, 16, 8);
  bool uniform = in->form == 6;
  int64_t offset = sass_sbits(in, 44, 20);
  sass_put(t, "[");
  if (r != SASS_RZ) sass_put_register(t, r, false);
  if (uniform) {
    sass_put(t, r != SASS_RZ ? "+" : "");
    sass_put_at(t, 64, true);
  }
  if (r == SASS_RZ && !uniform)
    offset ? sass_put_hex(t, (uint64_t)offset & 0xfffff) : sass_put(t, "RZ");
  else if (offset)
    sass_put(t, "+"), sass_put_signed(t, offset);
  sass_put(t, "]");
}
static void copy_global(struct text *t) {
  const struct sass_inst *in = t->in;
  unsigned u = (unsigned)sass_bits(in, 64, 6);
  if (in->form == 6 && u != SASS_URZ) u++; /* the register after the one that is added to the destination */
  bool described = sass_bit(in, 76), wide = in->form == 6 || sass_bit(in, 70);
  int64_t offset = sass_sbits(in, 32, 12);
  if (described && sass_prints_descriptor(in)) {
    sass_put(t, "desc[");
    sass_put_register(t, u, true);
    sass_put(t, "]");
  }
  sass_put(t, "[");
  sass_put_at(t, 24, false);
  sass_put(t, wide ? ".64" : ".U32");
  if (!described && in->form != 6) {
    sass_put(t, "+");
    sass_put_register(t, u, true);
  }
  sass_put_offset(t, offset);
  sass_put(t, "]");
}
/* Generic addresses; a uniform register URZ is not printed. */
static void cluster_address(struct text *t) {
  const struct sass_inst *in = t->in;
  unsigned u = (unsigned)sass_bits(in, 64, 6);
  bool wide = sass_bit(in, in->id == SASS_STAS ? 90 : 72);
  int64_t offset = sass_sbits(in, 40, 24);
  if (wide && sass_bits(in, 24, 8) == SASS_RZ) t->bad = true;
  sass_put(t, "[");
  sass_put_at(t, 24, false);
  sass_put(t, wide ? ".64" : ".U32");
  if (u != SASS_URZ || !wide) {
    sass_put(t, "+");
    sass_put_register(t, u, true);
  }
  sass_put_offset(t, offset);
  sass_put(t, "]");
}

static void put_uniform_address(struct text *t, unsigned at) {
  sass_put(t, "[");
  sass_put_at(t, at, true);
  sass_put(t, "]");
}
static void uniform_24(struct text *t) { put_uniform_address(t, 24); }
static void uniform_32(struct text *t) { put_uniform_address(t, 32); }
/* the descriptor with the cache hint of bulk copies */
static void uniform_desc(struct text *t) {
  sass_put(t, "desc[");
  sass_put_at(t, 40, true);
  sass_put(t, "]");
}
static void sync_address(struct text *t) {
  sass_put(t, "[");
  sass_put_at(t, 24, true);
  int64_t offset = sass_sbits(t->in, 40, 24);
  sass_put_offset(t, offset);
  sass_put(t, "]");
}

/* the second register of the uniform pair that holds the comparison value and the new value */
static void exchange_pair(struct text *t) {
  unsigned r = (unsigned)sass_bits(t->in, 32, 6);
  if (r == SASS_URZ) r = 60;
  sass_put_register(t, r, true);
  sass_put(t, ", ");
  sass_put_register(t, r + 2, true);
}

/* Cache control of the whole cache has no address. */
static bool cctl_all(const struct sass_inst *in) {
  unsigned op = (unsigned)sass_bits(in, 87, 4);
  return op == 4 || (op >= 6 && op <= 8);
}
static void cctl_address(struct text *t) {
  if (cctl_all(t->in)) return;
  sass_next_operand(t);
  sass_put_address(t, "Mo", NULL);
}
static void cctl(struct text *t) {
  const struct sass_inst *in = t->in;
  const char *bits = "78";
  if (sass_bit(in, 72) && !cctl_all(in)) sass_put(t, ".E");
  const char *cache = sass_name_of(t, "cctl_cache", strlen("cctl_cache"), &bits);
  if (*cache) sass_put(t, ".%s", cache);
  bits = "87";
  sass_put(t, ".%s", sass_name_of(t, "cctl", strlen("cctl"), &bits));
}

/* ---- matrices ---- */

static void put_factor(struct text *t, unsigned at, unsigned negate) {
  if (sass_bit(t->in, negate)) sass_put(t, "-");
  sass_put_at(t, at, false);
}
static void gmma_a(struct text *t) {
  bool signs = t->in->id == SASS_HGMMA || t->in->id == SASS_QGMMA;
  if (signs)
    put_factor(t, 24, 72);
  else
    sass_put_at(t, 24, false);
}

/* The operands of an asynchronous multiply in shared memory; uniform registers hold their descriptors. */
static void matrix_descriptor(struct text *t) {
  const struct sass_inst *in = t->in;
  bool both = in->form == 4, signs = in->id == SASS_HGMMA || in->id == SASS_QGMMA;
  sass_put(t, "gdesc[");
  sass_put_register(t, (unsigned)sass_bits(in, both ? 24 : 32, 6), true);
  sass_put(t, "]");
  if (signs && both && sass_bit(in, 72)) sass_put(t, ".negA");
  if (signs && sass_bit(in, 63)) sass_put(t, ".negB");
  if (in->id == SASS_HGMMA && both && sass_bit(in, 61)) sass_put(t, ".tnspA");
  if (in->id == SASS_HGMMA && sass_bit(in, 62)) sass_put(t, ".tnspB");
}
static void sparse_register(struct text *t) {
  sass_put_at(t, 40, false);
  if (t->in->opcode == 0x23c || t->in->opcode == 0x237)
    if (sass_bit(t->in, 50)) sass_put(t, ".reuse");
}
static void row(struct text *t) {
  if (sass_bit(t->in, 73)) t->bad = true;
  sass_put_source(t, 'A', "-", t->in->id == SASS_QMMA, ".ROW");
}
static void column(struct text *t) {
  if (!sass_bit(t->in, 74)) t->bad = true;
  sass_put_source(t, 'B', "-", t->in->id == SASS_QMMA, ".COL");
}
/* N and K of an asynchronous multiply. N of HGMMA and QGMMA is any multiple of eight; the others have fewer values. */
static void matrix_shape(struct text *t) {
  const struct sass_inst *in = t->in;
  unsigned code = (unsigned)sass_bits(in, 53, in->id == SASS_HGMMA ? 7 : 6), n = 0, k = 0, sparse = sass_bit(in, 73);
  /* N of the integer types: 8, 16, 24, 32, then multiples of 16 */
  unsigned step = code / 3 < 4 ? code / 3 + 1 : (code / 3 - 1) * 2;
  switch (in->id) {
  case SASS_HGMMA:
    n = code % 32 + 1;
    if (sparse)
      k = code / 32 == 0 ? 16 : code / 32 == 2 ? 32 : 0;
    else
      k = code / 32 == 0 ? 16 : code / 32 == 1 ? 8 : 0;
    break;
  case SASS_QGMMA:
    n = code % 32 + 1;
    k = !sparse && code < 32 ? 32 : sparse && code / 32 == 1 ? 64 : 0;
    break;
  case SASS_IGMMA:
    n = step;
    k = code < 54 && code % 3 == sparse ? sparse ? 64 : 32 : 0;
    break;
  default: n = code < 4 ? code + 1 : (code - 1) * 2; k = code < 18 ? 256 : 0;
  }
  if (!k || n > 32) t->bad = true;
  sass_put(t, ".64x%ux%u", n * 8, k);
}

static const struct special {
  const char *name;
  void (*print)(struct text *t);
} specials[] = {{"imad", imad_alias},
                {"merge_high", merge_high},
                {"pack_part", pack_part},
                {"convert_source", convert_source},
                {"int_source", int_source},
                {"mufu_source", mufu_source},
                {"predicate_byte", predicate_byte},
                {"swizzle", swizzle},
                {"elected", elected},
                {"barrier", barrier},
                {"cctl", cctl},
                {"cctl_address", cctl_address},
                {"scoreboards", scoreboards},
                {"minmax_predicates", minmax_predicates},
                {"mask", mask},
                {"gmma_a", gmma_a},
                {"exchange_pair", exchange_pair},
                {"cluster_address", cluster_address},
                {"column", column},
                {"copy_global", copy_global},
                {"copy_shared", copy_shared},
                {"f2fp", f2fp},
                {"indirect", jump_relative},
                {"indirect_absolute", jump_absolute},
                {"indirect_return", jump_return},
                {"indirect_uniform", jump_uniform},
                {"absolute", jump_far},
                {"constant", constant},
                {"pc", put_pc},
                {"near_pc", near_pc},
                {"load_constant", load_constant},
                {"load_uniform", load_uniform},
                {"matrix_descriptor", matrix_descriptor},
                {"matrix_shape", matrix_shape},
                {"row", row},
                {"sparse_register", sparse_register},
                {"sync_address", sync_address},
                {"sync_target", sync_target},
                {"uniform_24", uniform_24},
                {"uniform_32", uniform_32},
                {"uniform_desc", uniform_desc},
                {"f2fp_operands", f2fp_operands},
                {"target", target}};

void sass_special(struct text *t, const char *name, size_t n) {
  for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
    if (strlen(specials[i].name) == n && !memcmp(specials[i].name, name, n)) {
      specials[i].print(t);
      return;
    }
  t->bad = true;
}
