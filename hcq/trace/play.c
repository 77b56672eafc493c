/* Answers a driver's calls from a trace and compares them with it. */
#define _GNU_SOURCE
#include "trace.h"
#include "../error.h"
#include "../hcq.h"
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MEMORY_MAX (8ull << 30)  /* bytes of all recorded mappings */
#define LOWEST     (64ull << 10) /* drivers map nothing below this address */
enum { STRUCT_MAX = 16384 };     /* size of an ioctl's structure, which the request holds in 14 bits */

struct range {
  uint64_t first, end;
};
struct player {
  struct os os;
  pthread_mutex_t lock;
  struct os_trace trace;
  bool *time_dependent; /* per event: the number of such calls depends on time */
  size_t next;
  struct os_trace_memory memory;
  struct range *written; /* written by the device at any time; ascending, disjoint */
  size_t nwritten;
  struct range *mapped; /* mapped by this player */
  size_t nmapped;
  char difference[640]; /* the first difference, "" before it */
};

static struct player *player_of(struct os *os) { return (struct player *)os; }

/* ---- differences ---- */

/* Stores the first difference; later ones are its consequences. */
__attribute__((format(printf, 3, 4))) static void differ(struct player *p, const struct os_trace_event *e,
                                                         const char *fmt, ...) {
  if (p->difference[0]) return;
  char text[480];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  snprintf(p->difference, sizeof p->difference, "the trace differs at event %zu (byte %llu): %s",
           (size_t)(e - p->trace.events), (unsigned long long)e->offset, text);
}

static int report_difference(struct player *p) {
  db_fail_differs(p->difference);
  return -EBADMSG;
}

static const struct os_trace_event *current_event(const struct player *p) { return &p->trace.events[p->next]; }

/* Describes a recorded ioctl. Its structure is copied to a zeroed buffer of the maximum size, so the description never
 * reads past the blob. */
static void describe_recorded(const struct os_trace_event *e, struct os_trace_call *call) {
  union {
    uint64_t align;
    uint8_t bytes[STRUCT_MAX];
  } s = {0};
  if (e->nblobs) memcpy(s.bytes, e->blobs[0].bytes, e->blobs[0].size < STRUCT_MAX ? e->blobs[0].size : STRUCT_MAX);
  os_trace_describe(e->numbers[1], s.bytes, false, call);
  call->nparts = 0;
}

static void name_event(const struct os_trace_event *e, char *buf, size_t cap) {
  struct os_trace_call call;
  bool has_path = e->kind == TRACE_OPEN || e->kind == TRACE_READ_FILE || e->kind == TRACE_LIST_DIR;
  if (e->kind == TRACE_IOCTL) {
    describe_recorded(e, &call);
    snprintf(buf, cap, "%s", call.name);
  } else {
    snprintf(buf, cap, "%s%s%s", os_trace_kinds[e->kind].name, has_path ? " " : "",
             has_path ? (const char *)e->blobs[0].bytes : "");
  }
}

/* ---- memory ---- */

static bool is_written(const struct player *p, uint64_t address) {
  size_t low = 0, high = p->nwritten;
  while (low < high) {
    size_t at = (low + high) / 2;
    if (p->written[at].end <= address)
      low = at + 1;
    else
      high = at;
  }
  return low < p->nwritten && address >= p->written[low].first;
}

/* Applies a run of the host's recorded writes to the expected contents. A device writes some words late, such as read
 * pointers, so the recorder may have attributed them to the host. If the device writes a word at some time and the host
 * has not changed it now, the recorded value is also stored in the memory itself. */
static void host_run(struct player *p, uint64_t address, const struct os_trace_blob *run) {
  struct os_trace_region *r = os_trace_memory_find(&p->memory, address, run->size);
  if (!r) return;
  size_t at = address - (uint64_t)(uintptr_t)r->live;
  for (uint32_t i = 0; i + 4 <= run->size; i += 4)
    if (!memcmp(r->live + at + i, r->snapshot + at + i, 4) && is_written(p, address + i))
      memcpy(r->live + at + i, run->bytes + i, 4);
  memcpy(r->snapshot + at, run->bytes, run->size);
}

