/* The list of cases of bench/kernels. */
#include "speed.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

const char *const beside_name[BESIDES] = {"OpenBLAS", "PyTorch", "cuBLAS", "copy", "read", "peak", "matmul", "f32"};

/* All cases except the convolutions. The operation in ops.c defines the order of `n`; goal is the required speed
 * relative to goal_beside. */
#define SQUARE(n) #n, {1, n, n, n, 0, 0}
static const struct row {
  enum machine on;
  db_dtype dtype;
  const char *op, *name;
  int64_t n[MAX_NUMBERS];
  double goal;
  enum beside goal_beside;
} rows[] = {
    /* clang-format off */
    {ON_HOST, DB_F32, "matmul", SQUARE(512), 0.95, BESIDE_BLAS},
    {ON_HOST, DB_F32, "matmul", SQUARE(1024), 0.95, BESIDE_BLAS},
    {ON_HOST, DB_F32, "matmul", SQUARE(2048), 0.95, BESIDE_BLAS},
    {ON_HOST, DB_F32, "matmul", SQUARE(1000), 0.9, BESIDE_BLAS},
    {ON_HOST, DB_F32, "matmul", SQUARE(1023), 0.9, BESIDE_BLAS},
    {ON_HOST, DB_F32, "matmul", SQUARE(1537), 0.9, BESIDE_BLAS},
    {ON_HOST, DB_F32, "matmul", SQUARE(255)},
    {ON_HOST, DB_F32, "matmul", SQUARE(256)},
    {ON_HOST, DB_F32, "matmul", SQUARE(4096)},
    {ON_HOST, DB_F32, "matmul", "1024x768x50257 x@w^T", {1, 1024, 50257, 768, 0, 1}},
    {ON_HOST, DB_F32, "matmul", "1024 x@w^T", {1, 1024, 1024, 1024, 0, 1}},
    {ON_HOST, DB_F32, "matmul", "1024 x^T@w", {1, 1024, 1024, 1024, 1, 0}},
    {ON_HOST, DB_F32, "matmul", "gemv 4096x4096", {1, 1, 4096, 4096, 0, 0}},
    {ON_HOST, DB_F32, "matmul", "gemv 4096x4096 x@w^T", {1, 1, 4096, 4096, 0, 1}},
    {ON_HOST, DB_F32, "matmul", "8x4096x4096", {1, 8, 4096, 4096, 0, 0}},
    {ON_HOST, DB_F32, "matmul", "8x4096x4096 x@w^T", {1, 8, 4096, 4096, 0, 1}},
    {ON_HOST, DB_F32, "matmul", "batched 16x256", {16, 256, 256, 256, 0, 0}},
    {ON_HOST, DB_F32, "matmul", "batched 64x128x64x128", {64, 128, 128, 64, 0, 1}},
    {ON_HOST, DB_BF16, "matmul", SQUARE(512), 1.5, BESIDE_F32},
    {ON_HOST, DB_BF16, "matmul", SQUARE(1024), 1.5, BESIDE_F32},
    {ON_HOST, DB_BF16, "matmul", SQUARE(1023), 1.5, BESIDE_F32},
    {ON_HOST, DB_F16, "matmul", SQUARE(512)},
    {ON_HOST, DB_F16, "matmul", SQUARE(1024)},
    {ON_HOST, DB_F16, "matmul", SQUARE(1023)},
    {ON_HOST, DB_F32, "attention", "12x1024x64", {12, 1024, 64, 0}, 0.7, BESIDE_MATMUL},
    {ON_HOST, DB_F32, "attention", "12x1024x64 causal", {12, 1024, 64, 1}},
    {ON_HOST, DB_F32, "attention", "32x4096x128", {32, 4096, 128, 0}},
    {ON_HOST, DB_F32, "attention_back", "12x1024x64", {12, 1024, 64, 0}},
    {ON_HOST, DB_F32, "attention_back", "12x1024x64 causal", {12, 1024, 64, 1}},
    {ON_HOST, DB_F32, "softmax", "4096x4096", {4096, 4096}, 1 / 1.6, BESIDE_COPY},
    {ON_HOST, DB_F32, "softmax", "4093x4099", {4093, 4099}},
    {ON_HOST, DB_F32, "layer_norm", "4096x4096", {4096, 4096}, 1 / 1.3, BESIDE_COPY},
    {ON_HOST, DB_F32, "layer_norm", "4096x4095", {4096, 4095}},
    {ON_HOST, DB_F32, "batch_norm", "64x64x64x64", {64, 64, 64, 64}},
    {ON_HOST, DB_F32, "gelu", "4096x4096", {4096, 4096}, 1 / 2.0, BESIDE_COPY},
    {ON_HOST, DB_F32, "sum", "4096x4096", {4096, 4096, -1}, 1 / 1.2, BESIDE_READ},
    {ON_HOST, DB_F32, "sum", "4096x4096 axis 1", {4096, 4096, 1}},
    {ON_HOST, DB_F32, "sum", "4096x4096 axis 0", {4096, 4096, 0}},
    {ON_HOST, DB_F32, "sum", "65536x768 axis 0", {65536, 768, 0}},
    {ON_HOST, DB_F32, "sum", "1023x10007 axis 0", {1023, 10007, 0}},
    {ON_HOST, DB_F32, "exp2", "1000003", {1, 1000003}},
    {ON_HOST, DB_F32, "add", "4096x4096", {4096, 4096}},
    {ON_HOST, DB_F32, "scale", "4096x4096", {4096, 4096}},
    {ON_HOST, DB_F32, "transpose", "4096x4096", {4096, 4096}},
    {ON_HOST, DB_F32, "transpose", "50257x768", {50257, 768}},
    {ON_HOST, DB_F32, "embedding", "50257x768 by 1024", {50257, 768, 1024}},
    {ON_HOST, DB_F32, "embedding", "256x64 by 65536", {256, 64, 65536}},
    {ON_HOST, DB_F32, "embedding", "10000x1 by 1000003", {10000, 1, 1000003}},
    {ON_HOST, DB_I32, "bincount", "256 by 1000003", {256, 1, 1000003}},
    {ON_HOST, DB_I32, "bincount", "100000 by 1000003", {100000, 1, 1000003}},
    {ON_HOST, DB_F32, "conv_dx", "16x128x56 to 128 3x3 s2", {16, 128, 56, 128, 3, 2}},
    {ON_HOST, DB_F32, "conv_dx", "8x32x64 to 64 4x4 s2", {8, 32, 64, 64, 4, 2}},
    {ON_HOST, DB_F32, "conv_dw", "8x96x56 depthwise 3x3", {8, 96, 56, 96, 3, 1, 96}},
    {ON_HOST, DB_F32, "max_pool", "16x64x112 3x3 s2", {16, 64, 112, 3, 2}},
    {ON_HOST, DB_F32, "max_pool_back", "16x64x112 3x3 s2", {16, 64, 112, 3, 2}},
    {ON_HOST, DB_F32, "sort", "1024x1024", {1024, 1024}},
    {ON_HOST, DB_F32, "sort", "1x1000003", {1, 1000003}},
    {ON_HOST, DB_F32, "topk", "40 of 64x50257", {64, 50257, 40}},
    {ON_HOST, DB_F32, "cumsum", "1024x4096", {1024, 4096}},
    {ON_EMULATOR, DB_F32, "matmul", SQUARE(256)},
    {ON_EMULATOR, DB_F32, "matmul", SQUARE(512)},
    {ON_EMULATOR, DB_F32, "matmul", SQUARE(511)},
    {ON_EMULATOR, DB_F32, "matmul", SQUARE(1024)},
    {ON_EMULATOR, DB_F32, "matmul", SQUARE(1023)},
    {ON_EMULATOR, DB_F32, "matmul", "1009x509x1013", {1, 1009, 509, 1013, 0, 0}},
    {ON_EMULATOR, DB_F32, "matmul", "512 x@w^T", {1, 512, 512, 512, 0, 1}},
    {ON_EMULATOR, DB_F32, "matmul", "512 x^T@w", {1, 512, 512, 512, 1, 0}},
    {ON_EMULATOR, DB_F32, "matmul", "batched 16x256", {16, 256, 256, 256, 0, 0}},
    {ON_EMULATOR, DB_F32, "matmul", "8x4096x4096", {1, 8, 4096, 4096, 0, 0}},
    {ON_EMULATOR, DB_F32, "matmul", "8x4096x4096 x@w^T", {1, 8, 4096, 4096, 0, 1}},
    {ON_EMULATOR, DB_F32, "matmul", "64x256x50257 x@w^T", {1, 64, 50257, 256, 0, 1}},
    {ON_EMULATOR, DB_F32, "matmul", "128x128x32768 x@w^T", {1, 128, 128, 32768, 0, 1}},
    {ON_EMULATOR, DB_BF16, "matmul", SQUARE(256)},
    {ON_EMULATOR, DB_BF16, "matmul", SQUARE(512)},
    {ON_EMULATOR, DB_BF16, "matmul", SQUARE(511)},
    {ON_EMULATOR, DB_F16, "matmul", SQUARE(256)},
    {ON_EMULATOR, DB_F16, "matmul", SQUARE(512)},
    {ON_EMULATOR, DB_F16, "matmul", SQUARE(511)},
    {ON_EMULATOR, DB_BF16, "matmul", SQUARE(1024)},
    {ON_EMULATOR, DB_F16, "matmul", SQUARE(1024)},
    {ON_EMULATOR, DB_BF16, "matmul", "128x128x32768 x@w^T", {1, 128, 128, 32768, 0, 1}},
    {ON_EMULATOR, DB_F16, "matmul", "128x128x32768 x@w^T", {1, 128, 128, 32768, 0, 1}},
    {ON_EMULATOR, DB_BF16, "matmul", "512 x@w^T", {1, 512, 512, 512, 0, 1}},
    {ON_EMULATOR, DB_F16, "matmul", "512 x@w^T", {1, 512, 512, 512, 0, 1}},
    {ON_EMULATOR, DB_F32, "matmul", "gemv 1024x1024", {1, 1, 1024, 1024, 0, 0}},
    {ON_EMULATOR, DB_F16, "attention", "2x256x64", {2, 256, 64, 0}},
    {ON_EMULATOR, DB_F16, "attention", "12x1024x64", {12, 1024, 64, 0}},
    {ON_EMULATOR, DB_F16, "attention", "12x1024x64 causal", {12, 1024, 64, 1}},
    {ON_EMULATOR, DB_BF16, "attention", "12x1024x64", {12, 1024, 64, 0}},
    {ON_EMULATOR, DB_F16, "attention", "4x1024x128", {4, 1024, 128, 0}},
    {ON_EMULATOR, DB_BF16, "attention", "4x1024x128", {4, 1024, 128, 0}},
    {ON_EMULATOR, DB_F16, "attention_back", "4x512x64", {4, 512, 64, 0}},
    {ON_EMULATOR, DB_F16, "attention_back", "4x512x64 causal", {4, 512, 64, 1}},
    {ON_EMULATOR, DB_F16, "attention_back", "12x1024x64", {12, 1024, 64, 0}},
    {ON_EMULATOR, DB_F16, "attention_back", "12x1024x64 causal", {12, 1024, 64, 1}},
    {ON_EMULATOR, DB_BF16, "attention_back", "12x1024x64", {12, 1024, 64, 0}},
    {ON_EMULATOR, DB_F16, "attention_back", "8 heads on 2, 512x64 causal", {8, 512, 64, 1, 4}},
    {ON_EMULATOR, DB_F32, "gelu", "512x1024", {512, 1024}},
    {ON_EMULATOR, DB_F32, "exp2", "1000003", {1, 1000003}},
    {ON_EMULATOR, DB_F32, "add", "512x1024", {512, 1024}},
    {ON_EMULATOR, DB_F32, "transpose", "512x1024", {512, 1024}},
    {ON_EMULATOR, DB_F32, "embedding", "50257x768 by 1024", {50257, 768, 1024}},
    {ON_EMULATOR, DB_F32, "embedding", "256x64 by 65536", {256, 64, 65536}},
    {ON_EMULATOR, DB_F32, "embedding", "10000x1 by 1000003", {10000, 1, 1000003}},
    {ON_EMULATOR, DB_I32, "bincount", "256 by 1000003", {256, 1, 1000003}},
    {ON_EMULATOR, DB_I32, "bincount", "100000 by 1000003", {100000, 1, 1000003}},
    {ON_EMULATOR, DB_BF16, "conv_dx", "16x128x56 to 128 3x3 s2", {16, 128, 56, 128, 3, 2}},
    {ON_EMULATOR, DB_F16, "conv_dx", "8x32x64 to 64 4x4 s2", {8, 32, 64, 64, 4, 2}},
    {ON_EMULATOR, DB_BF16, "conv_dw", "16x256x56 to 512 1x1 s2", {16, 256, 56, 512, 1, 2}},
    {ON_EMULATOR, DB_F32, "max_pool", "16x64x112 3x3 s2", {16, 64, 112, 3, 2}},
    {ON_EMULATOR, DB_F32, "max_pool_back", "16x64x112 3x3 s2", {16, 64, 112, 3, 2}},
    {ON_EMULATOR, DB_F32, "sort", "1024x1024", {1024, 1024}},
    {ON_EMULATOR, DB_F32, "topk", "40 of 64x50257", {64, 50257, 40}},
    {ON_EMULATOR, DB_F32, "cumsum", "1024x4096", {1024, 4096}},
    {ON_GPU, DB_BF16, "matmul", SQUARE(1024)},
    {ON_GPU, DB_F16, "matmul", SQUARE(1024)},
    {ON_GPU, DB_F32, "matmul", SQUARE(1024)},
    {ON_GPU, DB_BF16, "matmul", SQUARE(2048)},
    {ON_GPU, DB_F16, "matmul", SQUARE(2048)},
    {ON_GPU, DB_F32, "matmul", SQUARE(2048)},
    {ON_GPU, DB_BF16, "matmul", SQUARE(4096)},
    {ON_GPU, DB_F16, "matmul", SQUARE(4096)},
    {ON_GPU, DB_F32, "matmul", SQUARE(4096)},
    {ON_GPU, DB_BF16, "matmul", SQUARE(8192), 0.9, BESIDE_CUDA},
    {ON_GPU, DB_F16, "matmul", SQUARE(8192)},
    {ON_GPU, DB_BF16, "matmul", SQUARE(1023)},
    {ON_GPU, DB_F16, "matmul", SQUARE(1023)},
    {ON_GPU, DB_F32, "matmul", SQUARE(1023)},
    {ON_GPU, DB_BF16, "matmul", SQUARE(4095)},
    {ON_GPU, DB_F16, "matmul", SQUARE(4095)},
    {ON_GPU, DB_F32, "matmul", SQUARE(4095)},
    {ON_GPU, DB_BF16, "matmul", "4096 x@w^T", {1, 4096, 4096, 4096, 0, 1}},
    {ON_GPU, DB_BF16, "matmul", "4096 x^T@w", {1, 4096, 4096, 4096, 1, 0}},
    {ON_GPU, DB_BF16, "matmul", "1024x768x50257 x@w^T", {1, 1024, 50257, 768, 0, 1}},
    {ON_GPU, DB_BF16, "matmul", "gemv 8192x8192 x@w^T", {1, 1, 8192, 8192, 0, 1}},
    {ON_GPU, DB_BF16, "matmul", "8x8192x8192 x@w^T", {1, 8, 8192, 8192, 0, 1}},
    {ON_GPU, DB_BF16, "matmul", "batched 64x1024", {64, 1024, 1024, 1024, 0, 0}},
    {ON_GPU, DB_BF16, "attention", "12x1024x64", {12, 1024, 64, 0}},
    {ON_GPU, DB_BF16, "attention", "32x4096x128", {32, 4096, 128, 0}, 0.6, BESIDE_MATMUL},
    {ON_GPU, DB_BF16, "attention", "32x4096x128 causal", {32, 4096, 128, 1}},
    {ON_GPU, DB_F32, "softmax", "8192x8192", {8192, 8192}},
    {ON_GPU, DB_F32, "layer_norm", "8192x8192", {8192, 8192}},
    {ON_GPU, DB_F32, "batch_norm", "64x256x56x56", {64, 256, 56, 56}},
    {ON_GPU, DB_F32, "gelu", "8192x8192", {8192, 8192}},
    {ON_GPU, DB_F32, "sum", "8192x8192", {8192, 8192, -1}},
    {ON_GPU, DB_F32, "sum", "8192x8192 axis 0", {8192, 8192, 0}},
    {ON_GPU, DB_F32, "exp2", "100000007", {1, 100000007}},
    {ON_GPU, DB_F32, "add", "8192x8192", {8192, 8192}, 0.9, BESIDE_COPY},
    {ON_GPU, DB_F32, "transpose", "8192x8192", {8192, 8192}},
    /* clang-format on */
};

