/* Laziness, ownership, memory, numbers of kernels, several devices, the watcher. */
#include "support.h"
#include <pthread.h>

static float number(int64_t i) { return (float)(i * 37 % 101) / 50 - 1; }
static db_tensor *numbers(db_device *dev, int64_t a, int64_t b) {
  float *x = malloc((size_t)(a * b) * sizeof *x);
  for (int64_t i = 0; i < a * b; i++) x[i] = number(i);
  db_tensor *t = db_from(x, DB_F32, dev, a, b);
  free(x);
  return t;
}

/* ---- kernels ---- */

struct seen {
  unsigned kernels, copies;
  char names[256];
};
static void see(void *ctx, const struct db_command *c) {
  struct seen *s = ctx;
  if (c->is_copy) {
    s->copies++;
    return;
  }
  s->kernels++;
  assert_true(c->end_ns >= c->begin_ns);
  assert_true(c->bytes > 0);
  size_t n = strlen(s->names);
  snprintf(s->names + n, sizeof s->names - n, n ? " %s" : "%s", c->name);
}
static struct seen watched(db_tensor *t) {
  struct seen s = {0};
  db_watch(see, &s);
  int err = db_realize(t);
  db_watch(NULL, NULL);
  if (err) fail_msg("%s", db_error());
  return s;
}

static void kernel_counts(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      struct seen s =
          watched(db_dot(db_from(((float[]){1, 2}), DB_F32, dev, 2), db_from(((float[]){3, 4}), DB_F32, dev, 2)));
      assert_int_equal(s.kernels, 1);
      assert_string_equal(s.names, "r_2");
      assert_int_equal(watched(db_var(db_from(((float[]){1, 2, 3, 4}), DB_F32, dev, 4))).kernels, 1);
      assert_int_equal(watched(db_softmax(numbers(dev, 8, 16), -1)).kernels, 1);
      assert_int_equal(watched(db_softmax(numbers(dev, 128, 64), 0)).kernels, 1);
      assert_int_equal(watched(db_matmul(numbers(dev, 8, 16), numbers(dev, 16, 4))).kernels, 1);
    }
    db_close(dev);
  }
}

/* Softmax times a narrow matrix: each work-item has a row and all of its results. */
static void softmax_times_a_narrow_matrix(void **state) {
  enum { ROWS = 70, LENGTH = 100 };
  for (int64_t width = 1; width <= 16; width += width < 3 ? 1 : 13) FOR_DEVICES {
      db_device *dev = open_device(DEVICE_NAME);
      {
        DB_SCOPED;
        static float x[ROWS * LENGTH], v[LENGTH * 16], got[ROWS * 16];
        for (int i = 0; i < ROWS * LENGTH; i++) x[i] = (float)((i * 37 + 11) % 101) / 25 - 2;
        for (int i = 0; i < LENGTH * 16; i++) v[i] = (float)((i * 53 + 7) % 97) / 50 - 1;
        db_tensor *y =
            db_matmul(db_softmax(db_from(x, DB_F32, dev, ROWS, LENGTH), -1), db_from(v, DB_F32, dev, LENGTH, width));
        assert_int_equal(watched(y).kernels, 1);
        must_read(y, got, sizeof(float) * ROWS * (size_t)width);
        for (int i = 0; i < ROWS; i++) {
          double all = 0, sum[16] = {0};
          for (int k = 0; k < LENGTH; k++) {
            double e = exp((double)x[i * LENGTH + k]);
            all += e;
            for (int64_t j = 0; j < width; j++) sum[j] += e * (double)v[k * width + j];
          }
          for (int64_t j = 0; j < width; j++) assert_float_equal(got[i * width + j], sum[j] / all, 2e-5);
        }
      }
      db_close(dev);
    }
}

static void chain_of_fifty_is_one_kernel(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      float x[64], got[64];
      for (int i = 0; i < 64; i++) x[i] = (float)i / 64;
      db_tensor *y = db_from(x, DB_F32, dev, 64);
      for (int i = 0; i < 25; i++) y = db_add(db_mul(y, 0.5), 1.25);
      assert_int_equal(watched(y).kernels, 1);
      must_read(y, got, sizeof got);
      for (int i = 0; i < 64; i++) {
        for (int k = 0; k < 25; k++) x[i] = x[i] * 0.5f + 1.25f;
        assert_float_equal(got[i], x[i], 1e-6);
      }
    }
    db_close(dev);
  }
}

