/* AMD GPUs through the kernel's compute driver (KFD). There is one process state per machine and one device per GPU;
 * each device has a compute queue and a copy queue, and creates more at first use.
 *
 * Every system call goes through struct os. GPU virtual addresses equal host virtual addresses: each allocation
 * reserves a range of the process's address space, even if the host does not map it. */
#ifndef DOORBELL_HCQ_AMD_AMD_H
#define DOORBELL_HCQ_AMD_AMD_H
#include "../backend.h"
#include "code_object.h"
#include "kfd.h"

/* A GPU node of KFD's topology. */
struct amd_node {
  unsigned number; /* name of its directory in the topology */
  uint32_t gpu_id, gfx_version, render_minor, domain, location;
  uint32_t simd_count, simd_per_cu, array_count, arrays_per_engine, scratch_slots_per_cu, xcc_count, lds_kib;
  uint32_t cp_queues, sdma_engines;
  uint32_t clock_mhz, memory_clock_mhz;              /* highest; 0 if the kernel does not publish them */
  uint32_t save_area_size, ctl_stack_size, eop_size; /* 0 if the kernel does not publish them; then formulas apply */
  uint64_t vram_size;
  bool vram_public; /* the host can address all of its memory */
  uint64_t peers;   /* one bit per GPU whose memory it reaches, including itself */
  char name[32], arch[16];
  /* The open render node whose address space the process uses; -1 before the first device is opened. The kernel accepts
   * no other one until the process ends. */
  int drm_fd;
  /* For HDP flushes of this GPU by the host. flush_page: the page of registers, mapped when a peer first needs it and
   * kept until the process ends. peer_windows: the sum, over the GPU's host-addressable buffers, of the number of other
   * GPUs that map the buffer. */
  volatile uint32_t *_Atomic flush_page;
  atomic_uint peer_windows;
  bool lost; /* the kernel reported an exception: it runs none of this process's queues on the GPU any more */
};
static inline uint32_t amd_node_cus(const struct amd_node *n) { return n->simd_count / n->simd_per_cu; }
static inline uint32_t amd_node_engines(const struct amd_node *n) { return n->array_count / n->arrays_per_engine; }

struct amd_memory {
  uint64_t va, size, handle;
  void *reservation;
  size_t reserved;
  bool mapped; /* on the GPU */
};

/* The process's state in a machine's KFD. It lasts until the process ends, regardless of which devices are open. */
struct kfd_process {
  struct os *os;
  const char *machine; /* for messages */
  bool emulated;
  /* The system also has GPUs whose driver can pin pages of the process but not memory of this driver. */
  bool other_vendor;
  int fd;
  uint32_t version[2]; /* of the KFD interface: major, minor */
  struct amd_node *nodes;
  unsigned nnodes;
  /* One for all GPUs, passed to the kernel with the first event and never freed after that. */
  struct amd_memory event_page;
  enum { AMD_PAGE_NEW, AMD_PAGE_OFFERED, AMD_PAGE_GIVEN } event_page_state;
  uint64_t event_page_reached; /* one bit per GPU that maps it */
};

/* kfd.c */
int kfd_process_open(struct hcq_machine *machine, struct kfd_process **out);
void kfd_process_close(struct kfd_process *p);
/* Returns 0 or a negative errno, without a message. Restarts interrupted calls. */
int kfd_ioctl(const struct kfd_process *p, unsigned long request, void *arg);
/* topology.c: fills nodes and nnodes. */
int kfd_topology_read(struct kfd_process *p);

struct amd_device;

/* A hardware queue. */
struct amd_queue {
  struct hcq_ring base;
  bool created;
  bool stuck; /* the kernel could not remove it from the GPU: the GPU may still use its memory */
  uint32_t id;
  struct amd_memory ring, pointers, eop, save_area;
  uint32_t ring_dwords; /* power of two */
  uint32_t *words;
  _Atomic uint64_t *rptr, *wptr, *doorbell;
  uint64_t put;            /* dwords written, without wrap-around */
  uint64_t last_submitted; /* timeline value of the latest submission */
  struct words head, tail;
  db_buffer *indirect; /* the latest indirect buffer; indirect_last: timeline value of its last use */
  uint64_t indirect_last;
  uint64_t hdp_flushed; /* value of hdp_writes at the queue's last flush */
  /* One per queue, because waves of two queues may get the same slots; guarded by the device's lock. */
  db_buffer *scratch;
};

enum { AMD_ENGINES = 8 }; /* the largest number of shader engines */
struct amd_device {
  db_device base;
  struct kfd_process *kfd;
  struct amd_node *node;
  struct kfd_apertures apertures;
  struct amd_queue queues[HCQ_RINGS]; /* by hcq_ring_index */
  void *doorbells;                    /* the mapped page; NULL before the first queue */

