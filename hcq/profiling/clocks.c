/* Stable clocks while a device has sets of counters, thread traces or PC samplers. */
#include "../backend.h"
#include "../profile.h"
#include <stdio.h>

void hcq_clocks_hold(db_device *dev) {
  pthread_mutex_lock(&dev->lock);
  if (!dev->measured++ && dev->ops->stable_clocks) {
    int err = dev->ops->stable_clocks(dev, true);
    snprintf(dev->unstable, sizeof dev->unstable, "%s", err ? db_error() : "");
  }
  pthread_mutex_unlock(&dev->lock);
}

void hcq_clocks_drop(db_device *dev) {
  pthread_mutex_lock(&dev->lock);
  if (!--dev->measured && dev->ops->stable_clocks && !dev->inherited) dev->ops->stable_clocks(dev, false);
  pthread_mutex_unlock(&dev->lock);
}

const char *hcq_clocks_unstable(const db_device *dev) { return dev->unstable; }
