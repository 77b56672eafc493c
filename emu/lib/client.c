/* The machine of a process under `doorbell emu`, its descriptors and its paths. */
#define _GNU_SOURCE
#include "client.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "../own_fd.h"
#include "../watch.h"

enum { DRM_MAJOR = 226, KFD_MAJOR = 511, NVIDIA_MAJOR = 195, UVM_MAJOR = 510, NVIDIACTL_MINOR = 255 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct os *machine; /* guarded by lock, as all below */
/* Indexed by descriptor. A load without the lock may only be used to see that an entry is NULL. */
static _Atomic(struct client_file *) files[CLIENT_MAX_FDS];
static pid_t owner; /* the process that owns these descriptors; a vfork child does not */
static bool failed;
static struct client_file stale = {.fd = -1, .refs = 1}; /* has no path */

bool client_active(void) {
  static int active = -1;
  if (active < 0) {
    const char *gpus = getenv(CLIENT_GPUS);
    active = gpus && *gpus;
  }
  return active;
}

/* NVIDIA's GPUs are named by compute capability. */
static bool nvidia(void) {
  static int is = -1;
  if (is < 0) {
    const char *gpus = getenv(CLIENT_GPUS);
    is = gpus && !strncmp(gpus, "sm_", 3);
  }
  return is;
}

/* ---- the machine ---- */

static void print_line(void *ctx, const char *line) { dprintf(STDERR_FILENO, "doorbell emu: %s\n", line); }

/* Returns the folder for the counts of `doorbell prof`, or NULL. */
static const char *record_folder(void) {
  const char *folder = getenv(CLIENT_RECORD);
  return folder && *folder ? folder : NULL;
}

__attribute__((destructor)) static void at_end(void) {
  if (!machine || owner != getpid()) return;
  emu_stop(machine);
  const char *stats = getenv(CLIENT_STATS);
  if (stats) client_print_stats(machine, !strcmp(stats, "json"));
  if (getenv(CLIENT_ANNOTATE)) client_annotate(machine);
  if (record_folder()) client_save_stats(machine, record_folder());
}

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }
/* The child has the parent's memory but no device. As with a kernel driver, descriptors from before the fork do not
 * work in it, and it may open the device again. The parent's machine stays in memory unused: its threads do not exist
 * in the child. */
static void in_child(void) {
  pthread_mutex_init(&lock, NULL);
  owner = getpid();
  machine = NULL;
  own_fd_forget();
  for (int fd = 0; fd < CLIENT_MAX_FDS; fd++)
    if (files[fd]) files[fd] = &stale;
}

static void make_machine(void) {
  static bool hooked;
  char err[256] = "";
  struct os *os = NULL;
  failed = true;
  watch_never(); /* the program unmaps memory without calls that the emulator sees */
  int rc = os_emulated(nvidia() ? "NV" : "AMD", getenv(CLIENT_GPUS), &os, err, sizeof err);
  if (rc) {
    print_line(NULL, err);
    return;
  }
  emu_log(os, print_line, NULL);
  const char *code = getenv(CLIENT_CODE);
  if (getenv(CLIENT_ANNOTATE) || (record_folder() && code && atoi(code) >= 2))
    emu_annotate(os, true);
  else if (getenv(CLIENT_STATS) || record_folder())
    emu_detail(os, true);
  if (!hooked) hooked = !pthread_atfork(before_fork, after_fork, in_child);
  owner = getpid();
  machine = os, failed = false;
}

struct os *client_machine(void) {
  /* Creating the machine makes calls that this library intercepts. */
  static __thread bool inside;
  if (inside) return NULL;
  inside = true;
  pthread_mutex_lock(&lock);
  if (!machine && !failed) make_machine();
  struct os *os = machine;
  pthread_mutex_unlock(&lock);
  inside = false;
  if (!os) errno = ENODEV;
  return os;
}

/* ---- paths ---- */

static bool is_under(const char *path, const char *top) {
  size_t n = strlen(top);
  return !strncmp(path, top, n) && (!path[n] || path[n] == '/');
}
/* Parses the path of a device node that ends in a number. */
static bool parse_numbered(const char *path, const char *stem, unsigned *n) {
  size_t length = strlen(stem);
  char *end;
  if (strncmp(path, stem, length) != 0 || path[length] < '0' || path[length] > '9') return false;
  *n = (unsigned)strtoul(path + length, &end, 10);
  return !*end;
}
static bool is_emulated(const char *path) {
  unsigned minor;
  if (nvidia())
    return !strcmp(path, "/dev/nvidiactl") || !strcmp(path, "/dev/nvidia-uvm") ||
           parse_numbered(path, "/dev/nvidia", &minor) || is_under(path, "/proc/driver/nvidia");
  return is_under(path, "/dev/kfd") || is_under(path, "/dev/dri") || is_under(path, "/sys/devices/virtual/kfd") ||
         is_under(path, "/sys/class/kfd") || is_under(path, "/sys/class/drm");
}

/* Appends the parts of path to buf, which holds n characters; ".." removes the last part, after links were followed. */
static bool append_path(char buf[PATH_MAX], size_t *n, const char *path) {
  for (const char *at = path; *at;) {
    size_t length = strcspn(at, "/");
    if (length == 2 && at[0] == '.' && at[1] == '.') {
      while (*n && buf[*n - 1] != '/') --*n;
      if (*n) --*n;
    } else if (length && !(length == 1 && *at == '.')) {
      buf[*n] = 0;
      client_follow(buf);
      *n = strlen(buf);
      if (*n + length + 2 > PATH_MAX) return false;
      buf[(*n)++] = '/';
      memcpy(buf + *n, at, length);
      *n += length;
    }
    at += length + (at[length] == '/');
  }
  buf[*n] = 0;
  return true;
}

