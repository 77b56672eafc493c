/* Peers on the host: OpenBLAS, a copy or a read of the same bytes, and the host's multiply-add rate. PyTorch runs in a
 * child (torch_peer.py). */
#define _GNU_SOURCE
#include "speed.h"
#include "compiler/target/target.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __x86_64__
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* ---- clocks ---- */

bool speed_cpu_time;
static double seconds_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
double speed_wall(void) { return seconds_of(CLOCK_MONOTONIC); }
double speed_now(void) { return speed_cpu_time ? seconds_of(CLOCK_PROCESS_CPUTIME_ID) : speed_wall(); }

/* ---- threads ---- */

struct part {
  void (*fn)(void *ctx, unsigned thread, unsigned threads);
  void *ctx;
  unsigned thread, threads;
};
static void *part_main(void *arg) {
  struct part *p = arg;
  p->fn(p->ctx, p->thread, p->threads);
  return NULL;
}

/* Returns the number of threads that ran. */
static unsigned run_on_threads(unsigned threads, void (*fn)(void *ctx, unsigned thread, unsigned threads), void *ctx) {
  enum { MOST = 256 };
  pthread_t id[MOST];
  struct part part[MOST];
  if (threads > MOST) threads = MOST;
  for (unsigned i = 1; i < threads; i++) {
    part[i] = (struct part){fn, ctx, i, threads};
    if (pthread_create(&id[i], NULL, part_main, &part[i])) abort();
  }
  fn(ctx, 0, threads);
  for (unsigned i = 1; i < threads; i++) pthread_join(id[i], NULL);
  return threads;
}

/* ---- the machine's multiply-adds ---- */

enum { CHAINS = 16, PEAK_STEPS = 40000 }; /* CHAINS: number of independent sums, more than latency times units */

/* Defines a function that does PEAK_STEPS multiply-adds in each of `chains` registers of a vector type. The empty
 * assembler statement keeps the compiler from merging them. */
#define MULTIPLY(name, attribute, chains, vector, operand, x_value, y_value, set, multiply, plus, first, constraint)   \
  attribute static float name(void) {                                                                                  \
    vector sum[chains];                                                                                                \
    operand x = x_value, y = y_value;                                                                                  \
    _Pragma("GCC unroll 16") for (int i = 0; i < (chains); i++) sum[i] = set((float)i);                                \
    for (int n = 0; n < PEAK_STEPS; n++) _Pragma("GCC unroll 16") for (int i = 0; i < (chains); i++) {                 \
        sum[i] = multiply(sum[i], x, y);                                                                               \
        __asm__("" : constraint(sum[i]));                                                                              \
      }                                                                                                                \
    _Pragma("GCC unroll 16") for (int i = 1; i < (chains); i++) sum[0] = plus(sum[0], sum[i]);                         \
    return first(sum[0]);                                                                                              \
  }

#ifdef __x86_64__
enum { AVX2_CHAINS = CHAINS - 4 }; /* AVX2 has 16 registers */
MULTIPLY(multiply_avx512, __attribute__((target("avx512f"))), CHAINS, __m512, __m512, _mm512_set1_ps(0.5f),
         _mm512_set1_ps(0.25f), _mm512_set1_ps, _mm512_fmadd_ps, _mm512_add_ps, _mm512_cvtss_f32, "+v")
MULTIPLY(multiply_avx2, __attribute__((target("avx2,fma"))), AVX2_CHAINS, __m256, __m256, _mm256_set1_ps(0.5f),
         _mm256_set1_ps(0.25f), _mm256_set1_ps, _mm256_fmadd_ps, _mm256_add_ps, _mm256_cvtss_f32, "+x")
MULTIPLY(multiply_bf16, __attribute__((target("avx512f,avx512bf16"))), CHAINS, __m512, __m512bh,
         (__m512bh)_mm512_set1_epi16(0x3f00), (__m512bh)_mm512_set1_epi16(0x3e80), _mm512_set1_ps, _mm512_dpbf16_ps,
         _mm512_add_ps, _mm512_cvtss_f32, "+v")

