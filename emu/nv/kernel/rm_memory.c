/* RM's memory: allocations of video and system memory, imported host pages, register pages, address spaces and the
 * address ranges that RM allocates in them. Rules as in NVIDIA open-gpu-kernel-modules (mem_mgr/). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "../../guard.h"
#include "../../watch.h"
#include "nv.h"

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
/* RM allocates addresses from here on, which leaves out address 0 and a shader's windows. */
#define VAS_FIRST (1ull << 36)

/* ---- reference-counted objects ---- */

struct rm_memory *nv_rm_memory_get(struct rm_memory *mem) {
  if (mem) mem->refs++;
  return mem;
}
void nv_rm_memory_put(struct rm_memory *mem) {
  if (!mem || --mem->refs) return;
  if (mem->heap) heap_free(mem->heap, mem->offset, mem->size, mem->host);
  free(mem);
}

struct rm_vas *nv_rm_vas_new(struct nv_gpu *gpu, bool external, uint64_t base, uint64_t end) {
  struct rm_vas *vas = calloc(1, sizeof *vas);
  if (!vas) return NULL;
  *vas = (struct rm_vas){.refs = 1, .gpu = gpu, .vm = vm_new(), .external = external, .base = base, .end = end};
  if (vas->vm) return vas;
  free(vas);
  return NULL;
}
struct rm_vas *nv_rm_vas_get(struct rm_vas *vas) {
  if (vas) vas->refs++;
  return vas;
}
void nv_rm_vas_put(struct rm_vas *vas) {
  if (!vas || --vas->refs) return;
  vm_free(vas->vm);
  for (struct rm_span *s = vas->spans, *next; s; s = next) next = s->next, free(s);
  free(vas);
}

static struct rm_memory *memory_new(struct rm_memory like) {
  struct rm_memory *mem = malloc(sizeof *mem);
  if (mem) *mem = like, mem->refs = 1;
  return mem;
}

struct rm_memory *nv_rm_memory_new(struct nv_machine *m, struct nv_gpu *gpu, uint64_t size) {
  struct heap *heap = gpu ? &gpu->vram : &m->sysmem;
  struct rm_memory *mem = memory_new((struct rm_memory){
      .place = gpu ? RM_PLACE_VIDMEM : RM_PLACE_SYSMEM, .gpu = gpu, .heap = heap, .size = size, .fd = heap->fd});
  if (mem && heap_alloc(heap, size, &mem->offset, &mem->host)) {
    free(mem);
    return NULL;
  }
  return mem;
}

struct rm_memory *nv_rm_memory_of(struct rm_object *o) {
  switch (o->type->kind) {
  case RM_KIND_MEMORY:
  case RM_KIND_USERMODE: return o->memory.memory;
  case RM_KIND_CHANNEL: return o->channel.userd;
  default: return NULL;
  }
}

void nv_rm_memory_object_fini(struct nv_machine *m, struct rm_object *o) {
  nv_rm_dma_forget(m, o);
  for (struct rm_cpu_map *map = o->memory.maps, *next; map; map = next) next = map->next, free(map);
  nv_rm_memory_put(o->memory.memory);
}

/* ---- ranges of an address space ---- */

bool nv_rm_span_take(struct rm_vas *vas, uint64_t *va, uint64_t size, uint64_t align, bool fixed) {
  uint64_t first = vas->base > VAS_FIRST ? vas->base : VAS_FIRST, at = fixed ? *va : (first + align - 1) & ~(align - 1);
  struct rm_span **link = &vas->spans;
  if (fixed && (at < vas->base || at >= vas->end)) return false;
  for (; *link; link = &(*link)->next) {
    const struct rm_span *s = *link;
    if (s->va + s->size <= at) continue;
    if (s->va >= at && s->va - at >= size) break;
    if (fixed) return false;
    at = (s->va + s->size + align - 1) & ~(align - 1);
  }
  if (at >= vas->end || size > vas->end - at) return false;
  struct rm_span *made = malloc(sizeof *made);
  if (!made) return false;
  *made = (struct rm_span){*link, at, size};
  *link = made;
  *va = at;
  return true;
}

void nv_rm_span_drop(struct rm_vas *vas, uint64_t va) {
  struct rm_span **link = &vas->spans;
  while (*link && (*link)->va != va) link = &(*link)->next;
  struct rm_span *gone = *link;
  if (!gone) return;
  *link = gone->next;
  free(gone);
}