static void device_run(struct player *p, uint64_t address, const struct os_trace_blob *run) {
  struct os_trace_region *r = os_trace_memory_find(&p->memory, address, run->size);
  if (!r) return;
  size_t at = address - (uint64_t)(uintptr_t)r->live;
  memcpy(r->live + at, run->bytes, run->size);
  memcpy(r->snapshot + at, run->bytes, run->size);
}

static void each_run(struct player *p, const struct os_trace_event *e,
                     void (*run)(struct player *p, uint64_t address, const struct os_trace_blob *run)) {
  size_t at = 0;
  uint64_t address;
  struct os_trace_blob bytes;
  while (os_trace_next_run(&e->blobs[0], &at, &address, &bytes)) run(p, address, &bytes);
}

static void check_memory(struct player *p, const struct os_trace_event *e, const char *before) {
  for (size_t i = 0; i < p->memory.n; i++) {
    const struct os_trace_region *r = &p->memory.regions[i];
    if (!memcmp(r->live, r->snapshot, r->size)) continue;
    size_t at = 0;
    while (!memcmp(r->live + at, r->snapshot + at, 4)) at += 4;
    uint32_t actual, recorded;
    memcpy(&actual, r->live + at, 4);
    memcpy(&recorded, r->snapshot + at, 4);
    differ(p, e, "%s: the word at 0x%zx of the %zu bytes of memory at %p: recorded 0x%x, now 0x%x", before, at, r->size,
           (void *)r->live, recorded, actual);
    return;
  }
}

/* ---- the next call ---- */

static int compare_numbers(struct player *p, const struct os_trace_event *e, const char *name, const uint64_t *actual) {
  const struct os_trace_kind_info *info = &os_trace_kinds[e->kind];
  for (unsigned i = 0; i < info->number_args; i++)
    if (e->numbers[i] != actual[i]) {
      differ(p, e, "%s: %s: recorded 0x%llx, now 0x%llx", name, info->number_names[i],
             (unsigned long long)e->numbers[i], (unsigned long long)actual[i]);
      return -EBADMSG;
    }
  return 0;
}

static int compare_ioctl(struct player *p, const struct os_trace_event *e, const struct os_trace_call *call,
                         uint8_t *const parts[TRACE_PARTS]) {
  if (e->nblobs != 2 * call->nparts) {
    differ(p, e, "%s: recorded with %u structures, now with %u", call->name, e->nblobs / 2, call->nparts);
    return -EBADMSG;
  }
  for (unsigned i = 0; i < call->nparts; i++) {
    const struct os_trace_blob *saved = &e->blobs[2 * i];
    uint32_t size = call->parts[i].size, at = 0, first, bytes;
    if (saved->size != size) {
      differ(p, e, "%s: the size of structure %u: recorded %u bytes, now %u", call->name, i, saved->size, size);
      return -EBADMSG;
    }
    if (!memcmp(saved->bytes, parts[i], size)) continue;
    while (saved->bytes[at] == parts[i][at]) at++;
    char name[64];
    uint64_t recorded = 0, actual = 0;
    os_trace_field(call, i, at, name, sizeof name, &first, &bytes);
    memcpy(&recorded, saved->bytes + first, bytes);
    memcpy(&actual, parts[i] + first, bytes);
    differ(p, e, "%s: %s: recorded 0x%llx, now 0x%llx", call->name, name, (unsigned long long)recorded,
           (unsigned long long)actual);
    return -EBADMSG;
  }
  return 0;
}

/* A call as the driver makes it: the event without answers, and for an ioctl its structures (otherwise NULL). */
struct actual_call {
  struct os_trace_event event;
  const struct os_trace_call *call;
  uint8_t *const *parts;
};

static int compare(struct player *p, const struct os_trace_event *e, const struct actual_call *m) {
  const struct os_trace_kind_info *info = &os_trace_kinds[e->kind];
  char recorded[160], name[160];
  name_event(e, recorded, sizeof recorded);
  if (m->call)
    snprintf(name, sizeof name, "%s", m->call->name);
  else
    name_event(&m->event, name, sizeof name);
  if (e->kind != m->event.kind || strcmp(recorded, name) != 0) {
    differ(p, e, "recorded %s, now %s", recorded, name);
    return -EBADMSG;
  }
  int err = compare_numbers(p, e, name, m->event.numbers);
  for (unsigned i = 0; !err && i < info->blob_args; i++)
    if (e->blobs[i].size != m->event.blobs[i].size ||
        memcmp(e->blobs[i].bytes, m->event.blobs[i].bytes, e->blobs[i].size) != 0) {
      differ(p, e, "%s: recorded %s", name, recorded);
      err = -EBADMSG;
    }
  return !err && m->call ? compare_ioctl(p, e, m->call, m->parts) : err;
}

