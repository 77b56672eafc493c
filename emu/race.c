/* Vector clocks of queues, and for each page of memory the tasks that touched it. One lock covers all of it: strict mode
 * is for finding mistakes, not for speed. */
#define _GNU_SOURCE
#include "race.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  QUEUES = 64,
  VALUES = 64, /* of a signal that are remembered */
  PAGE = 4096,
  WORDS = PAGE / 64, /* of a bit per byte */
  BUCKETS = 1 << 14,
  WINDOW_NS = 1000000, /* work submitted within it is under way at the same time */
};

struct clock {
  uint64_t at[QUEUES]; /* by queue: the last task known to have finished and to be visible */
};

/* A doorbell, and what the host may have known when it rang. */
struct notice {
  struct notice *next;
  uint64_t value;
  struct clock known;
};

struct race_queue {
  unsigned id;
  uint64_t (*rung)(void *ctx);
  void *ctx;
  struct notice *notices;  /* oldest first */
  uint64_t noticed, taken; /* doorbell values */
  char name[96];
  struct clock visible, seen; /* seen: visible at the next acquire */
  uint64_t issued, finished;
};

/* A task's accesses to one page, a bit per byte. */
struct touched {
  struct touched *next; /* in its task's bucket, then in history's */
  uintptr_t page;
  struct race_task *by;
  uint64_t read[WORDS], written[WORDS], atomic[WORDS];
};

struct race_task {
  struct race_queue *q;
  unsigned queue;
  uint64_t number;
  unsigned refs; /* by history; under the lock */
  char what[160];
  struct clock after;
  pthread_mutex_t lock;        /* of who adds a page */
  struct touched *pages[1024]; /* by address */
};