/* The distinct convolutions of ResNet-50: channels in, size in, channels out, kernel, stride. */
static const int64_t convolutions[][5] = {
    {3, 224, 64, 7, 2},     {64, 56, 64, 1, 1},   {64, 56, 64, 3, 1},    {64, 56, 256, 1, 1},   {256, 56, 64, 1, 1},
    {256, 56, 128, 1, 1},   {128, 56, 128, 3, 2}, {128, 28, 512, 1, 1},  {256, 56, 512, 1, 2},  {512, 28, 128, 1, 1},
    {128, 28, 128, 3, 1},   {512, 28, 256, 1, 1}, {256, 28, 256, 3, 2},  {256, 14, 1024, 1, 1}, {512, 28, 1024, 1, 2},
    {1024, 14, 256, 1, 1},  {256, 14, 256, 3, 1}, {1024, 14, 512, 1, 1}, {512, 14, 512, 3, 2},  {512, 7, 2048, 1, 1},
    {1024, 14, 2048, 1, 2}, {2048, 7, 512, 1, 1}, {512, 7, 512, 3, 1},
};

enum { ROWS = sizeof rows / sizeof *rows, CONVOLUTIONS = sizeof convolutions / sizeof *convolutions };

/* Reductions, in f32 and f16 on the emulators. Operations on rows are those along axis 1. */
static const char *const reductions[] = {"sum", "mean", "max", "argmax", "var"};
static const char *const row_operations[] = {"softmax", "log_softmax", "layer_norm"};
/* clang-format off */
static const struct {
  const char *name;
  int64_t n[3]; /* rows, columns, axis; -1: all elements */
} matrix[] = {
    {"512x1024", {512, 1024, -1}},           {"512x1024 axis 1", {512, 1024, 1}},
    {"512x1024 axis 0", {512, 1024, 0}},     {"16384x64 axis 1", {16384, 64, 1}},
    {"16384x64 axis 0", {16384, 64, 0}},     {"131072x8 axis 1", {131072, 8, 1}},
    {"4x1000003 axis 1", {4, 1000003, 1}},   {"4x1000003 axis 0", {4, 1000003, 0}},
    {"1000003", {1, 1000003, -1}},           {"1023x10007", {1023, 10007, -1}},
    {"1023x10007 axis 1", {1023, 10007, 1}}, {"1023x10007 axis 0", {1023, 10007, 0}},
};
/* clang-format on */
static const int64_t images[][4] = {{16, 32, 32, 32}, {16, 64, 28, 28}, {4, 3, 224, 224}, {16, 2048, 7, 7}};
static const db_dtype reduced_types[] = {DB_F32, DB_F16};

