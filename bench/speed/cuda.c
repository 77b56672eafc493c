/* The peers cuBLAS and CUDA's copy, available where a toolkit and its driver are installed. They run in a child process
 * (kernels --cuda) that answers requests line by line, because CUDA and this driver cannot share a process. Building
 * does not need CUDA: the libraries are loaded at run time. */
#include "speed.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  COPY_ON_DEVICE = 3,
  COPY_TO_DEVICE = 1,
  OP_AS_IS = 0,
  OP_TRANSPOSED = 1,
  COMPUTE_F32 = 68,
  ALGORITHM_DEFAULT = -1
};
static const struct {
  const char *name;
  int type;
  size_t size;
} types[] = {{"f32", 0, 4}, {"f16", 2, 2}, {"bf16", 14, 2}};

static struct {
  int (*malloc)(void **p, size_t n);
  int (*free)(void *p);
  int (*copy)(void *to, const void *from, size_t n, int kind);
  int (*synchronize)(void);
  int (*create)(void **handle);
  int (*gemm)(void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int ta_type, int lda,
              long long stride_a, const void *b, int tb_type, int ldb, long long stride_b, const void *beta, void *c,
              int tc_type, int ldc, long long stride_c, int batch, int compute, int algorithm);
  void *handle;
} cuda;

static void *open_one(const char *name) {
  static const char *const versions[] = {"13", "12", "11.0", "11"};
  static const char *const folders[] = {"", "/usr/local/cuda/lib64/"};
  char path[128];
  for (unsigned f = 0; f < 2; f++)
    for (unsigned i = 0; i < 4; i++) {
      snprintf(path, sizeof path, "%s%s.so.%s", folders[f], name, versions[i]);
      void *lib = dlopen(path, RTLD_NOW);
      if (lib) return lib;
    }
  return NULL;
}

static const char *open_cuda(void) {
  void *runtime = open_one("libcudart"), *blas = open_one("libcublas");
  const struct {
    void *lib;
    const char *name;
    void *to;
  } symbols[] = {{runtime, "cudaMalloc", &cuda.malloc},   {runtime, "cudaFree", &cuda.free},
                 {runtime, "cudaMemcpy", &cuda.copy},     {runtime, "cudaDeviceSynchronize", &cuda.synchronize},
                 {blas, "cublasCreate_v2", &cuda.create}, {blas, "cublasGemmStridedBatchedEx", &cuda.gemm}};
  if (!runtime || !blas) return "not here: libcudart and libcublas";
  for (unsigned i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *at = dlsym(symbols[i].lib, symbols[i].name);
    if (!at) return "not here: a function that cuBLAS should have";
    memcpy(symbols[i].to, &at, sizeof at);
  }
  return cuda.create(&cuda.handle) ? "not here: a GPU that CUDA can use" : NULL;
}

static struct {
  bool matmul;
  size_t bytes; /* of a copy */
  int type;
  int64_t n[6]; /* batch m n k ta tb */
  void *x[3];
} now;

static bool fill(void *to, int64_t n, const char *type, size_t size) {
  /* The power that multipliers consume depends on the values, so use values like those of Doorbell's inputs. */
  uint16_t *half = malloc((size_t)n * size);
  float *x = malloc((size_t)n * sizeof *x);
  bool ok = half && x;
  if (ok) fill_numbers(x, n, 1);
  if (ok && size == 2)
    for (int64_t i = 0; i < n; i++) {
      uint32_t bits;
      memcpy(&bits, &x[i], sizeof bits);
      half[i] = !strcmp(type, "bf16") ? (uint16_t)(bits >> 16)
                                      : (uint16_t)((bits >> 16 & 0x8000) | 0x3800 | (bits >> 13 & 0x3ff));
    }
  ok = ok && !cuda.copy(to, size == 2 ? (void *)half : (void *)x, (size_t)n * size, COPY_TO_DEVICE);
  free(half);
  free(x);
  return ok;
}

/* "matmul TYPE batch m n k ta tb" or "copy BYTES". */
static bool prepare(char *words) {
  char type[16];
  long long n[6], bytes;
  for (int i = 0; i < 3; i++) {
    if (now.x[i]) cuda.free(now.x[i]);
    now.x[i] = NULL;
  }
  if (sscanf(words, "copy %lld", &bytes) == 1) {
    now.matmul = false, now.bytes = (size_t)bytes;
    return !cuda.malloc(&now.x[0], now.bytes) && !cuda.malloc(&now.x[1], now.bytes);
  }
  if (sscanf(words, "matmul %15s %lld %lld %lld %lld %lld %lld", type, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5]) != 7)
    return false;
  for (unsigned i = 0; i < sizeof types / sizeof *types; i++) {
    if (strcmp(types[i].name, type) != 0) continue;
    now.matmul = true, now.type = types[i].type;
    for (int k = 0; k < 6; k++) now.n[k] = n[k];
    int64_t size[3] = {n[0] * n[1] * n[3], n[0] * n[3] * n[2], n[0] * n[1] * n[2]};
    for (int k = 0; k < 3; k++)
      if (cuda.malloc(&now.x[k], (size_t)size[k] * types[i].size) ||
          (k < 2 && !fill(now.x[k], size[k], type, types[i].size)))
        return false;
    return true;
  }
  return false;
}