static void movement_runs_no_kernel(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_tensor *x = numbers(dev, 4, 6);
      assert_int_equal(watched(db_permute(db_reshape(x, 2, 2, 6), 2, 0, 1)).kernels, 0);
      assert_int_equal(watched(db_shrink(x, 1, 3, 0, 2)).kernels, 0);
      float row[6];
      must_read(db_reshape(db_shrink(x, 1, 2, 0, 6), 6), row, sizeof row);
      assert_float_equal(row[0], 20 / 50.0 - 1, 1e-6);
    }
    db_close(dev);
  }
}

/* Expressions built on a tensor before it was realized use the realized value. */
static void realized_values_are_reused(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_tensor *x = numbers(dev, 32, 8), *m = db_matmul(x, db_transpose(x, 0, 1)), *y = db_add(m, 1);
      assert_int_equal(watched(m).kernels, 1);
      struct seen s = watched(y);
      assert_int_equal(s.kernels, 1);
      assert_int_equal(strncmp(s.names, "E_", 2), 0);
      assert_int_equal(watched(y).kernels, 0);
    }
    db_close(dev);
  }
}

static void several_at_once_share_work(void **state) {
  db_device *dev = open_device("CPU");
  {
    DB_SCOPED;
    db_tensor *x = numbers(dev, 16, 16), *m = db_matmul(x, x);
    unsigned before = kernels_so_far(dev);
    assert_int_equal(db_realize(m, db_sum(m), db_relu(m)), 0);
    assert_int_equal(kernels_so_far(dev) - before, 2); /* the product with its relu, the sum */
  }
  db_close(dev);
}

/* ---- values ---- */

static void constants_and_ranges(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      float f[4];
      must_read(db_full(2.5, DB_F32, dev, 2, 2), f, sizeof f);
      for (int i = 0; i < 4; i++) assert_float_equal(f[i], 2.5, 0);
      assert_float_equal(must_item(db_sum(db_ones(DB_F32, dev, 3, 5))), 15, 0);
      assert_float_equal(must_item(db_zeros(DB_U8, dev)), 0, 0);
      int32_t i[4];
      must_read(db_arange(3, 11, 2, DB_I32, dev), i, sizeof i);
      for (int k = 0; k < 4; k++) assert_int_equal(i[k], 3 + 2 * k);
      uint8_t u[3];
      must_read(db_arange(2, -1, -1, DB_U8, dev), u, sizeof u);
      assert_int_equal(u[0], 2);
      assert_int_equal(u[2], 0);
      /* a constant that has to be computed, used on a device that is not the first */
      assert_float_equal(must_item(db_sum(db_mul(db_softmax(db_ones(DB_F32, dev, 4), 0), numbers(dev, 1, 4)))),
                         -0.25 * (4 - (0 + 37 + 74 + 10) / 50.0), 1e-6);
    }
    db_close(dev);
  }
}

/* An expression without memory is computed on its tensor's device, in any order of devices. */
static void constants_on_the_second_device(void **state) {
  FOR_EMULATED_GPU {
    db_device *cpu = open_device("CPU"), *gpu = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_realize(db_ones(DB_F32, cpu, 4));
      db_tensor *hold = db_keep(db_ones(DB_F32, cpu, 4)), *c = db_full(3, DB_F32, gpu, 4, 5), *s = db_sum(c, 1);
      assert_float_equal(must_item(db_sum(db_div(s, db_sum_keep(s)))), 1, 1e-6);
      assert_float_equal(must_item(db_sum(db_matmul(c, db_transpose(c, 0, 1)))), 720, 0);
      assert_ptr_equal(db_device_of(s), gpu);
      db_release(hold);
    }
    db_close(cpu);
    db_close(gpu);
  }
}

/* ---- views of memory, schedules found again ---- */

static void slices_are_views(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      float all[32 * 6], out[12];
      for (int i = 0; i < 32 * 6; i++) all[i] = (float)i;
      db_tensor *x = db_from(all, DB_F32, dev, 32, 6), *slice, *odd;
      {
        DB_SCOPED;
        slice = db_keep(db_shrink(x, 2, 4, 0, 6)); /* 48 bytes in: aligned */
        odd = db_keep(db_shrink(x, 5, 7, 0, 6));   /* 120 bytes in: not */
      }
      assert_int_equal(watched(slice).kernels, 0);
      assert_int_equal(watched(odd).kernels, 0);
      unsigned before = kernels_so_far(dev);
      must_read(slice, out, sizeof out);
      for (int i = 0; i < 12; i++) assert_float_equal(out[i], 12 + i, 0);
      must_read(odd, out, sizeof out);
      for (int i = 0; i < 12; i++) assert_float_equal(out[i], 30 + i, 0);
      must_read(db_contiguous(db_reshape(slice, 3, 4)), out, sizeof out);
      assert_float_equal(out[11], 23, 0);
      assert_float_equal(must_item(db_shrink(x, 31, 32, 5, 6)), 191, 0);
      assert_int_equal(kernels_so_far(dev) - before, 0);
      must_read(db_add(slice, odd), out, sizeof out);
      for (int i = 0; i < 12; i++) assert_float_equal(out[i], 42 + 2 * i, 0);
      must_read(db_transpose(slice, 0, 1), out, sizeof out);
      assert_float_equal(out[1], 18, 0);
    }
    db_close(dev);
  }
}

