/* Kernels of tests/kernels, one test each, compared with the same computation in C on the host: language features,
 * memory spaces, arithmetic of all types. Results are bitwise equal unless a test states a tolerance. */
#ifndef DOORBELL_TESTS_KERNEL_CASES_H
#define DOORBELL_TESTS_KERNEL_CASES_H
#include "kernel_check.h"

static void saxpy(void **state) {
  FOR_SHAPES(g, l) {
    struct run r;
    run_open(&r, "tests/kernels/saxpy", "saxpy");
    uint32_t n = g * l > 3 ? g * l - 3 : g * l;
    float x[N], y[N], want[N];
    for (uint32_t i = 0; i < g * l; i++) {
      x[i] = run_random_float(&seed, -10, 10), y[i] = run_random_float(&seed, -10, 10);
      want[i] = i < n ? fmaf(1.7f, x[i], y[i]) : y[i];
    }
    float *out = run_buffer(&r, y, 4 * g * l);
    run_buffer(&r, x, 4 * n);
    run_f32(&r, 1.7f);
    run_u32(&r, n);
    run_ok(&r, g, 1, 1, l, 1, 1);
    EQUAL(out, want, g * l);
    assert_int_equal(r.stats.workgroups, g);
    assert_int_equal(r.stats.waves, run_wave32(&r) ? g * ((l + 31) / 32) : g * ((l + 63) / 64));
    run_close(&r);
  }
}

static void sgemm(void **state) {
  enum { D = 48 };
  static float a[D * D], b[D * D], want[D * D];
  for (int i = 0; i < D * D; i++) a[i] = run_random_float(&seed, -1, 1), b[i] = run_random_float(&seed, -1, 1);
  for (int i = 0; i < D; i++)
    for (int j = 0; j < D; j++) {
      float s = 0;
      for (int k = 0; k < D; k++) s = fmaf(a[i * D + k], b[k * D + j], s);
      want[i * D + j] = s;
    }
  struct run r;
  run_open(&r, "tests/kernels/sgemm", "sgemm");
  float *c = run_buffer(&r, NULL, sizeof a);
  run_buffer(&r, a, sizeof a);
  run_buffer(&r, b, sizeof b);
  run_u32(&r, D);
  run_ok(&r, D / 16, D / 16, 1, 16, 16, 1);
  EQUAL(c, want, D * D);
  run_close(&r);
}

static void reduce(void **state) {
  enum { M = 5000, G = 3 };
  static uint32_t in[M];
  uint32_t want[G] = {0};
  for (uint32_t i = 0; i < M; i++) want[i / 256 % G] += in[i] = run_random(&seed);
  struct run r;
  run_open(&r, "tests/kernels/reduce", "reduce");
  uint32_t *out = run_buffer(&r, NULL, sizeof want);
  run_buffer(&r, in, sizeof in);
  run_u32(&r, M);
  run_ok(&r, G, 1, 1, 256, 1, 1);
  EQUAL(out, want, G);
  run_close(&r);
}

static void histogram(void **state) {
  enum { M = 20000 };
  static uint8_t in[M];
  uint32_t want[256] = {0};
  for (uint32_t i = 0; i < M; i++) want[in[i] = (uint8_t)(run_random(&seed) & run_random(&seed))]++;
  struct run r;
  run_open(&r, "tests/kernels/histogram", "histogram");
  uint32_t *out = run_buffer(&r, NULL, sizeof want);
  run_buffer(&r, in, sizeof in);
  run_u32(&r, M);
  run_ok(&r, 4, 1, 1, 256, 1, 1);
  EQUAL(out, want, 256);
  run_close(&r);
}

static void stencil(void **state) {
  enum { W = 37, H = 21 };
  float in[W * H], want[W * H];
  for (int i = 0; i < W * H; i++) in[i] = run_random_float(&seed, -4, 4);
  for (int y = 0; y < H; y++)
    for (int x = 0; x < W; x++) {
      int i = y * W + x;
      bool edge = !x || !y || x == W - 1 || y == H - 1;
      want[i] = edge ? in[i] : fmaf(0.5f, in[i], 0.125f * (in[i - 1] + in[i + 1] + in[i - W] + in[i + W]));
    }
  static const uint32_t blocks[][2] = {{16, 4}, {8, 8}, {13, 5}, {37, 1}, {1, 21}, {32, 32}};
  for (unsigned k = 0; k < sizeof blocks / sizeof *blocks; k++) {
    struct run r;
    run_open(&r, "tests/kernels/stencil", "stencil");
    float *out = run_buffer(&r, NULL, sizeof in);
    run_buffer(&r, in, sizeof in);
    run_u32(&r, W);
    run_u32(&r, H);
    uint32_t bx = blocks[k][0], by = blocks[k][1];
    run_ok(&r, (W + bx - 1) / bx, (H + by - 1) / by, 1, bx, by, 1);
    EQUAL(out, want, W * H);
    run_close(&r);
  }
}

