/* What race.c (order) and race_pages.c (accesses) share. One lock covers all of it: strict mode is for finding
 * mistakes, not for speed. Nothing that the host's signal handlers reach allocates from the heap. */
#ifndef DOORBELL_EMU_RACE_INTERNAL_H
#define DOORBELL_EMU_RACE_INTERNAL_H
#include <pthread.h>
#include "race.h"

enum {
  RACE_QUEUES = 64,
  RACE_HOST = RACE_QUEUES, /* the host's entry in clocks */
  RACE_CLOCKS,
  RACE_PAGE = 4096,
  RACE_TEXT = 400,
};

struct clock {
  uint64_t at[RACE_CLOCKS]; /* by queue: the last task known to have finished and to be visible */
};

/* What is known of others' tasks: that they have finished, and that what they wrote to their GPUs' memory is written
 * back. */
struct order {
  struct clock near, far;
};

/* A doorbell, and what the host knew when it rang. */
struct notice {
  struct notice *next;
  uint64_t value, time_ns;
  struct order known;
};

struct race_queue {
  unsigned id;
  uint64_t (*rung)(void *ctx);
  void *ctx;
  struct notice *notices;  /* oldest first */
  struct notice *latest;   /* the last of them, if there are any */
  uint64_t noticed, taken; /* doorbell values */
  char name[96];
  const void *gpu;            /* NULL: it has no caches */
  struct order visible, seen; /* seen: visible at the next acquire */
  struct order code;          /* visible to instruction fetches */
  struct clock back;          /* of its GPU's queues: what was written back */
  struct clock ordered;       /* what came before, whatever caches hold of it */
  uint64_t issued, finished;
  uint64_t worked; /* the last task that was not the front end's */
  uint64_t rank;   /* among queues with work: the highest goes first */
  struct race_task *front;
  bool held; /* before it starts, see race_doorbell */
  /* Its own thread reads these three without the lock, too. */
  _Atomic bool resting; /* all that it noticed is done */
  _Atomic bool blocked; /* on a signal */
  _Atomic bool dead;    /* see race_stop */
  unsigned polls;       /* in vain */
  char told[RACE_TEXT]; /* a race to be reported */
};

/* Who touched a page. */
struct actor {
  unsigned refs; /* under the lock */
  unsigned queue;
  bool front;
  char what[160];
};

/* Accesses to one page, a bit per byte. */
struct touched {
  struct touched *next; /* in its task's bucket, then in history's */
  uintptr_t page;
  struct actor *by;
  uint64_t number;
  bool code;    /* fetched as instructions */
  uintptr_t pc; /* the host's */
  uint64_t read[RACE_PAGE / 64], written[RACE_PAGE / 64], atomic[RACE_PAGE / 64];
};

struct race_task {
  struct actor *actor;
  uint64_t number;
  struct order after, code;
  struct clock ordered;
  const void *gpu;
  pthread_mutex_t lock;        /* of who adds a page */
  struct touched *pages[1024]; /* by address */
};

extern struct race_world {
  pthread_mutex_t lock;
  struct race_queue *queues[RACE_QUEUES];
  struct order host;      /* what the host has been told of */
  struct order published; /* of all releases */
  uint64_t epoch;         /* the number of what the host does now */
  uint64_t busy_ns;       /* when the host was last seen to do anything but wait */
  bool active;            /* something is under way that the host does not know the end of */
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
/* A zeroed block, of a touched's size at most; from the kernel, so that signal handlers can. */
void *race_block(void);
void race_block_free(void *block);
/* Ends the front end's task; a race is noted in q->told. Under the lock. */
void race_front_end(struct race_queue *q);
/* Are there signals in at's page? Is one there, which the host is about to load or store? Under the lock. */
bool race_signals_near(const void *at);
bool race_host_signal(const void *at, unsigned access);
/* Every access so far comes before whatever begins later, but for what caches may still hold. Under the lock. */
void race_forget(void);
/* Forgets what a queue did, whose id another one may get. Under the lock. */
void race_forget_queue(unsigned queue);
#endif
