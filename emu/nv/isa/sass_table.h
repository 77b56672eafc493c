/* SASS: a row of the instruction table and its little language, which both decoding and printing walk.
 *
 * A row says what an opcode is and where its fields are. Its modifiers print behind the mnemonic, its operands behind
 * that, each in the order of its list; the lists are words separated by one space. "N" is a bit position, and "@bits"
 * are positions joined by "+", each with ".width" when it is not one bit (a lone position is as wide as its ENUM).
 *
 * Modifiers:
 *   .TEXT  .TEXT@N  .!TEXT@N   always, or by a bit
 *   .=enum@bits                what ENUM(enum) of sass_enums.def has for the value
 *   *name                      a function of sass_print.c
 * Operands:
 *   RN UN                      register, uniform register
 *   PN QN                      predicate, uniform predicate
 *   pN qN rN sN                the same with a bit for negation behind; in r and s 0 stands for PT
 *   A B C D                    sources by form: A at 24; B and C as the form has them (register in 32 or 64, uniform
 *                              register, number, constant); D the second source of operations that have no third
 *   a b c                      the same of the uniform datapath
 *     then flags: - may be negated, | or absolute, ~ negated or with bit 74 inverted, ! inverted, h packed halves,
 *     H packed halves without selection, v VHMNMX's place of the selection, S .SIGN; numbers: s signed, f d x of
 *     single, double, two of half precision
 *   Ibits                      number
 *   Ebits=enum                 what ENUM has
 *   M..                        address: uN uniform register at N (present by bit 91), dN descriptor bit, wN bit of
 *                              64-bit registers, x scale, o offset of 32 bits, z none
 *   =TEXT                      text
 *   *name **name               a function of sass_special.c; ** puts its separators itself
 *   each may end in ? (left out when it is PT or RZ or, for ?V, the number V) and in :N,!N... (left out unless these
 *   bits are so)
 * Everything that has no text (an ENUM's NULL) makes the instruction invalid. */
#ifndef DOORBELL_EMU_NV_SASS_TABLE_H
#define DOORBELL_EMU_NV_SASS_TABLE_H
#include "sass.h"

struct sass_op {
  uint16_t id;
  uint16_t base;    /* bits [0,9) */
  uint8_t forms;    /* bit f: with f in bits [9,12) */
  uint8_t versions; /* SASS_80 ... */
  bool uniform_guard;
  const char *modifiers, *operands;
};
enum {
  SASS_80 = 1,
  SASS_86 = 2,
  SASS_89 = 4,
  SASS_90 = 8,
  SASS_8X = SASS_80 | SASS_86 | SASS_89,
  SASS_86_UP = SASS_86 | SASS_89 | SASS_90,
  SASS_ALL = SASS_8X | SASS_90,
};

/* Whether all of a decoded instruction's fields have a text. */
bool sass_defined(const struct sass_inst *inst);
#endif
