/* The C library's file calls, as a program under `doorbell emu` finds them: what names a file of the emulated machine goes
 * there, everything else to the C library.
 *
 * dlsym is one of them because programs that call the C library through a handle (Python's ctypes) would find its own
 * functions otherwise. Not covered: system calls made without the C library, and files of the machine opened by the C
 * library for itself. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "../../hcq/amd/kfd.h"
#include "client.h"

#define EXPORT __attribute__((visibility("default")))

/* Every call intercepted: name, result, parameters. */
#define CALLS(X)                                                                                                       \
  X(open, int, (const char *, int, ...))                                                                               \
  X(open64, int, (const char *, int, ...))                                                                             \
  X(openat, int, (int, const char *, int, ...))                                                                        \
  X(openat64, int, (int, const char *, int, ...))                                                                      \
  X(fopen, FILE *, (const char *, const char *))                                                                       \
  X(fopen64, FILE *, (const char *, const char *))                                                                     \
  X(opendir, DIR *, (const char *))                                                                                    \
  X(close, int, (int))                                                                                                 \
  X(close_range, int, (unsigned, unsigned, int))                                                                       \
  X(closefrom, void, (int))                                                                                            \
  X(dup, int, (int))                                                                                                   \
  X(dup2, int, (int, int))                                                                                             \
  X(dup3, int, (int, int, int))                                                                                        \
  X(fcntl, int, (int, int, ...))                                                                                       \
  X(fcntl64, int, (int, int, ...))                                                                                     \
  X(ioctl, int, (int, unsigned long, ...))                                                                             \
  X(mmap, void *, (void *, size_t, int, int, int, off_t))                                                              \
  X(mmap64, void *, (void *, size_t, int, int, int, off64_t))                                                          \
  X(poll, int, (struct pollfd *, nfds_t, int))                                                                         \
  X(access, int, (const char *, int))                                                                                  \
  X(faccessat, int, (int, const char *, int, int))                                                                     \
  X(euidaccess, int, (const char *, int))                                                                              \
  X(readlink, ssize_t, (const char *, char *, size_t))                                                                 \
  X(readlinkat, ssize_t, (int, const char *, char *, size_t))                                                          \
  X(realpath, char *, (const char *, char *))                                                                          \
  X(stat, int, (const char *, struct stat *))                                                                          \
  X(stat64, int, (const char *, struct stat64 *))                                                                      \
  X(lstat, int, (const char *, struct stat *))                                                                         \
  X(lstat64, int, (const char *, struct stat64 *))                                                                     \
  X(fstat, int, (int, struct stat *))                                                                                  \
  X(fstat64, int, (int, struct stat64 *))                                                                              \
  X(fstatat, int, (int, const char *, struct stat *, int))                                                             \
  X(fstatat64, int, (int, const char *, struct stat64 *, int))                                                         \
  X(statx, int, (int, const char *, int, unsigned, struct statx *))                                                    \
  X(__xstat, int, (int, const char *, struct stat *))                                                                  \
  X(__xstat64, int, (int, const char *, struct stat64 *))                                                              \
  X(__lxstat, int, (int, const char *, struct stat *))                                                                 \
  X(__lxstat64, int, (int, const char *, struct stat64 *))                                                             \
  X(__fxstat, int, (int, int, struct stat *))                                                                          \
  X(__fxstat64, int, (int, int, struct stat64 *))                                                                      \
  X(scandir, int,                                                                                                      \
    (const char *, struct dirent ***, int (*)(const struct dirent *),                                                  \
     int (*)(const struct dirent **, const struct dirent **)))                                                         \
  X(scandir64, int,                                                                                                    \
    (const char *, struct dirent64 ***, int (*)(const struct dirent64 *),                                              \
     int (*)(const struct dirent64 **, const struct dirent64 **)))

/* The C library's. */
#define X(name, type, parameters) type(*name) parameters;
static struct {
  CALLS(X)
} real;
#undef X
static pthread_once_t found = PTHREAD_ONCE_INIT;
static void *(*real_dlsym)(void *handle, const char *name);

static void find_real(void) {
#if defined(__x86_64__)
  const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.34"};
#else
  const char *const versions[] = {"GLIBC_2.17", "GLIBC_2.34"};
#endif
  for (int i = 0; i < 2 && !real_dlsym; i++) *(void **)&real_dlsym = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
#define X(name, type, parameters) *(void **)&real.name = real_dlsym ? real_dlsym(RTLD_NEXT, #name) : NULL;
  CALLS(X)
#undef X
}
/* The table, filled; calls come before any constructor of this library has run. */
#define REAL (pthread_once(&found, find_real), &real)

/* ---- opening ---- */

