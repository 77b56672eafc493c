/* doorbell run --thread-trace: the files of a thread trace, one per shader engine, and its counts in a record. */
#include "run.h"
#include "../prof/code.h"
#include "../../hcq/profile.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_PER_ENGINE = 32 << 20 };

db_thread_trace *run_trace_open(const struct command *self, db_device *dev) {
  db_thread_trace *t = db_thread_trace_new(dev, BYTES_PER_ENGINE);
  if (!t) fail_work(self, "--thread-trace: %s", db_error());
  return t;
}

void run_trace_path(char path[RUN_TRACE_PATH], const char *prefix, unsigned engine) {
  snprintf(path, RUN_TRACE_PATH, "%s.se%u.sqtt", prefix, engine);
}

static int save_engine(const struct command *self, const db_thread_trace *t, const char *prefix, unsigned engine,
                       uint64_t *lost) {
  char path[RUN_TRACE_PATH];
  size_t size;
  void *bytes = db_thread_trace_read(t, engine, &size, lost);
  if (!bytes) return fail_work(self, "--thread-trace: %s", db_error());
  run_trace_path(path, prefix, engine);
  struct replacement r;
  int err = replace_begin(&r, path);
  if (!err) err = replace_end(&r, fwrite(bytes, 1, size, r.file) == size);
  free(bytes);
  return err ? fail_work(self, "--thread-trace: %s: %s", path, strerror(-err)) : EXIT_DONE;
}

int run_trace_save(const struct command *self, const db_thread_trace *t, const char *prefix) {
  uint64_t all = 0, lost;
  for (unsigned i = 0; i < db_thread_trace_engines(t); i++) {
    int status = save_engine(self, t, prefix, i, &lost);
    if (status) return status;
    all += lost;
  }
  if (all)
    fprintf(stderr,
            "doorbell run: --thread-trace: the memory of %d MiB per shader engine was full; %llu packets lost\n",
            BYTES_PER_ENGINE >> 20, (unsigned long long)all);
  return EXIT_DONE;
}

/* ---- the record ---- */

/* Decodes the trace of an engine, and adds its instructions. The first engine's trace says how to disassemble. */
static int count_engine(const db_thread_trace *t, unsigned engine, const char *kernel, const void *code, size_t size,
                        struct prof_code *c, struct prof_line **lines) {
  struct sqtt_reader r;
  struct sqtt_trace trace = {0};
  uint64_t lost;
  size_t n;
  void *bytes = db_thread_trace_read(t, engine, &n, &lost);
  if (!bytes) return -1;
  int err = sqtt_open(&r, bytes, n);
  if (!err && !*lines) {
    err = prof_code_elf(c, code, size, kernel, r.layout);
    if (!err && !(*lines = prof_lines_new(c))) err = -1;
  }
  if (!err) err = sqtt_decode(&trace, bytes, n, &c->code, 1);
  if (!err) prof_lines_add(*lines, &trace);
  sqtt_free(&trace);
  free(bytes);
  return err;
}

/* The instructions from the entry to the last one that was executed. */
static json_t *rows_json(const struct prof_code *c, const struct prof_line *lines) {
  json_t *rows = json_array();
  uint32_t last = 0;
  for (uint32_t i = 0; i < c->code.size / 4; i++)
    if (lines[i].count) last = i + 1;
  for (uint32_t i = c->code.entry / 4; i < last; i++) {
    const struct prof_line *l = &lines[i];
    if (!c->text[i]) continue;
    double duration = l->timed ? (double)l->duration / (double)l->timed : NAN;
    json_array_append_new(rows, json_pack("[I, o, o, o, o]", (json_int_t)c->address + (json_int_t)i * 4,
                                          c->code.at[i].silent ? json_null() : json_integer((json_int_t)l->count),
                                          c->code.at[i].silent ? json_null() : json_integer((json_int_t)l->stall),
                                          json_finite(duration), json_text(c->text[i])));
  }
  return rows;
}

int run_trace_record(const struct command *self, const db_thread_trace *t, db_device *dev, const char *kernel,
                     const void *code, size_t size) {
  struct prof_code c = {0};
  struct prof_line *lines = NULL;
  int err = 0;
  if (!atomic_load(&hcq_recorded)) return EXIT_DONE;
  for (unsigned i = 0; i < db_thread_trace_engines(t) && !err; i++)
    err = count_engine(t, i, kernel, code, size, &c, &lines);
  if (!err)
    hcq_record_line(
        "lines", dev,
        json_pack("{s:o, s:s, s:[s, s, s], s:o}", "name", json_text(kernel), "source",
                  "Thread trace of the last launch: the waves of one SIMD of each shader engine. Stalls are "
                  "sums of clocks, latencies are means.",
                  "columns", "executed", "stall", "latency", "rows", rows_json(&c, lines)));
  free(lines);
  prof_code_free(&c);
  return err ? fail_work(self, "--thread-trace: %s", db_error()) : EXIT_DONE;
}
