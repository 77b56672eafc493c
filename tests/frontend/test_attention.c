/* Attention: its values at sizes where it is computed in phases, the number of its kernels, its memory, and
 * errors. Small sizes are tested in tests/data/cases, gradients in test_attention_gradients.c. */
#include <float.h>
#include "attention.h"
#include "executed.h"

/* A query with the first n of the cached keys: one schedule serves every n. */
static void growing_keys(void **state) {
  enum { MOST = 8, HEADS = 4, WIDTH = 4 };
  float q[HEADS * WIDTH], kv[2 * MOST * WIDTH], got[HEADS * WIDTH], want[HEADS * WIDTH];
  for (int i = 0; i < HEADS * WIDTH; i++) q[i] = (float)(i * 5 % 7) / 3;
  for (int i = 0; i < 2 * MOST * WIDTH; i++) kv[i] = (float)(i * 11 % 17) / 9 - 1;
  struct db_cache_counters before, after;
  {
    DB_SCOPED;
    db_tensor *x = db_from(q, DB_F32, NULL, 1, HEADS, 1, WIDTH), *keys = db_from(kv, DB_F32, NULL, 1, 2, MOST, WIDTH);
    for (int64_t n = 1; n <= MOST; n++) {
      db_tensor *fixed = db_shrink(keys, 0, 1, 0, 2, 0, n, 0, WIDTH);
      must_read(db_attention(x, fixed, fixed), want, sizeof want);
      if (n == 2) db_cache_counters(&before);
      db_tensor *bound = db_shrink(keys, 0, 1, 0, 2, 0, db_bind("keys", 1, MOST, n), 0, WIDTH);
      must_read(db_attention(x, bound, bound), got, sizeof got);
      if (n == 2) db_cache_counters(&after);
      for (int i = 0; i < HEADS * WIDTH; i++) assert_true(fabsf(got[i] - want[i]) < 1e-5f);
    }
    assert_int_equal(after.schedules, before.schedules);
    db_tensor *rows = db_shrink(db_reshape(keys, 2 * MOST, WIDTH), 0, db_bind("rows", 1, 2 * MOST, 3), 0, WIDTH);
    must_read(db_contiguous(db_shrink(db_layer_norm(rows, 1, NULL, NULL, 1e-5), 0, 1, 0, WIDTH)), got,
              WIDTH * sizeof *got);
    must_read(db_shrink(db_layer_norm(db_reshape(keys, 2 * MOST, WIDTH), 1, NULL, NULL, 1e-5), 0, 1, 0, WIDTH), want,
              WIDTH * sizeof *want);
    for (int i = 0; i < WIDTH; i++) assert_true(fabsf(got[i] - want[i]) < 1e-5f);
    assert_contains(db_poison(db_layer_norm(rows, 2, NULL, NULL, 1e-5)), "a symbolic size");
    assert_contains(db_poison(db_batch_norm(rows, NULL, NULL, NULL, NULL, 1e-5)), "a symbolic size");
  }
}

/* All sizes are constants, but a variable selects the keys and values. */
static void keys_at_a_variable(void **state) {
  enum { TEXTS = 3, LENGTH = 256, WIDTH = 16 };
  static float got[LENGTH * WIDTH], want[LENGTH * WIDTH];
  FOR_DEVICES {
    DB_SCOPED;
    db_device *dev = open_device(DEVICE_NAME);
    db_tensor *q = db_rand(DB_F32, dev, 1, LENGTH, WIDTH), *kv = db_rand(DB_F32, dev, TEXTS, LENGTH, WIDTH);
    assert_int_equal(db_realize(q, kv), 0);
    for (int64_t i = 0; i < TEXTS; i++) {
      int64_t text = db_bind("text", 0, TEXTS - 1, i);
      db_tensor *fixed = db_shrink(kv, i, i + 1, 0, LENGTH, 0, WIDTH),
                *bound = db_shrink(kv, text, db_size_add(text, 1), 0, LENGTH, 0, WIDTH);
      must_read(db_attention(q, fixed, fixed, .causal = true), want, sizeof want);
      must_read(db_attention(q, bound, bound, .causal = true), got, sizeof got);
      for (int k = 0; k < LENGTH * WIDTH; k++) assert_true(fabsf(got[k] - want[k]) < 1e-5f);
    }
    db_close(dev);
  }
}

