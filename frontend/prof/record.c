/* Reads the records of processes, which hcq/profiling/record.c writes: one JSON object per line. */
#define _GNU_SOURCE
#include "../../hcq/error.h"
#include "../../hcq/json.h"
#include "prof.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const prof_host_works[PROF_HOST_WORKS] = {"schedule", "compile", "submit", "wait"};

/* ---- statistics: Welford's method (Technometrics 4, 1962) ---- */

void prof_stats_add(struct prof_stats *s, double v) {
  double d = v - s->mean;
  s->least = s->n && s->least < v ? s->least : v;
  s->most = s->n && s->most > v ? s->most : v;
  s->n++;
  s->total += v;
  s->mean += d / (double)s->n;
  s->squares += d * (v - s->mean);
}

double prof_stats_deviation(const struct prof_stats *s) { return s->n > 1 ? sqrt(s->squares / (double)(s->n - 1)) : 0; }

/* ---- fields ---- */

static uint64_t integer(const json_t *o, const char *name) {
  json_int_t v = json_integer_value(json_object_get(o, name));
  return v > 0 ? (uint64_t)v : 0;
}
static const char *text(const json_t *o, const char *name) {
  const char *s = json_string_value(json_object_get(o, name));
  return s ? s : "";
}
static void dimensions(const json_t *o, const char *name, uint32_t out[3]) {
  const json_t *list = json_object_get(o, name);
  for (size_t i = 0; i < 3; i++) out[i] = (uint32_t)json_integer_value(json_array_get(list, i));
}

static double duration(const json_t *o) {
  uint64_t begin = integer(o, "begin_ns"), end = integer(o, "end_ns");
  return end > begin ? (double)(end - begin) : 0;
}

/* ---- one record ---- */

struct reader {
  struct prof_session *s;
  const char *path;
  unsigned line;
  int process;      /* index; -1 before the first line */
  unsigned *kernel; /* index in the session of each kernel of the record */
  double *flops, *bytes;
  const char **device; /* its name, which belongs to the session */
  uint64_t *address;   /* of the first instruction */
  unsigned nkernels;
};

static struct prof_process *process_of(const struct reader *r) { return &r->s->processes[r->process]; }

static int malformed(const struct reader *r, const char *what) {
  return db_fail(-EINVAL, "%s:%u: %s", r->path, r->line, what);
}
static int no_memory(const struct reader *r) { return db_fail(-ENOMEM, "%s: out of memory", r->path); }

static int read_process(struct reader *r, json_t *o) {
  struct prof_session *s = r->s;
  if (r->process >= 0) return malformed(r, "a second line of type process");
  if (integer(o, "version") != PROF_VERSION)
    return db_fail(-ENOTSUP, "%s: not supported: a record of version %llu; this is version %d", r->path,
                   (unsigned long long)integer(o, "version"), PROF_VERSION);
  struct prof_process *more = realloc(s->processes, (s->nprocesses + 1) * sizeof *more);
  if (!more) return no_memory(r);
  s->processes = more;
  r->process = (int)s->nprocesses++;
  *process_of(r) = (struct prof_process){.pid = json_integer_value(json_object_get(o, "pid")),
                                         .rank = json_integer_value(json_object_get(o, "rank")),
                                         .pass = (unsigned)integer(o, "pass"),
                                         .begin_ns = integer(o, "begin_ns"),
                                         .command = json_incref(json_object_get(o, "command"))};
  return 0;
}

static int read_device(struct reader *r, json_t *o) {
  struct prof_process *p = process_of(r);
  if (integer(o, "id") != p->ndevices) return malformed(r, "the devices are not numbered in order");
  struct prof_device *more = realloc(p->devices, (p->ndevices + 1) * sizeof *more);
  if (!more) return no_memory(r);
  p->devices = more;
  struct prof_device *d = &p->devices[p->ndevices++];
  *d = (struct prof_device){
      strdup(text(o, "name")), strdup(text(o, "arch")), strdup(text(o, "description")), 0, NULL, 0};
  return d->name && d->arch && d->description ? 0 : no_memory(r);
}

