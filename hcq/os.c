/* The table of operating-system calls that calls libc. */
#include "os.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

static int real_open(struct os *os, const char *path, int flags) {
  int fd;
  do fd = open(path, flags);
  while (fd < 0 && errno == EINTR);
  return fd < 0 ? -errno : fd;
}

static int real_close(struct os *os, int fd) { return close(fd) ? -errno : 0; }

static int real_ioctl(struct os *os, int fd, unsigned long request, void *arg) {
  int r = ioctl(fd, request, arg);
  return r < 0 ? -errno : r;
}

static void *real_mmap(struct os *os, void *addr, size_t len, int prot, int flags, int fd, off_t off) {
  void *p = mmap(addr, len, prot, flags, fd, off);
  return p == MAP_FAILED ? (void *)(intptr_t)-errno : p;
}

static int real_munmap(struct os *os, void *addr, size_t len) { return munmap(addr, len) ? -errno : 0; }

static int real_poll(struct os *os, int fd, short events, int timeout_ms) {
  struct pollfd p = {.fd = fd, .events = events};
  int r = poll(&p, 1, timeout_ms);
  return r < 0 ? -errno : r ? p.revents : 0;
}

static ssize_t real_read_file(struct os *os, const char *path, char *buf, size_t cap) {
  int fd = real_open(os, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fd;
  size_t n = 0;
  ssize_t r = 0;
  while (n + 1 < cap) {
    r = read(fd, buf + n, cap - 1 - n);
    if (r < 0 && errno == EINTR) continue;
    if (r <= 0) break;
    n += (size_t)r;
  }
  ssize_t result = r < 0 ? -errno : (ssize_t)n;
  if (cap) buf[n] = 0;
  close(fd);
  return result;
}

static int real_list_dir(struct os *os, const char *path, int (*each)(void *ctx, const char *name), void *ctx) {
  DIR *dir = opendir(path);
  if (!dir) return -errno;
  struct dirent *e;
  while ((e = readdir(dir)))
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && each(ctx, e->d_name)) break;
  closedir(dir);
  return 0;
}

static void real_release(struct os *os) {}

struct os *os_real(void) {
  static struct os table = {
      .open = real_open,
      .close = real_close,
      .ioctl = real_ioctl,
      .mmap = real_mmap,
      .munmap = real_munmap,
      .poll = real_poll,
      .read_file = real_read_file,
      .list_dir = real_list_dir,
      .release = real_release,
  };
  return &table;
}
