/* This process's memory as a GPU's address space: the contents of /proc/self/maps, which are read again if an address
 * is not found.
 *
 * Waves cache translations. If memory is unmapped later, the host's page fault reports it; if memory is mapped later,
 * reading the file again finds it. */
#define _GNU_SOURCE
#include "host.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the map ---- */

struct area {
  uint64_t start, end;
  unsigned access;
};
static struct {
  pthread_mutex_t lock;
  struct area *area; /* sorted by address; neighbours with the same rights are joined */
  size_t n, cap;
} map = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool add_area(struct area a) {
  struct area *last = map.n ? &map.area[map.n - 1] : NULL;
  if (last && last->end == a.start && last->access == a.access) {
    last->end = a.end;
    return true;
  }
  if (map.n == map.cap) {
    size_t cap = map.cap ? map.cap * 2 : 256;
    struct area *grown = realloc(map.area, cap * sizeof *grown);
    if (!grown) return false;
    map.area = grown, map.cap = cap;
  }
  map.area[map.n++] = a;
  return true;
}

static void add_line(const char *line) {
  uint64_t start, end;
  char rights[5];
  if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &start, &end, rights) != 3) return;
  unsigned access = (rights[0] == 'r' ? VM_READ | VM_EXEC : 0) | (rights[1] == 'w' ? VM_WRITE : 0);
  if (access) add_area((struct area){start, end, access});
}

/* Does not use stdio, which might allocate: the map must not change while it is read. */
static void read_map(void) {
  char buf[8192];
  size_t have = 0;
  int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  map.n = 0;
  if (fd < 0) return;
  for (ssize_t got; (got = read(fd, buf + have, sizeof buf - 1 - have)) > 0 || (got < 0 && errno == EINTR);) {
    if (got < 0) continue;
    have += (size_t)got;
    buf[have] = 0;
    char *line = buf;
    for (char *end; (end = strchr(line, '\n')); line = end + 1) {
      *end = 0;
      add_line(line);
    }
    have -= (size_t)(line - buf);
    memmove(buf, line, have);
    if (have == sizeof buf - 1) have = 0; /* no line is that long */
  }
  close(fd);
}

/* Returns the first area that ends after va. */
static const struct area *area_after(uint64_t va) {
  size_t lo = 0, hi = map.n;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if (map.area[mid].end <= va)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo < map.n ? &map.area[lo] : NULL;
}

static bool host_find(uint64_t va, struct vm_range *out) {
  bool found = false;
  pthread_mutex_lock(&map.lock);
  for (int tries = 0; tries < 2 && !found; tries++) {
    if (tries || !map.n) read_map();
    const struct area *a = area_after(va);
    found = a && a->start <= va;
    if (found) *out = (struct vm_range){.va = a->start, .end = a->end, .access = a->access};
  }
  pthread_mutex_unlock(&map.lock);
  return found;
}

static void host_describe(uint64_t va, char *buf, size_t cap) {
  pthread_mutex_lock(&map.lock);
  const struct area *a = area_after(va), *before = a ? a - 1 : map.area + map.n - 1;
  if (!map.n || before < map.area) before = NULL;
  if (before && a && a->start > va && va - before->end > a->start - va) before = NULL;
  if (a && a->start <= va)
    snprintf(buf, cap, "0x%" PRIx64 " bytes into host memory 0x%" PRIx64 "-0x%" PRIx64 " (r%c)", va - a->start,
             a->start, a->end, a->access & VM_WRITE ? 'w' : '-');
  else if (before)
    snprintf(buf, cap, "0x%" PRIx64 " bytes after host memory 0x%" PRIx64 "-0x%" PRIx64, va - before->end,
             before->start, before->end);
  else if (a)
    snprintf(buf, cap, "0x%" PRIx64 " bytes before host memory 0x%" PRIx64 "-0x%" PRIx64, a->start - va, a->start,
             a->end);
  else
    snprintf(buf, cap, "nothing is mapped");
  pthread_mutex_unlock(&map.lock);
}

struct vm *host_vm(void) {
  static const struct vm_outside outside = {host_find, host_describe};
  struct vm *vm = vm_new();
  if (vm) vm->outside = &outside;
  return vm;
}
