/* Prints a report as text and as CSV. */
#define _GNU_SOURCE
#include "prof.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 40 /* kernels */, CURVE = 60 /* columns */, LONGEST = 48 /* name */ };

struct table {
  FILE *f;
  int device, name; /* widths of the first two columns */
};

static double number(const json_t *o, const char *name) { return json_number_value(json_object_get(o, name)); }
static const char *text(const json_t *o, const char *name) {
  const char *s = json_string_value(json_object_get(o, name));
  return s ? s : "-";
}
static bool is_known(const json_t *o, const char *name) { return json_is_number(json_object_get(o, name)); }

static const char *time_text(double ns, char buf[24]) {
  static const struct {
    double ns;
    const char *unit;
  } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}};
  for (unsigned i = 0; i < 3; i++)
    if (ns >= units[i].ns || i == 2) {
      snprintf(buf, 24, "%.2f %s", ns / units[i].ns, units[i].unit);
      break;
    }
  return buf;
}

static const char *bytes_text(double n, char buf[24]) {
  static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
  unsigned i = 0;
  for (; n >= 1000 && i < 4; i++) n /= 1000;
  snprintf(buf, 24, i ? "%.1f %s" : "%.0f %s", n, units[i]);
  return buf;
}

/* A number with a unit that is the column's, or "-". */
static const char *rate_text(const json_t *o, const char *name, double scale, char buf[24]) {
  if (!is_known(o, name)) return "-";
  snprintf(buf, 24, "%.*f", number(o, name) * scale < 10 ? 2 : 1, number(o, name) * scale);
  return buf;
}

/* ---- tables ---- */

/* The width of the longest text of a field. */
static int width_of(const json_t *list, const char *field, int least, int most) {
  size_t i;
  json_t *o;
  int width = least;
  json_array_foreach(list, i, o) {
    int n = i < SHOWN ? (int)strlen(text(o, field)) : 0;
    if (n > width) width = n < most ? n : most;
  }
  return width;
}

static void print_names(const struct table *t, const char *first, const char *second) {
  fprintf(t->f, "%-*s %-*.*s", t->device, first, t->name, t->name, second);
}
static void print_head(const struct table *t, const char *first, const char *second) {
  print_names(t, first, second);
  fprintf(t->f, " %8s %10s %10s %10s %10s", "calls", "total", "min", "mean", "max");
}
static void print_times(const struct table *t, const json_t *o) {
  char total[24], least[24], mean[24], most[24];
  fprintf(t->f, " %8.0f %10s %10s %10s %10s", number(o, "calls"), time_text(number(o, "total_ns"), total),
          time_text(number(o, "min_ns"), least), time_text(number(o, "mean_ns"), mean),
          time_text(number(o, "max_ns"), most));
}

/* ---- kernels ---- */

static void print_metrics(FILE *f, const json_t *k) {
  const char *name;
  json_t *v;
  json_object_foreach(json_object_get(k, "counters"), name, v)
      fprintf(f, "    %-26s %16.1f %s a call (%s)\n", name, number(v, "mean"), text(v, "unit"), text(v, "source"));
  json_object_foreach(json_object_get(k, "metrics"), name, v)
      fprintf(f, "    %-26s %16.3f %s (%s)\n", name, number(v, "value"), text(v, "unit"), text(v, "source"));
}

static void print_kernel(const struct table *t, const json_t *k) {
  char flops[24], bytes[24], roof[24], occupancy[24], overhead[24];
  print_names(t, text(k, "device"), text(k, "name"));
  print_times(t, k);
  fprintf(t->f, " %5.1f%% %9s %9s %6s %6s %s\n", 100 * number(k, "share"), rate_text(k, "gflops", 1, flops),
          rate_text(k, "gb_per_s", 1, bytes), rate_text(k, "roofline", 100, roof),
          rate_text(k, "occupancy", 100, occupancy), text(k, "limit"));
  print_metrics(t->f, k);
  if (is_known(k, "overhead_ns"))
    fprintf(t->f, "    counting adds %s to a call; the times above are without it\n",
            time_text(number(k, "overhead_ns"), overhead));
}

