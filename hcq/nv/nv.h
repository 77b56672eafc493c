/* NVIDIA GPUs through the kernel's resource manager (RM) and unified memory module (UVM). There is one process state
 * per machine and one device per GPU. Each device has a compute channel and a copy channel, each in its own channel
 * group, and creates more at first use.
 *
 * Every system call goes through struct os. GPU virtual addresses equal host virtual addresses: each allocation
 * reserves a range of the process's address space, even if the host does not map it. UVM owns the GPU's page tables.
 * All GPUs of a machine share one address space. */
#ifndef DOORBELL_HCQ_NV_NV_H
#define DOORBELL_HCQ_NV_NV_H
#include "../backend.h"
#include "rm_wire.h"

struct nv_device;

/* A GPU of the machine. */
struct nv_card {
  uint32_t gpu_id, minor, device_id, domain, location; /* location: as in struct hcq_found */
};

/* The process's state in a machine's RM and UVM. */
struct nv_machine {
  struct os *os;
  const char *name; /* for messages */
  bool emulated;
  int ctl, uvm, uvm_mm; /* file descriptors, -1 if closed */
  uint32_t client;
  struct rm_branch branch;
  char version[64];
  struct nv_card *cards;
  unsigned ncards;
  atomic_uint next_handle;
  /* Apertures in the generic address space, 4 GiB each with the same alignment. They are reserved so that no memory is
   * placed there. */
  uint64_t shared_window, local_window;
  void *windows;
  size_t windows_size;
};

/* ---- memory ---- */

enum nv_memory_kind {
  NV_MEMORY_DEVICE,
  NV_MEMORY_DEVICE_MAPPED, /* mapped by the host, too */
  NV_MEMORY_FIFO,          /* like DEVICE_MAPPED, physically contiguous */
  NV_MEMORY_HOST,
  NV_MEMORY_READ_ONLY, /* host memory that is not mapped here; the driver lets the process map it only for reading */
  NV_MEMORY_NOTIFIER,  /* uncached host memory that no GPU maps */
  NV_MEMORY_PINNED,    /* host pages at the device's address, which other drivers can also pin */
  NV_MEMORY_USER,      /* the caller's pages */
};
/* A plain GPFIFO entry and SEND_PCAS_A can hold addresses below this (40 bits). */
#define NV_LOW_END (1ull << 40)

struct nv_memory {
  uint64_t va, size;
  uint32_t handle; /* RM's handle, 0 if none */
  void *reservation;
  size_t reserved;
  bool range; /* UVM has an external range at va */
};

/* ---- channels ---- */

/* A channel. The compute channels share a group and its context, so they run concurrently; each copy channel has its
 * own group. The fields below the line belong to the submission code (queue.c). */
struct nv_ring {
  struct hcq_ring base;
  bool running; /* scheduled: submissions are executed */
  /* RM handles, 0 if not created; group and ctxshare may be another ring's. */
  uint32_t group, ctxshare, channel, object, counters;
  uint32_t engine;                                /* NV2080 engine type */
  bool registered;                                /* registered with UVM */
  struct nv_memory fifo, push, notifier, context; /* context: addresses where UVM maps the channel's buffers */
  uint32_t token;                                 /* written to the device's doorbell to ring this channel */
  uint64_t *gpfifo; /* NV_GPFIFO_ENTRIES entries in device memory that the host maps: write only */
  _Atomic uint32_t *gp_put;
  struct rm_notification *notifications; /* RM_NOTIFIERS entries; [RM_NOTIFIER_ERROR].status reports an error */
  uint8_t *pushbuffer;                   /* NV_PUSHBUFFER_BYTES of host memory, mapped by host and device */
  uint64_t pushbuffer_va;                /* below NV_LOW_END */
  /* ---- */
  uint32_t put;             /* next free GPFIFO entry */
  uint64_t push_put;        /* number of pushbuffer bytes allocated so far, without wrap-around */
  struct nv_ring_use *uses; /* space used by submissions in flight: NV_GPFIFO_ENTRIES entries, circular */
  uint32_t first_use, end_use, free_put;
  uint64_t free_push;  /* entries and bytes that are free again end here */
  struct words words;  /* the submission being built */
  db_buffer *indirect; /* latest buffer for a long recording; indirect_last: timeline value of its last use */
  uint64_t indirect_last;
  /* setup_value: what the latest set-up writes to the timeline's stamp; last_submitted: timeline value of the latest
   * submission. */
  uint64_t setup_value, last_submitted;
};
enum { NV_GPFIFO_ENTRIES = 1024 };
#define NV_PUSHBUFFER_BYTES (1u << 20)
static inline struct nv_ring *nv_ring(struct hcq_ring *ring) { return (struct nv_ring *)ring; }

