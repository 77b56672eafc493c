/* Vector clocks of queues and of the host, the signals that transfer them, and the order in which queues take turns. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "guard.h"
#include "race_internal.h"
#include "watch.h"

enum {
  VALUES = 32,         /* number of values of a signal that are remembered */
  SIGNAL_BITS = 10,    /* of a hash table indexed by page */
  WINDOW_NS = 1000000, /* work starts when the host has been idle for this time after it submitted it, */
  HELD_NS = 20000000,  /* but at the latest after this time */
  TURN_NS = 10000000,  /* maximum time for which a queue is held back */
  REARM_POLLS = 64,
};

/* The memory of a signal, and the order that each of its recent values stands for. */
struct signal {
  struct signal *next;
  const void *at;
  uint64_t n; /* number of values stored; the last VALUES of them are kept */
  uint64_t value[VALUES];
  struct order order[VALUES];
};

struct race_world race_world = {.lock = PTHREAD_MUTEX_INITIALIZER, .epoch = 1};
static uint64_t issued[RACE_QUEUES]; /* ids are reused, task numbers are not */
static struct order interrupted;
static struct signal *signals[1 << SIGNAL_BITS], *spare_signals;
static uint64_t seed = 1, arrivals;
static bool several; /* several host threads access memory: signals count as loaded when they are stored */
static pthread_cond_t turns = PTHREAD_COND_INITIALIZER;

#define LOCK()   pthread_mutex_lock(&race_world.lock)
#define UNLOCK() pthread_mutex_unlock(&race_world.lock)

bool race_wanted(bool *strict, char *err, size_t errcap) {
  const char *v = getenv("EMU_STRICT");
  char *end;
  unsigned long long n = v && *v >= '0' && *v <= '9' ? strtoull(v, &end, 10) : 0;
  *strict = n != 0;
  if (!v || !*v || (*v >= '0' && *v <= '9' && !*end)) {
    LOCK();
    if (n) seed = n;
    UNLOCK();
    return true;
  }
  snprintf(err, errcap, "EMU_STRICT is \"%s\"; it can be 0, 1, or another number for another order of queues", v);
  return false;
}

uint64_t race_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- idle and active ---- */

static bool all_idle(void) {
  for (unsigned i = 0; i < RACE_QUEUES; i++) {
    const struct race_queue *q = race_world.queues[i];
    if (q && !q->dead && (!q->idle || q->notices || race_world.host.near.at[i] < q->worked)) return false;
  }
  return true;
}

/* When the host knows that all work has finished, its accesses are ordered before whatever it submits next. */
static void deactivate_if_idle(void) {
  if (!race_world.active || !all_idle()) return;
  race_world.active = false;
  race_forget();
  watch_open();
}

/* Records a doorbell value. If memory is out, the doorbell is noticed later. */
static void record_doorbell(struct race_queue *q) {
  uint64_t value = q->dead ? q->noticed : q->rung(q->ctx);
  struct notice *n = value == q->noticed ? NULL : race_block();
  if (!n) return;
  race_world.busy_ns = race_now_ns();
  *n = (struct notice){.value = q->noticed = value, .time_ns = race_world.busy_ns, .known = race_world.host};
  n->known.near.at[RACE_HOST] = n->known.far.at[RACE_HOST] = race_world.epoch++;
  *(q->notices ? &q->latest->next : &q->notices) = n;
  q->latest = n;
  q->idle = false;
  race_world.active = true;
  watch_close();
}

static void record_doorbells(void) {
  for (unsigned i = 0; i < RACE_QUEUES; i++)
    if (race_world.queues[i]) record_doorbell(race_world.queues[i]);
}

/* ---- queues ---- */

struct race_queue *race_queue_new(const char *name, uint64_t (*rung)(void *ctx), void *ctx) {
  struct race_queue *q = calloc(1, sizeof *q);
  if (!q) return NULL;
  q->rung = rung;
  q->ctx = ctx;
  q->idle = true;
  snprintf(q->name, sizeof q->name, "%s", name);
  guard_arm();
  LOCK();
  while (q->id < RACE_QUEUES && race_world.queues[q->id]) q->id++;
  if (q->id < RACE_QUEUES) {
    race_world.queues[q->id] = q;
    q->issued = q->finished = q->worked = q->visible.near.at[q->id] = q->visible.far.at[q->id] = issued[q->id];
    q->code = q->visible;
    q->ordered = q->visible.near;
  }
  UNLOCK();
  if (q->id < RACE_QUEUES) return q;
  free(q);
  return NULL;
}

