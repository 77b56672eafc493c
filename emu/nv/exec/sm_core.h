/* What code cache, scheduler, control and memory instructions of the SM share with each other, and no family of
 * arithmetic needs. */
#ifndef DOORBELL_EMU_NV_SM_CORE_H
#define DOORBELL_EMU_NV_SM_CORE_H
#include "sm_exec.h"

/* ---- warp error status codes (Linux nouveau's names for the SM's HWW_WARP_ESR) ---- */
enum sm_esr {
  SM_ESR_API_STACK = 0x2,
  SM_ESR_MISALIGNED_PC = 0x5,
  SM_ESR_PC_OVERFLOW = 0x6,
  SM_ESR_MISALIGNED_REG = 0x8,
  SM_ESR_ILLEGAL_INSTRUCTION = 0x9,
  SM_ESR_ILLEGAL_PARAMETER = 0xb,
  SM_ESR_OUT_OF_RANGE_REG = 0xd,
  SM_ESR_OUT_OF_RANGE_ADDRESS = 0xe,
  SM_ESR_MISALIGNED_ADDRESS = 0xf,
  SM_ESR_INVALID_ADDRESS_SPACE = 0x10,
  SM_ESR_INVALID_CONSTANT_ADDRESS = 0x12,
};

/* ---- code ---- */

struct sm_trace {
  struct code_trace code;
  uint32_t version;
  uint32_t registers; /* that a thread of the launch has; 0: as many as there are */
  bool detail;        /* with a micro-operation before each instruction that counts it */
  struct sass_inst *inst;
  uint32_t insts;
  struct sm_uop *uop; /* closed by one that goes on at end */
  uint32_t uops;
  uint32_t *uop_of;      /* first micro-operation of instruction i */
  uint32_t uniform_rows; /* rows of uniform registers that the code may read or write */
  void *pool;            /* the allocation that holds uop and its constants */
};
/* Builds uop, uop_of and pool from inst. -ENOMEM. */
int sm_build(struct sm_trace *t);
/* Where a branch, BSSY or call with an offset goes. */
uint64_t sm_branch_target(const struct sass_inst *in, unsigned version);
/* Makes u->target the micro-operation at pc, or NULL where the trace has none. */
void sm_target(struct sm_builder *b, struct sm_uop *u, uint64_t pc);
bool sm_target_inside(const struct sm_builder *b, uint64_t pc);

/* The micro-operation at an address; NULL after a fault (u: the instruction that wanted to go there; NULL at
 * launch). */
const struct sm_uop *sm_lookup(struct sm_warp *w, const struct sm_uop *u, uint64_t pc, uint32_t *uniform_rows);

/* ---- CTAs ---- */

enum {
  SM_MAX_THREADS = 1024,
  SM_MAX_WARPS = SM_MAX_THREADS / SM_LANES,
  SM_MAX_CLUSTER = 16,
  SM_SHARED_BYTES = 228 << 10,
  SM_JUMPS = 64,
  SM_RANGES = 16,
  SM_LOCAL_WINDOW = 1 << 24,
};
/* Bytes of generic address space at the shared window: sm_90's holds a cluster's CTAs, rank << 24 (nvdisasm output of
 * mapa; open-gpu-doc clcbc0.h for the window's place). */
static inline uint64_t sm_window_size(const struct sm_grid *g) { return g->version >= 0x90 ? 1ull << 32 : 1ull << 24; }

struct sm_barrier {
  uint32_t arrived;        /* threads, a multiple of 32 */
  uint32_t expected;       /* 0: every warp that has not ended */
  uint32_t popc, all, any; /* of RED while it fills */
  uint8_t op;              /* of RED */
};
struct sm_cta {
  struct sm_core *core;
  uint32_t id[3], rank; /* rank in the cluster */
  uint8_t *shared;
  uint32_t shared_size;
  uint32_t warps, live; /* live: not ended */
  uint32_t filling;     /* barriers that some warp arrived at */
  struct sm_warp *warp;
  struct sm_barrier barrier[SM_BARRIERS];
};

/* Constant banks as the host sees them. A descriptor may state a size beyond what is mapped: only a read of a byte that
 * is not there faults. */
struct sm_bank {
  const uint8_t *host;
  uint64_t va;
  uint32_t size;   /* that the descriptor states */
  uint32_t mapped; /* bytes of it that can be read, from the first */
};

struct sm_core {
  const struct sm_grid *grid;
  struct code_cache *code;
  struct sm_bank bank[SM_CONSTANT_BANKS];
  struct vm_range range[SM_RANGES]; /* last translations, each shared by some instructions */
  uint32_t ctas;
  struct sm_warp *current; /* that runs; NULL: none */
  struct sm_cta cta[SM_MAX_CLUSTER];
  uint32_t cluster_arrived, cluster_phase; /* warps that arrived at the cluster's barrier; how often it completed */
  struct {
    uint64_t pc;
    const struct sm_uop *to;
  } jump[SM_JUMPS]; /* where this cluster's warps jumped by address */
  struct sm_warp *warp;
  uint32_t *files;
  uint8_t *shared, *local;
  size_t warps_cap, shared_cap, local_cap;
  uint8_t *bank_copy[SM_CONSTANT_BANKS];
};

/* Runs a warp until every group of it waits, its slice is over, it ended or faulted. */
void sm_run_warp(struct sm_warp *w);
/* After lanes left: the CTA's and the cluster's barriers may be complete now. */
void sm_lanes_left(struct sm_warp *w);
/* Goes on at pc, for the whole executing group. */
const struct sm_uop *sm_jump_pc(struct sm_warp *w, const struct sm_uop *u, uint64_t pc);
/* A group of the lanes `mask` of the executing group that goes on at next; the executing group keeps the others. */
void sm_split(struct sm_warp *w, uint32_t mask, const struct sm_uop *next);

extern const struct sm_family sm_barrier_family[], sm_atomic_family[], sm_async_family[], sm_matrix_memory_family[],
    sm_tensor_family[];

sm_exec_fn sm_exec_no_register, sm_exec_continue, sm_exec_refuse, sm_exec_tally;
#endif