/* ---- physical memory ---- */

static uint64_t page_bytes(const struct rm_memory_alloc *p) {
  static const uint64_t sizes[4] = {KIB(4), KIB(4), KIB(64), MIB(2)};
  unsigned page = p->attr >> 23 & 3, huge = p->attr2 >> 20 & 3;
  if (page == RM_PAGE_HUGE && huge == 2) return MIB(512);
  return sizes[page];
}

/* Checks NV_MEMORY_ALLOCATION_PARAMS, which several classes use. */
static uint32_t check_allocation(struct nv_machine *m, const struct rm_object *o, const struct rm_memory_alloc *p) {
  const uint32_t known = 0x1 | RM_MEMORY_FIXED_ADDRESS | RM_MEMORY_ALIGNMENT_FORCE | 0x2 | 0x4 | 0x8 |
                         RM_MEMORY_HANDLE_PROVIDED | RM_MEMORY_MAP_NOT_REQUIRED | RM_MEMORY_PERSISTENT_VIDMEM |
                         RM_MEMORY_IS_VIRTUAL;
  const char *name = o->type->name;
  if (!p->size) return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of %s: no size", name);
  if (p->size > 1ull << 48) return RM_REFUSE(m, RM_NO_MEMORY, "RM_ALLOC of %s: %" PRIu64 " bytes", name, p->size);
  if (p->alignment & (p->alignment - 1) || p->alignment > 1ull << 40)
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of %s: alignment 0x%" PRIx64 " is not a power of two", name,
                     p->alignment);
  if (p->flags & ~known)
    return RM_REFUSE(m, RM_INVALID_FLAGS, "not supported: RM_ALLOC of %s with flags 0x%x", name, p->flags & ~known);
  return RM_OK;
}

static uint32_t check_attributes(struct nv_machine *m, const struct rm_object *o, const struct rm_memory_alloc *p) {
  unsigned location = p->attr >> 25 & 3, coherency = p->attr >> 29, format = p->attr >> 16 & 3;
  bool system = o->type->class == RM_CLASS_MEMORY_SYSTEM;
  const char *name = o->type->name;
  if (p->flags & RM_MEMORY_IS_VIRTUAL)
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of %s: the flag VIRTUAL is for NV50_MEMORY_VIRTUAL", name);
  if (p->flags & RM_MEMORY_FIXED_ADDRESS)
    return RM_REFUSE(m, RM_NOT_SUPPORTED, "not supported: %s at a fixed physical address", name);
  if (system ? location != RM_LOCATION_PCI : location != RM_LOCATION_VIDMEM && location != RM_LOCATION_ANY)
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of %s: attr 0x%x has location %u", name, p->attr, location);
  if (format || coherency > RM_WRITE_BACK)
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of %s: attr 0x%x", name, p->attr);
  if (p->type > 15) return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of %s: type %u", name, p->type);
  if (p->va_space)
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of %s: physical memory has no address space", name);
  return RM_OK;
}

uint32_t nv_rm_memory_physical(struct rm_call *c, struct rm_object *o, void *params) {
  struct nv_machine *m = c->m;
  struct rm_memory_alloc *p = params;
  struct nv_gpu *gpu = o->type->class == RM_CLASS_MEMORY_LOCAL ? o->gpu : NULL;
  uint32_t status = check_allocation(m, o, p);
  if (!status) status = check_attributes(m, o, p);
  if (status) return status;
  uint64_t page = page_bytes(p), size = (p->size + page - 1) & ~(page - 1);
  const struct heap *heap = gpu ? &gpu->vram : &m->sysmem;
  o->memory.memory = nv_rm_memory_new(m, gpu, size);
  if (!o->memory.memory)
    return RM_REFUSE(m, RM_NO_MEMORY,
                     "RM_ALLOC of %s: %" PRIu64 " bytes do not fit: %" PRIu64 " of %" PRIu64 " are used", o->type->name,
                     size, heap->used, heap->size);
  o->memory.memory->read_only = p->attr2 >> 23 & 1;
  o->memory.memory->user_read_only = p->attr2 >> 22 & 1;
  p->size = size;
  p->limit = size - 1;
  p->offset = gpu ? o->memory.memory->offset : 0;
  return RM_OK;
}

