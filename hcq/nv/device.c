/* Opening and closing one NVIDIA GPU. */
#include "rm.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLASSES_MAX 1024u
#define VA_BASE     0x1000ull
#define VA_SIZE     0x1fffffb000000ull /* up to 49 bits */

/* Class numbers by role, newest first. The GPU's class list determines which one is used. Sources: open-gpu-doc, and
 * the class lists of open-gpu-kernel-modules. */
static const uint32_t usermode_classes[] = {RM_CLASS_USERMODE_BLACKWELL, RM_CLASS_USERMODE_HOPPER,
                                            RM_CLASS_USERMODE_AMPERE, RM_CLASS_USERMODE_TURING, 0};
static const uint32_t gpfifo_classes[] = {RM_CLASS_GPFIFO_BLACKWELL_B, RM_CLASS_GPFIFO_BLACKWELL_A,
                                          RM_CLASS_GPFIFO_HOPPER, RM_CLASS_GPFIFO_AMPERE, 0};
static const uint32_t compute_classes[] = {RM_CLASS_COMPUTE_BLACKWELL_B,
                                           RM_CLASS_COMPUTE_BLACKWELL_A,
                                           RM_CLASS_COMPUTE_HOPPER,
                                           RM_CLASS_COMPUTE_ADA,
                                           RM_CLASS_COMPUTE_AMPERE_B,
                                           RM_CLASS_COMPUTE_AMPERE_A,
                                           0};
static const uint32_t copy_classes[] = {RM_CLASS_COPY_BLACKWELL_B, RM_CLASS_COPY_BLACKWELL_A, RM_CLASS_COPY_HOPPER,
                                        RM_CLASS_COPY_AMPERE_B,    RM_CLASS_COPY_AMPERE_A,    0};

static uint32_t newest_class(const uint32_t *known, const uint32_t *has, uint32_t n) {
  for (; *known; known++)
    for (uint32_t i = 0; i < n; i++)
      if (has[i] == *known) return *known;
  return 0;
}

static bool has_class(const uint32_t *has, uint32_t n, uint32_t class) {
  return newest_class((const uint32_t[]){class, 0}, has, n) != 0;
}

/* ---- unsupported GPUs ---- */

/* A GPU in confidential computing mode launches work only through encrypted channels. */
static int refuse_confidential(struct nv_device *dev) {
  struct nv_machine *m = dev->machine;
  uint32_t object, client = m->client;
  if (rm_object_new(m, m->client, RM_CLASS_CONFIDENTIAL_COMPUTE, &client, sizeof client, &object)) return 0;
  struct rm_cc_capabilities caps = {0};
  int rc = rm_ctrl(m, object, RM_CTRL_CC_CAPABILITIES, &caps, m->branch.cc_capabilities);
  rm_object_free(m, m->client, &object);
  if (rc || caps.cc_feature == RM_CC_FEATURE_DISABLED) return 0;
  return db_fail(-ENOTSUP, "%s: not supported: a GPU in confidential computing mode", dev->base.name);
}

/* A GPU in MIG mode gives channels only to clients of its partitions. */
static int refuse_mig(struct nv_device *dev) {
  struct nv_machine *m = dev->machine;
  struct rm_gpu_info_v2 info = {.count = 1, .list = {{.index = RM_GPU_SMC_MODE}}};
  if (rm_ctrl(m, dev->subdevice, RM_CTRL_GPU_INFO_V2, &info, m->branch.gpu_info_v2)) return 0;
  uint32_t mode = info.list[0].data;
  if (mode != RM_SMC_MODE_ENABLED && mode != RM_SMC_MODE_DISABLE_PENDING) return 0;
  return db_fail(-ENOTSUP, "%s: not supported: a GPU in MIG mode (multi-instance GPU)", dev->base.name);
}

/* ---- properties ---- */

