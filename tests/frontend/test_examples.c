/* The examples: a short training lowers the loss, and the small programs print what they should. */
#include "support.h"
#include <math.h>
#include <unistd.h>

#define EXAMPLES KERNELS_DIR "/../examples"

/* Runs a command, which must succeed, and returns its output. */
static char *output_of(const char *command) {
  static char text[1 << 16];
  FILE *f = popen(command, "r");
  assert_non_null(f);
  size_t n = fread(text, 1, sizeof text - 1, f);
  text[n] = 0;
  if (pclose(f)) fail_msg("%s failed: %s", command, text);
  return text;
}

/* The number after the last occurrence of a word. */
static double last_number(const char *text, const char *word) {
  const char *at = NULL;
  for (const char *next = text; (next = strstr(next, word)); next++) at = next;
  if (!at) fail_msg("no \"%s\" in: %s", word, text);
  return atof(at + strlen(word));
}

static void mnist_drawn(void **state) {
  char *text = output_of(EXAMPLES "/mnist 1600");
  assert_contains(text, "step    0: loss 2.");                   /* as good as chance at the beginning */
  assert_true(last_number(text, "held-out digits read: ") > 50); /* chance is 10 % */
}

/* The losses are the same, except for rounding, for any number of devices that share a batch, on the CPU and emulated
 * GPUs. */
