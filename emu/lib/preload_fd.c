/* Calls on descriptors: those of the emulated machine's files go to the machine; the emulator's own descriptors stay
 * open. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include "preload.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include "../../hcq/amd/kfd.h"
#include "../own_fd.h"
#include "../user.h"
#include "client.h"

/* ---- descriptors ---- */

static int fail_with(int error) {
  errno = error;
  return -1;
}

EXPORT int close(int fd) {
  if (client_own_fd(fd) == fd) return fail_with(EBADF);
  client_closing(fd);
  return REAL->close(fd);
}
EXPORT int close_range(unsigned first, unsigned last, int flags) {
  if (!REAL->close_range) return fail_with(ENOSYS);
  if (!(flags & (int)CLOSE_RANGE_CLOEXEC))
    for (unsigned fd = first; fd <= last && fd < CLIENT_MAX_FDS; fd++) client_closing((int)fd);
  /* Closes the ranges between the emulator's own descriptors. */
  for (;;) {
    unsigned own = first > INT_MAX ? UINT_MAX : (unsigned)client_own_fd((int)first);
    if (own > last || own >= INT_MAX) return REAL->close_range(first, last, flags);
    if (own > first && REAL->close_range(first, own - 1, flags)) return -1;
    if (own == last) return 0;
    first = own + 1;
  }
}
EXPORT void closefrom(int first) {
  if (first < 0) first = 0;
  if (!REAL->close_range || close_range((unsigned)first, UINT_MAX, 0))
    for (int fd = first; fd < CLIENT_MAX_FDS; fd++) close(fd);
}
EXPORT int dup(int fd) {
  int new = REAL->dup(fd);
  client_duplicated(fd, new);
  return new;
}
EXPORT int dup2(int fd, int to) {
  if (client_own_fd(to) == to && fd != to) return fail_with(EBUSY);
  int new = REAL->dup2(fd, to);
  if (new < 0 || fd == to) return new;
  client_closing(to);
  client_duplicated(fd, new);
  return new;
}
EXPORT int dup3(int fd, int to, int flags) {
  if (client_own_fd(to) == to && fd != to) return fail_with(EBUSY);
  int new = REAL->dup3(fd, to, flags);
  if (new < 0) return new;
  client_closing(to);
  client_duplicated(fd, new);
  return new;
}
#define FCNTL(name)                                                                                                    \
  EXPORT int name(int fd, int command, ...) {                                                                          \
    va_list args;                                                                                                      \
    va_start(args, command);                                                                                           \
    void *arg = va_arg(args, void *);                                                                                  \
    va_end(args);                                                                                                      \
    int rc = REAL->name(fd, command, arg);                                                                             \
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) client_duplicated(fd, rc);                                   \
    return rc;                                                                                                         \
  }
FCNTL(fcntl)
FCNTL(fcntl64)

/* ---- device calls ---- */

static int report_result(struct os *os, int rc, unsigned long request) {
  char why[256];
  if (rc >= 0) return rc;
  errno = -rc;
  if (getenv(CLIENT_VERBOSE) && !emu_reason(os, why, sizeof why)) {
    dprintf(STDERR_FILENO, "doorbell emu: request 0x%lx: %s (%s)\n", request, strerror(-rc), why);
    errno = -rc;
  }
  return -1;
}

/* NVIDIA's modules report a refusal in the structure, and the call succeeds. */
static void say_reason(struct os *os, unsigned long request) {
  static __thread char last[256];
  char why[256];
  if (!os || !getenv(CLIENT_VERBOSE) || emu_reason(os, why, sizeof why) || !strcmp(why, last)) return;
  memcpy(last, why, sizeof last);
  dprintf(STDERR_FILENO, "doorbell emu: request 0x%lx: %s\n", request, why);
}

