/* Counts per instruction of each kernel (`doorbell emu --annotate`). */
#ifndef DOORBELL_EMU_SITES_H
#define DOORBELL_EMU_SITES_H
#include "caches.h"

enum { EMU_SITES_RECENT = 256 };

/* The instructions that a dispatch executed, and the model of its caches. */
struct emu_sites { /* emu_sites_init, or zeros */
  struct emu_site *site;
  uint32_t n, cap;
  uint32_t *slot, nslots;            /* a hash table from address to 1 + index */
  uint32_t recent[EMU_SITES_RECENT]; /* by address: an index */
  struct emu_caches caches;          /* caches.model is NULL if the GPU has no model */
};
/* gpu: the name of its architecture, for the model of its caches. Returns 0 or -ENOMEM; *s is valid in either case. */
int emu_sites_init(struct emu_sites *s, const char *gpu);
/* Returns the counts of the instruction at pc, or NULL if memory is out. *added: it is new, so its text is missing. */
struct emu_site *emu_sites_find(struct emu_sites *s, uint64_t pc, bool *added);
/* The counts that an instruction's execution changes beside struct emu_step: X(field of struct emu_site). */
/* clang-format off */
#define EMU_SITE_COUNTS(X)                                                                                             \
  X(lanes) X(lines) X(sectors) X(branches) X(divergent) X(lds_cycles) X(lds_conflicts) X(l1_hits) X(l2_hits)           \
  X(memory_lines) X(wait_cycles)
/* clang-format on */
struct emu_site_mark {
#define X(field) uint64_t field;
  EMU_SITE_COUNTS(X)
#undef X
  uint64_t loaded, stored;
};
/* Stores the counts before an instruction. */
static inline struct emu_site_mark emu_site_mark(const struct emu_detail *d) {
#define X(field) .field = d->field,
  return (struct emu_site_mark){EMU_SITE_COUNTS(X).loaded = d->loaded[EMU_GLOBAL_SPACE],
                                .stored = d->stored[EMU_GLOBAL_SPACE]};
#undef X
}
/* Adds what was counted since then to the instruction. */
static inline void emu_site_add(struct emu_site *s, const struct emu_site_mark *before, const struct emu_detail *d) {
#define X(field) s->field += d->field - before->field;
  EMU_SITE_COUNTS(X)
#undef X
  uint64_t loaded = d->loaded[EMU_GLOBAL_SPACE] - before->loaded, stored = d->stored[EMU_GLOBAL_SPACE] - before->stored;
  s->bytes += loaded > stored ? loaded : stored; /* atomics do both */
}
void emu_sites_free(struct emu_sites *s);

/* The kernels of a GPU with their instructions. The caller serializes the calls. */
struct emu_notes { /* zero-initialized */
  struct emu_note {
    uint64_t pgm;
    char name[128];
    struct emu_sites sites;
  } *note;
  size_t n;
};
/* Adds the counts of a dispatch. If memory is out, some are left out. */
void emu_notes_add(struct emu_notes *notes, uint64_t pgm, const char *name, const struct emu_sites *from);
/* Copies the instructions of a kernel, by address; the caller frees *out. Returns 0, -ENOENT or -ENOMEM. */
int emu_notes_get(const struct emu_notes *notes, uint64_t pgm, const char *name, struct emu_site **out, size_t *n);
void emu_notes_free(struct emu_notes *notes);
#endif
