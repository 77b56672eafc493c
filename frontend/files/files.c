/* Loads and saves named tensors, in the format given by the file's extension. Files are mapped, and copied to the
 * device from there. */
#include "formats.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int refuse_input(char *err, size_t errcap, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(err, errcap, fmt, ap);
  va_end(ap);
  return -EINVAL;
}

int map_file(const char *path, struct mapping *m) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC), err = 0;
  *m = (struct mapping){0};
  if (fd < 0 || fstat(fd, &st)) {
    err = db_fail(-errno, "%s: %s", path, strerror(errno));
  } else if (!S_ISREG(st.st_mode)) {
    err = db_fail(-EINVAL, "%s: not a regular file", path);
  } else if (st.st_size) {
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
      err = db_fail(-errno, "%s: %s", path, strerror(errno));
    else
      *m = (struct mapping){p, (size_t)st.st_size};
  }
  if (fd >= 0) close(fd);
  return err;
}
void unmap_file(struct mapping *m) {
  if (m->bytes) munmap(m->bytes, m->size);
}

/* ---- loading ---- */

bool sink_wants(const struct sink *to, const char *name, db_device **dev) {
  *dev = NULL;
  return to->wants(to->ctx, name, dev);
}

int sink_make(const struct sink *to, const char *name, db_device *dev, const void *data, db_dtype t, db_list shape,
              bool reversed) {
  int64_t axes[MAX_RANK], dim[MAX_RANK];
  DB_SCOPED;
  db_tensor *x;
  if (reversed && shape.n <= MAX_RANK) { /* a column-major array is a row-major one with the axes reversed */
    for (unsigned i = 0; i < shape.n; i++) dim[i] = shape.v[shape.n - 1 - i], axes[i] = shape.n - 1 - i;
    x = db_from_at(NULL, 0, data, t, dev, (db_list){shape.n, dim});
    x = db_permute_at(NULL, 0, x, (db_list){shape.n, axes});
  } else {
    x = db_from_at(NULL, 0, data, t, dev, shape);
  }
  return db_poison(x) ? db_fail(-EINVAL, "%s: %s", name, db_poison(x)) : to->take(to->ctx, name, x);
}

int sink_add(const struct sink *to, const char *name, const void *data, db_dtype t, db_list shape, bool reversed) {
  db_device *dev;
  return sink_wants(to, name, &dev) ? sink_make(to, name, dev, data, t, shape, reversed) : 0;
}

static int npy_load(const char *path, const struct sink *to) {
  struct mapping m;
  char why[256];
  struct npy a;
  int err = map_file(path, &m);
  if (!err && (err = npy_parse(m.bytes, m.size, &a, why, sizeof why))) db_fail(err, "%s: %s", path, why);
  if (!err) err = sink_add(to, "", a.data, a.dtype, (db_list){a.rank, a.dim}, a.fortran);
  unmap_file(&m);
  return err;
}

int safetensors_load(const char *path, const struct sink *to) {
  struct mapping m;
  struct safetensors s = {0};
  char why[512];
  int err = map_file(path, &m);
  if (!err && (err = safetensors_parse(m.bytes, m.size, &s, why, sizeof why))) db_fail(err, "%s: %s", path, why);
  for (size_t i = 0; i < s.n && !err; i++) {
    const struct safetensor *t = &s.tensor[i];
    err = sink_add(to, t->name, t->data, t->dtype, (db_list){t->rank, t->dim}, false);
  }
  safetensors_free(&s);
  unmap_file(&m);
  return err;
}

/* ---- saving: tensors are copied to the host one at a time ---- */

struct npy describe_tensor(const db_tensor *t) {
  struct npy a = {.dtype = db_dtype_of(t), .rank = db_rank(t), .count = db_numel(t)};
  for (unsigned i = 0; i < a.rank; i++) a.dim[i] = db_dim(t, (int)i);
  return a;
}