/* ---- as one kernel ---- */

/* Compares a row of the result with sums in double. */
static void compare_row(const struct one_kernel *c, int64_t head, int64_t query, const float *q, const float *k,
                        const float *v, const float *added, const float *got) {
  double *p = calloc((size_t)c->keys, sizeof *p), most = -INFINITY, sum = 0;
  double error = c->t == DB_BF16 ? 0x1p-7 : c->t == DB_F16 ? 0x1p-9 : 2e-5;
  for (int64_t j = 0; j < c->keys; j++) {
    const float *x = q + (head * c->queries + query) * c->width, *y = k + (head * c->keys + j) * c->width;
    for (int64_t i = 0; i < c->width; i++) p[j] += (double)x[i] * (double)y[i];
    p[j] /= sqrt((double)c->width);
    if (c->mask == ADDED || c->mask == PADDED) p[j] += (double)added[query * c->keys + j];
    if (!allowed(c, query, j)) p[j] = -INFINITY;
    if (p[j] > most) most = p[j];
  }
  for (int64_t j = 0; j < c->keys; j++) sum += p[j] = exp(p[j] - most);
  for (int64_t i = 0; i < c->columns; i++) {
    double want = 0, g = (double)got[(head * c->queries + query) * c->columns + i];
    for (int64_t j = 0; j < c->keys; j++) want += p[j] / sum * (double)v[(head * c->keys + j) * c->columns + i];
    if (isnan(want) ? isnan(g) : fabs(want - g) <= error) continue;
    fail_msg("%ld x %ld x %ld: element %ld, %ld, %ld is %g, not %g", (long)c->queries, (long)c->keys, (long)c->width,
             (long)head, (long)query, (long)i, g, want);
  }
  free(p);
}

/* Both products of an attention use matrix instructions: on sm_90 those of four waves, whose smallest multiplies 8
 * blocks per wave; an mma.sync multiplies two. Rows of 128 bytes in workgroup memory have no bank conflicts. */
static void check_executed(const struct one_kernel *c, const char *device, const struct emu_detail *before,
                           const struct emu_detail *after) {
  uint64_t n = after->executed[EMU_MATRIX_CLASS] - before->executed[EMU_MATRIX_CLASS];
  uint64_t blocks = after->matrix_blocks - before->matrix_blocks;
  bool nvidia = !strcmp(device, EMULATED_NVIDIA) && c->t != DB_F32;
  if ((n > 0) == (c->t != DB_F32) && (!nvidia || blocks >= 8 * n) &&
      (!nvidia || c->width % 32 || c->columns % 32 || after->lds_conflicts == before->lds_conflicts))
    return;
  fail_msg("%s, %ld x %ld x %ld: %lu matrix instructions, %lu blocks, %lu bank conflicts", device, (long)c->queries,
           (long)c->keys, (long)c->width, (unsigned long)n, (unsigned long)blocks,
           (unsigned long)(after->lds_conflicts - before->lds_conflicts));
}

/* What is added to a score. Rows of a padded mask have numbers that programs use for minus infinity. */
static float added_of(const struct one_kernel *c, int64_t query, int64_t key) {
  static const float hidden[] = {-1e9f, -1e10f, -FLT_MAX, -1e30f};
  if (c->mask == PADDED) return key < c->keys * 3 / 4 ? hidden[query % 4] : 0;
  return (float)element_of(query * c->keys + key, 9);
}

