/* doorbell bench: runs the cases on the devices and prints a table or JSON. */
#include "bench.h"
#include "../../../emu/emu.h"
#include "../../../hcq/backend.h"
#include "../../prof/peaks.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const struct bench_case bench_cases[] = {
    {"dot", "[1, 2] . [3, 4] = 11", NULL, bench_dot},
    {"variance", "var [1, 2, 3, 4] = 1.6666667", NULL, bench_variance},
    {"saxpy", "2.5 x + y, 1 M of f32", NULL, bench_saxpy},
    {"sum", "4 M of f32", NULL, bench_sum},
    {"softmax", "512 x 512 of f32, by row", NULL, bench_softmax},
    {"matmul", "256 x 256 x 256 of f32", NULL, bench_matmul},
    {"perceptron", "relu(x w1 + b1) w2 + b2, 64 x 784 to 128 to 10", NULL, bench_perceptron},
    {"cl:saxpy", "OpenCL C, 1 M of f32", "gfx", bench_code_saxpy},
    {"cl:reduce", "OpenCL C, 4 M of u32", "gfx", bench_code_reduce},
    {"cl:sgemm", "OpenCL C, 256 x 256 x 256 of f32", "gfx", bench_code_sgemm},
    {"cl:histogram", "OpenCL C, 1 M bytes", "gfx", bench_code_histogram},
    {"cuda:saxpy", "CUDA C, 1 M of f32", "sm_", bench_code_saxpy},
    {"cuda:reduce", "CUDA C, 4 M of u32", "sm_", bench_code_reduce},
    {"cuda:sgemm", "CUDA C, 256 x 256 x 256 of f32", "sm_", bench_code_sgemm},
    {"cuda:histogram", "CUDA C, 1 M bytes", "sm_", bench_code_histogram},
};
const unsigned bench_ncases = sizeof bench_cases / sizeof *bench_cases;

/* ---- functions for the cases ---- */

struct bench_counts bench_count(db_device *dev, bool *emulated) {
  struct bench_counts c;
  struct emu_stats stats = {0};
  db_device_counters(dev, &c.device);
  *emulated = !emu_stats(db_device_os(dev), db_device_index(dev), &stats);
  c.instructions = stats.instructions;
  return c;
}

void bench_counted(db_device *dev, struct bench_counts before, struct bench_result *r) {
  struct bench_counts now = bench_count(dev, &r->emulated);
  r->kernels = (unsigned)(now.device.kernels - before.device.kernels);
  r->packets = now.device.packets - before.device.packets;
  r->doorbells = now.device.doorbells - before.device.doorbells;
  r->instructions = now.instructions - before.instructions;
}

bool bench_fail(struct bench_result *r, const char *what) {
  snprintf(r->reason, sizeof r->reason, "%s", what);
  return r->ok = false;
}

void bench_compare(struct bench_result *r, const float *got, const double *expected, int64_t n, double scale,
                   double tolerance) {
  int64_t worst = -1;
  r->error = 0;
  r->tolerance = tolerance;
  for (int64_t i = 0; i < n; i++) {
    double e = fabs((double)got[i] - expected[i]) / fmax(fabs(expected[i]), scale);
    if (!(e <= r->error)) worst = i, r->error = isnan(e) ? INFINITY : e;
  }
  r->ok = r->error <= tolerance;
  if (!r->ok)
    snprintf(r->reason, sizeof r->reason, "element %lld is %.9g, but the host has %.9g", (long long)worst,
             (double)got[worst], expected[worst]);
}

void bench_fill(float *x, int64_t n, uint32_t seed) {
  uint32_t s = seed * 2654435761u + 1;
  for (int64_t i = 0; i < n; i++) {
    s = s * 1664525u + 1013904223u; /* Numerical Recipes' linear congruential generator */
    x[i] = (float)(int32_t)(s & 0xffffff00u) * 0x1p-31f;
  }
}

bool bench_again(const struct bench_result *r, unsigned runs, double spent) {
  if (r->emulated) return runs < 1;
  return runs < 3 || (runs < 50 && spent < 0.2);
}

/* ---- options ---- */

