/* Making tensors: of one value, from host memory, of evenly spaced numbers. */
#include "internal.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The slot for a new tensor on dev; the call holds a reference on it until it ends. False once the call has failed. */
static bool call_device(struct call *c, db_device *dev) {
  int slot = slot_of(dev);
  if (slot < 0) return call_fail(c, "%s", db_error()), false;
  c->slot = (unsigned)slot;
  c->holds_slot = true;
  return true;
}

db_tensor *db_full_at(DB_AT, db_operand value, db_dtype dtype, db_device *dev, db_list shape) {
  struct call c;
  int64_t dim[MAX_RANK];
  if (!call_begin(&c, "full", file, line, 0, NULL)) return c.result;
  if (!dtype_public(dtype)) return call_fail(&c, "%d is no element type", (int)dtype);
  if (value.kind == DB_OPERAND_TENSOR)
    return call_fail(&c, "the value is a tensor, not a number; db_expand repeats one");
  if (!number_fits(&value, (enum dtype)dtype))
    return call_fail(&c, "%lld does not fit %s", (long long)value.i, db_dtype_name(dtype));
  if (!call_shape(&c, shape, dim) || !call_device(&c, dev)) return c.result;
  return call_end(&c, expr_full(operand_expr(&value, (enum dtype)dtype), shape.n, dim));
}

/* A tensor whose memory holds data. */
static db_tensor *from_host(struct call *c, const void *data, enum dtype t, unsigned rank, const int64_t *dim) {
  int64_t n = dims_numel(rank, dim), id = rt.next_buffer++;
  size_t bytes = (size_t)n * dtype_info[t].size;
  struct uop *size = uop_index(rt.graph, n);
  struct expr e = {.dtype = t, .rank = 1, .dim = {n}};
  e.u = uop_new(rt.graph, OP_BUFFER, t, 1, (union uop_arg){.i = id}, c->slot, &size, 1);
  e = expr_reshape(e, rank, dim);
  struct storage *s = storage_new(c->slot, id, bytes);
  if (!s) return call_fail(c, "%s", db_error());
  struct value *v = bytes && db_buffer_write(s->buffer, 0, data, bytes) ? NULL : value_new(e.u, c->slot, NULL, 0);
  if (!v) {
    storage_release(s);
    return call_fail(c, "%s", db_error());
  }
  value_becomes(v, e.u, s);
  return call_end_value(c, v, t, rank, dim);
}

db_tensor *db_from_at(DB_AT, const void *data, db_dtype dtype, db_device *dev, db_list shape) {
  struct call c;
  int64_t dim[MAX_RANK];
  if (!call_begin(&c, "from", file, line, 0, NULL)) return c.result;
  if (!dtype_public(dtype)) return call_fail(&c, "%d is no element type", (int)dtype);
  if (!call_shape(&c, shape, dim)) return c.result;
  if (!data && dims_numel(shape.n, dim)) return call_fail(&c, "the data is NULL");
  if (!call_device(&c, dev)) return c.result;
  return from_host(&c, data, (enum dtype)dtype, shape.n, dim);
}

static void store_number(enum dtype t, void *data, int64_t at, double v) {
  switch (t) {
  case DT_I8: ((int8_t *)data)[at] = (int8_t)expr_whole(v); break;
  case DT_U8: ((uint8_t *)data)[at] = (uint8_t)expr_whole(v); break;
  case DT_I16: ((int16_t *)data)[at] = (int16_t)expr_whole(v); break;
  case DT_U16: ((uint16_t *)data)[at] = (uint16_t)expr_whole(v); break;
  case DT_I32: ((int32_t *)data)[at] = (int32_t)expr_whole(v); break;
  case DT_U32: ((uint32_t *)data)[at] = (uint32_t)expr_whole(v); break;
  case DT_I64: ((int64_t *)data)[at] = expr_whole(v); break;
  case DT_U64: ((uint64_t *)data)[at] = v >= 0x1p63 && v < 0x1p64 ? (uint64_t)v : (uint64_t)expr_whole(v); break;
  default: {
    uint64_t bits = float_to_bits(t, v); /* little-endian, as the devices are */
    memcpy((char *)data + at * dtype_info[t].size, &bits, dtype_info[t].size);
  }
  }
}

/* Does v convert to t without leaving its range? */
static bool in_range(enum dtype t, double v) {
  if (dtype_is_float(t)) return true;
  int bits = 8 * dtype_info[t].size;
  bool is_signed = dtype_info[t].cls == 'i';
  return v > (is_signed ? -ldexp(1, bits - 1) - 1 : -1) && v < ldexp(1, is_signed ? bits - 1 : bits);
}

db_tensor *db_arange_at(DB_AT, double start, double stop, double step, db_dtype dtype, db_device *dev) {
  struct call c;
  if (!call_begin(&c, "arange", file, line, 0, NULL)) return c.result;
  if (!dtype_public(dtype) || dtype == DB_BOOL)
    return call_fail(&c, "of %s; a numeric type is needed", db_dtype_name(dtype));
  double count = ceil((stop - start) / step);
  if (!(fabs(count) < 1e15)) return call_fail(&c, "from %g to %g by %g has no end", start, stop, step);
  int64_t n = count > 0 ? (int64_t)count : 0;
  enum dtype t = (enum dtype)dtype;
  double last = start + (double)(n - 1) * step;
  if (n && (!in_range(t, start) || !in_range(t, last)))
    return call_fail(&c, "%g does not fit %s", in_range(t, start) ? last : start, db_dtype_name(dtype));
  if (!call_device(&c, dev)) return c.result;
  void *data = malloc((size_t)n * dtype_info[t].size + 1);
  if (!data) return call_fail(&c, "out of memory for %lld elements", (long long)n);
  for (int64_t i = 0; i < n; i++) store_number(t, data, i, start + (double)i * step);
  db_tensor *r = from_host(&c, data, t, 1, &n);
  free(data);
  return r;
}
