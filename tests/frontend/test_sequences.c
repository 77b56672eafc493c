/* Sequences of random operations, valid and invalid, compared with a naive interpreter; again without optimizations in
 * a separate process. */
#include "sequences.h"
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { SEQUENCES = 200 };

/* SEQUENCE=n runs only sequence n, SEQUENCES=n runs n sequences. */
static void sequences(void **state) {
  const char *only = getenv("SEQUENCE"), *count = getenv("SEQUENCES");
  sequences_check(only ? (unsigned)atoi(only) : 0, only ? 1 : count ? (unsigned)atoi(count) : SEQUENCES);
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
