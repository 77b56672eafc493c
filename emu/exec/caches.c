#include "caches.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lines.h"

static int cache_init(struct emu_cache *c, uint32_t kib, uint32_t ways) {
  *c = (struct emu_cache){kib * 1024 / EMU_LINE / ways, ways, NULL};
  c->line = calloc((size_t)c->sets * ways, sizeof *c->line);
  return c->line ? 0 : -ENOMEM;
}

/* Returns whether the line is there; afterwards it is. */
static bool cache_access(struct emu_cache *c, uint64_t number) {
  uint64_t *set = &c->line[number % c->sets * c->ways], key = number + 1;
  uint32_t i = 0;
  while (i < c->ways - 1 && set[i] != key) i++;
  bool hit = set[i] == key;
  memmove(set + 1, set, i * sizeof *set);
  set[0] = key;
  return hit;
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

void emu_caches_access(struct emu_caches *c, struct emu_detail *d, const uint64_t *lines, unsigned n, bool loads,
                       bool stores) {
  const struct emu_cache_model *m = c->model;
  uint32_t slowest = 0;
  for (unsigned i = 0; i < n; i++) {
    uint32_t cycles;
    if (!stores && cache_access(&c->l1, lines[i]))
      d->l1_hits++, cycles = m->l1_cycles;
    else if (cache_access(&c->l2, lines[i]))
      d->l2_hits++, cycles = m->l2_cycles;
    else
      d->memory_lines++, cycles = m->memory_cycles;
    if (cycles > slowest) slowest = cycles;
  }
  if (loads) d->wait_cycles += slowest;
}
