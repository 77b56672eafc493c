/* Workgroups: launches their waves as the registers of a dispatch specify, and runs them in turns on one host thread.
 * Source for the initial state: LLVM AMDGPUUsage, "Initial Kernel Execution State"; RDNA3 ISA document, "Wave
 * State". */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rdna3_exec.h"

enum {
  MAX_THREADS = 1024,
  MAX_WAVES = MAX_THREADS / 32,
  LDS_BYTES = 64 << 10,
  SLICE = 8192, /* instructions that a wave executes before the next wave runs */
  FILE_WORDS = RDNA3_ROWS * RDNA3_LANES,
};

struct shader_core {
  struct rdna3_wave wave[MAX_WAVES];
  struct rdna3_jump_cache jumps;
  uint32_t *files; /* 32 register files of 32 lanes */
  uint8_t *lds;
  uint32_t waves, current; /* number of waves; index of the running one */
  uint32_t host_fp;        /* floating-point control word outside waves */
};

void shader_core_free(struct shader_core *core) {
  if (!core) return;
  free(core->files), free(core->lds), free(core);
}

struct shader_core *shader_core_new(void) {
  struct shader_core *core = calloc(1, sizeof *core);
  if (!core) return NULL;
  rdna3_init();
  core->files = aligned_alloc(128, (size_t)MAX_WAVES * FILE_WORDS * 4);
  core->lds = aligned_alloc(128, LDS_BYTES);
  if (core->files && core->lds) {
    memset(core->files, 0, (size_t)MAX_WAVES * FILE_WORDS * 4);
    return core;
  }
  shader_core_free(core);
  return NULL;
}

static uint32_t bits(uint32_t word, unsigned low, unsigned width) { return word >> low & ((1u << width) - 1); }

/* MODE[7:0] is FLOAT_MODE of RSRC1; its DX10_CLAMP, IEEE_MODE and FP16_OVFL bits go to 8, 9 and 23. */
static uint32_t initial_mode(uint32_t rsrc1) {
  return bits(rsrc1, 12, 8) | bits(rsrc1, 21, 1) << 8 | bits(rsrc1, 23, 1) << 9 | bits(rsrc1, 26, 1) << 23;
}

static void launch_scalars(struct rdna3_wave *w, const struct shader_dispatch *d, uint32_t waves) {
  uint32_t user = bits(d->rsrc2, 1, 5), n = user < 16 ? user : 16;
  memset(w->s, 0, sizeof w->s);
  memcpy(w->s, d->user_data, n * 4);
  for (unsigned i = 0; i < 3; i++)
    if (bits(d->rsrc2, 7 + i, 1)) w->s[user++] = w->group[i];
  if (bits(d->rsrc2, 10, 1)) w->s[user++] = (uint32_t)(w->index == 0) << 31 | w->index << 6 | waves;
}

/* v0 holds the work-item's ids, 10 bits each, for the components that the kernel enables. */
static void launch_lanes(struct rdna3_wave *w, const struct shader_dispatch *d, uint32_t threads) {
  uint32_t lanes = w->wave64 ? 64 : 32, components = bits(d->rsrc2, 11, 2);
  uint32_t rows = (bits(d->rsrc1, 0, 6) + 1) * (w->wave64 ? 4 : 8);
  for (uint32_t half = 0; half < lanes / 32; half++)
    memset(w->file + half * FILE_WORDS, 0, (size_t)(rows < RDNA3_VGPRS ? rows : RDNA3_VGPRS) * RDNA3_LANES * 4);
  uint32_t id = w->index * lanes, x = id % d->threads[0], y = id / d->threads[0] % d->threads[1],
           z = id / d->threads[0] / d->threads[1];
  for (uint32_t l = 0; l < lanes && id < threads; l++, id++) {
    w->file[l / 32 * FILE_WORDS + l % 32] = x | (components > 0 ? y << 10 : 0) | (components > 1 ? z << 20 : 0);
    w->s[RDNA3_EXEC + l / 32] |= 1u << l % 32;
    if (++x < d->threads[0]) continue;
    x = 0;
    if (++y == d->threads[1]) y = 0, z++;
  }
}