static void a_view_keeps_its_memory(void **state) {
  db_device *dev = open_device("CPU");
  {
    DB_SCOPED;
    db_tensor *slice, *row;
    {
      DB_SCOPED;
      db_tensor *x = numbers(dev, 64, 64);
      slice = db_keep(db_shrink(x, 8, 16, 0, 64));
      assert_int_equal(db_realize(slice), 0);
      row = db_keep(db_shrink(slice, 1, 2, 0, 64));
    }
    db_realize(numbers(dev, 64, 64), db_zeros(DB_F32, dev, 64, 64)); /* would reuse memory that is free */
    assert_float_equal(must_item(db_shrink(slice, 0, 1, 3, 4)), number(8 * 64 + 3), 1e-6);
    assert_float_equal(must_item(db_shrink(row, 0, 1, 5, 6)), number(9 * 64 + 5), 1e-6);
  }
  db_close(dev);
}

/* The batches of a data set share one schedule; another constant gives another one. */
static void schedules_are_found_again(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      struct db_cache_counters c0, c1;
      db_tensor *x = numbers(dev, 64, 8), *w = numbers(dev, 8, 8);
      db_cache_counters(&c0);
      for (int i = 0; i < 8; i++) {
        DB_SCOPED;
        db_tensor *batch = db_shrink(x, 8 * i, 8 * i + 8, 0, 8), *y = db_relu(db_matmul(batch, w));
        float got[64], in[64], weight[64];
        must_read(y, got, sizeof got);
        must_read(batch, in, sizeof in);
        must_read(w, weight, sizeof weight);
        for (int r = 0; r < 8; r++)
          for (int c = 0; c < 8; c++) {
            float sum = 0;
            for (int k = 0; k < 8; k++) sum += in[8 * r + k] * weight[8 * k + c];
            assert_float_equal(got[8 * r + c], sum > 0 ? sum : 0, 1e-5);
          }
      }
      db_cache_counters(&c1);
      assert_int_equal(c1.made - c0.made, 1);
      assert_int_equal(c1.found - c0.found, 7);
      assert_true(c1.kernels - c0.kernels <= 1);
      assert_float_equal(must_item(db_sum(db_mul(w, 0))), 0, 0);
      assert_float_equal(must_item(db_sum(db_add(db_mul(w, 0), 1))), 64, 0);
      assert_float_equal(must_item(db_sum(db_add(db_mul(w, 0), 2))), 128, 0);
      db_cache_counters(&c0);
      assert_int_equal(c0.made - c1.made, 3);
    }
    db_close(dev);
  }
}

static void the_cache_is_bounded(void **state) {
  struct db_cache_counters c;
  for (int i = 0; i < 600; i++) {
    DB_SCOPED;
    assert_int_equal(db_realize(db_add(db_zeros(DB_F32, NULL, 0, i), i)), 0);
  }
  db_cache_counters(&c);
  assert_true(c.schedules <= 256);
  assert_true(c.evicted >= 300);
}

/* A released device slot is reused by another device: code compiled for the first device is not used again. */
static void schedules_go_with_their_device(void **state) {
  const char *name[] = {"CPU", EMULATED, "CPU"};
  for (int i = 0; i < 3; i++) {
    db_device *dev = open_device(name[i]);
    {
      DB_SCOPED;
      db_tensor *x = numbers(dev, 4, 4);
      db_close(dev);
      assert_float_equal(must_item(db_sum(db_add(db_mul(x, 0), 3))), 48, 0);
    }
  }
}

/* ---- no elements, one element ---- */

