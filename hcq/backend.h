/* What the queue layer keeps about its objects, and what a backend implements.
 *
 * hcq/ does once what every backend needs: names and the registry, reference counts, kernel-argument memory, the life
 * of what a submission uses, waiting. A backend (struct hcq_backend) brings memory, programs, and the writing of
 * packets. Nothing here is public.
 *
 * Locks, in the order in which they may be taken:
 *   device.growing     which hardware queues a device has, their local memory, their end
 *   device.transfer    the staging buffer and its recorder; held for the whole of a blocking copy
 *   ring.submitting    the hardware's ring and its next timeline value; held for one submission, which may wait for
 *                      room
 *   registry.opening   which machines there are; held for the whole of opening and closing a device
 *   registry.lock      which devices there are, and the loss of one; held for some instructions and polls, nothing
 *                      waits or is released under it
 *   the imports'       what devices know of other machines' memory; over system calls
 *   profile.reporting  the stamps of one recording; held while its commands are reported
 *   machine.lock       address space and mappings, which a machine's devices share; held over system calls
 *   device.lock        what else is written after a device was opened; held for some instructions, nothing waits or
 *                      is released under it
 *   trace.lock         the trace file and the lines of DEBUG=2 (profile.c)
 *
 * A recorder and a recording are their user's alone. A submission takes two of them, ring.submitting and
 * device.lock. */
#ifndef DOORBELL_HCQ_BACKEND_H
#define DOORBELL_HCQ_BACKEND_H
#include "error.h"
#include "hcq.h"
#include "os.h"
#include "words.h"
#include <pthread.h>
#include <stdatomic.h>

/* ---- machines: one table of system calls and what a backend keeps per process and machine ---- */

struct hcq_machine {
  struct hcq_machine *next;
  const struct hcq_backend *ops;
  struct os *os;
  char name[144]; /* the device name without its index: "AMD", "EMU+AMD:gfx1100" */
  unsigned refs;
  bool emulated;
  uint32_t played_index; /* of the GPU that a played trace begins with */
  pthread_mutex_t lock;
  void *state; /* the backend's, made by its first open; machine_close drops it */
};

/* ---- objects ---- */

struct hcq_object {
  atomic_uint refs;
  _Atomic uint64_t mark; /* the recorder's batch that holds a reference already */
  void (*destroy)(struct hcq_object *object);
};
static inline void hcq_object_init(struct hcq_object *o, void (*destroy)(struct hcq_object *)) {
  atomic_init(&o->refs, 1);
  atomic_init(&o->mark, 0);
  o->destroy = destroy;
}
static inline void hcq_retain(struct hcq_object *o) { atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed); }
static inline void hcq_release(struct hcq_object *o) {
  if (!o) return;
  void (*destroy)(struct hcq_object *) =
      o->destroy; /* a device may be opened again and gone behind the last reference */
  if (atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) == 1) destroy(o);
}

/* Beside enum db_buffer_flags: host memory that devices of other machines never use, such as arguments and packets. */
enum { HCQ_BUFFER_PRIVATE = 1 << 8 };

struct db_buffer {
  struct hcq_object object;
  db_device *dev;
  size_t size;
  uint64_t address;
  uint8_t *host;
  unsigned flags;  /* enum db_buffer_flags, HCQ_BUFFER_PRIVATE, and: */
  bool direct;     /* set by the backend: the host may as well copy it itself */
  bool imported;   /* host memory of the caller */
  bool internal;   /* of the device itself: does not keep the device open */
  uint64_t handle; /* the rest is the backend's */
  void *mapping;
  size_t mapping_size;
  _Atomic uint64_t reached; /* bit per device of the machine that maps it */
  struct hcq_import *imports;
};

/* Host memory of one machine as a device of another one knows it. Gone with either. */
struct hcq_import {
  struct hcq_import *next, *next_of_device;
  db_buffer *of;     /* in whose list of imports this is */
  db_buffer *memory; /* on the other device, of the same pages */
};

/* A signal as hardware sees it; 64 bytes so that no two share a cache line, the stamp 32-byte aligned as SDMA
 * prefers. */
