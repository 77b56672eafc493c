/* PROFILE and DEBUG=2: which commands ran and when, as a trace file and as lines. profiling/record.c writes the same
 * commands to the record.
 *
 * The file uses the trace event format, which Perfetto and chrome://tracing read, with one track per queue. A kernel is
 * a slice with its GFLOPS, a copy is a slice with its bytes. If a command waited for one on another queue, an arrow
 * leads from the awaited command to the waiting one. Threads of the host have tracks with what they do for the devices.
 * Counter tracks show each device's memory, and for each kernel what PROF_COUNTERS asks to count. The file is complete
 * JSON after every report: the next report overwrites its closing bracket. */
#include "profile.h"
#include "error.h"
#include "json.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_TRACKS = 512, TRACK_NAME = 176 };

atomic_bool hcq_host_timed;
const char *const hcq_host_works[] = {"schedule", "compile", "submit", "wait"};

static struct {
  pthread_mutex_t lock; /* only record.lock is taken while it is held */
  FILE *file;
  long end; /* file offset after the last event */
  bool any, left;
  int error; /* of writing, not reported yet */
  unsigned ntracks, arrows;
  char track[MOST_TRACKS][TRACK_NAME];
  unsigned lines; /* printed so far */
  double total_us;
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the environment ---- */

/* This process's rank if it is one of several, from the variables that Open MPI's mpirun, PMIx launchers, MPICH and
 * Slurm set; otherwise -1. */
static int launched_rank(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    const char *s = getenv(names[i]);
    if (s && *s) return atoi(s);
  }
  return -1;
}

/* Inserts the rank in the file name, x.json becomes x.2.json, so each process writes its own file. "%p" becomes the
 * number of the process. */
static const char *path_of(const char *path, int rank) {
  static char text[4096];
  const char *end = strstr(path, ".json"), *process = strstr(path, "%p");
  int base = end && !end[5] ? (int)(end - path) : (int)strlen(path);
  if (process)
    snprintf(text, sizeof text, "%.*s%ld%s", (int)(process - path), path, (long)getpid(), process + 2);
  else if (rank < 0)
    snprintf(text, sizeof text, "%s", path);
  else
    snprintf(text, sizeof text, "%.*s.%d%s", base, path, rank, path + base);
  return text;
}

static struct hcq_profile_env asked;

static const char *variable(const char *value) { return value && *value ? value : NULL; }

static void read_environment(void) {
  const char *profile = getenv("PROFILE"), *debug = getenv("DEBUG"), *pass = getenv("PROF_PASS");
  asked.record = variable(getenv("PROF"));
  asked.counters = variable(getenv("PROF_COUNTERS"));
  asked.pass = pass ? (unsigned)strtoul(pass, NULL, 10) : 0;
  char *end = NULL;
  asked.rank = launched_rank();
  asked.lines = debug && *debug && strtol(debug, &end, 10) >= 2 && !*end;
  if (profile && *profile && strcmp(profile, "0"))
    asked.path = path_of(strcmp(profile, "1") ? profile : "doorbell.trace.json", asked.rank);
}

const struct hcq_profile_env *hcq_profile_env(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_environment);
  return &asked;
}

static unsigned process(void) { return asked.rank < 0 ? 1 : 1 + (unsigned)asked.rank; }

/* ---- the file; called with trace.lock held ---- */

/* Writes the closing bracket. After an error nothing is written. */
static void close_list(void) {
  fputs("\n]\n", trace.file);
  if (!fflush(trace.file) && !ferror(trace.file)) return;
  trace.error = errno ? -errno : -EIO;
  fclose(trace.file);
  trace.file = NULL;
  trace.left = true;
}

/* Returns an error of writing the file that has not been reported. */
static int report_error(void) {
  int err = trace.error;
  trace.error = 0;
  return err ? db_fail(err, "PROFILE=%s: %s", asked.path, strerror(-err)) : 0;
}

/* Call begin_events and end_events before and after writing events. begin_events returns false if there is no file. */
static bool begin_events(void) {
  if (trace.file) fseek(trace.file, trace.end, SEEK_SET);
  return trace.file;
}
static void end_events(void) {
  trace.end = ftell(trace.file);
  close_list();
}

static int open_file(void) {
  if (trace.file || trace.left || !asked.path) return 0;
  trace.file = fopen(asked.path, "we");
  if (!trace.file) return db_fail(-errno, "PROFILE=%s: %s", asked.path, strerror(errno));
  fputs("[", trace.file);
  trace.end = ftell(trace.file);
  atomic_store(&hcq_host_timed, true);
  close_list();
  return 0;
}

static void begin_event(void) {
  fputs(trace.any ? ",\n" : "\n", trace.file);
  trace.any = true;
}

