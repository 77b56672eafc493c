/* A GPU's page table: sorted disjoint mappings, which readers access without a lock through a sequence count.
 *
 * A writer holds a mutex, makes the generation odd, edits the array and makes the generation even again. A reader
 * copies the entry and starts over if the generation has changed. All entry fields are relaxed atomics, so torn reads
 * are possible but discarded. The release fence of edit_begin pairs with the acquire fence of vm_find, and the release
 * store of edit_end with its acquire load of the generation. Outgrown arrays stay allocated until vm_free because a
 * reader may still use one; arrays double, so this at most doubles the memory. */
#include "vm.h"
#include "race.h"
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VM_PAGE = 4096 };

struct vm_entry {
  _Atomic uint64_t va, end, delta, tag, access;
};

struct vm_array {
  struct vm_array *outgrown;
  size_t cap;
  struct vm_entry at[];
};

struct vm_pages {
  struct vm vm;
  pthread_mutex_t lock;
  _Atomic(struct vm_array *) array;
  _Atomic size_t count;
};

#define GET(x)    atomic_load_explicit(&(x), memory_order_relaxed)
#define SET(x, v) atomic_store_explicit(&(x), (v), memory_order_relaxed)

static struct vm_array *array_new(size_t cap, struct vm_array *outgrown) {
  struct vm_array *a = calloc(1, sizeof *a + cap * sizeof a->at[0]);
  if (a) a->cap = cap, a->outgrown = outgrown;
  return a;
}

struct vm *vm_new(void) {
  struct vm_pages *p = calloc(1, sizeof *p);
  struct vm_array *a = array_new(64, NULL);
  if (!p || !a) {
    free(p);
    free(a);
    return NULL;
  }
  pthread_mutex_init(&p->lock, NULL);
  p->vm.pages = p;
  /* Caches start zeroed, so no current generation may be 0. Two address spaces must not share a generation, because a
   * cache that outlives its address space must not match the next one. */
  static _Atomic uint64_t spaces;
  SET(p->vm.generation, (1 + atomic_fetch_add_explicit(&spaces, 1, memory_order_relaxed)) << 40);
  SET(p->array, a);
  return &p->vm;
}

void vm_free(struct vm *vm) {
  if (!vm) return;
  struct vm_pages *p = vm->pages;
  for (struct vm_array *a = GET(p->array), *next; a; a = next) {
    next = a->outgrown;
    free(a);
  }
  pthread_mutex_destroy(&p->lock);
  free(p);
}

static void edit_begin(struct vm_pages *p) {
  SET(p->vm.generation, GET(p->vm.generation) + 1);
  atomic_thread_fence(memory_order_release);
}
static void edit_end(struct vm_pages *p) {
  atomic_store_explicit(&p->vm.generation, GET(p->vm.generation) + 1, memory_order_release);
}

static void entry_copy(struct vm_entry *to, const struct vm_entry *from) {
  SET(to->va, GET(from->va));
  SET(to->end, GET(from->end));
  SET(to->delta, GET(from->delta));
  SET(to->tag, GET(from->tag));
  SET(to->access, GET(from->access));
}

