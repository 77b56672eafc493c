/* The structures that the drivers' ioctls point to, and the names of their fields. */
#include "trace.h"
#include "../amd/kfd.h"
#include "../nv/rm_wire.h"
#include <amdgpu_drm.h>
#include <stdio.h>
#include <string.h>

struct field {
  const char *name;
  uint16_t offset, size;
};
#define F(type, member) {#member, offsetof(struct type, member), sizeof(((struct type *)0)->member)},

/* ---- fields ---- */

static const struct field acquire_vm[] = {F(kfd_acquire_vm, drm_fd) F(kfd_acquire_vm, gpu_id){0}};
static const struct field alloc_memory[] = {F(kfd_alloc_memory, va_addr) F(kfd_alloc_memory, size)
                                                F(kfd_alloc_memory, handle) F(kfd_alloc_memory, mmap_offset)
                                                    F(kfd_alloc_memory, gpu_id) F(kfd_alloc_memory, flags){0}};
static const struct field free_memory[] = {F(kfd_free_memory, handle){0}};
static const struct field map_memory[] = {F(kfd_map_memory, handle) F(kfd_map_memory, n_devices)
                                              F(kfd_map_memory, n_success){0}};
static const struct field create_queue[] = {
    F(kfd_create_queue, ring_base_address) F(kfd_create_queue, write_pointer_address)
        F(kfd_create_queue, read_pointer_address) F(kfd_create_queue, doorbell_offset) F(kfd_create_queue, ring_size)
            F(kfd_create_queue, gpu_id) F(kfd_create_queue, queue_type) F(kfd_create_queue, queue_percentage)
                F(kfd_create_queue, queue_priority) F(kfd_create_queue, queue_id)
                    F(kfd_create_queue, eop_buffer_address) F(kfd_create_queue, eop_buffer_size)
                        F(kfd_create_queue, ctx_save_restore_address) F(kfd_create_queue, ctx_save_restore_size)
                            F(kfd_create_queue, ctl_stack_size){0}};
static const struct field destroy_queue[] = {F(kfd_destroy_queue, queue_id){0}};
static const struct field create_event[] = {F(kfd_create_event, event_page_offset)
                                                F(kfd_create_event, event_trigger_data) F(kfd_create_event, event_type)
                                                    F(kfd_create_event, auto_reset) F(kfd_create_event, node_id){0}};
static const struct field event_ref[] = {F(kfd_event_ref, event_id){0}};
static const struct field apertures[] = {F(kfd_get_process_apertures_new, num_of_nodes){0}};
static const struct field info[] = {F(drm_amdgpu_info, return_size) F(drm_amdgpu_info, query){0}};

static const struct field rm_alloc_fields[] = {F(rm_alloc, root) F(rm_alloc, parent) F(rm_alloc, object)
                                                   F(rm_alloc, class) F(rm_alloc, params_size) F(rm_alloc, flags){0}};
static const struct field rm_free_fields[] = {F(rm_free, root) F(rm_free, parent) F(rm_free, object){0}};
static const struct field rm_control_fields[] = {F(rm_control, client) F(rm_control, object) F(rm_control, cmd)
                                                     F(rm_control, flags) F(rm_control, params_size){0}};
static const struct field rm_pin_fields[] = {
    F(rm_alloc_memory, root) F(rm_alloc_memory, parent) F(rm_alloc_memory, object) F(rm_alloc_memory, class)
        F(rm_alloc_memory, flags) F(rm_alloc_memory, memory) F(rm_alloc_memory, limit){0}};
static const struct field rm_map_fields[] = {F(rm_map_memory, client) F(rm_map_memory, device) F(
    rm_map_memory, memory) F(rm_map_memory, offset) F(rm_map_memory, length) F(rm_map_memory_fd, fd){0}};
static const struct field uvm_range_fields[] = {F(uvm_create_external_range, base)
                                                    F(uvm_create_external_range, length){0}};
