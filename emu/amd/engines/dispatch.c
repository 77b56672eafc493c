/* A compute dispatch: runs the workgroups that a queue's registers describe on the host's cores. Register meaning: the
 * Linux amdgpu driver's gc_11_0_0_sh_mask.h; PGM, RSRC and scratch rules: LLVM AMDGPUUsage, section "Code Object". */
#include "gpu.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "../../../hcq/amd/pm4_wire.h"
#include "../../exec/cost.h"
#include "../../guard.h"
#include "../../exec/lines.h"

#define REG(name)    (q->sh[GFX11_##name - PM4_SH_BASE])
#define RFIELD(r, f) BITS_GET(GFX11_##r##_##f, REG(r))
#define INITIATOR(f) BITS_GET(GFX11_COMPUTE_DISPATCH_INITIATOR_##f, initiator)
#define BAD(...)     cp_fault(q, FAULT_PACKET, 0, VM_READ, __VA_ARGS__)

enum { MAX_THREADS = 1024, LDS_UNIT = 512, SCRATCH_UNIT = 256, CHUNKS_PER_CORE = 16, CHUNK_MAX = 256 };

/* A running dispatch. */
struct run {
  struct amd_queue *q;
  struct shader_dispatch d;
  uint32_t first[3], count[3]; /* first workgroup id and number of workgroups */
  uint32_t partial[3];         /* size of the last group in each dimension; 0 if it is full */
  unsigned waves_per_group;
  pthread_mutex_t lock;
  struct fault fault;          /* the first one; guarded by lock */
  struct fault where;          /* position of a wave that was stopped; guarded by lock */
  struct shader_stats counted; /* counts per instruction if detail is enabled; guarded by lock */
  struct emu_detail detail;
  struct emu_lines lines;
  struct emu_sites sites; /* if each instruction is counted; then one worker runs all workgroups */
  enum emu_counting counting;
  struct amd_unit unit[AMD_UNITS_MAX]; /* where its workgroups run, in turns */
  unsigned nunits;
  bool counts;                 /* its workgroups add to the performance counters */
  struct race_task *task;      /* NULL if the machine is not strict */
  struct sqtt_dispatch *trace; /* NULL if it is not traced */
};

static uint64_t clock_of_gpu(void *ctx) { return amd_clock(); }

static void add_count(_Atomic uint64_t *total, uint64_t n) {
  atomic_fetch_add_explicit(total, n, memory_order_relaxed);
}

/* Returns the core of a worker. Only that worker creates and uses it. */
static struct shader_core *core_of(struct run *r, unsigned worker) {
  struct amd_shared *m = r->q->gpu->shared;
  if (!worker) return r->q->core;
  if (!m->cores[worker]) m->cores[worker] = shader_core_new();
  return m->cores[worker];
}

static void stop_with(struct run *r, const struct fault *fault) {
  pthread_mutex_lock(&r->lock);
  if (r->fault.kind == FAULT_NONE) r->fault = *fault;
  pthread_mutex_unlock(&r->lock);
  atomic_store(&r->q->stop, true);
}

static int run_group(struct run *r, struct shader_core *core, const struct shader_dispatch *d, const uint32_t group[3],
                     unsigned seat, struct shader_stats *stats, struct fault *fault) {
  struct guard guard, **slot = guard_slot(), *const outer = *slot;
  if (sigsetjmp(guard.jump, 0)) {
    *slot = outer;
    shader_interrupted(core, r->q->code, guard.address, guard.access, fault);
    return -EFAULT;
  }
  *slot = &guard;
  int rc = shader_run_workgroup(core, r->q->code, d, group, seat * r->waves_per_group, stats, fault);
  *slot = outer;
  return rc;
}

