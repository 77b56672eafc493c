/* Times single kernels, and the same in OpenBLAS, PyTorch and cuBLAS, a copy of the same bytes, and the machine's
 * multiply-add rate. All take turns in one run; the best of several rounds counts. Every result is compared with plain
 * arithmetic.
 *
 *   kernels [--threads N,N] [--cpu-time] [--seconds S] [--json] [--plans] [--list] [--case TEXT]... [WORD...]
 *
 * DEV names the device. A case runs if each WORD is a word of its name. A WORD may be several alternatives separated by
 * commas, and may contain * and ?. A WORD after ^ must not occur in the name: `kernels matmul f32 512,1024`, `kernels
 * conv 16 ^7x7`. On the CPU the cases run once for each number of threads, in a separate process that is bound to this
 * number of the CPUs that taskset allows. --case runs one case instead of the list, given by its name in the list, or
 * by an operation, a type and the numbers of bench/speed/ops.c: --case 'matmul bf16 1x2048x2048x512'. An emulated GPU
 * runs small cases once. Its counts are printed instead of times, with model time (emu/exec/cost.def), which is not a
 * measurement, and its bound: the model time of the case's bytes and launches, relative to it. --cpu-time measures the
 * processor time of one thread instead of wall time; use it for ratios on a machine with other work. */
#define _GNU_SOURCE
#include "speed/speed.h"
#include "emu/emu.h"
#include "emu/exec/cost.h"
#include "hcq/backend.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_NS 600000000000ull
static struct options options;
static bool json_first = true;
enum { MAX_CASES = 512, SAMPLES = 2000 };

/* ---- one case ---- */

struct result {
  bool ran, ok;
  double seconds, beside[BESIDES]; /* of one call; 0: not measured */
  double error, tolerance;
  char reason[200];
  unsigned kernels;
  struct emu_detail counted; /* counted by an emulated device */
  uint64_t instructions;
};

static bool fail(struct result *r, const char *what) {
  snprintf(r->reason, sizeof r->reason, "%s", what);
  return r->ok = false;
}

static double epsilon(db_dtype t) {
  return t == DB_BF16 ? 0x1p-8 : t == DB_F16 ? 0x1p-11 : t == DB_F8E4M3 ? 0x1p-4 : t == DB_F8E5M2 ? 0x1p-3 : 0;
}

/* The largest error of a product whose operands keep 10 of their 23 fraction bits (TF32=1 on NVIDIA). */
static double tf32_error(const struct speed_case *c) {
  const char *tf32 = getenv("TF32");
  return tf32 && !strcmp(tf32, "1") && c->op->flops && c->dtype == DB_F32 ? 0x1p-9 : 0;
}

static float *read_floats(db_tensor *t, int64_t n) {
  float *x = malloc((size_t)n * sizeof *x);
  if (x && !db_read(db_cast(t, DB_F32), x, (size_t)n * sizeof *x)) return x;
  free(x);
  return NULL;
}

/* Compares elements of the result with plain arithmetic: all elements of a small result, otherwise evenly spaced ones,
 * fewer if they are expensive. */
static bool check(const struct speed_case *c, float *const *in, const float *got, struct result *r) {
  int64_t n = speed_numel(c->op->shape(c, c->op->ninputs));
  double affordable = 2e8 / c->op->cost(c);
  int64_t count = affordable < SAMPLES ? (int64_t)fmax(affordable, 16) : SAMPLES;
  if (count > n) count = n;
  r->tolerance = c->op->tolerance + (1 + c->op->rounded) * epsilon(c->dtype) + tf32_error(c);
  for (int64_t i = 0; i < count; i++) {
    int64_t at = count == 1 ? 0 : (int64_t)((double)i / (double)(count - 1) * (double)(n - 1));
    struct expected e = c->op->element(c, in, at);
    double error = fabs((double)got[at] - e.value) / (e.scale > 0 ? e.scale : 1);
    if (error <= r->error) continue;
    r->error = isnan(error) ? INFINITY : error;
    if (r->error > r->tolerance && !r->reason[0])
      snprintf(r->reason, sizeof r->reason, "element %lld is %.9g, plain arithmetic gives %.9g", (long long)at,
               (double)got[at], e.value);
  }
  return r->ok = r->error <= r->tolerance;
}

