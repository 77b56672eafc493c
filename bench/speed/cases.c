/* The list of cases of bench/kernels. */
#include "speed.h"
#include <assert.h>
#include <string.h>

const char *const beside_name[BESIDES] = {"OpenBLAS", "PyTorch", "cuBLAS", "copy", "read", "peak", "matmul", "f32"};

enum { MAX_CASES = 256 };
static struct speed_case list[MAX_CASES];
static unsigned nlist;

static struct speed_case *add(const char *op, db_dtype dtype, const int64_t *numbers, unsigned n, const char *name) {
  assert(nlist < MAX_CASES && n <= MAX_NUMBERS);
  struct speed_case *c = &list[nlist++];
  c->op = speed_op(op);
  assert(c->op);
  snprintf(c->group, sizeof c->group, "%s", op);
  snprintf(c->name, sizeof c->name, "%s %s", db_dtype_name(dtype), name);
  c->dtype = dtype;
  memcpy(c->n, numbers, n * sizeof *numbers);
  return c;
}
#define ADD(op, dtype, name, ...)                                                                                      \
  add(op, dtype, (int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), name)

static void goal(struct speed_case *c, enum beside b, double ratio) { c->goal_beside = b, c->goal = ratio; }

static void square(db_dtype dtype, int64_t n, double of_blas) {
  char name[24];
  snprintf(name, sizeof name, "%lld", (long long)n);
  struct speed_case *c = ADD("matmul", dtype, name, 1, n, n, n, 0, 0);
  if (of_blas > 0) goal(c, BESIDE_BLAS, of_blas);
}

static void matmuls(void) {
  static const int64_t most[] = {512, 1024, 2048}, odd[] = {1000, 1023, 1537}, rest[] = {255, 256, 4096};
  for (unsigned i = 0; i < 3; i++) square(DB_F32, most[i], 0.95);
  for (unsigned i = 0; i < 3; i++) square(DB_F32, odd[i], 0.9);
  for (unsigned i = 0; i < 3; i++) square(DB_F32, rest[i], 0);
  ADD("matmul", DB_F32, "1024x768x50257 x@w^T", 1, 1024, 50257, 768, 0, 1);
  ADD("matmul", DB_F32, "1024 x@w^T", 1, 1024, 1024, 1024, 0, 1);
  ADD("matmul", DB_F32, "1024 x^T@w", 1, 1024, 1024, 1024, 1, 0);
  ADD("matmul", DB_F32, "gemv 4096x4096", 1, 1, 4096, 4096, 0, 0);
  ADD("matmul", DB_F32, "gemv 4096x4096 x@w^T", 1, 1, 4096, 4096, 0, 1);
  ADD("matmul", DB_F32, "8x4096x4096", 1, 8, 4096, 4096, 0, 0);
  ADD("matmul", DB_F32, "8x4096x4096 x@w^T", 1, 8, 4096, 4096, 0, 1);
  ADD("matmul", DB_F32, "batched 16x256", 16, 256, 256, 256, 0, 0);
  ADD("matmul", DB_F32, "batched 64x128x64x128", 64, 128, 128, 64, 0, 1);
  static const db_dtype halves[] = {DB_BF16, DB_F16};
  for (unsigned i = 0; i < 2; i++)
    for (unsigned k = 0; k < 3; k++) {
      square(halves[i], (int64_t[]){512, 1024, 1023}[k], 0);
      if (halves[i] == DB_BF16 && host_has_bf16()) goal(&list[nlist - 1], BESIDE_F32, 1.5);
    }
}

/* Every convolution of ResNet-50 that differs: channels in, size in, channels out, kernel, stride. */
static void convolutions(db_dtype dtype, int64_t batch) {
  static const int64_t shapes[][5] = {
      {3, 224, 64, 7, 2},     {64, 56, 64, 1, 1},   {64, 56, 64, 3, 1},    {64, 56, 256, 1, 1},   {256, 56, 64, 1, 1},
      {256, 56, 128, 1, 1},   {128, 56, 128, 3, 2}, {128, 28, 512, 1, 1},  {256, 56, 512, 1, 2},  {512, 28, 128, 1, 1},
      {128, 28, 128, 3, 1},   {512, 28, 256, 1, 1}, {256, 28, 256, 3, 2},  {256, 14, 1024, 1, 1}, {512, 28, 1024, 1, 2},
      {1024, 14, 256, 1, 1},  {256, 14, 256, 3, 1}, {1024, 14, 512, 1, 1}, {512, 14, 512, 3, 2},  {512, 7, 2048, 1, 1},
      {1024, 14, 2048, 1, 2}, {2048, 7, 512, 1, 1}, {512, 7, 512, 3, 1},
  };
  for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const int64_t *s = shapes[i];
    char name[48];
    snprintf(name, sizeof name, "batch %lld %lldx%lldx%lld to %lld %lldx%lld s%lld", (long long)batch, (long long)s[0],
             (long long)s[1], (long long)s[1], (long long)s[2], (long long)s[3], (long long)s[3], (long long)s[4]);
    ADD("conv", dtype, name, batch, s[0], s[1], s[2], s[3], s[4]);
  }
}