/* The number of elements of an array. */
#define COUNT(a) (sizeof(a) / sizeof *(a))
enum { REDUCED = 2 * (8 * COUNT(matrix) + COUNT(images)) };
/* Batch sizes of the convolutions. */
static const struct {
  enum machine on;
  db_dtype dtype;
  int64_t batch;
} batches[] = {{ON_HOST, DB_F32, 1}, {ON_HOST, DB_F32, 16}, {ON_GPU, DB_F16, 16}, {ON_EMULATOR, DB_F16, 1}};
enum { BATCHES = sizeof batches / sizeof *batches };

static struct speed_case list[ROWS + BATCHES * CONVOLUTIONS + REDUCED], given[MAX_GIVEN];
static unsigned nlist, ngiven;

static struct speed_case *add(enum machine on, const char *op, db_dtype dtype) {
  struct speed_case *c = &list[nlist++];
  *c = (struct speed_case){.on = on, .op = speed_op(op), .dtype = dtype};
  assert(c->op);
  snprintf(c->group, sizeof c->group, "%s", op);
  return c;
}

static void add_row(const struct row *r) {
  struct speed_case *c = add(r->on, r->op, r->dtype);
  snprintf(c->name, sizeof c->name, "%s %s", db_dtype_name(r->dtype), r->name);
  memcpy(c->n, r->n, sizeof c->n);
  if (r->goal_beside == BESIDE_F32 && !host_has_bf16()) return; /* this host computes bf16 as f32 */
  c->goal_beside = r->goal_beside;
  c->goal = r->goal;
}

