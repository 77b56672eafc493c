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
    dev->clock_gpu_ns = t.ns;
    dev->clock_ns = before + best / 2;
  }
  return 0;
}

uint64_t nv_ticks_to_ns(const db_device *base, uint64_t ticks) {
  struct nv_device *dev = nv_device((db_device *)base);
  if (hcq_now_ns() - dev->clock_ns > RECALIBRATE_NS) nv_clock_calibrate(dev); /* else the old pair still serves */
  return dev->clock_ns + (ticks - dev->clock_gpu_ns);
}