struct hcq_signal_slot {
  _Atomic uint64_t value;
  uint64_t reserved0[3];
  _Atomic uint64_t stamp[2]; /* ticks of the stamping device, which of them: hcq_backend.stamp_index */
  uint64_t reserved1[2];
};
_Static_assert(sizeof(struct hcq_signal_slot) == 64, "a cache line");

struct db_signal {
  struct hcq_object object;
  db_device *dev;
  struct hcq_signal_slot *slot;
  uint64_t address; /* of the slot for its own device; stamp at + HCQ_STAMP_OFFSET */
  struct hcq_signal_page *page;
  db_device *_Atomic stamper; /* whose clock the stamp is in */
  db_device **stampers;       /* other devices that have stamped it, which it keeps; of the lock of dev */
  unsigned nstampers;
  struct hcq_ring *ring; /* whose timeline this is, or NULL */
};
#define HCQ_STAMP_OFFSET offsetof(struct hcq_signal_slot, stamp)
/* Hardware waits compare 32 bits (PM4 WAIT_REG_MEM, SDMA POLL_REGMEM), so signals stay below this. A ring's timeline
 * goes on: before it would pass the limit all queues of the process come to rest, and the hardware counts from 0
 * again. */
#define HCQ_SIGNAL_MAX UINT32_MAX

enum { HCQ_PAGE_SIGNALS = 64 };
struct hcq_signal_page {
  struct hcq_signal_page *next;
  db_buffer *memory;
  uint64_t used; /* bit per slot */
};

struct db_program {
  struct hcq_object object;
  db_device *dev;
  char name[128];
  struct db_param *params; /* explicit ones */
  unsigned nparams;
  uint32_t kernarg_size, kernarg_align;
  uint32_t local_size; /* static bytes of local memory; dynamic ones follow */
};

/* ---- recordings that replay ---- */

/* Whom a recording waits for: the timelines, with where they counted from, and devices of other signals. */
struct hcq_waits {
  struct hcq_awaited {
    db_device *dev;
    const struct hcq_ring *ring; /* NULL: another signal */
    uint64_t base;
  } for_[128];
  unsigned n;
};

/* One place that a slot's value goes to. at: in host memory, or, while recording, a dword of q->words when in_words. */
struct hcq_patch {
  union {
    uint8_t *at;
    size_t word;
  };
  uint64_t add; /* to the slot's value */
  uint16_t slot;
  uint8_t bytes; /* 1 to 8 */
  bool in_words;
  bool upper_first; /* two dwords, the upper one before the lower */
  bool is_buffer;   /* else a value */
  bool is_count;    /* a component of a grid: not 0 */
};

struct hcq_slot {
  uint64_t value;    /* address, for a buffer */
  db_buffer *buffer; /* retained */
  uint32_t first, n; /* of the patches */
  bool known;        /* value is what the patches hold */
  bool is_buffer, is_count;
  uint64_t most; /* the largest value that fits its patches */
};

struct db_recording {
  struct hcq_object object;
  db_device *dev;
  struct hcq_ring *ring;
  db_buffer *memory; /* the packets */
  size_t nwords;
  unsigned npackets;
  uint32_t *cuts;
  unsigned ncuts;
  struct hcq_chunk *chunks; /* kernel arguments */
  struct hcq_object **refs;
  unsigned nrefs;
  struct hcq_patch *patches; /* by slot */
  unsigned npatches;
  struct hcq_slot *slots;
  unsigned nslots; /* numbers in use are below this */
  uint64_t last;   /* timeline value of the last run */
  uint64_t nkernels, ncopies;
  db_program *last_program;
  struct hcq_waits waits;
  struct hcq_profile *profile; /* a reference; NULL: its commands are not timed */
};

/* ---- hardware queues ---- */

/* A piece of kernel-argument memory, given from recorder to recorder once the submission that used it last has
 * passed. */
struct hcq_chunk {
  struct hcq_chunk *next;
  db_buffer *memory;
  uint64_t last; /* timeline value of its last use */
};
#define HCQ_CHUNK_SIZE (256u << 10)
#define HCQ_CHUNKS_MAX 64u

struct hcq_batch { /* one submission */
  uint64_t value;
  uint32_t nobjects;
  db_program *last_program;
};

enum { HCQ_QUEUES = 4, HCQ_RINGS = 2 * HCQ_QUEUES }; /* queues of a kind that a device has at most, and of both */