/* A descriptor with the text of a file as it is now. */
static int open_text(const char *path, int flags) {
  char text[32768];
  struct os *os = client_machine();
  ssize_t n = os ? os->read_file(os, path, text, sizeof text) : -ENODEV;
  if (n < 0) return (int)n;
  if ((flags & O_ACCMODE) != O_RDONLY) return -EACCES;
  int fd = memfd_create(path, flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
  if (fd < 0) return -errno;
  if (write(fd, text, (size_t)n) == (ssize_t)n && !lseek(fd, 0, SEEK_SET)) return fd;
  int rc = errno ? -errno : -EIO;
  REAL->close(fd);
  return rc;
}

static int open_emulated(const char *path, int flags) {
  char buf[PATH_MAX];
  dev_t device = client_device(path);
  if (device) return client_open(path, device, flags);
  if (!(flags & O_DIRECTORY)) {
    int fd = open_text(path, flags);
    if (fd >= 0) return fd;
    if (fd != -ENOENT && fd != -EINVAL) {
      errno = -fd;
      return -1;
    }
  }
  return client_real_path(path, buf) ? REAL->open(buf, flags & ~(O_CREAT | O_TRUNC)) : -1;
}

static mode_t mode_of(int flags, va_list args) {
  return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? (mode_t)va_arg(args, int) : 0;
}
#define MODE(flags)                                                                                                    \
  va_list args;                                                                                                        \
  va_start(args, flags);                                                                                               \
  mode_t mode = mode_of(flags, args);                                                                                  \
  va_end(args)

#define OPEN(name)                                                                                                     \
  EXPORT int name(const char *path, int flags, ...) {                                                                  \
    char buf[PATH_MAX];                                                                                                \
    MODE(flags);                                                                                                       \
    return client_path(AT_FDCWD, path, buf) ? open_emulated(buf, flags) : REAL->name(path, flags, mode);               \
  }
OPEN(open)
OPEN(open64)
#define OPENAT(name)                                                                                                   \
  EXPORT int name(int dir, const char *path, int flags, ...) {                                                         \
    char buf[PATH_MAX];                                                                                                \
    MODE(flags);                                                                                                       \
    return client_path(dir, path, buf) ? open_emulated(buf, flags) : REAL->name(dir, path, flags, mode);               \
  }
OPENAT(openat)
OPENAT(openat64)
/* What _FORTIFY_SOURCE makes of calls without a mode. */
int __open_2(const char *path, int flags), __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags), __openat64_2(int dir, const char *path, int flags);
EXPORT int __open_2(const char *path, int flags) { return open(path, flags); }
EXPORT int __open64_2(const char *path, int flags) { return open64(path, flags); }
EXPORT int __openat_2(int dir, const char *path, int flags) { return openat(dir, path, flags); }
EXPORT int __openat64_2(int dir, const char *path, int flags) { return openat64(dir, path, flags); }

static FILE *fopen_emulated(const char *path, const char *mode) {
  int flags = strchr(mode, '+') ? O_RDWR : *mode == 'r' ? O_RDONLY : O_WRONLY;
  int fd = open_emulated(path, flags | (strchr(mode, 'e') ? O_CLOEXEC : 0));
  FILE *f = fd < 0 ? NULL : fdopen(fd, mode);
  if (fd >= 0 && !f) close(fd);
  return f;
}
#define FOPEN(name)                                                                                                    \
  EXPORT FILE *name(const char *path, const char *mode) {                                                              \
    char buf[PATH_MAX];                                                                                                \
    return client_path(AT_FDCWD, path, buf) ? fopen_emulated(buf, mode) : REAL->name(path, mode);                      \
  }
FOPEN(fopen)
FOPEN(fopen64)

/* ---- calls that only take a path: they find the tree ---- */

#define WITH_PATH(failure, dir, path, call)                                                                            \
  char name_[PATH_MAX], real_[PATH_MAX];                                                                               \
  if (client_path(dir, path, name_)) {                                                                                 \
    if (!client_real_path(name_, real_)) return failure;                                                               \
    dir = AT_FDCWD, path = real_;                                                                                      \
  }                                                                                                                    \
  return call

