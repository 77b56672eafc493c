/* Signals: slots in pages of host memory that every queue of every device can read and write, and how the host waits on
 * them.
 *
 * A queue or thread that sees a signal's value, on any machine, also sees everything written before it, because every
 * writer makes its earlier writes visible at system scope before it stores the value. On AMD, a compute queue writes
 * the caches back with RELEASE_MEM at the end of the pipe. A copy queue waits for its copies with a NOP and writes the
 * caches back with GCR_REQ before the FENCE. Both store the value past the caches, because host memory is mapped
 * uncached. On NVIDIA, kernels end with a system membar and copies with a flush, and the semaphore release waits until
 * the engine is idle. The CPU uses a release store. Every waiter invalidates cached data that may be older than the
 * signal (ACQUIRE_MEM, GCR_REQ, the QMD's invalidations, an acquire load). */
#include "backend.h"
#include "profile.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SPIN_NS           5000u      /* less than the cost of a sleep in the kernel */
#define SLICE_NS          10000000u  /* interval for checking the deadline and the device's health */
#define SLICE_NO_EVENT_NS 200000u    /* the same if no interrupt announces the value */
#define STUCK_NS          500000000u /* after a failed wait this long, a drain waits only briefly */

uint64_t hcq_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void signal_destroy(struct hcq_object *object) {
  db_signal *sig = (db_signal *)object;
  db_device *dev = sig->dev;
  for (unsigned i = 0; i < sig->nstampers; i++) hcq_release(&sig->stampers[i]->object);
  free(sig->stampers);
  pthread_mutex_lock(&dev->lock);
  sig->page->used &= ~(1ull << (sig->slot - (struct hcq_signal_slot *)sig->page->memory->host));
  pthread_mutex_unlock(&dev->lock);
  bool internal = sig->ring != NULL;
  free(sig);
  if (!internal) hcq_release(&dev->object);
}

static struct hcq_signal_page *page_new(db_device *dev) {
  struct hcq_signal_page *page = calloc(1, sizeof *page);
  if (!page) return db_fail_null(-ENOMEM, "%s: out of host memory for a signal", dev->name);
  page->memory = hcq_buffer_new(dev, HCQ_PAGE_SIGNALS * sizeof(struct hcq_signal_slot), DB_BUFFER_HOST, true);
  if (page->memory) return page;
  free(page);
  return NULL;
}

/* Takes a free slot. `fresh`, if not NULL, is added to the device's pages first. Returns NULL if all slots are used. */
static struct hcq_signal_page *slot_take(db_device *dev, struct hcq_signal_page *fresh, unsigned *slot) {
  pthread_mutex_lock(&dev->lock);
  if (fresh) {
    fresh->next = dev->signal_pages;
    dev->signal_pages = fresh;
  }
  struct hcq_signal_page *page = dev->signal_pages;
  while (page && page->used == UINT64_MAX) page = page->next;
  if (page) {
    *slot = (unsigned)__builtin_ctzll(~page->used);
    page->used |= 1ull << *slot;
  }
  pthread_mutex_unlock(&dev->lock);
  return page;
}

db_signal *hcq_signal_new(db_device *dev, struct hcq_ring *timeline_of) {
  db_signal *sig = calloc(1, sizeof *sig);
  if (!sig) return db_fail_null(-ENOMEM, "%s: out of host memory for a signal", dev->name);
  unsigned i;
  struct hcq_signal_page *page = slot_take(dev, NULL, &i);
  for (struct hcq_signal_page *fresh; !page; page = slot_take(dev, fresh, &i))
    if (!(fresh = page_new(dev))) {
      free(sig);
      return NULL;
    }
  hcq_object_init(&sig->object, signal_destroy);
  sig->dev = dev;
  sig->stamper = dev;
  sig->page = page;
  sig->ring = timeline_of;
  sig->slot = (struct hcq_signal_slot *)page->memory->host + i;
  sig->address = page->memory->address + i * sizeof(struct hcq_signal_slot);
  memset(sig->slot, 0, sizeof *sig->slot);
  if (!timeline_of) hcq_retain(&dev->object);
  return sig;
}

