/* Makes a report of a session: sums by kernel, as JSON (README.md lists the fields). */
#define _GNU_SOURCE
#include "../../hcq/error.h"
#include "../../hcq/hcq.h"
#include "../../hcq/json.h"
#include "metrics.h"
#include "peaks.h"
#include "prof.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- values ---- */

static void set_number(json_t *o, const char *name, double v) {
  json_object_set_new(o, name, isfinite(v) ? json_real(v) : json_null());
}
static void set_count(json_t *o, const char *name, uint64_t v) {
  json_object_set_new(o, name, json_integer((json_int_t)v));
}
static void set_text(json_t *o, const char *name, const char *s) {
  json_object_set_new(o, name, s ? json_text(s) : json_null());
}
static void set_dimensions(json_t *o, const char *name, const uint32_t v[3]) {
  json_object_set_new(o, name, json_pack("[i, i, i]", (int)v[0], (int)v[1], (int)v[2]));
}

static void set_stats(json_t *o, const struct prof_stats *s) {
  set_count(o, "calls", s->n);
  set_number(o, "total_ns", s->total);
  set_number(o, "min_ns", s->least);
  set_number(o, "mean_ns", s->mean);
  set_number(o, "max_ns", s->most);
  set_number(o, "deviation_ns", prof_stats_deviation(s));
}

/* ---- kernels ---- */

static const struct prof_device *find_device(const struct prof_session *s, const char *name) {
  for (unsigned i = 0; i < s->nprocesses; i++)
    for (unsigned k = 0; k < s->processes[i].ndevices; k++)
      if (!strcmp(s->processes[i].devices[k].name, name)) return &s->processes[i].devices[k];
  return NULL;
}

/* The times of a kernel. If it was counted, they are those of the kernel alone, because the commands around it that
 * start and read the counters take time. */
static const struct prof_stats *times_of(const struct prof_kernel *k) { return k->alone.n ? &k->alone : &k->calls; }

static json_t *counters_json(const struct prof_kernel *k) {
  json_t *all = json_object();
  for (unsigned i = 0; i < k->ncounters; i++) {
    const struct prof_counter *c = &k->counters[i];
    json_object_set_new(all, c->name,
                        json_pack("{s:f, s:o, s:o, s:f, s:I}", "mean", c->values.mean, "unit", json_text(c->unit),
                                  "source", json_text(c->source), "total", c->values.total, "calls",
                                  (json_int_t)c->values.n));
  }
  return all;
}

/* How near the kernel is to the machine's roofs, if they have been measured. */
static void set_roofline(json_t *o, const struct prof_kernel *k, const struct peaks *p) {
  struct peaks_roof roof = {0};
  double seconds = times_of(k)->total * 1e-9, calls = (double)k->calls.n;
  bool known =
      p && k->rated && seconds > 0 && peaks_roof(p, k->flops / seconds, k->bytes / seconds, k->bytes / calls, &roof);
  set_number(o, "roofline", known ? roof.share : NAN);
  set_text(o, "limit", known ? roof.limit : NULL);
}

static json_t *kernel_json(const struct prof_kernel *k, const struct prof_device *d, const struct peaks *p,
                           double total) {
  const struct prof_stats *s = times_of(k);
  json_t *o = json_object();
  struct prof_occupancy occupancy;
  set_text(o, "device", k->device);
  set_text(o, "name", k->name);
  set_stats(o, s);
  set_number(o, "share", total > 0 ? s->total / total : 0);
  set_number(o, "flops", k->rated ? k->flops : NAN);
  set_number(o, "bytes", k->rated ? k->bytes : NAN);
  set_number(o, "gflops", k->rated && s->total > 0 ? k->flops / s->total : NAN);
  set_number(o, "gb_per_s", k->rated && s->total > 0 ? k->bytes / s->total : NAN);
  set_roofline(o, k, p);
  bool known = d && prof_occupancy(d->arch, k, &occupancy);
  set_number(o, "occupancy", known ? occupancy.share : NAN);
  set_text(o, "occupancy_limit", known ? occupancy.limit : NULL);
  set_dimensions(o, "grid", k->grid);
  set_dimensions(o, "block", k->block);
  set_count(o, "registers", k->registers);
  set_count(o, "local_bytes", k->local_bytes);
  set_count(o, "private_bytes", k->private_bytes);
  set_count(o, "wave", k->wave);
  set_number(o, "overhead_ns", k->alone.n && k->calls.n ? k->calls.mean - k->alone.mean : NAN);
  json_object_set_new(o, "counters", counters_json(k));
  json_object_set_new(o, "metrics", metrics_json(d ? d->arch : "", k, s->mean * 1e-9));
  return o;
}

/* Longest total time first. */
static int by_total(const void *a, const void *b) {
  double x = times_of(a)->total, y = times_of(b)->total;
  return (x < y) - (x > y);
}

