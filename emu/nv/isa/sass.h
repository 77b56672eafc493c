/* SASS, the machine code of NVIDIA's SMs, as sm_90 encodes it (sm_80, sm_86 and sm_89 where they coincide): the
 * instruction table's types and a decoded instruction.
 *
 * An instruction is 128 bits. Bits [0,12) choose the row of the table: nine bits of base opcode and three of operand
 * form for ALU instructions. Bits [105,126) schedule: stall cycles [105,109), yield 109, the scoreboards that the
 * instruction sets for its result [110,113) and its sources [113,116), those that it waits for [116,122), operand reuse
 * [122,126). On hardware the code is wrong without the right stalls and waits, because nothing else keeps an
 * instruction from reading a register before its value is there. The emulator finishes each instruction before the next
 * one and reads none of these bits, so it finds no stall or wait that is missing.
 *
 * Sources: output of NVIDIA's nvdisasm and ptxas; field names after Mesa's NAK encoder where it has them. */
#ifndef DOORBELL_EMU_NV_SASS_H
#define DOORBELL_EMU_NV_SASS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SASS_BYTES = 16, SASS_RZ = 255, SASS_URZ = 63, SASS_PT = 7 };

/* One enumerator an operation (a base opcode, or an opcode of its own): SASS_IADD3, SASS_LDG ... */
#define OP(id, ...) SASS_##id,
enum sass_id {
#include "sass.def"
  SASS_ID_COUNT
};
#undef OP

struct sass_op; /* a row: what prints and where its fields are; sass_decode.c */

struct sass_inst {
  uint64_t lo, hi; /* the word */
  uint64_t pc;
  const struct sass_op *op; /* NULL: not a valid instruction */
  uint16_t id;              /* enum sass_id */
  uint16_t opcode;          /* bits [0,12) */
  uint8_t form;             /* bits [9,12) */
  uint8_t guard;            /* predicate [12,15), SASS_PT for none */
  bool guard_not;           /* bit 15 */
  uint8_t version;          /* of the SM: 0x80, 0x86, 0x89, 0x90 */
};

/* Bits [at, at + n), n <= 64. */
static inline uint64_t sass_bits(const struct sass_inst *i, unsigned at, unsigned n) {
  uint64_t v = at >= 64 ? i->hi >> (at - 64) : at ? i->lo >> at | i->hi << (64 - at) : i->lo;
  return n < 64 ? v & ((1ull << n) - 1) : v;
}
static inline bool sass_bit(const struct sass_inst *i, unsigned at) {
  return (at >= 64 ? i->hi >> (at - 64) : i->lo >> at) & 1;
}
static inline int64_t sass_sbits(const struct sass_inst *i, unsigned at, unsigned n) {
  return (int64_t)(sass_bits(i, at, n) << (64 - n)) >> (64 - n);
}

/* Decodes one instruction for an SM version (0x80, 0x86, 0x89, 0x90). False when it is none; op is NULL then and the
 * words are kept. */
bool sass_decode(const uint64_t word[2], uint64_t pc, unsigned version, struct sass_inst *out);
/* nvdisasm's text for it without the closing semicolon; ".quad 0x..., 0x..." when op is NULL. Returns the length. */
int sass_print(const struct sass_inst *inst, char *buf, size_t cap);
/* The address in code that a jump, call, BSSY or LEPC names, which is its last operand; false when it names none. */
bool sass_target(const struct sass_inst *inst, uint64_t *target);
const char *sass_name(enum sass_id id);           /* mnemonic */
bool sass_is_uniform(enum sass_id id);            /* an operation of the uniform datapath */
bool sass_has(enum sass_id id, unsigned version); /* whether an SM version has the operation */
/* Why an operation that is executed is not exact, from sass_fidelity.def; NULL for those that are. */
const char *sass_approximate(enum sass_id id);
#endif
