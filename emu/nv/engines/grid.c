/* Runs a grid: its clusters run on the host's cores, each of which is an SM; handles errors of SMs. */
#include "engines.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "../../exec/cost.h"
#include "../../guard.h"
#include "../../exec/lines.h"

enum { CHUNKS_PER_CORE = 16, CHUNK_MAX = 256 };

/* A running grid. */
struct run {
  struct nv_channel *ch;
  struct sm_grid *g;
  uint32_t clusters[3];
  atomic_bool failed;
  pthread_mutex_t lock;
  struct nv_channel_error error; /* the first one; guarded by lock; xid 0 if there is none */
  struct fault where;            /* position of a warp that was stopped; guarded by lock */
  struct sm_stats counted;       /* counts per instruction if detail is enabled; guarded by lock */
  struct emu_detail detail;
  struct emu_lines lines;
  struct emu_sites sites;     /* if each instruction is counted; then one worker runs all clusters */
  unsigned counts;            /* which performance counters its clusters add to (hcq/nv/counters.h) */
  struct race_task *task;     /* NULL if the machine is not strict */
  struct sm_sampler *sampler; /* if PC samples are taken; then one worker runs all clusters */
  uint64_t cluster;           /* the cluster that is being sampled */
};

static void add_count(_Atomic uint64_t *total, uint64_t n) {
  atomic_fetch_add_explicit(total, n, memory_order_relaxed);
}

/* Returns the core of a worker. Only that worker creates and uses it. Worker 0 is the channel's thread. */
static struct sm_core *core_of(struct nv_channel *ch, unsigned worker) {
  struct sm_core **at = worker ? &ch->e->cores[worker] : &ch->core;
  if (!*at) *at = sm_core_new();
  return *at;
}

static void record_fault(struct run *r, const struct fault *fault, uint64_t cluster) {
  pthread_mutex_lock(&r->lock);
  if (!r->error.xid) {
    r->error.fault = *fault;
    r->error.xid = fault->kind == FAULT_PAGE ? NV_XID_MMU_FAULT : NV_XID_GR_EXCEPTION;
    r->error.esr = fault->kind == FAULT_PAGE ? 0 : sm_fault_esr(fault);
    r->error.sm = sm_place(r->g, cluster, 0); /* of the cluster's first CTA, as for counters */
  }
  pthread_mutex_unlock(&r->lock);
  atomic_store(&r->failed, true);
}

static int run_cluster(struct run *r, struct sm_core *core, const uint32_t first[3], struct sm_stats *stats,
                       struct fault *fault) {
  struct guard guard, **slot = guard_slot(), *const outer = *slot;
  if (sigsetjmp(guard.jump, 0)) {
    *slot = outer;
    sm_interrupted(core, r->ch->space->code, guard.address, guard.access, fault);
    return -EFAULT;
  }
  *slot = &guard;
  int rc = sm_run_cluster(core, r->ch->space->code, r->g, first, stats, fault);
  *slot = outer;
  return rc;
}

