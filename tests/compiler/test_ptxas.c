/* Tests the pool of ptxas processes. Scripts take the place of ptxas: they fail, hang, crash, or write a given text. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "compiler/ptxas.h"

static char dir[64], tool[96], err[5000];

static int setup(void **state) {
  snprintf(dir, sizeof dir, "/tmp/test_ptxas.XXXXXX");
  if (!mkdtemp(dir)) return -1;
  snprintf(tool, sizeof tool, "%s/ptxas", dir);
  return 0;
}
static int teardown(void **state) {
  unlink(tool);
  return rmdir(dir);
}

/* The arguments are -arch=ARCH -o OUT IN [FLAG]...; a cubin is at least as large as an ELF header. */
static void script(const char *body) {
  FILE *f = fopen(tool, "w");
  fprintf(f, "#!/bin/sh\n%s\n", body);
  fclose(f);
  assert_int_equal(chmod(tool, 0755), 0);
}
#define COPY "{ cat $4; head -c 100 /dev/zero; } >$3"

static bool assemble(struct ptxas *p, const char *text, void **image, size_t *size) {
  err[0] = 0;
  struct ptxas_job *j = ptxas_start(p, "sm_90", text, strlen(text), NULL);
  assert_non_null(j);
  return ptxas_finish(j, image, size, err, sizeof err);
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must_fail(const char *body, unsigned timeout_ms, const char *what) {
  void *image = &image;
  size_t size;
  script(body);
  struct ptxas *p = ptxas_new(tool, 2, timeout_ms);
  assert_false(assemble(p, "text", &image, &size));
  assert_null(image);
  if (!strstr(err, what)) fail_msg("'%s' is not in '%s'", what, err);
  ptxas_free(p);
}

static void text_is_assembled_to_an_image(void **state) {
  void *image;
  size_t size;
  script("test \"$1\" = -arch=sm_90 && test \"$2\" = -o && " COPY);
  struct ptxas *p = ptxas_new(tool, 0, 0);
  size_t n = 300000; /* more than the capacity of a pipe */
  char *text = malloc(n + 1);
  memset(text, 'x', n);
  text[n] = 0;
  assert_true(assemble(p, text, &image, &size));
  assert_int_equal(size, n + 100);
  assert_memory_equal(image, text, n);
  free(image);
  free(text);
  ptxas_free(p);
}

static void jobs_run_side_by_side_and_keep_their_results(void **state) {
  enum { N = 12 };
  struct ptxas_job *job[N];
  script(COPY "; sleep 0.01; echo warning >&2");
  struct ptxas *p = ptxas_new(tool, 4, 0);
  char text[N][16];
  for (int i = 0; i < N; i++) {
    snprintf(text[i], sizeof text[i], "job %d", i);
    job[i] = ptxas_start(p, "sm_90", text[i], strlen(text[i]), NULL);
  }
  for (int i = 0; i < N; i++) { /* they finish in another order than they begin */
    int k = (i * 5 + 3) % N;
    void *image;
    size_t size;
    assert_true(ptxas_finish(job[k], &image, &size, err, sizeof err));
    assert_memory_equal(image, text[k], strlen(text[k]));
    free(image);
  }
  ptxas_free(p);
}

static void tool_output_is_the_error(void **state) {
  must_fail("echo 'ptxas fatal   : line 7; parse error' >&2; exit 3", 0,
            "status 3: ptxas fatal   : line 7; parse error");
  must_fail("echo on stdout; exit 1", 0, "on stdout");
  must_fail("kill -9 $$", 0, "signal 9");
  must_fail("exit 0", 0, "wrote no cubin");
  must_fail("yes 'a long complaint' | head -c 100000; exit 1", 0, "a long complaint");
}

static void a_tool_that_hangs_is_ended(void **state) {
  double start = seconds();
  must_fail("sleep 100", 100, "did not finish in 0.1 s");
  must_fail("exec >/dev/null 2>&1; sleep 100", 100, "did not finish in 0.1 s"); /* its pipe closes at once */
  must_fail("sleep 100 & sleep 100", 100, "did not finish in 0.1 s");           /* and the processes that it started */
  assert_true(seconds() - start < 50);
}

static void running_jobs_are_ended_with_the_pool(void **state) {
  script("sleep 100");
  double start = seconds();
  struct ptxas *p = ptxas_new(tool, 1, 0);
  assert_non_null(ptxas_start(p, "sm_90", "a", 1, NULL));
  assert_non_null(ptxas_start(p, "sm_90", "b", 1, NULL)); /* still waits */
  ptxas_free(p);
  assert_true(seconds() - start < 50);
}

static void a_missing_tool_is_reported(void **state) {
  void *image;
  size_t size;
  struct ptxas *p = ptxas_new("/no/such/ptxas", 0, 0);
  assert_false(assemble(p, "text", &image, &size));
  assert_string_equal(err, "cannot run /no/such/ptxas: No such file or directory");
  assert_null(ptxas_version(p, err, sizeof err));
  ptxas_free(p);
  p = ptxas_new(NULL, 0, 0);
  assert_false(assemble(p, "text", &image, &size));
  assert_string_equal(err, "ptxas not found: set PTXAS, or install Debian's nvidia-cuda-toolkit from non-free");
  ptxas_free(p);
}

static void versions_and_flags(void **state) {
  void *image;
  size_t size;
  script("if [ \"$1\" = --version ]; then echo 'ptxas: tool'; echo 'tools, release 99.1, V99.1.7'; exit; fi\n"
         "{ echo \"$5|$6|$#|\"; head -c 100 /dev/zero; } >$3");
  struct ptxas *p = ptxas_new(tool, 0, 0);
  assert_string_equal(ptxas_version(p, err, sizeof err), "release 99.1, V99.1.7");
  struct ptxas_job *j = ptxas_start(p, "sm_90", "", 0, "-O0 --verbose");
  assert_true(ptxas_finish(j, &image, &size, err, sizeof err));
  assert_memory_equal(image, "-O0|--verbose|6|", 16);
  free(image);
  ptxas_free(p);
}

static void search_path_is_followed(void **state) {
  char search[200], *found;
  script("");
  found = ptxas_find("/chosen/tool", dir);
  assert_string_equal(found, "/chosen/tool");
  free(found);
  snprintf(search, sizeof search, "/no/such/place::%s:/usr/bin", dir);
  found = ptxas_find("", search);
  assert_string_equal(found, tool);
  free(found);
  unlink(tool);
  found = ptxas_find(NULL, "/no/such/place");
  if (found) assert_string_equal(found, "/usr/local/cuda/bin/ptxas");
  free(found);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text_is_assembled_to_an_image),
      cmocka_unit_test(jobs_run_side_by_side_and_keep_their_results),
      cmocka_unit_test(tool_output_is_the_error),
      cmocka_unit_test(a_tool_that_hangs_is_ended),
      cmocka_unit_test(running_jobs_are_ended_with_the_pool),
      cmocka_unit_test(a_missing_tool_is_reported),
      cmocka_unit_test(versions_and_flags),
      cmocka_unit_test(search_path_is_followed),
  };
  return cmocka_run_group_tests_name("compiler/ptxas", tests, setup, teardown);
}
