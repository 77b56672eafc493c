/* Sequences of random operations, good and bad, against a naive interpreter; again without optimizations in a process of its own. */
#include "support.h"
#include "sequence.h"
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { SEQUENCES = 200, BYTES = 240 };

static void run(unsigned first, unsigned n) {
  unsigned good = 0, bad = 0;
  for (unsigned seed = first; seed < first + n; seed++) {
    static struct sequence s;
    uint8_t data[BYTES];
    uint64_t z = seed;
    for (unsigned i = 0; i < BYTES; i++) {
      z = z * 6364136223846793005u + 1442695040888963407u;
      data[i] = (uint8_t)(z >> 56);
    }
    if (!sequence_run(&s, data, BYTES)) fail_msg("sequence %u: %s\n%s", seed, s.why, s.log);
    good += s.good, bad += s.bad;
  }
  if (n > 1) assert_true(good > 10 * n && bad > n); /* both kinds were tried */
}

/* SEQUENCE=n runs one of them, SEQUENCES=n as many. */
static void sequences(void **state) {
  const char *only = getenv("SEQUENCE"), *count = getenv("SEQUENCES");
  run(only ? (unsigned)atoi(only) : 0, only ? 1 : count ? (unsigned)atoi(count) : SEQUENCES);
}

static void unoptimized(void **state) {
  if (getenv("NOOPT")) skip();
  setenv("NOOPT", "1", 1);
  pid_t pid;
  int status = -1;
  char *const argv[] = {"test_sequences", NULL};
  assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ), 0);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  unsetenv("NOOPT");
  assert_int_equal(status, 0);
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sequences), cmocka_unit_test(unoptimized)};
  return cmocka_run_group_tests_name("sequences", tests, NULL, finish);
}
