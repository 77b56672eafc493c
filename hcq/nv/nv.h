/* NVIDIA GPUs through the kernel's resource manager (RM) and unified memory module (UVM). One process state per
 * machine, one device per GPU, two channels per device, compute and copy, each in a group of its own, and more on first
 * use.
 *
 * Every system call goes through struct os. GPU virtual addresses are host virtual addresses: each allocation reserves
 * a range of the process's address space, whether the host maps it or not, and UVM owns the GPU's page tables. All GPUs
 * of a machine share one such space. */
#ifndef DOORBELL_HCQ_NV_NV_H
#define DOORBELL_HCQ_NV_NV_H
#include "../backend.h"
#include "rm_wire.h"

struct nv_device;

/* A GPU of the machine. */
struct nv_card {
  uint32_t gpu_id, minor, device_id, domain, location; /* location: as in struct hcq_found */
};

/* What one process has of a machine's RM and UVM. */
struct nv_machine {
  struct os *os;
  const char *name; /* for messages */
  bool emulated;
  int ctl, uvm, uvm_mm; /* descriptors, -1 when closed */
  uint32_t client;
  struct rm_branch branch;
  char version[64];
  struct nv_card *cards;
  unsigned ncards;
  atomic_uint next_handle;
  /* Apertures of generic address space, reserved so that no memory lies there: 4 GiB each and so aligned. */
  uint64_t shared_window, local_window;
  void *windows;
  size_t windows_size;
};

/* ---- memory ---- */

enum nv_memory_kind {
  NV_MEMORY_DEVICE,
  NV_MEMORY_DEVICE_MAPPED, /* the host maps it too */
  NV_MEMORY_FIFO,          /* the same, physically contiguous */
  NV_MEMORY_HOST,
  NV_MEMORY_NOTIFIER, /* uncached host memory that no GPU maps */
  NV_MEMORY_PINNED,   /* host pages at the device's address, which other drivers can pin, too */
  NV_MEMORY_USER,     /* the caller's pages */
};
/* Addresses that a plain GPFIFO entry and SEND_PCAS_A can name end here (40 bits). */
#define NV_LOW_END (1ull << 40)

struct nv_memory {
  uint64_t va, size;
  uint32_t handle; /* RM's; 0: none */
  void *reservation;
  size_t reserved;
  bool range; /* UVM has an external range at va */
};

/* ---- channels ---- */

/* A channel. Those of the compute engine share a group and its context, so that they run at the same time; a copy
 * engine has one, in a group of its own. The queue side owns everything below the line. */
struct nv_ring {
  struct hcq_ring base;
  bool running;                                   /* scheduled: submissions are executed */
  uint32_t group, ctxshare, channel, object;      /* RM handles; 0: not made. The first two may be another ring's */
  uint32_t engine;                                /* NV2080 engine type */
  bool registered;                                /* with UVM */
  struct nv_memory fifo, push, notifier, context; /* context: addresses that UVM maps the channel's buffers at */
  uint32_t token;                                 /* rings this channel when written to the device's doorbell */
  uint64_t *gpfifo; /* NV_GPFIFO_ENTRIES, in the host's mapping of device memory: write only */
  _Atomic uint32_t *gp_put;
  struct rm_notification *notifications; /* RM_NOTIFIERS of them; [RM_NOTIFIER_ERROR].status tells of an error */
  uint8_t *pushbuffer;                   /* host memory of NV_PUSHBUFFER_BYTES for the queue side, both sides map it */
  uint64_t pushbuffer_va;                /* below NV_LOW_END */
  /* ---- */
  uint32_t put;             /* next free GPFIFO entry */
  uint64_t push_put;        /* bytes of the pushbuffer given away so far, not wrapped */
  struct nv_ring_use *uses; /* what submissions in flight occupy: NV_GPFIFO_ENTRIES, circular */
  uint32_t first_use, end_use, free_put;
  uint64_t free_push;  /* entries and bytes up to which all is free again */
  struct words words;  /* the submission being made */
  db_buffer *indirect; /* the latest buffer for a long recording, and its last use */
  uint64_t indirect_last;
  uint64_t answer, rung; /* what the latest set-up answers; the timeline value of the latest submission */
};
enum { NV_GPFIFO_ENTRIES = 1024 };
#define NV_PUSHBUFFER_BYTES (1u << 20)
static inline struct nv_ring *nv_ring(struct hcq_ring *ring) { return (struct nv_ring *)ring; }

/* Local memory of kernels: per thread, for as many threads as the GPU can hold at once (open-gpu-doc clc6c0.h,
 * SET_SHADER_LOCAL_MEMORY_*). */
struct nv_local {
  db_buffer *memory;      /* NULL while no kernel needs any */
  uint32_t per_thread;    /* bytes */
  uint64_t bytes_per_tpc; /* SET_SHADER_LOCAL_MEMORY_NON_THROTTLED */
};

