/* Records a program on an emulated GPU of each vendor and plays it back without one; differences are reported. Each run
 * is in a separate process, like a recording and its player. */
#include "saxpy.h"
#include "hcq/backend.h"
#include "hcq/trace/trace.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT 60000000000ull
enum { N = 1000, BYTES = N * 4, FAILED = 1, FINISHED_EARLY = 2 };

/* The difference of a run from the recorded one. */
enum change { SAME, OTHER_VALUE, OTHER_PACKET, OTHER_SIZE, MISSING_CALL, OTHER_FLAG, STOPS_EARLY, IMPORTS };

static char folder[64], file[2][96];
static const struct machine *const tried[2] = {&machines[1], &machines[2]};

struct run {
  db_device *dev;
  db_buffer *x, *y, *host, *more;
  db_queue *q, *copy;
  db_program *saxpy;
  db_recording *r;
  db_signal *s;
};

static int wait_for(db_queue *q) {
  uint64_t when;
  int err = db_queue_submit(q, &when);
  return err ? err : db_wait(db_queue_timeline(q), when, TIMEOUT);
}

/* Runs the kernel once directly, and three times as a recording whose factor varies; stores the results in *sum. */
static int compute(struct run *r, const struct machine *m, enum change change, double *sum) {
  size_t size = 0;
  uint64_t when = 0;
  void *image = saxpy_image(m, &size);
  float *h = (float *)(void *)db_buffer_host(r->host);
  r->saxpy = saxpy_load(m, r->dev, image, size);
  free(image);
  if (!r->saxpy) return -1;
  for (int i = 0; i < N; i++) h[i] = (float)i;
  int err = db_queue_copy(r->copy, r->x, 0, r->host, 0, BYTES);
  if (!err) err = db_queue_copy(r->copy, r->y, 0, r->host, 0, BYTES);
  if (!err) err = wait_for(r->copy);
  if (!err && change == OTHER_PACKET) err = db_queue_timestamp(r->q, r->s);
  if (!err) err = saxpy_record(m, r->q, r->saxpy, r->y, r->x, change == OTHER_VALUE ? 3.f : 2.f, 0, N);
  if (!err) err = db_queue_timestamp(r->q, r->s);
  if (!err) err = wait_for(r->q);
  if (!err) err = saxpy_record(m, r->q, r->saxpy, r->y, r->x, 1.f, 1, N);
  if (!err && !(r->r = db_queue_bind(r->q))) err = -1;
  for (uint32_t i = 0; i < 3 && !err; i++) {
    static const uint32_t factors[] = {0x3f800000, 0x40000000, 0x40400000}; /* 1, 2, 3 */
    err = db_recording_set_value(r->r, 1, factors[i]);
    if (!err) err = db_recording_submit(r->r, &when);
    if (!err) err = db_wait(db_queue_timeline(r->q), when, TIMEOUT);
  }
  if (!err) err = db_queue_wait(r->copy, db_queue_timeline(r->q), when);
  if (!err) err = db_queue_copy(r->copy, r->host, 0, r->y, 0, BYTES);
  if (!err) err = wait_for(r->copy);
  for (int i = 0; i < N && !err; i++) *sum += (double)h[i] * (i + 1);
  return err;
}

static int use(struct run *r, const struct machine *m, enum change change, double *sum) {
  r->x = db_alloc(r->dev, change == OTHER_SIZE ? 5 * BYTES : BYTES, 0);
  r->y = db_alloc(r->dev, BYTES, 0);
  r->host = db_alloc(r->dev, BYTES, DB_BUFFER_HOST);
  if (change != MISSING_CALL) r->more = db_alloc(r->dev, 1 << 16, change == OTHER_FLAG ? DB_BUFFER_CPU_MAP : 0);
  r->s = db_signal_new(r->dev);
  r->q = db_queue_new(r->dev, DB_QUEUE_COMPUTE);
  r->copy = db_queue_new(r->dev, DB_QUEUE_COPY);
  if (!r->x || !r->y || !r->host || (!r->more && change != MISSING_CALL) || !r->s || !r->q || !r->copy) return -1;
  if (change == IMPORTS) {
    static uint8_t pages[4096];
    db_buffer *imported = db_import_host(r->dev, pages, sizeof pages);
    db_buffer_release(imported);
    return imported ? 0 : -1;
  }
  if (change == STOPS_EARLY) return 0;
  return compute(r, m, change, sum);
}