/* Local memory of kernels, allocated per thread for as many threads as the GPU can run at once (open-gpu-doc clc6c0.h,
 * SET_SHADER_LOCAL_MEMORY_*). */
struct nv_local {
  db_buffer *memory;      /* NULL while no kernel uses local memory */
  uint32_t per_thread;    /* bytes */
  uint64_t bytes_per_tpc; /* SET_SHADER_LOCAL_MEMORY_NON_THROTTLED */
};

struct nv_device {
  db_device base;
  struct nv_machine *machine;
  struct nv_card *card;
  int fd;
  uint32_t device, subdevice, vaspace, usermode; /* RM handles */
  uint32_t event;                                /* RM handle, 0 if none: errors on the GPU make fd ready for poll(2) */
  bool event_of_fd;                              /* fd is announced to the driver as a receiver of events */
  bool uvm_gpu, uvm_vaspace;                     /* registered with UVM */
  struct uvm_uuid uuid;
  uint64_t peers; /* one bit per device of the machine with peer access enabled; guarded by the machine's lock */
  /* One bit per device of the machine: whether RM was asked about peer access, and whether it is possible. Guarded by
   * the machine's lock. */
  uint64_t peers_asked, peers_able;
  uint32_t usermode_class, gpfifo_class, compute_class, copy_class;
  uint32_t sm_version;                                             /* 0x900 for sm_90 */
  uint32_t gpcs, tpcs_per_gpc, sms_per_tpc, max_warps_per_sm, sms; /* sms: after floor-sweeping; the others: before */
  uint64_t memory_bytes;
  void *usermode_page;
  _Atomic uint32_t *doorbell;
  struct nv_ring rings[HCQ_RINGS];   /* indexed by hcq_ring_index */
  uint32_t copy_engines[HCQ_QUEUES]; /* NV2080 engine types */
  struct nv_local local;
  /* The performance counters, NULL before the first use; whether compute channels have an object of their class.
   * Guarded by hcq_device_pause. */
  struct hcq_counter *counters;
  bool counts;
};
static inline struct nv_device *nv_device(db_device *dev) { return (struct nv_device *)dev; }

/* machine.c */
int nv_machine_open(struct hcq_machine *machine, struct nv_machine **out);
/* Sets up what devices need in addition: UVM and the windows. The first device calls it. */
int nv_machine_ready(struct nv_machine *m);
void nv_machine_close(struct nv_machine *m);

/* memory.c */
int nv_memory_alloc(struct nv_device *dev, uint64_t size, enum nv_memory_kind kind, void *user, struct nv_memory *out);
void nv_memory_free(struct nv_device *dev, struct nv_memory *m);
/* Reserves address space on host and GPU, so nothing else is placed there. low: below NV_LOW_END. */
int nv_memory_reserve(struct nv_machine *m, uint64_t size, uint64_t align, bool low, struct nv_memory *out);
/* Maps an RM object of the GPU (local: its memory or registers) or of the system at a reserved address, or anywhere if
 * at is NULL. Returns a result as in rm.h. */
int nv_memory_map_host(struct nv_device *dev, uint32_t parent, uint32_t handle, bool local, void *at, uint64_t size,
                       void **out);
int nv_alloc(db_buffer *buf);
int nv_import(db_buffer *buf, void *host);
void nv_free(db_buffer *buf);
bool nv_reaches(db_device *dev, db_device *other);
int nv_reach(db_device *dev, db_buffer *buf);
/* Makes local memory large enough for kernels that use per_thread bytes per thread. Waits until the device is idle,
 * then passes the new memory to the GPU in each compute channel (nv_ring_setup). */
