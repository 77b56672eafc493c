/* Parses the text of --arg: DTYPE:VALUE, DTYPE[N]=FILL or local:BYTES. */
#include "cli.h"
#include "../../graph/dtype.h"
#include "../files/files.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DTYPE_NAMES "bool i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2"
#define MOST_BYTES  ((int64_t)1 << 40)

bool dtype_parse(const char *text, size_t n, db_dtype *out) {
  for (db_dtype t = DB_BOOL; t <= DB_F8E5M2; t++)
    if (strlen(db_dtype_name(t)) == n && !memcmp(db_dtype_name(t), text, n)) return *out = t, true;
  return false;
}

static bool is_signed(db_dtype t) { return t == DB_I8 || t == DB_I16 || t == DB_I32 || t == DB_I64; }
static bool is_float(db_dtype t) { return t >= DB_F16; }

/* Stores the low bytes of v; for bool v is 0 or 1. */
static void store_integer(db_dtype t, void *data, int64_t i, uint64_t v) {
  size_t n = db_dtype_size(t);
  memcpy((char *)data + (size_t)i * n, &v, n); /* little-endian, like the devices */
}
static void store_float(db_dtype t, void *data, int64_t i, double v) {
  store_integer(t, data, i, float_to_bits((enum dtype)t, v));
}
/* The type that files use for a type that NumPy lacks. */
static db_dtype file_dtype(db_dtype t) { return t == DB_BF16 ? DB_U16 : t == DB_F8E4M3 || t == DB_F8E5M2 ? DB_U8 : t; }

/* ---- values ---- */

static bool parse_unsigned64(const char *text, uint64_t *out) {
  bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
  if (*text < '0' || *text > '9') return false;
  char *end;
  errno = 0;
  *out = strtoull(text, &end, hex ? 16 : 10);
  return !errno && !*end;
}

static bool parse_value(db_dtype t, const char *text, void *data) {
  int bits = 8 * (int)db_dtype_size(t);
  char *end;
  if (is_float(t)) {
    double v = strtod(text, &end);
    if (end == text || *end) return false;
    return store_float(t, data, 0, v), true;
  }
  if (t == DB_BOOL && (!strcmp(text, "true") || !strcmp(text, "false")))
    return store_integer(t, data, 0, *text == 't'), true;
  if (t == DB_U64) {
    uint64_t v;
    if (!parse_unsigned64(text, &v)) return false;
    return store_integer(t, data, 0, v), true;
  }
  int64_t v, least = is_signed(t) ? INT64_MIN >> (64 - bits) : 0;
  int64_t most = t == DB_BOOL   ? 1
                 : is_signed(t) ? (int64_t)(((uint64_t)1 << (bits - 1)) - 1)
                                : ((int64_t)1 << bits) - 1;
  if (!parse_integer(text, least, most, &v)) return false;
  return store_integer(t, data, 0, (uint64_t)v), true;
}

/* ---- fills ---- */

