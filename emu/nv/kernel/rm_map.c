/* Mapping RM's memory: for the CPU (MAP_MEMORY, then mmap of the descriptor that it named), and into address spaces
 * that RM owns (RM_MAP_MEMORY_DMA). Rules as in NVIDIA open-gpu-kernel-modules (nv-mmap.c, rmapi/mapping*.c). */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "../../watch.h"
#include "nv.h"

/* ---- CPU ---- */

static struct rm_object *find_mappable(struct rm_call *c, uint32_t client_handle, uint32_t device, uint32_t memory,
                                       const char *call, uint32_t *status) {
  struct nv_machine *m = c->m;
  struct rm_object *client = nv_rm_client_find(c, client_handle);
  if (!client) {
    *status = RM_REFUSE(m, RM_INVALID_CLIENT, "%s: no client 0x%x of this descriptor", call, client_handle);
    return NULL;
  }
  struct rm_object *dev =
      nv_rm_find_kind(m, client, device, 1u << RM_KIND_DEVICE | 1u << RM_KIND_SUBDEVICE, "hDevice", status);
  struct rm_object *o = dev ? nv_rm_find(client, memory) : NULL;
  if (dev && (!o || !nv_rm_memory_of(o))) {
    *status = RM_REFUSE(m, RM_INVALID_OBJECT_HANDLE, "%s: hMemory 0x%x is no memory", call, memory);
    return NULL;
  }
  if (dev && o->gpu != dev->gpu) {
    *status = RM_REFUSE(m, RM_INVALID_OBJECT_PARENT, "%s: hMemory 0x%x is another device's", call, memory);
    return NULL;
  }
  return o;
}

/* Device memory and registers are mapped through the GPU's node, system memory through the control node. */
static uint32_t check_file(struct rm_call *c, const struct nv_file *file, const struct rm_memory *mem, int fd) {
  bool device = mem->place == RM_PLACE_VIDMEM || mem->place == RM_PLACE_REGISTERS;
  if (!file) return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "MAP_MEMORY: descriptor %d is not open", fd);
  if (device ? file->kind != NV_FILE_GPU || file->gpu != mem->gpu : file->kind != NV_FILE_CTL)
    return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "MAP_MEMORY: descriptor %d is not one of %s", fd,
                     device ? "the GPU that has the memory" : RM_CTL_DEVICE);
  if (device && !file->ctl)
    return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "MAP_MEMORY: REGISTER_FD was not called for descriptor %d", fd);
  if (file->mapped) return RM_REFUSE(c->m, RM_STATE_IN_USE, "MAP_MEMORY: descriptor %d has a mapping already", fd);
  return RM_OK;
}

uint32_t nv_rm_map_cpu(struct rm_call *c, struct rm_map_memory *p, int fd) {
  enum { ACCESS_READ_ONLY = 1, KNOWN = 0x3 | 1 << 4 | 1 << 8 | 1 << 14 | 0x3 << 15 | 1 << 17 | 1 << 18 | 0x7 << 23 };
  struct nv_machine *m = c->m;
  uint32_t status = RM_OK;
  struct rm_object *o = find_mappable(c, p->client, p->device, p->memory, "MAP_MEMORY", &status);
  if (!o) return status;
  struct rm_memory *mem = nv_rm_memory_of(o);
  if (p->flags & ~(uint32_t)KNOWN) return RM_REFUSE(m, RM_INVALID_FLAGS, "MAP_MEMORY: flags 0x%x", p->flags);
  if (mem->fd < 0) return RM_REFUSE(m, RM_NOT_SUPPORTED, "MAP_MEMORY: 0x%x is the caller's own memory", p->memory);
  if (!p->length || p->offset % NV_PAGE || p->offset > mem->size || p->length > mem->size - p->offset)
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "MAP_MEMORY: 0x%" PRIx64 "+0x%" PRIx64 " of 0x%" PRIx64 " bytes",
                     p->offset, p->length, mem->size);
  struct nv_file *file = nv_file_get(m, fd);
  status = check_file(c, file, mem, fd);
  struct rm_cpu_map *map = status ? NULL : malloc(sizeof *map);
  if (map) {
    *map = (struct rm_cpu_map){NULL, m->next_map};
    m->next_map += (p->length + NV_PAGE - 1) & ~(uint64_t)(NV_PAGE - 1);
    if (o->type->kind != RM_KIND_CHANNEL) {
      map->next = o->memory.maps;
      o->memory.maps = map;
    }
    file->mapped = nv_rm_memory_get(mem);
    file->map_offset = p->offset;
    file->map_length = p->length;
    file->map_read_only = (p->flags & 3) == ACCESS_READ_ONLY || mem->user_read_only;
    p->address = map->address;
    if (o->type->kind == RM_KIND_CHANNEL) free(map);
  } else if (!status) {
    status = RM_NO_MEMORY;
  }
  if (file) nv_file_put(file);
  return status;
}

