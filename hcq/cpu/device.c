/* The CPU device: memory, commands, opening and closing. */
#define _GNU_SOURCE
#include "cpu.h"
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct cpu_device *cpu(db_device *dev) { return (struct cpu_device *)dev; }

/* ---- memory ---- */

/* Asks for large pages for large buffers. Kernels that read much memory then have fewer TLB misses, and the processor's
 * prefetchers, which stop at the end of a page, reach further. */
static int cpu_alloc(db_buffer *buf) {
  enum { PAGE = 1 << 12, LARGE_PAGE = 1 << 21 };
  size_t align = buf->size >= 2 * LARGE_PAGE ? LARGE_PAGE : buf->size >= 1u << 16 ? PAGE : 128;
  void *p = NULL;
  if (posix_memalign(&p, align, buf->size))
    return db_fail(-ENOMEM, "%s: out of memory for a buffer of %zu bytes", buf->dev->name, buf->size);
  if (align == LARGE_PAGE) madvise(p, buf->size / PAGE * PAGE, MADV_HUGEPAGE); /* an error only means small pages */
  buf->mapping = p;
  buf->host = p;
  buf->address = (uint64_t)(uintptr_t)p;
  buf->direct = true;
  return 0;
}

static int cpu_import(db_buffer *buf, void *host) {
  buf->host = host;
  buf->address = (uint64_t)(uintptr_t)host;
  buf->direct = true;
  return 0;
}

static void cpu_free(db_buffer *buf) { free(buf->mapping); }

static int cpu_reach(db_device *dev, db_buffer *buf) { return 0; }

/* ---- commands ---- */

static void put64(uint32_t *w, uint64_t v) {
  w[0] = (uint32_t)v;
  w[1] = (uint32_t)(v >> 32);
}

static int put_signal(struct words *words, enum cpu_op op, uint64_t address, uint32_t value) {
  uint32_t *w = words_packet(words, 4);
  if (!w) return 0; /* failure is sticky in words */
  w[0] = CPU_HEADER(op, 4);
  put64(w + 1, address);
  w[3] = value;
  return 0;
}

static int cpu_wait(db_queue *q, uint64_t address, uint32_t value) {
  hcq_patch_words(q, q->slots[0], q->words.n + 3, (struct hcq_patch){.bytes = 4, .addend = value});
  return put_signal(&q->words, CPU_OP_WAIT, address, value);
}
static int cpu_signal(db_queue *q, uint64_t address, uint32_t value) {
  hcq_patch_words(q, q->slots[0], q->words.n + 3, (struct hcq_patch){.bytes = 4, .addend = value});
  return put_signal(&q->words, CPU_OP_SIGNAL, address, value);
}
static int cpu_timestamp(db_queue *q, uint64_t address) { return put_signal(&q->words, CPU_OP_STAMP, address, 0); }

/* A no-op: one thread runs a queue's commands one after the other. */
static int cpu_memory_barrier(db_queue *q) { return 0; }

static int cpu_exec(db_queue *q, db_program *prog, uint8_t *kernarg, uint64_t kernarg_address, uint32_t local_size,
                    const uint32_t grid[3], const uint32_t block[3]) {
  if (block[0] != 1 || block[1] != 1 || block[2] != 1)
    return db_fail(-EINVAL, "%s: kernel %s: block %ux%ux%u: a workgroup of this device is one work-item, 1x1x1",
                   q->dev->name, prog->name, block[0], block[1], block[2]);
  if (local_size)
    return db_fail(-EINVAL, "%s: kernel %s: not supported: local memory arguments", q->dev->name, prog->name);
  for (unsigned k = 0; k < 3; k++)
    hcq_patch_words(q, q->slots[k], q->words.n + 5 + k, (struct hcq_patch){.bytes = 4, .is_count = true});
  uint32_t *w = words_packet(&q->words, 8);
  if (!w) return 0;
  w[0] = CPU_HEADER(CPU_OP_EXEC, 8);
  put64(w + 1, (uint64_t)(uintptr_t)((struct cpu_program *)prog)->entry);
  put64(w + 3, kernarg_address);
  memcpy(w + 5, grid, 12);
  return 0;
}

static int cpu_copy(db_queue *q, uint64_t dst, uint64_t src, uint64_t n) {
  hcq_patch_words(q, q->slots[0], q->words.n + 1,
                  (struct hcq_patch){.bytes = 8, .addend = q->slot_offsets[0], .is_buffer = true});
  hcq_patch_words(q, q->slots[1], q->words.n + 3,
                  (struct hcq_patch){.bytes = 8, .addend = q->slot_offsets[1], .is_buffer = true});
  uint32_t *w = words_packet(&q->words, 7);
  if (!w) return 0;
  w[0] = CPU_HEADER(CPU_OP_COPY, 7);
  put64(w + 1, dst);
  put64(w + 3, src);
  put64(w + 5, n);
  return 0;
}

static int cpu_submit(db_queue *q, uint64_t value) {
  put_signal(&q->words, CPU_OP_SIGNAL, q->ring->timeline->address, hcq_ring_count(q->ring, value));
  if (q->words.failed) return db_fail(-ENOMEM, "%s: out of memory for a submission", q->dev->name);
  hcq_count(&q->ring->counters.packets, q->words.packets);
  hcq_count(&q->ring->counters.doorbells, 1);
  return cpu_ring_submit((struct cpu_ring *)q->ring, q->words.w, q->words.n);
}