/* The same for tile registers: four sums of products of tiles. */
enum { TILE_SUMS = 4 };
__attribute__((target("amx-tile,amx-bf16"))) static float multiply_tiles(void) {
  struct {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } config = {.palette = 1};
  static const uint16_t zeros[16 * 32];
  float sum[16 * 16];
  for (unsigned i = 0; i < 8; i++) config.row_bytes[i] = 64, config.rows[i] = 16;
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, zeros, 64);
  _tile_loadd(5, zeros, 64);
  for (int n = 0; n < PEAK_STEPS; n++) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_stored(0, sum, 64);
  _tile_release();
  return sum[0];
}
#elif defined(__aarch64__)
#define NEON_MULTIPLY(sum, x, y) vfmaq_f32(y, sum, x)
#define NEON_FIRST(v)            vgetq_lane_f32(v, 0)
MULTIPLY(multiply_neon, , CHAINS, float32x4_t, float32x4_t, vdupq_n_f32(0.5f), vdupq_n_f32(0.25f), vdupq_n_f32,
         NEON_MULTIPLY, vaddq_f32, NEON_FIRST, "+w")
#endif

struct multiplying {
  float (*fn)(void);
  double flops; /* of one call */
};
static struct multiplying multiplying_f32(void) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return (struct multiplying){multiply_avx512, 2.0 * 16 * CHAINS * PEAK_STEPS};
  if (__builtin_cpu_supports("fma")) return (struct multiplying){multiply_avx2, 2.0 * 8 * AVX2_CHAINS * PEAK_STEPS};
#elif defined(__aarch64__)
  return (struct multiplying){multiply_neon, 2.0 * 4 * CHAINS * PEAK_STEPS};
#endif
  return (struct multiplying){0};
}
static struct multiplying multiplying_bf16(void) {
#ifdef __x86_64__
  if (target_has(target_find("x86_64"), "amx-bf16")) /* which asks the kernel for permission */
    return (struct multiplying){multiply_tiles, 2.0 * 16 * 16 * 32 * TILE_SUMS * PEAK_STEPS};
  if (__builtin_cpu_supports("avx512bf16")) return (struct multiplying){multiply_bf16, 4.0 * 16 * CHAINS * PEAK_STEPS};
#endif
  return (struct multiplying){0};
}

static void multiply_thread(void *ctx, unsigned thread, unsigned threads) {
  volatile float used = ((struct multiplying *)ctx)->fn();
  (void)used;
}
static double rate(struct multiplying m, unsigned threads) {
  if (!m.fn) return 0;
  double start = speed_now();
  threads = run_on_threads(threads, multiply_thread, &m);
  return m.flops * threads / (speed_now() - start);
}
bool host_has_bf16(void) { return multiplying_bf16().fn != NULL; }

struct peak {
  unsigned threads;
  struct multiplying m;
  double best, flops;
};
static bool peak_prepare(struct peer *p, const struct speed_case *c) {
  struct peak *s = p->state;
  struct multiplying m = c->dtype == DB_BF16 ? multiplying_bf16() : (struct multiplying){0};
  if (!m.fn) m = multiplying_f32();
  if (m.fn != s->m.fn) s->best = 0;
  s->m = m;
  s->flops = c->op->flops ? c->op->flops(c) : 0;
  return m.fn && s->flops > 0;
}
static double peak_seconds(struct peer *p, unsigned calls) {
  struct peak *s = p->state;
  double now = rate(s->m, s->threads);
  if (now > s->best) s->best = now;
  return s->flops * calls / s->best;
}

/* ---- a copy of the same bytes, or a read of them ---- */