/* Returns the recorded event of a call that must come next, or NULL after a difference. The caller applies the device's
 * writes that follow it (apply_device_writes). */
static const struct os_trace_event *next_event(struct player *p, const struct actual_call *m, bool shows_memory) {
  if (p->difference[0]) return NULL;
  while (p->time_dependent[p->next]) p->next++;
  const struct os_trace_event *host = current_event(p)->kind == TRACE_HOST ? current_event(p) : NULL;
  size_t at = p->next + (host != NULL);
  while (p->time_dependent[at]) at++;
  const struct os_trace_event *e = &p->trace.events[at];
  if (compare(p, e, m)) return NULL;
  if (host) each_run(p, host, host_run);
  if (shows_memory) check_memory(p, e, m->call ? m->call->name : os_trace_kinds[e->kind].name);
  if (p->difference[0]) return NULL;
  p->next = at + 1;
  return e;
}

static void apply_device_writes(struct player *p) {
  if (current_event(p)->kind != TRACE_DEVICE) return;
  each_run(p, current_event(p), device_run);
  p->next++;
}

/* Returns the recorded event that answers a call whose number depends on time: the next of its kind before any other
 * call, or the last one before that. */
static const struct os_trace_event *next_time_dependent(struct player *p, const struct actual_call *m) {
  const struct os_trace_event *found = NULL, *first = p->trace.events;
  for (size_t i = p->next; !found && p->time_dependent[i]; i++)
    if (first[i].kind == m->event.kind && first[i].numbers[1] == m->event.numbers[1] &&
        (!m->call || first[i].nblobs == 2 * m->call->nparts)) {
      found = &first[i];
      p->next = i + 1;
    }
  for (size_t i = p->next; !found && i--;)
    if (p->time_dependent[i] && first[i].kind == m->event.kind && first[i].numbers[1] == m->event.numbers[1])
      found = &first[i];
  if (found && m->call)
    for (unsigned i = 0; found && i < m->call->nparts; i++)
      if (found->nblobs != 2 * m->call->nparts || found->blobs[2 * i].size != m->call->parts[i].size) found = NULL;
  if (!found) differ(p, current_event(p), "%s: called, but never recorded", m->call ? m->call->name : "poll");
  return found;
}

/* ---- the table ---- */

static int play_path(struct player *p, enum os_trace_kind kind, uint64_t number, const char *path,
                     const struct os_trace_event **out) {
  struct actual_call m = {.event = {.kind = kind,
                                    .numbers = {number},
                                    .blobs = {{(const uint8_t *)path, (uint32_t)strlen(path) + 1}},
                                    .nblobs = 1}};
  *out = next_event(p, &m, false);
  return *out ? 0 : report_difference(p);
}

static int play_open(struct os *os, const char *path, int flags) {
  struct player *p = player_of(os);
  const struct os_trace_event *e;
  pthread_mutex_lock(&p->lock);
  int rc = play_path(p, TRACE_OPEN, (uint64_t)flags, path, &e);
  pthread_mutex_unlock(&p->lock);
  return rc ? rc : (int)e->numbers[1];
}

static int play_close(struct os *os, int fd) {
  struct player *p = player_of(os);
  pthread_mutex_lock(&p->lock);
  const struct os_trace_event *e =
      next_event(p, &(struct actual_call){.event = {.kind = TRACE_CLOSE, .numbers = {(uint64_t)fd}}}, false);
  int rc = e ? (int)e->numbers[1] : report_difference(p);
  pthread_mutex_unlock(&p->lock);
  return rc;
}

