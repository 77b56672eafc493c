/* RM's calls on /dev/nvidiactl. */
#include "rm.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FIRST_HANDLE 0x5b000000u /* for objects whose handle the caller chooses */

int rm_ioctl(const struct nv_machine *m, int fd, uint32_t request, void *arg) {
  int r;
  do r = m->os->ioctl(m->os, fd, request, arg);
  while (r == -EINTR || r == -EAGAIN);
  return r < 0 ? r : 0;
}

static int result(int err, uint32_t status) {
  if (err) return err;
  return status == RM_WARN_NOTHING_TO_DO ? 0 : status > INT32_MAX ? (int)RM_GENERIC : (int)status;
}

int rm_object_new(struct nv_machine *m, uint32_t parent, uint32_t class, const void *params, size_t size,
                  uint32_t *handle) {
  /* RM reads the size that it expects for the class, regardless of params_size. */
  uint8_t padded[RM_ALLOC_PARAMS_MIN] = {0};
  if (size > sizeof padded) return -E2BIG;
  if (params) memcpy(padded, params, size);
  struct rm_alloc a = {
      .root = m->client,
      .parent = parent,
      .class = class,
      .params = params ? (uint64_t)(uintptr_t)padded : 0,
      .params_size = params ? (uint32_t)size : 0,
  };
  int rc = rm_ioctl(m, m->ctl, RM_IO(RM_NR_ALLOC, sizeof a), &a);
  rc = result(rc, a.status);
  *handle = rc ? 0 : a.object;
  return rc;
}

int rm_object_free(struct nv_machine *m, uint32_t parent, uint32_t *handle) {
  if (!*handle) return 0;
  struct rm_free f = {.root = m->client, .parent = parent, .object = *handle};
  int rc = rm_ioctl(m, m->ctl, RM_IO(RM_NR_FREE, sizeof f), &f);
  *handle = 0;
  return result(rc, f.status);
}

int rm_ctrl(struct nv_machine *m, uint32_t object, uint32_t command, void *params, size_t size) {
  struct rm_control c = {
      .client = m->client,
      .object = object,
      .cmd = command,
      .params = (uint64_t)(uintptr_t)params,
      .params_size = (uint32_t)size,
  };
  int rc = rm_ioctl(m, m->ctl, RM_IO(RM_NR_CONTROL, sizeof c), &c);
  return result(rc, c.status);
}

int rm_pin_host(struct nv_machine *m, int gpu_fd, uint32_t device, void *host, uint64_t size, uint32_t *handle) {
  struct rm_alloc_memory_fd a = {
      .params = {.root = m->client,
                 .parent = device,
                 .object = FIRST_HANDLE + m->next_handle++,
                 .class = RM_CLASS_OS_DESCRIPTOR,
                 .flags = RM_OS02_PHYSICALITY(1) | RM_OS02_COHERENCY(RM_CACHED) | RM_OS02_MAPPING(1),
                 .memory = (uint64_t)(uintptr_t)host,
                 .limit = size - 1},
      .fd = -1,
  };
  int rc = rm_ioctl(m, gpu_fd, RM_IO(RM_NR_ALLOC_MEMORY, sizeof a), &a);
  rc = result(rc, a.params.status);
  *handle = rc ? 0 : a.params.object;
  return rc;
}

int rm_map_prepare(struct nv_machine *m, uint32_t parent, uint32_t memory, uint64_t length, int fd) {
  struct rm_map_memory_fd a = {
      .params = {.client = m->client, .device = parent, .memory = memory, .length = length},
      .fd = fd,
  };
  int rc = rm_ioctl(m, m->ctl, RM_IO(RM_NR_MAP_MEMORY, sizeof a), &a);
  return result(rc, a.params.status);
}

/* ---- errors ---- */

int rm_errno(int rc) {
  static const struct {
    uint32_t status;
    int err;
  } table[] = {
      {RM_NO_MEMORY, -ENOMEM},
      {RM_INSUFFICIENT_RESOURCES, -ENOMEM},
      {RM_INSUFFICIENT_PERMISSIONS, -EACCES},
      {RM_NOT_SUPPORTED, -ENOTSUP},
      {RM_INVALID_CLASS, -ENOTSUP},
      {RM_TIMEOUT, -ETIMEDOUT},
      {RM_GPU_IS_LOST, -ENODEV},
      {RM_IN_USE, -EBUSY},
      {RM_STATE_IN_USE, -EBUSY},
      {RM_UVM_ADDRESS_IN_USE, -EEXIST},
      {RM_NOT_READY, -EAGAIN},
  };
  if (rc <= 0) return rc;
  for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
    if (table[i].status == (uint32_t)rc) return table[i].err;
  return -EIO;
}

int rm_error(const char *device, int rc, const char *what, ...) {
  char text[256];
  va_list ap;
  va_start(ap, what);
  vsnprintf(text, sizeof text, what, ap);
  va_end(ap);
  if (rc < 0) return db_fail(rc, "%s: %s: %s", device, text, strerror(-rc));
  const char *hint = rc == RM_FABRIC_MANAGER_NOT_PRESENT || rc == RM_NVLINK_FABRIC_NOT_READY
                         ? " (NVLink's fabric manager is not ready)"
                         : "";
  return db_fail(rm_errno(rc), "%s: %s: the driver returned %s (0x%x)%s", device, text, rm_status_name((uint32_t)rc),
                 (unsigned)rc, hint);
}
