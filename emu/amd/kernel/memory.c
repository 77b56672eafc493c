/* KFD's memory calls: allocate, map on GPUs, unmap, free; and mmap of a buffer through the render node. Rules as in
 * Linux kfd_chardev.c and amdgpu_amdkfd_gpuvm.c, interface 1.17. */
#define _GNU_SOURCE
#include "process.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "../../guard.h"
#include "../../watch.h"

/* A client maps a buffer at offset (index + 1) << BO_OFFSET_SHIFT of the render node. No heap is larger than this
 * step. */
enum { BO_OFFSET_SHIFT = 36 };
#define VA_MIN 0x10000ull /* AMDGPU_VA_RESERVED_BOTTOM */
#define VA_END (1ull << 47)

static uint64_t bo_handle(const struct amd_bo *bo) { return (uint64_t)bo->gpu->gpu_id << 32 | bo->index; }

struct amd_bo *amd_bo_find(struct amd_machine *m, uint64_t handle) {
  uint32_t index = (uint32_t)handle;
  struct amd_bo *bo = index < m->nbos ? m->bos[index] : NULL;
  return bo && bo_handle(bo) == handle ? bo : NULL;
}

struct amd_bo *amd_bo_at(struct amd_gpu *gpu, uint64_t va, uint64_t size) {
  struct amd_machine *m = gpu->machine;
  struct vm_range r;
  if (!vm_find(gpu->vm, va, &r) || r.tag >= m->nbos || !m->bos[r.tag]) return NULL;
  /* Adjacent mappings may be joined in r; the tag is that of the mapping that contains va. */
  struct amd_bo *bo = m->bos[r.tag];
  return bo->va == (va & ~(uint64_t)(AMD_PAGE - 1)) && (!size || bo->size == size) ? bo : NULL;
}

/* Allocates a slot of the handle table; slot 0 is never used. */
static int bo_insert(struct amd_machine *m, struct amd_bo *bo) {
  size_t i = m->free_bo ? m->free_bo : 1;
  while (i < m->nbos && m->bos[i]) i++;
  if (i >= m->nbos) {
    size_t n = m->nbos ? m->nbos * 2 : 64;
    struct amd_bo **bos = realloc(m->bos, n * sizeof(struct amd_bo *));
    if (!bos) return -ENOMEM;
    memset(bos + m->nbos, 0, (n - m->nbos) * sizeof(struct amd_bo *));
    m->bos = bos;
    m->nbos = n;
  }
  bo->index = (unsigned)i;
  m->bos[i] = bo;
  m->free_bo = i + 1;
  return 0;
}

static void bo_delete(struct amd_machine *m, struct amd_bo *bo) {
  if (bo->heap && m->base.strict && bo->flags & KFD_MEM_VRAM) race_memory(bo->host, bo->size, NULL);
  if (bo->heap) heap_free(bo->heap, bo->heap_offset, bo->size, bo->host);
  if (bo->index) {
    m->bos[bo->index] = NULL;
    if (bo->index < m->free_bo) m->free_bo = bo->index;
  }
  free(bo);
}

void amd_memory_fini(struct amd_machine *m) {
  for (size_t i = 0; i < m->nbos; i++)
    if (m->bos[i]) bo_delete(m, m->bos[i]);
  free(m->bos);
}

static int place_user(struct amd_machine *m, struct amd_bo *bo, uint64_t address) {
  if (!address || address % AMD_PAGE || address + bo->size < address)
    return emu_refuse(&m->base, -EINVAL, "ALLOC_MEMORY_OF_GPU: user address 0x%" PRIx64 " is not page aligned",
                      address);
  void *user = (void *)(uintptr_t)address;
  bo->host = m->base.strict ? watch_import(user, bo->size) : user;
  if (bo->host == user && !user_pages(address, bo->size, bo->flags & KFD_MEM_WRITABLE))
    return emu_refuse(&m->base, -EFAULT,
                      "ALLOC_MEMORY_OF_GPU: user memory 0x%" PRIx64 "+0x%" PRIx64 " is not accessible", address,
                      bo->size);
  guard_arm(); /* the client may unmap it */
  return 0;
}