static const struct field uvm_map_fields[] = {F(uvm_map_external_allocation, base) F(
    uvm_map_external_allocation, length) F(uvm_map_external_allocation, offset){0}};
static const struct field uvm_channel_fields[] = {
    F(uvm_register_channel, uuid) F(uvm_register_channel, rm_ctrl_fd) F(uvm_register_channel, client)
        F(uvm_register_channel, channel) F(uvm_register_channel, base) F(uvm_register_channel, length){0}};

/* ---- arrays that a structure points to ---- */

struct array {
  /* If count_bytes is 0, the array has `count` elements; otherwise count is the offset of their number. */
  uint16_t pointer, count, count_bytes, element;
};
#define NO_ARRAY {0}
#define ARRAY(type, pointer, count, element)                                                                           \
  {offsetof(struct type, pointer), offsetof(struct type, count), sizeof(((struct type *)0)->count), element}
#define ONE(type, pointer, element) {offsetof(struct type, pointer), 1, 0, element}

struct call {
  const char *name;
  uint32_t request; /* for RM calls: the command number, valid for any size */
  uint32_t size;
  bool time_dependent;
  struct array arrays[3];
  const struct field *fields;
};

static const struct call kfd_calls[] = {
    {"KFD_GET_VERSION", KFD_GET_VERSION, sizeof(struct kfd_get_version)},
    {"KFD_CREATE_QUEUE", KFD_CREATE_QUEUE, sizeof(struct kfd_create_queue), .fields = create_queue},
    {"KFD_DESTROY_QUEUE", KFD_DESTROY_QUEUE, sizeof(struct kfd_destroy_queue), .fields = destroy_queue},
    {"KFD_GET_CLOCK_COUNTERS", KFD_GET_CLOCK_COUNTERS, sizeof(struct kfd_get_clock_counters), .time_dependent = true},
    {"KFD_CREATE_EVENT", KFD_CREATE_EVENT, sizeof(struct kfd_create_event), .fields = create_event},
    {"KFD_DESTROY_EVENT", KFD_DESTROY_EVENT, sizeof(struct kfd_event_ref), .fields = event_ref},
    {"KFD_WAIT_EVENTS", KFD_WAIT_EVENTS, sizeof(struct kfd_wait_events), .time_dependent = true,
     .arrays = {ARRAY(kfd_wait_events, events_ptr, num_events, sizeof(struct kfd_event_state))}},
    {"KFD_GET_PROCESS_APERTURES_NEW", KFD_GET_PROCESS_APERTURES_NEW, sizeof(struct kfd_get_process_apertures_new),
     .arrays = {ARRAY(kfd_get_process_apertures_new, apertures_ptr, num_of_nodes, sizeof(struct kfd_apertures))},
     .fields = apertures},
    {"KFD_ACQUIRE_VM", KFD_ACQUIRE_VM, sizeof(struct kfd_acquire_vm), .fields = acquire_vm},
    {"KFD_ALLOC_MEMORY", KFD_ALLOC_MEMORY, sizeof(struct kfd_alloc_memory), .fields = alloc_memory},
    {"KFD_FREE_MEMORY", KFD_FREE_MEMORY, sizeof(struct kfd_free_memory), .fields = free_memory},
    {"KFD_MAP_MEMORY", KFD_MAP_MEMORY, sizeof(struct kfd_map_memory),
     .arrays = {ARRAY(kfd_map_memory, device_ids_array_ptr, n_devices, 4)}, .fields = map_memory},
    {"KFD_UNMAP_MEMORY", KFD_UNMAP_MEMORY, sizeof(struct kfd_map_memory),
     .arrays = {ARRAY(kfd_map_memory, device_ids_array_ptr, n_devices, 4)}, .fields = map_memory},
    {"KFD_AVAILABLE_MEMORY", KFD_AVAILABLE_MEMORY, sizeof(struct kfd_available_memory)},
    {"DRM_AMDGPU_INFO", (uint32_t)DRM_IOCTL_AMDGPU_INFO, sizeof(struct drm_amdgpu_info),
     .arrays = {ARRAY(drm_amdgpu_info, return_pointer, return_size, 1)}, .fields = info},
    {"DRM_AMDGPU_CTX", (uint32_t)DRM_IOCTL_AMDGPU_CTX, sizeof(union drm_amdgpu_ctx)},
    {"DRM_VERSION", (uint32_t)DRM_IOCTL_VERSION, sizeof(struct drm_version),
     .arrays = {ARRAY(drm_version, name, name_len, 1), ARRAY(drm_version, date, date_len, 1),
                ARRAY(drm_version, desc, desc_len, 1)}},
};

