/* The os table of an emulated machine: descriptors, and the dispatch of each call to its vendor. */
#define _GNU_SOURCE
#include "machine.h"
#include "cache_model.h"
#include "own_fd.h"
#include "race.h"
#include "watch.h"
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Above the descriptors that a kernel gives by default, so that confusing the two fails instead of accessing another
 * file. */
enum { FD_BASE = 1 << 20 };

static struct emu_machine *machine_of(struct os *os) { return (struct emu_machine *)os; }

struct emu_file *emu_file_get(struct emu_machine *m, int fd) {
  struct emu_file *file = NULL;
  pthread_mutex_lock(&m->files_lock);
  if (fd >= FD_BASE && (size_t)(fd - FD_BASE) < m->nfiles) file = m->files[fd - FD_BASE];
  if (file) file->refs++;
  pthread_mutex_unlock(&m->files_lock);
  return file;
}

void emu_file_put(struct emu_machine *m, struct emu_file *file) {
  pthread_mutex_lock(&m->files_lock);
  bool last = --file->refs == 0;
  pthread_mutex_unlock(&m->files_lock);
  if (last) file->ops->close(file);
}

static int emulated_open(struct os *os, const char *path, int flags) {
  struct emu_machine *m = machine_of(os);
  struct emu_file *file = NULL;
  int rc = m->ops->open(m, path, flags, &file);
  if (rc) return rc;
  pthread_mutex_lock(&m->files_lock);
  size_t slot = 0;
  while (slot < m->nfiles && m->files[slot]) slot++;
  if (slot == m->nfiles) {
    struct emu_file **files = realloc(m->files, (slot + 1) * sizeof(struct emu_file *));
    if (!files) {
      pthread_mutex_unlock(&m->files_lock);
      file->ops->close(file);
      return -ENOMEM;
    }
    m->files = files;
    m->nfiles = slot + 1;
  }
  file->refs = 1;
  m->files[slot] = file;
  pthread_mutex_unlock(&m->files_lock);
  return FD_BASE + (int)slot;
}

static int emulated_close(struct os *os, int fd) {
  struct emu_machine *m = machine_of(os);
  struct emu_file *file = emu_file_get(m, fd);
  if (!file) return -EBADF;
  pthread_mutex_lock(&m->files_lock);
  m->files[fd - FD_BASE] = NULL;
  file->refs--;
  pthread_mutex_unlock(&m->files_lock);
  emu_file_put(m, file);
  return 0;
}

static int emulated_ioctl(struct os *os, int fd, unsigned long request, void *arg) {
  struct emu_machine *m = machine_of(os);
  struct emu_file *file = emu_file_get(m, fd);
  if (!file) return -EBADF;
  int rc = file->ops->ioctl(file, request, arg);
  emu_file_put(m, file);
  return rc;
}

/* Anonymous shared memory that clients import into GPUs. Strict machines back it with a file, so that they have a
 * mapping of their own. */
