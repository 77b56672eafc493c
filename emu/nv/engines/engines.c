/* The engines of one emulated GPU: its doorbell and timer, its channels with a thread each, groups and their errors.
 *
 * The doorbell is one register, to which the users of all channels store their tokens. The first thread that polls it
 * takes the token and stores NOBODY. A token that is overwritten before any thread polls is not lost: any valid ring
 * makes all scheduled channels compare their GPPut. */
#define _GNU_SOURCE
#include "engines.h"
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "../../guard.h"

enum {
  NOBODY = -1,             /* value of the doorbell if no channel has rung; no token has bits 31:23 */
  SPIN_NS = 30000,         /* an idle channel first polls without sleeping, */
  SLEEP_MIN_NS = 20000,    /* then sleeps for a part of the idle time so far ... */
  SLEEP_PART = 16,         /* ... so noticing a doorbell takes at most this part of the idle time before it, */
  SLEEP_MAX_NS = 4000000,  /* and at most this long; */
  DEEP_NS = 50000000,      /* after this time without a ring it sleeps until the watcher wakes it */
  WATCH_MAX_NS = 1000000,  /* maximum time between two polls of the watcher, which also updates the timer */
  PREEMPT_NS = 2000000000, /* how long a group may take to leave the engines */
  RUN_BUDGET = 1 << 16,
  UNKNOWN_RINGS_MAX = 8,
};

/* ---- waiting and waking ---- */

/* Shared by all machines of the process: a semaphore may be in another GPU's memory. */
static atomic_uint released, waiters;

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ns = 0 waits until woken. */
static void futex_wait(atomic_uint *at, unsigned seen, uint64_t ns) {
  struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
  syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, seen, ns ? &t : NULL, NULL, 0);
}
static void futex_wake(atomic_uint *at) { syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); }

void nv_semaphore_released(void) {
  atomic_fetch_add(&released, 1);
  if (atomic_load(&waiters)) futex_wake(&released);
}

static void channel_wake(struct nv_channel *ch) {
  atomic_fetch_add(&ch->wake_futex, 1);
  if (atomic_load(&ch->asleep)) futex_wake(&ch->wake_futex);
}

static uint64_t sleep_ns(uint64_t idle, uint64_t max) {
  uint64_t ns = idle / SLEEP_PART;
  return ns < SLEEP_MIN_NS ? SLEEP_MIN_NS : ns > max ? max : ns;
}

/* Waits for work. The channel had nothing to do after wake_futex == wake_seen and released == released_seen were read;
 * the wait ends early if either has changed. */
static void channel_pause(struct nv_channel *ch, enum nv_status status, unsigned wake_seen, unsigned released_seen,
                          uint64_t idle) {
  bool off = !atomic_load_explicit(&ch->group->scheduled, memory_order_relaxed);
  if (!off && idle < SPIN_NS) {
    pool_relax();
  } else if (status == NV_BLOCKED && !off) {
    atomic_fetch_add(&waiters, 1);
    futex_wait(&released, released_seen, sleep_ns(idle, SLEEP_MAX_NS));
    atomic_fetch_sub(&waiters, 1);
  } else {
    atomic_store(&ch->asleep, true);
    futex_wait(&ch->wake_futex, wake_seen, off || idle > DEEP_NS ? 0 : sleep_ns(idle, SLEEP_MAX_NS));
    atomic_store(&ch->asleep, false);
  }
}

/* ---- timer and doorbell ---- */

uint64_t nv_engines_time(struct nv_engines *e) { return now_ns() & ~31ull; }

static void refresh_timer(struct nv_engines *e) {
  /* Store both halves at once, so a client that reads high, low, high again notices a change between its loads. */
  uint64_t *at = (uint64_t *)(void *)&e->config.usermode[NV_USERMODE_TIME_0 / 4];
  __atomic_store_n(at, nv_engines_time(e), __ATOMIC_RELAXED);
}

static void log_unknown_ring(struct nv_engines *e, uint32_t token) {
  char line[160];
  if (!e->config.log || atomic_fetch_add(&e->unknown_rings, 1) >= UNKNOWN_RINGS_MAX) return;
  snprintf(line, sizeof line,
           "GPU %u: doorbell rung with 0x%08x, which is not the token of a scheduled channel; ignored", e->config.gpu,
           token);
  e->config.log(e->config.ctx, line);
}