/* The request contains the size of their structures. */
static const struct call rm_calls[] = {
    {"RM_ALLOC_MEMORY", RM_NR_ALLOC_MEMORY, .fields = rm_pin_fields},
    {"RM_FREE", RM_NR_FREE, .fields = rm_free_fields},
    {"RM_CONTROL", RM_NR_CONTROL, .arrays = {ARRAY(rm_control, params, params_size, 1)}, .fields = rm_control_fields},
    {"RM_ALLOC", RM_NR_ALLOC, .arrays = {ARRAY(rm_alloc, params, params_size, 1)}, .fields = rm_alloc_fields},
    {"RM_MAP_MEMORY", RM_NR_MAP_MEMORY, .fields = rm_map_fields},
    {"RM_GET_EVENT_DATA", RM_NR_GET_EVENT_DATA, .time_dependent = true,
     .arrays = {ONE(rm_get_event_data, event, sizeof(struct rm_event))}},
    {"RM_CARD_INFO", RM_NR_CARD_INFO},
    {"RM_REGISTER_FD", RM_NR_REGISTER_FD},
    {"RM_ALLOC_OS_EVENT", RM_NR_ALLOC_OS_EVENT},
    {"RM_FREE_OS_EVENT", RM_NR_FREE_OS_EVENT},
    {"RM_VERSION", RM_NR_VERSION},
    {"RM_ATTACH_GPUS", RM_NR_ATTACH_GPUS},
    {"RM_SYS_PARAMS", RM_NR_SYS_PARAMS},
    {"RM_WAIT_OPEN_COMPLETE", RM_NR_WAIT_OPEN_COMPLETE},
};

/* Arrays that a control's parameters point to. */
static const struct {
  uint32_t cmd;
  struct array array;
} rm_controls[] = {
    {RM_CTRL_CLASS_LIST, ARRAY(rm_class_list, list, count, 4)},
    {RM_CTRL_GR_INFO, ARRAY(rm_gr_info, list, count, sizeof(struct rm_info))},
    {RM_CTRL_FB_INFO, ARRAY(rm_fb_info, list, count, sizeof(struct rm_info))},
};

/* The newest and longest form of each structure, which the driver uses. */
static const struct call uvm_calls[] = {
    {"UVM_INITIALIZE", UVM_INITIALIZE, sizeof(struct uvm_initialize)},
    {"UVM_MM_INITIALIZE", UVM_MM_INITIALIZE, sizeof(struct uvm_mm_initialize)},
    {"UVM_REGISTER_GPU", UVM_REGISTER_GPU, sizeof(struct uvm_register_gpu)},
    {"UVM_UNREGISTER_GPU", UVM_UNREGISTER_GPU, sizeof(struct uvm_unregister_gpu)},
    {"UVM_REGISTER_GPU_VASPACE", UVM_REGISTER_GPU_VASPACE, sizeof(struct uvm_register_gpu_vaspace)},
    {"UVM_UNREGISTER_GPU_VASPACE", UVM_UNREGISTER_GPU_VASPACE, sizeof(struct uvm_unregister_gpu_vaspace)},
    {"UVM_REGISTER_CHANNEL", UVM_REGISTER_CHANNEL, sizeof(struct uvm_register_channel), .fields = uvm_channel_fields},
    {"UVM_UNREGISTER_CHANNEL", UVM_UNREGISTER_CHANNEL, sizeof(struct uvm_unregister_channel)},
    {"UVM_CREATE_EXTERNAL_RANGE", UVM_CREATE_EXTERNAL_RANGE, sizeof(struct uvm_create_external_range),
     .fields = uvm_range_fields},
    {"UVM_MAP_EXTERNAL_ALLOCATION", UVM_MAP_EXTERNAL_ALLOCATION, sizeof(struct uvm_map_external_allocation),
     .fields = uvm_map_fields},
    {"UVM_FREE", UVM_FREE, sizeof(struct uvm_free), .fields = uvm_range_fields},
    {"UVM_ENABLE_PEER_ACCESS", UVM_ENABLE_PEER_ACCESS, sizeof(struct uvm_peer_access)},
};

