/* A warp and the micro-operation that it executes.
 *
 *   words --sass_decode--> struct sass_inst --build--> struct sm_uop --fn(w, u)--> the next micro-operation
 *
 * Everything is a row of 32 lanes: registers, uniform registers (the same value in each lane) and constants. So a
 * uniform instruction is its vector counterpart on other rows with every lane active, and a uniform register is a
 * source like any other. Predicates are lane masks; a uniform predicate has no bit or all bits set. A micro-operation's
 * function executes the whole instruction for the lanes of sm_lanes(). It returns the next micro-operation: u + 1, or
 * the result of sm_jump for a jump. To stop the warp's executing group it sets the group's state and returns NULL
 * (sm_fault does both).
 *
 * The operations on rows (alu/sm_*.simd.c), which are slow to compile, include only this header of the SM. So it
 * includes no other: what they do not need is declared in sm_exec.h. */
#ifndef DOORBELL_EMU_NV_SM_WARP_H
#define DOORBELL_EMU_NV_SM_WARP_H
#include <stdbool.h>
#include <stdint.h>

enum {
  SM_LANES = 32,
  /* rows of the register file */
  SM_ROW_UR = 0,    /* UR0 .. UR62 */
  SM_ROW_ZERO = 63, /* RZ and URZ: this row and the next three are always 0 */
  SM_ROW_SINK = 67, /* receives writes to RZ and URZ; four rows */
  SM_ROW_TMP = 71,  /* source i after modifiers, or a loaded constant: rows 71 + 2 i and the next */
  SM_ROW_R = 80,    /* R0 .. R254 */
  SM_ROWS = SM_ROW_R + 255,
  /* indices of predicate masks in struct sm_warp.p */
  SM_P = 0,     /* P0 .. P6 */
  SM_PT = 7,    /* always ~0 */
  SM_PSINK = 8, /* receives writes to PT and UPT */
  SM_UP = 16,   /* UP0 .. UP6 */
  SM_UPT = 23,  /* always ~0 */
  SM_PREDICATES = 24,
};

struct sm_uop;
struct sm_warp;
struct sm_cta;
struct sass_inst;
typedef const struct sm_uop *sm_exec_fn(struct sm_warp *w, const struct sm_uop *u);

/* A group of lanes that execute together: what they wait for and where they continue. */
enum sm_state {
  SM_RUNNING,
  SM_AT_BSYNC,    /* convergence barrier `which` */
  SM_AT_WARPSYNC, /* convergence barrier SM_B_WARPSYNC, which holds the lane mask */
  SM_AT_BARRIER,  /* barrier `which` of the CTA */
  SM_AT_CLUSTER,  /* the cluster's barrier */
};
struct sm_group {
  uint32_t mask;
  uint8_t state, which; /* enum sm_state */
  bool exclusive;       /* at WARPSYNC: its sets of lanes continue one after the other */
  bool collective;      /* in addition: the code after it executes for the whole set at once */
  uint8_t saved;  /* while other groups run: 1 + the lane whose rows hold this group's uniform registers; 0: they are in
                     the register file */
  uint32_t turns; /* number of time slices it used up while others wanted to run */
  const struct sm_uop *next;
};

enum { SM_BARRIERS = 16, SM_B_WARPSYNC = 16, SM_B_RPC = 17, SM_B_ROWS = 19 };
struct sm_core;
struct sm_warp {
  uint32_t *r;     /* the register file: row n is r + n * SM_LANES, 128-byte aligned */
  uint32_t active; /* lanes of the executing group */
  uint32_t p[SM_PREDICATES];
  struct sm_cta *cta;
  uint32_t index;   /* index in its CTA */
  uint32_t present; /* lanes that have a thread, including exited ones */
  uint32_t exited;
  struct vm *vm;
  const struct sm_grid *grid;
  struct sm_stats *stats;
  struct fault *fault;
  struct sm_core *core;