static void scan(void **state) {
  FOR_SHAPES(g, l) {
    struct run r;
    run_open(&r, "tests/kernels/scan", "scan");
    uint32_t in[N], want[N];
    for (uint32_t i = 0; i < g * l; i++) {
      in[i] = run_random(&seed);
      want[i] = in[i] + (i % l ? want[i - 1] : 0);
    }
    uint32_t *out = run_buffer(&r, NULL, 4 * g * l);
    run_buffer(&r, in, 4 * g * l);
    run_u32(&r, g * l);
    run_ok(&r, g, 1, 1, l, 1, 1);
    EQUAL(out, want, g * l);
    run_close(&r);
  }
}

static int by_int(const void *a, const void *b) {
  return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

static void bitonic(void **state) {
  int in[3 * 256];
  for (int i = 0; i < 3 * 256; i++) in[i] = (int)run_random(&seed);
  struct run r;
  run_open(&r, "tests/kernels/bitonic", "bitonic");
  int *out = run_buffer(&r, in, sizeof in);
  run_ok(&r, 3, 1, 1, 128, 1, 1);
  for (int g = 0; g < 3; g++) qsort(in + 256 * g, 256, sizeof *in, by_int);
  EQUAL(out, in, 3 * 256);
  run_close(&r);
}

static uint32_t hash_host(uint32_t x, uint32_t rounds) {
  uint32_t h = x ^ 0x9747b28c;
  for (uint32_t i = 0; i < rounds; i++) {
    uint32_t k = (h + i) * 0xcc9e2d51u;
    k = rotate(k, 15) * 0x1b873593u;
    h = rotate(h ^ k, 13) * 5 + 0xe6546b64u;
    uint32_t s = k >> (i & 15);
    h ^= (uint32_t)((uint64_t)h * k >> 32) + (uint32_t)__builtin_popcount(k) + (uint32_t)(s ? __builtin_clz(s) : 32);
    h += k / (i + 3) - k % (i + 7);
    int divisor = (int)i - 19;
    h ^= (uint32_t)((int32_t)h >> 5) + (uint32_t)((int32_t)k / divisor) + (h < k ? 77 : 13);
  }
  h ^= h >> 16;
  return h * 0x85ebca6bu;
}
static void hash(void **state) {
  FOR_SHAPES(g, l) {
    struct run r;
    run_open(&r, "tests/kernels/hash", "hash");
    uint32_t in[N], want[N];
    for (uint32_t i = 0; i < g * l; i++) in[i] = run_random(&seed), want[i] = hash_host(in[i], 18);
    uint32_t *out = run_buffer(&r, NULL, 4 * g * l);
    run_buffer(&r, in, 4 * g * l);
    run_u32(&r, g * l);
    run_u32(&r, 18);
    run_ok(&r, g, 1, 1, l, 1, 1);
    EQUAL(out, want, g * l);
    run_close(&r);
  }
}

static void f64(void **state) {
  enum { M = 300 };
  double in[M], want[4 * M];
  for (uint32_t i = 0; i < M; i++) {
    double x = in[i] = (double)run_random_float(&seed, -20, 20) + 0x1p-40 * (double)run_random(&seed);
    double p = fma(fma(fma(0.25, x, -1.5), x, 3.0), x, 0.125);
    double q = p / fma(x, x, 1.0);
    double s = sqrt(fabs(q) + 1e-3);
    want[4 * i] = q;
    want[4 * i + 1] = s;
    want[4 * i + 2] = x > 0.5 ? floor(x * 8) - trunc(p) : ceil(q) + rint(x);
    double sum = (double)(int)(x * 1000) + (double)(i * 3) + (double)(float)q + (double)(int64_t)(p * 1e6);
    want[4 * i + 3] = fma(fmin(p, q), fmax(x, s), sum);
  }
  struct run r;
  run_open(&r, "tests/kernels/f64", "f64");
  double *out = run_buffer(&r, NULL, sizeof want);
  run_buffer(&r, in, sizeof in);
  run_u32(&r, M);
  run_ok(&r, 3, 1, 1, 100, 1, 1);
  EQUAL(out, want, 4 * M);
  run_close(&r);
}

static void int64(void **state) {
  enum { M = 200 };
  int64_t a[M], b[M], want[6 * M];
  for (uint32_t i = 0; i < M; i++) {
    int64_t x = a[i] = (int64_t)((uint64_t)run_random(&seed) << 32 | run_random(&seed)) >> (run_random(&seed) & 63);
    int64_t y = b[i] = (int64_t)((uint64_t)run_random(&seed) << 32 | run_random(&seed)) >> (run_random(&seed) & 63);
    if (!y) y = b[i] = 3;
    if (x == INT64_MIN) x = a[i] = 5;
    uint64_t ux = (uint64_t)x, uy = (uint64_t)y;
    int64_t *w = want + 6 * i;
    w[0] = (int64_t)(ux * uy);
    w[1] = x / y;
    w[2] = x % y;
    w[3] = (int64_t)(ux / uy + ux % uy);
    w[4] = (int64_t)(ux << (y & 63)) ^ (x >> (y & 31)) ^ (int64_t)(uy >> (x & 63));
    w[5] = (int64_t)(x < y ? ux - uy : ux + uy) ^ (ux > uy ? ~x : x | y);
  }
  struct run r;
  run_open(&r, "tests/kernels/i64", "i64");
  int64_t *out = run_buffer(&r, NULL, sizeof want);
  run_buffer(&r, a, sizeof a);
  run_buffer(&r, b, sizeof b);
  run_u32(&r, M);
  run_ok(&r, 4, 1, 1, 50, 1, 1);
  EQUAL(out, want, 6 * M);
  run_close(&r);
}

static void bytes(void **state) {
  enum { M = 500 };
  uint8_t a[M], b[M], want[M];
  int16_t want16[M];
  for (uint32_t i = 0; i < M; i++) {
    int x = a[i] = (uint8_t)run_random(&seed), y = b[i] = (uint8_t)run_random(&seed);
    int mix = (x * 77 + y * 179 + 128) >> 8 & 255;
    want[i] = (uint8_t)clamp_int(clamp_int(mix - 9, 0, 255) + (x > y ? 40 : y & 15), 0, 255);
    int8_t sx = (int8_t)x, sy = (int8_t)y;
    int16_t s = (int16_t)(sx * 128 - sy * 3);
    s = (int16_t)((int16_t)(s >> (y & 7)) + (int16_t)((uint16_t)s >> 3));
    want16[i] = (int16_t)(clamp_int(s, -9000, 9000) - (int16_t)(sx / (sy | 1)));
  }
  struct run r;
  run_open(&r, "tests/kernels/bytes", "bytes");
  uint8_t *out = run_buffer(&r, NULL, M);
  int16_t *out16 = run_buffer(&r, NULL, 2 * M);
  run_buffer(&r, a, M);
  run_buffer(&r, b, M);
  run_u32(&r, M);
  run_ok(&r, 2, 1, 1, 256, 1, 1);
  EQUAL(out, want, M);
  EQUAL(out16, want16, M);
  run_close(&r);
}

static _Float16 fma_half(_Float16 a, _Float16 b, _Float16 c) { return (_Float16)((double)a * (double)b + (double)c); }

static void f16(void **state) {
  enum { M = 400 };
  _Float16 a[M], b[M], want[M];
  for (uint32_t i = 0; i < M; i++)
    a[i] = (_Float16)run_random_float(&seed, -8, 8), b[i] = (_Float16)run_random_float(&seed, -8, 8);
  for (uint32_t i = 0; i < M / 2; i++) {
    _Float16 *x = a + 2 * i, *y = b + 2 * i, z0 = fma_half(x[0], y[0], x[0]), z1 = fma_half(x[1], y[1], x[1]);
    _Float16 w = fma_half(z0, y[1], z1);
    z0 = (_Float16)((float)z0 - (float)w), z1 = (_Float16)((float)z1 - 0.5f);
    if (z0 > z1) {
      _Float16 t = z0;
      z0 = z1, z1 = t;
    }
    want[2 * i] = (_Float16)((float)z0 + (float)(_Float16)(float)i);
    want[2 * i + 1] = (_Float16)((float)z1 + (float)(i & 31));
  }
  struct run r;
  run_open(&r, "tests/kernels/f16", "f16");
  _Float16 *out = run_buffer(&r, NULL, sizeof want);
  run_buffer(&r, a, sizeof a);
  run_buffer(&r, b, sizeof b);
  run_u32(&r, M);
  run_ok(&r, 4, 1, 1, 64, 1, 1);
  EQUAL(out, want, M);
  run_close(&r);
}

/* Approximate instructions: within the stated error of the exact value, relative for results above 1 and absolute
 * below. */
static void transcend(void **state) {
  enum { M = 600 };
  static const char *names[6] = {"exp2", "log2", "sin", "cos", "sqrt/div", "rcp+rsq"};
  static const double bound[6] = {0x1p-21, 0x1p-20, 0x1p-17, 0x1p-17, 0x1p-21, 0x1p-21};
  float in[M];
  for (uint32_t i = 0; i < M; i++) in[i] = i ? run_random_float(&seed, -60, 60) : 1.0f;
  struct run r;
  run_open(&r, "tests/kernels/transcend", "transcend");
  float *out = run_buffer(&r, NULL, sizeof in * 6);
  run_buffer(&r, in, sizeof in);
  run_u32(&r, M);
  run_ok(&r, 5, 1, 1, 128, 1, 1);
  for (uint32_t i = 0; i < M; i++) {
    double x = in[i], turns = (double)(in[i] * 0x1.45f306p-3f) * 2 * 3.14159265358979323846;
    double want[6] = {exp2(x),
                      log2(fabs(x)),
                      sin(turns),
                      cos(turns),
                      (double)sqrtf(fabsf(in[i])) / (double)fmaf(in[i], in[i], 1.0f),
                      1 / x + 1 / sqrt(fabs(x))};
    for (int k = 0; k < 6; k++) {
      double got = (double)out[6 * i + k], scale = k == 0 || k == 4 ? fabs(want[k]) : fmax(fabs(want[k]), 1);
      if (!(fabs(got - want[k]) <= bound[k] * scale)) fail_msg("%s(%a) is %a, not %a", names[k], x, got, want[k]);
    }
  }
  run_close(&r);
}

static uint32_t diverge_host(uint32_t x, uint32_t i) {
  uint32_t steps = 0, acc = 0;
  while (x > 1 && steps < 500) {
    x = x & 1 ? 3 * x + 1 : x >> 1;
    if ((++steps & 7) == 3)
      for (uint32_t j = 0; j < (x & 15); j++) {
        acc += j * x;
        if ((acc & 0x3f) == 5) break;
        if (j & 2) continue;
        acc ^= j << 3;
      }
  }
  switch (steps % 6) {
  case 0: acc += 11; break;
  case 1: acc *= 3; break;
  case 2: acc = ~acc ^ i; break;
  case 3: acc ^= i; break;
  case 4: acc -= steps; break;
  default: acc = rotate(acc, steps);
  }
  return acc + steps;
}
static void diverge(void **state) {
  FOR_SHAPES(g, l) {
    struct run r;
    run_open(&r, "tests/kernels/diverge", "diverge");
    uint32_t in[N], want[N];
    for (uint32_t i = 0; i < g * l; i++)
      in[i] = run_random(&seed) >> (run_random(&seed) & 31), want[i] = diverge_host(in[i], i);
    uint32_t *out = run_buffer(&r, NULL, 4 * g * l);
    run_buffer(&r, in, 4 * g * l);
    run_u32(&r, g * l);
    run_ok(&r, g, 1, 1, l, 1, 1);
    EQUAL(out, want, g * l);
    run_close(&r);
  }
}

static uint32_t scratch_host(uint32_t x) {
  uint32_t a[96], h = 0;
  uint8_t c[72];
  for (uint32_t k = 0; k < 96; k++) a[k] = x * (k + 1);
  for (uint32_t k = 0; k < 72; k++) c[k] = (uint8_t)(x >> (k & 15));
  for (uint32_t k = 0; k < 64; k++) {
    uint32_t p = (a[k % 96] >> 7) % 96, q = (a[p] >> 3) % 96, t = a[p];
    a[p] = a[q] + c[(q + k) % 72];
    a[q] = t ^ k;
    c[p % 72] = (uint8_t)(c[p % 72] + t);
  }
  for (uint32_t k = 0; k < 96; k++) h = h * 31 + a[k];
  for (uint32_t k = 0; k < 72; k++) h = h * 33 + c[k];
  return h;
}
static void scratch(void **state) {
  FOR_SHAPES(g, l) {
    struct run r;
    run_open(&r, "tests/kernels/scratch", "scratch");
    assert_true(r.private_segment > 0);
    uint32_t in[N], want[N];
    for (uint32_t i = 0; i < g * l; i++) in[i] = run_random(&seed), want[i] = scratch_host(in[i]);
    uint32_t *out = run_buffer(&r, NULL, 4 * g * l);
    run_buffer(&r, in, 4 * g * l);
    run_u32(&r, g * l);
    run_ok(&r, g, 1, 1, l, 1, 1);
    EQUAL(out, want, g * l);
    run_close(&r);
  }
}

struct pair {
  uint32_t lo, hi;
  float f[6];
};
static struct pair fill_host(uint32_t x, float f) {
  struct pair p = {2 * x + 1, x ^ 0x55, {0}};
  for (int i = 0; i < 6; i++) p.f[i] = f * (float)(i + (int)(x & 3));
  return p;
}
static struct pair combine_host(struct pair a, struct pair b, uint32_t k) {
  a.lo += 2 * b.lo + 1;
  a.hi ^= b.hi + k;
  for (uint32_t i = 0; i < 6; i++) a.f[i] += b.f[(i + k) % 6];
  return a;
}
static void calls(void **state) {
  FOR_SHAPES(g, l) {
    struct run r;
    run_open(&r, "tests/kernels/calls", "calls");
    uint32_t in[N], want[N];
    float wantf[N];
    for (uint32_t i = 0; i < g * l; i++) {
      in[i] = run_random(&seed);
      struct pair a = fill_host(in[i], 0.5f), b = fill_host(in[i] + i, 0.25f), c = combine_host(a, b, i);
      if (in[i] & 1) c = combine_host(c, a, in[i] & 7);
      want[i] = c.lo + 3 * c.hi;
      wantf[i] = c.f[0] + 2 * c.f[1] + 4 * c.f[2] + 8 * c.f[3] + 16 * c.f[4] + 32 * c.f[5];
    }
    uint32_t *out = run_buffer(&r, NULL, 4 * g * l);
    float *outf = run_buffer(&r, NULL, 4 * g * l);
    run_buffer(&r, in, 4 * g * l);
    run_u32(&r, g * l);
    run_ok(&r, g, 1, 1, l, 1, 1);
    EQUAL(out, want, g * l);
    EQUAL(outf, wantf, g * l);
    run_close(&r);
  }
}

static void atomics(void **state) {
  FOR_SHAPES(g, l) {
    struct run r;
    run_open(&r, "tests/kernels/atomics", "atomics");
    uint32_t n = g * l, u[16] = {5, 6, 7, 0, 0xffffffff, 3, 0, 0, 0xffffffff}, want[16];
    int32_t s[4] = {100, -100}, wants[4] = {100, -100};
    float f[4] = {0}, wantf[4] = {0};
    uint64_t w[4] = {1, 2, 3}, wantw[4] = {1, 2, 3};
    float sum = 0;
    memcpy(want, u, sizeof u);
    for (uint32_t i = 0; i < n; i++) {
      want[0] += i;
      want[1] -= i & 7;
      want[2] ^= i * 2654435761u;
      want[3] |= 1u << (i & 31);
      want[4] &= ~(1u << (i & 15));
      want[5] = want[5] > i * 7 % 1009 ? want[5] : i * 7 % 1009;
      int lo = (int)(i * 37 % 2003) - 1000, hi = (int)(i * 41 % 3001) - 1500;
      wants[0] = lo < wants[0] ? lo : wants[0];
      wants[1] = hi > wants[1] ? hi : wants[1];
      want[6]++;
      sum += (float)(i & 3);
      wantf[0] += (float)(i & 15);
      wantw[0] += (uint64_t)i << 20;
      wantw[1] = wantw[1] > i * 0x123456789ull ? wantw[1] : i * 0x123456789ull;
      wantw[2] += i;
    }
    want[7] = float_bits(sum);
    want[8] = 1;
    uint32_t *gotu = run_buffer(&r, u, sizeof u);
    int32_t *gots = run_buffer(&r, s, sizeof s);
    float *gotf = run_buffer(&r, f, sizeof f);
    uint64_t *gotw = run_buffer(&r, w, sizeof w);
    uint32_t *tickets = run_buffer(&r, NULL, 4 * n);
    run_u32(&r, n);
    run_ok(&r, g, 1, 1, l, 1, 1);
    EQUAL(gotu, want, 16);
    EQUAL(gots, wants, 4);
    EQUAL(gotf, wantf, 4);
    EQUAL(gotw, wantw, 4);
    bool seen[N] = {0};
    for (uint32_t i = 0; i < n; i++) {
      assert_true(tickets[i] < n && !seen[tickets[i]]);
      seen[tickets[i]] = true;
    }
    run_close(&r);
  }
}

static void ldsatomics(void **state) {
  enum { SLOTS = 13 };
  FOR_SHAPES(g, l) {
    struct run r;
    run_open(&r, "tests/kernels/ldsatomics", "ldsatomics");
    uint32_t in[N], want[5][8][SLOTS];
    for (uint32_t k = 0; k < g; k++) {
      for (int o = 0; o < 8; o++)
        for (int i = 0; i < SLOTS; i++) want[k][o][i] = o == 4 || o == 6 ? ~0u : 0;
      for (uint32_t i = k * l; i < (k + 1) * l; i++) {
        uint32_t x = in[i] = run_random(&seed), c = x % SLOTS;
        want[k][0][c] += x;
        want[k][1][c] -= x >> 3;
        want[k][2][c] ^= x;
        want[k][3][c] |= x;
        want[k][4][c] &= x;
        want[k][5][c] = want[k][5][c] > x ? want[k][5][c] : x;
        want[k][6][c] = want[k][6][c] < x ? want[k][6][c] : x;
        want[k][7][c] += x & 0xff;
      }
    }
    uint32_t *out = run_buffer(&r, NULL, g * 8 * SLOTS * 4);
    run_buffer(&r, in, 4 * g * l);
    run_local(&r, 8 * SLOTS * 4);
    run_u32(&r, SLOTS);
    run_ok(&r, g, 1, 1, l, 1, 1);
    EQUAL(out, &want[0][0][0], g * 8 * SLOTS);
    run_close(&r);
  }
}

static void hidden(void **state) {
  static const uint32_t launches[][6] = {
      {3, 1, 1, 40, 1, 1}, {2, 3, 1, 8, 4, 1}, {2, 2, 3, 5, 3, 4}, {1, 1, 1, 1, 1, 1}, {2, 1, 2, 4, 4, 16}};
  for (unsigned k = 0; k < sizeof launches / sizeof *launches; k++) {
    const uint32_t *g = launches[k], *l = g + 3;
    struct run r;
    run_open(&r, "tests/kernels/hidden", "hidden");
    uint32_t n = g[0] * g[1] * g[2] * l[0] * l[1] * l[2];
    memcpy(r.offset, (uint64_t[]){7, 11, 13}, sizeof r.offset);
    uint32_t *out = run_buffer(&r, NULL, n * 80), *want = calloc(n, 80);
    for (uint32_t i = 0; i < n; i++) {
      uint32_t *w = want + 20 * i,
               at[3] = {i % (g[0] * l[0]), i / (g[0] * l[0]) % (g[1] * l[1]), i / (g[0] * l[0]) / (g[1] * l[1])};
      w[0] = g[2] * l[2] > 1 ? 3 : g[1] * l[1] > 1 ? 2 : 1;
      for (int d = 0; d < 3; d++) {
        w[1 + d] = at[d] + (uint32_t)r.offset[d];
        w[4 + d] = at[d] % l[d];
        w[7 + d] = at[d] / l[d];
        w[10 + d] = l[d];
        w[13 + d] = g[d];
        w[16 + d] = g[d] * l[d];
      }
      w[19] = 7 + 110 + 1300;
    }
    run_ok(&r, g[0], g[1], g[2], l[0], l[1], l[2]);
    EQUAL(out, want, n * 20);
    free(want);
    run_close(&r);
  }
}

static void structarg(void **state) {
  struct {
    uint8_t tag;
    int16_t bias;
    float scale[3];
    int64_t big;
    uint32_t v[4] __attribute__((aligned(16)));
  } p = {200, -321, {0.5f, -1.25f, 3.0f}, -0x123456789abcdef, {3, 7, 11}};
  float w[4] = {1.5f, -2.25f, 0.1f, 4}, in[150], want[150];
  uint8_t c[4] = {1, 20, 200, 255};
  for (uint32_t i = 0; i < 150; i++) {
    float x = in[i] = run_random_float(&seed, -100, 100), s = fmaf(x, p.scale[i % 3], (float)p.bias);
    for (int k = 0; k < 4; k++) s = fmaf(w[k], (float)c[k], s);
    want[i] = s + (float)(p.tag + p.v[0] * p.v[1] + p.v[2]) + (float)(int)(p.big >> 33);
  }
  struct run r;
  run_open(&r, "tests/kernels/structarg", "structarg");
  float *out = run_buffer(&r, NULL, sizeof want);
  run_arg(&r, &p, sizeof p, 16);
  run_arg(&r, w, 16, 16);
  run_arg(&r, c, 4, 4);
  run_buffer(&r, in, sizeof in);
  run_u32(&r, 150);
  run_ok(&r, 2, 1, 1, 90, 1, 1);
  EQUAL(out, want, 150);
  run_close(&r);
}

static void flatptr(void **state) {
  static const uint32_t blocks[] = {1, 33, 64, 128};
  for (unsigned k = 0; k < 4; k++) {
    uint32_t l = blocks[k], n = 3 * l;
    uint32_t mem[2 * 384], want[384];
    for (uint32_t i = 0; i < 2 * n; i++) mem[i] = run_random(&seed);
    struct run r;
    run_open(&r, "tests/kernels/flatptr", "flatptr");
    uint32_t *out = run_buffer(&r, NULL, 4 * n), *g = run_buffer(&r, mem, 8 * n);
    run_u32(&r, n);
    for (uint32_t i = 0; i < n; i++) {
      uint32_t lds[2] = {i + 1, i + 2}, p[2] = {i, i * i}, *q = i % 3 == 0 ? mem + 2 * i : i % 3 == 1 ? lds : p;
      q[0] = q[0] * 3 + i % 3 + 5;
      q[1] = q[1] * 3 + i % 3;
      want[i] = (q[0] ^ q[1]) + lds[0] + p[1];
    }
    run_ok(&r, 3, 1, 1, l, 1, 1);
    EQUAL(out, want, n);
    EQUAL(g, mem, 2 * n);
    run_close(&r);
  }
}

static void vectors(void **state) {
  enum { M = 130 };
  float in[M][4], want[2 * M][4], want3[M][3];
  uint32_t u[M][4];
  uint8_t wantpix[M][4];
  uint64_t want2[M][2];
  for (uint32_t i = 0; i < M; i++) {
    for (int k = 0; k < 4; k++) in[i][k] = run_random_float(&seed, -1, 2), u[i][k] = run_random(&seed);
    float *a = in[i];
    uint32_t *b = u[i], wide[8] = {b[0], b[1], b[2], b[3], b[3], b[2], b[1], b[0]};
    for (int k = 0; k < 8; k++) wide[k] = wide[k] * 3 + i;
    for (int k = 0; k < 4; k++) want[2 * i][k] = a[3 - k] * 2.0f + a[k];
    memcpy(want[2 * i + 1], (float[]){(float)wide[0], (float)wide[3], (float)(int)wide[5], (float)(wide[7] & 0xff)},
           16);
    memcpy(wantpix[i],
           (uint8_t[]){(uint8_t)(b[0] >> 24), (uint8_t)b[1], (uint8_t)(b[2] >> 8),
                       (uint8_t)clamp_int((int)(a[0] * 255.0f), 0, 255)},
           4);
    want2[i][0] = (uint64_t)wide[1] << 32 | wide[2];
    want2[i][1] = (uint64_t)wide[4] * wide[6];
    memcpy(want3[i], (float[]){a[0], a[1] + a[2], a[3]}, 12);
  }
  struct run r;
  run_open(&r, "tests/kernels/vectors", "vectors");
  float *out = run_buffer(&r, NULL, sizeof want);
  uint8_t *pix = run_buffer(&r, NULL, sizeof wantpix);
  run_buffer(&r, in, sizeof in);
  run_buffer(&r, u, sizeof u);
  uint64_t *o2 = run_buffer(&r, NULL, sizeof want2);
  float *o3 = run_buffer(&r, NULL, sizeof want3);
  run_u32(&r, M);
  run_ok(&r, 3, 1, 1, 50, 1, 1);
  EQUAL(out, &want[0][0], 8 * M);
  EQUAL(pix, &wantpix[0][0], 4 * M);
  EQUAL(o2, &want2[0][0], 2 * M);
  EQUAL(o3, &want3[0][0], 3 * M);
  run_close(&r);
}

static void convert(void **state) {
  enum { M = 256 };
  float f[M];
  int32_t s[M];
  int64_t w[M], want[M][12];
  for (uint32_t i = 0; i < M; i++) {
    f[i] = ldexpf(run_random_float(&seed, -1, 1), (int)(run_random(&seed) % 60) - 30);
    s[i] = (int32_t)(run_random(&seed) << 16 | (uint16_t)(run_random(&seed) % 40001 - 20000));
    w[i] = (int64_t)((uint64_t)run_random(&seed) << 32 | run_random(&seed)) >> (run_random(&seed) & 63);
    float x = f[i];
    int64_t *o = want[i];
    o[0] = (int32_t)x;
    o[1] = (uint32_t)fabsf(x);
    o[2] = (int64_t)x;
    o[3] = (int64_t)(uint64_t)fabsf(x);
    o[4] = float_bits((float)s[i]);
    o[5] = float_bits((float)(uint32_t)s[i]);
    o[6] = float_bits((float)w[i]);
    o[7] = float_bits((float)(uint64_t)w[i]);
    double d = (double)w[i], du = (double)(uint64_t)w[i];
    memcpy(&o[8], &d, 8);
    memcpy(&o[9], &du, 8);
    _Float16 h = (_Float16)x;
    uint16_t hb;
    memcpy(&hb, &h, 2);
    o[10] = hb | (int64_t)float_bits((float)h) << 16;
    o[11] = (int8_t)s[i] + 1000 * (int16_t)s[i] + (int64_t)(uint8_t)w[i] * 7 +
            (int16_t)(float)(_Float16)(float)(int16_t)s[i];
  }
  struct run r;
  run_open(&r, "tests/kernels/convert", "convert");
  int64_t *out = run_buffer(&r, NULL, sizeof want);
  run_buffer(&r, f, sizeof f);
  run_buffer(&r, s, sizeof s);
  run_buffer(&r, w, sizeof w);
  run_u32(&r, M);
  run_ok(&r, 2, 1, 1, 128, 1, 1);
  EQUAL(out, &want[0][0], 12 * M);
  run_close(&r);
}

static void lanes(void **state) {
  struct run r;
  run_open(&r, "tests/kernels/lanes", "lanes");
  uint32_t in[96], want[96][10], wave = run_wave32(&r) ? 32 : 64;
  for (uint32_t i = 0; i < 96; i++) in[i] = run_random(&seed);
  for (uint32_t i = 0; i < 96; i++) {
    uint32_t l = i & 31, *x = in + (i & ~31u), *w = want[i], ones = 0, lane = i % wave, first = i - lane;
    for (uint32_t k = first; k < first + wave && k < 96; k++) ones += in[k] & 1;
    w[0] = x[l ^ 1];
    w[1] = x[(l & ~3u) | (3 - (l & 3))];
    w[2] = x[l ^ 5];
    w[3] = x[l ^ 9];
    w[4] = in[first];
    w[5] = in[first + 7];
    w[6] = l & 15 ? x[l - 1] : 1000;
    w[7] = x[(l & ~7u) | (0xfac688u >> 3 * (l & 7) & 7)];
    w[8] = ones + lane;
    w[9] = x[((l & 16) ^ 16) | (l & 15)];
  }
  uint32_t *out = run_buffer(&r, NULL, sizeof want);
  run_buffer(&r, in, sizeof in);
  run_ok(&r, 1, 1, 1, 96, 1, 1);
  EQUAL(out, &want[0][0], 960);
  run_close(&r);
}

static void fft(void **state) {
  float in[128], want[128], tw[64];
  for (int k = 0; k < 32; k++)
    tw[2 * k] = (float)cos(k * 3.14159265358979323846 / 32),
           tw[2 * k + 1] = (float)-sin(k * 3.14159265358979323846 / 32);
  for (int i = 0; i < 128; i++) in[i] = run_random_float(&seed, -1, 1);
  for (int i = 0; i < 64; i++) {
    int j = 0;
    for (int b = 0; b < 6; b++) j |= (i >> b & 1) << (5 - b);
    want[2 * j] = in[2 * i], want[2 * j + 1] = in[2 * i + 1];
  }
  for (int h = 1; h < 64; h <<= 1)
    for (int l = 0; l < 32; l++) {
      int k = l & (h - 1), a = 2 * l - k, b = a + h;
      float tx = tw[2 * k * (32 / h)], ty = tw[2 * k * (32 / h) + 1], yx = want[2 * b], yy = want[2 * b + 1];
      float zx = fmaf(tx, yx, -(ty * yy)), zy = fmaf(tx, yy, ty * yx), xx = want[2 * a], xy = want[2 * a + 1];
      want[2 * a] = xx + zx, want[2 * a + 1] = xy + zy;
      want[2 * b] = xx - zx, want[2 * b + 1] = xy - zy;
    }
  struct run r;
  run_open(&r, "tests/kernels/fft", "fft");
  float *out = run_buffer(&r, in, sizeof in);
  run_buffer(&r, tw, sizeof tw);
  run_ok(&r, 1, 1, 1, 32, 1, 1);
  EQUAL(out, want, 128);
  run_close(&r);
}

static void blur(void **state) {
  enum { W = 45, H = 29 };
  uint8_t in[H][W], want[H][W];
  for (int y = 0; y < H; y++)
    for (int x = 0; x < W; x++) in[y][x] = (uint8_t)run_random(&seed);
  for (int y = 0; y < H; y++)
    for (int x = 0; x < W; x++) {
      uint32_t sum = 4;
      for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++) sum += in[clamp_int(y + dy, 0, H - 1)][clamp_int(x + dx, 0, W - 1)];
      want[y][x] = (uint8_t)(sum / 9);
    }
  struct run r;
  run_open(&r, "tests/kernels/blur", "blur");
  uint8_t *out = run_buffer(&r, NULL, sizeof in);
  run_buffer(&r, in, sizeof in);
  run_u32(&r, W);
  run_u32(&r, H);
  run_ok(&r, (W + 15) / 16, (H + 7) / 8, 1, 16, 8, 1);
  EQUAL(out, &want[0][0], W * H);
  run_close(&r);
}

