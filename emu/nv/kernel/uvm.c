/* /dev/nvidia-uvm: address spaces, and the GPUs, channels and peers that are registered with them. Rules as in NVIDIA
 * open-gpu-kernel-modules (nvidia-uvm/uvm.c, uvm_va_space.c, uvm_user_channel.c). uvm_map.c has ranges and mappings. */
#include "uvm.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { UVM_ILLEGAL_ACTION = 0x16 }; /* NV_ERR_ILLEGAL_ACTION: the descriptor has no address space */

struct nv_gpu *nv_uvm_gpu(struct uvm_space *s, const struct uvm_uuid *uuid, const char *call) {
  struct nv_gpu *gpu = nv_gpu_of_uuid(s->m, uuid);
  char text[41];
  if (gpu && s->registered[gpu->index]) return gpu;
  nv_uuid_text(uuid, text);
  emu_refuse(&s->m->base, 0, "%s: %s is not %s", call, text, gpu ? "registered" : "a GPU of this machine");
  return NULL;
}

struct rm_object *nv_uvm_client(struct uvm_space *s, int ctl_fd, uint32_t client, const char *call) {
  struct nv_file *ctl = nv_file_get(s->m, ctl_fd);
  struct rm_call c = {s->m, ctl};
  struct rm_object *o = ctl && ctl->kind == NV_FILE_CTL ? nv_rm_client_find(&c, client) : NULL;
  if (!o) emu_refuse(&s->m->base, 0, "%s: descriptor %d has no client 0x%x", call, ctl_fd, client);
  if (ctl) nv_file_put(ctl);
  return o;
}

/* ---- the address space ---- */

static uint32_t initialize(struct nv_file *file, void *arg) {
  const struct uvm_initialize *p = arg;
  struct nv_machine *m = file->machine;
  if (p->flags & ~(uint64_t)(UVM_INIT_DISABLE_HMM | UVM_INIT_MULTI_PROCESS))
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "UVM_INITIALIZE: flags 0x%" PRIx64, p->flags);
  if (file->uvm_helper)
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "UVM_INITIALIZE: UVM_MM_INITIALIZE was called for this descriptor");
  if (file->uvm) return RM_OK;
  file->uvm = calloc(1, sizeof *file->uvm);
  if (!file->uvm) return RM_NO_MEMORY;
  file->uvm->m = m;
  return RM_OK;
}

static uint32_t mm_initialize(struct nv_file *file, void *arg) {
  const struct uvm_mm_initialize *p = arg;
  struct nv_machine *m = file->machine;
  struct nv_file *other = nv_file_get(m, p->uvm_fd);
  uint32_t status = RM_OK;
  if (!other || other->kind != NV_FILE_UVM || !other->uvm)
    status = RM_REFUSE(m, RM_INVALID_ARGUMENT, "UVM_MM_INITIALIZE: descriptor %d has no address space", p->uvm_fd);
  else if (file->uvm || file->uvm_helper)
    status = RM_REFUSE(m, RM_INVALID_STATE, "UVM_MM_INITIALIZE: this descriptor is used already");
  else
    file->uvm_helper = true;
  if (other) nv_file_put(other);
  return status;
}

/* ---- GPUs ---- */

static uint32_t register_gpu(struct nv_file *file, void *arg) {
  struct uvm_register_gpu *p = arg;
  struct uvm_space *s = file->uvm;
  struct nv_gpu *gpu = nv_gpu_of_uuid(s->m, &p->uuid);
  char text[41];
  nv_uuid_text(&p->uuid, text);
  if (!gpu || !gpu->attached)
    return RM_REFUSE(s->m, RM_OBJECT_NOT_FOUND, "UVM_REGISTER_GPU: %s is not %s", text, gpu ? "attached" : "there");
  if (s->registered[gpu->index])
    return RM_REFUSE(s->m, RM_INVALID_DEVICE, "UVM_REGISTER_GPU: %s is registered already", text);
  if (p->smc_part_ref) return RM_REFUSE(s->m, RM_NOT_SUPPORTED, "not supported: UVM_REGISTER_GPU with a MIG partition");
  s->registered[gpu->index] = true;
  p->numa_enabled = 0;
  p->numa_node_id = -1;
  return RM_OK;
}

