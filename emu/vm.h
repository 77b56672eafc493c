/* A GPU's virtual address space: 4 KiB pages, each backed by host memory, with access rights.
 *
 * Readers (waves, packet processors) take no lock and run concurrently with each other and with map and unmap, which
 * bump a generation that cached translations check. Backing memory belongs to whoever mapped it and must outlive the
 * mapping. */
#ifndef DOORBELL_EMU_VM_H
#define DOORBELL_EMU_VM_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vm_access { VM_READ = 1, VM_WRITE = 2, VM_EXEC = 4 };

struct vm_pages;
struct vm_range;
/* Memory that nobody mapped: asked for addresses that the table does not have. */
struct vm_outside {
  bool (*find)(uint64_t va, struct vm_range *out); /* everything but the generation; false: a fault */
  void (*describe)(uint64_t va, char *buf, size_t cap);
};
struct vm {
  _Atomic uint64_t generation; /* even; odd while a map or unmap is under way */
  struct vm_pages *pages;
  const struct vm_outside *outside; /* NULL: nothing; set before first use */
};
struct vm *vm_new(void);
void vm_free(struct vm *vm);
/* va and size in bytes, page aligned. 0, -EINVAL, -EEXIST when any page is mapped already, -ENOMEM. tag: for messages
 * (allocation handle). */
int vm_map(struct vm *vm, uint64_t va, uint64_t size, void *backing, unsigned access, uint64_t tag);
int vm_unmap(struct vm *vm, uint64_t va, uint64_t size);

/* One contiguous translation, valid while vm_generation is unchanged. */
struct vm_range {
  uint64_t va, end; /* [va, end) */
  uintptr_t delta;  /* host address = va + delta */
  unsigned access;
  uint64_t tag, generation;
};
/* The mapping that holds va, joined with neighbours of the same rights that continue in the same backing; false when
 * there is none, and *out then matches nothing. A zeroed vm_range is an empty cache. */
bool vm_find(struct vm *vm, uint64_t va, struct vm_range *out);
/* Bumped by every map and unmap; relaxed load. */
static inline uint64_t vm_generation(struct vm *vm) {
  return atomic_load_explicit(&vm->generation, memory_order_relaxed);
}

/* Translation through a caller's cache: host pointer for [va, va+size) with the rights asked, or NULL (fault). Accesses
 * that straddle two mappings return NULL too unless adjacent mappings share one backing; callers then split them. */
static inline void *vm_translate(struct vm *vm, struct vm_range *cache, uint64_t va, uint64_t size, unsigned access) {
  uint64_t off = va - cache->va, len = cache->end - cache->va;
  if (__builtin_expect(cache->generation != vm_generation(vm) || off >= len || size > len - off, 0)) {
    if (!vm_find(vm, va, cache) || size > cache->end - va) return NULL;
  }
  return (access & ~cache->access) ? NULL : (void *)(va + cache->delta);
}
/* Byte-wise copies across any mappings; the first faulting address in *fault. Return false on a fault. */
bool vm_read(struct vm *vm, uint64_t va, void *dst, size_t n, uint64_t *fault);
bool vm_write(struct vm *vm, uint64_t va, const void *src, size_t n, uint64_t *fault);
/* The mapping nearest to va, for messages: "0x40 bytes after the 4096-byte allocation at 0x7f...". */
void vm_describe(struct vm *vm, uint64_t va, char *buf, size_t cap);
#endif
