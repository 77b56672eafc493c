/* The kernels of `doorbell bench` in OpenCL C and CUDA C. They use only the loaders of code objects and cubins, and the
 * queues. */
#include "bench.h"
#include <stdlib.h>
#include <string.h>

/* The contents of bench/kernels, compiled or packed at build time; the last entry has the name NULL. A kernel's code
 * object is named after the kernel, its cubin for an ISA "NAME.sm_90.cubin", its PTX text "NAME.ptx". */
extern const struct embedded bench_kernels[] __attribute__((visibility("hidden")));

struct launch {
  const char *kernel;
  uint32_t grid[3], block[3];
  struct db_arg args[4];
  unsigned nargs;
  db_buffer *out; /* filled with `initial` before every run */
  const void *initial;
};

static const void *find_kernel(const char *name, const char *suffix, size_t *size) {
  char full[64];
  snprintf(full, sizeof full, "%s%s", name, suffix);
  for (int i = 0; bench_kernels[i].name; i++)
    if (!strcmp(bench_kernels[i].name, full)) {
      *size = (size_t)(bench_kernels[i].end - bench_kernels[i].begin);
      return bench_kernels[i].begin;
    }
  return NULL;
}

/* For an NVIDIA device without a cubin in the table, assembles the PTX text. */
static db_program *load_kernel(db_device *dev, const char *name, struct bench_result *r) {
  const char *arch = db_device_arch(dev);
  char suffix[40] = "";
  size_t size;
  void *made = NULL;
  bool nvidia = !strncmp(arch, "sm_", 3);
  if (nvidia) snprintf(suffix, sizeof suffix, ".%s.cubin", arch);
  const void *image = find_kernel(name, suffix, &size);
  if (!image && nvidia && (image = find_kernel(name, ".ptx", &size))) {
    char why[4096];
    if (source_assemble_ptx(arch, image, size, &made, &size, why, sizeof why)) {
      bench_fail(r, why);
      return NULL;
    }
    image = made;
  }
  if (!image) {
    bench_fail(r, "the kernel is not part of this build");
    return NULL;
  }
  db_program *p = db_program_load(dev, image, size, name, NULL, 0);
  if (!p) bench_fail(r, db_error());
  free(made);
  return p;
}

static bool one_run(db_device *dev, db_queue *q, db_program *prog, const struct launch *l, db_signal *begin,
                    db_signal *end, struct bench_result *r) {
  uint64_t when;
  if (db_buffer_write(l->out, 0, l->initial, db_buffer_size(l->out))) return bench_fail(r, db_error());
  struct bench_counts before = bench_count(dev, &r->emulated);
  if (begin) db_queue_timestamp(q, begin);
  db_queue_exec(q, prog, l->args, l->nargs, l->grid, l->block);
  if (end) db_queue_timestamp(q, end);
  if (db_queue_submit(q, &when) || db_wait(db_queue_timeline(q), when, 60000000000ull))
    return bench_fail(r, db_error());
  if (!begin) {
    bench_counted(dev, before, r);
    return true;
  }
  uint64_t t[2];
  db_signal_interval(begin, end, &t[0], &t[1]);
  double seconds = (double)(t[1] - t[0]) * 1e-9;
  if (r->seconds <= 0 || seconds < r->seconds) r->seconds = seconds;
  return true;
}

/* Runs the kernel and copies its result to out, which has the size of l->out. */
static bool measure_kernel(db_device *dev, const struct launch *l, struct bench_result *r, void *out) {
  bool good = false;
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  db_signal *begin = db_signal_new(dev), *end = db_signal_new(dev);
  db_program *prog = NULL;
  if (!q || !begin || !end || !l->out) {
    bench_fail(r, db_error());
    goto out;
  }
  if (!(prog = load_kernel(dev, l->kernel, r))) goto out;
  snprintf(r->kernel_names, sizeof r->kernel_names, "%s", l->kernel);
  if (!one_run(dev, q, prog, l, begin, end, r)) goto out;
  if (db_buffer_read(l->out, 0, out, db_buffer_size(l->out))) {
    bench_fail(r, db_error());
    goto out;
  }
  if (!one_run(dev, q, prog, l, NULL, NULL, r)) goto out;
  good = true;
  double start = cli_now();
  for (unsigned runs = 1; good && bench_again(r, runs, cli_now() - start); runs++)
    good = one_run(dev, q, prog, l, begin, end, r);
out:
  db_program_release(prog);
  db_signal_release(begin);
  db_signal_release(end);
  db_queue_release(q);
  return good;
}

static db_buffer *new_filled_buffer(db_device *dev, const void *data, size_t bytes) {
  db_buffer *b = db_alloc(dev, bytes, 0);
  if (b && db_buffer_write(b, 0, data, bytes)) {
    db_buffer_release(b);
    return NULL;
  }
  return b;
}

/* Integers must be equal. */
static void compare_exactly(struct bench_result *r, const uint32_t *got, const uint32_t *expected, unsigned n) {
  r->ok = true;
  for (unsigned i = 0; i < n; i++)
    if (got[i] != expected[i]) {
      r->ok = false;
      snprintf(r->reason, sizeof r->reason, "element %u is %u, but the host has %u", i, got[i], expected[i]);
      return;
    }
}

