/* Brings a GPU up through the queue layer, one step at a time, and stops at the first that fails: open, memory, the
 * store of a signal alone, copies, an empty kernel, then kernels that each use one more feature.
 *
 *   steps [--small] DEV    AMD, NV, an emulated one, or PLAY:FILE; exit 1 after a failed step
 *
 * --small: shorter copies and fewer repetitions, for traces. Every wait is bounded; nothing changes clocks, modes or
 * settings, and nothing is reset. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "hcq/hcq.h"

#define TIMEOUT_NS 5000000000ull
enum { COPY_MOST = 64 << 20, COPY_SMALL = 128 << 10, REPEAT = 200, REPEAT_SMALL = 5 };

static struct {
  db_device *dev;
  db_queue *compute, *copy;
  db_buffer *device, *host, *result;
  char why[512];
  size_t copy_max;
  int repeat;
  bool plays; /* a trace: times are from another run */
} s;

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static int failed(const char *what) {
  snprintf(s.why, sizeof s.why, "%s", what);
  return -1;
}
static int submit_and_wait(db_queue *q) {
  uint64_t when;
  int err = db_queue_submit(q, &when);
  return err ? err : db_wait(db_queue_timeline(q), when, TIMEOUT_NS);
}

/* ---- steps: return 0, or a negative number with a message in db_error() or s.why ---- */

static int memory(void) {
  s.device = db_alloc(s.dev, s.copy_max, 0);
  s.host = db_alloc(s.dev, s.copy_max, DB_BUFFER_HOST);
  s.result = db_alloc(s.dev, 1 << 20, DB_BUFFER_HOST);
  if (!s.device || !s.host || !s.result) return -1;
  printf("device memory at %#llx, host memory at %#llx\n", (unsigned long long)db_buffer_address(s.device),
         (unsigned long long)db_buffer_address(s.host));
  return 0;
}
static int release(db_queue **q, enum db_queue_kind kind) {
  *q = db_queue_new(s.dev, kind);
  return *q ? submit_and_wait(*q) : -1;
}
static int copy_release(void) { return release(&s.copy, DB_QUEUE_COPY); }
static int compute_release(void) { return release(&s.compute, DB_QUEUE_COMPUTE); }

static int copies(void) {
  static const size_t sizes[] = {4, 100, 4096, 65537, 2 << 20, COPY_MOST};
  uint32_t *h = db_buffer_host(s.host);
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    if (sizes[i] > s.copy_max) break;
    for (size_t k = 0; k < s.copy_max / 4; k++) h[k] = (uint32_t)(k * 2654435761u + i);
    int err = db_queue_copy(s.copy, s.device, 0, s.host, 0, sizes[i]);
    if (!err) err = submit_and_wait(s.copy);
    if (err) return err;
    memset(h, 0x5a, s.copy_max);
    err = db_queue_copy(s.copy, s.host, 0, s.device, 0, sizes[i]);
    if (!err) err = submit_and_wait(s.copy);
    if (err) return err;
    const uint8_t *b = (const uint8_t *)h;
    for (size_t k = 0; k < sizes[i]; k++) {
      uint32_t word = (uint32_t)(k / 4 * 2654435761u + i);
      if (b[k] != (uint8_t)(word >> k % 4 * 8)) return failed("a copy came back changed");
    }
    if (sizes[i] < s.copy_max && b[sizes[i]] != 0x5a) return failed("a copy wrote beyond its end");
  }
  return 0;
}

static int bandwidth(void) {
  for (int back = 0; back < 2; back++) {
    uint64_t t = now_ns();
    for (int i = 0; i < 8; i++) {
      int err = back ? db_queue_copy(s.copy, s.host, 0, s.device, 0, s.copy_max)
                     : db_queue_copy(s.copy, s.device, 0, s.host, 0, s.copy_max);
      if (err) return err;
    }
    int err = submit_and_wait(s.copy);
    if (err) return err;
    printf("%s %.2f GB/s\n", back ? "device to host" : "host to device",
           8.0 * (double)s.copy_max / (double)(now_ns() - t));
  }
  return 0;
}