uint32_t nv_rm_memory_import(struct rm_call *c, struct rm_alloc_memory *p) {
  enum { NONCONTIGUOUS = 1, LOCATION_PCI = 0, USER_READ_ONLY = 1 << 21, DEVICE_READ_ONLY = 1 << 22 };
  struct nv_machine *m = c->m;
  struct rm_object *o = NULL;
  if (p->class != RM_CLASS_OS_DESCRIPTOR)
    return RM_REFUSE(m, RM_NOT_SUPPORTED, "not supported: RM_ALLOC_MEMORY of class 0x%x", p->class);
  if (p->limit == UINT64_MAX || !p->memory || p->memory % NV_PAGE || (p->limit + 1) % NV_PAGE ||
      p->memory + p->limit < p->memory)
    return RM_REFUSE(m, RM_INVALID_ADDRESS,
                     "RM_ALLOC_MEMORY: 0x%" PRIx64 " and limit 0x%" PRIx64 " are not whole pages", p->memory, p->limit);
  if ((p->flags >> 4 & 0xf) != NONCONTIGUOUS || (p->flags >> 8 & 0xf) != LOCATION_PCI ||
      (p->flags >> 12 & 0xf) > RM_WRITE_BACK)
    return RM_REFUSE(m, RM_INVALID_FLAGS, "RM_ALLOC_MEMORY: flags 0x%x", p->flags);
  if (!p->object) return RM_REFUSE(m, RM_INVALID_OBJECT_HANDLE, "RM_ALLOC_MEMORY: the caller chooses the handle");
  bool read_only = p->flags & (USER_READ_ONLY | DEVICE_READ_ONLY);
  void *user = (void *)(uintptr_t)p->memory;
  uint8_t *host = m->base.strict ? watch_import(user, p->limit + 1) : user;
  if (host == user && !user_pages(p->memory, p->limit + 1, !read_only))
    return RM_REFUSE(m, RM_INVALID_ADDRESS, "RM_ALLOC_MEMORY: 0x%" PRIx64 "+0x%" PRIx64 " is not accessible", p->memory,
                     p->limit + 1);
  uint32_t status = nv_rm_object_new(c, p->root, p->parent, p->object, nv_rm_type_find(p->class), &o);
  if (status) return status;
  o->memory.memory = memory_new(
      (struct rm_memory){.place = RM_PLACE_USER, .size = p->limit + 1, .host = host, .fd = -1, .read_only = read_only});
  if (!o->memory.memory) {
    nv_rm_object_delete(m, o);
    return RM_NO_MEMORY;
  }
  guard_arm(); /* the client may unmap it */
  return RM_OK;
}

uint32_t nv_rm_usermode(struct rm_call *c, struct rm_object *o, void *params) {
  const struct rm_usermode_alloc *p = params;
  if (p->priv) return RM_REFUSE(c->m, RM_INSUFFICIENT_PERMISSIONS, "RM_ALLOC of %s: bPriv", o->type->name);
  if (!nv_engines_watch(o->gpu->engines)) return RM_INSUFFICIENT_RESOURCES; /* the page contains the timer */
  o->memory.memory = memory_new((struct rm_memory){.place = RM_PLACE_REGISTERS,
                                                   .gpu = o->gpu,
                                                   .size = RM_USERMODE_SIZE,
                                                   .host = (uint8_t *)o->gpu->usermode,
                                                   .fd = o->gpu->usermode_fd});
  return o->memory.memory ? RM_OK : RM_NO_MEMORY;
}

/* ---- address spaces ---- */

uint32_t nv_rm_vaspace(struct rm_call *c, struct rm_object *o, void *params) {
  enum { KNOWN_FLAGS = 0x7fff };
  struct nv_machine *m = c->m;
  struct rm_vaspace_alloc *p = params;
  uint64_t most = 1ull << (o->gpu->model->va_bits > 49 ? o->gpu->model->va_bits : 49);
  if (p->flags & ~(uint32_t)KNOWN_FLAGS)
    return RM_REFUSE(m, RM_INVALID_FLAGS, "RM_ALLOC of VASPACE: flags 0x%x", p->flags);
  if (p->index) return RM_REFUSE(m, RM_NOT_SUPPORTED, "not supported: VASPACE with index %u", p->index);
  uint64_t end = p->va_size ? p->va_base + p->va_size : most;
  if (end > most || end < p->va_base)
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of VASPACE: base 0x%" PRIx64 ", size 0x%" PRIx64, p->va_base,
                     p->va_size);
  if (p->big_page_size && p->big_page_size != KIB(64) && p->big_page_size != KIB(128))
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of VASPACE: big pages of %u bytes", p->big_page_size);
  if (!p->va_size) p->va_size = end - p->va_base;
  if (!p->big_page_size) p->big_page_size = KIB(64);
  o->vas = nv_rm_vas_new(o->gpu, p->flags & RM_VASPACE_EXTERNALLY_OWNED, p->va_base, end);
  return o->vas ? RM_OK : RM_NO_MEMORY;
}

