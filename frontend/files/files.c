/* Loads and saves named tensors, in the format given by the file's extension. Files are mapped, and copied to the
 * device from there. */
#include "files.h"
#include "../tensor/call.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zip.h>

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

/* ---- lists of named tensors ---- */

struct list {
  struct db_named *named;
  unsigned n;
};

void db_named_free(struct db_named *named, unsigned n) {
  for (unsigned i = 0; named && i < n; i++) {
    free((char *)named[i].name);
    db_release(named[i].tensor);
  }
  free(named);
}

/* Adds a tensor with these elements to the list. */
static int add_tensor(struct list *l, const char *name, size_t length, const void *data, db_dtype t, db_device *dev,
                      db_list shape, bool reversed) {
  struct db_named *more = realloc(l->named, (l->n + 1) * sizeof *more);
  char *copy = strndup(name, length);
  if (more) l->named = more;
  if (!more || !copy) {
    free(copy);
    return db_fail(-ENOMEM, "out of memory");
  }
  int64_t axes[MAX_RANK], dim[MAX_RANK];
  int err = 0;
  db_scope_begin();
  db_tensor *x;
  if (reversed && shape.n <= MAX_RANK) { /* a column-major array is a row-major one with the axes reversed */
    for (unsigned i = 0; i < shape.n; i++) dim[i] = shape.v[shape.n - 1 - i], axes[i] = shape.n - 1 - i;
    x = db_from_at(NULL, 0, data, t, dev, (db_list){shape.n, dim});
    x = db_permute_at(NULL, 0, x, (db_list){shape.n, axes});
  } else {
    x = db_from_at(NULL, 0, data, t, dev, shape);
  }
  if (db_poison(x))
    err = db_fail(-EINVAL, "%s: %s", copy, db_poison(x));
  else
    l->named[l->n++] = (struct db_named){copy, db_retain(x)};
  db_scope_end();
  if (err) free(copy);
  return err;
}

/* ---- loading ---- */

static int load_npy_bytes(const void *bytes, size_t size, const char *name, size_t length, db_device *dev,
                          struct list *l) {
  struct npy a;
  char why[256];
  int err = npy_parse(bytes, size, &a, why, sizeof why);
  if (err) return db_fail(err, "%.*s: %s", (int)length, name, why);
  return add_tensor(l, name, length, a.data, a.dtype, dev, (db_list){a.rank, a.dim}, a.fortran);
}

static int load_npy(const char *path, db_device *dev, struct list *l) {
  struct mapping m;
  char why[256];
  struct npy a;
  int err = map_file(path, &m);
  if (!err && (err = npy_parse(m.bytes, m.size, &a, why, sizeof why))) db_fail(err, "%s: %s", path, why);
  if (!err) err = add_tensor(l, "", 0, a.data, a.dtype, dev, (db_list){a.rank, a.dim}, a.fortran);
  unmap_file(&m);
  return err;
}

static int load_safetensors(const char *path, db_device *dev, struct list *l) {
  struct mapping m;
  struct safetensors s = {0};
  char why[512];
  int err = map_file(path, &m);
  if (!err && (err = safetensors_parse(m.bytes, m.size, &s, why, sizeof why))) db_fail(err, "%s: %s", path, why);
  for (size_t i = 0; i < s.n && !err; i++) {
    const struct safetensor *t = &s.tensor[i];
    err = add_tensor(l, t->name, strlen(t->name), t->data, t->dtype, dev, (db_list){t->rank, t->dim}, false);
  }
  safetensors_free(&s);
  unmap_file(&m);
  return err;
}

static int zip_failed(const char *path, int code) {
  zip_error_t e;
  zip_error_init_with_code(&e, code);
  int err = db_fail(-EINVAL, "%s: %s", path, zip_error_strerror(&e));
  zip_error_fini(&e);
  return err;
}

