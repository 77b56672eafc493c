/* The tensor programs of `doorbell bench`. A case makes inputs and a function that builds the result from them. */
#include "bench.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct program {
  db_tensor *in[5];
  db_tensor *(*build)(db_tensor *const *in);
  unsigned kernels;   /* expected number of kernels; 0: any */
  const char *kernel; /* expected name of the kernel, or NULL */
};

struct watched {
  struct bench_result *r;
  uint64_t ns;
  double flops, bytes;
  bool names;
};

static void add_command(void *ctx, const struct db_command *c) {
  struct watched *w = ctx;
  if (c->is_copy) return;
  w->ns += c->end_ns - c->begin_ns;
  w->flops += c->flops;
  w->bytes += (double)c->bytes;
  size_t n = strlen(w->r->kernel_names);
  if (w->names) snprintf(w->r->kernel_names + n, sizeof w->r->kernel_names - n, n ? " %s" : "%s", c->name);
}

/* Runs the program with times for every kernel. Returns false after bench_fail. */
static bool timed_run(const struct program *p, struct bench_result *r, bool first, float *out, size_t bytes) {
  struct watched w = {.r = r, .names = first};
  bool good = true;
  db_watch(add_command, &w);
  {
    DB_SCOPED;
    db_tensor *y = p->build(p->in);
    if (db_realize(y) || (out && db_read(y, out, bytes))) good = bench_fail(r, db_error());
  }
  db_watch(NULL, NULL);
  double seconds = (double)w.ns * 1e-9;
  if (good && (r->seconds <= 0 || seconds < r->seconds)) r->seconds = seconds;
  r->flops = w.flops;
  r->bytes = w.bytes;
  return good;
}

/* Runs the program without times and counts its packets. */
static bool counted_run(db_device *dev, const struct program *p, struct bench_result *r) {
  bool good = true;
  {
    DB_SCOPED;
    db_tensor *y = p->build(p->in);
    struct bench_counts before = bench_count(dev, &r->emulated);
    if (db_realize(y) || db_device_synchronize(dev, 60000000000ull)) good = bench_fail(r, db_error());
    bench_counted(dev, before, r);
  }
  return good;
}

static void measure_program(db_device *dev, const struct program *p, struct bench_result *r, const double *expected,
                            int64_t n, double scale, double tolerance) {
  float *out = malloc((size_t)n * sizeof *out);
  if (!out) {
    bench_fail(r, "out of memory");
    return;
  }
  if (!timed_run(p, r, true, out, (size_t)n * sizeof *out) || !counted_run(dev, p, r)) goto out;
  double start = cli_now();
  for (unsigned runs = 1; bench_again(r, runs, cli_now() - start); runs++)
    if (!timed_run(p, r, false, NULL, 0)) goto out;
  bench_compare(r, out, expected, n, scale, tolerance);
  if (r->ok && p->kernels && r->kernels != p->kernels) {
    r->ok = false;
    snprintf(r->reason, sizeof r->reason, "%u kernels (%s) instead of %u", r->kernels, r->kernel_names, p->kernels);
  } else if (r->ok && p->kernel && strcmp(p->kernel, r->kernel_names) != 0) {
    r->ok = false;
    snprintf(r->reason, sizeof r->reason, "kernel %s instead of %s", r->kernel_names, p->kernel);
  }
out:
  free(out);
}

/* An input, and a copy of it on the host. */
static db_tensor *input(db_device *dev, float **host, uint32_t seed, int64_t a, int64_t b) {
  int64_t n = a * (b ? b : 1), shape[2] = {a, b};
  *host = malloc((size_t)n * sizeof **host);
  if (*host) bench_fill(*host, n, seed);
  return db_from_at(DB_HERE, *host, DB_F32, dev, (db_list){b ? 2 : 1, shape});
}

/* ---- the cases ---- */

static db_tensor *build_dot(db_tensor *const *in) { return db_dot(in[0], in[1]); }
void bench_dot(db_device *dev, struct bench_result *r) {
  {
    DB_SCOPED;
    struct program p = {
        {db_from(((float[]){1, 2}), DB_F32, dev, 2), db_from(((float[]){3, 4}), DB_F32, dev, 2)}, build_dot, 1, "r_2"};
    measure_program(dev, &p, r, (double[]){11}, 1, 0, 1e-7);
  }
}

static db_tensor *build_variance(db_tensor *const *in) { return db_var(in[0]); }
void bench_variance(db_device *dev, struct bench_result *r) {
  {
    DB_SCOPED;
    struct program p = {{db_from(((float[]){1, 2, 3, 4}), DB_F32, dev, 4)}, build_variance, 1, NULL};
    measure_program(dev, &p, r, (double[]){5.0 / 3}, 1, 0, 1e-7);
  }
}

static db_tensor *build_saxpy(db_tensor *const *in) { return db_add(db_mul(in[0], 2.5), in[1]); }
void bench_saxpy(db_device *dev, struct bench_result *r) {
  enum { N = 1 << 20 };
  float *x, *y;
  double *expected = malloc(N * sizeof *expected);
  {
    DB_SCOPED;
    struct program p = {{input(dev, &x, 1, N, 0), input(dev, &y, 2, N, 0)}, build_saxpy, 1, NULL};
    if (x && y && expected) {
      for (int i = 0; i < N; i++) expected[i] = 2.5 * (double)x[i] + (double)y[i];
      measure_program(dev, &p, r, expected, N, 1, 1e-6);
    } else {
      bench_fail(r, "out of memory");
    }
  }
  free(x);
  free(y);
  free(expected);
}