uint32_t nv_rm_unmap_cpu(struct rm_call *c, const struct rm_unmap_memory *p) {
  uint32_t status = RM_OK;
  struct rm_object *o = find_mappable(c, p->client, p->device, p->memory, "UNMAP_MEMORY", &status);
  if (!o) return status;
  if (o->type->kind == RM_KIND_CHANNEL) return RM_OK;
  struct rm_cpu_map **link = &o->memory.maps;
  while (*link && (*link)->address != p->address) link = &(*link)->next;
  struct rm_cpu_map *gone = *link;
  if (!gone)
    return RM_REFUSE(c->m, RM_INVALID_OBJECT, "UNMAP_MEMORY: 0x%x has no mapping 0x%" PRIx64, p->memory, p->address);
  *link = gone->next;
  free(gone);
  return RM_OK;
}

void *nv_rm_mmap(struct nv_file *file, void *addr, size_t len, int prot, int flags, uint64_t off) {
  struct nv_machine *m = file->machine;
  const struct rm_memory *mem = file->mapped;
  uint64_t length = (file->map_length + NV_PAGE - 1) & ~(uint64_t)(NV_PAGE - 1);
  int rc = 0;
  if (!mem)
    rc = emu_refuse(&m->base, -EINVAL, "mmap: no MAP_MEMORY named this descriptor");
  else if (off || !len || len > length)
    rc = emu_refuse(&m->base, -EINVAL, "mmap: offset 0x%" PRIx64 ", %zu bytes; MAP_MEMORY was for %" PRIu64, off, len,
                    file->map_length);
  else if ((flags & MAP_TYPE) == MAP_PRIVATE && prot & PROT_WRITE)
    rc = emu_refuse(&m->base, -EINVAL, "mmap: GPU memory is mapped MAP_SHARED");
  else if (file->map_read_only && prot & PROT_WRITE)
    rc = emu_refuse(&m->base, -EACCES, "mmap: MAP_MEMORY was for reading");
  if (rc || !mem || !len) return (void *)(intptr_t)rc;
  void *p = mmap(addr, len, prot, flags, mem->fd, (off_t)(mem->offset + file->map_offset));
  if (p == MAP_FAILED) return (void *)(intptr_t)-errno;
  if (m->base.strict)
    watch_map(p, len, prot, mem->host + file->map_offset,
              mem->place == RM_PLACE_REGISTERS ? WATCH_DOORBELL : WATCH_MEMORY);
  return p;
}

/* ---- GPU ---- */

struct rm_dma {
  struct rm_dma *next;
  struct rm_object *window, *object;
  struct rm_memory *memory;
  uint64_t va, size;
  bool span; /* owns its address range */
};

static void drop_mapping(struct rm_dma **link) {
  struct rm_dma *d = *link;
  struct rm_vas *vas = d->window->virtual.vas;
  vm_unmap(vas->vm, d->va, d->size);
  if (d->span) nv_rm_span_drop(vas, d->va);
  nv_rm_memory_put(d->memory);
  *link = d->next;
  free(d);
}

void nv_rm_dma_forget(struct nv_machine *m, const struct rm_object *o) {
  for (struct rm_dma **link = &m->dma; *link;)
    if ((*link)->window == o || (*link)->object == o)
      drop_mapping(link);
    else
      link = &(*link)->next;
}

/* Chooses the address of a mapping: in a reserved range, or in a window, where the client may request one. */
static uint32_t choose_address(struct nv_machine *m, const struct rm_object *window, const struct rm_map_memory_dma *p,
                               uint64_t size, uint64_t *va, bool *span) {
  const struct rm_virtual *v = &window->virtual;
  bool fixed = p->flags & RM_DMA_OFFSET_FIXED;
  *span = !v->reserved;
  *va = v->reserved && !fixed ? v->va + p->dma_offset : p->dma_offset;
  if (*va % NV_PAGE) return RM_REFUSE(m, RM_INVALID_OFFSET, "MAP_MEMORY_DMA: address 0x%" PRIx64, *va);
  if (v->reserved || fixed) {
    if (*va < v->va || *va - v->va > v->size || size > v->size - (*va - v->va))
      return RM_REFUSE(m, RM_INVALID_OFFSET,
                       "MAP_MEMORY_DMA: 0x%" PRIx64 "+0x%" PRIx64 " is outside 0x%x, which has 0x%" PRIx64
                       "+0x%" PRIx64,
                       *va, size, window->handle, v->va, v->size);
  }
  if (*span && !nv_rm_span_take(v->vas, va, size, NV_PAGE, fixed))
    return RM_REFUSE(m, RM_NO_MEMORY, "MAP_MEMORY_DMA: 0x%" PRIx64 "+0x%" PRIx64 " is not free", *va, size);
  return RM_OK;
}

