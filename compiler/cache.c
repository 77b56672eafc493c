/* Two keys find a kernel again. In memory: the ast's structure and everything that decides its plan. On disk: the
 * rendered text and the recipe of the image, which includes the plan.
 *
 * A file holds the complete text and recipe that it was made from. Both are compared, so a hash collision is a miss and
 * never returns another kernel's code. A checksum covers the image; a damaged file is a miss. A file is written under a
 * temporary name and renamed, so a reader sees either the complete file or none. A writer locks its temporary file; a
 * temporary file without a lock was left by a writer that was killed. */
#include "internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

uint64_t bytes_hash(const void *p, size_t n, uint64_t h) {
  const uint8_t *b = p;
  h ^= n * UINT64_C(0x9e3779b97f4a7c15);
  for (; n;) {
    uint64_t w = 0;
    size_t take = n < 8 ? n : 8;
    memcpy(&w, b, take);
    unsigned __int128 m = (unsigned __int128)(h ^ w ^ UINT64_C(0xa0761d6478bd642f)) * UINT64_C(0xe7037ed1a0b428db);
    h = (uint64_t)m ^ (uint64_t)(m >> 64);
    b += take, n -= take;
  }
  return h;
}

/* ---- the ast's key --------------------------------------------------------------------------------------------- */
void *ast_key(struct uop *ast, const struct target *t, const char *choice, size_t *size, uint64_t *hash) {
  size_t count, at = 0, chosen = strlen(choice) + 1, cap = sizeof t + chosen;
  struct uop **order = uop_toposort(&ast, 1, &count);
  uint8_t *key = NULL;
  if (!order) return NULL;
  for (size_t i = 0; i < count; i++) {
    struct uop *u = order[i];
    cap += 20 + 4u * u->nsrc + (u->op == OP_VAR ? strlen(u->arg.s) : 0);
  }
  key = malloc(cap);
  if (!key) goto out;
  memcpy(key, &t, sizeof t);
  memcpy(key + sizeof t, choice, chosen);
  at = sizeof t + chosen;
  for (size_t i = 0; i < count; i++) {
    struct uop *u = order[i];
    size_t name = u->op == OP_VAR ? strlen(u->arg.s) : 0;
    uint16_t head[6] = {u->op, u->dtype, u->lanes, u->aux, u->nsrc, (uint16_t)name};
    memcpy(key + at, head, sizeof head);
    at += sizeof head;
    if (u->op == OP_VAR)
      memcpy(key + at, u->arg.s, name), at += name;
    else
      memcpy(key + at, &u->arg, 8), at += 8;
    for (unsigned s = 0; s < u->nsrc; s++, at += 4)
      memcpy(key + at, &(uint32_t){(uint32_t)uop_position(order, u->src[s])}, 4);
  }
  *size = at;
  *hash = bytes_hash(key, at, 1);
out:
  free(order);
  return key;
}

/* ---- files ----------------------------------------------------------------------------------------------------- */
struct file_header {
  char magic[8];
  uint64_t recipe_size, text_size, image_size, checksum;
};
static const char magic[8] = "dbkern2";
enum { READ_FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK }; /* O_NONBLOCK: do not wait for the writer of a FIFO */

static bool file_path(char *path, size_t cap, const char *dir, const char *recipe, const char *text) {
  size_t n = strlen(text);
  uint64_t seed = bytes_hash(recipe, strlen(recipe), 7);
  int len = snprintf(path, cap, "%s/%016" PRIx64 "%016" PRIx64 ".dbk", dir, bytes_hash(text, n, seed),
                     bytes_hash(text, n, ~seed));
  return len > 0 && (size_t)len < cap;
}

static bool read_all(int fd, void *p, size_t n) {
  for (size_t at = 0; at < n;) {
    ssize_t r = read(fd, (char *)p + at, n - at);
    if (r < 0 && errno == EINTR) continue;
    if (r <= 0) return false;
    at += (size_t)r;
  }
  return true;
}

static bool write_all(int fd, const void *p, size_t n) {
  for (size_t at = 0; at < n;) {
    ssize_t w = write(fd, (const char *)p + at, n - at);
    if (w < 0 && errno == EINTR) continue;
    if (!w) errno = ENOSPC;
    if (w <= 0) return false;
    at += (size_t)w;
  }
  return true;
}

bool disk_cache_get(const char *dir, const char *recipe, const char *text, void **image, size_t *size) {
  char path[4096], *body = NULL;
  struct file_header h;
  struct stat st;
  bool ok = false;
  size_t r = strlen(recipe), n = strlen(text);
  if (!file_path(path, sizeof path, dir, recipe, text)) return false;
  int fd = open(path, READ_FLAGS);
  if (fd < 0) return false;
  if (fstat(fd, &st) || !read_all(fd, &h, sizeof h) || memcmp(h.magic, magic, sizeof magic)) goto out;
  if (h.recipe_size != r || h.text_size != n || h.image_size > (uint64_t)st.st_size || !h.image_size) goto out;
  if ((uint64_t)st.st_size != sizeof h + r + n + h.image_size) goto out;
  body = malloc(r + n + h.image_size);
  if (!body || !read_all(fd, body, r + n + h.image_size)) goto out;
  if (memcmp(body, recipe, r) || memcmp(body + r, text, n)) goto out;
  if (bytes_hash(body + r + n, h.image_size, n) != h.checksum) goto out;
  *image = malloc(h.image_size);
  if (!*image) goto out;
  memcpy(*image, body + r + n, h.image_size);
  *size = h.image_size;
  ok = true;
out:
  free(body);
  close(fd);
  return ok;
}

