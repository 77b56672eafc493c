/* Stable clocks while a device has sets of counters, thread traces or PC samplers. */
#include "../backend.h"
#include "../profile.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hcq_clocks_hold(db_device *dev) {
  pthread_mutex_lock(&dev->lock);
  if (!dev->measured++ && dev->ops->stable_clocks) {
    const char *asked = getenv("STABLE_CLOCKS");
    dev->holds_clocks = !asked || strcmp(asked, "0") != 0;
    if (!dev->holds_clocks)
      db_fail(-EPERM, "%s: STABLE_CLOCKS=0: the clocks are not stable, so times and cycles vary", dev->name);
    else if (!dev->ops->stable_clocks(dev, true))
      dev->unstable[0] = 0;
    else
      dev->holds_clocks = false;
    if (!dev->holds_clocks) snprintf(dev->unstable, sizeof dev->unstable, "%s", db_error());
  }
  pthread_mutex_unlock(&dev->lock);
}

void hcq_clocks_drop(db_device *dev) {
  pthread_mutex_lock(&dev->lock);
  if (!--dev->measured && dev->holds_clocks && !dev->inherited) dev->ops->stable_clocks(dev, false);
  pthread_mutex_unlock(&dev->lock);
}

const char *hcq_clocks_unstable(const db_device *dev) { return dev->unstable; }
