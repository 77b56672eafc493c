/* A scripted NVIDIA driver: a table of system calls that answers like a machine with H100s under a driver of any
 * branch, fails where a test says so, and checks the requests. A thread executes host semaphores and nothing else. The
 * script replaces the emulated machines. */
#ifndef NV_SCRIPT_H
#define NV_SCRIPT_H
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <cmocka.h>
#include "hcq/nv/methods.h"
#include "hcq/nv/rm_wire.h"
#include "hcq/os.h"

enum { FD_BASE = 100, FDS = 64, OBJECTS = 512, RANGES = 512, PTIMER_AHEAD = 5000 };

struct script_object { /* handle: index + HANDLE_BASE, or chosen by the caller */
  uint32_t handle, parent, class;
  struct rm_memory_alloc memory; /* as requested */
  struct rm_channel_alloc channel;
  struct rm_channel_group_alloc group;
  uint8_t *host;
  bool registered, scheduled;
  uint32_t token, get;
};

static struct {
  /* set by the test */
  const char *version; /* NULL: the version query fails */
  const char *proc_version;
  bool no_version_control;
  int fail_call;                                  /* the fallible call that fails, counted from 1 */
  int fail_with;                                  /* a negative errno, or an RM status if the call has one */
  uint32_t fail_class, fail_command, fail_status; /* the same for a class, a control or a UVM command */
  uint32_t fail_free;                             /* freeing objects of this class fails with TIMEOUT */
  const char *missing;                            /* opening this path fails */
  int gpus;
  const uint32_t *classes;
  uint32_t mig, cc, action, warps;
  _Atomic bool hang; /* channels do nothing */
  const char *log;
  bool no_events; /* the driver has no events */
  struct rm_mmu_fault_info fault;
  struct rm_sm_error_state sm_error;
  uint32_t error_sm;
  /* observed by the script */
  struct rm_branch branch;
  int calls, open_fds, reservations;
  uint32_t clocks[RM_CLOCK_CLIENTS]; /* what each client asks for */
  struct {
    enum { CLOSED, CTL, GPU, UVM } kind;
    unsigned minor;
    bool linked, has_event;
    uint32_t mapping; /* the memory object that may be mapped through it */
  } fds[FDS];
  struct script_object objects[OBJECTS];
  struct {
    uint64_t base, size;
    uint32_t memory;
    unsigned gpus; /* bit mask of the GPUs that map it */
  } ranges[RANGES];
  bool uvm_ready, uvm_gpu[4], uvm_vaspace[4];
  int peers_enabled;
  int unscheduled;
  atomic_int polls;  /* number of calls of poll */
  atomic_int events; /* number of pending events */
  struct rm_event_alloc listener;
  bool notifies;
  uint32_t page[RM_USERMODE_SIZE / 4];
  pthread_mutex_t lock;
  pthread_t thread;
  atomic_bool stop;
} k = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const uint32_t script_hopper[] = {0x3e,   0x40,   0x41,   0x70,   0x80,   0x2080, 0xc361, 0xc461,
                                         0xc561, 0xc661, 0xc36f, 0xc46f, 0xc56f, 0xc86f, 0xcbc0, 0xc8b5,
                                         0x9067, 0x90f1, 0xa06c, 0xa140, 0xcb33, 0x83de, 0xdead, 0};

static uint64_t script_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- objects ---- */

static struct script_object *object(uint32_t handle) {
  for (int i = 0; handle && i < OBJECTS; i++)
    if (k.objects[i].handle == handle) return &k.objects[i];
  return NULL;
}
static uint32_t class_of(uint32_t handle) { return object(handle) ? object(handle)->class : 0; }
static struct script_object *script_find(uint32_t class, int skip) {
  for (int i = 0; i < OBJECTS; i++)
    if (k.objects[i].handle && k.objects[i].class == class && !skip--) return &k.objects[i];
  return NULL;
}
static int script_count(uint32_t class) {
  int n = 0;
  for (int i = 0; i < OBJECTS; i++) n += k.objects[i].handle && (!class || k.objects[i].class == class);
  return n;
}
static void object_free(struct script_object *o) {
  uint32_t handle = o->handle;
  *o = (struct script_object){0};
  for (int i = 0; i < OBJECTS; i++)
    if (k.objects[i].handle && k.objects[i].parent == handle) object_free(&k.objects[i]);
}
static unsigned gpu_of(uint32_t handle) { /* the parent of a device object is the client */
  while (object(handle) && class_of(handle) != RM_CLASS_DEVICE) handle = object(handle)->parent;
  return object(handle) ? object(handle)->get : 0;
}

