/* Attention: its values and gradients at sizes where it is computed in phases, the number of its kernels and its
 * memory, and errors. Small sizes are tested in tests/data/cases. */
#include <float.h>
#include "support.h"
#include "emu/emu.h"
#include "hcq/backend.h"

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

/* NEAR: computed from the positions. PADDED: an added mask of large numbers for the first keys. */
enum mask_kind { NO_MASK, CAUSAL, BOOLS, ADDED, NEAR, PADDED };
struct one_kernel {
  int64_t heads, queries, keys, width, columns;
  double large; /* factor of the queries */
  db_dtype t;
  enum mask_kind mask;
  bool spelled; /* by matmul and softmax */
};

static double element_of(int64_t i, unsigned seed) {
  uint64_t x = (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) + seed * UINT64_C(0xd1342543de82ef95);
  x ^= x >> 29, x *= UINT64_C(0xbf58476d1ce4e5b9), x ^= x >> 32;
  return (double)(x >> 40) / 0x1p23 - 1;
}

/* A tensor of such elements, and their values after rounding to the type. */
static db_tensor *tensor_of(const struct one_kernel *c, db_device *dev, int64_t n, unsigned seed, double factor,
                            float *out) {
  for (int64_t i = 0; i < n; i++) out[i] = (float)(factor * element_of(i, seed));
  db_tensor *t = db_cast(db_from(out, DB_F32, dev, n), c->t);
  must_read(db_cast(t, DB_F32), out, (size_t)n * sizeof *out);
  return t;
}

enum { NEAR_SQUARED = 2000 };
static bool allowed(const struct one_kernel *c, int64_t query, int64_t key) {
  if (c->mask == CAUSAL) return key <= query;
  if (c->mask == NEAR) return (key - query) * (key - query) < NEAR_SQUARED;
  return c->mask != BOOLS || (query != 3 && (query * 7 + key * 3) % 5 != 0); /* row 3: nothing is allowed */
}

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

/* Returns what an emulated device has executed while its detail was counted. */
static struct emu_detail executed_so_far(db_device *dev) {
  struct emu_stats s;
  assert_int_equal(emu_stats(db_device_os(dev), db_device_index(dev), &s), 0);
  return s.detail;
}

/* Both products of an attention use matrix instructions: on sm_90 those of four waves, whose smallest multiplies 16
 * blocks per wave; an mma.sync multiplies two. Rows of 128 bytes in workgroup memory have no bank conflicts. */
