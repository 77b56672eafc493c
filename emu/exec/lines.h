/* The 128-byte lines of global memory that a dispatch accesses, each counted once: the data that must come from memory
 * or go there, however often it is accessed. Reads and writes are counted separately. */
#ifndef DOORBELL_EMU_LINES_H
#define DOORBELL_EMU_LINES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../detail.h"

struct emu_caches;

enum { EMU_RECENT_PAGES = 8 };

struct emu_lines { /* zero-initialized */
  struct emu_page {
    uint64_t key;  /* 1 + page number * 2 + written; 0 if free */
    uint32_t bits; /* one bit per line of the page */
  } *pages;        /* open addressing */
  size_t n, capacity;
  struct emu_page *recent[EMU_RECENT_PAGES]; /* by key */
  struct emu_caches *caches;                 /* a model that counts in the detail of each access, or NULL */
};
/* Most accesses are by all lanes or none; without the host's instruction for it, popcount is a call. */
static inline uint64_t emu_lanes_in(uint32_t mask) {
  return mask == UINT32_MAX ? 32 : mask ? (uint64_t)__builtin_popcount(mask) : 0;
}

/* Counts one access of `bytes` bytes per lane at the lanes' addresses: adds the numbers of distinct lines and sectors
 * to d, and the lines to l. Either may be NULL. A lane has at most 32 bytes, without d at most 128. */
void emu_lines_access(struct emu_lines *l, struct emu_detail *d, const uint64_t *at, uint32_t lanes, unsigned bytes,
                      bool loads, bool stores);
void emu_lines_add(struct emu_lines *to, const struct emu_lines *from);
uint64_t emu_lines_bytes(const struct emu_lines *l);
void emu_lines_free(struct emu_lines *l);
#endif