static bool run_once(void) {
  static const float one = 1, zero = 0;
  if (!now.matmul) return !cuda.copy(now.x[1], now.x[0], now.bytes, COPY_ON_DEVICE);
  int64_t m = now.n[1], n = now.n[2], k = now.n[3];
  bool ta = now.n[4], tb = now.n[5];
  /* cuBLAS stores matrices by columns, so it computes the transposed product. */
  return !cuda.gemm(cuda.handle, tb ? OP_TRANSPOSED : OP_AS_IS, ta ? OP_TRANSPOSED : OP_AS_IS, (int)n, (int)m, (int)k,
                    &one, now.x[1], now.type, (int)(tb ? k : n), n * k, now.x[0], now.type, (int)(ta ? m : k), m * k,
                    &zero, now.x[2], now.type, (int)n, m * n, (int)now.n[0], COMPUTE_F32, ALGORITHM_DEFAULT);
}

int cuda_child(void) {
  char line[256];
  const char *missing = open_cuda();
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    if (!strcmp(line, "hello"))
      printf("%s\n", missing ? missing : "CUDA's libraries, in a separate process");
    else if (!strncmp(line, "case ", 5))
      printf("%s\n", !missing && prepare(line + 5) && run_once() && !cuda.synchronize() ? "ok" : "no");
    else {
      int calls = atoi(line + 4);
      double start = speed_wall();
      bool ok = !missing && calls > 0;
      for (int i = 0; i < calls && ok; i++) ok = run_once();
      ok = ok && !cuda.synchronize();
      ok ? printf("%.9g\n", speed_wall() - start) : printf("no\n");
    }
    fflush(stdout);
  }
  return 0;
}

/* ---- the parent's side ---- */

struct cuda_peer {
  struct child child;
  double scale; /* multiplies the measured seconds */
};
static bool ask_case(struct peer *p, const char *line) {
  char reply[64];
  struct cuda_peer *s = p->state;
  s->scale = 1;
  return child_ask(&s->child, line, reply, sizeof reply) && !strcmp(reply, "ok");
}
static bool prepare_matmul(struct peer *p, const struct speed_case *c) {
  char line[160];
  const int64_t *n = c->n;
  snprintf(line, sizeof line, "case matmul %s %lld %lld %lld %lld %lld %lld", db_dtype_name(c->dtype), (long long)n[0],
           (long long)n[1], (long long)n[2], (long long)n[3], (long long)n[4], (long long)n[5]);
  return !strcmp(c->op->name, "matmul") && ask_case(p, line);
}
static bool prepare_rate(struct peer *p, const struct speed_case *c) {
  enum { SIDE = 4096 };
  char line[160];
  snprintf(line, sizeof line, "case matmul %s 1 %d %d %d 0 0", db_dtype_name(c->dtype), SIDE, SIDE, SIDE);
  if (!c->op->flops || !strcmp(c->op->name, "matmul") || !ask_case(p, line)) return false;
  ((struct cuda_peer *)p->state)->scale = c->op->flops(c) / (2.0 * SIDE * SIDE * SIDE);
  return true;
}
static bool prepare_copy(struct peer *p, const struct speed_case *c) {
  char line[64];
  double read, written;
  case_bytes(c, &read, &written);
  snprintf(line, sizeof line, "case copy %.0f", (read + written) / 2);
  return !c->op->flops && ask_case(p, line);
}
static double seconds(struct peer *p, unsigned calls) {
  char line[32], reply[64];
  struct cuda_peer *s = p->state;
  snprintf(line, sizeof line, "run %u", calls);
  return child_ask(&s->child, line, reply, sizeof reply) && reply[0] != 'n' ? strtod(reply, NULL) * s->scale : -1;
}

static void close_peer(struct peer *p) {
  struct cuda_peer *s = p->state;
  child_end(&s->child);
  free(s);
}

unsigned cuda_peers_open(struct peer *out) {
  static const struct {
    enum beside which;
    bool (*prepare)(struct peer *p, const struct speed_case *c);
  } all[] = {{BESIDE_CUDA, prepare_matmul}, {BESIDE_COPY, prepare_copy}, {BESIDE_MATMUL, prepare_rate}};
  char self[512];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  unsigned count = 0;
  if (n <= 0) return 0;
  self[n] = 0;
  for (unsigned i = 0; i < 3; i++) {
    struct cuda_peer *s = calloc(1, sizeof *s);
    struct peer *p = &out[count++];
    *p = (struct peer){all[i].which, all[i].prepare, seconds, s, close_peer};
    if (!child_start(&s->child, (char *[]){self, "--cuda", NULL}) ||
        !child_ask(&s->child, "hello", p->about, sizeof p->about))
      snprintf(p->about, sizeof p->about, "not here");
  }
  return count;
}