static bool run_clusters(void *ctx, unsigned worker, unsigned seat, uint64_t begin, uint64_t end) {
  struct run *r = ctx;
  struct nv_engines *e = r->ch->e;
  struct sm_core *core = core_of(r->ch, worker);
  struct emu_detail detail = {0};
  struct emu_lines lines = {0};
  struct sm_stats stats = {0};
  bool go_on = true;
  if (r->counted.detail || r->counts || r->sampler) stats.detail = &detail;
  if (r->counted.detail) stats.lines = &lines;
  if (!r->counted.detail && r->counts != NV_COUNTERS_ALL) stats.counting = EMU_COUNT_CLASSES;
  stats.sampler = r->sampler;
  if (r->counted.sites) stats.sites = &r->sites, lines.caches = r->sites.caches.model ? &r->sites.caches : NULL;
  race_task = r->task;
  for (uint64_t i = begin; i < end && go_on; i++) {
    struct fault fault = {.kind = FAULT_NONE, .lane = -1};
    uint64_t at[3] = {i % r->clusters[0], i / r->clusters[0] % r->clusters[1], i / r->clusters[0] / r->clusters[1]};
    uint32_t first[3];
    for (int k = 0; k < 3; k++) first[k] = (uint32_t)at[k] * r->g->cluster[k];
    if (atomic_load_explicit(&r->failed, memory_order_relaxed) || nv_channel_stopped(r->ch)) break;
    if (!core) snprintf(fault.text, sizeof fault.text, "the emulator is out of memory");
    struct emu_detail earlier;
    struct sm_stats before = stats;
    if (r->counts) earlier = detail, before.detail = &earlier;
    if (lines.caches) emu_caches_begin(lines.caches);
    if (r->sampler) r->cluster = i;
    int rc = core ? run_cluster(r, core, first, &stats, &fault) : -ENOMEM;
    if (r->counts) nv_perf_add(e, sm_place(r->g, i, 0), &before, &stats);
    if (!rc) continue;
    go_on = false;
    if (rc == -ECANCELED) {
      pthread_mutex_lock(&r->lock);
      r->where = fault;
      pthread_mutex_unlock(&r->lock);
      atomic_store(&r->failed, true);
    } else {
      record_fault(r, &fault, i);
    }
  }
  race_task = NULL;
  emu_steps_free(&stats.steps);
  add_count(&e->instructions, stats.instructions);
  add_count(&e->warps, stats.warps);
  add_count(&e->ctas, stats.ctas);
  add_count(&e->bytes_loaded, stats.bytes_loaded);
  add_count(&e->bytes_stored, stats.bytes_stored);
  if (r->counted.detail) {
    pthread_mutex_lock(&r->lock);
    r->counted.warps += stats.warps, r->counted.ctas += stats.ctas, r->counted.instructions += stats.instructions;
    emu_detail_add(r->counted.detail, &detail);
    emu_lines_add(&r->lines, &lines);
    pthread_mutex_unlock(&r->lock);
    emu_lines_free(&lines);
  }
  return go_on && !atomic_load_explicit(&r->failed, memory_order_relaxed) && !nv_channel_stopped(r->ch);
}