  uint32_t queue_event, queue_event_slot, memory_event, hw_event; /* event ids; 0 if not created */
  uint8_t processors;                    /* workgroup processors of a shader array, of which some may be disabled */
  uint8_t traced_processor[AMD_ENGINES]; /* per engine: the workgroup processor whose instructions a trace contains */
  /* Values when the device was opened: time of the driver's last core dump, number of times the GPU lost its memory. */
  char dump_time[48];
  uint32_t memory_losses;

  /* Host writes to device memory over the bus stay in a buffer (HDP) until a flush. There are two kinds of such writes.
   * Callers may write at any time to buffers that they have mapped (cpu_mapped is their number); while there are any,
   * every submission and every wait flushes. The driver increments hdp_writes with release order after each of its own
   * writes. A submission loads it with acquire order and flushes first if its value differs from hdp_flushed, the value
   * at the queue's last flush. */
  atomic_uint cpu_mapped;
  _Atomic uint64_t hdp_writes;

  uint32_t context;             /* of the render node, while the clocks are stable; else 0 */
  struct hcq_counter *counters; /* the performance counters; NULL before the first use, guarded by the device's lock */
  unsigned ncounters;
};
static inline struct amd_device *amd_device(db_device *dev) { return (struct amd_device *)dev; }

/* memory.c */
enum amd_memory_kind {
  AMD_MEMORY_DEVICE,
  AMD_MEMORY_DEVICE_MAPPED,
  AMD_MEMORY_HOST, /* allocated by the kernel driver, which never moves it while it is mapped */
  /* Pages of the process, which other drivers can pin, too. KFD only mirrors such pages: while the kernel migrates or
   * reclaims one, it stops all queues of the process. */
  AMD_MEMORY_SHARED,
  AMD_MEMORY_USER, /* the caller's pages */
};
int amd_memory_alloc(struct amd_device *dev, uint64_t size, enum amd_memory_kind kind, void *user,
                     struct amd_memory *out);
void amd_memory_free(struct amd_device *dev, struct amd_memory *m);
/* Maps memory on another GPU. Returns -EXDEV if that GPU does not reach the memory. */
int amd_memory_map(struct amd_device *dev, const struct amd_memory *m);
int amd_alloc(db_buffer *buf);
int amd_import(db_buffer *buf, void *host);
void amd_free(db_buffer *buf);
/* Makes the host's writes to memory of other GPUs that GPUs share visible to the next submission of `own`. */
void amd_flush_peers(struct kfd_process *p, const struct amd_node *own);
bool amd_reaches(db_device *dev, db_device *other);
int amd_reach(db_device *dev, db_buffer *buf);

/* event.c */
int amd_events_create(struct amd_device *dev);
/* Called before a device is opened: handles pending exceptions of the GPU, which concern earlier devices, and notes its
 * state. */
void amd_events_clear(struct amd_device *dev);
void amd_events_destroy(struct amd_device *dev);
void amd_sleep(db_device *dev, const db_signal *sig, uint64_t value, uint64_t ns);
void amd_poll(db_device *dev);

/* queue.c */
struct amd_save_sizes {
  uint32_t ctl_stack, context, debug; /* bytes per XCC; context includes ctl_stack */
  uint64_t total;                     /* bytes of the whole buffer */
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

/* clocks.c */
int amd_stable_clocks(db_device *dev, bool on);

/* counters.c */
int amd_counters(db_device *dev, const struct hcq_counter **list, unsigned *n, const struct hcq_counter **check);
unsigned amd_counter_slots(db_device *dev, const struct hcq_counter *counter);
int amd_counters_begin(db_queue *q, const struct hcq_counter_pick *picks, unsigned n);
int amd_counters_end(db_queue *q, const struct hcq_counter_pick *picks, unsigned n, uint64_t done_address);

/* Whether the driver fills in a hidden argument. The others are zero: grids have no offset and no partial workgroups,
 * and host services are not provided. */
bool amd_fills_hidden(enum code_object_kind kind);

/* thread_trace.c */
unsigned amd_trace_engines(db_device *dev);
int amd_trace_begin(db_queue *q, const db_thread_trace *t);
int amd_trace_end(db_queue *q, const db_thread_trace *t);
int amd_trace_size(const db_thread_trace *t, unsigned engine, size_t *bytes, uint64_t *lost);

/* program.c */
struct amd_program {
  db_program base;
  db_buffer *code;
  uint32_t rsrc1, rsrc2, rsrc3;
  uint16_t properties;
  bool wave32;
  uint32_t private_bytes; /* per work-item */
  uint32_t max_block, required_block[3];
  uint32_t aql_offset; /* offset of the dispatch packet in the argument memory, for kernels that read it; otherwise 0 */
  struct code_object_arg *hidden; /* those that the driver fills in */
  unsigned nhidden;
};
int amd_program_load(db_device *dev, const void *image, size_t size, const char *entry, const struct db_param *params,
                     unsigned nparams, db_program **out);
#endif
