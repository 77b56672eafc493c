/* For each page of memory: the tasks that accessed it, the host's accesses, and which of them race. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "race_internal.h"

enum { PAGE_BITS = 14, WINDOW_BITS = 10, BLOCKS = 256, WORDS = RACE_PAGE / 64 };

static struct touched *history[1 << PAGE_BITS];
static struct actor host = {.refs = 1, .queue = RACE_HOST, .what = "the host"};

_Thread_local struct race_task *race_task;

#define LOCK()   pthread_mutex_lock(&race_world.lock)
#define UNLOCK() pthread_mutex_unlock(&race_world.lock)

/* The host's writes to one page of a GPU's memory through the PCIe window. */
struct window {
  struct window *next;
  uintptr_t page;
  const void *gpu;
  uint64_t epoch; /* number of the last write */
  uint64_t written[WORDS];
  struct clock flushed; /* per queue and the host: number of its flush since the last write, or 0 */
};
static struct window *windows[1 << WINDOW_BITS];

/* The memory of GPUs, sorted by address. */
static struct memory {
  uintptr_t at, end;
  const void *gpu;
} *memories;
static size_t nmemories, memories_cap;

/* ---- blocks ---- */

union block {
  union block *next;
  struct touched touched;
  struct notice notice;
  struct actor actor;
  struct window window;
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

/* ---- GPUs' memory and the host's window to it ---- */

/* Returns the index of the first range that ends after at. */
static size_t memory_at(uintptr_t at) {
  size_t lo = 0, hi = nmemories;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if (memories[mid].end <= at)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

/* Returns the GPU whose memory it is, or NULL. The caller holds the lock. */
static const void *gpu_of(uintptr_t page) {
  size_t i = memory_at(page);
  return i < nmemories && memories[i].at <= page ? memories[i].gpu : NULL;
}

static struct window **windows_of(uintptr_t page) { return &windows[race_bucket(page, WINDOW_BITS)]; }

/* Removes the windows for which drop returns true. */
static void drop_windows(bool (*drop)(const struct window *w, const struct memory *m), const struct memory *m) {
  for (unsigned i = 0; i < 1 << WINDOW_BITS; i++)
    for (struct window **at = &windows[i], *w = *at; w; w = *at) {
      if (drop(w, m)) {
        *at = w->next;
        race_block_free(w);
      } else
        at = &w->next;
    }
}
static bool window_in(const struct window *w, const struct memory *m) { return w->page >= m->at && w->page < m->end; }

void race_memory(const void *at, size_t n, const void *gpu) {
  struct memory m = {(uintptr_t)at, (uintptr_t)at + n, gpu};
  LOCK();
  size_t i = memory_at(m.at);
  if (gpu && nmemories == memories_cap) {
    size_t cap = memories_cap ? 2 * memories_cap : 256;
    struct memory *more = realloc(memories, cap * sizeof *more);
    if (more) memories = more, memories_cap = cap;
  }
  if (gpu && nmemories < memories_cap) { /* if out of memory, the range is not checked */
    memmove(&memories[i + 1], &memories[i], (nmemories++ - i) * sizeof m);
    memories[i] = m;
  } else if (!gpu && i < nmemories && memories[i].at == m.at) {
    memmove(&memories[i], &memories[i + 1], (--nmemories - i) * sizeof m);
    drop_windows(window_in, &m);
  }
  UNLOCK();
}

static void set_bits(uint64_t *bits, unsigned from, unsigned n);

/* n bytes of one page. The caller holds the lock. */
static void window_written(uintptr_t at, unsigned n) {
  uintptr_t page = at & ~(uintptr_t)(RACE_PAGE - 1);
  const void *gpu = gpu_of(page);
  struct window **head = windows_of(page), *w = gpu ? *head : NULL;
  while (w && w->page != page) w = w->next;
  if (!gpu) return;
  if (!w && (w = race_block())) {
    *w = (struct window){.next = *head, .page = page, .gpu = gpu};
    *head = w;
  }
  if (!w) return;
  memset(&w->flushed, 0, sizeof w->flushed);
  w->epoch = race_world.epoch;
  set_bits(w->written, (unsigned)(at - page), n);
}

void race_host_window(const void *page) {
  LOCK();
  window_written((uintptr_t)page, RACE_PAGE);
  UNLOCK();
}

void race_flush_window(struct race_queue *q, const void *gpu) {
  LOCK();
  bool idle = q && q->finished == q->issued;
  unsigned id = q ? q->id : RACE_HOST;
  uint64_t number = q ? ++q->issued : race_world.epoch;
  if (idle) q->finished = q->issued;
  for (unsigned i = 0; i < 1 << WINDOW_BITS; i++)
    for (struct window *w = windows[i]; w; w = w->next)
      if (w->gpu == gpu && !w->flushed.at[id]) w->flushed.at[id] = number;
  UNLOCK();
}

static bool was_flushed(const struct window *w, const struct memory *m) {
  bool any = false;
  for (unsigned i = 0; i < RACE_CLOCKS; i++) any |= w->flushed.at[i] != 0;
  return any;
}

/* ---- dropping records ---- */

/* Returns the last task of old's queue that is known to have finished. If the reader does not share a cache with that
 * queue and the memory is a GPU's own, it must also be written back. gpu: the reader's. */
static uint64_t last_known_task(const struct order *o, const struct touched *old, const void *gpu) {
  unsigned by = old->by->queue;
  const struct race_queue *q = by < RACE_QUEUES ? race_world.queues[by] : NULL;
  bool far = gpu_of(old->page) && !(gpu && q && q->gpu == gpu);
  return (far ? &o->far : &o->near)->at[by];
}

/* True for tasks of a queue that was stopped: accesses of a lost device are not reported. */
static bool is_stopped(const struct touched *p) {
  unsigned by = p->by->queue;
  return by != RACE_HOST && (!race_world.queues[by] || race_world.queues[by]->dead);
}

/* Returns true if the caches of no queue can hold data from before the access. */
static bool is_visible(const struct touched *p) {
  bool all = true, written = false;
  for (unsigned i = 0; i < WORDS && !written; i++) written = p->written[i] | p->atomic[i];
  for (unsigned i = 0; written && i < RACE_QUEUES && all; i++) {
    const struct race_queue *q = race_world.queues[i];
    if (!q || q->dead || !q->gpu) continue;
    all = last_known_task(&q->visible, p, q->gpu) >= p->number && last_known_task(&q->code, p, q->gpu) >= p->number;
  }
  return all;
}

static void forget_where(bool (*gone)(const struct touched *p, unsigned queue), unsigned queue) {
  for (unsigned i = 0; i < 1 << PAGE_BITS; i++)
    for (struct touched **at = &history[i], *p = *at; p; p = *at) {
      if (gone(p, queue)) {
        *at = p->next;
        touched_free(p);
      } else
        at = &p->next;
    }
}

static bool is_old(const struct touched *p, unsigned queue) { return is_stopped(p) || p->by == &host || is_visible(p); }
static bool is_of_queue(const struct touched *p, unsigned queue) { return p->by->queue == queue; }

void race_forget(void) {
  forget_where(is_old, 0);
  drop_windows(was_flushed, NULL);
}

void race_forget_queue(unsigned queue) { forget_where(is_of_queue, queue); }

/* ---- recording accesses ---- */

static void set_bits(uint64_t *bits, unsigned from, unsigned n) {
  while (n) {
    unsigned count = 64 - from % 64 < n ? 64 - from % 64 : n;
    uint64_t mask = (count == 64 ? ~0ull : (1ull << count) - 1) << from % 64;
    if ((__atomic_load_n(&bits[from / 64], __ATOMIC_RELAXED) & mask) != mask)
      __atomic_fetch_or(&bits[from / 64], mask, __ATOMIC_RELAXED);
    from += count, n -= count;
  }
}

static uint64_t *bits_of(struct touched *p, unsigned access) {
  return access == (VM_READ | VM_WRITE) ? p->atomic : access == VM_WRITE ? p->written : p->read; /* VM_EXEC reads */
}

static struct touched *page_of(struct race_task *t, uintptr_t page, bool code) {
  struct touched **bucket = &t->pages[page / RACE_PAGE % 1024], *p = __atomic_load_n(bucket, __ATOMIC_ACQUIRE);
  while (p && (p->page != page || p->code != code)) p = p->next;
  if (p) return p;
  pthread_mutex_lock(&t->lock);
  for (p = *bucket; p && (p->page != page || p->code != code);) p = p->next;
  if (!p && (p = race_block())) {
    p->page = page, p->by = t->actor, p->number = t->number, p->code = code;
    p->next = *bucket;
    __atomic_store_n(bucket, p, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&t->lock);
  return p;
}

void race_touched(struct race_task *t, const void *at, size_t n, unsigned access) {
  for (uintptr_t a = (uintptr_t)at, end = a + n; a < end;) {
    uintptr_t page = a & ~(uintptr_t)(RACE_PAGE - 1), stop = page + RACE_PAGE < end ? page + RACE_PAGE : end;
    struct touched *p = page_of(t, page, access & VM_EXEC);
    if (!p) return; /* out of memory: not checked */
    set_bits(bits_of(p, access), (unsigned)(a - page), (unsigned)(stop - a));
    a = stop;
  }
}

/* ---- races ---- */

/* Returns the first byte that both access and at least one of them writes, or -1. */
static int conflict(const struct touched *a, const struct touched *b) {
  for (unsigned i = 0; i < WORDS; i++) {
    uint64_t both = (a->written[i] & (b->read[i] | b->written[i] | b->atomic[i])) |
                    (b->written[i] & (a->read[i] | a->atomic[i])) | (a->atomic[i] & b->read[i]) |
                    (a->read[i] & b->atomic[i]);
    if (both) return (int)(64 * i) + __builtin_ctzll(both);
  }
  return -1;
}

static const char *access_verb(const struct touched *p, int byte) {
  uint64_t bit = 1ull << byte % 64;
  return p->written[byte / 64] & bit  ? "writes"
         : p->atomic[byte / 64] & bit ? "updates"
         : p->code                    ? "fetches"
                                      : "reads";
}

/* The address of the host's instruction, so that a developer can look it up. */
static const char *pc_text(const struct touched *p, char *buf, size_t cap) {
  *buf = 0;
  if (p->pc) snprintf(buf, cap, " (by the instruction at 0x%" PRIxPTR ")", p->pc);
  return buf;
}

static const char unordered[] = "nothing orders the two";

static void format_race(char *text, size_t cap, const struct touched *mine, const struct touched *old, int byte,
                        const char *why) {
  char pc[2][64];
  snprintf(text, cap, "data race: %s%s %s 0x%" PRIxPTR ", which %s%s %s; %s", mine->by->what,
           pc_text(mine, pc[0], sizeof pc[0]), access_verb(mine, byte), mine->page + (unsigned)byte, old->by->what,
           pc_text(old, pc[1], sizeof pc[1]), access_verb(old, byte), why);
}

/* Returns true if the host and all later tasks are ordered after the access. */
static bool is_settled(const struct touched *p) {
  unsigned by = p->by->queue;
  if (by != RACE_HOST && last_known_task(&race_world.host, p, NULL) < p->number) return false;
  for (unsigned i = 0; i < RACE_QUEUES; i++) {
    const struct race_queue *q = race_world.queues[i];
    bool idle = !q || q->dead || (q->idle && !q->notices);
    if (!idle && last_known_task(&q->visible, p, q->gpu) < p->number) return false;
  }
  return is_visible(p);
}

/* old and mine are of one queue or both of the host, old before mine. Removes the bytes of old for which any race with
 * old is also a race with mine. Returns true if no bytes of old are left. */
static bool remove_covered(struct touched *old, const struct touched *mine) {
  uint64_t left = 0;
  for (unsigned i = 0; i < WORDS; i++) {
    old->written[i] &= ~mine->written[i];
    old->atomic[i] &= ~(mine->written[i] | mine->atomic[i]);
    old->read[i] &= ~(mine->written[i] | mine->read[i]);
    left |= old->written[i] | old->atomic[i] | old->read[i];
  }
  return !left;
}

/* Checks the host's writes through the window: they must be flushed before the task, and then the task's caches must be
 * invalidated. */
static bool check_window(const struct race_task *t, const struct touched *mine, char *text, size_t cap) {
  const struct window *w = *windows_of(mine->page);
  int byte = -1;
  while (w && w->page != mine->page) w = w->next;
  for (unsigned i = 0; w && i < WORDS && byte < 0; i++) {
    uint64_t both = w->written[i] & (mine->read[i] | mine->written[i] | mine->atomic[i]);
    if (both) byte = (int)(64 * i) + __builtin_ctzll(both);
  }
  if (byte < 0) return true;
  bool done = false;
  for (unsigned i = 0; i < RACE_CLOCKS; i++)
    done |= w->flushed.at[i] && (i == t->actor->queue ? t->number : t->after.near.at[i]) >= w->flushed.at[i];
  bool seen = (mine->code ? &t->code : &t->after)->far.at[RACE_HOST] >= w->epoch;
  if (done && seen) return true;
  snprintf(text, cap, "%s: %s %s 0x%" PRIxPTR ", which the host wrote through the PCIe window; %s",
           done ? "stale cache" : "missing HDP flush", mine->by->what, access_verb(mine, byte),
           mine->page + (unsigned)byte,
           done ? "no cache is invalidated in between" : "nothing flushes the window's buffer in between");
  return false;
}

/* Compares a page's accesses with its records, removes records that nothing later can race with, and adds the new
 * ones. */
static bool check_page(const struct race_task *t, struct touched *mine, char *text, size_t cap) {
  bool raced = !check_window(t, mine, text, cap);
  struct touched **bucket = bucket_of(mine->page);
  for (struct touched **at = bucket, *old = *at; old; old = *at) {
    bool same = old->page == mine->page;
    bool before = old->number <= last_known_task(mine->code ? &t->code : &t->after, old, t->gpu) || is_stopped(old) ||
                  (t->actor->front && old->by->front && t->actor->queue == old->by->queue);
    int byte = same && !before ? conflict(mine, old) : -1;
    bool ordered = same && old->number <= t->ordered.at[old->by->queue];
    if (byte >= 0 && !raced)
      format_race(text, cap, mine, old, byte,
                  !ordered     ? unordered
                  : mine->code ? "they are ordered, but the instruction cache is not invalidated in between"
                               : "they are ordered, but caches are not written back and invalidated in between");
    raced |= byte >= 0;
    bool gone = same && before && (is_settled(old) || (old->by->queue == mine->by->queue && remove_covered(old, mine)));
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

/* The caller holds the lock. */
static bool task_end(struct race_task *t, char *text, size_t cap) {
  bool clean = true;
  for (unsigned i = 0; i < 1024; i++)
    while (t->pages[i]) {
      struct touched *mine = t->pages[i];
      t->pages[i] = mine->next;
      clean &= check_page(t, mine, text, cap);
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
  t->code = q->code;
  t->ordered = q->ordered;
  t->gpu = q->gpu;
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
  order_join(&t->after, &q->seen);
  t->ordered = q->ordered;
  t->gpu = q->gpu;
  q->front = t;
  UNLOCK();
  return t;
}

void race_front_end(struct race_queue *q) {
  struct race_task *t = q->front;
  q->front = NULL;
  if (t && !task_end(t, q->message, sizeof q->message) && q->dead) q->message[0] = 0;
}

/* ---- the host ---- */

bool race_host_access(const void *at, size_t n, unsigned access, uintptr_t pc) {
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
    set_bits(bits_of(&now, access), (unsigned)(a - page), (unsigned)(stop - a));
    if (access & VM_WRITE) window_written(a, (unsigned)(stop - a));
    for (struct touched **link = bucket_of(page), *old = *link; old; old = *link) {
      bool same = old->page == page, hosts = same && old->by == &host;
      /* Remove it here, not when a task ends: a page that no task accesses would collect a record per doorbell. */
      if (hosts && old->number != now.number && remove_covered(old, &now)) {
        *link = old->next;
        host.refs--;
        race_block_free(old);
        continue;
      }
      link = &old->next;
      if (hosts && old->number == now.number) mine = old;
      if (!same || hosts) continue;
      struct race_queue *q = race_world.queues[old->by->queue];
      if (!q || q->message[0] || q->dead || old->number <= last_known_task(&race_world.host, old, NULL)) continue;
      int byte = conflict(&now, old);
      if (byte >= 0) format_race(q->message, sizeof q->message, &now, old, byte, unordered);
    }
    if (!mine && (mine = race_block())) {
      struct touched **bucket = bucket_of(page);
      *mine = (struct touched){.next = *bucket, .page = page, .by = &host, .number = now.number, .pc = pc};
      host.refs++;
      *bucket = mine;
    }
    if (mine) set_bits(bits_of(mine, access), (unsigned)(a - page), (unsigned)(stop - a));
    a = stop;
  }
  UNLOCK();
  return alone;
}