static void check_executed(const struct one_kernel *c, const char *device, const struct emu_detail *before,
                           const struct emu_detail *after) {
  uint64_t n = after->executed[EMU_MATRIX_CLASS] - before->executed[EMU_MATRIX_CLASS];
  uint64_t blocks = after->matrix_blocks - before->matrix_blocks;
  bool nvidia = !strcmp(device, EMULATED_NVIDIA) && c->t != DB_F32;
  if ((n > 0) == (c->t != DB_F32) && (!nvidia || blocks >= 16 * n) &&
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

/* Counts what an attention of 12 heads of 1024 positions executes. */
enum { COUNTED_HEADS = 12, COUNTED_LENGTH = 1024, COUNTED_WIDTH = 64 };
static struct emu_detail count_attention(const char *device, db_dtype t, bool causal) {
  static uint16_t out[COUNTED_HEADS * COUNTED_LENGTH * COUNTED_WIDTH];
  struct emu_detail before, after;
  db_device *dev = db_open(device);
  {
    DB_SCOPED;
    db_tensor *x = db_cast(db_randn(DB_F32, dev, COUNTED_HEADS, COUNTED_LENGTH, COUNTED_WIDTH), t);
    must_read(x, out, sizeof out); /* also waits for its kernels */
    assert_int_equal(emu_detail(db_device_os(dev), true), 0);
    before = executed_so_far(dev);
    must_read(db_attention(x, x, x, .causal = causal), out, sizeof out);
    after = executed_so_far(dev);
  }
  db_close(dev);
  for (unsigned i = 0; i < EMU_CLASS_COUNT; i++) after.executed[i] -= before.executed[i];
  after.stored[EMU_LDS_SPACE] -= before.stored[EMU_LDS_SPACE];
  after.lds_conflicts -= before.lds_conflicts;
  return after;
}

static double all_executed(const struct emu_detail *d) {
  double n = 0;
  for (unsigned i = 0; i < EMU_CLASS_COUNT; i++) n += (double)d->executed[i];
  return n;
}

/* A causal attention runs no round above the diagonal. It selects by the mask only in rounds that cross it. With
 * selections in each round it needs more than 1.4 (sm_90), 1.3 (sm_80) and 1.25 (gfx1100) times the instructions for
 * each product. What phases pass on stays in registers: only blocks of keys and values are in workgroup memory, without
 * bank conflicts. On sm_90 a wave of its own copies them in boxes, so that the others store nothing there. bf16 powers
 * are rounded once, two in one instruction. If they are rounded again when they are stored, there are 62 instructions
 * for each product. */
static void passes_in_registers(void **state) {
  static const struct {
    const char *device;
    db_dtype t;
    double most, each; /* each: instructions for each matrix instruction */
    bool boxes;
  } of[] = {{EMULATED, DB_F16, 1.18, 20, false},
            {EMULATED_NVIDIA, DB_F16, 1.32, 48, true},
            {EMULATED_NVIDIA, DB_BF16, 1.32, 48, true},
            {"EMU+NV:sm_80", DB_F16, 1.2, 7.5, false}};
  enum { ROWS = 64, BLOCKS = COUNTED_HEADS * COUNTED_LENGTH / ROWS, COPY_BYTES = 4 * COUNTED_LENGTH * COUNTED_WIDTH };
  for (unsigned i = 0; i < (has_ptxas() ? 4 : 1); i++) {
    struct emu_detail all = count_attention(of[i].device, of[i].t, false),
                      half = count_attention(of[i].device, of[i].t, true);
    double products = (double)half.executed[EMU_MATRIX_CLASS] / (double)all.executed[EMU_MATRIX_CLASS];
    double others = all_executed(&half) / all_executed(&all) / products;
    uint64_t stored = all.stored[EMU_LDS_SPACE], conflicts = all.lds_conflicts + half.lds_conflicts;
    uint64_t bytes = of[i].boxes ? 0 : BLOCKS * COPY_BYTES;
    double each = all_executed(&all) / (double)all.executed[EMU_MATRIX_CLASS];
    if (each > of[i].each) fail_msg("%s: %g instructions for each product", of[i].device, each);
    if (!(products <= 0.57 && others <= of[i].most) || stored > bytes || conflicts)
      fail_msg("%s: %g of the products, %g times the instructions for each, %lu bytes stored, %lu bank conflicts",
               of[i].device, products, others, (unsigned long)stored, (unsigned long)conflicts);
  }
}

/* ---- gradients ---- */

struct gradients {
  int64_t heads, group, queries, keys, width; /* group: heads of queries per head of keys and values */
  db_dtype t;
  enum mask_kind mask;
  bool together; /* the result and its gradients are computed in one schedule */
  unsigned kernels;
};

/* Adds to dx = {dq, dk, dv} what one query of one head contributes. x = {q, k, v, dy} */
static void add_gradients(const struct gradients *c, int64_t head, int64_t i, float *const *x, double **dx) {
  const struct one_kernel like = {.mask = c->mask};
  int64_t w = c->width, n = c->keys, row = (head * c->queries + i) * w, of = head / c->group * n * w;
  double *p = calloc((size_t)n, sizeof *p), *dp = calloc((size_t)n, sizeof *dp), most = -INFINITY, sum = 0, mean = 0;
  double scale = 1 / sqrt((double)w);
  for (int64_t j = 0; j < n; j++) {
    for (int64_t d = 0; d < w; d++) p[j] += (double)x[0][row + d] * (double)x[1][of + j * w + d] * scale;
    for (int64_t d = 0; d < w; d++) dp[j] += (double)x[3][row + d] * (double)x[2][of + j * w + d];
    if (!allowed(&like, i, j)) p[j] = -INFINITY;
    most = fmax(most, p[j]);
  }
  for (int64_t j = 0; j < n; j++) sum += p[j] = exp(p[j] - most);
  for (int64_t j = 0; j < n; j++) mean += (p[j] /= sum) * dp[j];
  for (int64_t j = 0; j < n; j++) {
    double ds = p[j] * (dp[j] - mean) * scale;
    for (int64_t d = 0; d < w; d++) {
      dx[0][row + d] += ds * (double)x[1][of + j * w + d];
      dx[1][of + j * w + d] += ds * (double)x[0][row + d];
      dx[2][of + j * w + d] += p[j] * (double)x[3][row + d];
    }
  }
  free(p);
  free(dp);
}

static void check_gradients(const struct gradients *c, const char *device) {
  const struct one_kernel like = {.t = c->t};
  int64_t shared = c->heads / c->group, size = c->heads * c->queries * c->width, less = shared * c->keys * c->width;
  int64_t n[4] = {size, less, less, size};
  float *x[4], *got = calloc((size_t)(size + less), sizeof *got);
  double *want[3], error = c->t == DB_BF16 ? 0.02 : c->t == DB_F16 ? 0.003 : 1e-5;
  for (unsigned i = 0; i < 4; i++) x[i] = calloc((size_t)n[i], sizeof *x[i]);
  for (unsigned i = 0; i < 3; i++) want[i] = calloc((size_t)n[i], sizeof *want[i]);
  {
    DB_SCOPED;
    db_tensor *in[4], *out[4];
    db_device *dev = db_open(device);
    for (unsigned i = 0; i < 4; i++)
      in[i] = db_reshape(tensor_of(&like, dev, n[i], i + 1, 1, x[i]), n[i] == size ? c->heads : shared,
                         n[i] == size ? c->queries : c->keys, c->width);
    assert_int_equal(db_realize(in[0], in[1], in[2], in[3]), 0);
    for (unsigned i = 0; i < 3; i++) db_requires_grad(in[i]);
    db_tensor *y = db_attention(in[0], in[1], in[2], .causal = c->mask == CAUSAL);
    if (!c->together) assert_int_equal(db_realize(y), 0);
    bool counted = !strncmp(device, "EMU", 3) && c->t != DB_F32 && c->mask == NO_MASK && !c->together;
    struct emu_detail executed = {{0}};
    if (counted) assert_int_equal(emu_detail(db_device_os(dev), true), 0);
    if (counted) executed = executed_so_far(dev);
    unsigned before = kernels_so_far(dev);
    db_grad_all(y, in[3], in, 3, out);
    out[3] = y;
    if (db_realize_all(out, 3 + c->together)) fail_msg("%s", db_error());
    if (kernels_so_far(dev) - before != c->kernels)
      fail_msg("%ld x %ld x %ld: %u kernels", (long)c->queries, (long)c->keys, (long)c->width,
               kernels_so_far(dev) - before);
    for (int64_t i = 0; i < c->heads * c->queries; i++) add_gradients(c, i / c->queries, i % c->queries, x, want);
    for (unsigned i = 0; i < 3; i++) {
      double largest = 0;
      must_read(db_cast(out[i], DB_F32), got, (size_t)n[i] * sizeof *got);
      for (int64_t k = 0; k < n[i]; k++) largest = fmax(largest, fabs(want[i][k]));
      for (int64_t k = 0; k < n[i]; k++)
        if (fabs((double)got[k] - want[i][k]) > error * (largest + 1))
          fail_msg("%ld x %ld x %ld: element %ld of gradient %u is %g, not %g", (long)c->queries, (long)c->keys,
                   (long)c->width, (long)k, i, (double)got[k], want[i][k]);
    }
    if (counted) { /* nine products; a block has 16 rows, 8 columns and 16 bytes along the sum */
      uint64_t product = (uint64_t)(size * c->keys) / (16 * 8 * 8);
      uint64_t blocks = executed_so_far(dev).matrix_blocks - executed.matrix_blocks;
      if (blocks < 9 * product) fail_msg("%s: %lu blocks, %lu a product", device, blocks, product);
    }
    db_close(dev);
  }
  for (unsigned i = 0; i < 4; i++) free(x[i]);
  for (unsigned i = 0; i < 3; i++) free(want[i]);
  free(got);
}

/* The gradients recompute the probabilities by blocks of queries and by blocks of keys. */
static void gradients_are_kernels(void **state) {
  static const struct gradients cases[] = {
      {2, 1, 256, 256, 32, DB_F32, NO_MASK, false, 2}, {2, 1, 251, 257, 17, DB_F32, CAUSAL, false, 2},
      {2, 1, 256, 256, 32, DB_F32, NO_MASK, true, 2},  {4, 2, 128, 131, 16, DB_F32, CAUSAL, false, 2},
      {6, 3, 100, 256, 16, DB_F32, NO_MASK, true, 2},  {2, 1, 251, 257, 33, DB_BF16, CAUSAL, false, 2},
      {4, 2, 130, 256, 24, DB_F16, NO_MASK, false, 2}, {4, 2, 128, 128, 16, DB_F32, CAUSAL, true, 2},
      {2, 1, 256, 200, 24, DB_F32, CAUSAL, false, 2},  {2, 1, 192, 256, 24, DB_BF16, CAUSAL, true, 2},
      {1, 1, 460, 470, 128, DB_F32, CAUSAL, false, 2},
  };
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) check_gradients(&cases[i], "CPU");
}

/* On GPUs a kernel of its own, or the kernel of the result, computes the values of rows. The gradients that depend on
 * them come later. */
static void gradients_are_kernels_on_gpus(void **state) {
  static const struct gradients cases[] = {
      {2, 1, 128, 131, 32, DB_F16, NO_MASK, false, 3},
      {2, 1, 131, 129, 17, DB_BF16, CAUSAL, false, 3},
      {2, 1, 128, 131, 24, DB_F16, CAUSAL, true, 3},
      {1, 1, 300, 310, 64, DB_F32, CAUSAL, false, 3},
      {4, 2, 128, 131, 24, DB_F16, CAUSAL, true, 3}, /* columns of two axes */
      {4, 2, 130, 128, 32, DB_BF16, NO_MASK, false, 3},
      {6, 3, 257, 250, 16, DB_F16, CAUSAL, false, 3},
      {34, 1, 150, 200, 64, DB_BF16, CAUSAL, false, 3}, /* those of keys and values in registers on gfx1100 */
      {34, 1, 128, 131, 32, DB_F16, NO_MASK, false, 3},
      {64, 2, 100, 190, 48, DB_F16, CAUSAL, true, 3},
      {34, 1, 91, 190, 24, DB_F16, CAUSAL, false, 3},
      {2, 1, 300, 192, 96, DB_BF16, CAUSAL, false, 3},
      {4, 1, 510, 515, 17, DB_F16, CAUSAL, false, 4}, /* and four copies with aligned rows, in one launch */
      {4, 2, 515, 510, 33, DB_F32, NO_MASK, true, 4},
      {1, 1, 512, 500, 256, DB_F32, NO_MASK, false, 3}, /* the scores are as large as queries and keys */
      {2, 1, 515, 510, 1, DB_F32, CAUSAL, false, 2},    /* without products: the query's, and the others */
  };
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    check_gradients(&cases[i], EMULATED);
    if (has_ptxas()) check_gradients(&cases[i], EMULATED_NVIDIA);
  }
}

