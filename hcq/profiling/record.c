/* The record of a process: what its devices and its host threads did, for `doorbell prof`.
 *
 * PROF names a folder. Each process writes a file of its own there, one JSON object per line (frontend/prof/README.md
 * describes them). While the process runs the file is PID.prof.part. When the process ends, the file gets its name,
 * PID.prof, so a file of that name is complete. After a crash the .part file has the lines up to the last
 * report of commands; its last line may be cut. A process that calls exec leaves its .part file, and the record of its
 * next program is PID.2.prof. */
#define _GNU_SOURCE
#include "../device.h"
#include "../json.h"
#include "../object.h"
#include "../profile.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VERSION = 1, MOST_DEVICES = 128, BUCKETS = 1024, MOST_PROGRAMS = 1000 /* of a process, one after another */ };

/* A kernel as it was launched; a launch with other numbers has an entry of its own. */
struct entry {
  struct entry *next; /* in its bucket */
  unsigned id, device;
  char *name;
  uint32_t grid[3], block[3], local_bytes;
  double flops;
  uint64_t bytes;
  bool uncounted;
};

atomic_bool hcq_recorded;
static struct {
  pthread_mutex_t lock; /* taken after trace.lock of profile.c; no other lock is taken while it is held */
  FILE *file;
  bool failed; /* the error is reported once; nothing is written afterwards */
  char *path;
  char *device[MOST_DEVICES];
  unsigned ndevices, nentries;
  struct entry *buckets[BUCKETS];
} record = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the file ---- */

static int flush(void) {
  if (!record.file || (!fflush(record.file) && !ferror(record.file))) return 0;
  int err = errno ? -errno : -EIO;
  record.failed = true;
  atomic_store(&hcq_recorded, false);
  fclose(record.file);
  record.file = NULL;
  return db_fail(err, "PROF=%s: %s", hcq_profile_env()->record, strerror(-err));
}

/* Writes this process's command line, which the kernel keeps as strings that end in zeros. */
static void write_command(FILE *f) {
  char *text = NULL;
  size_t capacity = 0;
  FILE *line = fopen("/proc/self/cmdline", "re");
  fputs(",\"command\":[", f);
  for (bool first = true; line && getdelim(&text, &capacity, 0, line) > 0; first = false) {
    if (!first) fputc(',', f);
    json_quote(f, text);
  }
  fputc(']', f);
  free(text);
  if (line) fclose(line);
}

static int open_record(void) {
  const struct hcq_profile_env *env = hcq_profile_env();
  free(record.path);
  record.path = NULL;
  for (unsigned i = 1; !record.file && i <= MOST_PROGRAMS; i++) {
    char number[16] = "";
    free(record.path);
    if (i > 1) snprintf(number, sizeof number, ".%u", i);
    if (asprintf(&record.path, "%s/%ld%s.prof.part", env->record, (long)getpid(), number) < 0) {
      record.path = NULL;
      return db_fail(-ENOMEM, "PROF=%s: out of memory", env->record);
    }
    record.file = fopen(record.path, "wxe");
    if (!record.file && errno != EEXIST) break;
  }
  if (!record.file) return db_fail(-errno, "PROF=%s: %s", env->record, strerror(errno));
  fprintf(record.file,
          "{\"type\":\"process\",\"version\":%d,\"doorbell\":\"" DB_VERSION
          "\",\"pid\":%ld,\"rank\":%d,\"pass\":%u,\"begin_ns\":%llu",
          VERSION, (long)getpid(), env->rank, env->pass, (unsigned long long)hcq_now_ns());
  write_command(record.file);
  fputs("}\n", record.file);
  atomic_store(&hcq_recorded, true);
  atomic_store(&hcq_host_timed, true);
  return flush();
}

int hcq_record_open(void) {
  pthread_mutex_lock(&record.lock);
  int err = hcq_profile_env()->record && !record.file && !record.failed ? open_record() : 0;
  pthread_mutex_unlock(&record.lock);
  return err;
}

struct hcq_record_hooks hcq_record_hooks;
void hcq_record_opened(db_device *dev) {
  if (atomic_load(&hcq_recorded) && hcq_record_hooks.opened) hcq_record_hooks.opened(dev);
}
void hcq_record_closing(db_device *dev) {
  if (atomic_load(&hcq_recorded) && hcq_record_hooks.closing) hcq_record_hooks.closing(dev);
}

/* Devices that are open when the process ends. */
static void record_open_devices(void) {
  if (!hcq_record_hooks.closing) return;
  pthread_mutex_lock(&hcq_registry.lock);
  for (db_device *dev = hcq_registry.devices; dev; dev = dev->next) hcq_record_closing(dev);
  pthread_mutex_unlock(&hcq_registry.lock);
}