static void dots(void **state) {
  enum { M = 100 };
  int32_t a[M], b[M], want[M][4];
  float wantf[M];
  for (uint32_t i = 0; i < M; i++) {
    int32_t x = a[i] = (int32_t)run_random(&seed), y = b[i] = (int32_t)run_random(&seed);
    int64_t ss = i, uu = i, su = 0x7fffff00, u8 = 5;
    for (int k = 0; k < 4; k++) {
      int8_t sx = (int8_t)(x >> 8 * k), sy = (int8_t)(y >> 8 * k);
      ss += sx * sy, uu += (uint8_t)sx * (uint8_t)sy, su += sx * (uint8_t)sy;
    }
    for (int k = 0; k < 8; k++) u8 += (x >> 4 * k & 15) * (y >> 4 * k & 15);
    want[i][0] = (int32_t)ss;
    want[i][1] = (int32_t)uu;
    want[i][2] = su > INT32_MAX ? INT32_MAX : (int32_t)su;
    want[i][3] = (int32_t)u8;
    wantf[i] = (float)((x & 63) * (int)(i & 15)) + (float)(y & 31) * 0.5f + 1.0f;
  }
  struct run r;
  run_open(&r, "tests/kernels/dots", "dots");
  int32_t *out = run_buffer(&r, NULL, sizeof want);
  float *outf = run_buffer(&r, NULL, sizeof wantf);
  run_buffer(&r, a, sizeof a);
  run_buffer(&r, b, sizeof b);
  run_u32(&r, M);
  run_ok(&r, 2, 1, 1, 64, 1, 1);
  EQUAL(out, &want[0][0], 4 * M);
  EQUAL(outf, wantf, M);
  run_close(&r);
}