/* A signal's memory, and what each value that it had lately stands for. */
struct signal {
  struct signal *next;
  const void *at;
  uint64_t n; /* stored so far; the last VALUES are here */
  uint64_t value[VALUES];
  struct clock clock[VALUES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct race_queue *queues[QUEUES];
static uint64_t issued[QUEUES]; /* ids are used again, task numbers are not */
static struct clock published;  /* of all releases */
static struct touched *history[BUCKETS];
static struct signal *signals[BUCKETS];

_Thread_local struct race_task *race_task;

bool race_wanted(bool *strict, char *err, size_t errcap) {
  const char *v = getenv("EMU_STRICT");
  *strict = v && !strcmp(v, "1");
  if (!v || !*v || *strict || !strcmp(v, "0")) return true;
  snprintf(err, errcap, "EMU_STRICT is \"%s\"; it can be 0 or 1", v);
  return false;
}

static unsigned bucket_of(uintptr_t key) { return (unsigned)(key * 0x9e3779b97f4a7c15ull >> 50) % BUCKETS; }

static void join(struct clock *c, const struct clock *with) {
  for (unsigned i = 0; i < QUEUES; i++)
    if (with->at[i] > c->at[i]) c->at[i] = with->at[i];
}

/* ---- queues ---- */

/* Under the lock. Without memory the doorbell is noticed later. */
static void notice(struct race_queue *q) {
  uint64_t value = q->rung(q->ctx);
  struct notice *n = value == q->noticed ? NULL : malloc(sizeof *n), **last = &q->notices;
  if (!n) return;
  *n = (struct notice){.value = q->noticed = value, .known = published};
  while (*last) last = &(*last)->next;
  *last = n;
}

struct race_queue *race_queue_new(const char *name, uint64_t (*rung)(void *ctx), void *ctx) {
  struct race_queue *q = calloc(1, sizeof *q);
  if (!q) return NULL;
  q->rung = rung;
  q->ctx = ctx;
  snprintf(q->name, sizeof q->name, "%s", name);
  pthread_mutex_lock(&lock);
  while (q->id < QUEUES && queues[q->id]) q->id++;
  if (q->id < QUEUES) {
    queues[q->id] = q;
    q->issued = q->finished = q->visible.at[q->id] = issued[q->id];
  }
  pthread_mutex_unlock(&lock);
  if (q->id < QUEUES) return q;
  free(q);
  return NULL;
}

static void task_unref(struct race_task *t) {
  if (--t->refs) return;
  pthread_mutex_destroy(&t->lock);
  free(t);
}

static void forget_all(void) {
  for (unsigned i = 0; i < BUCKETS; i++) {
    while (history[i]) {
      struct touched *p = history[i];
      history[i] = p->next;
      task_unref(p->by);
      free(p);
    }
    while (signals[i]) {
      struct signal *s = signals[i];
      signals[i] = s->next;
      free(s);
    }
  }
}

void race_queue_free(struct race_queue *q) {
  if (!q) return;
  bool last = true;
  pthread_mutex_lock(&lock);
  issued[q->id] = q->issued;
  published.at[q->id] = q->issued; /* it was stopped: what it ran is over */
  queues[q->id] = NULL;
  for (unsigned i = 0; i < QUEUES; i++) last &= !queues[i];
  if (last) forget_all();
  pthread_mutex_unlock(&lock);
  while (q->notices) {
    struct notice *n = q->notices;
    q->notices = n->next;
    free(n);
  }
  free(q);
}

/* ---- what orders them ---- */

uint64_t race_doorbell(struct race_queue *q) {
  pthread_mutex_lock(&lock);
  notice(q);
  struct notice *n = q->notices;
  if (n) {
    q->notices = n->next;
    q->taken = n->value;
    join(&q->seen, &n->known);
    free(n);
  }
  pthread_mutex_unlock(&lock);
  if (n) nanosleep(&(struct timespec){.tv_nsec = WINDOW_NS}, NULL);
  return q->taken;
}

static struct signal *signal_at(const void *at, bool make) {
  struct signal **s = &signals[bucket_of((uintptr_t)at)];
  while (*s && (*s)->at != at) s = &(*s)->next;
  if (!*s && make && (*s = calloc(1, sizeof **s))) (*s)->at = at;
  return *s;
}

/* Does memory still have the value that a queue stored last? */
static bool holds_last(const struct signal *s) {
  return s->n && __atomic_load_n((const uint32_t *)s->at, __ATOMIC_RELAXED) == (uint32_t)s->value[(s->n - 1) % VALUES];
}

void race_wait(struct race_queue *q, const void *at, uint64_t least) {
  if (!q) return;
  pthread_mutex_lock(&lock);
  const struct signal *s = signal_at(at, false);
  if (!s || !holds_last(s)) {
    join(&q->seen, &published); /* the host's store, or a kernel's */
  } else {
    uint64_t first = s->n > VALUES ? s->n - VALUES : 0, i = s->n - 1;
    while (i > first && s->value[(i - 1) % VALUES] >= least) i--;
    join(&q->seen, &s->clock[i % VALUES]);
  }
  pthread_mutex_unlock(&lock);
}

void race_finish(struct race_queue *q) {
  if (!q) return;
  pthread_mutex_lock(&lock);
  q->finished = q->issued;
  pthread_mutex_unlock(&lock);
}

void race_acquire(struct race_queue *q) {
  if (!q) return;
  pthread_mutex_lock(&lock);
  join(&q->visible, &q->seen);
  if (q->finished > q->visible.at[q->id]) q->visible.at[q->id] = q->finished;
  pthread_mutex_unlock(&lock);
}

void race_release(struct race_queue *q, const void *at, uint64_t value) {
  if (!q) return;
  pthread_mutex_lock(&lock);
  for (unsigned i = 0; i < QUEUES; i++)
    if (queues[i]) notice(queues[i]);
  struct signal *s = signal_at(at, true);
  if (s) {
    if (!holds_last(s)) s->n = 0; /* the host has made another signal of it */
    struct clock *c = &s->clock[s->n % VALUES];
    if (holds_last(s))
      *c = s->clock[(s->n - 1) % VALUES]; /* a later value says what the earlier ones did */
    else
      *c = (struct clock){0};
    s->value[s->n++ % VALUES] = value;
    join(c, &q->visible);
    join(c, &q->seen);
    c->at[q->id] = q->issued;
    join(&published, c);
  }
  pthread_mutex_unlock(&lock);
}

/* ---- tasks ---- */

struct race_task *race_begin(struct race_queue *q, const char *what) {
  struct race_task *t = q ? calloc(1, sizeof *t) : NULL;
  if (!t) return NULL;
  t->q = q;
  t->queue = q->id;
  t->refs = 1;
  pthread_mutex_lock(&lock);
  t->number = ++q->issued;
  t->after = q->visible;
  pthread_mutex_unlock(&lock);
  snprintf(t->what, sizeof t->what, "%s (%s)", what, q->name);
  pthread_mutex_init(&t->lock, NULL);
  return t;
}

static struct touched *page_of(struct race_task *t, uintptr_t page) {
  struct touched **bucket = &t->pages[page / PAGE % 1024], *p = __atomic_load_n(bucket, __ATOMIC_ACQUIRE);
  while (p && p->page != page) p = p->next;
  if (p) return p;
  pthread_mutex_lock(&t->lock);
  for (p = *bucket; p && p->page != page;) p = p->next;
  if (!p && (p = calloc(1, sizeof *p))) {
    p->page = page, p->by = t;
    p->next = *bucket;
    __atomic_store_n(bucket, p, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&t->lock);
  return p;
}

void race_touched(struct race_task *t, const void *at, size_t n, unsigned access) {
  for (uintptr_t a = (uintptr_t)at, end = a + n; a < end;) {
    uintptr_t page = a & ~(uintptr_t)(PAGE - 1), stop = page + PAGE < end ? page + PAGE : end;
    struct touched *p = page_of(t, page);
    if (!p) return; /* out of memory: unchecked */
    uint64_t *bits = access == (VM_READ | VM_WRITE) ? p->atomic : access == VM_WRITE ? p->written : p->read;
    while (a < stop) {
      unsigned from = (unsigned)(a - page), count = 64 - from % 64;
      if (count > stop - a) count = (unsigned)(stop - a);
      uint64_t mask = (count == 64 ? ~0ull : (1ull << count) - 1) << from % 64;
      if ((__atomic_load_n(&bits[from / 64], __ATOMIC_RELAXED) & mask) != mask)
        __atomic_fetch_or(&bits[from / 64], mask, __ATOMIC_RELAXED);
      a += count;
    }
  }
}

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

/* Every task from now on comes after it: those of queues at work, and those that the host will submit. */
static bool settled(const struct race_task *t) {
  if (published.at[t->queue] < t->number) return false;
  for (unsigned i = 0; i < QUEUES; i++)
    if (queues[i] && queues[i]->visible.at[t->queue] < t->number && queues[i]->issued > queues[i]->finished)
      return false;
  return true;
}

/* Compares a page with what is known of it, drops what no later task can race with, and adds it. */
static bool check(struct touched *mine, char *text, size_t cap) {
  const struct race_task *t = mine->by;
  bool raced = false;
  struct touched **bucket = &history[bucket_of(mine->page)];
  for (struct touched **at = bucket, *old = *at; old; old = *at) {
    bool same = old->page == mine->page, before = old->by->number <= t->after.at[old->by->queue];
    int byte = same && !before ? conflict(mine, old) : -1;
    if (byte >= 0 && !raced)
      snprintf(text, cap, "data race: %s %s 0x%" PRIxPTR ", which %s %s; nothing orders the two", t->what,
               verb(mine, byte), mine->page + (unsigned)byte, old->by->what, verb(old, byte));
    raced |= byte >= 0;
    if (same && before && settled(old->by)) {
      *at = old->next;
      task_unref(old->by);
      free(old);
    } else
      at = &old->next;
  }
  mine->next = *bucket;
  *bucket = mine;
  mine->by->refs++;
  return !raced;
}

bool race_end(struct race_task *t, char *text, size_t cap) {
  if (!t) return true;
  bool clean = true;
  pthread_mutex_lock(&lock);
  for (unsigned i = 0; i < 1024; i++)
    while (t->pages[i]) {
      struct touched *mine = t->pages[i];
      t->pages[i] = mine->next;
      clean &= check(mine, text, cap);
    }
  task_unref(t);
  pthread_mutex_unlock(&lock);
  return clean;
}
