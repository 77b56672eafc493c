/* The C library's calls that are replaced for a program under `doorbell emu`, and pointers to the C library's own
 * functions. */
#ifndef DOORBELL_EMU_LIB_PRELOAD_H
#define DOORBELL_EMU_LIB_PRELOAD_H
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

#define EXPORT __attribute__((visibility("default")))

/* Every intercepted call: X(name, result, parameters). */
#define PRELOAD_CALLS(X)                                                                                               \
  X(open, int, (const char *, int, ...))                                                                               \
  X(open64, int, (const char *, int, ...))                                                                             \
  X(openat, int, (int, const char *, int, ...))                                                                        \
  X(openat64, int, (int, const char *, int, ...))                                                                      \
  X(creat, int, (const char *, mode_t))                                                                                \
  X(creat64, int, (const char *, mode_t))                                                                              \
  X(fopen, FILE *, (const char *, const char *))                                                                       \
  X(fopen64, FILE *, (const char *, const char *))                                                                     \
  X(opendir, DIR *, (const char *))                                                                                    \
  X(fdopendir, DIR *, (int))                                                                                           \
  X(readdir, struct dirent *, (DIR *))                                                                                 \
  X(readdir64, struct dirent64 *, (DIR *))                                                                             \
  X(closedir, int, (DIR *))                                                                                            \
  X(rewinddir, void, (DIR *))                                                                                          \
  X(seekdir, void, (DIR *, long))                                                                                      \
  X(telldir, long, (DIR *))                                                                                            \
  X(dirfd, int, (DIR *))                                                                                               \
  X(scandir, int,                                                                                                      \
    (const char *, struct dirent ***, int (*)(const struct dirent *),                                                  \
     int (*)(const struct dirent **, const struct dirent **)))                                                         \
  X(scandir64, int,                                                                                                    \
    (const char *, struct dirent64 ***, int (*)(const struct dirent64 *),                                              \
     int (*)(const struct dirent64 **, const struct dirent64 **)))                                                     \
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
  X(__fxstat64, int, (int, int, struct stat64 *))

/* The C library's functions. */
struct preload_calls {
#define X(name, type, parameters) type(*name) parameters;
  PRELOAD_CALLS(X)
#undef X
};
/* Returns the C library's functions. They are looked up at the first use: calls may come before any constructor of this
 * library runs. */
const struct preload_calls *preload_real(void);
#define REAL preload_real()

#endif