static void forget_signals(void) {
  for (unsigned i = 0; i < 1 << SIGNAL_BITS; i++)
    while (signals[i]) {
      struct signal *s = signals[i];
      signals[i] = s->next;
      s->next = spare_signals;
      spare_signals = s;
    }
}

static void retire_queue(struct race_queue *q) {
  q->dead = q->idle = true;
  q->blocked = false;
  if (q->front) race_front_end(q);
  struct order *const all[] = {&race_world.published, &race_world.host};
  for (unsigned i = 0; i < 2; i++) all[i]->near.at[q->id] = all[i]->far.at[q->id] = q->issued;
  while (q->notices) {
    struct notice *n = q->notices;
    q->notices = n->next;
    race_block_free(n);
  }
  pthread_cond_broadcast(&turns);
  deactivate_if_idle();
}

void race_stop(struct race_queue *q) {
  if (!q || q->dead) return;
  LOCK();
  retire_queue(q);
  UNLOCK();
}

void race_queue_free(struct race_queue *q) {
  if (!q) return;
  bool last = true;
  LOCK();
  retire_queue(q);
  issued[q->id] = q->issued;
  race_world.queues[q->id] = NULL;
  race_forget_queue(q->id);
  for (unsigned i = 0; i < RACE_QUEUES; i++) last &= !race_world.queues[i];
  if (last) {
    race_forget();
    forget_signals();
  }
  UNLOCK();
  if (q->message[0]) fprintf(stderr, "EMU_STRICT: %s\n", q->message); /* no other way is left to report it */
  free(q);
}

/* ---- turns ---- */

static uint64_t rank_of(const struct race_queue *q) {
  uint64_t n = ++arrivals;
  return seed == 1 ? n : 1 + ((n * 0x9e3779b97f4a7c15ull ^ (q->id + seed) * 0xbf58476d1ce4e5b9ull) >> 8);
}

static struct race_queue *ahead_of(const struct race_queue *q) {
  for (unsigned i = 0; i < RACE_QUEUES; i++) {
    struct race_queue *o = race_world.queues[i];
    if (o && o != q && !o->dead && !o->idle && !o->blocked && o->rank > q->rank) return o;
  }
  return NULL;
}

/* Holds a queue back while a queue with a higher rank can run. A queue that takes too long loses its rank until its
 * next doorbell: it may be waiting for this queue in a way that is not observed. */
static void wait_for_turn(struct race_queue *q) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += TURN_NS;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  while (ahead_of(q))
    if (pthread_cond_timedwait(&turns, &race_world.lock, &until)) {
      struct race_queue *first = ahead_of(q);
      if (first) first->rank = 0;
      break;
    }
}

/* ---- events that order tasks ---- */

static void mark_idle(struct race_queue *q) {
  if (q->idle) return;
  race_front_end(q);
  q->idle = true;
  pthread_cond_broadcast(&turns);
  deactivate_if_idle();
}

void race_idle(struct race_queue *q) {
  if (++q->polls % REARM_POLLS == 0) guard_arm(); /* the program may have replaced the handlers */
  if (q->idle) return;
  LOCK();
  if (!q->notices) mark_idle(q);
  UNLOCK();
}

uint64_t race_doorbell(struct race_queue *q) {
  if (++q->polls % REARM_POLLS == 0) guard_arm(); /* the program may have replaced the handlers */
  LOCK();
  record_doorbell(q);
  struct notice *n = q->notices;
  uint64_t latest = n ? n->time_ns + HELD_NS : 0;
  if (n) {
    q->notices = n->next;
    q->taken = n->value;
    order_join(&q->seen, &n->known);
    clock_join(&q->ordered, &n->known.near);
    race_block_free(n);
  } else {
    mark_idle(q);
  }
  UNLOCK();
  if (!n) return q->taken;
  LOCK();
  q->held = true;
  for (;;) {
    uint64_t now = race_now_ns(), start = race_world.busy_ns + WINDOW_NS;
    if (start > latest) start = latest;
    if (now >= start) break;
    UNLOCK();
    nanosleep(&(struct timespec){.tv_nsec = (long)(start - now)}, NULL);
    LOCK();
  }
  q->held = false;
  q->rank = rank_of(q);
  wait_for_turn(q);
  UNLOCK();
  return q->taken;
}