static struct prof_device *device_of(const struct reader *r, const json_t *o) {
  uint64_t id = integer(o, "device");
  if (id < process_of(r)->ndevices) return &process_of(r)->devices[id];
  malformed(r, "an unknown device");
  return NULL;
}

/* ---- tracks ---- */

/* Returns the number of a name, or -1 if memory runs out. */
static json_int_t name_number(struct prof_session *s, const char *name) {
  const json_t *known = json_object_get(s->numbers, name);
  if (known) return json_integer_value(known);
  json_int_t next = (json_int_t)json_array_size(s->names);
  if (json_object_set_new_nocheck(s->numbers, name, json_integer(next))) return -1;
  return json_array_append_new(s->names, json_text(name)) ? -1 : next;
}

static struct prof_track *find_track(const struct reader *r, enum prof_track_kind kind, const char *device,
                                     uint64_t number) {
  struct prof_session *s = r->s;
  for (unsigned i = s->ntracks; i-- > 0;) {
    struct prof_track *t = &s->tracks[i];
    if (t->process == (unsigned)r->process && t->kind == kind && t->number == number && t->device == device) return t;
  }
  struct prof_track *more = realloc(s->tracks, (s->ntracks + 1) * sizeof *more);
  if (!more) return NULL;
  s->tracks = more;
  s->tracks[s->ntracks] = (struct prof_track){kind, (unsigned)r->process, device, number, NULL, 0};
  return &s->tracks[s->ntracks++];
}

static int keep_event(struct reader *r, enum prof_track_kind kind, const char *device, const json_t *o,
                      const char *name) {
  struct prof_track *t = find_track(r, kind, device, integer(o, device ? "queue" : "thread"));
  json_int_t number = name_number(r->s, name);
  if (!t || number < 0) return no_memory(r);
  if (!(t->nevents & (t->nevents - 1))) {
    struct prof_event *more = realloc(t->events, (t->nevents ? 2 * t->nevents : 1) * sizeof *more);
    if (!more) return no_memory(r);
    t->events = more;
  }
  t->events[t->nevents++] =
      (struct prof_event){integer(o, "begin_ns"), (uint64_t)duration(o), integer(o, "bytes"), (uint32_t)number};
  return 0;
}

/* ---- types of lines ---- */

/* Finds or adds the kernel with a name on a device. Returns -1 if memory runs out. */
static int find_kernel(struct prof_session *s, const char *device, const char *name) {
  for (unsigned i = s->nkernels; i-- > 0;)
    if (!strcmp(s->kernels[i].name, name) && !strcmp(s->kernels[i].device, device)) return (int)i;
  struct prof_kernel *more = realloc(s->kernels, (s->nkernels + 1) * sizeof *more);
  if (!more) return -1;
  s->kernels = more;
  s->kernels[s->nkernels] = (struct prof_kernel){.device = strdup(device), .name = strdup(name)};
  return (int)s->nkernels++;
}

enum { PLACE = 48 };
/* The key of a kernel in struct prof_session's addresses. */
static void print_place(char place[PLACE], int64_t pid, uint64_t address) {
  snprintf(place, PLACE, "%lld 0x%llx", (long long)pid, (unsigned long long)address);
}

static int read_kernel(struct reader *r, json_t *o) {
  const struct prof_device *d = device_of(r, o);
  if (!d) return -EINVAL;
  if (integer(o, "id") != r->nkernels) return malformed(r, "the kernels are not numbered in order");
  size_t n = r->nkernels + 1;
  unsigned *kernel = realloc(r->kernel, n * sizeof *kernel);
  if (kernel) r->kernel = kernel;
  double *flops = realloc(r->flops, n * sizeof *flops);
  if (flops) r->flops = flops;
  double *bytes = realloc(r->bytes, n * sizeof *bytes);
  if (bytes) r->bytes = bytes;
  const char **device = realloc(r->device, n * sizeof *device);
  if (device) r->device = device;
  uint64_t *address = realloc(r->address, n * sizeof *address);
  if (address) r->address = address;
  int at = kernel && flops && bytes && device && address ? find_kernel(r->s, d->name, text(o, "name")) : -1;
  if (at < 0) return no_memory(r);
  r->kernel[r->nkernels] = (unsigned)at;
  r->device[r->nkernels] = d->name;
  r->address[r->nkernels] = integer(o, "address");
  r->flops[r->nkernels] = json_number_value(json_object_get(o, "flops"));
  r->bytes[r->nkernels++] = json_number_value(json_object_get(o, "bytes"));
  struct prof_kernel *k = &r->s->kernels[at];
  k->rated = json_object_get(o, "flops") != NULL;
  char place[PLACE];
  print_place(place, process_of(r)->pid, r->address[r->nkernels - 1]);
  if (json_object_set_new(r->s->addresses, place, json_text(k->name))) return no_memory(r);
  dimensions(o, "grid", k->grid);
  dimensions(o, "block", k->block);
  k->registers = (uint32_t)integer(o, "registers");
  k->local_bytes = (uint32_t)integer(o, "local_bytes");
  k->private_bytes = (uint32_t)integer(o, "private_bytes");
  k->wave = (uint32_t)integer(o, "wave");
  return 0;
}