void hcq_signals_free(db_device *dev) {
  while (dev->signal_pages) {
    struct hcq_signal_page *page = dev->signal_pages;
    dev->signal_pages = page->next;
    hcq_release(&page->memory->object);
    free(page);
  }
}

db_signal *db_signal_new(db_device *dev) {
  if (!dev) return db_null_of("device");
  return hcq_device_check(dev) ? NULL : hcq_signal_new(dev, NULL);
}

/* A timeline lives as long as its device, so its references are references to the device. */
db_signal *db_signal_retain(db_signal *sig) {
  if (sig) hcq_retain(sig->ring ? &sig->dev->object : &sig->object);
  return sig;
}
void db_signal_release(db_signal *sig) {
  if (sig) hcq_release(sig->ring ? &sig->dev->object : &sig->object);
}

uint64_t db_signal_value(const db_signal *sig) { return sig ? hcq_signal_load(sig) : 0; }
void db_signal_set(db_signal *sig, uint64_t value) {
  if (!sig || sig->dev->inherited) return;
  if (value > HCQ_SIGNAL_MAX) value = HCQ_SIGNAL_MAX;
  atomic_store_explicit(&sig->slot->value, value, memory_order_release);
}

/* sig retains every device that has stamped it until sig is destroyed, so readers may dereference sig->stamper at any
 * time. The release store pairs with the acquire loads of sig->stamper in db_signal_interval and db_wait. */
int hcq_signal_stamped_by(db_signal *sig, db_device *by) {
  db_device *dev = sig->dev;
  bool known = by == dev;
  pthread_mutex_lock(&dev->lock);
  for (unsigned i = 0; i < sig->nstampers; i++) known |= sig->stampers[i] == by;
  if (!known) {
    db_device **more = realloc(sig->stampers, (sig->nstampers + 1) * sizeof *more);
    if (more) {
      hcq_retain(&by->object);
      more[sig->nstampers++] = by;
      sig->stampers = more, known = true;
    }
  }
  if (known) atomic_store_explicit(&sig->stamper, by, memory_order_release);
  pthread_mutex_unlock(&dev->lock);
  return known ? 0 : db_fail(-ENOMEM, "%s: out of host memory for a timestamp", by->name);
}

static uint64_t ticks_at(const db_device *dev, const void *stamp) {
  const _Atomic uint64_t *ticks = stamp;
  return dev->inherited ? 0 : atomic_load_explicit(&ticks[dev->ops->stamp_index], memory_order_acquire);
}

static const void *stamp_at(const db_device *dev, const db_buffer *buf, size_t offset) {
  bool inside = dev && buf && buf->host && buf->size >= DB_STAMP_BYTES && offset <= buf->size - DB_STAMP_BYTES;
  return inside ? buf->host + offset : NULL;
}

/* Converts two stamps, with one calibration if the same device made both. A stamp that is NULL converts to 0. */
static void times(db_device *const dev[2], const void *const stamp[2], uint64_t ns[2]) {
  uint64_t ticks[2];
  for (int i = 0; i < 2; i++) ticks[i] = stamp[i] ? ticks_at(dev[i], stamp[i]) : 0;
  if (stamp[0] && stamp[1] && dev[0] == dev[1]) {
    hcq_clock_to_ns(dev[0], ticks, ns, 2);
    return;
  }
  for (int i = 0; i < 2; i++) {
    ns[i] = 0;
    if (ticks[i]) hcq_clock_to_ns(dev[i], &ticks[i], &ns[i], 1);
  }
}

