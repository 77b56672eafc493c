/* The ioctls of /dev/kfd: a table from number to handler and structure size, and the calls that concern the whole
 * process. As in Linux kfd_chardev.c, only the number selects the handler; the smaller of the two structure sizes is
 * copied and the rest is zero. */
#define _GNU_SOURCE
#include "process.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

static int get_version(struct amd_machine *m, void *arg) {
  *(struct kfd_get_version *)arg = (struct kfd_get_version){KFD_VERSION_MAJOR, KFD_VERSION_MINOR};
  return 0;
}

static int acquire_vm(struct amd_machine *m, void *arg) {
  const struct kfd_acquire_vm *a = arg;
  struct amd_gpu *gpu = amd_gpu_find(m, a->gpu_id);
  struct emu_file *file = emu_file_get(&m->base, (int)a->drm_fd);
  struct amd_file *drm = (struct amd_file *)file;
  int rc = 0;
  if (!file)
    rc = emu_refuse(&m->base, -EINVAL, "ACQUIRE_VM: drm_fd %u is not open", a->drm_fd);
  else if (!gpu)
    rc = emu_refuse(&m->base, -EINVAL, "ACQUIRE_VM: no gpu_id %u", a->gpu_id);
  else if (drm->gpu != gpu)
    rc = emu_refuse(&m->base, -EINVAL, "ACQUIRE_VM: drm_fd %u is not the render node of gpu_id %u", a->drm_fd,
                    a->gpu_id);
  else if (gpu->acquired && gpu->acquired != drm)
    rc = emu_refuse(&m->base, -EBUSY, "ACQUIRE_VM: gpu_id %u has the address space of another open of its render node",
                    a->gpu_id);
  /* The GPU keeps the reference taken above: the address space outlives its descriptor. */
  if (!rc && gpu && !gpu->acquired)
    gpu->acquired = drm;
  else if (file)
    emu_file_put(&m->base, file);
  return rc;
}

static struct kfd_apertures apertures_of(const struct amd_gpu *gpu) {
  return (struct kfd_apertures){
      .lds_base = 0x0001000000000000,
      .lds_limit = 0x00010000ffffffff,
      .scratch_base = 0x0002000000000000,
      .scratch_limit = 0x00020000ffffffff,
      .gpuvm_base = 0x10000,
      .gpuvm_limit = (1ull << 47) - 1,
      .gpu_id = gpu->gpu_id,
  };
}

static int get_process_apertures_new(struct amd_machine *m, void *arg) {
  struct kfd_get_process_apertures_new *a = arg;
  struct kfd_apertures all[AMD_MAX_GPUS];
  if (!a->num_of_nodes) {
    a->num_of_nodes = m->ngpus;
    return 0;
  }
  if (a->num_of_nodes > m->ngpus) a->num_of_nodes = m->ngpus;
  for (unsigned i = 0; i < a->num_of_nodes; i++) all[i] = apertures_of(&m->gpus[i]);
  if (user_write(a->apertures_ptr, all, a->num_of_nodes * sizeof all[0]))
    return emu_refuse(&m->base, -EFAULT, "GET_PROCESS_APERTURES_NEW: apertures_ptr 0x%" PRIx64, a->apertures_ptr);
  return 0;
}

static int set_memory_policy(struct amd_machine *m, void *arg) {
  const struct kfd_set_memory_policy *a = arg;
  if (a->default_policy > 1 || a->alternate_policy > 1)
    return emu_refuse(&m->base, -EINVAL, "SET_MEMORY_POLICY: policies %u, %u", a->default_policy, a->alternate_policy);
  if (!amd_gpu_find(m, a->gpu_id)) return emu_refuse(&m->base, -EINVAL, "SET_MEMORY_POLICY: no gpu_id %u", a->gpu_id);
  return 0;
}