enum { MOST_NAMES = 16 };
struct ctx {
  const char *device[MOST_NAMES], *name[MOST_NAMES];
  unsigned ndevices, nnames;
  const char *model;
  int64_t batch; /* 0: not given */
  bool json, peaks;
};
enum { DEVICE = OPTION_KEYS, CASE, MODEL, BATCH, PEAKS, JSON };
static const struct argp_option options[] = {
    {"dev", DEVICE, "DEV", 0, "A device; may be given several times", 0},
    {"device", 0, NULL, OPTION_ALIAS, "", 0},
    {"case", CASE, "NAME", 0,
     "A case: dot, variance, saxpy, sum, softmax, matmul, perceptron, cl:saxpy, cl:reduce, cl:sgemm, cl:histogram, "
     "cuda:saxpy, cuda:reduce, cuda:sgemm, cuda:histogram; may be given several times",
     0},
    {"model", MODEL, "MODEL", 0,
     "Measure a model with random inputs instead, on the CPU unless --dev is given: samples or tokens per second, and "
     "the standard deviation between runs. MODEL is an .onnx or .gguf file, or resnet50, vit (ViT-B/16), gpt2 or "
     "llama-1b with random parameters in f32",
     0},
    {"batch", BATCH, "B", 0,
     "With --model: samples or prompts in a run, or texts that are continued together; otherwise 1", 0},
    {"peaks", PEAKS, NULL, 0,
     "Measure the roofs of the devices by micro-kernels instead, and keep them for doorbell prof: operations per "
     "second by type and matrix instruction, bandwidth by level of memory, latency of launches and copies",
     0},
    {"json", JSON, NULL, 0,
     "Print JSON: {\"results\": [...], \"ran\", \"failed\", \"skipped\"}, a field for each column; with --model "
     "{\"models\": [{\"device\", \"model\", \"batch\", \"unit\", \"per_second\", \"deviation\", \"runs\"}]}; with "
     "--peaks "
     "{\"peaks\": [{\"device\", \"description\", ...}]}",
     0},
    {0}};

static void add_case(struct argp_state *state, struct ctx *x, const char *name) {
  char *text = NULL;
  size_t n = 0;
  for (unsigned i = 0; i < bench_ncases; i++)
    if (!strcmp(name, bench_cases[i].name)) {
      x->name[x->nnames++] = name;
      return;
    }
  FILE *f = open_memstream(&text, &n);
  if (f) {
    for (unsigned i = 0; i < bench_ncases; i++) fprintf(f, "\n  %-14s %s", bench_cases[i].name, bench_cases[i].what);
    fclose(f);
  }
  argp_error(state, "--case %s: unknown case; the cases are:%s", name, text ? text : "");
  free(text);
}