static void launch(struct shader_core *core, struct code_cache *code, const struct shader_dispatch *d,
                   const uint32_t group[3], uint32_t scratch_slot, uint32_t index, uint32_t waves, uint32_t threads,
                   struct shader_stats *stats, struct fault *fault) {
  struct rdna3_wave *w = &core->wave[index];
  w->wave64 = !d->wave32;
  w->file = core->files + (size_t)index * FILE_WORDS * (w->wave64 ? 2 : 1);
  w->v = w->file, w->half = 0, w->lanes = &w->s[RDNA3_EXEC];
  w->state = RDNA3_RUNNING, w->executed = 0;
  w->index = index;
  memcpy(w->group, group, sizeof w->group);
  w->mode = initial_mode(d->rsrc1);
  w->fp_control = rdna3_fp_word(rdna3_round32(w->mode), rdna3_denorm32(w->mode));
  /* Cached translations remain valid: a generation belongs to one address space only. */
  w->vm = d->vm;
  w->lds = core->lds;
  w->lds_size = bits(d->rsrc2, 15, 9) * 512;
  if (w->lds_size > LDS_BYTES) w->lds_size = LDS_BYTES;
  bool scratch = bits(d->rsrc2, 0, 1) && d->scratch_wave_size && scratch_slot + index < d->scratch_waves;
  w->scratch_base = scratch ? d->scratch_base + (uint64_t)(scratch_slot + index) * d->scratch_wave_size : 0;
  w->scratch_size = scratch ? d->scratch_wave_size : 0;
  w->dispatch = d, w->core = core, w->code = code, w->jumps = &core->jumps, w->stats = stats, w->fault = fault;
  w->counts = stats->detail;
  launch_scalars(w, d, waves);
  launch_lanes(w, d, threads);
  w->exec = 0;
  if (w->counts) rdna3_count_lanes(w);
}

static void run_slice(struct rdna3_wave *w) {
  const struct rdna3_uop *u = w->next;
  rdna3_resume(w, u, SLICE);
  do u = u->fn(w, u);
  while (u);
}

static int run_waves(struct shader_core *core, uint32_t waves, const atomic_bool *stop) {
  uint32_t fp = 0;
  for (;;) {
    uint32_t waiting = 0, ended = 0;
    for (uint32_t i = 0; i < waves; i++) {
      struct rdna3_wave *w = &core->wave[i];
      if (w->state == RDNA3_RUNNING || w->state == RDNA3_YIELDED) {
        if (fp != w->fp_control) rdna3_fp_set(w->fp_control);
        core->current = i;
        run_slice(w);
        fp = w->fp_control; /* the current MODE's; operations restore what they change */
        if (w->state == RDNA3_FAULTED) return -EFAULT;
        if (stop && atomic_load_explicit(stop, memory_order_relaxed)) {
          rdna3_fault(w, w->next, FAULT_NONE, -1, 0, 0, "still running");
          return -ECANCELED;
        }
      }
      waiting += w->state == RDNA3_BARRIER, ended += w->state == RDNA3_ENDED;
    }
    if (ended == waves) return 0;
    /* Waves that have ended do not count for a barrier. */
    if (waiting + ended == waves)
      for (uint32_t i = 0; i < waves; i++)
        if (core->wave[i].state == RDNA3_BARRIER) core->wave[i].state = RDNA3_RUNNING;
  }
}

static int refuse_launch(struct fault *fault, const uint32_t group[3], const char *text) {
  memset(fault, 0, sizeof *fault);
  fault->kind = FAULT_PACKET, fault->lane = -1;
  memcpy(fault->workgroup, group, sizeof fault->workgroup);
  snprintf(fault->text, sizeof fault->text, "%s", text);
  return -EFAULT;
}

/* Launches all waves and returns their number. On success the code cache is entered. */
static int launch_all(struct shader_core *core, struct code_cache *code, const struct shader_dispatch *d,
                      const uint32_t group[3], uint32_t scratch_slot, struct shader_stats *stats, struct fault *fault) {
  uint64_t threads = (uint64_t)d->threads[0] * d->threads[1] * d->threads[2];
  if (d->threads[0] > MAX_THREADS || d->threads[1] > MAX_THREADS || d->threads[2] > MAX_THREADS ||
      threads > MAX_THREADS)
    return refuse_launch(fault, group, "a workgroup has at most 1024 work-items");
  if (!threads) return refuse_launch(fault, group, "a workgroup has no work-items");
  uint32_t lanes = d->wave32 ? 32 : 64, waves = ((uint32_t)threads + lanes - 1) / lanes;
  for (uint32_t i = 0; i < waves; i++)
    launch(core, code, d, group, scratch_slot, i, waves, (uint32_t)threads, stats, fault);
  if (stats->trace) {
    stats->trace->waves = waves;
    for (uint32_t i = 0; i < waves; i++)
      stats->trace->wave[i].lanes = (uint8_t)(threads - i * lanes < lanes ? threads - i * lanes : lanes);
  }
  core->waves = waves, core->current = 0, core->host_fp = rdna3_fp_get();
  if (!d->keep_lds) memset(core->lds, 0, core->wave[0].lds_size);
  /* The code that cached jumps lead to may have changed and been freed since the last workgroup. */
  memset(&core->jumps, 0, sizeof core->jumps);
  code_cache_enter(code);
  const struct rdna3_uop *entry = rdna3_lookup(&core->wave[0], NULL, d->pgm);
  for (uint32_t i = 0; i < waves; i++) core->wave[i].next = core->wave[i].run = entry;
  if (entry) return (int)waves;
  rdna3_count_finish(stats);
  code_cache_leave(code);
  return -EFAULT;
}

