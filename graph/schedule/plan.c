/* Best fit in the order of the schedule. Before an item runs, each temporary that it is the first to use takes the
 * smallest free block that is large enough. After the last item that uses a temporary, its block is free again and
 * merges with adjacent free blocks. An arena grows at its end if no free block is large enough. */
#include "plan.h"
#include "../internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NO_ARENA = UINT32_MAX };

struct block { /* free memory, sorted by offset */
  size_t offset, bytes;
  int64_t since; /* the last item that used part of it */
};
struct arena_state {
  unsigned queue;
  bool alone; /* holds one temporary, which items of several queues use */
  struct block *free;
  size_t nfree, capacity;
};
struct planner {
  const struct schedule *s;
  const struct plan_options *options;
  struct memory_plan *out;
  struct arena_state *state; /* state of each of out->arenas */
  size_t arenas_capacity;
  struct uop_map index; /* index of a temporary, plus 1 */
  struct plan_buffer **by_first, **by_last;
};

static unsigned queue_of(const struct planner *p, size_t item) {
  return p->options->queue ? p->options->queue[item] : 0;
}

static unsigned arena_new(struct planner *p, unsigned device, unsigned queue, bool alone) {
  struct memory_plan *o = p->out;
  if (o->narenas == p->arenas_capacity) {
    size_t c = 2 * p->arenas_capacity + 4;
    struct plan_arena *a = realloc(o->arenas, c * sizeof *a);
    if (!a) return NO_ARENA;
    o->arenas = a;
    struct arena_state *s = realloc(p->state, c * sizeof *s);
    if (!s) return NO_ARENA;
    p->state = s;
    p->arenas_capacity = c;
  }
  o->arenas[o->narenas] = (struct plan_arena){.device = device};
  p->state[o->narenas] = (struct arena_state){.queue = queue, .alone = alone};
  return o->narenas++;
}

static unsigned arena_of(struct planner *p, unsigned device, unsigned queue) {
  for (unsigned i = 0; i < p->out->narenas; i++)
    if (p->out->arenas[i].device == device && p->state[i].queue == queue && !p->state[i].alone) return i;
  return arena_new(p, device, queue, false);
}

/* Finds the first and last item that use each temporary, and chooses its arena. */
static bool find_lifetimes(struct planner *p) {
  struct memory_plan *o = p->out;
  for (size_t i = 0; i < o->nbuffers; i++) {
    const struct uop *b = p->s->temporaries[i];
    size_t bytes = (size_t)b->src[0]->arg.i * dtype_info[b->dtype].size, unit = p->options->alignment;
    o->buffers[i] =
        (struct plan_buffer){0, (bytes + unit - 1) & ~(unit - 1), NO_ARENA, PLAN_NEVER, PLAN_NEVER, PLAN_NEVER};
    if (!uop_map_put(&p->index, b, (void *)(i + 1))) return false;
  }
  for (size_t i = 0; i < p->s->nitems; i++) {
    const struct schedule_item *item = &p->s->items[i];
    for (unsigned k = 0; k < item->nbufs; k++) {
      size_t at = (size_t)uop_map_get(&p->index, item->bufs[k]);
      if (!at) continue;
      struct plan_buffer *b = &o->buffers[at - 1];
      unsigned device = item->bufs[k]->aux, queue = queue_of(p, i);
      b->last = (int64_t)i;
      if (b->first == PLAN_NEVER) {
        b->first = (int64_t)i;
        b->arena = arena_of(p, device, queue);
      } else if (b->arena != NO_ARENA && !p->state[b->arena].alone && p->state[b->arena].queue != queue)
        b->arena = arena_new(p, device, queue, true);
      if (b->arena == NO_ARENA) return false;
    }
  }
  return true;
}

static bool place_temporary(struct planner *p, struct plan_buffer *b) {
  struct plan_arena *a = &p->out->arenas[b->arena];
  struct arena_state *s = &p->state[b->arena];
  struct block *best = NULL, *end = s->nfree ? &s->free[s->nfree - 1] : NULL;
  a->unshared += b->bytes;
  for (size_t i = 0; i < s->nfree; i++)
    if (s->free[i].bytes >= b->bytes && (!best || s->free[i].bytes < best->bytes)) best = &s->free[i];
  if (!best && end && end->offset + end->bytes == a->bytes) { /* grow the free block at the end */
    a->bytes = end->offset + b->bytes;
    end->bytes = b->bytes;
    best = end;
  }
  if (!best) {
    b->offset = a->bytes;
    return !__builtin_add_overflow(a->bytes, b->bytes, &a->bytes);
  }
  b->offset = best->offset;
  b->free_since = best->since;
  best->offset += b->bytes;
  best->bytes -= b->bytes;
  if (!best->bytes) {
    size_t at = (size_t)(best - s->free);
    memmove(best, best + 1, (--s->nfree - at) * sizeof *best);
  }
  return true;
}

