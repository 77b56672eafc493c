/* Declarations that the builder, the code cache, and the scalar and vector operations of RDNA3 share. Private to
 * them. */
#ifndef DOORBELL_EMU_AMD_RDNA3_EXEC_H
#define DOORBELL_EMU_AMD_RDNA3_EXEC_H
#include "rdna3_wave.h"

/* ---- MODE ---- */
enum {
  RDNA3_MODE_DX10_CLAMP = 1 << 8,
  RDNA3_MODE_IEEE = 1 << 9,
  RDNA3_MODE_FP16_OVFL = 1 << 23,
  /* The bits that affect vector instructions. Code is built for one value of these bits; a change looks the code up
   * again. */
  RDNA3_MODE_KEY = 0x3ff | RDNA3_MODE_FP16_OVFL,
};
static inline unsigned rdna3_round32(uint32_t mode) { return mode & 3; }
static inline unsigned rdna3_round64(uint32_t mode) { return mode >> 2 & 3; }
static inline unsigned rdna3_denorm32(uint32_t mode) { return mode >> 4 & 3; }
static inline unsigned rdna3_denorm64(uint32_t mode) { return mode >> 6 & 3; }

/* Returns the host's floating-point control word for a rounding mode and a denormal mode (2 bits each, encoded as in
 * MODE). */
uint32_t rdna3_fp_word(unsigned round, unsigned denorm);
void rdna3_fp_set(uint32_t word);
uint32_t rdna3_fp_get(void);

/* ---- code ---- */

struct rdna3_trace {
  struct code_trace code;
  uint32_t mode;       /* the RDNA3_MODE_KEY bits it was built for */
  bool wave64, detail; /* detail: a micro-operation before each instruction counts it */
  bool strict;         /* treat instructions with ignored fields that are not zero as illegal */
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

/* Counts the straight-line run that ends before instruction `after` (one past the last executed instruction). */
static inline void rdna3_count(struct rdna3_wave *w, const struct rdna3_inst *after) {
  int64_t n = after - w->run->inst;
  w->executed += (uint64_t)n, w->budget -= n;
}
/* Stops the wave after u. The wave will resume at next. */
static inline const struct rdna3_uop *rdna3_stop(struct rdna3_wave *w, const struct rdna3_uop *u,
                                                 enum rdna3_state state, const struct rdna3_uop *next) {
  rdna3_count(w, u->inst + 1);
  w->run = w->next = next, w->state = state;
  return NULL;
}
static inline const struct rdna3_uop *rdna3_jump(struct rdna3_wave *w, const struct rdna3_uop *u,
                                                 const struct rdna3_uop *to) {
  rdna3_count(w, u->inst + 1);
  w->run = to;
  if (__builtin_expect(w->budget > 0, 1)) return to;
  w->next = to, w->state = RDNA3_YIELDED;
  return NULL;
}
const struct rdna3_uop *rdna3_jump_pc(struct rdna3_wave *w, const struct rdna3_uop *u, uint64_t pc);
/* Execute an invalid or unsupported instruction, and the end of a trace. */
rdna3_exec_fn rdna3_exec_illegal, rdna3_exec_continue;
/* Counts the next instruction in w->stats->detail. */
rdna3_exec_fn rdna3_exec_tally;
void rdna3_tally_init(void);

/* ---- scalar operands ---- */
static inline const void *rdna3_scalar(const struct rdna3_wave *w, const struct rdna3_uop *u, unsigned i) {
  return (u->constant >> i & 1 ? (const char *)u : (const char *)w->s) + u->src[i];
}
static inline uint32_t rdna3_s32(const struct rdna3_wave *w, const struct rdna3_uop *u, unsigned i) {
  return *(const uint32_t *)rdna3_scalar(w, u, i);
}
static inline uint64_t rdna3_s64(const struct rdna3_wave *w, const struct rdna3_uop *u, unsigned i) {
  const uint32_t *p = rdna3_scalar(w, u, i);
  return p[0] | (uint64_t)p[1] << 32;
}

/* ---- families of operations ---- */

/* The micro-operations that the builder inserts before and after an operation, one set per level. */
struct rdna3_glue {
  rdna3_exec_fn *enter;        /* wave64: starts half u->flag; without active lanes jumps to u->target, unless NULL */
  rdna3_exec_fn *expand;       /* dst row = broadcast of ((s & and) ^ xor); imm = and | xor << 32 */
  rdna3_exec_fn *bits[5];      /* dst row = (rearranged src0 row & and) ^ xor; indexed by enum rdna3_arrange */
  rdna3_exec_fn *mix;          /* dst row = (float)(half u->arg of src0 & and) ^ xor */
  rdna3_exec_fn *dpp16, *dpp8; /* dst row = permuted src0; lanes = the lanes that receive data */
  rdna3_exec_fn *lanes;        /* lanes = EXEC; also used as a no-op that a branch can target */
  rdna3_exec_fn *out_f32, *out_f64, *out_f16,
      *out_pk_f16;         /* dst = clamp(omod(tmp)); flag: omod | clamp << 2 | dx10 << 3 | high half << 4 */
  rdna3_exec_fn *out_hi16; /* high half of dst = low half of tmp */
  rdna3_exec_fn *flush16;  /* dst row = src0 row with f16 denormals in both halves flushed */
  rdna3_exec_fn *fp;       /* floating-point control word = arg */
  rdna3_exec_fn *move;     /* dst = src0 in active lanes */
};
enum rdna3_arrange {
  RDNA3_KEEP,
  RDNA3_SWAP,
  RDNA3_LOW,
  RDNA3_HIGH,
  RDNA3_SHIFT
}; /* halves: unchanged; swapped; low in both; high in both; high >> 16 */
extern const struct rdna3_glue *rdna3_glue;

extern const struct rdna3_handler rdna3_salu_handlers[];
#define LEVEL(l)                                                                                                       \
  extern const struct rdna3_handler rdna3_valu32_handlers_##l[], rdna3_valu16_handlers_##l[],                          \
      rdna3_valu64_handlers_##l[], rdna3_valu_cmp_handlers_##l[], rdna3_valu_trans_handlers_##l[],                     \
      rdna3_valu_lane_handlers_##l[], rdna3_valu_dot_handlers_##l[], rdna3_valu_wmma_handlers_##l[];                   \
  extern const struct rdna3_glue rdna3_glue_##l;
SIMD_LEVELS(LEVEL)
#undef LEVEL
#endif
