/* Measures the time that the host needs to launch a kernel, without the time of the kernel itself.
 *
 * Queue layer: a kernel that is recorded and submitted alone, 64 kernels per submission, and a replay of 100 kernels in
 * which an input buffer and a value change from run to run. Tensors: captured functions of 100 and 500 kernels whose
 * input changes with each call, a captured training step, and 100 kernels realized without a capture. Reports
 * nanoseconds per kernel and, if valgrind is installed, the instructions of the calling thread, counted in a second
 * process.
 *
 *   launch [DEV...]      default: CPU EMU+AMD:gfx1100 EMU+NV:sm_90. For an NVIDIA GPU also runs
 *                        tests/hw/cuda_peer, if it was built, which times CUDA's launches and graphs
 *   TINYGRAD=FOLDER      also measures 100 kernels of this tinygrad checkout, captured and not, on its devices NULL and
 *                        CPU, with $PYTHON or python3. Reports thread time, because other work on the machine
 *                        interrupts a measurement of this length */
#define _GNU_SOURCE
#include "frontend/nn.h"
#include "help.h"
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_NS 60000000000ull

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool counting; /* this process runs under valgrind */

/* ---- rows ---- */

/* A measurement: a round makes `calls` calls of `kernels` kernels each and does not wait for the device until it ends.
 */
struct row {
  const char *name;
  int kernels, calls, rounds, rounds_counted;
  bool (*begin)(struct row *r, db_device *dev);
  bool (*call)(struct row *r, int i);
  void (*end)(struct row *r);
};

/* Callgrind gets the names of these functions: it counts inside the first one and writes the sum after the second. */
__attribute__((noinline, used)) static bool measured(struct row *r, int round) {
  bool ok = true;
  for (int i = 0; i < r->calls && ok; i++) ok = r->call(r, round * r->calls + i);
  return ok;
}
__attribute__((noinline, used)) static void row_done(void) { __asm__ volatile(""); }

/* Returns nanoseconds per kernel, the minimum over all rounds because the machine may have other work. Negative if it
 * failed. */
static double measure(struct row *r, db_device *dev) {
  double best = -1;
  bool ok = r->begin(r, dev);
  for (int i = 0; i < 3 && ok; i++) ok = r->call(r, i); /* a captured function runs twice before it replays */
  for (int round = 0; round < (counting ? r->rounds_counted : r->rounds) && ok; round++) {
    ok = !db_device_synchronize(dev, TIMEOUT_NS);
    uint64_t start = now_ns();
    ok = ok && measured(r, round);
    double ns = (double)(now_ns() - start) / r->calls / r->kernels;
    if (best < 0 || ns < best) best = ns;
  }
  ok = ok && !db_device_synchronize(dev, TIMEOUT_NS);
  if (!ok) fprintf(stderr, "launch: %s: %s: %s\n", db_device_name(dev), r->name, db_error());
  r->end(r);
  row_done();
  return ok ? best : -1;
}

/* ---- the queue layer ---- */

static char kernels_dir[PATH_MAX];
static const uint32_t grid[3] = {1, 1, 1};
enum { SLOT_BUFFER = 1, SLOT_VALUE };

static struct {
  db_program *prog;
  db_queue *queue;
  db_buffer *b[3];
  db_recording *recording[2];
  uint32_t block[3];
} q;

