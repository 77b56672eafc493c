/* An emulated machine's sysfs and device nodes as real files, so that folders can be read, searched and compared by
 * calls that nobody intercepts. The text is that of when the tree was made; opening a file reads it afresh. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "client.h"

struct walk {
  struct os *os;
  const char *root, *path;
  int rc;
};

static int write_file(const char *name, const char *text, size_t n, mode_t mode) {
  int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd < 0) return -errno;
  int rc = write(fd, text, n) == (ssize_t)n ? 0 : -EIO;
  close(fd);
  return rc;
}

static int write_node(struct os *os, const char *root, const char *path);

static int write_child(void *ctx, const char *name) {
  struct walk *w = ctx;
  char path[PATH_MAX];
  if (snprintf(path, sizeof path, "%s/%s", w->path, name) >= (int)sizeof path)
    w->rc = -ENAMETOOLONG;
  else
    w->rc = write_node(w->os, w->root, path);
  return w->rc;
}

/* path: "" is the root. */
static int write_node(struct os *os, const char *root, const char *path) {
  char real[PATH_MAX], text[16384];
  if (snprintf(real, sizeof real, "%s%s", root, path) >= (int)sizeof real) return -ENAMETOOLONG;
  struct walk w = {os, root, path, 0};
  if (mkdir(real, 0755) && errno != EEXIST && errno != ENOTDIR) return -errno;
  int rc = os->list_dir(os, *path ? path : "/", write_child, &w);
  if (!rc) return w.rc;
  if (rmdir(real) && errno != ENOTDIR) return -errno;
  ssize_t n = os->read_file(os, path, text, sizeof text);
  if (n == -ENOENT) return 0; /* a file that is there at times only */
  return n < 0 ? write_file(real, "", 0, 0666) : write_file(real, text, (size_t)n, 0444);
}

int tree_write(struct os *os, const char *root) {
  char name[PATH_MAX];
  int rc = write_node(os, root, "");
  if (rc) return rc;
  if (snprintf(name, sizeof name, "%s/sys/devices/virtual/kfd", root) >= (int)sizeof name) return -ENAMETOOLONG;
  if (access(name, F_OK)) return 0;
  /* The class is an alias, in sysfs as here. */
  if (snprintf(name, sizeof name, "%s/sys/class/kfd", root) >= (int)sizeof name) return -ENAMETOOLONG;
  if (mkdir(name, 0755) && errno != EEXIST) return -errno;
  if (snprintf(name, sizeof name, "%s/sys/class/kfd/kfd", root) >= (int)sizeof name) return -ENAMETOOLONG;
  return symlink("../../devices/virtual/kfd/kfd", name) && errno != EEXIST ? -errno : 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at) {
  return remove(path) && errno != ENOENT ? -1 : 0;
}

void tree_remove(const char *root) { nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS); }
