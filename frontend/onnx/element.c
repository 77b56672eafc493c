/* Types of elements, and tensors of an ONNX file as arrays. */
#include "model.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* In which field of TensorProto the elements are if they are not in raw_data. */
enum field { NO_FIELD, FLOATS, INT32S, INT64S, DOUBLES, UINT64S };
static const struct {
  const char *name;
  db_dtype dtype; /* DB_NONE: not supported */
  unsigned bits;
  enum field field;
  struct onnx_float format; /* of floats with at most 8 bits and a sign */
} elements[] = {
    [1] = {"FLOAT", DB_F32, 32, FLOATS},
    [2] = {"UINT8", DB_U8, 8, INT32S},
    [3] = {"INT8", DB_I8, 8, INT32S},
    [4] = {"UINT16", DB_U16, 16, INT32S},
    [5] = {"INT16", DB_I16, 16, INT32S},
    [6] = {"INT32", DB_I32, 32, INT32S},
    [7] = {"INT64", DB_I64, 64, INT64S},
    [8] = {"STRING"},
    [9] = {"BOOL", DB_BOOL, 8, INT32S},
    [10] = {"FLOAT16", DB_F16, 16, INT32S},
    [11] = {"DOUBLE", DB_F64, 64, DOUBLES},
    [12] = {"UINT32", DB_U32, 32, UINT64S},
    [13] = {"UINT64", DB_U64, 64, UINT64S},
    [14] = {"COMPLEX64"},
    [15] = {"COMPLEX128"},
    [16] = {"BFLOAT16", DB_BF16, 16, INT32S},
    [17] = {"FLOAT8E4M3FN", DB_F8E4M3, 8, INT32S, {.fraction = 3, .least = -6, .most = 448, .nan = true}},
    [18] = {"FLOAT8E4M3FNUZ", DB_F32, 8, INT32S, {.fraction = 3, .least = -7, .most = 240, .nan = true, .fnuz = true}},
    [19] = {"FLOAT8E5M2", DB_F8E5M2, 8, INT32S, {.fraction = 2, .least = -14, .most = 57344, .nan = true}},
    [20] =
        {"FLOAT8E5M2FNUZ", DB_F32, 8, INT32S, {.fraction = 2, .least = -15, .most = 57344, .nan = true, .fnuz = true}},
    [21] = {"UINT4", DB_U8, 4, INT32S},
    [22] = {"INT4", DB_I8, 4, INT32S},
    [23] = {"FLOAT4E2M1", DB_F32, 4, INT32S, {.fraction = 1, .least = 0, .most = 6}},
    [ONNX_FLOAT8E8M0] = {"FLOAT8E8M0", DB_F32, 8, INT32S},
    [25] = {"UINT2", DB_U8, 2, INT32S},
    [26] = {"INT2", DB_I8, 2, INT32S},
    [27] = {"FLOAT6E2M3", DB_F32, 6, INT32S, {.fraction = 3, .least = 0, .most = 7.5}},
    [28] = {"FLOAT6E3M2", DB_F32, 6, INT32S, {.fraction = 2, .least = -2, .most = 28}},
};
enum { ELEMENTS = sizeof elements / sizeof *elements };

const char *onnx_element_name(int32_t element, char unknown[24]) {
  if (element > 0 && element < ELEMENTS && elements[element].name) return elements[element].name;
  snprintf(unknown, 24, "type %d", element);
  return unknown;
}
db_dtype onnx_element_dtype(int32_t element) {
  return element > 0 && element < ELEMENTS ? elements[element].dtype : DB_NONE;
}

unsigned onnx_element_bits(int32_t element) { return element > 0 && element < ELEMENTS ? elements[element].bits : 0; }

const struct onnx_float *onnx_element_float(int32_t element) {
  return element > 0 && element < ELEMENTS && elements[element].format.fraction ? &elements[element].format : NULL;
}

int32_t onnx_element_held(int32_t element) {
  return onnx_element_bits(element) < 8 * db_dtype_size(onnx_element_dtype(element)) ? element : 0;
}

int32_t onnx_element_of(db_dtype t) {
  for (int32_t element = 1; element < ELEMENTS; element++)
    if (elements[element].dtype == t && !onnx_element_held(element)) return element;
  return 0;
}

/* ---- external data ---- */

void onnx_files_free(struct onnx_files *f) {
  for (unsigned i = 0; i < f->n; i++) free(f->file[i].name), unmap_file(&f->file[i].m);
  free(f->file);
  f->file = NULL, f->n = 0;
}