/* Loads a kernel with saxpy's arguments. It runs with n = 0. */
static db_program *load(db_device *dev) {
  static const struct db_param params[] = {{"y", 0, 8, DB_PARAM_BUFFER},
                                           {"x", 8, 8, DB_PARAM_BUFFER},
                                           {"a", 16, 4, DB_PARAM_VALUE},
                                           {"n", 20, 4, DB_PARAM_VALUE}};
  enum { LARGEST = 1 << 20 }; /* a kernel is a few KiB */
  bool amd = !strncmp(db_device_arch(dev), "gfx", 3), host = !amd && strncmp(db_device_arch(dev), "sm_", 3) != 0;
  char path[PATH_MAX + 64], command[PATH_MAX + 256];
  if (!strcmp(db_device_arch(dev), "sm_90"))
    snprintf(path, sizeof path, "%s/../../bench/kernels/saxpy.sm_90.cubin", kernels_dir);
  else if (host)
    snprintf(path, sizeof path, "%s/launch_saxpy.o", kernels_dir);
  else /* tests/hw/nv.sh makes the cubins of other NVIDIA GPUs */
    snprintf(path, sizeof path, "%s/../kernels/bench/kernels/saxpy.%s.%s", kernels_dir,
             amd ? "gfx1100" : db_device_arch(dev), amd ? "co" : "O3.cubin");
  snprintf(command, sizeof command,
           "echo 'void saxpy(const void *k, unsigned x, unsigned y, unsigned z) {}' | cc -O2 -x c -c - -o '%s'", path);
  if (host && system(command)) return NULL;
  FILE *f = fopen(path, "rb");
  void *image = malloc(LARGEST);
  size_t size = f && image ? fread(image, 1, LARGEST, f) : 0;
  if (f) fclose(f);
  db_program *p = db_program_load(dev, image, size, "saxpy", host ? params : NULL, host ? 4 : 0);
  free(image);
  q.block[0] = host ? 1 : 64, q.block[1] = q.block[2] = 1;
  return p;
}

static bool queue_begin(struct row *r, db_device *dev) {
  q.prog = load(dev);
  q.queue = db_queue_new(dev, DB_QUEUE_COMPUTE);
  for (int i = 0; i < 3; i++) q.b[i] = db_alloc(dev, 4096, 0);
  return q.prog && q.queue && q.b[0] && q.b[1] && q.b[2];
}
static void queue_end(struct row *r) {
  for (int i = 0; i < 2; i++) db_recording_release(q.recording[i]);
  for (int i = 0; i < 3; i++) db_buffer_release(q.b[i]);
  db_queue_release(q.queue);
  db_program_release(q.prog);
  memset(&q, 0, sizeof q);
}
static bool queue_call(struct row *r, int i) {
  float a = 1;
  struct db_arg args[] = {{.buffer = q.b[0]}, {.buffer = q.b[1]}, {.data = &a}, {.bits = 0}};
  for (int k = 0; k < r->kernels; k++) db_queue_exec(q.queue, q.prog, args, 4, grid, q.block);
  return !db_queue_submit(q.queue, NULL);
}

static bool replay_begin(struct row *r, db_device *dev) {
  if (!queue_begin(r, dev)) return false;
  float a = 1;
  for (int k = 0; k < 2; k++) {
    for (int i = 0; i < r->kernels; i++) {
      struct db_arg args[] = {{.buffer = q.b[0]},
                              {.buffer = q.b[1], .slot = i ? 0 : SLOT_BUFFER},
                              {.data = &a, .slot = i == r->kernels - 1 ? SLOT_VALUE : 0},
                              {.bits = 0}};
      db_queue_exec(q.queue, q.prog, args, 4, grid, q.block);
      db_queue_memory_barrier(q.queue);
    }
    if (!(q.recording[k] = db_queue_bind(q.queue))) return false;
  }
  return true;
}
/* Uses two recordings alternately. The input buffer of the first kernel and a value of the last one differ from the
 * previous run of the same recording. */
static bool replay_call(struct row *r, int i) {
  db_recording *at = q.recording[i % 2];
  return !db_recording_set_buffer(at, SLOT_BUFFER, q.b[1 + i / 2 % 2], 0) &&
         !db_recording_set_value(at, SLOT_VALUE, (uint64_t)i) && !db_recording_submit(at, NULL);
}

/* ---- tensors ---- */

enum { WIDTH = 64, BATCH = 8, CLASSES = 3 };
static struct {
  db_jit *jit;
  db_tensor *x[3], *y;
  db_params *params;
  db_optim *adam;
  db_linear in, out;
} t;

