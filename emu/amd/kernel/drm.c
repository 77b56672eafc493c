/* The render node's ioctls that a compute driver uses: the DRM version, the queries of AMDGPU_INFO, and contexts.
 * Sources: libdrm's drm.h and amdgpu_drm.h, the kernel's user interface. */
#include "process.h"
#include <amdgpu_drm.h>
#include <drm.h>
#include <errno.h>
#include <string.h>

static const char driver_name[] = "amdgpu", driver_date[] = "20150101", driver_desc[] = "AMD GPU";

/* Copies text as DRM_IOCTL_VERSION does: at most the caller's room; *length receives the full length. */
static int copy_text(char *to, __kernel_size_t *length, const char *text) {
  size_t n = strlen(text), room = *length;
  *length = n;
  return to && room && user_write((uintptr_t)to, text, n < room ? n : room) ? -EFAULT : 0;
}

static int version(struct amd_file *file, void *arg) {
  struct drm_version *v = arg;
  v->version_major = 3;
  v->version_minor = 61;
  v->version_patchlevel = 0;
  int rc = copy_text(v->name, &v->name_len, driver_name);
  if (!rc) rc = copy_text(v->date, &v->date_len, driver_date);
  return rc ? rc : copy_text(v->desc, &v->desc_len, driver_desc);
}

enum { INFO_GPUVM_FAULT = 0x23 }; /* newer than the header of Debian 12 */

union info {
  struct {
    uint64_t address;
    uint32_t status, hub;
  } fault; /* drm_amdgpu_info_gpuvm_fault */
  uint32_t u32;
  uint64_t u64;
  struct drm_amdgpu_info_device device;
  struct drm_amdgpu_memory_info memory;
  struct drm_amdgpu_info_vram_gtt vram_gtt;
  struct drm_amdgpu_info_hw_ip ip;
};

static void device_info(const struct amd_gpu *gpu, struct drm_amdgpu_info_device *d) {
  const struct amd_model *m = gpu->model;
  *d = (struct drm_amdgpu_info_device){
      .device_id = m->device_id,
      .external_rev = m->chip_external_rev,
      .pci_rev = 0xc8,
      .family = m->family_id,
      .num_shader_engines = m->shader_engines,
      .num_shader_arrays_per_engine = m->arrays_per_engine,
      .gpu_counter_freq = 100000, /* in kHz */
      .max_engine_clock = (uint64_t)m->engine_mhz * 1000,
      .max_memory_clock = (uint64_t)m->memory_mhz * 1000,
      .cu_active_number = amd_model_cus(m),
      .num_hw_gfx_contexts = 8,
      .virtual_address_offset = 2 << 20,
      .virtual_address_max = 1ull << 47,
      .virtual_address_alignment = AMD_PAGE,
      .pte_fragment_size = 2 << 20,
      .gart_page_size = AMD_PAGE,
      .vram_type = AMDGPU_VRAM_TYPE_GDDR6,
      .vram_bit_width = m->memory_bits,
      .wave_front_size = m->wave_size,
      .num_shader_visible_vgprs = 256,
      .num_cu_per_sh = m->cus_per_array,
      .num_tcc_blocks = m->tcc_blocks,
      .high_va_offset = 0xffff800000000000,
      .high_va_max = 0xffffffffffe00000,
  };
  /* Shader engines 4 and up are in the second half of the rows. */
  for (uint32_t se = 0; se < m->shader_engines; se++)
    for (uint32_t sa = 0; sa < m->arrays_per_engine; sa++)
      d->cu_bitmap[se % 4][sa + 2 * (se / 4)] = (1u << m->cus_per_array) - 1;
}

static bool ip_info(const struct amd_gpu *gpu, unsigned type, unsigned instance, struct drm_amdgpu_info_hw_ip *ip) {
  static const struct {
    uint32_t type, major, minor, rings;
  } blocks[] = {{AMDGPU_HW_IP_GFX, 11, 0, 1}, {AMDGPU_HW_IP_COMPUTE, 11, 0, 4}, {AMDGPU_HW_IP_DMA, 6, 0, 2}};
  for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
    if (blocks[i].type == type && instance == 0) {
      *ip = (struct drm_amdgpu_info_hw_ip){.hw_ip_version_major = blocks[i].major,
                                           .hw_ip_version_minor = blocks[i].minor,
                                           .ib_start_alignment = 32,
                                           .ib_size_alignment = 32,
                                           .available_rings = (1u << blocks[i].rings) - 1};
      return true;
    }
  return false;
}