struct hcq_ring {
  db_device *dev;
  enum db_queue_kind kind;
  unsigned index; /* among those of its kind */
  db_signal *timeline;
  pthread_mutex_t submitting;
  _Atomic uint64_t submitted; /* timeline value of the last submission */
  _Atomic uint64_t base;      /* timeline value where the hardware's count is 0; HCQ_BASE_CHANGES */
  uint64_t turn;              /* it counts up to that */
  struct {                    /* as in db_device_counters; whoever submits counts */
    _Atomic uint64_t packets, doorbells, kernels, copies;
  } counters;
  /* ---- of the device's lock ---- */
  struct hcq_foreign { /* the last submission that waits for a device, for each; only submissions add more */
    db_device *dev;    /* compared, never followed: it may be gone once that submission has finished */
    uint64_t value;
  } *foreign;
  unsigned nforeign;
  uint64_t failed_after; /* submissions behind it, up to the next, waited for a device that was lost */
  _Atomic uint64_t failed;
  char failed_reason[1024];
  _Atomic uint64_t stuck_at;   /* timeline value that a long wait last gave up at, UINT64_MAX before */
  struct hcq_object **objects; /* held for submissions in flight, oldest first; power-of-two circular */
  _Atomic uint64_t objects_head, batches_head;
  uint64_t objects_tail, objects_cap; /* these and the arrays change by submissions only */
  struct hcq_batch *batches;
  uint64_t batches_tail, batches_cap;
  struct hcq_chunk *chunks; /* free ones, oldest use first */
  struct hcq_chunk **chunks_tail;
  unsigned nchunks;
};

struct db_queue { /* a recorder */
  db_device *dev;
  struct hcq_ring *ring;
  struct words words;
  uint32_t *cuts; /* word offsets at which a long recording may be split into indirect buffers */
  unsigned ncuts, cuts_cap;
  struct hcq_object **refs;
  unsigned nrefs, refs_cap;
  uint64_t batch;          /* identifies what is being recorded, for hcq_object.mark */
  struct hcq_chunk *chunk; /* kernel arguments go here */
  uint32_t chunk_used;
  struct hcq_chunk *full; /* filled by this recording */
  db_program *last_program;
  struct { /* the backend's: a launch that the next one may be appended to, when words and batch are still the same */
    void *launch;
    size_t words;
    uint64_t batch;
  } chain;
  struct hcq_waits waits;
  size_t vary_offset[2]; /* of a copy's destination and source in their buffers */
  unsigned vary[3];      /* slots of the command being recorded: {value}, {destination, source} or the grid's */
  struct hcq_patch *patches;
  unsigned npatches, patches_cap;
  uint64_t nkernels, ncopies;
  int error;
  char *error_text;
  bool internal;               /* of the device itself */
  bool profiled;               /* commands are stamped and reported (profile_queue.c) */
  struct hcq_profile *profile; /* the stamps of what is being recorded, a reference; NULL: none yet */
};

/* ---- devices ---- */

struct db_device {
  struct hcq_object object; /* counts handles and the objects made on the device */
  db_device *next;
  const struct hcq_backend *ops;
  struct hcq_machine *machine;
  struct os *os;
  unsigned index;
  atomic_uint handles; /* db_open and db_device_retain */
  char name[160], arch[24], description[96];
  pthread_mutex_t growing, transfer, lock;
  uint64_t bytes_allocated, bytes_allocated_peak; /* of the lock */
  struct hcq_signal_page *signal_pages;           /* of the lock */
  /* By hcq_ring_place: the first of each kind is at the kind; others are made on first use, NULL before. */
  struct hcq_ring *_Atomic rings[HCQ_RINGS];
  unsigned nqueues[2]; /* by enum db_queue_kind: how many there can be */
  db_buffer *staging;
  db_queue *copier; /* of db_buffer_read and write */
  struct hcq_import *imports;
  struct hcq_clock { /* the device's clock and the host's, read at once; of the lock */
    uint32_t khz;    /* set by open */
    uint64_t ticks, ns;
    uint64_t checked_ns; /* when a reading last agreed with it */
  } clock;
  _Atomic uint64_t timeout_ns; /* db_device_timeout */
  _Atomic int lost;            /* 0, or the error every later call returns */
  char lost_reason[1024];      /* written before */
  bool inherited;              /* of the process that forked this one: its hardware is not touched */
  uint64_t looked_at;          /* by which look at others; of the registry's lock */
  db_device **members;         /* of a group (group.c), which has nothing else */
  unsigned nmembers;
};

