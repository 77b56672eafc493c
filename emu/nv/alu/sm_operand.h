/* Where arithmetic instructions encode their operands, and how a micro-operation gets them.
 *
 * Besides register A in bits [24,32) an instruction has two slots. Slot 32 is bits [32,64): a register, a uniform
 * register, an immediate or a constant. Slot 64 is bits [64,72): a register. The form in bits [9,12) selects the kind
 * of slot 32, and which slot is operand B and which is C. Source modifiers belong to slots, not to operands. Source:
 * nvdisasm output; Mesa NAK. */
#ifndef DOORBELL_EMU_NV_SM_OPERAND_H
#define DOORBELL_EMU_NV_SM_OPERAND_H
#include "../exec/sm_exec.h"
#include "sm_rowop.h"

enum sm_slot { SM_SLOT_A, SM_SLOT_32, SM_SLOT_64 };
struct sm_source {
  int32_t row; /* byte offset in the register file */
  uint8_t slot;
  bool immediate, wide, zero; /* zero: the register is RZ or URZ */
  uint64_t value;             /* of an immediate; 64 bits if the source is wide */
};
struct sm_sources {
  struct sm_source a, b, c;
};
/* The operands of an operation. In forms 1, layout AC has its second operand, C, in bits [32,40). */
enum sm_layout { SM_LAYOUT_B, SM_LAYOUT_AB, SM_LAYOUT_AC, SM_LAYOUT_AC64, SM_LAYOUT_ABC };
/* Decodes the operands. wide: bits 0 to 2 for A, B, C; a set bit is a register pair, and an immediate is then its high
 * word. Returns false with *why set if an operand is not supported. */
bool sm_sources(struct sm_builder *b, const struct sass_inst *inst, enum sm_layout layout, unsigned wide,
                struct sm_sources *out, const char **why);
/* Makes s source i of u. */
void sm_use(struct sm_builder *b, struct sm_uop *u, unsigned i, const struct sm_source *s);

/* Emits a micro-operation with its function, its destination in bits [16,24), and the fields of uniform instructions.
 * Returns NULL if out of memory. */
struct sm_uop *sm_begin(struct sm_builder *b, const struct sass_inst *inst, enum sm_rowop fn);
/* Calls sm_sources, then sm_begin with the operands as sources 0 to 2 in order. Returns NULL on an error; *why is its
 * reason, or NULL if out of memory. */
struct sm_uop *sm_simple(struct sm_builder *b, const struct sass_inst *inst, enum sm_layout layout, enum sm_rowop fn,
                         const char **why);
/* Stores the reason `what` in *why. Returns false. */
static inline bool sm_refuse(const char **why, const char *what) {
  *why = what;
  return false;
}
static inline bool sm_built(const struct sm_uop *u, const char **why) { return u || !*why; }

/* Predicate fields: a source of four bits at `at` (the top bit negates), a destination of three bits. */
void sm_predicate_in(struct sm_uop *u, unsigned i, unsigned at);
void sm_predicate_out(struct sm_uop *u, unsigned i, unsigned at);
bool sm_is_uniform(const struct sass_inst *inst);
/* Returns whether the destination in bits [16,24) is an odd register, which cannot begin a pair. */
bool sm_odd_pair(const struct sass_inst *inst);
/* Return whether the predicate source at `at` is always true, or always false. */
static inline bool sm_always(const struct sass_inst *inst, unsigned at) { return sass_bits(inst, at, 4) == SASS_PT; }
static inline bool sm_never(const struct sass_inst *inst, unsigned at) {
  return sass_bits(inst, at, 4) == (SASS_PT | 8);
}

/* Returns the modifiers of float source i, by its slot, as flag bits. */
uint32_t sm_modifiers(const struct sass_inst *inst, unsigned i, const struct sm_source *s);

/* Instructions emitted between these two round in the given mode. */
bool sm_round_begin(struct sm_builder *b, const struct sass_inst *inst, unsigned round);
bool sm_round_end(struct sm_builder *b, const struct sass_inst *inst, unsigned round);
#endif