static uint32_t parent_wanted(uint32_t class) {
  switch (class) {
  case RM_CLASS_CLIENT: return 0;
  case RM_CLASS_DEVICE:
  case RM_CLASS_CONFIDENTIAL_COMPUTE: return RM_CLASS_CLIENT;
  case RM_CLASS_EVENT_OS:
  case RM_CLASS_PROFILER:
  case RM_CLASS_USERMODE_HOPPER: return RM_CLASS_SUBDEVICE;
  case RM_CLASS_CTXSHARE:
  case RM_CLASS_GPFIFO_HOPPER: return RM_CLASS_CHANNEL_GROUP;
  case RM_CLASS_COMPUTE_HOPPER:
  case RM_CLASS_COPY_HOPPER: return RM_CLASS_GPFIFO_HOPPER;
  case RM_CLASS_SUBDEVICE:
  case RM_CLASS_MEMORY_LOCAL:
  case RM_CLASS_MEMORY_SYSTEM:
  case RM_CLASS_OS_DESCRIPTOR:
  case RM_CLASS_VASPACE:
  case RM_CLASS_CHANNEL_GROUP:
  case RM_CLASS_DEBUGGER: return RM_CLASS_DEVICE;
  default: return UINT32_MAX;
  }
}

static uint32_t object_new(uint32_t parent, uint32_t class, const void *params, uint32_t *handle) {
  if (class == k.fail_class) return k.fail_status;
  if (parent_wanted(class) == UINT32_MAX) return RM_INVALID_CLASS;
  if (class_of(parent) != parent_wanted(class)) return RM_INVALID_OBJECT_PARENT;
  if (*handle && object(*handle)) return RM_INSERT_DUPLICATE_NAME;
  int at = 0;
  while (at < OBJECTS && k.objects[at].handle) at++;
  assert_in_range(at, 0, OBJECTS - 1);
  struct script_object *o = &k.objects[at];
  *o = (struct script_object){
      .handle = *handle ? *handle : 0xcaf00000u + (uint32_t)at, .parent = parent, .class = class};
  *handle = o->handle;
  switch (class) {
  case RM_CLASS_EVENT_OS: {
    const struct rm_event_alloc *e = params;
    assert_int_equal(class_of(e->parent_client), RM_CLASS_CLIENT);
    assert_int_equal(e->src_resource, parent);
    assert_int_equal(e->class, RM_CLASS_EVENT_OS);
    assert_int_equal(e->notify_index, 37);
    if (!k.fds[e->data - FD_BASE].has_event) return o->handle = 0, RM_INVALID_ARGUMENT;
    k.listener = *e;
    break;
  }
  case RM_CLASS_DEVICE: o->get = ((const struct rm_device_alloc *)params)->device_id; break;
  case RM_CLASS_MEMORY_LOCAL:
  case RM_CLASS_MEMORY_SYSTEM:
    memcpy(&o->memory, params, k.branch.memory_alloc);
    if (!o->memory.size || o->memory.size % o->memory.alignment) return o->handle = 0, RM_INVALID_ARGUMENT;
    break;
  case RM_CLASS_VASPACE: {
    const struct rm_vaspace_alloc *a = params;
    assert_int_equal(a->flags, RM_VASPACE_EXTERNALLY_OWNED | RM_VASPACE_PAGE_FAULTING);
    break;
  }
  case RM_CLASS_CHANNEL_GROUP:
    memcpy(&o->group, params, sizeof o->group);
    assert_int_equal(class_of(o->group.va_space), RM_CLASS_VASPACE);
    break;
  case RM_CLASS_CTXSHARE:
    assert_int_equal(class_of(((const struct rm_ctxshare_alloc *)params)->va_space), RM_CLASS_VASPACE);
    break;
  case RM_CLASS_GPFIFO_HOPPER: {
    memcpy(&o->channel, params, k.branch.channel_alloc);
    const struct rm_channel_alloc *c = &o->channel;
    assert_int_equal(c->va_space, 0);
    assert_int_equal(c->gpfifo_entries & (c->gpfifo_entries - 1), 0);
    assert_int_equal(class_of(c->error_memory), RM_CLASS_MEMORY_SYSTEM);
    assert_int_equal(c->userd_offset[0] % 512, 0);
    assert_non_null(object(c->userd_memory[0]));
    assert_int_equal(c->engine_type, object(parent)->group.engine_type);
    o->token = RM_TOKEN(at, c->engine_type);
    break;
  }
  case RM_CLASS_COPY_HOPPER: {
    const struct rm_copy_alloc *a = params;
    assert_int_equal(a->version, RM_COPY_ALLOC_ENGINE);
    assert_int_equal(a->engine_type, object(parent)->channel.engine_type);
    break;
  }
  }
  return RM_OK;
}

/* ---- controls ---- */

