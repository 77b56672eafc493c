/* Hardware queues: their timelines, the objects that submissions in flight hold, memory for kernel arguments. */
#ifndef DOORBELL_HCQ_RING_H
#define DOORBELL_HCQ_RING_H
#include "object.h"

/* What a submission waits for: timelines, each with its base at that time, and devices whose other signals it waits
 * for. */
struct hcq_waits {
  struct hcq_awaited {
    db_device *dev;
    const struct hcq_ring *ring; /* NULL if the wait is for a signal that is not a timeline */
    uint64_t base;
  } awaited[128];
  unsigned n;
};

/* A piece of kernel-argument memory. Recorders reuse it after the last submission that used it has finished. */
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

/* Maximum number of queues of one kind per device, and of both kinds. */
enum { HCQ_QUEUES = 4, HCQ_RINGS = 2 * HCQ_QUEUES };

struct hcq_ring {
  db_device *dev;
  enum db_queue_kind kind;
  unsigned index; /* among the queues of its kind */
  db_signal *timeline;
  pthread_mutex_t submitting;
  _Atomic uint64_t submitted; /* timeline value of the last submission */
  _Atomic uint64_t base;      /* timeline value at which the hardware's 32-bit count is 0, or HCQ_BASE_CHANGES */
  uint64_t count_max;         /* the largest value of that count */
  struct {                    /* as in db_device_counters; written by the submitting thread */
    _Atomic uint64_t packets, doorbells, kernels, copies;
  } counters;
  /* ---- guarded by dev->lock ---- */
  struct hcq_foreign { /* one per device: the last submission that waits for it; only submissions add entries */
    db_device *dev;    /* only compared, not dereferenced: the device may be gone after that submission has finished */
    uint64_t value;
  } *foreign;
  unsigned nforeign;
  uint64_t failed_after; /* submissions after this value, up to `failed`, waited for a device that was lost */
  _Atomic uint64_t failed;
  char failed_reason[1024];
  _Atomic uint64_t stuck_at;   /* timeline value at the last timeout of a long wait, UINT64_MAX before the first */
  struct hcq_object **objects; /* held for submissions in flight, oldest first; circular, capacity a power of two */
  _Atomic uint64_t objects_head, batches_head;
  uint64_t objects_tail, objects_cap; /* only submissions change these and the arrays */
  struct hcq_batch *batches;
  uint64_t batches_tail, batches_cap;
  struct hcq_chunk *chunks; /* free ones, least recently used first */
  struct hcq_chunk **chunks_tail;
  unsigned nchunks;
};

/* ---- timelines ---- */

#define HCQ_BASE_CHANGES UINT64_MAX /* value of base while base and the hardware's count are being changed */
/* The acquire load pairs with the release store of base in restart_count (device.c). */
static inline uint64_t hcq_ring_base(const struct hcq_ring *ring) {
  uint64_t base;
  do base = atomic_load_explicit(&ring->base, memory_order_acquire);
  while (base == HCQ_BASE_CHANGES);
  return base;
}
/* The signal's value. For a timeline it reads base again after the count: if base is unchanged, restart_count
 * (device.c) did not restart the count in between. */
static inline uint64_t hcq_signal_load(const db_signal *sig) {
  if (!sig->ring) return atomic_load_explicit(&sig->slot->value, memory_order_acquire);
  for (;;) {
    uint64_t base = hcq_ring_base(sig->ring), count = atomic_load_explicit(&sig->slot->value, memory_order_acquire);
    if (atomic_load_explicit(&sig->ring->base, memory_order_relaxed) == base) return base + count;
  }
}
/* The count that the hardware stores for a submission's timeline value. */
static inline uint32_t hcq_ring_count(const struct hcq_ring *ring, uint64_t value) {
  return (uint32_t)(value - atomic_load_explicit(&ring->base, memory_order_relaxed));
}

static inline unsigned hcq_ring_index(enum db_queue_kind kind, unsigned index) { return (unsigned)kind + 2 * index; }

/* ---- ring.c ---- */

int hcq_ring_init(struct hcq_ring *ring, db_device *dev, enum db_queue_kind kind, unsigned index);
/* May be called with a ring that was never initialized. */
void hcq_ring_finish(struct hcq_ring *ring);
/* "compute", "copy", "compute 1": for messages. */
const char *hcq_ring_name(const struct hcq_ring *ring);
/* Releases what finished submissions held. */
void hcq_ring_retire(struct hcq_ring *ring);
/* Releases what all submissions held; for a halted device. */
void hcq_ring_drop(struct hcq_ring *ring);
/* The kernel that is running, or that ran last if the device has stopped; "none" if there is none. For messages. */
struct hcq_kernel_name {
  char s[128];
} hcq_device_running(const db_device *dev);
/* Adds to one of the ring's counters. Only the submitting thread calls this, so a plain load and store suffice. */
static inline void hcq_count(_Atomic uint64_t *counter, uint64_t more) {
  atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more, memory_order_relaxed);
}

/* Takes the least recently used free chunk, after its last use has finished; if that is still in flight and the ring
 * has fewer than HCQ_CHUNKS_MAX chunks, makes a new one. Returns NULL after db_fail. */
struct hcq_chunk *hcq_chunk_take(struct hcq_ring *ring);
/* Returns chunks to the ring; chunk->last must be set to their last use. */
void hcq_chunks_give(struct hcq_ring *ring, struct hcq_chunk *chunks);
/* Begins a submission that may hold up to `nobjects` objects: locks the ring and returns the submission's timeline
 * value in *value. Reserves all memory, because nothing may fail once the hardware has the submission. */
int hcq_ring_begin(struct hcq_ring *ring, unsigned nobjects, const struct hcq_waits *waits, uint64_t *value);
/* Ends a submission that succeeded. It takes over the references on its objects. Unlocks the ring. */
void hcq_ring_submitted(struct hcq_ring *ring, const struct hcq_batch *batch, struct hcq_object *const *objects,
                        const struct hcq_waits *waits);
/* Ends a submission that failed. Unlocks the ring. */
void hcq_ring_cancel(struct hcq_ring *ring);
/* Waits briefly for room in the hardware's ring, which has been full since *since (0 on the first call, then set).
 * Returns -ETIMEDOUT with a message about the work in flight after the device's timeout, -EIO if the device is lost. */
int hcq_ring_wait_room(struct hcq_ring *ring, uint64_t *since);
#endif