static bool run_groups(void *ctx, unsigned worker, unsigned seat, uint64_t begin, uint64_t end) {
  struct run *r = ctx;
  struct amd_gpu *gpu = r->q->gpu;
  struct shader_core *core = core_of(r, worker);
  bool detailed = r->counted.detail, counts = r->counts;
  struct emu_detail detail = {0};
  struct emu_lines lines = {0};
  struct shader_stats stats = {0};
  struct shader_trace recorder;
  if (detailed || counts) stats.detail = &detail;
  if (detailed) stats.lines = &lines;
  if (r->counted.sites) stats.sites = &r->sites, lines.caches = r->sites.caches.model ? &r->sites.caches : NULL;
  stats.counting = r->counting;
  race_task = r->task;
  bool go_on = true, has_partial = r->partial[0] || r->partial[1] || r->partial[2];
  for (uint64_t i = begin; i < end && go_on; i++) {
    if (atomic_load_explicit(&r->q->stop, memory_order_relaxed)) {
      go_on = false;
      break;
    }
    uint64_t at[3] = {i % r->count[0], i / r->count[0] % r->count[1], i / r->count[0] / r->count[1]};
    uint32_t group[3];
    for (int k = 0; k < 3; k++) group[k] = r->first[k] + (uint32_t)at[k];
    const struct shader_dispatch *d = &r->d;
    struct shader_dispatch edge;
    if (has_partial) {
      edge = r->d;
      for (int k = 0; k < 3; k++)
        if (r->partial[k] && at[k] == r->count[k] - 1) edge.threads[k] = r->partial[k];
      d = &edge;
    }
    struct fault fault = {.kind = FAULT_NONE, .lane = -1};
    if (!core) {
      snprintf(fault.text, sizeof fault.text, "the emulator is out of memory");
      fault.kind = FAULT_TRAP;
    }
    struct emu_detail before;
    uint64_t waves = stats.waves;
    if (counts) before = detail;
    if (lines.caches) emu_caches_begin(lines.caches);
    stats.trace = amd_sqtt_group_begin(r->trace, i, &recorder);
    int rc = core ? run_group(r, core, d, group, seat, &stats, &fault) : -EFAULT;
    amd_sqtt_group_end(r->trace, i, &recorder);
    if (counts) amd_perf_add(r->q, &r->unit[i % r->nunits], d->wave32, stats.waves - waves, &before, &detail);
    if (rc) {
      if (rc == -ECANCELED) {
        pthread_mutex_lock(&r->lock);
        r->where = fault;
        pthread_mutex_unlock(&r->lock);
      } else {
        stop_with(r, &fault);
      }
      go_on = false;
    }
  }
  race_task = NULL;
  emu_steps_free(&stats.steps);
  add_count(&gpu->instructions, stats.instructions);
  add_count(&gpu->waves, stats.waves);
  add_count(&gpu->workgroups, stats.workgroups);
  add_count(&gpu->bytes_loaded, stats.bytes_loaded);
  add_count(&gpu->bytes_stored, stats.bytes_stored);
  if (detailed) {
    pthread_mutex_lock(&r->lock);
    r->counted.waves += stats.waves, r->counted.workgroups += stats.workgroups,
        r->counted.instructions += stats.instructions;
    emu_detail_add(r->counted.detail, &detail);
    emu_lines_add(&r->lines, &lines);
    pthread_mutex_unlock(&r->lock);
    emu_lines_free(&lines);
  }
  return go_on;
}

/* Computes the number of workgroups in each dimension. */
static enum cp_status set_extent(struct amd_queue *q, struct run *r, const uint32_t dims[3], uint32_t initiator) {
  const uint32_t start[3] = {REG(COMPUTE_START_X), REG(COMPUTE_START_Y), REG(COMPUTE_START_Z)};
  const uint32_t num[3] = {REG(COMPUTE_NUM_THREAD_X), REG(COMPUTE_NUM_THREAD_Y), REG(COMPUTE_NUM_THREAD_Z)};
  for (int k = 0; k < 3; k++) {
    uint32_t full = num[k] & 0xffff, partial = num[k] >> 16, end = dims[k];
    if (!full) return BAD("dispatch: workgroup size %u is 0 in dimension %d", full, k);
    r->d.threads[k] = full;
    if (INITIATOR(USE_THREAD_DIMENSIONS)) {
      end = dims[k] / full + (dims[k] % full != 0);
      if (INITIATOR(PARTIAL_TG_EN) && dims[k] % full) {
        if (partial != dims[k] % full)
          return BAD("dispatch: %u work-items in groups of %u leave %u in dimension %d, but NUM_THREAD_PARTIAL is %u",
                     dims[k], full, dims[k] % full, k, partial);
        r->partial[k] = partial;
      }
    } else if (INITIATOR(PARTIAL_TG_EN) && partial) {
      if (partial > full)
        return BAD("dispatch: NUM_THREAD_PARTIAL %u exceeds the group's %u in dimension %d", partial, full, k);
      r->partial[k] = partial == full ? 0 : partial;
    }
    r->first[k] = INITIATOR(FORCE_START_AT_000) ? 0 : start[k];
    if (end && r->first[k] >= end)
      return BAD("dispatch: starts at workgroup %u of %u in dimension %d", r->first[k], end, k);
    r->count[k] = end - r->first[k];
    r->d.groups[k] = end;
  }
  uint64_t threads = (uint64_t)r->d.threads[0] * r->d.threads[1] * r->d.threads[2];
  if (threads > MAX_THREADS)
    return BAD("dispatch: a workgroup of %u x %u x %u exceeds %d work-items", r->d.threads[0], r->d.threads[1],
               r->d.threads[2], MAX_THREADS);
  r->waves_per_group = 1 + (unsigned)(threads - 1) / (r->d.wave32 ? 32 : 64);
  return CP_DONE;
}