struct rm_vas *nv_rm_vas_find(struct rm_call *c, struct rm_object *o, uint32_t handle, uint32_t *status) {
  if (handle) {
    struct rm_object *vas = nv_rm_find_kind(c->m, o->client, handle, 1u << RM_KIND_VASPACE, "hVASpace", status);
    if (vas && vas->gpu != o->gpu) {
      *status = RM_REFUSE(c->m, RM_INVALID_OBJECT_PARENT, "hVASpace 0x%x is another GPU's", handle);
      return NULL;
    }
    return vas ? nv_rm_vas_get(vas->vas) : NULL;
  }
  struct rm_object *device = rm_ancestor(o, RM_KIND_DEVICE);
  unsigned bits = o->gpu->model->va_bits > 47 ? o->gpu->model->va_bits : 47;
  if (!device->device.vas) device->device.vas = nv_rm_vas_new(o->gpu, false, NV_PAGE, 1ull << bits);
  if (!device->device.vas) *status = RM_NO_MEMORY;
  return nv_rm_vas_get(device->device.vas);
}

/* NV50_MEMORY_VIRTUAL: reserves an address range immediately. */
uint32_t nv_rm_memory_reserve(struct rm_call *c, struct rm_object *o, void *params) {
  struct nv_machine *m = c->m;
  struct rm_memory_alloc *p = params;
  uint32_t status = check_allocation(m, o, p);
  if (status) return status;
  if (!(p->flags & RM_MEMORY_IS_VIRTUAL))
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of MEMORY_VA: the flag VIRTUAL is not set");
  struct rm_vas *vas = nv_rm_vas_find(c, o, p->va_space, &status);
  if (!vas) return status;
  o->virtual.vas = vas;
  if (vas->external)
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of MEMORY_VA: the address space is externally owned");
  bool fixed = p->flags & RM_MEMORY_FIXED_ADDRESS;
  uint64_t page = page_bytes(p), size = (p->size + page - 1) & ~(page - 1), va = p->offset;
  uint64_t align = p->alignment > page ? p->alignment : page;
  if (fixed && va % page)
    return RM_REFUSE(m, RM_INVALID_OFFSET, "RM_ALLOC of MEMORY_VA: address 0x%" PRIx64 " is not page aligned", va);
  if (!nv_rm_span_take(vas, &va, size, align, fixed))
    return RM_REFUSE(m, RM_NO_MEMORY, "RM_ALLOC of MEMORY_VA: no 0x%" PRIx64 " bytes of addresses%s", size,
                     fixed ? " there" : "");
  o->virtual.reserved = true;
  o->virtual.va = p->offset = va;
  o->virtual.size = p->size = size;
  p->limit = size - 1;
  return RM_OK;
}

/* NV01_MEMORY_VIRTUAL: a window onto an address space; each mapping in it gets its own address range. */
uint32_t nv_rm_memory_window(struct rm_call *c, struct rm_object *o, void *params) {
  struct nv_machine *m = c->m;
  struct rm_memory_virtual_alloc *p = params;
  uint32_t status = RM_OK;
  struct rm_vas *vas = nv_rm_vas_find(c, o, p->va_space, &status);
  if (!vas) return status;
  o->virtual.vas = vas;
  if (vas->external)
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of MEMORY_VIRTUAL: the address space is externally owned");
  if (!p->limit || p->limit >= vas->end) p->limit = vas->end - 1;
  if (p->offset > p->limit || p->offset % NV_PAGE)
    return RM_REFUSE(m, RM_INVALID_OFFSET, "RM_ALLOC of MEMORY_VIRTUAL: offset 0x%" PRIx64, p->offset);
  o->virtual.va = p->offset;
  o->virtual.size = p->limit - p->offset + 1;
  return RM_OK;
}

void nv_rm_virtual_fini(struct nv_machine *m, struct rm_object *o) {
  nv_rm_dma_forget(m, o);
  if (o->virtual.reserved) nv_rm_span_drop(o->virtual.vas, o->virtual.va);
  nv_rm_vas_put(o->virtual.vas);
}
