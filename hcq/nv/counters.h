/* The performance counters of emulated NVIDIA GPUs. No real GPU has them: NVIDIA does not publish the events and the
 * registers of its counters. An emulated GPU has the class NV_CLASS_COUNTERS instead, whose methods (set COUNTERS in
 * methods.def) count per SM and store the counts in memory.
 *
 * Wire format only: driver, emulator and tests include it. */
#ifndef DOORBELL_HCQ_NV_COUNTERS_H
#define DOORBELL_HCQ_NV_COUNTERS_H

enum { NV_CLASS_COUNTERS = 0xec0f, NV_SUBCHANNEL_COUNTERS = 5 };

/* X(NAME, exact, unit, description). exact: determined by the program alone; 0: by a model of the hardware. The counts
 * of a cluster belong to the SM of its first CTA. */
/* clang-format off */
#define NV_COUNTERS(X) \
  X(CTAS, 1, "CTAs", "CTAs that were launched") \
  X(WARPS, 1, "warps", "warps that were launched") \
  X(INSTS, 1, "instructions", "all instructions; one for each warp") \
  X(INSTS_ALU, 1, "instructions", "arithmetic of threads without MUFU and matrices; one for each warp") \
  X(INSTS_MUFU, 1, "instructions", "transcendental functions; one for each warp") \
  X(INSTS_MATRIX, 1, "instructions", "matrix multiplications; one for each warp") \
  X(INSTS_UNIFORM, 1, "instructions", "the uniform datapath; one for each warp") \
  X(INSTS_CONSTANT, 1, "instructions", "loads from constant banks; one for each warp") \
  X(INSTS_GLOBAL, 1, "instructions", "global and generic memory, with atomics; one for each warp") \
  X(INSTS_LOCAL, 1, "instructions", "local memory; one for each warp") \
  X(INSTS_SHARED, 1, "instructions", "shared memory; one for each warp") \
  X(INSTS_BRANCH, 1, "instructions", "branches, calls and returns; one for each warp") \
  X(INSTS_CONTROL, 1, "instructions", "barriers, convergence, waits and exits; one for each warp") \
  X(THREAD_INSTS, 1, "instructions", "instructions of threads: all but uniform, branch, control; one for each thread") \
  X(BRANCHES, 1, "branches", "conditional branches; one for each warp") \
  X(BRANCHES_DIVERGENT, 1, "branches", "conditional branches where the threads of a warp disagree") \
  X(GLOBAL_SECTORS, 1, "sectors", "sectors of 32 bytes that each global access of a warp touches") \
  X(GLOBAL_BYTES_LOADED, 1, "bytes", "bytes that threads load from global memory") \
  X(GLOBAL_BYTES_STORED, 1, "bytes", "bytes that threads store to global memory") \
  X(SHARED_CYCLES, 0, "cycles", "cycles of shared memory: one for each pass of 32 banks") \
  X(SHARED_CONFLICTS, 0, "cycles", "cycles of shared memory that bank conflicts add")
/* clang-format on */
#define NV_COUNTER_ENUM(name, exact, unit, description) NV_COUNTER_##name,
enum nv_counter { NV_COUNTERS(NV_COUNTER_ENUM) NV_COUNTERS_COUNT };
#undef NV_COUNTER_ENUM

/* The value of START: which counters count. The emulator is faster if only those before THREAD_INSTS do. */
enum { NV_COUNTERS_OF_INSTRUCTIONS = 1, NV_COUNTERS_ALL = 3 };
static inline unsigned nv_counters_started_by(unsigned counter) {
  return counter < NV_COUNTER_THREAD_INSTS ? NV_COUNTERS_OF_INSTRUCTIONS : NV_COUNTERS_ALL;
}
#endif
