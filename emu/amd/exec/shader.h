/* The seam between the command processor and the shader machine: one compute dispatch, as registers describe it.
 * Sources: facts of the RDNA3 ISA document and LLVM's AMDGPUUsage, named where the numbers stand. */
#ifndef DOORBELL_EMU_AMD_SHADER_H
#define DOORBELL_EMU_AMD_SHADER_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "../../exec/code_cache.h"
#include "../../detail.h"
#include "../../fault.h"
#include "../../vm.h"

/* Counts of one dispatch, summed over waves. */
struct shader_stats {
  uint64_t instructions; /* wave instructions executed */
  uint64_t waves, workgroups;
  uint64_t bytes_loaded, bytes_stored; /* global memory */
  struct emu_detail *detail;           /* where to count instruction by instruction; NULL: nobody asks */
  struct emu_lines *lines;             /* beside detail: the memory that is touched; or NULL */
};

/* What hardware lets pass but nobody means: accesses outside the workgroup's LDS, of which loads give 0 and stores do
 * nothing. */
struct shader_notes {
  _Atomic uint64_t lds_outside; /* lanes */
  struct fault first;           /* of them; whole when the dispatch has ended */
};

struct shader_dispatch {
  struct vm *vm;
  uint64_t pgm; /* byte address of the first instruction */
  uint32_t rsrc1, rsrc2, rsrc3;
  uint32_t user_data[16];
  uint32_t groups[3];  /* workgroups to run */
  uint32_t threads[3]; /* work-items of a workgroup */
  bool wave32;
  bool keep_lds;                /* the code never reads LDS: leave what the last workgroup left, as hardware does */
  uint64_t scratch_base;        /* bytes; valid when rsrc2.scratch_en */
  uint32_t scratch_wave_size;   /* bytes per wave */
  uint32_t scratch_waves;       /* wave slots that scratch has room for */
  uint64_t (*clock)(void *ctx); /* 100 MHz counter for s_memrealtime */
  void *ctx;
  struct shader_notes *notes; /* NULL: nobody asks */
  const atomic_bool *stop;    /* set from outside to abandon the dispatch (queue destroyed) */
};

/* Per host thread: decoded-code cache, LDS, wave states. One per worker, reused between dispatches. */
struct shader_core;
struct shader_core *shader_core_new(void);
void shader_core_free(struct shader_core *core);

/* Decoded code shared by the cores of one device; invalidated by cache maintenance packets. */
extern const struct code_kind shader_code_kind;

/* Runs one workgroup to its end. slot: which scratch wave slots this core may use (core_index * waves per group).
 * 0, -EFAULT with *fault filled, or -ECANCELED when *stop was seen; *fault then says where a wave was, of no kind. */
int shader_run_workgroup(struct shader_core *core, struct code_cache *code, const struct shader_dispatch *d,
                         const uint32_t group[3], uint32_t scratch_slot, struct shader_stats *stats,
                         struct fault *fault);
/* After a host signal left shader_run_workgroup by a jump, because memory that the vm vouched for was not there: puts
 * the thread and code in order and fills *fault as for a page fault at address. */
void shader_interrupted(struct shader_core *core, struct code_cache *code, uint64_t address, unsigned access,
                        struct fault *fault);

/* ---- one instruction at a time ---- */

/* Launches a workgroup's waves and runs nothing; d, stats and fault must stay. Returns the number of waves or
 * -EFAULT. */
int shader_open(struct shader_core *core, struct code_cache *code, const struct shader_dispatch *d,
                const uint32_t group[3], struct shader_stats *stats, struct fault *fault);
enum shader_step { SHADER_STEPPED, SHADER_AT_BARRIER, SHADER_ENDED, SHADER_FAULTED };
/* Executes one instruction of a wave (the same address again counts as one). A wave at a barrier goes on when no wave
 * of the group runs that is not at one. */
enum shader_step shader_step(struct shader_core *core, unsigned wave);
struct rdna3_wave *shader_wave(struct shader_core *core, unsigned wave);
void shader_close(struct shader_core *core);
#endif
