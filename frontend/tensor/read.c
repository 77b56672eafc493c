/* Queries of tensors (shape, type, device), and reading of their values, which realizes them. */
#include "call.h"
#include "../run/capture.h"
#include "../run/exchange.h"
#include "../run/report.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- queries ---- */

unsigned db_rank(const db_tensor *t) { return t ? t->rank : 0; }
int64_t db_dim(const db_tensor *t, int axis) {
  int a = t ? axis_of(axis, t->rank) : -1;
  return a < 0 ? 0 : t->dim[a] >= 0 ? t->dim[a] : db_size_value(t->dim[a]);
}
int64_t db_numel(const db_tensor *t) {
  int64_t n = t && t->value;
  for (unsigned i = 0; n && i < t->rank; i++) n *= db_dim(t, (int)i);
  return n;
}
db_dtype db_dtype_of(const db_tensor *t) { return t ? (db_dtype)t->dtype : DB_NONE; }
db_device *db_device_of(const db_tensor *t) { return t && t->value ? slot_device(t->value->slot) : NULL; }
const char *db_poison(const db_tensor *t) { return !t ? "the tensor is NULL" : t->poison ? t->poison->text : NULL; }
_Static_assert((int)DB_F64 == DT_F64 && (int)DB_F8E4M3 == DT_F8E4M3 && (int)DB_F8E5M2 == DT_F8E5M2,
               "public types are the graph's");
const char *db_dtype_name(db_dtype t) { return t >= DB_BOOL && t <= DB_F8E5M2 ? dtype_info[t].name : "?"; }
size_t db_dtype_size(db_dtype t) { return t >= DB_BOOL && t <= DB_F8E5M2 ? dtype_info[t].size : 0; }

const char *db_dim_text(const db_tensor *t, int axis) {
  static _Thread_local struct dim_text text;
  int a = t ? axis_of(axis, t->rank) : -1;
  pthread_mutex_lock(&rt.lock);
  text = a < 0 ? (struct dim_text){""} : dim_text(t->dim[a]);
  pthread_mutex_unlock(&rt.lock);
  return text.s;
}

/* ---- reading ---- */

int db_realize_all(db_tensor *const *t, unsigned n) {
  if (n && !t) return db_fail(-EINVAL, "realize: the array of %u tensors is NULL", n);
  struct value *few[8], **v = n <= 8 ? few : malloc(n * sizeof *v);
  if (!v) return db_fail(-ENOMEM, "realize: out of memory for a list of %u tensors", n);
  pthread_mutex_lock(&rt.lock);
  int err = 0;
  for (unsigned i = 0; i < n && !err; i++) {
    if (!t[i] || !t[i]->value)
      err = tensor_error(t[i], "realize");
    else
      v[i] = t[i]->value;
  }
  if (!err && n) err = realize_values(v, n, false);
  pthread_mutex_unlock(&rt.lock);
  if (v != few) free(v);
  return err;
}

static int read_value(const struct value *v, void *dst, size_t size) {
  int64_t at;
  if (!value_is_contiguous(v, &at)) return db_fail(-EPROTO, "read: the tensor is not in memory");
  int err = db_buffer_read(v->storage->buffer, (size_t)at * dtype_info[v->expr->dtype].size, dst, size);
  if (!err) err = storage_check(v->storage);
  if (!err) err = reports_settle(false);
  return err ? err : world_check();
}

/* Reads part by part. A part that was split along an axis has one run of bytes for each combination of the indices
 * before that axis. */
static int read_parts(const db_tensor *t, void *dst, size_t size) {
  const struct value *v = t->value;
  int axis = (int)v->real->arg.i;
  if (axis < 0) return read_value(v->part[0], dst, size);
  size_t rows = 1, row, at = 0;
  for (int i = 0; i < axis; i++) rows *= (size_t)dim_value(t->dim[i]);
  row = size / rows;
  char *buffer = malloc(size);
  int err = buffer ? 0 : db_fail(-ENOMEM, "read: out of memory for %zu bytes", size);
  for (unsigned i = 0; i < value_count(v) && !err; i++) {
    size_t mine = row / (size_t)t->dim[axis] * (size_t)v->part[i]->real->shape->dim[axis]->arg.i;
    if (mine) err = read_value(v->part[i], buffer, rows * mine);
    for (size_t r = 0; r < rows && !err; r++) memcpy((char *)dst + r * row + at, buffer + r * mine, mine);
    at += mine;
  }
  free(buffer);
  return err;
}

int db_read(db_tensor *t, void *dst, size_t bytes) {
  capture_host_read();
  pthread_mutex_lock(&rt.lock);
  int err = 0;
  if (!t || !t->value) {
    err = tensor_error(t, "read");
  } else {
    size_t size = (size_t)dim_value(dims_numel(t->rank, t->dim)) * dtype_info[t->dtype].size;
    if (bytes != size)
      err = db_fail(-EINVAL, "read: %zu bytes were requested, but the tensor %s of %s has %zu", bytes, SHAPE(*t),
                    dtype_info[t->dtype].name, size);
    else if (!dst && size)
      err = db_fail(-EINVAL, "read: the destination is NULL");
    else if (size && !(err = realize_values(&t->value, 1, true)))
      err = t->value->part ? read_parts(t, dst, size) : read_value(t->value, dst, size);
  }
  pthread_mutex_unlock(&rt.lock);
  return err;
}

int db_item(db_tensor *t, double *out) {
  union {
    uint8_t u8;
    int8_t i8;
    int16_t i16;
    uint16_t u16;
    int32_t i32;
    uint32_t u32;
    int64_t i64;
    uint64_t u64;
    float f32;
    double f64;
  } v = {0};
  if (!out) return db_fail(-EINVAL, "item: the pointer for the value is NULL");
  if (t && t->value && db_numel(t) != 1)
    return db_fail(-EINVAL, "item: the tensor is %s and has %lld elements, not one", SHAPE(*t), (long long)db_numel(t));
  int err = db_read(t, &v, t ? dtype_info[t->dtype].size : 0);
  if (err || !t) return err;
  switch (t->dtype) {
  case DT_BOOL:
  case DT_U8: *out = v.u8; break;
  case DT_I8: *out = v.i8; break;
  case DT_I16: *out = v.i16; break;
  case DT_U16: *out = v.u16; break;
  case DT_I32: *out = v.i32; break;
  case DT_U32: *out = v.u32; break;
  case DT_I64: *out = (double)v.i64; break;
  case DT_U64: *out = (double)v.u64; break;
  default: *out = float_from_bits(t->dtype, v.u64); break;
  }
  return 0;
}

void db_watch(void (*fn)(void *ctx, const struct db_command *command), void *ctx) {
  pthread_mutex_lock(&rt.lock);
  rt.watch = fn;
  rt.watch_ctx = ctx;
  pthread_mutex_unlock(&rt.lock);
}
