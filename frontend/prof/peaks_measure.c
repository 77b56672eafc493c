/* Measures the roofs of a device with micro-kernels. */
#define _GNU_SOURCE
#include "../../compiler/compiler.h"
#include "../../compiler/ptxas.h"
#include "../../hcq/error.h"
#include "../../hcq/hcq.h"
#include "../../hcq/profile.h"
#include "peaks.h"
#include "peaks_code.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A measurement repeats a kernel that takes at least LONG_NS, and takes the fastest run. The times of emulated GPUs do
 * not vary enough to matter. */
enum {
  RUNS = 15,
  EMULATED_RUNS = 2,
  LATENCY_RUNS = 100,
  LONG_NS = 2000000,
  MOST_ROUNDS = 1 << 28,
  COPY_BYTES = 32 << 20
};
#define TIMEOUT_NS 60000000000ull

struct bench {
  db_device *dev;
  bool emulated;
  const struct target *target;
  char *ptxas;
  uint32_t units, groups; /* groups: workgroups of a launch, several per unit (core, or place of a workgroup) */
  db_buffer *in, *out;
  db_queue *q;
  db_signal *begin, *end;
};

/* ---- running a kernel ---- */

static db_program *load(struct bench *b, const char *name, char *code) {
  char err[4096];
  void *image = NULL;
  size_t size;
  bool host = b->target->kind == TARGET_HOST;
  if (!code) return db_fail_null(-ENOMEM, "out of memory for a micro-kernel");
  bool good = compiler_assemble(b->target, b->ptxas, name, code, &image, &size, err, sizeof err);
  db_program *p = good ? db_program_load(b->dev, image, size, name, host ? peak_params : NULL, host ? PEAK_PARAMS : 0)
                       : db_fail_null(-EINVAL, "%s", err);
  free(image);
  free(code);
  return p;
}

/* Runs a kernel once and returns its time on the device, or a negative errno. */
static int64_t run_once(struct bench *b, db_program *p, uint32_t rounds, uint32_t bytes, uint32_t stride) {
  const struct db_arg args[PEAK_PARAMS] = {
      {.buffer = b->in}, {.buffer = b->out}, {.bits = rounds}, {.bits = bytes}, {.bits = stride}};
  uint32_t block = b->target->kind == TARGET_HOST ? 1 : PEAK_ITEMS;
  uint64_t when, from, to;
  db_queue_timestamp(b->q, b->begin);
  db_queue_exec(b->q, p, args, PEAK_PARAMS, (uint32_t[3]){b->groups, 1, 1}, (uint32_t[3]){block, 1, 1});
  db_queue_timestamp(b->q, b->end);
  int err = db_queue_submit(b->q, &when);
  if (!err) err = db_wait(db_queue_timeline(b->q), when, TIMEOUT_NS);
  if (err) return err;
  db_signal_interval(b->begin, b->end, &from, &to);
  return (int64_t)(to - from);
}

/* Chooses a number of rounds that takes long enough, and returns the shortest time of a round in seconds, or a negative
 * errno. */
static double round_seconds(struct bench *b, db_program *p, uint32_t bytes, uint32_t stride) {
  uint32_t rounds = 1;
  int64_t ns = run_once(b, p, rounds, bytes, stride), least;
  while (ns >= 0 && ns < LONG_NS && rounds < MOST_ROUNDS) {
    rounds *= ns < LONG_NS / 8 ? 8 : 2;
    ns = run_once(b, p, rounds, bytes, stride);
  }
  least = ns;
  for (int i = 1; i < (b->emulated ? EMULATED_RUNS : RUNS) && ns >= 0; i++) {
    ns = run_once(b, p, rounds, bytes, stride);
    if (ns < least) least = ns;
  }
  return ns < 0 ? (double)ns : (double)least * 1e-9 / rounds;
}

/* ---- the measurements ---- */

static int measure_rates(struct bench *b, struct peaks *out) {
  struct peak_code code;
  char *text;
  for (unsigned i = 0; i < PEAKS_MOST && (text = peak_rate_code(b->target, i, &code)); i++) {
    db_program *p = load(b, "rate", text);
    double s = p ? round_seconds(b, p, 0, 0) : -1;
    db_program_release(p);
    if (s < 0) return -EIO;
    uint32_t items = b->groups * (b->target->kind == TARGET_HOST ? 1 : PEAK_ITEMS);
    struct peak_rate *r = &out->rates[out->nrates++];
    snprintf(r->name, sizeof r->name, "%s", code.name);
    r->flops = code.flops * items / s;
  }
  return 0;
}