static int play_ioctl(struct os *os, int fd, unsigned long request, void *arg) {
  struct player *p = player_of(os);
  struct os_trace_call call;
  uint8_t *parts[TRACE_PARTS], *all = NULL;
  size_t size = 0, at = 0;
  os_trace_describe(request, arg, true, &call);
  for (unsigned i = 0; i < call.nparts; i++) size += call.parts[i].size;
  if (!(all = malloc(size + 1))) return -ENOMEM;
  for (unsigned i = 0; i < call.nparts; at += call.parts[i++].size) parts[i] = all + at;
  os_trace_parts_copy(&call, request, parts);
  pthread_mutex_lock(&p->lock);
  struct actual_call m = {
      .event = {.kind = TRACE_IOCTL, .numbers = {(uint64_t)fd, request}}, .call = &call, .parts = parts};
  const struct os_trace_event *e = call.time_dependent ? next_time_dependent(p, &m) : next_event(p, &m, true);
  int rc = e ? (int)e->numbers[2] : report_difference(p);
  if (e) os_trace_parts_fill(&call, request, &e->blobs[1]);
  if (e && !call.time_dependent) apply_device_writes(p);
  pthread_mutex_unlock(&p->lock);
  free(all);
  return rc;
}

static int add_range(struct range **ranges, size_t *n, uint64_t first, uint64_t end) {
  struct range *more = realloc(*ranges, (*n + 1) * sizeof *more);
  if (!more) return -ENOMEM;
  *ranges = more;
  more[(*n)++] = (struct range){first, end};
  return 0;
}

static struct range *find_mapped(struct player *p, uint64_t first, uint64_t end) {
  for (size_t i = 0; i < p->nmapped; i++)
    if (first >= p->mapped[i].first && end <= p->mapped[i].end && first < end) return &p->mapped[i];
  return NULL;
}

/* Maps memory at the recorded address. A trace may replace only mappings that the player made. */
static int map_recorded(struct player *p, const struct os_trace_event *e) {
  uint64_t at = e->numbers[6], size = (e->numbers[1] + 4095) & ~4095ull;
  int prot = (int)e->numbers[2] & (PROT_READ | PROT_WRITE);
  bool replaces = find_mapped(p, at, at + size);
  void *want = (void *)(uintptr_t)at;
  void *got = mmap(want, size, prot,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (replaces ? MAP_FIXED : MAP_FIXED_NOREPLACE), -1, 0);
  if (got != want || at < LOWEST) {
    int err = got == MAP_FAILED ? errno : EEXIST;
    if (got != MAP_FAILED) munmap(got, size);
    differ(p, e, "mmap: cannot map %llu bytes at the recorded address %p: %s", (unsigned long long)size, want,
           strerror(err));
    return -EBADMSG;
  }
  os_trace_memory_remove(&p->memory, want, size);
  int rc = replaces ? 0 : add_range(&p->mapped, &p->nmapped, at, at + size);
  if (!rc && e->numbers[7]) rc = os_trace_memory_add(&p->memory, want, size);
  if (rc) differ(p, e, "mmap: out of host memory");
  return rc;
}

static void *play_mmap(struct os *os, void *addr, size_t len, int prot, int flags, int fd, off_t off) {
  struct player *p = player_of(os);
  pthread_mutex_lock(&p->lock);
  struct actual_call m = {.event = {.kind = TRACE_MMAP,
                                    .numbers = {(uint64_t)(uintptr_t)addr, len, (uint64_t)prot, (uint64_t)flags,
                                                (uint64_t)(int64_t)fd, (uint64_t)off}}};
  const struct os_trace_event *e = next_event(p, &m, true);
  void *at = e ? (void *)(uintptr_t)e->numbers[6] : NULL;
  if (e && !os_map_failed(at) && map_recorded(p, e)) e = NULL;
  if (e) apply_device_writes(p);
  if (!e) at = (void *)(intptr_t)report_difference(p);
  pthread_mutex_unlock(&p->lock);
  return at;
}

static int unmap_range(struct player *p, uint64_t first, uint64_t end) {
  struct range *r = find_mapped(p, first, end);
  if (!r) return 0;
  struct range old = *r;
  *r = (struct range){old.first, first};
  os_trace_memory_remove(&p->memory, (void *)(uintptr_t)first, end - first);
  munmap((void *)(uintptr_t)first, end - first);
  return end < old.end ? add_range(&p->mapped, &p->nmapped, end, old.end) : 0;
}

