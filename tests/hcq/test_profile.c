/* PROFILE, PROF and DEBUG=2 for programs that use only the queue layer. Each case runs in a child, which reads the
 * environment again. */
#include "saxpy.h"
#include "tests/ok.h"
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N = 4096, REPLAYS = 3, EVENTS = 64 };
#define MUST(x)                                                                                                        \
  do                                                                                                                   \
    if (!(x)) return fprintf(stderr, "%s: %s\n", #x, db_error()), 100;                                                 \
  while (0)

static char folder[] = "/tmp/doorbell-profile-XXXXXX", trace[64], lines[64];

/* ---- children ---- */

struct work {
  const struct machine *m;
  db_device *dev;
  db_buffer *x, *y, *z;
  db_program *saxpy;
  db_queue *compute, *copies;
};

static int setup(struct work *w, const struct machine *m) {
  float values[N];
  size_t size = 0;
  for (int i = 0; i < N; i++) values[i] = 1;
  w->m = m;
  MUST(w->dev = db_open(m->name));
  MUST((w->x = db_alloc(w->dev, sizeof values, 0)) && (w->y = db_alloc(w->dev, sizeof values, 0)) &&
       (w->z = db_alloc(w->dev, sizeof values, 0)));
  MUST(!db_buffer_write(w->x, 0, values, sizeof values) && !db_buffer_write(w->y, 0, values, sizeof values));
  void *image = saxpy_image(m, &size);
  MUST(w->saxpy = saxpy_load(m, w->dev, image, size));
  free(image);
  MUST(w->compute = db_queue_new(w->dev, DB_QUEUE_COMPUTE));
  MUST(w->copies = db_queue_new(w->dev, DB_QUEUE_COPY));
  return 0;
}

static void close_work(struct work *w) {
  db_queue_release(w->compute);
  db_queue_release(w->copies);
  db_program_release(w->saxpy);
  db_buffer_release(w->x);
  db_buffer_release(w->y);
  db_buffer_release(w->z);
  db_close(w->dev);
}

static int kernel(struct work *w) { return saxpy_record(w->m, w->compute, w->saxpy, w->y, w->x, 2, 0, N); }

/* Two kernels, and a copy that waits for them. */
static int submit(struct work *w, uint64_t *when) {
  uint64_t computed;
  MUST(!kernel(w) && !db_queue_memory_barrier(w->compute) && !kernel(w) && !db_queue_submit(w->compute, &computed));
  MUST(!db_queue_wait(w->copies, db_queue_timeline(w->compute), computed));
  MUST(!db_queue_copy(w->copies, w->z, 0, w->y, 0, N * 4) && !db_queue_submit(w->copies, when));
  return 0;
}

static int two_kernels_and_a_copy(const struct machine *m) {
  struct work w;
  uint64_t when;
  float first;
  int err = setup(&w, m);
  if (err || (err = submit(&w, &when))) return err;
  MUST(!db_wait(db_queue_timeline(w.copies), when, 60 * SECOND));
  MUST(!db_buffer_read(w.z, 0, &first, 4) && first == 5);
  close_work(&w);
  return 0;
}

static int replays(const struct machine *m) {
  struct work w;
  uint64_t when = 0;
  float first;
  int err = setup(&w, m);
  if (err) return err;
  db_recording *r;
  MUST(!kernel(&w) && (r = db_queue_bind(w.compute)));
  for (int i = 0; i < REPLAYS; i++) MUST(!db_recording_submit(r, &when));
  MUST(!db_wait(db_queue_timeline(w.compute), when, 60 * SECOND));
  MUST(!db_buffer_read(w.y, 0, &first, 4) && first == 1 + 2 * REPLAYS);
  db_recording_release(r);
  close_work(&w);
  return 0;
}

/* Makes the queue wait for the signal. */
static int hold(struct work *w, db_signal *go, uint64_t value) {
  uint64_t when;
  MUST(!db_queue_wait(w->compute, go, value) && !db_queue_submit(w->compute, &when));
  return 0;
}

/* No wait for the first run releases it: that happens when the second one has been submitted and has not begun. */
static int releases_a_run_late(const struct machine *m) {
  struct work w;
  uint64_t first, second;
  int err = setup(&w, m);
  if (err) return err;
  db_signal *go = db_signal_new(w.dev), *done = db_queue_timeline(w.compute);
  db_recording *r;
  MUST(go && !kernel(&w) && (r = db_queue_bind(w.compute)));
  MUST(!hold(&w, go, 1) && !db_recording_submit(r, &first) && !hold(&w, go, 2));
  db_signal_set(go, 1);
  while (db_signal_value(done) < first) usleep(100);
  MUST(!db_recording_submit(r, &second));
  db_signal_set(go, 2);
  MUST(!db_wait(done, second, 60 * SECOND));
  db_recording_release(r);
  db_signal_release(go);
  close_work(&w);
  return 0;
}

/* More commands in one recording than fit the first block of memory for timestamps. */
static int many_kernels(const struct machine *m) {
  struct work w;
  uint64_t when = 0;
  int err = setup(&w, m);
  if (err) return err;
  for (int i = 0; i < 300; i++) MUST(!kernel(&w) && !db_queue_memory_barrier(w.compute));
  MUST(!db_queue_submit(w.compute, &when) && !db_wait(db_queue_timeline(w.compute), when, 60 * SECOND));
  close_work(&w);
  return 0;
}

/* The host reads the timeline itself and exits without closing. */
static int exits(const struct machine *m) {
  struct work w;
  uint64_t when;
  int err = setup(&w, m);
  if (err || (err = submit(&w, &when))) return err;
  while (db_signal_value(db_queue_timeline(w.copies)) < when) usleep(100);
  exit(0);
}

/* Commands that were recorded but not submitted are not reported. */
static int gives_up(const struct machine *m) {
  struct work w;
  int err = setup(&w, m);
  if (err || kernel(&w)) return 1;
  close_work(&w);
  return 0;
}

static int full_disk(const struct machine *m) {
  db_device *dev = db_open(m->name);
  if (!dev || db_queue_new(dev, DB_QUEUE_COMPUTE)) return 1;
  if (!strstr(db_error(), "PROFILE=/dev/full: No space left on device")) return 2;
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE); /* reported once */
  if (!q) return 3;
  db_queue_release(q);
  db_close(dev);
  return 0;
}