static void drop_vas(struct uvm_space *s, const struct nv_gpu *gpu) {
  for (struct uvm_channel *ch = s->channels, *next; ch; ch = next) {
    next = ch->next;
    if (ch->object->gpu == gpu) nv_uvm_channel_gone(ch);
  }
  nv_uvm_unmap_gpu(s, gpu, NULL);
  nv_rm_vas_put(s->vas[gpu->index]);
  s->vas[gpu->index] = NULL;
}

static void drop_peers(struct uvm_space *s, const struct nv_gpu *a, const struct nv_gpu *b) {
  nv_uvm_unmap_gpu(s, a, b);
  nv_uvm_unmap_gpu(s, b, a);
  s->peers[a->index] &= ~(1u << b->index);
  s->peers[b->index] &= ~(1u << a->index);
}

static uint32_t unregister_gpu(struct nv_file *file, void *arg) {
  const struct uvm_unregister_gpu *p = arg;
  struct uvm_space *s = file->uvm;
  struct nv_gpu *gpu = nv_uvm_gpu(s, &p->uuid, "UVM_UNREGISTER_GPU");
  if (!gpu) return RM_INVALID_DEVICE;
  for (unsigned i = 0; i < s->m->ngpus; i++)
    if (s->peers[gpu->index] & 1u << i) drop_peers(s, gpu, &s->m->gpus[i]);
  drop_vas(s, gpu);
  /* Remove the mappings of this GPU's memory on all GPUs. */
  for (unsigned i = 0; i < s->m->ngpus; i++) nv_uvm_unmap_gpu(s, &s->m->gpus[i], gpu);
  s->registered[gpu->index] = false;
  return RM_OK;
}

static uint32_t register_vaspace(struct nv_file *file, void *arg) {
  const struct uvm_register_gpu_vaspace *p = arg;
  struct uvm_space *s = file->uvm;
  uint32_t status = RM_OK;
  struct nv_gpu *gpu = nv_uvm_gpu(s, &p->uuid, "UVM_REGISTER_GPU_VASPACE");
  if (!gpu) return RM_INVALID_DEVICE;
  struct rm_object *client = nv_uvm_client(s, p->rm_ctrl_fd, p->client, "UVM_REGISTER_GPU_VASPACE");
  if (!client) return RM_INVALID_CLIENT;
  struct rm_object *vas = nv_rm_find_kind(s->m, client, p->va_space, 1u << RM_KIND_VASPACE, "hVaSpace", &status);
  if (!vas) return status;
  if (vas->gpu != gpu || !vas->vas->external)
    return RM_REFUSE(s->m, RM_INVALID_FLAGS,
                     "UVM_REGISTER_GPU_VASPACE: 0x%x is not an externally owned space of this GPU", p->va_space);
  if (s->vas[gpu->index])
    return RM_REFUSE(s->m, RM_INVALID_DEVICE, "UVM_REGISTER_GPU_VASPACE: the GPU has an address space already");
  s->vas[gpu->index] = nv_rm_vas_get(vas->vas);
  return RM_OK;
}

static uint32_t unregister_vaspace(struct nv_file *file, void *arg) {
  const struct uvm_unregister_gpu_vaspace *p = arg;
  struct uvm_space *s = file->uvm;
  struct nv_gpu *gpu = nv_uvm_gpu(s, &p->uuid, "UVM_UNREGISTER_GPU_VASPACE");
  if (!gpu || !s->vas[gpu->index])
    return gpu ? RM_REFUSE(s->m, RM_INVALID_DEVICE, "UVM_UNREGISTER_GPU_VASPACE: the GPU has none")
               : (uint32_t)RM_INVALID_DEVICE;
  drop_vas(s, gpu);
  return RM_OK;
}

/* ---- channels ---- */

