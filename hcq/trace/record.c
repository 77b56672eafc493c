/* Records the calls between a driver and its kernel. */
#define _GNU_SOURCE
#include "trace.h"
#include "../error.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Addresses that kernels, heaps and sanitizers do not use, so they are free in the playing process, too. */
#define FIRST_ADDRESS 0x550000000000ull
#define ADDRESS_STEP  (2ull << 20)
#define IDLE_LIMIT_NS 10000000000ull
/* After the queue is idle, time for the kernel's work and the write-back of read pointers. */
enum { SETTLE_NS = 200000 };

struct recorder {
  struct os os;
  struct os *inner;
  struct recorder *next;
  pid_t pid;
  pthread_mutex_t lock; /* guards the fields below and the order of events */
  struct os_trace_writer *writer;
  struct os_trace_memory memory;
  struct os_trace_bytes changes;
  struct os_trace_registers registers;
  uint64_t next_address;
  bool unsupported;
};

static struct recorder *recorders; /* recorders to finish at exit; guarded by recorders_lock */
static pthread_mutex_t recorders_lock = PTHREAD_MUTEX_INITIALIZER;

static struct recorder *recorder_of(struct os *os) { return (struct recorder *)os; }

/* A forked child's calls are not part of the trace. */
static bool is_recording(const struct recorder *r) { return r->writer && r->pid == getpid(); }

static struct os_trace_blob text_blob(const char *text) {
  return (struct os_trace_blob){(const uint8_t *)text, (uint32_t)strlen(text) + 1};
}

static void write_event(struct recorder *r, const struct os_trace_event *e) {
  if (is_recording(r)) os_trace_write(r->writer, e);
}

/* Marks the trace as complete but impossible to play, with the reason. */
static void mark_unsupported(struct recorder *r, const char *why) {
  if (r->unsupported) return;
  r->unsupported = true;
  write_event(r, &(struct os_trace_event){.kind = TRACE_UNSUPPORTED, .blobs = {text_blob(why)}, .nblobs = 1});
}

static void write_changes(struct recorder *r, enum os_trace_kind kind) {
  if (!is_recording(r)) return;
  r->changes.n = 0;
  os_trace_memory_changes(&r->memory, &r->changes);
  if (r->changes.failed || r->changes.n > UINT32_MAX)
    mark_unsupported(r, "the host's memory ran out while changes were recorded");
  else if (r->changes.n)
    write_event(r,
                &(struct os_trace_event){.kind = kind, .blobs = {{r->changes.p, (uint32_t)r->changes.n}}, .nblobs = 1});
}

/* ---- calls ---- */

static int record_open(struct os *os, const char *path, int flags) {
  struct recorder *r = recorder_of(os);
  pthread_mutex_lock(&r->lock);
  int rc = r->inner->open(r->inner, path, flags);
  if (rc >= 0) os_trace_registers_open(&r->registers, path, rc);
  write_event(r, &(struct os_trace_event){.kind = TRACE_OPEN,
                                          .numbers = {(uint64_t)flags, (uint64_t)(int64_t)rc},
                                          .blobs = {text_blob(path)},
                                          .nblobs = 1});
  pthread_mutex_unlock(&r->lock);
  return rc;
}

static int record_close(struct os *os, int fd) {
  struct recorder *r = recorder_of(os);
  pthread_mutex_lock(&r->lock);
  int rc = r->inner->close(r->inner, fd);
  write_event(r, &(struct os_trace_event){.kind = TRACE_CLOSE, .numbers = {(uint64_t)fd, (uint64_t)(int64_t)rc}});
  pthread_mutex_unlock(&r->lock);
  return rc;
}

/* Copies the parts of a call into one allocation. */
static uint8_t *copy_parts(const struct os_trace_call *call, unsigned long request, uint8_t *parts[TRACE_PARTS]) {
  size_t size = 0;
  for (unsigned i = 0; i < call->nparts; i++) size += call->parts[i].size;
  uint8_t *all = malloc(size + 1);
  for (unsigned i = 0, at = 0; all && i < call->nparts; at += call->parts[i++].size) parts[i] = all + at;
  if (all) os_trace_parts_copy(call, request, parts);
  return all;
}

/* Whether the call pins pages of the caller, whose address differs in the next process. */
static bool pins_foreign_pages(struct recorder *r, unsigned long request, const void *arg) {
  uint64_t address, size;
  return os_trace_pinned_pages(request, arg, &address, &size) && !os_trace_memory_find(&r->memory, address, size);
}