static void print_kernels(const struct table *t, const json_t *list) {
  size_t i;
  json_t *k;
  json_array_foreach(list, i, k) {
    if (i == SHOWN) break;
    if (!i) {
      print_head(t, "device", "kernel");
      fprintf(t->f, " %6s %9s %9s %6s %6s %s\n", "share", "GFLOP/s", "GB/s", "roof %", "occ. %", "limit");
    }
    print_kernel(t, k);
  }
  if (json_array_size(list) > SHOWN) fprintf(t->f, "and %zu more kernels\n", json_array_size(list) - SHOWN);
}

/* ---- the rest ---- */

static void print_copies(const struct table *t, const json_t *list) {
  size_t i;
  json_t *c;
  char bytes[24], rate[24];
  json_array_foreach(list, i, c) {
    if (!i) {
      fputc('\n', t->f);
      print_head(t, "device", "copies");
      fprintf(t->f, " %10s %9s\n", "bytes", "GB/s");
    }
    print_names(t, text(c, "device"), text(c, "kind"));
    print_times(t, c);
    fprintf(t->f, " %10s %9s\n", bytes_text(number(c, "bytes"), bytes), rate_text(c, "gb_per_s", 1, rate));
  }
}

static void print_host(const struct table *t, const json_t *list) {
  size_t i;
  json_t *h;
  json_array_foreach(list, i, h) {
    if (!i) {
      fputc('\n', t->f);
      print_head(t, "host", "");
      fputc('\n', t->f);
    }
    print_names(t, text(h, "work"), "");
    print_times(t, h);
    fputc('\n', t->f);
  }
}

/* The largest number of bytes that were allocated in each column of the time. */
static void fill_curve(const json_t *samples, double end, double curve[CURVE]) {
  size_t i;
  json_t *s;
  double bytes = 0;
  int column = 0;
  memset(curve, 0, CURVE * sizeof *curve);
  json_array_foreach(samples, i, s) {
    double at = json_number_value(json_array_get(s, 0));
    double to = end > 0 ? floor(at / end * CURVE) : 0; /* a report may say anything */
    for (; column < to && column < CURVE; column++)
      if (bytes > curve[column]) curve[column] = bytes;
    bytes = json_number_value(json_array_get(s, 1));
    if (column < CURVE && bytes > curve[column]) curve[column] = bytes;
  }
  for (; column < CURVE; column++)
    if (bytes > curve[column]) curve[column] = bytes;
}

static double seconds_of(const json_t *report, const json_t *device) {
  size_t i;
  json_t *p;
  json_array_foreach(
      json_object_get(report, "processes"), i,
      p) if (json_equal(json_object_get(p, "pid"), json_object_get(device, "pid"))) return number(p, "seconds");
  return 0;
}

static void print_memory(FILE *f, const json_t *report) {
  static const char *const bars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  size_t i;
  json_t *d;
  double curve[CURVE];
  char bytes[24], time[24];
  json_array_foreach(json_object_get(report, "devices"), i, d) {
    double peak = number(d, "peak_bytes"), seconds = seconds_of(report, d);
    if (!(peak > 0)) continue;
    fill_curve(json_object_get(d, "memory"), seconds * 1e9, curve);
    fprintf(f, "\n%s: memory of process %.0f: peak %s\n  |", text(d, "name"), number(d, "pid"),
            bytes_text(peak, bytes));
    for (int c = 0; c < CURVE; c++) fputs(bars[curve[c] > 0 ? 1 + (int)(curve[c] / peak * 7) : 0], f);
    fprintf(f, "| %s\n", time_text(seconds * 1e9, time));
  }
}

