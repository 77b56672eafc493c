/* The ioctls of /dev/nvidiactl and /dev/nvidia0...: a table from number to handler, structure size and kind of
 * descriptor. As in NVIDIA open-gpu-kernel-modules (nv.c, escape.c), a request of the wrong size or on the wrong kind
 * of descriptor returns -EINVAL. RM's own errors are in the structure's status, and the ioctl returns 0. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "nv.h"

enum { BODY_MAX = 16384, ON_CTL = 1, ON_GPU = 2, ON_ANY = ON_CTL | ON_GPU };

union body {
  uint64_t align;
  uint8_t bytes[256];
  struct rm_alloc alloc;
  struct rm_alloc_short alloc_short;
  struct rm_free free;
  struct rm_control control;
  struct rm_dup_object dup;
  struct rm_alloc_memory_fd alloc_memory;
  struct rm_map_memory_fd map_memory;
  struct rm_unmap_memory unmap_memory;
  struct rm_map_memory_dma map_dma;
  struct rm_map_memory_dma_575 map_dma_575;
  struct rm_unmap_memory_dma unmap_dma;
  struct rm_unmap_memory_dma_545 unmap_dma_545;
  struct rm_get_event_data event_data;
  struct rm_update_mapping update;
  struct rm_register_fd register_fd;
  struct rm_os_event os_event;
  struct rm_status_code status_code;
  struct rm_version version;
  struct rm_sys_params sys_params;
  struct rm_wait_open_complete wait_open;
};

/* ---- objects ---- */

static int alloc(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size) {
  struct rm_alloc *p = &b->alloc;
  struct rm_alloc_short *s = &b->alloc_short;
  if (size == sizeof *s) {
    s->status = nv_rm_object_alloc(c, s->root, s->parent, &s->object, s->class, s->params);
    return 0;
  }
  if (p->flags)
    p->status = RM_REFUSE(c->m, RM_INVALID_FLAGS, "RM_ALLOC: flags 0x%x", p->flags);
  else
    p->status = nv_rm_object_alloc(c, p->root, p->parent, &p->object, p->class, p->params);
  return 0;
}
static int free_object(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size) {
  b->free.status = nv_rm_object_free(c, b->free.root, b->free.object);
  return 0;
}
static int control(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size) {
  b->control.status = nv_rm_control_call(c, &b->control);
  return 0;
}
static int dup_object(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size) {
  b->dup.status = nv_rm_object_dup(c, &b->dup);
  return 0;
}

/* ---- memory ---- */

static int alloc_memory(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size) {
  struct rm_alloc_memory *p = &b->alloc_memory.params;
  p->status = nv_rm_memory_import(c, p);
  return 0;
}
static int map_memory(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size) {
  struct rm_map_memory *p = &b->map_memory.params;
  p->status = nv_rm_map_cpu(c, p, b->map_memory.fd);
  return 0;
}
static int unmap_memory(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size) {
  b->unmap_memory.status = nv_rm_unmap_cpu(c, &b->unmap_memory);
  return 0;
}
/* A no-op: this module does not use the address of a client's own mapping. */
static int update_mapping(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size) {
  b->update.status = RM_OK;
  return 0;
}

static int map_dma(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size) {
  struct rm_map_memory_dma_575 before = b->map_dma_575;
  if (size != sizeof before) {
    b->map_dma.status = nv_rm_map_dma(c, &b->map_dma);
    return 0;
  }
  struct rm_map_memory_dma p = {before.client,
                                before.device,
                                before.dma,
                                before.memory,
                                before.offset,
                                before.length,
                                .flags = before.flags,
                                .dma_offset = before.dma_offset};
  b->map_dma_575.status = nv_rm_map_dma(c, &p);
  b->map_dma_575.dma_offset = p.dma_offset;
  return 0;
}
static int unmap_dma(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size) {
  struct rm_unmap_memory_dma_545 before = b->unmap_dma_545;
  if (size != sizeof before) {
    b->unmap_dma.status = nv_rm_unmap_dma(c, &b->unmap_dma);
    return 0;
  }
  struct rm_unmap_memory_dma p = {.client = before.client,
                                  .device = before.device,
                                  .dma = before.dma,
                                  .memory = before.memory,
                                  .flags = before.flags,
                                  .dma_offset = before.dma_offset};
  b->unmap_dma_545.status = nv_rm_unmap_dma(c, &p);
  return 0;
}

