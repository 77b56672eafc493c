/* The .npz format: a zip archive of .npy files. */
#include "formats.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zip.h>

int zip_failed(const char *path, int code) {
  zip_error_t e;
  zip_error_init_with_code(&e, code);
  int err = db_fail(-EINVAL, "%s: %s", path, zip_error_strerror(&e));
  zip_error_fini(&e);
  return err;
}

static int load_array(const void *bytes, size_t size, const char *name, size_t length, const struct sink *to) {
  struct npy a;
  char why[256], *copy = strndup(name, length);
  int err = copy ? npy_parse(bytes, size, &a, why, sizeof why) : db_fail(-ENOMEM, "%s: out of memory", name);
  if (copy && err) db_fail(err, "%s: %s", copy, why);
  if (!err) err = sink_add(to, copy, a.data, a.dtype, (db_list){a.rank, a.dim}, a.fortran);
  free(copy);
  return err;
}

static int load_entry(const char *path, zip_t *z, zip_uint64_t i, const struct sink *to) {
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
    err = load_array(bytes, st.size, st.name, length, to);
  if (f) zip_fclose(f);
  free(bytes);
  return err;
}

int npz_load(const char *path, const struct sink *to) {
  struct stat st;
  int code = 0, err = 0;
  if (!stat(path, &st) && !st.st_size)
    return zip_failed(path, ZIP_ER_NOZIP); /* libzip would accept it as an empty archive */
  zip_t *z = zip_open(path, ZIP_RDONLY | ZIP_CHECKCONS, &code);
  if (!z) return zip_failed(path, code);
  for (zip_int64_t i = 0; i < zip_get_num_entries(z, 0) && !err; i++) err = load_entry(path, z, (zip_uint64_t)i, to);
  zip_discard(z);
  return err;
}

/* Adds a tensor to the archive, which is written when it is closed. */
static int add_array(const char *path, zip_t *z, const struct db_named *t) {
  struct npy a;
  int err = read_elements(t, &a);
  if (err) return err;
  size_t bytes = (size_t)a.count * db_dtype_size(a.dtype), head;
  char *all = malloc(NPY_HEADER + bytes), *name = malloc(strlen(t->name) + 5);
  zip_source_t *source = NULL;
  zip_int64_t at = -1;
  if (all && name) {
    strcat(strcpy(name, t->name), ".npy");
    head = npy_header(&a, all);
    memcpy(all + head, a.data, bytes);
    source = zip_source_buffer(z, all, head + bytes, 1); /* the source owns and frees it */
  }
  free(a.data);
  if (!source) free(all);
  if (source && (at = zip_file_add(z, name, source, ZIP_FL_ENC_UTF_8)) < 0) zip_source_free(source);
  free(name);
  if (at < 0) return db_fail(-EINVAL, "%s: %s: %s", path, t->name, source ? zip_strerror(z) : "out of memory");
  zip_set_file_compression(z, (zip_uint64_t)at, ZIP_CM_STORE, 0);
  return 0;
}

int npz_save(const char *path, const struct db_named *t, unsigned n) {
  int code = 0, err = 0;
  zip_t *z = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, &code);
  if (!z) return zip_failed(path, code);
  for (unsigned i = 0; i < n && !err; i++) err = add_array(path, z, &t[i]);
  if (!err && zip_close(z)) err = db_fail(-EIO, "%s: %s", path, zip_strerror(z));
  if (err) zip_discard(z);
  return err;
}