static void print_emulated(FILE *f, const json_t *report) {
  size_t i, n;
  json_t *gpu, *k;
  char time[24];
  json_array_foreach(json_object_get(report, "emulated"), i, gpu) {
    if (!i) fputs("\nemulated GPUs of doorbell emu: counts are those of the emulator, times are of its model\n", f);
    json_array_foreach(json_object_get(gpu, "kernels"), n, k) {
      if (!n)
        fprintf(f, "process %.0f, GPU %.0f\n  %-*s %8s %12s %14s %12s\n", number(gpu, "process"), number(gpu, "gpu"),
                LONGEST, "kernel", "calls", "waves", "instructions", "model time");
      fprintf(f, "  %-*.*s %8.0f %12.0f %14.0f %12s\n", LONGEST, LONGEST, text(k, "name"), number(k, "dispatches"),
              number(k, "waves"), number(k, "instructions"), time_text(number(k, "model_ps") * 1e-3, time));
    }
  }
}

static bool ran_emulated(const json_t *kernels) {
  size_t i;
  json_t *k;
  json_array_foreach(kernels, i, k) if (!strncmp(text(k, "device"), "EMU+", 4)) return true;
  return false;
}

void prof_print(FILE *f, const json_t *report) {
  size_t i;
  json_t *note;
  const json_t *kernels = json_object_get(report, "kernels"), *copies = json_object_get(report, "copies");
  int devices = width_of(copies, "device", width_of(kernels, "device", 8, 24), 24);
  struct table t = {f, devices, width_of(kernels, "name", 8, LONGEST)};
  print_kernels(&t, kernels);
  print_copies(&t, copies);
  print_host(&t, json_object_get(report, "host"));
  print_memory(f, report);
  print_emulated(f, report);
  if (ran_emulated(kernels)) fputs("\nTimes on EMU devices are the emulator's.\n", f);
  json_array_foreach(json_object_get(report, "notes"), i, note)
      fprintf(f, "%snote: %s\n", i ? "" : "\n", json_string_value(note));
}

/* ---- CSV: RFC 4180 ---- */

static const char *const columns[] = {
    "device",       "name",      "calls",           "total_ns",  "min_ns",      "mean_ns",       "max_ns",
    "deviation_ns", "share",     "flops",           "bytes",     "gflops",      "gb_per_s",      "roofline",
    "limit",        "occupancy", "occupancy_limit", "registers", "local_bytes", "private_bytes", "overhead_ns"};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void print_field(FILE *f, const json_t *v) {
  if (json_is_integer(v)) {
    fprintf(f, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
  } else if (json_is_real(v)) {
    fprintf(f, "%.9g", json_real_value(v));
  } else if (json_is_string(v)) {
    fputc('"', f);
    for (const char *c = json_string_value(v); *c; c++) fprintf(f, *c == '"' ? "\"\"" : "%c", *c);
    fputc('"', f);
  }
}

/* The names of all counters and metrics of any kernel, in an object. */
static json_t *all_values(const json_t *kernels) {
  size_t i;
  json_t *k, *names = json_object();
  json_array_foreach(kernels, i, k) {
    json_object_update(names, json_object_get(k, "counters"));
    json_object_update(names, json_object_get(k, "metrics"));
  }
  return names;
}

void prof_print_csv(FILE *f, const json_t *report) {
  size_t i;
  json_t *k, *v;
  const char *name;
  const json_t *kernels = json_object_get(report, "kernels");
  json_t *names = all_values(kernels);
  for (unsigned c = 0; c < COLUMNS; c++) fprintf(f, "%s%s", c ? "," : "", columns[c]);
  json_object_foreach(names, name, v) fprintf(f, ",%s", name);
  fputs("\r\n", f);
  json_array_foreach(kernels, i, k) {
    for (unsigned c = 0; c < COLUMNS; c++) {
      if (c) fputc(',', f);
      print_field(f, json_object_get(k, columns[c]));
    }
    json_object_foreach(names, name, v) {
      const json_t *counter = json_object_get(json_object_get(k, "counters"), name);
      fputc(',', f);
      print_field(f, counter ? json_object_get(counter, "mean")
                             : json_object_get(json_object_get(json_object_get(k, "metrics"), name), "value"));
    }
    fputs("\r\n", f);
  }
  json_decref(names);
}
