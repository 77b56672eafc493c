/* An emulated machine with AMD GPUs: what its kernel driver keeps for the one process that uses it, and the GPUs'
 * queues.
 *
 * Locks, outermost first: amd_machine.lock (every ioctl but WAIT_EVENTS) > amd_gpu.queues_lock > amd_events.lock,
 * reason_lock. Queue threads take only the inner ones, so an ioctl may wait for a queue's thread to end. */
#ifndef DOORBELL_EMU_AMD_GPU_H
#define DOORBELL_EMU_AMD_GPU_H
#include <stdatomic.h>
#include <stdbool.h>
#include "../../hcq/amd/kfd.h"
#include "../fault.h"
#include "../heap.h"
#include "../machine.h"
#include "../pool.h"
#include "../race.h"
#include "../user.h"
#include "../vm.h"
#include "shader.h"

enum { AMD_PAGE = 4096, AMD_MAX_GPUS = 16, AMD_MAX_QUEUES = 1024 };

/* ---- models ---- */

/* What tells one GPU from another, as KFD's topology and the DRM driver print it. */
struct amd_model {
  const char *name; /* ISA, as in os_emulated */
  const char *marketing;
  uint32_t gfx_target_version, device_id, family_id, chip_external_rev;
  uint32_t shader_engines, arrays_per_engine, cus_per_array, simds_per_cu, waves_per_simd, wave_size, lds_kib,
      scratch_slots_per_cu;
  uint32_t sdma_engines, sdma_queues_per_engine, cp_queues;
  uint32_t engine_mhz, memory_mhz, memory_bits, mec_fw, sdma_fw;
  uint32_t capability, debug_prop;
  uint64_t vram_bytes;
  uint32_t vgpr_bytes_per_cu; /* of the context save area */
  uint32_t gl1_kib, l2_kib, l3_kib, tcc_blocks;
};
const struct amd_model *amd_model_find(const char *name, size_t length);
/* Names of all models, comma separated. */
void amd_model_names(char *buf, size_t cap);
static inline uint32_t amd_model_cus(const struct amd_model *m) {
  return m->shader_engines * m->arrays_per_engine * m->cus_per_array;
}

/* Sizes that CREATE_QUEUE insists on, from the formulas of Linux's kfd_queue.c (kfd_queue_ctx_save_restore_size). */
struct amd_save_area {
  uint32_t ctl_stack, context, debug;
  uint64_t total; /* of the buffer */
};
struct amd_save_area amd_save_area(const struct amd_model *m);

/* ---- memory ---- */

/* A buffer object. */
struct amd_bo {
  unsigned index; /* in the machine's table */
  struct amd_gpu *gpu;
  struct heap *heap; /* NULL: user memory or a register page */
  uint64_t va, size, heap_offset;
  uint32_t flags;
  uint8_t *host;
  uint32_t mapped; /* bit per GPU */
  unsigned pins;   /* queues and the event page */
};

struct amd_machine;
int amd_alloc_memory(struct amd_machine *m, void *arg);
int amd_free_memory(struct amd_machine *m, void *arg);
int amd_map_memory(struct amd_machine *m, void *arg);
int amd_unmap_memory(struct amd_machine *m, void *arg);
int amd_available_memory(struct amd_machine *m, void *arg);
void amd_memory_fini(struct amd_machine *m);
/* The object a handle names, or NULL. */
struct amd_bo *amd_bo_find(struct amd_machine *m, uint64_t handle);
/* The object that starts exactly at va's page, is size bytes long (0: any) and is mapped on gpu, or NULL. */
struct amd_bo *amd_bo_at(struct amd_gpu *gpu, uint64_t va, uint64_t size);
void *amd_bo_mmap(struct amd_machine *m, unsigned gpu, void *addr, size_t len, int prot, int flags, uint64_t off);

/* ---- events ---- */

struct amd_event;
struct amd_waiter;
struct amd_events {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  _Atomic uint64_t *slots; /* the event page */
  struct amd_bo *page_bo;  /* when the process brought the page */
  int page_fd;             /* when the kernel did, else -1 */
  struct amd_event *signal[KFD_EVENT_LIMIT], *other[256];
  struct amd_waiter *waiters;
};
void amd_events_init(struct amd_events *e);
void amd_events_fini(struct amd_events *e);
int amd_create_event(struct amd_machine *m, void *arg);
int amd_destroy_event(struct amd_machine *m, void *arg);
int amd_set_event(struct amd_machine *m, void *arg);
int amd_reset_event(struct amd_machine *m, void *arg);
int amd_wait_events(struct amd_machine *m, void *arg);
void *amd_events_mmap(struct amd_machine *m, void *addr, size_t len, int prot, int flags);
/* An interrupt with a context id of valid_bits bits arrived. */
void amd_events_interrupt(struct amd_events *e, uint32_t context, unsigned valid_bits);
void amd_events_memory_fault(struct amd_events *e, const struct kfd_memory_exception *x);
void amd_events_hw_exception(struct amd_events *e, const struct kfd_hw_exception *x);

