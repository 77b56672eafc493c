/* For each page of memory, the tasks that touched it and the host's accesses, and which of them race. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "race_internal.h"

enum { PAGE_BITS = 14, BLOCKS = 256, WORDS = RACE_PAGE / 64 };

static struct touched *history[1 << PAGE_BITS];
static struct actor host = {.refs = 1, .queue = RACE_HOST, .what = "the host"};

_Thread_local struct race_task *race_task;

#define LOCK()   pthread_mutex_lock(&race_world.lock)
#define UNLOCK() pthread_mutex_unlock(&race_world.lock)

/* ---- blocks ---- */

union block {
  union block *next;
  struct touched touched;
  struct notice notice;
  struct actor actor;
};
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static union block *blocks;

void *race_block(void) {
  pthread_mutex_lock(&blocks_lock);
  if (!blocks) {
    union block *more = mmap(NULL, BLOCKS * sizeof *more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (unsigned i = 0; more != MAP_FAILED && i < BLOCKS; i++) more[i].next = blocks, blocks = &more[i];
  }
  union block *b = blocks;
  if (b) blocks = b->next;
  pthread_mutex_unlock(&blocks_lock);
  return b ? memset(b, 0, sizeof *b) : NULL;
}

void race_block_free(void *block) {
  union block *b = block;
  if (!b) return;
  pthread_mutex_lock(&blocks_lock);
  b->next = blocks;
  blocks = b;
  pthread_mutex_unlock(&blocks_lock);
}

static void actor_put(struct actor *a) {
  if (!--a->refs) race_block_free(a);
}

static void touched_free(struct touched *p) {
  actor_put(p->by);
  race_block_free(p);
}

static struct touched **bucket_of(uintptr_t page) { return &history[race_bucket(page, PAGE_BITS)]; }

void race_forget(void) {
  for (unsigned i = 0; i < 1 << PAGE_BITS; i++)
    while (history[i]) {
      struct touched *p = history[i];
      history[i] = p->next;
      touched_free(p);
    }
}

/* ---- what is touched ---- */

static void mark(uint64_t *bits, unsigned from, unsigned n) {
  while (n) {
    unsigned count = 64 - from % 64 < n ? 64 - from % 64 : n;
    uint64_t mask = (count == 64 ? ~0ull : (1ull << count) - 1) << from % 64;
    if ((__atomic_load_n(&bits[from / 64], __ATOMIC_RELAXED) & mask) != mask)
      __atomic_fetch_or(&bits[from / 64], mask, __ATOMIC_RELAXED);
    from += count, n -= count;
  }
}

static uint64_t *bits_of(struct touched *p, unsigned access) {
  return access == (VM_READ | VM_WRITE) ? p->atomic : access == VM_WRITE ? p->written : p->read;
}

static struct touched *page_of(struct race_task *t, uintptr_t page) {
  struct touched **bucket = &t->pages[page / RACE_PAGE % 1024], *p = __atomic_load_n(bucket, __ATOMIC_ACQUIRE);
  while (p && p->page != page) p = p->next;
  if (p) return p;
  pthread_mutex_lock(&t->lock);
  for (p = *bucket; p && p->page != page;) p = p->next;
  if (!p && (p = race_block())) {
    p->page = page, p->by = t->actor, p->number = t->number;
    p->next = *bucket;
    __atomic_store_n(bucket, p, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&t->lock);
  return p;
}

void race_touched(struct race_task *t, const void *at, size_t n, unsigned access) {
  for (uintptr_t a = (uintptr_t)at, end = a + n; a < end;) {
    uintptr_t page = a & ~(uintptr_t)(RACE_PAGE - 1), stop = page + RACE_PAGE < end ? page + RACE_PAGE : end;
    struct touched *p = page_of(t, page);
    if (!p) return; /* out of memory: unchecked */
    mark(bits_of(p, access), (unsigned)(a - page), (unsigned)(stop - a));
    a = stop;
  }
}

/* ---- races ---- */

/* The first byte that both touch and one of them writes, or -1. */
static int conflict(const struct touched *a, const struct touched *b) {
  for (unsigned i = 0; i < WORDS; i++) {
    uint64_t both = (a->written[i] & (b->read[i] | b->written[i] | b->atomic[i])) |
                    (b->written[i] & (a->read[i] | a->atomic[i])) | (a->atomic[i] & b->read[i]) |
                    (a->read[i] & b->atomic[i]);
    if (both) return (int)(64 * i) + __builtin_ctzll(both);
  }
  return -1;
}

static const char *verb(const struct touched *p, int byte) {
  uint64_t bit = 1ull << byte % 64;
  return p->written[byte / 64] & bit ? "writes" : p->atomic[byte / 64] & bit ? "updates" : "reads";
}

/* The host's instruction, for who looks it up. */
static const char *instruction(const struct touched *p, char *buf, size_t cap) {
  *buf = 0;
  if (p->pc) snprintf(buf, cap, " (by the instruction at 0x%" PRIxPTR ")", p->pc);
  return buf;
}

static void tell(char *text, size_t cap, const struct touched *mine, const struct touched *old, int byte) {
  char pc[2][64];
  snprintf(text, cap, "data race: %s%s %s 0x%" PRIxPTR ", which %s%s %s; nothing orders the two", mine->by->what,
           instruction(mine, pc[0], sizeof pc[0]), verb(mine, byte), mine->page + (unsigned)byte, old->by->what,
           instruction(old, pc[1], sizeof pc[1]), verb(old, byte));
}

/* Every task from now on comes after it, and so does the host. */
static bool settled(const struct touched *p) {
  unsigned by = p->by->queue;
  if (by != RACE_HOST && race_world.host.at[by] < p->number) return false;
  for (unsigned i = 0; i < RACE_QUEUES; i++) {
    const struct race_queue *q = race_world.queues[i];
    bool idle = !q || q->dead || (q->resting && !q->notices);
    if (!idle && q->visible.at[by] < p->number) return false;
  }
  return true;
}

/* Of one queue or the host, old before mine: whoever races with these bytes of old races with mine too. True when
 * nothing of old is left. */
static bool subsume(struct touched *old, const struct touched *mine) {
  uint64_t left = 0;
  for (unsigned i = 0; i < WORDS; i++) {
    old->written[i] &= ~mine->written[i];
    old->atomic[i] &= ~(mine->written[i] | mine->atomic[i]);
    old->read[i] &= ~(mine->written[i] | mine->read[i]);
    left |= old->written[i] | old->atomic[i] | old->read[i];
  }
  return !left;
}

/* Of a queue that was stopped: what a lost device did or left undone is no news. */
static bool is_over(const struct touched *p) {
  unsigned by = p->by->queue;
  return by != RACE_HOST && (!race_world.queues[by] || race_world.queues[by]->dead);
}

/* Compares a page with what is known of it, drops what nothing later can race with, and adds it. */
static bool check(const struct race_task *t, struct touched *mine, char *text, size_t cap) {
  bool raced = false;
  struct touched **bucket = bucket_of(mine->page);
  for (struct touched **at = bucket, *old = *at; old; old = *at) {
    bool same = old->page == mine->page;
    bool before = old->number <= t->after.at[old->by->queue] || is_over(old) ||
                  (t->actor->front && old->by->front && t->actor->queue == old->by->queue);
    int byte = same && !before ? conflict(mine, old) : -1;
    if (byte >= 0 && !raced) tell(text, cap, mine, old, byte);
    raced |= byte >= 0;
    bool gone = same && before && (settled(old) || (old->by->queue == mine->by->queue && subsume(old, mine)));
    if (gone) {
      *at = old->next;
      touched_free(old);
    } else
      at = &old->next;
  }
  mine->next = *bucket;
  *bucket = mine;
  mine->by->refs++;
  return !raced;
}

/* ---- tasks ---- */

static struct race_task *task_new(struct race_queue *q, const char *what, bool front) {
  struct race_task *t = calloc(1, sizeof *t);
  struct actor *a = t ? race_block() : NULL;
  if (!a) {
    free(t);
    return NULL;
  }
  *a = (struct actor){.refs = 1, .queue = q->id, .front = front};
  snprintf(a->what, sizeof a->what, "%s (%s)", what, q->name);
  t->actor = a;
  pthread_mutex_init(&t->lock, NULL);
  return t;
}

/* Under the lock. */
static bool task_end(struct race_task *t, char *text, size_t cap) {
  bool clean = true;
  for (unsigned i = 0; i < 1024; i++)
    while (t->pages[i]) {
      struct touched *mine = t->pages[i];
      t->pages[i] = mine->next;
      clean &= check(t, mine, text, cap);
    }
  actor_put(t->actor);
  pthread_mutex_destroy(&t->lock);
  free(t);
  return clean;
}

struct race_task *race_begin(struct race_queue *q, const char *what) {
  struct race_task *t = q ? task_new(q, what, false) : NULL;
  if (!t) return NULL;
  LOCK();
  t->number = q->worked = ++q->issued;
  t->after = q->visible;
  UNLOCK();
  return t;
}

bool race_end(struct race_task *t, char *text, size_t cap) {
  if (!t) return true;
  LOCK();
  bool clean = task_end(t, text, cap);
  UNLOCK();
  return clean;
}

struct race_task *race_front(struct race_queue *q) {
  if (!q || q->front) return q ? q->front : NULL;
  struct race_task *t = task_new(q, "the front end", true);
  if (!t) return NULL;
  LOCK();
  t->number = ++q->issued;
  t->after = q->visible;
  clock_join(&t->after, &q->seen);
  q->front = t;
  UNLOCK();
  return t;
}

void race_front_end(struct race_queue *q) {
  struct race_task *t = q->front;
  q->front = NULL;
  if (t && !task_end(t, q->told, sizeof q->told) && q->dead) q->told[0] = 0;
}

/* ---- the host ---- */

bool race_host_touches(const void *at, size_t n, unsigned access, uintptr_t pc) {
  LOCK();
  bool alone = !race_signals_near(at);
  uint64_t now_ns = race_now_ns();
  for (uintptr_t a = (uintptr_t)at, end = a + n; a < end && race_world.active;) {
    uintptr_t page = a & ~(uintptr_t)(RACE_PAGE - 1), stop = page + RACE_PAGE < end ? page + RACE_PAGE : end;
    if (race_host_signal((const void *)a, access)) {
      a = stop;
      continue;
    }
    race_world.busy_ns = now_ns;
    struct touched now = {.page = page, .by = &host, .number = race_world.epoch, .pc = pc}, *mine = NULL;
    mark(bits_of(&now, access), (unsigned)(a - page), (unsigned)(stop - a));
    for (struct touched *old = *bucket_of(page); old; old = old->next) {
      if (old->page != page) continue;
      if (old->by == &host) {
        if (old->number == now.number)
          mine = old;
        else
          subsume(old, &now); /* what is left empty is dropped when the next task ends */
        continue;
      }
      struct race_queue *q = race_world.queues[old->by->queue];
      if (!q || q->told[0] || q->dead || old->number <= race_world.host.at[old->by->queue]) continue;
      int byte = conflict(&now, old);
      if (byte >= 0) tell(q->told, sizeof q->told, &now, old, byte);
    }
    if (!mine && (mine = race_block())) {
      struct touched **bucket = bucket_of(page);
      *mine = (struct touched){.next = *bucket, .page = page, .by = &host, .number = now.number, .pc = pc};
      host.refs++;
      *bucket = mine;
    }
    if (mine) mark(bits_of(mine, access), (unsigned)(a - page), (unsigned)(stop - a));
    a = stop;
  }
  UNLOCK();
  return alone;
}