static int place_heap(struct amd_machine *m, struct amd_bo *bo, struct heap *heap) {
  int rc = heap_alloc(heap, bo->size, &bo->heap_offset, &bo->host);
  if (rc)
    return emu_refuse(&m->base, rc,
                      "ALLOC_MEMORY_OF_GPU: %" PRIu64 " bytes do not fit: %" PRIu64 " of %" PRIu64 " are used",
                      bo->size, heap->used, heap->size);
  bo->heap = heap;
  if (m->base.strict && bo->flags & KFD_MEM_VRAM) race_memory(bo->host, bo->size, bo->gpu->mmio_page);
  return 0;
}

static int place_register_page(struct amd_machine *m, struct amd_bo *bo, void *page, uint64_t size) {
  if (bo->size != size)
    return emu_refuse(&m->base, -EINVAL, "ALLOC_MEMORY_OF_GPU: this register page has %" PRIu64 " bytes", size);
  bo->host = page;
  return 0;
}

int amd_alloc_memory(struct amd_machine *m, void *arg) {
  struct kfd_alloc_memory *a = arg;
  const uint32_t kinds = KFD_MEM_VRAM | KFD_MEM_GTT | KFD_MEM_USERPTR | KFD_MEM_DOORBELL | KFD_MEM_MMIO_REMAP;
  const uint32_t known = kinds | KFD_MEM_EXT_COHERENT | KFD_MEM_UNCACHED | KFD_MEM_COHERENT | KFD_MEM_AQL_QUEUE |
                         KFD_MEM_NO_SUBSTITUTE | KFD_MEM_PUBLIC | KFD_MEM_EXECUTABLE | KFD_MEM_WRITABLE | 1u << 23;
  struct amd_gpu *gpu = amd_gpu_find(m, a->gpu_id);
  if (!gpu) return emu_refuse(&m->base, -EINVAL, "ALLOC_MEMORY_OF_GPU: no gpu_id %u", a->gpu_id);
  if (!a->size || a->va_addr % AMD_PAGE)
    return emu_refuse(&m->base, -EINVAL,
                      "ALLOC_MEMORY_OF_GPU: va 0x%" PRIx64 " is not page aligned or size 0x%" PRIx64 " is 0",
                      a->va_addr, a->size);
  /* A partial page counts as a whole page. */
  uint64_t size = a->size > VA_END ? a->size : (a->size + AMD_PAGE - 1) & ~(uint64_t)(AMD_PAGE - 1);
  if (a->va_addr < VA_MIN || a->va_addr >= VA_END || size > VA_END - a->va_addr)
    return emu_refuse(&m->base, -EINVAL,
                      "ALLOC_MEMORY_OF_GPU: va 0x%" PRIx64 " size 0x%" PRIx64 " is outside the GPU's address space",
                      a->va_addr, a->size);
  if (a->flags & ~known || __builtin_popcount(a->flags & kinds) != 1)
    return emu_refuse(&m->base, -EINVAL, "ALLOC_MEMORY_OF_GPU: flags 0x%x", a->flags);
  if (a->flags & KFD_MEM_AQL_QUEUE)
    return emu_refuse(&m->base, -EOPNOTSUPP, "not supported: memory mapped twice for AQL queues");
  if (!gpu->acquired) return emu_refuse(&m->base, -ENODEV, "ALLOC_MEMORY_OF_GPU: ACQUIRE_VM comes first");

  struct amd_bo *bo = calloc(1, sizeof *bo);
  if (!bo) return -ENOMEM;
  bo->gpu = gpu;
  bo->va = a->va_addr;
  bo->size = size;
  bo->flags = a->flags;
  int rc = a->flags & KFD_MEM_VRAM       ? place_heap(m, bo, &gpu->vram)
           : a->flags & KFD_MEM_GTT      ? place_heap(m, bo, &m->gtt)
           : a->flags & KFD_MEM_USERPTR  ? place_user(m, bo, a->mmap_offset)
           : a->flags & KFD_MEM_DOORBELL ? place_register_page(m, bo, (void *)gpu->doorbells, KFD_DOORBELL_MAP_SIZE)
                                         : place_register_page(m, bo, gpu->mmio_page, AMD_PAGE);
  if (!rc) rc = bo_insert(m, bo);
  if (rc) {
    bo_delete(m, bo);
    return rc;
  }
  a->handle = bo_handle(bo);
  /* Clients map the doorbell page and the register page through /dev/kfd. */
  if (bo->heap)
    a->mmap_offset = (uint64_t)(bo->index + 1) << BO_OFFSET_SHIFT;
  else if (a->flags & KFD_MEM_DOORBELL)
    a->mmap_offset = (uint64_t)KFD_MMAP_DOORBELL << 62 | (uint64_t)gpu->gpu_id << 46;
  else if (a->flags & KFD_MEM_MMIO_REMAP)
    a->mmap_offset = (uint64_t)KFD_MMAP_MMIO << 62 | (uint64_t)gpu->gpu_id << 46;
  return 0;
}