/* On gfx1100 all phases of the gradients pass on values in registers, so matrix instructions determine their time:
 * those of nine products, of 32 cycles on one of two SIMDs. A product is one of all queries with all keys. Each block
 * of 64 rows copies the operands of nine products to workgroup memory, and values of columns. */
static void gradients_pass_in_registers(void **state) {
  enum { HEADS = 12, LENGTH = 1024, WIDTH = 64, PRODUCTS = 9, BLOCKS = HEADS * LENGTH / 64 };
  static uint16_t out[HEADS * LENGTH * WIDTH];
  static const db_dtype types[] = {DB_F16, DB_BF16};
  for (unsigned i = 0; i < 2; i++) {
    struct emu_detail before, after;
    db_device *dev = db_open(EMULATED);
    {
      DB_SCOPED;
      db_tensor *x[4], *dx[3];
      for (unsigned n = 0; n < 4; n++) x[n] = db_cast(db_randn(DB_F32, dev, HEADS, LENGTH, WIDTH), types[i]);
      assert_int_equal(db_realize_all(x, 4), 0);
      must_read(x[3], out, sizeof out); /* also waits for the kernels */
      for (unsigned n = 0; n < 3; n++) db_requires_grad(x[n]);
      assert_int_equal(emu_detail(db_device_os(dev), true), 0);
      before = executed_so_far(dev);
      db_grad_all(db_attention(x[0], x[1], x[2]), x[3], x, 3, dx);
      assert_int_equal(db_realize_all(dx, 3), 0);
      must_read(dx[2], out, sizeof out);
      after = executed_so_far(dev);
    }
    db_close(dev);
    double instructions = (double)PRODUCTS * HEADS * LENGTH * LENGTH * WIDTH / (16 * 16 * 16);
    double us = (double)(after.model_ps - before.model_ps) * 1e-6, least = instructions * 16 / 96 / 2500;
    uint64_t stored = after.stored[EMU_LDS_SPACE] - before.stored[EMU_LDS_SPACE];
    uint64_t copied = (uint64_t)PRODUCTS * BLOCKS * LENGTH * WIDTH * sizeof *out;
    if (us > 1.1 * least || stored > copied + copied / 6 || after.lds_conflicts != before.lds_conflicts)
      fail_msg("%g us of model time, %g for the products alone; %lu bytes stored, %lu copied", us, least,
               (unsigned long)stored, (unsigned long)copied);
  }
}