static int build(void *ctx, db_tensor *const *in, db_tensor **out) {
  const struct speed_case *c = ctx;
  out[0] = c->op->build(c, in);
  return 0;
}

struct timed {
  const struct speed_case *c;
  db_device *dev;
  db_jit *jit;
  db_tensor **in;
  struct peer *peers;
  unsigned npeers;
  double budget; /* seconds to spend on the case */
};

/* Makes `calls` calls. Returns the seconds that they took, or a negative number if one failed. */
static double our_seconds(struct timed *t, unsigned calls) {
  bool ok = true;
  double start = speed_now();
  for (unsigned i = 0; i < calls && ok; i++) {
    DB_SCOPED;
    db_tensor *out;
    ok = !db_jit_call(t->jit, t->in, &out);
  }
  ok = ok && !db_device_synchronize(t->dev, TIMEOUT_NS);
  return ok ? speed_now() - start : -1;
}

/* Returns the number of calls in one round, which takes about 5 ms. */
static unsigned calls_for(double seconds) {
  double n = 5e-3 / fmax(seconds, 1e-9);
  return n < 1 ? 1 : n > 5000 ? 5000 : (unsigned)n;
}

static bool measure(struct timed *t, struct result *r) {
  unsigned calls[BESIDES + 1] = {0};
  double begin = speed_wall();
  for (int i = 0; i < 3; i++) { /* a captured function runs twice before it replays */
    double s = our_seconds(t, 1);
    if (s < 0) return fail(r, db_error());
    r->seconds = i < 2 ? s : fmin(r->seconds, s); /* the first call compiles */
  }
  calls[BESIDES] = calls_for(r->seconds);
  for (unsigned i = 0; i < t->npeers; i++) {
    struct peer *p = &t->peers[i];
    double once = p->prepare(p, t->c) ? p->seconds(p, 1) : -1;
    if (once < 0) continue;
    calls[p->which] = calls_for(once);
    r->beside[p->which] = once;
  }
  for (int round = 0; round < 50 && (round < 3 || speed_wall() - begin < t->budget); round++) {
    double s = r->seconds;
    if (s < 2 && (s = our_seconds(t, calls[BESIDES]) / calls[BESIDES]) < 0) return fail(r, db_error());
    r->seconds = fmin(r->seconds, s);
    for (unsigned i = 0; i < t->npeers; i++) {
      struct peer *p = &t->peers[i];
      if (!calls[p->which]) continue;
      s = p->seconds(p, calls[p->which]) / calls[p->which];
      if (s > 0) r->beside[p->which] = fmin(r->beside[p->which], s);
      usleep(2000); /* wait until the peer's threads are idle */
    }
    if (round >= 1 && speed_wall() - begin > 4 * t->budget) break;
  }
  return true;
}

/* Runs the case once on dev, an emulated device that counts instructions. */
static db_tensor *run_counted(const struct speed_case *c, db_device *dev, db_tensor *const *in, struct result *r) {
  struct emu_stats before, after;
  struct db_device_counters kernels[2];
  struct os *os = db_device_os(dev);
  if (getenv("BEAM")) { /* a search runs kernels that must not be counted */
    DB_SCOPED;
    if (db_realize(c->op->build(c, in)) || db_device_synchronize(dev, TIMEOUT_NS)) return fail(r, db_error()), NULL;
  }
  db_tensor *out = c->op->build(c, in);
  emu_detail(os, true);
  emu_stats(os, db_device_index(dev), &before);
  db_device_counters(dev, &kernels[0]);
  int err = db_realize(out);
  if (!err) err = db_device_synchronize(dev, TIMEOUT_NS);
  if (err) fail(r, db_error());
  db_device_counters(dev, &kernels[1]);
  emu_stats(os, db_device_index(dev), &after);
  emu_detail(os, false);
  const uint64_t *a = (const uint64_t *)(const void *)&before.detail,
                 *b = (const uint64_t *)(const void *)&after.detail;
  uint64_t *to = (uint64_t *)(void *)&r->counted;
  for (unsigned i = 0; i < sizeof r->counted / sizeof *to; i++) to[i] = b[i] - a[i];
  r->instructions = after.instructions - before.instructions;
  r->kernels = (unsigned)(kernels[1].kernels - kernels[0].kernels);
  return err ? NULL : out;
}