/* ---- events ---- */

static int alloc_event(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size) {
  b->os_event.status = nv_rm_os_event_alloc(c, &b->os_event);
  return 0;
}
static int free_event(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size) {
  b->os_event.status = nv_rm_os_event_free(c, &b->os_event);
  return 0;
}
static int event_data(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size) {
  b->event_data.status = nv_rm_event_data(file, &b->event_data);
  return 0;
}

/* ---- calls on the modules ---- */

static int version(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size) {
  struct rm_version *p = &b->version;
  const char *mine = c->m->version;
  bool same = false;
  p->string[sizeof p->string - 1] = 0;
  if (p->cmd == RM_VERSION_STRICT)
    same = !strcmp(p->string, mine);
  else if (p->cmd == RM_VERSION_RELAXED)
    same = strcspn(p->string, ".") == strcspn(mine, ".") && !strncmp(p->string, mine, strcspn(mine, "."));
  else if (p->cmd != RM_VERSION_QUERY)
    return emu_refuse(&c->m->base, -EINVAL, "CHECK_VERSION_STR: cmd 0x%x", p->cmd);
  p->reply = 1;
  if (same) return 0;
  if (p->cmd != RM_VERSION_QUERY)
    emu_refuse(&c->m->base, 0, "CHECK_VERSION_STR: the client is of driver %s, the module of %s", p->string, mine);
  snprintf(p->string, sizeof p->string, "%s", mine);
  return p->cmd == RM_VERSION_QUERY ? 0 : -EINVAL;
}

static int register_fd(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size) {
  struct nv_machine *m = file->machine;
  if (file->ctl) return emu_refuse(&m->base, -EINVAL, "REGISTER_FD: this descriptor is registered already");
  struct nv_file *ctl = nv_file_get(m, b->register_fd.ctl_fd);
  if (!ctl || ctl->kind != NV_FILE_CTL) {
    if (ctl) nv_file_put(ctl);
    return emu_refuse(&m->base, -EINVAL, "REGISTER_FD: descriptor %d is not one of " RM_CTL_DEVICE,
                      b->register_fd.ctl_fd);
  }
  file->ctl = ctl; /* the file keeps the reference */
  return 0;
}

static int sys_params(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size) {
  b->sys_params.memblock_size = 128 << 20;
  return 0;
}
static int status_code(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size) {
  const struct nv_gpu *gpu = nv_gpu_of_id(c->m, b->status_code.domain << 16 | (uint32_t)b->status_code.bus << 8);
  b->status_code.status =
      gpu ? RM_OK : RM_REFUSE(c->m, RM_OBJECT_NOT_FOUND, "STATUS_CODE: no GPU at bus 0x%x", b->status_code.bus);
  return gpu ? 0 : -EINVAL;
}
static int wait_open(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size) {
  b->wait_open = (struct rm_wait_open_complete){0};
  return 0;
}

/* ---- calls whose structure length the caller chooses ---- */

static int card_info(struct nv_machine *m, uint64_t arg, uint32_t size) {
  struct rm_card_info cards[64] = {0};
  uint32_t n = size / sizeof cards[0];
  if (!n || size % sizeof cards[0] || n > 64 || n < m->ngpus)
    return emu_refuse(&m->base, -EINVAL, "CARD_INFO: %u bytes for %u GPUs", size, m->ngpus);
  for (unsigned i = 0; i < m->ngpus; i++) {
    const struct nv_gpu *g = &m->gpus[i];
    cards[i] = (struct rm_card_info){
        .valid = 1,
        .pci_info = {.bus = g->bus, .vendor_id = 0x10de, .device_id = (uint16_t)g->model->pci_device},
        .gpu_id = g->gpu_id,
        .interrupt_line = (uint16_t)(64 + i),
        .reg_address = 0xb0000000ull + ((uint64_t)i << 25),
        .reg_size = 1 << 24,
        .fb_address = (uint64_t)(i + 1) << 38,
        .fb_size = 1ull << (64 - __builtin_clzll(g->model->vram_bytes - 1)),
        .minor = g->minor,
    };
  }
  return user_write(arg, cards, size) ? emu_refuse(&m->base, -EFAULT, "CARD_INFO: 0x%" PRIx64, arg) : 0;
}

