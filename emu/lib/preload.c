/* The C library's file calls, as a program under `doorbell emu` finds them: what names a file of the emulated machine
 * goes there, everything else to the C library. preload_open.c opens, preload_path.c answers questions about paths,
 * preload_dir.c reads folders, preload_fd.c has the calls on descriptors.
 *
 * dlsym is one of them because programs that call the C library through a handle (Python's ctypes) would find its own
 * functions otherwise. Not covered: system calls made without the C library, calls that the C library makes for itself
 * (glob, ftw, fts), and links of the real file system that lead to the machine's files. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include "preload.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include "client.h"

static struct preload_calls real;
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
  PRELOAD_CALLS(X)
#undef X
}

const struct preload_calls *preload_real(void) {
  pthread_once(&found, find_real);
  return &real;
}

/* What programs built against a C library before 2.33 call; its headers declare them no more. */
int __xstat(int version, const char *path, struct stat *st), __lxstat(int version, const char *path, struct stat *st);
int __xstat64(int version, const char *path, struct stat64 *st), __fxstat(int version, int fd, struct stat *st);
int __lxstat64(int version, const char *path, struct stat64 *st), __fxstat64(int version, int fd, struct stat64 *st);

static void *ours_for(void *p) {
#define X(name, type, parameters)                                                                                      \
  if (p == (void *)real.name) return (void *)name;
  PRELOAD_CALLS(X)
#undef X
  return p;
}

EXPORT void *dlsym(void *restrict handle, const char *restrict name) {
  preload_real();
  /* With RTLD_NEXT the answer depends on the caller, so this must stay a tail call. */
  if (handle == RTLD_NEXT || !client_active()) return real_dlsym(handle, name);
  void *p = real_dlsym(handle, name);
  return p ? ours_for(p) : NULL;
}