struct nv_device {
  db_device base;
  struct nv_machine *machine;
  struct nv_card *card;
  int fd;
  uint32_t device, subdevice, vaspace, usermode; /* RM handles */
  uint32_t event;                                /* RM handle; 0: none. Of errors on the GPU, for poll(2) of fd */
  bool event_of_fd;                              /* fd was announced to the driver as one that events come to */
  bool uvm_gpu, uvm_vaspace;                     /* registered */
  struct uvm_uuid uuid;
  uint64_t peers; /* bit per device of the machine with which access is enabled; of the machine's lock */
  /* Bit per device of the machine: whether RM was asked about it, and what it said; of the machine's lock. */
  uint64_t peers_asked, peers_able;
  uint32_t usermode_class, gpfifo_class, compute_class, copy_class;
  uint32_t sm_version;                                             /* 0x900: sm_90 */
  uint32_t gpcs, tpcs_per_gpc, sms_per_tpc, max_warps_per_sm, sms; /* sms: after floor-sweeping, the others before */
  uint64_t memory_bytes;
  void *usermode_page;
  _Atomic uint32_t *doorbell;
  struct nv_ring rings[HCQ_RINGS];   /* by hcq_ring_place */
  uint32_t copy_engines[HCQ_QUEUES]; /* NV2080 engine types */
  struct nv_local local;
};
static inline struct nv_device *nv_device(db_device *dev) { return (struct nv_device *)dev; }

/* machine.c */
int nv_machine_open(struct hcq_machine *machine, struct nv_machine **out);
/* What a device needs beyond that, made by the first one: UVM, and the windows. */
int nv_machine_ready(struct nv_machine *m);
void nv_machine_close(struct nv_machine *m);

/* memory.c */
int nv_memory_alloc(struct nv_device *dev, uint64_t size, enum nv_memory_kind kind, void *user, struct nv_memory *out);
void nv_memory_free(struct nv_device *dev, struct nv_memory *m);
/* Address space that nothing else gets, on the host too. low: below NV_LOW_END. */
int nv_memory_reserve(struct nv_machine *m, uint64_t size, uint64_t align, bool low, struct nv_memory *out);
/* Maps an RM object of the GPU (local: its memory or registers) or of the system at a reserved address, or anywhere
 * when at is NULL. The result of rm.h's calls. */
int nv_memory_map_host(struct nv_device *dev, uint32_t parent, uint32_t handle, bool local, void *at, uint64_t size,
                       void **out);
int nv_alloc(db_buffer *buf);
int nv_import(db_buffer *buf, void *host);
void nv_free(db_buffer *buf);
bool nv_reaches(db_device *dev, db_device *other);
int nv_reach(db_device *dev, db_buffer *buf);
/* Makes local memory large enough for kernels that use per_thread bytes a thread: waits until the device is idle, then
 * announces the new memory to the GPU in each queue (nv_ring_setup). */
int nv_local_reserve(struct nv_device *dev, uint32_t per_thread);
/* Fills in the sizes for per_thread bytes a thread, without allocating; returns the bytes for all threads. */
uint64_t nv_local_size(const struct nv_device *dev, uint32_t per_thread, struct nv_local *out);

/* channel.c */
/* The copy engines that run beside compute kernels, and so how many queues there can be. */
int nv_find_engines(struct nv_device *dev);
int nv_ring_create(db_device *dev, enum db_queue_kind kind, unsigned index);
void nv_ring_destroy(struct nv_device *dev, struct nv_ring *ring);
bool nv_halt(db_device *dev);

/* fault.c: looks at the channels' error notifiers; 0, or hcq_device_lost with everything the driver tells. Cheap: call
 * it in every wait. */
int nv_fault_check(struct nv_device *dev);
/* Makes errors of the GPU's channels an event of the device's descriptor. A driver that refuses it is no error: waits
 * then look more often. */
void nv_event_open(struct nv_device *dev);
/* After the objects are freed. */
void nv_event_close(struct nv_device *dev);
void nv_sleep(db_device *dev, const db_signal *sig, uint64_t value, uint64_t ns);

/* ---- the queue side ---- */

/* Writes, submits and waits for (at most some seconds) the pushbuffer that readies a channel: SET_OBJECT, and on the
 * compute channels windows and local memory. Called when a channel has just been scheduled, and again for the compute
 * channels when local memory has changed; nothing else is in flight then. */
int nv_ring_setup(struct nv_device *dev, struct nv_ring *ring);
/* Frees what the queue side keeps in a ring; also of one that was never set up. */
void nv_ring_release(struct nv_ring *ring);
int nv_submit(db_queue *q, uint64_t value);
int nv_replay(db_recording *r, uint64_t value);

/* The value lies at slot + 0. A timestamp writes 16 bytes {payload, ns} at stamp_address, slot + 32: its time is
 * slot->stamp[1] (hcq_backend.stamp_index). */
int nv_wait(db_queue *q, uint64_t address, uint32_t value);
int nv_signal(db_queue *q, uint64_t address, uint32_t value);
int nv_timestamp(db_queue *q, uint64_t stamp_address);
int nv_memory_barrier(db_queue *q);
int nv_copy(db_queue *q, uint64_t dst, uint64_t src, uint64_t n);
int nv_exec(db_queue *q, db_program *prog, uint8_t *kernarg, uint64_t kernarg_address, uint32_t local_size,
            const uint32_t grid[3], const uint32_t block[3]);
int nv_program_load(db_device *dev, const void *image, size_t size, const char *entry, const struct db_param *params,
                    unsigned nparams, db_program **out);
#endif