/* Gives the complete file its name. */
__attribute__((destructor)) static void finish(void) {
  record_open_devices();
  pthread_mutex_lock(&record.lock);
  if (record.file) {
    size_t n = strlen(record.path) - strlen(".part");
    char *name = strndup(record.path, n);
    fprintf(record.file, "{\"type\":\"end\",\"at_ns\":%llu}\n", (unsigned long long)hcq_now_ns());
    bool good = !fflush(record.file) && !ferror(record.file);
    if (!fclose(record.file) && good && name) rename(record.path, name);
    free(name);
    record.file = NULL;
  }
  atomic_store(&hcq_recorded, false);
  pthread_mutex_unlock(&record.lock);
}

void hcq_record_before_fork(void) {
  pthread_mutex_lock(&record.lock);
  if (record.file) fflush(record.file); /* or the child would write the buffer's contents a second time */
}

/* A child writes a file of its own when it opens a device. */
void hcq_record_after_fork(bool in_child) {
  if (in_child) {
    record.file = NULL;
    record.ndevices = record.nentries = 0;
    memset(record.buckets, 0, sizeof record.buckets);
    atomic_store(&hcq_recorded, false);
  }
  pthread_mutex_unlock(&record.lock);
}

/* ---- devices and kernels, which lines name by number ---- */

/* Returns the number of a device, or -1 if it has none: there are too many, or the device is not open yet. */
static int device_id(const db_device *dev) {
  const char *name = db_device_name(dev);
  for (unsigned i = 0; i < record.ndevices; i++)
    if (!strcmp(record.device[i], name)) return (int)i;
  if (record.ndevices == MOST_DEVICES || !*db_device_arch(dev)) return -1;
  char *copy = strdup(name);
  if (!copy) return -1;
  record.device[record.ndevices] = copy;
  fprintf(record.file, "{\"type\":\"device\",\"id\":%u,\"name\":", record.ndevices);
  json_quote(record.file, name);
  fputs(",\"arch\":", record.file);
  json_quote(record.file, db_device_arch(dev));
  fputs(",\"description\":", record.file);
  json_quote(record.file, db_device_description(dev));
  fputs("}\n", record.file);
  return (int)record.ndevices++;
}

static unsigned bucket_of(const struct hcq_event *e) {
  uint32_t h = 2166136261u; /* FNV-1a */
  for (const char *c = e->name; *c; c++) h = (h ^ (uint8_t)*c) * 16777619u;
  return (h ^ e->grid[0]) % BUCKETS;
}

static bool is_same(const struct entry *k, unsigned device, const struct hcq_event *e) {
  return k->device == device && !strcmp(k->name, e->name) && !memcmp(k->grid, e->grid, sizeof k->grid) &&
         !memcmp(k->block, e->block, sizeof k->block) && k->local_bytes == e->local_bytes &&
         k->uncounted == e->uncounted && k->bytes == e->bytes && !(k->flops < e->flops) && !(k->flops > e->flops);
}

static void write_kernel(const struct entry *k, const db_program *program) {
  FILE *f = record.file;
  struct db_program_resources r;
  db_program_resources(program, &r);
  fprintf(f, "{\"type\":\"kernel\",\"id\":%u,\"device\":%u,\"name\":", k->id, k->device);
  json_quote(f, k->name);
  fprintf(f, ",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u]", k->grid[0], k->grid[1], k->grid[2], k->block[0], k->block[1],
          k->block[2]);
  if (!k->uncounted) fprintf(f, ",\"flops\":%.17g,\"bytes\":%llu", k->flops, (unsigned long long)k->bytes);
  if (program) fprintf(f, ",\"address\":%llu", (unsigned long long)db_program_address(program));
  if (program)
    fprintf(f, ",\"registers\":%u,\"local_bytes\":%u,\"private_bytes\":%u,\"wave\":%u", r.registers,
            k->local_bytes ? k->local_bytes : r.local_bytes, r.private_bytes, r.wave);
  fputs("}\n", f);
}

/* Returns the number of a kernel, or -1 if memory runs out. */
static int kernel_id(unsigned device, const struct hcq_event *e) {
  struct entry **bucket = &record.buckets[bucket_of(e)];
  for (struct entry *k = *bucket; k; k = k->next)
    if (is_same(k, device, e)) return (int)k->id;
  struct entry *k = malloc(sizeof *k);
  if (!k) return -1;
  *k = (struct entry){*bucket, record.nentries, device, strdup(e->name), {0}, {0}, 0, e->flops, e->bytes, e->uncounted};
  if (!k->name) {
    free(k);
    return -1;
  }
  memcpy(k->grid, e->grid, sizeof k->grid);
  memcpy(k->block, e->block, sizeof k->block);
  k->local_bytes = e->local_bytes;
  *bucket = k;
  write_kernel(k, e->program);
  return (int)record.nentries++;
}

/* ---- lines ---- */

