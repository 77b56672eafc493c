/* Runs the doorbell command in a folder of the suite. */
#ifndef TESTS_FRONTEND_COMMAND_H
#define TESTS_FRONTEND_COMMAND_H
#include "support.h"
#include <jansson.h>
#include <sys/wait.h>

static char out[1 << 18], dir[] = "/tmp/doorbell-test-XXXXXX";

/* Runs `doorbell ARGS` with both output streams in out. Returns the exit status. */
__attribute__((format(printf, 1, 2), unused)) static int doorbell(const char *fmt, ...) {
  char args[4096], line[8192];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(args, sizeof args, fmt, ap);
  va_end(ap);
  snprintf(line, sizeof line, "cd %s && " DOORBELL " %s 2>&1", dir, args);
  FILE *p = popen(line, "r");
  assert_non_null(p);
  size_t n = fread(out, 1, sizeof out - 1, p);
  out[n] = 0;
  int status = pclose(p);
  if (!WIFEXITED(status)) fail_msg("doorbell %s: ended by a signal: %s", args, out);
  return WEXITSTATUS(status);
}
#define EXPECT(status, ...)                                                                                            \
  do {                                                                                                                 \
    int got_ = doorbell(__VA_ARGS__);                                                                                  \
    if (got_ != (status)) fail_msg("exit status %d instead of %d: %s", got_, status, out);                             \
  } while (0)
#define REFUSES(part, ...)                                                                                             \
  do {                                                                                                                 \
    EXPECT(2, __VA_ARGS__);                                                                                            \
    assert_contains(out, part);                                                                                        \
    assert_contains(out, "--help");                                                                                    \
  } while (0)

/* Parses out, which must be a single JSON value. Free it with json_decref. */
__attribute__((unused)) static json_t *json_out(void) {
  json_error_t error;
  json_t *json = json_loads(out, 0, &error);
  if (!json) fail_msg("no JSON: %d:%d: %s: %s", error.line, error.column, error.text, out);
  return json;
}

/* Writes a file in the suite's folder. */
__attribute__((unused)) static void write_text(const char *name, const char *contents) {
  char path[96];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(contents, f);
  fclose(f);
}

/* Setup and teardown of a suite: the folder, in which the cache is, too. */
static int begin(void **state) {
  char cache[64];
  if (!mkdtemp(dir)) return -1;
  snprintf(cache, sizeof cache, "%s/cache", dir);
  return setenv("XDG_CACHE_HOME", cache, 1);
}
static int finish(void **state) {
  char line[64];
  snprintf(line, sizeof line, "rm -rf %s", dir);
  return system(line);
}
#endif