struct moving {
  unsigned threads;
  char *from, *to;
  size_t room, bytes; /* bytes read; a copy also writes this number */
  unsigned calls;
};
static void copy_thread(void *ctx, unsigned thread, unsigned threads) {
  struct moving *s = ctx;
  size_t first = s->bytes / 64 * thread / threads * 64, end = s->bytes / 64 * (thread + 1) / threads * 64;
  for (unsigned i = 0; i < s->calls; i++) {
    memcpy(s->to + first, s->from + first, end - first);
    __asm__ volatile("" ::: "memory");
  }
}
#ifdef __x86_64__
__attribute__((target("avx2")))
#endif
static void
read_thread(void *ctx, unsigned thread, unsigned threads) {
  typedef uint64_t vector __attribute__((vector_size(32)));
  struct moving *s = ctx;
  size_t n = s->bytes / 256, first = n * thread / threads, end = n * (thread + 1) / threads;
  const vector *x = (const vector *)(const void *)s->from;
  for (unsigned i = 0; i < s->calls; i++) {
    vector sum[8] = {0};
    for (size_t at = first; at < end; at++)
#pragma GCC unroll 8
      for (int k = 0; k < 8; k++) sum[k] += x[at * 8 + (size_t)k];
    for (int k = 0; k < 8; k++) __asm__ volatile("" : "+x"(sum[k]));
  }
}

static bool moving_prepare(struct moving *s, size_t bytes) {
  if (s->room < bytes) {
    free(s->from);
    free(s->to);
    s->room = 0;
    s->from = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    s->to = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!s->from || !s->to) return false;
    s->room = bytes;
    memset(s->from, 1, bytes);
    memset(s->to, 1, bytes);
  }
  s->bytes = bytes;
  return true;
}
static bool reads_only(const struct speed_case *c) {
  double read, written;
  case_bytes(c, &read, &written);
  return written * 8 < read;
}
static bool copy_prepare(struct peer *p, const struct speed_case *c) {
  double read, written;
  case_bytes(c, &read, &written);
  return !c->op->flops && !reads_only(c) && moving_prepare(p->state, (size_t)((read + written) / 2));
}
static bool read_prepare(struct peer *p, const struct speed_case *c) {
  double read, written;
  case_bytes(c, &read, &written);
  return !c->op->flops && reads_only(c) && moving_prepare(p->state, (size_t)read);
}
static double moving_seconds(struct moving *s, unsigned calls, void (*fn)(void *, unsigned, unsigned)) {
  s->calls = calls;
  double start = speed_now();
  run_on_threads(s->threads, fn, s);
  return speed_now() - start;
}
static double copy_seconds(struct peer *p, unsigned calls) { return moving_seconds(p->state, calls, copy_thread); }
static double read_seconds(struct peer *p, unsigned calls) { return moving_seconds(p->state, calls, read_thread); }

/* ---- OpenBLAS ---- */

