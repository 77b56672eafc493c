/* Reads arbitrary bytes as the uncompressed stream of a trace and makes the recorded calls to its player: no crash, and
 * only the trace's own mappings are replaced. The seed contains two calls, a mapping and a doorbell, as written by
 * seed() below: FUZZ_SEED=FILE writes it again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "hcq/amd/kfd.h"
#include "hcq/trace/trace.h"

enum { MAPPED = 64 };
struct driver {
  struct os *os;
  struct {
    uint64_t first, end;
  } mapped[MAPPED];
  unsigned n;
};

static int any_name(void *ctx, const char *name) { return strlen(name) > 4096; }
static bool never(const void *queue) { return false; }

/* Makes the host's writes that the trace records, if the player has mapped the memory. */
static void write_memory(const struct os_trace_event *e, const struct driver *d) {
  size_t at = 0;
  uint64_t address;
  struct os_trace_blob run;
  while (os_trace_next_run(&e->blobs[0], &at, &address, &run))
    for (unsigned i = 0; i < d->n; i++)
      if (address >= d->mapped[i].first && address < d->mapped[i].end && run.size <= d->mapped[i].end - address)
        memcpy((void *)(uintptr_t)address, run.bytes, run.size);
}

static void forget(struct driver *d, uint64_t first, uint64_t end) {
  for (unsigned i = d->n; i--;)
    if (d->mapped[i].first < end && d->mapped[i].end > first) d->mapped[i] = d->mapped[--d->n];
}

static int map(const struct os_trace_event *e, struct driver *d) {
  const uint64_t *n = e->numbers;
  void *p = d->os->mmap(d->os, (void *)(uintptr_t)n[0], n[1], (int)n[2], (int)n[3], (int)n[4], (off_t)n[5]);
  if (os_map_failed(p) || n[6] != (uint64_t)(uintptr_t)p) return os_map_failed(p) ? (int)(intptr_t)p : 0;
  forget(d, n[6], n[6] + n[1]);
  if (n[7] && d->n < MAPPED) {
    d->mapped[d->n].first = n[6];
    d->mapped[d->n++].end = n[6] + n[1];
  }
  return 0;
}

static int same(const struct os_trace_event *e, struct driver *d) {
  static union {
    uint64_t align;
    uint8_t bytes[1 << 14];
  } arg;
  static char text[4096];
  struct os *os = d->os;
  const uint64_t *n = e->numbers;
  switch (e->kind) {
  case TRACE_OPEN: return os->open(os, (const char *)e->blobs[0].bytes, (int)n[0]);
  case TRACE_CLOSE: return os->close(os, (int)n[0]);
  case TRACE_IOCTL:
    /* Only structures without pointers: one with pointers would differ. */
    if (!e->nblobs || e->blobs[0].size > sizeof arg || e->nblobs != 2) return -1;
    if ((n[1] >> 8 & 0xff) != 'K' || KFD_NR(n[1]) == KFD_NR(KFD_WAIT_EVENTS) || KFD_NR(n[1]) == 0x14 ||
        KFD_NR(n[1]) == KFD_NR(KFD_MAP_MEMORY) || KFD_NR(n[1]) == KFD_NR(KFD_UNMAP_MEMORY))
      return -1;
    memset(arg.bytes, 0, sizeof arg);
    memcpy(arg.bytes, e->blobs[0].bytes, e->blobs[0].size);
    return os->ioctl(os, (int)n[0], n[1], arg.bytes);
  case TRACE_MMAP: return map(e, d);
  case TRACE_MUNMAP: forget(d, n[0], n[0] + n[1]); return os->munmap(os, (void *)(uintptr_t)n[0], n[1]);
  case TRACE_POLL: return os->poll(os, (int)n[0], (short)n[1], (int)n[2]);
  case TRACE_READ_FILE:
    return n[0] <= sizeof text ? (int)os->read_file(os, (const char *)e->blobs[0].bytes, text, n[0]) : -1;
  case TRACE_LIST_DIR: return os->list_dir(os, (const char *)e->blobs[0].bytes, any_name, NULL);
  case TRACE_RING: return os->ring(os, (void *)(uintptr_t)n[0], n[2], (unsigned)n[1], never, NULL);
  case TRACE_HOST: write_memory(e, d); return 0;
  default: return 0;
  }
}