static size_t bytes_of(const struct npy *a) { return (size_t)a->count * db_dtype_size(a->dtype); }

int read_elements(const struct db_named *t, struct npy *a) {
  *a = describe_tensor(t->tensor);
  a->data = malloc(bytes_of(a) + 1);
  if (!a->data) return db_fail(-ENOMEM, "save: out of memory for %s", t->name ? t->name : "");
  int err = db_read(t->tensor, a->data, bytes_of(a));
  if (err) free(a->data), a->data = NULL;
  return err;
}

static int npy_save(const char *path, const struct db_named *t, unsigned n) {
  char why[512];
  struct npy a;
  if (n != 1) return db_fail(-EINVAL, "%s: a .npy file holds one tensor, not %u", path, n);
  int err = read_elements(t, &a);
  if (err) return err;
  if ((err = npy_write(path, &a, why, sizeof why))) db_fail(err, "%s", why);
  free(a.data);
  return err;
}

int safetensors_write(const char *path, const struct safetensors *s, const void *header, size_t length) {
  struct replacement r;
  int err = replace_begin(&r, path);
  if (!err) {
    bool good = fwrite(header, 1, length, r.file) == length;
    for (size_t i = 0; i < s->n && good; i++)
      good = fwrite(s->tensor[i].data, 1, s->tensor[i].bytes, r.file) == s->tensor[i].bytes;
    err = replace_end(&r, good);
  }
  return err ? db_fail(err, "%s: %s", path, strerror(-err)) : 0;
}

/* Reads and writes the tensors one after the other. */
static int write_tensors(const char *path, const struct db_named *t, unsigned n, const void *header, size_t length) {
  struct replacement r;
  int err = replace_begin(&r, path), failed = 0;
  if (err) return db_fail(err, "%s: %s", path, strerror(-err));
  bool good = fwrite(header, 1, length, r.file) == length;
  for (unsigned i = 0; i < n && good; i++) {
    struct npy a;
    if ((failed = read_elements(&t[i], &a))) break;
    good = fwrite(a.data, 1, bytes_of(&a), r.file) == bytes_of(&a);
    int why = errno;
    free(a.data);
    errno = why;
  }
  err = replace_end(&r, good && !failed);
  if (failed) return failed;
  return err ? db_fail(err, "%s: %s", path, strerror(-err)) : 0;
}

static int by_name(const void *a, const void *b) {
  return strcmp((*(const struct db_named *const *)a)->name, (*(const struct db_named *const *)b)->name);
}

static int check_names(const char *path, const struct db_named *t, unsigned n) {
  const struct db_named **sorted = calloc(n + 1, sizeof(struct db_named *));
  int err = sorted ? 0 : db_fail(-ENOMEM, "%s: out of memory", path);
  for (unsigned i = 0; i < n && !err; i++) sorted[i] = &t[i];
  if (!err) qsort(sorted, n, sizeof(struct db_named *), by_name);
  for (unsigned i = 1; i < n && !err; i++)
    if (!strcmp(sorted[i - 1]->name, sorted[i]->name))
      err = db_fail(-EINVAL, "%s: two tensors have the name '%s'", path, sorted[i]->name);
  free(sorted);
  return err;
}

int safetensors_save(const char *path, const struct db_named *t, unsigned n) {
  struct safetensors s = {calloc(n + 1, sizeof *s.tensor), n};
  size_t head = 0;
  char *header = NULL;
  int err = check_names(path, t, n);
  for (unsigned i = 0; s.tensor && i < n; i++) {
    struct npy a = describe_tensor(t[i].tensor);
    s.tensor[i] = (struct safetensor){(char *)t[i].name, a.dtype, a.rank, {0}, NULL, bytes_of(&a)};
    memcpy(s.tensor[i].dim, a.dim, sizeof a.dim);
  }
  if (!err && (!s.tensor || !(header = safetensors_header(&s, &head))))
    err = db_fail(-EINVAL, "%s: out of memory, or a name is not valid UTF-8", path);
  if (!err) err = write_tensors(path, t, n, header, head);
  free(header);
  free(s.tensor);
  return err;
}

