/* UVM's external ranges and their mappings per GPU. Rules as in NVIDIA open-gpu-kernel-modules (uvm_va_range.c,
 * nv_uvm_map_external.c). */
#include "uvm.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* The end of the addresses that ranges can have, which are also valid on the CPU. */
#define UVM_END (1ull << 49)

/* ---- ranges ---- */

/* Returns the link to the first range that ends after va. */
static struct uvm_range **range_after(struct uvm_space *s, uint64_t va) {
  struct uvm_range **link = &s->ranges;
  while (*link && (*link)->base + (*link)->size <= va) link = &(*link)->next;
  return link;
}

/* Returns the external range that contains all of [base, base + size), or NULL. */
static struct uvm_range *range_of(struct uvm_space *s, uint64_t base, uint64_t size) {
  struct uvm_range *r = *range_after(s, base);
  return r && !r->channel && base >= r->base && size <= r->size - (base - r->base) ? r : NULL;
}

static bool whole_pages(uint64_t base, uint64_t size) {
  return size && base % NV_PAGE == 0 && size % NV_PAGE == 0 && base < UVM_END && size <= UVM_END - base;
}

uint32_t nv_uvm_range_add(struct uvm_space *s, uint64_t base, uint64_t size, bool channel, const char *call) {
  if (!base || !size || base % NV_PAGE || size % NV_PAGE || base + size < base)
    return RM_REFUSE(s->m, RM_INVALID_ADDRESS, "%s: 0x%" PRIx64 "+0x%" PRIx64 " is not a range of whole pages", call,
                     base, size);
  struct uvm_range **link = range_after(s, base);
  if (*link && (*link)->base - base < size && (*link)->base + (*link)->size > base)
    return RM_REFUSE(s->m, RM_UVM_ADDRESS_IN_USE, "%s: 0x%" PRIx64 "+0x%" PRIx64 " overlaps 0x%" PRIx64 "+0x%" PRIx64,
                     call, base, size, (*link)->base, (*link)->size);
  if (*link && (*link)->base <= base)
    return RM_REFUSE(s->m, RM_UVM_ADDRESS_IN_USE, "%s: 0x%" PRIx64 " is in 0x%" PRIx64 "+0x%" PRIx64, call, base,
                     (*link)->base, (*link)->size);
  struct uvm_range *r = malloc(sizeof *r);
  if (!r) return RM_NO_MEMORY;
  *r = (struct uvm_range){.next = *link, .base = base, .size = size, .channel = channel};
  *link = r;
  return RM_OK;
}

static void map_drop(struct uvm_space *s, struct uvm_map **link) {
  struct uvm_map *map = *link;
  vm_unmap(s->vas[map->gpu->index]->vm, map->va, map->size);
  nv_rm_memory_put(map->memory);
  *link = map->next;
  free(map);
}

void nv_uvm_range_remove(struct uvm_space *s, uint64_t base) {
  struct uvm_range **link = range_after(s, base), *r = *link;
  if (!r) return;
  while (r->maps) map_drop(s, &r->maps);
  *link = r->next;
  free(r);
}

uint32_t nv_uvm_create_range(struct uvm_space *s, uint64_t base, uint64_t size) {
  if (!whole_pages(base, size))
    return RM_REFUSE(s->m, RM_INVALID_ADDRESS,
                     "UVM_CREATE_EXTERNAL_RANGE: 0x%" PRIx64 "+0x%" PRIx64 " is not a range of whole pages", base,
                     size);
  return nv_uvm_range_add(s, base, size, false, "UVM_CREATE_EXTERNAL_RANGE");
}

uint32_t nv_uvm_free_range(struct uvm_space *s, uint64_t base, uint64_t size, bool sized) {
  struct uvm_range *r = range_of(s, base, 1);
  if (!r || r->base != base || (sized && r->size != size))
    return RM_REFUSE(s->m, RM_INVALID_ADDRESS, "UVM_FREE: 0x%" PRIx64 "+0x%" PRIx64 " is not an external range", base,
                     size);
  nv_uvm_range_remove(s, base);
  return RM_OK;
}