/* Runs fn in a child with one more environment variable and its output in the file `lines`. */
static void in_child(int (*fn)(const struct machine *m), const struct machine *m, const char *variable,
                     const char *value) {
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) {
    unsetenv("DEBUG");
    unsetenv("PROFILE");
    if (variable) setenv(variable, value, 1);
    if (!freopen(lines, "w", stderr)) _exit(101);
    exit(fn(m)); /* records are complete after the destructors */
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  if (WEXITSTATUS(status)) {
    char text[512] = "";
    FILE *f = fopen(lines, "r");
    if (f) text[fread(text, 1, sizeof text - 1, f)] = 0;
    fail_msg("%s: exit status %d: %s", m->name, WEXITSTATUS(status), text);
  }
}

/* ---- the written files ---- */

struct event {
  const char *name, *category, *track;
  double begin, end, bytes; /* in us */
};

static const char *track_of(json_t *all, json_int_t tid) {
  size_t i;
  json_t *e;
  json_array_foreach(all, i, e) {
    if (!strcmp(json_string_value(json_object_get(e, "ph")), "M") &&
        json_integer_value(json_object_get(e, "tid")) == tid)
      return json_string_value(json_object_get(json_object_get(e, "args"), "name"));
  }
  fail_msg("track %d has no name", (int)tid);
  return NULL;
}

static int by_begin(const void *a, const void *b) {
  const struct event *p = a, *q = b;
  return (p->begin > q->begin) - (p->begin < q->begin);
}

