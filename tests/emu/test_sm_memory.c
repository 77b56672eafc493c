/* Memory instructions of emulated SMs: kernels by nvcc (tests/data/nv/memory.cu, atomics.cu) compared with the same
 * computation on the host, and the faults of bad addresses. */
#include <errno.h>
#include <math.h>
#include "sm_harness.h"

static int setup(void **state) {
  *state = sm_gpu_new("memory.cubin");
  return 0;
}
static int setup_80(void **state) {
  *state = sm_gpu_new("memory_80.cubin");
  return 0;
}
static int setup_atomics_80(void **state) {
  *state = sm_gpu_new("atomics_80.cubin");
  return 0;
}
static int setup_atomics(void **state) {
  *state = sm_gpu_new("atomics.cubin");
  return 0;
}
static int teardown(void **state) {
  sm_gpu_free(*state);
  return 0;
}
static uint32_t hash(uint32_t x) {
  x ^= x >> 16, x *= 0x7feb352d, x ^= x >> 15, x *= 0x846ca68b;
  return x ^ x >> 16;
}
static void *random_bytes(struct sm_gpu *g, size_t bytes, uint64_t *va) {
  uint32_t *p = sm_alloc(g, bytes, va);
  for (size_t i = 0; i < bytes / 4; i++) p[i] = hash((uint32_t)(i + *va));
  return p;
}

static void test_widths(void **state) {
  struct sm_gpu *g = *state;
  enum { N = 300 };
  uint64_t va[12];
  uint8_t *p[12];
  static const unsigned bytes[] = {1, 1, 2, 2, 4, 8, 16, 1, 2, 4, 8, 16};
  for (unsigned i = 0; i < 12; i++) p[i] = random_bytes(g, N * bytes[i] + 3, &va[i]);
  SM_OK(g, "widths", 3, 128, va[0], va[1], va[2], va[3], va[4], va[5], va[6], va[7], va[8], va[9], va[10], va[11], N);
  const int8_t *b = (const int8_t *)p[1];
  const uint16_t *c = (const uint16_t *)(void *)p[2], *rc = (const uint16_t *)(void *)p[8];
  const int16_t *d = (const int16_t *)(void *)p[3];
  const uint32_t *e = (const uint32_t *)(void *)p[4], *f = (const uint32_t *)(void *)p[5];
  const uint32_t *w = (const uint32_t *)(void *)p[6], *re = (const uint32_t *)(void *)p[9];
  const uint32_t *rf = (const uint32_t *)(void *)p[10], *rg = (const uint32_t *)(void *)p[11];
  for (unsigned i = 0; i < N; i++) {
    assert_int_equal(p[7][i], (uint8_t)(p[0][i] + b[N - 1 - i]));
    assert_int_equal(rc[i], (uint16_t)(c[i] * d[N - 1 - i]));
    assert_int_equal(re[i], e[i] + (uint32_t)b[i] + (uint32_t)d[i]);
    assert_int_equal(rf[i * 2], f[(N - 1 - i) * 2 + 1]);
    assert_int_equal(rf[i * 2 + 1], f[(N - 1 - i) * 2] + i);
    for (unsigned k = 0; k < 4; k++) assert_int_equal(rg[i * 4 + k], w[(i ^ 1) * 4 + 3 - k]);
  }
}

static void test_gather(void **state) {
  struct sm_gpu *g = *state;
  enum { N = 256 };
  uint64_t va[4];
  uint32_t *in = random_bytes(g, N * 4, &va[0]), *index = sm_alloc(g, N * 4, &va[1]);
  uint32_t *out = sm_alloc(g, N * 4, &va[2]);
  uint64_t *wide = sm_alloc(g, N * 8, &va[3]);
  for (uint32_t i = 0; i < N; i++) index[i] = i * 77 % N;
  SM_OK(g, "gather", 2, 128, va[0], va[1], va[2], va[3]);
  for (uint32_t i = 0; i < N; i++) {
    bool on = i % 128 % 3 != 1 || i >= 128;
    on = i % 3 != 1;
    assert_int_equal(out[index[i] ^ 1], on ? in[index[i]] : 0);
    assert_int_equal(wide[index[i]], on ? (uint64_t)in[i / 2] << 32 | in[3] : 0);
  }
}