/* On gfx1100 the gradients of keys and of values in rows of 128 elements do not fit in the registers of one kernel; on
 * sm_90 those in longer rows. */
static void gradients_of_long_rows_are_two_kernels(void **state) {
  static const struct gradients wide[] = {
      {1, 1, 515, 514, 160, DB_F16, NO_MASK, false, 3},
      {1, 1, 513, 515, 192, DB_BF16, NO_MASK, false, 3},
      {1, 1, 515, 514, 256, DB_F16, NO_MASK, false, 3},
  };
  static const struct gradients cases[] = {
      {12, 1, 500, 520, 128, DB_F16, NO_MASK, false, 4},
      {1, 1, 390, 500, 128, DB_BF16, CAUSAL, false, 4},
      {4, 2, 400, 392, 128, DB_F16, CAUSAL, true, 4},
  };
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) check_gradients(&cases[i], EMULATED);
  for (unsigned i = 0; i < sizeof wide / sizeof *wide; i++) {
    struct gradients on_nvidia = wide[i];
    check_gradients(&wide[i], EMULATED);
    on_nvidia.kernels++;
    if (has_ptxas()) check_gradients(&on_nvidia, EMULATED_NVIDIA);
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
}

/* The model time in us of an attention of 4 heads of 512 queries and keys, or of its gradients. */
static double model_time(const char *device, db_dtype t, int64_t width, bool back) {
  enum { HEADS = 4, LENGTH = 512, MOST_WIDTH = 256 };
  static float out[HEADS * LENGTH * MOST_WIDTH];
  struct emu_detail before, after;
  db_device *dev = db_open(device);
  {
    DB_SCOPED;
    size_t bytes = (size_t)(HEADS * LENGTH * width) * (t == DB_F32 ? 4 : 2);
    db_tensor *x[4], *dx[3];
    for (unsigned n = 0; n < 4; n++) x[n] = db_cast(db_randn(DB_F32, dev, HEADS, LENGTH, width), t);
    assert_int_equal(db_realize_all(x, 4), 0);
    must_read(x[3], out, bytes); /* also waits for the kernels */
    for (unsigned n = 0; n < 3 && back; n++) db_requires_grad(x[n]);
    assert_int_equal(emu_detail(db_device_os(dev), true), 0);
    before = executed_so_far(dev);
    db_tensor *y = db_attention(x[0], x[1], x[2]);
    if (back) db_grad_all(y, x[3], x, 3, dx);
    assert_int_equal(back ? db_realize_all(dx, 3) : db_realize(y), 0);
    must_read(back ? dx[2] : y, out, bytes);
    after = executed_so_far(dev);
  }
  db_close(dev);
  return (double)(after.model_ps - before.model_ps) * 1e-6;
}