static uint8_t *copy(const uint8_t *data, size_t size) {
  uint8_t *p = malloc(size + 1);
  if (p) memcpy(p, data, size);
  return p;
}

static void seed(const char *file) {
  struct os_trace_writer *w;
  struct kfd_get_version before = {0}, after = {1, 17};
  const uint64_t at = 0x551000000000, host = 0x12345678, device = 0x9abcdef0;
  struct {
    uint64_t address;
    uint32_t size, word;
  } __attribute__((packed)) run[2] = {{at, 4, (uint32_t)host}, {at + 64, 4, (uint32_t)device}};
  if (os_trace_create(file, &(struct os_trace_header){.vendor = "AMD"}, &w)) return;
  const struct os_trace_event events[] = {
      {.kind = TRACE_OPEN, .numbers = {2, 3}, .blobs = {{(const uint8_t *)"/dev/kfd", 9}}, .nblobs = 1},
      {.kind = TRACE_IOCTL,
       .numbers = {3, KFD_GET_VERSION, 0},
       .blobs = {{(uint8_t *)&before, sizeof before}, {(uint8_t *)&after, sizeof after}},
       .nblobs = 2},
      {.kind = TRACE_LIST_DIR, .blobs = {{(const uint8_t *)"/sys", 5}, {(const uint8_t *)"a\0b", 4}}, .nblobs = 2},
      {.kind = TRACE_READ_FILE,
       .numbers = {64, 2},
       .blobs = {{(const uint8_t *)"/sys/a", 7}, {(const uint8_t *)"1\n", 2}},
       .nblobs = 2},
      {.kind = TRACE_MMAP, .numbers = {0, 8192, 0, 2, ~0ull, 0, at, 0}},
      {.kind = TRACE_MMAP, .numbers = {at, 4096, 3, 17, 3, 4096, at, 1}},
      {.kind = TRACE_HOST, .blobs = {{(uint8_t *)&run[0], sizeof run[0]}}, .nblobs = 1},
      {.kind = TRACE_RING, .numbers = {at + 4096, 8, 16}},
      {.kind = TRACE_DEVICE, .blobs = {{(uint8_t *)&run[1], sizeof run[1]}}, .nblobs = 1},
      {.kind = TRACE_POLL, .numbers = {3, 1, 5, 0}},
      {.kind = TRACE_MUNMAP, .numbers = {at, 8192, 0}},
      {.kind = TRACE_CLOSE, .numbers = {3, 0}},
  };
  for (size_t i = 0; i < sizeof events / sizeof *events; i++) os_trace_write(w, &events[i]);
  os_trace_finish(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct os_trace played, walked;
  struct driver d = {0};
  char err[256];
  if (getenv("FUZZ_SEED")) seed(getenv("FUZZ_SEED")), unsetenv("FUZZ_SEED");
  uint8_t *a = copy(data, size), *b = copy(data, size);
  if (!a || !b || os_trace_parse(a, size, &played, err, sizeof err)) {
    if (!b) free(a);
    free(b);
    return 0;
  }
  if (os_trace_parse(b, size, &walked, err, sizeof err)) abort();
  bool large = false; /* libFuzzer reports an allocation of 2 GiB as an error */
  for (size_t i = 0; i < walked.nevents; i++)
    large |=
        walked.events[i].kind == TRACE_MMAP && walked.events[i].numbers[7] && walked.events[i].numbers[1] > 1 << 24;
  if (large)
    os_trace_free(&played);
  else if (!os_play_trace(&played, &d.os, err, sizeof err)) {
    for (size_t i = 0; i < walked.nevents; i++)
      if (same(&walked.events[i], &d) < 0 && os_play_difference(d.os)) break;
    os_play_finished(d.os);
    d.os->release(d.os);
  }
  os_trace_free(&walked);
  return 0;
}
