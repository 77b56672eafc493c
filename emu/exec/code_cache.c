/* Traces in lists, indexed by a hash of their first address. Traces whose code has changed are retired; they are freed
 * when no core runs. */
#include "code_cache.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "../race.h"

enum { BUCKETS = 64 };

struct code_cache {
  const struct code_kind *kind;
  pthread_mutex_t lock;
  struct code_trace *bucket[BUCKETS];
  struct code_trace *retired;
  unsigned users;
  uint64_t generation;
};

struct code_cache *code_cache_new(const struct code_kind *kind) {
  struct code_cache *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  if (pthread_mutex_init(&c->lock, NULL)) {
    free(c);
    return NULL;
  }
  c->kind = kind, c->generation = 1;
  return c;
}

static void release_list(const struct code_cache *c, struct code_trace *list) {
  for (struct code_trace *t = list, *next; t; t = next) next = t->next, c->kind->release(t);
}

void code_cache_free(struct code_cache *c) {
  if (!c) return;
  for (unsigned i = 0; i < BUCKETS; i++) release_list(c, c->bucket[i]);
  release_list(c, c->retired);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

void code_cache_invalidate(struct code_cache *c) {
  pthread_mutex_lock(&c->lock);
  c->generation++;
  pthread_mutex_unlock(&c->lock);
}

void code_cache_enter(struct code_cache *c) {
  pthread_mutex_lock(&c->lock);
  c->users++;
  pthread_mutex_unlock(&c->lock);
}
void code_cache_leave(struct code_cache *c) {
  struct code_trace *dead = NULL;
  pthread_mutex_lock(&c->lock);
  if (!--c->users) dead = c->retired, c->retired = NULL;
  pthread_mutex_unlock(&c->lock);
  release_list(c, dead);
}

static bool is_unchanged(const struct code_kind *kind, struct vm *vm, const struct code_trace *t) {
  struct vm_range cache = {0};
  const void *p = vm_translate(vm, &cache, t->start, t->end - t->start, kind->access);
  if (p) return !memcmp(p, t->words, t->end - t->start);
  for (uint64_t at = t->start; at < t->end; at += kind->unit) {
    const void *unit = vm_translate(vm, &cache, at, kind->unit, kind->access);
    if (!unit || memcmp(unit, (const char *)t->words + (at - t->start), kind->unit)) return false;
  }
  return true;
}

/* Records that the code was read: running it counts as a read, although it was decoded earlier. */
static void record_fetch(const struct code_kind *kind, struct vm *vm, const struct code_trace *t) {
  struct vm_range cache = {0};
  const void *p = vm_translate(vm, &cache, t->start, t->end - t->start, kind->access);
  if (p) race_touch(p, t->end - t->start, VM_EXEC);
  for (uint64_t at = t->start; !p && at < t->end; at += kind->unit) {
    const void *unit = vm_translate(vm, &cache, at, kind->unit, kind->access);
    if (unit) race_touch(unit, kind->unit, VM_EXEC);
  }
}

static struct code_trace **bucket_of(struct code_cache *c, uint64_t pc) {
  return &c->bucket[pc * 0x9e3779b97f4a7c15u >> 58];
}
_Static_assert(BUCKETS == 1 << (64 - 58), "the hash's upper bits are the bucket");

/* Finds a trace in one list and retires traces whose code has changed. */
static struct code_trace *find_trace(struct code_cache *c, struct code_trace **link, struct vm *vm, uint64_t pc,
                                     uint64_t key, bool inside) {
  uint64_t now = vm_generation(vm);
  while (*link) {
    struct code_trace *t = *link;
    if (t->key != key || !(inside ? pc >= t->start && pc < t->end : pc == t->start)) {
      link = &t->next;
    } else if ((t->checked_vm == now && t->checked_code == c->generation) || is_unchanged(c->kind, vm, t)) {
      t->checked_vm = now, t->checked_code = c->generation;
      return t;
    } else {
      *link = t->next;
      t->next = c->retired, c->retired = t;
    }
  }
  return NULL;
}

struct code_trace *code_cache_get(struct code_cache *c, struct vm *vm, uint64_t pc, uint64_t key, bool inside,
                                  const char **why) {
  pthread_mutex_lock(&c->lock);
  struct code_trace **head = bucket_of(c, pc), *t = find_trace(c, head, vm, pc, key, false);
  for (unsigned i = 0; inside && !t && i < BUCKETS; i++) t = find_trace(c, &c->bucket[i], vm, pc, key, true);
  if (!t) {
    uint64_t now = vm_generation(vm);
    t = c->kind->decode(vm, pc, key, why);
    if (t) {
      t->checked_vm = now, t->checked_code = c->generation;
      t->next = *head, *head = t;
    }
  }
  pthread_mutex_unlock(&c->lock);
  if (t && race_task) record_fetch(c->kind, vm, t);
  return t;
}