/* Scratch memory has one slot per wave that can be resident. A worker uses as many slots as its workgroup has waves.
 * Sets *seats to the number of workgroups that may run at the same time. */
static enum cp_status set_scratch(struct amd_queue *q, struct run *r, unsigned *seats) {
  if (!RFIELD(COMPUTE_PGM_RSRC2, SCRATCH_EN)) return CP_DONE;
  uint64_t slots = (uint64_t)RFIELD(COMPUTE_TMPRING_SIZE, WAVES) * q->gpu->model->shader_engines;
  r->d.scratch_base =
      ((uint64_t)RFIELD(COMPUTE_DISPATCH_SCRATCH_BASE_HI, VA_47_40) << 32 | REG(COMPUTE_DISPATCH_SCRATCH_BASE_LO)) << 8;
  r->d.scratch_wave_size = RFIELD(COMPUTE_TMPRING_SIZE, WAVESIZE) * SCRATCH_UNIT;
  r->d.scratch_waves = (uint32_t)slots;
  uint64_t groups = slots / (r->waves_per_group ? r->waves_per_group : 1);
  if (!r->d.scratch_wave_size || !groups)
    return BAD("dispatch: scratch has %" PRIu64 " slots of %u bytes, a workgroup needs %u", slots,
               r->d.scratch_wave_size, r->waves_per_group);
  if (groups < *seats) *seats = (unsigned)groups;
  return CP_DONE;
}

static enum cp_status check_program(struct amd_queue *q, struct run *r) {
  struct vm_range code;
  bool mapped = vm_find(q->gpu->vm, r->d.pgm, &code);
  if (!mapped || !(code.access & VM_EXEC)) {
    char near[160];
    vm_describe(q->gpu->vm, r->d.pgm, near, sizeof near);
    return cp_fault(q, FAULT_PAGE, r->d.pgm, VM_EXEC,
                    "page fault: program at 0x%" PRIx64 " is not executable memory, %s", r->d.pgm, near);
  }
  return CP_DONE;
}

/* Logs a line about an event that is not a fault. */
static void log_event(struct run *r, const char *what, const struct fault *f) {
  const struct emu_machine *m = r->q->gpu->shared->machine;
  char line[800], name[128] = "?";
  if (!m->print) return;
  amd_kernel_name(r->q->gpu->vm, r->d.pgm, name, sizeof name);
  snprintf(line, sizeof line, "%s: %s; kernel %s", what, f->text, name);
  m->print(m->print_ctx, line);
}

/* Adds the kernel's name, and for page faults the mapping nearest to the address, to the message of a shader's
 * fault. */
static enum cp_status dispatch_faulted(struct amd_queue *q, struct run *r) {
  struct fault *f = &r->fault;
  size_t n = strlen(f->text);
  char near[160];
  if (f->kind == FAULT_PAGE && n + 4 < sizeof f->text && !strstr(f->text, "allocation")) {
    vm_describe(q->gpu->vm, f->address, near, sizeof near);
    snprintf(f->text + n, sizeof f->text - n, "; %.150s", near);
  }
  char name[128];
  n = strlen(f->text);
  if (amd_kernel_name(q->gpu->vm, r->d.pgm, name, sizeof name))
    snprintf(f->text + n, sizeof f->text - n, "; kernel %s", name);
  q->gpu->shared->fault(q->gpu, f);
  return CP_DEAD;
}