/* ---- queues ---- */

enum cp_status {
  CP_DONE,    /* one packet finished */
  CP_IDLE,    /* nothing left before the write pointer */
  CP_BLOCKED, /* the packet at the read pointer waits for memory */
  CP_DEAD,    /* faulted, evicted or being destroyed */
};

/* Where packets are read from: the ring, and the indirect buffers that it called. */
struct cp_level {
  uint64_t va;       /* of an indirect buffer */
  uint64_t pos, end; /* dwords; the ring's count on without wrapping */
};
enum { CP_LEVELS = 3, CP_PACKET_MAX = 0x4001 };

struct amd_queue {
  struct amd_queue *next; /* of the GPU */
  struct amd_gpu *gpu;
  unsigned id, doorbell_slot;
  bool sdma;
  uint64_t ring_va;
  const uint32_t *ring;
  uint32_t ring_dwords;
  void *rptr; /* 32 bits wrapped (PM4) or 64 bits of bytes (SDMA) */
  _Atomic uint64_t *doorbell;
  atomic_uint percentage;
  struct amd_bo *pinned[5];
  unsigned sdma_engine;

  pthread_t thread;
  bool started;
  atomic_bool quit, stop; /* end the thread; abandon the dispatch that runs */
  atomic_bool dispatching;

  struct cp_level levels[CP_LEVELS];
  unsigned level;
  uint64_t doorbell_seen;
  uint64_t packets;            /* done so far */
  unsigned packet_level;       /* level of the packet in a handler */
  uint64_t packet_dwords;      /* its length, already counted in pos; 0 outside handlers */
  struct vm_range fetch, data; /* translation caches */
  uint32_t *packet;            /* copy of the one being processed */

  uint32_t sh[0x3000 - 0x2c00]; /* registers of SET_SH_REG */
  struct shader_core *core;
  struct code_cache *code;
  struct race_queue *race; /* NULL when the machine is not strict */
};

int amd_create_queue(struct amd_machine *m, void *arg);
int amd_destroy_queue(struct amd_machine *m, void *arg);
int amd_update_queue(struct amd_machine *m, void *arg);
/* Ends and frees all queues of a GPU. */
void amd_queues_fini(struct amd_gpu *gpu);

/* A queue without a thread, for whoever calls cp_run himself. ring must stay mapped at ring_va. */
struct amd_queue *amd_queue_new(struct amd_gpu *gpu, bool sdma, uint64_t ring_va, uint32_t ring_bytes, const void *ring,
                                void *rptr, _Atomic uint64_t *doorbell);
void amd_queue_free(struct amd_queue *q);
/* Processes up to budget packets. CP_DONE when the budget ended it. */
enum cp_status cp_run(struct amd_queue *q, uint64_t budget);

/* The packet at the current position, of which left dwords are submitted. */
enum cp_status pm4_packet(struct amd_queue *q, uint64_t left);
enum cp_status sdma_packet(struct amd_queue *q, uint64_t left);
/* Runs the dispatch that q's registers describe over dims workgroups (or work-items, if the initiator says so). */
enum cp_status amd_dispatch(struct amd_queue *q, const uint32_t dims[3], uint32_t initiator);

/* Helpers of the packet processors. */
enum cp_status cp_fetch(struct amd_queue *q, uint64_t skip, uint32_t *out,
                        uint64_t n); /* dwords at the current position */
static inline void cp_advance(struct amd_queue *q, uint64_t n) { q->levels[q->level].pos += n; }
/* Host memory behind [va, va + size), which must be aligned; raises the fault and returns NULL. what: the packet and
 * what it does there. */
void *cp_memory(struct amd_queue *q, const char *what, uint64_t va, uint64_t size, uint64_t align, unsigned access);
enum cp_status cp_fault(struct amd_queue *q, enum fault_kind kind, uint64_t address, unsigned access,
                        const char *format, ...) __attribute__((format(printf, 5, 6)));
/* p[0] is the header; n dwords follow. The packet is counted as read already; CP_BLOCKED takes it back, to be tried
 * again. */