static uint32_t fill(struct rm_info *list, uint32_t n) {
  static const struct rm_info known[] = {
      {RM_GR_SM_VERSION, 0x900}, {RM_GR_MAX_WARPS_PER_SM, 64}, {RM_GR_GPCS, 8},
      {RM_GR_TPCS_PER_GPC, 9},   {RM_GR_SMS_PER_TPC, 2},
  };
  for (uint32_t i = 0; i < n; i++)
    for (size_t j = 0; j < sizeof known / sizeof *known; j++)
      if (list[i].index == known[j].index) list[i].data = known[j].data;
  for (uint32_t i = 0; i < n; i++)
    if (list[i].index == RM_GR_MAX_WARPS_PER_SM && k.warps) list[i].data = k.warps - 1;
  return RM_OK;
}

#define IS(kind, bytes)                                                                                                \
  if (class_of(c->object) != (uint32_t)(kind)) return RM_INVALID_COMMAND;                                              \
  if (c->params_size != (bytes)) return RM_INVALID_ARGUMENT

/* Controls of channels, groups and debuggers. */
static uint32_t channel_control(const struct rm_control *c, void *p) {
  switch (c->cmd) {
  case RM_CTRL_WORK_SUBMIT_TOKEN:
    IS(RM_CLASS_GPFIFO_HOPPER, sizeof(struct rm_work_submit_token));
    ((struct rm_work_submit_token *)p)->token = object(c->object)->token;
    return RM_OK;
  case RM_CTRL_EVENT_SET_NOTIFICATION: {
    const struct rm_event_set_notification *a = p;
    IS(RM_CLASS_SUBDEVICE, sizeof *a);
    if (a->event != 37 || a->action != 2) return RM_INVALID_ARGUMENT;
    k.notifies = true;
    return RM_OK;
  }
  case RM_CTRL_GROUP_SCHEDULE: {
    const struct rm_gpfifo_schedule *a = p;
    IS(RM_CLASS_CHANNEL_GROUP, k.branch.gpfifo_schedule);
    for (int i = 0; i < OBJECTS; i++) {
      struct script_object *o = &k.objects[i];
      if (!o->handle || o->parent != c->object || o->class != RM_CLASS_GPFIFO_HOPPER) continue;
      if (a->enable && !o->registered) return RM_INVALID_STATE;
      o->scheduled = a->enable;
      k.unscheduled += !a->enable;
    }
    return RM_OK;
  }
  case RM_CTRL_MMU_FAULT_INFO:
    IS(RM_CLASS_GPFIFO_HOPPER, sizeof k.fault);
    memcpy(p, &k.fault, sizeof k.fault);
    return RM_OK;
  case RM_CTRL_SM_ERROR_STATES: {
    struct rm_sm_error_states *a = p;
    IS(RM_CLASS_DEBUGGER, sizeof *a);
    assert_int_equal(class_of(a->target_channel), RM_CLASS_GPFIFO_HOPPER);
    assert_in_range(a->num_sms, 1, 100);
    if (k.error_sm >= a->starting_sm && k.error_sm < a->starting_sm + a->num_sms)
      a->states[k.error_sm - a->starting_sm] = k.sm_error;
    return RM_OK;
  }
  case RM_CTRL_RATED_TDP_SET:
    IS(RM_CLASS_SUBDEVICE, k.branch.rated_tdp);
    k.clocks[((struct rm_rated_tdp *)p)->client] = ((struct rm_rated_tdp *)p)->action;
    return RM_OK;
  case RM_CTRL_CC_CAPABILITIES:
    IS(RM_CLASS_CONFIDENTIAL_COMPUTE, k.branch.cc_capabilities);
    ((struct rm_cc_capabilities *)p)->cc_feature = (uint8_t)k.cc;
    return RM_OK;
  }
  fail_msg("unexpected control 0x%x", c->cmd);
  return RM_INVALID_COMMAND;
}