static int read_call(struct reader *r, json_t *o) {
  uint64_t id = integer(o, "kernel");
  if (id >= r->nkernels) return malformed(r, "an unknown kernel");
  struct prof_kernel *k = &r->s->kernels[r->kernel[id]];
  if (process_of(r)->pass) return 0;
  prof_stats_add(&k->calls, duration(o));
  k->flops += r->flops[id];
  k->bytes += r->bytes[id];
  return keep_event(r, PROF_TRACK_KERNELS, r->device[id], o, k->name);
}

static int read_transfer(struct reader *r, json_t *o) {
  struct prof_session *s = r->s;
  const struct prof_device *d = device_of(r, o);
  static const char *const kinds[] = {"copy", "exchange", "write", "read"};
  const char *kind = kinds[0];
  if (!d) return -EINVAL;
  if (process_of(r)->pass) return 0;
  unsigned i = 0;
  for (unsigned k = 1; k < sizeof kinds / sizeof *kinds; k++)
    if (!strcmp(kinds[k], text(o, "type"))) kind = kinds[k];
  while (i < s->ntransfers && (s->transfers[i].kind != kind || strcmp(s->transfers[i].device, d->name) != 0)) i++;
  if (i == s->ntransfers) {
    struct prof_transfer *more = realloc(s->transfers, (i + 1) * sizeof *more);
    if (!more) return no_memory(r);
    s->transfers = more;
    s->transfers[s->ntransfers++] = (struct prof_transfer){.device = strdup(d->name), .kind = kind};
  }
  prof_stats_add(&s->transfers[i].calls, duration(o));
  s->transfers[i].bytes += (double)integer(o, "bytes");
  return keep_event(r, PROF_TRACK_COPIES, d->name, o, kind);
}

static int read_host(struct reader *r, json_t *o) {
  char name[256];
  const char *work = text(o, "work"), *what = text(o, "name");
  if (process_of(r)->pass) return 0;
  for (unsigned i = 0; i < PROF_HOST_WORKS; i++)
    if (!strcmp(prof_host_works[i], work)) prof_stats_add(&r->s->host[i], duration(o));
  snprintf(name, sizeof name, *what ? "%s: %s" : "%s", work, what);
  return keep_event(r, PROF_TRACK_HOST, NULL, o, name);
}

/* Keeps a line for the page, with the device's ISA: devices of one ISA share kernels, and a kernel that is compiled
 * once has one line. */
static int keep_line(struct reader *r, json_t *list, json_t *o) {
  const struct prof_device *d = device_of(r, o);
  if (!d) return -EINVAL;
  if (process_of(r)->pass) return 0;
  json_object_set_new(o, "arch", json_text(d->arch));
  return json_array_append(list, o) ? no_memory(r) : 0;
}
static int read_code(struct reader *r, json_t *o) { return keep_line(r, r->s->code, o); }

/* An emulator reports a kernel's address without its name. The name is that of the last kernel which the record has at
 * this address. */
static int read_lines(struct reader *r, json_t *o) {
  const struct prof_device *d = device_of(r, o);
  uint64_t address = integer(o, "address");
  if (!d) return -EINVAL;
  for (unsigned i = r->nkernels; i-- > 0 && address;)
    if (r->address[i] == address && r->device[i] == d->name) {
      json_object_set_new(o, "name", json_text(r->s->kernels[r->kernel[i]].name));
      break;
    }
  return json_object_get(o, "name") ? keep_line(r, r->s->code, o) : 0;
}