static int read_classes(struct nv_device *dev) {
  struct nv_machine *m = dev->machine;
  struct rm_class_list list = {0};
  int rc = rm_ctrl(m, dev->device, RM_CTRL_CLASS_LIST, &list, sizeof list);
  if (rc) return rm_error(dev->base.name, rc, "querying the number of classes");
  if (!list.count || list.count > CLASSES_MAX)
    return db_fail(-EPROTO, "%s: the driver lists %u classes", dev->base.name, list.count);
  uint32_t *has = calloc(list.count, sizeof *has), n = list.count;
  if (!has) return db_fail(-ENOMEM, "%s: out of host memory", dev->base.name);
  list.list = (uint64_t)(uintptr_t)has;
  rc = rm_ctrl(m, dev->device, RM_CTRL_CLASS_LIST, &list, sizeof list);
  int err = rc ? rm_error(dev->base.name, rc, "querying the classes") : 0;
  if (!err) {
    dev->usermode_class = newest_class(usermode_classes, has, n);
    dev->gpfifo_class = newest_class(gpfifo_classes, has, n);
    dev->compute_class = newest_class(compute_classes, has, n);
    dev->copy_class = newest_class(copy_classes, has, n);
    if (has_class(has, n, RM_CLASS_CONFIDENTIAL_COMPUTE)) err = refuse_confidential(dev);
  }
  free(has);
  if (!err && !(dev->usermode_class && dev->gpfifo_class && dev->compute_class && dev->copy_class))
    err = db_fail(-ENOTSUP,
                  "%s: not supported: a GPU (%04x) before Ampere or of an unknown kind: usermode class 0x%x, channel "
                  "class 0x%x, compute class 0x%x, copy class 0x%x",
                  dev->base.name, dev->card->device_id, dev->usermode_class, dev->gpfifo_class, dev->compute_class,
                  dev->copy_class);
  return err;
}

static int read_shape(struct nv_device *dev) {
  struct nv_machine *m = dev->machine;
  struct rm_info gr[] = {{.index = RM_GR_SM_VERSION},
                         {.index = RM_GR_MAX_WARPS_PER_SM},
                         {.index = RM_GR_GPCS},
                         {.index = RM_GR_TPCS_PER_GPC},
                         {.index = RM_GR_SMS_PER_TPC}};
  struct rm_gr_info ask = {.count = sizeof gr / sizeof *gr, .list = (uint64_t)(uintptr_t)gr};
  int rc = rm_ctrl(m, dev->subdevice, RM_CTRL_GR_INFO, &ask, sizeof ask);
  if (rc) return rm_error(dev->base.name, rc, "querying the GPU's numbers of GPCs and SMs");
  dev->sm_version = gr[0].data;
  dev->max_warps_per_sm = gr[1].data;
  dev->gpcs = gr[2].data;
  dev->tpcs_per_gpc = gr[3].data;
  dev->sms_per_tpc = gr[4].data;
  if (!dev->max_warps_per_sm || dev->max_warps_per_sm > 1024 || !dev->gpcs || dev->gpcs > 32 || !dev->tpcs_per_gpc ||
      dev->tpcs_per_gpc > 64 || !dev->sms_per_tpc || dev->sms_per_tpc > 16)
    return db_fail(-EPROTO, "%s: the driver reports %u GPCs of %u TPCs of %u SMs of %u warps", dev->base.name,
                   dev->gpcs, dev->tpcs_per_gpc, dev->sms_per_tpc, dev->max_warps_per_sm);
  struct rm_gpc_mask gpcs = {0};
  if ((rc = rm_ctrl(m, dev->subdevice, RM_CTRL_GPC_MASK, &gpcs, sizeof gpcs)))
    return rm_error(dev->base.name, rc, "querying the GPCs");
  for (uint32_t i = 0; i < 32; i++) {
    struct rm_tpc_mask tpcs = {.gpc_id = i};
    if (!(gpcs.gpc_mask >> i & 1)) continue;
    if ((rc = rm_ctrl(m, dev->subdevice, RM_CTRL_TPC_MASK, &tpcs, sizeof tpcs)))
      return rm_error(dev->base.name, rc, "querying the TPCs");
    dev->sms += (uint32_t)__builtin_popcount(tpcs.tpc_mask) * dev->sms_per_tpc;
  }
  struct rm_info fb = {.index = RM_FB_TOTAL_RAM_SIZE};
  struct rm_fb_info ask_fb = {.count = 1, .list = (uint64_t)(uintptr_t)&fb};
  if (!rm_ctrl(m, dev->subdevice, RM_CTRL_FB_INFO, &ask_fb, sizeof ask_fb)) dev->memory_bytes = (uint64_t)fb.data << 10;
  return 0;
}