#define COUNT(a) (sizeof(a) / sizeof *(a))

static bool is_rm(uint32_t request) { return request >> 30 == 3 && RM_IO_TYPE(request) == RM_IO_MAGIC; }

static const struct call *find_in(const struct call *calls, size_t n, uint32_t request) {
  for (size_t i = 0; i < n; i++)
    if (calls[i].request == request) return &calls[i];
  return NULL;
}

static const struct call *find(uint32_t request) {
  if (is_rm(request)) return find_in(rm_calls, COUNT(rm_calls), RM_IO_NR(request));
  const struct call *c = find_in(kfd_calls, COUNT(kfd_calls), request);
  return c ? c : find_in(uvm_calls, COUNT(uvm_calls), request);
}

static uint64_t number_at(const uint8_t *bytes, uint32_t offset, uint32_t size) {
  uint64_t v = 0;
  memcpy(&v, bytes + offset, size);
  return v;
}

static void add_part(struct os_trace_call *out, const struct array *a, const struct os_trace_part *of) {
  if (!a->element || out->nparts == TRACE_PARTS || a->pointer + 8u > of->size) return;
  uint8_t *p = (uint8_t *)(uintptr_t)number_at(of->bytes, a->pointer, 8);
  uint64_t n = (a->count_bytes ? number_at(of->bytes, a->count, a->count_bytes) : a->count) * a->element;
  if (p && n && n <= UINT32_MAX) out->parts[out->nparts++] = (struct os_trace_part){p, (uint32_t)n};
}

/* Drivers before 550 store the count at an offset that later drivers use for an unused entry. */
static uint32_t uvm_size(const struct call *c, const void *arg) {
  const struct uvm_map_external_allocation_545 *old = arg;
  return c->request == UVM_MAP_EXTERNAL_ALLOCATION && old->gpu_count ? sizeof *old : c->size;
}

bool os_trace_describe(unsigned long request, void *arg, bool follow, struct os_trace_call *out) {
  const struct call *c = find((uint32_t)request);
  *out = (struct os_trace_call){0};
  snprintf(out->name, sizeof out->name, "ioctl 0x%lx", request);
  if (!c) return false;
  uint32_t size = is_rm((uint32_t)request) ? RM_IO_SIZE(request) : uvm_size(c, arg);
  snprintf(out->name, sizeof out->name, "%s", c->name);
  out->time_dependent = c->time_dependent;
  out->fields = c->fields;
  out->parts[out->nparts++] = (struct os_trace_part){arg, size};
  for (size_t i = 0; follow && i < COUNT(c->arrays); i++) add_part(out, &c->arrays[i], &out->parts[0]);
  if (c->request == RM_NR_ALLOC && is_rm((uint32_t)request) && size == sizeof(struct rm_alloc))
    snprintf(out->name, sizeof out->name, "RM_ALLOC of class 0x%x", ((struct rm_alloc *)arg)->class);
  if (c->request != RM_NR_CONTROL || !is_rm((uint32_t)request)) return true;
  uint32_t cmd = ((struct rm_control *)arg)->cmd;
  snprintf(out->name, sizeof out->name, "RM_CONTROL 0x%x", cmd);
  out->time_dependent = cmd == RM_CTRL_TIMER_TIME;
  for (size_t i = 0; i < COUNT(rm_controls) && out->nparts == 2; i++)
    if (rm_controls[i].cmd == cmd) add_part(out, &rm_controls[i].array, &out->parts[1]);
  return true;
}