static void drop(struct run *r) {
  db_buffer_release(r->x), db_buffer_release(r->y), db_buffer_release(r->host), db_buffer_release(r->more);
  db_recording_release(r->r), db_program_release(r->saxpy), db_signal_release(r->s);
  db_queue_release(r->q), db_queue_release(r->copy);
  db_close(r->dev);
}

/* Writes the results and the messages to out. */
static int child(const char *name, const struct machine *m, enum change change, FILE *out) {
  struct run r = {0};
  double sum = 0;
  bool plays = !strncmp(name, "PLAY:", 5);
  struct hcq_machine *kept = plays ? hcq_machine_open(name) : NULL;
  r.dev = !plays || kept ? db_open(name) : NULL;
  int err = r.dev ? use(&r, m, change, &sum) : -1, rc = 0;
  fprintf(out, "%.17g %s", sum, err ? db_error() : "");
  if (err) rc = FAILED;
  if (!r.dev) return rc;
  drop(&r);
  if (err || !plays) return rc;
  /* AMD's machine lasts as long as the process, NVIDIA's ends here. */
  db_fail(0, "%s", "");
  if (os_play_difference(kept->os))
    db_fail(0, "%s", os_play_difference(kept->os)); /* closing the device could not report it */
  else if (m == tried[0])
    os_play_finished(kept->os);
  else
    hcq_machine_release(kept);
  fprintf(out, "%s", db_error());
  return *db_error() ? FINISHED_EARLY : 0;
}

/* Runs a child, with its output in text. Returns the exit status, 128 and more for a signal. */
static int run(const char *name, const char *record, const struct machine *m, enum change change, char text[1024]) {
  char path[128];
  snprintf(path, sizeof path, "%s/out", folder);
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) {
    if (record) setenv("HCQ_RECORD", record, 1);
    alarm(120);
    FILE *out = fopen(path, "w");
    int rc = child(name, m, change, out);
    fclose(out);
    exit(rc);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  FILE *in = fopen(path, "r");
  assert_non_null(in);
  text[fread(text, 1, 1023, in)] = 0;
  fclose(in);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int play(int v, const char *which, enum change change, char text[1024]) {
  char name[sizeof "PLAY:" + sizeof file[0]];
  snprintf(name, sizeof name, "PLAY:%.*s", (int)sizeof file[0] - 1, which);
  return run(name, NULL, tried[v], change, text);
}

static int record_all(void **state) {
  char text[1024];
  snprintf(folder, sizeof folder, "/tmp/test_os_trace.XXXXXX");
  if (!mkdtemp(folder)) return -1;
  for (int v = 0; v < 2; v++) {
    snprintf(file[v], sizeof file[v], "%s/%d.trace", folder, v);
    int rc = run(tried[v]->name, file[v], tried[v], SAME, text);
    if (rc) fprintf(stderr, "%s: exit %d: %s\n", tried[v]->name, rc, text);
    if (rc) return -1;
  }
  return 0;
}

static int remove_all(void **state) {
  char path[128];
  const char *const names[] = {"0.trace", "1.trace", "changed", "out"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    unlink(path);
  }
  return rmdir(folder);
}

static void plays_with_equal_results(void **state) {
  for (int v = 0; v < 2; v++) {
    char text[1024];
    int rc = play(v, file[v], SAME, text);
    double sum = 0;
    for (int i = 0; i < N; i++) sum += (double)(i + 2.f * i + 6.f * i) * (i + 1);
    if (rc || strtod(text, NULL) != sum) fail_msg("%s: exit %d, %s, expected %g", tried[v]->name, rc, text, sum);
  }
}

static void names_differences(void **state) {
  static const struct {
    enum change change;
    int rc;
    const char *says[2]; /* by vendor */
  } cases[] = {
      {OTHER_VALUE, FAILED, {"doorbell: the word at", "doorbell: the word at"}},
      {OTHER_PACKET, FAILED, {"doorbell: value: recorded 0x", "doorbell: the word at"}},
      {OTHER_SIZE, FAILED, {"mmap: length: recorded 0x1000, now 0x5000", "mmap: length"}},
      {MISSING_CALL, FAILED, {"recorded", "recorded"}},
      {OTHER_FLAG,
       FAILED,
       {"KFD_ALLOC_MEMORY: flags: recorded", "recorded UVM_CREATE_EXTERNAL_RANGE, now open /dev/nvidia0"}},
      {STOPS_EARLY, FINISHED_EARLY, {"recorded", "recorded"}},
  };
  for (int v = 0; v < 2; v++)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      char text[1024];
      int rc = play(v, file[v], cases[i].change, text);
      if (rc != cases[i].rc || !strstr(text, "the trace differs at event") || !strstr(text, cases[i].says[v]))
        fail_msg("%s, change %d: exit %d: %s, which does not contain \"%s\"", tried[v]->name, cases[i].change, rc, text,
                 cases[i].says[v]);
    }
}

