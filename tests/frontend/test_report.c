/* Reports that cannot be written are errors: traces on a full disk, kernels that cannot be stored; also several
 * processes that trace. */
#include "hcq/json.h"
#include "support.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs a child that reads the environment again. Returns its exit status. */
static int in_child(int (*fn)(void), const char *const *environment) {
  pid_t pid = fork();
  if (!pid) {
    for (unsigned i = 0; environment[i]; i += 2) setenv(environment[i], environment[i + 1], 1);
    _exit(fn());
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

static int realizes(void) {
  DB_SCOPED;
  db_tensor *x = db_contiguous(db_full(2, DB_F32, NULL, 3));
  return db_realize(x) ? 1 : 0;
}

static int reports_full_disk(void) {
  DB_SCOPED;
  db_tensor *x = db_contiguous(db_full(2, DB_F32, NULL, 3));
  if (db_realize(x) != -ENOSPC) return 1;
  if (!strstr(db_error(), "PROFILE=/dev/full: No space left on device")) return 2;
  float got[3];
  return db_read(x, got, sizeof got) ? 3 : got[2] == 2 ? 0 : 4; /* reported once */
}
static void trace_on_a_full_disk(void **state) {
  assert_int_equal(in_child(reports_full_disk, (const char *[]){"PROFILE", "/dev/full", NULL}), 0);
}

static void traces_of_several_processes(void **state) {
  char folder[] = "/tmp/doorbell-report-XXXXXX", path[64], name[96], text[64] = "";
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/t.json", folder);
  for (int rank = 0; rank < 2; rank++) {
    const char *number = rank ? "1" : "0";
    assert_int_equal(in_child(realizes, (const char *[]){"PROFILE", path, "PMIX_RANK", number, NULL}), 0);
  }
  assert_int_not_equal(access(path, F_OK), 0);
  for (int rank = 0; rank < 2; rank++) {
    snprintf(name, sizeof name, "%s/t.%d.json", folder, rank);
    FILE *f = fopen(name, "r");
    assert_non_null(f);
    char pid[32];
    snprintf(pid, sizeof pid, "\"pid\":%d,", rank + 1);
    bool found = false;
    while (fgets(text, sizeof text, f)) found |= strstr(text, pid) != NULL;
    assert_true(found);
    fclose(f);
    unlink(name);
  }
  rmdir(folder);
}

static int says_no_disk(void) {
  if (realizes()) return 1;
  struct db_cache_counters c;
  db_cache_counters(&c);
  return c.no_disk && strstr(c.no_disk, "/dev/null/doorbell: Not a directory") ? 0 : 2;
}
static void kernels_that_cannot_be_stored(void **state) {
  assert_int_equal(in_child(says_no_disk, (const char *[]){"XDG_CACHE_HOME", "/dev/null", NULL}), 0);
}

/* The folder can be written, the files in it cannot. */
static int says_full_disk(void) {
  struct rlimit small = {64, 64};
  struct db_cache_counters c;
  signal(SIGXFSZ, SIG_IGN);
  if (setrlimit(RLIMIT_FSIZE, &small) || realizes()) return 1;
  db_cache_counters(&c);
  if (!c.no_disk || !strstr(c.no_disk, "/doorbell: File too large")) return 2;
  return db_shutdown() || strncmp(c.no_disk, "/tmp/", 5) != 0 ? 3 : 0;
}
static void kernels_on_a_full_disk(void **state) {
  char folder[] = "/tmp/doorbell-report-XXXXXX", inner[64];
  assert_non_null(mkdtemp(folder));
  snprintf(inner, sizeof inner, "%s/doorbell", folder);
  assert_int_equal(in_child(says_full_disk, (const char *[]){"XDG_CACHE_HOME", folder, NULL}), 0);
  assert_int_equal(rmdir(inner), 0);
  rmdir(folder);
}

static void text_in_json(void **state) {
  static const struct {
    const char *text, *json;
  } cases[] = {{"plain", "\"plain\""},
               {"a\"b\\c\n", "\"a\\\"b\\\\c\\n\""},
               {"\xc3\xa9", "\"\\u00E9\""},
               {"\xf0\x9f\x94\x94", "\"\\uD83D\\uDD14\""},
               {"x\xff", "\"x\\uFFFD\""}};
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *got = NULL;
    size_t size;
    FILE *f = open_memstream(&got, &size);
    json_quote(f, cases[i].text);
    fclose(f);
    assert_string_equal(got, cases[i].json);
    free(got);
  }
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(trace_on_a_full_disk),
      cmocka_unit_test(traces_of_several_processes),
      cmocka_unit_test(kernels_that_cannot_be_stored),
      cmocka_unit_test(kernels_on_a_full_disk),
      cmocka_unit_test(text_in_json),
  };
  return cmocka_run_group_tests_name("report", tests, NULL, finish);
}
