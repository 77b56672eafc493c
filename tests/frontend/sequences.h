/* Runs random sequences of operations in the suites. */
#ifndef TESTS_FRONTEND_SEQUENCES_H
#define TESTS_FRONTEND_SEQUENCES_H
#include "support.h"
#include "sequence.h"

/* Runs n sequences, drawn from the seeds first, first + 1 and so on. Fails the test if one is wrong. */
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
  if (n > 1) assert_true(good > 10 * n && bad > n); /* valid and invalid operations were tried */
}
#endif