/* The only AMD call that passes a descriptor to the driver: replaces it by the machine's descriptor. */
static int acquire_vm(struct os *os, struct client_file *file, unsigned long request, void *arg) {
  struct kfd_acquire_vm a;
  if (user_read(&a, (uintptr_t)arg, sizeof a)) return -EFAULT;
  struct client_file *drm = client_get((int)a.drm_fd);
  a.drm_fd = drm ? (uint32_t)drm->fd : UINT32_MAX;
  int rc = os->ioctl(os, file->fd, request, &a);
  if (drm) client_put(drm);
  return rc;
}

EXPORT int ioctl(int fd, unsigned long request, ...) {
  va_list args;
  va_start(args, request);
  void *arg = va_arg(args, void *);
  va_end(args);
  request = (uint32_t)request; /* the kernel uses only these bits; some programs pass it sign-extended */
  struct client_file *file = client_get(fd);
  if (!file) return REAL->ioctl(fd, request, arg);
  struct os *os = client_machine();
  int rc = -EBADF;
  if (os && file->fd >= 0) {
    enum client_kind kind = client_kind(file);
    if (kind == CLIENT_RM || kind == CLIENT_UVM)
      rc = client_nv_ioctl(os, file, request, arg);
    else if (KFD_NR(request) == KFD_NR(KFD_ACQUIRE_VM) && _IOC_TYPE(request) == 'K' && arg)
      rc = acquire_vm(os, file, request, arg);
    else
      rc = os->ioctl(os, file->fd, request, arg);
  }
  client_put(file);
  if (rc >= 0) say_reason(os, request);
  return report_result(os, rc, request);
}

/* Polls the emulated descriptors among several; sets fd to -1 for these in the list for the C library. Returns the
 * number of ready ones. */
static int poll_emulated(struct os *os, struct pollfd *given, struct pollfd *rest, nfds_t n) {
  int ready = 0;
  for (nfds_t i = 0; i < n; i++) {
    struct client_file *file = client_get(given[i].fd);
    rest[i] = given[i];
    given[i].revents = 0;
    if (!file) continue;
    int rc = os->poll(os, file->fd, given[i].events, 0);
    given[i].revents = rc < 0 ? POLLERR : (short)rc;
    ready += given[i].revents != 0;
    rest[i].fd = -1;
    client_put(file);
  }
  return ready;
}

EXPORT int poll(struct pollfd *p, nfds_t n, int timeout) {
  enum { SLICE_MS = 5, MOST = 64 };
  struct pollfd rest[MOST];
  bool ours = false;
  for (nfds_t i = 0; client_active() && i < n && n <= MOST && !ours; i++) {
    struct client_file *file = client_get(p[i].fd);
    if (!file) continue;
    ours = client_kind(file) == CLIENT_RM || client_kind(file) == CLIENT_UVM;
    client_put(file);
  }
  struct os *os = ours ? client_machine() : NULL;
  if (!os) return REAL->poll(p, n, timeout);
  for (int waited = 0;; waited += SLICE_MS) {
    int ready = poll_emulated(os, p, rest, n);
    bool last = ready || (timeout >= 0 && waited >= timeout);
    int rc = REAL->poll(rest, n, last ? 0 : SLICE_MS);
    if (rc < 0) return rc;
    for (nfds_t i = 0; i < n; i++)
      if (rest[i].fd >= 0) p[i].revents = rest[i].revents;
    if (last || rc) return ready + rc;
  }
}

static void *map_emulated(struct client_file *file, void *addr, size_t n, int prot, int flags, off_t off) {
  struct os *os = client_machine();
  void *p = (void *)(intptr_t)-EBADF;
  if (os && file->fd >= 0) p = os->mmap(os, addr, n, prot, flags, file->fd, off);
  client_put(file);
  if (!os_map_failed(p)) return p;
  report_result(os, (int)(intptr_t)p, 0);
  return MAP_FAILED;
}
#define MMAP(name, off_type)                                                                                           \
  EXPORT void *name(void *addr, size_t n, int prot, int flags, int fd, off_type off) {                                 \
    struct client_file *file = flags & MAP_ANONYMOUS ? NULL : client_get(fd);                                          \
    return file ? map_emulated(file, addr, n, prot, flags, off) : REAL->name(addr, n, prot, flags, fd, off);           \
  }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)