/* Queries of the machine and its GPUs. */
static uint32_t query_control(const struct rm_control *c, void *p) {
  switch (c->cmd) {
  case RM_CTRL_BUILD_VERSION:
    IS(RM_CLASS_CLIENT, k.branch.build_version);
    if (k.no_version_control) return RM_NOT_SUPPORTED;
    snprintf(p, 256, "%u.99.1", k.branch.major);
    return RM_OK;
  case RM_CTRL_GPU_ID_INFO: {
    struct rm_gpu_id_info *a = p;
    IS(RM_CLASS_CLIENT, sizeof *a);
    if (a->gpu_id < 0x100 || a->gpu_id >= 0x100 + (uint32_t)k.gpus) return RM_INVALID_ARGUMENT;
    a->device_instance = a->gpu_id - 0x100;
    return RM_OK;
  }
  case RM_CTRL_CLASS_LIST: {
    struct rm_class_list *a = p;
    IS(RM_CLASS_DEVICE, sizeof *a);
    uint32_t n = 0, *list = (uint32_t *)(uintptr_t)a->list;
    while (k.classes[n]) n++;
    if (list && a->count < n) return RM_INVALID_PARAM_STRUCT;
    for (uint32_t i = 0; list && i < n; i++) list[i] = k.classes[i];
    a->count = n;
    return RM_OK;
  }
  case RM_CTRL_GID_INFO: {
    struct rm_gid_info *a = p;
    IS(RM_CLASS_SUBDEVICE, sizeof *a);
    a->length = 16;
    memset(a->data, 0xa0 + (int)gpu_of(c->object), 16);
    return RM_OK;
  }
  case RM_CTRL_RECOVERY_ACTION:
    IS(RM_CLASS_SUBDEVICE, sizeof(struct rm_recovery_action));
    ((struct rm_recovery_action *)p)->action = k.action;
    return RM_OK;
  case RM_CTRL_GPU_INFO_V2:
    IS(RM_CLASS_SUBDEVICE, k.branch.gpu_info_v2);
    ((struct rm_gpu_info_v2 *)p)->list[0].data = k.mig;
    return RM_OK;
  case RM_CTRL_NAME_STRING:
    IS(RM_CLASS_SUBDEVICE, k.branch.name_string);
    strcpy(((struct rm_name_string *)p)->ascii, "NVIDIA Scripted");
    return RM_OK;
  case RM_CTRL_TIMER_TIME:
    IS(RM_CLASS_SUBDEVICE, sizeof(struct rm_timer_time));
    ((struct rm_timer_time *)p)->ns = script_ns() + PTIMER_AHEAD;
    return RM_OK;
  case RM_CTRL_GR_INFO: {
    struct rm_gr_info *a = p;
    IS(RM_CLASS_SUBDEVICE, sizeof *a);
    return fill((struct rm_info *)(uintptr_t)a->list, a->count);
  }
  case RM_CTRL_FB_INFO: {
    struct rm_fb_info *a = p;
    IS(RM_CLASS_SUBDEVICE, sizeof *a);
    struct rm_info *list = (struct rm_info *)(uintptr_t)a->list;
    list[0].data = list[0].index == RM_FB_HEAP_FREE ? 4321 : 80u << 20;
    return RM_OK;
  }
  case RM_CTRL_GPC_MASK:
    IS(RM_CLASS_SUBDEVICE, sizeof(struct rm_gpc_mask));
    ((struct rm_gpc_mask *)p)->gpc_mask = 0xfe;
    return RM_OK;
  case RM_CTRL_TPC_MASK:
    IS(RM_CLASS_SUBDEVICE, sizeof(struct rm_tpc_mask));
    ((struct rm_tpc_mask *)p)->tpc_mask = ((struct rm_tpc_mask *)p)->gpc_id == 1 ? 0xff : 0x1ff;
    return RM_OK;
  case RM_CTRL_CE_CAPS: {
    static const uint8_t caps[] = {RM_CE_GRCE, 0, RM_CE_GRCE, RM_CE_SYSMEM, RM_CE_SYSMEM};
    IS(RM_CLASS_SUBDEVICE, k.branch.ce_caps);
    uint64_t present = 0x1d; /* engine 1 is missing */
    for (int i = 0; i < 5; i++) ((uint8_t *)p)[2 * i] = caps[i];
    memcpy((uint8_t *)p + (c->params_size == 68 ? 64 : 128), &present, c->params_size == 68 ? 4 : 8);
    return RM_OK;
  }
  }
  return channel_control(c, p);
}
#undef IS

static uint32_t control(const struct rm_control *c) {
  if (c->cmd == k.fail_command) return k.fail_status;
  if (!object(c->object)) return RM_INVALID_OBJECT_HANDLE;
  return query_control(c, (void *)(uintptr_t)c->params);
}

/* ---- UVM ---- */

static int uuid_gpu(const struct uvm_uuid *u) {
  int gpu = u->bytes[0] - 0xa0;
  assert_in_range(gpu, 0, 3);
  for (int i = 0; i < 16; i++) assert_int_equal(u->bytes[i], 0xa0 + gpu);
  return gpu;
}

static uint32_t range_at(uint64_t base, uint64_t size, int *at) {
  for (*at = 0; *at < RANGES; ++*at)
    if (k.ranges[*at].size && k.ranges[*at].base == base) return !size || k.ranges[*at].size == size ? 0 : 1;
  return RM_OBJECT_NOT_FOUND;
}

static uint32_t range_new(uint64_t base, uint64_t size) {
  int at = -1;
  if (base % 4096 || size % 4096 || !size) return RM_INVALID_ADDRESS;
  for (int i = 0; i < RANGES; i++) {
    if (!k.ranges[i].size && at < 0) at = i;
    if (k.ranges[i].size && base < k.ranges[i].base + k.ranges[i].size && k.ranges[i].base < base + size)
      return RM_UVM_ADDRESS_IN_USE;
  }
  k.ranges[at].base = base;
  k.ranges[at].size = size;
  k.ranges[at].memory = 0;
  k.ranges[at].gpus = 0;
  return RM_OK;
}

