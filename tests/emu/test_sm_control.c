/* Control flow of emulated SMs: kernels by nvcc (tests/data/nv/control.cu) compared with the same computation on the
 * host. */
#include <errno.h>
#include "sm_harness.h"

static uint32_t hash(uint32_t x) {
  x ^= x >> 16, x *= 0x7feb352d, x ^= x >> 15, x *= 0x846ca68b;
  return x ^ x >> 16;
}
static uint32_t *random_words(struct sm_gpu *g, size_t n, uint64_t *va) {
  uint32_t *p = sm_alloc(g, n * 4, va);
  for (size_t i = 0; i < n; i++) p[i] = hash((uint32_t)i + 1);
  return p;
}
static int setup(void **state) {
  *state = sm_gpu_new("control.cubin");
  return 0;
}
static int setup_80(void **state) {
  *state = sm_gpu_new("control_80.cubin");
  return 0;
}
static int teardown(void **state) {
  sm_gpu_free(*state);
  return 0;
}

static void test_loops(void **state) {
  struct sm_gpu *g = *state;
  enum { N = 1000 };
  uint64_t va_in, va_out;
  uint32_t *in = random_words(g, N, &va_in), *out = sm_alloc(g, 1024 * 4, &va_out);
  for (unsigned i = 0; i < N; i++) in[i] = 1 + in[i] % 5000;
  SM_OK(g, "lengths", 8, 128, va_in, va_out, N);
  for (unsigned i = 0; i < N; i++) {
    uint32_t x = in[i], steps = 0;
    while (x != 1) {
      x = x & 1 ? 3 * x + 1 : x >> 1;
      if (++steps > 1000) break;
    }
    assert_int_equal(out[i], steps);
  }
  for (unsigned i = N; i < 1024; i++) assert_int_equal(out[i], 0);
}

static uint32_t nested(uint32_t x) {
  uint32_t r = 0;
  for (uint32_t a = 0; a < (x & 7); a++) {
    if (a == 5 && x & 64) continue;
    for (uint32_t b = a; b < 8; b++) {
      if (b * a > (x >> 3 & 31)) break;
      r += b & 1 ? a : b * 3;
      if ((r ^ x) % 17 == 0) return r;
    }
    r = r * 5 + 1;
  }
  return r;
}
static void test_nested(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va_in, va_out;
  uint32_t *in = random_words(g, 512, &va_in), *out = sm_alloc(g, 512 * 4, &va_out);
  SM_OK(g, "nested", 4, 128, va_in, va_out);
  for (unsigned i = 0; i < 512; i++) assert_int_equal(out[i], nested(in[i]) + nested(in[i ^ 1]) * 65536);
}

static void test_table(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va_in, va_out;
  uint32_t *in = random_words(g, 96, &va_in), *out = sm_alloc(g, 96 * 4, &va_out);
  SM_OK(g, "table", 1, 96, va_in, va_out);
  for (unsigned i = 0; i < 96; i++) {
    uint32_t x = in[i];
    uint32_t want[] = {x + 1, x * 3, x ^ 0x1234, x << 3, x >> 2, ~x, x - 77, x * x, 0};
    assert_int_equal(out[i], want[x % 9]);
  }
}

static uint32_t ackermann(uint32_t m, uint32_t n) {
  if (m == 0) return n + 1;
  if (n == 0) return ackermann(m - 1, 1);
  return ackermann(m - 1, ackermann(m, n - 1));
}
static void test_calls(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va_in, va_out;
  uint32_t *in = random_words(g, 64, &va_in), *out = sm_alloc(g, 64 * 4, &va_out);
  g->extra_local = 4096;
  SM_OK(g, "recursion", 1, 64, va_in, va_out);
  for (unsigned i = 0; i < 64; i++)
    assert_int_equal(out[i], ackermann(in[i] & 1, in[i] >> 1 & 7) + ackermann(2, i % 4));
  SM_OK(g, "pointers", 1, 64, va_in, va_out);
  for (unsigned i = 0; i < 64; i++) {
    uint32_t x = in[i], want[] = {x + i, x * i, x ^ i};
    assert_int_equal(out[i], want[x % 3]);
  }
}