static uint32_t register_channel(struct nv_file *file, void *arg) {
  const struct uvm_register_channel *p = arg;
  struct uvm_space *s = file->uvm;
  uint32_t status = RM_OK;
  struct nv_gpu *gpu = nv_uvm_gpu(s, &p->uuid, "UVM_REGISTER_CHANNEL");
  if (!gpu) return RM_INVALID_DEVICE;
  struct rm_object *client = nv_uvm_client(s, p->rm_ctrl_fd, p->client, "UVM_REGISTER_CHANNEL");
  if (!client) return RM_INVALID_CLIENT;
  struct rm_object *o = nv_rm_find_kind(s->m, client, p->channel, 1u << RM_KIND_CHANNEL, "hChannel", &status);
  if (!o) return status;
  struct rm_channel *ch = &o->channel;
  if (!s->vas[gpu->index] || ch->vas != s->vas[gpu->index])
    return RM_REFUSE(s->m, RM_INVALID_DEVICE, "UVM_REGISTER_CHANNEL: 0x%x is not in the GPU's registered address space",
                     p->channel);
  if (ch->registered) return RM_REFUSE(s->m, RM_INVALID_STATE, "UVM_REGISTER_CHANNEL: 0x%x is registered", p->channel);
  if ((p->base + p->length) >> gpu->model->va_bits)
    return RM_REFUSE(s->m, RM_INVALID_ADDRESS,
                     "UVM_REGISTER_CHANNEL: 0x%" PRIx64 "+0x%" PRIx64 ": channels have %u bits", p->base, p->length,
                     gpu->model->va_bits);
  if (ch->group->engine_type == RM_ENGINE_GR0 && p->length < NV_CONTEXT_BYTES)
    return RM_REFUSE(s->m, RM_NO_MEMORY, "UVM_REGISTER_CHANNEL: context buffers need 0x%llx bytes", NV_CONTEXT_BYTES);
  struct uvm_channel *made = malloc(sizeof *made);
  if (!made) return RM_NO_MEMORY;
  status = nv_uvm_range_add(s, p->base, p->length, true, "UVM_REGISTER_CHANNEL");
  if (status) return free(made), status;
  *made = (struct uvm_channel){s->channels, s, o, p->base};
  s->channels = made;
  ch->registered = made;
  return RM_OK;
}

void nv_uvm_channel_gone(struct uvm_channel *ch) {
  struct uvm_channel **link = &ch->space->channels;
  while (*link != ch) link = &(*link)->next;
  *link = ch->next;
  nv_uvm_range_remove(ch->space, ch->base);
  ch->object->channel.registered = NULL;
  free(ch);
}

static uint32_t unregister(struct uvm_space *s, uint32_t client, uint32_t channel) {
  struct uvm_channel *ch = s->channels;
  while (ch && (ch->object->handle != channel || ch->object->client->handle != client)) ch = ch->next;
  if (!ch) return RM_REFUSE(s->m, RM_INVALID_OBJECT_HANDLE, "UVM_UNREGISTER_CHANNEL: 0x%x is not registered", channel);
  nv_uvm_channel_gone(ch);
  return RM_OK;
}
static uint32_t unregister_channel(struct nv_file *file, void *arg) {
  const struct uvm_unregister_channel *p = arg;
  const struct uvm_unregister_channel_590 *newer = arg;
  return rm_branch_uvm_short(&file->machine->branch) ? unregister(file->uvm, newer->client, newer->channel)
                                                     : unregister(file->uvm, p->client, p->channel);
}

/* ---- peers ---- */

static uint32_t set_peers(struct uvm_space *s, const struct uvm_peer_access *p, bool on, const char *call) {
  struct nv_gpu *a = nv_uvm_gpu(s, &p->uuid_a, call), *b = a ? nv_uvm_gpu(s, &p->uuid_b, call) : NULL;
  if (!b) return RM_INVALID_DEVICE;
  bool have = s->peers[a->index] & 1u << b->index;
  if (a == b || have == on)
    return RM_REFUSE(s->m, RM_INVALID_DEVICE, "%s: %s", call,
                     a == b ? "both are one GPU"
                     : on   ? "it is enabled already"
                            : "it is not enabled");
  if (on && !s->m->base.peers)
    return RM_REFUSE(s->m, RM_NOT_SUPPORTED, "%s: GPU %u does not reach memory of GPU %u", call, a->index, b->index);
  if (on) {
    s->peers[a->index] |= 1u << b->index;
    s->peers[b->index] |= 1u << a->index;
  } else {
    drop_peers(s, a, b);
  }
  return RM_OK;
}
static uint32_t enable_peers(struct nv_file *file, void *arg) {
  return set_peers(file->uvm, arg, true, "UVM_ENABLE_PEER_ACCESS");
}
static uint32_t disable_peers(struct nv_file *file, void *arg) {
  return set_peers(file->uvm, arg, false, "UVM_DISABLE_PEER_ACCESS");
}

