/* Replaces files atomically: writes a file beside the old one, flushes it to the disk and renames it. A full disk, a
 * crash or another process never leaves or sees a partial file. */
#define _GNU_SOURCE
#include "files.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_temporary(struct replacement *r, const char *path, const struct stat *old) {
  static atomic_uint made;
  int fd = -1;
  r->path = realpath(path, NULL); /* resolves links, so that a link stays a link */
  if (!r->path && !(r->path = strdup(path))) return -ENOMEM;
  for (int i = 0; i < 100 && fd < 0; i++) {
    free(r->temporary);
    if (asprintf(&r->temporary, "%s.%ld.%u.tmp", r->path, (long)getpid(), atomic_fetch_add(&made, 1)) < 0) {
      r->temporary = NULL;
      return -ENOMEM;
    }
    fd = open(r->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST) return -errno;
  }
  if (fd < 0) return -EEXIST;
  int err = old && fchmod(fd, old->st_mode & 0777) ? -errno : 0;
  if (!err && !(r->file = fdopen(fd, "wb"))) err = -errno;
  if (!err) return 0;
  close(fd);
  unlink(r->temporary);
  return err;
}

static void replacement_free(struct replacement *r) {
  free(r->path);
  free(r->temporary);
  *r = (struct replacement){0};
}

int replace_begin(struct replacement *r, const char *path) {
  struct stat st;
  int err = 0;
  *r = (struct replacement){0};
  bool exists = !stat(path, &st);
  if (exists && !S_ISREG(st.st_mode)) {
    if (!(r->file = fopen(path, "wbe"))) err = -errno;
  } else {
    err = open_temporary(r, path, exists ? &st : NULL);
  }
  if (err) replacement_free(r);
  return err;
}

/* Flushes the folder that contains path, so that the new name is on the disk, too. */
static int sync_folder(const char *path) {
  const char *slash = strrchr(path, '/');
  char *folder = !slash ? strdup(".") : slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
  int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  int err = !folder ? -ENOMEM : fd >= 0 && fsync(fd) && errno != EINVAL ? -errno : 0; /* some file systems cannot */
  if (fd >= 0) close(fd);
  free(folder);
  return err;
}

int replace_end(struct replacement *r, bool good) {
  int err = good ? 0 : errno ? -errno : -EIO;
  if (!err && fflush(r->file)) err = -errno;
  if (!err && r->temporary && fsync(fileno(r->file)) && errno != EINVAL) err = -errno;
  if (fclose(r->file) && !err) err = -errno;
  if (r->temporary) {
    if (!err && rename(r->temporary, r->path)) err = -errno;
    if (err)
      unlink(r->temporary);
    else
      err = sync_folder(r->path);
  }
  replacement_free(r);
  return err;
}
