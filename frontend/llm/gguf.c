/* Parses GGUF files: the magic number, version, number of tensors and of metadata pairs; the pairs; a description of
 * each tensor; padding; and the tensors' data. */
#include "gguf.h"
#include "../files/files.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 24, ALIGNMENT = 32, MOST_ALIGNMENT = 1 << 20, MOST_NESTED = 4 };

/* ---- kinds of values and layouts of tensors ---- */

static const struct {
  const char *name;
  unsigned bytes; /* 0: a length precedes the contents */
} kinds[GGUF_KINDS] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},   [GGUF_U16] = {"u16", 2}, [GGUF_I16] = {"i16", 2},
    [GGUF_U32] = {"u32", 4},     [GGUF_I32] = {"i32", 4}, [GGUF_F32] = {"f32", 4}, [GGUF_BOOL] = {"bool", 1},
    [GGUF_U64] = {"u64", 8},     [GGUF_I64] = {"i64", 8}, [GGUF_F64] = {"f64", 8}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0},
};
const char *gguf_kind_name(enum gguf_kind kind) { return kind < GGUF_KINDS ? kinds[kind].name : "?"; }

/* Sizes of all types that ggml.h defines. Types that models here cannot have (weights.h) have sizes, so that the files
 * can be listed. */
static const struct ggml_layout layouts[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},         [2] = {"Q4_0", 32, 18},      [3] = {"Q4_1", 32, 20},
    [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},      [8] = {"Q8_0", 32, 34},      [9] = {"Q8_1", 32, 36},
    [10] = {"Q2_K", 256, 84},    [11] = {"Q3_K", 256, 110},   [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},
    [14] = {"Q6_K", 256, 210},   [15] = {"Q8_K", 256, 292},   [16] = {"IQ2_XXS", 256, 66}, [17] = {"IQ2_XS", 256, 74},
    [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},   [20] = {"IQ4_NL", 32, 18},   [21] = {"IQ3_S", 256, 110},
    [22] = {"IQ2_S", 256, 82},   [23] = {"IQ4_XS", 256, 136}, [24] = {"I8", 1, 1},         [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},        [27] = {"I64", 1, 8},        [28] = {"F64", 1, 8},        [29] = {"IQ1_M", 256, 56},
    [30] = {"BF16", 1, 2},       [34] = {"TQ1_0", 256, 54},   [35] = {"TQ2_0", 256, 66},   [39] = {"MXFP4", 32, 17},
};
const struct ggml_layout *ggml_layout(enum ggml_type type) {
  return (unsigned)type < sizeof layouts / sizeof *layouts && layouts[type].name ? &layouts[type] : NULL;
}

/* ---- reading ---- */

struct reader {
  const uint8_t *begin, *at, *end;
  const char *name; /* the key or the tensor that is being read, or NULL */
  char *err;
  size_t errcap;
};

__attribute__((format(printf, 2, 3))) static void write_reason(const struct reader *r, const char *fmt, ...) {
  char what[256];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(what, sizeof what, fmt, ap);
  va_end(ap);
  refuse_input(r->err, r->errcap, "at byte %zu%s%.120s%s: %s", (size_t)(r->at - r->begin), r->name ? ", '" : "",
               r->name ? r->name : "", r->name ? "'" : "", what);
}
/* A macro, so that the static analyzer sees that the result is not 0. */
#define refuse(r, ...) (write_reason((r), __VA_ARGS__), -EINVAL)

static uint64_t number(const uint8_t *at, unsigned bytes) {
  uint64_t v = 0;
  for (unsigned i = bytes; i-- > 0;) v = v << 8 | at[i];
  return v;
}
static size_t left(const struct reader *r) { return (size_t)(r->end - r->at); }

static int take(struct reader *r, unsigned bytes, uint64_t *out, const char *what) {
  *out = 0;
  if (left(r) < bytes) return refuse(r, "the file ends within %s", what);
  *out = number(r->at, bytes);
  r->at += bytes;
  return 0;
}

static int skip_string(struct reader *r, struct gguf_string *out) {
  uint64_t length;
  int err = take(r, 8, &length, "the length of a string");
  if (err) return err;
  if (length > left(r))
    return refuse(r, "a string of %llu bytes, but the file has %zu more", (unsigned long long)length, left(r));
  if (out) *out = (struct gguf_string){(const char *)r->at, (size_t)length};
  r->at += length;
  return 0;
}