static int play_munmap(struct os *os, void *addr, size_t len) {
  struct player *p = player_of(os);
  uint64_t first = (uint64_t)(uintptr_t)addr;
  pthread_mutex_lock(&p->lock);
  const struct os_trace_event *e =
      next_event(p, &(struct actual_call){.event = {.kind = TRACE_MUNMAP, .numbers = {first, len}}}, false);
  int rc = e ? (int)e->numbers[2] : report_difference(p);
  if (e && !rc) rc = unmap_range(p, first, first + ((len + 4095) & ~4095ull));
  pthread_mutex_unlock(&p->lock);
  return rc;
}

static int play_poll(struct os *os, int fd, short events, int timeout_ms) {
  struct player *p = player_of(os);
  pthread_mutex_lock(&p->lock);
  const struct os_trace_event *e = next_time_dependent(
      p, &(struct actual_call){.event = {.kind = TRACE_POLL, .numbers = {(uint64_t)fd, (uint64_t)events}}});
  int rc = e ? (int)e->numbers[3] : report_difference(p);
  pthread_mutex_unlock(&p->lock);
  return rc;
}

static ssize_t play_read_file(struct os *os, const char *path, char *buf, size_t cap) {
  struct player *p = player_of(os);
  const struct os_trace_event *e;
  pthread_mutex_lock(&p->lock);
  ssize_t rc = play_path(p, TRACE_READ_FILE, cap, path, &e);
  pthread_mutex_unlock(&p->lock);
  if (rc || (ssize_t)e->numbers[1] < 0) return rc ? rc : (ssize_t)e->numbers[1];
  if (!cap) return 0;
  size_t n = e->blobs[1].size < cap - 1 ? e->blobs[1].size : cap - 1;
  memcpy(buf, e->blobs[1].bytes, n);
  buf[n] = 0;
  return (ssize_t)n;
}

static int play_list_dir(struct os *os, const char *path, int (*each)(void *ctx, const char *name), void *ctx) {
  struct player *p = player_of(os);
  const struct os_trace_event *e;
  pthread_mutex_lock(&p->lock);
  int rc = play_path(p, TRACE_LIST_DIR, 0, path, &e);
  pthread_mutex_unlock(&p->lock);
  if (rc) return rc;
  const char *name = (const char *)e->blobs[1].bytes, *end = name + e->blobs[1].size;
  for (; name < end; name += strlen(name) + 1)
    if (each(ctx, name)) break;
  return (int)e->numbers[0];
}

static int play_ring(struct os *os, void *at, uint64_t value, unsigned bytes, bool (*idle)(const void *queue),
                     const void *queue) {
  struct player *p = player_of(os);
  pthread_mutex_lock(&p->lock);
  struct actual_call m = {.event = {.kind = TRACE_RING, .numbers = {(uint64_t)(uintptr_t)at, bytes, value}}};
  int rc = next_event(p, &m, true) ? 0 : report_difference(p);
  if (!rc) apply_device_writes(p);
  pthread_mutex_unlock(&p->lock);
  return rc ? db_fail(rc, "ringing the doorbell") : 0;
}

/* ---- life ---- */

const char *os_play_difference(struct os *os) {
  struct player *p = player_of(os);
  return os->ring == play_ring && *p->difference ? p->difference : NULL;
}

int os_play_finished(struct os *os) {
  struct player *p = player_of(os);
  char name[160];
  if (os->ring != play_ring) return db_fail(-EINVAL, "not a player of a trace");
  pthread_mutex_lock(&p->lock);
  while (p->time_dependent[p->next] || current_event(p)->kind == TRACE_HOST) p->next++;
  if (!p->difference[0] && current_event(p)->kind != TRACE_END) {
    name_event(current_event(p), name, sizeof name);
    differ(p, current_event(p), "recorded %s, but the driver made no further call", name);
  }
  int rc = p->difference[0] ? report_difference(p) : 0;
  pthread_mutex_unlock(&p->lock);
  return rc ? db_fail(rc, "the end of a trace") : 0;
}

