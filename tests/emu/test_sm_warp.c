/* Communication between the lanes of emulated warps: kernels by nvcc (tests/data/nv/warp.cu) compared with the same
 * computation on the host. */
#include <errno.h>
#include "sm_harness.h"

static uint32_t hash(uint32_t x) {
  x ^= x >> 16, x *= 0x7feb352d, x ^= x >> 15, x *= 0x846ca68b;
  return x ^ x >> 16;
}
enum { N = 64 };
struct fixture {
  struct sm_gpu *gpu;
  uint32_t *in, *out;
  uint64_t va_in, va_out;
};
static int setup_with(void **state, const char *cubin) {
  struct fixture *f = *state = calloc(1, sizeof *f);
  f->gpu = sm_gpu_new(cubin);
  f->in = sm_alloc(f->gpu, N * 16, &f->va_in), f->out = sm_alloc(f->gpu, N * 128, &f->va_out);
  for (unsigned i = 0; i < N * 4; i++) f->in[i] = hash(i + 5);
  return 0;
}
static int setup(void **state) { return setup_with(state, "warp.cubin"); }
static int setup_80(void **state) { return setup_with(state, "warp_80.cubin"); }
static int teardown(void **state) {
  struct fixture *f = *state;
  sm_gpu_free(f->gpu);
  free(f);
  return 0;
}

/* PTX ISA, "shfl": the source lane, and whether it is in range. */
enum { IDX, UP, DOWN, BFLY };
static uint32_t source(unsigned mode, uint32_t lane, uint32_t b, uint32_t c, bool *ok) {
  uint32_t clamp = c & 31, segmask = c >> 8 & 31, most = (lane & segmask) | (clamp & ~segmask), least = lane & segmask;
  int32_t j;
  b &= 31;
  switch (mode) {
  case UP: j = (int32_t)(lane - b), *ok = j >= (int32_t)most; break;
  case DOWN: j = (int32_t)(lane + b), *ok = j <= (int32_t)most; break;
  case BFLY: j = (int32_t)(lane ^ b), *ok = j <= (int32_t)most; break;
  default: j = (int32_t)(least | (b & ~segmask)), *ok = j <= (int32_t)most;
  }
  return *ok ? (uint32_t)j : lane;
}
static void test_shuffles(void **state) {
  struct fixture *f = *state;
  for (uint32_t by = 1; by < 9; by += 3) {
    SM_OK(f->gpu, "shuffles", 1, N, f->va_in, f->va_out, by);
    for (uint32_t i = 0; i < N; i++) {
      const uint32_t *x = f->in + i / 32 * 32, *o = f->out + i * 16, l = i % 32;
      const struct {
        unsigned at, mode;
        uint32_t b, c;
      } t[] = {
          {0, IDX, 5, 31},       {1, IDX, i * 3, 31}, {2, IDX, i + by, 0x181f}, {3, UP, 1, 0},
          {4, UP, by, 0x1000},   {5, DOWN, 3, 31},    {6, DOWN, by, 0x1c1f},    {7, BFLY, 16, 31},
          {8, BFLY, by, 0x181f}, {10, UP, by, 0x800}, {12, DOWN, 7, 0x1c1f},    {14, IDX, i * 7, 0x101b},
      };
      for (unsigned k = 0; k < sizeof t / sizeof *t; k++) {
        bool ok;
        uint32_t from = source(t[k].mode, l, t[k].b, t[k].c, &ok);
        if (o[t[k].at] != x[from]) fail_msg("lane %u, shuffle %u", i, t[k].at);
        if (t[k].at >= 10) assert_int_equal(o[t[k].at + 1], ok);
      }
      assert_int_equal(o[9], x[l ^ 1] ^ (i ^ 1));
    }
  }
}

static void test_votes(void **state) {
  struct fixture *f = *state;
  for (unsigned round = 0; round < 2; round++) {
    for (unsigned i = 0; round && i < N; i++) f->in[i] = i < 32 ? 0x77777772 : 100 + i * 2;
    SM_OK(f->gpu, "votes", 1, N, f->va_in, f->va_out);
    for (uint32_t i = 0; i < N; i++) {
      const uint32_t *x = f->in + i / 32 * 32, *o = f->out + i * 16, l = i % 32;
      uint32_t odd = 0, fifty = 0, nonzero = 0, by5 = 0, big = 0, bits = 0, by3 = 0, sum = 0, least = ~0u, and = ~0u,
               or = 0, xor = 0;
      int32_t most = INT32_MIN;
      for (uint32_t k = 0; k < 32; k++) {
        uint32_t bit = 1u << k;
        odd |= x[k] & 1 ? bit : 0, fifty |= x[k] % 50 == 0 ? bit : 0, nonzero |= x[k] ? bit : 0;
        by5 |= x[k] % 5 == x[l] % 5 ? bit : 0, by3 |= x[k] % 3 == x[l] % 3 ? bit : 0;
        big |= (x[k] >> 30 > 4) == (x[0] >> 30 > 4) ? bit : 0, bits |= x[k] % 2 == x[0] % 2 ? bit : 0;
        sum += x[k], and &= x[k] | 0xf0, or |= x[k] & 0xff00ff, xor ^= x[k];
        if (x[k] < least) least = x[k];
        if ((int32_t)x[k] > most) most = (int32_t)x[k];
      }
      uint32_t want[16] = {odd,
                           fifty != 0,
                           nonzero == ~0u,
                           by5,
                           big == ~0u ? ~0u : 0,
                           big == ~0u,
                           bits == ~0u ? ~0u : 0,
                           bits == ~0u,
                           sum,
                           least,
                           (uint32_t)most,
                               and,
                           or
                           , xor, by3, ~0u};
      for (unsigned k = 0; k < 16; k++)
        if (o[k] != want[k]) fail_msg("lane %u, vote %u: 0x%x, not 0x%x", i, k, o[k], want[k]);
    }
  }
}