/* A name as a C string. */
static int take_name(struct reader *r, char **out) {
  struct gguf_string s;
  const uint8_t *before = r->at;
  int err = skip_string(r, &s);
  if (err) return err;
  if (memchr(s.text, 0, s.length)) {
    r->at = before;
    return refuse(r, "a name with a zero byte");
  }
  *out = strndup(s.text, s.length);
  if (!*out) return refuse(r, "out of memory");
  r->name = *out;
  return 0;
}

static int take_kind(struct reader *r, enum gguf_kind *out) {
  uint64_t kind;
  int err = take(r, 4, &kind, "the type of a value");
  if (err) return err;
  if (kind >= GGUF_KINDS) {
    r->at -= 4;
    return refuse(r, "%llu is not the type of a value", (unsigned long long)kind);
  }
  *out = (enum gguf_kind)kind;
  return 0;
}

static int skip_array(struct reader *r, unsigned depth, enum gguf_kind *kind, uint64_t *count, const uint8_t **data);

/* Skips `count` elements of a kind. */
static int skip_elements(struct reader *r, unsigned depth, enum gguf_kind kind, uint64_t count) {
  unsigned bytes = kinds[kind].bytes;
  /* Every string and every array needs at least 8 bytes, so the loops below end. */
  if (count > left(r) / (bytes ? bytes : 8))
    return refuse(r, "%llu elements of type %s, but the file has %zu more bytes", (unsigned long long)count,
                  kinds[kind].name, left(r));
  if (bytes) {
    r->at += count * bytes;
    return 0;
  }
  for (uint64_t i = 0; i < count; i++) {
    enum gguf_kind inner;
    uint64_t n;
    const uint8_t *data;
    int err = kind == GGUF_STRING ? skip_string(r, NULL) : skip_array(r, depth + 1, &inner, &n, &data);
    if (err) return err;
  }
  return 0;
}

static int skip_array(struct reader *r, unsigned depth, enum gguf_kind *kind, uint64_t *count, const uint8_t **data) {
  if (depth > MOST_NESTED) return refuse(r, "arrays are nested more than %d levels", MOST_NESTED);
  int err = take_kind(r, kind);
  if (!err) err = take(r, 8, count, "the number of an array's elements");
  *data = r->at;
  return err ? err : skip_elements(r, depth, *kind, *count);
}

static int take_value(struct reader *r, struct gguf_value *v) {
  int err = take_kind(r, &v->kind);
  if (err) return err;
  v->array = v->kind == GGUF_ARRAY, v->count = 1, v->data = r->at;
  err = v->array ? skip_array(r, 1, &v->kind, &v->count, &v->data) : skip_elements(r, 0, v->kind, 1);
  v->end = r->at;
  return err;
}

static int take_pairs(struct reader *r, struct gguf *g, uint64_t n) {
  int err = 0;
  for (; g->npairs < n && !err; r->name = NULL) {
    struct gguf_pair *p = &g->pair[g->npairs];
    if ((err = take_name(r, &p->key))) break;
    g->npairs++;
    err = take_value(r, &p->value);
  }
  return err;
}

/* Reads the description of a tensor; *offset is relative to the data of all tensors, which follow the descriptions. */
static int take_tensor(struct reader *r, struct gguf_tensor *t, uint64_t *offset) {
  uint64_t rank, type, size, count = 1;
  int err = take(r, 4, &rank, "the number of axes");
  if (err) return err;
  if (rank > GGUF_RANK) return refuse(r, "%llu axes, more than %d", (unsigned long long)rank, GGUF_RANK);
  t->rank = (unsigned)rank;
  for (unsigned i = t->rank; i-- > 0;) {
    if ((err = take(r, 8, &size, "the size of an axis"))) return err;
    if (size > INT64_MAX || __builtin_mul_overflow(count, size, &count) || count > INT64_MAX / 8)
      return refuse(r, "the sizes of its axes are too large");
    t->dim[i] = (int64_t)size;
  }
  if ((err = take(r, 4, &type, "a tensor's type"))) return err;
  t->type = (enum ggml_type)type;
  const struct ggml_layout *l = ggml_layout(t->type);
  if (!l) return refuse(r, "not supported: elements of type %llu", (unsigned long long)type);
  uint64_t row = t->rank ? (uint64_t)t->dim[t->rank - 1] : 1;
  if (row % l->elements)
    return refuse(r, "rows of %llu elements, but %s has blocks of %u", (unsigned long long)row, l->name, l->elements);
  t->bytes = count / l->elements * l->bytes;
  return take(r, 8, offset, "a tensor's offset");
}

