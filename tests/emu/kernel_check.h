/* Shared by the kernel cases: launch shapes, comparison, reproducible data. */
#ifndef DOORBELL_TESTS_KERNEL_CHECK_H
#define DOORBELL_TESTS_KERNEL_CHECK_H
#include <math.h>

#include "kernel_run.h"

/* Launch shapes: number of groups and work-items per group. Sizes that are not a multiple of a wave give partial waves.
 */
static const uint32_t shapes[][2] = {{1, 1}, {1, 31}, {1, 32}, {2, 33}, {3, 64}, {2, 100}, {1, 256}, {5, 128}};
#define FOR_SHAPES(g, l)                                                                                               \
  for (unsigned shape_ = 0; shape_ < sizeof shapes / sizeof *shapes; shape_++)                                         \
    for (uint32_t g = shapes[shape_][0], l = shapes[shape_][1], once_ = 1; once_; once_ = 0)

#define EQUAL(got, want, n)                                                                                            \
  do {                                                                                                                 \
    for (size_t i_ = 0; i_ < (size_t)(n); i_++)                                                                        \
      if (memcmp(&(got)[i_], &(want)[i_], sizeof *(got)))                                                              \
        fail_msg("%s[%zu] of %zu is %#llx, not %#llx", #got, i_, (size_t)(n), bits_of(&(got)[i_], sizeof *(got)),      \
                 bits_of(&(want)[i_], sizeof *(want)));                                                                \
  } while (0)

static unsigned long long bits_of(const void *p, size_t n) {
  unsigned long long v = 0;
  memcpy(&v, p, n < 8 ? n : 8);
  return v;
}
static uint32_t float_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
static uint32_t rotate(uint32_t x, uint32_t n) { return x << (n & 31) | x >> (-n & 31); }
static inline int clamp_int(int x, int lo, int hi) { return x < lo ? lo : x > hi ? hi : x; }

enum { N = 700 };
static uint64_t seed;
#endif
