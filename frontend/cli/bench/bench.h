/* The cases of `doorbell bench`. Each computes something on a device and compares the result with the host's. */
#ifndef DOORBELL_CLI_BENCH_H
#define DOORBELL_CLI_BENCH_H
#include "../cli.h"

struct bench_result {
  const char *device, *name;
  char kernel_names[256]; /* names of the kernels, separated by spaces */
  unsigned kernels;       /* number per run, as packets and doorbells */
  uint64_t packets, doorbells;
  double seconds; /* time of the kernels on the device in the best run */
  double flops, bytes;
  uint64_t instructions; /* wave instructions that an emulated device executed in one run */
  bool emulated;
  double error, tolerance; /* largest relative difference from the host's result */
  bool ok, skipped;        /* skipped: something that it needs is not installed */
  char reason[320];        /* why it failed or was skipped */
};

struct bench_case {
  const char *name, *what;
  const char *code; /* prefix of the ISAs that its kernel is for: "gfx", "sm_"; NULL for a tensor program */
  void (*run)(db_device *dev, struct bench_result *r);
};
extern const struct bench_case bench_cases[];
extern const unsigned bench_ncases;

/* ---- bench_tensor.c, bench_kernel.c ---- */
void bench_dot(db_device *dev, struct bench_result *r);
void bench_variance(db_device *dev, struct bench_result *r);
void bench_saxpy(db_device *dev, struct bench_result *r);
void bench_softmax(db_device *dev, struct bench_result *r);
void bench_matmul(db_device *dev, struct bench_result *r);
void bench_sum(db_device *dev, struct bench_result *r);
void bench_perceptron(db_device *dev, struct bench_result *r);
void bench_code_saxpy(db_device *dev, struct bench_result *r);
void bench_code_sgemm(db_device *dev, struct bench_result *r);
void bench_code_reduce(db_device *dev, struct bench_result *r);
void bench_code_histogram(db_device *dev, struct bench_result *r);

/* ---- bench_model.c ---- */
struct bench_model {
  const char *file, *device;
  int64_t batch;
  bool json, first; /* first: nothing was printed yet */
};
#define BENCH_WAIT_NS 600000000000ull
/* Measures the model in a file, or a built-in network, selected by name, on devices, and prints its speed. Returns the
 * exit status. */
int bench_model(const struct command *self, const char *file, int64_t batch, const char *const *devices, unsigned n,
                bool json);
/* Returns true until enough runs were measured. */
bool bench_runs_again(const struct runs *r);
/* Prints the rate of runs that compute `count` of something each, and its standard deviation between runs. */
void bench_print_runs(struct bench_model *m, const char *unit, double count, const struct runs *r);

/* ---- bench_nets.c: networks of published sizes ---- */
extern const char bench_net_names[];
typedef int bench_model_fn(struct bench_model *m, db_device *dev);
bench_model_fn *bench_net_find(const char *name); /* NULL if there is none */

/* ---- bench.c ---- */
/* bench_count returns the counters of a device before a run. bench_counted stores the difference after the run in r. */
struct bench_counts {
  struct db_device_counters device;
  uint64_t instructions;
};
struct bench_counts bench_count(db_device *dev, bool *emulated);
void bench_counted(db_device *dev, struct bench_counts before, struct bench_result *r);
/* Marks r as failed, with a message. Returns false. */
bool bench_fail(struct bench_result *r, const char *what);
/* Compares `got` with the host's `expected` numbers and sets error, tolerance and ok. Errors are relative to the larger
 * of |expected| and scale. */
void bench_compare(struct bench_result *r, const float *got, const double *expected, int64_t n, double scale,
                   double tolerance);
/* Fills x with numbers in [-1, 1), the same on every machine. */
void bench_fill(float *x, int64_t n, uint32_t seed);
/* Whether to run again after `runs` runs that took `spent` seconds. Emulated devices run once. */
bool bench_again(const struct bench_result *r, unsigned runs, double spent);

#endif
