/* SASS, the machine code of NVIDIA's SMs, as sm_90 encodes it (and sm_80, sm_86 and sm_89, where they agree): the types
 * of the instruction table and of a decoded instruction.
 *
 * An instruction has 128 bits. Bits [0,12) select the row of the table: nine bits of base opcode and, for ALU
 * instructions, three bits of operand form. Bits [105,126) are for scheduling: stall cycles [105,109), yield 109, the
 * scoreboards that the instruction sets for its result [110,113) and its sources [113,116), those that it waits for
 * [116,122), operand reuse [122,126). Hardware does not check register dependencies: with wrong stalls or waits an
 * instruction can read a register before its value is written. The emulator completes each instruction before the next
 * one and ignores these bits, so it does not find missing stalls or waits.
 *
 * Sources: output of NVIDIA's nvdisasm and ptxas; field names follow Mesa's NAK encoder where it has them. */
#ifndef DOORBELL_EMU_NV_SASS_H
#define DOORBELL_EMU_NV_SASS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SASS_BYTES = 16, SASS_RZ = 255, SASS_URZ = 63, SASS_PT = 7 };

/* One enumerator per operation (a base opcode, or a full opcode): SASS_IADD3, SASS_LDG ... */
#define OP(id, ...) SASS_##id,
enum sass_id {
#include "sass.def"
  SASS_ID_COUNT
};
#undef OP

struct sass_op; /* a table row: its text and the positions of its fields; sass_decode.c */

struct sass_inst {
  uint64_t lo, hi; /* the instruction word */
  uint64_t pc;
  const struct sass_op *op; /* NULL if it is not a valid instruction */
  uint16_t id;              /* enum sass_id */
  uint16_t opcode;          /* bits [0,12) */
  uint8_t form;             /* bits [9,12) */
  uint8_t guard;            /* predicate, bits [12,15); SASS_PT if there is none */
  bool guard_not;           /* bit 15 */
  uint8_t version;          /* SM version: 0x80, 0x86, 0x89, 0x90 */
};

/* Returns bits [at, at + n), n <= 64. */
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

/* Decodes one instruction for an SM version (0x80, 0x86, 0x89, 0x90). Returns false if it is not valid; then op is NULL
 * and the words are kept. */
bool sass_decode(const uint64_t word[2], uint64_t pc, unsigned version, struct sass_inst *out);
/* Writes the text that nvdisasm prints, without the closing semicolon, or ".quad 0x..., 0x..." if op is NULL. Returns
 * the length. */
int sass_print(const struct sass_inst *inst, char *buf, size_t cap);
/* Computes the code address in the last operand of a jump, call, BSSY or LEPC. Returns false for other instructions. */
bool sass_target(const struct sass_inst *inst, uint64_t *target);
const char *sass_name(enum sass_id id);           /* mnemonic */
bool sass_is_uniform(enum sass_id id);            /* an operation of the uniform datapath */
bool sass_has(enum sass_id id, unsigned version); /* whether an SM version has the operation */
/* Returns why an executed operation is not exact (sass_fidelity.def), or NULL if it is. */
const char *sass_approximate(enum sass_id id);
#endif