static void wave64(void **state) {
  static const uint32_t blocks[] = {64, 128};
  for (int k = 0; k < 2; k++) {
    uint32_t l = blocks[k], n = 2 * l - 5, in[256], y[256] = {0};
    for (uint32_t i = 0; i < 2 * l; i++) in[i] = i < n ? run_random(&seed) : 0;
    uint64_t want[256];
    for (uint32_t i = 0; i < 2 * l; i++) {
      y[i] = in[i];
      for (uint32_t j = 0; j < (in[i] & 31); j++) y[i] = y[i] * 3 + in[i / l * l + ((i % l + j) & 127 & (l - 1))] * 5;
    }
    for (uint32_t i = 0; i < n; i++) {
      uint64_t ballot = 0;
      for (uint32_t j = 0; j < 64; j++) ballot |= (uint64_t)(y[i / 64 * 64 + j] & 1) << j;
      want[i] = ballot ^ y[i] ^ (uint64_t)y[i / 64 * 64 + 40] << 32;
    }
    struct run r;
    run_open(&r, "tests/kernels/wave64", "wave64");
    assert_false(r.properties >> 10 & 1);
    uint64_t *out = run_buffer(&r, NULL, 8 * n);
    run_buffer(&r, in, 4 * n);
    run_u32(&r, n);
    run_ok(&r, 2, 1, 1, l, 1, 1);
    EQUAL(out, want, n);
    assert_int_equal(r.stats.waves, 2 * l / 64);
    run_close(&r);
  }
}
#endif
