/* An emulated machine with AMD GPUs: the state that its kernel driver keeps for the one process that uses it.
 *
 * Locks, outermost first: amd_machine.lock (every ioctl except WAIT_EVENTS) > amd_gpu.queues_lock > amd_events.lock,
 * reason_lock. Queue threads take only the inner ones, so an ioctl may wait for a queue's thread to end. */
#ifndef DOORBELL_EMU_AMD_PROCESS_H
#define DOORBELL_EMU_AMD_PROCESS_H
#include <stdatomic.h>
#include <stdbool.h>
#include "../../user.h"
#include "../engines/gpu.h"

enum { AMD_MAX_GPUS = 16, AMD_MAX_QUEUES = 1024 };

/* ---- memory ---- */

/* A buffer object. */
struct amd_bo {
  unsigned index; /* index in the machine's table */
  struct amd_gpu *gpu;
  struct heap *heap; /* NULL for user memory or a register page */
  uint64_t va, size, heap_offset;
  uint32_t flags;
  uint8_t *host;
  uint32_t mapped; /* one bit per GPU */
  unsigned pins;   /* number of queues and event pages that use it */
};

struct amd_machine;
int amd_alloc_memory(struct amd_machine *m, void *arg);
int amd_free_memory(struct amd_machine *m, void *arg);
int amd_map_memory(struct amd_machine *m, void *arg);
int amd_unmap_memory(struct amd_machine *m, void *arg);
int amd_available_memory(struct amd_machine *m, void *arg);
void amd_memory_fini(struct amd_machine *m);
/* Returns the object of a handle, or NULL. */
struct amd_bo *amd_bo_find(struct amd_machine *m, uint64_t handle);
/* Returns the object that starts exactly at va's page, is size bytes long (0 accepts any size) and is mapped on gpu, or
 * NULL. */
struct amd_bo *amd_bo_at(struct amd_gpu *gpu, uint64_t va, uint64_t size);
void *amd_bo_mmap(struct amd_machine *m, unsigned gpu, void *addr, size_t len, int prot, int flags, uint64_t off);

/* ---- events ---- */

struct amd_event;
struct amd_waiter;
struct amd_events {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  _Atomic uint64_t *slots; /* the event page */
  struct amd_bo *page_bo;  /* if the process allocated the page */
  int page_fd;             /* if the kernel did, else -1 */
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
/* Handles an interrupt with a context id of valid_bits bits. */
void amd_events_interrupt(struct amd_events *e, uint32_t context, unsigned valid_bits);
void amd_events_memory_fault(struct amd_events *e, const struct kfd_memory_exception *x);
void amd_events_hw_exception(struct amd_events *e, const struct kfd_hw_exception *x);

/* ---- queues ---- */

int amd_create_queue(struct amd_machine *m, void *arg);
int amd_destroy_queue(struct amd_machine *m, void *arg);
int amd_update_queue(struct amd_machine *m, void *arg);
/* Ends and frees all queues of a GPU. */
void amd_queues_fini(struct amd_gpu *gpu);

/* ---- the GPU and the machine ---- */

struct amd_file {
  struct emu_file file;
  struct amd_machine *machine;
  struct amd_gpu *gpu; /* NULL for /dev/kfd */
  uint64_t contexts;   /* of a render node: bit i is set if context i + 1 exists */
};

struct amd_machine {
  struct emu_machine base;
  pthread_mutex_t lock;
  struct amd_gpu *gpus;
  unsigned ngpus;
  struct heap gtt;
  struct amd_bo **bos;
  size_t nbos, free_bo;
  struct amd_queue *queues[AMD_MAX_QUEUES]; /* indexed by id */
  struct amd_events events;
  bool runtime_enabled;
  struct amd_shared shared;
  struct sysfs_entry *sysfs;
  size_t nsysfs;
};

struct amd_gpu *amd_gpu_find(struct amd_machine *m, uint32_t gpu_id);
/* Returns GCVM_L2_PROTECTION_FAULT_STATUS of the GPU's page fault and the address of the page, or 0 if it has had none.
 * The caller holds queues_lock. */
uint32_t amd_fault_status(const struct amd_gpu *gpu, uint64_t *page);

int amd_kfd_ioctl(struct amd_machine *m, unsigned long request, void *arg);
int amd_drm_ioctl(struct amd_file *file, unsigned long request, void *arg); /* file: of a render node */

int amd_sysfs_init(struct amd_machine *m);
void amd_sysfs_fini(struct amd_machine *m);
ssize_t amd_sysfs_read(struct amd_machine *m, const char *path, char *buf, size_t cap);
int amd_sysfs_list(struct amd_machine *m, const char *path, int (*each)(void *ctx, const char *name), void *ctx);
#endif