static uint32_t range_map(uint64_t base, uint64_t size, uint64_t gpus, const struct uvm_mapping *map, uint32_t memory) {
  int at;
  if (range_at(base, size, &at)) return RM_INVALID_ADDRESS;
  assert_int_equal(gpus, 1);
  const struct script_object *o = object(memory);
  assert_non_null(o);
  int gpu = uuid_gpu(&map->uuid);
  if (!k.uvm_vaspace[gpu]) return RM_INVALID_DEVICE;
  if (o->class == RM_CLASS_MEMORY_LOCAL) {
    assert_int_equal(base % o->memory.alignment, 0);
    assert_true(size <= o->memory.size);
    if (gpu != (int)gpu_of(memory) && !k.peers_enabled) return RM_NOT_SUPPORTED;
  }
  k.ranges[at].memory = memory;
  k.ranges[at].gpus |= 1u << gpu;
  return RM_OK;
}

static int uvm_ioctl(uint32_t command, void *arg) {
  uint32_t status = RM_OK;
  bool late = k.branch.major >= 590;
  if (command == k.fail_command) status = k.fail_status;
#define DO(type, member, what)                                                                                         \
  do {                                                                                                                 \
    struct type *a = arg;                                                                                              \
    if (!status) status = (what);                                                                                      \
    a->member = status;                                                                                                \
    return 0;                                                                                                          \
  } while (0)
  if (command != UVM_INITIALIZE && command != UVM_MM_INITIALIZE && !k.uvm_ready) return -EINVAL;
  switch (command) {
  case UVM_INITIALIZE: k.uvm_ready = true; DO(uvm_initialize, status, a->flags & ~3ull ? RM_INVALID_ARGUMENT : RM_OK);
  case UVM_MM_INITIALIZE: DO(uvm_mm_initialize, status, RM_WARN_NOTHING_TO_DO);
  case UVM_REGISTER_GPU: DO(uvm_register_gpu, status, (k.uvm_gpu[uuid_gpu(&a->uuid)] = true, RM_OK));
  case UVM_UNREGISTER_GPU: DO(uvm_unregister_gpu, status, (k.uvm_gpu[uuid_gpu(&a->uuid)] = false, RM_OK));
  case UVM_REGISTER_GPU_VASPACE:
    DO(uvm_register_gpu_vaspace, status,
       !k.uvm_gpu[uuid_gpu(&a->uuid)] || class_of(a->va_space) != RM_CLASS_VASPACE
           ? RM_INVALID_DEVICE
           : (k.uvm_vaspace[uuid_gpu(&a->uuid)] = true, RM_OK));
  case UVM_UNREGISTER_GPU_VASPACE:
    DO(uvm_unregister_gpu_vaspace, status, (k.uvm_vaspace[uuid_gpu(&a->uuid)] = false, RM_OK));
  case UVM_REGISTER_CHANNEL:
    DO(uvm_register_channel, status,
       class_of(a->channel) != RM_CLASS_GPFIFO_HOPPER || a->length < 1 << 20 || a->base % (2 << 20) ||
               a->base + a->length > 1ull << 40
           ? RM_INVALID_ARGUMENT
           : (object(a->channel)->registered = true, RM_OK));
  case UVM_UNREGISTER_CHANNEL:
    if (late) DO(uvm_unregister_channel_590, status, (object(a->channel)->registered = false, RM_OK));
    DO(uvm_unregister_channel, status, (object(a->channel)->registered = false, RM_OK));
  case UVM_CREATE_EXTERNAL_RANGE: DO(uvm_create_external_range, status, range_new(a->base, a->length));
  case UVM_MAP_EXTERNAL_ALLOCATION:
    if (k.branch.major < 550)
      DO(uvm_map_external_allocation_545, status, range_map(a->base, a->length, a->gpu_count, a->gpus, a->memory));
    DO(uvm_map_external_allocation, status, range_map(a->base, a->length, a->gpu_count, a->gpus, a->memory));
  case UVM_FREE: {
    int at;
    uint32_t bad = range_at(*(uint64_t *)arg, late ? 0 : ((struct uvm_free *)arg)->length, &at);
    if (!bad) k.ranges[at].size = 0;
    if (late) DO(uvm_free_590, status, bad ? RM_INVALID_ADDRESS : RM_OK);
    DO(uvm_free, status, bad ? RM_INVALID_ADDRESS : RM_OK);
  }
  case UVM_ENABLE_PEER_ACCESS:
    DO(uvm_peer_access, status,
       uuid_gpu(&a->uuid_a) == uuid_gpu(&a->uuid_b) ? RM_INVALID_DEVICE : (k.peers_enabled++, RM_OK));
  }
  fail_msg("unexpected UVM command %u", command);
  return -EINVAL;
#undef DO
}

