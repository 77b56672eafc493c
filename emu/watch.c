/* Page protection of the client's mappings, and the signal handlers that observe its accesses. */
#define _GNU_SOURCE
#include "watch.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include "guard.h"
#include "race.h"

#if defined(__x86_64__)

enum {
  PAGE = 4096,
  STEP_PAGES = 20, /* maximum number of pages that one instruction accesses: a gather has 16 addresses */
  HOT = 1024,      /* number of pages whose accesses are counted, */
  HOT_MOST = 32,   /* and maximum number of accesses per page that are observed between two submissions */
  STEPS = 64,      /* maximum number of threads that single-step at the same time */
  TRAP_FLAG = 0x100,
  DIRECTION_FLAG = 0x400,
};

struct mapping {
  uintptr_t at, end, alias;
  int prot;
  enum watch_kind kind;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *maps; /* sorted by address, disjoint */
static size_t nmaps, cap;
static bool closed, never, forks;
/* Pages that stay open until the next submission after HOT_MOST accesses, and their number so far. */
static struct hot {
  uintptr_t page;
  unsigned n;
} hot[HOT];
static bool any_hot;

/* The instruction that a thread single-steps with pages open. */
struct step {
  pthread_t owner;
  bool taken, trap_was_blocked;
  unsigned n;
  struct {
    uintptr_t at;
    struct mapping map;
    bool write, keep;
  } page[STEP_PAGES];
};
/* Not thread-local: the first access to such memory of a library that dlopen loaded may allocate, which a signal
 * handler must not do, and a library that is loaded late has little of the memory for which that is not so. */
static struct step steps[STEPS];

/* While a thread has a page open, accesses of other threads to it are not observed, including loads of signals. So once
 * there are several threads, signals count as loaded when they are stored. */
static pthread_t only; /* the thread of all faults so far, if there was one */
static bool faulted;
static atomic_bool several;

static uintptr_t page_of(uintptr_t at) { return at & ~(uintptr_t)(PAGE - 1); }

/* ---- mappings ---- */

static bool is_register(const struct mapping *m) { return m->kind == WATCH_DOORBELL || m->kind == WATCH_FLUSH; }

/* Returns the protection while no work is in flight. The first write to a page of a window must be observed. */
static int prot_at_rest(const struct mapping *m) { return m->kind == WATCH_WINDOW ? m->prot & ~PROT_WRITE : m->prot; }

static void protect(const struct mapping *m, int prot) { mprotect((void *)m->at, m->end - m->at, prot); }

static struct mapping *find(uintptr_t at) {
  size_t lo = 0, hi = nmaps;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if (maps[mid].end <= at)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo < nmaps && maps[lo].at <= at ? &maps[lo] : NULL;
}

static bool insert(struct mapping m) {
  if (nmaps == cap) {
    size_t more = cap ? 2 * cap : 1024;
    void *p = mmap(NULL, more * sizeof *maps, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return false;
    if (maps) {
      memcpy(p, maps, nmaps * sizeof *maps);
      munmap(maps, cap * sizeof *maps);
    }
    maps = p;
    cap = more;
  }
  size_t i = nmaps;
  while (i && maps[i - 1].at > m.at) i--;
  memmove(&maps[i + 1], &maps[i], (nmaps++ - i) * sizeof *maps);
  maps[i] = m;
  return true;
}

static void forget(uintptr_t at, uintptr_t end) {
  for (size_t i = 0; i < nmaps;) {
    struct mapping m = maps[i];
    if (m.end <= at || m.at >= end) {
      i++;
      continue;
    }
    memmove(&maps[i], &maps[i + 1], (--nmaps - i) * sizeof *maps);
    struct mapping parts[3] = {m, m, m};
    parts[0].end = parts[1].at = m.at > at ? m.at : at;
    parts[1].end = parts[2].at = m.end < end ? m.end : end;
    parts[2].alias += parts[2].at - m.at;
    protect(&parts[1], m.prot);
    parts[1].alias += parts[1].at - m.at;
    if (m.kind == WATCH_OWN) munmap((void *)parts[1].alias, parts[1].end - parts[1].at);
    /* A part that does not fit into the table stays open and is not observed. */
    for (unsigned k = 0; k < 3; k += 2)
      if (parts[k].at < parts[k].end && !insert(parts[k])) protect(&parts[k], m.prot);
    i = 0;
  }
}

/* The child of a fork has no queues. */
static void forked(void) {
  pthread_mutex_init(&lock, NULL);
  for (size_t i = 0; i < nmaps; i++) protect(&maps[i], maps[i].prot);
  nmaps = 0;
  closed = false;
  race_forked();
}

static bool on_signal(int sig, siginfo_t *info, void *context);

void watch_map(void *at, size_t len, int prot, void *alias, enum watch_kind kind) {
  uintptr_t first = (uintptr_t)at, end = page_of(first + len + PAGE - 1);
  guard_watch(on_signal);
  pthread_mutex_lock(&lock);
  if (never && kind == WATCH_OWN) munmap(alias, len);
  if (!never) {
    struct mapping m = {first, end, (uintptr_t)alias, prot, kind};
    forget(first, end);
    if (insert(m)) protect(&m, closed || is_register(&m) ? PROT_NONE : prot_at_rest(&m));
    if (!forks) forks = !pthread_atfork(NULL, NULL, forked);
  }
  pthread_mutex_unlock(&lock);
}

void watch_unmap(void *at, size_t len) {
  pthread_mutex_lock(&lock);
  forget((uintptr_t)at, page_of((uintptr_t)at + len + PAGE - 1));
  pthread_mutex_unlock(&lock);
}

/* Returns the emulator's mapping of memory that a client has mapped as one piece, or NULL. */
static void *alias_of(const void *at, size_t len) {
  pthread_mutex_lock(&lock);
  const struct mapping *m = find((uintptr_t)at);
  void *alias = m && len <= m->end - (uintptr_t)at ? (void *)(m->alias + ((uintptr_t)at - m->at)) : NULL;
  pthread_mutex_unlock(&lock);
  return alias;
}

void *watch_import(void *at, size_t len) {
  void *alias = alias_of(at, len);
  if (!alias) watch_unmap(at, len); /* parts of it may be watched */
  return alias ? alias : at;
}

bool watch_covers(const void *alias) {
  uintptr_t at = (uintptr_t)alias;
  bool covers = false;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < nmaps && !covers; i++) covers = at - maps[i].alias < maps[i].end - maps[i].at;
  pthread_mutex_unlock(&lock);
  return covers;
}

void watch_never(void) {
  pthread_mutex_lock(&lock);
  never = true;
  pthread_mutex_unlock(&lock);
}

static void close_all(void) {
  for (size_t i = 0; i < nmaps; i++)
    if (!is_register(&maps[i])) protect(&maps[i], PROT_NONE);
}

void watch_close(void) {
  pthread_mutex_lock(&lock);
  if (!closed) {
    closed = true;
    close_all();
  } else if (any_hot) {
    for (unsigned i = 0; i < HOT; i++)
      if (hot[i].n >= HOT_MOST && find(hot[i].page)) mprotect((void *)hot[i].page, PAGE, PROT_NONE);
  }
  if (any_hot) memset(hot, 0, sizeof hot);
  any_hot = false;
  pthread_mutex_unlock(&lock);
}

void watch_open(void) {
  pthread_mutex_lock(&lock);
  closed = false;
  for (size_t i = 0; i < nmaps; i++)
    if (!is_register(&maps[i])) protect(&maps[i], prot_at_rest(&maps[i]));
  pthread_mutex_unlock(&lock);
}

/* Counts an access to a page without signals. Returns true if the page should stay open. */
static bool stays_open(uintptr_t page) {
  struct hot *h = &hot[page / PAGE % HOT];
  if (h->page != page && h->n >= HOT_MOST) return false; /* another page with this index is open */
  if (h->page != page) *h = (struct hot){page, 0};
  any_hot = true;
  return ++h->n >= HOT_MOST;
}

/* ---- string instructions: one fault for the whole instruction ---- */

/* Returns an address at which the handler can access the memory at `at`, and limits *n to the bytes there. */
static void *accessible_address(uintptr_t at, size_t *n) {
  size_t rest = PAGE - at % PAGE;
  if (*n > rest) *n = rest;
  void *alias = alias_of((void *)at, 1);
  return alias ? alias : (void *)at;
}

static void record_access(uintptr_t at, size_t n, unsigned access, uintptr_t pc) {
  while (n) {
    size_t part = PAGE - at % PAGE < n ? PAGE - at % PAGE : n;
    void *alias = alias_of((void *)at, 1);
    if (alias) race_host_access(alias, part, access, pc);
    at += part, n -= part;
  }
}

/* Single-stepping REP MOVS and REP STOS would take a step per element, so this executes them. Returns false for other
 * instructions. */
static bool string_op(ucontext_t *uc) {
  greg_t *r = uc->uc_mcontext.gregs;
  const uint8_t *p = (const uint8_t *)r[REG_RIP];
  bool rep = false, wide = false, half = false;
  for (;; p++) {
    if (*p == 0xf3 || *p == 0xf2)
      rep = true;
    else if (*p == 0x66)
      half = true;
    else
      break;
  }
  if ((*p & 0xf0) == 0x40) wide = *p++ & 8;
  bool move = (*p & 0xfe) == 0xa4, fill = (*p & 0xfe) == 0xaa;
  if (!rep || !(move || fill) || r[REG_EFL] & DIRECTION_FLAG) return false;
  size_t unit = !(*p & 1) ? 1 : wide ? 8 : half ? 2 : 4, left = (size_t)r[REG_RCX] * unit;
  uintptr_t dst = (uintptr_t)r[REG_RDI], src = (uintptr_t)r[REG_RSI], pc = (uintptr_t)r[REG_RIP];
  uint64_t value = (uint64_t)r[REG_RAX];
  if (move) record_access(src, left, VM_READ, pc);
  record_access(dst, left, VM_WRITE, pc);
  bool overlap = move && dst - src < left;
  r[REG_RIP] = (greg_t)(p + 1);
  r[REG_RDI] += (greg_t)left;
  if (move) r[REG_RSI] += (greg_t)left;
  r[REG_RCX] = 0;
  for (size_t done = 0, n; left; left -= n, done += n) {
    n = overlap && left ? 1 : left;
    uint8_t *to = accessible_address(dst + done, &n);
    if (move) {
      const uint8_t *from = accessible_address(src + done, &n);
      memcpy(to, from, n);
    } else
      for (size_t i = 0; i < n; i++) to[i] = (uint8_t)(value >> 8 * ((done + i) % unit));
  }
  return true;
}

/* ---- single instructions ---- */

/* The step of this thread, or NULL. The caller holds the lock. */
static struct step *own_step(void) {
  for (unsigned k = 0; k < STEPS; k++)
    if (steps[k].taken && pthread_equal(steps[k].owner, pthread_self())) return &steps[k];
  return NULL;
}

/* The same, and begins one if there is none. Returns NULL if too many threads have one. */
static struct step *begin_step(const ucontext_t *uc) {
  struct step *s = own_step();
  for (unsigned k = 0; k < STEPS && !s; k++)
    if (!steps[k].taken) {
      s = &steps[k];
      *s = (struct step){
          .taken = true, .owner = pthread_self(), .trap_was_blocked = sigismember(&uc->uc_sigmask, SIGTRAP)};
    }
  return s;
}

static bool on_fault(const siginfo_t *info, ucontext_t *uc) {
  uintptr_t at = (uintptr_t)info->si_addr, page = page_of(at);
  bool write = uc->uc_mcontext.gregs[REG_ERR] & 2;
  if (info->si_code != SEGV_ACCERR) return false;
  pthread_mutex_lock(&lock);
  const struct mapping *found = find(at);
  struct mapping m = found ? *found : (struct mapping){0};
  bool shut = closed || is_register(&m);
  if (found && !faulted) only = pthread_self(), faulted = true;
  bool another = found && !pthread_equal(only, pthread_self()) && !several;
  bool stepping = own_step();
  bool rights = found && m.prot & (write ? PROT_WRITE : PROT_READ);
  if (rights && !shut)
    mprotect((void *)page, PAGE, write ? m.prot : prot_at_rest(&m)); /* opened meanwhile, or a window */
  pthread_mutex_unlock(&lock);
  if (rights && !shut && write && m.kind == WATCH_WINDOW) race_host_window((void *)(m.alias + (page - m.at)));
  if (!rights || !shut) return rights;
  if (another) {
    race_host_unobserved(); /* several threads may do this until one has set the flag */
    several = true;
  }
  if (!is_register(&m) && !stepping && string_op(uc)) return true;
  void *alias = (void *)(m.alias + (at - m.at));
  uintptr_t pc = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];
  bool alone = !is_register(&m) && race_host_access(alias, 1, write ? VM_WRITE : VM_READ, pc);
  pthread_mutex_lock(&lock);
  bool keep = alone && stays_open(page);
  struct step *step = begin_step(uc);
  pthread_mutex_unlock(&lock);
  if (!step) { /* no step is free: retry */
    sched_yield();
    return true;
  }
  mprotect((void *)page, PAGE, m.prot);
  unsigned i = 0;
  while (i < step->n && page_of(step->page[i].at) != page) i++;
  if (i == STEP_PAGES) return false;
  if (i == step->n) step->n++;
  step->page[i].at = at, step->page[i].map = m, step->page[i].write = write, step->page[i].keep = keep;
  sigdelset(&uc->uc_sigmask, SIGTRAP);
  uc->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
  return true;
}