/* Register fields: Linux amdgpu, gc_11_0_0_sh_mask.h. */
uint32_t amd_fault_status(const struct amd_gpu *gpu, uint64_t *page) {
  enum {
    PERMISSION_READ = 1 << 4,
    PERMISSION_WRITE = 1 << 5,
    PERMISSION_EXECUTE = 1 << 6,
    RW = 1 << 18,
    VMID = 8 << 20
  };
  bool fault = atomic_load(&gpu->faulted) && gpu->fault.kind == FAULT_PAGE;
  unsigned access = gpu->fault.access;
  *page = fault ? gpu->fault.address & ~(uint64_t)(AMD_PAGE - 1) : 0;
  return !fault ? 0
                : VMID | (access & VM_WRITE  ? RW | PERMISSION_WRITE
                          : access & VM_EXEC ? PERMISSION_EXECUTE
                                             : PERMISSION_READ);
}

/* Writes the answer to *out. Returns its size in bytes, or a negative errno. */
static int query(struct amd_gpu *gpu, const struct drm_amdgpu_info *q, union info *out) {
  struct amd_machine *m = gpu->machine;
  uint64_t vram = gpu->vram.size, gtt = m->gtt.size;
  switch (q->query) {
  case AMDGPU_INFO_ACCEL_WORKING: out->u32 = 1; return sizeof out->u32;
  case AMDGPU_INFO_HW_IP_INFO:
    /* The answer for a block that does not exist is all zeros. */
    if (q->query_hw_ip.type >= AMDGPU_HW_IP_NUM) return -EINVAL;
    ip_info(gpu, q->query_hw_ip.type, q->query_hw_ip.ip_instance, &out->ip);
    return sizeof out->ip;
  case AMDGPU_INFO_HW_IP_COUNT: out->u32 = ip_info(gpu, q->query_hw_ip.type, 0, &out->ip); return sizeof out->u32;
  case AMDGPU_INFO_TIMESTAMP: out->u64 = amd_clock(); return sizeof out->u64;
  case AMDGPU_INFO_VRAM_USAGE:
  case AMDGPU_INFO_VIS_VRAM_USAGE: out->u64 = gpu->vram.used; return sizeof out->u64;
  case INFO_GPUVM_FAULT:
    pthread_mutex_lock(&gpu->queues_lock);
    out->fault.status = amd_fault_status(gpu, &out->fault.address);
    pthread_mutex_unlock(&gpu->queues_lock);
    return sizeof out->fault;
  case AMDGPU_INFO_VRAM_LOST_COUNTER:
    pthread_mutex_lock(&gpu->queues_lock);
    out->u32 = atomic_load(&gpu->faulted) && gpu->fault.kind != FAULT_PAGE;
    pthread_mutex_unlock(&gpu->queues_lock);
    return sizeof out->u32;
  case AMDGPU_INFO_GTT_USAGE: out->u64 = m->gtt.used; return sizeof out->u64;
  case AMDGPU_INFO_VRAM_GTT:
    out->vram_gtt = (struct drm_amdgpu_info_vram_gtt){vram, vram, gtt};
    return sizeof out->vram_gtt;
  case AMDGPU_INFO_DEV_INFO: device_info(gpu, &out->device); return sizeof out->device;
  case AMDGPU_INFO_MEMORY: {
    struct drm_amdgpu_heap_info v = {vram, vram, gpu->vram.used, vram / 4 * 3},
                                g = {gtt, gtt, m->gtt.used, gtt / 4 * 3};
    out->memory = (struct drm_amdgpu_memory_info){.vram = v, .cpu_accessible_vram = v, .gtt = g};
    return sizeof out->memory;
  }
  case AMDGPU_INFO_SENSOR:
    switch (q->sensor_info.type) {
    case AMDGPU_INFO_SENSOR_GFX_SCLK:
    case AMDGPU_INFO_SENSOR_STABLE_PSTATE_GFX_SCLK: out->u32 = gpu->model->engine_mhz; return sizeof out->u32;
    case AMDGPU_INFO_SENSOR_GFX_MCLK:
    case AMDGPU_INFO_SENSOR_STABLE_PSTATE_GFX_MCLK: out->u32 = gpu->model->memory_mhz; return sizeof out->u32;
    default: return -EOPNOTSUPP;
    }
  default: return -EINVAL;
  }
}

static int info(struct amd_file *file, void *arg) {
  struct amd_gpu *gpu = file->gpu;
  const struct drm_amdgpu_info *q = arg;
  union info answer;
  memset(&answer, 0, sizeof answer);
  int n = query(gpu, q, &answer);
  if (n < 0) return emu_refuse(&gpu->machine->base, n, "AMDGPU_INFO: query 0x%x", q->query);
  if (q->return_size < (uint32_t)n) n = (int)q->return_size;
  return user_write(q->return_pointer, &answer, (size_t)n);
}