static void add_convolution(enum machine on, db_dtype dtype, int64_t batch, const int64_t s[5]) {
  struct speed_case *c = add(on, "conv", dtype);
  snprintf(c->name, sizeof c->name, "%s batch %lld %lldx%lldx%lld to %lld %lldx%lld s%lld", db_dtype_name(dtype),
           (long long)batch, (long long)s[0], (long long)s[1], (long long)s[1], (long long)s[2], (long long)s[3],
           (long long)s[3], (long long)s[4]);
  c->n[0] = batch;
  memcpy(&c->n[1], s, 5 * sizeof *s);
}

static void add_reductions(db_dtype dtype) {
  const char *type = db_dtype_name(dtype);
  for (unsigned i = 0; i < COUNT(matrix); i++) {
    unsigned more = matrix[i].n[2] == 1 ? COUNT(row_operations) : 0;
    for (unsigned k = 0; k < COUNT(reductions) + more; k++) {
      bool row = k >= COUNT(reductions);
      struct speed_case *c = add(ON_EMULATOR, row ? row_operations[k - COUNT(reductions)] : reductions[k], dtype);
      snprintf(c->name, sizeof c->name, "%s %.*s", type, (int)strcspn(matrix[i].name, row ? " " : ""), matrix[i].name);
      memcpy(c->n, matrix[i].n, sizeof matrix[i].n);
    }
  }
  for (unsigned i = 0; i < COUNT(images); i++) {
    const int64_t *n = images[i];
    struct speed_case *c = add(ON_EMULATOR, "batch_norm", dtype);
    snprintf(c->name, sizeof c->name, "%s %lldx%lldx%lldx%lld", type, (long long)n[0], (long long)n[1], (long long)n[2],
             (long long)n[3]);
    memcpy(c->n, n, sizeof images[i]);
  }
}

