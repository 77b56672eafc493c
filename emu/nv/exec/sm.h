/* The interface between the compute engine and the streaming multiprocessors: one grid as its QMD describes it.
 *
 * The unit of work is a cluster of CTAs; without clusters, a cluster is one CTA. The CTAs of a cluster run together and
 * can access each other's shared memory. */
#ifndef DOORBELL_EMU_NV_SM_H
#define DOORBELL_EMU_NV_SM_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "../../exec/code_cache.h"
#include "../../exec/steps.h"
#include "../../fault.h"
#include "../../vm.h"

/* Samples of program counters (sm_sample.c). */
enum sm_stall {
  SM_ISSUED,
  SM_STALL_WAIT,             /* a fixed number of cycles after the previous instruction */
  SM_STALL_SHORT_SCOREBOARD, /* shared memory, transcendental functions, operands that are not read yet */
  SM_STALL_LONG_SCOREBOARD,  /* global and local memory */
  SM_STALL_CONSTANT,         /* loads from constant banks */
  SM_STALL_BARRIER,
  SM_STALLS,
};
struct sm_sample {
  uint64_t pc;
  unsigned cta, warp; /* cta: in its cluster; warp: in its CTA */
  enum sm_stall stall;
};
typedef void sm_sample_fn(void *ctx, const struct sm_sample *s);
struct sm_sampler;
/* Returns a sampler for one thread, which passes each sample to a function; NULL if out of memory. */
struct sm_sampler *sm_sampler_new(sm_sample_fn *sample, void *ctx);
void sm_sampler_free(struct sm_sampler *s);

/* Counts of one grid, summed over warps. */
struct sm_stats {
  uint64_t instructions; /* warp instructions executed */
  uint64_t warps, ctas;
  uint64_t bytes_loaded, bytes_stored; /* global memory */
  struct emu_detail *detail;           /* counters per instruction; NULL disables them */
  enum emu_counting counting;          /* what to count in detail; EMU_COUNT_CLASSES_LDS: as EMU_COUNT_ALL */
  struct emu_steps steps;              /* with detail: what the cluster has executed so far */
  struct emu_lines *lines;             /* with detail: records the memory that is accessed; or NULL */
  struct emu_sites *sites;             /* with detail: counts each instruction; or NULL */
  struct sm_sampler *sampler;          /* with detail: samples the warps; or NULL */
};

enum { SM_CONSTANT_BANKS = 8 };
struct sm_grid {
  struct vm *vm;
  uint32_t version; /* SM version as in the QMD's SASS_VERSION: 0x80, 0x86, 0x89, 0x90 */
  uint64_t pgm;     /* byte address of the first instruction */
  uint32_t grid[3], block[3];
  uint32_t cluster[3];  /* CTAs per cluster; each divides its grid dimension */
  uint32_t registers;   /* per thread */
  uint32_t barriers;    /* named barriers per CTA */
  uint32_t shared_size; /* bytes per CTA, including what the system reserves */
  uint32_t local_size;  /* bytes per thread, */
  uint32_t local_high;  /* of which this many are at the end of the local window, the others at its start */
  struct sm_constant_bank {
    uint64_t va;
    uint32_t size; /* in bytes; 0 if not bound */
  } bank[SM_CONSTANT_BANKS];
  uint64_t shared_window, local_window; /* base addresses of the windows in generic address space */
  uint64_t (*clock)(void *ctx);         /* in nanoseconds, for the global timer */
  void *ctx;
  uint32_t sms, gpcs;      /* numbers of SMs and GPCs of the GPU, for sm_place; sms 0: all CTAs run on SM 0 */
  const atomic_bool *stop; /* set by another thread to abandon the grid (channel destroyed) */
};

/* Returns the SM where a CTA of a cluster runs; both are numbered from 0. A model, which takes no account of how long
 * CTAs run: GPCs take clusters in turns, and the SMs of a GPC take CTAs in turns, so a grid of as many CTAs as there
 * are SMs has one on each. A cluster's CTAs run in one GPC. SMs are numbered GPC by GPC. */
static inline uint32_t sm_place(const struct sm_grid *g, uint64_t cluster, unsigned cta) {
  uint64_t ctas = (uint64_t)g->cluster[0] * g->cluster[1] * g->cluster[2];
  if (!g->sms) return 0;
  uint32_t gpcs = g->gpcs ? g->gpcs : 1, each = g->sms / gpcs, larger = g->sms % gpcs; /* `larger` GPCs have one more */
  uint64_t gpc = cluster % gpcs, at;
  if (ctas > 1) {
    at = (cluster / gpcs * ctas + cta) % (each + (gpc < larger));
  } else {
    uint64_t turn = cluster % g->sms;
    bool last = turn >= (uint64_t)each * gpcs; /* only the larger GPCs have another SM */
    gpc = last ? turn - (uint64_t)each * gpcs : turn % gpcs;
    at = last ? each : turn / gpcs;
  }
  return (uint32_t)(gpc * each + (gpc < larger ? gpc : larger) + at);
}

/* The state of a host thread: warps, shared and local memory. One per worker, reused for later grids. */
struct sm_core;
struct sm_core *sm_core_new(void);
void sm_core_free(struct sm_core *core);

/* For the cache of decoded code that the cores of a GPU share. */
extern const struct code_kind sm_code_kind;

/* Runs the CTAs of one cluster until they have ended; first is the index of the lowest CTA. Returns 0, -EFAULT with
 * *fault filled, or -ECANCELED if *stop was set; then *fault says where a warp was, with kind FAULT_NONE. */
int sm_run_cluster(struct sm_core *core, struct code_cache *code, const struct sm_grid *g, const uint32_t first[3],
                   struct sm_stats *stats, struct fault *fault);
/* Call this after a host signal left sm_run_cluster by a jump because mapped memory was not accessible. It restores the
 * state of the code cache and fills *fault as for a page fault at address. */
void sm_interrupted(struct sm_core *core, struct code_cache *code, uint64_t address, unsigned access,
                    struct fault *fault);
/* Returns the warp error (ESR code of the hardware's warp error status) of a fault of sm_run_cluster. */
uint32_t sm_fault_esr(const struct fault *fault);
#endif
