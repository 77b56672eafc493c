/* A hash table from page to a mask of its lines. */
#include "lines.h"
#include "access.h"
#include "caches.h"
#include <stdlib.h>
#include <string.h>

enum { PAGE_LINES = 32, LANES = 32, SECTOR_SHIFT = 5 };

static struct emu_page *find_slot(const struct emu_lines *l, uint64_t key) {
  size_t at = key * UINT64_C(0x9e3779b97f4a7c15) >> 20 & (l->capacity - 1);
  while (l->pages[at].key && l->pages[at].key != key) at = (at + 1) & (l->capacity - 1);
  return &l->pages[at];
}

static bool grow_table(struct emu_lines *l) {
  struct emu_lines old = *l;
  l->capacity = old.capacity ? 2 * old.capacity : 64;
  l->pages = calloc(l->capacity, sizeof *l->pages);
  memset(l->recent, 0, sizeof l->recent);
  if (!l->pages) {
    *l = old;
    return false;
  }
  for (size_t i = 0; i < old.capacity; i++)
    if (old.pages[i].key) *find_slot(l, old.pages[i].key) = old.pages[i];
  free(old.pages);
  return true;
}

/* If memory for the table is out, the lines are not counted. */
static void mark_lines(struct emu_lines *l, uint64_t key, uint32_t bits) {
  struct emu_page **recent = &l->recent[key % EMU_RECENT_PAGES];
  if (!*recent || (*recent)->key != key) {
    if (2 * l->n >= l->capacity && !grow_table(l)) return;
    *recent = find_slot(l, key);
    l->n += !(*recent)->key;
    (*recent)->key = key;
  }
  (*recent)->bits |= bits;
}

/* ---- one access ---- */

enum { PAGE_BYTES = PAGE_LINES * EMU_LINE, WORDS = PAGE_BYTES / EMU_SECTOR / 64 };

/* The sectors of a page that an access touches: one bit for each. */
struct touched_page {
  uint64_t number, sectors[WORDS];
};
struct touched {
  struct touched_page page[2 * LANES];
  unsigned n;
};

/* Sets the bits of the sectors that contain the bytes from first to end. */
static inline void add_sectors(uint64_t sectors[WORDS], uint64_t first, uint64_t end) {
  uint64_t from = first % PAGE_BYTES / EMU_SECTOR, to = end % PAGE_BYTES / EMU_SECTOR;
  sectors[from / 64] |= UINT64_C(1) << from % 64;
  sectors[to / 64] |= UINT64_C(1) << to % 64;
}

static struct touched_page *find_page(struct touched *t, uint64_t number) {
  for (unsigned i = t->n; i-- > 0;)
    if (t->page[i].number == number) return &t->page[i];
  t->page[t->n] = (struct touched_page){.number = number};
  return &t->page[t->n++];
}

static void find_sectors(struct touched *t, const uint64_t *at, uint32_t lanes, unsigned bytes) {
  t->n = 0;
  for (uint32_t m = lanes; m; m &= m - 1) {
    uint64_t first = at[__builtin_ctz(m)], end = first + bytes - 1, edge = end / PAGE_BYTES * PAGE_BYTES;
    bool crosses = first < edge;
    add_sectors(find_page(t, first / PAGE_BYTES)->sectors, first, crosses ? edge - 1 : end);
    if (crosses) add_sectors(find_page(t, edge / PAGE_BYTES)->sectors, edge, end);
  }
}

static uint64_t count_ones(uint64_t x) {
  x -= x >> 1 & 0x5555555555555555;
  x = (x & 0x3333333333333333) + (x >> 2 & 0x3333333333333333);
  return ((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f) * 0x0101010101010101 >> 56;
}

/* Returns a bit for each of 16 lines, from four bits for each. */
static uint32_t lines_of(uint64_t sectors) {
  uint64_t x = sectors | sectors >> 1;
  x = (x | x >> 2) & 0x1111111111111111;
  x = (x | x >> 3) & 0x0303030303030303;
  x = (x | x >> 6) & 0x000f000f000f000f;
  x = (x | x >> 12) & 0x000000ff000000ff;
  return (uint32_t)((x | x >> 24) & 0xffff);
}

void emu_lines_access(struct emu_lines *l, struct emu_detail *d, const uint64_t *at, uint32_t lanes, unsigned bytes,
                      bool loads, bool stores) {
  struct touched t;
  uint32_t slowest = 0;
  if (!bytes || !lanes) return;
  uint32_t first = lanes; /* lanes that touch other sectors than the active lane before them; most do not */
  if (lanes & (lanes - 1)) first &= emu_access_level()->elsewhere(at, bytes, SECTOR_SHIFT) | ~(lanes << 1);
  find_sectors(&t, at, first, bytes);
  for (unsigned i = 0; i < t.n; i++) {
    const struct touched_page *p = &t.page[i];
    uint32_t bits = lines_of(p->sectors[0]) | lines_of(p->sectors[1]) << 16;
    if (l && loads) mark_lines(l, 1 + p->number * 2, bits);
    if (l && stores) mark_lines(l, 2 + p->number * 2, bits);
    if (!d) continue;
    d->lines += count_ones(bits);
    d->sectors += count_ones(p->sectors[0]) + count_ones(p->sectors[1]);
    if (l && l->caches) slowest = emu_caches_access(l->caches, d, p->number * PAGE_LINES, bits, stores, slowest);
  }
  if (d && loads) d->wait_cycles += slowest;
}

void emu_lines_add(struct emu_lines *to, const struct emu_lines *from) {
  for (size_t i = 0; i < from->capacity; i++)
    if (from->pages[i].key) mark_lines(to, from->pages[i].key, from->pages[i].bits);
}

uint64_t emu_lines_bytes(const struct emu_lines *l) {
  uint64_t n = 0;
  for (size_t i = 0; i < l->capacity; i++) n += (unsigned)__builtin_popcount(l->pages[i].bits);
  return n * EMU_LINE;
}

void emu_lines_free(struct emu_lines *l) {
  free(l->pages);
  *l = (struct emu_lines){0};
}
