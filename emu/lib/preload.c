/* The C library's file calls as a program under `doorbell emu` gets them: calls on files of the emulated machine go to
 * the machine, all others to the C library. preload_open.c opens files, preload_path.c has calls on paths,
 * preload_dir.c reads folders, preload_fd.c has calls on descriptors.
 *
 * dlsym is intercepted because programs that call the C library through a handle (Python's ctypes) would get the C
 * library's functions. Not covered: system calls made without the C library, calls that the C library makes internally
 * (glob, ftw, fts), and links of the real file system to the machine's files. */
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

/* Functions that programs built against a C library before 2.33 call; newer headers do not declare them. */
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
  /* With RTLD_NEXT the result depends on the caller, so this must stay a tail call. */
  if (handle == RTLD_NEXT || !client_active()) return real_dlsym(handle, name);
  void *p = real_dlsym(handle, name);
  return p ? ours_for(p) : NULL;
}
