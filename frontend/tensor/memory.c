/* Tensors over memory of others, and their memory for others: buffers of hcq.h, and DLPack. */
#include "call.h"
#include "dlpack.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- buffers ---- */

/* A tensor over the memory of buf that starts at byte `offset`. give_back, if any, is called when it is not needed any
 * more, not after an error. */
static db_tensor *over_buffer(struct call *c, db_buffer *buf, size_t offset, enum dtype t, db_list shape,
                              void (*give_back)(void *ctx), void *ctx) {
  int64_t dim[MAX_RANK];
  if (!call_shape(c, shape, dim)) return c->result;
  size_t bytes = (size_t)dims_numel(shape.n, dim) * dtype_info[t].size, size = db_buffer_size(buf);
  if (offset > size || bytes > size - offset)
    return call_fail(c, "%s of %s needs %zu bytes at byte %zu of a buffer of %zu", shape_text(shape.n, dim).s,
                     dtype_info[t].name, bytes, offset, size);
  uint64_t begin = db_buffer_address(buf) + offset;
  if (begin % SLICE_ALIGNMENT || offset % SLICE_ALIGNMENT)
    return call_fail(c, "the elements start at address 0x%llx, which is not a multiple of %d",
                     (unsigned long long)begin, SLICE_ALIGNMENT);
  if (!call_device(c, db_buffer_device(buf))) return c->result;
  struct storage *s = storage_over(c->slot, rt.next_buffer++, buf, offset + bytes, give_back, ctx);
  if (!s) return call_fail(c, "%s", db_error());
  return call_end_storage(c, s, (int64_t)(offset / dtype_info[t].size), t, shape.n, dim);
}

db_tensor *db_from_buffer_at(DB_AT, db_buffer *buf, size_t offset, db_dtype dtype, db_list shape) {
  struct call c;
  if (!call_begin(&c, "from_buffer", file, line, 0, NULL)) return c.result;
  if (!buf) return call_fail(&c, "the buffer is NULL");
  if (!db_dtype_size(dtype)) return call_fail(&c, "%d is not an element type", (int)dtype);
  return over_buffer(&c, buf, offset, (enum dtype)dtype, shape, NULL, NULL);
}

db_buffer *db_buffer_of(db_tensor *t, size_t *offset) {
  db_buffer *buffer = NULL;
  int64_t first = 0;
  pthread_mutex_lock(&rt.lock);
  if (!t || !t->value)
    tensor_error(t, "buffer_of");
  else if (slot_group(t->value->slot))
    db_fail(-EINVAL, "buffer_of: the tensor is on several devices");
  else if (!realize_values(&t->value, 1, true)) {
    const struct storage *s = t->value->storage;
    if (!value_is_contiguous(t->value, &first))
      db_fail(-EPROTO, "buffer_of: the tensor is not in memory");
    else if (!storage_check(s) && !db_device_synchronize(slot_device(s->slot), db_device_timeout(slot_device(s->slot))))
      buffer = s->buffer;
  }
  if (offset && buffer) *offset = (size_t)first * dtype_info[t->dtype].size;
  pthread_mutex_unlock(&rt.lock);
  return buffer;
}

/* ---- DLPack ---- */

static const struct {
  enum dtype dtype;
  uint8_t code, bits;
} types[] = {{DT_BOOL, DLPACK_BOOL, 8},  {DT_I8, DLPACK_INT, 8},       {DT_U8, DLPACK_UINT, 8},
             {DT_I16, DLPACK_INT, 16},   {DT_U16, DLPACK_UINT, 16},    {DT_I32, DLPACK_INT, 32},
             {DT_U32, DLPACK_UINT, 32},  {DT_I64, DLPACK_INT, 64},     {DT_U64, DLPACK_UINT, 64},
             {DT_F16, DLPACK_FLOAT, 16}, {DT_BF16, DLPACK_BFLOAT, 16}, {DT_F32, DLPACK_FLOAT, 32},
             {DT_F64, DLPACK_FLOAT, 64}};
enum { TYPES = sizeof types / sizeof *types };

struct exported {
  DLManagedTensor managed;
  db_tensor *tensor;
  int64_t shape[MAX_RANK], strides[MAX_RANK];
};
static void delete_exported(DLManagedTensor *m) {
  struct exported *e = m->manager_ctx;
  db_release(e->tensor);
  free(e);
}

/* t on the CPU, with a reference that the caller owns; NULL after db_fail. */
static db_tensor *on_host(db_tensor *t) {
  db_device *host = db_open("CPU");
  if (!host) return NULL;
  DB_SCOPED;
  db_tensor *moved = db_retain(db_to(t, host));
  db_close(host);
  return moved;
}

