/* How devices end: halting and draining them, and the loss of one, which releases everything that waits for it. */
#include "backend.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DRAIN_STUCK_NS 50000000ull

/* ---- halting ---- */

bool hcq_device_halt(db_device *dev) {
  if (dev->inherited) return false; /* it runs in another process */
  unsigned paused = hcq_device_pause(dev);
  bool halted = dev->ops->halt(dev);
  hcq_device_resume(dev, paused);
  return halted;
}

/* Halts the device and releases everything that waits for it. Returns false if it cannot be halted. */
static bool halt_and_release(db_device *dev) {
  if (!hcq_device_halt(dev)) return false;
  hcq_device_release_waiters(dev); /* overwrites the signals of work that finished after the device was lost */
  for (int i = 0; i < HCQ_RINGS; i++)
    if (dev->rings[i]) hcq_ring_drop(dev->rings[i]);
  return true;
}

int db_halt(db_device *dev) {
  if (!dev) return db_null("device");
  int err = 0, first;
  for (unsigned i = 0; i < dev->nmembers; i++)
    if ((first = db_halt(dev->members[i])) && !err) err = first;
  if (dev->nmembers) return err;
  if (dev->inherited) return hcq_device_check(dev);
  hcq_retain(&dev->object); /* the objects released below may hold the last other reference */
  if (!dev->lost)
    hcq_device_lost(dev, "%s: db_halt stopped it; kernel running or last run: %s", dev->name,
                    hcq_device_running(dev).s);
  if (!halt_and_release(dev))
    err = db_fail(-EBUSY,
                  "%s: its running work cannot be stopped, so its memory is not freed. Kernel running or last run: %s",
                  dev->name, hcq_device_running(dev).s);
  hcq_release(&dev->object);
  return err;
}

void hcq_device_drain(db_device *dev) {
  hcq_retain(&dev->object); /* the objects released below may hold the last other reference */
  bool stuck = false;
  for (int i = 0; i < HCQ_RINGS; i++) {
    const struct hcq_ring *ring = dev->rings[i];
    stuck |= ring && ring->stuck_at == hcq_signal_load(ring->timeline);
  }
  if (db_device_synchronize(dev, stuck && DRAIN_STUCK_NS < dev->timeout_ns ? DRAIN_STUCK_NS : dev->timeout_ns)) {
    if (!dev->lost) hcq_device_lost(dev, "%s", db_error());
    halt_and_release(dev);
  }
  hcq_release(&dev->object);
}

/* ---- loss ---- */

/* Marks as failed all submissions that wait for `awaited`, and all later submissions to those rings, because they may
 * use the results. Then does the same for the devices of those rings. Called with registry.lock held. */
static void fail_waiters(const db_device *awaited, const db_device *lost) {
  for (db_device *dev = hcq_registry.devices; dev; dev = dev->next)
    for (int i = 0; i < HCQ_RINGS && dev != lost && !dev->lost; i++) {
      struct hcq_ring *ring = dev->rings[i];
      if (!ring) continue;
      pthread_mutex_lock(&dev->lock);
      uint64_t done = hcq_signal_load(ring->timeline), submitted = ring->submitted;
      bool waits = false;
      for (unsigned k = 0; k < ring->nforeign; k++)
        waits |= ring->foreign[k].dev == awaited && ring->foreign[k].value > done;
      bool more = waits && submitted > ring->failed;
      if (more && ring->failed <= done) { /* otherwise an earlier loss still has work in flight that waits for it */
        ring->failed_after = done;
        snprintf(ring->failed_reason, sizeof ring->failed_reason, "%s waited for %s, which was lost: %.640s", dev->name,
                 lost->name, lost->lost_reason);
      }
      if (more) atomic_store_explicit(&ring->failed, submitted, memory_order_release);
      pthread_mutex_unlock(&dev->lock);
      if (more) fail_waiters(dev, lost);
    }
}

/* Releases waiters on a signal of a lost device: a timeline is set to its last submission, any other signal to the
 * maximum. */
static void release_slot(db_device *lost, struct hcq_signal_slot *slot) {
  uint64_t value = HCQ_SIGNAL_MAX;
  for (int i = 0; i < HCQ_RINGS; i++) {
    const struct hcq_ring *ring = lost->rings[i];
    if (ring && ring->timeline->slot == slot) value = hcq_ring_count(ring, ring->submitted);
  }
  atomic_store_explicit(&slot->value, value, memory_order_release);
}

void hcq_device_release_waiters(db_device *lost) {
  pthread_mutex_lock(&hcq_registry.lock);
  fail_waiters(lost, lost);
  pthread_mutex_lock(&lost->lock);
  for (struct hcq_signal_page *page = lost->signal_pages; page; page = page->next)
    for (unsigned i = 0; i < HCQ_PAGE_SIGNALS; i++)
      release_slot(lost, (struct hcq_signal_slot *)(void *)page->memory->host + i);
  pthread_mutex_unlock(&lost->lock);
  pthread_mutex_unlock(&hcq_registry.lock);
}

static bool awaits(db_device *dev, const db_device *other) {
  bool awaited = false;
  pthread_mutex_lock(&dev->lock);
  for (int i = 0; i < HCQ_RINGS; i++) {
    const struct hcq_ring *ring = dev->rings[i];
    for (unsigned k = 0; ring && k < ring->nforeign; k++)
      awaited |= ring->foreign[k].dev == other && ring->foreign[k].value > hcq_signal_load(ring->timeline);
  }
  pthread_mutex_unlock(&dev->lock);
  return awaited;
}

/* Called with registry.lock held. `search` is the number of this search; devices that it has visited are skipped. */
static void check_awaited(db_device *dev, uint64_t search) {
  dev->visited_by = search;
  for (db_device *d = hcq_registry.devices; d; d = d->next) {
    if (d->visited_by == search || !awaits(dev, d)) continue;
    if (d->lost) { /* work still running on it may have overwritten its signals */
      hcq_device_release_waiters(d);
      continue;
    }
    if (d->ops->poll) d->ops->poll(d);
    if (!d->lost) check_awaited(d, search);
  }
}

void hcq_device_check_others(db_device *dev) {
  static uint64_t searches; /* guarded by registry.lock */
  pthread_mutex_lock(&hcq_registry.lock);
  check_awaited(dev, ++searches);
  pthread_mutex_unlock(&hcq_registry.lock);
}

int hcq_device_lost(db_device *dev, const char *fmt, ...) {
  char text[sizeof dev->lost_reason];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  pthread_mutex_lock(&dev->lock);
  bool first = !dev->lost;
  if (first) {
    memcpy(dev->lost_reason, text, sizeof text);
    dev->lost = -EIO;
  }
  pthread_mutex_unlock(&dev->lock);
  if (first) hcq_device_release_waiters(dev);
  return hcq_device_check(dev);
}

int hcq_device_check(const db_device *dev) {
  int lost = dev->lost;
  return lost ? db_fail(lost, "%s", dev->lost_reason) : 0;
}