  /* Scheduling; sm_warp.c. */
  const struct sm_uop *run; /* start of the straight-line run that is not counted yet */
  int64_t budget;           /* instructions left of the time slice; less SM_COUNTING if counts is set, so every jump
                               finds that none is left */
  uint64_t executed;
  uint32_t groups, current;
  bool runnable, faulted;
  bool counts;      /* stats->detail is set: each straight-line run adds its instructions to stats->steps */
  uint32_t running; /* if counts is set: active when the run began */
  uint32_t alone;   /* lanes that continued from an exclusive WARPSYNC and have not reached its end */
  const struct sm_uop *resume[SM_LANES]; /* where lanes continue after a collective */
  uint32_t joining;                      /* 1 + the CTA barrier where the executing group arrives and waits */
  uint32_t reduced_popc, reduced;        /* result of the last reduction at a CTA barrier */
  uint32_t arrived[SM_BARRIERS]; /* lanes that arrived at a CTA barrier and are not counted there yet: a barrier counts
                                    whole warps */
  uint32_t arriving;             /* mask of CTA barriers where lanes ever arrived */
  uint32_t cluster_arrived;      /* mask of lanes */
  uint32_t cluster_phase;        /* phase of the cluster barrier at the warp's last arrival */
  uint32_t bulk_groups;          /* number of its groups of copies from shared memory that are closed */
  uint8_t *local;                /* local memory; the lanes' dwords are interleaved */
  struct sm_group group[SM_LANES];
};
/* Convergence barriers, one row each: lane l's element is the set of lanes of the barrier that lane l joined. The sets
 * are stored per lane because diverged groups use the same barrier register at different times. */
enum { SM_ROW_ASIDE = SM_ROWS + 4 + SM_B_ROWS, SM_FILE_ROWS = SM_ROW_ASIDE + 2 * SM_LANES };
/* Uniform registers of a group that does not run: 63 words, and one word of uniform predicates. */
static inline uint32_t *sm_saved_uniforms(const struct sm_warp *w, unsigned lane) {
  return w->r + (SM_ROW_ASIDE + 2 * lane) * SM_LANES;
}
static inline uint32_t *sm_b(const struct sm_warp *w, unsigned n) { return w->r + (SM_ROWS + 4 + n) * SM_LANES; }

struct sm_uop {
  sm_exec_fn *fn;
  const struct sass_inst *inst;
  int32_t dst;      /* byte offset of the destination's first row in the file */
  int32_t src[3];   /* byte offset from w->r, or from this uop if its bit in constant is set */
  uint8_t constant; /* bit i: src[i] is a constant row (two for 64 bits) that the builder stored */
  uint8_t guard;    /* index in w->p; inverted if guard_not is ~0 */
  uint8_t pdst[2];  /* indices in w->p of the predicates written; SM_PSINK if none */
  uint8_t psrc[3];  /* predicates read; inverted if the bit of psrc_not is set */
  uint8_t psrc_not;
  uint32_t guard_not; /* 0 or ~0 */
  uint32_t all;       /* ~0 for uniform instructions, which execute regardless of active lanes; else 0 */
  uint32_t arg;       /* private to the family; so are flag and imm */
  uint32_t flag;
  union {
    const struct sm_uop *target; /* target of a jump; NULL if it must be looked up by address */
    uint64_t imm;
    uint8_t byte[8];
  };
};
_Static_assert(sizeof(struct sm_uop) <= 72, "little more than a cache line");

/* Returns the lanes for which an operation executes. */
static inline uint32_t sm_lanes(const struct sm_warp *w, const struct sm_uop *u) {
  return (w->active | u->all) & (w->p[u->guard] ^ u->guard_not);
}
static inline uint32_t sm_psrc(const struct sm_warp *w, const struct sm_uop *u, unsigned i) {
  return w->p[u->psrc[i]] ^ -(uint32_t)(u->psrc_not >> i & 1);
}
static inline void sm_pdst(struct sm_warp *w, const struct sm_uop *u, unsigned i, uint32_t lanes, uint32_t value) {
  uint32_t *p = &w->p[u->pdst[i]];
  *p = (*p & ~lanes) | (value & lanes);
}
static inline const void *sm_row(const struct sm_warp *w, const struct sm_uop *u, unsigned i) {
  const char *base = u->constant >> i & 1 ? (const char *)u : (const char *)w->r;
  return __builtin_assume_aligned(base + u->src[i], 64);
}
static inline void *sm_dst(struct sm_warp *w, const struct sm_uop *u) {
  return __builtin_assume_aligned((char *)w->r + u->dst, 64);
}
#endif
