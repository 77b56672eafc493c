/* The emulator benchmark's kernels: their operands, and the same computation on the host. Each kernel exists as OpenCL
 * C for gfx1100 and as CUDA C for sm_90, with the same arguments: result, operands, n. */
#ifndef DOORBELL_BENCH_EMU_KERNELS_H
#define DOORBELL_BENCH_EMU_KERNELS_H
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

enum { OURS_REPEAT = 7, LAUNCHES = 200 };

static inline double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct kernel {
  const char *name;
  uint32_t groups[2], threads[2], n; /* n: the kernel's last argument */
  enum { WORDS, FLOATS } result;
  uint32_t results, operands[2]; /* number of elements of four bytes; F16: two halves per element */
  enum { U32, F32, F16 } operand;
  void (*host)(const struct kernel *k, void *out, const void *a, const void *b);
};

static void host_vadd(const struct kernel *k, void *out, const void *a, const void *b) {
  for (uint32_t i = 0; i < k->results; i++) ((float *)out)[i] = ((const float *)a)[i] + ((const float *)b)[i];
}
static void host_matmul(const struct kernel *k, void *out, const void *a, const void *b) {
  uint32_t n = k->n;
  float *c = memset(out, 0, (size_t)n * n * 4);
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0; j < n; j++)
      for (uint32_t x = 0; x < n; x++) c[i * n + x] += ((const float *)a)[i * n + j] * ((const float *)b)[j * n + x];
}
static void host_wmma(const struct kernel *k, void *out, const void *a, const void *b) {
  static float fa[1 << 18], fb[1 << 18];
  uint32_t n = k->n;
  for (uint32_t i = 0; i < n * n; i++) fa[i] = (float)((const _Float16 *)a)[i], fb[i] = (float)((const _Float16 *)b)[i];
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0; j < n; j++) {
      float sum = 0;
      for (uint32_t x = 0; x < n; x++) sum += fa[i * n + x] * fb[j * n + x];
      ((float *)out)[i * n + j] = sum;
    }
}
static void host_reduction(const struct kernel *k, void *out, const void *a, const void *b) {
  for (uint32_t g = 0; g < k->results; g++) {
    uint32_t sum = 0, each = k->n * k->threads[0];
    for (uint32_t i = 0; i < each; i++) sum += ((const uint32_t *)a)[g * each + i];
    ((uint32_t *)out)[g] = sum;
  }
}
static uint32_t rotate(uint32_t x, uint32_t n) { return x << (n & 31) | x >> (-n & 31); }
static void host_hash(const struct kernel *k, void *out, const void *a, const void *b) {
  for (uint32_t i = 0; i < k->results; i++) {
    uint32_t h = ((const uint32_t *)a)[i];
    for (uint32_t r = 0; r < k->n; r++) {
      uint32_t x = rotate((h + r) * 0xcc9e2d51u, 15) * 0x1b873593u;
      h = rotate(h ^ x, 13) * 5 + 0xe6546b64u;
      h ^= h >> 16;
    }
    ((uint32_t *)out)[i] = h;
  }
}
static void host_transcendental(const struct kernel *k, void *out, const void *a, const void *b) {
  for (uint32_t i = 0; i < k->results; i++) {
    double x = ((const float *)a)[i];
    for (uint32_t r = 0; r < k->n; r++) {
      double q = 1 / sqrt(1 + exp2(-x)), l = log2(1 + x * x);
      x = fabs(sin(x) * q + cos(x)) + 1 / (2 + l);
    }
    ((float *)out)[i] = (float)x;
  }
}
static void host_divergent(const struct kernel *k, void *out, const void *a, const void *b) {
  for (uint32_t i = 0; i < k->results; i++) {
    uint32_t x = ((const uint32_t *)a)[i], steps = 0, sum = 0;
    while (x > 1 && steps < k->n) {
      if (x & 1) {
        x = 3 * x + 1;
        sum += x ^ steps;
        if (sum & 2) sum = rotate(sum, x & 31);
      } else {
        x >>= 1;
        sum ^= x;
        for (uint32_t j = 0; j < (x & 3); j++) sum = sum * 5 + j;
      }
      steps++;
    }
    ((uint32_t *)out)[i] = sum + steps;
  }
}

#define M (1u << 20)
static const struct kernel kernels[] = {
    {"vadd", {2048, 1}, {256, 1}, 0, FLOATS, 2 * M, {2 * M, 2 * M}, F32, host_vadd},
    {"matmul", {16, 16}, {16, 16}, 256, FLOATS, M / 16, {M / 16, M / 16}, F32, host_matmul},
    {"tiled", {16, 16}, {16, 16}, 256, FLOATS, M / 16, {M / 16, M / 16}, F32, host_matmul},
    {"reduction", {512, 1}, {256, 1}, 32, WORDS, 512, {4 * M, 0}, U32, host_reduction},
    {"hash", {128, 1}, {256, 1}, 64, WORDS, 32768, {32768, 0}, U32, host_hash},
    {"transcendental", {128, 1}, {256, 1}, 32, FLOATS, 32768, {32768, 0}, F32, host_transcendental},
    {"divergent", {64, 1}, {256, 1}, 120, WORDS, 16384, {16384, 0}, U32, host_divergent},
    {"wmma", {32, 32}, {32, 1}, 512, FLOATS, M / 4, {M / 4, M / 4}, F16, host_wmma},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static void fill(void *at, uint32_t n, int type) {
  uint32_t x = 1;
  for (uint32_t i = 0; i < n; i++) {
    x = x * 1664525 + 1013904223;
    if (type == U32) ((uint32_t *)at)[i] = x >> 12;
    if (type == F32) ((float *)at)[i] = (float)(x >> 22) / 256 - 1;
    if (type == F16) ((_Float16 *)at)[i] = (_Float16)((float)(x >> 28) / 8 - 1);
  }
}

/* Returns true if a kernel's results equal the host's; floats are compared with a tolerance. */
static bool right(const struct kernel *k, const void *out, const void *expect) {
  if (k->result == WORDS) return !memcmp(out, expect, (size_t)k->results * 4);
  const float *x = out, *y = expect;
  for (uint32_t i = 0; i < k->results; i++)
    if (!(fabsf(x[i] - y[i]) <= 1e-3f * (1 + fabsf(y[i])))) return false;
  return true;
}

/* Geometric mean of a / b over the kernels for which both were measured. */
static double ratio(const double *a, const double *b) {
  double sum = 0;
  int n = 0;
  for (int i = 0; i < KERNELS; i++)
    if (a[i] > 0 && b[i] > 0) sum += log(a[i] / b[i]), n++;
  return n ? exp(sum / n) : NAN;
}

#endif