static void run_case(const struct speed_case *c, db_device *dev, bool counted, struct peer *peers, unsigned npeers,
                     double budget, struct result *r) {
  DB_SCOPED;
  db_tensor *in[MAX_INPUTS], *out = NULL;
  float *host[MAX_INPUTS] = {0}, *got = NULL;
  bool ok = true;
  *r = (struct result){.ran = true};
  for (unsigned i = 0; i < c->op->ninputs && ok; i++) {
    struct tensor_shape s = c->op->shape(c, i);
    int64_t n = speed_numel(s);
    float *numbers = malloc((size_t)n * sizeof *numbers);
    fill_input(c, i, numbers, n);
    in[i] = db_cast(db_from_at(DB_HERE, numbers, DB_F32, dev, (db_list){s.n, s.dim}), speed_type(c, i));
    ok = !db_realize(in[i]) && (host[i] = read_floats(in[i], n));
    free(numbers);
  }
  if (!ok) fail(r, db_error());
  struct timed t = {c, dev, NULL, in, peers, npeers, budget};
  if (ok && counted) ok = (out = run_counted(c, dev, in, r)) != NULL;
  if (ok && !counted) {
    t.jit = db_jit_new(build, (void *)c, c->op->ninputs, 1);
    ok = t.jit && measure(&t, r) && !db_jit_call(t.jit, in, &out);
  }
  if (ok) {
    got = read_floats(out, speed_numel(c->op->shape(c, c->op->ninputs)));
    if (got)
      check(c, host, got, r);
    else
      fail(r, db_error());
  } else if (!r->reason[0])
    fail(r, db_error());
  if (t.jit) db_jit_free(t.jit);
  for (unsigned i = 0; i < MAX_INPUTS; i++) free(host[i]);
  free(got);
}

/* Prints the kernels of a case. Its inputs are zeros. */
static void show_plans(const struct speed_case *c, db_device *dev) {
  DB_SCOPED;
  db_tensor *in[MAX_INPUTS];
  for (unsigned i = 0; i < c->op->ninputs; i++) {
    struct tensor_shape s = c->op->shape(c, i);
    in[i] = db_full_at(DB_HERE, db_operand_int(0), speed_type(c, i), dev, (db_list){s.n, s.dim});
    in[i] = db_contiguous(in[i]);
    if (db_realize(in[i])) return;
  }
  print_plans(c->op->build(c, in), db_device_arch(dev));
}

/* ---- selection of cases ---- */

static bool wanted(const struct speed_case *c, enum machine on) {
  char text[128];
  if (c->on != on) return false;
  snprintf(text, sizeof text, "%s %s", c->group, c->name);
  return has_words(text, options.words, options.nwords);
}

/* ---- output ---- */

static const char *ratio_text(double ours, double theirs, char *buf, size_t cap) {
  if (theirs <= 0 || ours <= 0) return "-";
  return snprintf(buf, cap, "%.3f", theirs / ours), buf;
}

static void print_head(bool counted) {
  if (options.json) return;
  if (counted)
    printf("%-11s %-28s %7s %11s %9s %7s %10s %10s %10s %10s %10s %9s %10s %7s %8s\n", "case", "", "kernels",
           "instruct.", "matrix", "others", "loaded", "stored", "memory", "LDS load", "LDS store", "conflicts",
           "model time", "bound", "error");
  else
    printf("%-11s %-38s %2s %10s %9s %8s %8s %8s %8s %8s %8s %8s\n", "case", "", "t", "time", "rate", "OpenBLAS",
           "PyTorch", "cuBLAS", "memory", "peak", "speedup", "error");
}

static const char *bytes_text(uint64_t n, char *buf, size_t cap) {
  return snprintf(buf, cap, "%.2f MB", (double)n * 1e-6), buf;
}

