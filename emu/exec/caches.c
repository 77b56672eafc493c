#include "caches.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lines.h"

static int cache_init(struct emu_cache *c, uint32_t kib, uint32_t ways) {
  uint32_t sets = kib * 1024 / EMU_LINE / ways;
  *c = (struct emu_cache){sets, ways, UINT64_MAX / sets, NULL};
  c->line = calloc((size_t)c->sets * ways, sizeof *c->line);
  return c->line ? 0 : -ENOMEM;
}

/* Returns number % c->sets. The multiplication gives the quotient, or one less. */
static uint64_t set_of(const struct emu_cache *c, uint64_t number) {
  uint64_t quotient = (uint64_t)((unsigned __int128)number * c->inverse >> 64), rest = number - quotient * c->sets;
  return rest < c->sets ? rest : rest - c->sets;
}

/* Returns whether the cache has the line, and makes it the most recently used one of its set. */
static bool cache_access(struct emu_cache *c, uint64_t number) {
  uint64_t *set = &c->line[set_of(c, number) * c->ways], key = number + 1, moved = set[0];
  set[0] = key;
  for (uint32_t i = 1; moved != key; i++) { /* moves the lines before it, or all if it is not there */
    if (i == c->ways) return false;
    uint64_t next = set[i];
    set[i] = moved, moved = next;
  }
  return true;
}

int emu_caches_init(struct emu_caches *c, const struct emu_cache_model *model) {
  *c = (struct emu_caches){.model = model};
  int err = cache_init(&c->l1, model->l1_kib, model->l1_ways);
  return err ? err : cache_init(&c->l2, model->l2_kib, model->l2_ways);
}

void emu_caches_free(struct emu_caches *c) {
  free(c->l1.line);
  free(c->l2.line);
  *c = (struct emu_caches){0};
}

void emu_caches_begin(struct emu_caches *c) {
  memset(c->l1.line, 0, (size_t)c->l1.sets * c->l1.ways * sizeof *c->l1.line);
}

uint32_t emu_caches_access(struct emu_caches *c, struct emu_detail *d, uint64_t first, uint32_t bits, bool stores,
                           uint32_t slowest) {
  const struct emu_cache_model *m = c->model;
  for (; bits; bits &= bits - 1) {
    uint64_t line = first + (unsigned)__builtin_ctz(bits);
    uint32_t cycles;
    if (!stores && cache_access(&c->l1, line))
      d->l1_hits++, cycles = m->l1_cycles;
    else if (cache_access(&c->l2, line))
      d->l2_hits++, cycles = m->l2_cycles;
    else
      d->memory_lines++, cycles = m->memory_cycles;
    if (cycles > slowest) slowest = cycles;
  }
  return slowest;
}