void bench_code_saxpy(db_device *dev, struct bench_result *r) {
  enum { N = 1 << 20 };
  float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y), *out = malloc(N * sizeof *out), a = 2.5f;
  double *expected = malloc(N * sizeof *expected);
  db_buffer *bx = NULL, *by = NULL;
  if (!x || !y || !out || !expected) {
    bench_fail(r, "out of memory");
    goto out;
  }
  bench_fill(x, N, 1);
  bench_fill(y, N, 2);
  for (int i = 0; i < N; i++) expected[i] = (double)a * (double)x[i] + (double)y[i];
  bx = new_filled_buffer(dev, x, N * sizeof *x);
  by = new_filled_buffer(dev, y, N * sizeof *y);
  struct launch l = {
      "saxpy", {N / 256, 1, 1}, {256, 1, 1}, {{.buffer = by}, {.buffer = bx}, {.data = &a}, {.bits = N}}, 4, by, y};
  r->flops = 2.0 * N;
  r->bytes = 12.0 * N;
  if (measure_kernel(dev, &l, r, out)) bench_compare(r, out, expected, N, 1, 1e-6);
out:
  db_buffer_release(bx);
  db_buffer_release(by);
  free(x);
  free(y);
  free(out);
  free(expected);
}

void bench_code_sgemm(db_device *dev, struct bench_result *r) {
  enum { N = 256, ALL = N * N };
  float *a = malloc(ALL * sizeof *a), *b = malloc(ALL * sizeof *b), *c = calloc(ALL, sizeof *c);
  double *expected = calloc(ALL, sizeof *expected);
  db_buffer *ba = NULL, *bb = NULL, *bc = NULL;
  if (!a || !b || !c || !expected) {
    bench_fail(r, "out of memory");
    goto out;
  }
  bench_fill(a, ALL, 5);
  bench_fill(b, ALL, 6);
  for (int i = 0; i < N; i++)
    for (int k = 0; k < N; k++)
      for (int j = 0; j < N; j++) expected[i * N + j] += (double)a[i * N + k] * (double)b[k * N + j];
  ba = new_filled_buffer(dev, a, ALL * sizeof *a);
  bb = new_filled_buffer(dev, b, ALL * sizeof *b);
  bc = new_filled_buffer(dev, c, ALL * sizeof *c);
  struct launch l = {"sgemm",
                     {N / 16, N / 16, 1},
                     {16, 16, 1},
                     {{.buffer = bc}, {.buffer = ba}, {.buffer = bb}, {.bits = N}},
                     4,
                     bc,
                     memset(c, 0, ALL * sizeof *c)};
  float *out = malloc(ALL * sizeof *out);
  r->flops = 2.0 * N * N * N;
  r->bytes = 12.0 * ALL;
  if (!out)
    bench_fail(r, "out of memory");
  else if (measure_kernel(dev, &l, r, out))
    bench_compare(r, out, expected, ALL, N / 3.0, 1e-6);
  free(out);
out:
  db_buffer_release(ba);
  db_buffer_release(bb);
  db_buffer_release(bc);
  free(a);
  free(b);
  free(c);
  free(expected);
}

void bench_code_reduce(db_device *dev, struct bench_result *r) {
  enum { N = 4 << 20, GROUPS = 64 };
  uint32_t *x = malloc(N * sizeof *x), zero[GROUPS] = {0}, out[GROUPS], expected[GROUPS] = {0};
  db_buffer *bx = NULL, *bo = NULL;
  if (!x) {
    bench_fail(r, "out of memory");
    return;
  }
  for (uint32_t i = 0; i < N; i++) {
    x[i] = i * 2654435761u;
    expected[i / 256 % GROUPS] += x[i];
  }
  bx = new_filled_buffer(dev, x, N * sizeof *x);
  bo = new_filled_buffer(dev, zero, sizeof zero);
  struct launch l = {"reduce", {GROUPS, 1, 1}, {256, 1, 1}, {{.buffer = bo}, {.buffer = bx}, {.bits = N}}, 3, bo, zero};
  r->flops = N;
  r->bytes = 4.0 * N;
  if (measure_kernel(dev, &l, r, out)) compare_exactly(r, out, expected, GROUPS);
  db_buffer_release(bx);
  db_buffer_release(bo);
  free(x);
}

void bench_code_histogram(db_device *dev, struct bench_result *r) {
  enum { N = 1 << 20, GROUPS = 64, BINS = 256 };
  uint8_t *x = malloc(N);
  uint32_t zero[BINS] = {0}, out[BINS], expected[BINS] = {0}, s = 1;
  db_buffer *bx = NULL, *bo = NULL;
  if (!x) {
    bench_fail(r, "out of memory");
    return;
  }
  for (uint32_t i = 0; i < N; i++) {
    s = s * 1664525u + 1013904223u;
    expected[x[i] = (uint8_t)((s >> 24) & (s >> 16))]++;
  }
  bx = new_filled_buffer(dev, x, N);
  bo = new_filled_buffer(dev, zero, sizeof zero);
  struct launch l = {"histogram", {GROUPS, 1, 1}, {256, 1, 1}, {{.buffer = bo}, {.buffer = bx}, {.bits = N}}, 3, bo,
                     zero};
  r->bytes = N;
  if (measure_kernel(dev, &l, r, out)) compare_exactly(r, out, expected, BINS);
  db_buffer_release(bx);
  db_buffer_release(bo);
  free(x);
}