EXPORT DIR *opendir(const char *path) {
  int dir = AT_FDCWD;
  WITH_PATH(NULL, dir, path, REAL->opendir(path));
}
EXPORT int scandir(const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
                   int (*compare)(const struct dirent **, const struct dirent **)) {
  int dir = AT_FDCWD;
  WITH_PATH(-1, dir, path, REAL->scandir(path, list, filter, compare));
}
EXPORT int scandir64(const char *path, struct dirent64 ***list, int (*filter)(const struct dirent64 *),
                     int (*compare)(const struct dirent64 **, const struct dirent64 **)) {
  int dir = AT_FDCWD;
  WITH_PATH(-1, dir, path, REAL->scandir64(path, list, filter, compare));
}
EXPORT int access(const char *path, int mode) {
  int dir = AT_FDCWD;
  WITH_PATH(-1, dir, path, REAL->access(path, mode));
}
EXPORT int euidaccess(const char *path, int mode) {
  int dir = AT_FDCWD;
  WITH_PATH(-1, dir, path, REAL->euidaccess(path, mode));
}
EXPORT int faccessat(int dir, const char *path, int mode, int flags) {
  WITH_PATH(-1, dir, path, REAL->faccessat(dir, path, mode, flags));
}
EXPORT ssize_t readlink(const char *path, char *buf, size_t n) {
  int dir = AT_FDCWD;
  WITH_PATH(-1, dir, path, REAL->readlink(path, buf, n));
}
EXPORT ssize_t readlinkat(int dir, const char *path, char *buf, size_t n) {
  WITH_PATH(-1, dir, path, REAL->readlinkat(dir, path, buf, n));
}
EXPORT char *realpath(const char *path, char *resolved) {
  int dir = AT_FDCWD;
  WITH_PATH(NULL, dir, path, REAL->realpath(path, resolved));
}

/* ---- stat: device nodes are character devices ---- */

#define AS_DEVICE(st, dev) ((st)->st_mode = S_IFCHR | 0666, (st)->st_rdev = (dev), (st)->st_size = 0)

#define STAT(name, type, parameters, dir, call)                                                                        \
  EXPORT int name parameters {                                                                                         \
    char name_[PATH_MAX], real_[PATH_MAX];                                                                             \
    dev_t device = 0;                                                                                                  \
    int at = dir;                                                                                                      \
    if (client_path(at, path, name_)) {                                                                                \
      if (!client_real_path(name_, real_)) return -1;                                                                  \
      device = client_device(name_), at = AT_FDCWD, path = real_;                                                      \
    }                                                                                                                  \
    (void)at;                                                                                                          \
    int rc = REAL->call;                                                                                               \
    if (!rc && device) AS_DEVICE(st, device);                                                                          \
    return rc;                                                                                                         \
  }
STAT(stat, struct stat, (const char *path, struct stat *st), AT_FDCWD, stat(path, st))
STAT(stat64, struct stat64, (const char *path, struct stat64 *st), AT_FDCWD, stat64(path, st))
STAT(lstat, struct stat, (const char *path, struct stat *st), AT_FDCWD, lstat(path, st))
STAT(lstat64, struct stat64, (const char *path, struct stat64 *st), AT_FDCWD, lstat64(path, st))
/* What programs built against a C library before 2.33 call. */
int __xstat(int version, const char *path, struct stat *st), __lxstat(int version, const char *path, struct stat *st);
int __xstat64(int version, const char *path, struct stat64 *st), __fxstat(int version, int fd, struct stat *st);
int __lxstat64(int version, const char *path, struct stat64 *st), __fxstat64(int version, int fd, struct stat64 *st);
STAT(__xstat, struct stat, (int version, const char *path, struct stat *st), AT_FDCWD, __xstat(version, path, st))
STAT(__xstat64, struct stat64, (int version, const char *path, struct stat64 *st), AT_FDCWD,
     __xstat64(version, path, st))
STAT(__lxstat, struct stat, (int version, const char *path, struct stat *st), AT_FDCWD, __lxstat(version, path, st))
STAT(__lxstat64, struct stat64, (int version, const char *path, struct stat64 *st), AT_FDCWD,
     __lxstat64(version, path, st))

static bool names_descriptor(const char *path, int flags) { return flags & AT_EMPTY_PATH && (!path || !*path); }
static dev_t device_of(int fd) {
  struct client_file *file = client_get(fd);
  if (!file) return 0;
  dev_t device = file->device;
  client_put(file);
  return device;
}
#define STATAT(name, type)                                                                                             \
  EXPORT int name(int dir, const char *path, type *st, int flags) {                                                    \
    char name_[PATH_MAX], real_[PATH_MAX];                                                                             \
    dev_t device = names_descriptor(path, flags) ? device_of(dir) : 0;                                                 \
    if (client_path(dir, path, name_)) {                                                                               \
      if (!client_real_path(name_, real_)) return -1;                                                                  \
      device = client_device(name_), dir = AT_FDCWD, path = real_;                                                     \
    }                                                                                                                  \
    int rc = REAL->name(dir, path, st, flags);                                                                         \
    if (!rc && device) AS_DEVICE(st, device);                                                                          \
    return rc;                                                                                                         \
  }
STATAT(fstatat, struct stat)
STATAT(fstatat64, struct stat64)
#define FSTAT(name, type, parameters, call)                                                                            \
  EXPORT int name parameters {                                                                                         \
    dev_t device = device_of(fd);                                                                                      \
    int rc = REAL->call;                                                                                               \
    if (!rc && device) AS_DEVICE(st, device);                                                                          \
    return rc;                                                                                                         \
  }