/* Submits one command that makes the worker run the recording's commands. */
static int cpu_replay(db_recording *r, uint64_t value) {
  uint32_t w[9] = {CPU_HEADER(CPU_OP_CALL, 5)};
  put64(w + 1, (uint64_t)(uintptr_t)r->memory->host);
  put64(w + 3, r->nwords);
  w[5] = CPU_HEADER(CPU_OP_SIGNAL, 4);
  put64(w + 6, r->ring->timeline->address);
  w[8] = hcq_ring_count(r->ring, value);
  hcq_count(&r->ring->counters.packets, r->npackets + 2);
  hcq_count(&r->ring->counters.doorbells, 1);
  return cpu_ring_submit((struct cpu_ring *)r->ring, w, 9);
}

struct awaited {
  const db_signal *sig;
  uint64_t value;
};
static bool reached(void *ctx) {
  struct awaited *a = ctx;
  return hcq_signal_load(a->sig) >= a->value;
}
static void cpu_sleep_for(db_device *dev, const db_signal *sig, uint64_t value, uint64_t ns) {
  struct awaited a = {sig, value};
  cpu_wake(cpu(dev));
  cpu_sleep(cpu(dev), ns, reached, &a);
}

/* ---- life ---- */

#if defined(__x86_64__)
#define ARCH "x86_64"
#else
#define ARCH "aarch64"
#endif

static void describe(struct os *os, char *buf, size_t cap) {
  char *text = malloc(1u << 16), *line = NULL;
  if (text && os->read_file(os, "/proc/cpuinfo", text, 1u << 16) > 0) line = strstr(text, "model name");
  if (line && (line = strchr(line, ':')))
    snprintf(buf, cap, "%.*s", (int)strcspn(line + 2, "\n"), line + 2);
  else
    snprintf(buf, cap, "host processor");
  free(text);
}

#define CPU_CLOCK "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq" /* in kHz */
static int cpu_enumerate(struct hcq_machine *machine, struct hcq_found *out, int cap) {
  if (cap < 1) return 1;
  *out = (struct hcq_found){.info = {.usable = true, .arch = ARCH}};
  describe(machine->os, out->info.description, sizeof out->info.description);
  long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
  if (pages > 0 && bytes > 0) out->info.memory = (uint64_t)pages * (uint64_t)bytes;
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  char khz[32];
  if (processors > 0) out->info.units = (uint32_t)processors;
  if (machine->os->read_file(machine->os, CPU_CLOCK, khz, sizeof khz) > 0)
    out->info.clock_mhz = (uint32_t)(strtoul(khz, NULL, 10) / 1000);
  return 1;
}

static bool cpu_halt(db_device *dev) { return cpu_rings_stop(cpu(dev)); }

static void cpu_close(db_device *dev) {
  struct cpu_device *c = cpu(dev);
  for (int i = 0; i < 2; i++) free(c->rings[i].words);
  free(c->helpers);
  free(c->counters);
  pthread_cond_destroy(&c->changed);
  pthread_cond_destroy(&c->job_posted);
  pthread_cond_destroy(&c->job_done);
  pthread_mutex_destroy(&c->lock);
  pthread_mutex_destroy(&c->job_lock);
  free(c);
}

static int cpu_open(struct hcq_machine *machine, unsigned index, const char *name, db_device **out) {
  struct cpu_device *c = calloc(1, sizeof *c);
  if (!c) return db_fail(-ENOMEM, "%s: out of memory", name);
  db_device *dev = &c->base;
  hcq_device_init(dev, machine, index, name);
  strcpy(dev->arch, ARCH);
  describe(dev->os, dev->description, sizeof dev->description);
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&c->lock, NULL);
  pthread_mutex_init(&c->job_lock, NULL);
  pthread_cond_init(&c->changed, &monotonic);
  pthread_cond_init(&c->job_posted, NULL);
  pthread_cond_init(&c->job_done, NULL);
  pthread_condattr_destroy(&monotonic);
  cpu_set_t cpus;
  c->rings[DB_QUEUE_COMPUTE].dev = c->rings[DB_QUEUE_COPY].dev = c;
  c->nthreads = sched_getaffinity(0, sizeof cpus, &cpus) ? 1 : (unsigned)CPU_COUNT(&cpus);
  int err = cpu_ring_start(&c->rings[DB_QUEUE_COMPUTE], c, DB_QUEUE_COMPUTE);
  if (!err) err = cpu_ring_start(&c->rings[DB_QUEUE_COPY], c, DB_QUEUE_COPY);
  if (err) {
    cpu_halt(dev);
    for (int i = 0; i < 2; i++) hcq_ring_finish(dev->rings[i]);
    hcq_signals_free(dev);
    cpu_close(dev);
    return err;
  }
  *out = dev;
  return 0;
}

const struct hcq_backend hcq_cpu_backend = {
    .vendor = "CPU",
    .open = cpu_open,
    .halt = cpu_halt,
    .close = cpu_close,
    .enumerate = cpu_enumerate,
    .alloc = cpu_alloc,
    .import = cpu_import,
    .free = cpu_free,
    .reach = cpu_reach,
    .is_host = true,
    .program_load = cpu_program_load,
    .wait = cpu_wait,
    .signal = cpu_signal,
    .timestamp = cpu_timestamp,
    .memory_barrier = cpu_memory_barrier,
    .exec = cpu_exec,
    .copy = cpu_copy,
    .counters = cpu_counters,
    .counter_slots = cpu_counter_slots,
    .counter_missing = cpu_counter_missing,
    .counters_begin = cpu_counters_begin,
    .counters_end = cpu_counters_end,
    .submit = cpu_submit,
    .replay = cpu_replay,
    .sleep = cpu_sleep_for,
};
