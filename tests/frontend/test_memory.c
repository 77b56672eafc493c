/* Tensors over memory of others, DLPack, and tensors as text. */
#include "support.h"
#include "../../frontend/tensor/dlpack.h"

/* A tensor reads and writes a buffer, and a tensor's buffer can be used by hcq.h. */
static void buffers(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    db_buffer *buf = db_alloc(dev, 4096, 0);
    float data[16], got[16];
    for (int i = 0; i < 16; i++) data[i] = (float)i;
    assert_int_equal(db_buffer_write(buf, 0, data, sizeof data), 0);
    {
      DB_SCOPED;
      db_tensor *x = db_from_buffer(buf, 0, DB_F32, 4, 4), *part = db_from_buffer(buf, 32, DB_F32, 2, 2);
      EXPECT_FLOATS(db_sum(x, 1), 6, 22, 38, 54);
      EXPECT_FLOATS(db_mul(part, 2), 16, 18, 20, 22);
      db_assign(x, db_add(x, 1));
      assert_int_equal(db_realize(x), 0);
      assert_int_equal(db_device_synchronize(dev, db_device_timeout(dev)), 0);
      assert_int_equal(db_buffer_read(buf, 0, got, sizeof got), 0);
      for (int i = 0; i < 16; i++) assert_true(got[i] == (float)i + 1);
      size_t offset = 1;
      db_tensor *y = db_mul(x, 10), *row = db_shrink(y, 1, 2, 0, 4);
      assert_int_equal(db_realize(y), 0);
      db_buffer *of = db_buffer_of(row, &offset);
      if (!of) fail_msg("%s", db_error());
      assert_ptr_equal(db_buffer_device(of), dev);
      assert_int_equal(db_buffer_read(of, offset, got, 16), 0);
      for (int i = 0; i < 4; i++) assert_true(got[i] == (float)(50 + 10 * i));
      assert_ptr_equal(db_buffer_of(x, &offset), buf);
      assert_contains(db_poison(db_from_buffer(buf, 4080, DB_F32, 5)),
                      "[5] of f32 needs 20 bytes at byte 4080 of a buffer of 4096");
      assert_contains(db_poison(db_from_buffer(buf, 4, DB_F32, 5)), "not a multiple of 16");
      assert_contains(db_poison(db_from_buffer(NULL, 0, DB_F32, 5)), "the buffer is NULL");
      assert_null(db_buffer_of(db_from_buffer(NULL, 0, DB_F32, 5), NULL));
    }
    db_buffer_release(buf);
    db_close(dev);
  }
}

static unsigned deleted;
static void count_deleted(DLManagedTensor *m) { deleted++; }