/* Returns the number of a track and writes its name when it is new. Returns 0 if there are too many tracks. */
static unsigned track_named(const char name[TRACK_NAME]) {
  for (unsigned i = 0; i < trace.ntracks; i++)
    if (!strcmp(trace.track[i], name)) return i + 1;
  if (trace.ntracks == MOST_TRACKS) return 0;
  strcpy(trace.track[trace.ntracks++], name);
  begin_event();
  fprintf(trace.file, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":", process(),
          trace.ntracks);
  json_quote(trace.file, name);
  fputs("}}", trace.file);
  return trace.ntracks;
}

static unsigned track_of(const struct hcq_event *e) {
  static const char *const kinds[] = {"compute", "copy", "world"};
  char name[TRACK_NAME];
  int n = snprintf(name, sizeof name, "%s %s", db_device_name(e->device), kinds[e->kind]);
  if (e->queue && n > 0 && (size_t)n < sizeof name) snprintf(name + n, sizeof name - (size_t)n, " %u", e->queue);
  return track_named(name);
}

static double microseconds(uint64_t ns) { return (double)ns * 1e-3; }

static void write_slice(const struct hcq_event *e) {
  static const char *const categories[] = {"kernel", "copy", "exchange"};
  unsigned track = track_of(e);
  double ns = (double)(e->end_ns - e->begin_ns);
  begin_event();
  fputs("{\"ph\":\"X\",\"name\":", trace.file);
  json_quote(trace.file, e->name);
  fprintf(trace.file, ",\"cat\":\"%s\",\"pid\":%u,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,\"args\":{", categories[e->kind],
          process(), track, microseconds(e->begin_ns), ns * 1e-3);
  if (!e->uncounted)
    fprintf(trace.file, "\"bytes\":%llu,\"GB/s\":%.3f", (unsigned long long)e->bytes,
            ns > 0 ? (double)e->bytes / ns : 0);
  if (!e->uncounted && e->kind == HCQ_EVENT_KERNEL)
    fprintf(trace.file, ",\"GFLOPS\":%.3f,", ns > 0 ? e->flops / ns : 0);
  if (e->kind == HCQ_EVENT_KERNEL) fprintf(trace.file, "\"arguments\":%u", e->args);
  fputs("}}", trace.file);
}

static void write_arrow(const struct hcq_event *from, const struct hcq_event *to) {
  trace.arrows++;
  for (unsigned end = 0; end < 2; end++) {
    unsigned track = track_of(end ? to : from);
    begin_event();
    fprintf(trace.file,
            "{\"ph\":\"%s\",\"name\":\"wait\",\"cat\":\"wait\",\"id\":%u,\"pid\":%u,\"tid\":%u,\"ts\":%.3f%s}",
            end ? "f" : "s", trace.arrows, process(), track, microseconds(end ? to->begin_ns : from->end_ns),
            end ? ",\"bp\":\"e\"" : "");
  }
}

/* What a thread of the host did. */
static void write_host(const struct hcq_host_event *e) {
  char track[TRACK_NAME], name[256];
  snprintf(track, sizeof track, "host thread %ld", e->thread);
  snprintf(name, sizeof name, *e->name ? "%s: %s" : "%s", e->work, e->name);
  unsigned number = track_named(track);
  begin_event();
  fputs("{\"ph\":\"X\",\"name\":", trace.file);
  json_quote(trace.file, name);
  fprintf(trace.file, ",\"cat\":\"host\",\"pid\":%u,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,\"args\":{", process(), number,
          microseconds(e->begin_ns), microseconds(e->end_ns - e->begin_ns));
  if (e->device) fprintf(trace.file, "\"bytes\":%llu", (unsigned long long)e->bytes);
  fputs("}}", trace.file);
}

/* Sets the value of a counter track from a time on. */
static void write_counter(const db_device *dev, const char *name, const char *unit, uint64_t at_ns, uint64_t value) {
  char track[256];
  snprintf(track, sizeof track, "%s %s", db_device_name(dev), name);
  begin_event();
  fputs("{\"ph\":\"C\",\"name\":", trace.file);
  json_quote(trace.file, track);
  fprintf(trace.file, ",\"pid\":%u,\"ts\":%.3f,\"args\":{", process(), microseconds(at_ns));
  json_quote(trace.file, unit);
  fprintf(trace.file, ":%llu}}", (unsigned long long)value);
}

static int write_file(const struct hcq_event *events, size_t n, const struct hcq_event_wait *waits, size_t nwaits) {
  int err = open_file();
  if (err) return err;
  if (begin_events()) {
    for (size_t i = 0; i < n; i++) write_slice(&events[i]);
    for (size_t i = 0; i < nwaits; i++) write_arrow(&events[waits[i].from], &events[waits[i].to]);
    end_events();
  }
  return report_error();
}

