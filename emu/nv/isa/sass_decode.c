/* SASS decoding: finds the row of an opcode. An instruction with a field that has no text in its row is invalid. */
#include <pthread.h>
#include "sass_table.h"

enum {
  /* sets of operand forms */
  ABC = 0xfe,  /* three sources */
  AB = 0x72,   /* the second source is B; a third is always a register */
  AC = 0x8e,   /* two sources; the second is encoded where a third would be */
  UABC = 0x16, /* as ABC, for the uniform datapath */
  UAB = 0x12,
};

#define ROW(name, base, forms, versions, modifiers, operands)                                                          \
  {SASS_##name, base, forms, SASS_##versions, false, modifiers, operands},
#define UROW(name, base, forms, versions, modifiers, operands)                                                         \
  {SASS_##name, base, forms, SASS_##versions, true, modifiers, operands},
/* a row for a single opcode */
#define OPCODE(name, opcode, versions, modifiers, operands)                                                            \
  {SASS_##name, opcode & 0x1ff, 1 << (opcode >> 9), SASS_##versions, false, modifiers, operands},
#define UOPCODE(name, opcode, versions, modifiers, operands)                                                           \
  {SASS_##name, opcode & 0x1ff, 1 << (opcode >> 9), SASS_##versions, true, modifiers, operands},
static const struct sass_op rows[] = {
#include "sass_alu.def"
#include "sass_memory.def"
#include "sass_control.def"
#include "sass_matrix.def"
};

static const char *const names[] = {
#define OP(id, name) name,
#include "sass.def"
#undef OP
};

const char *sass_approximate(enum sass_id id) {
  static const char *const why[SASS_ID_COUNT] = {
#define APPROXIMATE(name, text) [SASS_##name] = text,
#include "sass_fidelity.def"
#undef APPROXIMATE
  };
  return id < SASS_ID_COUNT ? why[id] : NULL;
}

bool sass_is_uniform(enum sass_id id) {
  static const bool uniform[SASS_ID_COUNT] = {
#define OP(id, name)
#define UNIFORM(id, name) [SASS_##id] = true,
#include "sass.def"
#undef OP
  };
  return id < SASS_ID_COUNT && uniform[id];
}

const char *sass_name(enum sass_id id) { return id < SASS_ID_COUNT ? names[id] : "?"; }

enum { VERSIONS = 4, OPCODES = 4096 };
static uint16_t row_of[VERSIONS][OPCODES]; /* index in rows + 1 */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void index_rows(void) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (unsigned form = 0; form < 8; form++)
      for (unsigned v = 0; v < VERSIONS; v++)
        if (rows[i].forms >> form & 1 && rows[i].versions >> v & 1)
          row_of[v][form << 9 | rows[i].base] = (uint16_t)(i + 1);
}

static unsigned version_index(unsigned version) {
  return version >= 0x90 ? 3 : version >= 0x89 ? 2 : version >= 0x86 ? 1 : 0;
}
bool sass_has(enum sass_id id, unsigned version) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].id == id && rows[i].versions >> version_index(version) & 1) return true;
  return false;
}

bool sass_decode(const uint64_t word[2], uint64_t pc, unsigned version, struct sass_inst *out) {
  pthread_once(&once, index_rows);
  unsigned opcode = word[0] & 0xfff;
  unsigned v = version_index(version);
  *out = (struct sass_inst){
      .lo = word[0],
      .hi = word[1],
      .pc = pc,
      .opcode = (uint16_t)opcode,
      .form = (uint8_t)(opcode >> 9),
      .guard = word[0] >> 12 & 7,
      .guard_not = word[0] >> 15 & 1,
      .version = (uint8_t)version,
  };
  unsigned n = row_of[v][opcode];
  if (!n) return false;
  out->op = &rows[n - 1];
  out->id = rows[n - 1].id;
  if (sass_defined(out)) return true;
  out->op = NULL;
  return false;
}
