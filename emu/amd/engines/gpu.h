/* The emulated AMD GPUs: models, queues, and the processors that read their packets. kernel/process.h declares the
 * kernel driver's state and documents the lock order. */
#ifndef DOORBELL_EMU_AMD_GPU_H
#define DOORBELL_EMU_AMD_GPU_H
#include <stdatomic.h>
#include <stdbool.h>
#include "../../../hcq/amd/kfd.h"
#include "../../../hcq/amd/perf.h"
#include "../../exec/sites.h"
#include "../../fault.h"
#include "../../heap.h"
#include "../../machine.h"
#include "../../pool.h"
#include "../../race.h"
#include "../../vm.h"
#include "../exec/shader.h"
#include "sqtt.h"

struct amd_bo;
struct amd_file;
struct amd_gpu;
struct amd_machine;

enum { AMD_PAGE = 4096 };

/* ---- models ---- */

/* The properties of a GPU model, as KFD's topology and the DRM driver report them. */
struct amd_model {
  const char *name; /* ISA name, as passed to os_emulated */
  const char *marketing;
  uint32_t gfx_target_version, device_id, family_id, chip_external_rev;
  uint32_t shader_engines, arrays_per_engine, cus_per_array, simds_per_cu, waves_per_simd, wave_size, lds_kib,
      scratch_slots_per_cu;
  uint32_t sdma_engines, sdma_queues_per_engine, cp_queues;
  uint32_t engine_mhz, memory_mhz, memory_bits, mec_fw, sdma_fw;
  uint32_t capability, debug_prop;
  uint64_t vram_bytes;
  uint32_t vgpr_bytes_per_cu; /* size in the context save area */
  uint32_t gl1_kib, l2_kib, l3_kib, tcc_blocks;
};
const struct amd_model *amd_model_find(const char *name, size_t length);
/* Writes the names of all models, comma separated. */
void amd_model_names(char *buf, size_t cap);
static inline uint32_t amd_model_cus(const struct amd_model *m) {
  return m->shader_engines * m->arrays_per_engine * m->cus_per_array;
}

/* The sizes that CREATE_QUEUE requires, from the formulas of Linux's kfd_queue.c (kfd_queue_ctx_save_restore_size). */
struct amd_save_area {
  uint32_t ctl_stack, context, debug;
  uint64_t total; /* size of the whole buffer */
};
struct amd_save_area amd_save_area(const struct amd_model *m);

/* ---- queues ---- */

enum cp_status {
  CP_DONE,    /* one packet finished */
  CP_IDLE,    /* no packet before the write pointer is left */
  CP_BLOCKED, /* the packet at the read pointer waits for a value in memory */
  CP_DEAD,    /* faulted, evicted or being destroyed */
};

/* Where the processor reads packets: the ring, or an indirect buffer that a packet called. */
struct cp_level {
  uint64_t va;       /* address of the indirect buffer */
  uint64_t pos, end; /* in dwords; the ring's positions count up without wrapping */
};
enum { CP_LEVELS = 3, CP_PACKET_MAX = 0x4001 };

struct amd_queue {
  struct amd_queue *next; /* next queue of the GPU */
  struct amd_gpu *gpu;
  unsigned id, doorbell_slot;
  bool sdma;
  uint64_t ring_va;
  const uint32_t *ring;
  uint32_t ring_dwords;
  void *rptr; /* PM4: 32 bits in dwords, wrapped; SDMA: 64 bits in bytes */
  _Atomic uint64_t *doorbell;
  atomic_uint percentage;
  struct amd_bo *pinned[5];
  unsigned sdma_engine;

  pthread_t thread;
  bool started;
  atomic_bool quit, stop; /* quit: end the thread; stop: abandon the running dispatch */
  atomic_bool dispatching;

  struct cp_level levels[CP_LEVELS];
  unsigned level;
  uint64_t doorbell_seen;
  uint64_t packets;            /* number of packets processed */
  unsigned packet_level;       /* level of the packet that a handler is processing */
  uint64_t packet_dwords;      /* its length, which pos already includes; 0 outside handlers */
  struct vm_range fetch, data; /* translation caches */
  uint32_t *packet;            /* copy of the packet being processed */