static bool is_host(const json_t *event) { return !strcmp(json_string_value(json_object_get(event, "cat")), "host"); }

/* The slices of the trace, ordered by begin. */
static unsigned slices(json_t **all, struct event *events) {
  json_error_t error;
  size_t i;
  unsigned n = 0;
  json_t *e;
  *all = json_load_file(trace, 0, &error);
  if (!*all) fail_msg("%s: %d: %s", trace, error.line, error.text);
  json_array_foreach(*all, i, e) {
    if (strcmp(json_string_value(json_object_get(e, "ph")), "X") != 0 || is_host(e)) continue;
    assert_true(n < EVENTS);
    double begin = json_number_value(json_object_get(e, "ts"));
    assert_non_null(json_object_get(e, "dur"));
    events[n++] = (struct event){json_string_value(json_object_get(e, "name")),
                                 json_string_value(json_object_get(e, "cat")),
                                 track_of(*all, json_integer_value(json_object_get(e, "tid"))),
                                 begin,
                                 begin + json_number_value(json_object_get(e, "dur")),
                                 json_number_value(json_object_get(json_object_get(e, "args"), "bytes"))};
  }
  qsort(events, n, sizeof *events, by_begin);
  return n;
}

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void check(const struct event *e, const struct machine *m, const char *category, double from, double to) {
  char track[64];
  bool copy = !strcmp(category, "copy");
  snprintf(track, sizeof track, "%s %s", m->name, copy ? "copy" : "compute");
  assert_string_equal(e->category, category);
  assert_string_equal(e->name, copy ? "copy" : "saxpy");
  assert_string_equal(e->track, track);
  assert_true(e->begin >= from && e->begin <= e->end && e->end <= to);
}

/* Threads of the host have tracks with what they did. */
static void trace_of_host_work(void **state) {
  static const char *const works[] = {"write", "submit", "read"}; /* a wait only if the work has not finished */
  for (int i = 0; i < MACHINES; i++) {
    struct event e[EVENTS];
    json_t *all, *event;
    size_t at;
    unsigned found[3] = {0};
    double from = now_us();
    in_child(two_kernels_and_a_copy, &machines[i], "PROFILE", trace);
    double to = now_us();
    slices(&all, e);
    json_array_foreach(all, at, event) {
      if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0 || !is_host(event)) continue;
      double begin = json_number_value(json_object_get(event, "ts"));
      double end = begin + json_number_value(json_object_get(event, "dur"));
      assert_true(begin >= from && begin <= end && end <= to);
      const char *track = track_of(all, json_integer_value(json_object_get(event, "tid")));
      assert_int_equal(strncmp(track, "host thread ", 12), 0);
      for (unsigned k = 0; k < 3; k++) found[k] += !strcmp(json_string_value(json_object_get(event, "name")), works[k]);
    }
    assert_true(found[0] >= 2 && found[1] >= 2); /* drivers write and submit, too */
    assert_int_equal(found[2], 1);
    json_decref(all);
  }
}

#define CLOCK_US 200 /* accuracy of comparing two clocks on a busy machine */

static void trace_of_two_kernels_and_a_copy(void **state) {
  int (*const programs[])(const struct machine *) = {two_kernels_and_a_copy, exits};
  for (int i = 0; i < MACHINES; i++)
    for (int k = 0; k < 2; k++) {
      struct event e[EVENTS];
      json_t *all;
      double from = now_us();
      in_child(programs[k], &machines[i], "PROFILE", trace);
      double to = now_us();
      assert_int_equal(slices(&all, e), 3);
      for (int j = 0; j < 3; j++)
        check(&e[j], &machines[i], j == 2 ? "copy" : "kernel", from - CLOCK_US, to + CLOCK_US);
      assert_true(e[0].end <= e[1].begin + 0.002 && e[1].end <= e[2].begin + 0.002); /* printed to the nanosecond */
      assert_float_equal(e[2].bytes, N * 4, 0);
      json_decref(all);
    }
}