/* ---- ranges ---- */

static uint32_t create_range(struct nv_file *file, void *arg) {
  const struct uvm_create_external_range *p = arg;
  return nv_uvm_create_range(file->uvm, p->base, p->length);
}
static uint32_t free_range(struct nv_file *file, void *arg) {
  const struct uvm_free *p = arg;
  bool sized = !rm_branch_uvm_short(&file->machine->branch);
  return nv_uvm_free_range(file->uvm, p->base, sized ? p->length : 0, sized);
}
static uint32_t map_external(struct nv_file *file, void *arg) {
  struct uvm_map_external_allocation *p = arg, wide;
  if (rm_branch_uvm_many_gpus(&file->machine->branch)) return nv_uvm_map_external(file->uvm, p);
  const struct uvm_map_external_allocation_545 *before = arg;
  wide = (struct uvm_map_external_allocation){.base = before->base,
                                              .length = before->length,
                                              .offset = before->offset,
                                              .gpu_count = before->gpu_count,
                                              .rm_ctrl_fd = before->rm_ctrl_fd,
                                              .client = before->client,
                                              .memory = before->memory};
  memcpy(wide.gpus, before->gpus, sizeof before->gpus);
  return before->gpu_count > 32 ? RM_REFUSE(file->machine, RM_INVALID_ARGUMENT,
                                            "UVM_MAP_EXTERNAL_ALLOCATION: %" PRIu64 " GPUs", before->gpu_count)
                                : nv_uvm_map_external(file->uvm, &wide);
}
static uint32_t unmap_external(struct nv_file *file, void *arg) { return nv_uvm_unmap(file->uvm, arg); }
static uint32_t validate(struct nv_file *file, void *arg) {
  const struct uvm_validate_va_range *p = arg;
  return nv_uvm_validate(file->uvm, p->base, p->length);
}

/* ---- capabilities of the machine ---- */

static uint32_t pageable(struct nv_file *file, void *arg) {
  ((struct uvm_pageable_mem_access *)arg)->pageable_mem_access = 0;
  return RM_OK;
}
static uint32_t pageable_on_gpu(struct nv_file *file, void *arg) {
  struct uvm_pageable_mem_access_on_gpu *p = arg;
  p->pageable_mem_access = 0;
  return nv_uvm_gpu(file->uvm, &p->uuid, "UVM_PAGEABLE_MEM_ACCESS_ON_GPU") ? RM_OK : RM_INVALID_DEVICE;
}
static uint32_t is_8_supported(struct nv_file *file, void *arg) {
  ((struct uvm_is_8_supported *)arg)->supported = 1;
  return RM_OK;
}

/* ---- the table ---- */