int shader_run_workgroup(struct shader_core *core, struct code_cache *code, const struct shader_dispatch *d,
                         const uint32_t group[3], uint32_t scratch_slot, struct shader_stats *stats,
                         struct fault *fault) {
  int waves = launch_all(core, code, d, group, scratch_slot, stats, fault);
  if (waves < 0) return waves;
  int r = run_waves(core, (uint32_t)waves, d->stop);
  rdna3_count_finish(stats);
  code_cache_leave(code);
  rdna3_fp_set(core->host_fp);
  for (int i = 0; i < waves; i++) {
    stats->instructions += core->wave[i].executed;
    if (stats->trace) stats->trace->wave[i].executed = core->wave[i].executed;
  }
  stats->waves += (uint64_t)waves, stats->workgroups++;
  return r;
}

void shader_interrupted(struct shader_core *core, struct code_cache *code, uint64_t address, unsigned access,
                        struct fault *fault) {
  struct rdna3_wave *w = &core->wave[core->current];
  rdna3_fp_set(core->host_fp);
  /* The position in the straight-line run was in a register of the host, which is lost. */
  w->fault = fault;
  rdna3_fault(w, NULL, FAULT_PAGE, -1, address, access,
              "page fault: %s 0x%llx, host memory that is no longer mapped, at or after pc 0x%llx",
              access & VM_WRITE ? "writes" : "reads", (unsigned long long)address,
              (unsigned long long)(w->run ? w->run->inst->pc : 0));
  rdna3_count_finish(w->stats);
  code_cache_leave(code);
}

/* ---- one instruction at a time ---- */

struct rdna3_wave *shader_wave(struct shader_core *core, unsigned wave) {
  return wave < core->waves ? &core->wave[wave] : NULL;
}

int shader_open(struct shader_core *core, struct code_cache *code, const struct shader_dispatch *d,
                const uint32_t group[3], struct shader_stats *stats, struct fault *fault) {
  return launch_all(core, code, d, group, 0, stats, fault);
}

void shader_close(struct shader_core *core) {
  rdna3_count_finish(core->wave[0].stats);
  code_cache_leave(core->wave[0].code);
}

static void step(struct rdna3_wave *w) {
  const struct rdna3_uop *u = w->next;
  const struct rdna3_inst *inst = u->inst;
  /* Without budget a branch stops the wave after it, even a branch to itself. */
  rdna3_resume(w, u, 0);
  do u = u->fn(w, u);
  while (u && u->inst == inst);
  if (!u) return;
  rdna3_count(w, u->inst);
  w->run = w->next = u;
}

enum shader_step shader_step(struct shader_core *core, unsigned wave) {
  struct rdna3_wave *w = &core->wave[wave];
  if (w->state == RDNA3_BARRIER) {
    for (uint32_t i = 0; i < core->waves; i++)
      if (core->wave[i].state != RDNA3_BARRIER && core->wave[i].state != RDNA3_ENDED) return SHADER_AT_BARRIER;
    for (uint32_t i = 0; i < core->waves; i++)
      if (core->wave[i].state == RDNA3_BARRIER) core->wave[i].state = RDNA3_RUNNING;
  }
  if (w->state == RDNA3_ENDED) return SHADER_ENDED;
  if (w->state == RDNA3_FAULTED) return SHADER_FAULTED;
  uint32_t fp = rdna3_fp_get();
  rdna3_fp_set(w->fp_control);
  core->current = wave;
  step(w);
  rdna3_fp_set(fp);
  return w->state == RDNA3_ENDED     ? SHADER_ENDED
         : w->state == RDNA3_FAULTED ? SHADER_FAULTED
         : w->state == RDNA3_BARRIER ? SHADER_AT_BARRIER
                                     : SHADER_STEPPED;
}