  uint32_t sh[0x3000 - 0x2c00]; /* registers that SET_SH_REG writes */
  uint64_t launched;            /* number of workgroups, for placement.c */
  struct shader_core *core;
  struct code_cache *code;
  struct race_queue *race; /* NULL if the machine is not strict */
};

/* Creates a queue without a thread; the caller calls cp_run. ring must stay mapped at ring_va. */
struct amd_queue *amd_queue_new(struct amd_gpu *gpu, bool sdma, uint64_t ring_va, uint32_t ring_bytes, const void *ring,
                                void *rptr, _Atomic uint64_t *doorbell);
/* Ends the queue's thread, if any, and frees the queue. The GPU's list must not contain it any more. */
void amd_queue_free(struct amd_queue *q);
/* Starts the thread that polls the doorbell. Returns 0 or a negative errno. */
int amd_queue_start(struct amd_queue *q);
/* Processes at most budget packets. Returns CP_DONE if it processed all of them. */
enum cp_status cp_run(struct amd_queue *q, uint64_t budget);

/* Process the packet at the current position. left is the number of submitted dwords from there on. */
enum cp_status pm4_packet(struct amd_queue *q, uint64_t left);
enum cp_status sdma_packet(struct amd_queue *q, uint64_t left);
/* Runs the dispatch that q's registers describe over dims workgroups (or work-items, if the initiator says so). */
enum cp_status amd_dispatch(struct amd_queue *q, const uint32_t dims[3], uint32_t initiator);

/* ---- helpers of the packet processors ---- */
enum cp_status cp_fetch(struct amd_queue *q, uint64_t skip, uint32_t *out,
                        uint64_t n); /* dwords at the current position */
static inline void cp_advance(struct amd_queue *q, uint64_t n) { q->levels[q->level].pos += n; }
/* Returns the host memory of [va, va + size), which must be aligned. On an error it raises the fault and returns NULL.
 * what: the packet and the access, for the message. */
void *cp_memory(struct amd_queue *q, const char *what, uint64_t va, uint64_t size, uint64_t align, unsigned access);
enum cp_status cp_fault(struct amd_queue *q, enum fault_kind kind, uint64_t address, unsigned access,
                        const char *format, ...) __attribute__((format(printf, 5, 6)));
/* A packet handler. p[0] is the header, followed by n dwords. The read position is already after the packet; if the
 * handler returns CP_BLOCKED, the position moves back and the packet is processed again later. */
typedef enum cp_status (*cp_handler)(struct amd_queue *q, const uint32_t *p, uint32_t n);
enum cp_status cp_handle_packet(struct amd_queue *q, cp_handler handler, const uint32_t *p, uint32_t n);
/* Ends a task of the queue. If the task raced, raises a fault. */
enum cp_status cp_task_end(struct amd_queue *q, struct race_task *t);
/* Records that the processor itself reads n bytes at p, outside of tasks. */
void cp_record_read(struct amd_queue *q, const void *p, uint64_t n);
/* Call before storing a signal at va. The signal covers all packets so far, or with at_once only those that have
 * finished. If one of them raced, raises a fault. */
enum cp_status cp_release(struct amd_queue *q, uint64_t va, const void *at, uint64_t value, bool at_once);
/* Continues in the indirect buffer at va. With chain, its end does not return to the buffer that called it. */
enum cp_status cp_call_indirect(struct amd_queue *q, const char *what, uint64_t va, uint64_t dwords, bool chain);
/* Compares (value & mask) with reference. function is of enum pm4_wait_function. */
bool cp_compare(unsigned function, uint64_t value, uint64_t reference, uint64_t mask);
/* Performs a TC atomic on 4 or 8 bytes at p; op is numbered as in the PM4 ATOMIC_MEM and SDMA ATOMIC packets. Returns
 * false if op is unknown. */
bool cp_atomic_bytes(unsigned op, unsigned *bytes);
bool cp_atomic(void *p, unsigned op, uint64_t src, uint64_t cmp, uint64_t *old);
/* The constant-rate 100 MHz counter. */
uint64_t amd_clock(void);