struct hcq_found {
  struct db_device_info info;
  uint32_t pci_domain, pci_location; /* bus << 8 | device << 3 | function; both 0 when it is on no PCI bus */
};

struct hcq_backend {
  const char *vendor;
  const char *isa; /* of an emulated device, for messages; NULL: there are none */
  /* Makes a device with the first ring of each kind; begins with hcq_device_init. */
  int (*open)(struct hcq_machine *machine, unsigned index, const char *name, db_device **out);
  /* Makes another one, in dev->rings, or undoes what it has begun, while nothing is submitted. NULL where there are no
   * others. */
  int (*ring_create)(db_device *dev, enum db_queue_kind kind, unsigned index);
  /* Stops the hardware queues for good; false when something still runs and its memory must not be freed. Called any
   * number of times, while nothing is submitted. */
  bool (*halt)(db_device *dev);
  /* After halt; rings, buffers and signals are gone. */
  void (*close)(db_device *dev);
  /* Called when the machine's last device has gone. False when the kernel keeps state for the process: then the machine
   * stays, for the next open. */
  bool (*machine_close)(struct hcq_machine *machine);
  /* Describes the machine's devices without opening them, name left empty; returns how many there are, which may be
   * more than cap. */
  int (*enumerate)(struct hcq_machine *machine, struct hcq_found *out, int cap);

  int (*alloc)(db_buffer *buf); /* size and flags are set */
  int (*import)(db_buffer *buf, void *host);
  void (*free)(db_buffer *buf);
  /* Whether queues of dev can use device memory of other, another device of the machine. NULL: always. */
  bool (*reaches)(db_device *dev, db_device *other);
  /* Makes a buffer of another device of the machine addressable by dev, at the same address. -EXDEV when that cannot
   * be.
   */
  int (*reach)(db_device *dev, db_buffer *buf);
  bool is_host; /* its memory is the host's, and its addresses */

  int (*program_load)(db_device *dev, const void *image, size_t size, const char *entry, const struct db_param *params,
                      unsigned nparams, db_program **out);

  /* Appends packets to q->words. Arguments are checked. What q->vary marks is told by hcq_patch_words or
   * hcq_patch_memory. */
  int (*wait)(db_queue *q, uint64_t signal_address, uint32_t value);
  int (*signal)(db_queue *q, uint64_t signal_address, uint32_t value);
  int (*timestamp)(db_queue *q, uint64_t stamp_address); /* 16 bytes there are the stamp's */
  int (*memory_barrier)(db_queue *q);
  /* kernarg: prog->kernarg_size bytes at device address kernarg_address, explicit arguments filled in, the rest zero.
   * local_size: static and dynamic local memory. */
  int (*exec)(db_queue *q, db_program *prog, uint8_t *kernarg, uint64_t kernarg_address, uint32_t local_size,
              const uint32_t grid[3], const uint32_t block[3]);
  int (*copy)(db_queue *q, uint64_t dst, uint64_t src, uint64_t n);

  /* Hands q->words to the hardware queue, followed by whatever makes its timeline reach value. These two are called by
   * one thread at a time for a ring; everything else by any. */
  int (*submit)(db_queue *q, uint64_t value);
  /* The same for a recording's words, where they lie. */
  int (*replay)(db_recording *r, uint64_t value);
  /* Sleeps until sig may have reached value, at most ns; may return early. A fault of the device is reported by
   * hcq_device_lost. */
  void (*sleep)(db_device *dev, const db_signal *sig, uint64_t value, uint64_t ns);
  /* Reports a fault of the device, if there is one, by hcq_device_lost. Does not wait and takes no wake-up from those
   * who sleep: another device's waiters call it. NULL: there are no faults. */
  void (*poll)(db_device *dev);
  /* The device's clock now. NULL: its ticks are the host's nanoseconds. */
  int (*read_clock)(db_device *dev, uint64_t *ticks);
  unsigned stamp_index; /* where in a slot's stamp its timestamps are */
};
extern const struct hcq_backend hcq_amd_backend, hcq_cpu_backend, hcq_nv_backend;

