/* The process's state in KFD: the open device, its version and its GPUs. */
#include "amd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

int kfd_ioctl(const struct kfd_process *p, unsigned long request, void *arg) {
  int r;
  do r = p->os->ioctl(p->os, p->fd, request, arg);
  while (r == -EINTR || r == -EAGAIN);
  return r;
}

int kfd_process_open(struct hcq_machine *machine, struct kfd_process **out) {
  struct kfd_process *p = calloc(1, sizeof *p);
  if (!p) return db_fail(-ENOMEM, "%s: out of host memory", machine->name);
  p->os = machine->os;
  p->machine = machine->name;
  p->emulated = machine->emulated;
  char text[16];
  p->other_vendor = p->os->read_file(p->os, "/proc/driver/nvidia/version", text, sizeof text) > 0;
  int err = p->fd = p->os->open(p->os, KFD_DEVICE, O_RDWR | O_CLOEXEC);
  if (err < 0) {
    free(p);
    return db_fail(err, "%s: cannot open " KFD_DEVICE ": %s%s", machine->name, strerror(-err),
                   machine->emulated ? "" : "; an emulated device is DEV=EMU+AMD:gfx1100");
  }
  struct kfd_get_version v = {0};
  if ((err = kfd_ioctl(p, KFD_GET_VERSION, &v))) {
    db_fail(err, "%s: asking " KFD_DEVICE " for its version: %s", machine->name, strerror(-err));
    goto out;
  }
  if (v.major_version != KFD_VERSION_MAJOR || v.minor_version < KFD_VERSION_MINOR_NEEDED) {
    err = db_fail(-ENOTSUP, "%s: not supported: KFD interface %u.%u; %u.%u or a later minor version is needed",
                  machine->name, v.major_version, v.minor_version, KFD_VERSION_MAJOR, KFD_VERSION_MINOR_NEEDED);
    goto out;
  }
  p->version[0] = v.major_version, p->version[1] = v.minor_version;
  err = kfd_topology_read(p);
out:
  if (err)
    kfd_process_close(p);
  else
    *out = p;
  return err;
}

void kfd_process_close(struct kfd_process *p) {
  if (!p) return;
  if (p->event_page.reservation) p->os->munmap(p->os, p->event_page.reservation, p->event_page.reserved);
  for (unsigned i = 0; i < p->nnodes; i++)
    if (p->nodes[i].drm_fd >= 0) p->os->close(p->os, p->nodes[i].drm_fd);
  p->os->close(p->os, p->fd);
  free(p->nodes);
  free(p);
}