/* sm_version has the major and the minor version in one byte each. Blackwell's second generation is 12.0 to compilers
 * and 10.4 to some drivers. */
static void name_arch(uint32_t sm, char *buf, size_t cap) {
  if (sm == 0xa04) sm = 0xc00;
  snprintf(buf, cap, "sm_%u%u", sm >> 8 & 0xff, sm & 0xf);
}

static void read_name(struct nv_device *dev, char *buf, size_t cap) {
  union {
    struct rm_name_string s;
    uint8_t bytes[256];
  } name = {0};
  if (rm_ctrl(dev->machine, dev->subdevice, RM_CTRL_NAME_STRING, &name, dev->machine->branch.name_string) ||
      !name.s.ascii[0])
    snprintf(buf, cap, "PCI 10de:%04x", dev->card->device_id);
  else
    snprintf(buf, cap, "%.*s", (int)sizeof name.s.ascii, name.s.ascii);
}

/* ---- objects, in order of creation ---- */

/* Creates only what queries need: descriptor, device, subdevice. */
static int open_gpu(struct nv_device *dev) {
  struct nv_machine *m = dev->machine;
  char path[32];
  snprintf(path, sizeof path, RM_GPU_DEVICE, dev->card->minor);
  dev->fd = m->os->open(m->os, path, O_RDWR | O_CLOEXEC);
  if (dev->fd < 0) return db_fail(dev->fd, "%s: cannot open %s: %s", dev->base.name, path, strerror(-dev->fd));
  struct rm_register_fd reg = {.ctl_fd = m->ctl};
  int rc = rm_ioctl(m, dev->fd, RM_IO(RM_NR_REGISTER_FD, sizeof reg), &reg);
  if (rc) return rm_error(dev->base.name, rc, "registering %s", path);
  struct rm_gpu_id_info id = {.gpu_id = dev->card->gpu_id};
  if ((rc = rm_ctrl(m, m->client, RM_CTRL_GPU_ID_INFO, &id, sizeof id)))
    return rm_error(dev->base.name, rc, "querying the GPU's instance");
  struct rm_device_alloc device = {.device_id = id.device_instance, .client_share = m->client};
  if ((rc = rm_object_new(m, m->client, RM_CLASS_DEVICE, &device, sizeof device, &dev->device)))
    return rm_error(dev->base.name, rc, "creating the device object");
  struct rm_subdevice_alloc subdevice = {.sub_device_id = id.sub_device_instance};
  if ((rc = rm_object_new(m, dev->device, RM_CLASS_SUBDEVICE, &subdevice, sizeof subdevice, &dev->subdevice)))
    return rm_error(dev->base.name, rc, "creating the subdevice object");
  return 0;
}

static void close_gpu(struct nv_device *dev) {
  rm_object_free(dev->machine, dev->machine->client, &dev->device); /* also frees all objects below it */
  nv_event_close(dev);
  if (dev->fd >= 0) dev->machine->os->close(dev->machine->os, dev->fd);
  dev->fd = -1;
}

static int map_doorbell(struct nv_device *dev) {
  int rc = rm_object_new(dev->machine, dev->subdevice, dev->usermode_class, NULL, 0, &dev->usermode);
  if (rc) return rm_error(dev->base.name, rc, "creating the usermode object");
  rc = nv_memory_map_host(dev, dev->subdevice, dev->usermode, true, NULL, RM_USERMODE_SIZE, &dev->usermode_page);
  if (rc) return rm_error(dev->base.name, rc, "mapping the doorbell");
  dev->doorbell = (_Atomic uint32_t *)((uint8_t *)dev->usermode_page + RM_USERMODE_DOORBELL);
  return 0;
}