/* ---- GPUs ---- */

/* Counts per kernel (counters.c). */
struct amd_counters {
  pthread_mutex_t lock;
  struct emu_detail total;
  struct emu_kernel_stats *kernel;
  size_t n;
  struct emu_notes notes;
};

/* Performance counters (perfmon.c). Only the packet processors of queues write the registers. */
struct amd_perfmon {
  pthread_mutex_t lock;
  _Atomic uint32_t control, sq_control, sq_control2; /* CP_PERFMON_CNTL, SQ_PERFCOUNTER_CTRL, SQ_PERFCOUNTER_CTRL2 */
  uint32_t select[AMD_PERF_BLOCKS][AMD_PERF_SLOTS];  /* guarded by lock */
  uint64_t (*counts)[AMD_PERF_COUNTS];               /* by WGP; guarded by lock */
};

/* State that all GPUs of a machine share. */
struct amd_shared {
  struct emu_machine *machine;
  struct pool *pool;
  struct shader_core **cores; /* one per worker of the pool; the worker creates it at its first use */
  /* wake_futex is incremented, and sleepers are woken, when an event occurs that a queue may wait for. */
  atomic_uint wake_futex, sleepers;
  /* They apply to dispatches that begin while they are set. detail: add to struct emu_detail; annotate: also to the
   * struct emu_site of each instruction. */
  atomic_bool detail, annotate;
  /* Callbacks of the machine's kernel. An interrupt has a context id of valid_bits bits. A fault stops the GPU's
   * queues; only the first fault counts. */
  void (*interrupt)(struct amd_gpu *gpu, uint32_t context, unsigned valid_bits);
  void (*fault)(struct amd_gpu *gpu, const struct fault *fault);
};

struct amd_gpu {
  struct amd_machine *machine; /* state of the kernel driver */
  struct amd_shared *shared;
  unsigned index;
  const struct amd_model *model;
  uint32_t gpu_id, minor;
  struct vm *vm;
  struct heap vram;
  struct amd_file *acquired;    /* the render node's file whose address space the GPU uses */
  struct amd_file *stable_file; /* the one with a context that keeps the clocks stable, or NULL; and that context */
  uint32_t stable;
  int doorbell_fd;
  _Atomic uint64_t *doorbells;
  uint8_t *mmio_page; /* registers that the host writes to flush HDP; race.h identifies the GPU by this pointer */
  int mmio_fd;

  pthread_mutex_t queues_lock;
  struct amd_queue *queues;
  atomic_bool faulted;
  struct fault fault; /* guarded by queues_lock; the first fault, at fault_time */
  struct timespec fault_time;

  atomic_uint_fast32_t grbm_gfx_index;
  _Atomic uint64_t instructions, waves, workgroups, dispatches, bytes_loaded, bytes_stored;
  struct amd_counters counters;
  struct amd_sqtt sqtt;
  struct amd_perfmon perf;
};

/* Wakes the sleeping queues. */
void amd_wake_queues(struct amd_shared *s);
/* Finds the name of the kernel whose code is at pc in the ELF data that the loader left in memory. Returns false if
 * there is none. */
bool amd_kernel_name(struct vm *vm, uint64_t pc, char *buf, size_t cap);

/* ---- placement.c ---- */
/* Where a workgroup runs: a compute unit has the SIMDs cu and cu + 2 of its workgroup processor, which has four. */
struct amd_unit {
  uint8_t engine, array, wgp, cu;
  bool both; /* WGP mode: the workgroup uses both compute units */
};
enum { AMD_UNITS_MAX = 256 };
/* Lists the enabled units of a dispatch, at most AMD_UNITS_MAX, in the order in which workgroups go to them. Returns
 * their number. Workgroup i runs on unit i modulo that number. */
unsigned amd_list_units(const struct amd_queue *q, uint32_t rsrc1, struct amd_unit *out);
/* Returns the SIMD, 0 to 3, of a wave of a workgroup. earlier: number of workgroups of the dispatch that went to the
 * unit before it; waves: of each workgroup. */
