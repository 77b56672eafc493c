/* BEAM=2: kernels are searched on the CPU by time and on emulated GPUs by model time, with SPEC=1, which compares the
 * results of every plan. Results are stored as text, which tolerates damage, and are not measured again. */
#define _GNU_SOURCE /* asprintf */
#include "support.h"
#include "../../frontend/run/beam.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/doorbell-beam-XXXXXX", path[128];

static char *contents(const char *name) {
  static char text[1 << 16];
  FILE *f = fopen(name, "r");
  size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
  if (f) fclose(f);
  text[n] = 0;
  return text;
}
static void put_contents(const char *text) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

/* Computes x @ y + 1 of rows x K and K x N in a new runtime and compares with plain sums. Returns the number of kernels
 * that the device ran. said: gets the text written to stderr; may be NULL. With MANY rows, the kernels of slow plans
 * have so many workgroups that an emulated device first runs only some of them. */
enum { FEW = 12, MANY = 920, K = 16, N = 9 };
static unsigned compute_rows(int rows, const char *device, char *said, size_t cap) {
  static float x[MANY * K], y[K * N], out[MANY * N];
  char log[160];
  int kept = -1;
  snprintf(log, sizeof log, "%s/log", folder);
  for (int i = 0; i < rows * K; i++) x[i] = (float)(i % 7) - 3;
  for (int i = 0; i < K * N; i++) y[i] = (float)(i % 5) - 2;
  fflush(stderr);
  if (said) {
    int to = open(log, O_RDWR | O_CREAT | O_TRUNC, 0600);
    kept = dup(STDERR_FILENO);
    dup2(to, STDERR_FILENO);
    close(to);
  }
  db_device *dev = open_device(device);
  unsigned before = kernels_so_far(dev), ran = 0;
  int err;
  {
    DB_SCOPED;
    db_tensor *a = db_from(x, DB_F32, dev, rows, K), *b = db_from(y, DB_F32, dev, K, N);
    err = db_read(db_add(db_matmul(a, b), 1), out, (size_t)(rows * N) * sizeof *out);
    ran = kernels_so_far(dev) - before;
  }
  db_close(dev);
  db_shutdown();
  fflush(stderr);
  if (said) {
    dup2(kept, STDERR_FILENO);
    close(kept);
    snprintf(said, cap, "%.4000s", contents(log));
  }
  if (err) fail_msg("%s", db_error());
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < N; j++) {
      float sum = 1;
      for (int k = 0; k < K; k++) sum += x[i * K + k] * y[k * N + j];
      if (out[i * N + j] != sum) fail_msg("%s: %d %d is %g, not %g", device, i, j, (double)out[i * N + j], (double)sum);
    }
  return ran;
}

static unsigned compute(const char *device, char *said, size_t cap) { return compute_rows(FEW, device, said, cap); }

