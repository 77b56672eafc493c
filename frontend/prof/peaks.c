/* The file of measured roofs, and the roof of a kernel. */
#define _GNU_SOURCE
#include "peaks.h"
#include "../../hcq/error.h"
#include "../../hcq/json.h"
#include "../run/runtime.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Below this share of both roofs a kernel is limited by latency: launches, dependencies, too little work. */
#define FAR 0.1

/* The path of the file, or false if there is no cache. */
static bool path_of(char *path, size_t cap) {
  char folder[3072];
  return cache_directory(folder, sizeof folder) && snprintf(path, cap, "%s/peaks.json", folder) < (int)cap;
}

/* All devices' roofs, by "ARCH DESCRIPTION". */
static json_t *read_all(const char *path) {
  json_t *all = json_load_file(path, 0, NULL);
  if (json_integer_value(json_object_get(all, "version")) == PEAKS_VERSION) return all;
  json_decref(all);
  return NULL;
}

static json_t *devices_of(json_t *all) { return json_object_get(all, "devices"); }

static void copy_text(char *to, size_t cap, const json_t *o) {
  const char *name = json_string_value(json_object_get(o, "name"));
  snprintf(to, cap, "%s", name ? name : "");
}
static double number(const json_t *o, const char *name) { return json_number_value(json_object_get(o, name)); }

/* Roofs of an emulated GPU are not those of a real one of the same kind. */
static void write_key(char *key, size_t cap, const char *device, const char *arch, const char *description) {
  snprintf(key, cap, "%s%s %s", strncmp(device, "EMU+", 4) ? "" : "emulated ", arch, description);
}

bool peaks_load(struct peaks *p, const char *device_name, const char *arch, const char *description) {
  char path[4096], key[256];
  size_t i;
  json_t *o;
  *p = (struct peaks){0};
  json_t *all = path_of(path, sizeof path) ? read_all(path) : NULL;
  write_key(key, sizeof key, device_name, arch, description);
  const json_t *device = json_object_get(devices_of(all), key);
  json_array_foreach(json_object_get(device, "rates"), i, o) {
    if (i == PEAKS_MOST) break;
    copy_text(p->rates[i].name, sizeof p->rates[i].name, o);
    p->rates[i].flops = number(o, "flops");
    p->nrates = (unsigned)i + 1;
  }
  json_array_foreach(json_object_get(device, "levels"), i, o) {
    if (i == PEAKS_MOST) break;
    copy_text(p->levels[i].name, sizeof p->levels[i].name, o);
    p->levels[i].bytes = (uint64_t)number(o, "bytes");
    p->levels[i].bandwidth = number(o, "bandwidth");
    p->nlevels = (unsigned)i + 1;
  }
  p->launch_s = number(device, "launch_s");
  p->copy_s = number(device, "copy_s");
  p->copy_bandwidth = number(device, "copy_bandwidth");
  bool found = device != NULL;
  json_decref(all);
  return found;
}

json_t *peaks_json(const struct peaks *p) {
  json_t *rates = json_array(), *levels = json_array();
  for (unsigned i = 0; i < p->nrates; i++)
    json_array_append_new(rates, json_pack("{s:s, s:f}", "name", p->rates[i].name, "flops", p->rates[i].flops));
  for (unsigned i = 0; i < p->nlevels; i++)
    json_array_append_new(levels, json_pack("{s:s, s:I, s:f}", "name", p->levels[i].name, "bytes",
                                            (json_int_t)p->levels[i].bytes, "bandwidth", p->levels[i].bandwidth));
  return json_pack("{s:o, s:o, s:f, s:f, s:f}", "rates", rates, "levels", levels, "launch_s", p->launch_s, "copy_s",
                   p->copy_s, "copy_bandwidth", p->copy_bandwidth);
}

int peaks_store(const struct peaks *p, const db_device *dev) {
  char path[4096], temporary[4128], key[256];
  if (!path_of(path, sizeof path)) return db_fail(-ENOENT, "there is no folder for the cache: %s", runtime_no_disk());
  json_t *all = read_all(path);
  if (!all) all = json_pack("{s:i, s:{}}", "version", PEAKS_VERSION, "devices");
  write_key(key, sizeof key, db_device_name(dev), db_device_arch(dev), db_device_description(dev));
  json_object_set_new(devices_of(all), key, peaks_json(p));
  snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid());
  int err = json_dump_file(all, temporary, JSON_INDENT(1)) || rename(temporary, path) ? -errno : 0;
  json_decref(all);
  if (!err) return 0;
  unlink(temporary);
  return db_fail(err, "%s: %s", path, strerror(-err));
}

bool peaks_roof(const struct peaks *p, double flops, double bandwidth, double bytes, struct peaks_roof *out) {
  double rate = 0, most = 0, roof = 0;
  for (unsigned i = 0; i < p->nrates; i++) {
    if (!strcmp(p->rates[i].name, "f32")) rate = p->rates[i].flops;
    if (p->rates[i].flops > most) most = p->rates[i].flops;
  }
  if (flops > rate) rate = most;
  for (unsigned i = p->nlevels; i-- > 0;)
    if (i + 1 == p->nlevels || (double)p->levels[i].bytes >= bytes) roof = p->levels[i].bandwidth;
  double compute = rate > 0 ? flops / rate : 0, memory = roof > 0 ? bandwidth / roof : 0;
  out->share = compute > memory ? compute : memory;
  out->limit = out->share < FAR ? "latency" : compute > memory ? "compute" : "memory";
  return rate > 0 || roof > 0;
}