/* SplitMix64 of a counter (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014). */
static uint64_t random_bits(uint64_t seed, int64_t i) {
  uint64_t z = seed + ((uint64_t)i + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

static void fill_random(struct argument *a, uint64_t seed) {
  for (int64_t i = 0; i < a->count; i++) {
    uint64_t bits = random_bits(seed, i);
    if (is_float(a->dtype))
      store_float(a->dtype, a->data, i, (double)(bits >> 40) * 0x1p-24); /* 24 bits are exact in f32 */
    else
      store_integer(a->dtype, a->data, i, a->dtype == DB_BOOL ? bits & 1 : bits);
  }
}

static void fill_linear(struct argument *a, int64_t start, int64_t step) {
  for (int64_t i = 0; i < a->count; i++) {
    int64_t v = start + i * step;
    if (is_float(a->dtype))
      store_float(a->dtype, a->data, i, (double)v);
    else
      store_integer(a->dtype, a->data, i, a->dtype == DB_BOOL ? v != 0 : (uint64_t)v);
  }
}

static int fill_file(struct argument *a, const char *path, char *err, size_t errcap) {
  struct npy file;
  if (npy_read(path, &file, err, errcap)) return -EINVAL;
  bool same = file.dtype == file_dtype(a->dtype);
  if (!same || file.count != a->count) {
    free(file.data);
    return refuse_input(err, errcap, "%s has %" PRId64 " elements of %s, not %" PRId64 " of %s", path, file.count,
                        db_dtype_name(file.dtype), a->count, db_dtype_name(a->dtype));
  }
  free(a->data);
  a->data = file.data;
  a->rank = file.rank;
  memcpy(a->dim, file.dim, sizeof a->dim);
  return 0;
}

static int fill_argument(struct argument *a, const char *text, char *err, size_t errcap) {
  int64_t seed;
  if (*text == '@') return fill_file(a, text + 1, err, errcap);
  if (!strcmp(text, "zeros"))
    fill_linear(a, 0, 0);
  else if (!strcmp(text, "ones"))
    fill_linear(a, 1, 0);
  else if (!strcmp(text, "iota"))
    fill_linear(a, 0, 1);
  else if (!strncmp(text, "rand:", 5) && parse_integer(text + 5, 0, INT64_MAX, &seed))
    fill_random(a, (uint64_t)seed);
  else
    return refuse_input(err, errcap, "'%s' is not zeros, ones, iota, rand:SEED or @FILE.npy", text);
  return 0;
}

/* ---- complete arguments ---- */

static int parse_buffer(struct argument *a, const char *size, const char *close, char *err, size_t errcap) {
  char digits[24];
  size_t n = (size_t)(close - size);
  int64_t most = MOST_BYTES / (int64_t)db_dtype_size(a->dtype);
  if (n < sizeof digits) {
    memcpy(digits, size, n);
    digits[n] = 0;
  }
  if (n >= sizeof digits || !parse_integer(digits, 1, most, &a->count))
    return refuse_input(err, errcap, "'%.*s' is not a number of elements from 1 to %" PRId64, (int)n, size, most);
  if (close[1] != '=')
    return refuse_input(err, errcap, "a buffer needs its contents: ...]=zeros|ones|iota|rand:SEED|@FILE.npy");
  a->kind = ARGUMENT_BUFFER;
  a->rank = 1;
  a->dim[0] = a->count;
  a->bytes = (size_t)a->count * db_dtype_size(a->dtype);
  a->data = malloc(a->bytes);
  if (!a->data) return refuse_input(err, errcap, "out of memory for %zu bytes", a->bytes);
  return fill_argument(a, close + 2, err, errcap);
}

int argument_parse(const char *spec, struct argument *out, char *err, size_t errcap) {
  *out = (struct argument){.spec = spec, .count = 1};
  size_t n = strcspn(spec, ":[=");
  int status = 0;
  if (!strncmp(spec, "local:", 6)) {
    out->kind = ARGUMENT_LOCAL;
    if (!parse_integer(spec + 6, 1, 1 << 30, &out->count))
      status = refuse_input(err, errcap, "'%s' is not a number of bytes", spec + 6);
  } else if (!dtype_parse(spec, n, &out->dtype)) {
    status = refuse_input(err, errcap, "'%.*s' is not an element type; the types are " DTYPE_NAMES, (int)n, spec);
  } else if (spec[n] == ':') {
    out->bytes = db_dtype_size(out->dtype);
    out->data = calloc(1, 8);
    if (!out->data)
      status = refuse_input(err, errcap, "out of memory");
    else if (!parse_value(out->dtype, spec + n + 1, out->data))
      status = refuse_input(err, errcap, "'%s' is not a value of %s", spec + n + 1, db_dtype_name(out->dtype));
  } else {
    const char *close = spec[n] == '[' ? strchr(spec + n, ']') : NULL;
    status = close ? parse_buffer(out, spec + n + 1, close, err, errcap)
                   : refuse_input(err, errcap, "neither DTYPE:VALUE nor DTYPE[N]=FILL");
  }
  if (status) {
    free(out->data);
    out->data = NULL;
  }
  return status;
}

static void print_float(FILE *f, double v, bool json) {
  if (json)
    json_number(f, v);
  else
    fprintf(f, "%.7g", v);
}

void element_print(FILE *f, db_dtype t, const void *data, int64_t i, bool json) {
  switch (t) {
  case DB_BOOL: fputs(((const uint8_t *)data)[i] ? "true" : "false", f); break;
  case DB_I8: fprintf(f, "%d", ((const int8_t *)data)[i]); break;
  case DB_U8: fprintf(f, "%u", ((const uint8_t *)data)[i]); break;
  case DB_I16: fprintf(f, "%d", ((const int16_t *)data)[i]); break;
  case DB_U16: fprintf(f, "%u", ((const uint16_t *)data)[i]); break;
  case DB_I32: fprintf(f, "%" PRId32, ((const int32_t *)data)[i]); break;
  case DB_U32: fprintf(f, "%" PRIu32, ((const uint32_t *)data)[i]); break;
  case DB_I64: fprintf(f, "%" PRId64, ((const int64_t *)data)[i]); break;
  case DB_U64: fprintf(f, "%" PRIu64, ((const uint64_t *)data)[i]); break;
  case DB_F16:
  case DB_BF16: print_float(f, float_from_bits((enum dtype)t, ((const uint16_t *)data)[i]), json); break;
  case DB_F8E4M3:
  case DB_F8E5M2: print_float(f, float_from_bits((enum dtype)t, ((const uint8_t *)data)[i]), json); break;
  case DB_F32: print_float(f, (double)((const float *)data)[i], json); break;
  default: print_float(f, ((const double *)data)[i], json); break;
  }
}

int print_tensor(const struct command *self, const char *name, db_tensor *t, bool json) {
  enum { SHOWN = 8 };
  size_t item = db_dtype_size(db_dtype_of(t));
  int64_t n = db_numel(t);
  void *data = malloc((size_t)n * item + 1);
  if (!data || db_read(t, data, (size_t)n * item)) {
    free(data);
    return fail_work(self, "%s: %s", name ? name : "an output", data ? db_error() : "out of memory");
  }
  const char *type = db_dtype_name(db_dtype_of(t));
  if (json) {
    json_t *text = name ? json_text(name) : NULL;
    fputs("\n  {", stdout);
    if (text) fputs("\"name\": ", stdout), json_dumpf(text, stdout, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    printf("%s\"dtype\": \"%s\", \"shape\": [", text ? ", " : "", type);
    json_decref(text);
  } else
    printf("%s %s[", name, type);
  for (unsigned i = 0; i < db_rank(t); i++) printf("%s%" PRId64, i ? ", " : "", db_dim(t, (int)i));
  fputs(json ? "], \"first\": [" : "] =", stdout);
  for (int64_t i = 0; i < n && i < SHOWN; i++) {
    fputs(!json ? " " : i ? ", " : "", stdout);
    element_print(stdout, db_dtype_of(t), data, i, json);
  }
  fputs(json ? "]}" : n > SHOWN ? " ...\n" : "\n", stdout);
  free(data);
  return EXIT_DONE;
}

db_tensor *load_input(const struct command *self, const char *name, const char *file, db_device *dev) {
  struct db_named *named;
  unsigned count;
  if (db_load(file, dev, &named, &count)) return fail_work(self, "%s", db_error()), NULL;
  db_tensor *t = count == 1 ? db_retain(named[0].tensor) : NULL;
  db_named_free(named, count);
  if (count != 1) fail_work(self, "--in %s=%s: expected one tensor, found %u", name, file, count);
  return t;
}