static void sizes_of_zero(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      float f[6];
      int64_t i[3];
      db_tensor *none = db_zeros(DB_F32, dev, 0, 3), *given = db_from(NULL, DB_F32, dev, 0, 3);
      assert_int_equal(db_numel(none), 0);
      assert_int_equal(db_read(none, NULL, 0), 0);
      assert_int_equal(db_read(given, f, 0), 0);
      assert_int_equal(db_read(none, f, 4), -EINVAL);
      db_tensor *sum = db_add(db_mul(none, given), db_ones(DB_F32, dev, 1, 3));
      assert_int_equal(db_dim(sum, 0), 0);
      assert_int_equal(db_dim(sum, 1), 3);
      assert_int_equal(watched(sum).kernels, 0);
      assert_int_equal(db_read(db_contiguous(db_exp(sum)), NULL, 0), 0);
      /* movement */
      assert_int_equal(db_dim(db_permute(db_flip(none, 0), 1, 0), 1), 0);
      assert_int_equal(db_dim(db_reshape(none, 5, 0, 7), 2), 7);
      assert_int_equal(db_dim(db_expand(db_ones(DB_F32, dev, 1, 3), 0, 3), 0), 0);
      db_tensor *x = numbers(dev, 2, 3), *slice = db_shrink(x, 1, 1, 0, 3);
      assert_int_equal(db_realize(slice), 0);
      assert_int_equal(db_read(slice, NULL, 0), 0);
      must_read(db_pad_with(slice, 2.5, 1, 1, 0, 0), f, sizeof f);
      for (int k = 0; k < 6; k++) assert_float_equal(f[k], 2.5, 0);
      must_read(db_pad(given, 2, 0, 0, 0), f, sizeof f);
      for (int k = 0; k < 6; k++) assert_float_equal(f[k], 0, 0);
      /* reductions */
      assert_float_equal(must_item(db_sum(none)), 0, 0);
      must_read(db_sum(given, 0), f, 3 * sizeof *f);
      assert_float_equal(f[2], 0, 0);
      must_read(db_prod(db_from(NULL, DB_I32, dev, 0, 3), 0), i, sizeof i);
      for (int k = 0; k < 3; k++) assert_int_equal(i[k], 1);
      assert_true(isnan(must_item(db_mean(none))));
      assert_true(isnan(must_item(db_var(none))));
      assert_int_equal(db_read(db_max(none, 1), NULL, 0), 0);
      assert_int_equal(db_read(db_softmax(db_transpose(given, 0, 1), 1), NULL, 0), 0);
      /* products */
      must_read(db_matmul(db_zeros(DB_F32, dev, 2, 0), given), f, sizeof f);
      for (int k = 0; k < 6; k++) assert_float_equal(f[k], 0, 0);
      assert_int_equal(db_dim(db_matmul(given, numbers(dev, 3, 4)), 1), 4);
      assert_float_equal(must_item(db_dot(db_zeros(DB_F32, dev, 0), db_ones(DB_F32, dev, 0))), 0, 0);
      assert_int_equal(db_read(db_to(none, NULL), NULL, 0), 0);
      assert_int_equal(db_numel(db_arange(3, 3, 1, DB_I32, dev)), 0);
      assert_int_equal(db_numel(db_arange(3, 0, 1, DB_F32, dev)), 0);
      /* together with a tensor that has elements */
      assert_int_equal(db_realize(sum, x, db_sum(x), db_neg(given)), 0);
    }
    db_close(dev);
  }
}

static void scalars(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_tensor *x = db_from(&(float){3}, DB_F32, dev), *y = db_full(2, DB_F32, dev);
      assert_int_equal(db_rank(x), 0);
      assert_int_equal(db_numel(x), 1);
      assert_float_equal(must_item(db_mul(db_add(x, y), x)), 15, 0);
      assert_float_equal(must_item(db_where(db_lt(x, y), x, y)), 2, 0);
      assert_float_equal(must_item(db_sum(x)), 3, 0);
      assert_float_equal(must_item(db_max(x)), 3, 0);
      assert_float_equal(must_item(db_mean(y)), 2, 0);
      assert_true(isnan(must_item(db_std(x))));
      assert_float_equal(must_item(db_permute(db_contiguous(x))), 3, 0);
      assert_float_equal(must_item(db_reshape(db_expand(db_reshape(x, 1, 1), 1, 1))), 3, 0);
      assert_float_equal(must_item(db_sum(db_expand(x, 4))), 12, 0);
      assert_float_equal(must_item(db_cast(db_pad(x), DB_I32)), 3, 0);
      assert_int_equal(db_rank(db_add(x, numbers(dev, 2, 2))), 2);
      float out;
      must_read(db_to(db_shrink(x), NULL), &out, sizeof out);
      assert_float_equal(out, 3, 0);
    }
    db_close(dev);
  }
}

