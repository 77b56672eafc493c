/* What a backend implements, and the order of locks.
 *
 * The shared code in hcq/ does once what every backend needs: device names and the registry, reference counts,
 * kernel-argument memory, the lifetime of objects that a submission uses, waiting. A backend (struct hcq_backend)
 * provides memory, programs, and the writing of packets. Nothing here is public. object.h, ring.h, recording.h,
 * device.h and loss.h declare the shared part.
 *
 * Locks, in the order in which they may be taken:
 *   device.growing     creation and shutdown of the device's hardware queues, their local memory
 *   device.transfer    the staging buffer and its recorder; held for the whole of a blocking copy
 *   ring.submitting    the hardware's ring and its next timeline value; held for one submission, which may wait for
 *                      room
 *   registry.opening   the list of machines; held for the whole of opening and closing a device
 *   registry.lock      the list of devices, and the loss of a device; held for a few instructions and polls, never
 *                      while waiting or releasing objects
 *   hcq_imports_lock   the imports of other machines' memory; held over system calls
 *   profile.reporting  the timestamps of one recording; held while its commands are reported
 *   machine.lock       address space and mappings, which a machine's devices share; held over system calls
 *   device.lock        all other mutable state of an open device; held for a few instructions, with PROFILE or PROF
 *                      while the amount of memory is written, and over the system calls that make the clocks stable;
 *                      never while waiting for a queue or releasing objects
 *   trace.lock         the trace file and the lines of DEBUG=2 (profile.c)
 *   record.lock        the record of PROF (profiling/record.c)
 *
 * A recorder or a recording is used by one thread at a time and needs no lock. A submission takes two locks,
 * ring.submitting and device.lock. */
#ifndef DOORBELL_HCQ_BACKEND_H
#define DOORBELL_HCQ_BACKEND_H
#include "device.h"
#include "loss.h"

struct hcq_found {
  struct db_device_info info;
  uint32_t pci_domain, pci_location; /* bus << 8 | device << 3 | function; both 0 if not on a PCI bus */
};

/* The memory of thread traces (profiling/thread_trace.c), which backends fill. */
enum { HCQ_TRACE_PAGE = 4096, HCQ_TRACE_STATUS_WORDS = 4 };

struct db_thread_trace {
  db_device *dev; /* retained */
  unsigned engines;
  unsigned simd;     /* whose instructions the traces contain */
  uint64_t bytes;    /* per engine; a multiple of HCQ_TRACE_PAGE */
  db_buffer *data;   /* engines times bytes */
  db_buffer *status; /* host memory: HCQ_TRACE_STATUS_WORDS dwords per engine, written by trace_end */
};
/* The addresses of an engine's memory and of its status. */
static inline uint64_t hcq_trace_data(const db_thread_trace *t, unsigned engine) {
  return t->data->address + engine * t->bytes;
}
static inline uint64_t hcq_trace_status(const db_thread_trace *t, unsigned engine) {
  return t->status->address + engine * HCQ_TRACE_STATUS_WORDS * 4;
}

/* profiling/pc_sampler.c */
struct db_pc_sampler {
  db_device *dev; /* retained */
  size_t bytes;   /* as asked for; the backend rounds up */
  void *hardware; /* the backend's */
};

struct hcq_backend {
  const char *vendor;
  const char *isa; /* an example ISA for messages about emulated devices; NULL if this vendor has none */
  /* Creates a device with the first ring of each kind. Calls hcq_device_init first. */
  int (*open)(struct hcq_machine *machine, unsigned index, const char *name, db_device **out);
  /* Creates another hardware queue and stores its ring in dev->rings; on failure undoes everything. Called while
   * nothing is submitted. NULL if devices have one queue of each kind. */
  int (*ring_create)(db_device *dev, enum db_queue_kind kind, unsigned index);
  /* Stops the hardware queues permanently. Returns false if something is still running, so its memory must not be
   * freed. May be called repeatedly, while nothing is submitted. */
  bool (*halt)(db_device *dev);
  /* Called after halt, when rings, buffers and signals are gone. */
  void (*close)(db_device *dev);
  /* Called after the machine's last device was closed. Returns false if the kernel keeps state for the process; then
   * the machine is kept for the next open. */
  bool (*machine_close)(struct hcq_machine *machine);
  /* Describes the machine's devices without opening them and leaves the names empty. Returns their number, which may
   * exceed cap. */
  int (*enumerate)(struct hcq_machine *machine, struct hcq_found *out, int cap);

  int (*alloc)(db_buffer *buf); /* size and flags are set */
  int (*import)(db_buffer *buf, void *host);
  void (*free)(db_buffer *buf);
  /* Whether queues of dev can use device memory of other, another device of the same machine. NULL if always. */
  bool (*reaches)(db_device *dev, db_device *other);
  /* Makes a buffer of another device of the machine addressable by dev, at the same address. Returns -EXDEV if that is
   * not possible. */
  int (*reach)(db_device *dev, db_buffer *buf);
  bool is_host; /* device memory is host memory, and device addresses are host addresses */

