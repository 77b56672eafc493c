/* PROFILE: a file of what ran and when, in the trace event format that Perfetto and chrome://tracing read.
 *
 * A track a queue; a kernel is a slice with its GFLOPS, a copy one with its bytes, and an arrow leads from what a queue waited for on another one to
 * what waited. The file is whole JSON after every realize: the next one writes over its closing bracket. */
#include "internal.h"
#include "json.h"
#include <errno.h>
#include <string.h>

enum { MOST_TRACKS = 4 * SLOTS };

static struct {
  FILE *file;
  long end;         /* of the last event */
  unsigned process; /* 1 and the rank */
  bool any, left;
  unsigned ntracks, arrows;
  char track[MOST_TRACKS][176];
} trace;

/* Ends the file as it is now. */
static int close_list(const char *path) {
  fputs("\n]\n", trace.file);
  if (!fflush(trace.file) && !ferror(trace.file)) return 0;
  int err = errno ? -errno : -EIO;
  fclose(trace.file);
  trace.file = NULL;
  trace.left = true; /* reported once: nothing is written any more */
  return db_fail(err, "PROFILE=%s: %s", path, strerror(-err));
}

int trace_open(const struct env *env) {
  if (trace.file || trace.left || !env->profile) return 0;
  trace.process = env->rank < 0 ? 1 : 1 + (unsigned)env->rank;
  trace.file = fopen(env->profile, "we");
  if (!trace.file) return db_fail(-errno, "PROFILE=%s: %s", env->profile, strerror(errno));
  fputs("[", trace.file);
  trace.end = ftell(trace.file);
  return close_list(env->profile);
}

void trace_leave(void) {
  trace.left |= trace.file != NULL;
  trace.file = NULL;
}

static void begin_event(void) {
  fputs(trace.any ? ",\n" : "\n", trace.file);
  trace.any = true;
}

/* The number of the queue's track, which is named when it is new; 0 when there are too many. */
static unsigned track_of(const struct report_item *item) {
  char name[176];
  const char *kind = item->kernel ? "compute" : item->exchange ? "world" : "copy";
  int n = snprintf(name, sizeof name, "%s %s", db_device_name(item->device), kind);
  if (item->queue && n > 0 && (size_t)n < sizeof name) snprintf(name + n, sizeof name - (size_t)n, " %u", item->queue);
  for (unsigned i = 0; i < trace.ntracks; i++)
    if (!strcmp(trace.track[i], name)) return i + 1;
  if (trace.ntracks == MOST_TRACKS) return 0;
  strcpy(trace.track[trace.ntracks++], name);
  begin_event();
  fprintf(trace.file, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":", trace.process,
          trace.ntracks);
  json_quote(trace.file, name);
  fputs("}}", trace.file);
  return trace.ntracks;
}

static double microseconds(uint64_t ns) { return (double)ns * 1e-3; }

static void write_slice(const struct report_item *item, const struct db_command *c) {
  unsigned track = track_of(item);
  double ns = (double)(c->end_ns - c->begin_ns);
  begin_event();
  fputs("{\"ph\":\"X\",\"name\":", trace.file);
  json_quote(trace.file, c->name);
  fprintf(trace.file, ",\"cat\":\"%s\",\"pid\":%u,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f",
          item->exchange ? "exchange"
          : c->is_copy   ? "copy"
                         : "kernel",
          trace.process, track, microseconds(c->begin_ns), ns * 1e-3);
  fprintf(trace.file, ",\"args\":{\"bytes\":%llu,\"GB/s\":%.3f", (unsigned long long)c->bytes,
          ns > 0 ? (double)c->bytes / ns : 0);
  if (!c->is_copy) fprintf(trace.file, ",\"GFLOPS\":%.3f,\"arguments\":%u", ns > 0 ? c->flops / ns : 0, c->args);
  fputs("}}", trace.file);
}

static void write_arrow(const struct report_item *from, const struct report_item *to, uint64_t from_ns,
                        uint64_t to_ns) {
  trace.arrows++;
  for (unsigned end = 0; end < 2; end++) {
    unsigned track = track_of(end ? to : from);
    begin_event();
    fprintf(trace.file,
            "{\"ph\":\"%s\",\"name\":\"wait\",\"cat\":\"wait\",\"id\":%u,\"pid\":%u,\"tid\":%u,\"ts\":%.3f%s}",
            end ? "f" : "s", trace.arrows, trace.process, track, microseconds(end ? to_ns : from_ns),
            end ? ",\"bp\":\"e\"" : "");
  }
}

int trace_write(const struct report *r, const struct db_command *commands) {
  const struct env *env;
  int err = env_get(&env);
  if (err || !trace.file) return err;
  fseek(trace.file, trace.end, SEEK_SET);
  for (size_t i = 0; i < r->n; i++) write_slice(&r->items[i], &commands[i]);
  for (size_t i = 0; i < r->nwaits; i++) {
    size_t from = r->waits[i].from, to = r->waits[i].to;
    write_arrow(&r->items[from], &r->items[to], commands[from].end_ns, commands[to].begin_ns);
  }
  trace.end = ftell(trace.file);
  return close_list(env->profile);
}