static void print_counted(const struct speed_case *c, const struct result *r, const char *arch) {
  char b[7][24], others[16] = "-";
  const struct emu_detail *d = &r->counted;
  uint64_t matrix = d->executed[EMU_MATRIX_CLASS];
  if (matrix) snprintf(others, sizeof others, "%.1f", (double)(r->instructions - matrix) / (double)matrix);
  double modelled = (double)d->model_ps * 1e-12, read, written;
  case_bytes(c, &read, &written);
  double bound = (double)emu_model_bound_ps(arch, read + written, r->kernels) * 1e-12;
  printf("%-11s %-28s %7u %11llu %9llu %7s %10s %10s %10s %10s %10s %9llu %10s %7s %8.1e", c->group, c->name,
         r->kernels, (unsigned long long)r->instructions, (unsigned long long)matrix, others,
         bytes_text(d->loaded[EMU_GLOBAL_SPACE], b[0], sizeof b[0]),
         bytes_text(d->stored[EMU_GLOBAL_SPACE], b[1], sizeof b[1]), bytes_text(d->memory_bytes, b[4], sizeof b[4]),
         bytes_text(d->loaded[EMU_LDS_SPACE], b[2], sizeof b[2]),
         bytes_text(d->stored[EMU_LDS_SPACE], b[3], sizeof b[3]), (unsigned long long)d->lds_conflicts,
         modelled > 0 ? time_text(modelled, b[5], sizeof b[5]) : "-", ratio_text(modelled, bound, b[6], sizeof b[6]),
         r->error);
}

static double memory_beside(const struct result *r) {
  return r->beside[BESIDE_COPY] > 0 ? r->beside[BESIDE_COPY] : r->beside[BESIDE_READ];
}

static void print_timed(const struct speed_case *c, const struct result *r, const struct result *one,
                        unsigned threads) {
  char t[24], rate[24], b[8][24];
  double read, written, s = r->seconds, amount;
  case_bytes(c, &read, &written);
  amount = c->op->flops ? c->op->flops(c) : read + written;
  snprintf(rate, sizeof rate, "%.1f %s", amount / s * 1e-9, c->op->flops ? "GF" : "GB");
  char number[12] = "";
  if (threads) snprintf(number, sizeof number, "%u", threads);
  printf("%-11s %-38s %2s %10s %9s %8s %8s %8s %8s %8s %8s %8.1e", c->group, c->name, number, time_text(s, t, sizeof t),
         rate, ratio_text(s, r->beside[BESIDE_BLAS], b[0], sizeof b[0]),
         ratio_text(s, r->beside[BESIDE_TORCH], b[1], sizeof b[1]),
         ratio_text(s, r->beside[BESIDE_CUDA], b[2], sizeof b[2]), ratio_text(s, memory_beside(r), b[3], sizeof b[3]),
         ratio_text(s, r->beside[BESIDE_PEAK], b[4], sizeof b[4]),
         one && one->seconds > 0 ? ratio_text(s, one->seconds, b[5], sizeof b[5]) : "-", r->error);
  double theirs = r->beside[c->goal_beside];
  if (c->goal > 0 && theirs > 0)
    printf("  %.2f of %s: %s %.2f", theirs / s, beside_name[c->goal_beside],
           theirs / s >= c->goal ? "reaches" : "BELOW", c->goal);
}