typedef enum cp_status (*cp_handler)(struct amd_queue *q, const uint32_t *p, uint32_t n);
enum cp_status cp_handle(struct amd_queue *q, cp_handler handler, const uint32_t *p, uint32_t n);
/* Ends a task of the queue; a race is a fault. */
enum cp_status cp_task_end(struct amd_queue *q, struct race_task *t);
/* The processor itself reads n bytes there, between tasks. */
void cp_reads(struct amd_queue *q, const void *p, uint64_t n);
/* Before a signal is stored at va: of all packets so far, or at_once of those that have finished; a race is a fault. */
enum cp_status cp_release(struct amd_queue *q, uint64_t va, const void *at, uint64_t value, bool at_once);
/* Goes on in the indirect buffer at va; chain: does not come back to the one that is left. */
enum cp_status cp_call(struct amd_queue *q, const char *what, uint64_t va, uint64_t dwords, bool chain);
/* (value & mask) function reference; function as in enum pm4_wait_function. */
bool cp_compare(unsigned function, uint64_t value, uint64_t reference, uint64_t mask);
/* A TC atomic (numbers of the PM4 ATOMIC_MEM and SDMA ATOMIC packets) on 4 or 8 bytes at p; false for an unknown
 * operation. */
bool cp_atomic_bytes(unsigned op, unsigned *bytes);
bool cp_atomic(void *p, unsigned op, uint64_t src, uint64_t cmp, uint64_t *old);
/* The constant 100 MHz counter. */
uint64_t amd_clock(void);

/* ---- the GPU and the machine ---- */

/* Per kernel (counters.c). */
struct amd_counters {
  pthread_mutex_t lock;
  struct emu_detail total;
  struct emu_kernel_stats *kernel;
  size_t n;
};

struct amd_gpu {
  struct amd_machine *machine;
  unsigned index;
  const struct amd_model *model;
  uint32_t gpu_id, minor;
  struct vm *vm;
  struct heap vram;
  struct amd_file *acquired; /* the render node file whose address space is this GPU's */
  int doorbell_fd;
  _Atomic uint64_t *doorbells;
  uint8_t *mmio_page; /* registers that the host writes to flush HDP; what race.h knows the GPU by */
  int mmio_fd;

  pthread_mutex_t queues_lock;
  struct amd_queue *queues;
  atomic_bool faulted;
  struct fault fault; /* under queues_lock; set once, and when */
  struct timespec fault_time;

  atomic_uint_fast32_t grbm_gfx_index;
  _Atomic uint64_t instructions, waves, workgroups, dispatches, bytes_loaded, bytes_stored;
  struct amd_counters counters;
};

struct amd_file {
  struct emu_file file;
  struct amd_machine *machine;
  struct amd_gpu *gpu; /* NULL: /dev/kfd */
};

struct amd_machine {
  struct emu_machine base;
  pthread_mutex_t lock;
  struct amd_gpu *gpus;
  unsigned ngpus;
  struct heap gtt;
  struct amd_bo **bos;
  size_t nbos, free_bo;
  struct amd_queue *queues[AMD_MAX_QUEUES]; /* by id */
  struct amd_events events;
  bool runtime_enabled;
  struct pool *pool;
  struct shader_core **cores; /* one per worker of the pool, made on first use by that worker */
  /* Bumped, and sleepers woken, when something that a queue may wait for has happened. */
  atomic_uint kick, sleepers;
  atomic_bool detail; /* dispatches that begin are counted instruction by instruction */
  struct sysfs_entry *sysfs;
  size_t nsysfs;
};

struct amd_gpu *amd_gpu_find(struct amd_machine *m, uint32_t gpu_id);
void amd_kick(struct amd_machine *m);
/* Stops the GPU's queues, reports to the process's events and leaves the report for the device core dump. Only the
 * first fault counts. */
void amd_gpu_fault(struct amd_gpu *gpu, const struct fault *fault);
/* The kernel whose code is at pc, by what the loader left around it; false when that does not say. */
bool amd_kernel_name(struct vm *vm, uint64_t pc, char *buf, size_t cap);

/* GCVM_L2_PROTECTION_FAULT_STATUS of the GPU's page fault and the page's address; 0 when it has had none. Under
 * queues_lock. */
uint32_t amd_fault_status(const struct amd_gpu *gpu, uint64_t *page);

int amd_kfd_ioctl(struct amd_machine *m, unsigned long request, void *arg);
int amd_drm_ioctl(struct amd_gpu *gpu, unsigned long request, void *arg);

int amd_sysfs_init(struct amd_machine *m);
void amd_sysfs_fini(struct amd_machine *m);
ssize_t amd_sysfs_read(struct amd_machine *m, const char *path, char *buf, size_t cap);
int amd_sysfs_list(struct amd_machine *m, const char *path, int (*each)(void *ctx, const char *name), void *ctx);
/* ---- counters.c ---- */
/* What a dispatch that ended has counted, in stats->detail and beside it. */
void amd_counters_add(struct amd_gpu *g, uint64_t pgm, const struct shader_stats *stats);
void amd_counters_total(struct amd_gpu *g, struct emu_detail *out);
int amd_counters_kernels(struct amd_gpu *g, struct emu_kernel_stats **out, size_t *n);
#endif
