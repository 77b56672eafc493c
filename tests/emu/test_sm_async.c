/* mbarriers, bulk copies and clusters on emulated SMs: kernels by nvcc (tests/data/nv/async.cu, barriers_80.cu). */
#include <errno.h>
#include "sm_harness.h"

static uint32_t hash(uint32_t x) {
  x ^= x >> 16, x *= 0x7feb352d, x ^= x >> 15, x *= 0x846ca68b;
  return x ^ x >> 16;
}
static int setup(void **state) {
  *state = sm_gpu_new("async.cubin");
  return 0;
}
static int setup_80(void **state) {
  *state = sm_gpu_new("barriers_80.cubin");
  return 0;
}
static int teardown(void **state) {
  sm_gpu_free(*state);
  return 0;
}
static uint32_t *words(struct sm_gpu *g, size_t n, uint64_t *va) {
  uint32_t *p = sm_alloc(g, n * 4, va);
  for (size_t i = 0; i < n; i++) p[i] = hash((uint32_t)i + 3);
  return p;
}

static void test_phases(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va;
  uint32_t *out = sm_alloc(g, 64, &va);
  SM_OK(g, "phases", 1, 64, va);
  for (unsigned i = 0; i < 5; i++) assert_int_equal(out[i], 1000 + 64);
  /* Three expected arrivals, one of which drops out; the third one announces 32 bytes. */
  static const uint32_t want[] = {3, 0, 2, 0, 0, 1, 0, 2};
  for (unsigned i = 0; i < 8; i++)
    if (out[8 + i] != want[i]) fail_msg("%u: %u, not %u", i, out[8 + i], want[i]);
}

/* sm_80's barriers have another layout and use atomics of shared memory. */
static void test_phases_80(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va;
  uint32_t *out = sm_alloc(g, 128, &va);
  SM_OK(g, "phases", 1, 64, va);
  for (unsigned i = 0; i < 5; i++) assert_int_equal(out[i], 1000 + 64);
  /* pairs: number of pending arrivals before an arrival, and whether the phase has ended after it */
  static const uint32_t want[] = {3, 0, 2, 0, 1, 1, 2, 0, 1, 1, 2, 0, 1, 1};
  for (unsigned i = 0; i < sizeof want / sizeof *want; i++)
    if (out[8 + i] != want[i]) fail_msg("%u: %u, not %u", i, out[8 + i], want[i]);
}
static void test_copies_80(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va_in, va_out;
  uint32_t *in = words(g, 128, &va_in), *out = sm_alloc(g, 256, &va_out);
  SM_OK(g, "copies", 1, 64, va_in, va_out);
  for (uint32_t i = 0; i < 64; i++) assert_int_equal(out[i], in[63 - i] * 3 + in[64 + (i + 7) % 64]);
}

static void test_copies(void **state) {
  struct sm_gpu *g = *state;
  enum { N = 7 };
  uint64_t va_in, va_out, va_f;
  uint32_t *in = words(g, N * 256, &va_in), *out = sm_alloc(g, 4096, &va_out);
  float *f = sm_alloc(g, 512, &va_f);
  SM_OK(g, "ring", 1, 128, va_in, va_out, N);
  for (uint32_t i = 0; i < 64; i++) {
    uint32_t sum = 0;
    for (uint32_t k = 0; k < N; k++)
      for (uint32_t q = 0; q < 4; q++) sum = sum * 3 + in[k * 256 + i * 4 + q];
    assert_int_equal(out[i], sum);
  }
  for (uint32_t i = 0; i < 128; i++) f[i] = 0.5f, out[128 + i] = 0x80000000;
  SM_OK(g, "bulk", 1, 32, va_in, va_out, va_f);
  for (uint32_t i = 0; i < 128; i++) {
    uint32_t x = in[i] + 1;
    assert_int_equal(out[i], x);
    assert_true(f[i] == (float)i + 0.5f);
    assert_int_equal(out[128 + i], i < 64 && x > 0x80000000 ? x : 0x80000000);
  }
  SM_OK(g, "counted", 1, 64, va_in, va_out);
  for (uint32_t i = 0; i < 64; i++) assert_int_equal(out[i], in[63 - i]);
}

static void test_clusters(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va_in, va_out;
  uint32_t *in = words(g, 8 * 64, &va_in), *out = sm_alloc(g, 8 * 1024, &va_out);
  SM_OK(g, "cluster", 8, 64, va_in, va_out);
  for (uint32_t b = 0; b < 8; b++) {
    uint32_t r = b % 4, first = b - r, total = 0;
    for (uint32_t i = 0; i < 64; i++) {
      assert_int_equal(out[b * 128 + i], in[(first + (r + 1) % 4) * 64 + 63 - i]);
      /* Read from the previous CTA, which read it from this one. */
      assert_int_equal(out[b * 128 + 64 + i], in[b * 64 + 63 - i] ^ (r + 3) % 4);
    }
    for (uint32_t k = 0; k < 4; k++) total += 64 * 63 / 2 + 64 * k * 1000;
    assert_int_equal(out[8 * 128 + b], (r ? 0 : total) + 4 * 1000000 + 2 * 100000000);
  }
  SM_OK(g, "multicast", 4, 64, va_in, va_out);
  for (uint32_t i = 0; i < 256; i++) assert_int_equal(out[i], in[i % 64]);
}

static void test_faults(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va;
  sm_alloc(g, 4096, &va);
  struct sm_dims d = {{1}, {32}};
  assert_int_equal(sm_launch(g, "overrun", d, &va, 1), -EFAULT);
  if (!strstr(g->fault.text, "arrivals at the mbarrier")) fail_msg("%s", g->fault.text);
  assert_int_equal(g->fault.lane, 1);
}

int main(void) {
#define T(f)    cmocka_unit_test_setup_teardown(f, setup, teardown)
#define T_80(f) cmocka_unit_test_setup_teardown(f, setup_80, teardown)
  const struct CMUnitTest tests[] = {T(test_phases), T(test_copies),       T(test_clusters),
                                     T(test_faults), T_80(test_phases_80), T_80(test_copies_80)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