static void others(void) {
  goal(ADD("attention", DB_F32, "12x1024x64", 12, 1024, 64, 0), BESIDE_MATMUL, 0.7);
  ADD("attention", DB_F32, "12x1024x64 causal", 12, 1024, 64, 1);
  ADD("attention", DB_F32, "32x4096x128", 32, 4096, 128, 0);
  goal(ADD("softmax", DB_F32, "4096x4096", 4096, 4096), BESIDE_COPY, 1 / 1.6);
  goal(ADD("layer_norm", DB_F32, "4096x4096", 4096, 4096), BESIDE_COPY, 1 / 1.3);
  ADD("batch_norm", DB_F32, "64x64x64x64", 64, 64, 64, 64);
  goal(ADD("gelu", DB_F32, "4096x4096", 4096, 4096), BESIDE_COPY, 1 / 2.0);
  goal(ADD("sum", DB_F32, "4096x4096", 4096, 4096, -1), BESIDE_READ, 1 / 1.2);
  ADD("sum", DB_F32, "4096x4096 axis 1", 4096, 4096, 1);
  ADD("sum", DB_F32, "4096x4096 axis 0", 4096, 4096, 0);
  ADD("exp2", DB_F32, "1000003", 1, 1000003);
  ADD("add", DB_F32, "4096x4096", 4096, 4096);
  ADD("scale", DB_F32, "4096x4096", 4096, 4096);
  ADD("transpose", DB_F32, "4096x4096", 4096, 4096);
}

/* Sizes that an emulated GPU runs in seconds. */
static void emulated(void) {
  unsigned first = nlist;
  static const db_dtype types[] = {DB_F32, DB_BF16, DB_F16};
  for (unsigned i = 0; i < 3; i++)
    for (unsigned k = 0; k < 3; k++) square(types[i], (int64_t[]){256, 512, 511}[k], 0);
  square(DB_BF16, 1024, 0);
  square(DB_F16, 1024, 0);
  ADD("matmul", DB_BF16, "512 x@w^T", 1, 512, 512, 512, 0, 1);
  ADD("matmul", DB_F16, "512 x@w^T", 1, 512, 512, 512, 0, 1);
  ADD("matmul", DB_F32, "gemv 1024x1024", 1, 1, 1024, 1024, 0, 0);
  ADD("conv", DB_F16, "batch 1 64x56x56 to 64 3x3 s1", 1, 64, 56, 64, 3, 1);
  ADD("attention", DB_F16, "2x256x64", 2, 256, 64, 0);
  ADD("softmax", DB_F32, "512x1024", 512, 1024);
  ADD("layer_norm", DB_F32, "512x1024", 512, 1024);
  ADD("batch_norm", DB_F32, "16x32x32x32", 16, 32, 32, 32);
  ADD("gelu", DB_F32, "512x1024", 512, 1024);
  ADD("sum", DB_F32, "512x1024", 512, 1024, -1);
  ADD("exp2", DB_F32, "1000003", 1, 1000003);
  ADD("add", DB_F32, "512x1024", 512, 1024);
  ADD("transpose", DB_F32, "512x1024", 512, 1024);
  for (unsigned i = first; i < nlist; i++) list[i].on = ON_EMULATOR;
}

static void gpu(void) {
  unsigned first = nlist;
  static const int64_t sides[] = {1024, 2048, 4096, 8192, 1023, 4095};
  for (unsigned i = 0; i < sizeof sides / sizeof *sides; i++) {
    square(DB_BF16, sides[i], 0);
    if (sides[i] == 8192) goal(&list[nlist - 1], BESIDE_CUDA, 0.9);
    square(DB_F16, sides[i], 0);
    if (sides[i] <= 4096) square(DB_F32, sides[i], 0);
  }
  ADD("matmul", DB_BF16, "4096 x@w^T", 1, 4096, 4096, 4096, 0, 1);
  ADD("matmul", DB_BF16, "4096 x^T@w", 1, 4096, 4096, 4096, 1, 0);
  ADD("matmul", DB_BF16, "1024x768x50257 x@w^T", 1, 1024, 50257, 768, 0, 1);
  ADD("matmul", DB_BF16, "gemv 8192x8192 x@w^T", 1, 1, 8192, 8192, 0, 1);
  ADD("matmul", DB_BF16, "8x8192x8192 x@w^T", 1, 8, 8192, 8192, 0, 1);
  ADD("matmul", DB_BF16, "batched 64x1024", 64, 1024, 1024, 1024, 0, 0);
  convolutions(DB_F16, 16);
  ADD("attention", DB_BF16, "12x1024x64", 12, 1024, 64, 0);
  goal(ADD("attention", DB_BF16, "32x4096x128", 32, 4096, 128, 0), BESIDE_MATMUL, 0.6);
  ADD("attention", DB_BF16, "32x4096x128 causal", 32, 4096, 128, 1);
  ADD("softmax", DB_F32, "8192x8192", 8192, 8192);
  ADD("layer_norm", DB_F32, "8192x8192", 8192, 8192);
  ADD("batch_norm", DB_F32, "64x256x56x56", 64, 256, 56, 56);
  ADD("gelu", DB_F32, "8192x8192", 8192, 8192);
  ADD("sum", DB_F32, "8192x8192", 8192, 8192, -1);
  ADD("sum", DB_F32, "8192x8192 axis 0", 8192, 8192, 0);
  ADD("exp2", DB_F32, "100000007", 1, 100000007);
  goal(ADD("add", DB_F32, "8192x8192", 8192, 8192), BESIDE_COPY, 0.9);
  ADD("transpose", DB_F32, "8192x8192", 8192, 8192);
  for (unsigned i = first; i < nlist; i++) list[i].on = ON_GPU;
}

const struct speed_case *speed_cases(unsigned *n) {
  if (!nlist) {
    matmuls();
    convolutions(DB_F32, 1);
    convolutions(DB_F32, 16);
    others();
    emulated();
    gpu();
  }
  *n = nlist;
  return list;
}