/* Whether a path, with links resolved, is inside the folder. */
static bool is_inside(const char *folder, const char *path) {
  char *a = realpath(folder, NULL), *b = realpath(path, NULL);
  size_t n = a ? strlen(a) : 0;
  bool inside = a && b && !strncmp(a, b, n) && (b[n] == '/' || (n && a[n - 1] == '/'));
  free(a), free(b);
  return inside;
}

static int open_external(struct onnx_files *f, const char *name, struct mapping *out, char *err, size_t cap) {
  char path[PATH_MAX];
  for (unsigned i = 0; i < f->n; i++)
    if (!strcmp(f->file[i].name, name)) return *out = f->file[i].m, 0;
  if (!f->folder) return refuse_input(err, cap, "its data is in another file, '%s', and the model in none", name);
  if (snprintf(path, sizeof path, "%s/%s", f->folder, name) >= (int)sizeof path)
    return refuse_input(err, cap, "the name of its file is too long");
  if (name[0] == '/') return refuse_input(err, cap, "its file '%s' is not in the model's folder", name);
  struct onnx_file *more = realloc(f->file, (f->n + 1) * sizeof *more), one = {strdup(name), {0}};
  if (more) f->file = more;
  int status = !more || !one.name ? refuse_input(err, cap, "out of memory") : 0;
  if (!status && map_file(path, &one.m)) status = refuse_input(err, cap, "%s", db_error());
  if (!status && !is_inside(f->folder, path))
    status = refuse_input(err, cap, "its file '%s' is not in the model's folder", name);
  if (status) {
    unmap_file(&one.m);
    free(one.name);
    return status;
  }
  f->file[f->n++] = one;
  *out = one.m;
  return 0;
}

static bool parse_size(const char *text, size_t *out) {
  char *end;
  errno = 0;
  unsigned long long v = strtoull(text, &end, 10);
  *out = v;
  return !errno && *text >= '0' && *text <= '9' && !*end;
}

static int external_data(const Onnx__Tensor *t, size_t bytes, struct onnx_files *f, const void **out, char *err,
                         size_t cap) {
  const char *name = NULL;
  size_t offset = 0, length = bytes;
  struct mapping m = {0};
  for (size_t i = 0; i < t->n_external_data; i++) {
    const char *key = t->external_data[i]->key, *value = t->external_data[i]->value;
    if (!key || !value) continue;
    if (!strcmp(key, "location")) name = value;
    if ((!strcmp(key, "offset") && !parse_size(value, &offset)) ||
        (!strcmp(key, "length") && !parse_size(value, &length)))
      return refuse_input(err, cap, "the %s of its data is '%.40s'", key, value);
  }
  if (!name || !*name) return refuse_input(err, cap, "its data is in another file, but the file has no name");
  int status = open_external(f, name, &m, err, cap);
  if (status) return status;
  if (length != bytes) return refuse_input(err, cap, "%zu bytes of data, but its shape needs %zu", length, bytes);
  if (offset > m.size || bytes > m.size - offset)
    return refuse_input(err, cap, "%zu bytes at %zu of '%s', but the file has %zu", bytes, offset, name, m.size);
  *out = bytes ? (const void *)((const uint8_t *)m.bytes + offset) : "";
  return 0;
}

/* ---- arrays ---- */

/* The number that the bits of a float encode. */
static float decode_float(int32_t element, unsigned bits) {
  const struct onnx_float *f = onnx_element_float(element);
  if (!f) return bits == 0xff ? NAN : ldexpf(1, (int)bits - 127); /* FLOAT8E8M0: the exponent */
  unsigned sign = 1U << (elements[element].bits - 1), magnitude = bits & (sign - 1), one = 1U << f->fraction;
  int exponent = (int)(magnitude / one);
  float value =
      ldexpf((float)(magnitude % one) / (float)one + (exponent > 0), f->least + (exponent ? exponent - 1 : 0));
  if (f->fnuz && bits == sign) return NAN;
  return bits & sign ? -value : value;
}

/* Elements in the type of tensors that holds them: integers as bytes, floats as f32. Element i has its bits from bit
 * i * stride. */
