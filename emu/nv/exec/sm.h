/* The seam between the compute engine and the streaming multiprocessors: one grid, as a QMD describes it.
 *
 * The unit of work is a cluster of CTAs, which is one CTA where the launch has no clusters: its CTAs run together and
 * reach each other's shared memory. */
#ifndef DOORBELL_EMU_NV_SM_H
#define DOORBELL_EMU_NV_SM_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "../../exec/code_cache.h"
#include "../../detail.h"
#include "../../fault.h"
#include "../../vm.h"

/* Counts of one grid, summed over warps. */
struct sm_stats {
  uint64_t instructions; /* warp instructions executed */
  uint64_t warps, ctas;
  uint64_t bytes_loaded, bytes_stored; /* global memory */
  struct emu_detail *detail;           /* where to count instruction by instruction; NULL: nobody asks */
  struct emu_lines *lines;             /* beside detail: the memory that is touched; or NULL */
};

enum { SM_CONSTANT_BANKS = 8 };
struct sm_grid {
  struct vm *vm;
  uint32_t version; /* SM version as QMD's SASS_VERSION has it: 0x80, 0x86, 0x89, 0x90 */
  uint64_t pgm;     /* byte address of the first instruction */
  uint32_t grid[3], block[3];
  uint32_t cluster[3];  /* CTAs of a cluster; each divides its grid dimension */
  uint32_t registers;   /* a thread */
  uint32_t barriers;    /* named barriers of a CTA */
  uint32_t shared_size; /* bytes of a CTA, what the system reserves included */
  uint32_t local_size;  /* bytes a thread, */
  uint32_t local_high;  /* of them at the end of the local window; the others are at its start */
  struct sm_constant_bank {
    uint64_t va;
    uint32_t size; /* bytes; 0: not bound */
  } bank[SM_CONSTANT_BANKS];
  uint64_t shared_window, local_window; /* bases of the apertures in generic address space */
  uint64_t (*clock)(void *ctx);         /* nanoseconds, for the global timer */
  void *ctx;
  uint32_t sms;            /* SMs of the GPU, for SR_VIRTUALSMID */
  const atomic_bool *stop; /* set from outside to abandon the grid (channel destroyed) */
};

/* Per host thread: warp states, shared and local memory. One per worker, reused between grids. */
struct sm_core;
struct sm_core *sm_core_new(void);
void sm_core_free(struct sm_core *core);

/* Decoded code shared by the cores of one GPU. */
extern const struct code_kind sm_code_kind;

/* Runs the CTAs of one cluster to their end; first is the lowest CTA's index. 0, -EFAULT with *fault filled, or
 * -ECANCELED when *stop was seen; *fault then says where a warp was, of no kind. */
int sm_run_cluster(struct sm_core *core, struct code_cache *code, const struct sm_grid *g, const uint32_t first[3],
                   struct sm_stats *stats, struct fault *fault);
/* After a host signal left sm_run_cluster by a jump, because memory that the vm vouched for was not there: puts code in
 * order and fills *fault as for a page fault at address. */
void sm_interrupted(struct sm_core *core, struct code_cache *code, uint64_t address, unsigned access,
                    struct fault *fault);
/* The warp error (ESR code of the hardware's warp error status) that a fault of sm_run_cluster corresponds to. */
uint32_t sm_fault_esr(const struct fault *fault);
#endif