static json_t *kernels_json(const struct prof_session *s) {
  json_t *list = json_array();
  const struct prof_device *loaded = NULL; /* whose roofs p has, if they were measured */
  struct peaks p;
  bool measured = false;
  double total = 0;
  if (s->nkernels) qsort(s->kernels, s->nkernels, sizeof *s->kernels, by_total);
  for (unsigned i = 0; i < s->nkernels; i++) total += times_of(&s->kernels[i])->total;
  for (unsigned i = 0; i < s->nkernels; i++) {
    const struct prof_kernel *k = &s->kernels[i];
    const struct prof_device *d = find_device(s, k->device);
    if (d && d != loaded) measured = peaks_load(&p, d->name, d->arch, d->description), loaded = d;
    json_array_append_new(list, kernel_json(k, d, d && measured ? &p : NULL, total));
  }
  return list;
}

/* ---- the rest ---- */

static json_t *transfers_json(const struct prof_session *s) {
  json_t *list = json_array();
  for (unsigned i = 0; i < s->ntransfers; i++) {
    const struct prof_transfer *t = &s->transfers[i];
    json_t *o = json_object();
    set_text(o, "device", t->device);
    set_text(o, "kind", t->kind);
    set_stats(o, &t->calls);
    set_number(o, "bytes", t->bytes);
    set_number(o, "gb_per_s", t->calls.total > 0 ? t->bytes / t->calls.total : NAN);
    json_array_append_new(list, o);
  }
  return list;
}

static json_t *host_json(const struct prof_session *s) {
  json_t *list = json_array();
  for (unsigned i = 0; i < PROF_HOST_WORKS; i++) {
    if (!s->host[i].n) continue;
    json_t *o = json_object();
    set_text(o, "work", prof_host_works[i]);
    set_stats(o, &s->host[i]);
    json_array_append_new(list, o);
  }
  return list;
}

static json_t *processes_json(const struct prof_session *s) {
  json_t *list = json_array();
  for (unsigned i = 0; i < s->nprocesses; i++) {
    const struct prof_process *p = &s->processes[i];
    uint64_t ns = p->end_ns > p->begin_ns ? p->end_ns - p->begin_ns : 0;
    json_t *o = json_pack("{s:I, s:I, s:i, s:b, s:f}", "pid", (json_int_t)p->pid, "rank", (json_int_t)p->rank, "pass",
                          (int)p->pass, "complete", p->complete, "seconds", (double)ns * 1e-9);
    json_object_set(o, "command", p->command);
    json_array_append_new(list, o);
  }
  return list;
}

static json_t *devices_json(const struct prof_session *s) {
  json_t *list = json_array();
  for (unsigned i = 0; i < s->nprocesses; i++)
    for (unsigned k = 0; k < s->processes[i].ndevices && !s->processes[i].pass; k++) {
      const struct prof_device *d = &s->processes[i].devices[k];
      json_t *samples = json_array();
      for (size_t n = 0; n < d->nsamples; n++)
        json_array_append_new(samples, json_pack("[I, I]", (json_int_t)(d->samples[n].at_ns - s->processes[i].begin_ns),
                                                 (json_int_t)d->samples[n].bytes));
      json_array_append_new(list, json_pack("{s:o, s:o, s:o, s:I, s:I, s:o}", "name", json_text(d->name), "arch",
                                            json_text(d->arch), "description", json_text(d->description), "pid",
                                            (json_int_t)s->processes[i].pid, "peak_bytes", (json_int_t)d->peak,
                                            "memory", samples));
    }
  return list;
}

json_t *prof_report(const struct prof_session *s) {
  return json_pack("{s:i, s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:O, s:O}", "version", PROF_VERSION, "doorbell",
                   DB_VERSION, "passes", (int)s->passes, "processes", processes_json(s), "devices", devices_json(s),
                   "kernels", kernels_json(s), "copies", transfers_json(s), "host", host_json(s), "emulated",
                   s->emulated, "notes", s->notes);
}

static json_t *load_file(const char *path) {
  json_error_t error;
  json_t *report = json_load_file(path, 0, &error);
  if (!report) return db_fail_null(-EINVAL, "%s: %s", path, error.text);
  json_int_t version = json_integer_value(json_object_get(report, "version"));
  if (version == PROF_VERSION && json_is_array(json_object_get(report, "kernels"))) return report;
  json_decref(report);
  return db_fail_null(-EINVAL, "%s: not a report of version %d", path, PROF_VERSION);
}

json_t *prof_report_load(const char *path) {
  struct prof_session s;
  struct stat st;
  if (stat(path, &st)) return db_fail_null(-errno, "%s: %s", path, strerror(errno));
  if (!S_ISDIR(st.st_mode)) return load_file(path);
  json_t *report = prof_session_read(&s, path) ? NULL : prof_report(&s);
  prof_session_free(&s);
  return report;
}