static void *shared_memory(void *addr, size_t len, int prot, int flags) {
  int fd = memfd_create("shared", MFD_CLOEXEC), err = 0;
  void *p = MAP_FAILED, *alias = MAP_FAILED;
  if (fd < 0 || ftruncate(fd, (off_t)len) ||
      (alias = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED ||
      (p = mmap(addr, len, prot, flags & ~MAP_ANONYMOUS, fd, 0)) == MAP_FAILED)
    err = -errno;
  if (fd >= 0) close(fd);
  if (err && alias != MAP_FAILED) munmap(alias, len);
  if (err) return (void *)(intptr_t)err;
  watch_map(p, len, prot, alias, WATCH_OWN);
  return p;
}

static void *emulated_mmap(struct os *os, void *addr, size_t len, int prot, int flags, int fd, off_t off) {
  struct emu_machine *m = machine_of(os);
  if (m->strict && flags & MAP_FIXED) watch_unmap(addr, len);
  if (m->strict && (flags & (MAP_ANONYMOUS | MAP_SHARED)) == (MAP_ANONYMOUS | MAP_SHARED))
    return shared_memory(addr, len, prot, flags);
  if (flags & MAP_ANONYMOUS) {
    void *p = mmap(addr, len, prot, flags, -1, 0);
    return p == MAP_FAILED ? (void *)(intptr_t)-errno : p;
  }
  struct emu_file *file = emu_file_get(m, fd);
  if (!file) return (void *)(intptr_t)-EBADF;
  void *p = file->ops->mmap(file, addr, len, prot, flags, off);
  emu_file_put(m, file);
  return p;
}

static int emulated_munmap(struct os *os, void *addr, size_t len) {
  if (machine_of(os)->strict) watch_unmap(addr, len);
  return munmap(addr, len) ? -errno : 0;
}

static int emulated_poll(struct os *os, int fd, short events, int timeout_ms) {
  struct emu_machine *m = machine_of(os);
  struct emu_file *file = emu_file_get(m, fd);
  if (!file) return -EBADF;
  int rc = file->ops->poll ? file->ops->poll(file, events, timeout_ms)
                           : events & (POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM);
  emu_file_put(m, file);
  return rc;
}

static ssize_t emulated_read_file(struct os *os, const char *path, char *buf, size_t cap) {
  struct emu_machine *m = machine_of(os);
  return cap ? m->ops->read_file(m, path, buf, cap) : -EINVAL;
}

static int emulated_list_dir(struct os *os, const char *path, int (*each)(void *ctx, const char *name), void *ctx) {
  struct emu_machine *m = machine_of(os);
  return m->ops->list_dir(m, path, each, ctx);
}

static void emulated_release(struct os *os) {
  struct emu_machine *m = machine_of(os);
  for (size_t i = 0; i < m->nfiles; i++)
    if (m->files[i]) emu_file_put(m, m->files[i]);
  m->ops->free(m);
}

void emu_machine_fini(struct emu_machine *m) {
  free(m->files);
  pthread_mutex_destroy(&m->files_lock);
  pthread_mutex_destroy(&m->reason_lock);
}

int emu_refuse(struct emu_machine *m, int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  pthread_mutex_lock(&m->reason_lock);
  vsnprintf(m->reason, sizeof m->reason, format, args);
  pthread_mutex_unlock(&m->reason_lock);
  va_end(args);
  return code;
}

int emu_shared_page(const char *name, size_t size, int *fd, void **page) {
  *fd = own_fd_memory(name, size);
  if (*fd < 0) return *fd;
  *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
  if (*page != MAP_FAILED) return 0;
  int rc = -errno;
  own_fd_close(*fd);
  *fd = -1;
  *page = NULL;
  return rc;
}

/* Returns 0 or 1, or a negative errno for any other value. */
static int peers_wanted(void) {
  const char *v = getenv("EMU_P2P");
  if (!v || !*v) return 1;
  return (*v == '0' || *v == '1') && !v[1] ? *v - '0' : -EINVAL;
}

void emu_machine_init(struct emu_machine *m, const struct emu_machine_ops *ops) {
  m->ops = ops;
  m->peers = peers_wanted() != 0;
  pthread_mutex_init(&m->files_lock, NULL);
  pthread_mutex_init(&m->reason_lock, NULL);
  m->os = (struct os){emulated_open, emulated_close,     emulated_ioctl,    emulated_mmap,   emulated_munmap,
                      emulated_poll, emulated_read_file, emulated_list_dir, emulated_release};
}

int os_emulated(const char *vendor, const char *gpus, struct os **out, char *err, size_t errcap) {
  static const struct {
    const char *vendor;
    int (*make)(const char *gpus, struct emu_machine **out, char *err, size_t errcap);
  } makers[] = {{"AMD", amd_machine_new}, {"NV", nv_machine_new}};
  enum { MAKERS = sizeof makers / sizeof makers[0] };
  struct emu_machine *m = NULL;
  size_t i = 0;
  while (i < MAKERS && strcmp(vendor, makers[i].vendor) != 0) i++;
  if (i == MAKERS) {
    snprintf(err, errcap, "no emulated machine of vendor \"%s\"; known are AMD and NV", vendor);
    return -EINVAL;
  }
  bool strict;
  if (!race_wanted(&strict, err, errcap)) return -EINVAL;
  if (peers_wanted() < 0) {
    snprintf(err, errcap, "EMU_P2P is \"%s\"; it can be 0 or 1", getenv("EMU_P2P"));
    return -EINVAL;
  }
  int rc = makers[i].make(gpus, &m, err, errcap);
  if (rc) return rc;
  m->strict = strict;
  *out = &m->os;
  return 0;
}

/* An os table belongs to an emulated machine if its open is emulated_open. */
static struct emu_machine *emulated(struct os *os) { return os && os->open == emulated_open ? machine_of(os) : NULL; }

int emu_stats(struct os *os, unsigned gpu, struct emu_stats *out) {
  struct emu_machine *m = emulated(os);
  return m ? m->ops->stats(m, gpu, out) : -EINVAL;
}

int emu_detail(struct os *os, bool on) {
  struct emu_machine *m = emulated(os);
  if (!m) return -EINVAL;
  m->ops->detail(m, on, false);
  return 0;
}

int emu_annotate(struct os *os, bool on) {
  struct emu_machine *m = emulated(os);
  if (!m) return -EINVAL;
  m->ops->detail(m, on, on);
  return 0;
}

int emu_instructions(struct os *os, unsigned gpu, const struct emu_kernel_stats *kernel, struct emu_site **out,
                     size_t *n) {
  struct emu_machine *m = emulated(os);
  return m ? m->ops->instructions(m, gpu, kernel, out, n) : -EINVAL;
}

int emu_assumptions(struct os *os, unsigned gpu, char *buf, size_t cap) {
  struct emu_machine *m = emulated(os);
  const char *arch = m ? m->ops->arch(m, gpu) : NULL;
  if (!arch) return -EINVAL;
  const struct emu_cache_model *c = emu_cache_model(arch);
  *buf = 0;
  if (c)
    snprintf(
        buf, cap,
        "model of caches: each workgroup or cluster begins with an empty L1 of %u KiB, %u ways; all share an L2 of "
        "%u KiB, %u ways, empty at first; stores go to L2; lines of 128 bytes, least recently used ones replaced; a "
        "load waits %u cycles for L1, %u for L2, %u for memory; workgroups or clusters run one after another",
        c->l1_kib, c->l1_ways, c->l2_kib, c->l2_ways, c->l1_cycles, c->l2_cycles, c->memory_cycles);
  return 0;
}

int emu_kernels(struct os *os, unsigned gpu, struct emu_kernel_stats **out, size_t *n) {
  struct emu_machine *m = emulated(os);
  return m ? m->ops->kernels(m, gpu, out, n) : -EINVAL;
}

int emu_reason(struct os *os, char *buf, size_t cap) {
  struct emu_machine *m = emulated(os);
  if (!m || !cap) return -EINVAL;
  pthread_mutex_lock(&m->reason_lock);
  snprintf(buf, cap, "%s", m->reason);
  pthread_mutex_unlock(&m->reason_lock);
  return 0;
}

int emu_log(struct os *os, void (*print)(void *ctx, const char *line), void *ctx) {
  struct emu_machine *m = emulated(os);
  if (!m) return -EINVAL;
  m->print = print;
  m->print_ctx = ctx;
  return 0;
}

int emu_stop(struct os *os) {
  struct emu_machine *m = emulated(os);
  if (!m) return -EINVAL;
  m->ops->stop(m);
  return 0;
}