FSTAT(fstat, struct stat, (int fd, struct stat *st), fstat(fd, st))
FSTAT(fstat64, struct stat64, (int fd, struct stat64 *st), fstat64(fd, st))
FSTAT(__fxstat, struct stat, (int version, int fd, struct stat *st), __fxstat(version, fd, st))
FSTAT(__fxstat64, struct stat64, (int version, int fd, struct stat64 *st), __fxstat64(version, fd, st))

EXPORT int statx(int dir, const char *restrict path, int flags, unsigned mask, struct statx *restrict st) {
  char name_[PATH_MAX], real_[PATH_MAX];
  dev_t device = names_descriptor(path, flags) ? device_of(dir) : 0;
  if (client_path(dir, path, name_)) {
    if (!client_real_path(name_, real_)) return -1;
    device = client_device(name_), dir = AT_FDCWD, path = real_;
  }
  int rc = REAL->statx(dir, path, flags, mask, st);
  if (!rc && device) {
    st->stx_mode = S_IFCHR | 0666, st->stx_size = 0;
    st->stx_rdev_major = major(device), st->stx_rdev_minor = minor(device);
  }
  return rc;
}

/* ---- descriptors ---- */

EXPORT int close(int fd) {
  client_closing(fd);
  return REAL->close(fd);
}
EXPORT int close_range(unsigned first, unsigned last, int flags) {
  if (!flags)
    for (unsigned fd = first; fd <= last && fd < 1u << 16; fd++) client_closing((int)fd);
  if (REAL->close_range) return REAL->close_range(first, last, flags);
  errno = ENOSYS;
  return -1;
}
EXPORT void closefrom(int first) {
  for (int fd = first < 0 ? 0 : first; fd < 1 << 16; fd++) client_closing(fd);
  if (REAL->closefrom) REAL->closefrom(first);
}
EXPORT int dup(int fd) {
  int new = REAL->dup(fd);
  client_duplicated(fd, new);
  return new;
}
EXPORT int dup2(int fd, int to) {
  int new = REAL->dup2(fd, to);
  if (new < 0 || fd == to) return new;
  client_closing(to);
  client_duplicated(fd, new);
  return new;
}
EXPORT int dup3(int fd, int to, int flags) {
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

static int refused(struct os *os, int rc, unsigned long request) {
  char why[256];
  if (rc >= 0) return rc;
  errno = -rc;
  if (getenv(CLIENT_VERBOSE) && !emu_reason(os, why, sizeof why)) {
    dprintf(STDERR_FILENO, "doorbell emu: request 0x%lx: %s (%s)\n", request, strerror(-rc), why);
    errno = -rc;
  }
  return -1;
}

/* NVIDIA's modules say in the structure what they refuse, and the call succeeds. */
static void say_reason(struct os *os, unsigned long request) {
  static __thread char last[256];
  char why[256];
  if (!os || !getenv(CLIENT_VERBOSE) || emu_reason(os, why, sizeof why) || !strcmp(why, last)) return;
  memcpy(last, why, sizeof last);
  dprintf(STDERR_FILENO, "doorbell emu: request 0x%lx: %s\n", request, why);
}

/* AMD's one call that hands the driver a descriptor: it gets the machine's own. */
static int acquire_vm(struct os *os, struct client_file *file, unsigned long request, void *arg) {
  struct kfd_acquire_vm a = *(struct kfd_acquire_vm *)arg;
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
  request = (uint32_t)request; /* all the kernel looks at; some programs pass it with its sign extended */
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
  return refused(os, rc, request);
}

/* Of several descriptors: the emulated ones' readiness, with fd -1 left for the C library. Returns how many are ready. */
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
  refused(os, (int)(intptr_t)p, 0);
  return MAP_FAILED;
}
#define MMAP(name, off_type)                                                                                           \
  EXPORT void *name(void *addr, size_t n, int prot, int flags, int fd, off_type off) {                                 \
    struct client_file *file = flags & MAP_ANONYMOUS ? NULL : client_get(fd);                                          \
    return file ? map_emulated(file, addr, n, prot, flags, off) : REAL->name(addr, n, prot, flags, fd, off);           \
  }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

/* ---- dlsym ---- */

static void *ours_for(void *p) {
#define X(name, type, parameters)                                                                                      \
  if (p == (void *)real.name) return (void *)name;
  CALLS(X)
#undef X
  return p;
}

EXPORT void *dlsym(void *restrict handle, const char *restrict name) {
  pthread_once(&found, find_real);
  /* With RTLD_NEXT the answer depends on the caller, so this must stay a tail call. */
  if (handle == RTLD_NEXT || !client_active()) return real_dlsym(handle, name);
  void *p = real_dlsym(handle, name);
  return p ? ours_for(p) : NULL;
}
