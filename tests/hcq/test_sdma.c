/* SDMA packets, word by word; expected words and positions are taken from the Linux amdgpu driver's
 * sdma_v6_0_0_pkt_open.h. */
#include "words_test.h"
#include "hcq/amd/sdma.h"

static void copy(void **state) {
  sdma_copy(&w, 0x7f0012345678, 0x7fff87654321, 4097);
  EXPECT(0x1, 4096, 0, 0x87654321, 0x7fff, 0x12345678, 0x7f00);
  assert_int_equal(field(w.w[0], 7, 0), 1);     /* COPY */
  assert_int_equal(field(w.w[0], 15, 8), 0);    /* linear */
  assert_int_equal(field(w.w[1], 29, 0), 4096); /* bytes - 1 */
  words_reset(&w);
  sdma_copy(&w, 0x1000, 0x2000, 0);
  assert_int_equal(w.n, 0);
}

/* Copies that need several packets: together they cover every byte once, in order, with at most 1 GiB each. */
static void large_copies(void **state) {
  const uint64_t sizes[] = {0x3fffffff, 0x40000000, 0x40000001, 0x80000000, 0x123456789, 0x1000000000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    words_reset(&w);
    uint64_t dst = 0x7f00fffff001, src = 0x7e0000000003, done = 0;
    sdma_copy(&w, dst, src, sizes[i]);
    assert_int_equal(w.n % 7, 0);
    assert_int_equal(w.packets, (sizes[i] + 0x3fffffff) / 0x40000000);
    for (size_t p = 0; p < w.n; p += 7) {
      assert_int_equal(w.w[p], 1);
      assert_int_equal(field(w.w[p + 1], 31, 30), 0);
      assert_int_equal(w.w[p + 3] | (uint64_t)w.w[p + 4] << 32, src + done);
      assert_int_equal(w.w[p + 5] | (uint64_t)w.w[p + 6] << 32, dst + done);
      done += (uint64_t)w.w[p + 1] + 1;
    }
    assert_int_equal(done, sizes[i]);
  }
}

static void fences(void **state) {
  sdma_fence32(&w, 0x7f0000001004, 0x1234);
  EXPECT(0x30005, 0x1004, 0x7f00, 0x1234);
  assert_int_equal(field(w.w[0], 18, 16), 3); /* MTYPE uncached */
  words_reset(&w);
  sdma_fence64(&w, 0x7f00fffffff8, 0x0000000200000001); /* low dword first */
  EXPECT(0x30005, 0xfffffff8, 0x7f00, 1, 0x30005, 0xfffffffc, 0x7f00, 2);
  assert_int_equal(w.packets, 2);
}

static void wait(void **state) {
  sdma_wait_mem32(&w, 0x7f0000001008, 0x55);
  EXPECT(0xd0000008, 0x1008, 0x7f00, 0x55, 0xffffffff, 0x0fff0004);
  assert_int_equal(field(w.w[0], 30, 28), 5);     /* >= */
  assert_int_equal(field(w.w[0], 31, 31), 1);     /* memory */
  assert_int_equal(field(w.w[5], 27, 16), 0xfff); /* retry forever */
  assert_int_equal(field(w.w[5], 15, 0), 4);      /* interval */
}

static void timestamp_and_trap(void **state) {
  sdma_timestamp(&w, 0x7f0000001010);
  EXPECT(0x20d, 0x1010, 0x7f00);
  words_reset(&w);
  sdma_trap(&w, 0x7654321);
  EXPECT(0x6, 0x7654321);
}

static void fill(void **state) {
  sdma_fill(&w, 0x7f0000001000, 0xdeadbeef, 4096);
  EXPECT(0x8000000b, 0x1000, 0x7f00, 0xdeadbeef, 4095);
  assert_int_equal(field(w.w[0], 31, 30), 2); /* FILL_SIZE dword */
  words_reset(&w);
  sdma_fill(&w, 0, 1, 0x40000004);
  EXPECT(0x8000000b, 0, 0, 1, 0x3fffffff, 0x8000000b, 0x40000000, 0, 1, 3);
}

static void cache_flush(void **state) {
  sdma_cache_flush(&w);
  EXPECT(0x111, 0, 0xc3c00000, 0, 0);
}

static void hdp_flush(void **state) {
  sdma_hdp_flush(&w);
  EXPECT(0x34000008, 0x389c, 0x3898, 0xc00, 0xc00, 0xfff000a);
}

static void nops(void **state) {
  sdma_nop(&w, 1);
  EXPECT(0);
  words_reset(&w);
  sdma_nop(&w, 4);
  EXPECT(0x30000, 0, 0, 0);
  words_reset(&w);
  sdma_nop(&w, 0x4000);
  size_t at = 0;
  while (at < w.n) {
    assert_int_equal(w.w[at] & 0xffff, 0);
    at += 1 + field(w.w[at], 29, 16);
  }
  assert_int_equal(at, 0x4000);
}

static void encoders_stay_in_fields(void **state) {
  sdma_copy(&w, ~0ull - 0x7fffffff, ~0ull - 0x7fffffff, 0x7fffffff);
  sdma_fill(&w, ~3ull, ~0u, 4);
  sdma_fence64(&w, ~7ull, ~0ull);
  sdma_wait_mem32(&w, ~3ull, ~0u);
  sdma_timestamp(&w, ~7ull);
  sdma_trap(&w, 0xfffffff);
  sdma_hdp_flush(&w);
  sdma_cache_flush(&w);
  unsigned packets = 0;
  for (size_t at = 0; at < w.n; packets++) {
    struct sdma_packet_info info = sdma_packet_info(w.w[at]);
    if (!info.name) fail_msg("header 0x%x is not in the table", w.w[at]);
    for (unsigned d = 0; d < info.dwords; d++)
      if (w.w[at + d] & ~sdma_packet_bits(w.w[at], d))
        fail_msg("%s dword %u: 0x%x sets reserved bits", info.name, d, w.w[at + d]);
    at += info.dwords;
  }
  assert_int_equal(packets, w.packets);
  assert_null(sdma_packet_info(0x7f).name);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(copy, reset),
      cmocka_unit_test_setup(large_copies, reset),
      cmocka_unit_test_setup(fences, reset),
      cmocka_unit_test_setup(wait, reset),
      cmocka_unit_test_setup(timestamp_and_trap, reset),
      cmocka_unit_test_setup(fill, reset),
      cmocka_unit_test_setup(cache_flush, reset),
      cmocka_unit_test_setup(hdp_flush, reset),
      cmocka_unit_test_setup(nops, reset),
      cmocka_unit_test_setup(encoders_stay_in_fields, reset),
  };
  return cmocka_run_group_tests_name("sdma", tests, NULL, release);
}
