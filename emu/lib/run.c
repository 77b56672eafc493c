/* Launches on the process's own memory: run_asm, db_emu_run, and single-stepping of a workgroup.
 *
 * State is kept between launches: decoded code (compared with memory at each launch and decoded again if it changed),
 * wave state and scratch. So a launch of one workgroup takes only two uncontended locks and wakes no thread. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "../amd/engines/gpu.h"
#include "../amd/exec/rdna3_wave.h"
#include "../doorbell-emu.h"
#include "../guard.h"
#include "host.h"

#define EXPORT __attribute__((visibility("default")))

enum {
  CHUNKS_PER_CORE = 16,
  CHUNK_MAX = 256,
  LDS_MAX = 64 << 10,
  REMU_SCRATCH = 64 << 10,
  FLOAT_MODE = 0xc0,
  WAVES_MAX = 1024 / 32
};

/* The state of a launch; used by one launch at a time. */
struct context {
  struct context *next;
  struct shader_core *core;
  uint8_t *scratch;
  size_t scratch_bytes;
};
static struct {
  pthread_mutex_t lock;
  struct vm *vm;
  struct code_cache *code;
  struct pool *pool;
  struct shader_core **cores; /* of the pool's workers */
  struct context *idle;
} host = {.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread char error_text[512];

EXPORT const char *db_emu_error(void) { return error_text; }

static int fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fail(int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(error_text, sizeof error_text, format, args);
  va_end(args);
  return code;
}

/* ---- contexts ---- */

static bool host_ready(void) {
  if (host.code) return true;
  if (!host.vm) host.vm = host_vm();
  if (!host.pool) host.pool = pool_new();
  if (host.pool && !host.cores) host.cores = calloc(pool_workers(host.pool) + 1, sizeof(struct shader_core *));
  if (!host.vm || !host.cores) return false;
  host.code = code_cache_new(&shader_code_kind);
  return host.code;
}

static struct context *context_get(void) {
  guard_arm();
  pthread_mutex_lock(&host.lock);
  bool ready = host_ready();
  struct context *c = ready ? host.idle : NULL;
  if (c) host.idle = c->next;
  pthread_mutex_unlock(&host.lock);
  if (c || !ready) return c;
  c = calloc(1, sizeof *c);
  if (c) c->core = shader_core_new();
  if (c && c->core) return c;
  free(c);
  return NULL;
}

static void context_put(struct context *c) {
  pthread_mutex_lock(&host.lock);
  c->next = host.idle;
  host.idle = c;
  pthread_mutex_unlock(&host.lock);
}

/* Grows the scratch memory; it never shrinks. Pages that no kernel accesses cost nothing. */
static bool context_scratch(struct context *c, size_t bytes) {
  if (bytes <= c->scratch_bytes) return true;
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return false;
  if (c->scratch) munmap(c->scratch, c->scratch_bytes);
  c->scratch = p, c->scratch_bytes = bytes;
  return true;
}

/* ---- initialization that a launch can skip ---- */

/* Clearing 64 KiB of LDS and 32 KiB of registers per wave takes longer than a small kernel. run_asm gives every kernel
 * all of both, so the code is scanned once for what it can access. A copy of its bytes detects changes. */
struct reach {
  bool lds;
  uint32_t vgprs;
};
static struct known {
  const void *code;
  uint32_t *copy;
  uint64_t bytes;
  bool wave64;
  struct reach reach;
} known[64]; /* guarded by host.lock */

static const struct reach everything = {true, RDNA3_VGPRS};

static struct reach scan_code(const uint32_t *dw, size_t n, bool wave64) {
  enum { WIDEST = 16 }; /* most registers that one operand can have */
  struct reach r = {false, 1};
  for (size_t at = 0; at < n;) {
    struct rdna3_inst in;
    at += rdna3_decode_wave(dw + at, n - at, 0, wave64, &in) / 4;
    if (!in.op) return everything; /* data, or unknown code */
    if (in.format == RDNA3_DS || in.format == RDNA3_FLAT || in.format == RDNA3_LDSDIR) r.lds = true;
    switch (in.op - rdna3_ops) {
    case RDNA3_SOP1_s_setpc_b64:
    case RDNA3_SOP1_s_swappc_b64:
    case RDNA3_SOPK_s_call_b64: return everything; /* calls code that is not scanned */
    case RDNA3_VOP1_v_movreld_b32:
    case RDNA3_VOP1_v_movrels_b32:
    case RDNA3_VOP1_v_movrelsd_b32:
    case RDNA3_VOP1_v_movrelsd_2_b32:
    case RDNA3_VOP1_v_swaprel_b32: r.vgprs = RDNA3_VGPRS; /* M0 selects the register */
    }
    for (unsigned i = 0; i < in.operands; i++) {
      uint32_t kind = in.operand[i].kind, v = in.arg[i] + (kind == RDNA3_KIND_vgpr ? RDNA3_VGPR0 : 0);
      bool reg = kind == RDNA3_KIND_vgpr || kind == RDNA3_KIND_src || kind == RDNA3_KIND_src_vgpr ||
                 kind == RDNA3_KIND_src_vgpr_or_inline;
      if (reg && v >= RDNA3_VGPR0 && v - RDNA3_VGPR0 + WIDEST > r.vgprs) r.vgprs = v - RDNA3_VGPR0 + WIDEST;
    }
  }
  return r;
}

static struct reach code_reach(const void *code, uint64_t bytes, bool wave64) {
  struct known *k = &known[((uintptr_t)code >> 4 ^ (uintptr_t)code >> 12) % 64];
  struct reach r = everything;
  pthread_mutex_lock(&host.lock);
  if (k->code == code && k->bytes == bytes && k->wave64 == wave64 && !memcmp(k->copy, code, bytes)) {
    r = k->reach;
  } else {
    uint32_t *copy = bytes <= 1 << 20 ? realloc(k->copy, bytes) : NULL;
    if (copy) {
      memcpy(copy, code, bytes);
      r = scan_code(copy, bytes / 4, wave64);
      *k = (struct known){code, copy, bytes, wave64, r};
    }
  }
  pthread_mutex_unlock(&host.lock);
  return r;
}

/* Limits the number of VGPRs in RSRC1 (GRANULATED_WORKITEM_VGPR_COUNT, its low 6 bits). */
static uint32_t limit_vgprs(uint32_t rsrc1, uint32_t vgprs, bool wave64) {
  uint32_t granules = (vgprs - 1) / (wave64 ? 4 : 8);
  return granules < (rsrc1 & 63) ? (rsrc1 & ~63u) | granules : rsrc1;
}

/* ---- a launch ---- */

struct run {
  struct context *context;
  struct shader_dispatch d;
  uint32_t grid[3];
  unsigned waves_per_group;
  struct shader_stats stats; /* guarded by lock, as fault and where */
  struct fault fault, where;
  struct shader_notes notes;
  pthread_mutex_t lock;
  atomic_bool stop, late;
};

static uint64_t clock_of_host(void *ctx) { return amd_clock(); }

static int run_group(struct run *r, struct shader_core *core, const uint32_t group[3], unsigned seat,
                     struct shader_stats *stats, struct fault *fault) {
  struct guard guard;
  struct guard **slot = guard_slot();
  if (sigsetjmp(guard.jump, 0)) {
    shader_interrupted(core, host.code, guard.address, guard.access, fault);
    return -EFAULT;
  }
  *slot = &guard;
  int rc = shader_run_workgroup(core, host.code, &r->d, group, seat * r->waves_per_group, stats, fault);
  *slot = NULL;
  return rc;
}

static bool run_groups(void *ctx, unsigned worker, unsigned seat, uint64_t begin, uint64_t end) {
  struct run *r = ctx;
  struct shader_core *core = r->context->core;
  struct shader_stats stats = {0};
  struct fault fault = {.kind = FAULT_NONE, .lane = -1};
  int rc = 0;
  if (worker) {
    if (!host.cores[worker]) host.cores[worker] = shader_core_new();
    core = host.cores[worker];
  }
  if (!core) {
    rc = -EFAULT, fault.kind = FAULT_TRAP;
    snprintf(fault.text, sizeof fault.text, "the emulator is out of memory");
  }
  for (uint64_t i = begin; i < end && !rc; i++) {
    const uint32_t group[3] = {(uint32_t)(i % r->grid[0]), (uint32_t)(i / r->grid[0] % r->grid[1]),
                               (uint32_t)(i / r->grid[0] / r->grid[1])};
    rc = atomic_load_explicit(&r->stop, memory_order_relaxed) ? -ECANCELED
                                                              : run_group(r, core, group, seat, &stats, &fault);
  }
  pthread_mutex_lock(&r->lock);
  r->stats.instructions += stats.instructions, r->stats.waves += stats.waves;
  r->stats.bytes_loaded += stats.bytes_loaded, r->stats.bytes_stored += stats.bytes_stored;
  if (rc == -EFAULT && r->fault.kind == FAULT_NONE) r->fault = fault;
  if (rc == -ECANCELED && fault.text[0]) r->where = fault;
  pthread_mutex_unlock(&r->lock);
  if (rc) atomic_store(&r->stop, true);
  return !rc;
}

/* Checks what both db_emu_run and db_emu_open need, and fills r except for scratch. */
static int prepare_run(const struct db_emu_launch *l, struct run *r) {
  const char *arch = l->arch ? l->arch : "gfx1100";
  char models[128];
  uint32_t wave = l->wave_size ? l->wave_size : 32;
  uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
  if (!amd_model_find(arch, strlen(arch))) {
    amd_model_names(models, sizeof models);
    return fail(-EINVAL, "no emulated AMD GPU \"%.32s\"; known: %s", arch, models);
  }
  if (!l->code || !l->code_bytes || l->code_bytes % 4 || (uintptr_t)l->code % 4)
    return fail(-EINVAL, "code at %p of %llu bytes: it must be whole dwords", l->code,
                (unsigned long long)l->code_bytes);
  struct vm_range readable;
  uint64_t start = (uintptr_t)l->code;
  if (!vm_find(host.vm, start, &readable) || l->code_bytes > readable.end - start)
    return fail(-EINVAL, "code at %p of %llu bytes cannot be read", l->code, (unsigned long long)l->code_bytes);
  if (wave != 32 && wave != 64) return fail(-EINVAL, "wave size %u: it is 32 or 64", wave);
  if (!threads || l->block[0] > 1024 || l->block[1] > 1024 || l->block[2] > 1024 || threads > 1024)
    return fail(-EINVAL, "a workgroup of %u x %u x %u: it has 1 to 1024 work-items", l->block[0], l->block[1],
                l->block[2]);
  if ((l->rsrc2 >> 15 & 0x1ff) * 512 > LDS_MAX)
    return fail(-EINVAL, "%u bytes of LDS: a workgroup has at most %d", (l->rsrc2 >> 15 & 0x1ff) * 512, LDS_MAX);
  if (l->scratch_bytes_per_lane > 1 << 20)
    return fail(-EINVAL, "%u bytes of scratch a lane: at most %d", l->scratch_bytes_per_lane, 1 << 20);
  r->waves_per_group = (unsigned)((threads + wave - 1) / wave);
  struct reach reach = code_reach(l->code, l->code_bytes, wave == 64);
  r->d = (struct shader_dispatch){
      .vm = host.vm,
      .pgm = (uintptr_t)l->code,
      .rsrc1 = limit_vgprs(l->rsrc1, reach.vgprs, wave == 64),
      .rsrc2 = l->rsrc2,
      .rsrc3 = l->rsrc3,
      .wave32 = wave == 32,
      .keep_lds = !(l->rsrc2 >> 15 & 0x1ff) || !reach.lds,
      .scratch_wave_size = l->rsrc2 & 1 ? (l->scratch_bytes_per_lane * wave + 255) & ~255u : 0,
      .clock = clock_of_host,
      .notes = &r->notes,
      .stop = &r->stop,
  };
  memcpy(r->d.user_data, l->user_sgpr, sizeof r->d.user_data);
  memcpy(r->d.groups, l->grid, sizeof r->d.groups);
  memcpy(r->d.threads, l->block, sizeof r->d.threads);
  memcpy(r->grid, l->grid, sizeof r->grid);
  return 0;
}

static int set_scratch(struct run *r, unsigned seats) {
  if (!r->d.scratch_wave_size) return 0;
  r->d.scratch_waves = seats * r->waves_per_group;
  if (!context_scratch(r->context, (size_t)r->d.scratch_wave_size * r->d.scratch_waves))
    return fail(-ENOMEM, "no address space for %u waves of %u bytes of scratch", r->d.scratch_waves,
                r->d.scratch_wave_size);
  r->d.scratch_base = (uintptr_t)r->context->scratch;
  return 0;
}

/* Stops a launch that takes too long. */
struct watch {
  struct run *run;
  pthread_mutex_t lock;
  pthread_cond_t over;
  bool done;
  uint32_t ms;
};
static void *watch_main(void *arg) {
  struct watch *w = arg;
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  t.tv_sec += w->ms / 1000, t.tv_nsec += w->ms % 1000 * 1000000l;
  if (t.tv_nsec >= 1000000000l) t.tv_sec++, t.tv_nsec -= 1000000000l;
  pthread_mutex_lock(&w->lock);
  while (!w->done && pthread_cond_timedwait(&w->over, &w->lock, &t) != ETIMEDOUT) {}
  if (!w->done) {
    atomic_store(&w->run->late, true);
    atomic_store(&w->run->stop, true);
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

static int run_grid(struct run *r, uint32_t timeout_ms) {
  uint64_t total = (uint64_t)r->grid[0] * r->grid[1];
  unsigned seats = pool_workers(host.pool) + 1;
  if (__builtin_mul_overflow(total, (uint64_t)r->grid[2], &total) || total > INT64_MAX)
    return fail(-EINVAL, "%u x %u x %u workgroups are too many", r->grid[0], r->grid[1], r->grid[2]);
  if (!total) return 0;
  if (total < seats) seats = (unsigned)total;
  int rc = set_scratch(r, seats);
  if (rc) return rc;
  uint64_t chunk = total / ((uint64_t)seats * CHUNKS_PER_CORE);
  chunk = chunk < 1 ? 1 : chunk > CHUNK_MAX ? CHUNK_MAX : chunk;

  /* The code in memory may have changed: invalidate the cache, so its bytes are compared once per launch. */
  code_cache_invalidate(host.code);
  struct watch watch = {r, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, timeout_ms};
  pthread_t watcher;
  if (timeout_ms && pthread_create(&watcher, NULL, watch_main, &watch)) return fail(-ENOMEM, "no thread for a timeout");
  pool_run(host.pool, total, chunk, seats, run_groups, r);
  if (timeout_ms) {
    pthread_mutex_lock(&watch.lock);
    watch.done = true;
    pthread_cond_signal(&watch.over);
    pthread_mutex_unlock(&watch.lock);
    pthread_join(watcher, NULL);
  }
  return r->fault.kind != FAULT_NONE || atomic_load(&r->late) ? -EFAULT : 0;
}

/* ---- public functions ---- */

static const uint8_t public_fault[] = {
    [FAULT_NONE] = DB_EMU_OK,           [FAULT_PAGE] = DB_EMU_PAGE_FAULT,
    [FAULT_ILLEGAL] = DB_EMU_ILLEGAL,   [FAULT_MISALIGNED] = DB_EMU_MISALIGNED,
    [FAULT_LDS] = DB_EMU_TRAP,          [FAULT_TRAP] = DB_EMU_TRAP,
    [FAULT_PACKET] = DB_EMU_BAD_LAUNCH,
};

static void fill_fault(struct db_emu_launch *l, const struct run *r, int rc) {
  const struct fault *f = &r->fault;
  l->fault_lane = -1;
  if (f->kind != FAULT_NONE) {
    l->fault = (enum db_emu_fault)public_fault[f->kind];
    l->fault_pc = f->pc, l->fault_address = f->address, l->fault_lane = f->lane, l->fault_wave = f->wave;
    memcpy(l->fault_group, f->workgroup, sizeof l->fault_group);
    fail(rc, "%s", f->text);
  } else if (rc == -EFAULT) {
    l->fault = DB_EMU_TIMEOUT;
    l->fault_pc = r->where.pc, l->fault_wave = r->where.wave;
    memcpy(l->fault_group, r->where.workgroup, sizeof l->fault_group);
    fail(rc, "after %u ms %s", l->timeout_ms, r->where.text[0] ? r->where.text : "still running");
  } else if (rc) {
    l->fault = DB_EMU_BAD_LAUNCH;
  }
  if (rc) memcpy(l->fault_text, error_text, sizeof l->fault_text);
}

EXPORT int db_emu_run(struct db_emu_launch *l) {
  if (!l || l->size != sizeof *l) return fail(-EINVAL, "db_emu_launch.size does not match this version");
  struct run r;
  memset(&r, 0, sizeof r);
  l->fault = DB_EMU_OK, l->fault_pc = l->fault_address = 0, l->fault_text[0] = 0, l->fault_wave = 0;
  memset(l->fault_group, 0, sizeof l->fault_group);
  pthread_mutex_init(&r.lock, NULL);
  r.context = context_get();
  int rc = r.context ? prepare_run(l, &r) : fail(-ENOMEM, "out of memory");
  if (!rc) rc = run_grid(&r, l->timeout_ms);
  fill_fault(l, &r, rc);
  l->instructions = r.stats.instructions, l->waves = r.stats.waves;
  l->bytes_loaded = r.stats.bytes_loaded, l->bytes_stored = r.stats.bytes_stored;
  l->lds_outside = r.notes.lds_outside;
  memcpy(l->lds_outside_text, r.notes.first.text, sizeof l->lds_outside_text);
  if (r.context) context_put(r.context);
  pthread_mutex_destroy(&r.lock);
  return rc;
}

/* The kernel descriptor words of remu's convention. RSRC1: all VGPRs, FLOAT_MODE, DX10_CLAMP and IEEE_MODE with LLVM's
 * defaults: f32 denormals are flushed, f16 and f64 denormals are kept. RSRC2: scratch, 16 SGPRs of which the last are
 * the workgroup's ids, work-item ids x, y and z, all of LDS. Bits: LLVM AMDGPUUsage, "Code Object V3 Kernel
 * Descriptor". */
EXPORT int run_asm(const char *code, uint32_t bytes, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t lx, uint32_t ly,
                   uint32_t lz, const uint64_t *kernarg) {
  uint32_t ids = gy != 1 && gz != 1 ? 3 : gy != 1 ? 2 : 1;
  uint64_t pointer = (uintptr_t)kernarg;
  struct db_emu_launch l;
  memset(&l, 0, offsetof(struct db_emu_launch, fault));
  l.size = sizeof l;
  l.code = code, l.code_bytes = bytes;
  l.grid[0] = gx, l.grid[1] = gy, l.grid[2] = gz;
  l.block[0] = lx, l.block[1] = ly, l.block[2] = lz;
  l.rsrc1 = 63 | FLOAT_MODE << 12 | 1 << 21 | 1 << 23;
  l.rsrc2 = 1 | (16 - ids) << 1 | ((1u << ids) - 1) << 7 | 2 << 11 | LDS_MAX / 512 << 15;
  l.user_sgpr[0] = (uint32_t)pointer, l.user_sgpr[1] = (uint32_t)(pointer >> 32);
  l.scratch_bytes_per_lane = REMU_SCRATCH;
  return db_emu_run(&l);
}

/* ---- stepping ---- */

struct db_emu_group {
  struct run run;
  struct shader_stats stats;
  struct fault fault;
  unsigned waves;
};

EXPORT struct db_emu_group *db_emu_open(const struct db_emu_launch *l, const uint32_t group[3]) {
  if (!l || l->size != sizeof *l) return fail(0, "db_emu_launch.size does not match this version"), NULL;
  struct db_emu_group *g = calloc(1, sizeof *g);
  if (!g || !(g->run.context = context_get())) return free(g), fail(0, "out of memory"), NULL;
  g->fault.lane = -1;
  int rc = prepare_run(l, &g->run);
  if (!rc) rc = set_scratch(&g->run, 1);
  if (!rc) {
    code_cache_invalidate(host.code);
    rc = shader_open(g->run.context->core, host.code, &g->run.d, group, &g->stats, &g->fault);
    if (rc < 0) fail(rc, "%s", g->fault.text);
  }
  if (rc > 0) return g->waves = (unsigned)rc, g;
  context_put(g->run.context);
  free(g);
  return NULL;
}

EXPORT void db_emu_close(struct db_emu_group *g) {
  if (!g) return;
  if (g->waves) shader_close(g->run.context->core);
  context_put(g->run.context);
  free(g);
}

EXPORT unsigned db_emu_waves(const struct db_emu_group *g) { return g->waves; }
EXPORT const char *db_emu_fault_text(const struct db_emu_group *g) { return g->fault.text; }

static struct rdna3_wave *wave_of(const struct db_emu_group *g, unsigned wave) {
  return g->waves ? shader_wave(g->run.context->core, wave) : NULL;
}

EXPORT enum db_emu_step db_emu_step(struct db_emu_group *g, unsigned wave) {
  static const enum db_emu_step steps[] = {[SHADER_STEPPED] = DB_EMU_STEPPED,
                                           [SHADER_AT_BARRIER] = DB_EMU_AT_BARRIER,
                                           [SHADER_ENDED] = DB_EMU_ENDED,
                                           [SHADER_FAULTED] = DB_EMU_FAULTED};
  if (!wave_of(g, wave)) return DB_EMU_ENDED;
  struct guard guard;
  struct guard **slot = guard_slot();
  if (sigsetjmp(guard.jump, 0)) {
    shader_interrupted(g->run.context->core, host.code, guard.address, guard.access, &g->fault);
    g->waves = 0;
    return DB_EMU_FAULTED;
  }
  *slot = &guard;
  enum shader_step s = shader_step(g->run.context->core, wave);
  *slot = NULL;
  return steps[s];
}

EXPORT uint64_t db_emu_pc(const struct db_emu_group *g, unsigned wave) {
  const struct rdna3_wave *w = wave_of(g, wave);
  return w && w->next ? w->next->inst->pc : 0;
}
EXPORT int db_emu_disassemble(const struct db_emu_group *g, unsigned wave, char *buf, size_t cap) {
  const struct rdna3_wave *w = wave_of(g, wave);
  return w && w->next ? rdna3_print(w->next->inst, buf, cap) : snprintf(buf, cap, "%s", "");
}

static uint32_t *vgpr(const struct db_emu_group *g, unsigned wave, unsigned lane, unsigned n) {
  struct rdna3_wave *w = wave_of(g, wave);
  if (!w || n >= RDNA3_VGPRS || lane >= (w->wave64 ? 64 : 32)) return NULL;
  return w->file + ((lane / 32 * RDNA3_ROWS + n) * RDNA3_LANES + lane % 32);
}
EXPORT uint32_t db_emu_read_vgpr(const struct db_emu_group *g, unsigned wave, unsigned lane, unsigned n) {
  const uint32_t *at = vgpr(g, wave, lane, n);
  return at ? *at : 0;
}
EXPORT void db_emu_write_vgpr(struct db_emu_group *g, unsigned wave, unsigned lane, unsigned n, uint32_t value) {
  uint32_t *at = vgpr(g, wave, lane, n);
  if (at) *at = value;
}

static uint32_t *sgpr(const struct db_emu_group *g, unsigned wave, unsigned n) {
  struct rdna3_wave *w = wave_of(g, wave);
  return w && n != RDNA3_NULL && (n < RDNA3_SINK || n == RDNA3_SCC) ? &w->s[n] : NULL;
}
EXPORT uint32_t db_emu_read_sgpr(const struct db_emu_group *g, unsigned wave, unsigned n) {
  const uint32_t *at = sgpr(g, wave, n);
  return at ? *at : 0;
}
EXPORT void db_emu_write_sgpr(struct db_emu_group *g, unsigned wave, unsigned n, uint32_t value) {
  uint32_t *at = sgpr(g, wave, n);
  if (at) *at = value;
}