static void make_list(void) {
  if (nlist) return;
  for (unsigned i = 0; i < ROWS; i++) add_row(&rows[i]);
  for (unsigned b = 0; b < BATCHES; b++)
    for (unsigned i = 0; i < CONVOLUTIONS; i++)
      add_convolution(batches[b].on, batches[b].dtype, batches[b].batch, convolutions[i]);
  for (unsigned i = 0; i < COUNT(reduced_types); i++) add_reductions(reduced_types[i]);
}

const struct speed_case *speed_cases(unsigned *n) {
  make_list();
  *n = ngiven ? ngiven : nlist;
  return ngiven ? given : list;
}

/* ---- cases given as text ---- */

/* Whether the number with this name may be left out. */
static bool is_optional(const char *word, size_t length) { return word[length - 1] == '?' || *word == '['; }

/* The number of numbers of a case that cannot be left out. */
static unsigned count_required(const struct speed_op *op) {
  unsigned n = 0;
  for (const char *word = op->numbers; *word; word += strspn(word, " "), n++) {
    size_t length = strcspn(word, " ");
    if (is_optional(word, length)) break;
    word += length;
  }
  return n;
}

/* Prints why the text is wrong, and examples of right ones: as numbers and, if it differs, the name of a case of the
 * list. op: the operation that the text names, or NULL. Returns false. */
