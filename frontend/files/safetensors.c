/* The safetensors format: the length of the header in 8 bytes, little-endian; the header, a JSON object of name:
 * {dtype, shape, data_offsets: [begin, end]}; and the elements, row-major, one tensor after the other without gaps.
 * "__metadata__" is not a tensor. */
#include "files.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HEADER = 100000000 /* the maximum that other readers accept */ };

static const struct {
  const char *name;
  db_dtype dtype;
} kinds[] = {{"BOOL", DB_BOOL}, {"I8", DB_I8},   {"U8", DB_U8},   {"I16", DB_I16},        {"U16", DB_U16},
             {"I32", DB_I32},   {"U32", DB_U32}, {"I64", DB_I64}, {"U64", DB_U64},        {"F16", DB_F16},
             {"BF16", DB_BF16}, {"F32", DB_F32}, {"F64", DB_F64}, {"F8_E4M3", DB_F8E4M3}, {"F8_E5M2", DB_F8E5M2}};
enum { KINDS = sizeof kinds / sizeof *kinds };

void safetensors_free(struct safetensors *s) {
  for (size_t i = 0; i < s->n; i++) free(s->tensor[i].name);
  free(s->tensor);
  *s = (struct safetensors){0};
}

static int parse_shape(const json_t *shape, struct safetensor *t, char *err, size_t errcap) {
  size_t n = json_array_size(shape);
  int64_t count = 1;
  if (!json_is_array(shape) || n > sizeof t->dim / sizeof *t->dim)
    return refuse_input(err, errcap, "%s: shape is not a list of at most %zu sizes", t->name,
                        sizeof t->dim / sizeof *t->dim);
  t->rank = (unsigned)n;
  for (unsigned i = 0; i < t->rank; i++) {
    const json_t *size = json_array_get(shape, i);
    t->dim[i] = json_is_integer(size) ? json_integer_value(size) : -1;
    if (t->dim[i] < 0 || __builtin_mul_overflow(count, t->dim[i], &count))
      return refuse_input(err, errcap, "%s: size %u is not a number of elements, or too large", t->name, i);
  }
  if (__builtin_mul_overflow((size_t)count, db_dtype_size(t->dtype), &t->bytes))
    return refuse_input(err, errcap, "%s: the shape is too large", t->name);
  return 0;
}

static int parse_tensor(const char *name, const json_t *v, const char *data, size_t size, struct safetensor *t,
                        char *err, size_t errcap) {
  const char *dtype = json_string_value(json_object_get(v, "dtype"));
  const json_t *offsets = json_object_get(v, "data_offsets");
  const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
  if (!(t->name = strdup(name))) return refuse_input(err, errcap, "out of memory");
  if (!dtype) return refuse_input(err, errcap, "%s: no dtype", name);
  for (int i = 0; i < KINDS; i++)
    if (!strcmp(dtype, kinds[i].name)) t->dtype = kinds[i].dtype;
  if (t->dtype == DB_NONE) return refuse_input(err, errcap, "%s: not supported: elements of type '%s'", name, dtype);
  int status = parse_shape(json_object_get(v, "shape"), t, err, errcap);
  if (status) return status;
  if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
    return refuse_input(err, errcap, "%s: data_offsets is not two numbers", name);
  json_int_t b = json_integer_value(begin), e = json_integer_value(end);
  if (b < 0 || e < b || (uint64_t)e > size)
    return refuse_input(err, errcap, "%s: bytes %lld to %lld are not within the %zu bytes of data", name, (long long)b,
                        (long long)e, size);
  if ((size_t)(e - b) != t->bytes)
    return refuse_input(err, errcap, "%s: %lld bytes, but its shape needs %zu", name, (long long)(e - b), t->bytes);
  t->data = data + b;
  return 0;
}

static int by_place(const void *a, const void *b) {
  const struct safetensor *x = a, *y = b;
  if (x->data != y->data) return (const char *)x->data < (const char *)y->data ? -1 : 1;
  return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

int safetensors_parse(const void *bytes, size_t size, struct safetensors *out, char *err, size_t errcap) {
  const uint8_t *head = bytes;
  uint64_t length = 0;
  json_error_t why;
  *out = (struct safetensors){0};
  if (size < 8) return refuse_input(err, errcap, "not a safetensors file: it has only %zu bytes", size);
  for (int i = 8; i-- > 0;) length = length << 8 | head[i];
  if (length > MOST_HEADER || length > size - 8)
    return refuse_input(err, errcap, "not a safetensors file, or cut short: a header of %llu bytes in a file of %zu",
                        (unsigned long long)length, size);
  json_t *json = json_loadb((const char *)bytes + 8, (size_t)length, JSON_REJECT_DUPLICATES, &why);
  if (!json) return refuse_input(err, errcap, "the header is not JSON: %s at byte %d", why.text, why.position);
  const char *data = (const char *)bytes + 8 + length, *name, *at = data;
  size_t room = size - 8 - (size_t)length;
  json_t *v;
  int status = 0;
  if (!json_is_object(json)) status = refuse_input(err, errcap, "the header is not a JSON object");
  out->tensor = calloc(json_object_size(json) + 1, sizeof *out->tensor);
  if (!out->tensor) status = refuse_input(err, errcap, "out of memory");
  if (!status) json_object_foreach(json, name, v) {
      if (!strcmp(name, "__metadata__")) continue;
      if ((status = parse_tensor(name, v, data, room, &out->tensor[out->n++], err, errcap))) break;
    }
  json_decref(json);
  if (!status && out->n) qsort(out->tensor, out->n, sizeof *out->tensor, by_place);
  for (size_t i = 0; i < out->n && !status; at += out->tensor[i++].bytes)
    if (out->tensor[i].data != at)
      status = refuse_input(err, errcap, "%s: tensors overlap, or there is a gap between them", out->tensor[i].name);
  if (!status && at != data + room)
    status = refuse_input(err, errcap, "%zu bytes follow the last tensor", (size_t)(data + room - at));
  if (status) safetensors_free(out);
  return status;
}

char *safetensors_header(const struct safetensors *s, size_t *size) {
  json_t *json = json_object();
  size_t at = 0;
  bool good = json != NULL;
  for (size_t i = 0; i < s->n && good; at += s->tensor[i++].bytes) {
    const struct safetensor *t = &s->tensor[i];
    const char *dtype = "";
    size_t end = at + t->bytes;
    json_t *shape = json_array();
    for (int k = 0; k < KINDS; k++)
      if (kinds[k].dtype == t->dtype) dtype = kinds[k].name;
    for (unsigned k = 0; k < t->rank; k++) json_array_append_new(shape, json_integer(t->dim[k]));
    json_t *v = json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", shape, "data_offsets", (json_int_t)at,
                          (json_int_t)end);
    good = v && !json_object_set_new(json, t->name, v);
  }
  char *text = good ? json_dumps(json, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL, *out = NULL;
  size_t length = text ? strlen(text) : 0, padded = (length + 7) & ~(size_t)7;
  if (text && (out = malloc(8 + padded))) {
    for (int i = 0; i < 8; i++) out[i] = (char)(uint8_t)((uint64_t)padded >> (8 * i));
    memcpy(out + 8, text, length); // NOLINT(bugprone-not-null-terminated-result): bytes of a file
    memset(out + 8 + length, ' ', padded - length);
    *size = 8 + padded;
  }
  free(text);
  json_decref(json);
  return out;
}