void db_signal_interval(const db_signal *begin, const db_signal *end, uint64_t *begin_ns, uint64_t *end_ns) {
  const db_signal *sig[2] = {begin, end};
  const void *stamp[2] = {0};
  db_device *dev[2] = {0};
  uint64_t ns[2];
  for (int i = 0; i < 2; i++)
    if (sig[i]) dev[i] = atomic_load_explicit(&sig[i]->stamper, memory_order_acquire), stamp[i] = sig[i]->slot->stamp;
  times(dev, stamp, ns);
  if (begin_ns) *begin_ns = ns[0];
  if (end_ns) *end_ns = ns[1];
}

void db_stamp_interval(const db_device *dev, const db_buffer *buf, size_t begin, size_t end, uint64_t *begin_ns,
                       uint64_t *end_ns) {
  uint64_t ns[2];
  db_device *by = (db_device *)dev;
  times((db_device *[]){by, by}, (const void *[]){stamp_at(dev, buf, begin), stamp_at(dev, buf, end)}, ns);
  if (begin_ns) *begin_ns = ns[0];
  if (end_ns) *end_ns = ns[1];
}

uint64_t db_signal_time_ns(const db_signal *sig) {
  uint64_t ns;
  db_signal_interval(sig, NULL, &ns, NULL);
  return ns;
}
uint64_t db_stamp_time_ns(const db_device *dev, const db_buffer *buf, size_t offset) {
  uint64_t ns;
  db_stamp_interval(dev, buf, offset, offset, &ns, NULL);
  return ns;
}

static int timed_out(const db_signal *sig, uint64_t value, uint64_t timeout_ns) {
  char what[32] = "a signal";
  if (sig->ring) snprintf(what, sizeof what, "the %s queue", hcq_ring_name(sig->ring));
  if (sig->ring && timeout_ns >= STUCK_NS) sig->ring->stuck_at = hcq_signal_load(sig);
  return db_fail(-ETIMEDOUT, "%s: %s did not reach %llu within %.3f s: it is at %llu; kernel running or last run: %s",
                 sig->dev->name, what, (unsigned long long)value, (double)timeout_ns * 1e-9,
                 (unsigned long long)hcq_signal_load(sig), hcq_device_running(sig->dev).s);
}

/* Fails if a timeline reached value because a device was lost. */
static int check_reached(const db_signal *sig, uint64_t value) {
  struct hcq_ring *ring = sig->ring;
  int err = 0;
  if (sig->dev->lost) return hcq_device_check(sig->dev);
  if (!ring || value > atomic_load_explicit(&ring->failed, memory_order_acquire)) return 0;
  pthread_mutex_lock(&sig->dev->lock);
  if (value > ring->failed_after) err = db_fail(-EIO, "%s", ring->failed_reason);
  pthread_mutex_unlock(&sig->dev->lock);
  return err;
}

int db_check(db_signal *timeline, uint64_t value) {
  return timeline ? check_reached(timeline, value) : db_null("timeline");
}

int db_wait(db_signal *sig, uint64_t value, uint64_t timeout_ns) {
  if (!sig) return db_null("signal");
  if (hcq_signal_load(sig) < value) {
    uint64_t start = hcq_now_ns(), now = start, recorded = hcq_host_begin();
    for (;;) {
      if (hcq_signal_load(sig) >= value) break;
      if (sig->dev->lost) return hcq_device_check(sig->dev);
      const db_device *stamper = atomic_load_explicit(&sig->stamper, memory_order_acquire);
      if (stamper->lost) return hcq_device_check(stamper);
      if (now - start >= timeout_ns) return timed_out(sig, value, timeout_ns);
      if (now - start < SPIN_NS) {
        hcq_spin_pause();
      } else {
        uint64_t slice = sig->ring ? SLICE_NS : SLICE_NO_EVENT_NS, left = timeout_ns - (now - start);
        sig->dev->ops->sleep(sig->dev, sig, value, left < slice ? left : slice);
        if (sig->ring) hcq_device_check_others(sig->dev);
      }
      now = hcq_now_ns();
    }
    hcq_host_end(HCQ_HOST_WAIT, "", recorded);
  }
  int err = check_reached(sig, value);
  if (sig->ring) hcq_ring_retire(sig->ring);
  return err;
}
