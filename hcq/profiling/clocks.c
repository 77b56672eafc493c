/* Stable clocks while a device has sets of counters, thread traces or PC samplers. */
#include "../backend.h"
#include "../profile.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes the clocks stable. Returns whether hcq_clocks_drop must release them. */
static bool hold(db_device *dev) {
  const char *asked = getenv("STABLE_CLOCKS");
  dev->unstable[0] = 0;
  if (asked && !strcmp(asked, "0")) {
    snprintf(dev->unstable, sizeof dev->unstable,
             "%s: STABLE_CLOCKS=0: the clocks are not stable, so times and cycles vary", dev->name);
    return false;
  }
  if (!dev->ops->stable_clocks(dev, true)) return true;
  snprintf(dev->unstable, sizeof dev->unstable, "%s", db_error());
  return false;
}

void hcq_clocks_hold(db_device *dev) {
  pthread_mutex_lock(&dev->lock);
  if (!dev->measured++ && dev->ops->stable_clocks) dev->holds_clocks = hold(dev);
  pthread_mutex_unlock(&dev->lock);
}

void hcq_clocks_drop(db_device *dev) {
  pthread_mutex_lock(&dev->lock);
  if (!--dev->measured && dev->holds_clocks && !dev->inherited) {
    dev->holds_clocks = false;
    if (dev->ops->stable_clocks(dev, false))
      snprintf(dev->unstable, sizeof dev->unstable, "the clocks are still locked: %s", db_error());
  }
  pthread_mutex_unlock(&dev->lock);
}

const char *hcq_clocks_unstable(const db_device *dev) { return dev->unstable; }
