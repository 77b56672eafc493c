/* SASS: a row of the instruction table, and the language of its lists, which both decoding and printing interpret.
 *
 * A row holds the text of an opcode and the positions of its fields. Its modifiers print after the mnemonic, then its
 * operands, each in the order of its list. A list consists of words separated by one space. "N" is a bit position.
 * "@bits" are positions joined by "+", each with ".width" if it is not one bit (a single position is as wide as its
 * ENUM).
 *
 * Modifiers:
 *   .TEXT  .TEXT@N  .!TEXT@N   always; if bit N is set; if bit N is clear
 *   .=enum@bits                the text of ENUM(enum) in sass_enums.def for the value
 *   *name                      a function of sass_print.c
 * Operands:
 *   RN UN                      register, uniform register
 *   PN QN                      predicate, uniform predicate
 *   pN qN rN sN                the same, followed by a bit for negation; in r and s 0 means PT
 *   A B C D                    sources by form: A at 24; B and C as the form selects (register in 32 or 64, uniform
 *                              register, number, constant); D the second source of operations that have no third
 *   a b c                      the same for the uniform datapath
 *     then flags: - may be negated, | or absolute, ~ negated or with bit 74 inverted, ! inverted, h packed halves,
 *     H packed halves without selection, v position of the selection in VHMNMX, S .SIGN; numbers: s signed, f d x of
 *     single, double, two of half precision
 *   Ibits                      number
 *   Ebits=enum                 the text of ENUM
 *   M..                        address: uN uniform register at N (present by bit 91), dN descriptor bit, wN bit of
 *                              64-bit registers, x scale, o offset of 32 bits, z none
 *   =TEXT                      text
 *   *name **name               a function of sass_special.c; ** prints its separators itself
 *   A word may end in ? (omitted if it is PT or RZ or, for ?V, the number V) and in :N,!N... (omitted unless bit N is
 *   set, bit !N is clear).
 *
 * A field value without a text (an ENUM's NULL) makes the instruction invalid. */
#ifndef DOORBELL_EMU_NV_SASS_TABLE_H
#define DOORBELL_EMU_NV_SASS_TABLE_H
#include "sass.h"

struct sass_op {
  uint16_t id;
  uint16_t base;    /* opcode bits [0,9) */
  uint8_t forms;    /* bit f: the row is valid with f in bits [9,12) */
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

/* Returns whether all fields of a decoded instruction have a text. */
bool sass_defined(const struct sass_inst *inst);
#endif