static void items_of_every_type(void **state) {
  DB_SCOPED;
  for (db_dtype t = DB_BOOL; t <= DB_F8E5M2; t++) assert_float_equal(must_item(db_full(1, t, NULL, 1, 1)), 1, 0);
}

/* 8-bit floats: stored as bytes, computed in f32, rounded after each operation; their promotions. */
static void eight_bit_floats(void **state) {
  static const uint8_t codes[] = {0x38, 0x39, 0x7e, 0x7f, 0x80, 0x01}; /* e4m3: 1, 1.125, 448, NaN, -0, 2^-9 */
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_tensor *x = db_from(codes, DB_F8E4M3, dev, 6), *h = db_cast(x, DB_F8E5M2);
      float f[6];
      uint8_t sum[6], half[6];
      assert_int_equal(db_read(db_cast(x, DB_F32), f, sizeof f), 0);
      assert_int_equal(db_read(db_add(x, x), sum, sizeof sum), 0);
      assert_int_equal(db_read(h, half, sizeof half), 0);
      assert_true(f[0] == 1 && f[1] == 1.125f && f[2] == 448 && isnan(f[3]) && signbit(f[4]) && f[5] == 0x1p-9f);
      assert_memory_equal(sum, ((uint8_t[]){0x40, 0x41, 0x7f, 0x7f, 0x80, 0x02}), 6);
      assert_memory_equal(half, ((uint8_t[]){0x3c, 0x3c, 0x5f, 0x7f, 0x80, 0x18}), 6); /* 1.125 is a tie: 1 is even */
      db_tensor *many = db_full(1.5, DB_F8E5M2, dev, 300);
      assert_int_equal(db_dtype_of(db_sum(many)), DB_F8E5M2);
      assert_float_equal(must_item(db_sum(many)), 448, 0); /* 450, summed in f32 and rounded once */
      for (int64_t n = 1; n < 40; n += 2) {                /* padding does not change a maximum */
        uint8_t bytes[4 * 40];
        memset(bytes, 0xfe, sizeof bytes); /* -448 */
        db_tensor *lowest = db_max(db_from(bytes, DB_F8E4M3, dev, 4, n), 1);
        assert_int_equal(db_read(lowest, sum, 4), 0);
        for (unsigned i = 0; i < 4; i++) assert_int_equal(sum[i], 0xfe);
      }
      assert_int_equal(db_dtype_of(db_add(x, h)), DB_F16);
      assert_int_equal(db_dtype_of(db_add(x, db_cast(x, DB_BF16))), DB_BF16);
      assert_int_equal(db_dtype_of(db_add(db_cast(x, DB_I32), x)), DB_F8E4M3);
      assert_int_equal(db_dtype_of(db_mul(x, 0.5)), DB_F8E4M3);
    }
    db_close(dev);
  }
}

static void default_device_is_cpu(void **state) {
  unsetenv("DEV");
  {
    DB_SCOPED;
    assert_string_equal(db_device_name(db_device_of(db_ones(DB_F32, NULL, 2))), "CPU");
  }
}

static void large_tensors(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    enum { N = 1 << 20 };
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    for (int i = 0; i < N; i++) x[i] = (float)(i % 1000);
    {
      DB_SCOPED;
      must_read(db_add(db_mul(db_from(x, DB_F32, dev, N), 2), 1), y, N * sizeof *y);
      for (int i = 0; i < N; i++)
        if (y[i] != 2 * x[i] + 1) fail_msg("element %d is %g", i, (double)y[i]);
    }
    free(x);
    free(y);
    db_close(dev);
  }
}

/* ---- devices ---- */

static void copies_between_devices(void **state) {
  FOR_EMULATED_GPU {
    db_device *cpu = open_device("CPU"), *gpu = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_tensor *x = db_from(((float[]){1, 2, 3, 4}), DB_F32, cpu, 4);
      db_tensor *there = db_mul(db_to(db_add(x, 1), gpu), 10), *back = db_add(db_to(there, cpu), 0.5);
      float out[4];
      assert_ptr_equal(db_device_of(there), gpu);
      struct seen s = watched(back);
      assert_int_equal(s.copies, 2);
      assert_int_equal(s.kernels, 3);
      must_read(back, out, sizeof out);
      for (int i = 0; i < 4; i++) assert_float_equal(out[i], 10 * (i + 2) + 0.5, 0);
      must_read(db_to(db_flip(x, 0), gpu), out, sizeof out);
      assert_float_equal(out[0], 4, 0);
      assert_float_equal(must_item(db_sum(db_to(db_full(3, DB_F32, cpu, 5), gpu))), 15, 0);
      assert_string_equal(db_device_name(db_device_of(db_to(x, cpu))), "CPU");
    }
    db_close(cpu);
    db_close(gpu);
  }
}

