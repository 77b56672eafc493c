/* The interface between the command processor and shader execution: one compute dispatch as its registers describe it.
 * Sources: RDNA3 ISA document and LLVM's AMDGPUUsage, cited where they are used. */
#ifndef DOORBELL_EMU_AMD_SHADER_H
#define DOORBELL_EMU_AMD_SHADER_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "../../exec/code_cache.h"
#include "../../exec/steps.h"
#include "../../fault.h"
#include "../../vm.h"

/* What the waves of a workgroup executed, for thread traces. */
enum { SHADER_TRACE_WAVES = 32 };
enum { SHADER_TRACE_VM, SHADER_TRACE_LGKM, SHADER_TRACE_VS, SHADER_TRACE_COUNTERS, SHADER_TRACE_ANY = 255 };
struct shader_trace_inst {
  enum {
    SHADER_TRACE_SILENT,    /* it has no packet */
    SHADER_TRACE_VALU,      /* VALUINST */
    SHADER_TRACE_IMMEDIATE, /* IMMEDIATE */
    SHADER_TRACE_OP,        /* INST */
    SHADER_TRACE_BRANCH,    /* INST of a conditional branch: op is JUMP or JUMP_NO */
    SHADER_TRACE_CALL,      /* INST, then NEW_PC with the target */
    SHADER_TRACE_BARRIER,   /* an INST, after which the wave waits for its workgroup */
  } kind : 8;
  enum {
    SHADER_TRACE_NO_UNIT,
    SHADER_TRACE_SCALAR,
    SHADER_TRACE_VECTOR,
    SHADER_TRACE_LDS,
    SHADER_TRACE_MEMORY
  } unit : 8;
  uint8_t op; /* of INST */
  /* Memory instructions: a bit for each counter that contains them until they finish. Waits: for each counter the
   * number of instructions that may remain, or SHADER_TRACE_ANY. */
  uint8_t counters, remaining[SHADER_TRACE_COUNTERS];
  uint64_t target; /* of CALL: the address at which the wave continued */
};
struct shader_trace {
  bool instructions; /* record them; otherwise only their number */
  unsigned waves;
  struct shader_trace_wave {
    uint64_t executed;
    uint64_t next;                   /* address after the last instruction */
    struct shader_trace_inst *insts; /* the caller frees them */
    uint32_t n, cap;
    uint8_t lanes; /* active at the start */
  } wave[SHADER_TRACE_WAVES];
};

/* Counts of one dispatch, summed over waves. */
struct shader_stats {
  uint64_t instructions; /* wave instructions executed */
  uint64_t waves, workgroups;
  uint64_t bytes_loaded, bytes_stored; /* global memory */
  struct emu_detail *detail;           /* counters per instruction; NULL disables them */
  enum emu_counting counting;          /* what to count in detail */
  struct emu_steps steps;              /* with detail: what the workgroup has executed so far */
  struct emu_lines *lines;             /* with detail: records the memory that is accessed; or NULL */
  struct emu_sites *sites;             /* with detail: counts each instruction; or NULL */
  struct shader_trace *trace;          /* of the workgroup that runs; NULL if it is not traced */
};

/* Accesses that hardware allows but that are program errors: accesses outside the workgroup's LDS. Loads give 0 and
 * stores do nothing there. */
struct shader_notes {
  _Atomic uint64_t lds_outside; /* number of lanes */
  struct fault first;           /* the first one; complete when the dispatch has ended */
};

struct shader_dispatch {
  struct vm *vm;
  uint64_t pgm; /* byte address of the first instruction */
  uint32_t rsrc1, rsrc2, rsrc3;
  uint32_t user_data[16];
  uint32_t groups[3];  /* number of workgroups to run */
  uint32_t threads[3]; /* work-items per workgroup */
  bool wave32;
  bool keep_lds;                /* the code never accesses LDS: skip clearing it */
  uint64_t scratch_base;        /* in bytes; valid if rsrc2.scratch_en is set */
  uint32_t scratch_wave_size;   /* bytes per wave */
  uint32_t scratch_waves;       /* number of wave slots in scratch */
  uint64_t (*clock)(void *ctx); /* 100 MHz counter for s_memrealtime */
  void *ctx;
  struct shader_notes *notes; /* NULL if they are not wanted */
  const atomic_bool *stop;    /* set by another thread to abandon the dispatch (queue destroyed) */
};

/* The state of a host thread: LDS and wave states. One per worker, reused for later dispatches. */
struct shader_core;
struct shader_core *shader_core_new(void);
void shader_core_free(struct shader_core *core);

/* For the cache of decoded code that the cores of a device share; cache maintenance packets invalidate it. */
extern const struct code_kind shader_code_kind;

/* Runs one workgroup until it has ended. scratch_slot is the first scratch wave slot that this core may use (core_index
 * * waves per group). Returns 0, -EFAULT with *fault filled, or -ECANCELED if *stop was set; then *fault says where a
 * wave was, with kind FAULT_NONE. */
int shader_run_workgroup(struct shader_core *core, struct code_cache *code, const struct shader_dispatch *d,
                         const uint32_t group[3], uint32_t scratch_slot, struct shader_stats *stats,
                         struct fault *fault);
/* Call this after a host signal left shader_run_workgroup by a jump because mapped memory was not accessible. It
 * restores the state of thread and code cache, and fills *fault as for a page fault at address. */
void shader_interrupted(struct shader_core *core, struct code_cache *code, uint64_t address, unsigned access,
                        struct fault *fault);

/* ---- one instruction at a time ---- */

/* Launches a workgroup's waves without running them. d, stats and fault must stay valid. Returns the number of waves,
 * or -EFAULT. */
int shader_open(struct shader_core *core, struct code_cache *code, const struct shader_dispatch *d,
                const uint32_t group[3], struct shader_stats *stats, struct fault *fault);
enum shader_step { SHADER_STEPPED, SHADER_AT_BARRIER, SHADER_ENDED, SHADER_FAULTED };
/* Executes one instruction of a wave; repeating the same address counts as one. A wave at a barrier resumes when every
 * other wave of the group is at a barrier or has ended. */
enum shader_step shader_step(struct shader_core *core, unsigned wave);
struct rdna3_wave *shader_wave(struct shader_core *core, unsigned wave);
void shader_close(struct shader_core *core); /* completes the stats, which must still exist */
#endif