static db_tensor *chain(db_tensor *x, int kernels) {
  for (int i = 0; i < kernels; i++) x = db_contiguous(db_add(x, 1));
  return x;
}
static int chain_fn(void *ctx, db_tensor *const *in, db_tensor **out) {
  out[0] = chain(in[0], ((struct row *)ctx)->kernels);
  return 0;
}
static bool tensors_begin(struct row *r, db_device *dev, db_jit_fn *fn, unsigned nin) {
  float x[BATCH * WIDTH] = {0};
  int32_t y[BATCH] = {0, 1, 2};
  t.jit = db_jit_new(fn, r, nin, 1);
  for (int i = 0; i < 3; i++)
    if (db_realize(t.x[i] = db_from(x, DB_F32, dev, BATCH, WIDTH))) return false;
  t.y = db_from(y, DB_I32, dev, BATCH);
  return t.jit && !db_realize(t.y);
}
static bool chain_begin(struct row *r, db_device *dev) { return tensors_begin(r, dev, chain_fn, 1); }
static bool chain_call(struct row *r, int i) {
  int err = 0;
  {
    DB_SCOPED;
    db_tensor *out;
    err = db_jit_call(t.jit, &t.x[i % 3], &out);
  }
  return !err;
}
static bool eager_call(struct row *r, int i) {
  int err = 0;
  {
    DB_SCOPED;
    err = db_realize(chain(t.x[i % 3], r->kernels));
  }
  return !err;
}
static int step_fn(void *ctx, db_tensor *const *in, db_tensor **out) {
  out[0] = db_cross_entropy(db_apply(&t.out, db_relu(db_apply(&t.in, in[0]))), in[1]);
  return db_train_step(t.params, t.adam, out[0]);
}
static bool step_begin(struct row *r, db_device *dev) {
  unsigned n;
  t.params = db_params_new(dev, 1);
  t.in = db_linear_new(t.params, "in", WIDTH, 16, true);
  t.out = db_linear_new(t.params, "out", 16, CLASSES, true);
  db_tensor *const *weights = db_params_trained(t.params, &n);
  t.adam = db_adam(weights, n, .lr = 1e-3);
  return t.adam && tensors_begin(r, dev, step_fn, 2);
}
static bool step_call(struct row *r, int i) {
  int err = 0;
  {
    DB_SCOPED;
    db_tensor *out;
    err = db_jit_call(t.jit, (db_tensor *[]){t.x[i % 3], t.y}, &out);
  }
  return !err;
}
static void tensors_end(struct row *r) {
  db_jit_free(t.jit);
  db_optim_free(t.adam);
  db_params_free(t.params);
  memset(&t, 0, sizeof t);
}

static struct row rows[] = {
    {"launch, submitted by itself", 1, 256, 200, 4, queue_begin, queue_call, queue_end},
    {"launch, 64 to a submission", 64, 8, 200, 4, queue_begin, queue_call, queue_end},
    {"replay of 100 kernels", 100, 2, 1000, 16, replay_begin, replay_call, queue_end},
    {"tensors: replay of 100 kernels", 100, 2, 500, 16, chain_begin, chain_call, tensors_end},
    {"tensors: replay of 500 kernels", 500, 2, 200, 8, chain_begin, chain_call, tensors_end},
    {"tensors: replay of a training step", 11, 2, 500, 16, step_begin, step_call, tensors_end},
    {"tensors: 100 kernels realized", 100, 2, 20, 2, chain_begin, eager_call, tensors_end},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- counting ---- */

static bool run_device(const char *name, double *ns) {
  db_device *dev = db_open(name);
  bool ok = dev != NULL;
  if (!dev) fprintf(stderr, "launch: %s: %s\n", name, db_error());
  for (int i = 0; i < ROWS && dev; i++) {
    DB_SCOPED;
    ns[i] = measure(&rows[i], dev);
    ok &= ns[i] >= 0;
  }
  db_close(dev);
  return ok;
}

/* Stores the instructions per kernel of each row, from the files that valgrind writes. Returns false without valgrind.
 */
static bool count_device(const char *self, const char *name, double *instructions) {
  char dir[] = "/tmp/doorbell-launch-XXXXXX", out[64], path[80], line[256];
  if (!mkdtemp(dir)) return false;
  snprintf(out, sizeof out, "--callgrind-out-file=%s/out", dir);
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) {
    if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(127);
    execlp("valgrind", "valgrind", "--tool=callgrind", "--toggle-collect=measured", "--dump-after=row_done", out, self,
           "--count", name, (char *)NULL);
    _exit(127);
  }
  int status;
  bool ok = pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
  for (int i = 0; i < ROWS; i++) {
    unsigned long long sum = 0;
    snprintf(path, sizeof path, "%s/out.%d", dir, i + 1);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) sscanf(line, "totals: %llu", &sum);
    if (f) fclose(f);
    unlink(path);
    instructions[i] = (double)sum / rows[i].rounds_counted / rows[i].calls / rows[i].kernels;
    ok &= sum > 0;
  }
  snprintf(path, sizeof path, "%s/out", dir);
  unlink(path);
  rmdir(dir);
  return ok;
}

