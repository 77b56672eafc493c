/* KFD events: creating them, setting them by interrupt, fault or ioctl, and WAIT_EVENTS. Rules as in Linux
 * kfd_events.c.
 *
 * Setting an event marks the threads that wait for it at that moment. So an auto-reset event wakes exactly those
 * waiters; they copy its data when they wake. */
#define _GNU_SOURCE
#include "process.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "../../own_fd.h"

enum { OTHER_BASE = (int)0x80000000, OTHER_COUNT = 256, MAX_WAIT = 4096 + OTHER_COUNT };
enum { EVENT_TYPE_DEBUG = 5, EVENT_TYPE_LAST = KFD_EVENT_MEMORY };

struct amd_event {
  uint32_t id, type;
  bool auto_reset, signaled;
  uint64_t age;
  struct kfd_memory_exception memory;
  struct kfd_hw_exception hw;
};

struct amd_waiter {
  struct amd_waiter *next;
  uint32_t n;
  struct amd_wait_slot {
    struct amd_event *event; /* NULL if it was destroyed during the wait */
    bool activated;
  } *slots;
};

void amd_events_init(struct amd_events *e) {
  pthread_condattr_t attr;
  e->page_fd = -1;
  pthread_mutex_init(&e->lock, NULL);
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&e->changed, &attr);
  pthread_condattr_destroy(&attr);
}

void amd_events_fini(struct amd_events *e) {
  for (unsigned i = 0; i < KFD_EVENT_LIMIT; i++) free(e->signal[i]);
  for (unsigned i = 0; i < OTHER_COUNT; i++) free(e->other[i]);
  if (e->page_fd >= 0) {
    munmap((void *)e->slots, KFD_EVENT_PAGE_SIZE);
    own_fd_close(e->page_fd);
  }
  pthread_cond_destroy(&e->changed);
  pthread_mutex_destroy(&e->lock);
}

/* Returns the table slot of event id, or NULL if id is out of range. */
static struct amd_event **event_slot(struct amd_events *e, uint32_t id) {
  if (id < KFD_EVENT_LIMIT) return &e->signal[id];
  if (id - (uint32_t)OTHER_BASE < OTHER_COUNT) return &e->other[id - (uint32_t)OTHER_BASE];
  return NULL;
}
static struct amd_event *event_find(struct amd_events *e, uint32_t id) {
  struct amd_event **slot = event_slot(e, id);
  return slot ? *slot : NULL;
}

static void event_set(struct amd_events *e, struct amd_event *ev) {
  bool woke = false;
  for (struct amd_waiter *w = e->waiters; w; w = w->next)
    for (uint32_t i = 0; i < w->n; i++)
      if (w->slots[i].event == ev) w->slots[i].activated = woke = true;
  ev->signaled = !(ev->auto_reset && woke);
  ev->age++;
  pthread_cond_broadcast(&e->changed);
}

static void event_set_from_interrupt(struct amd_events *e, struct amd_event *ev) {
  atomic_store_explicit(&e->slots[ev->id], KFD_EVENT_UNSIGNALED, memory_order_relaxed);
  event_set(e, ev);
}

void amd_events_interrupt(struct amd_events *e, uint32_t context, unsigned valid_bits) {
  pthread_mutex_lock(&e->lock);
  if (e->slots) {
    uint32_t id = valid_bits < 32 ? context & ((1u << valid_bits) - 1) : context;
    struct amd_event *ev = id < KFD_EVENT_LIMIT ? e->signal[id] : NULL;
    /* The context may hold only a part of the id. The GPU writes the event's slot before it interrupts, so a written
     * slot confirms the id. Otherwise set every event whose slot is written. */
    if (ev && atomic_load_explicit(&e->slots[id], memory_order_relaxed) != KFD_EVENT_UNSIGNALED)
      event_set_from_interrupt(e, ev);
    else
      for (id = 1; id < KFD_EVENT_LIMIT; id++)
        if (e->signal[id] && atomic_load_explicit(&e->slots[id], memory_order_relaxed) != KFD_EVENT_UNSIGNALED)
          event_set_from_interrupt(e, e->signal[id]);
  }
  pthread_mutex_unlock(&e->lock);
}

void amd_events_memory_fault(struct amd_events *e, const struct kfd_memory_exception *x) {
  pthread_mutex_lock(&e->lock);
  for (unsigned i = 0; i < OTHER_COUNT; i++)
    if (e->other[i] && e->other[i]->type == KFD_EVENT_MEMORY) {
      e->other[i]->memory = *x;
      event_set(e, e->other[i]);
    }
  pthread_mutex_unlock(&e->lock);
}

void amd_events_hw_exception(struct amd_events *e, const struct kfd_hw_exception *x) {
  pthread_mutex_lock(&e->lock);
  for (unsigned i = 0; i < OTHER_COUNT; i++)
    if (e->other[i] && e->other[i]->type == KFD_EVENT_HW_EXCEPTION) {
      e->other[i]->hw = *x;
      event_set(e, e->other[i]);
    }
  pthread_mutex_unlock(&e->lock);
}

