/* AMD GPUs through the kernel's compute driver. One process state per machine, one device per GPU, a compute and a
 * copy queue per device, more on first use.
 *
 * Every system call goes through struct os. GPU virtual addresses are host virtual addresses: each allocation reserves
 * a range of the process's address space, whether the host maps it or not. */
#ifndef DOORBELL_HCQ_AMD_AMD_H
#define DOORBELL_HCQ_AMD_AMD_H
#include "../backend.h"
#include "code_object.h"
#include "kfd.h"

/* A GPU node of KFD's topology. */
struct amd_node {
  unsigned number; /* directory in the topology */
  uint32_t gpu_id, gfx_version, render_minor, domain, location;
  uint32_t simd_count, simd_per_cu, array_count, arrays_per_engine, scratch_slots_per_cu, xcc_count, lds_kib;
  uint32_t cp_queues, sdma_engines;
  uint32_t save_area_size, ctl_stack_size, eop_size; /* 0 where the kernel leaves them to the formula */
  uint64_t vram_size;
  bool vram_public; /* the host can address all of it */
  uint64_t peers;   /* bit per GPU whose memory it reaches */
  char name[32], arch[16];
  /* The open render node whose address space the process uses. The kernel accepts no other one until the process
   * ends. -1 before the first device. */
  int drm_fd;
  /* Flushes of the GPU's HDP by the host: the page of registers, mapped for the life of the process once a peer
   * needs it; and how many host-addressable buffers of the GPU are mapped by other GPUs, once for each. */
  volatile uint32_t *_Atomic flush_page;
  atomic_uint peer_windows;
  bool lost; /* the kernel reported an exception: it runs no queue of this process on the GPU any more */
};
static inline uint32_t amd_node_cus(const struct amd_node *n) { return n->simd_count / n->simd_per_cu; }
static inline uint32_t amd_node_engines(const struct amd_node *n) { return n->array_count / n->arrays_per_engine; }

struct amd_memory {
  uint64_t va, size, handle;
  void *reservation;
  size_t reserved;
  bool mapped; /* on the GPU */
};

/* What one process has of a machine's KFD. It lasts as long as the process, whatever devices are open. */
struct kfd_process {
  struct os *os;
  const char *machine; /* for messages */
  bool emulated;
  bool other_vendor; /* the system has GPUs of a driver that pins pages of the process and no memory of this one */
  int fd;
  struct amd_node *nodes;
  unsigned nnodes;
  struct amd_memory event_page; /* one for all GPUs, given to the kernel with the first event; never freed after that */
  enum { AMD_PAGE_NEW, AMD_PAGE_OFFERED, AMD_PAGE_GIVEN } event_page_state;
  uint64_t event_page_reached; /* bit per GPU that maps it */
};

/* kfd.c */
int kfd_process_open(struct hcq_machine *machine, struct kfd_process **out);
void kfd_process_close(struct kfd_process *p);
/* 0 or a negative errno, without a message. Restarts when interrupted. */
int kfd_ioctl(const struct kfd_process *p, unsigned long request, void *arg);
/* topology.c: fills nodes and nnodes. */
int kfd_topology_read(struct kfd_process *p);

struct amd_device;

/* A hardware queue. */
struct amd_queue {
  struct hcq_ring base;
  bool created;
  bool stuck; /* the kernel could not take it off the GPU: its memory may still be used */
  uint32_t id;
  struct amd_memory ring, pointers, eop, save_area;
  uint32_t ring_dwords; /* power of two */
  uint32_t *words;
  _Atomic uint64_t *rptr, *wptr, *doorbell;
  uint64_t put;  /* dwords written, not wrapped */
  uint64_t rung; /* the timeline value of the latest submission */
  struct words head, tail;
  db_buffer *indirect; /* the latest indirect buffer and its last use */
  uint64_t indirect_last;
  uint64_t hdp_flushed; /* what hdp_writes was at its last flush */
  db_buffer *scratch;   /* of its own: waves of two queues are given the same slots. Of the device's lock */
};

struct amd_device {
  db_device base;
  struct kfd_process *kfd;
  struct amd_node *node;
  struct kfd_apertures apertures;
  struct amd_queue queues[HCQ_RINGS]; /* by hcq_ring_place */
  void *doorbells;                    /* the mapped page, NULL before the first queue */