/* ---- device.c ---- */
void hcq_device_init(db_device *dev, struct hcq_machine *machine, unsigned index, const char *name);
struct os *db_device_os(db_device *dev);
unsigned db_device_index(const db_device *dev); /* GPU of that machine */
/* Holds back submissions to a device, which is as it was before when they go on. Returns what to resume. */
unsigned hcq_device_pause(db_device *dev);
void hcq_device_resume(db_device *dev, unsigned paused);
/* Stops its queues between submissions; as the backend's. */
bool hcq_device_halt(db_device *dev);
/* Waits for everything submitted and drops what it held; when that fails the device is halted. */
void hcq_device_drain(db_device *dev);
/* A machine by its name ("CPU", "AMD", "EMU+AMD:gfx1100"), shared with open devices. */
struct hcq_machine *hcq_machine_open(const char *name);
void hcq_machine_release(struct hcq_machine *machine);
/* Calls each for its open devices, under registry.lock: it must not wait. */
void hcq_machine_each(struct hcq_machine *machine, void (*each)(db_device *dev, void *ctx), void *ctx);
/* Marks the device as lost for the first reason given; returns -EIO. What waits for it goes on and counts as failed. */
int hcq_device_lost(db_device *dev, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* 0, or -EIO with the reason as message. */
int hcq_device_check(const db_device *dev);
/* Again, for what was submitted since, and over what its other queues stored since. */
void hcq_device_release_waiters(db_device *lost);
/* Looks whether other devices were lost, for which something submitted to this one may wait, be it by way of others. */
void hcq_device_check_others(db_device *dev);
/* Whether all queues of the process are to come to rest: then nothing may be submitted. */
extern atomic_bool hcq_resting;
/* Waits until that is over. ring: one whose timeline has to count anew, which is done while all are at rest. */
int hcq_rest(struct hcq_ring *ring);
/* When the process exits, drops what finished submissions held, of all devices that are open then. */
void hcq_devices_retire_at_exit(void);

/* ---- profile_queue.c ---- */
/* A recorder whose commands are timed if the environment asks for it. */
db_queue *hcq_queue_profiled(db_device *dev, enum db_queue_kind kind, unsigned index);
/* Before and after a command of a recorder with `profiled`. program NULL: the command copies `bytes` bytes. */
int hcq_profile_begin(db_queue *q);
int hcq_profile_end(db_queue *q, db_program *program, unsigned args, uint64_t bytes);
/* What is being recorded keeps no stamps any more. */
void hcq_profile_drop(db_queue *q);
/* The hardware has the commands. p may be NULL. Called before the submission's objects can be released. */
void hcq_profile_submitted(struct hcq_profile *p);
/* Reports the last run of a recording, which has finished, and makes the object that reports the next one when it is
 * released. */
struct hcq_object *hcq_profile_run(struct hcq_profile *p);

/* ---- buffer.c ---- */
db_buffer *hcq_buffer_new(db_device *dev, size_t size, unsigned flags, bool internal);
/* Makes memory of another device addressable by the queues of `by`; *address: where it begins for them. -EXDEV when
 * that cannot be: machines reach host memory of each other only. */
int hcq_buffer_reach_other(db_device *by, db_buffer *buf, uint64_t *address);
static inline int hcq_buffer_reach(db_device *by, db_buffer *buf, uint64_t *address) {
  *address = buf->address;
  return buf->dev == by ? 0 : hcq_buffer_reach_other(by, buf, address);
}
/* Drops what a halted device has imported. */
void hcq_imports_drop(db_device *dev);
extern pthread_mutex_t hcq_imports_lock;
/* ---- clock.c ---- */
/* Reads both clocks. open calls it once. */
int hcq_clock_calibrate(db_device *dev);
/* Ticks in the host's time, all by one reading of the clocks; 0 stays 0. */
void hcq_clock_to_ns(db_device *dev, const uint64_t *ticks, uint64_t *ns, unsigned n);

/* ---- signal.c ---- */
/* Says that a queue of `by` will stamp sig, which keeps `by`. */
int hcq_signal_stamped_by(db_signal *sig, db_device *by);
db_signal *hcq_signal_new(db_device *dev, struct hcq_ring *timeline_of);
uint64_t hcq_now_ns(void);
static inline void hcq_spin_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}
/* Frees the pages; all signals are gone. */
void hcq_signals_free(db_device *dev);
#define HCQ_BASE_CHANGES UINT64_MAX /* until base and the count are both new */
static inline uint64_t hcq_ring_base(const struct hcq_ring *ring) {
  uint64_t base;
  do base = atomic_load_explicit(&ring->base, memory_order_acquire);
  while (base == HCQ_BASE_CHANGES);
  return base;
}
static inline uint64_t hcq_signal_load(const db_signal *sig) {
  if (!sig->ring) return atomic_load_explicit(&sig->slot->value, memory_order_acquire);
  for (;;) {
    uint64_t base = hcq_ring_base(sig->ring), count = atomic_load_explicit(&sig->slot->value, memory_order_acquire);
    if (atomic_load_explicit(&sig->ring->base, memory_order_relaxed) == base) return base + count;
  }
}
/* What the hardware stores for the timeline value of a submission. */
static inline uint32_t hcq_ring_count(const struct hcq_ring *ring, uint64_t value) {
  return (uint32_t)(value - atomic_load_explicit(&ring->base, memory_order_relaxed));
}