struct DLManagedTensor *db_to_dlpack(db_tensor *t) {
  size_t offset, type = 0;
  if (db_poison(t)) return db_fail_null(-EINVAL, "to_dlpack: %s", db_poison(t));
  while (type < TYPES && types[type].dtype != t->dtype) type++;
  if (type == TYPES) return db_fail_null(-ENOTSUP, "to_dlpack: not supported: %s", dtype_info[t->dtype].name);
  struct exported *e = calloc(1, sizeof *e);
  if (!e) return db_fail_null(-ENOMEM, "to_dlpack: out of memory");
  db_buffer *buffer = (e->tensor = on_host(t)) ? db_buffer_of(e->tensor, &offset) : NULL;
  if (!buffer) {
    delete_exported(&(DLManagedTensor){.manager_ctx = e});
    return NULL;
  }
  int64_t step = 1;
  for (unsigned i = t->rank; i-- > 0; step *= e->shape[i]) e->shape[i] = db_dim(t, (int)i), e->strides[i] = step;
  e->managed = (DLManagedTensor){{(char *)db_buffer_host(buffer) + offset,
                                  {DLPACK_CPU, 0},
                                  (int32_t)t->rank,
                                  {types[type].code, types[type].bits, 1},
                                  e->shape,
                                  e->strides,
                                  0},
                                 e,
                                 delete_exported};
  return &e->managed;
}

static void delete_imported(void *ctx) {
  DLManagedTensor *m = ctx;
  if (m->deleter) m->deleter(m);
}

/* Whether strides are those of row-major elements. */
static bool is_row_major(const DLTensor *d) {
  int64_t step = 1;
  for (int i = d->ndim; i-- > 0 && d->strides; step *= d->shape[i])
    if (d->shape[i] != 1 && d->strides[i] != step) return false;
  return true;
}

/* Copies the elements to row-major order. */
static void copy_elements(const DLTensor *d, size_t size, int64_t n, char *to) {
  int64_t at[MAX_RANK] = {0};
  const char *from = (const char *)d->data + d->byte_offset;
  for (int64_t k = 0; k < n; k++, to += size) {
    int64_t place = 0;
    for (int i = 0; i < d->ndim; i++) place += at[i] * d->strides[i];
    memcpy(to, from + place * (int64_t)size, size);
    for (int i = d->ndim - 1; i >= 0; i--) {
      at[i]++;
      if (at[i] < d->shape[i]) break;
      at[i] = 0;
    }
  }
}

/* Checks what the call accepts and stores its type. */
static bool dlpack_fits(struct call *c, const DLManagedTensor *m, enum dtype *t) {
  if (!m) return call_fail(c, "the DLPack tensor is NULL"), false;
  const DLTensor *d = &m->dl_tensor;
  int32_t where = d->device.device_type;
  if (where != DLPACK_CPU && where != DLPACK_CUDA_HOST && where != DLPACK_ROCM_HOST)
    return call_fail(c, "not supported: memory of DLPack's device type %d; copy it to the host", where), false;
  if (d->ndim < 0 || d->ndim > MAX_RANK)
    return call_fail(c, "%d axes; at most %d are possible", d->ndim, MAX_RANK), false;
  for (size_t i = 0; i < TYPES; i++) {
    if (types[i].code != d->dtype.code || types[i].bits != d->dtype.bits || d->dtype.lanes != 1) continue;
    *t = types[i].dtype;
    return true;
  }
  return call_fail(c, "not supported: elements of DLPack's type %u with %u bits and %u lanes", d->dtype.code,
                   d->dtype.bits, d->dtype.lanes),
         false;
}

db_tensor *db_from_dlpack_at(DB_AT, struct DLManagedTensor *m, db_device *dev) {
  struct call c;
  enum dtype t;
  int64_t dim[MAX_RANK];
  if (!call_begin(&c, "from_dlpack", file, line, 0, NULL)) return c.result;
  if (!dlpack_fits(&c, m, &t)) return c.result;
  const DLTensor *d = &m->dl_tensor;
  db_list shape = {(unsigned)d->ndim, d->shape};
  if (!call_shape(&c, shape, dim)) return c.result;
  int64_t n = dims_numel(shape.n, dim);
  size_t bytes = (size_t)n * dtype_info[t].size;
  char *data = (char *)d->data + d->byte_offset;
  if (!call_device(&c, dev)) return c.result;
  db_device *on = slot_device(c.slot);
  if (!strncmp(db_device_name(on), "CPU", 3) && n && is_row_major(d) && (uintptr_t)data % SLICE_ALIGNMENT == 0) {
    db_buffer *buffer = db_import_host(on, data, bytes);
    if (!buffer) return call_fail(&c, "%s", db_error());
    db_tensor *x = over_buffer(&c, buffer, 0, t, shape, delete_imported, m);
    db_buffer_release(buffer);
    return x;
  }
  call_leave(&c);
  char *copy = is_row_major(d) ? NULL : malloc(bytes + 1);
  if (!copy && !is_row_major(d))
    return call_begin(&c, "from_dlpack", file, line, 0, NULL) ? call_fail(&c, "out of memory") : c.result;
  if (copy) copy_elements(d, dtype_info[t].size, n, copy);
  db_tensor *x = db_from_at(file, line, copy ? copy : data, (db_dtype)t, dev, shape);
  free(copy);
  if (!db_poison(x)) delete_imported(m);
  return x;
}
