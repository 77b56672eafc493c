/* What one kernel launch costs the host, without waiting for the kernel.
 *
 * Prints nanoseconds, and instructions of user space where the system lets them be counted, per launch: recorded and
 * submitted by itself, 64 to a submission, and in a replay of 100 kernels whose input buffer and one value change from
 * run to run. Where there is no counter: valgrind --tool=callgrind --toggle-collect=db_queue_exec
 * --toggle-collect=db_queue_submit --toggle-collect='db_recording_*' build/bench/launch CPU */
#include "hcq/hcq.h"
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
  LAUNCHES = 100000,
  REPLAYED = 100,
  PAUSE = 256
}; /* wait for the device every so many launches, so that no ring fills */
#define TIMEOUT_NS 60000000000ull

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int counter_open(void) {
  struct perf_event_attr a = {.type = PERF_TYPE_HARDWARE,
                              .size = sizeof a,
                              .config = PERF_COUNT_HW_INSTRUCTIONS,
                              .exclude_kernel = 1,
                              .exclude_hv = 1};
  return (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);
}
static uint64_t counter_read(int fd) {
  uint64_t v = 0;
  return fd >= 0 && read(fd, &v, sizeof v) == sizeof v ? v : 0;
}

static void *read_whole(const char *path, size_t *size) {
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  enum { LARGEST = 1 << 20 }; /* a kernel is a few KiB */
  void *p = malloc(LARGEST);
  *size = p ? fread(p, 1, LARGEST, f) : 0;
  fclose(f);
  return p;
}

static int fail(const char *what) {
  fprintf(stderr, "launch: %s: %s\n", what, db_error());
  return 1;
}

/* A kernel with saxpy's arguments; it is run over no elements. */
static db_program *load(db_device *dev, const char *self) {
  static const struct db_param params[] = {{"y", 0, 8, DB_PARAM_BUFFER},
                                           {"x", 8, 8, DB_PARAM_BUFFER},
                                           {"a", 16, 4, DB_PARAM_VALUE},
                                           {"n", 20, 4, DB_PARAM_VALUE}};
  bool amd = !strncmp(db_device_arch(dev), "gfx", 3), nv = !strncmp(db_device_arch(dev), "sm_", 3), host = !amd && !nv;
  char path[1024], command[1200];
  snprintf(path, sizeof path, "%s", self);
  char *slash = strrchr(path, '/');
  if (!slash) slash = strcpy(path, "./") + 1;
  snprintf(slash, sizeof path - (size_t)(slash - path),
           host  ? "/launch_saxpy.o"
           : amd ? "/../kernels/bench/kernels/saxpy.gfx1100.co"
                 : "/../../bench/kernels/saxpy.sm_90.cubin");
  if (host) {
    snprintf(command, sizeof command,
             "echo 'void saxpy(const void *k, unsigned x, unsigned y, unsigned z) {}' | cc -O2 -x c -c - -o %s", path);
    if (system(command)) return NULL;
  }
  size_t size = 0;
  void *image = read_whole(path, &size);
  db_program *p = db_program_load(dev, image, size, "saxpy", host ? params : NULL, host ? 4 : 0);
  free(image);
  return p;
}

static const uint32_t grid[3] = {1, 1, 1};
static void block_of(db_device *dev, uint32_t block[3]) {
  bool gpu = !strncmp(db_device_arch(dev), "gfx", 3) || !strncmp(db_device_arch(dev), "sm_", 3);
  block[0] = gpu ? 64 : 1, block[1] = block[2] = 1;
}

static void print_row(db_device *dev, const char *how, uint64_t ns, uint64_t instructions, int counter, int launches) {
  printf("%-16s %-22s %7.1f ns", db_device_name(dev), how, (double)ns / launches);
  if (counter >= 0) printf(", %6.1f instructions", (double)instructions / launches);
  printf(" per launch\n");
}