static int timestamps(void) {
  db_signal *a = db_signal_new(s.dev), *b = db_signal_new(s.dev);
  int err = a && b ? 0 : -1;
  uint64_t before = now_ns();
  if (!err) err = db_queue_timestamp(s.compute, a);
  if (!err) err = db_queue_timestamp(s.compute, b);
  if (!err) err = submit_and_wait(s.compute);
  if (!err) {
    uint64_t ta = db_signal_time_ns(a), tb = db_signal_time_ns(b), after = now_ns();
    printf("%.2f us apart; %.2f us after the host's start, %.2f us before its end\n", (double)(tb - ta) * 1e-3,
           (double)(int64_t)(ta - before) * 1e-3, (double)(int64_t)(after - tb) * 1e-3);
    if (tb < ta) err = failed("time ran backwards");
    if (!s.plays && (ta + 1000000 < before || tb > after + 1000000))
      err = failed("device time is off the host's by a millisecond");
  }
  db_signal_release(a), db_signal_release(b);
  return err;
}

static db_program *load(const char *file, const char *kernel) {
  char path[640];
  bool amd = !strncmp(db_device_arch(s.dev), "gfx", 3);
  snprintf(path, sizeof path,
           amd ? KERNELS_DIR "/tests/kernels/%s.%s.co" : KERNELS_DIR "/tests/kernels/cuda/%s.%s.O3.cubin", file,
           amd ? "gfx1100" : db_device_arch(s.dev));
  FILE *f = fopen(path, "rb");
  if (!f) {
    snprintf(s.why, sizeof s.why, "cannot open %.400s: %s", path, strerror(errno));
    return NULL;
  }
  static uint8_t image[4 << 20];
  size_t n = fread(image, 1, sizeof image, f);
  fclose(f);
  return db_program_load(s.dev, image, n, kernel, NULL, 0);
}

/* Runs a kernel of hw.cu whose arguments are the result buffer and a number, and checks its words. */
static int kernel(const char *name, uint32_t blocks, uint32_t threads, uint32_t n, uint32_t (*expect)(uint32_t i),
                  uint32_t count) {
  db_program *p = load("hw", name);
  if (!p) return -1;
  uint32_t *r = db_buffer_host(s.result);
  memset(r, 0xa5, 1 << 20);
  struct db_arg args[2] = {{.buffer = s.result}, {.bits = n}};
  int err = db_queue_exec(s.compute, p, args, 2, (uint32_t[3]){blocks, 1, 1}, (uint32_t[3]){threads, 1, 1});
  if (!err) err = submit_and_wait(s.compute);
  db_program_release(p);
  for (uint32_t i = 0; !err && i < count; i++)
    if (r[i] != expect(i)) {
      snprintf(s.why, sizeof s.why, "%s: word %u is %#x, not %#x", name, i, r[i], expect(i));
      return -1;
    }
  return err;
}
static uint32_t untouched(uint32_t i) { return 0xa5a5a5a5; }
static uint32_t number(uint32_t i) { return 0x1234567; }
static uint32_t linear(uint32_t i) { return i * 3 + 7; }
static uint32_t reversed(uint32_t i) { return i / 256 * 256 + 255 - i % 256; }
static uint32_t spilled(uint32_t i) {
  uint32_t sum = 0;
  for (uint32_t k = 0; k < 64; k++) sum += (i + k) * (k ^ (i & 63));
  return sum;
}
static uint32_t fibonacci(uint32_t i) {
  uint32_t a = 0, b = 1;
  for (uint32_t k = 0; k < i % 12; k++) b = a + b, a = b - a;
  return a;
}
static uint32_t counted(uint32_t i) { return i ? 0xa5a5a5a5 : 64 * 256 + 0xa5a5a5a5; }
static int empty(void) { return kernel("empty", 1, 1, 0, untouched, 4); }
static int store(void) { return kernel("store", 1, 1, 0x1234567, number, 1); }
static int ids(void) { return kernel("ids", 64, 256, 7, linear, 64 * 256); }
static int shared(void) { return kernel("shared", 16, 256, 0, reversed, 16 * 256); }
static int local(void) { return kernel("spill", 64, 128, 0, spilled, 64 * 128); }
static int stack(void) { return kernel("stack", 4, 64, 0, fibonacci, 256); }
static int atomics(void) { return kernel("atomics", 64, 256, 0, counted, 2); }
static int large(void) { return kernel("ids", 1024, 256, 7, linear, 1024 * 256); }