/* A level of memory and how to read from it: each workgroup reads `bytes`, of its own if the level is not shared. */
struct level {
  const char *name;
  uint64_t bytes;             /* in total, or of each workgroup if it is private to a core */
  bool is_private, is_shared; /* shared: all workgroups read the same bytes */
};

/* Reads a file of a cache's folder in sysfs. Returns false if there is none. */
static bool read_cache(unsigned index, const char *file, char *text, int cap) {
  char path[96];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%u/%s", index, file);
  FILE *f = fopen(path, "re");
  bool good = f && fgets(text, cap, f);
  if (f) fclose(f);
  return good;
}

/* The size of the data cache of a level (from 1) in bytes, as the kernel reports it, or `usual`. */
static uint64_t cache_bytes(int level, uint64_t usual) {
  char text[32];
  for (unsigned i = 0; read_cache(i, "level", text, sizeof text); i++) {
    if (atoi(text) != level || !read_cache(i, "type", text, sizeof text) || *text == 'I') continue;
    if (read_cache(i, "size", text, sizeof text)) return (uint64_t)atoi(text) << 10; /* "32K" */
  }
  return usual;
}

/* The number of caches of level 3: hosts with several dies or sockets have more than one. */
static uint64_t count_l3(void) {
  char text[4096];
  long cores = sysconf(_SC_NPROCESSORS_ONLN), sharing = 0;
  for (unsigned i = 0; read_cache(i, "level", text, sizeof text); i++) {
    if (atoi(text) != 3 || !read_cache(i, "shared_cpu_map", text, sizeof text)) continue;
    for (const char *c = text; *c; c++) /* hexadecimal words, separated by commas */
      if (isxdigit(*c)) sharing += __builtin_popcount((unsigned)strtoul((char[]){*c, 0}, NULL, 16));
  }
  return sharing > 0 && cores > sharing ? (uint64_t)((cores + sharing - 1) / sharing) : 1;
}

/* Fills levels with half of each cache, and with memory. Returns their number. */
static unsigned host_levels(struct level *levels) {
  uint64_t l1 = cache_bytes(1, 32 << 10), l2 = cache_bytes(2, 1 << 20), l3 = cache_bytes(3, 16 << 20);
  levels[0] = (struct level){"L1", l1 / 2, true, false};
  levels[1] = (struct level){"L2", l2 / 2, true, false};
  levels[2] = (struct level){"L3", l3 / 2, false, false};
  levels[3] = (struct level){"memory", 4 * l3 * count_l3(), false, false};
  return 4;
}

static unsigned gpu_levels(const struct bench *b, struct level *levels) {
  uint64_t step = peak_level_step(b->target);
  levels[0] = (struct level){"L0/L1", step, true, false};
  levels[1] = (struct level){"L2", 2 << 20, false, true};
  levels[2] = (struct level){"memory", b->emulated ? 32 << 20 : 1 << 30, false, false};
  return 3;
}

static int measure_level(struct bench *b, db_program *p, const struct level *l, struct peaks *out) {
  uint32_t step = peak_level_step(b->target);
  uint64_t share = l->is_private || l->is_shared ? l->bytes : l->bytes / b->groups;
  share = share < step ? step : share / step * step;
  db_buffer *small = b->in;
  uint64_t total = l->is_shared ? share : share * b->groups;
  b->in = db_alloc(b->dev, total, 0);
  double s = b->in ? round_seconds(b, p, (uint32_t)share, l->is_shared ? 0 : (uint32_t)share) : -1;
  db_buffer_release(b->in);
  b->in = small;
  if (s < 0) return -EIO;
  struct peak_level *o = &out->levels[out->nlevels++];
  snprintf(o->name, sizeof o->name, "%s", l->name);
  o->bytes = l->is_private ? share * b->units : total;
  o->bandwidth = (double)share * b->groups / s;
  return 0;
}

static int measure_levels(struct bench *b, struct peaks *out) {
  struct level levels[4];
  unsigned n = b->target->kind == TARGET_HOST ? host_levels(levels) : gpu_levels(b, levels);
  db_program *p = load(b, "level", peak_level_code(b->target));
  int err = p ? 0 : -EIO;
  for (unsigned i = 0; i < n && !err; i++) err = measure_level(b, p, &levels[i], out);
  db_program_release(p);
  return err;
}