static void trace_of_replays(void **state) {
  for (int i = 0; i < MACHINES; i++) {
    struct event e[EVENTS];
    json_t *all;
    in_child(replays, &machines[i], "PROFILE", trace);
    assert_int_equal(slices(&all, e), REPLAYS);
    for (int k = 0; k < REPLAYS; k++) {
      assert_string_equal(e[k].name, "saxpy");
      /* Each replay is reported separately, and the clocks may be compared again in between. */
      if (k) assert_true(e[k - 1].begin <= e[k].begin + CLOCK_US && e[k - 1].end <= e[k].begin + CLOCK_US);
    }
    json_decref(all);
  }
}

static void trace_of_a_run_released_late(void **state) {
  for (int i = 0; i < MACHINES; i++) {
    struct event e[EVENTS];
    json_t *all;
    in_child(releases_a_run_late, &machines[i], "PROFILE", trace);
    assert_int_equal(slices(&all, e), 2);
    assert_true(e[0].begin < e[1].begin);
    json_decref(all);
  }
}

static unsigned count_lines(const char *containing) {
  char line[512];
  unsigned n = 0;
  FILE *f = fopen(lines, "r");
  assert_non_null(f);
  while (fgets(line, sizeof line, f)) n += strstr(line, containing) != NULL;
  fclose(f);
  return n;
}

static void reports_each_command(void **state) {
  for (int i = 0; i < MACHINES; i++) {
    char number[64];
    in_child(two_kernels_and_a_copy, &machines[i], "DEBUG", "2");
    assert_int_equal(count_lines("*** "), 3);
    assert_int_equal(count_lines(" saxpy "), 2);
    assert_int_equal(count_lines(" copy "), 1);
    snprintf(number, sizeof number, "%-15s %5u ", machines[i].name, 3);
    assert_int_equal(count_lines(number), 1);
    in_child(replays, &machines[i], "DEBUG", "2");
    assert_int_equal(count_lines(" saxpy "), REPLAYS);
    in_child(many_kernels, &machines[i], "DEBUG", "2");
    assert_int_equal(count_lines(" saxpy "), 300);
  }
}

static void reports_nothing_by_default(void **state) {
  for (int i = 0; i < MACHINES; i++) {
    in_child(two_kernels_and_a_copy, &machines[i], NULL, NULL);
    assert_int_equal(count_lines(""), 0);
    in_child(two_kernels_and_a_copy, &machines[i], "DEBUG", "1");
    assert_int_equal(count_lines(""), 0);
    in_child(gives_up, &machines[i], "DEBUG", "2");
    assert_int_equal(count_lines(""), 0);
  }
}

/* ---- records (PROF) and counters ---- */

static const char *const groups_counter[] = {"WORKGROUPS", "SPI_CSN_NUM_THREADGROUPS", "SM_CTAS"}; /* by machine */

/* A process opens its device, forks, and the child opens one, too. */
static int forks(const struct machine *m) {
  int err = two_kernels_and_a_copy(m), status;
  pid_t pid = err ? -1 : fork();
  if (!pid) exit(two_kernels_and_a_copy(m));
  if (err || waitpid(pid, &status, 0) != pid) return 1;
  return status;
}

/* Opens the folder of records as a list of lines, and removes the records. Returns their number. */
static unsigned read_records(json_t **all) {
  unsigned n = 0;
  char path[600], *line = NULL;
  size_t capacity = 0;
  DIR *d = opendir(folder);
  assert_non_null(d);
  *all = json_array();
  for (const struct dirent *e; (e = readdir(d));) {
    const char *dot = strstr(e->d_name, ".prof");
    if (!dot) continue;
    assert_string_equal(dot, ".prof"); /* complete */
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (getline(&line, &capacity, f) > 0) {
      json_t *o = json_loads(line, 0, NULL);
      if (!o) fail_msg("%s: not JSON: %s", path, line);
      json_array_append_new(*all, o);
    }
    fclose(f);
    unlink(path);
    n++;
  }
  closedir(d);
  free(line);
  return n;
}