static void write_event(const struct hcq_event *e) {
  static const char *const types[] = {"call", "copy", "exchange"};
  int device = device_id(e->device), kernel = 0;
  if (device < 0) return;
  if (e->kind == HCQ_EVENT_KERNEL && (kernel = kernel_id((unsigned)device, e)) < 0) return;
  fprintf(record.file, "{\"type\":\"%s\",", types[e->kind]);
  if (e->kind == HCQ_EVENT_KERNEL)
    fprintf(record.file, "\"kernel\":%d", kernel);
  else
    fprintf(record.file, "\"device\":%d,\"bytes\":%llu", device, (unsigned long long)e->bytes);
  fprintf(record.file, ",\"queue\":%u,\"begin_ns\":%llu,\"end_ns\":%llu}\n", e->queue, (unsigned long long)e->begin_ns,
          (unsigned long long)e->end_ns);
}

int hcq_record_events(const struct hcq_event *events, size_t n) {
  pthread_mutex_lock(&record.lock);
  for (size_t i = 0; i < n && record.file; i++) write_event(&events[i]);
  int err = flush();
  pthread_mutex_unlock(&record.lock);
  return err;
}

static void write_counts(const struct hcq_counts *c, int device) {
  static const char *const sources[] = {
      [DB_COUNTER_MEASURED] = "measured", [DB_COUNTER_EXACT] = "exact", [DB_COUNTER_MODEL] = "model"};
  FILE *f = record.file;
  fprintf(f, "{\"type\":\"counts\",\"device\":%d,\"name\":", device);
  json_quote(f, c->kernel);
  if (!c->n) {
    fputs(",\"why\":", f);
    json_quote(f, c->why);
    fputs("}\n", f);
    return;
  }
  fprintf(f, ",\"begin_ns\":%llu,\"end_ns\":%llu,\"passes\":%u,\"check\":%llu,\"counters\":[",
          (unsigned long long)c->begin_ns, (unsigned long long)c->end_ns, c->passes, (unsigned long long)c->check);
  for (unsigned i = 0; i < c->n; i++)
    fprintf(f, "%s{\"name\":\"%s\",\"unit\":\"%s\",\"source\":\"%s\",\"instances\":%u,\"value\":%llu}", i ? "," : "",
            c->counts[i].name, c->counts[i].unit, sources[c->counts[i].source], c->counts[i].instances,
            (unsigned long long)c->counts[i].sum);
  fputs("]}\n", f);
}

int hcq_record_counts(const struct hcq_counts *c) {
  pthread_mutex_lock(&record.lock);
  int device = record.file ? device_id(c->device) : -1;
  if (device >= 0) write_counts(c, device);
  int err = flush();
  pthread_mutex_unlock(&record.lock);
  return err;
}

int hcq_record_memory(const db_device *dev, uint64_t bytes) {
  pthread_mutex_lock(&record.lock);
  int device = record.file ? device_id(dev) : -1;
  if (device >= 0)
    fprintf(record.file, "{\"type\":\"memory\",\"device\":%d,\"at_ns\":%llu,\"bytes\":%llu}\n", device,
            (unsigned long long)hcq_now_ns(), (unsigned long long)bytes);
  pthread_mutex_unlock(&record.lock);
  return 0;
}

static void write_host(const struct hcq_host_event *e, int device) {
  FILE *f = record.file;
  if (e->device)
    fprintf(f, "{\"type\":\"%s\",\"device\":%d,\"bytes\":%llu,\"queue\":0", e->work, device,
            (unsigned long long)e->bytes);
  else
    fprintf(f, "{\"type\":\"host\",\"work\":\"%s\",\"thread\":%ld", e->work, e->thread);
  fprintf(f, ",\"begin_ns\":%llu,\"end_ns\":%llu", (unsigned long long)e->begin_ns, (unsigned long long)e->end_ns);
  if (!e->device) {
    fputs(",\"name\":", f);
    json_quote(f, e->name);
  }
  fputs("}\n", f);
}

void hcq_record_host(const struct hcq_host_event *e) {
  pthread_mutex_lock(&record.lock);
  int device = record.file && e->device ? device_id(e->device) : 0;
  if (record.file && device >= 0) write_host(e, device);
  pthread_mutex_unlock(&record.lock);
}

void hcq_record_line(const char *type, const db_device *dev, json_t *fields) {
  pthread_mutex_lock(&record.lock);
  int device = record.file && dev ? device_id(dev) : 0;
  if (record.file && device >= 0) {
    json_t *line = dev ? json_pack("{s:s, s:i}", "type", type, "device", device) : json_pack("{s:s}", "type", type);
    json_object_update(line, fields);
    json_dumpf(line, record.file, JSON_COMPACT | JSON_ENSURE_ASCII);
    fputc('\n', record.file);
    json_decref(line);
  }
  pthread_mutex_unlock(&record.lock);
  json_decref(fields);
}