static void test_division(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va[4], *a[4];
  for (unsigned i = 0; i < 4; i++) a[i] = sm_alloc(g, 64 * 8, &va[i]);
  for (unsigned i = 0; i < 64; i++) {
    a[0][i] = (uint64_t)hash(i) << 32 | hash(i + 99);
    a[1][i] = ((uint64_t)hash(i + 7) << 32 | hash(i + 1234)) >> i;
    if (!a[1][i]) a[1][i] = 1;
  }
  SM_OK(g, "divide", 1, 64, va[0], va[1], va[2], va[3]);
  for (unsigned i = 0; i < 64; i++) {
    assert_int_equal(a[2][i], a[0][i] / a[1][i]);
    assert_int_equal(a[3][i], a[0][i] % a[1][i]);
  }
}

static void test_progress(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va, va_out;
  uint32_t *p = sm_alloc(g, 4096, &va), *out = sm_alloc(g, 4096, &va_out);
  SM_OK(g, "locks", 2, 64, va, va + 4);
  assert_int_equal(p[0], 0);
  assert_int_equal(p[1], 2 * 3 * 64 * 63 / 2);
  memset(p, 0, 4096);
  SM_OK(g, "handshake", 1, 64, va, va_out);
  for (unsigned i = 0; i < 64; i++) assert_int_equal(out[i], i & 1 ? i + 100 : i);
}

static void test_barriers(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va_in, va_out;
  uint32_t *in = random_words(g, 256, &va_in), *out = sm_alloc(g, 4096, &va_out);
  SM_OK(g, "barriers", 3, 256, va_out);
  for (unsigned i = 0; i < 3; i++) {
    assert_int_equal(out[i * 4], 255 * 256 * 511 / 6);
    assert_int_equal(out[i * 4 + 1], 86);
    assert_int_equal(out[i * 4 + 2], 1);
    assert_int_equal(out[i * 4 + 3], 0);
  }
  SM_OK(g, "pipeline", 1, 128, va_in, va_out);
  for (unsigned k = 0; k < 4; k++)
    for (unsigned i = 0; i < 64; i++) assert_int_equal(out[k * 64 + i], in[k * 64 + 63 - i] * 2 + 1);
  memset(out, 0, 4096);
  SM_OK(g, "early", 1, 128, va_out);
  for (unsigned i = 0; i < 128; i++) assert_int_equal(out[i], i < 96 && i % 32 <= 20 ? (i + 32) % 96 : 0);
}

static void test_stops(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va;
  sm_alloc(g, 4096, &va);
  struct sm_dims d = {{1}, {64}};
  assert_int_equal(sm_launch(g, "trapped", d, &va, 1), -EFAULT);
  assert_int_equal(g->fault.kind, FAULT_TRAP);
  assert_int_equal(g->fault.lane, 5);
  assert_non_null(strstr(g->fault.text, "BPT.TRAP"));
  assert_null(strstr(g->fault.text, "cooperative"));
  assert_int_equal(sm_launch(g, "stuck", d, &va, 1), -EFAULT);
  assert_non_null(strstr(g->fault.text, "deadlock"));
  assert_non_null(strstr(g->fault.text, "CTA barrier 3"));
  atomic_store(&g->stop, true);
  assert_int_equal(sm_launch(g, "endless", d, &va, 1), -ECANCELED);
  assert_int_equal(g->fault.kind, FAULT_NONE);
  atomic_store(&g->stop, false);
}

static void test_registers(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va;
  uint32_t *out = sm_alloc(g, 1 << 16, &va);
  struct sm_dims d = {{3, 2, 2}, {5, 3, 4}};
  if (sm_launch(g, "registers", d, &va, 1)) fail_msg("%s", g->fault.text);
  for (uint32_t b = 0; b < 12; b++)
    for (uint32_t t = 0; t < 60; t++, out += 8) {
      assert_int_equal(out[0], t % 5 | t / 5 % 3 << 8 | t / 15 << 16);
      assert_int_equal(out[1], b % 3 | b / 3 % 2 << 8 | b / 6 << 16);
      assert_int_equal(out[2], 5 | 3 << 8 | 4 << 16);
      assert_int_equal(out[3], 3 | 2 << 8 | 2 << 16);
      assert_int_equal(out[4], t % 32);
      assert_int_equal(out[5], 132);
      assert_int_equal(out[6], (1u << t % 32) - 1);
    }
}