static void print_json(const struct speed_case *c, const struct result *r, const char *device, unsigned threads,
                       bool counted) {
  printf(
      "%s\n{\"device\": \"%s\", \"case\": \"%s %s\", \"threads\": %u, \"ok\": %s, \"error\": %.3g, \"tolerance\": %.3g",
      json_first ? "" : ",", device, c->group, c->name, threads, r->ok ? "true" : "false",
      isfinite(r->error) ? r->error : -1, r->tolerance);
  json_first = false;
  if (counted) {
    static const char *const spaces[] = {
#define X(n, text) text,
        EMU_SPACES(X)
#undef X
    };
    static const char *const classes[] = {
#define X(n, text) text,
        EMU_CLASSES(X)
#undef X
    };
    printf(", \"kernels\": %u, \"instructions\": %llu", r->kernels, (unsigned long long)r->instructions);
    for (unsigned i = 0; i < EMU_CLASS_COUNT; i++)
      printf(", \"%s\": %llu", classes[i], (unsigned long long)r->counted.executed[i]);
    for (unsigned i = 0; i < EMU_SPACE_COUNT; i++)
      printf(", \"%s bytes loaded\": %llu, \"%s bytes stored\": %llu", spaces[i],
             (unsigned long long)r->counted.loaded[i], spaces[i], (unsigned long long)r->counted.stored[i]);
    printf(", \"bank conflicts\": %llu, \"memory bytes\": %llu, \"model seconds\": %.9g}",
           (unsigned long long)r->counted.lds_conflicts, (unsigned long long)r->counted.memory_bytes,
           (double)r->counted.model_ps * 1e-12);
    return;
  }
  double read, written;
  case_bytes(c, &read, &written);
  printf(", \"seconds\": %.9g, \"flops\": %.0f, \"bytes\": %.0f", r->seconds, c->op->flops ? c->op->flops(c) : 0,
         read + written);
  for (unsigned i = 0; i < BESIDES; i++)
    if (r->beside[i] > 0) printf(", \"%s seconds\": %.9g", beside_name[i], r->beside[i]);
  if (c->goal > 0) printf(", \"goal\": %.3f, \"goal beside\": \"%s\"", c->goal, beside_name[c->goal_beside]);
  printf("}");
}

/* Prints the geometric mean of a group's speeds relative to peer b. */
static void print_mean(const struct speed_case *cases, const struct result *r, unsigned n, const char *group,
                       const char *word, enum beside b, double goal) {
  double sum = 0;
  unsigned count = 0;
  for (unsigned i = 0; i < n; i++)
    if (!strcmp(cases[i].group, group) && (!word || has_word(cases[i].name, word)) && r[i].ok && r[i].beside[b] > 0)
      sum += log(r[i].beside[b] / r[i].seconds), count++;
  if (count > 1)
    printf("%s%s%s: %.3f of %s, the geometric mean of %u%s\n", group, word ? " batch " : "", word ? word : "",
           exp(sum / count), beside_name[b], count,
           goal <= 0                  ? ""
           : exp(sum / count) >= goal ? ": reaches 1"
                                      : ": BELOW 1");
}

/* ---- a device, with a number of threads ---- */

/* Runs the cases on the device that DEV names. On the CPU it runs in a child process (run_apart). one: results of the
 * first number of threads, or NULL. */
static int run_device(unsigned threads, const struct result *one, struct result *results) {
  unsigned n, npeers = 0;
  const struct speed_case *cases = speed_cases(&n);
  struct peer peers[BESIDES];
  db_device *dev = db_open(NULL);
  if (!dev) return fprintf(stderr, "kernels: %s\n", db_error()), 1;
  struct emu_stats stats;
  bool counted = !emu_stats(db_device_os(dev), db_device_index(dev), &stats);
  if (!counted) npeers = peers_open(peers, BESIDES, db_device_arch(dev), threads ? threads : 1);
  if (!options.json) {
    printf("\n%s (%s)", db_device_name(dev), db_device_arch(dev));
    if (threads) printf(", %u thread%s%s", threads, threads > 1 ? "s" : "", speed_cpu_time ? ", processor time" : "");
    printf("\n");
    for (unsigned i = 0; i < npeers; i++) printf("  %-8s %s\n", beside_name[peers[i].which], peers[i].about);
  }
  enum machine on = counted ? ON_EMULATOR : threads ? ON_HOST : ON_GPU;
  print_head(counted);
  int bad = 0;
  for (unsigned i = 0; i < n; i++) {
    if (!wanted(&cases[i], on)) continue;
    run_case(&cases[i], dev, counted, peers, npeers, options.seconds, &results[i]);
    for (unsigned k = 0; k < i; k++)
      if (cases[k].op == cases[i].op && cases[k].dtype == DB_F32 && cases[i].dtype != DB_F32 && results[k].ok &&
          cases[k].on == on && !memcmp(cases[k].n, cases[i].n, sizeof cases[k].n))
        results[i].beside[BESIDE_F32] = results[k].seconds;
    bad |= !results[i].ok;
    if (!results[i].ok && results[i].error <= results[i].tolerance) { /* a failed device stays failed: open it again */
      db_close(dev);
      db_shutdown();
      if (!(dev = db_open(NULL))) return fprintf(stderr, "kernels: %s\n", db_error()), 1;
    }
    if (options.json)
      print_json(&cases[i], &results[i], db_device_name(dev), threads, counted);
    else {
      if (counted)
        print_counted(&cases[i], &results[i], db_device_arch(dev));
      else
        print_timed(&cases[i], &results[i], one ? &one[i] : NULL, threads);
      printf("%s%s\n", results[i].ok ? "" : "  WRONG: ", results[i].reason);
      if (options.plans) show_plans(&cases[i], dev);
    }
    fflush(stdout);
  }
  if (!options.json && !counted) {
    print_mean(cases, results, n, "conv", "1", BESIDE_TORCH, 1);
    print_mean(cases, results, n, "conv", "16", BESIDE_TORCH, 1);
    print_mean(cases, results, n, "matmul", NULL, BESIDE_BLAS, 0);
    print_mean(cases, results, n, "matmul", NULL, BESIDE_CUDA, 0);
  }
  fflush(stdout);
  peers_close(peers, npeers);
  db_close(dev);
  return bad;
}

