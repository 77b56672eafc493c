/* GPU timestamps in the host's time: both clocks are read at once and the GPU's runs at a known constant rate. */
#include "amd.h"
#include <amdgpu_drm.h>
#include <errno.h>
#include <string.h>

#define CALIBRATION_TRIES 4
#define RECALIBRATE_NS    1000000000ull /* the two crystals drift apart by parts per million */

int amd_clock_calibrate(struct amd_device *dev) {
  if (!dev->clock_khz) {
    struct drm_amdgpu_info_device info = {0};
    struct drm_amdgpu_info ask = {
        .return_pointer = (uint64_t)(uintptr_t)&info, .return_size = sizeof info, .query = AMDGPU_INFO_DEV_INFO};
    struct os *os = dev->kfd->os;
    int err = os->ioctl(os, dev->node->drm_fd, DRM_IOCTL_AMDGPU_INFO, &ask);
    if (err) return db_fail(err, "%s: asking the render node about the device: %s", dev->base.name, strerror(-err));
    dev->clock_khz = info.gpu_counter_freq;
    if (!dev->clock_khz) return db_fail(-EPROTO, "%s: the device has no clock frequency", dev->base.name);
  }
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < CALIBRATION_TRIES; i++) {
    struct kfd_get_clock_counters c = {.gpu_id = dev->node->gpu_id};
    uint64_t before = hcq_now_ns();
    int err = kfd_ioctl(dev->kfd, KFD_GET_CLOCK_COUNTERS, &c);
    uint64_t after = hcq_now_ns();
    if (err) return db_fail(err, "%s: reading the GPU's clock: %s", dev->base.name, strerror(-err));
    if (after - before >= best) continue;
    best = after - before;
    pthread_mutex_lock(&dev->base.lock);
    dev->clock_ticks = c.gpu_clock_counter;
    dev->clock_ns = before + best / 2;
    pthread_mutex_unlock(&dev->base.lock);
  }
  return 0;
}

static void read_pair(struct amd_device *dev, uint64_t at[2]) {
  pthread_mutex_lock(&dev->base.lock);
  at[0] = dev->clock_ticks;
  at[1] = dev->clock_ns;
  pthread_mutex_unlock(&dev->base.lock);
}

static int64_t ticks_ns(const struct amd_device *dev, int64_t ticks) {
  return (int64_t)((__int128)ticks * 1000000 / dev->clock_khz);
}

uint64_t amd_ticks_to_ns(const db_device *base, uint64_t ticks) {
  struct amd_device *dev = amd_device((db_device *)base);
  uint64_t at[2];
  read_pair(dev, at);
  if (hcq_now_ns() - at[1] > RECALIBRATE_NS && !amd_clock_calibrate(dev)) read_pair(dev, at);
  return at[1] + (uint64_t)ticks_ns(dev, (int64_t)(ticks - at[0]));
}
