/* A hash table from page to a mask of its lines. */
#include "lines.h"
#include "caches.h"
#include <stdlib.h>

enum { PAGE_LINES = 32, LANES = 32 };

static struct emu_page *find_slot(const struct emu_lines *l, uint64_t key) {
  size_t at = key * UINT64_C(0x9e3779b97f4a7c15) >> 20 & (l->capacity - 1);
  while (l->pages[at].key && l->pages[at].key != key) at = (at + 1) & (l->capacity - 1);
  return &l->pages[at];
}

static bool grow_table(struct emu_lines *l) {
  struct emu_lines old = *l;
  l->capacity = old.capacity ? 2 * old.capacity : 64;
  l->pages = calloc(l->capacity, sizeof *l->pages);
  l->last = NULL;
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
  if (!l->last || l->last->key != key) {
    if (2 * l->n >= l->capacity && !grow_table(l)) return;
    l->last = find_slot(l, key);
    l->n += !l->last->key;
    l->last->key = key;
  }
  l->last->bits |= bits;
}

/* The sectors of a line that the bytes from first to end are in: one bit for each. */
static uint8_t sectors_of(uint64_t first, uint64_t end, uint64_t line) {
  uint64_t start = line * EMU_LINE, low = first > start ? (first - start) / EMU_SECTOR : 0;
  uint64_t high = end - start < EMU_LINE ? (end - start) / EMU_SECTOR : EMU_LINE / EMU_SECTOR - 1;
  return (uint8_t)((2u << high) - (1u << low));
}

/* The distinct lines of one access. */
struct touched {
  uint64_t line[2 * LANES];
  uint8_t sectors[2 * LANES]; /* of each line: a bit for each */
  unsigned n;
};

static void find_lines(struct touched *t, const uint64_t *at, uint32_t lanes, unsigned bytes) {
  unsigned i = 0;
  for (uint32_t m = lanes; m; m &= m - 1) {
    uint64_t first = at[__builtin_ctz(m)], end = first + bytes - 1, line = first / EMU_LINE;
    if (i < t->n && t->line[i] == line && end / EMU_LINE == line) {
      t->sectors[i] |= sectors_of(first, end, line);
      continue;
    }
    for (; line <= end / EMU_LINE; line++) {
      for (i = 0; i < t->n && t->line[i] != line;) i++;
      if (i == 2 * LANES) continue;
      t->sectors[i] = (uint8_t)((i < t->n ? t->sectors[i] : 0) | sectors_of(first, end, line));
      if (i == t->n) t->line[t->n++] = line;
    }
  }
}

/* Most accesses are dense: each lane's bytes follow those of the lane before. Written for vectorization. */
static bool is_dense(const uint64_t *at, uint32_t lanes, unsigned bytes) {
  uint64_t differs = 0;
  if (lanes != UINT32_MAX) return false;
  for (unsigned l = 0; l < LANES; l++) differs |= at[l] ^ (at[0] + (uint64_t)l * bytes);
  return !differs;
}

static void find_dense(struct touched *t, uint64_t first, unsigned bytes) {
  uint64_t end = first + (uint64_t)LANES * bytes - 1;
  for (uint64_t line = first / EMU_LINE; line <= end / EMU_LINE && t->n < 2 * LANES; line++, t->n++)
    t->line[t->n] = line, t->sectors[t->n] = sectors_of(first, end, line);
}

void emu_lines_access(struct emu_lines *l, struct emu_detail *d, const uint64_t *at, uint32_t lanes, unsigned bytes,
                      bool loads, bool stores) {
  struct touched t;
  if (!bytes) return;
  t.n = 0;
  if (is_dense(at, lanes, bytes))
    find_dense(&t, at[0], bytes);
  else
    find_lines(&t, at, lanes, bytes);
  for (unsigned i = 0; l && i < t.n; i++) {
    uint64_t key = 1 + t.line[i] / PAGE_LINES * 2;
    uint32_t bit = UINT32_C(1) << t.line[i] % PAGE_LINES;
    if (loads) mark_lines(l, key, bit);
    if (stores) mark_lines(l, key + 1, bit);
  }
  if (!d) return;
  if (l && l->caches) emu_caches_access(l->caches, d, t.line, t.n, loads, stores);
  d->lines += t.n;
  static const uint8_t sectors_in[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};
  for (unsigned i = 0; i < t.n; i++) d->sectors += sectors_in[t.sectors[i] % 16];
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
