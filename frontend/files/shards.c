/* Several .safetensors files and an index, NAME.safetensors.index.json: {"metadata": {"total_size": BYTES},
 * "weight_map": {TENSOR: FILE}}. The files are beside the index.
 *
 * Saving writes the shards under names that do not exist yet and then replaces the index, so an error or a crash leaves
 * the old index with its shards. After that the shards that only the old index names are removed. */
#define _GNU_SOURCE
#include "formats.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char index_end[] = ".safetensors.index.json";
enum { MOST_SHARDS = 99999 };
static const size_t usual_size = 5000000000; /* that of other writers */

/* The path of a file beside the index; the caller frees it. */
static char *beside(const char *index, const char *file) {
  const char *slash = strrchr(index, '/');
  char *path;
  return asprintf(&path, "%.*s%s", slash ? (int)(slash + 1 - index) : 0, index, file) < 0 ? NULL : path;
}

/* Reads the index. Returns the whole of it, with the weight map in *map, or NULL after db_fail. */
static json_t *read_index(const char *path, json_t **map) {
  struct mapping m;
  json_error_t why;
  if (map_file(path, &m)) return NULL;
  json_t *json = json_loadb(m.bytes, m.size, JSON_REJECT_DUPLICATES, &why);
  unmap_file(&m);
  if (!json) return db_fail_null(-EINVAL, "%s: not JSON: %s at byte %d", path, why.text, why.position);
  const char *name;
  json_t *v;
  *map = json_object_get(json, "weight_map");
  bool good = json_is_object(*map);
  if (!good) db_fail(-EINVAL, "%s: there is no object weight_map", path);
  if (good) json_object_foreach(*map, name, v) {
      const char *file = json_string_value(v);
      if (file && *file && !strchr(file, '/') && !strstr(file, ".index.json")) continue;
      db_fail(-EINVAL, "%s: %s: the value is not the name of a file beside the index", path, name);
      good = false;
      break;
    }
  if (good) return json;
  json_decref(json);
  return NULL;
}

/* ---- loading ---- */

struct part { /* the tensors that the index places in one file */
  const struct sink *to;
  const json_t *map;
  const char *file;
  size_t found;
};
static bool part_wants(void *ctx, const char *name, db_device **dev) {
  struct part *p = ctx;
  const char *file = json_string_value(json_object_get(p->map, name));
  if (!file || strcmp(file, p->file) != 0) return false;
  p->found++;
  return sink_wants(p->to, name, dev);
}
static int part_take(void *ctx, const char *name, db_tensor *t) {
  const struct part *p = ctx;
  return p->to->take(p->to->ctx, name, t);
}

/* Maps each file to the number of tensors that it should have. */
static json_t *count_files(json_t *map) {
  json_t *files = json_object(), *v;
  const char *name;
  json_object_foreach(map, name, v) {
    const char *file = json_string_value(v);
    json_int_t n = json_integer_value(json_object_get(files, file)) + 1;
    if (json_object_set_new(files, file, json_integer(n))) break;
  }
  return files;
}

int index_load(const char *path, const struct sink *to) {
  json_t *map, *json = read_index(path, &map), *files, *count;
  const char *file;
  int err = 0;
  if (!json) return -EINVAL;
  files = count_files(map);
  json_object_foreach(files, file, count) {
    struct part p = {to, map, file, 0};
    char *at = beside(path, file);
    err = at ? files_load(at, &(struct sink){&p, part_wants, part_take}) : db_fail(-ENOMEM, "%s: out of memory", path);
    if (!err && p.found != (size_t)json_integer_value(count))
      err = db_fail(-ENOENT, "%s: %s has %zu of the %lld tensors that the index places in it", path, file, p.found,
                    (long long)json_integer_value(count));
    free(at);
    if (err) break;
  }
  json_decref(files);
  json_decref(json);
  return err;
}

/* ---- saving ---- */

struct shards {
  const char *path; /* of the index */
  int base;         /* length of the part of its name before the extension */
  const struct db_named *t;
  unsigned n, count;
  unsigned *first; /* count + 1 numbers: shard i has the tensors first[i] to first[i + 1] */
  unsigned version;
};

/* The path of shard i; the caller frees it. Versions after the first have a number in their names. */
static char *shard_path(const struct shards *s, unsigned i) {
  char *path, version[16] = "";
  if (s->version) snprintf(version, sizeof version, ".%u", s->version);
  int n = asprintf(&path, "%.*s-%05u-of-%05u%s.safetensors", s->base, s->path, i + 1, s->count, version);
  return n < 0 ? NULL : path;
}

static int64_t bytes_of(const struct db_named *t) {
  return db_numel(t->tensor) * (int64_t)db_dtype_size(db_dtype_of(t->tensor));
}

