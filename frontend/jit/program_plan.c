/* Places the memory that a program allocates, so that memories with disjoint lifetimes share bytes.
 *
 * Two memories may share bytes if all commands that touch the one are ordered before all commands that touch the other:
 * by their positions in one queue, or by waits that exist anyway. So sharing may cost barriers, but never a wait
 * between queues. The largest memory is placed first. Each one gets the smallest gap between those placed memories that
 * it may not share with. */
#include "program.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256 };

struct planning {
  struct program *p;
  const uint32_t *after; /* by command and queue: see program_plan */
  uint32_t *first;       /* by memory and queue: 1 + the first command that touches it, or 0 */
  uint32_t *last;        /* the position of the last one, or 0 */
  uint64_t *at;
  uint32_t *order, *clash;
};

static int no_memory(void) { return db_fail(-ENOMEM, "jit: out of memory"); }

/* Memory that is read before it is written keeps its contents from run to run, so it does not share. */
static void find_uses(struct planning *o) {
  struct program *p = o->p;
  bool touched;
  for (unsigned m = 0; m < p->nmemories; m++) p->memories[m].shares &= !p->memories[m].varies;
  for (size_t i = 0; i < p->ncommands; i++) {
    const struct program_command *c = &p->commands[i];
    for (uint32_t k = 0; k < c->naccesses; k++) {
      const struct program_access *a = &p->accesses[c->first + k];
      size_t row = (size_t)a->memory * p->nqueues;
      touched = false;
      for (unsigned q = 0; q < p->nqueues; q++) touched |= o->first[row + q] && o->first[row + q] != i + 1;
      bool writes = false;
      for (uint32_t n = 0; n < c->naccesses && !touched; n++)
        writes |= p->accesses[c->first + n].memory == a->memory && p->accesses[c->first + n].written;
      if (!touched && !writes) p->memories[a->memory].shares = false;
      if (!o->first[row + c->queue]) o->first[row + c->queue] = (uint32_t)i + 1;
      o->last[row + c->queue] = c->position;
    }
  }
}

/* Whether all commands that touch x are ordered before all that touch y. */
static bool is_before(const struct planning *o, unsigned x, unsigned y) {
  const struct program *p = o->p;
  unsigned n = p->nqueues;
  for (unsigned q = 0; q < n; q++) {
    uint32_t first = o->first[(size_t)y * n + q];
    if (!first) continue;
    const uint32_t *behind = o->after + (size_t)(first - 1) * n;
    for (unsigned k = 0; k < n; k++) {
      uint32_t last = o->last[(size_t)x * n + k];
      if (last && (k == q ? last >= p->commands[first - 1].position : last >= behind[k])) return false;
    }
  }
  return true;
}

static const struct planning *sorting; /* for the qsort callbacks; guarded by rt.lock */
static int by_size(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  const struct program_memory *m = sorting->p->memories;
  return m[x].bytes != m[y].bytes ? (m[x].bytes > m[y].bytes ? -1 : 1) : x < y ? -1 : x > y;
}
static int by_place(const void *a, const void *b) {
  uint64_t x = sorting->at[*(const uint32_t *)a], y = sorting->at[*(const uint32_t *)b];
  return x < y ? -1 : x > y;
}

static uint64_t room_of(const struct program_memory *m) {
  return (m->bytes + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
}

/* The smallest gap between those of the first n memories in order that y may not share with. */
static uint64_t find_gap(struct planning *o, uint32_t y, unsigned n) {
  const struct program_memory *m = o->p->memories;
  unsigned nclash = 0;
  uint64_t end = 0, best = UINT64_MAX, place = 0;
  for (unsigned i = 0; i < n; i++) {
    uint32_t x = o->order[i];
    if (m[x].slot == m[y].slot && !is_before(o, x, y) && !is_before(o, y, x)) o->clash[nclash++] = x;
  }
  qsort(o->clash, nclash, sizeof *o->clash, by_place);
  for (unsigned i = 0; i < nclash; i++) {
    uint64_t from = o->at[o->clash[i]], to = from + room_of(&m[o->clash[i]]);
    if (from >= end + room_of(&m[y]) && from - end < best) best = from - end, place = end;
    if (to > end) end = to;
  }
  return best == UINT64_MAX ? end : place;
}

/* Replaces the sharing memories of a slot by one memory, if that saves bytes. */
static int join_memories(struct planning *o, unsigned n, unsigned slot) {
  struct program *p = o->p;
  uint64_t bytes = 0, without = 0;
  for (unsigned i = 0; i < n; i++) {
    const struct program_memory *m = &p->memories[o->order[i]];
    if (m->slot != slot) continue;
    uint64_t end = o->at[o->order[i]] + room_of(m);
    without += room_of(m);
    if (end > bytes) bytes = end;
  }
  p->peak += bytes < without ? bytes : without;
  p->unplanned += without;
  if (bytes >= without) return 0;
  struct program_memory *more = realloc(p->memories, (p->nmemories + 1) * sizeof *more);
  if (!more) return no_memory();
  p->memories = more;
  for (unsigned i = 0; i < n; i++)
    if (more[o->order[i]].slot == slot) more[o->order[i]].in = p->nmemories + 1;
  more[p->nmemories++] = (struct program_memory){.slot = (uint8_t)slot, .bytes = bytes};
  return 0;
}

int program_plan(struct program *p, const uint32_t *after) {
  size_t cells = (size_t)p->nmemories * p->nqueues;
  unsigned n = 0, before = p->nmemories;
  struct planning o = {.p = p, .after = after};
  int err = 0;
  p->peak = p->unplanned = 0;
  o.first = calloc(cells + 1, sizeof *o.first);
  o.last = calloc(cells + 1, sizeof *o.last);
  o.at = calloc(p->nmemories + 1, sizeof *o.at);
  o.order = calloc(p->nmemories + 1, sizeof *o.order);
  o.clash = calloc(p->nmemories + 1, sizeof *o.clash);
  if (!o.first || !o.last || !o.at || !o.order || !o.clash) {
    err = no_memory();
    goto out;
  }
  find_uses(&o);
  for (unsigned m = 0; m < p->nmemories; m++)
    if (p->memories[m].shares && p->memories[m].bytes) o.order[n++] = m;
  sorting = &o;
  qsort(o.order, n, sizeof *o.order, by_size);
  for (unsigned i = 0; i < n; i++) o.at[o.order[i]] = find_gap(&o, o.order[i], i);
  for (unsigned slot = 0; slot < SLOTS && !err; slot++) err = join_memories(&o, n, slot);
  for (size_t i = 0; i < p->naccesses; i++) {
    struct program_access *a = &p->accesses[i];
    if (!p->memories[a->memory].in) continue;
    a->offset += o.at[a->memory];
    a->memory = p->memories[a->memory].in - 1;
  }
  for (unsigned m = 0; m < before; m++) p->memories[m].shares = false;
out:
  free(o.first);
  free(o.last);
  free(o.at);
  free(o.order);
  free(o.clash);
  return err;
}