/* Appends to a line; text that does not fit is cut off. */
static void append_text(char *line, size_t cap, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void append_text(char *line, size_t cap, const char *format, ...) {
  size_t n = strlen(line);
  va_list args;
  va_start(args, format);
  vsnprintf(line + n, cap - n, format, args);
  va_end(args);
}

/* Logs a line about an abandoned grid. */
static void log_abandoned(struct nv_channel *ch, const struct run *r) {
  char line[800] = "", where[256];
  if (!ch->e->config.log) return;
  nv_position(ch, where, sizeof where);
  append_text(line, sizeof line, "GPU %u, channel %u: stopped: ", ch->e->config.gpu, ch->d.id);
  if (r->where.text[0]) append_text(line, sizeof line, "%s; ", r->where.text);
  append_text(line, sizeof line, "launched by %s", where);
  ch->e->config.log(ch->e->config.ctx, line);
}

/* Adds the launch, and for page faults the mapping nearest to the address, to the message of an SM's fault. */
static enum nv_status fail_grid(struct nv_channel *ch, struct run *r) {
  struct nv_channel_error *e = &r->error;
  char text[sizeof e->fault.text] = "", where[256], near[160];
  append_text(text, sizeof text, "channel %u: %.330s", ch->d.id, e->fault.text);
  if (e->fault.kind == FAULT_PAGE && !strstr(e->fault.text, "allocation")) {
    vm_describe(ch->d.vm, e->fault.address, near, sizeof near);
    append_text(text, sizeof text, "; %s", near);
  }
  nv_position(ch, where, sizeof where);
  append_text(text, sizeof text, "; launched by %s", where);
  memcpy(e->fault.text, text, sizeof text);
  return nv_channel_fail(ch, e);
}

static void add_sample(void *ctx, const struct sm_sample *s) {
  struct run *r = ctx;
  nv_pma_sample(r->ch->e, sm_place(r->g, r->cluster, s->cta), s);
}

static uint64_t clock_of_gpu(void *ctx) { return nv_engines_time(ctx); }

/* Returns the number of warps that an SM can hold, limited by its 65536 registers, which a warp gets in units of 256,
 * by its shared memory, and by 32 CTAs (CUDA C++ Programming Guide, "Compute Capabilities"). */
static uint64_t resident_warps(const struct nv_model *m, const struct sm_grid *g) {
  enum { REGISTERS = 65536, UNIT = 256, CTAS = 32, LANES = 32 };
  uint64_t threads = (uint64_t)g->block[0] * g->block[1] * g->block[2], each = (threads + LANES - 1) / LANES;
  uint64_t registers = ((uint64_t)g->registers * LANES + UNIT - 1) / UNIT * UNIT;
  uint64_t ctas = each ? m->max_warps_per_sm / each : 1;
  if (registers && each && REGISTERS / registers / each < ctas) ctas = REGISTERS / registers / each;
  if (g->shared_size && (m->shared_kib_per_sm << 10) / g->shared_size < ctas)
    ctas = (m->shared_kib_per_sm << 10) / g->shared_size;
  if (ctas > CTAS) ctas = CTAS;
  return (ctas ? ctas : 1) * each;
}

/* Enables the counts that emu_detail or emu_annotate asked for. Without memory for the counts of each instruction, only
 * the kernel's totals are counted. */
static void begin_detail(struct run *r) {
  const struct nv_engines_config *c = &r->ch->e->config;
  r->counts = nv_perf_counting(r->ch->e);
  if (!atomic_load_explicit(c->detail, memory_order_relaxed)) return;
  r->counted.detail = &r->detail;
  if (!c->annotate || !atomic_load_explicit(c->annotate, memory_order_relaxed)) return;
  if (!emu_sites_init(&r->sites, c->model->name)) r->counted.sites = &r->sites;
}

/* Adds the grid's counts per instruction to those of the GPU. */
static void add_detail(struct run *r) {
  struct nv_engines *e = r->ch->e;
  r->detail.memory_bytes = emu_lines_bytes(&r->lines);
  struct emu_launch launch = {r->counted.warps, r->counted.ctas, resident_warps(e->config.model, r->g)};
  r->detail.model_ps = emu_model_ps(e->config.model->name, &r->detail, &launch);
  nv_counters_add(e, r->g->pgm, &r->counted);
  emu_lines_free(&r->lines);
  emu_sites_free(&r->sites);
}

enum nv_status nv_grid_run(struct nv_channel *ch, struct sm_grid *g, bool sequential) {
  struct nv_engines *e = ch->e;
  struct run r = {.ch = ch, .g = g};
  uint64_t total = 1;
  for (int k = 0; k < 3; k++) {
    r.clusters[k] = g->grid[k] / g->cluster[k];
    total *= r.clusters[k]; /* at most 31 + 16 + 16 bits */
  }
  unsigned seats = sequential ? 1 : pool_workers(e->config.pool) + 1;
  uint64_t chunk = total / ((uint64_t)seats * CHUNKS_PER_CORE);
  chunk = chunk < 1 ? 1 : chunk > CHUNK_MAX ? CHUNK_MAX : chunk;
  g->clock = clock_of_gpu;
  g->ctx = e;
  g->stop = &ch->stop;
  begin_detail(&r);
  if (nv_pma_begin(ch)) r.sampler = sm_sampler_new(add_sample, &r);
  add_count(&e->launches, 1);
  pthread_mutex_init(&r.lock, NULL);
  atomic_store(&ch->launching, true);
  if (ch->race) {
    char what[64];
    snprintf(what, sizeof what, "kernel at 0x%" PRIx64, g->pgm);
    r.task = race_begin(ch->race, what);
  }
  pool_run(e->config.pool, total, chunk, r.counted.sites || r.sampler ? 1 : seats, run_clusters, &r);
  pthread_mutex_destroy(&r.lock);
  if (r.counted.detail) add_detail(&r);
  if (r.sampler) nv_pma_end(e);
  sm_sampler_free(r.sampler);
  enum nv_status status = NV_DONE, raced = nv_task_end(ch, r.task);
  if (r.error.xid) {
    status = fail_grid(ch, &r);
  } else if (nv_channel_stopped(ch)) {
    log_abandoned(ch, &r);
    status = NV_DEAD;
  }
  atomic_store(&ch->launching, false);
  return status == NV_DONE ? raced : status;
}