static void mnist_on_several_devices(void **state) {
  static const char *const machine[] = {"CPU", "EMU+AMD:gfx1100,gfx1100,gfx1100,gfx1100,gfx1100,gfx1100"};
  for (int m = 0; m < 2; m++) {
    double loss[2][2];
    for (int n = 0; n <= 6; n += 2) { /* 0: the option is not given */
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
  assert_contains(output_of("! " EXAMPLES "/mnist --devices 0 320 2>&1"), "--devices 0: expected 1 to 64");
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
  assert_contains(output_of(command), "not an IDX file of bytes");
  unlink(path[0]);
  unlink(path[1]);
}

/* Both networks learn, a second run continues from the checkpoint, and devices share a batch. */
static void vision(void **state) {
  static const char *const nets[] = {"resnet50", "vit"};
  char folder[] = "/tmp/doorbell-vision-XXXXXX", command[400];
  assert_non_null(mkdtemp(folder));
  for (int k = 0; k < 2; k++) {
    snprintf(command, sizeof command, EXAMPLES "/vision %s --steps 60 --checkpoint %s/%s.safetensors", nets[k], folder,
             nets[k]);
    char *text = output_of(command);
    double loss = last_number(text, "step 60/60 loss "), recognized = last_number(text, "recognized: ");
    if (!(last_number(text, "step 1/60 loss ") > 1.9 && loss < 1)) fail_msg("%s", text); /* ln 8 is 2.08 */
    assert_true(recognized > 60);                                                        /* chance is 12.5 % */
    text = output_of(command);
    assert_contains(text, "continuing after step 60");
    assert_true(last_number(text, "recognized: ") == recognized); /* by the weights and statistics of the file */
    snprintf(command, sizeof command, "rm %s/%s.safetensors", folder, nets[k]);
    output_of(command);
  }
  double one = 0;
  for (int n = 1; n <= 2; n++) {
    snprintf(command, sizeof command, EXAMPLES "/vision vit --steps 4 --batch 8 --devices %d", n);
    double loss = last_number(output_of(command), "step 4/4 loss ");
    if (n > 1) assert_float_equal(loss, one, 0.0021);
    one = loss;
  }
  assert_contains(output_of("DEV=" EMULATED " " EXAMPLES "/vision vit --steps 2 --batch 4"), "step 2/2 loss ");
  assert_contains(output_of("! " EXAMPLES "/vision vit --batch 9 --devices 2 2>&1"), "a batch of 9 cannot be shared");
  assert_contains(output_of("! " EXAMPLES "/vision alexnet 2>&1"), "usage: vision resnet50|vit");
  rmdir(folder);
}

/* The tokens are longer than bytes, and the model learns them. */
static void gpt2(void **state) {
  char folder[] = "/tmp/doorbell-gpt2-XXXXXX", command[400];
  assert_non_null(mkdtemp(folder));
  snprintf(command, sizeof command,
           EXAMPLES "/gpt2 " DATA_DIR "/../../README.md 400 --steps 120 --checkpoint %s/c.safetensors", folder);
  char *text = output_of(command);
  double bytes = last_number(text, " tokens, "), first = last_number(text, "step 1/120 loss "),
         last = last_number(text, "step 120/120 loss ");
  if (!(bytes > 1.5 && first > 5.5 && last < 4.9)) fail_msg("%s", text); /* ln 400 is 6 */
  assert_contains(output_of(command), "continuing after step 120");
  assert_contains(output_of(EXAMPLES "/gpt2 " DATA_DIR "/../../README.md --steps 2 --batch 4 --devices 2"),
                  "step 2/2 loss ");
  snprintf(command, sizeof command,
           "DEV=" EMULATED " " EXAMPLES "/gpt2 " DATA_DIR "/../../README.md --steps 1 --batch 2 && rm %s/c.safetensors",
           folder);
  assert_contains(output_of(command), "step 1/1 loss 6.");
  rmdir(folder);
}

/* The small examples, on three devices. */
static const char *const machines[] = {"CPU", EMULATED, EMULATED_NVIDIA};

/* Runs a command on a machine and stores its output. Returns false if its kernels need ptxas, which is not installed.
 */
static bool runs_on(const char *machine, const char **text, const char *fmt, ...) {
  char command[1024];
  va_list ap;
  int n = snprintf(command, sizeof command, "DEV=%s " EXAMPLES "/", machine);
  va_start(ap, fmt);
  vsnprintf(command + n, sizeof command - (size_t)n, fmt, ap);
  va_end(ap);
  if (strstr(machine, "NV") && !has_ptxas()) return false;
  *text = output_of(command);
  return true;
}

static void hello(void **state) {
  const char *text;
  for (int m = 0; m < 3; m++)
    if (runs_on(machines[m], &text, "hello"))
      assert_contains(text, "softmax(x w) = [[0.31, 0.69], [0.1978, 0.8022]]\ngradient     = [[0.01625, -0.06502, ");
}

/* The queue layer's example, with a kernel file for the device. */
static void kernel(void **state) {
  const char *text;
  runs_on(EMULATED, &text, "kernel " KERNELS_DIR "/bench/kernels/saxpy.gfx1100.co");
  assert_contains(text, "y = 1 3 5 ... 2047 in ");
  runs_on("CPU", &text, "kernel " KERNELS_DIR "/bench/kernels/saxpy.gfx1100.co 2>&1; test $? = 1");
  assert_contains(text, "the object is for an AMD GPU");
  if (!has_ptxas()) return;
  char cubin[] = "/tmp/doorbell-cubin-XXXXXX", assemble[512];
  close(mkstemp(cubin));
  snprintf(assemble, sizeof assemble,
           "PATH=$PATH:/usr/local/cuda/bin; ${PTXAS:-ptxas} -arch=sm_90 -o %s " KERNELS_DIR "/bench/kernels/saxpy.ptx",
           cubin);
  output_of(assemble);
  runs_on(EMULATED_NVIDIA, &text, "kernel %s", cubin);
  assert_contains(text, "y = 1 3 5 ... 2047 in ");
  unlink(cubin);
}

/* The second run continues from the state that the first one saved. */
static void captured_step(void **state) {
  for (int m = 0; m < 3; m++) {
    char path[] = "/tmp/doorbell-step-XXXXXX";
    const char *text;
    double first, second;
    close(mkstemp(path));
    unlink(path);
    if (!runs_on(machines[m], &text, "step %s", path)) continue;
    first = last_number(text, "step 40: loss ");
    runs_on(machines[m], &text, "step %s", path);
    second = last_number(text, "step  0: loss ");
    assert_true(first < 0.2 && second < first);
    unlink(path);
  }
}

static void four_devices(void **state) {
  static const char *const four[] = {"CPU", "EMU+AMD:gfx1100,gfx1100,gfx1100,gfx1100",
                                     "EMU+NV:sm_90,sm_90,sm_90,sm_90"};
  for (int m = 0; m < 3; m++) {
    const char *text;
    if (!runs_on(four[m], &text, "parallel")) continue;
    assert_contains(text, " on 4 devices");
    assert_true(last_number(text, "step 40: loss ") < last_number(text, "step  0: loss ") / 10);
  }
}

/* Two layers, compared with the same sums here. */
static void inference(void **state) {
  static const float w0[2][3] = {{1, 0, -1}, {0.5, 2, 1}}, b0[2] = {0, -1}, w1[2][2] = {{1, -1}, {0, 1}};
  static const float x[2][3] = {{1, 2, 3}, {-1, 0.5, 2}};
  char folder[] = "/tmp/doorbell-infer-XXXXXX", path[3][64];
  assert_non_null(mkdtemp(folder));
  static const char *const names[] = {"w.safetensors", "x.npy", "y.npy"};
  for (int i = 0; i < 3; i++) snprintf(path[i], sizeof path[i], "%s/%s", folder, names[i]);
  DB_SCOPED;
  struct db_named weights[] = {{"0.weight", db_from(w0, DB_F32, NULL, 2, 3)},
                               {"0.bias", db_from(b0, DB_F32, NULL, 2)},
                               {"1.weight", db_from(w1, DB_F32, NULL, 2, 2)}},
                  input = {"", db_from(x, DB_F32, NULL, 2, 3)};
  assert_int_equal(db_save(path[0], weights, 3), 0);
  assert_int_equal(db_save(path[1], &input, 1), 0);
  for (int m = 0; m < 3; m++) {
    const char *text;
    struct db_named *file;
    unsigned n;
    float y[2][2];
    if (!runs_on(machines[m], &text, "infer %s %s %s", path[0], path[1], path[2])) continue;
    assert_contains(text, "2 layers");
    assert_int_equal(db_load(path[2], NULL, &file, &n), 0);
    assert_int_equal(db_read(file[0].tensor, y, sizeof y), 0);
    db_named_free(file, n);
    for (int r = 0; r < 2; r++) {
      double h[2], z[2];
      for (int k = 0; k < 2; k++) {
        h[k] = (double)b0[k];
        for (int i = 0; i < 3; i++) h[k] += (double)w0[k][i] * (double)x[r][i];
        h[k] = h[k] > 0 ? h[k] : 0;
      }
      for (int k = 0; k < 2; k++) z[k] = exp((double)w1[k][0] * h[0] + (double)w1[k][1] * h[1]);
      for (int k = 0; k < 2; k++) assert_float_equal(y[r][k], z[k] / (z[0] + z[1]), 1e-5);
    }
  }
  for (int i = 0; i < 3; i++) unlink(path[i]);
  rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(mnist_drawn),  cmocka_unit_test(mnist_on_several_devices),
                                     cmocka_unit_test(mnist_files),  cmocka_unit_test(vision),
                                     cmocka_unit_test(gpt2),         cmocka_unit_test(hello),
                                     cmocka_unit_test(kernel),       cmocka_unit_test(captured_step),
                                     cmocka_unit_test(four_devices), cmocka_unit_test(inference)};
  return cmocka_run_group_tests_name("examples", tests, NULL, NULL);
}