static int measure(db_device *dev, db_program *prog, unsigned per_submit, int counter) {
  db_buffer *b = db_alloc(dev, 4096, 0);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  if (!b || !q) return fail(db_device_name(dev));
  float a = 1;
  struct db_arg args[] = {{.buffer = b}, {.buffer = b}, {.data = &a}, {.bits = 0}};
  uint32_t block[3];
  block_of(dev, block);
  uint64_t spent = 0, instructions = 0, when = 0;
  for (int done = 0; done < LAUNCHES; done += PAUSE) {
    uint64_t start = now_ns(), count = counter_read(counter);
    for (int i = 1; i <= PAUSE; i++) {
      db_queue_exec(q, prog, args, 4, grid, block);
      if (i % (int)per_submit == 0 && db_queue_submit(q, &when)) return fail(db_device_name(dev));
    }
    instructions += counter_read(counter) - count;
    spent += now_ns() - start;
    if (db_wait(db_queue_timeline(q), when, TIMEOUT_NS)) return fail(db_device_name(dev));
  }
  int launches = (LAUNCHES + PAUSE - 1) / PAUSE * PAUSE;
  char how[32];
  snprintf(how, sizeof how, "%2u to a submission:", per_submit);
  print_row(dev, how, spent, instructions, counter, launches);
  db_queue_release(q);
  db_buffer_release(b);
  return 0;
}

/* Two recordings in turn; before each run the buffer that the first kernel reads and a value of the last are set. */
static int measure_replay(db_device *dev, db_program *prog, int counter) {
  enum { BUFFER = 1, VALUE, ROUND = 32 };
  db_buffer *b[3];
  for (int i = 0; i < 3; i++) b[i] = db_alloc(dev, 4096, 0);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  db_recording *r[2] = {0};
  uint32_t block[3];
  block_of(dev, block);
  float a = 1;
  for (int k = 0; b[2] && q && k < 2; k++) {
    for (int i = 0; i < REPLAYED; i++) {
      struct db_arg args[] = {{.buffer = b[0]},
                              {.buffer = b[1], .slot = i ? 0 : BUFFER},
                              {.data = &a, .slot = i == REPLAYED - 1 ? VALUE : 0},
                              {.bits = 0}};
      db_queue_exec(q, prog, args, 4, grid, block);
      db_queue_memory_barrier(q);
    }
    r[k] = db_queue_bind(q);
  }
  if (!r[1]) return fail(db_device_name(dev));
  uint64_t spent = 0, instructions = 0, when = 0;
  int runs = 0;
  for (; runs < 1000 * ROUND; runs += ROUND) {
    uint64_t start = now_ns(), count = counter_read(counter);
    for (int i = 0; i < 2; i++) {
      db_recording_set_buffer(r[i], BUFFER, b[1 + (runs / ROUND + i) % 2], 0);
      db_recording_set_value(r[i], VALUE, (uint64_t)(runs + i));
      if (db_recording_submit(r[i], &when)) return fail(db_device_name(dev));
    }
    instructions += counter_read(counter) - count;
    spent += now_ns() - start;
    if (db_wait(db_queue_timeline(q), when, TIMEOUT_NS)) return fail(db_device_name(dev));
  }
  print_row(dev, "replay of 100 kernels:", spent, instructions, counter, runs / ROUND * 2 * REPLAYED);
  for (int k = 0; k < 2; k++) db_recording_release(r[k]);
  for (int i = 0; i < 3; i++) db_buffer_release(b[i]);
  db_queue_release(q);
  return 0;
}

int main(int argc, char **argv) {
  const char *all[] = {"CPU", "EMU+AMD:gfx1100", "EMU+NV:sm_90"};
  const char **names = argc > 1 ? (const char **)argv + 1 : all;
  int n = argc > 1 ? argc - 1 : 3, status = 0, counter = counter_open();
  for (int i = 0; i < n; i++) {
    db_device *dev = db_open(names[i]);
    if (!dev) return fail(names[i]);
    db_program *prog = load(dev, argv[0]);
    if (!prog) return fail(names[i]);
    status |= measure(dev, prog, 1, counter);
    status |= measure(dev, prog, 64, counter);
    status |= measure_replay(dev, prog, counter);
    db_program_release(prog);
    db_close(dev);
  }
  return status;
}