/* Uses the event page that the process allocated; its first CREATE_EVENT names it. */
static int use_event_page(struct amd_machine *m, uint64_t handle) {
  struct amd_events *e = &m->events;
  struct amd_bo *bo = amd_bo_find(m, handle);
  if (e->slots) return emu_refuse(&m->base, -EINVAL, "CREATE_EVENT: the event page is already set");
  if (!bo || !bo->heap)
    return emu_refuse(&m->base, -EINVAL, "CREATE_EVENT: no buffer 0x%" PRIx64 " for the event page", handle);
  if (bo->size < KFD_EVENT_PAGE_SIZE)
    return emu_refuse(&m->base, -EINVAL, "CREATE_EVENT: an event page has %u bytes", KFD_EVENT_PAGE_SIZE);
  memset(bo->host, 0xff, KFD_EVENT_PAGE_SIZE);
  bo->pins++;
  pthread_mutex_lock(&e->lock);
  e->page_bo = bo;
  e->slots = (_Atomic uint64_t *)bo->host;
  pthread_mutex_unlock(&e->lock);
  return 0;
}

static int make_page(struct amd_machine *m) {
  struct amd_events *e = &m->events;
  int fd;
  void *p;
  int rc = emu_shared_page("kfd-events", KFD_EVENT_PAGE_SIZE, &fd, &p);
  if (rc) return rc;
  memset(p, 0xff, KFD_EVENT_PAGE_SIZE);
  pthread_mutex_lock(&e->lock);
  e->page_fd = fd;
  e->slots = p;
  pthread_mutex_unlock(&e->lock);
  return 0;
}

void *amd_events_mmap(struct amd_machine *m, void *addr, size_t len, int prot, int flags) {
  struct amd_events *e = &m->events;
  int rc = e->page_fd < 0 ? emu_refuse(&m->base, -EINVAL, "mmap: KFD has no event page")
           : len > KFD_EVENT_PAGE_SIZE
               ? emu_refuse(&m->base, -EINVAL, "mmap: the event page has %u bytes", KFD_EVENT_PAGE_SIZE)
               : 0;
  if (rc) return (void *)(intptr_t)rc;
  void *p = mmap(addr, len, prot, flags, e->page_fd, 0);
  return p == MAP_FAILED ? (void *)(intptr_t)-errno : p;
}

int amd_create_event(struct amd_machine *m, void *arg) {
  struct kfd_create_event *a = arg;
  struct amd_events *e = &m->events;
  int rc = 0;
  if (a->event_type > EVENT_TYPE_LAST) return emu_refuse(&m->base, -EINVAL, "CREATE_EVENT: type %u", a->event_type);
  if (a->event_page_offset && (rc = use_event_page(m, a->event_page_offset))) return rc;
  bool slotted = a->event_type == KFD_EVENT_SIGNAL || a->event_type == EVENT_TYPE_DEBUG;
  if (slotted && !e->slots && (rc = make_page(m))) return rc;
  struct amd_event *ev = calloc(1, sizeof *ev);
  if (!ev) return -ENOMEM;
  pthread_mutex_lock(&e->lock);
  /* Signal events are numbered from 1; the number is also the index of the slot. */
  uint32_t id = slotted ? 1 : (uint32_t)OTHER_BASE;
  while (event_find(e, id)) id++;
  struct amd_event **slot = event_slot(e, id);
  if (slot) {
    /* Clients that do not support event ages pass age 0, so ages start at 1. */
    *ev = (struct amd_event){.id = id, .type = a->event_type, .auto_reset = a->auto_reset, .age = 1};
    *slot = ev;
  }
  pthread_mutex_unlock(&e->lock);
  if (!slot) {
    free(ev);
    return emu_refuse(&m->base, -ENOSPC, "CREATE_EVENT: all events are in use");
  }
  a->event_id = a->event_trigger_data = id;
  a->event_slot_index = slotted ? id : 0;
  if (slotted && e->page_fd >= 0) a->event_page_offset = (uint64_t)KFD_MMAP_EVENTS << 62;
  return 0;
}

int amd_destroy_event(struct amd_machine *m, void *arg) {
  const struct kfd_event_ref *a = arg;
  struct amd_events *e = &m->events;
  pthread_mutex_lock(&e->lock);
  struct amd_event *ev = event_find(e, a->event_id);
  if (ev) {
    for (struct amd_waiter *w = e->waiters; w; w = w->next)
      for (uint32_t i = 0; i < w->n; i++)
        if (w->slots[i].event == ev) w->slots[i].event = NULL;
    *event_slot(e, a->event_id) = NULL;
    pthread_cond_broadcast(&e->changed);
  }
  pthread_mutex_unlock(&e->lock);
  free(ev);
  return ev ? 0 : emu_refuse(&m->base, -EINVAL, "DESTROY_EVENT: no event %u", a->event_id);
}