/* The host's time from a submission to the end of its work. */
static double submit_seconds(db_queue *q) {
  uint64_t when, start = hcq_now_ns();
  if (db_queue_submit(q, &when) || db_wait(db_queue_timeline(q), when, TIMEOUT_NS)) return -1;
  return (double)(hcq_now_ns() - start) * 1e-9;
}

static int measure_launch(struct bench *b, struct peaks *out) {
  const struct db_arg args[PEAK_PARAMS] = {{.buffer = b->in}, {.buffer = b->out}};
  uint32_t one[3] = {1, 1, 1}, block[3] = {b->target->kind == TARGET_HOST ? 1 : PEAK_ITEMS, 1, 1};
  db_program *p = load(b, "nothing", peak_empty_code(b->target));
  double s = p ? 0 : -1;
  for (int i = 0; i < LATENCY_RUNS && s >= 0; i++) {
    db_queue_exec(b->q, p, args, PEAK_PARAMS, one, block);
    s = submit_seconds(b->q);
    if (!i || s < out->launch_s) out->launch_s = s;
  }
  db_program_release(p);
  return s < 0 ? -EIO : 0;
}

static int measure_copies(struct bench *b, struct peaks *out) {
  db_queue *q = db_queue_new(b->dev, DB_QUEUE_COPY);
  db_buffer *from = db_alloc(b->dev, COPY_BYTES, 0), *to = db_alloc(b->dev, COPY_BYTES, 0);
  double s = q && from && to ? 0 : -1, least = 0;
  for (int i = 0; i < LATENCY_RUNS + RUNS && s >= 0; i++) {
    bool large = i >= LATENCY_RUNS;
    db_queue_copy(q, to, 0, from, 0, large ? COPY_BYTES : 4096);
    s = submit_seconds(q);
    double *best = large ? &least : &out->copy_s;
    if (i == 0 || i == LATENCY_RUNS || s < *best) *best = s;
  }
  if (least > 0) out->copy_bandwidth = COPY_BYTES / least;
  db_queue_release(q);
  db_buffer_release(from);
  db_buffer_release(to);
  return s < 0 ? -EIO : 0;
}

/* ---- a device ---- */

/* Fills the operands with numbers that are normal in every type. */
static int fill(db_buffer *in) {
  uint32_t *words = malloc(db_buffer_size(in));
  if (!words) return db_fail(-ENOMEM, "out of memory for operands");
  for (size_t i = 0; i < db_buffer_size(in) / 4; i++) words[i] = 0x3c003c00;
  int err = db_buffer_write(in, 0, words, db_buffer_size(in));
  free(words);
  return err;
}

static int prepare(struct bench *b) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  b->target = target_find(db_device_arch(b->dev));
  if (!b->target)
    return db_fail(-ENOTSUP, "%s: not supported: micro-kernels for %s", db_device_name(b->dev), db_device_arch(b->dev));
  bool host = b->target->kind == TARGET_HOST;
  b->units = host ? (uint32_t)(cores > 0 ? cores : 1) : b->target->workgroups;
  /* 8 workgroups per core: a core that also runs other programs then executes fewer of them. */
  b->groups = host ? 8 * b->units : b->units;
  b->ptxas = ptxas_find(getenv("PTXAS"), getenv("PATH"));
  size_t results = (size_t)b->groups * (host ? 1 : PEAK_ITEMS) * PEAK_SLOT;
  b->in = db_alloc(b->dev, (size_t)PEAK_OPERANDS * PEAK_SLOT * PEAK_ITEMS, 0);
  b->out = db_alloc(b->dev, results, 0);
  b->q = db_queue_new(b->dev, DB_QUEUE_COMPUTE);
  b->begin = db_signal_new(b->dev);
  b->end = db_signal_new(b->dev);
  return b->in && b->out && b->q && b->begin && b->end ? fill(b->in) : -ENOMEM;
}

int peaks_measure(db_device *dev, struct peaks *out) {
  struct bench b = {.dev = dev, .emulated = !strncmp(db_device_name(dev), "EMU+", 4)};
  *out = (struct peaks){0};
  int err = prepare(&b);
  if (!err) err = measure_rates(&b, out);
  if (!err) err = measure_levels(&b, out);
  if (!err) err = measure_launch(&b, out);
  if (!err) err = measure_copies(&b, out);
  free(b.ptxas);
  db_queue_release(b.q);
  db_signal_release(b.begin);
  db_signal_release(b.end);
  db_buffer_release(b.in);
  db_buffer_release(b.out);
  return err;
}