uint32_t nv_rm_map_dma(struct rm_call *c, struct rm_map_memory_dma *p) {
  enum { ACCESS_READ_ONLY = 1, P2P = 0xff << 20 };
  struct nv_machine *m = c->m;
  struct rm_object *client = nv_rm_client_find(c, p->client);
  uint32_t status = RM_OK;
  if (!client) return RM_REFUSE(m, RM_INVALID_CLIENT, "MAP_MEMORY_DMA: no client 0x%x of this descriptor", p->client);
  struct rm_object *dev =
      nv_rm_find_kind(m, client, p->device, 1u << RM_KIND_DEVICE | 1u << RM_KIND_SUBDEVICE, "hDevice", &status);
  struct rm_object *window =
      dev ? nv_rm_find_kind(m, client, p->dma, 1u << RM_KIND_VIRTUAL, "MAP_MEMORY_DMA: hDma", &status) : NULL;
  struct rm_object *o = window ? nv_rm_find_kind(m, client, p->memory, 1u << RM_KIND_MEMORY | 1u << RM_KIND_USERMODE,
                                                 "MAP_MEMORY_DMA: hMemory", &status)
                               : NULL;
  if (!o) return status;
  struct rm_memory *mem = o->memory.memory;
  uint64_t size = (p->length + NV_PAGE - 1) & ~(uint64_t)(NV_PAGE - 1);
  if (window->gpu != dev->gpu || (mem->gpu && mem->gpu != dev->gpu))
    return RM_REFUSE(m, RM_INVALID_OBJECT_PARENT, "MAP_MEMORY_DMA: 0x%x or 0x%x is another device's", p->dma,
                     p->memory);
  if (p->flags & P2P) return RM_REFUSE(m, RM_NOT_SUPPORTED, "not supported: MAP_MEMORY_DMA with P2P flags");
  if (!p->length || size < p->length || p->offset % NV_PAGE || p->offset > mem->size || size > mem->size - p->offset)
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "MAP_MEMORY_DMA: 0x%" PRIx64 "+0x%" PRIx64 " of 0x%" PRIx64 " bytes",
                     p->offset, p->length, mem->size);
  struct rm_dma *d = malloc(sizeof *d);
  if (!d) return RM_NO_MEMORY;
  *d = (struct rm_dma){.next = m->dma, .window = window, .object = o, .memory = mem, .size = size};
  status = choose_address(m, window, p, size, &d->va, &d->span);
  if (status) return free(d), status;
  bool read_only = mem->read_only || (p->flags & 3) == ACCESS_READ_ONLY;
  unsigned access = VM_READ | VM_EXEC | (read_only ? 0u : (unsigned)VM_WRITE);
  int rc = vm_map(window->virtual.vas->vm, d->va, size, mem->host + p->offset, access, o->handle);
  if (rc) {
    if (d->span) nv_rm_span_drop(window->virtual.vas, d->va);
    status = RM_REFUSE(m, rc == -EEXIST ? RM_STATE_IN_USE : RM_NO_MEMORY,
                       "MAP_MEMORY_DMA: 0x%" PRIx64 "+0x%" PRIx64 " cannot be mapped%s", d->va, size,
                       rc == -EEXIST ? ": part of it is" : "");
    return free(d), status;
  }
  nv_rm_memory_get(mem);
  m->dma = d;
  p->dma_offset = d->va;
  return RM_OK;
}

uint32_t nv_rm_unmap_dma(struct rm_call *c, const struct rm_unmap_memory_dma *p) {
  struct nv_machine *m = c->m;
  struct rm_object *client = nv_rm_client_find(c, p->client);
  uint32_t status = RM_OK;
  if (!client) return RM_REFUSE(m, RM_INVALID_CLIENT, "UNMAP_MEMORY_DMA: no client 0x%x of this descriptor", p->client);
  struct rm_object *window =
      nv_rm_find_kind(m, client, p->dma, 1u << RM_KIND_VIRTUAL, "UNMAP_MEMORY_DMA: hDma", &status);
  if (!window) return status;
  struct rm_dma **link = &m->dma;
  while (*link && ((*link)->window != window || (*link)->va != p->dma_offset)) link = &(*link)->next;
  if (!*link || (p->memory && (*link)->object->handle != p->memory))
    return RM_REFUSE(m, RM_INVALID_OFFSET, "UNMAP_MEMORY_DMA: 0x%x is not mapped at 0x%" PRIx64, p->memory,
                     p->dma_offset);
  if (p->size && p->size != (*link)->size)
    return RM_REFUSE(m, RM_NOT_SUPPORTED, "not supported: UNMAP_MEMORY_DMA of a part of a mapping");
  drop_mapping(link);
  return RM_OK;
}