static bool is_type(const json_t *line, const char *type) {
  return !strcmp(json_string_value(json_object_get(line, "type")), type);
}
static unsigned count_type(const json_t *all, const char *type) {
  size_t i;
  unsigned n = 0;
  json_t *line;
  json_array_foreach(all, i, line) n += is_type(line, type);
  return n;
}

/* A program that replaces another one in its process does not overwrite its record. */
static int after_exec(const struct machine *m) {
  char path[600];
  snprintf(path, sizeof path, "%s/%ld.prof.part", folder, (long)getpid());
  FILE *f = fopen(path, "w");
  MUST(f && fputs("{}\n", f) >= 0 && !fclose(f));
  return two_kernels_and_a_copy(m);
}
static void record_after_exec(void **state) {
  unsigned parts = 0, seconds = 0;
  char path[600], line[8] = "";
  in_child(after_exec, &machines[0], "PROF", folder);
  DIR *d = opendir(folder);
  assert_non_null(d);
  for (const struct dirent *e; (e = readdir(d));) {
    if (!strstr(e->d_name, ".prof")) continue;
    seconds += strstr(e->d_name, ".2.prof") && !strstr(e->d_name, ".part");
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    if (strstr(e->d_name, ".part")) {
      FILE *f = fopen(path, "r");
      assert_non_null(f);
      assert_non_null(fgets(line, sizeof line, f));
      fclose(f);
      parts++;
    }
    unlink(path);
  }
  closedir(d);
  assert_int_equal(parts, 1);
  assert_int_equal(seconds, 1);
  assert_string_equal(line, "{}\n");
}

static void records_of_processes(void **state) {
  static const struct {
    int (*program)(const struct machine *);
    unsigned processes, calls, copies;
  } cases[] = {{two_kernels_and_a_copy, 1, 2, 1}, {exits, 1, 2, 1}, {replays, 1, REPLAYS, 0}, {forks, 2, 4, 2}};
  for (int i = 0; i < MACHINES; i++)
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
      json_t *all;
      in_child(cases[k].program, &machines[i], "PROF", folder);
      assert_int_equal(read_records(&all), cases[k].processes);
      assert_int_equal(count_type(all, "process"), cases[k].processes);
      assert_int_equal(count_type(all, "end"), cases[k].processes);
      assert_int_equal(count_type(all, "call"), cases[k].calls);
      assert_int_equal(count_type(all, "copy"), cases[k].copies);
      assert_int_equal(count_type(all, "kernel"), cases[k].processes);
      assert_true(count_type(all, "write") >= 2 * cases[k].processes); /* a GPU also loads its code */
      assert_true(count_type(all, "memory") >= 3 * cases[k].processes);
      assert_true(count_type(all, "host") > 0);
      json_decref(all);
    }
}

/* Every run of a recording is counted. */
static void counts_of_kernels(void **state) {
  for (int i = 0; i < MACHINES; i++) {
    size_t at;
    unsigned counted = 0;
    json_t *all, *line;
    setenv("PROF_COUNTERS", groups_counter[i], 1);
    in_child(replays, &machines[i], "PROF", folder);
    read_records(&all);
    json_array_foreach(all, at, line) {
      if (!is_type(line, "counts")) continue;
      const json_t *c = json_array_get(json_object_get(line, "counters"), 0);
      assert_string_equal(json_string_value(json_object_get(line, "name")), "saxpy");
      assert_string_equal(json_string_value(json_object_get(c, "name")), groups_counter[i]);
      assert_int_equal(json_integer_value(json_object_get(c, "value")), N / SAXPY_ITEMS);
      counted++;
    }
    assert_int_equal(counted, REPLAYS);
    json_decref(all);
    unsetenv("PROF_COUNTERS");
  }
}

