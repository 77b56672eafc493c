/* The cases of `doorbell bench`: each computes something on a device and checks it against the host. */
#ifndef DOORBELL_CLI_BENCH_H
#define DOORBELL_CLI_BENCH_H
#include "cli.h"

struct bench_result {
  const char *device, *name;
  char kernel_names[256]; /* of the commands, separated by spaces */
  unsigned kernels;       /* of one run, as are packets and doorbells */
  uint64_t packets, doorbells;
  double seconds; /* of the kernels on the device, the best run */
  double flops, bytes;
  uint64_t instructions; /* executed by an emulated device in one run */
  bool emulated;
  double error, tolerance; /* largest relative difference from the host's result */
  bool ok, skipped;        /* skipped: what it needs is not installed */
  char reason[320];        /* why not */
};

struct bench_case {
  const char *name, *what;
  const char
      *code; /* a kernel that travels in the command, for devices whose ISA begins so: "gfx", "sm_"; NULL: tensors */
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

/* ---- bench.c ---- */
/* Counts of the device before a run, and their difference after it put into r. */
struct bench_counts {
  struct db_device_counters device;
  uint64_t instructions;
};
struct bench_counts bench_count(db_device *dev, bool *emulated);
void bench_counted(db_device *dev, struct bench_counts before, struct bench_result *r);
/* Marks r as failed with db_error() or a text. Returns false. */
bool bench_fail(struct bench_result *r, const char *what);
/* Compares got with the host's expected numbers; sets error, tolerance and ok. Differences are relative to the larger
 * of |expected| and scale. */
void bench_compare(struct bench_result *r, const float *got, const double *expected, int64_t n, double scale,
                   double tolerance);
/* Numbers from -1 up to 1, the same everywhere. */
void bench_fill(float *x, int64_t n, uint32_t seed);
/* Whether to run once more after spending so much: emulated devices run once. */
bool bench_again(const struct bench_result *r, unsigned runs, double spent);
double bench_now(void); /* seconds */

#endif