int amd_free_memory(struct amd_machine *m, void *arg) {
  const struct kfd_free_memory *a = arg;
  struct amd_bo *bo = amd_bo_find(m, a->handle);
  if (!bo) return emu_refuse(&m->base, -EINVAL, "FREE_MEMORY_OF_GPU: no handle 0x%" PRIx64, a->handle);
  if (bo == m->events.page_bo)
    return emu_refuse(&m->base, -EPERM, "FREE_MEMORY_OF_GPU: 0x%" PRIx64 " is the event page, until the process ends",
                      a->handle);
  if (bo->mapped)
    return emu_refuse(&m->base, -EBUSY, "FREE_MEMORY_OF_GPU: 0x%" PRIx64 " is still mapped on a GPU", a->handle);
  if (bo->pins) return emu_refuse(&m->base, -EBUSY, "FREE_MEMORY_OF_GPU: 0x%" PRIx64 " is used by a queue", a->handle);
  bo_delete(m, bo);
  return 0;
}

/* Applies one() to the GPUs of a list. n_success counts the GPUs that are done, so the client can repeat an interrupted
 * call. */
static int for_each_gpu(struct amd_machine *m, struct kfd_map_memory *a, const char *call,
                        int (*one)(struct amd_machine *m, struct amd_bo *bo, struct amd_gpu *gpu)) {
  struct amd_bo *bo = amd_bo_find(m, a->handle);
  uint32_t ids[AMD_MAX_GPUS];
  if (!a->n_devices || a->n_devices > AMD_MAX_GPUS)
    return emu_refuse(&m->base, -EINVAL, "%s: n_devices %u", call, a->n_devices);
  if (a->n_success > a->n_devices)
    return emu_refuse(&m->base, -EINVAL, "%s: n_success %u of %u", call, a->n_success, a->n_devices);
  if (user_read(ids, a->device_ids_array_ptr, a->n_devices * sizeof ids[0]))
    return emu_refuse(&m->base, -EFAULT, "%s: device_ids_array_ptr 0x%" PRIx64, call, a->device_ids_array_ptr);
  if (!bo) return emu_refuse(&m->base, -EINVAL, "%s: no handle 0x%" PRIx64, call, a->handle);
  for (; a->n_success < a->n_devices; a->n_success++) {
    struct amd_gpu *gpu = amd_gpu_find(m, ids[a->n_success]);
    if (!gpu || !gpu->acquired)
      return emu_refuse(&m->base, -EINVAL, "%s: no gpu_id %u with an acquired VM", call, ids[a->n_success]);
    int rc = one(m, bo, gpu);
    if (rc) return rc;
  }
  return 0;
}

