/* A GPU's virtual address space: 4 KiB pages with access rights, each backed by host memory.
 *
 * Readers (waves, packet processors) take no lock and run concurrently with each other and with map and unmap. Map and
 * unmap increment a generation; a cached translation is valid only while the generation is unchanged. The caller of
 * vm_map owns the backing memory, which must outlive the mapping. */
#ifndef DOORBELL_EMU_VM_H
#define DOORBELL_EMU_VM_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "vm_range.h"

enum vm_access { VM_READ = 1, VM_WRITE = 2, VM_EXEC = 4 };

struct vm_pages;
/* Resolves addresses that have no entry in the table. */
struct vm_outside {
  bool (*find)(uint64_t va, struct vm_range *out); /* Fills *out except its generation. Returns false for a fault. */
  void (*describe)(uint64_t va, char *buf, size_t cap);
};
struct vm {
  _Atomic uint64_t generation; /* even; odd while a map or unmap is in progress */
  struct vm_pages *pages;
  const struct vm_outside *outside; /* NULL if there is none; set before the first use */
};
struct vm *vm_new(void);
void vm_free(struct vm *vm);
/* va and size are in bytes and page aligned. Returns 0, -EINVAL, -EEXIST if any page is mapped already, or -ENOMEM. tag
 * appears in messages (allocation handle). */
int vm_map(struct vm *vm, uint64_t va, uint64_t size, void *backing, unsigned access, uint64_t tag);
int vm_unmap(struct vm *vm, uint64_t va, uint64_t size);

/* Finds the mapping that contains va, extended by neighbours with the same rights that continue in the same backing.
 * Returns false if there is none; *out then matches no address. A zeroed vm_range is an empty cache. */
bool vm_find(struct vm *vm, uint64_t va, struct vm_range *out);
/* The generation, which every map and unmap increments. Relaxed load. */
static inline uint64_t vm_generation(struct vm *vm) {
  return atomic_load_explicit(&vm->generation, memory_order_relaxed);
}

/* Translates [va, va+size) through the caller's cache. Returns a host pointer, or NULL if the range is not mapped with
 * the rights in access. Also returns NULL for a range that crosses two mappings unless they share one backing; callers
 * then split the access. */
static inline void *vm_translate(struct vm *vm, struct vm_range *cache, uint64_t va, uint64_t size, unsigned access) {
  uint64_t off = va - cache->va, len = cache->end - cache->va;
  if (__builtin_expect(cache->generation != vm_generation(vm) || off >= len || size > len - off, 0)) {
    if (!vm_find(vm, va, cache) || size > cache->end - va) return NULL;
  }
  return (access & ~cache->access) ? NULL : (void *)(va + cache->delta);
}
/* Copy byte by byte across any mappings. Return false on a fault and store the first faulting address in *fault. */
bool vm_read(struct vm *vm, uint64_t va, void *dst, size_t n, uint64_t *fault);
bool vm_write(struct vm *vm, uint64_t va, const void *src, size_t n, uint64_t *fault);
/* Describes the mapping nearest to va for messages: "0x40 bytes after the 4096-byte allocation at 0x7f...". */
void vm_describe(struct vm *vm, uint64_t va, char *buf, size_t cap);
#endif