/* Accesses USERD or notifiers. The client owns this memory and may have unmapped it. */
static void call_guarded(void (*touch)(struct nv_channel *ch), struct nv_channel *ch) {
  struct guard guard, **slot = guard_slot(), *const outer = *slot;
  *slot = &guard;
  if (!sigsetjmp(guard.jump, 0)) touch(ch);
  *slot = outer;
}

static void read_put(struct nv_channel *ch) {
  uint32_t put = __atomic_load_n(&ch->d.userd[NV_USERD_GP_PUT / 4], __ATOMIC_ACQUIRE);
  if (put == atomic_load_explicit(&ch->put, memory_order_relaxed)) return;
  atomic_store_explicit(&ch->put, put, memory_order_release);
  channel_wake(ch);
}

/* Wakes the channels whose GPPut has changed. The caller holds e->lock. */
static void ring_channels(struct nv_engines *e) {
  for (struct nv_channel *ch = e->channels; ch; ch = ch->next)
    if (atomic_load(&ch->group->scheduled) && !atomic_load(&ch->group->dead)) call_guarded(read_put, ch);
}

/* Polls the doorbell once. */
static void poll_doorbell(struct nv_engines *e) {
  _Atomic uint32_t *doorbell = &e->config.usermode[NV_USERMODE_NOTIFY_CHANNEL_PENDING / 4];
  if (atomic_load_explicit(doorbell, memory_order_relaxed) == (uint32_t)NOBODY) return;
  uint32_t token = atomic_exchange(doorbell, (uint32_t)NOBODY);
  if (token == (uint32_t)NOBODY) return;
  bool valid = false, known = false;
  pthread_mutex_lock(&e->lock);
  for (struct nv_channel *ch = e->channels; ch && !valid; ch = ch->next) {
    if (ch->d.token != token) continue;
    known = atomic_load(&ch->group->dead);
    valid = !known && atomic_load(&ch->group->scheduled);
  }
  if (valid) ring_channels(e);
  pthread_mutex_unlock(&e->lock);
  if (!valid && !known) log_unknown_ring(e, token);
}

static void *watcher_main(void *arg) {
  struct nv_engines *e = arg;
  uint64_t active = now_ns();
  prctl(PR_SET_TIMERSLACK, 1000ul);
  while (!atomic_load(&e->quit)) {
    unsigned seen = atomic_load(&e->watcher_futex);
    bool rung = atomic_load_explicit(&e->config.usermode[NV_USERMODE_NOTIFY_CHANNEL_PENDING / 4],
                                     memory_order_relaxed) != (uint32_t)NOBODY;
    poll_doorbell(e);
    refresh_timer(e);
    uint64_t now = now_ns();
    if (rung) active = now;
    futex_wait(&e->watcher_futex, seen, sleep_ns(now - active, WATCH_MAX_NS));
  }
  return NULL;
}

/* ---- threads ---- */

static int thread_start(pthread_t *thread, void *(*main)(void *), void *arg) {
  sigset_t all, old;
  sigfillset(&all);
  sigdelset(&all, SIGSEGV), sigdelset(&all, SIGBUS); /* if blocked, they end the process (guard.h) */
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int rc = -pthread_create(thread, NULL, main, arg);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return rc;
}

static void *channel_main(void *arg) {
  struct nv_channel *ch = arg;
  uint64_t active = now_ns();
  prctl(PR_SET_TIMERSLACK, 1000ul);
  for (;;) {
    /* Load wake_futex before quit: a thread that ends the channel stores quit and then increments wake_futex. */
    unsigned wakes = atomic_load(&ch->wake_futex), release = atomic_load(&released);
    if (atomic_load_explicit(&ch->quit, memory_order_acquire)) break;
    enum nv_status status = NV_IDLE;
    uint64_t before = ch->executed;
    poll_doorbell(ch->e);
    atomic_store(&ch->busy, true);
    if (atomic_load(&ch->group->scheduled)) status = nv_host_run(ch, RUN_BUDGET);
    atomic_store(&ch->busy, false);
    if (status == NV_DEAD) {
      race_stop(ch->race);
      break;
    }
    uint64_t now = now_ns();
    if (before != ch->executed)
      active = now;
    else
      channel_pause(ch, status, wakes, release, now - active);
  }
  return NULL;
}

/* ---- engines ---- */