static int map_one(struct amd_machine *m, struct amd_bo *bo, struct amd_gpu *gpu) {
  if (bo->mapped & 1u << gpu->index) return 0;
  if (!m->base.peers && bo->gpu != gpu && bo->flags & (KFD_MEM_VRAM | KFD_MEM_DOORBELL | KFD_MEM_MMIO_REMAP))
    return emu_refuse(&m->base, -EINVAL, "MAP_MEMORY_TO_GPU: GPU %u does not reach memory of GPU %u", gpu->index,
                      bo->gpu->index);
  unsigned access =
      VM_READ | (bo->flags & KFD_MEM_WRITABLE ? VM_WRITE : 0u) | (bo->flags & KFD_MEM_EXECUTABLE ? VM_EXEC : 0u);
  int rc = vm_map(gpu->vm, bo->va, bo->size, bo->host, access, bo->index);
  if (rc == -EEXIST)
    return emu_refuse(&m->base, -EINVAL, "MAP_MEMORY_TO_GPU: 0x%" PRIx64 "+0x%" PRIx64 " overlaps another mapping",
                      bo->va, bo->size);
  if (rc) return emu_refuse(&m->base, rc, "MAP_MEMORY_TO_GPU: 0x%" PRIx64 "+0x%" PRIx64, bo->va, bo->size);
  bo->mapped |= 1u << gpu->index;
  return 0;
}

static int unmap_one(struct amd_machine *m, struct amd_bo *bo, struct amd_gpu *gpu) {
  if (!(bo->mapped & 1u << gpu->index)) return 0;
  int rc = vm_unmap(gpu->vm, bo->va, bo->size);
  if (rc) return emu_refuse(&m->base, rc, "UNMAP_MEMORY_FROM_GPU: 0x%" PRIx64 "+0x%" PRIx64, bo->va, bo->size);
  bo->mapped &= ~(1u << gpu->index);
  return 0;
}

int amd_map_memory(struct amd_machine *m, void *arg) { return for_each_gpu(m, arg, "MAP_MEMORY_TO_GPU", map_one); }

int amd_unmap_memory(struct amd_machine *m, void *arg) {
  struct kfd_map_memory *a = arg;
  struct amd_bo *bo = amd_bo_find(m, a->handle);
  if (bo && !bo->mapped)
    return emu_refuse(&m->base, -EINVAL, "UNMAP_MEMORY_FROM_GPU: 0x%" PRIx64 " is not mapped", a->handle);
  if (bo && bo->pins)
    return emu_refuse(&m->base, -EBUSY, "UNMAP_MEMORY_FROM_GPU: 0x%" PRIx64 " is used by a queue or as event page",
                      a->handle);
  return for_each_gpu(m, a, "UNMAP_MEMORY_FROM_GPU", unmap_one);
}

int amd_available_memory(struct amd_machine *m, void *arg) {
  struct kfd_available_memory *a = arg;
  struct amd_gpu *gpu = amd_gpu_find(m, a->gpu_id);
  if (!gpu) return emu_refuse(&m->base, -EINVAL, "AVAILABLE_MEMORY: no gpu_id %u", a->gpu_id);
  const uint64_t fragment = 2 << 20;
  a->available = (gpu->vram.size - gpu->vram.used) / fragment * fragment;
  return 0;
}

void *amd_bo_mmap(struct amd_machine *m, unsigned gpu, void *addr, size_t len, int prot, int flags, uint64_t off) {
  uint64_t index = (off >> BO_OFFSET_SHIFT) - 1, within = off & ((1ull << BO_OFFSET_SHIFT) - 1);
  struct amd_bo *bo = index < m->nbos ? m->bos[index] : NULL;
  int rc = 0;
  if (!bo || !bo->heap || within % AMD_PAGE || within > bo->size || len > bo->size - within)
    rc = emu_refuse(&m->base, -EINVAL, "mmap: no buffer at render node offset 0x%" PRIx64 " of %zu bytes", off, len);
  else if (bo->gpu->index != gpu)
    rc = emu_refuse(&m->base, -EACCES, "mmap: the buffer belongs to another GPU");
  else if ((flags & MAP_TYPE) != MAP_SHARED && prot != PROT_NONE)
    rc = emu_refuse(&m->base, -EINVAL, "mmap: a buffer is mapped MAP_SHARED");
  if (rc || !bo || !bo->heap) return (void *)(intptr_t)rc;
  void *p = mmap(addr, len, prot, flags, bo->heap->fd, (off_t)(bo->heap_offset + within));
  if (p == MAP_FAILED) return (void *)(intptr_t)-errno;
  if (m->base.strict)
    watch_map(p, len, prot, bo->host + within, bo->flags & KFD_MEM_VRAM ? WATCH_WINDOW : WATCH_MEMORY);
  return p;
}