static void copy_between(const char *first, const char *second) {
  db_device *a = open_device(first), *b = open_device(second);
  enum { N = 100000 };
  float *x = malloc(N * sizeof *x);
  for (int round = 0; round < 3; round++) {
    DB_SCOPED;
    for (int i = 0; i < N; i++) x[i] = (float)(i % 97 + round);
    db_tensor *t = db_add(db_from(x, DB_F32, a, N), 1);
    must_read(db_mul(db_to(t, b), 2), x, N * sizeof *x);
    for (int i = 0; i < N; i++)
      if (x[i] != 2 * (float)(i % 97 + round + 1)) fail_msg("round %d, element %d is %g", round, i, (double)x[i]);
  }
  free(x);
  db_close(a);
  db_close(b);
}
static void copies_between_gpus(void **state) {
  copy_between("EMU+AMD:gfx1100,gfx1100", "EMU+AMD:gfx1100,gfx1100:1");
  if (!has_ptxas()) return;
  copy_between("EMU+NV:sm_90,sm_90", "EMU+NV:sm_90,sm_90:1");
  copy_between(EMULATED, EMULATED_NVIDIA);
  copy_between(EMULATED_NVIDIA, EMULATED);
}

static void a_closed_device_stays_while_tensors_use_it(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_tensor *x = numbers(dev, 2, 2);
      db_close(dev);
      assert_float_equal(must_item(db_sum(db_mul(x, 0))), 0, 0);
    }
  }
}

/* ---- ownership and memory ---- */

static db_tensor *inner(db_tensor *x) {
  {
    DB_SCOPED;
    db_tensor *y = db_add(db_mul(x, 2), 1);
    return db_keep(y); /* the scope ends with the return */
  }
  return NULL;
}

static void scopes_and_references(void **state) {
  db_tensor *escaped;
  {
    DB_SCOPED;
    db_tensor *y;
    {
      DB_SCOPED;
      y = inner(db_full(3, DB_F32, NULL, 2));
      db_keep(y);
    }
    assert_float_equal(must_item(db_sum(y)), 14, 0);
    for (int i = 0; i < 3; i++) {
      DB_SCOPED;
      db_ones(DB_F32, NULL, 4);
      break;
    }
    escaped = db_keep(db_add(y, 1));
  }
  float out[2];
  must_read(escaped, out, sizeof out);
  assert_float_equal(out[1], 8, 0);
  db_release(escaped);
}

static _Thread_local bool out_of_memory;
void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n) { return out_of_memory ? NULL : __real_realloc(p, n); }

/* Runs on a separate thread, whose scopes start with room for 64 tensors and 64 scopes. */
static void *scopes_without_memory(void *failed) {
  enum { ROOM = 64 };
  double value = 0;
  out_of_memory = true;
  db_scope_begin();
  out_of_memory = false;
  db_scope_end();
  db_scope_begin();
  db_tensor *x = db_full(3, DB_F32, NULL, 2), *y;
  for (int i = 2; i < ROOM; i++) db_scope_begin();
  out_of_memory = true;
  db_scope_begin(); /* it becomes a part of the enclosing scope */
  out_of_memory = false;
  db_scope_begin();
  y = db_keep(db_sum(db_add(x, 1)));
  db_scope_end();
  db_scope_end();
  if (db_item(y, &value) || value != 8) return failed; /* it belongs to the last scope that was begun */
  for (int i = 2; i < ROOM; i++) db_scope_end();
  if (db_item(db_sum(x), &value) || value != 6) return failed; /* the first scope is still open */
  db_scope_end();
  return NULL;
}

static void scopes_that_cannot_begin(void **state) {
  pthread_t thread;
  int failed;
  void *result = NULL;
  assert_int_equal(pthread_create(&thread, NULL, scopes_without_memory, &failed), 0);
  pthread_join(thread, &result);
  if (result) fail_msg("%s", db_error());
}

static void references_outside_scopes(void **state) {
  db_tensor *a = db_full(1, DB_F32, NULL, 3), *b = db_add(a, 1), *c = db_retain(b);
  db_release(a);
  db_release(b);
  db_tensor *s = db_sum(c);
  db_release(c);
  assert_float_equal(must_item(s), 6, 0);
  db_release(s);
  db_release(NULL);
}

