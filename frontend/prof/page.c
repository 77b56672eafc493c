/* Writes the data of the HTML page (page/data.js reads them): the report, the events of all tracks in columns, and what
 * the record has about the kernels' code. */
#include "../../hcq/json.h"
#include "peaks.h"
#include "prof.h"
#include <inttypes.h>
#include <string.h>

enum { DIGITS = 9 };

static void write_json(FILE *f, const char *name, const json_t *v) {
  fprintf(f, ",\"%s\":", name);
  if (json_dumpf(v, f, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(DIGITS))) fputs("null", f);
}

/* ---- tracks ---- */

/* Differences are short and repeat, so they compress well. */
static void write_track(FILE *f, const struct prof_session *s, const struct prof_track *t, uint64_t start) {
  static const char *const kinds[] = {"kernels", "copies", "host"};
  uint64_t before = start;
  fprintf(f, "{\"kind\":\"%s\",\"process\":%" PRId64 ",\"number\":%" PRIu64 ",\"device\":", kinds[t->kind],
          s->processes[t->process].pid, t->number);
  if (t->device)
    json_quote(f, t->device);
  else
    fputs("null", f);
  fputs(",\"gap\":[", f);
  for (size_t i = 0; i < t->nevents; before = t->events[i++].begin_ns)
    fprintf(f, "%s%" PRId64, i ? "," : "", (int64_t)(t->events[i].begin_ns - before));
  fputs("],\"ns\":[", f);
  for (size_t i = 0; i < t->nevents; i++) fprintf(f, "%s%" PRIu64, i ? "," : "", t->events[i].ns);
  fputs("],\"name\":[", f);
  for (size_t i = 0; i < t->nevents; i++) fprintf(f, "%s%" PRIu32, i ? "," : "", t->events[i].name);
  if (t->kind == PROF_TRACK_COPIES) fputs("],\"bytes\":[", f);
  for (size_t i = 0; t->kind == PROF_TRACK_COPIES && i < t->nevents; i++)
    fprintf(f, "%s%" PRIu64, i ? "," : "", t->events[i].bytes);
  fputs("]}", f);
}

static void write_tracks(FILE *f, const struct prof_session *s, uint64_t start) {
  fputs(",\"tracks\":[", f);
  for (unsigned i = 0; i < s->ntracks; i++) {
    if (i) fputc(',', f);
    write_track(f, s, &s->tracks[i], start);
  }
  fputc(']', f);
}

/* ---- processes and machines ---- */

/* When the first process began. */
static uint64_t session_start(const struct prof_session *s) {
  uint64_t start = UINT64_MAX;
  for (unsigned i = 0; i < s->nprocesses; i++)
    if (!s->processes[i].pass && s->processes[i].begin_ns < start) start = s->processes[i].begin_ns;
  return start;
}

static json_t *processes_json(const struct prof_session *s, uint64_t start) {
  json_t *list = json_array();
  for (unsigned i = 0; i < s->nprocesses; i++) {
    const struct prof_process *p = &s->processes[i];
    if (p->pass) continue;
    uint64_t end = p->end_ns > start ? p->end_ns - start : 0;
    json_array_append_new(list,
                          json_pack("{s:I, s:I, s:I, s:I}", "pid", (json_int_t)p->pid, "rank", (json_int_t)p->rank,
                                    "begin_ns", (json_int_t)(p->begin_ns - start), "end_ns", (json_int_t)end));
  }
  return list;
}

/* The roofs and limits of each device, by its name. */
static json_t *machines_json(const struct prof_session *s) {
  json_t *machines = json_object();
  for (unsigned i = 0; i < s->nprocesses; i++)
    for (unsigned k = 0; k < s->processes[i].ndevices; k++) {
      const struct prof_device *d = &s->processes[i].devices[k];
      struct peaks p;
      json_t *unit = prof_occupancy_limits(d->arch), *roofs = NULL;
      if (peaks_load(&p, d->name, d->arch, d->description)) roofs = peaks_json(&p);
      json_object_set_new(machines, d->name,
                          json_pack("{s:o, s:o, s:o}", "arch", json_text(d->arch), "peaks", roofs ? roofs : json_null(),
                                    "unit", unit ? unit : json_null()));
    }
  return machines;
}

/* ---- code ---- */

/* Finds or adds the entry of a kernel. */
static json_t *code_entry(json_t *list, json_t *by_key, const char *arch, const char *name) {
  json_t *key = json_pack("s++", arch, "\n", name);
  json_t *entry = json_object_get(by_key, json_string_value(key));
  if (!entry) {
    entry = json_pack("{s:s, s:s}", "arch", arch, "name", name);
    json_object_set(by_key, json_string_value(key), entry);
    json_array_append_new(list, entry);
  }
  json_decref(key);
  return entry;
}

/* Joins the lines about one kernel: texts of how it was compiled, and counts beside its instructions. */
static json_t *code_json(const struct prof_session *s) {
  size_t i;
  json_t *line, *list = json_array(), *by_key = json_object();
  json_array_foreach(s->code, i, line) {
    const char *arch = json_string_value(json_object_get(line, "arch"));
    const char *name = json_string_value(json_object_get(line, "name"));
    if (!name) continue;
    json_t *entry = code_entry(list, by_key, arch, name);
    bool counted = json_object_get(line, "rows") != NULL;
    json_object_set(entry, counted ? "lines" : "texts", counted ? line : json_object_get(line, "texts"));
  }
  json_decref(by_key);
  return list;
}

void prof_page_write(FILE *f, const struct prof_session *s, const json_t *report) {
  uint64_t start = session_start(s);
  json_t *processes = processes_json(s, start), *machines = machines_json(s), *code = code_json(s);
  fputs("{\"version\":1", f);
  write_json(f, "report", report);
  write_json(f, "names", s->names);
  write_json(f, "processes", processes);
  write_json(f, "machines", machines);
  write_json(f, "code", code);
  write_json(f, "schedules", s->schedules);
  write_tracks(f, s, start);
  fputc('}', f);
  json_decref(processes);
  json_decref(machines);
  json_decref(code);
}