static int by_value(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}
static int latency(void) {
  db_program *p = load("hw", "empty");
  if (!p) return -1;
  uint64_t whole[REPEAT], host[REPEAT];
  struct db_arg args[2] = {{.buffer = s.result}};
  int err = 0;
  for (int i = 0; i < s.repeat && !err; i++) {
    uint64_t when, t = now_ns();
    err = db_queue_exec(s.compute, p, args, 2, (uint32_t[3]){1, 1, 1}, (uint32_t[3]){1, 1, 1});
    if (!err) err = db_queue_submit(s.compute, &when);
    host[i] = now_ns() - t;
    if (!err) err = db_wait(db_queue_timeline(s.compute), when, TIMEOUT_NS);
    whole[i] = now_ns() - t;
  }
  db_program_release(p);
  if (err) return err;
  qsort(whole, (size_t)s.repeat, sizeof *whole, by_value), qsort(host, (size_t)s.repeat, sizeof *host, by_value);
  printf("launch and wait %.2f us (median; least %.2f); of it recording and submitting %.2f us\n",
         (double)whole[s.repeat / 2] * 1e-3, (double)whole[0] * 1e-3, (double)host[s.repeat / 2] * 1e-3);
  return 0;
}

/* Compute, then a copy that waits for it on the device. */
static int across_queues(void) {
  db_program *p = load("hw", "ids");
  if (!p) return -1;
  uint32_t words = s.copy_max < 1 << 20 ? (uint32_t)s.copy_max / 4 : 1 << 18;
  uint64_t when;
  struct db_arg args[2] = {{.buffer = s.device}, {.bits = 7}};
  int err = db_queue_exec(s.compute, p, args, 2, (uint32_t[3]){words / 256, 1, 1}, (uint32_t[3]){256, 1, 1});
  if (!err) err = db_queue_submit(s.compute, &when);
  if (!err) err = db_queue_wait(s.copy, db_queue_timeline(s.compute), when);
  if (!err) err = db_queue_copy(s.copy, s.host, 0, s.device, 0, words * 4ul);
  if (!err) err = submit_and_wait(s.copy);
  db_program_release(p);
  const uint32_t *h = db_buffer_host(s.host);
  for (uint32_t i = 0; !err && i < words; i++)
    if (h[i] != linear(i)) return failed("the copy did not wait for the kernel");
  return err;
}

static const struct step {
  const char *name;
  int (*run)(void);
} steps[] = {
    {"memory", memory},
    {"signal alone, copy queue", copy_release},
    {"copies", copies},
    {"copy bandwidth", bandwidth},
    {"signal alone, compute queue", compute_release},
    {"timestamps", timestamps},
    {"empty kernel", empty},
    {"kernel that stores a parameter", store},
    {"thread and block numbers", ids},
    {"local memory of a block, and a barrier", shared},
    {"private memory of a thread", local},
    {"calls and the stack", stack},
    {"atomics", atomics},
    {"1024 blocks", large},
    {"copy behind a kernel", across_queues},
    {"launch latency", latency},
};

int main(int argc, char **argv) {
  bool small = argc > 1 && !strcmp(argv[1], "--small");
  if (argc != 2 + small) return fputs("usage: steps [--small] DEV\n", stderr), 2;
  const char *name = argv[1 + small];
  s.copy_max = small ? COPY_SMALL : COPY_MOST;
  s.repeat = small ? REPEAT_SMALL : REPEAT;
  s.plays = !strncmp(name, "PLAY:", 5);
  setvbuf(stdout, NULL, _IOLBF, 0);
  s.dev = db_open(name);
  if (!s.dev) {
    printf("open %s: FAILED: %s\n", name, db_error());
    return 1;
  }
  printf("open %s: ok: %s, %s\n", name, db_device_description(s.dev), db_device_arch(s.dev));
  int bad = 0;
  for (unsigned i = 0; i < sizeof steps / sizeof *steps && !bad; i++) {
    s.why[0] = 0;
    uint64_t t = now_ns();
    bad = steps[i].run();
    printf("%2u %s: %s%s (%.1f ms)\n", i + 1, steps[i].name, bad ? "FAILED: " : "ok",
           !bad       ? ""
           : s.why[0] ? s.why
                      : db_error(),
           (double)(now_ns() - t) * 1e-6);
  }
  db_buffer_release(s.device), db_buffer_release(s.host), db_buffer_release(s.result);
  db_queue_release(s.compute), db_queue_release(s.copy);
  db_close(s.dev);
  return bad ? 1 : 0;
}