static error_t parse(int key, char *value, struct argp_state *state) {
  struct ctx *x = state->input;
  switch (key) {
  case DEVICE:
    if (x->ndevices == MOST_NAMES) argp_error(state, "--dev was given more than %d times", MOST_NAMES);
    x->device[x->ndevices++] = value;
    return 0;
  case CASE:
    if (x->nnames == MOST_NAMES) argp_error(state, "--case was given more than %d times", MOST_NAMES);
    add_case(state, x, value);
    return 0;
  case MODEL: x->model = value; return 0;
  case BATCH:
    if (!parse_integer(value, 1, 1 << 20, &x->batch))
      argp_error(state, "--batch needs a number from 1, not '%s'", value);
    return 0;
  case PEAKS: x->peaks = true; return 0;
  case JSON: x->json = true; return 0;
  case ARGP_KEY_END:
    if (x->model && (x->nnames || x->peaks)) argp_error(state, "--model does not run cases or --peaks");
    if (x->batch && !x->model) argp_error(state, "--batch is for --model");
    if (x->peaks && x->nnames) argp_error(state, "--peaks does not run cases");
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

/* ---- output ---- */

#define ROW "%-15s %-12s %7s %7s %9s %11s %9s %8s %12s %9s  %s\n"

static void print_head(void) {
  printf(ROW, "device", "case", "kernels", "packets", "doorbells", "time", "GFLOPS", "GB/s", "emulated", "error",
         "result");
  printf(ROW, "", "", "", "", "", "", "", "", "instructions", "relative", "");
}

static const char *engineering_time(double s, char *buf, size_t cap) {
  if (s < 1e-3)
    snprintf(buf, cap, "%.2f us", s * 1e6);
  else if (s < 1)
    snprintf(buf, cap, "%.2f ms", s * 1e3);
  else
    snprintf(buf, cap, "%.2f s", s);
  return buf;
}

static const char *count_text(uint64_t n, char *buf, size_t cap) {
  return snprintf(buf, cap, "%llu", (unsigned long long)n), buf;
}

static const char *rate_text(double per_second, char *buf, size_t cap) {
  double g = per_second * 1e-9;
  if (g <= 0) return "-";
  return snprintf(buf, cap, g < 0.01 ? "%.1e" : "%.2f", g), buf;
}

static void print_row(const struct bench_result *r) {
  char kernels[16], packets[24], doorbells[24], time[24], flops[24], bytes[24], instructions[24] = "-", error[24] = "-";
  if (r->emulated) count_text(r->instructions, instructions, sizeof instructions);
  if (isfinite(r->error) && r->tolerance > 0) snprintf(error, sizeof error, "%.1e", r->error);
  bool ran = r->seconds > 0;
  printf(ROW, r->device, r->name, ran ? count_text(r->kernels, kernels, sizeof kernels) : "-",
         ran ? count_text(r->packets, packets, sizeof packets) : "-",
         ran ? count_text(r->doorbells, doorbells, sizeof doorbells) : "-",
         ran ? engineering_time(r->seconds, time, sizeof time) : "-",
         ran ? rate_text(r->flops / r->seconds, flops, sizeof flops) : "-",
         ran ? rate_text(r->bytes / r->seconds, bytes, sizeof bytes) : "-", instructions, error,
         r->ok        ? "ok"
         : r->skipped ? "needs ptxas"
                      : "FAILED");
  if (!r->ok) printf("%-15s %-12s %s\n", "", "", r->reason);
  fflush(stdout);
}

static void print_json(const struct bench_result *r, bool first) {
  double giga_per_second = r->seconds > 0 ? 1e-9 / r->seconds : 0;
  json_line(stdout,
            json_pack("{s:o, s:o, s:o, s:i, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:o}", "device",
                      json_text(r->device), "case", json_text(r->name), "kernel_names", json_text(r->kernel_names),
                      "kernels", (int)r->kernels, "packets", (json_int_t)r->packets, "doorbells",
                      (json_int_t)r->doorbells, "seconds", json_finite(r->seconds), "gflops",
                      json_finite(r->flops * giga_per_second), "gb_per_s", json_finite(r->bytes * giga_per_second),
                      "emulated_instructions", r->emulated ? json_integer((json_int_t)r->instructions) : json_null(),
                      "error", json_finite(r->error), "tolerance", json_finite(r->tolerance), "ok", r->ok, "skipped",
                      r->skipped, "reason", json_text(r->reason)),
            first);
}

/* ---- running ---- */

static void default_devices(struct ctx *x) {
  static struct db_device_info info[MOST_NAMES];
  x->device[x->ndevices++] = "CPU";
  int n = db_devices(info, MOST_NAMES);
  for (int i = 0; i < n && i < MOST_NAMES && x->ndevices < MOST_NAMES - 2; i++)
    if (info[i].usable && !info[i].emulated && strcmp(info[i].name, "CPU") != 0)
      x->device[x->ndevices++] = info[i].name;
  x->device[x->ndevices++] = "EMU+AMD:gfx1100";
  x->device[x->ndevices++] = "EMU+NV:sm_90";
}

static bool is_selected(const struct ctx *x, const struct bench_case *c, const db_device *dev) {
  if (c->code && strncmp(db_device_arch(dev), c->code, strlen(c->code)) != 0) return false;
  for (unsigned i = 0; i < x->nnames; i++)
    if (!strcmp(x->name[i], c->name)) return true;
  return !x->nnames;
}

struct totals {
  unsigned ran, failed, skipped;
};

static void print_result(const struct ctx *x, const struct bench_result *r, struct totals *t) {
  if (x->json)
    print_json(r, !t->ran);
  else
    print_row(r);
  t->ran++;
  t->failed += !r->ok && !r->skipped;
  t->skipped += r->skipped;
}

/* Whether tensor programs can run: NVIDIA devices need ptxas. */
static bool compiles(const db_device *dev) {
  if (strncmp(db_device_arch(dev), "sm_", 3) != 0) return true;
  char *path = source_ptxas();
  free(path);
  return path != NULL;
}

static void bench_device(const struct ctx *x, const char *name, struct totals *t) {
  db_device *dev = db_open(name);
  if (!dev) {
    struct bench_result r = {.device = name, .name = "open"};
    bench_fail(&r, db_error());
    print_result(x, &r, t);
    return;
  }
  for (unsigned i = 0; i < bench_ncases; i++) {
    if (!is_selected(x, &bench_cases[i], dev)) continue;
    struct bench_result r = {.device = name, .name = bench_cases[i].name};
    if (!bench_cases[i].code && !compiles(dev))
      r.skipped = !bench_fail(&r, "ptxas not found: set PTXAS, or install Debian's nvidia-cuda-toolkit from non-free");
    else
      bench_cases[i].run(dev, &r);
    print_result(x, &r, t);
  }
  db_close(dev);
}

/* ---- roofs ---- */

static void print_peaks(const db_device *dev, const struct peaks *p) {
  printf("%s (%s)\n", db_device_name(dev), db_device_description(dev));
  for (unsigned i = 0; i < p->nrates; i++)
    printf("  %-16s %12.1f GFLOP/s\n", p->rates[i].name, p->rates[i].flops * 1e-9);
  for (unsigned i = 0; i < p->nlevels; i++)
    printf("  %-16s %12.1f GB/s   read, %.0f KB\n", p->levels[i].name, p->levels[i].bandwidth * 1e-9,
           (double)p->levels[i].bytes * 1e-3);
  printf("  %-16s %12.1f GB/s\n  %-16s %12.2f us\n  %-16s %12.2f us     4 KiB\n", "copy", p->copy_bandwidth * 1e-9,
         "launch", p->launch_s * 1e6, "copy", p->copy_s * 1e6);
}

static void print_peaks_json(const db_device *dev, const struct peaks *p, bool first) {
  json_t *o = peaks_json(p);
  json_object_set_new(o, "device", json_text(db_device_name(dev)));
  json_object_set_new(o, "description", json_text(db_device_description(dev)));
  json_line(stdout, o, first);
}

static int measure_peaks(const struct command *self, const struct ctx *x) {
  int status = EXIT_DONE;
  bool first = true;
  if (x->json) fputs("{\"peaks\": [", stdout);
  for (unsigned i = 0; i < x->ndevices; i++) {
    struct peaks p;
    db_device *dev = db_open(x->device[i]);
    int err = dev ? peaks_measure(dev, &p) : -ENODEV;
    if (!err && x->json) {
      print_peaks_json(dev, &p, first);
      first = false;
    } else if (!err) {
      print_peaks(dev, &p);
    }
    if (!err) err = peaks_store(&p, dev);
    if (err) status = fail_work(self, "--peaks: %s: %s", x->device[i], db_error());
    db_close(dev);
  }
  if (x->json) fputs("\n]}\n", stdout);
  db_shutdown();
  return status;
}

static int bench_main(const struct command *self, int argc, char **argv) {
  struct ctx x = {0};
  struct totals t = {0};
  command_parse(self, argc, argv, 0, &x);
  if (x.model && !x.ndevices) x.device[x.ndevices++] = "CPU";
  if (x.model) return bench_model(self, x.model, x.batch ? x.batch : 1, x.device, x.ndevices, x.json);
  if (!x.ndevices) default_devices(&x);
  if (x.peaks) return measure_peaks(self, &x);
  if (x.json)
    fputs("{\"results\": [", stdout);
  else
    print_head();
  for (unsigned i = 0; i < x.ndevices; i++) bench_device(&x, x.device[i], &t);
  if (x.json)
    printf("\n], \"ran\": %u, \"failed\": %u, \"skipped\": %u}\n", t.ran - t.skipped, t.failed, t.skipped);
  else
    printf("\n%u of %u ok%s. Every result was compared with a plain host computation. Times on EMU devices are the "
           "emulator's.\n",
           t.ran - t.skipped - t.failed, t.ran - t.skipped, t.skipped ? ", the others need ptxas" : "");
  db_shutdown();
  return t.failed ? EXIT_FAILED : EXIT_DONE;
}

const struct command bench_command = {
    .name = "bench",
    .summary = "run and check tensor programs and kernels on every device",
    .argp =
        {.options = options,
         .parser = parse,
         .doc =
             "Runs small tensor programs, and kernels in OpenCL C on AMD and in CUDA C on NVIDIA devices, and compares "
             "every result with a plain host computation. Without --dev: the CPU, the GPUs of this machine, "
             "EMU+AMD:gfx1100 and EMU+NV:sm_90. Tensor programs on NVIDIA devices need ptxas; without it, their rows "
             "report this and do not count."
             "\v"
             "Columns: kernels, packets written and doorbells rung by one run; time the kernels took by the device's "
             "clock, the best run (an emulated device runs once); GFLOPS and GB/s from the arithmetic and the least "
             "memory traffic; wave instructions that an emulated device executed; the largest relative difference "
             "from the host; ok, needs ptxas, or FAILED with the reason. The exit status is 1 when a case failed."},
    .main = bench_main,
};
