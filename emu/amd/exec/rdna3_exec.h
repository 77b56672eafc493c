/* Declarations that the builder, the code cache, and the scalar and vector operations of RDNA3 share. Private to
 * them. */
#ifndef DOORBELL_EMU_AMD_RDNA3_EXEC_H
#define DOORBELL_EMU_AMD_RDNA3_EXEC_H
#include "rdna3_wave.h"
#include "shader.h"

/* ---- code ---- */

struct rdna3_trace {
  struct code_trace code;
  uint32_t mode; /* the RDNA3_MODE_KEY bits it was built for */
  bool wave64;
  bool strict;             /* treat instructions with ignored fields that are not zero as illegal */
  bool records;            /* a micro-operation before each instruction records it in a thread trace */
  bool counts, counts_all; /* for waves whose counts is set; for which counting: struct shader_stats */
  bool counts_lds;         /* a micro-operation before each instruction that may access LDS counts the access */
  struct emu_kind *kinds;  /* if counts is set: of each instruction */
  struct rdna3_inst *inst;
  uint32_t insts;
  struct rdna3_uop *uop; /* the last one continues at address end */
  uint32_t uops;
  uint32_t *uop_of; /* first micro-operation of the instruction at word i; ~0 if none starts there */
  void *pool;       /* the allocation that holds uop and its constants */
};
/* Builds uop, uop_of and pool from inst. Returns 0 or -ENOMEM. */
int rdna3_build(struct rdna3_trace *t);

/* The targets of this core's jumps by address in this workgroup, so calls and returns need no lock. */
struct rdna3_jump_cache {
  struct {
    uint64_t pc, key; /* key of the trace */
    const struct rdna3_uop *to;
  } entry[64];
};

/* Returns the micro-operation at an address for this wave's mode and size, or NULL after a fault. u is the instruction
 * that jumps there, or NULL at launch. */
const struct rdna3_uop *rdna3_lookup(struct rdna3_wave *w, const struct rdna3_uop *u, uint64_t pc);

/* The function of each row; NULL for rows that are not executed. rdna3_fn[1] holds the functions of clamped integer
 * operations. rdna3_init fills the table once. */
extern rdna3_exec_fn *rdna3_fn[2][RDNA3_ROW_COUNT];
void rdna3_init(void);
/* Fills the table with the functions of one level, at most simd_level(). For tests. Code that was built before keeps
 * its functions. */
void rdna3_choose(unsigned level);

/* ---- control ---- */

/* Stops the wave: fills *w->fault (kind, pc, address, access, lane + 32 * half or -1, workgroup, wave, text) and
 * returns NULL, which the operation returns. The text is the formatted message, the instruction bytes and its
 * disassembly. */
const struct rdna3_uop *rdna3_fault(struct rdna3_wave *w, const struct rdna3_uop *u, enum fault_kind kind, int lane,
                                    uint64_t address, unsigned access, const char *fmt, ...)
    __attribute__((format(printf, 7, 8)));

/* Adds the run that ends before `after` to the steps, for waves whose counts is set. */
void rdna3_count_run(struct rdna3_wave *w, const struct rdna3_inst *after);
/* Stores the lanes of EXEC in the wave. Before EXEC changes, its run must have ended. */
void rdna3_count_lanes(struct rdna3_wave *w);
/* Adds the steps of a workgroup to its detail and sites. Call it before the code can be released. */
void rdna3_count_finish(struct shader_stats *stats);
/* Counts the straight-line run that ends before instruction `after` (one past the last executed instruction). */
static inline void rdna3_count(struct rdna3_wave *w, const struct rdna3_inst *after) {
  int64_t n = after - w->run->inst;
  w->executed += (uint64_t)n, w->budget -= n;
  if (__builtin_expect(w->counts, 0)) rdna3_count_run(w, after);
}
/* Stops the wave after u. The wave will resume at next. */
static inline const struct rdna3_uop *rdna3_stop(struct rdna3_wave *w, const struct rdna3_uop *u,
                                                 enum rdna3_state state, const struct rdna3_uop *next) {
  rdna3_count(w, u->inst + 1);
  w->run = w->next = next, w->state = state;
  return NULL;
}
/* Starts a time slice at u. */
static inline void rdna3_resume(struct rdna3_wave *w, const struct rdna3_uop *u, int64_t instructions) {
  w->state = RDNA3_RUNNING;
  w->run = u, w->budget = instructions - (w->counts ? RDNA3_COUNTING : 0);
}
/* What rdna3_jump does when the budget is used up: at the end of a time slice, or for waves whose counts is set. */
const struct rdna3_uop *rdna3_jump_slow(struct rdna3_wave *w, const struct rdna3_uop *u, const struct rdna3_uop *to);
/* Loops run this once per iteration, so it does not test counts: waves whose counts is set have a negative budget and
 * take the slow path. */
static inline const struct rdna3_uop *rdna3_jump(struct rdna3_wave *w, const struct rdna3_uop *u,
                                                 const struct rdna3_uop *to) {
  int64_t n = u->inst + 1 - w->run->inst;
  w->executed += (uint64_t)n, w->budget -= n;
  if (__builtin_expect(w->budget <= 0, 0)) return rdna3_jump_slow(w, u, to);
  w->run = to;
  return to;
}
const struct rdna3_uop *rdna3_jump_pc(struct rdna3_wave *w, const struct rdna3_uop *u, uint64_t pc);
/* Execute an invalid or unsupported instruction, and the end of a trace. */
rdna3_exec_fn rdna3_exec_illegal, rdna3_exec_continue;
/* Records the next instruction in w->stats->trace, if it is set. */
rdna3_exec_fn rdna3_exec_record;
/* Ends the run before the next instruction, because EXEC has changed. */
rdna3_exec_fn rdna3_exec_tally_exec;
/* Counts what the next instruction does beyond being executed: its accesses to memory, its branch. */
rdna3_exec_fn rdna3_exec_tally;
/* Whether a trace that counts all needs rdna3_exec_tally before an instruction, and rdna3_exec_tally_exec after it. */
bool rdna3_tallies(const struct rdna3_inst *in);
bool rdna3_changes_exec(const struct rdna3_inst *in);
/* Counts the LDS cycles and passes of the next instruction there. */
rdna3_exec_fn rdna3_exec_tally_lds;
/* Fills the kinds of a trace. Returns 0 or -ENOMEM. */
int rdna3_tally_kinds(struct rdna3_trace *t);

/* Builds a memory instruction (rdna3_mem*.c). The builder calls it once per decoded instruction of format SMEM, DS,
 * FLAT, GLOBAL, SCRATCH, MUBUF or MTBUF, with u->inst set and all other fields zero. It fills dst, src, constant, imm
 * and so on for its own functions (usually with rdna3_vgpr; a scalar write to RDNA3_NULL goes to RDNA3_SINK, a scalar
 * read of it gives 0). It returns the function that executes one half (32 lanes: w->v, *w->lanes, which may be 0,
 * w->half), or NULL if the instruction is not supported. In wave64 every format except SMEM executes once per half. The
 * function returns u + 1, or rdna3_fault(...) on a fault. Memory operations are complete when they return. */
rdna3_exec_fn *rdna3_mem_build(struct rdna3_uop *u);

/* ---- families of operations ---- */

extern const struct rdna3_glue *rdna3_glue;

extern const struct rdna3_handler rdna3_salu_handlers[];
#endif