static struct signal **signals_of(const void *at) {
  return &signals[race_bucket((uintptr_t)at / RACE_PAGE, SIGNAL_BITS)];
}

static struct signal *signal_at(const void *at) {
  struct signal *s = *signals_of(at);
  while (s && s->at != at) s = s->next;
  return s;
}

static struct signal *signal_make(const void *at) {
  struct signal *s = signal_at(at), **head = signals_of(at);
  if (s) return s;
  if ((s = spare_signals))
    spare_signals = s->next;
  else if ((s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) == MAP_FAILED)
    return NULL;
  s->next = *head, s->at = at, s->n = 0;
  *head = s;
  if (race_world.active) watch_close(); /* closes pages again whose accesses must now all be observed */
  return s;
}

/* Returns whether memory still holds the value that a queue stored last. */
static bool holds_last_value(const struct signal *s) {
  return s->n && __atomic_load_n((const uint32_t *)s->at, __ATOMIC_RELAXED) == (uint32_t)s->value[(s->n - 1) % VALUES];
}

/* The same for a reader that may run between race_release and the store of the signal: also accepts the value
 * before. */
static bool holds_recent(const struct signal *s) {
  return holds_last_value(s) || (s->n > 1 && __atomic_load_n((const uint32_t *)s->at, __ATOMIC_RELAXED) ==
                                                 (uint32_t)s->value[(s->n - 2) % VALUES]);
}

void race_wait(struct race_queue *q, const void *at, uint64_t least) {
  if (!q) return;
  LOCK();
  race_front_end(q);
  q->blocked = false;
  const struct signal *s = signal_at(at);
  if (!s || !holds_recent(s)) { /* stored by the host or by a kernel */
    order_join(&q->seen, &race_world.published);
    order_join(&q->seen, &race_world.host);
    q->seen.near.at[RACE_HOST] = q->seen.far.at[RACE_HOST] = race_world.epoch++;
  } else {
    uint64_t first = s->n > VALUES ? s->n - VALUES : 0, i = s->n - 1;
    while (i > first && s->value[(i - 1) % VALUES] >= least) i--;
    order_join(&q->seen, &s->order[i % VALUES]);
  }
  clock_join(&q->ordered, &q->seen.near);
  UNLOCK();
}

void race_blocked(struct race_queue *q) {
  if (!q || q->blocked) return;
  LOCK();
  q->blocked = true;
  pthread_cond_broadcast(&turns);
  UNLOCK();
}

void race_finish(struct race_queue *q) {
  if (!q) return;
  LOCK();
  q->ordered.at[q->id] = q->finished = q->issued;
  UNLOCK();
}

static void raise_clock(struct clock *c, unsigned id, uint64_t number) {
  if (number > c->at[id]) c->at[id] = number;
}

void race_acquire_by(struct race_queue *q, unsigned caches) {
  if (!q) return;
  LOCK();
  race_front_end(q);
  if (caches & RACE_NEAR) {
    clock_join(&q->visible.near, &q->seen.near);
    raise_clock(&q->visible.near, q->id, q->finished);
  }
  if (caches & RACE_FAR) clock_join(&q->visible.far, &q->seen.far);
  if (caches & RACE_CODE) q->code = q->visible;
  UNLOCK();
}

void race_acquire(struct race_queue *q) { race_acquire_by(q, RACE_CODE | RACE_NEAR | RACE_FAR); }

static bool same_gpu(const struct race_queue *q, unsigned id) {
  const struct race_queue *o = id < RACE_QUEUES ? race_world.queues[id] : NULL;
  return o && o->gpu == q->gpu;
}

/* The caller holds the lock. */
static void write_back(struct race_queue *q, uint64_t own) {
  for (unsigned i = 0; i < RACE_QUEUES; i++) {
    if (!same_gpu(q, i)) continue;
    raise_clock(&q->back, i, q->visible.near.at[i]);
    raise_clock(&q->back, i, q->seen.near.at[i]);
  }
  raise_clock(&q->back, q->id, own);
}

void race_write_back(struct race_queue *q, bool at_once) {
  if (!q) return;
  LOCK();
  write_back(q, at_once ? q->finished : q->issued);
  UNLOCK();
}

/* Adds what a release of a queue publishes. */
static void join_released(struct order *o, const struct race_queue *q, uint64_t own) {
  order_join(o, &q->visible);
  order_join(o, &q->seen);
  clock_join(&o->far, &q->back);
  raise_clock(&o->near, q->id, own);
}