static int attach_gpus(struct nv_machine *m, uint64_t arg, uint32_t size) {
  uint32_t ids[NV_MAX_GPUS];
  if (!size || size % sizeof ids[0] || size > sizeof ids)
    return emu_refuse(&m->base, -EINVAL, "ATTACH_GPUS_TO_FD: %u bytes", size);
  if (user_read(ids, arg, size)) return emu_refuse(&m->base, -EFAULT, "ATTACH_GPUS_TO_FD: 0x%" PRIx64, arg);
  for (uint32_t i = 0; i < size / sizeof ids[0]; i++) {
    struct nv_gpu *gpu = nv_gpu_of_id(m, ids[i]);
    if (ids[i] && !gpu) return emu_refuse(&m->base, -EINVAL, "ATTACH_GPUS_TO_FD: no GPU 0x%x", ids[i]);
    if (gpu) gpu->attached = true;
  }
  return 0;
}

/* ---- the table ---- */

#define VARYING(member) 0, offsetof(struct rm_branch, member)
static const struct escape {
  uint8_t nr, on;
  uint16_t size, branch, other; /* other: a second valid size */
  unsigned since;               /* first driver branch that has it */
  const char *name;
  int (*handler)(struct rm_call *c, struct nv_file *file, union body *b, uint32_t size);
} escapes[] = {
    {RM_NR_ALLOC_MEMORY, ON_GPU, sizeof(struct rm_alloc_memory_fd), 0, 0, 0, "RM_ALLOC_MEMORY", alloc_memory},
    {RM_NR_FREE, ON_CTL, sizeof(struct rm_free), 0, 0, 0, "RM_FREE", free_object},
    {RM_NR_CONTROL, ON_CTL, sizeof(struct rm_control), 0, 0, 0, "RM_CONTROL", control},
    {RM_NR_ALLOC, ON_ANY, sizeof(struct rm_alloc), 0, sizeof(struct rm_alloc_short), 0, "RM_ALLOC", alloc},
    {RM_NR_DUP_OBJECT, ON_CTL, sizeof(struct rm_dup_object), 0, 0, 0, "RM_DUP_OBJECT", dup_object},
    {RM_NR_MAP_MEMORY, ON_CTL, sizeof(struct rm_map_memory_fd), 0, 0, 0, "RM_MAP_MEMORY", map_memory},
    {RM_NR_UNMAP_MEMORY, ON_CTL, sizeof(struct rm_unmap_memory), 0, 0, 0, "RM_UNMAP_MEMORY", unmap_memory},
    {RM_NR_GET_EVENT_DATA, ON_ANY, sizeof(struct rm_get_event_data), 0, 0, 0, "RM_GET_EVENT_DATA", event_data},
    {RM_NR_MAP_MEMORY_DMA, ON_CTL, VARYING(map_memory_dma), 0, 0, "RM_MAP_MEMORY_DMA", map_dma},
    {RM_NR_UNMAP_MEMORY_DMA, ON_CTL, VARYING(unmap_memory_dma), 0, 0, "RM_UNMAP_MEMORY_DMA", unmap_dma},
    {RM_NR_UPDATE_MAPPING, ON_CTL, sizeof(struct rm_update_mapping), 0, 0, 0, "RM_UPDATE_DEVICE_MAPPING_INFO",
     update_mapping},
    {RM_NR_REGISTER_FD, ON_GPU, sizeof(struct rm_register_fd), 0, 0, 0, "REGISTER_FD", register_fd},
    {RM_NR_ALLOC_OS_EVENT, ON_ANY, sizeof(struct rm_os_event), 0, 0, 0, "ALLOC_OS_EVENT", alloc_event},
    {RM_NR_FREE_OS_EVENT, ON_ANY, sizeof(struct rm_os_event), 0, 0, 0, "FREE_OS_EVENT", free_event},
    {RM_NR_STATUS_CODE, ON_CTL, sizeof(struct rm_status_code), 0, 0, 0, "STATUS_CODE", status_code},
    {RM_NR_VERSION, ON_CTL, sizeof(struct rm_version), 0, 0, 0, "CHECK_VERSION_STR", version},
    {RM_NR_SYS_PARAMS, ON_CTL, sizeof(struct rm_sys_params), 0, 0, 0, "SYS_PARAMS", sys_params},
    {RM_NR_WAIT_OPEN_COMPLETE, ON_GPU, sizeof(struct rm_wait_open_complete), 0, 0, 550, "WAIT_OPEN_COMPLETE",
     wait_open},
};

