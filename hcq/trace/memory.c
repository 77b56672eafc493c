/* Memory that a host and a device share, and its changes from one event to the next. */
#include "trace.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096, WORD = 4 };

static void remove_region(struct os_trace_memory *m, size_t i) {
  free(m->regions[i].snapshot);
  m->regions[i] = m->regions[--m->n];
}

/* Removes every region that overlaps [at, at + size). Drivers replace or unmap a mapping as a whole, so no part of a
 * region remains in use. */
void os_trace_memory_remove(struct os_trace_memory *m, void *at, size_t size) {
  uintptr_t first = (uintptr_t)at, last = first + size;
  for (size_t i = m->n; i--;) {
    uintptr_t from = (uintptr_t)m->regions[i].live;
    if (from < last && from + m->regions[i].size > first) remove_region(m, i);
  }
}

/* Adds a region of zeros as known contents, rounded up to whole blocks. */
int os_trace_memory_add(struct os_trace_memory *m, void *at, size_t size) {
  size = (size + BLOCK - 1) / BLOCK * BLOCK;
  os_trace_memory_remove(m, at, size);
  struct os_trace_region *more = realloc(m->regions, (m->n + 1) * sizeof *more);
  if (more) m->regions = more;
  uint8_t *known = more ? calloc(1, size) : NULL;
  if (!known) return -ENOMEM;
  more[m->n++] = (struct os_trace_region){at, known, size};
  return 0;
}

void os_trace_memory_free(struct os_trace_memory *m) {
  while (m->n) remove_region(m, m->n - 1);
  free(m->regions);
  *m = (struct os_trace_memory){0};
}

struct os_trace_region *os_trace_memory_find(struct os_trace_memory *m, uint64_t address, uint64_t size) {
  for (size_t i = 0; i < m->n; i++) {
    struct os_trace_region *r = &m->regions[i];
    uint64_t offset = address - (uint64_t)(uintptr_t)r->live;
    if (offset < r->size && size <= r->size - offset) return r;
  }
  return NULL;
}

/* Appends one run of changed words with their present contents. The device may write concurrently; the bytes appended
 * are those stored in known. */
static void append_run(struct os_trace_region *r, size_t from, size_t to, struct os_trace_bytes *out) {
  uint64_t address = (uint64_t)(uintptr_t)(r->live + from);
  uint32_t size = (uint32_t)(to - from);
  memcpy(r->snapshot + from, r->live + from, size);
  os_trace_append(out, &address, 8);
  os_trace_append(out, &size, 4);
  os_trace_append(out, r->snapshot + from, size);
}

static size_t changed_until(const struct os_trace_region *r, size_t at, size_t end) {
  while (at < end && memcmp(r->live + at, r->snapshot + at, WORD) != 0) at += WORD;
  return at;
}

void os_trace_memory_changes(struct os_trace_memory *m, struct os_trace_bytes *out) {
  os_tsan_ignore_begin();
  for (size_t i = 0; i < m->n; i++) {
    struct os_trace_region *r = &m->regions[i];
    for (size_t block = 0; block < r->size; block += BLOCK) {
      size_t end = r->size - block < BLOCK ? r->size : block + BLOCK;
      if (!memcmp(r->live + block, r->snapshot + block, end - block)) continue;
      for (size_t at = block; at < end;) {
        size_t to = changed_until(r, at, end);
        if (to > at) append_run(r, at, to, out);
        at = to > at ? to : at + WORD;
      }
    }
  }
  os_tsan_ignore_end();
}