  uint32_t queue_event, queue_event_slot, memory_event, hw_event; /* ids; 0 when not made */
  /* As they were when the device was opened: when the driver's last core dump was made, and how often memory was
   * lost. */
  char dump_time[48];
  uint32_t memory_losses;

  /* What the host writes to device memory over the bus lies in a buffer (HDP) until a flush. Of buffers that callers
   * have mapped, cpu_mapped in number, every submission and every wait may follow a write. The driver's own writes
   * count hdp_writes up when they are done, with release: who launches what was written acquires at least that
   * count, and a queue flushes before it if its last flush was of another one. */
  atomic_uint cpu_mapped;
  _Atomic uint64_t hdp_writes;
};
static inline struct amd_device *amd_device(db_device *dev) { return (struct amd_device *)dev; }

/* memory.c */
enum amd_memory_kind {
  AMD_MEMORY_DEVICE,
  AMD_MEMORY_DEVICE_MAPPED,
  AMD_MEMORY_HOST, /* of the kernel driver, which never moves it while it is mapped */
  /* Pages of the process, which other drivers can pin, too. KFD only mirrors such pages: when the kernel migrates or
   * reclaims one, it stops all queues of the process for the time. */
  AMD_MEMORY_SHARED,
  AMD_MEMORY_USER, /* the caller's pages */
};
int amd_memory_alloc(struct amd_device *dev, uint64_t size, enum amd_memory_kind kind, void *user,
                     struct amd_memory *out);
void amd_memory_free(struct amd_device *dev, struct amd_memory *m);
/* On one more GPU; -EXDEV when it does not reach the memory. */
int amd_memory_map(struct amd_device *dev, const struct amd_memory *m);
int amd_alloc(db_buffer *buf);
int amd_import(db_buffer *buf, void *host);
void amd_free(db_buffer *buf);
/* Makes the host's writes to other GPUs' memory, as far as GPUs share it, visible to a submission. */
void amd_flush_peers(struct kfd_process *p, const struct amd_node *own);
bool amd_reaches(db_device *dev, db_device *other);
int amd_reach(db_device *dev, db_buffer *buf);

/* event.c */
int amd_events_create(struct amd_device *dev);
/* Before a device is opened: what its GPU told of up to now is another one's. */
void amd_events_settle(struct amd_device *dev);
void amd_events_destroy(struct amd_device *dev);
void amd_sleep(db_device *dev, const db_signal *sig, uint64_t value, uint64_t ns);
void amd_poll(db_device *dev);

/* queue.c */
struct amd_save_sizes {
  uint32_t ctl_stack, context, debug; /* bytes per XCC; context includes ctl_stack */
  uint64_t total;                     /* of the buffer */
};
struct amd_save_sizes amd_save_sizes(const struct amd_node *node);
int amd_queue_create(db_device *dev, enum db_queue_kind kind, unsigned index);
bool amd_halt(db_device *dev);
void amd_queues_free(struct amd_device *dev);
int amd_submit(db_queue *q, uint64_t value);
int amd_replay(db_recording *r, uint64_t value);

/* record.c */
int amd_wait(db_queue *q, uint64_t address, uint32_t value);
int amd_signal(db_queue *q, uint64_t address, uint32_t value);
int amd_timestamp(db_queue *q, uint64_t address);
int amd_memory_barrier(db_queue *q);
int amd_copy(db_queue *q, uint64_t dst, uint64_t src, uint64_t n);
int amd_exec(db_queue *q, db_program *prog, uint8_t *kernarg, uint64_t kernarg_address, uint32_t local_size,
             const uint32_t grid[3], const uint32_t block[3]);

/* Whether a hidden argument is filled in; the others are zero: grids have no offset and no partial groups, and there
 * are no host services. */
bool amd_fills_hidden(enum code_object_kind kind);

/* program.c */
struct amd_program {
  db_program base;
  db_buffer *code;
  uint64_t entry;
  uint32_t rsrc1, rsrc2, rsrc3;
  uint16_t properties;
  bool wave32;
  uint32_t private_bytes; /* of a work-item */
  uint32_t max_block, required_block[3];
  uint32_t aql_offset;            /* of the dispatch packet in the argument memory, for kernels that read it */
  struct code_object_arg *hidden; /* those that are filled in */
  unsigned nhidden;
};
int amd_program_load(db_device *dev, const void *image, size_t size, const char *entry, const struct db_param *params,
                     unsigned nparams, db_program **out);
#endif