/* The items of a schedule name devices themselves. */
static int read_schedule(struct reader *r, json_t *o) {
  if (process_of(r)->pass) return 0;
  return json_array_append(r->s->schedules, o) ? no_memory(r) : 0;
}

static int read_memory(struct reader *r, json_t *o) {
  struct prof_device *d = device_of(r, o);
  if (!d) return -EINVAL;
  if (!(d->nsamples & (d->nsamples - 1))) {
    struct prof_sample *more = realloc(d->samples, (d->nsamples ? 2 * d->nsamples : 1) * sizeof *more);
    if (!more) return no_memory(r);
    d->samples = more;
  }
  struct prof_sample sample = {integer(o, "at_ns"), integer(o, "bytes")};
  d->samples[d->nsamples++] = sample;
  if (sample.bytes > d->peak) d->peak = sample.bytes;
  return 0;
}

static void add_note(struct prof_session *s, const char *note) {
  size_t i;
  json_t *known;
  json_array_foreach(s->notes, i, known) if (!strcmp(json_string_value(known), note)) return;
  json_array_append_new(s->notes, json_string(note));
}

static struct prof_counter *find_counter(struct prof_kernel *k, const json_t *o) {
  for (unsigned i = 0; i < k->ncounters; i++)
    if (!strcmp(k->counters[i].name, text(o, "name"))) return &k->counters[i];
  struct prof_counter *more = realloc(k->counters, (k->ncounters + 1) * sizeof *more);
  if (!more) return NULL;
  k->counters = more;
  k->counters[k->ncounters] = (struct prof_counter){.name = strdup(text(o, "name")),
                                                    .unit = strdup(text(o, "unit")),
                                                    .source = strdup(text(o, "source")),
                                                    .instances = (unsigned)integer(o, "instances")};
  return &k->counters[k->ncounters++];
}

static int read_counts(struct reader *r, json_t *o) {
  const struct prof_device *d = device_of(r, o);
  size_t i;
  json_t *value;
  if (!d) return -EINVAL;
  if (json_object_get(o, "why")) {
    add_note(r->s, text(o, "why"));
    return 0;
  }
  int at = find_kernel(r->s, d->name, text(o, "name"));
  if (at < 0) return no_memory(r);
  struct prof_kernel *k = &r->s->kernels[at];
  unsigned pass = process_of(r)->pass;
  if (pass >= PROF_PASSES) return malformed(r, "too many passes");
  if (!pass) prof_stats_add(&k->alone, duration(o));
  k->check[pass] += (double)integer(o, "check");
  if (integer(o, "passes") > r->s->passes) r->s->passes = (unsigned)integer(o, "passes");
  json_array_foreach(json_object_get(o, "counters"), i, value) {
    struct prof_counter *c = find_counter(k, value);
    if (!c) return no_memory(r);
    prof_stats_add(&c->values, (double)integer(value, "value"));
  }
  return 0;
}

static int read_end(struct reader *r, json_t *o) {
  process_of(r)->complete = true;
  process_of(r)->end_ns = integer(o, "at_ns");
  return 0;
}

static const struct {
  const char *type;
  int (*read)(struct reader *r, json_t *o);
} types[] = {
    {"process", read_process},   {"device", read_device},  {"kernel", read_kernel},     {"call", read_call},
    {"copy", read_transfer},     {"write", read_transfer}, {"read", read_transfer},     {"host", read_host},
    {"exchange", read_transfer}, {"memory", read_memory},  {"counts", read_counts},     {"end", read_end},
    {"code", read_code},         {"lines", read_lines},    {"schedule", read_schedule},
};