static int load_entry(const char *path, zip_t *z, zip_uint64_t i, db_device *dev, struct list *l) {
  zip_stat_t st;
  if (zip_stat_index(z, i, 0, &st) || !(st.valid & ZIP_STAT_SIZE) || !(st.valid & ZIP_STAT_NAME))
    return db_fail(-EINVAL, "%s: entry %llu: %s", path, (unsigned long long)i, zip_strerror(z));
  size_t length = strlen(st.name);
  if (length > 4 && !strcmp(st.name + length - 4, ".npy")) length -= 4;
  void *bytes = malloc(st.size + 1);
  char end; /* reading past the last byte makes libzip verify the checksum */
  zip_file_t *f = bytes ? zip_fopen_index(z, i, 0) : NULL;
  int err = 0;
  if (!bytes)
    err = db_fail(-ENOMEM, "%s: out of memory for the %llu bytes of %s", path, (unsigned long long)st.size, st.name);
  else if (!f || zip_fread(f, bytes, st.size) != (zip_int64_t)st.size || zip_fread(f, &end, 1) != 0)
    err = db_fail(-EINVAL, "%s: %s cannot be read: %s", path, st.name,
                  f ? "its size or checksum is wrong" : zip_strerror(z));
  else
    err = load_npy_bytes(bytes, st.size, st.name, length, dev, l);
  if (f) zip_fclose(f);
  free(bytes);
  return err;
}

static int load_npz(const char *path, db_device *dev, struct list *l) {
  struct stat st;
  int code = 0, err = 0;
  if (!stat(path, &st) && !st.st_size)
    return zip_failed(path, ZIP_ER_NOZIP); /* libzip would accept it as an empty archive */
  zip_t *z = zip_open(path, ZIP_RDONLY | ZIP_CHECKCONS, &code);
  if (!z) return zip_failed(path, code);
  for (zip_int64_t i = 0; i < zip_get_num_entries(z, 0) && !err; i++)
    err = load_entry(path, z, (zip_uint64_t)i, dev, l);
  zip_discard(z);
  return err;
}

/* ---- saving: every tensor is copied to the host ---- */

struct image {
  struct npy a;
  const char *name;
};

/* Reads the tensors' elements. out[0..*n) has to be freed after an error, too. */
static int read_all(const struct db_named *t, unsigned count, struct image *out, unsigned *n) {
  for (*n = 0; *n < count;) {
    const db_tensor *x = t[*n].tensor;
    struct image *i = &out[*n];
    i->name = t[*n].name ? t[*n].name : "";
    if (db_poison(x)) return db_fail(-EINVAL, "save: %s: %s", i->name, db_poison(x));
    i->a = (struct npy){.dtype = db_dtype_of(x), .rank = db_rank(x), .count = db_numel(x)};
    for (unsigned k = 0; k < i->a.rank; k++) i->a.dim[k] = db_dim(x, (int)k);
    size_t bytes = (size_t)i->a.count * db_dtype_size(i->a.dtype);
    i->a.data = malloc(bytes + 1);
    if (!i->a.data) return db_fail(-ENOMEM, "save: out of memory for %s", i->name);
    ++*n;
    int err = db_read(t[*n - 1].tensor, i->a.data, bytes);
    if (err) return err;
  }
  return 0;
}

static int save_npy(const char *path, const struct image *t, unsigned n) {
  char why[512];
  if (n != 1) return db_fail(-EINVAL, "%s: a .npy file holds one tensor, not %u", path, n);
  int err = npy_write(path, &t->a, why, sizeof why);
  return err ? db_fail(err, "%s", why) : 0;
}