/* Returns the number of waves that a compute unit can hold. It has two SIMDs with 1536 registers of 32 lanes, allocated
 * in units of 24 (LLVM AMDGPUUsage, "Code Object", VGPR allocation granule of gfx1100), and half of a WGP's 128 KiB of
 * LDS. */
static uint64_t resident_waves(const struct run *r, uint32_t lds) {
  enum { SIMDS = 2, WAVES = 16, REGISTERS = 1536, GRANULE = 24, LDS = 64 << 10 };
  unsigned rows = ((r->d.rsrc1 & 63) + 1) * 8, taken = (rows + GRANULE - 1) / GRANULE * GRANULE; /* of 32 lanes */
  uint64_t waves = REGISTERS / taken < WAVES ? REGISTERS / taken : WAVES;
  waves = waves ? waves * SIMDS : SIMDS;
  uint64_t groups = lds ? LDS / lds : waves;
  if (groups * r->waves_per_group < waves) waves = groups * r->waves_per_group;
  return waves < r->waves_per_group ? r->waves_per_group : waves;
}

static enum cp_status check_initiator(struct amd_queue *q, uint32_t initiator) {
  uint32_t reserved = initiator & ~gfx11_register_bits(GFX11_COMPUTE_DISPATCH_INITIATOR);
  uint32_t unsupported = initiator & (BITS_MASK(GFX11_COMPUTE_DISPATCH_INITIATOR_ORDERED_APPEND_ENBL) |
                                      BITS_MASK(GFX11_COMPUTE_DISPATCH_INITIATOR_RESTORE) |
                                      BITS_MASK(GFX11_COMPUTE_DISPATCH_INITIATOR_AMP_SHADER_EN) |
                                      BITS_MASK(GFX11_COMPUTE_DISPATCH_INITIATOR_TUNNEL_ENABLE));
  if (reserved) return BAD("dispatch: DISPATCH_INITIATOR 0x%08x sets reserved bits 0x%08x", initiator, reserved);
  if (unsupported) return BAD("not supported: dispatch with DISPATCH_INITIATOR bits 0x%08x", unsupported);
  if (!INITIATOR(COMPUTE_SHADER_EN))
    return BAD("dispatch: DISPATCH_INITIATOR 0x%08x does not enable the shader", initiator);
  return CP_DONE;
}

/* Finds the units where the workgroups run. */
static enum cp_status find_units(struct amd_queue *q, struct run *r, uint32_t lds) {
  const struct amd_model *model = q->gpu->model;
  r->nunits = amd_list_units(q, r->d.rsrc1, r->unit);
  if (!r->nunits) return BAD("dispatch: COMPUTE_STATIC_THREAD_MGMT enables no compute unit for its workgroups");
  if (lds > model->lds_kib * 1024)
    return BAD("dispatch: %u bytes of LDS for a workgroup, the GPU has %u", lds, model->lds_kib * 1024);
  return CP_DONE;
}

static struct shader_dispatch described(struct amd_queue *q, uint32_t initiator) {
  struct shader_dispatch d = {
      .vm = q->gpu->vm,
      .pgm = ((uint64_t)RFIELD(COMPUTE_PGM_HI, VA_47_40) << 32 | REG(COMPUTE_PGM_LO)) << 8,
      .rsrc1 = REG(COMPUTE_PGM_RSRC1),
      .rsrc2 = REG(COMPUTE_PGM_RSRC2),
      .rsrc3 = REG(COMPUTE_PGM_RSRC3),
      .wave32 = INITIATOR(CS_W32_EN),
      .clock = clock_of_gpu,
      .stop = &q->stop,
  };
  memcpy(d.user_data, &REG(COMPUTE_USER_DATA_0), sizeof d.user_data);
  return d;
}