/* ---- tinygrad ---- */

static const char tinygrad[] = "import time, sys\n"
                               "from tinygrad import Tensor, TinyJit, Device\n"
                               "dev, n = Device[Device.DEFAULT], 100\n"
                               "def chain(x):\n"
                               "  for _ in range(n): x = (x + 1).contiguous()\n"
                               "  return x.realize()\n"
                               "xs = [Tensor.ones(8, 64).contiguous().realize() for _ in range(3)]\n"
                               "def least(f, calls, rounds):\n"
                               "  best = float('inf')\n"
                               "  for i in range(3): f(xs[i])\n"
                               "  for r in range(rounds):\n"
                               "    dev.synchronize()\n"
                               "    start = time.thread_time_ns()\n"
                               "    for i in range(calls): f(xs[(r * calls + i) % 3])\n"
                               "    best = min(best, (time.thread_time_ns() - start) / calls / n)\n"
                               "  dev.synchronize()\n"
                               "  return best\n"
                               "print(least(TinyJit(chain), 2, 300), least(chain, 1, 5))\n";

static void run_tinygrad(const char *folder, const char *device) {
  int fd[2];
  double replay, eager;
  if (pipe(fd)) return;
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) {
    dup2(fd[1], 1);
    setenv("PYTHONPATH", folder, 1);
    setenv("DEV", device, 1);
    const char *named = getenv("PYTHON"), *python = named ? named : "python3";
    execlp(python, python, "-c", tinygrad, (char *)NULL);
    _exit(127);
  }
  close(fd[1]);
  FILE *f = fdopen(fd[0], "r");
  bool ok = f && fscanf(f, "%lf %lf", &replay, &eager) == 2;
  if (f) fclose(f);
  waitpid(pid, NULL, 0);
  if (!ok) {
    fprintf(stderr, "launch: tinygrad on %s printed no times\n", device);
    return;
  }
  printf("tinygrad %-8s %-36s %9.1f ns\n", device, "replay of 100 kernels", replay);
  printf("tinygrad %-8s %-36s %9.1f ns\n", device, "100 kernels realized", eager);
}

static void run_cuda(void) {
  char path[PATH_MAX + 32];
  snprintf(path, sizeof path, "'%s/../tests/hw/cuda_peer'", kernels_dir);
  fflush(NULL);
  if (system(path)) fprintf(stderr, "launch: tests/hw/cuda_peer failed\n");
}

int main(int argc, char **argv) {
  static const char *all[] = {"CPU", "EMU+AMD:gfx1100", "EMU+NV:sm_90"};
  char self[PATH_MAX];
  if (print_help(argc, argv,
                 "usage: launch [DEV...]\n"
                 "  DEV  devices; default: CPU EMU+AMD:gfx1100 EMU+NV:sm_90\n"
                 "example: launch CPU EMU+NV:sm_90\n"))
    return 0;
  if (!realpath("/proc/self/exe", self)) return perror("launch"), 1;
  strcpy(kernels_dir, self);
  dirname(kernels_dir);
  counting = argc == 3 && !strcmp(argv[1], "--count");
  double ns[ROWS], instructions[ROWS];
  if (counting) return !run_device(argv[2], ns);
  const char **names = argc > 1 ? (const char **)argv + 1 : all;
  int n = argc > 1 ? argc - 1 : 3, status = 0;
  printf("time and instructions of the calling thread, per kernel:\n");
  for (int i = 0; i < n; i++) {
    if (!run_device(names[i], ns)) {
      status = 1;
      continue;
    }
    bool counted = count_device(self, names[i], instructions);
    for (int k = 0; k < ROWS; k++) {
      printf("%-17s %-36s %9.1f ns", names[i], rows[k].name, ns[k]);
      if (counted) printf(" %10.1f instructions", instructions[k]);
      printf("\n");
    }
    if (!strncmp(names[i], "NV", 2)) run_cuda();
  }
  static const char *const theirs[] = {"NULL", "CPU"};
  for (int i = 0; i < 2 && getenv("TINYGRAD"); i++) run_tinygrad(getenv("TINYGRAD"), theirs[i]);
  return status;
}
