/* Backing memory of emulated GPUs: a first-fit page allocator over a sparse memory file.
 *
 * The emulator maps the file in windows, each when it is first used, and keeps them mapped; so it uses address space in
 * proportion to memory. An allocation that does not fit into one window gets a separate mapping, which is also kept for
 * later allocations at the same offset. */
#define _GNU_SOURCE
#include "heap.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "own_fd.h"

int heap_init(struct heap *h, const char *name, uint64_t size) {
  int rc = -ENOMEM;
  *h = (struct heap){.fd = -1, .size = size, .nwindows = (size_t)((size + HEAP_WINDOW - 1) / HEAP_WINDOW)};
  h->windows = calloc(h->nwindows, sizeof h->windows[0]);
  h->gaps = malloc(16 * sizeof h->gaps[0]);
  if (!h->windows || !h->gaps) goto fail;
  h->cap = 16;
  h->gaps[h->ngaps++] = (struct heap_extent){0, size};
  h->fd = own_fd_memory(name, size);
  if (h->fd >= 0) return 0;
  rc = h->fd;
fail:
  heap_fini(h);
  return rc;
}

static uint64_t window_bytes(const struct heap *h, size_t window) {
  uint64_t left = h->size - window * HEAP_WINDOW;
  return left < HEAP_WINDOW ? left : HEAP_WINDOW;
}

void heap_fini(struct heap *h) {
  for (size_t i = 0; h->windows && i < h->nwindows; i++)
    if (h->windows[i]) munmap(h->windows[i], window_bytes(h, i));
  for (struct heap_view *v = h->views, *next; v; v = next) {
    next = v->next;
    munmap(v->host, v->size);
    free(v);
  }
  own_fd_close(h->fd);
  free(h->windows);
  free(h->gaps);
  *h = (struct heap){.fd = -1};
}

static int map_pages(struct heap *h, uint64_t offset, uint64_t size, uint8_t **host) {
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, h->fd, (off_t)offset);
  if (p == MAP_FAILED) return -errno;
  *host = p;
  return 0;
}

static bool in_one_window(uint64_t offset, uint64_t size) {
  return offset / HEAP_WINDOW == (offset + size - 1) / HEAP_WINDOW;
}

/* Returns the emulator's mapping of [offset, offset + size). */
static int find_view(struct heap *h, uint64_t offset, uint64_t size, uint8_t **host) {
  if (in_one_window(offset, size)) {
    size_t w = (size_t)(offset / HEAP_WINDOW);
    int rc = h->windows[w] ? 0 : map_pages(h, w * HEAP_WINDOW, window_bytes(h, w), &h->windows[w]);
    if (!rc) *host = h->windows[w] + offset % HEAP_WINDOW;
    return rc;
  }
  struct heap_view *v = h->views;
  while (v && (v->offset != offset || v->size < size)) v = v->next;
  if (!v) {
    v = malloc(sizeof *v);
    if (!v) return -ENOMEM;
    *v = (struct heap_view){.next = h->views, .offset = offset, .size = size};
    int rc = map_pages(h, offset, size, &v->host);
    if (rc) {
      free(v);
      return rc;
    }
    h->views = v;
  }
  *host = v->host;
  return 0;
}

/* Chooses the offset of size bytes in a gap: its start, or the next window if that avoids crossing windows. Returns
 * false if they do not fit. */
static bool fit_in_gap(const struct heap_extent *gap, uint64_t size, uint64_t *offset) {
  *offset = gap->offset;
  if (size <= HEAP_WINDOW && !in_one_window(*offset, size)) {
    uint64_t next = (*offset / HEAP_WINDOW + 1) * HEAP_WINDOW;
    if (next - gap->offset + size <= gap->size) *offset = next;
  }
  return *offset - gap->offset + size <= gap->size;
}

static int insert_gap(struct heap *h, size_t i, struct heap_extent gap) {
  if (h->ngaps == h->cap) {
    struct heap_extent *gaps = realloc(h->gaps, (2 * h->cap + 1) * sizeof *gaps);
    if (!gaps) return -ENOMEM;
    h->gaps = gaps;
    h->cap = 2 * h->cap + 1;
  }
  memmove(&h->gaps[i + 1], &h->gaps[i], (h->ngaps++ - i) * sizeof h->gaps[0]);
  h->gaps[i] = gap;
  return 0;
}

int heap_alloc(struct heap *h, uint64_t size, uint64_t *offset, uint8_t **host) {
  size_t i = 0;
  while (i < h->ngaps && !fit_in_gap(&h->gaps[i], size, offset)) i++;
  if (i == h->ngaps) return -ENOMEM;
  int rc = find_view(h, *offset, size, host);
  if (rc) return rc;
  struct heap_extent before = {h->gaps[i].offset, *offset - h->gaps[i].offset};
  struct heap_extent after = {*offset + size, h->gaps[i].size - before.size - size};
  if (before.size && after.size) {
    if (insert_gap(h, i + 1, after)) return -ENOMEM;
    h->gaps[i] = before;
  } else if (before.size || after.size) {
    h->gaps[i] = before.size ? before : after;
  } else {
    memmove(&h->gaps[i], &h->gaps[i + 1], (--h->ngaps - i) * sizeof h->gaps[0]);
  }
  h->used += size;
  return 0;
}

void heap_free(struct heap *h, uint64_t offset, uint64_t size, uint8_t *host) {
  if (fallocate(h->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size)) memset(host, 0, size);
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
    /* If memory for the entry is out, the pages are lost to this heap; nothing else is affected. */
    (void)insert_gap(h, i, (struct heap_extent){offset, size});
  }
}