/* ---- formats by extension ---- */

static const struct format formats[] = {{".safetensors.index.json", index_load, index_save},
                                        {".index.json", index_load, NULL},
                                        {".safetensors", safetensors_load, safetensors_save},
                                        {".npz", npz_load, npz_save},
                                        {".npy", npy_load, npy_save},
                                        {".pt", torch_load, NULL},
                                        {".pth", torch_load, NULL},
                                        {".bin", torch_load, NULL}};

static const struct format *format_of(const char *path, bool save) {
  size_t n = path ? strlen(path) : 0;
  for (unsigned i = 0; i < sizeof formats / sizeof *formats; i++) {
    size_t end = strlen(formats[i].end);
    if (n > end && !strcmp(path + n - end, formats[i].end) && (formats[i].save || !save)) return &formats[i];
  }
  db_fail(-EINVAL, "%s: not supported: the name must end in .safetensors, .safetensors.index.json, .npz or .npy%s",
          path ? path : "(no name)", save ? "" : ", or PyTorch's .pt, .pth or .bin");
  return NULL;
}

int files_load(const char *path, const struct sink *to) {
  const struct format *f = format_of(path, false);
  return f ? f->load(path, to) : -EINVAL;
}

struct list {
  struct db_named *named;
  unsigned n;
  db_device *dev;
};

void db_named_free(struct db_named *named, unsigned n) {
  for (unsigned i = 0; named && i < n; i++) {
    free((char *)named[i].name);
    db_release(named[i].tensor);
  }
  free(named);
}

static bool list_wants(void *ctx, const char *name, db_device **dev) {
  *dev = ((struct list *)ctx)->dev;
  return true;
}

static int list_take(void *ctx, const char *name, db_tensor *t) {
  struct list *l = ctx;
  struct db_named *more = realloc(l->named, (l->n + 1) * sizeof *more);
  char *copy = strdup(name);
  if (more) l->named = more;
  if (!more || !copy) {
    free(copy);
    return db_fail(-ENOMEM, "out of memory");
  }
  l->named[l->n++] = (struct db_named){copy, db_retain(t)};
  return 0;
}

int db_load(const char *path, db_device *dev, struct db_named **named, unsigned *n) {
  struct list l = {.dev = dev};
  if (!named || !n) return db_fail(-EINVAL, "load: the pointer for the %s is NULL", named ? "count" : "list");
  *named = NULL, *n = 0;
  int err = files_load(path, &(struct sink){&l, list_wants, list_take});
  if (err) {
    db_named_free(l.named, l.n);
    return err;
  }
  *named = l.named, *n = l.n;
  return 0;
}

/* The list with names instead of NULL; NULL after db_fail. */
static struct db_named *check_tensors(const char *path, const struct db_named *named, unsigned n) {
  struct db_named *all = calloc(n + 1, sizeof *all);
  if (!all) db_fail(-ENOMEM, "%s: out of memory", path);
  for (unsigned i = 0; all && i < n; i++) {
    all[i] = (struct db_named){named[i].name ? named[i].name : "", named[i].tensor};
    if (!db_poison(all[i].tensor)) continue;
    db_fail(-EINVAL, "save: %s: %s", all[i].name, db_poison(all[i].tensor));
    free(all);
    return NULL;
  }
  return all;
}

int db_save(const char *path, const struct db_named *named, unsigned n) {
  const struct format *f = format_of(path, true);
  if (!f) return -EINVAL;
  if (n && !named) return db_fail(-EINVAL, "%s: the list of %u tensors is NULL", path, n);
  struct db_named *all = check_tensors(path, named, n);
  int err = all ? f->save(path, all, n) : -EINVAL;
  free(all);
  return err;
}
