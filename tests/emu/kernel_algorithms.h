/* More kernels of tests/kernels, compared with the host: known algorithms. The bodies in bodies.h are compiled for both
 * sides; the other kernels have a plain reference here. */
#ifndef DOORBELL_TESTS_KERNEL_ALGORITHMS_H
#define DOORBELL_TESTS_KERNEL_ALGORITHMS_H
#include "../kernels/bodies.h"
#include "kernel_check.h"

static void run_body(const char *name, u32 (*body)(u32, u32)) {
  static const uint32_t launches[][2] = {{1, 32}, {2, 33}, {1, 256}};
  for (unsigned k = 0; k < 3; k++) {
    uint32_t g = launches[k][0], l = launches[k][1], in[256], want[256], n = g * l - (k == 1);
    char file[64];
    struct run r;
    snprintf(file, sizeof file, "tests/kernels/%s", name);
    run_open(&r, file, name);
    for (uint32_t i = 0; i < n; i++) in[i] = i < 3 ? i - 1 : run_random(&seed), want[i] = body(in[i], i);
    uint32_t *out = run_buffer(&r, NULL, 4 * n);
    run_buffer(&r, in, 4 * n);
    run_u32(&r, n);
    run_ok(&r, g, 1, 1, l, 1, 1);
    EQUAL(out, want, n);
    run_close(&r);
  }
}
#define X(name)                                                                                                        \
  static void name(void **state) { run_body(#name, name##_body); }
BODIES(X)
#undef X

static void life(void **state) {
  uint8_t in[3][16][16], now[3][16][16];
  for (int i = 0; i < 768; i++) (&in[0][0][0])[i] = (&now[0][0][0])[i] = run_random(&seed) % 3 == 0;
  for (int step = 0; step < 9; step++)
    for (int g = 0; g < 3; g++) {
      uint8_t next[16][16];
      for (int y = 0; y < 16; y++)
        for (int x = 0; x < 16; x++) {
          int n = -now[g][y][x];
          for (int k = 0; k < 9; k++) n += now[g][(y + k / 3 - 1) & 15][(x + k % 3 - 1) & 15];
          next[y][x] = now[g][y][x] ? n == 2 || n == 3 : n == 3;
        }
      memcpy(now[g], next, 256);
    }
  struct run r;
  run_open(&r, "tests/kernels/life", "life");
  uint8_t *out = run_buffer(&r, NULL, 768);
  run_buffer(&r, in, 768);
  run_u32(&r, 9);
  run_ok(&r, 3, 1, 1, 16, 16, 1);
  EQUAL(out, &now[0][0][0], 768);
  run_close(&r);
}

static void transpose(void **state) {
  enum { W = 37, H = 50 };
  static uint32_t in[H][W], want[W][H];
  static uint8_t in8[H][W], want8[W][H];
  for (int y = 0; y < H; y++)
    for (int x = 0; x < W; x++)
      want[x][y] = in[y][x] = run_random(&seed), want8[x][y] = in8[y][x] = (uint8_t)run_random(&seed);
  struct run r;
  run_open(&r, "tests/kernels/transpose", "transpose");
  uint32_t *out = run_buffer(&r, NULL, sizeof in);
  uint8_t *out8 = run_buffer(&r, NULL, sizeof in8);
  run_buffer(&r, in, sizeof in);
  run_buffer(&r, in8, sizeof in8);
  run_u32(&r, W);
  run_u32(&r, H);
  run_ok(&r, (W + 15) / 16, (H + 15) / 16, 1, 16, 16, 1);
  EQUAL(out, &want[0][0], W * H);
  EQUAL(out8, &want8[0][0], W * H);
  run_close(&r);
}

static int by_byte(const void *a, const void *b) { return *(const uint8_t *)a - *(const uint8_t *)b; }
static void median(void **state) {
  enum { W = 41, H = 23 };
  static uint8_t in[H][W], want[H][W];
  for (int y = 0; y < H; y++)
    for (int x = 0; x < W; x++) in[y][x] = (uint8_t)run_random(&seed);
  for (int y = 0; y < H; y++)
    for (int x = 0; x < W; x++) {
      uint8_t v[9];
      for (int k = 0; k < 9; k++) v[k] = in[clamp_int(y + k / 3 - 1, 0, H - 1)][clamp_int(x + k % 3 - 1, 0, W - 1)];
      qsort(v, 9, 1, by_byte);
      want[y][x] = v[4];
    }
  struct run r;
  run_open(&r, "tests/kernels/median", "median");
  uint8_t *out = run_buffer(&r, NULL, sizeof in);
  run_buffer(&r, in, sizeof in);
  run_u32(&r, W);
  run_u32(&r, H);
  run_ok(&r, (W + 15) / 16, (H + 7) / 8, 1, 16, 8, 1);
  EQUAL(out, &want[0][0], W * H);
  run_close(&r);
}

static void conv(void **state) {
  enum { W = 30, H = 19 };
  static float in[H][W], want[H][W], k[5][5];
  for (int i = 0; i < 25; i++) (&k[0][0])[i] = run_random_float(&seed, -1, 1);
  for (int i = 0; i < W * H; i++) (&in[0][0])[i] = run_random_float(&seed, -4, 4);
  for (int y = 0; y < H; y++)
    for (int x = 0; x < W; x++) {
      want[y][x] = 0;
      for (int j = 0; j < 25; j++) {
        int sx = x + j % 5 - 2, sy = y + j / 5 - 2;
        bool inside = sx >= 0 && sy >= 0 && sx < W && sy < H;
        want[y][x] = fmaf(k[j / 5][j % 5], inside ? in[sy][sx] : 0, want[y][x]);
      }
    }
  struct run r;
  run_open(&r, "tests/kernels/conv", "conv");
  float *out = run_buffer(&r, NULL, sizeof in);
  run_buffer(&r, in, sizeof in);
  run_buffer(&r, k, sizeof k);
  run_u32(&r, W);
  run_u32(&r, H);
  run_ok(&r, (W + 7) / 8, (H + 7) / 8, 1, 8, 8, 1);
  EQUAL(out, &want[0][0], W * H);
  run_close(&r);
}

static void matmuls(void **state) {
  enum { D = 24 };
  static double a[D][D], b[D][D], want[D][D];
  static int8_t a8[D][D];
  static uint8_t b8[D][D];
  static int32_t want8[D][D];
  static _Float16 ah[D][D], bh[D][D];
  static float wanth[D][D];
  for (int y = 0; y < D; y++)
    for (int x = 0; x < D; x++) {
      a[y][x] = (double)run_random_float(&seed, -9, 9) / 7, b[y][x] = (double)run_random_float(&seed, -9, 9) / 3;
      a8[y][x] = (int8_t)run_random(&seed), b8[y][x] = (uint8_t)run_random(&seed);
      ah[y][x] = (_Float16)run_random_float(&seed, -9, 9), bh[y][x] = (_Float16)run_random_float(&seed, -9, 9);
    }
  for (int y = 0; y < D; y++)
    for (int x = 0; x < D; x++) {
      want[y][x] = 0, want8[y][x] = 0, wanth[y][x] = 0;
      for (int k = 0; k < D; k++) {
        want[y][x] = fma(a[y][k], b[k][x], want[y][x]);
        want8[y][x] += a8[y][k] * b8[k][x];
        wanth[y][x] = fmaf((float)ah[y][k], (float)bh[k][x], wanth[y][x]);
      }
    }
#define MATMUL(name, type, a_, b_, want_)                                                                              \
  do {                                                                                                                 \
    struct run r;                                                                                                      \
    run_open(&r, "tests/kernels/matmuls", name);                                                                       \
    type *out = run_buffer(&r, NULL, sizeof want_);                                                                    \
    run_buffer(&r, a_, sizeof a_);                                                                                     \
    run_buffer(&r, b_, sizeof b_);                                                                                     \
    run_u32(&r, D);                                                                                                    \
    run_ok(&r, D / 8, D / 6, 1, 8, 6, 1);                                                                              \
    EQUAL(out, &want_[0][0], D *D);                                                                                    \
    run_close(&r);                                                                                                     \
  } while (0)
  MATMUL("matf64", double, a, b, want);
  MATMUL("mati8", int32_t, a8, b8, want8);
  MATMUL("matf16", float, ah, bh, wanth);
}

static void spmv(void **state) {
  enum { ROWS = 150, COLUMNS = 400, MOST = ROWS * 20 };
  static uint32_t start[ROWS + 1];
  static uint16_t column[MOST];
  static float value[MOST], x[COLUMNS], want[ROWS];
  for (int i = 0; i < COLUMNS; i++) x[i] = run_random_float(&seed, -2, 2);
  for (uint32_t i = 0; i < ROWS; i++) {
    uint32_t n = run_random(&seed) % 20, k = start[i];
    for (start[i + 1] = k + n; k < start[i + 1]; k++) {
      column[k] = (uint16_t)(run_random(&seed) % COLUMNS), value[k] = run_random_float(&seed, -1, 1);
      want[i] = k == start[i] ? fmaf(value[k], x[column[k]], 0) : fmaf(value[k], x[column[k]], want[i]);
    }
    if (!n) want[i] = 0;
  }
  struct run r;
  run_open(&r, "tests/kernels/spmv", "spmv");
  float *out = run_buffer(&r, NULL, sizeof want);
  run_buffer(&r, start, sizeof start);
  run_buffer(&r, column, sizeof column);
  run_buffer(&r, value, sizeof value);
  run_buffer(&r, x, sizeof x);
  run_u32(&r, ROWS);
  run_ok(&r, 2, 1, 1, 80, 1, 1);
  EQUAL(out, want, ROWS);
  run_close(&r);
}

static void floyd(void **state) {
  static uint32_t d[2][32][32];
  for (int i = 0; i < 2048; i++) (&d[0][0][0])[i] = run_random(&seed) % 5 ? 1u << 20 : run_random(&seed) % 1000;
  struct run r;
  run_open(&r, "tests/kernels/floyd", "floyd");
  uint32_t *out = run_buffer(&r, d, sizeof d);
  run_ok(&r, 2, 1, 1, 32, 8, 1);
  for (int g = 0; g < 2; g++)
    for (int k = 0; k < 32; k++)
      for (int y = 0; y < 32; y++)
        for (int x = 0; x < 32; x++) {
          uint32_t over = d[g][y][k] + d[g][k][x];
          if (over < d[g][y][x]) d[g][y][x] = over;
        }
  EQUAL(out, &d[0][0][0], 2048);
  run_close(&r);
}

static int by_word(const void *a, const void *b) {
  return (*(const uint32_t *)a > *(const uint32_t *)b) - (*(const uint32_t *)a < *(const uint32_t *)b);
}
static void radix(void **state) {
  static uint32_t keys[3][256];
  for (int i = 0; i < 768; i++) (&keys[0][0])[i] = run_random(&seed) >> (i & 16);
  struct run r;
  run_open(&r, "tests/kernels/radix", "radix");
  uint32_t *out = run_buffer(&r, keys, sizeof keys);
  run_ok(&r, 3, 1, 1, 64, 1, 1);
  for (int g = 0; g < 3; g++) qsort(keys[g], 256, 4, by_word);
  EQUAL(out, &keys[0][0], 768);
  run_close(&r);
}

static void blelloch(void **state) {
  for (uint32_t l = 1; l <= 256; l *= 4) {
    uint32_t in[1024];
    uint64_t want[1024];
    for (uint32_t i = 0; i < 4 * l; i++) {
      in[i] = run_random(&seed);
      want[i] = i % (2 * l) ? want[i - 1] + in[i - 1] : 0;
    }
    struct run r;
    run_open(&r, "tests/kernels/blelloch", "blelloch");
    uint64_t *out = run_buffer(&r, NULL, 32 * l);
    run_buffer(&r, in, 16 * l);
    run_ok(&r, 2, 1, 1, l, 1, 1);
    EQUAL(out, want, 4 * l);
    run_close(&r);
  }
}

static void search(void **state) {
  static char text[600];
  for (int i = 0; i < 600; i++) text[i] = (char)('a' + run_random(&seed) % 2);
  static const char *const words[] = {"a", "abba", "babaab", "abababababababababab", "c"};
  for (int k = 0; k < 5; k++) {
    uint32_t want[3] = {0, ~0u, 0}, m = (uint32_t)strlen(words[k]);
    for (uint32_t i = 0; i + m <= 600; i++) {
      if (memcmp(text + i, words[k], m)) continue;
      want[0]++;
      if (i < want[1]) want[1] = i;
      want[2] = i;
    }
    struct run r;
    run_open(&r, "tests/kernels/search", "search");
    uint32_t *out = run_buffer(&r, (uint32_t[]){0, ~0u, 0}, 12);
    run_buffer(&r, text, sizeof text);
    run_u32(&r, sizeof text);
    run_arg(&r, (uint32_t[]){0}, 0, 8);
    run_buffer(&r, words[k], m);
    run_u32(&r, m);
    run_ok(&r, 3, 1, 1, 256, 1, 1);
    EQUAL(out, want, 3);
    run_close(&r);
  }
}

static void nbody(void **state) {
  enum { M = 96 };
  static double body[M][4], want[M][3];
  for (int i = 0; i < 4 * M; i++) (&body[0][0])[i] = (double)run_random_float(&seed, i % 4 == 3 ? 0.1f : -5, 5);
  for (int i = 0; i < M; i++) {
    want[i][0] = want[i][1] = want[i][2] = 0;
    for (int j = 0; j < M; j++) {
      double d[3], r2;
      for (int k = 0; k < 3; k++) d[k] = body[j][k] - body[i][k];
      r2 = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + 0.01;
      double s = body[j][3] / (r2 * sqrt(r2));
      for (int k = 0; k < 3; k++) want[i][k] += d[k] * s;
    }
  }
  struct run r;
  run_open(&r, "tests/kernels/nbody", "nbody");
  double *out = run_buffer(&r, NULL, sizeof want);
  run_buffer(&r, body, sizeof body);
  run_u32(&r, M);
  run_ok(&r, M / 32, 1, 1, 32, 1, 1);
  EQUAL(out, &want[0][0], 3 * M);
  run_close(&r);
}

static void argmax(void **state) {
  static float in[4][128], most[4];
  uint32_t where[4];
  for (int g = 0; g < 4; g++) {
    where[g] = 0;
    for (uint32_t i = 0; i < 128; i++) {
      in[g][i] = (float)((int)(run_random(&seed) % 40) - 30);
      if (in[g][i] > in[g][where[g]]) where[g] = i;
    }
    most[g] = in[g][where[g]];
  }
  struct run r;
  run_open(&r, "tests/kernels/argmax", "argmax");
  uint32_t *at = run_buffer(&r, NULL, sizeof where);
  float *value = run_buffer(&r, NULL, sizeof most);
  run_buffer(&r, in, sizeof in);
  run_ok(&r, 4, 1, 1, 128, 1, 1);
  EQUAL(at, where, 4);
  EQUAL(value, most, 4);
  run_close(&r);
}

static void subgroup(void **state) {
  uint32_t in[192], want[192][4];
  for (int i = 0; i < 192; i++) in[i] = run_random(&seed);
  for (int g = 0; g < 192; g += 32) {
    uint32_t sum = 0, most = 0, all = 0;
    for (int i = g; i < g + 32; i++) {
      want[i][3] = sum += in[i];
      most = in[i] > most ? in[i] : most, all ^= in[i];
    }
    for (int i = g; i < g + 32; i++) want[i][0] = sum, want[i][1] = most, want[i][2] = all;
  }
  struct run r;
  run_open(&r, "tests/kernels/subgroup", "subgroup");
  uint32_t *out = run_buffer(&r, NULL, sizeof want);
  run_buffer(&r, in, sizeof in);
  run_ok(&r, 2, 1, 1, 96, 1, 1);
  EQUAL(out, &want[0][0], 768);
  run_close(&r);
}

static void heat(void **state) {
  enum { X_ = 19, Y_ = 11, Z_ = 6 };
  static float in[Z_][Y_][X_], want[Z_][Y_][X_];
  for (int i = 0; i < X_ * Y_ * Z_; i++) (&in[0][0][0])[i] = run_random_float(&seed, 0, 100);
#define AT(x, y, z) in[clamp_int(z, 0, Z_ - 1)][clamp_int(y, 0, Y_ - 1)][clamp_int(x, 0, X_ - 1)]
  for (int z = 0; z < Z_; z++)
    for (int y = 0; y < Y_; y++)
      for (int x = 0; x < X_; x++) {
        float sides = (AT(x - 1, y, z) + AT(x + 1, y, z)) + (AT(x, y - 1, z) + AT(x, y + 1, z));
        sides += AT(x, y, z - 1) + AT(x, y, z + 1);
        want[z][y][x] = fmaf(0.1f, fmaf(-6.0f, AT(x, y, z), sides), AT(x, y, z));
      }
#undef AT
  struct run r;
  run_open(&r, "tests/kernels/heat", "heat");
  float *out = run_buffer(&r, NULL, sizeof in);
  run_buffer(&r, in, sizeof in);
  run_u32(&r, X_);
  run_u32(&r, Y_);
  run_u32(&r, Z_);
  run_ok(&r, 3, 3, 3, 8, 4, 2);
  EQUAL(out, &want[0][0][0], X_ * Y_ * Z_);
  run_close(&r);
}

static void dct(void **state) {
  static int16_t in[5][8][8];
  static float c[8][8], want[5][8][8];
  for (int k = 0; k < 8; k++)
    for (int i = 0; i < 8; i++)
      c[k][i] = (float)(cos((2 * i + 1) * k * 3.14159265358979323846 / 16) * (k ? 0.5 : sqrt(0.125)));
  for (int i = 0; i < 320; i++) (&in[0][0][0])[i] = (int16_t)(run_random(&seed) % 511 - 255);
  for (int b = 0; b < 5; b++) {
    float t[8][8] = {{0}};
    for (int y = 0; y < 8; y++)
      for (int x = 0; x < 8; x++)
        for (int k = 0; k < 8; k++) t[y][x] = fmaf(c[x][k], (float)in[b][y][k], t[y][x]);
    for (int y = 0; y < 8; y++)
      for (int x = 0; x < 8; x++)
        for (int k = 0; k < 8; k++) want[b][y][x] = fmaf(c[y][k], t[k][x], want[b][y][x] * (k != 0));
  }
  struct run r;
  run_open(&r, "tests/kernels/dct", "dct");
  float *out = run_buffer(&r, NULL, sizeof want);
  run_buffer(&r, in, sizeof in);
  run_buffer(&r, c, sizeof c);
  run_ok(&r, 5, 1, 1, 8, 8, 1);
  EQUAL(out, &want[0][0][0], 320);
  run_close(&r);
}
#endif
