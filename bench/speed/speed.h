/* Shared by bench/kernels and bench/models: cases, how they are timed, and the programs that they are compared with. */
#ifndef BENCH_SPEED_H
#define BENCH_SPEED_H
#include "frontend/doorbell.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* ---- cases ---- */

enum { MAX_INPUTS = 5, MAX_DIMS = 5, MAX_NUMBERS = 8 };

struct tensor_shape {
  unsigned n;
  int64_t dim[MAX_DIMS];
};

/* The expected value of an element, and the scale of the terms that it is computed from; errors are relative to the
 * scale. */
struct expected {
  double value, scale;
};

struct speed_case;
struct speed_op {
  const char *name;
  const char *numbers; /* names of a case's numbers; those with '?' are 0 or 1; from the first with '?' or '[', they may
                        * be left out */
  unsigned ninputs;
  /* Shape of input i, or of the output (i == ninputs). */
  struct tensor_shape (*shape)(const struct speed_case *c, unsigned i);
  db_tensor *(*build)(const struct speed_case *c, db_tensor *const *in);
  /* Computes element `at` of the output from the inputs, given as floats. */
  struct expected (*element)(const struct speed_case *c, float *const *in, int64_t at);
  double (*cost)(const struct speed_case *c);  /* multiply-adds per element of the reference */
  double (*flops)(const struct speed_case *c); /* NULL if the case is bound by memory */
  double tolerance;                            /* of an f32 result, relative to the scale */
  /* Type of input i, or of the output; NULL: the case's. Integer inputs are from 0 to n[0] - 1 of the case. */
  db_dtype (*type)(const struct speed_case *c, unsigned i);
  unsigned rounded; /* values on the way to the result that are rounded to the case's type, each from the one before */
};

enum beside {
  BESIDE_BLAS,
  BESIDE_TORCH,
  BESIDE_CUDA,
  BESIDE_COPY,
  BESIDE_READ,
  BESIDE_PEAK,
  BESIDE_MATMUL,
  BESIDE_F32,
  BESIDES
};
extern const char *const beside_name[BESIDES];

/* The kind of machine that runs a case. Emulated GPUs run small cases, real GPUs large ones. */
enum machine { ON_HOST, ON_EMULATOR, ON_GPU };

struct speed_case {
  char group[16], name[64]; /* "matmul", "f32 1024" */
  const struct speed_op *op;
  db_dtype dtype;
  int64_t n[MAX_NUMBERS]; /* sizes and switches; the operation defines the order (ops.c) */
  enum beside goal_beside;
  double goal; /* required speed relative to goal_beside; 0: none */
  enum machine on;
};

const struct speed_op *speed_op(const char *name);
/* Returns the list of cases, or the given ones if there are any. */
const struct speed_case *speed_cases(unsigned *n);
enum { MAX_GIVEN = 16 };
/* Adds a case given as text: the name of a case of the list for any machine, or an operation, a type, and the
 * operation's numbers in the order of ops.c, such as "matmul bf16 1x2048x2048x512". If the text is wrong, prints why,
 * and an example, on stderr and returns false. */
bool speed_give_case(const char *text, enum machine on);
db_dtype speed_type(const struct speed_case *c, unsigned i);
int64_t speed_numel(struct tensor_shape s);
/* The minimum number of bytes that a case reads and writes. */
void case_bytes(const struct speed_case *c, double *read, double *written);
void fill_numbers(float *x, int64_t n, uint32_t seed);
/* Numbers of input i of a case. */
void fill_input(const struct speed_case *c, unsigned i, float *x, int64_t n);
/* speed_now is the clock for timing cases, in seconds: wall time, or with speed_cpu_time the processor time of this
 * process, which does not include other work on the machine. Processor time is meaningful for one thread only. */
extern bool speed_cpu_time;
double speed_now(void);
double speed_wall(void);

/* ---- peers ---- */

/* Another program that runs the same case. seconds() returns the time of `calls` calls, or a negative number if one
 * failed. */
struct peer {
  enum beside which;
  bool (*prepare)(struct peer *p, const struct speed_case *c);
  double (*seconds)(struct peer *p, unsigned calls);
  void *state;
  void (*close)(struct peer *p);
  char about[160]; /* its version, or why it is missing */
};

/* Opens the peers that exist for a device of this architecture ("x86_64", "sm_90"), each with `threads` threads.
 * Returns their number. */
unsigned peers_open(struct peer *out, unsigned cap, const char *arch, unsigned threads);
void peers_close(struct peer *p, unsigned n);
/* Returns true if the host has bf16 multiply instructions. */
bool host_has_bf16(void);
/* Opens three peers that use cuBLAS and CUDA's copy. They run in a child process, whose main function is cuda_child. */
unsigned cuda_peers_open(struct peer *out);
int cuda_child(void);

/* ---- code ---- */

/* The main loop of a kernel: the innermost loop with the most matrix instructions. The numbers are static counts. */
struct code_loop {
  unsigned instructions, matrix;
  unsigned vector; /* AMD: all v_* instructions */
  unsigned memory; /* loads and stores of registers */
  bool mixed;      /* it has matrix instructions with different names */
  char name[48];   /* of the first matrix instruction */
};
/* Finds the main loop. Returns false if no loop has matrix instructions or the architecture is not supported. */
bool code_main_loop(const void *image, size_t size, const char *arch, struct code_loop *out);
/* Prints a line for each kernel of t, which must not be realized: the kernel's plan and its main loop. */
void print_plans(db_tensor *t, const char *arch);

/* ---- processes ---- */

/* A child process that reads requests and writes replies, one line each. */
struct child {
  int pid;
  FILE *to, *from;
};
bool child_start(struct child *c, char *const *argv);
void child_end(struct child *c);
/* Sends a line and reads one into reply. Returns false if the child has ended. */
bool child_ask(struct child *c, const char *line, char *reply, size_t cap);
/* Starts torch_peer.py. Stores in about the version of PyTorch, or why it is missing. */
bool torch_start(struct child *c, unsigned threads, const char *arch, char *about, size_t cap);

/* Runs fn in a child process and copies the bytes at result back from it. Returns fn's result, or 1 if the child
 * failed. */
int run_in_child(int (*fn)(void *ctx), void *ctx, void *result, size_t size);
/* Binds this process, and the threads that it starts, to the first n of its CPUs. */
void keep_cpus(unsigned n);
unsigned count_cpus(void);

/* ---- command lines and text ---- */

enum { MAX_THREADS = 8, MAX_WORDS = 16 };
struct options {
  unsigned threads[MAX_THREADS], nthreads; /* one run for each number of threads */
  double seconds;                          /* to spend on a case */
  bool json, plans, list;
  char *cases[MAX_GIVEN]; /* given as text, instead of the list */
  unsigned ncases;
  char *words[MAX_WORDS]; /* words that select cases */
  unsigned nwords;
};
/* Reads a command line into *o, which holds the defaults, and sets speed_cpu_time. kernels: the program accepts --plans
 * and --case. --help prints `usage` and ends the program. On an error prints the usage on stderr and returns false.
 * Also makes stdout write whole lines, so that those of finished cases are not lost if the program is ended. */
bool options_read(struct options *o, int argc, char **argv, bool kernels, const char *usage);
/* Returns true if a word of text matches one of the alternatives ("f32,bf16"; they may contain * and ?). */
bool has_word(const char *text, const char *alternatives);
/* Returns true if text matches every word without ^ and does not match any word after ^. */
bool has_words(const char *text, char *const *words, unsigned n);
const char *time_text(double seconds, char *buf, size_t cap);

#endif
