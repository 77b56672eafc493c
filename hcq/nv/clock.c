/* GPU timestamps in the host's time. Both clocks count nanoseconds (the GPU's is PTIMER); they are read at once. */
#include "rm.h"

#define CALIBRATION_TRIES 4
#define RECALIBRATE_NS    1000000000ull /* the two crystals drift apart by parts per million */

int nv_clock_calibrate(struct nv_device *dev) {
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < CALIBRATION_TRIES; i++) {
    struct rm_timer_time t = {0};
    uint64_t before = hcq_now_ns();
    int rc = rm_ctrl(dev->machine, dev->subdevice, RM_CTRL_TIMER_TIME, &t, sizeof t);
    uint64_t after = hcq_now_ns();
    if (rc) return rm_error(dev->base.name, rc, "reading the GPU's clock");
    if (after - before >= best) continue;
    best = after - before;
    pthread_mutex_lock(&dev->base.lock);
    dev->clock_gpu_ns = t.ns;
    dev->clock_ns = before + best / 2;
    pthread_mutex_unlock(&dev->base.lock);
  }
  return 0;
}

static void read_pair(struct nv_device *dev, uint64_t at[2]) {
  pthread_mutex_lock(&dev->base.lock);
  at[0] = dev->clock_gpu_ns;
  at[1] = dev->clock_ns;
  pthread_mutex_unlock(&dev->base.lock);
}

uint64_t nv_ticks_to_ns(const db_device *base, uint64_t ticks) {
  struct nv_device *dev = nv_device((db_device *)base);
  uint64_t at[2];
  read_pair(dev, at);
  if (hcq_now_ns() - at[1] > RECALIBRATE_NS && !nv_clock_calibrate(dev)) read_pair(dev, at);
  return at[1] + (ticks - at[0]);
}
