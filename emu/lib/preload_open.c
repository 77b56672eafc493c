/* Opens files of the emulated machine. Device nodes and folders become descriptors that client.c manages; text becomes
 * a memory file with the current contents. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include "preload.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "client.h"

static int open_text(const char *path, int flags) {
  char text[32768];
  struct os *os = client_machine();
  ssize_t n = os ? os->read_file(os, path, text, sizeof text) : -ENODEV;
  int fd = n < 0 ? -1 : memfd_create(path, flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
  if (n < 0) errno = (int)-n;
  if (fd < 0 || (write(fd, text, (size_t)n) == (ssize_t)n && !lseek(fd, 0, SEEK_SET))) return fd;
  int error = errno;
  REAL->close(fd);
  errno = error;
  return -1;
}

static int open_emulated(const char *path, int flags) {
  struct client_node node;
  if (!client_look(path, &node)) {
    if (errno == ENOENT && flags & O_CREAT) errno = EACCES;
    return -1;
  }
  bool writes = (flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC;
  int refused = (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)            ? EEXIST
                : node.kind != CLIENT_FOLDER && flags & O_DIRECTORY           ? ENOTDIR
                : node.kind == CLIENT_FOLDER && (writes || (flags & O_CREAT)) ? EISDIR
                : node.kind == CLIENT_TEXT && writes                          ? EACCES
                                                                              : 0;
  if (refused) {
    errno = refused;
    return -1;
  }
  return node.kind == CLIENT_TEXT ? open_text(path, flags) : client_open(path, &node, flags);
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
#define CREAT(name)                                                                                                    \
  EXPORT int name(const char *path, mode_t mode) {                                                                     \
    char buf[PATH_MAX];                                                                                                \
    return client_path(AT_FDCWD, path, buf) ? open_emulated(buf, O_CREAT | O_WRONLY | O_TRUNC)                         \
                                            : REAL->name(path, mode);                                                  \
  }
CREAT(creat)
CREAT(creat64)
/* With _FORTIFY_SOURCE, calls without a mode become these. */
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
