/* Calls on paths of the emulated machine: access, links, stat. Folders and text have the rights of sysfs and cannot be
 * written; everybody can read and write device nodes. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include "preload.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "client.h"

static int fail_with(int error) {
  errno = error;
  return -1;
}

/* ---- access and links ---- */

static int access_emulated(const char *path, int mode) {
  struct client_node node;
  if (!client_look(path, &node)) return -1;
  bool denied = (mode & W_OK && node.kind != CLIENT_DEVICE) || (mode & X_OK && node.kind != CLIENT_FOLDER);
  return denied ? fail_with(EACCES) : 0;
}
EXPORT int access(const char *path, int mode) {
  char buf[PATH_MAX];
  return client_path(AT_FDCWD, path, buf) ? access_emulated(buf, mode) : REAL->access(path, mode);
}
EXPORT int euidaccess(const char *path, int mode) {
  char buf[PATH_MAX];
  return client_path(AT_FDCWD, path, buf) ? access_emulated(buf, mode) : REAL->euidaccess(path, mode);
}
EXPORT int faccessat(int dir, const char *path, int mode, int flags) {
  char buf[PATH_MAX];
  return client_path(dir, path, buf) ? access_emulated(buf, mode) : REAL->faccessat(dir, path, mode, flags);
}

static ssize_t readlink_emulated(const char *path, char *to, size_t cap) {
  struct client_node node;
  const char *target = client_link(path);
  if (!target) return client_look(path, &node) ? fail_with(EINVAL) : -1;
  size_t n = strlen(target);
  if (!cap) return fail_with(EINVAL);
  memcpy(to, target, n < cap ? n : cap);
  return (ssize_t)(n < cap ? n : cap);
}
EXPORT ssize_t readlink(const char *path, char *to, size_t n) {
  char buf[PATH_MAX];
  return client_path(AT_FDCWD, path, buf) ? readlink_emulated(buf, to, n) : REAL->readlink(path, to, n);
}
EXPORT ssize_t readlinkat(int dir, const char *path, char *to, size_t n) {
  char buf[PATH_MAX];
  return client_path(dir, path, buf) ? readlink_emulated(buf, to, n) : REAL->readlinkat(dir, path, to, n);
}
EXPORT char *realpath(const char *path, char *resolved) {
  char buf[PATH_MAX];
  struct client_node node;
  if (!client_path(AT_FDCWD, path, buf)) return REAL->realpath(path, resolved);
  if (!client_look(buf, &node)) return NULL;
  client_follow(buf);
  return resolved ? strcpy(resolved, buf) : strdup(buf);
}

/* ---- stat ---- */

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one function fills both");

static mode_t mode_of(const struct client_node *node) {
  static const mode_t modes[] = {
      [CLIENT_FOLDER] = S_IFDIR | 0555, [CLIENT_TEXT] = S_IFREG | 0444, [CLIENT_DEVICE] = S_IFCHR | 0666};
  return modes[node->kind];
}

static int stat_link(const char *path, void *st) {
  *(struct stat *)st = (struct stat){.st_ino = client_inode(path),
                                     .st_mode = S_IFLNK | 0777,
                                     .st_nlink = 1,
                                     .st_size = (off_t)strlen(client_link(path)),
                                     .st_blksize = 4096};
  return 0;
}
static int stat_node(const char *path, const struct client_node *node, void *st) {
  *(struct stat *)st = (struct stat){.st_ino = client_inode(path),
                                     .st_mode = mode_of(node),
                                     .st_nlink = node->kind == CLIENT_FOLDER ? 2 : 1,
                                     .st_rdev = node->device,
                                     .st_size = node->kind == CLIENT_TEXT ? 4096 : 0,
                                     .st_blksize = 4096};
  return 0;
}
/* path is in the machine. */
static int stat_emulated(const char *path, bool follow, void *st) {
  struct client_node node;
  if (!follow && client_link(path)) return stat_link(path, st);
  return client_look(path, &node) ? stat_node(path, &node, st) : -1;
}
/* If fd is a descriptor of the machine, returns true and sets *rc to the result. */
static bool fstat_emulated(int fd, void *st, int *rc) {
  struct client_file *file = client_get(fd);
  if (!file) return false;
  *rc = file->path ? stat_node(file->path, &file->node, st) : fail_with(EBADF);
  client_put(file);
  return true;
}