static bool free_temporary(struct planner *p, const struct plan_buffer *b) {
  struct arena_state *s = &p->state[b->arena];
  size_t at = 0, end = s->nfree;
  if (s->nfree == s->capacity) {
    size_t c = s->capacity ? 2 * s->capacity : 16;
    struct block *f = realloc(s->free, c * sizeof *f);
    if (!f) return false;
    s->free = f;
    s->capacity = c;
  }
  while (at < end) { /* find the first block after b */
    size_t middle = (at + end) / 2;
    if (s->free[middle].offset < b->offset)
      at = middle + 1;
    else
      end = middle;
  }
  struct block *before = at ? &s->free[at - 1] : NULL, *after = at < s->nfree ? &s->free[at] : NULL;
  bool joins_before = before && before->offset + before->bytes == b->offset;
  bool joins_after = after && b->offset + b->bytes == after->offset;
  if (joins_before) {
    before->bytes += b->bytes;
    before->since = b->last;
    if (joins_after) {
      before->bytes += after->bytes;
      memmove(after, after + 1, (--s->nfree - at) * sizeof *after);
    }
  } else if (joins_after) {
    *after = (struct block){b->offset, b->bytes + after->bytes, b->last};
  } else {
    memmove(s->free + at + 1, s->free + at, (s->nfree++ - at) * sizeof *s->free);
    s->free[at] = (struct block){b->offset, b->bytes, b->last};
  }
  return true;
}

static int by_first(const void *x, const void *y) { /* for the same item the largest comes first */
  const struct plan_buffer *a = *(struct plan_buffer *const *)x, *b = *(struct plan_buffer *const *)y;
  if (a->first != b->first) return a->first < b->first ? -1 : 1;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return a < b ? -1 : a > b;
}
static int by_last(const void *x, const void *y) {
  const struct plan_buffer *a = *(struct plan_buffer *const *)x, *b = *(struct plan_buffer *const *)y;
  if (a->last != b->last) return a->last < b->last ? -1 : 1;
  return a < b ? -1 : a > b;
}

static bool place_temporaries(struct planner *p) {
  size_t n = p->out->nbuffers, freed = 0;
  p->by_first = malloc((n + 1) * sizeof(struct plan_buffer *));
  p->by_last = malloc((n + 1) * sizeof(struct plan_buffer *));
  if (!p->by_first || !p->by_last) return false;
  for (size_t i = 0; i < n; i++) p->by_first[i] = p->by_last[i] = &p->out->buffers[i];
  qsort(p->by_first, n, sizeof(struct plan_buffer *), by_first);
  qsort(p->by_last, n, sizeof(struct plan_buffer *), by_last);
  for (size_t i = 0; i < n; i++) {
    struct plan_buffer *b = p->by_first[i];
    if (b->first == PLAN_NEVER || !b->bytes) continue;
    for (; p->by_last[freed]->last < b->first; freed++)
      if (p->by_last[freed]->last != PLAN_NEVER && p->by_last[freed]->bytes && !free_temporary(p, p->by_last[freed]))
        return false;
    if (!place_temporary(p, b)) return false;
  }
  return true;
}

int plan_memory(const struct schedule *s, const struct plan_options *options, struct memory_plan *out, char *err,
                size_t errcap) {
  struct planner p = {.s = s, .options = options, .out = out, .arenas_capacity = 4};
  *out = (struct memory_plan){.nbuffers = s->ntemporaries};
  out->buffers = calloc(s->ntemporaries + 1, sizeof *out->buffers);
  out->arenas = malloc(p.arenas_capacity * sizeof *out->arenas);
  p.state = malloc(p.arenas_capacity * sizeof *p.state);
  bool ok = out->buffers && out->arenas && p.state && find_lifetimes(&p) && place_temporaries(&p);
  for (unsigned i = 0; ok && i < out->narenas; i++) {
    out->peak += out->arenas[i].bytes;
    out->unshared += out->arenas[i].unshared;
  }
  for (unsigned i = 0; p.state && i < out->narenas; i++) free(p.state[i].free);
  uop_map_free(&p.index);
  free(p.state);
  free(p.by_first);
  free(p.by_last);
  if (ok) return 0;
  if (errcap) snprintf(err, errcap, "out of memory while planning memory");
  plan_free(out);
  return -ENOMEM;
}

void plan_free(struct memory_plan *p) {
  free(p->buffers);
  free(p->arenas);
  *p = (struct memory_plan){0};
}