static int make_vaspace(struct nv_device *dev) {
  struct nv_machine *m = dev->machine;
  struct rm_gid_info gid = {.flags = RM_GID_BINARY_SHA1, .length = sizeof dev->uuid};
  int rc = rm_ctrl(m, dev->subdevice, RM_CTRL_GID_INFO, &gid, sizeof gid);
  if (rc) return rm_error(dev->base.name, rc, "querying the GPU's id");
  memcpy(&dev->uuid, gid.data, sizeof dev->uuid);
  struct rm_vaspace_alloc vas = {
      .flags = RM_VASPACE_EXTERNALLY_OWNED | RM_VASPACE_PAGE_FAULTING, .va_base = VA_BASE, .va_size = VA_SIZE};
  if ((rc = rm_object_new(m, dev->device, RM_CLASS_VASPACE, &vas, sizeof vas, &dev->vaspace)))
    return rm_error(dev->base.name, rc, "creating the address space");
  if ((rc = uvm_gpu_register(m, &dev->uuid))) return rm_error(dev->base.name, rc, "registering the GPU with UVM");
  dev->uvm_gpu = true;
  if ((rc = uvm_vaspace_register(m, &dev->uuid, dev->vaspace)))
    return rm_error(dev->base.name, rc, "registering the address space with UVM");
  dev->uvm_vaspace = true;
  return 0;
}

/* ---- backend functions ---- */

static void nv_close(db_device *base) {
  struct nv_device *dev = nv_device(base);
  struct nv_machine *m = dev->machine;
  if (dev->local.memory) hcq_release(&dev->local.memory->object);
  for (int i = 0; i < HCQ_RINGS; i++) nv_ring_destroy(dev, &dev->rings[i]);
  free(dev->counters);
  if (dev->usermode_page) m->os->munmap(m->os, dev->usermode_page, RM_USERMODE_SIZE);
  if (dev->uvm_vaspace) uvm_vaspace_unregister(m, &dev->uuid);
  if (dev->uvm_gpu) uvm_gpu_unregister(m, &dev->uuid);
  close_gpu(dev);
  free(dev);
}

/* Closing the last descriptor frees the process's state in the kernel. */
static bool nv_machine_drop(struct hcq_machine *machine) {
  nv_machine_close(machine->state);
  return true;
}

static struct nv_card *find_card(struct nv_machine *m, unsigned index, const char *name) {
  if (!m->ncards) return db_fail_null(-ENODEV, "%s: the driver has no GPU", name);
  if (index >= m->ncards)
    return db_fail_null(-ENODEV, "%s: there %s %u GPU%s, numbered from 0", name, m->ncards == 1 ? "is" : "are",
                        m->ncards, m->ncards == 1 ? "" : "s");
  return &m->cards[index];
}

/* Reads everything about a GPU that can be known without channels. */
static int read_gpu(struct nv_device *dev) {
  int err = open_gpu(dev);
  if (!err) err = refuse_mig(dev);
  if (!err) err = read_classes(dev);
  if (!err) err = read_shape(dev);
  if (err) return err;
  name_arch(dev->sm_version, dev->base.arch, sizeof dev->base.arch);
  char name[64 + 1];
  read_name(dev, name, sizeof name);
  snprintf(dev->base.description, sizeof dev->base.description, "%s, %u SMs", name, dev->sms);
  return 0;
}

static struct nv_device *new_device(struct nv_machine *m, struct hcq_machine *machine, unsigned index,
                                    const char *name) {
  struct nv_card *card = find_card(m, index, name);
  if (!card) return NULL;
  struct nv_device *dev = calloc(1, sizeof *dev);
  if (!dev) return db_fail_null(-ENOMEM, "%s: out of host memory", name);
  dev->machine = m;
  dev->card = card;
  dev->fd = -1;
  dev->base.clock.khz = 1000000;
  hcq_device_init(&dev->base, machine, index, name);
  return dev;
}

static void nv_poll(db_device *base) { nv_fault_check(nv_device(base)); }

/* Reads PTIMER, which counts nanoseconds. */
static int nv_read_clock(db_device *base, uint64_t *ticks) {
  struct nv_device *dev = nv_device(base);
  struct rm_timer_time t = {0};
  int rc = rm_ctrl(dev->machine, dev->subdevice, RM_CTRL_TIMER_TIME, &t, sizeof t);
  if (rc) return rm_error(base->name, rc, "reading the GPU's clock");
  *ticks = t.ns;
  return 0;
}