  int (*program_load)(db_device *dev, const void *image, size_t size, const char *entry, const struct db_param *params,
                      unsigned nparams, db_program **out);

  /* These append packets to q->words; the arguments have been checked. The backend reports where the values of the
   * slots in q->slots are stored, with hcq_patch_words or hcq_patch_memory. */
  int (*wait)(db_queue *q, uint64_t signal_address, uint32_t value);
  int (*signal)(db_queue *q, uint64_t signal_address, uint32_t value);
  int (*timestamp)(db_queue *q, uint64_t stamp_address); /* writes a timestamp of 16 bytes */
  int (*memory_barrier)(db_queue *q);
  /* kernarg: prog->kernarg_size bytes at device address kernarg_address, with the explicit arguments filled in and the
   * rest zero. local_size: static and dynamic local memory, in bytes. */
  int (*exec)(db_queue *q, db_program *prog, uint8_t *kernarg, uint64_t kernarg_address, uint32_t local_size,
              const uint32_t grid[3], const uint32_t block[3]);
  int (*copy)(db_queue *q, uint64_t dst, uint64_t src, uint64_t n);

  /* Keeps the clocks stable, or stops it. Called with the device's lock held. On failure returns a negative errno, with
   * a message that says what a person can do. NULL: there is no control. */
  int (*stable_clocks)(db_device *dev, bool on);

  /* Thread traces; trace_engines is NULL if devices have none. trace_engines returns the number of traces that a device
   * writes at once. trace_size reads what trace_end wrote to t->status for an engine: the bytes and the packets lost.
   */
  unsigned (*trace_engines)(db_device *dev);
  int (*trace_begin)(db_queue *q, const db_thread_trace *t);
  int (*trace_end)(db_queue *q, const db_thread_trace *t);
  int (*trace_size)(const db_thread_trace *t, unsigned engine, size_t *bytes, uint64_t *lost);

  /* Samples of program counters; sampler_open is NULL if devices have none. sampler_open sets s->hardware. sampler_read
   * allocates the samples. While a recording samples, q->sampling is set, and exec records what starts the
   * sampling of each kernel. */
  int (*sampler_open)(db_pc_sampler *s);
  void (*sampler_close)(db_pc_sampler *s);
  int (*sampler_read)(db_pc_sampler *s, struct db_pc_sample **out, size_t *n, uint64_t *lost);
  int (*samples_end)(db_queue *q);

  /* Performance counters (profiling/counters.c). NULL if the backend has none. counters stores the list of the device's
   * counters, which lives as long as the device, and their number; it returns 0 or db_fail's errno. counter_slots:
   * number of events that a block counts at the same time. check: a counter that has the same sum whenever the same
   * work is done. */
  int (*counters)(db_device *dev, const struct hcq_counter **list, unsigned *n, const struct hcq_counter **check);
  unsigned (*counter_slots)(db_device *dev, const struct hcq_counter *counter);
  /* Fails with the reason why the device does not count the named event: -ENOENT if it is of another device or
   * processor, otherwise another code. NULL: the device counts all events that it could. */
  int (*counter_missing)(db_device *dev, const char *name);
  int (*counters_begin)(db_queue *q, const struct hcq_counter_pick *picks, unsigned n);
  /* Stores 1 at done_address after the values. */
  int (*counters_end)(db_queue *q, const struct hcq_counter_pick *picks, unsigned n, uint64_t done_address);

  /* Passes q->words to the hardware queue, followed by the packets that set its timeline to value. One thread at a time
   * calls submit and replay for a ring; any thread may call the other functions. */
  int (*submit)(db_queue *q, uint64_t value);
  /* The same for a recording's words, which the hardware reads in place. */
  int (*replay)(db_recording *r, uint64_t value);
  /* Sleeps until sig may have reached value, at most ns nanoseconds; may return early. Calls hcq_device_lost if the
   * device has a fault. */
  void (*sleep)(db_device *dev, const db_signal *sig, uint64_t value, uint64_t ns);
  /* Calls hcq_device_lost if the device has a fault. Does not wait and does not consume wake-ups of threads in sleep,
   * because waiters of other devices call it. NULL if the device has no faults. */
  void (*poll)(db_device *dev);
  /* Reads the device's clock. NULL if its ticks are the host's nanoseconds. */
  int (*read_clock)(db_device *dev, uint64_t *ticks);
  unsigned stamp_index; /* index of its timestamps in hcq_signal_slot.stamp */
};
extern const struct hcq_backend hcq_amd_backend, hcq_cpu_backend, hcq_nv_backend;
#endif