static void check_one_kernel(const struct one_kernel *c, const char *device) {
  int64_t n[4] = {c->heads * c->queries * c->width, c->heads * c->keys * c->width, c->heads * c->keys * c->columns,
                  c->heads * c->queries * c->columns};
  float *x[4], *added = calloc((size_t)(c->queries * c->keys), sizeof *added);
  bool *bools = calloc((size_t)(c->queries * c->keys), 1);
  for (unsigned i = 0; i < 4; i++) x[i] = calloc((size_t)n[i], sizeof *x[i]);
  for (int64_t i = 0; i < c->queries * c->keys; i++)
    added[i] = added_of(c, i / c->keys, i % c->keys), bools[i] = allowed(c, i / c->keys, i % c->keys);
  {
    DB_SCOPED;
    db_device *dev = db_open(device);
    db_tensor *q = db_reshape(tensor_of(c, dev, n[0], 1, c->large, x[0]), c->heads, c->queries, c->width);
    db_tensor *k = db_reshape(tensor_of(c, dev, n[1], 2, 1, x[1]), c->heads, c->keys, c->width);
    db_tensor *v = db_reshape(tensor_of(c, dev, n[2], 3, 1, x[2]), c->heads, c->keys, c->columns), *out;
    db_tensor *mask = c->mask == BOOLS                        ? db_from(bools, DB_BOOL, dev, c->queries, c->keys)
                      : c->mask == ADDED || c->mask == PADDED ? db_from(added, DB_F32, dev, c->queries, c->keys)
                                                              : NULL;
    assert_int_equal(db_realize(q, k, v), 0);
    if (mask) assert_int_equal(db_realize(mask), 0);
    if (c->mask == NEAR) {
      db_tensor *rows = db_reshape(db_arange(0, (double)c->queries, 1, DB_I32, dev), c->queries, 1);
      db_tensor *apart = db_sub(db_arange(0, (double)c->keys, 1, DB_I32, dev), rows);
      mask = db_lt(db_mul(apart, apart), NEAR_SQUARED);
    }
    bool emulated = !strncmp(device, "EMU", 3);
    struct emu_detail executed = {{0}}, now;
    if (emulated) assert_int_equal(emu_detail(db_device_os(dev), true), 0);
    if (emulated) executed = executed_so_far(dev);
    unsigned before = kernels_so_far(dev);
    if (c->spelled) {
      db_tensor *scores = db_mul(db_matmul(q, db_transpose(k, 1, 2)), 1 / sqrt((double)c->width));
      out = db_matmul(db_softmax(scores, 2), v);
    } else
      out = db_attention(q, k, v, .causal = c->mask == CAUSAL, .mask = mask);
    if (db_realize(out)) fail_msg("%s", db_error());
    if (kernels_so_far(dev) - before != 1)
      fail_msg("%s, %ld x %ld x %ld: %u kernels", device, (long)c->queries, (long)c->keys, (long)c->width,
               kernels_so_far(dev) - before);
    must_read(db_cast(out, DB_F32), x[3], (size_t)n[3] * sizeof *x[3]);
    if (emulated) now = executed_so_far(dev), check_executed(c, device, &executed, &now);
    db_close(dev);
  }
  for (int64_t head = 0; head < c->heads; head++)
    for (int64_t query = 0; query < c->queries; query += query < 5 || query > c->queries - 5 ? 1 : 7)
      compare_row(c, head, query, x[0], x[1], x[2], added, x[3]);
  for (unsigned i = 0; i < 4; i++) free(x[i]);
  free(added);
  free(bools);
}

static void is_one_kernel(void **state) {
  static const struct one_kernel cases[] = {
      {2, 256, 256, 16, 32, 1, DB_F32, NO_MASK, false},  {2, 256, 256, 16, 32, 1, DB_F32, NO_MASK, true},
      {3, 251, 257, 17, 33, 1, DB_F32, CAUSAL, false},   {1, 255, 1021, 24, 40, 1, DB_F32, BOOLS, false},
      {1, 403, 607, 20, 33, 1, DB_F32, ADDED, false},    {1, 256, 256, 16, 32, 1e4, DB_F32, CAUSAL, false},
      {2, 251, 257, 17, 33, 1, DB_BF16, CAUSAL, false},  {2, 256, 300, 32, 32, 1, DB_F16, NO_MASK, false},
      {1, 251, 255, 31, 31, 1, DB_F16, CAUSAL, false},   {1, 256, 1021, 24, 40, 1, DB_F32, PADDED, false},
      {1, 1021, 1021, 64, 64, 1, DB_F32, CAUSAL, false}, {1, 330, 500, 40, 24, 1, DB_F32, CAUSAL, false},
  };
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) check_one_kernel(&cases[i], "CPU");
}

