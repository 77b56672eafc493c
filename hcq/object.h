/* Reference-counted objects: buffers, signals, programs. What hcq.h keeps behind their handles. */
#ifndef DOORBELL_HCQ_OBJECT_H
#define DOORBELL_HCQ_OBJECT_H
#include "error.h"
#include "hcq.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

struct hcq_ring;

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
#endif
