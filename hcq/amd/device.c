/* Opening and closing one AMD GPU. */
#include "amd.h"
#include <amdgpu_drm.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Only gfx1100. The packets (pm4.h) are the same for all gfx11, but registers differ: gfx1103 is an APU with another
 * NBIO, and gfx1101 and gfx1102 are untested. */
static bool supported(const struct amd_node *n) { return n->gfx_version == 110000 && n->xcc_count == 1; }

static void describe(const struct amd_node *n, char *buf, size_t cap) {
  snprintf(buf, cap, "%s%s%u CUs", n->name, n->name[0] ? ", " : "", amd_node_cus(n));
}

static int acquire_vm(struct amd_device *dev) {
  struct kfd_process *p = dev->kfd;
  struct amd_node *n = dev->node;
  if (n->drm_fd >= 0) return 0; /* acquired by an earlier device on this GPU */
  char path[64];
  snprintf(path, sizeof path, "/dev/dri/renderD%u", n->render_minor);
  int fd = p->os->open(p->os, path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return db_fail(fd, "%s: cannot open %s: %s", dev->base.name, path, strerror(-fd));
  int err = kfd_ioctl(p, KFD_ACQUIRE_VM, &(struct kfd_acquire_vm){.drm_fd = (uint32_t)fd, .gpu_id = n->gpu_id});
  if (err) {
    p->os->close(p->os, fd);
    return db_fail(err, "%s: acquiring the GPU's address space through %s: %s%s", dev->base.name, path, strerror(-err),
                   err == -EBUSY ? " (this process uses the GPU through another descriptor)" : "");
  }
  n->drm_fd = fd;
  return 0;
}

static int read_apertures(struct amd_device *dev) {
  struct kfd_process *p = dev->kfd;
  struct kfd_apertures *all = calloc(p->nnodes, sizeof *all);
  if (!all) return db_fail(-ENOMEM, "%s: out of host memory", dev->base.name);
  struct kfd_get_process_apertures_new a = {.apertures_ptr = (uint64_t)(uintptr_t)all, .num_of_nodes = p->nnodes};
  int err = kfd_ioctl(p, KFD_GET_PROCESS_APERTURES_NEW, &a);
  if (err) db_fail(err, "%s: reading the apertures: %s", dev->base.name, strerror(-err));
  bool found = false;
  for (unsigned i = 0; !err && i < a.num_of_nodes && i < p->nnodes; i++)
    if (all[i].gpu_id == dev->node->gpu_id) {
      dev->apertures = all[i];
      found = true;
    }
  free(all);
  return err || found
             ? err
             : db_fail(-EPROTO, "%s: the kernel lists no apertures of GPU %u", dev->base.name, dev->node->gpu_id);
}

static void amd_close(db_device *base) {
  struct amd_device *dev = amd_device(base);
  amd_events_destroy(dev);
  amd_queues_free(dev);
  free(dev->counters);
  free(dev);
}

/* KFD keeps the process's address spaces, its event page and the first descriptor of each render node until the
 * process's memory map is gone (Linux kfd_process.c). So the descriptors stay open until the process ends. An emulated
 * machine with a lost GPU is closed, so that the next open creates a new one; that is its power cycle. */
static bool amd_machine_close(struct hcq_machine *machine) {
  struct kfd_process *p = machine->state;
  bool lost = false;
  for (unsigned i = 0; p && i < p->nnodes; i++) lost |= p->nodes[i].lost;
  if (p && !(lost && p->emulated)) return false;
  kfd_process_close(p);
  machine->state = NULL;
  return true;
}

static struct amd_node *find_node(struct hcq_machine *machine, unsigned index, const char *name) {
  struct kfd_process *p = machine->state;
  if (!p->nnodes) return db_fail_null(-ENODEV, "%s: the kernel's topology has no GPU", name);
  if (index >= p->nnodes)
    return db_fail_null(-ENODEV, "%s: there %s %u GPU%s, numbered from 0", name, p->nnodes == 1 ? "is" : "are",
                        p->nnodes, p->nnodes == 1 ? "" : "s");
  struct amd_node *n = &p->nodes[index];
  if (!supported(n)) return db_fail_null(-ENOTSUP, "%s: not supported yet: %s", name, n->arch);
  return n->lost ? db_fail_null(-EIO,
                                "%s: the GPU was lost earlier in this process, and the kernel keeps its queues stopped "
                                "until the process ends",
                                name)
                 : n;
}

/* The first workgroup processor of an engine's shader array 0 both of whose compute units are active. Engines 4 and up
 * are in the second half of the rows (Linux amdgpu_kms.c). */
static uint8_t first_processor(const struct drm_amdgpu_info_device *info, unsigned engine) {
  uint32_t active = info->cu_bitmap[engine % 4][2 * (engine / 4)];
  for (uint8_t i = 0; i < 16; i++)
    if ((active >> 2 * i & 3) == 3) return i;
  return 0;
}

/* One more than the highest number of an active workgroup processor in any shader array. Arrays with fewer active ones
 * number them as the full array does. */
static uint8_t count_processors(const struct drm_amdgpu_info_device *info) {
  uint32_t active = 0;
  for (unsigned i = 0; i < 4; i++)
    for (unsigned k = 0; k < 4; k++) active |= info->cu_bitmap[i][k];
  return active ? (uint8_t)((31 - __builtin_clz(active)) / 2 + 1) : 0;
}

static int read_device_info(struct amd_device *dev) {
  struct drm_amdgpu_info_device info = {0};
  struct drm_amdgpu_info ask = {
      .return_pointer = (uint64_t)(uintptr_t)&info, .return_size = sizeof info, .query = AMDGPU_INFO_DEV_INFO};
  struct os *os = dev->kfd->os;
  int err = os->ioctl(os, dev->node->drm_fd, DRM_IOCTL_AMDGPU_INFO, &ask);
  if (err) return db_fail(err, "%s: querying the render node: %s", dev->base.name, strerror(-err));
  dev->base.clock.khz = info.gpu_counter_freq;
  for (unsigned i = 0; i < AMD_ENGINES; i++) dev->traced_processor[i] = first_processor(&info, i);
  dev->processors = count_processors(&info);
  return dev->base.clock.khz ? 0 : db_fail(-EPROTO, "%s: the driver reports no clock frequency", dev->base.name);
}

static int amd_read_clock(db_device *base, uint64_t *ticks) {
  struct amd_device *dev = amd_device(base);
  struct kfd_get_clock_counters c = {.gpu_id = dev->node->gpu_id};
  int err = kfd_ioctl(dev->kfd, KFD_GET_CLOCK_COUNTERS, &c);
  if (err) return db_fail(err, "%s: reading the GPU's clock: %s", base->name, strerror(-err));
  *ticks = c.gpu_clock_counter;
  return 0;
}

static int amd_open(struct hcq_machine *machine, unsigned index, const char *name, db_device **out) {
  int err = 0;
  if (!machine->state) {
    struct kfd_process *p = NULL;
    if ((err = kfd_process_open(machine, &p))) return err;
    machine->state = p;
  }
  struct amd_node *node = find_node(machine, index, name);
  if (!node) return -ENODEV;
  struct amd_device *dev = calloc(1, sizeof *dev);
  if (!dev) return db_fail(-ENOMEM, "%s: out of host memory", name);
  dev->kfd = machine->state;
  dev->node = node;
  hcq_device_init(&dev->base, machine, index, name);
  strcpy(dev->base.arch, node->arch);
  const uint32_t has[2] = {node->cp_queues, node->sdma_engines};
  for (int k = 0; k < 2; k++)
    if (has[k]) dev->base.nqueues[k] = has[k] < HCQ_QUEUES ? has[k] : HCQ_QUEUES;
  describe(node, dev->base.description, sizeof dev->base.description);
  if ((err = acquire_vm(dev))) goto out;
  if ((err = read_apertures(dev))) goto out;
  if ((err = read_device_info(dev)) || (err = hcq_clock_calibrate(&dev->base))) goto out;
  amd_events_clear(dev);
  if ((err = amd_events_create(dev))) goto out;
  if ((err = amd_queue_create(&dev->base, DB_QUEUE_COMPUTE, 0))) goto out;
  err = amd_queue_create(&dev->base, DB_QUEUE_COPY, 0);
out:
  if (err) {
    if (!amd_halt(&dev->base)) return err; /* the GPU may still use its memory */
    for (int i = 0; i < HCQ_RINGS; i++) hcq_ring_finish(dev->base.rings[i]);
    hcq_signals_free(&dev->base);
    amd_close(&dev->base);
    return err;
  }
  *out = &dev->base;
  return 0;
}

/* Fills one entry per GPU of the topology, without acquiring any. */
static int amd_enumerate(struct hcq_machine *machine, struct hcq_found *out, int cap) {
  struct kfd_process *p = machine->state;
  int err = p ? 0 : kfd_process_open(machine, &p);
  if (err) return err;
  for (unsigned i = 0; i < p->nnodes && (int)i < cap; i++) {
    const struct amd_node *n = &p->nodes[i];
    struct db_device_info *info = &out[i].info;
    out[i] = (struct hcq_found){.pci_domain = n->domain, .pci_location = n->location};
    info->usable = supported(n);
    info->emulated = machine->emulated;
    info->memory = n->vram_size;
    info->units = amd_node_cus(n);
    info->clock_mhz = n->clock_mhz, info->memory_clock_mhz = n->memory_clock_mhz;
    snprintf(info->driver, sizeof info->driver, "KFD %u.%u", p->version[0], p->version[1]);
    snprintf(info->arch, sizeof info->arch, "%s", n->arch);
    describe(n, info->description, sizeof info->description);
    if (!info->usable) snprintf(info->reason, sizeof info->reason, "not supported yet: %s", n->arch);
  }
  int count = (int)p->nnodes;
  if (!machine->state) kfd_process_close(p);
  return count;
}

const struct hcq_backend hcq_amd_backend = {
    .vendor = "AMD",
    .isa = "gfx1100",
    .open = amd_open,
    .ring_create = amd_queue_create,
    .halt = amd_halt,
    .close = amd_close,
    .machine_close = amd_machine_close,
    .enumerate = amd_enumerate,
    .alloc = amd_alloc,
    .import = amd_import,
    .free = amd_free,
    .reaches = amd_reaches,
    .reach = amd_reach,
    .program_load = amd_program_load,
    .wait = amd_wait,
    .signal = amd_signal,
    .timestamp = amd_timestamp,
    .memory_barrier = amd_memory_barrier,
    .exec = amd_exec,
    .copy = amd_copy,
    .stable_clocks = amd_stable_clocks,
    .trace_engines = amd_trace_engines,
    .trace_begin = amd_trace_begin,
    .trace_end = amd_trace_end,
    .trace_size = amd_trace_size,
    .counters = amd_counters,
    .counter_slots = amd_counter_slots,
    .counters_begin = amd_counters_begin,
    .counters_end = amd_counters_end,
    .submit = amd_submit,
    .replay = amd_replay,
    .sleep = amd_sleep,
    .poll = amd_poll,
    .read_clock = amd_read_clock,
};