/* The device's ring, which may be made now. */
struct hcq_ring *hcq_device_ring(db_device *dev, enum db_queue_kind kind, unsigned index);
static inline unsigned hcq_ring_place(enum db_queue_kind kind, unsigned index) { return (unsigned)kind + 2 * index; }

/* ---- queue.c ---- */
int hcq_ring_init(struct hcq_ring *ring, db_device *dev, enum db_queue_kind kind, unsigned index);
/* Also of a ring that was never initialized. */
void hcq_ring_finish(struct hcq_ring *ring);
/* "compute", "copy", "compute 1": for messages. */
const char *hcq_ring_name(const struct hcq_ring *ring);
/* Drops what finished submissions held. */
void hcq_ring_retire(struct hcq_ring *ring);
/* Drops what all submissions held, of a halted device. */
void hcq_ring_drop(struct hcq_ring *ring);
/* The kernel that runs now or ran last on a device that stands still, or "none": for messages. */
struct hcq_kernel_name {
  char s[128];
} hcq_device_running(const db_device *dev);
/* Of the ring's counters, by whoever submits. */
static inline void hcq_count(_Atomic uint64_t *counter, uint64_t more) {
  atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more, memory_order_relaxed);
}
/* Tells launches of a process apart: what is being recorded, and where in it. */
static inline uint64_t hcq_launch_id(const db_queue *q) { return q->batch << 24 | (q->nkernels & 0xffffff); }
/* Keeps object alive until what is being recorded has finished. */
int hcq_queue_hold(db_queue *q, struct hcq_object *object);
/* Empties the recorder without submitting. */
void hcq_queue_reset(db_queue *q);
db_queue *hcq_queue_new(db_device *dev, enum db_queue_kind kind, unsigned index, bool internal);
/* Begins a submission that may hold `nobjects` objects: locks the ring and returns its timeline value in *value.
 * Nothing may fail once the hardware has the submission. */
int hcq_ring_begin(struct hcq_ring *ring, unsigned nobjects, const struct hcq_waits *waits, uint64_t *value);
/* It was submitted and takes over the references on its objects. Gives the ring back. */
void hcq_ring_submitted(struct hcq_ring *ring, const struct hcq_batch *batch, struct hcq_object *const *objects,
                        const struct hcq_waits *waits);
/* It was not. */
void hcq_ring_cancel(struct hcq_ring *ring);
/* Waits a moment for room in the hardware's ring, of which there is none since *since (0: now). -ETIMEDOUT after
 * the device's timeout, and what is under way; -EIO when the device is lost. */
int hcq_ring_wait_room(struct hcq_ring *ring, uint64_t *since);
/* Gives kernel-argument memory back to the ring, after its last use. */
void hcq_chunks_give(struct hcq_ring *ring, struct hcq_chunk *chunks);
/* What slot (0: nothing is noted) sets: bytes at the dwords from `word` on of q->words, or at host memory. */
void hcq_patch_words(db_queue *q, unsigned slot, size_t word, struct hcq_patch like);
void hcq_patch_memory(db_queue *q, unsigned slot, void *at, struct hcq_patch like);

#endif