static int cpu_signal(struct amd_machine *m, uint32_t id, bool set) {
  struct amd_events *e = &m->events;
  pthread_mutex_lock(&e->lock);
  struct amd_event *ev = event_find(e, id);
  bool ok = ev && ev->type == KFD_EVENT_SIGNAL;
  if (ok && set)
    event_set(e, ev);
  else if (ok)
    ev->signaled = false;
  pthread_mutex_unlock(&e->lock);
  return ok ? 0 : emu_refuse(&m->base, -EINVAL, "%s_EVENT: no signal event %u", set ? "SET" : "RESET", id);
}
int amd_set_event(struct amd_machine *m, void *arg) {
  return cpu_signal(m, ((struct kfd_event_ref *)arg)->event_id, true);
}
int amd_reset_event(struct amd_machine *m, void *arg) {
  return cpu_signal(m, ((struct kfd_event_ref *)arg)->event_id, false);
}

static enum kfd_wait_result wait_state(const struct amd_waiter *w, bool all) {
  uint32_t activated = 0;
  for (uint32_t i = 0; i < w->n; i++) {
    if (!w->slots[i].event) return KFD_WAIT_FAIL;
    activated += w->slots[i].activated;
  }
  return activated == w->n || (activated && !all) ? KFD_WAIT_COMPLETE : KFD_WAIT_TIMEOUT;
}

static struct timespec deadline_in(uint32_t ms) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  t.tv_sec += ms / 1000;
  t.tv_nsec += (long)(ms % 1000) * 1000000;
  if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
  return t;
}

int amd_wait_events(struct amd_machine *m, void *arg) {
  struct kfd_wait_events *a = arg;
  struct amd_events *e = &m->events;
  int rc = 0;
  if (a->num_events > MAX_WAIT) return emu_refuse(&m->base, -EINVAL, "WAIT_EVENTS: %u events", a->num_events);
  struct kfd_event_state *states = calloc(a->num_events + 1u, sizeof *states);
  struct amd_waiter w = {.n = a->num_events, .slots = calloc(a->num_events + 1u, sizeof *w.slots)};
  if (!states || !w.slots) {
    rc = -ENOMEM;
    goto out;
  }
  if (user_read(states, a->events_ptr, a->num_events * sizeof *states)) {
    rc = emu_refuse(&m->base, -EFAULT, "WAIT_EVENTS: events_ptr 0x%" PRIx64, a->events_ptr);
    goto out;
  }
  struct timespec deadline = deadline_in(a->timeout == UINT32_MAX ? 0 : a->timeout);

  pthread_mutex_lock(&e->lock);
  for (uint32_t i = 0; i < w.n && !rc; i++) {
    struct amd_event *ev = event_find(e, states[i].event_id);
    if (!ev) {
      rc = -EINVAL;
      break;
    }
    w.slots[i].event = ev;
    w.slots[i].activated = ev->signaled;
    if (ev->auto_reset) ev->signaled = false;
    uint64_t seen = ev->type == KFD_EVENT_SIGNAL ? states[i].last_event_age : 0;
    if (seen && seen != ev->age) w.slots[i].activated = true;
  }
  if (!rc) {
    w.next = e->waiters;
    e->waiters = &w;
    enum kfd_wait_result state;
    int timed_out = a->timeout == 0;
    while ((state = wait_state(&w, a->wait_for_all)) == KFD_WAIT_TIMEOUT && !timed_out)
      timed_out = (a->timeout == UINT32_MAX ? pthread_cond_wait(&e->changed, &e->lock)
                                            : pthread_cond_timedwait(&e->changed, &e->lock, &deadline)) == ETIMEDOUT;
    struct amd_waiter **at = &e->waiters;
    while (*at != &w) at = &(*at)->next;
    *at = w.next;
    a->wait_result = state;
    if (m->base.strict && state == KFD_WAIT_COMPLETE) race_interrupted();
    for (uint32_t i = 0; i < w.n && state == KFD_WAIT_COMPLETE; i++) {
      const struct amd_event *ev = w.slots[i].event;
      if (!w.slots[i].activated) continue;
      if (ev->type == KFD_EVENT_MEMORY)
        states[i].memory = ev->memory;
      else if (ev->type == KFD_EVENT_HW_EXCEPTION)
        states[i].hw = ev->hw;
      else if (ev->type == KFD_EVENT_SIGNAL && states[i].last_event_age)
        states[i].last_event_age = ev->age;
    }
  }
  pthread_mutex_unlock(&e->lock);
  if (rc) {
    a->wait_result = KFD_WAIT_FAIL;
    emu_refuse(&m->base, rc, "WAIT_EVENTS: an event of the list does not exist");
  } else if (a->wait_result == KFD_WAIT_FAIL) {
    rc = emu_refuse(&m->base, -EIO, "WAIT_EVENTS: an event was destroyed while waiting for it");
  } else if (a->wait_result == KFD_WAIT_COMPLETE && user_write(a->events_ptr, states, w.n * sizeof *states)) {
    rc = emu_refuse(&m->base, -EFAULT, "WAIT_EVENTS: events_ptr 0x%" PRIx64, a->events_ptr);
  }
out:
  free(states);
  free(w.slots);
  return rc;
}
