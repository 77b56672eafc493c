/* Compiles kfd_layout.c, which compares hcq/amd/kfd.h with the installed kernel header. It is not compiled with the
 * suites because that header includes drm/drm.h, which some distributions install elsewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static int compile(const char *defines) {
  char dir[] = "/tmp/doorbell-test-XXXXXX", path[64], command[1024];
  if (!mkdtemp(dir)) fail_msg("no temporary directory");
  snprintf(path, sizeof path, "%s/drm", dir);
  if (symlink("/usr/include/libdrm", path)) fail_msg("cannot make %s", path);
  snprintf(command, sizeof command, TEST_CC " -std=gnu11 -fsyntax-only %s -I%s/../.. -I%s %s/../hcq/kfd_layout.c",
           defines, DATA_DIR, dir, DATA_DIR);
  int status = system(command);
  unlink(path);
  rmdir(dir);
  return status;
}

static void layout_equals_that_of_linux(void **state) {
  struct stat st;
  if (stat("/usr/include/linux/kfd_ioctl.h", &st) || system(TEST_CC " --version >/dev/null 2>&1")) skip();
  assert_int_equal(compile(""), 0);
  assert_int_not_equal(compile("-DEXPECT_FAILURE 2>/dev/null"), 0); /* the comparison can fail */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(layout_equals_that_of_linux)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
