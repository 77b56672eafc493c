/* Folders of the emulated machine: directory streams over a list of entries that is created when the stream is
 * opened. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include "preload.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "client.h"

_Static_assert(sizeof(struct dirent) == sizeof(struct dirent64), "one entry serves both");

struct entries {
  struct dirent *at;
  size_t n;
  const char *folder;
  int rc;
};

static int add_name(void *ctx, const char *name) {
  struct entries *e = ctx;
  struct dirent *more = realloc(e->at, (e->n + 1) * sizeof *more);
  char path[PATH_MAX];
  struct client_node node;
  if (!more) return e->rc = -ENOMEM;
  e->at = more;
  more[e->n] = (struct dirent){.d_reclen = sizeof *more, .d_off = (off_t)e->n + 1, .d_type = DT_DIR};
  size_t length = strlen(name);
  if (length >= sizeof more->d_name || snprintf(path, sizeof path, "%s/%s", e->folder, name) >= (int)sizeof path)
    return e->rc = -ENAMETOOLONG;
  memcpy(more[e->n].d_name, name, length + 1);
  bool dots = *name == '.';
  if (!dots && client_link(path))
    more[e->n].d_type = DT_LNK;
  else if (!dots && client_look(path, &node))
    more[e->n].d_type = node.kind == CLIENT_DEVICE ? DT_CHR : node.kind == CLIENT_TEXT ? DT_REG : DT_DIR;
  else if (!dots)
    return 0; /* a file that does not always exist */
  more[e->n++].d_ino = client_inode(dots ? e->folder : path);
  return 0;
}

/* Returns the entries of a folder, which the caller frees, or NULL with errno set. */
static struct dirent *list_entries(const char *folder, size_t *n) {
  struct entries e = {.folder = folder};
  if (!add_name(&e, ".") && !add_name(&e, "..") && !e.rc) {
    int rc = client_list(folder, add_name, &e);
    if (!e.rc) e.rc = rc;
  }
  if (!e.rc) {
    *n = e.n;
    return e.at;
  }
  free(e.at);
  errno = -e.rc;
  return NULL;
}

/* ---- streams ---- */

struct stream {
  struct stream *next;
  struct dirent *entries;
  size_t n, at;
  int fd;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream *streams; /* guarded by lock */
static _Atomic size_t open_streams;

/* Returns the stream of a DIR, or NULL if it is the C library's. */
static struct stream *find_stream(DIR *dir) {
  if (!atomic_load(&open_streams)) return NULL;
  pthread_mutex_lock(&lock);
  struct stream *s = streams;
  while (s && s != (void *)dir) s = s->next;
  pthread_mutex_unlock(&lock);
  return s;
}

EXPORT DIR *fdopendir(int fd) {
  struct client_file *file = client_get(fd);
  if (!file) return REAL->fdopendir(fd);
  struct stream *s = NULL;
  if (!file->path || file->node.kind != CLIENT_FOLDER)
    errno = file->path ? ENOTDIR : EBADF;
  else if ((s = calloc(1, sizeof *s))) {
    s->fd = fd;
    s->entries = list_entries(file->path, &s->n);
  }
  client_put(file);
  if (s && !s->entries) {
    free(s);
    return NULL;
  }
  if (!s) return NULL;
  pthread_mutex_lock(&lock);
  s->next = streams;
  streams = s;
  pthread_mutex_unlock(&lock);
  atomic_fetch_add(&open_streams, 1);
  return (void *)s;
}
EXPORT DIR *opendir(const char *path) {
  char buf[PATH_MAX];
  if (!client_path(AT_FDCWD, path, buf)) return REAL->opendir(path);
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *dir = fd < 0 ? NULL : fdopendir(fd);
  if (fd >= 0 && !dir) close(fd);
  return dir;
}
EXPORT int closedir(DIR *dir) {
  struct stream *s = find_stream(dir);
  if (!s) return REAL->closedir(dir);
  pthread_mutex_lock(&lock);
  for (struct stream **p = &streams; *p; p = &(*p)->next)
    if (*p == s) {
      *p = s->next;
      break;
    }
  pthread_mutex_unlock(&lock);
  atomic_fetch_sub(&open_streams, 1);
  int fd = s->fd;
  free(s->entries);
  free(s);
  return close(fd);
}
EXPORT struct dirent *readdir(DIR *dir) {
  struct stream *s = find_stream(dir);
  if (!s) return REAL->readdir(dir);
  return s->at < s->n ? &s->entries[s->at++] : NULL;
}
EXPORT struct dirent64 *readdir64(DIR *dir) {
  struct stream *s = find_stream(dir);
  if (!s) return REAL->readdir64(dir);
  return s->at < s->n ? (struct dirent64 *)&s->entries[s->at++] : NULL;
}
EXPORT void rewinddir(DIR *dir) {
  struct stream *s = find_stream(dir);
  if (s)
    s->at = 0;
  else
    REAL->rewinddir(dir);
}
EXPORT void seekdir(DIR *dir, long place) {
  struct stream *s = find_stream(dir);
  if (s)
    s->at = place < 0 ? 0 : (size_t)place;
  else
    REAL->seekdir(dir, place);
}
EXPORT long telldir(DIR *dir) {
  struct stream *s = find_stream(dir);
  return s ? (long)s->at : REAL->telldir(dir);
}
EXPORT int dirfd(DIR *dir) {
  struct stream *s = find_stream(dir);
  return s ? s->fd : REAL->dirfd(dir);
}

/* ---- scandir ---- */

typedef int filter_fn(const struct dirent *);
typedef int compare_fn(const struct dirent **, const struct dirent **);

static int compare_entries(const void *a, const void *b, void *compare) {
  return (*(compare_fn **)compare)((const struct dirent **)a, (const struct dirent **)b);
}

static int scan_folder(const char *folder, struct dirent ***out, filter_fn *filter, compare_fn *compare) {
  size_t n, kept = 0;
  struct dirent *entries = list_entries(folder, &n), **names = entries ? malloc(n * sizeof(struct dirent *)) : NULL;
  for (size_t i = 0; names && i < n; i++) {
    if (filter && !filter(&entries[i])) continue;
    if (!(names[kept] = malloc(sizeof *entries))) {
      while (kept) free(names[--kept]);
      free(names);
      names = NULL;
      break;
    }
    *names[kept++] = entries[i];
  }
  free(entries);
  if (!names) return -1;
  if (compare) qsort_r(names, kept, sizeof(struct dirent *), compare_entries, &compare);
  *out = names;
  return (int)kept;
}
EXPORT int scandir(const char *path, struct dirent ***out, filter_fn *filter, compare_fn *compare) {
  char buf[PATH_MAX];
  return client_path(AT_FDCWD, path, buf) ? scan_folder(buf, out, filter, compare)
                                          : REAL->scandir(path, out, filter, compare);
}
EXPORT int scandir64(const char *path, struct dirent64 ***out, int (*filter)(const struct dirent64 *),
                     int (*compare)(const struct dirent64 **, const struct dirent64 **)) {
  char buf[PATH_MAX];
  return client_path(AT_FDCWD, path, buf)
             ? scan_folder(buf, (struct dirent ***)out, (filter_fn *)filter, (compare_fn *)compare)
             : REAL->scandir64(path, out, filter, compare);
}