void race_queue_caches(struct race_queue *q, const void *gpu) {
  if (q) q->gpu = gpu;
}

static bool pop_message(struct race_queue *q, char *text, size_t cap) {
  if (!q->message[0]) return false;
  snprintf(text, cap, "%s", q->message);
  q->message[0] = 0;
  return true;
}

bool race_clean(struct race_queue *q, char *text, size_t cap) {
  if (!q || !q->message[0]) return true;
  LOCK();
  bool told = pop_message(q, text, cap);
  UNLOCK();
  return !told;
}

bool race_release(struct race_queue *q, const void *at, uint64_t value, bool at_once, char *text, size_t cap) {
  if (!q) return true;
  LOCK();
  race_front_end(q);
  record_doorbells(); /* doorbells that are not observed immediately: those rung before this store are ordered before it
                       */
  bool told = pop_message(q, text, cap);
  struct signal *s = told ? NULL : signal_make(at);
  if (s) {
    if (!holds_last_value(s)) s->n = 0; /* the host has reused the memory for another signal */
    struct order *o = &s->order[s->n % VALUES];
    if (s->n)
      *o = s->order[(s->n - 1) % VALUES]; /* a later value implies the earlier ones */
    else
      memset(o, 0, sizeof *o);
    s->value[s->n++ % VALUES] = value;
    uint64_t done = at_once ? q->finished : q->issued;
    if (!q->gpu) write_back(q, done);
    join_released(o, q, done);
    order_join(&race_world.published, o);
    if (several || !watch_covers(at)) order_join(&race_world.host, o);
  }
  UNLOCK();
  return !told;
}

void race_interrupt(struct race_queue *q) {
  if (!q) return;
  LOCK();
  if (!q->gpu) write_back(q, q->issued);
  join_released(&interrupted, q, q->issued);
  UNLOCK();
}

/* ---- the host ---- */

void race_interrupted(void) {
  LOCK();
  order_join(&race_world.host, &interrupted);
  UNLOCK();
}

bool race_signals_near(const void *at) {
  const struct signal *s = *signals_of(at);
  while (s && ((uintptr_t)s->at ^ (uintptr_t)at) >= RACE_PAGE) s = s->next;
  return s != NULL;
}

/* The host may load an 8-byte word, and the timestamp after it, in parts. */
static struct signal *signal_around(const void *at, unsigned access) {
  static const uintptr_t masks[] = {~(uintptr_t)0, ~(uintptr_t)3, ~(uintptr_t)7, ~(uintptr_t)15};
  for (unsigned i = 0; i < (access & VM_WRITE ? 3 : 4); i++) {
    struct signal *s = signal_at((const void *)((uintptr_t)at & masks[i]));
    if (s) return s;
  }
  return NULL;
}

bool race_host_signal(const void *at, unsigned access) {
  struct signal *s = signal_around(at, access);
  if (s && access & VM_WRITE) s->n = 0; /* the value there is now the host's */
  return s != NULL;
}

/* Returns true if all work is done except that queues have not noticed it yet. */
static bool nearly_idle(void) {
  for (unsigned i = 0; i < RACE_QUEUES; i++) {
    const struct race_queue *q = race_world.queues[i];
    if (q && !q->dead && (q->notices || q->held || q->blocked || race_world.host.near.at[i] < q->worked)) return false;
  }
  return race_world.active;
}

void race_host_load(const void *at) {
  LOCK();
  const struct signal *s = signal_around(at, VM_READ);
  bool told = s && s->n;
  if (told) {
    order_join(&race_world.host, &s->order[(s->n - 1) % VALUES]);
    deactivate_if_idle();
  }
  /* Wait until memory is open before the host continues, so that its system calls work, too. */
  for (uint64_t until = told ? race_now_ns() + WINDOW_NS : 0; until && nearly_idle() && race_now_ns() < until;) {
    UNLOCK();
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    LOCK();
    deactivate_if_idle();
  }
  UNLOCK();
}

void race_host_unobserved(void) {
  LOCK();
  several = true;
  order_join(&race_world.host, &race_world.published);
  deactivate_if_idle();
  UNLOCK();
}

void race_host_doorbell(void) {
  LOCK();
  record_doorbells();
  UNLOCK();
}

void race_forked(void) {
  pthread_mutex_init(&race_world.lock, NULL);
  memset(race_world.queues, 0, sizeof race_world.queues);
  race_world.active = false;
}
