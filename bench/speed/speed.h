/* What bench/kernels and bench/models share: cases, how they are timed, and the programs that they are timed beside. */
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

/* What a result should be, and the size of the terms that it is made of, by which its error is measured. */
struct expected {
  double value, scale;
};

struct speed_case;
struct speed_op {
  const char *name;
  unsigned ninputs;
  /* Shape of input i, or of the output (i == ninputs). */
  struct tensor_shape (*shape)(const struct speed_case *c, unsigned i);
  db_tensor *(*build)(const struct speed_case *c, db_tensor *const *in);
  /* Element `at` of the output, from the inputs as floats. */
  struct expected (*element)(const struct speed_case *c, float *const *in, int64_t at);
  double (*cost)(const struct speed_case *c);  /* multiply-adds an element costs the reference */
  double (*flops)(const struct speed_case *c); /* NULL: the case is bound by memory */
  double tolerance;                            /* of an f32 result, relative to the scale */
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

/* Which machines a case is for: an emulated GPU has small ones, a real one large ones. */
enum machine { ON_HOST, ON_EMULATOR, ON_GPU };

struct speed_case {
  char group[16], name[64]; /* "matmul", "f32 1024" */
  const struct speed_op *op;
  db_dtype dtype;
  int64_t n[MAX_NUMBERS]; /* sizes and switches, in the order that the operation names */
  enum beside goal_beside;
  double goal; /* speed relative to goal_beside that is asked for; 0: none */
  enum machine on;
};

const struct speed_op *speed_op(const char *name);
const struct speed_case *speed_cases(unsigned *n);
int64_t speed_numel(struct tensor_shape s);
/* Least bytes that a case reads and writes. */
void case_bytes(const struct speed_case *c, double *read, double *written);
void fill_numbers(float *x, int64_t n, uint32_t seed);
/* Seconds of the clock that cases are timed by: wall time, or with speed_cpu_time the processor time of this process,
 * which other work on the machine does not add to. It means something for one thread only. */
extern bool speed_cpu_time;
double speed_now(void);
double speed_wall(void);

/* ---- what runs beside ---- */

/* Another program's version of a case. seconds: of `calls` calls, or negative. */
struct peer {
  enum beside which;
  bool (*prepare)(struct peer *p, const struct speed_case *c);
  double (*seconds)(struct peer *p, unsigned calls);
  void *state;
  void (*close)(struct peer *p);
  char about[160]; /* which version, or why it is missing */
};

/* Opens the peers that exist for a device of this architecture ("x86_64", "sm_90"), each with `threads` threads.
 * Returns their number. */
unsigned peers_open(struct peer *out, unsigned cap, const char *arch, unsigned threads);
void peers_close(struct peer *p, unsigned n);
/* Whether the host multiplies bf16. */
bool host_has_bf16(void);
/* cuBLAS and CUDA's copy, three of them; cuda_child is what runs them, in a process of its own. */
unsigned cuda_peers_open(struct peer *out);
int cuda_child(void);

/* ---- code ---- */

/* The innermost loop of a kernel with the most matrix instructions, counted in the code. */
struct code_loop {
  unsigned instructions, matrix;
  unsigned vector; /* AMD: all v_* instructions */
  unsigned memory; /* loads and stores of registers */
  bool mixed;      /* matrix instructions of other names, too */
  char name[48];   /* of the first matrix instruction */
};
/* False: there is none, or the architecture's code is not known. */
bool code_main_loop(const void *image, size_t size, const char *arch, struct code_loop *out);
/* Prints a line for each kernel that t, which is not realized, becomes: its plan, and its main loop. */
void print_plans(db_tensor *t, const char *arch);

/* ---- processes ---- */

/* A child that is asked in lines and answers in lines. */
struct child {
  int pid;
  FILE *to, *from;
};
bool child_start(struct child *c, char *const *argv);
void child_end(struct child *c);
/* Sends a line and reads one into reply; false when the child is gone. */
bool child_ask(struct child *c, const char *line, char *reply, size_t cap);
/* Starts torch_peer.py; about says which PyTorch, or why there is none. */
bool torch_start(struct child *c, unsigned threads, const char *arch, char *about, size_t cap);

/* Runs fn in a child, which hands the bytes at result back. What it returns, or 1 when the child failed. */
int run_in_child(int (*fn)(void *ctx), void *ctx, void *result, size_t size);
/* Leaves this process, and the threads that it starts, the first n of its CPUs. */
void keep_cpus(unsigned n);
unsigned count_cpus(void);

/* ---- command lines and text ---- */

enum { MAX_THREADS = 8, MAX_WORDS = 16 };
struct options {
  unsigned threads[MAX_THREADS], nthreads; /* a run for each number of threads */
  double seconds;                          /* to spend on a case */
  bool json, plans, list;
  char *words[MAX_WORDS]; /* which cases */
  unsigned nwords;
};
/* Reads a command line into *o, which holds the defaults, and sets speed_cpu_time. has_plans: the program knows
 * --plans. False after printing `usage`. */
bool options_read(struct options *o, int argc, char **argv, bool has_plans, const char *usage);
/* Whether a text has one of the alternatives ("f32,bf16", with * and ?) among its words. */
bool has_word(const char *text, const char *alternatives);
/* Whether it has all that are asked for, and none that stands after ^. */
bool has_words(const char *text, char *const *words, unsigned n);
const char *time_text(double seconds, char *buf, size_t cap);

#endif
