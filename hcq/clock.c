/* Device timestamps in the host's time.
 *
 * A device's clock runs at a known constant rate; reading it and the host's at once says where it stands. The two
 * crystals drift apart by parts per million, so they are read again from time to time, each time with an error of about
 * a microsecond. Times that are to be subtracted from each other must therefore be converted with one reading. */
#include "backend.h"
#include <string.h>

enum { TRIES = 4 };
#define AGAIN_NS 1000000000ull

int hcq_clock_calibrate(db_device *dev) {
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < TRIES; i++) {
    uint64_t ticks, before = hcq_now_ns();
    int err = dev->ops->read_clock(dev, &ticks);
    uint64_t took = hcq_now_ns() - before;
    if (err) return err;
    if (took >= best) continue;
    best = took;
    pthread_mutex_lock(&dev->lock);
    dev->clock.ticks = ticks;
    dev->clock.ns = before + took / 2;
    pthread_mutex_unlock(&dev->lock);
  }
  return 0;
}

static struct hcq_clock reading(db_device *dev) {
  pthread_mutex_lock(&dev->lock);
  struct hcq_clock c = dev->clock;
  pthread_mutex_unlock(&dev->lock);
  return c;
}

void hcq_clock_to_ns(db_device *dev, const uint64_t *ticks, uint64_t *ns, unsigned n) {
  if (!dev->ops->read_clock) {
    memcpy(ns, ticks, n * sizeof *ns);
    return;
  }
  struct hcq_clock c = reading(dev);
  if (hcq_now_ns() - c.ns > AGAIN_NS && !hcq_clock_calibrate(dev)) c = reading(dev);
  for (unsigned i = 0; i < n; i++)
    ns[i] = ticks[i] ? c.ns + (uint64_t)(int64_t)((__int128)(int64_t)(ticks[i] - c.ticks) * 1000000 / c.khz) : 0;
}