static bool refuse_case(const char *text, const struct speed_op *op, const char *why, const char *what) {
  const struct speed_case *like = NULL;
  fprintf(stderr, "kernels: --case '%s': %s%s\n", text, why, what);
  for (unsigned i = 0; i < nlist && !like; i++)
    if (!op || !strcmp(list[i].op->numbers, op->numbers)) like = &list[i];
  if (!like) return false;
  fprintf(stderr, "example: kernels --case '%s %s", op ? op->name : like->op->name, db_dtype_name(like->dtype));
  for (unsigned i = 0; i < count_required(like->op); i++)
    fprintf(stderr, "%c%lld", i ? 'x' : ' ', (long long)like->n[i]);
  fprintf(stderr, "', or a name that --list prints, such as '%s %s'\n", like->group, like->name);
  return false;
}

/* Whether the operation can have the first n numbers of the case. Numbers that are left out are 0, an axis is -1. */
static bool numbers_fit(struct speed_case *c, unsigned n) {
  unsigned i = 0;
  bool optional = false;
  for (const char *word = c->op->numbers; *word; word += strspn(word, " ")) {
    size_t length = strcspn(word, " ");
    bool is_switch = word[length - 1] == '?';
    optional = optional || is_optional(word, length);
    if (i == n && !strncmp(word, "axis", 4)) c->n[i] = -1;
    if (i == n) return optional;
    if (is_switch ? c->n[i] > 1 : !optional && c->n[i] < 1) return false;
    i++, word += length;
  }
  return i == n;
}

