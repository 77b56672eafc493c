/* Conversion of device timestamps to the host's time.
 *
 * A device's clock runs at a known constant rate; reading it and the host's clock at the same time gives the offset.
 * The two crystals drift apart by parts per million, so both are read again from time to time, with an error of about a
 * microsecond each time. Times that are subtracted from each other must therefore be converted with the same
 * calibration. A calibration is kept until a new reading contradicts it. */
#include "backend.h"
#include <string.h>

enum { TRIES = 16 }; /* the host may be interrupted between its two readings, under load several times in a row */
#define AGAIN_NS 1000000000ull

static struct hcq_clock reading(db_device *dev) {
  pthread_mutex_lock(&dev->lock);
  struct hcq_clock c = dev->clock;
  pthread_mutex_unlock(&dev->lock);
  return c;
}

static uint64_t ns_of(const struct hcq_clock *c, uint64_t ticks) {
  return c->ns + (uint64_t)(int64_t)((__int128)(int64_t)(ticks - c->ticks) * 1000000 / c->khz);
}

int hcq_clock_calibrate(db_device *dev) {
  struct hcq_clock old = reading(dev), now = old;
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < TRIES; i++) {
    uint64_t ticks, before = hcq_now_ns();
    int err = dev->ops->read_clock(dev, &ticks);
    uint64_t took = hcq_now_ns() - before;
    if (err) return err;
    if (took >= best) continue;
    best = took;
    now.ticks = ticks;
    now.ns = now.checked_ns = before + took / 2;
  }
  /* If the new reading agrees with the old calibration within its error, keep the old one: times converted before and
   * after then remain comparable. */
  uint64_t expected = old.ns ? ns_of(&old, now.ticks) : 0;
  if (old.ns && expected + best / 2 >= now.ns && expected <= now.ns + best / 2) now.ticks = old.ticks, now.ns = old.ns;
  pthread_mutex_lock(&dev->lock);
  dev->clock = now;
  pthread_mutex_unlock(&dev->lock);
  return 0;
}

void hcq_clock_to_ns(db_device *dev, const uint64_t *ticks, uint64_t *ns, unsigned n) {
  if (!dev->ops->read_clock) {
    memcpy(ns, ticks, n * sizeof *ns);
    return;
  }
  struct hcq_clock c = reading(dev);
  if (hcq_now_ns() - c.checked_ns > AGAIN_NS && !hcq_clock_calibrate(dev)) c = reading(dev);
  for (unsigned i = 0; i < n; i++) ns[i] = ticks[i] ? ns_of(&c, ticks[i]) : 0;
}