/* A width takes little longer than a round one near it. Rows of an odd number of elements are padded first; the kernels
 * that do this take about 2 us each. Others are copied in the vectors that are aligned. */
static void all_widths_are_fast(void **state) {
  static const struct {
    const char *device;
    db_dtype t;
    int64_t width, like;
    bool back;
    double most; /* ratio of the times */
  } cases[] = {
      {EMULATED, DB_F16, 72, 80, false, 1.1},   {EMULATED, DB_F16, 80, 64, false, 1.3},
      {EMULATED, DB_F16, 184, 192, false, 1.2}, {EMULATED, DB_F16, 200, 256, false, 1.1},
      {EMULATED, DB_F16, 65, 80, false, 2.1},   {EMULATED, DB_F16, 72, 80, true, 1.2},
      {EMULATED, DB_F16, 184, 192, true, 1.2},  {EMULATED, DB_F16, 256, 128, true, 2.5},
      {EMULATED, DB_F32, 65, 128, false, 1.4},  {EMULATED, DB_F32, 3, 64, false, 0.8},
      {EMULATED, DB_F32, 20, 64, true, 0.8},    {EMULATED, DB_F16, 20, 32, true, 1.4},
      {EMULATED, DB_F16, 100, 112, false, 1.5}, {EMULATED, DB_F16, 65, 80, true, 1.4},
      {EMULATED, DB_F16, 3, 4, false, 1.7},
  };
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    double us = model_time(cases[i].device, cases[i].t, cases[i].width, cases[i].back);
    double like = model_time(cases[i].device, cases[i].t, cases[i].like, cases[i].back);
    if (us > cases[i].most * like)
      fail_msg("%s: width %ld takes %g us, %ld takes %g", cases[i].device, (long)cases[i].width, us,
               (long)cases[i].like, like);
  }
}