static int record_ioctl(struct os *os, int fd, unsigned long request, void *arg) {
  struct recorder *r = recorder_of(os);
  struct os_trace_call call;
  uint8_t *before[TRACE_PARTS], *after[TRACE_PARTS], *all_before = NULL, *all_after = NULL;
  bool known = os_trace_describe(request, arg, true, &call);
  if (known) all_before = copy_parts(&call, request, before);
  pthread_mutex_lock(&r->lock);
  if (!known || !all_before) mark_unsupported(r, call.name);
  if (pins_foreign_pages(r, request, arg)) mark_unsupported(r, "memory of the caller that was imported");
  if (!call.time_dependent) write_changes(r, TRACE_HOST);
  if (call.time_dependent) pthread_mutex_unlock(&r->lock); /* it may wait */
  int rc = r->inner->ioctl(r->inner, fd, request, arg);
  if (call.time_dependent) pthread_mutex_lock(&r->lock);
  if (all_before) all_after = copy_parts(&call, request, after);
  if (rc >= 0) os_trace_registers_ioctl(&r->registers, request, arg);
  struct os_trace_event e = {.kind = TRACE_IOCTL, .numbers = {(uint64_t)fd, request, (uint64_t)(int64_t)rc}};
  for (unsigned i = 0; all_after && i < call.nparts; i++) {
    e.blobs[e.nblobs++] = (struct os_trace_blob){before[i], call.parts[i].size};
    e.blobs[e.nblobs++] = (struct os_trace_blob){after[i], call.parts[i].size};
  }
  write_event(r, &e);
  if (!call.time_dependent) write_changes(r, TRACE_DEVICE);
  pthread_mutex_unlock(&r->lock);
  free(all_before);
  free(all_after);
  return rc;
}

static void *own_address(struct recorder *r, size_t len) {
  uint64_t at = r->next_address;
  r->next_address += (len + ADDRESS_STEP - 1) / ADDRESS_STEP * ADDRESS_STEP;
  return (void *)(uintptr_t)at;
}

static void *record_mmap(struct os *os, void *addr, size_t len, int prot, int flags, int fd, off_t off) {
  struct recorder *r = recorder_of(os);
  pthread_mutex_lock(&r->lock);
  write_changes(r, TRACE_HOST);
  void *p = r->inner->mmap(r->inner, addr ? addr : own_address(r, len), len, prot, flags, fd, off);
  /* The kernel did not follow a hint; the address it chose may be in use in another process. */
  if (addr && flags & MAP_ANONYMOUS && !os_map_failed(p) && p != addr) {
    r->inner->munmap(r->inner, p, len);
    p = r->inner->mmap(r->inner, own_address(r, len), len, prot, flags, fd, off);
  }
  bool memory = flags & MAP_SHARED && prot & PROT_WRITE && !(fd >= 0 && os_trace_maps_registers(&r->registers, fd));
  if (!os_map_failed(p)) os_trace_memory_remove(&r->memory, p, len);
  if (!os_map_failed(p) && memory && os_trace_memory_add(&r->memory, p, len))
    mark_unsupported(r, "the host's memory ran out while memory was recorded");
  write_event(
      r, &(struct os_trace_event){.kind = TRACE_MMAP,
                                  .numbers = {(uint64_t)(uintptr_t)addr, len, (uint64_t)prot, (uint64_t)flags,
                                              (uint64_t)(int64_t)fd, (uint64_t)off, (uint64_t)(uintptr_t)p, memory}});
  write_changes(r, TRACE_DEVICE); /* contents that the memory already had */
  pthread_mutex_unlock(&r->lock);
  return p;
}

static int record_munmap(struct os *os, void *addr, size_t len) {
  struct recorder *r = recorder_of(os);
  pthread_mutex_lock(&r->lock);
  os_trace_memory_remove(&r->memory, addr, len);
  int rc = r->inner->munmap(r->inner, addr, len);
  write_event(r, &(struct os_trace_event){.kind = TRACE_MUNMAP,
                                          .numbers = {(uint64_t)(uintptr_t)addr, len, (uint64_t)(int64_t)rc}});
  pthread_mutex_unlock(&r->lock);
  return rc;
}

static int record_poll(struct os *os, int fd, short events, int timeout_ms) {
  struct recorder *r = recorder_of(os);
  int rc = r->inner->poll(r->inner, fd, events, timeout_ms);
  pthread_mutex_lock(&r->lock);
  write_event(r, &(struct os_trace_event){.kind = TRACE_POLL,
                                          .numbers = {(uint64_t)fd, (uint64_t)events, (uint64_t)(int64_t)timeout_ms,
                                                      (uint64_t)(int64_t)rc}});
  pthread_mutex_unlock(&r->lock);
  return rc;
}

