/* Files that PyTorch's torch.save writes: a zip archive with a pickle, data.pkl, and a file per storage, data/KEY. */
#include "formats.h"
#include "pickle.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

struct archive {
  const char *path;
  zip_t *zip;
  char *folder; /* "archive/" */
  char *key;    /* of the storage in memory, or NULL */
  void *bytes;
  size_t size;
};

/* Reads an entry; the caller frees *bytes. Entries are stored, not compressed, so none is larger than the file. */
static int read_entry(const struct archive *a, const char *name, void **bytes, size_t *size) {
  zip_stat_t st;
  char path[1200], end; /* reading past the last byte makes libzip verify the checksum */
  if (snprintf(path, sizeof path, "%s%s", a->folder, name) >= (int)sizeof path)
    return db_fail(-EINVAL, "%s: the name of an entry is too long", a->path);
  if (zip_stat(a->zip, path, 0, &st) || !(st.valid & ZIP_STAT_SIZE) || !(st.valid & ZIP_STAT_COMP_METHOD))
    return db_fail(-EINVAL, "%s: there is no %s in the archive", a->path, path);
  if (st.comp_method != ZIP_CM_STORE) return db_fail(-EINVAL, "%s: not supported: %s is compressed", a->path, path);
  zip_file_t *f = zip_fopen_index(a->zip, st.index, 0);
  *bytes = f ? malloc(st.size + 1) : NULL;
  int err = 0;
  if (!f)
    err = db_fail(-EINVAL, "%s: %s: %s", a->path, path, zip_strerror(a->zip));
  else if (!*bytes)
    err = db_fail(-ENOMEM, "%s: out of memory for the %llu bytes of %s", a->path, (unsigned long long)st.size, path);
  else if (zip_fread(f, *bytes, st.size) != (zip_int64_t)st.size || zip_fread(f, &end, 1) != 0)
    err = db_fail(-EINVAL, "%s: %s cannot be read: its size or checksum is wrong", a->path, path);
  if (f) zip_fclose(f);
  if (err) free(*bytes), *bytes = NULL;
  *size = (size_t)st.size;
  return err;
}

/* Finds the folder of data.pkl. */
static int find_folder(struct archive *a) {
  static const char last[] = "data.pkl";
  for (zip_int64_t i = 0; i < zip_get_num_entries(a->zip, 0) && !a->folder; i++) {
    const char *name = zip_get_name(a->zip, (zip_uint64_t)i, 0), *slash = name ? strchr(name, '/') : NULL;
    if (slash && !strcmp(slash + 1, last)) a->folder = strndup(name, (size_t)(slash + 1 - name));
  }
  return a->folder ? 0 : db_fail(-EINVAL, "%s: not a file of PyTorch: there is no data.pkl in the archive", a->path);
}

/* Files of big-endian machines say so. Older files do not, and are little-endian. */
static int check_order(const struct archive *a) {
  char path[1200];
  void *bytes;
  size_t size;
  snprintf(path, sizeof path, "%sbyteorder", a->folder);
  if (zip_name_locate(a->zip, path, 0) < 0) return 0;
  int err = read_entry(a, "byteorder", &bytes, &size);
  if (err) return err;
  if (size != 6 || memcmp(bytes, "little", 6) != 0) err = db_fail(-EINVAL, "%s: not supported: byte order", a->path);
  free(bytes);
  return err;
}

/* Makes the storage of t the one in memory. */
static int load_storage(struct archive *a, const struct pickled_tensor *t) {
  char name[1100];
  if (!a->key || strcmp(a->key, t->key) != 0) {
    free(a->key), free(a->bytes);
    a->key = NULL, a->bytes = NULL;
    if (snprintf(name, sizeof name, "data/%s", t->key) >= (int)sizeof name)
      return db_fail(-EINVAL, "%s: the name of a storage is too long", a->path);
    int err = read_entry(a, name, &a->bytes, &a->size);
    if (err) return err;
    if (!(a->key = strdup(t->key))) return db_fail(-ENOMEM, "%s: out of memory", a->path);
  }
  size_t need;
  if (!__builtin_mul_overflow((size_t)t->stored, db_dtype_size(t->dtype), &need) && need <= a->size) return 0;
  return db_fail(-EINVAL, "%s: %s: its storage has %zu bytes, not %lld elements", a->path, t->name, a->size,
                 (long long)t->stored);
}

static bool is_row_major(const struct pickled_tensor *t) {
  int64_t step = 1;
  for (unsigned i = t->rank; i-- > 0; step *= t->dim[i])
    if (t->dim[i] != 1 && t->stride[i] != step) return false;
  return true;
}

/* Copies the elements of t to row-major order. */
static void copy_elements(const struct pickled_tensor *t, const char *from, char *to) {
  size_t size = db_dtype_size(t->dtype);
  int64_t at[32] = {0}, place = t->first;
  for (int64_t n = 0; n < t->count; n++) {
    memcpy(to + (size_t)n * size, from + (size_t)place * size, size);
    for (unsigned i = t->rank; i-- > 0;) {
      place += t->stride[i];
      if (++at[i] < t->dim[i]) break;
      place -= at[i] * t->stride[i], at[i] = 0;
    }
  }
}

static int load_tensor(struct archive *a, const struct pickled_tensor *t, const struct sink *to) {
  db_device *dev;
  size_t size = db_dtype_size(t->dtype);
  if (!sink_wants(to, t->name, &dev)) return 0;
  int err = t->count ? load_storage(a, t) : 0;
  if (err) return err;
  db_list shape = {t->rank, t->dim};
  if (!t->count) return sink_make(to, t->name, dev, "", t->dtype, shape, false);
  if (is_row_major(t))
    return sink_make(to, t->name, dev, (char *)a->bytes + (size_t)t->first * size, t->dtype, shape, false);
  char *copy = malloc((size_t)t->count * size);
  if (!copy) return db_fail(-ENOMEM, "%s: out of memory for %s", a->path, t->name);
  copy_elements(t, a->bytes, copy);
  err = sink_make(to, t->name, dev, copy, t->dtype, shape, false);
  free(copy);
  return err;
}

int torch_load(const char *path, const struct sink *to) {
  struct archive a = {.path = path};
  struct pickle p = {0};
  void *bytes = NULL;
  size_t size;
  int code = 0;
  char why[512];
  a.zip = zip_open(path, ZIP_RDONLY | ZIP_CHECKCONS, &code);
  if (!a.zip && code == ZIP_ER_NOZIP)
    return db_fail(-EINVAL, "%s: not a zip archive; PyTorch's format before version 1.6 is not supported", path);
  if (!a.zip) return zip_failed(path, code);
  int err = find_folder(&a);
  if (!err) err = check_order(&a);
  if (!err) err = read_entry(&a, "data.pkl", &bytes, &size);
  if (!err && (err = pickle_parse(bytes, size, &p, why, sizeof why))) db_fail(err, "%s: %s", path, why);
  for (size_t i = 0; i < p.n && !err; i++) err = load_tensor(&a, &p.tensor[i], to);
  pickle_free(&p);
  zip_discard(a.zip);
  free(bytes);
  free(a.bytes);
  free(a.key);
  free(a.folder);
  return err;
}