enum { ROW_MAJOR = 101, AS_IS = 111, TRANSPOSED = 112 };
struct blas {
  void *lib;
  void (*sgemm)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                int ldb, float beta, float *c, int ldc);
  void (*sgemv)(int order, int trans, int m, int n, float alpha, const float *a, int lda, const float *x, int incx,
                float beta, float *y, int incy);
  const struct speed_case *c;
  float *x[3];
  double scale;
};
static bool blas_prepare(struct peer *p, const struct speed_case *c) {
  struct blas *s = p->state;
  if (!s->sgemm || strcmp(c->op->name, "matmul") != 0 || c->dtype != DB_F32) return false;
  s->c = c;
  for (unsigned i = 0; i < 3; i++) {
    int64_t n = speed_numel(c->op->shape(c, i));
    free(s->x[i]);
    if (!(s->x[i] = aligned_alloc(64, ((size_t)n * sizeof(float) + 63) / 64 * 64))) return false;
    fill_numbers(s->x[i], n, i);
  }
  return true;
}
static double blas_seconds(struct peer *p, unsigned calls) {
  struct blas *s = p->state;
  int64_t batch = s->c->n[0], m = s->c->n[1], n = s->c->n[2], k = s->c->n[3];
  bool ta = s->c->n[4], tb = s->c->n[5];
  double start = speed_now();
  for (unsigned i = 0; i < calls; i++)
    for (int64_t at = 0; at < batch; at++) {
      const float *a = s->x[0] + at * m * k, *b = s->x[1] + at * n * k;
      float *c = s->x[2] + at * m * n;
      if (m == 1)
        s->sgemv(ROW_MAJOR, tb ? AS_IS : TRANSPOSED, (int)(tb ? n : k), (int)(tb ? k : n), 1, b, (int)(tb ? k : n), a,
                 1, 0, c, 1);
      else
        s->sgemm(ROW_MAJOR, ta ? TRANSPOSED : AS_IS, tb ? TRANSPOSED : AS_IS, (int)m, (int)n, (int)k, 1, a,
                 (int)(ta ? m : k), b, (int)(tb ? k : n), 0, c, (int)n);
    }
  return speed_now() - start;
}
/* Cases without a counterpart in OpenBLAS are compared with the rate of this case, its f32 matmul of 1024. */
static const struct speed_case *rate_case(void) {
  static struct speed_case c = {.dtype = DB_F32, .n = {1, 1024, 1024, 1024}};
  c.op = speed_op("matmul");
  return &c;
}
static bool rate_prepare(struct peer *p, const struct speed_case *c) {
  struct blas *s = p->state;
  bool ok = c->op->flops && strcmp(c->op->name, "matmul") != 0 && blas_prepare(p, rate_case());
  s->scale = ok ? c->op->flops(c) / s->c->op->flops(s->c) : 0;
  return ok;
}
static double rate_seconds(struct peer *p, unsigned calls) {
  return blas_seconds(p, 1) * ((struct blas *)p->state)->scale * calls;
}

static void *symbol(void *lib, const char *name) { return lib ? dlsym(lib, name) : NULL; }
static void blas_open(struct peer *p, unsigned threads) {
  struct blas *s = p->state;
  setenv("OPENBLAS_THREAD_TIMEOUT", "16", 0); /* 2^16 cycles: OpenBLAS's threads must not spin while others are timed */
  s->lib = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
#ifdef __x86_64__
  /* It takes a processor that is younger than itself for one without AVX. */
  char *(*found)(void) = (char *(*)(void))(uintptr_t)symbol(s->lib, "openblas_get_corename");
  if (found && !strcmp(found(), "Prescott") && __builtin_cpu_supports("avx512vl")) {
    dlclose(s->lib);
    setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
    s->lib = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  }
#endif
  void (*set_threads)(int) = (void (*)(int))(uintptr_t)symbol(s->lib, "openblas_set_num_threads");
  char *(*corename)(void) = (char *(*)(void))(uintptr_t)symbol(s->lib, "openblas_get_corename");
  char *(*config)(void) = (char *(*)(void))(uintptr_t)symbol(s->lib, "openblas_get_config");
  *(void **)(void *)&s->sgemm = symbol(s->lib, "cblas_sgemm");
  *(void **)(void *)&s->sgemv = symbol(s->lib, "cblas_sgemv");
  if (!set_threads || !s->sgemm || !s->sgemv) {
    s->sgemm = NULL;
    snprintf(p->about, sizeof p->about, "not here: libopenblas.so.0 (Debian: libopenblas0-pthread)");
    return;
  }
  set_threads((int)threads);
  snprintf(p->about, sizeof p->about, "%.70s, kernels for %.30s", config ? config() : "", corename ? corename() : "?");
}

/* ---- PyTorch ---- */