/* A training-like loop: old tensors are freed, graph and memory remain bounded. */
static void ten_thousand_steps_leak_nothing(void **state) {
  db_device *dev = open_device("CPU");
  struct db_device_counters early, late;
  db_tensor *w = db_full(1, DB_F32, dev, 64);
  enum { STEPS = 2000 };
  for (int i = 0; i < STEPS; i++) {
    {
      DB_SCOPED;
      db_tensor *g = db_mul(db_sub(w, (double)(i % 7)), 0.1), *next = db_sub(w, g), *norm = db_sum(db_square(next));
      for (int k = 0; k < 4; k++) norm = db_add(norm, 1); /* built, never computed */
      if (db_realize(next)) fail_msg("%s", db_error());
      db_release(w);
      w = db_retain(next);
    }
    if (i == STEPS / 4) db_device_counters(dev, &early);
  }
  db_device_counters(dev, &late);
  assert_true(late.bytes_allocated <= early.bytes_allocated);
  db_release(w);
  db_close(dev);
}

static void memory_is_freed_with_its_tensor(void **state) {
  db_device *dev = open_device("CPU");
  {
    DB_SCOPED;
    struct db_device_counters c0, c1;
    enum { N = 70 << 20 }; /* more than is kept for reuse */
    db_device_counters(dev, &c0);
    db_tensor *lazy;
    {
      DB_SCOPED;
      db_tensor *x = db_full(1, DB_F32, dev, N);
      assert_int_equal(db_realize(x), 0);
      lazy = db_keep(db_sum(x));
      db_device_counters(dev, &c1);
      assert_true(c1.bytes_allocated >= c0.bytes_allocated + 4ull * N);
      assert_int_equal(db_realize(lazy), 0);
    }
    assert_int_equal(db_device_synchronize(dev, 10000000000ull), 0); /* the queue holds it until then */
    db_device_counters(dev, &c1);
    assert_true(c1.bytes_allocated < c0.bytes_allocated + 4ull * N);
    assert_float_equal(must_item(lazy), N, 0);
  }
  db_close(dev);
}

static void a_long_lazy_chain_is_released_without_recursion(void **state) {
  db_tensor *x = db_full(0, DB_F32, NULL, 1);
  for (int i = 0; i < 200000; i++) {
    db_tensor *y = db_add(x, 1);
    db_release(x);
    x = y;
  }
  db_release(x);
}

static void shutdown_refuses_while_tensors_live(void **state) {
  db_tensor *x = db_ones(DB_F32, NULL, 2);
  assert_int_equal(db_shutdown(), -EBUSY);
  assert_contains(db_error(), "1 tensor");
  db_release(x);
  assert_int_equal(db_shutdown(), 0);
  {
    DB_SCOPED;
    assert_float_equal(must_item(db_sum(db_ones(DB_F32, NULL, 2))), 2, 0);
  } /* and the device can be used again */
}

static int finish(void **state) { return db_shutdown(); }

/* What ptxas 13.0 translates to wrong code (compiler/ptx.c). */
static void integers_that_ptxas_gets_wrong(void **state) {
  enum { SHORTS = 31, QUOTIENTS = 8 };
  int16_t shorts[SHORTS], sums[SHORTS];
  uint32_t numbers[QUOTIENTS], others[QUOTIENTS];
  int64_t differences[QUOTIENTS];
  for (int i = 0; i < SHORTS; i++) shorts[i] = (int16_t)(i * 1000);
  for (int i = 0; i < QUOTIENTS; i++) numbers[i] = (uint32_t)(3 * i + 5), others[i] = (uint32_t)(i % 4);
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      /* the last of 4 * 7 + 3 elements is one half of a pair */
      assert_int_equal(db_read(db_add(db_from(shorts, DB_I16, dev, SHORTS), -7), sums, sizeof sums), 0);
      for (int i = 0; i < SHORTS; i++) assert_int_equal(sums[i], shorts[i] - 7);
      /* the negative of the lowest number is itself, also where the result is extended or compared */
      int16_t lowest[] = {INT16_MIN, INT16_MIN + 1, -5, 0, 5, INT16_MAX};
      int32_t negative[6], absolute[6];
      int16_t larger[6];
      db_tensor *low = db_from(lowest, DB_I16, dev, 6);
      assert_int_equal(db_read(db_cast(db_neg(low), DB_I32), negative, sizeof negative), 0);
      assert_int_equal(db_read(db_cast(db_abs(low), DB_I32), absolute, sizeof absolute), 0);
      assert_int_equal(db_read(db_maximum(db_neg(low), 1), larger, sizeof larger), 0);
      for (int i = 0; i < 6; i++) {
        int16_t minus = (int16_t)-lowest[i];
        assert_int_equal(negative[i], minus);
        assert_int_equal(absolute[i], lowest[i] < 0 ? minus : lowest[i]);
        assert_int_equal(larger[i], minus > 1 ? minus : 1);
      }
      /* small numbers, which are divided by 3 without a shift */
      db_tensor *x = db_cast(db_and(db_from(numbers, DB_U32, dev, QUOTIENTS), 31), DB_I64),
                *y = db_cast(db_and(db_from(others, DB_U32, dev, QUOTIENTS), 31), DB_I64);
      assert_int_equal(db_read(db_sub(db_idiv(x, 3), db_idiv(y, 3)), differences, sizeof differences), 0);
      for (int i = 0; i < QUOTIENTS; i++)
        assert_int_equal(differences[i], (int)(numbers[i] / 3) - (int)(others[i] / 3));
    }
    db_close(dev);
  }
}

