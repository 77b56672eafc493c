/* NumPy's .npy format, versions 1 to 3 (NumPy's "NEP 1: a simple file format for NumPy arrays"): a magic number, a
 * version, the length of the header, the header (a Python dictionary as text), and the elements. Files are not trusted:
 * every length is checked against the size of the file. */
#include "files.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct {
  const char *descr;
  db_dtype dtype;
} kinds[] = {{"|b1", DB_BOOL}, {"|i1", DB_I8},  {"|u1", DB_U8},  {"<i2", DB_I16}, {"<u2", DB_U16}, {"<i4", DB_I32},
             {"<u4", DB_U32},  {"<i8", DB_I64}, {"<u8", DB_U64}, {"<f2", DB_F16}, {"<f4", DB_F32}, {"<f8", DB_F64}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- the header: a dictionary of strings, True or False, and a tuple of integers ---- */

struct text {
  const char *at, *end;
};
static void skip_space(struct text *t) {
  while (t->at < t->end && (*t->at == ' ' || *t->at == '\t' || *t->at == '\n')) t->at++;
}
static bool accept(struct text *t, const char *word) {
  skip_space(t);
  size_t n = strlen(word);
  if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n) != 0) return false;
  t->at += n;
  return true;
}
static bool read_string(struct text *t, char *out, size_t cap) {
  skip_space(t);
  if (t->at == t->end || (*t->at != '\'' && *t->at != '"')) return false;
  char quote = *t->at++;
  size_t n = 0;
  while (t->at < t->end && *t->at != quote && n + 1 < cap) out[n++] = *t->at++;
  out[n] = 0;
  if (t->at == t->end || *t->at != quote) return false;
  t->at++;
  return true;
}
static bool read_size(struct text *t, int64_t *out) {
  skip_space(t);
  int64_t v = 0;
  const char *start = t->at;
  for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++)
    if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *t->at - '0', &v)) return false;
  *out = v;
  return t->at > start;
}
static bool read_shape(struct text *t, struct npy *a) {
  if (!accept(t, "(")) return false;
  for (a->rank = 0; !accept(t, ")"); a->rank++) {
    if (a->rank == sizeof a->dim / sizeof *a->dim || !read_size(t, &a->dim[a->rank])) return false;
    if (!accept(t, ",")) return a->rank++, accept(t, ")");
  }
  return true;
}

static int parse_header(struct text t, struct npy *a, bool *fortran, char *descr, size_t cap, char *err,
                        size_t errcap) {
  unsigned seen = 0;
  if (!accept(&t, "{")) return refuse_input(err, errcap, "the header is not a dictionary");
  while (!accept(&t, "}")) {
    char key[32];
    bool good = read_string(&t, key, sizeof key) && accept(&t, ":");
    if (good && !strcmp(key, "descr")) {
      good = read_string(&t, descr, cap);
      seen |= 1;
    } else if (good && !strcmp(key, "fortran_order")) {
      *fortran = accept(&t, "True");
      good = *fortran || accept(&t, "False");
      seen |= 2;
    } else if (good && !strcmp(key, "shape")) {
      good = read_shape(&t, a);
      seen |= 4;
    } else {
      good = false;
    }
    if (!good) return refuse_input(err, errcap, "the header cannot be read (a structured array, perhaps)");
    if (!accept(&t, ",") && !(accept(&t, "}") && (t.at--, true)))
      return refuse_input(err, errcap, "the header cannot be read");
  }
  return seen == 7 ? 0 : refuse_input(err, errcap, "the header has no descr, fortran_order or shape");
}

