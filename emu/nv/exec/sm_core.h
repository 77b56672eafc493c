/* Declarations that the code cache, scheduler, control and memory instructions of the SM share. The arithmetic families
 * do not use them. */
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
  uint32_t registers;      /* number of registers per thread of the launch; 0 means no limit */
  bool counts, counts_all; /* for warps whose counts is set; counts_all: their accesses, branches and guards, too */
  struct emu_kind *kinds;  /* if counts is set: of each instruction */
  struct sass_inst *inst;
  uint32_t insts;
  struct sm_uop *uop; /* the last one continues at address end */
  uint32_t uops;
  uint32_t *uop_of;      /* index of the first micro-operation of instruction i */
  uint32_t uniform_rows; /* number of rows of uniform registers that the code may access */
  void *pool;            /* the allocation that holds uop and its constants */
};
/* Builds uop, uop_of and pool from inst. Returns 0 or -ENOMEM. */
int sm_build(struct sm_trace *t);
/* Returns the target of a branch, a BSSY or a call with an offset. */
uint64_t sm_branch_target(const struct sass_inst *in, unsigned version);
/* Sets u->target to the micro-operation at pc, or to NULL if the trace has none. */
void sm_target(struct sm_builder *b, struct sm_uop *u, uint64_t pc);
bool sm_target_inside(const struct sm_builder *b, uint64_t pc);

/* Returns the micro-operation at an address, or NULL after a fault. u is the instruction that jumps there, or NULL at
 * launch. */
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
/* Returns the size of the shared window in generic address space. On sm_90 the window holds the CTAs of a cluster, each
 * at its rank << 24 (nvdisasm output of mapa; open-gpu-doc clcbc0.h for the window's address). */
static inline uint64_t sm_window_size(const struct sm_grid *g) { return g->version >= 0x90 ? 1ull << 32 : 1ull << 24; }

struct sm_barrier {
  uint32_t arrived;        /* number of threads, a multiple of 32 */
  uint32_t expected;       /* 0 means every warp that has not ended */
  uint32_t popc, all, any; /* reduction (RED) of the arrivals so far */
  uint8_t op;              /* operation of the reduction */
};
struct sm_cta {
  struct sm_core *core;
  uint32_t id[3], rank; /* rank: index in the cluster */
  uint8_t *shared;
  uint32_t shared_size;
  uint32_t warps, live; /* live: number of warps that have not ended */
  uint32_t filling;     /* mask of barriers with at least one arrival */
  struct sm_warp *warp;
  struct sm_barrier barrier[SM_BARRIERS];
};

/* A constant bank and its host memory. A descriptor may state a size beyond the mapped memory; only a read of an
 * unmapped byte faults. */
struct sm_bank {
  const uint8_t *host;
  uint64_t va;
  uint32_t size;   /* size in the descriptor */
  uint32_t mapped; /* number of readable bytes, from the first */
};

struct sm_late_copy; /* private to sm_tensor.c */

struct sm_core {
  const struct sm_grid *grid;
  struct code_cache *code;
  struct sm_bank bank[SM_CONSTANT_BANKS];
  struct vm_range range[SM_RANGES]; /* most recent translations; several instructions share each */
  uint32_t ctas;
  struct sm_warp *current; /* the running warp, or NULL */
  struct sm_cta cta[SM_MAX_CLUSTER];
  uint32_t cluster_arrived, cluster_phase; /* warps at the cluster's barrier; number of times it completed */
  struct {
    uint64_t pc;
    const struct sm_uop *to;
  } jump[SM_JUMPS]; /* targets of this cluster's jumps by address */
  struct sm_warp *warp;
  uint32_t *files;
  uint8_t *shared, *local;
  size_t warps_cap, shared_cap, local_cap;
  uint8_t *bank_copy[SM_CONSTANT_BANKS];
  struct sm_late_copy *late; /* copies of boxes that have started and are not complete */
  uint32_t nlate, late_cap, boxes;
};

/* Runs a warp until all of its groups wait, its time slice is over, it has ended, or it faults. */
void sm_run_warp(struct sm_warp *w);
/* Call after lanes exited: this may complete barriers of the CTA and of the cluster. */
void sm_lanes_left(struct sm_warp *w);
/* Continues at pc with the whole executing group. */
const struct sm_uop *sm_jump_pc(struct sm_warp *w, const struct sm_uop *u, uint64_t pc);
/* Splits the lanes `mask` off the executing group into a group that continues at next. The executing group keeps the
 * other lanes. */
void sm_split(struct sm_warp *w, uint32_t mask, const struct sm_uop *next);

extern const struct sm_family sm_barrier_family[], sm_atomic_family[], sm_async_family[], sm_matrix_memory_family[],
    sm_tensor_family[];

sm_exec_fn sm_exec_no_register, sm_exec_continue, sm_exec_refuse;

/* At the end of a cluster: completes the copies from shared memory that no warp waited for, from memory that may belong
 * to another CTA by then. Returns false after a fault. */
bool sm_abandon_copies(struct sm_core *core);

/* ---- counting ---- */

/* The class that an instruction counts for. */
enum emu_class sm_class(const struct sass_inst *in);

/* Counts what the next instruction does beyond being executed: its accesses to memory, its branch, its guard. */
sm_exec_fn sm_exec_tally;
/* Whether a trace that counts all needs it before an instruction. */
bool sm_tallies(const struct sass_inst *in);
/* Fills the kinds of a trace that is built. Returns 0 or -ENOMEM. */
int sm_tally_kinds(struct sm_trace *t);
/* Call it before these lanes, but not all, exit at u. */
void sm_count_exit(struct sm_warp *w, const struct sm_uop *u, uint32_t lanes);
/* Adds the steps of a cluster to its detail and sites. Call it before the code can be released. */
void sm_count_finish(struct sm_stats *stats);
/* Starts the clocks of a cluster's warps. Returns false if out of memory. */
bool sm_sample_begin(struct sm_sampler *s, size_t warps);
/* Samples the run that ends before `after`, for warps whose stats->sampler is set. */
void sm_sample_run(struct sm_warp *w, const struct sass_inst *after);
#endif