/* Returns the bits of a QMD that some field covers. */
static void qmd_known_bits(uint32_t *bits, enum qmd_version v) {
  for (unsigned f = 0; f < QMD_FIELDS; f++) {
    const struct qmd_field_info *info = qmd_field_info((enum qmd_field)f);
    uint64_t ones = qmd_has(v, (enum qmd_field)f) ? (1ull << qmd_width(v, (enum qmd_field)f)) - 1 : 0;
    for (unsigned i = 0; i < info->count; i++) qmd_set(bits, v, (enum qmd_field)f, i, ones << info->place[v].shift);
  }
}

struct nv_engines *nv_engines_new(const struct nv_engines_config *config) {
  struct nv_engines *e = calloc(1, sizeof *e);
  if (!e) return NULL;
  e->config = *config;
  e->cores = calloc(pool_workers(config->pool) + 1, sizeof e->cores[0]);
  if (!e->cores || nv_perf_init(e) || nv_pma_init(e)) {
    free(e->cores);
    free(e);
    return NULL;
  }
  pthread_mutex_init(&e->lock, NULL);
  pthread_mutex_init(&e->counters_lock, NULL);
  for (unsigned v = 0; v < QMD_VERSIONS; v++) qmd_known_bits(e->qmd_bits[v], (enum qmd_version)v);
  atomic_store(&config->usermode[NV_USERMODE_NOTIFY_CHANNEL_PENDING / 4], (uint32_t)NOBODY);
  refresh_timer(e);
  return e;
}

void nv_engines_free(struct nv_engines *e) {
  if (!e) return;
  if (e->watching) {
    atomic_store(&e->quit, true);
    atomic_fetch_add(&e->watcher_futex, 1);
    futex_wake(&e->watcher_futex);
    pthread_join(e->watcher, NULL);
  }
  for (unsigned i = 0; i <= pool_workers(e->config.pool); i++) sm_core_free(e->cores[i]);
  free(e->cores);
  for (unsigned s = 0; s < NV_SETS; s++)
    for (unsigned g = 0; g < NV_GROUPS; g++) free(e->methods[s][g]);
  free(e->kernel);
  emu_notes_free(&e->notes);
  nv_perf_free(e);
  nv_pma_free(e);
  pthread_mutex_destroy(&e->counters_lock);
  pthread_mutex_destroy(&e->lock);
  free(e);
}

bool nv_engines_watch(struct nv_engines *e) {
  pthread_mutex_lock(&e->lock);
  if (!e->watching) e->watching = !thread_start(&e->watcher, watcher_main, e);
  bool watching = e->watching;
  pthread_mutex_unlock(&e->lock);
  return watching;
}

void nv_engines_stop(struct nv_engines *e) {
  const struct timespec pause = {0, 1000000};
  bool running = true;
  pthread_mutex_lock(&e->lock);
  for (struct nv_channel *ch = e->channels; ch; ch = ch->next) atomic_store(&ch->stop, true);
  for (unsigned ms = 0; running && ms < 1000; ms++) {
    running = false;
    for (struct nv_channel *ch = e->channels; ch; ch = ch->next) running |= atomic_load(&ch->launching);
    if (!running) break;
    pthread_mutex_unlock(&e->lock);
    nanosleep(&pause, NULL);
    pthread_mutex_lock(&e->lock);
  }
  pthread_mutex_unlock(&e->lock);
}

/* ---- groups ---- */

struct nv_channel_group *nv_group_new(struct nv_engines *e) {
  if (!nv_engines_watch(e)) return NULL;
  struct nv_channel_group *g = calloc(1, sizeof *g);
  if (g) g->e = e;
  return g;
}

void nv_group_free(struct nv_channel_group *g) {
  if (g) nv_pma_forget(g);
  free(g);
}

static bool group_busy(struct nv_channel_group *g) {
  bool busy = false;
  pthread_mutex_lock(&g->e->lock);
  for (struct nv_channel *ch = g->e->channels; ch; ch = ch->next) busy |= ch->group == g && atomic_load(&ch->busy);
  pthread_mutex_unlock(&g->e->lock);
  return busy;
}

bool nv_group_schedule(struct nv_channel_group *g, bool on) {
  const struct timespec pause = {0, 50000};
  atomic_store(&g->scheduled, on);
  if (on) {
    pthread_mutex_lock(&g->e->lock);
    for (struct nv_channel *ch = g->e->channels; ch; ch = ch->next)
      if (ch->group == g) channel_wake(ch);
    pthread_mutex_unlock(&g->e->lock);
    return true;
  }
  nv_semaphore_released(); /* a channel that waits for a semaphore checks whether it is still scheduled */
  for (uint64_t until = now_ns() + PREEMPT_NS; group_busy(g);) {
    if (now_ns() > until) return false;
    nanosleep(&pause, NULL);
  }
  return true;
}