/* On GPUs the keys are processed in rounds, with and without matrix instructions. */
static void is_one_kernel_on_gpus(void **state) {
  static const struct one_kernel cases[] = {
      {2, 128, 192, 64, 64, 1, DB_F16, NO_MASK, false},    {1, 131, 261, 40, 40, 1, DB_F16, CAUSAL, false},
      {1, 130, 200, 17, 33, 1, DB_BF16, CAUSAL, false},    {1, 128, 255, 16, 80, 1, DB_BF16, NO_MASK, false},
      {1, 91, 131, 17, 19, 1, DB_F32, NO_MASK, true},      {1, 93, 257, 12, 20, 1, DB_F32, BOOLS, false},
      {1, 403, 307, 12, 33, 1, DB_F32, ADDED, false},      {1, 128, 128, 16, 16, 1e4, DB_F32, CAUSAL, false},
      {12, 500, 300, 160, 160, 1, DB_F16, CAUSAL, false},  {1, 640, 640, 200, 200, 1, DB_F16, NO_MASK, false},
      {16, 200, 131, 40, 24, 1, DB_BF16, CAUSAL, false},   {13, 256, 192, 64, 128, 1, DB_F16, NO_MASK, false},
      {1, 192, 256, 64, 64, 1, DB_F16, NEAR, false},       {1, 131, 261, 40, 40, 1, DB_BF16, NEAR, false},
      {2, 256, 512, 64, 64, 1, DB_F16, PADDED, false},     {1, 403, 500, 20, 33, 1, DB_F32, PADDED, false},
      {2, 256, 512, 64, 64, 1, DB_BF16, PADDED, false},    {2, 515, 521, 192, 192, 1, DB_F16, CAUSAL, false},
      {1, 513, 515, 160, 160, 1, DB_BF16, NO_MASK, false}, {2, 515, 517, 256, 256, 1, DB_F16, CAUSAL, false},
      {2, 258, 259, 80, 80, 1, DB_F16, NO_MASK, false},    {2, 259, 258, 96, 96, 1, DB_BF16, CAUSAL, false},
      {2, 257, 259, 112, 112, 1, DB_F16, NO_MASK, false},  {2, 259, 259, 65, 65, 1, DB_F16, CAUSAL, false},
      {1, 514, 515, 184, 184, 1, DB_F16, NO_MASK, false},  {4, 512, 512, 192, 192, 1, DB_F16, NO_MASK, false},
      {4, 512, 512, 96, 96, 1, DB_F16, NO_MASK, false},    {4, 512, 512, 160, 160, 1, DB_F16, NO_MASK, false},
  };
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    check_one_kernel(&cases[i], EMULATED);
    if (has_ptxas()) check_one_kernel(&cases[i], EMULATED_NVIDIA);
  }
}

/* The results of wide values do not fit in the registers of a workgroup, which computes a slice of their columns, of
 * which the last one may overlap another. Rows of 768 do not fit in workgroup memory at once either. */
static void wide_values_are_sliced(void **state) {
  static const struct one_kernel cases[] = {
      {2, 512, 520, 320, 320, 1, DB_F16, CAUSAL, false},
      {1, 700, 1030, 64, 304, 1, DB_BF16, NO_MASK, false},
      {1, 1100, 1030, 384, 344, 1, DB_F16, BOOLS, false},
  };
  static const struct one_kernel on_nvidia[] = {
      {2, 500, 520, 512, 512, 1, DB_BF16, CAUSAL, false},
      {1, 512, 700, 40, 520, 1, DB_F16, ADDED, false},
      {1, 700, 1000, 768, 304, 1, DB_F16, NO_MASK, false},
  };
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    check_one_kernel(&cases[i], EMULATED);
    if (has_ptxas()) check_one_kernel(&cases[i], EMULATED_NVIDIA);
    if (has_ptxas()) check_one_kernel(&on_nvidia[i], EMULATED_NVIDIA);
  }
}

