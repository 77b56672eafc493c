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

/* The same losses, but for rounding, however many devices share a batch; the CPU and emulated GPUs. */
static void mnist_on_several_devices(void **state) {
  static const char *const machine[] = {"CPU", "EMU+AMD:gfx1100,gfx1100,gfx1100,gfx1100,gfx1100,gfx1100"};
  for (int m = 0; m < 2; m++) {
    double loss[2][2];
    for (int n = 0; n <= 6; n += 2) { /* 0: as without the option */
      char command[400], option[32] = "";
      if (n) snprintf(option, sizeof option, "--devices %d", n);
      snprintf(command, sizeof command, "DEV=%s " EXAMPLES "/mnist %s 320", machine[m], option);
      char *text = output_of(command);
      loss[n > 0][0] = last_number(text, "step    0: loss ");
      loss[n > 0][1] = last_number(text, "step    9: loss ");
      for (int k = 0; k < 2 && n; k++) assert_float_equal(loss[1][k], loss[0][k], 0.0021); /* two of the last digit */
    }
    assert_true(loss[0][1] < loss[0][0]);
  }
  assert_contains(output_of("! " EXAMPLES "/mnist --devices 0 320 2>&1"), "--devices 0: 1 to 64 are possible");
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(mnist_drawn), cmocka_unit_test(mnist_on_several_devices),
                                     cmocka_unit_test(mnist_files), cmocka_unit_test(gpt)};
  return cmocka_run_group_tests_name("examples", tests, NULL, NULL);
}
