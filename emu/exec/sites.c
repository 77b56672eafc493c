#include "sites.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int emu_sites_init(struct emu_sites *s, const char *gpu) {
  const struct emu_cache_model *model = emu_cache_model(gpu);
  *s = (struct emu_sites){0};
  int err = model ? emu_caches_init(&s->caches, model) : 0;
  if (err) emu_caches_free(&s->caches);
  return err;
}

static uint32_t *slot_of(const struct emu_sites *s, uint64_t pc) {
  uint32_t at = (uint32_t)(pc * UINT64_C(0x9e3779b97f4a7c15) >> 40) & (s->nslots - 1);
  while (s->slot[at] && s->site[s->slot[at] - 1].pc != pc) at = (at + 1) & (s->nslots - 1);
  return &s->slot[at];
}

/* Makes room for another instruction. The hash table is at most half full. */
static bool grow(struct emu_sites *s) {
  if (s->n == s->cap) {
    uint32_t cap = s->cap ? s->cap * 2 : 256;
    struct emu_site *site = realloc(s->site, cap * sizeof *site);
    if (!site) return false;
    s->site = site, s->cap = cap;
  }
  if (2 * s->n < s->nslots) return true;
  uint32_t nslots = s->nslots ? s->nslots * 2 : 512, *slot = calloc(nslots, sizeof *slot);
  if (!slot) return false;
  free(s->slot);
  s->slot = slot, s->nslots = nslots;
  for (uint32_t i = 0; i < s->n; i++) *slot_of(s, s->site[i].pc) = i + 1;
  return true;
}

struct emu_site *emu_sites_find(struct emu_sites *s, uint64_t pc, bool *added) {
  uint32_t *recent = &s->recent[pc / 4 % EMU_SITES_RECENT];
  *added = false;
  if (*recent < s->n && s->site[*recent].pc == pc) return &s->site[*recent];
  uint32_t *slot = s->nslots ? slot_of(s, pc) : NULL;
  *added = !slot || !*slot;
  if (!*added) return &s->site[*recent = *slot - 1];
  if (!grow(s)) return NULL;
  *slot_of(s, pc) = s->n + 1;
  s->site[ *recent = s->n] = (struct emu_site){.pc = pc};
  return &s->site[s->n++];
}

void emu_sites_free(struct emu_sites *s) {
  emu_caches_free(&s->caches);
  free(s->site);
  free(s->slot);
  *s = (struct emu_sites){0};
}

/* ---- kernels ---- */

static struct emu_note *find_note(const struct emu_notes *notes, uint64_t pgm, const char *name) {
  for (size_t i = 0; i < notes->n; i++)
    if (notes->note[i].pgm == pgm && !strcmp(notes->note[i].name, name)) return &notes->note[i];
  return NULL;
}

/* Adds all counts of an instruction, which follow its address in the structure. */
static void add_counts(struct emu_site *to, const struct emu_site *from) {
  uint64_t *t = &to->executed;
  const uint64_t *f = &from->executed;
  for (size_t i = 0; i < (offsetof(struct emu_site, text) - offsetof(struct emu_site, executed)) / sizeof *t; i++)
    t[i] += f[i];
}

void emu_notes_add(struct emu_notes *notes, uint64_t pgm, const char *name, const struct emu_sites *from) {
  struct emu_note *note = find_note(notes, pgm, name);
  if (!note) {
    note = realloc(notes->note, (notes->n + 1) * sizeof *note);
    if (!note) return;
    notes->note = note, note += notes->n++;
    *note = (struct emu_note){.pgm = pgm};
    snprintf(note->name, sizeof note->name, "%s", name);
  }
  for (uint32_t i = 0; i < from->n; i++) {
    bool added;
    struct emu_site *to = emu_sites_find(&note->sites, from->site[i].pc, &added);
    if (!to) return;
    if (added)
      *to = from->site[i];
    else
      add_counts(to, &from->site[i]);
  }
}

static int by_address(const void *a, const void *b) {
  uint64_t x = ((const struct emu_site *)a)->pc, y = ((const struct emu_site *)b)->pc;
  return (x > y) - (x < y);
}

int emu_notes_get(const struct emu_notes *notes, uint64_t pgm, const char *name, struct emu_site **out, size_t *n) {
  const struct emu_note *note = find_note(notes, pgm, name);
  if (!note || !note->sites.n) return -ENOENT;
  *out = malloc(note->sites.n * sizeof **out);
  if (!*out) return -ENOMEM;
  *n = note->sites.n;
  memcpy(*out, note->sites.site, *n * sizeof **out);
  qsort(*out, *n, sizeof **out, by_address);
  return 0;
}

void emu_notes_free(struct emu_notes *notes) {
  for (size_t i = 0; i < notes->n; i++) emu_sites_free(&notes->note[i].sites);
  free(notes->note);
  *notes = (struct emu_notes){0};
}