static int nv_open(struct hcq_machine *machine, unsigned index, const char *name, db_device **out) {
  int err = 0;
  if (!machine->state) {
    struct nv_machine *m = NULL;
    if ((err = nv_machine_open(machine, &m))) return err;
    machine->state = m;
  }
  struct nv_device *dev = new_device(machine->state, machine, index, name);
  if (!dev) return -ENODEV;
  if ((err = read_gpu(dev))) goto out;
  nv_event_open(dev);
  if ((err = nv_machine_ready(dev->machine))) goto out;
  if ((err = map_doorbell(dev))) goto out;
  if ((err = hcq_clock_calibrate(&dev->base))) goto out;
  if ((err = make_vaspace(dev))) goto out;
  if ((err = nv_find_engines(dev))) goto out;
  if ((err = nv_ring_create(&dev->base, DB_QUEUE_COMPUTE, 0))) goto out;
  err = nv_ring_create(&dev->base, DB_QUEUE_COPY, 0);
out:
  if (err) {
    if (!nv_halt(&dev->base)) return err; /* the GPU may still use its memory */
    for (int i = 0; i < HCQ_RINGS; i++) hcq_ring_finish(dev->base.rings[i]);
    hcq_signals_free(&dev->base);
    nv_close(&dev->base);
    return err;
  }
  *out = &dev->base;
  return 0;
}

/* Attaches to each GPU while it is queried. */
static int nv_enumerate(struct hcq_machine *machine, struct hcq_found *out, int cap) {
  struct nv_machine *m = machine->state;
  int err = m ? 0 : nv_machine_open(machine, &m);
  if (err) return err;
  for (unsigned i = 0; i < m->ncards && (int)i < cap; i++) {
    const struct nv_card *c = &m->cards[i];
    struct db_device_info *info = &out[i].info;
    out[i] = (struct hcq_found){.pci_domain = c->domain, .pci_location = c->location};
    info->emulated = machine->emulated;
    snprintf(info->driver, sizeof info->driver, "NVIDIA %s", m->version);
    snprintf(info->description, sizeof info->description, "PCI 10de:%04x", c->device_id);
    struct nv_device *dev = new_device(m, machine, i, machine->name);
    info->usable = dev && !read_gpu(dev);
    if (!info->usable) snprintf(info->reason, sizeof info->reason, "%s", db_error());
    if (!dev) continue;
    if (info->usable) {
      info->memory = dev->memory_bytes;
      info->units = dev->sms;
      memcpy(info->arch, dev->base.arch, sizeof info->arch);
      memcpy(info->description, dev->base.description, sizeof info->description);
    }
    close_gpu(dev);
    free(dev);
  }
  int count = (int)m->ncards;
  if (!machine->state) nv_machine_close(m);
  return count;
}

const struct hcq_backend hcq_nv_backend = {
    .vendor = "NV",
    .isa = "sm_90",
    .open = nv_open,
    .ring_create = nv_ring_create,
    .halt = nv_halt,
    .close = nv_close,
    .machine_close = nv_machine_drop,
    .enumerate = nv_enumerate,
    .alloc = nv_alloc,
    .import = nv_import,
    .free = nv_free,
    .reaches = nv_reaches,
    .reach = nv_reach,
    .program_load = nv_program_load,
    .wait = nv_wait,
    .signal = nv_signal,
    .timestamp = nv_timestamp,
    .memory_barrier = nv_memory_barrier,
    .exec = nv_exec,
    .copy = nv_copy,
    .submit = nv_submit,
    .replay = nv_replay,
    .sleep = nv_sleep,
    .poll = nv_poll,
    .read_clock = nv_read_clock,
    .stable_clocks = nv_stable_clocks,
    .sampler_open = nv_sampler_open,
    .sampler_close = nv_sampler_close,
    .sampler_read = nv_sampler_read,
    .samples_end = nv_samples_end,
    .counters = nv_counters,
    .counter_slots = nv_counter_slots,
    .counters_begin = nv_counters_begin,
    .counters_end = nv_counters_end,
    .stamp_index = 1,
};