/* Adds the dispatch's counts per instruction to those of the GPU. */
static void add_detail(struct run *r, uint64_t resident) {
  struct amd_gpu *gpu = r->q->gpu;
  r->detail.memory_bytes = emu_lines_bytes(&r->lines);
  struct emu_launch launch = {r->counted.waves, r->counted.workgroups, resident};
  r->detail.model_ps = emu_model_ps(gpu->model->name, &r->detail, &launch);
  amd_counters_add(gpu, r->d.pgm, &r->counted);
  emu_lines_free(&r->lines);
  emu_sites_free(&r->sites);
}

/* Enables the counts that emu_detail or emu_annotate asked for. Without memory for the counts of each instruction, only
 * the kernel's totals are counted. */
static void begin_detail(struct run *r) {
  struct amd_gpu *gpu = r->q->gpu;
  if (!atomic_load_explicit(&gpu->shared->detail, memory_order_relaxed)) return;
  r->counted.detail = &r->detail;
  if (!atomic_load_explicit(&gpu->shared->annotate, memory_order_relaxed)) return;
  if (!emu_sites_init(&r->sites, gpu->model->name)) r->counted.sites = &r->sites;
}

enum cp_status amd_dispatch(struct amd_queue *q, const uint32_t dims[3], uint32_t initiator) {
  uint32_t lds = RFIELD(COMPUTE_PGM_RSRC2, LDS_SIZE) * LDS_UNIT;
  if (check_initiator(q, initiator) != CP_DONE) return CP_DEAD;
  struct run r = {.q = q, .d = described(q, initiator)};
  if (find_units(q, &r, lds) != CP_DONE) return CP_DEAD;
  unsigned seats = pool_workers(q->gpu->shared->pool) + 1;
  if (set_extent(q, &r, dims, initiator) != CP_DONE || set_scratch(q, &r, &seats) != CP_DONE) return CP_DEAD;
  uint64_t total = (uint64_t)r.count[0] * r.count[1];
  if (!dims[0] || !dims[1] || !dims[2]) return CP_DONE;
  if (check_program(q, &r) != CP_DONE) return CP_DEAD;
  if (__builtin_mul_overflow(total, (uint64_t)r.count[2], &total) || total > UINT64_MAX / 2)
    return BAD("dispatch: %u x %u x %u workgroups", r.count[0], r.count[1], r.count[2]);

  uint64_t chunk = total / ((uint64_t)seats * CHUNKS_PER_CORE);
  chunk = chunk < 1 ? 1 : chunk > CHUNK_MAX ? CHUNK_MAX : chunk;
  add_count(&q->gpu->dispatches, 1);
  struct shader_notes notes;
  memset(&notes, 0, sizeof notes);
  r.d.notes = &notes;
  begin_detail(&r);
  pthread_mutex_init(&r.lock, NULL);
  atomic_store(&q->dispatching, true);
  if (q->race) {
    char name[128] = "?";
    amd_kernel_name(q->gpu->vm, r.d.pgm, name, sizeof name);
    r.task = race_begin(q->race, name);
  }
  uint64_t resident = resident_waves(&r, lds);
  if (amd_perf_counts(q)) {
    r.counts = true;
    if (!r.counted.detail) r.counting = amd_perf_counts_lds(q) ? EMU_COUNT_CLASSES_LDS : EMU_COUNT_CLASSES;
  }
  r.trace = amd_sqtt_dispatch(q, &r.d, r.unit, r.nunits, total, r.waves_per_group, resident);
  q->launched += total;
  pool_run(q->gpu->shared->pool, total, chunk, r.counted.sites ? 1 : seats, run_groups, &r);
  pthread_mutex_destroy(&r.lock);
  enum cp_status traced = amd_sqtt_dispatch_end(q, r.trace);
  if (r.counted.detail) add_detail(&r, resident);
  if (notes.lds_outside) log_event(&r, "LDS access out of range (loads give 0, stores do nothing)", &notes.first);
  if (r.fault.kind == FAULT_NONE && r.where.text[0]) log_event(&r, "stopped with its queue", &r.where);
  atomic_store(&q->dispatching, false);
  enum cp_status raced = cp_task_end(q, r.task);
  if (r.fault.kind != FAULT_NONE) return dispatch_faulted(q, &r);
  if (raced != CP_DONE || traced != CP_DONE) return CP_DEAD;
  return atomic_load_explicit(&q->stop, memory_order_relaxed) ? CP_DEAD : CP_DONE;
}