static int save_npz(const char *path, const struct image *t, unsigned n) {
  int code = 0, err = 0;
  zip_t *z = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, &code);
  if (!z) return zip_failed(path, code);
  for (unsigned i = 0; i < n && !err; i++) {
    size_t bytes = (size_t)t[i].a.count * db_dtype_size(t[i].a.dtype), head;
    char *all = malloc(NPY_HEADER + bytes), *name = NULL;
    zip_source_t *source = NULL;
    zip_int64_t at = -1;
    if (all) {
      head = npy_header(&t[i].a, all);
      memcpy(all + head, t[i].a.data, bytes);
      source = zip_source_buffer(z, all, head + bytes, 1); /* the source owns and frees it */
      if (!source) free(all);
    }
    if (source && (name = malloc(strlen(t[i].name) + 5))) {
      strcat(strcpy(name, t[i].name), ".npy");
      at = zip_file_add(z, name, source, ZIP_FL_ENC_UTF_8);
    }
    if (source && at < 0) zip_source_free(source);
    if (at < 0)
      err = db_fail(-EINVAL, "%s: %s: %s", path, t[i].name, source ? zip_strerror(z) : "out of memory");
    else
      zip_set_file_compression(z, (zip_uint64_t)at, ZIP_CM_STORE, 0);
    free(name);
  }
  if (!err && zip_close(z)) err = db_fail(-EIO, "%s: %s", path, zip_strerror(z));
  if (err) zip_discard(z);
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

static int save_safetensors(const char *path, const struct image *t, unsigned n) {
  struct safetensors s = {calloc(n + 1, sizeof *s.tensor), n};
  size_t head = 0;
  char *header = NULL;
  int err = 0;
  for (unsigned i = 0; s.tensor && i < n; i++) {
    struct safetensor *x = &s.tensor[i];
    *x = (struct safetensor){(char *)t[i].name, t[i].a.dtype, t[i].a.rank, {0}, t[i].a.data, 0};
    memcpy(x->dim, t[i].a.dim, sizeof x->dim);
    x->bytes = (size_t)t[i].a.count * db_dtype_size(t[i].a.dtype);
    for (unsigned k = 0; k < i && !err; k++)
      if (!strcmp(t[k].name, x->name)) err = db_fail(-EINVAL, "%s: two tensors have the name '%s'", path, x->name);
  }
  if (!err && (!s.tensor || !(header = safetensors_header(&s, &head))))
    err = db_fail(-EINVAL, "%s: out of memory, or a name is not valid UTF-8", path);
  if (!err) err = safetensors_write(path, &s, header, head);
  free(header);
  free(s.tensor);
  return err;
}

/* ---- formats by extension ---- */

static const struct format {
  const char *end;
  int (*load)(const char *path, db_device *dev, struct list *l);
  int (*save)(const char *path, const struct image *t, unsigned n);
} formats[] = {
    {".safetensors", load_safetensors, save_safetensors}, {".npz", load_npz, save_npz}, {".npy", load_npy, save_npy}};

static const struct format *format_of(const char *path) {
  size_t n = path ? strlen(path) : 0;
  for (unsigned i = 0; i < sizeof formats / sizeof *formats; i++) {
    size_t end = strlen(formats[i].end);
    if (n > end && !strcmp(path + n - end, formats[i].end)) return &formats[i];
  }
  db_fail(-EINVAL, "%s: not supported: the name must end in .safetensors, .npz or .npy", path ? path : "(no name)");
  return NULL;
}

int db_load(const char *path, db_device *dev, struct db_named **named, unsigned *n) {
  const struct format *f = format_of(path);
  struct list l = {0};
  if (!named || !n) return db_fail(-EINVAL, "load: the pointer for the %s is NULL", named ? "count" : "list");
  *named = NULL, *n = 0;
  if (!f) return -EINVAL;
  int err = f->load(path, dev, &l);
  if (err) {
    db_named_free(l.named, l.n);
    return err;
  }
  *named = l.named, *n = l.n;
  return 0;
}

int db_save(const char *path, const struct db_named *named, unsigned n) {
  const struct format *f = format_of(path);
  if (!f) return -EINVAL;
  if (n && !named) return db_fail(-EINVAL, "%s: the list of %u tensors is NULL", path, n);
  struct image *images = calloc(n + 1, sizeof *images);
  unsigned have = 0;
  if (!images) return db_fail(-ENOMEM, "%s: out of memory", path);
  int err = read_all(named, n, images, &have);
  if (!err) err = f->save(path, images, n);
  for (unsigned i = 0; i < have; i++) free(images[i].a.data);
  free(images);
  return err;
}
