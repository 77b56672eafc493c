#define _GNU_SOURCE
#include "own_fd.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MAX_FD = 1 << 16 };
static _Atomic uint64_t own[MAX_FD / 64];

/* Moves fd into the upper quarter of the descriptor numbers. It keeps its number if all of those are taken. */
static int move_up(int fd) {
  struct rlimit limit;
  rlim_t most = getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > MAX_FD ? MAX_FD : limit.rlim_cur;
  int high = fcntl(fd, F_DUPFD_CLOEXEC, (int)(most / 4 * 3));
  if (high < 0 || high >= MAX_FD) {
    if (high >= 0) close(high);
    return fd;
  }
  close(fd);
  return high;
}

int own_fd_memory(const char *name, uint64_t size) {
  int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd < 0) return -errno;
  if (ftruncate(fd, (off_t)size)) {
    int rc = -errno;
    close(fd);
    return rc;
  }
  fd = move_up(fd);
  if (fd < MAX_FD) atomic_fetch_or(&own[fd / 64], UINT64_C(1) << fd % 64);
  return fd;
}

void own_fd_close(int fd) {
  if (fd < 0) return;
  if (fd < MAX_FD) atomic_fetch_and(&own[fd / 64], ~(UINT64_C(1) << fd % 64));
  close(fd);
}

void own_fd_forget(void) {
  for (int i = 0; i < MAX_FD / 64; i++) atomic_store(&own[i], 0);
}

int own_fd_next(int fd) {
  if (fd < 0) fd = 0;
  uint64_t mask = ~UINT64_C(0) << fd % 64;
  for (int i = fd / 64; i < MAX_FD / 64; i++, mask = ~UINT64_C(0)) {
    uint64_t found = atomic_load(&own[i]) & mask;
    if (found) return i * 64 + __builtin_ctzll(found);
  }
  return INT_MAX;
}