static void test_shared(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va_in, va_out;
  uint32_t *in = random_bytes(g, 512 * 4, &va_in), *out = sm_alloc(g, 128 * 4, &va_out);
  uint8_t pool[8192] = {0};
  g->dynamic_shared = 256;
  SM_OK(g, "shared", 1, 128, va_in, va_out);
  for (uint32_t i = 0; i < 128; i++) pool[i * 7] = (uint8_t)i;
  for (uint32_t i = 0; i < 128; i++) {
    uint32_t t = 127 - i, *x = &in[(i * 4 + 64) % 512];
    assert_int_equal(out[i], in[i * 5 % 512] + t * (t + 3) + x[1] + x[2] + (uint16_t)(in[i ^ 5] >> 3) +
                                 pool[(i ^ 8) * 7] + (uint32_t)(int16_t)(uint16_t)(in[i] >> 3));
  }
}

static void test_generic(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va, va_out;
  uint32_t *global = random_bytes(g, 64, &va), *out = sm_alloc(g, 64 * 4, &va_out);
  SM_OK(g, "generic", 1, 32, va, va_out, 3);
  for (uint32_t t = 0; t < 32; t++) {
    uint32_t l[16], r = 0;
    for (uint32_t k = 0; k < 16; k++) l[k] = t * 100 + k;
    for (uint32_t k = 0; k < 3; k++) {
      uint32_t at = (t + k) % 16, which = (t + k) % 3;
      r = r * 3 + (which == 0 ? global[at] : which == 1 ? at + 1000 : l[at]);
      if (which == 2) l[at] = r;
    }
    static const uint32_t kind[] = {700, 7, 70};
    assert_int_equal(out[t], r + (t & 1 ? l[3] : 1003) + kind[t % 3]);
  }
}

static void test_local(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va_in, va_out;
  uint32_t *in = random_bytes(g, 512, &va_in), *out = sm_alloc(g, 64 * 4, &va_out);
  SM_OK(g, "local", 1, 64, va_in, va_out);
  for (uint32_t i = 0; i < 64; i++) {
    uint32_t a[64], r = 0;
    uint64_t b[16];
    for (uint32_t k = 0; k < 64; k++) a[k] = in[k] + i;
    for (uint32_t k = 0; k < 16; k++) b[k] = (uint64_t)in[k] * (i + 1);
    uint8_t *c = (uint8_t *)a;
    for (uint32_t k = 0; k < 64; k++) {
      uint32_t j = in[k + i] % 64;
      a[j] ^= a[(j + k) % 64] + (uint32_t)(b[j % 16] >> 20);
      c[(j * 5 + k) % 256] += (uint8_t)j;
    }
    for (uint32_t k = 0; k < 64; k++) r = r * 31 + a[k];
    assert_int_equal(out[i], r);
  }
}

static void test_constants(void **state) {
  struct sm_gpu *g = *state;
  static const uint32_t primes[] = {2, 3, 5, 7, 11, 13, 17, 19};
  uint64_t va;
  uint32_t *out = sm_alloc(g, 128, &va);
  for (uint32_t round = 0; round < 2; round++) {
    SM_OK(g, "constants", 1, 32, va);
    for (uint32_t i = 0; i < 32; i++)
      assert_int_equal(out[i],
                       primes[i % 8] * 1000 + (uint8_t)"doorbell rings!"[(i + primes[i % 3]) % 16] + 40 + 2 * round);
  }
}

static void test_copies(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va_in, va_out;
  uint32_t *in = random_bytes(g, 256 * 16, &va_in), *out = sm_alloc(g, 256 * 16, &va_out);
  SM_OK(g, "copies", 1, 128, va_in, va_out, 40);
  for (uint32_t i = 0; i < 128; i++)
    for (uint32_t k = 0; k < 4; k++) {
      uint32_t from = 127 - i, kept = from < 40 ? 4 : from < 80 ? 1 : 0;
      assert_int_equal(out[i * 4 + k], in[from * 4 + k]);
      assert_int_equal(out[(128 + i) * 4 + k],
                       (k < kept ? in[(128 + from) * 4 + k] : 0) + (k == 3 ? in[i * 4 + 1] : 0));
    }
}

/* ---- faults ---- */