static struct beam_record the_record(void) {
  struct beam_record r = {0};
  char why[256], *line = contents(path);
  for (; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
    if (beam_record_parse(line, &r, why, sizeof why)) return r;
  fail_msg("no record in %s", contents(path));
  return r;
}

static void finds_and_keeps_plans(void **state) {
  FOR_DEVICES {
    int rows = d_ == 1 ? MANY : FEW;
    unlink(path);
    unsigned searched = compute_rows(rows, DEVICE_NAME, NULL, 0);
    assert_in_range(searched, 20, 5000);
    struct beam_record r = the_record();
    assert_int_equal(r.round, 0);
    assert_int_equal(r.width, 2);
    assert_true(r.best_us <= r.chosen_us);
    assert_non_null(strstr(r.machine, DEVICE_NAME));
    free(r.plan);
    char *first = strdup(contents(path));
    assert_int_equal(compute_rows(rows, DEVICE_NAME, NULL, 0), 1); /* only the kernel, nothing is measured */
    assert_string_equal(contents(path), first);
    if (d_ == 1) { /* model time is deterministic */
      unlink(path);
      assert_int_equal(compute_rows(rows, DEVICE_NAME, NULL, 0), searched);
      assert_string_equal(contents(path), first);
    }
    free(first);
  }
}

/* Computes an attention, which is a kernel of phases. Returns the number of kernels that the device ran. */
static unsigned attend(void) {
  enum { LENGTH = 256, WIDTH = 16 };
  static float x[LENGTH * WIDTH], out[LENGTH * WIDTH];
  db_device *dev = open_device("CPU");
  for (int i = 0; i < LENGTH * WIDTH; i++) x[i] = (float)(i * 7 % 11) / 11;
  unsigned before = kernels_so_far(dev);
  {
    DB_SCOPED;
    db_tensor *q = db_from(x, DB_F32, dev, 1, LENGTH, WIDTH);
    must_read(db_attention(q, q, q), out, sizeof out);
  }
  unsigned ran = kernels_so_far(dev) - before;
  db_close(dev);
  db_shutdown();
  return ran;
}

/* SPEC=1 compares the results of all plans. */
static void searches_kernels_of_phases(void **state) {
  unlink(path);
  setenv("BEAM", "1", 1);
  assert_true(attend() > 20);
  struct beam_record r = the_record();
  assert_int_equal(r.round, 0);
  assert_true(r.best_us <= r.chosen_us);
  assert_non_null(strchr(r.plan, '|'));
  free(r.plan);
  assert_int_equal(attend(), 1);
  setenv("BEAM", "2", 1);
}

static void survives_damage(void **state) {
  char said[4096], *text;
  unlink(path);
  compute("CPU", NULL, 0);
  char *whole = strdup(contents(path)), *line = strchr(whole, '\n') + 1;
  /* Broken lines are reported with their numbers and kept; nothing else is affected. */
  assert_true(asprintf(&text, "# mine\nnonsense\n%s0123 CPU r_1 2 done 1 1 = upcat a:2\n%.30s", whole, line) > 0);
  put_contents(text);
  assert_int_equal(compute("CPU", said, sizeof said), 1);
  assert_non_null(strstr(said, "beam.txt:2 is ignored: a key, machine, shape"));
  assert_non_null(strstr(said, "beam.txt:5 is ignored: column 1 of the plan, at 'upcat': not a step"));
  assert_non_null(strstr(said, "beam.txt:6 is ignored"));
  assert_string_equal(contents(path), text);
  free(text);
  /* Without the kernel's line it is searched again, and the result is appended. */
  put_contents("# mine\nnonsense");
  assert_true(compute("CPU", said, sizeof said) > 20);
  assert_ptr_equal(strstr(contents(path), "# mine\nnonsense\n"), contents(path));
  struct beam_record r = the_record();
  /* A plan that cannot be applied is reported, and the optimizer's plan is used. */

  assert_true(
      asprintf(&text, "%016llx %s %s 2 done 1 1 = upcast z:4\n", (unsigned long long)r.key, r.machine, r.shape) > 0);
  put_contents(text);
  assert_int_equal(compute("CPU", said, sizeof said), 1);
  assert_non_null(strstr(said, "a plan in beam.txt is ignored: kernel "));
  assert_non_null(strstr(said, "'upcast z:4'"));
  free(text);
  /* A plan written by hand is used. */
  assert_true(
      asprintf(&text, "%016llx %s %s 64 done 1 1 = unroll c:4 \n", (unsigned long long)r.key, r.machine, r.shape) > 0);
  put_contents(text);
  assert_int_equal(compute("CPU", said, sizeof said), 1);
  assert_string_equal(said, "");
  free(text);
  /* So is the plan of an interrupted search, which continues, and one of a search with a smaller width. */
  for (unsigned i = 0; i < 2; i++) {
    assert_true(asprintf(&text, "# first\n%016llx %s %s %u %s 1 1 = unroll c:4\n# last\n", (unsigned long long)r.key,
                         r.machine, r.shape, i ? 1u : 2u, i ? "done" : "round:3") > 0);
    put_contents(text);
    free(text);
    assert_true(compute("CPU", NULL, 0) > 20);
    struct beam_record now = the_record();
    assert_int_equal(now.round, 0);
    assert_int_equal(now.width, 2);
    assert_non_null(strstr(contents(path), "\n# last\n"));
    free(now.plan);
  }
  free(r.plan);
  free(whole);
}

/* Emulated devices whose time has no model run the default plans, and a line says so, once. */
static void is_off_without_a_model(void **state) {
  static const char *const names[] = {"EMU+NV:sm_80", "EMU+NV:sm_89"};
  static const char said_once[] =
      "doorbell: BEAM is off for EMU+NV:sm_80: there is no model of the time of an emulated "
      "sm_80; its kernels have the default plans\n";
  char said[4096];
  if (!has_ptxas()) skip();
  for (unsigned i = 0; i < 2; i++) {
    unlink(path);
    assert_int_equal(compute(names[i], said, sizeof said), 1);
    if (!i) assert_string_equal(said, said_once);
    assert_contains(said, names[i]);
    assert_null(strstr(contents(path), names[i]));
  }
}

static void reads_lines(void **state) {
  static const struct {
    const char *line, *why; /* why: part of the message; NULL if the line is a valid record */
  } lines[] = {
      {"1f CPU/x86_64 r_4_4 4 done 2.5 1.25 = vector b:4; upcast a:2\n", NULL},
      {"1f CPU/x86_64 r_4_4 64 round:12 2.5 1.25 =\n", NULL}, /* no step at all */
      {"1f CPU/x86_64 r_4_4_p2 4 done 2.5 1.25 = upcast a:2 | upcast b:2\n", NULL},
      {"# 1f CPU r_4 4 done 1 1 = \n", ""},
      {"  \n", ""},
      {"", ""},
      {"1f CPU r_4 4 done 1 = \n", "are expected"},
      {"1f CPU r_4 4 done 1 1\n", "are expected"},
      {"zz CPU r_4 4 done 1 1 =\n", "are expected"},
      {"1f CPU r_4 0 done 1 1 =\n", "the width"},
      {"1f CPU r_4 65 done 1 1 =\n", "the width"},
      {"1f CPU r_4 4 half 1 1 =\n", "the state"},
      {"1f CPU r_4 4 round:0 1 1 =\n", "the state"},
      {"1f CPU r_4 4 round:1x 1 1 =\n", "the state"},
      {"1f CPU r_4 4 done -1 1 =\n", "positive"},
      {"1f CPU r_4 4 done nan 1 =\n", "positive"},
      {"1f CPU r_4 4 done 1 inf =\n", "positive"},
      {"1f CPU r_4 4 done 1 1 = vector\n", "an axis is expected"},
      {"1f CPU r_4 4 done 1 1 = upcast a:2 | upcat b:2\n", "at 'upcat'"},
  };
  for (unsigned i = 0; i < sizeof lines / sizeof *lines; i++) {
    struct beam_record r;
    char why[512];
    bool is = beam_record_parse(lines[i].line, &r, why, sizeof why);
    if (is != !lines[i].why) fail_msg("%s: %s", lines[i].line, is ? "read" : why);
    if (!is && (*lines[i].why ? !strstr(why, lines[i].why) : *why)) fail_msg("%s: %s", lines[i].line, why);
    if (is) free(r.plan);
  }
}

int main(void) {
  has_ptxas(); /* sets the cache folder, which this suite then replaces */
  if (!mkdtemp(folder)) return 1;
  snprintf(path, sizeof path, "%s/doorbell/beam.txt", folder);
  setenv("XDG_CACHE_HOME", folder, 1);
  setenv("BEAM", "2", 1);
  setenv("SPEC", "1", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(finds_and_keeps_plans), cmocka_unit_test(searches_kernels_of_phases),
      cmocka_unit_test(survives_damage),       cmocka_unit_test(is_off_without_a_model),
      cmocka_unit_test(reads_lines),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  char command[64];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command) ? 1 : failed;
}