/* Padding between and after members, whose contents C leaves undefined. The first row of UVM_FREE is the upper half of
 * a 64-bit length in drivers up to 580. */
static const struct {
  const struct call *of;
  uint32_t request; /* for RM calls: the command number */
  uint16_t offset, size;
} paddings[] = {
    {uvm_calls, UVM_INITIALIZE, 12, 4},
    {uvm_calls, UVM_REGISTER_GPU, 17, 3},
    {uvm_calls, UVM_REGISTER_CHANNEL, 28, 4},
    {uvm_calls, UVM_REGISTER_CHANNEL, 52, 4},
    {uvm_calls, UVM_FREE, 12, 4},
    {uvm_calls, UVM_CREATE_EXTERNAL_RANGE, 20, 4},
    {uvm_calls, UVM_FREE, 20, 4},
    {rm_calls, RM_NR_ALLOC, 44, 4},
    {rm_calls, RM_NR_ALLOC_MEMORY, 20, 4},
    {rm_calls, RM_NR_ALLOC_MEMORY, 44, 4},
    {rm_calls, RM_NR_ALLOC_MEMORY, 52, 4},
    {rm_calls, RM_NR_MAP_MEMORY, 12, 4},
    {rm_calls, RM_NR_MAP_MEMORY, 52, 4},
};

static void clear_padding(const struct call *c, uint32_t size, uint8_t *out) {
  for (size_t i = 0; i < COUNT(paddings); i++) {
    size_t n = paddings[i].of == rm_calls ? COUNT(rm_calls) : COUNT(uvm_calls);
    if (find_in(paddings[i].of, n, paddings[i].request) == c && paddings[i].offset + paddings[i].size <= (int)size)
      memset(out + paddings[i].offset, 0, paddings[i].size);
  }
}

static void clear_pointer(const struct array *a, uint32_t size, uint8_t *out) {
  if (a->element && a->pointer + 8u <= size) memset(out + a->pointer, 0, 8);
}

void os_trace_parts_copy(const struct os_trace_call *call, unsigned long request, uint8_t *const out[TRACE_PARTS]) {
  const struct call *c = find((uint32_t)request);
  for (unsigned i = 0; i < call->nparts; i++) memcpy(out[i], call->parts[i].bytes, call->parts[i].size);
  if (!c) return;
  clear_padding(c, call->parts[0].size, out[0]);
  for (size_t i = 0; i < COUNT(c->arrays); i++) clear_pointer(&c->arrays[i], call->parts[0].size, out[0]);
  if (!is_rm((uint32_t)request) || c->request != RM_NR_CONTROL || call->nparts < 2) return;
  uint32_t cmd = ((const struct rm_control *)(const void *)call->parts[0].bytes)->cmd;
  for (size_t i = 0; i < COUNT(rm_controls); i++)
    if (rm_controls[i].cmd == cmd) clear_pointer(&rm_controls[i].array, call->parts[1].size, out[1]);
}