/* The memory that an attention, or its gradients, need besides the results is much less than that of its scores. */
static void check_memory(const char *device, db_dtype t, int64_t width, bool back) {
  enum { LENGTH = 1024 };
  db_device *dev = db_open(device);
  struct db_device_counters before, after;
  {
    DB_SCOPED;
    db_tensor *x[4], *dx[3];
    for (unsigned i = 0; i < 4; i++) x[i] = db_cast(db_randn(DB_F32, dev, LENGTH, width), t);
    assert_int_equal(db_realize_all(x, 4), 0);
    for (unsigned i = 0; i < 3 && back; i++) db_requires_grad(x[i]);
    db_device_counters(dev, &before);
    db_tensor *y = db_attention(x[0], x[1], x[2], .causal = true);
    if (back) db_grad_all(y, x[3], x, 3, dx);
    assert_int_equal(back ? db_realize_all(dx, 3) : db_realize(y), 0);
    db_device_counters(dev, &after);
  }
  uint64_t more = after.bytes_allocated_peak - before.bytes_allocated;
  uint64_t results = (uint64_t)((back ? 3 : 1) * LENGTH * width) * (t == DB_F32 ? 4 : 2);
  if (more > results + LENGTH * LENGTH * (t == DB_F32 ? 2 : 1))
    fail_msg("%s, width %ld: %lu more bytes, %lu of results", device, (long)width, (unsigned long)more,
             (unsigned long)results);
  db_close(dev);
}

static void memory_is_linear_on_gpus(void **state) {
  static const int64_t widths[] = {3, 8, 16, 1, 65, 80, 112, 160, 192, 256};
  for (unsigned i = 0; i < sizeof widths / sizeof *widths; i++) {
    check_memory(EMULATED, DB_F16, widths[i], false);
    check_memory(EMULATED, DB_F32, widths[i], false);
    check_memory(EMULATED, DB_F16, widths[i], true);
    check_memory(EMULATED, DB_F32, widths[i], true);
  }
  if (!has_ptxas()) return;
  for (unsigned i = 0; i < 3; i++) check_memory(EMULATED_NVIDIA, DB_F16, widths[i], false); /* of others, registers */
  for (unsigned i = 0; i < 3; i++) check_memory(EMULATED_NVIDIA, DB_F32, widths[i], false); /* may be in memory */
  for (unsigned i = 0; i < 2; i++) check_memory(EMULATED_NVIDIA, DB_F16, 512, i);
}

/* Four times the length takes at most four times the memory: the scores never exist as a whole. */
static void memory_is_linear(void **state) {
  db_device *dev = db_open("CPU");
  struct db_device_counters before, after;
  enum { LENGTH = 4096, WIDTH = 32 };
  {
    DB_SCOPED;
    db_tensor *x = db_randn(DB_F32, NULL, LENGTH, WIDTH);
    assert_int_equal(db_realize(x), 0);
    db_device_counters(dev, &before);
    db_tensor *y = db_attention(x, x, x, .causal = true);
    assert_int_equal(db_realize(y), 0);
    db_device_counters(dev, &after);
  }
  uint64_t output = LENGTH * WIDTH * sizeof(float);
  assert_true(after.bytes_allocated_peak - before.bytes_allocated <= 2 * output);
  {
    DB_SCOPED;
    db_tensor *x[3], *dx[4], *dy = db_randn(DB_F32, NULL, LENGTH, WIDTH);
    for (unsigned i = 0; i < 3; i++) x[i] = db_requires_grad(db_contiguous(db_randn(DB_F32, NULL, LENGTH, WIDTH)));
    assert_int_equal(db_realize(x[0], x[1], x[2], dy), 0);
    db_device_counters(dev, &before);
    dx[3] = db_attention(x[0], x[1], x[2], .causal = true);
    db_grad_all(dx[3], dy, x, 3, dx);
    if (db_realize_all(dx, 4)) fail_msg("%s", db_error());
    db_device_counters(dev, &after);
  }
  assert_true(after.bytes_allocated_peak - before.bytes_allocated <= 5 * output); /* four, and values of rows */
  db_close(dev);
}