static void test_partial(void **state) {
  struct fixture *f = *state;
  SM_OK(f->gpu, "partial", 1, N, f->va_in, f->va_out);
  for (uint32_t i = 0; i < N; i++) {
    const uint32_t *x = f->in + i / 32 * 32, *o = f->out + i * 8, l = i % 32, first = l / 16 * 16;
    uint32_t sum = 0, ballot = 0, most = 0, third = 0, others = 0, same = 0, eight = 0;
    for (uint32_t k = first; k < first + 16; k++) sum += x[k], ballot |= (x[k] >> 1 & 1) << k;
    for (uint32_t k = 0; k < 32; k++)
      if (k % 3 == 0)
        third |= 1u << k, most = x[k] > most ? x[k] : most;
      else if (x[k] & 1)
        others |= 1u << k, same |= (uint32_t)((x[k] & 6) == (x[l] & 6)) << k, eight |= (x[k] >> 3 & 1) << k;
    assert_int_equal(o[0], sum);
    assert_int_equal(o[1], ballot);
    assert_int_equal(o[2], x[first + 3]);
    if (l % 3 == 0) {
      assert_int_equal(o[3], most);
      assert_int_equal(o[4], x[9]);
      assert_int_equal(o[5], third);
    } else if (x[l] & 1) {
      assert_int_equal(o[3], __builtin_popcount(others));
      assert_int_equal(o[4], same);
      assert_int_equal(o[5], eight);
    } else {
      assert_int_equal(o[3], 1);
    }
    assert_int_equal(o[6], ~0u);
    assert_int_equal(o[7], l % 4);
  }
}

static void test_apart(void **state) {
  struct fixture *f = *state;
  SM_OK(f->gpu, "apart", 1, N, f->va_in, f->va_out);
  for (uint32_t i = 0; i < N; i++) assert_int_equal(f->out[i], i & 1 ? f->in[i - 1] + 1 : f->in[i + 1]);
}

static void test_crossed(void **state) {
  struct fixture *f = *state;
  SM_OK(f->gpu, "crossed", 1, N, f->va_in, f->va_out);
  for (uint32_t i = 0; i < N; i++) {
    uint32_t x = f->in[i], other = f->in[i ^ 3], brought = other & 4 ? other + 1 : other * 5;
    assert_int_equal(f->out[i * 2], x & 4 ? brought * 2 : brought + 1);
    assert_int_equal(f->out[i * 2 + 1], x & 4 ? 7 : 9);
  }
}

static void test_groups(void **state) {
  struct fixture *f = *state;
  SM_OK(f->gpu, "groups", 1, N, f->va_in, f->va_out);
  for (uint32_t i = 0; i < N; i++) {
    const uint32_t *x = f->in + i / 32 * 32, *o = f->out + i * 4, l = i % 32;
    uint32_t sum = 0, xor = 0, size = 0, rank = 0, odd = 0, first = 0;
    for (uint32_t k = l / 8 * 8; k < l / 8 * 8 + 8; k++) sum += x[k];
    for (uint32_t k = 0; k < 32; k++) {
      if (x[k] % 3 == x[l] % 3) xor ^= x[k], rank += k < l, size++;
      if (x[k] & 1 && !odd++) first = x[k];
    }
    assert_int_equal(o[0], sum);
    assert_int_equal(o[1], xor);
    assert_int_equal(o[2], size * 100 + rank);
    assert_int_equal(o[3], x[l] & 1 ? first + odd : 0);
  }
}

/* ldmatrix, stmatrix and movmatrix: lane l holds elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4. */
static uint32_t fragment(const uint16_t m[8][8], uint32_t l, bool transposed) {
  uint32_t r = l / 4, c = l % 4 * 2;
  return transposed ? m[c][r] | (uint32_t)m[c + 1][r] << 16 : m[r][c] | (uint32_t)m[r][c + 1] << 16;
}
static void test_matrices(void **state) {
  struct fixture *f = *state;
  SM_OK(f->gpu, "matrices", 1, 32, f->va_in, f->va_out);
  const uint16_t(*m)[8][8] = (const uint16_t(*)[8][8])(const void *)f->in;
  const uint32_t *words = f->in;
  for (uint32_t l = 0; l < 32; l++) {
    const uint32_t *o = f->out + l * 32;
    for (uint32_t j = 0; j < 4; j++) {
      assert_int_equal(o[j], fragment(m[j], l, false));
      assert_int_equal(o[4 + j], fragment(m[j], l, true));
    }
    assert_int_equal(o[8], fragment(m[0], l, false));
    assert_int_equal(o[9], fragment(m[1], l, false));
    assert_int_equal(o[10], fragment(m[0], l, true));
    assert_int_equal(o[11], fragment(m[0], l, false)); /* transposed twice */
    /* A matrix loaded transposed and stored unchanged is transposed in memory, in rows that the lanes' addresses
     * permute; stored transposed again, it has its original layout. */
    for (uint32_t k = 0; k < 4; k++) {
      uint32_t row = l % 8 ^ 7, c = k * 2;
      assert_int_equal(o[12 + k], m[l / 8][c][row] | (uint32_t)m[l / 8][c + 1][row] << 16);
      assert_int_equal(o[16 + k], words[l % 16 * 4 + k]);
    }
  }
}

int main(void) {
#define H(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define T(f) H(f), cmocka_unit_test_setup_teardown(f, setup_80, teardown)
  const struct CMUnitTest tests[] = {T(test_shuffles), T(test_votes),   T(test_partial), T(test_apart),
                                     T(test_groups),   T(test_crossed), H(test_matrices)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
