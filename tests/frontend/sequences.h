/* Sequences of operations from seeds, for the suites. */
#ifndef TESTS_FRONTEND_SEQUENCES_H
#define TESTS_FRONTEND_SEQUENCES_H
#include "support.h"
#include "sequence.h"

/* Runs n sequences of bytes drawn from seeds, the first one's and those that follow; fails the test when one is
 * wrong. */
static void sequences_check(unsigned first, unsigned n) {
  unsigned good = 0, bad = 0;
  for (unsigned seed = first; seed < first + n; seed++) {
    static struct sequence s;
    uint8_t data[240];
    uint64_t z = seed;
    for (unsigned i = 0; i < sizeof data; i++) {
      z = z * 6364136223846793005u + 1442695040888963407u;
      data[i] = (uint8_t)(z >> 56);
    }
    if (!sequence_run(&s, data, sizeof data)) fail_msg("sequence %u: %s\n%s", seed, s.why, s.log);
    good += s.good, bad += s.bad;
  }
  if (n > 1) assert_true(good > 10 * n && bad > n); /* both kinds were tried */
}
#endif