/* ---- strict machines ---- */

void nv_idle(struct nv_channel *ch) {
  race_finish(ch->race);
  race_acquire(ch->race);
}

enum nv_status nv_task_end(struct nv_channel *ch, struct race_task *t) {
  char text[400];
  return race_end(t, text, sizeof text) ? NV_DONE : nv_method_error(ch, "%s", text);
}

/* ---- errors ---- */

/* Returns the engine's number as in notifiers. Source: NV2080_ENGINE_TYPE_GRAPHICS and _COPY0 of NVIDIA
 * open-gpu-kernel-modules, class/cl2080_notification.h. */
static unsigned engine_type(const struct nv_channel *ch) { return ch->d.kind == NV_ENGINE_COPY ? 9 + ch->d.engine : 1; }

static void write_notifier(struct nv_channel *ch) {
  struct nv_notifier *n = ch->d.notifier;
  atomic_store_explicit(&n->time, ch->group->error.time, memory_order_relaxed);
  atomic_store_explicit(&n->info32, ch->group->error.xid, memory_order_relaxed);
  atomic_store_explicit(&n->info16, (uint16_t)engine_type(ch), memory_order_relaxed);
  atomic_store_explicit(&n->status, 0xffff, memory_order_release);
}

enum nv_status nv_channel_fail(struct nv_channel *ch, const struct nv_channel_error *error) {
  struct nv_engines *e = ch->e;
  struct nv_channel_group *g = ch->group;
  char line[sizeof error->fault.text + 64];
  pthread_mutex_lock(&e->lock);
  bool first = !g->failing;
  g->failing = true;
  if (first) {
    g->error = *error;
    g->error.time = nv_engines_time(e);
    snprintf(line, sizeof line, "Xid %u: GPU %u, %s", error->xid, e->config.gpu, error->fault.text);
    snprintf(g->error.fault.text, sizeof g->error.fault.text, "%.*s", (int)sizeof g->error.fault.text - 1, line);
  }
  pthread_mutex_unlock(&e->lock);
  if (!first) return NV_DEAD;
  /* Log first, so that the line is present when the process learns of the error. */
  if (e->config.log) e->config.log(e->config.ctx, line);
  pthread_mutex_lock(&e->lock);
  atomic_store(&g->dead, true);
  for (struct nv_channel *o = e->channels; o; o = o->next) {
    if (o->group != g) continue;
    if (o->d.notifier) call_guarded(write_notifier, o);
    atomic_store(&o->stop, true);
    channel_wake(o);
  }
  pthread_mutex_unlock(&e->lock);
  if (e->config.error) e->config.error(e->config.ctx, line);
  nv_semaphore_released();
  return NV_DEAD;
}

bool nv_channel_error(struct nv_channel *ch, struct nv_channel_error *out) {
  pthread_mutex_lock(&ch->e->lock);
  bool dead = atomic_load(&ch->group->dead);
  if (dead) *out = ch->group->error;
  pthread_mutex_unlock(&ch->e->lock);
  return dead;
}

/* ---- channels ---- */

static const struct nv_method *const *class_methods(struct nv_engines *e, enum nv_method_set set, unsigned group) {
  pthread_mutex_lock(&e->lock);
  const struct nv_method ***at = &e->methods[set][group];
  if (!*at) {
    *at = malloc(NV_METHODS * sizeof **at);
    if (*at) nv_method_index(set, group, *at);
  }
  const struct nv_method *const *methods = *at;
  pthread_mutex_unlock(&e->lock);
  return methods;
}

/* An inline-to-memory class has the inline-to-memory methods of the compute class of its generation. */
static uint32_t table_class(uint32_t class) {
  return class == NV_CLASS_INLINE_KEPLER ? 0xc6c0 : class == NV_CLASS_INLINE_BLACKWELL ? 0xcdc0 : class;
}

struct nv_object *nv_object_new(struct nv_engines *e, uint32_t class, enum nv_client client, nv_action_fn *action) {
  enum nv_method_set set;
  unsigned group;
  if (!nv_class_group(table_class(class), &set, &group)) return NULL;
  const struct nv_method *const *methods = class_methods(e, set, group);
  struct nv_object *o = methods ? calloc(1, sizeof *o) : NULL;
  if (!o) return NULL;
  o->class = class;
  o->client = client;
  o->group = group;
  o->methods = methods;
  o->action = action;
  return o;
}