/* The trace has tracks of the memory, and of the counters: a value for the time of each kernel, then 0. */
static void trace_of_counters(void **state) {
  for (int i = 0; i < MACHINES; i++) {
    struct event e[EVENTS];
    json_t *all, *event;
    size_t at;
    unsigned memory = 0, values = 0, zeros = 0;
    char track[96];
    setenv("PROF_COUNTERS", groups_counter[i], 1);
    in_child(replays, &machines[i], "PROFILE", trace);
    unsetenv("PROF_COUNTERS");
    assert_int_equal(slices(&all, e), REPLAYS);
    json_array_foreach(all, at, event) {
      const char *name = json_string_value(json_object_get(event, "name"));
      if (strcmp(json_string_value(json_object_get(event, "ph")), "C") != 0) continue;
      snprintf(track, sizeof track, "%s memory", machines[i].name);
      memory += !strcmp(name, track);
      snprintf(track, sizeof track, "%s %s", machines[i].name, groups_counter[i]);
      if (strcmp(name, track) != 0) continue;
      const char *unit;
      json_t *value;
      json_object_foreach(json_object_get(event, "args"), unit, value) {
        values += json_integer_value(value) == N / SAXPY_ITEMS;
        zeros += !json_integer_value(value);
      }
    }
    assert_true(memory >= 1);
    assert_int_equal(values, REPLAYS);
    assert_int_equal(zeros, REPLAYS);
    json_decref(all);
  }
}

/* Runs kernels with PROF_COUNTERS = names and without a record. Standard error must say why nothing is counted. */
static void expect_uncounted(const struct machine *m, const char *names, const char *why) {
  char text[4096];
  setenv("PROF_COUNTERS", names, 1);
  in_child(replays, m, "PROFILE", trace);
  unsetenv("PROF_COUNTERS");
  FILE *f = fopen(lines, "r");
  assert_non_null(f);
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  fclose(f);
  if (!strstr(text, why)) fail_msg("%s: no \"%s\" in \"%s\"", m->name, why, text);
}

static void names_counters_that_do_not_count(void **state) {
  for (int i = 0; i < MACHINES; i++) expect_uncounted(&machines[i], "NO_SUCH_COUNTER", "no counter NO_SUCH_COUNTER");
}

static int missing_folder(const struct machine *m) {
  db_device *dev = db_open(m->name);
  if (!dev || db_queue_new(dev, DB_QUEUE_COMPUTE)) return 1;
  if (!strstr(db_error(), "PROF=/no/such/folder: No such file or directory")) return 2;
  db_close(dev);
  return 0;
}
static void record_in_a_missing_folder(void **state) {
  in_child(missing_folder, &machines[0], "PROF", "/no/such/folder");
}

static void trace_on_a_full_disk(void **state) { in_child(full_disk, &machines[0], "PROFILE", "/dev/full"); }

static int make_folder(void **state) {
  if (!mkdtemp(folder)) return -1;
  snprintf(trace, sizeof trace, "%s/t.json", folder);
  snprintf(lines, sizeof lines, "%s/lines", folder);
  return 0;
}

static int remove_folder(void **state) {
  unlink(trace);
  unlink(lines);
  return rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(trace_of_two_kernels_and_a_copy),
      cmocka_unit_test(trace_of_replays),
      cmocka_unit_test(trace_of_a_run_released_late),
      cmocka_unit_test(trace_of_host_work),
      cmocka_unit_test(reports_each_command),
      cmocka_unit_test(reports_nothing_by_default),
      cmocka_unit_test(trace_on_a_full_disk),
      cmocka_unit_test(records_of_processes),
      cmocka_unit_test(record_after_exec),
      cmocka_unit_test(counts_of_kernels),
      cmocka_unit_test(trace_of_counters),
      cmocka_unit_test(names_counters_that_do_not_count),
      cmocka_unit_test(record_in_a_missing_folder),
  };
  return cmocka_run_group_tests_name("profile", tests, make_folder, remove_folder);
}