unsigned amd_simd_of(const struct amd_unit *u, uint64_t earlier, unsigned waves, unsigned wave);

/* ---- perfmon.c ---- */
int amd_perf_init(struct amd_gpu *g); /* returns 0, or -1 if out of memory */
void amd_perf_fini(struct amd_gpu *g);
/* Writes a register of the performance counters. The caller has checked the reserved bits of the control registers;
 * select registers accept only known events. Sets *known to false for another register. */
enum cp_status amd_perf_write(struct amd_queue *q, const char *packet, uint32_t reg, uint32_t value, bool *known);
/* Returns the value of a control register. */
uint32_t amd_perf_read(struct amd_queue *q, uint32_t reg);
/* Reads a result register of the instance that GRBM_GFX_INDEX selects. Sets *known to false for another register. */
enum cp_status amd_perf_result(struct amd_queue *q, uint32_t reg, uint32_t *value, bool *known);
/* Returns whether dispatches count. Then each workgroup adds its counts: the unit where it ran, the number of its
 * waves, and the detail before and after it ran. */
bool amd_perf_counts(struct amd_queue *q);
/* Returns whether an event of LDS is selected; otherwise its counts in the detail are not used. */
bool amd_perf_counts_lds(struct amd_queue *q);
void amd_perf_add(struct amd_queue *q, const struct amd_unit *unit, bool wave32, uint64_t waves,
                  const struct emu_detail *before, const struct emu_detail *after);

/* ---- counters.c ---- */
/* Adds the counts of a finished dispatch: stats->detail and the totals in stats. */
void amd_counters_add(struct amd_gpu *g, uint64_t pgm, const struct shader_stats *stats);
void amd_counters_total(struct amd_gpu *g, struct emu_detail *out);
int amd_counters_kernels(struct amd_gpu *g, struct emu_kernel_stats **out, size_t *n);
int amd_counters_instructions(struct amd_gpu *g, const struct emu_kernel_stats *kernel, struct emu_site **out,
                              size_t *n);

/* ---- sqtt.c: thread traces ---- */

/* Whether a register of the UCONFIG range belongs to thread traces. */
bool amd_sqtt_has(uint32_t reg);
/* Write and read it, for the engines that GRBM_GFX_INDEX selects. */
enum cp_status amd_sqtt_write(struct amd_queue *q, const char *packet, uint32_t reg, uint32_t value);
enum cp_status amd_sqtt_read(struct amd_queue *q, const char *packet, uint32_t reg, uint32_t *value);
/* The queue has written a register of the SH range. */
void amd_sqtt_sh_register(struct amd_queue *q, uint32_t reg, uint32_t value);
/* The queue signals an event. */
enum cp_status amd_sqtt_event(struct amd_queue *q, unsigned type);

/* ---- sqtt_dispatch.c: packets of a dispatch ---- */

struct sqtt_dispatch;
/* Returns NULL if the queue is not traced. unit: where its workgroups run, in turns; it must outlive the result. waves:
 * per workgroup; resident: waves that a compute unit can hold. */
struct sqtt_dispatch *amd_sqtt_dispatch(struct amd_queue *q, const struct shader_dispatch *d,
                                        const struct amd_unit *unit, unsigned units, uint64_t groups, unsigned waves,
                                        uint64_t resident);
/* Begins and ends workgroup number `index` of the dispatch, on any thread. Begin returns the recorder for
 * shader_stats.trace; it is the caller's *recorder. Both are no-ops if d is NULL. */
struct shader_trace *amd_sqtt_group_begin(const struct sqtt_dispatch *d, uint64_t index, struct shader_trace *recorder);
void amd_sqtt_group_end(struct sqtt_dispatch *d, uint64_t index, struct shader_trace *recorder);
/* Writes the packets, and frees d. A no-op if d is NULL. */
enum cp_status amd_sqtt_dispatch_end(struct amd_queue *q, struct sqtt_dispatch *d);
/* Copies what the engines have written to the GPU's memory. */
enum cp_status amd_sqtt_drain(struct amd_queue *q);
#endif