static bool on_trap(ucontext_t *uc) {
  pthread_mutex_lock(&lock);
  struct step *step = own_step();
  if (!step) {
    pthread_mutex_unlock(&lock);
    return false;
  }
  uc->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
  if (step->trap_was_blocked) sigaddset(&uc->uc_sigmask, SIGTRAP);
  for (unsigned i = 0; i < step->n; i++) {
    const struct mapping *now = find(step->page[i].at);
    bool shut = now && (closed || is_register(now));
    if (now && !step->page[i].keep && (shut || now->kind == WATCH_WINDOW))
      mprotect((void *)page_of(step->page[i].at), PAGE, shut ? PROT_NONE : prot_at_rest(now));
  }
  struct step done = *step;
  step->taken = false;
  pthread_mutex_unlock(&lock);
  for (unsigned i = 0; i < done.n; i++) {
    const struct mapping *m = &done.page[i].map;
    if (m->kind == WATCH_DOORBELL && done.page[i].write)
      race_host_doorbell();
    else if (m->kind == WATCH_FLUSH && done.page[i].write)
      race_flush_window(NULL, (void *)m->alias);
    else if (!is_register(m) && !done.page[i].write)
      race_host_load((void *)(m->alias + (done.page[i].at - m->at)));
  }
  return true;
}

static bool on_signal(int sig, siginfo_t *info, void *context) {
  if (sig == SIGTRAP) return on_trap(context);
  return sig == SIGSEGV && on_fault(info, context);
}

#else /* no single-stepping: nothing is observed, and signals count as loaded when they are stored */

void watch_map(void *at, size_t len, int prot, void *alias, enum watch_kind kind) {
  if (kind == WATCH_OWN) munmap(alias, len);
}
void watch_unmap(void *at, size_t len) {}
void *watch_import(void *at, size_t len) { return at; }
bool watch_covers(const void *alias) { return false; }
void watch_never(void) {}
void watch_close(void) {}
void watch_open(void) {}

#endif