static int run(struct nv_file *file, const struct escape *e, uint32_t size, uint64_t arg) {
  struct nv_machine *m = file->machine;
  struct rm_call c = {m, file->kind == NV_FILE_CTL ? file : file->ctl};
  union body body;
  memset(&body, 0, sizeof body);
  if (user_read(&body, arg, size)) return emu_refuse(&m->base, -EFAULT, "%s: argument at 0x%" PRIx64, e->name, arg);
  int rc = e->handler(&c, file, &body, size);
  if (user_write(arg, &body, size)) return emu_refuse(&m->base, -EFAULT, "%s: argument at 0x%" PRIx64, e->name, arg);
  return rc;
}

static int dispatch(struct nv_file *file, uint32_t nr, uint32_t size, uint64_t arg) {
  struct nv_machine *m = file->machine;
  unsigned on = file->kind == NV_FILE_CTL ? ON_CTL : ON_GPU;
  if (nr == RM_NR_CARD_INFO && on == ON_CTL) return card_info(m, arg, size);
  if (nr == RM_NR_ATTACH_GPUS && on == ON_CTL) return attach_gpus(m, arg, size);
  for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++) {
    const struct escape *e = &escapes[i];
    if (e->nr != nr || m->branch.major < e->since) continue;
    uint32_t mine = nv_branch_size(m, e->size, e->branch);
    if (!(e->on & on))
      return emu_refuse(&m->base, -EINVAL, "%s is not a call of %s", e->name,
                        on == ON_CTL ? RM_CTL_DEVICE : "a GPU's node");
    if (size != mine && (!e->other || size != e->other))
      return emu_refuse(&m->base, -EINVAL, "%s: %u bytes; the structure of driver %s has %u", e->name, size, m->version,
                        mine);
    return run(file, e, size, arg);
  }
  return emu_refuse(&m->base, -EINVAL, "%s has no ioctl number 0x%x", on == ON_CTL ? RM_CTL_DEVICE : "a GPU's node",
                    nr);
}

int nv_rm_ioctl(struct nv_file *file, unsigned long request, void *arg) {
  struct nv_machine *m = file->machine;
  uint32_t nr = RM_IO_NR(request), size = RM_IO_SIZE(request);
  uint64_t at = (uintptr_t)arg;
  if (RM_IO_TYPE(request) != RM_IO_MAGIC)
    return emu_refuse(&m->base, -EINVAL, "request 0x%lx is not one of this driver", request);
  if (nr == RM_NR_XFER) {
    struct rm_xfer x;
    if (size != sizeof x) return emu_refuse(&m->base, -EINVAL, "IOCTL_XFER_CMD: %u bytes", size);
    if (user_read(&x, at, sizeof x)) return emu_refuse(&m->base, -EFAULT, "IOCTL_XFER_CMD: argument at 0x%" PRIx64, at);
    if (x.size > BODY_MAX || x.cmd > 0xff || x.cmd == RM_NR_XFER)
      return emu_refuse(&m->base, -EINVAL, "IOCTL_XFER_CMD: cmd %u of %u bytes", x.cmd, x.size);
    nr = x.cmd, size = x.size, at = x.ptr;
  }
  return dispatch(file, nr, size, at);
}