int npy_parse(const void *bytes, size_t size, struct npy *out, char *err, size_t errcap) {
  const uint8_t *b = bytes;
  if (size < 10 || memcmp(b, "\x93NUMPY", 6) != 0) return refuse_input(err, errcap, "not a .npy file");
  if (b[6] < 1 || b[6] > 3)
    return refuse_input(err, errcap, "not supported: version %d.%d of the .npy format", b[6], b[7]);
  size_t start = b[6] == 1 ? 10 : 12;
  if (size < start) return refuse_input(err, errcap, "the file ends inside its header");
  size_t length = b[8] | (size_t)b[9] << 8;
  if (b[6] > 1) length |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
  if (length > size - start) return refuse_input(err, errcap, "the file ends inside its header");
  char descr[16] = "";
  *out = (struct npy){.dtype = DB_NONE};
  int status = parse_header((struct text){(const char *)b + start, (const char *)b + start + length}, out,
                            &out->fortran, descr, sizeof descr, err, errcap);
  if (status) return status;
  for (int i = 0; i < KINDS; i++)
    if (!strcmp(descr, kinds[i].descr) || (kinds[i].descr[0] == '|' && !strcmp(descr + 1, kinds[i].descr + 1)))
      out->dtype = kinds[i].dtype;
  if (out->dtype == DB_NONE) return refuse_input(err, errcap, "not supported: elements of type '%s'", descr);
  out->count = 1;
  for (unsigned i = 0; i < out->rank; i++)
    if (__builtin_mul_overflow(out->count, out->dim[i], &out->count))
      return refuse_input(err, errcap, "the shape is too large");
  size_t have = size - start - length, want;
  if (__builtin_mul_overflow((size_t)out->count, db_dtype_size(out->dtype), &want) || want > have)
    return refuse_input(err, errcap,
                        "the file has %zu bytes of elements, but its shape needs %lld elements of %zu bytes", have,
                        (long long)out->count, db_dtype_size(out->dtype));
  out->data = (uint8_t *)bytes + start + length;
  return 0;
}

/* Upper bound for pipes and devices, which may never end; kernels and arrays fit in it. */
#define STREAM_LIMIT ((size_t)1 << 30)

int read_file(const char *path, void **bytes, size_t *size, char *err, size_t errcap) {
  int status = 0;
  struct stat st;
  *bytes = NULL;
  *size = 0;
  FILE *f = fopen(path, "rb");
  size_t capacity = 1 << 16;
  if (!f) return refuse_input(err, errcap, "%s: %s", path, strerror(errno));
  bool regular = fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode);
  for (;;) {
    void *more = realloc(*bytes, capacity);
    if (!more) {
      status = refuse_input(err, errcap, "%s: out of memory", path);
      break;
    }
    *bytes = more;
    *size += fread((char *)*bytes + *size, 1, capacity - *size, f);
    if (ferror(f)) status = refuse_input(err, errcap, "%s: %s", path, strerror(errno));
    if (*size < capacity) break;
    if (!regular && *size >= STREAM_LIMIT) {
      status = refuse_input(err, errcap, "%s: not a regular file and larger than 1 GiB", path);
      break;
    }
    capacity *= 2;
  }
  fclose(f);
  if (status) {
    free(*bytes);
    *bytes = NULL;
  }
  return status;
}

int npy_read(const char *path, struct npy *out, char *err, size_t errcap) {
  void *bytes;
  size_t size;
  char why[256];
  int status = read_file(path, &bytes, &size, err, errcap);
  if (status || !bytes) return status;
  status = npy_parse(bytes, size, out, why, sizeof why);
  if (!status && out->fortran && out->rank > 1)
    status = refuse_input(why, sizeof why, "not supported: column-major (fortran_order) arrays");
  if (status) {
    free(bytes);
    return refuse_input(err, errcap, "%s: %s", path, why);
  }
  memmove(bytes, out->data, (size_t)out->count * db_dtype_size(out->dtype));
  out->data = bytes;
  return 0;
}

size_t npy_header(const struct npy *a, void *out) {
  char *header = (char *)out + 10;
  size_t cap = NPY_HEADER - 10;
  const char *descr = db_dtype_size(a->dtype) == 1 ? "|u1" : "<u2";
  for (int i = 0; i < KINDS; i++)
    if (kinds[i].dtype == a->dtype) descr = kinds[i].descr;
  int n = snprintf(header, cap, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
  for (unsigned i = 0; i < a->rank; i++)
    n += snprintf(header + n, cap - (size_t)n, i ? " %lld," : "%lld,", (long long)a->dim[i]);
  n += snprintf(header + n, cap - (size_t)n, "), }");
  while ((10 + n + 1) % 64) header[n++] = ' '; /* elements start at a multiple of 64 bytes */
  header[n++] = '\n';
  memcpy(out, (uint8_t[10]){0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)n, (uint8_t)(n >> 8)}, 10);
  return 10 + (size_t)n;
}

int npy_write(const char *path, const struct npy *a, char *err, size_t errcap) {
  char header[NPY_HEADER];
  struct replacement r;
  int status = replace_begin(&r, path);
  if (!status) {
    size_t n = npy_header(a, header), bytes = (size_t)a->count * db_dtype_size(a->dtype);
    status = replace_end(&r, fwrite(header, 1, n, r.file) == n && fwrite(a->data, 1, bytes, r.file) == bytes);
  }
  if (status) refuse_input(err, errcap, "%s: %s", path, strerror(-status));
  return status;
}