static void split(struct shards *s, size_t most) {
  int64_t bytes = 0;
  s->count = 0;
  for (unsigned i = 0; i < s->n; i++) {
    int64_t more = bytes_of(&s->t[i]);
    if (!i || (bytes && (uint64_t)bytes + (uint64_t)more > most)) s->first[s->count++] = i, bytes = 0;
    bytes += more;
  }
  if (!s->n) s->first[s->count++] = 0;
  s->first[s->count] = s->n;
}

/* Picks a version of which no shard exists. */
static int pick_version(struct shards *s) {
  for (s->version = 0; s->version < MOST_SHARDS; s->version++) {
    bool exists = false;
    for (unsigned i = 0; i < s->count && !exists; i++) {
      char *path = shard_path(s, i);
      if (!path) return db_fail(-ENOMEM, "%s: out of memory", s->path);
      exists = !access(path, F_OK);
      free(path);
    }
    if (!exists) return 0;
  }
  return db_fail(-EEXIST, "%s: there are too many versions of its shards", s->path);
}

/* Writes the shards and adds their tensors to the map. */
static int write_shards(const struct shards *s, json_t *map, int64_t *total) {
  int err = 0;
  for (unsigned i = 0; i < s->count && !err; i++) {
    char *path = shard_path(s, i);
    if (!path) return db_fail(-ENOMEM, "%s: out of memory", s->path);
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    err = safetensors_save(path, s->t + s->first[i], s->first[i + 1] - s->first[i]);
    for (unsigned k = s->first[i]; k < s->first[i + 1] && !err; k++) {
      *total += bytes_of(&s->t[k]);
      if (json_object_get(map, s->t[k].name))
        err = db_fail(-EINVAL, "%s: two tensors have the name '%s'", s->path, s->t[k].name);
      else if (json_object_set_new(map, s->t[k].name, json_string(file)))
        err = db_fail(-EINVAL, "%s: out of memory, or a name is not valid UTF-8", s->path);
    }
    free(path);
  }
  return err;
}

static int write_index(const struct shards *s, json_t *map, int64_t total) {
  struct replacement r;
  json_t *json = json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
  if (!json) return db_fail(-ENOMEM, "%s: out of memory", s->path);
  int err = replace_begin(&r, s->path);
  if (!err) err = replace_end(&r, !json_dumpf(json, r.file, JSON_INDENT(2)));
  json_decref(json);
  return err ? db_fail(err, "%s: %s", s->path, strerror(-err)) : 0;
}

static void remove_shards(const struct shards *s) {
  for (unsigned i = 0; i < s->count; i++) {
    char *path = shard_path(s, i);
    if (path) unlink(path);
    free(path);
  }
}

/* Removes the shards of the old map that the new one does not name. */
static void remove_old(const char *path, json_t *old, json_t *map) {
  static const char shard_end[] = ".safetensors";
  json_t *files = count_files(old), *now = count_files(map), *v;
  const char *file;
  json_object_foreach(files, file, v) {
    size_t n = strlen(file), k = sizeof shard_end - 1; /* an index from elsewhere may name any file */
    bool shard = n > k && !strcmp(file + n - k, shard_end);
    char *at = !shard || json_object_get(now, file) ? NULL : beside(path, file);
    if (at) unlink(at);
    free(at);
  }
  json_decref(files);
  json_decref(now);
}

int db_save_shards(const char *path, const struct db_named *named, unsigned n, size_t most) {
  size_t length = path ? strlen(path) : 0, end = sizeof index_end - 1;
  if (length <= end || strcmp(path + length - end, index_end) != 0)
    return db_fail(-EINVAL, "%s: the name of the index must end in %s", path ? path : "(no name)", index_end);
  if (!most || (n && !named))
    return db_fail(-EINVAL, "%s: the %s is %s", path, most ? "list of tensors" : "size", most ? "NULL" : "0");
  struct shards s = {.path = path, .base = (int)(length - end), .t = named, .n = n};
  json_t *map = json_object(), *old_map = NULL, *old = NULL;
  int64_t total = 0;
  s.first = calloc((size_t)n + 2, sizeof *s.first);
  int err = map && s.first ? 0 : db_fail(-ENOMEM, "%s: out of memory", path);
  for (unsigned i = 0; i < n && !err; i++)
    if (!named[i].name || db_poison(named[i].tensor))
      err =
          db_fail(-EINVAL, "%s: tensor %u: %s", path, i, named[i].name ? db_poison(named[i].tensor) : "it has no name");
  if (!err) {
    if (!access(path, F_OK)) old = read_index(path, &old_map);
    split(&s, most);
    if (s.count > MOST_SHARDS) err = db_fail(-EINVAL, "%s: %u shards are too many", path, s.count);
  }
  if (!err && !(err = pick_version(&s))) {
    err = write_shards(&s, map, &total);
    if (!err) err = write_index(&s, map, total);
    if (err) remove_shards(&s);
  }
  if (!err && old) remove_old(path, old_map, map);
  json_decref(old);
  json_decref(map);
  free(s.first);
  return err;
}

int index_save(const char *path, const struct db_named *t, unsigned n) {
  return db_save_shards(path, t, n, usual_size);
}