/* Work-items share copies of the operands of f32 products, also of those that they compute, such as probabilities. The
 * rate is that of two products, or of seven. */
static void f32_uses_copies(void **state) {
  for (unsigned back = 0; back < 2; back++) {
    double operations = (back ? 14 : 4) * 4.0 * 512 * 512 * 128, us = model_time(EMULATED, DB_F32, 128, back);
    if (operations / us * 1e-6 < (back ? 12 : 14))
      fail_msg("%g us of model time, %g TFLOPS", us, operations / us * 1e-6);
  }
}

/* Rounds of many columns load few operands for each product: in blocks of 16 rows the gradients of f32 take a fifth
 * less time than with 64. */
static void f32_gradients_use_wide_rounds(void **state) {
  static const int64_t width[] = {20, 64, 128};
  static const double most[] = {67, 112, 196};
  for (unsigned i = 0; has_ptxas() && i < sizeof width / sizeof *width; i++) {
    double us = model_time(EMULATED_NVIDIA, DB_F32, width[i], true);
    if (us > most[i]) fail_msg("width %ld: %g us of model time", (long)width[i], us);
  }
}

/* Work-items that hold matrices in registers copy the maximum, the sum and the gradient of each query to workgroup
 * memory once in a round, while another wave copies the operands. Loads of each lane took 5 us more. */
static void values_of_columns_are_copied(void **state) {
  double us = has_ptxas() ? model_time(EMULATED_NVIDIA, DB_F16, 64, true) : 0;
  if (us > 23.5) fail_msg("%g us of model time", us);
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(memory_is_linear),
                                     cmocka_unit_test(is_one_kernel),
                                     cmocka_unit_test(memory_is_linear_on_gpus),
                                     cmocka_unit_test(is_one_kernel_on_gpus),
                                     cmocka_unit_test(all_widths_are_fast),
                                     cmocka_unit_test(f32_uses_copies),
                                     cmocka_unit_test(f32_gradients_use_wide_rounds),
                                     cmocka_unit_test(values_of_columns_are_copied),
                                     cmocka_unit_test(passes_in_registers),
                                     cmocka_unit_test(gradients_are_kernels),
                                     cmocka_unit_test(gradients_are_kernels_on_gpus),
                                     cmocka_unit_test(gradients_pass_in_registers),
                                     cmocka_unit_test(gradients_of_long_rows_are_two_kernels),
                                     cmocka_unit_test(expressions_end_with_the_columns),
                                     cmocka_unit_test(scores_far_below_zero),
                                     cmocka_unit_test(growing_keys),
                                     cmocka_unit_test(keys_at_a_variable),
                                     cmocka_unit_test(refused)};
  has_ptxas(); /* sets the cache folder before anything is compiled */
  return cmocka_run_group_tests_name("attention", tests, NULL, finish);
}