static bool torch_prepare(struct peer *p, const struct speed_case *c) {
  char line[256], reply[256];
  int n = snprintf(line, sizeof line, "case %s %s", c->op->name, db_dtype_name(c->dtype));
  for (unsigned i = 0; i < MAX_NUMBERS; i++)
    n += snprintf(line + n, sizeof line - (size_t)n, " %lld", (long long)c->n[i]);
  return child_ask(p->state, line, reply, sizeof reply) && !strcmp(reply, "ok");
}
static double torch_seconds(struct peer *p, unsigned calls) {
  char line[32], reply[64];
  snprintf(line, sizeof line, "run %u", calls);
  return child_ask(p->state, line, reply, sizeof reply) && reply[0] != 'n' ? strtod(reply, NULL) : -1;
}
static bool on_host(const char *arch) { return !strcmp(arch, "x86_64") || !strcmp(arch, "aarch64"); }

bool torch_start(struct child *c, unsigned threads, const char *arch, char *about, size_t cap) {
  /* Keep freed memory in the process: otherwise the times would include page faults for every result. */
  static const char *const keep[][2] = {{"MALLOC_MMAP_THRESHOLD_", "4294967296"},
                                        {"MALLOC_TRIM_THRESHOLD_", "4294967296"},
                                        {"MALLOC_TOP_PAD_", "67108864"}};
  char number[16], *python = getenv("PYTHON"), *peer = getenv("TORCH_PEER"); /* default: TORCH_PEER of the build */
  snprintf(number, sizeof number, "%u", threads);
  for (unsigned i = 0; i < 3; i++) setenv(keep[i][0], keep[i][1], 1);
  bool ok =
      child_start(c, (char *[]){python ? python : "python3", peer ? peer : TORCH_PEER, on_host(arch) ? "cpu" : "cuda",
                                number, speed_cpu_time ? "cpu-time" : "wall", NULL});
  for (unsigned i = 0; i < 3; i++) unsetenv(keep[i][0]);
  ok = ok && child_ask(c, "hello", about, cap);
  if (!ok) snprintf(about, cap, "not here: python3 (or $PYTHON) with PyTorch");
  return ok && strncmp(about, "not here", 8) != 0;
}

/* ---- all of them ---- */

static void torch_close(struct peer *p) {
  child_end(p->state);
  free(p->state);
}
static void blas_close(struct peer *p) {
  struct blas *s = p->state;
  for (unsigned k = 0; k < 3; k++) free(s->x[k]);
  free(s);
}

unsigned peers_open(struct peer *out, unsigned cap, const char *arch, unsigned threads) {
  unsigned n = 0;
  if (cap < BESIDES) return 0;
  out[n] = (struct peer){BESIDE_TORCH, torch_prepare, torch_seconds, calloc(1, sizeof(struct child)), torch_close};
  torch_start(out[n].state, threads, arch, out[n].about, sizeof out[n].about);
  n++;
  if (!on_host(arch)) return !strncmp(arch, "sm_", 3) ? n + cuda_peers_open(out + n) : n;
  out[n] = (struct peer){BESIDE_BLAS, blas_prepare, blas_seconds, calloc(1, sizeof(struct blas)), blas_close};
  blas_open(&out[n++], threads);
  out[n] = (struct peer){BESIDE_MATMUL, rate_prepare,
                         rate_seconds,  calloc(1, sizeof(struct blas)),
                         blas_close,    "the rate of OpenBLAS's matmul of 1024"};
  memcpy(out[n].state, out[n - 1].state, sizeof(struct blas));
  n++;
  static struct moving copying, reading;
  static struct peak peak;
  copying.threads = reading.threads = peak.threads = threads;
  out[n++] = (struct peer){BESIDE_COPY, copy_prepare, copy_seconds,
                           &copying,    NULL,         "memcpy of half the bytes read and written"};
  out[n++] = (struct peer){BESIDE_READ, read_prepare, read_seconds, &reading, NULL, "vector loads of the bytes read"};
  out[n++] = (struct peer){BESIDE_PEAK, peak_prepare, peak_seconds, &peak, NULL, "multiply-adds on registers only"};
  return n;
}

void peers_close(struct peer *p, unsigned n) {
  for (unsigned i = 0; i < n; i++)
    if (p[i].close) p[i].close(&p[i]);
}
