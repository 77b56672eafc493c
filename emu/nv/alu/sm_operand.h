/* Where arithmetic instructions keep their operands, and how a micro-operation gets them.
 *
 * Besides register A in bits [24,32) there are two slots: bits [32,64), a register, a uniform register, an immediate or
 * a constant, and bits [64,72), a register. The form in bits [9,12) says what the first is, and which of the two is
 * operand B and which C. Source modifiers belong to slots. Source: nvdisasm output; Mesa NAK. */
#ifndef DOORBELL_EMU_NV_SM_OPERAND_H
#define DOORBELL_EMU_NV_SM_OPERAND_H
#include "sm_rowop.h"

enum sm_slot { SM_SLOT_A, SM_SLOT_32, SM_SLOT_64 };
struct sm_source {
  int32_t row; /* offset in the file */
  uint8_t slot;
  bool immediate, wide, zero; /* zero: RZ or URZ */
  uint64_t value;             /* of an immediate; 64 bits for wide sources */
};
struct sm_sources {
  struct sm_source a, b, c;
};
/* The operands an operation has. In forms 1, AC finds its second operand, C, in bits [32,40). */
enum sm_layout { SM_LAYOUT_B, SM_LAYOUT_AB, SM_LAYOUT_AC, SM_LAYOUT_AC64, SM_LAYOUT_ABC };
/* wide: bits 0 to 2 for A, B, C: a register pair; an immediate is then the high word. */
bool sm_sources(struct sm_builder *b, const struct sass_inst *inst, enum sm_layout layout, unsigned wide,
                struct sm_sources *out, const char **why);
/* Makes s the source i of u. */
void sm_use(struct sm_builder *b, struct sm_uop *u, unsigned i, const struct sm_source *s);

/* A new micro-operation with its function, its destination in bits [16,24), and for uniform instructions what makes it
 * one. NULL: out of memory. */
struct sm_uop *sm_begin(struct sm_builder *b, const struct sass_inst *inst, enum sm_rowop fn);
/* sm_sources, then sm_begin with the operands as sources 0 to 2 in order. NULL: *why says why, or is NULL when out of
 * memory. */
struct sm_uop *sm_simple(struct sm_builder *b, const struct sass_inst *inst, enum sm_layout layout, enum sm_rowop fn,
                         const char **why);
static inline bool sm_built(const struct sm_uop *u, const char **why) { return u || !*why; }

/* Predicates: a source of four bits at `at` (the top one inverts), a destination of three. */
void sm_predicate_in(struct sm_uop *u, unsigned i, unsigned at);
void sm_predicate_out(struct sm_uop *u, unsigned i, unsigned at);
bool sm_is_uniform(const struct sass_inst *inst);
/* Whether the predicate source at `at` is always true, or always false. */
static inline bool sm_always(const struct sass_inst *inst, unsigned at) { return sass_bits(inst, at, 4) == SASS_PT; }
static inline bool sm_never(const struct sass_inst *inst, unsigned at) {
  return sass_bits(inst, at, 4) == (SASS_PT | 8);
}

/* Modifiers of floats by slot, as flag bits for source i. */
uint32_t sm_modifiers(const struct sass_inst *inst, unsigned i, const struct sm_source *s);

/* Between these, instructions round that way. */
bool sm_round_begin(struct sm_builder *b, const struct sass_inst *inst, unsigned round);
bool sm_round_end(struct sm_builder *b, const struct sass_inst *inst, unsigned round);
#endif