static int read_line(struct reader *r, const char *line, size_t n) {
  json_error_t error;
  json_t *o = json_loadb(line, n, 0, &error);
  int err = 0;
  if (!o) return malformed(r, error.text);
  if (r->process >= 0) {
    uint64_t now = integer(o, "end_ns");
    if (now > process_of(r)->end_ns) process_of(r)->end_ns = now;
  }
  unsigned i = 0;
  while (i < sizeof types / sizeof *types && strcmp(types[i].type, text(o, "type")) != 0) i++;
  if (i == sizeof types / sizeof *types)
    err = malformed(r, "an unknown type of line");
  else if (r->process < 0 && i)
    err = malformed(r, "the first line is not of type process");
  else
    err = types[i].read(r, o);
  json_decref(o);
  return err;
}

/* Calls read for each line of a file, with its end. Returns the first error. */
static int read_lines_of(const char *path, int (*read)(void *ctx, const char *line, size_t n), void *ctx) {
  FILE *f = fopen(path, "re");
  char *line = NULL;
  size_t capacity = 0;
  ssize_t n;
  int err = 0;
  if (!f) return db_fail(-errno, "%s: %s", path, strerror(errno));
  while (!err && (n = getline(&line, &capacity, f)) > 0) err = read(ctx, line, (size_t)n);
  if (!err && ferror(f)) err = db_fail(-EIO, "%s: cannot be read", path);
  fclose(f);
  free(line);
  return err;
}

/* Ignores a last line without an end, which a process that was killed leaves. */
static int read_complete_line(void *ctx, const char *line, size_t n) {
  struct reader *r = ctx;
  r->line++;
  return line[n - 1] == '\n' ? read_line(r, line, n) : 0;
}

static int read_record(struct prof_session *s, const char *path) {
  struct reader r = {.s = s, .path = path, .process = -1};
  int err = read_lines_of(path, read_complete_line, &r);
  char note[512];
  if (r.process < 0)
    snprintf(note, sizeof note, "%s: the record has no complete line", path);
  else
    snprintf(note, sizeof note, "process %lld was killed or called exec: the end of its record is missing",
             (long long)process_of(&r)->pid);
  if (!err && (r.process < 0 || !process_of(&r)->complete)) add_note(s, note);
  free(r.kernel);
  free(r.flops);
  free(r.bytes);
  free(r.device);
  free(r.address);
  return err;
}

struct emulated_reader {
  struct prof_session *s;
  const char *path;
};

/* The emulator does not know the names of all kernels. A kernel without a name gets the one that the record of its
 * process has at its address, or else the address. */
static void name_emulated(const struct prof_session *s, const json_t *gpu, json_t *kernel) {
  uint64_t address = integer(kernel, "address");
  char place[PLACE];
  if (*text(kernel, "name")) return;
  print_place(place, json_integer_value(json_object_get(gpu, "process")), address);
  const char *known = json_string_value(json_object_get(s->addresses, place));
  json_object_set_new(kernel, "name", known ? json_text(known) : json_sprintf("0x%llx", (unsigned long long)address));
}

/* Keeps the instructions of a kernel for the page, apart from the report. */
static void keep_emulated_lines(struct prof_session *s, const json_t *gpu, json_t *kernel) {
  json_t *lines = json_object_get(kernel, "lines");
  if (!json_is_array(json_object_get(lines, "rows")) || !json_is_array(json_object_get(lines, "columns"))) return;
  json_object_set_new(lines, "arch", json_text(text(gpu, "arch")));
  json_object_set_new(lines, "name", json_text(text(kernel, "name")));
  json_object_set_new(lines, "source", json_text(text(lines, "source")));
  json_array_append(s->code, lines);
}

static int read_emulated_line(void *ctx, const char *line, size_t n) {
  const struct emulated_reader *r = ctx;
  json_error_t error;
  json_t *o = json_loadb(line, n, 0, &error), *kernel;
  size_t i;
  json_array_foreach(json_object_get(o, "kernels"), i, kernel) {
    name_emulated(r->s, o, kernel);
    keep_emulated_lines(r->s, o, kernel);
    json_object_del(kernel, "lines");
  }
  return json_array_append_new(r->s->emulated, o) ? db_fail(-EINVAL, "%s: not a record of the emulator", r->path) : 0;
}

/* Reads what the emulator counted in a process: a JSON object per GPU, each on a line. */
static int read_emulated(struct prof_session *s, const char *path) {
  return read_lines_of(path, read_emulated_line, &(struct emulated_reader){s, path});
}