/* Contexts, of which one at a time on a GPU may keep the clocks stable (Linux amdgpu_ctx.c). They do nothing else here,
 * because KFD's queues belong to none. */
enum { MOST_CONTEXTS = 64 }; /* of a file; the kernel allows more */

static bool keeps_stable(const struct amd_file *file, uint32_t id) {
  return file->gpu->stable_file == file && file->gpu->stable == id;
}

static int make_context(struct amd_file *file, union drm_amdgpu_ctx *c) {
  struct emu_machine *m = &file->machine->base;
  if (c->in.flags) return emu_refuse(m, -EINVAL, "AMDGPU_CTX: flags 0x%x", c->in.flags);
  if (!~file->contexts)
    return emu_refuse(m, -ENOMEM, "AMDGPU_CTX: not supported: more than %d contexts of a file", MOST_CONTEXTS);
  unsigned unused = (unsigned)__builtin_ctzll(~file->contexts);
  file->contexts |= UINT64_C(1) << unused;
  c->out.alloc.ctx_id = unused + 1;
  return 0;
}

static int context(struct amd_file *file, void *arg) {
  union drm_amdgpu_ctx *c = arg;
  struct amd_gpu *gpu = file->gpu;
  struct drm_amdgpu_ctx_in in = c->in;
  bool known = in.ctx_id && in.ctx_id <= MOST_CONTEXTS && file->contexts >> (in.ctx_id - 1) & 1;
  switch (in.op) {
  case AMDGPU_CTX_OP_ALLOC_CTX: return make_context(file, c);
  case AMDGPU_CTX_OP_FREE_CTX:
    if (!known) break;
    file->contexts &= ~(UINT64_C(1) << (in.ctx_id - 1));
    if (keeps_stable(file, in.ctx_id)) gpu->stable_file = NULL;
    return 0;
  case AMDGPU_CTX_OP_SET_STABLE_PSTATE:
    if (!known || in.flags > AMDGPU_CTX_STABLE_PSTATE_PEAK) break;
    if (gpu->stable_file && !keeps_stable(file, in.ctx_id))
      return emu_refuse(&gpu->machine->base, -EBUSY, "AMDGPU_CTX: context %u of %s file keeps the clocks stable",
                        gpu->stable, gpu->stable_file == file ? "this" : "another");
    gpu->stable_file = in.flags ? file : NULL;
    gpu->stable = in.ctx_id;
    return 0;
  default: break;
  }
  return emu_refuse(&gpu->machine->base, -EINVAL, "AMDGPU_CTX: operation %u, context %u, flags 0x%x", in.op, in.ctx_id,
                    in.flags);
}

_Static_assert(sizeof(struct drm_version) <= 256 && sizeof(struct drm_amdgpu_info) <= 256, "a copy of the argument");

int amd_drm_ioctl(struct amd_file *file, unsigned long request, void *arg) {
  struct amd_machine *m = file->machine;
  unsigned nr = _IOC_NR(request);
  const struct {
    unsigned nr;
    size_t size;
    int (*handler)(struct amd_file *file, void *arg);
  } calls[] = {{_IOC_NR(DRM_IOCTL_VERSION), sizeof(struct drm_version), version},
               {DRM_COMMAND_BASE + DRM_AMDGPU_INFO, sizeof(struct drm_amdgpu_info), info},
               {DRM_COMMAND_BASE + DRM_AMDGPU_CTX, sizeof(union drm_amdgpu_ctx), context}};
  if (_IOC_TYPE(request) != DRM_IOCTL_BASE)
    return emu_refuse(&m->base, -ENOTTY, "the render node has no ioctl 0x%lx", request);
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
    if (calls[i].nr == nr) {
      if (!arg) return emu_refuse(&m->base, -EFAULT, "render node ioctl 0x%lx: no argument", request);
      if (_IOC_SIZE(request) != calls[i].size)
        return emu_refuse(&m->base, -EINVAL, "render node ioctl 0x%lx: %zu bytes expected", request, calls[i].size);
      uint64_t data[32]; /* the kernel's copy of the argument */
      if (user_read(data, (uintptr_t)arg, calls[i].size))
        return emu_refuse(&m->base, -EFAULT, "render node ioctl 0x%lx: argument %p is not readable", request, arg);
      pthread_mutex_lock(&m->lock);
      int rc = calls[i].handler(file, data);
      pthread_mutex_unlock(&m->lock);
      if (user_write((uintptr_t)arg, data, calls[i].size))
        return emu_refuse(&m->base, -EFAULT, "render node ioctl 0x%lx: argument %p is not writable", request, arg);
      return rc;
    }
  return emu_refuse(&m->base, -EINVAL, "not supported: render node ioctl 0x%lx", request);
}