#define C(command, type, handler, early)                                                                               \
  {UVM_##command, sizeof(struct type), offsetof(struct type, status), 0, early, "UVM_" #command, handler}
static const struct uvm_call {
  uint32_t command;
  uint16_t size, status, branch; /* status: its offset; branch: as in rm_type */
  bool early;                    /* allowed before the address space is initialized */
  const char *name;
  uint32_t (*handler)(struct nv_file *file, void *arg);
} calls[] = {
    C(INITIALIZE, uvm_initialize, initialize, true),
    C(MM_INITIALIZE, uvm_mm_initialize, mm_initialize, true),
    C(REGISTER_GPU, uvm_register_gpu, register_gpu, false),
    C(UNREGISTER_GPU, uvm_unregister_gpu, unregister_gpu, false),
    C(REGISTER_GPU_VASPACE, uvm_register_gpu_vaspace, register_vaspace, false),
    C(UNREGISTER_GPU_VASPACE, uvm_unregister_gpu_vaspace, unregister_vaspace, false),
    C(REGISTER_CHANNEL, uvm_register_channel, register_channel, false),
    {UVM_UNREGISTER_CHANNEL, 0, 0, offsetof(struct rm_branch, uvm_unregister_channel), false, "UVM_UNREGISTER_CHANNEL",
     unregister_channel},
    C(ENABLE_PEER_ACCESS, uvm_peer_access, enable_peers, false),
    C(DISABLE_PEER_ACCESS, uvm_peer_access, disable_peers, false),
    {UVM_MAP_EXTERNAL_ALLOCATION, 0, 0, offsetof(struct rm_branch, uvm_map_external_allocation), false,
     "UVM_MAP_EXTERNAL_ALLOCATION", map_external},
    {UVM_FREE, 0, 0, offsetof(struct rm_branch, uvm_free), false, "UVM_FREE", free_range},
    C(PAGEABLE_MEM_ACCESS, uvm_pageable_mem_access, pageable, false),
    C(PAGEABLE_MEM_ACCESS_ON_GPU, uvm_pageable_mem_access_on_gpu, pageable_on_gpu, false),
    C(UNMAP_EXTERNAL, uvm_unmap_external, unmap_external, false),
    C(VALIDATE_VA_RANGE, uvm_validate_va_range, validate, false),
    C(CREATE_EXTERNAL_RANGE, uvm_create_external_range, create_range, false),
    C(IS_8_SUPPORTED, uvm_is_8_supported, is_8_supported, false),
};

/* Returns the offset of the status in structures that have several layouts. */
static size_t status_offset(const struct nv_machine *m, const struct uvm_call *call) {
  bool many = rm_branch_uvm_many_gpus(&m->branch), brief = rm_branch_uvm_short(&m->branch);
  switch (call->command) {
  case UVM_UNREGISTER_CHANNEL:
    return brief ? offsetof(struct uvm_unregister_channel_590, status)
                 : offsetof(struct uvm_unregister_channel, status);
  case UVM_FREE: return brief ? offsetof(struct uvm_free_590, status) : offsetof(struct uvm_free, status);
  case UVM_MAP_EXTERNAL_ALLOCATION:
    return many ? offsetof(struct uvm_map_external_allocation, status)
                : offsetof(struct uvm_map_external_allocation_545, status);
  default: return call->status;
  }
}

int nv_uvm_ioctl(struct nv_file *file, unsigned long request, void *arg) {
  struct nv_machine *m = file->machine;
  union {
    struct uvm_map_external_allocation widest;
    uint8_t bytes[sizeof(struct uvm_map_external_allocation)];
  } body = {0};
  const struct uvm_call *call = calls, *end = calls + sizeof calls / sizeof calls[0];
  if (request == UVM_DEINITIALIZE) return 0;
  while (call < end && call->command != request) call++;
  if (call == end) return emu_refuse(&m->base, -EINVAL, "not supported: " RM_UVM_DEVICE " command 0x%lx", request);
  uint64_t at = (uintptr_t)arg;
  uint32_t size = nv_branch_size(m, call->size, call->branch), status;
  if (user_read(body.bytes, at, size))
    return emu_refuse(&m->base, -EFAULT, "%s: argument at 0x%" PRIx64, call->name, at);
  status = call->early || file->uvm ? call->handler(file, body.bytes)
                                    : RM_REFUSE(m, UVM_ILLEGAL_ACTION, "%s: UVM_INITIALIZE comes first", call->name);
  memcpy(body.bytes + status_offset(m, call), &status, sizeof status);
  return user_write(at, body.bytes, size) ? emu_refuse(&m->base, -EFAULT, "%s: argument at 0x%" PRIx64, call->name, at)
                                          : 0;
}

void nv_uvm_close(struct nv_machine *m, struct uvm_space *s) {
  /* The call removes it from the list; clang-tidy does not see that. */
  while (s->channels) nv_uvm_channel_gone(s->channels); // NOLINT(clang-analyzer-unix.Malloc)
  for (unsigned i = 0; i < m->ngpus; i++)
    if (s->vas[i]) drop_vas(s, &m->gpus[i]);
  while (s->ranges) nv_uvm_range_remove(s, s->ranges->base);
  free(s);
}