static void player_free(struct player *p) {
  for (size_t i = 0; i < p->nmapped; i++)
    if (p->mapped[i].first < p->mapped[i].end)
      munmap((void *)(uintptr_t)p->mapped[i].first, p->mapped[i].end - p->mapped[i].first);
  os_trace_memory_free(&p->memory);
  os_trace_free(&p->trace);
  free(p->time_dependent);
  free(p->written);
  free(p->mapped);
  free(p);
}

/* If recorded calls are missing at the end, or a difference has not been reported, the last message reports it. */
static void play_release(struct os *os) {
  struct player *p = player_of(os);
  if (!*p->difference || !strstr(db_error(), p->difference)) os_play_finished(os);
  player_free(p);
}

static int by_first(const void *a, const void *b) {
  const struct range *x = a, *y = b;
  return (x->first > y->first) - (x->first < y->first);
}

/* Collects the ranges that the device writes anywhere in the trace. */
static int list_written(struct player *p) {
  size_t cap = 0, n = 0;
  for (size_t i = 0; i < p->trace.nevents; i++) {
    const struct os_trace_event *e = &p->trace.events[i];
    size_t at = 0;
    uint64_t address;
    struct os_trace_blob run;
    while (e->kind == TRACE_DEVICE && os_trace_next_run(&e->blobs[0], &at, &address, &run)) {
      if (p->nwritten == cap) {
        cap = cap ? cap * 2 : 256;
        struct range *more = realloc(p->written, cap * sizeof *more);
        if (!more) return -ENOMEM;
        p->written = more;
      }
      p->written[p->nwritten++] = (struct range){address, address + run.size};
    }
  }
  if (p->nwritten) qsort(p->written, p->nwritten, sizeof *p->written, by_first);
  for (size_t i = 0; i < p->nwritten; i++)
    if (n && p->written[i].first <= p->written[n - 1].end) {
      if (p->written[i].end > p->written[n - 1].end) p->written[n - 1].end = p->written[i].end;
    } else {
      p->written[n++] = p->written[i];
    }
  p->nwritten = n;
  return 0;
}

static bool check_mappings(const struct os_trace *t, char *err, size_t errcap) {
  uint64_t all = 0;
  for (size_t i = 0; i < t->nevents; i++) {
    const struct os_trace_event *e = &t->events[i];
    enum { READ_WRITE = PROT_READ | PROT_WRITE };
    if (e->kind != TRACE_MMAP || !e->numbers[7]) continue;
    bool readable = (e->numbers[2] & READ_WRITE) == READ_WRITE && e->numbers[1];
    if (readable && e->numbers[1] <= MEMORY_MAX && (all += e->numbers[1]) <= MEMORY_MAX) continue;
    snprintf(err, errcap, "not a trace: event %zu maps memory that is too long or that the host may not write", i);
    return false;
  }
  return true;
}

int os_play_trace(struct os_trace *t, struct os **out, char *err, size_t errcap) {
  struct player *p = check_mappings(t, err, errcap) ? calloc(1, sizeof *p) : NULL;
  if (!p) {
    os_trace_free(t);
    return -EINVAL;
  }
  p->os = (struct os){.open = play_open,
                      .close = play_close,
                      .ioctl = play_ioctl,
                      .mmap = play_mmap,
                      .munmap = play_munmap,
                      .poll = play_poll,
                      .read_file = play_read_file,
                      .list_dir = play_list_dir,
                      .release = play_release,
                      .ring = play_ring};
  pthread_mutex_init(&p->lock, NULL);
  p->trace = *t;
  p->time_dependent = calloc(t->nevents, sizeof *p->time_dependent);
  if (!p->time_dependent || list_written(p)) {
    snprintf(err, errcap, "out of host memory");
    player_free(p);
    return -ENOMEM;
  }
  for (size_t i = 0; i < t->nevents; i++) {
    struct os_trace_call call = {.time_dependent = t->events[i].kind == TRACE_POLL};
    if (t->events[i].kind == TRACE_IOCTL) describe_recorded(&t->events[i], &call);
    p->time_dependent[i] = call.time_dependent;
  }
  *out = &p->os;
  return 0;
}

int os_play(const char *file, struct os_trace_header *header, struct os **out, char *err, size_t errcap) {
  struct os_trace t;
  int rc = os_trace_load(file, &t, err, errcap);
  if (rc) return rc;
  *header = t.header;
  return os_play_trace(&t, out, err, errcap);
}