#define STAT(name, type, parameters, follow, call)                                                                     \
  EXPORT int name parameters {                                                                                         \
    char buf[PATH_MAX];                                                                                                \
    return client_path(AT_FDCWD, path, buf) ? stat_emulated(buf, follow, st) : REAL->call;                             \
  }
STAT(stat, struct stat, (const char *path, struct stat *st), true, stat(path, st))
STAT(stat64, struct stat64, (const char *path, struct stat64 *st), true, stat64(path, st))
STAT(lstat, struct stat, (const char *path, struct stat *st), false, lstat(path, st))
STAT(lstat64, struct stat64, (const char *path, struct stat64 *st), false, lstat64(path, st))
/* Functions that programs built against a C library before 2.33 call. */
int __xstat(int version, const char *path, struct stat *st), __lxstat(int version, const char *path, struct stat *st);
int __xstat64(int version, const char *path, struct stat64 *st), __fxstat(int version, int fd, struct stat *st);
int __lxstat64(int version, const char *path, struct stat64 *st), __fxstat64(int version, int fd, struct stat64 *st);
STAT(__xstat, struct stat, (int version, const char *path, struct stat *st), true, __xstat(version, path, st))
STAT(__xstat64, struct stat64, (int version, const char *path, struct stat64 *st), true, __xstat64(version, path, st))
STAT(__lxstat, struct stat, (int version, const char *path, struct stat *st), false, __lxstat(version, path, st))
STAT(__lxstat64, struct stat64, (int version, const char *path, struct stat64 *st), false,
     __lxstat64(version, path, st))

#define FSTAT(name, type, parameters, call)                                                                            \
  EXPORT int name parameters {                                                                                         \
    int rc;                                                                                                            \
    return fstat_emulated(fd, st, &rc) ? rc : REAL->call;                                                              \
  }
FSTAT(fstat, struct stat, (int fd, struct stat *st), fstat(fd, st))
FSTAT(fstat64, struct stat64, (int fd, struct stat64 *st), fstat64(fd, st))
FSTAT(__fxstat, struct stat, (int version, int fd, struct stat *st), __fxstat(version, fd, st))
FSTAT(__fxstat64, struct stat64, (int version, int fd, struct stat64 *st), __fxstat64(version, fd, st))

/* For calls that take a folder's descriptor or, with AT_EMPTY_PATH, the file's. Returns whether the file is in the
 * machine. */
static bool statat_emulated(int dir, const char *path, void *st, int flags, int *rc) {
  char buf[PATH_MAX];
  if (flags & AT_EMPTY_PATH && (!path || !*path)) return fstat_emulated(dir, st, rc);
  if (!client_path(dir, path, buf)) return false;
  *rc = stat_emulated(buf, !(flags & AT_SYMLINK_NOFOLLOW), st);
  return true;
}
EXPORT int fstatat(int dir, const char *path, struct stat *st, int flags) {
  int rc;
  return statat_emulated(dir, path, st, flags, &rc) ? rc : REAL->fstatat(dir, path, st, flags);
}
EXPORT int fstatat64(int dir, const char *path, struct stat64 *st, int flags) {
  int rc;
  return statat_emulated(dir, path, st, flags, &rc) ? rc : REAL->fstatat64(dir, path, st, flags);
}
EXPORT int statx(int dir, const char *restrict path, int flags, unsigned mask, struct statx *restrict out) {
  struct stat st;
  int rc;
  if (!statat_emulated(dir, path, &st, flags, &rc)) return REAL->statx(dir, path, flags, mask, out);
  if (!rc)
    *out = (struct statx){.stx_mask = STATX_BASIC_STATS,
                          .stx_blksize = (uint32_t)st.st_blksize,
                          .stx_nlink = (uint32_t)st.st_nlink,
                          .stx_mode = (uint16_t)st.st_mode,
                          .stx_ino = st.st_ino,
                          .stx_size = (uint64_t)st.st_size,
                          .stx_rdev_major = major(st.st_rdev),
                          .stx_rdev_minor = minor(st.st_rdev)};
  return rc;
}