/* Returns the index of the first entry that ends after va. */
static size_t first_after(const struct vm_array *a, size_t count, uint64_t va) {
  size_t lo = 0, hi = count;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if (GET(a->at[mid].end) <= va)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

/* Makes room for extra more entries. The caller holds the lock and is outside an edit. */
static int reserve(struct vm_pages *p, size_t extra) {
  struct vm_array *a = GET(p->array);
  size_t count = GET(p->count);
  if (count + extra <= a->cap) return 0;
  struct vm_array *bigger = array_new(a->cap * 2, a);
  if (!bigger) return -ENOMEM;
  for (size_t i = 0; i < count; i++) entry_copy(&bigger->at[i], &a->at[i]);
  atomic_store_explicit(&p->array, bigger, memory_order_release);
  return 0;
}

/* Replaces drop entries at index i by add unset ones; the caller sets their fields. */
static void splice(struct vm_pages *p, size_t i, size_t drop, size_t add) {
  struct vm_array *a = GET(p->array);
  size_t count = GET(p->count), tail = count - i - drop;
  if (add > drop)
    for (size_t k = tail; k-- > 0;) entry_copy(&a->at[i + add + k], &a->at[i + drop + k]);
  else if (add < drop)
    for (size_t k = 0; k < tail; k++) entry_copy(&a->at[i + add + k], &a->at[i + drop + k]);
  SET(p->count, count + add - drop);
}

static bool page_range_ok(uint64_t va, uint64_t size) {
  return size && va % VM_PAGE == 0 && size % VM_PAGE == 0 && va + size > va;
}

int vm_map(struct vm *vm, uint64_t va, uint64_t size, void *backing, unsigned access, uint64_t tag) {
  if (!page_range_ok(va, size)) return -EINVAL;
  struct vm_pages *p = vm->pages;
  pthread_mutex_lock(&p->lock);
  int rc = reserve(p, 1);
  struct vm_array *a = GET(p->array);
  size_t count = GET(p->count), i = first_after(a, count, va);
  if (!rc && i < count && GET(a->at[i].va) < va + size) rc = -EEXIST;
  if (!rc) {
    edit_begin(p);
    splice(p, i, 0, 1);
    struct vm_entry *e = &a->at[i];
    SET(e->va, va);
    SET(e->end, va + size);
    SET(e->delta, (uintptr_t)backing - va);
    SET(e->tag, tag);
    SET(e->access, access);
    edit_end(p);
  }
  pthread_mutex_unlock(&p->lock);
  return rc;
}

int vm_unmap(struct vm *vm, uint64_t va, uint64_t size) {
  if (!page_range_ok(va, size)) return -EINVAL;
  struct vm_pages *p = vm->pages;
  uint64_t end = va + size;
  pthread_mutex_lock(&p->lock);
  /* Unmapping the middle of a mapping leaves two mappings. */
  int rc = reserve(p, 1);
  struct vm_array *a = GET(p->array);
  size_t count = GET(p->count), first = first_after(a, count, va), last = first;
  uint64_t covered = va;
  while (!rc && covered < end) {
    if (last == count || GET(a->at[last].va) > covered)
      rc = -EINVAL;
    else
      covered = GET(a->at[last++].end);
  }
  if (!rc) {
    struct vm_entry *head = &a->at[first], *tail = &a->at[last - 1];
    bool keep_head = GET(head->va)<va, keep_tail = GET(tail->end)> end;
    edit_begin(p);
    struct vm_entry old_tail;
    entry_copy(&old_tail, tail);
    size_t keep = (size_t)keep_head + (size_t)keep_tail;
    splice(p, first, last - first, keep);
    if (keep_head) SET(a->at[first].end, va);
    if (keep_tail) {
      struct vm_entry *e = &a->at[first + keep - 1];
      entry_copy(e, &old_tail);
      SET(e->va, end);
    }
    edit_end(p);
  }
  pthread_mutex_unlock(&p->lock);
  return rc;
}

bool vm_find(struct vm *vm, uint64_t va, struct vm_range *out) {
  struct vm_pages *p = vm->pages;
  for (unsigned tries = 0;; tries++) {
    uint64_t generation = atomic_load_explicit(&vm->generation, memory_order_acquire);
    if (generation & 1) {
      if (tries > 64) sched_yield();
      continue;
    }
    const struct vm_array *a = atomic_load_explicit(&p->array, memory_order_acquire);
    size_t count = GET(p->count);
    /* During an edit array and count may not match; the generation check below discards the result. */
    if (count > a->cap) count = a->cap;
    size_t i = first_after(a, count, va);
    bool found = i < count && GET(a->at[i].va) <= va;
    *out = (struct vm_range){0};
    if (found) {
      const struct vm_entry *e = &a->at[i];
      *out =
          (struct vm_range){GET(e->va), GET(e->end), GET(e->delta), (unsigned)GET(e->access), GET(e->tag), generation};
      for (size_t k = i + 1; k < count; k++) {
        const struct vm_entry *n = &a->at[k];
        if (GET(n->va) != out->end || GET(n->delta) != out->delta || GET(n->access) != out->access) break;
        out->end = GET(n->end);
      }
    }
    atomic_thread_fence(memory_order_acquire);
    if (GET(vm->generation) != generation) continue;
    if (found || !vm->outside || !vm->outside->find(va, out)) return found;
    out->generation = generation;
    return true;
  }
}

static bool copy(struct vm *vm, uint64_t va, void *host, size_t n, unsigned access, uint64_t *fault) {
  struct vm_range range = {0};
  uint8_t *at = host;
  while (n) {
    if (!vm_find(vm, va, &range) || (access & ~range.access)) {
      if (fault) *fault = va;
      return false;
    }
    size_t part = n < range.end - va ? n : (size_t)(range.end - va);
    void *guest = (void *)(va + range.delta);
    race_touch(guest, part, access);
    if (access == VM_WRITE)
      memcpy(guest, at, part);
    else
      memcpy(at, guest, part);
    at += part;
    va += part;
    n -= part;
  }
  return true;
}

bool vm_read(struct vm *vm, uint64_t va, void *dst, size_t n, uint64_t *fault) {
  return copy(vm, va, dst, n, VM_READ, fault);
}

bool vm_write(struct vm *vm, uint64_t va, const void *src, size_t n, uint64_t *fault) {
  return copy(vm, va, (void *)src, n, VM_WRITE, fault);
}

void vm_describe(struct vm *vm, uint64_t va, char *buf, size_t cap) {
  struct vm_pages *p = vm->pages;
  if (vm->outside) {
    vm->outside->describe(va, buf, cap);
    return;
  }
  pthread_mutex_lock(&p->lock);
  const struct vm_array *a = GET(p->array);
  size_t count = GET(p->count), i = first_after(a, count, va);
  const struct vm_entry *best = NULL;
  uint64_t distance = UINT64_MAX;
  if (i > 0) best = &a->at[i - 1], distance = va - GET(best->end);
  if (i < count) {
    uint64_t start = GET(a->at[i].va), gap = start > va ? start - va : 0;
    if (gap <= distance) best = &a->at[i];
  }
  if (!best)
    snprintf(buf, cap, "nothing is mapped");
  else {
    uint64_t start = GET(best->va), end = GET(best->end), access = GET(best->access);
    char rights[4] = {access & VM_READ ? 'r' : '-', access & VM_WRITE ? 'w' : '-', access & VM_EXEC ? 'x' : '-', 0};
    const char *where = va < start ? "before" : va >= end ? "after" : "into";
    uint64_t off = va < start ? start - va : va >= end ? va - end : va - start;
    snprintf(buf, cap, "0x%" PRIx64 " bytes %s the %" PRIu64 "-byte allocation at 0x%" PRIx64 " (%s)", off, where,
             end - start, start, rights);
  }
  pthread_mutex_unlock(&p->lock);
}