static uint8_t *read_whole(const char *path, size_t *size) {
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  struct stat s;
  assert_int_equal(fstat(fileno(f), &s), 0);
  uint8_t *bytes = malloc((size_t)s.st_size);
  *size = fread(bytes, 1, (size_t)s.st_size, f);
  fclose(f);
  return bytes;
}

static void expect_refused(const uint8_t *bytes, size_t size, const char *what) {
  char path[128], err[512] = "";
  struct os_trace t;
  snprintf(path, sizeof path, "%s/changed", folder);
  FILE *f = fopen(path, "wb");
  assert_int_equal(fwrite(bytes, 1, size, f), size);
  fclose(f);
  if (!os_trace_load(path, &t, err, sizeof err)) fail_msg("%s of %zu bytes: accepted", what, size);
  if (!strstr(err, " byte ")) fail_msg("%s of %zu bytes: %s", what, size, err);
}

static void reports_damaged_traces(void **state) {
  size_t size;
  uint8_t *bytes = read_whole(file[0], &size);
  for (size_t n = 0; n < size; n += 1 + size / 50) expect_refused(bytes, n, "a truncated file");
  for (size_t at = 0; at < size; at += at < 40 ? 1 : 1 + size / 50) {
    bytes[at] ^= 0xff; /* change all bits: some bits of the last byte before the checksum have no meaning */
    expect_refused(bytes, size, "a flipped byte");
    bytes[at] ^= 0xff;
  }
  char text[1024], path[128];
  bytes[size / 2] ^= 1;
  expect_refused(bytes, size, "a flipped byte");
  free(bytes);
  snprintf(path, sizeof path, "%s/changed", folder);
  assert_int_equal(play(0, path, SAME, text), FAILED);
  assert_non_null(strstr(text, "the gzip stream is damaged at byte"));
  assert_int_equal(play(0, "/nowhere/a.trace", SAME, text), FAILED);
  assert_non_null(strstr(text, "PLAY:/nowhere/a.trace: cannot read it: No such file or directory"));
}

/* The caller's pages have other addresses in the next process, so the trace says why it cannot be played. */
static void reports_traces_that_cannot_be_played(void **state) {
  char text[1024], path[96];
  snprintf(path, sizeof path, "%s/changed", folder);
  for (int v = 0; v < 2; v++) {
    assert_int_equal(run(tried[v]->name, path, tried[v], IMPORTS, text), 0);
    assert_int_equal(play(v, path, IMPORTS, text), FAILED);
    if (!strstr(text, "not supported: memory of the caller that was imported")) fail_msg("%s", text);
  }
}

static void cannot_be_written(void **state) {
  char text[1024];
  assert_int_equal(run(tried[0]->name, "/nowhere/a.trace", tried[0], SAME, text), FAILED);
  assert_non_null(strstr(text, "HCQ_RECORD: cannot write /nowhere/a.trace: No such file or directory"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plays_with_equal_results), cmocka_unit_test(names_differences),
      cmocka_unit_test(reports_damaged_traces),   cmocka_unit_test(reports_traces_that_cannot_be_played),
      cmocka_unit_test(cannot_be_written),
  };
  return cmocka_run_group_tests(tests, record_all, remove_all);
}