/* ---- lines; called with trace.lock held ---- */

static void print_line(const struct hcq_event *e, uint64_t allocated) {
  double us = (double)(e->end_ns - e->begin_ns) * 1e-3;
  char rank[16] = "", rates[64] = "";
  trace.total_us += us;
  if (asked.rank >= 0) snprintf(rank, sizeof rank, "%d: ", asked.rank);
  if (!e->uncounted)
    snprintf(rates, sizeof rates, " (%9.2f GFLOPS %8.2f GB/s)", us > 0 ? e->flops / us * 1e-3 : 0,
             us > 0 ? (double)e->bytes / us * 1e-3 : 0);
  fprintf(stderr, "*** %s%-15s %5u %-32s arg %2u  mem %6.3f GB  tm %9.2fus/%9.2fms%s\n", rank,
          db_device_name(e->device), ++trace.lines, e->name, e->args, (double)allocated * 1e-9, us,
          trace.total_us * 1e-3, rates);
}

/* ---- all of them ---- */

int hcq_profile_open(void) {
  if (!hcq_profile_files()) return 0;
  pthread_mutex_lock(&trace.lock);
  int err = open_file();
  if (!err) err = report_error();
  if (!err) err = hcq_record_open();
  pthread_mutex_unlock(&trace.lock);
  return err;
}

void hcq_profile_open_early(void) {
  if (!hcq_profile_files()) return;
  pthread_mutex_lock(&trace.lock);
  open_file();
  hcq_record_open();
  pthread_mutex_unlock(&trace.lock);
}

int hcq_profile_events(const struct hcq_event *events, size_t n, const struct hcq_event_wait *waits, size_t nwaits) {
  hcq_profile_env();
  for (size_t i = 0; i < n && asked.lines; i++) {
    struct db_device_counters counters;
    db_device_counters(events[i].device, &counters);
    pthread_mutex_lock(&trace.lock);
    print_line(&events[i], counters.bytes_allocated);
    pthread_mutex_unlock(&trace.lock);
  }
  if (!hcq_profile_files()) return 0;
  pthread_mutex_lock(&trace.lock);
  int err = write_file(events, n, waits, nwaits), recorded = hcq_record_events(events, n);
  pthread_mutex_unlock(&trace.lock);
  return err ? err : recorded;
}

int hcq_profile_counts(const struct hcq_counts *c) {
  pthread_mutex_lock(&trace.lock);
  int err = open_file();
  if (begin_events()) {
    for (unsigned i = 0; i < c->n; i++) {
      write_counter(c->device, c->counts[i].name, c->counts[i].unit, c->begin_ns, c->counts[i].sum);
      write_counter(c->device, c->counts[i].name, c->counts[i].unit, c->end_ns, 0);
    }
    end_events();
  }
  if (!err) err = report_error();
  int recorded = hcq_record_counts(c);
  pthread_mutex_unlock(&trace.lock);
  return err ? err : recorded;
}

void hcq_profile_memory(const db_device *dev, uint64_t bytes) {
  pthread_mutex_lock(&trace.lock);
  if (begin_events()) {
    write_counter(dev, "memory", "bytes", hcq_now_ns(), bytes);
    end_events();
  }
  hcq_record_memory(dev, bytes);
  pthread_mutex_unlock(&trace.lock);
}

/* Writes to the files what this thread has done. */
static void host_did(struct hcq_host_event e) {
  e.end_ns = hcq_now_ns();
  e.thread = (long)syscall(SYS_gettid);
  pthread_mutex_lock(&trace.lock);
  if (begin_events()) {
    write_host(&e);
    end_events();
  }
  hcq_record_host(&e);
  pthread_mutex_unlock(&trace.lock);
}

void hcq_host_worked(enum hcq_host_work work, const char *name, uint64_t begin_ns) {
  host_did((struct hcq_host_event){.work = hcq_host_works[work], .name = name, .begin_ns = begin_ns});
}

void hcq_host_copied(const db_device *dev, bool is_write, uint64_t bytes, uint64_t begin_ns) {
  const char *work = is_write ? "write" : "read";
  host_did((struct hcq_host_event){.work = work, .name = "", .device = dev, .bytes = bytes, .begin_ns = begin_ns});
}

void hcq_profile_before_fork(void) {
  pthread_mutex_lock(&trace.lock);
  hcq_record_before_fork();
}

void hcq_profile_after_fork(bool in_child) {
  hcq_record_after_fork(in_child);
  if (in_child) {
    atomic_store(&hcq_host_timed, false);
    trace.left |= trace.file != NULL;
    trace.file = NULL;
  }
  pthread_mutex_unlock(&trace.lock);
}
