/* How often each instruction of decoded code was executed, and by how many lanes.
 *
 * A straight-line run of instructions adds to its first instruction and subtracts behind its last one, so it costs the
 * same whatever its length. The counts of an instruction are the sums up to it; emu_steps_finish computes them when a
 * workgroup has ended. What differs between the instructions of a run, such as accesses to memory, is counted when they
 * execute. */
#ifndef DOORBELL_EMU_STEPS_H
#define DOORBELL_EMU_STEPS_H
#include <stdbool.h>
#include <stddef.h>
#include "sites.h"

/* What to count: everything, or less, which is faster: only the classes of instructions, or also cycles of LDS. */
enum emu_counting { EMU_COUNT_ALL, EMU_COUNT_CLASSES, EMU_COUNT_CLASSES_LDS };

/* What one execution of an instruction counts. */
struct emu_kind {
  uint8_t class;    /* enum emu_class; EMU_CLASS_COUNT if it is not a valid instruction */
  bool approximate; /* as in struct emu_detail */
  uint16_t matrix_blocks;
};

/* At an instruction: what the runs that begin with it add, minus what the runs whose last instruction precedes it
 * added. */
struct emu_step {
  int64_t executed, lanes, partial;
};

/* The code of a trace. */
struct emu_traced {
  const char *first;            /* its decoded instructions, of `size` bytes each */
  size_t size, bytes;           /* bytes: of all, and the one after the last */
  const struct emu_kind *kinds; /* by instruction */
  struct emu_step *step;        /* likewise; zero outside [low, high] */
  uint32_t capacity, low, high;
};
/* The traces that a workgroup executes. */
struct emu_steps { /* zero-initialized */
  struct emu_traced *traced, *last;
  unsigned n, capacity;
};

/* Adds a trace with n instructions of `size` bytes each, unless it is known. If memory is out, it is not counted. */
void emu_steps_add(struct emu_steps *s, const void *first, uint32_t n, size_t size, const struct emu_kind *kinds);
struct emu_traced *emu_steps_search(struct emu_steps *s, const void *inst);
/* Returns the trace that an instruction belongs to, or NULL if it is not counted. */
static inline struct emu_traced *emu_steps_find(struct emu_steps *s, const void *inst) {
  struct emu_traced *t = s->last;
  return t && (size_t)((const char *)inst - t->first) < t->bytes ? t : emu_steps_search(s, inst);
}
/* Counts a run of the instructions from first to before end, or corrects the counts of one. */
static inline void emu_steps_run(struct emu_traced *t, uint32_t first, uint32_t end, struct emu_step add) {
  struct emu_step *from = &t->step[first], *to = &t->step[end];
  from->executed += add.executed, from->lanes += add.lanes, from->partial += add.partial;
  to->executed -= add.executed, to->lanes -= add.lanes, to->partial -= add.partial;
  if (first < t->low) t->low = first;
  if (end > t->high) t->high = end;
}

/* Finds or adds an instruction among sites, with its text. */
typedef struct emu_site *emu_site_of(struct emu_sites *sites, const void *inst);
/* Adds the counts to d and, unless it is NULL, to sites, and forgets the traces. Call it before their code can be
 * released. Without `all`, d receives only the classes. */
void emu_steps_finish(struct emu_steps *s, struct emu_detail *d, bool all, struct emu_sites *sites, emu_site_of *site);
void emu_steps_free(struct emu_steps *s);
#endif