/* Sizes that tiles do not divide: lanes at the edge branch differently from the others of their warp, in loops long
 * enough that an emulated warp switches between the two paths. */
static void matmuls_with_edges_in_long_loops(void **state) {
  enum { SIDE = 511, TERMS = 128 };
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    float *a = malloc(SIDE * TERMS * sizeof *a), *b = malloc(TERMS * SIDE * sizeof *b);
    float *got = malloc(SIDE * SIDE * sizeof *got);
    for (int i = 0; i < SIDE * TERMS; i++) a[i] = (float)(i * 7 % 13 - 6), b[i] = (float)(i * 5 % 11 - 5);
    {
      DB_SCOPED;
      db_tensor *x = db_from(a, DB_F32, dev, SIDE, TERMS), *y = db_from(b, DB_F32, dev, TERMS, SIDE);
      assert_int_equal(db_realize(x, y), 0);
      must_read(db_matmul(x, y), got, SIDE * SIDE * sizeof *got);
    }
    for (int i = 0; i < SIDE; i += 3)
      for (int k = SIDE - 1; k >= 0; k -= 7) {
        float want = 0;
        for (int j = 0; j < TERMS; j++) want += a[i * TERMS + j] * b[j * SIDE + k]; /* integers: exact */
        if (got[i * SIDE + k] != want) fail_msg("row %d, column %d: %g, not %g", i, k, got[i * SIDE + k], want);
      }
    free(a);
    free(b);
    free(got);
    db_close(dev);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(integers_that_ptxas_gets_wrong),
      cmocka_unit_test(matmuls_with_edges_in_long_loops),
      cmocka_unit_test(kernel_counts),
      cmocka_unit_test(softmax_times_a_narrow_matrix),
      cmocka_unit_test(chain_of_fifty_is_one_kernel),
      cmocka_unit_test(movement_runs_no_kernel),
      cmocka_unit_test(realized_values_are_reused),
      cmocka_unit_test(several_at_once_share_work),
      cmocka_unit_test(constants_and_ranges),
      cmocka_unit_test(constants_on_the_second_device),
      cmocka_unit_test(slices_are_views),
      cmocka_unit_test(a_view_keeps_its_memory),
      cmocka_unit_test(schedules_are_found_again),
      cmocka_unit_test(the_cache_is_bounded),
      cmocka_unit_test(schedules_go_with_their_device),
      cmocka_unit_test(sizes_of_zero),
      cmocka_unit_test(scalars),
      cmocka_unit_test(items_of_every_type),
      cmocka_unit_test(eight_bit_floats),
      cmocka_unit_test(default_device_is_cpu),
      cmocka_unit_test(large_tensors),
      cmocka_unit_test(copies_between_devices),
      cmocka_unit_test(copies_between_gpus),
      cmocka_unit_test(a_closed_device_stays_while_tensors_use_it),
      cmocka_unit_test(scopes_and_references),
      cmocka_unit_test(scopes_that_cannot_begin),
      cmocka_unit_test(references_outside_scopes),
      cmocka_unit_test(ten_thousand_steps_leak_nothing),
      cmocka_unit_test(memory_is_freed_with_its_tensor),
      cmocka_unit_test(a_long_lazy_chain_is_released_without_recursion),
      cmocka_unit_test(shutdown_refuses_while_tensors_live),
  };
  return cmocka_run_group_tests_name("tensor", tests, NULL, finish);
}