#define ANYWHERE (~0ull)
static void expect_fault(struct sm_gpu *g, const char *kernel, const uint64_t *args, unsigned n, enum fault_kind kind,
                         uint32_t esr, int lane, uint64_t address, const char *text) {
  struct sm_dims d = {{1}, {32}};
  assert_int_equal(sm_launch(g, kernel, d, args, n), -EFAULT);
  if (!strstr(g->fault.text, text)) fail_msg("%s", g->fault.text);
  assert_int_equal(g->fault.kind, kind);
  assert_int_equal(sm_fault_esr(&g->fault), esr);
  assert_int_equal(g->fault.lane, lane);
  if (address != ANYWHERE && g->fault.address != address) fail_msg("%s", g->fault.text);
  assert_true(g->fault.pc >= g->image && g->fault.pc < g->image + g->cubin.size);
}
static void test_faults(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va;
  uint8_t *p = sm_alloc(g, 8192, &va);
  /* The last 24 words of the allocation, and eight beyond. */
  expect_fault(g, "far", (uint64_t[]){va, (8192 - 96) / 4}, 2, FAULT_PAGE, 0, 24, va + 8192,
               "0x0 bytes after the 8192-byte allocation");
  expect_fault(g, "far", (uint64_t[]){0, 0}, 2, FAULT_PAGE, 0, 0, 0, "page fault: writes 4 bytes at 0x0");
  expect_fault(g, "odd", (uint64_t[]){va, 2}, 2, FAULT_MISALIGNED, 0xf, 9, va + 38, "not a multiple of 4");
  expect_fault(g, "beyond", (uint64_t[]){va, 1000}, 2, FAULT_LDS, 0xe, 0, g->cubin.sm < 90 ? 4000 : 1024 + 4000,
               "of shared memory");
  expect_fault(g, "deep", (uint64_t[]){va, 1 << 20}, 2, FAULT_LDS, 0xe, 0, ANYWHERE, "of local memory");
  expect_fault(g, "window", (uint64_t[]){va, SM_SHARED_WINDOW + 8}, 2, FAULT_LDS, 0x10, 0, SM_SHARED_WINDOW + 8,
               "shared window");
  expect_fault(g, "window", (uint64_t[]){va, SM_LOCAL_WINDOW_AT}, 2, FAULT_LDS, 0x10, 0, SM_LOCAL_WINDOW_AT,
               "local window");
  assert_int_equal(p[8191], 1 & 0); /* nothing is written after the faulting lanes */
}

/* ---- atomics ---- */

static void test_integers(void **state) {
  struct sm_gpu *g = *state;
  enum { N = 256 };
  uint64_t va[4];
  uint32_t *in = random_bytes(g, N * 4, &va[0]), *w = sm_alloc(g, 64, &va[1]);
  uint64_t *l = sm_alloc(g, 128, &va[2]);
  uint32_t *old = sm_alloc(g, N * 4, &va[3]);
  uint32_t v[16] = {0};
  uint64_t x[16] = {0};
  w[1] = v[1] = ~0u, w[3] = v[3] = ~0u, w[6] = v[6] = INT32_MAX, w[7] = v[7] = 1u << 31;
  l[1] = x[1] = ~0ull, l[3] = x[3] = ~0ull, l[6] = x[6] = INT64_MAX, l[7] = x[7] = 1ull << 63;
  SM_OK(g, "integers", 2, 128, va[0], va[1], va[2], va[3]);
#define LESS(T, a, b) ((T)(a) < (T)(b) ? (a) : (b))
#define MORE(T, a, b) ((T)(a) > (T)(b) ? (a) : (b))
  for (uint32_t i = 0; i < N; i++) {
    uint32_t y = in[i];
    uint64_t z = y;
    v[0] += y, v[1] = LESS(uint32_t, v[1], y), v[2] = MORE(uint32_t, v[2], y), v[3] &= y, v[4] |= y, v[5] ^= y;
    v[6] = LESS(int32_t, v[6], y), v[7] = MORE(int32_t, v[7], y);
    v[8] = v[8] >= 99 ? 0 : v[8] + 1, v[9] = v[9] == 0 || v[9] > 70 ? 70 : v[9] - 1;
    x[0] += z << 20, x[1] = LESS(uint64_t, x[1], z << 13), x[2] = MORE(uint64_t, x[2], z << 13), x[3] &= ~(z << 31);
    x[4] |= z << 17, x[5] ^= z << 9, x[6] = LESS(int64_t, x[6], z << 32), x[7] = MORE(int64_t, x[7], z << 32);
    v[14] = v[14] * 3 + 1, x[11] = x[11] * 3 + 1, v[13] ^= i + 1, x[10] ^= (uint64_t)i << 33;
  }
  for (uint32_t i = 0; i < 10; i++) assert_int_equal(w[i], v[i]);
  for (uint32_t i = 0; i < 8; i++) assert_int_equal(l[i], x[i]);
  assert_int_equal(w[10], N);
  assert_int_equal(w[14], v[14]);
  assert_int_equal(l[11], x[11]);
  /* The exchanged values and the remaining one are together the values that were put in. */
  assert_int_equal(w[13], v[13]);
  assert_int_equal(w[12] ^ w[11], v[13]);
  assert_int_equal(l[10], x[10]);
  assert_int_equal(l[9] ^ l[8], x[10]);
  uint32_t seen[N] = {0};
  for (uint32_t i = 0; i < N; i++) seen[old[i]]++;
  for (uint32_t i = 0; i < N; i++) assert_int_equal(seen[i], 1);
}