struct apart {
  unsigned threads;
  const struct result *one;
  struct result *results;
};
static int run_apart(void *ctx) {
  struct apart *a = ctx;
  keep_cpus(a->threads);
  return run_device(a->threads, a->one, a->results);
}
static int run_threads(unsigned threads, const struct result *one, struct result *results) {
  struct apart a = {threads, one, results};
  int bad = run_in_child(run_apart, &a, results, MAX_CASES * sizeof *results);
  for (unsigned i = 0; i < MAX_CASES; i++) json_first &= !results[i].ran;
  return bad;
}

static const char usage[] =
    "usage: kernels [--threads N,N] [--cpu-time] [--seconds S] [--json] [--plans] [--list] [--case TEXT]... [WORD...]\n"
    "  --threads N,N  on the CPU: the numbers of threads, with a run for each\n"
    "  --cpu-time     measure the processor time of one thread\n"
    "  --seconds S    seconds for each case\n"
    "  --json         print the results as JSON\n"
    "  --plans        print the plans of each case's kernels\n"
    "  --list         print the names of the cases for the device\n"
    "  --case TEXT    run this case: a name that --list prints, or an operation, a type and numbers\n"
    "  WORD           run the cases of the list that have all these words (a,b: one of them; ^a: not a; * and ?)\n"
    "DEV names the device.\n"
    "examples: kernels matmul f32 512,1024; kernels --case 'matmul f32 1024 x@w^T' --case 'matmul bf16 "
    "1x2048x2048x512'\n";

int main(int argc, char **argv) {
  unsigned n, chosen = 0;
  if (argc == 2 && !strcmp(argv[1], "--cuda")) return cuda_child();
  options = (struct options){.threads = {1, count_cpus()}, .nthreads = count_cpus() > 1 ? 2 : 1, .seconds = 0.6};
  if (!options_read(&options, argc, argv, true, usage)) return 2;
  const char *name = getenv("DEV");
  bool host = !name || !strncmp(name, "CPU", 3);
  enum machine on = host ? ON_HOST : !strncmp(name, "EMU+", 4) ? ON_EMULATOR : ON_GPU;
  for (unsigned i = 0; i < options.ncases; i++)
    if (!speed_give_case(options.cases[i], on)) return 2;
  const struct speed_case *cases = speed_cases(&n);
  for (unsigned i = 0; i < n; i++) {
    if (!wanted(&cases[i], on)) continue;
    chosen++;
    if (options.list) printf("%s %s\n", cases[i].group, cases[i].name);
  }
  if (!chosen) return fprintf(stderr, "kernels: no case matches all words; --list prints all cases\n"), 2;
  if (options.list) return 0;
  static struct result results[MAX_THREADS][MAX_CASES];
  int bad = 0;
  if (options.json) printf("{\"results\": [");
  if (!host)
    bad = run_device(0, NULL, results[0]);
  else
    for (unsigned i = 0; i < options.nthreads; i++)
      bad |= run_threads(options.threads[i], i ? results[0] : NULL, results[i]);
  if (options.json) printf("\n]}\n");
  return bad;
}