static void make_folders(const char *dir) {
  char path[4096];
  size_t n = strlen(dir);
  if (n >= sizeof path) return;
  memcpy(path, dir, n + 1);
  for (char *p = path + 1; *p; p++)
    if (*p == '/') {
      *p = 0;
      mkdir(path, 0755);
      *p = '/';
    }
  mkdir(path, 0755);
}

int disk_cache_put(const char *dir, const char *recipe, const char *text, const void *image, size_t size) {
  char path[4096], temporary[4096 + 32];
  size_t r = strlen(recipe), n = strlen(text);
  if (!file_path(path, sizeof path, dir, recipe, text)) return -ENAMETOOLONG;
  snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
  int fd = mkstemp(temporary);
  if (fd < 0 && errno == ENOENT) {
    make_folders(dir);
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    fd = mkstemp(temporary);
  }
  if (fd < 0) return -errno;
  flock(fd, LOCK_EX | LOCK_NB); /* if files cannot be locked, disk_cache_sweep removes none */
  struct file_header h = {.recipe_size = r, .text_size = n, .image_size = size, .checksum = bytes_hash(image, size, n)};
  memcpy(h.magic, magic, sizeof magic);
  bool ok = write_all(fd, &h, sizeof h) && write_all(fd, recipe, r) && write_all(fd, text, n) &&
            write_all(fd, image, size) && !rename(temporary, path);
  int err = ok ? 0 : -errno;
  if (!ok) unlink(temporary);
  close(fd);
  return err;
}

/* A locked temporary file has a live writer. The writer of a file that is younger than a minute may be about to lock
 * it, so the file stays; a later sweep removes it. */
void disk_cache_sweep(const char *dir) {
  enum { YOUNG = 60 };
  DIR *d = opendir(dir);
  if (!d) return;
  const int folder = dirfd(d);
  struct stat st;
  for (struct dirent *e; folder >= 0 && (e = readdir(d));) {
    const char *suffix = strstr(e->d_name, ".dbk.");
    if (!suffix || strlen(suffix) != strlen(".dbk.XXXXXX")) continue;
    int fd = openat(folder, e->d_name, READ_FLAGS | O_NOFOLLOW);
    if (fd < 0) continue;
    if (!fstat(fd, &st) && time(NULL) - st.st_mtime > YOUNG && !flock(fd, LOCK_EX | LOCK_NB))
      unlinkat(folder, e->d_name, 0);
    close(fd);
  }
  closedir(d);
}

/* Returns the rest of the first line that begins with `word`, terminated in place, or "" if there is none. */
static char *line_after(char *text, const char *word) {
  size_t n = strlen(word);
  for (char *line = text; line && *line; line = strchr(line, '\n'), line += line ? 1 : 0)
    if (!strncmp(line, word, n)) {
      line[n + strcspn(line + n, "\n")] = 0;
      return line + n;
    }
  return text + strlen(text);
}

/* Reads a file's recipe (code_recipe) and the beginning of its text (LLVM IR), and points the strings of k into
 * them. */
static bool read_cached(const char *path, char *recipe, char *text, size_t cap, struct cached_kernel *k) {
  struct file_header h;
  struct stat st;
  int fd = open(path, READ_FLAGS | O_NOFOLLOW);
  if (fd < 0) return false;
  bool ok = !fstat(fd, &st) && read_all(fd, &h, sizeof h) && !memcmp(h.magic, magic, sizeof magic) &&
            h.recipe_size < cap && read_all(fd, recipe, h.recipe_size);
  size_t some = ok && h.text_size < cap ? h.text_size : cap - 1;
  ok = ok && read_all(fd, text, some);
  close(fd);
  if (!ok) return false;
  recipe[h.recipe_size] = text[some] = 0;
  char *target = strchr(recipe, '\n');
  if (!target) return false;
  *k = (struct cached_kernel){.path = path, .bytes = (uint64_t)st.st_size};
  k->plan = line_after(target + 1, "plan ");
  char *name = line_after(text, "; ModuleID = '");
  name[strcspn(name, "'")] = 0;
  k->name = name;
  target[1 + strcspn(target + 1, " \n")] = 0;
  k->target = target + 1;
  return true;
}

int compiler_cached(const char *dir, void (*visit)(void *ctx, const struct cached_kernel *k), void *ctx) {
  enum { MOST = 16384 };
  char path[4096], *recipe = malloc(MOST), *text = malloc(MOST);
  DIR *d = opendir(dir);
  int err = !d ? -errno : recipe && text ? 0 : -ENOMEM;
  for (struct dirent *e; !err && (e = readdir(d));) {
    struct cached_kernel k;
    const char *suffix = strrchr(e->d_name, '.');
    if (!suffix || strcmp(suffix, ".dbk")) continue;
    int n = snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    if (n > 0 && (size_t)n < sizeof path && read_cached(path, recipe, text, MOST, &k)) visit(ctx, &k);
  }
  if (d) closedir(d);
  free(recipe);
  free(text);
  return err;
}