/* Checks the counts of a simple kernel, instruction by instruction. */
static void test_tally(void **state) {
  struct sm_gpu *g = *state;
  struct emu_detail d = {0};
  uint64_t va;
  sm_alloc(g, 4096, &va);
  g->stats.detail = &d;
  SM_OK(g, "barriers", 2, 256, va);
  uint64_t sum = 0;
  for (unsigned i = 0; i < EMU_CLASS_COUNT; i++) sum += d.executed[i];
  assert_int_equal(sum, g->stats.instructions);
  assert_int_equal(g->stats.warps, 16);
  assert_int_equal(g->stats.ctas, 2);
  /* Per CTA: a word from each thread; then eight halvings, each of two loads and a store; thread 0 loads the sum. */
  assert_int_equal(d.stored[EMU_LDS_SPACE], 2 * 4 * (256 + 255));
  assert_int_equal(d.loaded[EMU_LDS_SPACE], 2 * 4 * (2 * 255 + 1));
  assert_int_equal(d.stored[EMU_GLOBAL_SPACE], 2 * 4 * 4);
  assert_int_equal(d.stored[EMU_GLOBAL_SPACE], g->stats.bytes_stored);
  assert_int_equal(d.loaded[EMU_GLOBAL_SPACE], 0);
  assert_int_equal(d.lds_conflicts, 0);
  assert_true(d.partial > 0 && d.partial < d.vector && d.lanes < d.vector * 32);
  g->stats.detail = NULL;
  SM_OK(g, "barriers", 1, 256, va);
  assert_int_equal(g->stats.instructions * 2, sum);
  /* Lanes that leave a loop one by one. */
  uint64_t va_in;
  random_words(g, 128, &va_in);
  memset(&d, 0, sizeof d);
  g->stats.detail = &d;
  SM_OK(g, "lengths", 1, 128, va_in, va, 128);
  assert_true(d.divergent > 0 && d.divergent < d.branches);
  assert_int_equal(d.loaded[EMU_GLOBAL_SPACE], 128 * 4);
}

/* A launch with fewer registers than its code uses. */
static void test_register_count(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va;
  sm_alloc(g, 4096, &va);
  SM_OK(g, "barriers", 1, 256, va);
  g->registers = 1;
  struct sm_dims d = {{1}, {256}};
  assert_int_equal(sm_launch(g, "barriers", d, &va, 1), -EFAULT);
  assert_non_null(strstr(g->fault.text, "register beyond the launch's 1"));
  assert_int_equal(g->fault.kind, FAULT_ILLEGAL);
  g->registers = 0;
  SM_OK(g, "barriers", 1, 256, va);
}

/* A kernel that waits for its grid reports the kind of launch that it needs. */
static void reports_grid_sync(void **state) {
  static const char *const files[] = {"grid_sync.cubin", "grid_sync_80.cubin"};
  for (unsigned i = 0; i < 2; i++) {
    struct sm_gpu *g = sm_gpu_new(files[i]);
    struct sm_dims d = {{2}, {32}};
    uint64_t va;
    sm_alloc(g, 128, &va);
    assert_int_equal(sm_launch(g, "together", d, &va, 1), -EFAULT);
    if (!strstr(g->fault.text, "trap 0x1 (grid.sync() needs a cooperative launch, which is not supported)"))
      fail_msg("%s", g->fault.text);
    sm_gpu_free(g);
  }
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown), cmocka_unit_test_setup_teardown(f, setup_80, teardown)
  const struct CMUnitTest tests[] = {
      T(test_loops),     T(test_nested),   T(test_table),          T(test_calls),
      T(test_division),  T(test_progress), T(test_barriers),       T(test_stops),
      T(test_registers), T(test_tally),    T(test_register_count), cmocka_unit_test(reports_grid_sync),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