/* The case of the list with this name, on this kind of machine if there is one, otherwise on any. */
static const struct speed_case *case_named(const char *text, enum machine on) {
  const struct speed_case *found = NULL;
  for (unsigned i = 0; i < nlist; i++) {
    size_t n = strlen(list[i].group);
    if (strncmp(text, list[i].group, n) != 0 || text[n] != ' ' || strcmp(text + n + 1, list[i].name) != 0) continue;
    if (list[i].on == on) return &list[i];
    if (!found) found = &list[i];
  }
  return found;
}

/* Reads the numbers of case c, which are the end of the text. */
static bool read_numbers(struct speed_case *c, const char *text, const char *numbers) {
  static const double most = 0x1p38; /* elements of a tensor */
  unsigned n = 0;
  const char *p = numbers;
  for (bool more = true; more && n < MAX_NUMBERS; p += more) {
    char *end;
    c->n[n] = strtoll(p, &end, 10);
    if (end == p || c->n[n] < 0 || c->n[n] > INT32_MAX)
      return refuse_case(text, c->op, "no number at ", *p ? p : "the end");
    n++, p = end, more = *p == 'x';
  }
  if (*p || !numbers_fit(c, n)) return refuse_case(text, c->op, "the numbers must be ", c->op->numbers);
  for (unsigned i = 0; i <= c->op->ninputs; i++) {
    struct tensor_shape shape = c->op->shape(c, i);
    double elements = 1;
    for (unsigned d = 0; d < shape.n; d++) elements *= (double)shape.dim[d];
    if (elements < 1 || elements > most)
      return refuse_case(text, c->op, "a tensor would have too few or too many elements", "");
  }
  return true;
}

bool speed_give_case(const char *text, enum machine on) {
  char op[16], type[16];
  int at = 0;
  make_list();
  if (ngiven == MAX_GIVEN) return refuse_case(text, NULL, "too many cases", "");
  struct speed_case *c = &given[ngiven];
  const struct speed_case *named = case_named(text, on);
  if (named) {
    *c = *named;
    if (c->on != on) c->goal = 0, c->on = on;
    ngiven++;
    return true;
  }
  if (sscanf(text, "%15s %15s %n", op, type, &at) < 2 || !at || !speed_op(op))
    return refuse_case(text, NULL, "does not begin with an operation and a type", "");
  db_dtype dtype = DB_BOOL;
  while (strcmp(db_dtype_name(dtype), type) != 0)
    if (dtype++ == DB_F8E5M2) return refuse_case(text, speed_op(op), "there is no type ", type);
  *c = (struct speed_case){.on = on, .op = speed_op(op), .dtype = dtype};
  if (!read_numbers(c, text, text + at)) return false;
  snprintf(c->group, sizeof c->group, "%s", op);
  snprintf(c->name, sizeof c->name, "%s %s", type, text + at);
  ngiven++;
  return true;
}
