/* Lists the devices that this machine could offer: the CPU, GPUs shown by the system's DRM devices and by the drivers,
 * and emulated GPUs. */
#include "backend.h"
#include <amdgpu.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xf86drm.h>

#define DRM_DEVICES_MAX 64
#define GPUS_MAX        64
enum { VENDOR_AMD = 0x1002, VENDOR_NVIDIA = 0x10de };

struct list {
  struct db_device_info *out;
  int cap, n;
};

static struct db_device_info *add_device(struct list *l, struct db_device_info info) {
  struct db_device_info *at = l->n < l->cap ? &l->out[l->n] : NULL;
  l->n++;
  if (at) *at = info;
  return at;
}

static uint32_t location(const drmDevice *d) {
  return (uint32_t)(d->businfo.pci->bus << 8 | d->businfo.pci->dev << 3 | d->businfo.pci->func);
}

static void name_location(struct db_device_info *info, uint32_t domain, uint32_t location) {
  if (domain || location)
    snprintf(info->pci, sizeof info->pci, "%04x:%02x:%02x.%x", domain, location >> 8 & 0xff, location >> 3 & 0x1f,
             location & 7);
}

/* Stores the name that libdrm has for a real AMD GPU; false if it has none or the render node cannot be opened. */
static bool marketing_name(const drmDevice *d, char *buf, size_t cap) {
  if (!(d->available_nodes & 1 << DRM_NODE_RENDER)) return false;
  int fd = open(d->nodes[DRM_NODE_RENDER], O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  uint32_t major, minor;
  amdgpu_device_handle handle;
  bool found = false;
  if (!amdgpu_device_initialize(fd, &major, &minor, &handle)) {
    const char *name = amdgpu_get_marketing_name(handle);
    if (name) snprintf(buf, cap, "%s", name);
    found = name != NULL;
    amdgpu_device_deinitialize(handle);
  }
  close(fd);
  return found;
}

/* Lists a machine's devices. A drm device at the same PCI location provides the name and is set to NULL. */
static int add_machine(struct list *l, const char *machine_name, drmDevice **drm, int ndrm) {
  struct hcq_machine *m = hcq_machine_open(machine_name);
  if (!m) return -ENODEV;
  int n = -ENOMEM;
  struct hcq_found *found = calloc(GPUS_MAX, sizeof *found);
  if (!found) goto out;
  n = m->ops->enumerate(m, found, GPUS_MAX);
  /* Emulated GPUs are all alike: list only the first. */
  for (int i = 0; i < n && i < GPUS_MAX && !(i && m->emulated); i++) {
    struct db_device_info *info = &found[i].info;
    snprintf(info->name, sizeof info->name, i ? "%s:%d" : "%s", machine_name, i);
    name_location(info, found[i].pci_domain, found[i].pci_location);
    for (int k = 0; drm && k < ndrm; k++) {
      if (!drm[k] || location(drm[k]) != found[i].pci_location || drm[k]->businfo.pci->domain != found[i].pci_domain)
        continue;
      if (drm[k]->deviceinfo.pci->vendor_id == VENDOR_AMD)
        marketing_name(drm[k], info->description, sizeof info->description);
      drm[k] = NULL;
    }
    add_device(l, *info);
  }
  free(found);
out:
  hcq_machine_release(m);
  return n < 0 ? n : 0;
}

/* Lists a vendor's real GPUs: first those that its driver offers, then those that only the system shows. */
static void add_vendor(struct list *l, const char *name, uint32_t pci_vendor, const char *unlisted, drmDevice **drm,
                       int ndrm) {
  int before = l->n, err = add_machine(l, name, drm, ndrm);
  char reason[sizeof l->out->reason];
  snprintf(reason, sizeof reason, "%s", err ? db_error() : unlisted);
  for (int i = 0; i < ndrm; i++) {
    if (!drm[i] || drm[i]->deviceinfo.pci->vendor_id != pci_vendor) continue;
    struct db_device_info info = {0};
    snprintf(info.name, sizeof info.name, "%s", name);
    snprintf(info.reason, sizeof info.reason, "%s", reason);
    snprintf(info.description, sizeof info.description, "PCI %04x:%04x", pci_vendor, drm[i]->deviceinfo.pci->device_id);
    name_location(&info, drm[i]->businfo.pci->domain, location(drm[i]));
    if (pci_vendor == VENDOR_AMD) marketing_name(drm[i], info.description, sizeof info.description);
    add_device(l, info);
  }
  if (l->n > before) return;
  struct db_device_info info = {0};
  snprintf(info.name, sizeof info.name, "%s", name);
  snprintf(info.reason, sizeof info.reason, "%s", err ? reason : "the driver has no GPU");
  add_device(l, info);
}

int db_devices(struct db_device_info *out, int cap) {
  struct list l = {out, out ? cap : 0, 0};
  drmDevice *all[DRM_DEVICES_MAX], *left[DRM_DEVICES_MAX];
  int nall = drmGetDevices2(0, all, DRM_DEVICES_MAX), n = 0;
  if (nall < 0) nall = 0;
  if (nall > DRM_DEVICES_MAX) nall = DRM_DEVICES_MAX;
  for (int i = 0; i < nall; i++)
    if (all[i]->bustype == DRM_BUS_PCI) left[n++] = all[i];

  add_machine(&l, "CPU", NULL, 0);
  add_vendor(&l, "AMD", VENDOR_AMD, "KFD does not list it", left, n);
  add_vendor(&l, "NV", VENDOR_NVIDIA, "the NVIDIA driver does not list it", left, n);
  add_machine(&l, "EMU+AMD:gfx1100", NULL, 0);
  add_machine(&l, "EMU+NV:sm_90", NULL, 0);
  drmFreeDevices(all, nall);
  return l.n;
}