static uint16_t half_of(float x) {
  _Float16 h = (_Float16)x;
  uint16_t bits;
  memcpy(&bits, &h, 2);
  return bits;
}
static void test_floats(void **state) {
  struct sm_gpu *g = *state;
  enum { N = 128 };
  uint64_t va[6];
  float *in = sm_alloc(g, N * 4, &va[0]), *f = sm_alloc(g, 64, &va[1]);
  double *d = sm_alloc(g, 64, &va[2]);
  uint16_t *h = sm_alloc(g, 64, &va[3]), *b = sm_alloc(g, 64, &va[4]);
  float *old = sm_alloc(g, N * 4, &va[5]);
  double sum = 0;
  /* Sums that every type represents exactly. */
  for (int i = 0; i < N; i++) in[i] = (float)(i % 7 - 3) * 0.5f, sum += (double)in[i];
  SM_OK(g, "floats", 1, N, va[0], va[1], va[2], va[3], va[4], va[5]);
  assert_true(f[0] == (float)sum && d[0] == sum && f[1] == N && d[2] == N && d[1] == N * (N - 1) / 2);
  assert_int_equal(h[0], half_of((float)sum));
  assert_int_equal(h[1], half_of(-(float)sum));
  float low = (float)sum;
  uint32_t bits;
  memcpy(&bits, &low, 4);
  assert_int_equal(b[0], bits >> 16);
  assert_int_equal(b[1], 0x4300); /* 128 */
  assert_int_equal(h[2], half_of(N));
  assert_int_equal(h[3], half_of(2 * N));
  assert_true(f[2] == N * (N - 1) / 2);
  bool seen[N] = {false};
  for (int i = 0; i < N; i++) seen[(int)old[i]] = true;
  for (int i = 0; i < N; i++) assert_true(seen[i]);
}

static void test_in_shared(void **state) {
  struct sm_gpu *g = *state;
  enum { N = 256 };
  uint64_t va[4];
  uint32_t *in = random_bytes(g, N * 4, &va[0]), *out = sm_alloc(g, 256, &va[1]);
  uint64_t *wide = sm_alloc(g, 8, &va[2]), big = 0;
  float *f = sm_alloc(g, 8, &va[3]);
  SM_OK(g, "in_shared", 1, N, va[0], va[1], va[2], va[3]);
  uint32_t bin[16] = {0}, most = 0, total = 0, dtotal = 0;
  for (uint32_t i = 0; i < N; i++) {
    bin[in[i] % 16]++;
    big += (uint64_t)in[i] << 8, total += in[i] % 32, dtotal += in[i] % 64;
  }
  for (uint32_t i = 0; i < 16; i++) {
    assert_int_equal(out[i], bin[i]);
    if (bin[i] - 1 > most) most = bin[i] - 1;
  }
  assert_int_equal(out[16], most);
  assert_int_equal(wide[0], big);
  assert_true(f[0] == (float)total && f[1] == (float)dtotal);
  SM_OK(g, "generic", 1, 64, va[0], va[1], va[2]);
  assert_int_equal(out[0], 32 * 32);
  assert_int_equal(out[1], 32 * 1000 + 64);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown), cmocka_unit_test_setup_teardown(f, setup_80, teardown)
#define A(f)                                                                                                           \
  cmocka_unit_test_setup_teardown(f, setup_atomics, teardown),                                                         \
      cmocka_unit_test_setup_teardown(f, setup_atomics_80, teardown)
  const struct CMUnitTest tests[] = {
      T(test_widths), T(test_gather), T(test_shared),   T(test_generic), T(test_local),     T(test_constants),
      T(test_copies), T(test_faults), A(test_integers), A(test_floats),  A(test_in_shared),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
