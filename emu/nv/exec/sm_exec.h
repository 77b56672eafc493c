/* How SASS is executed: what the families of instructions share beside the warp (sm_warp.h). */
#ifndef DOORBELL_EMU_NV_SM_EXEC_H
#define DOORBELL_EMU_NV_SM_EXEC_H
#include <stddef.h>
#include "../isa/sass.h"
#include "sm.h"
#include "sm_warp.h"

/* Return byte offsets of register rows, with RZ and URZ as sources and as destinations. */
static inline int32_t sm_r(unsigned n) { return (int32_t)((n == SASS_RZ ? SM_ROW_ZERO : SM_ROW_R + n) * SM_LANES * 4); }
static inline int32_t sm_r_dst(unsigned n) {
  return (int32_t)((n == SASS_RZ ? SM_ROW_SINK : SM_ROW_R + n) * SM_LANES * 4);
}
static inline int32_t sm_ur(unsigned n) { return (int32_t)((SM_ROW_UR + n) * SM_LANES * 4); }
static inline int32_t sm_ur_dst(unsigned n) {
  return (int32_t)((n == SASS_URZ ? SM_ROW_SINK : SM_ROW_UR + n) * SM_LANES * 4);
}

/* ---- control ---- */

#define SM_COUNTING (INT64_MAX / 2)
/* Returns the budget of a warp that has none left. */
static inline int64_t sm_no_budget(const struct sm_warp *w) { return w->counts ? -SM_COUNTING : 0; }
/* Adds the run that ends before `after` to the steps, for warps whose counts is set. */
void sm_count_run(struct sm_warp *w, const struct sass_inst *after);
/* Counts the straight-line run that ends before instruction `after` (one past the last executed instruction). */
static inline void sm_count(struct sm_warp *w, const struct sass_inst *after) {
  int64_t n = after - w->run->inst;
  w->executed += (uint64_t)n, w->budget -= n;
  if (__builtin_expect(w->counts, 0)) sm_count_run(w, after);
}
/* What sm_jump does when the budget is used up: at the end of a time slice, or for warps whose counts is set. */
const struct sm_uop *sm_jump_slow(struct sm_warp *w, const struct sm_uop *u, const struct sm_uop *to);
/* Continues at `to` after u. */
static inline const struct sm_uop *sm_jump(struct sm_warp *w, const struct sm_uop *u, const struct sm_uop *to) {
  int64_t n = u->inst + 1 - w->run->inst;
  w->executed += (uint64_t)n, w->budget -= n;
  if (__builtin_expect(w->budget <= 0, 0)) return sm_jump_slow(w, u, to);
  w->run = to;
  return to;
}
/* Stops the executing group after u. The group will resume at next. */
static inline const struct sm_uop *sm_stop(struct sm_warp *w, const struct sm_uop *u, enum sm_state state,
                                           unsigned which, const struct sm_uop *next) {
  struct sm_group *g = &w->group[w->current];
  sm_count(w, u->inst + 1);
  g->state = (uint8_t)state, g->which = (uint8_t)which, g->next = w->run = next;
  return NULL;
}
/* Returns the lanes whose thread has not exited. */
static inline uint32_t sm_live(const struct sm_warp *w) { return w->present & ~w->exited; }

/* Stops the warp: fills *w->fault (kind, pc, address, access, lane or -1, CTA, warp, text) and returns NULL, which the
 * operation returns. The text is the formatted message, the instruction and its disassembly. esr: code of the
 * hardware's warp error status register. */
const struct sm_uop *sm_fault(struct sm_warp *w, const struct sm_uop *u, enum fault_kind kind, uint32_t esr, int lane,
                              uint64_t address, unsigned access, const char *fmt, ...)
    __attribute__((format(printf, 8, 9)));

/* ---- building ---- */

/* Receives the micro-operations of one instruction. Families use it only with the functions below. */
struct sm_builder;
/* Emits a micro-operation for inst. All fields are zero except inst, guard, guard_not, all, pdst = SM_PSINK and psrc =
 * SM_PT. It is valid until the next call of the builder. Returns NULL if out of memory; the whole build then fails. */
struct sm_uop *sm_emit(struct sm_builder *b, const struct sass_inst *inst);
/* Make source i of u a constant row of value, or two rows with the halves of a 64-bit value. */
void sm_constant32(struct sm_builder *b, struct sm_uop *u, unsigned i, uint32_t value);
void sm_constant64(struct sm_builder *b, struct sm_uop *u, unsigned i, uint64_t value);

/* Emits a load of the constant that slot 32 of inst names (c[bank][offset], `words` 32-bit words: 1 or 2) into the
 * temporary rows of source i. Returns their byte offset for src[i], or -1 if out of memory. */
int32_t sm_load_constant(struct sm_builder *b, const struct sass_inst *inst, unsigned i, unsigned words);
unsigned sm_version(const struct sm_builder *b); /* the SM version that the code is built for */

/* A family's builders: one per sass_id, terminated by SASS_ID_COUNT. A builder emits the micro-operations of the
 * instruction. It returns false if this encoding is not supported; *why is then the reason. */
typedef bool sm_build_fn(struct sm_builder *b, const struct sass_inst *inst, const char **why);
struct sm_family {
  uint16_t id;
  sm_build_fn *build;
};
extern const struct sm_family sm_alu_family[], sm_float_family[], sm_convert_family[]; /* arithmetic on lanes */
extern const struct sm_family sm_mma_family[];                                         /* matrices */
extern const struct sm_family sm_memory_family[], sm_control_family[], sm_warp_family[];
#endif