static void refused(void **state) {
  {
    DB_SCOPED;
    db_tensor *q = db_zeros(DB_F32, NULL, 2, 4, 5, 8), *k = db_zeros(DB_F32, NULL, 2, 3, 6, 8);
    db_tensor *h = db_zeros(DB_F16, NULL, 2, 4, 5, 8), *m = db_zeros(DB_BOOL, NULL, 5, 4),
              *i = db_zeros(DB_I32, NULL, 5, 5);
    assert_contains(db_poison(db_attention(q, k, k)), "queries [2, 4, 5, 8], keys [2, 3, 6, 8]");
    assert_contains(db_poison(db_attention(q, h, h)), "queries of f32, keys of f16");
    assert_contains(db_poison(db_attention(q, q, q, .mask = m)), "a mask of [5, 4] for scores of [2, 4, 5, 5]");
    assert_contains(db_poison(db_attention(q, q, q, .mask = i)), "a mask of i32");
    assert_contains(db_poison(db_attention(q, q, q, .scale = NAN)), "a scale of nan");
    assert_contains(db_poison(db_attention(q, q, NULL)), "argument 3 is NULL");
    q = db_zeros(DB_F32, NULL, 2, 0, 5, 8);
    assert_contains(db_poison(db_attention(q, k, k)), "queries [2, 0, 5, 8], keys [2, 3, 6, 8]");
  }
}

/* ---- values that are not 0 where nothing is loaded ---- */

enum { ADD_VALUE = 4, EXPRESSIONS = 1 << 3, SHIFTED_WIDTH = 16 };
struct shifted {
  int64_t n; /* queries, and keys */
  db_dtype t;
  bool causal;
};

/* The result and the gradients of the tensors to which `added`, a bit for each, says that a constant is added: in the
 * kernel if it is an expression, or before. Returns the number of elements. */
static size_t compute_shifted(const struct shifted *c, const char *device, unsigned added, bool expression,
                              float *out) {
  enum { INPUTS = 4 };
  int64_t n = c->n * SHIFTED_WIDTH;
  float *x = calloc((size_t)n, sizeof *x);
  {
    DB_SCOPED;
    db_device *dev = open_device(device);
    db_tensor *in[INPUTS], *now[INPUTS], *result[INPUTS];
    for (unsigned i = 0; i < INPUTS; i++) { /* all values and sums are numbers of f16 */
      double by = i < 3 && (added >> i & 1) ? 1 : 0;
      for (int64_t k = 0; k < n; k++) x[k] = (float)(round(8 * element_of(k, i + 1)) / 8 + (expression ? 0 : by));
      in[i] = db_cast(db_from(x, DB_F32, dev, 1, c->n, SHIFTED_WIDTH), c->t);
      assert_int_equal(db_realize(in[i]), 0);
      if (i < 3) db_requires_grad(in[i]);
      now[i] = expression && by != 0 ? db_add(in[i], by) : in[i];
    }
    result[3] = db_attention(now[0], now[1], now[2], .causal = c->causal);
    must_read(db_cast(result[3], DB_F32), out + 3 * n, (size_t)n * sizeof *out);
    db_grad_all(result[3], in[3], in, 3, result);
    for (unsigned i = 0; i < 3; i++) must_read(db_cast(result[i], DB_F32), out + i * n, (size_t)n * sizeof *out);
    db_close(dev);
  }
  free(x);
  return (size_t)(INPUTS * n);
}

