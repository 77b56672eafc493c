/* The examples learn: a little training lowers their loss, on what they were not trained on, too. */
#include "support.h"
#include <unistd.h>

#define EXAMPLES KERNELS_DIR "/../examples"

/* What command prints; it must succeed. */
static char *output_of(const char *command) {
  static char text[1 << 16];
  FILE *f = popen(command, "r");
  assert_non_null(f);
  size_t n = fread(text, 1, sizeof text - 1, f);
  text[n] = 0;
  if (pclose(f)) fail_msg("%s failed: %s", command, text);
  return text;
}

/* The number behind the last appearance of a word. */
static double last_number(const char *text, const char *word) {
  const char *at = NULL;
  for (const char *next = text; (next = strstr(next, word)); next++) at = next;
  if (!at) fail_msg("no \"%s\" in: %s", word, text);
  return atof(at + strlen(word));
}

static void mnist_drawn(void **state) {
  char *text = output_of(EXAMPLES "/mnist 1600");
  assert_contains(text, "step    0: loss 2.");                   /* as good as chance at first */
  assert_true(last_number(text, "held-out digits read: ") > 50); /* chance is 10 % */
}

static void mnist_files(void **state) {
  enum { N = 128 };
  unsigned char head[2][16] = {{0, 0, 8, 3, 0, 0, 0, N, 0, 0, 0, 28, 0, 0, 0, 28}, {0, 0, 8, 1, 0, 0, 0, N}};
  char path[2][64] = {"/tmp/doorbell-idx-XXXXXX", "/tmp/doorbell-idx-XXXXXX"}, command[400];
  for (int k = 0; k < 2; k++) {
    FILE *f = fdopen(mkstemp(path[k]), "wb");
    fwrite(head[k], 1, k ? 8 : 16, f);
    for (int i = 0; i < N * (k ? 1 : 784); i++)
      fputc(k ? i % 2 : (i / 784) % 2 ? 200 : 0, f); /* black is 0, grey is 1 */
    fclose(f);
  }
  snprintf(command, sizeof command, EXAMPLES "/mnist %s %s %s %s", path[0], path[1], path[0], path[1]);
  assert_contains(output_of(command), "of 128 held-out digits read");
  snprintf(command, sizeof command, "! " EXAMPLES "/mnist %s %s %s %s 2>&1", path[1], path[1], path[0], path[1]);
  assert_contains(output_of(command), "no IDX file of bytes");
  unlink(path[0]);
  unlink(path[1]);
}

static void gpt(void **state) {
  char *text = output_of(EXAMPLES "/gpt " DATA_DIR "/../../README.md 50");
  assert_contains(text, "step    0: loss 5."); /* ln 256 is 5.5 */
  double trained = last_number(text, "loss "), held = last_number(text, "held out ");
  if (!(trained < 4 && held < 4.5)) fail_msg("%s", text);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(mnist_drawn), cmocka_unit_test(mnist_files),
                                     cmocka_unit_test(gpt)};
  return cmocka_run_group_tests_name("examples", tests, NULL, NULL);
}