/* ---- the table ---- */

static int fallible(void) { return ++k.calls == k.fail_call ? k.fail_with : 0; }

static int script_open(struct os *os, const char *path, int flags) {
  int err = fallible(), at = 0;
  if (err) return err < 0 ? err : -EIO;
  if (k.missing && !strcmp(path, k.missing)) return -ENOENT;
  while (at < FDS && k.fds[at].kind) at++;
  assert_in_range(at, 0, FDS - 1);
  memset(&k.fds[at], 0, sizeof k.fds[at]);
  unsigned minor;
  if (!strcmp(path, "/dev/nvidiactl"))
    k.fds[at].kind = CTL;
  else if (!strcmp(path, "/dev/nvidia-uvm"))
    k.fds[at].kind = UVM;
  else if (sscanf(path, "/dev/nvidia%u", &minor) == 1 && minor >= 3 && minor < 3 + (unsigned)k.gpus)
    k.fds[at].kind = GPU;
  else
    return -ENOENT;
  k.open_fds++;
  return FD_BASE + at;
}

static int script_close(struct os *os, int fd) {
  assert_in_range(fd, FD_BASE, FD_BASE + FDS - 1);
  assert_int_not_equal(k.fds[fd - FD_BASE].kind, CLOSED);
  if (k.fds[fd - FD_BASE].kind == UVM && k.open_fds == 2) k.uvm_ready = false;
  k.fds[fd - FD_BASE].kind = CLOSED;
  k.open_fds--;
  return 0;
}

#define IS(node, bytes)                                                                                                \
  if (!(node) || RM_IO_SIZE(request) != (bytes)) return -EINVAL

static int object_ioctl(int fd, unsigned long request, void *arg) {
  bool ctl = k.fds[fd - FD_BASE].kind == CTL;
  switch (RM_IO_NR(request)) {
  case RM_NR_ALLOC: {
    struct rm_alloc *a = arg;
    IS(ctl, 48);
    a->status = object_new(a->parent, a->class, (void *)(uintptr_t)a->params, &a->object);
    return 0;
  }
  case RM_NR_ALLOC_MEMORY: {
    struct rm_alloc_memory_fd *a = arg;
    IS(!ctl && k.fds[fd - FD_BASE].linked, 56);
    assert_int_equal(a->params.class, RM_CLASS_OS_DESCRIPTOR);
    assert_int_equal(a->params.memory % 4096, 0);
    assert_int_equal((a->params.limit + 1) % 4096, 0);
    assert_int_not_equal(a->params.object, 0);
    a->params.status = object_new(a->params.parent, a->params.class, NULL, &a->params.object);
    return 0;
  }
  case RM_NR_FREE: {
    struct rm_free *a = arg;
    IS(ctl, 16);
    a->status = !object(a->object)                                  ? RM_INVALID_OBJECT_HANDLE
                : class_of(a->object) == k.fail_free && k.fail_free ? RM_TIMEOUT
                                                                    : (object_free(object(a->object)), RM_OK);
    return 0;
  }
  case RM_NR_CONTROL: {
    struct rm_control *a = arg;
    IS(ctl, 32);
    a->status = control(a);
    return 0;
  }
  case RM_NR_MAP_MEMORY: {
    struct rm_map_memory_fd *a = arg;
    IS(ctl, 56);
    struct script_object *o = object(a->params.memory);
    assert_non_null(o);
    bool local = o->class != RM_CLASS_MEMORY_SYSTEM;
    assert_int_equal(k.fds[a->fd - FD_BASE].kind, local ? GPU : CTL);
    assert_int_equal(k.fds[a->fd - FD_BASE].linked, local);
    k.fds[a->fd - FD_BASE].mapping = a->params.memory;
    return 0;
  }
  }
  fail_msg("unexpected request 0x%lx", request);
  return -EINVAL;
}

