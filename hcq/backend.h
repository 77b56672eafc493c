/* What a backend implements, and the order of locks.
 *
 * hcq/ does once what every backend needs: names and the registry, reference counts, kernel-argument memory, the life
 * of what a submission uses, waiting. A backend (struct hcq_backend) brings memory, programs, and the writing of
 * packets. Nothing here is public. object.h, ring.h, recording.h, device.h and loss.h declare the shared part.
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
#include "device.h"
#include "loss.h"

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
#endif