static uint64_t clock_ns(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int get_clock_counters(struct amd_machine *m, void *arg) {
  struct kfd_get_clock_counters *a = arg;
  /* The kernel returns the CPU's clocks even for an unknown GPU. */
  a->gpu_clock_counter = amd_gpu_find(m, a->gpu_id) ? amd_clock() : 0;
  a->cpu_clock_counter = clock_ns(CLOCK_MONOTONIC_RAW);
  a->system_clock_counter = clock_ns(CLOCK_BOOTTIME);
  a->system_clock_freq = 1000000000;
  return 0;
}

static int set_xnack_mode(struct amd_machine *m, void *arg) {
  struct kfd_set_xnack_mode *a = arg;
  if (a->xnack_enabled > 0) return emu_refuse(&m->base, -EPERM, "SET_XNACK_MODE: this GPU does not retry page faults");
  if (a->xnack_enabled == 0)
    for (unsigned i = 0; i < m->ngpus; i++)
      if (m->gpus[i].queues) return emu_refuse(&m->base, -EBUSY, "SET_XNACK_MODE: queues exist");
  a->xnack_enabled = 0;
  return 0;
}

static int runtime_enable(struct amd_machine *m, void *arg) {
  struct kfd_runtime_enable *a = arg;
  bool enable = a->mode_mask & 1;
  if (a->mode_mask & ~3u) return emu_refuse(&m->base, -EINVAL, "RUNTIME_ENABLE: mode_mask 0x%x", a->mode_mask);
  if (enable && m->runtime_enabled) return emu_refuse(&m->base, -EBUSY, "RUNTIME_ENABLE: already enabled");
  m->runtime_enabled = enable;
  a->capabilities_mask = 0;
  return 0;
}

struct kfd_call {
  const char *name;
  int (*handler)(struct amd_machine *m, void *arg);
  uint32_t request; /* the kernel's; its size and direction apply, not the caller's */
  bool unlocked;
};
#define CALL(name, handler) [KFD_NR(KFD_##name)] = {#name, handler, KFD_##name, false}
#define NO_CALL(nr, name)   [nr] = {#name, NULL, 0, false}
static const struct kfd_call calls[] = {
    CALL(GET_VERSION, get_version),
    CALL(CREATE_QUEUE, amd_create_queue),
    CALL(DESTROY_QUEUE, amd_destroy_queue),
    CALL(SET_MEMORY_POLICY, set_memory_policy),
    CALL(GET_CLOCK_COUNTERS, get_clock_counters),
    CALL(UPDATE_QUEUE, amd_update_queue),
    CALL(CREATE_EVENT, amd_create_event),
    CALL(DESTROY_EVENT, amd_destroy_event),
    CALL(SET_EVENT, amd_set_event),
    CALL(RESET_EVENT, amd_reset_event),
    [KFD_NR(KFD_WAIT_EVENTS)] = {"WAIT_EVENTS", amd_wait_events, KFD_WAIT_EVENTS, true},
    CALL(GET_PROCESS_APERTURES_NEW, get_process_apertures_new),
    CALL(ACQUIRE_VM, acquire_vm),
    CALL(ALLOC_MEMORY, amd_alloc_memory),
    CALL(FREE_MEMORY, amd_free_memory),
    CALL(MAP_MEMORY, amd_map_memory),
    CALL(UNMAP_MEMORY, amd_unmap_memory),
    CALL(SET_XNACK_MODE, set_xnack_mode),
    CALL(AVAILABLE_MEMORY, amd_available_memory),
    CALL(RUNTIME_ENABLE, runtime_enable),
    NO_CALL(0x06, GET_PROCESS_APERTURES),
    NO_CALL(0x11, SET_SCRATCH_BACKING_VA),
    NO_CALL(0x13, SET_TRAP_HANDLER),
    NO_CALL(0x1a, SET_CU_MASK),
    NO_CALL(0x1b, GET_QUEUE_WAVE_STATE),
    NO_CALL(0x1c, GET_DMABUF_INFO),
    NO_CALL(0x1d, IMPORT_DMABUF),
    NO_CALL(0x1e, ALLOC_QUEUE_GWS),
    NO_CALL(0x1f, SMI_EVENTS),
    NO_CALL(0x20, SVM),
    NO_CALL(0x22, CRIU_OP),
    NO_CALL(0x24, EXPORT_DMABUF),
    NO_CALL(0x26, DBG_TRAP),
};

int amd_kfd_ioctl(struct amd_machine *m, unsigned long request, void *arg) {
  unsigned nr = KFD_NR(request);
  uint64_t data[16] = {0};
  if (_IOC_TYPE(request) != 'K' || nr >= sizeof calls / sizeof calls[0] || !calls[nr].name)
    return emu_refuse(&m->base, -ENOTTY, "/dev/kfd has no ioctl 0x%lx", request);
  const struct kfd_call *call = &calls[nr];
  if (!call->handler) return emu_refuse(&m->base, -EOPNOTSUPP, "not supported: KFD ioctl %s", call->name);
  size_t mine = _IOC_SIZE(call->request), user = _IOC_SIZE(request), n = user < mine ? user : mine;
  if (!arg) return emu_refuse(&m->base, -EFAULT, "%s: no argument", call->name);
  if (_IOC_DIR(call->request) & _IOC_WRITE && user_read(data, (uintptr_t)arg, n))
    return emu_refuse(&m->base, -EFAULT, "%s: argument %p is not readable", call->name, arg);
  if (!call->unlocked) pthread_mutex_lock(&m->lock);
  int rc = call->handler(m, data);
  if (!call->unlocked) pthread_mutex_unlock(&m->lock);
  if (!(_IOC_DIR(call->request) & _IOC_READ)) return rc;
  static const uint8_t zeros[1 << _IOC_SIZEBITS];
  if (user_write((uintptr_t)arg, data, n) || user_write((uintptr_t)arg + n, zeros, user - n))
    return emu_refuse(&m->base, -EFAULT, "%s: argument %p is not writable", call->name, arg);
  return rc;
}