void os_trace_parts_fill(const struct os_trace_call *call, unsigned long request, const struct os_trace_blob *after) {
  uint8_t pointers[2][3][8];
  const struct call *c = find((uint32_t)request);
  const struct array *arrays[2][3] = {{0}};
  for (size_t i = 0; c && i < COUNT(c->arrays); i++) arrays[0][i] = &c->arrays[i];
  if (c && is_rm((uint32_t)request) && c->request == RM_NR_CONTROL)
    for (size_t i = 0; i < COUNT(rm_controls); i++)
      if (rm_controls[i].cmd == ((const struct rm_control *)(const void *)call->parts[0].bytes)->cmd)
        arrays[1][0] = &rm_controls[i].array;
#define EACH_POINTER(part, i)                                                                                          \
  for (unsigned part = 0; part < 2 && part < call->nparts; part++)                                                     \
    for (unsigned i = 0; i < 3; i++)                                                                                   \
      if (arrays[part][i] && arrays[part][i]->element && arrays[part][i]->pointer + 8u <= call->parts[part].size)
  EACH_POINTER(part, i) memcpy(pointers[part][i], call->parts[part].bytes + arrays[part][i]->pointer, 8);
  for (unsigned i = 0; i < call->nparts; i++)
    if (after[2 * i].size) memcpy(call->parts[i].bytes, after[2 * i].bytes, call->parts[i].size);
  EACH_POINTER(part, i) memcpy(call->parts[part].bytes + arrays[part][i]->pointer, pointers[part][i], 8);
#undef EACH_POINTER
}

void os_trace_field(const struct os_trace_call *call, unsigned part, uint32_t at, char *name, size_t cap,
                    uint32_t *first, uint32_t *bytes) {
  for (const struct field *f = part ? NULL : call->fields; f && f->name; f++)
    if (at >= f->offset && at < f->offset + (uint32_t)f->size) {
      snprintf(name, cap, "%s", f->name);
      *first = f->offset;
      *bytes = f->size > 8 ? 8 : f->size;
      if (f->size > 8) *first += (at - f->offset) / 8 * 8;
      return;
    }
  *first = at / 4 * 4;
  *bytes = call->parts[part].size - *first < 4 ? call->parts[part].size - *first : 4;
  snprintf(name, cap, part ? "bytes at 0x%x of the structure it points to" : "bytes at 0x%x", *first);
}

/* ---- registers ---- */

static bool is_usermode(uint32_t class) {
  static const uint32_t classes[] = {RM_CLASS_USERMODE_VOLTA, RM_CLASS_USERMODE_TURING, RM_CLASS_USERMODE_AMPERE,
                                     RM_CLASS_USERMODE_HOPPER, RM_CLASS_USERMODE_BLACKWELL};
  for (size_t i = 0; i < COUNT(classes); i++)
    if (classes[i] == class) return true;
  return false;
}

/* KFD's own mappings are doorbells and registers; memory is mapped through the render node. For NVIDIA, a descriptor
 * maps what the preceding RM_MAP_MEMORY call announced for it. */
bool os_trace_maps_registers(const struct os_trace_registers *r, int fd) {
  return fd == r->kfd || fd == r->usermode_fd;
}

void os_trace_registers_open(struct os_trace_registers *r, const char *path, int fd) {
  if (!strcmp(path, KFD_DEVICE)) r->kfd = fd;
  if (fd == r->usermode_fd) r->usermode_fd = -1;
}

void os_trace_registers_ioctl(struct os_trace_registers *r, unsigned long request, const void *arg) {
  const struct rm_alloc *alloc = arg;
  const struct rm_map_memory_fd *map = arg;
  if (request == RM_IO(RM_NR_ALLOC, sizeof *alloc) && is_usermode(alloc->class) && !alloc->status)
    r->usermode = alloc->object;
  if (request == RM_IO(RM_NR_MAP_MEMORY, sizeof *map) && r->usermode && map->params.memory == r->usermode)
    r->usermode_fd = map->fd;
}

bool os_trace_pinned_pages(unsigned long request, const void *arg, uint64_t *address, uint64_t *size) {
  const struct kfd_alloc_memory *a = arg;
  const struct rm_alloc_memory_fd *pin = arg;
  if (request == KFD_ALLOC_MEMORY && a->flags & KFD_MEM_USERPTR) {
    *address = a->mmap_offset, *size = a->size;
    return true;
  }
  if (request != RM_IO(RM_NR_ALLOC_MEMORY, sizeof *pin)) return false;
  *address = pin->params.memory, *size = pin->params.limit + 1;
  return true;
}