static int alignment_of(struct reader *r, const struct gguf *g, uint64_t *out) {
  const struct gguf_value *v = gguf_find(g, "general.alignment");
  int64_t n = ALIGNMENT;
  r->name = "general.alignment";
  if (v && (v->array || !gguf_integer(v, 0, &n))) return refuse(r, "not a number");
  if (n < 1 || n > MOST_ALIGNMENT || (n & (n - 1)))
    return refuse(r, "%lld is not a power of two up to %d", (long long)n, MOST_ALIGNMENT);
  r->name = NULL;
  *out = (uint64_t)n;
  return 0;
}

/* Places the tensors in the data. */
static int place_tensors(struct reader *r, struct gguf *g, const uint64_t *offset) {
  uint64_t alignment = ALIGNMENT;
  int err = alignment_of(r, g, &alignment);
  if (err) return err;
  size_t begin = (size_t)(r->at - r->begin), end = (size_t)(r->end - r->begin);
  begin = (begin + alignment - 1) & ~(alignment - 1);
  for (size_t i = 0; i < g->ntensors; i++) {
    struct gguf_tensor *t = &g->tensor[i];
    r->name = t->name;
    if (offset[i] % alignment)
      return refuse(r, "its offset %llu is not a multiple of %llu", (unsigned long long)offset[i],
                    (unsigned long long)alignment);
    if (!t->bytes) {
      t->data = r->end;
      continue;
    }
    if (begin > end || offset[i] > end - begin || t->bytes > end - begin - offset[i])
      return refuse(r, "%zu bytes at %zu + %llu, but the file has %zu", t->bytes, begin, (unsigned long long)offset[i],
                    end);
    t->data = r->begin + begin + offset[i];
  }
  return 0;
}

/* ---- search by name ---- */

struct gguf_index {
  const struct gguf_pair **pair;
  const struct gguf_tensor **tensor;
};

static int by_key(const void *a, const void *b) {
  const struct gguf_pair *const *x = a, *const *y = b;
  return strcmp((*x)->key, (*y)->key);
}
static int by_name(const void *a, const void *b) {
  const struct gguf_tensor *const *x = a, *const *y = b;
  return strcmp((*x)->name, (*y)->name);
}

static int index_pairs(struct reader *r, struct gguf *g) {
  for (size_t i = 0; i < g->npairs; i++) g->index->pair[i] = &g->pair[i];
  qsort(g->index->pair, g->npairs, sizeof *g->index->pair, by_key);
  for (size_t i = 1; i < g->npairs; i++)
    if (!by_key(&g->index->pair[i - 1], &g->index->pair[i]))
      return r->name = g->index->pair[i]->key, refuse(r, "the key occurs twice");
  return 0;
}
static int index_tensors(struct reader *r, struct gguf *g) {
  for (size_t i = 0; i < g->ntensors; i++) g->index->tensor[i] = &g->tensor[i];
  qsort(g->index->tensor, g->ntensors, sizeof *g->index->tensor, by_name);
  for (size_t i = 1; i < g->ntensors; i++)
    if (!by_name(&g->index->tensor[i - 1], &g->index->tensor[i]))
      return r->name = g->index->tensor[i]->name, refuse(r, "the tensor occurs twice");
  return 0;
}

const struct gguf_value *gguf_find(const struct gguf *g, const char *key) {
  const struct gguf_pair wanted = {.key = (char *)key}, *w = &wanted;
  const struct gguf_pair **found = bsearch(&w, g->index->pair, g->npairs, sizeof *g->index->pair, by_key);
  return found ? &(*found)->value : NULL;
}
const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name) {
  const struct gguf_tensor wanted = {.name = (char *)name}, *w = &wanted;
  const struct gguf_tensor **found = bsearch(&w, g->index->tensor, g->ntensors, sizeof *g->index->tensor, by_name);
  return found ? *found : NULL;
}

/* ---- files ---- */

void gguf_free(struct gguf *g) {
  for (size_t i = 0; i < g->npairs; i++) free(g->pair[i].key);
  for (size_t i = 0; i < g->ntensors; i++) free(g->tensor[i].name);
  free(g->pair);
  free(g->tensor);
  if (g->index) free(g->index->pair), free(g->index->tensor);
  free(g->index);
  *g = (struct gguf){0};
}