/* Rounds and chunks reach past the last key or query: there a constant that is added to what is loaded is not summed.
 * The same values from memory are the reference. */
static void expressions_end_with_the_columns(void **state) {
  static const struct shifted cases[] = {{33, DB_F32, false}, {65, DB_F32, false}, {100, DB_F32, true},
                                         {33, DB_F16, false}, {65, DB_F16, true},  {100, DB_F16, false}};
  static float want[4 * 100 * SHIFTED_WIDTH], got[4 * 100 * SHIFTED_WIDTH];
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
    for (unsigned added = 1; added < EXPRESSIONS; added = added < ADD_VALUE ? 2 * added : added + 3) {
      struct shifted exact = cases[i];
      exact.t = DB_F32;
      size_t n = compute_shifted(&exact, "CPU", added, false, want);
      FOR_DEVICES {
        compute_shifted(&cases[i], DEVICE_NAME, added, true, got);
        double error = cases[i].t == DB_F16 ? 0.01 : 1e-5;
        for (size_t k = 0; k < n; k++)
          if (!(fabsf(got[k] - want[k]) <= error * (fabsf(want[k]) + 1)))
            fail_msg("%s, %ld rows, a constant added to %u: element %zu of %zu is %g, not %g", DEVICE_NAME,
                     (long)cases[i].n, added, k, n, (double)got[k], (double)want[k]);
      }
    }
}

/* Scores far below 0, which are not the greatest ones past the last key: there, powers overflow if scores are 0. */
static void scores_far_below_zero(void **state) {
  enum { ROWS = 300, N = ROWS * SHIFTED_WIDTH, INPUTS = 4 };
  static float want[INPUTS][N], got[INPUTS][N], x[N];
  const double scale[INPUTS] = {0, 1. / 64, 1, 1}, plus[INPUTS] = {30, -30, 0, 0};
  const char *device[] = {"CPU", "EMU+AMD:gfx1100", "EMU+NV:sm_90"};
  for (unsigned d = 0; d < (has_ptxas() ? 3 : 2); d++) {
    DB_SCOPED;
    db_device *dev = open_device(device[d]);
    db_tensor *in[INPUTS], *result[INPUTS];
    for (unsigned i = 0; i < INPUTS; i++) {
      for (int64_t k = 0; k < N; k++) x[k] = (float)(element_of(k, i + 1) * scale[i] + plus[i]);
      in[i] = db_from(x, DB_F32, dev, 1, ROWS, SHIFTED_WIDTH);
      assert_int_equal(db_realize(in[i]), 0);
      if (i < 3) db_requires_grad(in[i]);
    }
    result[3] = db_attention(in[0], in[1], in[2]);
    must_read(result[3], got[3], sizeof got[3]);
    db_grad_all(result[3], in[3], in, 3, result);
    for (unsigned i = 0; i < 3; i++) must_read(result[i], got[i], sizeof got[i]);
    if (!d) memcpy(want, got, sizeof want);
    for (unsigned i = 0; i < INPUTS; i++)
      for (int64_t k = 0; k < N; k++) /* scores have errors of 1e-7 of 3600 */
        if (!(fabsf(got[i][k] - want[i][k]) <= 0.02 * (fabsf(want[i][k]) + 1)))
          fail_msg("%s: element %ld of %u is %g, not %g", device[d], (long)k, i, (double)got[i][k], (double)want[i][k]);
    db_close(dev);
  }
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_is_linear),         cmocka_unit_test(is_one_kernel),
      cmocka_unit_test(memory_is_linear_on_gpus), cmocka_unit_test(is_one_kernel_on_gpus),
      cmocka_unit_test(wide_values_are_sliced),   cmocka_unit_test(expressions_end_with_the_columns),
      cmocka_unit_test(scores_far_below_zero),    cmocka_unit_test(growing_keys),
      cmocka_unit_test(keys_at_a_variable),       cmocka_unit_test(refused)};
  has_ptxas(); /* sets the cache folder before anything is compiled */
  return cmocka_run_group_tests_name("attention", tests, NULL, finish);
}