int nv_local_reserve(struct nv_device *dev, uint32_t per_thread);
/* Computes the sizes for per_thread bytes per thread into *out without allocating; returns the bytes for all
 * threads. */
uint64_t nv_local_size(const struct nv_device *dev, uint32_t per_thread, struct nv_local *out);

/* channel.c */
/* Finds the copy engines that run concurrently with compute kernels, and sets the number of queues. */
int nv_find_engines(struct nv_device *dev);
int nv_ring_create(db_device *dev, enum db_queue_kind kind, unsigned index);
void nv_ring_destroy(struct nv_device *dev, struct nv_ring *ring);
bool nv_halt(db_device *dev);

/* fault.c: checks the channels' error notifiers. Returns 0, or calls hcq_device_lost with everything that the driver
 * reports. Cheap enough to call in every wait. */
int nv_fault_check(struct nv_device *dev);
/* Makes errors of the GPU's channels wake poll(2) on the device's descriptor. If the driver refuses that, it is not an
 * error: waits then poll more often. */
void nv_event_open(struct nv_device *dev);
/* Called after the objects are freed. */
void nv_event_close(struct nv_device *dev);
void nv_sleep(db_device *dev, const db_signal *sig, uint64_t value, uint64_t ns);

/* ---- submission (queue.c, record.c, launch.c) ---- */

/* Sets up a channel: writes and submits SET_OBJECT, and on compute channels windows and local memory, and waits until
 * it is done, at most some seconds. Called when a channel has just been scheduled, and again for compute channels when
 * local memory has changed. Nothing else may be in flight. */
int nv_ring_setup(struct nv_device *dev, struct nv_ring *ring);
/* Frees the submission state of a ring; the ring may never have been set up. */
void nv_ring_release(struct nv_ring *ring);
int nv_submit(db_queue *q, uint64_t value);
int nv_replay(db_recording *r, uint64_t value);

/* A signal's value is at slot + 0. A timestamp writes 16 bytes {payload, ns} at stamp_address, which is slot + 32: its
 * time is slot->stamp[1] (hcq_backend.stamp_index). */
int nv_wait(db_queue *q, uint64_t address, uint32_t value);
int nv_signal(db_queue *q, uint64_t address, uint32_t value);
int nv_timestamp(db_queue *q, uint64_t stamp_address);
int nv_memory_barrier(db_queue *q);
int nv_copy(db_queue *q, uint64_t dst, uint64_t src, uint64_t n);
int nv_exec(db_queue *q, db_program *prog, uint8_t *kernarg, uint64_t kernarg_address, uint32_t local_size,
            const uint32_t grid[3], const uint32_t block[3]);

/* counters.c */
/* Creates the object of the counters' class on a compute channel, which must be set up afterwards. Returns a result as
 * in rm.h. */
int nv_counters_attach(struct nv_device *dev, struct nv_ring *ring);
int nv_counters(db_device *dev, const struct hcq_counter **list, unsigned *n, const struct hcq_counter **check);
unsigned nv_counter_slots(db_device *dev, const struct hcq_counter *counter);
int nv_counters_begin(db_queue *q, const struct hcq_counter_pick *picks, unsigned n);
int nv_counters_end(db_queue *q, const struct hcq_counter_pick *picks, unsigned n, uint64_t done_address);

/* Fails because RM did not create an object of the profiler class; the message says which setting forbids it. rc: a
 * result as in rm.h. */
int nv_profiler_refused(struct nv_device *dev, int rc);

/* clocks.c */
int nv_stable_clocks(db_device *dev, bool on);

/* sampler.c */
int nv_sampler_open(db_pc_sampler *sampler);
void nv_sampler_close(db_pc_sampler *sampler);
int nv_sampler_read(db_pc_sampler *sampler, struct db_pc_sample **out, size_t *n, uint64_t *lost);
void nv_samples_trigger(db_queue *q); /* exec calls it before each kernel while the queue samples */
int nv_samples_end(db_queue *q);

int nv_program_load(db_device *dev, const void *image, size_t size, const char *entry, const struct db_param *params,
                    unsigned nparams, db_program **out);
#endif