/* Writes the folder that paths relative to dirfd start from. */
static bool folder_of(int dirfd, char buf[PATH_MAX]) {
  if (dirfd == AT_FDCWD) return getcwd(buf, PATH_MAX);
  struct client_file *file = client_get(dirfd);
  if (file) {
    bool ok = file->path && file->node.kind == CLIENT_FOLDER;
    if (ok) strcpy(buf, file->path);
    client_put(file);
    return ok;
  }
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
  ssize_t n = readlink(link, buf, PATH_MAX - 1);
  if (n > 0) buf[n] = 0;
  return n > 0;
}

/* A cheap test that rejects most paths outside the machine. */
static bool may_be_emulated(const char *path) {
  while (path[0] == '/' && (path[1] == '/' || (path[1] == '.' && path[2] == '/'))) path += path[1] == '/' ? 1 : 2;
  return !strncmp(path, "/dev", 4) || !strncmp(path, "/sys", 4) || !strncmp(path, "/proc", 5) || strstr(path, "..");
}

bool client_path(int dirfd, const char *path, char buf[PATH_MAX]) {
  static __thread bool inside;
  char folder[PATH_MAX];
  size_t n = 0;
  if (!path || !*path || !client_active() || inside) return false;
  if (*path == '/') return may_be_emulated(path) && append_path(buf, &n, path) && is_emulated(buf);
  int error = errno;
  inside = true;
  bool found = folder_of(dirfd, folder);
  inside = false;
  errno = error;
  return found && (may_be_emulated(folder) || strstr(path, "..")) && append_path(buf, &n, folder) &&
         append_path(buf, &n, path) && is_emulated(buf);
}

dev_t client_device(const char *path) {
  unsigned minor;
  if (nvidia()) {
    if (!strcmp(path, "/dev/nvidiactl")) return makedev(NVIDIA_MAJOR, NVIDIACTL_MINOR);
    if (!strcmp(path, "/dev/nvidia-uvm")) return makedev(UVM_MAJOR, 0);
    return parse_numbered(path, "/dev/nvidia", &minor) ? makedev(NVIDIA_MAJOR, minor) : 0;
  }
  if (!strcmp(path, "/dev/kfd")) return makedev(KFD_MAJOR, 0);
  return parse_numbered(path, "/dev/dri/renderD", &minor) ? makedev(DRM_MAJOR, minor) : 0;
}

enum client_kind client_kind(const struct client_file *file) {
  switch (major(file->node.device)) {
  case KFD_MAJOR: return CLIENT_KFD;
  case UVM_MAJOR: return CLIENT_UVM;
  case NVIDIA_MAJOR: return CLIENT_RM;
  case DRM_MAJOR: return CLIENT_DRM;
  default: return CLIENT_NO_DEVICE;
  }
}

/* ---- descriptors ---- */

static void file_free(struct client_file *file) {
  if (file) free(file->path);
  free(file);
}

int client_open(const char *path, const struct client_node *node, int flags) {
  struct os *os = client_machine();
  if (!os) return -1;
  struct client_file *file = calloc(1, sizeof *file);
  if (!file || !(file->path = strdup(path))) {
    file_free(file);
    errno = ENOMEM;
    return -1;
  }
  file->node = *node;
  file->refs = 1;
  file->fd = node->kind == CLIENT_DEVICE ? os->open(os, path, flags) : -1;
  int fd = -1, error = node->kind == CLIENT_DEVICE && file->fd < 0 ? -file->fd : 0;
  if (!error && (fd = open("/dev/null", O_RDWR | (flags & O_CLOEXEC))) < 0) error = errno;
  if (fd >= CLIENT_MAX_FDS) error = EMFILE;
  if (error) {
    if (fd >= 0) close(fd);
    if (file->fd >= 0) os->close(os, file->fd);
    file_free(file);
    errno = error;
    return -1;
  }
  pthread_mutex_lock(&lock);
  files[fd] = file;
  pthread_mutex_unlock(&lock);
  return fd;
}

struct client_file *client_get(int fd) {
  if (fd < 0 || fd >= CLIENT_MAX_FDS || !files[fd]) return NULL;
  pthread_mutex_lock(&lock);
  struct client_file *file = files[fd];
  if (file) file->refs++;
  pthread_mutex_unlock(&lock);
  return file;
}

void client_put(struct client_file *file) {
  pthread_mutex_lock(&lock);
  bool last = --file->refs == 0;
  struct os *os = machine;
  pthread_mutex_unlock(&lock);
  if (!last || file == &stale) return;
  if (os && file->fd >= 0) os->close(os, file->fd);
  file_free(file);
}

int client_own_fd(int fd) { return owner == getpid() ? own_fd_next(fd) : INT_MAX; }

void client_closing(int fd) {
  if (fd < 0 || fd >= CLIENT_MAX_FDS || !files[fd] || owner != getpid()) return;
  pthread_mutex_lock(&lock);
  struct client_file *file = files[fd];
  files[fd] = NULL;
  pthread_mutex_unlock(&lock);
  if (file && file != &stale) client_put(file);
}

void client_duplicated(int fd, int new) {
  if (new < 0 || owner != getpid()) return;
  struct client_file *file = client_get(fd);
  if (!file) return;
  pthread_mutex_lock(&lock);
  if (new < CLIENT_MAX_FDS) files[new] = file;
  pthread_mutex_unlock(&lock);
  if (new >= CLIENT_MAX_FDS) client_put(file);
}
