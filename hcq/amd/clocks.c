/* Stable clocks: the kernel driver keeps a performance level while a context of a render node asks for it. Any user of
 * the render node may ask; one context of a GPU at a time. Source: Linux amdgpu_ctx.c, amdgpu_ctx_stable_pstate, and
 * libdrm's amdgpu_drm.h. */
#include "amd.h"
#include <amdgpu_drm.h>
#include <errno.h>
#include <string.h>

static int context_ioctl(struct amd_device *dev, unsigned op, unsigned flags, union drm_amdgpu_ctx *c) {
  struct os *os = dev->base.os;
  *c = (union drm_amdgpu_ctx){.in = {.op = op, .flags = flags, .ctx_id = dev->context}};
  return os->ioctl(os, dev->node->drm_fd, DRM_IOCTL_AMDGPU_CTX, c);
}

/* The kernel driver takes the level back when the context is freed. */
static void release_clocks(struct amd_device *dev) {
  union drm_amdgpu_ctx c;
  if (dev->context) context_ioctl(dev, AMDGPU_CTX_OP_FREE_CTX, 0, &c);
  dev->context = 0;
}

int amd_stable_clocks(db_device *base, bool on) {
  struct amd_device *dev = (struct amd_device *)base;
  union drm_amdgpu_ctx c;
  if (!on) return release_clocks(dev), 0;
  int err = context_ioctl(dev, AMDGPU_CTX_OP_ALLOC_CTX, 0, &c);
  if (!err) {
    dev->context = c.out.alloc.ctx_id;
    err = context_ioctl(dev, AMDGPU_CTX_OP_SET_STABLE_PSTATE, AMDGPU_CTX_STABLE_PSTATE_STANDARD, &c);
    if (err) release_clocks(dev);
  }
  if (!err) return 0;
  return db_fail(err,
                 "%s: the clocks are not stable, so times and cycles vary: %s%s; the administrator can write "
                 "profile_standard to /sys/class/drm/renderD%u/device/power_dpm_force_performance_level",
                 base->name, strerror(-err), err == -EBUSY ? " (another program has set them)" : "",
                 dev->node->render_minor);
}
