/* Shared by suites that check recorded words: the buffer that their tests record into, which is empty before each test,
 * and its expected contents. */
#ifndef DOORBELL_TESTS_WORDS_TEST_H
#define DOORBELL_TESTS_WORDS_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "hcq/words.h"

static struct words w;
static int reset(void **state) {
  words_reset(&w);
  return 0;
}
static int release(void **state) {
  words_free(&w);
  return 0;
}

#define EXPECT(...)                                                                                                    \
  do {                                                                                                                 \
    const uint32_t want[] = {__VA_ARGS__};                                                                             \
    assert_int_equal(w.n, sizeof want / sizeof *want);                                                                 \
    for (size_t i = 0; i < w.n; i++)                                                                                   \
      if (w.w[i] != want[i]) fail_msg("dword %zu is 0x%08x, expected 0x%08x", i, w.w[i], want[i]);                     \
  } while (0)

static inline uint32_t field(uint32_t word, int hi, int lo) {
  return (uint32_t)((uint64_t)word >> lo & ((1ull << (hi - lo + 1)) - 1));
}
#endif
