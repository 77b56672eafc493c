/* Hardware queues: their timelines, what submissions in flight hold, memory for kernel arguments. */
#ifndef DOORBELL_HCQ_RING_H
#define DOORBELL_HCQ_RING_H
#include "object.h"

/* What a submission waits for: the timelines, with where they counted from, and devices of other signals. */
struct hcq_waits {
  struct hcq_awaited {
    db_device *dev;
    const struct hcq_ring *ring; /* NULL: another signal */
    uint64_t base;
  } for_[128];
  unsigned n;
};

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
  /* ---- guarded by the device's lock ---- */
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

/* ---- timelines ---- */

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

static inline unsigned hcq_ring_place(enum db_queue_kind kind, unsigned index) { return (unsigned)kind + 2 * index; }

/* ---- ring.c ---- */

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

/* The free chunk whose last use is longest ago, once that is over, or a new one while there are few. NULL after
 * db_fail. */
struct hcq_chunk *hcq_chunk_take(struct hcq_ring *ring);
/* Gives chunks back to the ring after their last use. */
void hcq_chunks_give(struct hcq_ring *ring, struct hcq_chunk *chunks);
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
#endif