static int rm_ioctl_of(int fd, unsigned long request, void *arg) {
  bool ctl = k.fds[fd - FD_BASE].kind == CTL;
  if (RM_IO_TYPE(request) != RM_IO_MAGIC) return -EINVAL;
  switch (RM_IO_NR(request)) {
  case RM_NR_VERSION: {
    struct rm_version *v = arg;
    IS(ctl, 72);
    if (!k.version || v->cmd != RM_VERSION_QUERY) return -EINVAL;
    snprintf(v->string, sizeof v->string, "%s", k.version);
    v->reply = 1;
    return 0;
  }
  case RM_NR_CARD_INFO: {
    struct rm_card_info *c = arg;
    IS(ctl, 32 * 72);
    for (int i = 0; i < k.gpus; i++)
      c[2 * i + 1] = (struct rm_card_info){.valid = 1,
                                           .gpu_id = 0x100 + (uint32_t)i,
                                           .minor = 3 + (uint32_t)i,
                                           .pci_info = {.bus = (uint8_t)(0x41 + i), .slot = 2, .device_id = 0x2330}};
    return 0;
  }
  case RM_NR_REGISTER_FD:
    IS(!ctl, 4);
    if (k.fds[((struct rm_register_fd *)arg)->ctl_fd - FD_BASE].kind != CTL || k.fds[fd - FD_BASE].linked)
      return -EINVAL;
    k.fds[fd - FD_BASE].linked = true;
    return 0;
  case RM_NR_ALLOC_OS_EVENT:
  case RM_NR_FREE_OS_EVENT: {
    struct rm_os_event *e = arg;
    bool on = RM_IO_NR(request) == RM_NR_ALLOC_OS_EVENT, *has = &k.fds[fd - FD_BASE].has_event;
    IS(!ctl && k.fds[fd - FD_BASE].linked, 16);
    assert_int_equal(e->fd, fd);
    assert_int_equal(class_of(e->client), RM_CLASS_CLIENT);
    e->status = k.no_events ? RM_NOT_SUPPORTED : *has == on ? RM_INVALID_ARGUMENT : RM_OK;
    if (!e->status) *has = on;
    return 0;
  }
  case RM_NR_GET_EVENT_DATA: {
    struct rm_get_event_data *d = arg;
    IS(!ctl, 16);
    if (!atomic_load(&k.events)) return d->status = RM_GENERIC, 0;
    *(struct rm_event *)(uintptr_t)d->event = (struct rm_event){.notify_index = 37};
    d->more_events = atomic_fetch_sub(&k.events, 1) > 1;
    return 0;
  }
  }
  return object_ioctl(fd, request, arg);
}
#undef IS

/* Stores RM's status in a call's parameters. */
static void fail_status(unsigned long request, void *arg, uint32_t status) {
  switch (RM_IO_NR(request)) {
  case RM_NR_ALLOC: ((struct rm_alloc *)arg)->status = status; break;
  case RM_NR_CONTROL: ((struct rm_control *)arg)->status = status; break;
  case RM_NR_FREE: ((struct rm_free *)arg)->status = status; break;
  case RM_NR_MAP_MEMORY: ((struct rm_map_memory_fd *)arg)->params.status = status; break;
  }
}

static int script_ioctl(struct os *os, int fd, unsigned long request, void *arg) {
  assert_in_range(fd, FD_BASE, FD_BASE + FDS - 1);
  int kind = k.fds[fd - FD_BASE].kind, err = fallible();
  assert_int_not_equal(kind, CLOSED);
  if (err < 0) return err;
  if (err > 0 && kind == CTL) return fail_status(request, arg, (uint32_t)err), 0;
  if (err > 0) return -EIO;
  pthread_mutex_lock(&k.lock);
  int rc = kind == UVM ? uvm_ioctl((uint32_t)request, arg) : rm_ioctl_of(fd, request, arg);
  pthread_mutex_unlock(&k.lock);
  return rc;
}

static void *script_mmap(struct os *os, void *addr, size_t len, int prot, int flags, int fd, off_t off) {
  int err = fallible();
  if (err) return (void *)(intptr_t)(err < 0 ? err : -EIO);
  if (fd < 0 && flags & MAP_FIXED) {
    assert_true(flags & MAP_SHARED && flags & MAP_ANONYMOUS); /* pages that RM can pin */
  } else if (fd < 0) {
    assert_int_equal(prot, PROT_NONE);
    k.reservations++;
  } else {
    struct script_object *o = object(k.fds[fd - FD_BASE].mapping);
    assert_non_null(o);
    assert_int_equal(off, 0);
    assert_true(flags & MAP_SHARED);
    if (o->class == RM_CLASS_USERMODE_HOPPER) {
      assert_int_equal(len, sizeof k.page);
      k.reservations++;
      return k.page;
    }
    assert_true(flags & MAP_FIXED);
    flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    o->host = addr;
  }
  void *p = mmap(addr, len, prot, flags, -1, 0);
  return p == MAP_FAILED ? (void *)(intptr_t)-errno : p;
}

static int script_munmap(struct os *os, void *addr, size_t len) {
  k.reservations--;
  return addr == k.page ? 0 : munmap(addr, len) ? -errno : 0;
}

static int script_poll(struct os *os, int fd, short events, int timeout_ms) {
  assert_true(k.fds[fd - FD_BASE].has_event && k.notifies);
  assert_int_equal(k.listener.data, fd);
  assert_in_range(timeout_ms, 1, 100);
  k.polls++;
  uint64_t end = script_ns() + (uint64_t)timeout_ms * 1000000;
  while (!atomic_load(&k.events) && script_ns() < end) nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  return atomic_load(&k.events) ? events : 0;
}