uint32_t nv_uvm_validate(struct uvm_space *s, uint64_t base, uint64_t size) {
  return whole_pages(base, size) && range_of(s, base, size)
             ? RM_OK
             : RM_REFUSE(s->m, RM_INVALID_ADDRESS, "UVM_VALIDATE_VA_RANGE: 0x%" PRIx64 "+0x%" PRIx64, base, size);
}

/* ---- mappings ---- */

static int map_in_vas(struct uvm_space *s, const struct uvm_map *map) {
  return vm_map(s->vas[map->gpu->index]->vm, map->va, map->size, map->memory->host + map->offset, map->access,
                map->handle);
}

/* Removes a GPU's mappings of [va, end) from a range and splits mappings that cross its ends. */
static uint32_t unmap_part(struct uvm_space *s, struct uvm_range *r, const struct nv_gpu *gpu, uint64_t va,
                           uint64_t end) {
  for (struct uvm_map **link = &r->maps; *link;) {
    struct uvm_map *map = *link, *tail = NULL;
    uint64_t map_end = map->va + map->size;
    if (map->gpu != gpu || map->va >= end || map_end <= va) {
      link = &map->next;
      continue;
    }
    if (map->va >= va && map_end <= end) {
      map_drop(s, link);
      continue;
    }
    if (map->va < va && map_end > end && !(tail = malloc(sizeof *tail))) return RM_NO_MEMORY;
    uint64_t from = map->va > va ? map->va : va, to = map_end < end ? map_end : end;
    vm_unmap(s->vas[gpu->index]->vm, from, to - from);
    if (tail) {
      *tail = *map;
      nv_rm_memory_get(tail->memory);
      tail->va = end, tail->size = map_end - end, tail->offset += end - map->va;
      map->next = tail;
    }
    if (map->va < va) {
      map->size = va - map->va;
    } else {
      map->offset += end - map->va;
      map->size = map_end - end;
      map->va = end;
    }
    link = &map->next;
  }
  return RM_OK;
}

void nv_uvm_unmap_gpu(struct uvm_space *s, const struct nv_gpu *gpu, const struct nv_gpu *peer) {
  for (struct uvm_range *r = s->ranges; r; r = r->next)
    for (struct uvm_map **link = &r->maps; *link;)
      if ((*link)->gpu == gpu && (!peer || (*link)->memory->gpu == peer))
        map_drop(s, link);
      else
        link = &(*link)->next;
}

static uint32_t map_on(struct uvm_space *s, struct uvm_range *r, const struct uvm_map_external_allocation *p,
                       const struct rm_object *o, const struct uvm_mapping *attributes) {
  const char *call = "UVM_MAP_EXTERNAL_ALLOCATION";
  struct rm_memory *mem = o->memory.memory;
  struct nv_gpu *gpu = nv_uvm_gpu(s, &attributes->uuid, call);
  if (!gpu) return RM_INVALID_DEVICE;
  struct rm_vas *vas = s->vas[gpu->index];
  if (!vas) return RM_REFUSE(s->m, RM_INVALID_DEVICE, "%s: the GPU has no registered address space", call);
  if (mem->place == RM_PLACE_VIDMEM && mem->gpu != gpu && !(s->peers[gpu->index] & 1u << mem->gpu->index))
    return RM_REFUSE(s->m, RM_INVALID_DEVICE, "%s: peer access to the GPU that has 0x%x is not enabled", call,
                     p->memory);
  if (attributes->mapping > UVM_MAPPING_READ_ONLY || attributes->caching > 2 || attributes->format ||
      attributes->element_bits || attributes->compression)
    return RM_REFUSE(s->m, RM_INVALID_ARGUMENT, "%s: mapping type %u, caching type %u, format %u, %u, %u", call,
                     attributes->mapping, attributes->caching, attributes->format, attributes->element_bits,
                     attributes->compression);
  if (p->base < vas->base || p->base + p->length > vas->end)
    return RM_REFUSE(s->m, RM_INVALID_ADDRESS, "%s: 0x%" PRIx64 "+0x%" PRIx64 " is outside the GPU's address space",
                     call, p->base, p->length);
  uint32_t status = unmap_part(s, r, gpu, p->base, p->base + p->length);
  if (status) return status;
  struct uvm_map *map = malloc(sizeof *map);
  if (!map) return RM_NO_MEMORY;
  bool read_only = attributes->mapping == UVM_MAPPING_READ_ONLY || mem->read_only;
  *map = (struct uvm_map){.next = r->maps,
                          .gpu = gpu,
                          .memory = mem,
                          .va = p->base,
                          .size = p->length,
                          .offset = p->offset,
                          .access = VM_READ | VM_EXEC | (read_only ? 0u : (unsigned)VM_WRITE),
                          .handle = o->handle};
  int rc = map_in_vas(s, map);
  if (rc) {
    free(map);
    return RM_REFUSE(s->m, rc == -EEXIST ? RM_UVM_ADDRESS_IN_USE : RM_NO_MEMORY,
                     "%s: 0x%" PRIx64 "+0x%" PRIx64 " cannot be mapped", call, p->base, p->length);
  }
  nv_rm_memory_get(mem);
  r->maps = map;
  return RM_OK;
}

