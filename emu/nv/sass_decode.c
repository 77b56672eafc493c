/* SASS decoding: from the opcode to a row of the table. */
#include "sass.h"

struct sass_op {
  uint16_t id;
};

static const struct sass_op ops[4096] = {
#define ENC(opcode, name) [opcode] = {SASS_##name + 1},
#include "sass_opcodes.def"
#undef ENC
};

static const char *const names[] = {
#define OP(id, name) name,
#include "sass.def"
#undef OP
};

const char *sass_name(enum sass_id id) { return id < SASS_ID_COUNT ? names[id] : "?"; }

bool sass_decode(const uint64_t word[2], uint64_t pc, unsigned version, struct sass_inst *out) {
  unsigned opcode = word[0] & 0xfff;
  *out = (struct sass_inst){
      .lo = word[0],
      .hi = word[1],
      .pc = pc,
      .opcode = (uint16_t)opcode,
      .form = (uint8_t)(opcode >> 9),
      .guard = word[0] >> 12 & 7,
      .guard_not = word[0] >> 15 & 1,
  };
  if (version < 0x90 && opcode == 0x3c2) opcode = 0x2ca;
  if (!ops[opcode].id) return false;
  out->op = &ops[opcode];
  out->id = ops[opcode].id - 1;
  return true;
}