static ssize_t script_read_file(struct os *os, const char *path, char *buf, size_t cap) {
  const char *text = !strcmp(path, "/proc/driver/nvidia/version")                 ? k.proc_version
                     : !strcmp(path, "/proc/driver/nvidia/gpus/0000:41:02.0/xid") ? k.log
                                                                                  : NULL;
  if (!text) return -ENOENT;
  snprintf(buf, cap, "%s", text);
  return (ssize_t)strlen(text);
}

static int script_list_dir(struct os *os, const char *path, int (*each)(void *ctx, const char *name), void *ctx) {
  return -ENOENT;
}
static void script_release(struct os *os) {}

static struct os script = {script_open, script_close,     script_ioctl,    script_mmap,   script_munmap,
                           script_poll, script_read_file, script_list_dir, script_release};

int os_emulated(const char *vendor, const char *gpus, struct os **out, char *err, size_t errcap) {
  if (strcmp(vendor, "NV") != 0) return -ENODEV;
  *out = &script;
  return 0;
}

/* ---- channels: host semaphore releases ---- */

static void execute(const uint32_t *w, size_t n) {
  uint32_t sem[5] = {0};
  for (size_t i = 0; i < n;) {
    uint32_t header = w[i++], opcode = header >> 29, count = header >> 16 & 0x1fff, method = (header & 0xfff) << 2;
    if (opcode == NV_OPCODE_IMMD) continue;
    for (uint32_t j = 0; j < count && i < n; j++, i++) {
      uint32_t at = opcode == NV_OPCODE_INC ? method + 4 * j : method;
      if (at < NV_HOST_SEM_ADDR_LO || at > NV_HOST_SEM_EXECUTE) continue;
      sem[(at - NV_HOST_SEM_ADDR_LO) / 4] = w[i];
      if (at != NV_HOST_SEM_EXECUTE || (w[i] & 7) != NV_SEM_RELEASE) continue;
      uint64_t *to = (uint64_t *)(uintptr_t)((uint64_t)sem[1] << 32 | sem[0]);
      if (w[i] >> NV_HOST_SEM_EXECUTE_RELEASE_TIMESTAMP_SHIFT & 1) {
        assert_int_equal((uintptr_t)to % 16, 0);
        __atomic_store_n(to + 1, script_ns() + PTIMER_AHEAD, __ATOMIC_RELEASE);
      }
      __atomic_store_n(to, (uint64_t)sem[3] << 32 | sem[2], __ATOMIC_RELEASE);
    }
  }
}

static void *script_run(void *arg) {
  while (!atomic_load(&k.stop)) {
    pthread_mutex_lock(&k.lock);
    for (int i = 0; i < OBJECTS && !k.hang; i++) {
      struct script_object *o = &k.objects[i];
      if (!o->handle || o->class != RM_CLASS_GPFIFO_HOPPER || !o->scheduled) continue;
      struct script_object *fifo = object(o->channel.userd_memory[0]);
      if (!fifo || !fifo->host) continue;
      struct rm_userd *userd = (struct rm_userd *)(fifo->host + o->channel.userd_offset[0]);
      uint32_t put = __atomic_load_n(&userd->gp_put, __ATOMIC_ACQUIRE);
      const uint32_t *ring = (const uint32_t *)(uintptr_t)o->channel.gpfifo_va;
      while (o->get != put) {
        uint64_t va = (ring[2 * o->get] & ~3u) | (uint64_t)(ring[2 * o->get + 1] & 0xff) << 32;
        execute((const uint32_t *)(uintptr_t)va, ring[2 * o->get + 1] >> 10 & 0x1fffff);
        o->get = (o->get + 1) % o->channel.gpfifo_entries;
      }
      __atomic_store_n(&userd->gp_get, o->get, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&k.lock);
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  }
  return NULL;
}

/* Reports an error of a channel in the form in which hardware and driver do. */
static void script_fault(const struct script_object *channel, uint32_t xid) {
  struct rm_notification *n = (struct rm_notification *)object(channel->channel.error_memory)->host;
  n->info32 = xid;
  __atomic_store_n(&n->status, RM_NOTIFICATION_ERROR, __ATOMIC_RELEASE);
}

static int fresh(void **state) {
  assert_int_equal(k.reservations, 0);
  pthread_mutex_lock(&k.lock);
  memset(&k, 0, offsetof(typeof(k), lock));
  k.branch = rm_branch_find(580);
  k.version = "580.82.07";
  k.gpus = 1;
  k.classes = script_hopper;
  pthread_mutex_unlock(&k.lock);
  return 0;
}
static int script_start(void **state) { return pthread_create(&k.thread, NULL, script_run, NULL); }
static int script_stop(void **state) {
  atomic_store(&k.stop, true);
  return pthread_join(k.thread, NULL);
}
#endif