/* ---- a folder ---- */

static bool ends_in(const char *name, const char *suffix) {
  size_t n = strlen(name), m = strlen(suffix);
  return n > m && !strcmp(name + n - m, suffix);
}

bool prof_is_record(const char *name) {
  return ends_in(name, ".prof") || ends_in(name, ".prof.part") || ends_in(name, ".emu");
}
static int is_record(const struct dirent *e) { return prof_is_record(e->d_name); }

static int read_file(struct prof_session *s, const char *folder, const char *name) {
  char *path;
  if (asprintf(&path, "%s/%s", folder, name) < 0) return db_fail(-ENOMEM, "%s: out of memory", folder);
  int err = (ends_in(name, ".emu") ? read_emulated : read_record)(s, path);
  free(path);
  return err;
}

/* A program that runs once per pass must do the same work each time. */
static void check_passes(struct prof_session *s) {
  char note[256];
  unsigned ran = 0;
  for (unsigned i = 0; i < s->nprocesses; i++)
    if (s->processes[i].pass >= ran) ran = s->processes[i].pass + 1;
  if (ran && ran < s->passes) {
    snprintf(note, sizeof note, "the counters need %u passes, of which %u ran: the rest is not counted", s->passes,
             ran);
    add_note(s, note);
  }
  for (unsigned i = 0; i < s->nkernels; i++)
    for (unsigned pass = 1; pass < ran && pass < PROF_PASSES; pass++) {
      const struct prof_kernel *k = &s->kernels[i];
      if (!(fabs(k->check[0] - k->check[pass]) > 0)) continue;
      snprintf(note, sizeof note, "%s on %s: pass %u did other work than pass 0: the counters do not belong together",
               k->name, k->device, pass);
      add_note(s, note);
    }
}

int prof_session_read(struct prof_session *s, const char *folder) {
  *s = (struct prof_session){.notes = json_array(),
                             .emulated = json_array(),
                             .addresses = json_object(),
                             .names = json_array(),
                             .numbers = json_object(),
                             .code = json_array(),
                             .schedules = json_array(),
                             .passes = 1};
  struct dirent **entries = NULL;
  int n = scandir(folder, &entries, is_record, alphasort), err = 0;
  if (n < 0) return db_fail(-errno, "%s: %s", folder, strerror(errno));
  for (int emulated = 0; emulated < 2; emulated++) /* the emulator's take names from the others */
    for (int i = 0; i < n; i++)
      if (!err && ends_in(entries[i]->d_name, ".emu") == emulated) err = read_file(s, folder, entries[i]->d_name);
  for (int i = 0; i < n; i++) free(entries[i]);
  free(entries);
  if (!err && !n) err = db_fail(-ENOENT, "%s: no records: no process used Doorbell", folder);
  check_passes(s);
  return err;
}

static void free_process(struct prof_process *p) {
  for (unsigned i = 0; i < p->ndevices; i++) {
    free(p->devices[i].name);
    free(p->devices[i].arch);
    free(p->devices[i].description);
    free(p->devices[i].samples);
  }
  free(p->devices);
  json_decref(p->command);
}

static void free_kernel(struct prof_kernel *k) {
  for (unsigned i = 0; i < k->ncounters; i++) {
    free(k->counters[i].name);
    free(k->counters[i].unit);
    free(k->counters[i].source);
  }
  free(k->counters);
  free(k->device);
  free(k->name);
}

void prof_session_free(struct prof_session *s) {
  for (unsigned i = 0; i < s->nprocesses; i++) free_process(&s->processes[i]);
  for (unsigned i = 0; i < s->nkernels; i++) free_kernel(&s->kernels[i]);
  for (unsigned i = 0; i < s->ntransfers; i++) free(s->transfers[i].device);
  for (unsigned i = 0; i < s->ntracks; i++) free(s->tracks[i].events);
  free(s->tracks);
  json_decref(s->addresses);
  json_decref(s->names);
  json_decref(s->numbers);
  json_decref(s->code);
  json_decref(s->schedules);
  free(s->processes);
  free(s->kernels);
  free(s->transfers);
  json_decref(s->notes);
  json_decref(s->emulated);
  *s = (struct prof_session){0};
}