static db_tensor *build_sum(db_tensor *const *in) { return db_sum(in[0]); }
void bench_sum(db_device *dev, struct bench_result *r) {
  enum { N = 4 << 20 };
  float *x;
  {
    DB_SCOPED;
    struct program p = {{input(dev, &x, 3, 2048, N / 2048)}, build_sum, 0, NULL};
    if (x) {
      double expected = 0, size = 0;
      for (int i = 0; i < N; i++) expected += (double)x[i], size += fabs((double)x[i]);
      /* The rounding error is proportional to the sum of magnitudes. */
      measure_program(dev, &p, r, &expected, 1, size, 1e-6);
    } else {
      bench_fail(r, "out of memory");
    }
  }
  free(x);
}

static db_tensor *build_softmax(db_tensor *const *in) { return db_softmax(in[0], -1); }
void bench_softmax(db_device *dev, struct bench_result *r) {
  enum { N = 512 };
  float *x;
  double *expected = malloc((size_t)N * N * sizeof *expected);
  {
    DB_SCOPED;
    struct program p = {{input(dev, &x, 4, N, N)}, build_softmax, 0, NULL};
    if (x && expected) {
      for (int i = 0; i < N; i++) {
        double sum = 0;
        for (int k = 0; k < N; k++) sum += expected[i * N + k] = exp((double)x[i * N + k]);
        for (int k = 0; k < N; k++) expected[i * N + k] /= sum;
      }
      measure_program(dev, &p, r, expected, (int64_t)N * N, 0, 1e-5);
      if (r->ok && r->kernels > 2) bench_fail(r, "more than two kernels");
    } else {
      bench_fail(r, "out of memory");
    }
  }
  free(x);
  free(expected);
}

/* c[m, n] = a[m, k] b[k, n] on the host. */
static void host_matmul(double *c, const double *a, const double *b, int m, int k, int n) {
  memset(c, 0, (size_t)m * (size_t)n * sizeof *c);
  for (int i = 0; i < m; i++)
    for (int t = 0; t < k; t++)
      for (int j = 0; j < n; j++) c[i * n + j] += a[i * k + t] * b[t * n + j];
}

static double *to_double(const float *x, int64_t n) {
  double *d = x ? malloc((size_t)n * sizeof *d) : NULL;
  for (int64_t i = 0; d && i < n; i++) d[i] = (double)x[i];
  return d;
}

static db_tensor *build_matmul(db_tensor *const *in) { return db_matmul(in[0], in[1]); }
void bench_matmul(db_device *dev, struct bench_result *r) {
  enum { N = 256 };
  float *a, *b;
  double *c = malloc((size_t)N * N * sizeof *c);
  {
    DB_SCOPED;
    struct program p = {{input(dev, &a, 5, N, N), input(dev, &b, 6, N, N)}, build_matmul, 1, NULL};
    double *x = to_double(a, N * N), *y = to_double(b, N * N);
    if (x && y && c) {
      host_matmul(c, x, y, N, N, N);
      measure_program(dev, &p, r, c, (int64_t)N * N, N / 3.0, 1e-6); /* N / 3 is 4/3 of the mean of sum |x y| */
    } else {
      bench_fail(r, "out of memory");
    }
    free(x);
    free(y);
  }
  free(a);
  free(b);
  free(c);
}

static db_tensor *build_perceptron(db_tensor *const *in) {
  db_tensor *hidden = db_relu(db_add(db_matmul(in[0], in[1]), in[2]));
  return db_add(db_matmul(hidden, in[3]), in[4]);
}
void bench_perceptron(db_device *dev, struct bench_result *r) {
  enum { ROWS = 64, INPUTS = 784, HIDDEN = 128, OUTPUTS = 10 };
  float *host[5];
  double *d[5], *hidden = malloc(sizeof(double) * ROWS * HIDDEN), *out = malloc(sizeof(double) * ROWS * OUTPUTS);
  static const int64_t shape[5][2] = {{ROWS, INPUTS}, {INPUTS, HIDDEN}, {HIDDEN, 0}, {HIDDEN, OUTPUTS}, {OUTPUTS, 0}};
  {
    DB_SCOPED;
    struct program p = {.build = build_perceptron, .kernels = 2};
    bool good = hidden && out;
    for (int i = 0; i < 5; i++) {
      p.in[i] = input(dev, &host[i], 7 + (uint32_t)i, shape[i][0], shape[i][1]);
      d[i] = to_double(host[i], shape[i][0] * (shape[i][1] ? shape[i][1] : 1));
      good &= d[i] != NULL;
    }
    if (good) {
      host_matmul(hidden, d[0], d[1], ROWS, INPUTS, HIDDEN);
      for (int i = 0; i < ROWS * HIDDEN; i++) hidden[i] = fmax(hidden[i] + d[2][i % HIDDEN], 0);
      host_matmul(out, hidden, d[3], ROWS, HIDDEN, OUTPUTS);
      for (int i = 0; i < ROWS * OUTPUTS; i++) out[i] += d[4][i % OUTPUTS];
      measure_program(dev, &p, r, out, (int64_t)ROWS * OUTPUTS, 100, 1e-5);
    } else {
      bench_fail(r, "out of memory");
    }
  }
  for (int i = 0; i < 5; i++) {
    free(host[i]);
    free(d[i]);
  }
  free(hidden);
  free(out);
}