/* The caller holds e->lock. */
static struct nv_space *space_get(struct nv_engines *e, struct vm *vm) {
  struct nv_space *s = e->spaces;
  while (s && s->vm != vm) s = s->next;
  if (!s) {
    struct code_cache *code = code_cache_new(&sm_code_kind);
    s = code ? calloc(1, sizeof *s) : NULL;
    if (!s) {
      code_cache_free(code);
      return NULL;
    }
    *s = (struct nv_space){vm, code, 0, e->spaces};
    e->spaces = s;
  }
  s->refs++;
  return s;
}

static void space_put(struct nv_engines *e, struct nv_space *s) {
  if (!s || --s->refs) return;
  struct nv_space **at = &e->spaces;
  while (*at != s) at = &(*at)->next;
  *at = s->next;
  code_cache_free(s->code);
  free(s);
}

static void channel_destroy(struct nv_channel *ch) {
  char text[8];
  for (unsigned i = 0; i < NV_OBJECTS; i++) {
    if (ch->object[i]) race_end(ch->object[i]->write.task, text, sizeof text); /* its data never came */
    free(ch->object[i]);
  }
  sm_core_free(ch->core);
  race_queue_free(ch->race);
  free(ch);
}

/* GPPut in USERD. The acquire load pairs with the client's store, which comes before its doorbell store. */
static uint64_t gp_put(void *channel) {
  return __atomic_load_n(&((struct nv_channel *)channel)->d.userd[NV_USERD_GP_PUT / 4], __ATOMIC_ACQUIRE);
}

struct nv_channel *nv_channel_new(struct nv_channel_group *g, const struct nv_channel_desc *desc) {
  struct nv_engines *e = g->e;
  struct nv_channel *ch = calloc(1, sizeof *ch);
  if (!ch) return NULL;
  guard_arm();
  ch->d = *desc;
  if (!ch->d.gpfifo_class) ch->d.gpfifo_class = e->config.model->gpfifo_class;
  ch->e = e;
  ch->group = g;
  ch->object[NV_OBJECT_HOST] = nv_object_new(e, ch->d.gpfifo_class, NV_CLIENT_HOST, nv_host_action);
  bool strict = e->config.strict && *e->config.strict;
  if (strict) {
    char name[96];
    snprintf(name, sizeof name, "%s channel %u of GPU %u", desc->kind == NV_ENGINE_COPY ? "copy" : "compute", desc->id,
             e->config.gpu);
    ch->race = race_queue_new(name, gp_put, ch);
  }
  pthread_mutex_lock(&e->lock);
  ch->space = space_get(e, desc->vm);
  bool ready =
      ch->object[NV_OBJECT_HOST] && ch->space && (ch->race || !strict) && !thread_start(&ch->thread, channel_main, ch);
  if (ready) {
    if (atomic_load(&g->dead)) atomic_store(&ch->stop, true);
    ch->next = e->channels;
    e->channels = ch;
  } else {
    space_put(e, ch->space);
  }
  pthread_mutex_unlock(&e->lock);
  if (ready) return ch;
  channel_destroy(ch);
  return NULL;
}

void nv_channel_free(struct nv_channel *ch) {
  if (!ch) return;
  struct nv_engines *e = ch->e;
  pthread_mutex_lock(&e->lock);
  struct nv_channel **at = &e->channels;
  while (*at != ch) at = &(*at)->next;
  *at = ch->next;
  pthread_mutex_unlock(&e->lock);
  atomic_store(&ch->stop, true);
  atomic_store_explicit(&ch->quit, true, memory_order_release);
  channel_wake(ch);
  nv_semaphore_released();
  pthread_join(ch->thread, NULL);
  pthread_mutex_lock(&e->lock);
  space_put(e, ch->space);
  pthread_mutex_unlock(&e->lock);
  channel_destroy(ch);
}

void nv_channel_allow_class(struct nv_channel *ch, uint32_t class) {
  for (unsigned i = 0; i < NV_CLASSES_MAX; i++) {
    uint32_t none = 0;
    if (atomic_load(&ch->allowed[i]) == class || atomic_compare_exchange_strong(&ch->allowed[i], &none, class)) return;
  }
}