static void *unpack(int32_t element, const uint8_t *packed, size_t count, unsigned stride) {
  unsigned bits = elements[element].bits, unused = 8 - bits;
  db_dtype t = elements[element].dtype;
  size_t size = db_dtype_size(t), bytes = (count * stride + 7) / 8;
  uint8_t *out = malloc(count * size + 1);
  float value[256];
  for (unsigned v = 0; t == DB_F32 && v < 1U << bits; v++) value[v] = decode_float(element, v);
  for (size_t i = 0; out && i < count; i++) {
    size_t at = i * stride / 8;
    unsigned both = packed[at] | (at + 1 < bytes ? packed[at + 1] : 0U) << 8;
    uint8_t v = (uint8_t)(both >> (i * stride % 8) << unused);
    if (t == DB_F32)
      memcpy(out + i * size, &value[v >> unused], size);
    else
      out[i] = t == DB_I8 ? (uint8_t)((int8_t)v >> unused) : v >> unused;
  }
  return out;
}

/* Keeps the low bytes of each number. */
static void *narrow(const void *numbers, size_t count, size_t from, size_t to) {
  uint8_t *out = calloc(count + 1, to);
  for (size_t i = 0; out && i < count; i++) memcpy(out + i * to, (const uint8_t *)numbers + i * from, to);
  return out;
}

/* Elements in the field of their type. Numbers of that field contain whole bytes of `stride` bits for each element. */
static int typed_data(const Onnx__Tensor *t, size_t count, unsigned stride, struct onnx_array *out, char *err,
                      size_t cap) {
  const struct {
    const void *data;
    size_t n, size;
  } all[] = {[FLOATS] = {t->float_data, t->n_float_data, 4},
             [INT32S] = {t->int32_data, t->n_int32_data, 4},
             [INT64S] = {t->int64_data, t->n_int64_data, 8},
             [DOUBLES] = {t->double_data, t->n_double_data, 8},
             [UINT64S] = {t->uint64_data, t->n_uint64_data, 8}},
    *f = &all[elements[t->data_type].field];
  size_t want = stride < 8 ? (count * stride + 7) / 8 : count, item = stride < 8 ? 1 : stride / 8;
  if (f->n != want) return refuse_input(err, cap, "%zu elements of data, but its shape needs %zu", f->n, want);
  out->data = f->data;
  if (item != f->size) out->data = out->own = narrow(f->data, want, f->size, item);
  return out->data || !want ? 0 : refuse_input(err, cap, "out of memory");
}

static int shape_of(const Onnx__Tensor *t, struct onnx_array *out, size_t *count, char *err, size_t cap) {
  *count = 1;
  if (t->n_dims > ONNX_RANK) return refuse_input(err, cap, "not supported: %zu axes", t->n_dims);
  out->rank = (unsigned)t->n_dims;
  for (unsigned i = 0; i < out->rank; i++) {
    out->dim[i] = t->dims[i];
    if (t->dims[i] < 0 || __builtin_mul_overflow(*count, (size_t)t->dims[i], count) || *count > SIZE_MAX / 64)
      return refuse_input(err, cap, "the sizes of its axes are negative or too large");
  }
  return 0;
}

int onnx_array_of(const Onnx__Tensor *t, struct onnx_files *files, struct onnx_array *out, char *err, size_t cap) {
  enum { EXTERNAL = 1 };
  char unknown[24];
  size_t count;
  *out = (struct onnx_array){.dtype = onnx_element_dtype(t->data_type)};
  if (out->dtype == DB_NONE)
    return refuse_input(err, cap, "not supported: elements of type %s", onnx_element_name(t->data_type, unknown));
  int status = shape_of(t, out, &count, err, cap);
  if (status) return status;
  unsigned bits = elements[t->data_type].bits, stride = bits;
  size_t bytes = (count * bits + 7) / 8;
  if (t->data_location == EXTERNAL) {
    status = external_data(t, bytes, files, &out->data, err, cap);
  } else if (!t->has_raw_data) {
    if (bits == 6) stride = 8; /* numbers contain one element */
    status = typed_data(t, count, stride, out, err, cap);
  } else if (t->raw_data.len != bytes) {
    status = refuse_input(err, cap, "%zu bytes of data, but its shape needs %zu", t->raw_data.len, bytes);
  } else {
    out->data = t->raw_data.data;
  }
  if (!status && !out->data) out->data = ""; /* no elements */
  if (!status && onnx_element_held(t->data_type)) {
    void *packed = out->own;
    out->data = out->own = unpack(t->data_type, out->data, count, stride);
    free(packed);
    if (!out->data) status = refuse_input(err, cap, "out of memory");
  }
  if (status) free(out->own), out->own = NULL;
  return status;
}