uint32_t nv_uvm_map_external(struct uvm_space *s, struct uvm_map_external_allocation *p) {
  const char *call = "UVM_MAP_EXTERNAL_ALLOCATION";
  uint32_t status = RM_OK;
  if (!p->gpu_count || p->gpu_count > 256)
    return RM_REFUSE(s->m, RM_INVALID_ARGUMENT, "%s: %" PRIu64 " GPUs", call, p->gpu_count);
  if (!whole_pages(p->base, p->length) || p->offset % NV_PAGE)
    return RM_REFUSE(s->m, RM_INVALID_ADDRESS, "%s: 0x%" PRIx64 "+0x%" PRIx64 ", offset 0x%" PRIx64, call, p->base,
                     p->length, p->offset);
  struct uvm_range *r = range_of(s, p->base, p->length);
  if (!r)
    return RM_REFUSE(s->m, RM_INVALID_ADDRESS, "%s: 0x%" PRIx64 "+0x%" PRIx64 " is not in an external range", call,
                     p->base, p->length);
  struct rm_object *client = nv_uvm_client(s, p->rm_ctrl_fd, p->client, call);
  if (!client) return RM_INVALID_CLIENT;
  struct rm_object *o = nv_rm_find_kind(s->m, client, p->memory, 1u << RM_KIND_MEMORY, call, &status);
  if (!o) return status;
  uint64_t size = o->memory.memory->size;
  if (p->offset > size || p->length > size - p->offset)
    return RM_REFUSE(s->m, RM_INVALID_OFFSET, "%s: 0x%" PRIx64 "+0x%" PRIx64 " of 0x%" PRIx64 " bytes", call, p->offset,
                     p->length, size);
  for (uint64_t i = 0; i < p->gpu_count && !status; i++) status = map_on(s, r, p, o, &p->gpus[i]);
  return status;
}

uint32_t nv_uvm_unmap(struct uvm_space *s, const struct uvm_unmap_external *p) {
  struct nv_gpu *gpu = nv_uvm_gpu(s, &p->uuid, "UVM_UNMAP_EXTERNAL");
  if (!gpu) return RM_INVALID_DEVICE;
  struct uvm_range *r = whole_pages(p->base, p->length) ? range_of(s, p->base, p->length) : NULL;
  if (!r || !s->vas[gpu->index])
    return RM_REFUSE(s->m, RM_INVALID_ADDRESS,
                     "UVM_UNMAP_EXTERNAL: 0x%" PRIx64 "+0x%" PRIx64 " is not in an external range", p->base, p->length);
  return unmap_part(s, r, gpu, p->base, p->base + p->length);
}
