/* Shared by race.c (order of tasks) and race_pages.c (accesses). One lock guards everything: strict mode is built to
 * find errors, not for speed. Code that the host's signal handlers reach does not allocate from the heap. */
#ifndef DOORBELL_EMU_RACE_INTERNAL_H
#define DOORBELL_EMU_RACE_INTERNAL_H
#include <pthread.h>
#include "race.h"

enum {
  RACE_QUEUES = 64,
  RACE_HOST = RACE_QUEUES, /* index of the host in clocks */
  RACE_CLOCKS,
  RACE_PAGE = 4096,
  RACE_TEXT = 400,
};

struct clock {
  uint64_t at[RACE_CLOCKS]; /* per queue: the last task known to be finished and visible */
};

/* What is known of other queues' tasks. near: they have finished. far: they have finished and their writes to their
 * GPU's memory are written back. */
struct order {
  struct clock near, far;
};

/* A doorbell value, and what the host knew when it rang. */
struct notice {
  struct notice *next;
  uint64_t value, time_ns;
  struct order known;
};

struct race_queue {
  unsigned id;
  uint64_t (*rung)(void *ctx);
  void *ctx;
  struct notice *notices;  /* singly linked, oldest first */
  struct notice *latest;   /* the newest of notices; valid if notices is not NULL */
  uint64_t noticed, taken; /* doorbell values */
  char name[96];
  const void *gpu;            /* NULL if the GPU has no caches */
  struct order visible, seen; /* visible to its tasks; seen becomes visible at the next acquire */
  struct order code;          /* what is visible to instruction fetches */
  struct clock back;          /* per queue of its GPU: the last task that is written back */
  struct clock ordered;       /* what is ordered before, regardless of caches */
  uint64_t issued, finished;
  uint64_t worked; /* number of the last task that is not the front end's */
  uint64_t rank;   /* among queues with work, the highest rank runs first */
  struct race_task *front;
  bool held; /* waiting for the host to become idle, see race_doorbell */
  /* The queue's own thread also reads these three without the lock. */
  _Atomic bool idle;       /* finished everything that was noticed */
  _Atomic bool blocked;    /* waiting for a signal */
  _Atomic bool dead;       /* stopped by race_stop */
  unsigned polls;          /* number of polls without new work */
  char message[RACE_TEXT]; /* message of a race that is not reported yet */
};

/* Who accessed a page. */
struct actor {
  unsigned refs; /* guarded by race_world.lock */
  unsigned queue;
  bool front;
  char what[160];
};

/* The accesses of one task to one page, one bit per byte. */
struct touched {
  struct touched *next; /* next in the task's bucket, later in the history's bucket */
  uintptr_t page;
  struct actor *by;
  uint64_t number;
  bool code;    /* fetched as instructions */
  uintptr_t pc; /* of the host's instruction, else 0 */
  uint64_t read[RACE_PAGE / 64], written[RACE_PAGE / 64], atomic[RACE_PAGE / 64];
};

struct race_task {
  struct actor *actor;
  uint64_t number;
  struct order after, code;
  struct clock ordered;
  const void *gpu;
  pthread_mutex_t lock;        /* guards adding to pages */
  struct touched *pages[1024]; /* hash table by page address */
};

extern struct race_world {
  pthread_mutex_t lock;
  struct race_queue *queues[RACE_QUEUES];
  struct order host;      /* what the host has learned from signals */
  struct order published; /* union of all releases */
  uint64_t epoch;         /* the number of the host's current accesses */
  uint64_t busy_ns;       /* when the host was last seen doing something other than waiting */
  bool active;            /* work is in flight, as far as the host knows */
} race_world;

static inline void clock_join(struct clock *c, const struct clock *with) {
  for (unsigned i = 0; i < RACE_CLOCKS; i++)
    if (with->at[i] > c->at[i]) c->at[i] = with->at[i];
}
static inline void order_join(struct order *o, const struct order *with) {
  clock_join(&o->near, &with->near);
  clock_join(&o->far, &with->far);
}
static inline unsigned race_bucket(uintptr_t key, unsigned bits) {
  return (unsigned)(key * 0x9e3779b97f4a7c15ull >> (64 - bits));
}

uint64_t race_now_ns(void);
/* Allocates a zeroed block, large enough for a struct touched, from mmap memory: safe in signal handlers. NULL if out
 * of memory. */
void *race_block(void);
void race_block_free(void *block);
/* Ends the front end's task and stores the message of a race in q->message. The caller holds the lock. */
void race_front_end(struct race_queue *q);
/* race_signals_near: is a signal in at's page? race_host_signal: is one at `at`, which the host is about to access? A
 * write drops the signal's history. The caller holds the lock. */
bool race_signals_near(const void *at);
bool race_host_signal(const void *at, unsigned access);
/* Declares all accesses so far as ordered before all later ones, except for what caches may still hold. The caller
 * holds the lock. */
void race_forget(void);
/* Drops the records of a queue, so another queue can reuse its id. The caller holds the lock. */
void race_forget_queue(unsigned queue);
#endif