static ssize_t record_read_file(struct os *os, const char *path, char *buf, size_t cap) {
  struct recorder *r = recorder_of(os);
  pthread_mutex_lock(&r->lock);
  ssize_t rc = r->inner->read_file(r->inner, path, buf, cap);
  write_event(r, &(struct os_trace_event){.kind = TRACE_READ_FILE,
                                          .numbers = {cap, (uint64_t)(int64_t)rc},
                                          .blobs = {text_blob(path), {(const uint8_t *)buf, rc > 0 ? (uint32_t)rc : 0}},
                                          .nblobs = 2});
  pthread_mutex_unlock(&r->lock);
  return rc;
}

static int add_name(void *ctx, const char *name) {
  os_trace_append(ctx, name, strlen(name) + 1);
  return 0;
}

/* Records the whole directory even if the caller stops early. */
static int record_list_dir(struct os *os, const char *path, int (*each)(void *ctx, const char *name), void *ctx) {
  struct recorder *r = recorder_of(os);
  struct os_trace_bytes names = {0};
  pthread_mutex_lock(&r->lock);
  int rc = r->inner->list_dir(r->inner, path, add_name, &names);
  write_event(r, &(struct os_trace_event){.kind = TRACE_LIST_DIR,
                                          .numbers = {(uint64_t)(int64_t)rc},
                                          .blobs = {text_blob(path), {names.p, (uint32_t)names.n}},
                                          .nblobs = 2});
  pthread_mutex_unlock(&r->lock);
  for (const char *name = (const char *)names.p; name && name < (const char *)names.p + names.n;
       name += strlen(name) + 1)
    if (each(ctx, name)) break;
  if (names.failed) rc = -ENOMEM;
  free(names.p);
  return rc;
}

/* ---- doorbells ---- */

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int record_ring(struct os *os, void *at, uint64_t value, unsigned bytes, bool (*idle)(const void *queue),
                       const void *queue) {
  struct recorder *r = recorder_of(os);
  pthread_mutex_lock(&r->lock);
  write_changes(r, TRACE_HOST);
  os_store_doorbell(at, value, bytes);
  uint64_t start = now_ns();
  bool done;
  while (!(done = idle(queue)) && now_ns() - start < IDLE_LIMIT_NS)
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
  nanosleep(&(struct timespec){.tv_nsec = SETTLE_NS}, NULL);
  write_event(r, &(struct os_trace_event){.kind = TRACE_RING, .numbers = {(uint64_t)(uintptr_t)at, bytes, value}});
  if (!done) mark_unsupported(r, "a submission that did not finish within 10 s; it may wait for a later one");
  write_changes(r, TRACE_DEVICE);
  pthread_mutex_unlock(&r->lock);
  return 0;
}

/* ---- life ---- */

static void finish_trace(struct recorder *r) {
  pthread_mutex_lock(&r->lock);
  if (is_recording(r)) os_trace_finish(r->writer);
  r->writer = NULL;
  pthread_mutex_unlock(&r->lock);
}

/* Finishes the traces of machines that drivers keep until the process exits. */
__attribute__((destructor)) static void finish_all(void) {
  pthread_mutex_lock(&recorders_lock);
  for (struct recorder *r = recorders; r; r = r->next) finish_trace(r);
  pthread_mutex_unlock(&recorders_lock);
}

static void record_release(struct os *os) {
  struct recorder *r = recorder_of(os), **p = &recorders;
  finish_trace(r);
  pthread_mutex_lock(&recorders_lock);
  while (*p && *p != r) p = &(*p)->next;
  if (*p) *p = r->next;
  pthread_mutex_unlock(&recorders_lock);
  r->inner->release(r->inner);
  os_trace_memory_free(&r->memory);
  free(r->changes.p);
  free(r);
}

int os_record(struct os *inner, const char *file, const struct os_trace_header *header, struct os **out, char *err,
              size_t errcap) {
  struct recorder *r = calloc(1, sizeof *r);
  int rc = r ? os_trace_create(file, header, &r->writer) : -ENOMEM;
  if (rc) {
    snprintf(err, errcap, "cannot write %s: %s", file, strerror(-rc));
    free(r);
    return rc;
  }
  r->os = (struct os){.open = record_open,
                      .close = record_close,
                      .ioctl = record_ioctl,
                      .mmap = record_mmap,
                      .munmap = record_munmap,
                      .poll = record_poll,
                      .read_file = record_read_file,
                      .list_dir = record_list_dir,
                      .release = record_release,
                      .ring = record_ring};
  r->inner = inner;
  r->pid = getpid();
  r->next_address = FIRST_ADDRESS;
  r->registers = (struct os_trace_registers){.kfd = -1, .usermode_fd = -1};
  pthread_mutex_init(&r->lock, NULL);
  pthread_mutex_lock(&recorders_lock);
  r->next = recorders;
  recorders = r;
  pthread_mutex_unlock(&recorders_lock);
  *out = &r->os;
  return 0;
}
