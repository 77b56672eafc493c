/* Reference-counted objects: buffers, signals and programs, which hcq.h exposes as opaque handles. */
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
  _Atomic uint64_t mark; /* the recorder batch that already holds a reference */
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
  /* Read before the reference is dropped: after that another thread may destroy the object. */
  void (*destroy)(struct hcq_object *) = o->destroy;
  if (atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) == 1) destroy(o);
}

/* In addition to enum db_buffer_flags: host memory that devices of other machines never use, such as arguments and
 * packets. */
enum { HCQ_BUFFER_PRIVATE = 1 << 8 };

struct db_buffer {
  struct hcq_object object;
  db_device *dev;
  size_t size;
  uint64_t address;
  uint8_t *host;
  unsigned flags;  /* enum db_buffer_flags, HCQ_BUFFER_PRIVATE */
  bool direct;     /* set by the backend: the host may copy the contents itself */
  bool imported;   /* host memory owned by the caller */
  bool internal;   /* owned by the device: does not keep the device open */
  uint64_t handle; /* this and the next two are used by the backend */
  void *mapping;
  size_t mapping_size;
  _Atomic uint64_t reached; /* one bit per device of the machine that maps it */
  struct hcq_import *imports;
};

/* An import of one machine's host memory into a device of another machine. Freed with the buffer or the device,
 * whichever goes first. */
struct hcq_import {
  struct hcq_import *next, *next_of_device;
  db_buffer *of;     /* the imported buffer, whose list holds this */
  db_buffer *memory; /* the buffer of the other device that maps the same pages */
};

/* A signal as the hardware accesses it. It is 64 bytes, so two signals never share a cache line; the stamp is 32-byte
 * aligned, as SDMA prefers. */
struct hcq_signal_slot {
  _Atomic uint64_t value;
  uint64_t reserved0[3];
  _Atomic uint64_t stamp[2]; /* ticks of the stamping device, at index hcq_backend.stamp_index */
  uint64_t reserved1[2];
};
_Static_assert(sizeof(struct hcq_signal_slot) == 64, "a cache line");

struct db_signal {
  struct hcq_object object;
  db_device *dev;
  struct hcq_signal_slot *slot;
  uint64_t address; /* of the slot on its own device; the stamp is at + HCQ_STAMP_OFFSET */
  struct hcq_signal_page *page;
  db_device *_Atomic stamper; /* the device whose clock made the stamp */
  db_device **stampers;       /* other devices that stamped it, retained; guarded by dev->lock */
  unsigned nstampers;
  struct hcq_ring *ring; /* the ring whose timeline this is, or NULL */
};
#define HCQ_STAMP_OFFSET offsetof(struct hcq_signal_slot, stamp)
/* Hardware waits compare 32 bits (PM4 WAIT_REG_MEM, SDMA POLL_REGMEM), so signal values do not exceed this. A
 * timeline's 64-bit value keeps growing: before its 32-bit count would pass the limit, all queues of the process become
 * idle and the hardware counts from 0 again (hcq_quiesce). */
#define HCQ_SIGNAL_MAX UINT32_MAX

enum { HCQ_PAGE_SIGNALS = 64 };
struct hcq_signal_page {
  struct hcq_signal_page *next;
  db_buffer *memory;
  uint64_t used; /* one bit per slot */
};

struct db_program {
  struct hcq_object object;
  db_device *dev;
  char name[128];
  uint64_t address;        /* of its first instruction */
  struct db_param *params; /* explicit parameters */
  unsigned nparams;
  uint32_t kernarg_size, kernarg_align;
  uint32_t local_size;                    /* bytes of static local memory; dynamic local memory follows */
  uint32_t registers, private_size, wave; /* as in struct db_program_resources */
  struct hcq_copied *copied;
  unsigned ncopied;
  void *image; /* a copy of the image that it was loaded from; NULL if hcq_program_load loaded it */
  size_t image_size;
};
/* db_program_load for callers that keep the image themselves. */
db_program *hcq_program_load(db_device *dev, const void *image, size_t size, const char *entry,
                             const struct db_param *params, unsigned nparams);

/* The address that parameter `param` gets is stored a second time, plus `addend`, at offset in the argument segment. */
struct hcq_copied {
  unsigned param;
  uint32_t offset;
  uint64_t addend;
};

/* ---- buffer.c ---- */
db_buffer *hcq_buffer_new(db_device *dev, size_t size, unsigned flags, bool internal);
/* Makes a buffer of another device addressable by the queues of `by` and stores its address for them in *address.
 * Returns -EXDEV if that is not possible: different machines reach only each other's host memory. */
int hcq_buffer_reach_other(db_device *by, db_buffer *buf, uint64_t *address);
static inline int hcq_buffer_reach(db_device *by, db_buffer *buf, uint64_t *address) {
  *address = buf->address;
  return buf->dev == by ? 0 : hcq_buffer_reach_other(by, buf, address);
}
/* Drops all imports of a halted device. */
void hcq_imports_drop(db_device *dev);
extern pthread_mutex_t hcq_imports_lock;

/* ---- signal.c ---- */
/* Records that a queue of `by` will stamp sig; sig then retains `by`. */
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
/* Frees the pages; called after all signals are gone. */
void hcq_signals_free(db_device *dev);
#endif
