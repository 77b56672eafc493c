/* Backing memory of an emulated GPU: a first-fit page allocator over a sparse memory file. */
#define _GNU_SOURCE
#include "gpu.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int amd_heap_init(struct amd_heap *h, const char *name, uint64_t size) {
  int rc = -ENOMEM;
  *h = (struct amd_heap){.fd = -1, .size = size};
  h->mapped = calloc((size + AMD_HEAP_CHUNK - 1) / AMD_HEAP_CHUNK, 1);
  h->gaps = malloc(16 * sizeof h->gaps[0]);
  if (!h->mapped || !h->gaps) goto fail;
  h->cap = 16;
  h->gaps[h->ngaps++] = (struct amd_extent){0, size};
  h->fd = memfd_create(name, MFD_CLOEXEC);
  if (h->fd < 0 || ftruncate(h->fd, (off_t)size)) {
    rc = -errno;
    goto fail;
  }
  void *base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    rc = -errno;
    goto fail;
  }
  h->base = base;
  return 0;
fail:
  amd_heap_fini(h);
  return rc;
}

void amd_heap_fini(struct amd_heap *h) {
  if (h->base) munmap(h->base, h->size);
  if (h->fd > 0) close(h->fd);
  free(h->mapped);
  free(h->gaps);
  *h = (struct amd_heap){.fd = -1};
}

/* The emulator's own view of [offset, offset + size). */
static int map_chunks(struct amd_heap *h, uint64_t offset, uint64_t size) {
  for (uint64_t c = offset / AMD_HEAP_CHUNK; c * AMD_HEAP_CHUNK < offset + size; c++) {
    if (h->mapped[c]) continue;
    uint64_t at = c * AMD_HEAP_CHUNK, n = h->size - at < AMD_HEAP_CHUNK ? h->size - at : AMD_HEAP_CHUNK;
    void *p = mmap(h->base + at, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, h->fd, (off_t)at);
    if (p == MAP_FAILED) return -errno;
    h->mapped[c] = 1;
  }
  return 0;
}

int amd_heap_alloc(struct amd_heap *h, uint64_t size, uint64_t *offset) {
  size_t i = 0;
  while (i < h->ngaps && h->gaps[i].size < size) i++;
  if (i == h->ngaps) return -ENOMEM;
  struct amd_extent *gap = &h->gaps[i];
  int rc = map_chunks(h, gap->offset, size);
  if (rc) return rc;
  *offset = gap->offset;
  gap->offset += size;
  gap->size -= size;
  if (!gap->size) memmove(gap, gap + 1, (--h->ngaps - i) * sizeof *gap);
  h->used += size;
  return 0;
}

void amd_heap_free(struct amd_heap *h, uint64_t offset, uint64_t size) {
  if (fallocate(h->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size))
    memset(h->base + offset, 0, size);
  h->used -= size;
  size_t i = 0;
  while (i < h->ngaps && h->gaps[i].offset < offset) i++;
  bool joins_left = i > 0 && h->gaps[i - 1].offset + h->gaps[i - 1].size == offset;
  bool joins_right = i < h->ngaps && offset + size == h->gaps[i].offset;
  if (joins_left && joins_right) {
    h->gaps[i - 1].size += size + h->gaps[i].size;
    memmove(&h->gaps[i], &h->gaps[i + 1], (--h->ngaps - i) * sizeof h->gaps[0]);
  } else if (joins_left) {
    h->gaps[i - 1].size += size;
  } else if (joins_right) {
    h->gaps[i].offset = offset;
    h->gaps[i].size += size;
  } else {
    if (h->ngaps == h->cap) {
      struct amd_extent *gaps = realloc(h->gaps, (2 * h->cap + 1) * sizeof *gaps);
      if (!gaps) return; /* the pages are lost to this heap, nothing else */
      h->gaps = gaps;
      h->cap *= 2;
    }
    memmove(&h->gaps[i + 1], &h->gaps[i], (h->ngaps++ - i) * sizeof h->gaps[0]);
    h->gaps[i] = (struct amd_extent){offset, size};
  }
}