static void dlpack_in(void **state) {
  static _Alignas(16) float data[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  int64_t shape[] = {2, 3}, strides[] = {1, 4};
  DLManagedTensor m = {{data, {DLPACK_CPU, 0}, 2, {DLPACK_FLOAT, 32, 1}, shape, NULL, 16}, NULL, count_deleted};
  deleted = 0;
  {
    DB_SCOPED;
    db_tensor *x = db_from_dlpack(&m, NULL);
    EXPECT_FLOATS(x, 4, 5, 6, 7, 8, 9);
    db_assign(x, db_neg(x)); /* in m's memory */
    assert_int_equal(db_realize(x), 0);
    EXPECT_FLOATS(x, -4, -5, -6, -7, -8, -9);
    assert_true(data[4] == -4 && data[9] == -9 && data[3] == 3);
    assert_int_equal(deleted, 0);
  }
  assert_int_equal(deleted, 1);
  m.dl_tensor.byte_offset = 0, m.dl_tensor.strides = strides;
  FOR_DEVICES {
    DB_SCOPED;
    db_device *dev = open_device(DEVICE_NAME);
    EXPECT_FLOATS(db_from_dlpack(&m, dev), 0, -4, -8, 1, -5, -9); /* copied */
    db_close(dev);
    assert_int_equal(deleted, 2 + d_);
  }
  DB_SCOPED;
  unsigned before = deleted;
  m.dl_tensor.device.device_type = 2;
  assert_contains(db_poison(db_from_dlpack(&m, NULL)), "DLPack's device type 2; copy it to the host");
  m.dl_tensor.device.device_type = DLPACK_CPU, m.dl_tensor.dtype.bits = 4;
  assert_contains(db_poison(db_from_dlpack(&m, NULL)), "type 2 with 4 bits and 1 lanes");
  m.dl_tensor.dtype.bits = 32, m.dl_tensor.ndim = 99;
  assert_contains(db_poison(db_from_dlpack(&m, NULL)), "99 axes");
  assert_contains(db_poison(db_from_dlpack(NULL, NULL)), "the DLPack tensor is NULL");
  assert_int_equal(deleted, before);
}

/* The owner's function releases a tensor, and kernels that use the memory have not finished. */
static void dlpack_of_dlpack(void **state) {
  db_device *dev = open_device("CPU");
  db_tensor *sum = NULL;
  {
    DB_SCOPED;
    db_tensor *x = db_contiguous(db_ones(DB_F32, dev, 1 << 20)), *y = db_from_dlpack(db_to_dlpack(x), NULL);
    sum = db_retain(db_sum(db_exp(db_mul(y, 0))));
    assert_int_equal(db_realize(sum), 0);
  }
  EXPECT_FLOATS(sum, 1 << 20);
  db_release(sum);
  db_close(dev);
}

static void dlpack_out(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    DLManagedTensor *m;
    {
      DB_SCOPED;
      m = db_to_dlpack(db_cast(db_transpose(db_reshape(db_arange(0, 6, 1, DB_F32, dev), 2, 3), 0, 1), DB_I16));
      if (!m) fail_msg("%s", db_error());
      assert_null(db_to_dlpack(db_zeros(DB_F8E4M3, dev, 2)));
      assert_contains(db_error(), "not supported: f8e4m3");
    }
    const DLTensor *d = &m->dl_tensor;
    static const int16_t want[] = {0, 3, 1, 4, 2, 5};
    assert_true(d->ndim == 2 && d->shape[0] == 3 && d->shape[1] == 2 && d->strides[0] == 2 && d->strides[1] == 1);
    assert_true(d->dtype.code == DLPACK_INT && d->dtype.bits == 16 && d->dtype.lanes == 1);
    assert_memory_equal((char *)d->data + d->byte_offset, want, sizeof want);
    m->deleter(m);
    db_close(dev);
  }
}

static void expect_text(db_tensor *t, const char *want) {
  char *text = db_text(t);
  if (!text) fail_msg("%s", db_error());
  assert_string_equal(text, want);
  free(text);
}

static void texts(void **state) {
  DB_SCOPED;
  expect_text(db_from(((float[]){1, -2.5f, 1e10f, 0.1f}), DB_F32, NULL, 2, 2), "[[    1,  -2.5],\n [1e+10,   0.1]]");
  expect_text(db_full(7, DB_U64, NULL), "7");
  expect_text(db_full(true, DB_BOOL, NULL, 1, 2), "[[true, true]]");
  expect_text(db_zeros(DB_F32, NULL, 0), "[]");
  expect_text(db_arange(0, 2000, 1, DB_I32, NULL), "[   0,    1,    2, ..., 1997, 1998, 1999]");
  expect_text(db_reshape(db_arange(0, 8, 1, DB_F16, NULL), 2, 2, 2), "[[[0, 1],\n  [2, 3]],\n [[4, 5],\n  [6, 7]]]");
  expect_text(db_reshape(db_arange(0, 2002, 1, DB_I64, NULL), 1001, 2),
              "[[   0,    1],\n [   2,    3],\n [   4,    5],\n ...,\n [1996, 1997],\n [1998, 1999],\n [2000, 2001]]");
  db_tensor *bad = db_reshape(db_zeros(DB_F32, NULL, 2), 3);
  assert_null(db_text(bad));
  assert_contains(db_error(), "reshape at");
  assert_int_not_equal(db_print(bad), 0);
  assert_string_equal(db_shape_text(bad), "poisoned");
  assert_string_equal(db_shape_text(db_zeros(DB_BF16, NULL, 2, 3)), "bf16 [2, 3]");
  double got[2];
  assert_int_equal(db_read_as(db_from(((int8_t[]){-3, 4}), DB_I8, NULL, 2), DB_F64, got, sizeof got), 0);
  assert_true(got[0] == -3 && got[1] == 4);
  assert_int_not_equal(db_read_as(bad, DB_F64, got, sizeof got), 0);
  assert_int_not_equal(db_read_as(db_zeros(DB_I8, NULL, 2), DB_F64, got, 8), 0);
  assert_contains(db_error(), "8 bytes were requested");
}

static int finish(void **state) { return db_shutdown(); }
int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(buffers), cmocka_unit_test(dlpack_in),
                                     cmocka_unit_test(dlpack_of_dlpack), cmocka_unit_test(dlpack_out),
                                     cmocka_unit_test(texts)};
  return cmocka_run_group_tests_name("memory", tests, NULL, finish);
}