/* Reads the header. The counts that it stores have been compared with the size of the file. */
static int take_header(struct reader *r, struct gguf *g, uint64_t *tensors, uint64_t *pairs) {
  enum { LEAST_PAIR = 13, LEAST_TENSOR = 24 };
  if (left(r) < HEADER || memcmp(r->at, "GGUF", 4)) return refuse(r, "not a GGUF file");
  g->version = (unsigned)number(r->at + 4, 4);
  *tensors = number(r->at + 8, 8), *pairs = number(r->at + 16, 8);
  if (g->version && !(g->version & 0xffff)) return refuse(r, "not supported: a big-endian file");
  if (g->version != 2 && g->version != 3) return refuse(r, "not supported: GGUF version %u", g->version);
  r->at += HEADER;
  if (*pairs > left(r) / LEAST_PAIR || *tensors > left(r) / LEAST_TENSOR)
    return refuse(r, "%llu pairs and %llu tensors, but the file has %zu more bytes", (unsigned long long)*pairs,
                  (unsigned long long)*tensors, left(r));
  return 0;
}

int gguf_parse(const void *bytes, size_t size, struct gguf *g, char *err, size_t errcap) {
  struct reader r = {bytes, bytes, (const uint8_t *)bytes + size, NULL, err, errcap};
  uint64_t tensors = 0, pairs = 0;
  *g = (struct gguf){0};
  int status = take_header(&r, g, &tensors, &pairs);
  if (status) return status;
  uint64_t *offset = calloc(tensors + 1, sizeof *offset);
  g->pair = calloc(pairs + 1, sizeof *g->pair);
  g->tensor = calloc(tensors + 1, sizeof *g->tensor);
  g->index = calloc(1, sizeof *g->index);
  if (g->index) g->index->pair = calloc(pairs + 1, sizeof *g->index->pair);
  if (g->index) g->index->tensor = calloc(tensors + 1, sizeof *g->index->tensor);
  if (!offset || !g->pair || !g->tensor || !g->index || !g->index->pair || !g->index->tensor) {
    refuse_input(err, errcap, "out of memory");
    status = -ENOMEM;
  }
  if (!status) status = take_pairs(&r, g, pairs);
  if (!status) status = index_pairs(&r, g);
  for (; !status && g->ntensors < tensors; r.name = NULL) {
    struct gguf_tensor *t = &g->tensor[g->ntensors];
    if ((status = take_name(&r, &t->name))) break;
    status = take_tensor(&r, t, &offset[g->ntensors++]);
  }
  if (!status) status = index_tensors(&r, g);
  if (!status) status = place_tensors(&r, g, offset);
  free(offset);
  if (status) gguf_free(g);
  return status;
}

/* ---- values ---- */

bool gguf_integer(const struct gguf_value *v, uint64_t i, int64_t *out) {
  if (v->kind == GGUF_F32 || v->kind == GGUF_F64 || !kinds[v->kind].bytes) return false;
  unsigned bytes = kinds[v->kind].bytes;
  uint64_t bits = number(v->data + i * bytes, bytes);
  bool is_signed = v->kind == GGUF_I8 || v->kind == GGUF_I16 || v->kind == GGUF_I32 || v->kind == GGUF_I64;
  if (v->kind == GGUF_U64 && bits > INT64_MAX) return false;
  unsigned unused = 64 - 8 * bytes;
  *out = is_signed ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
  return true;
}

bool gguf_number(const struct gguf_value *v, uint64_t i, double *out) {
  int64_t n;
  float f;
  if (v->kind == GGUF_F32)
    memcpy(&f, v->data + i * sizeof f, sizeof f), *out = (double)f;
  else if (v->kind == GGUF_F64)
    memcpy(out, v->data + i * sizeof *out, sizeof *out);
  else if (gguf_integer(v, i, &n))
    *out = (double)n;
  else
    return false;
  return true;
}

bool gguf_next_string(const struct gguf_value *v, const uint8_t **at, struct gguf_string *out) {
  if (v->kind != GGUF_STRING || *at == v->end) return false;
  *out = (struct gguf_string){(const char *)*at + 8, (size_t)number(*at, 8)};
  *at += 8 + out->length;
  return true;
}

char *gguf_text(const struct gguf_value *v) {
  struct gguf_string s;
  const uint8_t *at = v ? v->data : NULL;
  if (!v || v->array || !gguf_next_string(v, &at, &s)) return NULL;
  return strndup(s.text, s.length);
}
