#include "steps.h"
#include <stdlib.h>
#include <string.h>

struct emu_traced *emu_steps_search(struct emu_steps *s, const void *inst) {
  for (unsigned i = 0; i < s->n; i++)
    if ((size_t)((const char *)inst - s->traced[i].first) < s->traced[i].bytes) return s->last = &s->traced[i];
  return NULL;
}

/* Makes room for another trace. */
static bool grow(struct emu_steps *s) {
  if (s->n < s->capacity) return true;
  unsigned capacity = s->capacity ? 2 * s->capacity : 4;
  struct emu_traced *traced = realloc(s->traced, capacity * sizeof *traced);
  if (!traced) return false;
  memset(traced + s->capacity, 0, (capacity - s->capacity) * sizeof *traced);
  s->traced = traced, s->capacity = capacity, s->last = NULL;
  return true;
}

void emu_steps_add(struct emu_steps *s, const void *first, uint32_t n, size_t size, const struct emu_kind *kinds) {
  if (emu_steps_find(s, first) || !grow(s)) return;
  struct emu_traced *t = &s->traced[s->n];
  if (n + 2 > t->capacity) { /* a run that a fault ends may include the instruction after the last one */
    free(t->step);
    t->step = calloc(n + 2, sizeof *t->step);
    t->capacity = t->step ? n + 2 : 0;
    if (!t->step) return;
  }
  t->first = first, t->size = size, t->bytes = (n + 1) * size, t->kinds = kinds;
  t->low = UINT32_MAX, t->high = 0;
  s->last = t, s->n++;
}

static void add_step(struct emu_detail *d, const struct emu_kind *kind, const struct emu_step *sum, bool all) {
  uint64_t executed = (uint64_t)sum->executed;
  d->executed[kind->class] += executed;
  if (!all) return;
  d->approximate += kind->approximate ? executed : 0;
  d->matrix_blocks += kind->matrix_blocks * executed;
  if (kind->class < EMU_VALU_CLASS) return;
  d->vector += executed, d->lanes += (uint64_t)sum->lanes, d->partial += (uint64_t)sum->partial;
}

static void add_site(struct emu_site *site, const struct emu_kind *kind, const struct emu_step *sum) {
  if (!site) return;
  site->executed += (uint64_t)sum->executed;
  if (kind->class >= EMU_VALU_CLASS) site->lanes += (uint64_t)sum->lanes;
}

static void finish_trace(struct emu_traced *t, struct emu_detail *d, bool all, struct emu_sites *sites,
                         emu_site_of *site) {
  struct emu_step sum = {0};
  for (uint32_t i = t->low; i < t->high; i++) {
    struct emu_step *s = &t->step[i];
    sum.executed += s->executed, sum.lanes += s->lanes, sum.partial += s->partial;
    *s = (struct emu_step){0};
    if (!sum.executed || t->kinds[i].class == EMU_CLASS_COUNT) continue;
    add_step(d, &t->kinds[i], &sum, all);
    if (sites) add_site(site(sites, t->first + i * t->size), &t->kinds[i], &sum);
  }
  t->step[t->high] = (struct emu_step){0};
}

void emu_steps_finish(struct emu_steps *s, struct emu_detail *d, bool all, struct emu_sites *sites, emu_site_of *site) {
  for (unsigned i = 0; i < s->n; i++) finish_trace(&s->traced[i], d, all, sites, site);
  s->n = 0, s->last = NULL;
}

void emu_steps_free(struct emu_steps *s) {
  for (unsigned i = 0; i < s->capacity; i++) free(s->traced[i].step);
  free(s->traced);
  *s = (struct emu_steps){0};
}
